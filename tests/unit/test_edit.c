/* edit: insertions and removals at positions of a program, and copies of programs.
 * Relies on: Criterion; the compiler up to shard.
 * Relied on by: make test. */
#include "lower/edit.h"
#include "lua_graph.h"

static Op *named(Graph *g, const char *id) {
    Op *op = op_new(g, OP_full);
    op->id = id;
    return op;
}

Test(edit, insertions_keep_the_order_of_calls) {
    Graph *g = graph_new(arena_new());
    Program p = {.name = "p"};
    for (int i = 0; i < 3; i++) push(&p.ops, g->arena, named(g, arena_printf(g->arena, "%d", i)));
    Edit *e = edit_begin(g, &p);
    edit_after(e, 0, named(g, "b"));
    edit_before(e, 1, named(g, "d"));
    edit_after(e, 0, named(g, "c"));
    edit_before(e, 0, named(g, "a"));
    edit_before(e, 1, named(g, "e"));
    edit_remove(e, 1);
    edit_after(e, 1, named(g, "f"));
    edit_before(e, 3, named(g, "z"));
    edit_commit(e);
    Str s = {.arena = g->arena};
    for (int i = 0; i < p.ops.n; i++) str_add(&s, p.ops.at[i]->id);
    cr_expect_str_eq(s.s, "a0bcdef2z");
}

/* A clone shares states, inputs and parameters with its original, and no value besides. */
Test(edit, clones_have_values_of_their_own) {
    Graph *g = lowered(
        "local nn, optim = require 'nn', require 'optim'\n"
        "local m = nn.module 'Net'\n"
        "m.up, m.down = nn.Linear(4, 8), nn.Linear(8, 4)\n"
        "function m:forward(x) return self.down(nn.relu(self.up(x))) end\n"
        "nn.fully_shard(m)\n"
        "return nn.training { model = m, batch = { x = nn.input('fp32', { 2, 4 }) }, optimizer = optim.AdamW {},\n"
        "  loss = function(m, b) return nn.mean(m(b.x)) end }\n",
        2);
    Program *a = program(g, "micro"), *b = edit_clone_program(g, a, "again", NULL);
    cr_assert_eq(a->ops.n, b->ops.n);
    for (int i = 0; i < a->ops.n; i++) {
        const Op *x = a->ops.at[i], *y = b->ops.at[i];
        cr_assert(x != y && x->kind == y->kind && x->nin == y->nin && x->nout == y->nout && !strcmp(x->id, y->id));
        cr_expect(x->made == y->made && x->serial != y->serial, "%s: a copy is of the pass that made the original",
                  x->id);
        for (int k = 0; k < x->nout; k++) cr_expect(x->out[k] != y->out[k] && (y->out[k]->def == y || y->nbody));
        for (int k = 0; k < x->nin; k++)
            cr_expect_eq(x->in[k] == y->in[k], !x->in[k] || (!x->in[k]->def && !x->in[k]->base));
        for (int m = 0; m < x->nbody; m++) cr_expect_neq(op_result(x->body[m]), op_result(y->body[m]));
    }
    g->programs.n = 0; /* graph_check looks at what is listed */
    push(&g->programs, g->arena, b);
    graph_check(g, "clone");
}
