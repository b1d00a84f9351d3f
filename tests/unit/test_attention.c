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

static Op *grad_of(Dtype d, int64_t batch, int64_t rows, int64_t heads, int64_t kv, int64_t size, bool any_order) {
    Value *q = val(d, SHAPE(batch, rows, heads, size)), *k = val(d, SHAPE(batch, rows, kv, size));
    return BUILD(b, attention_grad, .g = q, .q = q, .k = k, .v = k, .o = q, .lse = val(FP32, SHAPE(batch, heads, rows)),
                 .causal = 1, .scale = 0.125, .any_order = any_order);
}

static int64_t attention_work(const Op *grad) {
    return op_info[OP_attention_grad].workspace(grad, &(Machine){.cuda = true});
}

/* Bytes that cuDNN 9.19 asked for on an H200 (its 256 and our rows' sums included), where sums may be added in any
 * order; the rule has 64 KiB to spare, and cuts the work where that is more than 2.25 GiB. In a fixed order the kernels
 * for any GPU keep the rows' sums alone. */
Test(attention, workspace_of_attention_on_cuda, .init = start) {
    static const struct {
        int64_t batch, rows, heads, kv, size, bytes;
    } seen[] = {
        {64, 1024, 12, 12, 64, 204472576}, {1, 8192, 32, 8, 128, 269484288}, {4, 2048, 32, 8, 128, 269484288},
        {32, 1024, 14, 2, 64, 236716288},  {3, 1000, 6, 2, 64, 9288448},     {2, 333, 4, 4, 128, 1374976},
    };
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        int64_t batch = seen[i].batch, rows = seen[i].rows, heads = seen[i].heads, kv = seen[i].kv,
                ours = batch * rows * heads * 4;
        int64_t x = attention_work(grad_of(FP16, batch, rows, heads, kv, seen[i].size, true));
        cr_expect(x >= seen[i].bytes && x <= seen[i].bytes * 1.01 + (1 << 17), "%zu: %lld", i, (long long)x);
        cr_expect_eq(attention_work(grad_of(BF16, batch, rows, heads, kv, seen[i].size, false)), ours);
        cr_expect_geq(x, ours); /* where there is no cuDNN */
    }
    cr_expect_eq(attention_work(grad_of(FP32, 2, 1000, 4, 4, 64, true)), 2 * 1000 * 4 * 4);
    cr_expect_eq(attention_work(grad_of(BF16, 2, 1000, 4, 4, 60, true)), 2 * 1000 * 4 * 4);
    cr_expect_eq(attention_work(grad_of(BF16, 2, 32, 4, 4, 64, true)), 2 * 32 * 4 * 4);
    int64_t whole = 16 * 32768LL * 32 * (4 + 4 * 128),
            halves = attention_work(grad_of(BF16, 16, 32768, 32, 32, 128, true));
    cr_expect(halves < (int64_t)9 << 28 && halves < whole, "%lld", (long long)halves);
}

/* On a GPU of compute capability 9.0 our kernels there compute what they can, and their workspace grows as the rows do.
 */
Test(attention, on_hopper, .init = start) {
    static const struct {
        Dtype d;
        int64_t rows, size;
        double scale;
        bool window, bias, hopper, any_order;
        AttentionKernel forward, backward;
        const char *variant, *variant_back; /* NULL: as forward */
    } seen[] = {
        {BF16, 8192, 128, 0.1, false, false, true, false, ATTENTION_HOPPER, ATTENTION_HOPPER, "bf16 hopper causal",
         NULL},
        {FP16, 8192, 40, 0.1, false, false, true, true, ATTENTION_HOPPER, ATTENTION_HOPPER, "fp16 hopper causal", NULL},
        {BF16, 8192, 64, 0.1, true, false, true, false, ATTENTION_HOPPER, ATTENTION_HOPPER, "bf16 hopper causal window",
         NULL},
        {BF16, 8192, SC_HOPPER_SIZE, 0.1, false, false, true, false, ATTENTION_HOPPER, ATTENTION_HOPPER,
         "bf16 hopper causal", NULL},
        {BF16, 32, 64, 0.1, false, false, true, false, ATTENTION_HOPPER, ATTENTION_HOPPER, "bf16 hopper causal", NULL},
        {BF16, 8192, 64, 0.1, false, true, true, false, ATTENTION_HOPPER, ATTENTION_HOPPER, "bf16 hopper causal bias",
         NULL},
        {BF16, 8192, 60, 0.1, false, false, true, true, ATTENTION_PORTABLE, ATTENTION_PORTABLE, "bf16 own causal",
         NULL},
        {BF16, 8192, SC_HOPPER_SIZE + 8, 0.1, true, false, true, false, ATTENTION_PORTABLE, ATTENTION_PORTABLE,
         "bf16 own causal window", NULL},
        {BF16, 8192, 64, -0.1, false, false, true, true, ATTENTION_CUDNN, ATTENTION_CUDNN, "bf16 causal", NULL},
        {FP32, 8192, 64, 0.1, false, false, true, true, ATTENTION_PORTABLE, ATTENTION_PORTABLE, "fp32 causal", NULL},
        {BF16, 8192, 64, 0.1, false, false, false, true, ATTENTION_CUDNN, ATTENTION_CUDNN, "bf16 causal", NULL},
        {BF16, 8192, 64, 0.1, false, false, false, false, ATTENTION_CUDNN, ATTENTION_PORTABLE, "bf16 causal",
         "bf16 own causal"},
        {BF16, 8192, 64, 0.1, true, false, false, true, ATTENTION_PORTABLE, ATTENTION_PORTABLE,
         "bf16 own causal window", NULL},
    };
    Machine m = {.cuda = true};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        int64_t rows = seen[i].rows, size = seen[i].size;
        Value *q = val(seen[i].d, SHAPE(1, rows, 8, size)), *k = val(seen[i].d, SHAPE(1, rows, 2, size));
        Value *bias = seen[i].bias ? val(seen[i].d, SHAPE(1, 8, 1, rows)) : NULL;
        Op *at = BUILD(b, attention, .q = q, .k = k, .v = k, .bias = bias, .causal = true, .scale = seen[i].scale,
                       .before = seen[i].window ? 100 : 0);
        rule_assume_kernels(at, seen[i].hopper, seen[i].any_order);
        OpParts d = {.attention = {.o = q}};
        Builder back = *b;
        back.origin = at;
        grad_attention(&back, at, &d);
        Op *grad = d.attention.q->def;
        for (int backward = 0; backward < 2; backward++) {
            const Op *op = backward ? grad : at;
            Cost c = op_info[op->kind].cost(op);
            cr_expect_eq(rule_attention_kernel(op), backward ? seen[i].backward : seen[i].forward, "%zu", i);
            cr_expect_str_eq(c.variant, backward && seen[i].variant_back ? seen[i].variant_back : seen[i].variant,
                             "%zu", i);
        }
        if (seen[i].forward != ATTENTION_HOPPER) continue;
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
