/* Rules of matmul, embedding, attention and rope: shapes, gradients, floating-point operations.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def. */
#include "rules.h"

/* ── matmul ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    bool ta, tb;
    int64_t m, k, k2, n; /* k: inner size of op(a), k2: of op(b) */
} Matmul;

static Matmul matmul_of(const Op *op) {
    const Value *a = op->in[0], *b = op->in[1];
    Matmul s = {.ta = op->i[0] != 0, .tb = op->i[1] != 0};
    s.m = a->shape[a->dims - 1 - !s.ta];
    s.k = a->shape[a->dims - 1 - s.ta];
    s.k2 = b->shape[b->dims - 1 - !s.tb];
    s.n = b->shape[b->dims - 1 - s.tb];
    return s;
}

/* Operands of f, by i4: x, and x2. */
static const unsigned char operands_of_f[] = {
    [SC_GELU_GRAD] = 1, [SC_GATED_TOO] = 1, [SC_GATED] = 1, [SC_GATE_GRADS] = 2};

/* Among the operands after a and b, c and those of f stand last. */
static bool matmul_bias(const Op *op) {
    return op->nin - (op->i[3] != 0) - operands_of_f[op->i[4]] == 3;
}

static bool matmul_shared(const Op *op) {
    return op->in[1]->dims == 2;
}

/* "x bf16[8,2048,4096] · Wᵀ with W bf16[14336,5120]" */
static const char *matmul_str(Graph *g, const Op *op) {
    const char *a = value_str(g->arena, op->in[0]), *b = value_str(g->arena, op->in[1]);
    const char *y = op->in[1]->dims == 2 ? "W" : "y", *t = op->i[1] ? "ᵀ" : "";
    if (op->i[0]) return arena_printf(g->arena, "xᵀ · %s%s with x %s and %s %s", y, t, a, y, b);
    if (op->i[1]) return arena_printf(g->arena, "x %s · %sᵀ with %s %s", a, y, y, b);
    return arena_printf(g->arena, "x %s · %s %s", a, y, b);
}

/* A Linear is blamed at the line where it was made, with the line that would fit. */
_Noreturn static void fail_inner(Graph *g, const Op *op, Matmul s) {
    const Module *m = op->module;
    const Value *w = op->in[1];
    const char *what = matmul_str(g, op);
    bool linear = m && m->kind && m->path && !strcmp(m->kind, "Linear") && s.tb && w->dims == 2 && !s.ta;
    if (linear)
        fail(op->src,
             "matmul: %s: %lld ≠ %lld\n  in %s = nn.Linear(%lld, %lld), made at %s; write nn.Linear(%lld, %lld)", what,
             (long long)s.k, (long long)s.k2, m->path, (long long)s.k2, (long long)s.n, source_str(g->arena, m->made),
             (long long)s.k, (long long)s.n);
    rule_fail(g, op, "%s: %lld ≠ %lld; the inner sizes must be equal: transpose or reshape one of them", what,
              (long long)s.k, (long long)s.k2);
}

static void check_matmul_dtypes(Graph *g, const Op *op) {
    for (int i = 0; i < 2 + matmul_bias(op); i++) need_float(g, op, i, i == 0 ? "x" : i == 1 ? "W" : "bias");
    for (int i = 1; i < 2 + matmul_bias(op); i++)
        if (op->in[i]->dtype != op->in[0]->dtype)
            rule_fail(g, op, "%s%s%s: %s ≠ %s; nn.cast(a, b) gives one the dtype of the other", matmul_str(g, op),
                      i == 2 ? " + bias " : "", i == 2 ? value_str(g->arena, op->in[2]) : "",
                      dtype_name(op->in[0]->dtype), dtype_name(op->in[i]->dtype));
}

void infer_matmul(Graph *g, Op *op) {
    const Value *a = op->in[0], *b = op->in[1];
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
    if (matmul_bias(op) && (op->in[2]->dims != 1 || op->in[2]->shape[0] != s.n))
        rule_fail(g, op, "%s + bias %s: the bias must have shape [%lld]", matmul_str(g, op),
                  value_str(g->arena, op->in[2]), (long long)s.n);
    int64_t shape[MAX_DIMS];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->dims - 2] = s.m;
    shape[a->dims - 1] = s.n;
    rule_out(g, op, 0, attr_dtype(op->i[2], a->dtype), a->dims, shape);
    if (op->i[4] == SC_GELU_TOO || op->i[4] == SC_GATED_TOO || op->i[4] == SC_GATE_GRADS)
        rule_out_like(g, op, 1, op->out[0]);
}

