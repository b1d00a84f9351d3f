/* Pointwise kernels of mlp, one a fused group. Written by shardc; edits are lost.
 * Each value is rounded to its dtype where its op stands in the model: as_bf16(x) is x in bf16.
 * Relies on: runtime/sc_pointwise.h, runtime/schema/math.h. */
#include "sc.h"
#include "schema/math.h"
#include "sc_pointwise.h"
#include "cuda/pointwise.cuh"

extern const char sc_build_mark[];
const char sc_build_mark[] = "SHARDC_KERNELS"; /* what a build is known by */

/* mlp · forward · models/mlp.lua:24 */
struct group_relu {
    static __device__ __forceinline__ void element(sc_bf16_t &y0, sc_bf16_t x0) {
        const real a0 = sc_from_bf16(x0);
        const real v0 = as_bf16(a0 <= 0 ? 0 : a0); /* relu  mlp.lua:24 */
        y0 = sc_to_bf16(v0);
    }
};
extern "C" void sc_k_fused_relu(const sc_task *t) {
    sc_pointwise<group_relu, 1, sc_bf16_t, sc_bf16_t>(t);
}

/* mlp · backward · models/mlp.lua:24 */
struct group_relu_grad {
    static __device__ __forceinline__ void element(sc_bf16_t &y0, sc_bf16_t x0, sc_bf16_t x1) {
        const real a0 = sc_from_bf16(x0);
        const real a1 = sc_from_bf16(x1);
        const real v0 = as_bf16(a1 <= 0 ? 0 : a0); /* relu_grad  mlp.lua:24 */
        y0 = sc_to_bf16(v0);
    }
};
extern "C" void sc_k_fused_relu_grad(const sc_task *t) {
    sc_pointwise<group_relu_grad, 1, sc_bf16_t, sc_bf16_t, sc_bf16_t>(t);
}

