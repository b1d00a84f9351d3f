/* Collectives by kind, size and number of GPUs, as the runtime runs them (comm.c), and how much they slow down a
 * product that runs beside them.
 * Relies on: calibrate.h, members.h, NCCL.
 * Relied on by: main.c. */
#include "calibrate.h"
#include "cuda/comm.h"
#include "members.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    sc_gpu g;
    sc_common *c;
    int rank, world;
    ncclComm_t gathers, reductions;
    ncclWindow_t windows[2];
    char *arena;
    size_t bytes;
    FILE *out;
} member;

typedef enum { ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, ALL_REDUCE, KINDS } kind;
static const char *const names[] = {"all_gather", "reduce_scatter", "all_to_all", "all_reduce"};

static void meet(member *m) {
    sc_members_meet(m->c, m->world);
}

static void open_member(member *m) {
    ncclConfig_t sums = sc_comms_config(SC_SUMS, true), gathering = sc_comms_config(SC_GATHERS, true);
    sc_comms_pin();
    sc_need(SC_LIB_NCCL);
    sc_gpu_open(&m->g, m->rank, 0.1);
    if (!m->rank) SC_NCCL(ncclGetUniqueId(&m->c->id));
    meet(m);
    SC_NCCL(ncclCommInitRankConfig(&m->reductions, m->world, m->c->id, m->rank, &sums));
    SC_NCCL(ncclCommSplit(m->reductions, 0, m->rank, &m->gathers, &gathering));
    SC_NCCL(ncclMemAlloc((void **)&m->arena, m->bytes));
    SC_NCCL(ncclCommWindowRegister(m->gathers, m->arena, m->bytes, &m->windows[0], NCCL_WIN_COLL_SYMMETRIC));
    SC_NCCL(ncclCommWindowRegister(m->reductions, m->arena, m->bytes, &m->windows[1], NCCL_WIN_COLL_SYMMETRIC));
    SC_CUDA(cudaMemset(m->arena, 0, m->bytes));
    SC_CUDA(cudaDeviceSynchronize());
}

/* `bytes`: what one rank sends, as the compiler counts: of all but an all-reduce all parts but one. */
static void issue(member *m, kind k, size_t whole, cudaStream_t s) {
    size_t part = whole / (size_t)m->world;
    char *in = m->arena + (whole + 4095) / 4096 * 4096;
    if (k == ALL_GATHER)
        SC_NCCL(ncclAllGather(in, m->arena, part / 2, ncclBfloat16, m->gathers, s));
    else if (k == REDUCE_SCATTER)
        SC_NCCL(ncclReduceScatter(m->arena, in, part / 4, ncclFloat32, ncclSum, m->reductions, s));
    else if (k == ALL_TO_ALL)
        SC_NCCL(ncclAlltoAll(m->arena, in, part / 2, ncclBfloat16, m->gathers, s));
    else
        SC_NCCL(ncclAllReduce(m->arena, m->arena, whole / 4, ncclFloat32, ncclSum, m->reductions, s));
}

static cudaGraph_t graph_of(member *m, kind k, size_t whole, int calls) {
    cudaGraph_t graph;
    SC_CUDA(cudaStreamBeginCapture(m->g.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++) issue(m, k, whole, m->g.stream);
    SC_CUDA(cudaStreamEndCapture(m->g.stream, &graph));
    return graph;
}

static int calls_for(size_t whole) {
    return whole < (16 << 20) ? 50 : whole < (256 << 20) ? 10 : 4;
}

static double time_collective(member *m, kind k, size_t whole) {
    int calls = calls_for(whole);
    issue(m, k, whole, m->g.stream);
    SC_CUDA(cudaStreamSynchronize(m->g.stream));
    cudaGraph_t graph = graph_of(m, k, whole, calls);
    meet(m);
    double us = sc_time_graph(&m->g, graph, calls);
    SC_CUDA(cudaGraphDestroy(graph));
    meet(m);
    return us;
}

/* Room for the whole buffer and for a part of it, half of it at most; an exchange's result is as large as its operand.
 * An all-reduce is done in place. */
static void by_size(member *m) {
    for (kind k = 0; k < KINDS; k++)
        for (size_t whole = 16 << 10; whole * (k == ALL_TO_ALL ? 4 : 3) / 2 + (1 << 20) <= m->bytes; whole *= 4) {
            double us = time_collective(m, k, whole), n = m->world;
            double sent = (double)whole * (n - 1) / n * (k == ALL_REDUCE ? 2 : 1);
            if (!m->rank) fprintf(m->out, "collective %s|%d|%.0f|%.2f\n", names[k], m->world, sent, us);
        }
}

/* ── beside a product ────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double elapsed(cudaEvent_t a, cudaEvent_t b) {
    float ms;
    SC_CUDA(cudaEventSynchronize(b));
    SC_CUDA(cudaEventElapsedTime(&ms, a, b));
    return (double)ms * 1e3;
}

typedef struct {
    cudaStream_t stream;
    cudaEvent_t begin[2], end[2]; /* of the products, of the collectives */
} race;

