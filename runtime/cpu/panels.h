/* A tile of a product, summed in real whatever its operands' dtypes are: in place, or through panels of a workspace.
 * Relies on: kernel.h, schema/workspace.h.
 * Relied on by: k_matmul.c, k_grouped.c.
 *
 * Tiles of 512 × 256 lose a few per cent against one large call. Operands of another dtype are converted, 1024 (512) of
 * the inner dimension at a time, into panels of a part's workspace of SC_CPU_MATMUL_BYTES. */
#ifndef SC_PANELS_H
#define SC_PANELS_H

#include "../schema/workspace.h"
#include "kernel.h"

enum { ROWS = 512, COLS = 256, INNER = 4096 / sizeof(real) };
_Static_assert((ROWS * COLS + (ROWS + COLS) * INNER) * sizeof(real) <= SC_CPU_MATMUL_BYTES,
               "the panels fit a part's workspace");

/* An operand from element `at` on, rows `ld` apart. turned: a lies as [k][rows], b as [cols][k]. */
typedef struct {
    const sc_tensor *t;
    int64_t at, ld;
    int turned;
} sc_side;

/* rows × cols of t from element `at`, as reals: in place, or in the panel. */
static inline const real *panel_of(const sc_tensor *t, int64_t at, int64_t rows, int64_t cols, int64_t *ld,
                                   real *panel) {
    if (t->dtype == SC_REAL && *ld >= cols) return (const real *)t->p + at;
    for (int64_t i = 0; i < rows; i++) sc_load(panel + i * cols, t, at + i * *ld, 1, cols);
    *ld = cols;
    return panel;
}

/* Where sums are made that are rounded afterwards: behind the panels, rows of `cols`. */
static inline real *sc_panel_sums(real *work) {
    return work + (ROWS + COLS) * INNER;
}

/* c [rows][cols], rows ldc apart, = op(a) op(b) over k, `onto`: plus what it was. work: the panels; NULL where both
 * operands hold reals. */
static inline void sc_sums(sc_side a, sc_side b, int64_t rows, int64_t cols, int64_t k, real *work, int onto, real *c,
                           int64_t ldc) {
    int64_t step = work ? INNER : sc_max(k, 1);
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += step) {
        int64_t n = sc_min(step, k - k0), lda = a.ld, ldb = b.ld;
        const real *x = a.turned ? panel_of(a.t, a.at + k0 * lda, n, rows, &lda, work)
                                 : panel_of(a.t, a.at + k0, rows, n, &lda, work);
        const real *y = b.turned ? panel_of(b.t, b.at + k0, cols, n, &ldb, work + ROWS * INNER)
                                 : panel_of(b.t, b.at + k0 * ldb, n, cols, &ldb, work + ROWS * INNER);
        sc_gemm(a.turned, b.turned, rows, cols, n, 1, x, lda, y, ldb, k0 || onto ? 1 : 0, c, ldc);
    }
}

#endif
