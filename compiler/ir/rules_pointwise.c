/* Rules of the pointwise ops: equal shapes, the widest dtype; gradients as PyTorch defines them (derivatives.yaml).
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "rules.h"

#include <math.h>

/* Order of dtypes in mixed arithmetic; bf16 and fp16 meet in fp32. */
enum { FP8_WIDTH = 3 };
static int width(Dtype d) {
    switch (d) {
    case BOOL: return 0;
    case INT32: return 1;
    case INT64: return 2;
    case FP8_E4M3:
    case FP8_E5M2: return FP8_WIDTH;
    case BF16:
    case FP16: return 4;
    case FP32: return 5;
    default: return 6;
    }
}

static Dtype widest(Dtype a, Dtype b) {
    if (a != b && width(a) == width(b)) return FP32;
    return width(a) >= width(b) ? a : b;
}

/* Ops whose result on integers is an integer. */
static bool on_integers(OpKind k) {
    switch (k) {
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_MAXIMUM:
    case OP_MINIMUM:
    case OP_ADD_SCALAR:
    case OP_MUL_SCALAR:
    case OP_NEG:
    case OP_ABS:
    case OP_SIGN:
    case OP_RELU:
    case OP_CLAMP: return true;
    default: return false;
    }
}

static const char *const letters[] = {"a", "b", "c"};

static void need_equal_shapes(Graph *g, const Op *op) {
    for (int i = 1; i < op->nin; i++) {
        const Value *a = op->in[0], *b = op->in[i];
        if (same_shape(a, b)) continue;
        const char *sa = value_str(g->arena, a), *sb = value_str(g->arena, b);
        if (a->dims != b->dims)
            rule_fail(g, op, "%s %s and %s %s: %d dims ≠ %d dims; reshape or expand one of them", letters[0], sa,
                      letters[i], sb, a->dims, b->dims);
        int d = 0;
        while (a->shape[d] == b->shape[d]) d++;
        rule_fail(g, op, "%s %s and %s %s: %lld ≠ %lld in dim %d; sizes must be equal, or 1 to be broadcast",
                  letters[0], sa, letters[i], sb, (long long)a->shape[d], (long long)b->shape[d], d);
    }
}

void infer_pointwise(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    Dtype d = op->in[0]->dtype;
    for (int i = 1; i < op->nin; i++) d = widest(d, op->in[i]->dtype);
    for (int i = 0; i < op->nin; i++)
        if (width(op->in[i]->dtype) == FP8_WIDTH) need_float(g, op, i, letters[i]);
    if (!dtype_float(d) && !on_integers(op->kind)) need_float(g, op, 0, letters[0]);
    if (d == BOOL)
        rule_fail(g, op, "a %s is a mask; use nn.where, or cast it to \"fp32\" first", value_str(g->arena, op->in[0]));
    bool scalar = op->kind == OP_ADD_SCALAR || op->kind == OP_MUL_SCALAR;
    if (scalar && !dtype_float(d) && op->f[0] != trunc(op->f[0]))
        rule_fail(g, op, "a %s with the number %g: an integer tensor takes whole numbers; cast it to \"fp32\" first",
                  value_str(g->arena, op->in[0]), op->f[0]);
    rule_out(g, op, 0, d, op->in[0]->dims, op->in[0]->shape);
}

void infer_compare(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    rule_out(g, op, 0, BOOL, op->in[0]->dims, op->in[0]->shape);
}

void infer_where(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    if (op->in[0]->dtype != BOOL)
        rule_fail(g, op, "the condition %s must be bool; compare it: nn.ne(condition, 0)",
                  value_str(g->arena, op->in[0]));
    rule_out(g, op, 0, widest(op->in[1]->dtype, op->in[2]->dtype), op->in[0]->dims, op->in[0]->shape);
}

