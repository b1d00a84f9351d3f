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

SC_KERNEL(cross_entropy) {
    const sc_tensor *x = &k->logits;
    int64_t cols = sc_cols(x);
    sc_range mine = sc_share(task, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++)
        sc_set(&k->lse, row, sc_index(&k->targets, row) == k->ignore ? 0 : row_lse(x, sc_row(x, row), cols));
}

/* Rounded, as where it is stored. */
static real row_loss(const sc_tensor *x, int64_t row, int64_t target, double lse) {
    bool inside = target >= 0 && target < sc_cols(x);
    return inside ? (real)(lse - sc_get(x, sc_row(x, row) + target)) : (real)NAN;
}

SC_FINISH(cross_entropy) {
    int64_t rows = sc_rows(&k->logits);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t c = sc_index(&k->targets, row);
        if (c == k->ignore) continue;
        sum += row_loss(&k->logits, row, c, sc_get(&k->lse, row));
    }
    sc_set(&k->loss, 0, sum / (double)task->record->count[k->count]);
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

SC_KERNEL(cross_entropy_grad) {
    real scale = (real)(sc_get(&k->g, 0) / (double)task->record->count[k->count]);
    sc_range mine = sc_share(task, sc_rows(&k->logits), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(&k->targets, row);
        if (c == k->ignore)
            zero_row(&k->dlogits, row);
        else
            grad_row(&k->dlogits, &k->logits, row, c, (real)sc_get(&k->lse, row), scale);
    }
}

/* dlogits may be where the logits are: a row's loss is taken before its gradient. */
SC_KERNEL(cross_entropy_grads) {
    const sc_tensor *x = &k->logits;
    real scale = (real)(sc_get(&k->g, 0) / (double)task->record->count[k->count]);
    sc_range mine = sc_share(task, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(&k->targets, row);
        if (c == k->ignore) {
            sc_set(&k->losses, row, 0);
            zero_row(&k->dlogits, row);
            continue;
        }
        real lse = (real)row_lse(x, sc_row(x, row), sc_cols(x));
        sc_set(&k->losses, row, row_loss(x, row, c, lse));
        grad_row(&k->dlogits, x, row, c, lse, scale);
    }
}

SC_FINISH(cross_entropy_grads) {
    int64_t rows = sc_numel(&k->losses);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) sum += sc_get(&k->losses, row);
    sc_set(&k->loss, 0, sum / (double)task->record->count[k->count]);
}

sc_kernel *sc_kernel_finish(sc_kernel *k) {
    if (k == sc_k_cross_entropy_grads) return sc_finish_cross_entropy_grads;
    if (k == sc_k_layer_norm_grads) return sc_finish_layer_norm_grads;
    if (k == sc_k_rms_norm_grads) return sc_finish_rms_norm_grads;
    return k == sc_k_cross_entropy ? sc_finish_cross_entropy : NULL;
}
