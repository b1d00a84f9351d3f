/* Rules of the views (strides over the root's bytes), of copies in new shapes, and of the sources of values.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "rules.h"

/* ── reshape ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The operand's dims are merged into runs within which elements are evenly spaced; each new dim must lie within one
 * run. Both are walked from the innermost dim outwards. */
bool reshape_strides(const Value *v, int dims, const int64_t *shape, int64_t *stride) {
    int64_t left = 1, step = 1; /* of the current run: elements not yet given away, and their spacing */
    int next = v->dims - 1;
    for (int i = dims - 1; i >= 0; i--) {
        if (shape[i] == 1) {
            stride[i] = step;
            continue;
        }
        if (left == 1) {
            while (next >= 0 && v->shape[next] == 1) next--;
            if (next < 0) return false;
            left = v->shape[next];
            step = v->stride[next];
            int64_t outer = step * left; /* the spacing that the next dim has if it continues the run */
            for (next--; next >= 0 && (v->shape[next] == 1 || v->stride[next] == outer); next--) {
                left *= v->shape[next];
                outer *= v->shape[next];
            }
        }
        if (left % shape[i]) return false;
        stride[i] = step;
        step *= shape[i];
        left /= shape[i];
    }
    return true;
}

/* One entry may be −1: it becomes whatever makes the sizes agree. */
void infer_reshape(Graph *g, Op *op) {
    const Value *x = op->in[0];
    int dims = (int)op->i[0], open = -1;
    int64_t *shape = op->i + 1, n = 1, stride[MAX_DIMS], have = value_numel(x);
    if (dims < 0 || dims > MAX_DIMS)
        rule_fail(g, op, "x %s to %d dims: at most %d are supported", value_str(g->arena, x), dims, MAX_DIMS);
    for (int i = 0; i < dims; i++) {
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 1 || __builtin_mul_overflow(n, shape[i], &n))
            rule_fail(g, op, "x %s to %s: %lld is no size; sizes are positive, one may be -1", value_str(g->arena, x),
                      shape_str(g->arena, dims, shape), (long long)shape[i]);
    }
    if (open >= 0 && have % n == 0) shape[open] = have / n, n = have;
    if (n != have)
        rule_fail(g, op, "x %s to %s: %lld elements ≠ %lld; the sizes must multiply to %lld", value_str(g->arena, x),
                  shape_str(g->arena, dims, shape), (long long)have, (long long)n, (long long)have);
    if (!reshape_strides(x, dims, shape, stride))
        rule_fail(g, op, "x %s to %s: its strides allow no view; copy it first (internal error)",
                  value_str(g->arena, x), shape_str(g->arena, dims, shape));
    rule_view(g, op, 0, op->in[0], dims, shape, stride, 0);
}

void grad_reshape(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build_reshape(b, gout[0], op->in[0]->dims, op->in[0]->shape);
}

