/* The functions of schema/math.h as a GPU computes them, on every 4099th float, against double on the host.
 * Relies on: check.h, schema/math.h.
 * Relied on by: make gpu-test. */
#include "check.h"

enum { STEP = 4099, COUNT = (1 << 20) - 256 }; /* 4099 * COUNT < 2^32, and some infinities and NaNs among them */

#define FUNCTIONS(F)                                                                                                   \
    F(exp, sc_exp(x), exp(v), 2.5, 0)                                                                                  \
    F(exp_falling, sc_exp_falling(-sc_abs(x)), exp(-fabs(v)), 2.5, 1.2e-38)                                            \
    F(quotient,                                                                                                        \
      sc_quotient(1.0f, 1.0f + sc_abs(x > 1e30f    ? 1e30f                                                             \
                                      : x < -1e30f ? -1e30f                                                            \
                                                   : x)),                                                              \
      1 / (1.0 + fmin(fabs(v), 1e30)), 1.6, 1e-30)                                                                     \
    F(sigmoid, sc_sigmoid(x), sigmoid(v), 4, 1.2e-38)                                                                  \
    F(tanh, sc_tanh(x), tanh(v), 2, 0)                                                                                 \
    F(gelu, sc_gelu(x), v == -INFINITY ? NAN : v * half_erfc(v), 9, 1e-36)                                             \
    F(gelu_grad, sc_gelu_grad(1, x), half_erfc(v) + (fabs(v) > 40 ? 0 : v * exp(-v * v / 2) * 0.3989422804014327), 4,  \
      0.3)                                                                                                             \
    F(gelu_tanh, sc_gelu_tanh(x), v == -INFINITY ? NAN : v * sigmoid(tanh_argument(v)), 6, 1e-6)                       \
    F(gelu_tanh_grad, sc_gelu_tanh_grad(1, x),                                                                         \
      sigmoid(tanh_argument(v)) + (fabs(v) > 30 ? 0                                                                    \
                                                : v * sigmoid(tanh_argument(v)) * sigmoid(-tanh_argument(v)) *         \
                                                      1.5957691216057308 * (1 + 3 * 0.044715 * v * v)),                \
      4, 0.3)                                                                                                          \
    F(silu_grad, sc_silu_grad(1, x), sigmoid(v) + (fabs(v) > 200 ? 0 : v * sigmoid(v) * sigmoid(-v)), 4, 0.3)          \
    F(gate, sc_gate(x), sigmoid(v), 12, 1e-3)                                                                          \
    F(silu_mul, sc_silu_mul(x, 1), v == -INFINITY ? NAN : v * sigmoid(v), 12, 1e-3)                                    \
    F(silu_mul_grad, slope_of_gate(x),                                                                                 \
      std::isinf(v) ? NAN : sigmoid(v) + (fabs(v) > 200 ? 0 : v * sigmoid(v) * sigmoid(-v)), 12, 0.3)                  \
    F(log, sc_log(x), log(v), 0.8, 0)                                                                                  \
    F(expm1, sc_expm1(x), expm1(v), 1.7, 0)                                                                            \
    F(log1p, sc_log1p(x), log1p(v), 1.6, 0)                                                                            \
    F(tan, sc_tan(x), tan(v), 2, 0)                                                                                    \
    F(exp2, sc_two_to(x), exp2(v), 0.6, 0)                                                                             \
    F(log2, sc_log2(x), log2(v), 0.6, 0)                                                                               \
    F(log10, sc_log10(x), log10(v), 0.6, 0)                                                                            \
    F(sinh, sc_sinh(x), sinh(v), 0.6, 0)                                                                               \
    F(cosh, sc_cosh(x), cosh(v), 0.6, 0)                                                                               \
    F(asinh, sc_asinh(x), asinh(v), 0.6, 0)                                                                            \
    F(acosh, sc_acosh(x), acosh(v), 0.6, 0)                                                                            \
    F(atanh, sc_atanh(x), atanh(v), 0.6, 0)                                                                            \
    F(sin, sc_sin(x), sin(v), 0.6, 0)                                                                                  \
    F(cos, sc_cos(x), cos(v), 0.6, 0)                                                                                  \
    F(asin, sc_asin(x), asin(v), 0.6, 0)                                                                               \
    F(acos, sc_acos(x), acos(v), 0.6, 0)                                                                               \
    F(atan, sc_atan(x), atan(v), 0.6, 0)                                                                               \
    F(erf, sc_erf(x), erf(v), 0.6, 0)                                                                                  \
    F(erfc, sc_erfc(x), erfc(v), 0.6, 0)                                                                               \
    F(lgamma, sc_lgamma(x), lgamma(v), 0.6, 0)                                                                         \
    F(floor, sc_whole_below(x), floor(v), 0, 0)                                                                        \
    F(ceil, sc_whole_above(x), ceil(v), 0, 0)                                                                          \
    F(trunc, sc_whole_toward_zero(x), trunc(v), 0, 0)                                                                  \
    F(rint, sc_whole_nearest(x), rint(v), 0, 0)                                                                        \
    F(as_bf16, sc_as_bf16(x), (double)sc_as_bf16((float)v), 0, 0)                                                      \
    F(to_bf16, sc_from_bf16(sc_to_bf16(x)), (double)sc_as_bf16((float)v), 0, 0)                                        \
    F(to_fp16, sc_from_fp16(sc_to_fp16(x)), (double)sc_from_fp16(sc_to_fp16((float)v)), 0, 0)

