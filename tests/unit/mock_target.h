/* A target without kernels: ranks are threads, arenas are memory, and a fake model whose update is the same arithmetic
 * for every world size. Relies on: runtime/target.h. Relied on by: test_host.c, host_run.h. */
#ifndef MOCK_TARGET_H
#define MOCK_TARGET_H

#include "../../runtime/target.h"

enum {
    MOCK_BATCH = 8,
    MOCK_SEQ = 16,
    MOCK_VOCAB = 200,
    MOCK_WIDE = 300, /* room for a larger vocabulary in the logits */

    MOCK_MAX = 8,
    MOCK_PARAMS = 6,
    MOCK_UNITS = 2,
    MOCK_FROZEN = 2,
    MOCK_BUFFER = 5
};

typedef struct {
    sc_build b;
    sc_param_info params[MOCK_PARAMS];
    sc_unit_info units[MOCK_UNITS];
    sc_input_info inputs[2];
    sc_program_info programs[8];
    sc_count_info counts[1];
    sc_group_info groups[2];
    sc_axis axes[3];
} MockBuild;

extern int64_t mock_nan_step; /* a metric of this step is NaN; 0: none */
extern int mock_nan_metric;   /* 0: the loss, 1: the norm */
/* What sc_heed answers from this step on (0: before the first), once if it is SIGUSR1. */
extern int mock_signal;
extern int64_t mock_signal_step;
/* Called by rank 0 before it runs a program, with the step (from 1; 0 before the first); NULL: nothing. */
extern void (*mock_hook)(const char *program, int64_t step);

/* A world of `shards` x replicas, and a global batch of MOCK_BATCH samples a step whatever the world and accumulation.
 */
const sc_build *mock_build(MockBuild *m, int world, int shards, int accumulate);
/* Arenas and barrier without a launch, for tests that call host functions with a rank of their own. */
void mock_start(const sc_build *b);
void mock_stop(const sc_build *b);
sc_rank *mock_rank(int index);
const sc_record *mock_record(int rank); /* that the running program reads */
double mock_number(uint64_t x);         /* in [0, 1), a function of x */

#endif
