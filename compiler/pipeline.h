/* The way of a model through the compiler, one line a pass.
 * Relies on: every pass.
 * Relied on by: cli/input.c, the tests. */
#ifndef SHARDC_PIPELINE_H
#define SHARDC_PIPELINE_H

#include "devices/device.h"
#include "plan/plan.h"

typedef struct {
    const char *dump_after; /* pass name, or NULL */
    int redzone;            /* bytes of guard round every storage (tests); 0 */
    const char *target;     /* "cpu", "cuda"; NULL: the device's */
    const char *arch;       /* CUDA: "sm_90"; NULL: the device's */
    int document_length;    /* of documents in attention, which times depend on; 0: as the model says */
    bool wide;              /* for the CPU's test build, whose kernels compute in fp64 */
    bool explain;           /* passes are measured: Graph.passes */
    bool quick;             /* graph_check after the last pass alone, not after each */
    bool estimate;          /* for the planner: little effort for placement, no proof; such a plan is never built */
} PipelineOptions;

void pipeline_lower(Graph *g, const Device *d, const PipelineOptions *o); /* traced model -> g->programs */
Plan *pipeline_plan(const Graph *g, const Device *d,
                    const PipelineOptions *o); /* order, place, wait, verify, simulate */

#endif
