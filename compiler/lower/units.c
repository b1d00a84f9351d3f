/* units: turns nn.fully_shard's policies into units, each in parts of one stored dtype and along axes of the mesh, and
 * gives every parameter its part. Relies on: ir.h; the front end's Param.owner (the lowest common
 * ancestor of a shared parameter's holders) and its check of each mesh against the world. Relied on by: precision
 * (dtypes), autodiff (reduce dtype), shard (flat layout), order (groups). */
#include "../ir/mesh.h"
#include "../ir/policy.h"
#include "../ir/training.h"
#include "lower.h"

/* The policy of a unit that nn.fully_shard never saw, as PyTorch leaves it: whole on every rank, trained as in DDP,
 * without casts. So are trainable parameters that ignored_params names. */
static UnitPolicy *plain_policy(Graph *g, Source src) {
    UnitPolicy *p = NEW(g->arena, UnitPolicy);
    *p = (UnitPolicy){.src = src,
                      .shard = 1,
                      .cast_forward_inputs = true,
                      .prefetch_forward = 1,
                      .prefetch_backward = 1,
                      .unshard_in_backward = true};
    return p;
}

/* Where the unit's flat buffers lie: those of experts, spread over `split` ranks, are shared out among the other ranks
 * that shard. */
static void set_mesh(Graph *g, Unit *u, int split) {
    const UnitPolicy *p = u->policy;
    MeshSizes mesh = mesh_sizes(p, g->world);
    if (mesh.shards < 1 || mesh.replicas < 1 || mesh.shards * mesh.replicas != g->world || mesh.shards % split)
        bug(p->src, "a mesh of replicate %d x shard %d at world %d, %d of them for experts", p->replicate, p->shard,
            g->world, split);
    int shards = mesh.shards / split;
    u->expert = split > 1 ? g->expert : NULL;
    u->shard = mesh_axis(g, shards, split);
    u->parts = mesh_axis(g, mesh.shards, 1);
    u->replicate = mesh_axis(g, mesh.replicas, mesh.shards);
    bool groups = p->reshard_after_forward > 1 && p->reshard_after_forward < shards;
    u->reshard = groups ? mesh_axis(g, p->reshard_after_forward, split) : NULL;
}

static Unit *new_unit(Graph *g, Module *m, UnitPolicy *p, const char *suffix) {
    Unit *u = NEW(g->arena, Unit);
    u->id = g->units.n;
    u->name = arena_printf(g->arena, "%s%s", m->path[0] ? m->path : "(root)", suffix);
    u->module = m;
    u->policy = p;
    set_mesh(g, u, 1);
    push(&g->units, g->arena, u);
    return u;
}

static Unit *unit_of(Module *m) {
    while (!m->unit) m = m->parent;
    return m->unit;
}

/* The part of its unit that p belongs to; made where there is none yet. A part is one flat buffer: it has one dtype,
 * one optimizer, which keeps the same moments of all of it, and one way to be reduced. A sparse parameter, whose
 * gradient is reduced by rows, is a part of its own; so are experts that a mesh spreads over ranks. */
static Unit *part_for(Graph *g, const Param *p) {
    const Optimizer *o = p->requires_grad && g->training->optimizer ? training_optimizer(g->training, p) : NULL;
    Unit *first = unit_of(p->owner), *last = first, *alike = NULL; /* alike: the first part of its kind */
    for (Unit *u = first; u; last = u, u = u->next) {
        if (!u->params.n && !u->next) set_mesh(g, u, p->split);
        if (u->ignored != p->ignored || !u->expert != (p->split == 1)) continue;
        if (!alike) alike = u;
        bool same_optimizer = !o || !u->optimizer || u->optimizer == o;
        if (u->sparse || p->sparse || !same_optimizer || (u->params.n && u->params.at[0]->dtype != p->dtype)) continue;
        if (o) u->optimizer = o;
        return u;
    }
    bool other = alike && o && alike->optimizer && alike->optimizer != o;
    const char *by = p->sparse ? arena_printf(g->arena, " sparse %s", p->path)
                     : other   ? arena_printf(g->arena, " %s", o->name)
                               : "";
    bool wide = alike && !p->sparse && !(other && alike->params.n && alike->params.at[0]->dtype == p->dtype);
    if (wide) by = arena_printf(g->arena, "%s %s", by, dtype_name(p->dtype));
    UnitPolicy *policy = p->ignored ? plain_policy(g, first->policy->src) : first->policy;
    const char *suffix =
        arena_printf(g->arena, "%s%s%s", p->ignored ? " ignored" : "", p->split > 1 ? " experts" : "", by);
    Unit *part = last->next = new_unit(g, first->module, policy, suffix);
    set_mesh(g, part, p->split);
    part->ignored = p->ignored;
    part->sparse = p->sparse;
    part->optimizer = o;
    return part;
}

