/* Says who hangs where when nothing moves: what each stream of each rank was last seen doing, in shared memory, and
 * before training how far each rank has come.
 * Relies on: rank.h, job.h; the targets, which write there what they are at (a device: sc_seen).
 * Relied on by: launch.c. */
#include "job.h"
#include "rank.h"
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A report is put together first, and goes out in one piece unless it is longer than this. Nothing is allocated. */
static struct {
    char text[1 << 16];
    size_t n;
} report;

static void put_report(void) {
    sc_put(report.text, report.n);
    report.n = 0;
}

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (report.n + size > sizeof report.text) put_report();
    memcpy(report.text + report.n, text, size);
    report.n += size;
}

static const char *const stream_names[] = SC_STREAM_NAMES;

/* ── what a stream is at ─────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_doing doing;
    int event, waits_for;
    bool on_device; /* seen at collectives only */
} sight;

static sight look(const sc_shared_rank *k, int stream) {
    const sc_status *s = &k->status[stream];
    uint64_t seen = atomic_load(&k->seen[stream]);
    if (seen) return (sight){(sc_doing)(seen & 15), (int)(seen >> 4 & 0xfffffff), -1, true};
    return (sight){(sc_doing)atomic_load(&s->doing), atomic_load(&s->event), atomic_load(&s->waits_for), false};
}

/* How far a rank has come on a stream. A device counts collectives within a program, so finished programs come first.
 */
static uint64_t progress(const sc_shared_rank *k, int stream, bool on_device) {
    if (!on_device) return atomic_load(&k->met[stream].value);
    return atomic_load(&k->ticks) << 32 | atomic_load(&k->seen[stream]) >> 32;
}

/* Names the ranks that are furthest behind on this stream, unless all are equally far. */
static void print_behind(const sc_world *w, int stream) {
    uint64_t far[w->world], least = UINT64_MAX, most = 0;
    bool on_device = false;
    for (int k = 0; k < w->world && stream < SC_STREAMS; k++) on_device |= atomic_load(&w->ranks[k].seen[stream]) != 0;
    for (int k = 0; k < w->world; k++) {
        far[k] = progress(&w->ranks[k], stream, on_device);
        if (far[k] < least) least = far[k];
        if (far[k] > most) most = far[k];
    }
    if (least == most) return;
    say("; behind:");
    for (int k = 0; k < w->world; k++)
        if (far[k] == least) say(" rank %d", k);
}

static void print_event(const sc_world *w, int program, int event) {
    char text[512];
    sc_describe(w->build, program, event, text, sizeof text);
    say(" %s", text);
}

/* A device's stream has left a collective and has not come to the next one: says what the next one waits for. */
static void print_left(const sc_world *w, int stream, int program, int left) {
    const sc_program_info *p = &w->build->programs[program];
    int next = left + 1;
    while (next < p->nevents && (int)p->events[next].stream != stream) next++;
    print_event(w, program, left);
    if (next >= p->nevents) {
        say(", its last");
        return;
    }
    say("; next is");
    print_event(w, program, next);
    for (int i = 0; i < p->events[next].nwaits; i++) {
        say(i ? "," : ", which waits for");
        print_event(w, program, p->events[next].waits[i]);
    }
}

static void print_stream(const sc_world *w, int rank, int stream) {
    static const char *const doing[] = {"has left", "runs", "waits before", "meets the other ranks in"};
    const sc_shared_rank *k = &w->ranks[rank];
    int program = atomic_load(&k->program);
    sight s = look(k, stream);
    if (program < 0 || (s.doing == SC_IDLE && !s.on_device)) return;
    say("  rank %d %-7s %s", rank, stream_names[stream], doing[s.doing]);
    if (s.doing == SC_IDLE) {
        print_left(w, stream, program, s.event);
    } else {
        print_event(w, program, s.event);
    }
    if (s.doing == SC_WAITING && s.waits_for >= 0) {
        say(" for");
        print_event(w, program, s.waits_for);
    }
    if (s.doing == SC_MEETING) print_behind(w, stream);
    say("\n");
}

/* ── ranks ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A process that a signal or a debugger has stopped. */
static bool is_stopped(int process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* a FILE would be memory taken while ranks train */
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *name_ends = strrchr(text, ')'); /* the last one: a name may hold others */
    return name_ends && (!strncmp(name_ends, ") T", 3) || !strncmp(name_ends, ") t", 3));
}

static sc_stage stage_of(const sc_shared_rank *k) {
    return (sc_stage)atomic_load(&k->stage);
}

static void print_rank(const sc_world *w, int rank) {
    static const char *const doing[] = {
        [SC_BEGINS] = "is about to begin",
        [SC_OPENS] = "opens its device and the libraries",
        [SC_CONNECTS] = "makes its communicators (NCCL)",
        [SC_TAKES] = "takes its memory",
        [SC_REGISTERS] = "registers its arena with the other ranks (NCCL)",
        [SC_REHEARSES] = "gets its programs ready",
        [SC_CAPTURES] = "captures its programs",
    };
    const sc_shared_rank *k = &w->ranks[rank];
    int program = atomic_load(&k->program), process = atomic_load(&k->stopped),
        at_barrier = atomic_load(&k->at_barrier);
    sc_stage stage = stage_of(k);
    bool trains = stage == SC_TRAINS;
    if (process) say("  rank %d's process %d is stopped (SIGSTOP)\n", rank, process);
    if (atomic_load(&k->done)) {
        say("  rank %d has finished\n", rank);
    } else if (program < 0) {
        const char *barrier = trains ? ", at a barrier" : ", and waits for the other ranks";
        say("  rank %d %s%s", rank, trains ? "is in the training program" : doing[stage], at_barrier ? barrier : "");
        if (at_barrier) print_behind(w, SC_STREAMS);
        say("\n");
    } else {
        const char *name = w->build->programs[program].name;
        if (trains)
            say("  rank %d is in program %s, step %lld\n", rank, name, (long long)atomic_load(&k->step));
        else
            say("  rank %d tries program %s, before training\n", rank, name);
        for (int s = 0; s < SC_STREAMS; s++) print_stream(w, rank, s);
    }
}

