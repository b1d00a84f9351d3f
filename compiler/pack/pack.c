/* pack: strip packing with given times (dynamic storage allocation). Items are placed one by one at the lowest address
 * where they fit, in several orders; then the order is repaired: items that stick out above the bound move to the front
 * ("squeaky wheel" optimisation, Joslin and Clements 1999) and all are placed anew.
 * Relies on: pack.h, spans.h. A segment tree over the text knows which addresses are taken, so that a long item
 * asks a few nodes, not all items. Relied on by: place. */
#include "pack_sections.h"
#include "spans.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

typedef VEC(int) Ints;

/* A node of the tree: a stretch of the text. `any` holds the items alive somewhere in it. Below the level of the blocks
 * an item that is alive in all of a node goes no deeper: it is in `through` there, and whoever visits a deeper node
 * asks its ancestors' too. Near the root `any` alone is used, and is complete: asking many incomplete sets would take
 * long, because each has gaps that another fills. */
typedef struct {
    Spans through, any;
} Node;

typedef struct {
    Span span;
    int item, first, last, reach; /* copies: an item's own are far away in memory */
} Placed;
typedef VEC(Placed) Partial;

enum {
    LEAF = 32,       /* a leaf is one position, or several at which that many lives begin or end at most */
    NEAR = 8192,     /* within 1/NEAR of the bound is as good as on it */
    ROUNDS = 600,    /* of repair, at most */
    PATIENCE = 25,   /* rounds without gain, then back to the best */
    PROBES = 64,     /* of the longest items, for a long stretch */
    WORTH_ALL = 100, /* 1/100 of the bound */
    FAR = 400,       /* within 1/FAR is good enough where it is hard to come nearer */
    STUCK = 32,      /* a search ends after so many packings without gain. On the plans of bench/compare_plans.py, those
                        that succeeded had 25 such packings in a row at most */
};

typedef struct {
    Arena *a;
    Item *items;
    int n, leaves;        /* leaves: a power of two */
    int blocks;           /* nodes of the level from which on `through` is used */
    int longest;          /* leaves that an item is alive in all of, at most */
    int *leaf_of;         /* by position */
    int *start;           /* by leaf: its first position; the last leaves may be empty */
    Node *nodes;          /* the root is 1 */
    Partial *partial;     /* by leaf: placed items that are alive in a part of it */
    Ints *begins;         /* by leaf: placed items whose life begins in it */
    Ints *late;           /* by leaf: placed items that are over but reach into it */
    VEC(SpanCursor) sets; /* addresses that the item in hand must not have */
    VEC(Span) single;     /* those of items that were asked one by one; may overlap */
    Spans singles;        /* the same as a set */
    int64_t steps, once;  /* once: those to place every item */
    int *around[3];       /* orders of the items beside a core; NULL: not made yet */
} Packer;

/* ── placed items ──────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int from, to;         /* leaves in which an item is alive */
    int all_from, all_to; /* those that it is alive in all of */
} Life;

static Life life_of(const Packer *p, const Item *x) {
    int from = p->leaf_of[x->first], to = p->leaf_of[x->last];
    return (Life){from, to, from + (x->first > p->start[from]), to - (x->last < p->start[to + 1] - 1)};
}

typedef struct {
    int lo, hi; /* leaves of a node */
} Part;

static Part part_of(const Packer *p, int node) {
    int depth = 31 - __builtin_clz((unsigned)node), width = p->leaves >> depth;
    int lo = (node - (1 << depth)) * width;
    return (Part){lo, lo + width - 1};
}

static void mark_node(Packer *p, int node, const Item *x, Life life) {
    Part part = part_of(p, node);
    Span s = {x->at, x->at + x->size};
    p->steps++;
    if (part.hi - part.lo < p->longest) p->steps += spans_add(p->a, &p->nodes[node].any, s); /* else never asked */
    if (node >= p->blocks && life.all_from <= part.lo && life.all_to >= part.hi) {
        p->steps += spans_add(p->a, &p->nodes[node].through, s);
        return;
    }
    if (node >= p->leaves) {
        Placed y = {s, (int)(x - p->items), x->first, x->last, x->reach};
        push(&p->partial[part.lo], p->a, y);
        return;
    }
    int mid = (part.lo + part.hi) / 2;
    if (life.from <= mid) mark_node(p, 2 * node, x, life);
    if (life.to > mid) mark_node(p, 2 * node + 1, x, life);
}

