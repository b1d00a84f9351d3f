/* sum, mean, max over any set of dimensions, and max's gradient.
 * Relies on: kernel.cuh, partials.cuh.
 * Relied on by: generated code; k_norm_grads.cu.
 *
 * y[kept] = Σ x[kept, reduced] (mean: / count; max: the largest, a NaN wins), in float, rounded once. Neighbouring
 * dimensions of one kind are merged. Where the last dimension is kept, threads own neighbouring results (`down`); where
 * it is reduced, a warp or a block owns a result and its threads stride over it (`across`). Few results: the reduced
 * elements are cut into runs, whose results are folded. max_grad: dx = g / (number of elements equal to the maximum) at
 * those, else 0. */
#include "partials.cuh"

namespace {

int64_t size_of_space(const row_space *a) {
    int64_t n = 1;
    for (int d = 0; d < a->dims; d++) n *= a->shape[d];
    return n;
}

struct reduction {
    row_space kept, reduced; /* but for the inner dimension: x's last of more than one element, and those merged with it */
    int64_t inner, stride;
    int64_t results, reduced_n; /* of all, of `reduced` */
    const void *x;
    void *y;
    float *part;  /* [gridDim.y][results]; NULL: there is one run */
    int64_t each; /* of `reduced` (down) or of accesses (across) in a run */
    int dtype, wide_y;
    float divisor;
};

template <class OP> SC_DEVICE void put_result(const reduction &a, int64_t i, float x) {
    if (a.part)
        a.part[blockIdx.y * a.results + i] = x;
    else
        store_any(a.y, a.dtype, i, x / a.divisor);
}

/* A thread has W neighbouring results; R threads share them and take the reduced elements in turn. */
template <class E, int W, class OP, int R>
__global__ void __launch_bounds__(BLOCK) reduce_down(const __grid_constant__ reduction a) {
    enum { U = 4, C = BLOCK / R };
    int lane = threadIdx.x % C, run = threadIdx.x / C;
    int64_t u = (int64_t)blockIdx.x * C + lane, accesses = a.inner / W;
    int64_t begin = blockIdx.y * a.each, end = begin + a.each < a.reduced_n ? begin + a.each : a.reduced_n;
    bool mine = u * W < a.results;
    float sum[W];
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] = OP::none();
    if (mine) {
        int64_t o = u / accesses, i = u - o * accesses;
        const typename E::type *x = (const typename E::type *)a.x + row_at(a.kept, o) + i * W * a.stride;
        for (int64_t r = begin + run; r < end; r += R * U) {
            raw<E, W> v[U];
#pragma unroll
            for (int j = 0; j < U; j++)
                if (r + j * R < end) v[j].load(x + row_at(a.reduced, r + j * R));
#pragma unroll
            for (int j = 0; j < U; j++)
                if (r + j * R < end)
#pragma unroll
                    for (int k = 0; k < W; k++) sum[k] = OP::join(sum[k], v[j].get(k));
        }
    }
    if constexpr (R > 1) {
        __shared__ float joined[R][C * W];
#pragma unroll
        for (int k = 0; k < W; k++) joined[run][lane * W + k] = sum[k];
        __syncthreads();
        for (int j = threadIdx.x; j < C * W; j += BLOCK) {
            int64_t i = (int64_t)blockIdx.x * C * W + j;
            if (i >= a.results) continue;
            float s = joined[0][j];
#pragma unroll
            for (int k = 1; k < R; k++) s = OP::join(s, joined[k][j]);
            put_result<OP>(a, i, s);
        }
    } else if (mine && a.wide_y && !a.part) {
#pragma unroll
        for (int k = 0; k < W; k++) sum[k] = sum[k] / a.divisor;
        store_run<W>(a.y, a.dtype, u * W, sum);
    } else if (mine) {
#pragma unroll
        for (int k = 0; k < W; k++) put_result<OP>(a, u * W + k, sum[k]);
    }
}

