/* batch_norm of x [N,C,...] over all but the channels, and its gradient.
 * Relies on: kernel.cuh.
 * Relied on by: generated code. Contiguous operands.
 *
 * Training: mean and variance of the channel's n values, rstd = 1/√(var + eps), y = (x-mean)·rstd·w + b, and unless
 * keep_running: running = (1-momentum)·running + momentum·{mean, var·n/(n-1)}. Otherwise the running statistics take
 * their place. Gradient, x̂ = (x-mean)·rstd: db = Σg, dw = Σg·x̂, dx = w·rstd·(g - db/n - x̂·dw/n); not training: dx =
 * w·rstd·g.
 *
 * A block has a channel, or, where channels are neighbours in memory ([N,C]), 32 of them: 8 threads each. */
#include "kernel.cuh"

namespace {

struct batch {
    const void *x, *g, *w, *b;
    void *y, *means, *variances; /* y or dx; running statistics */
    void *dw, *db;
    float *mean, *rstd;
    int channels, samples, inner; /* [samples, channels, inner] */
    int running_dtype, variance_dtype;
    bool training, update;
    float eps;
    double momentum;
};

template <bool NEIGHBOURS> SC_DEVICE int my_channel() {
    return NEIGHBOURS ? blockIdx.x * WARP + threadIdx.x % WARP : blockIdx.x;
}
template <bool NEIGHBOURS> SC_DEVICE bool first_of_channel() {
    return NEIGHBOURS ? threadIdx.x < WARP : threadIdx.x == 0;
}
/* f(where) for this thread's elements of channel c. */
template <bool NEIGHBOURS, class F> SC_DEVICE void each_element(const batch &a, int c, F f) {
    if (NEIGHBOURS) {
        if (c < a.channels)
            for (int n = threadIdx.x / WARP; n < a.samples; n += BLOCK / WARP) f((int64_t)n * a.channels + c);
    } else {
        for (int j = threadIdx.x; j < a.samples * a.inner; j += BLOCK) {
            int n = j / a.inner, i = j - n * a.inner;
            f(((int64_t)n * a.channels + c) * a.inner + i);
        }
    }
}
/* The sum over the channel's threads, for each of them. */
template <bool NEIGHBOURS> SC_DEVICE float channel_sum(float x) {
    if (!NEIGHBOURS) return group_sum<BLOCK>(x);
    __shared__ float part[BLOCK / WARP][WARP];
    __syncthreads();
    part[threadIdx.x / WARP][threadIdx.x % WARP] = x;
    __syncthreads();
    x = part[0][threadIdx.x % WARP];
#pragma unroll
    for (int k = 1; k < BLOCK / WARP; k++) x += part[k][threadIdx.x % WARP];
    return x;
}

template <class E, bool NEIGHBOURS> __global__ void __launch_bounds__(BLOCK) normalise_channels(batch a) {
    typedef typename E::type type;
    const type *x = (const type *)a.x;
    type *y = (type *)a.y;
    int c = my_channel<NEIGHBOURS>(), in = c < a.channels;
    float n = (float)a.samples * (float)a.inner, mean = 0, variance = 0;
    if (a.training) {
        float sum = 0;
        each_element<NEIGHBOURS>(a, c, [&](int64_t at) { sum += E::get(x[at]); });
        mean = channel_sum<NEIGHBOURS>(sum) / n;
        sum = 0;
        each_element<NEIGHBOURS>(a, c, [&](int64_t at) {
            float d = E::get(x[at]) - mean;
            sum = sc_fma(d, d, sum);
        });
        variance = channel_sum<NEIGHBOURS>(sum) / n;
    } else if (in) {
        mean = load_any(a.means, a.running_dtype, c);
        variance = load_any(a.variances, a.variance_dtype, c);
    }
    if (!in) return;
    float rstd = 1 / sc_sqrt(variance + a.eps);
    if (first_of_channel<NEIGHBOURS>()) {
        a.mean[c] = mean;
        a.rstd[c] = rstd;
        if (a.update) {
            double keep = 1 - a.momentum, unbiased = (double)variance * n / ((double)n - 1);
            double m = keep * load_any(a.means, a.running_dtype, c) + a.momentum * mean;
            double v = keep * load_any(a.variances, a.variance_dtype, c) + a.momentum * unbiased;
            store_any(a.means, a.running_dtype, c, (float)m);
            store_any(a.variances, a.variance_dtype, c, (float)v);
        }
    }
    float scale = E::get(((const type *)a.w)[c]), bias = E::get(((const type *)a.b)[c]);
    each_element<NEIGHBOURS>(a, c, [&](int64_t at) { y[at] = E::put((E::get(x[at]) - mean) * rstd * scale + bias); });
}

template <class E, bool NEIGHBOURS> __global__ void __launch_bounds__(BLOCK) channel_gradients(batch a) {
    typedef typename E::type type;
    const type *x = (const type *)a.x, *g = (const type *)a.g;
    type *dx = (type *)a.y;
    int c = my_channel<NEIGHBOURS>(), in = c < a.channels;
    float n = (float)a.samples * (float)a.inner, mean = in ? a.mean[c] : 0, rstd = in ? a.rstd[c] : 0, dw = 0, db = 0;
    each_element<NEIGHBOURS>(a, c, [&](int64_t at) {
        float dy = E::get(g[at]);
        db += dy;
        dw = sc_fma(dy, (E::get(x[at]) - mean) * rstd, dw);
    });
    db = channel_sum<NEIGHBOURS>(db);
    dw = channel_sum<NEIGHBOURS>(dw);
    if (!in) return;
    if (first_of_channel<NEIGHBOURS>()) {
        ((type *)a.dw)[c] = E::put(dw);
        ((type *)a.db)[c] = E::put(db);
    }
    float scale = E::get(((const type *)a.w)[c]) * rstd, shift = a.training ? db / n : 0;
    float slope = a.training ? dw / n : 0;
    each_element<NEIGHBOURS>(a, c, [&](int64_t at) {
        dx[at] = E::put((E::get(g[at]) - shift - (E::get(x[at]) - mean) * rstd * slope) * scale);
    });
}

/* Shape of x, [N,C,...]; the grid for it. */
unsigned divide(batch *a, const sc_task *t, const sc_tensor *x) {
    int64_t inner = 1;
    for (int d = 2; d < x->dims; d++) inner *= x->shape[d];
    if (x->shape[0] * inner >= (int64_t)1 << 31) sc_unsupported(t, "batch_norm", "a channel has 2^31 values or more");
    a->samples = (int)x->shape[0];
    a->channels = (int)x->shape[1];
    a->inner = (int)inner;
    return inner == 1 ? blocks_for(a->channels, WARP) : (unsigned)a->channels;
}

} // namespace

