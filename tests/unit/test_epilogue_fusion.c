/* Epilogue fusion, rematerialize, concat in place, fuse: what becomes one op, what is made again or in place, and what
 * stays as it is. Relies on: compiler/ir, compiler/lower, Criterion. Relied on by: make test. */
#include "ir/build.h"
#include "ir/patterns.h"
#include "ir/policy.h"
#include "lower/lower.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static Graph *g;
static Builder *b;

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                           \
        __VA_ARGS__                                                                                                    \
    }

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
    *p = (Param){.split = 1, .id = g->params.n, .owner = g->root, .dtype = FP32, .dims = dims, .requires_grad = true};
    p->path = arena_printf(g->arena, "p%d", p->id);
    memcpy(p->shape, shape, sizeof(int64_t) * (size_t)dims);
    push(&g->params, g->arena, p);
    p->value = value_new(g, FP32, dims, shape);
    p->value->param = p;
    return p->value;
}
static Value *input(Dtype d, int dims, const int64_t *shape) {
    Value *v = value_new(g, d, dims, shape);
    v->name = "x";
    return v;
}
static Value *linear(Value *x, Value *w, Value *bias) {
    return BUILD(b, matmul, .a = x, .b = w, .bias = bias)->matmul.y;
}
static Value *matmul(Value *x, Value *w) {
    return linear(x, w, NULL);
}
/* Of weights of its own; a layer_norm's bias may be NULL. */
static Value *rms_norm(Value *x) {
    return BUILD(b, rms_norm, .x = x, .w = param(SHAPE(8)), .eps = 1e-5)->rms_norm.y;
}
static Value *layer_norm(Value *x, Value *bias) {
    return BUILD(b, layer_norm, .x = x, .w = param(SHAPE(8)), .b = bias, .eps = 1e-5)->layer_norm.y;
}
static void loss(Value *v) {
    g->train->loss = BUILD(b, mean, .x = v, .over = (1 << v->dims) - 1)->mean.y;
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
    lower_units(g);
    lower_epilogue_fusion_traced(g, g->train);
    graph_check(g, "epilogue_fusion_traced");
    lower_autodiff(g, g->train);
    graph_check(g, "autodiff");
    lower_epilogue_fusion(g, g->train);
    graph_check(g, "epilogue_fusion");
    lower_rematerialize(g, g->train);
    graph_check(g, "rematerialize");
    lower_concat_in_place(g, g->train);
    lower_fuse(g, g->train);
    graph_check(g, "fuse");
}

/* ── matmul ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(epilogue_fusion, a_sum_begins_with_the_addend) {
    start();
    Value *x = input(FP32, SHAPE(2, 6, 8)), *w = param(SHAPE(8, 8)), *v = param(SHAPE(8, 8));
    Value *y = build_two(b, OP_add, x, matmul(x, w)), *z = build_two(b, OP_add, matmul(y, v), y);
    loss(matmul(z, param(SHAPE(8, 4)))); /* so that z's gradient is no expanded number */
    finish();
    const Op *first = nth(OP_matmul, 0), *second = nth(OP_matmul, 1);
    cr_expect(first->matmul.c == x && !first->matmul.bias && first->nin == SLOT(matmul, c) + 1);
    cr_expect(first->matmul.y == y && second->matmul.c == y && second->matmul.y == z);
    int added = 0; /* what reaches y by both ways */
    for (int i = 2; i < count(OP_matmul); i++)
        added += nth(OP_matmul, i)->matmul.c && nth(OP_matmul, i)->phase == BACKWARD;
    cr_expect_eq(added, 1);
}

/* A head that is tied to the embedding: the rows of the tokens are added to what its product has made, also where the
 * product stands near enough to be the one that adds. */
Test(epilogue_fusion, rows_are_added_to_a_heads_gradient) {
    start();
    Value *index = input(INT32, SHAPE(6)), *w = param(SHAPE(16, 8));
    Value *y = BUILD(b, embedding, .index = index, .w = w)->embedding.y;
    loss(BUILD(b, matmul, .a = build_one(b, OP_tanh, y), .b = w, .trans_b = true)->matmul.y);
    finish();
    const Op *rows = nth(OP_embedding_grad, 0);
    cr_expect(rows->embedding_grad.c && rows->embedding_grad.c->def->kind == OP_matmul);
    cr_expect(!rows->embedding_grad.c->def->matmul.c && count(OP_add) == 0);
    cr_expect(op_lends(rows, SLOT(embedding_grad, c)) && rows->embedding_grad.dw == w->param->grad);
}