static Value *matmul(Builder *b, Value *x, Value *y, bool tx, bool ty) {
    return build_op(b, OP_MATMUL, 2, (Value *[]){x, y}, (int64_t[]){tx, ty}, 2, NULL, 0)->out[0];
}

static Value *fold_rows(Builder *b, Value *v) {
    return build_reshape(b, v, 2, (int64_t[]){rows_of(v), v->shape[v->dims - 1]});
}

/* y = A B with A = op(a), B = op(b):  dA = g Bᵀ,  dB = Aᵀ g,  each transposed back where op transposes. */
static Value *grad_left(Builder *b, const Op *op, Value *g, Matmul s) {
    Value *w = op->in[1];
    if (!s.ta) return matmul(b, g, w, false, !s.tb);
    if (g->dims > 2 && matmul_shared(op)) { /* now w stands on the left, where leading dims must be spelt out */
        int64_t shape[MAX_DIMS];
        memcpy(shape, g->shape, sizeof shape);
        shape[g->dims - 2] = w->shape[0];
        shape[g->dims - 1] = w->shape[1];
        w = build_expand(b, w, g->dims, shape);
    }
    return matmul(b, w, g, s.tb, true);
}

static Value *grad_right(Builder *b, const Op *op, Value *g, Matmul s) {
    Value *a = op->in[0];
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

void grad_matmul(Builder *b, Op *op, Value **gout, Value **gin) {
    Matmul s = matmul_of(op);
    Value *g = build_cast(b, gout[0], op->in[0]->dtype);
    gin[0] = grad_left(b, op, g, s);
    gin[1] = grad_right(b, op, g, s);
    if (matmul_bias(op)) gin[2] = build_sum_to(b, g, 1, &s.n);
}

/* Key: rows in all, columns, depth, products: rows of one shared right operand count as one product. */
Cost cost_matmul(const Op *op) {
    Matmul s = matmul_of(op);
    double y = (double)value_numel(op->out[0]), rows = y / (double)max64(s.n, 1);
    Cost c = traffic(op, 2 * y * (double)s.k + (matmul_bias(op) ? y : 0));
    Dtype in = op->in[0]->dtype, out = op->out[0]->dtype;
    static const char *const then[] = {[SC_IDENTITY] = "",
                                       [SC_GELU_TOO] = " gelu+x",
                                       [SC_GELU_GRAD] = " gelu'",
                                       [SC_GELU] = " gelu",
                                       [SC_GATED_TOO] = " silu_mul+x",
                                       [SC_GATED] = " silu_mul",
                                       [SC_GATE_GRADS] = " silu_mul'"};
    const char *words[] = {dtype_name(in),        in == out ? "" : ">", in == out ? "" : dtype_name(out),
                           s.ta ? " t" : " n",    s.tb ? "t" : "n",     then[op->i[4]],
                           op->i[3] ? " add" : ""};
    _Static_assert(sizeof c.variant > sizeof "fp8_e4m3>fp8_e5m2 nt silu_mul+x add", "the longest variant fits");
    char *end = c.variant;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) end = stpcpy(end, words[i]);
    bool folds = matmul_shared(op) && !s.ta;
    double products = folds || !s.m ? 1 : rows / (double)s.m;
    memcpy(c.key, (double[]){rows / products, (double)s.n, (double)s.k, products}, 4 * sizeof *c.key);
    c.nkey = 4;
    return c;
}

