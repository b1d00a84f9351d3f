/* The mesh of ranks: its axes, and the groups of ranks that talk to each other.
 * Relies on: ir.h, policy.h.
 * Relied on by: the front end (collectives of a model), units. */
#ifndef SHARDC_MESH_H
#define SHARDC_MESH_H

#include "ir.h"

/* How many shards and replicas a unit of this policy has. */
void mesh_of_policy(const UnitPolicy *p, int world, int *shards, int *replicas);
/* Gives the graph its axes: the groups `shard`, `replicate` and `world`, by the first module that has a policy. */
void mesh_begin(Graph *g);
/* The group of n ranks, each `step` after the one before it, for parameters, gradients and metrics. */
int mesh_group(Graph *g, int n, int step);
/* The group over which a model's own collectives along an axis (COMM_SHARD ...) go. It has a communicator of its own:
 * a kernel that waits for such a collective must not wait for gathers and reduces that run beside it. */
int mesh_exchange(Graph *g, int axis);
/* COMM_SHARD, COMM_REPLICATE or COMM_WORLD; -1: no axis has this name. */
int mesh_axis(const char *name);

#endif
