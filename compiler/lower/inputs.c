/* inputs: a float input that every program reads through one and the same narrowing cast is stored in that dtype. The
 * training program converts it when it arrives, with the rounding of the cast: half the bytes to copy and to hold, and
 * no cast.
 * Relies on: precision (the casts at units' borders). Relied on by: shard (states), emit (what records hold). */
#include "../ir/training.h"
#include "../ir/uses.h"
#include "lower.h"

/* The one pointwise op of one operand whose result has another dtype. */
static bool casts(const Op *op) {
    return op_is(op, T_POINTWISE) && op->nin == 1 && op->cast.a->dtype != op->cast.y->dtype;
}

static bool narrows(Dtype from, Dtype to) {
    return dtype_float(from) && dtype_float(to) && dtype_size(to) < dtype_size(from);
}

/* Every reader of v in p is a cast to one narrower dtype. *wanted: that dtype, of programs before too; N_DTYPES: none
 * has read it yet. */
static bool one_dtype(const Graph *g, const Program *p, const Value *v, Dtype *wanted) {
    if (!p) return true;
    Uses *uses = uses_new(g, p);
    bool one = !uses_is_result(uses, v);
    for (const User *u = uses_users(uses, v); u && one; u = u->next) {
        const Op *op = u->op;
        one = casts(op) && narrows(v->dtype, op->cast.y->dtype);
        one = one && (*wanted == N_DTYPES || *wanted == op->cast.y->dtype);
        if (one) *wanted = op->cast.y->dtype;
    }
    uses_free(uses);
    return one;
}

/* What was cast is a view of the input now, and views of it are views of the input. */
static void look_through(Graph *g, Program *p, const Value *v) {
    for (int i = 0; p && i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (op->nin == 1 && op_operand(op) == v) {
            op->kind = OP_reshape;
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
        if (!one_dtype(g, g->train, in->value, &wanted) || !one_dtype(g, g->eval, in->value, &wanted)) continue;
        if (wanted == N_DTYPES) continue;
        in->value->dtype = wanted;
        look_through(g, g->train, in->value);
        look_through(g, g->eval, in->value);
    }
}
