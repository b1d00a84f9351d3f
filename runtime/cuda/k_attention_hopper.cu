/* attention, forward, for compute capability 9.0: the arithmetic of k_attention.cu by wgmma.
 * Relies on: attention_hopper_rows.cuh; sm_90a (the Makefile compiles this file for it, and defines SC_HOPPER, where
 * architecture 90 is among the library's).
 * Relied on by: k_attention.cu.
 *
 * Blocks stay and take tiles of queries of one head in turn. One warp copies: a tile's q, then k and v of the tiles of
 * keys that some query of it sees, each in two places. Groups of four warps multiply, 64 queries each. Two things
 * overlap with the powers of a tile (FlashAttention 3, Shah et al. 2024): the next q kᵀ and the last p v of the same
 * group, which are in flight together; and the products of the other group, as the groups take turns to start theirs.
 * Documents are read by the warp that copies, which skips what no query of the tile shares; so the grid does not depend
 * on them. */
#include "attention_hopper.h"

#ifndef SC_HOPPER
bool sc_attention_hopper(const sc_task *, const attention &, int) {
    return false;
}
#else
#include "attention_hopper_rows.cuh"

/* D, DV: widths; KEYS of a tile. o leaves from where q was if there is no other room. */
template <int D_, int DV_, int KEYS_> struct shape {
    static constexpr int D = D_, DV = DV_, GO_WIDTH = 0, KEYS = KEYS_, ROWS = 128, K_STAGES = 2, V_STAGES = 2;
    static constexpr int K_TILE = KEYS * D * 2, V_TILE = KEYS * DV * 2;
    static constexpr bool ALONE = D <= 128; /* is o's place its own? */
    enum { Q = 0, GO = 0, K = ROWS * D * 2, V = K + K_STAGES * K_TILE, LAST = V + V_STAGES * V_TILE };
    enum { O = ALONE ? LAST : Q, BARRIERS = LAST + ALONE * ROWS * DV * 2, WORDS = BARRIERS + 128, IDS = WORDS + 64 };
    enum { BYTES = IDS + K_STAGES * KEYS * 4 };
    static_assert(BYTES <= 227 * 1024, "a block's shared memory");
    enum { Q_FULL = BARRIERS, Q_EMPTY = Q_FULL + 8, K_FULL = Q_EMPTY + 8, K_EMPTY = K_FULL + 8 * K_STAGES };
    enum { V_FULL = K_EMPTY + 8 * K_STAGES, V_EMPTY = V_FULL + 8 * V_STAGES };
};

/* ── four warps: 64 queries of every tile ───────────────────────────────────────────────────────────────────────────
 */
struct rows_state { /* of this thread's rows g and g + 8 */
    float most[2], sum[2], shrink[2];
    int first[2], last[2], document[2];
};

