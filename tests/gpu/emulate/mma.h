/* A GPU's block of threads, lane by lane on one CPU core: what CUDA's built-ins, launches and instructions mean.
 * Relies on: emulate.cc; CUDA's headers for host code.
 * Relied on by: kernels (.cu) that g++ compiles with `-include` of this file, in place of launch.cuh and mma.h.
 *
 * Every thread of a block is a fiber. Warps run one after another in random order, each as far as the next barrier of
 * the block; warp-wide operations wait for their 32 lanes, and lanes that meet at different ones are an error. An
 * asynchronous copy spoils its target at once and arrives as late as it may, when the thread waits for it: a missing
 * wait or barrier shows as NaN. */
#ifndef SC_MMA_H
#define SC_MMA_H
#define SC_LAUNCH_CUH
#define SC_EMULATE 1

#include "../../../runtime/cuda/cuda.h"

#include "../../../runtime/schema/math.h"
#include <algorithm>
#include <math.h>
#include <string.h>
using std::max;
using std::min;

#undef __launch_bounds__
#undef __grid_constant__
#undef __forceinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline
#define SC_DEVICE static inline
#define SC_SHARED(name) char *name = emulated_shared

struct emulated_place {
    uint3 thread, block;
    dim3 threads, blocks;
};
extern emulated_place *emulated_self; /* of the fiber that runs */
extern char *emulated_shared;
#define threadIdx (emulated_self->thread)
#define blockIdx (emulated_self->block)
#define blockDim (emulated_self->threads)
#define gridDim (emulated_self->blocks)

void emulated_launch(void (*body)(void *), void *arg, int64_t blocks, int threads, size_t shared);
/* Waits for all lanes of the warp; then `together` runs once with what each lane brought. */
void emulated_meet(const char *what, void (*together)(void **lanes), void *mine);
void emulated_copy(void *to, const void *from, int bytes, bool inside);
void emulated_arrive();
void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);

/* ── warp-wide ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class X> X emulated_shuffle_xor(X x, int mask) {
    struct lane {
        X x, y;
        int mask;
    } mine = {x, x, mask};
    emulated_meet(
        "__shfl_xor_sync",
        [](void **all) {
            for (int l = 0; l < 32; l++) ((lane *)all[l])->y = ((lane *)all[l ^ ((lane *)all[l])->mask])->x;
        },
        &mine);
    return mine.y;
}
template <class X> X __shfl_xor_sync(unsigned, X x, int mask) {
    return emulated_shuffle_xor(x, mask);
}
static inline int __reduce_min_sync(unsigned, int x) {
    for (int m = 1; m < 32; m *= 2) x = min(x, emulated_shuffle_xor(x, m));
    return x;
}
static inline int __reduce_max_sync(unsigned, int x) {
    for (int m = 1; m < 32; m *= 2) x = max(x, emulated_shuffle_xor(x, m));
    return x;
}

/* ── as in runtime/cuda/mma.h ───────────────────────────────────────────────────────────────────────────────────────
 */
struct sc_bf16 {
    uint16_t x;
};
struct sc_fp16 {
    uint16_t x;
};
SC_DEVICE float sc_widen(float x) {
    return x;
}
SC_DEVICE float sc_widen(sc_bf16 x) {
    return sc_from_bf16(x.x);
}
SC_DEVICE float sc_widen(sc_fp16 x) {
    return sc_from_fp16(x.x);
}
SC_DEVICE void sc_narrow(float *to, float x) {
    *to = x;
}
SC_DEVICE void sc_narrow(sc_bf16 *to, float x) {
    to->x = sc_to_bf16(x);
}
SC_DEVICE void sc_narrow(sc_fp16 *to, float x) {
    to->x = sc_to_fp16(x);
}
template <class E> uint32_t sc_pack(float low, float high) {
    E l, h;
    sc_narrow(&l, low);
    sc_narrow(&h, high);
    return (uint32_t)l.x | (uint32_t)h.x << 16;
}
SC_DEVICE float sc_exp2(float x) {
    return exp2f(x);
}
SC_DEVICE float sc_reciprocal(float x) {
    return 1 / x;
}
SC_DEVICE void sc_cp_async16(void *to, const void *from, bool inside) {
    emulated_copy(to, from, 16, inside);
}
SC_DEVICE void sc_cp_async4(void *to, const void *from, bool inside) {
    emulated_copy(to, from, 4, inside);
}
SC_DEVICE void sc_cp_wait() {
    emulated_arrive();
}

struct emulated_fragment {
    uint32_t *r;
    const uint16_t *row;
};
template <bool TRANSPOSED> void emulated_ldmatrix(void **all) {
    for (int l = 0; l < 32; l++)
        for (int tile = 0; tile < 4; tile++)
            for (int e = 0; e < 2; e++) {
                int row = TRANSPOSED ? l % 4 * 2 + e : l / 4, column = TRANSPOSED ? l / 4 : l % 4 * 2 + e;
                uint32_t x = ((emulated_fragment *)all[tile * 8 + row])->row[column];
                uint32_t *r = &((emulated_fragment *)all[l])->r[tile];
                *r = e ? *r | x << 16 : x;
            }
}
SC_DEVICE void sc_ldmatrix(uint32_t (&r)[4], const void *row) {
    emulated_fragment mine = {r, (const uint16_t *)row};
    emulated_meet((uintptr_t)row % 16 ? "misaligned ldmatrix" : "ldmatrix", emulated_ldmatrix<false>, &mine);
}
SC_DEVICE void sc_ldmatrix_transposed(uint32_t (&r)[4], const void *row) {
    emulated_fragment mine = {r, (const uint16_t *)row};
    emulated_meet((uintptr_t)row % 16 ? "misaligned ldmatrix.trans" : "ldmatrix.trans", emulated_ldmatrix<true>, &mine);
}

struct emulated_mma {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};
template <class E> float emulated_half(uint32_t word, int which) {
    return sc_widen(E{(uint16_t)(word >> 16 * which)});
}
/* A[r][k] is held by lane 4 (r % 8) + k / 2 % 4 in register r / 8 + 2 (k / 8); B[k][n] by lane 4n + k / 2 % 4 in k / 8.
 */
template <class E> void emulated_multiply(void **all) {
    float a[16][16], b[16][8];
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < 16; k++)
            a[r][k] = emulated_half<E>(((emulated_mma *)all[r % 8 * 4 + k / 2 % 4])->a[r / 8 + 2 * (k / 8)], k & 1);
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < 8; n++)
            b[k][n] = emulated_half<E>(((emulated_mma *)all[n * 4 + k / 2 % 4])->b[k / 8], k & 1);
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++) {
            float *c = &((emulated_mma *)all[l])->c[e];
            for (int k = 0; k < 16; k++) *c += a[l / 4 + e / 2 * 8][k] * b[k][l % 4 * 2 + e % 2];
        }
}
template <class E> void sc_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulated_mma mine = {c, a, {b0, b1}};
    emulated_meet("mma", emulated_multiply<E>, &mine);
}

template <class P>
static void sc_launch(void (*kernel)(P), int64_t blocks, int threads, size_t shared, cudaStream_t stream, P p) {
    struct call {
        void (*kernel)(P);
        P p;
    } c = {kernel, p};
    emulated_launch([](void *arg) { ((call *)arg)->kernel(((call *)arg)->p); }, &c, blocks, threads, shared);
}

#endif
