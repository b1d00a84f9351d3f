/* What the kernels of norms share: their tensors, and the runs of rows over which columns are summed.
 * Relies on: partials.cuh.
 * Relied on by: k_norm.cu, k_norm_grads.cu. */
#ifndef SC_NORM_CUH
#define SC_NORM_CUH

#include "partials.cuh"

struct normed {
    row_space to = {}, from = {}, grad = {}; /* rows of y or dx, x, g */
    void *y = NULL;
    const void *x = NULL, *g = NULL, *w = NULL, *b = NULL; /* w, b: NULL where there is none */
    float *mean = NULL, *rstd = NULL;
    int64_t rows = 0;
    int cols = 0;
    float eps = 0;
    row_space more = {};  /* rows of c */
    const void *c = NULL;  /* added to dx; NULL: none */
};

struct norm_columns {
    normed n;
    int64_t each = 0;   /* rows a block */
    float *part = NULL; /* [runs][to.n][cols]; NULL: one run of rows, written as the result */
    planes to = {};     /* dw, db (layer_norm), ds */
};

/* Tensors of a gradient, by the names of ops.def; those that are not there have no address. */
struct norm_gradient {
    sc_tensor dx = {}, dw = {}, db = {}, ds = {}, g = {}, x = {}, mean = {}, rstd = {}, w = {}, c = {}, work = {};
};

/* Rows of x and g; y is what the caller makes of them. */
static inline normed normed_of(const norm_gradient &k) {
    return {.from = row_space_of(&k.x),
            .grad = row_space_of(&k.g),
            .x = k.x.p,
            .g = k.g.p,
            .mean = (float *)k.mean.p,
            .rstd = (float *)k.rstd.p,
            .rows = rows_of(&k.x),
            .cols = (int)cols_of(&k.x)};
}
/* For the gradient of x, beside which c is added. */
static inline void add_dx(normed *a, const norm_gradient &k) {
    a->to = row_space_of(&k.dx);
    a->y = k.dx.p;
    a->w = k.w.p;
    a->c = k.c.p;
    if (k.c.p) a->more = row_space_of(&k.c);
}

static inline norm_columns columns_of(const norm_gradient &k, int *parts) {
    norm_columns a;
    a.n = normed_of(k);
    for (const sc_tensor *y : {&k.dw, &k.db, &k.ds})
        if (y->p) a.to.y[a.to.n] = y->p, a.to.dtype[a.to.n++] = y->dtype;
    *parts = parts_in(&k.work, cols_of(&k.x) * 4 * a.to.n);
    a.each = ceil_div(a.n.rows, *parts);
    a.part = *parts > 1 ? (float *)k.work.p : NULL;
    return a;
}

/* The gradients of x and of the weights one after the other, for rows that are not held; dx may take the bytes of g or
 * c (k_norm.cu). */
void sc_cuda_norm_grad(const sc_task *t, bool centred, const norm_gradient &k);
void sc_cuda_norm_weights(const sc_task *t, bool centred, const norm_gradient &k);

#endif
