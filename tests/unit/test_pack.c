/* Tests of exact packing: what it finds is a packing, what it refutes is impossible, and the packings known to be hard
 * are found. The judge of small problems tries every offset. */
#include <criterion/criterion.h>

#include "pack/exact_search.h"

#include <stdlib.h>
#include <time.h>

/* ── small problems ────────────────────────────────────────────────────────────────────────────────────────── */
enum { MOST = 7, TIMES = 6 };
typedef struct {
    ExactItem items[MOST];
    int sections[MOST][TIMES], n;
    int64_t capacity;
} Small;

static uint64_t state;
static int draw(int n) { /* 0 <= result < n */
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((state >> 33) % (uint64_t)n);
}

static int by_first_section(const void *a, const void *b) {
    return ((const ExactItem *)a)->sections[0] - ((const ExactItem *)b)->sections[0];
}

/* Lives with gaps: every section from the first to the last is left out now and then. */
static void make_small(Small *x, bool aligned, bool gaps) {
    x->n = 2 + draw(MOST - 1);
    for (int i = 0; i < x->n; i++) {
        int from = draw(TIMES), to = from + 1 + draw(TIMES - from), n = 0;
        for (int t = from; t < to; t++)
            if (t == from || !gaps || draw(4)) x->sections[i][n++] = t;
        x->items[i] = (ExactItem){1 + draw(5), aligned ? 1 << draw(3) : 1, x->sections[i], n, -1};
    }
    qsort(x->items, (size_t)x->n, sizeof x->items[0], by_first_section);
    int64_t bound = exact_bound(x->items, x->n, TIMES);
    x->capacity = bound + draw(3);
}

static bool share(const ExactItem *a, const ExactItem *b) {
    for (int i = 0; i < a->nsections; i++)
        for (int k = 0; k < b->nsections; k++)
            if (a->sections[i] == b->sections[k]) return true;
    return false;
}

static bool collide(const ExactItem *a, const ExactItem *b) {
    return share(a, b) && a->at < b->at + b->size && b->at < a->at + a->size;
}

static bool try_all(ExactItem *items, int n, int i, int64_t capacity) {
    if (i == n) return true;
    for (items[i].at = 0; items[i].at + items[i].size <= capacity; items[i].at += items[i].alignment) {
        int k = i - 1;
        while (k >= 0 && !collide(&items[i], &items[k])) k--;
        if (k < 0 && try_all(items, n, i + 1, capacity)) return true;
    }
    return false;
}

static void check_packing(const ExactItem *items, int n, int64_t capacity) {
    for (int i = 0; i < n; i++) {
        cr_assert(items[i].at >= 0 && items[i].at + items[i].size <= capacity, "item %d ends above the capacity", i);
        cr_assert_eq(items[i].at % items[i].alignment, 0, "item %d is not aligned", i);
        for (int k = 0; k < i; k++) cr_assert(!collide(&items[i], &items[k]), "items %d and %d share bytes", i, k);
    }
}

typedef ExactResult Solve(Small *x);

static ExactResult by_both(Small *x) {
    int64_t effort = 100000000;
    return exact_pack(x->items, x->n, TIMES, x->capacity, &effort);
}
static ExactResult with(Small *x, bool lowest_first) {
    Arena *a = arena_new();
    ExactSearch *s = exact_search_new(a, x->items, x->n, 0, TIMES, x->capacity);
    int64_t steps = 0;
    ExactResult r = lowest_first ? exact_lowest_first(exact_lowest_first_new(s), &steps, 100000000)
                                 : exact_bottom_up(exact_bottom_up_new(s), &steps, 100000000);
    for (int i = 0; i < x->n && r == EXACT_FOUND; i++) x->items[i].at = s->items[i].at;
    arena_free(a);
    return r;
}
static ExactResult by_bottom_up(Small *x) {
    return with(x, false);
}
static ExactResult by_lowest_first(Small *x) {
    return with(x, true);
}

