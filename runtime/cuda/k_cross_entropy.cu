/* cross_entropy of logits [N,V] against targets [N], and its gradient; logits are read as they lie, in their dtype.
 * Relies on: cross_entropy.cuh, k_cross_entropy_held.cu.
 * Relied on by: generated code.
 *
 * lse = log Σ e^x, loss = Σ_{target ≠ ignore} (lse - x[target]) / count, count from the record: the step's global
 * number of targets / (world × accumulation).  dx = (e^(x - lse) - [target]) · g / count, 0 in ignored rows; dx may be
 * the logits' own bytes. A target outside [0,V) makes the loss NaN.
 *
 * A block a row, in one pass (Milakov and Gimelshein 2018: a thread's sum is rescaled when its maximum grows). Rows'
 * losses go to the workspace (N floats), which a second launch adds up in double in a fixed order. The kernel of both
 * (.._grads) reads a row again for its gradient; k_cross_entropy_held.cu has another for long rows. With 16-bit logits
 * e^x is 2^(x log2 e) by the hardware's instruction (2 ulp), which memory bandwidth leaves time for; else sc_exp. */
#include "../schema/workspace.h"
#include "cross_entropy.cuh"

namespace {

enum { U = 4, LOSS_BLOCK = 1024, BOTH_BLOCK = 512 }; /* U: accesses in flight a thread */

/* Σ e^(x - most) over some elements; most is finite as soon as one element is. A NaN makes the sum NaN. */
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

template <class E, int T = BLOCK> SC_DEVICE partial<E> over_row(const typename E::type *x, int cols) {
    constexpr int W = wide<E>;
    cut<E> c(x, cols);
    partial<E> p = {-HUGE_VALF, 0};
    if ((int)threadIdx.x < c.singles) {
        float v = E::get(x[c.single(threadIdx.x)]);
        p.raise(v);
        p.sum += powers<E>(or_zero(p.most)).of(v);
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
        p.raise(most);
        powers<E> e(or_zero(p.most));
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < c.accesses)
#pragma unroll
                for (int k = 0; k < W; k++) p.sum += e.of(v[u].get(k));
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

template <class E> __global__ void __launch_bounds__(BLOCK) row_losses(loss_task a) {
    int64_t row = blockIdx.x, target = a.target[row];
    if (target == a.ignore) { /* the whole block */
        if (threadIdx.x == 0) a.lse[row] = a.losses[row] = 0;
        return;
    }
    const typename E::type *x = (const typename E::type *)a.x + row_at(a.rows, row);
    partial<E> p = over_block(over_row<E>(x, a.cols));
    if (threadIdx.x) return;
    float lse = or_zero(p.most) + sc_log(p.sum);
    a.lse[row] = lse;
    a.losses[row] = target >= 0 && target < a.cols ? lse - E::get(x[target]) : NAN;
}

__global__ void __launch_bounds__(LOSS_BLOCK)
    sum_losses(const float *losses, int64_t n, float *loss, const sc_record *record, int slot) {
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += LOSS_BLOCK) sum += losses[i];
    sum = group_sum<LOSS_BLOCK>(sum);
    if (threadIdx.x == 0) *loss = (float)(sum / (double)record->count[slot]);
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
template <class E, int T = BLOCK>
SC_DEVICE void grad_row(typename E::type *dx, const typename E::type *x, int cols, int target, float lse, float scale) {
    constexpr int W = wide<E>;
    cut<E> c(x, cols);
    powers<E> e(lse);
    if ((int)threadIdx.x < c.singles) {
        int i = c.single(threadIdx.x);
        dx[i] = E::put(slope<E>(e.of(E::get(x[i])), i, target, scale));
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
            for (int k = 0; k < W; k++) out[k] = e.of(v[u].get(k)) * scale;
            if (target >= i && target < i + W) {
#pragma unroll
                for (int k = 0; k < W; k++) out[k] = slope<E>(e.of(v[u].get(k)), i + k, target, scale);
            }
            v[u].put(out);
            v[u].store(dx + i);
        }
    }
}

template <class E>
__global__ void __launch_bounds__(BLOCK)
    cross_entropy_grad(loss_task a, const void *g, int g_dtype, const sc_record *record) {
    typedef typename E::type type;
    int64_t row = blockIdx.x, target = a.target[row];
    type *dx = (type *)a.dx + row_at(a.to, row);
    if (target == a.ignore) {
        zero_row<E>(dx, a.cols);
        return;
    }
    const type *x = (const type *)a.x + row_at(a.rows, row);
    float scale = (float)((double)load_any(g, g_dtype, 0) / (double)record->count[a.slot]), lse = a.lse[row];
    if ((uintptr_t)x % 16 == (uintptr_t)dx % 16) {
        grad_row<E>(dx, x, a.cols, (int)target, lse, scale);
    } else {
        powers<E> e(lse);
        for (int c = threadIdx.x; c < a.cols; c += BLOCK)
            dx[c] = E::put(slope<E>(e.of(E::get(x[c])), c, (int)target, scale));
    }
}

/* Both, in place or not. A thread writes the elements that it has read, but the target's may be another's. */
template <class E>
__global__ void __launch_bounds__(BOTH_BLOCK, 2)
    losses_and_grads(loss_task a, const void *g, int g_dtype, const sc_record *record) {
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
    float at_target = target >= 0 && target < a.cols ? E::get(x[target]) : NAN;
    partial<E> p = over_block<E, T>(over_row<E, T>(x, a.cols)); /* everybody has at_target after it */
    float lse = or_zero(p.most) + sc_log(p.sum);
    float scale = (float)((double)load_any(g, g_dtype, 0) / (double)record->count[a.slot]);
    if (threadIdx.x == 0) a.losses[row] = lse - at_target;
    if ((uintptr_t)x % 16 == (uintptr_t)dx % 16) {
        grad_row<E, T>(dx, x, a.cols, (int)target, lse, scale);
    } else {
        powers<E> e(lse);
        for (int c = threadIdx.x; c < a.cols; c += T)
            dx[c] = E::put(slope<E>(e.of(E::get(x[c])), c, (int)target, scale));
    }
}

/* What the three ops share; k: the args of any of them. */
template <class K> loss_task loss_task_of(const K *k) {
    loss_task a = {};
    a.rows = row_space_of(&k->logits);
    a.x = k->logits.p;
    a.target = (const int32_t *)k->targets.p;
    a.cols = (int)cols_of(&k->logits);
    a.slot = (int)k->count;
    a.ignore = k->ignore;
    return a;
}

} // namespace