static double sigmoid(double v) {
    return v >= 0 ? 1 / (1 + exp(-v)) : exp(v) / (1 + exp(v));
}
static double half_erfc(double v) {
    return 0.5 * erfc(-v * M_SQRT1_2);
}
static double tanh_argument(double v) {
    return 1.5957691216057308 * (v + 0.044715 * v * v * v);
}

static __device__ float slope_of_gate(float x) {
    float slope, rest;
    sc_silu_mul_grad(1, x, 1, &slope, &rest);
    return slope;
}

#define KERNEL(name, call, reference, limit, floor)                                                                    \
    static __global__ void run_##name(float *y) {                                                                      \
        int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);                                                          \
        float x = sc_float((uint32_t)i * STEP);                                                                        \
        if (i < COUNT) y[i] = call;                                                                                    \
    }                                                                                                                  \
    static double wanted_##name(double v) {                                                                            \
        return reference;                                                                                              \
    }
FUNCTIONS(KERNEL)

/* In units of the last place of what is wanted; results that are infinite or no number must be so exactly. */
static double off(float y, double want) {
    if (std::isnan(want)) return std::isnan(y) ? 0 : INFINITY;
    if (fabs(want) > 3.40282357e38 || std::isinf(y)) return y == (float)want ? 0 : INFINITY;
    int e;
    frexp(want, &e);
    return fabs((double)y - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

static void scan(const char *name, void (*run)(float *), double (*wanted)(double), double limit, double floor) {
    std::vector<float> y(COUNT);
    float *on_device;
    double worst = 0, at = 0;
    char line[120];
    SC_CUDA(cudaMalloc((void **)&on_device, COUNT * sizeof(float)));
    run<<<(COUNT + 255) / 256, 256>>>(on_device);
    SC_LAUNCHED();
    SC_CUDA(cudaMemcpy(y.data(), on_device, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
    SC_CUDA(cudaFree(on_device));
    for (int i = 0; i < COUNT; i++) {
        double x = sc_float((uint32_t)i * STEP), want = wanted(x);
        if (fabs(want) < floor && fabs((double)y[i]) <= floor) continue;
        double e = off(y[i], want);
        if (e > worst) worst = e, at = x;
    }
    snprintf(line, sizeof line, "%.2f ulp at %a, %.1f allowed", worst, at, limit);
    verdict(worst <= limit, name, line);
}

int main() {
#define SCAN(name, call, reference, limit, floor) scan(#name, run_##name, wanted_##name, limit, floor);
    FUNCTIONS(SCAN)
    return closing();
}
