/* One GPU to measure on: its libraries, a pool of memory for operands, and the timing of kernels in graphs.
 * Relies on: calibrate.h.
 * Relied on by: the stages. */
#include "calibrate.h"
#include "schema/math.h"
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOISE = 1 << 20, MOST_CALLS = 400 };
#define LARGEST 4.2f /* that noise can be */

/* About normal, of small size, in 8 bits as `quantize` makes it: what products of random bits cost in power is what
 * they cost in a step. */
static void make_noise(sc_gpu *g) {
    static const int floats[] = {FP32, BF16, FP16, FP8_E4M3, FP8_E5M2};
    uint64_t state = 88172645463325252u;
    float *x = malloc(NOISE * sizeof *x);
    void *narrow = malloc(NOISE * sizeof(uint16_t));
    for (int i = 0; i < NOISE; i++) {
        double sum = 0;
        for (int k = 0; k < 6; k++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            sum += (double)(int64_t)state / 9223372036854775808.0;
        }
        x[i] = (float)(sum * LARGEST / 6);
    }
    for (size_t k = 0; k < sizeof floats / sizeof *floats; k++) {
        int d = floats[k];
        for (int i = 0; i < NOISE; i++) {
            if (d == BF16) ((uint16_t *)narrow)[i] = sc_to_bf16(x[i]);
            if (d == FP16) ((uint16_t *)narrow)[i] = sc_to_fp16(x[i]);
            if (d == FP8_E4M3) ((sc_fp8_e4m3_t *)narrow)[i] = sc_to_fp8_e4m3(x[i] * (448 / LARGEST));
            if (d == FP8_E5M2) ((sc_fp8_e5m2_t *)narrow)[i] = sc_to_fp8_e5m2(x[i] * (57344 / LARGEST));
        }
        SC_CUDA(cudaMalloc(&g->noise[d], NOISE * (size_t)sc_size(d)));
        SC_CUDA(cudaMemcpy(g->noise[d], d == FP32 ? x : narrow, NOISE * (size_t)sc_size(d), cudaMemcpyHostToDevice));
    }
    free(x);
    free(narrow);
}

sc_record sc_record_of_a_step(void) {
    sc_record r = {.step = 7, .seed = 1, .grad_seed = 1, .of = {{0.9f, 0.95f, 1e-8f, 0}}, .clip = 1};
    for (int k = 0; k < SC_GROUPS; k++) r.lr[k] = 1e-4f, r.weight_decay[k] = 0.1f;
    for (int k = 0; k < SC_COUNTS; k++) r.count[k] = 1000;
    return r;
}

static void make_record(sc_gpu *g) {
    sc_record r = sc_record_of_a_step();
    SC_CUDA(cudaMalloc((void **)&g->record, sizeof r));
    SC_CUDA(cudaMemcpy(g->record, &r, sizeof r, cudaMemcpyHostToDevice));
}

void sc_need(sc_cuda_library l) {
    const char *problem = sc_library_open(l);
    if (!problem) return;
    fprintf(stderr, "sc_calibrate: %s\n", problem);
    exit(1);
}

void sc_gpu_open(sc_gpu *g, int device, double share) {
    struct cudaDeviceProp p;
    size_t room, all;
    *g = (sc_gpu){.cuda = {.device = device, .rank = device, .deterministic = true, .require_cudnn = true},
                  .budget_us = 20e3};
    sc_need(SC_LIB_CUBLASLT);
    SC_CUDA(cudaSetDevice(device));
    SC_CUDA(cudaGetDeviceProperties(&p, device));
    g->cuda.major = p.major, g->cuda.minor = p.minor;
    g->cuda.multiprocessors = p.multiProcessorCount;
    g->cuda.l2_bytes = p.l2CacheSize;
    g->cuda.shared_bytes = (int)p.sharedMemPerBlockOptin;
    SC_LT(cublasLtCreate(&g->cuda.lt));
    sc_matmul_start(&g->cuda);
    sc_attention_start(&g->cuda);
    SC_CUDA(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking));
    SC_CUDA(cudaMemGetInfo(&room, &all));
    g->pool_bytes = (size_t)((double)room * share) / 4096 * 4096;
    SC_CUDA(cudaMalloc((void **)&g->pool, g->pool_bytes));
    SC_CUDA(cudaMallocHost((void **)&g->ticks, 2 * sizeof *g->ticks));
    make_noise(g);
    make_record(g);
}

