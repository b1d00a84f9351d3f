/* Makes the ops of the shard pass: of a unit, collectives, stores, groups of one.
 * Relies on: shard.h.
 * Relied on by: the other files of shard/. */
#include "../../ir/policy.h"
#include "shard.h"

Op *shard_unit_op(Graph *g, OpKind k, Unit *u, const char *id, Phase phase, Purpose purpose, const OpParts *parts) {
    Op *op = op_new(g, k);
    op->parts = *parts;
    for (int i = 0, slots = op_slot_count(op_info[k].operands); i < slots; i++)
        if (op->in[i]) op->nin = i + 1;
    op->id = id;
    op->unit = u;
    op->module = u ? u->module : g->root;
    op->src = u ? u->policy->src : g->training->optimizer->src;
    op->phase = phase;
    op->purpose = purpose;
    op->group = -1;
    return op;
}

void shard_insert(Graph *g, Program *p, int pos, Op *op) {
    push(&p->ops, g->arena, op);
    memmove(p->ops.at + pos + 1, p->ops.at + pos, sizeof *p->ops.at * (size_t)(p->ops.n - 1 - pos));
    p->ops.at[pos] = op;
}

Op *shard_collective(Graph *g, OpKind k, Unit *u, const char *id, Phase phase, Purpose purpose, const Axis *axis,
                     Value *x) {
    if (x->dims != 1) x = shard_piece(g, x, 0, value_numel(x)); /* collectives are along dimension 0 */
    Op *op = shard_unit_op(g, k, u, id, phase, purpose, &(OpParts){.in = {x}});
    INT_OF(op, comm) = mesh_group(g, axis);
    INT_OF(op, ranks) = axis->size;
    return op;
}

Value *shard_add_out(Graph *g, Op *op, Dtype d, int64_t n) {
    Value *v = value_new(g, d, 1, &n);
    v->def = op;
    op->out[op->nout++] = v;
    return v;
}

Value *shard_out_into(Graph *g, Op *op, State *s) {
    Value *v = shard_piece(g, s->value, 0, s->numel);
    v->def = op;
    return op->out[op->nout++] = v;
}

Value *shard_piece(Graph *g, Value *of, int64_t at, int64_t n) {
    int64_t stride = 1;
    return value_new_view(g, of, 1, &n, &stride, at);
}

Op *shard_fused_one(Making *c, Op *member, Dtype d) {
    Value *x = op_operand(member);
    Op *op = UNIT_OP(c->g, fused, member->unit, member->id, member->phase, member->purpose, .x = {x});
    member->out[member->nout++] = shard_add_out(c->g, op, d, value_numel(x));
    op->body = NEW_ARRAY(c->g->arena, Op *, 1);
    op->body[op->nbody++] = member;
    groups_set(c->groups, op);
    return op;
}

Op *shard_amax(Making *c, const AmaxExchange *at, Value *shard) {
    Graph *g = c->g;
    Op *op = UNIT_OP(g, amax, at->unit, arena_printf(g->arena, "amax_%s", at->id), at->phase, at->kernel,
                     .shard = shard, .axis = at->unit->shard->id);
    op->src = at->src;
    op->table = at->table;
    op->ntable = at->ntable;
    edit_before(c->edit, at->pos, op);
    return op;
}

/* Slots in fours, so that pieces stay aligned. */
Value *shard_largest(Making *c, const AmaxExchange *at, Value *shard, int n) {
    return shard_exchange(c, at, shard_add_out(c->g, shard_amax(c, at, shard), FP32, round_up(n, 4)));
}

/* Every rank's, gathered, and the largest of those. */
Value *shard_exchange(Making *c, const AmaxExchange *at, Value *own) {
    Graph *g = c->g;
    Unit *u = at->unit;
    int64_t slots = value_numel(own), shape[2] = {u->shard->size, slots}, stride[2] = {slots, 1};
    if (u->shard->size == 1) return own;
    Op *gather = shard_collective(g, OP_all_gather, u, arena_printf(g->arena, "%s.amax", at->id), at->phase,
                                  at->collective, u->shard, own);
    edit_before(c->edit, at->pos, gather);
    Value *all = shard_add_out(g, gather, FP32, slots * u->shard->size);
    Op *max = UNIT_OP(g, max, u, arena_printf(g->arena, "max_%s", at->id), at->phase, at->kernel,
                      .x = value_new_view(g, all, 2, shape, stride, 0), .over = 1 << 0);
    edit_before(c->edit, at->pos, max);
    return shard_add_out(g, max, FP32, slots);
}

Op *shard_store_op(Graph *g, Value *from, Value *to, const char *id, Phase phase, Purpose purpose, bool add, int64_t at,
                   Unit *u) {
    return UNIT_OP(g, store, u, id, phase, purpose, .value = from, .state = to, .add = add, .at = at);
}

void shard_assemble(Making *c, Unit *u, const char *id, Phase phase, Purpose purpose, Value *const *pieces, int n,
                    Value *whole, int pos, bool behind) {
    Graph *g = c->g;
    for (int at = 0; at == 0 || at < n; at += MAX_IN) {
        bool last = at + MAX_IN >= n; /* it has the result, and the name */
        const char *name = last ? id : arena_printf(g->arena, "%s_%d", id, at);
        Op *op = UNIT_OP(g, assemble, u, name, phase, purpose);
        for (; op->nin < MAX_IN && at + op->nin < n; op->nin++) op->assemble.x[op->nin] = pieces[at + op->nin];
        if (last) {
            whole->def = op;
            op->out[op->nout++] = whole;
        }
        (behind ? edit_after : edit_before)(c->edit, pos, op);
    }
}
