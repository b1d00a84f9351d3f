/* A choice for the whole model, and the policy entries that say it.
 * Relies on: blocks.h, planner.h.
 * Relied on by: planner.c. */
#ifndef SHARDC_ENTRIES_H
#define SHARDC_ENTRIES_H

#include "blocks.h"
#include "planner.h"

/* How units are treated. */
typedef struct {
    enum { RESHARD_AS_MODEL, RESHARD, STAY } reshard;
    int prefetch; /* units gathered ahead; -1: as the model says */
    int state; /* of ALL_STATE parts of the units, the last ones: parameters and optimizer on the host; -1: as the model
                  says */
} UnitSetting;
enum { ALL_STATE = 8 };

/* Text of a policy file that stands over the model: option[i] of block i (NULL: checkpoints stay as they are). */
const char *entries_text(Arena *a, const Blocks *b, const int *option, UnitSetting u);

/* Runs of alike blocks treated alike, for people. */
int entries_runs(Arena *a, const Blocks *b, const int *option, PlannedRun **runs);
const char *entries_units(Arena *a, UnitSetting u); /* what units do, for people */

#endif
