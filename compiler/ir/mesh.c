/* Axes of a graph's ranks, and groups along them.
 * Relies on: mesh.h, policy.h.
 * Relied on by: the front end, units, shard. */
#include "mesh.h"
#include "policy.h"

static const char *const names[SC_NAMED_AXES] = {"shard", "replicate", "world"};

MeshSizes mesh_sizes(const UnitPolicy *p, int world) {
    int shards = p && p->shard ? p->shard : p && p->replicate ? world / p->replicate : world;
    return (MeshSizes){shards,
                       p && p->replicate ? p->replicate
                       : shards          ? world / shards
                                         : 1,
                       p && p->expert ? p->expert : 1};
}

static const Axis *new_axis(Graph *g, const char *name, int n, int stride) {
    Axis *a = NEW(g->arena, Axis);
    *a = (Axis){g->axes.n, name, n, stride};
    push(&g->axes, g->arena, a);
    push(&g->comms, g->arena, ((Comm){name, a, 0}));
    return a;
}

void mesh_begin(Graph *g) {
    const UnitPolicy *first = NULL;
    for (int i = 0; i < g->modules.n && !first; i++) first = g->modules.at[i]->policy;
    MeshSizes m = mesh_sizes(first, g->world);
    new_axis(g, names[SC_SHARD], m.shards, 1);
    new_axis(g, names[SC_REPLICATE], m.replicas, m.shards);
    new_axis(g, names[SC_WORLD], g->world, 1);
    int experts = 1;
    for (int i = 0; i < g->modules.n && experts == 1; i++)
        experts = mesh_sizes(g->modules.at[i]->policy, g->world).expert;
    if (experts > 1) g->expert = mesh_axis(g, experts, 1);
}

const Axis *mesh_axis(Graph *g, int n, int stride) {
    for (int i = 0; i < g->axes.n; i++) {
        const Axis *a = g->axes.at[i];
        if (a->size == n && (n == 1 || a->stride == stride)) return a;
    }
    const char *name = arena_printf(g->arena, stride == 1 ? "%d ranks" : "%d ranks %d apart", n, stride);
    return new_axis(g, name, n, stride);
}

const Axis *mesh_axis_named(Graph *g, const char *name) {
    for (int i = 0; i < SC_NAMED_AXES; i++)
        if (!strcmp(name, names[i])) return g->axes.at[i];
    if (strcmp(name, "expert")) return NULL;
    return g->expert ? g->expert : mesh_axis(g, 1, 1);
}

int mesh_group(const Graph *g, const Axis *axis) {
    for (int i = 0; i < g->comms.n; i++)
        if (g->comms.at[i].axis == axis && !g->comms.at[i].chain) return i;
    bug(g->root->made, "axis %s has no group", axis->name);
}

int mesh_exchange(Graph *g, const Axis *axis) {
    int last = 0;
    for (int i = 0; i < g->comms.n; i++) {
        const Comm *c = &g->comms.at[i];
        if (c->chain && c->axis->size == axis->size && c->axis->stride == axis->stride) return i;
        if (c->chain > last) last = c->chain;
    }
    push(&g->comms, g->arena, ((Comm){arena_printf(g->arena, "exchange over %s", axis->name), axis, last + 1}));
    return g->comms.n - 1;
}
