/* What would lower the peak of a program: each module, or all modules alike, recomputed or offloaded, with what that
 * costs and the entry of a policy file that asks for it. Relies on: plan.h.
 * Relied on by: report/page_blocks.c. */
#ifndef SHARDC_SAVINGS_H
#define SHARDC_SAVINGS_H

#include "plan.h"

typedef enum { SAVING_RECOMPUTE, SAVING_OFFLOAD, SAVING_OFFLOAD_INPUT, N_SAVINGS } SavingKind;

typedef struct {
    SavingKind kind;
    const char *pattern; /* "model.layers.*.mlp" */
    int modules;
    int64_t bytes;     /* fewer alive at the program's peak */
    int64_t lower;     /* by so many the largest moment is lower: another one may be the largest then */
    double us;         /* by so many a step is longer: see below */
    int64_t copied;    /* bytes that go to the host and back; 0: recompute */
    const char *entry; /* of a policy file: { match = "model.layers.*.mlp", ... } */
} Saving;
typedef VEC(Saving) Savings;

/* Of a program that trains, on the device's arena; the most bytes of `lower` a microsecond first. What lowers the
 * largest moment by less than a thousandth is left out, and what another saving of the same modules beats in bytes or
 * time and equals at least in the other.
 *
 * Activations that live from a module's forward to its backward are freed in between. Recompute: `us` is the sum of the
 * durations, in this plan, of the forward's events that would run again. Offload: what copies of all offloaded bytes
 * take longer than the kernels of the forward (out) and of the backward (back) run, at Plan.host_up and host_down; no
 * such rows where those are not known. Both are of all microbatches of a step, and estimates: `shardc plan` places and
 * times what it proposes. */
Savings plan_savings(const Plan *p, int program);

const char *savings_word(SavingKind k); /* "recompute", "offload", "offload input" */

#endif
