/* Rematerialize: a pointwise value of the forward that only pointwise ops of the backward read is computed again there,
 * where all that it is computed from is kept anyway: it joins their group, and a tensor less is written, kept and read.
 * The same expression of the same operands, rounded as before: no bit changes. Relies on: the trait T_POINTWISE,
 * Op.region. Relied on by: fuse (which groups the copies with their readers). */
#include "lower.h"
#include "lowering.h"

enum { NEAR = 24 }; /* readers must be this close to one another, or they end in groups of their own */

typedef struct {
    Graph *g;
    Program *p;
    Uses *uses;
    bool *wanted; /* by Value.id: made again */
    Value **twin; /* ... and what is read instead */
    bool *written;
} Ctx;

static bool in_backward(const User *u) {
    return u->op->phase != FORWARD && !op_is(u->op, T_VIEW);
}

/* Something in the backward reads the bytes that v owns. What is computed from a value that is made again is not. */
static bool kept(const Ctx *c, const Value *v) {
    const User *u = uses_users(c->uses, v);
    while (u && !in_backward(u)) u = u->next;
    return u && !c->wanted[v->id];
}

/* What reads v in the backward is pointwise, reads it as it lies, and stands close together. */
static bool read_nearby(const Ctx *c, const Value *v) {
    int first = -1;
    for (const User *u = uses_users(c->uses, v); u; u = u->next) {
        if (!in_backward(u)) continue;
        if (u->value != v || !op_is(u->op, T_POINTWISE)) return false;
        if (first < 0) first = uses_position(c->uses, u->op);
        if (uses_position(c->uses, u->op) - first > NEAR) return false;
    }
    return first >= 0;
}

/* There when the backward runs, whether or not v's maker is run again. */
static bool stays(const Ctx *c, const Value *v) {
    const Value *root = v->base ? v->base : v;
    if (c->written[root->id]) return false;
    return !root->def || kept(c, root);
}

static bool may_rematerialize(const Ctx *c, const Op *op) {
    if (!op_is(op, T_POINTWISE) || op->phase != FORWARD || op->nin > 2) return false;
    const Value *v = op_result(op);
    if (!read_nearby(c, v) || uses_is_result(c->uses, v)) return false;
    for (int k = 0; k < op->nin; k++)
        if (!stays(c, op->in[k]) || op->in[k] == v) return false;
    return true;
}

static Op *again(Ctx *c, Op *from, const Op *reader) {
    Op *op = op_new_like(c->g, from);
    op->id = arena_printf(c->g->arena, "%sm", from->id);
    op->phase = reader->phase;
    op->origin = from;
    lower_join_region(op, reader);
    for (int k = 0; k < op->nout; k++) {
        const Value *v = from->out[k];
        op->out[k] = value_new(c->g, v->dtype, v->dims, v->shape);
        op->out[k]->def = op;
    }
    return op;
}

/* The copies that op reads stand before it. */
static void read_again(Ctx *c, Op *op, int nvalues) {
    if (op->phase == FORWARD || !op_is(op, T_POINTWISE)) return;
    for (int k = 0; k < op->nin; k++) {
        const Value *v = op->in[k];
        if (v->id >= nvalues || !c->wanted[v->id]) continue;
        if (!c->twin[v->id]) {
            Op *made = again(c, v->def, op);
            c->twin[v->id] = op_result(made);
            push(&c->p->ops, c->g->arena, made);
        }
        op->in[k] = c->twin[v->id];
    }
}

void lower_rematerialize(Graph *g, Program *p) {
    Ctx c = {g, p, uses_new(g, p), uses_value_flags(g), NULL, lower_written_states(g, p)};
    int nvalues = g->values.n;
    c.twin = NEW_ARRAY(g->arena, Value *, nvalues + 1);
    for (int i = 0; i < p->ops.n; i++)
        if (may_rematerialize(&c, p->ops.at[i])) c.wanted[op_result(p->ops.at[i])->id] = true;
    uses_free(c.uses);
    Program old = *p;
    memset(&p->ops, 0, sizeof p->ops);
    for (int i = 0; i < old.ops.n; i++) {
        read_again(&c, old.ops.at[i], nvalues);
        push(&p->ops, g->arena, old.ops.at[i]);
    }
}
