/* Replays captured programs: one thread a stream, waits that block, and a pool for the parts of COMPUTE kernels. Or all
 * events on one thread in a random order that the waits permit (--interleave).
 * Relies on: rank.h (lists, flags), collective.c, debug.c, dump.c.
 * Relied on by: rank.c. */
#include "../sc_kernels.h"
#include "rank.h"
#include <stdlib.h>
#include <string.h>

/* ── one event ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void call(sc_rank *r, const sc_item *it, sc_kernel *kernel, int part, int parts) {
    sc_task task = {.args = it->args,
                    .slots = it->slots,
                    .record = r->t->record,
                    .rank = r->rank,
                    .world = r->world,
                    .coord = r->coord,
                    .part = part,
                    .parts = parts};
    kernel(&task);
}

static void copy_bytes(const sc_item *it) {
    const sc_tensor *out = it->args->t, *in = out + 1;
    memcpy(out->p, in->p, (size_t)sc_numel(in) * sc_size(in->dtype));
}

/* All parts on the calling thread (interleave, and streams that have no pool). The order of the parts is free. */
static void run_alone(sc_stream_state *s, const sc_item *it) {
    for (int part = it->parts - 1; part >= 0; part--) call(s->r, it, it->kernel, part, it->parts);
}

typedef struct {
    sc_rank *r;
    const sc_item *it;
} sc_shared_item;

static void run_shared(void *arg, int part) {
    const sc_shared_item *x = arg;
    call(x->r, x->it, x->it->kernel, part, x->it->parts);
}

static void run_pooled(sc_stream_state *s, const sc_item *it) {
    sc_pool_run(&s->r->t->pool, run_shared, &(sc_shared_item){s->r, it});
}

static void set_status(sc_stream_state *s, sc_doing doing, int event, int waits_for) {
    sc_status *st = &s->r->w->ranks[s->r->rank].status[s->stream];
    atomic_store_explicit(&st->event, event, memory_order_relaxed);
    atomic_store_explicit(&st->waits_for, waits_for, memory_order_relaxed);
    atomic_store_explicit(&st->doing, doing, memory_order_relaxed);
}

static void execute(sc_stream_state *s, const sc_item *it) {
    sc_rank *r = s->r;
    bool meets = it->kind == SC_COLLECTIVE;
    set_status(s, meets ? SC_MEETING : SC_RUNNING, it->event, -1);
    if (r->watch) sc_watch_before(r, it);
    int64_t start = sc_clock_start(r, s->stream, it);
    if (meets)
        sc_collective(r, s->stream, it);
    else if (it->kind == SC_COPY)
        copy_bytes(it);
    else if (it->parts > 1 && r->t->pool.parts > 1)
        run_pooled(s, it);
    else
        run_alone(s, it);
    if (it->finish) call(r, it, it->finish, 0, 1);
    if (r->trace) sc_trace_event(r, it->event, start, sc_clock_end(r, s->stream));
    if (r->dumps) sc_dump_after(r, it->event);
    if (r->watch) sc_watch_after(r, it);
    atomic_fetch_add_explicit(&r->w->ranks[r->rank].ticks, 1, memory_order_relaxed);
    sc_flag_add(&s->finished, 1);
}

static bool dep_met(sc_rank *r, const sc_dep *d) {
    sc_stream_state *of = &r->t->stream[d->stream];
    return sc_flag_reached(&of->finished, of->base + (uint32_t)d->position + 1);
}

static void wait_for(sc_stream_state *s, const sc_item *it, const sc_dep *d) {
    if (dep_met(s->r, d)) return;
    sc_stream_state *of = &s->r->t->stream[d->stream];
    set_status(s, SC_WAITING, it->event, d->event);
    sc_flag_wait(&of->finished, of->base + (uint32_t)d->position + 1);
}