Test(epilogue_fusion, a_product_that_others_read_stays) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *y = matmul(x, param(SHAPE(8, 8)));
    loss(build_two(b, OP_mul, build_two(b, OP_add, x, y), y));
    finish();
    for (int i = 0; i < count(OP_matmul); i++) cr_expect_null(nth(OP_matmul, i)->matmul.c);
}

Test(epilogue_fusion, an_addend_of_other_layout_stays) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *wide = build_expand(b, input(FP32, SHAPE(8)), SHAPE(6, 8));
    loss(build_two(b, OP_add, wide, matmul(x, param(SHAPE(8, 8)))));
    finish();
    cr_expect_null(nth(OP_matmul, 0)->matmul.c);
}

Test(epilogue_fusion, gelu_and_its_gradient) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *w = param(SHAPE(8, 16)), *v = param(SHAPE(16, 8)), *bias = param(SHAPE(16));
    Value *up = linear(x, w, bias);
    loss(matmul(build_one(b, OP_gelu_tanh, up), v));
    finish();
    const Op *forward = nth(OP_matmul, 0);
    cr_expect(SC_HAS(forward->matmul.epilogue, SC_GELU | SC_TOO) && forward->matmul.aux == up && up->def == forward);
    cr_expect(forward->joined && forward->joined->kind == OP_gelu_tanh && !forward->joined->next);
    cr_expect(!nth(OP_matmul, 1)->joined);
    int gradients = 0;
    for (int i = 0; i < count(OP_matmul); i++) {
        const Op *op = nth(OP_matmul, i);
        if (!SC_HAS(op->matmul.epilogue, SC_GELU | SC_GRADIENT)) continue;
        gradients++;
        cr_expect(op->matmul.x == up && !op->matmul.bias && !op->matmul.c && op->nin == SLOT(matmul, x) + 1);
    }
    cr_expect_eq(gradients, 1);
}

Test(epilogue_fusion, gelu_alone_keeps_no_argument) {
    start();
    g->train->loss = NULL;
    Value *y = build_one(b, OP_gelu_tanh, matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16))));
    g->train->logits = y;
    lower_epilogue_fusion(g, g->train);
    graph_check(g, "epilogue_fusion");
    const Op *op = nth(OP_matmul, 0);
    cr_expect(op->matmul.epilogue == SC_GELU && op->nout == 1 && op->matmul.y == y);
}

/* CUDA's kernel does not finish batches, and no pass knows the target. */
Test(epilogue_fusion, products_of_a_batch_stay_alone) {
    start();
    Value *a = input(FP32, SHAPE(3, 6, 8)), *y = matmul(a, param(SHAPE(3, 8, 8)));
    Value *t = BUILD(b, matmul, .a = a, .b = param(SHAPE(6, 8)), .trans_a = true)->matmul.y;
    Value *rows = matmul(a, param(SHAPE(8, 8)));
    g->train->loss = NULL;
    g->train->logits = build_two(b, OP_maximum, build_two(b, OP_add, y, input(FP32, SHAPE(3, 6, 8))),
                                 matmul(a, build_one(b, OP_gelu_tanh, t)));
    g->train->logits = build_two(b, OP_maximum, g->train->logits, build_one(b, OP_gelu_tanh, rows));
    lower_epilogue_fusion(g, g->train);
    graph_check(g, "epilogue_fusion");
    cr_expect(!y->def->matmul.c && t->def->matmul.epilogue == 0);
    cr_expect_eq(count(OP_gelu_tanh), 1);
}

/* ── gates ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* silu(gate) up, or up silu(gate), of two products; with a third product behind it. */
static Value *gate_, *up_, *h_;
static void gated(bool swapped) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *bias = param(SHAPE(16));
    gate_ = matmul(x, param(SHAPE(8, 16)));
    up_ = linear(x, param(SHAPE(8, 16)), bias);
    Value *silu = build_one(b, OP_silu, gate_);
    h_ = swapped ? build_two(b, OP_mul, up_, silu) : build_two(b, OP_mul, silu, up_);
}
static int gradients_of_gates(void) {
    int n = 0;
    for (int i = 0; i < count(OP_matmul); i++) {
        const Op *op = nth(OP_matmul, i);
        if (!SC_HAS(op->matmul.epilogue, SC_GATED | SC_GRADIENT)) continue;
        n++;
        cr_expect(op->matmul.gate == gate_ && op->matmul.up == up_ && op->matmul.aux);
        cr_expect(!op->matmul.bias && !op->matmul.c && !op->matmul.x);
    }
    return n;
}

