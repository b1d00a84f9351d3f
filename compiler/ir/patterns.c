/* The table of patterns: which two ops one kernel serves, and how the first takes the second in; and that of epilogues:
 * what a product's kernel does to its sums, and how the two ops are taken apart again.
 * Relies on: patterns.h.
 * Relied on by: whom patterns.h names.
 *
 * A row is a statement about kernels, not about memory: both ops' results keep their meaning, a value that no longer
 * exists is no longer rounded. `first` is changed in place and stands for both. Regions of checkpointed calls: the
 * combined op belongs where its results are wanted, so that what was kept is kept. */
#include "patterns.h"
#include "foreign.h"

static void join(Op *op, const Op *like) {
    op->region = like->region;
    op->checkpoint = like->checkpoint;
}

static bool same_layout(const Value *a, const Value *b) {
    return a->dtype == b->dtype && value_same_shape(a, b) && value_contiguous(a) && value_contiguous(b);
}

/* ── products ────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Which targets' kernels do e with the sums of this product before they are stored (NULL: they add c). No target does
 * two such things, or leaves gaps in y. The CPU goes row by row, whatever matrices y is made of. CUDA needs y to be one
 * matrix, and takes no bias before a gradient. Of a batch (each matrix of a has its own b, or a is transposed) CUDA
 * does only gates, in one pass over all sums. Of 8 bits it adds c alone. */
enum { ON_CPU = 1, ON_CUDA = 2, ON_ALL = ON_CPU | ON_CUDA };
static int finished_on(const Op *product, const Epilogue *e) {
    const Value *a = OPERAND_OF(product, a), *b = OPERAND_OF(product, b);
    bool batch = b->dims > 2 || (a->dims > 2 && INT_OF(product, trans_a));
    if (OPERAND_OF(product, c) || INT_OF(product, epilogue) || !value_contiguous(RESULT_OF(product, y))) return 0;
    if (batch && !(e && e->f & SC_GATED)) return ON_CPU;
    if (e && dtype_size(a->dtype) == 1) return ON_CPU;
    return e && e->f & SC_GRADIENT && OPERAND_OF(product, bias) ? ON_CPU : ON_ALL;
}

/* The graph is the same for every target, and so are its roundings: all kernels have to. */
static bool may_finish(const Op *product, const Epilogue *e) {
    return finished_on(product, e) == ON_ALL;
}

/* a b + c: the sum begins with c. Backward operands of the product may be made again in its own region. */
static bool add_to_product(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *y = RESULT_OF(first, y), *c = then->in[1 - operand];
    if (!alone || then->in[operand] != y || !may_finish(first, NULL)) return false;
    if (c == y || !same_layout(c, y) || !same_layout(then->add.y, y)) return false;
    op_set(first, SLOT_OF(first, c), c);
    RESULT_OF(first, y) = then->add.y;
    if (first->phase == FORWARD) join(first, then);
    return true;
}

/* The rows that tokens have are added to the table's gradient so far. */
static bool add_to_rows(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *dw = first->embedding_grad.dw, *c = then->in[1 - operand];
    if (!alone || first->embedding_grad.c || then->in[operand] != dw || c == dw) return false;
    if (!same_layout(c, dw) || !same_layout(then->add.y, dw)) return false;
    op_set(first, SLOT(embedding_grad, c), c);
    first->embedding_grad.dw = then->add.y;
    if (first->phase == FORWARD) join(first, then);
    return true;
}

/* ── epilogues: a product's kernel does another op to its sums ───────────────────────────────────────────────────── */
static const Epilogue epilogues[] = {
    {"gelu", OP_gelu_tanh, "a", .f = SC_GELU},
    {"gelu'", OP_gelu_tanh_grad, "g", {{"a", "x"}}, .f = SC_GELU | SC_GRADIENT},
    {"silu_mul", OP_silu_mul, "up", {{"gate", "gate"}}, .f = SC_GATED, .separable = true},
    {"silu_mul'", OP_silu_mul_grad, "g", {{"gate", "gate"}, {"up", "up"}}, .aux = "dup", .f = SC_GATED | SC_GRADIENT},
};
enum { EPILOGUES = sizeof epilogues / sizeof *epilogues };

