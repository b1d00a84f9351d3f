/* Collectives of the CPU target: ranks meet, read their peers' arenas directly, and meet again before bytes may change.
 * Sums run in rank order, accumulate in `real` (double for fp64, int64 for integers) and are rounded once.
 * Relies on: rank.h, schema/math.h (conversions).
 * Relied on by: stream.c (events), rank.c (host barrier). */
#include "../schema/math.h"
#include "rank.h"
#include <string.h>

static const uint8_t *peer_bytes(const sc_rank *r, sc_members m, int k, const sc_tensor *t) {
    return r->w->arena[t->host][m.first + k * m.step] + t->at;
}

static void gather(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    size_t bytes = (size_t)sc_numel(in) * sc_size(in->dtype);
    sc_meet(r, s, m);
    for (int k = 0; k < m.n; k++) {
        uint8_t *to = (uint8_t *)out->p + (size_t)k * bytes;
        const uint8_t *from = peer_bytes(r, m, k, in);
        if (to != from) memcpy(to, from, bytes);
    }
    sc_meet(r, s, m);
}

static void exchange(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    size_t bytes = (size_t)(sc_numel(in) / m.n) * sc_size(in->dtype);
    sc_meet(r, s, m);
    for (int k = 0; k < m.n; k++)
        memcpy((uint8_t *)out->p + (size_t)k * bytes, peer_bytes(r, m, k, in) + (size_t)m.index * bytes, bytes);
    sc_meet(r, s, m);
}

/* ── sums: out[i] = Σ_k peer_k[i], k in rank order, through a block of accumulators that stays in cache ──────────────
 */
enum { BLOCK = 1024 };

#define SUM(NAME, STORED, ACC, FROM, TO)                                                                               \
    static void NAME(void *out, const uint8_t **peers, int npeers, int64_t begin, int64_t end) {                       \
        ACC acc[BLOCK];                                                                                                \
        for (int64_t b = begin; b < end; b += BLOCK) {                                                                 \
            int n = (int)(end - b < BLOCK ? end - b : BLOCK);                                                          \
            const STORED *x = (const STORED *)peers[0] + b;                                                            \
            for (int i = 0; i < n; i++) acc[i] = FROM(x[i]);                                                           \
            for (int k = 1; k < npeers; k++) {                                                                         \
                x = (const STORED *)peers[k] + b;                                                                      \
                for (int i = 0; i < n; i++) acc[i] += FROM(x[i]);                                                      \
            }                                                                                                          \
            STORED *y = (STORED *)out + (b - begin);                                                                   \
            for (int i = 0; i < n; i++) y[i] = TO(acc[i]);                                                             \
        }                                                                                                              \
    }
#define SAME(x) (x)
SUM(sum_fp32, sc_fp32_t, real, sc_from_fp32, sc_to_fp32)
SUM(sum_bf16, sc_bf16_t, real, sc_from_bf16, sc_to_bf16)
SUM(sum_fp16, sc_fp16_t, real, sc_from_fp16, sc_to_fp16)
SUM(sum_fp64, double, double, SAME, SAME)
SUM(sum_int32, int32_t, int64_t, SAME, (int32_t))
SUM(sum_int64, int64_t, int64_t, SAME, SAME)

typedef void sum_fn(void *out, const uint8_t **peers, int npeers, int64_t begin, int64_t end);
static sum_fn *const sums[] = {[FP32] = sum_fp32,   [BF16] = sum_bf16,   [FP16] = sum_fp16, [FP64] = sum_fp64,
                               [INT32] = sum_int32, [INT64] = sum_int64, [BOOL] = NULL};

enum { MAX_PEERS = 1024 };

static sum_fn *begin_sum(sc_rank *r, sc_members m, const sc_tensor *x, const uint8_t **peers) {
    sum_fn *f = sums[x->dtype];
    if (!f || m.n > MAX_PEERS)
        sc_stop(r, 3, "shardc: a sum over %d ranks of dtype %d is not possible on the CPU target", m.n, x->dtype);
    for (int k = 0; k < m.n; k++) peers[k] = peer_bytes(r, m, k, x);
    return f;
}

static void scatter(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    const uint8_t *peers[MAX_PEERS];
    sum_fn *f = begin_sum(r, m, in, peers);
    int64_t n = sc_numel(out);
    sc_meet(r, s, m);
    f(out->p, peers, m.n, n * m.index, n * (m.index + 1));
    sc_meet(r, s, m);
}

/* Also in place, where `out` is `in`, and without further memory: each rank sums its own chunk (no one else reads or
 * writes that chunk of its bytes), then fetches the other chunks from the ranks that own them. */
static void reduce(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    const uint8_t *peers[MAX_PEERS];
    sum_fn *f = begin_sum(r, m, in, peers);
    int64_t n = sc_numel(in), chunk = (n + m.n - 1) / m.n;
    size_t size = sc_size(in->dtype);
    /* chunk k is [min(k·chunk, n), min((k+1)·chunk, n)): the last ones may be empty */
    int64_t begin = chunk * m.index < n ? chunk * m.index : n, end = begin + chunk < n ? begin + chunk : n;
    sc_meet(r, s, m);
    f((uint8_t *)out->p + (size_t)begin * size, peers, m.n, begin, end);
    sc_meet(r, s, m);
    for (int k = 0; k < m.n; k++) {
        int64_t b = chunk * k < n ? chunk * k : n, e = b + chunk < n ? b + chunk : n;
        if (k != m.index && e > b)
            memcpy((uint8_t *)out->p + (size_t)b * size, peer_bytes(r, m, k, out) + (size_t)b * size,
                   (size_t)(e - b) * size);
    }
    sc_meet(r, s, m);
}

void sc_collective(sc_rank *r, sc_stream s, const sc_item *it) {
    sc_members m = sc_comm(r, it->comm);
    const sc_tensor *out = it->args->t, *in = out + 1;
    if (it->collective == SC_GATHER)
        gather(r, s, m, out, in);
    else if (it->collective == SC_EXCHANGE)
        exchange(r, s, m, out, in);
    else if (it->collective == SC_SCATTER)
        scatter(r, s, m, out, in);
    else
        reduce(r, s, m, out, it->slots > 1 ? in : out);
}
