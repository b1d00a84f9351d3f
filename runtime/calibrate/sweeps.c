/* What a GPU does with sizes that no model asks for: copies and products by size, what a launch costs, the way to the
 * host.
 * Relies on: calibrate.h.
 * Relied on by: main.c. */
#include "calibrate.h"
#include <string.h>

/* ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* What a pointwise kernel does, whose arithmetic hides behind its bytes. */
static double time_copy(sc_gpu *g, int64_t n) {
    sc_measured_task m;
    sc_placed_task tasks[8];
    int placed = 0;
    sc_copy_task(&m, n);
    sc_pool_clear(g);
    while (placed < 8 && (!placed || (double)(g->used - g->reserved) < 3 * (double)g->cuda.l2_bytes) &&
           sc_place(g, &m, &tasks[placed]))
        placed++;
    return placed ? sc_time(g, sc_k_copy, tasks, placed) : 0;
}

static void copies(sc_gpu *g, FILE *out) {
    double best = 0;
    for (int64_t bytes = 4096; bytes <= (int64_t)4 << 30; bytes *= 4) {
        double us = time_copy(g, bytes / 4);
        if (us <= 0) break;
        if ((double)bytes / us > best) best = (double)bytes / us;
        fprintf(out, "kernel fused|||0|%lld|%.2f\n", (long long)bytes, us);
    }
    fprintf(out, "value memory_bandwidth|%.4g\n", best * 1e6);
}

/* The functions that pointwise kernels compute, where arithmetic may not hide. */
static void functions(sc_gpu *g, FILE *out) {
    const int64_t n = 64 << 20;
    for (const sc_function *f = sc_functions; f->op; f++) {
        sc_measured_task m;
        sc_placed_task task;
        sc_copy_task(&m, n);
        sc_tensor y = ((const sc_copy_args *)&m.args)->y;
        for (m.slots = 0; m.slots < f->tensors; m.slots++) m.args.t[m.slots] = y;
        sc_pool_clear(g);
        if (!sc_place(g, &m, &task)) return;
        double us = sc_time(g, f->kernel, &task, 1);
        fprintf(out, "kernel %s|||0|%lld|%.2f\n", f->op, (long long)(2 * n * f->tensors), us);
    }
}

/* ── products ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Classes of sizes: tokens by widths, widths by tokens. */
static void products(sc_gpu *g, FILE *out) {
    static const sc_product forward[] = {{BF16, BF16, BF16, 0, 0, "bf16 nn"},
                                         {BF16, BF16, BF16, 0, 1, "bf16 nt"},
                                         {FP16, FP16, FP16, 0, 1, "fp16 nt"},
                                         {FP16, FP16, FP16, 0, 0, "fp16 nn"}};
    static const sc_product weights[] = {{BF16, BF16, FP32, 1, 0, "bf16>fp32 tn"},
                                         {BF16, BF16, BF16, 1, 0, "bf16 tn"},
                                         {FP16, FP16, FP32, 1, 0, "fp16>fp32 tn"}};
    static const sc_product exact[] = {
        {FP32, FP32, FP32, 0, 0, "fp32 nn"}, {FP32, FP32, FP32, 0, 1, "fp32 nt"}, {FP32, FP32, FP32, 1, 0, "fp32 tn"}};
    static const int64_t tokens[] = {128, 1024, 8192, 65536}, widths[] = {512, 2048, 8192};
    double peak = 0;
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 4; t++)
            for (int n = 0; n < 3; n++)
                for (int k = 0; k < 3; k++) {
                    if (i > 1 && (n == 1 || k == 1)) continue;
                    double x = sc_time_product(g, out, &forward[i], tokens[t], widths[n], widths[k]);
                    if (i < 2 && x > peak) peak = x;
                }
    for (int i = 0; i < 3; i++)
        for (int t = 1; t < 4; t++)
            for (int n = 0; n < 3; n++)
                for (int k = 0; k < 3; k++)
                    if (i < 2 || (n != 1 && k != 1))
                        sc_time_product(g, out, &weights[i], widths[n], widths[k], tokens[t]);
    fprintf(out, "value flops.bf16|%.4g\n", peak);
    peak = 0;
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 3; t++)
            for (int n = 0; n < 3; n += 2) {
                int64_t rows = i == 2 ? widths[n] : tokens[t], depth = i == 2 ? tokens[t] : widths[n];
                double x = sc_time_product(g, out, &exact[i], rows, widths[n / 2 + 1] / 2, depth);
                if (x > peak) peak = x;
            }
    fprintf(out, "value flops.fp32|%.4g\n", peak);
}

/* ── clocks ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The highest clock, and the one that the GPU sustains in a step's mix of products and copies: the mean over the last
 * half of some seconds. */
static void clocks(sc_gpu *g, const sc_wish *w, FILE *out) {
    const int launches = w->trial ? 2 : 80; /* of some 50 ms: the power limit holds the clock after one second */
    int khz = 0;
    SC_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, g->cuda.device));
    if (!g->step) return;
    for (int i = 0; i < launches; i++) {
        if (i == launches / 2) sc_clock_start(g);
        SC_CUDA(cudaGraphLaunch(g->step, g->stream));
    }
    double mhz = sc_clock_stop(g);
    if (mhz > 0) fprintf(out, "value clock_mhz|%.0f\nvalue step_mhz|%.0f\n", khz * 1e-3, mhz);
}

