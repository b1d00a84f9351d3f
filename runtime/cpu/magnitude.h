/* Largest magnitudes, in which a NaN wins, and what they become in another dtype.
 * Relies on: kernel.h.
 * Relied on by: k_amax.c, k_optimizer.c, k_quantize.c, k_quantize_shard.c. */
#ifndef SC_CPU_MAGNITUDE_H
#define SC_CPU_MAGNITUDE_H

#include "kernel.h"
#include <stdatomic.h>

static inline float sc_larger(float most, real x) {
    float here = (float)sc_abs(x);
    return most >= here || most != most ? most : here;
}

/* Of `most` and elements [at, at + n) of x. */
static inline float sc_largest(float most, const sc_tensor *x, int64_t at, int64_t n) {
    real buffer[SC_CHUNK];
    for (int64_t i = 0; i < n; i += SC_CHUNK) {
        int64_t m = sc_min(SC_CHUNK, n - i);
        sc_load(buffer, x, at + i, 1, m);
        SC_ELEMENTWISE
        for (int64_t k = 0; k < m; k++) buffer[k] = sc_abs(buffer[k]);
        most = sc_larger(most, sc_chunk_max(buffer, m));
    }
    return most;
}

/* Raises a magnitude, from any part at any time: bits of magnitudes are ordered as they are, NaN last. */
static inline void sc_raise(float *to, float most) {
    union {
        float f;
        uint32_t w;
    } now = {.f = most};
    _Atomic uint32_t *seen = (_Atomic uint32_t *)to;
    uint32_t old = atomic_load(seen);
    while (now.w > old && !atomic_compare_exchange_weak(seen, &old, now.w)) continue;
}

/* x as the dtype has it. */
static inline float sc_as(float x, sc_dtype d) {
    sc_tensor one = {.p = &(uint64_t){0}, .dtype = d, .dims = 1, .shape = {1}, .stride = {1}};
    sc_set(&one, 0, (double)x);
    return (float)sc_get(&one, 0);
}

#endif
