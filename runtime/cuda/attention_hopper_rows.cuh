/* What the kernels of attention for compute capability 9.0 share that walk over keys for a tile of queries: their task,
 * which tile comes next, and the warp that copies.
 * Relies on: attention_hopper.cuh.
 * Relied on by: k_attention_hopper.cu (o), k_attention_hopper_dq.cu. */
#ifndef SC_ATTENTION_HOPPER_ROWS_CUH
#define SC_ATTENTION_HOPPER_ROWS_CUH

#include "attention_hopper.cuh"

struct rows_task {
    CUtensorMap q, k, v, o, go; /* o: what is computed, o or dq; go: for dq */
    const float *lse, *delta;   /* for dq: of every row, as backward_task has them */
    attention a;
    int tiles, items, together, padded; /* tiles of queries; of all heads; heads whose tiles are taken in turn */
};

struct place {
    int b, h, tile; /* tile < 0: none */
};
/* Long tiles come first; every other round goes through the blocks from the last one on, so that all have about as much
 * to do. Heads go together as long as their keys stay in the second-level cache. */
SC_DEVICE place place_of(const rows_task &p, int round) {
    int grid = gridDim.x, block = round & 1 ? grid - 1 - (int)blockIdx.x : (int)blockIdx.x;
    int64_t item = (int64_t)round * grid + block;
    if (item >= p.items) return {0, 0, -1};
    int group = (int)(item / ((int64_t)p.together * p.tiles)), first = group * p.together;
    int rest = (int)(item - (int64_t)first * p.tiles), heads = min(p.together, p.items / p.tiles - first);
    int head = first + rest % heads;
    return {head / p.a.heads, head % p.a.heads, p.tiles - 1 - rest / heads};
}

/* Which of 32 tiles of keys, from `first` on, may share a document with what has `own`: a bit for each. A lane reads a
 * tile. */
template <int KEYS> SC_DEVICE uint32_t sharing(const attention &a, int b, span own, int first) {
    int from = min(first + (int)(threadIdx.x & 31) * KEYS, a.keys), end = min(from + KEYS, a.keys);
    span s = {INT32_MAX, INT32_MIN};
#pragma unroll 2
    for (const int32_t *d = documents_of(a, b); from < end; from++) {
        int x = __ldg(d + from * a.document_row);
        s.low = min(s.low, x);
        s.high = max(s.high, x);
    }
    return __ballot_sync(0xffffffffu, meet(own, s));
}

/* ── one warp: copies ───────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class S, int F> SC_DEVICE void feed(const rows_task &p, uint32_t base) {
    const attention &a = p.a;
    int lane = threadIdx.x & 31, q_phase = 1;
    ring k = {0, 1}, v = {0, 1};
    place at;
    for (int round = 0; (at = place_of(p, round)).tile >= 0; round++, q_phase ^= 1) {
        int i0 = at.tile * S::ROWS, kv = at.h / a.group, end = last_seen<true>(a, min(i0 + S::ROWS, a.queries) - 1) + 1;
        span own = {0, 0};
        bool documents = (F & DOCUMENTS) && a.documents;
        if (documents) own = document_span(a, at.b, i0, min(i0 + S::ROWS, a.queries));
        barrier_wait(base + S::Q_EMPTY, q_phase);
        if (lane == 0) {
            barrier_expect(base + S::Q_FULL, S::ROWS * (S::D + S::GO_WIDTH) * 2);
            copy_tile(base + S::Q, &p.q, base + S::Q_FULL, S::D, S::ROWS, at.b, at.h, i0);
            if (S::GO_WIDTH) copy_tile(base + S::GO, &p.go, base + S::Q_FULL, S::GO_WIDTH, S::ROWS, at.b, at.h, i0);
        }
        others_arrive(base + S::Q_FULL);
        uint32_t some = 0; /* of the tiles from j on, those that may share a document: so many bits are known */
        for (int j = first_seen<true>(a, i0) / S::KEYS * S::KEYS, known = 0;; j += S::KEYS, some >>= 1, known--) {
            bool none = j >= end;
            if (documents && !none) {
                if (known == 0) some = sharing<S::KEYS>(a, at.b, own, j), known = 32;
                if (!(some & 1)) continue;
            }
            uint32_t full = base + S::K_FULL + 8 * k.at;
            barrier_wait(base + S::K_EMPTY + 8 * k.at, k.phase);
            if (documents && !none) {
                for (int x = lane; x < S::KEYS; x += 32)
                    put_word(base + S::IDS + (k.at * S::KEYS + x) * 4, document_of(a, at.b, j + x, a.keys));
                __syncwarp();
            }
            if (lane == 0) {
                put_word(base + S::WORDS + 4 * k.at, none ? -1 : j);
                if (none) {
                    barrier_arrive(full);
                } else {
                    barrier_expect(full, S::K_TILE);
                    copy_tile(base + S::K + k.at * S::K_TILE, &p.k, full, S::D, S::KEYS, at.b, kv, j);
                }
            }
            others_arrive(full);
            step<S::K_STAGES>(k);
            if (none) break;
            full = base + S::V_FULL + 8 * v.at;
            barrier_wait(base + S::V_EMPTY + 8 * v.at, v.phase);
            if (lane == 0) {
                barrier_expect(full, S::V_TILE);
                copy_tile(base + S::V + v.at * S::V_TILE, &p.v, full, S::DV, S::KEYS, at.b, kv, j);
            }
            others_arrive(full);
            step<S::V_STAGES>(v);
        }
        __syncwarp();
    }
}

template <class S> SC_DEVICE void begin_barriers(uint32_t base) {
    if (threadIdx.x == 0) {
        barrier_init(base + S::Q_FULL, ARRIVALS);
        barrier_init(base + S::Q_EMPTY, 8 * ARRIVALS);
        for (int s = 0; s < S::K_STAGES; s++) {
            barrier_init(base + S::K_FULL + 8 * s, ARRIVALS);
            barrier_init(base + S::K_EMPTY + 8 * s, 8 * ARRIVALS);
        }
        for (int s = 0; s < S::V_STAGES; s++) {
            barrier_init(base + S::V_FULL + 8 * s, ARRIVALS);
            barrier_init(base + S::V_EMPTY + 8 * s, 8 * ARRIVALS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
}

/* ── on the host ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Keys and values that stay in the second-level cache while the tiles of their heads are taken in turn: of an H100's 50
 * MiB. */
enum { CACHED = 32 << 20 };

template <class S> static rows_task rows_task_of(const attention &a, int dtype) {
    rows_task p = {};
    int64_t heads = (int64_t)a.batch * a.heads, key_head = (int64_t)a.keys * (a.size + a.value_size) * 2;
    p.a = a;
    p.q = tiles_of(a.q, dtype, a.batch, a.queries, a.heads, a.size, S::ROWS);
    p.k = tiles_of(a.k, dtype, a.batch, a.keys, a.heads / a.group, a.size, S::KEYS);
    p.v = tiles_of(a.v, dtype, a.batch, a.keys, a.heads / a.group, a.value_size, S::KEYS);
    p.tiles = (int)ceil_of(a.queries, S::ROWS);
    p.items = (int)(p.tiles * heads);
    p.together = (int)std::min<int64_t>(heads, std::max<int64_t>(1, CACHED / key_head) * a.group);
    return p;
}
static inline int64_t blocks_for(const sc_task *t, int64_t items) {
    return std::min<int64_t>(items, sc_library(t)->multiprocessors);
}

#endif
