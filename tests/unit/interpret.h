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
    case OP_add: return x + y;
    case OP_sub: return x - y;
    case OP_mul: return x * y;
    case OP_neg: return -x;
    case OP_add_scalar: return x + op->add_scalar.x;
    case OP_mul_scalar: return x * op->mul_scalar.x;
    case OP_tanh: return tanh(x);
    case OP_tanh_grad: return x * (1 - y * y);
    case OP_silu: return x / (1 + exp(-x));
    case OP_silu_grad: {
        double s = 1 / (1 + exp(-y));
        return x * s * (1 + y * (1 - s));
    }
    case OP_cast: return x;
    default: cr_assert_fail("the interpreter does not know %s", op_info[op->kind].name); return 0;
    }
}

static void run_matmul(const Op *op) {
    Value *x = op->matmul.a, *w = op->matmul.b, *y = op->matmul.y;
    bool ta = op->matmul.trans_a, tb = op->matmul.trans_b;
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

static void run_reduce(const Op *op) { /* sum, mean */
    Value *x = op->sum.x, *y = op->sum.y;
    int64_t n = value_numel(x), ny = value_numel(y), index[MAX_DIMS];
    double *sum = calloc((size_t)ny, sizeof *sum);
    for (int64_t i = 0; i < n; i++) {
        int64_t o = 0;
        unravel(x, i, index);
        for (int d = 0; d < x->dims; d++)
            if (!(op->sum.over >> d & 1)) o = o * x->shape[d] + index[d];
        sum[o] += get(x, i);
    }
    for (int64_t i = 0; i < ny; i++) set(y, i, op->kind == OP_mean ? sum[i] * (double)ny / (double)n : sum[i]);
    free(sum);
}

static void run_softmax(const Op *op) {
    Value *x = op->softmax.x, *y = op->softmax.y;
    int64_t n = y->shape[y->dims - 1];
    for (int64_t r = 0; r < value_numel(y) / n; r++) {
        double sum = 0;
        for (int64_t i = r * n; i < r * n + n; i++) sum += exp(get(x, i));
        for (int64_t i = r * n; i < r * n + n; i++) set(y, i, exp(get(x, i)) / sum);
    }
}

static void run_softmax_grad(const Op *op) {
    Value *grad = op->softmax_grad.g, *y = op->softmax_grad.y, *dx = op->softmax_grad.dx;
    int64_t n = y->shape[y->dims - 1];
    for (int64_t r = 0; r < value_numel(y) / n; r++) {
        double sum = 0;
        for (int64_t i = r * n; i < r * n + n; i++) sum += get(grad, i) * get(y, i);
        for (int64_t i = r * n; i < r * n + n; i++) set(dx, i, get(y, i) * (get(grad, i) - sum));
    }
}

static void put(Value *y, Value *piece, int64_t dim, int64_t start) {
    int64_t index[MAX_DIMS];
    for (int64_t i = 0; i < value_numel(piece); i++) {
        unravel(piece, i, index);
        index[dim] += start;
        bytes_of(y)[at(y, index)] = get(piece, i);
    }
}

static void run_concat(const Op *op) {
    for (int64_t k = 0, start = 0; k < op->nin; k++) {
        put(op->concat.y, op->concat.x[k], op->concat.dim, start);
        start += op->concat.x[k]->shape[op->concat.dim];
    }
}

static void fill(Value *y, double x) {
    for (int64_t i = 0; i < value_numel(y); i++) set(y, i, x);
}

static void run_op(const Op *op) {
    if (op_is(op, T_VIEW)) return;
    for (int m = 0; m < op->nbody; m++) run_op(op->body[m]);
    if (op->nbody) return;
    switch (op->kind) {
    case OP_matmul: run_matmul(op); return;
    case OP_sum:
    case OP_mean: run_reduce(op); return;
    case OP_softmax: run_softmax(op); return;
    case OP_softmax_grad: run_softmax_grad(op); return;
    case OP_concat: run_concat(op); return;
    case OP_pad_slice:
        fill(op->pad_slice.y, 0);
        put(op->pad_slice.y, op->pad_slice.a, op->pad_slice.dim, op->pad_slice.start);
        return;
    case OP_grad_seed: fill(op->grad_seed.y, 1); return;
    case OP_full: fill(op->full.y, op->full.value); return;
    case OP_copy:
        for (int64_t i = 0; i < value_numel(op->copy.y); i++) set(op->copy.y, i, get(op->copy.a, i));
        return;
    case OP_dropout: /* keyed by element and attribute */
        for (int64_t i = 0; i < value_numel(op->dropout.y); i++)
            set(op->dropout.y, i, (i * 7 + op->dropout.key) % 3 ? get(op->dropout.x, i) * 1.5 : 0);
        return;
    default: /* pointwise: one operand or two, as add has */
        for (int64_t i = 0; i < value_numel(op->add.y); i++)
            set(op->add.y, i, pointwise(op, get(op->add.a, i), op->add.b ? get(op->add.b, i) : 0));
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