const Epilogue *pattern_epilogue_by(int64_t f) {
    for (int k = 0; k < EPILOGUES; k++)
        if ((f & ~SC_TOO) == epilogues[k].f) return &epilogues[k];
    return NULL;
}

const Epilogue *pattern_epilogue(const Op *product) {
    return pattern_epilogue_by(INT_OF(product, epilogue));
}

const Epilogue *pattern_epilogue_of(OpKind then) {
    for (int k = 0; k < EPILOGUES; k++)
        if (then == epilogues[k].then) return &epilogues[k];
    return NULL;
}

static int slot(const Op *op, const char *name) {
    return op_place(op->kind, PART_OPERAND, name);
}

static bool epilogue_of_product(Graph *g, Op *first, Op *then, int operand, bool alone) {
    const Epilogue *e = pattern_epilogue_of(then->kind);
    Value *sums = RESULT_OF(first, y), *y = op_result(then);
    if (operand != slot(then, e->sums) || then->in[operand] != sums || !same_layout(y, sums)) return false;
    if (!may_finish(first, e) || (!alone && e->f & SC_GRADIENT)) return false;
    for (int k = 0; k < then->nin; k++) {
        Value *v = then->in[k];
        if (k != operand && (value_root(v)->def == first || !same_layout(v, sums))) return false;
    }
    for (int k = 0; k < MAX_OTHERS && e->others[k].of_then; k++)
        op_set(first, slot(first, e->others[k].of_product), then->in[slot(then, e->others[k].of_then)]);
    INT_OF(first, epilogue) = e->f | (alone ? 0 : SC_TOO);
    RESULT_OF(first, y) = y;
    if (!alone) op_set_result(first, &RESULT_OF(first, aux), sums);
    if (e->aux) op_set_result(first, &RESULT_OF(first, aux), then->out[op_place(then->kind, PART_RESULT, e->aux)]);
    if (e->f & SC_GRADIENT) join(first, then);
    return true;
}

Value *pattern_apart(const Op *op, Op *second) {
    const Epilogue *e = op_is(op, T_PRODUCT) ? pattern_epilogue(op) : NULL;
    if (!e || !e->separable || !(INT_OF(op, epilogue) & SC_TOO)) return NULL;
    *second = *op;
    second->kind = e->then;
    second->joined = NULL;
    second->parts = (OpParts){0};
    second->nin = second->nout = 0;
    op_set(second, slot(second, e->sums), RESULT_OF(op, aux));
    for (int k = 0; k < MAX_OTHERS && e->others[k].of_then; k++)
        op_set(second, slot(second, e->others[k].of_then), op->in[slot(op, e->others[k].of_product)]);
    *second->out = op_result(op);
    second->nout = 1;
    return RESULT_OF(op, aux);
}

/* ── gates ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* silu(gate) up, of which nothing but the two operands is kept for the backward. */
static bool gated_silu(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *gate = first->silu.a, *up = then->in[1 - operand];
    if (!alone || then->in[operand] != first->silu.y) return false;
    if (!same_layout(gate, up) || !same_layout(then->mul.y, up)) return false;
    op_turn(first, OP_silu_mul);
    op_set(first, SLOT(silu_mul, gate), gate);
    op_set(first, SLOT(silu_mul, up), up);
    first->silu_mul.y = then->mul.y;
    join(first, then);
    return true;
}

/* ── norms ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The gradients of x and of the weights read the same tensors. */
static bool norm_grads(Graph *g, Op *first, Op *then, int operand, bool alone) {
    if (OPERAND_OF(first, g) != OPERAND_OF(then, g) || OPERAND_OF(first, x) != OPERAND_OF(then, x)) return false;
    if (OPERAND_OF(first, rstd) != OPERAND_OF(then, rstd) || first->region != then->region) return false;
    bool layer = then->kind == OP_layer_norm_grad_w;
    op_turn(first, layer ? OP_layer_norm_grads : OP_rms_norm_grads);
    INT_OF(first, dtype) = INT_OF(then, dtype);
    op_set_result(first, &RESULT_OF(first, dw), RESULT_OF(then, dw));
    if (layer) op_set_result(first, &RESULT_OF(first, db), RESULT_OF(then, db));
    return true;
}

