/* precision, autodiff, fuse, recompute, remove_dead: small graphs, random graphs, and an interpreter that shows that no
 * pass after precision changes a bit and that gradients are right.
 * Relies on: compiler/ir, compiler/lower, Criterion.
 * Relied on by: make test. */
#include "dies.h"
#include "ir/build.h"
#include "ir/policy.h"
#include "lower/lower.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ── a model to build into ──────────────────────────────────────────────────────────────────────────────────────── */
static Graph *g;
static Builder *b;

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                           \
        __VA_ARGS__                                                                                                    \
    }

static Module *module(const char *path, Module *parent) {
    Module *m = NEW(g->arena, Module);
    *m = (Module){.id = g->modules.n, .path = arena_strdup(g->arena, path), .kind = "Block", .parent = parent};
    push(&g->modules, g->arena, m);
    return m;
}

static void start(void) {
    g = graph_new(arena_new());
    g->file = "model.lua";
    g->root = module("", NULL);
    g->root->kind = "Model";
    g->train = NEW(g->arena, Program);
    g->train->name = "train";
    b = NEW(g->arena, Builder);
    *b = (Builder){.g = g, .p = g->train, .module = g->root, .src = {"model.lua", 41}};
}

static UnitPolicy *unit(Module *m, Dtype param, Dtype reduce) {
    UnitPolicy *p = NEW(g->arena, UnitPolicy);
    *p = (UnitPolicy){.src = {"model.lua", 7},
                      .reshard_after_forward = 1,
                      .param_dtype = param,
                      .reduce_dtype = reduce,
                      .has_param_dtype = true,
                      .has_reduce_dtype = true,
                      .cast_forward_inputs = true};
    return m->policy = p;
}
static void unit_giving(Module *m, Dtype param, Dtype output) {
    UnitPolicy *p = unit(m, param, FP32);
    p->has_output_dtype = true;
    p->output_dtype = output;
}

static Checkpoint *checkpoint(bool recompute) {
    Checkpoint *c = NEW(g->arena, Checkpoint);
    *c = (Checkpoint){.src = {"model.lua", 9}, .recompute = recompute};
    return c;
}

static Value *param(Module *owner, const char *path, int dims, const int64_t *shape) {
    Param *p = NEW(g->arena, Param);
    *p = (Param){.split = 1,
                 .id = g->params.n,
                 .path = arena_strdup(g->arena, path),
                 .owner = owner,
                 .dtype = FP32,
                 .dims = dims,
                 .requires_grad = true};
    memcpy(p->shape, shape, sizeof(int64_t) * (size_t)dims);
    p->src = (Source){"model.lua", 5};
    push(&g->params, g->arena, p);
    p->value = value_new(g, FP32, dims, shape);
    p->value->param = p;
    return p->value;
}

static Value *input(const char *name, int dims, const int64_t *shape) {
    Value *v = value_new(g, FP32, dims, shape);
    v->name = name;
    return v;
}

/* Ops built from `first` on belong to one call of a checkpointed module. */
static void in_region(int first, int region, Checkpoint *c) {
    for (int i = first; i < g->train->ops.n; i++) {
        g->train->ops.at[i]->region = region;
        g->train->ops.at[i]->checkpoint = c;
    }
}

static Value *matmul(Value *x, Value *w, int ta, int tb) {
    return BUILD(b, matmul, .a = x, .b = w, .trans_a = ta, .trans_b = tb)->matmul.y;
}

static Value *batch_norm(Value *x, Value *w, Value *bias, Value *mean, Value *var) {
    return BUILD(b, batch_norm, .x = x, .w = w, .b = bias, .running_mean = mean, .running_var = var, .training = true,
                 .eps = 1e-5, .momentum = 0.1)
        ->batch_norm.y;
}

static void loss(Value *v) {
    g->train->loss = BUILD(b, mean, .x = v, .over = (1 << v->dims) - 1)->mean.y;
}

#include "traced.h"

static int count(const Program *p, OpKind k) {
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) n += p->ops.at[i]->kind == k;
    return n;
}

static int count_phase(const Program *p, Phase phase) {
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) n += p->ops.at[i]->phase == phase && !op_is(p->ops.at[i], T_VIEW);
    return n;
}

static Op *op_named(const char *id) {
    for (int i = 0; i < g->train->ops.n; i++)
        if (!strcmp(g->train->ops.at[i]->id, id)) return g->train->ops.at[i];
    cr_assert_fail("no op %s", id);
    return NULL;
}

#include "interpret.h"

