/* What order.c and order_updates.c share: a program whose text is being made.
 * Relies on: schedule.h, device profiles.
 * Relied on by: these two alone. */
#ifndef SHARDC_ORDER_H
#define SHARDC_ORDER_H

#include "passes.h"
#include "schedule.h"

typedef struct {
    int anchor; /* comes after this anchored event; -1: at the start, n: at the end */
    int rank;   /* among those of one anchor */
} Key;

typedef struct {
    const Graph *g;
    const Device *d;
    const Plan *plan;
    const PlanProgram *p;
    Arena *a; /* scratch */
    Edges data, order;
    int *pred_at, *pred, *succ_at, *succ; /* data edges by event: pred[pred_at[e] .. pred_at[e + 1]] */
    int *first, *use, *last;              /* per storage: first access, the next one, the last */
    bool *floats, *streamed;              /* streamed: part of an update whose state passes through the device */
    Key *key;
    int *home;     /* last anchored event at or before an event */
    double *takes; /* how long an event runs, us */
} Ordering;

static inline Phase phase_of(const Ordering *o, int e) {
    return o->p->events[e].phase;
}
static inline Stream stream_of(const Ordering *o, int e) {
    return o->p->events[e].stream;
}

/* Anchored events as they would run if nothing held them up. */
typedef struct {
    int *event;
    double *start;
    int n;
    double *end; /* by event */
} Course;

double duration(const Ordering *o, int e);
Course free_course(const Ordering *o);
int first_from(const Course *c, double time); /* anchored event that starts at that time or later, or -1 */
int written(const Ordering *o, int e);        /* first storage that it writes, or -1 */
int64_t size_of(const Ordering *o, int storage);
int reduce_of(const Ordering *o, int e); /* of a gradient: e itself, or the one whose result e finishes; -1: none */
void add_order(Ordering *o, int from, int to); /* place may count on it; from -1: no edge */
void key_at(Ordering *o, int e, int anchor);   /* issued after that anchored event */

/* ── order_updates.c ─────────────────────────────────────────────────────────────────────────────────────────── */
void find_streamed(Ordering *o);
void order_updates(Ordering *o);

#endif
