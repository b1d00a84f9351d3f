/* Moments in 8 bits: blocks of 256 elements, a code of 8 bits each and one scale. How they lie.
 * Relies on: fn.h.
 * Relied on by: the compiler (bytes of a state), sc_moments8.h, host/state.c.
 *
 * A state of n elements, a multiple of 256, is n codes and then n / 256 scales: element i has the scale i / 256. */
#ifndef SC_SCHEMA_MOMENTS8_H
#define SC_SCHEMA_MOMENTS8_H

#include "fn.h"
#include <stdint.h>

enum { SC_MOMENTS8_BLOCK = 256 };

/* Bytes of a state of n elements, and in it where the scales begin. */
SC_FN int64_t sc_moments8_bytes(int64_t n) {
    return n + n / SC_MOMENTS8_BLOCK * (int64_t)sizeof(float);
}
SC_FN float *sc_moments8_scales(void *state, int64_t n) {
    return (float *)((uint8_t *)state + n);
}

#endif
