/* gather_bf16.c for GPUs: parameters are stored in fp32 and travel in bf16.
 * Relies on: sc_extension.h. Relied on by: gather.lua. */
#include "sc_extension.h"

enum { THREADS = 256 };

static unsigned blocks(int64_t n) {
    int64_t b = (n + THREADS - 1) / THREADS;
    return (unsigned)(b < 4096 ? b : 4096);
}

__global__ void narrow(const float *x, sc_bf16_t *y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += gridDim.x * (int64_t)THREADS)
        y[i] = sc_to_bf16(x[i]);
}

__global__ void widen(const sc_bf16_t *x, float *y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += gridDim.x * (int64_t)THREADS)
        y[i] = sc_from_bf16(x[i]);
}

void pre_all_gather(const sc_piece *p, const float *stored, sc_bf16_t *wire, cudaStream_t stream) {
    int64_t n = p->end - p->begin; /* 0: this rank holds nothing of it */
    if (n) narrow<<<blocks(n), THREADS, 0, stream>>>(stored, wire, n);
}

void post_all_gather(const sc_piece *p, const sc_bf16_t *wire, float *parameter, cudaStream_t stream) {
    widen<<<blocks(p->numel), THREADS, 0, stream>>>(wire, parameter, p->numel);
}
