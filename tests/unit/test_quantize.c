/* The pass quantize: which products multiply in 8 bits, what is quantized once, what the backward makes anew.
 * Relies on: lua_graph.h.
 * Relied on by: make test. */
#include "lua_graph.h"
#include "sc_amax.h"

/* A block of linears between an embedding and a head. Arguments: what is said of the model after it is made, the dtypes
 * of the block's policy. */
static const char MODEL[] =
    "local nn, optim = require 'nn', require 'optim'\n"
    "local block, m = nn.module 'Block', nn.module 'Net'\n"
    "block.gate, block.up = nn.Linear(64, 128, { bias = false }), nn.Linear(64, 128, { bias = false })\n"
    "block.down, block.narrow = nn.Linear(128, 64), nn.Linear(64, 16)\n"
    "m.embed, m.block, m.head = nn.Embedding(32, 64), block, nn.Linear(64, 64)\n"
    "%s\n"
    "function block:forward(x)\n"
    "  local y = self.down(nn.silu(self.gate(x)) * self.up(x))\n"
    "  return y + self.narrow(x):sum(-1, true)\n"
    "end\n"
    "function m:forward(t) return self.head(self.block(self.embed(t))) end\n"
    "nn.fully_shard(block, { mp_policy = { param_dtype = 'bf16', %s } })\n"
    "nn.fully_shard(m, { mp_policy = { param_dtype = 'bf16' } })\n"
    "return nn.training { model = m,\n"
    "  batch = { tokens = nn.input('int32', { 2, 32 }), targets = nn.input('int32', { 2, 32 }) },\n"
    "  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,\n"
    "  optimizer = optim.AdamW {} }\n";

static const char *text(const char *more, const char *policy) {
    static char all[4096];
    snprintf(all, sizeof all, MODEL, more, policy);
    return all;
}

static int products(const Program *p, Phase phase, bool narrow) {
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        n += op->kind == OP_matmul && op->phase == phase && (op->matmul.scale_a != NULL) == narrow;
    }
    return n;
}

static int quantized(const Program *p, Phase phase, Dtype d, bool both) {
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->phase != phase) continue;
        n += op->kind == OP_quantize && op->quantize.y->dtype == d && op->quantize.both == both;
        n += 2 *
             (op->kind == OP_quantize_gates && op->quantize_gates.dgate->dtype == d && op->quantize_gates.both == both);
    }
    return n;
}

Test(quantize, linears_of_the_unit_that_are_wide_enough) {
    const Program *p = program(lowered(text("", "matmul_dtype = 'fp8'"), 1), "micro");
    cr_expect_eq(products(p, FORWARD, true), 3);
    cr_expect_eq(products(p, FORWARD, false), 2, "the narrow linear, and the head of another unit");
    cr_expect_eq(products(p, BACKWARD, true), 6);
    cr_expect_eq(quantized(p, FORWARD, FP8_E4M3, true), 2 + 3,
                 "the input of gate and up once, that of down; weights, which are kept for the backward");
    cr_expect_eq(quantized(p, BACKWARD, FP8_E5M2, true), 3, "gradients");
    cr_expect_eq(quantized(p, BACKWARD, FP8_E4M3, false), 0);
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_matmul || !op->matmul.scale_a) continue;
        cr_expect(!op->matmul.trans_a && op->matmul.trans_b, "%s is not along its inner dimension", op->id);
        cr_expect(op->matmul.y->dtype == FP32 || op->matmul.y->dtype == BF16, "%s", op->id);
    }
}

/* How many kernels of a phase cost as this variant does. */
static int costs(const Program *p, Phase phase, const char *variant) {
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->phase == phase && op_info[op->kind].cost) n += !strcmp(op_info[op->kind].cost(op).variant, variant);
    }
    return n;
}

/* What is measured apart: sums of e4m3 by e5m2 are other kernels' than those of e4m3 alone, and transposes are written
 * in shorter runs. */
