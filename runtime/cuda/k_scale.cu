/* scale, update_scale: the loss scale, a state of the device: no step waits for the host to see it.
 * Relies on: kernel.cuh, sc_optimizer.h (sc_scaler and how it changes).
 * Relied on by: generated code.
 *
 * scale: y = x · scale, or (i0) x / scale.  update_scale: coefficient [2], scaler; f0: growth, f1: backoff, i0:
 * interval. */
#include "../sc_optimizer.h"
#include "kernel.cuh"

namespace {

template <class E>
__global__ void __launch_bounds__(BLOCK) scale(void *y, const void *x, int64_t n, const sc_scaler *s, bool over) {
    float factor = over ? 1 / s->scale : s->scale;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * BLOCK)
        ((typename E::type *)y)[i] = E::put(E::get(((const typename E::type *)x)[i]) * factor);
}

__global__ void update_scale(const float *coefficient, sc_scaler *s, double growth, double backoff, int64_t interval) {
    sc_scaler_update(s, coefficient[1] != 0, growth, backoff, interval);
}

} // namespace

extern "C" void sc_k_scale(const sc_task *t) {
    const sc_tensor *y = &t->t[0], *x = &t->t[1];
    int64_t n = numel_of(y);
    with_float(t, x->dtype, [&](auto e) {
        SC_LAUNCH(t, scale<decltype(e)>, filling(t, ceil_div(n, BLOCK)), BLOCK, y->p, x->p, n,
                  (const sc_scaler *)t->t[2].p, t->i[0] != 0);
    });
}

extern "C" void sc_k_update_scale(const sc_task *t) {
    SC_LAUNCH(t, update_scale, 1, 1, (const float *)t->t[0].p, (sc_scaler *)t->t[1].p, t->f[0], t->f[1], t->i[0]);
}
