/* The products of Muon's steps for compute capability 9.0: of a symmetric result, one half is computed and written
 * twice. Relies on: orthogonalize_hopper.h, kernel.cuh, hopper.cuh; sm_90a (the Makefile compiles this file for it, and
 * defines SC_HOPPER, where architecture 90 is among the library's). Relied on by: k_orthogonalize.cu.
 *
 * Blocks stay: a pair of them (a cluster) takes tiles of 2 × 128 rows and 256 columns of a result in turn, one below
 * the other. A warp copies blocks of 64 of the inner dimension of a (16 KiB) and of b (32 KiB, a half of which each
 * block of the pair copies for both) into four stages; two groups of four warps multiply, 64 rows each, as 128 fp32
 * sums a thread. One launch has the tiles of all matrices, and these have inner dimensions of several lengths: the host
 * deals them out, the longest first, each to the pair that has least to do.
 *
 * A matrix is never transposed: where it is tall, the products are xT x and x P, and where it is wide x xT and P x. A
 * symmetric matrix is its own transpose, so that b is always read as its rows but for the x of P x.
 *
 * Results do not depend on which block took a tile. */
#include "orthogonalize_hopper.h"

#include "kernel.cuh"

#ifndef SC_HOPPER
bool sc_orthogonalize_hopper_takes(const sc_task *, int64_t, int64_t) {
    return false;
}
void sc_orthogonalize_hopper(const sc_task *t, sc_orthogonal_product, const sc_stack *, int, float, float) {
    sc_unsupported(t, "orthogonalize", "this library was made without architecture 90");
}
#else
#include "hopper.cuh"

enum { PAIR = 2, ROWS = 128, COLUMNS = 256, DEPTH = 64, STAGES = 4, THREADS = 384 };
enum { A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2, STAGE = A_BYTES + B_BYTES };
/* Shared memory, in bytes: the stages; 16 × 64 of y for each warp that multiplies; barriers. */
enum { STAGED = STAGES * STAGE, OUT = 8 * 2048, FULL = STAGED + OUT, EMPTY = FULL + 64, SHARED = FULL + 128 };
/* Of a launch: stacks, tiles, pairs of blocks at most. A kernel's arguments have at most 32,764 bytes. */
enum { JOBS = 16, TILES = 8192, PAIRS = 80 };

typedef struct { /* y = alpha a b + beta c of each matrix of a stack */
    CUtensorMap a, b;
    const uint16_t *c; /* NULL: none */
    uint16_t *y;
    int m, n, blocks;        /* of y; of the inner dimension */
    int across, each, first; /* tiles to the right, of a matrix, of the launch before these */
    bool turned_a, turned_b; /* a is [inner][m], b is [inner][n]; else [m][inner], [n][inner] */
} job;

typedef struct {
    job jobs[JOBS];
    float alpha, beta;
    int njobs;
    bool symmetric;
    uint16_t begin[PAIRS + 1], order[TILES]; /* the pair's tiles are order[begin] to order[next begin] */
} products;

typedef struct {
    int job, matrix, row, column; /* row: the pair's first */
} tile;

SC_DEVICE void copy_in(uint32_t to, const CUtensorMap *m, uint32_t barrier, int x, int y, int z, int u) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u)
                 : "memory");
}

/* Tile t of the launch. Of a symmetric result those on and below the diagonal, row by row; else down, then to the
 * right, so that what is worked on at one time shares columns of b. */
SC_DEVICE tile tile_at(const products &p, int t) {
    int j = 0;
    while (j + 1 < p.njobs && p.jobs[j + 1].first <= t) j++;
    const job &of = p.jobs[j];
    int matrix = (t - of.first) / of.each, v = t - of.first - matrix * of.each;
    if (!p.symmetric) {
        int down = of.each / of.across, column = v / down;
        return {j, matrix, (v - column * down) * PAIR * ROWS, column * COLUMNS};
    }
    int row = (int)((sqrtf(8.f * (float)v + 1.f) - 1.f) / 2.f);
    while (row * (row + 1) / 2 > v) row--;
    while ((row + 1) * (row + 2) / 2 <= v) row++;
    return {j, matrix, row * PAIR * ROWS, (v - row * (row + 1) / 2) * COLUMNS};
}

