/* order: the issue order of each program, by a list scheduler. Forward, recompute and backward keep the graph's order.
 * A walk over these pinned events issues the movable ones between them. An event is issued once all that it depends on
 * has been issued, the limit of its purpose leaves room (in_flight.c), and its purpose allows it (ir/purpose.c). A
 * timeline says when events end. Edges that place may rely on are order edges; they become waits only where it does.
 * Relies on: storages, schedule.h, cost/timeline.h. Relied on by: pipeline.c. */
#include "order.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    double key; /* the smallest comes first */
    int event;
} Entry;
typedef struct {
    Entry *at;
    int n;
} Heap;

/* The state of the walk over the pinned events. */
typedef struct {
    Order *o;
    Progress so_far;
    Links needs, allows; /* all edges, by target and by source */
    int norder, ntight;  /* how many edges of Order there are before any walk */
    int nreduces;
    bool *at_end;        /* by event: it waits for the end, to run beside the last reduces */
    int *missing;        /* how many of its needs have not been issued */
    int *issue, nissued; /* the issue order so far */
    IssueRule *rule;     /* by event: why it is issued where it is, */
    int *other;          /* and the event that this is about, or -1 */
    int *place;          /* pinned events issued before an event; npinned + 1: at the end */
    int last_reduce;     /* place of the last gradient's reduce */
    double *ended;       /* by then an event surely has */
    double *chain_free;  /* by chain of collectives: by then the last of them has */
    Heap ready, waiting; /* may be issued; wait for a time */
    Heap ending, due;    /* by when they surely have ended; by when the timeline says so */
    VEC(int) behind;     /* wait for the next reduce, or the end */
} Walk;

/* ── indices ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static Links links_of(const Order *o, const Edges *const *lists, int nlists, bool by_target) {
    int n = o->p->n, total = 0;
    Links l = {NEW_ARRAY(o->a, int, n + 2), NULL};
    for (int i = 0; i < nlists; i++) {
        for (int k = 0; k < lists[i]->n; k++) l.at[(by_target ? lists[i]->at[k].to : lists[i]->at[k].from) + 1]++;
        total += lists[i]->n;
    }
    for (int e = 0; e < n; e++) l.at[e + 1] += l.at[e];
    int *next = NEW_ARRAY(o->a, int, n + 2);
    memcpy(next, l.at, sizeof *next * (size_t)(n + 1));
    l.event = NEW_ARRAY(o->a, int, total + 1);
    for (int i = 0; i < nlists; i++)
        for (int k = 0; k < lists[i]->n; k++) {
            Edge x = lists[i]->at[k];
            l.event[next[by_target ? x.to : x.from]++] = by_target ? x.from : x.to;
        }
    return l;
}

static void index_uses(Order *o) {
    int n = o->plan->nstorages;
    int **lists[] = {&o->first, &o->use, &o->last};
    for (int i = 0; i < 3; i++) {
        *lists[i] = NEW_ARRAY(o->a, int, n + 1);
        for (int s = 0; s < n; s++) (*lists[i])[s] = -1;
    }
    for (int e = 0; e < o->p->n; e++) {
        const Event *ev = &o->p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            int s = (i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage;
            if (o->first[s] < 0)
                o->first[s] = e;
            else if (o->use[s] < 0 && o->first[s] != e)
                o->use[s] = e;
            o->last[s] = e;
        }
    }
}

/* ── a heap: the smallest key first, of equal ones the event that the graph has first ──────────────────────────── */
static bool before(Entry a, Entry b) {
    return a.key != b.key ? a.key < b.key : a.event < b.event;
}

static void heap_put(Heap *h, double key, int e) {
    Entry x = {key, e};
    int i = h->n++;
    for (; i > 0 && before(x, h->at[(i - 1) / 2]); i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = x;
}

static int heap_take(Heap *h) {
    Entry x = h->at[--h->n];
    int top = h->at[0].event, i = 0;
    for (int c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && before(h->at[c + 1], h->at[c])) c++;
        if (!before(h->at[c], x)) break;
        h->at[i] = h->at[c];
    }
    h->at[i] = x;
    return top;
}

/* ── the list scheduler: a walk over the pinned events, which issues the movable ones between them ─────────────── */
static double time_now(const Order *o) {
    return o->t->free[COMPUTE];
}

static bool over(const Walk *w) {
    return w->so_far.now > w->o->npinned;
}

