/* Element types, their conversions, and the functions that ops.def's expressions name, in type `real`.
 * Relies on: schema/fn.h, schema/special.h (functions with loops), the C library (fma; libm in the fp64 test build).
 * Relied on by: kernels of both targets, generated NAME_kernels.
 *
 * Everything is branch-free so that the compiler vectorises it, and written in single IEEE operations (fma where fma is
 * meant; compile with -ffp-contract=off, nvcc with -fmad=false), so an element has the same bits in a vector, in a
 * loop's tail or alone. A GPU takes e^x and quotients by its own instructions: a few ulp from the CPU's bits.
 * Polynomials are relative minimax fits (Remez) on the stated interval; the reductions are the classical ones (Cody and
 * Waite 1980; Muller, Elementary Functions, 2016). Largest errors that tests/unit/test_kernels_math.c finds on every
 * 4099th float, rounded up, in ulp: log 0.8, exp 1.1, tanh 1.3, sigmoid 2.3, gelu_tanh 4.5 (results above
 * 1e-6), gelu 6 (both worst in the negative tail), derivatives 3 (results above 0.3; nearer to their zeros 3e-7
 * absolute); expm1 1.6, log1p 1.5, tan 2; 0.6 what is computed in double. */
#ifndef SC_MATH_H
#define SC_MATH_H

#include "fn.h"
#include <math.h>
#include <stdint.h>

#ifdef SC_FP64
typedef double real;
#else
typedef float real;
#endif

typedef float sc_fp32_t;
typedef uint16_t sc_bf16_t; /* upper half of a float */
typedef uint16_t sc_fp16_t; /* IEEE binary16 */
typedef double sc_fp64_t;
typedef int32_t sc_int32_t;
typedef int64_t sc_int64_t;
typedef uint8_t sc_bool_t;
typedef int8_t sc_int8_t;
typedef uint8_t sc_fp8_e4m3_t; /* 1 sign, 4 exponent, 3 mantissa bits, largest 448, no infinity */
typedef uint8_t sc_fp8_e5m2_t; /* upper half of an fp16 */

SC_FN uint32_t sc_bits(float x) {
    uint32_t u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}
SC_FN float sc_float(uint32_t u) {
    float x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}
SC_FN int64_t sc_bits64(double x) {
    int64_t u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}
SC_FN double sc_double(int64_t u) {
    double x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}

/* The order of floats of `width` bits, whose infinity has these bits, as that of unsigned numbers of so many bits: -0
 * is 0, a NaN is above all, and as large as any other. */
SC_FN uint64_t sc_order(uint64_t bits, int width, uint64_t infinity) {
    uint64_t sign = (uint64_t)1 << (width - 1), magnitude = bits & (sign - 1);
    if (magnitude > infinity) return sign | (sign - 1);
    if (!magnitude) return sign;
    return bits & sign ? sign - 1 - magnitude : bits | sign;
}
SC_FN uint64_t sc_order_fp32(sc_fp32_t x) {
    return sc_order(sc_bits(x), 32, 0x7f800000u);
}
SC_FN uint64_t sc_order_bf16(sc_bf16_t x) {
    return sc_order(x, 16, 0x7f80u);
}
SC_FN uint64_t sc_order_fp16(sc_fp16_t x) {
    return sc_order(x, 16, 0x7c00u);
}
SC_FN uint64_t sc_order_fp64(sc_fp64_t x) {
    return sc_order((uint64_t)sc_bits64(x), 64, 0x7ff0000000000000u);
}
SC_FN uint64_t sc_order_int32(sc_int32_t x) {
    return (uint32_t)x ^ 0x80000000u;
}

/* ── conversions: to nearest, ties to even; NaN stays NaN ────────────────────────────────────────────────────────────
 */