Test(epilogue_fusion, a_gate_and_its_gradients) {
    for (int swapped = 0; swapped < 2; swapped++) {
        gated(swapped);
        loss(matmul(h_, param(SHAPE(16, 8))));
        finish();
        const Op *op = up_->def;
        cr_expect(op->kind == OP_matmul && SC_HAS(op->matmul.epilogue, SC_GATED | SC_TOO) && op->matmul.gate == gate_);
        cr_expect(op->matmul.bias && !op->matmul.c && !op->matmul.x && !op->matmul.up);
        cr_expect(op->matmul.y == h_ && op->matmul.aux == up_);
        cr_expect_eq(gradients_of_gates(), 1);
        cr_expect_eq(count(OP_silu_mul_grad), 0);
        for (int k = 0; k < op->nin; k++)
            if (op->in[k]) cr_expect_eq(op_lends(op, k), k == SLOT(matmul, gate));
        for (int k = 0; k < gate_->def->nin; k++) cr_expect(!op_lends(gate_->def, k));
    }
}

/* Experts: a weight for each matrix of x. */
Test(epilogue_fusion, a_batch_is_gated_and_has_no_gelu) {
    start();
    Value *x = input(FP32, SHAPE(2, 6, 8));
    gate_ = matmul(x, param(SHAPE(2, 8, 16)));
    up_ = matmul(x, param(SHAPE(2, 8, 16)));
    h_ = build_two(b, OP_mul, build_one(b, OP_silu, gate_), up_);
    Value *plain = matmul(h_, param(SHAPE(2, 16, 8))), *y = build_one(b, OP_gelu_tanh, plain);
    loss(matmul(y, param(SHAPE(2, 8, 4))));
    finish();
    cr_expect(SC_HAS(up_->def->matmul.epilogue, SC_GATED | SC_TOO) && up_->def->matmul.gate == gate_);
    cr_expect_eq(gradients_of_gates(), 1);
    cr_expect_eq(plain->def->matmul.epilogue, 0);
}

Test(epilogue_fusion, what_is_gated_may_be_read_elsewhere) {
    gated(false);
    loss(matmul(build_two(b, OP_add, matmul(h_, param(SHAPE(16, 8))), matmul(up_, param(SHAPE(16, 8)))),
                param(SHAPE(8, 4))));
    finish();
    cr_expect(SC_HAS(up_->def->matmul.epilogue, SC_GATED | SC_TOO) && up_->def->matmul.aux == up_);
    cr_expect_eq(gradients_of_gates(), 1);
}

Test(epilogue_fusion, a_gate_alone_keeps_nothing) {
    gated(true);
    g->train->logits = h_;
    lower_epilogue_fusion_traced(g, g->train);
    lower_epilogue_fusion(g, g->train);
    graph_check(g, "epilogue_fusion");
    const Op *op = h_->def;
    cr_expect(op->matmul.epilogue == SC_GATED && op->nout == 1 && op->matmul.gate == gate_);
}

/* h's gradient is no product's, or not the product's alone. */
Test(epilogue_fusion, gradients_of_a_gate_by_themselves) {
    gated(false);
    loss(build_one(b, OP_tanh, h_));
    finish();
    cr_expect_eq(count(OP_silu_mul_grad), 1);
    gated(false);
    loss(build_two(b, OP_add, matmul(h_, param(SHAPE(16, 8))), matmul(build_one(b, OP_tanh, h_), param(SHAPE(16, 8)))));
    finish();
    cr_expect_eq(count(OP_silu_mul_grad), 1);
    cr_expect_eq(gradients_of_gates(), 0);
}

Test(epilogue_fusion, a_gate_that_others_read_stays) {
    gated(false);
    Value *silu = nth(OP_silu, 0)->silu.y;
    loss(matmul(build_two(b, OP_add, h_, silu), param(SHAPE(16, 8))));
    finish();
    cr_expect_eq(count(OP_silu_mul_grad), 0);
    cr_expect_eq(up_->def->matmul.epilogue, 0);
}

