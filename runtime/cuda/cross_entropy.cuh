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
    void *dx;
    int cols, slot;
    int64_t ignore;
};

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

/* Of a row with d = x[target] - most. A target that is no class has x NaN here, and makes the loss one. */
SC_DEVICE float row_loss(float d, float own, float rest) {
    return d == 0 ? log1pf(rest) : logf(rest + own) - d;
}

/* What a row's elements of the gradient are made of. */
template <class E> struct slopes {
    powers<E> e;
    float each, at_target;
    SC_DEVICE slopes(float most, float own, float rest, float scale) : e(most) {
        each = scale / (rest + own);
        at_target = -(rest * each);
    }
    SC_DEVICE float of(float x) const { return e.of(x) * each; }
};

/* Losses and gradients of sc_k_cross_entropy_grads; false: not launched, the rows are not such that it gains. */
bool sc_cuda_loss_held(const sc_task *task, const sc_cross_entropy_grads_args *k, const loss_task &a);

#endif
