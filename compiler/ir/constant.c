/* Evaluates views, sources and arithmetic of integers; a double holds every int32. Floating-point numbers count where
 * they are written down, not where they are computed: units may round them. Relies on: ops.def for the meaning of
 * attributes. Relied on by: frontend/trace.c. */
#include "constant.h"
#include "ops.h"

enum { MOST = 1 << 22 }; /* elements to compute in all */

typedef struct {
    Arena *arena;
    int64_t left; /* elements that may still be computed */
} Reader;

static const double *read_value(Reader *r, const Value *v);

/* y: of the operands' elements x, each where its operand lies. */
static bool apply(const Op *op, const double *x, double *y) {
    double a = x[0], b = x[1];
    switch (op->kind) {
    case OP_add: *y = a + b; return true;
    case OP_sub: *y = a - b; return true;
    case OP_mul: *y = a * b; return true;
    case OP_maximum: *y = a > b ? a : b; return true;
    case OP_minimum: *y = a < b ? a : b; return true;
    case OP_add_scalar: *y = a + op->add_scalar.x; return true;
    case OP_mul_scalar: *y = a * op->mul_scalar.x; return true;
    case OP_neg: *y = -a; return true;
    case OP_abs: *y = a > 0 ? a : -a; return true;
    case OP_clamp: *y = a < op->clamp.low ? op->clamp.low : a > op->clamp.high ? op->clamp.high : a; return true;
    case OP_lt: *y = a < b; return true;
    case OP_le: *y = a <= b; return true;
    case OP_gt: *y = a > b; return true;
    case OP_ge: *y = a >= b; return true;
    case OP_eq: *y = a == b; return true;
    case OP_ne: *y = a != b; return true;
    case OP_where: *y = x[SLOT(where, condition)] != 0 ? x[SLOT(where, a)] : x[SLOT(where, b)]; return true;
    case OP_cast: *y = (double)(int64_t)a; return true;
    case OP_copy: *y = a; return true;
    default: return false;
    }
}

static double *room(Reader *r, int64_t n) {
    r->left -= n;
    return r->left < 0 ? NULL : arena_alloc(r->arena, (size_t)n * sizeof(double));
}

enum { MOST_OPERANDS = SLOT(where, b) + 1 }; /* of a pointwise op */

static const double *read_pointwise(Reader *r, const Op *op) {
    const double *in[MOST_OPERANDS];
    double x[MOST_OPERANDS] = {0};
    int64_t n = value_numel(op_result(op));
    if (dtype_float(op_result(op)->dtype) || op->nin > MOST_OPERANDS) return NULL;
    for (int k = 0; k < op->nin; k++)
        if (!(in[k] = read_value(r, op->in[k]))) return NULL;
    double *y = room(r, n);
    for (int64_t i = 0; y && i < n; i++) {
        for (int k = 0; k < op->nin; k++) x[k] = in[k][i];
        if (!apply(op, x, &y[i])) return NULL;
    }
    return y;
}

/* Pieces lie one after the other along a dim: runs of them alternate in the result. */
static const double *read_concat(Reader *r, const Op *op) {
    const Value *out = op->concat.y;
    int64_t n = value_numel(out), run = 1, at = 0;
    double *y = room(r, n);
    for (int d = (int)op->concat.dim; d < out->dims; d++) run *= out->shape[d];
    for (int k = 0; y && k < op->nin; k++) {
        const double *x = read_value(r, op->concat.x[k]);
        int64_t piece = value_numel(op->concat.x[k]) / (n / run);
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
    if (op->kind == OP_concat) return read_concat(r, op);
    if (op->kind != OP_full && op->kind != OP_arange) return op->nin && op->nout == 1 ? read_pointwise(r, op) : NULL;
    int64_t n = value_numel(v);
    double *y = room(r, n);
    for (int64_t i = 0; y && i < n; i++)
        y[i] = op->kind == OP_full ? op->full.value : op->arange.start + (double)i * op->arange.step;
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