static void because(Walk *w, int e, IssueRule rule, int other) {
    w->rule[e] = rule;
    w->other[e] = other;
}

/* An event is ready once all its needs have been issued, unless its policy makes it wait. An event that takes something
 * from host memory waits for the end of the backward. */
static void admit(Walk *w, int e) {
    Order *o = w->o;
    const PurposeRow *policy = order_policy(o, e);
    double time = 0;
    int surely = -1;
    int behind = policy->earliest == REDUCE_UNDER_WAY && w->nreduces > 1 ? -1 : -2;
    bool last = w->at_end[e];
    for (int i = o->pred.at[e]; i < o->pred.at[e + 1] && policy->earliest == GRADIENT_HERE; i++) {
        int p = o->pred.event[i];
        Stream s = order_stream(o, p);
        bool reduced = order_purpose(o, p) == TO_REDUCE;
        if (reduced || order_purpose(o, p) == TO_EXCHANGE_UPDATE) {
            if (w->ended[p] > time) surely = p;
            time = fmax(time, w->ended[p]);
            if (reduced && w->place[p] > behind) behind = w->place[p];
        }
        last |= s != COMPUTE && !sc_stream_meets(s);
    }
    if (!over(w) && (last || behind >= w->last_reduce)) {
        because(w, e, last ? ISSUE_AT_END : ISSUE_BEHIND, -1);
        push(&w->behind, o->a, e);
    } else if (!over(w) && time > time_now(o)) {
        because(w, e, ISSUE_SURE, surely);
        heap_put(&w->waiting, time, e);
    } else
        heap_put(&w->ready, w->at_end[e] ? 0 : policy->priority, e);
}

static void admit_behind(Walk *w, int reduce) { /* -1: the backward is over */
    int n = w->behind.n;
    w->behind.n = 0; /* admit may put an event back to where it was read, never beyond */
    for (int i = 0; i < n; i++) {
        int e = w->behind.at[i];
        if (reduce < 0)
            because(w, e, ISSUE_AT_END, -1);
        else if (w->rule[e] == ISSUE_BEHIND)
            w->other[e] = reduce;
        admit(w, e);
    }
}

static IssueRule rule_of_edge(const Order *o, int from, int to) {
    for (int i = o->pred.at[to]; i < o->pred.at[to + 1]; i++)
        if (o->pred.event[i] == from) return ISSUE_READY;
    return ISSUE_LIMITED;
}

static bool is_admitted(const Walk *w, int e) { /* once nothing is missing; others have an issuer of their own */
    const Order *o = w->o;
    return !order_pinned(o, e) && !w->so_far.first_use[e] && order_policy(o, e)->earliest != JUST_IN_TIME;
}

/* Issues those needs of an event that are still missing, then the event. It does not start before `ready`. */
static void issue(Walk *w, int e, double ready) {
    Order *o = w->o;
    if (w->so_far.issued[e]) return;
    w->so_far.issued[e] = true;
    double since = time_now(o);
    for (int i = w->needs.at[e]; i < w->needs.at[e + 1]; i++) {
        if (!w->so_far.issued[w->needs.event[i]]) because(w, w->needs.event[i], ISSUE_NEEDED, e);
        issue(w, w->needs.event[i], 0);
        ready = fmax(ready, o->t->end[w->needs.event[i]]);
    }
    int comm = order_event(o, e)->comm;
    double *chain = comm < 0 ? NULL : &w->chain_free[o->plan->comms[comm].chain];
    double end = timeline_run(o->t, e, chain ? fmax(ready, *chain) : ready);
    if (chain) *chain = end;
    w->issue[w->nissued++] = e;
    w->place[e] = w->so_far.now;
    w->ended[e] = since + order_policy(o, e)->margin * (end - since);
    if (order_policy(o, e)->margin > 0) heap_put(&w->ending, w->ended[e], e);
    if (order_stream(o, e) != COMPUTE) heap_put(&w->due, end, e);
    for (int i = w->allows.at[e]; i < w->allows.at[e + 1] && !w->so_far.first_use[e]; i++) {
        int s = w->allows.event[i];
        if (--w->missing[s] != 0 || !is_admitted(w, s)) continue;
        because(w, s, rule_of_edge(o, e, s), e);
        admit(w, s);
    }
    if (order_purpose(o, e) != TO_REDUCE) return;
    streamed_reduce(o, e);
    if (w->so_far.now == w->last_reduce) return;
    w->last_reduce = w->so_far.now;
    admit_behind(w, e);
}

