/* scale, update_scale: the loss scale, a state of the device.
 * Relies on: kernel.h, sc_optimizer.h (sc_scaler and how it changes).
 * Relied on by: generated code. */
#include "../sc_optimizer.h"
#include "kernel.h"

SC_KERNEL(scale) {
    const sc_tensor *y = &k->y, *x = &k->x;
    real s = ((const sc_scaler *)k->scaler.p)->scale, factor = k->inverse ? 1 / s : s, from[SC_CHUNK], to[SC_CHUNK];
    sc_range mine = sc_share(task, sc_numel(y), SC_CHUNK);
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, mine.end - i);
        const real *v = sc_in(x, i, n, from);
        real *w = sc_out(y, i, to);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) w[j] = v[j] * factor;
        sc_put(y, i, n, w);
    }
}

SC_KERNEL(update_scale) {
    if (task->part) return;
    sc_scaler_update((sc_scaler *)k->scaler.p, sc_get(&k->coefficient, 1) != 0, k->growth, k->backoff, k->interval);
}
