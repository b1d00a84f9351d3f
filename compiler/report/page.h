/* The plan as a page: one HTML file that opens from disk, with the schedule, the memory and who holds it.
 * Relies on: plan.h.
 * Relied on by: cli/inspect.c. */
#ifndef SHARDC_PAGE_H
#define SHARDC_PAGE_H

#include "../ir/plan.h"

/* Writes the page of all programs of p. Shapes of operands are in it where p comes from a model, not from a plan.json.
 */
void page_write(FILE *f, const Plan *p);

#endif
