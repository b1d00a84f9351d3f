/* The small services of a rank that do not depend on the target: its place, names and sizes, barriers, sums.
 * Relies on: rank.h.
 * Relied on by: every target, runtime/host through target.h. */
#include "rank.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── small things ────────────────────────────────────────────────────────────────────────────────────────────────────
 */

uint64_t sc_span(const sc_tensor *t) {
    int64_t last = 0;
    if (!sc_numel(t)) return 0;
    for (int i = 0; i < t->dims; i++) last += (t->shape[i] - 1) * t->stride[i];
    return (uint64_t)(last + 1) * sc_size(t->dtype);
}

sc_tensor sc_contiguous(int host, sc_dtype d, uint64_t at, int dims, const int64_t *shape) {
    sc_tensor t = {.at = at, .there = 1, .host = (uint8_t)host, .dtype = (uint8_t)d, .dims = (uint8_t)dims};
    int64_t stride = 1;
    for (int i = dims - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

void *sc_calloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) {
        fprintf(stderr, "shardc: out of memory while setting up a rank (%zu bytes)\n", n * size);
        exit(1);
    }
    return p;
}

/* stderr has no buffer, and stdio may hand it a line in pieces: other ranks' lines would come between them. */
void sc_put(const char *text, size_t size) {
    fflush(stdout);
    for (size_t at = 0; at < size;) {
        ssize_t k = write(STDERR_FILENO, text + at, size - at);
        if (k > 0)
            at += (size_t)k;
        else if (!k || errno != EINTR)
            return;
    }
}

void sc_say(const char *fmt, ...) {
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text - 1, fmt, ap);
    va_end(ap);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof text - 1 ? (size_t)n : sizeof text - 2;
    text[size++] = '\n';
    sc_put(text, size);
}

/* Ends this rank; the launcher ends the others. Two streams may fail at once: the first one speaks. */
_Noreturn void sc_stop(sc_rank *r, int code, const char *fmt, ...) {
    if (atomic_exchange(&r->w->ranks[r->rank].failed, 1))
        for (;;) pause();
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sc_say("%s", text);
    sc_leave(code);
}

static _Atomic(sc_world *) world; /* that the ranks of this process belong to */

/* Returns for one of the ranks that call it: rank 0, unless it does not. */
static void speak_once(sc_world *w, int rank) {
    if (rank) usleep(300000);
    if (atomic_exchange(&w->ranks[0].told, 1))
        for (;;) pause();
}

void sc_speak_once(int rank) {
    sc_world *w = world;
    if (w) speak_once(w, rank);
}

_Noreturn void sc_stop_once(sc_rank *r, int code, const char *fmt, ...) {
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    speak_once(r->w, r->rank);
    sc_stop(r, code, "%s", text);
}

void sc_describe(const sc_build *b, int program, int event, char *out, size_t n) {
    const sc_program_info *p = &b->programs[program];
    if (event < 0 || event >= p->nevents) {
        snprintf(out, n, "nothing");
        return;
    }
    const sc_event_info *e = &p->events[event];
    int k = snprintf(out, n, "%s %s %s", e->id, e->op, e->module && e->module[0] ? e->module : "(root)");
    if (e->file && k > 0 && (size_t)k < n) snprintf(out + k, n - (size_t)k, " (%s:%d)", e->file, e->line);
}

const char *sc_event_id(const sc_rank *r, int event) {
    const sc_program_info *p = &r->b->programs[r->current];
    return event >= 0 && event < p->nevents ? p->events[event].id : "?";
}

/* ── what a step's text may ask for ──────────────────────────────────────────────────────────────────────────────────
 */
void sc_check_tensor(sc_rank *r, int event, const sc_tensor *t) {
    uint64_t bytes = t->host ? r->b->host_bytes : r->b->arena_bytes, end = t->at + sc_span(t);
    if (sc_numel(t) && end > bytes)
        sc_stop(r, 3, "shardc: event %s touches byte 0x%llx of an arena of 0x%llx bytes", sc_event_id(r, event),
                (unsigned long long)end, (unsigned long long)bytes);
}

/* The ranks that differ from this one in their place on the group's axis alone. */
sc_members sc_comm(const sc_rank *r, int comm) {
    if (comm == SC_ALL_RANKS) return (sc_members){0, 1, r->world, r->rank}; /* ranks meet before any table is read */
    int axis = r->b->comms[comm].axis, step = r->b->axes[axis].stride;
    sc_coord c = r->coord[axis];
    return (sc_members){r->rank - c.at * step, step, c.of, c.at};
}

