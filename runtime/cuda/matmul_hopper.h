/* Products of our own for compute capability 9.0, with gelu, a gate or the gradient of either done
 * beside the multiplications.
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

/* All bf16, sums in fp32; results and what is laid out like them [m][n]; p: a[m][k] b, rounded. By key.f:
 *   1  z = round(p + bias), y = gelu_tanh(z)
 *   2  y = p gelu_tanh'(x), p not rounded, the derivative rounded to fp16
 *   4  z = round(p + bias), y = silu(x) z
 *   6  y = p x2 silu'(x), z = p silu(x)
 * b is [k][n] for 1 and 6, [n][k] for 2 and 4; bias [n] may be NULL, and what is not named is not looked at. */
void sc_matmul_hopper(const sc_task *t, const sc_matmul_key *key, void *y, void *z, const void *a, const void *b,
                      const void *bias, const void *x, const void *x2);

#ifdef __cplusplus
}
#endif
#endif
