/* Looks at every event without changing a bit: poisons bytes once they are dead, guards the gaps between storages, lets
 * AddressSanitizer know what is alive, and stops at the first result that is not finite.
 * Relies on: rank.h, sc_math.h; the storage table of the build.
 * Relied on by: stream.c (before and after each event), rank.c (around each program). */
#include "../sc_math.h"
#include "rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define ASAN 1
#else
#define ASAN 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { POISON = 0xff /* NaN in every float, -1 in every integer */, GUARD = 0xa5 };

typedef struct {
    int host;
    uint64_t at, size;
} gap;

typedef struct {          /* what a program's events touch */
    int *touched, *start; /* transient storages of event e: touched[start[e]] .. touched[start[e + 1]] */
    int *accesses;        /* by storage: how many events touch it */
    int64_t *used;        /* by storage: bytes up to the last one touched */
    gap *gaps;            /* bytes in no storage that is alive in this program */
    int ngaps;
} lives;

struct sc_watch {
    bool lifetimes; /* poison or AddressSanitizer */
    lives *program;
    _Atomic int *left; /* by storage: accesses still to come in the running program */
};

/* ── tables, made once ───────────────────────────────────────────────────────────────────────────────────────────────
 */
static int add_touched(const sc_build *b, const sc_access *a, int n, int *list, int k, int begin, lives *l) {
    for (int i = 0; i < n; i++) {
        int s = a[i].storage;
        if (a[i].offset + a[i].size > l->used[s]) l->used[s] = a[i].offset + a[i].size;
        if (b->storages[s].program < 0) continue;
        bool seen = false;
        for (int j = begin; j < k; j++) seen |= list[j] == s;
        if (!seen) list[k++] = s;
    }
    return k;
}

static void lives_of(const sc_build *b, const sc_program_info *p, lives *l) {
    int most = 0;
    for (int e = 0; e < p->nevents; e++) most += p->events[e].nreads + p->events[e].nwrites;
    l->touched = sc_calloc((size_t)most, sizeof(int));
    l->start = sc_calloc((size_t)p->nevents + 1, sizeof(int));
    l->accesses = sc_calloc((size_t)b->nstorages, sizeof(int));
    l->used = sc_calloc((size_t)b->nstorages, sizeof(int64_t));
    int k = 0;
    for (int e = 0; e < p->nevents; e++) {
        const sc_event_info *x = &p->events[e];
        l->start[e] = k;
        k = add_touched(b, x->reads, x->nreads, l->touched, k, l->start[e], l);
        k = add_touched(b, x->writes, x->nwrites, l->touched, k, l->start[e], l);
        for (int i = l->start[e]; i < k; i++) l->accesses[l->touched[i]]++;
    }
    l->start[p->nevents] = k;
}

static int by_address(const void *a, const void *b) {
    const sc_storage_info *x = *(const sc_storage_info *const *)a, *y = *(const sc_storage_info *const *)b;
    if (x->host != y->host) return x->host - y->host;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void gaps_of(const sc_build *b, int program, lives *l) {
    const sc_storage_info **s = sc_calloc((size_t)b->nstorages, sizeof *s);
    int n = 0;
    for (int i = 0; i < b->nstorages; i++)
        if (b->storages[i].program < 0 || b->storages[i].program == program) s[n++] = &b->storages[i];
    qsort(s, (size_t)n, sizeof *s, by_address);
    l->gaps = sc_calloc((size_t)n + 2, sizeof *l->gaps);
    for (int host = 0, i = 0; host < 2; host++) {
        uint64_t end = 0, all = host ? b->host_bytes : b->arena_bytes;
        for (; i < n && s[i]->host == host; i++) {
            if (s[i]->at > end) l->gaps[l->ngaps++] = (gap){host, end, s[i]->at - end};
            if (s[i]->at + (uint64_t)s[i]->size > end) end = s[i]->at + (uint64_t)s[i]->size;
        }
        if (all > end) l->gaps[l->ngaps++] = (gap){host, end, all - end};
    }
    free(s);
}

void sc_watch_new(sc_rank *r) {
    const sc_build *b = r->b;
    if (!r->d->poison && !r->d->check_finite && !r->d->redzones && !ASAN) return;
    struct sc_watch *w = r->watch = sc_calloc(1, sizeof *w);
    w->lifetimes = r->d->poison || ASAN;
    w->program = sc_calloc((size_t)b->nprograms, sizeof *w->program);
    w->left = sc_calloc((size_t)b->nstorages, sizeof *w->left);
    for (int p = 0; p < b->nprograms; p++) {
        lives_of(b, &b->programs[p], &w->program[p]);
        gaps_of(b, p, &w->program[p]);
    }
}

void sc_watch_free(sc_rank *r) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    for (int host = 0; host < 2 && ASAN; host++)
        if (r->arena[host]) ASAN_UNPOISON_MEMORY_REGION(r->arena[host], host ? r->b->host_bytes : r->b->arena_bytes);
    for (int p = 0; p < r->b->nprograms; p++) {
        free(w->program[p].touched);
        free(w->program[p].start);
        free(w->program[p].accesses);
        free(w->program[p].used);
        free(w->program[p].gaps);
    }
    free(w->program);
    free(w->left);
    free(w);
}

