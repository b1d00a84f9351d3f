/* Rules of sorting, of elements by index and of running sums.
 * Relies on: rules.h, build.h, schema/workspace.h.
 * Relied on by: ops.def. */
#include "rules.h"
#include "schema/workspace.h"

#include <math.h>

/* ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The size of x's last dimension; x must hold floats or int32. */
static int64_t need_row(Graph *g, const Op *op, const Value *x) {
    if (x->dtype != INT32) rule_need_float(g, op, x, "x");
    if (!x->dims) rule_fail(g, op, "x %s is a single number and has no dimension", value_str(g->arena, x));
    return x->shape[x->dims - 1];
}

/* v with n elements in its last dimension, as a result of dtype d. */
static void out_with_last(Graph *g, Op *op, Value **result, Dtype d, const Value *v, int64_t n) {
    int64_t shape[MAX_DIMS];
    memcpy(shape, v->shape, sizeof shape);
    shape[v->dims - 1] = n;
    rule_out(g, op, result, d, v->dims, shape);
}

void infer_sort(Graph *g, Op *op) {
    const Value *x = op->sort.x;
    int64_t n = need_row(g, op, x);
    out_with_last(g, op, &op->sort.values, x->dtype, x, n);
    out_with_last(g, op, &op->sort.indices, INT32, x, n);
}

void infer_topk(Graph *g, Op *op) {
    const Value *x = op->topk.x;
    int64_t n = need_row(g, op, x), k = op->topk.k, most = min64(n, SC_MOST_TOPK);
    if (k < 1 || k > most)
        rule_fail(g, op, "x %s with k = %lld: the dimension has %lld elements, so k must be 1 to %lld",
                  value_str(g->arena, x), (long long)k, (long long)n, (long long)most);
    out_with_last(g, op, &op->topk.values, x->dtype, x, k);
    out_with_last(g, op, &op->topk.indices, INT32, x, k);
}

/* g, the gradient of the values of sort or topk, where they were in x. */
static Value *put_back(Builder *b, const Value *x, Value *g, Value *indices) {
    int64_t cols = x->shape[x->dims - 1];
    return dtype_float(x->dtype) ? BUILD(b, sort_grad, .g = g, .indices = indices, .cols = cols)->sort_grad.dx : NULL;
}

void grad_sort(Builder *b, Op *op, OpParts *d) {
    d->sort.x = put_back(b, op->sort.x, d->sort.values, op->sort.indices);
}

void grad_topk(Builder *b, Op *op, OpParts *d) {
    d->topk.x = put_back(b, op->topk.x, d->topk.values, op->topk.indices);
}

void infer_sort_grad(Graph *g, Op *op) {
    const Value *dy = op->sort_grad.g;
    out_with_last(g, op, &op->sort_grad.dx, dy->dtype, dy, op->sort_grad.cols);
}

int64_t limit_cols(const Op *op) {
    return op->sort_grad.cols;
}

/* Rows that a GPU sorts in shared memory are read and written once; each doubling of the sorted runs of longer ones
 * reads and writes an item of 8 bytes for each element. */
Cost cost_sort(const Op *op) {
    double n = (double)value_numel(op->sort.x), rows = (double)rule_rows(op->sort.x), each = n / rows;
    Cost c = rule_traffic(op, n * log2(each + 1));
    if (each > SC_SORT_TILE) c.bytes += n * 16 * ceil(log2(each / SC_SORT_TILE));
    return c;
}

/* A row that fits into the registers of a warp is read once; of a longer one each digit is counted, two or three on the
 * average, and what was found collected. */
Cost cost_topk(const Op *op) {
    const Value *x = op->topk.x;
    double n = (double)value_numel(x);
    bool warp = x->shape[x->dims - 1] <= SC_TOPK_ROW && op->topk.k <= SC_TOPK_WARP;
    Cost c = rule_traffic(op, n * (warp ? (double)op->topk.k : 8));
    if (!warp) c.bytes += 3 * rule_touched_bytes(x);
    return c;
}

int64_t work_sort(const Op *op, const Machine *m) {
    const Value *x = op->sort.x;
    int64_t rows = rule_rows(x), n = x->shape[x->dims - 1];
    return m->cuda ? sc_cuda_sort_bytes(rows, n) : min64(m->threads, rows) * sc_cpu_sort_bytes(n);
}

