/* Algorithms of matrix products: the key under which one is chosen, and the table that comes before the heuristic.
 * Relies on: cuda.h.
 * Relied on by: k_matmul.cu; whoever measures algorithms (shardc calibrate) or loads a table of them. */
#ifndef SC_CUDA_MATMUL_H
#define SC_CUDA_MATMUL_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything that the choice may depend on: never an address beyond its alignment, never the plan. Strides in elements;
 * where a side has one row, its leading stride is its width; where there is one batch, batch strides are 0. */
typedef struct {
    int64_t m, n, k, lda, ldb, ldy, batches, stride_a, stride_b, stride_y, workspace;
    uint8_t in, out, ta, tb, bias;                 /* dtypes (in: sc_matmul_in); flags */
    uint8_t align_a, align_b, align_y, align_bias; /* log2 of bytes, at most 8 */
    uint8_t add, f, align_c; /* y = f(... + c), f an sc_epilogue; align_c: of c, aux, x, gate and up */
    uint8_t scales;          /* an sc_matmul_scales */
    uint8_t zero[3];
} sc_matmul_key;

/* Scales of blocks: none, or one for each 128 of k of a row of a and of a column of b, or b's for each 128 x 128. */
typedef enum { SC_MATMUL_NO_BLOCKS, SC_MATMUL_BLOCKS, SC_MATMUL_SQUARES_B } sc_matmul_scales;

/* The key's `in`: a's dtype, and where b has another one, SC_MATMUL_B times b's besides. */
enum { SC_MATMUL_B = 16 };
static inline uint8_t sc_matmul_in(int a, int b) {
    return (uint8_t)(a == b ? a : a + SC_MATMUL_B * b);
}
static inline int sc_matmul_in_a(const sc_matmul_key *k) {
    return k->in % SC_MATMUL_B;
}
static inline int sc_matmul_in_b(const sc_matmul_key *k) {
    return k->in < SC_MATMUL_B ? k->in : k->in / SC_MATMUL_B;
}

typedef struct {
    sc_matmul_key key;
    uint64_t algorithm[8]; /* a cublasLtMatmulAlgo_t: valid for one version of the library on one kind of GPU */
    uint64_t apart;        /* f is no epilogue of the library's but a pass of our own over the product's result */
} sc_matmul_choice;

/* From now on `table` is asked first. It is not copied. */
void sc_matmul_table(sc_cuda *c, const sc_matmul_choice *table, int n);

/* Up to `most` algorithms for this product, the heuristic's best first, those apart last; each may stand in a table. 0:
 * the library takes no part in it, or k_matmul_hopper.cu does it. */
int sc_matmul_candidates(const sc_task *t, sc_matmul_choice *out, int most);

#ifdef __cplusplus
}
#endif
#endif
