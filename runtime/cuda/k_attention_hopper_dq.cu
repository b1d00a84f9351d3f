/* attention, backward, for compute capability 9.0 and heads wider than 128: dq, once dk and dv are computed.
 * Relies on: attention_hopper_rows.cuh, attention_hopper_grad.cuh; sm_90a (the Makefile compiles this file for it, and
 * defines SC_HOPPER, where architecture 90 is among the library's).
 * Relied on by: k_attention_hopper_grad.cu.
 *
 * As the forward (k_attention_hopper.cu): blocks stay, take tiles of 128 queries in turn, and walk over keys. Each
 * group of four warps has 64 queries: s = q kᵀ, dp = go vᵀ, ds = p (dp - delta), dq += ds k, where ds stays in
 * registers. */
#include "attention_hopper.h"

#ifdef SC_HOPPER
#include "attention_hopper_grad.cuh"
#include "attention_hopper_rows.cuh"

template <int D_, int DV_> struct shape {
    static constexpr int D = D_, DV = DV_, GO_WIDTH = DV, KEYS = 64, ROWS = 128;
    static constexpr int K_STAGES = 2, V_STAGES = DV > 128 ? 1 : 2;
    static constexpr int K_TILE = KEYS * D * 2, V_TILE = KEYS * DV * 2;
    enum { Q = 0, GO = ROWS * D * 2, K = GO + ROWS * DV * 2, V = K + K_STAGES * K_TILE, LAST = V + V_STAGES * V_TILE };
    enum { BARRIERS = LAST, WORDS = BARRIERS + 128, IDS = WORDS + 64, BYTES = IDS + K_STAGES * KEYS * 4 };
    static_assert(BYTES <= 227 * 1024, "a block's shared memory");
    enum { Q_FULL = BARRIERS, Q_EMPTY = Q_FULL + 8, K_FULL = Q_EMPTY + 8, K_EMPTY = K_FULL + 8 * K_STAGES };
    enum { V_FULL = K_EMPTY + 8 * K_STAGES, V_EMPTY = V_FULL + 8 * V_STAGES };
};

struct rows_state { /* of this thread's rows g and g + 8 */
    float lse[2], delta[2];
    int first[2], last[2], document[2];
};

/* Scores of keys from j on become powers, times the slope of the cap; the warp's rows are i to i + 15; bias: where the
 * head's begins. */
template <class E, int F, int CAP, int S>
SC_DEVICE void powers_of(const attention &a, const rows_state &r, float (&s)[S], int i, int j, uint32_t ids,
                         int64_t bias) {
    int t = threadIdx.x & 3, row = i + ((threadIdx.x & 31) >> 2);
    float unit = (CAP != PLAIN ? a.softcap : F & BIAS ? a.scale : a.unit) * LOG2E;
    bool documents = (F & DOCUMENTS) && a.documents && !one_document<2 * S>(ids, r.document);
    bool hides = documents || j + 2 * S - 1 > last_seen<true>(a, i) || j < first_seen<true>(a, i + 15);
#pragma unroll
    for (int x = 0; x < S; x++) {
        float y = s[x], slope = 1;
        if (CAP != PLAIN) {
            y = CAP == SMALL ? sc_tanh_small(y * a.cap_scale) : fast_tanh(y * a.cap_scale);
            slope = fmaf(-y, y, 1.0f);
        }
        float more = -r.lse[x >> 1 & 1];
        if (F & BIAS)
            more = fmaf(bias_at(a, bias, row + 8 * (x >> 1 & 1), j + x / 4 * 8 + 2 * t + (x & 1)), LOG2E, more);
        s[x] = sc_exp2(fmaf(y, unit, more));
        if (CAP != PLAIN) s[x] *= slope;
    }
    if (!hides) return;
#pragma unroll
    for (int x = 0; x < S; x++) {
        int column = x / 4 * 8 + 2 * t + (x & 1), key = j + column, half = x >> 1 & 1;
        bool seen = key >= r.first[half] && key <= r.last[half];
        if (documents) seen = seen && get_word(ids + 4 * column) == r.document[half];
        s[x] = seen ? s[x] : 0;
    }
}