/* One thread: the copies of a and b. */
SC_DEVICE void feed(const products &p, uint32_t base, int pair, int rank) {
    int stage = 0, phase = 1;
    for (int i = p.begin[pair]; i < p.begin[pair + 1]; i++) {
        tile at = tile_at(p, p.order[i]);
        const job &of = p.jobs[at.job];
        int row = at.row + rank * ROWS, column = at.column + rank * (COLUMNS / PAIR);
        for (int block = 0; block < of.blocks; block++) {
            uint32_t a = base + stage * STAGE, b = a + A_BYTES + rank * (B_BYTES / 2), full = base + FULL + 8 * stage;
            int k = block * DEPTH;
            barrier_wait(base + EMPTY + 8 * stage, phase);
            barrier_expect(full, STAGE);
            if (of.turned_a)
                copy_in(a, &of.a, full, 0, k, row / 64, at.matrix);
            else
                copy_in(a, &of.a, full, k, row, at.matrix, 0);
            if (of.turned_b)
                copy_in_both(b, &of.b, full, 0, k, column / 64, at.matrix);
            else
                copy_in_both(b, &of.b, full, k, column, at.matrix, 0);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

SC_DEVICE void put_pieces_turned(uint32_t to, const uint32_t *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
SC_DEVICE uint4 staged(uint32_t at) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(at)
                 : "memory");
    return x;
}
/* What a lane holds of 16 rows and 256 columns, as it is copied: 8 elements of each fourth row of 64 columns. */
typedef struct {
    uint4 x[COLUMNS / 64][4];
} held;
SC_DEVICE int64_t place_of(const job &of, int matrix, int row, int column) {
    return ((int64_t)matrix * of.m + row) * of.n + column;
}
SC_DEVICE void hold(held &h, const job &of, int matrix, int row, int column, int lane) {
#pragma unroll
    for (int s = 0; s < COLUMNS / 64; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = row + i * 4 + lane / 8, c = column + 64 * s + lane % 8 * 8;
            h.x[s][i] = make_uint4(0, 0, 0, 0);
            if (of.c && r < of.m && c < of.n) h.x[s][i] = __ldg((const uint4 *)(of.c + place_of(of, matrix, r, c)));
        }
}
/* Where 16 bytes of a row lie in a warp's place for 16 × 64 elements. */
SC_DEVICE uint32_t spot(uint32_t mine, int row, int piece) {
    return mine + row * 128 + ((piece ^ row % 8) << 4);
}

/* Two numbers, zeros without a sign: a sum with the zeros of ranks that compute other matrices changes none. */
SC_DEVICE uint32_t unsigned_zeros(uint32_t two) {
    if (!(two & 0x7fff)) two &= 0xffff0000;
    return two & 0x7fff0000 ? two : two & 0xffff;
}

/* A warp: its 16 rows of a tile's sums, from `row` on; `twice`: at the mirrored place too. */
SC_DEVICE void put(const products &p, const job &of, float (&sums)[COLUMNS / 2], const held &c, uint32_t mine,
                   int matrix, int row, int column, bool twice, int lane) {
    bool adds = of.c != NULL;
#pragma unroll
    for (int s = 0; s < COLUMNS / 64; s++) {
        uint32_t r[4][4];
        if (adds) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(spot(mine, i * 4 + lane / 8, lane % 8)),
                             "r"(c.x[s][i].x), "r"(c.x[s][i].y), "r"(c.x[s][i].z), "r"(c.x[s][i].w)
                             : "memory");
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *d = sums + 32 * s + 8 * i;
            uint32_t at = spot(mine, lane % 16, 2 * i + lane / 16);
            if (adds) get_pieces(at, r[i]);
#pragma unroll
            for (int q = 0; q < 4; q++) {
                float low = p.alpha * d[2 * q], high = p.alpha * d[2 * q + 1];
                if (adds) {
                    low = __fmaf_rn(p.beta, __uint_as_float(r[i][q] << 16), low);
                    high = __fmaf_rn(p.beta, __uint_as_float(r[i][q] & 0xffff0000), high);
                }
                r[i][q] = sc_pack<sc_bf16>(low, high);
                if (!p.symmetric) r[i][q] = unsigned_zeros(r[i][q]);
            }
            __syncwarp(); /* other lanes have what lay where these go */
            put_pieces(at, r[i]);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r1 = row + i * 4 + lane / 8, c1 = column + 64 * s + lane % 8 * 8;
            uint4 x = staged(spot(mine, i * 4 + lane / 8, lane % 8));
            if (r1 < of.m && c1 < of.n) *(uint4 *)(of.y + place_of(of, matrix, r1, c1)) = x;
        }
        __syncwarp();
        if (!twice) continue;
#pragma unroll
        for (int i = 0; i < 4; i++)
            put_pieces_turned(mine + (16 * i + lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16, r[i]);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = i * 16 + lane / 2, r1 = column + 64 * s + at, c1 = row + lane % 2 * 8;
            uint4 x = staged(mine + at * 32 + lane % 2 * 16);
            if (r1 < of.m && c1 < of.n) *(uint4 *)(of.y + place_of(of, matrix, r1, c1)) = x;
        }
        __syncwarp();
    }
}