/* ── what comes out ─────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    double loss;
    VEC(double) grads;
} Result;

static Result result(void) {
    Result r = {.loss = run(-1, 0, 0)};
    for (int i = 0; i < g->params.n; i++)
        for (int64_t e = 0; g->params.at[i]->reached && e < value_numel(g->params.at[i]->grad); e++)
            push(&r.grads, g->arena, get(g->params.at[i]->grad, e));
    return r;
}

static void expect_same(const Result *a, const Result *c, const char *after) {
    cr_expect(!memcmp(&a->loss, &c->loss, sizeof a->loss), "after %s: loss %.17g, was %.17g", after, c->loss, a->loss);
    cr_assert_eq(a->grads.n, c->grads.n);
    cr_expect(!memcmp(a->grads.at, c->grads.at, sizeof(double) * (size_t)a->grads.n), "after %s: other gradients",
              after);
}

static void expect_right_gradients(void) {
    exact = true;
    run(-1, 0, 0);
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (!p->reached) continue;
        int64_t n = value_numel(p->grad);
        for (int64_t e = 0; e < n; e += n / 3 + 1) {
            double h = 1e-5;
            run(-1, 0, 0);
            double grad = get(p->grad, e);
            double up = run(i, e, h), down = run(i, e, -h), slope = (up - down) / (2 * h);
            cr_expect(fabs(slope - grad) < 1e-6 * (1 + fabs(slope)), "%s[%d]: gradient %g, difference %g", p->path,
                      (int)e, grad, slope);
        }
    }
    exact = false;
}

static void expect_sound_groups(const Program *p) {
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        cr_expect(op->kind == OP_fused || !op_is(op, T_POINTWISE), "%s stands outside any group", op->id);
        if (op->kind != OP_fused) continue;
        cr_expect(op->group >= 0 && op->group < g->ngroups && op->nbody > 0 && op->nout > 0);
        cr_expect(op->nin <= 10 && op->nout <= 6, "%s has %d operands and %d results", op->id, op->nin, op->nout);
        for (int k = 0; k < op->nout; k++)
            cr_expect(!op->out[k]->internal && (op->out[k]->def == op || op->out[k]->base));
        for (int m = 0; m < op->nbody; m++)
            cr_expect(op->body[m]->phase == op->phase && op->body[m]->region == op->region, "%s in %s", op->body[m]->id,
                      op->id);
    }
}

/* ── precision ──────────────────────────────────────────────────────────────────────────────────────────────────── */
Test(precision, casts_at_unit_borders) {
    start();
    Module *inner = module("block", g->root);
    unit(g->root, FP32, FP32);
    unit(inner, BF16, FP32);
    Value *x = input("x", SHAPE(4, 6)), *w = param(inner, "block.w", SHAPE(6, 6)),
          *v = param(g->root, "v", SHAPE(6, 6));
    Value *h = matmul(x, v, 0, 0);
    b->module = inner;
    Value *y = matmul(h, w, 0, 1), *z = build_two(b, OP_add, y, h);
    b->module = g->root;
    loss(build_two(b, OP_mul, z, h));
    typed();
    graph_check(g, "precision");
    cr_expect_eq(w->dtype, BF16);
    cr_expect_eq(v->dtype, FP32);
    cr_expect_eq(h->dtype, FP32);
    cr_expect_eq(y->dtype, BF16);
    cr_expect_eq(z->dtype, BF16);
    cr_expect_eq(count(g->train, OP_cast), 2); /* h once for two users; z promoted */
    cr_expect_eq(y->def->matmul.a, z->def->add.b);
    cr_expect_eq(g->train->loss->dtype, FP32);
}

Test(precision, output_dtype_of_an_inner_unit) {
    start();
    Module *inner = module("block", g->root);
    unit(g->root, BF16, FP32);
    unit_giving(inner, BF16, FP32);
    Value *x = input("x", SHAPE(4, 6));
    b->module = inner;
    Value *y = matmul(x, param(inner, "block.w", SHAPE(6, 6)), 0, 1);
    b->module = g->root;
    Value *a = build_one(b, OP_tanh, y), *c = build_one(b, OP_silu, y);
    loss(build_two(b, OP_add, a, c));
    typed();
    graph_check(g, "precision");
    cr_expect_eq(y->dtype, BF16);
    cr_expect_eq(a->dtype, FP32);
    cr_expect_eq(a->def->tanh.a, c->def->silu.a);
    cr_expect_eq(count(g->train, OP_cast), 2);
}

/* Two inner units of 16 bits in a root of fp32. */
static void two_units(Dtype first, Dtype second, Value *x, Value *out[2]) {
    unit(g->root, FP32, FP32);
    for (int i = 0; i < 2; i++) {
        Module *inner = module(i ? "second" : "first", g->root);
        unit_giving(inner, i ? second : first, i ? second : first);
        b->module = inner;
        out[i] = matmul(x, param(inner, i ? "second.w" : "first.w", SHAPE(6, 6)), 0, 1);
        b->module = g->root;
    }
}