/* ── what an item must keep away from ──────────────────────────────────────────────────────────────────────── */
static void take_set(Packer *p, Spans *s) {
    if (s->n) push(&p->sets, p->a, spans_cursor(s));
}

static void take_conflicts(Packer *p, const Ints *l, const Item *x) {
    for (int i = 0; i < l->n; i++) {
        const Item *y = &p->items[l->at[i]];
        Span s = {y->at, y->at + y->size};
        if (pack_conflict(x, y)) push(&p->single, p->a, s);
    }
    p->steps += l->n;
}

/* Level by level, so that the sets of long stretches of the text come first. */
static void visit(Packer *p, const Item *x, Life life) {
    int queue[128], tail = 0; /* of a level four nodes at most */
    queue[tail++] = 1;
    for (int head = 0; head < tail; head++) {
        int node = queue[head];
        Part part = part_of(p, node);
        p->steps++;
        if (life.all_from <= part.lo && life.all_to >= part.hi) {
            take_set(p, &p->nodes[node].any);
            continue;
        }
        if (node >= p->blocks) take_set(p, &p->nodes[node].through);
        if (node >= p->leaves) {
            const Partial *l = &p->partial[part.lo];
            for (const Placed *y = l->at; y < l->at + l->n; y++) {
                if (x->first > y->reach || y->first > x->reach) continue;
                bool together = x->first <= y->last && y->first <= x->last;
                if (together || pack_conflict(x, &p->items[y->item])) push(&p->single, p->a, y->span);
            }
            p->steps += l->n;
            continue;
        }
        int mid = (part.lo + part.hi) / 2;
        if (life.from <= mid) queue[tail++] = 2 * node;
        if (life.to > mid) queue[tail++] = 2 * node + 1;
    }
}

/* Each set pushes the address up past its spans in the way, until none has anything to say. One that did is asked first
 * from then on. */
static int64_t lowest_gap(Packer *p, int64_t size) {
    int64_t at = 0;
    for (int k = 0; k < p->sets.n; k++) {
        int64_t before = at;
        at = spans_find(&p->sets.at[k], at, size, &p->steps);
        if (at == before) continue;
        SpanCursor c = p->sets.at[k];
        memmove(&p->sets.at[1], &p->sets.at[0], sizeof c * (size_t)k);
        p->sets.at[0] = c;
        k = 0;
    }
    return at;
}

static void place_item(Packer *p, Item *x) {
    p->sets.n = p->single.n = 0;
    Life life = life_of(p, x);
    visit(p, x, life);
    take_conflicts(p, &p->late[life.from], x);
    if (x->reach > x->last)
        for (int leaf = p->leaf_of[x->last + 1]; leaf <= p->leaf_of[x->reach]; leaf++)
            take_conflicts(p, &p->begins[leaf], x);
    spans_of_array(p->a, &p->singles, p->single.at, p->single.n);
    take_set(p, &p->singles);
    x->at = lowest_gap(p, x->size);
    int id = (int)(x - p->items);
    mark_node(p, 1, x, life);
    push(&p->begins[life.from], p->a, id);
    if (x->reach > x->last)
        for (int leaf = p->leaf_of[x->last + 1]; leaf <= p->leaf_of[x->reach]; leaf++) push(&p->late[leaf], p->a, id);
}

/* Places all items in turn and returns the height; INT64_MAX as soon as more than `most` bytes lie above `line`. */
static int64_t place_below(Packer *p, const int *sequence, int64_t line, int64_t most) {
    for (int i = 0; i < 2 * p->leaves; i++) {
        spans_clear(&p->nodes[i].through);
        spans_clear(&p->nodes[i].any);
    }
    for (int i = 0; i < p->leaves; i++) p->partial[i].n = p->begins[i].n = p->late[i].n = 0;
    int64_t height = 0, excess = 0, before = p->steps;
    for (int i = 0; i < p->n; i++) {
        Item *x = &p->items[sequence[i]];
        place_item(p, x);
        height = max64(height, x->at + x->size);
        excess += max64(0, x->at + x->size - line);
        if (excess > most) return INT64_MAX;
    }
    p->once = p->steps - before;
    return height;
}

