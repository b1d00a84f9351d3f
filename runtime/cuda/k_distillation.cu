/* distillation: how far softmax of logits [N,V] is from a teacher's, mixed with cross entropy, and its gradient.
 * Relies on: cross_entropy.cuh.
 * Relied on by: generated code.
 *
 * runtime/cpu/k_distillation.c has the formulas. A block a row, in one pass over the two rows of logits: a thread's
 * sums are rescaled when one of its maxima grows, and what lies between both with them (Milakov and Gimelshein 2018). A
 * second launch adds the rows' losses up in double in a fixed order. The gradient reads both rows again; it may lie
 * where either of them is, as a thread writes the elements that it has read. */
#include "cross_entropy.cuh"

namespace {

enum { T = 512, U = 2, LOSS_BLOCK = 1024 }; /* U: accesses in flight a thread, of each of the two */

struct pair_task {
    row_space rows, teacher_rows, to;
    const void *x, *t, *g, *total;
    const int32_t *target; /* NULL: all rows count */
    const sc_record *record;
    float *stats, *loss; /* loss: where each row's is a result */
    void *dx;
    int64_t ignore;
    int g_dtype, total_dtype, cols, slot;
    float heat, cold, hard, cap, teacher_cap;
    bool reverse, each;
};

SC_DEVICE double count_of(const pair_task &a) {
    return a.total ? (double)load_any(a.total, a.total_dtype, 0) : (double)a.record->count[a.slot];
}

SC_DEVICE float bounded(float x, float cap) {
    return cap > 0 ? cap * sc_tanh(x / cap) : x;
}

/* e^d: of 16-bit logits by the hardware's instruction. */
template <class E> SC_DEVICE float power(float d) {
    return power_of_two(d * LOG2E);
}
template <> SC_DEVICE float power<fp32>(float d) {
    return sc_exp(d);
}

/* Sums over some classes, beside the maxima of these, which are -inf where there are none yet. */
template <class E> struct pair_sums {
    float most, sum, teacher_most, teacher_sum, apart, rest;

    SC_DEVICE static pair_sums none() { return {-HUGE_VALF, 0, -HUGE_VALF, 0, 0, 0}; }

    /* The same beside larger maxima. */
    SC_DEVICE void move(const pair_task &a, float m, float tm) {
        if (m == most && tm == teacher_most) return;
        float d = or_zero(m) - or_zero(most), td = or_zero(tm) - or_zero(teacher_most);
        float f = most == -HUGE_VALF ? 0 : power<E>(-d * a.cold),
              tf = teacher_most == -HUGE_VALF ? 0 : power<E>(-td * a.cold);
        float from = a.reverse ? td : d, to = a.reverse ? d : td;
        apart = (a.reverse ? f : tf) * (apart + (a.reverse ? sum : teacher_sum) * (from - to));
        rest *= most == -HUGE_VALF ? 0 : power<E>(-d);
        sum *= f;
        teacher_sum *= tf;
        most = m;
        teacher_most = tm;
    }
    SC_DEVICE void join(const pair_task &a, pair_sums o) {
        float m = fmaxf(most, o.most), tm = fmaxf(teacher_most, o.teacher_most);
        move(a, m, tm);
        o.move(a, m, tm);
        sum += o.sum;
        teacher_sum += o.teacher_sum;
        apart += o.apart;
        rest += o.rest;
    }
    /* A class, whose logits are no larger than the maxima. */
    SC_DEVICE void add(const pair_task &a, float x, float t, bool target) {
        x -= or_zero(most);
        t -= or_zero(teacher_most);
        float p = power<E>(x * a.cold), q = power<E>(t * a.cold), share = a.reverse ? p : q;
        sum += p;
        teacher_sum += q;
        apart += share == 0 ? 0 : share * (a.reverse ? x - t : t - x);
        if (a.hard > 0 && !target) rest += a.cold == 1 ? p : power<E>(x);
    }
};

template <class E, int W>
SC_DEVICE pair_sums<E> over_row(const pair_task &a, const typename E::type *x, const typename E::type *t, int target) {
    pair_sums<E> p = pair_sums<E>::none();
    int accesses = a.cols / W;
    for (int first = threadIdx.x; first < accesses; first += T * U) {
        raw<E, W> v[U], w[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < accesses) {
                v[u].load(x + (int64_t)(first + u * T) * W);
                w[u].load(t + (int64_t)(first + u * T) * W);
            }
        float most = p.most, teacher_most = p.teacher_most;
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < accesses)
#pragma unroll
                for (int k = 0; k < W; k++) {
                    most = fmaxf(most, bounded(v[u].get(k), a.cap));
                    teacher_most = fmaxf(teacher_most, bounded(w[u].get(k), a.teacher_cap));
                }
        p.move(a, most, teacher_most);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < accesses)
#pragma unroll
                for (int k = 0; k < W; k++)
                    p.add(a, bounded(v[u].get(k), a.cap), bounded(w[u].get(k), a.teacher_cap),
                          (first + u * T) * W + k == target);
    }
    return p;
}

