/* A tile of a product of two matrices of 8 bits whose scales belong to blocks of 128 of the inner dimension.
 * Relies on: panels.h.
 * Relied on by: k_matmul.c.
 *
 * y = Σ over blocks b, in order, of (Σ in b of a·b, in real) · (scale of a's row in b · scale of b's column in b). */
#ifndef SC_BLOCK_SUMS_H
#define SC_BLOCK_SUMS_H

#include "panels.h"

enum { SC_BLOCK = 128 };
_Static_assert((ROWS + COLS) * SC_BLOCK + ROWS * COLS <= (ROWS + COLS) * INNER, "a block's sums fit beside its panels");

/* The scales of an operand: of its rows by themselves, or of squares, [rows / 128][depth]. */
typedef struct {
    const float *at;
    int square;
    int64_t pitch; /* between blocks of k; of squares, between those of rows */
} sc_scales;

static inline sc_scales sc_scales_of(const sc_tensor *t, int square) {
    return (sc_scales){(const float *)t->p, square, t->shape[1]};
}

static inline real sc_scale_at(sc_scales s, int64_t row, int64_t block) {
    return s.square ? s.at[row / SC_BLOCK * s.pitch + block] : s.at[block * s.pitch + row];
}

/* c [rows][cols], rows ldc apart: rows of a from number a0, of b (as [cols][k]) from number b0. */
static inline void sc_block_sums(sc_side a, sc_scales sa, int64_t a0, sc_side b, sc_scales sb, int64_t b0, int64_t rows,
                                 int64_t cols, int64_t k, real *work, real *c, int64_t ldc) {
    real *part = work + (ROWS + COLS) * SC_BLOCK, of_b[COLS];
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += SC_BLOCK) {
        int64_t n = sc_min(SC_BLOCK, k - k0), lda = a.ld, ldb = b.ld, block = k0 / SC_BLOCK;
        const real *x = panel_of(a.t, a.at + k0, rows, n, &lda, work);
        const real *y = panel_of(b.t, b.at + k0, cols, n, &ldb, work + ROWS * SC_BLOCK);
        sc_gemm(0, 1, rows, cols, n, 1, x, lda, y, ldb, 0, part, cols);
        for (int64_t j = 0; j < cols; j++) of_b[j] = sc_scale_at(sb, b0 + j, block);
        for (int64_t i = 0; i < rows; i++) {
            const real s = sc_scale_at(sa, a0 + i, block), *p = part + i * cols;
            real *to = c + i * ldc;
            SC_ELEMENTWISE
            for (int64_t j = 0; j < cols; j++) to[j] = (block ? to[j] : 0) + p[j] * (s * of_b[j]);
        }
    }
}

#endif
