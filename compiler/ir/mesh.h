/* The mesh of ranks: its axes, and the groups of ranks along them.
 * Relies on: ir.h, policy.h, schema/mesh.h.
 * Relied on by: the front end (policies, collectives of a model), units, shard. */
#ifndef SHARDC_MESH_H
#define SHARDC_MESH_H

#include "ir.h"
#include "schema/mesh.h"

/* How many shards and replicas a policy asks for. Without a policy (NULL) the whole world shards. */
typedef struct {
    int shards, replicas; /* shards: those of experts are spread over `expert` of them, whole */
    int expert;
} MeshSizes;
MeshSizes mesh_sizes(const UnitPolicy *p, int world);
/* Gives the graph its first axes, each with a group: SC_SHARD and SC_REPLICATE by the first module that has a policy,
 * and SC_WORLD. */
void mesh_begin(Graph *g);
/* The axis of n places and this stride; made, with a group for parameters, gradients and metrics, where there is none.
 * With one place the stride does not matter. */
const Axis *mesh_axis(Graph *g, int n, int stride);
/* The axis "shard", "replicate", "world" or "expert"; NULL: no axis has this name. Where experts are not spread,
 * "expert" is an axis of one place, if the mesh has one. */
const Axis *mesh_axis_named(Graph *g, const char *name);
/* Both return an index in Graph.comms. mesh_group: the group along an axis for parameters, gradients and metrics.
 * mesh_exchange: the group for a model's own collectives. It has a communicator of its own: a kernel that waits for
 * such a collective must not wait for gathers and reduces that run beside it. */
int mesh_group(const Graph *g, const Axis *axis);
int mesh_exchange(Graph *g, const Axis *axis);

#endif
