/* Random words by counter, and dropout: y = x · mask / (1 - p), the mask drawn from (seed, key), step, sample, element.
 * Relies on: schema/philox.h, kernel.h.
 * Relied on by: generated code (sc_k_dropout), attention, init_param.
 *
 * The sample is the one of the step's global batch and the element counts inside it, so a mask does not depend on how
 * the batch is cut over ranks and microbatches, and the backward pass draws it again instead of storing it. */
#include "../schema/philox.h"
#include "kernel.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifdef __AVX2__
/* Philox in vectors, a block a lane and a word a vector: products of lower halves are whole there, and what is in an
 * upper half is ignored. Lanes hold blocks in such an order that unpacking puts them into theirs. */
#define PHILOX(NAME, BITS, TARGET, ...)                                                                                \
    TARGET void NAME(uint32_t *to, int64_t n, uint64_t c, uint32_t a, uint32_t b, uint32_t k0, uint32_t k1) {          \
        typedef uint64_t vector __attribute__((vector_size(BITS / 8)));                                                \
        typedef __m##BITS##i whole;                                                                                    \
        const whole m0 = (whole)((vector){0} + 0xD2511F53u), m1 = (whole)((vector){0} + 0xCD9E8D57u);                  \
        vector key0[10], key1[10];                                                                                     \
        for (uint32_t round = 0; round < 10; round++) {                                                                \
            key0[round] = (vector){0} + (k0 + round * 0x9E3779B9u);                                                    \
            key1[round] = (vector){0} + (k1 + round * 0xBB67AE85u);                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i += BITS / 16, c += BITS / 64) {                                                   \
            vector w0 = c + (vector){__VA_ARGS__}, w1 = w0 >> 32, w2 = (vector){0} + a, w3 = (vector){0} + b;          \
            _Pragma("GCC unroll 10") for (int round = 0; round < 10; round++) {                                        \
                vector p = (vector)_mm##BITS##_mul_epu32((whole)w0, m0);                                               \
                vector q = (vector)_mm##BITS##_mul_epu32((whole)w2, m1);                                               \
                w0 = (q >> 32) ^ w1 ^ key0[round];                                                                     \
                w1 = q;                                                                                                \
                w2 = (p >> 32) ^ w3 ^ key1[round];                                                                     \
                w3 = p;                                                                                                \
            }                                                                                                          \
            whole low = (whole)((w0 & 0xffffffffu) | w1 << 32), high = (whole)((w2 & 0xffffffffu) | w3 << 32);         \
            _mm##BITS##_storeu_si##BITS((void *)(to + i), _mm##BITS##_unpacklo_epi64(low, high));                      \
            _mm##BITS##_storeu_si##BITS((void *)(to + i + BITS / 32), _mm##BITS##_unpackhi_epi64(low, high));          \
        }                                                                                                              \
    }
PHILOX(sc_philox_256, 256, , 0, 2, 1, 3)
PHILOX(sc_philox_512, 512, __attribute__((target("avx512f"))), 0, 4, 1, 5, 2, 6, 3, 7)

enum { GROUP = 512 / 16 };
static void whole_groups(uint32_t *to, int64_t n, uint64_t c, uint32_t a, uint32_t b, uint32_t k0, uint32_t k1) {
    (__builtin_cpu_supports("avx512f") ? sc_philox_512 : sc_philox_256)(to, n, c, a, b, k0, k1);
}
#else
enum { GROUP = 4 };
static void whole_groups(uint32_t *to, int64_t n, uint64_t c, uint32_t a, uint32_t b, uint32_t k0, uint32_t k1) {
    for (int64_t i = 0; i < n; i += GROUP, c++) {
        sc_block block = sc_philox((sc_block){{(uint32_t)c, (uint32_t)(c >> 32), a, b}}, k0, k1);
        memcpy(to + i, block.w, sizeof block);
    }
}
#endif

void sc_random(uint32_t *to, int64_t n, uint64_t key, uint32_t a, uint32_t b, uint64_t first) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int64_t i = 0; i < n;) {
        uint64_t e = first + (uint64_t)i, c = e / 4;
        if (e % 4 == 0 && n - i >= GROUP) {
            int64_t some = (n - i) / GROUP * GROUP;
            whole_groups(to + i, some, c, a, b, k0, k1);
            i += some;
        } else {
            sc_block block = sc_philox((sc_block){{(uint32_t)c, (uint32_t)(c >> 32), a, b}}, k0, k1);
            for (int k = (int)(e % 4); k < 4 && i < n; k++) to[i++] = block.w[k];
        }
    }
}

sc_dropping sc_dropping_of(const sc_task *task, double p, uint64_t key) {
    return (sc_dropping){.key = sc_stream_key(task->record->seed, key),
                         .step = (uint32_t)task->record->step,
                         .threshold = p >= 1 ? UINT32_MAX : (uint32_t)(p * 4294967296.0),
                         .scale = p >= 1 ? 0 : (real)(1 / (1 - p))};
}

void sc_drop(const sc_dropping *d, const sc_task *task, int64_t b, uint64_t first, real *to, const real *x, int64_t n) {
    uint32_t word[SC_CHUNK];
    for (int64_t i = 0; i < n; i += SC_CHUNK) {
        int64_t m = sc_min(SC_CHUNK, n - i);
        sc_random(word, m, d->key, (uint32_t)(task->record->first_sample + b), d->step, first + (uint64_t)i);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < m; j++) to[i + j] = word[j] >= d->threshold ? x[i + j] * d->scale : 0;
    }
}

SC_KERNEL(dropout) {
    const sc_tensor *y = &k->y, *x = &k->x;
    sc_dropping d = sc_dropping_of(task, k->p, (uint64_t)k->key);
    int64_t samples = x->dims ? x->shape[0] : 1, n = sc_numel(x) / sc_max(samples, 1), pieces = sc_ceil(n, SC_CHUNK);
    sc_range mine = sc_share(task, samples * pieces, 1);
    real in[SC_CHUNK], out[SC_CHUNK];
    for (int64_t u = mine.begin; u < mine.end; u++) {
        int64_t b = u / pieces, first = u % pieces * SC_CHUNK, m = sc_min(SC_CHUNK, n - first), at = b * n + first;
        real *to = sc_out(y, at, out);
        sc_drop(&d, task, b, (uint64_t)first, to, sc_in(x, at, m, in), m);
        sc_put(y, at, m, to);
    }
}
