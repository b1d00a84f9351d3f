/* QKV fusion: which products of one input become one, where their weights lie, and what is left apart.
 * Relies on: lua_graph.h.
 * Relied on by: make test. */
#include "lua_graph.h"

/* A block with attention and a gated MLP between an embedding and a head. Arguments: more after the layers are made,
 * the attention's results, the MLP's result, policies, the rest of nn.training. */
static const char MODEL[] =
    "local nn, optim = require 'nn', require 'optim'\n"
    "local function Linear(n, m, bias) return nn.Linear(n, m, { bias = bias or false }) end\n"
    "local attn, mlp, m = nn.module 'Attention', nn.module 'MLP', nn.module 'Net'\n"
    "attn.q, attn.k, attn.v, attn.o = Linear(16, 16, true), Linear(16, 8, true), Linear(16, 8, true), Linear(16, 16)\n"
    "mlp.gate, mlp.up, mlp.down = Linear(16, 24), Linear(16, 24), Linear(24, 16)\n"
    "m.embed, m.norm, m.attn, m.mlp, m.head = nn.Embedding(32, 16), nn.RMSNorm(16), attn, mlp, Linear(16, 32)\n"
    "%s\n"
    "local function heads(x) return x:reshape(2, 6, x:size(2) // 4, 4) end\n"
    "function attn:forward(x)\n"
    "  local q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))\n"
    "  %s\n"
    "  return self.o(nn.attention { q = q, k = k, v = v, causal = true }:reshape(2, 6, 16))\n"
    "end\n"
    "function mlp:forward(x) %s end\n"
    "function m:forward(t)\n"
    "  local x = self.embed(t)\n"
    "  x = x + self.attn(self.norm(x))\n"
    "  return self.head(x + self.mlp(self.norm(x)))\n"
    "end\n"
    "%s\n"
    "return nn.training { model = m,\n"
    "  batch = { tokens = nn.input('int32', { 2, 6 }), targets = nn.input('int32', { 2, 6 }) },\n"
    "  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,\n"
    "  optimizer = optim.AdamW { groups = { { match = { %s }, weight_decay = 0 } } } }\n";

static const char TURN[] = "q, k = nn.rope(q), nn.rope(k)",
                  GATED[] = "return self.down(nn.silu(self.gate(x)) * self.up(x))", WHOLE[] = "nn.fully_shard(m)",
                  BIASES[] = "'*.bias', '*norm*'";

static const char *text(const char *more, const char *turn, const char *gated, const char *policy, const char *match) {
    static char all[8192];
    snprintf(all, sizeof all, MODEL, more, turn, gated, policy, match);
    return all;
}

static int products(const Graph *g, const char *name, Phase phase) {
    const Program *p = program(g, name);
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) n += p->ops.at[i]->kind == OP_matmul && p->ops.at[i]->phase == phase;
    return n;
}

static const Op *first_of(const Program *p, OpKind k, Phase phase) {
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]->kind == k && p->ops.at[i]->phase == phase) return p->ops.at[i];
    cr_assert_fail("no %s", op_info[k].name);
    abort();
}

static void expect_side_by_side(const Graph *g, int n, const char *const *paths) {
    const FusedParams *j = param(g, paths[0])->fused;
    cr_assert(j && j->n == n, "%s stands alone", paths[0]);
    cr_expect_eq(j->part[0]->flat_offset % 256, 0);
    for (int k = 0; k < n; k++) {
        const Param *p = param(g, paths[k]);
        cr_expect_eq(p, j->part[k], "%s", paths[k]);
        if (k) cr_expect_eq(p->flat_offset, j->part[k - 1]->flat_offset + numel(j->part[k - 1]));
    }
}

