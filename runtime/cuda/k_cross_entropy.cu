/* cross_entropy of logits [N,V] against targets [N], and its gradient; logits are read as they lie, in their dtype.
 * Relies on: cross_entropy.cuh, k_cross_entropy_held.cu.
 * Relied on by: generated code.
 *
 * Of a row, with d = x[target] - most, the largest logit: rest = Σ_{c ≠ target} e^(x[c] - most), all = rest + e^d;
 * loss = Σ_{target ≠ ignore} (log all - d) / count, count from the record: the step's global number of targets /
 * (world × accumulation), or `total`.  dx = (e^(x - most) / all) · g / count, at the target -(rest / all) · g / count; 0
 * in ignored rows; dx may be the logits' own bytes. most + log all is never made for these: it would be rounded to the
 * ulp of `most`, and the loss and 1 - p are as small as the model is good. A target outside [0,V) makes the loss NaN.
 * Softcap, smoothing and z-loss: runtime/cpu/k_cross_entropy.c has the formulas.
 *
 * A block a row, in one pass (Milakov and Gimelshein 2018: a thread's sum is rescaled when its maximum grows). Rows'
 * losses go to the workspace (N floats), which a second launch adds up in double in a fixed order. The kernel of both
 * (.._grads) reads a row again for its gradient; k_cross_entropy_held.cu has another for long rows. With 16-bit logits
 * e^x is 2^(x log2 e) by the hardware's instruction (2 ulp), which memory bandwidth leaves time for; else sc_exp. */
#include "../schema/workspace.h"
#include "cross_entropy.cuh"

namespace {

enum { U = 4, LOSS_BLOCK = 1024, BOTH_BLOCK = 512 }; /* U: accesses in flight a thread */

/* Σ e^(x - most) over some elements without the target's, of which `most` knows; it is finite as soon as one element
 * is. A NaN makes the sum NaN. */
template <class E> struct partial {
    float most, sum;

    SC_DEVICE void raise(float m) {
        m = fmaxf(most, m);
        if (m > most) {
            sum *= powers<E>(or_zero(m)).of(most);
            most = m;
        }
    }
    SC_DEVICE void join(float other_most, float other_sum) {
        float m = fmaxf(most, other_most);
        powers<E> p(or_zero(m));
        sum = sum * p.of(most) + other_sum * p.of(other_most);
        most = m;
    }
};

/* A row of any alignment: `head` single elements, accesses of 16 bytes, single elements. */
template <class E> struct cut {
    int head, accesses, singles;
    SC_DEVICE cut(const typename E::type *x, int cols) {
        constexpr int W = wide<E>;
        head = (int)((16 - (uintptr_t)x % 16) % 16 / sizeof *x);
        head = head < cols ? head : cols;
        accesses = (cols - head) / W;
        singles = cols - accesses * W;
    }
    SC_DEVICE int single(int i) const { return i < head ? i : i + accesses * wide<E>; }
};

/* Adds an access's powers, but that of element `without`. */
template <class E, int W> SC_DEVICE void add_others(float *sum, const powers<E> &e, const raw<E, W> &v, int without) {
#pragma unroll
    for (int k = 0; k < W; k++) *sum += k == without ? 0 : e.of(v.get(k));
}

template <class E, int W>
SC_DEVICE void add_shaped(float *sum, float *all, const loss_task &a, const powers<E> &e, const raw<E, W> &v, int without) {
#pragma unroll
    for (int k = 0; k < W; k++) {
        float x = capped(a, v.get(k));
        *all += x;
        *sum += k == without ? 0 : e.of(x);
    }
}

/* SHAPED: `all` gets the sum of the thread's logits, as the loss sees them. */
template <class E, int T, bool SHAPED>
SC_DEVICE partial<E> over_row(const loss_task &a, const typename E::type *x, int target, float *all) {
    constexpr int W = wide<E>;
    int cols = a.cols;
    cut<E> c(x, cols);
    partial<E> p = {-HUGE_VALF, 0};
    int within = target - c.head, own = within >= 0 ? within / W : -1; /* its access */
    if ((int)threadIdx.x < c.singles) {
        int i = c.single(threadIdx.x);
        float v = E::get(x[i]);
        if (SHAPED) *all += v = capped(a, v);
        p.raise(v);
        p.sum += i == target ? 0 : powers<E>(or_zero(p.most)).of(v);
    }
    const typename E::type *body = x + c.head;
    for (int first = threadIdx.x; first < c.accesses; first += T * U) {
        raw<E, W> v[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < c.accesses) v[u].load(body + (int64_t)(first + u * T) * W);
        float most = -HUGE_VALF;
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < c.accesses)
#pragma unroll
                for (int k = 0; k < W; k++) most = fmaxf(most, v[u].get(k));
        p.raise(SHAPED ? capped(a, most) : most);
        powers<E> e(or_zero(p.most));
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < c.accesses) {
                int without = first + u * T == own ? within % W : -1;
                if (SHAPED)
                    add_shaped(&p.sum, all, a, e, v[u], without);
                else if (without >= 0)
                    add_others(&p.sum, e, v[u], without);
                else
                    add_others(&p.sum, e, v[u], -1);
            }
    }
    return p;
}

