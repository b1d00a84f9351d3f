/* What the kernels of attention's backward for compute capability 9.0 share: the task, jobs and copies, the order of
 * dq's parts, powers of scores.
 * Relies on: attention_hopper.cuh, schema/workspace.h.
 * Relied on by: k_attention_hopper_grad.cu (whose head tells how it works), k_attention_hopper_wide.cu,
 * k_attention_hopper_dq.cu. */
#ifndef SC_ATTENTION_HOPPER_GRAD_CUH
#define SC_ATTENTION_HOPPER_GRAD_CUH

#include "../schema/workspace.h"
#include "attention_hopper.cuh"

#include <type_traits>

enum { QUERIES = SC_HOPPER_QUERIES };

struct backward_task {
    CUtensorMap q, k, v, go, dk, dv;
    attention a;
    float *lse, *delta;    /* [B, H, padded]: lse · log2 e, where a row sees nothing and beyond the last +inf; delta */
    float *sums[3];        /* of dq, by the lower and by the upper half of the keys, tiles of QUERIES; of dk and dv */
    int *counters[3];      /* parts that have arrived: [B, H, tiles]; [B, key heads, blocks, 4] */
    int *ticket;           /* the next job */
    const int2 *documents; /* [B, tiles]: the first and the last block of keys of a tile of queries; NULL: none */
    int tiles, blocks, jobs, padded, block; /* block: keys of one */
    int splits;      /* jobs that share the heads of a key head */
    int half, first; /* blocks of keys from here on are the upper half, of which the tiles from `first` on see some */
};

/* Words: of a job: its block of keys (-1: the end), sample, key head, which of those that share it; of a stage: its
 * tile of queries among those of all heads (-1: the job's end), among its head's, four times the number of parts that come
 * before its own in its sums, and which sums (0, 1, 2); head; of a part: the first and the third of these. */
enum { JOB = 0, STAGE_WORDS = 16, PART_WORDS = 64, KEY_WORDS = 96 };

/* ── what sees what ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The first and the last block of keys that some query of the tile sees; the last below the first: none. */
SC_DEVICE int2 seen_blocks(const attention &a, int tile, int block) {
    int i = tile * QUERIES, first = first_seen<true>(a, i), last = last_seen<true>(a, min(i + QUERIES, a.queries) - 1);
    return first > last ? int2{0, -1} : int2{first / block, last / block};
}
SC_DEVICE int2 blocks_of(const backward_task &p, int b, int tile, int block) { /* block: p.block */
    return p.documents ? p.documents[b * p.tiles + tile] : seen_blocks(p.a, tile, block);
}

/* Where the sums of a tile are, among those of all heads. */
SC_DEVICE int64_t sums_at(const backward_task &p, int tile, int which) {
    return which == 1 ? (int64_t)(tile / p.tiles) * (p.tiles - p.first) + tile % p.tiles - p.first : tile;
}

/* ── one warp: jobs and copies ──────────────────────────────────────────────────────────────────────────────────────
 */