void sc_gpu_close(sc_gpu *g) {
    SC_CUDA(cudaStreamSynchronize(g->stream));
    sc_attention_stop(&g->cuda);
    sc_matmul_stop(&g->cuda);
    SC_LT(cublasLtDestroy(g->cuda.lt));
}

/* ── operands ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static size_t span(const sc_tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < t->dims; d++) {
        if (!t->shape[d]) return 0;
        last += (t->shape[d] - 1) * t->stride[d];
    }
    return (size_t)(last + 1) * (size_t)sc_size(t->dtype);
}

static void fill_floats(sc_gpu *g, const sc_tensor *t, size_t bytes) {
    size_t some = NOISE * (size_t)sc_size(t->dtype);
    for (size_t at = 0; at < bytes; at += some)
        SC_CUDA(cudaMemcpyAsync((char *)t->p + at, g->noise[t->dtype], bytes - at < some ? bytes - at : some,
                                cudaMemcpyDeviceToDevice, g->stream));
}

/* Indices are those of a text, few of them frequent; without a limit they count up, with -N they number documents of N
 * tokens; an int64 is Adam's step. */
static void fill_integers(sc_gpu *g, const sc_tensor *t, size_t bytes, int64_t limit) {
    size_t n = bytes / (size_t)sc_size(t->dtype);
    char *host = calloc(1, bytes);
    for (size_t i = 0; i < n; i++) {
        double u = (double)(i * 2654435761u % 1000003) / 1000003;
        if (t->dtype == INT32)
            ((int32_t *)host)[i] = limit > 0   ? (int32_t)((double)limit * u * u * u * u)
                                   : limit < 0 ? (int32_t)((int64_t)i / -limit)
                                               : (int32_t)i;
        if (t->dtype == INT64) ((int64_t *)host)[i] = 10;
    }
    SC_CUDA(cudaMemcpyAsync(t->p, host, bytes, cudaMemcpyHostToDevice, g->stream));
    SC_CUDA(cudaStreamSynchronize(g->stream));
    free(host);
}

static sc_tensor scalar(void) {
    return (sc_tensor){.there = 1, .dtype = FP32};
}

static sc_tensor contiguous(int dtype, int64_t rows, int64_t columns) {
    return (sc_tensor){
        .there = 1, .dtype = (uint8_t)dtype, .dims = 2, .shape = {rows, columns}, .stride = {columns, 1}};
}

void sc_copy_task(sc_measured_task *m, int64_t n) {
    sc_tensor x = contiguous(BF16, 1, n);
    sc_copy_args k = {.y = x, .a = x};
    *m = (sc_measured_task){.slots = SC_SLOTS_copy, .bytes = 4.0 * (double)n};
    memcpy(&m->args, &k, sizeof k);
}

void sc_product_task(sc_measured_task *m, const sc_product *p, int64_t rows, int64_t columns, int64_t depth) {
    sc_matmul_args k = {.y = contiguous(p->y, rows, columns),
                        .a = p->trans_a ? contiguous(p->a, depth, rows) : contiguous(p->a, rows, depth),
                        .b = p->trans_b ? contiguous(p->b, columns, depth) : contiguous(p->b, depth, columns),
                        .work = {.there = 1, .dtype = BOOL, .dims = 1, .shape = {32 << 20}, .stride = {1}},
                        .trans_a = p->trans_a,
                        .trans_b = p->trans_b};
    double bytes = (double)sc_size(p->a) * (double)(rows * depth) + (double)sc_size(p->b) * (double)(depth * columns) +
                   (double)sc_size(p->y) * (double)(rows * columns);
    if (sc_size(p->a) == 1) k.scale_a = k.scale_b = scalar();
    *m = (sc_measured_task){
        .slots = SC_SLOTS_matmul, .flops = 2.0 * (double)rows * (double)columns * (double)depth, .bytes = bytes};
    memcpy(&m->args, &k, sizeof k);
}

void sc_absmax_task(sc_measured_task *m, int64_t rows, int64_t columns) {
    sc_absmax_args k = {.y = scalar(), .x = contiguous(BF16, rows, columns)};
    *m = (sc_measured_task){.op = "absmax", .slots = SC_SLOTS_absmax, .bytes = 2.0 * (double)(rows * columns)};
    memcpy(&m->args, &k, sizeof k);
}