/* Thread 0 gets the block's sums. */
template <class E> SC_DEVICE pair_sums<E> over_block(const pair_task &a, pair_sums<E> p) {
    __shared__ pair_sums<E> part[T / WARP];
#pragma unroll
    for (int k = WARP / 2; k; k /= 2) {
        pair_sums<E> o;
        o.most = __shfl_xor_sync(SC_ALL, p.most, k);
        o.sum = __shfl_xor_sync(SC_ALL, p.sum, k);
        o.teacher_most = __shfl_xor_sync(SC_ALL, p.teacher_most, k);
        o.teacher_sum = __shfl_xor_sync(SC_ALL, p.teacher_sum, k);
        o.apart = __shfl_xor_sync(SC_ALL, p.apart, k);
        o.rest = __shfl_xor_sync(SC_ALL, p.rest, k);
        p.join(a, o);
    }
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = p;
    __syncthreads();
    if (threadIdx.x) return p;
    for (int k = 1; k < T / WARP; k++) p.join(a, part[k]);
    return p;
}

SC_DEVICE int target_of(const pair_task &a, int64_t row) {
    int64_t c = a.hard > 0 ? a.target[row] : -1;
    return c >= 0 && c < a.cols ? (int)c : -1;
}

template <class E, int W> __global__ void __launch_bounds__(T) row_losses(pair_task a) {
    typedef typename E::type type;
    int64_t row = blockIdx.x;
    float *s = a.stats + row * SC_DISTILLED;
    if (a.target && a.target[row] == a.ignore) { /* the whole block */
        if (threadIdx.x < SC_DISTILLED) s[threadIdx.x] = 0;
        if (threadIdx.x == 0 && a.each) a.loss[row] = 0;
        return;
    }
    const type *x = (const type *)a.x + row_at(a.rows, row), *t = (const type *)a.t + row_at(a.teacher_rows, row);
    int target = target_of(a, row);
    pair_sums<E> p = over_block<E>(a, over_row<E, W>(a, x, t, target));
    if (threadIdx.x) return;
    float most = or_zero(p.most), turn = a.reverse ? -1 : 1;
    float apart = p.apart * a.cold / (a.reverse ? p.sum : p.teacher_sum) + turn * (logf(p.sum) - logf(p.teacher_sum));
    float loss = a.heat * a.heat * apart * (1 - a.hard);
    if (a.hard > 0) {
        float d = target < 0 ? NAN : bounded(E::get(x[target]), a.cap) - most;
        loss += a.hard * ((d == 0 ? log1pf(p.rest) : logf(p.rest + power<E>(d))) - d);
    }
    s[SC_DISTILLED_MOST] = most;
    s[SC_DISTILLED_SUM] = p.sum;
    s[SC_DISTILLED_TEACHER_MOST] = or_zero(p.teacher_most);
    s[SC_DISTILLED_TEACHER_SUM] = p.teacher_sum;
    s[SC_DISTILLED_APART] = apart;
    s[SC_DISTILLED_REST] = p.rest;
    s[SC_DISTILLED_LOSS] = loss;
    if (a.each) a.loss[row] = loss;
}

__global__ void __launch_bounds__(LOSS_BLOCK) sum_losses(pair_task a, int64_t n) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += LOSS_BLOCK) sum += a.stats[i * SC_DISTILLED + SC_DISTILLED_LOSS];
    sum = group_sum<LOSS_BLOCK>(sum);
    if (threadIdx.x == 0) *a.loss = (float)(sum / count_of(a));
}

/* What a row's elements of the gradient are made of. */
template <class E> struct pair_slopes {
    float most, teacher_most, each, teacher_each, hard_each, at_target, shift;

    SC_DEVICE pair_slopes(const pair_task &a, const float *s, float g, float target_logit)
        : most(s[SC_DISTILLED_MOST]), teacher_most(s[SC_DISTILLED_TEACHER_MOST]) {
        float soft = a.heat * (1 - a.hard) * g;
        each = soft / s[SC_DISTILLED_SUM];
        teacher_each = soft / s[SC_DISTILLED_TEACHER_SUM];
        hard_each = a.hard > 0 ? a.hard * g / (s[SC_DISTILLED_REST] + power<E>(target_logit - most)) : 0;
        at_target = -s[SC_DISTILLED_REST] * hard_each;
        shift = logf(s[SC_DISTILLED_SUM]) - logf(s[SC_DISTILLED_TEACHER_SUM]) + s[SC_DISTILLED_APART];
    }
    SC_DEVICE float of(const pair_task &a, float v, float w, bool target) const {
        float capped = bounded(v, a.cap), x = capped - most, t = bounded(w, a.teacher_cap) - teacher_most;
        float p = power<E>(x * a.cold), y;
        if (a.reverse)
            y = p == 0 ? 0 : p * each * ((x - t) * a.cold - shift);
        else
            y = p * each - power<E>(t * a.cold) * teacher_each;
        if (a.hard > 0) y += target ? at_target : (a.cold == 1 ? p : power<E>(x)) * hard_each;
        return a.cap > 0 ? y * (1 - capped / a.cap * (capped / a.cap)) : y;
    }
};

