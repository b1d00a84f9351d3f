/* shard's gradients: written straight into the flat buffer that reduce-scatter reads, reduced, divided, summed over
 * microbatches, and kept until the optimizer takes them. Relies on: shard.h. Relied on by: shard.c. */
#include "../../ir/policy.h"
#include "shard.h"

/* What lies between two gradients in the flat buffer is zero: it is reduced with them. */
static void zero_gaps(Making *c, Unit *u, Use *use) {
    Op *op = NULL;
    int made = 0;
    for (int i = 0; i < u->params.n && shard_trainable(u->params.at[i]); i++) {
        Param *p = u->params.at[i];
        bool last = i + 1 == u->params.n || !shard_trainable(u->params.at[i + 1]);
        int64_t from = p->flat_offset + param_numel(p), to = last ? u->numel : u->params.at[i + 1]->flat_offset;
        if (from == to) continue;
        if (!op || op->nout == MAX_IN) {
            const char *nth = made++ ? arena_printf(c->g->arena, ".%d", made) : "";
            op = UNIT_OP(c->g, zero_gaps, u, arena_printf(c->g->arena, "z%d%s", u->id, nth), BACKWARD, TO_COMPUTE);
            edit_before(c->edit, use->first_grad, op);
        }
        Value *gap = shard_piece(c->g, use->flat_grad, from, to - from);
        gap->def = op;
        op->out[op->nout++] = gap;
    }
}

/* The program's copy of each parameter's gradient becomes a piece of its unit's flat buffer. */
void shard_place_gradients(Making *c, Value **grads) {
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
        if (!use->flat_grad) use->flat_grad = value_new(g, p->unit->grad_dtype, 1, &p->unit->numel);
        grads[i]->name = arena_printf(g->arena, "%s.grad", p->path);
        grads[i]->base = use->flat_grad;
        grads[i]->offset = p->flat_offset;
    }
}

/* A value that `op` makes after the unit's last gradient. */
static Value *after_gradients(Making *c, const Use *use, Op *op, Dtype d, int64_t n) {
    edit_after(c->edit, use->last_grad, op);
    return shard_add_out(c->g, op, d, n);
}

static void all_reduce(Making *c, Unit *u, Use *use, Value *v) {
    const char *id = arena_printf(c->g->arena, "a%d", u->id);
    edit_after(c->edit, use->last_grad,
               shard_collective(c->g, OP_all_reduce, u, id, BACKWARD, TO_REDUCE, u->replicate, v));
    use->reduced = true;
}

/* The sum over replicas waits for the last microbatch. */
static bool defers(const Making *c, const Unit *u) {
    return c->role != ALONE && u->policy->defer_all_reduce && !u->sparse;
}

/* A sum over microbatches as ranks exchange it: rounded once. */
static Value *rounded(Making *c, Unit *u, const Use *use, Value *sum) {
    if (sum->dtype == u->reduce) return sum;
    Op *cast = UNIT_OP(c->g, cast, u, arena_printf(c->g->arena, "c%d", u->id), BACKWARD, shard_gradient_purpose(use),
                       .a = sum, .dtype = u->reduce);
    Op *op = shard_fused_one(c, cast, u->reduce);
    edit_after(c->edit, use->last_grad, op);
    return op_result(op);
}

/* From the rank's own gradients `whole` to the rank's slice of their sum over all ranks. */
static void reduce(Making *c, Unit *u, Use *use, Value *whole) {
    Graph *g = c->g;
    int64_t n = shard_slice(u);
    const char *id = arena_printf(g->arena, "r%d", u->id);
    use->shard_grad = u->sparse ? shard_exchange_rows(c, u, use) : whole;
    if (u->sparse) return;
    use->reduced = u->shard->size > 1;
    if (u->shard->size > 1 && whole->dtype != u->reduce) {
        /* Summed in a wider dtype than was made: each rank gets all ranks' pieces, and adds them in the order of ranks.
         */
        const char *exchange = arena_printf(g->arena, "x%d", u->id);
        Op *x = shard_collective(g, OP_all_to_all, u, exchange, BACKWARD, TO_REDUCE, u->shard, whole);
        int64_t shape[] = {u->shard->size, n}, stride[] = {n, 1};
        Value *pieces = value_new_view(g, after_gradients(c, use, x, whole->dtype, u->numel), 2, shape, stride, 0);
        Op *sum =
            UNIT_OP(g, sum, u, id, BACKWARD, TO_TAKE_GRADIENT, .x = pieces, .over = 1 << 0, .dtype = u->reduce + 1);
        use->shard_grad = after_gradients(c, use, sum, u->reduce, n);
    } else if (u->shard->size > 1) {
        Op *op = shard_collective(g, OP_reduce_scatter, u, id, BACKWARD, TO_REDUCE, u->shard, whole);
        use->shard_grad = after_gradients(c, use, op, u->reduce, n);
    }
    if (u->replicate->size > 1 && !defers(c, u)) all_reduce(c, u, use, use->shard_grad);
}

