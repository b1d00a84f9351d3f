/* One rank of the CPU target: its arenas, the capture of its programs from the step's text, and the small services that
 * the training program asks for.
 * Relies on: rank.h; stream.c replays what is captured here.
 * Relied on by: emitted code (sc_run, sc_wait, ...), runtime/host through target.h. */
#include "rank.h"
#include "../sc_kernels.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── small things ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
size_t sc_dtype_size(int dtype) {
    static const uint8_t size[] = {[FP32] = 4,     [BF16] = 2,  [FP16] = 2,  [FP64] = 8, [FP8_E4M3] = 1,
                                   [FP8_E5M2] = 1, [INT32] = 4, [INT64] = 8, [BOOL] = 1};
    return size[dtype];
}

int64_t sc_numel(const sc_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->dims; i++) n *= t->shape[i];
    return n;
}

sc_tensor sc_contiguous(int host, sc_dtype d, uint64_t at, int dims, const int64_t *shape) {
    sc_tensor t = {.at = at, .host = (uint8_t)host, .dtype = (uint8_t)d, .dims = (uint8_t)dims};
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

/* Ends this rank; the launcher ends the others. Two streams may fail at once: the first one speaks. */
_Noreturn void sc_stop(sc_rank *r, int code, const char *fmt, ...) {
    if (atomic_exchange(&r->w->ranks[r->rank].failed, 1))
        for (;;) pause();
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fflush(stdout);
    fprintf(stderr, "%s\n", text);
    exit(code);
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

static const char *event_name(const sc_rank *r, int event) {
    const sc_program_info *p = &r->b->programs[r->current];
    return event >= 0 && event < p->nevents ? p->events[event].id : "?";
}

void sc_wait(sc_rank *r, sc_stream s, int event) {
    sc_program *p = &r->programs[r->current];
    sc_list *l = &p->stream[s];
    if (event < 0 || event >= r->b->programs[r->current].nevents || p->stream_of[event] < 0)
        sc_stop(r, 3, "shardc: program %s waits for event %d (%s), which is not issued before",
                r->b->programs[r->current].name, event, event_name(r, event));
    GROW(l->pending, l->npending, l->cappending);
    l->pending[l->npending++] = (sc_dep){p->stream_of[event], p->position_of[event], event};
}

static void resolve(sc_rank *r, int event, sc_tensor *t) {
    int64_t last = 0;
    for (int i = 0; i < t->dims; i++) last += (t->shape[i] - 1) * t->stride[i];
    uint64_t bytes = t->host ? r->b->host_bytes : r->b->arena_bytes;
    if (sc_numel(t) && t->at + (uint64_t)(last + 1) * sc_dtype_size(t->dtype) > bytes)
        sc_stop(r, 3, "shardc: event %s touches byte 0x%llx of an arena of 0x%llx bytes", event_name(r, event),
                (unsigned long long)(t->at + (uint64_t)(last + 1) * sc_dtype_size(t->dtype)),
                (unsigned long long)bytes);
    t->p = r->arena[t->host] + t->at;
}

/* Takes the stream's pending waits. A wait for an event of the same stream is implied by the stream's order. */
static sc_item *append(sc_rank *r, sc_kind kind, int event, sc_stream s, int nt, const sc_tensor *t) {
    sc_program *p = &r->programs[r->current];
    sc_list *l = &p->stream[s];
    if (event < 0 || event >= r->b->programs[r->current].nevents || p->stream_of[event] >= 0)
        sc_stop(r, 3, "shardc: program %s issues event %d twice or out of its table", r->b->programs[r->current].name,
                event);
    if (nt > SC_TENSORS)
        sc_stop(r, 3, "shardc: event %s has %d tensors, at most %d", event_name(r, event), nt, SC_TENSORS);
    GROW(l->items, l->n, l->cap);
    p->stream_of[event] = s;
    p->position_of[event] = l->n;
    sc_item *it = &l->items[l->n++];
    *it = (sc_item){.kind = kind, .event = event, .nt = nt, .parts = 1, .ndeps = l->npending};
    it->t = sc_calloc((size_t)nt, sizeof *it->t);
    memcpy(it->t, t, sizeof *t * (size_t)nt);
    for (int i = 0; i < nt; i++) resolve(r, event, &it->t[i]);
    it->deps = sc_calloc((size_t)l->npending, sizeof *it->deps);
    if (l->npending) memcpy(it->deps, l->pending, sizeof *it->deps * (size_t)l->npending);
    l->npending = 0;
    return it;
}

/* Waking the other threads costs more than a small kernel does. Results do not depend on the number of parts. */
enum { SMALL = 16384 };

void sc_run(sc_rank *r, int event, sc_stream s, sc_kernel *k, const sc_attr *a, int nt, const sc_tensor *t) {
    sc_item *it = append(r, SC_KERNEL, event, s, nt, t);
    it->kernel = k;
    it->finish = sc_kernel_finish(k);
    if (a) it->attr = *a;
    int64_t elements = 0;
    for (int i = 0; i < nt; i++) elements += sc_numel(&t[i]);
    if (s == COMPUTE && elements >= SMALL) it->parts = r->threads;
}

static void collective(sc_rank *r, sc_kind kind, int event, sc_stream s, int comm, int nt, const sc_tensor *t) {
    if (comm < 0 || comm > 2) sc_stop(r, 3, "shardc: event %s names communicator %d", event_name(r, event), comm);
    sc_item *it = append(r, kind, event, s, nt, t);
    it->comm = comm;
    int64_t n = sc_comm(r, comm).n, whole = sc_numel(&t[0]), piece = nt > 1 ? sc_numel(&t[1]) : whole;
    bool fits = kind == SC_GATHER ? piece * n == whole : kind == SC_SCATTER ? whole * n == piece : true;
    if (!fits)
        sc_stop(r, 3, "shardc: event %s: %lld and %lld elements do not match %lld ranks", event_name(r, event),
                (long long)whole, (long long)piece, (long long)n);
}

void sc_all_gather(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in) {
    collective(r, SC_GATHER, event, s, comm, 2, (sc_tensor[]){out, in});
}

void sc_reduce_scatter(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in) {
    collective(r, SC_SCATTER, event, s, comm, 2, (sc_tensor[]){out, in});
}

void sc_all_reduce(sc_rank *r, int event, sc_stream s, int comm, sc_tensor x) {
    collective(r, SC_REDUCE, event, s, comm, 1, &x);
}

void sc_copy_bytes(sc_rank *r, int event, sc_stream s, sc_tensor out, sc_tensor in) {
    append(r, SC_COPY, event, s, 2, (sc_tensor[]){out, in});
}

static void capture(sc_rank *r) {
    r->programs = sc_calloc((size_t)r->b->nprograms, sizeof *r->programs);
    for (int p = 0; p < r->b->nprograms; p++) {
        int n = r->b->programs[p].nevents;
        r->programs[p].stream_of = sc_calloc((size_t)n, sizeof(int));
        r->programs[p].position_of = sc_calloc((size_t)n, sizeof(int));
        for (int e = 0; e < n; e++) r->programs[p].stream_of[e] = -1;
        r->current = p;
        r->b->programs[p].text(r);
    }
}

/* ── life of a rank ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int threads_of(const sc_build *b, const sc_debug *d) {
    int most = b->threads > 0 ? b->threads : 1;
    return d->threads > 0 && d->threads < most ? d->threads : most;
}

sc_rank *sc_rank_new(sc_world *w, int rank) {
    sc_rank *r = sc_calloc(1, sizeof *r);
    *r = (sc_rank){.b = w->build, .d = w->debug, .w = w, .rank = rank, .world = w->world, .shards = w->shards};
    r->shard = rank % w->shards;
    r->replica = rank / w->shards;
    r->replicas = w->world / w->shards;
    r->threads = threads_of(r->b, r->d);
    for (int host = 0; host < 2; host++) {
        r->arena[host] = w->arena[host][rank];
        uint64_t bytes = host ? r->b->host_bytes : r->b->arena_bytes;
        if (bytes) memset(r->arena[host], 0, bytes); /* takes the pages now: running out is impossible later */
    }
    r->record = (const sc_record *)(r->arena[0] + r->b->record_at);
    capture(r);
    sc_watch_new(r);
    if (r->d->dump_pattern) sc_dump_new(r);
    if (r->d->trace_path) sc_trace_new(r);
#ifndef SC_RANK_THREADS
    sc_kernels_warm(r->threads + SC_STREAMS); /* kernels may run on every stream and on the pool */
#endif
    sc_streams_start(r);
    return r;
}

