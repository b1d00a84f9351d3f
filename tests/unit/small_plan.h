/* A small sound plan made by hand: one sharded unit, two ranks, a step of gather, forward, backward, reduce, update.
 * Relies on: plan.h.
 * Relied on by: test_verify.c, test_plan_json.c, test_limits.c. */
#ifndef SMALL_PLAN_H
#define SMALL_PLAN_H

#include "../../compiler/report/report.h"

enum { P_INIT, P_START, P_MICRO, P_EVAL };
/* storages */
enum { MASTER, MOMENT, INPUT, RECORD, FULL, ACT, FULL_GRAD, GRAD_SHARD, EVAL_FULL, EVAL_ACT, N_SMALL_STORAGES };
/* events of micro */
enum { GATHER_F, FORWARD_1, LOSS_1, BACKWARD_1, BACKWARD_2, REDUCE_1, UPDATE_1, N_MICRO };

Plan *small_plan(Arena *a);

#endif
