/* A rank's GPU: which one it is, whether this program can use it, and the libraries that go with it. What is wrong is
 * said in one sentence by one rank, before anything is made on any GPU.
 * Relies on: rank.h, library.h, attention_cudnn.h, common/job.h. Relied on by: rank.c. */
#include "../common/job.h"
#include "../schema/attention.h"
#include "attention_cudnn.h"
#include "library.h"
#include "rank.h"
#include <cublasLt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── is there a GPU for every rank? ──────────────────────────────────────────────────────────────────────────────────
 */
static const char *remedy(cudaError_t e) {
    switch (e) {
    case cudaErrorDevicesUnavailable:
        return "another process holds it alone, or its compute mode forbids use: see nvidia-smi and nvidia-smi -q -d "
               "COMPUTE";
    case cudaErrorMemoryAllocation: return "its memory is full before this program begins: see nvidia-smi";
    case cudaErrorSystemNotReady: return "its switches are not ready: is the service nvidia-fabricmanager running?";
    case cudaErrorSystemDriverMismatch:
        return "the driver's library and its kernel module differ: restart the machine, or install the driver again";
    case cudaErrorCompatNotSupportedOnDevice:
        return "take CUDA's forward compatibility folder (compat) out of LD_LIBRARY_PATH";
    case cudaErrorECCUncorrectable: return "its memory is damaged: see nvidia-smi -q, reset or replace it";
    default: return "see nvidia-smi, and dmesg for messages of the driver";
    }
}

static int none(char *why, size_t n, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, n, fmt, args);
    va_end(args);
    return 0;
}

int sc_visible_gpus(const char *otherwise, char *why, size_t n) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int gpus = 0, driver = 0;
    cudaError_t e = cudaGetDeviceCount(&gpus);
    if (cudaDriverGetVersion(&driver) || !driver)
        return none(why, n, "the GPU's driver is not there (libcuda.so.1): see nvidia-smi, install the driver, or %s",
                    otherwise);
    if (e == cudaErrorInsufficientDriver)
        return none(why, n,
                    "the GPU's driver serves CUDA %d.%d, and this program was built with CUDA %d.%d: update the driver",
                    driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (e == cudaErrorNoDevice || (e == cudaSuccess && gpus == 0))
        return none(why, n, "no GPU is visible (CUDA_VISIBLE_DEVICES is %s%s%s): see nvidia-smi, or %s",
                    visible ? "'" : "", visible ? visible : "not set", visible ? "'" : "", otherwise);
    if (e) return none(why, n, "the GPUs cannot be used: %s; %s", cudaGetErrorString(e), remedy(e));
    return gpus;
}

/* A launcher may have left each process one GPU; else all see all of them. */
static int device_of(sc_rank *r) {
    char why[512];
    int n = sc_visible_gpus("build with --target cpu", why, sizeof why);
    if (!n) sc_stop_all(r, "shardc: %s", why);
    int here = sc_job_locals(r->world), local = sc_job_local(r->rank);
    if (n >= here) return local;
    if (n == 1 && !sc_job_alone()) return 0;
    if (r->d->share_gpus) return local % n;
    if (sc_one_machine())
        sc_stop_all(r,
                    "shardc: this program was built for %d ranks, a GPU each, and %d GPU%s visible: build it with "
                    "--world %d, see CUDA_VISIBLE_DEVICES, or try it with --share-gpus",
                    r->world, n, n == 1 ? " is" : "s are", n);
    sc_stop_all(r,
                "shardc: %d ranks were started on the machine of rank %d, and %d GPUs are visible there: start as many "
                "ranks as GPUs on every machine, see CUDA_VISIBLE_DEVICES, or try it with --share-gpus",
                here, r->rank, n);
}

/* ── is it of use? ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void check(sc_rank *r, const char *name, cudaError_t e) {
    if (e)
        sc_stop_all(r, "shardc: GPU %d (%s) cannot be used: %s; %s", r->t->cuda.device, name, cudaGetErrorString(e),
                    remedy(e));
}

/* A GPU runs code for its own major architecture with an equal or lower minor number. */
static void check_arch(sc_rank *r, const struct cudaDeviceProp *p) {
    int arch = r->b->arch ? atoi(r->b->arch + 3) : 0;
    if (!arch || (arch / 10 == p->major && arch % 10 <= p->minor)) return;
    sc_stop_all(r, "shardc: this program was compiled for %s, and GPU %d (%s) is sm_%d%d: build it with --arch sm_%d%d",
                r->b->arch, r->t->cuda.device, p->name, p->major, p->minor, p->major, p->minor);
}

static bool one_gpu(const sc_rank *r, int i, int k) {
    const sc_room *room = r->w->common->room;
    return room[i].machine == room[k].machine && !strcmp(room[i].bus, room[k].bus);
}

static void check_shared(sc_rank *r) {
    for (int k = 0; k < r->world && !r->d->share_gpus; k++)
        for (int i = 0; i < k; i++)
            if (one_gpu(r, i, k))
                sc_stop_all(r,
                            "shardc: ranks %d and %d were given one and the same GPU (%s): give each process a GPU of "
                            "its own, let all of them see all GPUs (CUDA_VISIBLE_DEVICES), or share with --share-gpus",
                            i, k, r->w->common->room[k].bus);
}

int sc_sharers(const sc_rank *r, int rank, int ranks) {
    int n = 0;
    for (int i = 0; i < ranks; i++) n += one_gpu(r, i, rank);
    return n;
}