/* ── transpose ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_transpose(Graph *g, Op *op) {
    Value *x = op->in[0];
    int64_t shape[MAX_DIMS], stride[MAX_DIMS];
    unsigned seen = 0;
    for (int i = 0; i < x->dims; i++) {
        int64_t from = op->i[i];
        if (from < 0 || from >= x->dims || (seen & 1u << from))
            rule_fail(g, op, "x %s by %s: not a permutation of its %d dims (0 to %d, each once)",
                      value_str(g->arena, x), shape_str(g->arena, x->dims, op->i), x->dims, x->dims - 1);
        seen |= 1u << from;
        shape[i] = x->shape[from];
        stride[i] = x->stride[from];
    }
    rule_view(g, op, 0, x, x->dims, shape, stride, 0);
}

void grad_transpose(Builder *b, Op *op, Value **gout, Value **gin) {
    int back[MAX_DIMS];
    for (int i = 0; i < op->in[0]->dims; i++) back[op->i[i]] = i;
    gin[0] = build_transpose(b, gout[0], back);
}

/* ── expand ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_expand(Graph *g, Op *op) {
    Value *x = op->in[0];
    int dims = (int)op->i[0], lead = dims - x->dims;
    const int64_t *shape = op->i + 1;
    int64_t stride[MAX_DIMS];
    if (dims < 0 || dims > MAX_DIMS)
        rule_fail(g, op, "x %s to %d dims: at most %d are supported", value_str(g->arena, x), dims, MAX_DIMS);
    if (lead < 0)
        rule_fail(g, op, "x %s to %s: it has more dims than the result; reshape it first", value_str(g->arena, x),
                  shape_str(g->arena, dims, shape));
    for (int i = 0; i < dims; i++) {
        bool grown = i < lead || x->shape[i - lead] != shape[i];
        if (shape[i] < 1 || (grown && i >= lead && x->shape[i - lead] != 1))
            rule_fail(g, op, "x %s to %s: dim %d is %lld, and must be 1 or %lld", value_str(g->arena, x),
                      shape_str(g->arena, dims, shape), i - lead, (long long)x->shape[i - lead], (long long)shape[i]);
        stride[i] = grown ? 0 : x->stride[i - lead];
    }
    rule_view(g, op, 0, x, dims, shape, stride, 0);
}

void grad_expand(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build_sum_to(b, gout[0], op->in[0]->dims, op->in[0]->shape);
}

void infer_detach(Graph *g, Op *op) {
    rule_view(g, op, 0, op->in[0], op->in[0]->dims, op->in[0]->shape, op->in[0]->stride, 0);
}

/* ── slice, split, concat, pad ──────────────────────────────────────────────────────────────────────────────────────
 */
static int need_dim(Graph *g, const Op *op) {
    const Value *x = op->in[0];
    if (op->i[0] < 0 || op->i[0] >= x->dims)
        rule_fail(g, op, "x %s has no dim %lld; dims are 0 to %d", value_str(g->arena, x), (long long)op->i[0],
                  x->dims - 1);
    return (int)op->i[0];
}