void infer_cast(Graph *g, Op *op) {
    Dtype d = (Dtype)op->i[0];
    if (op->i[0] < 0 || op->i[0] >= N_DTYPES)
        rule_fail(g, op, "no dtype number %lld (internal error)", (long long)op->i[0]);
    if (width(d) == FP8_WIDTH || width(op->in[0]->dtype) == FP8_WIDTH)
        rule_fail(g, op, "a %s to %s: fp8 is not supported in casts yet; use \"bf16\"", value_str(g->arena, op->in[0]),
                  dtype_name(d));
    rule_out(g, op, 0, d, op->in[0]->dims, op->in[0]->shape);
}

/* ── gradients ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The gradient of operand i, in its dtype; integers and masks have none. */
static void give(Builder *b, const Op *op, Value **gin, int i, Value *g) {
    if (dtype_float(op->in[i]->dtype)) gin[i] = build_cast(b, g, op->in[i]->dtype);
}

/* Whether operand i can have a gradient at all. */
static bool wanted(const Op *op, int i) {
    return dtype_float(op->in[i]->dtype);
}

/* g where cond holds, exactly zero elsewhere (a product would turn an infinite g into NaN). RELU_GRAD is that choice.
 */
static Value *where_or_zero(Builder *b, Value *g, Value *cond) {
    return build2(b, OP_RELU_GRAD, g, cond);
}

void grad_add(Builder *b, Op *op, Value **gout, Value **gin) {
    give(b, op, gin, 0, gout[0]);
    give(b, op, gin, 1, gout[0]);
}

void grad_sub(Builder *b, Op *op, Value **gout, Value **gin) {
    give(b, op, gin, 0, gout[0]);
    if (wanted(op, 1)) give(b, op, gin, 1, build1(b, OP_NEG, gout[0]));
}

void grad_mul(Builder *b, Op *op, Value **gout, Value **gin) {
    for (int i = 0; i < 2; i++)
        if (wanted(op, i)) give(b, op, gin, i, build2(b, OP_MUL, gout[0], op->in[1 - i]));
}

/* d(a/b) = g/b, −g (a/b)/b */
void grad_div(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *ga = build2(b, OP_DIV, gout[0], op->in[1]);
    if (wanted(op, 0)) give(b, op, gin, 0, ga);
    if (wanted(op, 1)) give(b, op, gin, 1, build1(b, OP_NEG, build2(b, OP_MUL, ga, op->out[0])));
}

/* The greater operand gets g; equal ones get half each. */
static void grad_extremum(Builder *b, Op *op, Value **gout, Value **gin, OpKind first_wins, OpKind second_wins) {
    Value *half = build_scalar(b, OP_MUL_SCALAR, gout[0], 0.5);
    Value *ties = where_or_zero(b, half, build2(b, OP_EQ, op->in[0], op->in[1]));
    OpKind wins[2] = {first_wins, second_wins};
    for (int i = 0; i < 2; i++) {
        if (!wanted(op, i)) continue;
        Value *won = where_or_zero(b, gout[0], build2(b, wins[i], op->in[0], op->in[1]));
        give(b, op, gin, i, build2(b, OP_ADD, won, ties));
    }
}

void grad_maximum(Builder *b, Op *op, Value **gout, Value **gin) {
    grad_extremum(b, op, gout, gin, OP_GT, OP_LT);
}
void grad_minimum(Builder *b, Op *op, Value **gout, Value **gin) {
    grad_extremum(b, op, gout, gin, OP_LT, OP_GT);
}

void grad_add_scalar(Builder *b, Op *op, Value **gout, Value **gin) {
    give(b, op, gin, 0, gout[0]);
}

void grad_mul_scalar(Builder *b, Op *op, Value **gout, Value **gin) {
    give(b, op, gin, 0, build_scalar(b, OP_MUL_SCALAR, gout[0], op->f[0]));
}

/* y = f/a: −g y/a */
void grad_rdiv_scalar(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *slope = build2(b, OP_DIV, op->out[0], op->in[0]);
    gin[0] = build1(b, OP_NEG, build2(b, OP_MUL, gout[0], slope));
}

