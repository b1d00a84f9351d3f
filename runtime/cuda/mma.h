/* Instructions that C++ has no word for: asynchronous copies to shared memory, matrix fragments, mma.sync.
 * Relies on: launch.cuh; PTX for sm_80 and later. Relied on by: attention.h, the kernels of attention, k_matmul.cu.
 * tests/gpu/emulate replaces this file on a machine without a GPU.
 *
 * mma.sync.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane = 4g + t holds of
 *   C[16][8] row-major: c0, c1 = C[g][2t, 2t+1], c2, c3 = C[g+8][2t, 2t+1];
 *   A[16][16]: a0 = A[g][2t, 2t+1], a1 = A[g+8][..], a2 = A[g][2t+8, 2t+9], a3 = A[g+8][2t+8, 2t+9];
 *   B[16][8]: b0 = B[2t, 2t+1][g], b1 = B[2t+8, 2t+9][g].
 * So two neighbouring tiles of a C, rounded, are an A: a chain of products stays in registers. */
#ifndef SC_MMA_H
#define SC_MMA_H

#include "launch.cuh"

struct sc_bf16 {
    uint16_t x;
};
struct sc_fp16 {
    uint16_t x;
};

/* ── conversions, to nearest even ───────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE float sc_widen(float x) {
    return x;
}
SC_DEVICE float sc_widen(sc_bf16 x) {
    return __uint_as_float((uint32_t)x.x << 16);
}
SC_DEVICE float sc_widen(sc_fp16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.x));
    return y;
}
SC_DEVICE void sc_narrow(float *to, float x) {
    *to = x;
}
SC_DEVICE void sc_narrow(sc_bf16 *to, float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->x) : "f"(x));
}
SC_DEVICE void sc_narrow(sc_fp16 *to, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->x) : "f"(x));
}
/* Two neighbours of a row: `low` comes first in memory. */
template <class E> SC_DEVICE uint32_t sc_pack(float low, float high);
template <> SC_DEVICE uint32_t sc_pack<sc_bf16>(float low, float high) {
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
template <> SC_DEVICE uint32_t sc_pack<sc_fp16>(float low, float high) {
    uint32_t y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

SC_DEVICE float sc_exp2(float x) { /* 2 ulp; 0 for -inf */
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

SC_DEVICE float sc_reciprocal(float x) { /* 1 ulp */
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ── copies from global to shared memory that go on while the thread does; zeros where !inside ──────────────────────
 */
SC_DEVICE void sc_cp_async16(void *to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
                 : "memory");
}
SC_DEVICE void sc_cp_async4(void *to, const void *from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 4 : 0)
                 : "memory");
}
SC_DEVICE void sc_cp_wait() { /* for all copies that this thread has started */
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* ── fragments: four 8 × 8 tiles of 16-bit elements; lane l gives the address of row l % 8 of tile l / 8 ────────────
 */
SC_DEVICE void sc_ldmatrix(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}
SC_DEVICE void sc_ldmatrix_transposed(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* c += a b */
template <class E> SC_DEVICE void sc_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <> SC_DEVICE void sc_mma<sc_bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> SC_DEVICE void sc_mma<sc_fp16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