SC_FN real sc_from_fp32(sc_fp32_t x) {
    return x;
}
SC_FN real sc_from_fp64(sc_fp64_t x) {
    return (real)x;
}
SC_FN real sc_from_int32(sc_int32_t x) {
    return (real)x;
}
SC_FN real sc_from_int64(sc_int64_t x) {
    return (real)x;
}
SC_FN real sc_from_bool(sc_bool_t x) {
    return (real)(x != 0);
}
SC_FN real sc_from_int8(sc_int8_t x) {
    return (real)x;
}
SC_FN real sc_from_bf16(sc_bf16_t x) {
    return sc_float((uint32_t)x << 16);
}
SC_FN real sc_from_fp16(sc_fp16_t h) {
#ifdef __CUDA_ARCH__
    real x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#else
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = sc_bits(sc_float(magnitude) * 0x1p112f); /* shifts the exponent's bias, also of subnormals */
    uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
    return sc_float(bits | (uint32_t)(h & 0x8000) << 16);
#endif
}
SC_FN sc_fp32_t sc_to_fp32(real x) {
    return (float)x;
}
SC_FN sc_fp64_t sc_to_fp64(real x) {
    return x;
}
SC_FN sc_int32_t sc_to_int32(real x) {
    return (int32_t)x;
}
SC_FN sc_int64_t sc_to_int64(real x) {
    return (int64_t)x;
}
SC_FN sc_bool_t sc_to_bool(real x) {
    return x != 0;
}
#ifdef __CUDA_ARCH__ /* the same bits (a NaN loses its payload); converting two at once is the fast instruction */
SC_FN sc_bf16_t sc_to_bf16(real x) {
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(0.0f), "f"(x));
    return (sc_bf16_t)two;
}
SC_FN sc_fp16_t sc_to_fp16(real x) {
    uint32_t two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(0.0f), "f"(x));
    return (sc_fp16_t)two;
}
SC_FN real sc_as_bf16(real x) { /* rounded, in the upper half already */
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(x), "f"(0.0f));
    return sc_float(two);
}
#else
SC_FN sc_bf16_t sc_to_bf16(real r) {
    uint32_t u = sc_bits((float)r);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    return (sc_bf16_t)(r != r ? (u >> 16) | 0x40u : rounded);
}
SC_FN sc_fp16_t sc_to_fp16(real r) {
    uint32_t u = sc_bits((float)r), a = u & 0x7fffffffu;
    uint32_t normal = (a + 0xfffu + ((a >> 13) & 1) - 0x38000000u) >> 13;
    uint32_t small = sc_bits(sc_float(a) + 0.5f) - 0x3f000000u; /* 0.5's ulp is the unit of fp16's subnormals */
    uint32_t h = a < 0x38800000u ? small : normal;
    h = a >= 0x47800000u ? 0x7c00u : h;
    h = a > 0x7f800000u ? 0x7e00u | ((a >> 13) & 0x3ffu) : h;
    return (sc_fp16_t)(h | (u >> 16 & 0x8000u));
}
SC_FN real sc_as_bf16(real x) {
    return sc_from_bf16(sc_to_bf16(x));
}
#endif

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
/* Of a block in e4m3 whose largest magnitude is amax: its scale, and what its numbers are multiplied by. No scale is
 * made of less than 2^-117, whose 448th is still a normal number, and 448 over it finite. */
SC_FN float sc_block_scale(float amax) {
    return amax < 0x1p-117f ? 1 : amax / 448;
}
SC_FN float sc_block_factor(float amax) {
    return amax < 0x1p-117f ? 1 : 448 / amax;
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

#ifdef SC_FP64
/* ── the fp64 test build: libm ───────────────────────────────────────────────────────────────────────────────────────
 */
SC_FN real sc_abs(real x) {
    return fabs(x);
}
SC_FN real sc_sqrt(real x) {
    return sqrt(x);
}
SC_FN real sc_fma(real a, real b, real c) {
    return fma(a, b, c);
}
SC_FN real sc_exp(real x) {
    return exp(x);
}
SC_FN real sc_log(real x) {
    return log(x);
}
SC_FN real sc_tanh(real x) {
    return tanh(x);
}
SC_FN real sc_pow(real x, real y) {
    return pow(x, y);
}
SC_FN real sc_expm1(real x) {
    return expm1(x);
}
SC_FN real sc_log1p(real x) {
    return log1p(x);
}
SC_FN real sc_two_to(real x) {
    return exp2(x);
}
SC_FN real sc_log2(real x) {
    return log2(x);
}
SC_FN real sc_log10(real x) {
    return log10(x);
}
SC_FN real sc_sinh(real x) {
    return sinh(x);
}
SC_FN real sc_cosh(real x) {
    return cosh(x);
}
SC_FN real sc_asinh(real x) {
    return asinh(x);
}
SC_FN real sc_acosh(real x) {
    return acosh(x);
}
SC_FN real sc_atanh(real x) {
    return atanh(x);
}
SC_FN real sc_sin(real x) {
    return sin(x);
}
SC_FN real sc_cos(real x) {
    return cos(x);
}
SC_FN real sc_tan(real x) {
    return tan(x);
}
SC_FN real sc_atan(real x) {
    return atan(x);
}
SC_FN real sc_asin(real x) {
    return asin(x);
}
SC_FN real sc_acos(real x) {
    return acos(x);
}
SC_FN real sc_atan2(real y, real x) {
    return atan2(y, x);
}
SC_FN real sc_erf(real x) {
    return erf(x);
}
SC_FN real sc_erfc(real x) {
    return erfc(x);
}
SC_FN real sc_erf_slope(real x) {
    return 1.1283791670955125739 * exp(-x * x);
}
SC_FN real sc_fmod(real a, real b) {
    return fmod(a, b);
}
SC_FN real sc_hypot(real a, real b) {
    return hypot(a, b);
}
SC_FN real sc_whole_below(real x) {
    return floor(x);
}
SC_FN real sc_whole_above(real x) {
    return ceil(x);
}
SC_FN real sc_whole_toward_zero(real x) {
    return trunc(x);
}
SC_FN real sc_whole_nearest(real x) {
    return rint(x);
}
SC_FN real sc_sigmoid(real x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}
SC_FN real sc_gelu(real x) {
    return x * (0.5 * erfc(-x * M_SQRT1_2));
}
SC_FN real sc_gelu_grad(real g, real x) {
    real phi = exp(-0.5 * x * x) * 0.39894228040143267794;
    return g * (0.5 * erfc(-x * M_SQRT1_2) + (fabs(x) < 40 ? x * phi : 0));
}
SC_FN real sc_gelu_tanh(real x) {
    return x * sc_sigmoid(1.5957691216057307117 * (x + 0.044715 * x * x * x));
}
SC_FN real sc_gelu_tanh_grad(real g, real x) {
    real c = x > 30 ? 30 : x < -30 ? -30 : x;
    real s = sc_sigmoid(1.5957691216057307117 * (c + 0.044715 * c * c * c));
    return g * (s + c * s * (1 - s) * 1.5957691216057307117 * (1 + 3 * 0.044715 * c * c));
}
SC_FN real sc_silu_grad(real g, real x) {
    real c = x > 800 ? 800 : x < -800 ? -800 : x, s = sc_sigmoid(x);
    return g * (s + c * s * (1 - s));
}
SC_FN real sc_gate(real x) {
    return sc_sigmoid(x);
}
#else
/* ── float ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_FN real sc_abs(real x) {
    return __builtin_fabsf(x);
}
SC_FN real sc_sqrt(real x) {
    return __builtin_sqrtf(x);
}
SC_FN real sc_fma(real a, real b, real c) {
    return __builtin_fmaf(a, b, c);
}

#ifdef __CUDA_ARCH__
/* On a GPU: the hardware's 2^t and 1/x, of 2 and 1 ulp, with what they lack put right by an fma or two. Bits differ
 * from the CPU's, errors are of the same size (tests/gpu/test_math.cu), and a kernel of them is bound by its bytes.
 *
 * exp x = 2^t (1 + d ln 2), t = x log2 e as rounded, d what rounding took. */
SC_FN real sc_exp(real x) {
    real c = x < -104.0f ? -104.0f : x, y;
    real t = c * 1.44269504f, d = sc_fma(c, 1.92596303e-8f, sc_fma(c, 1.44269504f, -t));
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(t));
    y = sc_fma(y * 0.693147181f, d, y);
    return x >= 88.7228394f ? HUGE_VALF : y;
}
/* For x <= 0; 0 where the result is subnormal. */
SC_FN real sc_exp_falling(real x) {
    real c, y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(x), "f"(-104.0f));
    real t = c * 1.44269504f, d = sc_fma(c, 1.92596303e-8f, sc_fma(c, 1.44269504f, -t));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(t));
    return sc_fma(y * 0.693147181f, d, y);
}
/* a / b, b finite and not tiny. */
SC_FN real sc_quotient(real a, real b) {
    real r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    return a * sc_fma(sc_fma(-b, r, 1.0f), r, r);
}
#else
/* exp x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2; e^r = 1 + r + r² q(r). 2^n in two factors reaches subnormals.
 */
