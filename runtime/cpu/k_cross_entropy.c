/* cross_entropy of logits [N,V] against targets [N], and its gradient.
 * Relies on: kernel.h, k_norm.c, k_matmul_quantize.c (their finishes).
 * Relied on by: generated code; the runtime, for the finish.
 *
 * Of a row, with d = x[target] - most, the largest logit: rest = Σ_{c ≠ target} e^(x[c] - most), all = rest + e^d;
 * loss = Σ_{target ≠ ignore} (log all - d) / count, count from the record: the step's global number of targets /
 * (world × accumulation), or `total`.  dx = (e^(x - most) / all) · g / count, at the target -(rest / all) · g / count;
 * 0 in ignored rows. most + log all is never made for these: it would be rounded to the ulp of `most`, and the loss and
 * 1 - p are as small as the model is good. Where the target's logit is the largest, log all = log1p(rest). Where each
 * row's loss is a result (`rows`), nothing is divided by count, and g is a number a row.
 *
 * With a softcap all x are c tanh(x / c), and dx has the factor 1 - (x / c)². Smoothing s adds s (x[target] - mean x)
 * to a row's loss, and s (1{target} - 1 / V) to dx; z adds z lse², lse = most + log all, and 2 z lse e^(x - lse).
 *
 * Parts write most and rest, row by row in one pass over the logits (Milakov and Gimelshein 2018: the sum is rescaled
 * when the maximum grows); the finish adds the rows' losses up in order. A target outside [0,V) makes the loss NaN. The
 * kernel of both (.._grads) does a row of one after the same row of the other. */
#include "kernel.h"

typedef struct {
    real most, rest; /* as they are stored */
    double sum;      /* of the logits, where the target's probability is smoothed */
} sums;

/* What the three ops share. */
typedef struct {
    const sc_tensor *x;
    double smoothing, z, count; /* count: the loss is divided by it */
    real cap;
} losses;
#define LOSSES(k, n)                                                                                                   \
    (losses) {                                                                                                         \
        &(k)->logits, (k)->smoothing, (k)->z_loss, n, (real)(k)->softcap                                               \
    }

static bool is_class(const sc_tensor *x, int64_t target) {
    return target >= 0 && target < sc_cols(x);
}

static real capped(const losses *l, real x) {
    return l->cap > 0 ? l->cap * sc_tanh(x / l->cap) : x;
}

static const real *capped_in(const losses *l, int64_t at, int64_t n, real *buffer) {
    const real *v = sc_in(l->x, at, n, buffer), cap = l->cap;
    if (!(cap > 0)) return v;
    SC_ELEMENTWISE
    for (int64_t i = 0; i < n; i++) buffer[i] = cap * sc_tanh(v[i] / cap);
    return buffer;
}

static double at_target(const losses *l, int64_t row, int64_t target) {
    return capped(l, (real)sc_get(l->x, sc_row(l->x, row) + target));
}

static sums row_sums(const losses *l, int64_t row, int64_t target) {
    int64_t cols = sc_cols(l->x), at = sc_row(l->x, row);
    real buffer[SC_CHUNK], power[SC_CHUNK], most = 0;
    double rest = 0, all = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = capped_in(l, at + c, n, buffer);
        real m = sc_chunk_max(v, n);
        if (l->smoothing > 0) all += sc_chunk_sum(v, n);
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
    return (sums){most, (real)rest, all};
}

/* Rounded, as where it is stored. */
static real row_loss(const losses *l, int64_t row, int64_t target, sums s) {
    if (!is_class(l->x, target)) return (real)NAN;
    double x = at_target(l, row, target), d = x - (double)s.most, all = d == 0 ? log1p(s.rest) : log(s.rest + exp(d));
    double loss = all - d, lse = s.most + all;
    if (l->smoothing > 0) loss += l->smoothing * (x - s.sum / (double)sc_cols(l->x));
    if (l->z > 0) loss += l->z * lse * lse;
    return (real)loss;
}

