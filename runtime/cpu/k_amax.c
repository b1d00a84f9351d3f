/* amax: the largest magnitude in this rank's part of each parameter of a unit. A NaN, once met, stays.
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

typedef struct { /* a row of the table */
    int64_t flat, numel, number;
} parameter;

/* Elements of the result beyond the parameters are 0. */
SC_KERNEL(amax) {
    const parameter *p = (const parameter *)(k->table + 1 + 2 * k->table[0]); /* behind the wires */
    int64_t slice = sc_numel(&k->shard), first = task->coord[k->axis].at * slice;
    int64_t parameters = (k->ntable - 1 - 2 * k->table[0]) / 3;
    sc_range own = sc_share(task, sc_numel(&k->y), 1);
    for (int64_t i = own.begin; i < own.end; i++) {
        int64_t begin = i < parameters ? sc_max(p[i].flat - first, 0) : 0;
        int64_t end = i < parameters ? sc_min(p[i].flat - first + p[i].numel, slice) : 0;
        ((float *)k->y.p)[i] = begin < end ? largest(&k->shard, begin, end - begin) : 0;
    }
}
