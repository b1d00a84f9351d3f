/* matmul with gelu or silu(gate) · y, or with the gradient of either, for compute capability 9.0: the function of a
 * tile's elements is computed while the next tile is being multiplied.
 * Relies on: matmul_hopper.h, kernel.cuh, hopper.cuh; sm_90a (the Makefile compiles
 * this file for it, and defines SC_HOPPER, where architecture 90 is among the library's).
 * Relied on by: k_matmul.cu.
 *
 * Blocks stay: a pair of them (a cluster) takes tiles of 2 × 128 rows and 256 columns of y in turn, one below the
 * other. A warp copies blocks of 64 of k of a (16 KiB) and of b (32 KiB, a half of which each block of the pair copies
 * for both) into four stages; the copies say in `full` that a stage is there, the warps of both blocks that multiply in
 * `empty` that it is free. Two groups of four warps have 64 rows each, as 128 fp32 sums a thread.
 *
 * A tile that is done is rounded into 64 registers (two bf16 each) and waits there. While the multiplications of the
 * next tile's blocks of k run, half a slice of it (32 columns) a block of k goes through gelu and shared memory, from
 * where it is copied to y, and to z. For gelu's gradient those registers hold the derivatives, as fp16, which are
 * computed ahead of the tile's sums: half a slice of x arrives in shared memory where half a slice of y has left.
 *
 * A gated product wants a tensor more of shared memory's width than there is room for: half a slice of the gate (for
 * the gradient of up, too) arrives in one of two places in turn, is replaced there by what it gives, and leaves; the
 * other place is filled again meanwhile. These half slices are spread over all blocks of k.
 *
 * Results do not depend on which block took a tile. */
#include "matmul_hopper.h"

#include "kernel.cuh"

#ifndef SC_HOPPER
extern "C" int sc_matmul_hopper_takes(const sc_cuda *c, const sc_matmul_key *key) {
    return (void)c, (void)key, 0;
}
extern "C" void sc_matmul_hopper(const sc_task *t, const sc_matmul_key *, void *, void *, const void *, const void *,
                                 const void *, const void *, const void *) {
    sc_unsupported(t, "matmul", "this library was made without architecture 90");
}
#else
#include "hopper.cuh"

enum { PAIR = 2, ROWS = 128, COLUMNS = 256, DEPTH = 64, STAGES = 4, THREADS = 384 };
enum { HALVES = COLUMNS / 32, LEAST = 11 }; /* half slices of a tile; blocks of k that they take */
enum { A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2, STAGE = A_BYTES + B_BYTES };
/* Shared memory, in bytes: the stages; 4096 a warp that multiplies: 16 × 64 of y, and of z or twice 16 × 32 of x; of a
 * gated product twice 16 × 32 of gate and then y, and of up and then z; then barriers, a few words and biases. */
enum { STAGED = STAGES * STAGE, OUT = 8 * 4096, MISC = STAGED + OUT };
enum { FULL = MISC, EMPTY = MISC + 64, ARRIVED = MISC + 128, WORDS = MISC + 256, BIASES = MISC + 512 };
enum { SHARED = BIASES + 4 * 512 };
static_assert(SHARED <= 227 * 1024, "a block's shared memory");

typedef struct {
    CUtensorMap a, b, y, z, x, x2;      /* those that the function has */
    const uint16_t *bias;               /* NULL: none */
    int n, blocks, pairs, across, tall; /* blocks of k; tiles: pairs from above, from the left; pairs to a group */
} product;

/* By the function f: is b [k][n], or else [n][k]? Is a bias added? Is there a gate? */
__host__ __device__ constexpr bool turned(int f) {
    return SC_HAS(f, SC_GELU | SC_TOO) || SC_HAS(f, SC_GATED | SC_GRADIENT);
}
__host__ __device__ constexpr bool biased(int f) {
    return f & SC_TOO;
}
__host__ __device__ constexpr bool gated(int f) {
    return f & SC_GATED;
}

/* ── pairs of blocks, copies ──────────────────────────────────────────────────────────────────────────────────────────
 */
