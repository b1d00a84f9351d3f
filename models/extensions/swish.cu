/* swish.c for GPUs: y = x * sigmoid(beta x), beta = call->numbers[0].
 * Relies on: sc_extension.h. Relied on by: custom.lua. */
#include "sc_extension.h"

enum { THREADS = 256 };

static unsigned blocks(int64_t n) {
    return (unsigned)((n + THREADS - 1) / THREADS);
}

__global__ void forward(const float *x, float *y, int64_t n, float beta) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i < n) y[i] = x[i] / (1 + expf(-beta * x[i]));
}

__global__ void backward(const float *gy, const float *x, const float *y, float *gx, int64_t n, float beta) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= n) return;
    float s = 1 / (1 + expf(-beta * x[i]));
    gx[i] = gy[i] * (s + beta * y[i] * (1 - s));
}

void swish(const sc_call *call, const float *x, float *y, cudaStream_t stream) {
    int64_t n = call->tensor[0].numel;
    forward<<<blocks(n), THREADS, 0, stream>>>(x, y, n, (float)call->numbers[0]);
}

void swish_grad(const sc_call *call, const float *gy, const float *x, const float *y, float *gx, cudaStream_t stream) {
    int64_t n = call->tensor[0].numel;
    backward<<<blocks(n), THREADS, 0, stream>>>(gy, x, y, gx, n, (float)call->numbers[0]);
}
