/* gather, scatter_add and searchsorted: elements by index, and indices by element.
 * Relies on: kernel.h.
 * Relied on by: generated code. gather's and scatter_add's operands have any strides.
 *
 * scatter_add's parts own columns, the elements that share all indices but that of the dimension, and go through them
 * in their order. Sums of 16 bits are kept in real, in the workspace, until they are rounded. */
#include "kernel.h"

/* The offset in t of element n of its dimensions [from, to). */
static int64_t offset_of(const sc_tensor *t, int from, int to, int64_t n) {
    int64_t at = 0;
    for (int d = to - 1; d >= from; d--) {
        at += n % t->shape[d] * t->stride[d];
        n /= t->shape[d];
    }
    return at;
}

static int64_t count_of(const sc_tensor *t, int from, int to) {
    int64_t n = 1;
    for (int d = from; d < to; d++) n *= t->shape[d];
    return n;
}

SC_KERNEL(gather) {
    const sc_tensor *x = &k->x, *index = &k->index;
    int last = index->dims - 1, size = sc_size(x->dtype), along_last = k->dim == last;
    int64_t n = x->shape[k->dim], step = x->stride[k->dim], cols = index->shape[last];
    sc_tensor fixed = *x; /* x without the dimension */
    for (int d = 0; d <= last; d++) fixed.shape[d] = index->shape[d];
    fixed.stride[k->dim] = 0;
    uint64_t none = sc_no_element(x->dtype);
    sc_range mine = sc_share(task, sc_rows(index), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t at = sc_row(&fixed, row), from = sc_row(index, row), one = along_last ? 0 : fixed.stride[last];
#define GATHER(type)                                                                                                   \
    case sizeof(type):                                                                                                 \
        for (int64_t c = 0; c < cols; c++) {                                                                           \
            int64_t v = sc_index(index, from + c * index->stride[last]);                                               \
            ((type *)k->y.p)[row * cols + c] =                                                                         \
                v >= 0 && v < n ? ((const type *)x->p)[at + c * one + v * step] : (type)none;                          \
        }                                                                                                              \
        break;
        switch (size) { GATHER(uint8_t) GATHER(uint16_t) GATHER(uint32_t) GATHER(uint64_t) }
    }
}

/* Columns [begin, end) of the inner dimensions of the outer element o. sums: of y's shape, contiguous. */
#define SUM_COLUMNS(type, GET)                                                                                         \
    for (int64_t v = 0; v < size; v++)                                                                                 \
        for (int64_t i = begin; i < end; i++) sums[(o * size + v) * inner + i] = 0;                                    \
    for (int64_t i = begin; i < end; i++) {                                                                            \
        int64_t from = offset_of(source, 0, dim, o) + offset_of(source, dim + 1, dims, i);                             \
        int64_t by = offset_of(index, 0, dim, o) + offset_of(index, dim + 1, dims, i);                                 \
        for (int64_t j = 0; j < index->shape[dim]; j++) {                                                              \
            int64_t v = sc_index(index, by + j * index->stride[dim]), at = from + j * source->stride[dim];             \
            if (v < 0 || v >= size) continue;                                                                          \
            type *sum = &sums[(o * size + v) * inner + i];                                                             \
            *sum = GET;                                                                                                \
        }                                                                                                              \
    }

static void sum_integers(const sc_scatter_add_args *k, int32_t *sums, int64_t inner, int64_t o, int64_t begin,
                         int64_t end) {
    const sc_tensor *source = &k->source, *index = &k->index;
    int dim = (int)k->dim, dims = index->dims;
    int64_t size = k->size;
    SUM_COLUMNS(int32_t, (int32_t)((uint32_t)*sum + (uint32_t)sc_index(source, at)))
}

static void sum_reals(const sc_scatter_add_args *k, real *sums, int64_t inner, int64_t o, int64_t begin, int64_t end) {
    const sc_tensor *source = &k->source, *index = &k->index, *y = &k->y;
    int dim = (int)k->dim, dims = index->dims;
    int64_t size = k->size;
    SUM_COLUMNS(real, *sum + (real)sc_get(source, at))
    if (y->dtype != SC_REAL)
        for (int64_t v = 0; v < size; v++)
            sc_store(y, (o * size + v) * inner + begin, 1, end - begin, &sums[(o * size + v) * inner + begin]);
}

SC_KERNEL(scatter_add) {
    const sc_tensor *index = &k->index;
    int64_t inner = count_of(index, (int)k->dim + 1, index->dims), outer = count_of(index, 0, (int)k->dim);
    sc_range mine = sc_share(task, outer * inner, 16);
    for (int64_t c = mine.begin, end; c < mine.end; c = end) {
        int64_t o = c / inner;
        end = sc_min(mine.end, (o + 1) * inner);
        if (k->y.dtype == INT32)
            sum_integers(k, (int32_t *)k->y.p, inner, o, c - o * inner, end - o * inner);
        else
            sum_reals(k, (real *)(k->y.dtype == SC_REAL ? k->y.p : k->work.p), inner, o, c - o * inner,
                      end - o * inner);
    }
}

SC_KERNEL(searchsorted) {
    const sc_tensor *sorted = &k->sorted, *x = &k->x;
    int64_t n = sc_cols(sorted), cols = sc_cols(x);
    sc_range mine = sc_share(task, sc_numel(x), 16);
    for (int64_t i = mine.begin; i < mine.end; i++) {
        int64_t at = sorted->dims == 1 ? 0 : i / cols * n, low = 0, high = n;
        uint64_t than = sc_order_at(x, i);
        while (low < high) { /* those before `low` stand before x, those from `high` on do not */
            int64_t middle = low + (high - low) / 2;
            uint64_t is = sc_order_at(sorted, at + middle);
            if (k->right ? is <= than : is < than)
                low = middle + 1;
            else
                high = middle;
        }
        ((int32_t *)k->y.p)[i] = (int32_t)low;
    }
}
