/* Which table of matmul algorithms a rank goes by: the file that SHARDC_TUNE or SHARDC_ALGORITHMS names ("none": no
 * table at all), then the tables built in; where none has an entry, the first algorithm of cuBLASLt's heuristic. The
 * same on all ranks, which compare its hash: a product's bits depend on its algorithm. Relies on: rank.h, algorithms.h,
 * library.h, tune.c. Relied on by: rank.c. */
#include "algorithms.h"
#include "library.h"
#include "rank.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file as `shardc calibrate --table` writes it. */
static void read_own(sc_rank *r, FILE *f, const char *variable, const char *path, const char *gpu, int version) {
    size_t size = 0, cap = 1 << 16, n;
    char *text = sc_calloc(cap, 1);
    while ((n = fread(text + size, 1, cap - size, f)) > 0) {
        size += n;
        if (size < cap) continue;
        char *more = sc_calloc(cap *= 2, 1);
        memcpy(more, text, size);
        free(text);
        text = more;
    }
    if (ferror(f)) sc_stop_once(r, 1, "shardc: cannot read %s (%s): %s", path, variable, strerror(errno));
    fclose(f);
    int bad = sc_algorithms_read(&r->t->algorithms, text, size, gpu, version);
    if (bad)
        sc_stop_once(r, 1,
                     "shardc: %s:%d: no entry of a table of matmul algorithms: write it with shardc calibrate --table, "
                     "or leave %s out",
                     path, bad, variable);
    free(text);
}

static void read_built_in(sc_rank *r, const char *gpu, int version) {
    sc_algorithms_read(&r->t->algorithms, sc_algorithms_built_in,
                       (size_t)(sc_algorithms_built_in_end - sc_algorithms_built_in), gpu, version);
}

/* What is missing is measured by rank 0; then everybody reads what it has saved. */
static void tune(sc_rank *r, const char *path, const char *gpu, int version) {
    FILE *f = fopen(path, "r");
    if (f) read_own(r, f, "SHARDC_TUNE", path, gpu, version);
    read_built_in(r, gpu, version);
    sc_barrier(r); /* all have read the file as it was */
    sc_tune_all(r, path);
    free(r->t->algorithms.at);
    r->t->algorithms = (sc_algorithms){0};
    if (!(f = fopen(path, "r"))) sc_stop_once(r, 1, "shardc: cannot read %s (SHARDC_TUNE): %s", path, strerror(errno));
    read_own(r, f, "SHARDC_TUNE", path, gpu, version);
}

/* Compared in halves, which a double holds exactly. */
static bool same_on_all(sc_rank *r, uint64_t hash) {
    double low = (double)(hash & 0xffffffff), high = (double)(hash >> 32);
    double lows = sc_host_sum(r, low), highs = sc_host_sum(r, high);
    return lows == low * r->world && highs == high * r->world;
}

void sc_algorithms_open(sc_rank *r) {
    sc_algorithms *t = &r->t->algorithms;
    const char *own = getenv("SHARDC_ALGORITHMS"), *tuned = getenv("SHARDC_TUNE");
    bool none = own && !strcmp(own, "none");
    struct cudaDeviceProp p;
    int version = sc_library_version(SC_LIB_CUBLASLT);
    SC_CUDA(cudaGetDeviceProperties(&p, r->t->cuda.device));
    if (tuned && *tuned) {
        tune(r, tuned, p.name, version);
    } else if (own && *own && !none) {
        FILE *f = fopen(own, "r");
        if (!f) sc_stop_once(r, 1, "shardc: cannot read %s (SHARDC_ALGORITHMS): %s", own, strerror(errno));
        read_own(r, f, "SHARDC_ALGORITHMS", own, p.name, version);
    }
    if (!none) read_built_in(r, p.name, version);
    if (!same_on_all(r, t->hash))
        sc_stop_once(r, 1,
                     "shardc: the ranks' tables of matmul algorithms differ (%d entries on rank %d, a %s with cuBLASLt "
                     "%d): give every rank the same GPU, the same cuBLASLt and the same SHARDC_ALGORITHMS",
                     t->n, r->rank, p.name, version);
    sc_matmul_table(&r->t->cuda, t->at, t->n);
}

void sc_algorithms_close(sc_rank *r) {
    free(r->t->algorithms.at);
}
