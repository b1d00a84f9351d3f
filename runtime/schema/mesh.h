/* The mesh: ranks as places along named axes.
 * Relies on: nothing.
 * Relied on by: compiler/ir/mesh.h, sc.h. */
#ifndef SC_SCHEMA_MESH_H
#define SC_SCHEMA_MESH_H

/* An axis has `size` places; ranks of neighbouring places are `stride` apart. The ranks that differ in their place on
 * it alone are a group, whose collectives go along the axis. Axes next to each other (the stride of one is the ranks
 * that the others span) make up one axis together, as shard and replicate make up world. */
typedef struct {
    const char *name;
    int size, stride;
} sc_axis;

/* A build's first axes: those of the model's mesh, and all ranks. Units of other meshes have axes of their own. */
enum { SC_SHARD, SC_REPLICATE, SC_WORLD, SC_NAMED_AXES };
/* Samples are split along this axis. Losses are means over it, gradients sums. */
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
