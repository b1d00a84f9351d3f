/* layer_norm_grads and rms_norm_grads: dx (+ c), dw and db of k_norm.cu in one pass over g and x, and dx's sums.
 * Relies on: norm.cuh, copies.cuh, k_norm.cu and k_reduce.cu (rows that are not held).
 * Relied on by: generated code.
 *
 * x̂ = (x-mean)·rstd, h = g·w:  dx = rstd·(h - Σh/D - x̂·Σ(h·x̂)/D) + c (rms_norm: mean = 0, no middle term);
 * dw = Σ_rows g·x̂, db = Σ_rows g, ds = Σ_rows dx as it is stored.
 *
 * A block takes a run of rows, a warp or the block a row at a time, held in registers. Whoever holds a row adds to its
 * own columns' sums, which are joined at the end of the run, in order, and folded over the runs. Where a block has a
 * row, the rows behind it are on their way to shared memory meanwhile: else the block would wait for memory and for its
 * sums by turns. */
#include "copies.cuh"
#include "norm.cuh"

namespace {

/* Every thread of the group gets the sums of x and y. turn: 0 and 1 in turns, as parts of the call before may still be
 * read. */
template <int G> SC_DEVICE void group_sums(float *x, float *y, int turn) {
    *x = warp_sum(*x);
    *y = warp_sum(*y);
    if constexpr (G > WARP) {
        __shared__ float2 parts[2][G / WARP];
        float2 *part = parts[turn];
        if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = make_float2(*x, *y);
        __syncthreads();
        *x = part[0].x, *y = part[0].y;
#pragma unroll
        for (int k = 1; k < G / WARP; k++) *x += part[k].x, *y += part[k].y;
    }
}

/* Accesses of rows to come, a thread's own: AHEAD rows of g, x and c. */
template <class E> struct rows_ahead {
    enum { AHEAD = 3 };
    uint4 (*at)[3][BLOCK];
    SC_DEVICE rows_ahead() {
        __shared__ uint4 ring[AHEAD][3][BLOCK];
        at = ring;
    }
    SC_DEVICE void start(const norm_columns &a, int64_t row, int64_t end, int stage) {
        typedef const typename E::type type;
        int c = threadIdx.x * wide<E>;
        uint4(*to)[BLOCK] = at[stage];
        if (row < end && c < a.n.cols) {
            copy_start(&to[0][threadIdx.x], (type *)a.n.g + row * a.n.grad.stride[0] + c);
            copy_start(&to[1][threadIdx.x], (type *)a.n.x + row * a.n.from.stride[0] + c);
            if (a.n.c) copy_start(&to[2][threadIdx.x], (type *)a.n.c + row * a.n.more.stride[0] + c);
        }
        copies_commit();
    }
};

/* The groups' sums of the columns of access i, in the groups' order, to the run's partial sums or the result. */
template <int G, int W> SC_DEVICE void join_groups(const norm_columns &a, int i, const float *sum, int plane) {
    enum { GROUPS = BLOCK / G };
    __shared__ float joined[GROUPS > 1 ? GROUPS : 1][G * W];
    int lane = threadIdx.x % G, group = threadIdx.x / G;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < W; k++) joined[group][lane * W + k] = sum[k];
    __syncthreads();
    for (int j = threadIdx.x; j < G * W; j += BLOCK) {
        int64_t c = (int64_t)i * G * W + j;
        if (c >= a.n.cols) continue;
        float x = joined[0][j];
#pragma unroll
        for (int k = 1; k < GROUPS; k++) x += joined[k][j];
        if (a.part)
            a.part[((int64_t)blockIdx.x * a.to.n + plane) * a.n.cols + c] = x;
        else
            store_any(a.to.y[plane], a.to.dtype[plane], c, x);
    }
}

/* A thread's sums of its columns of dx, V accesses of W: in registers; or, where these are full, in at most 32 KiB of
 * shared memory, so that as many blocks find room on a multiprocessor as without the sums. */
