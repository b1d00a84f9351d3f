/* attention, backward, for compute capability 9.0: the arithmetic of k_attention_grad.cu by wgmma, five products.
 * Relies on: attention_hopper_grad.cuh; sm_90a (the Makefile compiles this file for it, and defines
 * SC_HOPPER, where architecture 90 is among the library's).
 * Relied on by: k_attention_grad.cu.
 *
 * Blocks stay and draw jobs. A job has 128 keys of one key head and goes through the query heads of its group and, of
 * each, the tiles of 64 queries that see them. dk and dv stay in registers: 64 keys for each of two groups of four
 * warps. A tile's part of dq goes to shared memory, from where one of two warps adds it to fp32 sums in memory: the
 * copy engine adds. Another warp copies k and v of a job and q, go, lse and delta of its tiles.
 *
 * Parts of dq must arrive in a fixed order, so that bits repeat: a counter for each tile of queries says how many have
 * (FlashAttention 2 and 3 do so). The order decides how long blocks wait for each other:
 *   - Blocks of keys come in ascending order, tiles of queries in descending order. Then the block of keys n + 1, drawn
 *     after n, follows it one tile behind, and goes on so in the jobs that follow.
 *   - Under causality block n has N - n shares. A job so has two blocks, n of the lower half and N - 1 - n of the upper
 *     one: all jobs are equally long. The upper half comes in descending order of keys and ascending order of queries,
 *     where again a block follows the one before it without waiting. Its parts go to sums of their own, so that no job
 *     waits for a later one: jobs are drawn in their order, so that what is waited for always runs.
 * The first part of a tile is stored, the others are added. A last kernel adds up the two sums and rounds.
 *
 * A GPU has no work for all its multiprocessors where key heads are few: then several jobs share a block of keys, each
 * with some of the query heads, and dk and dv are added up in the same way, in the order of the jobs. */
#include "attention_hopper.h"

#ifndef SC_HOPPER
bool sc_attention_hopper_grad(const sc_task *, const attention &, int, int64_t) {
    return false;
}
#else
#include "attention_hopper_grad.cuh"

template <int D_> struct shape {
    static constexpr int D = D_, DV = D, KEYS = SC_HOPPER_KEYS, STAGES = 2;
    static constexpr int Q_BYTES = QUERIES * D * 2, GO_BYTES = Q_BYTES, K_BYTES = KEYS * D * 2, V_BYTES = K_BYTES;
    static constexpr int PART = QUERIES * D * 4;
    enum { K = 0, V = K + K_BYTES, Q = V + K_BYTES, GO = Q + STAGES * Q_BYTES, DS = GO + STAGES * Q_BYTES };
    enum { DQ = DS + 2 * KEYS * QUERIES * 2, LSE = DQ + 2 * PART, DELTA = LSE + STAGES * QUERIES * 4 };
    enum { IDS = DELTA + STAGES * QUERIES * 4, WORDS = IDS + STAGES * QUERIES * 4, BARRIERS = WORDS + 128 };
    enum { KV_FULL = BARRIERS, KV_EMPTY = KV_FULL + 8, Q_FULL = KV_EMPTY + 8, Q_EMPTY = Q_FULL + 8 * STAGES };
    enum { GO_FULL = Q_EMPTY + 8 * STAGES, GO_EMPTY = GO_FULL + 8 * STAGES, DQ_FULL = GO_EMPTY + 8 * STAGES };
    enum { DQ_EMPTY = DQ_FULL + 16, BYTES = DQ_EMPTY + 16 };
    static_assert(BYTES <= 227 * 1024, "a block's shared memory");
};

/* A warp a tile of queries: the blocks of keys from the first to the last one that may share a document with it. */
static __global__ void __launch_bounds__(128) document_blocks(const __grid_constant__ backward_task p) {
    const attention &a = p.a;
    int at = blockIdx.x * 4 + threadIdx.x / 32, b = at / p.tiles, tile = at % p.tiles;
    if (b >= a.batch) return;
    int2 seen = seen_blocks(a, tile, p.block), found = {0, -1};
    span own = document_span(a, b, tile * QUERIES, min((tile + 1) * QUERIES, a.queries));
    auto shares = [&](int n) { return meet(own, document_span(a, b, n * p.block, min((n + 1) * p.block, a.keys))); };
    while (seen.x <= seen.y && !shares(seen.x)) seen.x++;
    while (seen.x <= seen.y && !shares(seen.y)) seen.y--;
    if (seen.x <= seen.y) found = seen;
    if (threadIdx.x % 32 == 0) ((int2 *)p.documents)[at] = found;
}

