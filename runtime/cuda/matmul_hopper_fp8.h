/* Products of 8 bits of our own for compute capability 9.0, whose results are quantized beside the multiplications.
 * Relies on: cuda.h. Relied on by: k_matmul_quantize.cu, k_matmul_hopper_fp8.cu. */
#ifndef SC_CUDA_MATMUL_HOPPER_FP8_H
#define SC_CUDA_MATMUL_HOPPER_FP8_H

#include "cuda.h"

/* Launches the task and says so; false: it is for other kernels. It depends on shapes, types, alignment and the GPU, so
 * that all ranks decide alike. */
bool sc_matmul_hopper_quantize(const sc_task *t, const sc_matmul_quantize_args *k);

#endif
