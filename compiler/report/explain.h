/* Why a plan is as it is: for one event or storage who made it and why it stands where it stands; for each pass what it
 * changed. Relies on: plan.h. Relied on by: cli/explain.c and the commands with --explain. */
#ifndef SHARDC_EXPLAIN_H
#define SHARDC_EXPLAIN_H

#include "../plan/plan.h"

/* id: an event or a storage, as `inspect` prints them. program: where it is looked for; NULL: training first, then the
 * others. Ends in a message with the nearest name where there is none. Who made an event, and what decided its place in
 * the issue order, is not in a plan read from JSON. */
void explain_text(FILE *f, const Plan *p, const char *id, const char *program);

/* A line for each pass. Of a plan from a model whose passes were measured (PipelineOptions.explain). */
void explain_passes(FILE *f, const Plan *p);

#endif
