/* Products of groups of 16 bits for compute capability 9.0: each row of a times the matrix of its group; and aᵀ c over
 * each group's rows. Relies on: grouped_hopper.cuh; sm_90a (the Makefile compiles this file for it, and defines
 * SC_HOPPER, where architecture 90 is among the library's). Relied on by: k_grouped.cu.
 *
 * Over rows (the gradient) the inner dimension is the group's rows. Its last block of 64 holds the first rows of the
 * next group, too: they are cleared in shared memory before they are multiplied. */
#include "grouped_hopper.h"

#ifndef SC_HOPPER
bool sc_grouped_hopper(const sc_task *, const sc_grouped_matmul_args *) {
    return false;
}
bool sc_grouped_hopper_grad(const sc_task *, const sc_grouped_matmul_grad_args *) {
    return false;
}
#else
#include "grouped_hopper.cuh"

enum { DEPTH = WIDTH / 2 };

/* Kernels are made for OVER, where the inner dimension is rows, and for b as [n][k], or TURNED as [k][n]. */

/* ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* One thread: the copies of a and b. */
template <int OVER, int TURNED>
SC_DEVICE void feed(const product &p, uint32_t base, const int *rows_at, const int *tiles_at, int rank) {
    int stage = 0, phase = 1;
    for (int t = blockIdx.x / PAIR;; t += gridDim.x / PAIR) {
        tile at = tile_at<OVER, DEPTH>(p, rows_at, tiles_at, t, rank);
        if (at.blocks < 0) break;
        for (int i = 0; i < at.blocks; i++) {
            uint32_t a = base + stage * STAGE, b = a + A_BYTES + rank * (B_BYTES / 2), full = base + FULL + 8 * stage;
            int k = i * DEPTH;
            barrier_wait(base + EMPTY + 8 * stage, phase);
            barrier_expect(full, STAGE);
            if (OVER) {
                copy_in(a, &p.a, full, 0, at.first + k, at.row / 64);
                copy_in_both(b, &p.b, full, 0, at.first + k, at.column / 64 + rank * 2, 0);
            } else {
                copy_in(a, &p.a, full, k, at.row, 0);
                if (TURNED)
                    copy_in_both(b, &p.b, full, 0, k, at.column / 64 + rank * 2, at.group);
                else
                    copy_in_both(b, &p.b, full, k, at.column + rank * (COLUMNS / 2), at.group, 0);
            }
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* Rows of a stage from `first` on are cleared, by all threads that multiply. */
SC_DEVICE void clear_rows(uint32_t stage, int first, int thread) {
    enum { BLOCKS = STAGE / (DEPTH * 128), PIECES = 8 };
    for (int i = thread; i < BLOCKS * (DEPTH - first) * PIECES; i += 256) {
        int row = i / PIECES, block = row / (DEPTH - first);
        uint32_t to = stage + block * DEPTH * 128 + (first + row % (DEPTH - first)) * 128 + i % PIECES * 16;
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
    }
    shared_fence();
    both_groups_sync();
}

/* Four warps: 64 rows of every tile. */
template <class E, int OVER, int TURNED>
SC_DEVICE void work(const product &p, uint32_t base, const int *rows_at, const int *tiles_at, int rank, int group,
                    int warp, int lane) {
    float sums[COLUMNS / 2];
    uint32_t release = in_block(base + EMPTY, lane & 1), mine = base + STAGED + (4 * group + warp) * 2048;
    uint32_t at_a = (base & 0x3ffff) + group * 8192,
             at_b = (base & 0x3ffff) + A_BYTES; /* above: which block of a cluster */
    uint64_t a0 = OVER ? matrix_turned(at_a, 8192) : matrix_rows(at_a);
    uint64_t b0 = TURNED ? matrix_turned(at_b, 8192) : matrix_rows(at_b);
    enum { STEP_A = OVER ? 128 : 2, STEP_B = TURNED ? 128 : 2 }; /* 16 of k further */
    int stage = 0, phase = 0;
    for (int t = blockIdx.x / PAIR;; t += gridDim.x / PAIR) {
        tile at = tile_at<OVER, DEPTH>(p, rows_at, tiles_at, t, rank);
        if (at.blocks < 0) break;
        int left = OVER ? rows_at[at.group + 1] - at.first : 0;
        if (at.blocks == 0) {
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) sums[i] = 0;
        }
#pragma unroll 1
        for (int k = 0; k < at.blocks; k++) {
            uint64_t a = a0 + stage * (STAGE >> 4), b = b0 + stage * (STAGE >> 4);
            barrier_wait(base + FULL + 8 * stage, phase);
            if (OVER && left - k * DEPTH < DEPTH)
                clear_rows(base + stage * STAGE, left - k * DEPTH, (4 * group + warp) * WARP + lane);
            sums_fence();
#pragma unroll
            for (int i = 0; i < DEPTH / 16; i++)
                sums_add<E, OVER, TURNED>(sums, a + STEP_A * i, b + STEP_B * i, k > 0 || i > 0);
            sums_commit();
            sums_wait<1>();
            if (k > 0 && lane < PAIR) barrier_arrive(release + 8 * (stage ? stage - 1 : STAGES - 1));
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        sums_wait<0>();
        if (at.blocks > 0 && lane < PAIR) barrier_arrive(release + 8 * (stage ? stage - 1 : STAGES - 1));
        sums_here(sums);
        if (!OVER && p.bias && at.group < p.groups) add_bias(p, sums, at.group, at.column, lane);
        put<E>(p, sums, mine, OVER ? at.group * ((int64_t)p.m * p.n) : 0, at.row + group * 64 + warp * 16, at.end,
               at.column, lane);
    }
}

template <class E, int OVER, int TURNED>
static __global__ void __launch_bounds__(THREADS, 1) multiply(const __grid_constant__ product p) {
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    int warp = threadIdx.x / 32, rank = blockIdx.x % PAIR;
    int *rows_at = (int *)(shared + GROUPS), *tiles_at = rows_at + p.groups + 1;
    begin<OVER>(p, base, rows_at, tiles_at);
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) feed<OVER, TURNED>(p, base, rows_at, tiles_at, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work<E, OVER, TURNED>(p, base, rows_at, tiles_at, rank, warp / 4 - 1, warp % 4, threadIdx.x % 32);
    }
    cluster_sync(); /* neither leaves while the other may still write its barriers */
}

/* ── host ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Of [groups][rows][columns]: boxes of `box` rows and 64 columns; a dimension of one is added. */
static CUtensorMap rows_of(int dtype, const void *p, int64_t groups, int64_t rows, int64_t columns, int box, int dims) {
    const cuuint64_t size[4] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)groups, 1};
    const cuuint64_t step = (cuuint64_t)columns * 2, stride[3] = {step, step * rows, step * rows * groups};
    const cuuint32_t boxes[4] = {64, (cuuint32_t)box, 1, 1};
    return sc_tiles(dtype, p, dims, size, stride, boxes);
}
/* The same as [groups][columns / 64][rows][64], of which boxes have DEPTH rows and `box` columns. */
static CUtensorMap turned_of(int dtype, const void *p, int64_t groups, int64_t rows, int64_t columns, int box,
                             int dims) {
    const cuuint64_t size[4] = {64, (cuuint64_t)rows, (cuuint64_t)columns / 64, (cuuint64_t)groups};
    const cuuint64_t step = (cuuint64_t)columns * 2, stride[3] = {step, 128, step * rows};
    const cuuint32_t boxes[4] = {64, DEPTH, (cuuint32_t)box / 64, 1};
    return sc_tiles(dtype, p, dims, size, stride, boxes);
}

