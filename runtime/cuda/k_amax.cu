/* amax: the largest magnitude in this rank's part of each parameter of a unit. A NaN, once met, stays.
 * Relies on: magnitude.cuh, schema/pieces.h.
 * Relied on by: generated code (all-gather extensions that declare amax; weights in 8 bits). */
#include "../schema/pieces.h"
#include "magnitude.cuh"

/* Numbers beyond the parameters' are 0. */
SC_KERNEL(amax) {
    int64_t slice = sc_numel(&k->shard), first = task->coord[k->axis].at * slice;
    SC_CUDA(cudaMemsetAsync(k->y.p, 0, (size_t)sc_numel(&k->y) * sizeof(float), SC_STREAM(task)));
    for (int64_t i = 0, n = sc_pieces(k->table, k->ntable); i < n; i++) {
        sc_piece p = sc_piece_at(k->table, i, first, slice);
        if (p.begin >= p.end) continue;
        find_magnitudes<plain>(task, k->shard.dtype,
                               {{{(const char *)k->shard.p + p.begin * size_of(k->shard.dtype)}, {}, {}},
                                {},
                                {(float *)k->y.p + i},
                                p.end - p.begin});
    }
}
