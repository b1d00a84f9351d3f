/* Rows of a pointwise kernel's iteration space, and the rounding that generated kernels do.
 * Relies on: sc.h, schema/math.h.
 * Relied on by: generated NAME_kernels.c and NAME_kernels.cu; sc_rows_* are implemented in cpu/pointwise.c. */
#ifndef SC_POINTWISE_H
#define SC_POINTWISE_H

#include "sc.h"
#include "schema/math.h"

#ifndef __CUDACC__ /* there: cuda/pointwise.cuh */
/* The part of the iteration space that a task computes, a row at a time. Dimensions that lie behind each other in every
 * tensor are one, so contiguous tensors have a single row. */
typedef struct {
    int64_t n;                  /* elements of the current row; 0: no row is left */
    void *at[SC_TENSORS];       /* its first element in each tensor */
    int64_t stride[SC_TENSORS]; /* from one element of the row to the next, in elements */
    /* private */
    int tensors, dims;                                                       /* dims: outside of the row */
    int64_t rows, shape[SC_DIMS], index[SC_DIMS], step[SC_TENSORS][SC_DIMS]; /* steps in bytes */
} sc_rows;

void sc_rows_begin(sc_rows *w, const sc_task *task);
void sc_rows_next(sc_rows *w);

/* Do the strides of a row match: a digit a tensor, '?' for any? */
static inline bool sc_rows_step(const sc_rows *w, const char *pattern) {
    for (int k = 0; pattern[k]; k++)
        if (pattern[k] != '?' && w->stride[k] != pattern[k] - '0') return false;
    return true;
}
#endif

/* A value as its dtype holds it. */
#define as_fp32(x) sc_from_fp32(sc_to_fp32(x))
#define as_bf16(x) sc_as_bf16(x)
#define as_fp16(x) sc_from_fp16(sc_to_fp16(x))
#define as_fp64(x) sc_from_fp64(sc_to_fp64(x))
#define as_bool(x) ((real)((x) != 0))
#define as_int32(x) ((int64_t)(int32_t)(x))
#define as_int64(x) ((int64_t)(x))

#endif
