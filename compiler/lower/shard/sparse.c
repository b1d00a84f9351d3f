/* shard's gradients of sparse tables (nn.Embedding { sparse = true }): ranks exchange the rows that their tokens made
 * and the tokens themselves, and each adds up its slice. Relies on: shard.h; conflicts.c (one lookup reads the table,
 * and nothing else does); autodiff (its gradient is one op of rows by index). Relied on by: gradients.c. */
#include "shard.h"

static Value *of_all_ranks(Making *c, Unit *u, Use *use, Value *v, const char *what) {
    const Axis *all = c->g->axes.at[SC_SAMPLES];
    if (all->size == 1) return v;
    const char *id = arena_printf(c->g->arena, "x%d%s", u->id, what);
    Op *op = shard_collective(c->g, OP_all_gather, u, id, BACKWARD, TO_REDUCE, all, v);
    edit_after(c->edit, use->last_grad, op);
    use->reduced = true;
    return shard_add_out(c->g, op, v->dtype, value_numel(v) * all->size);
}

Value *shard_exchange_rows(Making *c, Unit *u, Use *use) {
    const Op *sum = c->p->ops.at[use->last_grad];
    const Value *table = use->flat_grad;
    if (sum->kind != OP_embedding_grad || sum->embedding_grad.dw != table || sum->embedding_grad.c)
        bug(sum->src, "the gradient of the sparse table of unit %s is no sum of rows", u->name);
    edit_remove(c->edit, use->last_grad);
    Value *index = of_all_ranks(c, u, use, sum->embedding_grad.index, "i");
    Value *rows = of_all_ranks(c, u, use, sum->embedding_grad.g, "");
    Op *op = UNIT_OP(c->g, coalesce, u, arena_printf(c->g->arena, "r%d", u->id), BACKWARD, shard_gradient_purpose(use),
                     .index = index, .g = rows, .rows = table->shape[0], .cols = table->shape[1],
                     .slice = shard_slice(u), .shard = u->shard->id, .replicate = u->replicate->id);
    op->module = sum->module;
    op->src = sum->src;
    edit_after(c->edit, use->last_grad, op);
    return shard_add_out(c->g, op, u->reduce, shard_slice(u));
}
