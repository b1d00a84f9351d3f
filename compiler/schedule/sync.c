/* Sync: the events of other streams that each event waits for. Required are conflicting accesses to a storage, the one
 * order of all collectives, and, for storages that share bytes, every access of the one before every access of the
 * other. What is emitted is the transitive reduction of that, which is unique (Aho, Garey, Ullman 1972): each wait is
 * needed. Relies on: order (conflicts as clocks), place (offsets). Relied on by: pipeline.c; verify proves the result.
 */
#include "schedule.h"

#include <stdlib.h>

/* ── what bytes require ────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int first[N_STREAMS]; /* first event of each stream that touches the storage, + 1 */
    int last[N_STREAMS];  /* last position */
} Life;

static void find_lives(const PlanProgram *p, const Sequence *q, Life *lives) {
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            Life *l = &lives[(i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage];
            if (!l->first[ev->stream]) l->first[ev->stream] = e + 1;
            l->last[ev->stream] = q->position[e];
        }
    }
}

/* Storages move in when they are first touched. Only those that leave then matter: older ones were before these. */
static void require_bytes(const Plan *plan, int program, ArenaKind arena, const Life *lives, Clock *need, Arena *a) {
    const PlanProgram *p = &plan->programs[program];
    int64_t *x = NEW_ARRAY(a, int64_t, 2 * plan->nstorages + 1); /* where storages begin and end */
    int n = 0;
    for (int i = 0; i < plan->nstorages; i++) {
        const Storage *s = &plan->storages[i];
        if (s->program != program || s->arena != arena) continue;
        x[n++] = s->offset;
        x[n++] = s->offset + s->size;
    }
    qsort(x, (size_t)n, sizeof *x, compare_int64);
    /* By such a place: bytes of one tenant (storage + 1) begin there. */
    char *begins = NEW_ARRAY(a, char, n + 1);
    int *tenant = NEW_ARRAY(a, int, n + 1);
    begins[0] = 1;
    bool *present = NEW_ARRAY(a, bool, plan->nstorages + 1);
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            int id = (i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage;
            const Storage *s = &plan->storages[id];
            if (s->program < 0 || s->arena != arena || !s->size || present[id]) continue;
            present[id] = true;
            int lo = FIRST(k, 0, n, x[k] >= s->offset), hi = FIRST(k, lo, n, x[k] >= s->offset + s->size);
            const int cuts[2] = {lo, hi};
            for (int c = 0; c < 2; c++)
                if (!begins[cuts[c]]) {
                    tenant[cuts[c]] = tenant[(char *)memrchr(begins, 1, (size_t)cuts[c]) - begins];
                    begins[cuts[c]] = 1;
                }
            for (char *k = begins + lo; k < begins + hi; k = memchr(k + 1, 1, (size_t)(begins + n - k - 1))) {
                int old = tenant[k - begins];
                for (int to = 0; to < N_STREAMS && old; to++) {
                    int first = lives[id].first[to]; /* all of the old tenant's accesses before all of this one's */
                    for (int from = 0; from < N_STREAMS && first; from++)
                        if (from != to && need[first - 1][from] < lives[old - 1].last[from])
                            need[first - 1][from] = lives[old - 1].last[from];
                }
                *k = k == begins + lo;
            }
            tenant[lo] = id + 1;
        }
    }
}

/* ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────── */
/* Keeps of `need` only what neither the event before on the stream nor another need implies; fills seen[e]. */
static void reduce_event(const Sequence *q, Stream own, int e, Clock need, Clock *seen) {
    Clock by[N_STREAMS] = {{0}};
    need[own] = q->position[e] - 1;
    for (int s = 0; s < N_STREAMS; s++) { /* what has finished once the event at that place of the stream has */
        if (!need[s]) continue;
        memcpy(by[s], seen[q->event[s][need[s] - 1]], sizeof(Clock));
        if (by[s][s] < need[s]) by[s][s] = need[s];
    }
    for (int s = 0; s < N_STREAMS; s++)
        for (int other = 0; other < N_STREAMS && s != (int)own; other++)
            if (other != s && by[other][s] >= need[s]) need[s] = 0;
    for (int s = 0; s < N_STREAMS; s++) clock_join(seen[e], by[s]);
}

static void wait_program(Plan *plan, const Sequence *q, int program) {
    PlanProgram *p = &plan->programs[program];
    Arena *a = arena_new();
    Clock *need = arena_alloc(a, sizeof(Clock) * (size_t)(p->n + 1));
    Clock *seen = arena_alloc(a, sizeof(Clock) * (size_t)(p->n + 1));
    Life *lives = NEW_ARRAY(a, Life, plan->nstorages + 1);
    memcpy(need, q->must, sizeof(Clock) * (size_t)p->n);
    find_lives(p, q, lives);
    for (int arena = 0; arena < N_ARENAS; arena++) require_bytes(plan, program, (ArenaKind)arena, lives, need, a);
    for (int e = 0; e < p->n; e++) {
        reduce_event(q, p->events[e].stream, e, need[e], seen);
        Event *ev = &p->events[e];
        int n = 0;
        for (int s = 0; s < N_STREAMS; s++) n += s != (int)ev->stream && need[e][s];
        ev->nwaits = 0;
        ev->waits = n ? NEW_ARRAY(plan->arena, int, n) : NULL;
        for (int s = 0; s < N_STREAMS; s++)
            if (s != (int)ev->stream && need[e][s]) ev->waits[ev->nwaits++] = q->event[s][need[e][s] - 1];
    }
    arena_free(a);
}

void schedule_sync(Plan *plan, const Schedule *s) {
    for (int i = 0; i < plan->nprograms; i++) wait_program(plan, &s->programs[i], i);
}