/* Tiles of matrices; columns come first. `_both`: into the same place of both blocks. */
SC_DEVICE void copy_in(uint32_t to, const CUtensorMap *m, uint32_t barrier, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
                 "[%2];" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(column), "r"(row)
                 : "memory");
}
SC_DEVICE void copy_in_both(uint32_t to, const CUtensorMap *m, uint32_t barrier, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(column), "r"(row), "h"((uint16_t)3)
                 : "memory");
}
SC_DEVICE void copy_groups_in_both(uint32_t to, const CUtensorMap *m, uint32_t barrier, int row, int group) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(0), "r"(row), "r"(group), "h"((uint16_t)3)
                 : "memory");
}
SC_DEVICE void copy_out(const CUtensorMap *m, uint32_t from, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(m), "r"(from),
                 "r"(column), "r"(row)
                 : "memory");
}
/* ── gelu: x sigmoid(2 √(2/π) (x + 0.044715 x³)), by 2^x and 1/x as the GPU takes them ────────────────────────────────
 */
SC_DEVICE float low_bf16(uint32_t w) {
    return __uint_as_float(w << 16);
}
SC_DEVICE float high_bf16(uint32_t w) {
    return __uint_as_float(w & 0xffff0000u);
}
SC_DEVICE float of_fp16(uint32_t w, int high) {
    float x;
    asm("{ .reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l; }" : "=f"(x) : "r"(high ? w >> 16 : w));
    return x;
}
SC_DEVICE float gate(float x, float s) { /* the sigmoid; s: x² */
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * fmaf(s, -0.102943240f, -2.30220819f)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
    return r;
}
SC_DEVICE float gelu(float x) {
    return x * gate(x, x * x);
}
SC_DEVICE float slope(float x) { /* |x| <= 30 */
    float s = x * x, r = gate(x, s);
    return fmaf(fmaf(-r, r, r), x * fmaf(s, 0.214064449f, 1.59576912f), r);
}
SC_DEVICE uint32_t within_30(uint32_t w) { /* both; further out the slope is 0 or 1 */
    asm("min.NaN.bf16x2 %0, %0, %1;" : "+r"(w) : "r"(0x41f041f0));
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(w) : "r"(0xc1f0c1f0));
    return w;
}

/* ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int row, column; /* the first; row < 0: no tile */
} tile;

/* Tiles in turn: down through `tall` pairs of tiles, then the column of tiles to the right, so that what is worked on
 * at one time shares rows of a and columns of b. */
SC_DEVICE tile tile_at(const product &p, int t, int rank) {
    if (t >= p.pairs * p.across) return {-1, 0};
    unsigned per = (unsigned)(p.tall * p.across), group = (unsigned)t / per, first = group * p.tall;
    unsigned rest = (unsigned)t - group * per, left = (unsigned)p.pairs - first;
    unsigned tall = left < (unsigned)p.tall ? left : (unsigned)p.tall;
    unsigned column = rest / tall, pair = first + rest - column * tall;
    return {(int)(pair * PAIR + rank) * ROWS, (int)column * COLUMNS};
}