template <int V, int W> struct registers {
    float sum[V][W] = {};
    template <class R> SC_DEVICE void add(int i, const R &x) {
#pragma unroll
        for (int k = 0; k < W; k++) sum[i][k] += x.get(k);
    }
    SC_DEVICE void get(int i, float *x) const {
#pragma unroll
        for (int k = 0; k < W; k++) x[k] = sum[i][k];
    }
};
template <int V, int W> struct shared_memory {
    enum { Q = W / 4 };
    float (*at)[BLOCK][4]; /* accesses of 16 bytes, a thread's own beside its neighbours' */
    SC_DEVICE shared_memory() {
        __shared__ __align__(16) float sum[V * Q][BLOCK][4];
        at = sum;
        raw<fp32, 4> zeros;
        zeros.clear();
#pragma unroll
        for (int q = 0; q < V * Q; q++) zeros.store(at[q][threadIdx.x]);
    }
    template <class R> SC_DEVICE void add(int i, const R &x) {
#pragma unroll
        for (int q = 0; q < Q; q++) {
            raw<fp32, 4> sum;
            float more[4];
            sum.load(at[i * Q + q][threadIdx.x]);
#pragma unroll
            for (int k = 0; k < 4; k++) more[k] = sum.get(k) + x.get(4 * q + k);
            sum.put(more);
            sum.store(at[i * Q + q][threadIdx.x]);
        }
    }
    SC_DEVICE void get(int i, float *x) const {
#pragma unroll
        for (int k = 0; k < W; k++) x[k] = at[i * Q + k / 4][threadIdx.x][k % 4];
    }
};
struct none {};
template <int V, int W>
using sums = std::conditional_t<(V > 1 && V * W * BLOCK <= 8192), shared_memory<V, W>, registers<V, W>>;

/* Short rows leave room for two blocks in a multiprocessor's registers; a block that takes a row at a time waits for
 * its sums, so three or four of them, if that can be. */
template <class E, int G, int V, bool CENTRED, bool SUM>
__global__ void __launch_bounds__(BLOCK, G == BLOCK && V <= 2 ? 4 - CENTRED
                                         : V <= 3             ? 2
                                                              : 1) norm_grads_held(norm_columns a) {
    constexpr int W = wide<E>;
    enum { GROUPS = BLOCK / G };
    typedef typename E::type type;
    int lane = threadIdx.x % G;
    int64_t begin = blockIdx.x * a.each, end = begin + a.each < a.n.rows ? begin + a.each : a.n.rows;
    float dw[V][W] = {}, db[V][W] = {};
    std::conditional_t<SUM, sums<V, W>, none> ds;
    constexpr bool LOOKS_AHEAD = G == BLOCK && V == 1;
    std::conditional_t<LOOKS_AHEAD, rows_ahead<E>, none> ahead;
    int stage = 0, turn = 0;
    if constexpr (LOOKS_AHEAD)
        for (int s = 0; s < ahead.AHEAD; s++) ahead.start(a, begin + s, end, s);
    for (int64_t row = begin + threadIdx.x / G; row < end; row += GROUPS) { /* G = BLOCK: all threads the same rows */
        const type *g = (const type *)a.n.g + row * a.n.grad.stride[0],
                   *x = (const type *)a.n.x + row * a.n.from.stride[0];
        float rstd = a.n.rstd[row], shift = CENTRED ? -a.n.mean[row] * rstd : 0, sum = 0, dot = 0;
        raw<E, W> dy[V], v[V], more[V];
        if constexpr (LOOKS_AHEAD) {
            copies_wait<ahead.AHEAD - 1>();
            const uint4(*from)[BLOCK] = ahead.at[stage];
            dy[0].load(&from[0][lane]);
            v[0].load(&from[1][lane]);
            more[0].load(&from[2][lane]);
        }
#pragma unroll
        for (int i = 0; i < V && !LOOKS_AHEAD; i++) {
            int c = (lane + i * G) * W;
            if (c >= a.n.cols) continue;
            dy[i].load(g + c);
            v[i].load(x + c);
            if (a.n.c) more[i].load((const type *)a.n.c + row * a.n.more.stride[0] + c);
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            int c = (lane + i * G) * W;
            if (c >= a.n.cols) continue;
            raw<E, W> w;
            if (a.n.w) w.load((const type *)a.n.w + c);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float d = dy[i].get(k), h = a.n.w ? d * w.get(k) : d, n = sc_fma(v[i].get(k), rstd, shift);
                if (CENTRED) sum += h, db[i][k] += d;
                dot = sc_fma(h, n, dot);
                dw[i][k] = sc_fma(d, n, dw[i][k]);
            }
        }
        group_sums<G>(&sum, &dot, turn);
        turn ^= 1;
        if constexpr (LOOKS_AHEAD) {
            ahead.start(a, row + ahead.AHEAD, end, stage);
            stage = stage + 1 < ahead.AHEAD ? stage + 1 : 0;
        }
        sum = -rstd * (sum / (float)a.n.cols);
        dot = -rstd * (dot / (float)a.n.cols);
        type *dx = (type *)a.n.y + row * a.n.to.stride[0];
#pragma unroll
        for (int i = 0; i < V; i++) {
            int c = (lane + i * G) * W;
            if (c >= a.n.cols) continue;
            raw<E, W> w, out;
            float d[W];
            if (a.n.w) w.load((const type *)a.n.w + c);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float h = a.n.w ? dy[i].get(k) * w.get(k) : dy[i].get(k);
                d[k] = sc_fma(sc_fma(v[i].get(k), rstd, shift), dot, sc_fma(h, rstd, sum));
                if (a.n.c) d[k] += more[i].get(k);
            }
            out.put(d);
            out.store(dx + c);
            if constexpr (SUM) ds.add(i, out);
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        join_groups<G, W>(a, i, dw[i], 0);
        if (CENTRED) join_groups<G, W>(a, i, db[i], 1);
        if constexpr (SUM) {
            float sum[W];
            ds.get(i, sum);
            join_groups<G, W>(a, i, sum, 1 + CENTRED);
        }
    }
}

