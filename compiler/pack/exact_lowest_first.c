/* Exact packing from the bottom up, always at the lowest place. Every item rests at 0 or on an item below it, and items
 * are placed in order of their offsets: every packing can be pushed down into one of this form. From Moffitt,
 * "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023): these canonical
 * packings, floors of sections, dominance. When what is left falls apart in time, the parts are searched one after the
 * other. Relies on: exact_search.h. Relied on by: exact.c. */
#include "exact_search.h"

struct ExactLowestFirst {
    ExactSearch *x;
    ExactLog log;
    int64_t *lowest; /* by item: the top of what is placed below it, aligned */
    uint64_t *open;  /* bit set of items that are not placed */
    int *order;      /* placed items as they came */
    int nplaced;
    int64_t *left;       /* by section: bytes that are not placed */
    int *low;            /* by section: an item that was left and low enough */
    double *weight;      /* by section: how often it was found too full */
    int *rank;           /* by item: which comes first at one height */
    int round;           /* -1: the caller's guess comes first */
    ExactRanked *ranked; /* scratch */
    int *scratch, used;
    int64_t *steps, limit;
};

ExactLowestFirst *exact_lowest_first_new(ExactSearch *x) {
    ExactLowestFirst *b = NEW(x->a, ExactLowestFirst);
    b->x = x;
    b->log.a = x->a;
    b->lowest = NEW_ARRAY(x->a, int64_t, x->n);
    b->open = NEW_ARRAY(x->a, uint64_t, x->words);
    b->order = NEW_ARRAY(x->a, int, x->n);
    for (int i = 0; i < x->n; i++) exact_add(b->open, i);
    b->left = NEW_ARRAY(x->a, int64_t, x->nsections);
    b->low = NEW_ARRAY(x->a, int, x->nsections);
    b->weight = NEW_ARRAY(x->a, double, x->nsections);
    b->rank = NEW_ARRAY(x->a, int, x->n);
    b->ranked = NEW_ARRAY(x->a, ExactRanked, x->n);
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->items[i].nsections; k++) b->left[x->items[i].sections[k]] += x->items[i].size;
    b->round = 0;
    for (int i = 1; i < x->n; i++)
        if (x->items[i].at != x->items[0].at) b->round = -1;
    return b;
}

/* ── orders ────────────────────────────────────────────────────────────────────────────────────────────────── */
/* First in the order of the offsets that the caller guesses, if any. Then three orders in turn: by life, by what the
 * item's fullest section holds and then area, by that and then life. After one round of each they are disturbed, and
 * items of sections that were too full come earlier: in turn a little earlier, or much. */
static void choose_order(ExactLowestFirst *b) {
    ExactSearch *x = b->x;
    ExactRanked *ranked = b->ranked;
    bool strong = b->round / 3 % 2;
    double most = 1, pull = strong ? 3 : 1, spread = strong ? 5000 : 2000;
    for (int s = 0; s < x->nsections; s++) most = b->weight[s] > most ? b->weight[s] : most;
    for (int i = 0; i < x->n; i++) {
        const ExactItem *item = &x->items[i];
        double full = 0, weight = 0, life = item->nsections;
        for (int k = 0; k < item->nsections; k++) {
            int s = item->sections[k];
            if ((double)b->left[s] > full) full = (double)b->left[s];
            if (b->weight[s] > weight) weight = b->weight[s];
        }
        double noise = b->round < 3 ? 1 : (1 + exact_random(x, 1000) / spread) * (1 + pull * weight / most);
        double area = life * (double)item->size * noise;
        life *= noise;
        if (b->round >= 3) full *= 1 + pull * weight / most;
        int kind = b->round % 3;
        if (b->round < 0)
            ranked[i] = (ExactRanked){{-(double)item->at, life}, i};
        else
            ranked[i] = (ExactRanked){{kind == 0 ? life : full, kind == 2 ? life : area}, i};
    }
    exact_rank(ranked, x->n, b->rank);
    for (int s = 0; s < x->nsections; s++) b->weight[s] *= 0.7;
    b->round++;
}