/* One thread: the copies of a and b. */
template <int F> SC_DEVICE void feed(const product &p, uint32_t base, int rank) {
    int stage = 0, phase = 1;
    for (int t = blockIdx.x / PAIR; t < p.pairs * p.across; t += gridDim.x / PAIR) {
        tile at = tile_at(p, t, rank);
        for (int k = 0; k < p.blocks; k++) {
            uint32_t a = base + stage * STAGE, b = a + A_BYTES + rank * (B_BYTES / 2), full = base + FULL + 8 * stage;
            barrier_wait(base + EMPTY + 8 * stage, phase);
            barrier_expect(full, STAGE);
            copy_in(a, &p.a, full, k * DEPTH, at.row);
            if (turned(F))
                copy_groups_in_both(b, &p.b, full, k * DEPTH, at.column / 64 + rank * 2);
            else
                copy_in_both(b, &p.b, full, k * DEPTH, at.column + rank * (COLUMNS / 2));
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* Four warps: 64 rows of every tile. Registers are indexed by constants alone. */
template <int F> SC_DEVICE void work(const product &p, uint32_t base, int rank, int group, int warp, int lane) {
    float sums[COLUMNS / 2];
    uint32_t kept[COLUMNS / 4]; /* of the tile before, done; for the gradient then this one's derivatives */
    uint32_t mine = base + STAGED + (4 * group + warp) * 4096, row = lane % 16, right = lane / 16;
    uint32_t to = mine + row * 128, from = mine + 2048 + row * 64, arrived = base + ARRIVED + 16 * (4 * group + warp);
    uint32_t release = in_block(base + EMPTY, lane & 1), biases = base + BIASES + 1024 * group;
    /* Descriptors of a and b in shared memory: rows of 128 bytes, swizzled, 1024 bytes for 8 of them; b as [k][n] in
     * groups of 64 columns, 8192 bytes each. */
    uint64_t rows = 64ull << 32 | 1ull << 62;
    uint64_t a0 = ((base + group * 8192) & 0x3ffff) >> 4 | 1ull << 16 | rows;
    uint64_t b0 = ((base + A_BYTES) & 0x3ffff) >> 4 | (turned(F) ? 512ull : 1ull) << 16 | rows;
    enum { STEP_A = 2, STEP_B = turned(F) ? 2048 >> 4 : 2 }; /* 16 of k further, in units of 16 bytes */
    int stage = 0, phase = 0, parity = 0, block = 0;
    bool begun = false; /* a tile is in kept */
    tile before = {-1, 0}, now = tile_at(p, blockIdx.x / PAIR, rank), next = now;
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) sums[i] = 0;
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) kept[i] = 0;

    uint32_t zero; /* which the compiler does not know */
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(zero) : "r"(base + WORDS + 8) : "memory");
    /* Of x, 16 rows and 32 columns. */
    auto fetch = [&](int half, tile at) {
        if (lane) return;
        barrier_expect(arrived + 8 * (half & 1), 1024);
        copy_in(mine + 2048 + 1024 * (half & 1), &p.x, arrived + 8 * (half & 1), at.column + 32 * half,
                at.row + group * 64 + warp * 16);
    };
    auto half_slice = [&](auto which, bool last) {
        constexpr int half = decltype(which)::value;
        uint32_t *r = kept + 8 * half, y[8];
        uint32_t c[2] = {((4 * (half % 2) + right) ^ lane % 8) << 4, ((4 * (half % 2) + 2 + right) ^ lane % 8) << 4};
        if (SC_HAS(F, SC_GELU | SC_TOO)) {
            uint32_t shift, mask; /* read here, or else the arithmetic moves before the multiplications */
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(shift), "=r"(mask) : "r"(base + WORDS) : "memory");
#pragma unroll
            for (int i = 0; i < 8; i++)
                y[i] = two_bf16(gelu(__uint_as_float(r[i] << shift)), gelu(__uint_as_float(r[i] & mask)));
        }
        if (half % 2 == 0) {
            if (lane == 0) copied_from();
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            put_pieces(to + c[i], SC_HAS(F, SC_GELU | SC_TOO) ? y + 4 * i : r + 4 * i);
            if (SC_HAS(F, SC_GELU | SC_TOO)) put_pieces(to + 2048 + c[i], r + 4 * i);
        }
        if (half % 2 == 1) {
            shared_fence();
            __syncwarp();
            if (lane == 0 && before.row >= 0) {
                int column = before.column + 32 * (half - 1), first = before.row + group * 64 + warp * 16;
                if (SC_HAS(F, SC_GELU | SC_TOO)) copy_out(&p.z, mine + 2048, column, first);
                copy_out(&p.y, mine, column, first);
                copies_out();
            }
        }
        if (SC_HAS(F, SC_GELU | SC_GRADIENT) && !last) {
            barrier_wait(arrived + 8 * (half & 1), half / 2 & 1);
            __syncwarp();
            uint32_t at = from + 1024 * (half & 1), turn = row / 2 % 4;
            get_pieces(at + ((right ^ turn) << 4), r);
            get_pieces(at + (((2 + right) ^ turn) << 4), r + 4);
            /* The next copy into this place must not overtake the loads: where it comes from is said with what they
             * gave (nothing is added). */
            int none = (int)((r[3] | r[7]) & zero);
            if (half + 2 < HALVES)
                fetch(half + 2, {now.row, now.column + none});
            else if (next.row >= 0)
                fetch(half + 2 - HALVES, {next.row, next.column + none});
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t x = within_30(r[i]);
                r[i] = two_fp16(slope(low_bf16(x)), slope(high_bf16(x)));
            }
        }
    };
    /* Of the gate and of up, into the place that half a slice of the results has left. */
    auto fetch_gate = [&](int half, tile at) {
        if (lane) return;
        uint32_t to = mine + 2048 * (half & 1), barrier = arrived + 8 * (half & 1);
        int column = at.column + 32 * half, first = at.row + group * 64 + warp * 16;
        copied_from();
        barrier_expect(barrier, SC_HAS(F, SC_GATED | SC_TOO) ? 1024 : 2048);
        copy_in(to, &p.x, barrier, column, first);
        if (SC_HAS(F, SC_GATED | SC_GRADIENT)) copy_in(to + 1024, &p.x2, barrier, column, first);
    };
    /* kept: rounded products. Where none has begun, the results stay here. */
    auto gated_half_slice = [&](auto which, bool last) {
        constexpr int half = decltype(which)::value;
        uint32_t at = mine + 2048 * (half & 1) + row * 64, turn = row / 2 % 4;
        if (half + 1 < HALVES)
            fetch_gate(half + 1, before);
        else if (!last)
            fetch_gate(0, now);
        barrier_wait(arrived + 8 * (half & 1), half / 2 & 1);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t g[4], u[4], *r = kept + 8 * half + 4 * i, piece = at + (((2 * i + right) ^ turn) << 4);
            get_pieces(piece, g);
            if (SC_HAS(F, SC_GATED | SC_GRADIENT)) get_pieces(piece + 1024, u);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float x0 = low_bf16(g[j]), x1 = high_bf16(g[j]), r0 = low_bf16(r[j]), r1 = high_bf16(r[j]), y[4];
                if (SC_HAS(F, SC_GATED | SC_TOO)) {
                    g[j] = two_bf16(sc_silu_mul(x0, r0), sc_silu_mul(x1, r1));
                    u[j] = r[j];
                } else {
                    sc_silu_mul_grad(r0, x0, low_bf16(u[j]), &y[0], &y[2]);
                    sc_silu_mul_grad(r1, x1, high_bf16(u[j]), &y[1], &y[3]);
                    g[j] = two_bf16(y[0], y[1]);
                    u[j] = two_bf16(y[2], y[3]);
                }
            }
            put_pieces(piece, g);
            put_pieces(piece + 1024, u);
        }
        shared_fence();
        __syncwarp();
        if (lane == 0 && begun) {
            int column = before.column + 32 * half, first = before.row + group * 64 + warp * 16;
            copy_out(&p.y, mine + 2048 * (half & 1), column, first);
            copy_out(&p.z, mine + 2048 * (half & 1) + 1024, column, first);
            copies_out();
        }
    };
    /* The stage before this one. */
    auto let_go = [&] {
        if (lane < PAIR) barrier_arrive(release + 8 * (stage ? stage - 1 : STAGES - 1));
    };
    /* half: what of the tile before is done beside it; -1: nothing. */
    auto block_of_k = [&](int k, auto half) {
        uint64_t a = a0 + stage * (STAGE >> 4), b = b0 + stage * (STAGE >> 4);
        barrier_wait(base + FULL + 8 * stage, phase);
        sums_fence();
#pragma unroll
        for (int i = 0; i < DEPTH / 16; i++)
            sums_add<sc_bf16, 0, turned(F)>(sums, a + STEP_A * i, b + STEP_B * i, k > 0 || i > 0);
        sums_commit();
        sums_wait<1>();
        if (k > 0) let_go();
        if constexpr (decltype(half)::value >= 0 && gated(F)) gated_half_slice(half, false);
        if constexpr (decltype(half)::value >= 0 && !gated(F)) half_slice(half, false);
        if (++stage == STAGES) stage = 0, phase ^= 1;
    };
    /* Pairs of columns, four of a lane's together. */
    auto take_biases = [&] {
        int pair = warp * 32 + lane, j = pair / 4;
        uint32_t w = p.bias && now.column + 2 * pair < p.n ? *(const uint32_t *)(p.bias + now.column + 2 * pair) : 0;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(biases + 512 * parity + 16 * (j / 4 * 4 + pair % 4) + 4 * (j % 4)),
                     "r"(w)
                     : "memory");
    };
    /* From sums to kept. */
    auto finish = [&] {
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j += 4) {
            uint32_t w[4];
            if (biased(F))
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                             : "r"(biases + 512 * parity + 16 * (j + lane % 4))
                             : "memory");
