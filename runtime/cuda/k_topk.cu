/* topk over the last dimension and its gradient.
 * Relies on: kernel.cuh.
 * Relied on by: generated code. Contiguous operands.
 *
 * A warp goes through its row once for each of the k largest: the first, in the order of sc_topk_before, of those behind
 * the one found last. The gradient is a thread an element of dx, which looks for itself among its row's indices. */
#include "kernel.cuh"

namespace {

struct picking {
    void *values;
    int32_t *indices;
    const void *x;
    int64_t rows;
    int cols, most;
};

template <class E> __global__ void __launch_bounds__(BLOCK) pick_largest(picking a) {
    typedef typename E::type type;
    int64_t row = my_row<WARP>();
    int lane = threadIdx.x % WARP, last = -1;
    float was = 0;
    if (row >= a.rows) return;
    const type *x = (const type *)a.x + row * a.cols;
    for (int i = 0; i < a.most; i++) {
        float best = 0;
        int found = -1;
        for (int c = lane; c < a.cols; c += WARP) {
            float v = E::get(x[c]);
            if (last >= 0 && !sc_topk_before(was, last, v, c)) continue;
            if (found < 0 || sc_topk_before(v, c, best, found)) best = v, found = c;
        }
        for (int k = WARP / 2; k; k /= 2) {
            float v = __shfl_xor_sync(SC_ALL, best, k);
            int c = __shfl_xor_sync(SC_ALL, found, k);
            if (c >= 0 && (found < 0 || sc_topk_before(v, c, best, found))) best = v, found = c;
        }
        if (lane == 0) {
            ((type *)a.values)[row * a.most + i] = x[found];
            a.indices[row * a.most + i] = found;
        }
        was = best, last = found;
    }
}

struct scattering {
    void *dx;
    const void *g;
    const int32_t *indices;
    int64_t n;
    int cols, most;
};

template <class E> __global__ void __launch_bounds__(BLOCK) scatter_gradient(scattering a) {
    typedef typename E::type type;
    int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= a.n) return;
    int64_t first = at / a.cols * a.most;
    int c = (int)(at % a.cols);
    type dx = E::put(0);
    for (int64_t i = first; i < first + a.most; i++)
        if (a.indices[i] == c) dx = ((const type *)a.g)[i];
    ((type *)a.dx)[at] = dx;
}

} // namespace

SC_KERNEL(topk) {
    const sc_tensor *x = &k->x;
    picking a = {k->values.p, (int32_t *)k->indices.p, x->p, rows_of(x), (int)cols_of(x), (int)k->k};
    with_float(task, x->dtype, [&](auto e) {
        SC_LAUNCH(task, pick_largest<decltype(e)>, blocks_for(a.rows, BLOCK / WARP), BLOCK, a);
    });
}

SC_KERNEL(topk_grad) {
    const sc_tensor *dx = &k->dx, *g = &k->g;
    scattering a = {dx->p, g->p, (const int32_t *)k->indices.p, sc_numel(dx), (int)k->cols, (int)cols_of(g)};
    with_float(task, dx->dtype, [&](auto e) {
        SC_LAUNCH(task, scatter_gradient<decltype(e)>, blocks_for(a.n, BLOCK), BLOCK, a);
    });
}
