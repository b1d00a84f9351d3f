/* The codes of moments in 8 bits, the same for host and device.
 * Relies on: schema/moments8.h, schema/math.h.
 * Relied on by: k_optimizer.c, its CUDA twin; host/resume.c, which converts.
 *
 * T. Dettmers and others: 8-bit optimizers via block-wise quantization, ICLR 2022 (arXiv 2110.02861). A block's scale
 * is its largest magnitude, fp32, and an element is its code's value times that. The values are those of the paper's
 * dynamic tree, as bitsandbytes builds it: 7 decades from 1e-6 up, of which decade i has n = 2^i values (unsigned
 * 2^(i+1)), the middles of n equal parts between a tenth and the whole of it; besides 0 and 1. First moments take the
 * signed code, with each value but 0 and 1 of both signs; second moments, which are never negative, the unsigned one. A
 * code is the value's number in ascending order. */
#ifndef SC_MOMENTS8_H
#define SC_MOMENTS8_H

#include "schema/math.h"
#include "schema/moments8.h"
#include <stdbool.h>

enum { SC_MOMENTS8_CODES = 256, SC_MOMENTS8_SIGNED_ZERO = 127 };

/* Magnitudes are numbered so that those of the decade with n values are n .. 2n - 1: signed 1 to 127, unsigned 2 to
 * 255; the next is 1. `first`: values of the lowest decade, 1 (signed) or 2. */
SC_FN double sc_moments8_magnitude(int number, int first) {
    double decade = 1;
    int n = first * 64;
    if (number < first) return 0;
    if (number >= 2 * n) return 1;
    for (; n > number; n /= 2) decade /= 10;
    return decade * (0.9 * (number + 0.5) / n - 0.8);
}
SC_FN float sc_moments8_value(int code, bool is_signed) {
    int number = is_signed ? code - SC_MOMENTS8_SIGNED_ZERO : code + 1;
    return (float)(number < 0 ? -sc_moments8_magnitude(-number, 1) : sc_moments8_magnitude(number, is_signed ? 1 : 2));
}

/* The decade of a magnitude: how many values it has, and how many of its parts there are in a unit, over n. A decade
 * ends where one more part of it would: half-way to the first value of the next one. */
typedef struct {
    float n, parts;
} sc_moments8_decade;

#define SC_MOMENTS8_DECADES(X) X(1, 1e5) X(2, 1e4) X(3, 1e3) X(4, 1e2) X(5, 1e1) X(6, 1e0) /* above the lowest */
#define SC_MOMENTS8_BORDER(i, power, first) (float)(0.1 / (power) * (1 + 1.8 / ((1 << (i)) * (first))))
#define SC_MOMENTS8_PARTS(power) (float)((power) / 0.9)
SC_FN sc_moments8_decade sc_moments8_decade_of(float a, int first) { /* without branches; a NaN is of the lowest */
    sc_moments8_decade d = {(float)first, SC_MOMENTS8_PARTS(1e6)};
#define SC_MOMENTS8_ABOVE(i, power)                                                                                    \
    {                                                                                                                  \
        bool above = a >= SC_MOMENTS8_BORDER(i, power, first);                                                         \
        d.n = above ? (float)((1 << (i)) * first) : d.n;                                                               \
        d.parts = above ? SC_MOMENTS8_PARTS(power) : d.parts;                                                          \
    }
    SC_MOMENTS8_DECADES(SC_MOMENTS8_ABOVE)
#undef SC_MOMENTS8_ABOVE
    return d;
}

/* The number whose magnitude is nearest to a, of those above 0: within a decade that of the part which a lies in. In
 * fp32 what lies within 1e-4 of a part from its border may fall to either side. */
SC_FN int sc_moments8_number(sc_moments8_decade d, float a, int first) {
    float at = a * d.parts * d.n + d.n * (float)(8 / 9.0), last = 2 * d.n - 1;
    at = at < last ? at : last;
    return a >= (float)(1 - 0.225 / (64 * first)) ? 128 * first : (int)at;
}

/* What an element x of a block is multiplied with before it is coded. Blocks of subnormals become 0. */
SC_FN float sc_moments8_inverse(float scale) {
    return scale < 0x1p-126f ? 0 : 1 / scale;
}
/* The code of x, y = x times the inverse, d the decade of |y|. Of two values the nearer; but a second moment above 0
 * gets a code above 0: its root is divided by, and the next step's quotient would be as large as 1 / sqrt(1 - beta2).
 */
SC_FN int sc_moments8_code_signed(sc_moments8_decade d, float y) {
    float a = __builtin_fabsf(y);
    int number = sc_moments8_number(d, a, 1);
    number = a < 2.75e-7f ? 0 : number;
    number = y < 0 ? -(number < 127 ? number : 127) : number;
    return number + SC_MOMENTS8_SIGNED_ZERO;
}
SC_FN int sc_moments8_code_unsigned(sc_moments8_decade d, float y, float x) {
    int number = sc_moments8_number(d, y, 2);
    number = number < 2 ? 2 : number;
    return x == 0 ? 0 : number - 1;
}
SC_FN int sc_moments8_code(float y, float x, bool is_signed) {
    return is_signed ? sc_moments8_code_signed(sc_moments8_decade_of(__builtin_fabsf(y), 1), y)
                     : sc_moments8_code_unsigned(sc_moments8_decade_of(y, 2), y, x);
}

/* The order of magnitudes, for a block's largest: a NaN is above all others, so that it reaches the scale. */
SC_FN uint32_t sc_moments8_order(float x) {
    return sc_bits(x) & 0x7fffffffu;
}

/* Codes the n <= 256 elements of a block; returns its scale. */
SC_FN float sc_moments8_code_block(uint8_t *__restrict__ code, const float *x, int64_t n, bool is_signed) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t order = sc_moments8_order(x[i]);
        largest = order > largest ? order : largest;
    }
    float inverse = sc_moments8_inverse(sc_float(largest));
    if (is_signed)
        for (int64_t i = 0; i < n; i++) code[i] = (uint8_t)sc_moments8_code(x[i] * inverse, x[i], true);
    else
        for (int64_t i = 0; i < n; i++) code[i] = (uint8_t)sc_moments8_code(x[i] * inverse, x[i], false);
    return sc_float(largest);
}

#endif
