/* layer_norm and rms_norm over the last dimension (D), with their gradients.
 * Relies on: kernel.h, k_reduce.c.
 * Relied on by: generated code.
 *
 * layer_norm: mean = Σx/D, rstd = 1/√(Σ(x-mean)²/D + eps), x̂ = (x-mean)·rstd, y = x̂·w + b.
 * rms_norm:   rstd = 1/√(Σx²/D + eps), x̂ = x·rstd, y = x̂·w.
 * Gradients, h = g·w:  layer_norm: dx = rstd·(h - Σh/D - x̂·Σ(h·x̂)/D);  rms_norm: the same without the middle term.
 * Weights: dw = Σ_rows g·x̂, db = Σ_rows g: every part sums its own columns over all rows, in blocks of 64. The kernels
 * of both (.._grads) add c to dx before it is rounded; once dx is whole, their finish sums its columns as sum does. */
#include "kernel.h"

/* w[0..n) as reals; NULL stands for ones. */
static const real *weight(const sc_tensor *w, int64_t at, int64_t n, real *buffer) {
    return w ? sc_in(w, at, n, buffer) : NULL;
}

static void normalise(const sc_tensor *y, const sc_tensor *x, const sc_tensor *w, const sc_tensor *b, int64_t row,
                      real mean, real rstd) {
    int64_t cols = sc_cols(x), from = sc_row(x, row), to = sc_row(y, row);
    real bx[SC_CHUNK], bw[SC_CHUNK], bb[SC_CHUNK], by[SC_CHUNK];
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = sc_in(x, from + c, n, bx), *scale = weight(w, c, n, bw), *bias = weight(b, c, n, bb);
        real *out = sc_out(y, to + c, by);
        if (scale && bias) {
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] = (v[i] - mean) * rstd * scale[i] + bias[i];
        } else if (scale) {
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] = (v[i] - mean) * rstd * scale[i];
        } else {
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] = (v[i] - mean) * rstd + (bias ? bias[i] : 0);
        }
        sc_put(y, to + c, n, out);
    }
}

static double row_sum(const sc_tensor *x, int64_t row) {
    int64_t cols = sc_cols(x), from = sc_row(x, row);
    real buffer[SC_CHUNK];
    double s = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        s += sc_chunk_sum(sc_in(x, from + c, n, buffer), n);
    }
    return s;
}
static double row_deviation(const sc_tensor *x, int64_t row, real mean) {
    int64_t cols = sc_cols(x), from = sc_row(x, row);
    real buffer[SC_CHUNK];
    double s = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        s += sc_chunk_deviation(sc_in(x, from + c, n, buffer), mean, n);
    }
    return s;
}

void sc_k_layer_norm(const sc_task *k) {
    const sc_tensor *y = &k->t[0], *means = &k->t[1], *rstds = &k->t[2], *x = &k->t[3];
    const sc_tensor *w = k->i[0] ? &k->t[4] : NULL, *b = k->i[1] ? &k->t[4 + (w != NULL)] : NULL;
    double cols = (double)sc_cols(x);
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        real mean = (real)(row_sum(x, row) / cols);
        real rstd = (real)(1 / sqrt(row_deviation(x, row, mean) / cols + k->f[0]));
        sc_set(means, row, mean);
        sc_set(rstds, row, rstd);
        normalise(y, x, w, b, row, mean, rstd);
    }
}

void sc_k_rms_norm(const sc_task *k) {
    const sc_tensor *y = &k->t[0], *rstds = &k->t[1], *x = &k->t[2], *w = k->nt > 3 ? &k->t[3] : NULL;
    double cols = (double)sc_cols(x);
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        real rstd = (real)(1 / sqrt(row_deviation(x, row, 0) / cols + k->f[0]));
        sc_set(rstds, row, rstd);
        normalise(y, x, w, NULL, row, 0, rstd);
    }
}

/* h = g·w of one chunk. */
static const real *weighted(const sc_tensor *g, int64_t at, const sc_tensor *w, int64_t c, int64_t n, real *buffer) {
    real bw[SC_CHUNK];
    const real *v = sc_in(g, at, n, buffer), *scale = weight(w, c, n, bw);
    if (!scale) return v;
    SC_ELEMENTWISE
    for (int64_t i = 0; i < n; i++) buffer[i] = v[i] * scale[i];
    return buffer;
}

static void norm_grad_row(const sc_tensor *dx, const sc_tensor *g, const sc_tensor *x, const sc_tensor *w,
                          const sc_tensor *add, int64_t row, real mean, real rstd, int centred) {
    int64_t cols = sc_cols(x), gat = sc_row(g, row), xat = sc_row(x, row), to = sc_row(dx, row);
    real bg[SC_CHUNK], bx[SC_CHUNK], bd[SC_CHUNK], ba[SC_CHUNK];
    double sum = 0, dot = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *h = weighted(g, gat + c, w, c, n, bg), *v = sc_in(x, xat + c, n, bx);
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) bd[i] = (v[i] - mean) * rstd;
        if (centred) sum += sc_chunk_sum(h, n);
        dot += sc_chunk_dot(h, bd, n);
    }
    real a = (real)(sum / (double)cols), b = (real)(dot / (double)cols);
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *h = weighted(g, gat + c, w, c, n, bg), *v = sc_in(x, xat + c, n, bx);
        real *out = sc_out(dx, to + c, bd);
        if (add) { /* may be where dx goes */
            const real *more = sc_in(add, sc_row(add, row) + c, n, ba);
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] = (h[i] - a - (v[i] - mean) * rstd * b) * rstd + more[i];
        } else {
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] = (h[i] - a - (v[i] - mean) * rstd * b) * rstd;
        }
        sc_put(dx, to + c, n, out);
    }
}

