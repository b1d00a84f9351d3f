/* combine, remake, pieces, fuse: what becomes one op, what is made again or in place, and what stays as it is.
 * Relies on: compiler/ir, compiler/passes, Criterion.
 * Relied on by: make test. */
#include "ir/build.h"
#include "ir/patterns.h"
#include "passes/passes.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static Graph *g;
static Builder *b;

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                           \
        __VA_ARGS__                                                                                                    \
    }
#define IN(...) (int)(sizeof((Value *[]){__VA_ARGS__}) / sizeof(Value *)), ((Value *[]){__VA_ARGS__})

static void start(void) {
    g = graph_new(arena_new());
    g->file = "model.lua";
    g->root = NEW(g->arena, Module);
    *g->root = (Module){.path = "", .kind = "Model"};
    push(&g->modules, g->arena, g->root);
    g->train = NEW(g->arena, Program);
    g->train->name = "train";
    b = NEW(g->arena, Builder);
    *b = (Builder){.g = g, .p = g->train, .module = g->root, .src = {"model.lua", 41}};
}

static Value *param(int dims, const int64_t *shape) {
    Param *p = NEW(g->arena, Param);
    *p = (Param){.id = g->params.n, .owner = g->root, .dtype = FP32, .dims = dims, .requires_grad = true};
    p->path = arena_printf(g->arena, "p%d", p->id);
    memcpy(p->shape, shape, sizeof(int64_t) * (size_t)dims);
    push(&g->params, g->arena, p);
    p->value = new_value(g, FP32, dims, shape);
    p->value->param = p;
    return p->value;
}
static Value *input(Dtype d, int dims, const int64_t *shape) {
    Value *v = new_value(g, d, dims, shape);
    v->name = "x";
    return v;
}
static Value *matmul(Value *x, Value *w) {
    return build2(b, OP_MATMUL, x, w);
}
static void loss(Value *v) {
    Value *mean = build_op(b, OP_MEAN, 1, &v, (int64_t[]){(1 << v->dims) - 1, 0}, 2, NULL, 0)->out[0];
    g->train->loss = mean;
}
static int count(OpKind k) {
    int n = 0;
    for (int i = 0; i < g->train->ops.n; i++) n += g->train->ops.at[i]->kind == k;
    return n;
}
/* The n-th op of a kind. */
static Op *nth(OpKind k, int n) {
    for (int i = 0; i < g->train->ops.n; i++)
        if (g->train->ops.at[i]->kind == k && n-- == 0) return g->train->ops.at[i];
    cr_assert(false, "there are too few of %s", op_info[k].name);
    abort();
}
static void finish(void) {
    units(g);
    combine_traced(g, g->train);
    check_graph(g, "combine_traced");
    autodiff(g, g->train);
    check_graph(g, "autodiff");
    combine(g, g->train);
    check_graph(g, "combine");
    remake(g, g->train);
    check_graph(g, "remake");
    pieces(g, g->train);
    fuse(g, g->train);
    check_graph(g, "fuse");
}

/* ── matmul ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(combine, a_sum_begins_with_the_addend) {
    start();
    Value *x = input(FP32, SHAPE(2, 6, 8)), *w = param(SHAPE(8, 8)), *v = param(SHAPE(8, 8));
    Value *y = build2(b, OP_ADD, x, matmul(x, w)), *z = build2(b, OP_ADD, matmul(y, v), y);
    loss(matmul(z, param(SHAPE(8, 4)))); /* so that z's gradient is no expanded number */
    finish();
    const Op *first = nth(OP_MATMUL, 0), *second = nth(OP_MATMUL, 1);
    cr_expect(first->i[3] && first->nin == 3 && first->in[2] == x && first->out[0] == y);
    cr_expect(second->i[3] && second->in[2] == y && second->out[0] == z);
    int added = 0; /* what reaches y by both ways */
    for (int i = 2; i < count(OP_MATMUL); i++) added += nth(OP_MATMUL, i)->i[3] && nth(OP_MATMUL, i)->phase == BACKWARD;
    cr_expect_eq(added, 1);
}

