/* pack: strip packing with given times (dynamic storage allocation). Items are placed one by one at the lowest address
 * where they fit, in several orders; then the order is repaired: items that stick out above the bound move to the front
 * ("squeaky wheel" optimisation, Joslin and Clements 1999) and all are placed anew.
 * Relies on: pack.h. A segment tree over the text knows which addresses are taken: a node's `through` holds items alive
 * in all of it, `any` items alive somewhere in it, so that a long item asks a few nodes, not all items. Relied on by:
 * place. */
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

enum {
    LEAF = 16,     /* positions of a leaf */
    NEAR = 8192,   /* within 1/NEAR of the bound is as good as on it */
    ROUNDS = 600,  /* of repair, at most */
    PATIENCE = 300, /* rounds without gain, then back to the best */
    CLIQUES = 48,  /* looked at for a better bound */
};

typedef struct {
    Arena *a;
    Item *items;
    int n, leaves;        /* leaves: a power of two */
    Spans *through, *any; /* by node; the root is 1 */
    Ints *partial;        /* by leaf: placed items that are alive in a part of it */
    Ints *begins;         /* by leaf: placed items whose life begins in it */
    Ints *late;           /* by leaf: placed items that are over but reach into it */
    Span *taken;          /* addresses that the item in hand must not have */
    int ntaken, taken_cap;
    int64_t steps;
} Packer;

static bool ordered(const Item *a, const Item *b) {
    return clock_covers(b->begin, a->end);
}
static bool alive_together(const Item *a, const Item *b) {
    return a->first <= b->last && b->first <= a->last;
}
static bool conflict(const Item *a, const Item *b) {
    return alive_together(a, b) || !(a->first < b->first ? ordered(a, b) : ordered(b, a));
}

/* ── sets of addresses ────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int first_ending_at(const Spans *s, int64_t x) { /* first span with hi >= x */
    int lo = 0, hi = s->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (s->at[mid].hi >= x)
            hi = mid;
        else
            lo = mid + 1;
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

/* ── placed items ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
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

/* ── what an item must keep away from ─────────────────────────────────────────────────────────────────────────────────
 */
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

/* ── orders ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
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

typedef enum { BY_LIFE, BY_AREA, BY_SIZE, BY_SKYLINE, BY_PEAK, N_ORDERS } OrderKind;

static void rank(const Item *x, OrderKind kind, int peak, double key[2]) {
    double life = x->last - x->first + 1, size = (double)x->size;
    bool at_peak = x->first <= peak && peak <= x->last;
    switch (kind) {
    case BY_LIFE: key[0] = life, key[1] = size; break;
    case BY_AREA: key[0] = life * size, key[1] = size; break;
    case BY_SIZE: key[0] = size, key[1] = life; break;
    case BY_PEAK: key[0] = at_peak ? 1e18 + life : size, key[1] = life; break;
    default: key[0] = -x->first, key[1] = life; break;
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

/* ── an order from the skyline ────────────────────────────────────────────────────────────────────────────────────────
 */
/* Best fit on the skyline (Burke, Kendall, Whitwell 2004; with fixed times as Sekiyama, Imamichi, Imai, Raymond 2018):
 * in the lowest stretch of the skyline put the item that lives longest inside it; if there is none, raise the stretch
 * to its lower neighbour. Only the order in which items come is used. */
typedef struct {
    int from, to; /* positions */
    int64_t height;
    int previous, next; /* -1: none */
    int slot;           /* in the heap; -1: gone */
} Stretch;

typedef struct {
    Stretch *at;
    int n;
    int *heap, nheap; /* lowest first, then leftmost */
} Skyline;

static bool lower(const Skyline *s, int a, int b) {
    const Stretch *x = &s->at[a], *y = &s->at[b];
    return x->height != y->height ? x->height < y->height : x->from < y->from;
}

static void set_slot(Skyline *s, int slot, int x) {
    s->heap[slot] = x;
    s->at[x].slot = slot;
}

