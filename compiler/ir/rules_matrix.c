/* Rules of matmul, embedding, attention and rope: shapes, gradients, floating-point operations.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "amax_history.h"
#include "patterns.h"
#include "rules.h"
#include "schema/attention.h"

#include <math.h>

/* ── matmul ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    bool ta, tb;
    int64_t m, k, k2, n; /* k: inner size of op(a), k2: of op(b) */
} Matmul;

static Matmul matmul_of(const Op *op) {
    const Value *a = op->matmul.a, *b = op->matmul.b;
    Matmul s = {.ta = op->matmul.trans_a != 0, .tb = op->matmul.trans_b != 0};
    s.m = a->shape[a->dims - 1 - !s.ta];
    s.k = a->shape[a->dims - 1 - s.ta];
    s.k2 = b->shape[b->dims - 1 - !s.tb];
    s.n = b->shape[b->dims - 1 - s.tb];
    return s;
}

static bool matmul_shared(const Op *op) {
    return op->matmul.b->dims == 2;
}

/* "x bf16[8,2048,4096] · Wᵀ with W bf16[14336,5120]" */
static const char *matmul_str(Graph *g, const Op *op) {
    const char *a = value_str(g->arena, op->matmul.a), *b = value_str(g->arena, op->matmul.b);
    const char *y = matmul_shared(op) ? "W" : "y", *t = op->matmul.trans_b ? "ᵀ" : "";
    if (op->matmul.trans_a) return arena_printf(g->arena, "xᵀ · %s%s with x %s and %s %s", y, t, a, y, b);
    if (op->matmul.trans_b) return arena_printf(g->arena, "x %s · %sᵀ with %s %s", a, y, y, b);
    return arena_printf(g->arena, "x %s · %s %s", a, y, b);
}

/* For a Linear the message shows the line that made it, and the call that would fit. */
_Noreturn static void fail_inner(Graph *g, const Op *op, Matmul s) {
    const Module *m = op->module;
    const Value *w = op->matmul.b;
    const char *what = matmul_str(g, op);
    bool linear = m && m->kind && m->path && !strcmp(m->kind, "Linear") && s.tb && w->dims == 2 && !s.ta;
    if (linear)
        fail(op->src,
             "matmul: %s: %lld ≠ %lld\n  in %s = nn.Linear(%lld, %lld), made at %s; write nn.Linear(%lld, %lld)", what,
             (long long)s.k, (long long)s.k2, m->path, (long long)s.k2, (long long)s.n,
             rule_source_str(g->arena, m->made), (long long)s.k, (long long)s.n);
    rule_fail(g, op, "%s: %lld ≠ %lld; the inner sizes must be equal: transpose or reshape one of them", what,
              (long long)s.k, (long long)s.k2);
}

static void check_matmul_dtypes(Graph *g, const Op *op) {
    const Value *a = op->matmul.a, *b = op->matmul.b, *bias = op->matmul.bias;
    if (op->matmul.scale_a) return; /* quantize has made a and b */
    rule_need_float(g, op, a, "x");
    rule_need_float(g, op, b, "W");
    if (bias) rule_need_float(g, op, bias, "bias");
    if (b->dtype != a->dtype)
        rule_fail(g, op, "%s: %s ≠ %s; nn.cast(a, b) gives one the dtype of the other", matmul_str(g, op),
                  dtype_name(a->dtype), dtype_name(b->dtype));
    if (bias && bias->dtype != a->dtype)
        rule_fail(g, op, "%s + bias %s: %s ≠ %s; nn.cast(a, b) gives one the dtype of the other", matmul_str(g, op),
                  value_str(g->arena, bias), dtype_name(a->dtype), dtype_name(bias->dtype));
}

void infer_matmul(Graph *g, Op *op) {
    const Value *a = op->matmul.a, *b = op->matmul.b, *bias = op->matmul.bias;
    if (a->dims < 2 || b->dims < 2)
        rule_fail(g, op, "%s: both need at least 2 dims; reshape a vector to [1,n] or [n,1]", matmul_str(g, op));
    Matmul s = matmul_of(op);
    if (s.k != s.k2) fail_inner(g, op, s);
    if (!matmul_shared(op)) {
        if (a->dims != b->dims)
            rule_fail(g, op, "%s: %d dims ≠ %d dims; expand the leading dims of one of them", matmul_str(g, op),
                      a->dims, b->dims);
        for (int i = 0; i < a->dims - 2; i++)
            if (a->shape[i] != b->shape[i])
                rule_fail(g, op, "%s: %lld ≠ %lld in dim %d; leading sizes must be equal", matmul_str(g, op),
                          (long long)a->shape[i], (long long)b->shape[i], i);
    }
    check_matmul_dtypes(g, op);
    if (bias && (bias->dims != 1 || bias->shape[0] != s.n))
        rule_fail(g, op, "%s + bias %s: the bias must have shape [%lld]", matmul_str(g, op), value_str(g->arena, bias),
                  (long long)s.n);
    int64_t shape[MAX_DIMS];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->dims - 2] = s.m;
    shape[a->dims - 1] = s.n;
    rule_out(g, op, &op->matmul.y, rule_wider(op->matmul.dtype, a->dtype), a->dims, shape);
    const Epilogue *e = pattern_epilogue(op);
    if (e && (e->aux || op->matmul.epilogue & SC_TOO)) rule_out_like(g, op, &op->matmul.aux, op->matmul.y);
}

