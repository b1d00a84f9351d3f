/* shard's part for the history of largest magnitudes (recipe = "delayed"): a step's first program begins with nothing
 * seen, and the last one ends with the step's in the history: the largest of all microbatches and ranks, so that every
 * rank scales alike. Relies on: ir/amax_history.h, shard.h. Relied on by: shard.c. */
#include "../../ir/amax_history.h"
#include "shard.h"

void shard_begin_amax(Graph *g, Program *p) {
    if (!g->amax_history) return;
    shard_insert(g, p, 0, UNIT_OP(g, zero, NULL, "amax_zero", FORWARD, TO_COMPUTE, .state = g->amax_seen->value));
}

void shard_update_amax(Making *c, Value *coefficient) {
    Graph *g = c->g;
    if (!g->amax_history) return;
    const Axis *world = g->axes.at[SC_WORLD];
    Value *all = g->amax_seen->value;
    if (world->size > 1) {
        Op *op = shard_collective(g, OP_all_gather, NULL, "amax_all", OPTIMIZER, TO_SUM_METRICS, world, all);
        edit_before(c->edit, c->p->ops.n, op);
        all = shard_add_out(g, op, FP32, g->amax_seen->numel * world->size);
    }
    Op *op = UNIT_OP(g, update_amax, NULL, "amax", OPTIMIZER, TO_UPDATE, .all = all, .history = g->amax_history->value,
                     .coefficient = g->training->scaler ? coefficient : NULL);
    edit_before(c->edit, c->p->ops.n, op);
}