/* Queries and keys whose heads are normalised, then turned. */
static bool rope_of_norm(Graph *g, Op *first, Op *then, int operand, bool alone) {
    const OpParts norm = first->parts, turn = then->parts;
    Value *y = first->rms_norm.y;
    if (operand != SLOT(rope, x) || then->rope.x != y || !alone || first->region != then->region) return false;
    if (then->rope.inverse || then->rope.heads || !value_contiguous(then->rope.y)) return false;
    op_turn(first, OP_rms_norm_rope);
    first->module = then->module; /* "self_attn:rope" in a list of `save` */
    first->call = then->call;
    first->src = then->src;
    first->rms_norm_rope.y = then->rope.y;
    if (turn.rope.positions) op_set(first, SLOT(rms_norm_rope, positions), turn.rope.positions);
    first->rms_norm_rope.width = turn.rope.width;
    first->rms_norm_rope.interleaved = turn.rope.interleaved;
    first->rms_norm_rope.scaling = turn.rope.scaling;
    first->rms_norm_rope.frequencies = turn.rope.frequencies;
    first->rms_norm_rope.eps = norm.rms_norm.eps;
    first->rms_norm_rope.theta = turn.rope.theta;
    first->rms_norm_rope.factor = turn.rope.factor;
    first->rms_norm_rope.low = turn.rope.low;
    first->rms_norm_rope.high = turn.rope.high;
    first->rms_norm_rope.context = turn.rope.context;
    first->rms_norm_rope.scale = turn.rope.scale;
    return true;
}

/* dx is added to the gradient that came past the norm. */
static bool add_to_norm_grads(Graph *g, Op *first, Op *then, int operand, bool alone) {
    Value *dx = RESULT_OF(first, dx), *c = then->in[1 - operand];
    if (!alone || OPERAND_OF(first, c) || then->in[operand] != dx || c == dx) return false;
    if (!same_layout(c, dx) || !same_layout(then->add.y, dx)) return false;
    op_set(first, SLOT_OF(first, c), c);
    RESULT_OF(first, dx) = then->add.y;
    return true;
}

/* The columns of dx are summed, as it is stored: the gradient of the bias of a product before the norm. */
static bool sum_of_norm_grads(Graph *g, Op *first, Op *then, int operand, bool alone) {
    const Value *dx = RESULT_OF(first, dx), *x = then->sum.x;
    Value *sum = then->sum.y, **ds = &RESULT_OF(first, ds);
    int last = x->dims - 1;
    bool whole = value_contiguous(x) && value_numel(x) == value_numel(dx);
    bool columns = last > 0 && then->sum.over == (1 << last) - 1 && x->shape[last] == dx->shape[dx->dims - 1];
    if (*ds || value_root(then->sum.x) != dx || !whole || !columns || sum->dims != 1) return false;
    INT_OF(first, sums) = (int64_t)sum->dtype + 1;
    op_set_result(first, ds, sum);
    return true;
}