static bool serves(const sc_task *t, const sc_tensor *a, const sc_tensor *b, const sc_tensor *y) {
    bool half = a->dtype == BF16 || a->dtype == FP16, out = y->dtype == a->dtype || y->dtype == FP32;
    return half && out && fits(t, a, b, y);
}

template <int OVER, int TURNED> static void start_by(const sc_task *t, int dtype, const product &p) {
    if (dtype == BF16)
        start_pairs(t, multiply<sc_bf16, OVER, TURNED>, p);
    else
        start_pairs(t, multiply<sc_fp16, OVER, TURNED>, p);
}

bool sc_grouped_hopper(const sc_task *t, const sc_grouped_matmul_args *k) {
    const sc_tensor *a = &k->a, *b = &k->b, *y = &k->y;
    int64_t rows = a->shape[0], depth = a->shape[1], n = y->shape[1], groups = b->shape[0];
    if (!serves(t, a, b, y) || depth % 8 || n % (k->trans_b ? 8 : 64)) return false;
    product p = {};
    p.a = rows_of(a->dtype, a->p, 1, rows, depth, ROWS, 3);
    p.b = k->trans_b ? rows_of(b->dtype, b->p, groups, n, depth, COLUMNS / PAIR, 4)
                     : turned_of(b->dtype, b->p, groups, depth, n, COLUMNS / PAIR, 4);
    p.y = y->p, p.bias = k->bias.p, p.of_bias = a->dtype, p.counts = (const int32_t *)k->counts.p;
    p.rows = p.m = (int)rows, p.groups = (int)groups, p.n = (int)n, p.k = (int)depth, p.out = y->dtype;
    p.across = (int)ceil_div(n, COLUMNS);
    if (k->trans_b)
        start_by<0, 0>(t, a->dtype, p);
    else
        start_by<0, 1>(t, a->dtype, p);
    return true;
}

bool sc_grouped_hopper_grad(const sc_task *t, const sc_grouped_matmul_grad_args *k) {
    const sc_tensor *a = &k->a, *c = &k->c, *y = &k->y;
    int64_t rows = a->shape[0], m = a->shape[1], n = c->shape[1];
    if (!serves(t, a, c, y) || m % 64 || n % 64) return false;
    product p = {};
    p.a = turned_of(a->dtype, a->p, 1, rows, m, ROWS, 3);
    p.b = turned_of(c->dtype, c->p, 1, rows, n, COLUMNS / PAIR, 4);
    p.y = y->p, p.counts = (const int32_t *)k->counts.p;
    p.rows = (int)rows, p.groups = (int)y->shape[0], p.m = (int)m, p.n = (int)n, p.out = y->dtype;
    p.down = (int)ceil_div(m, PAIR * ROWS), p.across = (int)ceil_div(n, COLUMNS);
    start_by<1, 1>(t, a->dtype, p);
    return true;
}
#endif
