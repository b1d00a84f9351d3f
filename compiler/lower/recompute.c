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
static bool lists(const char *const *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

/* "attention": the op of that name; "*": anything. */
static bool names_kind(const char *const *list, int n, OpKind kind) {
    return lists(list, n, "*") || lists(list, n, op_info[kind].name);
}

/* "linear": what a module of that kind makes itself. */
static bool names_module(const char *const *list, int n, const Module *m) {
    for (int i = 0; i < n; i++)
        if (op_by_name(list[i]) == N_OPS && m->kind && !strcasecmp(list[i], m->kind)) return true;
    return false;
}

/* "mlp.up_proj": that submodule's path below the checkpointed module; "self_attn.q_proj" too where products were fused
 * into q_proj+k_proj+v_proj. "self_attn:rope", ":add": only its ops of that name, the second of the module itself. */
static bool names_path(const char *const *list, int n, const Module *m, const Module *checkpointed, OpKind kind) {
    if (!checkpointed || !module_within(m, checkpointed)) return false;
    size_t top = strlen(checkpointed->path);
    const char *path = m->path + top + (top && m->path[top] == '.'), *last = strrchr(path, '.');
    size_t folder = last ? (size_t)(last + 1 - path) : 0;
    for (int i = 0; i < n; i++) {
        size_t length = strcspn(list[i], ":");
        if (list[i][length] && (kind == N_OPS || strcmp(list[i] + length + 1, op_info[kind].name))) continue;
        if (!list[i][length] && !length) continue;
        if (strlen(path) == length && !strncmp(path, list[i], length)) return true;
        if (length <= folder || strncmp(path, list[i], folder)) continue;
        for (const char *part = path + folder; part; part = strchr(part, '+')) {
            part += *part == '+';
            if (strcspn(part, "+") == length - folder && !strncmp(part, list[i] + folder, length - folder)) return true;
        }
    }
    return false;
}

/* Whether some module that the checkpoint is set on has a submodule of that path; of "path:op" also an op of the name. */
static bool known_path(const Graph *g, const Checkpoint *c, const char *name) {
    const char *colon = strchr(name, ':');
    OpKind kind = colon ? op_by_name(colon + 1) : N_OPS;
    if (colon && kind == N_OPS) return false;
    for (int i = 0; i < g->modules.n; i++)
        for (const Module *m = g->modules.at[i]; m; m = m->parent)
            if (m->checkpoint == c && names_path(&name, 1, g->modules.at[i], m, kind)) return true;
    return false;
}

static void check_names(const Graph *g, const Checkpoint *c, const char *key, const char *const *list, int n) {
    for (int i = 0; i < n; i++) {
        bool known = !strcmp(list[i], "*") || !strcmp(list[i], "input") || op_by_name(list[i]) != N_OPS;
        for (int m = 0; m < g->modules.n && !known; m++)
            known = g->modules.at[m]->kind && !strcasecmp(list[i], g->modules.at[m]->kind);
        if (known || known_path(g, c, list[i])) continue;
        const char *candidates[N_OPS + 1];
        for (int k = 0; k < N_OPS; k++) candidates[k] = op_info[k].name;
        candidates[N_OPS] = "input";
        const char *near = str_nearest(list[i], candidates, N_OPS + 1);
        fail(setting_source(&c->settings, key, c->src),
             "nn.checkpoint: %s = { \"%s\" }: neither an op, nor a kind of module, nor a submodule here; %s%s%s", key,
             list[i],
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
    VEC(Op *) work;
    struct {
        VEC(Op *) ops;
        bool placed;
    } * clones; /* by region */
} Ctx;

/* What is offloaded is kept (in host memory), so an `offload` name is also a `save` name. */
static void mark(Ctx *c, Value *v, bool save, bool offload) {
    v->saved |= save || offload;
    c->offload[v->id] |= offload;
}

/* v comes from outside of the call that op was traced in; what a checkpointed call within it made does not. */
static bool enters_call(const Op *op, const Value *v) {
    const Module *own = op->module;
    while (own && own->checkpoint != op->checkpoint) own = own->parent;
    bool inner = own && v->def->checkpoint != op->checkpoint && module_within(v->def->module, own);
    return v->def->region != op->region && !inner;
}

/* Marks what the lists of checkpoint k name among op's results and inputs. m: the module that k is set on; NULL: k is
 * the checkpoint of the call that op was traced in. Where matmul+silu_mul can be taken apart, result 0 belongs to the
 * silu_mul, and is then no result of the product's module. */
static void mark_listed(Ctx *c, const Op *op, const Checkpoint *k, const Module *m) {
    Op second;
    bool apart = pattern_second_apart(op, &second);
    const Module *at = m ? m : op->module;
    while (at && at->checkpoint != k) at = at->parent; /* NULL: nn.checkpoint in a forward; paths have no top there */
    for (int i = 0; i < op->nout && !op_is(op, T_VIEW); i++) {
        bool own = !apart || i > 0;
        OpKind kind = own ? op->kind : second.kind;
        const Module *by = own ? op->module : op->module->parent;
        bool save = names_kind(k->save, k->nsave, kind) || (own && names_module(k->save, k->nsave, op->module)) ||
                    names_path(k->save, k->nsave, by, at, kind);
        bool offload = names_kind(k->offload, k->noffload, kind) ||
                       (own && names_module(k->offload, k->noffload, op->module)) ||
                       names_path(k->offload, k->noffload, by, at, kind);
        if (save || offload) mark(c, value_root(op->out[i]), save, offload);
    }
    bool offload = lists(k->offload, k->noffload, "input"), save = lists(k->save, k->nsave, "input");
    for (int i = 0; i < op->nin && (save || offload); i++) {
        Value *v = op->in[i] ? value_root(op->in[i]) : NULL;
        bool enters = v && v->def && (m ? !module_within(v->def->module, m) : enters_call(op, v));
        if (enters) mark(c, v, save, offload);
    }
}

/* The lists of checkpointed modules inside a checkpointed call count too, for those modules' own ops. */
static void mark_named(Ctx *c) {
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
static bool takes_clone(const Ctx *c, const Value *v, int region) {
    const Op *op = v->def;
    return region && op && op->phase == FORWARD && op->region == region && op->checkpoint->recompute && !v->saved &&
           !lower_reads_flagged(op, c->written);
}

static void need_operands(Ctx *c, const Op *op) {
    for (int k = 0; k < op->nin; k++) {
        Value *v = op->in[k] ? value_root(op->in[k]) : NULL;
        if (!v || !takes_clone(c, v, op->region)) continue;
        if (!c->needed[v->id]) push(&c->work, c->g->arena, v->def);
        c->needed[v->id] = true;
    }
}

/* The op that computes op's results again: of matmul+silu_mul only the silu_mul where the product's result is kept. */
static const Op *recomputed_op(const Op *op, Op *second) {
    return pattern_second_apart(op, second) && op->matmul.aux->saved ? second : op;
}

static void find_needed(Ctx *c) {
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *op = c->p->ops.at[i];
        if (op->phase == FORWARD || op_is(op, T_VIEW)) continue; /* users of views count, as users of their roots */
        need_operands(c, op);
    }
    while (c->work.n) {
        Op second;
        need_operands(c, recomputed_op(c->work.at[--c->work.n], &second));
    }
}

/* ── clones ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static Value *twin(Ctx *c, Value *v) {
    Value *t = value_new(c->g, v->dtype, v->dims, v->shape);
    memcpy(t->stride, v->stride, sizeof t->stride);
    c->twin[v->id] = t;
    return t;
}

/* What a user in `region` reads instead of v. */
static Value *replacement(Ctx *c, Value *v, int region) {
    Value *root = value_root(v);
    if (root->id >= c->nvalues || !takes_clone(c, root, region)) return v;
    Value **twin = &c->twin[v->id];
    if (!*twin) *twin = value_new_view(c->g, c->twin[root->id], v->dims, v->shape, v->stride, v->offset);
    return *twin;
}

static Op *clone_op(Ctx *c, Op *from) {
    Op *op = op_new_like(c->g, from);
    op->id = arena_printf(c->g->arena, "%sr", from->id);
    op->phase = RECOMPUTE;
    op->origin = from;
    if (op_is(from, T_EFFECT)) op->batch_norm.keep_running = true; /* the only such op with results */
    return op;
}

static void map_operands(Ctx *c, Op *op, int region) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k]) op->in[k] = replacement(c, op->in[k], region);
}

