/* Policies that speak of each other: prefetch lists find their units, and units that share a parameter must agree on
 * where it lies and how it is cast. A message names both lines. Relies on: policy.c (what was read), the training
 * trace. Relied on by: training.c. */
#include "../ir/foreign.h"
#include "../ir/mesh.h"
#include "fe.h"

static const char *name_of(const Module *m) {
    return m->path[0] ? m->path : "the model";
}

/* ── prefetch lists ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Module *listed(const Frontend *f, const Prefetch *x) {
    VEC(const char *) paths = {0};
    if (x->module && !x->module->ir)
        fail(x->src, "prefetch: %s, made at %s:%d, is not part of the model: assign it to a field of a module",
             x->module->made_by, x->module->made.file, x->module->made.line);
    if (x->module) return x->module->ir;
    for (int i = 0; i < f->g->modules.n; i++) {
        Module *m = f->g->modules.at[i];
        push(&paths, f->arena, m->path);
        if (!strcmp(m->path, x->path)) return m;
    }
    fail(x->src, "prefetch: there is no module '%s'%s", x->path, field_nearest(f->arena, x->path, paths.at, paths.n));
}

/* Positions in the trace of the first and the last op of m or of what it holds; -1: none. */
static void span_of(const Program *p, const Module *m, int *first, int *last) {
    *first = *last = -1;
    for (int i = 0; i < p->ops.n; i++) {
        if (!module_within(p->ops.at[i]->module, m)) continue;
        if (*first < 0) *first = i;
        *last = i;
    }
}

static void check_order(const Frontend *f, const Prefetch *x, const Module *unit, const Module *target) {
    int first, last, target_first, target_last;
    span_of(f->g->train, unit, &first, &last);
    span_of(f->g->train, target, &target_first, &target_last);
    bool good = x->backward ? target_first >= 0 && target_first < last : target_last > first;
    if (good && first >= 0) return;
    fail(x->src, "prefetch: the %s of %s (nn.fully_shard at %s:%d) cannot gather %s ahead: it is not used after it",
         x->backward ? "backward" : "forward", name_of(unit), unit->policy->src.file, unit->policy->src.line,
         name_of(target));
}

static void prefetches(Frontend *f) {
    for (int i = 0; i < f->prefetches.n; i++) {
        const Prefetch *x = &f->prefetches.at[i];
        for (int k = 0; k < f->g->modules.n; k++) {
            const Module *unit = f->g->modules.at[k];
            if (unit->policy != x->policy) continue;
            Module *target = listed(f, x);
            if (!target->policy)
                fail(x->src, "prefetch: %s, made at %s:%d, is no unit: nn.fully_shard makes one of it", name_of(target),
                     target->made.file, target->made.line);
            if (target == unit)
                fail(x->src, "prefetch: %s lists itself; list the units that come after it", name_of(unit));
            check_order(f, x, unit, target);
            PrefetchList *list = x->backward ? &x->policy->backward_list : &x->policy->forward_list;
            Module **old = list->at;
            list->at = NEW_ARRAY(f->arena, Module *, list->n + 1);
            if (list->n) memcpy(list->at, old, sizeof *old * (size_t)list->n);
            list->at[list->n++] = target;
        }
    }
}

/* ── parameters shared by units ───────────────────────────────────────────────────────────────────────────────────────
 */
/* A parameter that several units hold is gathered once, and so by one extension. */
static void shared_extensions(const Frontend *f) {
    for (int i = 0; i < f->params.n; i++) {
        const ParamInfo *p = f->params.at[i];
        const UnitPolicy *first = p->holders.n ? module_unit(p->holders.at[0].module)->policy : NULL;
        for (int k = 1; k < p->holders.n; k++) {
            const UnitPolicy *other = module_unit(p->holders.at[k].module)->policy;
            const Extension *a = first ? first->all_gather : NULL, *b = other ? other->all_gather : NULL;
            if (a == b) continue;
            const UnitPolicy *with = a ? first : other, *beside = a ? other : first;
            Source at = beside ? beside->src : f->training_at;
            fail(policy_source(f, with, "all_gather"),
                 "all_gather: %s is shared with the unit of %s:%d (there it is %s), which gathers %s; a shared "
                 "parameter is gathered once: give both units the same extension, or none",
                 p->holders.at[0].path, at.file, at.line, p->holders.at[k].path,
                 a && b ? "by another extension" : "without one");
        }
    }
}

/* What the two say otherwise of the parameter, or NULL. A module that nn.fully_shard never saw says nothing of meshes
 * and dtypes, and leaves all on the device. */
static const char *difference(const Frontend *f, const UnitPolicy *a, const UnitPolicy *b) {
    static const UnitPolicy none;
    const UnitPolicy *x = a ? a : &none, *y = b ? b : &none;
    if (x->offload_params != y->offload_params) return "offload.params";
    if (x->offload_grads != y->offload_grads) return "offload.grads";
    if (x->offload_optimizer != y->offload_optimizer) return "offload.optimizer";
    if (!a || !b) return NULL;
    int world = f->options->world;
    if (mesh_sizes(a, world).shards != mesh_sizes(b, world).shards || a->expert != b->expert) return "mesh";
    if (a->has_param_dtype != b->has_param_dtype || (a->has_param_dtype && a->param_dtype != b->param_dtype))
        return "mp_policy.param_dtype";
    if (a->has_grad_dtype != b->has_grad_dtype || (a->has_grad_dtype && a->grad_dtype != b->grad_dtype))
        return "mp_policy.grad_dtype";
    if (a->has_reduce_dtype != b->has_reduce_dtype || (a->has_reduce_dtype && a->reduce_dtype != b->reduce_dtype))
        return "mp_policy.reduce_dtype";
    return a->gradient_divide_factor != b->gradient_divide_factor ? "gradient_divide_factor" : NULL;
}

