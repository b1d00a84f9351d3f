/* silu_mul_grad: g, gate, up -> dgate = g up silu'(gate), dup = g silu(gate); and silu_mul and it on what a product of
 * the library has given.
 * Relies on: kernel.cuh, silu_mul.h.
 * Relied on by: generated code, k_matmul.cu.
 *
 * Results may share operands' bytes: a thread has read all of its elements before it writes one. */
#include "silu_mul.h"

#include "kernel.cuh"

namespace {

/* g is NULL: y = silu(gate) up; else y is dgate, z dup. */
struct gated {
    void *y, *z;
    const void *g, *gate, *up;
    int64_t n;
};

template <class E, int W, bool GRADS> __global__ void __launch_bounds__(BLOCK) gate(gated o) {
    typedef typename E::type type;
    int64_t at = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * W;
    if (at >= o.n) return;
    raw<E, W> g, x, up;
    x.load((const type *)o.gate + at);
    up.load((const type *)o.up + at);
    if constexpr (GRADS) g.load((const type *)o.g + at);
    float y[W], z[W];
#pragma unroll
    for (int k = 0; k < W; k++) {
        if constexpr (GRADS)
            sc_silu_mul_grad(g.get(k), x.get(k), up.get(k), &y[k], &z[k]);
        else
            y[k] = sc_silu_mul(x.get(k), up.get(k));
    }
    x.put(y);
    x.store((type *)o.y + at);
    if constexpr (GRADS) {
        g.put(z);
        g.store((type *)o.z + at);
    }
}

template <bool GRADS> void start(const sc_task *t, int dtype, const gated &o) {
    bool whole = true;
    for (const void *p : {(const void *)o.y, (const void *)o.z, o.g, o.gate, o.up}) whole = whole && aligned(p, 16);
    with_runs(t, dtype, whole && o.n * size_of(dtype) % 16 == 0, [&](auto e, auto w) {
        SC_LAUNCH(t, (gate<decltype(e), w.value, GRADS>), blocks_for(o.n, BLOCK * w.value), BLOCK, o);
    });
}

} // namespace

void sc_silu_mul_apart(const sc_task *t, int dtype, int64_t n, void *y, const void *gate, const void *up) {
    start<false>(t, dtype, {y, NULL, NULL, gate, up, n});
}

void sc_silu_mul_grad_apart(const sc_task *t, int dtype, int64_t n, void *dgate, void *dup, const void *g,
                            const void *gate, const void *up) {
    start<true>(t, dtype, {dgate, dup, g, gate, up, n});
}

SC_KERNEL(silu_mul_grad) {
    sc_silu_mul_grad_apart(task, k->dgate.dtype, sc_numel(&k->dgate), k->dgate.p, k->dup.p, k->g.p, k->gate.p, k->up.p);
}
