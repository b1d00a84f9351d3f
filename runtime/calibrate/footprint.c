/* What a process holds of a GPU's memory besides its arena: the context, modules and libraries, graphs, communicators.
 * Each is the difference of what is in use on the GPU, as NVML tells it, before and after; nobody else may be using it.
 * Relies on: calibrate.h, NVML (libnvidia-ml.so.1, which comes with the driver), NCCL.
 * Relied on by: main.c. */
#include "calibrate.h"
#include "cuda/comm.h"
#include "members.h"
#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ── bytes in use ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nvml_process;

static int (*memory_of)(void *device, nvml_memory *m);
static int (*processes_of)(void *device, unsigned *n, nvml_process *p);
static void *nvml_device;

/* CUDA's device by its place: NVML counts all GPUs, CUDA those of CUDA_VISIBLE_DEVICES. */
static bool open_nvml(int index) {
    char bus[32];
    void *l = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*start)(void) = l ? (int (*)(void))dlsym(l, "nvmlInit_v2") : NULL;
    int (*device)(const char *, void **) =
        l ? (int (*)(const char *, void **))dlsym(l, "nvmlDeviceGetHandleByPciBusId_v2") : NULL;
    memory_of = l ? (int (*)(void *, nvml_memory *))dlsym(l, "nvmlDeviceGetMemoryInfo") : NULL;
    processes_of =
        l ? (int (*)(void *, unsigned *, nvml_process *))dlsym(l, "nvmlDeviceGetComputeRunningProcesses_v3") : NULL;
    SC_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, index));
    return start && device && memory_of && !start() && !device(bus, &nvml_device);
}

static double used(void) {
    nvml_memory m = {0};
    return memory_of(nvml_device, &m) ? 0 : (double)m.used;
}

static double used_by_process(void) { /* 0: the driver does not tell */
    nvml_process p[64];
    unsigned n = 64;
    if (!processes_of || processes_of(nvml_device, &n, p)) return 0;
    for (unsigned i = 0; i < n; i++)
        if (p[i].pid == (unsigned)getpid() && p[i].used != ~0ull) return (double)p[i].used;
    return 0;
}

/* By the driver's figure for this process, or where it tells none (in a container, for one) by the GPU's. */
static double last, last_of_process;
static void line(FILE *out, const char *what) {
    double now = used(), of_process = used_by_process();
    bool told = of_process > 0;
    fprintf(out, "library %s|%.0f\n", what, told ? of_process - last_of_process : now - last);
    fflush(out);
    last = now;
    last_of_process = of_process;
}

/* Memory that is not the library's was taken. */
static void took(double bytes) {
    last += bytes;
    last_of_process += bytes;
}

/* ── one GPU ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */

static void run_tasks(sc_gpu *g, const char *path, bool attention, bool matmul) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = path ? fopen(path, "r") : NULL;
    sc_measured_task *m = malloc(sizeof *m);
    sc_placed_task task;
    while (f && getline(&text, &size, f) >= 0) {
        if (!sc_task_read(text, m) || !sc_kernel_named(m->op)) continue;
        bool is_attention = !strncmp(m->op, "attention", 9), is_matmul = !strcmp(m->op, "matmul");
        if (is_attention != attention || is_matmul != matmul) continue;
        sc_pool_clear(g);
        if (!sc_place(g, m, &task)) continue;
        sc_kernel_named(m->op)(&task.task);
        SC_CUDA(cudaStreamSynchronize(g->stream));
    }
    free(text);
    free(m);
    if (f) fclose(f);
}

enum { NODES = 2000 };

static void hold_graph(sc_gpu *g) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    sc_measured_task m;
    sc_placed_task copy;
    sc_copy_task(&m, 256);
    sc_pool_clear(g);
    if (!sc_place(g, &m, &copy)) return;
    SC_CUDA(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < NODES; i++) sc_k_copy(&copy.task);
    SC_CUDA(cudaStreamEndCapture(g->stream, &graph));
    SC_CUDA(cudaGraphInstantiate(&run, graph, 0));
    SC_CUDA(cudaGraphUpload(run, g->stream));
    SC_CUDA(cudaGraphLaunch(run, g->stream));
    SC_CUDA(cudaStreamSynchronize(g->stream));
}

static int no_nvml(void) {
    fprintf(stderr, "sc_calibrate: NVML (libnvidia-ml.so.1) does not answer: footprints are left out\n");
    return 0;
}

