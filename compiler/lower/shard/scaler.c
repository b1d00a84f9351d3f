/* shard's part for the loss scale of fp16 training (optim.GradScaler). It multiplies the seed of the backward, or what
 * the loss function hands to scaler:scale; the norm's events look at gradients over the scale; one that is not finite
 * makes the coefficient tell every optimizer to write nothing; then the scale changes. All of it is device state: no
 * host looks at it within a step. Relies on: autodiff (the seed), shard.h. Relied on by: the files beside it.
 *
 * No collective is added: a gradient that is not finite makes its unit's sum of squares not finite, hence the sum over
 * the shard group; ranks of other replicas hold the same reduced gradients. So every rank finds the same. */
#include "../../ir/policy.h"
#include "../lower.h"
#include "shard.h"

/* For messages: it stands where the scaler does. */
static Op *of_scaler(const Graph *g, Op *op) {
    op->src = g->training->scaler->src;
    return op;
}

static bool in_fp16(const Unit *u) {
    const UnitPolicy *p = u->policy;
    return u->wire == FP16 || u->reduce == FP16 || (p->has_grad_dtype && p->grad_dtype == FP16) ||
           (p->has_output_dtype && p->output_dtype == FP16);
}

void lower_scale_check(const Graph *g) {
    const GradScaler *s = g->training->scaler;
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

Op *shard_scale_update(Graph *g, Value *coefficient) {
    const GradScaler *s = g->training->scaler;
    return of_scaler(g, UNIT_OP(g, update_scale, NULL, "scale", OPTIMIZER, TO_UPDATE, .coefficient = coefficient,
                                .scaler = shard_scaler(g), .interval = s->growth_interval, .growth = s->growth_factor,
                                .backoff = s->backoff_factor));
}

void shard_scale_init(Graph *g, Program *init) {
    if (!g->training->scaler) return;
    Op *zero = UNIT_OP(g, zero, NULL, "zero_scale", INIT, TO_INITIALIZE, .state = shard_scaler(g));
    Op *full = UNIT_OP(g, full, NULL, "scale0", INIT, TO_INITIALIZE, .dtype = FP32, .dims = 1, .shape = {1},
                       .value = g->training->scaler->init_scale);
    Value *first = shard_add_out(g, full, FP32, 1);
    push(&init->ops, g->arena, of_scaler(g, zero));
    push(&init->ops, g->arena, of_scaler(g, full));
    Op *store = shard_store_op(g, first, shard_scaler(g), "scale", INIT, TO_INITIALIZE, false, 0, NULL);
    push(&init->ops, g->arena, of_scaler(g, store));
}

Op *shard_scale_undo(Graph *g, const Program *p) {
    if (!p->scaled) return NULL;
    Op *op = UNIT_OP(g, scale, NULL, "unscaled_loss", FORWARD, TO_COMPUTE, .x = p->loss, .scaler = shard_scaler(g),
                     .inverse = true);
    op_info[op->kind].infer(g, op);
    return of_scaler(g, op);
}
