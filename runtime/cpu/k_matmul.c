/* matmul: y[..., m, n] = f(op(a) · op(b) (+ bias[n]) (+ c)), accumulated in real, rounded once at the end; f as ops.def
 * says. gelu is taken of the argument as it is stored, where it is stored. A product that is gated is made where its
 * second result lies: the first may have the bytes of a gate.
 * Relies on: panels.h, block_sums.h, k_blas.c; a workspace of 4 MiB a part where a tensor is not of type real.
 * Relied on by: generated code.
 *
 * y is cut into tiles by its shape alone and a part computes whole tiles, each with its own calls of the library: so an
 * element's bits do not depend on the number of parts. */
#include "block_sums.h"

enum { MANY = 12 /* tiles, so that 2, 3, 4, 6 parts get equal shares */ };

typedef struct {
    const sc_tensor *y, *z, *a, *b, *bias, *c, *x, *up; /* y: where sums are made; z: gelu's argument, or the first of
                                                         * gated results, of which y is the second; all but a, b and
                                                         * bias are laid out as y; x: of gelu's gradient, or the gate */
    int ta, tb, f, onto;                                /* onto: y holds what is added, and the sums go on from it */
    int64_t m, n, k, lda, ldb, ldy;
    int64_t batches, tile_rows, tile_cols;
    bool scaled, blocks; /* a and b have 8 bits: sums are multiplied by `scale`, or block by block by scales */
    real scale;
    sc_scales scale_a, scale_b;
    real *work; /* this part's panels; NULL: none needed */
} product;

/* All but the last dimension of t can be walked with one stride. */
static int one_stride(const sc_tensor *t) {
    for (int d = t->dims - 3; d >= 0; d--)
        if (t->shape[d] != 1 && t->stride[d] != t->shape[d + 1] * t->stride[d + 1]) return 0;
    return 1;
}

static int64_t batch_at(const sc_tensor *t, int64_t batch) {
    int64_t at = 0;
    for (int d = t->dims - 3; d >= 0; d--) {
        at += batch % t->shape[d] * t->stride[d];
        batch /= t->shape[d];
    }
    return at;
}

/* Stride of the second last dimension; that of a single row is free, and the library wants it at least the width. */
static int64_t leading(const sc_tensor *t) {
    int64_t rows = t->shape[t->dims - 2], cols = t->shape[t->dims - 1], ld = t->stride[t->dims - 2];
    return rows == 1 ? sc_max(cols, 1) : ld;
}

static product product_of(const sc_task *task, const sc_matmul_args *k) {
    product p = {.y = &k->y,
                 .z = sc_given(&k->aux),
                 .a = &k->a,
                 .b = &k->b,
                 .bias = sc_given(&k->bias),
                 .c = sc_given(&k->c),
                 .x = sc_given(k->epilogue & SC_GELU ? &k->x : &k->gate),
                 .up = sc_given(&k->up),
                 .ta = k->trans_a != 0,
                 .tb = k->trans_b != 0,
                 .f = (int)k->epilogue};
    if (p.f & SC_GATED && p.z) p.y = &k->aux, p.z = &k->y;
    p.blocks = k->scale_a.p && k->scale_a.dims == 2;
    p.scaled = k->scale_a.p && !p.blocks;
    if (p.blocks) p.scale_a = sc_scales_of(&k->scale_a, 0), p.scale_b = sc_scales_of(&k->scale_b, k->square_b != 0);
    p.scale = p.scaled ? (real)sc_get(&k->scale_a, 0) * (real)sc_get(&k->scale_b, 0) : 1;
    p.onto = p.c && p.c->p == p.y->p && p.y->dtype == SC_REAL && !k->scale_a.p;
    if (p.onto) p.c = NULL;
    if (k->work.p) p.work = (real *)((char *)k->work.p + (int64_t)task->part * SC_CPU_MATMUL_BYTES);
    p.m = p.y->shape[p.y->dims - 2];
    p.n = p.y->shape[p.y->dims - 1];
    p.k = p.a->shape[p.a->dims - (p.ta ? 2 : 1)];
    p.lda = leading(p.a);
    p.ldb = leading(p.b);
    p.ldy = leading(p.y);
    p.batches = 1;
    for (int d = 0; d < p.y->dims - 2; d++) p.batches *= p.y->shape[d];
    if (!p.ta && p.b->dims == 2 && p.m != 1 && one_stride(p.a) && one_stride(p.y)) {
        p.m *= p.batches;
        p.batches = 1;
    }
    p.tile_rows = sc_min(ROWS, sc_max(p.m, 1));
    p.tile_cols = sc_min(COLS, sc_max(p.n, 1));
    while (p.batches * sc_ceil(p.m, p.tile_rows) * sc_ceil(p.n, p.tile_cols) < MANY &&
           p.tile_rows * p.tile_cols > 32768) {
        int64_t *side = p.tile_rows > p.tile_cols ? &p.tile_rows : &p.tile_cols;
        *side = sc_ceil(sc_ceil(*side, 2), 16) * 16;
    }
    return p;
}

static void add_bias(const product *p, real *c, int64_t ldc, int64_t rows, int64_t c0, int64_t cols) {
    real buffer[COLS];
    const real *bias = sc_in(p->bias, c0 * p->bias->stride[0], cols, buffer);
    for (int64_t i = 0; i < rows; i++) {
        real *row = c + i * ldc;
        SC_ELEMENTWISE
        for (int64_t j = 0; j < cols; j++) row[j] += bias[j];
    }
}