Test(combine, a_product_that_others_read_stays) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *y = matmul(x, param(SHAPE(8, 8)));
    loss(build2(b, OP_MUL, build2(b, OP_ADD, x, y), y));
    finish();
    for (int i = 0; i < count(OP_MATMUL); i++) cr_expect_eq(nth(OP_MATMUL, i)->i[3], 0);
}

Test(combine, an_addend_of_other_layout_stays) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *wide = build_expand(b, input(FP32, SHAPE(8)), SHAPE(6, 8));
    loss(build2(b, OP_ADD, wide, matmul(x, param(SHAPE(8, 8)))));
    finish();
    cr_expect_eq(nth(OP_MATMUL, 0)->i[3], 0);
}

Test(combine, gelu_and_its_gradient) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *w = param(SHAPE(8, 16)), *v = param(SHAPE(16, 8)), *bias = param(SHAPE(16));
    Value *up = build_op(b, OP_MATMUL, IN(x, w, bias), NULL, 0, NULL, 0)->out[0];
    loss(matmul(build1(b, OP_GELU_TANH, up), v));
    finish();
    const Op *forward = nth(OP_MATMUL, 0);
    cr_expect(forward->i[4] == SC_GELU_TOO && forward->nout == 2 && forward->out[1] == up && up->def == forward);
    int gradients = 0;
    for (int i = 0; i < count(OP_MATMUL); i++) {
        const Op *op = nth(OP_MATMUL, i);
        if (op->i[4] != SC_GELU_GRAD) continue;
        gradients++;
        cr_expect(op->nin == 3 && op->in[2] == up);
    }
    cr_expect_eq(gradients, 1);
}

Test(combine, gelu_alone_keeps_no_argument) {
    start();
    g->train->loss = NULL;
    Value *y = build1(b, OP_GELU_TANH, matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16))));
    g->train->logits = y;
    combine(g, g->train);
    check_graph(g, "combine");
    cr_expect(nth(OP_MATMUL, 0)->i[4] == SC_GELU && nth(OP_MATMUL, 0)->nout == 1 && nth(OP_MATMUL, 0)->out[0] == y);
}

/* ── gates ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* silu(gate) up, or up silu(gate), of two products; with a third product behind it. */
static Value *gate_, *up_, *h_;
static void gated(bool swapped) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *bias = param(SHAPE(16));
    gate_ = matmul(x, param(SHAPE(8, 16)));
    up_ = build_op(b, OP_MATMUL, IN(x, param(SHAPE(8, 16)), bias), NULL, 0, NULL, 0)->out[0];
    Value *silu = build1(b, OP_SILU, gate_);
    h_ = swapped ? build2(b, OP_MUL, up_, silu) : build2(b, OP_MUL, silu, up_);
}
static int gradients_of_gates(void) {
    int n = 0;
    for (int i = 0; i < count(OP_MATMUL); i++) {
        const Op *op = nth(OP_MATMUL, i);
        if (op->i[4] != SC_GATE_GRADS) continue;
        n++;
        cr_expect(op->nin == 4 && op->in[2] == gate_ && op->in[3] == up_ && op->nout == 2);
    }
    return n;
}

Test(combine, a_gate_and_its_gradients) {
    for (int swapped = 0; swapped < 2; swapped++) {
        gated(swapped);
        loss(matmul(h_, param(SHAPE(16, 8))));
        finish();
        const Op *op = up_->def;
        cr_expect(op->kind == OP_MATMUL && op->i[4] == SC_GATED_TOO && op->nin == 4 && op->in[3] == gate_);
        cr_expect(op->nout == 2 && op->out[0] == h_ && op->out[1] == up_);
        cr_expect_eq(gradients_of_gates(), 1);
        cr_expect_eq(count(OP_SILU_MUL_GRAD), 0);
        cr_expect(op_lends(op) == 8 && !op_lends(gate_->def));
    }
}

Test(combine, what_is_gated_may_be_read_elsewhere) {
    gated(false);
    loss(matmul(build2(b, OP_ADD, matmul(h_, param(SHAPE(16, 8))), matmul(up_, param(SHAPE(16, 8)))),
                param(SHAPE(8, 4))));
    finish();
    cr_expect(up_->def->i[4] == SC_GATED_TOO && up_->def->out[1] == up_);
    cr_expect_eq(gradients_of_gates(), 1);
}

