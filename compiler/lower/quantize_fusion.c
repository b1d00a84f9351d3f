/* Quantize fusion: a norm, gelu, a gate and the gradients of the last two, of which nothing but 8 bits is read, are not
 * stored wide. The kernel that quantizes computes them from their operands, and so does the one that looks for their
 * largest magnitude; of a norm there remain the statistics of rows, which the backward reads too. A value that no
 * longer exists is no longer rounded. Where the scale is that of steps before, the kernel that multiplies quantizes
 * gelu or the gate, too. Relies on: quantize, autodiff, ir/patterns.c. Relied on by: fuse. */
#include "../ir/patterns.h"
#include "../ir/uses.h"
#include "lower.h"
#include "lowering.h"

typedef struct { /* who reads a value, if nobody else does */
    Op *absmax, *quantize;
} Readers;

static bool find_readers(const Uses *uses, const Value *v, Readers *r) {
    *r = (Readers){NULL, NULL};
    if (!v || uses_through_views(uses, v) || uses_is_result(uses, v)) return false;
    for (const User *u = uses_users(uses, v); u; u = u->next) {
        Op **of = u->op->kind == OP_absmax ? &r->absmax : u->op->kind == OP_quantize ? &r->quantize : NULL;
        if (!of || *of || OPERAND_OF(u->op, x) != v || INT_OF(u->op, f)) return false;
        *of = u->op;
    }
    return r->quantize;
}

static bool laid_out_alike(const Op *op) {
    for (int k = 0; k < op->nin; k++)
        if (!value_same_shape(op->in[k], op_operand(op)) || op->in[k]->dtype != op_operand(op)->dtype ||
            !value_contiguous(op->in[k]))
            return false;
    return true;
}

/* op is an op of that kind, whose parts it has. */
static void become(Op *op, OpKind k) {
    op->kind = k;
    op->nin = op->nout = 0;
    for (int i = 0; i < MAX_IN; i++)
        if (op->in[i]) op->nin = i + 1;
    for (int i = 0; i < (int)(sizeof op->out / sizeof *op->out); i++)
        if (op->out[i]) op->out[i]->def = op, op->nout = i + 1;
}

/* Of f(x), or silu(gate) x, that `op` makes: op is no longer read. */
static void compute(Graph *g, Op *reader, const Op *op) {
    const Epilogue *e = pattern_epilogue_of(op->kind);
    if (!reader) return;
    op_set(reader, SLOT_OF(reader, x), op->in[op_place(op->kind, PART_OPERAND, e->sums)]);
    if (e->others->of_then)
        op_set(reader, SLOT_OF(reader, gate), op->in[op_place(op->kind, PART_OPERAND, e->others->of_then)]);
    INT_OF(reader, f) = e->f;
    lower_note_joined(g, reader, op, false);
}

static void read_normed(Graph *g, Op *reader, const Op *norm) {
    if (!reader) return;
    op_set(reader, SLOT_OF(reader, x), op_operand(norm));
    op_set(reader, SLOT_OF(reader, rstd), RESULT_OF(norm, rstd));
    if (OPERAND_OF(norm, w)) op_set(reader, SLOT_OF(reader, w), OPERAND_OF(norm, w));
    if (norm->kind == OP_layer_norm) {
        op_set(reader, SLOT_OF(reader, mean), norm->layer_norm.mean);
        if (norm->layer_norm.b) op_set(reader, SLOT_OF(reader, b), norm->layer_norm.b);
    }
    lower_note_joined(g, reader, norm, false);
}

/* op, a norm, only finds its statistics. */
static void quantize_norm(Graph *g, Op *op, const Readers *r) {
    bool centred = op->kind == OP_layer_norm;
    read_normed(g, r->absmax, op);
    read_normed(g, r->quantize, op);
    op->parts = (OpParts){.norm_statistics = {.rstd = RESULT_OF(op, rstd),
                                              .mean = centred ? op->layer_norm.mean : NULL,
                                              .x = op_operand(op),
                                              .centred = centred,
                                              .eps = FLOAT_OF(op, eps)}};
    become(op, OP_norm_statistics);
}