/* So gradients are summed in the wide dtype, and 16 bits of two kinds meet in fp32. */
Test(precision, every_border_has_a_cast_of_its_own) {
    for (int other = 0; other < 2; other++) {
        start();
        Value *y[2];
        two_units(BF16, other ? FP16 : BF16, build_one(b, OP_tanh, input("x", SHAPE(4, 6))), y);
        Value *sum = build_two(b, OP_add, y[0], y[1]);
        loss(sum);
        typed();
        graph_check(g, "precision");
        cr_expect_neq(y[0]->def->matmul.a, y[1]->def->matmul.a);
        cr_expect_eq(sum->dtype, other ? FP32 : BF16);
    }
}

/* output_dtype is for results: a parameter that others read is as it was gathered. */
Test(precision, output_dtype_is_not_for_parameters) {
    start();
    Module *inner = module("block", g->root);
    unit(g->root, FP32, FP32);
    unit_giving(inner, BF16, FP16);
    Value *read = build_one(b, OP_tanh, param(inner, "block.w", SHAPE(6, 6)));
    loss(read);
    typed();
    graph_check(g, "precision");
    cr_expect_eq(read->dtype, BF16);
}

Test(precision, outside_of_all_calls) {
    start();
    unit_giving(g->root, BF16, FP32);
    Value *x = input("x", SHAPE(4, 6)), *t = input("t", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(6, 6));
    Value *y = matmul(x, w, 0, 0);
    b->call = -1; /* the loss function */
    Value *d = build_two(b, OP_sub, y, t);
    loss(build_two(b, OP_mul, d, d));
    typed();
    graph_check(g, "precision");
    cr_expect_eq(y->dtype, BF16);
    cr_expect_eq(d->dtype, FP32);
    cr_expect_eq(d->def->sub.b, t);
    cr_expect_eq(count(g->train, OP_cast), 2);
}

Test(precision, makes_the_loss_a_scalar) {
    start();
    unit(g->root, BF16, FP32);
    Value *x = input("x", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(6, 6));
    g->train->loss = build_reshape(b, BUILD(b, sum, .x = matmul(x, w, 0, 0), .over = 3)->sum.y, SHAPE(1, 1));
    typed();
    graph_check(g, "precision");
    cr_expect_eq(g->train->loss->dtype, FP32);
    cr_expect_eq(g->train->loss->dims, 0);
    lower_autodiff(g, g->train);
    graph_check(g, "autodiff");
}

/* `body` must exit 1 and say `text`. */
static void expect_fail(void (*body)(void), const char *text) {
    char said[4096];
    int got = DIES(said, sizeof said, start(), body());
    cr_expect(got == 1 && strstr(said, text), "ended with %d, said: %s", got, said);
}

static void loss_of_many(void) {
    g->train->loss = matmul(input("x", SHAPE(4, 6)), param(g->root, "w", SHAPE(6, 6)), 0, 0);
    typed();
}

static void loss_of_integers(void) {
    g->train->loss = build_cast(b, input("x", 0, NULL), INT32);
    typed();
}

static void loss_of_nothing(void) {
    loss(build_one(b, OP_detach, param(g->root, "w", SHAPE(6, 6))));
    typed();
    lower_autodiff(g, g->train);
}

static void gradient_of_none(void) {
    Value *w = param(g->root, "w", SHAPE(6, 6));
    loss(build_two(b, OP_tanh_grad, w, w)); /* an op of the backward has no rule */
    lower_units(g);
    lower_autodiff(g, g->train);
}

static void save_of_unknown(void) {
    Checkpoint *c = checkpoint(true);
    c->save = (const char *[]){"atention"};
    c->nsave = 1;
    loss(matmul(input("x", SHAPE(4, 6)), param(g->root, "w", SHAPE(6, 6)), 0, 0));
    in_region(0, 1, c);
    typed();
    lower_autodiff(g, g->train);
    lower_fuse(g, g->train);
    lower_recompute(g, g->train);
}

static void save_of_nonsense(void) {
    Checkpoint *c = checkpoint(true);
    c->offload = (const char *[]){"0123456789"};
    c->noffload = 1;
    loss(matmul(input("x", SHAPE(4, 6)), param(g->root, "w", SHAPE(6, 6)), 0, 0));
    in_region(0, 1, c);
    lower_recompute(g, g->train);
}

Test(diagnostics, say_what_to_do) {
    expect_fail(loss_of_many,
                "model.lua:41: the loss is fp32[4,6], and must be one number; reduce it with nn.mean or nn.sum");
    expect_fail(loss_of_integers, "model.lua:41: the loss is int32[], and must be floating point");
    expect_fail(loss_of_nothing, "model.lua:41: the loss reaches no trainable parameter");
    expect_fail(gradient_of_none, "model.lua:41: tanh_grad has no gradient");
    expect_fail(save_of_unknown, "model.lua:9: nn.checkpoint: save = { \"atention\" }: neither an op, nor a kind of "
                                 "module, nor a submodule here; "
                                 "did you mean \"attention\"?");
    expect_fail(save_of_nonsense,
                "model.lua:9: nn.checkpoint: offload = { \"0123456789\" }: neither an op, nor a kind of "
                "module, nor a submodule here; write an op's name");
}

