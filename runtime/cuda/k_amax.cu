/* amax: the largest magnitude in this rank's part of each parameter of a unit. A NaN, once met, stays.
 * Relies on: magnitude.cuh.
 * Relied on by: generated code (all-gather extensions that declare amax). */
#include "magnitude.cuh"

/* Numbers beyond the parameters' are 0. */
SC_KERNEL(amax) {
    const int64_t *row = k->table + 1 + 2 * k->table[0];
    int64_t slice = sc_numel(&k->shard), n = (k->ntable - 1 - 2 * k->table[0]) / 3;
    SC_CUDA(cudaMemsetAsync(k->y.p, 0, (size_t)sc_numel(&k->y) * sizeof(float), SC_STREAM(task)));
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = row[3 * i] - task->coord[k->axis].at * slice, end = begin + row[3 * i + 1];
        begin = begin > 0 ? begin : 0;
        end = end < slice ? end : slice;
        if (begin >= end) continue;
        find_magnitudes<plain>(task, k->shard.dtype,
                               {{{(const char *)k->shard.p + begin * size_of(k->shard.dtype)}, {}, {}},
                                {},
                                {(float *)k->y.p + i},
                                end - begin});
    }
}
