/* shard's end of the step: the gradient norm and the coefficient that clips, and one optimizer event a unit on the
 * rank's shard. Relies on: shard.h. Relied on by: shard.c. */
#include "shard.h"

/* Flat ranges by optimizer group. Gaps belong to none: they stay zero whatever the optimizer's formula gives for zeros.
 * Moments of bf16 are rounded by words of their parameter's stream, so that each has a range and ends with its key. */
static const int64_t *segments(Graph *g, const Unit *u, int *n) {
    bool keyed = u->m && u->m->dtype == BF16;
    VEC(int64_t) t = {0};
    for (int i = 0; i < u->params.n && shard_trainable(u->params.at[i]); i++) {
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

/* Global norm: each unit writes the sum of its gradient's squares to a slot; slots are summed over the shard group of
 * their unit; from them comes the coefficient that clips, which is returned. */
static Value *norm(Making *c, int end) {
    Graph *g = c->g;
    int64_t n = g->units.n;
    Value *slots = value_new(g, FP32, 1, &n);
    Unit **order = NEW_ARRAY(g->arena, Unit *, n); /* units of one shard group side by side: one sum for all of them */
    for (int axis = 0, k = 0; axis < g->axes.n; axis++)
        for (int i = 0; i < n; i++)
            if (g->units.at[i]->shard->id == axis) order[k++] = g->units.at[i];
    Value **pieces = NEW_ARRAY(g->arena, Value *, n);
    for (int i = 0; i < n; i++) {
        Value *grad = c->uses[order[i]->id].shard_grad, *slot = pieces[i] = shard_piece(g, slots, i, 1);
        const char *id = arena_printf(g->arena, "n%d", order[i]->id);
        Op *op = grad
                     ? UNIT_OP(g, sum_squares, order[i], id, OPTIMIZER, TO_UPDATE, .x = grad, .scaler = shard_scaler(g))
                     : UNIT_OP(g, zero_gaps, order[i], id, OPTIMIZER, TO_UPDATE); /* no gradient: its slot is 0 */
        op->out[op->nout++] = slot;
        slot->def = op;
        edit_before(c->edit, end, op);
    }
    shard_assemble(c, NULL, "norms", OPTIMIZER, TO_UPDATE, pieces, (int)n, slots, end, false);
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && order[k]->shard == order[i]->shard;) k++;
        if (order[i]->shard->size == 1) continue;
        const char *id = i ? arena_printf(g->arena, "norm_sum%d", i) : "norm_sum";
        Value *group = k - i == n ? slots : shard_piece(g, slots, i, k - i);
        edit_before(c->edit, end,
                    shard_collective(g, OP_all_reduce, NULL, id, OPTIMIZER, TO_SUM_METRICS, order[i]->shard, group));
    }
    Op *clip =
        UNIT_OP(g, clip_coefficient, NULL, "clip", OPTIMIZER, TO_UPDATE, .squares = slots, .scaler = shard_scaler(g));
    Value *coefficient = shard_add_out(g, clip, FP32, g->training->scaler ? 2 : 1),
          *total = shard_add_out(g, clip, FP32, 1);
    edit_before(c->edit, end, clip);
    Value *metrics = g->metrics_state->value;
    edit_before(c->edit, end,
                shard_store_op(g, total, metrics, "m_norm", OPTIMIZER, TO_UPDATE, false, SLOT_GRAD_NORM, NULL));
    return coefficient;
}

