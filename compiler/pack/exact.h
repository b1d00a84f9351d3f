/* Exact packing: offsets below a capacity, or a proof that there are none, by search.
 * Relies on: base.
 * Relied on by: pack.c, `shardc pack` and their tests. */
#ifndef SHARDC_EXACT_H
#define SHARDC_EXACT_H

#include "../base/base.h"

/* A section is a set of items of which no two may share bytes: all that is alive at one moment. Items with no section
 * in common may lie anywhere. */
typedef struct {
    int64_t size, alignment; /* bytes, at least 1; the offset is a multiple of alignment */
    const int *sections;     /* ascending, at least one */
    int nsections;
    int64_t at; /* a guess of the offset, which helps where it is near; then the result */
} ExactItem;

typedef enum { EXACT_FOUND, EXACT_IMPOSSIBLE, EXACT_UNKNOWN } ExactResult;

enum { EXACT_MOST = 2048 }; /* items in a problem that is searched; the search needs bits for every pair */

/* The largest sum of sizes in a section: no capacity below that is enough. */
int64_t exact_bound(const ExactItem *items, int n, int nsections);

/* Looks for offsets at which every item ends at or below `capacity`. Sets every `at` where it finds them. Takes
 * elementary steps from *effort, of which a second has about 1e9, and knows nothing when none is left; the same call
 * gives the same result on every machine. More than EXACT_MOST items are not searched. */
ExactResult exact_pack(ExactItem *items, int n, int nsections, int64_t capacity, int64_t *effort);

/* The same with the least height instead of a capacity: `at` holds a packing of `height` bytes already. Lowers it, and
 * raises *bound, a height that none is below, as far as *effort goes; returns the height. Where `exact` is false the
 * sections say more than is so, and what they refute raises no bound. */
int64_t exact_minimise(ExactItem *items, int n, int nsections, int64_t height, int64_t *bound, bool exact,
                       int64_t *effort);

#endif