/* ── autodiff ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static void to_autodiff(void) {
    typed();
    graph_check(g, "precision");
    lower_autodiff(g, g->train);
    graph_check(g, "autodiff");
}

Test(autodiff, weights_are_reduced_in_fp32) {
    start();
    unit(g->root, BF16, FP32);
    Value *x = input("x", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(6, 6)), *bias = param(g->root, "b", SHAPE(6));
    Value *wt = build_transpose(b, w, (int[]){1, 0}), *y = matmul(x, wt, 0, 0);
    loss(build_two(b, OP_add, y, build_expand(b, bias, SHAPE(4, 6))));
    to_autodiff();
    for (int i = 0; i < 2; i++) {
        const Value *grad = g->params.at[i]->grad;
        cr_expect(g->params.at[i]->reached);
        cr_expect_eq(grad->dtype, FP32);
        cr_expect_null(grad->base);
        cr_expect(value_contiguous(grad));
    }
    cr_expect_eq(w->param->grad->def->kind, OP_copy); /* w's gradient came as the transpose of a product */
    cr_expect_eq(w->param->grad->def->copy.a->dtype, FP32);
    cr_expect_eq(bias->param->grad->def->kind, OP_sum); /* straight from bf16 to fp32 */
    cr_expect_eq(bias->param->grad->def->sum.x->dtype, BF16);
    cr_expect_eq(op_named("e1b1")->phase, BACKWARD);
    expect_right_gradients();
    release();
}

Test(autodiff, shared_and_frozen_parameters) {
    start();
    Value *x = input("x", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(6, 6)), *a = param(g->root, "a", SHAPE(4, 6));
    Value *c = param(g->root, "c", SHAPE(4, 6)), *f = param(g->root, "f", SHAPE(6, 6)),
          *unused = param(g->root, "u", SHAPE(3));
    f->param->requires_grad = false;
    Value *y = matmul(matmul(matmul(x, f, 0, 0), w, 0, 0), w, 0, 1); /* w twice */
    loss(build_two(b, OP_mul, y, build_two(b, OP_add, a, c)));       /* a and c get one gradient */
    to_autodiff();
    cr_expect(!f->param->reached && !unused->param->reached && !unused->param->grad);
    cr_expect_neq(a->param->grad, c->param->grad);
    cr_expect_eq(count(g->train, OP_copy), 2);
    cr_expect_eq(count(g->train, OP_matmul), 3 + 4 - 1); /* nothing towards f and x */
    expect_right_gradients();
    release();
}

Test(autodiff, split_of_a_parameter) {
    start();
    unit(g->root, BF16, FP32);
    Value *x = input("x", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(6, 12));
    Op *split = BUILD(b, split, .a = w, .dim = 1, .pieces = 2, .sizes = {6, 6});
    loss(matmul(x, split->split.y[1], 0, 0)); /* the other piece has no gradient */
    to_autodiff();
    cr_expect_eq(w->param->grad->dtype, FP32);
    expect_right_gradients();
    release();
}

/* ── fuse ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void to_fuse(void) {
    to_autodiff();
    lower_fuse(g, g->train);
    graph_check(g, "fuse");
    expect_sound_groups(g->train);
}

Test(fuse, gated_mlp) {
    start();
    Value *x = input("x", SHAPE(4, 6)), *w1 = param(g->root, "w1", SHAPE(6, 6)),
          *w2 = param(g->root, "w2", SHAPE(6, 6));
    Value *w3 = param(g->root, "w3", SHAPE(6, 6));
    Value *gate = build_one(b, OP_silu, matmul(x, w1, 0, 1)), *up = matmul(x, w2, 0, 1);
    Value *h = build_two(b, OP_mul, gate, up);
    loss(matmul(h, w3, 0, 1));
    to_autodiff();
    Result before = result();
    release();
    lower_fuse(g, g->train);
    graph_check(g, "fuse");
    expect_sound_groups(g->train);
    Result after = result();
    expect_same(&before, &after, "fuse");
    release();
    Op *forward = op_named("e1");
    cr_expect_eq(forward->kind, OP_fused);
    cr_expect_eq(forward->nbody, 2);
    cr_expect_eq(forward->nin, 2);
    cr_expect_eq(forward->nout, 2); /* silu(gate) is kept for the backward */
    Op *backward = op_named("e3b0");
    cr_expect_eq(backward->nbody, 3); /* g·silu, g·up, silu' */
    cr_expect_eq(backward->nout, 2);
}