static void sift(Skyline *s, int slot) {
    int x = s->heap[slot];
    for (int up; slot > 0 && lower(s, x, s->heap[up = (slot - 1) / 2]); slot = up) set_slot(s, slot, s->heap[up]);
    for (int c; (c = 2 * slot + 1) < s->nheap; slot = c) {
        if (c + 1 < s->nheap && lower(s, s->heap[c + 1], s->heap[c])) c++;
        if (!lower(s, s->heap[c], x)) break;
        set_slot(s, slot, s->heap[c]);
    }
    set_slot(s, slot, x);
}

static int new_stretch(Skyline *s, int from, int to, int64_t height) {
    s->at[s->n] = (Stretch){from, to, height, -1, -1, s->nheap};
    s->heap[s->nheap++] = s->n;
    sift(s, s->nheap - 1);
    return s->n++;
}

static void drop_stretch(Skyline *s, int x) {
    int slot = s->at[x].slot, last = s->heap[--s->nheap];
    s->at[x].slot = -1;
    if (last == x) return;
    set_slot(s, slot, last);
    sift(s, slot);
}

static void link_stretches(Skyline *s, int a, int b) {
    if (a >= 0) s->at[a].next = b;
    if (b >= 0) s->at[b].previous = a;
}

static void absorb(Skyline *s, int x, int neighbour) { /* neighbour, of equal height, becomes part of x */
    Stretch *a = &s->at[x], *b = &s->at[neighbour];
    if (b->from < a->from) {
        a->from = b->from;
        link_stretches(s, b->previous, x);
    } else {
        a->to = b->to;
        link_stretches(s, x, b->next);
    }
    drop_stretch(s, neighbour);
}

static void merge_level(Skyline *s, int x) {
    int p = s->at[x].previous, q = s->at[x].next;
    if (p >= 0 && s->at[p].height == s->at[x].height) absorb(s, x, p);
    if (q >= 0 && s->at[q].height == s->at[x].height) absorb(s, x, q);
    sift(s, s->at[x].slot);
}

static void raise_stretch(Skyline *s, int x) {
    int p = s->at[x].previous, q = s->at[x].next;
    int64_t to = p < 0 ? s->at[q].height : q < 0 ? s->at[p].height : min64(s->at[p].height, s->at[q].height);
    s->at[x].height = to;
    merge_level(s, x);
}

static void put_on(Skyline *s, int x, const Item *item) {
    int from = s->at[x].from, to = s->at[x].to, p = s->at[x].previous, q = s->at[x].next;
    int64_t height = s->at[x].height;
    if (item->first > from) {
        int left = new_stretch(s, from, item->first - 1, height);
        link_stretches(s, p, left);
        p = left;
    }
    if (item->last < to) {
        int right = new_stretch(s, item->last + 1, to, height);
        link_stretches(s, right, q);
        q = right;
    }
    s->at[x].from = item->first;
    s->at[x].to = item->last;
    s->at[x].height = height + item->size;
    link_stretches(s, p, x);
    link_stretches(s, x, q);
    merge_level(s, x);
}

static int first_waiting(int *next, int i) { /* next[i]: i itself, or a later item in order of beginning */
    while (next[i] != i) i = next[i] = next[next[i]];
    return i;
}

/* Index in by_begin of the waiting item that lives longest within a stretch, or -1. */
static int longest_inside(Packer *p, const Stretch *low, const int *by_begin, int *next, const int *begin) {
    int best = -1, life = 0;
    int64_t size = 0;
    for (int i = first_waiting(next, begin[low->from]); i < begin[low->to + 1]; i = first_waiting(next, i + 1)) {
        const Item *x = &p->items[by_begin[i]];
        int this_life = x->last - x->first;
        p->steps++;
        if (x->last > low->to || (best >= 0 && (this_life < life || (this_life == life && x->size <= size)))) continue;
        best = i;
        life = this_life;
        size = x->size;
    }
    return best;
}