SC_KERNEL(cross_entropy_grads) {
    const sc_tensor *x = &k->logits, *g = &k->g;
    int64_t rows = rows_of(x);
    loss_task a = loss_task_of(k);
    a.to = row_space_of(&k->dlogits);
    a.dx = k->dlogits.p;
    a.losses = (float *)k->losses.p;
    if (!sc_cuda_loss_held(task, k, a))
        with_float(task, x->dtype, [&](auto e) {
            SC_LAUNCH(task, losses_and_grads<decltype(e)>, (unsigned)rows, BOTH_BLOCK, a, g->p, g->dtype, task->record);
        });
    SC_LAUNCH(task, sum_losses, 1, LOSS_BLOCK, a.losses, rows, (float *)k->loss.p, task->record, a.slot);
}

SC_KERNEL(cross_entropy) {
    int64_t rows = rows_of(&k->logits);
    if (!k->work.p || k->work.shape[0] < sc_cuda_row_sums_bytes(rows))
        sc_unsupported(task, "cross_entropy", "its workspace must hold a float a row");
    loss_task a = loss_task_of(k);
    a.lse = (float *)k->lse.p;
    a.losses = (float *)k->work.p;
    with_float(task, k->logits.dtype,
               [&](auto e) { SC_LAUNCH(task, row_losses<decltype(e)>, (unsigned)rows, BLOCK, a); });
    SC_LAUNCH(task, sum_losses, 1, LOSS_BLOCK, a.losses, rows, (float *)k->loss.p, task->record, a.slot);
}

SC_KERNEL(cross_entropy_grad) {
    const sc_tensor *x = &k->logits, *g = &k->g;
    loss_task a = loss_task_of(k);
    a.to = row_space_of(&k->dlogits);
    a.dx = k->dlogits.p;
    a.lse = (float *)k->lse.p;
    with_float(task, x->dtype, [&](auto e) {
        SC_LAUNCH(task, cross_entropy_grad<decltype(e)>, (unsigned)rows_of(x), BLOCK, a, g->p, g->dtype, task->record);
    });
}