#pragma unroll
            for (int i = j; i < j + 4; i++)
#pragma unroll
                for (int u = 0; u < 2; u++) {
                    float low = sums[4 * i + 2 * u], high = sums[4 * i + 2 * u + 1];
                    uint32_t *to = kept + 2 * i + u;
                    if (SC_HAS(F, SC_GELU | SC_GRADIENT)) low *= of_fp16(*to, 0), high *= of_fp16(*to, 1);
                    if (biased(F)) low += low_bf16(w[i - j]), high += high_bf16(w[i - j]);
                    *to = two_bf16(low, high);
                }
        }
    };
#define HALF(i) std::integral_constant<int, i>()

    /* All halves, each followed by its share of the other blocks of k. */
    auto spread = [&](auto half) {
        constexpr int h = decltype(half)::value;
        block_of_k(block++, half);
#pragma unroll 1
        for (int n = (h + 1) * (p.blocks - HALVES) / HALVES - h * (p.blocks - HALVES) / HALVES; n > 0; n--)
            block_of_k(block++, HALF(-1));
    };

    if (SC_HAS(F, SC_GELU | SC_GRADIENT) && now.row >= 0) fetch(0, now), fetch(1, now);
    if (gated(F) && now.row >= 0) before = now, fetch_gate(0, now);
    for (int t = blockIdx.x / PAIR; now.row >= 0;
         t += gridDim.x / PAIR, before = now, now = next, parity ^= 1, begun = true) {
        next = tile_at(p, t + gridDim.x / PAIR, rank);
        if (biased(F)) take_biases();
        if constexpr (gated(F)) {
            block = 0;
            spread(HALF(0)), spread(HALF(1)), spread(HALF(2)), spread(HALF(3));
            spread(HALF(4)), spread(HALF(5)), spread(HALF(6)), spread(HALF(7));
            if (SC_HAS(F, SC_GATED | SC_TOO)) group_sync(group);
        } else {
            block_of_k(0, HALF(0)), block_of_k(1, HALF(1)), block_of_k(2, HALF(-1));
            block_of_k(3, HALF(2)), block_of_k(4, HALF(3)), block_of_k(5, HALF(-1));
            block_of_k(6, HALF(4)), block_of_k(7, HALF(5)), block_of_k(8, HALF(-1));
            block_of_k(9, HALF(6)), block_of_k(10, HALF(7));
            if (SC_HAS(F, SC_GELU | SC_TOO)) group_sync(group); /* biases are there */
#pragma unroll 1
            for (int k = LEAST; k < p.blocks; k++) block_of_k(k, HALF(-1));
        }
        sums_wait<0>();
        let_go();
        finish();
    }
    auto rest = [&](auto half) {
        if constexpr (gated(F))
            gated_half_slice(half, true);
        else
            half_slice(half, true);
    };
    if (begun) {
        rest(HALF(0)), rest(HALF(1)), rest(HALF(2)), rest(HALF(3));
        rest(HALF(4)), rest(HALF(5)), rest(HALF(6)), rest(HALF(7));
    }
    if (lane == 0) copied_out();
}

