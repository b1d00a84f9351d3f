/* layer_norm and rms_norm over the last dimension (D), with their gradients; norm_statistics: without their results.
 * Relies on: norm.cuh, partials.cuh.
 * Relied on by: generated code; k_norm_grads.cu.
 *
 * layer_norm: mean = Σx/D, rstd = 1/√(Σ(x-mean)²/D + eps), x̂ = (x-mean)·rstd, y = x̂·w + b.
 * rms_norm:   rstd = 1/√(Σx²/D + eps), x̂ = x·rstd, y = x̂·w.
 * Gradients, h = g·w:  layer_norm: dx = rstd·(h - Σh/D - x̂·Σ(h·x̂)/D);  rms_norm: the same without the middle term.
 * Weights: dw = Σ_rows g·x̂, db = Σ_rows g.
 *
 * Rows: a warp (to 2048 16-bit elements) or a block (to 16384) holds a row in registers, so that memory is read once;
 * longer rows, and rows that 16-byte accesses do not fit, are read again for each pass, by a block.
 * Columns: a block sums a run of rows for 32 accesses of columns, its 8 warps taking rows in turn; runs are folded.
 * k_norm_grads.cu computes both in one pass where rows can be held. */
#include "norm.cuh"

namespace {

enum { ROWS = BLOCK / WARP }; /* rows in flight in a block */

/* ── forward ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int W>
SC_DEVICE void normalised(const normed &a, typename E::type *y, int c, const raw<E, W> &x, float mean, float rstd) {
    typedef const typename E::type *pointer;
    raw<E, W> w, b, out;
    float v[W];
    if (a.w) w.load((pointer)a.w + c);
    if (a.b) b.load((pointer)a.b + c);
#pragma unroll
    for (int k = 0; k < W; k++) {
        v[k] = (x.get(k) - mean) * rstd;
        if (a.w) v[k] = v[k] * w.get(k);
        if (a.b) v[k] = v[k] + b.get(k);
    }
    out.put(v);
    out.store(y + c);
}

template <class E, int G, int V, bool CENTRED> __global__ void __launch_bounds__(BLOCK) norm_held(normed a) {
    constexpr int W = wide<E>;
    int64_t row = my_row<G>();
    int lane = threadIdx.x % G;
    if (row >= a.rows) return; /* whole warps; with G = BLOCK never */
    /* From the end on where rows are read alone: the kernel before has written that last, so it is still in the cache;
     * and the beginning is what quantize reads first. */
    if (!a.y) row = a.rows - 1 - row;
    const typename E::type *x = (const typename E::type *)a.x + row_at(a.from, row);
    raw<E, W> v[V];
    float sum = 0, mean = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c < a.cols)
            v[i].load(x + c);
        else
            v[i].clear();
    }
    if (CENTRED) {
#pragma unroll
        for (int i = 0; i < V; i++)
#pragma unroll
            for (int k = 0; k < W; k++) sum += v[i].get(k);
        mean = group_sum<G>(sum) / (float)a.cols;
        sum = 0;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        if ((lane + i * G) * W < a.cols)
#pragma unroll
            for (int k = 0; k < W; k++) {
                float d = v[i].get(k) - mean;
                sum = sc_fma(d, d, sum);
            }
    float rstd = 1 / sc_sqrt(group_sum<G>(sum) / (float)a.cols + a.eps);
    if (lane == 0) {
        if (CENTRED) a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
    if (!a.y) return;
    typename E::type *y = (typename E::type *)a.y + row_at(a.to, row);
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c < a.cols) normalised<E, W>(a, y, c, v[i], mean, rstd);
    }
}

template <class E, bool CENTRED> __global__ void __launch_bounds__(BLOCK) norm_read_again(normed a) {
    int64_t row = blockIdx.x;
    const typename E::type *x = (const typename E::type *)a.x + row_at(a.from, row);
    float sum = 0, mean = 0;
    if (CENTRED) {
        for (int c = threadIdx.x; c < a.cols; c += BLOCK) sum += E::get(x[c]);
        mean = group_sum<BLOCK>(sum) / (float)a.cols;
        sum = 0;
    }
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) {
        float d = E::get(x[c]) - mean;
        sum = sc_fma(d, d, sum);
    }
    float rstd = 1 / sc_sqrt(group_sum<BLOCK>(sum) / (float)a.cols + a.eps);
    if (threadIdx.x == 0) {
        if (CENTRED) a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
    if (!a.y) return;
    typename E::type *y = (typename E::type *)a.y + row_at(a.to, row);
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) {
        raw<E, 1> v;
        v.load(x + c);
        normalised<E, 1>(a, y, c, v, mean, rstd);
    }
}

struct norm_forward { /* tensors that are not there have no address */
    sc_tensor y = {}, mean = {}, rstd = {}, x = {}, w = {}, b = {};
    double eps = 0;
};