/* Its operands and numbers by their names in the op's row, of which an optimizer has what it needs. */
static Op *update_op(Graph *g, Unit *u, const char *id, Value *grad, Value *coefficient) {
    const Optimizer *o = g->training->optimizer;
    OpKind kind = op_by_name(o->rule->update);
    const struct {
        const char *name;
        Value *value; /* NULL: none */
    } operands[] = {
        {"grad", grad},
        {"master", u->master->value},
        {"coefficient", coefficient},
        {"step", o->rule->counts_steps ? g->step_state->value : NULL},
        {o->rule->moments[0], u->m ? u->m->value : NULL},
        {o->rule->moments[1], u->v ? u->v->value : NULL},
    };
    const struct {
        const char *name;
        int64_t value;
    } integers[] = {
        {"slice", shard_slice(u)},
        {"axis", u->shard->id},
        {"nesterov", o->nesterov},
        {"decoupled", o->rule->decoupled},
    };
    OpParts parts = {0};
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (operands[i].value) parts.in[op_place(kind, PART_OPERAND, operands[i].name)] = operands[i].value;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int at = op_find(kind, PART_INT, integers[i].name);
        if (at >= 0) parts.i[at] = integers[i].value;
    }
    Op *op = shard_unit_op(g, kind, u, id, OPTIMIZER, TO_UPDATE, &parts);
    op->src = o->src;
    op->table = segments(g, u, &op->ntable);
    return op;
}

static void average(Making *c, Unit *u, Value *coefficient, int pos) {
    Graph *g = c->g;
    Op *op = UNIT_OP(g, ema, u, arena_printf(g->arena, "avg%d", u->id), OPTIMIZER, TO_UPDATE,
                     .master = u->master->value, .average = u->average->value, .step = g->step_state->value,
                     .coefficient = g->training->scaler ? coefficient : NULL, .decay = g->training->ema_decay);
    edit_before(c->edit, pos, op);
}

/* The unit's update, its average, and the wire shard that follows from the new master. */
static void update(Making *c, Unit *u, Value *grad, Value *coefficient, int pos) {
    Graph *g = c->g;
    const char *id = arena_printf(g->arena, "u%d", u->id);
    Op *op = update_op(g, u, id, grad, coefficient);
    edit_before(c->edit, pos, op);
    if (u->average) average(c, u, coefficient, pos);
    if (u->wire_shard == u->master) return;
    /* A step that the scaler skips writes no wire shard; one on the host would then get what its twin on the device
     * began as. */
    bool may_skip = g->training->scaler && u->wire_shard->on_host;
    int wire = op_find(op->kind, PART_OPERAND, "wire");
    if (wire >= 0 && u->dtype == FP32 && !u->host_update && !may_skip) {
        op_set(op, wire, u->wire_shard->value); /* the update writes it in the same pass */
        return;
    }
    id = arena_printf(g->arena, "w%d", u->id);
    edit_before(c->edit, pos,
                shard_store_op(g, u->master->value, u->wire_shard->value, id, OPTIMIZER, TO_UPDATE, false, 0, u));
}

/* Without clipping, an update waits for nothing but its unit's gradient and the last use of its parameters. With a loss
 * scale, all updates wait until every gradient is known to be finite. */
Value *shard_optimizer(Making *c) {
    Graph *g = c->g;
    const GradScaler *scaler = g->training->scaler;
    int end = c->p->ops.n;
    Value *one = NULL; /* the coefficient where nothing clips */
    if (g->training->clip_grad_norm <= 0 && !scaler) {
        Op *op =
            UNIT_OP(g, full, NULL, "one", OPTIMIZER, TO_UPDATE, .dtype = FP32, .dims = 1, .shape = {1}, .value = 1);
        edit_before(c->edit, 0, op);
        one = shard_add_out(g, op, FP32, 1);
    }
    Value *coefficient = norm(c, end);
    if (g->step_state) {
        Op *count = UNIT_OP(g, count_step, NULL, "count", OPTIMIZER, TO_UPDATE, .step = g->step_state->value,
                            .coefficient = scaler ? coefficient : NULL);
        edit_before(c->edit, scaler ? end : 0, count);
    }
    for (int i = 0; i < g->units.n; i++) {
        const Use *use = &c->uses[i];
        if (!use->flat_grad) continue;
        int early = (int)max64(use->last_grad, use->last_use) + 1;
        update(c, g->units.at[i], use->kept_grad, one ? one : coefficient, one ? early : end);
    }
    if (scaler) edit_before(c->edit, end, shard_scale_update(g, coefficient));
    return coefficient;
}