SC_KERNEL(cross_entropy) {
    losses l = LOSSES(k, 1);
    sc_range mine = sc_share(task, sc_rows(l.x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(&k->targets, row);
        sums s = {0};
        if (c != k->ignore) s = row_sums(&l, row, c);
        sc_set(&k->most, row, s.most);
        sc_set(&k->rest, row, s.rest);
        if (!k->rows && !k->work.p) continue;
        real loss = c == k->ignore ? 0 : row_loss(&l, row, c, s);
        if (k->rows)
            sc_set(&k->loss, row, loss);
        else
            ((real *)k->work.p)[row] = loss;
    }
}

SC_FINISH(cross_entropy) {
    losses l = LOSSES(k, 1);
    int64_t rows = sc_rows(l.x);
    double sum = 0;
    if (k->rows) return;
    for (int64_t row = 0; row < rows; row++) {
        int64_t c = sc_index(&k->targets, row);
        if (c == k->ignore) continue;
        sums s = {(real)sc_get(&k->most, row), (real)sc_get(&k->rest, row), 0};
        sum += k->work.p ? ((real *)k->work.p)[row] : row_loss(&l, row, c, s);
    }
    sc_set(&k->loss, 0, sum / sc_count(task, &k->total, k->count));
}

static void grad_row(const losses *l, const sc_tensor *dx, int64_t row, int64_t target, sums s, double g) {
    int64_t cols = sc_cols(l->x), from = sc_row(l->x, row), to = sc_row(dx, row);
    double own = is_class(l->x, target) ? exp(at_target(l, row, target) - (double)s.most) : 0;
    double scale = (real)(g / l->count), all = s.rest + own;
    double turn = l->z > 0 ? 2 * l->z * ((double)s.most + log(all)) : 0;
    real bx[SC_CHUNK], bd[SC_CHUNK], each = (real)(scale / all), slope = (real)(each * (1 + turn));
    real flat = (real)(scale * l->smoothing / (double)cols), most = s.most, cap = l->cap, own_slope = -(s.rest * each);
    if (turn != 0 || flat != 0) own_slope = (real)(own_slope + turn * own * each + scale * l->smoothing - flat);
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        const real *v = capped_in(l, from + c, n, bx);
        real *out = sc_out(dx, to + c, bd);
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) out[i] = sc_exp(v[i] - most) * slope - flat;
        if (target >= c && target < c + n) out[target - c] = own_slope;
        if (cap > 0) {
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) out[i] *= 1 - v[i] / cap * (v[i] / cap);
        }
        sc_put(dx, to + c, n, out);
    }
}

static void zero_row(const sc_tensor *dx, int64_t row) {
    memset(sc_at(dx, sc_row(dx, row)), 0, (size_t)(sc_cols(dx) * sc_size(dx->dtype)));
}

SC_KERNEL(cross_entropy_grad) {
    losses l = LOSSES(k, k->rows ? 1 : sc_count(task, &k->total, k->count));
    sc_range mine = sc_share(task, sc_rows(l.x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(&k->targets, row);
        sums s = {(real)sc_get(&k->most, row), (real)sc_get(&k->rest, row), 0};
        if (c == k->ignore)
            zero_row(&k->dlogits, row);
        else
            grad_row(&l, &k->dlogits, row, c, s, sc_get(&k->g, k->rows ? row : 0));
    }
}

/* dlogits may be where the logits are: a row's loss is taken before its gradient. */
SC_KERNEL(cross_entropy_grads) {
    losses l = LOSSES(k, sc_count(task, &k->total, k->count));
    double g = sc_get(&k->g, 0);
    sc_range mine = sc_share(task, sc_rows(l.x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        int64_t c = sc_index(&k->targets, row);
        if (c == k->ignore) {
            sc_set(&k->losses, row, 0);
            zero_row(&k->dlogits, row);
            continue;
        }
        sums s = row_sums(&l, row, c);
        sc_set(&k->losses, row, row_loss(&l, row, c, s));
        grad_row(&l, &k->dlogits, row, c, s, g);
    }
}

SC_FINISH(cross_entropy_grads) {
    int64_t rows = sc_numel(&k->losses);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) sum += sc_get(&k->losses, row);
    sc_set(&k->loss, 0, sum / sc_count(task, &k->total, k->count));
}

sc_kernel *sc_kernel_finish(sc_kernel *k) {
    if (k == sc_k_cross_entropy_grads) return sc_finish_cross_entropy_grads;
    if (k == sc_k_distillation) return sc_finish_distillation;
    if (k == sc_k_layer_norm_grads) return sc_finish_layer_norm_grads;
    if (k == sc_k_matmul_quantize) return sc_finish_matmul_quantize;
    if (k == sc_k_rms_norm_grads) return sc_finish_rms_norm_grads;
    return k == sc_k_cross_entropy ? sc_finish_cross_entropy : NULL;
}
