/* Events of the HOST stream: the CPU's kernels over the pinned host arena (optimizer and states that are offloaded), on
 * threads of the rank, joined to streams and graphs by host functions. Both targets compute an update by the same
 * source (sc_optimizer.h), so where it runs changes no bit. Relies on: rank.h, common/pool.h, the CPU's kernels under
 * other names (sc_host_<op>: see the Makefile). Relied on by: stream.c, rank.c. */
#include "rank.h"
#include <stdlib.h>
#include <string.h>

#define OP(...)
#define KERNEL OP
#define UNTIMED_KERNEL OP
#define HOST_KERNEL(op, ...) extern sc_kernel sc_host_##op;
#include "../schema/ops.def"

static const struct {
    sc_kernel *device, *host;
} kernels[] = {
#define OP(...)
#define KERNEL OP
#define UNTIMED_KERNEL OP
#define HOST_KERNEL(op, ...) {sc_k_##op, sc_host_##op},
#include "../schema/ops.def"
};

struct sc_host_event { /* lives as long as the graphs that hold it */
    sc_rank *r;
    sc_kernel *kernel;
    sc_task task;
    sc_args args; /* the task's */
};

void sc_host_new(sc_rank *r) {
    if (!r->t->stream[HOST]) return;
    sc_check_thread(r, sc_pool_start(&r->t->pool, r->b->threads, NULL));
    for (int p = 0; p < r->b->nprograms; p++)
        r->t->programs[p].host = sc_calloc((size_t)r->b->programs[p].nevents, sizeof *r->t->programs[p].host);
}

void sc_host_free(sc_rank *r) {
    sc_pool_stop(&r->t->pool);
    for (int p = 0; p < r->b->nprograms; p++) {
        for (int e = 0; r->t->programs[p].host && e < r->b->programs[p].nevents; e++) free(r->t->programs[p].host[e]);
        free(r->t->programs[p].host);
    }
}

static sc_kernel *host_kernel(sc_rank *r, int event, sc_kernel *k) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].device == k) return kernels[i].host;
    sc_stop(r, 3, "shardc: event %s runs on the host, which has no kernel for it", sc_event_id(r, event));
}

static void run_part(void *arg, int part) {
    const struct sc_host_event *e = arg;
    sc_task task = e->task;
    task.part = part;
    task.parts = e->r->t->pool.parts;
    e->kernel(&task);
}

static void CUDART_CB do_nothing(void *arg) {
    (void)arg;
}

static void CUDART_CB run_event(void *arg) {
    struct sc_host_event *e = arg;
    sc_pool_run(&e->r->t->pool, run_part, e);
}

/* An event is issued once in every mode with the same arguments, so the copy made first serves all modes. */
void sc_host_run(sc_rank *r, int event, sc_kernel *k, const sc_task *task, size_t size) {
    struct sc_host_event **at = &r->t->programs[r->current].host[event];
    if (r->t->mode == SC_REHEARSE) {
        SC_CUDA(cudaLaunchHostFunc(r->t->stream[HOST], do_nothing, NULL));
        return;
    }
    if (!*at) {
        struct sc_host_event *e = *at = sc_calloc(1, sizeof *e);
        e->r = r;
        e->kernel = host_kernel(r, event, k);
        memcpy(&e->args, task->args, size);
        e->task = *task;
        e->task.args = &e->args;
        e->task.record = &r->record;
    }
    SC_CUDA(cudaLaunchHostFunc(r->t->stream[HOST], run_event, *at));
}
