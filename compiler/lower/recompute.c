/* Recompute: in checkpointed modules, values of the forward that the backward needs are not kept. Clones of their ops
 * compute them a second time, in the backward. Also marks which kept values are offloaded. Relies on: the front end
 * (Op.checkpoint, Op.region: one call of a checkpointed module), fuse (groups are cloned whole: same kernel, same
 * bits), remove_dead. Relied on by: shard (clones read parameters: gathers in the backward), offload (Value.offload).
 */
#include "../ir/patterns.h"
#include "../ir/policy.h"
#include "edit.h"
#include "lower.h"
#include "lowering.h"

#include <strings.h>

/* ── names in `save` and `offload` ──────────────────────────────────────────────────────────────────────────────── */
/* "mlp.up_proj": that submodule's path below the checkpointed module; "self_attn.q_proj" too where products were fused
 * into q_proj+k_proj+v_proj. "self_attn:rope", ":add": only its ops of that name, the second of the module itself. */
static bool names_path(const char *name, OpKind kind, const Module *m, const Module *checkpointed) {
    if (!m || !checkpointed || !module_within(m, checkpointed)) return false;
    size_t length = strcspn(name, ":"), top = strlen(checkpointed->path);
    const char *path = m->path + top + (top && m->path[top] == '.'), *last = strrchr(path, '.');
    size_t folder = last ? (size_t)(last + 1 - path) : 0;
    if (name[length] ? strcmp(name + length + 1, op_info[kind].name) : !length) return false;
    if (strlen(path) == length && !strncmp(path, name, length)) return true;
    if (length <= folder || strncmp(path, name, folder)) return false;
    for (const char *part = path + folder; part; part = strchr(part, '+')) {
        part += *part == '+';
        if (strcspn(part, "+") == length - folder && !strncmp(part, name + folder, length - folder)) return true;
    }
    return false;
}

/* Whether some module that the checkpoint is set on has a submodule of that path; of "path:op" also an op of the name.
 */
static bool known_path(const Graph *g, const Checkpoint *c, const char *name) {
    const char *colon = strchr(name, ':');
    OpKind kind = colon ? op_by_name(colon + 1) : (OpKind)0;
    for (int i = 0; i < g->modules.n && kind != N_OPS; i++)
        for (const Module *m = g->modules.at[i]; m; m = m->parent)
            if (m->checkpoint == c && names_path(name, kind, g->modules.at[i], m)) return true;
    return false;
}

static void check_names(const Graph *g, const Checkpoint *c) {
    for (int i = 0; i < c->nsave + c->noffload; i++) {
        bool saves = i < c->nsave;
        const char *name = saves ? c->save[i] : c->offload[i - c->nsave], *key = saves ? "save" : "offload";
        bool known = !strcmp(name, "*") || !strcmp(name, "input") || op_by_name(name) != N_OPS;
        for (int m = 0; m < g->modules.n && !known; m++)
            known = g->modules.at[m]->kind && !strcasecmp(name, g->modules.at[m]->kind);
        if (known || known_path(g, c, name)) continue;
        const char *candidates[N_OPS + 1];
        for (int k = 0; k < N_OPS; k++) candidates[k] = op_info[k].name;
        candidates[N_OPS] = "input";
        const char *near = str_nearest(name, candidates, N_OPS + 1);
        fail(setting_source(&c->settings, key, c->src),
             "nn.checkpoint: %s = { \"%s\" }: neither an op, nor a kind of module, nor a submodule here; %s%s%s", key,
             name,
             near ? "did you mean \""
                  : "write an op's name (\"attention\", \"matmul\"), a module's kind (\"linear\"), a submodule's path "
                    "(\"mlp.up_proj\"), one's op (\"self_attn:rope\"), \"input\" or \"*\"",
             near ? near : "", near ? "\"?" : "");
    }
}