/* What a warp that multiplies knows, and where in the stages it is. */
typedef struct {
    uint32_t base, release,
        mine; /* of the block's shared memory: its begin, barriers of free stages, its place for y */
    int rank, group, warp, lane;
    int stage, phase;
} worker;

/* Four warps: 64 rows of a tile. */
template <int TURNED_A, int TURNED_B> SC_DEVICE void multiply(const products &p, const job &of, tile at, worker &w) {
    float sums[COLUMNS / 2];
    held c;
    int row = at.row + w.rank * ROWS + w.group * 64 + w.warp * 16;
    hold(c, of, at.matrix, row, at.column, w.lane); /* it arrives while the sums are made */
    uint32_t at_a = (w.base & 0x3ffff) + w.group * 8192, at_b = (w.base & 0x3ffff) + A_BYTES; /* above: which block */
    uint64_t a0 = TURNED_A ? matrix_turned(at_a, 8192) : matrix_rows(at_a);
    uint64_t b0 = TURNED_B ? matrix_turned(at_b, 8192) : matrix_rows(at_b);
    enum { STEP_A = TURNED_A ? 128 : 2, STEP_B = TURNED_B ? 128 : 2 }; /* 16 further */
#pragma unroll 1
    for (int k = 0; k < of.blocks; k++) {
        uint64_t a = a0 + w.stage * (STAGE >> 4), b = b0 + w.stage * (STAGE >> 4);
        barrier_wait(w.base + FULL + 8 * w.stage, w.phase);
        sums_fence();
#pragma unroll
        for (int i = 0; i < DEPTH / 16; i++)
            sums_add<sc_bf16, TURNED_A, TURNED_B>(sums, a + STEP_A * i, b + STEP_B * i, k > 0 || i > 0);
        sums_commit();
        sums_wait<1>();
        if (k > 0 && w.lane < PAIR) barrier_arrive(w.release + 8 * (w.stage ? w.stage - 1 : STAGES - 1));
        if (++w.stage == STAGES) w.stage = 0, w.phase ^= 1;
    }
    sums_wait<0>();
    if (w.lane < PAIR) barrier_arrive(w.release + 8 * (w.stage ? w.stage - 1 : STAGES - 1));
    sums_here(sums);
    put(p, of, sums, c, w.mine, at.matrix, row, at.column, p.symmetric && at.row != at.column, w.lane);
}