/* by_begin: items in order of beginning; begin[t]: the first of them that begins at t or later. */
static void sequence_by_skyline(Packer *p, const int *by_begin, int positions, int *sequence) {
    Skyline s = {NEW_ARRAY(p->a, Stretch, 2 * p->n + 2), 0, NEW_ARRAY(p->a, int, 2 * p->n + 2), 0};
    int *next = NEW_ARRAY(p->a, int, p->n + 1), *begin = NEW_ARRAY(p->a, int, positions + 2), placed = 0;
    for (int i = 0; i <= p->n; i++) next[i] = i;
    for (int i = 0, at = 0; at <= positions; at++) {
        begin[at] = i;
        while (i < p->n && p->items[by_begin[i]].first == at) i++;
    }
    new_stretch(&s, 0, positions - 1, 0);
    while (placed < p->n) {
        int x = s.heap[0];
        int best = longest_inside(p, &s.at[x], by_begin, next, begin);
        if (best < 0) {
            raise_stretch(&s, x);
            continue;
        }
        sequence[placed++] = by_begin[best];
        next[best] = best + 1;
        put_on(&s, x, &p->items[by_begin[best]]);
    }
}

/* ── repair ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int *sequence;
    int64_t *at;
    int64_t height, excess; /* excess: bytes above the bound, over all items */
} Layout;

static Layout new_layout(const Packer *p) {
    return (Layout){NEW_ARRAY(p->a, int, p->n), NEW_ARRAY(p->a, int64_t, p->n), INT64_MAX, INT64_MAX};
}

static void keep(const Packer *p, Layout *l, const int *sequence, int64_t height, int64_t excess) {
    l->height = height;
    l->excess = excess;
    memcpy(l->sequence, sequence, sizeof *sequence * (size_t)p->n);
    for (int i = 0; i < p->n; i++) l->at[i] = p->items[i].at;
}

static int64_t excess_over(const Packer *p, int64_t bound) {
    int64_t sum = 0;
    for (int i = 0; i < p->n; i++) sum += max64(0, p->items[i].at + p->items[i].size - bound);
    return sum;
}

static uint64_t draw(uint64_t *state, uint64_t n) { /* a fixed sequence: the same plan every time */
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 33) % n;
}

/* Items of l that end above `line` move forward by `gain` places; the rest keep their order. */
static void bump(const Packer *p, const Layout *l, int64_t line, double gain, Rank *ranks, int *sequence) {
    for (int i = 0; i < p->n; i++) {
        int x = l->sequence[i];
        bool high = l->at[x] + p->items[x].size > line;
        ranks[i] = (Rank){{(high ? gain : 0) - i, 0}, x};
    }
    qsort(ranks, (size_t)p->n, sizeof *ranks, compare_rank);
    for (int i = 0; i < p->n; i++) sequence[i] = ranks[i].item;
}

