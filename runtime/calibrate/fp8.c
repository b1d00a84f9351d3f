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

/* ── power ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Prints "sustained VARIANT|flops|bytes|us|MHz": what a large product takes that follows itself for seconds, and the
 * clock that the power limit leaves it. From bf16 beside it follow the joules of a FLOP in 8 bits (bench/times.py). */
static void sustain(sc_gpu *g, const sc_wish *w, FILE *out) {
    static const sc_product products[] = {{BF16, BF16, BF16, 0, 1, "bf16 nt"},
                                          {FP8_E4M3, FP8_E4M3, BF16, 0, 1, "fp8_e4m3>bf16 nt"},
                                          {FP8_E5M2, FP8_E4M3, BF16, 0, 1, "fp8_e5m2*fp8_e4m3>bf16 nt"}};
    enum { SIDE = 8192, CALLS = 40 };       /* some 30 ms in 8 bits */
    const int launches = w->trial ? 1 : 50; /* once before it counts: the limit holds the clock after one second */
    for (int i = 0; i < 3; i++) {
        static sc_measured_task m;
        sc_placed_task task;
        cudaGraph_t graph;
        cudaGraphExec_t run;
        cudaEvent_t a, b;
        float ms;
        sc_product_task(&m, &products[i], SIDE, SIDE, SIDE);
        sc_pool_clear(g);
        if (!sc_place(g, &m, &task)) return;
        sc_k_matmul(&task.task); /* makes its plan */
        SC_CUDA(cudaStreamSynchronize(g->stream));
        SC_CUDA(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
        for (int k = 0; k < CALLS; k++) sc_k_matmul(&task.task);
        SC_CUDA(cudaStreamEndCapture(g->stream, &graph));
        SC_CUDA(cudaGraphInstantiate(&run, graph, 0));
        SC_CUDA(cudaEventCreate(&a));
        SC_CUDA(cudaEventCreate(&b));
        for (int k = 0; k < launches; k++) SC_CUDA(cudaGraphLaunch(run, g->stream));
        sc_clock_start(g);
        SC_CUDA(cudaEventRecord(a, g->stream));
        for (int k = 0; k < launches; k++) SC_CUDA(cudaGraphLaunch(run, g->stream));
        SC_CUDA(cudaEventRecord(b, g->stream));
        double mhz = sc_clock_stop(g);
        SC_CUDA(cudaEventElapsedTime(&ms, a, b));
        fprintf(out, "sustained %s|%.0f|%.0f|%.2f|%.0f\n", products[i].variant, m.flops, m.bytes,
                (double)ms * 1e3 / (launches * CALLS), mhz);
        SC_CUDA(cudaEventDestroy(a));
        SC_CUDA(cudaEventDestroy(b));
        SC_CUDA(cudaGraphExecDestroy(run));
        SC_CUDA(cudaGraphDestroy(graph));
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
        sustain(&g, w, out);
    }
    sc_gpu_close(&g);
    return 0;
}
