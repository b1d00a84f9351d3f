/* shard's end of the step: the gradient norm and the coefficient that clips, and one optimizer event a unit on the
 * rank's shard; before it, of Muon, whole matrices on the ranks that own them. Relies on: shard.h, schema/matrices.h.
 * Relied on by: shard.c. */
#include "schema/matrices.h"
#include "schema/segments.h"
#include "shard.h"

#include <math.h>
#include <stdlib.h>

/* Muon's factor on the rate: rows are outputs, columns inputs. */
static double adjustment(AdjustLr by, const Param *p) {
    double rows = (double)p->shape[p->dims - 2], cols = (double)p->shape[p->dims - 1];
    return by == ADJUST_ORIGINAL ? sqrt(fmax(1, rows / cols)) : 0.2 * sqrt(fmax(rows, cols));
}

static int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Flat ranges by optimizer group. Gaps belong to none: they stay zero whatever the optimizer's formula gives for zeros.
 * Moments of bf16 are rounded by words of their parameter's stream, so that each has a range and ends with its key.
 * Muon's update has a factor for each parameter there. An update that finds largest magnitudes has a range a matrix. */
static const int64_t *segments(Graph *g, const Unit *u, OpKind kind, int *n) {
    bool scaled = u->optimizer->rule->before && kind == op_by_name(u->optimizer->rule->update);
    bool keyed = scaled || (u->m && u->m->dtype == BF16);
    bool finds = u->largest[0] && op_find(kind, PART_OPERAND, "largest") >= 0;
    int last = -1;
    VEC(int64_t) t = {0};
    for (int i = 0; i < u->params.n && shard_trainable(u->params.at[i]); i++) {
        const Param *p = u->params.at[i];
        int64_t end = p->flat_offset + param_numel(p), *row = t.n ? t.at + t.n - SC_SEGMENT - finds : NULL;
        int matrix = finds ? shard_slot(p) : -1;
        if (!keyed && row && row[2] == p->group && row[1] == p->flat_offset && matrix == last) {
            row[1] = end;
            continue;
        }
        last = matrix;
        push(&t, g->arena, p->flat_offset);
        push(&t, g->arena, end);
        push(&t, g->arena, p->group);
        if (keyed) push(&t, g->arena, scaled ? bits_of(adjustment(u->optimizer->adjust, p)) : (int64_t)p->key);
        if (finds) push(&t, g->arena, matrix);
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
    Unit **order =
        NEW_ARRAY(g->arena, Unit *, n); /* units in pieces of the same ranks side by side: one sum for them */
    for (int axis = 0, k = 0; axis < g->axes.n; axis++)
        for (int i = 0; i < n; i++)
            if (g->units.at[i]->parts->id == axis) order[k++] = g->units.at[i];
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
        for (k = i + 1; k < n && order[k]->parts == order[i]->parts;) k++;
        if (order[i]->parts->size == 1) continue;
        const char *id = i ? arena_printf(g->arena, "norm_sum%d", i) : "norm_sum";
        Value *group = k - i == n ? slots : shard_piece(g, slots, i, k - i);
        edit_before(c->edit, end,
                    shard_collective(g, OP_all_reduce, NULL, id, OPTIMIZER, TO_SUM_METRICS, order[i]->parts, group));
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
static Op *update_op(Graph *g, Unit *u, OpKind kind, const char *id, Purpose purpose, Value *grad, Value *coefficient) {
    const Optimizer *o = u->optimizer;
    const struct {
        const char *name;
        Value *value; /* NULL: none */
    } operands[] = {
        {"grad", grad},
        {"master", u->master->value},
        {"coefficient", coefficient},
        {"step", o->rule->counts_steps ? g->step_state->value : NULL},
        {"largest", u->largest[0] ? u->largest[0]->value : NULL},
        {o->rule->moments[0], u->m ? u->m->value : NULL},
        {o->rule->moments[1], u->v ? u->v->value : NULL},
    };
    const struct {
        const char *name;
        int64_t value;
    } integers[] = {
        {"slice", shard_slice(u)}, {"axis", u->shard->id},    {"expert", shard_expert(u)},
        {"set", o->set},           {"nesterov", o->nesterov}, {"decoupled", o->rule->decoupled},
    };
    OpParts parts = {0};
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
        int at = operands[i].value ? op_find(kind, PART_OPERAND, operands[i].name) : -1;
        if (at >= 0) parts.in[at] = operands[i].value;
    }
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int at = op_find(kind, PART_INT, integers[i].name);
        if (at >= 0) parts.i[at] = integers[i].value;
    }
    Op *op = shard_unit_op(g, kind, u, id, OPTIMIZER, purpose, &parts);
    op->src = o->src;
    op->table = segments(g, u, kind, &op->ntable);
    return op;
}

