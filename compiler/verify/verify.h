/* Promise P4: proves a plan sound from the plan alone. Shares no code with order, place and sync.
 * Relies on: plan.h.
 * Relied on by: pipeline.c (every build), `shardc verify`, the tests. */
#ifndef SHARDC_VERIFY_H
#define SHARDC_VERIFY_H

#include "../plan/plan.h"

typedef struct {
    const char *rule; /* "read-before-write", "race", "overlap", "collective-order", "update-once", "succession",
                         "bounds", "wait", "mesh"; of times: "forward-time", "step-time", "exposed" */
    const char *program, *first, *second; /* event ids; either may be NULL */
    char *text;                           /* one sentence with the missing edge or the overlapping bytes */
} Finding;
typedef VEC(Finding) Findings;

Findings *verify(Arena *a, const Plan *p);

/* Of a training program, by the plan's durations. */
typedef struct {
    double forward_ms, step_ms, exposed_ms; /* until the forward's last kernel · of all · in which compute idles */
} Times;
Times verify_program_times(Arena *a, const PlanProgram *p);
/* Bounds on them, of every training program; negative: none. */
void verify_times(Arena *a, const Plan *p, const Times *most, Findings *out);

#endif
