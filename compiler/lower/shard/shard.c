/* shard: lays each unit's parameters out in one flat buffer, creates the persistent states, and turns the traced
 * training step into the programs of the build, with gathers before use, reduce-scatters after the last gradient, and
 * one optimizer event per unit on the rank's shard. Relies on: units, autodiff (Param.reached, Param.grad), fuse
 * (numbers of kernels), shard.h (its parts). Relied on by: pipeline.c; order derives storages and events from it. */
#include "shard.h"
#include "../lower.h"

/* ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Stores the loss beside the numbers of nn.log_metric. The first program of a step zeroes all slots, because those that
 * no op writes are summed over the ranks too. Returns the op that stores the loss. */
static Op *metrics(Graph *g, Program *p, bool add) {
    Value *slots = g->metrics_state->value;
    int pos = p->ops.n; /* right after the op that makes the loss */
    for (int i = p->ops.n - 1; i >= 0; i--) {
        Op *op = p->ops.at[i];
        for (int k = 0; k < op->nout; k++)
            if (op->out[k] == p->loss) pos = i + 1;
        if (op->kind == OP_store && op->store.state == slots) op->store.add = add; /* nn.log_metric */
    }
    Op *unscaled = shard_scale_undo(g, p);
    Op *loss = shard_store_op(g, unscaled ? op_result(unscaled) : p->loss, slots, "m_loss", FORWARD, TO_COMPUTE, add,
                              SLOT_LOSS, NULL);
    shard_insert(g, p, pos, loss);
    if (unscaled) shard_insert(g, p, pos, unscaled);
    if (!add) shard_insert(g, p, 0, UNIT_OP(g, zero, NULL, "m_zero", FORWARD, TO_COMPUTE, .state = slots));
    return loss;
}

static void sum_metrics(Making *c) {
    Graph *g = c->g;
    Value *slots = g->metrics_state->value;
    if (g->axes.at[SC_SAMPLES]->size == 1) return;
    edit_before(
        c->edit, c->p->ops.n, /* nothing waits for it */
        shard_collective(g, OP_all_reduce, NULL, "m_sum", OPTIMIZER, TO_SUM_METRICS, g->axes.at[SC_SAMPLES], slots));
}

/* ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Making begin(Graph *g, Program *p, Role role) {
    return (Making){.g = g,
                    .p = p,
                    .role = role,
                    .keeping = role != ALONE,
                    .edit = edit_begin(g, p),
                    .uses = NEW_ARRAY(g->arena, Use, g->units.n),
                    .groups = groups_new(g)};
}

static void commit(Making *c) {
    edit_commit(c->edit);
    push(&c->g->programs, c->g->arena, c->p);
}

static void micro(Graph *g, const char *name, Role role) {
    Value *const *twins;
    Program *p = edit_clone_program(g, g->train, name, &twins);
    Value **grads = NEW_ARRAY(g->arena, Value *, g->params.n);
    for (int i = 0; i < g->params.n; i++)
        if (shard_trainable(g->params.at[i]) && g->params.at[i]->grad) grads[i] = twins[g->params.at[i]->grad->id];
    Op *loss = metrics(g, p, role == MIDDLE || role == LAST);
    shard_begin_assigns(g, p, role == ALONE || role == FIRST);
    if (role == ALONE || role == FIRST) shard_begin_amax(g, p);
    Making c = begin(g, p, role);
    shard_place_gradients(&c, grads);
    shard_use_params(&c);
    p->loss = OPERAND_OF(loss, value);
    shard_reduce_gradients(&c, grads);
    if (role == ALONE || role == LAST) {
        sum_metrics(&c);
        Value *coefficient = shard_optimizer(&c);
        shard_update_amax(&c, coefficient);
        shard_assign(&c, coefficient);
    }
    commit(&c);
}

static void eval(Graph *g) {
    Program *p = edit_clone_program(g, g->eval, "eval", NULL);
    Op *loss = metrics(g, p, false);
    Making c = begin(g, p, ALONE);
    shard_use_params(&c);
    p->loss = OPERAND_OF(loss, value);
    sum_metrics(&c);
    commit(&c);
}

/* Of all logits only those of one position are kept: record.position says which. */
static void sample(Graph *g) {
    Program *p = edit_clone_program(g, g->sample, "sample", NULL);
    Value *state = shard_output(g)->value;
    Op *pick = UNIT_OP(g, pick, NULL, "logits", FORWARD, TO_COMPUTE, .logits = p->logits, .state = state);
    shard_insert(g, p, p->ops.n, pick);
    Making c = begin(g, p, ALONE);
    shard_use_params(&c);
    p->logits = pick->pick.logits;
    commit(&c);
}

void lower_shard(Graph *g) {
    for (int i = 0; i < g->units.n; i++) shard_lay_out(g, g->units.at[i]);
    shard_make_states(g);
    shard_init_program(g);
    shard_start_program(g);
    if (g->training->accumulate == 1) {
        micro(g, "micro", ALONE);
    } else {
        micro(g, "micro_first", FIRST);
        micro(g, "micro", MIDDLE);
        micro(g, "micro_last", LAST);
    }
    if (g->eval) eval(g);
    if (g->sample) sample(g);
    shard_swap_program(g);
}
