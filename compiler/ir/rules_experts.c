/* Rules of routed experts: slots by group, rows to groups and back, products of groups.
 * Relies on: rules.h, schema/workspace.h.
 * Relied on by: ops.def. */
#include "amax_history.h"
#include "rules.h"
#include "schema/workspace.h"

#include <stdio.h>
#include <string.h>

static void need_dims(Graph *g, const Op *op, const Value *v, const char *what, int least, int most) {
    if (v->dims < least || v->dims > most)
        rule_fail(g, op, "%s %s must have %d dim%s", what, value_str(g->arena, v), least, least == 1 ? "" : "s");
}

void infer_route(Graph *g, Op *op) {
    const Value *index = op->route.index;
    int64_t groups = op->route.groups, capacity = op->route.capacity, slots = value_numel(index);
    rule_need_int32(g, op, index, "the index");
    if (groups < 1 || groups > SC_ROUTE_GROUPS)
        rule_fail(g, op, "index %s into %lld groups: there may be 1 to %d", value_str(g->arena, index),
                  (long long)groups, SC_ROUTE_GROUPS);
    int64_t rows = capacity > 0 ? min64(slots, groups * min64(capacity, slots)) : slots;
    rule_out(g, op, &op->route.counts, INT32, 1, &groups);
    rule_out(g, op, &op->route.slots, INT32, 1, &rows);
    rule_out(g, op, &op->route.places, INT32, index->dims, index->shape);
}

int64_t limit_groups(const Op *op) {
    return op->route.groups;
}

Cost cost_route(const Op *op) {
    Cost c = rule_traffic(op, 0);
    c.bytes *= 3; /* the index is read to count, and again to place */
    return c;
}

/* places [...,k] beside rows of a tensor whose leading dims are its own but the last. */
static void check_places(Graph *g, const Op *op, const Value *x, const char *what) {
    const Value *places = OPERAND_OF(op, places);
    rule_need_int32(g, op, places, "the places");
    bool fits = places->dims == x->dims;
    for (int i = 0; fits && i < x->dims - 1; i++) fits = places->shape[i] == x->shape[i];
    if (!fits || x->dims < 2)
        rule_fail(g, op, "%s %s with places %s: [...,size] and [...,k] must agree in all dims but the last", what,
                  value_str(g->arena, x), value_str(g->arena, places));
}

static void check_slots(Graph *g, const Op *op) {
    const Value *slots = OPERAND_OF(op, slots), *places = OPERAND_OF(op, places), *w = OPERAND_OF(op, weights);
    rule_need_int32(g, op, slots, "the slots");
    need_dims(g, op, slots, "the slots", 1, 1);
    if (!w) return;
    rule_need_float(g, op, w, "the weights");
    if (w->dims != places->dims || memcmp(w->shape, places->shape, (size_t)w->dims * sizeof *w->shape))
        rule_fail(g, op, "weights %s with places %s: they must have one shape", value_str(g->arena, w),
                  value_str(g->arena, places));
}

void infer_dispatch(Graph *g, Op *op) {
    const Value *x = op->dispatch.x;
    rule_need_float(g, op, x, "x");
    check_places(g, op, x, "x");
    check_slots(g, op);
    rule_out(g, op, &op->dispatch.y, x->dtype, 2, (int64_t[]){op->dispatch.slots->shape[0], x->shape[x->dims - 1]});
}

void infer_combine(Graph *g, Op *op) {
    const Value *x = op->combine.x, *places = op->combine.places;
    int64_t shape[MAX_DIMS];
    rule_need_float(g, op, x, "x");
    rule_need_int32(g, op, places, "the places");
    need_dims(g, op, x, "x", 2, 2);
    need_dims(g, op, places, "the places", 2, MAX_DIMS);
    check_slots(g, op);
    if (op->combine.slots->shape[0] != x->shape[0])
        rule_fail(g, op, "x %s with slots %s: a slot for each row is needed", value_str(g->arena, x),
                  value_str(g->arena, op->combine.slots));
    memcpy(shape, places->shape, sizeof shape);
    shape[places->dims - 1] = x->shape[1];
    rule_out(g, op, &op->combine.y, x->dtype, places->dims, shape);
}

void infer_combine_weights(Graph *g, Op *op) {
    const Value *places = op->combine_weights.places;
    check_places(g, op, op->combine_weights.y, "y");
    rule_out(g, op, &op->combine_weights.dw, (Dtype)op->combine_weights.dtype, places->dims, places->shape);
}

static Value *weights_grad(Builder *b, Value *rows, Value *y, Value *places, const Value *weights) {
    return BUILD(b, combine_weights, .x = rows, .y = y, .places = places, .dtype = weights->dtype)->combine_weights.dw;
}

