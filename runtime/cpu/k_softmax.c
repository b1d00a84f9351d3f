/* softmax over the last dimension and its gradient.
 * Relies on: kernel.h.
 * Relied on by: generated code.
 *
 * y = e^(x - max x) / Σ e^(x - max x);  dx = y·(g - Σ g·y). Both may write over an operand: a row is read whole first.
 */
#include "kernel.h"

static real row_max(const sc_tensor *x, int64_t at, int64_t cols) {
    real buffer[SC_CHUNK], most = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        real m = sc_chunk_max(sc_in(x, at + c, n, buffer), n);
        most = c == 0 || (!(m <= most) && most == most) ? m : most;
    }
    return most;
}

SC_KERNEL(softmax) {
    const sc_tensor *y = &k->y, *x = &k->x;
    int64_t cols = sc_cols(x);
    real bx[SC_CHUNK], by[SC_CHUNK];
    sc_range mine = sc_share(task, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t from = sc_row(x, row), to = sc_row(y, row);
        real most = row_max(x, from, cols);
        double sum = 0;
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, cols - c);
            sum += sc_chunk_exp(by, sc_in(x, from + c, n, bx), most, n);
        }
        real scale = (real)(1 / sum);
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, cols - c);
            const real *v = sc_in(x, from + c, n, bx);
            real *out = sc_out(y, to + c, by);
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] = sc_exp(v[i] - most) * scale;
            sc_put(y, to + c, n, out);
        }
    }
}

SC_KERNEL(softmax_grad) {
    const sc_tensor *dx = &k->dx, *g = &k->g, *y = &k->y;
    int64_t cols = sc_cols(y);
    real bg[SC_CHUNK], by[SC_CHUNK], bd[SC_CHUNK];
    sc_range mine = sc_share(task, sc_rows(y), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t gat = sc_row(g, row), yat = sc_row(y, row), to = sc_row(dx, row);
        double dot = 0;
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, cols - c);
            dot += sc_chunk_dot(sc_in(g, gat + c, n, bg), sc_in(y, yat + c, n, by), n);
        }
        real d = (real)dot;
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, cols - c);
            const real *v = sc_in(g, gat + c, n, bg), *p = sc_in(y, yat + c, n, by);
            real *out = sc_out(dx, to + c, bd);
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] = p[i] * (v[i] - d);
            sc_put(dx, to + c, n, out);
        }
    }
}
