/* What reports and the emitted text say alike of a plan: why an event waits, what no program uses.
 * Relies on: plan.h.
 * Relied on by: report/, emit/step.c, emit/tables.c. */
#ifndef SHARDC_SENTENCES_H
#define SHARDC_SENTENCES_H

#include "plan.h"

/* Why event x of p waits for an awaited event: sentences without a full stop, into said; returns how many, 1 or more. A
 * storage is called what name(names, storage) says, or as in the plan where name is NULL. */
enum { REASONS_MOST = 2 }; /* storages that reasons name; the order of collectives may be one more reason */
typedef const char *StorageName(const void *names, int storage);
int plan_reasons(const Plan *plan, const PlanProgram *p, const Event *x, int awaited, StorageName *name,
                 const void *names, const char *said[REASONS_MOST + 1]);

const char *plan_unused(const Plan *p, Unused kind); /* one line, without its end; NULL: there is none */

#endif
