/* silu(gate) up and both its gradients, over n neighbouring elements of one type: of products that the library makes,
 * and of ops that stand alone.
 * Relies on: cuda.h.
 * Relied on by: k_matmul.cu, k_silu_mul.cu. */
#ifndef SC_CUDA_SILU_MUL_H
#define SC_CUDA_SILU_MUL_H

#include "cuda.h"

/* y may have the bytes of an operand. */
void sc_silu_mul_apart(const sc_task *t, int dtype, int64_t n, void *y, const void *gate, const void *up);
/* So may dgate, and so may dup. */
void sc_silu_mul_grad_apart(const sc_task *t, int dtype, int64_t n, void *dgate, void *dup, const void *g,
                            const void *gate, const void *up);

#endif
