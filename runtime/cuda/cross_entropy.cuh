/* What the kernels of cross_entropy share: their task, powers of e, a gradient's element.
 * Relies on: kernel.cuh.
 * Relied on by: k_cross_entropy.cu, k_cross_entropy_held.cu. */
#ifndef SC_CROSS_ENTROPY_CUH
#define SC_CROSS_ENTROPY_CUH

#include "kernel.cuh"

struct loss_task {
    row_space rows, to; /* of the logits, of their gradient */
    const void *x;
    const int32_t *target;
    float *lse, *losses;
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

/* e^(x - shift), with what depends on the shift computed once. */
template <class E> struct powers {
    float shift;
    SC_DEVICE explicit powers(float s) : shift(s * -LOG2E) {}
    SC_DEVICE float of(float x) const { return power_of_two(sc_fma(x, LOG2E, shift)); }
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

template <class E> SC_DEVICE float slope(float p, int c, int target, float scale) {
    return c == target ? (p - 1) * scale : p * scale;
}

/* Losses and gradients of sc_k_cross_entropy_grads; false: not launched, the rows are not such that it gains. */
bool sc_cuda_loss_held(const sc_task *task, const sc_cross_entropy_grads_args *k, const loss_task &a);

#endif
