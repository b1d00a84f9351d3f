/* Attention by cuDNN: which tasks it computes, and what it chose for them.
 * Relies on: cuda.h.
 * Relied on by: k_attention.cu, k_attention_grad.cu, tests/gpu/test_attention_shapes.cu. */
#ifndef SC_CUDA_ATTENTION_CUDNN_H
#define SC_CUDA_ATTENTION_CUDNN_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Launches the task and says so; false: it is for the kernels here. It depends on shapes, strides, types, alignment,
 * the workspace's size, the GPU's kind and cuDNN's version, so that all ranks decide alike. */
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