void sc_check_collective(sc_rank *r, sc_collective_kind kind, int event, int comm, int nt, const sc_tensor *t) {
    if (comm < 0 || comm >= r->b->ncomms)
        sc_stop(r, 3, "shardc: event %s names communicator %d", sc_event_id(r, event), comm);
    int64_t n = sc_comm(r, comm).n, whole = sc_numel(t), piece = sc_numel(t + nt - 1);
    bool fits = true;
    if (kind == SC_GATHER) fits = piece * n == whole;
    if (kind == SC_SCATTER) fits = whole * n == piece;
    if (kind == SC_REDUCE) fits = whole == piece;
    if (kind == SC_EXCHANGE) fits = whole == piece && whole % n == 0;
    if (!fits)
        sc_stop(r, 3, "shardc: event %s: %lld and %lld elements do not match %lld ranks", sc_event_id(r, event),
                (long long)whole, (long long)piece, (long long)n);
}

void sc_check_range(sc_rank *r, const char *what, int host, uint64_t at, size_t bytes) {
    uint64_t all = host ? r->b->host_bytes : r->b->arena_bytes;
    if (at > all || bytes > all - at)
        sc_stop(r, 3, "shardc: %s of %zu bytes at 0x%llx leaves the %s arena of %llu bytes", what, bytes,
                (unsigned long long)at, host ? "host" : "device", (unsigned long long)all);
}

/* ── place ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_rank_place(sc_rank *r, sc_world *w, int rank) {
    world = w;
    const sc_build *b = w->build;
    *r = (sc_rank){.b = b, .d = w->debug, .w = w, .rank = rank, .world = w->world};
    r->coord = sc_calloc((size_t)b->naxes, sizeof *r->coord);
    for (int i = 0; i < b->naxes; i++) r->coord[i] = sc_coord_on(&b->axes[i], rank);
}

int sc_rank_index(const sc_rank *r) {
    return r->rank;
}
const sc_build *sc_rank_build(const sc_rank *r) {
    return r->b;
}
uint64_t sc_allocated(const sc_rank *r, int host) {
    return r->arena[host] ? host ? r->b->host_bytes : r->b->arena_bytes : 0;
}

void sc_come_to(sc_rank *r, sc_stage stage) {
    atomic_store(&r->w->ranks[r->rank].stage, stage);
    atomic_fetch_add(&r->w->ranks[r->rank].ticks, 1);
}

void sc_set_step(sc_rank *r, int64_t step) {
    r->step = step;
    atomic_store(&r->w->ranks[r->rank].step, step);
}

void sc_record_write(sc_rank *r, const sc_record *rec) {
    r->record = *rec;
    sc_write(r, 0, r->b->record_at, rec, sizeof *rec);
}

/* ── meeting ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Every rank runs the same programs, and a stream its collectives in the same order: the n-th meeting of a stream is
 * the same meeting everywhere, whatever the communicator. */
void sc_meet(sc_rank *r, int stream, sc_members m) {
    uint32_t n = ++r->meetings[stream];
    sc_flag_add(&r->w->ranks[r->rank].met[stream], 1);
    if (r->w->bell) sc_flag_add(r->w->bell, 1);
    for (int k = 0; k < m.n; k++) sc_flag_wait(&r->w->ranks[m.first + k * m.step].met[stream], n);
}

void sc_barrier(sc_rank *r) {
    sc_shared_rank *me = &r->w->ranks[r->rank];
    atomic_store(&me->at_barrier, 1);
    sc_meet(r, SC_STREAMS, sc_comm(r, SC_ALL_RANKS));
    atomic_store(&me->at_barrier, 0);
    atomic_fetch_add(&me->ticks, 1);
}

void sc_host_gather(sc_rank *r, double x, double *all) {
    r->w->ranks[r->rank].host_value = x;
    sc_barrier(r);
    for (int k = 0; k < r->world; k++) all[k] = r->w->ranks[k].host_value;
    sc_barrier(r); /* nobody's next value may overtake a slow reader */
}

double sc_host_sum(sc_rank *r, double x) {
    r->w->ranks[r->rank].host_value = x;
    sc_barrier(r);
    double sum = 0;
    for (int k = 0; k < r->world; k++) sum += r->w->ranks[k].host_value;
    sc_barrier(r); /* nobody's next value may overtake a slow reader */
    return sum;
}
