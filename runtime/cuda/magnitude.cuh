/* The largest magnitude of a tensor, and of what gelu or a gate make of it; what those are, for kernels of 8 bits.
 * Relies on: groups.cuh.
 * Relied on by: k_amax.cu, k_optimizer.cu, k_quantize.cu.
 *
 * Magnitudes are ordered as their bits are, and NaNs above infinity, so blocks meet by atomicMax on bits: exact, and
 * the same in any order. */
#ifndef SC_MAGNITUDE_CUH
#define SC_MAGNITUDE_CUH

#include "groups.cuh"

namespace {

/* ── values: OUT numbers of IN operands ──────────────────────────────────────────────────────────────────────────── */
/* 8 bits tell no more of gelu than its sigmoid by a GPU's own instructions does (sc_gate): the accurate one bounded
 * these kernels by its arithmetic, at 1.7 TB/s (one H200, 2026-11-29, 32768 rows of 6400). */
SC_DEVICE float slope_of_power(float square) { /* z / x, of gelu_tanh x = x sigmoid(z) */
    return sc_fma(square, 7.13548163e-2f, 1.59576912f);
}
struct plain {
    enum { IN = 1, OUT = 1 };
    static SC_DEVICE void of(const float *x, float *y) { y[0] = x[0]; }
};
struct gelu {
    enum { IN = 1, OUT = 1 };
    static SC_DEVICE void of(const float *x, float *y) {
        float c = sc_within(x[0], 30.0f);
        y[0] = x[0] * sc_gate(c * slope_of_power(c * c));
    }
};
struct gelu_grad { /* of g, x */
    enum { IN = 2, OUT = 1 };
    static SC_DEVICE void of(const float *x, float *y) {
        float c = sc_within(x[1], 30.0f), s = c * c, r = sc_gate(c * slope_of_power(s));
        y[0] = x[0] * sc_fma(c * sc_fma(-r, r, r), sc_fma(s, 0.214064449f, 1.59576912f), r);
    }
};
struct gated { /* of up, gate */
    enum { IN = 2, OUT = 1 };
    static SC_DEVICE void of(const float *x, float *y) { y[0] = sc_silu_mul(x[1], x[0]); }
};
struct gate_grads { /* of g, gate, up */
    enum { IN = 3, OUT = 2 };
    static SC_DEVICE void of(const float *x, float *y) { sc_silu_mul_grad(x[0], x[1], x[2], &y[0], &y[1]); }
};

/* ── their largest magnitudes ────────────────────────────────────────────────────────────────────────────────────── */
struct magnitudes {
    const void *x[3];
    const float *known[2]; /* NULL, or a number that is 0 where the magnitude is to be found */
    float *to[2];          /* becomes the magnitude where it is smaller */
    int64_t n;
    /* Of the groups that share the n / cols rows, behind which nothing counts; NULL: all does. */
    const int32_t *counts = NULL;
    int64_t groups = 0, cols = 0;
};

/* Bits of |x|. */
SC_DEVICE int magnitude_of(float x) {
    return __float_as_int(x) & 0x7fffffff;
}
/* A warp's largest, and then, after a barrier, `to` becomes the block's by one of its threads. */
SC_DEVICE void note(int *part, int most) {
#if __CUDA_ARCH__ >= 800
    most = __reduce_max_sync(SC_ALL, most);
#else
    for (int k = WARP / 2; k; k /= 2) most = max(most, __shfl_xor_sync(SC_ALL, most, k));
#endif
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = most;
}
SC_DEVICE int noted(const int *part) {
    int most = part[0];
    for (int w = 1; w < BLOCK / WARP; w++) most = max(most, part[w]);
    return most;
}
SC_DEVICE void saw(float *to, const int *part) {
    atomicMax((int *)to, noted(part));
}

/* Runs of W elements, U of them at once. From the end on: the kernel before has written that last, so it is still in
 * the cache; and what is read last here, the beginning, is what the next kernel reads first. */
template <class E, int W, class P> __global__ void __launch_bounds__(BLOCK) find(const __grid_constant__ magnitudes k) {
    enum { U = P::IN == 1 ? 4 : 2 };
    __shared__ int part[P::OUT][BLOCK / WARP];
    typedef typename E::type type;
    if (k.known[0] && *k.known[0] != 0 && (P::OUT == 1 || *k.known[P::OUT - 1] != 0)) return;
    int most[P::OUT] = {};
    int64_t n = k.counts ? sc_rows_taken(k.counts, k.groups, k.n / k.cols, threadIdx.x % WARP) * k.cols : k.n;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK * U + threadIdx.x; i * W < n; i += (int64_t)gridDim.x * BLOCK * U) {
        raw<E, W> run[U][P::IN];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = n - (i + u * BLOCK + 1) * W;
#pragma unroll
            for (int j = 0; j < P::IN; j++) {
                if (at >= 0)
                    run[u][j].load((const type *)k.x[j] + at);
                else
                    run[u][j].clear();
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int e = 0; e < W; e++) {
                float in[P::IN], out[P::OUT];
#pragma unroll
                for (int j = 0; j < P::IN; j++) in[j] = run[u][j].get(e);
                P::of(in, out);
#pragma unroll
                for (int o = 0; o < P::OUT; o++) most[o] = max(most[o], magnitude_of(out[o]));
            }
    }
#pragma unroll
    for (int o = 0; o < P::OUT; o++) note(part[o], most[o]);
    __syncthreads();
    if (threadIdx.x < P::OUT) saw(k.to[threadIdx.x], part[threadIdx.x]);
}

/* Of operands of a type. Where it is known, the kernel takes no time; with so few blocks that it begins at once. */
template <class P> void find_magnitudes(const sc_task *task, int dtype, const magnitudes &k) {
    bool runs = (k.counts ? k.cols : k.n) % 8 == 0;
    for (int j = 0; j < P::IN; j++) runs = runs && aligned(k.x[j], 16);
    with_runs(task, dtype, runs, [&](auto e, auto w) {
        unsigned blocks = filling(task, ceil_div(k.n, BLOCK * 4 * w.value));
        SC_LAUNCH(task, (find<decltype(e), w.value, P>), k.known[0] ? ceil_div(blocks, 8) : blocks, BLOCK, k);
    });
}

} // namespace

#endif