Test(quantize, variants_name_both_dtypes_and_what_is_turned) {
    const Program *p = program(lowered(text("", "matmul_dtype = 'fp8', reduce_dtype = 'fp32'"), 1), "micro");
    cr_expect_eq(costs(p, FORWARD, "fp8_e4m3>bf16 nt"), 3);
    cr_expect_eq(costs(p, BACKWARD, "fp8_e5m2*fp8_e4m3>fp32 nt"), 3);
    cr_expect_eq(costs(p, BACKWARD, "fp8_e5m2*fp8_e4m3>bf16 nt") + costs(p, BACKWARD, "fp8_e5m2*fp8_e4m3>bf16 nt add"),
                 3);
    cr_expect_eq(costs(p, FORWARD, "both"), 1 + 3);
    cr_expect_eq(costs(p, FORWARD, "both silu_mul"), 1);
    cr_expect_eq(costs(p, BACKWARD, "both"), 1, "a gate's gradients are another kernel's");
    const char *offloaded =
        "matmul_dtype = 'fp8', reduce_dtype = 'fp32' }, offload = { params = true, optimizer = true";
    cr_expect_eq(costs(program(lowered(text("", offloaded), 1), "micro"), BACKWARD, "turn"), 3, "fetched again");
    p = program(lowered(text("block.down.weight = nn.parameter { 128, 64 }\n"
                             "block.down.bias = nil\n"
                             "function block.down:forward(x) return nn.matmul(x, self.weight) end",
                             "matmul_dtype = 'fp8', reduce_dtype = 'fp32'"),
                        1),
                "micro");
    cr_expect_eq(costs(p, FORWARD, "both"), 1 + 3, "the forward reads the transpose of down's");
    cr_expect_eq(costs(p, BACKWARD, "fp8_e4m3*fp8_e5m2>fp32 nt"), 1);
}

Test(quantize, without_the_option_nothing) {
    const Program *p = program(lowered(text("", "reduce_dtype = 'fp32'"), 1), "micro");
    cr_expect_eq(count(p, OP_quantize, NULL) + count(p, OP_absmax, NULL), 0);
}

Test(quantize, eval_turns_nothing) {
    const Program *p = program(lowered(text("", "matmul_dtype = 'fp8'"), 1), "eval");
    cr_expect_eq(products(p, FORWARD, true), 3);
    cr_expect_eq(quantized(p, FORWARD, FP8_E4M3, true), 0);
}

Test(quantize, a_frozen_weight_has_no_turned_operands) {
    const Program *p = program(lowered(text("nn.freeze(block.down)", "matmul_dtype = 'fp8'"), 1), "micro");
    cr_expect_eq(quantized(p, FORWARD, FP8_E4M3, true), 1 + 2);
    cr_expect_eq(quantized(p, BACKWARD, FP8_E5M2, true), 2);
    cr_expect_eq(products(p, BACKWARD, true), 5);
    p = program(lowered(text("nn.freeze(block.gate)", "matmul_dtype = 'fp8'"), 1), "micro");
    cr_expect_eq(quantized(p, FORWARD, FP8_E4M3, true), 2 + 2, "up reads what gate does");
    cr_expect_eq(quantized(p, BACKWARD, FP8_E5M2, true), 2);
}

Test(quantize, recomputed_blocks_keep_the_magnitudes_of_weights) {
    const char *on_host[] = {"matmul_dtype = 'fp8'", "matmul_dtype = 'fp8' }, offload = { optimizer = true"};
    for (int k = 0; k < 2; k++) {
        const char *again = "nn.checkpoint_wrapper(block)";
        const Program *p = program(lowered(text(again, on_host[k]), 1), "micro");
        int weights = 0;
        for (int i = 0; i < p->ops.n; i++) {
            const Op *op = p->ops.at[i];
            if (op->kind == OP_absmax && op->phase == RECOMPUTE)
                cr_expect_null(op->absmax.x->param, "%s: of a parameter", op->id);
            weights += op->kind == OP_absmax && op->phase == FORWARD && !op->region;
        }
        cr_expect_eq(weights, k ? 3 : 0, "the update finds them where it has the wire");
    }
}

/* GPT-2's matrices are [inputs, outputs]: the product takes the transpose, and the gradient still lies as the matrix
 * does. */
