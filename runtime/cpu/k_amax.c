/* amax: the largest magnitude in this rank's part of each parameter of a unit; a NaN, once met, stays.
 * Relies on: kernel.h.
 * Relied on by: generated code (all-gather extensions that declare amax). */
#include "kernel.h"

static float largest(const sc_tensor *x, int64_t at, int64_t n) {
    real buffer[SC_CHUNK], most = 0;
    for (int64_t i = 0; i < n; i += SC_CHUNK) {
        int64_t m = sc_min(SC_CHUNK, n - i);
        sc_load(buffer, x, at + i, 1, m);
        SC_ELEMENTWISE
        for (int64_t k = 0; k < m; k++) buffer[k] = sc_abs(buffer[k]);
        real here = sc_chunk_max(buffer, m);
        most = most >= here || most != most ? most : here;
    }
    return (float)most;
}

/* Slots beyond the parameters are 0. */
void sc_k_amax(const sc_task *t) {
    const sc_tensor *y = &t->t[0], *x = &t->t[1];
    const int64_t *row = t->table + 1 + 2 * t->table[0];
    int64_t slice = sc_numel(x), slots = sc_numel(y), n = (t->ntable - 1 - 2 * t->table[0]) / 3;
    sc_range own = sc_share(t, slots, 1);
    for (int64_t k = own.begin; k < own.end; k++) {
        int64_t begin = k < n ? row[3 * k] - sc_slice_of(t, t->i[0]) * slice : 0,
                end = k < n ? begin + row[3 * k + 1] : 0;
        begin = sc_max(begin, 0);
        end = sc_min(end, slice);
        ((float *)y->p)[k] = begin < end ? largest(x, begin, end - begin) : 0;
    }
}
