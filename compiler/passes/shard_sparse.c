/* shard's gradients of sparse tables (nn.Embedding { sparse = true }): ranks exchange the rows that their tokens made
 * and the tokens themselves, and each adds up its slice. Relies on: shard.h; conflicts.c (one lookup reads the table,
 * and nothing else does); autodiff (its gradient is one op of rows by index). Relied on by: shard_gradients.c. */
#include "shard.h"

static Value *of_all_ranks(Ctx *c, Unit *u, const Use *use, Value *v, const char *what) {
    if (c->g->world == 1) return v;
    const char *id = arena_printf(c->g->arena, "x%d%s", u->id, what);
    Op *op = collective(c->g, OP_ALL_GATHER, u, id, BACKWARD, REDUCE, COMM_WORLD);
    add_in(op, v);
    edit_after(c->edit, use->last_grad, op);
    return add_out(c->g, op, v->dtype, value_numel(v) * c->g->world);
}

Value *exchange_rows(Ctx *c, Unit *u, const Use *use) {
    const Op *sum = c->p->ops.at[use->last_grad];
    const Value *table = use->flat_grad;
    if (sum->out[0] != table || !op_is(sum, T_ROWS_GRAD))
        bug(sum->src, "the gradient of the sparse table of unit %s is no sum of rows", u->name);
    edit_remove(c->edit, use->last_grad);
    Value *index = of_all_ranks(c, u, use, sum->in[0], "i"), *rows = of_all_ranks(c, u, use, sum->in[1], "");
    Op *op = unit_op(c->g, OP_COALESCE, u, arena_printf(c->g->arena, "r%d", u->id), BACKWARD, COMPUTE);
    op->module = sum->module;
    op->src = sum->src;
    add_in(op, index);
    add_in(op, rows);
    op->i[0] = table->shape[0];
    op->i[1] = table->shape[1];
    op->i[2] = u->shards;
    op->i[3] = u->replicas;
    op->i[4] = u->numel / u->shards;
    op->i[5] = u->shards;
    edit_after(c->edit, use->last_grad, op);
    return add_out(c->g, op, u->reduce, u->numel / u->shards);
}
