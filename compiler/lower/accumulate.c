/* Accumulate: the weight of a head whose logits are made in chunks has a gradient that is a sum over them. Each product
 * adds its term to the sum so far; here all of these sums get the bytes of the last one. Relies on: epilogue_fusion (a
 * product and a sum are one op), shard (where a unit's gradients lie). Relied on by: storages; kernels of products,
 * which add in place.
 */
#include "../ir/build.h"
#include "edit.h"
#include "lower.h"
#include "lowering.h"

static bool of_logits(const Op *op) {
    return op && (op->kind == OP_cross_entropy_grads || op->kind == OP_cross_entropy_grad ||
                  op->kind == OP_distillation_grad);
}

/* Is op the weight's gradient of some logits, and nothing is done to its sums but the addition of c? Terms that are
 * made far apart stay where they are: the unit's whole buffer would be in use between them. */
static bool is_term(const Op *op) {
    return op && op_is(op, T_PRODUCT) && op->phase == BACKWARD && INT_OF(op, trans_a) && !INT_OF(op, epilogue) &&
           !OPERAND_OF(op, bias) && of_logits(value_root(OPERAND_OF(op, a))->def);
}

/* May c, which op adds, lie where op's result lies? */
static bool takes_place(const Uses *uses, const Op *op, const Value *c) {
    const Value *y = RESULT_OF(op, y);
    bool own = c && !c->base && !c->state && is_term(c->def) && value_contiguous(c) && value_contiguous(y);
    return own && c->dtype == y->dtype && value_same_shape(c, y) && uses_count(uses, c) == 1 &&
           !uses_through_views(uses, c) && !uses_is_result(uses, c);
}

/* Makes y a piece of a value of its size, which is there from its first piece on. */
static void put_within(Graph *g, Edit *e, const Uses *uses, Op *op, Value *y) {
    Program tail = {0};
    Builder b = {.g = g, .p = &tail, .phase = op->phase};
    build_for(&b, op, "a");
    Value *whole = value_new(g, y->dtype, y->dims, y->shape);
    Op *join = BUILD(&b, assemble);
    op_set(join, 0, y);
    op_set_result(join, &join->assemble.y, whole);
    y->base = whole;
    edit_after(e, uses_position(uses, op), join);
}

void lower_accumulate(Graph *g, Program *p) {
    Uses *uses = uses_new(g, p);
    Edit *e = edit_begin(g, p);
    for (int i = p->ops.n - 1; i >= 0; i--) {
        Op *op = p->ops.at[i];
        if (!is_term(op) || !takes_place(uses, op, OPERAND_OF(op, c))) continue;
        Value *y = RESULT_OF(op, y), *c = OPERAND_OF(op, c);
        if (!y->base && (y->state || uses_through_views(uses, y))) continue;
        if (!y->base) put_within(g, e, uses, op, y);
        c->base = y->base;
        c->offset = y->offset;
    }
    edit_commit(e);
    uses_free(uses);
}