/* ── around a program ────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint8_t *storage_bytes(sc_rank *r, const sc_storage_info *s) {
    return r->arena[s->host] + s->at;
}

static void set_alive(sc_rank *r, const lives *l, int s) {
    if (l->used[s]) ASAN_UNPOISON_MEMORY_REGION(storage_bytes(r, &r->b->storages[s]), (size_t)l->used[s]);
}

static void set_dead(sc_rank *r, int s) {
    const sc_storage_info *x = &r->b->storages[s];
    if (ASAN) ASAN_UNPOISON_MEMORY_REGION(storage_bytes(r, x), (size_t)x->size);
    if (r->d->poison) memset(storage_bytes(r, x), POISON, (size_t)x->size);
    ASAN_POISON_MEMORY_REGION(storage_bytes(r, x), (size_t)x->size);
}

void sc_watch_begin(sc_rank *r) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    const sc_build *b = r->b;
    const lives *l = &w->program[r->current];
    for (int host = 0; host < 2 && ASAN;
         host++) /* between programs the training program sees the persistent bytes only */
        if (r->arena[host]) ASAN_UNPOISON_MEMORY_REGION(r->arena[host], host ? b->host_bytes : b->arena_bytes);
    for (int i = 0; i < l->ngaps && (r->d->redzones || ASAN); i++) {
        uint8_t *p = r->arena[l->gaps[i].host] + l->gaps[i].at;
        if (r->d->redzones) memset(p, GUARD, l->gaps[i].size);
        ASAN_POISON_MEMORY_REGION(p, l->gaps[i].size);
    }
    for (int s = 0; s < b->nstorages && w->lifetimes; s++) {
        w->left[s] = l->accesses[s];
        if (b->storages[s].program == r->current) set_dead(r, s);
    }
}

static const sc_storage_info *neighbour(sc_rank *r, int host, uint64_t at, bool below) {
    const sc_storage_info *best = NULL;
    for (int i = 0; i < r->b->nstorages; i++) {
        const sc_storage_info *s = &r->b->storages[i];
        if (s->host != host || (s->program >= 0 && s->program != r->current)) continue;
        if (below && s->at + (uint64_t)s->size <= at &&
            (!best || s->at + (uint64_t)s->size > best->at + (uint64_t)best->size))
            best = s;
        if (!below && s->at > at && (!best || s->at < best->at)) best = s;
    }
    return best;
}

void sc_watch_end(sc_rank *r) {
    if (!r->watch || !r->d->redzones) return;
    const lives *l = &r->watch->program[r->current];
    for (int i = 0; i < l->ngaps; i++) {
        const gap *g = &l->gaps[i];
        const uint8_t *p = r->arena[g->host] + g->at;
        if (ASAN) ASAN_UNPOISON_MEMORY_REGION(p, g->size);
        for (uint64_t k = 0; k < g->size; k++) {
            if (p[k] == GUARD) continue;
            const sc_storage_info *below = neighbour(r, g->host, g->at, true),
                                  *above = neighbour(r, g->host, g->at, false);
            sc_stop(r, 3,
                    "shardc: rank %d: program %s wrote outside of its storages: byte 0x%llx of the %s arena, between "
                    "%s and %s",
                    r->rank, r->b->programs[r->current].name, (unsigned long long)(g->at + k),
                    g->host ? "host" : "device", below ? below->name : "its start", above ? above->name : "its end");
        }
    }
}

/* ── finite results ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int64_t nans, infs, n;
    double low, high;       /* of the finite elements */
    int64_t first[SC_DIMS]; /* index of the first element that is not finite */
} range;

static double element(const sc_tensor *t, int64_t k) {
    switch (t->dtype) {
    case FP32: return ((const float *)t->p)[k];
    case FP64: return ((const double *)t->p)[k];
    case BF16: return (double)sc_from_bf16(((const sc_bf16_t *)t->p)[k]);
    case FP16: return (double)sc_from_fp16(((const sc_fp16_t *)t->p)[k]);
    case INT32: return ((const int32_t *)t->p)[k];
    case INT64: return (double)((const int64_t *)t->p)[k];
    default: return ((const uint8_t *)t->p)[k];
    }
}

static bool is_float(const sc_tensor *t) {
    return t->dtype == FP32 || t->dtype == BF16 || t->dtype == FP16 || t->dtype == FP64;
}

