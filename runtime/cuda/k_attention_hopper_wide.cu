/* attention, backward, for compute capability 9.0 and heads wider than 128: dk and dv.
 * Relies on: attention_hopper_grad.cuh; sm_90a (the Makefile compiles this file for it, and defines SC_HOPPER, where
 * architecture 90 is among the library's).
 * Relied on by: k_attention_hopper_grad.cu.
 *
 * A group of four warps has too few registers for dk and dv of 64 keys. So a job has 64 keys, for both groups. Each
 * computes the scores of 32 of a tile's 64 queries; both put powers and ds into shared memory, for all to read; and
 * each has half of the columns of dk and dv. dq is not added up here, as k_attention_hopper_grad.cu does: with half as
 * many keys a tile there would be twice as much to add. One H100, 1 × 8192, 16 heads of 192 and 128: 4.3 ms so, 2.2 of
 * them without adding, and 2.4 with scores computed once more, in a kernel of dq's own (k_attention_hopper_dq.cu). */
#include "attention_hopper.h"

#ifdef SC_HOPPER
#include "attention_hopper_grad.cuh"

template <int D_, int DV_> struct shape {
    static constexpr int D = D_, DV = DV_, KEYS = SC_HOPPER_KEYS_WIDE, STAGES = 2, PART = 0;
    static constexpr int Q_BYTES = QUERIES * D * 2, GO_BYTES = QUERIES * DV * 2, K_BYTES = KEYS * D * 2;
    static constexpr int V_BYTES = KEYS * DV * 2, PAIRS = KEYS * QUERIES * 2;
    enum { K = 0, V = K + K_BYTES, Q = V + V_BYTES, GO = Q + STAGES * Q_BYTES, P = GO + STAGES * GO_BYTES };
    enum { DS = P + 2 * PAIRS, LSE = DS + 2 * PAIRS, DELTA = LSE + STAGES * QUERIES * 4 };
    enum { IDS = DELTA + STAGES * QUERIES * 4, WORDS = IDS + STAGES * QUERIES * 4, BARRIERS = WORDS + 128 };
    enum { KV_FULL = BARRIERS, KV_EMPTY = KV_FULL + 8, Q_FULL = KV_EMPTY + 8, Q_EMPTY = Q_FULL + 8 * STAGES };
    enum { GO_FULL = Q_EMPTY + 8 * STAGES, GO_EMPTY = GO_FULL + 8 * STAGES, BYTES = GO_EMPTY + 8 * STAGES };
    static_assert(BYTES <= 227 * 1024, "a block's shared memory");
};

