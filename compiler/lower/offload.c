/* Offload: adds the copies to and from host memory. A saved activation that a policy offloads is copied out after its
 * last use in the forward and back before its first use in the backward. An op on a state in host memory runs there, or
 * its operands are fetched and written back; an update of that kind runs on a stream of its own, beside compute.
 * Relies on: recompute (Value.offload), shard (State.on_host), edit.h. Relied on by: pipeline.c. */
#include "../ir/policy.h"
#include "../ir/training.h"
#include "../ir/uses.h"
#include "edit.h"
#include "lower.h"

static Op *copy_op(Graph *g, Purpose purpose, const Op *for_op, const char *id, Value *from, Value *to) {
    Op *op = op_new(g, purposes[purpose].stream == OFFLOAD ? OP_offload : OP_fetch);
    op->id = id;
    op->module = for_op->module;
    op->src = for_op->src;
    op->phase = for_op->phase;
    op->unit = for_op->unit;
    op->origin = NULL;
    op->group = -1;
    op->purpose = purpose;
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
/* Copies result k of the op at position `made` out after its last use in the forward, and back before its first use in
 * the backward. Returns what was fetched; NULL: the backward does not use it, and nothing is copied. */
static Value *add_copies(Graph *g, Edit *e, const Program *p, const Uses *uses, int made, int k) {
    const Op *def = p->ops.at[made];
    Value *v = def->out[k];
    int last_forward = made, first_backward = -1; /* positions */
    for (const User *u = uses_users(uses, v); u && first_backward < 0; u = u->next) {
        if (op_is(u->op, T_VIEW)) continue;
        *(u->op->phase == FORWARD ? &last_forward : &first_backward) = uses_position(uses, u->op);
    }
    if (first_backward < 0) return NULL;
    /* "13" of the op e13, "13.1" of its second result */
    const char *name = k ? arena_printf(g->arena, "%s.%d", def->id + 1, k) : def->id + 1;
    Value *host = twin(g, v, true), *fetched = twin(g, v, false);
    edit_after(e, last_forward, copy_op(g, TO_OFFLOAD, def, arena_printf(g->arena, "o%s", name), v, host));
    edit_before(
        e, first_backward,
        copy_op(g, TO_FETCH_ACTIVATION, p->ops.at[first_backward], arena_printf(g->arena, "f%s", name), host, fetched));
    return fetched;
}

static void offload_activations(Graph *g, Program *p) {
    int nvalues = g->values.n; /* copies have later ids */
    Value **fetched = NEW_ARRAY(g->arena, Value *, nvalues + 1);
    Uses *uses = NULL; /* most programs offload nothing */
    Edit *e = NULL;
    for (int i = 0; i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nout; k++) {
            const Value *v = p->ops.at[i]->out[k];
            if (!v->offload || v->base || v->internal) continue;
            if (!uses) uses = uses_new(g, p), e = edit_begin(g, p);
            fetched[v->id] = add_copies(g, e, p, uses, i, k);
        }
    if (!uses) return;
    uses_free(uses);
    /* The backward reads what was fetched. Views of the original stay; their users get views of what was fetched. */
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (op->phase == FORWARD || op_is(op, T_VIEW)) continue;
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k];
            int root = v ? value_root(v)->id : nvalues;
            Value *to = root < nvalues ? fetched[root] : NULL;
            if (!to) continue;
            if (v->base) to = value_new_view(g, to, v->dims, v->shape, v->stride, v->offset);
            edit_replace_operand(op, v, to);
        }
    }
    edit_commit(e);
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

/* Where all that an op updates lies in host memory, it runs there, unless the unit's update is to stream. */
static Purpose purpose_of(const Op *op) {
    bool some = false, all = true; /* of what it updates lies in host memory */
    for (int k = 0; k < op->nin; k++) {
        if (!op->in[k] || !op_updates(op, k)) continue;
        some |= on_host(op->in[k]);
        all &= on_host(op->in[k]);
    }
    bool update = op_is(op, T_OPTIMIZER);
    if (some && all && op_is(op, T_HOST_OK) && (!update || op->unit->host_update)) return TO_RUN_ON_HOST;
    return some && update ? TO_UPDATE_STREAMED : op->purpose;
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
    Op *full = copy_op(g, op->purpose, op, id, NULL, twin(g, like, false));
    op_turn(full, OP_full);
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
        if (f->purpose != TO_FETCH_SHARD || f->phase != BACKWARD) continue;
        const User *u = uses_users(uses, op_result(f));
        while (u && u->op->purpose == TO_UNSHARD) u = u->next;
        if (!u) push(&l, g->arena, ((Copied){op_operand(f), op_result(f)}));
    }
    uses_free(uses);
    return l;
}

