/* Starts the ranks of a build and watches them: arenas and flags in shared memory, one process a rank (or, with
 * -DSC_RANK_THREADS, one thread), ends all when one dies, and says who hangs where when nothing moves.
 * Relies on: rank.h; fork, mmap.
 * Relied on by: runtime/host (sc_launch). */
#include "../sc_kernels.h"
#include "rank.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double read_number(const char *path, const char *key) { /* -1: not there, or "max" */
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    char line[256];
    double x = -1;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) {
            char *end, *at = line + strlen(key);
            double v = strtod(at, &end);
            if (end != at) x = v;
            break;
        }
    fclose(f);
    return x;
}

static double available_bytes(void) {
    double machine = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    double limit = read_number("/sys/fs/cgroup/memory.max", ""),
           used = read_number("/sys/fs/cgroup/memory.current", "");
    if (limit > 0 && used >= 0 && (machine < 0 || limit - used < machine)) return limit - used;
    return machine;
}

static bool fits(const sc_build *b) {
    double need = (double)b->world * (double)(b->arena_bytes + b->host_bytes), have = available_bytes(),
           gib = 1024. * 1024 * 1024;
    if (have < 0 || need <= have) return true;
    fprintf(stderr,
            "shardc: %s does not fit this machine: %d ranks need %.2f GiB (device arena %.2f, host arena %.2f each), "
            "%.2f GiB are free; use a smaller batch, recompute or offload, or more memory\n",
            b->name, b->world, need / gib, (double)b->arena_bytes / gib, (double)b->host_bytes / gib, have / gib);
    return false;
}

#ifdef SC_RANK_THREADS
static void *map_shared(size_t bytes) {
    size_t whole = (bytes + 4095) / 4096 * 4096;
    void *p = aligned_alloc(4096, whole);
    if (p) memset(p, 0, whole);
    return p;
}
static void unmap(void *p, size_t bytes) {
    free(p);
}
#else
static void *map_shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static void unmap(void *p, size_t bytes) {
    munmap(p, bytes);
}
#endif

static bool world_new(sc_world *w, const sc_build *b, const sc_debug *d) {
    *w = (sc_world){.build = b, .debug = d, .world = b->world, .shards = b->nunits ? b->units[0].shards : b->world};
    if (w->shards < 1 || b->world % w->shards) w->shards = b->world;
    w->ranks = map_shared(sizeof *w->ranks * (size_t)b->world);
    bool ok = w->ranks != NULL;
    for (int host = 0; host < 2; host++) {
        size_t bytes = host ? b->host_bytes : b->arena_bytes;
        w->arena[host] = sc_calloc((size_t)b->world, sizeof *w->arena[host]);
        for (int k = 0; ok && bytes && k < b->world; k++) ok = (w->arena[host][k] = map_shared(bytes)) != NULL;
    }
    if (!ok)
        fprintf(stderr, "shardc: cannot map %d arenas of %llu + %llu bytes: %s\n", b->world,
                (unsigned long long)b->arena_bytes, (unsigned long long)b->host_bytes, strerror(errno));
    for (int k = 0; ok && k < b->world; k++) w->ranks[k].program = -1;
    return ok;
}

static void world_free(sc_world *w) {
    for (int host = 0; host < 2; host++) {
        for (int k = 0; k < w->world; k++)
            if (w->arena[host][k]) unmap(w->arena[host][k], host ? w->build->host_bytes : w->build->arena_bytes);
        free(w->arena[host]);
    }
    if (w->ranks) unmap(w->ranks, sizeof *w->ranks * (size_t)w->world);
}

/* ── the watchdog ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const char *const stream_names[] = {"compute", "gather", "reduce", "offload", "fetch", "host"};

/* Ranks whose count of meetings on this stream is the smallest, where counts differ at all. */
static void print_behind(const sc_world *w, int stream) {
    uint32_t least = UINT32_MAX, most = 0;
    for (int k = 0; k < w->world; k++) {
        uint32_t n = atomic_load(&w->ranks[k].met[stream].value);
        if (n < least) least = n;
        if (n > most) most = n;
    }
    if (least == most) return;
    fprintf(stderr, "; behind:");
    for (int k = 0; k < w->world; k++)
        if (atomic_load(&w->ranks[k].met[stream].value) == least) fprintf(stderr, " rank %d", k);
}

static void print_stream(const sc_world *w, int rank, int stream) {
    static const char *const doing[] = {"idle", "runs", "waits before", "meets the other ranks in"};
    const sc_shared_rank *k = &w->ranks[rank];
    const sc_status *s = &k->status[stream];
    int what = atomic_load(&s->doing), program = atomic_load(&k->program), waits_for = atomic_load(&s->waits_for);
    if (what == SC_IDLE || program < 0) return;
    char event[512], awaited[512];
    sc_describe(w->build, program, atomic_load(&s->event), event, sizeof event);
    fprintf(stderr, "  rank %d %-7s %s %s", rank, stream_names[stream], doing[what], event);
    if (what == SC_WAITING && waits_for >= 0) {
        sc_describe(w->build, program, waits_for, awaited, sizeof awaited);
        fprintf(stderr, " for %s", awaited);
    }
    if (what == SC_MEETING) print_behind(w, stream);
    fprintf(stderr, "\n");
}

