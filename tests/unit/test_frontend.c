/* The front end: what a traced model holds, and how bad input is refused.
 * Relies on: Criterion, frontend/, the models; run from the repository's root.
 * Relied on by: make test. */
#include "dies.h"
#include "ir/policy.h"
#include "ir/training.h"
#include "lower/lower.h"
#include "lua/embed.h"
#include "lua_graph.h"
#include "sandbox/sandbox.h"

#include <lauxlib.h>
#include <sys/stat.h>

/* ── loading ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
#define SET(...) ((const char *[]){__VA_ARGS__, NULL})

static Graph *load_with(Arena *a, const char *file, const char **set, const char *policy, int world) {
    FrontendOptions o = {
        .model_file = file, .policies = &policy, .npolicies = policy != NULL, .set = set, .world = world, .nodes = 1};
    while (set && set[o.nset]) o.nset++;
    return frontend_load(a, &o);
}

static Graph *load_file(const char *file, const char **set) {
    return load_with(arena_new(), file, set, NULL, 1);
}

static const char *write_file(const char *name, const char *text) {
    static char path[8][64];
    static int n;
    char *p = path[n++ % 8];
    snprintf(p, 64, "/tmp/shardc-test-%d-%s", (int)getpid(), name);
    FILE *f = fopen(p, "w");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
    return p;
}

/* Loads in a child; returns its exit code and what it wrote to stderr. */
static int refused(const char *file, const char **set, const char *policy, int world, char *message, size_t size) {
    return DIES(message, size, load_with(arena_new(), file, set, policy, world));
}

static void expect(int code, const char *text, const char *file, const char **set, const char *policy, int world) {
    char message[4096];
    int got = refused(file, set, policy, world, message, sizeof message);
    cr_assert_eq(got, code, "exit %d: %s", got, message);
    cr_assert(strstr(message, text), "no '%s' in: %s", text, message);
}

static const char *const SMALL[] = {"layers=2", "dim=32", "heads=2", "vocab=256", "batch=4", "seq=16", NULL};

/* A model around `forward`, whose body starts at line 6. */
static const char *net(const char *fields, const char *forward) {
    static char text[4096];
    snprintf(text, sizeof text,
             "local nn, optim = require 'nn', require 'optim'\nlocal model = nn.module 'Net'\nmodel.embed = "
             "nn.Embedding(16, 4); model.out = nn.Linear(4, 16)\n%s\n"
             "function model:forward(t) local x = self.embed(t)\n%s\nreturn self.out(x) end\n"
             "return nn.training { model = model, batch = { tokens = nn.input('int32', { 2, 8 }), targets = "
             "nn.input('int32', { 2, 8 }) },\n"
             "loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end, optimizer = optim.SGD { lr = "
             "0.1 } }\n",
             fields, forward);
    return text;
}

static const Module *module(const Graph *g, const char *path) {
    for (int i = 0; i < g->modules.n; i++)
        if (!strcmp(g->modules.at[i]->path, path)) return g->modules.at[i];
    cr_assert_fail("no module %s", path);
    abort();
}

static const Op *nth_op(const Program *p, OpKind k, int n) {
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]->kind == k && n-- == 0) return p->ops.at[i];
    cr_assert_fail("no such op");
    abort();
}

/* ── models ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(frontend, mlp) {
    Graph *g = load_file("models/mlp.lua", NULL);
    cr_assert_str_eq(g->name, "mlp");
    cr_assert_eq(g->params.n, 5);
    const char *const paths[] = {"embed.weight", "up.weight", "up.bias", "down.weight", "down.bias"};
    for (int i = 0; i < 5; i++) {
        cr_assert_str_eq(g->params.at[i]->path, paths[i]);
        cr_assert_eq(g->params.at[i]->id, i);
    }
    cr_assert_eq(g->inputs.n, 2);
    cr_assert_str_eq(g->inputs.at[0]->name, "tokens"); /* in the order of the nn.input calls */
    cr_assert_eq(g->inputs.at[1]->shift, 1);
    cr_assert(g->inputs.at[0]->sample_value && !g->inputs.at[1]->sample_value);
    cr_assert_eq(g->training->counts.n, 1);
    cr_assert_eq(g->training->counts.at[0].input, g->inputs.at[1]);
    cr_assert(g->train->loss && g->train->loss->dims == 0 && g->eval->loss && g->sample->logits);
    cr_assert_eq(g->training->metrics.n, 2);
    cr_assert_str_eq(g->training->metrics.at[1].name, "grad_norm");
    graph_check(g, "frontend");
}

Test(frontend, gpt2) {
    Graph *g = load_file("models/gpt2.lua", (const char **)SMALL);
    cr_assert_str_eq(g->params.at[0]->path, "wte.weight", "a tied parameter has the path of its first use");
    cr_assert_str_eq(g->params.at[1]->path, "wpe.weight");
    cr_assert_str_eq(g->params.at[2]->path, "h.0.ln_1.weight");
    cr_assert_eq(g->params.n, 2 + 2 * 12 + 2);
    cr_assert_eq(param(g, "wte.weight")->owner, g->root, "wte and lm_head meet at the root");
    cr_assert_eq(param(g, "h.1.attn.c_attn.weight")->owner, module(g, "h.1.attn.c_attn"));
    cr_assert_str_eq(module(g, "h.1.mlp")->kind, "MLP");
    cr_assert_eq(module(g, "h.1.mlp.c_fc")->parent, module(g, "h.1.mlp"));
    cr_assert(module(g, "h.0")->policy && !module(g, "h.0.mlp")->policy);
    cr_assert_eq(param(g, "h.0.ln_1.weight")->group, 1);
    cr_assert_eq(param(g, "h.0.mlp.c_fc.weight")->group, 0);
    const Op *fc = nth_op(g->train, OP_matmul, 2);
    cr_assert_str_eq(fc->module->path, "h.0.mlp.c_fc");
    cr_assert_str_eq(fc->src.file, "models/gpt2.lua");
    cr_assert_str_eq(fc->id, "e14");
    cr_assert_eq(nth_op(g->train, OP_cross_entropy, 0)->call, -1, "the loss is outside of every module call");
    graph_check(g, "frontend");
}

Test(frontend, gpt2_lines) { /* tail calls would lose them */
    Graph *g = load_file("models/gpt2.lua", (const char **)SMALL);
    FILE *f = fopen("models/gpt2.lua", "r");
    char text[400][256];
    int n = 1;
    while (n < 400 && fgets(text[n], 256, f)) n++;
    fclose(f);
    cr_assert(strstr(text[nth_op(g->train, OP_cross_entropy, 0)->src.line], "nn.cross_entropy("));
    cr_assert(strstr(text[nth_op(g->train, OP_gelu_tanh, 0)->src.line], "nn.gelu("));
    cr_assert(strstr(text[nth_op(g->train, OP_layer_norm, 0)->src.line], "self.ln_1(x)"));
    cr_assert(strstr(text[nth_op(g->train, OP_attention, 0)->src.line], "nn.attention"));
}

