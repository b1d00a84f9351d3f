/* Exact packing from the bottom up. Every item rests at 0 or on an item below it, and items are placed in order of
 * their offsets: every packing can be pushed down into one of this form. From Moffitt, "MiniMalloc: A Lightweight
 * Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023): these canonical packings, floors of
 * sections, dominance. When what is left falls apart in time, the parts are searched one after the other.
 * Relies on: exact_search.h.
 * Relied on by: exact.c. */
#include "exact_search.h"

#include <stdlib.h>

typedef struct {
    double key[2];
    int item;
} Ranked;

struct ExactBottomUp {
    ExactSearch *x;
    ExactLog log;
    int64_t *lowest; /* by item: the top of what is placed below it, aligned */
    int64_t *placed; /* by item */
    int64_t *floor;  /* by section: the top of what is placed in it */
    int64_t *left;   /* by section: bytes that are not placed */
    int64_t *start;  /* scratch by section: the lowest that anything left in it can lie */
    double *weight;  /* by section: how often it was found too full */
    int *rank;       /* by item: which comes first at one height */
    int round;       /* -1: the caller's guess comes first */
    Ranked *ranked;  /* scratch */
    int *scratch, used;
    int64_t *steps, limit;
};

ExactBottomUp *exact_bottom_up_new(ExactSearch *x) {
    ExactBottomUp *b = NEW(x->a, ExactBottomUp);
    b->x = x;
    b->log.a = x->a;
    b->lowest = NEW_ARRAY(x->a, int64_t, x->n);
    b->placed = NEW_ARRAY(x->a, int64_t, x->n);
    b->floor = NEW_ARRAY(x->a, int64_t, x->nsections);
    b->left = NEW_ARRAY(x->a, int64_t, x->nsections);
    b->start = NEW_ARRAY(x->a, int64_t, x->nsections);
    b->weight = NEW_ARRAY(x->a, double, x->nsections);
    b->rank = NEW_ARRAY(x->a, int, x->n);
    b->ranked = NEW_ARRAY(x->a, Ranked, x->n);
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->items[i].nsections; k++) b->left[x->items[i].sections[k]] += x->items[i].size;
    b->round = 0;
    for (int i = 1; i < x->n; i++)
        if (x->items[i].at != x->items[0].at) b->round = -1;
    return b;
}

/* ── orders ────────────────────────────────────────────────────────────────────────────────────────────────── */
static int compare_ranked(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    for (int k = 0; k < 2; k++)
        if (x->key[k] != y->key[k]) return x->key[k] > y->key[k] ? -1 : 1;
    return x->item - y->item;
}

/* First in the order of the offsets that the caller guesses, if any. Then three orders in turn: by life, by what the
 * item's fullest section holds and then area, by that and then life. After one round of each they are disturbed, and
 * items of sections that were too full come earlier. */
static void choose_order(ExactBottomUp *b) {
    ExactSearch *x = b->x;
    Ranked *ranked = b->ranked;
    double most = 1;
    for (int s = 0; s < x->nsections; s++) most = b->weight[s] > most ? b->weight[s] : most;
    for (int i = 0; i < x->n; i++) {
        const ExactItem *item = &x->items[i];
        double full = 0, weight = 0, life = item->nsections;
        for (int k = 0; k < item->nsections; k++) {
            int s = item->sections[k];
            if ((double)b->left[s] > full) full = (double)b->left[s];
            if (b->weight[s] > weight) weight = b->weight[s];
        }
        double noise = b->round < 3 ? 1 : (1 + exact_random(x, 1000) / 2000.0) * (1 + weight / most);
        double area = life * (double)item->size * noise;
        life *= noise;
        if (b->round >= 3) full *= 1 + weight / most;
        int kind = b->round % 3;
        if (b->round < 0)
            ranked[i] = (Ranked){{-(double)item->at, life}, i};
        else
            ranked[i] = (Ranked){{kind == 0 ? life : full, kind == 2 ? life : area}, i};
    }
    qsort(ranked, (size_t)x->n, sizeof *ranked, compare_ranked);
    for (int i = 0; i < x->n; i++) b->rank[ranked[i].item] = i;
    for (int s = 0; s < x->nsections; s++) b->weight[s] *= 0.7;
    b->round++;
}

/* ── search ────────────────────────────────────────────────────────────────────────────────────────────────── */
static int *take_scratch(ExactBottomUp *b, int n) {
    int *at = b->scratch + b->used;
    b->used += n;
    return at;
}

/* Whether what is left in each section still fits: all of it lies at or above `height`, and what could have been placed
 * lower now rests on another item that is left. */
static bool fits(ExactBottomUp *b, const int *list, int n, int64_t height, int64_t smallest) {
    const ExactItem *items = b->x->items;
    int from = INT32_MAX, to = -1;
    for (int k = 0; k < n; k++) {
        const ExactItem *item = &items[list[k]];
        int last = item->sections[item->nsections - 1];
        if (item->sections[0] < from) from = item->sections[0];
        if (last > to) to = last;
    }
    for (int s = from; s <= to; s++) b->start[s] = INT64_MAX;
    for (int k = 0; k < n; k++) {
        const ExactItem *item = &items[list[k]];
        int64_t at = b->lowest[list[k]] < height ? height + smallest : b->lowest[list[k]];
        for (int i = 0; i < item->nsections; i++)
            if (at < b->start[item->sections[i]]) b->start[item->sections[i]] = at;
        *b->steps += item->nsections;
    }
    for (int s = from; s <= to; s++) {
        if (!b->left[s] || b->start[s] + b->left[s] <= b->x->capacity) continue;
        b->weight[s]++;
        return false;
    }
    return true;
}

