/* The matrix library: its buffers, and the one call that we make of it.
 * Relies on: OpenBLAS, the serial build; blas_memory.c, which lets any number of our threads call it at once.
 * Relied on by: matmul, attention; the runtime, which warms it. */
#include "kernel.h"
#include <cblas.h>

/* OpenBLAS chooses its kernels by processor; OPENBLAS_CORETYPE in the environment overrides that (a machine that sets
 * it to Haswell halves sgemm on AVX-512 processors: 120 instead of 230 GFLOP/s a core on an EPYC with Zen 5). */

/* The library's packing buffers, mapped at their first use and kept; a thread takes its own (blas_memory.c). */
void *blas_memory_alloc(int position);
void blas_memory_free(void *buffer);
extern size_t sc_blas_buffer_bytes;

void sc_kernels_warm(int parts) {
    void *buffer[256];
    int n = parts < 256 ? parts : 256;
    for (int i = 0; i < n; i++) buffer[i] = blas_memory_alloc(0);
    for (int i = n - 1; i >= 0; i--) blas_memory_free(buffer[i]);
}

size_t sc_kernels_buffer(void) {
    sc_kernels_warm(1);
    return sc_blas_buffer_bytes;
}

void sc_gemm(int ta, int tb, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda, const real *b,
             int64_t ldb, real beta, real *c, int64_t ldc) {
    CBLAS_TRANSPOSE opa = ta ? CblasTrans : CblasNoTrans, opb = tb ? CblasTrans : CblasNoTrans;
#ifdef SC_FP64
    cblas_dgemm(CblasRowMajor, opa, opb, (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
#else
    cblas_sgemm(CblasRowMajor, opa, opb, (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
#endif
}
