/* absmax: the largest magnitude of a tensor; amax: in this rank's part of each parameter of a unit. A NaN, once met,
 * stays.
 * Relies on: kernel.cuh.
 * Relied on by: generated code (products in 8 bits; all-gather extensions that declare amax).
 *
 * Magnitudes are ordered as their bits are, and NaNs above infinity, so blocks meet by atomicMax on bits: exact, and
 * the same in any order. */
#include "kernel.cuh"

namespace {

/* Runs of W elements, U of them at once. From the end on: the kernel before has written that last, so it is still in the
 * cache; and what is read last here, the beginning, is what the next kernel reads first. */
template <class E, int W>
__global__ void __launch_bounds__(BLOCK) amax_part(const typename E::type *x, int64_t n, float *y) {
    enum { U = 4 };
    float most = 0;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK * U + threadIdx.x; i * W < n; i += (int64_t)gridDim.x * BLOCK * U) {
        raw<E, W> run[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = n - (i + u * BLOCK + 1) * W;
            if (at >= 0)
                run[u].load(x + at);
            else
                run[u].clear();
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int k = 0; k < W; k++) most = larger(most, fabsf(run[u].get(k)));
    }
    most = group_max<BLOCK>(most);
    if (threadIdx.x == 0) atomicMax((int *)y, __float_as_int(fabsf(most)));
}

void find(const sc_task *task, int dtype, const void *x, int64_t n, float *y) {
    bool runs = n % 8 == 0 && aligned(x, 16);
    with_runs(task, dtype, runs, [&](auto e, auto w) {
        using E = decltype(e);
        SC_LAUNCH(task, (amax_part<E, w.value>), filling(task, ceil_div(n, BLOCK * 4 * w.value)), BLOCK,
                  (const typename E::type *)x, n, y);
    });
}

} // namespace

SC_KERNEL(absmax) {
    SC_CUDA(cudaMemsetAsync(k->y.p, 0, sizeof(float), SC_STREAM(task)));
    find(task, k->x.dtype, k->x.p, sc_numel(&k->x), (float *)k->y.p);
}

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
        find(task, k->shard.dtype, (const char *)k->shard.p + begin * size_of(k->shard.dtype), end - begin,
             (float *)k->y.p + i);
    }
}
