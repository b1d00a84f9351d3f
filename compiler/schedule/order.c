/* order: the issue order of each program, by a list scheduler. Forward, recompute and backward keep the graph's order.
 * A walk over these pinned events issues the movable ones between them. An event is issued once all that it depends on
 * has been issued, the limit of its purpose leaves room (in_flight.c), and its purpose allows it (ir/purpose.c). A
 * timeline says when events end. Edges that place may rely on are order edges; they become waits only where it does.
 * Relies on: storages, schedule.h, cost/timeline.h. Relied on by: pipeline.c. */
#include "order.h"

#include <math.h>
#include <stdlib.h>

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

static bool over(const Order *o) {
    return o->now > o->npinned;
}

/* An event is ready once all its needs have been issued, unless its policy makes it wait. An event that takes something
 * from host memory waits for the end of the backward. */
static void admit(Order *o, int e) {
    const PurposeRow *policy = order_policy(o, e);
    double time = 0;
    int surely = -1;
    int behind = policy->earliest == REDUCE_UNDER_WAY && o->nreduces > 1 ? -1 : -2;
    bool last = o->at_end[e];
    for (int i = o->pred.at[e]; i < o->pred.at[e + 1] && policy->earliest == GRADIENT_HERE; i++) {
        int p = o->pred.event[i];
        Stream s = order_stream(o, p);
        if (order_purpose(o, p) == TO_REDUCE) {
            if (o->ended[p] > time) surely = p;
            time = fmax(time, o->ended[p]);
            if (o->place[p] > behind) behind = o->place[p];
        }
        last |= s != COMPUTE && !sc_stream_meets(s);
    }
    if (!over(o) && (last || behind >= o->last_reduce)) {
        order_because(o, e, last ? ISSUE_AT_END : ISSUE_BEHIND, -1);
        push(&o->behind, o->a, e);
    } else if (!over(o) && time > time_now(o)) {
        order_because(o, e, ISSUE_SURE, surely);
        heap_put(&o->waiting, time, e);
    } else
        heap_put(&o->ready, o->at_end[e] ? 0 : policy->priority, e);
}

static void admit_behind(Order *o, int reduce) { /* -1: the backward is over */
    int n = o->behind.n;
    o->behind.n = 0; /* admit may put an event back to where it was read, never beyond */
    for (int i = 0; i < n; i++) {
        int e = o->behind.at[i];
        if (reduce < 0)
            order_because(o, e, ISSUE_AT_END, -1);
        else if (o->rule[e] == ISSUE_BEHIND)
            o->other[e] = reduce;
        admit(o, e);
    }
}

static IssueRule rule_of_edge(const Order *o, int from, int to) {
    for (int i = o->pred.at[to]; i < o->pred.at[to + 1]; i++)
        if (o->pred.event[i] == from) return ISSUE_READY;
    return ISSUE_LIMITED;
}

static bool is_admitted(const Order *o, int e) { /* once nothing is missing; others have an issuer of their own */
    return !order_pinned(o, e) && !o->first_use[e] && order_policy(o, e)->earliest != JUST_IN_TIME;
}

/* Issues those needs of an event that are still missing, then the event. It does not start before `ready`. */
static void issue(Order *o, int e, double ready) {
    if (o->issued[e]) return;
    o->issued[e] = true;
    double since = time_now(o);
    for (int i = o->needs.at[e]; i < o->needs.at[e + 1]; i++) {
        if (!o->issued[o->needs.event[i]]) order_because(o, o->needs.event[i], ISSUE_NEEDED, e);
        issue(o, o->needs.event[i], 0);
        ready = fmax(ready, o->t->end[o->needs.event[i]]);
    }
    int comm = order_event(o, e)->comm;
    double *chain = comm < 0 ? NULL : &o->chain_free[o->plan->comms[comm].chain];
    double end = timeline_run(o->t, e, chain ? fmax(ready, *chain) : ready);
    if (chain) *chain = end;
    o->issue[o->nissued++] = e;
    o->place[e] = o->now;
    o->ended[e] = since + order_policy(o, e)->margin * (end - since);
    if (order_policy(o, e)->margin > 0) heap_put(&o->ending, o->ended[e], e);
    if (order_stream(o, e) != COMPUTE) heap_put(&o->due, end, e);
    for (int i = o->allows.at[e]; i < o->allows.at[e + 1] && !o->first_use[e]; i++) {
        int s = o->allows.event[i];
        if (--o->missing[s] != 0 || !is_admitted(o, s)) continue;
        order_because(o, s, rule_of_edge(o, e, s), e);
        admit(o, s);
    }
    if (order_purpose(o, e) != TO_REDUCE) return;
    streamed_reduce(o, e);
    if (o->now == o->last_reduce) return;
    o->last_reduce = o->now;
    admit_behind(o, e);
}

