/* softmax over the last dimension and its gradient.
 * Relies on: kernel.cuh.
 * Relied on by: generated code.
 *
 * y = e^(x - max x) / Σ e^(x - max x);  dx = y·(g - Σ g·y). Both may write over an operand: a thread reads what it
 * writes. Rows are held in registers where they fit. */
#include "kernel.cuh"

namespace {

struct rows_task {
    row_space to, from, grad; /* rows of the result, of x or y, of g */
    void *to_p;
    const void *from_p, *grad_p;
    int64_t rows;
    int cols;
};

template <class E, int G, int V> __global__ void __launch_bounds__(BLOCK) softmax_held(rows_task a) {
    constexpr int W = wide<E>;
    typedef typename E::type type;
    int64_t row = my_row<G>();
    int lane = threadIdx.x % G;
    if (row >= a.rows) return;
    const type *x = (const type *)a.from_p + row_at(a.from, row);
    type *y = (type *)a.to_p + row_at(a.to, row);
    raw<E, W> v[V];
    float most = -HUGE_VALF, sum = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c < a.cols) v[i].load(x + c);
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        if ((lane + i * G) * W < a.cols)
#pragma unroll
            for (int k = 0; k < W; k++) most = larger(most, v[i].get(k));
    most = group_max<G>(most);
#pragma unroll
    for (int i = 0; i < V; i++)
        if ((lane + i * G) * W < a.cols)
#pragma unroll
            for (int k = 0; k < W; k++) sum += sc_exp(v[i].get(k) - most);
    float scale = 1 / group_sum<G>(sum);
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c >= a.cols) continue;
        float out[W];
#pragma unroll
        for (int k = 0; k < W; k++) out[k] = sc_exp(v[i].get(k) - most) * scale;
        v[i].put(out);
        v[i].store(y + c);
    }
}

template <class E> __global__ void __launch_bounds__(BLOCK) softmax_read_again(rows_task a) {
    typedef typename E::type type;
    const type *x = (const type *)a.from_p + row_at(a.from, blockIdx.x);
    type *y = (type *)a.to_p + row_at(a.to, blockIdx.x);
    float most = -HUGE_VALF, sum = 0;
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) most = larger(most, E::get(x[c]));
    most = group_max<BLOCK>(most);
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) sum += sc_exp(E::get(x[c]) - most);
    float scale = 1 / group_sum<BLOCK>(sum);
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) y[c] = E::put(sc_exp(E::get(x[c]) - most) * scale);
}

template <class E, int G, int V> __global__ void __launch_bounds__(BLOCK) softmax_grad_held(rows_task a) {
    constexpr int W = wide<E>;
    typedef typename E::type type;
    int64_t row = my_row<G>();
    int lane = threadIdx.x % G;
    if (row >= a.rows) return;
    const type *g = (const type *)a.grad_p + row_at(a.grad, row), *y = (const type *)a.from_p + row_at(a.from, row);
    type *dx = (type *)a.to_p + row_at(a.to, row);
    raw<E, W> dy[V], p[V];
    float dot = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        dy[i].clear();
        p[i].clear();
        if (c >= a.cols) continue;
        dy[i].load(g + c);
        p[i].load(y + c);
    }
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int k = 0; k < W; k++) dot = sc_fma(dy[i].get(k), p[i].get(k), dot);
    dot = group_sum<G>(dot);
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c >= a.cols) continue;
        float out[W];
#pragma unroll
        for (int k = 0; k < W; k++) out[k] = p[i].get(k) * (dy[i].get(k) - dot);
        p[i].put(out);
        p[i].store(dx + c);
    }
}

template <class E> __global__ void __launch_bounds__(BLOCK) softmax_grad_read_again(rows_task a) {
    typedef typename E::type type;
    const type *g = (const type *)a.grad_p + row_at(a.grad, blockIdx.x);
    const type *y = (const type *)a.from_p + row_at(a.from, blockIdx.x);
    type *dx = (type *)a.to_p + row_at(a.to, blockIdx.x);
    float dot = 0;
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) dot = sc_fma(E::get(g[c]), E::get(y[c]), dot);
    dot = group_sum<BLOCK>(dot);
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) dx[c] = E::put(E::get(y[c]) * (E::get(g[c]) - dot));
}

} // namespace

SC_KERNEL(softmax) {
    const sc_tensor *y = &k->y, *x = &k->x;
    rows_task a = {row_space_of(y), row_space_of(x), {}, y->p, x->p, NULL, rows_of(x), (int)cols_of(x)};
    launch_rows(task, x->dtype, wide_rows(y) && wide_rows(x), a, [](auto e, auto g, auto v) {
        if constexpr (v.value == 0)
            return softmax_read_again<decltype(e)>;
        else
            return softmax_held<decltype(e), g.value, v.value>;
    });
}

SC_KERNEL(softmax_grad) {
    const sc_tensor *dx = &k->dx, *g = &k->g, *y = &k->y;
    rows_task a = {row_space_of(dx), row_space_of(y), row_space_of(g), dx->p, y->p, g->p, rows_of(y), (int)cols_of(y)};
    launch_rows(task, y->dtype, wide_rows(dx) && wide_rows(g) && wide_rows(y), a, [](auto e, auto lanes, auto v) {
        if constexpr (v.value == 0)
            return softmax_grad_read_again<decltype(e)>;
        else
            return softmax_grad_held<decltype(e), lanes.value, v.value>;
    });
}
