/* One rank of the CUDA target: its GPU, libraries and arenas, the capture of its programs, and running them.
 * Relies on: rank.h and the files beside it.
 * Relied on by: common/launch.c, runtime/host through target.h. */
#include "rank.h"
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── the GPU ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void check_count(sc_rank *r) {
    int n = 0, driver = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver && !cudaDriverGetVersion(&driver) && driver)
        sc_stop_all(r,
                    "shardc: the GPU driver serves CUDA %d.%d, and this program was built with CUDA %d.%d: update the "
                    "driver",
                    driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver || (e == cudaSuccess && n == 0))
        sc_stop_all(
            r, "shardc: no GPU is visible (%s): see nvidia-smi and CUDA_VISIBLE_DEVICES, or build with --target cpu",
            cudaGetErrorString(e));
    SC_CUDA(e);
    if (n < r->world)
        sc_stop_all(r,
                    "shardc: this program was built for %d ranks, a GPU each, and %d GPU%s visible: build it with "
                    "--world %d, or see CUDA_VISIBLE_DEVICES",
                    r->world, n, n == 1 ? " is" : "s are", n);
}

/* A GPU runs code for its own major architecture with an equal or lower minor number. */
static void check_arch(sc_rank *r, const struct cudaDeviceProp *p) {
    int arch = r->b->arch ? atoi(r->b->arch + 3) : 0;
    if (!arch || (arch / 10 == p->major && arch % 10 <= p->minor)) return;
    sc_stop(r, 1, "shardc: this program was compiled for %s, and GPU %d (%s) is sm_%d%d: build it with --arch sm_%d%d",
            r->b->arch, r->t->cuda.device, p->name, p->major, p->minor, p->major, p->minor);
}

static void open_device(sc_rank *r) {
    sc_cuda *c = &r->t->cuda;
    struct cudaDeviceProp p;
    check_count(r);
    *c = (sc_cuda){.rank = r->rank, .device = r->rank, .deterministic = r->b->deterministic};
    SC_CUDA(cudaGetDeviceProperties(&p, c->device));
    check_arch(r, &p);
    c->major = p.major;
    c->minor = p.minor;
    c->multiprocessors = p.multiProcessorCount;
    c->l2_bytes = p.l2CacheSize;
    c->shared_bytes = (int)p.sharedMemPerBlockOptin;
    SC_CUDA(cudaSetDevice(c->device));
    SC_CUDA(cudaFree(NULL)); /* makes the context */
    SC_LT(cublasLtCreate(&c->lt));
}

/* The device writes this rank's status where the launcher reads it. */
static void open_watchdog(sc_rank *r) {
    sc_shared_rank *all = r->w->ranks, *me = &all[r->rank];
    void *at;
    if (r->world == 1 || !(r->d->stall_s > 0)) return;
    SC_CUDA(cudaHostRegister(all, sizeof *all * (size_t)r->world, cudaHostRegisterMapped));
    SC_CUDA(cudaHostGetDevicePointer(&at, all, 0));
    sc_shared_rank *seen = (sc_shared_rank *)at + r->rank;
    r->t->status_at = seen->status;
    for (int s = 0; s < SC_STREAMS; s++) r->t->met_at[s] = (uint32_t *)&seen->met[s].value;
    for (int s = 0; s < SC_STREAMS; s++) me->status[s].waits_for = -1;
}

/* ── programs ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void drain(sc_rank *r) {
    r->t->event = -1;
    SC_CUDA(cudaStreamSynchronize(r->t->stream[COMPUTE]));
    sc_stage_reset(r);
}

/* Every program runs once over zeros: what libraries make at their first call is there before the first step, and
 * nothing of it is made while a graph is captured. */
static void rehearse(sc_rank *r) {
    for (int p = 0; p < r->b->nprograms; p++) {
        r->current = p;
        r->t->mode = SC_REHEARSE;
        sc_issue(r);
        drain(r);
        SC_CUDA(cudaMemset(r->arena[0], 0, r->b->arena_bytes));
        if (r->arena[1]) memset(r->arena[1], 0, r->b->host_bytes);
        SC_CUDA(cudaDeviceSynchronize());
        if (r->world > 1) sc_barrier(r);
    }
}

static void capture_all(sc_rank *r) {
    for (int p = 0; p < r->b->nprograms; p++) {
        r->current = p;
        sc_capture(r);
    }
    drain(r);
}

static bool graphs(const sc_rank *r) {
    return !r->d->no_graph && !sc_looks_inside(r->d);
}

/* ── life of a rank ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
sc_rank *sc_rank_new(sc_world *w, int rank) {
    sc_rank *r = sc_calloc(1, sizeof *r);
    sc_rank_place(r, w, rank);
    r->t = sc_calloc(1, sizeof *r->t);
    r->t->event = -1;
    sc_errors_name(r);
    sc_survey(r);
    open_device(r);
    open_watchdog(r);
    sc_comms_new(r);
    sc_matmul_start(&r->t->cuda);
    sc_attention_start(&r->t->cuda);
    sc_arenas_new(r);
    sc_comms_windows(r);
    sc_streams_new(r);
    rehearse(r);
    if (graphs(r)) capture_all(r);
    sc_watch_new(r);
    if (r->d->dump_pattern) sc_dump_new(r);
    if (r->d->trace_path) sc_trace_new(r);
    sc_peers_new(r);
    return r;
}

/* Libraries take leave of each other only where all ranks come to it: one that has failed does not. */
static bool all_done(const sc_rank *r) {
    for (double start = sc_now_s(); sc_now_s() - start < 5; usleep(1000)) {
        int done = 0;
        for (int k = 0; k < r->world; k++) done += atomic_load(&r->w->ranks[k].done);
        if (done == r->world) return true;
    }
    return false;
}

void sc_rank_free(sc_rank *r) {
    r->t->event = -1;
    sc_peers_free(r);
    if (!all_done(r)) return; /* the process ends, and with it everything */
    sc_watch_free(r);
    sc_dump_free(r);
    sc_trace_free(r);
    sc_streams_free(r);
    sc_comms_free(r);
    sc_attention_stop(&r->t->cuda);
    sc_matmul_stop(&r->t->cuda);
    sc_arenas_free(r);
    SC_LT(cublasLtDestroy(r->t->cuda.lt));
    free(r->t);
    free(r);
}

void sc_run_program(sc_rank *r, int program) {
    sc_shared_rank *me = &r->w->ranks[r->rank];
    cudaGraphExec_t graph = r->t->programs[program].graph;
    r->t->running = true;
    r->current = program;
    atomic_store(&me->program, program);
    if (graph) {
        SC_CUDA(cudaGraphLaunch(graph, r->t->stream[COMPUTE]));
    } else {
        r->t->mode = SC_DIRECT;
        sc_watch_begin(r);
        sc_issue(r);
    }
    drain(r);
    sc_watch_end(r);
    if (r->dumps) sc_dump_end(r);
    if (r->trace) sc_trace_end(r);
    atomic_store(&me->program, -1);
    atomic_fetch_add(&me->ticks, 1);
    r->launches++;
}