Test(epilogue_fusion, a_value_that_gates_itself) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16)));
    loss(matmul(build_two(b, OP_mul, build_one(b, OP_silu, x), x), param(SHAPE(16, 8))));
    finish();
    gate_ = up_ = x;
    cr_expect_eq(x->def->matmul.epilogue, 0);
    cr_expect_eq(gradients_of_gates(), 1);
}

Test(epilogue_fusion, halves_of_one_product_stay) {
    start();
    Value *both = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 32)));
    Value *const *half = BUILD(b, split, .a = both, .dim = 1, .pieces = 2, .sizes = {16, 16})->split.y;
    loss(matmul(build_two(b, OP_mul, build_one(b, OP_silu, half[0]), half[1]), param(SHAPE(16, 8))));
    finish();
    cr_expect_eq(count(OP_silu_mul_grad), 0);
}

/* What is checkpointed does not count; the op is of the call that wants it. */
Test(epilogue_fusion, a_gate_across_checkpointed_calls) {
    gated(false);
    nth(OP_silu, 0)->region = 1;
    lower_epilogue_fusion_traced(g, g->train);
    cr_expect_eq(nth(OP_silu_mul, 0)->region, 0);
}

/* The products are kept by name: h alone is made again, from one of them and the gate. */
static void recomputed(const char **save, int clones) {
    gated(false);
    Checkpoint *c = NEW(g->arena, Checkpoint);
    *c = (Checkpoint){.recompute = true, .save = save, .nsave = save ? 1 : 0};
    loss(matmul(h_, param(SHAPE(16, 8))));
    for (int i = 0; i < g->train->ops.n - 1; i++) g->train->ops.at[i]->region = 1, g->train->ops.at[i]->checkpoint = c;
    finish();
    lower_recompute(g, g->train);
    graph_check(g, "recompute");
    int n = 0;
    for (int i = 0; i < g->train->ops.n; i++) n += g->train->ops.at[i]->phase == RECOMPUTE;
    cr_expect_eq(n, clones, "%d ops are run again, not %d", n, clones);
}

Test(epilogue_fusion, a_gate_is_run_again_without_its_product) {
    static const char *names[] = {"matmul", "silu_mul", "*"};
    recomputed(NULL, 2);
    recomputed(&names[0], 1);
    cr_expect(up_->saved && !h_->saved);
    const Op *again = NULL;
    for (int i = 0; i < g->train->ops.n; i++)
        if (g->train->ops.at[i]->phase == RECOMPUTE) again = g->train->ops.at[i];
    cr_assert(again && again->kind == OP_fused && again->nbody == 1 && again->body[0]->kind == OP_silu_mul);
    cr_expect(again->nin == 2 && again->origin == h_->def);
    cr_expect(again->body[0]->silu_mul.gate == gate_ && again->body[0]->silu_mul.up == up_);
    recomputed(&names[1], 2);
    cr_expect(!up_->saved && h_->saved);
    recomputed(&names[2], 0);
}

/* ── norms ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void block(OpKind norm) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 8)));
    Value *n = norm == OP_layer_norm ? layer_norm(x, param(SHAPE(8))) : rms_norm(x);
    loss(matmul(build_two(b, OP_add, x, build_one(b, OP_tanh, n)), param(SHAPE(8, 4))));
    finish();
}

Test(epilogue_fusion, gradients_round_a_norm) {
    block(OP_layer_norm);
    const Op *op = nth(OP_layer_norm_grads, 0);
    cr_expect(op->layer_norm_grads.w && op->layer_norm_grads.c && op->layer_norm_grads.db && !op->layer_norm_grads.ds);
    cr_expect_eq(count(OP_layer_norm_grad) + count(OP_layer_norm_grad_w), 0);
    block(OP_rms_norm);
    op = nth(OP_rms_norm_grads, 0);
    cr_expect(op->rms_norm_grads.w && op->rms_norm_grads.c && op->rms_norm_grads.dw && !op->rms_norm_grads.ds);
    cr_expect_eq(count(OP_rms_norm_grad) + count(OP_rms_norm_grad_w), 0);
}

/* A head that is normalised, then turned. */
static Value *turned(bool read_elsewhere) {
    start();
    Value *x = build_reshape(b, matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 8))), SHAPE(1, 6, 1, 8));
    Value *n = rms_norm(x);
    Value *y = BUILD(b, rope, .x = n, .width = 4, .interleaved = true, .theta = 100, .scale = 2)->rope.y;
    Value *out = build_reshape(b, read_elsewhere ? build_two(b, OP_add, y, build_one(b, OP_tanh, n)) : y, SHAPE(6, 8));
    loss(matmul(out, param(SHAPE(8, 4))));
    return y;
}