Test(combine, a_gate_alone_keeps_nothing) {
    gated(true);
    g->train->logits = h_;
    combine_traced(g, g->train);
    combine(g, g->train);
    check_graph(g, "combine");
    cr_expect(h_->def->i[4] == SC_GATED && h_->def->nout == 1 && h_->def->in[3] == gate_);
}

/* h's gradient is no product's, or not the product's alone. */
Test(combine, gradients_of_a_gate_by_themselves) {
    gated(false);
    loss(build1(b, OP_TANH, h_));
    finish();
    cr_expect_eq(count(OP_SILU_MUL_GRAD), 1);
    gated(false);
    loss(build2(b, OP_ADD, matmul(h_, param(SHAPE(16, 8))), matmul(build1(b, OP_TANH, h_), param(SHAPE(16, 8)))));
    finish();
    cr_expect_eq(count(OP_SILU_MUL_GRAD), 1);
    cr_expect_eq(gradients_of_gates(), 0);
}

Test(combine, a_gate_that_others_read_stays) {
    gated(false);
    Value *silu = nth(OP_SILU, 0)->out[0];
    loss(matmul(build2(b, OP_ADD, h_, silu), param(SHAPE(16, 8))));
    finish();
    cr_expect_eq(count(OP_SILU_MUL_GRAD), 0);
    cr_expect_eq(up_->def->i[4], SC_IDENTITY);
}

Test(combine, a_value_that_gates_itself) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16)));
    loss(matmul(build2(b, OP_MUL, build1(b, OP_SILU, x), x), param(SHAPE(16, 8))));
    finish();
    gate_ = up_ = x;
    cr_expect_eq(x->def->i[4], SC_IDENTITY);
    cr_expect_eq(gradients_of_gates(), 1);
}

Test(combine, halves_of_one_product_stay) {
    start();
    Value *both = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 32)));
    Op *split = build_op(b, OP_SPLIT, 1, &both, (int64_t[]){1, 2, 16, 16}, 4, NULL, 0);
    loss(matmul(build2(b, OP_MUL, build1(b, OP_SILU, split->out[0]), split->out[1]), param(SHAPE(16, 8))));
    finish();
    cr_expect_eq(count(OP_SILU_MUL_GRAD), 0);
}

/* What is checkpointed does not count; the op is of the call that wants it. */
Test(combine, a_gate_across_checkpointed_calls) {
    gated(false);
    nth(OP_SILU, 0)->region = 1;
    combine_traced(g, g->train);
    cr_expect_eq(nth(OP_SILU_MUL, 0)->region, 0);
}

/* The products are kept by name: h alone is made again, from one of them and the gate. */
static void recomputed(const char **save, int clones) {
    gated(false);
    Checkpoint *c = NEW(g->arena, Checkpoint);
    *c = (Checkpoint){.recompute = true, .save = save, .nsave = save ? 1 : 0};
    loss(matmul(h_, param(SHAPE(16, 8))));
    for (int i = 0; i < g->train->ops.n - 1; i++) g->train->ops.at[i]->region = 1, g->train->ops.at[i]->checkpoint = c;
    finish();
    recompute(g, g->train);
    check_graph(g, "recompute");
    int n = 0;
    for (int i = 0; i < g->train->ops.n; i++) n += g->train->ops.at[i]->phase == RECOMPUTE;
    cr_expect_eq(n, clones, "%d ops are run again, not %d", n, clones);
}

Test(combine, a_gate_is_run_again_without_its_product) {
    static const char *names[] = {"matmul", "silu_mul", "*"};
    recomputed(NULL, 2);
    recomputed(&names[0], 1);
    cr_expect(up_->saved && !h_->saved);
    const Op *again = NULL;
    for (int i = 0; i < g->train->ops.n; i++)
        if (g->train->ops.at[i]->phase == RECOMPUTE) again = g->train->ops.at[i];
    cr_assert(again && again->kind == OP_FUSED && again->nbody == 1 && again->body[0]->kind == OP_SILU_MUL);
    cr_expect(again->in[0] == gate_ && again->in[1] == up_ && again->origin == h_->def);
    recomputed(&names[1], 2);
    cr_expect(!up_->saved && h_->saved);
    recomputed(&names[2], 0);
}

