/* gather_fp8.c for GPUs: parameters are stored in fp32 and travel in fp8_e4m3, scaled by their largest magnitude.
 * Relies on: sc_extension.h. Relied on by: gather.lua. */
#include "sc_extension.h"

enum { THREADS = 256 };

static unsigned blocks(int64_t n) {
    int64_t b = (n + THREADS - 1) / THREADS;
    return (unsigned)(b < 4096 ? b : 4096);
}

/* `amax` is read on the GPU: when the step is recorded its value is not there yet. */
__device__ float scale_of(const float *amax) {
    return *amax > 1e-35f ? 448 / *amax : 1; /* a smaller one would make the scale infinite */
}

__global__ void narrow(const float *x, const float *amax, sc_fp8_e4m3_t *y, int64_t n) {
    float scale = scale_of(amax);
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += gridDim.x * (int64_t)THREADS)
        y[i] = sc_to_fp8_e4m3(x[i] * scale);
}

__global__ void widen(const sc_fp8_e4m3_t *x, const float *amax, float *y, int64_t n) {
    float scale = scale_of(amax);
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += gridDim.x * (int64_t)THREADS)
        y[i] = sc_from_fp8_e4m3(x[i]) / scale;
}

void pre_all_gather(const sc_piece *p, const float *stored, const float *amax, sc_fp8_e4m3_t *wire,
                    cudaStream_t stream) {
    int64_t n = p->end - p->begin; /* 0: this rank holds nothing of it */
    if (n) narrow<<<blocks(n), THREADS, 0, stream>>>(stored, amax, wire, n);
}

void post_all_gather(const sc_piece *p, const sc_fp8_e4m3_t *wire, const float *amax, float *parameter,
                     cudaStream_t stream) {
    widen<<<blocks(p->numel), THREADS, 0, stream>>>(wire, amax, parameter, p->numel);
}
