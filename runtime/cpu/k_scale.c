/* scale, update_scale: the loss scale, a state of the device.
 * Relies on: kernel.h, sc_optimizer.h (sc_scaler and how it changes).
 * Relied on by: generated code.
 *
 * scale: y = x · scale, or (i0) x / scale.  update_scale: coefficient [2], scaler; f0: growth, f1: backoff, i0:
 * interval. */
#include "../sc_optimizer.h"
#include "kernel.h"

void sc_k_scale(const sc_task *k) {
    const sc_tensor *y = &k->t[0], *x = &k->t[1];
    real s = ((const sc_scaler *)k->t[2].p)->scale, factor = k->i[0] ? 1 / s : s, from[SC_CHUNK], to[SC_CHUNK];
    sc_range mine = sc_share(k, sc_numel(y), SC_CHUNK);
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, mine.end - i);
        const real *v = sc_in(x, i, n, from);
        real *w = sc_out(y, i, to);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) w[j] = v[j] * factor;
        sc_put(y, i, n, w);
    }
}

void sc_k_update_scale(const sc_task *k) {
    if (k->part == 0) sc_scaler_update((sc_scaler *)k->t[1].p, sc_get(&k->t[0], 1) != 0, k->f[0], k->f[1], k->i[0]);
}
