/* topk over the last dimension and its gradient.
 * Relies on: kernel.h.
 * Relied on by: generated code. Contiguous operands.
 *
 * A row is gone through once for each of its k largest: the first, in the order of sc_topk_before, of those behind the
 * one found last. */
#include "kernel.h"

/* The first of the row that stands behind element `last`, which is x; last -1: of all. Returns its index. */
static int64_t next_largest(const sc_tensor *x, int64_t from, int64_t cols, int64_t last, real *value) {
    real buffer[SC_CHUNK], was = *value;
    int64_t found = -1;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = sc_in(x, from + c, n, buffer);
        for (int64_t i = 0; i < n; i++) {
            if (last >= 0 && !sc_topk_before(was, last, v[i], c + i)) continue;
            if (found >= 0 && !sc_topk_before(v[i], c + i, *value, found)) continue;
            found = c + i;
            *value = v[i];
        }
    }
    return found;
}

SC_KERNEL(topk) {
    const sc_tensor *x = &k->x;
    int64_t cols = sc_cols(x), most = k->k;
    sc_range mine = sc_share(task, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        real value = 0;
        int64_t index = -1;
        for (int64_t i = row * most; i < (row + 1) * most; i++) {
            index = next_largest(x, row * cols, cols, index, &value);
            sc_store(&k->values, i, 1, 1, &value);
            ((int32_t *)k->indices.p)[i] = (int32_t)index;
        }
    }
}

SC_KERNEL(topk_grad) {
    const sc_tensor *dx = &k->dx, *g = &k->g;
    int64_t cols = k->cols, most = sc_cols(g);
    sc_range mine = sc_share(task, sc_rows(g), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        memset(sc_at(dx, row * cols), 0, (size_t)(cols * sc_size(dx->dtype)));
        for (int64_t i = row * most; i < (row + 1) * most; i++) {
            int64_t c = sc_index(&k->indices, i);
            real value;
            sc_load(&value, g, i, 1, 1);
            if (c >= 0 && c < cols) sc_store(dx, row * cols + c, 1, 1, &value);
        }
    }
}
