/* packed.c for GPUs, a thread a piece: small, and right. */
#include "sc_extension.h"

__device__ int quantized(float x, float scale) {
    int q = (int)(x * scale + (x < 0 ? -0.5f : 0.5f));
    return q < -7 ? -7 : q > 7 ? 7 : q;
}

__global__ void pack_piece(const float *stored, sc_bool_t *codes, float *scale, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fabsf(stored[i]) > most ? fabsf(stored[i]) : most;
    *scale = most > 0 ? 7 / most : 1;
    for (int64_t i = 0; i < n; i += 2)
        codes[i / 2] = (sc_bool_t)((quantized(stored[i], *scale) & 15) |
                                   (i + 1 < n ? (quantized(stored[i + 1], *scale) & 15) << 4 : 0));
}

__global__ void unpack_piece(const sc_bool_t *codes, const float *scale, float *parameter, int64_t begin, int64_t end) {
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        int q = codes[i / 2] >> (i % 2 * 4) & 15;
        parameter[i] = (float)(q > 7 ? q - 16 : q) / *scale;
    }
}

int64_t pack(const sc_piece *p, const float *stored, sc_bool_t (*codes)[1], float *scale, cudaStream_t stream) {
    int64_t n = p->end - p->begin, row = p->dims > 1 ? p->numel / p->shape[0] : 1;
    if (p->begin % row || n % row) return -1;
    pack_piece<<<1, 1, 0, stream>>>(stored, (sc_bool_t *)codes, scale, n);
    return (n + 1) / 2 + 1;
}

void unpack(const sc_piece *p, const sc_bool_t (*codes)[1], const float *scale, float *parameter, cudaStream_t stream) {
    for (int r = 0; r < p->ranks; r++)
        unpack_piece<<<1, 128, 0, stream>>>((const sc_bool_t *)codes, scale + r * p->stride[1], parameter,
                                            sc_piece_begin(p, r), sc_piece_begin(p, r + 1));
}
