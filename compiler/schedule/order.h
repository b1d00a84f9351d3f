/* What the files of the list scheduler share: a program whose events are being put in issue order. Relies on:
 * schedule.h, cost/timeline.h. Relied on by: order.c, in_flight.c, streamed_updates.c. */
#ifndef SHARDC_ORDER_H
#define SHARDC_ORDER_H

#include "../cost/timeline.h"
#include "schedule.h"

typedef struct {
    int *at, *event; /* of event e: event[at[e]] ... event[at[e + 1] - 1] */
} Links;

typedef struct {     /* of a walk under way: order.c alone writes it */
    bool *first_use; /* by event: it depends on nothing, and is issued with its first user */
    bool *issued;    /* by event */
    int now;         /* pinned events issued so far; npinned + 1: at the end */
} Progress;
typedef struct StreamedUpdates StreamedUpdates; /* streamed_updates.c */

/* What is known of a program before any walk; events are numbered as in the graph's order. */
typedef struct {
    const Graph *g;
    const Plan *plan;
    const PlanProgram *p;
    Arena *a; /* scratch */
    Timeline *t;
    Links pred, succ;        /* by data */
    int *first, *use, *last; /* by storage: first access, the next one, the last */
    int *pinned, npinned;    /* pinned events keep the graph's order; all others are movable */
    int *home;               /* the last pinned event at or before an event, or -1 */
    Edges order;             /* what place may count on besides data; a walk adds to these, */
    Edges tight;             /* and to further ones, for where that saves room: their waits may cost time */
    Edges sequence;          /* of the issue order alone */
    const Progress *so_far;
    StreamedUpdates *streamed;
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
/* From -1: no edge. */
static inline void order_add(Order *o, int from, int to) {
    if (from >= 0) push(&o->order, o->a, ((Edge){from, to}));
}
static inline void order_add_tight(Order *o, int from, int to) {
    if (from >= 0) push(&o->tight, o->a, ((Edge){from, to}));
}
static inline void order_add_sequence(Order *o, int from, int to) {
    if (from >= 0) push(&o->sequence, o->a, ((Edge){from, to}));
}

/* ── in_flight.c ─────────────────────────────────────────────────────────────────────────────────────────────── */
void order_limit_in_flight(Order *o); /* order edges of the policies' limits */

/* ── streamed_updates.c ────────────────────────────────────────────────────────────────────────────────────────── */
void streamed_find(Order *o); /* sets streamed */
bool streamed_any(const Order *o);
void streamed_restart(Order *o);
bool streamed_learn(Order *o);              /* from a walk: when gradients come; false: no update is streamed */
int streamed_next(Order *o, double *ready); /* a fetch that may be issued now, or -1; when it may start */
void streamed_reduce(Order *o, int reduce); /* one that has just been issued may count on updates that are over */

#endif