static void host_states(Graph *g, Program *p) {
    Edit *e = edit_begin(g, p);
    Copies small = {0}, masters = fetched_masters(g, p);
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (op_is(op, T_COPY | T_VIEW | T_ASSEMBLE)) continue;
        op->purpose = purpose_of(op);
        forget_written(&small, op);
        bool to_host = op->purpose == TO_RUN_ON_HOST, streams = op->purpose == TO_UPDATE_STREAMED;
        Purpose here = to_host ? TO_OFFLOAD : streams ? TO_FETCH_STREAMED : TO_FETCH_STATE;
        Purpose back = streams ? TO_WRITE_BACK_STREAMED : TO_OFFLOAD;
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k], *t = known_copy(&small, v), *up = known_copy(&masters, v);
            if (!v || on_host(v) == to_host) continue;
            if (only_written(op, k)) {
                t = zeros(g, e, op, i, arena_printf(g->arena, "z_%s_%d", op->id, k), v);
            } else if (up && !to_host && op_is(op, T_OPTIMIZER)) {
                t = up;
            } else if (!t || op_updates(op, k)) {
                const char *id = arena_printf(g->arena, "%s_%s_%d", to_host ? "o" : "f", op->id, k);
                t = twin(g, v, to_host);
                edit_before(e, i, copy_op(g, here, op, id, v, t));
                if (value_bytes(v) <= SMALL && !op_updates(op, k)) push(&small, g->arena, ((Copied){v, t}));
            }
            edit_replace_operand(op, v, t);
            if (!op_updates(op, k)) continue; /* a device op has updated a host state: write it back */
            Value *state = value_new_view(g, v, v->dims, v->shape, v->stride, 0);
            Op *away = copy_op(g, back, op, arena_printf(g->arena, "o_%s_%d", op->id, k), t, state);
            away->origin = op;
            edit_after(e, i, away);
        }
    }
    edit_commit(e);
}

/* Chooses the faster side for updates where the policy leaves the choice. On the device, master and moments are copied
 * both ways at once. On the host, they and the gradient are read, and they and the shard that travels are written. */
void lower_place_updates(Graph *g, const Device *d) {
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        const Optimizer *o = u->optimizer;
        if (!o || !u->policy->offload_optimizer) continue;
        double moment = (double)training_moment_bytes(o, SC_MOMENTS8_BLOCK) / SC_MOMENTS8_BLOCK;
        double state = 4 + training_moments(o) * moment; /* bytes an element */
        double bus = state / d->host_bandwidth * (1 + d->beside[OP_offload].itself);
        bool host_is_faster = (2 * state + 4 + 2) / d->host_optimizer_bandwidth < bus, here = !o->rule->before;
        UpdatePlace at = u->policy->update;
        if (at == UPDATE_HOST && !here)
            fail(setting_source(&u->policy->settings, "offload", u->policy->src),
                 "offload: optimizer = \"host\", but unit %s is updated by optim.%s, whose products the device "
                 "computes; "
                 "write optimizer = \"stream\" or true",
                 u->name, o->rule->lua);
        u->host_update = here && (at == UPDATE_HOST || (at == UPDATE_ANYWHERE && host_is_faster));
    }
}

void lower_offload(Graph *g, Program *p) {
    offload_activations(g, p);
    bool any_state = false;
    for (int i = 0; i < g->units.n; i++) {
        const UnitPolicy *x = g->units.at[i]->policy;
        any_state |= x->offload_params || x->offload_optimizer || x->offload_grads;
    }
    if (any_state) host_states(g, p);
}