static void issue_movable(Order *o) {
    double ready;
    for (int e;;) {
        while (o->waiting.n && (over(o) || o->waiting.at[0].key <= time_now(o))) {
            e = heap_take(&o->waiting);
            heap_put(&o->ready, order_policy(o, e)->priority, e);
        }
        if (o->ready.n)
            issue(o, heap_take(&o->ready), 0);
        else if ((e = streamed_next(o, &ready)) >= 0) {
            order_because(o, e, ISSUE_STREAMED, -1);
            issue(o, e, ready);
        } else
            return;
    }
}

static void walk(Order *o) {
    timeline_restart(o->t);
    streamed_restart(o);
    o->order.n = o->norder;
    o->tight.n = o->ntight;
    o->nissued = o->behind.n = o->ready.n = o->waiting.n = o->ending.n = o->due.n = o->now = 0;
    o->last_reduce = -1;
    for (int i = 0; i < o->plan->ncomms; i++) o->chain_free[i] = 0;
    for (int e = 0; e < o->p->n; e++) {
        o->issued[e] = false;
        order_because(o, e, ISSUE_READY, -1);
        o->missing[e] = 0;
        for (int i = o->needs.at[e]; i < o->needs.at[e + 1]; i++) o->missing[e] += !o->first_use[o->needs.event[i]];
    }
    for (int e = 0; e < o->p->n; e++)
        if (!o->missing[e] && is_admitted(o, e)) admit(o, e);
    for (; o->now < o->npinned; o->now++) {
        issue_movable(o);
        int e = o->pinned[o->now]; /* may as well wait for what has surely ended: what that read is free from here on */
        while (o->ending.n && o->ending.at[0].key <= time_now(o)) order_add(o, heap_take(&o->ending), e);
        while (o->due.n && o->due.at[0].key <= time_now(o)) push(&o->tight, o->a, ((Edge){heap_take(&o->due), e}));
        if (!o->issued[e]) order_because(o, e, ISSUE_PINNED, o->now ? o->pinned[o->now - 1] : -1);
        issue(o, e, 0);
    }
    issue_movable(o);
    o->now++; /* the end */
    admit_behind(o, -1);
    for (int e = 0; e < o->p->n; e++)
        if (o->first_use[e]) admit(o, e);
    issue_movable(o);
}

/* ── what one walk learns for the next ─────────────────────────────────────────────────────────────────────────── */
/* The last reduces have no gradients beside them, but updates that could have been made before can wait for that: as
 * many as it takes, the latest first. Little else is live at the end, so the gradients that they keep cost no memory.
 */
static bool cover_last_reduces(Order *o) {
    double reduced = 0, computed = 0;
    for (int e = 0; e < o->p->n; e++) {
        if (order_purpose(o, e) == TO_REDUCE) reduced = fmax(reduced, o->t->end[e]);
        if (order_stream(o, e) == COMPUTE && o->place[e] <= o->npinned) computed = fmax(computed, o->t->end[e]);
    }
    bool some = false;
    for (int i = o->nissued; i-- > 0 && computed < reduced;) {
        int e = o->issue[i];
        bool takes_gradient = false;
        for (int k = o->pred.at[e]; k < o->pred.at[e + 1]; k++) {
            Purpose before = order_purpose(o, o->pred.event[k]);
            takes_gradient |= before == TO_REDUCE || before == TO_TAKE_GRADIENT;
        }
        if (order_policy(o, e)->latest != AT_END || o->place[e] > o->npinned || !takes_gradient) continue;
        o->at_end[e] = some = true;
        reduced -= o->t->alone[e];
    }
    return some;
}

