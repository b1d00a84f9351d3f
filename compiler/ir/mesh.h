/* The mesh of ranks: its axes, and the groups of ranks along them that talk to each other.
 * Relies on: ir.h, policy.h, schema/mesh.h.
 * Relied on by: the front end (policies, collectives of a model), units, shard. */
#ifndef SHARDC_MESH_H
#define SHARDC_MESH_H

#include "ir.h"
#include "schema/mesh.h"

/* How many shards and replicas a policy asks for; NULL: shards of the whole world. */
typedef struct {
    int shards, replicas;
} MeshSizes;
MeshSizes mesh_sizes(const UnitPolicy *p, int world);
/* Gives the graph its first axes, each with a group: SC_SHARD and SC_REPLICATE by the first module that has a policy,
 * and SC_WORLD. */
void mesh_begin(Graph *g);
/* The axis of n places, `stride` apart, which has a group for parameters, gradients and metrics. Axes of one place are
 * the same. */
const Axis *mesh_axis(Graph *g, int n, int stride);
/* SC_SHARD, SC_REPLICATE or SC_WORLD; -1: none has this name. */
int mesh_axis_named(const char *name);
/* The group along an axis for parameters, gradients and metrics, and the one for a model's own collectives: the latter
 * has a communicator of its own, as a kernel that waits for such a collective must not wait for gathers and reduces
 * that run beside it. Both are indices in Graph.comms. */
int mesh_group(const Graph *g, const Axis *axis);
int mesh_exchange(Graph *g, const Axis *axis);

#endif