static Value *matmul(Builder *b, Value *x, Value *y, bool tx, bool ty) {
    return BUILD(b, matmul, .a = x, .b = y, .trans_a = tx, .trans_b = ty)->matmul.y;
}

static Value *fold_rows(Builder *b, Value *v) {
    return build_reshape(b, v, 2, (int64_t[]){rule_rows(v), v->shape[v->dims - 1]});
}

/* y = A B with A = op(a), B = op(b):  dA = g Bᵀ,  dB = Aᵀ g,  each transposed back where op transposes. */
static Value *grad_left(Builder *b, const Op *op, Value *g, Matmul s) {
    Value *w = op->matmul.b;
    if (!s.ta) return matmul(b, g, w, false, !s.tb);
    if (g->dims > 2 && matmul_shared(op)) { /* w is now the left operand, which must have all leading dims */
        int64_t shape[MAX_DIMS];
        memcpy(shape, g->shape, sizeof shape);
        shape[g->dims - 2] = w->shape[0];
        shape[g->dims - 1] = w->shape[1];
        w = build_expand(b, w, g->dims, shape);
    }
    return matmul(b, w, g, s.tb, true);
}

static Value *grad_right(Builder *b, const Op *op, Value *g, Matmul s) {
    Value *a = op->matmul.a;
    bool ta = s.ta;
    if (matmul_shared(op) && a->dims > 2) { /* w is shared by all rows: one product over all of them */
        if (ta) {
            int perm[MAX_DIMS];
            for (int i = 0; i < a->dims; i++) perm[i] = i;
            perm[a->dims - 2] = a->dims - 1;
            perm[a->dims - 1] = a->dims - 2;
            a = build_transpose(b, a, perm);
            ta = false;
        }
        a = fold_rows(b, a);
        g = fold_rows(b, g);
    }
    return s.tb ? matmul(b, g, a, true, ta) : matmul(b, a, g, !ta, false);
}

/* y = A Bᵀ of what quantize has made of x and w. Kernels of 8 bits read both operands along the inner dimension, so all
 * is read as quantize turns it: dA = g (Bᵀ)ᵀ, dB = gᵀ (Aᵀ)ᵀ, with g in e5m2 unless the model says e4m3 (Micikevicius et
 * al., "FP8 Formats for Deep Learning", 2022). Where the forward has not made both copies of w, B is made of it once
 * more, so that no copy of a parameter is kept for the backward. */
static void grad_of_quantized(Builder *b, const Op *op, OpParts *d) {
    const Op *x = op->matmul.a->def, *w = op->matmul.b->def;
    Value *gy = d->matmul.y, *from = OPERAND_OF(w, x), *bias = op->matmul.bias;
    bool trains = value_root(from)->param->requires_grad, turned = rule_is_turned(op->matmul.b);
    Dtype made = OPERAND_OF(x, x)->dtype;
    Dtype narrow = op->matmul.grad_e4m3 ? FP8_E4M3 : FP8_E5M2;
    AmaxSite site =
        op->matmul.grad_delayed ? amax_history_site(b->g) : (AmaxSite){BUILD(b, absmax, .x = gy)->absmax.y, NULL};
    const Op *g = BUILD(b, quantize, .x = gy, .amax = site.amax, .seen = site.seen, .dtype = narrow, .both = trains,
                        .sum = bias && trains);
    const Op *again = INT_OF(w, both) ? NULL
                                      : BUILD(b, quantize, .x = from, .amax = OPERAND_OF(w, amax), .dtype = FP8_E4M3,
                                              .turn = !turned);
    Value *other = again ? RESULT_OF(again, y) : turned ? RESULT_OF(w, y) : RESULT_OF(w, turned);
    d->matmul.a = rule_scaled_product(b, RESULT_OF(g, y), RESULT_OF(g, scale), other,
                                      RESULT_OF(again ? again : w, scale), false, made);
    if (bias && trains) /* who makes g need not store it */
        d->matmul.bias = BUILD(b, sum, .x = RESULT_OF(g, sums), .over = 1, .dtype = 1 + made)->sum.y;
    else if (bias)
        d->matmul.bias = build_sum_to(b, gy, 1, &gy->shape[gy->dims - 1]);
    if (!trains) return;
    const Op *rows = turned ? x : g, *cols = turned ? g : x; /* the sums lie as w does */
    Value *dw = rule_scaled_product(b, RESULT_OF(rows, turned), RESULT_OF(rows, scale), RESULT_OF(cols, turned),
                                    RESULT_OF(cols, scale), false, made);
    d->matmul.b = turned ? build_transpose(b, dw, (int[]){1, 0}) : dw;
}