template <class E, int W> __global__ void __launch_bounds__(T) row_grads(pair_task a) {
    typedef typename E::type type;
    int64_t row = blockIdx.x;
    int accesses = a.cols / W;
    type *dx = (type *)a.dx + row_at(a.to, row);
    if (a.target && a.target[row] == a.ignore) {
        raw<E, W> zero;
        zero.clear();
        for (int i = threadIdx.x; i < accesses; i += T) zero.store(dx + (int64_t)i * W);
        return;
    }
    const type *x = (const type *)a.x + row_at(a.rows, row), *t = (const type *)a.t + row_at(a.teacher_rows, row);
    int target = target_of(a, row);
    float g = a.each ? load_any(a.g, a.g_dtype, row) : (float)((double)load_any(a.g, a.g_dtype, 0) / count_of(a));
    float own = target < 0 ? -HUGE_VALF : bounded(E::get(x[target]), a.cap);
    __syncthreads(); /* all have it before it is written over */
    pair_slopes<E> s(a, a.stats + row * SC_DISTILLED, g, own);
    for (int first = threadIdx.x; first < accesses; first += T * U) {
        raw<E, W> v[U], w[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (first + u * T < accesses) {
                v[u].load(x + (int64_t)(first + u * T) * W);
                w[u].load(t + (int64_t)(first + u * T) * W);
            }
#pragma unroll
        for (int u = 0; u < U; u++) {
            int i = (first + u * T) * W;
            if (first + u * T >= accesses) continue;
            float out[W];
#pragma unroll
            for (int k = 0; k < W; k++) out[k] = s.of(a, v[u].get(k), w[u].get(k), i + k == target);
            v[u].put(out);
            v[u].store(dx + i);
        }
    }
}

/* What both ops share; k: the args of either. */
template <class K> pair_task pair_task_of(const sc_task *task, const K *k) {
    pair_task a = {};
    a.rows = row_space_of(&k->logits);
    a.teacher_rows = row_space_of(&k->teacher);
    a.x = k->logits.p;
    a.t = k->teacher.p;
    a.target = (const int32_t *)k->targets.p;
    a.total = k->total.p;
    a.total_dtype = k->total.dtype;
    a.record = task->record;
    a.stats = (float *)k->stats.p;
    a.cols = (int)cols_of(&k->logits);
    a.slot = (int)k->count;
    a.ignore = k->ignore;
    a.heat = (float)k->heat;
    a.cold = (float)(1 / k->heat);
    a.hard = (float)k->hard;
    a.cap = (float)k->softcap;
    a.teacher_cap = (float)k->teacher_softcap;
    a.reverse = k->reverse != 0;
    a.each = k->rows != 0;
    return a;
}

} // namespace

SC_KERNEL(distillation) {
    int64_t rows = rows_of(&k->logits);
    pair_task a = pair_task_of(task, k);
    a.loss = (float *)k->loss.p;
    with_runs(task, k->logits.dtype, wide_rows(&k->logits) && wide_rows(&k->teacher),
              [&](auto e, auto w) { SC_LAUNCH(task, (row_losses<decltype(e), w.value>), (unsigned)rows, T, a); });
    if (!k->rows) SC_LAUNCH(task, sum_losses, 1, LOSS_BLOCK, a, rows);
}

SC_KERNEL(distillation_grad) {
    pair_task a = pair_task_of(task, k);
    a.to = row_space_of(&k->dlogits);
    a.dx = k->dlogits.p;
    a.g = k->g.p;
    a.g_dtype = k->g.dtype;
    bool wide_enough = wide_rows(&k->logits) && wide_rows(&k->teacher) && wide_rows(&k->dlogits);
    with_runs(task, k->logits.dtype, wide_enough, [&](auto e, auto w) {
        SC_LAUNCH(task, (row_grads<decltype(e), w.value>), (unsigned)rows_of(&k->logits), T, a);
    });
}
