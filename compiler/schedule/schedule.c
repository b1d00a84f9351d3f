/* schedule: conflicts between events, and happens-before as vector clocks over the streams (Fidge 1988, Mattern 1989).
 * Relies on: schedule.h; events with their accesses.
 * Relied on by: order, which sorts by conflicts; place and sync, which ask for clocks. */
#include "schedule.h"

#include <stdlib.h>

/* ── conflicts ─────────────────────────────────────────────────────────────────────────────────────────────── */
/* An access. Those of one storage have ranks by where they begin. */
typedef struct {
    int event, storage, rank;
    int64_t lo, hi;
} Touch;

/* What has touched a storage so far: its writes or its reads, a tree over ranks. Leaf leaves + rank has where that
 * touch ends (NONE: it is not there), an inner node the furthest end below it. What a later write covers is taken out:
 * the write stands for it. */
static const int64_t NONE = INT64_MIN;
typedef struct {
    int n, leaves;
    const int *by_rank; /* touches */
    int64_t *end;       /* NULL: nothing yet */
} Touches;

typedef struct {
    Touches writes, reads;
} History;

typedef struct {
    Arena *a;
    Touch *touch; /* in program order */
    int n;
    VEC(int) found;
} Conflicts;

typedef struct {
    int64_t lo;
    int touch;
} Begin;

static int compare_begin(const void *a, const void *b) {
    const Begin *x = a, *y = b;
    return x->lo != y->lo ? (x->lo > y->lo) - (x->lo < y->lo) : (x->touch > y->touch) - (x->touch < y->touch);
}

static void put_end(Touches *t, int rank, int64_t end) {
    int i = t->leaves + rank;
    t->end[i] = end;
    for (i /= 2; i; i /= 2) t->end[i] = max64(t->end[2 * i], t->end[2 * i + 1]);
}

/* Touches below a node of `width` leaves from `first` on that begin before rank `limit` and end after lo. */
static void find_below(Conflicts *c, const Touches *t, int node, int first, int width, int limit, int64_t lo) {
    if (first >= limit || t->end[node] <= lo) return;
    if (width == 1) {
        push(&c->found, c->a, t->by_rank[first]);
        return;
    }
    find_below(c, t, 2 * node, first, width / 2, limit, lo);
    find_below(c, t, 2 * node + 1, first + width / 2, width / 2, limit, lo);
}

static int compare_int(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Edges from the touches that `x` must come after, in program order; a write removes what it covers. */
static void after_all(Conflicts *c, Touches *t, const Touch *x, bool write, Arena *a, Edges *out) {
    if (!t->end) return;
    c->found.n = 0;
    int limit = FIRST(k, 0, t->n, c->touch[t->by_rank[k]].lo >= x->hi);
    find_below(c, t, 1, 0, t->leaves, limit, x->lo);
    if (c->found.n > 1) qsort(c->found.at, (size_t)c->found.n, sizeof *c->found.at, compare_int);
    for (int i = 0; i < c->found.n; i++) {
        const Touch *y = &c->touch[c->found.at[i]];
        if (y->event != x->event) push(out, a, ((Edge){y->event, x->event}));
        if (write && x->lo <= y->lo && y->hi <= x->hi) put_end(t, y->rank, NONE);
    }
}

static void add_touch(Conflicts *c, Touches *t, const Touch *x) {
    if (!t->end) {
        t->end = NEW_ARRAY(c->a, int64_t, 2 * t->leaves);
        for (int i = 0; i < 2 * t->leaves; i++) t->end[i] = NONE;
    }
    put_end(t, x->rank, x->hi);
}

static void find_touches(Conflicts *c, const PlanProgram *p) {
    int n = 0;
    for (int e = 0; e < p->n; e++) n += p->events[e].nreads + p->events[e].nwrites;
    c->touch = NEW_ARRAY(c->a, Touch, n + 1);
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            const Access *x = i < ev->nreads ? &ev->reads[i] : &ev->writes[i - ev->nreads];
            if (x->size > 0) c->touch[c->n++] = (Touch){e, x->storage, 0, x->offset, x->offset + x->size};
        }
    }
}

/* The storages' empty histories; sets the touches' ranks. */
static History *rank_touches(Conflicts *c, int nstorages) {
    History *history = NEW_ARRAY(c->a, History, nstorages + 1);
    int *at = NEW_ARRAY(c->a, int, nstorages + 2), *by_rank = NEW_ARRAY(c->a, int, c->n + 1);
    Begin *begin = NEW_ARRAY(c->a, Begin, c->n + 1);
    for (int i = 0; i < c->n; i++) at[c->touch[i].storage + 1]++;
    for (int s = 0; s < nstorages; s++) at[s + 1] += at[s];
    for (int i = 0; i < c->n; i++) begin[at[c->touch[i].storage]++] = (Begin){c->touch[i].lo, i};
    for (int s = 0, from = 0; s < nstorages; from = at[s++]) { /* at[s] is where storage s ends by now */
        int n = at[s] - from, leaves = 1, sorted = 1;
        while (sorted < n && begin[from + sorted - 1].lo <= begin[from + sorted].lo) sorted++;
        if (sorted < n) qsort(begin + from, (size_t)n, sizeof *begin, compare_begin);
        while (leaves < n) leaves *= 2;
        for (int k = 0; k < n; k++) {
            by_rank[from + k] = begin[from + k].touch;
            c->touch[by_rank[from + k]].rank = k;
        }
        history[s].writes = history[s].reads = (Touches){n, leaves, by_rank + from, NULL};
    }
    return history;
}

