/* The checker of the IR's invariants (ir/check.c): what it accepts, and each way of breaking a program by name.
 * Relies on: small_graph.h.
 * Relied on by: make test. */
#include "small_graph.h"

static Op *two_ops(void) {
    Value *x = val(FP32, SHAPE(4, 6)), *y = build_one(b, OP_exp, x);
    return BUILD(b, transpose, .a = y, .order = {1, 0});
}
#define BROKEN(name, ...)                                                                                              \
    static void name(void) {                                                                                           \
        Op *op = two_ops(), *first = b->p->ops.at[0];                                                                  \
        (void)op, (void)first;                                                                                         \
        __VA_ARGS__;                                                                                                   \
        graph_check(g, "sabotage");                                                                                    \
    }
BROKEN(swapped, Op **at = b->p->ops.at; Op *t = at[0]; at[0] = at[1]; at[1] = t)
BROKEN(same_id, op->id = "e0")
BROKEN(no_id, op->id = NULL)
BROKEN(no_module, op->module = NULL)
BROKEN(wrong_shape, first->exp.y->shape[0] = 3)
BROKEN(wrong_dtype, first->exp.y->dtype = BF16)
BROKEN(wrong_view, op->transpose.y->stride[0] = 2; op->transpose.y->stride[1] = 1)
BROKEN(outside, op->transpose.y->offset = 100)
BROKEN(deep_base, Value *y = op->transpose.y; Value *v = value_new_view(g, y, 1, (int64_t[]){2}, (int64_t[]){1}, 0);
       v->base = y; op->transpose.a = v)
BROKEN(foreign_value, Value *v = NEW(g->arena, Value); *v = *op->transpose.a; op->transpose.a = v)
BROKEN(root_offset, op->transpose.a->offset = 1)
BROKEN(missing_operand, op->transpose.a = NULL)
BROKEN(missing_result, op->transpose.y = NULL)
BROKEN(no_operands, op->nin = 0)
BROKEN(too_many_results, op->nout = 3)
BROKEN(too_many_operands, op->nin = 3)
BROKEN(wrong_def, op->transpose.y->def = first)
BROKEN(twice, Op *more = op_new(g, OP_exp); more->id = "e7"; more->nin = more->nout = 1; more->exp.a = op->transpose.a;
       more->exp.y = op->transpose.y; push(&b->p->ops, g->arena, more))
BROKEN(negative, op->transpose.a->shape[0] = -1)
BROKEN(many_dims, op->transpose.a->dims = 7)
BROKEN(loss_shape, b->p->loss = op->transpose.y)
BROKEN(loss_undefined, b->p->loss = val(FP32, 0, (int64_t[]){1}); b->p->loss->def = op)
BROKEN(fewer_results, first->nout = 0; op->transpose.a = val(FP32, SHAPE(4, 6)))
static Op *group(void) { /* exp and neg as one op */
    Op *fused = two_ops(), *first = b->p->ops.at[0], *second = op_new(g, OP_neg);
    Value *y = val(FP32, SHAPE(4, 6));
    *fused = (Op){.kind = OP_fused,
                  .id = "e1",
                  .fused = {.y = {y}, .x = {first->exp.a}},
                  .nin = 1,
                  .nout = 1,
                  .module = g->root,
                  .src = {"model.lua", 41},
                  .nbody = 2};
    second->nin = second->nout = 1;
    second->neg.a = first->exp.y;
    second->neg.y = y;
    y->def = fused;
    fused->body = NEW_ARRAY(g->arena, Op *, 2);
    fused->body[0] = first;
    fused->body[1] = second;
    b->p->ops.at[0] = fused;
    b->p->ops.n = 1;
    return fused;
}
#define BROKEN_GROUP(name, ...)                                                                                        \
    static void name(void) {                                                                                           \
        Op *op = group();                                                                                              \
        __VA_ARGS__;                                                                                                   \
        graph_check(g, "sabotage");                                                                                    \
    }
BROKEN_GROUP(not_pointwise, op->body[1]->kind = OP_transpose)
BROKEN_GROUP(from_nowhere, op->body[1]->neg.a = val(FP32, SHAPE(4, 6)))
BROKEN_GROUP(nobodys_result, Value *v = val(FP32, SHAPE(4, 6)); v->def = op; op->fused.y[0] = v)

Test(check, accepts_a_group, .init = start) {
    group();
    graph_check(g, "test");
}

Test(check, refuses_broken_graphs) {
    static const struct {
        void (*body)(void);
        const char *text;
    } cases[] = {
        {swapped, "after sabotage, program train, e1 transpose (model.lua:41): at position 0 uses value"},
        {same_id, "its id stands twice"},
        {no_id, "has no id"},
        {no_module, "has no module"},
        {wrong_shape, "its rule gives fp32[4,6]"},
        {wrong_dtype, "result 0 is bf16[4,6], its rule gives fp32[4,6]"},
        {wrong_view, "is a view that its operand does not give"},
        {outside, "reaches to element"},
        {deep_base, "is a view itself"},
        {foreign_value, "is not the graph's"},
        {root_offset, "owns its bytes and has an offset"},
        {missing_operand, "lacks its operand a"},
        {missing_result, "lacks its result y"},
        {no_operands, "counts 0 operands, and a is there too"},
        {too_many_results, "has 3 results"},
        {too_many_operands, "has 3 operands"},
        {wrong_def, "does not name it as its definition"},
        {twice, "is defined twice"},
        {negative, "has size -1"},
        {many_dims, "has 7 dims"},
        {loss_shape, "the loss is fp32[6,4], not a scalar"},
        {loss_undefined, "nothing defines the loss"},
        {fewer_results, "has 0 results, its rule gives 1"},
        {not_pointwise, "member transpose is not pointwise"},
        {from_nowhere, "member 1 (neg) uses value"},
        {nobodys_result, "result 0 is no member's"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_exit(cases[i].body, -6, cases[i].text);
}
