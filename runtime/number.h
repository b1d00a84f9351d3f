/* Numbers as people write them: the values of options and of variables in the environment. Decimal alone, all of the
 * text, and within the type that will hold them: what does not fit is refused, not rounded, cut or wrapped.
 * Relies on: the C library. Relied on by: runtime/host, runtime/common/place.c, compiler/, runtime/calibrate/. */
#ifndef SC_NUMBER_H
#define SC_NUMBER_H

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* false: it is no whole number, or none from low to high. */
static inline bool sc_read_whole(const char *text, int64_t low, int64_t high, int64_t *out) {
    char *end;
    if (!*text || text[strspn(text, "0123456789+-")]) return false; /* strtoll takes blanks */
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (end == text || *end || errno || x < low || x > high) return false;
    *out = x;
    return true;
}

/* false: it is no decimal number, or none that a double holds: infinite, or so small that it would be rounded to 0. */
static inline bool sc_read_number(const char *text, double *out) {
    char *end;
    if (!*text || text[strspn(text, "0123456789+-.eE")]) return false; /* strtod takes blanks, 0x10, inf and nan */
    errno = 0;
    double x = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(x)) return false;
    *out = x;
    return true;
}

/* fp32 holds it with all of its digits: as 0 only where it is 0, and as nothing infinite or subnormal. */
static inline bool sc_fits_fp32(double x) {
    float narrow = (float)x;
    return x == 0 || (isfinite(narrow) && fabsf(narrow) >= FLT_MIN);
}

#define SC_LEAST_FP32 1.17549435082228750797e-38 /* FLT_MIN; for messages */

#endif