Test(fuse, layers_share_kernels) {
    start();
    Value *h = input("x", SHAPE(4, 6));
    for (int l = 0; l < 5; l++) {
        Value *w = param(g->root, arena_printf(g->arena, "w%d", l), SHAPE(6, 6));
        h = build_two(b, OP_add, h, build_one(b, OP_tanh, matmul(h, w, 0, 1)));
    }
    loss(h);
    to_fuse();
    int first = op_named("e1")->group;
    for (int l = 0; l < 4; l++) cr_expect_eq(op_named(arena_printf(g->arena, "e%d", 3 * l + 1))->group, first);
    cr_expect_leq(g->ngroups, 8);
}

Test(fuse, no_path_leaves_a_group_and_returns) {
    start();
    Value *x = input("x", SHAPE(6, 6)), *w = param(g->root, "w", SHAPE(6, 6));
    Value *a = build_one(b, OP_tanh, build_two(b, OP_add, x, w));
    Value *m = matmul(a, a, 0, 0);
    Value *c = build_two(b, OP_mul, a, m); /* reads a, and what a matmul made of a */
    loss(c);
    to_fuse();
    cr_expect_eq(op_named("e0")->nbody, 2);
    cr_expect_eq(op_named("e3")->nbody, 1);
}

Test(fuse, transposes_become_flags) {
    start();
    Value *x = input("x", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(8, 6));
    Value *y = matmul(x, build_transpose(b, w, (int[]){1, 0}), 0, 0);
    Value *s = BUILD(b, slice, .a = y, .dim = 1, .start = 2, .length = 4)->slice.y;
    loss(matmul(s, build_expand(b, param(g->root, "v", SHAPE(1, 5)), SHAPE(4, 5)), 0, 0));
    to_autodiff();
    Result before = result();
    release();
    lower_fuse(g, g->train);
    graph_check(g, "fuse");
    Result after = result();
    expect_same(&before, &after, "fuse");
    release();
    const Op *first = op_named("e1"), *second = op_named("e4");
    cr_expect(first->matmul.trans_b && value_contiguous(first->matmul.b));
    cr_expect_eq(second->matmul.a, s);                  /* a slice has a leading dimension */
    cr_expect_eq(second->matmul.b->def->kind, OP_copy); /* an expanded row has none */
}

/* Leading dims that are no one dim with the rows are copied together for BLAS. */
Test(fuse, rows_that_do_not_fold) {
    start();
    Value *x = build_one(b, OP_tanh, param(g->root, "x", SHAPE(3, 4, 6))), *w = param(g->root, "w", SHAPE(6, 5));
    Value *swapped = build_transpose(b, x, (int[]){1, 0, 2});
    Value *y = matmul(swapped, w, 0, 0), *z = matmul(x, w, 0, 0);
    loss(build_two(b, OP_add, build_transpose(b, y, (int[]){1, 0, 2}), z));
    to_autodiff();
    Result before = result();
    release();
    lower_fuse(g, g->train);
    graph_check(g, "fuse");
    Result after = result();
    expect_same(&before, &after, "fuse");
    release();
    cr_expect_eq(op_named("e2")->matmul.a->def->kind, OP_copy);
    cr_expect_eq(op_named("e3")->matmul.a, x);
}

Test(fuse, limits) {
    start();
    Value *sum = NULL;
    for (int i = 0; i < 30; i++) {
        Value *v = build_one(b, OP_tanh, param(g->root, arena_printf(g->arena, "p%02d", i), SHAPE(4, 6)));
        sum = sum ? build_two(b, OP_add, sum, v) : v;
    }
    loss(sum);
    to_autodiff();
    Result before = result();
    release();
    lower_fuse(g, g->train);
    graph_check(g, "fuse");
    expect_sound_groups(g->train);
    Result after = result();
    expect_same(&before, &after, "fuse");
    release();
}

/* A read of a running statistic keeps its place. */
Test(fuse, reads_of_written_buffers_stay) {
    start();
    Value *x = input("x", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(6)), *bias = param(g->root, "b", SHAPE(6));
    Value *mean = param(g->root, "mean", SHAPE(6)), *var = param(g->root, "var", SHAPE(6));
    mean->param->is_buffer = var->param->is_buffer = true;
    Value *before = build_scalar(b, OP_mul_scalar, mean, 2);
    Value *y = batch_norm(x, w, bias, mean, var);
    Value *after = build_scalar(b, OP_mul_scalar, mean, 3);
    Value *both = build_expand(b, build_two(b, OP_add, before, after), SHAPE(4, 6));
    loss(build_two(b, OP_add, y, both));
    in_region(0, 1, checkpoint(true));
    to_fuse();
    cr_expect_eq(op_named("e0")->nbody, 1);
    cr_expect_eq(op_named("e2")->nbody, 1);
    lower_recompute(g, g->train);
    graph_check(g, "recompute");
    cr_expect_eq(count(g->train, OP_batch_norm), 2);
    cr_expect_eq(op_named("e1r")->batch_norm.keep_running, 1);
    cr_expect_eq(op_named("e1")->batch_norm.keep_running, 0);
}

