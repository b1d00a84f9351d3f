/* Every kernel that emitted code may call, one for each op of ops.def that is neither view, pointwise nor runtime call.
 * Relies on: sc.h, schema/optimizers.h.
 * Relied on by: runtime/cpu, runtime/cuda, runtime/common/launch.c, calibrate, the unit tests. Generated texts declare
 * the kernels that they call by themselves. */
#ifndef SC_KERNELS_H
#define SC_KERNELS_H

#include "sc.h"
#include "schema/optimizers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maps what the matrix library keeps between calls, for `parts` concurrent callers; with 1 in a thread that will run
 * kernels, before its first step, so that nothing is allocated later. */
void sc_kernels_warm(int parts);
size_t sc_kernels_buffer(void); /* bytes that a thread which calls kernels maps for them */

/* A kernel may have a finish: run once, with part 0 of 1, after all parts of the kernel are done and before the event
 * counts as finished; it combines what the parts wrote, in a fixed order. NULL where there is none. */
sc_kernel *sc_kernel_finish(sc_kernel *k);

/* How long an event of that kernel sleeps, by itself: ns, 0 for all but one. */
int64_t sc_kernel_sleeps(sc_kernel *k, const void *args);

/* All kernels, by the name of their op. A calibration times those of the first list; debug_sleep sleeps, init_param
 * runs only at the start, and the times of pick and reshard follow from the bytes that they copy. */
/* clang-format off */
#define SC_KERNELS_TIMED(K)                                                                                           \
    K(concat) K(copy) K(pad_slice) K(full) K(arange) K(grad_seed) K(store) K(zero) K(zero_gaps) K(sum) K(mean) K(max) \
    K(max_grad) K(matmul) K(embedding) K(embedding_grad) K(layer_norm) K(layer_norm_grad) K(layer_norm_grad_w)        \
    K(rms_norm) K(rms_norm_grad) K(rms_norm_grad_w) K(layer_norm_grads) K(rms_norm_grads) K(softmax) K(softmax_grad)  \
    K(attention) K(attention_grad) K(rope) K(dropout) K(cross_entropy) K(cross_entropy_grad) K(cross_entropy_grads)   \
    K(batch_norm) K(batch_norm_grad) K(silu_mul_grad) SC_UPDATES(K) K(sum_squares) K(clip_coefficient)                \
    K(count_step) K(coalesce) K(scale) K(update_scale) K(amax)
#define SC_KERNELS_UNTIMED(K) K(debug_sleep) K(init_param) K(pick) K(reshard)
/* clang-format on */
#define K(op) extern sc_kernel sc_k_##op;
SC_KERNELS_TIMED(K) SC_KERNELS_UNTIMED(K)
#undef K

#ifdef __cplusplus
}
#endif
#endif
