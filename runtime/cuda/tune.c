/* Measures what the table of matmul algorithms lacks, once: with SHARDC_TUNE=FILE, rank 0 times the heuristic's first
 * algorithms for every product of the program in the arena itself, with the workspace that it has there, and saves the
 * fastest; all ranks then read FILE.
 * Relies on: rank.h, algorithms.h, library.h, file.h.
 * Relied on by: choose.c, stream.c. */
#include "../file.h"
#include "algorithms.h"
#include "library.h"
#include "rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 24, CALLS = 5 };

/* ── one product ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double time_choice(sc_rank *r, const sc_matmul_choice *c, const sc_task *task) {
    cudaStream_t s = r->t->stream[COMPUTE];
    cudaEvent_t begin, end;
    float ms;
    SC_CUDA(cudaEventCreate(&begin));
    SC_CUDA(cudaEventCreate(&end));
    sc_matmul_table(&r->t->cuda, c, 1);
    sc_k_matmul(task); /* makes its plan */
    SC_CUDA(cudaEventRecord(begin, s));
    for (int i = 0; i < CALLS; i++) sc_k_matmul(task);
    SC_CUDA(cudaEventRecord(end, s));
    SC_CUDA(cudaStreamSynchronize(s));
    SC_CUDA(cudaEventElapsedTime(&ms, begin, end));
    SC_CUDA(cudaEventDestroy(begin));
    SC_CUDA(cudaEventDestroy(end));
    return (double)ms / CALLS;
}

/* The heuristic's first one stays where no other is 2 % faster. */
static void choose(sc_rank *r, const sc_task *task) {
    sc_matmul_choice c[CANDIDATES];
    int n = sc_matmul_candidates(task, c, CANDIDATES), at = 0;
    if (!n || sc_algorithms_has(&r->t->algorithms, &c[0].key)) return;
    double first = 0, best = 0;
    for (int i = 0; i < n; i++) {
        double ms = time_choice(r, &c[i], task);
        if (!i)
            first = best = ms;
        else if (ms < best && ms < 0.98 * first)
            best = ms, at = i;
    }
    sc_algorithms_add(&r->t->algorithms, &c[at]);
    atomic_fetch_add(&r->w->ranks[r->rank].ticks, 1); /* the others wait, and nothing hangs */
}

void sc_tune(sc_rank *r, int event, sc_kernel *k, const sc_args *args, int slots) {
    if (k != sc_k_matmul) return;
    sc_task task = sc_task_of(r, args, slots, COMPUTE);
    r->t->event = event;
    choose(r, &task);
    r->t->event = -1;
}

/* ── a program ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Numbers of a step's size: what a product costs in power depends on its operands' bits. */
static void fill(sc_rank *r) {
    int64_t n = (int64_t)(r->b->arena_bytes / 2);
    sc_init_param_args args = {
        .state = {.there = 1, .dtype = BF16, .dims = 1, .shape = {n}, .stride = {1}, .p = r->arena[0]},
        .kind = SC_NORMAL,
        .key = 1,
        .numel = n,
        .slice = -1,
        .b = 0.5};
    sc_task task = sc_task_of(r, (const sc_args *)&args, SC_SLOTS_init_param, COMPUTE);
    sc_k_init_param(&task);
}

static void save(sc_rank *r, const char *path) {
    const sc_algorithms *t = &r->t->algorithms;
    struct cudaDeviceProp p;
    sc_aside a;
    SC_CUDA(cudaGetDeviceProperties(&p, r->t->cuda.device));
    sc_aside_open(&a, path, NULL);
    FILE *f = sc_aside_print(&a);
    if (f) {
        sc_algorithms_header(f, p.name, sc_library_version(SC_LIB_CUBLASLT));
        for (int i = 0; i < t->n; i++) sc_algorithms_entry(f, &t->at[i], "measured at a program's start");
        sc_aside_printed(&a, f);
    }
    int error = sc_aside_commit(&a);
    if (error) sc_stop_once(r, 1, "shardc: cannot write %s (SHARDC_TUNE): %s", path, strerror(error));
}

void sc_tune_all(sc_rank *r, const char *path) {
    if (r->rank == 0) {
        fill(r);
        r->t->mode = SC_TUNE;
        for (int p = 0; p < r->b->nprograms; p++) {
            r->current = p;
            r->b->programs[p].text(r);
        }
        SC_CUDA(cudaStreamSynchronize(r->t->stream[COMPUTE]));
        SC_CUDA(cudaMemset(r->arena[0], 0, r->b->arena_bytes));
        SC_CUDA(cudaDeviceSynchronize());
        save(r, path);
    }
    sc_barrier(r);
}
