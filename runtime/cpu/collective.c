/* Collectives of the CPU target: ranks meet, read their peers' arenas directly (on another machine: through far.c), and
 * meet again before bytes may change.
 * Sums run in rank order, accumulate in `real` (double for fp64, int64 for integers) and are rounded once.
 * Relies on: common/far.h, rank.h, schema/math.h (conversions).
 * Relied on by: stream.c (events), rank.c (host barrier). */
#include "../common/far.h"
#include "../schema/math.h"
#include "rank.h"
#include <string.h>

static const uint8_t *peer_bytes(const sc_rank *r, sc_members m, int k, const sc_tensor *t) {
    return r->w->arena[t->host][m.first + k * m.step] + t->at;
}

/* Bytes [from, from + n) of a member's tensor. First all members are asked, so that other machines send at once; then
 * their bytes are taken in the same order. */
static void ask(sc_rank *r, sc_stream s, sc_members m, int k, const sc_tensor *t, size_t from, size_t n) {
    int rank = m.first + k * m.step;
    if (n && sc_is_far(r, rank)) sc_far_ask(r, s, rank, t->host, t->at + from, n);
}

static void take(sc_rank *r, sc_stream s, sc_members m, int k, const sc_tensor *t, size_t from, size_t n, uint8_t *to) {
    int rank = m.first + k * m.step;
    if (n && sc_is_far(r, rank))
        sc_far_take(r, s, rank, to, n);
    else if (n && to != peer_bytes(r, m, k, t) + from)
        memcpy(to, peer_bytes(r, m, k, t) + from, n);
}

static void gather(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    size_t bytes = (size_t)sc_numel(in) * sc_size(in->dtype);
    sc_meet(r, s, m);
    for (int k = 0; k < m.n; k++) ask(r, s, m, k, in, 0, bytes);
    for (int k = 0; k < m.n; k++) take(r, s, m, k, in, 0, bytes, (uint8_t *)out->p + (size_t)k * bytes);
    sc_meet(r, s, m);
}

static void exchange(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    size_t bytes = (size_t)(sc_numel(in) / m.n) * sc_size(in->dtype), from = (size_t)m.index * bytes;
    sc_meet(r, s, m);
    for (int k = 0; k < m.n; k++) ask(r, s, m, k, in, from, bytes);
    for (int k = 0; k < m.n; k++) take(r, s, m, k, in, from, bytes, (uint8_t *)out->p + (size_t)k * bytes);
    sc_meet(r, s, m);
}

/* ── sums: out[i] = Σ_k peer_k[i], k in rank order, through a block of accumulators that stays in cache ──────────────
 */
enum { BLOCK = 1024 };

#define SUM(NAME, STORED, ACC, FROM, TO)                                                                               \
    static void NAME(void *out, const uint8_t **peers, int npeers, int64_t count) {                                    \
        ACC acc[BLOCK];                                                                                                \
        for (int64_t b = 0; b < count; b += BLOCK) {                                                                   \
            int n = (int)(count - b < BLOCK ? count - b : BLOCK);                                                      \
            const STORED *x = (const STORED *)peers[0] + b;                                                            \
            for (int i = 0; i < n; i++) acc[i] = FROM(x[i]);                                                           \
            for (int k = 1; k < npeers; k++) {                                                                         \
                x = (const STORED *)peers[k] + b;                                                                      \
                for (int i = 0; i < n; i++) acc[i] += FROM(x[i]);                                                      \
            }                                                                                                          \
            STORED *y = (STORED *)out + b;                                                                             \
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

typedef void sum_fn(void *out, const uint8_t **peers, int npeers, int64_t count);
static sum_fn *const sums[] = {[FP32] = sum_fp32,   [BF16] = sum_bf16,   [FP16] = sum_fp16, [FP64] = sum_fp64,
                               [INT32] = sum_int32, [INT64] = sum_int64, [INT8] = NULL};

enum { MAX_PEERS = 1024 };

/* Elements [begin, end) of all members' x, summed into `out`. What other machines' members have is taken a piece at a
 * time, so that the pieces of all of them fit what is set aside for them. */
static void sum(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *x, uint8_t *out, int64_t begin, int64_t end) {
    const uint8_t *peers[MAX_PEERS];
    sum_fn *f = sums[x->dtype];
    if (!f || m.n > MAX_PEERS)
        sc_stop(r, 3, "shardc: a sum over %d ranks of dtype %d is not possible on the CPU target", m.n, x->dtype);
    size_t size = sc_size(x->dtype);
    bool far = false;
    for (int k = 0; k < m.n; k++) far |= sc_is_far(r, m.first + k * m.step);
    int64_t most = far ? (int64_t)(SC_FAR_BYTES / size) / m.n : end - begin;
    for (int64_t at = begin, n; at < end; at += n, out += (size_t)n * size) {
        n = end - at < most ? end - at : most;
        size_t from = (size_t)at * size, bytes = (size_t)n * size;
        for (int k = 0; k < m.n; k++) ask(r, s, m, k, x, from, bytes);
        for (int k = 0; k < m.n; k++) {
            if (!sc_is_far(r, m.first + k * m.step)) {
                peers[k] = peer_bytes(r, m, k, x) + from;
            } else {
                uint8_t *piece = sc_far_room(r, s) + (size_t)k * bytes;
                take(r, s, m, k, x, from, bytes, piece);
                peers[k] = piece;
            }
        }
        f(out, peers, m.n, n);
    }
}

static void scatter(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    int64_t n = sc_numel(out);
    sc_meet(r, s, m);
    sum(r, s, m, in, out->p, n * m.index, n * (m.index + 1));
    sc_meet(r, s, m);
}

/* Also in place, where `out` is `in`, and without further memory: each rank sums its own chunk (no one else reads or
 * writes that chunk of its bytes), then fetches the other chunks from the ranks that own them. Chunk k is
 * [min(k·chunk, n), min((k+1)·chunk, n)): the last ones may be empty. */
static void reduce(sc_rank *r, sc_stream s, sc_members m, const sc_tensor *out, const sc_tensor *in) {
    int64_t n = sc_numel(in), chunk = (n + m.n - 1) / m.n;
    size_t size = sc_size(in->dtype);
#define BEGIN(k) (chunk * (k) < n ? chunk * (k) : n)
#define FROM(k) ((size_t)BEGIN(k) * size)
    sc_meet(r, s, m);
    sum(r, s, m, in, (uint8_t *)out->p + FROM(m.index), BEGIN(m.index), BEGIN(m.index + 1));
    sc_meet(r, s, m);
    for (int k = 0; k < m.n; k++)
        if (k != m.index) ask(r, s, m, k, out, FROM(k), FROM(k + 1) - FROM(k));
    for (int k = 0; k < m.n; k++)
        if (k != m.index) take(r, s, m, k, out, FROM(k), FROM(k + 1) - FROM(k), (uint8_t *)out->p + FROM(k));
    sc_meet(r, s, m);
#undef FROM
#undef BEGIN
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