static int one_gpu(const sc_wish *w, FILE *out) {
    sc_gpu g;
    if (!open_nvml(0)) return no_nvml();
    last = used();
    SC_CUDA(cudaSetDevice(0));
    SC_CUDA(cudaFree(NULL));
    line(out, "context");
    sc_gpu_open(&g, 0, 0.5);
    took((double)g.pool_bytes + 8 * (1 << 20)); /* and the noise */
    line(out, "libraries opened");
    run_tasks(&g, w->tasks, false, false);
    line(out, "kernels");
    run_tasks(&g, w->tasks, false, true);
    line(out, "matmul");
    run_tasks(&g, w->tasks, true, false);
    line(out, "attention");
    hold_graph(&g);
    line(out, "graph of 2000");
    return 0;
}

/* ── communicators ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_common *c;
    int rank, world;
    FILE *out;
    char *arena;
    cudaStream_t stream;
} member;

enum { MEMBER_ARENA = 1 << 30 };

/* All ranks have come as far: what has been taken since is `what`. */
static void after(const member *m, const char *what) {
    SC_CUDA(cudaDeviceSynchronize());
    sc_members_meet(m->c, m->world);
    if (!m->rank) line(m->out, what);
    sc_members_meet(m->c, m->world);
}

static void share_arena(const member *m, ncclComm_t comm) {
    ncclWindow_t window;
    SC_NCCL(ncclCommWindowRegister(comm, m->arena, MEMBER_ARENA, &window, NCCL_WIN_COLL_SYMMETRIC));
}

static void gather(const member *m, ncclComm_t comm) {
    size_t n = MEMBER_ARENA / 16 / (size_t)m->world;
    SC_NCCL(ncclAllGather(m->arena, m->arena + MEMBER_ARENA / 2, n, ncclBfloat16, comm, m->stream));
}

static void scatter(const member *m, ncclComm_t comm) {
    size_t n = MEMBER_ARENA / 16 / (size_t)m->world;
    SC_NCCL(ncclReduceScatter(m->arena + MEMBER_ARENA / 2, m->arena, n, ncclFloat32, ncclSum, comm, m->stream));
}

/* Of half of the ranks, where these are several: what a mesh of two dimensions makes. */
static ncclComm_t further(const member *m, ncclComm_t all, sc_policy policy) {
    ncclConfig_t config = sc_comms_config(policy, true);
    int n = m->world > 2 ? m->world / 2 : m->world;
    ncclComm_t comm;
    SC_NCCL(ncclCommSplit(all, m->rank / n, m->rank % n, &comm, &config));
    share_arena(m, comm);
    return comm;
}

static int communicate(sc_common *c, int rank, int world, FILE *out) {
    ncclConfig_t sums = sc_comms_config(SC_SUMS, true), gathering = sc_comms_config(SC_GATHERS, true);
    member m = {.c = c, .rank = rank, .world = world, .out = out};
    ncclComm_t reductions, gathers;
    if (!open_nvml(rank)) return no_nvml();
    sc_comms_pin();
    sc_need(SC_LIB_NCCL);
    SC_CUDA(cudaSetDevice(rank));
    SC_CUDA(cudaFree(NULL));
    SC_CUDA(cudaStreamCreate(&m.stream));
    if (!rank) SC_NCCL(ncclGetUniqueId(&c->id));
    sc_members_meet(c, world);
    last = used();
    last_of_process = used_by_process();
    sc_members_meet(c, world);
    SC_NCCL(ncclCommInitRankConfig(&reductions, world, c->id, rank, &sums));
    after(&m, "NCCL first communicator");
    SC_NCCL(ncclCommSplit(reductions, 0, rank, &gathers, &gathering));
    after(&m, "NCCL second communicator");
    SC_NCCL(ncclMemAlloc((void **)&m.arena, MEMBER_ARENA));
    took(MEMBER_ARENA);
    after(&m, "NCCL arena");
    share_arena(&m, gathers);
    after(&m, "NCCL first window");
    share_arena(&m, reductions);
    after(&m, "NCCL second window");
    gather(&m, gathers);
    after(&m, "NCCL gather");
    scatter(&m, reductions);
    after(&m, "NCCL scatter");
    SC_NCCL(ncclAllReduce(m.arena, m.arena, 64, ncclFloat32, ncclSum, reductions, m.stream));
    after(&m, "NCCL reduce");
    gather(&m, further(&m, reductions, SC_GATHERS));
    after(&m, "further gathers");
    scatter(&m, further(&m, reductions, SC_SUMS));
    after(&m, "further sums");
    return 0;
}

static int run_member(const sc_round *r, sc_common *c, int rank) {
    return r->world == 1 ? one_gpu(r->w, r->out) : communicate(c, rank, r->world, r->out);
}

int sc_footprint_run(const sc_wish *w, FILE *out) {
    int bad = 0;
    for (int world = 1; world <= w->world && world <= 8 && !bad; world *= 2) {
        fprintf(out, "world %d\n", world);
        bad = sc_members_run(&(sc_round){w, out, world}, run_member);
    }
    return bad;
}
