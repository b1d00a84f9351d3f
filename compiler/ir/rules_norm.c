/* Rules of the norms, softmax, dropout, the fused loss and batch norm.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "rules.h"

static int64_t last_dim(Graph *g, const Op *op, const Value *x) {
    if (!x->dims) rule_fail(g, op, "x %s is a scalar; it needs at least 1 dim", value_str(g->arena, x));
    return x->shape[x->dims - 1];
}

/* A weight or bias must have shape [n] and the dtype of x. */
static void need_vector(Graph *g, const Op *op, const Value *x, const Value *w, const char *what, int64_t n) {
    if (w->dims != 1 || w->shape[0] != n)
        rule_fail(g, op, "x %s with %s %s: the %s must have shape [%lld]", value_str(g->arena, x), what,
                  value_str(g->arena, w), what, (long long)n);
    rule_need_same_dtype(g, op, x, "x", w, what);
}

static void need_eps(Graph *g, const Op *op, double eps) {
    if (!(eps >= 0)) rule_fail(g, op, "eps %g: it must not be negative", eps);
}

/* ── layer norm, rms norm ────────────────────────────────────────────────────────────────────────────────────────── */
/* Layer norm and rms norm, which has neither bias nor mean. */
void infer_norm(Graph *g, Op *op) {
    const Value *x = OPERAND_OF(op, x), *w = OPERAND_OF(op, w);
    bool layer = op->kind == OP_layer_norm;
    rule_need_float(g, op, x, "x");
    int64_t n = last_dim(g, op, x), rows = rule_rows(x);
    if (w) need_vector(g, op, x, w, "weight", n);
    if (layer && op->layer_norm.b) need_vector(g, op, x, op->layer_norm.b, "bias", n);
    need_eps(g, op, FLOAT_OF(op, eps));
    rule_out_like(g, op, &RESULT_OF(op, y), x);
    if (layer) rule_out(g, op, &op->layer_norm.mean, rule_stat_dtype(x->dtype), 1, &rows);
    rule_out(g, op, &RESULT_OF(op, rstd), rule_stat_dtype(x->dtype), 1, &rows);
}

void infer_norm_statistics(Graph *g, Op *op) {
    const Value *x = op->norm_statistics.x;
    int64_t rows = rule_rows(x);
    Dtype d = rule_stat_dtype(x->dtype);
    rule_out(g, op, &op->norm_statistics.rstd, d, 1, &rows);
    if (op->norm_statistics.centred) rule_out(g, op, &op->norm_statistics.mean, d, 1, &rows);
}

void grad_layer_norm(Builder *b, Op *op, OpParts *d) {
    Value *dy = d->layer_norm.y, *x = op->layer_norm.x, *mean = op->layer_norm.mean, *rstd = op->layer_norm.rstd;
    Value *w = op->layer_norm.w, *bias = op->layer_norm.b;
    d->layer_norm.x =
        BUILD(b, layer_norm_grad, .g = dy, .x = x, .mean = mean, .rstd = rstd, .w = w)->layer_norm_grad.dx;
    if (!w && !bias) return;
    const Op *weights = BUILD(b, layer_norm_grad_w, .g = dy, .x = x, .mean = mean, .rstd = rstd);
    if (w) d->layer_norm.w = weights->layer_norm_grad_w.dw;
    if (bias) d->layer_norm.b = weights->layer_norm_grad_w.db;
}

void grad_rms_norm(Builder *b, Op *op, OpParts *d) {
    Value *dy = d->rms_norm.y, *x = op->rms_norm.x, *rstd = op->rms_norm.rstd, *w = op->rms_norm.w;
    d->rms_norm.x = BUILD(b, rms_norm_grad, .g = dy, .x = x, .rstd = rstd, .w = w)->rms_norm_grad.dx;
    if (w) d->rms_norm.w = BUILD(b, rms_norm_grad_w, .g = dy, .x = x, .rstd = rstd)->rms_norm_grad_w.dw;
}

void infer_norm_grad_w(Graph *g, Op *op) {
    const Value *x = OPERAND_OF(op, x);
    int64_t n = last_dim(g, op, x);
    Dtype d = rule_wider(INT_OF(op, dtype), x->dtype);
    rule_out(g, op, &RESULT_OF(op, dw), d, 1, &n);
    if (op->kind == OP_layer_norm_grad_w) rule_out(g, op, &op->layer_norm_grad_w.db, d, 1, &n);
}