/* ── scales of steps before ──────────────────────────────────────────────────────────────────────────────────────── */
#define DELAYED "matmul_dtype = 'fp8', recipe = 'delayed'"

Test(quantize, a_history_has_a_site_for_each_tensor) {
    const Graph *g = lowered(text("", DELAYED), 1);
    const Program *p = program(g, "micro");
    cr_assert_not_null(g->amax_history);
    cr_expect_eq(g->amax_history->shape[0], 5, "two inputs, three gradients");
    cr_expect_eq(g->amax_seen->numel, 5);
    cr_expect_eq(count(p, OP_absmax, NULL), 0, "weights are taken as they are, as the update has found them");
    cr_expect_eq(count(p, OP_update_amax, NULL), 1);
    bool taken[5] = {false};
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_quantize) continue;
        bool weight = value_root(op->quantize.x)->state != NULL;
        cr_assert_eq(op->quantize.seen == NULL, weight, "%s", op->id);
        if (weight) continue;
        int64_t site = op->quantize.seen->offset;
        cr_expect_eq(value_root(op->quantize.seen), g->amax_seen->value);
        cr_expect_eq(value_root(op->quantize.amax), g->amax_history->value);
        cr_expect_eq(op->quantize.amax->offset, site * 17, "the first of the site's row");
        cr_assert(site >= 0 && site < 5);
        cr_expect(!taken[site], "%s: a site is read once", op->id);
        taken[site] = true;
    }
}

/* A product that quantizes its own sums is kept by the name of a product, and by the path of each. */
Test(quantize, a_kept_product_is_not_multiplied_again) {
    const char *lists[] = {"",
                           "{ save = { 'matmul' } }",
                           "{ save = { 'gate' } }",
                           "{ save = { 'up' } }",
                           "{ save = { 'quantize' } }",
                           "{ save = { 'down' } }"};
    for (int k = 0; k < 6; k++) {
        char again[96];
        snprintf(again, sizeof again, "nn.checkpoint_wrapper(block%s%s)", k ? ", " : "", lists[k]);
        const Program *p = program(lowered(text(again, DELAYED), 1), "micro");
        int products = 0;
        for (int i = 0; i < p->ops.n; i++)
            products += p->ops.at[i]->kind == OP_matmul_quantize && p->ops.at[i]->phase == RECOMPUTE;
        cr_expect_eq(products, k == 0 || k == 5, "%s", lists[k]);
    }
}

Test(quantize, a_loss_that_is_validated_takes_tensors_as_they_are) {
    const Program *p = program(lowered(text("", DELAYED), 1), "eval");
    cr_expect_eq(count(p, OP_absmax, NULL), 2, "and weights as the update has found them");
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]->kind == OP_quantize) cr_expect_null(p->ops.at[i]->quantize.seen);
}

Test(quantize, gates_write_8_bits) {
    const Program *p = program(lowered(text("", DELAYED), 1), "micro");
    const Op *gates = NULL, *gated = NULL, *bias = NULL;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind == OP_quantize_gates) gates = op;
        if (op->kind == OP_matmul_quantize) gated = op;
        if (op->kind == OP_quantize && op->quantize.sum) bias = op;
    }
    cr_assert(gates && gated && bias);
    cr_expect_eq(gated->matmul_quantize.f, SC_GATED);
    cr_expect_eq(value_numel(gated->matmul_quantize.gate), value_numel(gated->matmul_quantize.z));
    cr_expect_eq(gated->matmul_quantize.turned->shape[0], 128);
    cr_expect_eq(products(p, FORWARD, true), 1, "of gate and up none is left");
    cr_expect_not_null(gates->quantize_gates.dup_turned);
    cr_expect_neq(gates->quantize_gates.dup_seen->offset, gates->quantize_gates.dgate_seen->offset);
    cr_expect_eq(count(p, OP_silu_mul, NULL) + count(p, OP_silu_mul_grad, NULL), 0);
    cr_expect_eq(bias->quantize.sums->shape[0], 1, "of 64 rows one sum for each column");
    cr_expect_eq(bias->quantize.sums->shape[1], 64);
}