template <class S, int F> SC_DEVICE void feed(const backward_task &p, uint32_t base) {
    const attention &a = p.a;
    int lane = threadIdx.x & 31, key_heads = a.heads / a.group, kv_phase = 1;
    ring q = {0, 1};
    bool documents = (F & DOCUMENTS) && a.documents;
    for (;;) {
        int job = lane == 0 ? atomicAdd(p.ticket, 1) : 0;
        job = __shfl_sync(0xffffffffu, job, 0);
        bool end = job >= p.jobs;
        int pair = job % p.half, rest = job / p.half, split = rest % p.splits, head = rest / p.splits;
        int kv = head % key_heads, b = head / key_heads, heads = a.group / p.splits;
        int first_head = kv * a.group + split * heads;
        for (int which = 0; which < (end ? 1 : 2); which++) {
            int n = which ? p.blocks - 1 - pair : pair;
            if (!end && which && (p.half == p.blocks || n == pair)) break;
            barrier_wait(base + S::KV_EMPTY, kv_phase);
            kv_phase ^= 1;
            if (lane == 0) {
                uint32_t full = base + S::KV_FULL;
                put_word(base + S::WORDS + JOB, end ? -1 : n);
                put_word(base + S::WORDS + JOB + 4, b);
                put_word(base + S::WORDS + JOB + 8, kv);
                put_word(base + S::WORDS + JOB + 12, split);
                if (end) {
                    barrier_arrive(full);
                } else {
                    barrier_expect(full, S::K_BYTES + S::V_BYTES);
                    copy_tile(base + S::K, &p.k, full, S::D, S::KEYS, b, kv, n * S::KEYS);
                    copy_tile(base + S::V, &p.v, full, S::DV, S::KEYS, b, kv, n * S::KEYS);
                }
            }
            others_arrive(base + S::KV_FULL);
            if (end) return;
            int upper = n >= p.half, way = upper ? 1 : -1;
            /* queries that may see a key of the block */
            int first = max(0, n * S::KEYS - a.right) / QUERIES;
            int last = min(a.queries - 1, n * S::KEYS + S::KEYS - 1 + a.left) / QUERIES;
            int from = upper ? first : last, tiles = max(0, last - first + 1), all = tiles * heads;
            /* Blocks of keys in halves go through the tiles of queries side by side, the heads of a tile one after
             * another: so none waits for a longer one. Else a head at a time, whose sums stay in the cache. */
            for (int x = 0; x <= all; x++) {
                bool over = x == all, halves = p.half < p.blocks;
                int m = over ? 0 : from + way * (halves ? x / heads : x % tiles);
                int h = over ? 0 : first_head + (halves ? x % heads : x / tiles);
                int2 seen = over ? int2{0, 0} : blocks_of(p, b, m, S::KEYS);
                if (!over && (n < seen.x || n > seen.y)) continue;
                uint32_t full = base + S::Q_FULL + 8 * q.at, words = base + S::WORDS + STAGE_WORDS + 16 * q.at;
                int64_t row = ((int64_t)b * a.heads + h) * p.padded + m * QUERIES;
                barrier_wait(base + S::Q_EMPTY + 8 * q.at, q.phase);
                if (documents && !over) {
                    for (int y = lane; y < QUERIES; y += 32)
                        put_word(base + S::IDS + (q.at * QUERIES + y) * 4,
                                 document_of(a, b, m * QUERIES + y, a.queries));
                    __syncwarp();
                }
                if (lane == 0) {
                    put_word(words, over ? -1 : (b * a.heads + h) * p.tiles + m);
                    put_word(words + 4, m);
                    put_word(words + 8, (upper ? min(seen.y, p.blocks - 1) - n : n - seen.x) << 2 | upper);
                    put_word(words + 12, h);
                    if (over) {
                        barrier_arrive(full);
                    } else {
                        barrier_expect(full, S::Q_BYTES + QUERIES * 4);
                        copy_tile(base + S::Q + q.at * S::Q_BYTES, &p.q, full, S::D, QUERIES, b, h, m * QUERIES);
                        copy_floats(base + S::LSE + q.at * QUERIES * 4, p.lse + row, QUERIES * 4, full);
                    }
                }
                others_arrive(full);
                full = base + S::GO_FULL + 8 * q.at;
                barrier_wait(base + S::GO_EMPTY + 8 * q.at, q.phase);
                if (lane == 0 && over) {
                    barrier_arrive(full);
                } else if (lane == 0) {
                    barrier_expect(full, S::GO_BYTES + QUERIES * 4);
                    copy_tile(base + S::GO + q.at * S::GO_BYTES, &p.go, full, S::DV, QUERIES, b, h, m * QUERIES);
                    copy_floats(base + S::DELTA + q.at * QUERIES * 4, p.delta + row, QUERIES * 4, full);
                }
                others_arrive(full);
                step<S::STAGES>(q);
            }
            __syncwarp();
        }
    }
}