/* ── norms ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void block(OpKind norm, int weights) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 8))), *in[3] = {x};
    for (int i = 0; i < weights; i++) in[1 + i] = param(SHAPE(8));
    bool centred = norm == OP_LAYER_NORM;
    Value *n = build_op(b, norm, 1 + weights, in, (int64_t[]){1, 1}, centred ? 2 : 0, (double[]){1e-5}, 1)->out[0];
    loss(matmul(build2(b, OP_ADD, x, build1(b, OP_TANH, n)), param(SHAPE(8, 4))));
    finish();
}

Test(combine, gradients_round_a_norm) {
    block(OP_LAYER_NORM, 2);
    const Op *op = nth(OP_LAYER_NORM_GRADS, 0);
    cr_expect(op->i[1] && op->i[2] && op->nin == 6 && op->nout == 3);
    cr_expect_eq(count(OP_LAYER_NORM_GRAD) + count(OP_LAYER_NORM_GRAD_W), 0);
    block(OP_RMS_NORM, 1);
    op = nth(OP_RMS_NORM_GRADS, 0);
    cr_expect(op->i[1] && op->i[2] && op->nin == 5 && op->nout == 2);
    cr_expect_eq(count(OP_RMS_NORM_GRAD) + count(OP_RMS_NORM_GRAD_W), 0);
}

/* x + b V, then a norm: b's gradient is the sum of what both ways bring to the sum. */
static void biased(OpKind norm, bool residual, int times) {
    start();
    Value *x = input(FP32, SHAPE(2, 6, 8)), *in[2], *first = param(SHAPE(8));
    Value *y = build_op(b, OP_MATMUL, IN(x, param(SHAPE(8, 8)), first), NULL, 0, NULL, 0)->out[0];
    for (int i = 1; i < times; i++)
        y = build2(b, OP_ADD, y,
                   build_op(b, OP_MATMUL, IN(x, param(SHAPE(8, 8)), param(SHAPE(8))), NULL, 0, NULL, 0)->out[0]);
    in[0] = y, in[1] = param(SHAPE(8));
    Value *n = build_op(b, norm, 2, in, (int64_t[]){1, 0}, norm == OP_LAYER_NORM ? 2 : 0, (double[]){1e-5}, 1)->out[0];
    loss(matmul(residual ? build2(b, OP_ADD, y, build1(b, OP_TANH, n)) : n, param(SHAPE(8, 4))));
    finish();
    const Op *op = nth(norm == OP_LAYER_NORM ? OP_LAYER_NORM_GRADS : OP_RMS_NORM_GRADS, 0);
    int last = norm == OP_LAYER_NORM ? 3 : 2;
    cr_assert(op->i[2] == residual && op->nout == last + 1 && op->i[3] == FP32 + 1);
    bool taken = false; /* its result is one of the biases' gradients, in their place */
    for (int i = 0; i < g->params.n; i++) taken |= g->params.at[i]->dims == 1 && g->params.at[i]->grad == op->out[last];
    cr_expect(taken && op->out[last]->def == op);
    cr_expect_eq(count(OP_SUM), times - 1);
    cr_expect_str_eq(op_label(g->arena, op) + strlen(op_info[op->kind].name), residual ? "+add+sum" : "+sum");
}

Test(combine, a_bias_before_a_norm) {
    for (int residual = 0; residual < 2; residual++) {
        biased(OP_LAYER_NORM, residual, 1);
        biased(OP_RMS_NORM, residual, 1);
        biased(OP_LAYER_NORM, residual, 2); /* one sum is taken in */
    }
}

