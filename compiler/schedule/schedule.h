/* The schedule as order leaves it: each stream's sequence, what must have finished before each event, and what may be
 * relied upon to have finished. Relies on: plan.h, pack/clock.h. Relied on by: order, place and sync, and their tests.
 * verify sees none of this. */
#ifndef SHARDC_SCHEDULE_H
#define SHARDC_SCHEDULE_H

#include "../devices/device.h"
#include "../pack/clock.h"
#include "../plan/plan.h"

typedef struct {
    int from, to; /* events, from before to in issue order */
} Edge;
typedef VEC(Edge) Edges;

typedef struct {
    int n;
    int *position;         /* of an event in its stream, counted from 1 */
    int *event[N_STREAMS]; /* by position - 1 */
    int length[N_STREAMS];
    Clock *must;  /* direct predecessors on other streams that data and collective order require */
    Clock *seen;  /* what has finished when an event starts, if order edges are kept too: place may rely on it */
    Clock *tight; /* the same with edges that may cost time: for place where it finds no room by `seen` */
} Sequence;

typedef struct Schedule {
    Sequence *programs; /* as Plan.programs */
} Schedule;

/* Storages, accesses and costs of every program, events still in the graph's order (storages.c). */
void schedule_storages(const Graph *g, Plan *plan);

/* Pairs of events that touch the same bytes of one storage, one of them writing; pairs that follow from others may be
 * missing. */
void schedule_conflicts(Arena *a, const Plan *plan, int program, Edges *out);

/* Schedule of a plan whose events stand in issue order. `conflicts` as above, `order` and `tight` edges as order or a
 * test wants them; also sets first and last of every storage. */
Schedule *schedule_new(Plan *plan);
void schedule_program(Schedule *s, Plan *plan, int program, const Edges *conflicts, const Edges *order,
                      const Edges *tight);

/* The passes; the graph is const. */
Schedule *schedule_order(const Graph *g, const Device *d, Plan *plan); /* events in issue order (no waits), storages (no
                                                                 offsets), accesses */
/* Offsets, arena bytes, bounds. rough: with little effort, for estimates. */
void schedule_place(Plan *plan, const Schedule *s, int redzone, bool rough);
void schedule_sync(Plan *plan, const Schedule *s); /* waits */

#endif
