/* Looks at every event without changing a bit: poisons bytes once they are dead, guards the gaps between storages, lets
 * AddressSanitizer know what is alive, and stops at the first result that is not finite.
 * Relies on: rank.h, asan.h, common/lives.h, common/finite.c.
 * Relied on by: stream.c (before and after each event), rank.c (around each program). */
#include "../common/lives.h"
#include "asan.h"
#include "rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sc_watch {
    bool lifetimes; /* poison or AddressSanitizer */
    sc_lives *program;
    _Atomic int *left; /* by storage: accesses still to come in the running program */
};

/* ── tables, made once ───────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_watch_new(sc_rank *r) {
    const sc_build *b = r->b;
    if (!r->d->poison && !r->d->check_finite && !r->d->redzones && !ASAN) return;
    struct sc_watch *w = r->watch = sc_calloc(1, sizeof *w);
    w->lifetimes = r->d->poison || ASAN;
    w->program = sc_calloc((size_t)b->nprograms, sizeof *w->program);
    w->left = sc_calloc((size_t)b->nstorages, sizeof *w->left);
    for (int p = 0; p < b->nprograms; p++) sc_lives_new(b, p, &w->program[p]);
}

void sc_watch_free(sc_rank *r) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    for (int host = 0; host < 2 && ASAN; host++)
        if (r->arena[host]) ASAN_UNPOISON_MEMORY_REGION(r->arena[host], host ? r->b->host_bytes : r->b->arena_bytes);
    for (int p = 0; p < r->b->nprograms; p++) sc_lives_free(&w->program[p]);
    free(w->program);
    free(w->left);
    free(w);
}

/* ── around a program ────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint8_t *storage_bytes(sc_rank *r, const sc_storage_info *s) {
    return r->arena[s->host] + s->at;
}

static void set_alive(sc_rank *r, const sc_lives *l, int s) {
    if (l->used[s]) ASAN_UNPOISON_MEMORY_REGION(storage_bytes(r, &r->b->storages[s]), (size_t)l->used[s]);
}

static void set_dead(sc_rank *r, int s) {
    const sc_storage_info *x = &r->b->storages[s];
    if (ASAN) ASAN_UNPOISON_MEMORY_REGION(storage_bytes(r, x), (size_t)x->size);
    if (r->d->poison) memset(storage_bytes(r, x), SC_POISON, (size_t)x->size);
    ASAN_POISON_MEMORY_REGION(storage_bytes(r, x), (size_t)x->size);
}

void sc_watch_begin(sc_rank *r) {
    struct sc_watch *w = r->watch;
    if (!w) return;
    const sc_build *b = r->b;
    const sc_lives *l = &w->program[r->current];
    for (int host = 0; host < 2 && ASAN;
         host++) /* between programs the training program sees the persistent bytes only */
        if (r->arena[host]) ASAN_UNPOISON_MEMORY_REGION(r->arena[host], host ? b->host_bytes : b->arena_bytes);
    for (int i = 0; i < l->ngaps && (r->d->redzones || ASAN); i++) {
        uint8_t *p = r->arena[l->gaps[i].host] + l->gaps[i].at;
        if (r->d->redzones) memset(p, SC_GUARD, l->gaps[i].size);
        ASAN_POISON_MEMORY_REGION(p, l->gaps[i].size);
    }
    for (int s = 0; s < b->nstorages && w->lifetimes; s++) {
        w->left[s] = l->accesses[s];
        if (b->storages[s].program == r->current) set_dead(r, s);
    }
}

void sc_watch_end(sc_rank *r) {
    if (!r->watch || !r->d->redzones) return;
    const sc_lives *l = &r->watch->program[r->current];
    for (int i = 0; i < l->ngaps; i++) {
        const sc_gap *g = &l->gaps[i];
        const uint8_t *p = r->arena[g->host] + g->at;
        if (ASAN) ASAN_UNPOISON_MEMORY_REGION(p, g->size);
        sc_check_gap(r, g, 0, p, g->size);
    }
}

/* ── around an event ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_watch_before(sc_rank *r, const sc_item *it) {
    if (!ASAN) return;
    const sc_lives *l = &r->watch->program[r->current];
    for (int i = l->start[it->event]; i < l->start[it->event + 1]; i++)
        if (r->b->storages[l->touched[i]].first == it->event) set_alive(r, l, l->touched[i]);
}

/* The last event to touch a storage poisons it before the event counts as finished: whoever reuses the bytes waits for
 * every access of the old storage, so for this one too. */
void sc_watch_after(sc_rank *r, const sc_item *it) {
    struct sc_watch *w = r->watch;
    if (r->d->check_finite) sc_check_finite(r, it->event, it->args, it->size, it->slots);
    if (!w->lifetimes) return;
    const sc_lives *l = &w->program[r->current];
    for (int i = l->start[it->event]; i < l->start[it->event + 1]; i++)
        if (atomic_fetch_sub(&w->left[l->touched[i]], 1) == 1) set_dead(r, l->touched[i]);
}
