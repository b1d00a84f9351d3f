/* Says who hangs where when nothing moves: what each stream of each rank was last seen doing, in shared memory.
 * Relies on: rank.h; the targets, which write status and meetings.
 * Relied on by: launch.c. */
#include "rank.h"
#include <stdio.h>
#include <time.h>

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

/* A process that a signal or a debugger has stopped. */
static bool stopped(const sc_shared_rank *k) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", atomic_load(&k->pid));
    FILE *f = atomic_load(&k->pid) ? fopen(path, "r") : NULL;
    if (!f) return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    fclose(f);
    return state == 'T' || state == 't';
}

void sc_print_rank(const sc_world *w, int rank) {
    const sc_shared_rank *k = &w->ranks[rank];
    int program = atomic_load(&k->program);
    if (stopped(k)) fprintf(stderr, "  rank %d's process %d is stopped (SIGSTOP)\n", rank, atomic_load(&k->pid));
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

double sc_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A rank outside of programs and barriers is at work in the training program (it may wait for data): no hang. */
bool sc_stalled(const sc_world *w, sc_watchdog *dog) {
    uint64_t ticks = 0;
    bool blocked = true, any = false;
    for (int k = 0; k < w->world; k++) {
        const sc_shared_rank *x = &w->ranks[k];
        ticks += atomic_load(&x->ticks);
        for (int s = 0; s < SC_STREAMS; s++) ticks += atomic_load(&x->met[s].value);
        if (atomic_load(&x->done)) continue;
        any = true;
        if (atomic_load(&x->program) < 0 && !atomic_load(&x->at_barrier) && !stopped(x)) blocked = false;
    }
    if (ticks != dog->ticks || !blocked || !any) *dog = (sc_watchdog){ticks, sc_now_s()};
    return w->debug->stall_s > 0 && sc_now_s() - dog->since > w->debug->stall_s;
}

void sc_print_stall(const sc_world *w) {
    fprintf(stderr, "shardc: no progress for %g s\n", w->debug->stall_s);
    for (int k = 0; k < w->world; k++) sc_print_rank(w, k);
}