void sc_quantize_task(sc_measured_task *m, int dtype, bool turn, bool both, int64_t rows, int64_t columns) {
    sc_quantize_args k = {.y = turn ? contiguous(dtype, columns, rows) : contiguous(dtype, rows, columns),
                          .scale = scalar(),
                          .x = contiguous(BF16, rows, columns),
                          .amax = scalar(),
                          .turn = turn,
                          .both = both};
    if (both) k.turned = contiguous(dtype, columns, rows);
    *m = (sc_measured_task){
        .op = "quantize", .slots = SC_SLOTS_quantize, .bytes = (both ? 4.0 : 3.0) * (double)(rows * columns)};
    snprintf(m->variant, sizeof m->variant, "%s", both ? "both" : turn ? "turn" : "");
    memcpy(&m->args, &k, sizeof k);
}

bool sc_place(sc_gpu *g, const sc_measured_task *m, sc_placed_task *to) {
    to->args = m->args;
    for (int k = 0; k < m->slots; k++) {
        sc_tensor *t = &to->args.t[k];
        if (!t->there) continue;
        size_t bytes = span(t), at = (g->used + 511) / 512 * 512 + m->shift[k];
        if (at + bytes > g->pool_bytes) return false;
        t->p = g->pool + at;
        g->used = at + bytes;
        if (t->dtype == INT32 || t->dtype == INT64)
            fill_integers(g, t, bytes, m->limit[k]);
        else if (g->noise[t->dtype])
            fill_floats(g, t, bytes);
        else
            SC_CUDA(cudaMemsetAsync(t->p, 0, bytes, g->stream));
    }
    to->task = (sc_task){.args = &to->args,
                         .slots = m->slots,
                         .record = g->record,
                         .library = &g->cuda,
                         .stream = g->stream,
                         .world = 1,
                         .coord = m->place,
                         .parts = 1};
    return true;
}

void sc_pool_clear(sc_gpu *g) {
    SC_CUDA(cudaStreamSynchronize(g->stream));
    g->used = g->reserved;
}

int sc_place_copies(sc_gpu *g, const sc_measured_task *m, sc_placed_task *tasks) {
    int n = 0;
    sc_pool_clear(g);
    while (n < SC_COPIES && (n == 0 || (double)(g->used - g->reserved) < 3 * (double)g->cuda.l2_bytes) &&
           sc_place(g, m, &tasks[n]))
        n++;
    return n;
}

/* ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double between(cudaEvent_t a, cudaEvent_t b) {
    float ms;
    SC_CUDA(cudaEventSynchronize(b));
    SC_CUDA(cudaEventElapsedTime(&ms, a, b));
    return (double)ms * 1e3;
}

void sc_clock_start(sc_gpu *g) {
    sc_read_ticks(&g->ticks[0], g->stream);
    SC_CUDA(cudaGetLastError());
}

/* Multiprocessors count alike only as far as they were started together: of two of them the counters tell nothing, but
 * an idle GPU gives the only block of a grid to the same one. */
double sc_clock_stop(sc_gpu *g) {
    const sc_ticks *from = &g->ticks[0], *to = &g->ticks[1];
    sc_read_ticks(&g->ticks[1], g->stream);
    SC_CUDA(cudaGetLastError());
    SC_CUDA(cudaStreamSynchronize(g->stream));
    return from->sm == to->sm ? 1e3 * (double)(to->ticks - from->ticks) / (double)(to->ns - from->ns) : 0;
}

/* A GPU at its power limit lowers its clocks within milliseconds, so kernels run slower in a step than by themselves
 * after a pause. What is measured follows upon some of a step's work. */
double sc_time_graph(sc_gpu *g, cudaGraph_t graph, int calls) {
    cudaGraphExec_t run;
    cudaEvent_t a, b;
    double sum = 0;
    enum { TIMES = 3 };
    SC_CUDA(cudaGraphInstantiate(&run, graph, 0));
    SC_CUDA(cudaEventCreate(&a));
    SC_CUDA(cudaEventCreate(&b));
    SC_CUDA(cudaGraphUpload(run, g->stream));
    if (g->step && g->hot) SC_CUDA(cudaGraphLaunch(g->step, g->stream));
    SC_CUDA(cudaGraphLaunch(run, g->stream));
    sc_clock_start(g);
    for (int k = 0; k < TIMES; k++) {
        SC_CUDA(cudaEventRecord(a, g->stream));
        SC_CUDA(cudaGraphLaunch(run, g->stream));
        SC_CUDA(cudaEventRecord(b, g->stream));
        sum += between(a, b) / calls;
    }
    g->mhz = sc_clock_stop(g);
    SC_CUDA(cudaEventDestroy(a));
    SC_CUDA(cudaEventDestroy(b));
    SC_CUDA(cudaGraphExecDestroy(run));
    return sum / TIMES;
}

