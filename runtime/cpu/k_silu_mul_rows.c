/* silu(gate) up of rows of groups, each times its slot's weight, and the gradients.
 * Relies on: kernel.h. Relied on by: generated code.
 * Sums are made in real and rounded once. */
#include "kernel.h"

/* A row's slot, or -1: it has none. */
static int64_t slot_of(const sc_tensor *slots, int64_t row, int64_t n) {
    int64_t slot = sc_index(slots, row);
    return slot < n ? slot : -1;
}

SC_KERNEL(silu_mul_rows) {
    int64_t cols = sc_cols(&k->y), n = sc_numel(&k->weights);
    sc_range mine = sc_share(task, k->y.shape[0], 1);
    for (int64_t r = mine.begin; r < mine.end; r++) {
        int64_t slot = slot_of(&k->slots, r, n);
        real w = slot >= 0 ? (real)sc_get(&k->weights, slot) : 0;
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t m = sc_min(SC_CHUNK, cols - c);
            real from[2][SC_CHUNK], to[SC_CHUNK] = {0};
            if (slot >= 0) {
                const real *gate = sc_in(&k->gate, sc_row(&k->gate, r) + c, m, from[0]);
                const real *up = sc_in(&k->up, sc_row(&k->up, r) + c, m, from[1]);
                SC_ELEMENTWISE
                for (int64_t j = 0; j < m; j++) to[j] = sc_silu_mul(gate[j], up[j]) * w;
            }
            sc_store(&k->y, r * cols + c, 1, m, to);
        }
    }
}

/* dgate may have g's bytes: a chunk is computed aside before it is stored. */
SC_KERNEL(silu_mul_rows_grad) {
    int64_t cols = sc_cols(&k->g), n = sc_numel(&k->weights);
    sc_range mine = sc_share(task, k->g.shape[0], 1), slots = sc_share(task, n, 1);
    for (int64_t slot = slots.begin; slot < slots.end; slot++)
        if (sc_index(&k->places, slot) < 0) sc_set(&k->dweights, slot, 0);
    for (int64_t r = mine.begin; r < mine.end; r++) {
        int64_t slot = slot_of(&k->slots, r, n);
        real w = slot >= 0 ? (real)sc_get(&k->weights, slot) : 0, sum = 0;
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t m = sc_min(SC_CHUNK, cols - c);
            real from[3][SC_CHUNK], dgate[SC_CHUNK] = {0}, dup[SC_CHUNK] = {0};
            if (slot >= 0) {
                const real *g = sc_in(&k->g, sc_row(&k->g, r) + c, m, from[0]);
                const real *gate = sc_in(&k->gate, sc_row(&k->gate, r) + c, m, from[1]);
                const real *up = sc_in(&k->up, sc_row(&k->up, r) + c, m, from[2]);
                SC_ELEMENTWISE
                for (int64_t j = 0; j < m; j++) sc_silu_mul_grad(g[j], gate[j], up[j], &dgate[j], &dup[j]);
                sum += sc_chunk_dot(dup, up, m);
                for (int64_t j = 0; j < m; j++) dgate[j] *= w, dup[j] *= w;
            }
            sc_store(&k->dgate, sc_row(&k->dgate, r) + c, 1, m, dgate);
            sc_store(&k->dup, sc_row(&k->dup, r) + c, 1, m, dup);
        }
        if (slot >= 0) sc_store(&k->dweights, slot, 1, 1, &sum);
    }
}
