/* What the kernels of cross_entropy share: their task, powers of e, a row's loss and the elements of its gradient.
 * Relies on: kernel.cuh.
 * Relied on by: k_cross_entropy.cu, k_cross_entropy_held.cu. */
#ifndef SC_CROSS_ENTROPY_CUH
#define SC_CROSS_ENTROPY_CUH

#include "kernel.cuh"

struct loss_task {
    row_space rows, to; /* of the logits, of their gradient */
    const void *x;
    const int32_t *target;
    float *most, *rest, *losses;
    const void *g, *total; /* total: NULL, or what the loss is divided by instead of a count of the record */
    const sc_record *record;
    void *dx;
    int g_dtype, total_dtype, cols, slot;
    bool each; /* each row's loss is a result, and has a g of its own */
    float smoothing, z, cap;
    int64_t ignore;
};

SC_DEVICE double count_of(const loss_task &a) {
    return a.total ? (double)load_any(a.total, a.total_dtype, 0) : (double)a.record->count[a.slot];
}
SC_DEVICE float scale_of(const loss_task &a, int64_t row) {
    if (a.each) return load_any(a.g, a.g_dtype, row);
    return (float)((double)load_any(a.g, a.g_dtype, 0) / count_of(a));
}

constexpr float LOG2E = 1.44269504f;

SC_DEVICE float power_of_two(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* e^(x - shift). The difference first: shift · log2 e would be rounded to its own ulp. */
template <class E> struct powers {
    float shift;
    SC_DEVICE explicit powers(float s) : shift(s) {}
    SC_DEVICE float of(float x) const { return power_of_two((x - shift) * LOG2E); }
};
template <> struct powers<fp32> {
    float shift;
    SC_DEVICE explicit powers(float s) : shift(s) {}
    SC_DEVICE float of(float x) const { return sc_exp(x - shift); }
};

/* The largest of some logits, or 0 where all are -inf: what their powers are relative to. */
SC_DEVICE float or_zero(float m) {
    return m == -HUGE_VALF ? 0 : m;
}

/* A logit as the loss sees it. */
SC_DEVICE float capped(const loss_task &a, float x) {
    return a.cap > 0 ? a.cap * sc_tanh(x / a.cap) : x;
}

/* x: the target's logit, NaN where it is no class, which makes the loss one; own: its power; sum: of all logits, where
 * the target's probability is smoothed. */
SC_DEVICE float row_loss(const loss_task &a, float most, float x, float own, float rest, float sum) {
    float d = x - most, all = d == 0 ? log1pf(rest) : logf(rest + own), loss = all - d, lse = most + all;
    if (a.smoothing > 0) loss += a.smoothing * (x - sum / (float)a.cols);
    if (a.z > 0) loss += a.z * lse * lse;
    return loss;
}

/* What a row's elements of the gradient are made of. SHAPED: logits may be capped and probabilities smoothed. */
template <class E, bool SHAPED = false> struct slopes {
    powers<E> e;
    float each, at_target, flat, cap;
    SC_DEVICE slopes(const loss_task &a, float most, float own, float rest, float scale, float x = 0)
        : e(most), flat(0), cap(a.cap) {
        each = scale / (rest + own);
        at_target = -(rest * each);
        if (SHAPED) flat = scale * a.smoothing / (float)a.cols;
        if (a.z > 0 || a.smoothing > 0) {
            float turn = 2 * a.z * (most + logf(rest + own));
            at_target += turn * own * each + scale * a.smoothing - flat;
            each *= 1 + turn;
        }
        if (SHAPED) at_target = bent(at_target, x);
    }
    SC_DEVICE float bent(float g, float x) const { return cap > 0 ? g * (1 - x / cap * (x / cap)) : g; }
    SC_DEVICE float of(float x) const {
        if (!SHAPED) return e.of(x) * each;
        x = cap > 0 ? cap * sc_tanh(x / cap) : x;
        return bent(e.of(x) * each - flat, x);
    }
};

/* Losses and gradients of sc_k_cross_entropy_grads; false: not launched, the rows are not such that it gains. */
bool sc_cuda_loss_held(const sc_task *task, const sc_cross_entropy_grads_args *k, const loss_task &a);

#endif
