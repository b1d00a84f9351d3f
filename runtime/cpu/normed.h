/* What a norm makes of a run of a row, where the row's statistics are known.
 * Relies on: kernel.h.
 * Relied on by: k_norm.c, k_quantize.c. */
#ifndef SC_NORMED_H
#define SC_NORMED_H

#include "kernel.h"

/* y = (x - mean) rstd w + b; w, b: NULL where there is none. */
static inline void sc_normalise(real *y, const real *x, int64_t n, real mean, real rstd, const real *w, const real *b) {
    if (w && b) {
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    } else if (w) {
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * w[i];
    } else {
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd + (b ? b[i] : 0);
    }
}

#endif