/* g f a^(f−1); exactly zero for f = 0, where a^−1 may be infinite */
void grad_pow_scalar(Builder *b, Op *op, Value **gout, Value **gin) {
    double f = op->f[0];
    if (f == 0) {
        gin[0] = zeros_like(b, op->in[0]);
        return;
    }
    if (f == 1) {
        gin[0] = gout[0];
        return;
    }
    Value *power = f == 2 ? op->in[0] : build_scalar(b, OP_POW_SCALAR, op->in[0], f - 1);
    gin[0] = build2(b, OP_MUL, gout[0], build_scalar(b, OP_MUL_SCALAR, power, f));
}

void grad_neg(Builder *b, Op *op, Value **gout, Value **gin) {
    give(b, op, gin, 0, build1(b, OP_NEG, gout[0]));
}

void grad_abs(Builder *b, Op *op, Value **gout, Value **gin) {
    if (wanted(op, 0)) gin[0] = build2(b, OP_MUL, gout[0], build1(b, OP_SIGN, op->in[0]));
}

/* Zero, which is a gradient: as in PyTorch a parameter that only its sign is taken of decays. */
void grad_sign(Builder *b, Op *op, Value **gout, Value **gin) {
    if (wanted(op, 0)) gin[0] = zeros_like(b, op->in[0]);
}

void grad_exp(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_MUL, gout[0], op->out[0]);
}
void grad_log(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_DIV, gout[0], op->in[0]);
}

void grad_sqrt(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_DIV, gout[0], build_scalar(b, OP_MUL_SCALAR, op->out[0], 2));
}

/* y = a^−½: −½ g y³ */
void grad_rsqrt(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *cube = build2(b, OP_MUL, build2(b, OP_MUL, op->out[0], op->out[0]), op->out[0]);
    gin[0] = build_scalar(b, OP_MUL_SCALAR, build2(b, OP_MUL, gout[0], cube), -0.5);
}

void grad_tanh(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_TANH_GRAD, gout[0], op->out[0]);
}

void grad_sigmoid(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_SIGMOID_GRAD, gout[0], op->out[0]);
}

void grad_relu(Builder *b, Op *op, Value **gout, Value **gin) {
    if (wanted(op, 0)) gin[0] = build2(b, OP_RELU_GRAD, gout[0], op->out[0]);
}

void grad_gelu(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_GELU_GRAD, gout[0], op->in[0]);
}

void grad_gelu_tanh(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_GELU_TANH_GRAD, gout[0], op->in[0]);
}

void grad_silu(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_SILU_GRAD, gout[0], op->in[0]);
}

/* Both at once: they read the same three values. */
void grad_silu_mul(Builder *b, Op *op, Value **gout, Value **gin) {
    Op *grad = build_op(b, OP_SILU_MUL_GRAD, 3, (Value *[]){gout[0], op->in[0], op->in[1]}, NULL, 0, NULL, 0);
    for (int i = 0; i < 2; i++) gin[i] = grad->out[i];
}

void infer_silu_mul_grad(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    for (int i = 0; i < 2; i++) rule_out_like(g, op, i, op->in[1 + i]);
}

void grad_clamp(Builder *b, Op *op, Value **gout, Value **gin) {
    if (wanted(op, 0))
        gin[0] = build_op(b, OP_CLAMP_GRAD, 2, (Value *[]){gout[0], op->in[0]}, NULL, 0, op->f, 2)->out[0];
}

void grad_where(Builder *b, Op *op, Value **gout, Value **gin) {
    if (wanted(op, 1)) give(b, op, gin, 1, where_or_zero(b, gout[0], op->in[0]));
    if (!wanted(op, 2)) return;
    Value *chosen = build_cast(b, op->in[0], gout[0]->dtype);
    Value *other = build_scalar(b, OP_ADD_SCALAR, build1(b, OP_NEG, chosen), 1); /* 1 − condition */
    give(b, op, gin, 2, where_or_zero(b, gout[0], other));
}

void grad_cast(Builder *b, Op *op, Value **gout, Value **gin) {
    give(b, op, gin, 0, gout[0]);
}
