/* schedule: conflicts between events, and happens-before as vector clocks over the streams (Fidge 1988, Mattern 1989).
 * Relies on: schedule.h; events with their accesses.
 * Relied on by: order, which sorts by conflicts; place and sync, which ask for clocks. */
#include "schedule.h"

/* ── conflicts ─────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int event;
    int64_t lo, hi;
} Touch;
typedef VEC(Touch) Touches;

typedef struct {
    Touches writes, reads; /* of one storage, so far; those that a later write covers are gone: it stands for them */
} History;

/* Edges from the touches that `x` must come after; a write removes what it covers. */
static void after_all(Arena *a, Touches *l, const Touch *x, bool write, Edges *out) {
    int kept = 0;
    for (int i = 0; i < l->n; i++) {
        const Touch *t = &l->at[i];
        if (t->lo < x->hi && x->lo < t->hi && t->event != x->event) push(out, a, ((Edge){t->event, x->event}));
        if (write && x->lo <= t->lo && t->hi <= x->hi) continue;
        l->at[kept++] = *t;
    }
    l->n = kept;
}

void schedule_conflicts(Arena *a, const Plan *plan, int program, Edges *out) {
    const PlanProgram *p = &plan->programs[program];
    Arena *scratch = arena_new();
    History *history = NEW_ARRAY(scratch, History, plan->nstorages + 1);
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            bool write = i >= ev->nreads;
            const Access *x = write ? &ev->writes[i - ev->nreads] : &ev->reads[i];
            if (x->size <= 0) continue;
            Touch t = {e, x->offset, x->offset + x->size};
            History *h = &history[x->storage];
            if (write) after_all(a, &h->reads, &t, true, out);
            after_all(a, &h->writes, &t, write, out);
            push(write ? &h->writes : &h->reads, scratch, t);
        }
    }
    arena_free(scratch);
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
    for (int e = 0, last = -1; e < p->n; e++) { /* one chain: no two ranks can start two in different orders */
        if (p->events[e].comm < 0) continue;
        if (last >= 0) need(s, p, s->must, (Edge){last, e});
        last = e;
    }
    memcpy(s->seen, s->must, sizeof(Clock) * (size_t)p->n);
    for (int i = 0; i < order->n; i++) need(s, p, s->seen, order->at[i]);
    memcpy(s->tight, s->seen, sizeof(Clock) * (size_t)p->n);
    for (int i = 0; i < tight->n; i++) need(s, p, s->tight, tight->at[i]);
    close_clocks(s, p, s->seen);
    close_clocks(s, p, s->tight);
}