/* Every thread gets the block's sum. */
template <class E, int T = BLOCK> SC_DEVICE partial<E> over_block(partial<E> p) {
    __shared__ float most[T / WARP], sum[T / WARP];
#pragma unroll
    for (int k = WARP / 2; k; k /= 2) {
        float m = __shfl_xor_sync(SC_ALL, p.most, k), s = __shfl_xor_sync(SC_ALL, p.sum, k);
        p.join(m, s);
    }
    if (threadIdx.x % WARP == 0) {
        most[threadIdx.x / WARP] = p.most;
        sum[threadIdx.x / WARP] = p.sum;
    }
    __syncthreads();
    p.most = most[0];
    p.sum = sum[0];
    for (int k = 1; k < T / WARP; k++) p.join(most[k], sum[k]);
    return p;
}

/* Of a row, in every thread of the block. x: the target's logit, or NaN. */
struct row_sums {
    float most, rest, x, own, all;
};
template <class E, int T, bool SHAPED>
SC_DEVICE row_sums sums_of(const loss_task &a, const typename E::type *row, int64_t target) {
    bool inside = target >= 0 && target < a.cols;
    row_sums s = {};
    s.x = inside ? E::get(row[target]) : NAN;
    if (SHAPED) s.x = capped(a, s.x);
    partial<E> p = over_block<E, T>(over_row<E, T, SHAPED>(a, row, inside ? (int)target : -1, &s.all));
    if (SHAPED) s.all = (float)group_sum<T>((double)s.all);
    s.most = or_zero(p.most);
    s.rest = p.sum;
    s.own = inside ? powers<E>(s.most).of(s.x) : 0;
    return s;
}

template <class E, bool SHAPED> __global__ void __launch_bounds__(BLOCK) row_losses(loss_task a) {
    int64_t row = blockIdx.x, target = a.target[row];
    if (target == a.ignore) { /* the whole block */
        if (threadIdx.x == 0) a.most[row] = a.rest[row] = a.losses[row] = 0;
        return;
    }
    const typename E::type *x = (const typename E::type *)a.x + row_at(a.rows, row);
    row_sums s = sums_of<E, BLOCK, SHAPED>(a, x, target);
    if (threadIdx.x) return;
    a.most[row] = s.most;
    a.rest[row] = s.rest;
    a.losses[row] = row_loss(a, s.most, s.x, s.own, s.rest, s.all);
}