template <int F> static __global__ void __launch_bounds__(THREADS, 1) multiply(const __grid_constant__ product p) {
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    int warp = threadIdx.x / 32, rank = blockIdx.x % PAIR;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(base + FULL + 8 * s, 1);
            barrier_init(base + EMPTY + 8 * s, 8 * PAIR);
        }
        for (int i = 0; i < 16; i++) barrier_init(base + ARRIVED + 8 * i, 1);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %3};" ::"r"(base + WORDS), "r"(16), "r"(0xffff0000), "r"(0)
                     : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    cluster_sync();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) feed<F>(p, base, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work<F>(p, base, rank, warp / 4 - 1, warp % 4, threadIdx.x % 32);
    }
    cluster_sync(); /* neither leaves while the other may still write its barriers */
}

/* ── host ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static CUtensorMap matrix(const void *p, int64_t rows, int64_t columns, int64_t ld, int box_rows,
                          int box_columns) {
    const cuuint64_t size[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[1] = {(cuuint64_t)ld * 2};
    const cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    return sc_tiles(BF16, p, 2, size, stride, box);
}
/* b[k][n] as [n / 64][k][64], of which boxes take half a tile's columns. */
static CUtensorMap groups(const void *p, int64_t k, int64_t n, int64_t ld) {
    const cuuint64_t size[3] = {64, (cuuint64_t)k, (cuuint64_t)n / 64}, stride[2] = {(cuuint64_t)ld * 2, 128};
    const cuuint32_t box[3] = {64, DEPTH, COLUMNS / PAIR / 64};
    return sc_tiles(BF16, p, 3, size, stride, box);
}