/* Each is the other's gradient. */
void grad_dispatch(Builder *b, Op *op, OpParts *d) {
    Value *g = d->dispatch.y, *places = op->dispatch.places, *w = op->dispatch.weights;
    d->dispatch.x = BUILD(b, combine, .x = g, .slots = op->dispatch.slots, .places = places, .weights = w)->combine.y;
    if (w) d->dispatch.weights = weights_grad(b, g, op->dispatch.x, places, w);
}

void grad_combine(Builder *b, Op *op, OpParts *d) {
    Value *g = d->combine.y, *places = op->combine.places, *w = op->combine.weights;
    d->combine.x = BUILD(b, dispatch, .x = g, .slots = op->combine.slots, .places = places, .weights = w)->dispatch.y;
    if (w) d->combine.weights = weights_grad(b, op->combine.x, g, places, w);
}

double rule_expected_rows(const Value *routed, double rows) {
    const Op *route = value_root(routed)->def;
    bool said = route && route->kind == OP_route && route->route.expected > 0;
    return said && (double)route->route.expected < rows ? (double)route->route.expected : rows;
}

/* ── a gate over rows ────────────────────────────────────────────────────────────────────────────────────────────── */
static void check_gated(Graph *g, const Op *op) {
    const Value *gate = OPERAND_OF(op, gate), *up = OPERAND_OF(op, up), *slots = OPERAND_OF(op, slots);
    rule_need_float(g, op, gate, "the gate");
    need_dims(g, op, gate, "the gate", 2, 2);
    check_slots(g, op);
    if (gate->dtype != up->dtype || up->dims != 2 || memcmp(gate->shape, up->shape, 2 * sizeof *up->shape))
        rule_fail(g, op, "gate %s and up %s: they must have one shape and dtype", value_str(g->arena, gate),
                  value_str(g->arena, up));
    if (slots->shape[0] != gate->shape[0])
        rule_fail(g, op, "gate %s with slots %s: a slot for each row is needed", value_str(g->arena, gate),
                  value_str(g->arena, slots));
}

void infer_silu_mul_rows(Graph *g, Op *op) {
    const Value *gate = op->silu_mul_rows.gate;
    check_gated(g, op);
    rule_out(g, op, &op->silu_mul_rows.y, gate->dtype, 2, gate->shape);
}

void infer_silu_mul_rows_grad(Graph *g, Op *op) {
    const Value *gate = op->silu_mul_rows_grad.gate, *weights = op->silu_mul_rows_grad.weights;
    check_gated(g, op);
    rule_out(g, op, &op->silu_mul_rows_grad.dgate, gate->dtype, 2, gate->shape);
    rule_out(g, op, &op->silu_mul_rows_grad.dup, gate->dtype, 2, gate->shape);
    rule_out(g, op, &op->silu_mul_rows_grad.dweights, weights->dtype, weights->dims, weights->shape);
}

void grad_silu_mul_rows(Builder *b, Op *op, OpParts *d) {
    Op *grad = BUILD(b, silu_mul_rows_grad, .g = d->silu_mul_rows.y, .gate = op->silu_mul_rows.gate,
                     .up = op->silu_mul_rows.up, .slots = op->silu_mul_rows.slots, .places = op->silu_mul_rows.places,
                     .weights = op->silu_mul_rows.weights);
    d->silu_mul_rows.gate = grad->silu_mul_rows_grad.dgate;
    d->silu_mul_rows.up = grad->silu_mul_rows_grad.dup;
    d->silu_mul_rows.weights = grad->silu_mul_rows_grad.dweights;
}

/* Rows that no slot has are written as zeros, and not read. */
Cost cost_silu_mul_rows(const Op *op) {
    const Value *gate = OPERAND_OF(op, gate);
    double rows = (double)gate->shape[0], unused = rows - rule_expected_rows(OPERAND_OF(op, slots), rows);
    double read = (op->kind == OP_silu_mul_rows ? 2 : 3) * (double)dtype_size(gate->dtype) * (double)gate->shape[1];
    Cost c = rule_traffic(op, 0);
    c.bytes -= (int64_t)(unused * read);
    return c;
}

/* ── products of groups ──────────────────────────────────────────────────────────────────────────────────────────── */
static void check_counts(Graph *g, const Op *op, int64_t groups) {
    const Value *counts = OPERAND_OF(op, counts);
    rule_need_int32(g, op, counts, "the counts");
    if (counts->dims != 1 || counts->shape[0] != groups)
        rule_fail(g, op, "counts %s for %lld groups: they must be [%lld]", value_str(g->arena, counts),
                  (long long)groups, (long long)groups);
}