/* ── loss ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The loss and its gradient in one pass over the logits, where nothing but the seed stands between the two. */
static bool loss_and_grad(Graph *g, Op *first, Op *then, int operand, bool alone) {
    OpParts loss = first->parts;
    Value *seed = then->cross_entropy_grad.g;
    if (operand != SLOT(cross_entropy_grad, most) || !alone) return false;
    if (then->cross_entropy_grad.rest != loss.cross_entropy.rest) return false;
    if (then->cross_entropy_grad.logits != loss.cross_entropy.logits) return false;
    if (then->cross_entropy_grad.targets != loss.cross_entropy.targets || loss.cross_entropy.rows) return false;
    if (first->region || then->region || !seed->def || seed->def->nin) return false;
    first->kind = OP_cross_entropy_grads;
    first->phase = then->phase;
    first->parts = (OpParts){.cross_entropy_grads = {.dlogits = then->cross_entropy_grad.dlogits,
                                                     .loss = loss.cross_entropy.loss,
                                                     .losses = loss.cross_entropy.most,
                                                     .g = seed,
                                                     .logits = loss.cross_entropy.logits,
                                                     .targets = loss.cross_entropy.targets,
                                                     .total = loss.cross_entropy.total,
                                                     .ignore = loss.cross_entropy.ignore,
                                                     .count = loss.cross_entropy.count,
                                                     .smoothing = loss.cross_entropy.smoothing,
                                                     .z_loss = loss.cross_entropy.z_loss,
                                                     .softcap = loss.cross_entropy.softcap}};
    first->nout = 3;
    first->nin = loss.cross_entropy.total ? 4 : 3;
    return true;
}

/* ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────── */
const Pattern patterns[] = {
    /* name, first, then, traced, chain, early, across, merge */
    {"a gated silu", OP_silu, OP_mul, true, true, false, false, gated_silu},
    {"gelu of a product", OP_matmul, OP_gelu_tanh, false, true, true, false, epilogue_of_product},
    {"gelu's gradient of a product", OP_matmul, OP_gelu_tanh_grad, false, true, false, false, epilogue_of_product},
    {"a product that is gated", OP_matmul, OP_silu_mul, false, true, false, false, epilogue_of_product},
    {"a gate's gradient of a product", OP_matmul, OP_silu_mul_grad, false, true, false, false, epilogue_of_product},
    {"rows and a sum", OP_embedding_grad, OP_add, false, true, false, false, add_to_rows},
    {"a product and a sum", OP_matmul, OP_add, false, true, false, false, add_to_product},
    {"rotary positions of an rms_norm", OP_rms_norm, OP_rope, false, true, false, false, rope_of_norm},
    {"gradients of layer_norm", OP_layer_norm_grad, OP_layer_norm_grad_w, false, false, true, false, norm_grads},
    {"gradients of rms_norm", OP_rms_norm_grad, OP_rms_norm_grad_w, false, false, true, false, norm_grads},
    {"gradients round a layer_norm", OP_layer_norm_grads, OP_add, false, true, false, false, add_to_norm_grads},
    {"gradients round an rms_norm", OP_rms_norm_grads, OP_add, false, true, false, false, add_to_norm_grads},
    {"sums of a layer_norm's gradient", OP_layer_norm_grads, OP_sum, false, true, true, false, sum_of_norm_grads},
    {"sums of an rms_norm's gradient", OP_rms_norm_grads, OP_sum, false, true, true, false, sum_of_norm_grads},
    {"cross_entropy and its gradient", OP_cross_entropy, OP_cross_entropy_grad, false, true, false, true,
     loss_and_grad},
};
const int npatterns = sizeof patterns / sizeof *patterns;

/* ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { NAMED = 6 }; /* members of a fused group; of the others, how many */

static void and_op(Str *s, OpKind k) {
    str_addf(s, "%s%s", s->n ? "+" : "", op_info[k].name);
}

static void and_joined(Str *s, const Joined *j) { /* the first first */
    if (!j) return;
    and_joined(s, j->next);
    if (!j->turned) and_op(s, j->kind);
}

const char *op_label(Arena *a, const Op *op) {
    Str s = {.arena = a};
    for (int i = 0; i < op->nbody && i < NAMED; i++) and_op(&s, op->body[i]->kind);
    if (op->nbody > NAMED) str_addf(&s, "+%d", op->nbody - NAMED);
    if (op_is(op, T_FOREIGN) && op->extension && !op->extension->gathers)
        str_add(&s, op->extension->part[foreign_part(op)]);
    else if (!op->nbody)
        and_op(&s, op->kind), and_joined(&s, op->joined);
    return s.s;
}
