/* units: who is gathered together, and which groups of ranks talk. Turns nn.fully_shard's policies into units, each in
 * parts of one stored dtype, and gives every parameter its part. Relies on: ir.h; the front end's Param.owner (the
 * lowest common ancestor of a shared parameter's holders) and its check of each mesh against the world. Relied on by:
 * precision (dtypes), autodiff (reduce dtype), shard (flat layout), order (groups). */
#include "../ir/policy.h"
#include "../ir/training.h"
#include "lower.h"

/* What nn.fully_shard never saw, as PyTorch leaves it: whole on every rank, trained as in DDP, without casts. */
static UnitPolicy *plain_policy(Graph *g) {
    UnitPolicy *p = NEW(g->arena, UnitPolicy);
    *p = (UnitPolicy){.src = g->root->made,
                      .shard = 1,
                      .cast_forward_inputs = true,
                      .prefetch_forward = 1,
                      .prefetch_backward = 1,
                      .unshard_in_backward = true};
    return p;
}

/* Trainable parameters that sharding ignores: whole on every rank, as stored, trained as in DDP. */
static UnitPolicy *ignored_policy(Graph *g, const UnitPolicy *of) {
    UnitPolicy *p = plain_policy(g);
    p->src = of->src;
    return p;
}

/* ── groups of ranks ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int comm_of(Graph *g, int n, int step) {
    for (int i = 0; i < g->comms.n; i++)
        if (g->comms.at[i].n == n && (n == 1 || g->comms.at[i].step == step)) return i;
    Comm c = {arena_printf(g->arena, step == 1 ? "%d ranks" : "%d ranks %d apart", n, step), n, step};
    push(&g->comms, g->arena, c);
    return g->comms.n - 1;
}

static void groups(Graph *g) {
    const Unit *first = g->units.at[0];
    Comm three[] = {{"shard", first->shards, 1}, {"replicate", first->replicas, first->shards}, {"world", g->world, 1}};
    for (int i = 0; i < 3; i++) push(&g->comms, g->arena, three[i]);
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        u->comm_shard = comm_of(g, u->shards, 1);
        u->comm_replicate = comm_of(g, u->replicas, u->shards);
        u->comm_reshard = u->reshard ? comm_of(g, u->reshard, 1) : u->comm_shard;
    }
}

/* ── units ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void mesh(const Graph *g, Unit *u) {
    const UnitPolicy *p = u->policy;
    u->shards = p->shard ? p->shard : p->replicate ? g->world / p->replicate : g->world;
    u->replicas = p->replicate ? p->replicate : u->shards ? g->world / u->shards : 1;
    if (u->shards < 1 || u->replicas < 1 || u->shards * u->replicas != g->world)
        bug(p->src, "a mesh of replicate %d x shard %d at world %d", p->replicate, p->shard, g->world);
    u->reshard = p->reshard_after_forward > 1 && p->reshard_after_forward < u->shards ? p->reshard_after_forward : 0;
}

static Unit *new_unit(Graph *g, Module *m, UnitPolicy *policy, const char *suffix) {
    Unit *u = NEW(g->arena, Unit);
    u->id = g->units.n;
    u->name = arena_printf(g->arena, "%s%s", m->path[0] ? m->path : "(root)", suffix);
    u->module = m;
    u->policy = policy;
    mesh(g, u);
    push(&g->units, g->arena, u);
    return u;
}

static Unit *unit_of(Module *m) {
    while (!m->unit) m = m->parent;
    return m->unit;
}

/* A flat buffer has one dtype, and one way to be reduced: rows of a sparse parameter are no part of any other's. */
static bool takes(const Unit *u, const Param *p) {
    if (u->sparse || p->sparse) return false;
    return u->ignored == p->ignored && (!u->params.n || u->params.at[0]->dtype == p->dtype);
}

static Unit *part_for(Graph *g, const Param *p) {
    Unit *u = unit_of(p->owner);
    for (;; u = u->next) {
        if (takes(u, p)) return u;
        if (!u->next) break;
    }
    const char *ignored = p->ignored ? " ignored" : "";
    UnitPolicy *policy = p->ignored ? ignored_policy(g, u->policy) : u->policy;
    bool differs = false; /* from the part before it of its kind, by dtype */
    for (const Unit *x = unit_of(p->owner); x; x = x->next) differs |= x->ignored == p->ignored;
    const char *dtype = p->sparse ? arena_printf(g->arena, " sparse %s", p->path)
                        : differs ? arena_printf(g->arena, " %s", dtype_name(p->dtype))
                                  : "";
    u->next = new_unit(g, u->module, policy, arena_printf(g->arena, "%s%s", ignored, dtype));
    u->next->ignored = p->ignored;
    u->next->sparse = p->sparse;
    return u->next;
}

static void assign_params(Graph *g) {
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        p->sparse &= p->requires_grad; /* a frozen table has no gradient to exchange */
        p->unit = p->is_buffer ? unit_of(p->owner) : part_for(g, p);
        if (!p->is_buffer) push(&p->unit->params, g->arena, p);
    }
}

/* Pieces of shards are widened as they are added up, and so is what was reduced by the sum over microbatches and by the
 * update. What is summed otherwise is made in the dtype of the sum: whole gradients that wait for the last microbatch,
 * those of replicas that are not sharded, rows of a sparse table. */
static bool takes_grad_dtype(const Graph *g, const Unit *u) {
    bool waits = g->training->accumulate > 1 && u->policy->defer_sync, replicated = u->shards == 1 && u->replicas > 1;
    return u->policy->has_grad_dtype && !waits && !replicated && !u->sparse;
}

/* As in PyTorch (2.15; before, reductions followed param_dtype): what is not said follows the stored dtype. */
static void dtypes(const Graph *g, Unit *u) {
    u->dtype = u->params.n ? u->params.at[0]->dtype : FP32;
    u->wire = u->policy->has_param_dtype ? u->policy->param_dtype : u->dtype;
    u->reduce = u->policy->has_reduce_dtype ? u->policy->reduce_dtype : u->dtype;
    u->grad_dtype = takes_grad_dtype(g, u) ? u->policy->grad_dtype : u->reduce;
}

void lower_units(Graph *g) {
    for (int i = 0; i < g->modules.n; i++) {
        Module *m = g->modules.at[i];
        if (m->policy) m->unit = new_unit(g, m, m->policy, "");
    }
    if (!g->root->unit) g->root->unit = new_unit(g, g->root, plain_policy(g), "");
    assign_params(g);
    groups(g);
    for (int i = 0; i < g->units.n; i++) dtypes(g, g->units.at[i]);
}
