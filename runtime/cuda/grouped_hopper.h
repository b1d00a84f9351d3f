/* Products of groups on compute capability 9.0. Each launches the task and says so; false: it is for the kernels for
 * any GPU. It depends on shapes, types and alignment, so that all ranks decide alike. Relies on: cuda.h. Relied on by:
 * k_grouped.cu, k_grouped_hopper.cu, k_grouped_hopper_fp8.cu. */
#ifndef SC_GROUPED_HOPPER_H
#define SC_GROUPED_HOPPER_H

#include "cuda.h"

bool sc_grouped_hopper(const sc_task *t, const sc_grouped_matmul_args *k);
bool sc_grouped_hopper_grad(const sc_task *t, const sc_grouped_matmul_grad_args *k);
/* Of 8 bits. */
bool sc_grouped_hopper_fp8(const sc_task *t, const sc_grouped_matmul_args *k);
bool sc_grouped_hopper_fp8_grad(const sc_task *t, const sc_grouped_matmul_grad_args *k);

#endif
