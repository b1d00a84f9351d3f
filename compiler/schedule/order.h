/* What the files of the list scheduler share: a program whose events are being put in issue order, the classes of its
 * events and their policies. Relies on: schedule.h, cost/timeline.h. Relied on by: order.c, policy.c, in_flight.c,
 * streamed_updates.c. */
#ifndef SHARDC_ORDER_H
#define SHARDC_ORDER_H

#include "../cost/timeline.h"
#include "schedule.h"

/* Pinned events keep the graph's order; all others are movable. */
typedef enum {
    PINNED, /* kernels of forward, recompute and backward; metrics */
    GATHER_FORWARD,
    GATHER_BACKWARD,  /* and for recomputation */
    FETCH_TO_GATHER,  /* from host memory: parameters that are gathered then, */
    FETCH_PARAMETERS, /* parameters of which no other rank has a part, */
    FETCH_ACTIVATION, /* and what an earlier event of the program put there */
    FETCH_OTHER,
    REDUCE_GRADIENT,
    REDUCE_SCALAR, /* metrics, squares of the gradient norm */
    TAKE_GRADIENT, /* kernels that work on a reduced gradient: sums over ranks or microbatches, squares */
    UPDATE_KERNEL, /* kernels of the optimizer */
    OFFLOAD_COPY,
    STREAMED_FETCH, /* of a streamed update's state */
    STREAMED_UPDATE,
    STREAMED_BACK,
    HOST_KERNEL,
    N_EVENT_CLASSES
} EventClass;

typedef enum {
    NO_LIMIT,
    UNITS,   /* `limit` units more than their policy's prefetch */
    BUFFERS, /* `limit` of them */
    BYTES    /* `limit` times the largest */
} Counted;

typedef enum {
    AT_ONCE,          /* as soon as all that it depends on has been issued */
    REDUCE_UNDER_WAY, /* not before a gradient's reduce has been issued, where there are several */
    GRADIENT_HERE,    /* the gradient has surely come, and the reduce of a later one has been issued */
    JUST_IN_TIME      /* as late as hides it, where there is room: streamed_updates.c */
} Earliest;

typedef enum {
    ITS_TURN, /* when it may be issued and nothing goes before it */
    AT_END    /* it may wait for the end of the backward, to run beside the last reduces */
} Latest;

typedef struct {
    int priority; /* of events that may be issued, that with the smallest goes first */
    Counted counted;
    /* BUFFERS, BYTES: in flight at most. UNITS: how many beyond the unit's prefetch; 1 is the unit in use. Without
     * effect where prefetch is 0. */
    int limit;
    Earliest earliest;
    Latest latest;
    double
        margin; /* it has surely ended after so many times the time that the timeline says; 0: nobody relies on that */
} Policy;
extern const Policy policies[N_EVENT_CLASSES];

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
    EventClass *class;
    int *pinned, npinned;
    int *home; /* the last pinned event at or before an event, or -1 */
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
    double chain_free;   /* by then the last collective has; all of them are one chain */
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
static inline const Policy *order_policy(const Order *o, int e) {
    return &policies[o->class[e]];
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

/* ── policy.c ────────────────────────────────────────────────────────────────────────────────────────────────── */
void order_classify(Order *o); /* sets class, pinned, home, nreduces, streamed */

/* ── in_flight.c ─────────────────────────────────────────────────────────────────────────────────────────────── */
void order_limit_in_flight(Order *o); /* order edges of the policies' limits */

/* ── streamed_updates.c
 * ──────────────────────────────────────────────────────────────────────────────────────────────── */
void streamed_find(Order *o); /* sets streamed, and the classes of its events */
void streamed_restart(Order *o);
bool streamed_learn(Order *o);              /* from a walk: when gradients come; false: no update is streamed */
int streamed_next(Order *o, double *ready); /* a fetch that may be issued now, or -1; when it may start */
void streamed_reduce(Order *o, int reduce); /* one that has just been issued may count on updates that are over */

#endif
