/* shard's end of the step: the gradient norm and the coefficient that clips, and one optimizer event a unit on the
 * rank's shard. Relies on: shard.h. Relied on by: shard.c. */
#include "shard.h"

/* Flat ranges by optimizer group. Gaps belong to none: they stay zero whatever the optimizer's formula gives for zeros.
 * Moments of bf16 are rounded by words of their parameter's stream, so that each has a range and ends with its key. */
static const int64_t *segments(Graph *g, const Unit *u, int *n) {
    bool keyed = u->m && u->m->dtype == BF16;
    VEC(int64_t) t = {0};
    for (int i = 0; i < u->params.n && trainable(u->params.at[i]); i++) {
        const Param *p = u->params.at[i];
        int64_t end = p->flat_offset + param_numel(p);
        if (!keyed && t.n && t.at[t.n - 1] == p->group && t.at[t.n - 2] == p->flat_offset) {
            t.at[t.n - 2] = end;
            continue;
        }
        push(&t, g->arena, p->flat_offset);
        push(&t, g->arena, end);
        push(&t, g->arena, p->group);
        if (keyed) push(&t, g->arena, (int64_t)p->key);
    }
    *n = t.n;
    return t.at;
}

/* ── the norm ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Slots of units of one mesh lie side by side: they are summed together over its shards. */
static Unit **by_mesh(Graph *g) {
    Unit **order = NEW_ARRAY(g->arena, Unit *, g->units.n);
    int n = 0;
    for (int comm = 0; comm < g->comms.n; comm++)
        for (int i = 0; i < g->units.n; i++)
            if (g->units.at[i]->comm_shard == comm) order[n++] = g->units.at[i];
    return order;
}

static void sum_slots(Ctx *c, Value *slots, Unit *const *order, int end) {
    Graph *g = c->g;
    for (int i = 0, k; i < g->units.n; i = k) {
        for (k = i + 1; k < g->units.n && order[k]->comm_shard == order[i]->comm_shard;) k++;
        if (order[i]->shards == 1) continue;
        const char *id = i ? arena_printf(g->arena, "norm_sum%d", i) : "norm_sum";
        Op *sum = collective(g, OP_ALL_REDUCE, NULL, id, OPTIMIZER, REDUCE, order[i]->comm_shard);
        add_in(sum, k - i == g->units.n ? slots : piece(g, slots, i, k - i));
        edit_before(c->edit, end, sum);
    }
}

/* Global norm: one slot a unit, summed over its shard group; then the coefficient. Returns the coefficient. */
static Value *norm(Ctx *c, int end) {
    Graph *g = c->g;
    int64_t n = g->units.n;
    Value *slots = new_value(g, FP32, 1, &n);
    Unit **order = by_mesh(g);
    Op *all = unit_op(g, OP_ASSEMBLE, NULL, "norms", OPTIMIZER, COMPUTE);
    for (int i = 0; i < n; i++) {
        Value *grad = c->uses[order[i]->id].shard_grad;
        OpKind kind = grad ? OP_SUM_SQUARES : OP_ZERO_GAPS; /* no gradient: its slot is 0 */
        Op *op = unit_op(g, kind, order[i], arena_printf(g->arena, "n%d", order[i]->id), OPTIMIZER, COMPUTE);
        if (grad) add_in(op, grad);
        if (grad) scale_read(g, op);
        op->out[op->nout++] = piece(g, slots, i, 1);
        op->out[0]->def = op;
        edit_before(c->edit, end, op);
        if (all->nin < MAX_IN) add_in(all, op->out[0]);
    }
    slots->def = all;
    all->out[all->nout++] = slots;
    edit_before(c->edit, end, all);
    sum_slots(c, slots, order, end);
    Op *clip = unit_op(g, OP_CLIP_COEFFICIENT, NULL, "clip", OPTIMIZER, COMPUTE);
    add_in(clip, slots);
    scale_read(g, clip);
    Value *coefficient = add_out(g, clip, FP32, g->scaler ? 2 : 1), *total = add_out(g, clip, FP32, 1);
    edit_before(c->edit, end, clip);
    Value *metrics = g->metrics_state->value;
    edit_before(c->edit, end, store_op(g, total, metrics, "m_norm", OPTIMIZER, false, SLOT_GRAD_NORM, NULL));
    return coefficient;
}

/* ── the update ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void update(Ctx *c, Unit *u, const Use *use, Value *coefficient, int pos) {
    Graph *g = c->g;
    const Optimizer *o = g->optimizer;
    const char *id = arena_printf(g->arena, "u%d", u->id);
    Op *op = unit_op(g, o->kind == OPT_SGD ? OP_SGD : OP_ADAM, u, id, OPTIMIZER, COMPUTE);
    op->src = o->src;
    op->i[0] = o->kind == OPT_SGD ? o->nesterov : o->kind == OPT_ADAMW;
    op->i[1] = u->numel / u->shards;
    op->i[2] = u->shards;
    op->table = segments(g, u, &op->ntable);
    add_in(op, use->kept_grad);
    add_in(op, u->master->value);
    add_in(op, coefficient);
    if (u->m) add_in(op, u->m->value);
    if (u->v) add_in(op, u->v->value);
    if (g->step_state) add_in(op, g->step_state->value);
    edit_before(c->edit, pos, op);
    if (u->wire_shard == u->master) return;
    bool skips = g->scaler && u->wire_shard->on_host; /* its twin on the device would keep what it begins as */
    if (o->kind != OPT_SGD && u->dtype == FP32 && !u->host_update && !skips) {
        add_in(op, u->wire_shard->value); /* written as it goes */
        return;
    }
    id = arena_printf(g->arena, "w%d", u->id);
    edit_before(c->edit, pos, store_op(g, u->master->value, u->wire_shard->value, id, OPTIMIZER, false, 0, u));
}

static Value *one(Ctx *c) {
    Op *op = unit_op(c->g, OP_FULL, NULL, "one", OPTIMIZER, COMPUTE);
    op->f[0] = 1;
    op->i[0] = FP32;
    op->i[1] = op->i[2] = 1;
    edit_before(c->edit, 0, op);
    return add_out(c->g, op, FP32, 1);
}

/* Without clipping nothing holds a unit's update back but its own gradient and the last use of its parameters; with a
 * loss scale all wait for the word that every gradient is finite. */
void optimizer(Ctx *c) {
    Graph *g = c->g;
    int end = c->p->ops.n;
    Value *unclipped = g->clip_grad_norm > 0 || g->scaler ? NULL : one(c), *coefficient = norm(c, end);
    if (g->step_state) {
        Op *count = unit_op(g, OP_COUNT_STEP, NULL, "count", OPTIMIZER, COMPUTE);
        add_in(count, g->step_state->value);
        if (g->scaler) add_in(count, coefficient);
        edit_before(c->edit, g->scaler ? end : 0, count);
    }
    for (int i = 0; i < g->units.n; i++) {
        const Use *use = &c->uses[i];
        if (!use->flat_grad) continue;
        int early = (int)max64(use->last_grad, use->last_use) + 1;
        update(c, g->units.at[i], use, unclipped ? unclipped : coefficient, unclipped ? early : end);
    }
    if (g->scaler) edit_before(c->edit, end, scale_update(g, coefficient));
}
