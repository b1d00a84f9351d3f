/* Products of groups of 8 bits for compute capability 9.0: each row of a times the matrix of its group; and aᵀ c over
 * each group's rows, of operands that lie turned. Relies on: grouped_hopper.cuh; sm_90a, as k_grouped_hopper.cu. Relied
 * on by: k_grouped.cu.
 *
 * wgmma reads operands of 8 bits along the inner dimension alone, so both lie so in global memory. Tensor cores add up
 * products of 8 bits in some 14 bits: so the sums of each 128 of the inner dimension, a stage, begin anew and are added
 * to those in registers as fp32, 128 of the 256 columns at a time. While one group of four warps adds, the other's
 * products run.
 *
 * Over rows (the gradient) the inner dimension is the group's rows. Copies begin at multiples of 16 bytes of it
 * ("cudaErrorIllegalInstruction" on one H200 otherwise), so the first 128 bytes of each line may hold rows of the group
 * before, and the last ones rows of the next: both are cleared in shared memory before they are multiplied. */
#include "grouped_hopper.h"

#ifndef SC_HOPPER
bool sc_grouped_hopper_fp8(const sc_task *, const sc_grouped_matmul_args *) {
    return false;
}
bool sc_grouped_hopper_fp8_grad(const sc_task *, const sc_grouped_matmul_grad_args *) {
    return false;
}
#else
#include "grouped_hopper.cuh"

enum { DEPTH = WIDTH, HALF = COLUMNS / 2, GRAIN = 16 /* bytes, where a copy may begin */ };

/* ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* One thread: the copies of a and b. */
template <int OVER>
SC_DEVICE void feed(const product &p, uint32_t base, const int *rows_at, const int *tiles_at, int rank) {
    int stage = 0, phase = 1;
    for (int t = blockIdx.x / PAIR;; t += gridDim.x / PAIR) {
        tile at = tile_at<OVER, DEPTH, GRAIN>(p, rows_at, tiles_at, t, rank);
        if (at.blocks < 0) break;
        for (int i = 0; i < at.blocks; i++) {
            uint32_t a = base + stage * STAGE, b = a + A_BYTES + rank * (B_BYTES / 2), full = base + FULL + 8 * stage;
            int k = (OVER ? at.first - at.first % GRAIN : 0) + i * DEPTH;
            barrier_wait(base + EMPTY + 8 * stage, phase);
            barrier_expect(full, STAGE);
            copy_in(a, &p.a, full, k, at.row, 0);
            copy_in_both(b, &p.b, full, k, at.column + rank * HALF, OVER ? 0 : at.group, 0);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* Of a word of four bytes those before `first` and from `end` on are cleared. */
SC_DEVICE uint32_t between(uint32_t w, int first, int end) {
    uint32_t low = first <= 0 ? ~0u : first < 4 ? ~0u << 8 * first : 0;
    return w & low & (end >= 4 ? ~0u : end > 0 ? (1u << 8 * end) - 1 : 0);
}
/* Of each line of a stage the bytes before `first` and from `end` on are cleared, by all threads that multiply. */
SC_DEVICE void clear_bytes(uint32_t stage, int first, int end, int thread) {
    enum { PIECES = WIDTH / 16, LINES = ROWS + COLUMNS };
    for (int i = thread; i < LINES * PIECES; i += 256) {
        int line = i / PIECES, byte = i % PIECES * 16;
        uint32_t at = stage + line * WIDTH + ((i % PIECES ^ line % 8) << 4), w[4];
        if (first <= byte && byte + 16 <= end) continue;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(at)
                     : "memory");
#pragma unroll
        for (int k = 0; k < 4; k++) w[k] = between(w[k], first - byte - 4 * k, end - byte - 4 * k);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                     : "memory");
    }
    shared_fence();
    both_groups_sync();
}

/* Four warps: 64 rows of every tile. */
template <class E, int OVER, bool A_E5M2, bool B_E5M2>
SC_DEVICE void work(const product &p, uint32_t base, const int *rows_at, const int *tiles_at, int rank, int group,
                    int warp, int lane) {
    float sums[COLUMNS / 2], scale = *p.scale_a * *p.scale_b;
    uint32_t release = in_block(base + EMPTY, lane & 1), mine = base + STAGED + (4 * group + warp) * 2048;
    uint32_t here = base & 0x3ffff; /* above: which block of a cluster */
    uint64_t a0 = matrix_rows(here + group * 64 * WIDTH), b0 = matrix_rows(here + A_BYTES);
    int stage = 0, phase = 0;
    for (int t = blockIdx.x / PAIR;; t += gridDim.x / PAIR) {
        tile at = tile_at<OVER, DEPTH, GRAIN>(p, rows_at, tiles_at, t, rank);
        if (at.blocks < 0) break;
        int before = OVER ? at.first % GRAIN : 0, end = OVER ? before + rows_at[at.group + 1] - at.first : 0;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[i] = 0;
#pragma unroll 1
        for (int k = 0; k < at.blocks; k++) {
            uint64_t a = a0 + stage * (STAGE >> 4), b = b0 + stage * (STAGE >> 4);
            barrier_wait(base + FULL + 8 * stage, phase);
            if (OVER && ((k == 0 && before) || end - k * DEPTH < DEPTH))
                clear_bytes(base + stage * STAGE, before - k * DEPTH, end - k * DEPTH,
                            (4 * group + warp) * WARP + lane);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float part[HALF / 2];
                sums_fence();
#pragma unroll
                for (int i = 0; i < DEPTH / 32; i++)
                    sums_add_bytes<A_E5M2, B_E5M2>(part, a + 2 * i, b + h * (HALF * WIDTH >> 4) + 2 * i, i > 0);
                sums_commit();
                sums_wait<0>();
                sums_here(part);
#pragma unroll
                for (int i = 0; i < HALF / 2; i++) sums[h * (HALF / 2) + i] += part[i];
            }
            if (lane < PAIR) barrier_arrive(release + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[i] *= scale;
        if (!OVER && p.bias && at.group < p.groups) add_bias(p, sums, at.group, at.column, lane);
        put<E>(p, sums, mine, OVER ? at.group * ((int64_t)p.m * p.n) : 0, at.row + group * 64 + warp * 16, at.end,
               at.column, lane);
    }
}

template <class E, int OVER, bool A_E5M2, bool B_E5M2>
static __global__ void __launch_bounds__(THREADS, 1) multiply(const __grid_constant__ product p) {
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    int warp = threadIdx.x / 32, rank = blockIdx.x % PAIR;
    int *rows_at = (int *)(shared + GROUPS), *tiles_at = rows_at + p.groups + 1;
    begin<OVER>(p, base, rows_at, tiles_at);
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) feed<OVER>(p, base, rows_at, tiles_at, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work<E, OVER, A_E5M2, B_E5M2>(p, base, rows_at, tiles_at, rank, warp / 4 - 1, warp % 4, threadIdx.x % 32);
    }
    cluster_sync(); /* neither leaves while the other may still write its barriers */
}

/* ── host ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* `groups` matrices of `lines` lines of `inner` bytes, lines and matrices so many bytes apart: boxes of 128 lines and
 * 128 bytes. A dimension of one is added. */
static CUtensorMap lines_of(const sc_tensor *t, int64_t groups, int64_t lines, int64_t inner, int64_t line,
                            int64_t matrix, int dims) {
    const cuuint64_t size[4] = {(cuuint64_t)inner, (cuuint64_t)lines, (cuuint64_t)groups, 1};
    const cuuint64_t stride[3] = {(cuuint64_t)line, (cuuint64_t)matrix, (cuuint64_t)sc_numel(t)};
    const cuuint32_t boxes[4] = {WIDTH, ROWS, 1, 1};
    return sc_tiles(t->dtype, t->p, dims, size, stride, boxes);
}

static bool serves(const sc_task *t, const sc_tensor *a, const sc_tensor *b, const sc_tensor *y) {
    bool e4m3 = a->dtype == FP8_E4M3, and_e4m3 = b->dtype == FP8_E4M3; /* one of both at least */
    return (e4m3 || a->dtype == FP8_E5M2) && (and_e4m3 || (e4m3 && b->dtype == FP8_E5M2)) &&
           (y->dtype == BF16 || y->dtype == FP16 || y->dtype == FP32) && fits(t, a, b, y);
}

template <class E, int OVER> static void start_by(const sc_task *t, int a, int b, const product &p) {
    if (a == FP8_E4M3 && b == FP8_E4M3)
        start_pairs(t, multiply<E, OVER, false, false>, p);
    else if (b == FP8_E4M3)
        start_pairs(t, multiply<E, OVER, true, false>, p);
    else
        start_pairs(t, multiply<E, OVER, false, true>, p);
}

template <int OVER> static void start(const sc_task *t, const sc_tensor *a, const sc_tensor *b, const product &p) {
    if (p.out == FP16)
        start_by<sc_fp16, OVER>(t, a->dtype, b->dtype, p);
    else
        start_by<sc_bf16, OVER>(t, a->dtype, b->dtype, p);
}

bool sc_grouped_hopper_fp8(const sc_task *t, const sc_grouped_matmul_args *k) {
    const sc_tensor *a = &k->a, *b = &k->b, *y = &k->y;
    int64_t rows = a->shape[0], depth = a->shape[1], n = y->shape[1], groups = sc_numel(&k->counts);
    bool turned = b->dims == 2; /* [n][groups depth] */
    if (!serves(t, a, b, y) || depth % 16 || n % 8) return false;
    product p = {};
    p.a = lines_of(a, 1, rows, depth, depth, rows * depth, 3);
    p.b = turned ? lines_of(b, groups, n, depth, groups * depth, depth, 4)
                 : lines_of(b, groups, n, depth, depth, n * depth, 4);
    p.y = y->p, p.bias = k->bias.p, p.of_bias = k->bias.dtype, p.counts = (const int32_t *)k->counts.p;
    p.scale_a = (const float *)k->scale_a.p, p.scale_b = (const float *)k->scale_b.p;
    p.rows = p.m = (int)rows, p.groups = (int)groups, p.n = (int)n, p.k = (int)depth, p.out = y->dtype;
    p.across = (int)ceil_div(n, COLUMNS);
    start<0>(t, a, b, p);
    return true;
}

bool sc_grouped_hopper_fp8_grad(const sc_task *t, const sc_grouped_matmul_grad_args *k) {
    const sc_tensor *a = &k->a, *c = &k->c, *y = &k->y;
    int64_t rows = a->shape[1], m = y->shape[1], n = y->shape[2];
    if (!serves(t, a, c, y) || rows % 16 || n % 8) return false;
    product p = {};
    p.a = lines_of(a, 1, m, rows, rows, m * rows, 3);
    p.b = lines_of(c, 1, n, rows, rows, n * rows, 4);
    p.y = y->p, p.counts = (const int32_t *)k->counts.p;
    p.scale_a = (const float *)k->scale_a.p, p.scale_b = (const float *)k->scale_c.p;
    p.rows = (int)rows, p.groups = (int)y->shape[0], p.m = (int)m, p.n = (int)n, p.out = y->dtype;
    p.down = (int)ceil_div(m, PAIR * ROWS), p.across = (int)ceil_div(n, COLUMNS);
    start<1>(t, a, c, p);
    return true;
}
#endif
