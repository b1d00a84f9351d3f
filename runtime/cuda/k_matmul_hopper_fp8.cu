/* Products of 8 bits, of which gelu or a gate is quantized beside the next tile's multiplications.
 * Relies on: matmul_hopper_fp8.h, fp8.cuh, magnitude.cuh, hopper.cuh; sm_90a, as k_matmul_hopper.cu. Relied on by:
 * k_matmul_quantize.cu.
 *
 * Blocks stay: a pair of them (a cluster) takes tiles of 2 × 128 rows and 256 lines of b in turn, as in
 * k_matmul_hopper.cu. Of a gate these are 128 columns of the gate and the same of z, so that a thread has both of an
 * element. A tile that is done is rounded into 64 registers and waits there; an eighth of it at a time becomes bytes
 * while the next tile's blocks of k, 128 each, are multiplied. Sums are the tensor cores' own, as the library's of e4m3
 * by e4m3 (k_matmul.cu).
 *
 * The copies put rows 2 i of 16 before rows 2 i + 1, so that a thread's sums are of two neighbouring rows: two bytes of
 * the transpose. Four warps fill two places with 64 × 32 of what is wide, one with 64 × 64 of y and one with its
 * transpose, which one thread sends. */
#include "matmul_hopper_fp8.h"

#include "fp8.cuh"
#include "magnitude.cuh"

#ifndef SC_HOPPER
bool sc_matmul_hopper_quantize(const sc_task *, const sc_matmul_quantize_args *) {
    return false;
}
#else
#include "hopper.cuh"

enum { PAIR = 2, ROWS = 128, LINES = 256 /* of b */, DEPTH = 128, STAGES = 4, THREADS = 384, CHUNKS = 8 };
enum { A_BYTES = ROWS * DEPTH, B_BYTES = LINES * DEPTH, STAGE = A_BYTES + B_BYTES };
/* Shared memory, in bytes: the stages; of each four warps two places for what is wide, one for y and one for its
 * transpose; barriers, words, biases. */
enum { STAGED = STAGES * STAGE, PLACE = 4096, OUT = 2 * 4 * PLACE };
enum { FULL = STAGED + OUT, EMPTY = FULL + 64, WORDS = FULL + 128, BIASES = FULL + 256, SHARED = BIASES + 4 * 512 };
static_assert(SHARED <= 227 * 1024, "a block's shared memory");

typedef struct {
    CUtensorMap a, b[2], z, gate, y, turned; /* b: of each half of a stage's lines */
    const float *scale_a, *scale_b[2], *amax;
    float *scale, *seen;
    const uint16_t *bias;            /* NULL: none */
    int blocks, pairs, across, tall; /* blocks of k; tiles: pairs from above, from the left; pairs to a group */
    bool find;                       /* where amax is 0 `seen` alone is written */
} product;

template <class P> constexpr bool gates = P::IN == 2;
template <class P> constexpr int columns = gates<P> ? LINES / 2 : LINES; /* of z in a tile */

/* ── tiles, copies ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int row, column; /* the first; row < 0: no tile */
} tile;

/* As in k_matmul_hopper.cu. */
template <class P> SC_DEVICE tile tile_at(const product &p, int t, int rank) {
    if (t >= p.pairs * p.across) return {-1, 0};
    unsigned per = (unsigned)(p.tall * p.across), group = (unsigned)t / per, first = group * p.tall;
    unsigned rest = (unsigned)t - group * per, left = (unsigned)p.pairs - first;
    unsigned tall = left < (unsigned)p.tall ? left : (unsigned)p.tall;
    unsigned column = rest / tall, pair = first + rest - column * tall;
    return {(int)(pair * PAIR + rank) * ROWS, (int)column * columns<P>};
}

SC_DEVICE void copy_rows_in(uint32_t to, const CUtensorMap *m, uint32_t barrier, int k, int row) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %4, "
                 "%5}], [%2];" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(k), "r"(0), "r"(row / 16)
                 : "memory");
}
SC_DEVICE void copy_lines_in_both(uint32_t to, const CUtensorMap *m, uint32_t barrier, int k, int line) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(k), "r"(line), "h"((uint16_t)3)
                 : "memory");
}
SC_DEVICE void copy_out(const CUtensorMap *m, uint32_t from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(m), "r"(from),
                 "r"(x), "r"(y)
                 : "memory");
}

