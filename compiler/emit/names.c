/* Gives what a program touches names that C takes: "h_0_mlp_up_y" for the result y of that module, "h_0_mlp_up_weight"
 * for a parameter where a gather has put it, "h_0_mlp_up_weight_grad" for its gradient. Each program lists its names
 * with their addresses before its first statement. Relies on: text.h, plan.h. Relied on by: step.c. */
#include "../ir/ops.h"
#include "text.h"

typedef struct {
    const Value *value;
    const char *event; /* what makes it */
    int storage;
} Met;

struct Names {
    const Emit *e;
    const PlanProgram *p;
    const char **value;   /* by Value.id, of what owns bytes: "up_y"; NULL: not touched */
    const char **storage; /* by Storage.id: the name of what is first in it */
    int *makes;           /* by Module.id: how many ops its forward has */
    Map *place;           /* of parameters and their gradients, by "storage+offset" */
    Map *taken;           /* identifiers */
    VEC(Met) order;       /* values that own bytes, as they are met */
};

typedef struct {
    const char *name;
    int64_t offset; /* bytes, in its storage */
    int storage;
} Place;

/* Words of C and of sc.h have no underscore inside, or begin with "sc_", or end with "_t" (types); two more are named.
 */
static bool may_mean_more(const char *s) {
    size_t n = strlen(s);
    return !strchr(s, '_') || *s == '_' || !strncasecmp(s, "sc_", 3) || !strcmp(s + n - 2, "_t") ||
           !strcmp(s, "args_") || !strcmp(s, "static_assert");
}

/* An identifier that nothing else in the program has; `second` tells two things of one name apart. */
static const char *free_name(Names *n, const char *like, const char *second) {
    Arena *a = n->e->a;
    Str plain = {.arena = a};
    for (const char *p = like; *p; p++)
        if (!strchr("()", *p)) str_bytes(&plain, p, 1);
    str_add(&plain, "");
    const char *s = c_name(a, plain.s);
    if (may_mean_more(s)) s = arena_printf(a, "p_%s", s);
    if (map_get(n->taken, s)) s = arena_printf(a, "%s_%s", s, c_name(a, second));
    for (int k = 2; map_get(n->taken, s); k++) s = arena_printf(a, "%s_%d", s, k);
    map_put(n->taken, s, n);
    return s;
}

static const char *place_key(const Names *n, int storage, int64_t offset) {
    return arena_printf(n->e->a, "%d+%lld", storage, (long long)offset);
}

static int64_t offset_in_storage(const Value *v) {
    return v->base ? v->offset * dtype_size(v->dtype) : 0;
}

/* The parameter whose place in its unit's flat buffer v shows, whole: what a gather wrote, or its gradient. */
static const Param *param_at(const Value *v) {
    const Value *root = value_root(v);
    const Unit *u = root->state ? root->state->unit : root->def ? root->def->unit : NULL;
    bool frozen = root->state && (root->state->cls == S_FROZEN);
    for (int i = 0; u && i < u->params.n; i++) {
        const Param *p = u->params.at[i];
        bool trains = p->requires_grad && !p->is_buffer;
        if (p->flat_offset == v->offset && param_numel(p) == value_numel(v) && trains != frozen) return p;
    }
    return NULL;
}

