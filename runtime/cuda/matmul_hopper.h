/* Products of our own for compute capability 9.0, with gelu or its gradient done beside the multiplications.
 * Relies on: matmul.h.
 * Relied on by: k_matmul.cu. */
#ifndef SC_CUDA_MATMUL_HOPPER_H
#define SC_CUDA_MATMUL_HOPPER_H

#include "matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is a product of this key ours? It depends on the key, the GPU and the number of ranks alone. Never in a library that
 * was made without architecture 90. */
int sc_matmul_hopper_takes(const sc_cuda *c, const sc_matmul_key *key);

/* y[m][n] = gelu_tanh(z), z[m][n] = round(a[m][k] b[k][n] + bias[n]) (key.f 1; bias may be NULL), or
 * y[m][n] = (a[m][k] b[n][k]') gelu_tanh'(x) (key.f 2; z is NULL). All bf16, sums in fp32. gelu is taken of z as
 * stored; its derivative is rounded to fp16 before the product with the sum, which is then rounded once. With a gate:
 * z = round(a op(b) + bias), y = sc_silu_mul(x, z) (key.f 4), or y, z = both results of sc_silu_mul_grad(round(a
 * op(b)), x, x2) (key.f 6). There y may have the bytes of x or x2: of an element they are read before it is written. */
void sc_matmul_hopper(const sc_task *t, const sc_matmul_key *key, void *y, void *z, const void *a, const void *b,
                      const void *bias, const void *x, const void *x2);

#ifdef __cplusplus
}
#endif
#endif
