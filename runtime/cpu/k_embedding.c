/* embedding: y[n,:] = w[index[n],:], and its gradient dw[v,:] = Σ_{index[n] = v} g[n,:].
 * Relies on: kernel.h.
 * Relied on by: generated code. Contiguous operands.
 *
 * The gradient's parts own columns and add tokens up in their order, so nothing depends on the number of parts. Sums
 * begin with c, if there is one. Results that are not real are summed before they are rounded: the first token of each
 * row looks for all later ones.
 * An index outside the table reads NaN and receives nothing. */
#include "kernel.h"

SC_KERNEL(embedding) {
    const sc_tensor *y = &k->y, *w = &k->w;
    int64_t cols = w->shape[1];
    real buffer[SC_CHUNK];
    sc_range mine = sc_share(task, sc_numel(&k->index), 1);
    for (int64_t n = mine.begin; n < mine.end; n++) {
        int64_t v = sc_index(&k->index, n);
        int valid = v >= 0 && v < w->shape[0];
        if (valid && w->dtype == y->dtype) {
            memcpy(sc_at(y, n * cols), sc_at(w, v * cols), (size_t)(cols * sc_size(w->dtype)));
            continue;
        }
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t m = sc_min(SC_CHUNK, cols - c);
            if (valid)
                sc_load(buffer, w, v * cols + c, 1, m);
            else
                for (int64_t i = 0; i < m; i++) buffer[i] = NAN;
            sc_store(y, n * cols + c, 1, m, buffer);
        }
    }
}

static void add_chunk(real *restrict sum, const sc_tensor *g, int64_t at, int64_t m) {
    real buffer[SC_CHUNK];
    const real *v = sc_in(g, at, m, buffer);
    for (int64_t i = 0; i < m; i++) sum[i] += v[i];
}

/* Columns of all rows: what a row without tokens has. */
static void begin_rows(const sc_embedding_grad_args *k, int64_t first, int64_t m) {
    size_t bytes = (size_t)(m * sc_size(k->dw.dtype));
    for (int64_t v = 0; v < k->dw.shape[0] && k->c.p != k->dw.p; v++) {
        int64_t at = v * k->dw.shape[1] + first;
        if (k->c.p)
            memcpy(sc_at(&k->dw, at), sc_at(&k->c, at), bytes);
        else
            memset(sc_at(&k->dw, at), 0, bytes);
    }
}

/* Columns c .. c+m where dw holds reals: added in place. */
static void sum_in_place(const sc_tensor *dw, const sc_tensor *index, const sc_tensor *g, int64_t c, int64_t m) {
    int64_t rows = dw->shape[0], cols = dw->shape[1], tokens = sc_numel(index);
    for (int64_t n = 0; n < tokens; n++) {
        int64_t v = sc_index(index, n);
        if (v >= 0 && v < rows) add_chunk((real *)dw->p + v * cols + c, g, n * cols + c, m);
    }
}

static int seen_before(const sc_tensor *index, int64_t n, int64_t v) {
    for (int64_t j = 0; j < n; j++)
        if (sc_index(index, j) == v) return 1;
    return 0;
}

static void sum_then_round(const sc_tensor *dw, const sc_tensor *index, const sc_tensor *g, int64_t c, int64_t m) {
    int64_t rows = dw->shape[0], cols = dw->shape[1], tokens = sc_numel(index);
    real sum[SC_CHUNK];
    for (int64_t n = 0; n < tokens; n++) {
        int64_t v = sc_index(index, n);
        if (v < 0 || v >= rows || seen_before(index, n, v)) continue;
        sc_load(sum, dw, v * cols + c, 1, m);
        for (int64_t j = n; j < tokens; j++)
            if (sc_index(index, j) == v) add_chunk(sum, g, j * cols + c, m);
        sc_store(dw, v * cols + c, 1, m, sum);
    }
}

SC_KERNEL(embedding_grad) {
    sc_range mine = sc_share(task, k->dw.shape[1], 16);
    for (int64_t c = mine.begin; c < mine.end; c += SC_CHUNK) {
        int64_t m = sc_min(SC_CHUNK, mine.end - c);
        begin_rows(k, c, m);
        (k->dw.dtype == SC_REAL ? sum_in_place : sum_then_round)(&k->dw, &k->index, &k->g, c, m);
    }
}