static void issue_movable(Walk *w) {
    Order *o = w->o;
    double ready;
    for (int e;;) {
        while (w->waiting.n && (over(w) || w->waiting.at[0].key <= time_now(o))) {
            e = heap_take(&w->waiting);
            heap_put(&w->ready, order_policy(o, e)->priority, e);
        }
        if (w->ready.n)
            issue(w, heap_take(&w->ready), 0);
        else if ((e = streamed_next(o, &ready)) >= 0) {
            because(w, e, ISSUE_STREAMED, -1);
            issue(w, e, ready);
        } else
            return;
    }
}

static void walk(Walk *w) {
    Order *o = w->o;
    timeline_restart(o->t);
    streamed_restart(o);
    o->order.n = w->norder;
    o->tight.n = w->ntight;
    w->nissued = w->behind.n = w->ready.n = w->waiting.n = w->ending.n = w->due.n = w->so_far.now = 0;
    w->last_reduce = -1;
    for (int i = 0; i < o->plan->ncomms; i++) w->chain_free[i] = 0;
    for (int e = 0; e < o->p->n; e++) {
        w->so_far.issued[e] = false;
        because(w, e, ISSUE_READY, -1);
        w->missing[e] = 0;
        for (int i = w->needs.at[e]; i < w->needs.at[e + 1]; i++)
            w->missing[e] += !w->so_far.first_use[w->needs.event[i]];
    }
    for (int e = 0; e < o->p->n; e++)
        if (!w->missing[e] && is_admitted(w, e)) admit(w, e);
    for (; w->so_far.now < o->npinned; w->so_far.now++) {
        issue_movable(w);
        int e = o->pinned[w->so_far.now]; /* may as well wait for what has surely ended: what that read is free from
                                             here on */
        while (w->ending.n && w->ending.at[0].key <= time_now(o)) order_add(o, heap_take(&w->ending), e);
        while (w->due.n && w->due.at[0].key <= time_now(o)) order_add_tight(o, heap_take(&w->due), e);
        if (!w->so_far.issued[e]) because(w, e, ISSUE_PINNED, w->so_far.now ? o->pinned[w->so_far.now - 1] : -1);
        issue(w, e, 0);
    }
    issue_movable(w);
    w->so_far.now++; /* the end */
    admit_behind(w, -1);
    for (int e = 0; e < o->p->n; e++)
        if (w->so_far.first_use[e]) admit(w, e);
    issue_movable(w);
}

/* ── what one walk learns for the next ─────────────────────────────────────────────────────────────────────────── */
/* The last reduces have no gradients beside them, but updates that could have been made before can wait for that: as
 * many as it takes, the latest first. Little else is live at the end, so the gradients that they keep cost no memory.
 */
static bool cover_last_reduces(Walk *w) {
    Order *o = w->o;
    double reduced = 0, computed = 0;
    for (int e = 0; e < o->p->n; e++) {
        if (order_purpose(o, e) == TO_REDUCE) reduced = fmax(reduced, o->t->end[e]);
        if (order_stream(o, e) == COMPUTE && w->place[e] <= o->npinned) computed = fmax(computed, o->t->end[e]);
    }
    bool some = false;
    for (int i = w->nissued; i-- > 0 && computed < reduced;) {
        int e = w->issue[i];
        bool takes_gradient = false;
        for (int k = o->pred.at[e]; k < o->pred.at[e + 1]; k++) {
            Purpose before = order_purpose(o, o->pred.event[k]);
            takes_gradient |= before == TO_REDUCE || before == TO_TAKE_GRADIENT;
        }
        if (order_policy(o, e)->latest != AT_END || w->place[e] > o->npinned || !takes_gradient) continue;
        w->at_end[e] = some = true;
        reduced -= o->t->alone[e];
    }
    return some;
}

/* ── a program ─────────────────────────────────────────────────────────────────────────────────────────────────── */
static void find_pinned(Order *o) {
    int last = -1;
    for (int e = 0; e < o->p->n; e++) {
        if (order_pinned(o, e)) o->pinned[o->npinned++] = last = e;
        o->home[e] = last;
    }
}