/* dx, then the results of the op for the weights alone, then optionally the column sums of dx. */
void infer_norm_grads(Graph *g, Op *op) {
    const Value *x = OPERAND_OF(op, x);
    int64_t n = last_dim(g, op, x), sums = INT_OF(op, sums);
    Dtype d = rule_wider(INT_OF(op, dtype), x->dtype);
    rule_out_like(g, op, &RESULT_OF(op, dx), x);
    rule_out(g, op, &RESULT_OF(op, dw), d, 1, &n);
    if (op->kind == OP_layer_norm_grads) rule_out(g, op, &op->layer_norm_grads.db, d, 1, &n);
    if (sums) rule_out(g, op, &RESULT_OF(op, ds), rule_wider(sums, x->dtype), 1, &n);
}

/* ── softmax, dropout, scale ─────────────────────────────────────────────────────────────────────────────────────── */
void infer_softmax(Graph *g, Op *op) {
    const Value *x = op->softmax.x;
    rule_need_float(g, op, x, "x");
    last_dim(g, op, x);
    rule_out_like(g, op, &op->softmax.y, x);
}

void grad_softmax(Builder *b, Op *op, OpParts *d) {
    d->softmax.x = BUILD(b, softmax_grad, .g = d->softmax.y, .y = op->softmax.y)->softmax_grad.dx;
}

void infer_softmax_grad(Graph *g, Op *op) {
    rule_out_like(g, op, &op->softmax_grad.dx, op->softmax_grad.y);
}

void infer_dropout(Graph *g, Op *op) {
    double p = op->dropout.p;
    rule_need_float(g, op, op->dropout.x, "x");
    if (!(p >= 0 && p < 1)) rule_fail(g, op, "p = %g: it must be at least 0 and below 1", p);
    rule_out_like(g, op, &op->dropout.y, op->dropout.x);
}

/* The key gives the same mask again, so the mask is not saved. */
void grad_dropout(Builder *b, Op *op, OpParts *d) {
    d->dropout.x = BUILD(b, dropout, .x = d->dropout.y, .key = op->dropout.key, .p = op->dropout.p)->dropout.y;
}

/* The gradient is scaled as the value was. */
void grad_scale(Builder *b, Op *op, OpParts *d) {
    d->scale.x = BUILD(b, scale, .x = d->scale.y, .scaler = op->scale.scaler, .inverse = op->scale.inverse)->scale.y;
}

/* ── cross entropy ───────────────────────────────────────────────────────────────────────────────────────────────── */
void infer_cross_entropy(Graph *g, Op *op) {
    const Value *x = op->cross_entropy.logits, *t = op->cross_entropy.targets;
    rule_need_float(g, op, x, "logits");
    rule_need_int32(g, op, t, "the targets");
    if (x->dims != 2 || t->dims != 1 || x->shape[0] != t->shape[0])
        rule_fail(g, op, "logits %s with targets %s: they must be [N,V] and [N]", value_str(g->arena, x),
                  value_str(g->arena, t));
    const Value *total = op->cross_entropy.total;
    if (total && (!dtype_float(total->dtype) || value_numel(total) != 1))
        rule_fail(g, op, "a total %s: it must be one number, floating point", value_str(g->arena, total));
    Dtype d = rule_stat_dtype(x->dtype);
    rule_out(g, op, &op->cross_entropy.loss, d, op->cross_entropy.rows ? 1 : 0, x->shape);
    rule_out(g, op, &op->cross_entropy.most, d, 1, x->shape);
    rule_out(g, op, &op->cross_entropy.rest, d, 1, x->shape);
}

int64_t limit_classes(const Op *op) {
    const Value *logits = OPERAND_OF(op, logits);
    return logits->shape[logits->dims - 1];
}

void grad_cross_entropy(Builder *b, Op *op, OpParts *d) {
    d->cross_entropy.logits =
        BUILD(b, cross_entropy_grad, .g = d->cross_entropy.loss, .logits = op->cross_entropy.logits,
              .targets = op->cross_entropy.targets, .most = op->cross_entropy.most, .rest = op->cross_entropy.rest,
              .total = op->cross_entropy.total, .rows = op->cross_entropy.rows, .ignore = op->cross_entropy.ignore,
              .count = op->cross_entropy.count, .smoothing = op->cross_entropy.smoothing,
              .z_loss = op->cross_entropy.z_loss, .softcap = op->cross_entropy.softcap)
            ->cross_entropy_grad.dlogits;
}

void infer_cross_entropy_grad(Graph *g, Op *op) {
    rule_out_like(g, op, &op->cross_entropy_grad.dlogits, op->cross_entropy_grad.logits);
}

void infer_cross_entropy_grads(Graph *g, Op *op) {
    const Value *x = op->cross_entropy_grads.logits;
    Dtype d = rule_stat_dtype(x->dtype);
    rule_out_like(g, op, &op->cross_entropy_grads.dlogits, x);
    rule_out(g, op, &op->cross_entropy_grads.loss, d, 0, (int64_t[1]){1});
    rule_out(g, op, &op->cross_entropy_grads.losses, d, 1, x->shape);
}

