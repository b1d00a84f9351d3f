/* A thread of the rank that never waits for a GPU: it leaves when the launcher asks for it (another rank has ended, or
 * nothing moves), and tells what NCCL finds wrong on its own. The communicators are aborted then, as far as they can
 * be: a copy engine, or a kernel in a window, waits on, and is ended with the process. Relies on: rank.h, comm.c.
 * Relied on by: rank.c. */
#include "rank.h"
#include <string.h>

enum { EVERY_MS = 50, LOOKS = 20 /* at NCCL: every so many rounds */ };

static void *abort_all(void *arg) {
    sc_comms_abort(arg);
    return NULL;
}

/* NCCL may wait for kernels that never end. */
static _Noreturn void leave(sc_rank *r) {
    pthread_t helper;
    if (!pthread_create(&helper, NULL, abort_all, r)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 300000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_timedjoin_np(helper, NULL, &until);
    }
    sc_leave(0); /* the fault is another's, and so is the code that the run ends with */
}

static void *guard(void *arg) {
    sc_rank *r = arg;
    const char *trouble;
    for (int round = 1; !atomic_load(&r->t->guard_ends); round++) {
        usleep(1000 * EVERY_MS);
        if (atomic_load(&r->w->ranks[r->rank].leave)) leave(r);
        if (round % LOOKS || !(trouble = sc_comms_trouble(r))) continue;
        sc_stop(r, 3, "shardc: rank %d: NCCL has failed in step %lld: %s; set NCCL_DEBUG=WARN for NCCL's own account",
                r->rank, (long long)r->step, trouble);
    }
    return NULL;
}

void sc_guard_new(sc_rank *r) {
    if (r->world == 1) return;
    sc_check_thread(r, pthread_create(&r->t->guard, NULL, guard, r));
    r->t->has_guard = true;
}

void sc_guard_free(sc_rank *r) {
    if (!r->t->has_guard) return;
    atomic_store(&r->t->guard_ends, true);
    pthread_join(r->t->guard, NULL);
}