SC_KERNEL(batch_norm) {
    batch a = {};
    unsigned grid = divide(&a, task, &k->x);
    a.x = k->x.p, a.w = k->w.p, a.b = k->b.p, a.y = k->y.p;
    a.means = k->running_mean.p, a.variances = k->running_var.p;
    a.running_dtype = k->running_mean.dtype, a.variance_dtype = k->running_var.dtype;
    a.mean = (float *)k->mean.p, a.rstd = (float *)k->rstd.p;
    a.training = k->training != 0, a.update = k->training && !k->keep_running;
    a.eps = (float)k->eps, a.momentum = k->momentum;
    with_float(task, k->x.dtype, [&](auto e) {
        with_flag(a.inner == 1, [&](auto neighbours) {
            SC_LAUNCH(task, (normalise_channels<decltype(e), neighbours.value>), grid, BLOCK, a);
        });
    });
}

SC_KERNEL(batch_norm_grad) {
    batch a = {};
    unsigned grid = divide(&a, task, &k->x);
    a.x = k->x.p, a.g = k->g.p, a.w = k->w.p, a.y = k->dx.p;
    a.dw = k->dw.p, a.db = k->db.p;
    a.mean = (float *)k->mean.p, a.rstd = (float *)k->rstd.p;
    a.training = k->training != 0;
    with_float(task, k->x.dtype, [&](auto e) {
        with_flag(a.inner == 1, [&](auto neighbours) {
            SC_LAUNCH(task, (channel_gradients<decltype(e), neighbours.value>), grid, BLOCK, a);
        });
    });
}
