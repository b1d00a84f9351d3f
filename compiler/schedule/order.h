/* What the files of the list scheduler share: a program whose events are being put in issue order. Relies on:
 * schedule.h, cost/timeline.h. Relied on by: order.c, in_flight.c, streamed_updates.c. */
#ifndef SHARDC_ORDER_H
#define SHARDC_ORDER_H

#include "../cost/timeline.h"
#include "schedule.h"

typedef struct {
    int *at, *event; /* of event e: event[at[e]] ... event[at[e + 1] - 1] */
} Links;

typedef struct {
    double key; /* the smallest comes first */
    int event;
} Entry;
typedef struct {
    Entry *at;
    int n;
} Heap;

typedef struct StreamedUpdates StreamedUpdates;

/* Events are numbered as in the graph's order. */
typedef struct {
    const Graph *g;
    const Plan *plan;
    const PlanProgram *p;
    Arena *a; /* scratch */
    Timeline *t;
    Edges data;
    Edges order;             /* what place may count on besides */
    Edges tight;             /* further ones, for where that saves room: their waits may cost time */
    int norder, ntight;      /* how many of them there are before any walk */
    Edges sequence;          /* of the issue order alone */
    Links pred, succ;        /* by data */
    int *first, *use, *last; /* by storage: first access, the next one, the last */
    int *pinned, npinned;    /* pinned events keep the graph's order; all others are movable */
    int *home;               /* the last pinned event at or before an event, or -1 */
    int nreduces;
    bool *limited; /* by event: a limit in flight says from when on it may be issued (in_flight.c) */
    StreamedUpdates *streamed;
    int nstreamed;
    /* the walk over the pinned events */
    Links needs, allows; /* all edges, by target and by source */
    int *missing;        /* how many of its needs have not been issued */
    int *issue, nissued;
    IssueRule *rule;     /* by event: why it is issued where it is, */
    int *other;          /* and the event that this is about, or -1 */
    int now, *place;     /* pinned events issued so far, and before an event; npinned + 1: at the end */
    int last_reduce;     /* place of the last gradient's reduce */
    bool *issued;        /* by event */
    bool *first_use;     /* it depends on nothing: it is issued with its first user */
    bool *at_end;        /* it waits for the end, to run beside the last reduces */
    double *ended;       /* by then an event surely has */
    double *chain_free;  /* by chain of collectives: by then the last of them has */
    Heap ready, waiting; /* may be issued; wait for a time */
    Heap ending, due;    /* by when they surely have ended; by when the timeline says so */
    VEC(int) behind;     /* wait for the next reduce, or the end */
} Order;

static inline const Event *order_event(const Order *o, int e) {
    return &o->p->events[e];
}
static inline Phase order_phase(const Order *o, int e) {
    return o->p->events[e].phase;
}
static inline Stream order_stream(const Order *o, int e) {
    return o->p->events[e].stream;
}
static inline Purpose order_purpose(const Order *o, int e) {
    return o->p->events[e].purpose;
}
static inline const PurposeRow *order_policy(const Order *o, int e) {
    return &purposes[order_purpose(o, e)];
}
static inline bool order_pinned(const Order *o, int e) {
    return purpose_pinned(order_purpose(o, e));
}
static inline int order_written(const Order *o, int e) { /* first storage that it writes, or -1 */
    return o->p->events[e].nwrites ? o->p->events[e].writes[0].storage : -1;
}
static inline int64_t order_size(const Order *o, int storage) {
    return o->plan->storages[storage].size;
}
static inline void order_add(Order *o, int from, int to) { /* from -1: no edge */
    if (from >= 0) push(&o->order, o->a, ((Edge){from, to}));
}

static inline void order_because(Order *o, int e, IssueRule rule, int other) {
    o->rule[e] = rule;
    o->other[e] = other;
}

/* ── in_flight.c ─────────────────────────────────────────────────────────────────────────────────────────────── */
void order_limit_in_flight(Order *o); /* order edges of the policies' limits */

/* ── streamed_updates.c
 * ──────────────────────────────────────────────────────────────────────────────────────────────── */
void streamed_find(Order *o); /* sets streamed */
void streamed_restart(Order *o);
bool streamed_learn(Order *o);              /* from a walk: when gradients come; false: no update is streamed */
int streamed_next(Order *o, double *ready); /* a fetch that may be issued now, or -1; when it may start */
void streamed_reduce(Order *o, int reduce); /* one that has just been issued may count on updates that are over */

#endif