Test(combine, a_bias_before_a_norm_of_another_shape) {
    start();
    Value *x = input(FP32, SHAPE(12, 8)), *bias = param(SHAPE(8));
    Value *y = build_op(b, OP_MATMUL, IN(x, param(SHAPE(8, 8)), bias), NULL, 0, NULL, 0)->out[0];
    y = build_reshape(b, y, SHAPE(2, 6, 8));
    loss(matmul(build_op(b, OP_RMS_NORM, IN(y, param(SHAPE(8))), NULL, 0, (double[]){1e-5}, 1)->out[0],
                param(SHAPE(8, 4))));
    finish();
    cr_expect_eq(nth(OP_RMS_NORM_GRADS, 0)->out[2], bias->param->grad);
    cr_expect_eq(count(OP_SUM), 0);
}

/* Of other columns, or of some rows alone, a sum stays. */
Test(combine, other_sums_of_a_norms_gradient) {
    static const struct {
        int dims;
        int64_t shape[3];
    } addend[] = {{2, {6, 8}}, {1, {8}}, {3, {2, 1, 8}}};
    for (int i = 0; i < 3; i++) {
        start();
        Value *x = matmul(input(FP32, SHAPE(2, 6, 8)), param(SHAPE(8, 8))), *c = param(addend[i].dims, addend[i].shape);
        Value *y = build2(b, OP_ADD, x, build_expand(b, c, SHAPE(2, 6, 8)));
        loss(matmul(build_op(b, OP_RMS_NORM, IN(y, param(SHAPE(8))), NULL, 0, (double[]){1e-5}, 1)->out[0],
                    param(SHAPE(8, 4))));
        finish();
        cr_expect_eq(nth(OP_RMS_NORM_GRADS, 0)->nout, i == 1 ? 3 : 2);
        cr_expect_eq(count(OP_SUM), i != 1);
    }
}

/* ── loss ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void classes(bool scaled, int region) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16)));
    Op *op = build_op(b, OP_CROSS_ENTROPY, IN(x, input(INT32, SHAPE(6))), (int64_t[]){-100, 0}, 2, NULL, 0);
    op->region = region;
    g->train->loss = scaled ? build_scalar(b, OP_MUL_SCALAR, op->out[0], 2) : op->out[0];
    finish();
}

Test(combine, the_loss_and_its_gradient) {
    classes(false, 0);
    const Op *op = nth(OP_CROSS_ENTROPY_GRADS, 0);
    cr_expect(op->out[1] == g->train->loss && op->phase == BACKWARD && op->i[0] == -100);
    cr_expect_eq(count(OP_CROSS_ENTROPY) + count(OP_CROSS_ENTROPY_GRAD), 0);
    classes(true, 0); /* its gradient is no constant */
    cr_expect_eq(count(OP_CROSS_ENTROPY_GRADS), 0);
    classes(false, 1); /* made again in the backward */
    cr_expect_eq(count(OP_CROSS_ENTROPY_GRADS), 0);
}

/* ── remake, pieces ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(remake, a_gate_is_made_again) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *gate = matmul(x, param(SHAPE(8, 16))), *up = matmul(x, param(SHAPE(8, 16)));
    loss(matmul(build2(b, OP_MUL, build1(b, OP_GELU, gate), up), param(SHAPE(16, 8))));
    finish();
    const Op *forward = nth(OP_FUSED, 0);
    cr_expect_eq(forward->nout, 1, "the gate leaves the group");
    int gates = 0;
    for (int i = 0; i < count(OP_FUSED); i++)
        for (int m = 0; m < nth(OP_FUSED, i)->nbody; m++) gates += nth(OP_FUSED, i)->body[m]->kind == OP_GELU;
    cr_expect_eq(gates, 2);
}

Test(remake, what_a_product_reads_is_kept) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16)));
    loss(matmul(build1(b, OP_SILU, x), param(SHAPE(16, 8))));
    finish();
    int silus = 0;
    for (int i = 0; i < count(OP_FUSED); i++)
        for (int m = 0; m < nth(OP_FUSED, i)->nbody; m++) silus += nth(OP_FUSED, i)->body[m]->kind == OP_SILU;
    cr_expect_eq(silus, 1);
}

static int remade(void) { /* members that are made again */
    int n = 0;
    for (int i = 0; i < count(OP_FUSED); i++)
        for (int m = 0; m < nth(OP_FUSED, i)->nbody; m++) {
            const char *id = nth(OP_FUSED, i)->body[m]->id;
            n += id[strlen(id) - 1] == 'm';
        }
    return n;
}