/* ── a program ─────────────────────────────────────────────────────────────────────────────────────────────────── */
static void find_pinned(Order *o) {
    int last = -1;
    for (int e = 0; e < o->p->n; e++) {
        if (order_pinned(o, e)) o->pinned[o->npinned++] = last = e;
        o->nreduces += order_purpose(o, e) == TO_REDUCE;
        o->home[e] = last;
    }
}

/* What depends on nothing and is held by no limit comes with its first user, or where the graph has it. */
static void find_first_use(Order *o) {
    for (int e = 0; e < o->p->n; e++) {
        bool limited = order_stream(o, e) == GATHER || order_stream(o, e) == FETCH;
        if (order_pinned(o, e) || limited || o->pred.at[e] < o->pred.at[e + 1]) continue;
        o->first_use[e] = o->succ.at[e] < o->succ.at[e + 1];
        if (!o->first_use[e] && o->home[e] >= 0) push(&o->sequence, o->a, ((Edge){o->home[e], e}));
    }
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
    int **ints[] = {&o->home, &o->pinned, &o->missing, &o->issue, &o->place, &o->other};
    bool **flags[] = {&o->issued, &o->first_use, &o->at_end, &o->limited};
    Heap *heaps[] = {&o->ready, &o->waiting, &o->ending, &o->due};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) *ints[i] = NEW_ARRAY(a, int, p->n + 1);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) *flags[i] = NEW_ARRAY(a, bool, p->n + 1);
    for (size_t i = 0; i < sizeof heaps / sizeof *heaps; i++) heaps[i]->at = NEW_ARRAY(a, Entry, p->n + 1);
    o->ended = NEW_ARRAY(a, double, p->n + 1);
    o->chain_free = NEW_ARRAY(a, double, plan->ncomms + 1);
    o->rule = NEW_ARRAY(a, IssueRule, p->n + 1);
    const Edges *data = &o->data, *all[] = {&o->data, &o->order, &o->sequence};
    schedule_conflicts(a, plan, program, &o->data);
    o->pred = links_of(o, &data, 1, true);
    o->succ = links_of(o, &data, 1, false);
    index_uses(o);
    find_pinned(o);
    streamed_find(o);
    order_limit_in_flight(o);
    find_first_use(o);
    o->needs = links_of(o, all, 3, true);
    o->allows = links_of(o, all, 3, false);
    o->norder = o->order.n;
    o->ntight = o->tight.n;
    walk(o);
    bool streams = streamed_learn(o), covers = cover_last_reduces(o);
    if (streams || covers) walk(o);
    if (o->nissued != p->n) bug(NOWHERE, "program %s: %d of %d events were issued", p->name, o->nissued, p->n);
    Event *sorted = NEW_ARRAY(plan->arena, Event, p->n + 1);
    int *place = NEW_ARRAY(a, int, p->n + 1);
    for (int i = 0; i < p->n; i++) {
        sorted[i] = p->events[o->issue[i]];
        place[o->issue[i]] = i;
    }
    for (int i = 0; i < p->n; i++) {
        int other = o->other[o->issue[i]];
        sorted[i].issue_rule = o->rule[o->issue[i]];
        sorted[i].issue_other = other < 0 ? -1 : place[other];
    }
    p->events = sorted;
    renumber(&o->data, place);
    renumber(&o->order, place);
    renumber(&o->tight, place);
    schedule_program(s, plan, program, &o->data, &o->order, &o->tight);
    arena_free(a);
}

Schedule *schedule_order(const Graph *g, const Device *d, Plan *plan) {
    if (!plan->arena) plan->arena = g->arena;
    schedule_storages(g, plan);
    Schedule *s = schedule_new(plan);
    for (int i = 0; i < plan->nprograms; i++) order_program(s, g, d, plan, i);
    return s;
}
