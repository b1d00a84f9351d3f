/* Rules of attention: what it costs, which kernels compute it, the workspaces of these.
 * Relies on: compiler/ir, Criterion. Relied on by: make test. */
#include "ir/rules.h"
#include "schema/attention.h"
#include "schema/workspace.h"
#include "small_graph.h"

static void expect_value(const Value *v, const char *text) {
    cr_expect_str_eq(value_str(g->arena, v), text);
}

/* Pairs of a query and a key that it sees, counted one by one. */
static double pairs_seen(int queries, int keys, int before, int after, bool causal) {
    double n = 0;
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < keys; j++)
            n += (!before || j > i - before) && (!after || j < i + after) && (!causal || j <= i);
    return n;
}

Test(attention, costs_the_pairs_of_its_window, .init = start) {
    static const struct {
        int queries, keys, before, after;
        bool causal;
    } seen[] = {{64, 64, 10, 0, true}, {64, 64, 10, 5, false}, {64, 64, 0, 7, false},  {64, 64, 100, 100, false},
                {64, 64, 1, 0, true},  {50, 90, 8, 30, false}, {90, 90, 90, 1, false}, {50, 90, 0, 4, false},
                {90, 50, 8, 3, false}, {90, 50, 8, 0, true},   {90, 50, 0, 0, true},   {50, 90, 0, 0, true}};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        int s = seen[i].queries, t = seen[i].keys;
        Op *at = BUILD(b, attention, .q = val(FP32, SHAPE(1, s, 1, 16)), .k = val(FP32, SHAPE(1, t, 1, 16)),
                       .v = val(FP32, SHAPE(1, t, 1, 16)), .before = seen[i].before, .after = seen[i].after,
                       .causal = seen[i].causal, .scale = 0.25);
        double pairs = pairs_seen(s, t, seen[i].before, seen[i].after, seen[i].causal);
        cr_expect_float_eq(op_info[OP_attention].cost(at).flops, 4 * 16 * pairs, 1e-6, "%zu: %g, not %g", i,
                           op_info[OP_attention].cost(at).flops, 4 * 16 * pairs);
    }
}

Test(attention, costs_the_widths_of_its_products, .init = start) {
    Value *q = val(BF16, SHAPE(1, 80, 2, 64)), *v = val(BF16, SHAPE(1, 80, 2, 32)),
          *bias = val(BF16, SHAPE(1, 2, 1, 80));
    Op *at = BUILD(b, attention, .q = q, .k = q, .v = v, .bias = bias, .scale = 0.25);
    Op *grad = BUILD(b, attention_grad, .g = at->attention.o, .q = q, .k = q, .v = v, .o = at->attention.o,
                     .lse = at->attention.lse, .bias = bias, .scale = 0.25);
    Op *of_bias = BUILD(b, attention_bias_grad, .g = at->attention.o, .q = q, .k = q, .v = v, .o = at->attention.o,
                        .lse = at->attention.lse, .bias = bias, .scale = 0.25);
    double pairs = 2 * 80 * 80;
    Cost forward = op_info[OP_attention].cost(at), backward = op_info[OP_attention_grad].cost(grad);
    cr_expect_eq(forward.flops, 2 * pairs * (64 + 32));
    cr_expect_eq(backward.flops, 2 * pairs * (3 * 64 + 2 * 32));
    cr_expect_eq(backward.model_flops, 2 * forward.flops);
    cr_expect_str_eq(forward.variant, "bf16 own bias widths");
    cr_expect_eq(op_info[OP_attention_bias_grad].cost(of_bias).flops, forward.flops);
    cr_expect_eq(op_info[OP_attention_bias_grad].cost(of_bias).model_flops, pairs);
    cr_expect_eq(op_info[OP_attention_bias_grad].workspace(of_bias, &(Machine){.cuda = true}), 0);
    expect_value(at->attention.o, "bf16[1,80,2,32]");
    expect_value(of_bias->attention_bias_grad.dbias, "bf16[1,2,1,80]");
}

