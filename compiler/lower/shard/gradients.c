/* shard's gradients: written straight into the flat buffer that reduce-scatter reads, reduced, divided, summed over
 * microbatches, and kept until the optimizer takes them. Relies on: shard.h. Relied on by: shard.c. */
#include "../../ir/policy.h"
#include "shard.h"

static void zero_gaps(Ctx *c, Unit *u, Use *use) {
    Op *op = NULL;
    int made = 0;
    for (int i = 0; i < u->params.n && trainable(u->params.at[i]); i++) {
        Param *p = u->params.at[i];
        bool last = i + 1 == u->params.n || !trainable(u->params.at[i + 1]);
        int64_t from = p->flat_offset + param_numel(p), to = last ? u->numel : u->params.at[i + 1]->flat_offset;
        if (from == to) continue;
        if (!op || op->nout == MAX_IN) {
            const char *nth = made++ ? arena_printf(c->g->arena, ".%d", made) : "";
            op = UNIT_OP(c->g, zero_gaps, u, arena_printf(c->g->arena, "z%d%s", u->id, nth), BACKWARD, COMPUTE);
            edit_before(c->edit, use->first_grad, op);
        }
        Value *gap = piece(c->g, use->flat_grad, from, to - from);
        gap->def = op;
        op->out[op->nout++] = gap;
    }
}

/* The program's copy of each parameter's gradient becomes a piece of its unit's flat buffer. */
void place_gradients(Ctx *c, Value **grads) {
    Graph *g = c->g;
    int *place = NEW_ARRAY(g->arena, int, g->nops + 1); /* by Op.serial */
    for (int i = 0; i < g->units.n; i++) c->uses[i].first_grad = -1;
    for (int i = 0; i < c->p->ops.n; i++) place[c->p->ops.at[i]->serial] = i;
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (!grads[i]) continue;
        Use *use = &c->uses[p->unit->id];
        int at = place[grads[i]->def->serial];
        if (use->first_grad < 0 || at < use->first_grad) use->first_grad = at;
        if (at > use->last_grad) use->last_grad = at;
        if (p->sparse) {
            use->flat_grad = grads[i];
            continue;
        }
        if (!use->flat_grad) use->flat_grad = new_value(g, p->unit->grad_dtype, 1, &p->unit->numel);
        grads[i]->name = arena_printf(g->arena, "%s.grad", p->path);
        grads[i]->base = use->flat_grad;
        grads[i]->offset = p->flat_offset;
    }
}

static void assemble(Ctx *c, Unit *u, Use *use, Value **grads) {
    Op *op = UNIT_OP(c->g, assemble, u, arena_printf(c->g->arena, "flat%d", u->id), BACKWARD, COMPUTE);
    for (int i = 0; i < u->params.n && op->nin < MAX_IN; i++)
        if (grads[u->params.at[i]->id]) op->assemble.x[op->nin++] = grads[u->params.at[i]->id];
    use->flat_grad->def = op;
    op->out[op->nout++] = use->flat_grad;
    edit_after(c->edit, use->last_grad, op);
}

static void all_reduce(Ctx *c, Unit *u, Use *use, Value *v) {
    Op *op = collective(c->g, OP_all_reduce, u, arena_printf(c->g->arena, "a%d", u->id), BACKWARD, REDUCE,
                        u->comm_replicate, v);
    edit_after(c->edit, use->last_grad, op);
}

static bool deferred(const Ctx *c, const Unit *u) { /* the sum over replicas, to the last microbatch */
    return c->role != ALONE && u->policy->defer_all_reduce && !u->sparse;
}

/* The sum of what every rank has of this one's slice, in a wider dtype than it came in: pieces change places, and are
 * added up in the order of the ranks. */
static Value *sum_pieces(Ctx *c, Unit *u, const Use *use, Value *whole) {
    Op *x = collective(c->g, OP_all_to_all, u, arena_printf(c->g->arena, "x%d", u->id), BACKWARD, REDUCE, u->comm_shard,
                       whole);
    int64_t n = u->numel / u->shards, shape[] = {u->shards, n}, stride[] = {n, 1};
    Value *pieces = new_view(c->g, add_out(c->g, x, whole->dtype, u->numel), 2, shape, stride, 0);
    Op *sum = UNIT_OP(c->g, sum, u, arena_printf(c->g->arena, "r%d", u->id), BACKWARD, COMPUTE, .x = pieces,
                      .over = 1 << 0, .dtype = u->reduce + 1);
    edit_after(c->edit, use->last_grad, x);
    edit_after(c->edit, use->last_grad, sum);
    return add_out(c->g, sum, u->reduce, n);
}

