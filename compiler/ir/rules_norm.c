/* Rules of the norms, softmax, dropout, the fused loss and batch norm.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "rules.h"

static int64_t last_dim(Graph *g, const Op *op, const Value *x) {
    if (!x->dims) rule_fail(g, op, "x %s is a scalar; it needs at least 1 dim", value_str(g->arena, x));
    return x->shape[x->dims - 1];
}

/* A weight or bias: one number for each of `n`, in the dtype of x. */
static void need_vector(Graph *g, const Op *op, int x, int operand, const char *what, int64_t n) {
    const Value *w = op->in[operand];
    if (w->dims != 1 || w->shape[0] != n)
        rule_fail(g, op, "x %s with %s %s: the %s must have shape [%lld]", value_str(g->arena, op->in[x]), what,
                  value_str(g->arena, w), what, (long long)n);
    need_same_dtype(g, op, x, "x", operand, what);
}

static void need_eps(Graph *g, const Op *op) {
    if (!(op->f[0] >= 0)) rule_fail(g, op, "eps %g: it must not be negative", op->f[0]);
}

/* ── layer norm, rms norm ───────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_layer_norm(Graph *g, Op *op) {
    const Value *x = op->in[0];
    need_float(g, op, 0, "x");
    int64_t n = last_dim(g, op, x), rows = rows_of(x);
    if (op->nin != 1 + (op->i[0] != 0) + (op->i[1] != 0))
        rule_fail(g, op, "weight and bias do not agree with what is said of them (internal error)");
    if (op->i[0]) need_vector(g, op, 0, 1, "weight", n);
    if (op->i[1]) need_vector(g, op, 0, op->nin - 1, "bias", n);
    need_eps(g, op);
    rule_out_like(g, op, 0, x);
    rule_out(g, op, 1, stat_dtype(x->dtype), 1, &rows);
    rule_out(g, op, 2, stat_dtype(x->dtype), 1, &rows);
}

void grad_layer_norm(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *in[5] = {gout[0], op->in[0], op->out[1], op->out[2], op->in[1]};
    gin[0] = build_op(b, OP_LAYER_NORM_GRAD, op->i[0] ? 5 : 4, in, NULL, 0, NULL, 0)->out[0];
    if (op->nin == 1) return;
    Op *weights = build_op(b, OP_LAYER_NORM_GRAD_W, 4, in, NULL, 0, NULL, 0);
    if (op->i[0]) gin[1] = weights->out[0];
    if (op->i[1]) gin[op->nin - 1] = weights->out[1];
}

void infer_rms_norm(Graph *g, Op *op) {
    const Value *x = op->in[0];
    need_float(g, op, 0, "x");
    int64_t n = last_dim(g, op, x), rows = rows_of(x);
    if (op->nin == 2) need_vector(g, op, 0, 1, "weight", n);
    need_eps(g, op);
    rule_out_like(g, op, 0, x);
    rule_out(g, op, 1, stat_dtype(x->dtype), 1, &rows);
}

void grad_rms_norm(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *in[4] = {gout[0], op->in[0], op->out[1], op->in[1]};
    gin[0] = build_op(b, OP_RMS_NORM_GRAD, op->nin + 2, in, NULL, 0, NULL, 0)->out[0];
    if (op->nin == 2) gin[1] = build_op(b, OP_RMS_NORM_GRAD_W, 3, in, NULL, 0, NULL, 0)->out[0];
}

void infer_norm_grad_w(Graph *g, Op *op) {
    const Value *x = op->in[1];
    int64_t n = last_dim(g, op, x);
    for (int k = 0; k < op_info[op->kind].nout; k++) rule_out(g, op, k, attr_dtype(op->i[0], x->dtype), 1, &n);
}

/* dx, what the weights' gradients alone would give, and the sums of dx's columns. */
void infer_norm_grads(Graph *g, Op *op) {
    const Value *x = op->in[1];
    int64_t n = last_dim(g, op, x);
    int sums = op_info[op->kind].nout - 1;
    rule_out_like(g, op, 0, x);
    for (int k = 1; k < sums; k++) rule_out(g, op, k, attr_dtype(op->i[0], x->dtype), 1, &n);
    if (op->i[3]) rule_out(g, op, sums, attr_dtype(op->i[3], x->dtype), 1, &n);
}