/* ── search ────────────────────────────────────────────────────────────────────────────────────────────────── */
static int *take_scratch(ExactLowestFirst *b, int n) {
    int *at = b->scratch + b->used;
    b->used += n;
    return at;
}

/* Whether an item is left and may lie at `most` or below. */
static bool may_lie(const ExactLowestFirst *b, int i, int64_t height, int64_t smallest, int64_t most) {
    return exact_has(b->open, i) && (b->lowest[i] < height ? height + smallest : b->lowest[i]) <= most;
}

/* Whether what is left in each section still fits: all of it lies at or above `height`, and what could have been placed
 * lower now rests on another item that is left. So it fits where one item that is left may lie low enough; the one that
 * did at the last look mostly still does. */
static bool fits(ExactLowestFirst *b, const int *list, int n, int64_t height, int64_t smallest) {
    ExactSearch *x = b->x;
    int from = x->items[list[0]].sections[0], to = -1;
    for (int k = 0; k < n; k++) {
        const ExactItem *item = &x->items[list[k]];
        int last = item->sections[item->nsections - 1];
        if (last > to) to = last;
    }
    *b->steps += n + to - from;
    for (int s = from; s <= to; s++) {
        if (!b->left[s]) continue;
        int64_t most = x->capacity - b->left[s];
        if (may_lie(b, b->low[s], height, smallest, most)) continue;
        int k = 0;
        while (k < x->nmembers[s] && !may_lie(b, x->members[s][k], height, smallest, most)) k++;
        *b->steps += k;
        if (k < x->nmembers[s]) {
            b->low[s] = x->members[s][k];
            continue;
        }
        b->weight[s]++;
        return false;
    }
    return true;
}

/* Places an item on what lies below; false, and nothing is placed, where a section of it overflows. *covered: something
 * is left above it. */
static bool put(ExactLowestFirst *b, int i, bool *covered) {
    ExactSearch *x = b->x;
    ExactItem *item = &x->items[i];
    int64_t at = b->lowest[i], top = at + item->size;
    int full = -1;
    *b->steps += item->nsections + x->words;
    for (int k = 0; k < item->nsections; k++) {
        int s = item->sections[k];
        if (at + b->left[s] <= x->capacity) continue;
        b->weight[s]++;
        full = s;
    }
    if (full >= 0) return false;
    for (int k = 0; k < item->nsections; k++) {
        int s = item->sections[k];
        b->left[s] -= item->size;
        *covered |= b->left[s] > 0;
    }
    b->open[i >> 6] &= ~(1ull << (i & 63));
    b->order[b->nplaced++] = i;
    item->at = at;
    const uint64_t *others = &x->conflicts[(size_t)i * (size_t)x->words];
    for (int w = 0; w < x->words; w++)
        for (uint64_t bits = others[w] & b->open[w]; bits; bits &= bits - 1) {
            int k = w * 64 + __builtin_ctzll(bits);
            if (b->lowest[k] >= top) continue;
            int64_t alignment = x->items[k].alignment;
            exact_set(&b->log, &b->lowest[k], alignment == 1 ? top : round_up(top, alignment));
            ++*b->steps;
        }
    return true;
}

/* Takes back all but the first `nplaced` placed items, and the changes of the log after `mark`. */
static void take_back(ExactLowestFirst *b, int nplaced, int mark) {
    exact_undo(&b->log, mark);
    while (b->nplaced > nplaced) {
        int i = b->order[--b->nplaced];
        const ExactItem *item = &b->x->items[i];
        for (int k = 0; k < item->nsections; k++) b->left[item->sections[k]] += item->size;
        exact_add(b->open, i);
    }
}

/* The item to try after one that lies at `height` and has a rank: the lowest, then the first in rank; -1: none.
 * `under`: the lowest end of any; what lies above that would leave a hole that this item fits into. Of items that are
 * equal in everything, the first comes first. */
