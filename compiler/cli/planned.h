/* The planner as commands ask it: the fastest policies of a model within --budget, or within what the device leaves.
 * Relies on: cli.h, planner.h.
 * Relied on by: planned.c, plan.c. */
#ifndef SHARDC_PLANNED_H
#define SHARDC_PLANNED_H

#include "../planner/planner.h"
#include "cli.h"

typedef struct {
    const Options *o;
    const char *input;
} PlanAsked;

PlannerInput planned_input(Arena *a, const PlanAsked *c);
PlannerResult planned_search(Arena *a, const PlanAsked *c);
void planned_told(void); /* ends the line of progress on a terminal */
_Noreturn void planned_nothing_fits(Arena *a, const PlannerResult *r);
const char *planned_words(Arena *a, const Planned *p); /* "h.{0-3}: keep everything; units: as the model says" */

#endif
