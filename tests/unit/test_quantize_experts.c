/* The pass quantize with routed experts: what their products read, which rows have a part in scales, how turned
 * matrices lie. Relies on: lua_graph.h. Relied on by: make test. */
#include "lua_graph.h"

/* A layer of experts between an embedding and a head. Arguments: more options of nn.MoE, what is said of the model, the
 * dtypes of the layer's policy. */
static const char MODEL[] =
    "local nn, optim = require 'nn', require 'optim'\n"
    "local block, m = nn.module 'Block', nn.module 'Net'\n"
    "block.moe = nn.MoE(64, 80, { experts = 4, top = 2, %s })\n"
    "m.embed, m.block, m.head = nn.Embedding(32, 64), block, nn.Linear(64, 64)\n"
    "%s\n"
    "function block:forward(x) return x + (self.moe(x)) end\n"
    "function m:forward(t) return self.head(self.block(self.embed(t))) end\n"
    "nn.fully_shard(block, { mp_policy = { param_dtype = 'bf16', reduce_dtype = 'fp32', %s } })\n"
    "nn.fully_shard(m, { mp_policy = { param_dtype = 'bf16' } })\n"
    "return nn.training { model = m,\n"
    "  batch = { tokens = nn.input('int32', { 2, 32 }), targets = nn.input('int32', { 2, 32 }) },\n"
    "  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,\n"
    "  optimizer = optim.AdamW {} }\n";

static const Program *micro(const char *options, const char *more, const char *policy) {
    static char all[4096];
    snprintf(all, sizeof all, MODEL, options, more, policy);
    return program(lowered(all, 1), "micro");
}

/* Products of groups, and how many of them are of 8 bits. */
static int products(const Program *p, Phase phase, OpKind kind, int *narrow) {
    int n = 0;
    *narrow = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != kind || op->phase != phase) continue;
        *narrow += OPERAND_OF(op, scale_a) != NULL;
        n++;
    }
    return n;
}

static void expect(const Program *p, int forward, int rows, int over) {
    int narrow;
    cr_expect_eq(products(p, FORWARD, OP_grouped_matmul, &narrow), 2);
    cr_expect_eq(narrow, forward);
    cr_expect_eq(products(p, BACKWARD, OP_grouped_matmul, &narrow), 2);
    cr_expect_eq(narrow, rows);
    products(p, BACKWARD, OP_grouped_matmul_grad, &narrow);
    cr_expect_eq(narrow, over);
}