/* silu_mul or its gradient, on sums as they are when they have been stored. */
static void gate(const product *p, real *sum, int64_t at, int64_t n) {
    real from[2][COLS], to[COLS];
    const real *x = sc_in(p->x, at, n, from[0]), *up = p->up ? sc_in(p->up, at, n, from[1]) : NULL;
    if (p->y->dtype != SC_REAL) {
        sc_store(p->y, at, 1, n, sum);
        sc_load(sum, p->y, at, 1, n);
    }
    if (up) {
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) sc_silu_mul_grad(sum[j], x[j], up[j], &to[j], &sum[j]);
    } else {
        real *h = p->z ? to : sum;
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) h[j] = sc_silu_mul(x[j], sum[j]);
    }
    if (p->z) sc_store(p->z, at, 1, n, to);
}

/* What comes after the sums, on n neighbouring elements of y from element `at`. */
static void finish(const product *p, real *sum, int64_t at, int64_t n) {
    real buffer[COLS];
    if (p->c) {
        const real *c = sc_in(p->c, at, n, buffer);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) sum[j] += c[j];
    }
    if (SC_HAS(p->f, SC_GELU | SC_TOO)) {
        sc_store(p->z, at, 1, n, sum);
        sc_load(sum, p->z, at, 1, n);
    }
    if (SC_HAS(p->f, SC_GELU | SC_GRADIENT)) {
        const real *x = sc_in(p->x, at, n, buffer);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) sum[j] = sc_gelu_tanh_grad(sum[j], x[j]);
    } else if (p->f & SC_GELU) {
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) sum[j] = sc_gelu_tanh(sum[j]);
    }
    if (p->f & SC_GATED) gate(p, sum, at, n);
}

static void tile(const product *p, int64_t batch, int64_t r0, int64_t rows, int64_t c0, int64_t cols) {
    int64_t a0 = batch_at(p->a, batch), b0 = p->b->dims > 2 ? batch_at(p->b, batch) : 0;
    int64_t y0 = batch_at(p->y, batch) + r0 * p->ldy + c0, ldc = p->ldy;
    real *c = sc_panel_sums(p->work);
    if (p->y->dtype == SC_REAL)
        c = (real *)p->y->p + y0;
    else
        ldc = cols;
    sc_side a = {p->a, a0 + (p->ta ? r0 : r0 * p->lda), p->lda, p->ta};
    sc_side b = {p->b, b0 + (p->tb ? c0 * p->ldb : c0), p->ldb, p->tb};
    if (p->blocks)
        sc_block_sums(a, p->scale_a, batch * p->m + r0, b, p->scale_b, c0, rows, cols, p->k, p->work, c, ldc);
    else
        sc_sums(a, b, rows, cols, p->k, p->work, p->onto, c, ldc);
    for (int64_t i = 0; i < rows && p->scaled; i++)
        for (int64_t j = 0; j < cols; j++) c[i * ldc + j] *= p->scale;
    if (p->bias) add_bias(p, c, ldc, rows, c0, cols);
    for (int64_t i = 0; i < rows && (p->c || p->f); i++) finish(p, c + i * ldc, y0 + i * p->ldy, cols);
    if (p->y->dtype != SC_REAL)
        for (int64_t i = 0; i < rows; i++) sc_store(p->y, y0 + i * p->ldy, 1, cols, c + i * ldc);
}

/* The obvious version, for what the fast one cannot take without a workspace: rows that overlap (stride 0). */
static void plain_tile(const product *p, int64_t batch, int64_t r0, int64_t rows, int64_t c0, int64_t cols) {
    int64_t a0 = batch_at(p->a, batch), b0 = p->b->dims > 2 ? batch_at(p->b, batch) : 0, y0 = batch_at(p->y, batch);
    for (int64_t i = r0; i < r0 + rows; i++)
        for (int64_t j = c0; j < c0 + cols; j++) {
            real x, w, s = p->onto ? (real)sc_get(p->y, y0 + i * p->ldy + j) : 0;
            for (int64_t l = 0; l < p->k; l++) {
                sc_load(&x, p->a, a0 + (p->ta ? l * p->lda + i : i * p->lda + l), 1, 1);
                sc_load(&w, p->b, b0 + (p->tb ? j * p->ldb + l : l * p->ldb + j), 1, 1);
                s += x * w;
            }
            s *= p->scale;
            if (p->bias) s += (real)sc_get(p->bias, j * p->bias->stride[0]);
            finish(p, &s, y0 + i * p->ldy + j, 1);
            sc_store(p->y, y0 + i * p->ldy + j, 1, 1, &s);
        }
}

static int library_takes(const product *p) {
    if (p->work || p->blocks) return 1;
    return p->y->dtype == SC_REAL && p->a->dtype == SC_REAL && p->b->dtype == SC_REAL &&
           p->lda >= p->a->shape[p->a->dims - 1] && p->ldb >= p->b->shape[p->b->dims - 1];
}

SC_KERNEL(matmul) {
    product p = product_of(task, k);
    int64_t across = sc_ceil(p.n, p.tile_cols), down = sc_ceil(p.m, p.tile_rows);
    sc_range mine = sc_share(task, p.batches * down * across, 1);
    int fast = library_takes(&p);
    for (int64_t u = mine.begin; u < mine.end; u++) {
        int64_t c0 = u % across * p.tile_cols, r0 = u / across % down * p.tile_rows;
        (fast ? tile : plain_tile)(&p, u / across / down, r0, sc_min(p.tile_rows, p.m - r0), c0,
                                   sc_min(p.tile_cols, p.n - c0));
    }
}