/* One thread: the copies of a, and of b for both blocks one half. */
template <class P> SC_DEVICE void feed(const product &p, uint32_t base, int rank) {
    int stage = 0, phase = 1, further = gates<P> ? 0 : rank * (LINES / 2);
    for (int t = blockIdx.x / PAIR; t < p.pairs * p.across; t += gridDim.x / PAIR) {
        tile at = tile_at<P>(p, t, rank);
        for (int k = 0; k < p.blocks; k++) {
            uint32_t a = base + stage * STAGE, b = a + A_BYTES + rank * (B_BYTES / 2), full = base + FULL + 8 * stage;
            barrier_wait(base + EMPTY + 8 * stage, phase);
            barrier_expect(full, STAGE);
            copy_rows_in(a, &p.a, full, k * DEPTH, at.row);
            copy_lines_in_both(b, &p.b[rank], full, k * DEPTH, at.column + further);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* ── bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE void put_word(uint32_t to, uint32_t w) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(w) : "memory");
}
/* Of 8 columns two of a row, and the same of the next row: the bytes of both columns, each of two rows. */
SC_DEVICE uint32_t two_rows(const float *y) {
    return two_fp8(false, y[0], y[2]) | two_fp8(false, y[1], y[3]) << 16;
}
/* Twice those: to where this lane's column of lane % 16 begins, of this warp's 16 rows. */
SC_DEVICE void put_turned(uint32_t to, const uint32_t *w) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(w[0]), "r"(w[1])
                 : "memory");
}
/* Of both rows this lane's word of four columns, which stands word_of() bytes from the first of the 16. */
SC_DEVICE uint2 words_of(const uint32_t *w, int lane) {
    bool odd = lane & 1;
    uint32_t a = bytes_of(w[0], 0, 0x3120), b = bytes_of(w[1], 0, 0x3120), mine = odd ? b : a;
    uint32_t other = __shfl_xor_sync(SC_ALL, odd ? a : b, 1), left = odd ? other : mine, right = odd ? mine : other;
    return make_uint2(bytes_of(left, right, 0x5410), bytes_of(left, right, 0x7632));
}
SC_DEVICE int word_of(int lane) {
    return (lane & 1) * 8 + lane % 4 / 2 * 4;
}
SC_DEVICE float known_amax(const product &p) {
    return *p.amax == 0 ? *(volatile const float *)p.seen : *p.amax;
}

/* ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Of n = 256; 32 of k further is 2 more. */
SC_DEVICE void sums_add_256(float (&d)[128], uint64_t a, uint64_t b, int add) {
    asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" SC_REGISTERS_128
                 "}, %128, %129, add, 1, 1; }"
                 : SC_OUT_128(d)
                 : "l"(a), "l"(b), "r"(add));
}