/* ── recompute ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static Value *block(Value *x, int n, Checkpoint *c) {
    int first = g->train->ops.n;
    b->module = module(arena_printf(g->arena, "layers.%d", n), g->root);
    Value *w1 = param(b->module, arena_printf(g->arena, "layers.%d.up", n), SHAPE(6, 6));
    Value *w2 = param(b->module, arena_printf(g->arena, "layers.%d.down", n), SHAPE(6, 6));
    Value *h = build_one(b, OP_tanh, matmul(build_one(b, OP_softmax, x), w1, 0, 1));
    Value *y = build_two(b, OP_add, x, matmul(h, w2, 0, 1));
    if (c) in_region(first, n + 1, c);
    b->module = g->root;
    return y;
}

static void blocks(int n, Checkpoint *c) {
    unit(g->root, BF16, FP32);
    Value *h = input("x", SHAPE(4, 6));
    for (int l = 0; l < n; l++) h = block(h, l, c);
    loss(h);
}

/* Forward values that the backward reads. */
static int kept(void) {
    bool *seen = NEW_ARRAY(g->arena, bool, g->values.n);
    int n = 0;
    for (int i = 0; i < g->train->ops.n; i++) {
        const Op *op = g->train->ops.at[i];
        if (op->phase == FORWARD || op_is(op, T_VIEW)) continue;
        for (int k = 0; k < op->nin; k++) {
            const Value *v = op->in[k] ? value_root(op->in[k]) : NULL;
            if (!v || !v->def || v->def->phase != FORWARD || seen[v->id]) continue;
            seen[v->id] = true;
            n++;
        }
    }
    return n;
}

static void expect_recompute(Checkpoint *c, int forward_kept, int clones) {
    to_fuse();
    Result before = result();
    release();
    lower_recompute(g, g->train);
    graph_check(g, "recompute");
    expect_sound_groups(g->train);
    Result after = result();
    expect_same(&before, &after, "recompute");
    release();
    cr_expect_eq(kept(), forward_kept, "%d forward values are kept, not %d", kept(), forward_kept);
    cr_expect_eq(count_phase(g->train, RECOMPUTE), clones, "%d clones, not %d", count_phase(g->train, RECOMPUTE),
                 clones);
}

Test(recompute, everything_but_the_input) {
    start();
    Checkpoint *c = checkpoint(true);
    blocks(3, c);
    expect_recompute(c, 3, 9); /* the blocks' inputs (the first is a cast); softmax, matmul, tanh of each */
    const Op *first = op_named("e0r");
    cr_expect_eq(first->phase, RECOMPUTE);
    cr_expect_eq(first->origin, op_named("e0"));
    cr_expect_eq(op_named("e2r")->group, op_named("e2")->group);
}

Test(recompute, none) {
    start();
    blocks(3, NULL);
    expect_recompute(NULL, 6, 0); /* softmax, tanh of each */
}

Test(recompute, saves_by_name) { /* what is offloaded is kept as well */
    for (int away = 0; away < 2; away++) {
        start();
        Checkpoint *c = checkpoint(true);
        *(away ? &c->offload : &c->save) = (const char *[]){"softmax", "tanh"};
        *(away ? &c->noffload : &c->nsave) = 2;
        blocks(3, c);
        expect_recompute(c, 6, 0);
        cr_expect(op_named("e0")->softmax.y->saved);
    }
}

Test(recompute, saves_by_kind_of_module) { /* "linear" means what modules of kind Linear make */
    start();
    Checkpoint *c = checkpoint(true);
    c->save = (const char *[]){"block"};
    c->nsave = 1;
    blocks(3, c);
    expect_recompute(c, 6, 0);
}

Test(recompute, offloads_inputs) {
    start();
    Checkpoint *c = checkpoint(true);
    c->offload = (const char *[]){"input"};
    c->noffload = 1;
    blocks(3, c);
    expect_recompute(c, 3, 9);
    int n = 0;
    for (int i = 0; i < g->values.n; i++) n += g->values.at[i]->offload;
    cr_expect_eq(n, 3);
}

Test(recompute, offloads_without_recomputing) {
    for (int all = 0; all < 2; all++) {
        start();
        Checkpoint *c = checkpoint(false);
        c->offload = (const char *[]){all ? "*" : "input"};
        c->noffload = 1;
        blocks(2, c);
        expect_recompute(c, 4, 0);
        int n = 0;
        for (int i = 0; i < g->values.n; i++) n += g->values.at[i]->offload;
        cr_expect_eq(n, all ? 4 : 0, "the backward reads no input");
    }
}

