/* Threads of a rank that share the parts of one piece of work at a time.
 * Relies on: flag.h, pthreads.
 * Relied on by: runtime/cpu (kernels of the compute stream), runtime/cuda (events of the host stream). */
#ifndef SC_POOL_H
#define SC_POOL_H

#include "flag.h"
#include <pthread.h>

typedef void sc_work(void *arg, int part);

typedef struct sc_pool {
    int parts; /* threads that share the work, the caller among them */
    struct sc_pool_worker {
        struct sc_pool *pool;
        int part;
        pthread_t thread;
    } * workers;
    sc_flag go, done, ready;
    sc_work *work;
    void *arg;
    void (*begin)(int); /* what each thread does first (with 1), or NULL */
    _Atomic bool stop;
} sc_pool;

/* Starts threads for parts 1 to parts - 1 and returns when all are ready; an errno where one cannot be started. `p` is
 * zero before, and stays where it is. */
int sc_pool_start(sc_pool *p, int parts, void (*begin)(int));
/* work(arg, part) for every part, part 0 on the calling thread; returns when all are finished. One caller at a time. */
void sc_pool_run(sc_pool *p, sc_work *work, void *arg);
void sc_pool_stop(sc_pool *p);

#endif