/* Four fifths of the time products, one fifth copies. */
void sc_warm(sc_gpu *g) {
    static sc_measured_task m;
    sc_placed_task product;
    const size_t some = (size_t)400 << 20;
    cudaGraph_t graph;
    char *copied;
    sc_product_task(&m, &(sc_product){.a = BF16, .b = BF16, .y = BF16, .trans_b = 1}, 8192, 8192, 4096);
    if (!sc_place(g, &m, &product)) return;
    copied = g->pool + g->used;
    if (g->used + 2 * some > g->pool_bytes) return;
    sc_k_matmul(&product.task);
    SC_CUDA(cudaStreamSynchronize(g->stream));
    SC_CUDA(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 25; i++) {
        for (int k = 0; k < 2; k++) sc_k_matmul(&product.task);
        for (int k = 0; k < 2; k++)
            SC_CUDA(cudaMemcpyAsync(copied, copied + some, some, cudaMemcpyDeviceToDevice, g->stream));
    }
    SC_CUDA(cudaStreamEndCapture(g->stream, &graph));
    SC_CUDA(cudaGraphInstantiate(&g->step, graph, 0));
    g->reserved = g->used = (g->used + 2 * some + 4095) / 4096 * 4096;
    for (int i = 0; i < 50; i++) SC_CUDA(cudaGraphLaunch(g->step, g->stream));
    SC_CUDA(cudaStreamSynchronize(g->stream));
}

double sc_time(sc_gpu *g, sc_kernel *k, const sc_placed_task *tasks, int n) {
    cudaEvent_t a, b;
    cudaGraph_t graph;
    double once = 0;
    SC_CUDA(cudaEventCreate(&a));
    SC_CUDA(cudaEventCreate(&b));
    for (int u = 0; u < 2; u++) { /* the first call may make plans */
        SC_CUDA(cudaEventRecord(a, g->stream));
        k(&tasks[u % n].task);
        SC_CUDA(cudaEventRecord(b, g->stream));
        once = between(a, b);
    }
    if (g->limit_us > 0 && once > g->limit_us) {
        SC_CUDA(cudaEventDestroy(a));
        SC_CUDA(cudaEventDestroy(b));
        return once;
    }
    for (int u = 2; u < n; u++) k(&tasks[u].task);
    SC_CUDA(cudaStreamSynchronize(g->stream));
    SC_CUDA(cudaEventDestroy(a));
    SC_CUDA(cudaEventDestroy(b));
    double wanted = g->budget_us / 4 / (once > 1 ? once : 1);
    int calls = wanted < 3 ? 3 : wanted > MOST_CALLS ? MOST_CALLS : (int)wanted;
    SC_CUDA(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    for (int u = 0; u < calls; u++) k(&tasks[u % n].task);
    SC_CUDA(cudaStreamEndCapture(g->stream, &graph));
    double us = sc_time_graph(g, graph, calls);
    SC_CUDA(cudaGraphDestroy(graph));
    return us;
}

double sc_time_product(sc_gpu *g, FILE *out, const sc_product *p, int64_t rows, int64_t columns, int64_t depth) {
    static sc_measured_task m;
    sc_placed_task tasks[SC_COPIES];
    sc_product_task(&m, p, rows, columns, depth);
    int n = sc_place_copies(g, &m, tasks);
    if (!n) return 0;
    g->hot = true;
    double us = sc_time(g, sc_k_matmul, tasks, n);
    g->hot = false;
    fprintf(out, "kernel matmul|%s|%lld,%lld,%lld,1|%.0f|%.0f|%.2f|%.0f\n", p->variant, (long long)rows,
            (long long)columns, (long long)depth, m.flops, m.bytes, us, g->mhz);
    return m.flops / us * 1e6;
}