Test(epilogue_fusion, a_norm_whose_heads_turn) {
    const Value *y = turned(false);
    finish();
    const Op *op = nth(OP_rms_norm_rope, 0);
    cr_expect(op->rms_norm_rope.y == y && op->rms_norm_rope.rstd && op->rms_norm_rope.w);
    cr_expect(op->rms_norm_rope.width == 4 && op->rms_norm_rope.interleaved && op->rms_norm_rope.scale == 2);
    cr_expect(op->rms_norm_rope.eps == 1e-5 && op->rms_norm_rope.theta == 100);
    cr_expect(count(OP_rms_norm) == 0 && count(OP_rope) == 1 && nth(OP_rope, 0)->rope.inverse);
    turned(true);
    finish();
    cr_expect(count(OP_rms_norm) == 1 && count(OP_rope) == 2, "something else reads the norm");
    turned(false);
    nth(OP_rope, 0)->region = 1;
    finish();
    cr_expect(count(OP_rms_norm) == 1 && count(OP_rope) == 2, "they are of two checkpointed calls");
}

/* The second op is found by its own name. */
Test(epilogue_fusion, a_turned_head_is_kept_by_name) {
    static const char *const names[] = {"rope", "rms_norm_rope", "rms_norm"};
    for (int k = 0; k < 3; k++) {
        const Value *y = turned(false);
        Checkpoint *c = NEW(g->arena, Checkpoint);
        *c = (Checkpoint){.recompute = true, .save = (const char **)&names[k], .nsave = 1};
        for (int i = 0; i < g->train->ops.n - 1; i++)
            g->train->ops.at[i]->region = 1, g->train->ops.at[i]->checkpoint = c;
        finish();
        lower_recompute(g, g->train);
        graph_check(g, "recompute");
        cr_expect_eq(y->saved, k < 2, "save = { \"%s\" }", names[k]);
    }
}

/* x + b V, then a norm: b's gradient is the sum of what both ways bring to the sum. */
static void biased(OpKind norm, bool residual, int times) {
    start();
    bool centred = norm == OP_layer_norm;
    Value *x = input(FP32, SHAPE(2, 6, 8)), *first = param(SHAPE(8)), *y = linear(x, param(SHAPE(8, 8)), first);
    for (int i = 1; i < times; i++) y = build_two(b, OP_add, y, linear(x, param(SHAPE(8, 8)), param(SHAPE(8))));
    Value *n = centred ? layer_norm(y, NULL) : rms_norm(y);
    loss(matmul(residual ? build_two(b, OP_add, y, build_one(b, OP_tanh, n)) : n, param(SHAPE(8, 4))));
    finish();
    const Op *op = nth(centred ? OP_layer_norm_grads : OP_rms_norm_grads, 0);
    const Value *c = centred ? op->layer_norm_grads.c : op->rms_norm_grads.c;
    const Value *ds = centred ? op->layer_norm_grads.ds : op->rms_norm_grads.ds;
    cr_assert_eq(c != NULL, residual);
    cr_assert_eq(centred ? op->layer_norm_grads.sums : op->rms_norm_grads.sums, FP32 + 1);
    bool taken = false; /* its result is one of the biases' gradients, in their place */
    for (int i = 0; i < g->params.n; i++) taken |= g->params.at[i]->dims == 1 && g->params.at[i]->grad == ds;
    cr_expect(ds && taken && ds->def == op);
    cr_expect_eq(count(OP_sum), times - 1);
    cr_expect_str_eq(op_label(g->arena, op) + strlen(op_info[op->kind].name), residual ? "+add+sum" : "+sum");
}

Test(epilogue_fusion, a_bias_before_a_norm) {
    for (int residual = 0; residual < 2; residual++) {
        biased(OP_layer_norm, residual, 1);
        biased(OP_rms_norm, residual, 1);
        biased(OP_layer_norm, residual, 2); /* one sum is taken in */
    }
}

