/* Reductions in two stages: blocks write partial results to a workspace, `fold` joins them in their order.
 * Relies on: kernel.cuh.
 * Relied on by: k_norm.cu, k_reduce.cu.
 *
 * How many partial results there are is said by the workspace's size (compiler/ir/rules_work.c), so it depends on the
 * op's shapes only and the sums have the same bits on every device. */
#ifndef SC_PARTIALS_CUH
#define SC_PARTIALS_CUH

#include "kernel.cuh"

struct adding {
    static SC_DEVICE float none() { return 0; }
    static SC_DEVICE float join(float a, float b) { return a + b; }
    template <int G> static SC_DEVICE float over_group(float x) { return group_sum<G>(x); }
};
struct largest {
    static SC_DEVICE float none() { return -HUGE_VALF; }
    static SC_DEVICE float join(float a, float b) { return larger(a, b); }
    template <int G> static SC_DEVICE float over_group(float x) { return group_max<G>(x); }
};

enum { FOLD_ROWS = BLOCK / WARP };

struct planes { /* results of equal length, side by side in every part */
    int n;
    void *y[3];
    int dtype[3];
};

/* y[blockIdx.y][c] = join over p of part[p][blockIdx.y][c], divided. Threads: 32 columns, 8 runs of p. */
template <class OP>
static __global__ void __launch_bounds__(BLOCK)
    fold(const float *part, int parts, int64_t n, const __grid_constant__ planes to, float divisor) {
    __shared__ float joined[FOLD_ROWS][WARP];
    int lane = threadIdx.x % WARP, run = threadIdx.x / WARP, each = (parts + FOLD_ROWS - 1) / FOLD_ROWS;
    int64_t c = (int64_t)blockIdx.x * WARP + lane, step = n * gridDim.y;
    int end = (run + 1) * each < parts ? (run + 1) * each : parts;
    const float *from = part + n * blockIdx.y + c;
    float x = OP::none();
    if (c < n) {
#pragma unroll 8
        for (int p = run * each; p < end; p++) x = OP::join(x, from[p * step]);
    }
    joined[run][lane] = x;
    __syncthreads();
    if (run || c >= n) return;
#pragma unroll
    for (int k = 1; k < FOLD_ROWS; k++) x = OP::join(x, joined[k][lane]);
    store_any(to.y[blockIdx.y], to.dtype[blockIdx.y], c, x / divisor);
}

/* Partial results that the workspace holds, `bytes` each: 1 (the result itself) where there is none. */
static inline int parts_in(const sc_tensor *work, int64_t bytes) {
    if (!work->p) return 1;
    int64_t n = work->shape[0] / bytes;
    return (int)(n < 1 ? 1 : n > 65535 ? 65535 : n);
}

template <class OP>
static void fold_partials(const sc_task *t, const float *part, int parts, int64_t n, const planes &to, float divisor) {
    SC_LAUNCH(t, fold<OP>, dim3(blocks_for(n, WARP), to.n), BLOCK, part, parts, n, to, divisor);
}

#endif