static int next_candidate(ExactLowestFirst *b, const int *list, int n, int64_t height, int rank, int64_t under) {
    int next = -1;
    int64_t low = under;
    for (int k = 0; k < n; k++) {
        int i = list[k], twin = b->x->twin[i];
        int64_t at = b->lowest[i];
        if (at > low || at < height || (at == height && b->rank[i] <= rank)) continue;
        if (at == low && (next < 0 || b->rank[i] > b->rank[next])) continue;
        if (twin >= 0 && exact_has(b->open, twin) && b->rank[twin] < b->rank[i]) continue;
        next = i;
        low = at;
    }
    *b->steps += n;
    return next;
}

static ExactResult place_rest(ExactLowestFirst *b, const int *list, int n, int64_t height, int rank);

/* What is left, cut where no life crosses; the smallest part first, as it fails soonest. */
static ExactResult place_parts(ExactLowestFirst *b, const int *list, int n, int64_t height, int rank) {
    int *cuts = take_scratch(b, n + 1), parts = exact_cut(b->x, list, n, cuts);
    for (int done = 0, above = 0; done < parts;) { /* every part of the next larger size */
        int next = above = exact_larger_part(cuts, parts, above);
        for (int p = 0; p < parts; p++) {
            if (cuts[p + 1] - cuts[p] != next) continue;
            ExactResult r = place_rest(b, list + cuts[p], next, height, rank);
            if (r != EXACT_FOUND) return r;
            done++;
        }
    }
    return EXACT_FOUND;
}

/* Places the items of a list, in order of their first section, none below `height` and at it none before `rank`. What
 * it placed stays where it succeeds. */
static ExactResult place_rest(ExactLowestFirst *b, const int *list, int n, int64_t height, int rank) {
    if (n == 0) return EXACT_FOUND;
    if (*b->steps > b->limit) return EXACT_UNKNOWN;
    const ExactItem *items = b->x->items;
    int64_t under = INT64_MAX, smallest = INT64_MAX;
    for (int k = 0; k < n; k++) {
        int i = list[k];
        smallest = min64(smallest, items[i].size);
        if (b->lowest[i] >= height) under = min64(under, b->lowest[i] + items[i].size);
    }
    *b->steps += 4 * n;
    if (!fits(b, list, n, height, smallest)) return EXACT_IMPOSSIBLE;
    int used = b->used, *rest = take_scratch(b, n), mark = b->log.changes.n, inner = b->used;
    int nplaced = b->nplaced;
    ExactResult result = EXACT_IMPOSSIBLE;
    for (int i; result == EXACT_IMPOSSIBLE && (i = next_candidate(b, list, n, height, rank, under)) >= 0;) {
        int left = 0;
        bool covered = false, ok = put(b, i, &covered);
        height = b->lowest[i];
        rank = b->rank[i];
        if (ok) {
            for (int k = 0; k < n; k++)
                if (list[k] != i) rest[left++] = list[k];
            result = place_parts(b, rest, left, height, rank);
        }
        b->used = inner;
        if (result == EXACT_FOUND) break;
        take_back(b, nplaced, mark);
        if (ok && !covered) break; /* nothing lies above it: to place it later changes nothing */
    }
    b->used = used;
    return result;
}

ExactResult exact_lowest_first(ExactLowestFirst *b, int64_t *steps, int64_t limit) {
    ExactSearch *x = b->x;
    b->steps = steps;
    b->limit = limit;
    choose_order(b);
    if (!b->scratch) b->scratch = NEW_ARRAY(x->a, int, (x->n + 2) * (x->n + 3) + 8);
    int *list = take_scratch(b, x->n);
    for (int i = 0; i < x->n; i++) list[i] = i;
    ExactResult r = place_parts(b, list, x->n, 0, -1);
    b->used = 0;
    take_back(b, 0, 0);
    return r;
}