void grad_matmul(Builder *b, Op *op, OpParts *d) {
    Matmul s = matmul_of(op);
    if (op->matmul.scale_a) {
        if (op->matmul.scale_a->dims == 2)
            rule_grad_by_blocks(b, op, d);
        else
            grad_of_quantized(b, op, d);
        return;
    }
    Value *g = build_cast(b, d->matmul.y, op->matmul.a->dtype);
    d->matmul.a = grad_left(b, op, g, s);
    d->matmul.b = grad_right(b, op, g, s);
    if (op->matmul.bias) d->matmul.bias = build_sum_to(b, g, 1, &s.n);
}

/* Key: rows in all, columns, depth, products: rows of one shared right operand count as one product. b's dtype is a
 * word of the variant where it is another than a's: e4m3 by e5m2 is summed otherwise than e4m3 by e4m3 (k_matmul.cu).
 */
Cost cost_matmul(const Op *op) {
    Matmul s = matmul_of(op);
    double y = (double)value_numel(op->matmul.y), rows = y / (double)max64(s.n, 1);
    Cost c = rule_traffic(op, 2 * y * (double)s.k + (op->matmul.bias ? y : 0));
    Dtype in = op->matmul.a->dtype, other = op->matmul.b->dtype, out = op->matmul.y->dtype;
    const Epilogue *e = pattern_epilogue(op);
    bool blocks = op->matmul.scale_a && op->matmul.scale_a->dims == 2;
    _Static_assert(sizeof c.variant > sizeof "fp8_e4m3*fp8_e5m2>bf16 nt silu_mul+x add blocks",
                   "the longest variant fits");
    snprintf(c.variant, sizeof c.variant, "%s%s%s%s%s %s%s%s%s%s%s%s", dtype_name(in), in == other ? "" : "*",
             in == other ? "" : dtype_name(other), in == out ? "" : ">", in == out ? "" : dtype_name(out),
             s.ta ? "t" : "n", s.tb ? "t" : "n", e ? " " : "", e ? e->name : "",
             op->matmul.epilogue & SC_TOO ? "+x" : "", op->matmul.c ? " add" : "", blocks ? " blocks" : "");
    bool folds = matmul_shared(op) && !s.ta;
    double products = folds || !s.m ? 1 : rows / (double)s.m;
    memcpy(c.key, (double[]){rows / products, (double)s.n, (double)s.k, products}, 4 * sizeof *c.key);
    c.nkey = 4;
    return c;
}

/* ── 8 bits ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
void infer_absmax(Graph *g, Op *op) {
    rule_out(g, op, &op->absmax.y, FP32, 0, (int64_t[1]){1});
}

void infer_absmax_gates(Graph *g, Op *op) {
    rule_out(g, op, &op->absmax_gates.dgate, FP32, 0, (int64_t[1]){1});
    rule_out(g, op, &op->absmax_gates.dup, FP32, 0, (int64_t[1]){1});
}

void infer_quantize(Graph *g, Op *op) {
    const Value *x = op->quantize.x;
    int64_t turned[] = {x->shape[x->dims - 1], rule_rows(x)};
    Dtype d = (Dtype)op->quantize.dtype;
    bool turn = op->quantize.turn != 0;
    rule_out(g, op, &op->quantize.y, d, turn ? 2 : x->dims, turn ? turned : x->shape);
    rule_out(g, op, &op->quantize.scale, FP32, 0, (int64_t[1]){1});
    if (op->quantize.both) rule_out(g, op, &op->quantize.turned, d, 2, turned);
    int64_t sums[] = {(turned[1] + SC_SUMMED_ROWS - 1) / SC_SUMMED_ROWS, turned[0]};
    if (op->quantize.sum) rule_out(g, op, &op->quantize.sums, FP32, 2, sums);
}

void infer_quantize_gates(Graph *g, Op *op) {
    const Value *x = op->quantize_gates.g;
    int64_t turned[] = {x->shape[x->dims - 1], rule_rows(x)}, one = 1;
    Dtype d = (Dtype)op->quantize_gates.dtype;
    rule_out(g, op, &op->quantize_gates.dgate, d, x->dims, x->shape);
    rule_out(g, op, &op->quantize_gates.dgate_scale, FP32, 0, &one);
    rule_out(g, op, &op->quantize_gates.dup, d, x->dims, x->shape);
    rule_out(g, op, &op->quantize_gates.dup_scale, FP32, 0, &one);
    if (!op->quantize_gates.both) return;
    rule_out(g, op, &op->quantize_gates.dgate_turned, d, 2, turned);
    rule_out(g, op, &op->quantize_gates.dup_turned, d, 2, turned);
}

void infer_matmul_quantize(Graph *g, Op *op) {
    const Value *a = op->matmul_quantize.a, *b = op->matmul_quantize.b;
    int64_t shape[MAX_DIMS], turned[] = {b->shape[0], rule_rows(a)};
    Dtype wide = (Dtype)op->matmul_quantize.dtype;
    memcpy(shape, a->shape, sizeof shape);
    shape[a->dims - 1] = b->shape[0];
    rule_out(g, op, &op->matmul_quantize.y, FP8_E4M3, a->dims, shape);
    rule_out(g, op, &op->matmul_quantize.scale, FP32, 0, (int64_t[1]){1});
    rule_out(g, op, &op->matmul_quantize.turned, FP8_E4M3, 2, turned);
    rule_out(g, op, &op->matmul_quantize.z, wide, a->dims, shape);
    if (op->matmul_quantize.b_gate) rule_out(g, op, &op->matmul_quantize.gate, wide, a->dims, shape);
}

/* By a product's points: of both as one of twice the columns. What else is written hides behind the products. */
Cost cost_matmul_quantize(const Op *op) {
    const Value *a = op->matmul_quantize.a, *b = op->matmul_quantize.b;
    double rows = (double)rule_rows(a), k = (double)b->shape[1];
    double n = (double)b->shape[0] * (op->matmul_quantize.b_gate ? 2 : 1);
    Cost c = rule_traffic(op, 2 * rows * n * k);
    snprintf(c.variant, sizeof c.variant, "%s>%s nt", dtype_name(a->dtype), dtype_name(op->matmul_quantize.z->dtype));
    memcpy(c.key, (double[]){rows, n, k, 1}, 4 * sizeof *c.key);
    c.nkey = 4;
    return c;
}

