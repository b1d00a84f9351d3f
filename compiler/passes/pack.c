/* pack: strip packing with given times (dynamic storage allocation). Items are placed one by one at the lowest address where
 * they fit, in several orders; then the order is repaired: items that stick out above the bound move to the front
 * ("squeaky wheel" optimisation, Joslin and Clements 1999) and all are placed anew.
 * Relies on: pack.h. A segment tree over the text knows which addresses are taken: a node's `through` holds items alive in
 * all of it, `any` items alive somewhere in it, so that a long item asks a few nodes, not all items.
 * Relied on by: place. */
#include "pack.h"

#include <stdlib.h>

typedef struct {
    int64_t lo, hi;
} Span;
typedef struct {
    Span *at;
    int n, cap;
} Spans; /* sorted, disjoint, not touching */
typedef VEC(int) Ints;

enum { LEAF = 16, ROUNDS = 200 }; /* positions of a leaf; repairs at most */

typedef struct {
    Arena *a;
    Item *items;
    int n, leaves;   /* leaves: a power of two */
    Spans *through, *any; /* by node; the root is 1 */
    Ints *partial;   /* by leaf: placed items that are alive in a part of it */
    Ints *begins;    /* by leaf: placed items whose life begins in it */
    Ints *late;      /* by leaf: placed items that are over but reach into it */
    Span *taken;     /* addresses that the item in hand must not have */
    int ntaken, taken_cap;
    int64_t steps;
} Packer;

static bool ordered(const Item *a, const Item *b) { return clock_covers(b->begin, a->end); }
static bool alive_together(const Item *a, const Item *b) { return a->first <= b->last && b->first <= a->last; }
static bool conflict(const Item *a, const Item *b) {
    return alive_together(a, b) || !(a->first < b->first ? ordered(a, b) : ordered(b, a));
}

/* ── sets of addresses ──────────────────────────────────────────────────────────────────────────────────────────────── */
static int first_ending_at(const Spans *s, int64_t x) { /* first span with hi >= x */
    int lo = 0, hi = s->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (s->at[mid].hi >= x) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

static void add_span(Packer *p, Spans *s, Span x) {
    int i = first_ending_at(s, x.lo), j = i;
    for (; j < s->n && s->at[j].lo <= x.hi; j++) {
        x.lo = min64(x.lo, s->at[j].lo);
        x.hi = max64(x.hi, s->at[j].hi);
    }
    p->steps += 1 + (s->n - j) / 8;
    if (j == i) {
        if (s->n == s->cap) s->at = vec_grow(p->a, s->at, &s->cap, sizeof *s->at);
        memmove(&s->at[i + 1], &s->at[i], sizeof *s->at * (size_t)(s->n - i));
        s->n++;
    } else if (j > i + 1) {
        memmove(&s->at[i + 1], &s->at[j], sizeof *s->at * (size_t)(s->n - j));
        s->n -= j - i - 1;
    }
    s->at[i] = x;
}

/* ── placed items ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static void mark_node(Packer *p, int node, int lo, int hi, const Item *x, Span s) { /* leaves lo..hi of node */
    int from = x->first / LEAF, to = x->last / LEAF;
    add_span(p, &p->any[node], s);
    if (x->first <= lo * LEAF && x->last >= hi * LEAF + LEAF - 1) {
        add_span(p, &p->through[node], s);
        return;
    }
    if (lo == hi) {
        push(&p->partial[lo], p->a, (int)(x - p->items));
        return;
    }
    int mid = (lo + hi) / 2;
    if (from <= mid) mark_node(p, 2 * node, lo, mid, x, s);
    if (to > mid) mark_node(p, 2 * node + 1, mid + 1, hi, x, s);
}

static void mark(Packer *p, const Item *x) {
    int id = (int)(x - p->items);
    mark_node(p, 1, 0, p->leaves - 1, x, (Span){x->at, x->at + x->size});
    push(&p->begins[x->first / LEAF], p->a, id);
    for (int leaf = (x->last + 1) / LEAF; leaf <= x->reach / LEAF && x->reach > x->last; leaf++)
        push(&p->late[leaf], p->a, id);
}

/* ── what an item must keep away from ───────────────────────────────────────────────────────────────────────────────── */
static void take(Packer *p, Span s) {
    if (p->ntaken == p->taken_cap) p->taken = vec_grow(p->a, p->taken, &p->taken_cap, sizeof *p->taken);
    p->taken[p->ntaken++] = s;
}

