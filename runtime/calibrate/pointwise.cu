/* Pointwise kernels as the compiler writes them, a function each, for what their arithmetic costs beyond their bytes.
 * Relies on: pointwise.cuh, schema/math.h.
 * Relied on by: sweeps.c. */
#include "schema/math.h"
#include "sc_pointwise.h"
#include "cuda/pointwise.cuh"
#include "calibrate.h"

#define ONE(name, f)                                                                                                   \
    struct name##_group {                                                                                              \
        static __device__ __forceinline__ void element(sc_bf16_t &y0, sc_bf16_t x0) {                                  \
            const real a = sc_from_bf16(x0);                                                                           \
            y0 = sc_to_bf16(f);                                                                                        \
        }                                                                                                              \
    };                                                                                                                 \
    static void name(const sc_task *t) {                                                                               \
        sc_pointwise<name##_group, 1, sc_bf16_t, sc_bf16_t>(t);                                                        \
    }
#define TWO(name, f)                                                                                                   \
    struct name##_group {                                                                                              \
        static __device__ __forceinline__ void element(sc_bf16_t &y0, sc_bf16_t x0, sc_bf16_t x1) {                    \
            const real a = sc_from_bf16(x0), b = sc_from_bf16(x1);                                                     \
            y0 = sc_to_bf16(f);                                                                                        \
        }                                                                                                              \
    };                                                                                                                 \
    static void name(const sc_task *t) {                                                                               \
        sc_pointwise<name##_group, 1, sc_bf16_t, sc_bf16_t, sc_bf16_t>(t);                                             \
    }

ONE(gelu, sc_gelu(a))
TWO(gelu_grad, sc_gelu_grad(a, b))
ONE(gelu_tanh, sc_gelu_tanh(a))
TWO(gelu_tanh_grad, sc_gelu_tanh_grad(a, b))
ONE(silu, a *sc_sigmoid(a))
TWO(silu_grad, sc_silu_grad(a, b))
TWO(silu_mul, sc_silu_mul(a, b))
ONE(sigmoid, sc_sigmoid(a))
ONE(tanh, sc_tanh(a))
ONE(exp, sc_exp(a))
ONE(log, sc_log(a))
ONE(sqrt, sc_sqrt(a))

#define FUNCTION(name, tensors)                                                                                        \
    { #name, name, tensors }
extern "C" const sc_function sc_functions[] = {
    FUNCTION(gelu, 2), FUNCTION(gelu_grad, 3), FUNCTION(gelu_tanh, 2), FUNCTION(gelu_tanh_grad, 3),
    FUNCTION(silu, 2), FUNCTION(silu_grad, 3), FUNCTION(silu_mul, 3),  FUNCTION(sigmoid, 2),
    FUNCTION(tanh, 2), FUNCTION(exp, 2),       FUNCTION(log, 2),       FUNCTION(sqrt, 2),
    {NULL, NULL, 0},
};