/* Where m's options say `key`, or the table round it: "mp_policy.param_dtype". */
static Source line_of(const Frontend *f, const Module *m, const char *key) {
    const char *dot = strchr(key, '.');
    if (!m->policy) return m->made;
    if (!dot) return policy_source(f, m->policy, key);
    bool said = setting_source(&m->policy->settings, dot + 1, NOWHERE).file != NULL;
    return policy_source(f, m->policy, said ? dot + 1 : arena_printf(f->arena, "%.*s", (int)(dot - key), key));
}

/* The module that the parameter belongs to holds both, and must agree with them. */
static void agree(const Frontend *f, const Param *p, const Module *a, const Module *b, const Module *own) {
    const char *what = difference(f, a->policy, b->policy);
    if (!what) return;
    Source at = line_of(f, a, what), other = line_of(f, b, what);
    fail(at,
         "nn.fully_shard: parameter %s is shared by %s and %s%s, whose %s differ (%s:%d and %s:%d); it lies in one "
         "place and is gathered once: say the same in both%s",
         p->path, name_of(a), name_of(b), b == own ? ", to which it belongs since it holds both" : "", what, at.file,
         at.line, other.file, other.line,
         a == own || b == own ? "" : arena_printf(f->arena, ", and in %s, to which it belongs", name_of(own)));
}

static bool ignores(const UnitPolicy *p, const char *path) {
    const UnitOptions *o = policy_unit_options(p);
    for (int i = 0; o && i < o->nignored; i++)
        if (policy_path_match(o->ignored[i], path, true)) return true;
    return false;
}

static void agree_to_ignore(const Frontend *f, const Param *p, const Module *a, const Module *own) {
    if (ignores(a->policy, p->path) == ignores(own->policy, p->path)) return;
    const Module *by = ignores(a->policy, p->path) ? a : own, *other = by == a ? own : a;
    Source there = line_of(f, other, "ignored_params");
    fail(line_of(f, by, "ignored_params"),
         "ignored_params: parameter %s is shared: %s ignores it, %s at %s:%d does not; say the same in both", p->path,
         name_of(by), name_of(other), there.file, there.line);
}

static void shared_parameters(const Frontend *f) {
    for (int i = 0; i < f->params.n; i++) {
        const ParamInfo *info = f->params.at[i];
        if (info->param.is_buffer || info->holders.n < 2) continue;
        const Module *first = module_unit(info->holders.at[0].module), *own = module_unit(info->param.owner);
        bool several = false;
        for (int k = 1; k < info->holders.n; k++) {
            const Module *other = module_unit(info->holders.at[k].module);
            if (other == first) continue;
            several = true;
            agree_to_ignore(f, &info->param, first, other);
            agree(f, &info->param, first, other, own);
        }
        if (several) agree_to_ignore(f, &info->param, first, own);
        if (several) agree(f, &info->param, first, own, own);
    }
}

/* ── sparse tables ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void sparse_tables(const Frontend *f) {
    for (int i = 0; i < f->g->params.n; i++) {
        const Param *p = f->g->params.at[i];
        const UnitPolicy *policy = module_unit(p->owner)->policy;
        const Op *lookup = NULL;
        if (!p->sparse || !p->requires_grad) continue;
        for (int k = 0; k < f->g->train->ops.n; k++) {
            const Op *op = f->g->train->ops.at[k];
            bool reads = false;
            for (int j = 0; j < op->nin; j++) reads |= op->in[j] && value_root(op->in[j])->param == p;
            if (!reads) continue;
            if (lookup || !op_is(op, T_LOOKUP)) /* any use beside one lookup has a gradient for every element */
                fail(p->src,
                     "nn.Embedding: sparse = true, but %s is read by %s at %s:%d%s; the gradient of a sparse table is "
                     "the rows of one lookup: leave sparse out, or give the two a weight each",
                     p->path, op_info[op->kind].name, op->src.file, op->src.line,
                     lookup ? arena_printf(f->arena, " besides the lookup at %s:%d", lookup->src.file, lookup->src.line)
                            : "");
            lookup = op;
        }
        if (!policy || !(policy->defer_sync || policy->defer_all_reduce)) continue;
        const char *key = policy->defer_sync ? "requires_gradient_sync" : "requires_all_reduce";
        Source at = policy_source(f, policy, key);
        fail(p->src,
             "nn.Embedding: sparse = true exchanges the rows of %s in every microbatch, but %s:%d says %s = false; "
             "leave one of the two out",
             p->path, at.file, at.line, key);
    }
}

void conflicts_check(Frontend *f) {
    shared_extensions(f);
    prefetches(f);
    shared_parameters(f);
    sparse_tables(f);
}
