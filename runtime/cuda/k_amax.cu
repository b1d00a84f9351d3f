/* amax: the largest magnitude in this rank's part of each parameter of a unit; a NaN, once met, stays.
 * Relies on: kernel.cuh.
 * Relied on by: generated code (all-gather extensions that declare amax).
 *
 * Magnitudes are ordered as their bits are, and NaNs above infinity, so blocks meet by atomicMax on bits: exact, and the
 * same in any order. */
#include "kernel.cuh"

namespace {

template <class E>
__global__ void __launch_bounds__(BLOCK) amax_part(const typename E::type *x, int64_t n, float *y) {
    float most = 0;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * BLOCK)
        most = larger(most, fabsf((float)E::get(x[i])));
    most = group_max<BLOCK>(most);
    if (threadIdx.x == 0) atomicMax((int *)y, __float_as_int(fabsf(most)));
}

} // namespace

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
        with_float(task, k->shard.dtype, [&](auto e) {
            using E = decltype(e);
            SC_LAUNCH(task, amax_part<E>, filling(task, ceil_div(end - begin, BLOCK * 4)), BLOCK,
                      (const typename E::type *)k->shard.p + begin, end - begin, (float *)k->y.p + i);
        });
    }
}
