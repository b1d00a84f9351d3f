/* What kernels of fp8 share: conversions of two numbers, bytes turned in registers, runs of 8 elements.
 * Relies on: kernel.cuh.
 * Relied on by: k_quantize.cu, k_quantize_blocks.cu, k_quantize_shard.cu, k_grouped.cu, k_matmul_hopper_fp8.cu. */
#ifndef SC_FP8_CUH
#define SC_FP8_CUH

#include "kernel.cuh"

SC_DEVICE uint32_t two_fp8(bool e5m2, float a, float b) { /* a in the lower half */
#if __CUDA_ARCH__ >= 890
    uint16_t w;
    if (e5m2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(w) : "f"(b), "f"(a));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(w) : "f"(b), "f"(a));
    return w;
#else
    return e5m2 ? sc_to_fp8_e5m2(a) | (uint32_t)sc_to_fp8_e5m2(b) << 8
                : sc_to_fp8_e4m3(a) | (uint32_t)sc_to_fp8_e4m3(b) << 8;
#endif
}

SC_DEVICE uint8_t byte_of(uint32_t w, int k) {
    return (uint8_t)(w >> (8 * k));
}
/* Bytes of a and b, of which 0 to 3 are a's, by the digits of `which`, the lowest first. */
SC_DEVICE uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t which) {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, which);
#else
    uint32_t y = 0;
    for (int k = 0; k < 4; k++) y |= (uint32_t)byte_of(which >> (4 * k) & 4 ? b : a, which >> (4 * k) & 3) << (8 * k);
    return y;
#endif
}
/* Two numbers of fp8, that of the lower byte first, as fp16, which has all of them. */
SC_DEVICE uint32_t two_from_fp8(bool e5m2, uint32_t w) {
    if (e5m2) return bytes_of(w, 0, 0x1404); /* the upper byte of an fp16 */
#if __CUDA_ARCH__ >= 890
    uint32_t y;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"((uint16_t)w));
    return y;
#else
    return sc_to_fp16(sc_from_fp8_e4m3(byte_of(w, 0))) | (uint32_t)sc_to_fp16(sc_from_fp8_e4m3(byte_of(w, 1))) << 16;
#endif
}

/* Four columns of four rows of four bytes. */
SC_DEVICE void turn(const uint32_t *row, uint32_t *column) {
    uint32_t a = bytes_of(row[0], row[1], 0x5140), b = bytes_of(row[2], row[3], 0x5140);
    uint32_t c = bytes_of(row[0], row[1], 0x7362), d = bytes_of(row[2], row[3], 0x7362);
    column[0] = bytes_of(a, b, 0x5410), column[1] = bytes_of(a, b, 0x7632);
    column[2] = bytes_of(c, d, 0x5410), column[3] = bytes_of(c, d, 0x7632);
}

enum { RUN = 8 };

/* 8 elements in runs of W; those from `left` on are 0. */
template <class E, int W> struct eight {
    raw<E, W> run[RUN / W];
    SC_DEVICE void load(const typename E::type *x, int64_t left) {
#pragma unroll
        for (int j = 0; j < RUN / W; j++) {
            if (j * W < left)
                run[j].load(x + j * W);
            else
                run[j].clear();
        }
    }
    SC_DEVICE float get(int i) const {
        return run[i / W].get(i % W);
    }
};

#endif
