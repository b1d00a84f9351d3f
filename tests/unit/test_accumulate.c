/* The pass accumulate: where terms of a weight's gradient lie.
 * Relies on: lua_graph.h.
 * Relied on by: make test. */
#include "lua_graph.h"

/* What the head's product makes lies where the gradient of the table will, unless the unit's buffer has much else. */
Test(accumulate, a_tied_heads_gradient_lies_in_the_units_buffer) {
    for (int alone = 0; alone < 2; alone++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "local nn, optim = require 'nn', require 'optim'\n"
                 "local m = nn.module 'Net'\n"
                 "m.embed, m.up, m.down = nn.Embedding(512, 32), nn.Linear(32, 512), nn.Linear(512, 32)\n"
                 "function m:forward(t) return nn.linear(self.down(self.up(self.embed(t))), self.embed.weight) end\n"
                 "%s nn.fully_shard(m)\n"
                 "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }),\n"
                 "  u = nn.input('int32', { 2, 4 }) }, optimizer = optim.AdamW {},\n"
                 "  loss = function(m, b) return nn.cross_entropy(m(b.t), b.u) end }\n",
                 alone ? "nn.fully_shard(m.up) nn.fully_shard(m.down)" : "");
        Graph *g = lowered(text, 2);
        const Op *rows = NULL;
        Program *p = program(g, "micro");
        for (int k = 0; k < p->ops.n; k++)
            if (p->ops.at[k]->kind == OP_embedding_grad) rows = p->ops.at[k];
        cr_assert(rows && rows->embedding_grad.c);
        const Value *c = rows->embedding_grad.c, *dw = rows->embedding_grad.dw;
        cr_expect(dw->base && (alone ? c->base == dw->base && c->offset == dw->offset : !c->base));
        expect_sound(g);
    }
}