/* ── threads ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void replay(sc_stream_state *s) {
    const sc_list *l = &s->r->t->programs[s->r->current].stream[s->stream];
    for (int i = 0; i < l->n; i++) {
        for (int k = 0; k < l->items[i].ndeps; k++) wait_for(s, &l->items[i], &l->items[i].deps[k]);
        execute(s, &l->items[i]);
    }
    set_status(s, SC_IDLE, -1, -1);
}

static void *stream_thread(void *arg) {
    sc_stream_state *s = arg;
    sc_kernels_warm(1);
    sc_flag_add(&s->r->t->ready, 1);
    for (uint32_t n = 1;; n++) {
        sc_flag_wait(&s->launch, n);
        if (atomic_load(&s->r->t->stop)) return NULL;
        replay(s);
    }
}

static void cannot_start(sc_rank *r, int error) {
    sc_stop(r, 1, "shardc: rank %d cannot start a thread: %s", r->rank, strerror(error));
}

static bool stream_used(const sc_rank *r, int s) {
    for (int p = 0; p < r->b->nprograms; p++)
        if (r->t->programs[p].stream[s].n) return true;
    return false;
}

/* The rank's own thread is the compute stream. Returns when every thread has taken what it will ever allocate. */
void sc_streams_start(sc_rank *r) {
    uint32_t threads = 0;
    for (int s = 0; s < SC_STREAMS; s++) {
        r->t->stream[s].r = r;
        r->t->stream[s].stream = (sc_stream)s;
        set_status(&r->t->stream[s], SC_IDLE, -1, -1);
    }
    if (r->d->interleave >= 0) return;
    for (int s = 0; s < SC_STREAMS; s++) {
        if (s == COMPUTE || !stream_used(r, s)) continue;
        int e = pthread_create(&r->t->stream[s].thread, NULL, stream_thread, &r->t->stream[s]);
        if (e) cannot_start(r, e);
        r->t->stream[s].started = true;
        threads++;
    }
    int e = sc_pool_start(&r->t->pool, r->t->threads, sc_kernels_warm);
    if (e) cannot_start(r, e);
    sc_flag_wait(&r->t->ready, threads);
}

void sc_streams_stop(sc_rank *r) {
    atomic_store(&r->t->stop, true);
    for (int s = 0; s < SC_STREAMS; s++) {
        if (!r->t->stream[s].started) continue;
        sc_flag_add(&r->t->stream[s].launch, 1);
        pthread_join(r->t->stream[s].thread, NULL);
    }
    sc_pool_stop(&r->t->pool);
}

static void take_bases(sc_rank *r) {
    for (int s = 0; s < SC_STREAMS; s++) r->t->stream[s].base = atomic_load(&r->t->stream[s].finished.value);
}

void sc_streams_run(sc_rank *r) {
    const sc_program *p = &r->t->programs[r->current];
    take_bases(r);
    for (int s = 0; s < SC_STREAMS; s++)
        if (s != COMPUTE && p->stream[s].n) sc_flag_add(&r->t->stream[s].launch, 1);
    replay(&r->t->stream[COMPUTE]);
    for (int s = 0; s < SC_STREAMS; s++)
        if (s != COMPUTE) sc_flag_wait(&r->t->stream[s].finished, r->t->stream[s].base + (uint32_t)p->stream[s].n);
}

/* ── one thread, random legal order ──────────────────────────────────────────────────────────────────────────────────
 */
static uint64_t
mix(uint64_t *state) { /* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool ready(sc_rank *r, const sc_item *it) {
    for (int k = 0; k < it->ndeps; k++)
        if (!dep_met(r, &it->deps[k])) return false;
    return true;
}

/* Every rank draws the same numbers and sees the same heads, so that collectives meet in the same order everywhere. */
void sc_interleave_run(sc_rank *r) {
    const sc_program *p = &r->t->programs[r->current];
    uint64_t state = (uint64_t)r->d->interleave * 0x2545f4914f6cdd1du + r->launches;
    int next[SC_STREAMS] = {0};
    take_bases(r);
    for (;;) {
        int heads[SC_STREAMS], n = 0, left = 0;
        for (int s = 0; s < SC_STREAMS; s++) {
            left += p->stream[s].n - next[s];
            if (next[s] < p->stream[s].n && ready(r, &p->stream[s].items[next[s]])) heads[n++] = s;
        }
        if (!left) break;
        if (!n)
            sc_stop(r, 3, "shardc: program %s cannot go on: every stream waits for another",
                    r->b->programs[r->current].name);
        int s = heads[mix(&state) % (uint64_t)n];
        execute(&r->t->stream[s], &p->stream[s].items[next[s]++]);
    }
    for (int s = 0; s < SC_STREAMS; s++) set_status(&r->t->stream[s], SC_IDLE, -1, -1);
}