static int64_t attention_work(Dtype d, int64_t batch, int64_t rows, int64_t heads, int64_t kv, int64_t size, int causal,
                              bool repeats) {
    Value *q = val(d, SHAPE(batch, rows, heads, size)), *k = val(d, SHAPE(batch, rows, kv, size));
    Value *lse = val(FP32, SHAPE(batch, heads, rows));
    Op *grad =
        BUILD(b, attention_grad, .g = q, .q = q, .k = k, .v = k, .o = q, .lse = lse, .causal = causal, .scale = 0.125);
    return op_info[OP_attention_grad].workspace(grad, &(Machine){.cuda = true, .deterministic = repeats});
}

/* Bytes that cuDNN 9.19 asked for on an H200 (its 256 and our rows' sums included); the rule has 64 KiB to spare, and
 * cuts the work where that is more than 2.25 GiB. */
Test(attention, workspace_of_attention_on_cuda, .init = start) {
    static const struct {
        int64_t batch, rows, heads, kv, size, parts, repeating, free;
    } seen[] = {
        {64, 1024, 12, 12, 64, 1, 1613758720, 204472576}, {1, 8192, 32, 8, 128, 2, 2215117056, 269484288},
        {4, 2048, 32, 8, 128, 1, 1209008384, 269484288},  {32, 1024, 14, 2, 64, 1, 1058799872, 236716288},
        {3, 1000, 6, 2, 64, 1, 42429184, 9288448},        {2, 333, 4, 4, 128, 1, 2370304, 1374976},
    };
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        int64_t x = attention_work(BF16, seen[i].batch, seen[i].rows, seen[i].heads, seen[i].kv, seen[i].size, 1, true);
        int64_t y =
            attention_work(FP16, seen[i].batch, seen[i].rows, seen[i].heads, seen[i].kv, seen[i].size, 0, false);
        cr_expect(x >= seen[i].repeating && x <= seen[i].repeating * 1.06 + (1 << 17));
        cr_expect(y >= seen[i].free && y <= seen[i].free * 1.01 + (1 << 17));
        int64_t ours = seen[i].batch * seen[i].rows * seen[i].heads * 4; /* where there is no cuDNN */
        cr_expect(x >= ours && y >= ours);
    }
    cr_expect_eq(attention_work(FP32, 2, 1000, 4, 4, 64, 1, true), 2 * 1000 * 4 * 4); /* our own kernels' */
    cr_expect_eq(attention_work(BF16, 2, 1000, 4, 4, 60, 1, true), 2 * 1000 * 4 * 4);
    cr_expect_eq(attention_work(BF16, 2, 32, 4, 4, 64, 1, true), 2 * 32 * 4 * 4);
    cr_expect_gt(attention_work(BF16, 1, 131072, 4, 1, 128, 1, true), (int64_t)9 << 28); /* there is no smaller part */
}

/* On a GPU of compute capability 9.0 our kernels there compute what they can, and their workspace grows as the rows do.
 */
