/* Looks at every event of a run without graphs, and changes no bit: poisons bytes once they are dead, guards those of
 * no storage, stops at the first result that is not finite, copies values out, takes times. Relies on: rank.h,
 * common/lives.h, common/finite.c, common/dump.c, finite.cu. Relied on by: stream.c (around each event), rank.c (around
 * each program). */
#include "../common/lives.h"
#include "rank.h"
#include <stdlib.h>
#include <string.h>

struct sc_watch {
    sc_lives *program;               /* NULL unless poisoning or guarding */
    uint8_t *seen;                   /* bytes of the gaps, as they come back */
    int *left;                       /* by storage: accesses still to come in the running program */
    cudaEvent_t touched[SC_STREAMS]; /* after the last event of each stream */
    int *flag;                       /* pinned: something is not finite */
    uint8_t *copy[SC_TENSORS];       /* host copies of an event's tensors, made when there is something to report */
    cudaEvent_t base, *start, *end;  /* times, by event */
    int64_t base_ns;
    int most; /* events of the longest program */
};

bool sc_looks_inside(const sc_debug *d) {
    return d->poison || d->check_finite || d->dump_pattern || d->trace_path;
}

/* ── tables, made once ───────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { SEEN = 1 << 20 };

void sc_watch_new(sc_rank *r) {
    if (!sc_looks_inside(r->d) && !r->d->redzones) return;
    struct sc_watch *w = r->watch = sc_calloc(1, sizeof *w);
    if (r->d->poison || r->d->redzones) {
        w->program = sc_calloc((size_t)r->b->nprograms, sizeof *w->program);
        for (int p = 0; p < r->b->nprograms; p++) sc_lives_new(r->b, p, &w->program[p]);
    }
    if (r->d->redzones) w->seen = sc_calloc(SEEN, 1);
    if (r->d->poison) {
        w->left = sc_calloc((size_t)r->b->nstorages, sizeof *w->left);
        for (int s = 0; s < SC_STREAMS; s++) SC_CUDA(cudaEventCreateWithFlags(&w->touched[s], cudaEventDisableTiming));
    }
    if (r->d->check_finite) SC_CUDA(cudaHostAlloc((void **)&w->flag, sizeof *w->flag, cudaHostAllocMapped));
    if (!r->d->trace_path) return;
    for (int p = 0; p < r->b->nprograms; p++)
        if (r->b->programs[p].nevents > w->most) w->most = r->b->programs[p].nevents;
    w->start = sc_calloc((size_t)w->most, sizeof *w->start);
    w->end = sc_calloc((size_t)w->most, sizeof *w->end);
    SC_CUDA(cudaEventCreate(&w->base));
    for (int e = 0; e < w->most; e++) {
        SC_CUDA(cudaEventCreate(&w->start[e]));
        SC_CUDA(cudaEventCreate(&w->end[e]));
    }
}

void sc_watch_free(sc_rank *r) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    for (int p = 0; w->program && p < r->b->nprograms; p++) sc_lives_free(&w->program[p]);
    for (int s = 0; w->left && s < SC_STREAMS; s++) SC_CUDA(cudaEventDestroy(w->touched[s]));
    for (int e = 0; e < w->most; e++) {
        SC_CUDA(cudaEventDestroy(w->start[e]));
        SC_CUDA(cudaEventDestroy(w->end[e]));
    }
    if (w->base) SC_CUDA(cudaEventDestroy(w->base));
    if (w->flag) SC_CUDA(cudaFreeHost(w->flag));
    free(w->program);
    free(w->left);
    free(w->seen);
    free(w->start);
    free(w->end);
    free(w);
}

/* ── finite results ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static sc_tensor on_host(sc_rank *r, const sc_tensor *t, int k) {
    sc_tensor h = *t;
    if (t->host) return h;
    h.p = r->watch->copy[k] = sc_calloc(sc_span(t), 1);
    SC_CUDA(cudaMemcpy(h.p, t->p, sc_span(t), cudaMemcpyDeviceToHost));
    return h;
}

/* The device looks; only where it finds something the bytes come here, for the report. */
static void check_finite(sc_rank *r, int event, sc_stream s, const sc_args *args, size_t size, int slots) {
    struct sc_watch *w = r->watch;
    const sc_event_info *e = &r->b->programs[r->current].events[event];
    const sc_tensor *t = args->t;
    sc_args copy;
    *w->flag = 0;
    for (int k = 0; k < slots; k++)
        if (t[k].p && (e->written >> k & 1) && sc_is_float(&t[k])) sc_seek_not_finite(r->t->stream[s], &t[k], w->flag);
    SC_CUDA(cudaStreamSynchronize(r->t->stream[s]));
    if (!*w->flag) return;
    memcpy(&copy, args, size);
    for (int k = 0; k < slots; k++)
        if (t[k].p) copy.t[k] = on_host(r, &t[k], k);
    sc_check_finite(r, event, &copy, size, slots);
    for (int k = 0; k < slots; k++) { /* an infinity that was meant */
        free(w->copy[k]);
        w->copy[k] = NULL;
    }
}

