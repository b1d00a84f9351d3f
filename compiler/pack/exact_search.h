/* What the two searches of exact packing share: the problem as they see it, and a log of changes to go back by.
 * Relies on: exact.h.
 * Relied on by: exact.c, exact_bottom_up.c, exact_lowest_first.c. */
#ifndef SHARDC_EXACT_SEARCH_H
#define SHARDC_EXACT_SEARCH_H

#include "exact.h"

/* Items in order of their first section. No section's items are a part of a neighbour's. */
typedef struct {
    Arena *a;
    ExactItem *items;
    int n, nsections, words; /* words: of a bit set of items */
    int64_t capacity;
    int **members, *nmembers; /* by section */
    uint64_t *conflicts;      /* by item, `words` each: those with a section in common */
    int *twin;                /* by item: the item before it that is its equal in everything, or -1 */
    uint64_t random;          /* state of a fixed sequence */
} ExactSearch;

/* Of items in order of their first section, all of whose sections are in [from, to). */
ExactSearch *exact_search_new(Arena *a, const ExactItem *items, int n, int from, int to, int64_t capacity);

/* Values that change on the way down, as they were. */
typedef struct {
    int64_t *cell, old;
} ExactChange;
typedef struct {
    Arena *a;
    VEC(ExactChange) changes;
} ExactLog;

static inline void exact_set(ExactLog *l, int64_t *cell, int64_t value) {
    push(&l->changes, l->a, ((ExactChange){cell, *cell}));
    *cell = value;
}
static inline void exact_undo(ExactLog *l, int to) {
    while (l->changes.n > to) {
        ExactChange c = l->changes.at[--l->changes.n];
        *c.cell = c.old;
    }
}
static inline bool exact_has(const uint64_t *set, int i) {
    return set[i >> 6] >> (i & 63) & 1;
}
static inline void exact_add(uint64_t *set, int i) {
    set[i >> 6] |= 1ull << (i & 63);
}
/* 0 <= result < n */
static inline int exact_random(ExactSearch *x, int n) {
    x->random = x->random * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((x->random >> 33) % (uint64_t)n);
}

/* Items by falling keys, then by number: sorts them and sets the rank of each. */
typedef struct {
    double key[2];
    int item;
} ExactRanked;
void exact_rank(ExactRanked *ranked, int n, int *rank);

/* Cuts a list of items, in order of their first section, where no life crosses: part p is [cuts[p], cuts[p + 1]).
 * Returns the number of parts. `cuts` has room for n + 1. */
int exact_cut(const ExactSearch *x, const int *list, int n, int *cuts);
int exact_larger_part(const int *cuts, int parts, int size); /* the least size of a part above `size` */

/* Both add the steps that they take to *steps and give up at `limit`; where they succeed every `at` is set. Every call
 * tries another order, and knows which sections failed before. */
typedef struct ExactBottomUp ExactBottomUp;
ExactBottomUp *exact_bottom_up_new(ExactSearch *x);
ExactResult exact_bottom_up(ExactBottomUp *b, int64_t *steps, int64_t limit);

typedef struct ExactLowestFirst ExactLowestFirst;
ExactLowestFirst *exact_lowest_first_new(ExactSearch *x);
ExactResult exact_lowest_first(ExactLowestFirst *b, int64_t *steps, int64_t limit);

#endif