/* ── embedding ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_embedding(Graph *g, Op *op) {
    const Value *index = op->in[0], *w = op->in[1];
    need_int32(g, op, 0, "the index");
    need_float(g, op, 1, "W");
    if (w->dims != 2) rule_fail(g, op, "W %s must have 2 dims: [rows, size]", value_str(g->arena, w));
    if (index->dims + 1 > MAX_DIMS)
        rule_fail(g, op, "the index %s has too many dims: at most %d", value_str(g->arena, index), MAX_DIMS - 1);
    int64_t shape[MAX_DIMS];
    memcpy(shape, index->shape, sizeof shape);
    shape[index->dims] = w->shape[1];
    rule_out(g, op, 0, w->dtype, index->dims + 1, shape);
}

void grad_embedding(Builder *b, Op *op, Value **gout, Value **gin) {
    int64_t rows = op->in[1]->shape[0];
    gin[1] = build_op(b, OP_EMBEDDING_GRAD, 2, (Value *[]){op->in[0], gout[0]}, &rows, 1, NULL, 0)->out[0];
}

void infer_embedding_grad(Graph *g, Op *op) {
    const Value *index = op->in[0], *gy = op->in[1];
    need_int32(g, op, 0, "the index");
    if (gy->dims != index->dims + 1)
        rule_fail(g, op, "index %s with gradient %s (internal error)", value_str(g->arena, index),
                  value_str(g->arena, gy));
    rule_out(g, op, 0, attr_dtype(op->i[1], gy->dtype), 2, (int64_t[]){op->i[0], gy->shape[gy->dims - 1]});
}

/* Only the rows looked up travel; the gradient writes its whole table. */
Cost cost_embedding(const Op *op) {
    Cost c = traffic(op, 0);
    if (op->kind == OP_EMBEDDING) return (Cost){.bytes = touched_bytes(op->in[0]) + 2 * touched_bytes(op->out[0])};
    c.flops = (double)value_numel(op->in[1]);
    c.bytes += 2 * touched_bytes(op->in[1]); /* the rows are read and written again as they are added to */
    return c;
}

/* ── attention ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void check_documents(Graph *g, const Op *op, int operand, const Value *q, const Value *k) {
    bool has = op->i[2] != 0;
    if (has != (op->nin > operand))
        rule_fail(g, op, "documents are said and not given, or the reverse (internal error)");
    if (!has) return;
    const Value *d = op->in[operand];
    need_int32(g, op, operand, "the documents");
    if (d->dims != 2 || d->shape[0] != q->shape[0] || d->shape[1] != q->shape[1])
        rule_fail(g, op, "documents %s with q %s: they must be int32[%lld,%lld], one number a token",
                  value_str(g->arena, d), value_str(g->arena, q), (long long)q->shape[0], (long long)q->shape[1]);
    if (q->shape[1] != k->shape[1])
        rule_fail(g, op, "documents need as many queries as keys: %lld ≠ %lld", (long long)q->shape[1],
                  (long long)k->shape[1]);
}

static const char *qkv_str(Graph *g, const Value *q, const Value *k, const Value *v) {
    return arena_printf(g->arena, "q %s, k %s, v %s", value_str(g->arena, q), value_str(g->arena, k),
                        value_str(g->arena, v));
}

static void check_attention(Graph *g, const Op *op, int first) {
    const Value *q = op->in[first], *k = op->in[first + 1], *v = op->in[first + 2];
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) need_float(g, op, first + i, names[i]);
    if (q->dims != 4 || k->dims != 4)
        rule_fail(g, op, "%s: each must have 4 dims: [batch, sequence, heads, head size]", qkv_str(g, q, k, v));
    if (!same_shape(k, v)) rule_fail(g, op, "%s: k and v must have one shape", qkv_str(g, q, k, v));
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        rule_fail(g, op, "%s: they must have one dtype; cast them", qkv_str(g, q, k, v));
    if (q->shape[0] != k->shape[0])
        rule_fail(g, op, "%s: batches %lld ≠ %lld", qkv_str(g, q, k, v), (long long)q->shape[0],
                  (long long)k->shape[0]);
    if (q->shape[3] != k->shape[3])
        rule_fail(g, op, "%s: head sizes %lld ≠ %lld", qkv_str(g, q, k, v), (long long)q->shape[3],
                  (long long)k->shape[3]);
    if (q->shape[2] % k->shape[2])
        rule_fail(g, op, "%s: %lld query heads are no multiple of %lld key heads", qkv_str(g, q, k, v),
                  (long long)q->shape[2], (long long)k->shape[2]);
    if (op->i[0] && q->shape[1] != k->shape[1])
        rule_fail(g, op, "%s: causal attention needs as many queries as keys: %lld ≠ %lld", qkv_str(g, q, k, v),
                  (long long)q->shape[1], (long long)k->shape[1]);
    if (!(op->f[1] >= 0 && op->f[1] < 1)) rule_fail(g, op, "dropout %g: it must be at least 0 and below 1", op->f[1]);
}

void infer_attention(Graph *g, Op *op) {
    const Value *q = op->in[0];
    check_attention(g, op, 0);
    check_documents(g, op, 3, q, op->in[1]);
    rule_out_like(g, op, 0, q);
    rule_out(g, op, 1, stat_dtype(q->dtype), 3, (int64_t[]){q->shape[0], q->shape[2], q->shape[1]});
}

void grad_attention(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *in[7] = {gout[0], op->in[0], op->in[1], op->in[2], op->out[0], op->out[1], op->in[3]};
    Op *grad = build_op(b, OP_ATTENTION_GRAD, op->nin == 4 ? 7 : 6, in, op->i, 3, op->f, 2);
    for (int i = 0; i < 3; i++) gin[i] = grad->out[i];
}

void infer_attention_grad(Graph *g, Op *op) {
    check_attention(g, op, 1);
    check_documents(g, op, 6, op->in[1], op->in[2]);
    for (int i = 0; i < 3; i++) rule_out_like(g, op, i, op->in[1 + i]);
}

/* Two products forward, five backward; half of the pairs when causal. Documents are not known here: counted in full. */
Cost cost_attention(const Op *op) {
    bool backward = op->kind == OP_ATTENTION_GRAD;
    const Value *q = op->in[backward], *k = op->in[backward + 1];
    double pairs = (double)q->shape[0] * (double)q->shape[2] * (double)q->shape[1] * (double)k->shape[1];
    if (op->i[0]) pairs /= 2;
    Cost c = traffic(op, (backward ? 10 : 4) * pairs * (double)q->shape[3]);
    snprintf(c.variant, sizeof c.variant, "%s%s%s%s", dtype_name(q->dtype), op->i[0] ? " causal" : "",
             op->i[2] ? " documents" : "", op->f[1] > 0 ? " dropout" : "");
    double heads = (double)q->shape[2], key_heads = (double)k->shape[2];
    memcpy(c.key,
           (double[]){(double)q->shape[0], heads, key_heads, (double)q->shape[1], (double)k->shape[1],
                      (double)q->shape[3]},
           6 * sizeof *c.key);
    c.nkey = 6;
    return c;
}