/* gelu(x) is, and so its product with `up` is kept: to make that again too would take both. */
Test(remake, what_is_made_of_that_is_kept) {
    start();
    Value *in = input(FP32, SHAPE(6, 8)), *x = matmul(in, param(SHAPE(8, 16))), *up = matmul(in, param(SHAPE(8, 16)));
    Value *product = build2(b, OP_MUL, build1(b, OP_GELU, x), up);
    loss(matmul(build1(b, OP_SILU, product), param(SHAPE(16, 8))));
    finish();
    cr_expect_eq(remade(), 1);
}

/* What was read of a buffer that the program writes is something else later. */
Test(remake, reads_of_written_buffers_are_kept) {
    for (int written = 0; written < 2; written++) {
        start();
        Value *x = input(FP32, SHAPE(4, 8)), *w = param(SHAPE(8)), *mean = param(SHAPE(8)), *var = param(SHAPE(8));
        mean->param->is_buffer = var->param->is_buffer = true;
        Value *read = build1(b, OP_TANH, mean), *of[] = {x, param(SHAPE(8)), param(SHAPE(8)), mean, var};
        if (written) x = build_op(b, OP_BATCH_NORM, 5, of, (int64_t[]){1}, 1, (double[]){1e-5, 0.1}, 2)->out[0];
        loss(build2(b, OP_ADD, x, build_expand(b, build2(b, OP_MUL, read, w), SHAPE(4, 8))));
        finish();
        cr_expect_eq(remade(), !written);
    }
}

/* What is run again is run again whole, and what is gathered apart is used apart. */
Test(fuse, regions_and_units_stay_apart) {
    static Checkpoint again = {.recompute = true};
    static UnitPolicy policy = {.cast_forward_inputs = true};
    for (int how = 0; how < 3; how++) { /* one group; a region; a unit */
        start();
        Module *inner = NEW(g->arena, Module);
        *inner = (Module){.id = 1, .path = "inner", .kind = "Block", .parent = g->root};
        push(&g->modules, g->arena, inner);
        if (how == 2) g->root->policy = inner->policy = &policy;
        Value *x = build1(b, OP_TANH, matmul(input(FP32, SHAPE(4, 6)), param(SHAPE(6, 6))));
        b->module = inner;
        x = build1(b, OP_SILU, x);
        if (how == 1) x->def->region = 1, x->def->checkpoint = &again;
        b->module = g->root;
        loss(x);
        finish();
        int groups = 0;
        for (int i = 0; i < g->train->ops.n; i++)
            groups += g->train->ops.at[i]->kind == OP_FUSED && g->train->ops.at[i]->phase == FORWARD;
        cr_expect_eq(groups, how ? 2 : 1, "%d: %d groups", how, groups);
    }
}

Test(pieces, gradients_of_attention_lie_where_they_are_joined) {
    start();
    Value *x = matmul(input(FP32, SHAPE(12, 16)), param(SHAPE(16, 48)));
    Value *all = build_reshape(b, x, SHAPE(2, 6, 12, 4));
    Op *split = build_op(b, OP_SPLIT, 1, &all, (int64_t[]){2, 3, 4, 4, 4}, 5, NULL, 0);
    Op *op = build_op(b, OP_ATTENTION, 3, split->out, (int64_t[]){1}, 1, (double[]){0.5, 0}, 2);
    loss(op->out[0]);
    finish();
    const Op *grad = nth(OP_ATTENTION_GRAD, 0), *whole = nth(OP_ASSEMBLE, 0);
    cr_expect_eq(count(OP_CONCAT), 0);
    for (int k = 0; k < 3; k++) {
        cr_expect_eq(grad->out[k]->base, whole->out[0]);
        cr_expect_eq(grad->out[k]->offset, 16 * k);
        cr_expect_eq(grad->out[k]->stride[1], 48);
    }
}