SC_FN real sc_exp(real x) {
    real c = x > 89.0f ? 89.0f : x;
    c = c < -104.0f ? -104.0f : c;
    real shifted = sc_fma(c, 1.44269504f, 12582912.0f); /* 1.5·2^23: the sum's last bit has weight one */
    int32_t n = (int32_t)(sc_bits(shifted) - 0x4b400000u);
    real k = shifted - 12582912.0f;
    real r = sc_fma(k, -0.693145752f, c);
    r = sc_fma(k, -1.42860677e-06f, r);
    real q = sc_fma(1.39412156e-3f, r, 8.3632376e-3f);
    q = sc_fma(q, r, 4.16663736e-2f);
    q = sc_fma(q, r, 1.66665763e-1f);
    q = sc_fma(q, r, 0.5f);
    real p = sc_fma(r * r, q, r) + 1.0f;
    int32_t half = n >> 1;
    return p * sc_float((uint32_t)(half + 127) << 23) * sc_float((uint32_t)(n - half + 127) << 23);
}
SC_FN real sc_exp_falling(real x) {
    return sc_exp(x);
}
SC_FN real sc_quotient(real a, real b) {
    return a / b;
}
#endif

/* log x = k ln 2 + log(1 + f), 1 + f in [√½, √2); log(1 + f) = f - f²/2 + f³ P(f). */
SC_FN real sc_log(real x) {
    int tiny = x < 0x1p-126f;
    uint32_t u = sc_bits(tiny ? x * 0x1p23f : x) - 0x3f3504f3u;
    int32_t e = (int32_t)u >> 23;
    real f = sc_float((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    real k = (real)(e - (tiny ? 23 : 0));
    real p = sc_fma(7.10520893e-2f, f, -1.19621128e-1f);
    p = sc_fma(p, f, 1.18863888e-1f);
    p = sc_fma(p, f, -1.23589717e-1f);
    p = sc_fma(p, f, 1.42134458e-1f);
    p = sc_fma(p, f, -1.66703492e-1f);
    p = sc_fma(p, f, 2.00025111e-1f);
    p = sc_fma(p, f, -2.49999732e-1f);
    p = sc_fma(p, f, 3.33333075e-1f);
    real f2 = f * f;
    real low = sc_fma(f2 * f, p, k * 1.42860677e-06f); /* ln 2 = 0.693145752 (exact with k) + this */
    low = sc_fma(-0.5f, f2, low);
    real y = sc_fma(k, 0.693145752f, f + low);
    y = x == 0 ? -HUGE_VALF : y;
    y = x == HUGE_VALF ? x : y;
    return x >= 0 ? y : NAN;
}

/* tanh x where |x| < SC_TANH_SMALL: an odd polynomial. */
#define SC_TANH_SMALL 0.65f
SC_FN real sc_tanh_small(real x) {
    real s = x * x;
    real q = sc_fma(-5.51517075e-3f, s, 2.04694308e-2f);
    q = sc_fma(q, s, -5.3688027e-2f);
    q = sc_fma(q, s, 1.33308306e-1f);
    q = sc_fma(q, s, -3.33332598e-1f);
    return sc_fma(x * s, q, x);
}
/* tanh x = 1 - 2 / (e^2x + 1) else. */
SC_FN real sc_tanh(real x) {
    real a = sc_abs(x), small = sc_tanh_small(a);
    real c = a > 40.0f ? 40.0f : a, large = 1.0f - sc_quotient(2.0f, sc_exp(c + c) + 1.0f);
    return __builtin_copysignf(a < SC_TANH_SMALL ? small : large, x);
}

SC_FN real sc_sigmoid(real x) {
    real e = sc_exp_falling(-sc_abs(x));
    return sc_quotient(x >= 0 ? 1.0f : e, 1.0f + e); /* NaN: e is NaN */
}

/* e^(-x²/2) for |x| <= 20, with the square's rounding error put back. */
SC_FN real sc_gauss(real x) {
    real s = x * x, e = sc_exp_falling(-0.5f * s);
    return sc_fma(-0.5f * sc_fma(x, x, -s), e, e);
}
/* Φ(x), given e = sc_gauss(x) and |x| <= 20: up to 1.25, 1/2 + x Q(x²); beyond, the upper tail at a = |x| is e P(t),
 * t = 1 / (1 + 0.3 a), so that negative x keep their relative accuracy. */
SC_FN real sc_normal(real x, real e) {
    real a = sc_abs(x), t = sc_quotient(1.0f, sc_fma(0.3f, a, 1.0f)), s = x * x;
    real p = sc_fma(-2.06286255e-2f, t, 1.12464592e-1f);
    p = sc_fma(p, t, -2.28284314e-1f);
    p = sc_fma(p, t, 1.91882655e-1f);
    p = sc_fma(p, t, -7.95086399e-2f);
    p = sc_fma(p, t, 9.62046459e-2f);
    p = sc_fma(p, t, 7.83723146e-2f);
    p = sc_fma(p, t, 1.10239327e-1f);
    p = sc_fma(p, t, 1.19571321e-1f);
    p = sc_fma(p, t, 1.19686715e-1f);
    real tail = e * (p * t);
    real q = sc_fma(-6.83135295e-6f, s, 1.11127047e-4f);
    q = sc_fma(q, s, -1.18395558e-3f);
    q = sc_fma(q, s, 9.97234974e-3f);
    q = sc_fma(q, s, -6.6490218e-2f);
    q = sc_fma(q, s, 3.98942292e-1f);
    real outer = x < 0 ? tail : 1.0f - tail;
    return a < 1.25f ? sc_fma(x, q, 0.5f) : outer;
}
SC_FN real sc_within(real x, real limit) {
    real c = x > limit ? limit : x;
    return c < -limit ? -limit : c;
}
/* gelu x = x Φ(x); its derivative Φ(x) + x φ(x). */
SC_FN real sc_gelu(real x) {
    real c = sc_within(x, 20.0f);
    return x * sc_normal(c, sc_gauss(c));
}
SC_FN real sc_gelu_grad(real g, real x) {
    real c = sc_within(x, 20.0f), e = sc_gauss(c);
    return g * sc_fma(c, e * 0.398942280f, sc_normal(c, e));
}

/* gelu_tanh x = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))) = x sigmoid(z), z = x (c1 + c2 x²); z's rounding error is put
 * back, since it becomes a relative error of e^-|z|. */
SC_FN real sc_gelu_tanh_power(real c, real *z) {
    real s = c * c, u = sc_fma(s, 7.13548163e-2f, 1.59576912f);
    *z = c * u;
    real low = sc_fma(s, 7.13548163e-2f, 1.59576912f - u) + sc_fma(c, c, -s) * 7.13548163e-2f;
    low = sc_fma(c, low, sc_fma(c, u, -*z));
    real e = sc_exp_falling(-sc_abs(*z));
    return sc_fma(*z >= 0 ? -low : low, e, e);
}
SC_FN real sc_gelu_tanh(real x) {
    real z, e = sc_gelu_tanh_power(sc_within(x, 30.0f), &z);
    return x * sc_quotient(z >= 0 ? 1.0f : e, 1.0f + e);
}
SC_FN real sc_gelu_tanh_grad(real g, real x) {
    real z, c = sc_within(x, 30.0f), e = sc_gelu_tanh_power(c, &z), r = sc_quotient(1.0f, 1.0f + e);
    return g * sc_fma(c * (e * r * r), sc_fma(c * c, 0.214064449f, 1.59576912f), z >= 0 ? r : e * r);
}
SC_FN real sc_silu_grad(real g, real x) {
    real c = sc_within(x, 200.0f), e = sc_exp_falling(-sc_abs(x)), r = sc_quotient(1.0f, 1.0f + e);
    return g * sc_fma(c, e * r * r, c >= 0 ? r : e * r);
}
/* The sigmoid of a gate. A GPU computes it in the midst of a matrix product, by 2^t and 1/x as its instructions give
 * them: within (4 + |x|) 2^-23 of it; 0 where it is subnormal. */
SC_FN real sc_gate(real x) {
#ifdef __CUDA_ARCH__
    real e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
    return r;
#else
    return sc_sigmoid(x);
#endif
}

/* log(1 + x) = log u + (x - (u - 1)) / u with u = 1 + x as rounded. */
SC_FN real sc_log1p(real x) {
    real u = 1.0f + x, low = (x - (u - 1.0f)) / u, y = sc_log(u);
    return x == HUGE_VALF || u == 0 ? y : y + low;
}

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1), n and r as in sc_exp. */
SC_FN real sc_expm1(real x) {
    real c = x > 89.0f ? 89.0f : x;
    c = c < -18.0f ? -18.0f : c;
    real shifted = sc_fma(c, 1.44269504f, 12582912.0f), k = shifted - 12582912.0f;
    int32_t n = (int32_t)(sc_bits(shifted) - 0x4b400000u);
    real r = sc_fma(k, -0.693145752f, c);
    r = sc_fma(k, -1.42860677e-06f, r);
    real q = sc_fma(1.39412156e-3f, r, 8.3632376e-3f);
    q = sc_fma(q, r, 4.16663736e-2f);
    q = sc_fma(q, r, 1.66665763e-1f);
    q = sc_fma(q, r, 0.5f);
    real half = sc_float((uint32_t)(n + 126) << 23); /* 2^n / 2, which is finite */
    return 2.0f * sc_fma(half, sc_fma(r * r, q, r), half - 0.5f);
}

SC_FN real sc_whole_below(real x) {
    return __builtin_floorf(x);
}
SC_FN real sc_whole_above(real x) {
    return __builtin_ceilf(x);
}
SC_FN real sc_whole_toward_zero(real x) {
    return __builtin_truncf(x);
}
SC_FN real sc_whole_nearest(real x) { /* halves to the even number */
    return __builtin_rintf(x);
}

/* ── float, computed in double and rounded once: within 0.6 ulp ──────────────────────────────────────────────────────
 *
 * log2 a, a normal and positive: log2 m = 2/ln 2 atanh((m-1)/(m+1)), m in [√½, √2). */
SC_FN double sc_wide_log2(double a) {
    int64_t u = (int64_t)((uint64_t)sc_bits64(a) - 0x3fe6a09e667f3bcd); /* of what is no such number, anything */
    double m = sc_double((u & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
    double s = (m - 1) / (m + 1), t = s * s;
    double p = __builtin_fma(1.0 / 15, t, 1.0 / 13);
    p = __builtin_fma(p, t, 1.0 / 11);
    p = __builtin_fma(p, t, 1.0 / 9);
    p = __builtin_fma(p, t, 1.0 / 7);
    p = __builtin_fma(p, t, 1.0 / 5);
    p = __builtin_fma(p, t, 1.0 / 3);
    double k = sc_double((u >> 52) + 0x4338000000000000) - 0x1.8p52; /* the exponent as a double */
    return __builtin_fma(s * 2.8853900817779268147, __builtin_fma(p, t, 1.0), k);
}
/* 2^z, |z| <= 200 (beyond, what is 0 or infinite as a float); NaN stays one. */
SC_FN double sc_wide_exp2(double z) {
    z = z > 200 ? 200 : z;
    z = z < -200 ? -200 : z;
    double shifted = z + 0x1.8p52, r = (z - (shifted - 0x1.8p52)) * 0.69314718055994530942;
    double q = __builtin_fma(1.0 / 39916800, r, 1.0 / 3628800);
    q = __builtin_fma(q, r, 1.0 / 362880);
    q = __builtin_fma(q, r, 1.0 / 40320);
    q = __builtin_fma(q, r, 1.0 / 5040);
    q = __builtin_fma(q, r, 1.0 / 720);
    q = __builtin_fma(q, r, 1.0 / 120);
    q = __builtin_fma(q, r, 1.0 / 24);
    q = __builtin_fma(q, r, 1.0 / 6);
    q = __builtin_fma(q, r, 0.5);
    q = __builtin_fma(q, r * r, r) + 1.0;
    return q * sc_double((int64_t)((uint64_t)(sc_bits64(shifted) - 0x4338000000000000 + 1023) << 52));
}

/* x^y = 2^(y log2 |x|). Sign and specials as C's pow. What depends on y alone is written so that it leaves a loop over
 * x. */
SC_FN real sc_pow(real x, real y) {
    double v = x, a = __builtin_fabs(v), b = y, l = sc_wide_log2(a);
    l = a == 0 ? -1e300 : l; /* finite, so that 0^0 = inf^0 = 1 */
    l = a == HUGE_VAL ? 1e300 : l;
    l = a != a ? a : l;
    double w = sc_wide_exp2((l == 0) | (b == 0) ? 0 : b * l); /* 1^y = x^0 = 1, for NaN too */
    double odd = b - 2 * __builtin_floor(b * 0.5) == 1 ? -1.0 : 1.0;
    double negative = __builtin_floor(b) == b ? odd : a == HUGE_VAL ? 1.0 : (double)NAN;
    double sign = v < 0 ? negative : 1.0;
    double of_zero = sc_bits64(v) < 0 ? odd : 1.0;
    sign = a == 0 ? of_zero : sign;
    return (real)(w * sign);
}

SC_FN real sc_two_to(real x) {
    return (real)sc_wide_exp2(x);
}
SC_FN real sc_log2(real x) {
    double l = sc_wide_log2(x);
    l = x == 0 ? -HUGE_VAL : l;
    l = x == HUGE_VALF ? HUGE_VAL : l;
    return x >= 0 ? (real)l : NAN;
}
SC_FN real sc_log10(real x) {
    double l = sc_wide_log2(x) * 0.30102999566398119521;
    l = x == 0 ? -HUGE_VAL : l;
    l = x == HUGE_VALF ? HUGE_VAL : l;
    return x >= 0 ? (real)l : NAN;
}
SC_FN double sc_wide_log1p(double x) {
    double u = 1 + x;
    return __builtin_fma(sc_wide_log2(u), 0.69314718055994530942, (x - (u - 1)) / u);
}

/* sinh x = (e^x - e^-x) / 2, near 0 by its series. */
SC_FN real sc_sinh(real x) {
    double a = sc_abs(x), e = sc_wide_exp2(a * 1.4426950408889634074), s = a * a;
    double p = __builtin_fma(1.0 / 362880, s, 1.0 / 5040);
    p = __builtin_fma(p, s, 1.0 / 120);
    p = __builtin_fma(p, s, 1.0 / 6);
    double y = a < 0.5 ? __builtin_fma(a * s, p, a) : 0.5 * (e - 1 / e);
    return __builtin_copysignf((real)y, x);
}
SC_FN real sc_cosh(real x) {
    double e = sc_wide_exp2(sc_abs(x) * 1.4426950408889634074);
    return (real)(0.5 * (e + 1 / e));
}
SC_FN real sc_asinh(real x) {
    double a = sc_abs(x), s = a * a, y = sc_wide_log1p(a + s / (1 + __builtin_sqrt(1 + s)));
    return __builtin_copysignf(a == HUGE_VAL ? HUGE_VALF : (real)y, x);
}
SC_FN real sc_acosh(real x) {
    double t = (double)x - 1, y = sc_wide_log1p(t + __builtin_sqrt(t * (t + 2)));
    y = x == HUGE_VALF ? HUGE_VAL : y;
    return x >= 1 ? (real)y : NAN;
}
SC_FN real sc_atanh(real x) {
    double a = sc_abs(x), y = 0.5 * sc_wide_log1p(2 * a / (1 - a));
    y = a == 1 ? HUGE_VAL : y;
    return a <= 1 ? __builtin_copysignf((real)y, x) : NAN;
}

/* atan a, a >= 0: of 1/a above 1, then of (√3 a - 1) / (√3 + a), which is π/6 less; |argument| <= tan(π/12): series. */
SC_FN double sc_wide_atan(double a) {
    double b = a > 1 ? 1 / a : a, turned = (b * 1.7320508075688772935 - 1) / (b + 1.7320508075688772935);
    int turns = b > 0.26794919243112270647;
    double c = turns ? turned : b, z = c * c;
    double p = __builtin_fma(1.0 / 17, z, -1.0 / 15);
    p = __builtin_fma(p, z, 1.0 / 13);
    p = __builtin_fma(p, z, -1.0 / 11);
    p = __builtin_fma(p, z, 1.0 / 9);
    p = __builtin_fma(p, z, -1.0 / 7);
    p = __builtin_fma(p, z, 1.0 / 5);
    p = __builtin_fma(p, z, -1.0 / 3);
    double y = __builtin_fma(c * z, p, c) + (turns ? 0.52359877559829887308 : 0);
    return a > 1 ? 1.5707963267948966192 - y : y;
}
SC_FN real sc_atan(real x) {
    return __builtin_copysignf((real)sc_wide_atan(sc_abs(x)), x);
}
SC_FN real sc_asin(real x) {
    double a = sc_abs(x);
    return __builtin_copysignf((real)sc_wide_atan(a / __builtin_sqrt((1 - a) * (1 + a))), x);
}
SC_FN real sc_acos(real x) {
    double v = x;
    return (real)(2 * sc_wide_atan(__builtin_sqrt((1 - v) / (1 + v))));
}
SC_FN real sc_atan2(real y, real x) {
    double a = sc_abs(y), b = sc_abs(x), t = sc_wide_atan(a != b ? a / b : a == 0 ? 0 : 1);
    t = sc_bits(x) >> 31 ? 3.1415926535897932385 - t : t;
    return __builtin_copysignf((real)t, y);
}

/* erf x: up to 1 its series; beyond, erfc a = e^(-a²) t P(t), t = 1 / (1 + a/2), a fit on [0.9, 10.2]. */
SC_FN double sc_wide_erf_series(double x) {
    double z = x * x;
    double p = __builtin_fma(-1.0 / 918086400, z, 1.0 / 76204800);
    p = __builtin_fma(p, z, -1.0 / 6894720);
    p = __builtin_fma(p, z, 1.0 / 685440);
    p = __builtin_fma(p, z, -1.0 / 75600);
    p = __builtin_fma(p, z, 1.0 / 9360);
    p = __builtin_fma(p, z, -1.0 / 1320);
    p = __builtin_fma(p, z, 1.0 / 216);
    p = __builtin_fma(p, z, -1.0 / 42);
    p = __builtin_fma(p, z, 1.0 / 10);
    p = __builtin_fma(p, z, -1.0 / 3);
    return 1.1283791670955125739 * __builtin_fma(x * z, p, x);
}
SC_FN double sc_wide_erfc_tail(double a) {
    double t = 1 / __builtin_fma(0.5, a, 1.0);
    double p = __builtin_fma(0.0337137383775941547, t, -0.097055187733055197);
    p = __builtin_fma(p, t, 0.00815982677733384612);
    p = __builtin_fma(p, t, 0.273303549811143667);
    p = __builtin_fma(p, t, -0.352494921998389876);
    p = __builtin_fma(p, t, 0.120994530475993685);
    p = __builtin_fma(p, t, -0.0724969202728574753);
    p = __builtin_fma(p, t, 0.101303690227025876);
    p = __builtin_fma(p, t, 0.173268843564977971);
    p = __builtin_fma(p, t, 0.247172594521813837);
    p = __builtin_fma(p, t, 0.28207266643193494);
    p = __builtin_fma(p, t, 0.282095430000993829);
    return p * t * sc_wide_exp2(a * a * -1.4426950408889634074);
}
SC_FN real sc_erf(real x) {
    double a = sc_abs(x), c = a > 12 ? 12 : a, y = a < 1 ? sc_wide_erf_series(a) : 1 - sc_wide_erfc_tail(c);
    return __builtin_copysignf((real)y, x);
}
SC_FN real sc_erfc(real x) {
    double a = sc_abs(x), c = a > 12 ? 12 : a, tail = sc_wide_erfc_tail(c);
    double outer = x < 0 ? 2 - tail : tail;
    return (real)(a < 1 ? 1 - sc_wide_erf_series(x) : outer);
}
SC_FN real sc_erf_slope(real x) {
    double a = sc_abs(x);
    return (real)(1.1283791670955125739 * sc_wide_exp2(a * a * -1.4426950408889634074));
}

/* What is left of a after whole b, exact: a quotient of floats is below 2^278, and a step takes 52 bits of it off. */
SC_FN real sc_fmod(real a, real b) {
    double r = sc_abs(a), d = sc_abs(b);
    for (int i = 0; i < 6; i++) r = __builtin_fma(-__builtin_trunc(r / d), d, r);
    r = r < 0 ? r + d : r;
    r = d == HUGE_VAL && sc_abs(a) < HUGE_VALF ? (double)sc_abs(a) : r;
    return __builtin_copysignf((real)r, a);
}
SC_FN real sc_hypot(real a, real b) {
    double x = a, y = b, s = __builtin_sqrt(x * x + y * y);
    return sc_abs(a) == HUGE_VALF || sc_abs(b) == HUGE_VALF ? HUGE_VALF : (real)s;
}
#endif

/* log(1 + e^x) */
SC_FN real sc_softplus(real x) {
    return (x > 0 ? x : 0) + sc_log1p(sc_exp(-sc_abs(x)));
}
/* mish x = x tanh(softplus x) */
SC_FN real sc_mish_grad(real g, real x) {
    real t = sc_tanh(sc_softplus(x));
    return g * sc_fma(x * sc_sigmoid(x), sc_fma(-t, t, 1), t);
}
SC_FN real sc_at_least(real x, real low) { /* NaN stays one */
    return x < low ? low : x;
}
/* log(e^a + e^b) */
SC_FN real sc_logaddexp(real a, real b) {
    real most = (a > b) | (a != a) ? a : b, y = most + sc_log1p(sc_exp(-sc_abs(a - b)));
    return a == b && sc_abs(a) == (real)HUGE_VAL ? a : y;
}

/* silu(gate) up, and its gradients. */
SC_FN real sc_silu_mul(real gate, real up) {
    return gate * sc_gate(gate) * up;
}
SC_FN void sc_silu_mul_grad(real g, real gate, real up, real *dgate, real *dup) {
    real s = sc_gate(gate);
    *dgate = g * up * (s * sc_fma(gate, 1 - s, 1));
    *dup = g * (gate * s);
}

/* Sine and cosine of r + quadrant π/2, |r| <= π/4: Taylor series, to 1e-16; rounded to real. */
SC_FN void sc_sincos_of(double r, int64_t quadrant, real *sine, real *cosine) {
    double z = r * r;
    double s = __builtin_fma(1.0 / 355687428096000, z, -1.0 / 1307674368000);
    s = __builtin_fma(s, z, 1.0 / 6227020800);
    s = __builtin_fma(s, z, -1.0 / 39916800);
    s = __builtin_fma(s, z, 1.0 / 362880);
    s = __builtin_fma(s, z, -1.0 / 5040);
    s = __builtin_fma(s, z, 1.0 / 120);
    s = __builtin_fma(s, z, -1.0 / 6);
    s = __builtin_fma(s * z, r, r);
    double c = __builtin_fma(1.0 / 20922789888000, z, -1.0 / 87178291200);
    c = __builtin_fma(c, z, 1.0 / 479001600);
    c = __builtin_fma(c, z, -1.0 / 3628800);
    c = __builtin_fma(c, z, 1.0 / 40320);
    c = __builtin_fma(c, z, -1.0 / 720);
    c = __builtin_fma(c, z, 1.0 / 24);
    c = __builtin_fma(c, z, -0.5);
    c = __builtin_fma(c, z, 1.0);
    double a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
    *sine = (real)(quadrant & 2 ? -a : a);
    *cosine = (real)((quadrant + 1) & 2 ? -b : b);
}
/* Of an angle, |x| < 2^40: x = n π/2 + r (π/2 in two doubles, by fma). */
SC_FN void sc_sincos(double angle, real *sine, real *cosine) {
    double shifted = __builtin_fma(angle, 0.63661977236758134308, 0x1.8p52), n = shifted - 0x1.8p52;
    double r = __builtin_fma(n, -0x1.921fb54442d18p0, angle);
    sc_sincos_of(__builtin_fma(n, -0x1.1a62633145c07p-54, r), sc_bits64(shifted) & 3, sine, cosine);
}

#ifndef SC_FP64
/* Of any float. From 2^40 on x = m 2^e, m of 24 bits: the fraction of m (2^e / 2π) is a turn, in 64 bits, from a window
 * of 2/π's (Payne and Hanek 1983). */
SC_FN void sc_sincos_any(real x, real *sine, real *cosine) {
    const uint64_t t0 = 0xa2f9836e4e441529, t1 = 0xfc2757d1f534ddc0, t2 = 0xdb6295993c439041, t3 = 0xfe5163abdebbc561;
    uint32_t u = sc_bits(sc_abs(x)), m = (u & 0x7fffffu) | 0x800000u;
    int far = u >= 0x53800000u;
    uint32_t from = far ? (u >> 23) - 152u : 0, b = from & 63; /* 2/π's bit at which the window begins */
    int second = from >= 64;
    uint64_t a = second ? t1 : t0, c = second ? t2 : t1, d = second ? t3 : t2;
    uint64_t high = a << b | c >> 1 >> (63 - b), low = c << b | d >> 1 >> (63 - b);
    uint64_t turn = m * high + (m * (low >> 32) >> 32), quarter = (turn + (1ull << 61)) >> 62;
    double r = (double)(int64_t)(turn - (quarter << 62)) * (1.5707963267948966192 * 0x1p-62);
    double angle = far ? 0.0 : (double)x, shifted = __builtin_fma(angle, 0.63661977236758134308, 0x1.8p52);
    double n = shifted - 0x1.8p52, near = __builtin_fma(n, -0x1.921fb54442d18p0, angle);
    near = __builtin_fma(n, -0x1.1a62633145c07p-54, near);
    int64_t of_far = x < 0 ? -(int64_t)quarter : (int64_t)quarter;
    r = far ? (x < 0 ? -r : r) : near;
    sc_sincos_of(u >= 0x7f800000u ? (double)NAN : r, far ? of_far & 3 : sc_bits64(shifted) & 3, sine, cosine);
}
SC_FN real sc_sin(real x) {
    real s, c;
    sc_sincos_any(x, &s, &c);
    return s;
}
SC_FN real sc_cos(real x) {
    real s, c;
    sc_sincos_any(x, &s, &c);
    return c;
}
SC_FN real sc_tan(real x) {
    real s, c;
    sc_sincos_any(x, &s, &c);
    return s / c;
}
#endif

/* The nearest of -127 to 127, ties to even. */
SC_FN sc_int8_t sc_to_int8(real x) {
    return (sc_int8_t)(x >= 127 ? 127 : x >= -127 ? sc_whole_nearest(x) : -127);
}

#include "special.h"

#endif