/* What an operand of b's layout has: b [groups,K,N], trans_b [groups,N,K]; of 8 bits turned: [N,groups K]. */
typedef struct {
    int64_t groups, inner, outputs;
} Matrices;

static Matrices matrices_of(const Op *op) {
    const Value *b = op->grouped_matmul.b;
    int64_t groups = op->grouped_matmul.counts->shape[0];
    if (b->dims == 2) return (Matrices){groups, b->shape[1] / groups, b->shape[0]};
    bool t = op->grouped_matmul.trans_b != 0;
    return (Matrices){b->shape[0], b->shape[t ? 2 : 1], b->shape[t ? 1 : 2]};
}

static void check_grouped(Graph *g, const Op *op) {
    const Value *a = op->grouped_matmul.a, *b = op->grouped_matmul.b;
    bool t = op->grouped_matmul.trans_b != 0;
    rule_need_float(g, op, a, "x");
    rule_need_float(g, op, b, "W");
    need_dims(g, op, a, "x", 2, 2);
    need_dims(g, op, b, "W", 3, 3);
    if (a->dtype != b->dtype)
        rule_fail(g, op, "x %s · W %s: %s ≠ %s; nn.cast(a, b) gives one the dtype of the other", value_str(g->arena, a),
                  value_str(g->arena, b), dtype_name(a->dtype), dtype_name(b->dtype));
    if (a->shape[1] != b->shape[t ? 2 : 1])
        rule_fail(g, op, "x %s · W%s with W %s: %lld ≠ %lld; the inner sizes must be equal", value_str(g->arena, a),
                  t ? "ᵀ" : "", value_str(g->arena, b), (long long)a->shape[1], (long long)b->shape[t ? 2 : 1]);
    check_counts(g, op, b->shape[0]);
    const Value *bias = op->grouped_matmul.bias;
    int64_t outputs = b->shape[t ? 1 : 2];
    if (bias && (bias->dims != 2 || bias->shape[0] != b->shape[0] || bias->shape[1] != outputs))
        rule_fail(g, op, "the bias %s of W %s: it must be [%lld,%lld], a row for each group", value_str(g->arena, bias),
                  value_str(g->arena, b), (long long)b->shape[0], (long long)outputs);
    if (bias && bias->dtype != a->dtype)
        rule_fail(g, op, "x %s and the bias %s: %s ≠ %s; nn.cast(a, b) gives one the dtype of the other",
                  value_str(g->arena, a), value_str(g->arena, bias), dtype_name(a->dtype), dtype_name(bias->dtype));
}

void infer_grouped_matmul(Graph *g, Op *op) {
    const Value *a = op->grouped_matmul.a;
    if (!op->grouped_matmul.scale_a) check_grouped(g, op); /* quantize has made a and b of ones that were looked at */
    rule_out(g, op, &op->grouped_matmul.y, rule_wider(op->grouped_matmul.dtype, a->dtype), 2,
             (int64_t[]){a->shape[0], matrices_of(op).outputs});
}

void infer_grouped_matmul_grad(Graph *g, Op *op) {
    const Value *a = op->grouped_matmul_grad.a, *c = op->grouped_matmul_grad.c;
    int64_t groups = op->grouped_matmul_grad.counts->shape[0];
    int side = op->grouped_matmul_grad.scale_a ? 0 : 1;
    rule_out(g, op, &op->grouped_matmul_grad.y, rule_wider(op->grouped_matmul_grad.dtype, a->dtype), 3,
             (int64_t[]){groups, a->shape[side], c->shape[side]});
}

/* A bias is a matrix of one row, by which ones are multiplied. */
static Value *bias_grad(Builder *b, const Op *op, Value *g, Dtype d) {
    const Value *bias = op->grouped_matmul.bias;
    Value *ones = BUILD(b, full, .dtype = d, .dims = 2, .shape = {g->shape[0], 1}, .value = 1)->full.y;
    Value *sums =
        BUILD(b, grouped_matmul_grad, .a = ones, .c = g, .counts = op->grouped_matmul.counts)->grouped_matmul_grad.y;
    return build_reshape(b, sums, 2, bias->shape);
}

/* As a linear's (rules_matrix.c): with g in 8 bits, too, and the matrices turned, quantized once more where the forward
 * has not made both copies. A transpose of all matrices as one, [N,groups K], has each of them turned. */