void schedule_conflicts(Arena *a, const Plan *plan, int program, Edges *out) {
    const PlanProgram *p = &plan->programs[program];
    Conflicts c = {.a = arena_new()};
    find_touches(&c, p);
    History *history = rank_touches(&c, plan->nstorages);
    for (int e = 0, i = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        int reads = i;
        for (int k = 0; k < ev->nreads; k++) reads += ev->reads[k].size > 0;
        for (; i < c.n && c.touch[i].event == e; i++) {
            const Touch *x = &c.touch[i];
            History *h = &history[x->storage];
            bool write = i >= reads;
            if (write) after_all(&c, &h->reads, x, true, a, out);
            after_all(&c, &h->writes, x, write, a, out);
            add_touch(&c, write ? &h->writes : &h->reads, x);
        }
    }
    arena_free(c.a);
}

/* ── sequences and clocks ──────────────────────────────────────────────────────────────────────────────────── */
static void need(const Sequence *s, const PlanProgram *p, Clock *clocks, Edge e) {
    Stream from = p->events[e.from].stream;
    if (from == p->events[e.to].stream) return;
    if (clocks[e.to][from] < s->position[e.from]) clocks[e.to][from] = s->position[e.from];
}

/* direct[e]: greatest required position per other stream. What has finished before e is that and, by induction, all
 * that had finished before those. */
static void close_clocks(const Sequence *s, const PlanProgram *p, Clock *direct) {
    for (int e = 0; e < p->n; e++) {
        Stream own = p->events[e].stream;
        Clock sum = {0};
        for (int k = 0; k < N_STREAMS; k++) {
            int at = k == (int)own ? s->position[e] - 1 : direct[e][k];
            if (at == 0) continue;
            clock_join(sum, direct[s->event[k][at - 1]]);
            if (sum[k] < at) sum[k] = at;
        }
        memcpy(direct[e], sum, sizeof sum);
    }
}

static void find_lives(Plan *plan, int program) {
    PlanProgram *p = &plan->programs[program];
    for (int i = 0; i < plan->nstorages; i++) {
        Storage *s = &plan->storages[i];
        if (s->program == program) s->first = s->last = -1;
        if (s->program < 0) s->first = -1, s->last = s->last > p->n ? s->last : p->n;
    }
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            const Access *x = i < ev->nreads ? &ev->reads[i] : &ev->writes[i - ev->nreads];
            Storage *s = &plan->storages[x->storage];
            if (s->program < 0) continue;
            if (s->first < 0) s->first = e;
            s->last = e;
        }
    }
}

Schedule *schedule_new(Plan *plan) {
    Schedule *s = NEW(plan->arena, Schedule);
    s->programs = NEW_ARRAY(plan->arena, Sequence, plan->nprograms + 1);
    return s;
}

void schedule_program(Schedule *schedule, Plan *plan, int program, const Edges *conflicts, const Edges *order,
                      const Edges *tight) {
    const PlanProgram *p = &plan->programs[program];
    Sequence *s = &schedule->programs[program];
    s->n = p->n;
    s->position = NEW_ARRAY(plan->arena, int, p->n + 1);
    for (int e = 0; e < p->n; e++) s->position[e] = ++s->length[p->events[e].stream];
    for (int k = 0; k < N_STREAMS; k++) s->event[k] = NEW_ARRAY(plan->arena, int, s->length[k] + 1);
    for (int e = 0; e < p->n; e++) s->event[p->events[e].stream][s->position[e] - 1] = e;
    find_lives(plan, program);
    Clock **clocks[] = {&s->must, &s->seen, &s->tight};
    for (int i = 0; i < 3; i++) *clocks[i] = arena_alloc(plan->arena, sizeof(Clock) * (size_t)(p->n + 1));
    for (int i = 0; i < conflicts->n; i++) need(s, p, s->must, conflicts->at[i]);
    int *last = NEW_ARRAY(plan->arena, int, plan->ncomms + 1); /* by chain: event + 1 */
    for (int e = 0; e < p->n; e++) { /* no two ranks can start two of one chain in different orders */
        if (p->events[e].comm < 0) continue;
        int *of_chain = &last[plan->comms[p->events[e].comm].chain];
        if (*of_chain) need(s, p, s->must, (Edge){*of_chain - 1, e});
        *of_chain = e + 1;
    }
    memcpy(s->seen, s->must, sizeof(Clock) * (size_t)p->n);
    for (int i = 0; i < order->n; i++) need(s, p, s->seen, order->at[i]);
    memcpy(s->tight, s->seen, sizeof(Clock) * (size_t)p->n);
    for (int i = 0; i < tight->n; i++) need(s, p, s->tight, tight->at[i]);
    close_clocks(s, p, s->seen);
    close_clocks(s, p, s->tight);
}