static bool ends(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static const Op *member_that_makes(const Op *op, const Value *v) {
    for (int i = 0; i < op->nbody; i++)
        if (op_result(op->body[i]) == v) return op->body[i];
    return op;
}

/* "up_y": the y of the module's only op; "attn_rope_y": it has more; "up_grad": the y of an op of its backward;
 * "layers_3_all_gather": what is made for a unit. */
static const char *result_name(const Names *n, const Event *x, int k) {
    Arena *a = n->e->a;
    const Value *v = x->op_ir->out[k], *root = value_root(v);
    const Op *op = member_that_makes(x->op_ir, v), *of = root == v ? op : root->def; /* of: whose place it has */
    if (root != v && of->unit) return arena_printf(a, "%s_grads", of->unit->name);
    const char *path = of->unit ? of->unit->name : of->module->path, *word = op_info[op->kind].name;
    int index, shown = (int)strlen(word);
    const Slot *slot = op_slot_at(op_info[x->op_ir->kind].results, k, &index);
    const char *what = root != v ? "whole" : op != x->op_ir ? "y" : slot->name;
    bool backward = of->phase == BACKWARD && !of->unit && !strcmp(what, "y");
    if (ends(word, "_grad") || ends(word, "_grads")) shown -= ends(word, "s") ? 6 : 5;
    if (backward && (shown < (int)strlen(word) || !strstr(word, "grad"))) what = "grad";
    Str s = {.arena = a};
    str_add(&s, path);
    if (!s.n || of->unit || n->makes[of->module->id] != 1) str_addf(&s, "%s%.*s", s.n ? "_" : "", shown, word);
    if (!of->unit || strcmp(what, "y")) str_addf(&s, "_%s", what);
    if (slot->n && op == x->op_ir && root == v) str_int(&s, index);
    return s.s;
}

/* v is the event's k-th result, or (-1) another tensor that it touches, which has the storage's name if none before. */
static void meet(Names *n, const Event *x, int k, const Value *v) {
    if (!v) return;
    const Value *root = value_root(v);
    const Storage *s = &n->e->plan->storages[plan_storage(n->e->plan, v)];
    if (!n->value[root->id]) {
        bool made = k >= 0 && s->program >= 0 && x->phase != OPTIMIZER && (root == v || root->def);
        const char *known = n->storage[s->id];
        if (made || !known) {
            n->value[root->id] = free_name(n, made ? result_name(n, x, k) : s->name, x->id);
            push(&n->order, n->e->a, ((Met){root, x->id, s->id}));
        } else {
            n->value[root->id] = known;
        }
        if (!known) n->storage[s->id] = n->value[root->id];
    }
    const Param *param = param_at(v);
    const char *key = param ? place_key(n, s->id, offset_in_storage(v)) : NULL;
    if (!param || map_get(n->place, key)) return;
    bool gradient = root->def && op_is(root->def, T_ASSEMBLE);
    Place *p = NEW(n->e->a, Place);
    const char *name = gradient ? arena_printf(n->e->a, "%s_grad", param->path) : param->path;
    *p = (Place){free_name(n, name, root->def ? root->def->id : "state"), offset_in_storage(v), s->id};
    map_put(n->place, key, p);
}

Names *names_new(const Emit *e, const PlanProgram *p) {
    Names *n = NEW(e->a, Names);
    *n = (Names){.e = e, .p = p, .place = map_new(e->a), .taken = map_new(e->a)};
    n->storage = NEW_ARRAY(e->a, const char *, e->plan->nstorages + 1);
    n->value = NEW_ARRAY(e->a, const char *, e->g->values.n + 1);
    n->makes = NEW_ARRAY(e->a, int, e->g->modules.n + 1);
    for (int i = 0; i < p->n; i++) {
        const Op *op = p->events[i].op_ir;
        if (op->phase != FORWARD) continue;
        if (!op->body) n->makes[op->module->id]++;
        for (int k = 0; k < op->nbody; k++) /* members of a fused group are ops of their modules */
            n->makes[op->body[k]->module->id] += !op_is(op->body[k], T_VIEW);
    }
    for (int i = 0; i < p->n; i++) map_put(n->taken, c_name(e->a, p->events[i].id), n);
    for (int i = 0; i < p->n; i++) {
        const Event *x = &p->events[i];
        const Op *op = x->op_ir;
        for (int k = 0; k < op->nout; k++) meet(n, x, k, op->out[k]);
        for (int k = 0; k < op->nin; k++) meet(n, x, -1, op->in[k]);
        meet(n, x, -1, op->workspace);
    }
    return n;
}

/* Offsets are long long: a name that fits in an int is one, and a sum of two may not fit. */
void text_place(Str *t, const Names *n, const Value *v) {
    int storage = plan_storage(n->e->plan, v);
    int64_t offset = offset_in_storage(v);
    const Place *p = param_at(v) ? map_get(n->place, place_key(n, storage, offset)) : NULL;
    str_add(t, p ? p->name : n->value[value_root(v)->id]);
    if (!p && offset) str_addf(t, " + %lldLL", (long long)offset);
}

const char *names_storage(const void *names, int storage) {
    return ((const Names *)names)->storage[storage];
}

/* "up_y = 0x00864700, <98.0 KiB, e17 to e17b0>", "relu_y = up_y, <e18, in its bytes>", and the parameters in
 * the buffers of units. */
void names_put(const Names *n) {
    Str *out = n->e->out;
    if (!n->order.n) return;
    str_add(out, "    enum { /* where each storage begins; its size, the first and the last event that touch it */\n");
    for (int i = 0; i < n->order.n; i++) {
        const Met *m = &n->order.at[i];
        const Storage *s = &n->e->plan->storages[m->storage];
        const char *name = n->value[m->value->id];
        str_addf(out, "        %s = ", name);
        if (name != n->storage[s->id]) {
            str_addf(out, "%s, /* %s, in its bytes */\n", n->storage[s->id], m->event);
            continue;
        }
        str_hex(out, (uint64_t)s->offset, 8);
        str_add(out, ", /* ");
        text_size(out, (double)s->size);
        if (s->arena == ARENA_HOST) str_add(out, ", host arena");
        if (s->program < 0)
            str_add(out, ", persistent");
        else if (s->first >= 0)
            str_addf(out, ", %s to %s", n->p->events[s->first].id, n->p->events[s->last].id);
        str_add(out, " */\n");
        str_spill(out, n->e->f);
    }
    if (map_len(n->place)) str_add(out, "        /* parameters and gradients in the buffers of their units */\n");
    for (int i = 0; i < map_len(n->place); i++) {
        const Place *p = map_value(n->place, i);
        str_addf(out, "        %s = %s + %lldLL,\n", p->name, n->storage[p->storage], (long long)p->offset);
        str_spill(out, n->e->f);
    }
    str_add(out, "    };\n");
}