Test(attention, on_hopper, .init = start) {
    static const struct {
        Dtype d;
        int64_t rows, size;
        double scale;
        bool window, bias, hopper;
        AttentionKernel kernel;
        const char *variant;
    } seen[] = {
        {BF16, 8192, 128, 0.1, false, false, true, ATTENTION_HOPPER, "bf16 hopper causal"},
        {FP16, 8192, 40, 0.1, false, false, true, ATTENTION_HOPPER, "fp16 hopper causal"},
        {BF16, 8192, 64, 0.1, true, false, true, ATTENTION_HOPPER, "bf16 hopper causal window"},
        {BF16, 8192, SC_HOPPER_SIZE, 0.1, false, false, true, ATTENTION_HOPPER, "bf16 hopper causal"},
        {BF16, 32, 64, 0.1, false, false, true, ATTENTION_HOPPER, "bf16 hopper causal"},
        {BF16, 8192, 64, 0.1, false, true, true, ATTENTION_PORTABLE, "bf16 own causal bias"},
        {BF16, 8192, 60, 0.1, false, false, true, ATTENTION_PORTABLE, "bf16 own causal"},
        {BF16, 8192, SC_HOPPER_SIZE + 8, 0.1, true, false, true, ATTENTION_PORTABLE, "bf16 own causal window"},
        {BF16, 8192, 64, -0.1, false, false, true, ATTENTION_CUDNN, "bf16 causal"},
        {FP32, 8192, 64, 0.1, false, false, true, ATTENTION_PORTABLE, "fp32 causal"},
        {BF16, 8192, 64, 0.1, false, false, false, ATTENTION_CUDNN, "bf16 causal"},
        {BF16, 8192, 64, 0.1, true, false, false, ATTENTION_PORTABLE, "bf16 own causal window"},
    };
    Machine m = {.cuda = true, .deterministic = true};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        int64_t rows = seen[i].rows, size = seen[i].size;
        Value *q = val(seen[i].d, SHAPE(1, rows, 8, size)), *k = val(seen[i].d, SHAPE(1, rows, 2, size));
        Value *bias = seen[i].bias ? val(seen[i].d, SHAPE(1, 8, 1, rows)) : NULL;
        Op *at = BUILD(b, attention, .q = q, .k = k, .v = k, .bias = bias, .causal = true, .scale = seen[i].scale,
                       .before = seen[i].window ? 100 : 0);
        if (seen[i].hopper) rule_assume_hopper(at);
        OpParts d = {.attention = {.o = q}};
        Builder back = *b;
        back.origin = at;
        grad_attention(&back, at, &d);
        Op *grad = d.attention.q->def;
        for (int backward = 0; backward < 2; backward++) {
            const Op *op = backward ? grad : at;
            Cost c = op_info[op->kind].cost(op);
            cr_expect_eq(rule_attention_kernel(op), seen[i].kernel, "%zu", i);
            cr_expect_str_eq(c.variant, seen[i].variant, "%zu", i);
            cr_expect_eq(c.repeats, seen[i].kernel == ATTENTION_HOPPER, "%zu", i);
        }
        if (seen[i].kernel != ATTENTION_HOPPER) continue;
        int64_t bytes = op_info[grad->kind].workspace(grad, &m), left = seen[i].window ? 99 : rows;
        cr_expect_eq(op_info[OP_attention].workspace(at, &m), 0);
        cr_expect_eq(bytes, sc_hopper_grad_bytes(1, rows, rows, 8, 2, size, true, left, false).all, "%zu", i);
        cr_expect_leq(bytes, rows * 8 * (2 * 128 + 3) * 4 + (1 << 16), "%zu: linear in rows", i);
    }
}

/* Few key heads: their query heads are shared out, as far as they divide, until a GPU has work. */
Test(attention, jobs_on_hopper) {
    static const struct {
        int64_t jobs, group, splits;
    } seen[] = {{128, 7, 1}, {256, 4, 1}, {64, 8, 2}, {64, 7, 7}, {64, 1, 1}, {160, 4, 4}, {1, 4, 4}, {132000, 8, 1}};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        cr_expect_eq(sc_hopper_splits(seen[i].jobs, seen[i].group), seen[i].splits, "%zu: %lld", i,
                     (long long)sc_hopper_splits(seen[i].jobs, seen[i].group));
    sc_hopper_grad_room one = sc_hopper_grad_bytes(1, 8192, 8192, 32, 8, 128, true, 8192, false),
                        two = sc_hopper_grad_bytes(1, 8192, 8192, 16, 2, 128, true, 8192, false);
    cr_expect_eq(one.lse - one.of_keys, 0);
    cr_expect_eq(two.lse - two.of_keys, 8192 * 2 * (128 + 128) * 4);
}