static void reduce(Ctx *c, Unit *u, Use *use, Value *whole) {
    use->shard_grad = u->sparse ? exchange_rows(c, u, use) : whole;
    if (u->sparse) return;
    if (u->shards > 1 && whole->dtype != u->reduce) {
        use->shard_grad = sum_pieces(c, u, use, whole);
    } else if (u->shards > 1) {
        Op *op = collective(c->g, OP_reduce_scatter, u, arena_printf(c->g->arena, "r%d", u->id), BACKWARD, REDUCE,
                            u->comm_shard, whole);
        use->shard_grad = add_out(c->g, op, u->reduce, u->numel / u->shards);
        edit_after(c->edit, use->last_grad, op);
    }
    if (u->replicas > 1 && !deferred(c, u)) all_reduce(c, u, use, use->shard_grad);
}

/* What was summed is each rank's gradient / world (GRAD_SEED): a divide factor of the unit's own takes the world's
 * place. Microbatches are averaged in any case. */
static void divide(Ctx *c, Unit *u, Use *use) {
    double factor = u->policy->gradient_divide_factor;
    if (factor == 0 || factor == c->g->world) return;
    Op *scale = UNIT_OP(c->g, mul_scalar, u, arena_printf(c->g->arena, "d%d", u->id), BACKWARD, COMPUTE,
                        .a = use->shard_grad, .x = c->g->world / factor);
    Op *op = fused_one(c, scale, u->reduce);
    use->shard_grad = op_result(op);
    edit_after(c->edit, use->last_grad, op);
}

/* ── until the optimizer runs ─────────────────────────────────────────────────────────────────────────────────────────
 */
static void accumulate(Ctx *c, Unit *u, Use *use, Value *v, State *sum) {
    Op *op = store_op(c->g, v, sum->value, arena_printf(c->g->arena, "acc%d", u->id), BACKWARD, c->role != FIRST, 0, u);
    edit_after(c->edit, use->last_grad, op);
}

static Value *host_copy(Ctx *c, Unit *u, Use *use) {
    const char *id = arena_printf(c->g->arena, "o_grad%d", u->id);
    Op *op = UNIT_OP(c->g, offload, u, id, BACKWARD, OFFLOAD, .x = use->shard_grad);
    Value *v = add_out(c->g, op, use->shard_grad->dtype, value_numel(use->shard_grad));
    v->on_host = true;
    edit_after(c->edit, use->last_grad, op);
    return v;
}

/* The reduced gradient of the whole step: where offload.grads says so it waits in host memory. */
static void finish(Ctx *c, Unit *u, Use *use, Value *whole) {
    reduce(c, u, use, whole);
    divide(c, u, use);
    use->kept_grad = u->policy->offload_grads ? host_copy(c, u, use) : use->shard_grad;
}

/* Summed as they were made, and reduced once. */
static void sum_whole(Ctx *c, Unit *u, Use *use) {
    accumulate(c, u, use, use->flat_grad, u->whole_grad);
    if (c->role == LAST) finish(c, u, use, u->whole_grad->value);
}

/* Reduced in every microbatch, and then summed. */
static void sum_reduced(Ctx *c, Unit *u, Use *use) {
    reduce(c, u, use, use->flat_grad);
    divide(c, u, use);
    accumulate(c, u, use, use->shard_grad, u->grad);
    use->kept_grad = use->shard_grad = u->grad->value;
    if (c->role == LAST && deferred(c, u) && u->replicas > 1) all_reduce(c, u, use, u->grad->value);
}

void reduce_gradients(Ctx *c, Value **grads) {
    for (int i = 0; i < c->g->units.n; i++) {
        Unit *u = c->g->units.at[i];
        Use *use = &c->uses[i];
        if (!use->flat_grad) continue;
        if (!u->sparse) zero_gaps(c, u, use);
        if (!u->sparse) assemble(c, u, use, grads);
        if (c->role == ALONE)
            finish(c, u, use, use->flat_grad);
        else
            (u->whole_grad ? sum_whole : sum_reduced)(c, u, use);
    }
}