/* Four warps: 64 rows of every tile. Registers are indexed by constants alone. */
template <class P> SC_DEVICE void work(const product &p, uint32_t base, int rank, int group, int warp, int lane) {
    constexpr bool GATE = gates<P>;
    float sums[LINES / 2];
    uint32_t kept[LINES / 4]; /* of the tile before: of each 8 columns two rows of z, or of the gate and of up */
    uint32_t mine = base + STAGED + group * 4 * PLACE, release = in_block(base + EMPTY, lane & 1);
    uint32_t here = base & 0x3ffff, biases = base + BIASES + 1024 * group;
    uint64_t a0 = matrix_rows(here + group * 64 * DEPTH), b0 = matrix_rows(here + A_BYTES);
    float scale = *p.scale_a * *p.scale_b[1], of_gate = *p.scale_a * *p.scale_b[0];
    float amax = known_amax(p), by = amax == 0 ? 1 : 448.0f / amax;
    int stage = 0, phase = 0, parity = 0, block = 0, most = 0;
    bool first = warp == 0 && lane == 0, begun = false;
    tile before = {-1, 0}, now = tile_at<P>(p, blockIdx.x / PAIR, rank), next = now;
    /* where this lane writes: of what is wide, a row of one of four pieces; of y; of the transpose */
    int row = warp * 16 + 2 * (lane % 8) + lane / 8 % 2, own = warp * 16 + lane / 4 * 2;
    uint32_t to_wide = mine + row * 64, to_y = mine + 2 * PLACE + own * 64 + word_of(lane);
    uint32_t to_turned = mine + 3 * PLACE + lane % 16 * 64 + ((warp ^ lane % 8 / 2) << 4);
#pragma unroll
    for (int i = 0; i < LINES / 2; i++) sums[i] = 0;
#pragma unroll
    for (int i = 0; i < LINES / 4; i++) kept[i] = 0;

    /* What two places hold since this chunk and the one before it. */
    auto send = [&](int chunk) {
        int line = before.row + group * 64, column = before.column + (GATE ? 16 : 32) * (chunk - 1);
        copy_out(GATE ? &p.gate : &p.z, mine, column, line);
        copy_out(&p.z, mine + PLACE, column + (GATE ? 0 : 32), line);
        if (!GATE || chunk % 4 == 3) {
            column -= GATE ? 32 : 0;
            copy_out(&p.y, mine + 2 * PLACE, column, line);
            copy_out(&p.turned, mine + 3 * PLACE, line, column);
        }
        copies_out();
    };
    /* Of 16 columns their bytes, as two_rows() has them. */
    auto quantize = [&](const uint32_t *r, uint32_t *bytes, uint32_t shift, uint32_t mask) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float y[4]; /* two columns of a row, of the next row */
#pragma unroll
            for (int u = 0; u < 4; u++) {
                uint32_t z = r[GATE ? 4 * i + 2 + u / 2 : 2 * i + u / 2], gate = r[GATE ? 4 * i + u / 2 : 0];
                float in[2] = {__uint_as_float(u % 2 ? z & mask : z << shift),
                               __uint_as_float(u % 2 ? gate & mask : gate << shift)};
                P::of(in, &y[u]);
                most = max(most, magnitude_of(y[u]));
                y[u] = sc_fma(y[u], by, y[u] * 0.0f); /* what is infinite becomes NaN */
            }
            bytes[i] = two_rows(y);
        }
    };
    auto chunk_of = [&](auto which) {
        constexpr int chunk = decltype(which)::value, PARTS = GATE ? 1 : 2;
        const uint32_t *r = kept + 8 * chunk;
        uint32_t shift, mask, bytes[2 * PARTS]; /* read here, or else the arithmetic moves before the multiplications */
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(shift), "=r"(mask) : "r"(base + WORDS) : "memory");
#pragma unroll
        for (int i = 0; i < PARTS; i++) quantize(r + 4 * i, bytes + 2 * i, shift, mask);
        if (p.find) return;
        if (chunk % 2 == 0) {
            if (first) copied_from();
            group_sync(group);
        }
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            int sixteenth = GATE ? chunk % 4 : chunk % 2 * 2 + i; /* of 64 columns */
            uint32_t lies = to_y + ((sixteenth ^ lane / 4 % 4) << 4);
            uint2 rows = words_of(bytes + 2 * i, lane);
            put_turned(to_turned + sixteenth * 16 * 64, bytes + 2 * i);
            put_word(lies, rows.x);
            put_word(lies + 64, rows.y);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) { /* the gate and z, or 16 columns of z */
            uint32_t w[4] = {r[GATE ? 2 * i : 4 * i], r[GATE ? 2 * i + 1 : 4 * i + 1], r[GATE ? 2 * i + 4 : 4 * i + 2],
                             r[GATE ? 2 * i + 5 : 4 * i + 3]};
            int piece = 2 * (GATE ? chunk % 2 : i) + lane / 16;
            put_pieces(to_wide + (GATE ? i : chunk % 2) * PLACE + ((piece ^ lane % 4) << 4), w);
        }
        if (chunk % 2 == 1) {
            shared_fence();
            group_sync(group);
            if (first && begun) send(chunk);
        }
    };
    /* The stage before this one. */
    auto let_go = [&] {
        if (lane < PAIR) barrier_arrive(release + 8 * (stage ? stage - 1 : STAGES - 1));
    };
    /* chunk: what of the tile before is done beside it; -1: nothing. */
    auto block_of_k = [&](int k, auto chunk) {
        uint64_t a = a0 + stage * (STAGE >> 4), b = b0 + stage * (STAGE >> 4);
        barrier_wait(base + FULL + 8 * stage, phase);
        sums_fence();
#pragma unroll
        for (int i = 0; i < DEPTH / 32; i++) sums_add_256(sums, a + 2 * i, b + 2 * i, k > 0 || i > 0);
        sums_commit();
        sums_wait<1>();
        if (k > 0) let_go();
        if constexpr (decltype(chunk)::value >= 0) chunk_of(chunk);
        if (++stage == STAGES) stage = 0, phase ^= 1;
    };
    /* Pairs of columns, four of a lane's together. */
    auto take_biases = [&] {
        int pair = warp * 32 + lane, j = pair / 4;
        uint32_t w = p.bias ? *(const uint32_t *)(p.bias + now.column + 2 * pair) : 0;
        put_word(biases + 512 * parity + 16 * (j / 4 * 4 + pair % 4) + 4 * (j % 4), w);
    };
    /* From sums to kept. */
    auto finish = [&] {
#pragma unroll
        for (int j = 0; j < LINES / 8; j++) {
            uint32_t w = 0;
            if (!GATE)
                asm volatile("ld.shared.u32 %0, [%1];"
                             : "=r"(w)
                             : "r"(biases + 512 * parity + 16 * (j / 4 * 4 + lane % 4) + 4 * (j % 4))
                             : "memory");
#pragma unroll
            for (int u = 0; u < 2; u++) {
                const float *d = sums + 4 * j + 2 * u;
                int of = j / (LINES / 16), i = j % (LINES / 16); /* of a gate: z behind it */
                if (GATE)
                    kept[4 * i + 2 * of + u] = of ? sc_pack<sc_bf16>(d[0] * scale, d[1] * scale)
                                                  : sc_pack<sc_bf16>(d[0] * of_gate, d[1] * of_gate);
                else
                    kept[2 * j + u] = sc_pack<sc_bf16>(d[0] * scale + __uint_as_float(w << 16),
                                                       d[1] * scale + __uint_as_float(w & 0xffff0000u));
            }
        }
    };