Test(frontend, dropout_only_in_training) {
    const char *set[] = {"layers=1", "dim=32", "heads=2", "vocab=256", "batch=4", "seq=16", "dropout=0.1", NULL};
    Graph *g = load_file("models/gpt2.lua", set);
    cr_assert_eq(count(g->train, OP_dropout, NULL), 3);
    cr_assert_eq(count(g->eval, OP_dropout, NULL), 0);
    cr_assert_float_eq(nth_op(g->train, OP_attention, 0)->attention.dropout, 0.1, 1e-12);
    cr_assert_float_eq(nth_op(g->eval, OP_attention, 0)->attention.dropout, 0, 0);
    cr_assert_neq(nth_op(g->train, OP_dropout, 0)->dropout.key, nth_op(g->train, OP_dropout, 1)->dropout.key);
}

Test(frontend, random_ops_have_words_of_their_own) {
    Graph *g = load(net("model.part = nn.module 'Part'; function model.part:forward(x) return nn.dropout(x, 0.1) end",
                        "x = nn.dropout(nn.dropout(x, 0.1), 0.1); x = self.part(self.part(x))"),
                    1);
    cr_assert_eq(count(g->train, OP_dropout, NULL), 4);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            cr_expect_neq(nth_op(g->train, OP_dropout, i)->dropout.key, nth_op(g->train, OP_dropout, k)->dropout.key,
                          "%d, %d", i, k);
}

Test(frontend, llama3_and_transformer) {
    Graph *g = load_file("models/llama3.lua", SET("size=1b", "layers=2"));
    cr_assert_str_eq(g->params.at[0]->path, "model.embed_tokens.weight");
    cr_assert_eq(g->params.at[0]->owner, g->root);
    param(g, "model.layers.1.self_attn.q_proj.weight");
    cr_assert_float_eq(nth_op(g->train, OP_rope, 0)->rope.factor, 32, 0);
    g = load_file("models/llama3.lua", SET("size=tiny"));
    cr_assert_str_eq(g->params.at[g->params.n - 1]->path, "lm_head.weight");
    cr_assert_float_eq(nth_op(g->train, OP_rope, 0)->rope.factor, 0, 0);
    g = load_file("models/transformer.lua", (const char **)SMALL);
    cr_assert_str_eq(g->params.at[0]->path, "shared.weight",
                     "the shortest of its paths: encoder.embed_tokens is the same module");
    cr_assert_eq(g->params.at[0]->owner, g->root);
    param(g, "decoder.layers.1.encoder_attn.out_proj.bias");
}

static int64_t elements(const Graph *g) {
    int64_t n = 0;
    for (int i = 0; i < g->params.n; i++) n += numel(g->params.at[i]);
    return n;
}

/* As many as the published weights have, under their names. */
Test(frontend, qwen2) {
    Graph *g = load_file("models/qwen2.lua", SET("size=0.5b"));
    cr_assert_eq(elements(g), 494032768);
    param(g, "model.layers.23.self_attn.k_proj.bias");
    param(g, "model.norm.weight");
    cr_assert_float_eq(nth_op(g->train, OP_rope, 0)->rope.theta, 1e6, 0);
    g = load_file("models/qwen2.lua", SET("size=7b"));
    cr_assert_eq(elements(g), 7615616512);
    param(g, "lm_head.weight");
}

Test(frontend, llama3_405b) {
    Graph *g = load_file("models/llama3.lua", SET("size=405b"));
    cr_assert_gt(g->train->ops.n, 2000);
}

/* ── tracing ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(frontend, broadcast_promotion_and_scalars) {
    Graph *g = load(net("", "x = (2 - x * 3) / 4 + nn.ones({ 8, 1 }, 'bf16') ^ 2 + nn.arange(4)"), 1);
    cr_assert_eq(count(g->train, OP_mul_scalar, NULL), 2);
    cr_assert_eq(count(g->train, OP_add_scalar, NULL), 1);
    cr_assert_eq(count(g->train, OP_expand, NULL), 2);
    cr_assert_eq(count(g->train, OP_cast, NULL), 2, "bf16 to fp32 and int32 to fp32");
    graph_check(g, "frontend");
}

Test(frontend, powers_and_functions) {
    Graph *g =
        load(net("", "local p = nn.abs(x) + 1; x = p ^ 0.5 + p ^ -0.5 + p ^ -1 + p ^ 1.5 + p ^ 1 + 2 ^ x + "
                     "nn.add(x, 1) + nn.pow(p, 3) + nn.expand(nn.ones { 4 }, 2, 8, -1)\n"
                     "x = x:cast('bf16'):cast('fp32'):cast('fp32') + nn.where(nn.lt(x, 0), 1, x) + nn.maximum(x, "
                     "0.5) + nn.addmm(nn.zeros { 4 }, x, nn.ones { 4, 4 }) + t\n:reshape(2, 8, 1)"),
             1);
    const OpKind once[] = {OP_sqrt, OP_rsqrt, OP_rdiv_scalar, OP_pow, OP_where, OP_maximum};
    for (size_t i = 0; i < sizeof once / sizeof *once; i++) cr_assert_eq(count(g->train, once[i], NULL), 1);
    cr_assert_eq(count(g->train, OP_pow_scalar, NULL), 2);
    cr_assert_eq(count(g->train, OP_cast, NULL), 4);
    graph_check(g, "frontend");
}

/* A number has the dtype of the tensors beside it, which is known only when units compute in bf16. */
Test(frontend, numbers_widen_no_tensor) {
    const char *bf16 = "nn.fully_shard(model, { mp_policy = { param_dtype = 'bf16' } })";
    Graph *g = lowered(net(bf16, "x = nn.where(nn.lt(x, 0.5), nn.maximum(x, -0.1), 2) * nn.clamp(x, nil, 0.3)"), 1);
    for (int i = 0; i < g->train->ops.n; i++) {
        const Op *op = g->train->ops.at[i];
        if (op->kind == OP_matmul && op->phase == FORWARD) cr_expect_eq(op->matmul.a->dtype, BF16);
    }
    g = load(net(bf16, "nn.log_metric('some', nn.mean(nn.where(nn.lt(x, 0.5), 0.25, 0.5)))"), 1);
    lower_units(g);
    lower_precision(g, g->train);
    cr_expect_eq(nth_op(g->train, OP_where, 0)->where.y->dtype, FP32, "of numbers alone");
}