/* A norm's result, as it lies. */
static bool may_be_normed(const Op *op, const Readers *r) {
    const Op *q = r->quantize;
    bool norm = op->kind == OP_rms_norm || op->kind == OP_layer_norm;
    return norm && value_contiguous(op_operand(op)) && !OPERAND_OF(q, counts) && !INT_OF(q, sum);
}

/* Both gradients of a gate at once: op quantizes them. Where no history has their magnitudes, one op finds both. */
static void quantize_gates(Graph *g, Op *op, const Readers *gate, const Readers *up) {
    const Op *a = gate->quantize, *b = up->quantize;
    Op *most = gate->absmax;
    Value *of[] = {OPERAND_OF(op, g), OPERAND_OF(op, gate), OPERAND_OF(op, up)};
    if (most) {
        lower_note_joined(g, most, up->absmax, true);
        most->parts = (OpParts){
            .absmax_gates = {
                .dgate = op_result(most), .dup = op_result(up->absmax), .g = of[0], .gate = of[1], .up = of[2]}};
        become(most, OP_absmax_gates);
    }
    lower_note_joined(g, op, a, true);
    lower_note_joined(g, op, b, true);
    op->parts = (OpParts){.quantize_gates = {.dgate = RESULT_OF(a, y),
                                             .dgate_scale = RESULT_OF(a, scale),
                                             .dup = RESULT_OF(b, y),
                                             .dup_scale = RESULT_OF(b, scale),
                                             .dgate_turned = RESULT_OF(a, turned),
                                             .dup_turned = RESULT_OF(b, turned),
                                             .g = of[0],
                                             .gate = of[1],
                                             .up = of[2],
                                             .dgate_amax = OPERAND_OF(a, amax),
                                             .dup_amax = OPERAND_OF(b, amax),
                                             .dgate_seen = OPERAND_OF(a, seen),
                                             .dup_seen = OPERAND_OF(b, seen),
                                             .dtype = INT_OF(a, dtype),
                                             .both = INT_OF(a, both)}};
    become(op, OP_quantize_gates);
}

static bool alike(const Readers *a, const Readers *b) {
    const Op *x = a->quantize, *y = b->quantize;
    bool whole = !INT_OF(x, turn) && !INT_OF(y, turn) && !INT_OF(x, sum) && !INT_OF(y, sum) && !OPERAND_OF(x, counts) &&
                 !OPERAND_OF(y, counts);
    return whole && INT_OF(x, both) == INT_OF(y, both) && INT_OF(x, dtype) == INT_OF(y, dtype) &&
           !a->absmax == !b->absmax && !OPERAND_OF(x, seen) == !OPERAND_OF(y, seen);
}

/* ── products ────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The product of 8 bits that makes v, all of whose readers come after position `at`; else NULL. */
static Op *product_of(const Uses *uses, const Value *v, int at) {
    Op *op = v ? v->def : NULL;
    if (!op || op->kind != OP_matmul || op->matmul.y != v || !op->matmul.scale_a) return NULL;
    const Value *a = op->matmul.a, *b = op->matmul.b;
    bool plain = !op->matmul.trans_a && op->matmul.trans_b && !op->matmul.epilogue && !op->matmul.c && b->dims == 2;
    if (!plain || op->matmul.scale_a->dims == 2 || !value_contiguous(a) || !value_contiguous(b)) return NULL;
    if (a->dtype != FP8_E4M3 || b->dtype != FP8_E4M3 || uses_is_result(uses, v)) return NULL;
    for (const User *u = uses_users(uses, v); u; u = u->next)
        if (uses_position(uses, u->op) < at) return NULL;
    return op;
}

