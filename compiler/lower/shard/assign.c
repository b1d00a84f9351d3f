/* shard's part for nn.assign: a step's first program stores over what was kept, later ones add to it, and the last one
 * ends with what buffers get. Relies on: the front end's g->assign, shard.h. Relied on by: shard.c. */
#include "shard.h"

#include <math.h>

void shard_begin_assigns(Graph *g, Program *p, bool first) {
    for (int i = 0; i < p->ops.n && first; i++) {
        Op *op = p->ops.at[i];
        const State *s = op->kind == OP_store ? value_root(op->store.state)->state : NULL;
        if (!s || s->cls != S_ASSIGN) continue;
        if (INT_OF(op, add)) {
            INT_OF(op, add) = false;
            continue;
        }
        /* A maximum is of what was kept too: it begins below all numbers. */
        const char *id = arena_printf(g->arena, "%s_low", op->id);
        Op *low = UNIT_OP(g, full, NULL, id, FORWARD, TO_COMPUTE, .dtype = s->dtype, .dims = 1, .shape = {s->numel},
                          .value = -INFINITY);
        Value *v = shard_add_out(g, low, s->dtype, s->numel);
        id = arena_printf(g->arena, "%s_first", op->id);
        shard_insert(g, p, 0, shard_store_op(g, v, s->value, id, FORWARD, TO_COMPUTE, false, 0, NULL));
        shard_insert(g, p, 0, low);
        i += 2;
    }
}

void shard_assign(Making *c, Value *coefficient) {
    Graph *g = c->g;
    if (!g->assign) return;
    const Program *p = edit_clone_program(g, g->assign, "assign", NULL);
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        op->phase = OPTIMIZER;
        for (int b = 0; b < op->nbody; b++) op->body[b]->phase = OPTIMIZER;
        if (op->purpose == TO_COMPUTE) op->purpose = TO_UPDATE;
        if (g->training->scaler && op->kind == OP_store) op_set(op, SLOT_OF(op, coefficient), coefficient);
        edit_before(c->edit, c->p->ops.n, op);
    }
}