typedef struct {
    Graph *g;
    Program *p;
    const bool *written; /* by Value.id: states that an op writes */
    bool *offload;       /* by Value.id: named in an `offload` list */
    bool *needed;        /* by Value.id: computed again */
    Groups *groups;
    Value **twin; /* by Value.id: the clone's result in its place */
    int nvalues;  /* ids below are of values that were there before this pass: only these have twins */
} Recompute;

/* v comes from outside of the call that op was traced in; what a checkpointed call within it made does not. */
static bool enters_call(const Op *op, const Value *v) {
    const Module *own = op->module;
    while (own && own->checkpoint != op->checkpoint) own = own->parent;
    bool inner = own && v->def->checkpoint != op->checkpoint && module_within(v->def->module, own);
    return v->def->region != op->region && !inner;
}

/* Does a list of `save` or `offload` name a result by an op of this kind? module: whose op it is; of_second: it is
 * of the second of a separable op, made where the first was called, and no result of the module. checkpointed: where
 * paths begin. */
static bool names(const char *const *list, int n, OpKind kind, const Module *module, bool of_second,
                  const Module *checkpointed) {
    if (of_second && module) module = module->parent;
    for (int i = 0; i < n; i++) {
        if (names_path(list[i], kind, module, checkpointed)) return true;
        if (!strcmp(list[i], "*") || !strcmp(list[i], op_info[kind].name)) return true; /* "attention" */
        bool is_op = op_by_name(list[i]) != N_OPS;
        bool own = module && module->kind && !of_second;
        if (own && !is_op && !strcasecmp(list[i], module->kind)) return true; /* "linear" */
    }
    return false;
}

static bool names_input(const char *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i], "input")) return true;
    return false;
}

/* Does the list name a result of op? kind: that of the part of op that makes the result. An op that several ops became
 * is also found by the kind of each of them, and matmul_quantize by the module of each of its products. */
static bool named(const char *const *list, int n, const Op *op, OpKind kind, bool of_second, const Module *at) {
    if (names(list, n, kind, op->module, of_second, at)) return true;
    if (op->kind == OP_matmul_quantize && names(list, n, OP_matmul, op->module, false, at)) return true;
    for (const Joined *j = op->joined; j && j->turned; j = j->next) {
        bool product = op_info[j->kind].traits & T_PRODUCT;
        if (names(list, n, j->kind, op->module, of_second, at)) return true;
        if (product && names(list, n, j->kind, j->module, false, at)) return true;
    }
    return false;
}

/* Marks what the lists of checkpoint k name among op's results and inputs. m: the module that k is set on; NULL: k is
 * the checkpoint of the call that op was traced in. What is offloaded is kept, in host memory, so an `offload` name is
 * also a `save` name. */
static void mark_listed(Recompute *c, const Op *op, const Checkpoint *k, const Module *m) {
    Op second;
    const Value *between = pattern_apart(op, &second);
    const Module *at = m ? m : op->module;
    while (at && at->checkpoint != k) at = at->parent; /* NULL: nn.checkpoint in a forward; paths have no top there */
    for (int i = 0; i < op->nout && !op_is(op, T_VIEW); i++) {
        bool of_second = between && op->out[i] != between;
        OpKind kind = of_second ? second.kind : op->kind;
        Value *v = value_root(op->out[i]);
        bool offload = named(k->offload, k->noffload, op, kind, of_second, at);
        v->saved |= offload || named(k->save, k->nsave, op, kind, of_second, at);
        c->offload[v->id] |= offload;
    }
    bool offload = names_input(k->offload, k->noffload), save = offload || names_input(k->save, k->nsave);
    for (int i = 0; i < op->nin && save; i++) {
        Value *v = op->in[i] ? value_root(op->in[i]) : NULL;
        if (!v || !v->def || (m ? module_within(v->def->module, m) : !enters_call(op, v))) continue;
        v->saved = true;
        c->offload[v->id] |= offload;
    }
}

