/* rope: rotary position embedding (Su et al. 2021) in the layout of Hugging Face: pairs (d, d + D/2).
 * Relies on: kernel.h.
 * Relied on by: generated code.
 *
 * x [B,S,H,D], angle a = position · f_d, f_d = theta^(-2d/D), rounded to real as PyTorch does:
 * y[d] = x[d] cos a - x[d+D/2] sin a;  y[d+D/2] = x[d+D/2] cos a + x[d] sin a. The inverse (the gradient) negates sin.
 * Llama 3.1's scaling (factor ≠ 0): wavelengths 2π/f beyond original/low are stretched by factor, those within
 * original/high stay, between them f is blended. Of `heads` heads from the first on; the others stay (0:
 * of all). */
#include "kernel.h"

enum { HALF = 512 }; /* pairs at a time */

static real frequency(const sc_rope_args *k, int64_t d, int64_t head) {
    double f = (real)(1 / pow(k->theta, (real)(2 * d) / (real)head));
    if (k->factor == 0) return (real)f;
    double wave = 6.28318530717958647693 / f;
    if (wave < k->context / k->high) return (real)f;
    if (wave > k->context / k->low) return (real)(f / k->factor);
    double smooth = (k->context / wave - k->low) / (k->high - k->low);
    return (real)((1 - smooth) * f / k->factor + smooth * f);
}

/* Rotates n pairs of one head. Both halves are read before either is written. */
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

/* A head behind the last that turns: copied, unless it lies where it is to lie. */
static void keep(const sc_tensor *y, int64_t to, const sc_tensor *x, int64_t from, int64_t half, int64_t n) {
    int64_t size = sc_size(x->dtype);
    for (int64_t at = 0; at <= half && x->p != y->p; at += half)
        memcpy((char *)y->p + (to + at) * size, (const char *)x->p + (from + at) * size, (size_t)(n * size));
}

static void rotate_rows(const sc_rope_args *k, sc_range rows, int64_t d, int64_t n) {
    const sc_tensor *y = &k->y, *x = &k->x, *positions = sc_given(&k->positions);
    int64_t seq = x->shape[1], heads = x->shape[2], head = x->shape[3];
    real inverse[HALF], sine[HALF], cosine[HALF];
    double angle[HALF];
    for (int64_t i = 0; i < n; i++) inverse[i] = frequency(k, d + i, head);
    for (int64_t row = rows.begin; row < rows.end; row++) {
        int64_t b = row / seq, s = row % seq;
        real position =
            (real)(positions ? sc_index(positions, b * positions->stride[0] + s * positions->stride[1]) : s);
        for (int64_t i = 0; i < n; i++) angle[i] = position * inverse[i];
        sc_chunk_sincos(angle, sine, cosine, n);
        if (k->inverse)
            for (int64_t i = 0; i < n; i++) sine[i] = -sine[i];
        for (int64_t h = 0; h < heads; h++) {
            int64_t from = b * x->stride[0] + s * x->stride[1] + h * x->stride[2] + d;
            int64_t to = b * y->stride[0] + s * y->stride[1] + h * y->stride[2] + d;
            if (k->heads && h >= k->heads)
                keep(y, to, x, from, head / 2, n);
            else
                rotate(y, to, x, from, head / 2, n, sine, cosine);
        }
    }
}

SC_KERNEL(rope) {
    sc_range rows = sc_share(task, k->x.shape[0] * k->x.shape[1], 1);
    int64_t half = k->x.shape[3] / 2;
    for (int64_t d = 0; d < half; d += HALF) rotate_rows(k, rows, d, sc_min(HALF, half - d));
}