/* with_shape of kernel.cuh, but that a block takes rows from 129 accesses on: with the sums of its columns a warp has
 * no registers for more. */
template <class E, class F> void with_grads_shape(bool wide_enough, int cols, F f) {
    int accesses = cols / wide<E>;
    if (wide_enough && accesses > 4 * WARP && accesses <= 8 * BLOCK)
        at_least<1, 2, 4, 8>((int)ceil_div(accesses, BLOCK), [&](auto v) { f(constant<BLOCK>{}, v); });
    else if (wide_enough && accesses <= 4 * WARP)
        at_least<1, 2, 3, 4>((int)ceil_div(accesses, WARP), [&](auto v) { f(constant<WARP>{}, v); });
    else
        f(constant<BLOCK>{}, constant<0>{});
}

/* One after the other, dx after the weights' (it may take c's bytes), then its sums. */
template <bool CENTRED> void gradients_apart(const sc_task *t, const norm_gradient &k) {
    norm_gradient weights = k;
    weights.ds = {};
    sc_cuda_norm_weights(t, CENTRED, weights);
    sc_cuda_norm_grad(t, CENTRED, k);
    if (!k.ds.p) return;
    sc_sum_args args = {};
    args.y = k.ds, args.x = k.dx, args.work = k.work;
    args.over = (1 << (k.dx.dims - 1)) - 1;
    sc_task sum = *t;
    sum.args = (const sc_args *)&args;
    sum.slots = SC_SLOTS_sum;
    sc_k_sum(&sum);
}

/* Held rows, all one stride apart: dx and the sums in one pass. */
template <bool CENTRED> void both_gradients(const sc_task *t, const norm_gradient &k) {
    int parts;
    norm_columns a = columns_of(k, &parts);
    if (!a.n.rows) return;
    add_dx(&a.n, k);
    bool wide_enough = wide_rows(&k.dx) && wide_rows(&k.g) && wide_rows(&k.x) && aligned(a.n.w, 16);
    wide_enough = wide_enough && (!a.n.c || wide_rows(&k.c));
    wide_enough = wide_enough && a.n.to.dims <= 1 && a.n.grad.dims <= 1 && a.n.from.dims <= 1 && a.n.more.dims <= 1;
    with_float(t, k.x.dtype, [&](auto e) {
        typedef decltype(e) E;
        with_grads_shape<E>(wide_enough, a.n.cols, [&](auto lanes, auto v) {
            constexpr int G = decltype(lanes)::value, V = decltype(v)::value;
            if constexpr (V == 0) {
                gradients_apart<CENTRED>(t, k);
            } else {
                if (k.ds.p)
                    SC_LAUNCH(t, (norm_grads_held<E, G, V, CENTRED, true>), parts, BLOCK, a);
                else
                    SC_LAUNCH(t, (norm_grads_held<E, G, V, CENTRED, false>), parts, BLOCK, a);
                if (a.part) fold_partials<adding>(t, a.part, parts, a.n.cols, a.to, 1);
            }
        });
    });
}

} // namespace

SC_KERNEL(layer_norm_grads) {
    both_gradients<true>(task, {.dx = k->dx,
                                .dw = k->dw,
                                .db = k->db,
                                .ds = k->ds,
                                .g = k->g,
                                .x = k->x,
                                .mean = k->mean,
                                .rstd = k->rstd,
                                .w = k->w,
                                .c = k->c,
                                .work = k->work});
}
SC_KERNEL(rms_norm_grads) {
    both_gradients<false>(task, {.dx = k->dx,
                                 .dw = k->dw,
                                 .ds = k->ds,
                                 .g = k->g,
                                 .x = k->x,
                                 .rstd = k->rstd,
                                 .w = k->w,
                                 .c = k->c,
                                 .work = k->work});
}
