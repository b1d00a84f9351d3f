/* Concat in place: where the backward makes values only to concatenate them, kernels that can write them straight into
 * the larger tensor, so that the concat moves nothing. Relies on: the traits T_JOINS, T_ROWS_OUT and T_POINTWISE in
 * ops.def. Relied on by: fuse (layouts of who reads the joined tensor), storages (an assemble op makes no event). */
#include "lower.h"
#include "lowering.h"

/* Does piece v of the concat begin, `at` bytes on, where a tensor of its own could, and have no gaps? Any kernel that
 * makes a tensor writes it. */
static bool is_run(const Op *join, const Value *v, int64_t at) {
    int dim = (int)join->concat.dim;
    for (int d = 0; d < dim; d++)
        if (v->shape[d] != 1) return false;
    return at % ALIGN == 0 && value_contiguous(v) && !op_is(v->def, T_COLLECTIVE | T_COPY | T_ASSEMBLE | T_VIEW);
}

/* Only what the backward makes: a clone has a contiguous tensor of its own, and ops of the forward may be cloned. No
 * result of the program: a parameter's gradient will itself be a piece, of its unit's buffer. */
static bool may_place(const Uses *uses, const Op *join) {
    if (join->kind != OP_concat || join->phase != BACKWARD || !value_contiguous(join->concat.y)) return false;
    if (uses_is_result(uses, join->concat.y)) return false;
    int64_t at = 0;
    for (int k = 0; k < join->nin; k++) {
        const Value *v = join->concat.x[k];
        bool own = !v->base && v->def && !v->state && uses_count(uses, v) == 1 && v->def->phase == BACKWARD;
        if (!own || !(op_is(v->def, T_ROWS_OUT | T_POINTWISE) || is_run(join, v, at))) return false;
        at += value_bytes(v);
    }
    return true;
}

void lower_concat_in_place(Graph *g, Program *p) {
    Uses *uses = uses_new(g, p);
    for (int i = 0; i < p->ops.n; i++) {
        Op *join = p->ops.at[i];
        if (!may_place(uses, join)) continue;
        Value *whole = join->concat.y;
        int dim = (int)join->concat.dim;
        int64_t at = 0;
        for (int k = 0; k < join->nin; k++) {
            Value *v = join->concat.x[k];
            v->base = whole;
            v->offset = at;
            memcpy(v->stride, whole->stride, sizeof v->stride);
            at += v->shape[dim] * whole->stride[dim];
        }
        op_turn(join, OP_assemble);
    }
    uses_free(uses);
}
