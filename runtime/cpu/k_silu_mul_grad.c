/* silu_mul_grad: g, gate, up -> dgate = g up silu'(gate), dup = g silu(gate).
 * Relies on: kernel.h.
 * Relied on by: generated code. */
#include "kernel.h"

/* dgate may have the bytes of an operand: a chunk is computed aside before it is stored. */
SC_KERNEL(silu_mul_grad) {
    real from[3][SC_CHUNK], to[2][SC_CHUNK];
    sc_range mine = sc_share(task, sc_numel(&k->dgate), SC_CHUNK);
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, mine.end - i);
        const real *g = sc_in(&k->g, i, n, from[0]), *gate = sc_in(&k->gate, i, n, from[1]);
        const real *up = sc_in(&k->up, i, n, from[2]);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) sc_silu_mul_grad(g[j], gate[j], up[j], &to[0][j], &to[1][j]);
        sc_store(&k->dgate, i, 1, n, to[0]);
        sc_store(&k->dup, i, 1, n, to[1]);
    }
}
