/* Tests of placement at the lowest free address: sets of addresses, and offsets for many storages, against brute force.
 * Relies on: Criterion.
 * Relied on by: make test. */
#include <criterion/criterion.h>

#include "pack/pack.h"
#include "pack/spans.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static uint64_t seed;
static int chance(int n) { /* 0 <= result < n */
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((seed >> 33) % (uint64_t)n);
}

/* ── sets of addresses ─────────────────────────────────────────────────────────────────────────────────────── */
enum { SPACE = 1 << 14 };

static int64_t first_free(const bool *taken, int64_t at, int64_t size) {
    for (int64_t n = 0; n < size; at++) n = at < SPACE && taken[at] ? 0 : n + 1;
    return at - size;
}

/* Two spans never touch, a run ends where it says, and no gap of it is larger than it says. */
static int check_spans(const Spans *s, const bool *taken) {
    int64_t end = -1, bytes = 0;
    int n = 0;
    for (int r = 0; r < s->n; r++) {
        const SpanRun *run = &s->runs[r];
        cr_assert(run->n > 0);
        for (int i = 0; i < run->n; i++, n++) {
            Span x = run->at[i];
            cr_assert(x.lo > end && x.hi > x.lo, "span %d of run %d", i, r);
            cr_assert(x.lo - max64(end, 0) <= run->gap, "run %d has a larger gap than it says", r);
            for (int64_t k = x.lo; k < x.hi; k++) cr_assert(taken[k]);
            bytes += x.hi - x.lo;
            end = x.hi;
        }
        cr_assert_eq(run->hi, end);
    }
    for (int k = 0; k < SPACE; k++) bytes -= taken[k];
    cr_assert_eq(bytes, 0, "addresses are missing");
    return n;
}

/* Several searches of one cursor, each of which begins where the one before ended or somewhat above. */
static void check_find(Spans *s, const bool *taken) {
    int64_t size = 1 + chance(chance(2) ? 8 : 60), at = 0, steps = 0;
    SpanCursor c = spans_cursor(s);
    for (int k = 0; k < 20 && at < SPACE; k++) {
        int64_t expected = first_free(taken, at, size), found = spans_find(&c, at, size, &steps);
        cr_assert_eq(found, expected, "%ld bytes from %ld: %ld, not %ld", size, at, found, expected);
        at = found + chance(chance(3) ? 3 : 2000);
    }
}

Test(spans, hold_what_was_added_and_find_the_lowest_gap) {
    static bool taken[SPACE];
    int most = 0;
    for (int k = 0; k < 12; k++) {
        seed = (uint64_t)k;
        Arena *a = arena_new();
        Spans s = {0};
        for (int fill = 0; fill < 2; fill++) { /* the second time in the memory of the first */
            memset(taken, 0, sizeof taken);
            spans_clear(&s);
            for (int i = 0; i < 4000; i++) {
                int size = 1 + chance(chance(50) ? 3 : 300), lo = chance(SPACE - size);
                spans_add(a, &s, (Span){lo, lo + size});
                memset(&taken[lo], true, (size_t)size);
                if (i % 20 == 0) check_find(&s, taken);
                if (i % 200 == 0) most = (int)max64(most, check_spans(&s, taken));
            }
        }
        arena_free(a);
    }
    cr_assert_gt(most, 1000, "%d spans: runs have not been split", most);
}

Test(spans, of_an_array_are_its_spans) {
    static bool taken[SPACE];
    Arena *a = arena_new();
    Spans s = {0};
    for (int k = 0; k < 200; k++) {
        seed = (uint64_t)k;
        memset(taken, 0, sizeof taken);
        Span x[60];
        int n = chance(60);
        for (int i = 0; i < n; i++) {
            int size = 1 + chance(40), lo = chance(2000);
            x[i] = (Span){lo, lo + size};
            memset(&taken[lo], true, (size_t)size);
        }
        spans_of_array(a, &s, x, n);
        check_spans(&s, taken);
        check_find(&s, taken);
    }
    arena_free(a);
}

/* ── many storages ─────────────────────────────────────────────────────────────────────────────────────────── */
typedef enum { SHORT, NESTED, ANY_LENGTH, FEW_TIMES, N_KINDS } Kind;

static Item *make_items(Arena *a, Kind kind, int n) {
    Item *items = NEW_ARRAY(a, Item, n);
    for (int i = 0; i < n; i++) {
        int first = chance(2 * n), last = chance(2 * n), times = kind == FEW_TIMES ? 40 : 2 * n;
        if (kind == SHORT) last = (int)min64(2 * n - 1, first + chance(200));
        if (kind == NESTED) last = 2 * n - 1 - (first /= 2);
        if (kind == FEW_TIMES) first %= times, last %= times;
        items[i] = (Item){.size = 256 * (1 + chance(10000)), .first = (int)min64(first, last)};
        items[i].last = items[i].reach = (int)max64(first, last);
    }
    return items;
}

static int compare_first(const void *a, const void *b) {
    return ((const Item *)a)->first - ((const Item *)b)->first;
}

Test(placement, storages_alive_together_share_no_bytes) {
    for (Kind kind = 0; kind < N_KINDS; kind++) {
        enum { N = 3000 };
        seed = kind;
        Arena *a = arena_new();
        Item *items = make_items(a, kind, N);
        int64_t bound = 0, height = pack(items, N, 2 * N, &bound, 0, 3000000, 0);
        cr_assert(height >= bound && height < bound + bound / 10, "kind %d: %.3f", kind,
                  (double)height / (double)bound);
        qsort(items, N, sizeof *items, compare_first);
        for (int i = 0; i < N; i++) {
            cr_assert(items[i].at >= 0 && items[i].at + items[i].size <= height);
            for (int k = i + 1; k < N && items[k].first <= items[i].last; k++)
                cr_assert(items[k].at >= items[i].at + items[i].size || items[i].at >= items[k].at + items[k].size,
                          "kind %d: %d and %d share bytes", kind, i, k);
        }
        arena_free(a);
    }
}

/* Processor time of placing n storages once, the least of three times. */
static double time_placement(Kind kind, int n) {
    double least = INFINITY;
    for (int k = 0; k < 3; k++) {
        seed = (uint64_t)k;
        Arena *a = arena_new();
        Item *items = make_items(a, kind, n);
        int64_t bound = 0;
        clock_t from = clock();
        pack(items, n, 2 * n, &bound, 0, 1, 0);
        least = fmin(least, (double)(clock() - from) / CLOCKS_PER_SEC);
        arena_free(a);
    }
    return least;
}

/* A storage of a long life lies beside very many others. Asking each of them, or gap after gap between them, takes time
 * that grows with the square of the number: 40 to 250 times as long as for short lives, where now it is 1 to 5 times.
 */
Test(placement, long_lives_take_little_longer_than_short_ones) {
    enum { N = 40000 };
    double once = time_placement(SHORT, N / 8), time = time_placement(SHORT, N);
    cr_expect_lt(time, 32 * fmax(once, 0.008), "%d short lives: %.3f s, an eighth of them: %.3f s", N, time, once);
    for (Kind kind = NESTED; kind < N_KINDS; kind++) {
        double longer = time_placement(kind, N);
        if (getenv("SHOW")) fprintf(stderr, "kind %d: %.4f s, short lives %.4f s\n", kind, longer, time);
        cr_expect_lt(longer, 12 * time, "kind %d: %.3f s, where short lives take %.3f s", kind, longer, time);
    }
}