/* The lists of checkpointed modules inside a checkpointed call count too, for those modules' own ops. */
static void mark_named(Recompute *c) {
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *group = c->p->ops.at[i];
        if (group->phase != FORWARD) continue;
        for (int b = 0; b < (group->nbody ? group->nbody : 1); b++) {
            const Op *op = group->nbody ? group->body[b] : group;
            if (!op->checkpoint) continue;
            mark_listed(c, op, op->checkpoint, NULL);
            for (const Module *m = op->module; m; m = m->parent)
                if (m->checkpoint && m->checkpoint != op->checkpoint) mark_listed(c, op, m->checkpoint, m);
        }
    }
}

/* ── what is computed again ─────────────────────────────────────────────────────────────────────────────────────── */
/* Does a user of root value v in `region`, in the backward or a clone, read the clone's result? */
static bool takes_clone(const Recompute *c, const Value *v, int region) {
    const Op *op = v->def;
    return region && op && op->phase == FORWARD && op->region == region && op->checkpoint->recompute && !v->saved &&
           !lower_reads_flagged(op, c->written);
}

/* The op that computes op's results again: of a separable one only the second where the first one's result is kept. */
static const Op *recomputed_op(const Op *op, Op *second) {
    const Value *between = pattern_apart(op, second);
    return between && between->saved ? second : op;
}

/* Ops of the backward need clones' results, and clones need those of others. */
static void find_needed(Recompute *c) {
    VEC(const Op *) work = {0};
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *op = c->p->ops.at[i]; /* users of a view count as users of its root */
        if (op->phase != FORWARD && !op_is(op, T_VIEW)) push(&work, c->g->arena, op);
    }
    while (work.n) {
        Op second;
        const Op *op = work.at[--work.n];
        if (op->phase == FORWARD) op = recomputed_op(op, &second);
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k] ? value_root(op->in[k]) : NULL;
            if (!v || !takes_clone(c, v, op->region)) continue;
            if (!c->needed[v->id]) push(&work, c->g->arena, (const Op *)v->def);
            c->needed[v->id] = true;
        }
    }
}

/* ── clones ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static Value *twin(Recompute *c, Value *v) {
    Value *t = value_new(c->g, v->dtype, v->dims, v->shape);
    memcpy(t->stride, v->stride, sizeof t->stride);
    c->twin[v->id] = t;
    return t;
}

/* What a user in `region` reads instead of v. */
static Value *replacement(Recompute *c, Value *v, int region) {
    Value *root = value_root(v);
    if (root->id >= c->nvalues || !takes_clone(c, root, region)) return v;
    Value **twin = &c->twin[v->id];
    if (!*twin) *twin = value_new_view(c->g, c->twin[root->id], v->dims, v->shape, v->stride, v->offset);
    return *twin;
}

static Op *clone_op(Recompute *c, Op *from) {
    Op *op = op_new_like(c->g, from);
    op->id = arena_printf(c->g->arena, "%sr", from->id);
    op->phase = RECOMPUTE;
    op->origin = from;
    if (op_is(from, T_EFFECT)) INT_OF(op, keep_running) = true; /* an effect with results can leave its state alone */
    return op;
}

static void map_operands(Recompute *c, Op *op, int region) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k]) op->in[k] = replacement(c, op->in[k], region);
}

/* Members read each other through the twins of internal results; external results have twins as any op's. */
static Op *clone_fused(Recompute *c, Op *from) {
    Op *op = clone_op(c, from);
    op->body = NEW_ARRAY(c->g->arena, Op *, op->nbody);
    for (int b = 0; b < op->nbody; b++) {
        Op *m = op->body[b] = clone_op(c, from->body[b]);
        for (int k = 0; k < m->nin; k++) {
            Value *v = from->body[b]->in[k];
            bool inside = v->internal || (v->def == from);
            m->in[k] = inside ? c->twin[v->id] : replacement(c, v, from->region);
        }
        for (int k = 0; k < m->nout; k++) {
            Value *v = from->body[b]->out[k], *t = m->out[k] = twin(c, v);
            t->internal = v->internal;
            t->def = v->internal ? m : op;
        }
    }
    map_operands(c, op, from->region);
    for (int k = 0; k < op->nout; k++) op->out[k] = c->twin[from->out[k]->id];
    return op;
}