__global__ void __launch_bounds__(LOSS_BLOCK) sum_losses(loss_task a, int64_t n, float *loss) {
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += LOSS_BLOCK) sum += a.losses[i];
    sum = group_sum<LOSS_BLOCK>(sum);
    if (threadIdx.x == 0) *loss = (float)(sum / count_of(a));
}

template <class E, int T = BLOCK> SC_DEVICE void zero_row(typename E::type *dx, int cols) {
    constexpr int W = wide<E>;
    cut<E> c(dx, cols);
    raw<E, W> zero;
    zero.clear();
    if ((int)threadIdx.x < c.singles) dx[c.single(threadIdx.x)] = E::put(0);
    for (int i = threadIdx.x; i < c.accesses; i += T) zero.store(dx + c.head + (int64_t)i * W);
}

/* Rows of the logits and of their gradient that begin at the same place in 16 bytes (the same bytes, as a rule). */
template <class E, int T, class S>
SC_DEVICE void grad_row(typename E::type *dx, const typename E::type *x, int cols, int target, const S &s) {
    constexpr int W = wide<E>;
    cut<E> c(x, cols);
    if ((int)threadIdx.x < c.singles) {
        int i = c.single(threadIdx.x);
        dx[i] = E::put(i == target ? s.at_target : s.of(E::get(x[i])));
    }
    for (int first = threadIdx.x; first < c.accesses; first += T * U) {
        raw<E, W> v[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < c.accesses) v[u].load(x + c.head + (int64_t)(first + u * T) * W);
#pragma unroll
        for (int u = 0; u < U; u++) {
            int i = c.head + (first + u * T) * W;
            if (first + u * T >= c.accesses) continue;
            float out[W];
#pragma unroll
            for (int k = 0; k < W; k++) out[k] = s.of(v[u].get(k));
            if (target >= i && target < i + W) {
#pragma unroll
                for (int k = 0; k < W; k++) out[k] = i + k == target ? s.at_target : out[k];
            }
            v[u].put(out);
            v[u].store(dx + i);
        }
    }
}

/* Of any two rows. In place or not: a thread writes the elements that it has read. */
template <class E, int T, class S>
SC_DEVICE void put_row(typename E::type *dx, const typename E::type *x, int cols, int target, const S &s) {
    if ((uintptr_t)x % 16 == (uintptr_t)dx % 16)
        grad_row<E, T>(dx, x, cols, target, s);
    else
        for (int c = threadIdx.x; c < cols; c += T) dx[c] = E::put(c == target ? s.at_target : s.of(E::get(x[c])));
}

template <class E, bool SHAPED> __global__ void __launch_bounds__(BLOCK) cross_entropy_grad(loss_task a) {
    typedef typename E::type type;
    int64_t row = blockIdx.x, target = a.target[row];
    type *dx = (type *)a.dx + row_at(a.to, row);
    if (target == a.ignore) {
        zero_row<E>(dx, a.cols);
        return;
    }
    const type *x = (const type *)a.x + row_at(a.rows, row);
    bool inside = target >= 0 && target < a.cols;
    float most = a.most[row], at_target = inside ? E::get(x[target]) : 0;
    if (SHAPED) at_target = capped(a, at_target);
    float own = inside ? powers<E>(most).of(at_target) : 0;
    __syncthreads(); /* all have it before it is written over */
    slopes<E, SHAPED> s(a, most, own, a.rest[row], scale_of(a, row), at_target);
    put_row<E, BLOCK>(dx, x, a.cols, (int)target, s);
}