/* Nor does a mask or an integer; without a tensor of floating point beside them integers are fp32. */
Test(frontend, integers_widen_no_tensor) {
    const char *bf16 = "nn.fully_shard(model, { mp_policy = { param_dtype = 'bf16' } })";
    const char *body =
        "x = x * nn.ge(x, 0) + nn.arange(4); x = nn.maximum(nn.where(nn.gt(x, nn.arange(4)), x, nn.arange(4)), x)\n"
        "x = nn.concat({ x, nn.arange(4):expand(2, 8, 4) }, 1):slice(1, 0, 8); nn.log_metric('some', "
        "nn.sum(nn.arange(4) / "
        "nn.arange(4)))";
    Graph *g = load(net(bf16, body), 1);
    lower_units(g);
    lower_precision(g, g->train);
    const OpKind kinds[] = {OP_add, OP_where, OP_maximum, OP_concat};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        cr_expect_eq(op_result(nth_op(g->train, kinds[i], 0))->dtype, BF16, "%s", op_info[kinds[i]].name);
    cr_expect_eq(nth_op(g->train, OP_gt, 0)->gt.b->dtype, BF16);
    cr_expect_eq(nth_op(g->train, OP_div, 0)->div.y->dtype, FP32);
}

/* As in PyTorch, where the parameter decays; a comparison gives none. */
Test(frontend, the_gradient_of_a_sign_is_zero) {
    const char *made = "model.a, model.b = nn.parameter { 4 }, nn.parameter { 4 }";
    Graph *g = lowered(net(made, "x = x + nn.sign(self.a) + nn.cast(nn.gt(self.b, 0), 'fp32')"), 1);
    cr_expect(param(g, "a")->reached && !param(g, "b")->reached);
}

Test(frontend, bounds_with_fractions_are_not_cut_to_integers) {
    Graph *g =
        load(net("", "local n = nn.arange(4); x = x + nn.clamp(n, 1, 2) + nn.clamp(n, 0.5, 2) + n:clamp(1, 2.5)"), 1);
    for (int i = 0; i < 3; i++) cr_expect_eq(nth_op(g->train, OP_clamp, i)->clamp.y->dtype, i ? FP32 : INT32);
}

/* Pieces that are joined are promoted, as in torch.cat. */
Test(frontend, pieces_of_two_dtypes_are_joined) {
    Graph *g = load(net("", "x = nn.concat({ x:cast('bf16'), x, nn.arange(4):expand(2, 8, 4) }, 0):slice(0, 2, 4)"), 1);
    const Op *join = nth_op(g->train, OP_concat, 0);
    for (int k = 0; k < 3; k++) cr_expect_eq(join->concat.x[k]->dtype, FP32, "piece %d", k);
}

/* As FSDP2 does it: a unit casts its arguments and results, also in tables, whoever made them (its caller's buffer;
 * what is passed on untouched), and nothing else. */
Test(frontend, units_cast_what_they_are_given_and_give) {
    Graph *g = load(
        net("model.gain, model.inner = nn.buffer { 4 }, nn.module 'Inner'; model.inner.up = nn.Linear(4, 4)\n"
            "local kept\n"
            "function model.inner:forward(t, k)\n"
            "  nn.exp(t.x); nn.exp(t.list[1]); nn.exp(kept); nn.exp(self.up(t.x)); return k, { some = { t.x } } end\n"
            "nn.fully_shard(model.inner, { mp_policy = { param_dtype = 'bf16', output_dtype = 'fp16' } })",
            "kept = x * 3; local y, z = self.inner({ x = x, list = { self.gain } }, t)\n"
            "local w = z.some[1]; nn.exp(w); nn.exp(w * nn.mean(x)); nn.exp(w * nn.gt(x, 0)); nn.exp(w * x)\n"
            "nn.exp(nn.mean(w) * nn.mean(x))\n"
            "assert(y.dtype == 'int32'); x = x + w:cast('fp32')"),
        1);
    const Dtype expected[] = {BF16, BF16, FP32, BF16, FP16, FP16, FP16, FP32, FP32};
    lower_units(g);
    lower_precision(g, g->train);
    for (int i = 0; i < 9; i++)
        cr_expect_eq(nth_op(g->train, OP_exp, i)->exp.y->dtype, expected[i], "exp %d: %s", i,
                     dtype_name(nth_op(g->train, OP_exp, i)->exp.y->dtype));
    cr_expect_eq(count(g->train, OP_border, NULL), 0);
    lower_precision(g, g->eval);
    graph_check(g, "precision");
}

/* What differs in dtype as it is traced may be one dtype in its unit. */
Test(frontend, operands_of_two_dtypes_meet_in_their_unit) {
    Graph *g =
        load(net("model.norm = nn.LayerNorm(4); nn.fully_shard(model, { mp_policy = { param_dtype = 'bf16' } })",
                 "x = nn.matmul(x, nn.transpose(x:cast('bf16'), 1, 2)); x = self.norm(nn.ones({ 2, 8, 4 }, 'bf16'))"),
             1);
    lower_units(g);
    lower_precision(g, g->train);
    cr_expect_eq(nth_op(g->train, OP_matmul, 0)->matmul.y->dtype, BF16);
    cr_expect(nth_op(g->train, OP_matmul, 0)->matmul.trans_b, "read where it lies");
    cr_expect_eq(nth_op(g->train, OP_layer_norm, 0)->layer_norm.y->dtype, BF16);
    lower_precision(g, g->eval);
    graph_check(g, "precision");
}

/* fp32 is fp32 in a unit of bf16 too, and what is cast like x has x's dtype there; where that changes nothing, no cast
 * is left. */
Test(frontend, casts_mean_the_dtypes_of_the_unit) {
    const char *body =
        "local y = nn.rsqrt(x:cast('fp32')); nn.log_metric('wide', nn.mean(y:cast('fp32'):cast('fp32')))\n"
        "x = nn.matmul(nn.cast(nn.exp(y), x), nn.cast(nn.ones { 4, 4 }, x)):cast(x)";
    for (int narrow = 0; narrow < 2; narrow++) {
        Graph *g = load(net(narrow ? "nn.fully_shard(model, { mp_policy = { param_dtype = 'bf16' } })" : "", body), 1);
        lower_units(g);
        lower_precision(g, g->train);
        cr_expect_eq(nth_op(g->train, OP_rsqrt, 0)->rsqrt.y->dtype, FP32);
        cr_expect_eq(nth_op(g->train, OP_exp, 0)->exp.y->dtype, FP32);
        cr_expect(nth_op(g->train, OP_store, 0)->store.state->state, "what is written in place is not cast");
        for (int i = 0; i < 2; i++) cr_expect_eq(nth_op(g->train, OP_matmul, i)->matmul.a->dtype, narrow ? BF16 : FP32);
        cr_expect_eq(count(g->train, OP_cast, NULL), narrow ? 3 : 0, "x, exp and ones: %d",
                     count(g->train, OP_cast, NULL));
    }
}