/* ── before: delta = Σ go o - dlse, lse in powers of two, both padded; counters ──────────────────────────────────────
 */
/* A block a tile of queries of one head, eight threads a row. The heads of a tile come one after another, because rows
 * of all heads lie together, and the last tiles first, because they are in the cache still. 256 threads, 46 us; 128 and
 * 64, 52; with a division for each row 60 (one H200, 4 × 4096 × 32 × 64, behind products). */
enum { PREPARE = 256 };
template <class E> static __global__ void __launch_bounds__(PREPARE) prepare(const __grid_constant__ backward_task p) {
    constexpr int APART = PREPARE / 8, ROWS = QUERIES / APART;
    const attention &a = p.a;
    int block = gridDim.x - 1 - blockIdx.x, h = block % a.heads, tile = block / a.heads, b = tile / p.tiles;
    int64_t parts = p.splits > 1 ? (int64_t)a.batch * (a.heads / a.group) * p.blocks * 4 : 0;
    int64_t w = (int64_t)blockIdx.x * PREPARE + threadIdx.x;
    if (w < gridDim.x) p.counters[0][w] = p.counters[1][w] = 0;
    for (int64_t x = w; x < parts; x += (int64_t)gridDim.x * PREPARE) p.counters[2][x] = 0;
    if (w == 0) *p.ticket = 0;
    int first = tile % p.tiles * QUERIES + threadIdx.x / 8;
    const E *go = (const E *)a.go.p + b * a.go.batch + first * a.go.row + h * a.go.head;
    const E *o = (const E *)a.o.p + b * a.o.batch + first * a.o.row + h * a.o.head;
    float sum[ROWS] = {};
    for (int d = (threadIdx.x & 7) * 8; d < a.value_size; d += 64) {
        uint4 u[ROWS] = {}, v[ROWS] = {};
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (first + r * APART < a.queries) {
                u[r] = *(const uint4 *)(go + r * APART * a.go.row + d);
                v[r] = *(const uint4 *)(o + r * APART * a.o.row + d);
            }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int e = 0; e < 8; e++)
                sum[r] = fmaf(sc_widen(((const E *)&u[r])[e]), sc_widen(((const E *)&v[r])[e]), sum[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        for (int other = 4; other; other >>= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], other);
    if (threadIdx.x & 7) return;
    int64_t head = (int64_t)b * a.heads + h;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = first + r * APART;
        float lse = INFINITY;
        if (i < a.queries) {
            int64_t from = head * a.queries + i;
            if (a.lse[from] != -INFINITY) lse = a.lse[from] * LOG2E;
            if (a.dlse) sum[r] -= a.dlse[from];
        }
        p.lse[head * p.padded + i] = lse;
        p.delta[head * p.padded + i] = sum[r];
    }
}

/* ── after: dq, from parts in the order of the registers that made them ─────────────────────────────────────────────
 */
template <class E, int D>
static __global__ void __launch_bounds__(256) finish(const __grid_constant__ backward_task p) {
    constexpr int L = D + 8; /* rows apart by other than a multiple of 128 bytes */
    __shared__ __align__(16) E tile[QUERIES * L];
    const attention &a = p.a;
    int block = gridDim.x - 1 - blockIdx.x; /* the last heads' sums are in the cache still */
    int m = block % p.tiles, head = block / p.tiles, h = head % a.heads, b = head / a.heads;
    int group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = thread % 32;
    int row = thread / 32 * 16 + lane / 4, column = group * (D / 2) + 2 * (lane % 4);
    int2 seen = blocks_of(p, b, m, p.block);
    bool lower = seen.x <= seen.y && seen.x < p.half, upper = seen.x <= seen.y && seen.y >= p.half;
    int64_t from = group * (QUERIES * D / 2) + thread * 4, at = (int64_t)head * p.tiles + m;
    const float *first = p.sums[0] + sums_at(p, (int)at, 0) * (QUERIES * D) + from;
    const float *second = p.sums[1] + sums_at(p, (int)at, 1) * (QUERIES * D) + from;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        float4 x = {}, y = {};
        if (lower) x = *(const float4 *)(first + i * 512);
        if (upper) y = *(const float4 *)(second + i * 512);
        *(uint32_t *)(tile + row * L + column + 8 * i) = sc_pack<E>((x.x + y.x) * a.scale, (x.y + y.y) * a.scale);
        *(uint32_t *)(tile + (row + 8) * L + column + 8 * i) = sc_pack<E>((x.z + y.z) * a.scale, (x.w + y.w) * a.scale);
    }
    __syncthreads();
    for (int u = threadIdx.x; u < QUERIES * D / 8; u += 256) {
        int r = u / (D / 8), c = u % (D / 8) * 8, i = m * QUERIES + r;
        if (i < a.queries && c < a.size)
            *(uint4 *)((E *)a.dq.p + b * a.dq.batch + i * a.dq.row + h * a.dq.head + c) =
                *(const uint4 *)(tile + r * L + c);
    }
}