static int64_t place_all(Packer *p, const int *sequence) {
    return place_below(p, sequence, INT64_MAX, INT64_MAX);
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

static void sequence_of(Rank *ranks, int n, int *sequence) {
    qsort(ranks, (size_t)n, sizeof *ranks, compare_rank);
    for (int i = 0; i < n; i++) sequence[i] = ranks[i].item;
}

typedef enum { BY_SIZE, BY_AREA, BY_SKYLINE, BY_LIFE, BY_PEAK, N_ORDERS, BY_BEGIN } OrderKind;

static void sequence_by(const Packer *p, OrderKind kind, int peak, Rank *ranks, int *sequence) {
    for (int i = 0; i < p->n; i++) {
        const Item *x = &p->items[i];
        double life = x->last - x->first + 1, size = (double)x->size;
        bool at_peak = x->first <= peak && peak <= x->last;
        switch (kind) {
        case BY_LIFE: ranks[i] = (Rank){{life, size}, i}; break;
        case BY_AREA: ranks[i] = (Rank){{life * size, size}, i}; break;
        case BY_SIZE: ranks[i] = (Rank){{size, life}, i}; break;
        case BY_PEAK: ranks[i] = (Rank){{at_peak ? 1e18 + life : size, life}, i}; break;
        default: ranks[i] = (Rank){{-x->first, life}, i}; break;
        }
    }
    sequence_of(ranks, p->n, sequence);
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
            int left = s.at[low].previous, right = s.at[low].next;
            s.at[low].height = left < 0    ? s.at[right].height
                               : right < 0 ? s.at[left].height
                                           : min64(s.at[left].height, s.at[right].height);
            merge_level(&s, low);
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
        int64_t line = all ? bound : now.height - 1;
        for (int i = 0; i < p->n; i++) { /* those above it move forward by `gain` places, the rest keep their order */
            int x = now.sequence[i];
            bool high = now.at[x] + p->items[x].size > line;
            ranks[i] = (Rank){{(high ? gain : 0) - i, 0}, x};
        }
        sequence_of(ranks, p->n, sequence);
        int64_t height = place_all(p, sequence), excess = excess_over(p, bound);
        if (height < now.height || excess <= now.excess) keep(p, &now, sequence, height, excess);
        if (height > best->height || (height == best->height && excess >= best->excess)) continue;
        keep(p, best, sequence, height, excess);
        since = 0;
    }
}

/* Items that begin or end inside a leaf are asked one by one, so that a leaf of many such items is a single position.
 */
static void divide_text(Packer *p, int positions) {
    int *ends = NEW_ARRAY(p->a, int, positions + 1), leaves = 0;
    for (int i = 0; i < p->n; i++) {
        ends[p->items[i].first]++;
        ends[p->items[i].last]++;
    }
    p->leaf_of = NEW_ARRAY(p->a, int, positions + 1);
    p->start = NEW_ARRAY(p->a, int, 2 * positions + 2);
    for (int at = 0, sum = 0; at < positions; at++) {
        sum += ends[at];
        if (!at || sum > LEAF) {
            p->start[leaves++] = at;
            sum = ends[at];
        }
        p->leaf_of[at] = leaves - 1;
    }
    for (p->leaves = 1; p->leaves < leaves;) p->leaves *= 2;
    for (int i = leaves; i <= p->leaves; i++) p->start[i] = positions;
}

