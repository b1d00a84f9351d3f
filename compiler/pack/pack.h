/* Packing: offsets for runs of bytes that live over a partial order, in as little space as can be found.
 * Relies on: clock.h.
 * Relied on by: schedule/place.c, cli/pack.c, their tests. */
#ifndef SHARDC_PACK_H
#define SHARDC_PACK_H

#include "../base/base.h"
#include "clock.h"

typedef struct {
    int64_t size;
    int first, last; /* in the text: two items alive at one position of the text never share bytes */
    int reach;       /* last position where an item begins that must not share bytes with this one, though it is over */
    Clock begin;     /* what every access has seen finished */
    Clock end;       /* last access, per stream */
    int64_t at;      /* result */
} Item;

static inline bool pack_alive_together(const Item *a, const Item *b) {
    return a->first <= b->last && b->first <= a->last;
}
/* Whether two items must not share bytes. */
static inline bool pack_conflict(const Item *a, const Item *b) {
    const Item *x = a->first < b->first ? a : b, *y = x == a ? b : a;
    return pack_alive_together(a, b) || !clock_covers(y->begin, x->end);
}

/* Largest sum of items alive at one position of the text, 0 <= position < positions; *where: the first such position.
 */
int64_t pack_bound(const Item *items, int n, int positions, int *where);

/* Sets every `at`; returns the height. `bound` is raised where a heavier set of items is found of which no two may
 * share bytes. Stops as soon as the height is next to the bound or no more than `known`; after the first attempts
 * repairs the best of them for `effort` elementary steps at most, and then searches for `search` steps of exact.h. */
int64_t pack(Item *items, int n, int positions, int64_t *bound, int64_t known, int64_t effort, int64_t search);

#endif
