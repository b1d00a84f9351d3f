/* Threads that share the parts of a piece of work: a counter starts them, a counter tells that they are through.
 * Relies on: pool.h.
 * Relied on by: runtime/cpu/stream.c, runtime/cuda/host.c. */
#include "pool.h"
#include <errno.h>
#include <stdlib.h>

static void *serve(void *arg) {
    struct sc_pool_worker *w = arg;
    sc_pool *p = w->pool;
    if (p->begin) p->begin(1);
    sc_flag_add(&p->ready, 1);
    for (uint32_t n = 1;; n++) {
        sc_flag_wait(&p->go, n);
        if (atomic_load(&p->stop)) return NULL;
        p->work(p->arg, w->part);
        sc_flag_add(&p->done, 1);
    }
}

int sc_pool_start(sc_pool *p, int parts, void (*begin)(int)) {
    p->begin = begin;
    p->parts = 1;
    p->workers = calloc((size_t)parts, sizeof *p->workers);
    if (!p->workers) return ENOMEM;
    for (int k = 1; k < parts; k++) {
        struct sc_pool_worker *w = &p->workers[k - 1];
        *w = (struct sc_pool_worker){.pool = p, .part = k};
        int e = pthread_create(&w->thread, NULL, serve, w);
        if (e) return e;
        p->parts++;
    }
    sc_flag_wait(&p->ready, (uint32_t)(p->parts - 1));
    return 0;
}

void sc_pool_run(sc_pool *p, sc_work *work, void *arg) {
    uint32_t done = atomic_load(&p->done.value) + (uint32_t)(p->parts - 1);
    p->work = work;
    p->arg = arg;
    if (p->parts > 1) sc_flag_add(&p->go, 1);
    work(arg, 0);
    sc_flag_wait(&p->done, done);
}

void sc_pool_stop(sc_pool *p) {
    if (!p->workers) return;
    atomic_store(&p->stop, true);
    sc_flag_add(&p->go, 1);
    for (int k = 1; k < p->parts; k++) pthread_join(p->workers[k - 1].thread, NULL);
    free(p->workers);
    p->workers = NULL;
}
