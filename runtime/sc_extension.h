/* What a model's own C and CUDA C sees: element types with their conversions (schema/math.h), and what its functions
 * are told. Relies on: schema/math.h. Relied on by: files that models name in nn.all_gather_extension and nn.custom_op;
 * sc_extension_call.h.
 *
 * All-gather extensions (`amax` only where it is declared; `stream` only in CUDA C):
 *   void pre_all_gather(const sc_piece *p, const STORED *x, const float *amax, WIRE *w, ..., cudaStream_t stream);
 *   void post_all_gather(const sc_piece *p, const WIRE *w, ..., const float *amax, PARAMETER *y, cudaStream_t stream);
 * Custom ops (gradients of floating-point operands only):
 *   void forward(const sc_call *c, const X *x, ..., Y *y, ..., cudaStream_t stream);
 *   void backward(const sc_call *c, const Y *gy, ..., const X *x, ..., const Y *y, ..., X *gx, ..., cudaStream_t
 * stream); In CUDA C all pointers but the first are the GPU's: functions launch kernels on `stream` and neither
 * allocate nor wait.
 */
#ifndef SC_EXTENSION_H
#define SC_EXTENSION_H

#include "schema/math.h"

enum { SC_MAX_DIMS = 6, SC_MAX_WIRES = 4, SC_MAX_TENSORS = 32, SC_MAX_NUMBERS = 5 };

/* A parameter, and the elements of it [begin, end), counted in row-major order, that a call is about: before the gather
 * what this rank holds, which may be nothing; after it all of them. Pointers to elements point to element `begin`. */
typedef struct {
    const char *path; /* "layers.0.mlp.up.weight" */
    int dims;
    int64_t shape[SC_MAX_DIMS], numel, begin, end;
    int rank, ranks;     /* of those that the parameter is sharded over */
    int64_t flat, slice; /* its first element in the unit's buffer, of which rank r holds [r, r + 1) * slice */
    int64_t
        stride[SC_MAX_WIRES]; /* of a wire `per = "piece"` after the gather: elements from one rank's to the next's */
} sc_piece;

/* What rank r holds begins here, and ends where that of rank r + 1 begins. */
SC_FN int64_t sc_piece_begin(const sc_piece *p, int r) {
    int64_t at = r * p->slice - p->flat;
    return at < 0 ? 0 : at < p->numel ? at : p->numel;
}

typedef struct {
    int dims;
    int64_t size[SC_MAX_DIMS], numel;
} sc_extent;

typedef struct {
    int tensors; /* as many as the function has pointers to elements, in that order */
    sc_extent tensor[SC_MAX_TENSORS];
    int rank, world;
    double numbers[SC_MAX_NUMBERS]; /* of nn.custom_op */
} sc_call;

#endif
