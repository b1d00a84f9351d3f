/* The iteration space of a pointwise kernel: the dimensions that its tensors share, as few as their strides allow.
 * Relies on: sc.h.
 * Relied on by: cpu/pointwise.c, cuda/pointwise.cuh. */
#ifndef SC_COMMON_SPACE_H
#define SC_COMMON_SPACE_H

#include "../sc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int dims; /* at least 1 */
    int64_t shape[SC_DIMS], stride[SC_TENSORS][SC_DIMS];
} sc_space;

void sc_space_of(sc_space *s, const sc_task *task); /* of its tensors, none of which is absent */

#ifdef __cplusplus
}
#endif
#endif
