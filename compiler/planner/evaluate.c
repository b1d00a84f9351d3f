/* evaluate: compiles the model under candidate policies, in processes of their own, and reads off what blocks need.
 * Relies on: evaluate.h, fork. A process that fails writes nothing: such entries cannot be had.
 * Relied on by: planner.c. */
#include "evaluate.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ── what is alive ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* State of an update that streams through the device takes room that is free anyway (schedule/streamed_updates.c). */
static bool streamed(const PlanProgram *p, const Storage *s) {
    const Event *first = s->first >= 0 && s->first < p->n ? &p->events[s->first] : NULL;
    return first && first->phase == OPTIMIZER && (first->stream == FETCH || first->stream == UPDATE);
}

static int64_t *live_bytes(Arena *a, const Plan *p, int program) {
    int n = p->programs[program].n;
    int64_t *live = NEW_ARRAY(a, int64_t, n + 2);
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (s->arena != ARENA_DEVICE || (s->program >= 0 && s->program != program)) continue;
        bool persistent = s->program < 0;
        if (!persistent && (s->first < 0 || streamed(&p->programs[program], s))) continue;
        live[persistent ? 0 : s->first] += s->size;
        live[persistent ? n : s->last + 1] -= s->size;
    }
    for (int e = 1; e < n; e++) live[e] += live[e - 1];
    return live;
}

/* Positions of one training program: its blocks' forwards begin at forward[i], their backwards at backward[i]. */
typedef struct {
    int *block;                    /* by event; -1: none */
    int *forward, *backward, turn; /* turn: first event after the last pinned forward one */
} Positions;

static Positions positions(Arena *a, const PlanProgram *p, const Blocks *b) {
    int n = b->at.n;
    Positions x = {NEW_ARRAY(a, int, p->n + 1), NEW_ARRAY(a, int, n + 1), NEW_ARRAY(a, int, n + 1), 0};
    Map *known = map_new(a);
    VEC(int) block_of = {0};
    for (int i = 0; i < n; i++) x.forward[i] = x.backward[i] = -1;
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        int paths = map_len(known), at = map_index(known, ev->module);
        if (at == paths) push(&block_of, a, blocks_of_path(b, ev->module));
        x.block[e] = block_of.at[at];
        bool forward = ev->phase == FORWARD;
        if (ev->stream != COMPUTE || (!forward && ev->phase != RECOMPUTE && ev->phase != BACKWARD)) continue;
        if (forward) x.turn = e + 1;
        if (x.block[e] < 0) continue;
        int *first = forward ? x.forward : x.backward;
        if (first[x.block[e]] < 0) first[x.block[e]] = e;
    }
    return x;
}

static void at_least(int64_t *x, int64_t y) {
    if (y > *x) *x = y;
}

/* Adds a training program to the needs: of several (microbatches that accumulate) the largest counts. */
static void add_program(Arena *a, const Plan *p, int program, const Blocks *b, Outcome *o) {
    const PlanProgram *g = &p->programs[program];
    int n = b->at.n;
    const int64_t *live = live_bytes(a, p, program);
    Positions at = positions(a, g, b);
    int64_t *kept = NEW_ARRAY(a, int64_t, n + 1), *before = NEW_ARRAY(a, int64_t, n + 1);
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (s->program != program || s->arena != ARENA_DEVICE || s->first < 0 || s->last < at.turn) continue;
        if (streamed(g, s)) continue;
        bool of_block = s->first < at.turn && at.block[s->first] >= 0 && g->events[s->first].stream == COMPUTE;
        if (of_block) kept[at.block[s->first]] += s->size;
    }
    for (int i = 0; i < n; i++) before[i + 1] = before[i] + kept[i];
    int block = 0; /* whose forward it is, then whose backward */
    for (int e = 0; e < g->n; e++) {
        at_least(&o->live, live[e]);
        if (e < at.turn) {
            while (block + 1 < n && at.forward[block + 1] >= 0 && at.forward[block + 1] <= e) block++;
            if (n) at_least(&o->blocks[block].forward, live[e] - before[block]);
            continue;
        }
        if (e == at.turn) block = n;
        while (block > 0 && at.backward[block - 1] >= 0 && at.backward[block - 1] <= e) block--;
        if (block < n)
            at_least(&o->blocks[block].backward, live[e] - before[block]);
        else
            at_least(&o->between, live[e] - before[n]);
    }
    for (int i = 0; i < n; i++) at_least(&o->blocks[i].kept, kept[i]);
}

