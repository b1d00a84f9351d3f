/* shard's matrices that products in 8 bits scale. The update finds their largest magnitudes. What those products alone
 * read is a wire in 8 bits: a rank's piece is quantized when the master has changed, by scales of whole matrices, and
 * is what gathers read. Relies on: lower/narrow.c (Unit.wire, Param.looked_at), shard.h. Relied on by: layout.c,
 * init.c, optimizer.c; gather.c, which gives products what was gathered, and scales. */
#include "../../ir/policy.h"
#include "sc_amax.h"
#include "shard.h"

bool shard_travels_narrow(const Unit *u) {
    return u->wire == FP8_E4M3; /* no param_dtype has 8 bits */
}

/* Joined parameters are one matrix, of one scale. */
static bool first_of_matrix(const Param *p, bool frozen) {
    return shard_trainable(p) != frozen && p->looked_at && (!p->fused || p->fused->part[0] == p);
}

int shard_narrow_matrices(const Unit *u, bool frozen) {
    int n = 0;
    for (int i = 0; i < u->params.n; i++) n += first_of_matrix(u->params.at[i], frozen);
    return n;
}

int shard_slot(const Param *p) {
    const Param *first = p->fused ? p->fused->part[0] : p;
    int slot = 0;
    if (!first->looked_at) return -1;
    for (int i = 0; p->unit->params.at[i] != first; i++)
        slot += first_of_matrix(p->unit->params.at[i], !shard_trainable(p));
    return slot;
}

static const Value *whole(const Param *p) {
    return p->fused ? p->fused->value : p->value;
}

/* As ops.def has it of amax: no wires, then a row a matrix. */
static const int64_t *table_of(Graph *g, const Unit *u, bool frozen, int *n) {
    VEC(int64_t) t = {0};
    push(&t, g->arena, 0);
    for (int i = 0; i < u->params.n; i++) {
        const Param *p = u->params.at[i];
        if (!first_of_matrix(p, frozen)) continue;
        push(&t, g->arena, p->flat_offset);
        push(&t, g->arena, value_numel(whole(p)));
        push(&t, g->arena, p->id);
    }
    *n = t.n;
    return t.at;
}

/* Without an exchange state on the host is looked at where it is read, as is what an update leaves to a cast. */
bool shard_keeps_largest(const Unit *u, bool frozen) {
    const UnitPolicy *p = u->policy;
    bool alone = u->shard->size == 1 && !p->all_gather && !p->offload_params && !p->offload_optimizer;
    if (!shard_narrow_matrices(u, frozen) || !(alone || shard_travels_narrow(u))) return false;
    if (frozen) return alone;
    OpKind update = op_by_name(u->optimizer->rule->update);
    bool casts = alone && u->wire != u->dtype && (u->dtype != FP32 || op_find(update, PART_OPERAND, "wire") < 0);
    return op_find(update, PART_OPERAND, "largest") >= 0 && !casts;
}

static AmaxExchange exchange_of(Making *c, Unit *u, bool frozen, Phase phase, int pos) {
    AmaxExchange at = {.unit = u,
                       .id = arena_printf(c->g->arena, "w%s%d", frozen ? "z" : "", u->id),
                       .src = u->policy->src,
                       .phase = phase,
                       .kernel = phase == OPTIMIZER ? TO_UPDATE : TO_INITIALIZE,
                       .collective = TO_EXCHANGE_UPDATE,
                       .pos = pos};
    at.table = table_of(c->g, u, frozen, &at.ntable);
    return at;
}

void shard_find_largest(Making *c, Unit *u, bool frozen) {
    AmaxExchange at = exchange_of(c, u, frozen, INIT, 0);
    const State *wire = frozen ? u->frozen_wire : u->wire_shard;
    shard_out_into(c->g, shard_amax(c, &at, wire->value), u->largest[frozen]);
}

void shard_quantize(Making *c, Unit *u, bool frozen, Phase phase, int pos) {
    Graph *g = c->g;
    State *from = frozen ? u->frozen : u->master, *wire = frozen ? u->frozen_wire : u->wire_shard;
    AmaxExchange at = exchange_of(c, u, frozen, phase, pos);
    State *found = phase == OPTIMIZER ? u->largest[frozen] : NULL;
    int n = shard_narrow_matrices(u, frozen);
    Value *amax = found ? shard_exchange(c, &at, found->value) : shard_largest(c, &at, from->value, n);
    Op *op = UNIT_OP(g, quantize_shard, u, at.id, phase, at.kernel, .shard = from->value, .amax = amax,
                     .axis = u->shard->id, .of = u->computes);
    op->table = at.table;
    op->ntable = at.ntable;
    shard_out_into(g, op, wire);
    shard_out_into(g, op, u->scales[frozen]);
    edit_before(c->edit, pos, op);
}

/* ── what a program reads of them ────────────────────────────────────────────────────────────────────────────────── */
/* The parameter, of a unit that travels so, that op, of this kind, reads. */
static const Param *read_by(const Op *op, OpKind kind) {
    const Param *p = op && op->kind == kind ? value_root(op_operand(op))->param : NULL;
    return p && !p->is_buffer && shard_travels_narrow(p->unit) ? p : NULL;
}

const Param *shard_narrow_read(const Value *v) {
    const Op *op = v && !v->base ? v->def : NULL;
    const Param *p = read_by(op, OP_quantize);
    return p && !INT_OF(op, turn) && v == RESULT_OF(op, y) ? p : NULL;
}

/* The parameter whose largest magnitude op finds, where a state has it. */
static const Param *known_largest(const Op *op) {
    bool plain = op && op->kind == OP_absmax && op->nin == 1 && !op->absmax.f;
    const Param *p = plain ? value_root(op_operand(op))->param : NULL;
    bool all = p && !p->is_buffer && !shard_travels_narrow(p->unit) && p->unit->largest[!shard_trainable(p)];
    return all && p->looked_at && value_numel(op_operand(op)) == value_numel(whole(p)) ? p : NULL;
}

bool shard_narrow_known(const Op *op) {
    return known_largest(op) || read_by(op, OP_absmax) || (read_by(op, OP_quantize) && !INT_OF(op, turn));
}

Value *shard_narrow_scale(Graph *g, Value *v) {
    const Op *op = v ? v->def : NULL;
    const Param *p = read_by(op, OP_quantize), *found = known_largest(op);
    if (found)
        return value_new_view(g, found->unit->largest[!shard_trainable(found)]->value, 0, NULL, NULL,
                              shard_slot(found));
    if (!p || v != RESULT_OF(op, scale)) return v;
    State *scales = p->unit->scales[!shard_trainable(p)];
    return value_new_view(g, scales->value, 0, NULL, NULL, SC_SCALES_APART * shard_slot(p));
}

Op *shard_narrow_turned(Graph *g, const Op *op, Value *full) {
    const Param *p = read_by(op, OP_quantize);
    if (!p || !INT_OF(op, turn)) return NULL;
    Value *y = op_result(op);
    int64_t across[] = {1, y->shape[0]};
    Op *turn = op_new_like(g, op);
    turn->kind = OP_copy;
    memset(&turn->parts, 0, sizeof turn->parts);
    turn->copy.a = value_new_view(g, full, 2, y->shape, across, p->flat_offset);
    turn->copy.y = y;
    turn->nin = turn->nout = 1;
    y->def = turn;
    return turn;
}
