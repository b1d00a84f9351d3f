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

/* Tensors of a gradient, by the names of ops.def; NULL: there is none, or (mean) the norm has none. */
struct norm_gradient {
    const sc_tensor *dx = NULL, *dw = NULL, *db = NULL, *ds = NULL;
    const sc_tensor *g = NULL, *x = NULL, *mean = NULL, *rstd = NULL, *w = NULL, *c = NULL, *work = NULL;
};

template <bool CENTRED> static norm_columns columns_of(const norm_gradient &k, int *parts) {
    norm_columns a = {};
    for (const sc_tensor *y : {k.dw, k.db, k.ds})
        if (y) a.to.y[a.to.n] = y->p, a.to.dtype[a.to.n++] = y->dtype;
    *parts = parts_in(k.work, cols_of(k.x) * 4 * a.to.n);
    a.n.from = row_space_of(k.x);
    a.n.grad = row_space_of(k.g);
    a.n.x = k.x->p;
    a.n.g = k.g->p;
    a.n.mean = CENTRED ? (float *)k.mean->p : NULL;
    a.n.rstd = (float *)k.rstd->p;
    a.n.rows = rows_of(k.x);
    a.n.cols = (int)cols_of(k.x);
    a.each = ceil_div(a.n.rows, *parts);
    a.part = *parts > 1 ? (float *)k.work->p : NULL;
    return a;
}

/* The gradients of x and of the weights one after the other, for rows that are not held; dx may take the bytes of g or
 * c (k_norm.cu). */
void sc_cuda_norm_grad(const sc_task *t, bool centred, const norm_gradient &k);
void sc_cuda_norm_weights(const sc_task *t, bool centred, const norm_gradient &k);

#endif
