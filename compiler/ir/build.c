/* Builder: appends ops to a program, giving each its origin, phase, source and stable id.
 * Relies on: the table of ops.
 * Relied on by: the front end, gradient rules, autodiff, precision, fuse, shard, offload. */
#include "build.h"
#include "rules.h"

/* All that is computed from sizes later on, such as the sum of what lives at one time, stays far from overflow. */
static void check_sizes(const Builder *b, const Op *op) {
    const int64_t most = (int64_t)1 << 48;
    for (int i = 0; i < op->nout; i++) {
        const Value *v = op->out[i];
        int64_t n = dtype_size(v->dtype);
        bool fits = true;
        for (int d = 0; d < v->dims && fits; d++) fits = !__builtin_mul_overflow(n, v->shape[d], &n) && n <= most;
        if (!fits)
            fail(b->src,
                 "%s: its result %s takes more than 256 TiB, more than any memory holds; make its sizes smaller",
                 op_info[op->kind].name, value_str(b->g->arena, v));
    }
}

Op *build_op(Builder *b, OpKind k, int nin, Value *const *in, const int64_t *ints, int nints, const double *floats,
             int nfloats) {
    const OpInfo *info = &op_info[k];
    if (nin < info->min_in || nin > info->max_in)
        fail(b->src, "%s takes %d to %d operands, got %d", info->name, info->min_in, info->max_in, nin);
    if (nints > MAX_INTS || nfloats > MAX_FLOATS)
        fail(b->src, "%s: %d attributes, at most %d fit; split the op in two", info->name, nints, MAX_INTS);
    Op *op = new_op(b->g, k);
    if (b->module) op->module = b->module;
    op->src = b->src;
    op->phase = b->phase;
    op->origin = b->origin;
    op->call = b->call;
    op->nin = nin;
    for (int i = 0; i < nin; i++) op->in[i] = in[i];
    for (int i = 0; i < nints; i++) op->i[i] = ints[i];
    for (int i = 0; i < nfloats; i++) op->f[i] = floats[i];
    op->id = b->origin ? arena_printf(b->g->arena, "%sb%d", b->origin->id, b->k++)
                       : arena_printf(b->g->arena, "e%d", b->g->next_op++);
    if (info->infer) info->infer(b->g, op);
    check_sizes(b, op);
    push(&b->p->ops, b->g->arena, op);
    return op;
}

/* Precision takes it out: it has no number, so that units do not rename what they hold. */
Value *build_border(Builder *b, Value *v, Module *unit, bool leaves) {
    int next = b->g->next_op;
    Op *op = build_op(b, OP_BORDER, 1, &v, NULL, 0, NULL, 0);
    op->id = arena_printf(b->g->arena, "%s%d", leaves ? "out" : "in", b->p->ops.n);
    op->border = unit;
    op->leaves = leaves;
    b->g->next_op = next;
    return op->out[0];
}

Value *build1(Builder *b, OpKind k, Value *a) {
    return build_op(b, k, 1, &a, NULL, 0, NULL, 0)->out[0];
}

Value *build2(Builder *b, OpKind k, Value *a, Value *c) {
    return build_op(b, k, 2, (Value *[]){a, c}, NULL, 0, NULL, 0)->out[0];
}

Value *build_scalar(Builder *b, OpKind k, Value *a, double f) {
    return build_op(b, k, 1, &a, NULL, 0, &f, 1)->out[0];
}

static bool has_shape(const Value *v, int dims, const int64_t *shape) {
    return v->dims == dims && !memcmp(v->shape, shape, sizeof(int64_t) * (size_t)dims);
}

/* An op whose attributes are a count of dims and a shape. */
static Value *build_shaped(Builder *b, OpKind k, Value *a, int dims, const int64_t *shape) {
    int64_t ints[1 + MAX_DIMS] = {dims};
    if (dims < 0 || dims > MAX_DIMS)
        fail(b->src, "%s: %d dims, at most %d are supported; fold some together", op_info[k].name, dims, MAX_DIMS);
    for (int i = 0; i < dims; i++) ints[1 + i] = shape[i];
    return build_op(b, k, 1, &a, ints, 1 + dims, NULL, 0)->out[0];
}

Value *build_expand(Builder *b, Value *a, int dims, const int64_t *shape) {
    return has_shape(a, dims, shape) ? a : build_shaped(b, OP_EXPAND, a, dims, shape);
}

Value *build_sum_to(Builder *b, Value *a, int dims, const int64_t *shape) {
    int lead = a->dims - dims;
    int64_t mask = 0;
    for (int i = 0; i < a->dims; i++)
        if (i < lead || (shape[i - lead] == 1 && a->shape[i] != 1)) mask |= 1 << i;
    if (!mask) return a;
    int64_t ints[2] = {mask, lead == 0};
    Value *sum = build_op(b, OP_SUM, 1, &a, ints, 2, NULL, 0)->out[0];
    return has_shape(sum, dims, shape) ? sum : build_reshape(b, sum, dims, shape);
}

Value *build_reshape(Builder *b, Value *a, int dims, const int64_t *shape) {
    if (has_shape(a, dims, shape)) return a;
    int64_t n = 1, stride[MAX_DIMS];
    bool plain = dims >= 0 && dims <= MAX_DIMS;
    for (int i = 0; i < dims && plain; i++) plain = shape[i] > 0 && !__builtin_mul_overflow(n, shape[i], &n);
    /* A shape that does not fit goes to the rule as it is, which says what is wrong with it. */
    if (plain && n == value_numel(a) && !reshape_strides(a, dims, shape, stride)) a = build1(b, OP_COPY, a);
    return build_shaped(b, OP_RESHAPE, a, dims, shape);
}

Value *build_transpose(Builder *b, Value *a, const int *perm) {
    int64_t ints[MAX_DIMS];
    for (int i = 0; i < a->dims; i++) ints[i] = perm[i];
    return build_op(b, OP_TRANSPOSE, 1, &a, ints, a->dims, NULL, 0)->out[0];
}

Value *build_cast(Builder *b, Value *a, Dtype d) {
    int64_t to = d;
    return a->dtype == d ? a : build_op(b, OP_CAST, 1, &a, &to, 1, NULL, 0)->out[0];
}
