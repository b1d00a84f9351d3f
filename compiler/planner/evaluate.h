/* What a set of policy entries comes to: the plan's figures, and what its blocks need at every moment.
 * Relies on: planner.h, blocks.h.
 * Relied on by: planner.c. */
#ifndef SHARDC_EVALUATE_H
#define SHARDC_EVALUATE_H

#include "blocks.h"
#include "planner.h"

/* Bytes of the device's arena. Rows as in chain.h, from what is alive at each event, placement's gaps excluded. */
typedef struct {
    int64_t kept, forward, backward;
} BlockNeeds;
typedef struct {
    bool made;           /* false: the compiler refuses these entries for this model */
    int64_t arena, live; /* placed, and the most that is alive at once */
    int64_t host;
    int64_t between;
    double step_us, exposed_us;
    double floor_us; /* of a step's forward and backward, one after another, with nothing beside them at full clock */
    BlockNeeds *blocks;
} Outcome;

/* Figures of a plan that still has its graph. */
Outcome evaluate_plan(Arena *a, const Plan *p, const Blocks *b, const Device *d);

/* Outcomes of `n` texts of entries, side by side in as many processes as there are processors. Each is a compilation of
 * its own. */
void evaluate_all(Arena *a, const PlannerInput *in, PlannerHow how, const Blocks *b, const char *const *entries, int n,
                  Outcome *out);

#endif
