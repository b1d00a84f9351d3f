/* pack: strip packing with given times (dynamic storage allocation). Items are placed one by one at the lowest address
 * where they fit, in several orders; then the order is repaired: items that stick out above the bound move to the front
 * ("squeaky wheel" optimisation, Joslin and Clements 1999) and all are placed anew.
 * Relies on: pack.h. A segment tree over the text knows which addresses are taken: a node's `through` holds items alive
 * in all of it, `any` items alive somewhere in it, so that a long item asks a few nodes, not all items. Relied on by:
 * place. */
#include "pack_sections.h"

#include <stdlib.h>

typedef struct {
    int64_t lo, hi;
} Span;
typedef struct {
    Span *at;
    int n, cap;
} Spans; /* sorted, disjoint, not touching */
typedef struct {
    const Span *at, *end;
} Cursor;
typedef VEC(int) Ints;

enum {
    LEAF = 16,     /* positions of a leaf */
    NEAR = 8192,   /* within 1/NEAR of the bound is as good as on it */
    ROUNDS = 600,  /* of repair, at most */
    PATIENCE = 25, /* rounds without gain, then back to the best */
    PROBES = 64,   /* of the longest items, for a long stretch */
    FAR = 400,     /* within 1/FAR is good enough where it is hard to come nearer */
};

typedef struct {
    Arena *a;
    Item *items;
    int n, leaves;        /* leaves: a power of two */
    Spans *through, *any; /* by node; the root is 1 */
    Ints *partial;        /* by leaf: placed items that are alive in a part of it */
    Ints *begins;         /* by leaf: placed items whose life begins in it */
    Ints *late;           /* by leaf: placed items that are over but reach into it */
    Cursor *sets;         /* addresses that the item in hand must not have */
    int nsets, sets_cap;
    Spans single;        /* those of items that were asked one by one; may overlap */
    int64_t steps, once; /* once: those to place every item */
} Packer;

