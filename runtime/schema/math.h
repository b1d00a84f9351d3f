/* Element types, their conversions, and the functions that ops.def's expressions name, in type `real`.
 * Relies on: schema/fn.h, the C library (fma; libm in the fp64 test build).
 * Relied on by: kernels of both targets, generated NAME_kernels.
 *
 * Everything is branch-free so that the compiler vectorises it, and written in single IEEE operations (fma where fma is
 * meant; compile with -ffp-contract=off, nvcc with -fmad=false), so an element has the same bits in a vector, in a
 * loop's tail or alone. A GPU takes e^x and quotients by its own instructions: a few ulp from the CPU's bits.
 * Polynomials are relative minimax fits (Remez) on the stated interval; the reductions are the classical ones (Cody and
 * Waite 1980; Muller, Elementary Functions, 2016). Largest errors that tests/unit/test_kernels_math.c finds on every
 * 4099th float, rounded up, in ulp: log 0.8, exp 1.1, tanh 1.3, pow 0.6, sigmoid 2.3, gelu_tanh 4.5 (results above
 * 1e-6), gelu 6 (both worst in the negative tail), derivatives 3 (results above 0.3; nearer to their zeros 3e-7
 * absolute). */
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

/* x^y = 2^(y log2 |x|) in double: log2 m = 2/ln 2 atanh((m-1)/(m+1)), m in [√½, √2). Sign and specials as C's pow, but
 * a NaN stays one. What depends on y alone is written so that it leaves a loop over x. */
SC_FN real sc_pow(real x, real y) {
    double v = x, a = __builtin_fabs(v), b = y;
    int64_t u = sc_bits64(a) - 0x3fe6a09e667f3bcd;
    double m = sc_double((u & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
    double s = (m - 1) / (m + 1), t = s * s;
    double p = __builtin_fma(1.0 / 15, t, 1.0 / 13);
    p = __builtin_fma(p, t, 1.0 / 11);
    p = __builtin_fma(p, t, 1.0 / 9);
    p = __builtin_fma(p, t, 1.0 / 7);
    p = __builtin_fma(p, t, 1.0 / 5);
    p = __builtin_fma(p, t, 1.0 / 3);
    double k = sc_double((u >> 52) + 0x4338000000000000) - 0x1.8p52; /* the exponent as a double */
    double l = __builtin_fma(s * 2.8853900817779268147, __builtin_fma(p, t, 1.0), k);
    l = a == 0 ? -1e300 : l; /* finite, so that 0^0 = inf^0 = 1 */
    l = a == HUGE_VAL ? 1e300 : l;
    double z = b * (a != a ? a : l);
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
    double w = q * sc_double((int64_t)((uint64_t)(sc_bits64(shifted) - 0x4338000000000000 + 1023) << 52));
    double odd = b - 2 * __builtin_floor(b * 0.5) == 1 ? -1.0 : 1.0;
    double negative = __builtin_floor(b) == b ? odd : (double)NAN;
    double sign = v < 0 ? negative : 1.0;
    double of_zero = sc_bits64(v) < 0 ? odd : 1.0;
    sign = a == 0 ? of_zero : sign;
    return (real)(w * sign);
}
#endif

/* silu(gate) up, and its gradients. */
SC_FN real sc_silu_mul(real gate, real up) {
    return gate * sc_gate(gate) * up;
}
SC_FN void sc_silu_mul_grad(real g, real gate, real up, real *dgate, real *dup) {
    real s = sc_gate(gate);
    *dgate = g * up * (s * sc_fma(gate, 1 - s, 1));
    *dup = g * (gate * s);
}

/* Sine and cosine of an angle (|x| < 1e9): x = n π/2 + r, |r| <= π/4 (π/2 in two doubles, by fma); Taylor series on r,
 * to 1e-16; rounded to real. */
SC_FN void sc_sincos(double angle, real *sine, real *cosine) {
    double shifted = __builtin_fma(angle, 0.63661977236758134308, 0x1.8p52), n = shifted - 0x1.8p52;
    int64_t quadrant = sc_bits64(shifted) & 3;
    double r = __builtin_fma(n, -0x1.921fb54442d18p0, angle);
    r = __builtin_fma(n, -0x1.1a62633145c07p-54, r);
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

#endif