template <class E, class S, int F> SC_DEVICE void work(const rows_task &p, uint32_t base, int group) {
    const attention &a = p.a;
    constexpr int SCORES = S::KEYS / 2, SUMS = S::D / 2, BLOCK = S::KEYS * 128;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, g = lane >> 2, q_phase = 0;
    float s[SCORES], dp[SCORES], dq[SUMS];
    uint32_t slopes[SCORES / 2];
    ring k = {0, 0}, v = {0, 0};
    place at;
    uint32_t low = __shfl_sync(0xffffffffu, base, 0) >> 4;
    auto rows = [&](int at) { return matrix_of(low + 0x10000 + (at >> 4)); };
    auto turned = [&](int at, int apart) { return matrix_of(low + (apart >> 4 << 16) + (at >> 4)); };
    auto let_go = [&](uint32_t barrier) { warp_arrive(base + barrier); };
#pragma unroll
    for (int x = 0; x < SCORES; x++) s[x] = dp[x] = 0;
#pragma unroll
    for (int x = 0; x < SUMS; x++) dq[x] = 0;

    for (int round = 0; (at = place_of(p, round)).tile >= 0; round++, q_phase ^= 1) {
        int i0 = at.tile * S::ROWS + group * 64, i = i0 + warp * 16;
        dropper drops = F & DROPS ? dropper_of(a, at.b, at.h) : dropper{};
        rows_state r;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = i + g + 8 * half;
            int64_t from = ((int64_t)at.b * a.heads + at.h) * p.padded + row;
            r.lse[half] = row < p.padded ? p.lse[from] : INFINITY;
            r.delta[half] = row < p.padded ? p.delta[from] : 0;
            r.first[half] = first_seen<true>(a, row);
            r.last[half] = last_seen<true>(a, row);
            r.document[half] = F & DOCUMENTS ? document_of(a, at.b, row, a.queries) : 0;
        }
        int begun = 0; /* dq holds sums of this tile */
        barrier_wait(base + S::Q_FULL, q_phase);
        for (;; begun = 1) {
            barrier_wait(base + S::K_FULL + 8 * k.at, k.phase);
            int j = __shfl_sync(0xffffffffu, get_word(base + S::WORDS + 4 * k.at), 0);
            if (j < 0) break;
            sums_fence();
#pragma unroll
            for (int d = 0; d < S::D; d += 16)
                sums_add<E, 0, 0>(s, rows(S::Q + group * 8192 + d / 64 * (S::ROWS * 128) + d % 64 * 2),
                                  rows(S::K + k.at * S::K_TILE + d / 64 * BLOCK + d % 64 * 2), d > 0);
            sums_commit();
            barrier_wait(base + S::V_FULL + 8 * v.at, v.phase);
            sums_fence();
#pragma unroll
            for (int d = 0; d < S::DV; d += 16)
                sums_add<E, 0, 0>(dp, rows(S::GO + group * 8192 + d / 64 * (S::ROWS * 128) + d % 64 * 2),
                                  rows(S::V + v.at * S::V_TILE + d / 64 * BLOCK + d % 64 * 2), d > 0);
            sums_commit();
            sums_wait<1>();
            sums_here(s);
            if (begun) let_go(S::K_EMPTY + 8 * (k.at ^ 1)); /* the last tile's, which dq's product has read */
            uint32_t ids = base + S::IDS + k.at * S::KEYS * 4, kept = 0xffffffffu;
            int64_t bias = F & BIAS ? bias_of_head(a, at.b, at.h) : 0;
            if constexpr ((F & CAPPED) == 0)
                powers_of<E, F, PLAIN>(a, r, s, i, j, ids, bias);
            else if (F != CAPPED && !(a.softcap > 0))
                powers_of<E, F, PLAIN>(a, r, s, i, j, ids, bias);
            else if (small_scores(a, s))
                powers_of<E, F, SMALL>(a, r, s, i, j, ids, bias);
            else
                powers_of<E, F, ANY>(a, r, s, i, j, ids, bias);
            if ((F & DROPS) && a.drops) {
                kept = 0;
#pragma unroll
                for (int n = 0; n < SCORES / 4; n++) kept |= kept_fragment(drops, i, j + 8 * n) << 4 * n;
            }
            sums_wait<0>();
            sums_here(dp);
            let_go(S::V_EMPTY + 8 * v.at);
            step<S::V_STAGES>(v);
#pragma unroll
            for (int x = 0; x < SCORES; x++) {
                float y = dp[x];
                if (F & DROPS) y = kept >> x & 1 ? y * a.keep : 0;
                dp[x] = s[x] * (y - r.delta[x >> 1 & 1]);
            }
            pack_sums<E>(slopes, dp);
            sums_fence();
#pragma unroll
            for (int n = 0; n < S::KEYS; n += 16)
                sums_add_held<E, 1>(dq, slopes + n / 4, turned(S::K + k.at * S::K_TILE + n * 128, BLOCK), begun | n);
            sums_commit();
            step<S::K_STAGES>(k);
        }
        sums_wait<0>();
        sums_here(dq);
        if (begun) let_go(S::K_EMPTY + 8 * (k.at ^ 1));
        let_go(S::K_EMPTY + 8 * k.at); /* the end's */
        step<S::K_STAGES>(k);
        if (!begun)
#pragma unroll
            for (int x = 0; x < SUMS; x++) dq[x] = 0;
        uint32_t tile = base + S::Q + group * 8192; /* where q was: this group alone has read these rows */
        put_sums<E>(tile, S::ROWS * 128, warp * 16, dq, a.scale, a.scale);
        shared_fence();
        group_sync(group);
        if ((threadIdx.x & 127) == 0) {
            if (i0 < a.queries) copy_tile_out(&p.o, tile, S::D, S::ROWS * 128, at.b, at.h, i0);
            copies_out();
            copied_from();
        }
        group_sync(group);
        let_go(S::Q_EMPTY);
    }
    if ((threadIdx.x & 127) == 0) copied_out();
}