/* Where it was measured to gain: whole tiles, eight of them a multiprocessor, k of LEAST blocks or more, of gelu up to
 * 32. A block of this kernel has a multiprocessor of its own to the end, which those of a reduction beside it may have.
 * Forward there are none (gathers are copies); a gate's gradient leaves them their places; gelu's gradient gained
 * nothing so. */
extern "C" int sc_matmul_hopper_takes(const sc_cuda *c, const sc_matmul_key *k) {
    bool same = c->major == 9 && c->minor == 0 && k->in == BF16 && k->out == BF16;
    bool function = k->f & (SC_TOO | SC_GRADIENT) && !k->tb == turned(k->f);
    bool bias = !k->bias || (biased(k->f) && k->align_bias >= 2);
    bool alone = c->world == 1 || !SC_HAS(k->f, SC_GELU | SC_GRADIENT);
    bool plain = !k->ta && !k->add && k->batches == 1 && k->ldy == k->n && (k->lda | k->ldb) % 8 == 0;
    bool aligned = k->align_a >= 4 && k->align_b >= 4 && k->align_y >= 4 && k->align_c >= 4;
    bool whole = k->m % (PAIR * ROWS) == 0 && k->n % COLUMNS == 0 && k->k % DEPTH == 0;
    bool small = k->m < INT32_MAX && k->n < INT32_MAX && k->m * k->n / (ROWS * COLUMNS) < INT32_MAX;
    bool deep = k->k >= LEAST * DEPTH && (gated(k->f) || k->k <= 32 * DEPTH);
    return same && function && bias && alone && plain && aligned && whole && small && deep &&
           k->m * k->n / (ROWS * COLUMNS) >= 8 * c->multiprocessors;
}

template <int F> static void start(const sc_task *t, const product &p) {
    const sc_cuda *c = sc_library(t);
    int taken = SC_HAS(F, SC_GATED | SC_GRADIENT) && c->world > 1 ? SC_SUM_BLOCKS : 0;
    int pairs = (c->multiprocessors - taken) / PAIR;
    sc_launch_clusters(multiply<F>, pairs > 1 ? pairs : 1, PAIR, THREADS, SHARED, SC_STREAM(t), p);
}

extern "C" void sc_matmul_hopper(const sc_task *t, const sc_matmul_key *k, void *y, void *z, const void *a,
                                 const void *b, const void *bias, const void *x, const void *x2) {
    product p = {};
    int leaving = gated(k->f) ? 32 : 64; /* columns that leave at a time: half a slice, or all of it */
    p.a = matrix(a, k->m, k->k, k->lda, ROWS, DEPTH);
    p.b = k->tb ? matrix(b, k->n, k->k, k->ldb, COLUMNS / PAIR, DEPTH) : groups(b, k->k, k->n, k->ldb);
    p.y = matrix(y, k->m, k->n, k->ldy, 16, leaving);
    if (z) p.z = matrix(z, k->m, k->n, k->ldy, 16, leaving);
    if (x) p.x = matrix(x, k->m, k->n, k->ldy, 16, 32);
    if (x2) p.x2 = matrix(x2, k->m, k->n, k->ldy, 16, 32);
    p.bias = (const uint16_t *)bias;
    p.n = (int)k->n;
    p.blocks = (int)(k->k / DEPTH);
    p.pairs = (int)(k->m / (PAIR * ROWS));
    p.across = (int)(k->n / COLUMNS);
    p.tall = 8;
    (SC_HAS(k->f, SC_GELU | SC_TOO)        ? start<SC_GELU | SC_TOO>
     : SC_HAS(k->f, SC_GELU | SC_GRADIENT) ? start<SC_GELU | SC_GRADIENT>
     : SC_HAS(k->f, SC_GATED | SC_TOO)     ? start<SC_GATED | SC_TOO>
                                           : start<SC_GATED | SC_GRADIENT>)(t, p);
}
#endif
