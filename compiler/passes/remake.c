/* remake: a pointwise value of the forward that only pointwise ops of the backward read is computed again there, where
 * all that it is computed from is kept anyway: it joins their group, and a tensor less is written, kept and read. The
 * same expression of the same operands, rounded as before: no bit changes. Relies on: the trait T_POINTWISE, Op.region.
 * Relied on by: fuse (which groups the copies with their readers). */
#include "lowering.h"
#include "passes.h"

enum { NEAR = 24 }; /* readers must be this close to one another, or they end in groups of their own */

typedef struct {
    Graph *g;
    Program *p;
    bool *kept;        /* by id of a root: something in the backward reads it */
    bool *otherwise;   /* by id of a root: and something that is not pointwise does, or a view stands between */
    int *first, *last; /* by id of a root: positions of its readers in the backward */
    bool *written, *result;
} Ctx;

static void note(Ctx *c, const Op *op, int at) {
    for (int k = 0; k < op->nin && op->phase != FORWARD && !op_is(op, T_VIEW); k++) {
        if (!op->in[k]) continue;
        Value *root = value_root(op->in[k]);
        if (!c->kept[root->id]) c->first[root->id] = at;
        c->last[root->id] = at;
        c->kept[root->id] = true;
        c->otherwise[root->id] |= root != op->in[k] || !op_is(op, T_POINTWISE);
    }
}

/* There when the backward runs, whether or not v's maker is run again. */
static bool stays(const Ctx *c, const Value *v) {
    const Value *root = v->base ? v->base : v;
    if (c->written[root->id]) return false;
    return !root->def || c->kept[root->id];
}

static bool may_remake(const Ctx *c, const Op *op) {
    if (!op_is(op, T_POINTWISE) || op->phase != FORWARD || op->nin > 2) return false;
    const Value *v = op_result(op);
    if (!c->kept[v->id] || c->otherwise[v->id] || c->result[v->id]) return false;
    if (c->last[v->id] - c->first[v->id] > NEAR) return false;
    for (int k = 0; k < op->nin; k++)
        if (!stays(c, op->in[k]) || op->in[k] == v) return false;
    return true;
}

static Op *again(Ctx *c, Op *from, const Op *reader) {
    Op *op = new_op_like(c->g, from);
    op->id = arena_printf(c->g->arena, "%sm", from->id);
    op->phase = reader->phase;
    op->origin = from;
    join_region(op, reader);
    for (int k = 0; k < op->nout; k++) {
        const Value *v = from->out[k];
        op->out[k] = new_value(c->g, v->dtype, v->dims, v->shape);
        op->out[k]->def = op;
    }
    return op;
}

static Ctx begin(Graph *g, Program *p) {
    Ctx c = {g, p, value_flags(g), value_flags(g), NULL, NULL, written_states(g, p), value_flags(g)};
    c.first = NEW_ARRAY(g->arena, int, g->values.n + 1);
    c.last = NEW_ARRAY(g->arena, int, g->values.n + 1);
    flag_results(g, p, c.result);
    for (int i = 0; i < p->ops.n; i++) note(&c, p->ops.at[i], i);
    return c;
}

void remake(Graph *g, Program *p) {
    Ctx c = begin(g, p);
    Value **twin = NEW_ARRAY(g->arena, Value *, g->values.n + 1);
    bool *wanted = value_flags(g);
    int n = g->values.n;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (!may_remake(&c, op)) continue;
        wanted[op_result(op)->id] = true;
        c.kept[op_result(op)->id] = false; /* what is computed from it is not remade from it */
    }
    Program old = *p;
    memset(&p->ops, 0, sizeof p->ops);
    for (int i = 0; i < old.ops.n; i++) {
        Op *op = old.ops.at[i];
        for (int k = 0; k < op->nin && op->phase != FORWARD && op_is(op, T_POINTWISE); k++) {
            Value *v = op->in[k];
            if (v->id >= n || !wanted[v->id]) continue;
            if (!twin[v->id]) {
                Op *made = again(&c, v->def, op);
                twin[v->id] = op_result(made);
                push(&p->ops, g->arena, made);
            }
            op->in[k] = twin[v->id];
        }
        push(&p->ops, g->arena, op);
    }
}