/* ── rope ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void infer_rope(Graph *g, Op *op) {
    const Value *x = op->in[0];
    need_float(g, op, 0, "x");
    if (x->dims != 4)
        rule_fail(g, op, "x %s must have 4 dims: [batch, sequence, heads, head size]", value_str(g->arena, x));
    if (x->shape[3] % 2)
        rule_fail(g, op, "x %s: the head size %lld must be even", value_str(g->arena, x), (long long)x->shape[3]);
    if (op->nin == 2) {
        const Value *p = op->in[1];
        need_int32(g, op, 1, "the positions");
        if (p->dims != 2 || p->shape[0] != x->shape[0] || p->shape[1] != x->shape[1])
            rule_fail(g, op, "positions %s with x %s: they must be int32[%lld,%lld]", value_str(g->arena, p),
                      value_str(g->arena, x), (long long)x->shape[0], (long long)x->shape[1]);
    }
    if (!(op->f[0] > 0)) rule_fail(g, op, "theta %g: it must be positive", op->f[0]);
    if (op->i[1] < 0 || op->i[1] > x->shape[2])
        rule_fail(g, op, "x %s has no %lld heads (internal error)", value_str(g->arena, x), (long long)op->i[1]);
    rule_out_like(g, op, 0, x);
}

/* A rotation: its gradient turns back. */
void grad_rope(Builder *b, Op *op, Value **gout, Value **gin) {
    int64_t ints[2] = {!op->i[0], op->i[1]};
    gin[0] = build_op(b, OP_ROPE, op->nin, (Value *[]){gout[0], op->in[1]}, ints, 2, op->f, 5)->out[0];
}

/* Heads that stay as they are do not travel: their bytes are the result's already where it takes over x's. */
Cost cost_rope(const Op *op) {
    Cost c = cost_pointwise(op);
    double part = op->i[1] ? (double)op->i[1] / (double)op->in[0]->shape[2] : 1;
    return (Cost){.flops = c.flops * part, .bytes = c.bytes * part};
}
