/* cross_entropy of logits [N,V] against targets [N], and its gradient.
 * Relies on: kernel.h, k_norm.c (its finishes).
 * Relied on by: generated code; the runtime, for the finish.
 *
 * lse = log Σ e^x, loss = Σ_{target ≠ ignore} (lse - x[target]) / count, count from the record: the step's global
 * number of targets / (world × accumulation).  dx = (e^(x - lse) - [target]) · g / count, 0 in ignored rows. Parts
 * write lse, row by row in one pass over the logits (Milakov and Gimelshein 2018: the sum is rescaled when the maximum
 * grows); the finish adds the rows' losses up in order. A target outside [0,V) makes the loss NaN. The kernel of both
 * (.._grads) does a row of one after the same row of the other. */
#include "kernel.h"

static double row_lse(const sc_tensor *x, int64_t at, int64_t cols) {
    real buffer[SC_CHUNK], power[SC_CHUNK], most = 0;
    double sum = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = sc_in(x, at + c, n, buffer);
        real m = sc_chunk_max(v, n);
        if (c == 0) most = m;
        if (!(m <= most)) {
            sum *= exp((double)most - (double)m);
            most = m;
        }
        sum += sc_chunk_exp(power, v, most, n);
    }
    return (double)most + log(sum);
}

void sc_k_cross_entropy(const sc_task *k) {
    const sc_tensor *lse = &k->t[1], *x = &k->t[2], *target = &k->t[3];
    int64_t cols = sc_cols(x);
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        sc_set(lse, row, sc_index(target, row) == k->i[0] ? 0 : row_lse(x, sc_row(x, row), cols));
}

/* Rounded, as where it is stored. */
static real row_loss(const sc_tensor *x, int64_t row, int64_t target, double lse) {
    bool inside = target >= 0 && target < sc_cols(x);
    return inside ? (real)(lse - sc_get(x, sc_row(x, row) + target)) : (real)NAN;
}

static void cross_entropy_finish(const sc_task *k) {
    const sc_tensor *loss = &k->t[0], *lse = &k->t[1], *x = &k->t[2], *target = &k->t[3];
    int64_t rows = sc_rows(x);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t c = sc_index(target, row);
        if (c == k->i[0]) continue;
        sum += row_loss(x, row, c, sc_get(lse, row));
    }
    sc_set(loss, 0, sum / (double)k->record->count[k->i[1]]);
}

static void grad_row(const sc_tensor *dx, const sc_tensor *x, int64_t row, int64_t target, real lse, real scale) {
    int64_t cols = sc_cols(x), from = sc_row(x, row), to = sc_row(dx, row);
    real bx[SC_CHUNK], bd[SC_CHUNK];
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = sc_in(x, from + c, n, bx);
        real *out = sc_out(dx, to + c, bd), at_target = 0;
        if (target >= c && target < c + n) at_target = (sc_exp(v[target - c] - lse) - 1) * scale; /* v may be out */
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) out[i] = sc_exp(v[i] - lse) * scale;
        if (target >= c && target < c + n) out[target - c] = at_target;
        sc_put(dx, to + c, n, out);
    }
}

static void zero_row(const sc_tensor *dx, int64_t row) {
    memset(sc_at(dx, sc_row(dx, row)), 0, (size_t)(sc_cols(dx) * sc_size(dx->dtype)));
}

void sc_k_cross_entropy_grad(const sc_task *k) {
    const sc_tensor *dx = &k->t[0], *g = &k->t[1], *x = &k->t[2], *target = &k->t[3], *lse = &k->t[4];
    real scale = (real)(sc_get(g, 0) / (double)k->record->count[k->i[1]]);
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(target, row);
        if (c == k->i[0])
            zero_row(dx, row);
        else
            grad_row(dx, x, row, c, (real)sc_get(lse, row), scale);
    }
}

/* dx may be where the logits are: a row's loss is taken before its gradient. */
void sc_k_cross_entropy_grads(const sc_task *k) {
    const sc_tensor *dx = &k->t[0], *losses = &k->t[2], *g = &k->t[3], *x = &k->t[4], *target = &k->t[5];
    real scale = (real)(sc_get(g, 0) / (double)k->record->count[k->i[1]]);
    sc_range mine = sc_share(k, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(target, row);
        if (c == k->i[0]) {
            sc_set(losses, row, 0);
            zero_row(dx, row);
            continue;
        }
        real lse = (real)row_lse(x, sc_row(x, row), sc_cols(x));
        sc_set(losses, row, row_loss(x, row, c, lse));
        grad_row(dx, x, row, c, lse, scale);
    }
}

static void cross_entropy_grads_finish(const sc_task *k) {
    int64_t rows = sc_numel(&k->t[2]);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) sum += sc_get(&k->t[2], row);
    sc_set(&k->t[1], 0, sum / (double)k->record->count[k->i[1]]);
}

sc_kernel *sc_kernel_finish(sc_kernel *k) {
    if (k == sc_k_cross_entropy_grads) return cross_entropy_grads_finish;
    if (k == sc_k_layer_norm_grads) return sc_layer_norm_grads_finish;
    if (k == sc_k_rms_norm_grads) return sc_rms_norm_grads_finish;
    return k == sc_k_cross_entropy ? cross_entropy_finish : NULL;
}