/* ── softmax, dropout ───────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_softmax(Graph *g, Op *op) {
    need_float(g, op, 0, "x");
    last_dim(g, op, op->in[0]);
    infer_like0(g, op);
}

void grad_softmax(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build2(b, OP_SOFTMAX_GRAD, gout[0], op->out[0]);
}

void infer_dropout(Graph *g, Op *op) {
    need_float(g, op, 0, "x");
    if (!(op->f[0] >= 0 && op->f[0] < 1)) rule_fail(g, op, "p = %g: it must be at least 0 and below 1", op->f[0]);
    infer_like0(g, op);
}

/* The key makes the same mask again: nothing is saved. */
void grad_dropout(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build_op(b, OP_DROPOUT, 1, gout, op->i, 1, op->f, 1)->out[0];
}

/* The gradient is scaled as the value was. */
void grad_scale(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build_op(b, OP_SCALE, 2, (Value *[]){gout[0], op->in[1]}, op->i, 1, NULL, 0)->out[0];
}

/* ── cross entropy ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_cross_entropy(Graph *g, Op *op) {
    const Value *x = op->in[0], *t = op->in[1];
    need_float(g, op, 0, "logits");
    need_int32(g, op, 1, "the targets");
    if (x->dims != 2 || t->dims != 1 || x->shape[0] != t->shape[0])
        rule_fail(g, op, "logits %s with targets %s: they must be [N,V] and [N]", value_str(g->arena, x),
                  value_str(g->arena, t));
    Dtype d = stat_dtype(x->dtype);
    rule_out(g, op, 0, d, 0, (int64_t[1]){1});
    rule_out(g, op, 1, d, 1, x->shape);
}

void grad_cross_entropy(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *in[4] = {gout[0], op->in[0], op->in[1], op->out[1]};
    gin[0] = build_op(b, OP_CROSS_ENTROPY_GRAD, 4, in, op->i, 2, NULL, 0)->out[0];
}

void infer_cross_entropy_grads(Graph *g, Op *op) {
    const Value *x = op->in[1];
    Dtype d = stat_dtype(x->dtype);
    rule_out_like(g, op, 0, x);
    rule_out(g, op, 1, d, 0, (int64_t[1]){1});
    rule_out(g, op, 2, d, 1, x->shape);
}

/* ── batch norm ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_batch_norm(Graph *g, Op *op) {
    const Value *x = op->in[0];
    need_float(g, op, 0, "x");
    if (x->dims < 2) rule_fail(g, op, "x %s must have at least 2 dims: [N,C,...]", value_str(g->arena, x));
    int64_t channels = x->shape[1];
    need_vector(g, op, 0, 1, "weight", channels);
    need_vector(g, op, 0, 2, "bias", channels);
    for (int i = 3; i < 5; i++) {
        const Value *r = op->in[i];
        if (r->dims != 1 || r->shape[0] != channels || !dtype_float(r->dtype))
            rule_fail(g, op, "x %s with running %s %s: it must be fp32[%lld]", value_str(g->arena, x),
                      i == 3 ? "mean" : "variance", value_str(g->arena, r), (long long)channels);
    }
    if (op->i[0] && value_numel(x) == channels)
        rule_fail(g, op, "x %s has one value a channel: training needs more to take a variance of",
                  value_str(g->arena, x));
    need_eps(g, op);
    rule_out_like(g, op, 0, x);
    rule_out(g, op, 1, stat_dtype(x->dtype), 1, &channels);
    rule_out(g, op, 2, stat_dtype(x->dtype), 1, &channels);
}

/* i0, training, goes along: with running statistics x does not act on them, so dx is g w rstd alone. */
void grad_batch_norm(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *in[5] = {gout[0], op->in[0], op->in[1], op->out[1], op->out[2]};
    Op *grad = build_op(b, OP_BATCH_NORM_GRAD, 5, in, op->i, 1, NULL, 0);
    for (int i = 0; i < 3; i++) gin[i] = grad->out[i];
}

void infer_batch_norm_grad(Graph *g, Op *op) {
    rule_out_like(g, op, 0, op->in[1]);
    rule_out_like(g, op, 1, op->in[2]);
    rule_out_like(g, op, 2, op->in[2]);
}
