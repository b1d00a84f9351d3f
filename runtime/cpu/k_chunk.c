/* Chunks of elements: conversion between a tensor's dtype and real, sums in fixed lanes, sine and cosine.
 * Relies on: kernel.h.
 * Relied on by: every kernel. */
#include "kernel.h"

#define FOR_EACH_DTYPE(M)                                                                                              \
    M(FP32, fp32)                                                                                                      \
    M(BF16, bf16)                                                                                                      \
    M(FP16, fp16)                                                                                                      \
    M(FP64, fp64)                                                                                                      \
    M(INT32, int32) M(INT64, int64) M(BOOL, bool) M(INT8, int8) M(FP8_E4M3, fp8_e4m3) M(FP8_E5M2, fp8_e5m2)

/* One loop a dtype and direction, unit stride apart so that it vectorises. */
#define CONVERT(D, d)                                                                                                  \
    static void load_##d(real *restrict to, const sc_##d##_t *restrict from, int64_t stride, int64_t n) {              \
        if (stride == 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i] = sc_from_##d(from[i]);                                              \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) to[i] = sc_from_##d(from[i * stride]);                                     \
    }                                                                                                                  \
    static void store_##d(sc_##d##_t *restrict to, const real *restrict from, int64_t stride, int64_t n) {             \
        if (stride == 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i] = sc_to_##d(from[i]);                                                \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) to[i * stride] = sc_to_##d(from[i]);                                       \
    }
FOR_EACH_DTYPE(CONVERT)

void sc_load(real *to, const sc_tensor *t, int64_t at, int64_t stride, int64_t n) {
    switch (t->dtype) {
#define LOAD(D, d)                                                                                                     \
    case D: load_##d(to, (const sc_##d##_t *)t->p + at, stride, n); break;
        FOR_EACH_DTYPE(LOAD)
    }
}

void sc_store(const sc_tensor *t, int64_t at, int64_t stride, int64_t n, const real *from) {
    switch (t->dtype) {
#define STORE(D, d)                                                                                                    \
    case D: store_##d((sc_##d##_t *)t->p + at, from, stride, n); break;
        FOR_EACH_DTYPE(STORE)
    }
}

double sc_get(const sc_tensor *t, int64_t at) {
    real x = 0;
    if (t->dtype == FP64) return ((const double *)t->p)[at];
    sc_load(&x, t, at, 1, 1);
    return x;
}

void sc_set(const sc_tensor *t, int64_t at, double value) {
    real x = (real)value;
    if (t->dtype == FP64)
        ((double *)t->p)[at] = value;
    else
        sc_store(t, at, 1, 1, &x);
}

int64_t sc_index(const sc_tensor *t, int64_t at) {
    return t->dtype == INT32 ? ((const int32_t *)t->p)[at] : ((const int64_t *)t->p)[at];
}

uint64_t sc_order_at(const sc_tensor *t, int64_t at) {
    switch (t->dtype) {
#define ORDER(D, d)                                                                                                    \
    case D: return sc_order_##d(((const sc_##d##_t *)t->p)[at]);
        ORDER(FP32, fp32)
        ORDER(BF16, bf16)
        ORDER(FP16, fp16)
        ORDER(FP64, fp64)
    default: return sc_order_int32(((const int32_t *)t->p)[at]);
    }
}

/* ── sums: four vectors of lanes, element i of a chunk always in the same lane ───────────────────────────────────────
 */
enum { LANES = 64 / sizeof(real), STEP = 4 * LANES };
typedef real Vector __attribute__((vector_size(64)));
#ifdef SC_FP64
typedef int64_t Lane;
#else
typedef int32_t Lane;
#endif
typedef Lane Mask __attribute__((vector_size(64)));
typedef real Loose __attribute__((vector_size(64), aligned(sizeof(real)), may_alias));

