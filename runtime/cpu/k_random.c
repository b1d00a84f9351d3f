/* Random words by counter, and dropout: y = x · mask / (1 - p), the mask drawn from (seed, key), step, sample, element.
 * Relies on: philox.h, kernel.h.
 * Relied on by: generated code (sc_k_dropout), attention, init_param.
 *
 * The sample is the one of the step's global batch and the element counts inside it, so a mask does not depend on how
 * the batch is cut over ranks and microbatches, and the backward pass draws it again instead of storing it. */
#include "../philox.h"
#include "kernel.h"

void sc_random(uint32_t *to, int64_t n, uint64_t key, uint32_t a, uint32_t b, uint64_t first) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    int64_t i = 0;
    for (; i < n && (first + (uint64_t)i) % 4; i++) {
        uint64_t e = first + (uint64_t)i, c = e / 4;
        to[i] = sc_philox((sc_block){{(uint32_t)c, (uint32_t)(c >> 32), a, b}}, k0, k1).w[e % 4];
    }
    uint64_t c0 = (first + (uint64_t)i) / 4;
    int64_t blocks = (n - i) / 4;
    uint32_t *out = to + i;
    for (int64_t j = 0; j < blocks; j++) {
        uint64_t c = c0 + (uint64_t)j;
        sc_block r = sc_philox((sc_block){{(uint32_t)c, (uint32_t)(c >> 32), a, b}}, k0, k1);
        out[4 * j] = r.w[0];
        out[4 * j + 1] = r.w[1];
        out[4 * j + 2] = r.w[2];
        out[4 * j + 3] = r.w[3];
    }
    for (i += 4 * blocks; i < n; i++) {
        uint64_t e = first + (uint64_t)i, c = e / 4;
        to[i] = sc_philox((sc_block){{(uint32_t)c, (uint32_t)(c >> 32), a, b}}, k0, k1).w[e % 4];
    }
}

sc_dropping sc_dropping_of(const sc_task *k, double p, uint64_t key) {
    return (sc_dropping){.key = sc_stream_key(k->record->seed, key),
                         .step = (uint32_t)k->record->step,
                         .threshold = p >= 1 ? UINT32_MAX : (uint32_t)(p * 4294967296.0),
                         .scale = p >= 1 ? 0 : (real)(1 / (1 - p))};
}

void sc_drop(const sc_dropping *d, const sc_task *k, int64_t b, uint64_t first, real *to, const real *x, int64_t n) {
    uint32_t word[SC_CHUNK];
    for (int64_t i = 0; i < n; i += SC_CHUNK) {
        int64_t m = sc_min(SC_CHUNK, n - i);
        sc_random(word, m, d->key, (uint32_t)(k->record->first_sample + b), d->step, first + (uint64_t)i);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < m; j++) to[i + j] = word[j] >= d->threshold ? x[i + j] * d->scale : 0;
    }
}

void sc_k_dropout(const sc_task *k) {
    const sc_tensor *y = &k->t[0], *x = &k->t[1];
    sc_dropping d = sc_dropping_of(k, k->f[0], (uint64_t)k->i[0]);
    int64_t samples = x->dims ? x->shape[0] : 1, n = sc_numel(x) / sc_max(samples, 1), pieces = sc_ceil(n, SC_CHUNK);
    sc_range mine = sc_share(k, samples * pieces, 1);
    real in[SC_CHUNK], out[SC_CHUNK];
    for (int64_t u = mine.begin; u < mine.end; u++) {
        int64_t b = u / pieces, first = u % pieces * SC_CHUNK, m = sc_min(SC_CHUNK, n - first), at = b * n + first;
        real *to = sc_out(y, at, out);
        sc_drop(&d, k, b, (uint64_t)first, to, sc_in(x, at, m, in), m);
        sc_put(y, at, m, to);
    }
}