/* Both. The target's logit may be another thread's, who writes over it: all have it before. */
template <class E, bool SHAPED> __global__ void __launch_bounds__(BOTH_BLOCK, 2) losses_and_grads(loss_task a) {
    enum { T = BOTH_BLOCK };
    typedef typename E::type type;
    int64_t row = blockIdx.x, target = a.target[row];
    type *dx = (type *)a.dx + row_at(a.to, row);
    if (target == a.ignore) {
        if (threadIdx.x == 0) a.losses[row] = 0;
        zero_row<E, T>(dx, a.cols);
        return;
    }
    const type *x = (const type *)a.x + row_at(a.rows, row);
    row_sums s = sums_of<E, T, SHAPED>(a, x, target);
    if (threadIdx.x == 0) a.losses[row] = row_loss(a, s.most, s.x, s.own, s.rest, s.all);
    slopes<E, SHAPED> slope(a, s.most, s.own, s.rest, scale_of(a, row), s.x);
    put_row<E, T>(dx, x, a.cols, (int)target, slope);
}

/* What the three ops share; k: the args of any of them. */
template <class K> loss_task loss_task_of(const sc_task *task, const K *k) {
    loss_task a = {};
    a.rows = row_space_of(&k->logits);
    a.x = k->logits.p;
    a.target = (const int32_t *)k->targets.p;
    a.total = k->total.p;
    a.total_dtype = k->total.dtype;
    a.record = task->record;
    a.cols = (int)cols_of(&k->logits);
    a.slot = (int)k->count;
    a.ignore = k->ignore;
    a.smoothing = (float)k->smoothing;
    a.z = (float)k->z_loss;
    a.cap = (float)k->softcap;
    return a;
}
template <class K> void set_gradient(loss_task *a, const K *k) {
    a->to = row_space_of(&k->dlogits);
    a->dx = k->dlogits.p;
    a->g = k->g.p;
    a->g_dtype = k->g.dtype;
}

/* f(E{}, constant<SHAPED>{}) */
template <class F> void with_loss(const sc_task *task, int dtype, const loss_task &a, F f) {
    with_float(task, dtype, [&](auto e) { with_flag(a.smoothing > 0 || a.cap > 0, [&](auto shaped) { f(e, shaped); }); });
}

} // namespace

SC_KERNEL(cross_entropy_grads) {
    const sc_tensor *x = &k->logits;
    int64_t rows = rows_of(x);
    loss_task a = loss_task_of(task, k);
    set_gradient(&a, k);
    a.losses = (float *)k->losses.p;
    if (!sc_cuda_loss_held(task, k, a))
        with_loss(task, x->dtype, a, [&](auto e, auto shaped) {
            SC_LAUNCH(task, (losses_and_grads<decltype(e), shaped.value>), (unsigned)rows, BOTH_BLOCK, a);
        });
    SC_LAUNCH(task, sum_losses, 1, LOSS_BLOCK, a, rows, (float *)k->loss.p);
}

SC_KERNEL(cross_entropy) {
    int64_t rows = rows_of(&k->logits);
    if (!k->rows && (!k->work.p || k->work.shape[0] < sc_cuda_row_sums_bytes(rows)))
        sc_unsupported(task, "cross_entropy", "its workspace must hold a float a row");
    loss_task a = loss_task_of(task, k);
    a.most = (float *)k->most.p;
    a.rest = (float *)k->rest.p;
    a.losses = (float *)(k->rows ? k->loss.p : k->work.p);
    with_loss(task, k->logits.dtype, a, [&](auto e, auto shaped) {
        SC_LAUNCH(task, (row_losses<decltype(e), shaped.value>), (unsigned)rows, BLOCK, a);
    });
    if (!k->rows) SC_LAUNCH(task, sum_losses, 1, LOSS_BLOCK, a, rows, (float *)k->loss.p);
}

SC_KERNEL(cross_entropy_grad) {
    const sc_tensor *x = &k->logits;
    loss_task a = loss_task_of(task, k);
    set_gradient(&a, k);
    a.most = (float *)k->most.p;
    a.rest = (float *)k->rest.p;
    a.each = k->rows != 0;
    with_loss(task, x->dtype, a, [&](auto e, auto shaped) {
        SC_LAUNCH(task, (cross_entropy_grad<decltype(e), shaped.value>), (unsigned)rows_of(x), BLOCK, a);
    });
}