/* A cast lays out what it gives; where it is taken out, what is reshaped is copied. */
Test(frontend, casts_of_transposed_tensors_are_reshaped) {
    Graph *g = load(net("", "x = x:transpose(0, 2):cast('fp32'):reshape(2, 8, 4)"), 1);
    lower_units(g);
    lower_precision(g, g->train);
    cr_expect_eq(count(g->train, OP_cast, NULL), 0);
    cr_expect_eq(nth_op(g->train, OP_copy, 0)->copy.a->shape[0], 4);
}

Test(frontend, helpers_of_the_language) {
    freopen("/dev/null", "w", stderr); /* print writes there */
    load(net("local t = setmetatable({ a = 1, b = 2 }, { __call = function(self, n) return n + 1 end }) assert(t(1) == "
             "2)\n"
             "local n = 0 for k in pairs(t) do t.b = nil n = n + 1 end assert(n == 1) print(model, t, 3, 'x') "
             "assert(tostring(model) == 'Net')\n"
             "assert(tostring(model.out) == 'nn.Linear(4, 16)' and tostring(model.out.weight) == 'fp32[16,4]')",
             "assert(tostring(x) == 'fp32[2,8,4]' and x.dtype == 'fp32' and x.ndim == 3 and #x.shape == 3 and "
             "x:size(-1) == "
             "4)"),
         1);
}

static const char *sampler(const char *sample) {
    static char text[2048];
    snprintf(text, sizeof text,
             "local nn, optim = require 'nn', require 'optim'\nlocal m = nn.Embedding(16, 16)\nreturn nn.training { "
             "model = m, batch = { x = nn.input('int32', { 4, 8 }), unused = nn.input('fp32', { 4 }) },\n"
             "loss = function(m, b) return nn.sum(m(b.x)) end, optimizer = optim.SGD {}, sample = { %s } }",
             sample);
    return text;
}

Test(frontend, sampling) {
    Graph *g = load(sampler("logits = function(m, b) nn.log_metric('no', nn.sum(m(b.x))) return m(b.x) end"), 1);
    cr_assert(g->inputs.at[0]->sample_value->shape[0] == 1 && g->inputs.at[0]->shape[0] == 4,
              "one sample of the batch's inputs");
    cr_assert(!g->inputs.at[1]->sample_value && g->training->metrics.n == 2);
    g = load(
        sampler("inputs = { prompt = nn.input('int32', { 1, 5 }) }, logits = function(m, b) return m(b.prompt) end"),
        1);
    cr_assert_eq(g->inputs.n, 3);
    cr_assert(!g->inputs.at[2]->value && g->inputs.at[2]->sample_value);
    cr_assert_str_eq(g->inputs.at[2]->from, "prompt");
}

Test(frontend, transposed_operands_are_read_where_they_lie) {
    Graph *g = load(
        net("",
            "x = nn.matmul(x, nn.matmul(nn.zeros({ 4, 4 }):transpose(0, 1), nn.zeros({ 4, 4 }):transpose(-1, -2)))"),
        1);
    const Op *m = nth_op(g->train, OP_matmul, 0);
    cr_assert(m->matmul.trans_a && m->matmul.trans_b && m->matmul.a->def->kind == OP_full);
}

Test(frontend, views_and_pieces) {
    Graph *g = load(
        net("",
            "local a, b = x:chunk(2, -1); local c = nn.concat({ b, a }, -1); local d, e, f = c:split({ 1, 1, 2 }, 2)\n"
            "x = nn.concat({ d, e, f }, 2) + nn.stack({ x:flatten(), x:flatten() }, 0):sum(0):view(2, 8, "
            "4):transpose(0, 1):transpose(0, 1)\n"
            "x = x + x:max(-1, true) + x:mean({ 0, 1 }) + x:permute(1, 0, 2):permute(1, 0, 2) + nn.softmax(x, 1) + "
            "nn.clamp(x, 0) + nn.clamp(x, nil, 1)"),
        1);
    cr_assert_eq(count(g->train, OP_split, NULL), 2);
    cr_assert_eq(count(g->train, OP_concat, NULL), 3);
    graph_check(g, "frontend");
}

Test(frontend, module_called_twice_and_checkpoints) {
    Graph *g = load(
        net("model.up = nn.Linear(4, 4); nn.checkpoint_wrapper(model.up, { save = { 'matmul' }, offload = 'input' })",
            "x = self.up(x); x = nn.relu(x); x = self.up(x); x = nn.checkpoint(nn.gelu, x); x = nn.checkpoint({ "
            "recompute = false }, self.up, x)"),
        1);
    const Op *first = nth_op(g->train, OP_matmul, 0), *second = nth_op(g->train, OP_matmul, 1),
             *third = nth_op(g->train, OP_matmul, 2);
    cr_assert(first->call == 0 && second->call == 1 && third->call == 2);
    cr_assert(first->region == 1 && second->region == 2 && third->region == 5);
    cr_assert_eq(nth_op(g->train, OP_relu, 0)->region, 0);
    cr_assert_eq(nth_op(g->train, OP_gelu, 0)->region, 3);
    cr_assert(first->checkpoint->recompute && first->checkpoint->nsave == 1 && first->checkpoint->noffload == 1);
    cr_assert(third->checkpoint->recompute, "the outermost call that recomputes counts");
}

Test(frontend, buffers_frozen_and_unused) {
    Graph *g = load(net("model.bn = nn.BatchNorm(8); model.spare = nn.Linear(3, 3); model.a_spare = "
                        "nn.freeze(nn.Linear(2, 2, { dtype = 'bf16' }))",
                        "x = self.bn(x)"),
                    1);
    cr_assert(param(g, "bn.running_mean")->is_buffer && !param(g, "bn.running_mean")->requires_grad);
    cr_assert(!param(g, "a_spare.weight")->requires_grad && param(g, "spare.weight")->requires_grad);
    cr_assert_str_eq(g->params.at[g->params.n - 4]->path, "a_spare.bias", "unused ones come last, by path");
    cr_assert(param(g, "spare.bias")->value);
    cr_assert_eq(nth_op(g->train, OP_batch_norm, 0)->batch_norm.training, 1);
    cr_assert_eq(nth_op(g->eval, OP_batch_norm, 0)->batch_norm.training, 0);
}