Test(quantize, a_gate_that_something_else_reads_is_stored) {
    const char *twice = "local down = nn.module 'Down'\n"
                        "down.linear = nn.Linear(128, 64)\n"
                        "function down:forward(x) return self.linear(x) + x:sum(-1, true) end\n"
                        "block.down = down\n";
    const Program *p = program(lowered(text(twice, DELAYED), 1), "micro");
    cr_expect_eq(quantized(p, FORWARD, FP8_E4M3, true), 2 + 3);
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]->kind == OP_quantize) cr_expect_eq(p->ops.at[i]->quantize.f, 0);
}

/* Down behind a norm, of a kind; what the linear makes of y comes after `return`. */
static const Program *with_norm(const char *norm, const char *result, const char *policy, const char *name) {
    char more[512];
    snprintf(more, sizeof more,
             "local down = nn.module 'Down'\n"
             "down.norm, down.linear = nn.%s, nn.Linear(128, 64)\n"
             "function down:forward(x)\n"
             "  local y = self.norm(x)\n"
             "  return %s\n"
             "end\n"
             "block.down = down\n",
             norm, result);
    return program(lowered(text(more, policy), 1), name);
}

static const Op *of_kind(const Program *p, OpKind kind, bool normed) {
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind == kind && (!normed || OPERAND_OF(op, rstd))) return op;
    }
    return NULL;
}

Test(quantize, norms_write_8_bits) {
    const char *norms[] = {"RMSNorm(128)", "LayerNorm(128)", "LayerNorm(128, { bias = false })"};
    for (int k = 0; k < 3; k++) {
        const Program *p = with_norm(norms[k], "self.linear(y)", DELAYED, "micro");
        const Op *rows = of_kind(p, OP_norm_statistics, false), *op = of_kind(p, OP_quantize, true);
        cr_assert(rows && op, "%s", norms[k]);
        cr_expect_eq(count(p, OP_rms_norm, NULL) + count(p, OP_layer_norm, NULL), 0, "%s", norms[k]);
        cr_expect_eq(op->quantize.x, rows->norm_statistics.x);
        cr_expect_eq(op->quantize.rstd, rows->norm_statistics.rstd);
        cr_expect_eq(op->quantize.mean, rows->norm_statistics.mean);
        cr_expect_eq(op->quantize.mean != NULL, k > 0);
        cr_expect_not_null(op->quantize.w);
        cr_expect_eq(op->quantize.b != NULL, k == 1);
        cr_expect(op->quantize.both && op->quantize.seen);
    }
}

Test(quantize, a_norm_that_nothing_trains_writes_8_bits) {
    const Program *p = with_norm("RMSNorm(128)", "self.linear(y)", DELAYED, "eval");
    const Op *most = of_kind(p, OP_absmax, true), *op = of_kind(p, OP_quantize, true);
    cr_assert(most && op);
    cr_expect_eq(most->absmax.x, op->quantize.x);
    cr_expect_eq(most->absmax.rstd, op->quantize.rstd);
    cr_expect(most->absmax.w && op->quantize.w);
}

Test(quantize, a_norm_that_something_else_reads_is_stored) {
    const Program *p = with_norm("RMSNorm(128)", "self.linear(y) + y:sum(-1, true)", DELAYED, "micro");
    cr_expect_eq(count(p, OP_rms_norm, NULL), 1);
    cr_expect_null(of_kind(p, OP_quantize, true));
}

Test(quantize, gradients_of_turned_weights_are_not_copied) {
    const char *turned = "block.down.weight = nn.parameter { 128, 64 }\n"
                         "block.down.bias = nil\n"
                         "function block.down:forward(x) return nn.matmul(x, self.weight) end";
    const Program *p = program(lowered(text(turned, "matmul_dtype = 'fp8'"), 1), "micro");
    cr_expect_eq(products(p, BACKWARD, true), 6);
    const Program *straight = program(lowered(text("", "matmul_dtype = 'fp8'"), 1), "micro");
    cr_expect_eq(count(p, OP_copy, NULL), count(straight, OP_copy, NULL));
}