/* Places an item on what lies below; false where a section of it overflows. *covered: something is left above it. */
static bool put(ExactBottomUp *b, int i, bool *covered) {
    ExactSearch *x = b->x;
    ExactItem *item = &x->items[i];
    int64_t top = b->lowest[i] + item->size;
    bool ok = true;
    for (int k = 0; k < item->nsections; k++) {
        int s = item->sections[k];
        exact_set(&b->log, &b->floor[s], top);
        exact_set(&b->log, &b->left[s], b->left[s] - item->size);
        *covered |= b->left[s] > 0;
        if (top + b->left[s] <= x->capacity) continue;
        b->weight[s]++;
        ok = false;
    }
    *b->steps += item->nsections + x->words;
    if (!ok) return false;
    exact_set(&b->log, &b->placed[i], 1);
    item->at = b->lowest[i];
    const uint64_t *others = &x->conflicts[(size_t)i * (size_t)x->words];
    for (int w = 0; w < x->words; w++)
        for (uint64_t bits = others[w]; bits; bits &= bits - 1) {
            int k = w * 64 + __builtin_ctzll(bits);
            if (!b->placed[k] && b->lowest[k] < top)
                exact_set(&b->log, &b->lowest[k], round_up(top, x->items[k].alignment));
        }
    return true;
}

static bool comes_before(const ExactBottomUp *b, int i, int k) {
    return b->lowest[i] != b->lowest[k] ? b->lowest[i] < b->lowest[k] : b->rank[i] < b->rank[k];
}

/* The items that may be placed next, lowest first. `under`: the lowest end of any; what lies above that would leave a
 * hole that this item fits into. Of items that are equal in everything, the first comes first. */
static int candidates(ExactBottomUp *b, const int *list, int n, int64_t height, int rank, int64_t under, int *found) {
    int count = 0;
    for (int k = 0; k < n; k++) {
        int i = list[k], at = count, twin = b->x->twin[i];
        int64_t low = b->lowest[i];
        if (low < height || low >= under || (low == height && b->rank[i] < rank)) continue;
        if (twin >= 0 && !b->placed[twin] && b->rank[twin] < b->rank[i]) continue;
        for (; at > 0 && comes_before(b, i, found[at - 1]); at--) found[at] = found[at - 1];
        found[at] = i;
        count++;
    }
    return count;
}

static ExactResult place_rest(ExactBottomUp *b, const int *list, int n, int64_t height, int rank);

/* What is left, cut where no life crosses; the smallest part first, as it fails soonest. */
static ExactResult place_parts(ExactBottomUp *b, const int *list, int n, int64_t height, int rank) {
    int *cuts = take_scratch(b, n + 1), parts = 0, end = -1;
    for (int k = 0; k < n; k++) {
        const ExactItem *item = &b->x->items[list[k]];
        if (item->sections[0] > end) cuts[parts++] = k;
        if (item->sections[item->nsections - 1] > end) end = item->sections[item->nsections - 1];
    }
    cuts[parts] = n;
    for (int done = 0, above = 0; done < parts;) { /* every part of the next larger size */
        int next = INT32_MAX;
        for (int p = 0; p < parts; p++) {
            int size = cuts[p + 1] - cuts[p];
            if (size > above && size < next) next = size;
        }
        above = next;
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
static ExactResult place_rest(ExactBottomUp *b, const int *list, int n, int64_t height, int rank) {
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
    int used = b->used, *found = take_scratch(b, n), *rest = take_scratch(b, n);
    int nfound = candidates(b, list, n, height, rank, under, found), mark = b->log.changes.n, inner = b->used;
    ExactResult result = EXACT_IMPOSSIBLE;
    for (int c = 0; c < nfound && result == EXACT_IMPOSSIBLE; c++) {
        int i = found[c], left = 0;
        bool covered = false, ok = put(b, i, &covered);
        if (ok) {
            for (int k = 0; k < n; k++)
                if (list[k] != i) rest[left++] = list[k];
            result = place_parts(b, rest, left, b->x->items[i].at, b->rank[i]);
        }
        b->used = inner;
        if (result == EXACT_FOUND) break;
        exact_undo(&b->log, mark);
        if (ok && !covered) break; /* nothing lies above it: to place it later changes nothing */
    }
    b->used = used;
    return result;
}

ExactResult exact_bottom_up(ExactBottomUp *b, int64_t *steps, int64_t limit) {
    ExactSearch *x = b->x;
    b->steps = steps;
    b->limit = limit;
    choose_order(b);
    if (!b->scratch) b->scratch = NEW_ARRAY(x->a, int, (x->n + 2) * (x->n + 3) / 2 * 3 + 8);
    int *list = take_scratch(b, x->n);
    for (int i = 0; i < x->n; i++) list[i] = i;
    ExactResult r = place_parts(b, list, x->n, 0, -1);
    b->used = 0;
    exact_undo(&b->log, 0);
    return r;
}
