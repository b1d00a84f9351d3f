/* How much later each event of a program could end.
 * Relies on: plan.h.
 * Relied on by: report/explain.c, report/page_blocks.c. */
#ifndef SHARDC_SLACK_H
#define SHARDC_SLACK_H

#include "plan.h"

/* By event of program g, in the plan's arena: microseconds by which it may end later while the program ends as it does.
 * 0: the event is on the critical path. Kernels that would then run beside other collectives are not slowed anew. */
const double *plan_slack(const Plan *p, const PlanProgram *g);

#endif