/* ── units that are gathered in 8 bits ───────────────────────────────────────────────────────────────────────────── */
static const Unit *unit_named(const Graph *g, const char *name) {
    for (int i = 0; i < g->units.n; i++)
        if (!strcmp(g->units.at[i]->name, name)) return g->units.at[i];
    return NULL;
}

static int gathers(const Program *p, const Unit *u, Dtype d) {
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        n += op->kind == OP_all_gather && op->unit == u && op->purpose == TO_UNSHARD && op_result(op)->dtype == d;
    }
    return n;
}

Test(quantize, weights_travel_in_8_bits) {
    for (int recipe = 0; recipe < 2; recipe++) {
        const Graph *g = lowered(text("", recipe ? DELAYED : "matmul_dtype = 'fp8'"), 2);
        const Program *p = program(g, "micro");
        const Unit *part = unit_named(g, "block fp8"), *rest = unit_named(g, "block");
        cr_assert(part && rest && rest->next == part);
        cr_expect_eq(part->params.n, 3, "gate, up, down");
        cr_expect_eq(rest->params.n, 3, "a bias, and the narrow linear");
        cr_expect_eq(part->wire, FP8_E4M3);
        cr_expect_eq(rest->wire, BF16);
        cr_expect_eq(part->wire_shard->numel, 3 * 64 * 128 / 2);
        cr_expect_eq(part->wire_shard->dtype, FP8_E4M3);
        cr_expect_eq(part->scales[0]->numel, 3 * SC_SCALES_APART, "of three matrices");
        cr_expect_eq(gathers(p, part, FP8_E4M3), 2, "for the forward, and for the backward");
        cr_expect_eq(gathers(p, rest, BF16), 2);
        cr_expect_eq(count(p, OP_quantize_shard, part), 1, "once a step");
        cr_expect_eq(count(program(g, "start"), OP_quantize_shard, part), 1);
        int turned = 0;
        for (int i = 0; i < p->ops.n; i++) {
            const Op *op = p->ops.at[i];
            turned += op->kind == OP_copy && op->copy.y->dtype == FP8_E4M3 && op->phase == BACKWARD;
            bool looks = op->kind == OP_quantize || op->kind == OP_absmax;
            cr_expect(!looks || !value_root(op_operand(op))->param, "%s reads a parameter", op->id);
            if (op->kind != OP_matmul || !op->matmul.scale_b || op->phase != FORWARD) continue;
            cr_expect_eq(value_root(op->matmul.scale_b)->state, part->scales[0], "%s", op->id);
            cr_expect_eq(op->matmul.scale_b->offset * 4 % 16, 0, "%s: cuBLASLt reads it there alone", op->id);
        }
        cr_expect_eq(turned, 3, "for the backward");
        cr_expect_eq(gathers(program(g, "eval"), part, FP8_E4M3), 1);
    }
}

/* The update that writes weights raises their magnitudes from 0; what reads them finds those of a matrix at its slot.
 */
static void expect_largest(const Graph *g, const Unit *u, int ranks, const char *program_name, int kept) {
    const Program *p = program(g, program_name);
    const Value *magnitudes = u->largest[0] ? u->largest[0]->value : NULL;
    int zeroed = -1, raised = -1, read = 0;
    cr_assert(magnitudes && u->largest[0]->cls == S_WIRE);
    cr_expect_eq(u->largest[0]->numel, 4, "of three matrices, in fours");
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        cr_expect(op->kind != OP_absmax || !value_root(op->absmax.x)->state, "%s looks at a weight", op->id);
        if (op->kind == OP_zero && op->zero.state == magnitudes) zeroed = i;
        if (op->kind == OP_adam && op->adam.largest == magnitudes) raised = i;
        if (op->kind != OP_quantize || value_root(op->quantize.amax) != magnitudes) continue;
        cr_expect_eq(zeroed, -1, "%s reads them behind the update", op->id);
        cr_expect(op->quantize.amax->offset >= 0 && op->quantize.amax->offset < 3);
        read |= 1 << op->quantize.amax->offset;
    }
    cr_expect_eq(read, ranks == 1 ? kept : 0);
    bool updates = !strcmp(program_name, "micro");
    cr_expect_eq(zeroed >= 0, updates);
    cr_expect(raised > zeroed || !updates);
}

