/* The passes that lower the traced programs, in the order in which pipeline.c runs them.
 * Relies on: ir.h, plan.h, devices/device.h.
 * Relied on by: pipeline.c, the unit tests. */
#ifndef SHARDC_LOWER_H
#define SHARDC_LOWER_H

#include "../devices/device.h"
#include "../plan/plan.h"

/* The traced programs (g->train, g->eval, g->sample) become g->programs. */
void lower_scale_check(const Graph *g);      /* after units: refuses a scaler that nothing needs */
void lower_units(Graph *g);                  /* g->units from the policies; Param.unit; before precision */
void lower_precision(Graph *g, Program *p);  /* casts at unit borders; re-infers dtypes */
void lower_inputs(Graph *g);                 /* inputs that are only read through a cast are stored as its result */
void lower_qkv_fusion(Graph *g, Program *p); /* products of one input become one product; sets Param.fused */
void lower_epilogue_fusion_traced(Graph *g,
                                  Program *p);    /* the same, of ops whose combination has a gradient of its own */
void lower_quantize(Graph *g, Program *p);        /* linears of units with matmul_dtype multiply in 8 bits */
void lower_narrow(Graph *g);                      /* parts of units that are gathered in 8 bits */
void lower_quantize_fusion(Graph *g, Program *p); /* what 8 bits alone are made of is not stored wide */
/* Refuses a GPU, of architecture "sm_80", that has no such products, or whose profile does not say how fast they are.
 */
void lower_quantize_check(const Graph *g, const Device *d, const char *arch);
void lower_autodiff(Graph *g, Program *p); /* appends the backward of p->loss; sets Param.reached and Param.grad */
void lower_chunks(Graph *g, Program *p);   /* losses made in chunks: each where its gradient is */
void lower_epilogue_fusion(Graph *g, Program *p); /* neighbouring ops that one kernel serves become one */
void lower_rematerialize(
    Graph *g, Program *p); /* pointwise values are computed again in the backward where that costs no memory */
void lower_concat_in_place(Graph *g, Program *p); /* results that are only joined are written where they are joined */
void lower_fuse(Graph *g, Program *p); /* layouts (copies where a kernel needs them), pointwise groups, dead code */
void lower_recompute(Graph *g, Program *p);          /* clones for checkpointed modules; marks what is offloaded */
void lower_place_updates(Graph *g, const Device *d); /* sets Unit.host_update */
void lower_shard(Graph *g); /* units, flat layout, states; builds g->programs with gathers, reduces, optimizer */
void lower_accumulate(Graph *g, Program *p); /* a head's gradient is summed over chunks in place */
void lower_offload(Graph *g, Program *p); /* offload/fetch pairs; updates on the host, or streamed through the device */
void lower_remove_dead(Graph *g, Program *p);

/* Parameters that the loss does not reach, inputs that nothing reads, modules that are never called. */
void lower_unused(Plan *plan);

#endif