/* ── launches ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { LAUNCHES = 2000 };

/* Of a kernel that does next to nothing, after another one: in a graph, and by itself. */
static void launches(sc_gpu *g, FILE *out) {
    sc_measured_task m;
    sc_placed_task copy;
    cudaEvent_t a, b;
    float ms;
    sc_copy_task(&m, 256);
    sc_pool_clear(g);
    if (!sc_place(g, &m, &copy)) return;
    fprintf(out, "value launch_us|%.2f\n", sc_time(g, sc_k_copy, &copy, 1));
    SC_CUDA(cudaEventCreate(&a));
    SC_CUDA(cudaEventCreate(&b));
    SC_CUDA(cudaEventRecord(a, g->stream));
    for (int i = 0; i < LAUNCHES; i++) sc_k_copy(&copy.task);
    SC_CUDA(cudaEventRecord(b, g->stream));
    SC_CUDA(cudaEventSynchronize(b));
    SC_CUDA(cudaEventElapsedTime(&ms, a, b));
    fprintf(out, "value issue_us|%.2f\n", (double)ms * 1e3 / LAUNCHES);
}

/* Of an event on one stream that waits for one on another, in a graph. */
static void crossings(sc_gpu *g, FILE *out) {
    cudaStream_t other;
    cudaEvent_t here, there;
    cudaGraph_t graph;
    sc_measured_task m;
    sc_placed_task copy;
    enum { CROSSINGS = 200 };
    sc_copy_task(&m, 256);
    sc_pool_clear(g);
    if (!sc_place(g, &m, &copy)) return;
    sc_task far = copy.task;
    SC_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    SC_CUDA(cudaEventCreateWithFlags(&here, cudaEventDisableTiming));
    SC_CUDA(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
    far.stream = other;
    SC_CUDA(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CROSSINGS; i++) {
        sc_k_copy(&copy.task);
        SC_CUDA(cudaEventRecord(here, g->stream));
        SC_CUDA(cudaStreamWaitEvent(other, here, 0));
        sc_k_copy(&far);
        SC_CUDA(cudaEventRecord(there, other));
        SC_CUDA(cudaStreamWaitEvent(g->stream, there, 0));
    }
    SC_CUDA(cudaStreamEndCapture(g->stream, &graph));
    fprintf(out, "value crossing_us|%.2f\n", sc_time_graph(g, graph, 2 * CROSSINGS));
    SC_CUDA(cudaGraphDestroy(graph));
    SC_CUDA(cudaStreamDestroy(other));
}

/* ── host ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double time_transfer(sc_gpu *g, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaEvent_t a, b;
    float ms, best = 1e30f;
    SC_CUDA(cudaEventCreate(&a));
    SC_CUDA(cudaEventCreate(&b));
    for (int i = 0; i < 4; i++) {
        SC_CUDA(cudaEventRecord(a, g->stream));
        SC_CUDA(cudaMemcpyAsync(to, from, bytes, kind, g->stream));
        SC_CUDA(cudaEventRecord(b, g->stream));
        SC_CUDA(cudaEventSynchronize(b));
        SC_CUDA(cudaEventElapsedTime(&ms, a, b));
        if (ms < best) best = ms;
    }
    SC_CUDA(cudaEventDestroy(a));
    SC_CUDA(cudaEventDestroy(b));
    return (double)best * 1e3;
}

static void transfers(sc_gpu *g, FILE *out) {
    const size_t most = (size_t)256 << 20;
    void *host;
    double us = 0;
    SC_CUDA(cudaHostAlloc(&host, most, cudaHostAllocDefault));
    memset(host, 1, most);
    for (size_t bytes = 64 << 10; bytes <= most; bytes *= 8) {
        us = time_transfer(g, host, g->pool, bytes, cudaMemcpyDeviceToHost);
        fprintf(out, "kernel offload|||0|%zu|%.2f\n", bytes, us);
        fprintf(out, "kernel fetch|||0|%zu|%.2f\n", bytes,
                time_transfer(g, g->pool, host, bytes, cudaMemcpyHostToDevice));
    }
    us = time_transfer(g, host, g->pool, most, cudaMemcpyDeviceToHost);
    fprintf(out, "value host_bandwidth|%.4g\n", (double)most / us * 1e6);
    SC_CUDA(cudaFreeHost(host));
}

static void identify(FILE *out) {
    struct cudaDeviceProp p;
    int driver = 0, runtime = 0, gpus = 0;
    size_t room, all;
    SC_CUDA(cudaGetDeviceProperties(&p, 0));
    SC_CUDA(cudaDriverGetVersion(&driver));
    SC_CUDA(cudaRuntimeGetVersion(&runtime));
    SC_CUDA(cudaMemGetInfo(&room, &all));
    SC_CUDA(cudaGetDeviceCount(&gpus));
    fprintf(out, "device %s|%d|%d|%d|%d|%d\n", p.name, p.major * 10 + p.minor, driver, runtime, gpus,
            p.multiProcessorCount);
    fprintf(out, "value total_bytes|%zu\n", all);
}

int sc_quick_run(const sc_wish *w, FILE *out) {
    sc_gpu g;
    identify(out);
    sc_gpu_open(&g, 0, 0.7);
    launches(&g, out);
    double us = time_copy(&g, (int64_t)1 << 30);
    if (us > 0) fprintf(out, "value memory_bandwidth|%.4g\n", (double)((int64_t)4 << 30) / us * 1e6);
    transfers(&g, out);
    sc_warm(&g);
    clocks(&g, w, out);
    sc_gpu_close(&g);
    return 0;
}

int sc_device_run(const sc_wish *w, FILE *out) {
    sc_gpu g;
    identify(out);
    sc_gpu_open(&g, 0, 0.7);
    if (w->trial) g.budget_us /= 20;
    launches(&g, out);
    crossings(&g, out);
    copies(&g, out);
    sc_warm(&g);
    clocks(&g, w, out);
    functions(&g, out);
    products(&g, out);
    transfers(&g, out);
    sc_gpu_close(&g);
    return 0;
}
