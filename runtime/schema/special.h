/* lgamma, digamma, trigamma, erfinv and the Bessel functions i0 and i1, in type `real`.
 * Relies on: schema/math.h, which includes it at its end.
 * Relied on by: the expressions of ops.def.
 *
 * Computed in double and rounded once: within 0.6 ulp as floats, but that lgamma and digamma are within 1e-14 besides,
 * near their zeros, and i0 and i1 are not a number at infinity, as in PyTorch. They have loops and are not vectorised.
 */
#ifndef SC_SPECIAL_H
#define SC_SPECIAL_H

#ifdef SC_FP64
SC_FN double sc_special_exp(double x) {
    return exp(x);
}
SC_FN double sc_special_erfc(double a) {
    return erfc(a);
}
#else
SC_FN double sc_special_exp(double x) {
    return sc_wide_exp2(x * 1.4426950408889634074);
}
SC_FN double sc_special_erfc(double a) {
    return a < 1 ? 1 - sc_wide_erf_series(a) : sc_wide_erfc_tail(a);
}
#endif

/* Of a normal number: 2 atanh((m - 1) / (m + 1)), m in [√½, √2), and the exponent's share. */
SC_FN double sc_special_log(double a) {
    int64_t u = (int64_t)((uint64_t)sc_bits64(a) - 0x3fe6a09e667f3bcd);
    double m = sc_double((u & 0xfffffffffffff) + 0x3fe6a09e667f3bcd), s = (m - 1) / (m + 1), t = s * s, p = 0;
    double k = (double)(u >> 52);
    for (int n = 21; n > 1; n -= 2) p = t * (1.0 / n + p);
    return __builtin_fma(k, 0x1.62e42fefa39efp-1, __builtin_fma(k, 0x1.abc9e3b39803fp-56, 2 * s * p) + 2 * s);
}
/* sin πr, |r| <= ½, by its series. */
SC_FN double sc_special_sin_pi(double r) {
    double x = 3.14159265358979323846 * r, term = x, sum = x;
    for (int n = 2; n < 26; n += 2) sum += term *= -x * x / (n * (n + 1));
    return sum;
}

/* x >= ½: x (x + 1) ... as far as 10, then Stirling's series. */
SC_FN double sc_special_lgamma(double x) {
    double product = 1;
    for (; x < 10; x += 1) product *= x;
    double z = 1 / (x * x), p = -691.0 / 360360;
    p = p * z + 1.0 / 1188;
    p = p * z - 1.0 / 1680;
    p = p * z + 1.0 / 1260;
    p = p * z - 1.0 / 360;
    p = (p * z + 1.0 / 12) / x;
    return ((x - 0.5) * sc_special_log(x) - x + 0.91893853320467274178) + (p - sc_special_log(product));
}
/* log |Γ x|: of x below ½ by that of 1 - x. */
SC_FN real sc_lgamma(real v) {
    double x = v, r = x - __builtin_rint(x);
    if (!(sc_abs(v) < HUGE_VAL)) return sc_abs(v);
    if (x == 1 || x == 2) return 0;
    if (x >= 0.5) return (real)sc_special_lgamma(x);
    if (r == 0) return (real)HUGE_VAL;
    return (real)(sc_special_log(3.14159265358979323846 / __builtin_fabs(sc_special_sin_pi(r))) -
                  sc_special_lgamma(1 - x));
}

