/* Every pass, in the order in which pipeline.c runs them.
 * Relies on: ir.h, plan.h, devices/device.h.
 * Relied on by: pipeline.c, the unit tests. */
#ifndef SHARDC_PASSES_H
#define SHARDC_PASSES_H

#include "../devices/device.h"
#include "../ir/plan.h"

/* lower: the traced programs (g->train, g->eval, g->sample) become g->programs. */
void scale_check(const Graph *g);          /* after units: refuses a scaler that nothing needs */
void units(Graph *g);                      /* g->units from the policies; Param.unit; before precision */
void precision(Graph *g, Program *p);      /* casts at unit borders; re-infers dtypes */
void inputs(Graph *g);                     /* inputs that are only read through a cast are stored as its result */
void joints(Graph *g, Program *p);         /* products of one input become one product; sets Param.joint */
void combine_traced(Graph *g, Program *p); /* the same, of ops whose combination has a gradient of its own */
void autodiff(Graph *g, Program *p);       /* appends the backward of p->loss; sets Param.reached and Param.grad */
void combine(Graph *g, Program *p);        /* neighbouring ops that one kernel serves become one */
void remake(Graph *g, Program *p); /* pointwise values are computed again in the backward where that costs no memory */
void pieces(Graph *g, Program *p); /* results that are only joined are written where they are joined */
void fuse(Graph *g, Program *p);   /* layouts (copies where a kernel needs them), pointwise groups, dead code */
void recompute(Graph *g, Program *p);          /* clones for checkpointed modules; marks what is offloaded */
void place_updates(Graph *g, const Device *d); /* sets Unit.host_update */
void shard(Graph *g); /* units, flat layout, states; builds g->programs with gathers, reduces, optimizer */
void offload(Graph *g, Program *p); /* offload/fetch pairs; updates on the host, or streamed through the device */
void remove_dead(Graph *g, Program *p);

/* schedule: const Graph from here on. */
typedef struct Schedule Schedule; /* the plan's events in issue order, with order edges; passes/schedule.h */
Schedule *order(const Graph *g, const Device *d,
                Plan *plan); /* fills plan->programs[].events (no waits), storages (no offsets), accesses */
void place(Plan *plan, const Schedule *s, int redzone); /* offsets, arena bytes, bounds */
void wait_pass(Plan *plan, const Schedule *s);          /* waits */

/* Parameters that the loss does not reach, inputs that nothing reads, modules that are never called. */
void unused(Plan *plan);

#endif
