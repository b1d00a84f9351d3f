/* The largest value found of a whole-numbered option that fits, without its plan being changed.
 * Relies on: points.h.
 * Relied on by: search.c, advice.c. */
#ifndef SHARDC_SEARCH_H
#define SHARDC_SEARCH_H

#include "points.h"

typedef struct {
    int64_t value;          /* 0: not even the smallest that compiles fits */
    int64_t tried_to;       /* every value above `value` up to this one was tried with full effort: none fits */
    int64_t refused;        /* of them do not compile */
    const int64_t *further; /* larger ones that were tried: none fits */
    int nfurther;
    int64_t hole;  /* a smaller value that does not fit; 0: none was met */
    Points around; /* the one below that compiles, as far as known, `value`, and one above that does not fit, with full
                      effort */
} SearchLargest;

/* Doubles `from`, goes on for some values beyond the first that is too large, then bisects; `below` (0: unknown) is
 * known not to fit. Fits means --budget, or the device. Values that the model refuses are skipped. Estimates steer; the
 * value and those next to it are confirmed with full effort. Fails where the option does not change the arena, or where
 * there is no end to values that fit. */
SearchLargest search_largest(Arena *a, const Options *o, const char *key, int64_t from, int64_t below);

/* The option's value in a plan. False: there is no such option, or it is no whole number from 1 on. */
bool search_value(const Plan *p, const char *key, int64_t *value);

#endif
