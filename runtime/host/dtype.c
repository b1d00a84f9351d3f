/* Element types on the host side. Narrow floats go through double: every one of them is exact there, so one rounding to
 * nearest even at the end is the correct one.
 * Relies on: IEEE 754 doubles.
 * Relied on by: safetensors, weights, checkpoint, records, sample. */
#include "dtype.h"
#include "../sc_extension.h"
#include "../schema/math.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *name, *st;
    int size;
    bool is_float;
} dtypes[N_DTYPES] = {
#define ROW(ID, NAME, BYTES, ST, FLOAT) [ID] = {NAME, ST, BYTES, FLOAT},
    SC_DTYPES(ROW)
#undef ROW
};

const char *host_dtype_name(sc_dtype d) {
    return dtypes[d].name;
}
const char *host_dtype_st(sc_dtype d) {
    return dtypes[d].st;
}
bool host_dtype_float(sc_dtype d) {
    return dtypes[d].is_float;
}
bool host_dtype_integer(sc_dtype d) {
    return !dtypes[d].is_float && d != BOOL;
}

/* ── narrow floats ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int size, mantissa, bias; /* bytes, bits of the mantissa, bias of the exponent */
    bool no_infinity;
} Narrow;

static const Narrow narrow_floats[N_DTYPES] = {[BF16] = {2, 7, 127, false},
                                               [FP16] = {2, 10, 15, false},
                                               [FP8_E4M3] = {1, 3, 7, true},
                                               [FP8_E5M2] = {1, 2, 15, false}};

static unsigned narrow(const Narrow *k, double x) {
    unsigned width = (unsigned)k->size * 8, top = (1u << (width - 1 - (unsigned)k->mantissa)) - 1;
    unsigned sign = signbit(x) ? 1u << (width - 1) : 0, full = (1u << k->mantissa) - 1;
    unsigned infinity = sign | top << k->mantissa, nan = infinity | (k->no_infinity ? full : 1u << (k->mantissa - 1));
    if (isnan(x)) return nan;
    if (isinf(x)) return k->no_infinity ? nan : infinity;
    int e;
    frexp(x, &e); /* x = f × 2^e, f in [1/2, 1) */
    int exponent = e - 1 < 1 - k->bias ? 1 - k->bias : e - 1;
    double scaled = nearbyint(ldexp(fabs(x), k->mantissa - exponent)); /* mantissa with its leading one */
    unsigned m = (unsigned)scaled, biased = (unsigned)(exponent + k->bias);
    if (m >> (k->mantissa + 1)) m >>= 1, biased++;
    if (!(m >> k->mantissa)) biased = 0; /* subnormal or zero */
    unsigned bits = biased << k->mantissa | (m & full);
    bool over = k->no_infinity ? bits >= (top << k->mantissa | full) : biased >= top;
    return over ? (k->no_infinity ? nan : infinity) : sign | bits;
}

/* ── elements ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
double host_get(sc_dtype d, const void *p, int64_t i) {
    switch (d) {
    case FP32: return ((const float *)p)[i];
    case FP64: return ((const double *)p)[i];
    case INT32:
    case INT64:
    case INT8:
    case BOOL: return (double)host_get_int(d, p, i);
    case BF16: return sc_from_bf16(((const sc_bf16_t *)p)[i]);
    case FP16: return sc_from_fp16(((const sc_fp16_t *)p)[i]);
    case FP8_E4M3: return sc_from_fp8_e4m3(((const sc_fp8_e4m3_t *)p)[i]);
    default: return sc_from_fp8_e5m2(((const sc_fp8_e5m2_t *)p)[i]);
    }
}

void host_put(sc_dtype d, void *p, int64_t i, double x) {
    switch (d) {
    case FP32: ((float *)p)[i] = (float)x; break;
    case FP64: ((double *)p)[i] = x; break;
    case INT32:
    case INT64:
    case INT8:
    case BOOL: host_put_int(d, p, i, (int64_t)x); break;
    default:
        if (dtypes[d].size == 1)
            ((uint8_t *)p)[i] = (uint8_t)narrow(&narrow_floats[d], x);
        else
            ((uint16_t *)p)[i] = (uint16_t)narrow(&narrow_floats[d], x);
    }
}

int64_t host_get_int(sc_dtype d, const void *p, int64_t i) {
    if (d == INT32) return ((const int32_t *)p)[i];
    if (d == INT64) return ((const int64_t *)p)[i];
    if (d == BOOL) return ((const uint8_t *)p)[i];
    if (d == INT8) return ((const int8_t *)p)[i];
    return (int64_t)host_get(d, p, i);
}

void host_put_int(sc_dtype d, void *p, int64_t i, int64_t x) {
    if (d == INT32)
        ((int32_t *)p)[i] = (int32_t)x;
    else if (d == INT64)
        ((int64_t *)p)[i] = x;
    else if (d == INT8)
        ((int8_t *)p)[i] = (int8_t)x;
    else if (d == BOOL)
        ((uint8_t *)p)[i] = x != 0;
    else
        host_put(d, p, i, (double)x);
}

void host_convert(sc_dtype to, void *dst, sc_dtype from, const void *src, int64_t n) {
    if (to == from)
        memcpy(dst, src, (size_t)n * (size_t)dtypes[to].size);
    else if (to == FP32 && from == BF16) /* what people load: worth a loop without doubles */
        for (int64_t i = 0; i < n; i++) ((uint32_t *)dst)[i] = (uint32_t)((const uint16_t *)src)[i] << 16;
    else if (from == FP32 && to == FP16) /* as kernels cast */
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = sc_to_fp16(((const float *)src)[i]);
    else if (from == FP32 && to == BF16)
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = sc_to_bf16(((const float *)src)[i]);
    else if (host_dtype_integer(to) && !dtypes[from].is_float)
        for (int64_t i = 0; i < n; i++) host_put_int(to, dst, i, host_get_int(from, src, i));
    else
        for (int64_t i = 0; i < n; i++) host_put(to, dst, i, host_get(from, src, i));
}
