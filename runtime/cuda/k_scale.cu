/* scale, update_scale: the loss scale, a state of the device: no step waits for the host to see it.
 * Relies on: kernel.cuh, sc_optimizer.h (sc_scaler and how it changes).
 * Relied on by: generated code.
 *
 * scale: y = x · scale, or (inverse) x / scale. */
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

SC_KERNEL(scale) {
    int64_t n = sc_numel(&k->y);
    with_float(task, k->x.dtype, [&](auto e) {
        SC_LAUNCH(task, scale<decltype(e)>, filling(task, ceil_div(n, BLOCK)), BLOCK, k->y.p, k->x.p, n,
                  (const sc_scaler *)k->scaler.p, k->inverse != 0);
    });
}

SC_KERNEL(update_scale) {
    SC_LAUNCH(task, update_scale, 1, 1, (const float *)k->coefficient.p, (sc_scaler *)k->scaler.p, k->growth,
              k->backoff, k->interval);
}