SC_DEVICE void work(const products &p, uint32_t base, int pair, int rank, int group, int warp, int lane) {
    worker w = {base, in_block(base + EMPTY, lane & 1), base + STAGED + (4 * group + warp) * 2048, rank, group, warp,
                lane};
    for (int i = p.begin[pair]; i < p.begin[pair + 1]; i++) {
        tile at = tile_at(p, p.order[i]);
        const job &of = p.jobs[at.job];
        if (of.turned_a)
            multiply<1, 1>(p, of, at, w);
        else if (of.turned_b)
            multiply<0, 1>(p, of, at, w);
        else
            multiply<0, 0>(p, of, at, w);
    }
}

static __global__ void __launch_bounds__(THREADS, 1) multiply_all(const __grid_constant__ products p) {
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    int warp = threadIdx.x / 32, rank = blockIdx.x % PAIR, pair = blockIdx.x / PAIR;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(base + FULL + 8 * s, 1);
            barrier_init(base + EMPTY + 8 * s, 8 * PAIR);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    cluster_sync();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) feed(p, base, pair, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work(p, base, pair, rank, warp / 4 - 1, warp % 4, threadIdx.x % 32);
    }
    cluster_sync(); /* neither leaves while the other may still write its barriers */
}

/* ── host ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Of [count][rows][cols]: boxes of 128 rows and 64 columns; of the same as [count][cols / 64][rows][64]: boxes of DEPTH
 * rows and 128 columns. */
static CUtensorMap boxes_of(const void *p, int count, int rows, int cols, bool turned) {
    const cuuint64_t step = (cuuint64_t)cols * 2, whole = step * (cuuint64_t)rows;
    const cuuint64_t flat[4] = {(cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)count, 1};
    const cuuint64_t cut[4] = {64, (cuuint64_t)rows, (cuuint64_t)cols / 64, (cuuint64_t)count};
    const cuuint64_t flat_step[3] = {step, whole, whole * (cuuint64_t)count}, cut_step[3] = {step, 128, whole};
    const cuuint32_t flat_box[4] = {64, 128, 1, 1}, cut_box[4] = {64, DEPTH, 2, 1};
    return sc_tiles(BF16, p, 4, turned ? cut : flat, turned ? cut_step : flat_step, turned ? cut_box : flat_box);
}

static job job_of(sc_orthogonal_product what, const sc_stack &s) {
    bool wide = s.rows <= s.cols;
    int small = wide ? s.rows : s.cols, inner = what == SC_GRAM ? (wide ? s.cols : s.rows) : small;
    job j = {};
    j.m = j.n = small;
    if (what == SC_GRAM) {
        j.turned_a = j.turned_b = !wide;
        j.a = j.b = boxes_of(s.x, s.count, s.rows, s.cols, !wide);
        j.y = (uint16_t *)s.gram;
    } else if (what == SC_POLYNOMIAL) {
        j.a = j.b = boxes_of(s.gram, s.count, small, small, false);
        j.c = (const uint16_t *)s.gram, j.y = (uint16_t *)s.polynomial;
    } else {
        CUtensorMap p = boxes_of(s.polynomial, s.count, small, small, false),
                    x = boxes_of(s.x, s.count, s.rows, s.cols, wide);
        j.a = wide ? p : x, j.b = wide ? x : p;
        j.turned_b = wide;
        j.c = (const uint16_t *)s.x, j.y = (uint16_t *)s.y;
        j.m = s.rows, j.n = s.cols;
    }
    j.blocks = (int)ceil_div(inner, DEPTH);
    return j;
}

/* The tiles of the launch, those with the longest inner dimension first, each to the pair of blocks that has least to
 * do. To write a tile takes as long as some ten blocks of its inner dimension. */
