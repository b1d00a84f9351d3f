/* A timeline: streams that run a program's events on a device, one after another each, with what they take from one
 * another. Whoever issues events chooses the order: simulate walks a plan's, order makes one.
 * Relies on: device profiles, plan.h.
 * Relied on by: simulate.c, order, the planner's estimates. */
#ifndef SHARDC_TIMELINE_H
#define SHARDC_TIMELINE_H

#include "../devices/device.h"

typedef struct {
    double start, end, share; /* by `share` kernels take longer meanwhile */
} Span;

typedef struct {
    Span *span; /* in order of time */
    int n, at;  /* at: the first that was not over when last looked at */
} Track;

typedef struct {
    const PlanProgram *p;
    double *alone;                      /* by event: its duration with nothing beside it, us */
    double *start, *end;                /* by event, once it has run */
    double free[N_STREAMS];             /* when a stream has ended what it was given */
    double *least, *both, *share;       /* by event: factors of a copy alone and beside one the other way; as in Span */
    Track ran[N_STREAMS];               /* this run's collectives and copies */
    Track beside[N_STREAMS][N_STREAMS]; /* what slows events of the first stream on the second */
} Timeline;

/* For the events of `p`, in any order. Without a device events take the durations that they have, whatever else runs.
 */
Timeline *timeline_new(Arena *a, const Plan *plan, const PlanProgram *p, const Device *d);
/* All streams are free again. Copies learn from the run before when those the other way run. */
void timeline_restart(Timeline *t);
/* The event runs as soon as its stream is free, but not before `ready`. Returns its end. What runs beside kernels is to
 * be given before them; what comes later counts for those that follow. */
double timeline_run(Timeline *t, int event, double ready);

/* ── simulate.c ──────────────────────────────────────────────────────────────────────────────────────────────── */
void simulate(Plan *plan, const Device *d); /* times of every event and program; footprint */
/* What if collectives came later: each is held back for so long, by stream. The schedule stays; times are new. */
void delay_collectives(Plan *plan, const double *delay_us);

#endif