Test(quantize_experts, all_products_of_the_unit) {
    expect(micro("", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'"), 2, 2, 2);
    expect(micro("", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8', recipe = 'delayed'"), 2, 2, 2);
    expect(micro("", "", "matmul_expert_dtype = 'fp8'"), 2, 2, 2);
    expect(micro("", "nn.freeze(block.moe)", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'"), 2, 2, 0);
}

Test(quantize_experts, what_leaves_them_wide) {
    expect(micro("shared = 64", "", "matmul_dtype = 'fp8'"), 0, 0, 0);
    expect(micro("shared = 64", "", "matmul_dtype = 'fp8', recipe = 'block'"), 0, 0, 0);
}

/* Matrices lie as they are stored in one direction and turned, all as one, in the other. */
static void expect_turned(const Program *p, Phase turned) {
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_grouped_matmul) continue;
        const Value *a = op->grouped_matmul.a, *b = op->grouped_matmul.b, *y = op->grouped_matmul.y;
        cr_expect_eq(b->dims, op->phase == turned ? 2 : 3, "%s", op->id);
        cr_expect_eq(b->shape[b->dims == 2 ? 0 : 1], y->shape[1], "%s", op->id);
        cr_expect_eq(b->shape[b->dims - 1], (b->dims == 2 ? 4 : 1) * a->shape[1], "%s", op->id);
        cr_expect(op->grouped_matmul.trans_b && y->dtype == BF16, "%s", op->id);
        cr_expect_eq(a->dtype, op->phase == FORWARD ? FP8_E4M3 : FP8_E5M2, "%s", op->id);
    }
}

Test(quantize_experts, matrices_lie_along_the_inner_dimension) {
    expect_turned(micro("", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'"), BACKWARD);
    const Program *p = micro("transposed = true", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'");
    expect_turned(p, FORWARD);
    cr_expect_eq(count(p, OP_copy, NULL),
                 count(micro("", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'"), OP_copy, NULL),
                 "gradients of turned matrices are not copied");
}

/* Gradients of matrices are made in the dtype that they are summed in, with the matrices' shapes. */
Test(quantize_experts, gradients_over_rows) {
    for (int transposed = 0; transposed < 2; transposed++) {
        const Program *p =
            micro(transposed ? "transposed = true" : "", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'");
        int n = 0;
        for (int i = 0; i < p->ops.n; i++) {
            const Op *op = p->ops.at[i];
            if (op->kind != OP_grouped_matmul_grad) continue;
            const Value *a = op->grouped_matmul_grad.a, *c = op->grouped_matmul_grad.c, *y = op->grouped_matmul_grad.y;
            cr_expect(a->shape[1] == 128 && c->shape[1] == 128, "%s: rows are 64 tokens' two slots each", op->id);
            cr_expect(y->dims == 3 && y->shape[1] == a->shape[0] && y->shape[2] == c->shape[0], "%s", op->id);
            cr_expect_eq(y->dtype, FP32, "%s", op->id);
            cr_expect_eq(a->dtype, transposed ? FP8_E4M3 : FP8_E5M2, "%s", op->id);
            cr_expect_eq(c->dtype, transposed ? FP8_E5M2 : FP8_E4M3, "%s", op->id);
            n++;
        }
        cr_expect_eq(n, 2);
    }
}

/* Of rows the route's counts say which have a part; a parameter has all. */
Test(quantize_experts, scales_are_of_rows_that_groups_have) {
    const Program *p = micro("", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'");
    int rows = 0, matrices = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_absmax && op->kind != OP_quantize) continue;
        bool param = value_root(OPERAND_OF(op, x))->param != NULL || OPERAND_OF(op, x)->dims == 3;
        cr_expect_eq(OPERAND_OF(op, counts) != NULL, !param, "%s", op->id);
        *(param ? &matrices : &rows) += 1;
    }
    cr_expect_eq(rows, 2 * 4, "two inputs and two gradients");
    cr_expect_eq(matrices, 2, "copies that serve both directions; the update finds magnitudes");
}

Test(quantize_experts, a_history_has_a_site_for_each_tensor) {
    static char all[4096];
    snprintf(all, sizeof all, MODEL, "", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8', recipe = 'delayed'");
    const Graph *g = lowered(all, 1);
    cr_assert_not_null(g->amax_history);
    cr_expect_eq(g->amax_history->shape[0], 4, "two inputs and two gradients");
}

Test(quantize_experts, matrices_are_gathered_in_8_bits) {
    static char all[4096];
    snprintf(all, sizeof all, MODEL, "", "", "matmul_expert_dtype = 'fp8'");
    const Graph *g = lowered(all, 2);
    cr_expect_eq(param(g, "block.moe.experts.gate_up_proj")->unit->wire, FP8_E4M3);
    cr_expect_eq(param(g, "block.moe.experts.down_proj")->unit->wire, FP8_E4M3);
    cr_expect_neq(param(g, "block.moe.gate.weight")->unit->wire, FP8_E4M3, "the router's");
}

Test(quantize_experts, costs_name_both_dtypes) {
    const Program *p = micro("", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'");
    int n[3] = {0};
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_grouped_matmul && op->kind != OP_grouped_matmul_grad) continue;
        Cost c = op_info[op->kind].cost(op);
        n[0] += !strcmp(c.variant, "fp8_e4m3>bf16 nt");
        n[1] += !strcmp(c.variant, "fp8_e5m2*fp8_e4m3>bf16 nt");
        n[2] += !strcmp(c.variant, "fp8_e5m2*fp8_e4m3>fp32 nt");
        cr_expect_eq(c.flops, 2 * c.key[0] * c.key[1] * c.key[2] * 4, "%s", op->id);
        cr_expect(c.key[3] == 4 && c.key[op->kind == OP_grouped_matmul ? 0 : 2] == 32, "%s: rows of a group", op->id);
    }
    cr_expect(n[0] == 2 && n[1] == 2 && n[2] == 2, "%d, %d, %d", n[0], n[1], n[2]);
}

Test(quantize_experts, a_plan_of_it_is_sound) {
    static char all[4096];
    for (int world = 1; world <= 2; world++) {
        snprintf(all, sizeof all, MODEL, "bias = true", "", "matmul_dtype = 'fp8', matmul_expert_dtype = 'fp8'");
        expect_sound(lowered(all, world));
    }
}
