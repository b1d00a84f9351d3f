/* The mesh: ranks as places along named axes.
 * Relies on: nothing.
 * Relied on by: compiler/ir/mesh.h, sc.h. */
#ifndef SC_SCHEMA_MESH_H
#define SC_SCHEMA_MESH_H

/* An axis has `size` places. The numbers of two ranks in neighbouring places differ by `stride`. Ranks that differ only
 * in their place on an axis are a group, and a collective along the axis runs in each of its groups. Two axes can be
 * joined into one where the stride of the second is size × stride of the first: `shard` and `replicate` make `world`.
 */
typedef struct {
    const char *name;
    int size, stride;
} sc_axis;

/* A build's first axes: those of the model's mesh, and all ranks. Units of other meshes have axes of their own. */
enum { SC_SHARD, SC_REPLICATE, SC_WORLD, SC_NAMED_AXES };
/* Samples are split along this axis. A loss is the mean over its ranks, a gradient the sum. */
enum { SC_SAMPLES = SC_WORLD };

/* A rank's place on an axis. */
typedef struct {
    int at, of;
} sc_coord;

static inline sc_coord sc_coord_on(const sc_axis *a, int rank) {
    sc_coord c = {rank / a->stride % a->size, a->size};
    return c;
}

#endif
