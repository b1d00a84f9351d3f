/* shard's parameters in use: gathers, and operands as views into what was gathered.
 * Relies on: shard.h.
 * Relied on by: shard.c. */
#include "shard.h"

/* Unit u stays gathered between forward and backward. */
static bool stays(const Unit *u) {
    bool root = u->module->parent == NULL;
    bool in_place = u->shards == 1 && !u->policy->offload_params;
    return in_place || !u->policy->reshard_after_forward || (root && u->policy->root_default);
}

/* unshard_in_backward = false is a promise about the model, and is held to it. */
static void need_promise(const Unit *u, const Param *p, const Op *reader) {
    if (u->policy->unshard_in_backward) return;
    fail(u->policy->src,
         "nn.fully_shard: unshard_in_backward = false, but the %s of %s:%d (%s) reads %s after the forward has "
         "resharded "
         "it; leave unshard_in_backward out, or write reshard_after_forward = false",
         phase_name(reader->phase), reader->src.file, reader->src.line, op_info[reader->kind].name, p->path);
}

static Value *unsharded(Ctx *c, Unit *u, bool frozen, const char *id, Phase phase, int pos) {
    State *shard = frozen ? u->frozen_wire : u->wire_shard;
    Value *v = shard->value;
    if (shard->on_host) {
        Op *op = unit_op(c->g, OP_FETCH, u, arena_printf(c->g->arena, "f%s", id), phase, FETCH);
        add_in(op, v);
        v = add_out(c->g, op, shard->dtype, shard->numel);
        edit_before(c->edit, pos, op);
    }
    if (u->policy->all_gather) return gather_extended(c, u, v, frozen, id, phase, pos);
    if (u->shards > 1) {
        Op *op = unit_op(c->g, OP_ALL_GATHER, u, id, phase, GATHER);
        op->i[0] = COMM_SHARD;
        add_in(op, v);
        v = add_out(c->g, op, shard->dtype, shard->numel * u->shards);
        edit_before(c->edit, pos, op);
    }
    return v;
}

/* The unit's parameters as op, at position pos, finds them: gathered for the first op of each direction that reads any.
 */
static Value *gathered(Ctx *c, const Param *p, const Op *op, int pos) {
    Unit *u = p->unit;
    bool is_frozen = !trainable(p), second = op->phase != FORWARD && !stays(u);
    Value **slot = &c->uses[u->id].full[is_frozen][second];
    if (*slot) return *slot;
    if (second) need_promise(u, p, op);
    const char *id = arena_printf(c->g->arena, "g%d%s%s", u->id, is_frozen ? "z" : "", second ? "b" : "f");
    return *slot = unsharded(c, u, is_frozen, id, second ? BACKWARD : FORWARD, pos);
}

void use_params(Ctx *c) {
    for (int i = 0; i < c->p->ops.n; i++) {
        Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k];
            const Param *p = value_root(v)->param;
            if (!p || p->is_buffer) continue;
            if (op_is(op, T_VIEW)) { /* its users are mapped straight to the gathered buffer */
                edit_remove(c->edit, i);
                break;
            }
            Value *full = gathered(c, p, op, i);
            replace_operand(op, v, new_view(c->g, full, v->dims, v->shape, v->stride, p->flat_offset + v->offset));
            c->uses[p->unit->id].last_use = i;
        }
    }
}
