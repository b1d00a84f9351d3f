/* Every kernel that emitted code may call, one for each op of ops.def that is neither view, pointwise nor runtime call.
 * Relies on: sc.h.
 * Relied on by: runtime/cpu, runtime/cuda, runtime/common/launch.c, calibrate, the unit tests. Generated texts declare
 * the kernels that they call by themselves. */
#ifndef SC_KERNELS_H
#define SC_KERNELS_H

#include "sc.h"

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

/* data movement, sources */
sc_kernel sc_k_concat, sc_k_copy, sc_k_pad_slice, sc_k_pick, sc_k_reshard, sc_k_full, sc_k_arange, sc_k_grad_seed;
sc_kernel sc_k_store, sc_k_zero, sc_k_zero_gaps, sc_k_debug_sleep;
/* reductions */
sc_kernel sc_k_sum, sc_k_mean, sc_k_max, sc_k_max_grad;
/* matrices and network ops */
sc_kernel sc_k_matmul, sc_k_embedding, sc_k_embedding_grad;
sc_kernel sc_k_layer_norm, sc_k_layer_norm_grad, sc_k_layer_norm_grad_w;
sc_kernel sc_k_rms_norm, sc_k_rms_norm_grad, sc_k_rms_norm_grad_w, sc_k_layer_norm_grads, sc_k_rms_norm_grads;
sc_kernel sc_k_softmax, sc_k_softmax_grad, sc_k_attention, sc_k_attention_grad, sc_k_rope, sc_k_dropout;
sc_kernel sc_k_cross_entropy, sc_k_cross_entropy_grad, sc_k_cross_entropy_grads, sc_k_batch_norm, sc_k_batch_norm_grad;
sc_kernel sc_k_silu_mul_grad;
/* optimizer, initial values */
sc_kernel sc_k_sgd, sc_k_adam, sc_k_sum_squares, sc_k_clip_coefficient, sc_k_count_step, sc_k_coalesce, sc_k_scale,
    sc_k_update_scale, sc_k_init_param;
/* all-gather extensions */
sc_kernel sc_k_amax;

#ifdef __cplusplus
}
#endif
#endif