Test(frontend, buffer_dtype_is_for_floats) {
    Graph *g = load(net("model.bn = nn.BatchNorm(8); model.count = nn.buffer({ 3 }, { dtype = 'int32' });"
                        "nn.fully_shard(model, { mp_policy = { buffer_dtype = 'bf16' } })",
                        "x = self.bn(x)"),
                    1);
    cr_expect(param(g, "bn.running_mean")->dtype == BF16 && param(g, "count")->dtype == INT32);
}

Test(frontend, optimizers_default_to_pytorchs) {
    const struct {
        const char *text;
        double decay;
    } rows[] = {{"optim.SGD {}", 0}, {"optim.Adam {}", 0}, {"optim.AdamW {}", 0.01}};
    for (int i = 0; i < 3; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "local nn, optim = require 'nn', require 'optim'\nlocal m = nn.Linear(4, 8)\n"
                 "return nn.training { model = m, batch = { x = nn.input('fp32', { 2, 4 }) }, optimizer = %s,\n"
                 "loss = function(m, b) return nn.mean(m(b.x)) end, grad_scaler = optim.GradScaler {} }",
                 rows[i].text);
        const Graph *g = load(text, 1);
        const GradScaler *s = g->training->scaler;
        cr_expect(s->init_scale == 65536 && s->growth_factor == 2 && s->backoff_factor == 0.5);
        cr_expect_eq(s->growth_interval, 2000);
        const Optimizer *o = g->training->optimizer;
        cr_expect(o->lr == 1e-3 && o->momentum == 0);
        if (i > 0) cr_expect(o->beta1 == 0.9 && o->beta2 == 0.999 && o->eps == 1e-8);
        cr_expect(!o->nesterov && o->moment_dtype == FP32 && o->groups.n == 1);
        cr_expect_eq(o->weight_decay, rows[i].decay, "%s", rows[i].text);
    }
}

Test(frontend, initial_values) {
    Graph *g = load(net("model.a = nn.parameter({ 4, 16 }, { init = nn.init.kaiming_uniform() }); model.b = "
                        "nn.parameter({ 4 }, { init = nn.init.trunc_normal(1, 2) })",
                        ""),
                    1);
    cr_assert_float_eq(param(g, "a")->init_b, 0.25, 1e-12);
    cr_assert(param(g, "b")->init == SC_TRUNC_NORMAL && param(g, "b")->init_a == 1 && param(g, "b")->init_b == 2);
    cr_assert_float_eq(param(g, "out.weight")->init_b, 0.5, 1e-12);
    cr_assert_eq(param(g, "embed.weight")->init, SC_NORMAL);
    cr_assert_neq(param(g, "a")->key, param(g, "b")->key);
}

Test(frontend, logs_and_metrics) {
    Graph *g = load(
        net("", "nn.log_metric('size', nn.mean(x * x)); if nn.training_mode() then nn.log_metric('n', nn.sum(x), { "
                "reduce = 'sum' }) end"),
        1);
    cr_assert_eq(g->training->metrics.n, 4);
    cr_assert(g->training->metrics.at[3].is_sum && !g->training->metrics.at[2].is_sum);
    const Op *s = nth_op(g->train, OP_store, 1);
    cr_assert(s->store.at == 3 && s->store.state == g->metrics_state->value);
    cr_assert_eq(count(g->eval, OP_store, NULL), 1);
}

Test(frontend, the_older_form_of_log_metric_is_noted_once) {
    const char *file = write_file("log.lua", net("", "nn.log('size', nn.mean(x * x))"));
    char message[4096];
    cr_assert_eq(refused(file, NULL, NULL, 1, message, sizeof message), 0, "%s", message);
    const char *note =
        strstr(message, "note: nn.log(\"size\", x) logs a metric as before; write nn.log_metric(\"size\", x)");
    cr_assert(note && !strncmp(message, file, strlen(file)) && !strstr(note + 1, "note: "), "%s", message);
    cr_assert_str_eq(load_file(file, NULL)->training->metrics.at[2].name, "size");
}

/* Views and casts keep what an input holds, so that the program can check it. */
Test(frontend, limits_of_inputs) {
    Graph *g = load(
        "local nn, optim = require 'nn', require 'optim'\nlocal m = nn.Embedding(16, 4)\n"
        "local small = nn.Embedding(8, 4)\nm.small = small\n"
        "return nn.training { model = m, optimizer = optim.SGD {}, batch = { x = nn.input('int64', { 2, 4 }, { from = "
        "'tokens' }), y = nn.input('int32', { 2, 4 }), z = nn.input('int32', { 2, 4 }) },\n"
        "loss = function(m, b) local y = nn.training_mode() and b.y or b.z\n"
        "return nn.mean(m(b.x:slice(1, 0, 2):cast('int32'))) + nn.mean(m(y)) + nn.mean(m.small(b.z)) end }",
        1);
    int64_t limits[3] = {16, 16, 8}; /* x, y, z */
    for (int i = 0; i < 3; i++) cr_expect_eq(g->inputs.at[i]->limit, limits[i], "%s", g->inputs.at[i]->name);
}

/* Constant indices are evaluated where they are known: these lie in their table. */
Test(frontend, constant_indices) {
    static const char *const good[] = {
        "nn.arange(16):slice(0, 4, 12):unsqueeze(0):expand(2, 8)",
        "nn.arange(8) * 2 + 1",
        "nn.clamp(nn.arange(99), 0, 15):slice(0, 50, 58)",
        "nn.full({ 8 }, 15):cast('int32')",
        "nn.concat({ nn.arange(4), 15 - nn.arange(4) })",
        "nn.minimum(t * 100, 200)",
        "nn.where(nn.lt(nn.arange(8), 4), nn.arange(8), nn.abs(nn.neg(nn.zeros({ 8 }, 'int32'))))",
        "nn.maximum(nn.arange(8) - 3, 0)",
        "nn.arange(8):reshape(2, 4):transpose(0, 1):reshape(8)",
        "nn.cast(nn.sqrt(nn.arange(8, 'fp32')) * 99, 'int32')"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char forward[256];
        snprintf(forward, sizeof forward, "local y = model.embed(%s)", good[i]);
        load(net("", forward), 1);
    }
}

Test(frontend, targets_may_be_reshaped) {
    Graph *g = load("local nn, optim = require 'nn', require 'optim'\nlocal m = nn.Linear(4, 8)\nreturn nn.training { "
                    "model = m, batch = { x = nn.input('fp32', { 2, 4 }), y = nn.input('int32', { 1, 2 }) },\n"
                    "loss = function(m, b) return nn.cross_entropy(m(b.x), b.y:reshape(2), { ignore_index = 7 }) + "
                    "nn.mse_loss(m(b.x), nn.zeros { 2, 8 }) end, optimizer = optim.Adam {} }",
                    1);
    cr_assert_eq(g->training->counts.n, 1);
    cr_assert_eq(g->training->counts.at[0].ignore, 7);
    cr_assert_str_eq(g->params.at[0]->path, "weight");
    cr_assert_str_eq(g->training->optimizer->rule->name, "adam");
}

