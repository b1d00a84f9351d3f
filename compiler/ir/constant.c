/* Evaluates views, sources and arithmetic of integers; a double holds every int32. Floating-point numbers count where
 * they are written down, not where they are computed: units may round them. Relies on: ops.def for the meaning of
 * attributes. Relied on by: frontend/trace.c. */
#include "constant.h"

enum { MOST = 1 << 22 }; /* elements to compute in all */

typedef struct {
    Arena *arena;
    int64_t left; /* elements that may still be computed */
} Reader;

static const double *read_value(Reader *r, const Value *v);

static bool apply(const Op *op, const double *x, double *y) {
    double a = x[0], b = x[1], f0 = op->f[0], f1 = op->f[1];
    switch (op->kind) {
    case OP_ADD: *y = a + b; return true;
    case OP_SUB: *y = a - b; return true;
    case OP_MUL: *y = a * b; return true;
    case OP_MAXIMUM: *y = a > b ? a : b; return true;
    case OP_MINIMUM: *y = a < b ? a : b; return true;
    case OP_ADD_SCALAR: *y = a + f0; return true;
    case OP_MUL_SCALAR: *y = a * f0; return true;
    case OP_NEG: *y = -a; return true;
    case OP_ABS: *y = a > 0 ? a : -a; return true;
    case OP_CLAMP: *y = a < f0 ? f0 : a > f1 ? f1 : a; return true;
    case OP_LT: *y = a < b; return true;
    case OP_LE: *y = a <= b; return true;
    case OP_GT: *y = a > b; return true;
    case OP_GE: *y = a >= b; return true;
    case OP_EQ: *y = a == b; return true;
    case OP_NE: *y = a != b; return true;
    case OP_WHERE: *y = a != 0 ? b : x[2]; return true;
    case OP_CAST: *y = (double)(int64_t)a; return true;
    case OP_COPY: *y = a; return true;
    default: return false;
    }
}

static double *room(Reader *r, int64_t n) {
    r->left -= n;
    return r->left < 0 ? NULL : arena_alloc(r->arena, (size_t)n * sizeof(double));
}

static const double *read_pointwise(Reader *r, const Op *op) {
    const double *in[3] = {0};
    int64_t n = value_numel(op->out[0]);
    if (dtype_float(op->out[0]->dtype) || op->nin > 3) return NULL;
    for (int k = 0; k < op->nin; k++)
        if (!(in[k] = read_value(r, op->in[k]))) return NULL;
    double *y = room(r, n);
    for (int64_t i = 0; y && i < n; i++)
        if (!apply(op, (double[]){in[0][i], in[1] ? in[1][i] : 0, in[2] ? in[2][i] : 0}, &y[i])) return NULL;
    return y;
}

/* Pieces lie one after the other along a dim: runs of them alternate in the result. */
static const double *read_concat(Reader *r, const Op *op) {
    const Value *out = op->out[0];
    int64_t n = value_numel(out), run = 1, at = 0;
    double *y = room(r, n);
    for (int d = (int)op->i[0]; d < out->dims; d++) run *= out->shape[d];
    for (int k = 0; y && k < op->nin; k++) {
        const double *x = read_value(r, op->in[k]);
        int64_t piece = value_numel(op->in[k]) / (n / run);
        if (!x) return NULL;
        for (int64_t o = 0; o < n / run; o++) memcpy(y + o * run + at, x + o * piece, (size_t)piece * sizeof *y);
        at += piece;
    }
    return y;
}

/* A value that owns its bytes. */
static const double *read_root(Reader *r, const Value *v) {
    const Op *op = v->def;
    if (!op) return NULL;
    if (op->kind == OP_CONCAT) return read_concat(r, op);
    if (op->kind != OP_FULL && op->kind != OP_ARANGE) return op->nin && op->nout == 1 ? read_pointwise(r, op) : NULL;
    int64_t n = value_numel(v);
    double *y = room(r, n);
    for (int64_t i = 0; y && i < n; i++) y[i] = op->kind == OP_FULL ? op->f[0] : op->f[0] + (double)i * op->f[1];
    return y;
}

static const double *read_value(Reader *r, const Value *v) {
    const double *x = read_root(r, v->base ? v->base : v);
    if (!x || !v->base) return x;
    int64_t n = value_numel(v), index[MAX_DIMS] = {0};
    double *y = room(r, n);
    for (int64_t i = 0; y && i < n; i++) {
        int64_t at = v->offset;
        for (int d = 0; d < v->dims; d++) at += index[d] * v->stride[d];
        y[i] = x[at];
        for (int d = v->dims - 1; d >= 0 && ++index[d] == v->shape[d]; d--) index[d] = 0;
    }
    return y;
}

const double *constant_elements(Arena *a, const Value *v) {
    return read_value(&(Reader){a, MOST}, v);
}
