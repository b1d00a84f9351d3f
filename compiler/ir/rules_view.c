/* Rules of the views (strides over the root's bytes), of copies in new shapes, and of the sources of values.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "rules.h"

/* ── reshape ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* One entry may be −1: it becomes whatever makes the sizes agree. */
void infer_reshape(Graph *g, Op *op) {
    Value *x = op->reshape.a;
    int dims = (int)op->reshape.dims, open = -1;
    int64_t *shape = op->reshape.shape, n = 1, stride[MAX_DIMS], have = value_numel(x);
    if (dims < 0 || dims > MAX_DIMS)
        rule_fail(g, op, "x %s to %d dims: at most %d are supported", value_str(g->arena, x), dims, MAX_DIMS);
    for (int i = 0; i < dims; i++) {
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 1 || __builtin_mul_overflow(n, shape[i], &n))
            rule_fail(g, op, "x %s to %s: %lld is no size; sizes are positive, one may be -1", value_str(g->arena, x),
                      value_shape_str(g->arena, dims, shape), (long long)shape[i]);
    }
    if (open >= 0 && have % n == 0) shape[open] = have / n, n = have;
    if (n != have)
        rule_fail(g, op, "x %s to %s: %lld elements ≠ %lld; the sizes must multiply to %lld", value_str(g->arena, x),
                  value_shape_str(g->arena, dims, shape), (long long)have, (long long)n, (long long)have);
    if (!value_reshape_strides(x, dims, shape, stride))
        rule_fail(g, op, "x %s to %s: its strides allow no view; copy it first (internal error)",
                  value_str(g->arena, x), value_shape_str(g->arena, dims, shape));
    rule_view(g, op, &op->reshape.y, x, dims, shape, stride, 0);
}

void grad_reshape(Builder *b, Op *op, OpParts *d) {
    const Value *x = op->reshape.a;
    d->reshape.a = build_reshape(b, d->reshape.y, x->dims, x->shape);
}

/* ── transpose ───────────────────────────────────────────────────────────────────────────────────────────────────── */
void infer_transpose(Graph *g, Op *op) {
    Value *x = op->transpose.a;
    const int64_t *order = op->transpose.order;
    int64_t shape[MAX_DIMS], stride[MAX_DIMS];
    unsigned seen = 0;
    for (int i = 0; i < x->dims; i++) {
        int64_t from = order[i];
        if (from < 0 || from >= x->dims || (seen & 1u << from))
            rule_fail(g, op, "x %s by %s: not a permutation of its %d dims (0 to %d, each once)",
                      value_str(g->arena, x), value_shape_str(g->arena, x->dims, order), x->dims, x->dims - 1);
        seen |= 1u << from;
        shape[i] = x->shape[from];
        stride[i] = x->stride[from];
    }
    rule_view(g, op, &op->transpose.y, x, x->dims, shape, stride, 0);
}

void grad_transpose(Builder *b, Op *op, OpParts *d) {
    int back[MAX_DIMS];
    for (int i = 0; i < op->transpose.a->dims; i++) back[op->transpose.order[i]] = i;
    d->transpose.a = build_transpose(b, d->transpose.y, back);
}