/* Of rows that no group has, none is read. */
static Cost cost_of_rows(const Op *op) {
    const Value *counts = OPERAND_OF(op, counts), *x = OPERAND_OF(op, x);
    Cost c = cost_pointwise(op);
    if (!counts) return c;
    double rows = (double)rule_rows(x), unused = rows - rule_expected_rows(counts, rows);
    c.bytes -= (int64_t)(unused / rows * rule_touched_bytes(x));
    return c;
}

Cost cost_absmax(const Op *op) {
    return cost_of_rows(op);
}

/* Columns are written in shorter runs than rows, and what is read once is written twice. */
Cost cost_quantize(const Op *op) {
    Cost c = cost_of_rows(op);
    const Epilogue *e = pattern_epilogue_by(op->quantize.f);
    snprintf(c.variant, sizeof c.variant, "%s%s%s",
             op->quantize.both   ? "both"
             : op->quantize.turn ? "turn"
                                 : "",
             e && (op->quantize.both || op->quantize.turn) ? " " : "", e ? e->name : "");
    return c;
}

/* g in x's shape, as it was where that is what it was made of (the gradient of stacked matrices, turned all as one). */
static Value *shaped_as(Builder *b, Value *g, const Value *x) {
    Value *from = g->def && g->def->kind == OP_reshape ? op_operand(g->def) : g;
    return value_same_shape(from, x) ? from : build_reshape(b, g, x->dims, x->shape);
}

/* Straight through: what was rounded has the gradient of what it became. */
void grad_quantize(Builder *b, Op *op, OpParts *d) {
    bool turn = op->quantize.turn != 0;
    Value *g = rule_grad_of_copies(b, turn ? NULL : d->quantize.y, turn ? d->quantize.y : d->quantize.turned);
    d->quantize.x = g ? shaped_as(b, g, op->quantize.x) : NULL;
}

/* ── embedding ───────────────────────────────────────────────────────────────────────────────────────────────────── */
void infer_embedding(Graph *g, Op *op) {
    const Value *index = op->embedding.index, *w = op->embedding.w;
    rule_need_int32(g, op, index, "the index");
    rule_need_float(g, op, w, "W");
    if (w->dims != 2) rule_fail(g, op, "W %s must have 2 dims: [rows, size]", value_str(g->arena, w));
    if (index->dims + 1 > MAX_DIMS)
        rule_fail(g, op, "the index %s has too many dims: at most %d", value_str(g->arena, index), MAX_DIMS - 1);
    int64_t shape[MAX_DIMS];
    memcpy(shape, index->shape, sizeof shape);
    shape[index->dims] = w->shape[1];
    rule_out(g, op, &op->embedding.y, w->dtype, index->dims + 1, shape);
}

void grad_embedding(Builder *b, Op *op, OpParts *d) {
    int64_t rows = op->embedding.w->shape[0];
    d->embedding.w =
        BUILD(b, embedding_grad, .index = op->embedding.index, .g = d->embedding.y, .rows = rows)->embedding_grad.dw;
}

void infer_embedding_grad(Graph *g, Op *op) {
    const Value *index = op->embedding_grad.index, *gy = op->embedding_grad.g;
    rule_need_int32(g, op, index, "the index");
    if (gy->dims != index->dims + 1)
        rule_fail(g, op, "index %s with gradient %s (internal error)", value_str(g->arena, index),
                  value_str(g->arena, gy));
    rule_out(g, op, &op->embedding_grad.dw, rule_wider(op->embedding_grad.dtype, gy->dtype), 2,
             (int64_t[]){op->embedding_grad.rows, gy->shape[gy->dims - 1]});
}

/* Where a model sums rows by itself (nn.index_add). */
void grad_embedding_grad(Builder *b, Op *op, OpParts *d) {
    Value *dw = build_cast(b, d->embedding_grad.dw, op->embedding_grad.g->dtype);
    d->embedding_grad.g = BUILD(b, embedding, .index = op->embedding_grad.index, .w = dw)->embedding.y;
}

int64_t limit_table(const Op *op) {
    return op->embedding.w->shape[0];
}

