/* layer_norm and rms_norm over the last dimension (D), with their gradients; norm_statistics: without their results.
 * Relies on: normed.h, k_reduce.c.
 * Relied on by: generated code.
 *
 * layer_norm: mean = Σx/D, rstd = 1/√(Σ(x-mean)²/D + eps), x̂ = (x-mean)·rstd, y = x̂·w + b.
 * rms_norm:   rstd = 1/√(Σx²/D + eps), x̂ = x·rstd, y = x̂·w.
 * Gradients, h = g·w:  layer_norm: dx = rstd·(h - Σh/D - x̂·Σ(h·x̂)/D);  rms_norm: the same without the middle term.
 * Weights: dw = Σ_rows g·x̂, db = Σ_rows g: every part sums its own columns over all rows, in blocks of 64. The kernels
 * of both (.._grads) add c to dx before it is rounded; once dx is whole, their finish sums its columns as sum does. */
#include "normed.h"

/* w[0..n) as reals; NULL stands for ones. */
static const real *weight(const sc_tensor *w, int64_t at, int64_t n, real *buffer) {
    return w ? sc_in(w, at, n, buffer) : NULL;
}

typedef struct {
    real mean, rstd; /* mean: 0 of rms_norm */
} statistics;

static void normalise(const sc_tensor *y, const sc_tensor *x, const sc_tensor *w, const sc_tensor *b, int64_t row,
                      statistics of) {
    int64_t cols = sc_cols(x), from = sc_row(x, row), to = sc_row(y, row);
    real bx[SC_CHUNK], bw[SC_CHUNK], bb[SC_CHUNK], by[SC_CHUNK];
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = sc_in(x, from + c, n, bx), *scale = weight(w, c, n, bw), *bias = weight(b, c, n, bb);
        real *out = sc_out(y, to + c, by);
        sc_normalise(out, v, n, of.mean, of.rstd, scale, bias);
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

/* mean: NULL: of rms_norm. */
static statistics find_statistics(const sc_tensor *x, const sc_tensor *mean, const sc_tensor *rstd, double eps,
                                  int64_t row) {
    double cols = (double)sc_cols(x);
    real m = mean ? (real)(row_sum(x, row) / cols) : 0, r = (real)(1 / sqrt(row_deviation(x, row, m) / cols + eps));
    if (mean) sc_set(mean, row, m);
    sc_set(rstd, row, r);
    return (statistics){m, r};
}

SC_KERNEL(norm_statistics) {
    sc_range mine = sc_share(task, sc_rows(&k->x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        find_statistics(&k->x, sc_given(&k->mean), &k->rstd, k->eps, row);
}

SC_KERNEL(layer_norm) {
    sc_range mine = sc_share(task, sc_rows(&k->x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        normalise(&k->y, &k->x, sc_given(&k->w), sc_given(&k->b), row,
                  find_statistics(&k->x, &k->mean, &k->rstd, k->eps, row));
}

void sc_rms_norm_row(const sc_tensor *y, const sc_tensor *rstd, const sc_tensor *x, const sc_tensor *w, double eps,
                     int64_t row) {
    normalise(y, x, w, NULL, row, find_statistics(x, NULL, rstd, eps, row));
}

SC_KERNEL(rms_norm) {
    sc_range mine = sc_share(task, sc_rows(&k->x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        sc_rms_norm_row(&k->y, &k->rstd, &k->x, sc_given(&k->w), k->eps, row);
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

/* What the gradients of both norms read; NULL: absent, or not this norm's. */
typedef struct {
    const sc_tensor *g, *x, *mean, *rstd, *w, *add;
} operands;

static void norm_grad_row(const sc_tensor *dx, const operands *o, int64_t row) {
    const sc_tensor *g = o->g, *x = o->x, *w = o->w, *add = o->add;
    real mean = o->mean ? (real)sc_get(o->mean, row) : 0, rstd = (real)sc_get(o->rstd, row);
    bool centred = o->mean != NULL;
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

static void norm_grad(const sc_task *task, const sc_tensor *dx, const operands *o) {
    sc_range mine = sc_share(task, sc_rows(o->x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) norm_grad_row(dx, o, row);
}

SC_KERNEL(layer_norm_grad) {
    norm_grad(task, &k->dx,
              &(operands){.g = &k->g, .x = &k->x, .mean = &k->mean, .rstd = &k->rstd, .w = sc_given(&k->w)});
}
SC_KERNEL(rms_norm_grad) {
    norm_grad(task, &k->dx, &(operands){.g = &k->g, .x = &k->x, .rstd = &k->rstd, .w = sc_given(&k->w)});
}

enum { NARROW = 128, BLOCK = 64 };

/* Columns c .. c+n of dw and, unless NULL, db. */
static void norm_grad_columns(const sc_tensor *dw, const sc_tensor *db, const operands *o, int64_t c, int64_t n) {
    const sc_tensor *g = o->g, *x = o->x;
    double total_w[NARROW] = {0}, total_b[NARROW] = {0};
    real block_w[NARROW], block_b[NARROW], bg[NARROW], bx[NARROW];
    int64_t rows = sc_rows(x);
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t end = sc_min(rows, first + BLOCK);
        for (int64_t i = 0; i < n; i++) block_w[i] = block_b[i] = 0;
        for (int64_t row = first; row < end; row++) {
            real mean = o->mean ? (real)sc_get(o->mean, row) : 0, rstd = (real)sc_get(o->rstd, row);
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

static void norm_grad_w(const sc_task *task, const sc_tensor *dw, const sc_tensor *db, const operands *o) {
    int64_t cols = sc_cols(o->x), grain = sc_min(NARROW, sc_ceil(sc_ceil(cols, 8), 16) * 16);
    sc_range mine = sc_share(task, cols, grain);
    for (int64_t c = mine.begin; c < mine.end; c += grain) norm_grad_columns(dw, db, o, c, sc_min(grain, mine.end - c));
}

SC_KERNEL(layer_norm_grad_w) {
    norm_grad_w(task, &k->dw, &k->db, &(operands){.g = &k->g, .x = &k->x, .mean = &k->mean, .rstd = &k->rstd});
}
SC_KERNEL(rms_norm_grad_w) {
    norm_grad_w(task, &k->dw, NULL, &(operands){.g = &k->g, .x = &k->x, .rstd = &k->rstd});
}

/* A part's rows of dx, then its columns of dw and db; dx may take c's bytes, never those of g or x. */
SC_KERNEL(layer_norm_grads) {
    operands o = {&k->g, &k->x, &k->mean, &k->rstd, sc_given(&k->w), sc_given(&k->c)};
    norm_grad(task, &k->dx, &o);
    norm_grad_w(task, &k->dw, &k->db, &o);
}
SC_KERNEL(rms_norm_grads) {
    operands o = {&k->g, &k->x, NULL, &k->rstd, sc_given(&k->w), sc_given(&k->c)};
    norm_grad(task, &k->dx, &o);
    norm_grad_w(task, &k->dw, NULL, &o);
}

static void sum_columns(const sc_task *task, const sc_tensor *ds, const sc_tensor *dx) {
    sc_sum_args args = {.y = *ds, .x = *dx, .over = (1 << (dx->dims - 1)) - 1};
    sc_task sum = *task;
    if (!ds->p) return;
    sum.args = (const sc_args *)&args;
    sum.slots = SC_SLOTS_sum;
    sc_k_sum(&sum);
}
SC_FINISH(layer_norm_grads) {
    sum_columns(task, &k->ds, &k->dx);
}
SC_FINISH(rms_norm_grads) {
    sum_columns(task, &k->ds, &k->dx);
}
