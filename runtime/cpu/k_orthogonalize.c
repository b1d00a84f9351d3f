/* orthogonalize: of the matrices that this rank owns, each by itself as torch.optim.Muon does it, in bf16: divided by
 * its norm, then `steps` times X -> a X + (b A + c A A) X with A = X X^T; a tall matrix lies transposed meanwhile. Sums
 * are made in real and rounded to bf16 once. Zeros elsewhere in y. Relies on: kernel.h, k_blas.c, schema/matrices.h;
 * the workspace of schema/workspace.h for each part; eps in the record. Relied on by: generated code.
 *
 * A part computes whole matrices, so bits do not depend on the number of parts, nor on the world: they depend on the
 * matrix alone. Of X X^T and A A, which are symmetric, blocks of rows up to the diagonal are computed and mirrored. */
#include "../schema/matrices.h"
#include "../schema/workspace.h"
#include "kernel.h"
#include <math.h>
#include <string.h>

enum { BAND = 128 }; /* rows of a symmetric product at a time */

static real rounded(real x) {
    return sc_from_bf16(sc_to_bf16((float)x));
}

/* s [n][n] = alpha x x^T + beta s, x [n][k]. */
static void symmetric(real *s, const real *x, int64_t n, int64_t k, real alpha, real beta) {
    for (int64_t i = 0; i < n; i += BAND) {
        int64_t rows = sc_min(BAND, n - i), cols = i + rows;
        sc_gemm(0, 1, rows, cols, k, alpha, x + i * k, k, x, k, beta, s + i * n, n);
        for (int64_t r = i; r < cols; r++)
            for (int64_t c = 0; c <= r; c++) s[r * n + c] = s[c * n + r] = rounded(s[r * n + c]);
    }
}

/* r rows of c elements at `work`, from x or to y, which may hold them transposed. */
static real *load(real *work, const sc_bf16_t *x, sc_matrices m, bool tall) {
    for (int64_t i = 0; i < m.rows; i++)
        for (int64_t j = 0; j < m.cols; j++)
            work[tall ? j * m.rows + i : i * m.cols + j] = sc_from_bf16(x[i * m.cols + j]);
    return work;
}
static void store(sc_bf16_t *y, const real *work, sc_matrices m, bool tall) {
    for (int64_t i = 0; i < m.rows; i++)
        for (int64_t j = 0; j < m.cols; j++) /* + 0: no zero is negative, as sums with other ranks' zeros have it */
            y[i * m.cols + j] = sc_to_bf16((float)(work[tall ? j * m.rows + i : i * m.cols + j] + 0));
}

static void orthogonalize(const sc_orthogonalize_args *k, sc_matrices m, int64_t at, real eps, real *work) {
    bool tall = m.rows > m.cols;
    int64_t r = sc_matrices_short(m), c = sc_matrices_long(m), numel = r * c;
    real *x = load(work, (const sc_bf16_t *)k->x.p + at, m, tall), *next = x + numel, *a = next + numel, *b = a + r * r;
    real alpha = (real)k->abc[0];
    double squares = 0;
    for (int64_t i = 0; i < r; i++) squares += (double)sc_chunk_dot(x + i * c, x + i * c, c);
    real norm = rounded((real)sqrt(squares)), least = rounded(eps);
    if (norm < least) norm = least;
    SC_ELEMENTWISE
    for (int64_t i = 0; i < numel; i++) x[i] = rounded(x[i] / norm);
    for (int64_t step = 0; step < k->steps; step++) {
        symmetric(a, x, r, c, 1, 0);
        memcpy(b, a, (size_t)(r * r) * sizeof(real));
        symmetric(b, a, r, r, (real)k->abc[2], (real)k->abc[1]);
        memcpy(next, x, (size_t)numel * sizeof(real));
        sc_gemm(0, 0, r, c, r, 1, b, r, x, c, alpha, next, c);
        SC_ELEMENTWISE
        for (int64_t i = 0; i < numel; i++) next[i] = rounded(next[i]);
        real *last = x;
        x = next;
        next = last;
    }
    store((sc_bf16_t *)k->y.p + at, x, m, tall);
}

SC_KERNEL(orthogonalize) {
    int64_t mine = task->coord[k->axis].at, numel = sc_numel(&k->y), number = 0, from = 0, most = 0;
    sc_bf16_t *y = k->y.p;
    for (int64_t i = 0; i < k->ntable / SC_MATRICES; i++) {
        sc_matrices m = sc_matrices_at(k->table, i);
        most = sc_max(most, sc_cpu_orthogonalize_bytes(sc_matrices_short(m), sc_matrices_long(m), sizeof(real)));
    }
    real *work = (real *)((char *)k->work.p + task->part * most);
    for (int64_t i = 0; i < k->ntable / SC_MATRICES; i++) {
        sc_matrices m = sc_matrices_at(k->table, i);
        int64_t size = m.rows * m.cols;
        if (m.owner != mine) continue;
        if (task->part == 0) memset(y + from, 0, (size_t)(m.at - from) * sizeof *y);
        from = m.at + m.count * size;
        for (int64_t j = 0; j < m.count; j++)
            if (number++ % task->parts == task->part)
                orthogonalize(k, m, m.at + j * size, task->record->of[k->set].eps, work);
    }
    if (task->part == 0) memset(y + from, 0, (size_t)(numel - from) * sizeof *y);
}