Test(epilogue_fusion, a_bias_before_a_norm_of_another_shape) {
    start();
    Value *x = input(FP32, SHAPE(12, 8)), *bias = param(SHAPE(8));
    Value *y = build_reshape(b, linear(x, param(SHAPE(8, 8)), bias), SHAPE(2, 6, 8));
    loss(matmul(rms_norm(y), param(SHAPE(8, 4))));
    finish();
    cr_assert_not_null(bias->param->grad);
    cr_expect_eq(nth(OP_rms_norm_grads, 0)->rms_norm_grads.ds, bias->param->grad);
    cr_expect_eq(count(OP_sum), 0);
}

/* Of other columns, or of some rows alone, a sum stays. */
Test(epilogue_fusion, other_sums_of_a_norms_gradient) {
    static const struct {
        int dims;
        int64_t shape[3];
    } addend[] = {{2, {6, 8}}, {1, {8}}, {3, {2, 1, 8}}};
    for (int i = 0; i < 3; i++) {
        start();
        Value *x = matmul(input(FP32, SHAPE(2, 6, 8)), param(SHAPE(8, 8))), *c = param(addend[i].dims, addend[i].shape);
        Value *y = build_two(b, OP_add, x, build_expand(b, c, SHAPE(2, 6, 8)));
        loss(matmul(rms_norm(y), param(SHAPE(8, 4))));
        finish();
        cr_expect_eq(nth(OP_rms_norm_grads, 0)->rms_norm_grads.ds != NULL, i == 1);
        cr_expect_eq(count(OP_sum), i != 1);
    }
}

/* ── loss ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void classes(bool scaled, int region) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16)));
    Op *op = BUILD(b, cross_entropy, .logits = x, .targets = input(INT32, SHAPE(6)), .ignore = -100);
    op->region = region;
    g->train->loss = scaled ? build_scalar(b, OP_mul_scalar, op->cross_entropy.loss, 2) : op->cross_entropy.loss;
    finish();
}

Test(epilogue_fusion, the_loss_and_its_gradient) {
    classes(false, 0);
    const Op *op = nth(OP_cross_entropy_grads, 0);
    cr_expect_eq(op->cross_entropy_grads.loss, g->train->loss);
    cr_expect(op->phase == BACKWARD && op->cross_entropy_grads.ignore == -100);
    cr_expect_eq(count(OP_cross_entropy) + count(OP_cross_entropy_grad), 0);
    classes(true, 0); /* its gradient is no constant */
    cr_expect_eq(count(OP_cross_entropy_grads), 0);
    classes(false, 1); /* made again in the backward */
    cr_expect_eq(count(OP_cross_entropy_grads), 0);
}

/* ── rematerialize, concat in place
 * ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(rematerialize, a_gate_is_made_again) {
    start();
    Value *x = input(FP32, SHAPE(6, 8)), *gate = matmul(x, param(SHAPE(8, 16))), *up = matmul(x, param(SHAPE(8, 16)));
    loss(matmul(build_two(b, OP_mul, build_one(b, OP_gelu, gate), up), param(SHAPE(16, 8))));
    finish();
    const Op *forward = nth(OP_fused, 0);
    cr_expect_eq(forward->nout, 1, "the gate leaves the group");
    int gates = 0;
    for (int i = 0; i < count(OP_fused); i++)
        for (int m = 0; m < nth(OP_fused, i)->nbody; m++) gates += nth(OP_fused, i)->body[m]->kind == OP_gelu;
    cr_expect_eq(gates, 2);
}

Test(rematerialize, what_a_product_reads_is_kept) {
    start();
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 16)));
    loss(matmul(build_one(b, OP_silu, x), param(SHAPE(16, 8))));
    finish();
    int silus = 0;
    for (int i = 0; i < count(OP_fused); i++)
        for (int m = 0; m < nth(OP_fused, i)->nbody; m++) silus += nth(OP_fused, i)->body[m]->kind == OP_silu;
    cr_expect_eq(silus, 1);
}

static int remade(void) { /* members that are made again */
    int n = 0;
    for (int i = 0; i < count(OP_fused); i++)
        for (int m = 0; m < nth(OP_fused, i)->nbody; m++) {
            const char *id = nth(OP_fused, i)->body[m]->id;
            n += id[strlen(id) - 1] == 'm';
        }
    return n;
}

