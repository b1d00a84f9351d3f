/* What is alive when, and who holds it: sums over a plan's storages, and figures of a step.
 * Relies on: plan.h.
 * Relied on by: write.c, unused.c, planner/, emit/tables.c, report/, cli/. */
#ifndef SHARDC_LIVE_H
#define SHARDC_LIVE_H

#include "plan.h"

typedef struct {
    int64_t of[N_CLASSES], total;
} LiveSet;

/* Sets of classes: what modules hold (all else is of units or of the whole); what units hold for a while. */
enum {
    CLASSES_OF_MODULES = 1u << C_ACTIVATIONS | 1u << C_TEMPORARY | 1u << C_WORKSPACE,
    CLASSES_UNSHARDED = 1u << C_UNSHARDED | 1u << C_UNSHARDED_GRADS
};

/* In the device's arena, while an event of a program runs (event -1: the persistent ones). */
bool live_storage(const Storage *s, int program, int event);
LiveSet live_at(const Plan *p, int program, int event);
int live_largest_program(const Plan *p); /* the one with the highest peak; -1: there is none */

char *live_path_pattern(Arena *a, const char *path); /* layers.31.mlp -> layers.*.mlp */

/* Modules or units with equal names up to numbers ("layers.*.mlp"), and what they hold together. */
typedef struct {
    const char *pattern;
    int64_t bytes;
    int owners;
} Holder;
typedef VEC(Holder) Holders;
Holders live_holders(const Plan *p, int program, int event, unsigned classes); /* largest first */

/* One step: the program micro; where microbatches accumulate, micro_first, micro as often as the model's `accumulate`
 * asks for, micro_last. MFU: share of the data sheet's peak, by the two counts of Plan.model_flops. */
typedef struct {
    int microbatches; /* 0: the plan has no training program */
    double step_us, exposed_us, mfu_causal, mfu_full;
    double tokens_per_second, samples_per_second; /* of one rank; tokens 0: the inputs are none */
} StepFigures;
StepFigures live_step(const Plan *p);
int live_runs(const Plan *p, int program); /* how often a step runs it */

double live_library_bytes(const Plan *p, double *tolerance);
bool live_fits(const Plan *p); /* arena and library into the device */

#endif
