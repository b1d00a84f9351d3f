/* The pass quantize with recipe = 'block': shapes of scales, which of them are of squares, gradients in e4m3, values
 * that units of two recipes read. Relies on: lua_graph.h. Relied on by: make test. */
#include "lua_graph.h"

/* Two units that read the same input, the second with dtypes and recipe of its own. */
static const char MODEL[] =
    "local nn, optim = require 'nn', require 'optim'\n"
    "local m, a, b = nn.module 'Net', nn.module 'A', nn.module 'B'\n"
    "a.up, b.down = nn.Linear(144, 272), nn.Linear(144, 272, { bias = false })\n"
    "m.embed, m.a, m.b = nn.Embedding(32, 144), a, b\n"
    "function a:forward(x) return self.up(x) end\n"
    "function b:forward(x) return self.down(x) end\n"
    "function m:forward(t) local x = self.embed(t) return self.a(x) + self.b(x) end\n"
    "nn.fully_shard(a, { mp_policy = { param_dtype = 'bf16', matmul_dtype = 'fp8', recipe = 'block' } })\n"
    "nn.fully_shard(b, { mp_policy = { param_dtype = 'bf16', %s } })\n"
    "nn.fully_shard(m, { mp_policy = { param_dtype = 'bf16' } })\n"
    "return nn.training { model = m,\n"
    "  batch = { tokens = nn.input('int32', { 2, 80 }), targets = nn.input('int32', { 2, 80 }) },\n"
    "  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,\n"
    "  optimizer = optim.AdamW {} }\n";

static const char *text(const char *policy) {
    static char all[4096];
    snprintf(all, sizeof all, MODEL, policy);
    return all;
}

static void expect_scales(const Value *v, int64_t rows, int64_t columns) {
    cr_expect(v->dtype == FP32 && v->dims == 2 && v->shape[0] == rows && v->shape[1] == columns,
              "[%lld,%lld], not [%lld,%lld]", (long long)v->shape[0], (long long)v->shape[1], (long long)rows,
              (long long)columns);
}

/* 160 tokens, 144 inputs, 272 outputs: 2, 2 and 3 blocks. */
Test(quantize_blocks, scales_of_rows_and_of_squares) {
    const Program *p = program(lowered(text("matmul_dtype = 'fp8', recipe = 'block'"), 1), "micro");
    int products = 0, forward = 0;
    cr_expect_eq(count(p, OP_quantize, NULL) + count(p, OP_absmax, NULL), 0);
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_matmul) continue;
        const Value *a = op->matmul.a, *b = op->matmul.b;
        products++;
        forward += op->phase == FORWARD;
        cr_expect(a->dtype == FP8_E4M3 && b->dtype == FP8_E4M3, "%s", op->id);
        cr_expect(op->matmul.trans_b && !op->matmul.trans_a, "%s is not along its inner dimension", op->id);
        int64_t k = b->shape[1], n = b->shape[0], m = value_numel(a) / k;
        expect_scales(op->matmul.scale_a, (k + 127) / 128, m);
        if (op->matmul.square_b)
            expect_scales(op->matmul.scale_b, (n + 127) / 128, 4);
        else
            expect_scales(op->matmul.scale_b, (k + 127) / 128, n);
        cr_expect_eq(op->matmul.square_b != 0, m == 160, "%s: all but the weights' gradients read a weight", op->id);
    }
    cr_expect_eq(products, 6);
    cr_expect_eq(forward, 2);
}

Test(quantize_blocks, an_input_is_quantized_once) {
    const Program *p = program(lowered(text("matmul_dtype = 'fp8', recipe = 'block'"), 1), "micro");
    int inputs = 0, weights = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_quantize_blocks || op->phase != FORWARD) continue;
        inputs += !op->quantize_blocks.square, weights += op->quantize_blocks.square != 0;
        cr_expect(op->quantize_blocks.both, "%s: both copies are made in one pass", op->id);
    }
    cr_expect_eq(inputs, 1);
    cr_expect_eq(weights, 2);
}

Test(quantize_blocks, units_of_two_recipes_share_an_input) {
    const Program *p = program(lowered(text("matmul_dtype = 'fp8'"), 1), "micro");
    cr_expect_eq(count(p, OP_quantize_blocks, NULL), 3, "input, weight, gradient");
    cr_expect_eq(count(p, OP_quantize, NULL), 3);
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_matmul) continue;
        cr_expect_eq(op->matmul.scale_a->dims, op->matmul.scale_b->dims, "%s mixes recipes", op->id);
    }
}

Test(quantize_blocks, a_plan_of_it_is_sound) {
    for (int world = 1; world <= 2; world++)
        expect_sound(lowered(text("matmul_dtype = 'fp8', recipe = 'block'"), world));
}