static void program_free(sc_program *p) {
    for (int s = 0; s < SC_STREAMS; s++) {
        for (int i = 0; i < p->stream[s].n; i++) {
            free(p->stream[s].items[i].t);
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
    sc_watch_free(r);
    sc_dump_free(r);
    sc_trace_free(r);
    for (int p = 0; p < r->b->nprograms; p++) program_free(&r->programs[p]);
    free(r->programs);
    free(r);
}

int sc_rank_index(const sc_rank *r) {
    return r->rank;
}
int sc_shard_index(const sc_rank *r) {
    return r->shard;
}
const sc_build *sc_rank_build(const sc_rank *r) {
    return r->b;
}
uint64_t sc_allocated(const sc_rank *r, int host) {
    return r->arena[host] ? host ? r->b->host_bytes : r->b->arena_bytes : 0;
}

void sc_set_step(sc_rank *r, int64_t step) {
    r->step = step;
    atomic_store(&r->w->ranks[r->rank].step, step);
}

void sc_run_program(sc_rank *r, int program) {
    sc_shared_rank *me = &r->w->ranks[r->rank];
    r->current = program;
    atomic_store(&me->program, program);
    sc_watch_begin(r);
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
static void check_range(sc_rank *r, const char *what, int host, uint64_t at, size_t bytes) {
    uint64_t all = host ? r->b->host_bytes : r->b->arena_bytes;
    if (at > all || bytes > all - at)
        sc_stop(r, 3, "shardc: %s of %zu bytes at 0x%llx leaves the %s arena of %llu bytes", what, bytes,
                (unsigned long long)at, host ? "host" : "device", (unsigned long long)all);
}

void sc_write(sc_rank *r, int host, uint64_t at, const void *src, size_t bytes) {
    check_range(r, "write", host, at, bytes);
    memcpy(r->arena[host] + at, src, bytes);
}

void sc_read(sc_rank *r, int host, uint64_t at, void *dst, size_t bytes) {
    check_range(r, "read", host, at, bytes);
    memcpy(dst, r->arena[host] + at, bytes);
}

void sc_read_peer(sc_rank *r, int peer, int host, uint64_t at, void *dst, size_t bytes) {
    check_range(r, "read", host, at, bytes);
    memcpy(dst, r->w->arena[host][peer] + at, bytes);
}

void sc_record_write(sc_rank *r, const sc_record *rec) {
    sc_write(r, 0, r->b->record_at, rec, sizeof *rec);
}

void sc_barrier(sc_rank *r) {
    sc_shared_rank *me = &r->w->ranks[r->rank];
    atomic_store(&me->at_barrier, 1);
    sc_meet(r, SC_STREAMS, sc_comm(r, 2));
    atomic_store(&me->at_barrier, 0);
    atomic_fetch_add(&me->ticks, 1);
}

double sc_host_sum(sc_rank *r, double x) {
    r->w->ranks[r->rank].host_value = x;
    sc_barrier(r);
    double sum = 0;
    for (int k = 0; k < r->world; k++) sum += r->w->ranks[k].host_value;
    sc_barrier(r); /* nobody's next value may overtake a slow reader */
    return sum;
}
