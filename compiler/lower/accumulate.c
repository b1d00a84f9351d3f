/* Accumulate: the weight of a head whose logits are made in chunks has a gradient that is a sum over them. Each product
 * adds its term to the sum so far; here all of these sums get the bytes of the last one. Where the head is tied to an
 * embedding, that is the op that adds the rows of the tokens. Relies on: epilogue_fusion (a product and a sum are one
 * op), shard (where a unit's gradients lie). Relied on by: storages; kernels of products and of embedding_grad, which
 * add in place.
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

/* Does op add rows to a table's gradient that fills its buffer but for an eighth (a choice, not measured)? The buffer
 * is then in use from the head's product on, and so was that product's result. */
enum { REST = 8 };
static bool adds_rows(const Op *op) {
    const Value *whole = op && op_is(op, T_ACCUMULATES) ? op_result(op)->base : NULL;
    return whole && value_bytes(whole) - value_bytes(op_result(op)) <= value_bytes(whole) / REST;
}

/* May c, which op adds, lie where op's result lies? */
static bool takes_place(const Uses *uses, const Op *op, const Value *c) {
    const Value *y = op_result(op);
    bool own = c && !c->base && !c->state && value_contiguous(c) && value_contiguous(y);
    if (!own || !(is_term(c->def) || (adds_rows(op) && op_is(c->def, T_PRODUCT)))) return false;
    return c->dtype == y->dtype && value_same_shape(c, y) && uses_count(uses, c) == 1 && !uses_through_views(uses, c) &&
           !uses_is_result(uses, c);
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
        if (!is_term(op) && !adds_rows(op)) continue;
        Value *y = op_result(op), *c = OPERAND_OF(op, c);
        if (!takes_place(uses, op, c)) continue;
        if (!y->base && (y->state || uses_through_views(uses, y))) continue;
        if (!y->base) put_within(g, e, uses, op, y);
        c->base = y->base;
        c->offset = y->offset;
    }
    edit_commit(e);
    uses_free(uses);
}