/* Walks from order to order, to those at least as good; after some steps without gain back to the best. */
static void repair(Packer *p, Layout *best, int64_t bound, int64_t enough, int64_t effort, Rank *ranks, int *sequence) {
    Layout now = new_layout(p);
    uint64_t state = 1;
    for (int round = 0, since = PATIENCE; round < ROUNDS && p->steps < effort && best->height > enough; round++) {
        if (since++ >= PATIENCE) {
            memcpy(now.sequence, best->sequence, sizeof *now.sequence * (size_t)p->n);
            memcpy(now.at, best->at, sizeof *now.at * (size_t)p->n);
            now.height = best->height;
            now.excess = best->excess;
            since = 0;
        }
        bool all = draw(&state, 2); /* that stick out, or the highest alone */
        double gain = p->n * (double)(1 + draw(&state, 1000)) / 1000;
        if (round % 8 == 0) bump(p, &now, all ? bound : now.height - 1, gain, ranks, sequence);
        else {
            memcpy(sequence, now.sequence, sizeof *sequence * (size_t)p->n);
            for (int m = 1 + (int)draw(&state, 3); m > 0; m--) {
                int from = (int)draw(&state, (uint64_t)p->n), to = (int)draw(&state, (uint64_t)p->n), x = sequence[from];
                if (from < to) memmove(&sequence[from], &sequence[from + 1], sizeof *sequence * (size_t)(to - from));
                else memmove(&sequence[to + 1], &sequence[to], sizeof *sequence * (size_t)(from - to));
                sequence[to] = x;
            }
        }
        int64_t height = place_all(p, sequence), excess = excess_over(p, bound);
        if (height < now.height || excess <= now.excess) keep(p, &now, sequence, height, excess);
        if (height > best->height || (height == best->height && excess >= best->excess)) continue;
        keep(p, best, sequence, height, excess);
        since = 0;
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

/* ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int64_t *held_at(Arena *a, const Item *items, int n, int positions) {
    int64_t *held = NEW_ARRAY(a, int64_t, positions + 1);
    for (int i = 0; i < n; i++) {
        held[items[i].first] += items[i].size;
        held[items[i].last + 1] -= items[i].size;
    }
    for (int i = 1; i < positions; i++) held[i] += held[i - 1];
    return held;
}

int64_t pack_bound(const Item *items, int n, int positions, int *where) {
    Arena *a = arena_new();
    const int64_t *held = held_at(a, items, n, positions);
    *where = 0;
    for (int i = 0; i < positions; i++)
        if (held[i] > held[*where]) *where = i;
    int64_t most = held[*where];
    arena_free(a);
    return most;
}

/* Items alive at `where`, and in order of size whatever else can share bytes with none of those taken: all of them need
 * bytes of their own. */
static int64_t clique_at(const Packer *p, int where, const int *by_size, int *members) {
    int taken = 0;
    int64_t sum = 0;
    for (int i = 0; i < p->n; i++) {
        if (p->items[i].first > where || p->items[i].last < where) continue;
        members[taken++] = i;
        sum += p->items[i].size;
    }
    for (int i = 0; i < p->n; i++) {
        const Item *x = &p->items[by_size[i]];
        if (x->first <= where && where <= x->last) continue;
        int k = taken - 1;
        while (k >= 0 && conflict(x, &p->items[members[k]])) k--;
        if (k >= 0) continue;
        members[taken++] = by_size[i];
        sum += x->size;
    }
    return sum;
}

/* The heaviest of some cliques, where much is alive. */
static int64_t clique_bound(Packer *p, int positions, Rank *ranks) {
    int *by_size = NEW_ARRAY(p->a, int, p->n), *members = NEW_ARRAY(p->a, int, p->n), full = 0;
    int64_t *held = held_at(p->a, p->items, p->n, positions), most = 0, best = 0;
    sequence_by(p, BY_SIZE, 0, ranks, by_size);
    for (int i = 0; i < positions; i++) most = max64(most, held[i]);
    for (int i = 0; i < positions; i++) full += held[i] >= most - most / 16;
    for (int i = 0, k = 0; i < positions; i++) {
        if (held[i] < most - most / 16) continue;
        if (k++ % (full / CLIQUES + 1) == 0) best = max64(best, clique_at(p, i, by_size, members));
    }
    return best;
}

static int64_t enough(int64_t bound, int64_t known) {
    return max64(bound + bound / NEAR, known);
}

/* Attempts until one is low enough: cheap orders that suit training programs first, the skyline before the rest. */
static void attempt(Packer *p, Layout *best, int positions, int64_t bound, int64_t known, Rank *ranks, int *sequence) {
    int peak, *by_begin = NEW_ARRAY(p->a, int, p->n);
    pack_bound(p->items, p->n, positions, &peak);
    for (int kind = 0; kind < N_ORDERS && best->height > enough(bound, known); kind++) {
        sequence_by(p, (OrderKind)kind, peak, ranks, sequence);
        if (kind == BY_SKYLINE) {
            memcpy(by_begin, sequence, sizeof *by_begin * (size_t)p->n);
            sequence_by_skyline(p, by_begin, positions, sequence);
        }
        int64_t height = place_all(p, sequence);
        if (height < best->height) keep(p, best, sequence, height, excess_over(p, bound));
    }
}

int64_t pack(Item *items, int n, int positions, int64_t *bound, int64_t known, int64_t effort) {
    if (n == 0) return 0;
    Arena *a = arena_new();
    Packer *p = packer_new(a, items, n, positions);
    Rank *ranks = NEW_ARRAY(a, Rank, n);
    int *sequence = NEW_ARRAY(a, int, n);
    Layout best = new_layout(p);
    attempt(p, &best, positions, *bound, known, ranks, sequence);
    if (best.height > enough(*bound, known)) *bound = max64(*bound, clique_bound(p, positions, ranks));
    repair(p, &best, *bound, enough(*bound, known), p->steps + effort, ranks, sequence);
    for (int i = 0; i < n; i++) items[i].at = best.at[i];
    int64_t height = best.height;
    arena_free(a);
    return height;
}