static void average(Making *c, Unit *u, Value *coefficient, int pos) {
    Graph *g = c->g;
    Op *op = UNIT_OP(g, ema, u, arena_printf(g->arena, "avg%d", u->id), OPTIMIZER, TO_UPDATE,
                     .master = u->master->value, .average = u->average->value, .step = g->step_state->value,
                     .coefficient = g->training->scaler ? coefficient : NULL, .decay = g->training->ema_decay);
    edit_before(c->edit, pos, op);
}

/* ── whole matrices ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_matrices m;
    double flops;
} Run;

static int by_flops(const void *a, const void *b) { /* the most first, of equal ones that which lies first */
    const Run *x = a, *y = b;
    return x->flops != y->flops ? (x->flops < y->flops) - (x->flops > y->flops)
                                : (x->m.at > y->m.at) - (x->m.at < y->m.at);
}
static int by_place(const void *a, const void *b) {
    const Run *x = a, *y = b;
    return (x->m.at > y->m.at) - (x->m.at < y->m.at);
}

/* The unit's matrices and who computes each: the largest first, to the rank that has had the least to do, in the units
 * before too. Experts, many alike, are cut into as many runs as there are ranks. load: by rank, what it has to do. */
static const int64_t *matrices(Graph *g, const Unit *u, int ranks, double *load, int *n) {
    VEC(Run) runs = {0};
    VEC(int64_t) t = {0};
    for (int i = 0; i < u->params.n && shard_trainable(u->params.at[i]); i++) {
        const Param *p = u->params.at[i];
        int64_t count = p->dims == 3 ? p->shape[0] : 1, rows = p->shape[p->dims - 2], cols = p->shape[p->dims - 1];
        for (int64_t k = 0, from = 0, to; k < ranks && from < count; k++, from = to) {
            to = max64(from, count * (k + 1) / ranks);
            if (to == from) continue;
            Run r = {{p->flat_offset + from * rows * cols, to - from, rows, cols, 0}, 0};
            double shorter = (double)sc_matrices_short(r.m), longer = (double)sc_matrices_long(r.m);
            r.flops = (double)(to - from) * shorter * shorter * (3 * longer + shorter);
            push(&runs, g->arena, r);
        }
    }
    qsort(runs.at, (size_t)runs.n, sizeof *runs.at, by_flops);
    for (int i = 0; i < runs.n; i++) {
        int owner = 0;
        for (int k = 1; k < ranks; k++)
            if (load[k] < load[owner]) owner = k;
        runs.at[i].m.owner = owner;
        load[owner] += runs.at[i].flops;
    }
    qsort(runs.at, (size_t)runs.n, sizeof *runs.at, by_place);
    for (int i = 0; i < runs.n; i++) {
        sc_matrices m = runs.at[i].m;
        for (const int64_t *x = (int64_t[]){m.at, m.count, m.rows, m.cols, m.owner}, *end = x + SC_MATRICES; x < end;
             x++)
            push(&t, g->arena, *x);
    }
    *n = t.n;
    return t.at;
}

/* Before the update of an optimizer of whole matrices. What is to be orthogonalized is made on the shard, and goes to
 * the ranks that own the matrices; */
static Value *gathered(Making *c, Unit *u, Value *grad, Value *coefficient, int pos) {
    Graph *g = c->g;
    Op *op = update_op(g, u, op_by_name(u->optimizer->rule->before), arena_printf(g->arena, "b%d", u->id),
                       TO_TAKE_GRADIENT, grad, coefficient);
    edit_before(c->edit, pos, op);
    Value *x = shard_add_out(g, op, BF16, shard_slice(u));
    if (u->shard->size == 1) return x;
    op = shard_collective(g, OP_all_gather, u, arena_printf(g->arena, "bg%d", u->id), OPTIMIZER, TO_EXCHANGE_UPDATE,
                          u->shard, x);
    edit_before(c->edit, pos, op);
    return shard_add_out(g, op, BF16, u->numel);
}