static void deal(products *p, int tiles, int pairs) {
    enum { WRITTEN = 10 };
    static thread_local uint8_t taken[TILES];
    int by_length[JOBS], load[PAIRS] = {}, n = 0;
    for (int j = 0, k; j < p->njobs; j++) {
        for (k = j; k > 0 && p->jobs[by_length[k - 1]].blocks < p->jobs[j].blocks; k--) by_length[k] = by_length[k - 1];
        by_length[k] = j;
    }
    for (int k = 0; k < p->njobs; k++) {
        int j = by_length[k], end = j + 1 < p->njobs ? p->jobs[j + 1].first : tiles;
        for (int t = p->jobs[j].first; t < end; t++) {
            int least = 0;
            for (int pair = 1; pair < pairs; pair++)
                if (load[pair] < load[least]) least = pair;
            taken[t] = (uint8_t)least, load[least] += p->jobs[j].blocks + WRITTEN;
        }
    }
    for (int pair = 0; pair < pairs; pair++) {
        p->begin[pair] = (uint16_t)n;
        for (int k = 0; k < p->njobs; k++) {
            int j = by_length[k], end = j + 1 < p->njobs ? p->jobs[j + 1].first : tiles;
            for (int t = p->jobs[j].first; t < end; t++)
                if (taken[t] == pair) p->order[n++] = (uint16_t)t;
        }
    }
    p->begin[pairs] = (uint16_t)n;
}

static void start(const sc_task *t, products *p, int tiles) {
    const sc_cuda *c = sc_library(t);
    int pairs = (c->multiprocessors - (c->world > 1 ? SC_SUM_BLOCKS : 0)) / PAIR;
    pairs = pairs < 1 ? 1 : pairs > PAIRS ? PAIRS : pairs;
    deal(p, tiles, pairs);
    sc_launch_clusters(multiply_all, pairs, PAIR, THREADS, SHARED, SC_STREAM(t), *p);
}

bool sc_orthogonalize_hopper_takes(const sc_task *t, int64_t rows, int64_t cols) {
    const sc_cuda *c = sc_library(t);
    return c && c->major == 9 && c->minor == 0 && rows % 64 == 0 && cols % 64 == 0 &&
           ceil_div(rows, PAIR * ROWS) * ceil_div(cols, COLUMNS) <= TILES;
}

void sc_orthogonalize_hopper(const sc_task *t, sc_orthogonal_product what, const sc_stack *stacks, int n, float alpha,
                             float beta) {
    static thread_local products p; /* 20 KiB */
    p.alpha = alpha, p.beta = beta, p.symmetric = what != SC_APPLY, p.njobs = 0;
    int tiles = 0;
    for (int i = 0; i < n; i++) {
        job whole = job_of(what, stacks[i]);
        int down = (int)ceil_div(whole.m, PAIR * ROWS);
        whole.across = (int)ceil_div(whole.n, COLUMNS);
        whole.each = p.symmetric ? down * (down + 1) / 2 : down * whole.across;
        for (int from = 0; from < stacks[i].count;) {
            int room = (TILES - tiles) / whole.each, left = stacks[i].count - from, some = left < room ? left : room;
            if (some == 0 || p.njobs == JOBS) {
                start(t, &p, tiles);
                p.njobs = tiles = 0;
                continue;
            }
            sc_stack part = stacks[i];
            int64_t at = (int64_t)from * part.rows * part.cols, small = part.rows < part.cols ? part.rows : part.cols;
            part.x = (const uint16_t *)part.x + at, part.y = (uint16_t *)part.y + at;
            part.gram = (uint16_t *)part.gram + from * small * small;
            part.polynomial = (uint16_t *)part.polynomial + from * small * small;
            part.count = some;
            job j = job_of(what, part);
            j.across = whole.across, j.each = whole.each, j.first = tiles;
            p.jobs[p.njobs++] = j;
            tiles += some * whole.each;
            from += some;
        }
    }
    if (tiles) start(t, &p, tiles);
}
#endif