/* ── expand ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
void infer_expand(Graph *g, Op *op) {
    Value *x = op->expand.a;
    int dims = (int)op->expand.dims, lead = dims - x->dims;
    const int64_t *shape = op->expand.shape;
    int64_t stride[MAX_DIMS];
    if (dims < 0 || dims > MAX_DIMS)
        rule_fail(g, op, "x %s to %d dims: at most %d are supported", value_str(g->arena, x), dims, MAX_DIMS);
    if (lead < 0)
        rule_fail(g, op, "x %s to %s: it has more dims than the result; reshape it first", value_str(g->arena, x),
                  value_shape_str(g->arena, dims, shape));
    for (int i = 0; i < dims; i++) {
        bool grown = i < lead || x->shape[i - lead] != shape[i];
        if (shape[i] < 1 || (grown && i >= lead && x->shape[i - lead] != 1))
            rule_fail(g, op, "x %s to %s: dim %d is %lld, and must be 1 or %lld", value_str(g->arena, x),
                      value_shape_str(g->arena, dims, shape), i - lead, (long long)x->shape[i - lead],
                      (long long)shape[i]);
        stride[i] = grown ? 0 : x->stride[i - lead];
    }
    rule_view(g, op, &op->expand.y, x, dims, shape, stride, 0);
}

void grad_expand(Builder *b, Op *op, OpParts *d) {
    d->expand.a = build_sum_to(b, d->expand.y, op->expand.a->dims, op->expand.a->shape);
}

void infer_detach(Graph *g, Op *op) {
    Value *x = OPERAND_OF(op, a);
    rule_view(g, op, &RESULT_OF(op, y), x, x->dims, x->shape, x->stride, 0);
}

/* ── slice, split, concat, pad ───────────────────────────────────────────────────────────────────────────────────── */
static int need_dim(Graph *g, const Op *op, const Value *x) {
    int64_t dim = INT_OF(op, dim);
    if (dim < 0 || dim >= x->dims)
        rule_fail(g, op, "x %s has no dim %lld; dims are 0 to %d", value_str(g->arena, x), (long long)dim, x->dims - 1);
    return (int)dim;
}

