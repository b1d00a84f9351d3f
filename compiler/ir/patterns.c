/* The table of patterns: which two ops one kernel serves, and how the first takes the second in.
 * Relies on: patterns.h, rules.h.
 * Relied on by: passes/combine.c; the names of events (storages.c, dump.c).
 *
 * A row is a statement about kernels, not about memory: both ops' results keep their meaning, a value that no longer
 * exists is no longer rounded. `first` is changed in place and stands for both. Regions of checkpointed calls: the
 * combined op belongs where its results are wanted, so that what was kept is kept. */
#include "patterns.h"
#include "rules.h"

static void join(Op *op, const Op *like) {
    op->region = like->region;
    op->checkpoint = like->checkpoint;
}

static void take_operand(Op *op, Value *v) {
    op->in[op->nin++] = v;
}
static void take_result(Op *op, Value *v) {
    op->out[op->nout++] = v;
}

static bool same_layout(const Value *a, const Value *b) {
    return a->dtype == b->dtype && same_shape(a, b) && value_contiguous(a) && value_contiguous(b);
}

/* ── matmul ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* One product of two matrices, whose rows lie one after the other in the result, and nothing done to it yet. */
static bool plain_product(const Op *op) {
    bool one = op->in[1]->dims == 2 && (op->in[0]->dims == 2 || !op->i[0]);
    return one && !op->i[3] && !op->i[4] && !op->i[5] && value_contiguous(op->out[0]);
}

/* a b + c: the sum begins with c. Backward operands of the product may be made again in its own region. */
static bool add_to_product(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *y = first->out[0], *c = then->in[1 - operand];
    if (!alone || then->in[operand] != y || !plain_product(first)) return false;
    if (c == y || !same_layout(c, y) || !same_layout(then->out[0], y)) return false;
    take_operand(first, c);
    first->i[3] = 1;
    first->out[0] = then->out[0];
    if (first->phase == FORWARD) join(first, then);
    return true;
}

/* gelu of a product; the product itself stays as a result where the gradient wants it. */
static bool gelu_of_product(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *x = first->out[0];
    if (then->in[operand] != x || !plain_product(first) || !same_layout(then->out[0], x)) return false;
    first->i[4] = alone ? SC_GELU : SC_GELU_TOO;
    first->out[0] = then->out[0];
    if (!alone) take_result(first, x);
    return true;
}

/* The product is a gradient that goes through gelu. */
static bool gelu_grad_of_product(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *y = first->out[0], *x = then->in[1];
    if (operand || !alone || then->in[0] != y || x == y || !plain_product(first)) return false;
    if (first->nin > 2 || !same_layout(x, y) || !same_layout(then->out[0], y)) return false;
    take_operand(first, x);
    first->i[4] = SC_GELU_GRAD;
    first->out[0] = then->out[0];
    join(first, then);
    return true;
}

/* The value that a silu gates; the gate has been computed elsewhere. */
static bool silu_mul_of_product(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *up = first->out[0], *gate = then->in[0];
    if (then->in[1] != up || value_root(gate)->def == first || !plain_product(first)) return false;
    if (!same_layout(gate, up) || !same_layout(then->out[0], up)) return false;
    take_operand(first, gate);
    first->i[4] = alone ? SC_GATED : SC_GATED_TOO;
    first->out[0] = then->out[0];
    if (!alone) take_result(first, up);
    return true;
}

/* The product is a gradient that goes through a gate. */
static bool silu_mul_grad_of_product(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *y = first->out[0], *gate = then->in[1], *up = then->in[2];
    if (operand || !alone || then->in[0] != y || !plain_product(first) || first->nin > 2) return false;
    if (!same_layout(gate, y) || !same_layout(up, y)) return false;
    take_operand(first, gate);
    take_operand(first, up);
    first->i[4] = SC_GATE_GRADS;
    first->out[0] = then->out[0];
    take_result(first, then->out[1]);
    join(first, then);
    return true;
}

/* ── gates ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* silu(gate) up, of which nothing but the two operands is kept for the backward. */
static bool gated_silu(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *gate = first->in[0], *up = then->in[1 - operand];
    if (!alone || then->in[operand] != first->out[0]) return false;
    if (!same_layout(gate, up) || !same_layout(then->out[0], up)) return false;
    first->kind = OP_SILU_MUL;
    take_operand(first, up);
    first->out[0] = then->out[0];
    join(first, then);
    return true;
}

/* ── norms ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* dx and the weights' gradients read the same two tensors. */
static bool both_norm_grads(Op *first, const Op *then, OpKind both) {
    for (int k = 0; k < then->nin; k++)
        if (first->in[k] != then->in[k]) return false;
    if (first->region != then->region) return false;
    first->i[0] = then->i[0];
    first->i[1] = first->nin > then->nin; /* weights */
    first->kind = both;
    for (int k = 0; k < then->nout; k++) take_result(first, then->out[k]);
    return true;
}
static bool layer_norm_grads(Graph *g, Op *first, Op *then, int operand, bool alone) {
    return both_norm_grads(first, then, OP_LAYER_NORM_GRADS);
}
static bool rms_norm_grads(Graph *g, Op *first, Op *then, int operand, bool alone) {
    return both_norm_grads(first, then, OP_RMS_NORM_GRADS);
}

/* dx is added to what came round the norm. */
static bool add_to_norm_grads(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *dx = first->out[0], *c = then->in[1 - operand];
    if (!alone || first->i[2] || then->in[operand] != dx || c == dx) return false;
    if (!same_layout(c, dx) || !same_layout(then->out[0], dx)) return false;
    take_operand(first, c);
    first->i[2] = 1;
    first->out[0] = then->out[0];
    return true;
}