/* ── one warp of two: parts of sums to memory, every other one ─────────────────────────────────────────────────────────
 */
template <class S> SC_DEVICE void add_parts(const backward_task &p, uint32_t base, int which) {
    for (int phase = 0;; phase ^= 1) {
        uint32_t words = base + S::WORDS + PART_WORDS + 16 * which, from = base + S::DQ + which * S::PART;
        barrier_wait(base + S::DQ_FULL + 8 * which, phase);
        int tile = get_word(words), turn = get_word(words + 4) >> 2, of = get_word(words + 4) & 3;
        if (tile < 0) return;
        int *counter = p.counters[of] + tile;
        float *to = p.sums[of] + sums_at(p, tile, of) * (S::PART / 4);
        if (turn) {
            int there;
            do {
                asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(there) : "l"(counter) : "memory");
            } while (there != turn);
            asm volatile("fence.proxy.async;" ::: "memory");
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                         "r"(from), "r"(S::PART)
                         : "memory");
        } else {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                         "r"(S::PART)
                         : "memory");
        }
        copies_out();
        copied_from();
        barrier_arrive(base + S::DQ_EMPTY + 8 * which);
        copied_out();
        asm volatile("fence.proxy.async;" ::: "memory");
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
    }
}

/* ── four warps: 64 keys of every job ───────────────────────────────────────────────────────────────────────────────
 */
struct keys_state { /* of this thread's rows g and g + 8 */
    int key, document[2];
};
SC_DEVICE float2 get_two(uint32_t at) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at) : "memory");
    return x;
}

enum { PLAIN, SMALL, ANY }; /* no cap; scores of which sc_tanh_small is right; others */

/* Scores s, keys × queries, become powers: rounded, without those dropped, in `powers`; in s times the slope of the
 * cap. kept: a bit an element. i: the tile's first query; bias: where the
 * head's begins. */
template <class E, int F, bool HIDES, int CAP, int S>
SC_DEVICE void powers_of(const attention &a, const dropper &d, float (&s)[S], uint32_t (&powers)[S / 2], uint32_t &kept,
                         uint32_t lse, uint32_t ids, const keys_state &own, int i, int64_t bias) {
    int thread = thread_now(), t = thread & 3, g = thread >> 2 & 7;
    bool documents = (F & DOCUMENTS) && a.documents;
    float unit = (CAP != PLAIN ? a.softcap : F & BIAS ? a.scale : a.unit) * LOG2E;
    kept = 0xffffffffu;
    if ((F & DROPS) && a.drops) {
        kept = 0;
#pragma unroll
        for (int n = 0; n < S / 4; n++) kept |= kept_fragment_of_keys(d, i + 8 * n, own.key - g) << 4 * n;
    }
#pragma unroll
    for (int n = 0; n < S / 4; n++) {
        float2 minus = get_two(lse + 32 * n + 8 * t);
        float held[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = s[4 * n + e], slope = 1;
            if (CAP != PLAIN) {
                x = CAP == SMALL ? sc_tanh_small(x * a.cap_scale) : fast_tanh(x * a.cap_scale);
                slope = fmaf(-x, x, 1.0f);
            }
            float more = -(e & 1 ? minus.y : minus.x);
            if (F & BIAS)
                more = fmaf(bias_at(a, bias, i + 8 * n + 2 * t + (e & 1), own.key + 8 * (e >> 1)), LOG2E, more);
            x = sc_exp2(fmaf(x, unit, more));
            if (HIDES) {
                int column = 8 * n + 2 * t + (e & 1), query = i + column, key = own.key + 8 * (e >> 1);
                bool seen = key >= query - a.left && key <= query + a.right && key < a.keys;
                if (documents) seen = seen && get_word(ids + 4 * column) == own.document[e >> 1];
                x = seen ? x : 0;
            }
            held[e] = !(F & DROPS) || (kept >> (4 * n + e) & 1) ? x : 0;
            s[4 * n + e] = CAP != PLAIN ? x * slope : x;
        }
        powers[2 * n] = sc_pack<E>(held[0], held[1]);
        powers[2 * n + 1] = sc_pack<E>(held[2], held[3]);
    }
}