/* By the time of the backward the buffer holds something else: what was read of it is kept. */
Test(recompute, reads_of_written_buffers_are_kept) {
    start();
    Value *x = input("x", SHAPE(4, 6)), *w = param(g->root, "w", SHAPE(6)), *bias = param(g->root, "b", SHAPE(6));
    Value *mean = param(g->root, "mean", SHAPE(6)), *var = param(g->root, "var", SHAPE(6));
    mean->param->is_buffer = var->param->is_buffer = true;
    Value *read = build_scalar(b, OP_mul_scalar, mean, 2);
    Value *y = batch_norm(x, w, bias, mean, var);
    loss(build_two(b, OP_mul, y, build_expand(b, read, SHAPE(4, 6))));
    in_region(0, 1, checkpoint(true));
    to_fuse();
    lower_recompute(g, g->train);
    for (int i = 0; i < g->train->ops.n; i++) cr_expect_str_neq(g->train->ops.at[i]->id, "e0r");
    cr_expect_eq(count(g->train, OP_batch_norm), 2, "what does not read it is made again");
}

/* A checkpointed module inside a checkpointed call: what enters it is kept if its own list says so. */
Test(recompute, lists_of_inner_modules) {
    start();
    Checkpoint *outer = checkpoint(true), *inner = checkpoint(true);
    inner->save = (const char *[]){"input"};
    inner->nsave = 1;
    Module *middle = module("middle", g->root), *deep = module("middle.deep", middle);
    deep->checkpoint = inner;
    Value *h = input("x", SHAPE(4, 6)), *entering = NULL;
    for (int l = 0; l < 2; l++) {
        b->module = l ? deep : middle;
        h = build_one(b, OP_tanh, matmul(h, param(b->module, l ? "v" : "w", SHAPE(6, 6)), 0, 0));
        if (!l) entering = h;
    }
    in_region(0, 1, outer);
    b->module = g->root;
    loss(h);
    expect_recompute(outer, 1, 2); /* the first tanh is kept; matmul and tanh of the inner module are not */
    cr_expect(entering->saved);
}

/* What a call within it has made does not enter a checkpointed module. */
Test(recompute, inner_calls_make_no_inputs) {
    start();
    Checkpoint *outer = checkpoint(false), *inner = checkpoint(true);
    outer->offload = (const char *[]){"input"};
    outer->noffload = 1;
    Module *middle = module("middle", g->root);
    middle->checkpoint = outer;
    Value *w = param(middle, "w", SHAPE(6, 6)), *first = build_one(b, OP_tanh, input("x", SHAPE(4, 6)));
    b->module = middle;
    Value *within = matmul(first, w, 0, 0);
    in_region(1, 1, outer);
    within = build_one(b, OP_tanh, within);
    in_region(2, 2, inner);
    Value *last = build_one(b, OP_tanh, within);
    in_region(3, 1, outer);
    b->module = g->root;
    loss(last);
    to_fuse();
    lower_recompute(g, g->train);
    cr_expect(first->offload && !within->offload);
}

