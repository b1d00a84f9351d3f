/* Tables of matmul algorithms as text: read by every rank at its start, written by sc_calibrate.
 * Relies on: matmul.h.
 * Relied on by: choose.c, tune.c, calibrate/.
 *
 * A table is a header and a line an entry; several tables may follow one another in a file, and the first entry for a
 * key is the one that counts:
 *
 *   gpu NVIDIA H200
 *   cublaslt 130200
 *   m n k lda ldb ldy batches stride_a stride_b stride_y workspace in out ta tb bias align_a align_b align_y align_bias
 *       add f align_c   and eight words of the algorithm, in hexadecimal   [apart | blocks | squares]   # remarks
 *
 * An entry counts on the GPU and for the version of cuBLASLt of its header alone. */
#ifndef SC_CUDA_ALGORITHMS_H
#define SC_CUDA_ALGORITHMS_H

#include "matmul.h"
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    sc_matmul_choice *at;
    int n;
    uint64_t hash; /* of the entries: ranks compare it */
} sc_algorithms;

/* Adds the entries of `text` that are for this GPU and version. 0, or the number of a line that is none. */
int sc_algorithms_read(sc_algorithms *t, const char *text, size_t size, const char *gpu, int version);
bool sc_algorithms_has(const sc_algorithms *t, const sc_matmul_key *key);
void sc_algorithms_add(sc_algorithms *t, const sc_matmul_choice *c); /* unless it has the key */
void sc_algorithms_header(FILE *f, const char *gpu, int version);
void sc_algorithms_entry(FILE *f, const sc_matmul_choice *c, const char *remark);

/* The tables that this library was built with (compiler/devices/NAME.algorithms), one text after another. */
extern const char sc_algorithms_built_in[], sc_algorithms_built_in_end[];

#ifdef __cplusplus
}
#endif
#endif
