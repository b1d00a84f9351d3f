/* What rope makes of a piece of a row, for the kernel that quantizes it.
 * Relies on: kernel.h.
 * Relied on by: k_rope.c, k_quantize.c. */
#ifndef SC_ROPE_H
#define SC_ROPE_H

#include "kernel.h"

/* Elements [c, c + n) of row `row` of x, contiguous [B,S,H,D], as [B S, H D]: of whole heads, not interleaved, with a
 * frequency a pair (k_rope.c). */
void sc_rope_piece(const sc_rope_args *k, int64_t row, int64_t c, int64_t n, real *y);

#endif