template <bool CENTRED> void forward(const sc_task *t, const norm_forward &k) {
    normed a = {.to = row_space_of(&k.y),
                .from = row_space_of(&k.x),
                .y = k.y.p,
                .x = k.x.p,
                .w = k.w.p,
                .b = k.b.p,
                .mean = (float *)k.mean.p,
                .rstd = (float *)k.rstd.p,
                .rows = rows_of(&k.x),
                .cols = (int)cols_of(&k.x),
                .eps = (float)k.eps};
    bool wide_enough = (!a.y || wide_rows(&k.y)) && wide_rows(&k.x) && aligned(a.w, 16) && aligned(a.b, 16);
    launch_rows(t, k.x.dtype, wide_enough, a, [](auto e, auto g, auto v) {
        if constexpr (v.value == 0)
            return norm_read_again<decltype(e), CENTRED>;
        else
            return norm_held<decltype(e), g.value, v.value, CENTRED>;
    });
}

/* ── gradient of x ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int G, int V, bool CENTRED> __global__ void __launch_bounds__(BLOCK) norm_grad_held(normed a) {
    constexpr int W = wide<E>;
    typedef typename E::type type;
    int64_t row = my_row<G>();
    int lane = threadIdx.x % G;
    if (row >= a.rows) return;
    const type *g = (const type *)a.g + row_at(a.grad, row), *x = (const type *)a.x + row_at(a.from, row);
    float mean = CENTRED ? a.mean[row] : 0, rstd = a.rstd[row], sum = 0, dot = 0;
    raw<E, W> dy[V], v[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c < a.cols) {
            dy[i].load(g + c);
            v[i].load(x + c);
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c >= a.cols) continue;
        raw<E, W> w;
        if (a.w) w.load((const type *)a.w + c);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float h = a.w ? dy[i].get(k) * w.get(k) : dy[i].get(k);
            if (CENTRED) sum += h;
            dot = sc_fma(h, (v[i].get(k) - mean) * rstd, dot);
        }
    }
    sum = CENTRED ? group_sum<G>(sum) / (float)a.cols : 0;
    dot = group_sum<G>(dot) / (float)a.cols;
    type *dx = (type *)a.y + row_at(a.to, row);
#pragma unroll
    for (int i = 0; i < V; i++) {
        int c = (lane + i * G) * W;
        if (c >= a.cols) continue;
        raw<E, W> w, out;
        float d[W];
        if (a.w) w.load((const type *)a.w + c);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float h = a.w ? dy[i].get(k) * w.get(k) : dy[i].get(k);
            d[k] = (h - sum - (v[i].get(k) - mean) * rstd * dot) * rstd;
        }
        out.put(d);
        out.store(dx + c);
    }
}

template <class E, bool CENTRED> __global__ void __launch_bounds__(BLOCK) norm_grad_read_again(normed a) {
    typedef typename E::type type;
    int64_t row = blockIdx.x;
    const type *g = (const type *)a.g + row_at(a.grad, row), *x = (const type *)a.x + row_at(a.from, row);
    const type *w = (const type *)a.w;
    const type *more = a.c ? (const type *)a.c + row_at(a.more, row) : NULL;
    type *dx =
        (type *)a.y + row_at(a.to, row); /* may be g's row or c's: a thread reads an element before it writes it */
    float mean = CENTRED ? a.mean[row] : 0, rstd = a.rstd[row], sum = 0, dot = 0;
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) {
        float h = w ? E::get(g[c]) * E::get(w[c]) : E::get(g[c]);
        sum += h;
        dot = sc_fma(h, (E::get(x[c]) - mean) * rstd, dot);
    }
    sum = CENTRED ? group_sum<BLOCK>(sum) / (float)a.cols : 0;
    dot = group_sum<BLOCK>(dot) / (float)a.cols;
    for (int c = threadIdx.x; c < a.cols; c += BLOCK) {
        float h = w ? E::get(g[c]) * E::get(w[c]) : E::get(g[c]);
        float d = (h - sum - (E::get(x[c]) - mean) * rstd * dot) * rstd;
        dx[c] = E::put(more ? d + E::get(more[c]) : d);
    }
}

template <bool CENTRED> void backward(const sc_task *t, const norm_gradient &k) {
    normed a = normed_of(k);
    add_dx(&a, k);
    bool wide_enough = wide_rows(&k.dx) && wide_rows(&k.g) && wide_rows(&k.x) && aligned(a.w, 16) && !a.c;
    launch_rows(t, k.x.dtype, wide_enough, a, [](auto e, auto g, auto v) {
        if constexpr (v.value == 0)
            return norm_grad_read_again<decltype(e), CENTRED>;
        else
            return norm_grad_held<decltype(e), g.value, v.value, CENTRED>;
    });
}