/* The derivative of lgamma: -∞ at 0, not a number at negative whole numbers. */
SC_FN real sc_digamma(real v) {
    double x = v, r = x - __builtin_rint(x), sum = 0;
    if (x == 0) return (real)-__builtin_copysign(HUGE_VAL, x);
    if (!(x < HUGE_VAL)) return v;
    if (x < 0 && r == 0) return (real)NAN;
    if (x == -HUGE_VAL) return (real)NAN;
    if (x < 0.5) {
        double cosine = sc_special_sin_pi(0.5 - __builtin_fabs(r)), sine = sc_special_sin_pi(r);
        sum = -3.14159265358979323846 * cosine / sine;
        x = 1 - x;
    }
    for (; x < 10; x += 1) sum -= 1 / x;
    double z = 1 / (x * x), p = 691.0 / 32760;
    p = -p * z + 1.0 / 132;
    p = -p * z + 1.0 / 240;
    p = -p * z + 1.0 / 252;
    p = -p * z + 1.0 / 120;
    p = (-p * z + 1.0 / 12) * z;
    return (real)(sum + sc_special_log(x) - 0.5 / x - p);
}
/* The derivative of digamma. */
SC_FN real sc_trigamma(real v) {
    double x = v, r = x - __builtin_rint(x), sum = 0, sign = 1;
    if (!(sc_abs(v) < HUGE_VAL)) return x > 0 ? 0 : (real)NAN;
    if (x <= 0 && r == 0) return (real)HUGE_VAL;
    if (x < 0.5) {
        double sine = sc_special_sin_pi(r);
        sum = 9.8696044010893586188 / (sine * sine);
        sign = -1;
        x = 1 - x;
    }
    double rest = 0;
    for (; x < 10; x += 1) rest += 1 / (x * x);
    double z = 1 / (x * x), p = -691.0 / 2730;
    p = p * z + 5.0 / 66;
    p = p * z - 1.0 / 30;
    p = p * z + 1.0 / 42;
    p = p * z - 1.0 / 30;
    p = (p * z + 1.0 / 6) * z;
    return (real)(sum + sign * (rest + (1 + 0.5 / x + p) / x));
}

/* A fit of single precision (Giles 2010, Approximating the erfinv function), then two steps of Newton's. */
SC_FN real sc_erfinv(real v) {
    double x = v, rest = 1 - __builtin_fabs(x), y;
    if (!(rest >= 0)) return (real)NAN;
    if (rest == 0) return (real)__builtin_copysign(HUGE_VAL, x);
    double w = -sc_special_log(rest * (1 + __builtin_fabs(x)));
    if (w < 5) {
        w -= 2.5;
        y = 2.81022636e-08;
        y = y * w + 3.43273939e-07;
        y = y * w - 3.5233877e-06;
        y = y * w - 4.39150654e-06;
        y = y * w + 0.00021858087;
        y = y * w - 0.00125372503;
        y = y * w - 0.00417768164;
        y = y * w + 0.246640727;
        y = y * w + 1.50140941;
    } else {
        w = __builtin_sqrt(w) - 3;
        y = -0.000200214257;
        y = y * w + 0.000100950558;
        y = y * w + 0.00134934322;
        y = y * w - 0.00367342844;
        y = y * w + 0.00573950773;
        y = y * w - 0.0076224613;
        y = y * w + 0.00943887047;
        y = y * w + 1.00167406;
        y = y * w + 2.83297682;
    }
    if (__builtin_fabs(x) < 1e-6) return (real)(x * 0.88622692545275801365);
    y *= __builtin_fabs(x);
    for (int k = 0; k < 2; k++) y += (sc_special_erfc(y) - rest) * 0.88622692545275801365 * sc_special_exp(y * y);
    return (real)__builtin_copysign(y, x);
}

/* I_order(a) of a >= 0: its series up to 30, beyond it that for large a. */
SC_FN double sc_special_bessel(int order, double a) {
    double sum = 1, term = 1;
    if (a <= 30) {
        for (int k = 1; k < 64; k++) sum += term *= a * a / (4.0 * k * (k + order));
        return order ? sum * a / 2 : sum;
    }
    for (int k = 1; k < 26; k++) sum += term *= ((2 * k - 1) * (2 * k - 1) - 4 * order) / (8.0 * a * k);
    return sc_special_exp(a) / __builtin_sqrt(6.28318530717958647693 * a) * sum;
}
SC_FN real sc_i0(real v) {
    double a = sc_abs(v);
    return a < HUGE_VAL ? (real)sc_special_bessel(0, a) : (real)NAN;
}
SC_FN real sc_i1(real v) {
    double a = sc_abs(v);
    return a < HUGE_VAL ? (real)__builtin_copysign(sc_special_bessel(1, a), v) : (real)NAN;
}

#endif