/* What the op at this place quantizes, gelu or a gate of products, is multiplied there by the same kernel. */
static void multiply_too(Graph *g, Program *p, const Uses *uses, int at) {
    Op *q = p->ops.at[at];
    bool whole = q->quantize.both && !q->quantize.turn && !q->quantize.sum && !q->quantize.counts;
    bool gated = q->quantize.f == SC_GATED;
    if (!q->quantize.seen || !whole || q->quantize.dtype != FP8_E4M3 || (!gated && q->quantize.f != SC_GELU)) return;
    Op *z = product_of(uses, q->quantize.x, at), *gate = gated ? product_of(uses, q->quantize.gate, at) : NULL;
    if (!z || gated != (gate && gate != z)) return;
    if (gated && (OPERAND_OF(z, a) != OPERAND_OF(gate, a) || OPERAND_OF(z, bias) || OPERAND_OF(gate, bias) ||
                  op_result(gate)->dtype != op_result(z)->dtype))
        return;
    p->ops.at[uses_position(uses, z)] = NULL;
    p->ops.at[at] = z;
    if (gated) {
        p->ops.at[uses_position(uses, gate)] = NULL;
        lower_note_joined(g, z, gate, true);
    }
    lower_note_joined(g, z, q, true);
    lower_join_region(z, q);
    z->parts = (OpParts){.matmul_quantize = {.y = q->quantize.y,
                                             .scale = q->quantize.scale,
                                             .turned = q->quantize.turned,
                                             .z = op_result(z),
                                             .gate = gated ? op_result(gate) : NULL,
                                             .a = OPERAND_OF(z, a),
                                             .b = OPERAND_OF(z, b),
                                             .b_gate = gated ? OPERAND_OF(gate, b) : NULL,
                                             .bias = OPERAND_OF(z, bias),
                                             .scale_a = OPERAND_OF(z, scale_a),
                                             .scale_b = OPERAND_OF(z, scale_b),
                                             .scale_gate = gated ? OPERAND_OF(gate, scale_b) : NULL,
                                             .amax = q->quantize.amax,
                                             .seen = q->quantize.seen,
                                             .f = q->quantize.f,
                                             .dtype = op_result(z)->dtype}};
    become(z, OP_matmul_quantize);
}

static void multiply_and_quantize(Graph *g, Program *p) {
    Uses *uses = uses_new(g, p);
    int n = 0;
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]->kind == OP_quantize) multiply_too(g, p, uses, i);
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]) p->ops.at[n++] = p->ops.at[i];
    p->ops.n = n;
    uses_free(uses);
}

void lower_quantize_fusion(Graph *g, Program *p) {
    Uses *uses = uses_new(g, p);
    int n = p->ops.n;
    Op **stands = NEW_ARRAY(g->arena, Op *, n + 1); /* what takes the place of an op; NULL: nothing */
    memcpy(stands, p->ops.at, sizeof *stands * (size_t)n);
    for (int i = 0; i < n; i++) {
        Op *op = p->ops.at[i];
        Readers r, up;
        if (!stands[i] || !find_readers(uses, op_result(op), &r)) continue;
        if (may_be_normed(op, &r)) quantize_norm(g, op, &r);
        if (!pattern_epilogue_of(op->kind) || !laid_out_alike(op)) continue;
        if (op->kind != OP_silu_mul_grad) {
            compute(g, r.absmax, op);
            compute(g, r.quantize, op);
            stands[i] = NULL;
        } else if (find_readers(uses, RESULT_OF(op, dup), &up) && alike(&r, &up)) {
            int a = uses_position(uses, r.quantize), b = uses_position(uses, up.quantize);
            stands[a] = stands[b] = NULL;
            if (r.absmax) {
                stands[uses_position(uses, r.absmax)] = stands[uses_position(uses, up.absmax)] = NULL;
                stands[i] = r.absmax;
                stands[a < b ? a : b] = op;
            }
            quantize_gates(g, op, &r, &up);
        }
    }
    p->ops.n = 0;
    for (int i = 0; i < n; i++)
        if (stands[i]) p->ops.at[p->ops.n++] = stands[i];
    uses_free(uses);
    multiply_and_quantize(g, p);
}