#define CHUNK(i) std::integral_constant<int, i>()
    /* A chunk, followed by its share of the other blocks of k. */
    auto spread = [&](auto chunk) {
        constexpr int h = decltype(chunk)::value;
        block_of_k(block++, chunk);
#pragma unroll 1
        for (int n = (h + 1) * (p.blocks - CHUNKS) / CHUNKS - h * (p.blocks - CHUNKS) / CHUNKS; n > 0; n--)
            block_of_k(block++, CHUNK(-1));
    };
    for (int t = blockIdx.x / PAIR; now.row >= 0;
         t += gridDim.x / PAIR, before = now, now = next, parity ^= 1, begun = true) {
        next = tile_at<P>(p, t + gridDim.x / PAIR, rank);
        if (!GATE) take_biases();
        block = 0;
        spread(CHUNK(0)), spread(CHUNK(1)), spread(CHUNK(2)), spread(CHUNK(3));
        spread(CHUNK(4)), spread(CHUNK(5)), spread(CHUNK(6)), spread(CHUNK(7));
        if (!GATE) group_sync(group); /* biases are there */
        sums_wait<0>();
        let_go();
        finish();
    }
    if (begun) {
        chunk_of(CHUNK(0)), chunk_of(CHUNK(1)), chunk_of(CHUNK(2)), chunk_of(CHUNK(3));
        chunk_of(CHUNK(4)), chunk_of(CHUNK(5)), chunk_of(CHUNK(6)), chunk_of(CHUNK(7));
    }
    most = __reduce_max_sync(SC_ALL, most);
    if (lane == 0) atomicMax((int *)p.seen, most);
    if (first) copied_out();
}

template <class P> static __global__ void __launch_bounds__(THREADS, 1) multiply(const __grid_constant__ product p) {
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    int warp = threadIdx.x / 32, rank = blockIdx.x % PAIR;
    if (p.find && *p.amax != 0) return;
    if (threadIdx.x == 0) {
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(base + WORDS), "r"(16), "r"(0xffff0000) : "memory");
        for (int s = 0; s < STAGES; s++) {
            barrier_init(base + FULL + 8 * s, 1);
            barrier_init(base + EMPTY + 8 * s, 8 * PAIR);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (blockIdx.x == 0 && !p.find) {
            float amax = known_amax(p);
            *p.scale = amax == 0 ? 1 : amax / 448.0f;
        }
    }
    __syncthreads();
    cluster_sync();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) feed<P>(p, base, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work<P>(p, base, rank, warp / 4 - 1, warp % 4, threadIdx.x % 32);
    }
    cluster_sync(); /* neither leaves while the other may still write its barriers */
}