void sc_device_open(sc_rank *r) {
    sc_cuda *c = &r->t->cuda;
    struct cudaDeviceProp p = {0};
    *c = (sc_cuda){
        .rank = r->rank, .world = r->world, .deterministic = r->b->deterministic, .require_cudnn = r->d->require_cudnn};
    c->device = device_of(r);
    check(r, "?", cudaGetDeviceProperties(&p, c->device));
    check_arch(r, &p);
    c->major = p.major;
    c->minor = p.minor;
    c->multiprocessors = p.multiProcessorCount;
    c->l2_bytes = p.l2CacheSize;
    c->shared_bytes = (int)p.sharedMemPerBlockOptin;
    sc_room *room = &r->w->common->room[r->rank];
    room->machine = sc_job_alone() ? 0 : sc_job_host_rank(); /* its first rank stands for it */
    check(r, p.name, cudaDeviceGetPCIBusId(room->bus, SC_BUS, c->device));
    sc_barrier(r);
    check_shared(r);
    sc_footprint_start(r);
    check(r, p.name, cudaSetDevice(c->device));
    check(r, p.name, cudaFree(NULL)); /* makes the context */
}

/* ── libraries: looked for before anything is made, and only what the program uses ───────────────────────────────────
 */
static bool is_hopper(const sc_rank *r, const sc_tensor *q, const sc_tensor *v, double scale) {
    const char *arch = r->b->arch; /* the GPU's, as is found when it is opened */
    return arch && !strcmp(arch, "sm_90") &&
           sc_hopper_computes(q->dtype == BF16 || q->dtype == FP16, q->shape[3], v->shape[3], scale);
}

void sc_libraries_survey(sc_rank *r, int event, const sc_args *args) {
    const char *op = r->b->programs[r->current].events[event].op;
    const sc_attention_args *a = !strcmp(op, "attention") ? (const void *)args : NULL;
    const sc_attention_grad_args *g = !strcmp(op, "attention_grad") ? (const void *)args : NULL;
    if ((a && is_hopper(r, &a->q, &a->v, a->scale)) || (g && is_hopper(r, &g->q, &g->v, g->scale))) return;
    if (a && sc_cudnn_computes(&a->q, &a->k, &a->v, a->causal != 0, a->documents.there, a->dropout,
                               sc_has_window(a->causal != 0, a->before, a->after), a->softcap,
                               a->sinks.there || a->bias.there))
        r->t->needs_cudnn = true;
    if (g && !r->b->deterministic &&
        sc_cudnn_computes(&g->q, &g->k, &g->v, g->causal != 0, g->documents.there, g->dropout,
                          sc_has_window(g->causal != 0, g->before, g->after), g->softcap,
                          g->dlse.there || g->bias.there))
        r->t->needs_cudnn = true;
}

static void need_library(sc_rank *r, sc_cuda_library l) {
    const char *why = sc_library_open(l);
    if (why) sc_stop_all(r, "shardc: %s", why);
}

/* Results depend on their versions, and on whether attention is cuDNN's or our own. */
static void compare_libraries(sc_rank *r) {
    static const sc_cuda_library compared[] = {SC_LIB_CUBLASLT, SC_LIB_NCCL, SC_LIB_CUDNN};
    const sc_room *all = r->w->common->room;
    for (int l = 0; l < SC_LIBRARIES; l++)
        r->w->common->room[r->rank].libraries[l] = sc_library_version((sc_cuda_library)l);
    sc_barrier(r);
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++)
        for (int k = 1; k < r->world; k++) {
            sc_cuda_library l = compared[i];
            int first = all[0].libraries[l], other = all[k].libraries[l];
            char a[SC_VERSION_TEXT], b[SC_VERSION_TEXT];
            if (first == other) continue;
            sc_stop_all(r,
                        "shardc: rank 0 has %s %s and rank %d %s: their results would differ; give every rank the same "
                        "(--libraries tells what a machine has)",
                        sc_library_name(l), first ? sc_version_text(first, a) : "none that serves", k,
                        other ? sc_version_text(other, b) : "none that serves");
        }
}

static const char *open_cudnn(sc_rank *r) { /* NULL, or why it is not there for tasks that it computes */
    const sc_target *t = r->t;
    const char *why = NULL;
    if (t->needs_cudnn && sc_cudnn_serves(t->cuda.major)) why = sc_library_open(SC_LIB_CUDNN);
    if (why && r->d->require_cudnn) sc_stop_all(r, "shardc: %s", why);
    return why;
}

void sc_libraries_open(sc_rank *r) {
    need_library(r, SC_LIB_CUBLASLT);
    if (r->world > 1) need_library(r, SC_LIB_NCCL);
    const char *why = open_cudnn(r);
    compare_libraries(r);
    if (why && r->rank == 0)
        sc_say("shardc: attention runs on shardc's own kernels, which take " SC_CUDNN_BOTH
               " times as long as cuDNN's (--require-cudnn refuses that): %s",
               why);
    SC_LT(cublasLtCreate(&r->t->cuda.lt));
}

void sc_tell_libraries(void) {
    sc_library_tell();
}

void sc_describe_device(const sc_rank *r, char *out, size_t n) {
    struct cudaDeviceProp p;
    int driver = 0;
    SC_CUDA(cudaGetDeviceProperties(&p, r->t->cuda.device));
    SC_CUDA(cudaDriverGetVersion(&driver));
    int k = snprintf(out, n, "%s, CUDA %d.%d (driver %d.%d)", p.name, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                     driver / 1000, driver % 1000 / 10);
    for (int l = 0; l < SC_LIBRARIES && k > 0 && (size_t)k < n; l++) {
        int v = sc_library_version((sc_cuda_library)l);
        char text[SC_VERSION_TEXT];
        if (v)
            k += snprintf(out + k, n - (size_t)k, ", %s %s", sc_library_name((sc_cuda_library)l),
                          sc_version_text(v, text));
    }
}