/* Of ops that make a table's gradient. */
int64_t limit_rows(const Op *op) {
    return INT_OF(op, rows);
}

/* The forward reads only the rows that are looked up; the gradient writes its whole table, or adds to c, which mostly
 * lies where the result will, the rows that tokens have. */
Cost cost_embedding(const Op *op) {
    Cost c = rule_traffic(op, 0);
    if (op->kind == OP_embedding)
        return (Cost){.bytes = rule_touched_bytes(op->embedding.index) + 2 * rule_touched_bytes(op->embedding.y)};
    const Value *rows = OPERAND_OF(op, g), *index = OPERAND_OF(op, index), *dw = RESULT_OF(op, dw);
    double tokens = (double)value_numel(index), all = (double)dw->shape[0];
    c.flops = (double)value_numel(rows);
    if (OPERAND_OF(op, c))
        c.bytes = rule_touched_bytes(index) + rule_touched_bytes(rows) +
                  2 * rule_touched_bytes(dw) * (tokens < all ? tokens / all : 1);
    else
        c.bytes += 2 * rule_touched_bytes(rows); /* they are read and written again as they are added to */
    return c;
}

/* ── attention ───────────────────────────────────────────────────────────────────────────────────────────────────── */
Attention rule_attention(const Op *op) {
    return (Attention){.q = OPERAND_OF(op, q),
                       .k = OPERAND_OF(op, k),
                       .v = OPERAND_OF(op, v),
                       .bias = OPERAND_OF(op, bias),
                       .documents = OPERAND_OF(op, documents),
                       .sinks = op->kind == OP_attention ? op->attention.sinks : NULL,
                       .dlse = op->kind == OP_attention_grad        ? op->attention_grad.dlse
                               : op->kind == OP_attention_bias_grad ? op->attention_bias_grad.dlse
                                                                    : NULL,
                       .document_length = INT_OF(op, document_length),
                       .hopper = INT_OF(op, hopper) != 0,
                       .scale = FLOAT_OF(op, scale),
                       .dropout = FLOAT_OF(op, dropout),
                       .softcap = FLOAT_OF(op, softcap),
                       .causal = INT_OF(op, causal) != 0,
                       .left = INT_OF(op, before) - 1,
                       .right = INT_OF(op, after) - 1};
}

static bool has_window(Attention x) {
    return x.left >= 0 || (!x.causal && x.right >= 0);
}

void rule_assume_documents(Op *op, int64_t length) {
    if (op->kind == OP_attention) op->attention.document_length = length;
}

void rule_assume_kernels(Op *op, bool hopper, bool any_order) {
    if (op->kind != OP_attention) return;
    op->attention.hopper = hopper;
    op->attention.any_order = any_order;
}

int64_t rule_document_length(const Op *op, const Value *operand) {
    bool attends = op->kind == OP_attention || op->kind == OP_attention_grad || op->kind == OP_attention_bias_grad;
    return attends && operand && rule_attention(op).documents == operand ? cost_attention(op).document_length : 0;
}

static bool is_cudnn(Attention x) {
    int64_t size = x.q->shape[3], queries = x.q->shape[1], keys = x.k->shape[1];
    return dtype_size(x.q->dtype) == 2 && size % 8 == 0 && size <= 128 && x.v->shape[3] == size && queries >= 64 &&
           keys >= 64 && (!x.causal || queries == keys) && !x.documents && !(x.dropout > 0) && !(x.softcap > 0) &&
           !has_window(x) && !x.sinks && !x.dlse && !x.bias;
}

AttentionKernel rule_attention_kernel(const Op *op) {
    if (op_info[op->kind].cost != cost_attention) return NO_ATTENTION;
    Attention x = rule_attention(op);
    if (x.hopper && op->kind != OP_attention_bias_grad &&
        sc_hopper_computes(dtype_size(x.q->dtype) == 2, x.q->shape[3], x.v->shape[3], x.scale))
        return ATTENTION_HOPPER;
    bool ordered = op->kind == OP_attention_grad && !op->attention_grad.any_order;
    return is_cudnn(x) && !ordered ? ATTENTION_CUDNN : ATTENTION_PORTABLE;
}

const char *rule_attention_words(AttentionKernel k) {
    static const char *const words[] = {[NO_ATTENTION] = "",
                                        [ATTENTION_HOPPER] = "shardc's kernels for compute capability 9.0",
                                        [ATTENTION_CUDNN] = "cuDNN",
                                        [ATTENTION_PORTABLE] = "shardc's kernels for any GPU"};
    return words[k];
}

static const char *qkv_str(Graph *g, const Value *q, const Value *k, const Value *v) {
    return arena_printf(g->arena, "q %s, k %s, v %s", value_str(g->arena, q), value_str(g->arena, k),
                        value_str(g->arena, v));
}