static void grad_of_scaled(Builder *b, const Op *op, OpParts *d) {
    const Op *x = op->grouped_matmul.a->def, *w = op->grouped_matmul.b->def;
    Value *gy = d->grouped_matmul.y, *counts = op->grouped_matmul.counts, *from = OPERAND_OF(w, x);
    bool trains = value_root(from)->param->requires_grad, both = INT_OF(w, both);
    bool turned = rule_is_turned(op->grouped_matmul.b);
    Dtype made = OPERAND_OF(x, x)->dtype;
    Dtype narrow = op->grouped_matmul.grad_e4m3 ? FP8_E4M3 : FP8_E5M2;
    AmaxSite site = op->grouped_matmul.grad_delayed
                        ? amax_history_site(b->g)
                        : (AmaxSite){BUILD(b, absmax, .x = gy, .counts = counts)->absmax.y, NULL};
    const Op *g = BUILD(b, quantize, .x = gy, .amax = site.amax, .seen = site.seen, .counts = counts, .dtype = narrow,
                        .both = trains);
    const Op *of =
        both ? w : BUILD(b, quantize, .x = from, .amax = OPERAND_OF(w, amax), .dtype = FP8_E4M3, .turn = !turned);
    Value *other = both && !turned ? RESULT_OF(w, turned) : RESULT_OF(of, y);
    d->grouped_matmul.a =
        BUILD(b, grouped_matmul, .a = RESULT_OF(g, y), .b = other, .counts = counts, .scale_a = RESULT_OF(g, scale),
              .scale_b = RESULT_OF(of, scale), .trans_b = true, .dtype = 1 + made)
            ->grouped_matmul.y;
    if (op->grouped_matmul.bias) d->grouped_matmul.bias = bias_grad(b, op, gy, made);
    if (!trains) return;
    const Op *rows = turned ? x : g, *cols = turned ? g : x; /* the sums lie as the matrices do */
    Value *dw =
        BUILD(b, grouped_matmul_grad, .a = RESULT_OF(rows, turned), .c = RESULT_OF(cols, turned), .counts = counts,
              .scale_a = RESULT_OF(rows, scale), .scale_c = RESULT_OF(cols, scale), .dtype = 1 + made)
            ->grouped_matmul_grad.y;
    if (turned) {
        dw = build_reshape(b, dw, 2, (int64_t[]){dw->shape[0] * dw->shape[1], dw->shape[2]});
        dw = build_transpose(b, dw, (int[]){1, 0});
    }
    d->grouped_matmul.b = dw;
}

void grad_grouped_matmul(Builder *b, Op *op, OpParts *d) {
    Value *g = d->grouped_matmul.y, *a = op->grouped_matmul.a, *counts = op->grouped_matmul.counts;
    bool t = op->grouped_matmul.trans_b != 0;
    if (op->grouped_matmul.scale_a) {
        grad_of_scaled(b, op, d);
        return;
    }
    d->grouped_matmul.a =
        BUILD(b, grouped_matmul, .a = g, .b = op->grouped_matmul.b, .counts = counts, .trans_b = !t)->grouped_matmul.y;
    d->grouped_matmul.b =
        BUILD(b, grouped_matmul_grad, .a = t ? g : a, .c = t ? a : g, .counts = counts)->grouped_matmul_grad.y;
    if (op->grouped_matmul.bias) d->grouped_matmul.bias = bias_grad(b, op, g, a->dtype);
}

/* As products of equal groups in a batch. Of 8 bits, the gradient reads what lies turned. */
Cost cost_grouped_matmul(const Op *op) {
    bool back = op->kind == OP_grouped_matmul_grad, scaled = OPERAND_OF(op, scale_a) != NULL;
    bool turned = scaled || (op->kind == OP_grouped_matmul && op->grouped_matmul.trans_b);
    const Value *a = OPERAND_OF(op, a), *b = back ? OPERAND_OF(op, c) : OPERAND_OF(op, b), *y = op_result(op),
                *counts = OPERAND_OF(op, counts);
    int side = back && scaled ? 0 : 1; /* of a, which is not its rows' */
    double rows = rule_expected_rows(counts, (double)a->shape[1 - side]), groups = (double)counts->shape[0],
           n = (double)y->shape[y->dims - 1], k = (double)a->shape[side];
    Cost c = rule_traffic(op, 2 * rows * n * k);
    snprintf(c.variant, sizeof c.variant, "%s%s%s%s%s %s%s", dtype_name(a->dtype), a->dtype == b->dtype ? "" : "*",
             a->dtype == b->dtype ? "" : dtype_name(b->dtype), a->dtype == y->dtype ? "" : ">",
             a->dtype == y->dtype ? "" : dtype_name(y->dtype), back && !scaled ? "t" : "n", turned ? "t" : "n");
    memcpy(c.key, (double[]){back ? k : rows / groups, n, back ? rows / groups : k, groups}, 4 * sizeof *c.key);
    c.nkey = 4;
    return c;
}
