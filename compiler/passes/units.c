/* units: who is gathered together. Turns nn.fully_shard's policies into units and gives every parameter its unit.
 * Relies on: ir.h; the front end's Param.owner (the lowest common ancestor of a shared parameter's holders) and its
 * check of each mesh against the world.
 * Relied on by: precision (dtypes), autodiff (reduce dtype), shard (flat layout). */
#include "passes.h"

/* What nn.fully_shard never saw: no casts, no offload, and it stays gathered. Without any unit beside it that is DDP;
 * else the mesh is the others', because a step has one. */
static UnitPolicy *plain_policy(Graph *g) {
    const UnitPolicy *like = g->units.n ? g->units.at[0]->policy : &(UnitPolicy){.shard = 1};
    UnitPolicy *p = NEW(g->arena, UnitPolicy);
    *p = (UnitPolicy){.src = g->root->made,
                      .replicate = like->replicate,
                      .shard = like->shard,
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

static void new_unit(Graph *g, Module *m, UnitPolicy *policy) {
    Unit *u = NEW(g->arena, Unit);
    u->id = g->units.n;
    u->module = m;
    u->policy = policy;
    mesh(g, u);
    push(&g->units, g->arena, u);
    m->unit = u;
}

static Unit *unit_of(Module *m) {
    while (!m->unit) m = m->parent;
    return m->unit;
}

static const char *unit_name(const Unit *u) {
    return u->module->path[0] ? u->module->path : "(root)";
}

static void need_one_mesh(const Unit *u, const Unit *first) {
    if (u->shards == first->shards) return;
    fail(u->policy->src,
         "nn.fully_shard: unit %s shards over %d ranks, unit %s over %d; this version takes one mesh for all units",
         unit_name(u), u->shards, unit_name(first), first->shards);
}

static void need_one_dtype(const Unit *u, const Param *p) {
    const Param *first = u->params.n ? u->params.at[0] : p;
    if (p->dtype == first->dtype) return;
    fail(p->src,
         "unit %s: parameter %s is %s but %s is %s; the parameters of one unit have one dtype: give both the same, or "
         "wrap the module of one of the two in nn.fully_shard of its own",
         unit_name(u), p->path, dtype_name(p->dtype), first->path, dtype_name(first->dtype));
}

static void assign_params(Graph *g) {
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        p->unit = unit_of(p->owner);
        if (p->is_buffer) continue;
        need_one_dtype(p->unit, p);
        push(&p->unit->params, g->arena, p);
    }
}

/* As in PyTorch: what is not said follows the stored dtype, and gradients follow the parameters in use. */
static void dtypes(Unit *u) {
    u->dtype = u->params.n ? u->params.at[0]->dtype : FP32;
    u->wire = u->policy->has_param_dtype ? u->policy->param_dtype : u->dtype;
    u->reduce = u->policy->has_reduce_dtype ? u->policy->reduce_dtype : u->wire;
}

void units(Graph *g) {
    for (int i = 0; i < g->modules.n; i++)
        if (g->modules.at[i]->policy) new_unit(g, g->modules.at[i], g->modules.at[i]->policy);
    if (!g->root->unit) new_unit(g, g->root, plain_policy(g));
    for (int i = 0; i < g->units.n; i++) need_one_mesh(g->units.at[i], g->units.at[0]);
    assign_params(g);
    for (int i = 0; i < g->units.n; i++) dtypes(g->units.at[i]);
}
