/* One rank of the CUDA target: what it makes and in which order, the capture of its programs, and running them.
 * Relies on: rank.h and the files beside it.
 * Relied on by: common/launch.c, runtime/host through target.h. */
#include "rank.h"
#include "../common/lives.h"
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── programs ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void drain(sc_rank *r) {
    r->t->event = -1;
    SC_CUDA(cudaStreamSynchronize(r->t->stream[COMPUTE]));
    sc_stage_reset(r);
}

/* The watchdog looks at a program from here on, until it has ended. */
static void enter(sc_rank *r, int program) {
    sc_marks_reset(r);
    atomic_store(&r->w->ranks[r->rank].program, program);
}
static void leave(sc_rank *r) {
    sc_marks_reset(r);
    atomic_store(&r->w->ranks[r->rank].program, -1);
    atomic_fetch_add(&r->w->ranks[r->rank].ticks, 1);
}

/* Every program runs once over zeros: what libraries make at their first call is there before the first step, and
 * nothing of it is made while a graph is captured. Copies move next to nothing then, and events of the host stream do
 * nothing: the host's arena stays as it is. */
static void rehearse(sc_rank *r) {
    for (int p = 0; p < r->b->nprograms; p++) {
        bool last = p == r->b->nprograms - 1; /* states, too, are poison until `init` writes them */
        r->current = p;
        r->t->mode = SC_REHEARSE;
        enter(r, p);
        sc_issue(r);
        drain(r);
        leave(r);
        SC_CUDA(cudaMemset(r->arena[0], last && r->d->poison ? SC_POISON : 0, r->b->arena_bytes));
        SC_CUDA(cudaDeviceSynchronize());
        if (r->world > 1) sc_barrier(r);
    }
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
    sc_come_to(r, SC_OPENS);
    sc_device_open(r);
    sc_libraries_open(r);
    sc_marks_new(r);
    sc_comms_new(r);
    sc_come_to(r, SC_TAKES);
    sc_matmul_start(&r->t->cuda);
    sc_attention_start(&r->t->cuda);
    sc_arenas_new(r);
    sc_comms_windows(r);
    sc_come_to(r, SC_REHEARSES);
    sc_streams_new(r);
    sc_algorithms_open(r);
    sc_host_new(r);
    rehearse(r);
    sc_come_to(r, SC_CAPTURES);
    if (!r->d->no_graph && !sc_looks_inside(r->d)) {
        for (int p = 0; p < r->b->nprograms; p++) {
            r->current = p;
            sc_capture(r);
        }
        drain(r);
    }
    sc_watch_new(r);
    if (r->d->dump_pattern) sc_dump_new(r);
    if (r->d->trace_path) sc_trace_new(r);
    sc_peers_new(r);
    sc_guard_new(r);
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
    sc_guard_free(r);
    if (!all_done(r)) return; /* the process ends, and with it everything */
    sc_watch_free(r);
    sc_dump_free(r);
    sc_trace_free(r);
    sc_host_free(r);
    sc_marks_free(r);
    sc_streams_free(r);
    sc_comms_free(r);
    sc_attention_stop(&r->t->cuda);
    sc_matmul_stop(&r->t->cuda);
    sc_algorithms_close(r);
    sc_arenas_free(r);
    SC_LT(cublasLtDestroy(r->t->cuda.lt));
    free(r->t);
    free(r->coord);
    free(r);
}

double sc_seconds(const sc_rank *r) {
    return sc_now_s();
}

void sc_run_program(sc_rank *r, int program) {
    cudaGraphExec_t graph = r->t->programs[program].graph;
    r->t->running = true;
    r->current = program;
    enter(r, program);
    sc_watch_begin(r);
    if (graph) {
        SC_CUDA(cudaGraphLaunch(graph, r->t->stream[COMPUTE]));
    } else {
        r->t->mode = SC_DIRECT;
        sc_issue(r);
    }
    drain(r);
    sc_watch_end(r);
    if (r->dumps) sc_dump_end(r);
    if (r->trace) sc_trace_end(r);
    leave(r);
    r->launches++;
}
