/* A packing problem over a partial order, as sets of items of which no two may share bytes.
 * Relies on: pack.h, exact.h.
 * Relied on by: pack.c and its tests. */
#ifndef SHARDC_PACK_SECTIONS_H
#define SHARDC_PACK_SECTIONS_H

#include "exact.h"
#include "pack.h"

/* The heaviest set of items of which no two may share bytes, in bytes: no packing is lower. Of many items, the largest
 * alone are looked at. */
int64_t pack_sections_heaviest(const Item *items, int n);

/* The items chosen[0 .. n - 1] for exact search: any two that may not share bytes have a section in common, and no
 * others have. `at` of the items becomes the guess. */
ExactItem *pack_sections(Arena *a, const Item *items, const int *chosen, int n, int *nsections);

#endif
