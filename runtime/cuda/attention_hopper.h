/* Attention of our own for compute capability 9.0: which tasks it computes, and their launches.
 * Relies on: attention.h, schema/attention.h.
 * Relied on by: k_attention.cu, k_attention_grad.cu, k_attention_hopper*.cu. */
#ifndef SC_CUDA_ATTENTION_HOPPER_H
#define SC_CUDA_ATTENTION_HOPPER_H

#include "../schema/attention.h"
#include "attention.h"

/* Is it theirs by what it computes? */
static inline bool hopper_computes(const attention &a, int dtype) {
    return sc_hopper_computes(dtype == BF16 || dtype == FP16, a.size, a.value_size, a.scale);
}

/* Launches the task and says so; false: it is for other kernels. It depends on shapes, strides, types, alignment, the
 * workspace's size and the GPU's kind. Never in a library that was made without architecture 90. */
bool sc_attention_hopper(const sc_task *t, const attention &a, int dtype);
bool sc_attention_hopper_grad(const sc_task *t, const attention &a, int dtype, int64_t room);

#endif