/* What depends on nothing and is held by no limit comes with its first user, or where the graph has it. */
static void find_first_use(Walk *w) {
    Order *o = w->o;
    for (int e = 0; e < o->p->n; e++) {
        bool limited = order_stream(o, e) == GATHER || order_stream(o, e) == FETCH;
        if (order_pinned(o, e) || limited || o->pred.at[e] < o->pred.at[e + 1]) continue;
        w->so_far.first_use[e] = o->succ.at[e] < o->succ.at[e + 1];
        if (!w->so_far.first_use[e]) order_add_sequence(o, o->home[e], e);
    }
}

/* Once all edges are known that hold for every walk. */
static Walk *walk_new(Order *o, const Edges *data) {
    int n = o->p->n;
    Walk *w = NEW(o->a, Walk);
    *w = (Walk){.o = o, .norder = o->order.n, .ntight = o->tight.n};
    o->so_far = &w->so_far;
    int **ints[] = {&w->missing, &w->issue, &w->place, &w->other};
    bool **flags[] = {&w->so_far.issued, &w->so_far.first_use, &w->at_end};
    Heap *heaps[] = {&w->ready, &w->waiting, &w->ending, &w->due};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) *ints[i] = NEW_ARRAY(o->a, int, n + 1);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) *flags[i] = NEW_ARRAY(o->a, bool, n + 1);
    for (size_t i = 0; i < sizeof heaps / sizeof *heaps; i++) heaps[i]->at = NEW_ARRAY(o->a, Entry, n + 1);
    w->ended = NEW_ARRAY(o->a, double, n + 1);
    w->chain_free = NEW_ARRAY(o->a, double, o->plan->ncomms + 1);
    w->rule = NEW_ARRAY(o->a, IssueRule, n + 1);
    for (int e = 0; e < n; e++) w->nreduces += order_purpose(o, e) == TO_REDUCE;
    find_first_use(w);
    const Edges *all[] = {data, &o->order, &o->sequence};
    w->needs = links_of(o, all, 3, true);
    w->allows = links_of(o, all, 3, false);
    return w;
}

/* Edges that the issue order has the other way round fall away: there may be such in `tight`. */
static void renumber(Edges *l, const int *place) {
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        Edge x = {place[l->at[i].from], place[l->at[i].to]};
        if (x.from < x.to) l->at[n++] = x;
    }
    l->n = n;
}

static void order_program(Schedule *s, const Graph *g, const Device *d, Plan *plan, int program) {
    PlanProgram *p = &plan->programs[program];
    Arena *a = arena_new();
    Order *o = NEW(a, Order);
    *o = (Order){.g = g, .plan = plan, .p = p, .a = a, .t = timeline_new(a, plan, p, d, 0)};
    o->home = NEW_ARRAY(a, int, p->n + 1);
    o->pinned = NEW_ARRAY(a, int, p->n + 1);
    Edges conflicts = {0};
    schedule_conflicts(a, plan, program, &conflicts);
    const Edges *data = &conflicts;
    o->pred = links_of(o, &data, 1, true);
    o->succ = links_of(o, &data, 1, false);
    index_uses(o);
    find_pinned(o);
    streamed_find(o);
    order_limit_in_flight(o);
    Walk *w = walk_new(o, data);
    walk(w);
    bool streams = streamed_learn(o), covers = cover_last_reduces(w);
    if (streams || covers) walk(w);
    if (w->nissued != p->n) bug(NOWHERE, "program %s: %d of %d events were issued", p->name, w->nissued, p->n);
    Event *sorted = NEW_ARRAY(plan->arena, Event, p->n + 1);
    int *place = NEW_ARRAY(a, int, p->n + 1);
    for (int i = 0; i < p->n; i++) {
        sorted[i] = p->events[w->issue[i]];
        place[w->issue[i]] = i;
    }
    for (int i = 0; i < p->n; i++) {
        int other = w->other[w->issue[i]];
        sorted[i].issue_rule = w->rule[w->issue[i]];
        sorted[i].issue_other = other < 0 ? -1 : place[other];
    }
    p->events = sorted;
    renumber(&conflicts, place);
    renumber(&o->order, place);
    renumber(&o->tight, place);
    schedule_program(s, plan, program, &conflicts, &o->order, &o->tight);
    arena_free(a);
}

Schedule *schedule_order(const Graph *g, const Device *d, Plan *plan) {
    if (!plan->arena) plan->arena = g->arena;
    schedule_storages(g, plan);
    Schedule *s = schedule_new(plan);
    for (int i = 0; i < plan->nprograms; i++) order_program(s, g, d, plan, i);
    return s;
}
