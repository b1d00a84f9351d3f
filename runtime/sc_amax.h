/* The history of largest magnitudes that 8 bits are scaled by (recipe = "delayed"), and how the scales of a unit's
 * matrices lie; the same for host and device. Relies on: schema/math.h.
 * Relied on by: k_quantize.c, k_quantize_shard.c, their CUDA twins, lower/shard. */
#ifndef SC_AMAX_H
#define SC_AMAX_H

#include "schema/math.h"

/* Scales leave room for a tensor that is twice as large as it has been: what exceeds them is cut. A factor of two costs
 * no digit of a floating-point number, but one at the lower end of 15 (fp8_e4m3) binades. */
#define SC_AMAX_ROOM 2.0f

/* A unit's scales of matrices lie so many floats apart: cuBLASLt reads scales at multiples of 16 bytes alone
 * (CUBLAS_STATUS_NOT_SUPPORTED on two H200 otherwise). */
#define SC_SCALES_APART 4

/* A site's row [1 + steps]: what its scale is made of, then the latest steps first. */
SC_FN void sc_amax_remember(float *row, int64_t n, float now) {
    float most = 0;
    for (int64_t i = n - 1; i > 0; i--) {
        row[i] = i == 1 ? now : row[i - 1];
        most = row[i] > most ? row[i] : most;
    }
    row[0] = most > 0x1p126f ? most : SC_AMAX_ROOM * most;
}

#endif