int64_t work_topk(const Op *op, const Machine *m) {
    return m->cuda ? 0 : min64(m->threads, rule_rows(op->topk.x)) * sc_cpu_topk_bytes(op->topk.k);
}

/* ── elements by index ───────────────────────────────────────────────────────────────────────────────────────────── */
/* Do x and index agree in all dims but `dim`? */
static void need_index(Graph *g, const Op *op, const char *name, const Value *x) {
    const Value *index = OPERAND_OF(op, index);
    int64_t dim = INT_OF(op, dim);
    rule_need_int32(g, op, index, "the index");
    bool fits = dim >= 0 && dim < x->dims && x->dims == index->dims;
    for (int i = 0; i < x->dims && fits; i++) fits = i == dim || x->shape[i] == index->shape[i];
    if (!fits)
        rule_fail(g, op, "%s %s with index %s along dim %lld: all sizes but that one's must be equal", name,
                  value_str(g->arena, x), value_str(g->arena, index), (long long)dim);
}

void infer_gather(Graph *g, Op *op) {
    const Value *x = op->gather.x, *index = op->gather.index;
    if (rule_is_stored(x->dtype)) rule_need_float(g, op, x, "x");
    need_index(g, op, "x", x);
    rule_out(g, op, &op->gather.y, x->dtype, index->dims, index->shape);
}

void grad_gather(Builder *b, Op *op, OpParts *d) {
    const Value *x = op->gather.x;
    if (!dtype_float(x->dtype)) return;
    d->gather.x = BUILD(b, scatter_add, .source = d->gather.y, .index = op->gather.index, .dim = op->gather.dim,
                        .size = x->shape[op->gather.dim])
                      ->scatter_add.y;
}

int64_t limit_gather(const Op *op) {
    return op->gather.x->shape[op->gather.dim];
}

void infer_scatter_add(Graph *g, Op *op) {
    const Value *source = op->scatter_add.source;
    int64_t dim = op->scatter_add.dim, size = op->scatter_add.size, shape[MAX_DIMS];
    if (source->dtype != INT32) rule_need_float(g, op, source, "the source");
    need_index(g, op, "the source", source);
    if (source->shape[dim] != op->scatter_add.index->shape[dim])
        rule_fail(g, op, "the source %s with index %s: they must have one shape", value_str(g->arena, source),
                  value_str(g->arena, op->scatter_add.index));
    if (size < 1)
        rule_fail(g, op, "the source %s to %lld elements of dim %lld: at least one is needed",
                  value_str(g->arena, source), (long long)size, (long long)dim);
    memcpy(shape, source->shape, sizeof shape);
    shape[dim] = size;
    rule_out(g, op, &op->scatter_add.y, source->dtype, source->dims, shape);
}

void grad_scatter_add(Builder *b, Op *op, OpParts *d) {
    if (!dtype_float(op->scatter_add.source->dtype)) return;
    d->scatter_add.source =
        BUILD(b, gather, .x = d->scatter_add.y, .index = op->scatter_add.index, .dim = op->scatter_add.dim)->gather.y;
}

int64_t limit_scatter_add(const Op *op) {
    return op->scatter_add.size;
}

/* Of x only what the index names is read. */
Cost cost_gather(const Op *op) {
    return (Cost){.bytes = rule_touched_bytes(op->gather.index) + 2 * rule_touched_bytes(op->gather.y)};
}

/* Many elements a column are sorted by where they go, as items of 8 bytes. */
Cost cost_scatter_add(const Op *op) {
    const Value *index = op->scatter_add.index;
    double n = (double)value_numel(op->scatter_add.source), run = 1;
    Cost c = rule_traffic(op, n);
    for (int d = (int)op->scatter_add.dim; d < index->dims; d++) run *= (double)index->shape[d];
    if (index->shape[op->scatter_add.dim] > SC_SCATTER_FEW)
        c.bytes += n * 16 * (2 + ceil(log2(run / SC_SORT_TILE + 1)));
    return c;
}

