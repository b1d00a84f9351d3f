/* One rank of the CPU target: its arenas, the capture of its programs from the step's text, and the small services that
 * the training program asks for.
 * Relies on: rank.h; stream.c replays what is captured here.
 * Relied on by: emitted code (sc_run, sc_wait, ...), runtime/host through target.h. */
#include "rank.h"
#include "../common/far.h"
#include "../common/lives.h"
#include "../sc_kernels.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── capture: the first and only run of a program's text fills its streams' lists ────────────────────────────────────
 */
#define GROW(at, n, cap)                                                                                               \
    do {                                                                                                               \
        if ((n) == (cap)) {                                                                                            \
            (cap) = (cap) ? 2 * (cap) : 8;                                                                             \
            (at) = realloc((at), sizeof *(at) * (size_t)(cap));                                                        \
            if (!(at)) sc_stop(r, 1, "shardc: out of memory while capturing");                                         \
        }                                                                                                              \
    } while (0)

void sc_wait(sc_rank *r, sc_stream s, int event) {
    sc_program *p = &r->t->programs[r->current];
    sc_list *l = &p->stream[s];
    if (event < 0 || event >= r->b->programs[r->current].nevents || p->stream_of[event] < 0)
        sc_stop(r, 3, "shardc: program %s waits for event %d (%s), which is not issued before",
                r->b->programs[r->current].name, event, sc_event_id(r, event));
    GROW(l->pending, l->npending, l->cappending);
    l->pending[l->npending++] = (sc_dep){p->stream_of[event], p->position_of[event], event};
}

/* Takes the stream's pending waits. A wait for an event of the same stream is implied by the stream's order. */
static sc_item *append(sc_rank *r, sc_kind kind, int event, sc_stream s, const void *args, size_t size, int slots) {
    sc_program *p = &r->t->programs[r->current];
    sc_list *l = &p->stream[s];
    if (event < 0 || event >= r->b->programs[r->current].nevents || p->stream_of[event] >= 0)
        sc_stop(r, 3, "shardc: program %s issues event %d twice or out of its table", r->b->programs[r->current].name,
                event);
    if (slots > SC_TENSORS)
        sc_stop(r, 3, "shardc: event %s has %d tensors, at most %d", sc_event_id(r, event), slots, SC_TENSORS);
    GROW(l->items, l->n, l->cap);
    p->stream_of[event] = s;
    p->position_of[event] = l->n;
    sc_item *it = &l->items[l->n++];
    *it = (sc_item){.kind = kind, .event = event, .parts = 1, .size = size, .slots = slots, .ndeps = l->npending};
    it->args = memcpy(sc_calloc(1, size), args, size);
    for (sc_tensor *t = it->args->t; t < it->args->t + slots; t++) {
        if (!t->there) continue;
        sc_check_tensor(r, event, t);
        t->p = r->arena[t->host] + t->at;
    }
    it->deps = sc_calloc((size_t)l->npending, sizeof *it->deps);
    if (l->npending) memcpy(it->deps, l->pending, sizeof *it->deps * (size_t)l->npending);
    l->npending = 0;
    return it;
}

/* Waking the other threads costs more than a small kernel does. Results do not depend on the number of parts. */
enum { SMALL = 16384 };

void sc_run(sc_rank *r, int event, sc_stream s, sc_kernel *k, const void *args, size_t size, int slots) {
    sc_item *it = append(r, SC_CALL, event, s, args, size, slots);
    it->kernel = k;
    it->finish = sc_kernel_finish(k);
    it->sleep_ns = sc_kernel_sleeps(k, it->args);
    int64_t elements = 0;
    for (const sc_tensor *t = it->args->t; t < it->args->t + slots; t++) elements += t->there ? sc_numel(t) : 0;
    if (s == COMPUTE && elements >= SMALL) it->parts = r->t->threads;
}

void sc_issue_collective(sc_rank *r, sc_collective_kind kind, int event, sc_stream s, int comm, int nt, sc_tensor *t) {
    sc_check_collective(r, kind, event, comm, nt, t);
    sc_item *it = append(r, SC_COLLECTIVE, event, s, t, sizeof *t * (size_t)nt, nt);
    it->collective = kind;
    it->comm = comm;
    if (sc_comm(r, comm).n > 1) it->sleep_ns = (int64_t)(r->d->delay_ms[s] * 1e6);
}

void sc_copy_bytes(sc_rank *r, int event, sc_stream s, sc_tensor out, sc_tensor in) {
    sc_tensor t[] = {out, in};
    append(r, SC_COPY, event, s, t, sizeof t, 2);
}

