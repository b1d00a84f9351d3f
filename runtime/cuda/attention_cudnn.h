/* Attention by cuDNN: which tasks it computes, and what it chose for them.
 * Relies on: cuda.h.
 * Relied on by: k_attention.cu, k_attention_grad.cu, device.c, tests/gpu/test_attention_shapes.cu. */
#ifndef SC_CUDA_ATTENTION_CUDNN_H
#define SC_CUDA_ATTENTION_CUDNN_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does a query see fewer keys than causality alone would leave it? */
static inline bool sc_has_window(bool causal, int64_t before, int64_t after) {
    return before > 0 || (!causal && after > 0);
}

/* Is it cuDNN's by what it computes? other: there are a bias, sinks, or a gradient of lse. */
static inline bool sc_cudnn_computes(const sc_tensor *q, const sc_tensor *k, const sc_tensor *v, bool causal,
                                     bool documents, double dropout, bool window, double softcap, bool other) {
    return (q->dtype == BF16 || q->dtype == FP16) && !documents && !(dropout > 0) && !window && !(softcap > 0) &&
           !other && q->dims == 4 && q->shape[3] % 8 == 0 && q->shape[3] <= 128 && v->shape[3] == q->shape[3] &&
           q->shape[1] >= 64 && k->shape[1] >= 64 && (!causal || q->shape[1] == k->shape[1]);
}

/* And on this kind of GPU? */
static inline bool sc_cudnn_serves(int major) {
    return major >= 8;
}

/* The least version that computes it rightly. Until 9.15.0 the backward read beyond the keys where their number is no
 * multiple of 128, no padding mask is in its graph (there is none in ours) and a CUDA graph replays it, which ours
 * does: NVIDIA's notes on cudnn-frontend 1.16 say so, and its TransformerEngine keeps such tasks from these versions
 * too. What else we ask for (grouped heads) is older than 9.12, the first for CUDA 13. Here 9.19 and 9.26 have been run
 * on an H200, older ones not. */
static inline int sc_cudnn_least(bool backward, int64_t keys) {
    return backward && keys % 128 ? 91501 : 91200;
}

/* How many times as long our own kernels take: bench/results/2026-11-20-h200-attention.md. */
#define SC_CUDNN_FORWARD "1.7 to 2.1"
#define SC_CUDNN_BACKWARD "1.4 to 2.5"
#define SC_CUDNN_BOTH "1.5 to 2.4"

/* Launches the task, of attention or (backward) attention_grad, and says so; false: it is for the kernels here. It
 * depends on shapes, strides, types, alignment, the workspace's size, the GPU's kind and cuDNN's version, so that all
 * ranks decide alike. */
bool sc_cudnn_attention(const sc_task *t, bool backward);

typedef struct {
    bool taken;
    int engine;        /* cuDNN's number for it */
    int calls;         /* the batch, or a sample's heads, are cut into as many */
    int64_t workspace; /* bytes that it uses of the task's */
    char why[400];     /* where it is not taken */
} sc_cudnn_choice;
sc_cudnn_choice sc_cudnn_attention_choice(const sc_task *t, bool backward);

void sc_cudnn_attention_stop(sc_cuda *c);

#ifdef __cplusplus
}
#endif
#endif
