/* An interpreter of small programs: values as doubles, rounded to their dtype where an op stands.
 * Relies on: compiler/ir, Criterion (for what it does not know).
 * Relied on by: test_lower.c, whose graph `g` it runs. */
#ifndef INTERPRET_H
#define INTERPRET_H

static double **bytes; /* by Value.id, of roots */
static Arena *memory;  /* of one run */
static bool exact;     /* no rounding: for differences */

static double rounded(double x, Dtype d) {
    if (exact || d == FP64) return x;
    union {
        float f;
        uint32_t u;
    } f = {.f = (float)x};
    if (d == BF16) f.u = (f.u + 0x7fff + (f.u >> 16 & 1)) & 0xffff0000u;
    return f.f;
}

static double *bytes_of(Value *v) {
    Value *root = value_root(v);
    if (!bytes[root->id]) bytes[root->id] = NEW_ARRAY(memory, double, value_numel(root) + 1);
    return bytes[root->id];
}

static int64_t at(const Value *v, const int64_t *index) {
    int64_t o = v->offset;
    for (int d = 0; d < v->dims; d++) o += index[d] * v->stride[d];
    return o;
}

static void unravel(const Value *v, int64_t i, int64_t *index) {
    for (int d = v->dims - 1; d >= 0; d--) {
        index[d] = i % v->shape[d];
        i /= v->shape[d];
    }
}

static double get(Value *v, int64_t i) {
    int64_t index[MAX_DIMS];
    unravel(v, i, index);
    return bytes_of(v)[at(v, index)];
}

static void set(Value *v, int64_t i, double x) {
    int64_t index[MAX_DIMS];
    unravel(v, i, index);
    bytes_of(v)[at(v, index)] = rounded(x, v->dtype);
}

static double pointwise(const Op *op, double x, double y) {
    switch (op->kind) {
    case OP_ADD: return x + y;
    case OP_SUB: return x - y;
    case OP_MUL: return x * y;
    case OP_NEG: return -x;
    case OP_ADD_SCALAR: return x + op->f[0];
    case OP_MUL_SCALAR: return x * op->f[0];
    case OP_TANH: return tanh(x);
    case OP_TANH_GRAD: return x * (1 - y * y);
    case OP_SILU: return x / (1 + exp(-x));
    case OP_SILU_GRAD: {
        double s = 1 / (1 + exp(-y));
        return x * s * (1 + y * (1 - s));
    }
    case OP_CAST: return x;
    default: cr_assert_fail("the interpreter does not know %s", op_info[op->kind].name); return 0;
    }
}

static void run_matmul(const Op *op) {
    Value *x = op->in[0], *w = op->in[1], *y = op->out[0];
    bool ta = op->i[0], tb = op->i[1];
    int64_t m = y->shape[y->dims - 2], n = y->shape[y->dims - 1], k = x->shape[x->dims - 1 - ta],
            batch = value_numel(y) / (m * n);
    for (int64_t s = 0; s < batch; s++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                int64_t ws = w->dims == 2 ? 0 : s * k * n;
                for (int64_t l = 0; l < k; l++)
                    sum += get(x, s * m * k + (ta ? l * m + i : i * k + l)) * get(w, ws + (tb ? j * k + l : l * n + j));
                set(y, s * m * n + i * n + j, sum);
            }
}

static void run_reduce(const Op *op) {
    Value *x = op->in[0], *y = op->out[0];
    int64_t n = value_numel(x), ny = value_numel(y), index[MAX_DIMS];
    double *sum = calloc((size_t)ny, sizeof *sum);
    for (int64_t i = 0; i < n; i++) {
        int64_t o = 0;
        unravel(x, i, index);
        for (int d = 0; d < x->dims; d++)
            if (!(op->i[0] >> d & 1)) o = o * x->shape[d] + index[d];
        sum[o] += get(x, i);
    }
    for (int64_t i = 0; i < ny; i++) set(y, i, op->kind == OP_MEAN ? sum[i] * (double)ny / (double)n : sum[i]);
    free(sum);
}

