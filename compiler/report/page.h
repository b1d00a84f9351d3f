/* The plan as a page: one HTML file that opens from disk, with the schedule, the memory and who holds it.
 * Relies on: plan.h, actual.h.
 * Relied on by: cli/inspect.c. */
#ifndef SHARDC_PAGE_H
#define SHARDC_PAGE_H

#include "actual.h"

/* Writes the page of all programs of p. Shapes of operands are in it where p comes from a model, not from a plan.json.
 * actual: a run whose times stand below the predicted ones, or NULL. */
void page_write(FILE *f, const Plan *p, const Actual *actual);

#endif