Unit *lower_part_of(Graph *g, Unit *u, const char *suffix) {
    Unit *part = NEW(g->arena, Unit);
    *part = *u;
    memset(&part->params, 0, sizeof part->params);
    part->id = g->units.n;
    part->name = arena_printf(g->arena, "%s%s", u->name, suffix);
    u->next = part;
    push(&g->units, g->arena, part);
    return part;
}

static Dtype wider(Dtype a, Dtype b) {
    return dtype_size(a) < dtype_size(b) ? b : a;
}

/* As in PyTorch (2.15; before, reductions followed param_dtype): what is not said follows the stored dtype. */
static void set_dtypes(const Graph *g, Unit *u) {
    const UnitPolicy *p = u->policy;
    u->dtype = u->params.n ? u->params.at[0]->dtype : FP32;
    u->wire = p->has_param_dtype && dtype_float(u->dtype) ? p->param_dtype : u->dtype; /* int8 travels as it is */
    u->computes = u->wire;
    u->reduce = p->has_reduce_dtype ? p->reduce_dtype : u->dtype;
    /* grad_dtype holds where the sum widens what it reads: where ranks add up pieces, or an update or the sum over
     * microbatches reads a reduced gradient. Other sums have the dtype of what they add, so there a gradient is made
     * in the dtype of the sum: whole gradients that wait for the last microbatch, replicas that are not sharded, and
     * rows of a sparse table. */
    bool waits = g->training->accumulate > 1 && p->defer_sync,
         replicated = u->shard->size == 1 && u->replicate->size > 1;
    u->grad_dtype = p->has_grad_dtype && !waits && !replicated && !u->sparse ? p->grad_dtype : u->reduce;
    /* Many equal gradients added up in 16 bits stand still: in bf16 256 + 1 is 256. So microbatches are summed in fp32
     * at least, whatever ranks exchange. A policy that names a 16-bit dtype for both, what gradients are made in and
     * what they are reduced in, asks for sums of that dtype, as FSDP2 adds them up. */
    bool deferred = p->defer_sync || (p->defer_all_reduce && u->replicate->size > 1);
    Dtype as_reduced = deferred ? u->reduce : wider(u->reduce, u->dtype);
    u->sum = p->has_grad_dtype && p->grad_dtype == u->reduce ? as_reduced : wider(as_reduced, FP32);
}

void lower_units(Graph *g) {
    if (!g->axes.n) mesh_begin(g);
    for (int i = 0; i < g->modules.n; i++) {
        Module *m = g->modules.at[i];
        if (m->policy) m->unit = new_unit(g, m, m->policy, "");
    }
    if (!g->root->unit) g->root->unit = new_unit(g, g->root, plain_policy(g, g->root->made), "");
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        p->sparse &= p->requires_grad; /* a frozen table has no gradient to exchange */
        p->unit = p->is_buffer ? unit_of(p->owner) : part_for(g, p);
        if (!p->is_buffer) push(&p->unit->params, g->arena, p);
    }
    for (int i = 0; i < g->units.n; i++) set_dtypes(g, g->units.at[i]);
}