static range range_of(const sc_tensor *t) {
    range x = {.low = INFINITY, .high = -INFINITY, .n = sc_numel(t)};
    int64_t index[SC_DIMS] = {0}, at = 0;
    for (int64_t k = 0; k < x.n; k++) {
        double v = element(t, at);
        if (isfinite(v)) {
            if (v < x.low) x.low = v;
            if (v > x.high) x.high = v;
        } else {
            if (!x.nans && !x.infs) memcpy(x.first, index, sizeof index);
            if (isnan(v))
                x.nans++;
            else
                x.infs++;
        }
        for (int d = t->dims - 1; d >= 0; d--) {
            at += t->stride[d];
            if (++index[d] < t->shape[d]) break;
            at -= index[d] * t->stride[d];
            index[d] = 0;
        }
    }
    return x;
}

/* An infinity that an operand or an attribute brought in (masks are made that way) is meant; a NaN never is. */
static bool infinity_meant(const sc_event_info *e, const sc_item *it) {
    for (int k = 0; k < SC_FLOATS; k++)
        if (isinf(it->attr.f[k])) return true;
    for (int k = 0; k < it->nt; k++)
        if (!(e->written >> k & 1) && is_float(&it->t[k]) && range_of(&it->t[k]).infs) return true;
    return false;
}

static int print_tensor(char *out, size_t n, const char *role, int k, const sc_tensor *t) {
    static const char *const names[] = {"fp32",     "bf16",  "fp16",  "fp64", "fp8_e4m3",
                                        "fp8_e5m2", "int32", "int64", "bool"};
    int c = snprintf(out, n, "\n  %s %d: %s[", role, k, names[t->dtype]);
    for (int d = 0; d < t->dims && (size_t)c < n; d++)
        c += snprintf(out + c, n - (size_t)c, d ? ",%lld" : "%lld", (long long)t->shape[d]);
    range x = range_of(t);
    if ((size_t)c < n) c += snprintf(out + c, n - (size_t)c, "] from %g to %g", x.low, x.high);
    if ((x.nans || x.infs) && (size_t)c < n)
        c += snprintf(out + c, n - (size_t)c, ", %lld NaN, %lld infinite", (long long)x.nans, (long long)x.infs);
    return c;
}

static void report_not_finite(sc_rank *r, const sc_event_info *e, const sc_item *it, int bad, const range *x) {
    char text[3500], where[128] = "";
    int c = 0;
    for (int d = 0; d < it->t[bad].dims; d++)
        c += snprintf(where + c, sizeof where - (size_t)c, d ? ",%lld" : "%lld", (long long)x->first[d]);
    c = snprintf(text, sizeof text, "%s:%d: %s %s (%s %s) gave %s at [%s] on rank %d in step %lld, program %s",
                 e->file ? e->file : "shardc", e->line, e->id, e->op, e->phase,
                 e->module && e->module[0] ? e->module : "root", x->nans ? "NaN" : "infinity", where, r->rank,
                 (long long)r->step, r->b->programs[r->current].name);
    int results = 0, operands = 0;
    for (int k = 0; k < it->nt && (size_t)c < sizeof text - 256; k++) {
        bool result = e->written >> k & 1;
        if (it->t[k].dtype == BOOL && k == it->nt - 1) continue; /* workspace, or a mask: no numbers to show */
        c += print_tensor(text + c, sizeof text - (size_t)c, result ? "result" : "operand",
                          result ? results++ : operands++, &it->t[k]);
    }
    sc_stop(r, 3, "%s", text);
}

static void check_finite(sc_rank *r, const sc_item *it) {
    const sc_event_info *e = &r->b->programs[r->current].events[it->event];
    for (int k = 0; k < it->nt; k++) {
        if (!(e->written >> k & 1) || !is_float(&it->t[k])) continue;
        range x = range_of(&it->t[k]);
        if (x.nans || (x.infs && !infinity_meant(e, it))) report_not_finite(r, e, it, k, &x);
    }
}

/* ── around an event ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_watch_before(sc_rank *r, const sc_item *it) {
    if (!ASAN) return;
    const lives *l = &r->watch->program[r->current];
    for (int i = l->start[it->event]; i < l->start[it->event + 1]; i++)
        if (r->b->storages[l->touched[i]].first == it->event) set_alive(r, l, l->touched[i]);
}

/* The last event to touch a storage poisons it before the event counts as finished: whoever reuses the bytes waits for
 * every access of the old storage, so for this one too. */
void sc_watch_after(sc_rank *r, const sc_item *it) {
    struct sc_watch *w = r->watch;
    if (r->d->check_finite) check_finite(r, it);
    if (!w->lifetimes) return;
    const lives *l = &w->program[r->current];
    for (int i = l->start[it->event]; i < l->start[it->event + 1]; i++)
        if (atomic_fetch_sub(&w->left[l->touched[i]], 1) == 1) set_dead(r, l->touched[i]);
}
