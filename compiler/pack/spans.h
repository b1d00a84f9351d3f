/* A set of addresses: sorted spans, in runs of a few dozen, so that a new span moves few others, and a search skips
 * each run that has no gap of the wanted size.
 * Relies on: base.
 * Relied on by: pack.c and its tests. */
#ifndef SHARDC_SPANS_H
#define SHARDC_SPANS_H

#include "../base/base.h"

typedef struct {
    int64_t lo, hi; /* addresses; hi is not part of it */
} Span;

typedef struct {
    Span *at; /* sorted, disjoint, not touching */
    int n, cap;
    int64_t hi;  /* of the last span */
    int64_t gap; /* no gap before a span of the run is larger, nor the gap between the run before and this one */
} SpanRun;

typedef struct {
    SpanRun *runs;
    int n, cap;    /* runs after the first n are empty, but keep their memory for later */
    SpanRun first; /* most sets need no other: `runs` is this one until they do. Such a set stays where it is. */
} Spans;

/* A search that moves upward through a set. Adding a span to the set ends it. */
typedef struct {
    SpanRun *run, *end;
    const Span *at; /* in `run` */
    int64_t below;  /* addresses below are taken, or of no interest: the end of the run before, or 0 */
} SpanCursor;

void spans_clear(Spans *s);

/* Adds the addresses of x, of which the set may hold some already. Returns the elementary steps that it took. */
int64_t spans_add(Arena *a, Spans *s, Span x);

/* Makes the set consist of n spans, which may overlap and have any order, and are changed. The set keeps the array. It
 * is one run, to which nothing may be added. */
void spans_of_array(Arena *a, Spans *s, Span *spans, int n);

SpanCursor spans_cursor(Spans *s);

/* The lowest address, at or above `at`, from which `size` bytes are free. `at` never falls from call to call of one
 * cursor, whose sizes are equal. Adds to *steps the elementary steps that it took. */
int64_t spans_find(SpanCursor *c, int64_t at, int64_t size, int64_t *steps);

#endif