/* ── host ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static CUtensorMap matrix(int dtype, const void *p, int64_t rows, int64_t columns, int box_rows, int box_columns) {
    const cuuint64_t size[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t stride[1] = {(cuuint64_t)columns * sc_size((sc_dtype)dtype)};
    const cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    return sc_tiles(dtype, p, 2, size, stride, box);
}
/* Rows of k bytes, those of even numbers in 16 first. */
static CUtensorMap rows_by_two(const void *p, int64_t rows, int64_t k) {
    const cuuint64_t size[4] = {(cuuint64_t)k, 8, 2, (cuuint64_t)rows / 16};
    const cuuint64_t stride[3] = {(cuuint64_t)k * 2, (cuuint64_t)k, (cuuint64_t)k * 16};
    const cuuint32_t box[4] = {DEPTH, 8, 2, ROWS / 16};
    return sc_tiles(FP8_E4M3, p, 4, size, stride, box);
}

template <class P> static void start(const sc_task *t, product p, int64_t n) {
    int64_t pairs = sc_library(t)->multiprocessors / PAIR;
    p.across = (int)(n / columns<P>);
    for (int find = 1; find >= 0; find--) {
        p.find = find;
        sc_launch_clusters(multiply<P>, pairs > 1 ? pairs : 1, PAIR, THREADS, SHARED, SC_STREAM(t), p);
    }
}

/* Where it was measured to gain (one H200, 2026-11-30): whole tiles, eight of them a multiprocessor, k of CHUNKS blocks
 * or more. Groups of 8 pairs were faster than of 4 or 16. */
bool sc_matmul_hopper_quantize(const sc_task *t, const sc_matmul_quantize_args *k) {
    const sc_cuda *c = sc_library(t);
    bool gated = k->f == SC_GATED;
    int64_t rows = rows_of(&k->a), depth = cols_of(&k->a), n = k->b.shape[0], wide = gated ? 2 * n : n;
    bool here = c && c->major == 9 && c->minor == 0 && k->z.dtype == BF16 && (!k->bias.p || k->bias.dtype == BF16);
    bool whole = rows % (PAIR * ROWS) == 0 && wide % LINES == 0 && depth % 16 == 0 && depth > (CHUNKS - 1) * DEPTH;
    if (!here || !whole || rows * wide / (ROWS * LINES) < 8 * c->multiprocessors || !aligned(k->bias.p, 4))
        return false;
    for (const sc_tensor *x : {&k->a, &k->b, &k->b_gate, &k->z, &k->gate, &k->y, &k->turned})
        if (!aligned(x->p, 16)) return false;
    product p = {};
    const sc_tensor *b[] = {gated ? &k->b_gate : &k->b, &k->b},
                    *scale_b[] = {gated ? &k->scale_gate : &k->scale_b, &k->scale_b};
    p.a = rows_by_two(k->a.p, rows, depth);
    for (int i = 0; i < 2; i++) {
        p.b[i] = matrix(FP8_E4M3, b[i]->p, n, depth, LINES / 2, DEPTH);
        p.scale_b[i] = (const float *)scale_b[i]->p;
    }
    p.z = matrix(BF16, k->z.p, rows, n, 64, 32);
    if (gated) p.gate = matrix(BF16, k->gate.p, rows, n, 64, 32);
    p.y = matrix(FP8_E4M3, k->y.p, rows, n, 64, 64);
    p.turned = matrix(FP8_E4M3, k->turned.p, n, rows, 64, 64);
    p.scale_a = (const float *)k->scale_a.p;
    p.amax = (const float *)k->amax.p, p.scale = (float *)k->scale.p, p.seen = (float *)k->seen.p;
    p.bias = (const uint16_t *)k->bias.p;
    p.blocks = (int)ceil_div(depth, DEPTH), p.pairs = (int)(rows / (PAIR * ROWS)), p.tall = 8;
    if (gated)
        start<::gated>(t, p, n);
    else
        start<gelu>(t, p, n);
    return true;
}
#endif