/* G threads have a result. */
template <class E, int W, class OP, int G>
__global__ void __launch_bounds__(BLOCK) reduce_across(const __grid_constant__ reduction a) {
    enum { U = 4 };
    int lane = threadIdx.x % G;
    int64_t o = my_row<G>(), accesses = a.inner / W, begin = blockIdx.y * a.each;
    int64_t all = a.reduced_n * accesses, end = begin + a.each < all ? begin + a.each : all;
    if (o >= a.results) return; /* whole warps */
    const typename E::type *x = (const typename E::type *)a.x + row_at(a.kept, o);
    float sum = OP::none();
    for (int64_t q = begin + lane; q < end; q += G * U) {
        raw<E, W> v[U];
#pragma unroll
        for (int j = 0; j < U; j++)
            if (q + j * G < end) {
                int64_t r = a.reduced_n == 1 ? 0 : (q + j * G) / accesses, i = q + j * G - r * accesses;
                v[j].load(x + row_at(a.reduced, r) + i * W * a.stride);
            }
#pragma unroll
        for (int j = 0; j < U; j++)
            if (q + j * G < end)
#pragma unroll
                for (int k = 0; k < W; k++) sum = OP::join(sum, v[j].get(k));
    }
    sum = OP::template over_group<G>(sum);
    if (lane == 0) put_result<OP>(a, o, sum);
}

template <class E, int W, class OP> void launch_down(const sc_task *t, const reduction &a, int parts) {
    int64_t threads = a.results / W;
    if (a.reduced_n < 8 * parts) /* too few to share */
        SC_LAUNCH(t, (reduce_down<E, W, OP, 1>), dim3(blocks_for(threads, BLOCK), parts), BLOCK, a);
    else
        SC_LAUNCH(t, (reduce_down<E, W, OP, 8>), dim3(blocks_for(threads, BLOCK / 8), parts), BLOCK, a);
}
template <class E, int W, class OP> void launch_across(const sc_task *t, const reduction &a, int parts) {
    if (a.each <= 8 * WARP)
        SC_LAUNCH(t, (reduce_across<E, W, OP, WARP>), dim3(blocks_for(a.results, BLOCK / WARP), parts), BLOCK, a);
    else
        SC_LAUNCH(t, (reduce_across<E, W, OP, BLOCK>), dim3((unsigned)a.results, parts), BLOCK, a);
}

/* Divides x's dimensions; true where the inner one is kept. */
bool divide(reduction *a, const sc_tensor *x, int64_t mask) {
    int last = x->dims - 1;
    while (last >= 0 && x->shape[last] == 1) last--;
    for (int d = 0; d < last; d++) add_dimension(mask >> d & 1 ? &a->reduced : &a->kept, x->shape[d], x->stride[d]);
    bool kept = last < 0 || !(mask >> last & 1);
    row_space *same = kept ? &a->kept : &a->reduced;
    a->inner = last < 0 ? 1 : x->shape[last];
    a->stride = last < 0 ? 1 : x->stride[last];
    int before = same->dims - 1;
    if (before >= 0 && same->stride[before] == a->inner * a->stride) {
        a->inner *= same->shape[before];
        same->shape[before] = same->stride[before] = 0;
        same->dims--;
    }
    a->reduced_n = size_of_space(&a->reduced);
    a->results = size_of_space(&a->kept) * (kept ? a->inner : 1);
    return kept;
}

/* May the inner dimension be read 16 bytes at a time? */
bool wide_inner(const reduction *a, const sc_tensor *x) {
    int64_t size = size_of(x->dtype);
    bool yes = a->stride == 1 && aligned(a->x, 16) && a->inner * size % 16 == 0;
    for (int d = 0; d < a->kept.dims; d++) yes = yes && a->kept.stride[d] * size % 16 == 0;
    for (int d = 0; d < a->reduced.dims; d++) yes = yes && a->reduced.stride[d] * size % 16 == 0;
    return yes;
}

