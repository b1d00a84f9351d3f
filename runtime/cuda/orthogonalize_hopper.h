/* The products of Muon's steps on compute capability 9.0. Relies on: cuda.h.
 * Relied on by: k_orthogonalize.cu, k_orthogonalize_hopper.cu. */
#ifndef SC_ORTHOGONALIZE_HOPPER_H
#define SC_ORTHOGONALIZE_HOPPER_H

#include "cuda.h"

/* Matrices of bf16, one after the other, each [rows][cols]; small is the smaller of the two. */
typedef struct {
    const void *x;
    void *y;                 /* like x, other bytes */
    void *gram, *polynomial; /* of each matrix [small][small], symmetric */
    int count, rows, cols;
} sc_stack;

typedef enum {
    SC_GRAM,       /* gram = x xT where x is wide, else xT x */
    SC_POLYNOMIAL, /* polynomial = beta gram + alpha gram gram */
    SC_APPLY       /* y = beta x + polynomial x where x is wide, else beta x + x polynomial */
} sc_orthogonal_product;

/* Whether the kernels for compute capability 9.0 take matrices of this shape. */
bool sc_orthogonalize_hopper_takes(const sc_task *t, int64_t rows, int64_t cols);

/* Computes one of them for all stacks, each element rounded once. */
void sc_orthogonalize_hopper(const sc_task *t, sc_orthogonal_product what, const sc_stack *stacks, int n, float alpha,
                             float beta);

#endif
