/* quantize_shard: this rank's piece of a unit's matrices in 8 bits, and the scales of all of them.
 * Relies on: fp8.cuh, sc_amax.h, schema/pieces.h.
 * Relied on by: generated code (units whose gathers have 8 bits). */
#include "../sc_amax.h"
#include "../schema/pieces.h"
#include "fp8.cuh"

namespace {

enum { MOST = 448 }; /* the largest number of fp8_e4m3 */

/* x as E has it. */
template <class E> SC_DEVICE float rounded(float x) {
    return E::get(E::put(x));
}

/* A run of 8 elements a thread; n is a multiple of it. */
template <class FROM, class OF>
__global__ void __launch_bounds__(BLOCK) quantize_shard(const void *x, int64_t n, const float *amax, uint8_t *y) {
    int64_t at = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * RUN;
    if (at >= n) return;
    eight<FROM, wide<FROM>> in;
    in.load((const typename FROM::type *)x + at, RUN);
    float most = rounded<OF>(*amax), by = most == 0 ? 1 : MOST / most, v[RUN];
#pragma unroll
    for (int j = 0; j < RUN; j++) v[j] = rounded<OF>(in.get(j)) * by;
    *(uint2 *)(y + at) = make_uint2(two_fp8(false, v[0], v[1]) | two_fp8(false, v[2], v[3]) << 16,
                                    two_fp8(false, v[4], v[5]) | two_fp8(false, v[6], v[7]) << 16);
}

template <class OF> __global__ void scales_of(const float *amax, int64_t n, float *scales, int64_t all) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    float most = i / SC_SCALES_APART < n ? rounded<OF>(amax[i / SC_SCALES_APART]) : 0;
    if (i < all) scales[i] = most == 0 ? 1 : most / MOST;
}

} // namespace

/* Parameters, pieces and the sizes of both are multiples of 256 elements. */
SC_KERNEL(quantize_shard) {
    int64_t n = sc_pieces(k->table, k->ntable), slice = sc_numel(&k->shard), first = task->coord[k->axis].at * slice;
    int64_t all = sc_numel(&k->scales), done = 0;
    const float *amax = (const float *)k->amax.p;
    with_float(task, (int)k->of, [&](auto of) {
        SC_LAUNCH(task, scales_of<decltype(of)>, blocks_for(all, BLOCK), BLOCK, amax, n, (float *)k->scales.p, all);
        with_float(task, k->shard.dtype, [&](auto from) {
            for (int64_t i = 0; i < n; i++) {
                sc_piece p = sc_piece_at(k->table, i, first, slice);
                int64_t numel = p.end - p.begin;
                uint8_t *y = (uint8_t *)k->y.p;
                if (numel <= 0) continue;
                if (done < p.begin) /* between parameters */
                    SC_CUDA(cudaMemsetAsync(y + done, 0, (size_t)(p.begin - done), SC_STREAM(task)));
                SC_LAUNCH(task, (quantize_shard<decltype(from), decltype(of)>), blocks_for(numel, BLOCK * RUN), BLOCK,
                          (const char *)k->shard.p + p.begin * size_of(k->shard.dtype), numel, amax + i, y + p.begin);
                done = p.end;
            }
        });
    });
    if (done < slice) SC_CUDA(cudaMemsetAsync((uint8_t *)k->y.p + done, 0, (size_t)(slice - done), SC_STREAM(task)));
}