/* dk and dv of a block of keys that several jobs share: two parts each, a half of every thread's sums. */
template <class E, int D>
static __global__ void __launch_bounds__(256) finish_keys(const __grid_constant__ backward_task p) {
    constexpr int L = D + 8, KEYS = SC_HOPPER_KEYS, PART = QUERIES * D;
    __shared__ __align__(16) E tile[KEYS * L];
    const attention &a = p.a;
    int heads = a.heads / a.group, n = blockIdx.x % p.blocks, h = blockIdx.x / p.blocks % heads;
    int b = blockIdx.x / p.blocks / heads, thread = threadIdx.x % 128, lane = thread % 32;
    int row = threadIdx.x / 32 * 16 + lane / 4, column = 2 * (lane % 4);
    for (int of = 0; of < 2; of++) {
        const rows_of &to = of ? a.dv : a.dk;
        const float *from = p.sums[2] + ((int64_t)blockIdx.x * 4 + 2 * of) * PART + threadIdx.x / 128 * (PART / 2);
        float factor = of ? a.keep : a.scale;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            float4 x = *(const float4 *)(from + i / (D / 16) * PART + (i % (D / 16) * 128 + thread) * 4);
            *(uint32_t *)(tile + row * L + column + 8 * i) = sc_pack<E>(x.x * factor, x.y * factor);
            *(uint32_t *)(tile + (row + 8) * L + column + 8 * i) = sc_pack<E>(x.z * factor, x.w * factor);
        }
        __syncthreads();
        for (int u = threadIdx.x; u < KEYS * D / 8; u += 256) {
            int r = u / (D / 8), c = u % (D / 8) * 8, j = n * KEYS + r;
            if (j < a.keys && c < (of ? a.value_size : a.size))
                *(uint4 *)((E *)to.p + b * to.batch + j * to.row + h * to.head + c) =
                    *(const uint4 *)(tile + r * L + c);
        }
        __syncthreads();
    }
}

template <class E, class S, int F> SC_DEVICE void work(const backward_task &p, uint32_t base, int group) {
    const attention &a = p.a;
    constexpr int SCORES = QUERIES / 2, SUMS = S::D / 2, PART = S::D / 4;
    constexpr int KEYS = S::KEYS, DS_BYTES = KEYS * QUERIES * 2;
    int jobs = 0;
    float s[SCORES], dp[SCORES], dq[PART], dk[SUMS], dv[SUMS];
    uint32_t powers[SCORES / 2], kept;
    int turns = 0, parts = 0; /* stages and parts of dq so far */
    /* Descriptors are made where they are used: there are no registers to keep them in. */
    uint32_t low = __shfl_sync(0xffffffffu, base, 0) >> 4;
    auto rows = [&](int at) { return matrix_of(low + 0x10000 + (at >> 4)); };
    auto turned = [&](int at, int apart) { return matrix_of(low + (apart >> 4 << 16) + (at >> 4)); };
    auto let_go = [&](uint32_t barrier) { warp_arrive(base + barrier); };
    auto both_sync = [] { asm volatile("barrier.sync 4, 256;" ::: "memory"); };
    auto word = [&](int at) { return __shfl_sync(0xffffffffu, get_word(base + S::WORDS + at), 0); };
    /* PART sums of every thread, from `from` on, for a warp to add; which part of what: words at `tile` and `turn`. */
    auto put_part = [&](const auto &sums, auto from, uint32_t tile, uint32_t turn) {
        int part = parts & 1;
        barrier_wait(base + S::DQ_EMPTY + 8 * part, ~parts >> 1 & 1);
        uint32_t to = base + S::DQ + part * S::PART + (thread_now() - 128) * 16 + (S::PART / 2 - 2048) * group;
#pragma unroll
        for (int i = 0; i < PART; i += 4) {
            constexpr int x = decltype(from)::value;
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 512), "f"(sums[x + i]),
                         "f"(sums[x + i + 1]), "f"(sums[x + i + 2]), "f"(sums[x + i + 3])
                         : "memory");
        }
        if (threadIdx.x == 128) {
            uint32_t words = base + S::WORDS + PART_WORDS + 16 * part;
            put_word(words, get_word(tile));
            put_word(words + 4, get_word(turn));
        }
        shared_fence();
        let_go(S::DQ_FULL + 8 * part);
    };