/* The columns of dx are summed, as it is stored: the gradient of the bias of a product before the norm. */
static bool sum_of_norm_grads(Graph *g, Op *first, Op *then, int operand, bool alone) {
    const Value *dx = first->out[0], *x = then->in[0], *sum = then->out[0];
    int last = x->dims - 1;
    bool whole = value_contiguous(x) && value_numel(x) == value_numel(dx);
    bool columns = last > 0 && then->i[0] == (1 << last) - 1 && x->shape[last] == dx->shape[dx->dims - 1];
    if (first->i[3] || value_root(then->in[0]) != dx || !whole || !columns || sum->dims != 1) return false;
    first->i[3] = (int64_t)sum->dtype + 1;
    take_result(first, then->out[0]);
    return true;
}

/* ── loss ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The loss and its gradient in one pass over the logits, where nothing but the seed stands between the two. */
static bool loss_and_grad(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *logits = first->in[0], *targets = first->in[1], *seed = then->in[0];
    if (operand != 3 || !alone || then->in[1] != logits || then->in[2] != targets) return false;
    if (first->region || then->region || !seed->def || seed->def->nin) return false;
    first->kind = OP_CROSS_ENTROPY_GRADS;
    first->phase = then->phase;
    first->nin = 3;
    first->in[0] = seed, first->in[1] = logits, first->in[2] = targets;
    first->out[2] = first->out[1];
    first->out[1] = first->out[0];
    first->out[0] = then->out[0];
    first->nout = 3;
    return true;
}

/* ── the table ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
const Pattern patterns[] = {
    /* name, first, then, traced, chain, early, across, merge */
    {"a gated silu", OP_SILU, OP_MUL, true, true, false, false, gated_silu},
    {"gelu of a product", OP_MATMUL, OP_GELU_TANH, false, true, true, false, gelu_of_product},
    {"gelu's gradient of a product", OP_MATMUL, OP_GELU_TANH_GRAD, false, true, false, false, gelu_grad_of_product},
    {"a product that is gated", OP_MATMUL, OP_SILU_MUL, false, true, false, false, silu_mul_of_product},
    {"a gate's gradient of a product", OP_MATMUL, OP_SILU_MUL_GRAD, false, true, false, false,
     silu_mul_grad_of_product},
    {"a product and a sum", OP_MATMUL, OP_ADD, false, true, false, false, add_to_product},
    {"gradients of layer_norm", OP_LAYER_NORM_GRAD, OP_LAYER_NORM_GRAD_W, false, false, true, false, layer_norm_grads},
    {"gradients of rms_norm", OP_RMS_NORM_GRAD, OP_RMS_NORM_GRAD_W, false, false, true, false, rms_norm_grads},
    {"gradients round a layer_norm", OP_LAYER_NORM_GRADS, OP_ADD, false, true, false, false, add_to_norm_grads},
    {"gradients round an rms_norm", OP_RMS_NORM_GRADS, OP_ADD, false, true, false, false, add_to_norm_grads},
    {"sums of a layer_norm's gradient", OP_LAYER_NORM_GRADS, OP_SUM, false, true, true, false, sum_of_norm_grads},
    {"sums of an rms_norm's gradient", OP_RMS_NORM_GRADS, OP_SUM, false, true, true, false, sum_of_norm_grads},
    {"cross_entropy and its gradient", OP_CROSS_ENTROPY, OP_CROSS_ENTROPY_GRAD, false, true, false, true,
     loss_and_grad},
};
const int npatterns = sizeof patterns / sizeof *patterns;

/* Of what is gated the stored value is used, whichever kernel does it. */
bool second_apart(const Op *op, Op *second) {
    if (op->kind != OP_MATMUL || op->i[4] != SC_GATED_TOO) return false;
    *second = *op;
    memset(second->i, 0, sizeof second->i);
    second->kind = OP_SILU_MUL;
    second->nin = 2;
    second->in[0] = op->in[op->nin - 1];
    second->in[1] = op->out[1];
    second->nout = 1;
    return true;
}

/* ── names ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { NAMED = 6 }; /* members of a fused group; of the others, how many */

static void and_op(Str *s, OpKind k) {
    str_addf(s, "%s%s", s->n ? "+" : "", op_info[k].name);
}

/* What the rules above have noted in the attributes, in the order in which it is done. */
static void name_combined(Str *s, const Op *op) {
    static const OpKind after[] = {
        [SC_GELU_TOO] = OP_GELU_TANH, [SC_GELU_GRAD] = OP_GELU_TANH_GRAD, [SC_GELU] = OP_GELU_TANH,
        [SC_GATED_TOO] = OP_SILU_MUL, [SC_GATED] = OP_SILU_MUL,           [SC_GATE_GRADS] = OP_SILU_MUL_GRAD};
    bool product = op->kind == OP_MATMUL, grads = op->kind == OP_LAYER_NORM_GRADS || op->kind == OP_RMS_NORM_GRADS;
    and_op(s, op->kind);
    if ((product && op->i[3]) || (grads && op->i[2])) and_op(s, OP_ADD);
    if (product && op->i[4]) and_op(s, after[op->i[4]]);
    if (grads && op->i[3]) and_op(s, OP_SUM);
}

const char *op_label(Arena *a, const Op *op) {
    Str s = {.arena = a};
    for (int i = 0; i < op->nbody && i < NAMED; i++) and_op(&s, op->body[i]->kind);
    if (op->nbody > NAMED) str_addf(&s, "+%d", op->nbody - NAMED);
    if (op_is(op, T_FOREIGN) && op->extension && !op->extension->gathers)
        str_add(&s, op->extension->part[foreign_part(op)]);
    else if (!op->nbody)
        name_combined(&s, op);
    return s.s;
}