void sc_k_layer_norm_grad(const sc_task *k) {
    const sc_tensor *dx = &k->t[0], *g = &k->t[1], *x = &k->t[2], *mean = &k->t[3], *rstd = &k->t[4];
    const sc_tensor *w = k->nt > 5 ? &k->t[5] : NULL;
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        norm_grad_row(dx, g, x, w, NULL, row, (real)sc_get(mean, row), (real)sc_get(rstd, row), 1);
}

void sc_k_rms_norm_grad(const sc_task *k) {
    const sc_tensor *dx = &k->t[0], *g = &k->t[1], *x = &k->t[2], *rstd = &k->t[3], *w = k->nt > 4 ? &k->t[4] : NULL;
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        norm_grad_row(dx, g, x, w, NULL, row, 0, (real)sc_get(rstd, row), 0);
}

enum { NARROW = 128, BLOCK = 64 };

/* Columns c .. c+n of dw and, unless NULL, db. */
static void norm_grad_columns(const sc_tensor *dw, const sc_tensor *db, const sc_tensor *g, const sc_tensor *x,
                              const sc_tensor *means, const sc_tensor *rstds, int64_t c, int64_t n) {
    double total_w[NARROW] = {0}, total_b[NARROW] = {0};
    real block_w[NARROW], block_b[NARROW], bg[NARROW], bx[NARROW];
    int64_t rows = sc_rows(x);
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t end = sc_min(rows, first + BLOCK);
        for (int64_t i = 0; i < n; i++) block_w[i] = block_b[i] = 0;
        for (int64_t row = first; row < end; row++) {
            real mean = means ? (real)sc_get(means, row) : 0, rstd = (real)sc_get(rstds, row);
            const real *dy = sc_in(g, sc_row(g, row) + c, n, bg), *v = sc_in(x, sc_row(x, row) + c, n, bx);
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) {
                block_w[i] += dy[i] * ((v[i] - mean) * rstd);
                block_b[i] += dy[i];
            }
        }
        for (int64_t i = 0; i < n; i++) {
            total_w[i] += block_w[i];
            total_b[i] += block_b[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        block_w[i] = (real)total_w[i];
        block_b[i] = (real)total_b[i];
    }
    sc_store(dw, c, 1, n, block_w);
    if (db) sc_store(db, c, 1, n, block_b);
}

static void norm_grad_w(const sc_task *k, const sc_tensor *dw, const sc_tensor *db, const sc_tensor *g,
                        const sc_tensor *x, const sc_tensor *means, const sc_tensor *rstds) {
    int64_t cols = sc_cols(x), grain = sc_min(NARROW, sc_ceil(sc_ceil(cols, 8), 16) * 16);
    sc_range mine = sc_share(k, cols, grain);
    for (int64_t c = mine.begin; c < mine.end; c += grain)
        norm_grad_columns(dw, db, g, x, means, rstds, c, sc_min(grain, mine.end - c));
}

void sc_k_layer_norm_grad_w(const sc_task *k) {
    norm_grad_w(k, &k->t[0], &k->t[1], &k->t[2], &k->t[3], &k->t[4], &k->t[5]);
}
void sc_k_rms_norm_grad_w(const sc_task *k) {
    norm_grad_w(k, &k->t[0], NULL, &k->t[1], &k->t[2], NULL, &k->t[3]);
}

/* A part's rows of dx, then its columns of dw and db; dx may take c's bytes, never those of g or x. */
static void norm_grads(const sc_task *k, int centred) {
    const sc_tensor *dx = &k->t[0], *t = &k->t[2 + centred + (k->i[3] != 0)], *g = t, *x = t + 1;
    const sc_tensor *mean = centred ? t + 2 : NULL, *rstd = t + 2 + centred, *w = k->i[1] ? rstd + 1 : NULL;
    const sc_tensor *c = k->i[2] ? rstd + 1 + (w != NULL) : NULL;
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        norm_grad_row(dx, g, x, w, c, row, mean ? (real)sc_get(mean, row) : 0, (real)sc_get(rstd, row), centred);
    norm_grad_w(k, &k->t[1], centred ? &k->t[2] : NULL, g, x, mean, rstd);
}

void sc_k_layer_norm_grads(const sc_task *k) {
    norm_grads(k, 1);
}
void sc_k_rms_norm_grads(const sc_task *k) {
    norm_grads(k, 0);
}

static void sum_columns(const sc_task *k, const sc_tensor *ds) {
    const sc_tensor *dx = &k->t[0];
    if (!k->i[3]) return;
    sc_task sum = {.nt = 2, .t = {*ds, *dx}, .i = {(1 << (dx->dims - 1)) - 1}, .part = k->part, .parts = k->parts};
    sc_k_sum(&sum);
}
void sc_layer_norm_grads_finish(const sc_task *k) {
    sum_columns(k, &k->t[3]);
}
void sc_rms_norm_grads_finish(const sc_task *k) {
    sum_columns(k, &k->t[2]);
}
