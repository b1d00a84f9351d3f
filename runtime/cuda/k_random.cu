/* dropout: y = x · mask / (1 - p), the mask drawn from (seed, key), step, sample, element.
 * Relies on: random.cuh.
 * Relied on by: generated code. Contiguous operands. */
#include "random.cuh"

namespace {

enum { RUN = 8 }; /* elements a thread takes at a time: two blocks of Philox */

/* Samples of n elements each; `runs` of RUN elements in each of them. */
template <class E, bool WIDE>
__global__ void __launch_bounds__(BLOCK)
    dropout(const void *from, void *to, int64_t samples, int64_t n, dropping d, const sc_record *record) {
    typedef typename E::type type;
    masks mask(d, record);
    int64_t runs = (n + RUN - 1) / RUN, all = samples * runs, step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < all; u += step) {
        int64_t b = samples == 1 ? 0 : u / runs, first = (u - b * runs) * RUN;
        const type *x = (const type *)from + b * n + first;
        type *y = (type *)to + b * n + first;
        int count = n - first < RUN ? (int)(n - first) : (int)RUN;
        float v[RUN];
        raw<E, RUN> r;
        if (WIDE) {
            r.load(x);
#pragma unroll
            for (int k = 0; k < RUN; k++) v[k] = r.get(k);
        } else {
#pragma unroll
            for (int k = 0; k < RUN; k++) v[k] = k < count ? E::get(x[k]) : 0;
        }
        mask.drop(v, b, (uint64_t)first / 4);
        mask.drop(v + 4, b, (uint64_t)first / 4 + 1);
        if (WIDE) {
            r.put(v);
            r.store(y);
        } else {
#pragma unroll
            for (int k = 0; k < RUN; k++)
                if (k < count) y[k] = E::put(v[k]);
        }
    }
}

} // namespace

SC_KERNEL(dropout) {
    const sc_tensor *y = &k->y, *x = &k->x;
    int64_t samples = x->dims ? x->shape[0] : 1, n = sc_numel(x) / (samples ? samples : 1);
    dropping d = dropping_of(k->p, (uint64_t)k->key);
    unsigned grid = filling(task, ceil_div(samples * ceil_div(n, RUN), BLOCK));
    bool runs = n % RUN == 0 && aligned(x->p, 16) && aligned(y->p, 16);
    with_float(task, x->dtype, [&](auto e) {
        with_flag(runs, [&](auto w) {
            SC_LAUNCH(task, (dropout<decltype(e), w.value>), grid, BLOCK, x->p, y->p, samples, n, d, task->record);
        });
    });
}