/* Scores of keys from j on become powers of two; what o shrinks by goes to r.shrink. bias: where the head's begins. */
template <class E, int F, int S>
SC_DEVICE void soften(const attention &a, rows_state &r, float (&s)[S], float unit, int i, int j, uint32_t ids,
                      int64_t bias) {
    int t = threadIdx.x & 3;
    if ((F & CAPPED) && a.softcap > 0) {
        if (small_scores(a, s)) {
#pragma unroll
            for (int x = 0; x < S; x++) s[x] = a.softcap * sc_tanh_small(s[x] * a.cap_scale);
        } else {
#pragma unroll
            for (int x = 0; x < S; x++) s[x] = a.softcap * fast_tanh(s[x] * a.cap_scale);
        }
    }
    if (F & BIAS) {
        float factor = (F & CAPPED) && a.softcap > 0 ? 1 : a.scale;
        int row = i + ((threadIdx.x & 31) >> 2);
#pragma unroll
        for (int x = 0; x < S; x++)
            s[x] = fmaf(s[x], factor, bias_at(a, bias, row + 8 * (x >> 1 & 1), j + x / 4 * 8 + 2 * t + (x & 1)));
    }
    /* the warp's rows are i to i + 15 */
    bool documents = (F & DOCUMENTS) && a.documents && !one_document<2 * S>(ids, r.document);
    if (documents || j + 2 * S - 1 > last_seen<true>(a, i) || j < first_seen<true>(a, i + 15)) {
#pragma unroll
        for (int n = 0; n < S / 4; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int key = j + 8 * n + 2 * t + e, d = documents ? get_word(ids + 4 * (8 * n + 2 * t + e)) : 0;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    bool seen = key >= r.first[half] && key <= r.last[half];
                    if (documents) seen = seen && d == r.document[half];
                    s[4 * n + 2 * half + e] = seen ? s[4 * n + 2 * half + e] : -INFINITY;
                }
            }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = r.most[half];
#pragma unroll
        for (int n = 0; n < S / 4; n++) most = fmaxf(most, fmaxf(s[4 * n + 2 * half], s[4 * n + 2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float base = most == -INFINITY ? 0 : most * unit, sum = 0; /* a row that has seen nothing yet */
        r.shrink[half] = sc_exp2(fmaf(r.most[half], unit, -base));
        r.most[half] = most;
#pragma unroll
        for (int n = 0; n < S / 4; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                s[4 * n + e] = sc_exp2(fmaf(s[4 * n + e], unit, -base));
                sum += s[4 * n + e];
            }
        r.sum[half] = fmaf(r.sum[half], r.shrink[half], sum); /* this lane's columns; the four meet at the end */
    }
}

template <int S> SC_DEVICE void drop(const dropper &d, float (&s)[S], int i, int j) {
#pragma unroll
    for (int n = 0; n < S / 4; n++) {
        uint32_t stay = kept_fragment(d, i, j + n * 8);
#pragma unroll
        for (int e = 0; e < 4; e++) s[4 * n + e] = stay >> e & 1 ? s[4 * n + e] : 0;
    }
}

template <class E, class S, int F> SC_DEVICE void work(const rows_task &p, uint32_t base, int group) {
    const attention &a = p.a;
    constexpr int SCORES = S::KEYS / 2, SUMS = S::DV / 2;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, g = lane >> 2, t = lane & 3, q_phase = 0;
    float s[SCORES], o[SUMS], unit = fmaxf(a.unit * LOG2E, 1e-30f); /* not 0: what is hidden is -inf times this */
    uint32_t powers[SCORES / 2];
    ring k = {0, 0}, v = {0, 0};
    place at;
    uint64_t q0 = matrix_rows(base + S::Q + group * 64 * 128), k0 = matrix_rows(base + S::K);
    uint64_t v0 = matrix_turned(base + S::V, S::KEYS * 128);
#pragma unroll
    for (int x = 0; x < SUMS; x++) o[x] = 0;
#pragma unroll
    for (int x = 0; x < SCORES; x++) s[x] = 0;

    auto start_scores = [&] {
        uint64_t at_k = k0 + k.at * (S::K_TILE >> 4);
        sums_fence();
#pragma unroll
        for (int d = 0; d < S::D; d += 16)
            sums_add<E, 0, 0>(s, q0 + (d / 64) * (S::ROWS * 128 >> 4) + d % 64 / 8,
                              at_k + (d / 64) * (S::KEYS * 128 >> 4) + d % 64 / 8, d > 0);
        sums_commit();
    };
    auto start_output = [&](bool first) {
        uint64_t at_v = v0 + v.at * (S::V_TILE >> 4);
        sums_fence();
#pragma unroll
        for (int n = 0; n < S::KEYS; n += 16)
            sums_add_held<E, 1>(o, powers + n / 4, at_v + n * 8, !first || n > 0);
        sums_commit();
    };
    auto let_go = [&](uint32_t barrier) { warp_arrive(base + barrier); };
    auto next_keys = [&] { /* the first of the next tile; -1: there is none */
        barrier_wait(base + S::K_FULL + 8 * k.at, k.phase);
        return __shfl_sync(0xffffffffu, get_word(base + S::WORDS + 4 * k.at), 0);
    };
    auto weigh = [&](int j, rows_state &r, const dropper &d, int i, int64_t bias) {
        sums_here(s);
        if (!(F & DOCUMENTS)) let_go(S::K_EMPTY + 8 * k.at);
        soften<E, F>(a, r, s, unit, i, j, base + S::IDS + k.at * S::KEYS * 4, bias);
        if (F & DOCUMENTS) let_go(S::K_EMPTY + 8 * k.at);
        step<S::K_STAGES>(k);
        if ((F & DROPS) && a.drops) drop(d, s, i, j);
    };
    auto finish_output = [&] {
        sums_wait<0>();
        sums_here(o);
        let_go(S::V_EMPTY + 8 * v.at);
        step<S::V_STAGES>(v);
    };
    auto turn = [&](int of) { /* the groups start products one after another */
        asm volatile("barrier.sync %0, 256;" ::"r"(8 + of) : "memory");
    };
    auto pass_on = [&](int to) { asm volatile("barrier.arrive %0, 256;" ::"r"(8 + to) : "memory"); };

    if (group == 1) pass_on(0);
    for (int round = 0; (at = place_of(p, round)).tile >= 0; round++, q_phase ^= 1) {
        int i0 = at.tile * S::ROWS + group * 64, i = i0 + warp * 16;
        dropper d = F & DROPS ? dropper_of(a, at.b, at.h) : dropper{};
        int64_t bias = F & BIAS ? bias_of_head(a, at.b, at.h) : 0;
        rows_state r;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = i + g + 8 * half;
            r.most[half] = -INFINITY;
            r.sum[half] = 0;
            r.first[half] = first_seen<true>(a, row);
            r.last[half] = last_seen<true>(a, row);
            r.document[half] = F & DOCUMENTS ? document_of(a, at.b, row, a.queries) : 0;
        }
        bool first = true;
        barrier_wait(base + S::Q_FULL, q_phase);
        int j = next_keys();
        if (j >= 0) {
            start_scores();
            sums_wait<0>();
            weigh(j, r, d, i, bias);
            pack_sums<E>(powers, s);
            while ((j = next_keys()) >= 0) {
                turn(group);
                start_scores();
                barrier_wait(base + S::V_FULL + 8 * v.at, v.phase);
                start_output(first);
                pass_on(group ^ 1);
                sums_wait<1>();
                weigh(j, r, d, i, bias);
                finish_output();
                first = false;
#pragma unroll
                for (int x = 0; x < SUMS; x++) o[x] *= r.shrink[x >> 1 & 1];
                pack_sums<E>(powers, s);
            }
            barrier_wait(base + S::V_FULL + 8 * v.at, v.phase);
            start_output(first);
            finish_output();
        } else {
#pragma unroll
            for (int x = 0; x < SUMS; x++) o[x] = 0;
        }
        let_go(S::K_EMPTY + 8 * k.at); /* the end's */
        step<S::K_STAGES>(k);
        if (S::ALONE) let_go(S::Q_EMPTY);
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = r.sum[half], most = r.most[half], shrink = 1;
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            float top = most == -INFINITY ? most : most * a.unit;
            if (a.sinks) shrink = add_sink(a, at.h, top, sum);
            factor[half] = sum == 0 ? 0 : a.keep * shrink / sum;
            int row = i + g + 8 * half;
            if (t == 0 && row < a.queries)
                a.lse[((int64_t)at.b * a.heads + at.h) * a.queries + row] =
                    sum == 0 ? -INFINITY : a.sinks ? top + logf(sum) : fmaf(most, a.unit, logf(sum));
        }
        uint32_t tile = base + S::O + group * 64 * 128;
        bool leader = (threadIdx.x & 127) == 0;
        if (leader) copied_from();
        group_sync(group);
        put_sums<E>(tile, S::ROWS * 128, warp * 16, o, factor[0], factor[1]);
        shared_fence();
        group_sync(group);
        if (leader && i0 < a.queries) {
            copy_tile_out(&p.o, tile, S::DV, S::ROWS * 128, at.b, at.h, i0);
            copies_out();
        }
        if (!S::ALONE) {
            if (leader) copied_from();
            group_sync(group);
            let_go(S::Q_EMPTY);
        }
    }
    if ((threadIdx.x & 127) == 0) copied_out();
}

template <class E, class S, int F>
static __global__ void __launch_bounds__(THREADS, 1) forward(const __grid_constant__ rows_task p) {
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

/* ── host ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, class S, int F> static void start(const sc_task *t, const attention &a, int dtype) {
    rows_task p = rows_task_of<S>(a, dtype);
    p.o = tiles_of(a.o, dtype, a.batch, a.queries, a.heads, a.value_size, 64);
    sc_launch(forward<E, S, F>, blocks_for(t, p.items), THREADS, S::BYTES, SC_STREAM(t), p);
}

bool sc_attention_hopper(const sc_task *t, const attention &a, int dtype) {
    if (!serves(t, a, dtype)) return false;
    with_variant(a, dtype, [&](auto e, auto f) {
        using E = decltype(e);
        constexpr int F = decltype(f)::value;
        if (wide_heads(a))
            (a.size <= 192 && a.value_size <= 128 ? start<E, shape<192, 128, 128>, F>
                                                  : start<E, shape<256, 256, 64>, F>)(t, a, dtype);
        else
            (wider_size(a) <= 64 ? start<E, shape<64, 64, 128>, F>
                                                : start<E, shape<128, 128, 128>, F>)(t, a, dtype);
    });
    return true;
}
#endif
