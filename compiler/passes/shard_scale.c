/* shard's part for the loss scale of fp16 training (optim.GradScaler). It multiplies the seed of the backward, or what
 * the loss function hands to scaler:scale; the norm's events look at gradients over the scale; one that is not finite
 * makes the coefficient tell every optimizer to write nothing; then the scale changes. All of it is device state: no
 * host looks at it within a step. Relies on: autodiff (the seed), shard.h. Relied on by: shard.c, shard_*.c, units.c.
 *
 * No collective is added: a gradient that is not finite makes its unit's sum of squares not finite, hence the sum over
 * the shard group; ranks of other replicas hold the same reduced gradients. So every rank finds the same. */
#include "shard.h"

static Op *scale_op(Graph *g, OpKind k, const char *id, Phase phase) {
    Op *op = unit_op(g, k, NULL, id, phase, COMPUTE);
    op->src = g->scaler->src;
    return op;
}

static bool in_fp16(const Unit *u) {
    const UnitPolicy *p = u->policy;
    return u->wire == FP16 || u->reduce == FP16 || (p->has_grad_dtype && p->grad_dtype == FP16) ||
           (p->has_output_dtype && p->output_dtype == FP16);
}

void scale_check(const Graph *g) {
    const GradScaler *s = g->scaler;
    if (!s || s->without_fp16) return;
    for (int i = 0; i < g->units.n; i++)
        if (in_fp16(g->units.at[i])) return;
    const Unit *u = g->units.at[0];
    Source at = setting_source(&u->policy->settings, "param_dtype", u->policy->src);
    fail(s->src,
         "optim.GradScaler: nothing here is fp16: %s:%d makes unit %s compute in %s and reduce in %s, whose range "
         "needs no "
         "loss scale; leave grad_scaler out, or set mp_policy = { param_dtype = \"fp16\" } there, or write "
         "optim.GradScaler { without_fp16 = true }",
         at.file, at.line, u->module->path[0] ? u->module->path : "(root)", dtype_name(u->wire), dtype_name(u->reduce));
}

void scale_read(const Graph *g, Op *op) {
    if (!g->scaler) return;
    add_in(op, g->scaler_state->value);
    op->i[0] = 1;
}

Op *scale_update(Graph *g, Value *coefficient) {
    Op *op = scale_op(g, OP_UPDATE_SCALE, "scale", OPTIMIZER);
    add_in(op, coefficient);
    add_in(op, g->scaler_state->value);
    op->f[0] = g->scaler->growth_factor;
    op->f[1] = g->scaler->backoff_factor;
    op->i[0] = g->scaler->growth_interval;
    return op;
}

void scale_init(Graph *g, Program *init) {
    if (!g->scaler) return;
    Op *zero = scale_op(g, OP_ZERO, "zero_scale", INIT), *full = scale_op(g, OP_FULL, "scale0", INIT);
    add_in(zero, g->scaler_state->value);
    full->f[0] = g->scaler->init_scale;
    full->i[0] = FP32;
    full->i[1] = full->i[2] = 1;
    Value *first = add_out(g, full, FP32, 1);
    push(&init->ops, g->arena, zero);
    push(&init->ops, g->arena, full);
    Op *store = store_op(g, first, g->scaler_state->value, "scale", INIT, false, 0, NULL);
    store->src = g->scaler->src;
    push(&init->ops, g->arena, store);
}

Op *scale_undo(Graph *g, const Program *p) {
    if (!p->scaled) return NULL;
    Op *op = scale_op(g, OP_SCALE, "unscaled_loss", FORWARD);
    add_in(op, p->loss);
    add_in(op, g->scaler_state->value);
    op->i[0] = 1;
    op_info[op->kind].infer(g, op);
    return op;
}
