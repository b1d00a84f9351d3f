/* pack_sections: which items may not share bytes. "All of x is over before y begins" is a partial order, so the
 * heaviest set of items without such a pair is found by a flow (Dilworth 1950): as many bytes as are not handed on from
 * an item to one after it. For exact search every pair without order gets a set that it lies in, which nearly always is
 * what is alive at one position of the text. Relies on: pack_sections.h. Relied on by: pack.c. */
#include "pack_sections.h"

#include <stdlib.h>

enum { HEAVIEST_MOST = 4096 }; /* items that the flow takes: it needs bits for every pair */

/* ── the heaviest set ──────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int to, back; /* back: index of the opposite arc at `to` */
    int64_t room;
} Arc;
typedef struct {
    Arena *a;
    VEC(Arc) * arcs; /* by node */
    int *level, *next, *queue, n;
} Flow;

static void add_arc(Flow *f, int from, int to, int64_t room) {
    Arc there = {to, f->arcs[to].n, room}, back = {from, f->arcs[from].n, 0};
    push(&f->arcs[from], f->a, there);
    push(&f->arcs[to], f->a, back);
}

/* Levels from the source (Dinic 1970); whether the sink is reached. */
static bool find_levels(Flow *f, int source, int sink) {
    int head = 0, tail = 0;
    for (int i = 0; i < f->n; i++) f->level[i] = -1, f->next[i] = 0;
    f->level[source] = 0;
    f->queue[tail++] = source;
    while (head < tail) {
        int from = f->queue[head++];
        for (int k = 0; k < f->arcs[from].n; k++) {
            const Arc *x = &f->arcs[from].at[k];
            if (!x->room || f->level[x->to] >= 0) continue;
            f->level[x->to] = f->level[from] + 1;
            f->queue[tail++] = x->to;
        }
    }
    return f->level[sink] >= 0;
}

static int64_t push_flow(Flow *f, int from, int sink, int64_t most) {
    if (from == sink) return most;
    int64_t sum = 0;
    for (; f->next[from] < f->arcs[from].n && sum < most; f->next[from]++) {
        Arc *x = &f->arcs[from].at[f->next[from]];
        if (!x->room || f->level[x->to] != f->level[from] + 1) continue;
        int64_t moved = push_flow(f, x->to, sink, min64(most - sum, x->room));
        x->room -= moved;
        f->arcs[x->to].at[x->back].room += moved;
        sum += moved;
        if (sum == most) break; /* the arc may have room left */
    }
    return sum;
}

static int compare_largest(const void *a, const void *b) {
    const Item *x = *(const Item *const *)a, *y = *(const Item *const *)b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1) : (x > y) - (x < y);
}

static int compare_first(const void *a, const void *b) {
    const Item *x = *(const Item *const *)a, *y = *(const Item *const *)b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : (x > y) - (x < y);
}

/* Items in order of where they begin, so that each stands before those after it: bits[k] of row i says that all of i is
 * over before k begins. Nothing that begins beyond an item's reach conflicts with it. */
static uint64_t *order_of(Arena *a, const Item *const *x, int n, int words) {
    uint64_t *after = NEW_ARRAY(a, uint64_t, (size_t)n * (size_t)words);
    for (int i = 0; i < n; i++) {
        uint64_t *own = &after[(size_t)i * (size_t)words];
        int from = FIRST(k, 0, n, x[k]->first > x[i]->last), sure = FIRST(k, from, n, x[k]->first > x[i]->reach);
        for (int k = from; k < sure; k++)
            if (!pack_conflict(x[i], x[k])) own[k >> 6] |= 1ull << (k & 63);
        if (sure == n) continue;
        own[sure >> 6] |= ~0ull << (sure & 63);
        for (int w = (sure >> 6) + 1; w < words; w++) own[w] = ~0ull;
        if (n & 63) own[words - 1] &= ~0ull >> (64 - (n & 63));
    }
    return after;
}

/* Item i is node i where it hands its bytes on, and node n + i where it takes those of others, which it may hand on
 * too: arcs between neighbours in the order are enough. Of those after i the first is a neighbour; what comes after
 * that is none, and of the rest again the first is one. */
