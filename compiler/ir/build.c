/* Builder: appends ops to a program, giving each its origin, phase, source and stable id.
 * Relies on: the table of ops.
 * Relied on by: the front end, gradient rules, autodiff, precision, fuse, shard, offload. */
#include "build.h"
#include "notes.h"

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

static const char *next_id(Builder *b) {
    const char *given = b->id;
    b->id = NULL;
    if (given) return given;
    return b->of ? arena_printf(b->g->arena, "%s%s%d", b->of, b->letter, b->k++)
                 : arena_printf(b->g->arena, "e%d", b->p->ntraced++);
}

void build_for(Builder *b, const Op *op, const char *letter) {
    b->module = op->module;
    b->src = op->src;
    b->call = op->call;
    b->of = op->id;
    b->letter = letter;
    b->k = 0;
}

Op *build_op(Builder *b, OpKind k, const OpParts *parts) {
    const OpInfo *info = &op_info[k];
    Op *op = op_new(b->g, k);
    op->purpose = op_info[k].traits & T_COLLECTIVE ? TO_EXCHANGE : TO_COMPUTE; /* passes say what theirs are for */
    if (b->module) op->module = b->module;
    op->src = b->src;
    op->phase = b->phase;
    op->origin = b->origin;
    op->call = b->call;
    op->parts = *parts;
    for (int i = 0, slots = op_slot_count(info->operands); i < slots; i++) {
        const Slot *s = op_slot_at(info->operands, i, NULL);
        if (op->in[i])
            op->nin = i + 1;
        else if (!(s->flags & OPTIONAL))
            bug(b->src, "%s lacks its operand %s", info->name, s->name);
    }
    op->id = next_id(b);
    if (info->infer) info->infer(b->g, op);
    check_sizes(b, op);
    push(&b->p->ops, b->g->arena, op);
    return op;
}

/* Precision takes it out: it has no number, so that units do not rename what they hold. */
Value *build_border(Builder *b, Value *v, Module *unit, bool leaves) {
    b->id = arena_printf(b->g->arena, "%s%d", leaves ? "out" : "in", b->p->ops.n + 1);
    Op *op = BUILD(b, border, .a = v);
    *note_on(b->g, b->p, op->border.y) = (Note){.crossed = unit, .leaves = leaves};
    return op->border.y;
}

Value *build_one(Builder *b, OpKind k, Value *a) {
    return op_result(build_op(b, k, &(OpParts){.in = {a}}));
}

Value *build_two(Builder *b, OpKind k, Value *a, Value *c) {
    return op_result(build_op(b, k, &(OpParts){.in = {a, c}}));
}

Value *build_scalar(Builder *b, OpKind k, Value *a, double x) {
    return op_result(build_op(b, k, &(OpParts){.in = {a}, .f = {x}}));
}

static Value *build_shaped(Builder *b, OpKind k, Value *a, int dims, const int64_t *shape) {
    OpParts parts = {.in = {a}};
    int64_t *sizes = &parts.i[op_place(k, PART_INT, "shape")];
    parts.i[op_place(k, PART_INT, "dims")] = dims;
    if (dims < 0 || dims > MAX_DIMS)
        fail(b->src, "%s: %d dims, at most %d are supported; fold some together", op_info[k].name, dims, MAX_DIMS);
    for (int i = 0; i < dims; i++) sizes[i] = shape[i];
    return op_result(build_op(b, k, &parts));
}

Value *build_expand(Builder *b, Value *a, int dims, const int64_t *shape) {
    return value_has_shape(a, dims, shape) ? a : build_shaped(b, OP_expand, a, dims, shape);
}

Value *build_sum_to(Builder *b, Value *a, int dims, const int64_t *shape) {
    int lead = a->dims - dims;
    int64_t mask = 0;
    for (int i = 0; i < a->dims; i++)
        if (i < lead || (shape[i - lead] == 1 && a->shape[i] != 1)) mask |= 1 << i;
    if (!mask) return a;
    Value *sum = BUILD(b, sum, .x = a, .over = mask, .keep = lead == 0)->sum.y;
    return value_has_shape(sum, dims, shape) ? sum : build_reshape(b, sum, dims, shape);
}

Value *build_reshape(Builder *b, Value *a, int dims, const int64_t *shape) {
    if (value_has_shape(a, dims, shape)) return a;
    int64_t n = 1, stride[MAX_DIMS];
    bool plain = dims >= 0 && dims <= MAX_DIMS;
    for (int i = 0; i < dims && plain; i++) plain = shape[i] > 0 && !__builtin_mul_overflow(n, shape[i], &n);
    /* A shape that does not fit goes to the rule as it is, which says what is wrong with it. */
    if (plain && n == value_numel(a) && !value_reshape_strides(a, dims, shape, stride)) a = build_one(b, OP_copy, a);
    return build_shaped(b, OP_reshape, a, dims, shape);
}

Value *build_transpose(Builder *b, Value *a, const int *perm) {
    OpParts parts = {.transpose = {.a = a}};
    for (int i = 0; i < a->dims; i++) parts.transpose.order[i] = perm[i];
    return build_op(b, OP_transpose, &parts)->transpose.y;
}

Value *build_cast(Builder *b, Value *a, Dtype d) {
    return a->dtype == d ? a : BUILD(b, cast, .a = a, .dtype = d)->cast.y;
}