Test(quantize, the_update_finds_the_magnitudes_of_weights) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        const Graph *g = lowered(text("", "matmul_dtype = 'fp8'"), ranks);
        const Unit *u = unit_named(g, ranks == 1 ? "block" : "block fp8");
        expect_largest(g, u, ranks, "micro", 7);
        expect_largest(g, u, ranks, "eval", 7);
        cr_expect_eq(count(program(g, "start"), OP_amax, u), 1, "before the first step they are looked for");
        cr_expect_eq(count(program(g, "micro"), OP_amax, NULL), 0);
    }
}

/* Of frozen matrices they are found once, and of none that another kernel casts for the products. */
Test(quantize, magnitudes_of_weights_that_no_update_writes) {
    const Graph *g = lowered(text("nn.freeze(block.down)", "matmul_dtype = 'fp8'"), 1);
    const Unit *u = unit_named(g, "block");
    cr_assert(u->largest[0] && u->largest[1]);
    cr_expect_eq(count(program(g, "start"), OP_amax, u), 2);
    g = lowered(text("", "matmul_dtype = 'fp8', reduce_dtype = 'fp32' }, offload = { params = true"), 1);
    cr_expect_null(unit_named(g, "block")->largest[0]);
    cr_expect_gt(count(program(g, "micro"), OP_absmax, NULL), 3);
}

/* Without clipping a unit is updated as soon as nothing reads it. */
Test(quantize, scales_are_written_when_nothing_reads_them_any_more) {
    const Graph *g = lowered(text("", "matmul_dtype = 'fp8'"), 2);
    const Program *p = program(g, "micro");
    int reads = 0, written = -1;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind == OP_quantize_shard) written = i;
        if (op->kind != OP_matmul || !op->matmul.scale_b || value_root(op->matmul.scale_b)->state == NULL) continue;
        cr_expect_eq(written, -1, "%s reads scales behind the update", op->id);
        reads++;
    }
    cr_expect_eq(reads, 6, "three products of each direction");
    cr_expect_gt(written, 0);
}

Test(quantize, what_something_else_reads_travels_wide) {
    const char *tied = "m.head.weight = block.up.weight\n"
                       "m.head.bias = false\n"
                       "function m:forward(t) return self.head(self.block(self.embed(t))) end\n";
    const Graph *g = lowered(text(tied, "matmul_dtype = 'fp8'"), 2);
    const Unit *part = unit_named(g, "block fp8");
    cr_assert_not_null(part);
    cr_expect_eq(part->params.n, 2, "gate, down");
}

Test(quantize, a_unit_of_one_matrix_has_one_part) {
    const char *alone = "nn.fully_shard(block.gate, { mp_policy = { param_dtype = 'bf16', matmul_dtype = 'fp8' } })";
    const Graph *g = lowered(text(alone, "matmul_dtype = 'fp8'"), 2);
    const Unit *u = unit_named(g, "block.gate");
    cr_assert_not_null(u);
    cr_expect_null(u->next);
    cr_expect_eq(u->wire, FP8_E4M3);
}

/* The parts are those of every memory policy, since they are an order of sums; the wire is not. */
Test(quantize, state_on_the_host_travels_wide_in_the_same_parts) {
    const char *offloads = "matmul_dtype = 'fp8' }, offload = { optimizer = true";
    const Graph *g = lowered(text("", offloads), 2);
    const Unit *part = unit_named(g, "block fp8");
    cr_assert_not_null(part);
    cr_expect_eq(part->wire, BF16);
    cr_expect_eq(gathers(program(g, "micro"), part, BF16), 2);
}

Test(quantize, one_rank_and_blocks_have_no_such_part) {
    cr_expect_null(unit_named(lowered(text("", "matmul_dtype = 'fp8'"), 1), "block fp8"));
    cr_expect_null(unit_named(lowered(text("", "matmul_dtype = 'fp8', recipe = 'block'"), 2), "block fp8"));
}

Test(quantize, a_plan_of_it_is_sound) {
    for (int world = 1; world <= 2; world++) expect_sound(lowered(text("", "matmul_dtype = 'fp8'"), world));
}