int64_t pack_sections_heaviest(const Item *items, int n_all) {
    Arena *a = arena_new();
    const Item **x = NEW_ARRAY(a, const Item *, n_all + 1);
    for (int i = 0; i < n_all; i++) x[i] = &items[i];
    if (n_all > HEAVIEST_MOST) qsort(x, (size_t)n_all, sizeof *x, compare_largest);
    int n = n_all > HEAVIEST_MOST ? HEAVIEST_MOST : n_all, words = (n + 63) / 64, source = 2 * n, sink = 2 * n + 1;
    qsort(x, (size_t)n, sizeof *x, compare_first);
    const uint64_t *after = order_of(a, x, n, words);
    uint64_t *near = NEW_ARRAY(a, uint64_t, words);
    Flow f = {.a = a, .n = 2 * n + 2};
    f.arcs = arena_alloc(a, sizeof *f.arcs * (size_t)f.n);
    f.level = NEW_ARRAY(a, int, f.n);
    f.next = NEW_ARRAY(a, int, f.n);
    f.queue = NEW_ARRAY(a, int, f.n);
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        memcpy(near, &after[(size_t)i * (size_t)words], sizeof *near * (size_t)words);
        for (int w = i >> 6; w < words; w++)
            for (; near[w]; near[w] &= near[w] - 1) {
                int k = w * 64 + __builtin_ctzll(near[w]);
                const uint64_t *far = &after[(size_t)k * (size_t)words];
                for (int v = w; v < words; v++) near[v] &= ~far[v];
                add_arc(&f, i, n + k, INT64_MAX / 4);
            }
        add_arc(&f, source, i, x[i]->size);
        add_arc(&f, n + i, sink, x[i]->size);
        add_arc(&f, n + i, i, INT64_MAX / 4);
        sum += x[i]->size;
    }
    while (find_levels(&f, source, sink)) sum -= push_flow(&f, source, sink, INT64_MAX);
    arena_free(a);
    return sum;
}

/* ── sections ──────────────────────────────────────────────────────────────────────────────────────────────── */
typedef VEC(int) Ints;
typedef struct {
    int first, k; /* where the item begins; its place among the chosen */
} Begin;

static int compare_begin(const void *a, const void *b) {
    const Begin *x = a, *y = b;
    return x->first != y->first ? x->first - y->first : x->k - y->k;
}

typedef struct {
    Arena *a;
    const Item *items;
    const int *chosen;
    Ints *of; /* by chosen item: its sections */
    int n;    /* sections so far */
} Sections;

static const Item *item_of(const Sections *s, int k) {
    return &s->items[s->chosen[k]];
}

static void add_section(Sections *s, const Ints *members) {
    for (int i = 0; i < members->n; i++) push(&s->of[members->at[i]], s->a, s->n);
    s->n++;
}

/* One that is over but not ordered before something that begins here: with all that is alive here and not ordered after
 * it, and with others of its kind as they come. done[k]: item k has been with all that begins here, as far as it must.
 */
static void add_late(Sections *s, Arena *scratch, int late, int at, const Ints *alive, const Ints *lates, bool *done) {
    Ints set = {0};
    int begin = 0;
    push(&set, scratch, late);
    for (int i = 0; i < alive->n; i++) {
        const Item *x = item_of(s, alive->at[i]);
        if (!pack_conflict(item_of(s, late), x)) continue;
        push(&set, scratch, alive->at[i]);
        begin += x->first == at;
    }
    if (!begin) return;
    for (int i = 0; i < lates->n; i++) {
        const Item *x = item_of(s, lates->at[i]);
        int k = set.n - 1, missed = 0;
        while (k >= 0 && set.at[k] != lates->at[i] && pack_conflict(x, item_of(s, set.at[k]))) k--;
        if (k >= 0) continue;
        push(&set, scratch, lates->at[i]);
        for (int j = 0; j < alive->n; j++) {
            const Item *y = item_of(s, alive->at[j]);
            missed += y->first == at && pack_conflict(x, y);
        }
        done[lates->at[i]] |= missed == begin;
    }
    add_section(s, &set);
}

/* Wherever an item begins, what is alive there is a section; those that reach there come after it. */
ExactItem *pack_sections(Arena *a, const Item *items, const int *chosen, int n, int *nsections) {
    Arena *scratch = arena_new();
    Sections s = {.a = a, .items = items, .chosen = chosen};
    s.of = arena_alloc(scratch, sizeof *s.of * (size_t)(n + 1));
    Begin *begins = NEW_ARRAY(scratch, Begin, n + 1);
    Ints alive = {0}, lates = {0};
    bool *done = NEW_ARRAY(scratch, bool, n + 1);
    for (int k = 0; k < n; k++) begins[k] = (Begin){item_of(&s, k)->first, k};
    qsort(begins, (size_t)n, sizeof *begins, compare_begin);
    for (int i = 0, to; i < n; i = to) {
        int at = begins[i].first;
        for (to = i; to < n && begins[to].first == at;) to++;
        alive.n = lates.n = 0;
        for (int j = 0; j < to; j++) {
            const Item *x = item_of(&s, begins[j].k);
            if (x->last >= at)
                push(&alive, scratch, begins[j].k);
            else if (x->reach >= at)
                push(&lates, scratch, begins[j].k);
        }
        add_section(&s, &alive);
        for (int j = 0; j < lates.n; j++) done[lates.at[j]] = false;
        for (int j = 0; j < lates.n; j++)
            if (!done[lates.at[j]]) add_late(&s, scratch, lates.at[j], at, &alive, &lates, done);
    }
    ExactItem *exact = NEW_ARRAY(a, ExactItem, n + 1);
    for (int k = 0; k < n; k++)
        exact[k] = (ExactItem){item_of(&s, k)->size, 1, s.of[k].at, s.of[k].n, item_of(&s, k)->at};
    *nsections = s.n;
    arena_free(scratch);
    return exact;
}