/* Members read each other through the twins of internal results; external results have twins as any op's. */
static Op *clone_fused(Ctx *c, Op *from) {
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

/* The silu_mul of a matmul+silu_mul, as a fused group of one. */
static Op *clone_second(Ctx *c, Op *from, Op *second) {
    Op *member = clone_op(c, second);
    member->origin = from;
    map_operands(c, member, from->region);
    member->silu_mul.y = twin(c, from->matmul.y);
    Op *op = op_new_like(c->g, member);
    op->kind = OP_fused;
    op->body = NEW_ARRAY(c->g->arena, Op *, 1);
    op->body[op->nbody++] = member;
    op_result(op)->def = op;
    groups_set(c->groups, op);
    return op;
}

static Op *clone(Ctx *c, Op *from) {
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

static bool is_needed(const Ctx *c, const Op *op) {
    if (op->phase != FORWARD || !op->region || op_is(op, T_VIEW)) return false;
    for (int k = 0; k < op->nout; k++)
        if (c->needed[op->out[k]->id]) return true;
    return false;
}

static void make_clones(Ctx *c) {
    int regions = 0;
    for (int i = 0; i < c->p->ops.n; i++)
        regions = c->p->ops.at[i]->region > regions ? c->p->ops.at[i]->region : regions;
    c->clones = arena_alloc(c->g->arena, sizeof *c->clones * (size_t)(regions + 1));
    for (int i = 0; i < c->p->ops.n; i++) {
        Op *op = c->p->ops.at[i];
        if (is_needed(c, op)) push(&c->clones[op->region].ops, c->g->arena, clone(c, op));
    }
}

/* A region's clones stand right before the first op of the backward that reads one of their results. */
static void place_clones(Ctx *c) {
    Program old = *c->p;
    memset(&c->p->ops, 0, sizeof c->p->ops);
    for (int i = 0; i < old.ops.n; i++) {
        Op *op = old.ops.at[i];
        bool reads = false;
        for (int k = 0; k < op->nin && op->phase != FORWARD && !op_is(op, T_VIEW); k++) {
            Value *v = op->in[k], *to = v ? replacement(c, v, op->region) : NULL;
            if (to == v) continue;
            edit_replace_operand(op, v, to);
            reads = true;
        }
        if (reads && !c->clones[op->region].placed) {
            c->clones[op->region].placed = true;
            for (int k = 0; k < c->clones[op->region].ops.n; k++)
                push(&c->p->ops, c->g->arena, c->clones[op->region].ops.at[k]);
        }
        push(&c->p->ops, c->g->arena, op);
    }
}

/* ── offload ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void mark_offloaded(Ctx *c) {
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

static void check_lists(const Graph *g, const Checkpoint *k) {
    check_names(g, k, "save", k->save, k->nsave);
    check_names(g, k, "offload", k->offload, k->noffload);
}

void lower_recompute(Graph *g, Program *p) {
    const Checkpoint *checked = NULL;
    for (int i = 0; i < g->modules.n; i++) /* also inside of others */
        if (g->modules.at[i]->checkpoint) check_lists(g, g->modules.at[i]->checkpoint);
    for (int i = 0; i < p->ops.n; i++) {
        const Checkpoint *k = p->ops.at[i]->checkpoint;
        if (!k || k == checked) continue;
        check_lists(g, k);
        checked = k;
    }
    if (!checked) return;
    Ctx c = {.g = g,
             .p = p,
             .written = lower_written_states(g, p),
             .offload = uses_value_flags(g),
             .needed = uses_value_flags(g),
             .groups = groups_new(g),
             .twin = NEW_ARRAY(g->arena, Value *, g->values.n + 1),
             .nvalues = g->values.n};
    mark_named(&c);
    find_needed(&c);
    make_clones(&c);
    place_clones(&c);
    mark_offloaded(&c);
    lower_remove_dead(g, p);
}
