/* Starts the ranks of a build and watches them: flags in shared memory, one process a rank (or, with -DSC_RANK_THREADS,
 * one thread), ends all when one dies, and says who hangs where when nothing moves.
 * Relies on: job.h, parent.h, rank.h and the target's part of it; fork.
 * Relied on by: runtime/host (sc_launch). */
#include "../sc_kernels.h"
#include "job.h"
#include "parent.h"
#include "rank.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* ── the world ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool world_new(sc_world *w, const sc_build *b, const sc_debug *d) {
    *w = (sc_world){.build = b, .debug = d, .world = b->world, .guest = !sc_job_hosts()};
    w->ranks = sc_map_shared(sizeof *w->ranks * (size_t)b->world);
    if (!w->ranks) {
        fprintf(stderr, "shardc: cannot map the flags of %d ranks: %s\n", b->world, strerror(errno));
        return false;
    }
    if (!sc_one_machine()) w->bell = &w->ranks[sc_job_host_rank()].rung;
    for (int k = 0; k < b->world && !w->guest; k++) w->ranks[k].program = -1;
    return sc_world_open(w);
}

static void world_free(sc_world *w) {
    if (!w->ranks) return;
    sc_world_close(w);
    sc_unmap(w->ranks, sizeof *w->ranks * (size_t)w->world);
}

/* ── ranks ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double poll_interval(const sc_debug *d) {
    double t = d->stall_s > 0 ? d->stall_s / 8 : 1;
    return t > 0.25 ? 0.25 : t;
}

typedef struct {
    sc_world w;
    int (*body)(sc_rank *r, void *arg);
    void *arg;
    bool cut; /* a rank was killed, whatever it was at */
} job;

static int run_rank(job *j, int rank) {
    sc_rank *r = sc_rank_new(&j->w, rank);
    sc_come_to(r, SC_TRAINS);
    int code = j->body(r, j->arg);
    atomic_store(&j->w.ranks[rank].done, 1);
    sc_rank_free(r);
    return code;
}

#ifdef SC_RANK_THREADS

typedef struct {
    job *j;
    int rank, code;
    pthread_t thread;
    _Atomic int ended;
} seat;

static void *seat_thread(void *arg) {
    seat *s = arg;
    s->code = run_rank(s->j, s->rank);
    atomic_store(&s->ended, 1);
    return NULL;
}

static int run_all(job *j) {
    seat *seats = sc_calloc((size_t)j->w.world, sizeof *seats);
    sc_watchdog dog = {0, sc_now_s()};
    int code = 0, ended = 0, threads = j->w.build->threads > 0 ? j->w.build->threads : 1;
    sc_kernels_warm(j->w.world * (threads + SC_STREAMS));
    for (int k = 0; k < j->w.world; k++) {
        seats[k].j = j;
        seats[k].rank = k;
        if (pthread_create(&seats[k].thread, NULL, seat_thread, &seats[k])) {
            fprintf(stderr, "shardc: cannot start a thread for rank %d\n", k);
            exit(1);
        }
    }
    while (ended < j->w.world) {
        struct timespec t = {0, (long)(poll_interval(j->w.debug) * 1e8)};
        nanosleep(&t, NULL);
        ended = 0;
        for (int k = 0; k < j->w.world; k++) ended += atomic_load(&seats[k].ended);
        bool failed = false;
        for (int k = 0; k < j->w.world; k++) failed |= atomic_load(&seats[k].ended) && seats[k].code;
        if (failed && ended < j->w.world) { /* the others may wait for it forever */
            sleep(1);
            for (int k = 0; k < j->w.world; k++)
                if (atomic_load(&seats[k].ended) && seats[k].code > code) code = seats[k].code;
            exit(code);
        }
        if (sc_stalled(&j->w, &dog)) {
            sc_print_stall(&j->w);
            exit(3);
        }
        if (sc_signals_stop() && sc_signals_at_once(&j->w)) exit(128 + sc_signals_stop());
    }
    for (int k = 0; k < j->w.world; k++) {
        pthread_join(seats[k].thread, NULL);
        if (seats[k].code > code) code = seats[k].code;
    }
    free(seats);
    return code;
}

#else

static pid_t fork_rank(job *j, int rank, const sigset_t *mask) {
    pid_t parent = getpid(), pid = fork();
    if (pid) return pid;
    sc_job_fork();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives its launcher */
    if (getppid() != parent) _exit(1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    atomic_store(&j->w.ranks[rank].pid, getpid());
    int code = run_rank(j, rank);
    world_free(&j->w);
    exit(code);
}

typedef struct {
    pid_t *pids;
    int left, code;
    double kill_at; /* 0: no rank has failed; then the others get a moment to end by themselves */
    bool killed, told;
} flock;

static void kill_all(flock *f, int world) {
    for (int k = 0; k < world; k++)
        if (f->pids[k] > 0) kill(f->pids[k], SIGKILL);
    f->killed = true;
}

static void reap(job *j, flock *f) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int rank = 0, code = 3;
        while (rank < j->w.world && f->pids[rank] != pid) rank++;
        if (rank == j->w.world) continue;
        if (WIFEXITED(status)) {
            code = WEXITSTATUS(status);
        } else if (f->killed) {
            code = 0;
            j->cut = true;
        } else { /* a death by signal is told here, since the rank cannot */
            j->cut = true;
            sc_job_speaks();
            sc_print_killed(&j->w, rank, WTERMSIG(status));
        }
        f->pids[rank] = 0;
        f->left--;
        if (!f->killed) atomic_store(&j->w.ranks[rank].done, 1);
        if (code > f->code) f->code = code;
        if (code && f->kill_at == 0) f->kill_at = sc_now_s() + 1;
        if (code) sc_ask_to_leave(&j->w);
    }
}

