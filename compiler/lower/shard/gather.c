/* shard's parameters in use: gathers, and operands as views into what was gathered.
 * Relies on: shard.h.
 * Relied on by: shard.c. */
#include "../../ir/policy.h"
#include "shard.h"

enum { TRAINABLE, FROZEN };

static bool in_place(const Unit *u) {
    return u->shards == 1 && !u->policy->offload_params;
}

/* Unit u stays gathered between forward and backward. */
static bool stays(const Unit *u) {
    bool root = u->module->parent == NULL;
    return in_place(u) || u->gathered[TRAINABLE] || u->gathered[FROZEN] || !u->policy->reshard_after_forward ||
           (root && u->policy->root_default);
}

/* unshard_in_backward = false is a promise about the model, and is held to it. */
static void need_promise(const Unit *u, const Param *p, const Op *reader) {
    if (u->policy->unshard_in_backward) return;
    fail(setting_source(&u->policy->settings, "unshard_in_backward", u->policy->src),
         "nn.fully_shard: unshard_in_backward = false, but the %s of %s:%d (%s) reads %s after the forward has "
         "resharded "
         "it; leave unshard_in_backward out, or write reshard_after_forward = false",
         phase_name(reader->phase), reader->src.file, reader->src.line, op_info[reader->kind].name, p->path);
}

/* ── gathers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* All-gather of v at pos; into the state where there is one. */
static Value *all_gather(Ctx *c, Unit *u, Value *v, const char *id, Phase phase, int comm, State *into, int pos) {
    Op *op = collective(c->g, OP_all_gather, u, id, phase, GATHER, comm, v);
    int64_t n = value_numel(v) * c->g->comms.at[comm].n;
    Value *out = into ? out_into(c->g, op, into) : add_out(c->g, op, v->dtype, n);
    edit_before(c->edit, pos, op);
    return out;
}

static Value *fetched(Ctx *c, Unit *u, State *shard, const char *id, Phase phase, State *into, int pos) {
    Op *op = UNIT_OP(c->g, fetch, u, arena_printf(c->g->arena, "f%s", id), phase, FETCH, .x = shard->value);
    Value *out = into ? out_into(c->g, op, into) : add_out(c->g, op, shard->dtype, shard->numel);
    edit_before(c->edit, pos, op);
    return out;
}

/* On the gather's stream: fetches need not wait for a kernel. */
static Value *cast(Ctx *c, Unit *u, Value *v, const char *id, Phase phase, int pos) {
    Op *op = fused_one(c, UNIT_OP(c->g, cast, u, id, phase, GATHER, .a = v, .dtype = u->wire), u->wire);
    edit_before(c->edit, pos, op);
    return op_result(op);
}

static Value *unsharded(Ctx *c, Unit *u, int kind, const char *id, Phase phase, State *into, int pos) {
    State *shard = kind == FROZEN ? u->frozen_wire : u->wire_shard;
    Value *v = shard->value;
    bool gathers = u->shards > 1 || u->policy->all_gather;
    if (shard->on_host) v = fetched(c, u, shard, id, phase, gathers ? NULL : into, pos);
    if (u->policy->all_gather) return gather_extended(c, u, v, kind == FROZEN, id, phase, into, pos);
    if (v->dtype != u->wire) v = cast(c, u, v, arena_printf(c->g->arena, "c%s", id), phase, pos);
    return u->shards > 1 ? all_gather(c, u, v, id, phase, u->comm_shard, into, pos) : v;
}

/* reshard_after_forward = n: each rank keeps a part as large as its group of n can put together again. */
static Value *kept_piece(Ctx *c, Unit *u, int kind) {
    Use *use = &c->uses[u->id];
    if (use->piece[kind]) return use->piece[kind];
    const char *id = arena_printf(c->g->arena, "s%d%s", u->id, kind == FROZEN ? "z" : "");
    Op *op = UNIT_OP(c->g, reshard, u, id, FORWARD, COMPUTE, .x = use->full[kind][0], .ranks = u->reshard);
    edit_after(c->edit, use->last_forward, op);
    return use->piece[kind] = add_out(c->g, op, u->wire, value_numel(use->full[kind][0]) / u->reshard);
}

/* The unit's parameters as op, at position pos, finds them: gathered for the first op of each direction that reads any.
 */
static Value *gathered(Ctx *c, const Param *p, const Op *op, int pos) {
    Unit *u = p->unit;
    Use *use = &c->uses[u->id];
    int kind = trainable(p) ? TRAINABLE : FROZEN;
    bool second = op->phase != FORWARD && !stays(u);
    Value **slot = &use->full[kind][second];
    if (*slot) return *slot;
    if (second) need_promise(u, p, op);
    State *into = u->gathered[kind];
    if (c->keeping && into && c->role != FIRST) return *slot = into->value;
    const char *id = arena_printf(c->g->arena, "g%d%s%s%s", u->id, kind == FROZEN ? "z" : "", second ? "b" : "f",
                                  use->nth ? arena_printf(c->g->arena, "%d", use->nth + 1) : "");
    if (second && u->reshard && use->full[kind][0])
        return *slot = all_gather(c, u, kept_piece(c, u, kind), id, BACKWARD, u->comm_reshard, NULL, pos);
    return *slot = unsharded(c, u, kind, id, second ? BACKWARD : FORWARD, c->keeping ? into : NULL, pos);
}

/* ── recompute far from the backward ──────────────────────────────────────────────────────────────────────────────────
 * Where a region holds several units, the first of them are made again long before their backward: in between more
 * units are gathered than may be gathered ahead. Such a one is resharded and gathered once more, so that a wrapper
 * round many units never unshards them all. */
static void note_use(Ctx *c, Unit *u, const Op *op, int pos) {
    Use *use = &c->uses[u->id];
    use->last_use = pos;
    if (stays(u)) return;
    if (c->turn_of != u) c->turn++;
    int between = c->turn - use->turn - 1, ahead = u->policy->prefetch_backward;
    bool far = between > (ahead > 1 ? ahead : 1);
    bool again = use->phase == RECOMPUTE || (op->phase == RECOMPUTE && use->phase == BACKWARD);
    if (op->phase != FORWARD && again && far && c->turn_of != u) {
        use->full[TRAINABLE][1] = use->full[FROZEN][1] = NULL;
        use->nth++;
    }
    c->turn_of = u;
    use->turn = c->turn;
    use->phase = op->phase;
}

static void find_last_forward(Ctx *c) {
    for (int i = 0; i < c->g->units.n; i++) c->uses[i].last_forward = -1;
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nin && op->phase == FORWARD && !op_is(op, T_VIEW); k++) {
            const Param *p = op->in[k] ? value_root(op->in[k])->param : NULL;
            if (p && !p->is_buffer) c->uses[p->unit->id].last_forward = i;
        }
    }
}

void use_params(Ctx *c) {
    find_last_forward(c);
    for (int i = 0; i < c->p->ops.n; i++) {
        Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k];
            const Param *p = v ? value_root(v)->param : NULL;
            if (!p || p->is_buffer) continue;
            if (op_is(op, T_VIEW)) { /* its users are mapped straight to the gathered buffer */
                edit_remove(c->edit, i);
                break;
            }
            note_use(c, p->unit, op, i);
            Value *full = gathered(c, p, op, i);
            replace_operand(op, v, new_view(c->g, full, v->dims, v->shape, v->stride, p->flat_offset + v->offset));
        }
    }
}