/* Microseconds of a product and of a collective (NULL: none) while both go on: of the first ones of each, the other
 * having more to do. */
static void time_beside(member *m, race *r, sc_task *t, int products, cudaGraphExec_t collectives, double *us) {
    meet(m);
    SC_CUDA(cudaEventRecord(r->begin[0], m->g.stream));
    SC_CUDA(cudaEventRecord(r->begin[1], r->stream));
    if (collectives) SC_CUDA(cudaGraphLaunch(collectives, r->stream));
    SC_CUDA(cudaEventRecord(r->end[1], r->stream));
    for (int i = 0; i < products; i++) sc_k_matmul(t);
    SC_CUDA(cudaEventRecord(r->end[0], m->g.stream));
    for (int k = 0; k < 2; k++) us[k] = elapsed(r->begin[k], r->end[k]);
    meet(m);
}

/* Rank 0's number, on all ranks: each has to issue as many collectives as the others. */
static double agreed(member *m, double x) {
    if (!m->rank) m->c->us = x;
    meet(m);
    x = m->c->us;
    meet(m);
    return x;
}

/* The product's slowdown is seen where collectives outlast it, the collective's where products outlast it. */
static void beside_kind(member *m, race *r, sc_task *t, kind k, size_t whole, double product) {
    double us[2], alone = agreed(m, time_collective(m, k, whole));
    for (int pass = 0; pass < 2; pass++) {
        int products = 20, calls = 1 + (int)((pass ? 0.3 : 3) * 20 * product / alone);
        cudaGraphExec_t run;
        cudaGraph_t graph = graph_of(m, k, whole, calls);
        SC_CUDA(cudaGraphInstantiate(&run, graph, 0));
        for (int u = 0; u < 2; u++) time_beside(m, r, t, products, run, us);
        if (!pass && !m->rank)
            fprintf(m->out, "beside %s|%d|%.3f|", names[k], m->world, us[0] / products / product - 1);
        if (pass && !m->rank) fprintf(m->out, "%.3f\n", us[1] / calls / alone - 1);
        SC_CUDA(cudaGraphExecDestroy(run));
        SC_CUDA(cudaGraphDestroy(graph));
    }
}

static void beside(member *m) {
    sc_measured_task described;
    sc_placed_task x;
    race r;
    double us[2];
    const size_t whole = 256 << 20;
    sc_product_task(&described, &(sc_product){.a = BF16, .b = BF16, .y = BF16, .trans_b = 1}, 4096, 14336, 4096);
    if (m->bytes < whole * 2 || !sc_place(&m->g, &described, &x)) return;
    SC_CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    for (int k = 0; k < 2; k++) {
        SC_CUDA(cudaEventCreate(&r.begin[k]));
        SC_CUDA(cudaEventCreate(&r.end[k]));
    }
    for (int u = 0; u < 2; u++) time_beside(m, &r, &x.task, 20, NULL, us);
    double product = agreed(m, us[0] / 20);
    for (kind k = 0; k < ALL_REDUCE; k++) beside_kind(m, &r, &x.task, k, whole, product);
    SC_CUDA(cudaStreamDestroy(r.stream));
}

/* ── ranks ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int run_member(const sc_round *r, sc_common *c, int rank) {
    size_t bytes = (size_t)(r->w->trial ? 64 : 1600) << 20;
    member m = {.c = c, .rank = rank, .world = r->world, .bytes = bytes, .out = r->out};
    open_member(&m);
    by_size(&m);
    beside(&m);
    meet(&m);
    return 0; /* the process ends, and with it what it took */
}

int sc_collectives_run(const sc_wish *w, FILE *out) {
    int bad = 0;
    int first = w->quick ? w->world : 2;
    for (int world = first; world <= w->world && world <= 8 && !bad; world *= 2)
        bad = sc_members_run(&(sc_round){w, out, world}, run_member);
    return bad;
}