Outcome evaluate_plan(Arena *a, const Plan *p, const Blocks *b) {
    Outcome o = {.made = true,
                 .arena = p->arena_bytes[ARENA_DEVICE],
                 .host = p->arena_bytes[ARENA_HOST],
                 .blocks = NEW_ARRAY(a, BlockNeeds, b->at.n + 1)};
    const PlanProgram *micro = NULL;
    int microbatches = 0;
    for (int i = 0; i < p->nprograms; i++) {
        if (!program_trains(&p->programs[i])) continue;
        add_program(a, p, i, b, &o);
        micro = !strcmp(p->programs[i].name, "micro") ? &p->programs[i] : micro;
        if (!strcmp(p->programs[i].name, "micro")) continue;
        o.step_us += p->programs[i].step_us;
        o.exposed_us += p->programs[i].exposed_us;
        microbatches++;
    }
    if (micro && !microbatches) {
        o.step_us = micro->step_us;
        o.exposed_us = micro->exposed_us;
    }
    return o;
}

/* ── processes ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool write_all(int fd, const void *bytes, size_t n) {
    for (const char *at = bytes; n;) {
        ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool read_all(int fd, void *bytes, size_t n) {
    for (char *at = bytes; n;) {
        ssize_t k = read(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

/* It ends when the planner does, however that ends. */
static _Noreturn void child(pid_t planner, PlannerCompile *compile, const void *context, const Blocks *b,
                            const char *entries, int fd) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != planner) _exit(1);
    int nothing = open("/dev/null", O_WRONLY); /* what it says of such entries is no diagnostic of the user's */
    if (nothing < 0 || dup2(nothing, STDERR_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0) _exit(1);
    Arena *a = arena_new();
    Outcome o = evaluate_plan(a, compile(a, context, entries, true), b);
    size_t n = sizeof *o.blocks * (size_t)b->at.n;
    _exit(write_all(fd, &o, sizeof o) && write_all(fd, o.blocks, n) ? 0 : 1);
}

typedef struct {
    pid_t pid;
    int fd;
} Child;

static Child start(PlannerCompile *compile, const void *context, const Blocks *b, const char *entries) {
    int fds[2];
    fflush(NULL);
    if (pipe(fds))
        fail(NOWHERE, "cannot make a pipe for a planning process: %s; close programs and run again", strerror(errno));
    pid_t planner = getpid();
    Child c = {fork(), fds[0]};
    if (c.pid < 0) fail(NOWHERE, "cannot start a planning process: %s; close programs and run again", strerror(errno));
    if (!c.pid) {
        close(fds[0]);
        child(planner, compile, context, b, entries, fds[1]);
    }
    close(fds[1]);
    return c;
}

static void finish(Arena *a, const Blocks *b, Child c, Outcome *out) {
    size_t n = sizeof *out->blocks * (size_t)b->at.n;
    BlockNeeds *blocks = NEW_ARRAY(a, BlockNeeds, b->at.n + 1);
    bool made = read_all(c.fd, out, sizeof *out) && read_all(c.fd, blocks, n);
    int status;
    close(c.fd);
    while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) continue;
    if (!made) *out = (Outcome){0};
    out->blocks = blocks;
}

void evaluate_all(Arena *a, PlannerCompile *compile, const void *context, const Blocks *b, const char *const *entries,
                  int n, Outcome *out) {
    enum { MOST = 16 };
    Child running[MOST];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int width = processors < 1 ? 1 : processors > MOST ? MOST : (int)processors;
    for (int done = 0, begun = 0; done < n; done++) { /* in order: the results of a later one wait in its pipe */
        while (begun < n && begun - done < width) {
            running[begun % MOST] = start(compile, context, b, entries[begun]);
            begun++;
        }
        finish(a, b, running[done % MOST], &out[done]);
    }
}