template <class E, class S, int F> SC_DEVICE void work(const backward_task &p, uint32_t base, int group) {
    const attention &a = p.a;
    constexpr int SCORES = 16, KEYS = S::KEYS, HALF_V = S::DV / 2, BLOCK = KEYS * 128;
    int jobs = 0, turns = 0, tiles = 0; /* jobs, stages and tiles of queries so far */
    float s[SCORES], dp[SCORES], dk[64], dv[HALF_V / 2];
    uint32_t powers[SCORES / 2], kept;
    uint32_t low = __shfl_sync(0xffffffffu, base, 0) >> 4;
    auto rows = [&](int at) { return matrix_of(low + 0x10000 + (at >> 4)); };
    auto turned = [&](int at, int apart) { return matrix_of(low + (apart >> 4 << 16) + (at >> 4)); };
    auto let_go = [&](uint32_t barrier) { warp_arrive(base + barrier); };
    auto both_sync = [] { asm volatile("barrier.sync 4, 256;" ::: "memory"); };
    auto word = [&](int at) { return __shfl_sync(0xffffffffu, get_word(base + S::WORDS + at), 0); };
#pragma unroll
    for (int x = 0; x < SCORES; x++) s[x] = dp[x] = 0;
#pragma unroll
    for (int x = 0; x < 64; x++) dk[x] = 0;
#pragma unroll
    for (int x = 0; x < HALF_V / 2; x++) dv[x] = 0;

    for (;; jobs++) {
        barrier_wait(base + S::KV_FULL, jobs & 1);
        int n = word(JOB);
        if (n < 0) break;
        int first_key = n * KEYS + (thread_now() >> 5 & 3) * 16; /* the warp's */
        keys_state own = {first_key + (thread_now() >> 2 & 7), {0, 0}};
        if (F & DOCUMENTS) {
            int b = word(JOB + 4);
            own.document[0] = document_of(a, b, own.key, a.keys);
            own.document[1] = document_of(a, b, own.key + 8, a.keys);
        }
        int begun = 0; /* dk and dv hold sums of this job */
        for (;; turns++, tiles++, begun = 1) {
            int stage = turns % S::STAGES, phase = turns / S::STAGES & 1, part = tiles & 1;
            barrier_wait(base + S::Q_FULL + 8 * stage, phase);
            if (word(STAGE_WORDS + 16 * stage) < 0) break;
            sums_fence();
#pragma unroll
            for (int d = 0; d < S::D; d += 16)
                sums_add<E, 0, 0>(s, rows(S::K + d / 64 * BLOCK + d % 64 * 2),
                                  rows(S::Q + stage * S::Q_BYTES + d / 64 * (QUERIES * 128) + group * 4096 +
                                       d % 64 * 2),
                                  d > 0);
            sums_commit();
            barrier_wait(base + S::GO_FULL + 8 * stage, phase);
            sums_fence();
#pragma unroll
            for (int d = 0; d < S::DV; d += 16)
                sums_add<E, 0, 0>(dp, rows(S::V + d / 64 * BLOCK + d % 64 * 2),
                                  rows(S::GO + stage * S::GO_BYTES + d / 64 * (QUERIES * 128) + group * 4096 +
                                       d % 64 * 2),
                                  d > 0);
            sums_commit();
            sums_wait<1>();
            sums_here(s);
            int i = word(STAGE_WORDS + 16 * stage + 4) * QUERIES + group * 32;
            uint32_t lse = base + S::LSE + (stage * QUERIES + group * 32) * 4;
            uint32_t ids = base + S::IDS + (stage * QUERIES + group * 32) * 4;
            int b = F & (DROPS | BIAS) ? word(JOB + 4) : 0;
            int h = F & (DROPS | BIAS) ? word(STAGE_WORDS + 16 * stage + 12) : 0;
            weigh<E, F>(a, s, powers, kept, lse, ids, own, first_key, i, F & DROPS ? dropper_of(a, b, h) : dropper{},
                        F & BIAS ? bias_of_head(a, b, h) : 0);
            sums_wait<0>();
            sums_here(dp);
            int thread = thread_now(), t = thread & 3, lane = thread & 31, row = (thread >> 5 & 3) * 16 + lane % 16;
            uint32_t delta = base + S::DELTA + (stage * QUERIES + group * 32) * 4, at = row * 128 + part * S::PAIRS;
#pragma unroll
            for (int x = 0; x < SCORES / 4; x += 2) {
                uint32_t pieces[4], place = at + (((group * 4 + x + lane / 16) ^ (row & 7)) << 4);
                slopes_of<E, F>(a, pieces, s, dp, kept, delta, x, t);
                put_pieces(base + S::P + place, powers + 2 * x);
                put_pieces(base + S::DS + place, pieces);
            }
            shared_fence();
            both_sync();
            sums_fence();
#pragma unroll
            for (int x = 0; x < QUERIES; x += 16)
                sums_add<E, 0, 1>(dv, rows(S::P + part * S::PAIRS + x * 2),
                                  turned(S::GO + stage * S::GO_BYTES + (group * (HALF_V / 64) * QUERIES + x) * 128,
                                         QUERIES * 128),
                                  begun | x);
            sums_commit();
#pragma unroll
            for (int x = 0; x < QUERIES; x += 16)
                sums_add<E, 0, 1>(dk, rows(S::DS + part * S::PAIRS + x * 2),
                                  turned(S::Q + stage * S::Q_BYTES + (group * 2 * QUERIES + x) * 128, QUERIES * 128),
                                  begun | x);
            sums_commit();
            sums_wait<1>();
            let_go(S::GO_EMPTY + 8 * stage);
            sums_wait<0>();
            let_go(S::Q_EMPTY + 8 * stage);
        }
        sums_here(dk);
        sums_here(dv);
        let_go(S::Q_EMPTY + 8 * (turns % S::STAGES)); /* the end's */
        let_go(S::GO_EMPTY + 8 * (turns % S::STAGES));
        turns++;
        if (!begun) {
#pragma unroll
            for (int x = 0; x < 64; x++) dk[x] = 0;
#pragma unroll
            for (int x = 0; x < HALF_V / 2; x++) dv[x] = 0;
        }
        both_sync(); /* k and v are done with */
        int thread = thread_now() & 127, warp = thread / 32;
        uint32_t k_tile = base + S::K + group * 2 * BLOCK, v_tile = base + S::V + group * (HALF_V / 64) * BLOCK;
        if (S::D == 256 || group == 0)
            put_sums<E>(k_tile, BLOCK, warp * 16, dk, a.scale, a.scale);
        else
            put_sums<E>(k_tile, BLOCK, warp * 16, (const float(&)[32])dk, a.scale, a.scale);
        put_sums<E>(v_tile, BLOCK, warp * 16, dv, a.keep, a.keep);
        shared_fence();
        group_sync(group);
        if (thread == 0) {
            int b = get_word(base + S::WORDS + JOB + 4), kv = get_word(base + S::WORDS + JOB + 8);
            int k_end = group ? S::D : 128, v_end = group ? S::DV : HALF_V;
            copy_tile_out(&p.dk, k_tile, k_end, BLOCK, b, kv, n * KEYS, group * 128);
            copy_tile_out(&p.dv, v_tile, v_end, BLOCK, b, kv, n * KEYS, group * HALF_V);
            copies_out();
            copied_from();
        }
        group_sync(group);
        let_go(S::KV_EMPTY);
    }
    if ((thread_now() & 127) == 0) copied_out();
}

template <class E, int D, int DV, int F>
static __global__ void __launch_bounds__(THREADS, 1) backward(const __grid_constant__ backward_task p) {
    using S = shape<D, DV>;
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    begin_grad_barriers<S>(base);
    if (threadIdx.x < 128) {
        few_registers();
        if (threadIdx.x < 32) feed<S, F>(p, base);
    } else {
        many_registers();
        work<E, S, F>(p, base, __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0));
    }
}

template <class E, int D, int DV, int F> static void start(const sc_task *t, const backward_task &p) {
    sc_launch(backward<E, D, DV, F>, std::min<int64_t>(p.jobs, sc_library(t)->multiprocessors), THREADS,
              shape<D, DV>::BYTES, SC_STREAM(t), p);
}

void sc_attention_hopper_wide(const sc_task *t, const backward_task &p, int dtype) {
    with_variant(p.a, dtype, [&](auto e, auto f) {
        using E = decltype(e);
        constexpr int F = decltype(f)::value;
        (p.a.size <= 192 && p.a.value_size <= 128 ? start<E, 192, 128, F> : start<E, 256, 256, F>)(t, p);
    });
}
#endif
