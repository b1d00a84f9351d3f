/* shard's parameters in use: gathers, and operands as views into what was gathered.
 * Relies on: shard.h.
 * Relied on by: shard.c. */
#include "../../ir/policy.h"
#include "shard.h"

enum { TRAINABLE, FROZEN };

/* Unit u stays gathered between forward and backward. */
static bool stays(const Unit *u) {
    const UnitPolicy *p = u->policy;
    bool whole_on_device = u->shard->size == 1 && !p->offload_params, is_root = u->module->parent == NULL;
    return whole_on_device || u->gathered[TRAINABLE] || u->gathered[FROZEN] || !p->reshard_after_forward ||
           (is_root && p->root_default);
}

/* ── gathers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* All-gather of v at pos; into the state where there is one. */
static Value *all_gather(Making *c, Unit *u, Value *v, const char *id, Phase phase, const Axis *axis, State *into,
                         int pos) {
    Op *op = shard_collective(c->g, OP_all_gather, u, id, phase, TO_UNSHARD, axis, v);
    int64_t n = value_numel(v) * axis->size;
    edit_before(c->edit, pos, op);
    return into ? shard_out_into(c->g, op, into) : shard_add_out(c->g, op, v->dtype, n);
}

/* The parameters from the wire shard: fetched if it lies in host memory, cast, and gathered. */
static Value *unshard(Making *c, Unit *u, int kind, const char *id, Phase phase, State *into, int pos) {
    Graph *g = c->g;
    State *shard = kind == FROZEN ? u->frozen_wire : u->wire_shard;
    Value *v = shard->value;
    bool gathers = u->shard->size > 1 || u->policy->all_gather;
    if (shard->on_host) {
        Purpose purpose = gathers || shard->dtype != u->wire ? TO_FETCH_SHARD : TO_FETCH_UNIT;
        Op *op = UNIT_OP(g, fetch, u, arena_printf(g->arena, "f%s", id), phase, purpose, .x = v);
        v = into && !gathers ? shard_out_into(g, op, into) : shard_add_out(g, op, shard->dtype, shard->numel);
        edit_before(c->edit, pos, op);
    }
    if (u->policy->all_gather) return shard_gather_extended(c, u, v, kind == FROZEN, id, phase, into, pos);
    if (v->dtype != u->wire) { /* on the gather stream, so that fetches need not wait for a kernel */
        const char *name = arena_printf(g->arena, "c%s", id);
        Op *op = shard_fused_one(c, UNIT_OP(g, cast, u, name, phase, TO_UNSHARD, .a = v, .dtype = u->wire), u->wire);
        edit_before(c->edit, pos, op);
        v = op_result(op);
    }
    return u->shard->size > 1 ? all_gather(c, u, v, id, phase, u->shard, into, pos) : v;
}

/* The unit's parameters as op, at position pos, finds them: gathered for the first op of each direction that reads any.
 */