static void watch_ranks(job *j, flock *f, const sigset_t *child) {
    sc_watchdog dog = {0, sc_now_s()};
    double interval = poll_interval(j->w.debug);
    char who[64];
    /* Who has set the variables by hand may have ended until here: then it waits for nobody. */
    if (!sc_job_alone() && !sc_job_place()->certain) sc_parent_find(false);
    while (f->left) {
        struct timespec t = {0, (long)(interval * 1e9)};
        sigtimedwait(child, NULL, &t);
        reap(j, f);
        if (sc_parent_gone(who, sizeof who) && sc_signals_ask(SIGTERM))
            sc_say("shardc: %s, which started the ranks, has ended: they stop as at SIGTERM", who);
        /* The ranks themselves heed a first request to stop; this process stays to tell how they end. */
        int signal = f->killed ? 0 : sc_signals_stop();
        if (signal && sc_signals_at_once(&j->w)) {
            if (f->code < 128 + signal) f->code = 128 + signal;
            kill_all(f, j->w.world);
        } else if (signal && !f->told && sc_first() && sc_signals_last()) {
            sc_say("shardc: stopping as soon as the step or save under way is done; another signal stops at once");
            f->told = true;
        }
        int others = sc_job_worst(); /* what other processes of the job have come to */
        if (others > f->code) f->code = others;
        if (others && f->kill_at == 0) { /* who is told of a stall needs a moment to be told */
            f->kill_at = sc_now_s() + 1;
            sc_ask_to_leave(&j->w);
        }
        if (!f->left || f->killed) continue;
        if (f->kill_at > 0 && sc_now_s() > f->kill_at) kill_all(f, j->w.world);
        if (f->kill_at > 0 || !sc_stalled(&j->w, &dog)) continue;
        if (f->code < 3) f->code = 3;
        f->kill_at = sc_now_s() + 1;
        if (!sc_job_speaks()) continue;
        sc_print_stall(&j->w);
        sc_ask_to_leave(&j->w);
    }
}

static int run_all(job *j) {
    flock f = {.pids = sc_calloc((size_t)j->w.world, sizeof(pid_t))};
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    int first = sc_job_place()->rank, end = sc_job_alone() ? j->w.world : first + 1;
    for (int k = first; k < end; k++) {
        f.pids[k] = fork_rank(j, k, &before);
        if (f.pids[k] < 0) {
            fprintf(stderr, "shardc: cannot start rank %d: %s\n", k, strerror(errno));
            f.pids[k] = 0;
            f.code = 1;
            kill_all(&f, k);
            break;
        }
        f.left++;
    }
    watch_ranks(j, &f, &child);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!sc_job_alone() && !f.code && atomic_load(&j->w.ranks[first].leave)) f.code = sc_job_blame();
    free(f.pids);
    return f.code;
}

#endif

/* ── the way in ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
int sc_launch(const sc_build *b, const sc_debug *d, int (*body)(sc_rank *r, void *arg), void *arg) {
    if (sc_job_hosts() && !sc_world_fits(b, d)) return 1;
    char names[1024];
    if (sc_first() && d->dump_pattern && !sc_dump_matches(b, d, names, sizeof names)) {
        fprintf(stderr, "shardc: --dump '%s' matches no value of %s; values have names like %s\n", d->dump_pattern,
                b->name, names);
        return 1;
    }
    int error = sc_first() && d->dump_pattern ? sc_aside_try(sc_dump_path(d)) : 0;
    if (error) {
        fprintf(stderr, "shardc: cannot write the dump %s: %s; name another file with -o\n", sc_dump_path(d),
                strerror(error));
        return 1;
    }
    job j = {.body = body, .arg = arg};
    sc_aside trace;
    fflush(NULL); /* or every rank would print what we have not yet written */
    if (!sc_outputs_new() || !sc_signals_new()) {
        fprintf(stderr, "shardc: cannot map what signals ask for: %s\n", strerror(errno));
        return 1;
    }
    if (sc_first() && d->trace_path && !sc_trace_create(b, &trace, d->trace_path)) {
        fprintf(stderr, "shardc: cannot write the trace %s: %s; name another file with --trace\n", d->trace_path,
                strerror(trace.error));
        return 1;
    }
    bool ready = world_new(&j.w, b, d) && sc_job_open(&j.w);
    if (ready) sc_signals_listen(); /* to the end of the process: launchers may send more while it ends */
    int code = sc_job_end(ready ? run_all(&j) : 1);
    world_free(&j.w);
    if (d->trace_path && sc_first()) sc_trace_close(&trace, d->trace_path, j.cut);
    return code;
}
