/* scan and cummax: sums, linear recurrences and the place of the largest element so far along the last dimension.
 * Relies on: kernel.h.
 * Relied on by: generated code. Contiguous operands; scan's x may have y's bytes.
 *
 * y[i] = a[i] y[i - 1] + x[i], in double, rounded once an element; a row is one part's. */
#include "kernel.h"

static void scan_integers(const sc_scan_args *k, int64_t first, int64_t cols) {
    const int32_t *x = (const int32_t *)k->x.p + first;
    int32_t *y = (int32_t *)k->y.p + first;
    uint32_t sum = 0;
    for (int64_t i = 0; i < cols; i++) {
        int64_t at = k->reverse ? cols - 1 - i : i;
        y[at] = (int32_t)(sum += (uint32_t)x[at]);
    }
}

static void scan_reals(const sc_scan_args *k, int64_t first, int64_t cols) {
    const sc_tensor *a = sc_given(&k->a);
    double y = 0;
    for (int64_t i = 0; i < cols; i++) {
        int64_t at = first + (k->reverse ? cols - 1 - i : i);
        if (a && i) y *= sc_get(a, k->reverse ? at + 1 : at);
        y += sc_get(&k->x, at);
        sc_set(&k->y, at, y);
    }
}

SC_KERNEL(scan) {
    int64_t cols = sc_cols(&k->x);
    sc_range mine = sc_share(task, sc_rows(&k->x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        (k->x.dtype == INT32 ? scan_integers : scan_reals)(k, row * cols, cols);
}

/* The smallest come last where the order is turned; a NaN stays above all. */
SC_KERNEL(cummax) {
    const sc_tensor *x = &k->x;
    int64_t cols = sc_cols(x), size = sc_size(x->dtype);
    uint64_t nan = x->dtype == INT32 ? 0 : ~(uint64_t)0 >> (64 - 8 * size);
    sc_range mine = sc_share(task, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        uint64_t most = 0;
        int32_t at = 0;
        for (int64_t i = 0; i < cols; i++) {
            uint64_t order = sc_order_at(x, row * cols + i);
            if (k->smallest) order = order && order == nan ? ~(uint64_t)0 : ~order;
            if (i == 0 || order >= most) most = order, at = (int32_t)i;
            ((int32_t *)k->indices.p)[row * cols + i] = at;
        }
    }
}