static Value *gathered(Making *c, const Param *p, const Op *op, int pos) {
    Graph *g = c->g;
    Unit *u = p->unit;
    Use *use = &c->uses[u->id];
    int kind = shard_trainable(p) ? TRAINABLE : FROZEN;
    bool again = op->phase != FORWARD && !stays(u); /* a second time, for the backward */
    Value **slot = &use->full[kind][again], *forward = use->full[kind][0];
    if (*slot) return *slot;
    if (again && !u->policy->unshard_in_backward) /* a promise about the model, and it is held to it */
        fail(setting_source(&u->policy->settings, "unshard_in_backward", u->policy->src),
             "nn.fully_shard: unshard_in_backward = false, but the %s of %s:%d (%s) reads %s after the forward has "
             "resharded it; leave unshard_in_backward out, or write reshard_after_forward = false",
             phase_name(op->phase), op->src.file, op->src.line, op_info[op->kind].name, p->path);
    State *into = c->keeping ? u->gathered[kind] : NULL;
    if (into && c->role != FIRST) return *slot = into->value;
    const char *suffix = kind == FROZEN ? "z" : "";
    const char *nth = use->regathers ? arena_printf(g->arena, "%d", use->regathers + 1) : "";
    const char *id = arena_printf(g->arena, "g%d%s%s%s", u->id, suffix, again ? "b" : "f", nth);
    if (!again || !u->reshard || !forward)
        return *slot = unshard(c, u, kind, id, again ? BACKWARD : FORWARD, into, pos);
    /* reshard_after_forward = n: each rank keeps a piece of such a size that its group of n ranks holds everything */
    if (!use->piece[kind]) {
        const char *name = arena_printf(g->arena, "s%d%s", u->id, suffix);
        Op *keep = UNIT_OP(g, reshard, u, name, FORWARD, TO_KEEP_PIECE, .x = forward, .axis = u->reshard->id);
        edit_after(c->edit, use->last_forward, keep);
        use->piece[kind] = shard_add_out(g, keep, u->wire, value_numel(forward) / u->reshard->size);
    }
    return *slot = all_gather(c, u, use->piece[kind], id, BACKWARD, u->reshard, NULL, pos);
}

/* Records that op reads the unit, and decides whether the unit stays gathered until then. A checkpointed call may hold
 * several units. The first of them are recomputed long before their own backward. If in between more other units are
 * used than may be gathered ahead, the unit is resharded after the earlier use and gathered again here. So a
 * checkpointed wrapper round many units never holds all of them gathered at once. */
static void note_use(Making *c, Unit *u, const Op *op, int pos) {
    Use *use = &c->uses[u->id];
    use->last_use = pos;
    if (stays(u)) return;
    bool another = c->turn_of != u;
    if (another) c->turn++;
    int between = c->turn - use->turn - 1; /* turns of other units since this one's last */
    int ahead = u->policy->prefetch_backward > 1 ? u->policy->prefetch_backward : 1;
    bool recomputes = use->phase == RECOMPUTE || (op->phase == RECOMPUTE && use->phase == BACKWARD);
    if (op->phase != FORWARD && recomputes && another && between > ahead) {
        use->full[TRAINABLE][1] = use->full[FROZEN][1] = NULL;
        use->regathers++;
    }
    c->turn_of = u;
    use->turn = c->turn;
    use->phase = op->phase;
}

/* The sharded parameter whose bytes v is, or NULL. */
static const Param *param_read(const Value *v) {
    const Param *narrow = shard_narrow_read(v), *p = v ? value_root(v)->param : NULL;
    return narrow ? narrow : p && !p->is_buffer ? p : NULL;
}

/* Its users are mapped straight to the gathered buffer. */
static bool is_gathered(const Op *op) {
    return op_is(op, T_VIEW) || shard_narrow_known(op);
}

void shard_use_params(Making *c) {
    for (int i = 0; i < c->g->units.n; i++) c->uses[i].last_forward = -1;
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nin && op->phase == FORWARD && !is_gathered(op); k++) {
            const Param *p = param_read(op->in[k]);
            if (p) c->uses[p->unit->id].last_forward = i;
        }
    }
    for (int i = 0; i < c->p->ops.n; i++) {
        Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            Value *v = shard_narrow_scale(c->g, op->in[k]);
            if (v != op->in[k]) c->uses[value_root(v)->state->unit->id].last_use = i; /* the update writes it anew */
            op->in[k] = v;
            const Param *p = param_read(v);
            if (!p) continue;
            if (is_gathered(op)) {
                edit_remove(c->edit, i);
                break;
            }
            note_use(c, p->unit, op, i);
            Value *full = gathered(c, p, op, i);
            Op *turned = shard_narrow_turned(c->g, op, full);
            if (turned) {
                edit_remove(c->edit, i);
                edit_before(c->edit, i, turned);
                break;
            }
            edit_replace_operand(op, v,
                                 value_new_view(c->g, full, v->dims, v->shape, v->stride, p->flat_offset + v->offset));
        }
    }
}
