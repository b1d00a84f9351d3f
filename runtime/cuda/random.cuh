/* Dropout's mask on the device: which elements are kept, by (seed, key), step, sample, element.
 * Relies on: schema/philox.h, kernel.cuh.
 * Relied on by: k_random.cu.
 *
 * The sample is the one of the step's global batch and the element counts inside it, so a mask does not depend on how
 * the batch is cut over ranks and microbatches, and the backward pass draws it again instead of storing it. */
#ifndef SC_RANDOM_CUH
#define SC_RANDOM_CUH

#include "../schema/philox.h"
#include "kernel.cuh"

struct dropping { /* what the host knows */
    uint64_t key;
    uint32_t threshold;
    float scale; /* 0 where everything is dropped */
};
static inline dropping dropping_of(double p, uint64_t key) {
    return {key, p >= 1 ? UINT32_MAX : (uint32_t)(p * 4294967296.0), p >= 1 ? 0 : (float)(1 / (1 - p))};
}

struct masks { /* what a thread works out once from the record */
    uint32_t k0, k1, sample, step, threshold;
    float scale;
    SC_DEVICE masks(const dropping &d, const sc_record *r) {
        uint64_t key = sc_stream_key(r->seed, d.key);
        k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        sample = (uint32_t)r->first_sample, step = (uint32_t)r->step;
        threshold = d.threshold, scale = d.scale;
    }
    /* x[0..4) *= mask of elements 4·block .. of this rank's sample b */
    SC_DEVICE void drop(float *x, int64_t b, uint64_t block) const {
        sc_block c;
        c.w[0] = (uint32_t)block, c.w[1] = (uint32_t)(block >> 32), c.w[2] = sample + (uint32_t)b, c.w[3] = step;
        c = sc_philox(c, k0, k1);
#pragma unroll
        for (int k = 0; k < 4; k++) x[k] = c.w[k] >= threshold ? x[k] * scale : 0;
    }
};

#endif
