/* What the kernels of attention for compute capability 9.0 share: tiles by the copy engine, bounds, variants.
 * Relies on: attention.h, hopper.cuh.
 * Relied on by: attention_hopper_rows.cuh, attention_hopper_grad.cuh. */
#ifndef SC_ATTENTION_HOPPER_CUH
#define SC_ATTENTION_HOPPER_CUH

#include "attention_hopper.h"
#include "hopper.cuh"

#include <type_traits>

/* Variants that a kernel is made for; windows, causality and sinks are numbers of the task. */
enum { CAPPED = 1, DROPS = 2, DOCUMENTS = 4, BIAS = 8 };

static constexpr float LOG2E = 1.4426950408889634f;

enum { THREADS = 384 }; /* three groups of four warps: one copies, two multiply */

/* The group that copies gives up registers that those that multiply take. What a kernel has at its start, 168 a
 * thread, is all there is. */
SC_DEVICE void few_registers(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}
SC_DEVICE void many_registers(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
}

/* Rows first.. of one head, `columns` of them in blocks of 64: rows · 128 bytes each. */
SC_DEVICE void copy_tile(uint32_t to, const CUtensorMap *m, uint32_t barrier, int columns, int rows, int b, int h,
                         int first) {
    for (int c = 0; c < columns; c += 64, to += rows * 128)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                     "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                     "l"(m), "r"(barrier), "r"(c), "r"(first), "r"(h), "r"(b)
                     : "memory");
}
/* Of a tile whose blocks of columns are `apart` bytes from each other, 64 rows; columns [column, columns). */
SC_DEVICE void copy_tile_out(const CUtensorMap *m, uint32_t from, int columns, int apart, int b, int h, int first,
                             int column = 0) {
    for (int c = column; c < columns; c += 64, from += apart)
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(m),
                     "r"(from), "r"(c), "r"(first), "r"(h), "r"(b)
                     : "memory");
}
SC_DEVICE void copy_floats(uint32_t to, const float *from, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
/* This thread's number, read where it is used: there are no registers to keep it in. */
SC_DEVICE int thread_now(void) {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

/* One thread of a warp arrives at a barrier for all 32, after their reads and writes. racecheck (compute-sanitizer) only
 * follows threads that arrive themselves: compiled with SC_RACECHECK, all do. */
#ifdef SC_RACECHECK
enum { ARRIVALS = 32 };
#else
enum { ARRIVALS = 1 };
#endif
SC_DEVICE void warp_arrive(uint32_t barrier) {
    __syncwarp();
    if (ARRIVALS == 32 || (thread_now() & 31) == 0) barrier_arrive(barrier);
}
/* Beside the first thread, which says how many bytes are to come. */
SC_DEVICE void others_arrive(uint32_t barrier) {
    if (ARRIVALS == 32 && (threadIdx.x & 31)) barrier_arrive(barrier);
}
SC_DEVICE void put_word(uint32_t at, int x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
SC_DEVICE int get_word(uint32_t at) {
    int x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}
/* A ring of places in shared memory: where one is, and which turn of its barriers it takes. */
struct ring {
    int at, phase;
};
template <int N> SC_DEVICE void step(ring &r) {
    if (++r.at == N) r.at = 0, r.phase ^= 1;
}

/* 16 rows and 8 · S / 4 columns of sums, times a factor for the rows g and for g + 8, as 16-bit elements to a tile in
 * blocks of 64 columns, `apart` bytes from each other. */
template <class E, int S>
SC_DEVICE void put_sums(uint32_t tile, int apart, int row0, const float (&d)[S], float upper, float lower) {
    int lane = threadIdx.x & 31, row = row0 + lane % 16, right = lane / 16;
#pragma unroll
    for (int j = 0; j < S / 4; j += 2) {
        uint32_t r[4] = {
            sc_pack<E>(d[4 * j] * upper, d[4 * j + 1] * upper), sc_pack<E>(d[4 * j + 2] * lower, d[4 * j + 3] * lower),
            sc_pack<E>(d[4 * j + 4] * upper, d[4 * j + 5] * upper),
            sc_pack<E>(d[4 * j + 6] * lower, d[4 * j + 7] * lower)};
        put_pieces(tile + j / 8 * apart + row * 128 + (((j % 8 + right) ^ (row & 7)) << 4), r);
    }
}
/* Sums as the first operand of a product, 16 of k in four registers. */
template <class E, int S> SC_DEVICE void pack_sums(uint32_t (&to)[S / 2], const float (&d)[S]) {
#pragma unroll
    for (int i = 0; i < S / 2; i++) to[i] = sc_pack<E>(d[2 * i], d[2 * i + 1]);
}

/* Are the documents of this warp's rows, and those of N columns, from `ids` on in shared memory, all the same? */
template <int N> SC_DEVICE bool one_document(uint32_t ids, const int (&rows)[2]) {
    int first = __shfl_sync(0xffffffffu, rows[0], 0);
    bool same = rows[0] == first && rows[1] == first;
#pragma unroll
    for (int x = 0; x < N; x += 32) same = same && get_word(ids + 4 * (x + (threadIdx.x & 31))) == first;
    return __all_sync(0xffffffffu, same);
}

/* Are all scores of this warp so small that a polynomial has their caps? In practice they are. A power and a quotient
 * for each would take longer than the products: one slow unit has both, and the softmax's powers. */
template <int S> SC_DEVICE bool small_scores(const attention &a, const float (&s)[S]) {
    float most = 0;
#pragma unroll
    for (int x = 0; x < S; x++) most = fmaxf(most, fabsf(s[x]));
    return __all_sync(0xffffffffu, most * a.cap_scale < SC_TANH_SMALL);
}

/* ── on the host ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* [B, rows, heads, size] as size, rows, heads, B. */
static inline CUtensorMap tiles_of(const rows_of &x, int dtype, int64_t B, int64_t rows, int64_t heads, int64_t size,
                                   int box_rows) {
    auto bytes = [](int64_t elements) { return (cuuint64_t)(elements ? elements * 2 : 16); };
    const cuuint64_t sizes[4] = {(cuuint64_t)size, (cuuint64_t)rows, (cuuint64_t)heads, (cuuint64_t)B};
    const cuuint64_t strides[3] = {bytes(x.row), bytes(x.head), bytes(x.batch)};
    const cuuint32_t box[4] = {64, (cuuint32_t)box_rows, 1, 1};
    return sc_tiles(dtype, x.p, 4, sizes, strides, box);
}

/* The copy engine takes strides and addresses of 16 bytes alone. */
static inline bool serves(const sc_task *t, const attention &a, int dtype) {
    const sc_cuda *c = sc_library(t);
    return c->major == 9 && c->minor == 0 && hopper_computes(a, dtype) &&
           ceil_of(a.queries, 64) * a.batch * a.heads <= INT32_MAX && a.q.wide && a.k.wide && a.v.wide && a.o.wide;
}

/* Wider than what one kernel keeps of dk and dv. */
static inline bool wide_heads(const attention &a) {
    return wider_size(a) > 128;
}

/* f(an element, flags) for the variants that kernels are made for: fp16 is rarer, and has fewer. */
template <class F> static void with_variant(const attention &a, int dtype, F f) {
    bool caps = a.softcap > 0;
    if (a.bias.p && dtype == FP16)
        f(sc_fp16(), std::integral_constant<int, CAPPED | DROPS | DOCUMENTS | BIAS>());
    else if (a.bias.p && (caps || a.drops || a.documents))
        f(sc_bf16(), std::integral_constant<int, CAPPED | DROPS | DOCUMENTS | BIAS>());
    else if (a.bias.p)
        f(sc_bf16(), std::integral_constant<int, BIAS>());
    else if (dtype == FP16 && (caps || a.drops || a.documents))
        f(sc_fp16(), std::integral_constant<int, CAPPED | DROPS | DOCUMENTS>());
    else if (dtype == FP16)
        f(sc_fp16(), std::integral_constant<int, 0>());
    else if (a.drops || (caps && a.documents))
        f(sc_bf16(), std::integral_constant<int, CAPPED | DROPS | DOCUMENTS>());
    else if (caps)
        f(sc_bf16(), std::integral_constant<int, CAPPED>());
    else if (a.documents)
        f(sc_bf16(), std::integral_constant<int, DOCUMENTS>());
    else
        f(sc_bf16(), std::integral_constant<int, 0>());
}

#endif