static bool before_training(const sc_world *w) {
    bool any = false;
    for (int k = 0; k < w->world; k++) any |= stage_of(&w->ranks[k]) < SC_TRAINS && !atomic_load(&w->ranks[k].done);
    return any;
}

/* Starts are slower than steps: before training the limit is at least the time that ranks wait for each other. */
static double deadline(const sc_world *w) {
    double stall = w->debug->stall_s, patience = sc_job_patience();
    return stall > 0 && stall < patience && before_training(w) ? patience : stall;
}

/* A rank outside of programs and barriers is at work in the training program, and may wait for data: that is no hang.
 * Before training every stage has the time limit, apart from SC_TAKES: allocating much memory takes long, so a rank is
 * late there only when another one waits for it. */
bool sc_stalled(const sc_world *w, sc_watchdog *dog) {
    uint64_t ticks = 0;
    bool blocked = true, waits = false;
    /* A rank's process can be looked at on its own machine only, so what is seen is written where all machines learn of
     * it. A rank may be stopped within a collective that all ranks have come to: nothing else tells it from the others.
     */
    for (int k = 0; k < w->world; k++) {
        int process = atomic_load(&w->ranks[k].pid);
        if (process) atomic_store(&w->ranks[k].stopped, is_stopped(process) ? process : 0);
    }
    for (int k = 0; k < w->world; k++) {
        const sc_shared_rank *x = &w->ranks[k];
        ticks += atomic_load(&x->ticks) << 20;
        for (int s = 0; s < SC_STREAMS; s++) ticks += atomic_load(&x->met[s].value) + (atomic_load(&x->seen[s]) >> 32);
        if (atomic_load(&x->done)) continue;
        bool starts = stage_of(x) != SC_TRAINS && stage_of(x) != SC_TAKES;
        bool here = atomic_load(&x->program) >= 0 || atomic_load(&x->at_barrier) || starts;
        if (!here && atomic_load(&x->stopped)) here = true;
        waits |= here;
        if (!here && stage_of(x) == SC_TRAINS) blocked = false;
    }
    if (ticks != dog->ticks || !blocked || !waits) *dog = (sc_watchdog){ticks, sc_now_s()};
    /* Rank 0's machine hears of all others and speaks first; the others speak where it does not. */
    double head_start = sc_job_host_rank() ? 0.5 : 0;
    return w->debug->stall_s > 0 && sc_now_s() - dog->since > deadline(w) + head_start;
}

/* How far a rank has come before training: its stage, then its barriers. */
static uint64_t way(const sc_shared_rank *k) {
    return (uint64_t)stage_of(k) << 32 | atomic_load(&k->met[SC_STREAMS].value);
}

/* Names the ranks that the others wait for, or, where all are equally far, what may hold all of them. */
static void print_missing(const sc_world *w) {
    uint64_t most = 0;
    int n = 0;
    for (int k = 0; k < w->world; k++)
        if (way(&w->ranks[k]) > most) most = way(&w->ranks[k]);
    for (int k = 0; k < w->world; k++)
        if (way(&w->ranks[k]) < most || atomic_load(&w->ranks[k].stopped))
            say(n++ ? ", %d" : "; the others wait for rank %d", k);
    sc_stage stage = (sc_stage)(most >> 32);
    if (!n && (stage == SC_CONNECTS || stage == SC_REGISTERS)) /* NCCL's: no rank gets through them alone */
        say("; all %d ranks have come, and NCCL does not connect them: NCCL_DEBUG=INFO says what it tries, "
            "NCCL_SOCKET_IFNAME which network it takes",
            w->world);
    say("; %s sets another limit\n", deadline(w) > w->debug->stall_s ? "SHARDC_PATIENCE" : "--stall-seconds");
}

void sc_print_stall(const sc_world *w) {
    say("shardc: no progress for %g s%s", deadline(w), before_training(w) ? " before training" : "");
    if (before_training(w))
        print_missing(w);
    else
        say("\n");
    for (int k = 0; k < w->world; k++) print_rank(w, k);
    put_report();
}

void sc_print_killed(const sc_world *w, int rank, int signal) {
    say("shardc: rank %d was ended by signal %d (%s); the other ranks are stopped\n", rank, signal, strsignal(signal));
    if (signal == SIGILL)
        say("  this processor lacks an instruction: `make` and `shardc build` compile for the one that they run on; "
            "build here, or with --portable\n");
    print_rank(w, rank);
    put_report();
}

void sc_ask_to_leave(const sc_world *w) {
    for (int k = 0; k < w->world; k++) atomic_store(&w->ranks[k].leave, 1);
}
