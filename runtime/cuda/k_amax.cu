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

/* Slots beyond the parameters are 0. */
extern "C" void sc_k_amax(const sc_task *t) {
    const sc_tensor *y = &t->t[0], *x = &t->t[1];
    const int64_t *row = t->table + 1 + 2 * t->table[0];
    int64_t slice = numel_of(x), n = (t->ntable - 1 - 2 * t->table[0]) / 3;
    SC_CUDA(cudaMemsetAsync(y->p, 0, (size_t)numel_of(y) * sizeof(float), SC_STREAM(t)));
    for (int64_t k = 0; k < n; k++) {
        int64_t begin = row[3 * k] - sc_slice_of(t, t->i[0]) * slice, end = begin + row[3 * k + 1];
        begin = begin > 0 ? begin : 0;
        end = end < slice ? end : slice;
        if (begin >= end) continue;
        with_float(t, x->dtype, [&](auto e) {
            using E = decltype(e);
            SC_LAUNCH(t, amax_part<E>, filling(t, ceil_div(end - begin, BLOCK * 4)), BLOCK,
                      (const typename E::type *)x->p + begin, end - begin, (float *)y->p + k);
        });
    }
}
