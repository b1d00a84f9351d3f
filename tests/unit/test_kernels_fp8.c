/* fp8 conversions of sc_extension.h beside the definition: every code, and every float of a fine grid and its
 * neighbours. Relies on: sc_extension.h, Criterion. Relied on by: unit_kernels. */
#include "sc_extension.h"
#include <criterion/criterion.h>

/* Value of a code with e exponent and 7 - e mantissa bits: IEEE 754, but for e4m3, which has neither infinity nor
 * more than one NaN of each sign. */
static double value(int code, int e) {
    int m = 7 - e, exponent = code >> m & ((1 << e) - 1), fraction = code & ((1 << m) - 1), bias = (1 << (e - 1)) - 1;
    double sign = code & 0x80 ? -1 : 1;
    if (e == 4 && (code & 0x7f) == 0x7f) return NAN;
    if (e == 5 && exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (!exponent) return sign * ldexp(fraction, 1 - bias - m);
    return sign * ldexp(fraction + (1 << m), exponent - bias - m);
}

/* The nearest finite code, the even one of two; saturating. */
static int nearest(double x, int e) {
    int best = 0, last = e == 4 ? 0x7e : 0x7b;
    for (int c = 1; c <= last; c++) {
        double d = fabs(value(c, e) - fabs(x)), b = fabs(value(best, e) - fabs(x));
        if (d < b || (d == b && !(c & 1))) best = c;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

Test(fp8, every_code_comes_back) {
    for (int c = 0; c < 256; c++) {
        double a = value(c, 4), b = value(c, 5);
        float x = sc_from_fp8_e4m3((sc_fp8_e4m3_t)c), y = sc_from_fp8_e5m2((sc_fp8_e5m2_t)c);
        cr_assert(isnan(a) ? isnan(x) : x == a && !signbit(x) == !signbit(a), "e4m3 %02x: %g, not %g", c, x, a);
        cr_assert(isnan(b) ? isnan(y) : y == b && !signbit(y) == !signbit(b), "e5m2 %02x: %g, not %g", c, y, b);
        cr_assert(isnan(a) ? (sc_to_fp8_e4m3(x) & 0x7f) == 0x7f : sc_to_fp8_e4m3(x) == c, "e4m3 %02x", c);
        cr_assert(isnan(b) ? isnan(sc_from_fp8_e5m2(sc_to_fp8_e5m2(y))) : sc_to_fp8_e5m2(y) == c, "e5m2 %02x", c);
    }
}

static void check_rounding(float x) {
    cr_assert_eq(sc_to_fp8_e4m3(x), nearest(x, 4), "e4m3 of %a: %02x, not %02x", x, sc_to_fp8_e4m3(x), nearest(x, 4));
    cr_assert_eq(sc_to_fp8_e5m2(x), nearest(x, 5), "e5m2 of %a: %02x, not %02x", x, sc_to_fp8_e5m2(x), nearest(x, 5));
}

/* Halfway between codes, a little beside, and far away. */
Test(fp8, to_nearest_even_and_saturating) {
    for (int e = 4; e <= 5; e++)
        for (int c = 0; c < (e == 4 ? 0x7e : 0x7b); c++) {
            float half = (float)((value(c, e) + value(c + 1, e)) / 2);
            for (int s = -1; s <= 1; s += 2) {
                check_rounding((float)s * half);
                check_rounding((float)s * nextafterf(half, 0));
                check_rounding((float)s * nextafterf(half, INFINITY));
            }
        }
    for (float x = 1e-12f; x < 1e12f; x *= 1.0371f) check_rounding(x);
    cr_assert_eq(sc_to_fp8_e4m3(INFINITY), 0x7e);
    cr_assert_eq(sc_to_fp8_e5m2(INFINITY), 0x7c);
}
