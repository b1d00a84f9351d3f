/* Policies as the front end reads them: path patterns against brute force, and what each option of a unit becomes.
 * Relies on: Criterion; frontend/.
 * Relied on by: make test. */
#include "frontend/fe.h"
#include "frontend/frontend.h"

#include <criterion/criterion.h>
#include <unistd.h>

/* ── patterns ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool slow_match(const char *p, const char *s, bool across) {
    if (!*p) return !*s;
    if (*p == '*') {
        bool deep = across || p[1] == '*';
        const char *rest = p;
        while (*rest == '*') rest++;
        for (;; s++) {
            if (slow_match(rest, s, across)) return true;
            if (!*s || (!deep && *s == '.')) return false;
        }
    }
    bool one = *p == '?' && *s && (across || *s != '.');
    return *s && (one || *p == *s) && slow_match(p + 1, s + 1, across);
}

static uint64_t seed = 1;
static int chance(int n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((seed >> 33) % (uint64_t)n);
}

Test(policy, patterns_agree_with_brute_force) {
    int matched = 0;
    for (int i = 0; i < 400000; i++) {
        char p[12], s[12];
        int np = chance(9), ns = chance(9);
        for (int k = 0; k < np; k++) p[k] = "aab.**?"[chance(7)];
        for (int k = 0; k < ns; k++) s[k] = "aab."[chance(4)];
        p[np] = s[ns] = 0;
        bool across = chance(2);
        cr_assert_eq(policy_path_match(p, s, across), slow_match(p, s, across), "'%s' on '%s'", p, s);
        matched += policy_path_match(p, s, across);
    }
    cr_expect_gt(matched, 10000);
}

Test(policy, patterns_of_paths) {
    const struct {
        const char *pattern, *path;
        bool matches;
    } rows[] = {{"", "", true},
                {"", "a", false},
                {"layers.*", "layers.10", true},
                {"layers.*", "layers.1.mlp", false},
                {"layers.**", "layers.1.mlp", true},
                {"**.mlp.*", "layers.0.mlp.mlp.up", true}, /* the second .mlp. */
                {"layers.?", "layers.7", true},
                {"layers?0", "layers.0", false},
                {"*", "", true},
                {"h.{0-3}", "h.0", true},
                {"h.{0-3}", "h.3", true},
                {"h.{0-3}", "h.4", false},
                {"h.{2-12}", "h.10", true},
                {"h.{2-12}", "h.1", false},
                {"h.{7}", "h.7", true},
                {"h.{7}", "h.77", false},
                {"h.{0-3}", "h.x", false},
                {"h.{0-3}", "h.99999999999999999999", false},
                {"**.{1-2}.mlp", "a.h.2.mlp", true},
                {"*.{1-2}.*", "h.1.mlp", true},
                {"h.{0-1}.{2-3}", "h.1.3", true},
                {"h.{0-1}.{2-3}", "h.1.1", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(policy_path_match(rows[i].pattern, rows[i].path, false), rows[i].matches, "'%s' on '%s'",
                     rows[i].pattern, rows[i].path);
    char many[1024];
    memset(many, '*', 1000);
    memcpy(many + 1000, "b", 2);
    for (int i = 0; i < 1000; i += 2) many[i] = 'a';
    char text[2001];
    memset(text, 'a', 2000);
    text[2000] = 0;
    cr_expect_not(policy_path_match(many, text, false), "no pattern takes long");
}

Test(policy, ranges_are_well_formed_or_refused) {
    const char *good[] = {"", "h.*", "h.{0-3}", "{7}", "a.{1-1}.{0-999999999}.b"};
    const char *bad[] = {"{",     "{1",     "{1-",    "{}",     "{-2}",    "{1-}",          "{3-1}",
                         "{a-b}", "h.{0-3", "{0-3}{", "{ 1-2}", "{1-2-3}", "{0-9999999999}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect_not(policy_range_malformed(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect(policy_range_malformed(bad[i]), "%s", bad[i]);
}

/* ── options ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const UnitPolicy *policy(const char *text, int world) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/shardc-test-policy-%d.lua", (int)getpid());
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fprintf(f,
            "local nn, optim = require 'nn', require 'optim'\n"
            "local m = nn.module 'Net'\n"
            "m.out = nn.Linear(4, 16)\n"
            "nn.freeze(m.out.weight)\n"
            "function m:forward(x) return self.out(x) end\n"
            "nn.fully_shard(m, { %s })\n"
            "return nn.training { model = m, batch = { x = nn.input('fp32', { 2, 4 }) }, optimizer = optim.SGD {},\n"
            "  loss = function(m, b) return nn.mean(m(b.x)) end }\n",
            text);
    fclose(f);
    FrontendOptions o = {.model_file = path, .world = world, .nodes = 1};
    const Graph *g = frontend_load(arena_new(), &o);
    remove(path);
    return g->root->policy;
}

Test(policy, defaults_are_those_of_pytorch) {
    const UnitPolicy *p = policy("", 4);
    cr_expect(p->root_default && p->reshard_after_forward == 1 && !p->replicate && !p->shard);
    cr_expect(!p->has_param_dtype && !p->has_grad_dtype && !p->has_reduce_dtype && !p->has_output_dtype &&
              p->cast_forward_inputs);
    cr_expect(!p->offload_params && !p->offload_grads && !p->offload_optimizer);
    cr_expect(p->prefetch_forward == 1 && p->prefetch_backward == 1 && p->unshard_in_backward);
    cr_expect(p->gradient_divide_factor == 0 && !policy_unit_options(p)->nignored);
}

Test(policy, every_option_is_read) {
    const UnitPolicy *p =
        policy("mesh = nn.mesh { replicate = 2, shard = 2 }, reshard_after_forward = true, mp_policy = "
               "{ param_dtype = 'bf16', grad_dtype = 'fp16', reduce_dtype = 'fp32', output_dtype = 'fp16', "
               "cast_forward_inputs = false }, offload = { params = true, grads = true, optimizer = "
               "true }, prefetch = { forward = 0, backward = 7 }, unshard_in_backward = false, "
               "gradient_divide_factor = 3.5, ignored_params = { '*.weight' }",
               4);
    cr_expect(!p->root_default && p->reshard_after_forward == 1 && p->replicate == 2 && p->shard == 2);
    cr_expect(p->has_param_dtype && p->param_dtype == BF16 && p->has_reduce_dtype && p->reduce_dtype == FP32);
    cr_expect(p->has_grad_dtype && p->grad_dtype == FP16);
    cr_expect(p->has_output_dtype && p->output_dtype == FP16 && !p->cast_forward_inputs);
    cr_expect(p->offload_params && p->offload_grads && p->offload_optimizer);
    cr_expect(p->prefetch_forward == 0 && p->prefetch_backward == 7 && !p->unshard_in_backward);
    cr_expect(p->gradient_divide_factor == 3.5 && policy_unit_options(p)->nignored == 1);
    cr_expect_eq(p->update, UPDATE_ANYWHERE);
    p = policy("offload = { optimizer = 'stream' }", 1);
    cr_expect(p->offload_optimizer && p->update == UPDATE_STREAM);
    p = policy("offload = { optimizer = 'host' }", 1);
    cr_expect(p->offload_optimizer && p->update == UPDATE_HOST);
    p = policy("reshard_after_forward = false, offload = { grads = true }", 1);
    cr_expect(!p->root_default && !p->reshard_after_forward && !p->offload_params && p->offload_grads);
}
