/* What the kernels of norms share: their tensors, and the runs of rows over which columns are summed.
 * Relies on: partials.cuh.
 * Relied on by: k_norm.cu, k_norm_grads.cu. */
#ifndef SC_NORM_CUH
#define SC_NORM_CUH

#include "partials.cuh"

struct normed {
    row_space to, from, grad; /* rows of y or dx, x, g */
    void *y;
    const void *x, *g, *w, *b;
    float *mean, *rstd;
    int64_t rows;
    int cols;
    float eps;
    row_space more; /* rows of c */
    const void *c;  /* NULL: none */
};

struct norm_columns {
    normed n;
    int64_t each; /* rows a block */
    float *part;  /* [runs][to.n][cols]; NULL: one run of rows, written as the result */
    planes to;    /* dw, db (layer_norm), ds */
};

/* dw: the first of the results; g, x, mean and rstd stand from `g` on; the workspace is the last tensor, if any. */
template <bool CENTRED>
static norm_columns columns_of(const sc_task *t, const sc_tensor *dw, const sc_tensor *g, bool sum, int *parts) {
    const sc_tensor *x = g + 1, *last = &t->t[t->nt - 1];
    norm_columns a = {};
    a.to.n = 1 + CENTRED + sum;
    for (int k = 0; k < a.to.n; k++) a.to.y[k] = dw[k].p, a.to.dtype[k] = dw[k].dtype;
    *parts = last->dtype == BOOL ? parts_in(t, t->nt - 1, cols_of(x) * 4 * a.to.n) : 1;
    a.n.from = row_space_of(x);
    a.n.grad = row_space_of(g);
    a.n.x = x->p;
    a.n.g = g->p;
    a.n.mean = CENTRED ? (float *)g[2].p : NULL;
    a.n.rstd = (float *)g[2 + CENTRED].p;
    a.n.rows = rows_of(x);
    a.n.cols = (int)cols_of(x);
    a.each = ceil_div(a.n.rows, *parts);
    a.part = *parts > 1 ? (float *)last->p : NULL;
    return a;
}

/* The gradients one after the other, for rows that are not held: g, x, mean (layer_norm), rstd stand from `g` on, dw
 * and db from `dw`; w and c may be NULL; dx may take the bytes of g or c (k_norm.cu). */
void sc_cuda_norm_grad(const sc_task *t, bool centred, const sc_tensor *dx, const sc_tensor *g, const sc_tensor *w,
                       const sc_tensor *c);
void sc_cuda_norm_weights(const sc_task *t, bool centred, const sc_tensor *dw, const sc_tensor *g);

#endif