static void check_bias(Graph *g, const Op *op, Attention x) {
    const Value *q = x.q, *k = x.k, *bias = x.bias;
    const int64_t scores[] = {q->shape[0], q->shape[2], q->shape[1], k->shape[1]};
    bool fits = bias->dims == 4;
    for (int i = 0; i < 4 && fits; i++) fits = bias->shape[i] == 1 || bias->shape[i] == scores[i];
    rule_need_float(g, op, bias, "the bias");
    if (!fits)
        rule_fail(g, op, "bias %s with q %s, k %s: it must be [%lld,%lld,%lld,%lld], each 1 where it is one for all",
                  value_str(g->arena, bias), value_str(g->arena, q), value_str(g->arena, k), (long long)scores[0],
                  (long long)scores[1], (long long)scores[2], (long long)scores[3]);
}

static void check_attention(Graph *g, const Op *op, Attention x) {
    const Value *q = x.q, *k = x.k, *v = x.v, *d = x.documents;
    rule_need_float(g, op, q, "q");
    rule_need_float(g, op, k, "k");
    rule_need_float(g, op, v, "v");
    if (q->dims != 4 || k->dims != 4 || v->dims != 4)
        rule_fail(g, op, "%s: each must have 4 dims: [batch, sequence, heads, head size]", qkv_str(g, q, k, v));
    if (memcmp(k->shape, v->shape, 3 * sizeof *k->shape))
        rule_fail(g, op, "%s: k and v must have one shape but for the head size", qkv_str(g, q, k, v));
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        rule_fail(g, op, "%s: they must have one dtype; cast them", qkv_str(g, q, k, v));
    if (q->shape[0] != k->shape[0])
        rule_fail(g, op, "%s: batches %lld ≠ %lld", qkv_str(g, q, k, v), (long long)q->shape[0],
                  (long long)k->shape[0]);
    if (q->shape[3] != k->shape[3])
        rule_fail(g, op, "%s: head sizes of q and k %lld ≠ %lld", qkv_str(g, q, k, v), (long long)q->shape[3],
                  (long long)k->shape[3]);
    if (q->shape[2] % k->shape[2])
        rule_fail(g, op, "%s: %lld query heads are no multiple of %lld key heads", qkv_str(g, q, k, v),
                  (long long)q->shape[2], (long long)k->shape[2]);
    if (!(x.dropout >= 0 && x.dropout < 1))
        rule_fail(g, op, "dropout %g: it must be at least 0 and below 1", x.dropout);
    if (!(x.softcap >= 0)) rule_fail(g, op, "softcap %g: it must be positive, or 0 for none", x.softcap);
    if (x.left < -1 || x.right < -1) rule_fail(g, op, "a window must not be negative");
    if (x.sinks && (x.sinks->dtype != rule_stat_dtype(q->dtype) || value_numel(x.sinks) != q->shape[2]))
        rule_fail(g, op, "sinks %s with q %s: there must be %lld, a score a head, in %s", value_str(g->arena, x.sinks),
                  value_str(g->arena, q), (long long)q->shape[2], dtype_name(rule_stat_dtype(q->dtype)));
    if (x.bias) check_bias(g, op, x);
    if (!d) return;
    rule_need_int32(g, op, d, "the documents");
    if (d->dims != 2 || d->shape[0] != q->shape[0] || d->shape[1] != q->shape[1])
        rule_fail(g, op, "documents %s with q %s: they must be int32[%lld,%lld], one number a token",
                  value_str(g->arena, d), value_str(g->arena, q), (long long)q->shape[0], (long long)q->shape[1]);
    if (q->shape[1] != k->shape[1])
        rule_fail(g, op, "documents need as many queries as keys: %lld ≠ %lld", (long long)q->shape[1],
                  (long long)k->shape[1]);
}

void infer_attention(Graph *g, Op *op) {
    const Value *q = op->attention.q, *v = op->attention.v;
    check_attention(g, op, rule_attention(op));
    rule_out(g, op, &op->attention.o, q->dtype, 4, (int64_t[]){q->shape[0], q->shape[1], q->shape[2], v->shape[3]});
    rule_out(g, op, &op->attention.lse, rule_stat_dtype(q->dtype), 3,
             (int64_t[]){q->shape[0], q->shape[2], q->shape[1]});
}

/* A sink's weight in a row is p = e^(sink - lse), and its gradient the sum over rows of p (dlse - delta), delta = Σ_d
 * g·o. */
static Value *grad_sinks(Builder *b, const Op *op, Value *g, Value *dlse) {
    Value *o = op->attention.o, *lse = op->attention.lse, *sinks = op->attention.sinks;
    const int64_t *s = o->shape, heads[] = {1, s[2], 1};
    Value *product = build_two(b, OP_mul, build_cast(b, g, lse->dtype), build_cast(b, o, lse->dtype));
    Value *delta = build_sum_to(b, product, 4, (int64_t[]){s[0], s[1], s[2], 1});
    delta = build_transpose(b, build_reshape(b, delta, 3, s), (int[]){0, 2, 1});
    Value *p = build_expand(b, build_reshape(b, sinks, 3, heads), 3, lse->shape);
    p = build_one(b, OP_exp, build_two(b, OP_sub, p, lse));
    Value *each = dlse ? build_two(b, OP_sub, dlse, delta) : build_one(b, OP_neg, delta);
    return build_reshape(b, build_sum_to(b, build_two(b, OP_mul, p, each), 3, heads), 1, &s[2]);
}

