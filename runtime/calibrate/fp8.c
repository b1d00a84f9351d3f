/* What a GPU does in 8 bits, on sizes that no model asks for: products of e4m3 and e5m2, and what makes their operands,
 * `absmax` and `quantize`.
 * Relies on: calibrate.h. Relied on by: main.c. */
#include "calibrate.h"

static const int64_t tokens[] = {128, 1024, 8192, 65536}, widths[] = {512, 2048, 8192};
enum { TOKENS = 4, WIDTHS = 3 };

/* Kernels of 8 bits read both operands along the inner dimension, so all are "nt": results are tokens by widths,
 * weights' gradients widths by widths. A linear's backward multiplies e5m2 by e4m3, or the other way round where the
 * weight is [inputs, outputs]. */
static void products(sc_gpu *g, FILE *out) {
    static const sc_product results[] = {{FP8_E4M3, FP8_E4M3, BF16, 0, 1, "fp8_e4m3>bf16 nt"},
                                         {FP8_E5M2, FP8_E4M3, BF16, 0, 1, "fp8_e5m2*fp8_e4m3>bf16 nt"},
                                         {FP8_E4M3, FP8_E4M3, FP32, 0, 1, "fp8_e4m3>fp32 nt"},
                                         {FP8_E5M2, FP8_E4M3, FP32, 0, 1, "fp8_e5m2*fp8_e4m3>fp32 nt"}};
    static const sc_product weights[] = {{FP8_E5M2, FP8_E4M3, FP32, 0, 1, "fp8_e5m2*fp8_e4m3>fp32 nt"},
                                         {FP8_E4M3, FP8_E5M2, FP32, 0, 1, "fp8_e4m3*fp8_e5m2>fp32 nt"},
                                         {FP8_E5M2, FP8_E4M3, BF16, 0, 1, "fp8_e5m2*fp8_e4m3>bf16 nt"},
                                         {FP8_E4M3, FP8_E5M2, BF16, 0, 1, "fp8_e4m3*fp8_e5m2>bf16 nt"}};
    double peak = 0;
    for (int i = 0; i < 4; i++) /* a model in bf16 has the first two of each; of the others, fewer sizes */
        for (int t = 0; t < TOKENS; t++)
            for (int n = 0; n < WIDTHS; n++)
                for (int k = 0; k < WIDTHS; k++) {
                    if (i > 1 && (n == 1 || k == 1)) continue;
                    double x = sc_time_product(g, out, &results[i], tokens[t], widths[n], widths[k]);
                    if (x > peak) peak = x;
                    if (t) sc_time_product(g, out, &weights[i], widths[n], widths[k], tokens[t]);
                }
    fprintf(out, "value flops.fp8|%.4g\n", peak);
}

/* Prints "kernel absmax|..." or "kernel quantize|...": points of a curve over bytes. */
static void time_task(sc_gpu *g, FILE *out, const sc_measured_task *m) {
    sc_placed_task tasks[SC_COPIES];
    int n = sc_place_copies(g, m, tasks);
    if (!n) return;
    double us = sc_time(g, sc_kernel_named(m->op), tasks, n);
    fprintf(out, "kernel %s|%s||0|%.0f|%.2f|%.0f\n", m->op, m->variant, m->bytes, us, g->mhz);
}

static void operands(sc_gpu *g, FILE *out) {
    static sc_measured_task m;
    for (int t = 0; t < TOKENS; t++)
        for (int n = 0; n < WIDTHS; n++) {
            sc_absmax_task(&m, tokens[t], widths[n]);
            time_task(g, out, &m);
            for (int k = 0; k < 6; k++) {
                sc_quantize_task(&m, k / 3 ? FP8_E5M2 : FP8_E4M3, k % 3 == 1, k % 3 == 2, tokens[t], widths[n]);
                time_task(g, out, &m);
            }
        }
}

int sc_fp8_run(const sc_wish *w, FILE *out) {
    sc_gpu g;
    sc_gpu_open(&g, 0, 0.7);
    if (10 * g.cuda.major + g.cuda.minor >= 89) { /* others have no such products, and none are compiled for them */
        if (w->trial) g.budget_us /= 20;
        operands(&g, out);
        if (!w->trial) sc_warm(&g);
        products(&g, out);
    }
    sc_gpu_close(&g);
    return 0;
}
