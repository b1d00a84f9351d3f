/* What both kernels of products of groups for compute capability 9.0 share, of 16 bits and of 8: where tiles lie, and
 * how their sums are written. Relies on: grouped_hopper.h, groups.cuh, hopper.cuh. Relied on by: k_grouped_hopper.cu,
 * k_grouped_hopper_fp8.cu.
 *
 * Blocks stay: a pair of them (a cluster) takes tiles of 2 × 128 rows and 256 columns of a result in turn, one below
 * the other. A warp copies 128 bytes of the inner dimension of a (16 KiB) and of b (32 KiB, a half of which each block
 * of the pair copies for both) into four stages; two groups of four warps multiply, 64 rows each, as 128 fp32 sums a
 * thread. Every block reads the counts and finds its tiles by itself, so that the host knows none of them: rows of a
 * group begin where its first one is, and those of the next group that a tile reads beyond are not written.
 *
 * Results do not depend on which block took a tile. */
#ifndef SC_GROUPED_HOPPER_CUH
#define SC_GROUPED_HOPPER_CUH

#include "../schema/workspace.h"
#include "grouped_hopper.h"
#include "groups.cuh"
#include "hopper.cuh"

enum { PAIR = 2, ROWS = 128, COLUMNS = 256, WIDTH = 128 /* bytes */, STAGES = 4, THREADS = 384 };
enum { A_BYTES = ROWS * WIDTH, B_BYTES = COLUMNS * WIDTH, STAGE = A_BYTES + B_BYTES };
/* Shared memory, in bytes: the stages; 16 × 64 of y for each warp that multiplies; barriers; where the rows and the
 * tiles of each group begin. */
enum { STAGED = STAGES * STAGE, OUT = 8 * 2048, FULL = STAGED + OUT, EMPTY = FULL + 64, GROUPS = FULL + 128 };

typedef struct {
    CUtensorMap a, b;
    void *y;
    const void *bias; /* [groups][n]; NULL: none */
    const int32_t *counts;
    int rows, groups, m, n, k; /* rows: of all groups; m, n: of a result, k: inner, of which rows is one */
    int down, across;          /* pairs of tiles; down: over rows alone */
    int out, of_bias;
    const float *scale_a, *scale_b; /* of 8 bits */
} product;

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
 * rows: tiles_at has the groups' order, the longest first, so that the blocks are done at about the same time. OVER:
 * the inner dimension is rows; DEPTH: elements of it in a stage, the first of which begins at a multiple of GRAIN. */
template <int OVER, int DEPTH, int GRAIN = 1>
SC_DEVICE tile tile_at(const product &p, const int *rows_at, const int *tiles_at, int t, int rank) {
    if (OVER) {
        int each = p.down * p.across, g = t / each, v = t - g * each, column = v / p.down;
        if (g >= p.groups) return {0, 0, 0, 0, 0, -1};
        g = tiles_at[g];
        int first = rows_at[g], n = rows_at[g + 1] - first;
        int blocks = n ? (first % GRAIN + n + DEPTH - 1) / DEPTH : 0;
        return {g, ((v - column * p.down) * PAIR + rank) * ROWS, p.m, column * COLUMNS, first, blocks};
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

/* ── the kernels' frame ──────────────────────────────────────────────────────────────────────────────────────────────
 */
/* All threads of both blocks, first: barriers, and where groups lie. */
template <int OVER> SC_DEVICE void begin(const product &p, uint32_t base, int *rows_at, int *tiles_at) {
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(base + FULL + 8 * s, 1);
            barrier_init(base + EMPTY + 8 * s, 8 * PAIR);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (threadIdx.x / WARP == 1) find_groups(p, rows_at, tiles_at, threadIdx.x % WARP);
    __syncthreads();
    if (OVER) sort_groups(p, rows_at, tiles_at);
    if (OVER) __syncthreads();
    cluster_sync();
}

SC_DEVICE void both_groups_sync(void) {
    asm volatile("barrier.sync 3, 256;" ::: "memory");
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

/* ── host ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static inline bool fits(const sc_task *t, const sc_tensor *a, const sc_tensor *b, const sc_tensor *y) {
    const sc_cuda *c = sc_library(t);
    return c && c->major == 9 && c->minor == 0 && aligned(a->p, 16) && aligned(b->p, 16) && aligned(y->p, 16) &&
           sc_numel(a) > 0;
}

/* As many blocks as there are multiprocessors, but for those that sum up what other ranks have. */
static inline void start_pairs(const sc_task *t, void (*kernel)(product), const product &p) {
    const sc_cuda *c = sc_library(t);
    int pairs = (c->multiprocessors - (c->world > 1 ? SC_SUM_BLOCKS : 0)) / PAIR;
    size_t bytes = GROUPS + (2 * (size_t)p.groups + 3) * sizeof(int);
    sc_launch_clusters(kernel, pairs > 1 ? pairs : 1, PAIR, THREADS, bytes, SC_STREAM(t), p);
}

#endif
