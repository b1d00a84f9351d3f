/* init_param: a parameter's initial values, drawn by (seed, path's key, element): the same for every world size, and
 * to the bit those of the CPU.
 * Relies on: schema/philox.h, kernel.cuh.
 * Relied on by: generated code.
 *
 * uniform: low + (high-low)·u, u = word / 2³².  normal: Box and Muller 1958 on the words of a block: pairs (w0,w1),
 * (w2,w3) give r·cos, r·sin with r = √(-2 log((w+½)/2³²)), angle 2π·w'/2³²; mean + std·z.  trunc_normal: z with |z| > 2
 * are drawn again, the attempt being a word of the counter. A thread has the four elements of a block. */
#include "../schema/philox.h"
#include "kernel.cuh"

namespace {

struct drawing {
    int kind;
    uint64_t key;
    double a, b;
    int64_t begin, end; /* elements of the parameter that this rank holds */
    int64_t to;         /* where element 0 would lie in the state */
    void *p;
    int dtype;
};

SC_DEVICE sc_block words(uint64_t key, uint32_t attempt, uint64_t block) {
    sc_block c;
    c.w[0] = (uint32_t)block, c.w[1] = (uint32_t)(block >> 32), c.w[2] = attempt, c.w[3] = 0;
    return sc_philox(c, (uint32_t)key, (uint32_t)(key >> 32));
}
SC_DEVICE void normals(float *z, uint64_t key, uint32_t attempt, uint64_t block) {
    sc_block w = words(key, attempt, block);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sine, cosine, r = sc_sqrt(-2 * sc_log((float)((w.w[2 * i] + 0.5) / 4294967296.0)));
        sc_sincos(w.w[2 * i + 1] * (6.28318530717958647693 / 4294967296.0), &sine, &cosine);
        z[2 * i] = r * cosine;
        z[2 * i + 1] = r * sine;
    }
}
SC_DEVICE void truncated(float *z, uint64_t key, uint64_t block) {
    for (int k = 0; k < 4; k++)
        for (uint32_t attempt = 1; !(z[k] >= -2 && z[k] <= 2); attempt++) {
            float again[4];
            normals(again, key, attempt, block);
            z[k] = k == 0 ? again[0] : k == 1 ? again[1] : k == 2 ? again[2] : again[3];
        }
}

__global__ void __launch_bounds__(BLOCK) draw(const __grid_constant__ drawing d, const sc_record *record) {
    uint64_t key = sc_stream_key(record->seed, d.key);
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t block = d.begin / 4 + (int64_t)blockIdx.x * BLOCK + threadIdx.x; block * 4 < d.end; block += step) {
        float z[4];
        if (d.kind == SC_UNIFORM) {
            sc_block w = words(key, 0, (uint64_t)block);
#pragma unroll
            for (int k = 0; k < 4; k++) z[k] = (float)(d.a + (d.b - d.a) * (w.w[k] / 4294967296.0));
        } else if (d.kind == SC_NORMAL || d.kind == SC_TRUNC_NORMAL) {
            normals(z, key, 0, (uint64_t)block);
            if (d.kind == SC_TRUNC_NORMAL) truncated(z, key, (uint64_t)block);
#pragma unroll
            for (int k = 0; k < 4; k++) z[k] = (float)(d.a + d.b * z[k]);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++) z[k] = d.kind == SC_CONSTANT ? (float)d.a : (float)(d.kind == SC_ONES);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int64_t i = block * 4 + k;
            if (i >= d.begin && i < d.end) store_any(d.p, d.dtype, d.to + i, z[k]);
        }
    }
}

} // namespace

SC_KERNEL(init_param) {
    const sc_tensor *y = &k->state;
    bool sharded = k->slice >= 0;
    int64_t low = sharded ? task->coord[k->axis].at * k->slice : 0, begin = low > k->offset ? low - k->offset : 0;
    int64_t end = sharded ? least(k->numel, low + k->slice - k->offset) : k->numel;
    if (begin >= end) return;
    bool whole = y->dtype == INT32 || y->dtype == INT64 || y->dtype == BOOL; /* a buffer's */
    whole |= y->dtype == INT8;                                                        /* a frozen matrix's */
    if (!whole && !with_float_serves(y->dtype))
        sc_unsupported(task, "init_param", "parameters must be fp32, bf16, fp16 or int8, buffers these or integers");
    int64_t part = sc_expert_place(task, k->expert) * k->numel; /* of the whole parameter's elements */
    drawing d = {(int)k->kind, (uint64_t)k->key,       k->a, k->b,    part + begin,
                 part + end,   k->offset - low - part, y->p, y->dtype};
    SC_LAUNCH(task, draw, filling(task, ceil_div(end - begin, 4 * BLOCK) + 1), BLOCK, d, task->record);
}