static Value *grad_bias(Builder *b, const Op *op, Value *g, Value *dlse) {
    return BUILD(b, attention_bias_grad, .g = g, .q = op->attention.q, .k = op->attention.k, .v = op->attention.v,
                 .o = op->attention.o, .lse = op->attention.lse, .documents = op->attention.documents, .dlse = dlse,
                 .bias = op->attention.bias, .causal = op->attention.causal, .before = op->attention.before,
                 .after = op->attention.after, .softcap = op->attention.softcap, .key = op->attention.key,
                 .document_length = op->attention.document_length, .hopper = op->attention.hopper,
                 .scale = op->attention.scale, .dropout = op->attention.dropout)
        ->attention_bias_grad.dbias;
}

void grad_attention(Builder *b, Op *op, OpParts *d) {
    Value *g = d->attention.o ? d->attention.o : rule_zeros_like(b, op->attention.o), *dlse = d->attention.lse;
    const Op *grad =
        BUILD(b, attention_grad, .g = g, .q = op->attention.q, .k = op->attention.k, .v = op->attention.v,
              .o = op->attention.o, .lse = op->attention.lse, .documents = op->attention.documents, .dlse = dlse,
              .bias = op->attention.bias, .causal = op->attention.causal, .before = op->attention.before,
              .after = op->attention.after, .softcap = op->attention.softcap, .key = op->attention.key,
              .document_length = op->attention.document_length, .hopper = op->attention.hopper,
              .any_order = op->attention.any_order, .scale = op->attention.scale, .dropout = op->attention.dropout);
    d->attention.q = grad->attention_grad.dq;
    d->attention.k = grad->attention_grad.dk;
    d->attention.v = grad->attention_grad.dv;
    if (op->attention.sinks) d->attention.sinks = grad_sinks(b, op, g, dlse);
    if (op->attention.bias) d->attention.bias = grad_bias(b, op, g, dlse);
}

void infer_attention_grad(Graph *g, Op *op) {
    Attention x = rule_attention(op);
    check_attention(g, op, x);
    rule_out_like(g, op, &op->attention_grad.dq, x.q);
    rule_out_like(g, op, &op->attention_grad.dk, x.k);
    rule_out_like(g, op, &op->attention_grad.dv, x.v);
}

void infer_attention_bias_grad(Graph *g, Op *op) {
    const Value *bias = op->attention_bias_grad.bias;
    check_attention(g, op, rule_attention(op));
    rule_out(g, op, &op->attention_bias_grad.dbias, rule_wider(op->attention_bias_grad.dtype, bias->dtype), 4,
             bias->shape);
}

/* Keys that a query sees, in the mean over `queries` of them: of keys i - left to i + right those that there are. */
static double mean_window(Attention x, double queries, double keys) {
    double right = x.causal ? 0 : x.right < 0 ? keys : (double)x.right, left = x.left < 0 ? queries : (double)x.left;
    double cut = fmin(fmax(keys - right - 1, 0), queries); /* queries whose right end lies before the last key */
    double ends = cut * (right + 1) + cut * (cut - 1) / 2 + (queries - cut) * keys;
    double late = fmax(queries - 1 - left, 0); /* queries whose left end lies behind the first key */
    double past = fmax(late - keys, 0);        /* of these, behind the last key */
    return fmax(ends - (late - past) * (late - past + 1) / 2 - past * keys, 0) / queries;
}

/* Keys that a query sees where the row does not end. */
static double widest(Attention x, double queries, double keys) {
    return 1 + (x.left < 0 ? queries : (double)x.left) + (x.causal ? 0 : x.right < 0 ? keys : (double)x.right);
}

/* Two products forward and for a bias's gradient, five backward, of which three are as deep as q and k, the others as
 * v; causal attention has half of the pairs where there are as many queries as keys. A query has the keys of its
 * window, or of its document, which is as long as document_length says, or as the row; so has the kernel's key.
 * Variants: of 16-bit operands "hopper" and "own" where kernels of our own compute it (rule_attention_kernel). */
