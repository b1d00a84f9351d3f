/* Rematerialize: a pointwise value of the forward that only pointwise ops of the backward read is computed a second
 * time there, if the backward keeps all that it is computed from. The second computation joins the readers' group, so
 * one tensor less is written, kept and read. It is the same expression of the same operands, rounded as before: no bit
 * changes. So is the matrix that pointwise ops make of an int8 parameter, whoever reads it in the backward: it is
 * larger than what it is made of. Relies on: the trait T_POINTWISE, Op.region. Relied on by: fuse (which groups the
 * clones with their readers).
 */
#include "edit.h"
#include "lower.h"
#include "lowering.h"

enum { NEAR = 24 }; /* readers must be this close to one another, or they end in groups of their own */

typedef struct {
    const Uses *uses;
    bool *chosen; /* by Value.id: computed a second time */
    const bool *written;
} Rematerialize;

static bool in_backward(const User *u) {
    return u->op->phase != FORWARD && !op_is(u->op, T_VIEW);
}

/* Whatever reads v in the backward is pointwise, reads v itself and no view of it, and stands close together. */
static bool read_nearby(const Rematerialize *c, const Value *v) {
    int first = -1;
    for (const User *u = uses_users(c->uses, v); u; u = u->next) {
        if (!in_backward(u)) continue;
        if (u->value != v || !op_is(u->op, T_POINTWISE)) return false;
        if (first < 0) first = uses_position(c->uses, u->op);
        if (uses_position(c->uses, u->op) - first > NEAR) return false;
    }
    return first >= 0;
}

/* v is there when the backward runs, whether or not the op that reads it is run again: it is an input or a parameter,
 * or the backward reads it anyway and does not compute it a second time. */
static bool is_kept(const Rematerialize *c, const Value *v) {
    const Value *root = v->base ? v->base : v;
    if (c->written[root->id]) return false;
    if (!root->def) return true;
    const User *u = uses_users(c->uses, root);
    while (u && !in_backward(u)) u = u->next;
    return u && !c->chosen[root->id];
}

/* v is an int8 parameter, or pointwise ops make it of one and of other parameters alone. */
static bool is_unpacked(const Rematerialize *c, const Value *v) {
    const Op *def = v->def;
    bool any = false;
    if (!def) return v->dtype == INT8;
    if (!op_is(def, T_POINTWISE) || def->phase != FORWARD) return false;
    for (int k = 0; k < def->nin; k++) {
        bool packed = is_unpacked(c, def->in[k]);
        if (!packed && value_root(def->in[k])->def) return false;
        any |= packed;
    }
    return any;
}

/* The op widens all of what it reads, which is less to keep than the result. */
static bool widens(const Rematerialize *c, const Op *op) {
    const Value *from = op_operand(op), *root = value_root(from);
    return op->nin == 1 && dtype_size(from->dtype) < dtype_size(op_result(op)->dtype) && !c->written[root->id] &&
           !c->chosen[root->id] && value_numel(root) == value_numel(op_result(op));
}

static bool may_rematerialize(const Rematerialize *c, const Op *op) {
    if (!op_is(op, T_POINTWISE) || op->phase != FORWARD || op->nin > 2) return false;
    const Value *v = op_result(op);
    if (is_unpacked(c, v)) return !uses_is_result(c->uses, v);
    if (!read_nearby(c, v) || uses_is_result(c->uses, v)) return false;
    if (widens(c, op)) return true;
    for (int k = 0; k < op->nin; k++)
        if (!is_kept(c, op->in[k]) || op->in[k] == v) return false;
    return true;
}

static Op *clone_for(Graph *g, Op *from, const Op *reader) {
    Op *op = op_new_like(g, from);
    op->id = arena_printf(g->arena, "%sm", from->id);
    op->phase = reader->phase;
    op->origin = from;
    lower_join_region(op, reader);
    for (int k = 0; k < op->nout; k++) {
        const Value *v = from->out[k];
        op->out[k] = value_new(g, v->dtype, v->dims, v->shape);
        op->out[k]->def = op;
    }
    return op;
}

typedef struct {
    Graph *g;
    Edit *edit;
    const bool *chosen;
    Value **clone; /* by Value.id */
    int nvalues;   /* clones' results have later ids */
} Cloning;

/* What the op at i reads instead of v. */
static Value *again(Cloning *c, Value *v, const Op *reader, int i) {
    if (v->id >= c->nvalues || !c->chosen[v->id]) return v;
    if (c->clone[v->id]) return c->clone[v->id];
    Op *op = clone_for(c->g, v->def, reader);
    for (int k = 0; k < op->nin; k++) op->in[k] = again(c, op->in[k], reader, i);
    edit_before(c->edit, i, op); /* its first reader */
    return c->clone[v->id] = op_result(op);
}

void lower_rematerialize(Graph *g, Program *p) {
    Uses *uses = uses_new(g, p);
    Rematerialize c = {uses, uses_value_flags(g), lower_written_states(g, p)};
    for (int i = 0; i < p->ops.n; i++)
        if (may_rematerialize(&c, p->ops.at[i])) c.chosen[op_result(p->ops.at[i])->id] = true;
    uses_free(uses);
    Cloning again_in = {g, edit_begin(g, p), c.chosen, NEW_ARRAY(g->arena, Value *, g->values.n + 1), g->values.n};
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin && op->phase != FORWARD && !op_is(op, T_VIEW); k++)
            if (op->in[k]) op->in[k] = again(&again_in, op->in[k], op, i);
    }
    edit_commit(again_in.edit);
}
