/* A timeline: streams that run a program's events on a device, one after another each, with what they take from one
 * another. Whoever issues events chooses the order. Relies on: device profiles, plan.h. Relied on by: simulate.c,
 * compiler/schedule/order.c and what it consists of. */
#ifndef SHARDC_TIMELINE_H
#define SHARDC_TIMELINE_H

#include "../devices/device.h"

typedef struct {
    double start, end, share; /* kernels take longer by `share` meanwhile */
    int event;
} Span;

typedef struct {
    Span *span; /* in order of time */
    int n;
} Track;

typedef struct {
    const PlanProgram *p;
    double *alone;                    /* by event: its duration with nothing beside it, us, at the program's clock */
    double busy;                      /* us of the compute stream with nothing beside it */
    double *start, *end;              /* by event, once it has run */
    double free[N_STREAMS];           /* by then a stream has ended what it was given */
    double *least, *both, *share;     /* by event: its factors by itself and beside its partner's; Span.share */
    Track ran[N_STREAMS];             /* collectives and copies */
    int beside[N_STREAMS][N_STREAMS]; /* of what slows events of the first stream, by stream: the first span that was
                                         not over when last looked at */
} Timeline;

/* For the events of `p`, in any order. Without a device events take the durations that they have, whatever else runs.
 * `idle`: us for which the compute stream is known to wait, which leave the GPU's arithmetic more power. */
Timeline *timeline_new(Arena *a, const Plan *plan, const PlanProgram *p, const Device *d, double idle);
/* Two events share a network, or a bus, when they run at once. */
bool timeline_share(const Timeline *t, int a, int b);
void timeline_restart(Timeline *t); /* all streams are free again */
/* The event runs as soon as its stream is free, but not before `ready`. Returns its end. Only what was issued before it
 * slows it: an estimate for order, which cannot know more yet. */
double timeline_run(Timeline *t, int event, double ready);
/* Rounds a time in us. A prediction is not that exact, and 17 digits take longer to write than the rest of an event. */
double cost_picoseconds(double us);

/* ── simulate.c ──────────────────────────────────────────────────────────────────────────────────────────────── */
void cost_simulate(Plan *plan, const Device *d); /* times of every event and program; footprint */
/* What if collectives came later: each is held back for so long, by stream. The schedule stays; times are new. */
void cost_delay_collectives(Plan *plan, const double *delay_us);

#endif
