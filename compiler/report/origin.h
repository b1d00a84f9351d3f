/* Who made an event, and what decided its place in the issue order. Not known of a plan read from JSON.
 * Relies on: plan.h.
 * Relied on by: explain.c, page_blocks.c. */
#ifndef SHARDC_ORIGIN_H
#define SHARDC_ORIGIN_H

#include "../plan/plan.h"

const char *origin_pass(const Plan *p, const Op *op);   /* the pass that made it, "shard" */
const char *origin_kernel(const Plan *p, const Op *op); /* which kernels compute its attention; "": it has none */

/* The rule by which an event is issued where it is: "in the graph's order, after". Event.issue_other is the event that
 * it speaks of. "": not known. */
const char *origin_issue(const Event *e);

#endif