static void run_softmax(const Op *op) { /* and its gradient */
    Value *y = op->out[0];
    int64_t n = y->shape[y->dims - 1];
    for (int64_t r = 0; r < value_numel(y) / n; r++) {
        double sum = 0;
        bool grad = op->kind == OP_SOFTMAX_GRAD;
        for (int64_t i = r * n; i < r * n + n; i++)
            sum += grad ? get(op->in[0], i) * get(op->in[1], i) : exp(get(op->in[0], i));
        for (int64_t i = r * n; i < r * n + n; i++)
            set(y, i, grad ? get(op->in[1], i) * (get(op->in[0], i) - sum) : exp(get(op->in[0], i)) / sum);
    }
}

static void run_pieces(const Op *op) { /* concat, pad_slice */
    int64_t index[MAX_DIMS], start = op->kind == OP_PAD_SLICE ? op->i[1] : 0;
    Value *y = op->out[0];
    if (op->kind == OP_PAD_SLICE)
        for (int64_t i = 0; i < value_numel(y); i++) set(y, i, 0);
    for (int k = 0; k < op->nin; k++) {
        for (int64_t i = 0; i < value_numel(op->in[k]); i++) {
            unravel(op->in[k], i, index);
            index[op->i[0]] += start;
            bytes_of(y)[at(y, index)] = get(op->in[k], i);
        }
        start += op->in[k]->shape[op->i[0]];
    }
}

static void run_op(const Op *op) {
    if (op_is(op, T_VIEW)) return;
    for (int m = 0; m < op->nbody; m++) run_op(op->body[m]);
    if (op->nbody) return;
    Value *y = op->nout ? op->out[0] : NULL;
    int64_t n = y ? value_numel(y) : 0;
    switch (op->kind) {
    case OP_MATMUL: run_matmul(op); return;
    case OP_SUM:
    case OP_MEAN: run_reduce(op); return;
    case OP_SOFTMAX:
    case OP_SOFTMAX_GRAD: run_softmax(op); return;
    case OP_CONCAT:
    case OP_PAD_SLICE: run_pieces(op); return;
    case OP_GRAD_SEED:
    case OP_FULL:
        for (int64_t i = 0; i < n; i++) set(y, i, op->kind == OP_FULL ? op->f[0] : 1);
        return;
    case OP_COPY:
        for (int64_t i = 0; i < n; i++) set(y, i, get(op->in[0], i));
        return;
    case OP_DROPOUT: /* keyed by element and attribute */
        for (int64_t i = 0; i < n; i++) set(y, i, (i * 7 + op->i[0]) % 3 ? get(op->in[0], i) * 1.5 : 0);
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            set(y, i, pointwise(op, get(op->in[0], i), op->nin > 1 ? get(op->in[1], i) : 0));
    }
}

static double noise(uint64_t key) {
    key = (key + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    return (double)(int64_t)(key ^ key >> 31) / 9.3e18;
}

static void release(void) {
    if (memory) arena_free(memory);
    memory = NULL;
}

/* Runs the training program from fixed parameters and inputs, with `delta` added to element `element` of parameter
 * `which`. */
static double run(int which, int64_t element, double delta) {
    release();
    memory = arena_new();
    bytes = NEW_ARRAY(memory, double *, g->values.n);
    for (int i = 0; i < g->values.n; i++) {
        Value *v = g->values.at[i];
        if (v->base || v->def || (!v->param && !v->name)) continue;
        for (int64_t e = 0; e < value_numel(v); e++) {
            bool moved = v->param && v->param->id == which && e == element;
            set(v, e, noise((uint64_t)(i * 4099 + e)) + (moved ? delta : 0));
        }
    }
    for (int i = 0; i < g->train->ops.n; i++) run_op(g->train->ops.at[i]);
    return get(g->train->loss, 0);
}

#endif
