/* exact: a packing problem is cut where no life crosses, and two searches take turns on each part, which begin anew
 * with another order. One goes on at the lowest place, the other where choices are fewest. What one of them finds is
 * final. Relies on: exact_search.h. Relied on by: pack.c, `shardc pack` and their tests. */
#include "exact_search.h"

#include <stdlib.h>

static const int64_t TURN = 500000; /* steps: the shortest turn of the search where choices are fewest */

int64_t exact_bound(const ExactItem *items, int n, int nsections) {
    Arena *a = arena_new();
    int64_t *sum = NEW_ARRAY(a, int64_t, nsections + 1), most = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < items[i].nsections; k++) {
            int64_t *s = &sum[items[i].sections[k]];
            *s += items[i].size;
            most = max64(most, *s);
        }
    arena_free(a);
    return most;
}

/* ── search ────────────────────────────────────────────────────────────────────────────────────────────────── */
/* 1, 1, 2, 1, 1, 2, 4, 1, ...: half as many turns of twice the length. Where nobody knows how long a turn should be, no
 * other sequence is much better (Luby, Sinclair, Zuckerman 1993). */
static int64_t length_of_turn(int64_t i) {
    for (int64_t size = 1;; size = 2 * size + 1) {
        if (i == size) return (size + 1) / 2;
        if (i > size && i < 2 * size + 1) return length_of_turn(i - size);
    }
}

/* Large problems get longer turns, and the caller's guess, which is tried first, enough to place everything twice. The
 * search where choices are fewest gets a third of the steps. */
static ExactResult search(ExactSearch *x, int64_t *steps, int64_t effort) {
    ExactLowestFirst *lowest_first = exact_lowest_first_new(x);
    ExactBottomUp *bottom_up = NULL;
    int64_t each = 0, ahead = 0, turns[2] = {0}; /* ahead: steps of the first search, less twice those of the second */
    for (int i = 0; i < x->n; i++) each += x->items[i].nsections + 4;
    int64_t whole = each * x->n / 2, turn = max64(TURN, whole / 8);
    ExactResult r = exact_lowest_first(lowest_first, steps, min64(effort, *steps + 2 * whole));
    while (r == EXACT_UNKNOWN && *steps < effort) {
        int64_t before = *steps;
        if (ahead <= 0) {
            int64_t length = 2 * turn * length_of_turn(++turns[0]);
            r = exact_lowest_first(lowest_first, steps, min64(effort, *steps + length));
            ahead += *steps - before;
        } else {
            if (!bottom_up) bottom_up = exact_bottom_up_new(x);
            int64_t length = turn * length_of_turn(++turns[1]);
            r = exact_bottom_up(bottom_up, steps, min64(effort, *steps + length));
            ahead -= 2 * (*steps - before);
        }
    }
    return r;
}

typedef struct {
    ExactItem item;
    int input; /* its place among the caller's items */
} Sorted;

static int compare_sorted(const void *a, const void *b) {
    const Sorted *x = a, *y = b;
    int first = x->item.sections[0] - y->item.sections[0];
    return first ? first : x->input - y->input;
}

ExactResult exact_pack(ExactItem *items, int n, int nsections, int64_t capacity, int64_t *effort) {
    if (n == 0) return EXACT_FOUND;
    if (exact_bound(items, n, nsections) > capacity) return EXACT_IMPOSSIBLE;
    if (n > EXACT_MOST) return EXACT_UNKNOWN;
    Arena *a = arena_new();
    Sorted *sorted = NEW_ARRAY(a, Sorted, n);
    ExactItem *part = NEW_ARRAY(a, ExactItem, n);
    for (int i = 0; i < n; i++) sorted[i] = (Sorted){items[i], i};
    qsort(sorted, (size_t)n, sizeof *sorted, compare_sorted);
    for (int i = 0; i < n; i++) part[i] = sorted[i].item;
    ExactResult r = EXACT_FOUND;
    int64_t steps = 0;
    for (int from = 0, to; from < n && r != EXACT_IMPOSSIBLE; from = to) {
        int first = part[from].sections[0], end = first;
        for (to = from; to < n && part[to].sections[0] <= end; to++) {
            int last = part[to].sections[part[to].nsections - 1];
            if (last > end) end = last;
        }
        ExactSearch *x = exact_search_new(a, part + from, to - from, first, end + 1, capacity);
        ExactResult found = search(x, &steps, *effort);
        for (int i = from; i < to && found == EXACT_FOUND; i++) items[sorted[i].input].at = x->items[i - from].at;
        if (found != EXACT_FOUND) r = found;
    }
    *effort = max64(0, *effort - steps);
    arena_free(a);
    return r;
}

/* First the bound itself, with half of the effort: mostly it can be met. Then halfway between what was not found and
 * what was. Every height is a multiple of `unit`. */
int64_t exact_minimise(ExactItem *items, int n, int nsections, int64_t height, int64_t *bound, bool exact,
                       int64_t *effort) {
    int64_t unit = 0;
    for (int i = 0; i < n; i++) unit = common_divisor(common_divisor(unit, items[i].size), items[i].alignment);
    if (n) *bound = round_up(*bound, unit);
    int64_t from = *bound, capacity = *bound; /* heights below `from` were not found */
    Arena *a = arena_new();
    ExactItem *trial = NEW_ARRAY(a, ExactItem, n + 1);
    memcpy(trial, items, sizeof *items * (size_t)n);
    for (int64_t least = *effort / 64; n <= EXACT_MOST && from<height && * effort> least;) {
        int64_t share = *effort / 2, left = share;
        ExactResult r = exact_pack(trial, n, nsections, capacity, &left);
        *effort -= share - left;
        if (r == EXACT_FOUND) {
            height = 0;
            for (int i = 0; i < n; i++) {
                items[i].at = trial[i].at;
                height = max64(height, items[i].at + items[i].size);
            }
        } else {
            if (r == EXACT_IMPOSSIBLE && exact && capacity >= *bound) *bound = capacity + unit;
            from = capacity + unit;
        }
        capacity = from + (height - from) / 2 / unit * unit;
    }
    arena_free(a);
    return height;
}