static void print_rank(const sc_world *w, int rank) {
    const sc_shared_rank *k = &w->ranks[rank];
    int program = atomic_load(&k->program);
    if (atomic_load(&k->done)) {
        fprintf(stderr, "  rank %d has finished\n", rank);
    } else if (program < 0) {
        fprintf(stderr, "  rank %d is in the training program%s", rank,
                atomic_load(&k->at_barrier) ? ", at a barrier" : "");
        if (atomic_load(&k->at_barrier)) print_behind(w, SC_STREAMS);
        fprintf(stderr, "\n");
    } else {
        fprintf(stderr, "  rank %d is in program %s, step %lld\n", rank, w->build->programs[program].name,
                (long long)atomic_load(&k->step));
        for (int s = 0; s < SC_STREAMS; s++) print_stream(w, rank, s);
    }
}

typedef struct {
    uint64_t ticks;
    double since;
} watchdog;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A rank outside of programs and barriers is at work in the training program (it may wait for data): no hang. */
static bool stalled(const sc_world *w, watchdog *dog) {
    uint64_t ticks = 0;
    bool blocked = true, any = false;
    for (int k = 0; k < w->world; k++) {
        const sc_shared_rank *x = &w->ranks[k];
        ticks += atomic_load(&x->ticks);
        if (atomic_load(&x->done)) continue;
        any = true;
        if (atomic_load(&x->program) < 0 && !atomic_load(&x->at_barrier)) blocked = false;
    }
    if (ticks != dog->ticks || !blocked || !any) *dog = (watchdog){ticks, now_s()};
    return w->debug->stall_s > 0 && now_s() - dog->since > w->debug->stall_s;
}

static void print_stall(const sc_world *w) {
    fprintf(stderr, "shardc: no progress for %g s\n", w->debug->stall_s);
    for (int k = 0; k < w->world; k++) print_rank(w, k);
}

static double poll_interval(const sc_debug *d) {
    double t = d->stall_s > 0 ? d->stall_s / 8 : 1;
    return t > 0.25 ? 0.25 : t;
}

/* ── ranks ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_world w;
    int (*body)(sc_rank *r, void *arg);
    void *arg;
} job;

static int run_rank(job *j, int rank) {
    sc_rank *r = sc_rank_new(&j->w, rank);
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
    watchdog dog = {0, now_s()};
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
        if (stalled(&j->w, &dog)) {
            print_stall(&j->w);
            exit(3);
        }
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
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives its launcher */
    if (getppid() != parent) _exit(1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    int code = run_rank(j, rank);
    world_free(&j->w);
    exit(code);
}

static int rank_of(const pid_t *pids, int world, pid_t pid) {
    for (int k = 0; k < world; k++)
        if (pids[k] == pid) return k;
    return -1;
}

/* The code that a rank's end stands for; a death by signal is told here, since the rank cannot. */
static int end_of_rank(const job *j, int rank, int status, bool expected) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (expected) return 0;
    int signal = WTERMSIG(status);
    if (signal == SIGINT || signal == SIGTERM) return 128 + signal; /* the user's wish */
    fflush(stdout);
    fprintf(stderr, "shardc: rank %d was ended by signal %d (%s); the other ranks are stopped\n", rank, signal,
            strsignal(signal));
    print_rank(&j->w, rank);
    return 3;
}

typedef struct {
    pid_t *pids;
    int left, code;
    double kill_at; /* 0: no rank has failed; then the others get a moment to end by themselves */
    bool killed;
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
        int rank = rank_of(f->pids, j->w.world, pid);
        if (rank < 0) continue;
        int code = end_of_rank(j, rank, status, f->killed);
        f->pids[rank] = 0;
        f->left--;
        atomic_store(&j->w.ranks[rank].done, 1);
        if (code > f->code) f->code = code;
        if (code && f->kill_at == 0) f->kill_at = now_s() + 1;
    }
}

static void watch_ranks(job *j, flock *f, const sigset_t *child) {
    watchdog dog = {0, now_s()};
    double interval = poll_interval(j->w.debug);
    while (f->left) {
        struct timespec t = {0, (long)(interval * 1e9)};
        sigtimedwait(child, NULL, &t);
        reap(j, f);
        if (f->left && !f->killed && f->kill_at > 0 && now_s() > f->kill_at) kill_all(f, j->w.world);
        if (f->left && !f->killed && f->kill_at == 0 && stalled(&j->w, &dog)) {
            print_stall(&j->w);
            if (f->code < 3) f->code = 3;
            kill_all(f, j->w.world);
        }
    }
}

static int run_all(job *j) {
    flock f = {.pids = sc_calloc((size_t)j->w.world, sizeof(pid_t))};
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    for (int k = 0; k < j->w.world; k++) {
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
    sigaction(SIGINT, &ignore, &old); /* Ctrl-C reaches the ranks; we stay to tell how they end */
    watch_ranks(j, &f, &child);
    sigaction(SIGINT, &old, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(f.pids);
    return f.code;
}

#endif

/* ── the way in ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int check_debug(const sc_build *b, const sc_debug *d) {
    char names[1024];
    if (d->dump_pattern && !sc_dump_matches(b, d, names, sizeof names)) {
        fprintf(stderr, "shardc: --dump '%s' matches no value of %s; values have names like %s\n", d->dump_pattern,
                b->name, names);
        return 1;
    }
    if (d->trace_path && !sc_trace_create(b, d->trace_path)) {
        fprintf(stderr, "shardc: cannot write %s: %s\n", d->trace_path, strerror(errno));
        return 1;
    }
    return 0;
}

int sc_launch(const sc_build *b, const sc_debug *d, int (*body)(sc_rank *r, void *arg), void *arg) {
    if (!fits(b)) return 1;
    int code = check_debug(b, d);
    if (code) return code;
    job j = {.body = body, .arg = arg};
    fflush(NULL); /* or every rank would print what we have not yet written */
    code = world_new(&j.w, b, d) ? run_all(&j) : 1;
    world_free(&j.w);
    if (d->trace_path) sc_trace_close(d->trace_path);
    return code;
}