Test(frontend, targets_are_counted_by_what_is_ignored) {
    Graph *g = load("local nn, optim = require 'nn', require 'optim'\nlocal m = nn.Linear(4, 8)\n"
                    "local function loss(m, b)\n"
                    "  local function of(ignore) return nn.cross_entropy(m(b.x), b.y, { ignore_index = ignore }) end\n"
                    "  return of(7) + of(3) + of(7)\nend\n"
                    "return nn.training { model = m, optimizer = optim.SGD {}, loss = loss,\n"
                    "  batch = { x = nn.input('fp32', { 2, 4 }), y = nn.input('int32', { 2 }) } }",
                    1);
    cr_assert_eq(g->training->counts.n, 2);
    cr_expect(g->training->counts.at[0].ignore == 7 && g->training->counts.at[1].ignore == 3);
}

Test(frontend, shared_module_belongs_to_the_common_ancestor) {
    Graph *g = load(
        net("model.left, model.right = nn.module 'Side', nn.module 'Side'; local s = nn.Linear(4, 4); model.left.s, "
            "model.right.s = s, s\n"
            "for _, side in pairs { model.left, model.right } do function side:forward(x) return self.s(x) end end",
            "x = self.left(x) + self.right(x)"),
        1);
    cr_assert_eq(param(g, "left.s.weight")->owner, g->root);
    g = load(
        net("model.left, model.right = nn.module 'Side', nn.module 'Side'; local s = nn.Linear(4, 4); model.left.s, "
            "model.right.s = s, s; nn.fully_shard(s)\n"
            "for _, side in pairs { model.left, model.right } do function side:forward(x) return self.s(x) end end",
            "x = self.left(x) + self.right(x)"),
        1);
    cr_assert_eq(param(g, "left.s.weight")->owner, module(g, "left.s"), "a unit keeps its parameters");
}

Test(frontend, table_order_does_not_matter) {
    Graph *a = load_file("models/gpt2.lua", (const char **)SMALL),
          *b = load_file("models/gpt2.lua", (const char **)SMALL);
    cr_assert_eq(a->modules.n, b->modules.n);
    for (int i = 0; i < a->modules.n; i++) cr_assert_str_eq(a->modules.at[i]->path, b->modules.at[i]->path);
    cr_assert_str_eq(
        load("local nn, optim = require 'nn', require 'optim'\nlocal s = '' for k, v in pairs { b = 1, a = 2, [3] "
             "= 0, [1.5] = 0, [10] = 0 } do s = s .. k end\nassert(s == '1.5310ab', s)\n"
             "local t = { z = 1, y = 2 } assert(next(t) == 'y' and next(t, 'y') == 'z' and next(t, 'z') == "
             "nil)\nassert(tostring({}) == 'table' and ('%d'):format(3) == '3')\n"
             "for w in ('a b'):gmatch('%a') do t[w] = load('return 7')() end assert(t.a == 7 and not load('return "
             "='))\nlocal m = nn.Linear(1, 1)\n"
             "return nn.training { model = m, batch = { x = nn.input('fp32', { 1, 1 }) }, loss = function(m, b) "
             "return nn.sum(m(b.x)) end, optimizer = optim.SGD {} }",
             1)
            ->params.at[0]
            ->path,
        "weight");
}

/* ── options and policies ───────────────────────────────────────────────────────────────────────────────────────────
 */
static const char OPTIONS[] =
    "local nn, optim = require 'nn', require 'optim'\nlocal o = nn.options {\n  n = 3, x = 0.5, flag = true, name = "
    "'a',\n  pick = nn.choice('one', 'two'), size = nn.choice(1, 2), maybe = nn.optional 'number', on = nn.optional "
    "'boolean', text = nn.optional 'string',\n}\n"
    "local m = nn.Linear(1, 1)\nfunction m:forward(x) nn.log_metric(('%d %g %s %s %s %d %s %s %s'):format(o.n, o.x, "
    "o.flag, "
    "o.name, o.pick, o.size, o.maybe, o.on, o.text), nn.sum(self.weight)) return nn.linear(x, self.weight, self.bias) "
    "end\n"
    "return nn.training { model = m, batch = { x = nn.input('fp32', { 1, 1 }) }, loss = function(m, b) return "
    "nn.sum(m(b.x)) end, optimizer = optim.SGD {} }";