/* Scores of keys from first_key on and queries from i on, by what this warp has to look at. */
template <class E, int F, int S>
SC_DEVICE void weigh(const attention &a, float (&s)[S], uint32_t (&powers)[S / 2], uint32_t &kept, uint32_t lse,
                     uint32_t ids, const keys_state &own, int first_key, int i, const dropper &drops, int64_t bias) {
    bool hides = first_key + 15 > last_seen<true>(a, i) || first_key < first_seen<true>(a, i + 2 * S - 1);
    if ((F & DOCUMENTS) && a.documents) hides = hides || !one_document<2 * S>(ids, own.document);
    auto as = [&](auto cap) {
        constexpr int CAP = decltype(cap)::value;
        if (hides)
            powers_of<E, F, true, CAP>(a, drops, s, powers, kept, lse, ids, own, i, bias);
        else
            powers_of<E, F, false, CAP>(a, drops, s, powers, kept, lse, ids, own, i, bias);
    };
    if constexpr ((F & CAPPED) == 0)
        as(std::integral_constant<int, PLAIN>());
    else if (F == CAPPED || a.softcap > 0)
        small_scores(a, s) ? as(std::integral_constant<int, SMALL>()) : as(std::integral_constant<int, ANY>());
    else
        as(std::integral_constant<int, PLAIN>());
}

/* ds of the columns 8 x to 8 x + 15, rounded: powers times what dp has beyond its mean. */
template <class E, int F, int S>
SC_DEVICE void slopes_of(const attention &a, uint32_t (&to)[4], const float (&s)[S], const float (&dp)[S],
                         uint32_t kept, uint32_t delta, int x, int t) {
#pragma unroll
    for (int y = 0; y < 2; y++) {
        float2 mean = get_two(delta + 32 * (x + y) + 8 * t);
        float slope[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float z = dp[4 * (x + y) + e];
            if (F & DROPS) z = kept >> (4 * (x + y) + e) & 1 ? z * a.keep : 0;
            slope[e] = s[4 * (x + y) + e] * (z - (e & 1 ? mean.y : mean.x));
        }
        to[2 * y] = sc_pack<E>(slope[0], slope[1]);
        to[2 * y + 1] = sc_pack<E>(slope[2], slope[3]);
    }
}

template <class S> SC_DEVICE void begin_grad_barriers(uint32_t base) {
    if (threadIdx.x == 0) {
        barrier_init(base + S::KV_FULL, ARRIVALS);
        barrier_init(base + S::KV_EMPTY, 8 * ARRIVALS);
        for (int s = 0; s < S::STAGES; s++) {
            barrier_init(base + S::Q_FULL + 8 * s, ARRIVALS);
            barrier_init(base + S::Q_EMPTY + 8 * s, 8 * ARRIVALS);
            barrier_init(base + S::GO_FULL + 8 * s, ARRIVALS);
            barrier_init(base + S::GO_EMPTY + 8 * s, 8 * ARRIVALS);
        }
        if constexpr (S::PART > 0)
            for (int s = 0; s < 2; s++) {
                barrier_init(base + S::DQ_FULL + 8 * s, 8 * ARRIVALS);
                barrier_init(base + S::DQ_EMPTY + 8 * s, 1);
            }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
}

/* Of heads wider than 128: dk and dv, and dq. */
void sc_attention_hopper_wide(const sc_task *t, const backward_task &p, int dtype);
void sc_attention_hopper_dq(const sc_task *t, const backward_task &p, int dtype);

#endif