/* 400 problems of each kind, of which both many can be packed and many cannot. */
static void agree_with_every_offset(Solve *solve) {
    state = 7;
    int impossible = 0;
    for (int k = 0; k < 1600; k++) {
        Small x;
        make_small(&x, k % 2, k / 2 % 2);
        ExactItem tried[MOST];
        memcpy(tried, x.items, sizeof tried);
        bool possible = try_all(tried, x.n, 0, x.capacity);
        ExactResult r = solve(&x);
        cr_assert_eq(r, possible ? EXACT_FOUND : EXACT_IMPOSSIBLE, "problem %d", k);
        if (possible) check_packing(x.items, x.n, x.capacity);
        impossible += !possible;
    }
    cr_assert(impossible > 60 && impossible < 1540, "%d impossible", impossible);
}

Test(pack, both_searches_agree_with_every_offset) {
    agree_with_every_offset(by_both);
}
Test(pack, bottom_up_agrees_with_every_offset) {
    agree_with_every_offset(by_bottom_up);
}
Test(pack, lowest_first_agrees_with_every_offset) {
    agree_with_every_offset(by_lowest_first);
}

/* The least height by trying capacities one by one. */
Test(pack, least_height_of_small_problems) {
    state = 11;
    int above = 0;
    for (int k = 0; k < 400; k++) {
        Small x;
        make_small(&x, k % 2, k / 2 % 2);
        ExactItem tried[MOST];
        memcpy(tried, x.items, sizeof tried);
        int64_t least = exact_bound(x.items, x.n, TIMES), height = 0, bound = least, effort = 100000000;
        while (!try_all(tried, x.n, 0, least)) least++;
        for (int i = 0; i < x.n; i++) {
            x.items[i].at = round_up(height, x.items[i].alignment);
            height = x.items[i].at + x.items[i].size;
        }
        above += least > bound;
        height = exact_minimise(x.items, x.n, TIMES, height, &bound, true, &effort);
        check_packing(x.items, x.n, height);
        cr_assert_eq(height, least, "problem %d", k);
        cr_assert_eq(bound, least, "problem %d: bound %lld, least %lld", k, (long long)bound, (long long)least);
    }
    cr_assert_gt(above, 20);
}

Test(pack, effort_ends_the_search) {
    enum { N = 60 };
    static ExactItem items[N];
    static int sections[N][N];
    state = 3;
    for (int i = 0; i < N; i++) {
        int from = draw(N), to = from + 1 + draw(N - from);
        for (int t = from; t < to; t++) sections[i][t - from] = t;
        items[i] = (ExactItem){1 + draw(1000), 1, sections[i], to - from, 0};
    }
    int64_t bound = exact_bound(items, N, N), effort = 100;
    cr_assert_eq(exact_pack(items, N, N, bound, &effort), EXACT_UNKNOWN);
    cr_assert_eq(exact_pack(items, N, N, bound - 1, &effort), EXACT_IMPOSSIBLE);
}

/* Items of one byte may lift each other by one byte at a time, through gigabytes. The search ends at its limit there
 * too. */
Test(pack, effort_ends_what_rises_by_bytes) {
    enum { N = 14, TINY = 4, LIMIT = 1000000 };
    for (int problem = 1; problem < 100; problem++) {
        Arena *a = arena_new();
        ExactItem items[N];
        int sections[N][TIMES];
        state = (uint64_t)problem;
        for (int i = 0; i < N; i++) {
            int from = i < TINY ? draw(2) : draw(TIMES), to = i < TINY ? TIMES : (int)min64(TIMES, from + 1 + draw(3));
            for (int t = from; t < to; t++) sections[i][t - from] = t;
            items[i] = (ExactItem){i < TINY ? 1 : 1000000000 + draw(1000000), 1, sections[i], to - from, -1};
        }
        qsort(items, N, sizeof items[0], by_first_section);
        ExactSearch *x = exact_search_new(a, items, N, 0, TIMES, exact_bound(items, N, TIMES));
        int64_t steps = 0;
        exact_bottom_up(exact_bottom_up_new(x), &steps, LIMIT);
        cr_assert_lt(steps, 2 * LIMIT, "problem %d", problem);
        arena_free(a);
    }
}