/* ── dead bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void kill_storage(sc_rank *r, int storage, cudaStream_t s) {
    const sc_storage_info *x = &r->b->storages[storage];
    SC_CUDA(cudaMemsetAsync(r->arena[x->host] + x->at, SC_POISON, (size_t)x->size, s));
}

/* The storage's last event in issue order may not be the last to finish: the poison waits for all that was issued so
 * far, and whoever reuses the bytes waits for this event and so for the poison. */
static void poison(sc_rank *r, int event, sc_stream s) {
    struct sc_watch *w = r->watch;
    const sc_lives *l = &w->program[r->current];
    bool waited = false;
    for (int i = l->start[event]; i < l->start[event + 1]; i++) {
        if (--w->left[l->touched[i]]) continue;
        for (int k = 0; k < SC_STREAMS && !waited; k++)
            if (k != (int)s && r->t->programs[r->current].uses[k])
                SC_CUDA(cudaStreamWaitEvent(r->t->stream[s], w->touched[k], 0));
        waited = true;
        kill_storage(r, l->touched[i], r->t->stream[s]);
    }
    SC_CUDA(cudaEventRecord(w->touched[s], r->t->stream[s]));
}

/* ── bytes of no storage: guards that no event may touch; they go with graphs too ────────────────────────────────────
 */
static void set_guards(sc_rank *r, cudaStream_t s) {
    const sc_lives *l = &r->watch->program[r->current];
    for (int i = 0; i < l->ngaps; i++)
        SC_CUDA(cudaMemsetAsync(r->arena[l->gaps[i].host] + l->gaps[i].at, SC_GUARD, l->gaps[i].size, s));
}

static void check_guards(sc_rank *r) {
    const sc_lives *l = &r->watch->program[r->current];
    for (int i = 0; i < l->ngaps; i++) {
        const sc_gap *g = &l->gaps[i];
        for (uint64_t at = 0; at < g->size; at += SEEN) {
            uint64_t n = g->size - at < SEEN ? g->size - at : SEEN;
            SC_CUDA(cudaMemcpy(r->watch->seen, r->arena[g->host] + g->at + at, n, cudaMemcpyDefault));
            sc_check_gap(r, g, at, r->watch->seen, n);
        }
    }
}

/* ── around an event and a program ───────────────────────────────────────────────────────────────────────────────────
 */
void sc_watch_begin(sc_rank *r) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    cudaStream_t compute = r->t->stream[COMPUTE];
    if (w->seen) set_guards(r, compute);
    for (int s = 0; w->left && s < r->b->nstorages; s++) {
        w->left[s] = w->program[r->current].accesses[s];
        if (r->b->storages[s].program == r->current) kill_storage(r, s, compute);
    }
    if (!w->base) return;
    SC_CUDA(cudaEventRecord(w->base, compute));
    SC_CUDA(cudaStreamSynchronize(compute));
    w->base_ns = sc_now_ns();
}

void sc_watch_before(sc_rank *r, int event, sc_stream s) {
    if (r->watch && r->watch->base) SC_CUDA(cudaEventRecord(r->watch->start[event], r->t->stream[s]));
}

void sc_watch_after(sc_rank *r, int event, sc_stream s, const sc_args *args, size_t size, int slots) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    if (w->base) SC_CUDA(cudaEventRecord(w->end[event], r->t->stream[s]));
    if (w->flag) check_finite(r, event, s, args, size, slots);
    if (r->dumps && sc_dump_wants(r, event)) {
        SC_CUDA(cudaStreamSynchronize(r->t->stream[s]));
        sc_dump_after(r, event);
    }
    if (w->left) poison(r, event, s);
}

static int64_t since_base(const struct sc_watch *w, cudaEvent_t e) {
    float ms;
    SC_CUDA(cudaEventElapsedTime(&ms, w->base, e));
    return w->base_ns + (int64_t)((double)ms * 1e6);
}

void sc_watch_end(sc_rank *r) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    if (w->seen) check_guards(r);
    if (!w->base) return;
    for (int e = 0; e < r->b->programs[r->current].nevents; e++)
        sc_trace_event(r, e, since_base(w, w->start[e]), since_base(w, w->end[e]));
}
