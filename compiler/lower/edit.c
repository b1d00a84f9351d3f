/* Editing a program's op list: insertions collected by position and carried out at once; operand substitution; cloning.
 * Relies on: ir.h.
 * Relied on by: qkv_fusion, autodiff, rematerialize, recompute, shard, offload. */
#include "edit.h"

typedef VEC(Op *) Ops;
struct Edit {
    Graph *g;
    Program *p;
    Ops *before, *after;
    bool *removed;
};

Edit *edit_begin(Graph *g, Program *p) {
    Edit *e = NEW(g->arena, Edit);
    e->g = g;
    e->p = p;
    e->before = NEW_ARRAY(g->arena, Ops, p->ops.n + 1);
    e->after = NEW_ARRAY(g->arena, Ops, p->ops.n + 1);
    e->removed = NEW_ARRAY(g->arena, bool, p->ops.n + 1);
    return e;
}

void edit_before(Edit *e, int pos, Op *op) {
    push(&e->before[pos], e->g->arena, op);
}
void edit_after(Edit *e, int pos, Op *op) {
    push(&e->after[pos], e->g->arena, op);
}
void edit_remove(Edit *e, int pos) {
    e->removed[pos] = true;
}

void edit_commit(Edit *e) {
    Program old = *e->p;
    memset(&e->p->ops, 0, sizeof e->p->ops);
    for (int i = 0; i <= old.ops.n; i++) {
        for (int k = 0; k < e->before[i].n; k++) push(&e->p->ops, e->g->arena, e->before[i].at[k]);
        if (i < old.ops.n && !e->removed[i]) push(&e->p->ops, e->g->arena, old.ops.at[i]);
        for (int k = 0; k < e->after[i].n; k++) push(&e->p->ops, e->g->arena, e->after[i].at[k]);
    }
}

void edit_replace_operand(Op *op, Value *from, Value *to) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] == from) op->in[k] = to;
    for (int b = 0; b < op->nbody; b++) edit_replace_operand(op->body[b], from, to);
}

/* ── cloning: values made in the program get copies; states, inputs and parameters are shared ─────────────────────────
 */
typedef struct {
    Graph *g;
    Value **twin; /* by Value.id */
} Cloning;

static Value *clone_value(Cloning *t, Value *v) {
    Graph *g = t->g;
    if (!v->def && !v->base) return v; /* a state, an input or a parameter */
    if (t->twin[v->id]) return t->twin[v->id];
    Value *c = NEW(g->arena, Value);
    *c = *v;
    c->id = g->values.n;
    push(&g->values, g->arena, c);
    t->twin[v->id] = c;
    if (v->base) c->base = clone_value(t, v->base);
    return c;
}

static Op *clone_op(Cloning *t, const Op *o) {
    Op *c = op_new_like(t->g, o);
    c->made = o->made;
    for (int k = 0; k < c->nin; k++)
        if (c->in[k]) c->in[k] = clone_value(t, c->in[k]);
    for (int k = 0; k < c->nout; k++) {
        c->out[k] = clone_value(t, c->out[k]);
        c->out[k]->def = c;
    }
    if (c->workspace) c->workspace = clone_value(t, c->workspace);
    if (c->nbody) c->body = NEW_ARRAY(t->g->arena, Op *, c->nbody);
    for (int b = 0; b < c->nbody; b++) {
        Op *member = c->body[b] = clone_op(t, o->body[b]);
        for (int k = 0; k < member->nout; k++) member->out[k]->def = member->out[k]->internal ? member : c;
    }
    return c;
}

Program *edit_clone_program(Graph *g, const Program *p, const char *name, Value *const **twins) {
    Cloning t = {g, NEW_ARRAY(g->arena, Value *, g->values.n + 1)};
    Program *c = NEW(g->arena, Program);
    c->name = name;
    c->scaled = p->scaled;
    for (int i = 0; i < p->ops.n; i++) push(&c->ops, g->arena, clone_op(&t, p->ops.at[i]));
    if (p->loss) c->loss = clone_value(&t, p->loss);
    if (p->logits) c->logits = clone_value(&t, p->logits);
    if (twins) *twins = t.twin;
    return c;
}
