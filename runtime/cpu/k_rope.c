/* rope: rotary position embedding (Su et al. 2021) in the layout of Hugging Face: pairs (d, d + W/2) of the first W
 * elements of a head, or `interleaved` (2d, 2d + 1). The other elements stay. rms_norm_rope: of heads that rms_norm has
 * normalised.
 * Relies on: kernel.h, k_norm.c.
 * Relied on by: generated code.
 *
 * x [B,S,H,D], angle a = position · f_d, f_d = theta^(-2d/W), rounded to real as PyTorch does:
 * y[d] = x[d] cos a - x[d+W/2] sin a;  y[d+W/2] = x[d+W/2] cos a + x[d] sin a. The inverse (the gradient) negates sin.
 * Llama 3.1's scaling (factor ≠ 0): wavelengths 2π/f beyond original/low are stretched by factor, those within
 * original/high stay, between them f is blended. A list of frequencies replaces all this; where it has two numbers a
 * pair, the second half says by which of positions [n,B,S] a pair turns. Cosines and sines are multiplied by scale (0:
 * by 1). Of `heads` heads from the first on; the others stay (0: of all). */
#include "kernel.h"

enum { HALF = 512 }; /* pairs at a time */

static real frequency(const sc_rope_args *k, int64_t d, int64_t width) {
    if (k->frequencies.n) return k->frequencies.at[d];
    double f = (real)(1 / pow(k->theta, (real)(2 * d) / (real)width));
    if (k->factor == 0) return (real)f;
    double wave = 6.28318530717958647693 / f;
    if (wave < k->context / k->high) return (real)f;
    if (wave > k->context / k->low) return (real)(f / k->factor);
    double smooth = (k->context / wave - k->low) / (k->high - k->low);
    return (real)((1 - smooth) * f / k->factor + smooth * f);
}

/* Rotates n pairs of one head. Both elements are read before either is written. */
static void rotate(const sc_tensor *y, int64_t to, const sc_tensor *x, int64_t from, int64_t half, int64_t n,
                   const real *sine, const real *cosine) {
    real b0[HALF], b1[HALF], c0[HALF], c1[HALF];
    const real *x0 = sc_in(x, from, n, b0), *x1 = sc_in(x, from + half, n, b1);
    real *y0 = sc_out(y, to, c0), *y1 = sc_out(y, to + half, c1);
    SC_ELEMENTWISE
    for (int64_t i = 0; i < n; i++) {
        real u = x0[i], v = x1[i];
        y0[i] = u * cosine[i] - v * sine[i];
        y1[i] = v * cosine[i] + u * sine[i];
    }
    sc_put(y, to, n, y0);
    sc_put(y, to + half, n, y1);
}

static void rotate_interleaved(const sc_tensor *y, int64_t to, const sc_tensor *x, int64_t from, int64_t n,
                               const real *sine, const real *cosine) {
    real b[2 * HALF], c[2 * HALF];
    const real *a = sc_in(x, from, 2 * n, b);
    real *o = sc_out(y, to, c);
    SC_ELEMENTWISE
    for (int64_t i = 0; i < n; i++) {
        real u = a[2 * i], v = a[2 * i + 1];
        o[2 * i] = u * cosine[i] - v * sine[i];
        o[2 * i + 1] = v * cosine[i] + u * sine[i];
    }
    sc_put(y, to, 2 * n, o);
}

/* n elements that do not turn: copied, unless they lie where they are to lie. */
static void keep(const sc_tensor *y, int64_t to, const sc_tensor *x, int64_t from, int64_t n) {
    if (x->p != y->p) memcpy(sc_at(y, to), sc_at(x, from), (size_t)(n * sc_size(x->dtype)));
}

static void rotate_rows(const sc_rope_args *k, sc_range rows, int64_t width, int64_t d, int64_t n) {
    const sc_tensor *y = &k->y, *x = &k->x, *positions = sc_given(&k->positions);
    int64_t seq = x->shape[1], heads = x->shape[2], head = x->shape[3], half = width / 2;
    int64_t turned = k->heads ? k->heads : heads, first = k->interleaved ? 2 * d : d;
    const float *axis = k->frequencies.n > half ? k->frequencies.at + half + d : NULL;
    const int64_t *stride = positions ? positions->stride + (axis != NULL) : NULL; /* of batch and sequence */
    real inverse[HALF], sine[HALF], cosine[HALF];
    double angle[HALF];
    for (int64_t i = 0; i < n; i++) inverse[i] = frequency(k, d + i, width);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        int64_t b = row / seq, s = row % seq, at = positions ? b * stride[0] + s * stride[1] : 0;
        real position = (real)(positions ? sc_index(positions, at) : s);
        for (int64_t i = 0; i < n; i++) {
            if (axis) position = (real)sc_index(positions, at + (int64_t)axis[i] * positions->stride[0]);
            angle[i] = position * inverse[i];
        }
        sc_chunk_sincos(angle, sine, cosine, n);
        real scale = k->scale != 0 ? (real)k->scale : 1, sign = k->inverse ? -1 : 1;
        for (int64_t i = 0; i < n; i++) sine[i] *= sign * scale, cosine[i] *= scale;
        for (int64_t h = 0; h < heads; h++) {
            int64_t from = b * x->stride[0] + s * x->stride[1] + h * x->stride[2];
            int64_t to = b * y->stride[0] + s * y->stride[1] + h * y->stride[2];
            int64_t stays = h < turned ? width : 0;
            if (d == 0 && stays < head) keep(y, to + stays, x, from + stays, head - stays);
            if (h >= turned) continue;
            if (k->interleaved)
                rotate_interleaved(y, to + first, x, from + first, n, sine, cosine);
            else
                rotate(y, to + first, x, from + first, half, n, sine, cosine);
        }
    }
}

static void rope(const sc_rope_args *k, sc_range rows) {
    int64_t width = k->width ? k->width : k->x.shape[3], half = width / 2;
    for (int64_t d = 0; d < half; d += HALF) rotate_rows(k, rows, width, d, sc_min(HALF, half - d));
}

SC_KERNEL(rope) {
    rope(k, sc_share(task, k->x.shape[0] * k->x.shape[1], 1));
}

/* A few places at a time: their heads are normalised, then turned where they lie. */
SC_KERNEL(rms_norm_rope) {
    enum { PLACES = 16 };
    sc_range mine = sc_share(task, k->x.shape[0] * k->x.shape[1], 1);
    int64_t heads = k->x.shape[2];
    sc_rope_args turn = {.y = k->y,
                         .x = k->y,
                         .positions = k->positions,
                         .width = k->width,
                         .interleaved = k->interleaved,
                         .frequencies = k->frequencies,
                         .theta = k->theta,
                         .factor = k->factor,
                         .low = k->low,
                         .high = k->high,
                         .context = k->context,
                         .scale = k->scale};
    for (int64_t at = mine.begin; at < mine.end; at += PLACES) {
        sc_range places = {at, sc_min(at + PLACES, mine.end)};
        for (int64_t row = places.begin * heads; row < places.end * heads; row++)
            sc_rms_norm_row(&k->y, &k->rstd, &k->x, sc_given(&k->w), k->eps, row);
        rope(&turn, places);
    }
}
