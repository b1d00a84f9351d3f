/* pair.c for GPUs. */
#include "sc_extension.h"

__global__ void split(const float *x, sc_bf16_t *a, int32_t *b, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (int64_t)blockDim.x) {
        a[i] = (sc_bf16_t)(sc_bits(x[i]) >> 16);
        b[i] = (int32_t)(sc_bits(x[i]) & 0xffff);
    }
}
__global__ void join(const sc_bf16_t *a, const int32_t *b, float *x, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (int64_t)blockDim.x)
        x[i] = sc_float((uint32_t)a[i] << 16 | (uint32_t)b[i]);
}
__global__ void split_bf16(const float *x, sc_bf16_t *a, sc_bf16_t *b, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (int64_t)blockDim.x) {
        a[i] = sc_to_bf16(x[i]);
        b[i] = sc_to_bf16(x[i] - sc_from_bf16(a[i]));
    }
}
__global__ void join_bf16(const sc_bf16_t *a, const sc_bf16_t *b, sc_bf16_t *x, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (int64_t)blockDim.x)
        x[i] = sc_to_bf16(sc_from_bf16(a[i]) + sc_from_bf16(b[i]));
}

int64_t pair(const sc_piece *p, const float *stored, sc_bf16_t *a, int32_t *b, cudaStream_t stream) {
    int64_t n = p->end - p->begin;
    if (n) split<<<8, 128, 0, stream>>>(stored, a, b, n);
    return 2 * n;
}
int64_t pair_short(const sc_piece *p, const float *stored, sc_bf16_t *a, int32_t *b, cudaStream_t stream) {
    return pair(p, stored, a, b, stream) - (p->end > p->begin);
}
int64_t rebuild(const sc_piece *p, const sc_bf16_t *a, const int32_t *b, float *weight, cudaStream_t stream) {
    join<<<8, 128, 0, stream>>>(a, b, weight, p->numel);
    return p->numel;
}
void pair_bf16(const sc_piece *p, const float *stored, sc_bf16_t *a, sc_bf16_t *b, cudaStream_t stream) {
    int64_t n = p->end - p->begin;
    if (n) split_bf16<<<8, 128, 0, stream>>>(stored, a, b, n);
}
void rebuild_bf16(const sc_piece *p, const sc_bf16_t *a, const sc_bf16_t *b, sc_bf16_t *weight, cudaStream_t stream) {
    join_bf16<<<8, 128, 0, stream>>>(a, b, weight, p->numel);
}