Test(qkv_fusion, one_product_for_what_reads_one_input) {
    for (int world = 1; world <= 3; world++) {
        Graph *g = lowered(text("", TURN, GATED, WHOLE, BIASES), world);
        const Program *p = program(g, "micro");
        cr_expect_eq(products(g, "micro", FORWARD), 6);
        cr_expect_eq(products(g, "micro", BACKWARD), 12);
        cr_expect_eq(products(g, "eval", FORWARD), 6);
        cr_expect_eq(count(p, OP_sum, NULL), 1, "one bias gradient");
        cr_expect_eq(count(p, OP_concat, NULL) + count(p, OP_copy, NULL), 0);
        expect_side_by_side(g, 3, (const char *[]){"attn.q.weight", "attn.k.weight", "attn.v.weight"});
        expect_side_by_side(g, 3, (const char *[]){"attn.q.bias", "attn.k.bias", "attn.v.bias"});
        cr_expect_null(param(g, "mlp.gate.weight")->fused, "what pointwise ops read stays apart");
        const Op *op = first_of(p, OP_matmul, FORWARD), *turn = first_of(p, OP_rope, FORWARD);
        cr_expect_str_eq(op->module->path, "attn.q+k+v");
        cr_expect_eq(op->matmul.y->shape[2], 32);
        cr_expect_eq(turn->rope.heads, 6, "the values do not turn");
        cr_expect_eq(first_of(p, OP_rope, BACKWARD)->rope.heads, 6);
        cr_expect_eq(count(p, OP_rope, NULL), 2);
        expect_sound(g);
    }
}

/* Queries, keys and values turn where the product left them. */
Test(qkv_fusion, results_lie_where_their_operands_did) {
    Graph *g = lowered(text("", TURN, GATED, WHOLE, BIASES), 1);
    const Plan *plan = expect_sound(g);
    const Program *p = program(g, "micro");
    const Op *turn = first_of(p, OP_rope, FORWARD), *back = first_of(p, OP_rope, BACKWARD);
    cr_expect_eq(plan_storage(plan, turn->rope.x), plan_storage(plan, turn->rope.y));
    cr_expect_eq(plan_storage(plan, back->rope.x), plan_storage(plan, back->rope.y));
}

/* What turns stands in front, wherever it was written; parameters follow. */
Test(qkv_fusion, values_first) {
    const char *first = "local v = heads(self.v(x)); local q, k = nn.rope(heads(self.q(x))), nn.rope(heads(self.k(x)))";
    char model[8192];
    snprintf(model, sizeof model, "%s", text("", "", GATED, WHOLE, BIASES));
    const char *line = "local q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))";
    char *at = strstr(model, line), rest[8192];
    cr_assert(at);
    snprintf(rest, sizeof rest, "%s", at + strlen(line));
    snprintf(at, sizeof model - (size_t)(at - model), "%s%s", first, rest);
    Graph *g = lowered(model, 2);
    expect_side_by_side(g, 3, (const char *[]){"attn.q.weight", "attn.k.weight", "attn.v.weight"});
    cr_expect_eq(param(g, "attn.v.weight")->id + 1, param(g, "attn.q.weight")->id - 1, "used in the other order");
    cr_expect_eq(first_of(program(g, "micro"), OP_rope, FORWARD)->rope.heads, 6);
    expect_sound(g);
}

