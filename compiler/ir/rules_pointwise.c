/* Rules of the pointwise ops: equal shapes, the widest dtype; gradients as PyTorch defines them (derivatives.yaml).
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "rules.h"

#include <math.h>

/* The order of dtypes in mixed arithmetic. Two dtypes of one width meet in fp32. */
static int width(Dtype d) {
    switch (d) {
    case BOOL: return 0;
    case INT32: return 1;
    case INT64: return 2;
    case FP8_E4M3:
    case FP8_E5M2: return 3;
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

/* Ops that compute integers from integers. */
static const bool on_integers[N_OPS] = {
    [OP_add] = true,     [OP_sub] = true,        [OP_mul] = true,  [OP_maximum] = true,
    [OP_minimum] = true, [OP_add_scalar] = true, [OP_neg] = true,  [OP_mul_scalar] = true,
    [OP_abs] = true,     [OP_sign] = true,       [OP_relu] = true, [OP_clamp] = true,
};

static const char *const letters[] = {"a", "b", "c"};

static void need_equal_shapes(Graph *g, const Op *op) {
    const Value *a = op_operand(op);
    for (int i = 1; i < op->nin; i++) {
        const Value *b = op->in[i];
        if (value_same_shape(a, b)) continue;
        const char *sa = value_str(g->arena, a), *sb = value_str(g->arena, b);
        if (a->dims != b->dims)
            rule_fail(g, op, "a %s and %s %s: %d dims ≠ %d dims; reshape or expand one of them", sa, letters[i], sb,
                      a->dims, b->dims);
        int d = 0;
        while (a->shape[d] == b->shape[d]) d++;
        rule_fail(g, op, "a %s and %s %s: %lld ≠ %lld in dim %d; sizes must be equal, or 1 to be broadcast", sa,
                  letters[i], sb, (long long)a->shape[d], (long long)b->shape[d], d);
    }
}

void infer_pointwise(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    const Value *a = op_operand(op);
    Dtype d = a->dtype;
    for (int i = 1; i < op->nin; i++) d = widest(d, op->in[i]->dtype);
    for (int i = 0; i < op->nin; i++)
        if (rule_is_stored(op->in[i]->dtype)) rule_need_float(g, op, op->in[i], letters[i]);
    if (!dtype_float(d) && !on_integers[op->kind]) rule_need_float(g, op, a, "a");
    if (d == BOOL)
        rule_fail(g, op, "a %s is a mask; use nn.where, or cast it to \"fp32\" first", value_str(g->arena, a));
    bool scalar = op->kind == OP_add_scalar || op->kind == OP_mul_scalar;
    if (scalar && !dtype_float(d) && FLOAT_OF(op, x) != trunc(FLOAT_OF(op, x)))
        rule_fail(g, op, "a %s with the number %g: an integer tensor takes whole numbers; cast it to \"fp32\" first",
                  value_str(g->arena, a), FLOAT_OF(op, x));
    rule_out(g, op, &RESULT_OF(op, y), d, a->dims, a->shape);
}

void infer_compare(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    const Value *a = op_operand(op);
    rule_out(g, op, &RESULT_OF(op, y), BOOL, a->dims, a->shape);
}

void infer_where(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    const Value *condition = op->where.condition;
    if (condition->dtype != BOOL)
        rule_fail(g, op, "the condition %s must be bool; compare it: nn.ne(condition, 0)",
                  value_str(g->arena, condition));
    rule_out(g, op, &op->where.y, widest(op->where.a->dtype, op->where.b->dtype), condition->dims, condition->shape);
}

void infer_cast(Graph *g, Op *op) {
    const Value *a = op->cast.a;
    Dtype d = (Dtype)op->cast.dtype;
    if (op->cast.dtype < 0 || op->cast.dtype >= N_DTYPES)
        rule_fail(g, op, "no dtype number %lld (internal error)", (long long)op->cast.dtype);
    if (rule_is_stored(d) || rule_is_fp8(a->dtype))
        rule_fail(g, op, "a %s to %s: fp8 is not supported in casts yet; use \"bf16\"", value_str(g->arena, a),
                  dtype_name(d));
    rule_out(g, op, &op->cast.y, d, a->dims, a->shape);
}

/* ── gradients ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Only floating-point operands have a gradient. */
static bool wanted(const Value *v) {
    return dtype_float(v->dtype);
}

/* The gradient g of v, cast to the dtype of v. */
static Value *as_grad_of(Builder *b, const Value *v, Value *g) {
    return wanted(v) ? build_cast(b, g, v->dtype) : NULL;
}

/* g where cond > 0, else exactly zero. relu_grad selects; a product would turn an infinite g into NaN. */
static Value *where_or_zero(Builder *b, Value *g, Value *cond) {
    return build_two(b, OP_relu_grad, g, cond);
}

void grad_add(Builder *b, Op *op, OpParts *d) {
    d->add.a = as_grad_of(b, op->add.a, d->add.y);
    d->add.b = as_grad_of(b, op->add.b, d->add.y);
}

void grad_sub(Builder *b, Op *op, OpParts *d) {
    d->sub.a = as_grad_of(b, op->sub.a, d->sub.y);
    if (wanted(op->sub.b)) d->sub.b = as_grad_of(b, op->sub.b, build_one(b, OP_neg, d->sub.y));
}

void grad_mul(Builder *b, Op *op, OpParts *d) {
    Value *x = op->mul.a, *y = op->mul.b;
    if (wanted(x)) d->mul.a = as_grad_of(b, x, build_two(b, OP_mul, d->mul.y, y));
    if (wanted(y)) d->mul.b = as_grad_of(b, y, build_two(b, OP_mul, d->mul.y, x));
}

/* d(a/b) = g/b, −g (a/b)/b */
void grad_div(Builder *b, Op *op, OpParts *d) {
    Value *ga = build_two(b, OP_div, d->div.y, op->div.b);
    d->div.a = as_grad_of(b, op->div.a, ga);
    if (!wanted(op->div.b)) return;
    d->div.b = as_grad_of(b, op->div.b, build_one(b, OP_neg, build_two(b, OP_mul, ga, op->div.y)));
}

static Value *where(Builder *b, Value *condition, Value *x, Value *y) {
    return BUILD(b, where, .condition = condition, .a = x, .b = y)->where.y;
}

/* maximum, minimum: the operand that was chosen gets g; equal ones get half each, and both get g where one is NaN. */
void grad_extremum(Builder *b, Op *op, OpParts *d) {
    Value *x = OPERAND_OF(op, a), *y = OPERAND_OF(op, b), *g = *d->out, *none = rule_zeros_like(b, g);
    Value *share = where(b, build_two(b, OP_eq, x, y), build_scalar(b, OP_mul_scalar, g, 0.5), g);
    for (int i = 0; i < op->nin; i++) {
        if (!wanted(op->in[i])) continue;
        bool less = (op->kind == OP_maximum) == (i == 0);
        Value *lost = build_two(b, less ? OP_lt : OP_gt, x, y);
        d->in[i] = as_grad_of(b, op->in[i], where(b, lost, none, share));
    }
}

/* add_scalar, cast: the gradient is that of the result. */
void grad_identity(Builder *b, Op *op, OpParts *d) {
    *d->in = as_grad_of(b, op_operand(op), *d->out);
}

void grad_mul_scalar(Builder *b, Op *op, OpParts *d) {
    Value *g = build_scalar(b, OP_mul_scalar, d->mul_scalar.y, op->mul_scalar.x);
    d->mul_scalar.a = as_grad_of(b, op->mul_scalar.a, g);
}

/* y = x/a: −g y/a */
void grad_rdiv_scalar(Builder *b, Op *op, OpParts *d) {
    Value *slope = build_two(b, OP_div, op->rdiv_scalar.y, op->rdiv_scalar.a);
    d->rdiv_scalar.a = build_one(b, OP_neg, build_two(b, OP_mul, d->rdiv_scalar.y, slope));
}

/* g x a^(x−1); exactly zero for x = 0, where a^−1 may be infinite */
void grad_pow_scalar(Builder *b, Op *op, OpParts *d) {
    Value *a = op->pow_scalar.a, *g = d->pow_scalar.y;
    double x = op->pow_scalar.x;
    if (x == 0) {
        d->pow_scalar.a = rule_zeros_like(b, a);
        return;
    }
    if (x == 1) {
        d->pow_scalar.a = g;
        return;
    }
    Value *power = x == 2 ? a : build_scalar(b, OP_pow_scalar, a, x - 1);
    d->pow_scalar.a = build_two(b, OP_mul, g, build_scalar(b, OP_mul_scalar, power, x));
}

/* g / (1 + e^(b-a)), g / (1 + e^(a-b)) */
void grad_logaddexp(Builder *b, Op *op, OpParts *d) {
    for (int i = 0; i < op->nin; i++) {
        Value *share = build_one(b, OP_sigmoid, build_two(b, OP_sub, op->in[i], op->in[1 - i]));
        d->in[i] = as_grad_of(b, op->in[i], build_two(b, OP_mul, d->logaddexp.y, share));
    }
}

/* g log b, zero for a = 0 and b <= 0; g a / b */
void grad_xlogy(Builder *b, Op *op, OpParts *d) {
    Value *x = op->xlogy.a, *y = op->xlogy.b, *g = d->xlogy.y, *none = rule_zeros_like(b, op->xlogy.y);
    Value *slope = build_two(b, OP_mul, g, build_one(b, OP_log, y));
    Value *of_zero = where(b, build_two(b, OP_le, y, none), none, slope);
    d->xlogy.a = as_grad_of(b, x, where(b, build_two(b, OP_eq, x, none), of_zero, slope));
    d->xlogy.b = as_grad_of(b, y, build_two(b, OP_div, build_two(b, OP_mul, g, x), y));
}

/* a: the next row; g (log(1 - a) - log a) */
void grad_bce(Builder *b, Op *op, OpParts *d) {
    Value *x = op->bce.a, *y = op->bce.b, *g = d->bce.y;
    d->bce.a = as_grad_of(b, x, BUILD(b, bce_grad, .g = g, .a = x, .b = y)->bce_grad.y);
    Value *other = build_one(b, OP_log1p, build_one(b, OP_neg, x)), *own = build_one(b, OP_log, x);
    d->bce.b = as_grad_of(b, y, build_two(b, OP_mul, g, build_two(b, OP_sub, other, own)));
}

/* g b a^(b-1), zero for b = 0; g y log a, zero for a = 0 and b >= 0. */
void grad_pow(Builder *b, Op *op, OpParts *d) {
    Value *x = op->pow.a, *n = op->pow.b, *g = d->pow.y, *none = rule_zeros_like(b, op->pow.y);
    Value *power = build_two(b, OP_pow, x, build_scalar(b, OP_add_scalar, n, -1));
    Value *slope = build_two(b, OP_mul, g, build_two(b, OP_mul, n, power));
    d->pow.a = as_grad_of(b, x, where(b, build_two(b, OP_eq, n, none), none, slope));
    Value *rise = build_two(b, OP_mul, g, build_two(b, OP_mul, op->pow.y, build_one(b, OP_log, x)));
    Value *of_zero = where(b, build_two(b, OP_ge, n, none), none, rise);
    d->pow.b = as_grad_of(b, n, where(b, build_two(b, OP_eq, x, none), of_zero, rise));
}

/* g, -g trunc(a / b) */
void grad_fmod(Builder *b, Op *op, OpParts *d) {
    Value *whole = build_one(b, OP_trunc, build_two(b, OP_div, op->fmod.a, op->fmod.b));
    d->fmod.a = as_grad_of(b, op->fmod.a, d->fmod.y);
    d->fmod.b = as_grad_of(b, op->fmod.b, build_one(b, OP_neg, build_two(b, OP_mul, d->fmod.y, whole)));
}

/* g b / (a² + b²), -g a / (a² + b²); zero where both are. */
void grad_atan2(Builder *b, Op *op, OpParts *d) {
    Value *y = op->atan2.a, *x = op->atan2.b, *g = d->atan2.y, *none = rule_zeros_like(b, op->atan2.y);
    Value *squares = build_two(b, OP_add, build_two(b, OP_mul, y, y), build_two(b, OP_mul, x, x));
    Value *nowhere = build_two(b, OP_eq, squares, none), *over = build_two(b, OP_div, g, squares);
    d->atan2.a = as_grad_of(b, y, where(b, nowhere, none, build_two(b, OP_mul, over, x)));
    Value *back = build_one(b, OP_neg, build_two(b, OP_mul, over, y));
    d->atan2.b = as_grad_of(b, x, where(b, nowhere, none, back));
}

/* g a / y, g b / y */
void grad_hypot(Builder *b, Op *op, OpParts *d) {
    for (int i = 0; i < op->nin; i++) {
        Value *slope = build_two(b, OP_div, op->in[i], op->hypot.y);
        d->in[i] = as_grad_of(b, op->in[i], build_two(b, OP_mul, d->hypot.y, slope));
    }
}

void grad_neg(Builder *b, Op *op, OpParts *d) {
    d->neg.a = as_grad_of(b, op->neg.a, build_one(b, OP_neg, d->neg.y));
}

void grad_abs(Builder *b, Op *op, OpParts *d) {
    if (wanted(op->abs.a)) d->abs.a = build_two(b, OP_mul, d->abs.y, build_one(b, OP_sign, op->abs.a));
}

/* sign, floor and the like: zero, and not NULL: as in PyTorch, weight decay acts on a parameter that is used only
 * through one. */
void grad_zero(Builder *b, Op *op, OpParts *d) {
    Value *a = op_operand(op);
    if (wanted(a)) *d->in = rule_zeros_like(b, a);
}

void grad_exp(Builder *b, Op *op, OpParts *d) {
    d->exp.a = build_two(b, OP_mul, d->exp.y, op->exp.y);
}

void grad_log(Builder *b, Op *op, OpParts *d) {
    d->log.a = build_two(b, OP_div, d->log.y, op->log.a);
}

/* Ops of one operand whose gradient is the op of the next row: of g, of the result (which it calls y0) or the operand,
 * and of the same numbers. */
void grad_unary(Builder *b, Op *op, OpParts *d) {
    OpKind gradient = op->kind + 1;
    Value *a = op_operand(op), *x = strcmp(op_info[gradient].operands[1].name, "y0") == 0 ? op_result(op) : a;
    if (!wanted(a)) return;
    OpParts parts = {.in = {*d->out, x}};
    memcpy(parts.f, op->f, sizeof parts.f);
    *d->in = op_result(build_op(b, gradient, &parts));
}

void grad_sqrt(Builder *b, Op *op, OpParts *d) {
    d->sqrt.a = build_two(b, OP_div, d->sqrt.y, build_scalar(b, OP_mul_scalar, op->sqrt.y, 2));
}

/* y = a^−½: −½ g y³ */
void grad_rsqrt(Builder *b, Op *op, OpParts *d) {
    Value *y = op->rsqrt.y, *cube = build_two(b, OP_mul, build_two(b, OP_mul, y, y), y);
    d->rsqrt.a = build_scalar(b, OP_mul_scalar, build_two(b, OP_mul, d->rsqrt.y, cube), -0.5);
}

/* One op computes both gradients: they read the same three values. */
void grad_silu_mul(Builder *b, Op *op, OpParts *d) {
    const Op *grad = BUILD(b, silu_mul_grad, .g = d->silu_mul.y, .gate = op->silu_mul.gate, .up = op->silu_mul.up);
    d->silu_mul.gate = grad->silu_mul_grad.dgate;
    d->silu_mul.up = grad->silu_mul_grad.dup;
}

void infer_silu_mul_grad(Graph *g, Op *op) {
    need_equal_shapes(g, op);
    rule_out_like(g, op, &op->silu_mul_grad.dgate, op->silu_mul_grad.gate);
    rule_out_like(g, op, &op->silu_mul_grad.dup, op->silu_mul_grad.up);
}

void grad_where(Builder *b, Op *op, OpParts *d) {
    Value *condition = op->where.condition, *g = d->where.y;
    if (wanted(op->where.a)) d->where.a = as_grad_of(b, op->where.a, where_or_zero(b, g, condition));
    if (!wanted(op->where.b)) return;
    Value *chosen = build_cast(b, condition, g->dtype);
    Value *other = build_scalar(b, OP_add_scalar, build_one(b, OP_neg, chosen), 1); /* 1 − condition */
    d->where.b = as_grad_of(b, op->where.b, where_or_zero(b, g, other));
}