/* ── gradients of the weights ─────────────────────────────────────────────────────────────────────────────────────────
 */
/* The eight warps' sums of the block's columns, added up in their order. */
template <int W> SC_DEVICE void join_warps(const norm_columns &a, const float *sum, int which) {
    __shared__ float joined[ROWS][WARP * W];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < W; k++) joined[warp][lane * W + k] = sum[k];
    __syncthreads();
    for (int j = threadIdx.x; j < WARP * W; j += BLOCK) {
        int64_t c = (int64_t)blockIdx.x * WARP * W + j;
        if (c >= a.n.cols) continue;
        float x = joined[0][j];
#pragma unroll
        for (int k = 1; k < ROWS; k++) x += joined[k][j];
        if (a.part)
            a.part[((int64_t)blockIdx.y * a.to.n + which) * a.n.cols + c] = x;
        else
            store_any(a.to.y[which], a.to.dtype[which], c, x);
    }
}

template <class E, int W, bool CENTRED> __global__ void __launch_bounds__(BLOCK) sum_columns(norm_columns a) {
    typedef typename E::type type;
    enum { U = 4 }; /* rows in flight a warp */
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t c = ((int64_t)blockIdx.x * WARP + lane) * W, begin = blockIdx.y * a.each;
    int64_t end = begin + a.each < a.n.rows ? begin + a.each : a.n.rows;
    float dw[W] = {}, db[W] = {};
    if (c < a.n.cols)
        for (int64_t first = begin + warp; first < end; first += ROWS * U) {
            raw<E, W> g[U], x[U];
            float mean[U], rstd[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                int64_t row = first + u * ROWS;
                mean[u] = rstd[u] = 0;
                g[u].clear(); /* beyond the end: adds zero */
                x[u].clear();
                if (row >= end) continue;
                g[u].load((const type *)a.n.g + row_at(a.n.grad, row) + c);
                x[u].load((const type *)a.n.x + row_at(a.n.from, row) + c);
                if (CENTRED) mean[u] = a.n.mean[row];
                rstd[u] = a.n.rstd[row];
            }
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int k = 0; k < W; k++) {
                    float dy = g[u].get(k);
                    dw[k] = sc_fma(dy, (x[u].get(k) - mean[u]) * rstd[u], dw[k]);
                    if (CENTRED) db[k] += dy;
                }
        }
    join_warps<W>(a, dw, 0);
    if (CENTRED) join_warps<W>(a, db, 1);
}

template <bool CENTRED> void weights(const sc_task *t, const norm_gradient &k) {
    int parts;
    norm_columns a = columns_of(k, &parts);
    with_runs(t, k.x.dtype, wide_rows(&k.g) && wide_rows(&k.x), [&](auto e, auto w) {
        SC_LAUNCH(t, (sum_columns<decltype(e), w.value, CENTRED>), dim3(blocks_for(a.n.cols, WARP * w.value), parts),
                  BLOCK, a);
    });
    if (a.part) fold_partials<adding>(t, a.part, parts, a.n.cols, a.to, 1);
}

} // namespace

SC_KERNEL(layer_norm) {
    forward<true>(task, {.y = k->y, .mean = k->mean, .rstd = k->rstd, .x = k->x, .w = k->w, .b = k->b, .eps = k->eps});
}
SC_KERNEL(rms_norm) {
    forward<false>(task, {.y = k->y, .rstd = k->rstd, .x = k->x, .w = k->w, .eps = k->eps});
}
SC_KERNEL(norm_statistics) {
    (k->centred ? forward<true> : forward<false>)(task, {.mean = k->mean, .rstd = k->rstd, .x = k->x, .eps = k->eps});
}

void sc_cuda_norm_grad(const sc_task *t, bool centred, const norm_gradient &k) {
    centred ? backward<true>(t, k) : backward<false>(t, k);
}
SC_KERNEL(layer_norm_grad) {
    backward<true>(task, {.dx = k->dx, .g = k->g, .x = k->x, .mean = k->mean, .rstd = k->rstd, .w = k->w});
}
SC_KERNEL(rms_norm_grad) {
    backward<false>(task, {.dx = k->dx, .g = k->g, .x = k->x, .rstd = k->rstd, .w = k->w});
}

void sc_cuda_norm_weights(const sc_task *t, bool centred, const norm_gradient &k) {
    centred ? weights<true>(t, k) : weights<false>(t, k);
}
SC_KERNEL(layer_norm_grad_w) {
    weights<true>(
        task, {.dw = k->dw, .db = k->db, .g = k->g, .x = k->x, .mean = k->mean, .rstd = k->rstd, .work = k->work});
}
SC_KERNEL(rms_norm_grad_w) {
    weights<false>(task, {.dw = k->dw, .g = k->g, .x = k->x, .rstd = k->rstd, .work = k->work});
}
