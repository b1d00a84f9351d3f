/* inputs: a float input that every program reads through one and the same narrowing cast is stored in that dtype. The
 * training program converts it when it arrives, with the rounding of the cast: half the bytes to copy and to hold, and
 * no cast.
 * Relies on: precision (the casts at units' borders). Relied on by: shard (states), emit (what records hold). */
#include "../ir/training.h"
#include "../ir/uses.h"
#include "lower.h"

/* A cast is the one pointwise op of one operand whose result has another dtype. */
static bool casts_to_narrower_float(const Op *op) {
    if (!op_is(op, T_POINTWISE) || op->nin != 1) return false;
    Dtype from = op_operand(op)->dtype, to = op_result(op)->dtype;
    return dtype_float(from) && dtype_float(to) && dtype_size(to) < dtype_size(from);
}

/* Is every reader of v in p a cast to one narrower dtype? *wanted: that dtype, which the readers in other programs have
 * set; N_DTYPES: there was none yet. */
static bool is_read_in_one_dtype(const Graph *g, const Program *p, const Value *v, Dtype *wanted) {
    if (!p) return true;
    Uses *uses = uses_new(g, p);
    bool one = !uses_is_result(uses, v);
    for (const User *u = uses_users(uses, v); u && one; u = u->next) {
        const Op *op = u->op;
        one = casts_to_narrower_float(op) && (*wanted == N_DTYPES || *wanted == op_result(op)->dtype);
        if (one) *wanted = op_result(op)->dtype;
    }
    uses_free(uses);
    return one;
}

/* Casts of v become views of it, so views of their results are views of the input. */
static void turn_casts_into_views(Graph *g, Program *p, const Value *v) {
    for (int i = 0; p && i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (op->nin == 1 && op_operand(op) == v) {
            op_turn(op, OP_reshape);
            op->reshape.dims = v->dims;
            memcpy(op->reshape.shape, v->shape, sizeof *v->shape * (size_t)v->dims);
        }
        if (op_is(op, T_VIEW)) op_info[op->kind].infer(g, op);
    }
}

void lower_inputs(Graph *g) {
    for (int i = 0; i < g->inputs.n; i++) {
        Input *in = g->inputs.at[i];
        Dtype wanted = N_DTYPES;
        if (!in->value || in->sample_value || !dtype_float(in->value->dtype)) continue;
        if (!is_read_in_one_dtype(g, g->train, in->value, &wanted) ||
            !is_read_in_one_dtype(g, g->eval, in->value, &wanted))
            continue;
        if (wanted == N_DTYPES) continue;
        in->value->dtype = wanted;
        turn_casts_into_views(g, g->train, in->value);
        turn_casts_into_views(g, g->eval, in->value);
    }
}