static void capture(sc_rank *r) {
    r->t->programs = sc_calloc((size_t)r->b->nprograms, sizeof *r->t->programs);
    for (int p = 0; p < r->b->nprograms; p++) {
        int n = r->b->programs[p].nevents;
        r->t->programs[p].stream_of = sc_calloc((size_t)n, sizeof(int));
        r->t->programs[p].position_of = sc_calloc((size_t)n, sizeof(int));
        for (int e = 0; e < n; e++) r->t->programs[p].stream_of[e] = -1;
        r->current = p;
        r->b->programs[p].text(r);
    }
}

/* ── life of a rank ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
sc_rank *sc_rank_new(sc_world *w, int rank) {
    sc_rank *r = sc_calloc(1, sizeof *r);
    sc_rank_place(r, w, rank);
    r->t = sc_calloc(1, sizeof *r->t);
    r->t->threads = r->b->threads;
    sc_come_to(r, SC_TAKES);
    for (int host = 0; host < 2; host++) {
        r->arena[host] = w->arena[host][rank];
        uint64_t bytes = host ? r->b->host_bytes : r->b->arena_bytes;
        if (bytes) /* takes the pages now: running out is impossible later */
            memset(r->arena[host], r->d->poison ? SC_POISON : 0, bytes);
    }
    sc_come_to(r, SC_REHEARSES);
    r->t->record = (const sc_record *)(r->arena[0] + r->b->record_at);
    capture(r);
    sc_far_new(r, SC_FAR_BYTES);
    sc_watch_new(r);
    sc_clock_new(r);
    if (r->d->dump_pattern) sc_dump_new(r);
    if (r->d->trace_path) sc_trace_new(r);
#ifndef SC_RANK_THREADS
    sc_kernels_warm(r->t->threads + SC_STREAMS); /* kernels may run on every stream and on the pool */
#endif
    sc_streams_start(r);
    return r;
}

int64_t sc_device_used(const sc_rank *r) {
    return -1;
}

void sc_describe_device(const sc_rank *r, char *out, size_t n) {
    *out = 0;
}

static void program_free(sc_program *p) {
    for (int s = 0; s < SC_STREAMS; s++) {
        for (int i = 0; i < p->stream[s].n; i++) {
            free(p->stream[s].items[i].args);
            free(p->stream[s].items[i].deps);
        }
        free(p->stream[s].items);
        free(p->stream[s].pending);
    }
    free(p->stream_of);
    free(p->position_of);
}

void sc_rank_free(sc_rank *r) {
    sc_streams_stop(r);
    sc_far_free(r);
    sc_watch_free(r);
    sc_clock_free(r);
    sc_dump_free(r);
    sc_trace_free(r);
    for (int p = 0; p < r->b->nprograms; p++) program_free(&r->t->programs[p]);
    free(r->t->programs);
    free(r->t);
    free(r->coord);
    free(r);
}

void sc_run_program(sc_rank *r, int program) {
    sc_shared_rank *me = &r->w->ranks[r->rank];
    r->current = program;
    atomic_store(&me->program, program);
    sc_watch_begin(r);
    sc_clock_begin(r);
    if (r->d->interleave >= 0)
        sc_interleave_run(r);
    else
        sc_streams_run(r);
    sc_watch_end(r);
    if (r->dumps) sc_dump_end(r);
    if (r->trace) sc_trace_end(r);
    atomic_store(&me->program, -1);
    atomic_fetch_add(&me->ticks, 1);
    r->launches++;
}

/* ── bytes of the arenas, between programs ───────────────────────────────────────────────────────────────────────────
 */
void sc_write(sc_rank *r, int host, uint64_t at, const void *src, size_t bytes) {
    sc_check_range(r, "write", host, at, bytes);
    memcpy(r->arena[host] + at, src, bytes);
}

void sc_read(sc_rank *r, int host, uint64_t at, void *dst, size_t bytes) {
    sc_check_range(r, "read", host, at, bytes);
    memcpy(dst, r->arena[host] + at, bytes);
}

void sc_read_peer(sc_rank *r, int peer, int host, uint64_t at, void *dst, size_t bytes) {
    sc_check_range(r, "read", host, at, bytes);
    if (sc_is_far(r, peer)) {
        sc_far_ask(r, SC_STREAMS, peer, host, at, bytes);
        sc_far_take(r, SC_STREAMS, peer, dst, bytes);
    } else {
        memcpy(dst, r->w->arena[host][peer] + at, bytes);
    }
}
