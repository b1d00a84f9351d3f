/* Offload: adds the copies to and from host memory. A saved activation that a policy offloads is copied out after its
 * last use in the forward and back before its first use in the backward. An op on a state in host memory runs there, or
 * its operands are fetched and written back; an update of that kind runs on a stream of its own, beside compute.
 * Relies on: recompute (Value.offload), shard (State.on_host), edit.h. Relied on by: pipeline.c. */
#include "../ir/policy.h"
#include "../ir/training.h"
#include "../ir/uses.h"
#include "edit.h"
#include "lower.h"

static Op *copy_op(Graph *g, bool to_host, const Op *for_op, const char *id, Value *from, Value *to) {
    Op *op = op_new(g, to_host ? OP_offload : OP_fetch);
    op->id = id;
    op->module = for_op->module;
    op->src = for_op->src;
    op->phase = for_op->phase;
    op->unit = for_op->unit;
    op->origin = NULL;
    op->group = -1;
    op->stream = to_host ? OFFLOAD : FETCH;
    op->in[op->nin++] = from;
    op->out[op->nout++] = to;
    to->def = op;
    return op;
}

static Value *twin(Graph *g, const Value *v, bool on_host) {
    Value *t = value_new(g, v->dtype, v->dims, v->shape);
    t->on_host = on_host;
    return t;
}

/* ── activations ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {                      /* one offloaded value */
    Value *value, *fetched;           /* fetched: NULL where no op of the backward reads it */
    int last_forward, first_backward; /* positions of ops; first_backward -1: none */
} Offloaded;

typedef struct {
    Graph *g;
    Program *p;
    Edit *edit;
    Offloaded **by_value; /* by id of a root value */
    int nvalues;          /* before this pass: the length of by_value */
    VEC(Offloaded *) all;
} Ctx;

static void add_offloaded(Ctx *c, const Uses *uses, Value *v, int made) {
    Offloaded *t = c->by_value[v->id] = NEW(c->g->arena, Offloaded);
    *t = (Offloaded){.value = v, .last_forward = made, .first_backward = -1};
    push(&c->all, c->g->arena, t);
    for (const User *u = uses_users(uses, v); u && t->first_backward < 0; u = u->next) {
        if (op_is(u->op, T_VIEW)) continue;
        *(u->op->phase == FORWARD ? &t->last_forward : &t->first_backward) = uses_position(uses, u->op);
    }
}

static void find_offloaded(Ctx *c) {
    Uses *uses = NULL; /* most programs offload nothing */
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nout; k++) {
            Value *v = op->out[k];
            if (!v->offload || v->base || v->internal) continue;
            if (!uses) uses = uses_new(c->g, c->p);
            add_offloaded(c, uses, v, i);
        }
    }
    if (uses) uses_free(uses);
}

/* "13" of the op e13, "13.1" of its second result */
static const char *name_of(Graph *g, const Value *v) {
    const Op *def = v->def;
    int k = 0;
    while (def->out[k] != v) k++;
    return k ? arena_printf(g->arena, "%s.%d", def->id + 1, k) : def->id + 1;
}

static void add_copies(Ctx *c, Offloaded *t) {
    Graph *g = c->g;
    if (t->first_backward < 0) return;
    const Op *user = c->p->ops.at[t->first_backward];
    const char *name = name_of(g, t->value);
    Value *host = twin(g, t->value, true);
    t->fetched = twin(g, t->value, false);
    edit_after(c->edit, t->last_forward,
               copy_op(g, true, t->value->def, arena_printf(g->arena, "o%s", name), t->value, host));
    edit_before(c->edit, t->first_backward,
                copy_op(g, false, user, arena_printf(g->arena, "f%s", name), host, t->fetched));
}

/* The backward reads what was fetched. Views of the original stay; their users get views of what was fetched. */
static void read_fetched(Ctx *c, Op *op) {
    if (op->phase == FORWARD || op_is(op, T_VIEW)) return;
    for (int k = 0; k < op->nin; k++) {
        Value *v = op->in[k];
        int root = v ? value_root(v)->id : c->nvalues;
        const Offloaded *t = root < c->nvalues ? c->by_value[root] : NULL;
        if (!t || !t->fetched) continue;
        edit_replace_operand(
            op, v, v->base ? value_new_view(c->g, t->fetched, v->dims, v->shape, v->stride, v->offset) : t->fetched);
    }
}

static void offload_activations(Graph *g, Program *p) {
    Ctx c = {.g = g, .p = p, .nvalues = g->values.n};
    c.by_value = NEW_ARRAY(g->arena, Offloaded *, c.nvalues + 1);
    find_offloaded(&c);
    if (!c.all.n) return;
    c.edit = edit_begin(g, p);
    for (int i = 0; i < c.all.n; i++) add_copies(&c, c.all.at[i]);
    for (int i = 0; i < p->ops.n; i++) read_fetched(&c, p->ops.at[i]);
    edit_commit(c.edit);
}

/* ── states on the host ───────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { SMALL = 256 }; /* bytes: the clip coefficient, Adam's step count */

typedef struct {
    Value *from, *copy;
} Copied;
typedef VEC(Copied) Copies; /* of small values, each good until its original is written */

static bool on_host(Value *v) {
    return value_root(v)->on_host;
}