/* ── distillation ────────────────────────────────────────────────────────────────────────────────────────────────── */
void infer_distillation(Graph *g, Op *op) {
    const Value *x = op->distillation.logits, *t = op->distillation.teacher, *c = op->distillation.targets;
    const Value *total = op->distillation.total;
    rule_need_float(g, op, x, "logits");
    if (x->dims != 2 || !value_same_shape(x, t) || x->dtype != t->dtype)
        rule_fail(g, op, "logits %s with a teacher's %s: both must be [N,V] and of one dtype", value_str(g->arena, x),
                  value_str(g->arena, t));
    if (c) rule_need_int32(g, op, c, "the targets");
    if (c && (c->dims != 1 || c->shape[0] != x->shape[0]))
        rule_fail(g, op, "logits %s with targets %s: they must be [N,V] and [N]", value_str(g->arena, x),
                  value_str(g->arena, c));
    if (total && (!dtype_float(total->dtype) || value_numel(total) != 1))
        rule_fail(g, op, "a total %s: it must be one number, floating point", value_str(g->arena, total));
    Dtype d = rule_stat_dtype(x->dtype);
    rule_out(g, op, &op->distillation.loss, d, op->distillation.rows ? 1 : 0, x->shape);
    rule_out(g, op, &op->distillation.stats, d, 2, (int64_t[2]){x->shape[0], SC_DISTILLED});
}

void grad_distillation(Builder *b, Op *op, OpParts *d) {
    d->distillation.logits =
        BUILD(b, distillation_grad, .g = d->distillation.loss, .logits = op->distillation.logits,
              .teacher = op->distillation.teacher, .stats = op->distillation.stats, .targets = op->distillation.targets,
              .total = op->distillation.total, .rows = op->distillation.rows, .reverse = op->distillation.reverse,
              .ignore = op->distillation.ignore, .count = op->distillation.count, .heat = op->distillation.heat,
              .hard = op->distillation.hard, .softcap = op->distillation.softcap,
              .teacher_softcap = op->distillation.teacher_softcap)
            ->distillation_grad.dlogits;
}

void infer_distillation_grad(Graph *g, Op *op) {
    rule_out_like(g, op, &op->distillation_grad.dlogits, op->distillation_grad.logits);
}

/* ── batch norm ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static void need_running(Graph *g, const Op *op, const char *what, const Value *v, int64_t channels) {
    if (v->dims != 1 || v->shape[0] != channels || !dtype_float(v->dtype))
        rule_fail(g, op, "x %s with running %s %s: it must be fp32[%lld]", value_str(g->arena, op->batch_norm.x), what,
                  value_str(g->arena, v), (long long)channels);
}

void infer_batch_norm(Graph *g, Op *op) {
    const Value *x = op->batch_norm.x;
    rule_need_float(g, op, x, "x");
    if (x->dims < 2) rule_fail(g, op, "x %s must have at least 2 dims: [N,C,...]", value_str(g->arena, x));
    int64_t channels = x->shape[1];
    need_vector(g, op, x, op->batch_norm.w, "weight", channels);
    need_vector(g, op, x, op->batch_norm.b, "bias", channels);
    need_running(g, op, "mean", op->batch_norm.running_mean, channels);
    need_running(g, op, "variance", op->batch_norm.running_var, channels);
    if (op->batch_norm.training && value_numel(x) == channels)
        rule_fail(g, op, "x %s has one value a channel: training needs more to take a variance of",
                  value_str(g->arena, x));
    need_eps(g, op, op->batch_norm.eps);
    rule_out_like(g, op, &op->batch_norm.y, x);
    rule_out(g, op, &op->batch_norm.mean, rule_stat_dtype(x->dtype), 1, &channels);
    rule_out(g, op, &op->batch_norm.rstd, rule_stat_dtype(x->dtype), 1, &channels);
}

/* The gradient op needs `training`: running statistics do not depend on x, so dx is then g w rstd. */
void grad_batch_norm(Builder *b, Op *op, OpParts *d) {
    const Op *grad =
        BUILD(b, batch_norm_grad, .g = d->batch_norm.y, .x = op->batch_norm.x, .w = op->batch_norm.w,
              .mean = op->batch_norm.mean, .rstd = op->batch_norm.rstd, .training = op->batch_norm.training);
    d->batch_norm.x = grad->batch_norm_grad.dx;
    d->batch_norm.w = grad->batch_norm_grad.dw;
    d->batch_norm.b = grad->batch_norm_grad.db;
}

void infer_batch_norm_grad(Graph *g, Op *op) {
    rule_out_like(g, op, &op->batch_norm_grad.dx, op->batch_norm_grad.x);
    rule_out_like(g, op, &op->batch_norm_grad.dw, op->batch_norm_grad.w);
    rule_out_like(g, op, &op->batch_norm_grad.db, op->batch_norm_grad.w);
}