static Packer *packer_new(Arena *a, Item *items, int n, int positions) {
    Packer *p = NEW(a, Packer);
    p->a = a;
    p->items = items;
    p->n = n;
    divide_text(p, positions);
    /* A long item is added to each block that it lives in, and where blocks are few, more sets are asked. With 1000
     * items of lives of all lengths, steps are fewest with 16 blocks, with 4000 and 12,500 with 32, with 100,000 with
     * 64. */
    int64_t blocks = 1;
    while (blocks < p->leaves && blocks * blocks * blocks <= n) blocks *= 2;
    p->blocks = (int)blocks;
    for (int i = 0; i < n; i++) {
        Life life = life_of(p, &items[i]);
        p->longest = (int)max64(p->longest, life.all_to - life.all_from + 1);
    }
    p->nodes = NEW_ARRAY(a, Node, 2 * p->leaves);
    p->partial = arena_alloc(a, sizeof *p->partial * (size_t)p->leaves);
    p->begins = NEW_ARRAY(a, Ints, p->leaves);
    p->late = NEW_ARRAY(a, Ints, p->leaves);
    return p;
}

/* ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────── */
int64_t pack_bound(const Item *items, int n, int positions, int *where) {
    Arena *a = arena_new();
    int64_t *held = NEW_ARRAY(a, int64_t, positions + 1);
    for (int i = 0; i < n; i++) {
        held[items[i].first] += items[i].size;
        held[items[i].last + 1] -= items[i].size;
    }
    *where = 0;
    for (int i = 1; i < positions; i++) {
        held[i] += held[i - 1];
        if (held[i] > held[*where]) *where = i;
    }
    int64_t most = held[*where];
    arena_free(a);
    return most;
}

/* Whether no item reaches beyond its life. Then items of which no two may share bytes are alive at one position. */
static bool only_lives(const Item *items, int n) {
    for (int i = 0; i < n; i++)
        if (items[i].reach > items[i].last) return false;
    return true;
}

static int64_t enough(int64_t bound, int64_t known) {
    return max64(bound + bound / NEAR, known);
}

/* Attempts until one is low enough, or until they have cost too much. Training programs are mostly done by the first
 * two. */
static void attempt(Packer *p, Layout *best, int positions, int peak, int64_t bound, int64_t known, int64_t effort,
                    Rank *ranks, int *sequence) {
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
/* Places all items around a packing of the core, in several orders of the others, and leaves the offsets of the attempt
 * with the least excess above `line` in p->items. Returns that excess. */
static int64_t place_around(Packer *p, Layout *best, const bool *in_core, const ExactItem *core, const int *chosen,
                            int ncore, int64_t line, Rank *ranks, int *sequence) {
    static const OrderKind kinds[] = {BY_LIFE, BY_SIZE, BY_AREA};
    Layout here = new_layout(p);
    int *all = NEW_ARRAY(p->a, int, p->n);
    for (int k = 0; k < 4 && here.excess > 0; k++) {
        if (k < 3) {
            if (!p->around[k]) sequence_by(p, kinds[k], 0, ranks, p->around[k] = NEW_ARRAY(p->a, int, p->n));
            memcpy(all, p->around[k], sizeof *all * (size_t)p->n);
        } else {
            for (int i = 0; i < p->n; i++) ranks[i] = (Rank){{-(double)best->at[i], 0}, i};
            sequence_of(ranks, p->n, all);
        }
        int to = ncore; /* the core's items first, in order of their offsets in `core`, then the others */
        for (int i = 0; i < ncore; i++) ranks[i] = (Rank){{-(double)core[i].at, 0}, chosen[i]};
        sequence_of(ranks, ncore, sequence);
        for (int i = 0; i < p->n; i++)
            if (!in_core[all[i]]) sequence[to++] = all[i];
        int64_t height = place_below(p, sequence, line, here.excess - 1);
        if (height < INT64_MAX) keep(p, &here, sequence, height, excess_over(p, line));
    }
    for (int i = 0; i < p->n; i++) p->items[i].at = here.at[i];
    if (here.height < best->height) keep(p, best, here.sequence, here.height, here.excess);
    return here.excess;
}

/* Items that end above `line` join the core; if that is some, so do those that end highest below it, until the core has
 * grown by one in `growth`: one at a time, the others would be placed anew hundreds of times. Returns how many joined.
 */
static int join_core(const Packer *p, bool *in_core, int64_t line, int growth, Rank *ranks) {
    int ncore = 0, above = 0, others = 0;
    for (int i = 0; i < p->n; i++) {
        ncore += in_core[i];
        if (in_core[i]) continue;
        int64_t end = p->items[i].at + p->items[i].size;
        above += end > line;
        ranks[others++] = (Rank){{(double)end, 0}, i};
    }
    int added = above ? (int)max64(above, min64(ncore / growth, others)) : 0;
    qsort(ranks, (size_t)others, sizeof *ranks, compare_rank);
    for (int i = 0; i < added; i++) in_core[ranks[i].item] = true;
    return added;
}

/* Exact search among few items: first those that end above `line`. The others are placed around what it finds, and
 * those that then end above the line join the core, until none does, or STUCK packings in a row have gained nothing.
 * Where the core cannot end below the line, nothing can: the bound rises. */
static void search_core(Packer *p, Layout *best, int64_t *bound, int64_t *line, int growth, int64_t *search,
                        Rank *ranks, int *sequence) {
    bool *in_core = NEW_ARRAY(p->a, bool, p->n);
    int *chosen = NEW_ARRAY(p->a, int, p->n), ncore, nsections;
    for (int i = 0; i < p->n; i++) p->items[i].at = best->at[i];
    int64_t least_excess = INT64_MAX;
    for (int added = -1, since = 0; added && best->height > *line && *search > 0 && since < STUCK;) {
        added = join_core(p, in_core, *line, growth, ranks);
        ncore = 0;
        for (int i = 0; i < p->n; i++)
            if (in_core[i]) chosen[ncore++] = i;
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
            int64_t excess = place_around(p, best, in_core, core, chosen, ncore, *line, ranks, sequence);
            *search -= 4 * (p->steps - before);
            since = excess < least_excess ? 0 : since + 1;
            least_excess = min64(least_excess, excess);
        }
        arena_free(a);
        if (r == EXACT_UNKNOWN) return;
    }
}