#pragma unroll
    for (int x = 0; x < SCORES; x++) s[x] = dp[x] = 0;
#pragma unroll
    for (int x = 0; x < PART; x++) dq[x] = 0;
#pragma unroll
    for (int x = 0; x < SUMS; x++) dk[x] = dv[x] = 0;

    for (;; jobs++) {
        barrier_wait(base + S::KV_FULL, jobs & 1);
        int n = word(JOB);
        if (n < 0) break;
        int first_key = n * KEYS + group * 64 + (thread_now() >> 5 & 3) * 16; /* the warp's */
        keys_state own = {first_key + (thread_now() >> 2 & 7), {0, 0}};
        if (F & DOCUMENTS) {
            int b = word(JOB + 4);
            own.document[0] = document_of(a, b, own.key, a.keys);
            own.document[1] = document_of(a, b, own.key + 8, a.keys);
        }
        int begun = 0; /* dk and dv hold sums of this job */
        for (;; turns++, parts++, begun = 1) {
            int stage = turns & 1, part = parts & 1;
            barrier_wait(base + S::Q_FULL + 8 * stage, turns >> 1 & 1);
            if (word(STAGE_WORDS + 16 * stage) < 0) break;
            sums_fence();
#pragma unroll
            for (int d = 0; d < S::D; d += 16)
                sums_add<E, 0, 0>(s, rows(S::K + group * 8192 + d / 64 * (KEYS * 128) + d % 64 * 2),
                                  rows(S::Q + stage * S::Q_BYTES + d / 64 * (QUERIES * 128) + d % 64 * 2), d > 0);
            sums_commit();
            barrier_wait(base + S::GO_FULL + 8 * stage, turns >> 1 & 1);
            sums_fence();
#pragma unroll
            for (int d = 0; d < S::D; d += 16)
                sums_add<E, 0, 0>(dp, rows(S::V + group * 8192 + d / 64 * (KEYS * 128) + d % 64 * 2),
                                  rows(S::GO + stage * S::Q_BYTES + d / 64 * (QUERIES * 128) + d % 64 * 2), d > 0);
            sums_commit();
            sums_wait<1>(); /* for these scores, and dk's product of the last tile */
            sums_here(s);
            if (begun) let_go(S::Q_EMPTY + 8 * (stage ^ 1));
            int i = word(STAGE_WORDS + 16 * stage + 4) * QUERIES;
            uint32_t lse = base + S::LSE + stage * QUERIES * 4, ids = base + S::IDS + stage * QUERIES * 4;
            int b = F & (DROPS | BIAS) ? word(JOB + 4) : 0;
            int h = F & (DROPS | BIAS) ? word(STAGE_WORDS + 16 * stage + 12) : 0;
            weigh<E, F>(a, s, powers, kept, lse, ids, own, first_key, i, F & DROPS ? dropper_of(a, b, h) : dropper{},
                        F & BIAS ? bias_of_head(a, b, h) : 0);
            sums_wait<0>();
            sums_here(dp);
            uint32_t delta = base + S::DELTA + stage * QUERIES * 4;
            int thread = thread_now(), t = thread & 3, lane = thread & 31, row = (thread - 128) / 32 * 16 + lane % 16;
            uint32_t ds = base + S::DS + part * DS_BYTES + row * 128;
#pragma unroll
            for (int x = 0; x < SCORES / 4; x += 2) {
                uint32_t pieces[4];
                slopes_of<E, F>(a, pieces, s, dp, kept, delta, x, t);
                put_pieces(ds + (((x + lane / 16) ^ (row & 7)) << 4), pieces);
            }
            /* Not before: there are no registers to have this product under way beside the arithmetic above. */
            sums_fence();
#pragma unroll
            for (int x = 0; x < QUERIES; x += 16)
                sums_add_held<E, 1>(dv, powers + x / 4, turned(S::GO + stage * S::Q_BYTES + x * 128, QUERIES * 128),
                                    begun | x);
            sums_commit();
            shared_fence();
            both_sync();
            sums_fence();
#pragma unroll
            for (int x = 0; x < KEYS; x += 16)
                sums_add<E, 1, 1>(dq, turned(S::DS + part * DS_BYTES + x * 128, 0),
                                  turned(S::K + (S::D == 128 ? group * KEYS * 128 : group * 64) + x * 128, KEYS * 128),
                                  x > 0);
            sums_commit();
#pragma unroll
            for (int x = 0; x < QUERIES; x += 16)
                sums_add<E, 0, 1>(dk, rows(S::DS + part * DS_BYTES + group * 8192 + x * 2),
                                  turned(S::Q + stage * S::Q_BYTES + x * 128, QUERIES * 128), begun | x);
            sums_commit();
            sums_wait<1>();
            sums_here(dq);
            let_go(S::GO_EMPTY + 8 * stage);
            uint32_t of_stage = base + S::WORDS + STAGE_WORDS + 16 * stage;
            put_part(dq, std::integral_constant<int, 0>(), of_stage, of_stage + 8);
        }
        sums_wait<0>();
        sums_here(dk);
        sums_here(dv);
        if (begun) let_go(S::Q_EMPTY + 8 * (~turns & 1));
        let_go(S::Q_EMPTY + 8 * (turns & 1)); /* the end's */
        let_go(S::GO_EMPTY + 8 * (turns & 1));
        turns++;
        if (!begun)
#pragma unroll
            for (int x = 0; x < SUMS; x++) dk[x] = dv[x] = 0;
        both_sync(); /* k and v are done with */
        if (p.splits > 1) {
            auto put_half = [&](const auto &sums, auto from, int which) {
                uint32_t job = base + S::WORDS + JOB, words = base + S::WORDS + KEY_WORDS;
                if (threadIdx.x == 128) {
                    int head = get_word(job + 4) * (a.heads / a.group) + get_word(job + 8);
                    put_word(words, (head * p.blocks + n) * 4 + which);
                    put_word(words + 4, get_word(job + 12) << 2 | 2);
                }
                put_part(sums, from, words, words + 4);
                parts++;
            };
            put_half(dk, std::integral_constant<int, 0>(), 0);
            put_half(dk, std::integral_constant<int, PART>(), 1);
            put_half(dv, std::integral_constant<int, 0>(), 2);
            put_half(dv, std::integral_constant<int, PART>(), 3);
            let_go(S::KV_EMPTY);
            continue;
        }
        int thread = thread_now() & 127, warp = thread / 32;
        uint32_t k_tile = base + S::K + group * 8192, v_tile = base + S::V + group * 8192;
        put_sums<E>(k_tile, KEYS * 128, warp * 16, dk, a.scale, a.scale);
        put_sums<E>(v_tile, KEYS * 128, warp * 16, dv, a.keep, a.keep);
        shared_fence();
        group_sync(group);
        if (thread == 0) {
            int b = get_word(base + S::WORDS + JOB + 4), kv = get_word(base + S::WORDS + JOB + 8);
            copy_tile_out(&p.dk, k_tile, S::D, KEYS * 128, b, kv, n * KEYS + group * 64);
            copy_tile_out(&p.dv, v_tile, S::D, KEYS * 128, b, kv, n * KEYS + group * 64);
            copies_out();
            copied_from();
        }
        group_sync(group);
        let_go(S::KV_EMPTY);
    }
    for (int x = 0; x < 2; x++, parts++) { /* both warps that add end */
        barrier_wait(base + S::DQ_EMPTY + 8 * (parts & 1), ~parts >> 1 & 1);
        if (threadIdx.x == 128) put_word(base + S::WORDS + PART_WORDS + 16 * (parts & 1), -1);
        let_go(S::DQ_FULL + 8 * (parts & 1));
    }
    if ((thread_now() & 127) == 0) copied_out();
}

