/* cross_entropy of logits [N,V] against targets [N], and its gradient.
 * Relies on: kernel.h, k_norm.c (its finishes).
 * Relied on by: generated code; the runtime, for the finish.
 *
 * Of a row, with d = x[target] - most, the largest logit: rest = Σ_{c ≠ target} e^(x[c] - most), all = rest + e^d;
 * loss = Σ_{target ≠ ignore} (log all - d) / count, count from the record: the step's global number of targets /
 * (world × accumulation).  dx = (e^(x - most) / all) · g / count, at the target -(rest / all) · g / count; 0 in ignored
 * rows. most + log all is never made: it would be rounded to the ulp of `most`, and the loss and 1 - p are as small as
 * the model is good. Where the target's logit is the largest, log all = log1p(rest).
 *
 * Parts write most and rest, row by row in one pass over the logits (Milakov and Gimelshein 2018: the sum is rescaled
 * when the maximum grows); the finish adds the rows' losses up in order. A target outside [0,V) makes the loss NaN. The
 * kernel of both (.._grads) does a row of one after the same row of the other. */
#include "kernel.h"

typedef struct {
    real most, rest; /* as they are stored */
} sums;

static bool is_class(const sc_tensor *x, int64_t target) {
    return target >= 0 && target < sc_cols(x);
}

static sums row_sums(const sc_tensor *x, int64_t row, int64_t target) {
    int64_t cols = sc_cols(x), at = sc_row(x, row);
    real buffer[SC_CHUNK], power[SC_CHUNK], most = 0;
    double rest = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = sc_in(x, at + c, n, buffer);
        real m = sc_chunk_max(v, n);
        if (c == 0) most = m;
        if (!(m <= most)) {
            rest *= most == -(real)INFINITY ? 0 : exp((double)most - (double)m);
            most = m;
        }
        if (most == -(real)INFINITY) continue; /* adds nothing */
        double sum = sc_chunk_exp(power, v, most, n);
        if (target >= c && target < c + n) {
            power[target - c] = 0;
            sum = sc_chunk_sum(power, n);
        }
        rest += sum;
    }
    return (sums){most, (real)rest};
}

/* Rounded, as where it is stored. */
static real row_loss(const sc_tensor *x, int64_t row, int64_t target, sums s) {
    if (!is_class(x, target)) return (real)NAN;
    double d = sc_get(x, sc_row(x, row) + target) - (double)s.most;
    return (real)(d == 0 ? log1p(s.rest) : log(s.rest + exp(d)) - d);
}

SC_KERNEL(cross_entropy) {
    const sc_tensor *x = &k->logits;
    sc_range mine = sc_share(task, sc_rows(x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(&k->targets, row);
        sums s = {0};
        if (c != k->ignore) s = row_sums(x, row, c);
        sc_set(&k->most, row, s.most);
        sc_set(&k->rest, row, s.rest);
    }
}

SC_FINISH(cross_entropy) {
    int64_t rows = sc_rows(&k->logits);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t c = sc_index(&k->targets, row);
        if (c == k->ignore) continue;
        sums s = {(real)sc_get(&k->most, row), (real)sc_get(&k->rest, row)};
        sum += row_loss(&k->logits, row, c, s);
    }
    sc_set(&k->loss, 0, sum / (double)task->record->count[k->count]);
}

static void grad_row(const sc_tensor *dx, const sc_tensor *x, int64_t row, int64_t target, sums s, real scale) {
    int64_t cols = sc_cols(x), from = sc_row(x, row), to = sc_row(dx, row);
    double own = is_class(x, target) ? exp(sc_get(x, from + target) - (double)s.most) : 0;
    real bx[SC_CHUNK], bd[SC_CHUNK], each = (real)(scale / (s.rest + own));
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = sc_in(x, from + c, n, bx);
        real *out = sc_out(dx, to + c, bd);
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) out[i] = sc_exp(v[i] - s.most) * each;
        if (target >= c && target < c + n) out[target - c] = -(s.rest * each);
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
        sums s = {(real)sc_get(&k->most, row), (real)sc_get(&k->rest, row)};
        if (c == k->ignore)
            zero_row(&k->dlogits, row);
        else
            grad_row(&k->dlogits, &k->logits, row, c, s, scale);
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
        sums s = row_sums(x, row, c);
        sc_set(&k->losses, row, row_loss(x, row, c, s));
        grad_row(&k->dlogits, x, row, c, s, scale);
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