/* and comes back to the shard as a sum with zeros, which is exact. Replicas of a unit that is not sharded own matrices
 * likewise. */
static Value *orthogonal(Making *c, Unit *u, Value *x, double *const *load, int pos) {
    Graph *g = c->g;
    const Axis *axis = u->shard->size > 1 ? u->shard : u->replicate;
    const Optimizer *o = u->optimizer;
    Op *op = UNIT_OP(g, orthogonalize, u, arena_printf(g->arena, "q%d", u->id), OPTIMIZER, TO_TAKE_GRADIENT, .x = x,
                     .steps = o->ns_steps, .set = o->set, .axis = axis->id,
                     .abc = {o->ns_coefficients[0], o->ns_coefficients[1], o->ns_coefficients[2]});
    op->src = o->src;
    op->table = matrices(g, u, axis->size, load[axis->id], &op->ntable);
    edit_before(c->edit, pos, op);
    x = shard_add_out(g, op, BF16, u->numel);
    if (axis->size == 1) return x;
    bool scatters = axis == u->shard;
    op = shard_collective(g, scatters ? OP_reduce_scatter : OP_all_reduce, u, arena_printf(g->arena, "qr%d", u->id),
                          OPTIMIZER, TO_EXCHANGE_UPDATE, axis, x);
    edit_before(c->edit, pos, op);
    return scatters ? shard_add_out(g, op, BF16, shard_slice(u)) : x;
}

/* The unit's update, its average, and the wire shard that follows from the new master; of 8 bits it comes later. */
static void update(Making *c, Unit *u, Value *grad, Value *coefficient, int pos) {
    Graph *g = c->g;
    const char *id = arena_printf(g->arena, "u%d", u->id);
    if (u->largest[0])
        edit_before(c->edit, pos,
                    UNIT_OP(g, zero, u, arena_printf(g->arena, "largest%d", u->id), OPTIMIZER, TO_UPDATE,
                            .state = u->largest[0]->value));
    Op *op = update_op(g, u, op_by_name(u->optimizer->rule->update), id, TO_UPDATE, grad, coefficient);
    edit_before(c->edit, pos, op);
    if (u->average) average(c, u, coefficient, pos);
    if (u->wire_shard == u->master || shard_travels_narrow(u)) return;
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
 * scale, all updates wait until every gradient is known to be finite. Updates of whole matrices then overlap each
 * other: the next unit's are gathered while one's are orthogonalized, and the one's before come back. While ranks
 * exchange a unit's largest magnitudes, the next unit is updated. */
Value *shard_optimizer(Making *c) {
    Graph *g = c->g;
    const GradScaler *scaler = g->training->scaler;
    int end = c->p->ops.n, n = 0;
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
    if (one) coefficient = one;
    Unit **units = NEW_ARRAY(g->arena, Unit *, g->units.n);
    Value **x = NEW_ARRAY(g->arena, Value *, g->units.n); /* what the unit's update reads */
    double **load = NEW_ARRAY(g->arena, double *, g->axes.n);
    for (int i = 0; i < g->axes.n; i++) load[i] = NEW_ARRAY(g->arena, double, g->axes.at[i]->size);
    for (int i = 0; i < g->units.n; i++)
        if (c->uses[i].flat_grad) units[n++] = g->units.at[i];
    enum { STAGES = 4 };
    for (int i = 0; i < n + STAGES - 1; i++)
        for (int stage = 0; stage < STAGES; stage++) {
            int k = one ? i : i - stage; /* without clipping, each unit at a place of its own */
            if (k < 0 || k >= n) continue;
            Unit *u = units[k];
            const Use *use = &c->uses[u->id];
            bool whole = u->optimizer->rule->before;
            int pos = one ? (int)max64(use->last_grad, use->last_use) + 1 : end;
            if (stage == 0) x[k] = whole ? gathered(c, u, use->kept_grad, coefficient, pos) : use->kept_grad;
            if (stage == 1 && whole) x[k] = orthogonal(c, u, x[k], load, pos);
            if (stage == 2) update(c, u, x[k], coefficient, pos);
            if (stage == 3 && shard_travels_narrow(u)) shard_quantize(c, u, false, OPTIMIZER, pos);
        }
    if (scaler) edit_before(c->edit, end, shard_scale_update(g, coefficient));
    return coefficient;
}