/* gelu(x) is, and so its product with `up` is kept: to make that again too would take both. */
Test(rematerialize, what_is_made_of_that_is_kept) {
    start();
    Value *in = input(FP32, SHAPE(6, 8)), *x = matmul(in, param(SHAPE(8, 16))), *up = matmul(in, param(SHAPE(8, 16)));
    Value *product = build_two(b, OP_mul, build_one(b, OP_gelu, x), up);
    loss(matmul(build_one(b, OP_silu, product), param(SHAPE(16, 8))));
    finish();
    cr_expect_eq(remade(), 1);
}

/* A matrix that is made of an int8 one is larger than that: the backward makes it again for its product. */
Test(rematerialize, a_matrix_of_int8_is_made_again) {
    start();
    Value *packed = param(SHAPE(8, 16)), *scales = param(SHAPE(8, 16));
    packed->param->requires_grad = scales->param->requires_grad = false;
    packed->dtype = packed->param->dtype = INT8;
    Value *x = matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 8)));
    loss(matmul(x, build_two(b, OP_mul, build_cast(b, packed, FP32), scales)));
    finish();
    cr_expect_eq(remade(), 2, "the cast and the product with the scales");
}

/* Of a value that is only widened the narrow one is kept, though nothing else reads it in the backward. */
Test(rematerialize, what_is_widened_is_kept_narrow) {
    for (int narrow = 0; narrow < 2; narrow++) {
        start();
        Value *x = build_cast(b, matmul(input(FP32, SHAPE(6, 8)), param(SHAPE(8, 8))), narrow ? BF16 : FP64);
        loss(build_two(b, OP_mul, build_cast(b, x, FP32), param(SHAPE(6, 8))));
        finish();
        cr_expect_eq(remade(), narrow);
    }
}

/* What was read of a buffer that the program writes is something else later. */
Test(rematerialize, reads_of_written_buffers_are_kept) {
    for (int written = 0; written < 2; written++) {
        start();
        Value *x = input(FP32, SHAPE(4, 8)), *w = param(SHAPE(8)), *mean = param(SHAPE(8)), *var = param(SHAPE(8));
        mean->param->is_buffer = var->param->is_buffer = true;
        Value *read = build_one(b, OP_tanh, mean), *weight = param(SHAPE(8)), *bias = param(SHAPE(8));
        if (written)
            x = BUILD(b, batch_norm, .x = x, .w = weight, .b = bias, .running_mean = mean, .running_var = var,
                      .training = true, .eps = 1e-5, .momentum = 0.1)
                    ->batch_norm.y;
        loss(build_two(b, OP_add, x, build_expand(b, build_two(b, OP_mul, read, w), SHAPE(4, 8))));
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
        Value *x = build_one(b, OP_tanh, matmul(input(FP32, SHAPE(4, 6)), param(SHAPE(6, 6))));
        b->module = inner;
        x = build_one(b, OP_silu, x);
        if (how == 1) x->def->region = 1, x->def->checkpoint = &again;
        b->module = g->root;
        loss(x);
        finish();
        int groups = 0;
        for (int i = 0; i < g->train->ops.n; i++)
            groups += g->train->ops.at[i]->kind == OP_fused && g->train->ops.at[i]->phase == FORWARD;
        cr_expect_eq(groups, how ? 2 : 1, "%d: %d groups", how, groups);
    }
}

Test(pieces, gradients_of_attention_lie_where_they_are_joined) {
    start();
    Value *x = matmul(input(FP32, SHAPE(12, 16)), param(SHAPE(16, 48)));
    Value *all = build_reshape(b, x, SHAPE(2, 6, 12, 4));
    Value *const *part = BUILD(b, split, .a = all, .dim = 2, .pieces = 3, .sizes = {4, 4, 4})->split.y;
    loss(BUILD(b, attention, .q = part[0], .k = part[1], .v = part[2], .causal = true, .scale = 0.5)->attention.o);
    finish();
    const Op *grad = nth(OP_attention_grad, 0), *whole = nth(OP_assemble, 0);
    const Value *of[] = {grad->attention_grad.dq, grad->attention_grad.dk, grad->attention_grad.dv};
    cr_expect_eq(count(OP_concat), 0);
    for (int k = 0; k < 3; k++) {
        cr_expect_eq(of[k]->base, whole->assemble.y);
        cr_expect_eq(of[k]->offset, 16 * k);
        cr_expect_eq(of[k]->stride[1], 48);
    }
}