static void view_range(Graph *g, Op *op, Value **result, Value *x, int dim, int64_t start, int64_t length) {
    int64_t shape[MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[dim] = length;
    rule_view(g, op, result, x, x->dims, shape, x->stride, start * x->stride[dim]);
}

void infer_slice(Graph *g, Op *op) {
    Value *x = op->slice.a;
    int dim = need_dim(g, op, x);
    int64_t start = op->slice.start, length = op->slice.length, size = x->shape[dim];
    if (start < 0 || length < 1 || length > size || start > size - length)
        rule_fail(g, op, "x %s: %lld elements from %lld of dim %d, which has %lld", value_str(g->arena, x),
                  (long long)length, (long long)start, dim, (long long)size);
    view_range(g, op, &op->slice.y, x, dim, start, length);
}

void grad_slice(Builder *b, Op *op, OpParts *d) {
    int64_t dim = op->slice.dim;
    d->slice.a =
        BUILD(b, pad_slice, .a = d->slice.y, .dim = dim, .start = op->slice.start, .size = op->slice.a->shape[dim])
            ->pad_slice.y;
}

void infer_split(Graph *g, Op *op) {
    Value *x = op->split.a;
    int dim = need_dim(g, op, x), pieces = (int)op->split.pieces;
    const int64_t *sizes = op->split.sizes;
    int64_t total = 0, size = x->shape[dim];
    if (pieces < 1 || pieces > SC_SPLITS)
        rule_fail(g, op, "x %s into %d pieces: 1 to %d are supported; split in two steps", value_str(g->arena, x),
                  pieces, SC_SPLITS);
    for (int k = 0; k < pieces; k++) {
        if (sizes[k] < 1 || sizes[k] > size)
            rule_fail(g, op, "x %s: piece %d of dim %d has %lld elements, and must have 1 to %lld",
                      value_str(g->arena, x), k, dim, (long long)sizes[k], (long long)size);
        total += sizes[k];
    }
    if (total != size)
        rule_fail(g, op, "x %s: pieces of %s add up to %lld ≠ %lld, the size of dim %d", value_str(g->arena, x),
                  value_shape_str(g->arena, pieces, sizes), (long long)total, (long long)size, dim);
    int64_t start = 0;
    for (int k = 0; k < pieces; k++) {
        view_range(g, op, &op->split.y[k], x, dim, start, sizes[k]);
        start += sizes[k];
    }
}

Value *rule_zeros_like(Builder *b, const Value *v) {
    OpParts full = {.full = {.dtype = v->dtype, .dims = v->dims}};
    for (int i = 0; i < v->dims; i++) full.full.shape[i] = v->shape[i];
    return build_op(b, OP_full, &full)->full.y;
}

void grad_split(Builder *b, Op *op, OpParts *d) {
    OpParts pieces = {.concat = {.dim = op->split.dim}};
    for (int k = 0; k < op->nout; k++)
        pieces.concat.x[k] = d->split.y[k] ? d->split.y[k] : rule_zeros_like(b, op->split.y[k]);
    d->split.a = build_op(b, OP_concat, &pieces)->concat.y;
}

void infer_concat(Graph *g, Op *op) {
    Value *const *x = op->concat.x;
    const Value *a = *x;
    int dim = need_dim(g, op, a);
    int64_t shape[MAX_DIMS];
    memcpy(shape, a->shape, sizeof shape);
    for (int k = 1; k < op->nin; k++) {
        bool fits = x[k]->dims == a->dims && x[k]->dtype == a->dtype;
        for (int i = 0; i < a->dims && fits; i++) fits = i == dim || x[k]->shape[i] == a->shape[i];
        if (!fits)
            rule_fail(g, op, "piece 0 is %s, piece %d %s: dtypes and all sizes but that of dim %d must be equal",
                      value_str(g->arena, a), k, value_str(g->arena, x[k]), dim);
        shape[dim] += x[k]->shape[dim];
    }
    rule_out(g, op, &op->concat.y, a->dtype, a->dims, shape);
}

void grad_concat(Builder *b, Op *op, OpParts *d) {
    int64_t start = 0, dim = op->concat.dim;
    for (int k = 0; k < op->nin; k++) {
        const Value *x = op->concat.x[k];
        int64_t length = x->shape[dim];
        if (dtype_float(x->dtype))
            d->concat.x[k] = BUILD(b, slice, .a = d->concat.y, .dim = dim, .start = start, .length = length)->slice.y;
        start += length;
    }
}

void infer_copy(Graph *g, Op *op) {
    rule_out_like(g, op, &RESULT_OF(op, y), op_operand(op));
}
void grad_copy(Builder *b, Op *op, OpParts *d) {
    d->copy.a = d->copy.y;
}

void infer_flip(Graph *g, Op *op) {
    need_dim(g, op, op->flip.a);
    infer_copy(g, op);
}
void grad_flip(Builder *b, Op *op, OpParts *d) {
    d->flip.a = BUILD(b, flip, .a = d->flip.y, .dim = op->flip.dim)->flip.y;
}

/* The same op, for as long as the gradient is to take. */
void grad_debug_sleep(Builder *b, Op *op, OpParts *d) {
    d->debug_sleep.a = BUILD(b, debug_sleep, .a = d->debug_sleep.y, .ms = op->debug_sleep.ms_backward)->debug_sleep.y;
}

Cost cost_debug_sleep(const Op *op) {
    Cost c = cost_copy(op);
    c.least_us = op->debug_sleep.ms * 1e3;
    return c;
}

void infer_pad_slice(Graph *g, Op *op) {
    const Value *x = op->pad_slice.a;
    int dim = need_dim(g, op, x);
    int64_t start = op->pad_slice.start, size = op->pad_slice.size, shape[MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    if (start < 0 || size < 1 || start > size - shape[dim])
        rule_fail(g, op, "x %s at %lld of dim %d does not lie within %lld elements", value_str(g->arena, x),
                  (long long)start, dim, (long long)size);
    shape[dim] = size;
    rule_out(g, op, &op->pad_slice.y, x->dtype, x->dims, shape);
}

void grad_pad_slice(Builder *b, Op *op, OpParts *d) {
    int64_t dim = op->pad_slice.dim;
    d->pad_slice.a = BUILD(b, slice, .a = d->pad_slice.y, .dim = dim, .start = op->pad_slice.start,
                           .length = op->pad_slice.a->shape[dim])
                         ->slice.y;
}

/* ── sources ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static Dtype need_dtype(Graph *g, const Op *op, int64_t dtype) {
    if (dtype < 0 || dtype >= N_DTYPES || rule_is_stored((Dtype)dtype))
        rule_fail(g, op,
                  "cannot make values of dtype %s; use \"fp32\", \"bf16\", \"fp16\", \"int32\", \"int64\" or \"bool\"",
                  dtype >= 0 && dtype < N_DTYPES ? dtype_name((Dtype)dtype) : "?");
    return (Dtype)dtype;
}

void infer_full(Graph *g, Op *op) {
    Dtype d = need_dtype(g, op, op->full.dtype);
    int64_t n = 1, dims = op->full.dims;
    const int64_t *shape = op->full.shape;
    if (dims < 0 || dims > MAX_DIMS) rule_fail(g, op, "%lld dims: at most %d are supported", (long long)dims, MAX_DIMS);
    for (int i = 0; i < dims; i++)
        if (shape[i] < 1 || __builtin_mul_overflow(n, shape[i], &n))
            rule_fail(g, op, "%s: sizes must be positive", value_shape_str(g->arena, (int)dims, shape));
    rule_out(g, op, &op->full.y, d, (int)dims, shape);
}

void infer_arange(Graph *g, Op *op) {
    Dtype d = need_dtype(g, op, op->arange.dtype);
    if (op->arange.n < 1) rule_fail(g, op, "%lld elements: at least one is needed", (long long)op->arange.n);
    rule_out(g, op, &op->arange.y, d, 1, &op->arange.n);
}

/* The loss's gradient is one number. */
void infer_scalar(Graph *g, Op *op) {
    rule_out(g, op, &op->grad_seed.y, FP32, 0, (int64_t[1]){1});
}

/* ── reductions: sum, mean and max ──────────────────────────────────────────────────────────────────────────────── */
/* The shape of the result, whose reduced dims are ones (keep) or gone. Returns the number of dims. */
static int reduced_shape(const Op *op, bool keep, int64_t *shape) {
    const Value *x = OPERAND_OF(op, x);
    int64_t over = INT_OF(op, over);
    int dims = 0;
    for (int i = 0; i < x->dims; i++) {
        bool reduced = over >> i & 1;
        if (!reduced || keep) shape[dims++] = reduced ? 1 : x->shape[i];
    }
    return dims;
}

void infer_reduce(Graph *g, Op *op) {
    const Value *x = OPERAND_OF(op, x);
    int64_t mask = INT_OF(op, over), shape[MAX_DIMS];
    if (x->dims ? mask <= 0 || mask >= (int64_t)1 << x->dims : mask != 0)
        rule_fail(g, op, "x %s: reduced dims must be among 0 to %d, at least one", value_str(g->arena, x), x->dims - 1);
    if (op->kind == OP_mean) rule_need_float(g, op, x, "x");
    if (x->dtype == BOOL || rule_is_stored(x->dtype))
        rule_fail(g, op, "x %s cannot be reduced as it is; cast it to \"int32\" or \"fp32\" first",
                  value_str(g->arena, x));
    int dims = reduced_shape(op, INT_OF(op, keep), shape);
    rule_out(g, op, &RESULT_OF(op, y), rule_wider(INT_OF(op, dtype), x->dtype), dims, shape);
}

/* The gradient of the result, repeated along the reduced dims. */
static Value *spread(Builder *b, const Op *op, Value *g) {
    const Value *x = OPERAND_OF(op, x);
    int64_t shape[MAX_DIMS];
    int dims = reduced_shape(op, true, shape);
    return build_expand(b, build_reshape(b, g, dims, shape), x->dims, x->shape);
}

void grad_sum(Builder *b, Op *op, OpParts *d) {
    Dtype dtype = op->sum.x->dtype;
    if (dtype_float(dtype)) d->sum.x = spread(b, op, build_cast(b, d->sum.y, dtype));
}

void grad_mean(Builder *b, Op *op, OpParts *d) {
    double n = (double)value_numel(op->mean.x) / (double)value_numel(op->mean.y);
    d->mean.x = spread(b, op, build_scalar(b, OP_mul_scalar, d->mean.y, 1 / n));
}

void grad_max(Builder *b, Op *op, OpParts *d) {
    Value *x = op->max.x;
    if (!dtype_float(x->dtype)) return;
    int64_t shape[MAX_DIMS];
    int dims = reduced_shape(op, false, shape);
    Value *g = build_reshape(b, d->max.y, dims, shape), *y = build_reshape(b, op->max.y, dims, shape);
    d->max.x = BUILD(b, max_grad, .g = g, .x = x, .y = y, .over = op->max.over)->max_grad.dx;
}
