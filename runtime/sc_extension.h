/* What a model's own C and CUDA C sees: element types with their conversions (schema/math.h), and what its functions
 * are told. Relies on: schema/math.h. Relied on by: files that models name in nn.all_gather_extension and nn.custom_op;
 * sc_extension_call.h.
 *
 * All-gather extensions (`amax` only where it is declared; `stream` only in CUDA C):
 *   void pre_all_gather(const sc_piece *p, const STORED *x, const float *amax, WIRE *w, ..., cudaStream_t stream);
 *   void post_all_gather(const sc_piece *p, const WIRE *w, ..., const float *amax, PARAMETER *y, cudaStream_t stream);
 * Custom ops (gradients of floating-point operands only):
 *   void forward(const sc_call *c, const X *x, ..., Y *y, ..., cudaStream_t stream);
 *   void backward(const sc_call *c, const Y *gy, ..., const X *x, ..., const Y *y, ..., X *gx, ..., cudaStream_t
 * stream); In CUDA C all pointers but the first are the GPU's: functions launch kernels on `stream` and neither
 * allocate nor wait.
 */
#ifndef SC_EXTENSION_H
#define SC_EXTENSION_H

#include "schema/math.h"

typedef uint8_t sc_fp8_e4m3_t; /* 1 sign, 4 exponent, 3 mantissa bits, largest 448, no infinity */
typedef uint8_t sc_fp8_e5m2_t; /* upper half of an fp16 */

enum { SC_MAX_DIMS = 6, SC_MAX_WIRES = 4, SC_MAX_TENSORS = 32, SC_MAX_NUMBERS = 5 };

/* A parameter, and the elements of it [begin, end), counted in row-major order, that a call is about: before the gather
 * what this rank holds, which may be nothing; after it all of them. Pointers to elements point to element `begin`. */
typedef struct {
    const char *path; /* "layers.0.mlp.up.weight" */
    int dims;
    int64_t shape[SC_MAX_DIMS], numel, begin, end;
    int rank, ranks;     /* of those that the parameter is sharded over */
    int64_t flat, slice; /* its first element in the unit's buffer, of which rank r holds [r, r + 1) * slice */
    int64_t
        stride[SC_MAX_WIRES]; /* of a wire `per = "piece"` after the gather: elements from one rank's to the next's */
} sc_piece;

/* What rank r holds begins here, and ends where that of rank r + 1 begins. */
SC_FN int64_t sc_piece_begin(const sc_piece *p, int r) {
    int64_t at = r * p->slice - p->flat;
    return at < 0 ? 0 : at < p->numel ? at : p->numel;
}

typedef struct {
    int dims;
    int64_t size[SC_MAX_DIMS], numel;
} sc_extent;

typedef struct {
    int tensors; /* as many as the function has pointers to elements, in that order */
    sc_extent tensor[SC_MAX_TENSORS];
    int rank, world;
    double numbers[SC_MAX_NUMBERS]; /* of nn.custom_op */
} sc_call;

/* To nearest, ties to even; what is larger than 448 becomes 448, as is usual where a scale keeps values in range. */
SC_FN sc_fp8_e4m3_t sc_to_fp8_e4m3(float x) {
    uint32_t u = sc_bits(x), sign = u >> 31 << 7, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (sc_fp8_e4m3_t)(sign | 0x7f);
    if (a >= 0x43e80000u) return (sc_fp8_e4m3_t)(sign | 0x7e);                                       /* 464 */
    if (a < 0x3c800000u) return (sc_fp8_e4m3_t)(sign | sc_bits(sc_float(a) * 512 + 0x1p23f) % 0x40); /* below 2^-6 */
    return (sc_fp8_e4m3_t)(sign | ((a + 0x7ffffu + (a >> 20 & 1) - 0x3c000000u) >> 20));
}
SC_FN float sc_from_fp8_e4m3(sc_fp8_e4m3_t h) {
    uint32_t sign = (uint32_t)(h & 0x80) << 24, a = h & 0x7fu;
    float small = (float)a * 0x1p-9f;
    uint32_t bits = a == 0x7f ? 0x7fc00000u : a < 8 ? sc_bits(small) : (a << 20) + 0x3c000000u;
    return sc_float(bits | sign);
}
SC_FN sc_fp8_e5m2_t sc_to_fp8_e5m2(float x) {
    uint32_t u = sc_bits(x), a = u & 0x7fffffffu;
    uint32_t sign = u >> 31 << 7;
    if (a > 0x7f800000u) return (sc_fp8_e5m2_t)(sign | 0x7f);
    if (a >= 0x47700000u) return (sc_fp8_e5m2_t)(sign | (a >= 0x7f800000u ? 0x7c : 0x7b)); /* 61440 */
    if (a < 0x38800000u)
        return (sc_fp8_e5m2_t)(sign | sc_bits(sc_float(a) * 0x1p16f + 0x1p23f) % 0x40); /* below 2^-14 */
    return (sc_fp8_e5m2_t)(sign | ((a + 0xfffffu + (a >> 21 & 1) - 0x38000000u) >> 21));
}
SC_FN float sc_from_fp8_e5m2(sc_fp8_e5m2_t h) {
    return (float)sc_from_fp16((sc_fp16_t)(h << 8));
}

#endif