static const struct {
    const char *why, *more, *turn, *gated, *policy, *match;
    int products; /* forward */
} cases[] = {
    {"nothing turns", "", "", GATED, WHOLE, BIASES, 6},
    {"all turn", "", "q, k, v = nn.rope(q), nn.rope(k), nn.rope(v)", GATED, WHOLE, BIASES, 6},
    {"queries alone turn", "", "q = nn.rope(q)", GATED, WHOLE, BIASES, 6},
    {"by other angles", "", "q, k = nn.rope(q), nn.rope(k, { theta = 5 })", GATED, WHOLE, BIASES, 7},
    {"by a list", "",
     "local o = { width = 2, interleaved = true, scale = 2, scaling = { type = 'linear', factor = 2 } }\n"
     "q, k = nn.rope(q, o), nn.rope(k, o)",
     GATED, WHOLE, BIASES, 6},
    {"by another list", "", "q, k = nn.rope(q, { frequencies = { 1, 0.1 } }), nn.rope(k, { frequencies = { 1, 0.2 } })",
     GATED, WHOLE, BIASES, 7},
    {"in other widths", "", "q, k = nn.rope(q, { width = 2 }), nn.rope(k)", GATED, WHOLE, BIASES, 7},
    {"what a norm keeps", "", "q = nn.rms_norm(q)", GATED, WHOLE, BIASES, 7},
    {"read elsewhere", "", "nn.log_metric('q', nn.mean(q))", GATED, WHOLE, BIASES, 7},
    {"a weight used twice", "attn.v.weight = attn.k.weight", TURN, GATED, WHOLE, BIASES, 8},
    {"a unit of its own", "", TURN, GATED, "nn.fully_shard(attn.v); nn.fully_shard(m)", BIASES, 7},
    {"one is frozen", "for _, p in ipairs { attn.k.weight, attn.k.bias } do nn.freeze(p) end", TURN, GATED, WHOLE,
     BIASES, 7},
    {"another decay", "", TURN, GATED, WHOLE, "'*.k.*'", 7},
    {"a bias missing", "attn.v = Linear(16, 8)", TURN, GATED, WHOLE, BIASES, 7},
    {"ignored by sharding", "", TURN, GATED, "nn.fully_shard(m, { ignored_params = { 'attn.v.*' } })", BIASES, 7},
    {"recomputed apart", "nn.checkpoint_wrapper(attn.v)", TURN, GATED, WHOLE, BIASES, 6},
    {"of another module",
     "attn.far = nn.module 'Far'; attn.far.v = Linear(16, 8, true)\n"
     "function attn.far:forward(x) return self.v(x) end; attn.v = attn.far",
     TURN, GATED, WHOLE, BIASES, 7},
    {"sizes no multiple of 8", "attn.k, attn.v = Linear(16, 4, true), Linear(16, 4, true)", TURN, GATED, WHOLE, BIASES,
     8},
};

Test(qkv_fusion, what_is_joined_and_what_is_not) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph *g = lowered(text(cases[i].more, cases[i].turn, cases[i].gated, cases[i].policy, cases[i].match), 2);
        int n = products(g, "micro", FORWARD);
        cr_expect_eq(n, cases[i].products, "%s: %d products, not %d", cases[i].why, n, cases[i].products);
        cr_expect_eq(products(g, "eval", FORWARD), n, "%s: eval", cases[i].why);
        expect_sound(g);
    }
}

/* Frozen parameters that are joined lie side by side in the frozen buffer; nothing makes their gradient. */
Test(qkv_fusion, frozen_ones_too) {
    const char *freeze = "for _, l in ipairs { attn.q, attn.k, attn.v } do nn.freeze(l.weight); nn.freeze(l.bias) end";
    Graph *g = lowered(text(freeze, TURN, GATED, WHOLE, BIASES), 2);
    expect_side_by_side(g, 3, (const char *[]){"attn.q.weight", "attn.k.weight", "attn.v.weight"});
    cr_expect_eq(products(g, "micro", FORWARD), 6);
    cr_expect_eq(products(g, "micro", BACKWARD), 11);
    expect_sound(g);
}

/* Clones of a checkpointed call are the joined product's. */
Test(qkv_fusion, recomputed_whole) {
    Graph *g = lowered(text("nn.checkpoint_wrapper(attn)", TURN, GATED, WHOLE, BIASES), 2);
    cr_expect_eq(products(g, "micro", FORWARD), 6);
    cr_expect_eq(products(g, "micro", RECOMPUTE), 1);
    expect_sound(g);
    g = lowered(text("nn.checkpoint_wrapper(attn.k); nn.checkpoint_wrapper(mlp)", TURN, GATED, WHOLE, BIASES), 2);
    cr_expect_eq(products(g, "micro", FORWARD), 6, "what is joined does not depend on it");
    cr_expect_eq(products(g, "micro", RECOMPUTE), 2, "what is joined of two calls is kept");
    expect_sound(g);
}