/* k: the args of sum, mean or max. */
template <class OP, class K> void reduce(const sc_task *t, const K *k, bool mean) {
    const sc_tensor *y = &k->y, *x = &k->x;
    reduction a = {};
    a.x = x->p;
    a.y = y->p;
    a.dtype = y->dtype;
    a.wide_y = aligned(y->p, 16);
    bool down = divide(&a, x, k->over);
    int64_t count = a.reduced_n * (down ? 1 : a.inner);
    a.divisor = mean ? (float)count : 1;
    int parts = parts_in(&k->work, a.results * 4);
    a.part = parts > 1 ? (float *)k->work.p : NULL;
    with_number(t, x->dtype, [&](auto e) {
        typedef decltype(e) E;
        constexpr bool real_type = !std::is_integral<typename E::type>::value || sizeof(typename E::type) == 2;
        constexpr int W = real_type ? wide<E> : 1;
        bool wide_enough = wide_inner(&a, x);
        a.each = ceil_div(down ? a.reduced_n : a.reduced_n * (a.inner / (wide_enough ? W : 1)), parts);
        if (down && wide_enough)
            launch_down<E, W, OP>(t, a, parts);
        else if (down)
            launch_down<E, 1, OP>(t, a, parts);
        else if (wide_enough)
            launch_across<E, W, OP>(t, a, parts);
        else
            launch_across<E, 1, OP>(t, a, parts);
    });
    if (a.part) fold_partials<OP>(t, a.part, parts, a.results, {1, {a.y}, {a.dtype}}, a.divisor);
}

struct sharing {
    row_space kept, reduced;
    int64_t results, reduced_n;
    const void *g, *x, *y;
    void *dx;
    int g_dtype, y_dtype;
};

/* A warp a kept element: counts the ties, then writes its elements of dx. */
template <class E> __global__ void __launch_bounds__(BLOCK) share_gradient(const __grid_constant__ sharing a) {
    typedef typename E::type type;
    int64_t o = my_row<WARP>();
    if (o >= a.results) return;
    int64_t at = row_at(a.kept, o);
    const type *x = (const type *)a.x + at;
    type *dx = (type *)a.dx + at;
    float most = load_any(a.y, a.y_dtype, o);
    int ties = 0;
    for (int64_t r = threadIdx.x % WARP; r < a.reduced_n; r += WARP) ties += E::get(x[row_at(a.reduced, r)]) == most;
    float each = load_any(a.g, a.g_dtype, o) / (float)warp_sum(ties);
    for (int64_t r = threadIdx.x % WARP; r < a.reduced_n; r += WARP) {
        int64_t k = row_at(a.reduced, r);
        dx[k] = E::put(E::get(x[k]) == most ? each : 0);
    }
}

} // namespace

SC_KERNEL(sum) {
    reduce<adding>(task, k, false);
}
SC_KERNEL(mean) {
    reduce<adding>(task, k, true);
}
SC_KERNEL(max) {
    reduce<largest>(task, k, false);
}

SC_KERNEL(max_grad) {
    const sc_tensor *x = &k->x;
    sharing a = {};
    for (int d = 0; d < x->dims; d++) add_dimension(k->over >> d & 1 ? &a.reduced : &a.kept, x->shape[d], x->stride[d]);
    a.results = size_of_space(&a.kept);
    a.reduced_n = size_of_space(&a.reduced);
    a.g = k->g.p, a.x = x->p, a.y = k->y.p, a.dx = k->dx.p;
    a.g_dtype = k->g.dtype, a.y_dtype = k->y.dtype;
    with_float(task, x->dtype, [&](auto e) {
        SC_LAUNCH(task, share_gradient<decltype(e)>, blocks_for(a.results, BLOCK / WARP), BLOCK, a);
    });
}
