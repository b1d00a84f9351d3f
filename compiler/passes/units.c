/* units: who is gathered together. Turns nn.fully_shard's policies into units and gives every parameter its unit.
 * Relies on: ir.h; the front end's Param.owner (the lowest common ancestor of a shared parameter's holders).
 * Relied on by: precision (dtypes), autodiff (reduce dtype), shard (flat layout). */
#include "passes.h"

/* A model without any nn.fully_shard is replicated, as DDP would do. */
static UnitPolicy *default_policy(Graph *g) {
    UnitPolicy *p = NEW(g->arena, UnitPolicy);
    *p = (UnitPolicy){.src = {g->file, 0},
                      .shard = 1,
                      .cast_forward_inputs = true,
                      .prefetch_forward = 1,
                      .prefetch_backward = 1,
                      .unshard_in_backward = true};
    return p;
}

static void mesh(const Graph *g, Unit *u) {
    const UnitPolicy *p = u->policy;
    u->shards = p->shard ? p->shard : p->replicate ? g->world / p->replicate : g->world;
    u->replicas = p->replicate ? p->replicate : u->shards ? g->world / u->shards : 1;
    if (u->shards < 1 || u->replicas < 1 || u->shards * u->replicas != g->world)
        bug(p->src, "a mesh of replicate %d x shard %d at world %d", p->replicate, p->shard, g->world);
}

static Unit *new_unit(Graph *g, Module *m, UnitPolicy *policy) {
    Unit *u = NEW(g->arena, Unit);
    u->id = g->units.n;
    u->module = m;
    u->policy = policy;
    mesh(g, u);
    if (policy->reshard_after_forward > 1)
        fail(policy->src,
             "nn.fully_shard: reshard_after_forward = %d (reshard to a group) is not available in this version; write true "
             "(to all shards) or false",
             policy->reshard_after_forward);
    push(&g->units, g->arena, u);
    m->unit = u;
    return u;
}

static Unit *unit_of(Module *m) {
    while (!m->unit) m = m->parent;
    return m->unit;
}

static const char *unit_name(const Unit *u) {
    return u->module->path[0] ? u->module->path : "(root)";
}

static bool same_dtype_or_fail(Unit *u, const Param *p) {
    const Param *first = u->params.n ? u->params.at[0] : p;
    if (p->dtype == first->dtype) return true;
    fail(p->src, "unit %s: parameter %s is %s but %s is %s; the parameters of one unit have one dtype: wrap one of the two "
                 "modules in nn.fully_shard of its own",
         unit_name(u), p->path, dtype_name(p->dtype), first->path,
         dtype_name(first->dtype));
}

void units(Graph *g) {
    for (int i = 0; i < g->modules.n; i++)
        if (g->modules.at[i]->policy) new_unit(g, g->modules.at[i], g->modules.at[i]->policy);
    if (!g->root->unit) new_unit(g, g->root, g->units.n ? g->units.at[0]->policy : default_policy(g));
    for (int i = 0; i < g->units.n; i++)
        if (g->units.at[i]->shards != g->units.at[0]->shards)
            fail(g->units.at[i]->policy->src,
                 "nn.fully_shard: unit %s shards over %d ranks, unit %s over %d; this version takes one mesh for all units",
                 unit_name(g->units.at[i]), g->units.at[i]->shards, unit_name(g->units.at[0]),
                 g->units.at[0]->shards);
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        p->unit = unit_of(p->owner);
        if (p->is_buffer) continue;
        same_dtype_or_fail(p->unit, p);
        push(&p->unit->params, g->arena, p);
    }
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        u->dtype = u->params.n ? u->params.at[0]->dtype : FP32;
        u->wire = u->policy->has_param_dtype ? u->policy->param_dtype : u->dtype;
        u->reduce = u->policy->has_reduce_dtype ? u->policy->reduce_dtype : u->wire;
    }
}
