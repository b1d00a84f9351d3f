/* The largest magnitude of a tensor, and of what gelu, a gate or a norm make of it; what those are, for kernels of 8
 * bits.
 * Relies on: groups.cuh.
 * Relied on by: k_amax.cu, k_optimizer.cu, k_quantize.cu, k_matmul_hopper_fp8.cu.
 *
 * Magnitudes are ordered as their bits are, and NaNs above infinity, so blocks meet by atomicMax on bits: exact, and
 * the same in any order. */
#ifndef SC_MAGNITUDE_CUH
#define SC_MAGNITUDE_CUH

#include "groups.cuh"

namespace {

/* ── values: OUT numbers of IN operands, of others that have a number a column, and of statistics of rows ────────── */
template <int N, int M, int C = 0, int R = 0> struct values { /* `of` reads them in this order */
    enum { IN = N, OUT = M, BY_COLUMN = C, BY_ROW = R, ALL = N + C + R };
    /* What an operand by column that is not there would hold. */
    static SC_DEVICE float without(int) { return 0; }
};
struct sources {
    const void *x[3], *column[2]; /* column: NULL: it is not there */
    const float *row[2];
};
/* 8 bits tell no more of gelu than its sigmoid by a GPU's own instructions does (sc_gate): the accurate one bounded
 * these kernels by its arithmetic, at 1.7 TB/s (one H200, 2026-11-29, 32768 rows of 6400). */
SC_DEVICE float slope_of_power(float square) { /* z / x, of gelu_tanh x = x sigmoid(z) */
    return sc_fma(square, 7.13548163e-2f, 1.59576912f);
}
struct plain : values<1, 1> {
    static SC_DEVICE void of(const float *x, float *y) { y[0] = x[0]; }
};
struct gelu : values<1, 1> {
    static SC_DEVICE void of(const float *x, float *y) {
        float c = sc_within(x[0], 30.0f);
        y[0] = x[0] * sc_gate(c * slope_of_power(c * c));
    }
};
struct gelu_grad : values<2, 1> { /* of g, x */
    static SC_DEVICE void of(const float *x, float *y) {
        float c = sc_within(x[1], 30.0f), s = c * c, r = sc_gate(c * slope_of_power(s));
        y[0] = x[0] * sc_fma(c * sc_fma(-r, r, r), sc_fma(s, 0.214064449f, 1.59576912f), r);
    }
};
struct gated : values<2, 1> { /* of up, gate */
    static SC_DEVICE void of(const float *x, float *y) { y[0] = sc_silu_mul(x[1], x[0]); }
};
struct gate_grads : values<3, 2> { /* of g, gate, up */
    static SC_DEVICE void of(const float *x, float *y) { sc_silu_mul_grad(x[0], x[1], x[2], &y[0], &y[1]); }
};

struct rms_normed : values<1, 1, 1, 1> { /* of x, w, rstd */
    static SC_DEVICE float without(int) { return 1; }
    static SC_DEVICE void of(const float *x, float *y) { y[0] = x[0] * x[2] * x[1]; }
};
struct layer_normed : values<1, 1, 2, 2> { /* of x, w, b, rstd, mean */
    static SC_DEVICE float without(int j) { return j ? -0.0f : 1; }
    static SC_DEVICE void of(const float *x, float *y) { y[0] = (x[0] - x[4]) * x[3] * x[1] + x[2]; }
};

/* Elements of operand j by column. */
template <class P, class E, int W> SC_DEVICE void load_column(raw<E, W> *to, const sources &from, int j, int64_t c) {
    float none[W];
#pragma unroll
    for (int e = 0; e < W; e++) none[e] = P::without(j);
    if (from.column[j])
        to->load((const typename E::type *)from.column[j] + c);
    else
        to->put(none);
}

/* ── their largest magnitudes ────────────────────────────────────────────────────────────────────────────────────── */
struct magnitudes {
    sources from;
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

SC_DEVICE int64_t row_of(int64_t at, int64_t cols) {
    return at >> 32 ? at / cols : (uint32_t)at / (uint32_t)cols; /* a fifth of the instructions */
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
        raw<E, W> run[U][P::IN + P::BY_COLUMN];
        float by_row[U][P::BY_ROW + 1];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = n - (i + u * BLOCK + 1) * W;
            if (P::BY_ROW > 0 && at < 0) at = 0; /* once more: what is not there is not 0 */
            int64_t row = P::BY_ROW > 0 ? row_of(at, k.cols) : 0;
#pragma unroll
            for (int j = 0; j < P::IN; j++) {
                if (P::BY_ROW > 0 || at >= 0)
                    run[u][j].load((const type *)k.from.x[j] + at);
                else
                    run[u][j].clear();
            }
#pragma unroll
            for (int j = 0; j < P::BY_COLUMN; j++) load_column<P>(&run[u][P::IN + j], k.from, j, at - row * k.cols);
#pragma unroll
            for (int j = 0; j < P::BY_ROW; j++) by_row[u][j] = k.from.row[j][row];
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int e = 0; e < W; e++) {
                float in[P::ALL], out[P::OUT];
#pragma unroll
                for (int j = 0; j < P::IN + P::BY_COLUMN; j++) in[j] = run[u][j].get(e);
#pragma unroll
                for (int j = 0; j < P::BY_ROW; j++) in[P::IN + P::BY_COLUMN + j] = by_row[u][j];
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
    bool runs = (k.counts || P::BY_ROW > 0 ? k.cols : k.n) % 8 == 0;
    for (int j = 0; j < P::IN; j++) runs = runs && aligned(k.from.x[j], 16);
    for (int j = 0; j < P::BY_COLUMN; j++) runs = runs && aligned(k.from.column[j], 16);
    with_runs(task, dtype, runs, [&](auto e, auto w) {
        unsigned blocks = filling(task, ceil_div(k.n, BLOCK * 4 * w.value));
        SC_LAUNCH(task, (find<decltype(e), w.value, P>), k.known[0] ? ceil_div(blocks, 8) : blocks, BLOCK, k);
    });
}

} // namespace

#endif