/* A rectangle cut into N along its times or its bytes, over and over: the items fill it without a hole. */
static void solve_cut(int seed) {
    enum { N = 200, HEIGHT = 1000000 };
    static struct { int from, to, size; } cut[N];
    static int sections[N][N];
    static ExactItem items[N];
    state = (uint64_t)seed;
    cut[0].from = 0;
    cut[0].to = N;
    cut[0].size = HEIGHT;
    for (int n = 1; n < N;) {
        int i = draw(n);
        for (int k = 0; k < 3; k++) { /* a large one of a few */
            int other = draw(n);
            if ((int64_t)(cut[other].to - cut[other].from) * cut[other].size >
                (int64_t)(cut[i].to - cut[i].from) * cut[i].size)
                i = other;
        }
        bool times = draw(2);
        if ((times ? cut[i].to - cut[i].from : cut[i].size) < 2) continue;
        cut[n] = cut[i];
        if (times) {
            cut[n].from = cut[i].to = cut[i].from + 1 + draw(cut[i].to - cut[i].from - 1);
        } else {
            int below = 1 + draw(cut[i].size - 1);
            cut[n].size -= below;
            cut[i].size = below;
        }
        n++;
    }
    for (int i = 0; i < N; i++) {
        for (int t = cut[i].from; t < cut[i].to; t++) sections[i][t - cut[i].from] = t;
        items[i] = (ExactItem){cut[i].size, 1, sections[i], cut[i].to - cut[i].from, -1};
    }
    clock_t begin = clock();
    int64_t effort = 5000000000;
    cr_assert_eq(exact_pack(items, N, N, HEIGHT, &effort), EXACT_FOUND);
    check_packing(items, N, HEIGHT);
    cr_log_info("cut %d: %.2f s", seed, (double)(clock() - begin) / CLOCKS_PER_SEC);
}
Test(pack, cuts_of_a_rectangle) {
    for (int seed = 1; seed <= 6; seed++) solve_cut(seed);
}

/* ── MiniMalloc's challenging problems ─────────────────────────────────────────────────────────────────────── */
static void solve_challenge(char letter) {
    const char *shared = getenv("SC_SHARED");
    char path[4096], line[256];
    snprintf(path, sizeof path, "%s/packing/%c.1048576.csv", shared ? shared : "../shared", letter);
    FILE *f = fopen(path, "r");
    if (!f) cr_skip_test("no %s: name the folder of shared files in SC_SHARED", path);
    enum { N = 512, STEP = 1024 };
    static int sections[N][STEP];
    static ExactItem items[N];
    int n = 0, id, lower, upper, size;
    cr_assert(fgets(line, sizeof line, f));
    for (; fscanf(f, "%d,%d,%d,%d", &id, &lower, &upper, &size) == 4; n++) {
        cr_assert(n < N && upper <= STEP * 1024);
        for (int t = lower / STEP; t < upper / STEP; t++) sections[n][t - lower / STEP] = t;
        items[n] = (ExactItem){size, 1, sections[n], (upper - lower) / STEP, -1};
    }
    fclose(f);
    clock_t begin = clock();
    int64_t effort = 5000000000;
    cr_assert_eq(exact_pack(items, n, STEP, 1048576, &effort), EXACT_FOUND);
    check_packing(items, n, 1048576);
    cr_log_info("%c: %.2f s", letter, (double)(clock() - begin) / CLOCKS_PER_SEC);
}
Test(pack, challenge_a) {
    solve_challenge('A');
}
Test(pack, challenge_b) {
    solve_challenge('B');
}
Test(pack, challenge_c) {
    solve_challenge('C');
}
Test(pack, challenge_d) {
    solve_challenge('D');
}
Test(pack, challenge_e) {
    solve_challenge('E');
}
Test(pack, challenge_f) {
    solve_challenge('F');
}
