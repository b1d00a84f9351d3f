/* Axes and groups of a graph's ranks.
 * Relies on: mesh.h, policy.h.
 * Relied on by: the front end, units. */
#include "mesh.h"
#include "policy.h"

static const char *const axes[] = {"shard", "replicate", "world"};
enum { N_AXES = sizeof axes / sizeof *axes };

void mesh_of_policy(const UnitPolicy *p, int world, int *shards, int *replicas) {
    *shards = p && p->shard ? p->shard : p && p->replicate ? world / p->replicate : world;
    *replicas = p && p->replicate ? p->replicate : *shards ? world / *shards : 1;
}

void mesh_begin(Graph *g) {
    const UnitPolicy *first = NULL;
    int shards, replicas;
    for (int i = 0; i < g->modules.n && !first; i++) first = g->modules.at[i]->policy;
    mesh_of_policy(first, g->world, &shards, &replicas);
    Comm named[] = {{axes[COMM_SHARD], shards, 1, 0},
                    {axes[COMM_REPLICATE], replicas, shards, 0},
                    {axes[COMM_WORLD], g->world, 1, 0}};
    for (int i = 0; i < N_AXES; i++) push(&g->comms, g->arena, named[i]);
}

int mesh_group(Graph *g, int n, int step) {
    for (int i = 0; i < g->comms.n; i++) {
        const Comm *c = &g->comms.at[i];
        if (!c->chain && c->n == n && (n == 1 || c->step == step)) return i;
    }
    Comm c = {arena_printf(g->arena, step == 1 ? "%d ranks" : "%d ranks %d apart", n, step), n, step, 0};
    push(&g->comms, g->arena, c);
    return g->comms.n - 1;
}

int mesh_exchange(Graph *g, int axis) {
    const Comm *along = &g->comms.at[axis];
    int last = 0;
    for (int i = 0; i < g->comms.n; i++) {
        const Comm *c = &g->comms.at[i];
        if (c->chain && c->n == along->n && c->step == along->step) return i;
        if (c->chain > last) last = c->chain;
    }
    Comm c = {arena_printf(g->arena, "exchange over %s", along->name), along->n, along->step, last + 1};
    push(&g->comms, g->arena, c);
    return g->comms.n - 1;
}

int mesh_axis(const char *name) {
    for (int i = 0; i < N_AXES; i++)
        if (!strcmp(name, axes[i])) return i;
    return -1;
}