/* Each rank's gradient has been divided by the number of ranks that have samples of their own (GRAD_SEED). A unit's own
 * divide factor replaces that number. Microbatches are averaged in any case. */
static void divide(Making *c, Unit *u, Use *use) {
    double factor = u->policy->gradient_divide_factor;
    int ranks = c->g->axes.at[SC_SAMPLES]->size;
    if (factor == 0 || factor == ranks) return;
    Op *scale = UNIT_OP(c->g, mul_scalar, u, arena_printf(c->g->arena, "d%d", u->id), BACKWARD,
                        shard_gradient_purpose(use), .a = use->shard_grad, .x = ranks / factor);
    Op *op = shard_fused_one(c, scale, u->reduce);
    use->shard_grad = op_result(op);
    edit_after(c->edit, use->last_grad, op);
}

/* ── until the optimizer runs ─────────────────────────────────────────────────────────────────────────────────────────
 */
static void accumulate(Making *c, Unit *u, const Use *use, Value *v, State *sum) {
    Op *op = shard_store_op(c->g, v, sum->value, arena_printf(c->g->arena, "acc%d", u->id), BACKWARD,
                            shard_gradient_purpose(use), c->role != FIRST, 0, u);
    edit_after(c->edit, use->last_grad, op);
}

/* The reduced gradient of the whole step waits for the optimizer; with offload.grads in host memory. */
static void keep(Making *c, Unit *u, Use *use) {
    Value *grad = use->kept_grad = use->shard_grad;
    if (!u->policy->offload_grads) return;
    const char *id = arena_printf(c->g->arena, "o_grad%d", u->id);
    Op *op = UNIT_OP(c->g, offload, u, id, BACKWARD, TO_OFFLOAD, .x = grad);
    use->kept_grad = after_gradients(c, use, op, grad->dtype, value_numel(grad));
    use->kept_grad->on_host = true;
}

static void finish(Making *c, Unit *u, Use *use, Value *whole) {
    reduce(c, u, use, whole);
    divide(c, u, use);
    keep(c, u, use);
}

void shard_reduce_gradients(Making *c, Value **grads) {
    Graph *g = c->g;
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        Use *use = &c->uses[i];
        if (!use->flat_grad) continue;
        if (!u->sparse) {
            zero_gaps(c, u, use);
            Value **pieces = NEW_ARRAY(g->arena, Value *, u->params.n);
            int n = 0;
            for (int k = 0; k < u->params.n; k++)
                if (grads[u->params.at[k]->id]) pieces[n++] = grads[u->params.at[k]->id];
            shard_assemble(c, u, arena_printf(g->arena, "flat%d", u->id), BACKWARD, TO_COMPUTE, pieces, n,
                           use->flat_grad, use->last_grad, true);
        }
        if (c->role == ALONE) {
            finish(c, u, use, use->flat_grad);
        } else if (u->whole_grad) { /* summed over microbatches, and reduced once */
            accumulate(c, u, use, use->flat_grad, u->whole_grad);
            if (c->role == LAST) finish(c, u, use, rounded(c, u, use, u->whole_grad->value));
        } else { /* reduced in every microbatch, and then summed */
            reduce(c, u, use, use->flat_grad);
            divide(c, u, use);
            accumulate(c, u, use, use->shard_grad, u->grad);
            use->kept_grad = use->shard_grad = u->grad->value;
            if (c->role != LAST || !defers(c, u) || u->replicate->size == 1) continue;
            use->shard_grad = rounded(c, u, use, u->grad->value);
            all_reduce(c, u, use, use->shard_grad);
            if (use->shard_grad != u->grad->value) keep(c, u, use);
        }
    }
}
