/* Sets a flag in host memory where a tensor holds an infinity or a NaN.
 * Relies on: schema/math.h (conversions).
 * Relied on by: debug.c. */
#include "../schema/math.h"
#include "cuda.h"

extern "C" void sc_seek_not_finite(cudaStream_t s, const sc_tensor *t, int *flag);

static __device__ bool finite_at(const sc_tensor &t, int64_t at) {
    if (t.dtype == FP32) return isfinite(((const float *)t.p)[at]);
    if (t.dtype == FP64) return isfinite(((const double *)t.p)[at]);
    if (t.dtype == BF16) return (((const uint16_t *)t.p)[at] & 0x7f80) != 0x7f80;
    return (((const uint16_t *)t.p)[at] & 0x7c00) != 0x7c00; /* fp16 */
}

static __global__ void seek(sc_tensor t, int64_t n, int *flag) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < n; k += step) {
        int64_t at = 0, rest = k;
        for (int d = t.dims - 1; d >= 0; d--) {
            at += rest % t.shape[d] * t.stride[d];
            rest /= t.shape[d];
        }
        if (!finite_at(t, at)) *(volatile int *)flag = 1;
    }
}

extern "C" void sc_seek_not_finite(cudaStream_t s, const sc_tensor *t, int *flag) {
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= t->shape[d];
    int64_t blocks = (n + 255) / 256;
    if (n) seek<<<(unsigned)(blocks < 2048 ? blocks : 2048), 256, 0, s>>>(*t, n, flag);
    SC_LAUNCHED();
}