int64_t work_scatter_add(const Op *op, const Machine *m) {
    const Value *y = op->scatter_add.y;
    if (m->cuda)
        return sc_cuda_scatter_bytes(op->scatter_add.index->shape[op->scatter_add.dim],
                                     value_numel(op->scatter_add.source));
    Dtype real = m->wide ? FP64 : FP32;
    return y->dtype == real || y->dtype == INT32 ? 0 : sc_cpu_scatter_bytes(value_numel(y), dtype_size(real));
}

void infer_searchsorted(Graph *g, Op *op) {
    const Value *s = op->searchsorted.sorted, *x = op->searchsorted.x;
    need_row(g, op, x);
    need_row(g, op, s);
    rule_need_same_dtype(g, op, s, "the sorted", x, "x");
    bool fits = s->dims == 1 || s->dims == x->dims;
    for (int i = 0; i < s->dims - 1 && fits; i++) fits = s->shape[i] == x->shape[i];
    if (!fits)
        rule_fail(g, op, "x %s with sorted %s: it must have x's sizes but for the last, or one dimension",
                  value_str(g->arena, x), value_str(g->arena, s));
    rule_out(g, op, &op->searchsorted.y, INT32, x->dims, x->shape);
}

Cost cost_searchsorted(const Op *op) {
    const Value *s = op->searchsorted.sorted;
    return rule_traffic(op, (double)value_numel(op->searchsorted.x) * log2((double)s->shape[s->dims - 1] + 1));
}

/* ── running sums ────────────────────────────────────────────────────────────────────────────────────────────────── */
void infer_scan(Graph *g, Op *op) {
    const Value *x = op->scan.x, *a = op->scan.a;
    need_row(g, op, x);
    if (a) {
        rule_need_float(g, op, x, "x");
        rule_need_same_dtype(g, op, x, "x", a, "a");
        if (!value_has_shape(a, x->dims, x->shape))
            rule_fail(g, op, "x %s with a %s: shapes must be equal", value_str(g->arena, x), value_str(g->arena, a));
    }
    rule_out_like(g, op, &op->scan.y, x);
}

/* n of v's elements along the last dim, from the first on or up to the last. */
static Value *all_but_one(Builder *b, Value *v, bool last) {
    int dim = v->dims - 1;
    return BUILD(b, slice, .a = v, .dim = dim, .start = last, .length = v->shape[dim] - 1)->slice.y;
}

/* s, the gradient that reaches y with all that follows from it, is the scan the other way; that of a is s y where y is
 * what a was multiplied by: the element before it, which the first lacks. */
void grad_scan(Builder *b, Op *op, OpParts *d) {
    Value *x = op->scan.x, *a = op->scan.a, *y = op->scan.y;
    bool reverse = op->scan.reverse;
    if (!dtype_float(x->dtype)) return;
    Value *s = BUILD(b, scan, .x = d->scan.y, .a = a, .reverse = !reverse)->scan.y;
    d->scan.x = s;
    if (!a) return;
    int64_t n = x->shape[x->dims - 1];
    d->scan.a = n == 1 ? rule_zeros_like(b, a)
                       : BUILD(b, pad_slice,
                               .a = build_two(b, OP_mul, all_but_one(b, reverse ? y : s, true),
                                              all_but_one(b, reverse ? s : y, false)),
                               .dim = x->dims - 1, .start = 1, .size = n)
                             ->pad_slice.y;
}

/* Rows of several tiles are read twice. */
Cost cost_scan(const Op *op) {
    const Value *x = OPERAND_OF(op, x);
    Cost c = rule_traffic(op, 2 * (double)value_numel(x));
    if (x->shape[x->dims - 1] > SC_SCAN_TILE) c.bytes += rule_touched_bytes(x);
    return c;
}

static int64_t scan_bytes(const Value *x, const Machine *m) {
    return m->cuda ? sc_cuda_scan_bytes(rule_rows(x), x->shape[x->dims - 1]) : 0;
}

int64_t work_scan(const Op *op, const Machine *m) {
    return scan_bytes(op->scan.x, m);
}

void infer_cummax(Graph *g, Op *op) {
    const Value *x = op->cummax.x;
    need_row(g, op, x);
    rule_out(g, op, &op->cummax.indices, INT32, x->dims, x->shape);
}

int64_t work_cummax(const Op *op, const Machine *m) {
    return scan_bytes(op->cummax.x, m);
}