Cost cost_attention(const Op *op) {
    Attention x = rule_attention(op);
    bool backward = op->kind == OP_attention_grad, causal = x.causal;
    double batch = (double)x.q->shape[0], queries = (double)x.q->shape[1], keys = (double)x.k->shape[1];
    double heads = (double)x.q->shape[2], key_heads = (double)x.k->shape[2];
    double size = (double)x.q->shape[3], value_size = (double)x.v->shape[3], mean_size = (size + value_size) / 2;
    double product_size = backward ? (3 * size + 2 * value_size) / 5 : mean_size; /* the mean over the products */
    int64_t length = x.document_length;
    if (x.documents && length > 0 && keys > (double)length) keys = (double)length;
    double seen = keys / (causal ? 2 : 1);
    if (has_window(x) || (causal && !x.documents && queries != keys))
        seen = mean_window(x, x.documents ? fmin(queries, keys) : queries, keys);
    double pairs = batch * heads * queries * seen, all = causal && !has_window(x) ? keys : seen;
    Cost c = rule_traffic(op, (backward ? 10 : 4) * pairs * product_size);
    c.model_flops = (backward ? 8 : 4) * pairs * mean_size;
    c.model_flops_full = (backward ? 8 : 4) * (batch * heads * queries * all) * mean_size;
    if (op->kind == OP_attention_bias_grad) c.model_flops = c.model_flops_full = pairs; /* the rest is done again */
    AttentionKernel kernel = rule_attention_kernel(op);
    bool own = dtype_size(x.q->dtype) == 2 && kernel == ATTENTION_PORTABLE;
    bool more = x.sinks || x.dlse; /* takes as long as a window over the whole row */
    snprintf(c.variant, sizeof c.variant, "%s%s%s%s%s%s%s%s%s%s", dtype_name(x.q->dtype),
             own                          ? " own"
             : kernel == ATTENTION_HOPPER ? " hopper"
                                          : "",
             causal ? " causal" : "", x.documents ? " documents" : "", x.dropout > 0 ? " dropout" : "",
             has_window(x) || more ? " window" : "", x.softcap > 0 ? " softcap" : "", more ? " sinks" : "",
             x.bias ? " bias" : "", size != value_size ? " widths" : "");
    double reach = has_window(x) ? fmin(keys, widest(x, queries, keys)) : keys;
    memcpy(c.key, (double[]){batch, heads, key_heads, queries, reach, fmax(size, value_size)}, 6 * sizeof *c.key);
    c.nkey = 6;
    /* bench/results/2026-11-26-h100-times.md: products are bound by the clock from 0.85 of the peak on, cuDNN from
     * 0.45, our own kernels always; a pair draws what 47 FLOPs of each of its products do. */
    c.busy = own ? 0.02 : 0.45;
    c.also_draws = c.flops * 47 / product_size;
    if (x.documents) c.document_length = (int)keys, c.whole_documents = length <= 0;
    return c;
}

/* ── rope ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Elements of a head that turn. */
static int64_t rope_width(const Op *op) {
    return op->rope.width ? op->rope.width : op->rope.x->shape[3];
}

/* A number a pair, or two: then positions has a leading dimension, of which the second says the place. */
static void check_frequencies(Graph *g, const Op *op, const Numbers *l) {
    const Value *p = op->rope.positions;
    int64_t pairs = rope_width(op) / 2;
    if (l->n != pairs && (l->n != 2 * pairs || !p))
        rule_fail(g, op, "a list of %d frequencies for %lld pairs", l->n, (long long)pairs);
    for (int64_t k = pairs; k < l->n; k++)
        if (!(l->at[k] >= 0 && l->at[k] < (float)p->shape[0]))
            rule_fail(g, op, "positions %s have no row %g", value_str(g->arena, p), (double)l->at[k]);
}

void infer_rope(Graph *g, Op *op) {
    const Value *x = op->rope.x, *p = op->rope.positions;
    rule_need_float(g, op, x, "x");
    if (x->dims != 4)
        rule_fail(g, op, "x %s must have 4 dims: [batch, sequence, heads, head size]", value_str(g->arena, x));
    int64_t width = rope_width(op);
    if (width < 2 || width % 2 || width > x->shape[3])
        rule_fail(g, op, "x %s: the width %lld that turns must be even, and at most the head size %lld",
                  value_str(g->arena, x), (long long)width, (long long)x->shape[3]);
    const Numbers *l = op->rope.frequencies ? graph_numbers_at(g, op->rope.frequencies) : NULL;
    if (l) check_frequencies(g, op, l);
    if (p) {
        int rows = l && l->n > width / 2;
        rule_need_int32(g, op, p, "the positions");
        if (p->dims != 2 + rows || p->shape[rows] != x->shape[0] || p->shape[rows + 1] != x->shape[1])
            rule_fail(g, op, "positions %s with x %s: they must be int32[%s%lld,%lld]", value_str(g->arena, p),
                      value_str(g->arena, x), rows ? "sections," : "", (long long)x->shape[0], (long long)x->shape[1]);
    }
    if (!l && !(op->rope.theta > 0)) rule_fail(g, op, "theta %g: it must be positive", op->rope.theta);
    if (op->rope.heads < 0 || op->rope.heads > x->shape[2])
        rule_fail(g, op, "x %s has no %lld heads (internal error)", value_str(g->arena, x), (long long)op->rope.heads);
    rule_out_like(g, op, &op->rope.y, x);
}

/* The gradient of a rotation is the inverse rotation, times the same scale. */
void grad_rope(Builder *b, Op *op, OpParts *d) {
    OpParts back = op->parts;
    back.rope.y = NULL;
    back.rope.x = d->rope.y;
    back.rope.inverse = !op->rope.inverse;
    d->rope.x = build_op(b, OP_rope, &back)->rope.y;
}

/* Only what is rotated is read and written: other heads and elements stay where they are, since the result takes over
 * the bytes of x. */
Cost cost_rope(const Op *op) {
    Cost c = cost_pointwise(op);
    double part = op->rope.heads ? (double)op->rope.heads / (double)op->rope.x->shape[2] : 1;
    part *= (double)rope_width(op) / (double)op->rope.x->shape[3];
    return (Cost){.flops = c.flops * part, .bytes = c.bytes * part};
}