static void view_range(Graph *g, Op *op, int k, int dim, int64_t start, int64_t length) {
    Value *x = op->in[0];
    int64_t shape[MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[dim] = length;
    rule_view(g, op, k, x, x->dims, shape, x->stride, start * x->stride[dim]);
}

void infer_slice(Graph *g, Op *op) {
    int dim = need_dim(g, op);
    int64_t start = op->i[1], length = op->i[2], size = op->in[0]->shape[dim];
    if (start < 0 || length < 1 || length > size || start > size - length)
        rule_fail(g, op, "x %s: %lld elements from %lld of dim %d, which has %lld", value_str(g->arena, op->in[0]),
                  (long long)length, (long long)start, dim, (long long)size);
    view_range(g, op, 0, dim, start, length);
}

void grad_slice(Builder *b, Op *op, Value **gout, Value **gin) {
    int64_t ints[3] = {op->i[0], op->i[1], op->in[0]->shape[op->i[0]]};
    gin[0] = build_op(b, OP_PAD_SLICE, 1, gout, ints, 3, NULL, 0)->out[0];
}

void infer_split(Graph *g, Op *op) {
    int dim = need_dim(g, op), pieces = (int)op->i[1];
    int64_t total = 0, size = op->in[0]->shape[dim];
    if (pieces < 1 || pieces > MAX_INTS - 2)
        rule_fail(g, op, "x %s into %d pieces: 1 to %d are supported; split in two steps",
                  value_str(g->arena, op->in[0]), pieces, MAX_INTS - 2);
    for (int k = 0; k < pieces; k++) {
        if (op->i[2 + k] < 1 || op->i[2 + k] > size)
            rule_fail(g, op, "x %s: piece %d of dim %d has %lld elements, and must have 1 to %lld",
                      value_str(g->arena, op->in[0]), k, dim, (long long)op->i[2 + k], (long long)size);
        total += op->i[2 + k];
    }
    if (total != size)
        rule_fail(g, op, "x %s: pieces of %s add up to %lld ≠ %lld, the size of dim %d", value_str(g->arena, op->in[0]),
                  shape_str(g->arena, pieces, op->i + 2), (long long)total, (long long)size, dim);
    int64_t start = 0;
    for (int k = 0; k < pieces; k++) {
        view_range(g, op, k, dim, start, op->i[2 + k]);
        start += op->i[2 + k];
    }
}

Value *zeros_like(Builder *b, const Value *v) {
    int64_t ints[2 + MAX_DIMS] = {v->dtype, v->dims};
    for (int i = 0; i < v->dims; i++) ints[2 + i] = v->shape[i];
    return build_op(b, OP_FULL, 0, NULL, ints, 2 + v->dims, (double[]){0}, 1)->out[0];
}

void grad_split(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *pieces[MAX_IN];
    for (int k = 0; k < op->nout; k++) pieces[k] = gout[k] ? gout[k] : zeros_like(b, op->out[k]);
    gin[0] = build_op(b, OP_CONCAT, op->nout, pieces, op->i, 1, NULL, 0)->out[0];
}

void infer_concat(Graph *g, Op *op) {
    int dim = need_dim(g, op);
    const Value *a = op->in[0];
    int64_t shape[MAX_DIMS];
    memcpy(shape, a->shape, sizeof shape);
    for (int k = 1; k < op->nin; k++) {
        const Value *v = op->in[k];
        bool fits = v->dims == a->dims && v->dtype == a->dtype;
        for (int i = 0; i < a->dims && fits; i++) fits = i == dim || v->shape[i] == a->shape[i];
        if (!fits)
            rule_fail(g, op, "piece 0 is %s, piece %d %s: dtypes and all sizes but that of dim %d must be equal",
                      value_str(g->arena, a), k, value_str(g->arena, v), dim);
        shape[dim] += v->shape[dim];
    }
    rule_out(g, op, 0, a->dtype, a->dims, shape);
}

void grad_concat(Builder *b, Op *op, Value **gout, Value **gin) {
    int64_t start = 0;
    for (int k = 0; k < op->nin; k++) {
        int64_t length = op->in[k]->shape[op->i[0]], ints[3] = {op->i[0], start, length};
        if (dtype_float(op->in[k]->dtype)) gin[k] = build_op(b, OP_SLICE, 1, gout, ints, 3, NULL, 0)->out[0];
        start += length;
    }
}

void infer_copy(Graph *g, Op *op) {
    rule_out_like(g, op, 0, op->in[0]);
}
void grad_copy(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = gout[0];
}

/* The same op, for as long as the gradient is to take. */
void grad_debug_sleep(Builder *b, Op *op, Value **gout, Value **gin) {
    gin[0] = build_op(b, OP_DEBUG_SLEEP, 1, gout, NULL, 0, (double[]){op->f[1], 0}, 2)->out[0];
}

Cost cost_debug_sleep(const Op *op) {
    Cost c = cost_copy(op);
    c.least_us = op->f[0] * 1e3;
    return c;
}

void infer_pad_slice(Graph *g, Op *op) {
    int dim = need_dim(g, op);
    const Value *x = op->in[0];
    int64_t shape[MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    if (op->i[1] < 0 || op->i[2] < 1 || op->i[1] > op->i[2] - shape[dim])
        rule_fail(g, op, "x %s at %lld of dim %d does not lie within %lld elements", value_str(g->arena, x),
                  (long long)op->i[1], dim, (long long)op->i[2]);
    shape[dim] = op->i[2];
    rule_out(g, op, 0, x->dtype, x->dims, shape);
}

void grad_pad_slice(Builder *b, Op *op, Value **gout, Value **gin) {
    int64_t ints[3] = {op->i[0], op->i[1], op->in[0]->shape[op->i[0]]};
    gin[0] = build_op(b, OP_SLICE, 1, gout, ints, 3, NULL, 0)->out[0];
}

/* ── sources ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Dtype need_dtype(Graph *g, const Op *op) {
    if (op->i[0] < 0 || op->i[0] >= N_DTYPES || op->i[0] == FP8_E4M3 || op->i[0] == FP8_E5M2)
        rule_fail(g, op,
                  "cannot make values of dtype %s; use \"fp32\", \"bf16\", \"fp16\", \"int32\", \"int64\" or \"bool\"",
                  op->i[0] >= 0 && op->i[0] < N_DTYPES ? dtype_name((Dtype)op->i[0]) : "?");
    return (Dtype)op->i[0];
}

void infer_full(Graph *g, Op *op) {
    Dtype d = need_dtype(g, op);
    int64_t n = 1;
    if (op->i[1] < 0 || op->i[1] > MAX_DIMS)
        rule_fail(g, op, "%lld dims: at most %d are supported", (long long)op->i[1], MAX_DIMS);
    for (int i = 0; i < op->i[1]; i++)
        if (op->i[2 + i] < 1 || __builtin_mul_overflow(n, op->i[2 + i], &n))
            rule_fail(g, op, "%s: sizes must be positive", shape_str(g->arena, (int)op->i[1], op->i + 2));
    rule_out(g, op, 0, d, (int)op->i[1], op->i + 2);
}

void infer_arange(Graph *g, Op *op) {
    Dtype d = need_dtype(g, op);
    if (op->i[1] < 1) rule_fail(g, op, "%lld elements: at least one is needed", (long long)op->i[1]);
    rule_out(g, op, 0, d, 1, op->i + 1);
}

void infer_scalar(Graph *g, Op *op) {
    rule_out(g, op, 0, FP32, 0, (int64_t[1]){1});
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_reduce(Graph *g, Op *op) {
    const Value *x = op->in[0];
    int64_t mask = op->i[0], shape[MAX_DIMS];
    int dims = 0;
    if (x->dims ? mask <= 0 || mask >= (int64_t)1 << x->dims : mask != 0)
        rule_fail(g, op, "x %s: reduced dims must be among 0 to %d, at least one", value_str(g->arena, x), x->dims - 1);
    if (op->kind == OP_MEAN) need_float(g, op, 0, "x");
    if (x->dtype == BOOL || x->dtype == FP8_E4M3 || x->dtype == FP8_E5M2)
        rule_fail(g, op, "x %s cannot be reduced as it is; cast it to \"int32\" or \"fp32\" first",
                  value_str(g->arena, x));
    for (int i = 0; i < x->dims; i++) {
        if (!(mask >> i & 1))
            shape[dims++] = x->shape[i];
        else if (op->i[1])
            shape[dims++] = 1;
    }
    rule_out(g, op, 0, attr_dtype(op->kind == OP_SUM ? op->i[2] : 0, x->dtype), dims, shape);
}

/* The result's gradient with the reduced dims back as ones (kept) or gone (not kept). */
static Value *reshape_reduced(Builder *b, const Op *op, Value *g, bool keep) {
    const Value *x = op->in[0];
    int64_t shape[MAX_DIMS];
    int dims = 0;
    for (int i = 0; i < x->dims; i++) {
        if (!(op->i[0] >> i & 1))
            shape[dims++] = x->shape[i];
        else if (keep)
            shape[dims++] = 1;
    }
    return build_reshape(b, g, dims, shape);
}

static Value *spread(Builder *b, const Op *op, Value *g) {
    return build_expand(b, reshape_reduced(b, op, g, true), op->in[0]->dims, op->in[0]->shape);
}

void grad_sum(Builder *b, Op *op, Value **gout, Value **gin) {
    if (dtype_float(op->in[0]->dtype)) gin[0] = spread(b, op, build_cast(b, gout[0], op->in[0]->dtype));
}

void grad_mean(Builder *b, Op *op, Value **gout, Value **gin) {
    double n = (double)value_numel(op->in[0]) / (double)value_numel(op->out[0]);
    gin[0] = spread(b, op, build_scalar(b, OP_MUL_SCALAR, gout[0], 1 / n));
}

void grad_max(Builder *b, Op *op, Value **gout, Value **gin) {
    if (!dtype_float(op->in[0]->dtype)) return;
    Value *in[3] = {reshape_reduced(b, op, gout[0], false), op->in[0], reshape_reduced(b, op, op->out[0], false)};
    gin[0] = build_op(b, OP_MAX_GRAD, 3, in, op->i, 1, NULL, 0)->out[0];
}