/* ── random graphs ──────────────────────────────────────────────────────────────────────────────────────────────── */
static uint64_t seed;
static int pick(int n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

typedef VEC(Value *) Pool;

static Value *any(const Pool *p) {
    return p->at[p->n > 6 && pick(4) ? p->n - 1 - pick(6) : pick(p->n)];
}

static Value *twisted(const Pool *p) { /* transposed, computed on, and back, by a copy or not */
    int perm[2] = {1, 0};
    Value *t = build_two(b, OP_mul, build_transpose(b, any(p), perm), build_transpose(b, any(p), perm));
    if (pick(2)) t = build_one(b, OP_tanh, t);
    return build_transpose(b, t, perm);
}

static Value *joined(const Pool *p) { /* halves swapped */
    Value *x = any(p);
    Value *const *part = BUILD(b, split, .a = x, .dim = 1, .pieces = 2, .sizes = {2, 4})->split.y;
    Value *second = pick(3) ? part[0] : build_one(b, OP_neg, part[0]);
    return BUILD(b, concat, .x = {part[1], second}, .dim = 1)->concat.y;
}

static Value *fresh_param(int dims, const int64_t *shape) {
    Value *v = param(b->module, arena_printf(g->arena, "p%03d", g->params.n), dims, shape);
    v->param->requires_grad = pick(8) != 0;
    return v;
}

static Value *random_value(const Pool *p) {
    static const OpKind binary[] = {OP_add, OP_sub, OP_mul}, unary[] = {OP_neg, OP_tanh, OP_silu, OP_softmax};
    Value *x = any(p);
    switch (pick(12)) {
    case 0:
    case 1:
    case 2:
    case 3: return build_two(b, binary[pick(3)], x, any(p));
    case 4:
    case 5: return build_one(b, unary[pick(4)], x);
    case 6: return build_scalar(b, pick(2) ? OP_mul_scalar : OP_add_scalar, x, 0.5 + pick(3));
    case 7: return matmul(x, fresh_param(SHAPE(6, 6)), 0, pick(2));
    case 8: return twisted(p);
    case 9: return joined(p);
    case 10: return build_two(b, binary[pick(3)], x, build_expand(b, fresh_param(SHAPE(6)), SHAPE(4, 6)));
    default: return BUILD(b, dropout, .x = x, .key = pick(100), .p = 0.3)->dropout.y;
    }
}

static void random_model(void) {
    start();
    Checkpoint *c = checkpoint(pick(4) != 0);
    static const char *save[] = {"matmul", "tanh"}, *offload[] = {"input", "softmax"};
    if (pick(2)) c->save = save, c->nsave = 2;
    if (pick(2)) c->offload = offload, c->noffload = 2;
    Dtype outer = pick(2) ? BF16 : FP32;
    unit(g->root, outer, FP32);
    Pool pool = {0};
    push(&pool, g->arena, input("x", SHAPE(4, 6)));
    push(&pool, g->arena, fresh_param(SHAPE(4, 6)));
    pool.at[1]->param->requires_grad = true;
    for (int l = 0; l < 4; l++) {
        int first = g->train->ops.n;
        b->module = module(arena_printf(g->arena, "layers.%d", l), g->root);
        UnitPolicy *policy = pick(2) ? unit(b->module, pick(2) ? BF16 : FP32, pick(2) ? FP32 : BF16) : NULL;
        if (policy) policy->has_output_dtype = true, policy->output_dtype = outer;
        for (int i = 0; i < 8; i++) {
            Value *v = random_value(&pool);
            push(&pool, g->arena, v);
        }
        if (pick(3)) in_region(first, l + 1, c);
    }
    b->module = g->root;
    Value *h = pool.at[1];
    for (int i = 0; i < 4; i++) h = build_two(b, OP_add, h, any(&pool));
    loss(h);
}

Test(random, passes_keep_every_bit, .timeout = 120) {
    for (int s = 1; s <= 300; s++) {
        seed = (uint64_t)s;
        random_model();
        to_autodiff();
        if (s % 10 == 0) expect_right_gradients();
        Result traced = result();
        release();
        lower_fuse(g, g->train);
        graph_check(g, "fuse");
        expect_sound_groups(g->train);
        Result fused = result();
        expect_same(&traced, &fused, arena_printf(g->arena, "fuse of seed %d", s));
        release();
        lower_recompute(g, g->train);
        graph_check(g, "recompute");
        expect_sound_groups(g->train);
        Result recomputed = result();
        expect_same(&traced, &recomputed, arena_printf(g->arena, "recompute of seed %d", s));
        release();
        int n = g->train->ops.n;
        lower_remove_dead(g, g->train);
        cr_expect_eq(g->train->ops.n, n);
        arena_free(g->arena);
    }
}

/* ── time ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Processor time of five passes over a model of n blocks, the least of three times. */
enum { PASSES = 5 };
static void time_passes(int n, double least[PASSES]) {
    void (*passes[PASSES])(Graph *, Program *) = {lower_precision, lower_autodiff, lower_fuse, lower_recompute,
                                                  lower_remove_dead};
    for (int i = 0; i < PASSES; i++) least[i] = INFINITY;
    for (int k = 0; k < 3; k++) {
        start();
        blocks(n, checkpoint(true));
        traced();
        lower_units(g);
        for (int i = 0; i < PASSES; i++) {
            clock_t from = clock();
            passes[i](g, g->train);
            least[i] = fmin(least[i], (double)(clock() - from) / CLOCKS_PER_SEC);
        }
        arena_free(g->arena);
    }
}

/* Seconds of joining products, of which n read one value; the least of some times. */
static double time_wide(int n, int times) {
    start();
    unit(g->root, FP32, FP32);
    Value *x = input("x", SHAPE(4, 16)), *sum = x;
    for (int i = 0; i < n; i++) sum = build_two(b, OP_add, sum, matmul(x, param(g->root, "w", SHAPE(16, 16)), 0, 1));
    loss(sum);
    lower_units(g);
    clock_t from = clock();
    lower_qkv_fusion(g, g->train);
    double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
    arena_free(g->arena);
    return times > 1 ? fmin(seconds, time_wide(n, times - 1)) : seconds;
}

/* Eight times the program: eight times as long, where a quadratic pass takes 64 times. Below 8 ms a clock says little.
 */
Test(time, grows_with_the_program) {
    double once[PASSES], eight[PASSES], wide = time_wide(4000, 3), wider = time_wide(32000, 3);
    cr_expect_lt(wider, 32 * fmax(wide, 0.008), "products of one value: %.3f s, then %.3f", wide, wider);
    time_passes(1250, once);
    time_passes(10000, eight);
    for (int i = 0; i < PASSES; i++) {
        if (getenv("SHOW")) fprintf(stderr, "pass %d: %.4f s, %.4f s\n", i, once[i], eight[i]);
        cr_expect_lt(eight[i], 32 * fmax(once[i], 0.008), "pass %d: %.3f s, then %.3f", i, once[i], eight[i]);
    }
}