/* Steps of search, by what it may win: all of them where the height is 1/WORTH_ALL above the bound or more, fewer
 * below, at least an eighth. In plans that end 0.01 to 0.3 % above the bound this halves the time, and none of 129
 * recorded plans is larger. */
static int64_t steps_worth(int64_t height, int64_t bound, int64_t search) {
    double above = (double)(height - bound) / (double)max64(bound, 1);
    return (int64_t)((double)search * fmin(1, fmax(0.125, above * WORTH_ALL)));
}

int64_t pack(Item *items, int n, int positions, int64_t *bound, int64_t known, int64_t effort, int64_t search) {
    if (n == 0) return 0;
    Arena *a = arena_new();
    Packer *p = packer_new(a, items, n, positions);
    Rank *ranks = NEW_ARRAY(a, Rank, n);
    int *sequence = NEW_ARRAY(a, int, n);
    Layout best = new_layout(p);
    int peak;
    *bound = max64(*bound, pack_bound(items, n, positions, &peak));
    attempt(p, &best, positions, peak, *bound, known, effort, ranks, sequence);
    if (best.height > enough(*bound, known) && !only_lives(items, n))
        *bound = max64(*bound, pack_sections_heaviest(items, n));
    repair(p, &best, *bound, enough(*bound, known), p->steps + effort, ranks, sequence);
    search = steps_worth(best.height, *bound, search);
    static const struct {
        bool far;
        int growth, parts; /* of the steps that are left it gets one part in so many */
    } turns[] = {{false, 8, 3}, {false, INT_MAX, 2}, {true, INT_MAX, 1}};
    for (size_t i = 0; i < sizeof turns / sizeof *turns && best.height > enough(*bound, known) && search > 0; i++) {
        int64_t line = turns[i].far ? max64(*bound + *bound / FAR, known) : enough(*bound, known),
                share = search / turns[i].parts;
        if (best.height <= line) break;
        search -= share;
        search_core(p, &best, bound, &line, turns[i].growth, &share, ranks, sequence);
        search += share;
    }
    for (int i = 0; i < n; i++) items[i].at = best.at[i];
    int64_t height = best.height;
    arena_free(a);
    return height;
}