static void take_all(Packer *p, const Spans *s) {
    for (int i = 0; i < s->n; i++) take(p, s->at[i]);
    p->steps += s->n + 1;
}

static void take_conflicts(Packer *p, const Ints *l, const Item *x) {
    for (int i = 0; i < l->n; i++) {
        const Item *y = &p->items[l->at[i]];
        if (conflict(x, y)) take(p, (Span){y->at, y->at + y->size});
    }
    p->steps += l->n;
}

static void visit(Packer *p, int node, int lo, int hi, const Item *x) {
    if (x->first <= lo * LEAF && x->last >= hi * LEAF + LEAF - 1) {
        take_all(p, &p->any[node]);
        return;
    }
    take_all(p, &p->through[node]);
    if (lo == hi) {
        take_conflicts(p, &p->partial[lo], x);
        return;
    }
    int mid = (lo + hi) / 2;
    if (x->first / LEAF <= mid) visit(p, 2 * node, lo, mid, x);
    if (x->last / LEAF > mid) visit(p, 2 * node + 1, mid + 1, hi, x);
}

static int compare_span(const void *a, const void *b) {
    const Span *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static void sort_spans(Span *s, int n) {
    if (n > 24) {
        qsort(s, (size_t)n, sizeof *s, compare_span);
        return;
    }
    for (int i = 1; i < n; i++) {
        Span x = s[i];
        int k = i;
        for (; k > 0 && s[k - 1].lo > x.lo; k--) s[k] = s[k - 1];
        s[k] = x;
    }
}

static void place_item(Packer *p, Item *x) {
    p->ntaken = 0;
    visit(p, 1, 0, p->leaves - 1, x);
    take_conflicts(p, &p->late[x->first / LEAF], x);
    for (int leaf = (x->last + 1) / LEAF; leaf <= x->reach / LEAF && x->reach > x->last; leaf++)
        take_conflicts(p, &p->begins[leaf], x);
    sort_spans(p->taken, p->ntaken);
    int64_t at = 0;
    for (int i = 0; i < p->ntaken && p->taken[i].lo < at + x->size; i++) at = max64(at, p->taken[i].hi);
    x->at = at;
    mark(p, x);
}

static int64_t place_all(Packer *p, const int *sequence) {
    for (int i = 0; i < 2 * p->leaves; i++) p->through[i].n = p->any[i].n = 0;
    for (int i = 0; i < p->leaves; i++) p->partial[i].n = p->begins[i].n = p->late[i].n = 0;
    int64_t height = 0;
    for (int i = 0; i < p->n; i++) {
        Item *x = &p->items[sequence[i]];
        place_item(p, x);
        height = max64(height, x->at + x->size);
    }
    return height;
}

/* ── orders ─────────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    double key[2];
    int item;
} Rank;

static int compare_rank(const void *a, const void *b) {
    const Rank *x = a, *y = b;
    for (int i = 0; i < 2; i++)
        if (x->key[i] != y->key[i]) return x->key[i] > y->key[i] ? -1 : 1;
    return x->item - y->item;
}

typedef enum { BY_LIFE, BY_AREA, BY_SIZE, BY_PEAK, BY_BEGIN, BY_END, N_ORDERS } OrderKind;

static void rank(const Item *x, OrderKind kind, int peak, double key[2]) {
    double life = x->last - x->first + 1, size = (double)x->size;
    bool at_peak = x->first <= peak && peak <= x->last;
    switch (kind) {
    case BY_LIFE: key[0] = life, key[1] = size; break;
    case BY_AREA: key[0] = life * size, key[1] = size; break;
    case BY_SIZE: key[0] = size, key[1] = life; break;
    case BY_PEAK: key[0] = at_peak ? 1e18 + life : size, key[1] = life; break;
    case BY_BEGIN: key[0] = -x->first, key[1] = life; break;
    default: key[0] = x->last, key[1] = life; break;
    }
}

static void sequence_by(const Packer *p, OrderKind kind, int peak, Rank *ranks, int *sequence) {
    for (int i = 0; i < p->n; i++) {
        rank(&p->items[i], kind, peak, ranks[i].key);
        ranks[i].item = i;
    }
    qsort(ranks, (size_t)p->n, sizeof *ranks, compare_rank);
    for (int i = 0; i < p->n; i++) sequence[i] = ranks[i].item;
}

/* ── repair ─────────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Items that end above the bound move forward, past `jump` others at least; the rest keep their order. */
static int bump(const Packer *p, int *sequence, int64_t bound, double *weight, Rank *ranks, double gain) {
    int moved = 0;
    for (int i = 0; i < p->n; i++) {
        const Item *x = &p->items[sequence[i]];
        if (x->at + x->size > bound) {
            weight[sequence[i]] += gain;
            moved++;
        }
    }
    for (int i = 0; i < p->n; i++) ranks[i] = (Rank){{weight[sequence[i]] - i, 0}, sequence[i]};
    qsort(ranks, (size_t)p->n, sizeof *ranks, compare_rank);
    for (int i = 0; i < p->n; i++) sequence[i] = ranks[i].item;
    return moved;
}

typedef struct {
    int *sequence;
    int64_t *at;
    int64_t height;
} Best;

static void keep(Packer *p, Best *b, const int *sequence, int64_t height) {
    if (b->height >= 0 && height >= b->height) return;
    b->height = height;
    memcpy(b->sequence, sequence, sizeof *sequence * (size_t)p->n);
    for (int i = 0; i < p->n; i++) b->at[i] = p->items[i].at;
}

static void repair(Packer *p, Best *best, int64_t bound, int64_t effort, Rank *ranks, int *sequence) {
    double *weight = NEW_ARRAY(p->a, double, p->n);
    memcpy(sequence, best->sequence, sizeof *sequence * (size_t)p->n);
    for (int i = 0; i < p->n; i++) p->items[i].at = best->at[i];
    int64_t target = bound;
    for (int round = 0; round < ROUNDS && p->steps < effort && best->height > bound; round++) {
        memset(weight, 0, sizeof *weight * (size_t)p->n);
        if (!bump(p, sequence, target, weight, ranks, p->n * (0.05 + 0.15 * (round % 7)))) break;
        keep(p, best, sequence, place_all(p, sequence));
    }
}

static Packer *packer_new(Arena *a, Item *items, int n, int positions) {
    Packer *p = NEW(a, Packer);
    p->a = a;
    p->items = items;
    p->n = n;
    for (p->leaves = 1; p->leaves * LEAF < positions;) p->leaves *= 2;
    p->through = NEW_ARRAY(a, Spans, 2 * p->leaves);
    p->any = NEW_ARRAY(a, Spans, 2 * p->leaves);
    p->partial = NEW_ARRAY(a, Ints, p->leaves);
    p->begins = NEW_ARRAY(a, Ints, p->leaves);
    p->late = NEW_ARRAY(a, Ints, p->leaves);
    return p;
}

int64_t pack_bound(const Item *items, int n, int positions, int *where) {
    int64_t *change = calloc((size_t)positions + 1, sizeof *change), held = 0, most = 0;
    if (!change) fail(NOWHERE, "out of memory while packing; free memory or choose a smaller model");
    for (int i = 0; i < n; i++) {
        change[items[i].first] += items[i].size;
        change[items[i].last + 1] -= items[i].size;
    }
    *where = 0;
    for (int i = 0; i < positions; i++) {
        held += change[i];
        if (held <= most) continue;
        most = held;
        *where = i;
    }
    free(change);
    return most;
}

int64_t pack(Item *items, int n, int positions, int64_t bound, int64_t enough, int64_t effort) {
    if (n == 0) return 0;
    int peak;
    pack_bound(items, n, positions, &peak);
    Arena *a = arena_new();
    Packer *p = packer_new(a, items, n, positions);
    Rank *ranks = NEW_ARRAY(a, Rank, n);
    int *sequence = NEW_ARRAY(a, int, n);
    Best best = {NEW_ARRAY(a, int, n), NEW_ARRAY(a, int64_t, n), -1};
    for (int kind = 0; kind < N_ORDERS && best.height != bound; kind++) {
        sequence_by(p, (OrderKind)kind, peak, ranks, sequence);
        keep(p, &best, sequence, place_all(p, sequence));
        if (getenv("PACKDBG")) fprintf(stderr, "order %d best %.4f steps %ld\n", kind, (double)best.height / bound, (long)p->steps);
    }
    if (best.height > enough) repair(p, &best, bound, p->steps + effort, ranks, sequence);
    for (int i = 0; i < n; i++) items[i].at = best.at[i];
    arena_free(a);
    return best.height;
}
