/* Products of groups for compute capability 9.0: each row of a times the matrix of its group; and aᵀ c over each
 * group's rows. Relies on: grouped_hopper.h, groups.cuh, hopper.cuh; sm_90a (the Makefile compiles this file for it,
 * and defines SC_HOPPER, where architecture 90 is among the library's). Relied on by: k_grouped.cu.
 *
 * Blocks stay: a pair of them (a cluster) takes tiles of 2 × 128 rows and 256 columns of a result in turn, one below
 * the other. A warp copies blocks of 64 of the inner dimension of a (16 KiB) and of b (32 KiB, a half of which each
 * block of the pair copies for both) into four stages; two groups of four warps multiply, 64 rows each, as 128 fp32
 * sums a thread. Every block reads the counts and finds its tiles by itself, so that the host knows none of them: rows
 * of a group begin where its first one is, and those of the next group that a tile reads beyond are not written.
 *
 * Over rows (the gradient) the inner dimension is the group's rows. Its last block of 64 holds the first rows of the
 * next group, too: they are cleared in shared memory before they are multiplied.
 *
 * Results do not depend on which block took a tile. */
#include "grouped_hopper.h"

#include "groups.cuh"

#ifndef SC_HOPPER
bool sc_grouped_hopper(const sc_task *, const sc_grouped_matmul_args *) {
    return false;
}
bool sc_grouped_hopper_grad(const sc_task *, const sc_grouped_matmul_grad_args *) {
    return false;
}
#else
#include "../schema/workspace.h"
#include "hopper.cuh"

enum { PAIR = 2, ROWS = 128, COLUMNS = 256, DEPTH = 64, STAGES = 4, THREADS = 384 };
enum { A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2, STAGE = A_BYTES + B_BYTES };
/* Shared memory, in bytes: the stages; 16 × 64 of y for each warp that multiplies; barriers; where the rows and the
 * tiles of each group begin. */
enum { STAGED = STAGES * STAGE, OUT = 8 * 2048, FULL = STAGED + OUT, EMPTY = FULL + 64, GROUPS = FULL + 128 };

typedef struct {
    CUtensorMap a, b;
    void *y;
    const void *bias; /* [groups][n], of the dtype of a; NULL: none */
    const int32_t *counts;
    int rows, groups, m, n, k; /* rows: of all groups; m, n: of a result, k: inner, of which rows is one */
    int down, across;          /* pairs of tiles; down: over rows alone */
    int out, of_bias;
} product;

/* Kernels are made for OVER, where the inner dimension is rows, and for b as [n][k], or TURNED as [k][n]. */
typedef struct {
    int group, row, end, column, first, blocks; /* rows of y from row to end; of a group's: its first; blocks of k */
} tile;

SC_DEVICE void copy_in(uint32_t to, const CUtensorMap *m, uint32_t barrier, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                 "%5}], [%2];" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* ── tiles ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A warp: where the rows of each group begin, and those of none; and the pairs of tiles. */
SC_DEVICE void find_groups(const product &p, int *rows_at, int *tiles_at, int lane) {
    int row = 0, tile = 0;
    for (int g0 = 0; g0 < p.groups; g0 += WARP) {
        int g = g0 + lane, n = g < p.groups ? p.counts[g] : 0;
        n = n < 0 ? 0 : n < p.rows ? n : p.rows;
        int64_t sum = row + warp_sum_so_far((int64_t)n, lane);
        int last = sum < p.rows ? (int)sum : p.rows, first = __shfl_up_sync(SC_ALL, last, 1);
        if (lane == 0) first = row;
        int tiles = (last - first + PAIR * ROWS - 1) / (PAIR * ROWS), after = warp_sum_so_far(tiles, lane) + tile;
        if (g < p.groups) rows_at[g] = first, tiles_at[g] = after - tiles;
        row = __shfl_sync(SC_ALL, last, WARP - 1), tile = __shfl_sync(SC_ALL, after, WARP - 1);
    }
    if (lane == 0) {
        rows_at[p.groups] = row, tiles_at[p.groups] = tile;
        tiles_at[p.groups + 1] = tile + (p.rows - row + PAIR * ROWS - 1) / (PAIR * ROWS);
    }
}

/* All threads of a block: the groups, those of most rows first. */
SC_DEVICE void sort_groups(const product &p, const int *rows_at, int *order) {
    for (int g = threadIdx.x; g < p.groups; g += THREADS) {
        int n = rows_at[g + 1] - rows_at[g], before = 0;
        for (int h = 0; h < p.groups; h++) {
            int other = rows_at[h + 1] - rows_at[h];
            before += other > n || (other == n && h < g);
        }
        order[before] = g;
    }
}

/* The t-th pair of tiles, of which `rank` has one; blocks < 0: there is none. Down a group's rows, then to the right,
 * so that what is worked on at one time shares columns of b. Over rows a tile of a group takes as long as the group has
 * rows: tiles_at has the groups' order, the longest first, so that the blocks are done at about the same time. */
template <int OVER> SC_DEVICE tile tile_at(const product &p, const int *rows_at, const int *tiles_at, int t, int rank) {
    if (OVER) {
        int each = p.down * p.across, g = t / each, v = t - g * each, column = v / p.down;
        if (g >= p.groups) return {0, 0, 0, 0, 0, -1};
        g = tiles_at[g];
        int first = rows_at[g], n = rows_at[g + 1] - first;
        return {g, ((v - column * p.down) * PAIR + rank) * ROWS, p.m, column * COLUMNS, first, (n + DEPTH - 1) / DEPTH};
    }
    if (t >= tiles_at[p.groups + 1] * p.across) return {0, 0, 0, 0, 0, -1};
    int low = 0, high = p.groups; /* the last group that begins at t or before */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (tiles_at[middle] * p.across <= t)
            low = middle;
        else
            high = middle - 1;
    }
    int tall = tiles_at[low + 1] - tiles_at[low], v = t - tiles_at[low] * p.across, column = v / tall;
    int row = rows_at[low] + ((v - column * tall) * PAIR + rank) * ROWS,
        end = low < p.groups ? rows_at[low + 1] : p.rows;
    return {low, row, end, column * COLUMNS, row, low < p.groups ? (p.k + DEPTH - 1) / DEPTH : 0};
}

/* ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* One thread: the copies of a and b. */
template <int OVER, int TURNED>
SC_DEVICE void feed(const product &p, uint32_t base, const int *rows_at, const int *tiles_at, int rank) {
    int stage = 0, phase = 1;
    for (int t = blockIdx.x / PAIR;; t += gridDim.x / PAIR) {
        tile at = tile_at<OVER>(p, rows_at, tiles_at, t, rank);
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

SC_DEVICE void both_groups_sync(void) {
    asm volatile("barrier.sync 3, 256;" ::: "memory");
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

/* A warp: its 16 rows of a tile's sums, from `row` on. */
template <class E>
SC_DEVICE void put(const product &p, const float (&sums)[COLUMNS / 2], uint32_t mine, int64_t y0, int row, int end,
                   int column, int lane) {
    uint32_t to = mine + lane % 16 * 128;
    if (p.out == FP32) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++) {
            int c = column + i * 8 + lane % 4 * 2;
#pragma unroll
            for (int u = 0; u < 2; u++) {
                int r = row + lane / 4 + 8 * u;
                if (r < end && c < p.n)
                    *(float2 *)((float *)p.y + y0 + (int64_t)r * p.n + c) =
                        make_float2(sums[4 * i + 2 * u], sums[4 * i + 2 * u + 1]);
            }
        }
        return;
    }
#pragma unroll
    for (int s = 0; s < COLUMNS / 64; s++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *d = sums + 32 * s + 8 * i;
            uint32_t r[4] = {sc_pack<E>(d[0], d[1]), sc_pack<E>(d[2], d[3]), sc_pack<E>(d[4], d[5]),
                             sc_pack<E>(d[6], d[7])};
            put_pieces(to + (((2 * i + lane / 16) ^ lane % 8) << 4), r);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = i * 4 + lane / 8, piece = lane % 8, c = column + 64 * s + piece * 8;
            uint4 x;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                         : "r"(mine + r * 128 + ((piece ^ r % 8) << 4))
                         : "memory");
            if (row + r < end && c < p.n) *(uint4 *)((uint16_t *)p.y + y0 + (int64_t)(row + r) * p.n + c) = x;
        }
        __syncwarp();
    }
}

/* Each column's bias of a group to the sums of a tile, before they are rounded. */
SC_DEVICE void add_bias(const product &p, float (&sums)[COLUMNS / 2], int group, int column, int lane) {
    int64_t at = (int64_t)group * p.n;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++) {
        int c = column + i * 8 + lane % 4 * 2;
        if (c >= p.n) continue;
        float left = load_any(p.bias, p.of_bias, at + c), right = load_any(p.bias, p.of_bias, at + c + 1);
        sums[4 * i] += left, sums[4 * i + 1] += right;
        sums[4 * i + 2] += left, sums[4 * i + 3] += right;
    }
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
        tile at = tile_at<OVER>(p, rows_at, tiles_at, t, rank);
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
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(base + FULL + 8 * s, 1);
            barrier_init(base + EMPTY + 8 * s, 8 * PAIR);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp == 1) find_groups(p, rows_at, tiles_at, threadIdx.x % 32);
    __syncthreads();
    if (OVER) sort_groups(p, rows_at, tiles_at);
    if (OVER) __syncthreads();
    cluster_sync();
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
    const sc_cuda *c = sc_library(t);
    bool half = a->dtype == BF16 || a->dtype == FP16, out = y->dtype == a->dtype || y->dtype == FP32;
    return c && c->major == 9 && c->minor == 0 && half && out && aligned(a->p, 16) && aligned(b->p, 16) &&
           aligned(y->p, 16) && sc_numel(a) > 0;
}

template <class E, int OVER, int TURNED> static void start(const sc_task *t, const product &p) {
    const sc_cuda *c = sc_library(t);
    int pairs = (c->multiprocessors - (c->world > 1 ? SC_SUM_BLOCKS : 0)) / PAIR;
    size_t bytes = GROUPS + (2 * (size_t)p.groups + 3) * sizeof(int);
    sc_launch_clusters(multiply<E, OVER, TURNED>, pairs > 1 ? pairs : 1, PAIR, THREADS, bytes, SC_STREAM(t), p);
}

template <int OVER, int TURNED> static void start_by(const sc_task *t, int dtype, const product &p) {
    if (dtype == BF16)
        start<sc_bf16, OVER, TURNED>(t, p);
    else
        start<sc_fp16, OVER, TURNED>(t, p);
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
