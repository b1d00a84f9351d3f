/* Packing: offsets for runs of bytes that live over a partial order, in as little space as can be found.
 * Relies on: schedule.h (clocks).
 * Relied on by: place, its tests, the packing benchmark. */
#ifndef SHARDC_PACK_H
#define SHARDC_PACK_H

#include "schedule.h"

typedef struct {
    int64_t size;
    int first, last; /* in the text: two items alive at one position of the text never share bytes */
    int reach;       /* last position where an item begins that must not share bytes with this one, though it is over */
    Clock begin;     /* what every access has seen finished */
    Clock end;       /* last access, per stream */
    int64_t at;      /* result */
} Item;

/* Largest sum of items alive at one position of the text, 0 <= position < positions; *where: the first such position.
 */
int64_t pack_bound(const Item *items, int n, int positions, int *where);

/* Sets every `at`; returns the height. `bound` is raised where a heavier set of items is found of which no two may
 * share bytes. Stops as soon as the height is next to the bound or no more than `known`; after the first attempts
 * repairs the best of them for `effort` elementary steps at most. */
int64_t pack(Item *items, int n, int positions, int64_t *bound, int64_t known, int64_t effort);

#endif