/* All that it updates lies there, and the unit's update is not to stream. */
static bool runs_on_host(const Op *op) {
    bool host = false;
    for (int k = 0; k < op->nin; k++) {
        if (!op->in[k] || !op_updates(op, k)) continue;
        if (!on_host(op->in[k])) return false;
        host = true;
    }
    return host && op_is(op, T_HOST_OK) && !(op_is(op, T_OPTIMIZER) && !op->unit->host_update);
}

static bool updates_host_state(const Op *op) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && op_updates(op, k) && on_host(op->in[k])) return true;
    return false;
}

static Value *known_copy(const Copies *l, const Value *v) {
    for (int i = l->n - 1; i >= 0; i--)
        if (l->at[i].from == v) return l->at[i].copy;
    return NULL;
}

static void forget_written(Copies *l, const Op *op) {
    for (int k = 0; k < op->nin; k++)
        for (int i = l->n - 1; i >= 0 && op->in[k] && op_updates(op, k); i--)
            if (value_root(l->at[i].from) == value_root(op->in[k])) l->at[i] = l->at[--l->n];
}

/* An update writes the shard that travels and never reads it, so its copy on the device begins as zeros, gaps too. */
static bool only_written(const Op *op, int k) {
    const State *s = value_root(op->in[k])->state;
    return op_is(op, T_OPTIMIZER) && op_updates(op, k) && s && s->cls == S_WIRE;
}

static Value *zeros(Graph *g, Edit *e, const Op *op, int pos, const char *id, const Value *like) {
    Op *full = copy_op(g, false, op, id, NULL, twin(g, like, false));
    full->kind = OP_full;
    full->stream = op->stream;
    full->nin = 0;
    full->full.dtype = like->dtype;
    full->full.dims = 1;
    full->full.shape[0] = value_numel(like);
    edit_before(e, pos, full);
    return full->full.y;
}

/* Masters that the backward's gathers have fetched and nothing else reads: updates use those copies. */
static Copies fetched_masters(Graph *g, const Program *p) {
    Copies l = {0};
    Uses *uses = uses_new(g, p);
    for (int i = 0; i < p->ops.n; i++) {
        const Op *f = p->ops.at[i];
        if (f->stream != FETCH || f->phase != BACKWARD || !f->fetch.x->state) continue;
        const User *u = uses_users(uses, f->fetch.y);
        while (u && u->op->stream == GATHER) u = u->next;
        if (!u) push(&l, g->arena, ((Copied){f->fetch.x, f->fetch.y}));
    }
    uses_free(uses);
    return l;
}

static void move_operands(Graph *g, Edit *e, Op *op, int pos, bool to_host, Copies *small, const Copies *masters) {
    for (int k = 0; k < op->nin; k++) {
        Value *v = op->in[k], *t = known_copy(small, v), *up = known_copy(masters, v);
        if (!v || on_host(v) == to_host) continue;
        const char *id = arena_printf(g->arena, "%s_%s_%d", to_host ? "o" : "f", op->id, k);
        if (only_written(op, k)) {
            t = zeros(g, e, op, pos, arena_printf(g->arena, "z_%s_%d", op->id, k), v);
        } else if (up && !to_host && op_is(op, T_OPTIMIZER)) {
            t = up;
        } else if (!t || op_updates(op, k)) {
            t = twin(g, v, to_host);
            edit_before(e, pos, copy_op(g, to_host, op, id, v, t));
            if (value_bytes(v) <= SMALL && !op_updates(op, k)) push(small, g->arena, ((Copied){v, t}));
        }
        edit_replace_operand(op, v, t);
        if (!op_updates(op, k)) continue; /* a device op has updated a host state: write it back */
        Value *state = value_new_view(g, v, v->dims, v->shape, v->stride, 0);
        Op *away = copy_op(g, true, op, arena_printf(g->arena, "o_%s_%d", op->id, k), t, state);
        away->origin = op;
        edit_after(e, pos, away);
    }
}

static void host_states(Graph *g, Program *p) {
    Edit *e = edit_begin(g, p);
    Copies small = {0}, masters = fetched_masters(g, p);
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (op_is(op, T_COPY | T_VIEW | T_ASSEMBLE)) continue;
        bool host = runs_on_host(op);
        if (host) op->stream = HOST;
        if (!host && op_is(op, T_OPTIMIZER) && updates_host_state(op)) op->stream = UPDATE;
        forget_written(&small, op);
        move_operands(g, e, op, i, host, &small, &masters);
    }
    edit_commit(e);
}

static bool any_on_host(const Graph *g) {
    for (int i = 0; i < g->units.n; i++) {
        const UnitPolicy *p = g->units.at[i]->policy;
        if (p->offload_params || p->offload_optimizer || p->offload_grads) return true;
    }
    return false;
}

/* Chooses the faster side for updates where the policy leaves the choice. On the device, master and moments are copied
 * both ways at once. On the host, they and the gradient are read, and they and the shard that travels are written. */
void lower_place_updates(Graph *g, const Device *d) {
    double state = 4 + 2 * (double)dtype_size(g->training->optimizer->moment_dtype);
    double bus = state / d->host_bandwidth * (1 + d->beside[OP_offload].itself);
    bool host_is_faster = (2 * state + 4 + 2) / d->host_optimizer_bandwidth < bus;
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        UpdatePlace at = u->policy->update;
        u->host_update =
            u->policy->offload_optimizer && (at == UPDATE_HOST || (at == UPDATE_ANYWHERE && host_is_faster));
    }
}

void lower_offload(Graph *g, Program *p) {
    offload_activations(g, p);
    if (any_on_host(g)) host_states(g, p);
}