/* The second of an op that pattern_apart takes apart, as a fused group of one. */
static Op *clone_second(Recompute *c, Op *from, Op *second) {
    Op *member = clone_op(c, second);
    member->origin = from;
    map_operands(c, member, from->region);
    *member->out = twin(c, op_result(from));
    Op *op = op_new_like(c->g, member);
    op->kind = OP_fused;
    op->body = NEW_ARRAY(c->g->arena, Op *, 1);
    op->body[op->nbody++] = member;
    op_result(op)->def = op;
    groups_set(c->groups, op);
    return op;
}

static Op *clone(Recompute *c, Op *from) {
    Op second;
    if (from->nbody) return clone_fused(c, from);
    if (recomputed_op(from, &second) == &second) return clone_second(c, from, &second);
    Op *op = clone_op(c, from);
    map_operands(c, op, from->region);
    for (int k = 0; k < op->nout; k++) {
        op->out[k] = twin(c, from->out[k]);
        op->out[k]->def = op;
    }
    return op;
}

/* Clones, and puts a region's clones right before the first op of the backward that reads one of their results. */
static void add_clones(Recompute *c) {
    int regions = 0, n = c->p->ops.n;
    for (int i = 0; i < n; i++)
        if (c->p->ops.at[i]->region > regions) regions = c->p->ops.at[i]->region;
    typedef VEC(Op *) Clones;
    Clones *clones = NEW_ARRAY(c->g->arena, Clones, regions + 1); /* by region; emptied when they have their place */
    for (int i = 0; i < n; i++) {
        Op *op = c->p->ops.at[i];
        bool needed = false;
        if (op->phase != FORWARD || !op->region || op_is(op, T_VIEW)) continue;
        for (int k = 0; k < op->nout; k++) needed |= c->needed[op->out[k]->id];
        if (needed) push(&clones[op->region], c->g->arena, clone(c, op));
    }
    Edit *e = edit_begin(c->g, c->p);
    for (int i = 0; i < n; i++) {
        Op *op = c->p->ops.at[i];
        bool reads = false;
        if (op->phase == FORWARD || op_is(op, T_VIEW)) continue;
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k], *to = v ? replacement(c, v, op->region) : NULL;
            if (to == v) continue;
            edit_replace_operand(op, v, to);
            reads = true;
        }
        for (int k = 0; reads && k < clones[op->region].n; k++) edit_before(e, i, clones[op->region].at[k]);
        if (reads) clones[op->region].n = 0;
    }
    edit_commit(e);
}

/* ── offload ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void mark_offloaded(Recompute *c) {
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *op = c->p->ops.at[i];
        if (op->phase == FORWARD || op_is(op, T_VIEW)) continue;
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k] ? value_root(op->in[k]) : NULL;
            bool kept = v && v->id < c->nvalues && v->def && v->def->phase == FORWARD && !v->state && !v->param;
            if (kept && c->offload[v->id]) v->offload = true;
        }
    }
}

void lower_recompute(Graph *g, Program *p) {
    const Checkpoint *checked = NULL;
    for (int i = 0; i < g->modules.n; i++) /* also those inside of other checkpointed modules */
        if (g->modules.at[i]->checkpoint) check_names(g, g->modules.at[i]->checkpoint);
    for (int i = 0; i < p->ops.n; i++) {
        const Checkpoint *k = p->ops.at[i]->checkpoint;
        if (!k || k == checked) continue;
        check_names(g, k);
        checked = k;
    }
    if (!checked) return;
    Recompute c = {.g = g,
                   .p = p,
                   .written = lower_written_states(g, p),
                   .offload = uses_value_flags(g),
                   .needed = uses_value_flags(g),
                   .groups = groups_new(g),
                   .twin = NEW_ARRAY(g->arena, Value *, g->values.n + 1),
                   .nvalues = g->values.n};
    mark_named(&c);
    find_needed(&c);
    add_clones(&c);
    mark_offloaded(&c);
    lower_remove_dead(g, p);
}