static inline Vector vector_at(const real *x) {
    return *(const Loose *)x;
}
static inline Vector vector_tail(const real *x, int64_t n, real fill) {
    Vector v;
    for (int j = 0; j < LANES; j++) v[j] = j < n ? x[j] : fill;
    return v;
}
/* The lanes turned by w: lane j has what j + w had. */
static inline Vector turned(Vector v, int w) {
    static const Lane lane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7};
    Mask from;
    memcpy(&from, lane + w, sizeof from); /* an index counts modulo LANES */
    return __builtin_shuffle(v, from);
}
static inline real fold(const Vector v[4]) {
    Vector s = (v[0] + v[1]) + (v[2] + v[3]);
    _Pragma("GCC unroll 4") for (int w = LANES / 2; w; w /= 2) s += turned(s, w);
    return s[0];
}

/* Sums TERM over vectors; `t` counts vectors, and a tail is filled with what adds zero. */
#define SUM_LANES(LOAD, TAIL, TERM)                                                                                    \
    Vector s[4] = {{0}};                                                                                               \
    int64_t i = 0;                                                                                                     \
    for (; i + STEP <= n; i += STEP)                                                                                   \
        for (int t = 0; t < 4; t++) {                                                                                  \
            int64_t at = i + t * LANES;                                                                                \
            LOAD;                                                                                                      \
            s[t] += TERM;                                                                                              \
        }                                                                                                              \
    for (int t = 0; i < n; t++, i += LANES) {                                                                          \
        int64_t at = i;                                                                                                \
        if (n - i >= LANES) {                                                                                          \
            LOAD;                                                                                                      \
            s[t] += TERM;                                                                                              \
        } else {                                                                                                       \
            TAIL;                                                                                                      \
            s[t] += TERM;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    return fold(s)

real sc_chunk_sum(const real *x, int64_t n) {
    SUM_LANES(Vector v = vector_at(x + at), Vector v = vector_tail(x + at, n - at, 0), v);
}

real sc_chunk_dot(const real *x, const real *y, int64_t n) {
    SUM_LANES(Vector v = vector_at(x + at); Vector w = vector_at(y + at), Vector v = vector_tail(x + at, n - at, 0);
              Vector w = vector_tail(y + at, n - at, 0), v * w);
}

real sc_chunk_deviation(const real *x, real mean, int64_t n) {
    SUM_LANES(Vector v = vector_at(x + at) - mean, Vector v = vector_tail(x + at, n - at, mean) - mean, v * v);
}

/* The larger, lane by lane; a NaN, once met, stays. */
static inline Vector larger(Vector m, Vector v) {
    Mask take = ~(v <= m) & (m == m);
    return (Vector)((take & (Mask)v) | (~take & (Mask)m));
}

real sc_chunk_max(const real *x, int64_t n) {
    Vector m[4];
    int64_t i = 0;
    for (int t = 0; t < 4; t++) m[t] = vector_tail(x, 0, x[0]);
    for (; i + STEP <= n; i += STEP)
        for (int t = 0; t < 4; t++) m[t] = larger(m[t], vector_at(x + i + t * LANES));
    for (; i < n; i += LANES) m[0] = larger(m[0], n - i >= LANES ? vector_at(x + i) : vector_tail(x + i, n - i, x[0]));
    Vector s = larger(larger(m[0], m[1]), larger(m[2], m[3]));
    _Pragma("GCC unroll 4") for (int w = LANES / 2; w; w /= 2) s = larger(s, turned(s, w));
    return s[0];
}

real sc_chunk_exp(real *to, const real *x, real shift, int64_t n) {
    SC_ELEMENTWISE
    for (int64_t i = 0; i < n; i++) to[i] = sc_exp(x[i] - shift);
    return sc_chunk_sum(to, n);
}

void sc_chunk_sincos(const double *angle, real *sine, real *cosine, int64_t count) {
    for (int64_t i = 0; i < count; i++) sc_sincos(angle[i], &sine[i], &cosine[i]);
}
