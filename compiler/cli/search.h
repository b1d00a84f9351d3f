/* The largest value of a whole-numbered option that fits, without its plan being changed.
 * Relies on: points.h.
 * Relied on by: search.c, advice.c. */
#ifndef SHARDC_SEARCH_H
#define SHARDC_SEARCH_H

#include "points.h"

typedef struct {
    int64_t value; /* 0: not even 1 fits */
    Points around; /* value - 1, value and value + 1, as far as there are such, with full effort */
} SearchLargest;

/* Doubles `from`, then bisects; `below` (0: unknown) is known not to fit. Fits means --budget, or the device. Estimates
 * steer; the value and the one above it are confirmed with full effort. What the model refuses counts as too large.
 * Fails where a larger value fits than one that does not, and where the option does not change the arena. */
SearchLargest search_largest(Arena *a, const Options *o, const char *key, int64_t from, int64_t below);

/* The option's value in a plan. False: there is no such option, or it is no whole number from 1 on. */
bool search_value(const Plan *p, const char *key, int64_t *value);

#endif