template <class E, int D, int F>
static __global__ void __launch_bounds__(THREADS, 1) backward(const __grid_constant__ backward_task p) {
    using S = shape<D>;
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    begin_grad_barriers<S>(base);
    if (threadIdx.x < 128) {
        few_registers();
        if (threadIdx.x < 32)
            feed<S, F>(p, base);
        else if (threadIdx.x == 32 || threadIdx.x == 64)
            add_parts<S>(p, base, threadIdx.x / 32 - 1);
    } else {
        many_registers();
        work<E, S, F>(p, base, __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0));
    }
}

/* ── host ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int D, int F> static void start(const sc_task *t, const backward_task &p) {
    sc_launch(backward<E, D, F>, std::min<int64_t>(p.jobs, sc_library(t)->multiprocessors), THREADS, shape<D>::BYTES,
              SC_STREAM(t), p);
    sc_launch(finish<E, D>, (int64_t)p.a.batch * p.a.heads * p.tiles, 256, 0, SC_STREAM(t), p);
    if (p.splits > 1)
        sc_launch(finish_keys<E, D>, (int64_t)p.a.batch * (p.a.heads / p.a.group) * p.blocks, 256, 0, SC_STREAM(t), p);
}

template <class E, int F> static void start_for_size(const sc_task *t, const backward_task &p, int dtype) {
    if (p.documents) sc_launch(document_blocks, ceil_of((int64_t)p.a.batch * p.tiles, 4), 128, 0, SC_STREAM(t), p);
    sc_launch(prepare<E>, (int64_t)p.a.batch * p.a.heads * p.tiles, PREPARE, 0, SC_STREAM(t), p);
    if (wide_heads(p.a)) {
        sc_attention_hopper_wide(t, p, dtype);
        sc_attention_hopper_dq(t, p, dtype);
    } else {
        (wider_size(p.a) <= 64 ? start<E, 64, F> : start<E, 128, F>)(t, p);
    }
}

bool sc_attention_hopper_grad(const sc_task *t, const attention &a, int dtype, int64_t room) {
    sc_hopper_grad_room w = sc_hopper_grad_bytes(a.batch, a.queries, a.keys, a.heads, a.heads / a.group,
                                                 wider_size(a), a.causal, a.left, a.documents != NULL);
    if (!serves(t, a, dtype) || !a.go.wide || !a.dq.wide || !a.dk.wide || !a.dv.wide || room < w.all || !w.all ||
        (uintptr_t)a.delta % 256)
        return false;
    backward_task p = {};
    char *work = (char *)a.delta;
    int key_heads = a.heads / a.group;
    p.a = a;
    p.block = (int)w.block;
    p.tiles = (int)w.tiles;
    p.padded = p.tiles * QUERIES;
    p.blocks = (int)ceil_of(a.keys, p.block);
    p.half = (int)w.half;
    p.first = (int)w.first;
    p.splits = (int)w.splits;
    p.jobs = (int)((int64_t)a.batch * key_heads * p.half * p.splits);
    p.q = tiles_of(a.q, dtype, a.batch, a.queries, a.heads, a.size, QUERIES);
    p.go = tiles_of(a.go, dtype, a.batch, a.queries, a.heads, a.value_size, QUERIES);
    p.k = tiles_of(a.k, dtype, a.batch, a.keys, key_heads, a.size, p.block);
    p.v = tiles_of(a.v, dtype, a.batch, a.keys, key_heads, a.value_size, p.block);
    p.dk = tiles_of(a.dk, dtype, a.batch, a.keys, key_heads, a.size, 64);
    p.dv = tiles_of(a.dv, dtype, a.batch, a.keys, key_heads, a.value_size, 64);
    p.sums[0] = (float *)(work + w.lower);
    p.sums[1] = (float *)(work + w.upper);
    p.sums[2] = (float *)(work + w.of_keys);
    p.lse = (float *)(work + w.lse);
    p.delta = (float *)(work + w.delta);
    p.counters[0] = (int *)(work + w.counters);
    p.counters[1] = p.counters[0] + (int64_t)a.batch * a.heads * p.tiles;
    p.counters[2] = (int *)(work + w.key_counters);
    p.ticket = (int *)(work + w.ticket);
    p.documents = a.documents ? (const int2 *)(work + w.documents) : NULL;
    with_variant(a, dtype, [&](auto e, auto f) { start_for_size<decltype(e), decltype(f)::value>(t, p, dtype); });
    return true;
}
#endif