/* ── sets of addresses ─────────────────────────────────────────────────────────────────────────────────────── */
static void add_span(Packer *p, Spans *s, Span x) {
    int i = FIRST(k, 0, s->n, s->at[k].hi >= x.lo), j = i;
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

/* ── placed items ──────────────────────────────────────────────────────────────────────────────────────────── */
static void mark_node(Packer *p, int node, int lo, int hi, const Item *x, Span s) { /* leaves lo..hi of node */
    int from = x->first / LEAF, to = x->last / LEAF;
    p->steps++;
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

/* ── what an item must keep away from ──────────────────────────────────────────────────────────────────────── */
static void take_set(Packer *p, const Spans *s) {
    if (!s->n) return;
    if (p->nsets == p->sets_cap) p->sets = vec_grow(p->a, p->sets, &p->sets_cap, sizeof *p->sets);
    p->sets[p->nsets++] = (Cursor){s->at, s->at + s->n};
}

static void take_conflicts(Packer *p, const Ints *l, const Item *x) {
    for (int i = 0; i < l->n; i++) {
        const Item *y = &p->items[l->at[i]];
        if (!pack_conflict(x, y)) continue;
        if (p->single.n == p->single.cap) p->single.at = vec_grow(p->a, p->single.at, &p->single.cap, sizeof(Span));
        p->single.at[p->single.n++] = (Span){y->at, y->at + y->size};
    }
    p->steps += l->n;
}

static void visit(Packer *p, int node, int lo, int hi, const Item *x) {
    p->steps++;
    if (x->first <= lo * LEAF && x->last >= hi * LEAF + LEAF - 1) {
        take_set(p, &p->any[node]);
        return;
    }
    take_set(p, &p->through[node]);
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

static int merge_spans(Span *s, int n) { /* sorted ones: into disjoint ones */
    int m = 0;
    for (int i = 1; i < n; i++) {
        if (s[i].lo > s[m].hi)
            s[++m] = s[i];
        else
            s[m].hi = max64(s[m].hi, s[i].hi);
    }
    return n ? m + 1 : 0;
}

static const Span *skip_below(const Span *s, const Span *end, int64_t x) { /* first with hi > x, by galloping */
    ptrdiff_t step = 1;
    while (step < end - s && s[step].hi <= x) s += step, step *= 2;
    for (step = min64(step, end - s); step > 0; step /= 2)
        while (step < end - s && s[step].hi <= x) s += step;
    return s < end && s->hi <= x ? s + 1 : s;
}

/* Each set pushes the address up past its spans in the way, until none has anything to say. */
static int64_t lowest_gap(Packer *p, int64_t size) {
    int64_t at = 0;
    for (int quiet = 0, k = 0; quiet < p->nsets; k = k + 1 < p->nsets ? k + 1 : 0, quiet++) {
        Cursor *c = &p->sets[k];
        const Span *from = c->at = skip_below(c->at, c->end, at);
        for (; c->at < c->end && c->at->lo < at + size; c->at++) at = c->at->hi;
        if (c->at > from) quiet = -1;
        p->steps += 1 + (c->at - from) / 4;
    }
    return at;
}

static void place_item(Packer *p, Item *x) {
    p->nsets = p->single.n = 0;
    visit(p, 1, 0, p->leaves - 1, x);
    take_conflicts(p, &p->late[x->first / LEAF], x);
    for (int leaf = (x->last + 1) / LEAF; leaf <= x->reach / LEAF && x->reach > x->last; leaf++)
        take_conflicts(p, &p->begins[leaf], x);
    sort_spans(p->single.at, p->single.n);
    p->single.n = merge_spans(p->single.at, p->single.n);
    take_set(p, &p->single);
    x->at = lowest_gap(p, x->size);
    mark(p, x);
}

static int64_t place_all(Packer *p, const int *sequence) {
    for (int i = 0; i < 2 * p->leaves; i++) p->through[i].n = p->any[i].n = 0;
    for (int i = 0; i < p->leaves; i++) p->partial[i].n = p->begins[i].n = p->late[i].n = 0;
    int64_t height = 0, before = p->steps;
    for (int i = 0; i < p->n; i++) {
        Item *x = &p->items[sequence[i]];
        place_item(p, x);
        height = max64(height, x->at + x->size);
    }
    p->once = p->steps - before;
    return height;
}

/* ── orders ────────────────────────────────────────────────────────────────────────────────────────────────── */
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

typedef enum { BY_SIZE, BY_AREA, BY_SKYLINE, BY_LIFE, BY_PEAK, N_ORDERS, BY_BEGIN } OrderKind;

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

/* ── an order from the skyline ─────────────────────────────────────────────────────────────────────────────── */
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

/* Items that are not placed yet, in some order. */
typedef struct {
    const int *item;
    int *next; /* next[i]: i itself, or nearer to the first waiting one after it */
} Waiting;

static int first_waiting(Waiting *w, int i) {
    while (w->next[i] != i) i = w->next[i] = w->next[w->next[i]];
    return i;
}

static Waiting all_waiting(Packer *p, const int *item) {
    Waiting w = {item, NEW_ARRAY(p->a, int, p->n + 1)};
    for (int i = 0; i <= p->n; i++) w.next[i] = i;
    return w;
}

typedef struct {
    Waiting by_begin, by_life;
    int *begin; /* by position: index in by_begin of the first item that begins there or later */
    int *rank_begin, *rank_life;
} Queue;

/* The item that lives longest within a stretch, or -1: among the longest of all, else among those that begin inside. */
static int longest_inside(Packer *p, const Stretch *low, Queue *q) {
    int from = q->begin[low->from], to = q->begin[low->to + 1], best = -1;
    if (to - from > PROBES)
        for (int i = first_waiting(&q->by_life, 0), k = 0; i < p->n && k < PROBES;
             i = first_waiting(&q->by_life, i + 1), k++) {
            const Item *x = &p->items[q->by_life.item[i]];
            p->steps++;
            if (x->first >= low->from && x->last <= low->to) return q->by_life.item[i];
        }
    for (int i = first_waiting(&q->by_begin, from); i < to; i = first_waiting(&q->by_begin, i + 1)) {
        int x = q->by_begin.item[i];
        p->steps++;
        if (p->items[x].last <= low->to && (best < 0 || q->rank_life[x] < q->rank_life[best])) best = x;
    }
    return best;
}

static Queue new_queue(Packer *p, int positions, Rank *ranks) {
    int *by_begin = NEW_ARRAY(p->a, int, p->n), *by_life = NEW_ARRAY(p->a, int, p->n);
    sequence_by(p, BY_BEGIN, 0, ranks, by_begin);
    sequence_by(p, BY_LIFE, 0, ranks, by_life);
    Queue q = {all_waiting(p, by_begin), all_waiting(p, by_life), NEW_ARRAY(p->a, int, positions + 2),
               NEW_ARRAY(p->a, int, p->n), NEW_ARRAY(p->a, int, p->n)};
    for (int i = 0, at = 0; at <= positions; at++) {
        q.begin[at] = i;
        while (i < p->n && p->items[by_begin[i]].first == at) i++;
    }
    for (int i = 0; i < p->n; i++) {
        q.rank_begin[by_begin[i]] = i;
        q.rank_life[by_life[i]] = i;
    }
    return q;
}

/* At most `effort` steps; then what is left comes in order of life. */
static void sequence_by_skyline(Packer *p, int positions, int64_t effort, Rank *ranks, int *sequence) {
    Skyline s = {NEW_ARRAY(p->a, Stretch, 2 * p->n + 2), 0, NEW_ARRAY(p->a, int, 2 * p->n + 2), 0};
    Queue q = new_queue(p, positions, ranks);
    int placed = 0;
    new_stretch(&s, 0, positions - 1, 0);
    while (placed < p->n && p->steps < effort) {
        int low = s.heap[0], x = longest_inside(p, &s.at[low], &q);
        if (x < 0) {
            raise_stretch(&s, low);
            continue;
        }
        sequence[placed++] = x;
        q.by_begin.next[q.rank_begin[x]]++;
        q.by_life.next[q.rank_life[x]]++;
        put_on(&s, low, &p->items[x]);
    }
    for (int i = first_waiting(&q.by_life, 0); i < p->n; i = first_waiting(&q.by_life, i + 1))
        sequence[placed++] = q.by_life.item[i];
}

/* ── repair ────────────────────────────────────────────────────────────────────────────────────────────────── */
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
    for (int round = 0, since = PATIENCE; round < ROUNDS && p->steps + p->once <= effort && best->height > enough;
         round++) {
        if (since++ >= PATIENCE) {
            memcpy(now.sequence, best->sequence, sizeof *now.sequence * (size_t)p->n);
            memcpy(now.at, best->at, sizeof *now.at * (size_t)p->n);
            now.height = best->height;
            now.excess = best->excess;
            since = 0;
        }
        bool all = draw(&state, 2); /* that stick out, or the highest alone */
        double gain = p->n * (double)(1 + draw(&state, 1000)) / 1000;
        bump(p, &now, all ? bound : now.height - 1, gain, ranks, sequence);
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

/* ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────── */
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

static int64_t enough(int64_t bound, int64_t known) {
    return max64(bound + bound / NEAR, known);
}

/* Attempts until one is low enough, or until they have cost too much. Training programs are mostly done by the first
 * two. */
static void attempt(Packer *p, Layout *best, int positions, int64_t bound, int64_t known, int64_t effort, Rank *ranks,
                    int *sequence) {
    int peak;
    pack_bound(p->items, p->n, positions, &peak);
    for (int kind = 0; kind < N_ORDERS && best->height > enough(bound, known); kind++) {
        if (kind && p->steps + p->once > 3 * effort) return;
        if (kind == BY_SKYLINE)
            sequence_by_skyline(p, positions, p->steps + effort, ranks, sequence);
        else
            sequence_by(p, (OrderKind)kind, peak, ranks, sequence);
        int64_t height = place_all(p, sequence);
        if (height < best->height) keep(p, best, sequence, height, excess_over(p, bound));
    }
}

/* ── the hard core ─────────────────────────────────────────────────────────────────────────────────────────── */
/* The core's items first, in order of their offsets in `core`, then the others as in `sequence`. */
static void core_first(const Packer *p, const bool *in_core, const ExactItem *core, const int *chosen, int ncore,
                       Rank *ranks, int *sequence) {
    int to = ncore;
    int *others = NEW_ARRAY(p->a, int, p->n);
    memcpy(others, sequence, sizeof *others * (size_t)p->n);
    for (int k = 0; k < ncore; k++) ranks[k] = (Rank){{-(double)core[k].at, 0}, chosen[k]};
    qsort(ranks, (size_t)ncore, sizeof *ranks, compare_rank);
    for (int k = 0; k < ncore; k++) sequence[k] = ranks[k].item;
    for (int i = 0; i < p->n; i++)
        if (!in_core[others[i]]) sequence[to++] = others[i];
}

/* Places all items around a packing of the core, in several orders of the others, and leaves the offsets of the attempt
 * with the least excess above `line` in p->items. */
static void place_around(Packer *p, Layout *best, const bool *in_core, const ExactItem *core, const int *chosen,
                         int ncore, int64_t line, Rank *ranks, int *sequence) {
    static const OrderKind kinds[] = {BY_LIFE, BY_SIZE, BY_AREA};
    Layout here = new_layout(p);
    for (int k = 0; k < 4 && here.excess > 0; k++) {
        for (int i = 0; k == 3 && i < p->n; i++) ranks[i] = (Rank){{-(double)best->at[i], 0}, i};
        if (k < 3) {
            sequence_by(p, kinds[k], 0, ranks, sequence);
        } else {
            qsort(ranks, (size_t)p->n, sizeof *ranks, compare_rank);
            for (int i = 0; i < p->n; i++) sequence[i] = ranks[i].item;
        }
        core_first(p, in_core, core, chosen, ncore, ranks, sequence);
        int64_t height = place_all(p, sequence), excess = excess_over(p, line);
        if (excess < here.excess) keep(p, &here, sequence, height, excess);
    }
    for (int i = 0; i < p->n; i++) p->items[i].at = here.at[i];
    if (here.height < best->height) keep(p, best, here.sequence, here.height, here.excess);
}

/* Exact search among few items: first those that end above `line`. The others are placed around what it finds, and
 * those that then end above the line join the core, until none does. Where the core cannot end below the line, nothing
 * can: the bound rises. */
static void search_core(Packer *p, Layout *best, int64_t *bound, int64_t *line, int64_t *search, Rank *ranks,
                        int *sequence) {
    bool *in_core = NEW_ARRAY(p->a, bool, p->n);
    int *chosen = NEW_ARRAY(p->a, int, p->n), ncore, nsections;
    for (int i = 0; i < p->n; i++) p->items[i].at = best->at[i];
    for (int added = -1; added && best->height > *line && *search > 0;) {
        added = ncore = 0;
        for (int i = 0; i < p->n; i++) {
            bool above = p->items[i].at + p->items[i].size > *line && !in_core[i];
            in_core[i] |= above;
            added += above;
            if (in_core[i]) chosen[ncore++] = i;
        }
        if (!added || ncore > EXACT_MOST) return;
        Arena *a = arena_new();
        ExactItem *core = pack_sections(a, p->items, chosen, ncore, &nsections);
        ExactResult r = exact_pack(core, ncore, nsections, *line, search);
        if (r == EXACT_IMPOSSIBLE) {
            int64_t least = *line + 1, share = *search / 2;
            *search -= share;
            exact_minimise(core, ncore, nsections, best->height, &least, true, &share);
            *search += share;
            *bound = max64(*bound, least);
            *line = max64(*line, *bound);
        } else if (r == EXACT_FOUND) {
            int64_t before = p->steps;
            place_around(p, best, in_core, core, chosen, ncore, *line, ranks, sequence);
            *search -= 4 * (p->steps - before);
        }
        arena_free(a);
        if (r == EXACT_UNKNOWN) return;
    }
}

int64_t pack(Item *items, int n, int positions, int64_t *bound, int64_t known, int64_t effort, int64_t search) {
    if (n == 0) return 0;
    Arena *a = arena_new();
    Packer *p = packer_new(a, items, n, positions);
    Rank *ranks = NEW_ARRAY(a, Rank, n);
    int *sequence = NEW_ARRAY(a, int, n);
    Layout best = new_layout(p);
    attempt(p, &best, positions, *bound, known, effort, ranks, sequence);
    if (best.height > enough(*bound, known)) *bound = max64(*bound, pack_sections_heaviest(items, n));
    repair(p, &best, *bound, enough(*bound, known), p->steps + effort, ranks, sequence);
    for (int turn = 0; turn < 2 && best.height > enough(*bound, known) && search > 0; turn++) {
        int64_t line = turn ? max64(*bound + *bound / FAR, known) : enough(*bound, known), share = search / (2 - turn);
        if (best.height <= line) break;
        search -= share;
        search_core(p, &best, bound, &line, &share, ranks, sequence);
        search += share;
    }
    for (int i = 0; i < n; i++) items[i].at = best.at[i];
    int64_t height = best.height;
    arena_free(a);
    return height;
}