Test(frontend, options) {
    const char *path = write_file("options.lua", OPTIONS);
    cr_assert_str_eq(load_file(path, NULL)->training->metrics.at[2].name, "3 0.5 true a one 1 nil nil nil");
    Graph *g = load_file(path, SET("n=4", "x=2", "flag=false", "name=b c", "pick=two", "size=2", "maybe=1.5", "on=1",
                                   "text=x=y", "n=5"));
    cr_assert_str_eq(g->training->metrics.at[2].name, "5 2 false b c two 2 1.5 true x=y");
    cr_assert_eq(g->training->options.n, 9);
    cr_assert_str_eq(g->training->options.at[0].name, "flag");
    cr_assert_str_eq(g->training->options.at[0].text, "false");
    cr_assert_eq(g->training->options.at[4].src.line, 4);
    char at[128];
    const struct {
        const char *set, *message;
        int line, code;
    } rows[] = {{"nam=3",
                 "--set: no option 'nam'; did you mean 'name'?; the options are: flag maybe n name on pick size text x",
                 2, 1},
                {"n=3.5", "--set n=3.5: n must be a whole number", 3, 1},
                {"x=", "--set x=: x must be a number", 3, 1},
                {"x=nan", "--set x=nan: x must be a number", 3, 1},
                {"flag=yes", "--set flag=yes: flag must be true or false", 3, 1},
                {"pick=three", "--set pick=three: pick must be one or two", 4, 1},
                {"maybe=x", "--set maybe=x: maybe must be a number", 4, 1},
                {"n", "shardc: --set n: write --set key=value", 0, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(at, sizeof at, "%s:%d: %s", path, rows[i].line, rows[i].message);
        expect(rows[i].code, rows[i].line ? at : rows[i].message, path, SET(rows[i].set), NULL, 1);
    }
    remove(path);
    expect(1, "--set: this file has no nn.options to set", path = write_file("plain.lua", net("", "")), SET("n=3"),
           NULL, 1);
    remove(path);
    expect(1, "nowhere.lua", "nowhere.lua", NULL, NULL, 1);
}

Test(frontend, policy_file) {
    Arena *a = arena_new();
    const char *policy =
        write_file("policy.lua", "local nn = require 'nn'\nreturn {\n  { match = 'h.*', fully_shard = false, "
                                 "checkpoint = { save = { 'attention' } } },\n"
                                 "  { match = 'h.1', fully_shard = { reshard_after_forward = false, mesh = nn.mesh { "
                                 "shard = 1 }, prefetch = { forward = 2 } } },\n"
                                 "  { match = 'h.*.mlp', checkpoint = { offload = { 'input' }, recompute = false } "
                                 "},\n  { match = '**ln_1', fully_shard = { offload = { params = true } } },\n}\n");
    Graph *g = load_with(a, "models/gpt2.lua", (const char **)SMALL, policy, 1);
    cr_assert(!module(g, "h.0")->policy && module(g, "h.0")->checkpoint && module(g, "h.1")->policy);
    cr_assert(module(g, "h.0.mlp")->checkpoint && !module(g, "h.0.attn")->checkpoint && !module(g, "ln_f")->policy);
    const UnitPolicy *p = module(g, "h.1")->policy;
    cr_assert(p->shard == 1 && p->reshard_after_forward == 0 && p->prefetch_forward == 2 && p->prefetch_backward == 1);
    cr_assert(module(g, "h.1.ln_1")->policy->offload_params && g->root->policy->root_default);
    cr_assert_eq(p->src.line, 4);
    cr_assert_str_eq(p->src.file, policy);
    remove(policy);
}

Test(frontend, bad_policy_files) {
    const struct {
        const char *text, *message;
    } rows[] = {
        {"return 3", "policy.lua:1: policy: the file must return a list"},
        {"return { fully_shard = {} }", "policy.lua:1: policy: the list has no entry 1"},
        {"return { match = 'h.*', checkpoint = {} }",
         "policy.lua:1: policy: the file returns one entry; return a list"},
        {"return { { match = '', fully_shard = { mesh = nn.mesh { shard = 1 } } } }",
         "policy.lua:1: undefined name 'nn'; begin the file with local nn = require \"nn\""},
        {"return {\n { match = 'h.{1-0}', checkpoint = {} } }", "policy.lua:2: policy: 'h.{1-0}': a range is {0-15}"},
        {"return { 3 }", "policy.lua:1: policy: entry 1 is the number 3"},
        {"return { { fully_shard = {} } }", "policy.lua:1: policy: entry 1 has no match"},
        {"return {\n { match = 'h.*' } }", "policy.lua:2: policy: the entry for 'h.*' says nothing"},
        {"return {\n { match = 'h.5', checkpoint = {} } }",
         "policy.lua:2: policy: no module's path matches 'h.5'; did you mean 'h.0'?"},
        {"return {\n { match = 'h.0', chekpoint = {} } }",
         "policy.lua:2: policy: unknown key 'chekpoint'; did you mean 'checkpoint'?"},
        {"return {\n { match = 'h.0', fully_shard = {} },\n { match = 'h.0', fully_shard = {\n reshard = true } } }",
         "policy.lua:4: fully_shard: unknown key 'reshard'"},
        {"return {\n { match = 'h.0', fully_shard = { mesh = { shard = 3 } } } }",
         "policy.lua:2: nn.mesh: shard 3 does not divide the world of 2 ranks; give --world 3 or a multiple of it"},
        {"return {\n\n { match = [[h.9]], checkpoint = {} } }", "policy.lua:1: policy: no module's path"},
        {"return {\n { match = 'h.0', checkpoint = { save = 3 } } }",
         "policy.lua:2: checkpoint: save must be a string or a list of strings"},
        {"return {\n { match = 'h.0', checkpoint = { save = { attention = true } } } }",
         "policy.lua:2: checkpoint: save must be a list of strings"},
        {"return {\n { match = 'h.0', checkpoint = { 'attention' } } }",
         "policy.lua:2: checkpoint: entry 1 without a name"},
        {"retrun {}", "policy.lua:1: undefined name 'retrun'"},
        {"return {", "policy.lua:1: unexpected symbol near <eof>"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *policy = write_file("policy.lua", rows[i].text);
        expect(1, rows[i].message, "models/gpt2.lua", (const char **)SMALL, policy, 2);
        remove(policy);
    }
    expect(1, "nowhere.lua", "models/gpt2.lua", (const char **)SMALL, "nowhere.lua", 1);
}

/* ── refusals (tests/program/bad has the table of them) ─────────────────────────────────────────────────────────────
 */
Test(frontend, shapes_name_the_module_and_the_remedy) {
    const char *path = write_file("shape.lua", net("model.up = nn.Linear(5, 8)", "x = self.up(x)"));
    char message[1024];
    snprintf(message, sizeof message,
             "%s:6: matmul: x fp32[2,8,4] · Wᵀ with W fp32[8,5]: 4 ≠ 5\n  in up = nn.Linear(5, 8), made at %s:4; write "
             "nn.Linear(4, 8)\n",
             path, path);
    expect(1, message, path, NULL, NULL, 1);
    remove(path);
}

static FILE *open_below(const char *folder, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    return f;
}

Test(frontend, required_files) {
    char folder[] = "/tmp/shardc-test-XXXXXX", path[64], link[64], message[256];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.lua", folder);
    snprintf(link, sizeof link, "%s/out.lua", folder);
    FILE *f = open_below(folder, "part.lua");
    fputs("local nn = require 'nn'\nreturn { make = function(n) return nn.Linear(n, n) end, bad = function(x)\n  "
          "return nn.reshape(x, 5) end }\n",
          f);
    fclose(f);
    cr_assert(!symlink("/etc/hostname", link));
    fclose(open_below(folder, "nothing.lua"));
    const struct {
        const char *forward, *message;
    } rows[] = {
        {"x = require('part').bad(x)", "%s/part.lua:3: reshape:"},
        {"require 'prat'", "model.lua:6: require: no module 'prat', there is no file "
                           "%s/prat.lua; did you mean 'part'?"},
        {"require 'out'", "model.lua:6: require: %s/out.lua leads out of the model's folder"},
        {"require 'a.b'", "model.lua:6: require: no module 'a.b', there is no file %s/a/b.lua"},
        {"require 'nothing'; require 'nothing'; x = nn.concat({ x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x }, "
         "0)",
         "model.lua:6: concat: 17 operands; at most 16 fit"},
        {"x = require 'nn'.relu(1) --[[", "model.lua:10: unfinished long comment"},
        {"require '/etc/x'", "model.lua:6: require: '/etc/x' is no module name"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        f = open_below(folder, "model.lua");
        fputs(net("local part = require 'part'; assert(part == require 'part'); model.more = part.make(4)",
                  rows[i].forward),
              f);
        fclose(f);
        snprintf(message, sizeof message, rows[i].message, folder);
        expect(1, message, path, NULL, NULL, 1);
    }
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert(system(command) == 0);
}

Test(frontend, files_below_the_folder) {
    const Sandbox tmp = {.folder = "/tmp"}, root = {.folder = "/"}, none = {.folder = "/tmp/shardc-no-such-folder"};
    cr_expect(sandbox_holds(&tmp, "/tmp/a/b.lua"));
    cr_expect_not(sandbox_holds(&tmp, "/tmpfile.lua"));
    cr_expect_not(sandbox_holds(&tmp, "/etc/hostname"));
    cr_expect(sandbox_holds(&root, "/etc/hostname"));
    cr_expect_not(sandbox_holds(&none, "/tmp/shardc-no-such-folder/a.lua"));
}

Test(frontend, limits) {
    const struct {
        const char *body, *message;
    } rows[] = {
        {"while true do end", ":6: stopped: more than 1 s of processor time"},
        {"local t = {} while true do t[#t + 1] = ('x'):rep(1000000) .. #t end",
         ":6: stopped: more than 32 MiB of memory"},
        {"while true do x = x * 2 end", ":6: stopped: more than 32 MiB of memory for Lua's values and traced ops"},
        {"print(('x'):rep(3000))", ":6: stopped: more than 2 KiB of printed text"},
        {"local s = ('a'):rep(9999):find(('a*'):rep(60) .. 'b')", ":6: stopped: more than 1 s of processor time"},
        {"local s = ('a'):rep(9999):gsub(('a-'):rep(60) .. 'b', 'c')", ":6: stopped: more than 1 s"}};
    sandbox_limit("time=1");
    sandbox_limit("memory=32");
    sandbox_limit("print=2");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = write_file("limit.lua", net("", rows[i].body));
        expect(1, rows[i].message, path, NULL, NULL, 1);
        remove(path);
    }
}

/* Entries are looked up by their text: a search from the beginning for each would take hours. */
Test(frontend, long_policy) {
    static char text[9000000];
    size_t n = (size_t)sprintf(text, "return {");
    for (int i = 0; i < 200000; i++)
        n += (size_t)sprintf(text + n, "{ match = \"%s\", checkpoint = {} },\n", i % 2 ? "embed" : "out");
    sprintf(text + n, "{ match = \"none\", checkpoint = {} } }");
    const char *path = write_file("model.lua", net("", "")), *policy = write_file("policy.lua", text);
    expect(1, "policy.lua:200001: policy: no module's path matches 'none'", path, NULL, policy, 1);
    remove(path);
    remove(policy);
}

/* ── the sandbox by itself, as device profiles use it ───────────────────────────────────────────────────────────────
 */
Test(sandbox, runs_text) {
    Arena *a = arena_new();
    lua_State *L = sandbox_new(a, NULL);
    const char text[] = "#! shell line\nlocal z = 'function()\\z\n  function() \\'\\\n function()'\nlocal f = "
                        "function(a, ...) --[==[ ) function( ]==] return select('#', ...) "
                        "end\nreturn { x = f(1, 2, 3), s = [[function() ]] .. 'function()', z = z }";
    sandbox_run(L, text, strlen(text), "@profile.lua", 1);
    lua_getfield(L, -1, "x");
    cr_assert_eq(lua_tointeger(L, -1), 2);
    lua_getfield(L, -2, "s");
    cr_assert_str_eq(lua_tostring(L, -1), "function() function()");
    lua_getfield(L, -3, "z");
    cr_assert_str_eq(lua_tostring(L, -1), "function()function() '\n function()");
    sandbox_close(L);
    arena_free(a);
}

static lua_Integer integer_of(const char *text) {
    Arena *a = arena_new();
    lua_State *L = sandbox_new(a, NULL);
    sandbox_run(L, text, strlen(text), "@profile.lua", 1);
    lua_Integer n = lua_tointeger(L, -1);
    sandbox_close(L);
    arena_free(a);
    return n;
}

/* A search of all keys at every step would meet the limit on time. */
Test(sandbox, next_is_quick) {
    cr_expect_eq(integer_of("local t, n = {}, 0 for i = 1, 100000 do t['k' .. i] = i end\n"
                            "for _, v in next, t do n = n + v end return n"),
                 5000050000);
}

Test(sandbox, next_goes_over_sorted_keys) {
    cr_expect_eq(integer_of("local t, u, n = { b = 2, a = 1, c = 3, 4 }, { 5, 6 }, 0\n"
                            "for k, v in next, t do n = n * 10 + v end return n"),
                 4123);
    cr_expect_eq(integer_of("local t, u, n = { b = 2, a = 1, c = 3 }, { 5, 6 }, 0\n" /* two tables, and one twice */
                            "for k, v in next, t do for _, w in next, t do n = n * 2 + w end\n"
                            "for _, w in next, u do n = n + v * w end end return n"),
                 1716);
    cr_expect_eq(
        integer_of("local t, n = { a = 1, b = 2, c = 3, d = 4 }, 0\n"
                   "for k, v in next, t do n = n * 10 + v; t[k], t.c = nil end return n + (next(t) and 1 or 0)"),
        124);
    cr_expect_eq(integer_of("local t, n = {}, 0 for i = 1, 9 do t[i] = i; next(t); n = n + next(t, i - 1 > 0 and i - 1 "
                            "or nil) end return n"),
                 45);
}

/* Three times what a file may hold, in small objects and in large ones. */
Test(sandbox, garbage_is_collected) {
    Arena *a = arena_new();
    lua_State *L = sandbox_new(a, NULL);
    const char text[] = "local x\nfor i = 1, 60000 do x = ('x'):rep(8000) .. i; x = { x:sub(1, 200) .. i } end\n"
                        "for i = 1, 2000000 do x = { i, { i } } end return #x";
    sandbox_run(L, text, strlen(text), "@profile.lua", 1);
    cr_expect_eq(lua_tointeger(L, -1), 2);
    cr_expect(lua_gc(L, LUA_GCISRUNNING));
    cr_expect_lt(sandbox_of(L)->used, (size_t)320 << 20);
    sandbox_close(L);
    arena_free(a);
}

Test(sandbox, embedded_texts) {
    size_t n;
    cr_assert(embedded_text("lua/nn/pointwise.lua", &n) && n > 1000);
    cr_assert_null(embedded_text("lua/none.lua", &n));
    cr_assert(embedded_name(0) && embedded_text(embedded_name(0), &n));
    cr_assert_null(embedded_name(100));
}