template <class E, class S, int F>
static __global__ void __launch_bounds__(THREADS, 1) query_gradient(const __grid_constant__ rows_task p) {
    extern __shared__ __align__(1024) char shared[];
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    begin_barriers<S>(base);
    if (threadIdx.x < 128) {
        few_registers();
        if (threadIdx.x < 32) feed<S, F>(p, base);
    } else {
        many_registers();
        work<E, S, F>(p, base, __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0));
    }
}

template <class E, class S, int F> static void start(const sc_task *t, const backward_task &from, int dtype) {
    const attention &a = from.a;
    rows_task p = rows_task_of<S>(a, dtype);
    p.go = tiles_of(a.go, dtype, a.batch, a.queries, a.heads, a.value_size, S::ROWS);
    p.o = tiles_of(a.dq, dtype, a.batch, a.queries, a.heads, a.size, 64);
    p.lse = from.lse;
    p.delta = from.delta;
    p.padded = from.padded;
    sc_launch(query_gradient<E, S, F>, blocks_for(t, p.items), THREADS, S::BYTES, SC_STREAM(t), p);
}

void sc_attention_hopper_dq(const sc_task *t, const backward_task &p, int dtype) {
    with_variant(p.a, dtype, [&](auto e, auto f) {
        using E = decltype(e);
        constexpr int F = decltype(f)::value;
        (p.a.size <= 192 && p.a.value_size <= 128 ? start<E, shape<192, 128>, F>
                                                  : start<E, shape<256, 256>, F>)(t, p, dtype);
    });
}
#endif
