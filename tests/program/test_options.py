"""No option is parsed and ignored. The lists of options are the front end's own: a new one without a test here fails.

Relies on: harness.py, surface/net.lua, the tests that are named. Relied on by: run.py."""
import array
import importlib
import inspect
import json
import os
import re

from harness import NET, ROOT, SHARDC, Scope, build, check, command, corpus, events_of, long, losses, must, planned, read_safetensors, run, same_run, scratch, settings, shardc, steps
from test_rows_scaler import HUGE, NET as SCALED, go as scaled, scales

# option: the test that shows what it does, "file.test_"
S = "rows_surface.S_"
TESTED = {
    "nn.fully_shard": {
        "mesh": S + "meshes", "reshard_after_forward": S + "reshard_after_forward", "reshard_after_backward": S + "reshard_after_backward",
        "mp_policy": S + "mixed_precision", "offload": S + "offload", "prefetch": S + "prefetch", "unshard_in_backward": S + "unshard_in_backward",
        "ignored_params": S + "ignored_parameters", "gradient_divide_factor": S + "gradient_divide_factor", "requires_gradient_sync": S + "gradient_sync",
        "requires_all_reduce": S + "all_reduce_deferred", "all_gather": "rows_extension.X3_less_travels"},
    "nn.mesh": {"replicate": S + "meshes", "shard": S + "meshes", "expert": "experts.experts_spread_over_ranks"},
    "mp_policy": {"param_dtype": S + "mixed_precision", "grad_dtype": S + "mixed_precision", "reduce_dtype": S + "mixed_precision", "output_dtype": S + "mixed_precision", "matmul_dtype": "fp8.a_linear",
                  "matmul_grad_dtype": "fp8.gradients_in_e4m3", "matmul_expert_dtype": "fp8_experts.what_leaves_experts_wide", "recipe": "fp8.scales_of_steps_before",
                  "cast_forward_inputs": S + "mixed_precision", "buffer_dtype": "options.buffer_dtype"},
    "offload": {"params": S + "offload", "grads": S + "offload", "optimizer": S + "offload"},
    "prefetch": {"forward": S + "prefetch", "backward": S + "prefetch"},
    "nn.checkpoint": {"save": S + "checkpoint", "offload": S + "checkpoint", "recompute": S + "checkpoint"},
    "policy": {"match": "options.policy_file", "fully_shard": "options.policy_file", "checkpoint": "options.policy_file", "replace": "options.policy_entries_merge"},
    "nn.input": {"from": "golden.gpt2", "shift": "options.inputs_and_logs"},
    "nn.log_metric": {"reduce": "options.inputs_and_logs"},
    "groups": {"match": "options.optimizers", "lr": "options.optimizers", "weight_decay": "options.optimizers", "optimizer": "muon.numbers_are_pytorchs"},
    "optim.SGD": dict.fromkeys(("lr", "momentum", "nesterov", "weight_decay", "moment_dtype", "groups"), "options.optimizers"),
    "optim.Adam": dict.fromkeys(("lr", "betas", "eps", "weight_decay", "moment_dtype", "groups"), "options.optimizers"),
    "optim.AdamW": dict.fromkeys(("lr", "betas", "eps", "weight_decay", "moment_dtype", "groups"), "options.optimizers"),
    "optim.Muon": dict.fromkeys(("lr", "momentum", "nesterov", "eps", "ns_steps", "ns_coefficients", "adjust_lr_fn", "others", "weight_decay", "moment_dtype", "groups"), "muon.every_option_changes_the_weights"),
    "optim.Lion": dict.fromkeys(("lr", "betas", "weight_decay", "moment_dtype", "groups"), "options.optimizers"),
    "optim.cosine": dict.fromkeys(("warmup", "total", "min_ratio"), "surface.schedules"),
    "optim.wsd": dict.fromkeys(("warmup", "total", "decay_steps", "min_ratio"), "surface.schedules"),
    "optim.schedule": {"total": "surface.schedules"},
    "grad_scaler": dict.fromkeys(("init_scale", "growth_factor", "backoff_factor", "growth_interval", "without_fp16"), "options.scaler"),
    "sample": {"inputs": "options.sample", "logits": "options.sample"},
    "nn.training": {
        "model": "options.training", "batch": "options.training", "loss": "options.training", "optimizer": "options.optimizers", "schedule": "surface.schedules",
        "clip_grad_norm": "surface.clip_and_accumulate_are_built_in", "accumulate": "surface.accumulation_agrees_with_plain",
        "grad_scaler": "options.scaler", "deterministic": "options.deterministic", "sample": "options.sample", "ema": "ema.it_is_torchs_average"},
}


def source(name):
    with open(os.path.join(ROOT, "compiler", "frontend", name)) as f:
        return f.read()


def words(text):
    return set(" ".join(re.findall(r'"([^"]*)"', text)).split())


def accepted():
    """{table: its keys}, as the front end reads them."""
    policy, entries, training, scaler = source("policy.c"), source("policy_file.c"), source("training.c"), source("scaler.c")
    call = r"check_keys\(\s*\w+,\s*\w+,\s*%s,\s*((?:\"[^\"]*\"\s*)+)\)"
    found = {n: words(re.search(call % re.escape('"%s"' % n), text)[1]) for text, names in (
        (policy, ("nn.mesh", "mp_policy", "offload", "prefetch")), (entries, ("policy",)), (training, ("nn.input", "nn.log_metric", "sample", "nn.training"))) for n in names}
    lists = [words(m) for m in re.findall(call % "what", policy)]
    check(len(lists) == 2, "tables with names of their own: %s" % lists)
    found["nn.fully_shard"], found["nn.checkpoint"] = lists
    found["groups"] = words(re.search(call % "name", training)[1])
    wsd, cosine = re.search(r'SCHED_CONSTANT \? "warmup"\s*: s->kind == SCHED_WSD\s*\? ("[^"]*")\s*: ("[^"]*")', training).groups()
    found["optim.wsd"], found["optim.cosine"] = words(wsd), words(cosine)
    found["optim.schedule"] = words(re.search(call % "what", training)[1])
    found["grad_scaler"] = words(re.search(call % "WHAT", scaler)[1])
    shared = re.search(r'arena_printf\(a, "(lr %s [a-z_ ]+)", rule->keys\)', training)[1]
    with open(os.path.join(ROOT, "runtime/schema/optimizers.h")) as f:
        rows = re.findall(r'\.lua = "(\w+)",.*?\.keys = "([^"]*)"', f.read(), re.S)
    found.update({"optim." + n: set((shared % keys).split()) for n, keys in rows})
    return found


def test_every_option_has_a_test():
    found, n = accepted(), 0
    check(found.keys() == TESTED.keys(), "tables of options: %s" % sorted(found.keys() ^ TESTED.keys()))
    for table, options in TESTED.items():
        check(found[table] == options.keys(), "%s: %s" % (table, sorted(found[table] ^ options.keys())))
        for option, name in options.items():
            file, test = name.split(".")
            module = importlib.import_module("test_" + file)
            check(callable(getattr(module, "test_" + test, None)), "%s.%s: there is no test %s" % (table, option, name))
            check(re.search(r"\b%s\b" % option, inspect.getsource(module)), "%s: %s says nothing of it" % (option, file))
            n += 1
    return "%d options of %d tables" % (n, len(TESTED))


def edited(*pairs):
    """surface/net.lua with some text replaced."""
    with open(NET) as f:
        text = f.read()
    for a, b in pairs:
        check(a in text, "surface/net.lua has no %s" % a)
        text = text.replace(a, b)
    model = os.path.join(scratch("options"), "net.lua")
    with open(model, "w") as f:
        f.write(text)
    return model


def trained(model, *args, n=3, world=1, **o):
    o = dict(dict(batch=16 // world, clip=0), **o)
    return run(build(model, world=world, **o), "--data", corpus(), "--steps", str(n), "--seed", "5", *args)


@long
def test_optimizers():
    """Every option of every optimizer changes what the weights become, and not the first loss."""
    plain = "lr = o.lr, weight_decay = o.decay,"
    groups = re.search(r"groups = \{ .* \},\n", open(NET).read())[0]
    cases = {"sgd": ["momentum = 0.5", "weight_decay = 0", "lr = 0.02", "momentum = 0.5, nesterov = true", "momentum = 0.5, moment_dtype = 'bf16'",
                     "momentum = 0.5, moment_dtype = 'int8'"],
             "lion": ["betas = { 0.8, 0.99 }", "betas = { 0.9, 0.9 }", "weight_decay = 0", "lr = 0.02", "moment_dtype = 'bf16'", "moment_dtype = 'int8'"],
             **dict.fromkeys(("adam", "adamw"), ["betas = { 0.8, 0.999 }", "betas = { 0.9, 0.9 }", "eps = 1e-3", "weight_decay = 0", "lr = 0.02", "moment_dtype = 'bf16'", "moment_dtype = 'int8'"])}
    ways = ["", "groups = { { match = '*.down.*', weight_decay = 0 } },\n", "groups = { { match = '*.down.*', lr = 0.05 } },\n", "groups = { { match = '*.up.*', lr = 0.05 } },\n"]
    n = 0
    for kind, options in cases.items():
        with Scope():
            last = 12 if kind == "lion" else 3  # a rounded momentum seldom turns a sign
            seen = [trained(NET, n=last, optimizer=kind)]
            for x in options:
                keys = re.findall(r"(\w+) = [^=]*", x)
                kept = "" if "lr" in keys else "lr = o.lr, "
                kept += "" if "weight_decay" in keys else "weight_decay = o.decay, "
                seen.append(trained(edited((plain, kept + x + ",")), n=last, optimizer=kind))
            seen += [trained(edited((groups, x)), n=last, optimizer=kind) for x in ways]
            check(len({losses(a[0])[0] for a in seen}) == 1, "%s: the first loss is before any update" % kind)
            ends = [a[1]["blocks.0.down.weight"][2] + a[1]["blocks.0.up.weight"][2] for a in seen]
            check(len(set(ends)) == len(ends), "%s: some options change nothing: %s" % (kind, [i for i, e in enumerate(ends) if ends.count(e) > 1]))
            n += len(ends)
    return "%d ways to train" % n


def test_inputs_and_logs():
    """nn.input's shift moves the window; nn.log_metric's reduce = 'sum' adds over ranks where it else averages."""
    base = trained(NET)
    check(losses(trained(edited(('from = "tokens", shift = 1', 'from = "tokens", shift = 2')))[0]) != losses(base[0]), "another shift, other targets")
    logs = ("loss = function(model, b) return nn.cross_entropy(model(b.tokens), b.targets) end",
            "loss = function(model, b) local l = nn.cross_entropy(model(b.tokens), b.targets); nn.log_metric('mean', l); nn.log_metric('sum', l, { reduce = 'sum' }); return l end")
    for world in (1, 2):
        for line in steps(trained(edited(logs), world=world)[0]):
            check(abs(line["sum"] - world * line["mean"]) < 1e-4 * line["sum"], "over %d ranks: %s" % (world, line))
    for line in steps(trained(edited(logs), "--accumulate", "3", batch=4, accumulate=3)[0]):
        check(abs(line["sum"] - 3 * line["mean"]) < 1e-4 * line["sum"], "over 3 microbatches: %s" % line)


def test_check_finite():
    """--check-finite lets a mask's infinities pass, which are written down in the model, and what is made of them."""
    masked = ("return self.head(self.scale(x))", "x = self.scale(x); x = nn.where(nn.lt(x, 0), -math.huge, x); return self.head(nn.softmax(x + nn.relu(x)))")
    same_run(trained(edited(masked)), trained(edited(masked), "--check-finite"), "--check-finite")


def test_training():
    """model, batch and loss are what is trained: another of each, other numbers."""
    base = trained(NET)
    text = "return nn.cross_entropy(model(b.tokens), b.targets)"
    for pair in (("return self.head(self.scale(x))", "return self.head(x)"), (text, "return 2 * nn.cross_entropy(model(b.tokens), b.targets)"),
                 ('targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 })', 'targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 0 })')):
        check(losses(trained(edited(pair))[0]) != losses(base[0]), "changes nothing: %s" % pair[1])


def test_sample():
    """Its inputs are the program's; its logits decide what is said."""
    args = ("--sample", "12", "--sample-format", "ids", "--prompt", "7 8", "--temperature", "0")
    logits = "sample = { logits = function(model, b) return model(b.tokens) end },"
    said = lambda model: shardc_run(model, *args)
    check(said(NET) != said(edited((logits, "sample = { logits = function(model, b) return -model(b.tokens) end },"))), "other logits, another text")
    model = edited((logits, logits.replace("{ logits", "{ inputs = { tokens = nn.input('int32', { 1, 16 }) }, logits")))
    flops = lambda m: sum(e["flops"] for e in events_of(planned(m, 1), "sample") if e["op"].startswith("matmul"))
    check(flops(model) == 2 * flops(NET), "inputs of twice the length: %s and %s" % (flops(model), flops(NET)))


def shardc_run(model, *args):
    return must([build(model), "--data", corpus(), "--steps", "2", "--seed", "5", "--quiet", *args])


def test_deterministic():
    """false: the CUDA target may take faster kernels, whose sums depend on timing: times and workspaces are others. Kernels of compute capability
    9.0 and the CPU have none."""
    models = [os.path.join(scratch("options"), "gpt2.lua") for _ in range(2)]
    with open(os.path.join(ROOT, "models", "gpt2.lua")) as f:
        text = f.read()
    for model, value in zip(models, ("true", "false")):
        with open(model, "w") as f:
            f.write(re.sub(r"deterministic = [\w.]+", "", text).replace("return nn.training {", "return nn.training { deterministic = %s," % value))
    for device, faster in ("a100", True), ("h200", False):
        o = ("--device", device, "--target", "cuda", "--world", "1", "--set", "size=124m", "--set", "precision=bf16")
        times = [next(p for p in json.loads(shardc("inspect", m, *o, "--format", "json"))["programs"] if p["name"] == "micro")["step_us"] for m in models]
        check(times[1] < times[0] if faster else times[1] == times[0], "a step on %s takes %s us" % (device, times))


def test_policy_file():
    """An entry makes units of what it matches, or recomputes it; false takes both away."""
    def counts(*entries):
        path = os.path.join(scratch("policy"), "p.lua")
        with open(path, "w") as f:
            f.write("return {\n%s}\n" % "".join("  { %s },\n" % e for e in entries))
        p = planned(NET, 2, "--policy", path)
        events = events_of(p)
        return len(p["units"]), sum(e["phase"] == "recompute" for e in events)
    root = "match = '', fully_shard = {}"
    check(counts(root)[0] == 1 and counts(root, "match = 'blocks.*', fully_shard = {}")[0] == 3, "units")
    check(counts(root, "match = 'blocks.*', checkpoint = {}")[1] > 0 == counts(root)[1], "recompute")
    check(counts(root, "match = 'blocks.*', fully_shard = {}", "match = 'blocks.0', fully_shard = false")[0] == 2, "the last match wins")
    both, one = (counts(root, "match = 'blocks.*', checkpoint = {}", *more)[1] for more in ((), ("match = 'blocks.0', checkpoint = false",)))
    check(0 < one < both, "blocks.0 is recomputed no more: %d events of %d" % (one, both))


def with_policy(*lines, model="gpt2.lua", **o):
    """(exit code, message or prediction) of a model with a policy file of these lines; the line of each entry is known."""
    path = os.path.join(scratch("policy"), "p.lua")
    with open(path, "w") as f:
        f.write("\n".join(["return {", *lines, "}", ""]))
    o = settings(dict(dict(layers=2, dim=16, heads=2, vocab=256, batch=2, seq=16), **o))
    rc, out, err = command([SHARDC, "inspect", os.path.join(ROOT, "models", model), *o, "--world", "2", "--policy", path, "--format", "json"])
    return rc, err or {u["path"]: u for u in json.loads(out)["units"]}, out and events_of(json.loads(out))


def test_policy_entries_merge():
    """An entry stands over what the model says, key by key, also within its tables; the last one that says a key wins. replace = true:
    instead of it."""
    readme = re.search(r"^## Policies\n.*?^```lua\n(return \{.*?\n\})\n```", open(os.path.join(ROOT, "models/README.md")).read(), re.M | re.S)[1]
    path = os.path.join(scratch("policy"), "readme.lua")
    with open(path, "w") as f:
        f.write(readme + "\n")
    o = dict(layers=3, dim=16, heads=2, vocab=256, batch=2, seq=16, precision="bf16")
    plain, p = (planned(os.path.join(ROOT, "models", "gpt2.lua"), 2, *settings(o), *more) for more in ((), ("--policy", path)))
    check(plain["units"] == p["units"] and p["units"][0]["wire"] == "bf16", "README's policy changes a dtype: %s" % p["units"])
    check(any(e["phase"] == "recompute" for e in events_of(p)), "README's policy recomputes nothing")
    a = "  { match = 'h.*', fully_shard = { mp_policy = { reduce_dtype = 'bf16', grad_dtype = 'bf16' } } },"
    b = "  { match = 'h.1', fully_shard = { mp_policy = { grad_dtype = 'fp32', reduce_dtype = 'fp32' } } },"
    rc, units, _ = with_policy(a, b, precision="bf16")
    check(rc == 0 and [(units[u]["wire"], units[u]["reduce"]) for u in ("h.0", "h.1")] == [("bf16", "bf16"), ("bf16", "fp32")], units)
    rc, units, _ = with_policy("  { match = 'h.*', replace = true, fully_shard = {} },", gradients="bf16")
    check(rc == 0 and units["h.0"]["gradient"] == "fp32" and units["(root)"]["gradient"] == "bf16", units)
    rc, units, _ = with_policy("  { match = 'h.*', fully_shard = false },", "  { match = 'h.0', fully_shard = {} },", gradients="bf16")
    check(rc == 0 and "h.1" not in units and units["h.0"]["gradient"] == "fp32", "taken away, and made anew: %s" % units)
    kept = [sum(e["phase"] == "recompute" for e in with_policy(x, recompute="selective")[2]) for x in (
        "  { match = 'h.*', checkpoint = {} },", "  { match = 'h.*', replace = true, checkpoint = {} },", "  { match = 'h.*', checkpoint = { save = 'gelu' } },")]
    check(kept[0] < kept[1] and kept[0] < kept[2], "the model's own `save` stands, is replaced, is another: %s" % kept)


def test_policy_mistakes_name_the_entry():
    """Whatever finds a mistake, when it is read, with other policies, in dtypes, names the line of the entry that made it."""
    bf16 = "  { match = 'h.*', fully_shard = { mp_policy = { param_dtype = 'bf16' } } },"
    cases = [
        (["  { match = 'h.*', fully_shard = {} },", "  { match = 'g.*', fully_shard = {} },"], {}, r"p\.lua:3: policy: no module's path matches 'g\.\*'; patterns are whole paths"),
        (["  { match = 'h.0', checkpoint = {} },", "  { match = 'h.0', checkpoint = { safe = {} } },", "  { match = 'h.0', checkpoint = {} },"], {}, r"p\.lua:3: checkpoint: unknown key 'safe'; did you mean 'save'"),
        (["  { match = '', checkpoint = {} },", "  { match = '', fully_shard = { prefetch = { forwards = 1 } } },"], {}, r"p\.lua:3: prefetch: unknown key 'forwards'"),
        (["  { match = '', fully_shard = true },"], {}, r"p\.lua:2: policy: fully_shard is true; write a table of options, \{\} for the defaults, or false"),
        (["  { match = '', replace = 1, fully_shard = {} },"], {}, r"p\.lua:2: policy: replace must be true or false"),
        (["  { match = 'h.*', fully_shard = { prefetch = 3 } },", bf16], {}, r"p\.lua:2: fully_shard: prefetch must be a table, not the number 3"),
        (["  { match = 'h.*', fully_shard = { offload = {} } },", "", "  { match = 'h.*', fully_shard = { mp_policy = { reduce_dtype = 'bf16' } } },"], {},
         r"gpt2\.lua:\d+: mp_policy: gradients of grad_dtype = \"fp32\" cannot be summed in reduce_dtype = \"bf16\" \(\S*p\.lua:4\).*\n.*over those of \S*gpt2\.lua:\d+; replace = true in an entry leaves these out"),
        (["  { match = 'h.*', checkpoint = { recompute = false } },"], dict(recompute="selective"), r"gpt2\.lua:\d+: checkpoint: save names .* recompute = false at \S*p\.lua:2 keeps all.*\n.*replace = true"),
        (["  { match = 'h.*', checkpoint = { save = 'attetion' } },"], {}, r"p\.lua:2: nn\.checkpoint: save = \{ \"attetion\" \}.* did you mean \"attention\""),
        (["  { match = 'wte', fully_shard = {} },", "  { match = 'lm_head', fully_shard = { offload = { grads = true } } },"], {}, r"(wte and lm_head|lm_head and wte).*offload\.grads differ.*p\.lua:3"),
        (["  { match = 'h.0', fully_shard = {} },", "  { match = 'h.1', fully_shard = { prefetch = { forward = { 'h.7' } } } },"], {}, r"p\.lua:3: prefetch: there is no module 'h\.7'"),
        (["  { match = 'h.1', fully_shard = { unshard_in_backward = false } },"], {}, r"p\.lua:2: nn\.fully_shard: unshard_in_backward = false, but the backward"),
        (["  { match = 'h.0', checkpoint = {} },", "  { match = '', replace = true, fully_shard = {} },"], dict(precision="bf16"),
         r"gpt2\.lua:\d+: layer_norm: .*bf16 ≠ fp32.*ln_f\.weight, made at \S*gpt2\.lua:\d+, in the unit of \S*p\.lua:3, which computes in fp32"),
    ]
    for lines, o, pattern in cases:
        rc, err, _ = with_policy(*lines, **o)
        check(rc == 1 and re.search(pattern, str(err), re.S), "no /%s/ in the answer to %s: exit %d, %s" % (pattern, lines, rc, err))
    path = os.path.join(scratch("policy"), "bare.lua")
    for text, line in (("{ match = 'h.*', checkpoint = {} }\n", 1), ("-- an entry\n\n  { { match = 'h.*' } }", 3), ("--\n{", 2)):
        with open(path, "w") as f:
            f.write(text)
        rc, _, err = command([SHARDC, "predict", os.path.join(ROOT, "models", "gpt2.lua"), "--policy", path])
        check(rc == 1 and re.search(r"bare\.lua:%d: policy: the file begins with \{; a file of policies begins with `return \{`" % line, err), "of %r: exit %d, %s" % (text, rc, err))
    for text in ("-- nothing", "--", "", "-- {\n", "x = {"):
        with open(path, "w") as f:
            f.write(text)
        rc, _, err = command([SHARDC, "predict", os.path.join(ROOT, "models", "gpt2.lua"), "--policy", path])
        check(rc == 1 and "bare.lua:1: " in err and "begins with {" not in err, "of %r: exit %d, %s" % (text, rc, err))
    return "%d mistakes" % (len(cases) + 8)


def test_buffer_dtype():
    """mp_policy.buffer_dtype: what buffers are stored in."""
    for dtype, name in (("fp16", "F16"), ("bf16", "BF16")):
        path = os.path.join(scratch("policy"), "p.lua")
        with open(path, "w") as f:
            f.write("return { { match = '', fully_shard = { mp_policy = { buffer_dtype = '%s' } } } }\n" % dtype)
        a = run(build(NET, policy=path, norm="batch", batch=16), "--data", corpus(), "--steps", "2", "--seed", "5")
        b = run(build(NET, norm="batch", batch=16), "--data", corpus(), "--steps", "2", "--seed", "5")
        check(a[1]["blocks.0.norm.running_mean"][0] == name and b[1]["blocks.0.norm.running_mean"][0] == "F32", "running statistics are %s" % a[1]["blocks.0.norm.running_mean"][0])


def test_scaler():
    """init_scale is what the scale begins with; an overflow multiplies it by backoff_factor, growth_interval steps without one by
    growth_factor; without_fp16 is asked for where nothing is fp16."""
    o = dict(init_scale=1024.0, growth_factor=4.0, backoff_factor=0.125, growth_interval=2)
    found = [scales(scaled(2, n=5, gains={2: {1: HUGE}}, **dict(o, **more))) for more in ({}, dict(init_scale=512.0), dict(growth_factor=2.0), dict(backoff_factor=0.5), dict(growth_interval=1))]
    check(found[0] == [1024, 128, 128, 512, 512], "scales %s" % found[0])
    check(len({tuple(f) for f in found}) == 5, "each option has scales of its own: %s" % found)
    rc, _, err = command([SHARDC, "predict", SCALED, "--set", "param_dtype=fp32", "--set", "reduce_dtype=fp32"])
    check(rc == 1 and "fp16" in err, "exit %d, %s" % (rc, err))
    shardc("predict", SCALED, "--set", "param_dtype=fp32", "--set", "reduce_dtype=fp32", "--set", "without_fp16=true")


def text_of(model, **options):
    """A small program of the model, as C."""
    path = os.path.join(scratch("emitted"), "m")
    shardc("build", os.path.join(ROOT, "models", model), "--sources", "-o", path, *settings(dict(dict(layers=1, dim=64, heads=4, vocab=256, seq=16, batch=1), **options)))
    return open(path + ".c").read()


def emitted(model, op, *fields, **options):
    """What calls of an op are given for these fields: a set of tuples of texts."""
    calls = re.findall(r"RUN\(%s, (.*?)\);" % op, text_of(model, **options), re.S)
    check(calls, "%s calls no %s" % (model, op))
    return {tuple((re.search(r"\.%s = ([^,\s)]+)" % f, c) or [0, "-"])[1] for f in fields) for c in calls}


def shape(text, parameter):
    return [int(n) for n in re.search(r'\{"%s", .*?\{([\d, ]+)\}' % re.escape(parameter), text)[1].split(",")]


def test_models_say_what_they_are():
    """Presets of Llama scale positions as the release does whose size they are; options of the models reach their ops."""
    scaling = ("theta", "factor", "low", "high", "context")
    small = dict(kv_heads=2, ffn=64, tied=True)
    for options, expected in ((dict(size="8b"), "8.0"), (dict(size="70b"), "8.0"), (dict(size="1b"), "32.0"), (dict(size="8b", rope_factor=2), "2.0"), (dict(size="tiny", rope_factor=4), "4.0")):
        found = emitted("llama3.lua", "rope", *scaling, **small, **options)
        check(found == {("500000.0", expected, "1.0", "4.0", "8192.0")}, "%s: %s" % (options, found))
    for options in (dict(size="3-8b"), dict(size="3-70b"), dict(size="tiny"), dict(size="8b", rope_scaling=False)):
        found = {f[1] for f in emitted("llama3.lua", "rope", *scaling, **small, **options)}
        check(found <= {"0.0", "0", "-"}, "%s: factor %s" % (options, found))
    for model, op, options in (("llama3.lua", "rms_norm", small), ("qwen2.lua", "rms_norm", small), ("gpt2.lua", "layer_norm", {}), ("transformer.lua", "layer_norm", {})):
        check(emitted(model, op, "eps", eps=0.25, **options) == {("0.25",)}, "%s: eps" % model)
    positions = shape(text_of("gpt2.lua", positions=40), "wpe.weight")
    check(positions == [40, 64], "positions: %s" % positions)
    for model in ("llama3.lua", "qwen2.lua"):
        text, attn = text_of(model, head_dim=32, **small), "model.layers.0.self_attn."
        check(shape(text, attn + "k_proj.weight") == [64, 64] and shape(text, attn + "o_proj.weight") == [64, 128], "%s: head_dim" % model)
    rc, _, err = command([SHARDC, "predict", os.path.join(ROOT, "models", "llama3.lua"), *settings(dict(size="3-8b", layers=1, seq=16384, precision="bf16"))])
    check(rc == 0 and err.startswith("3-8b: seq = 16384, but Llama of this size was trained on sequences of up to 8192; "), "exit %d: %s" % (rc, err))


def test_what_no_shape_shows():
    """A program knows what weights of another model could differ in without a shape that differs, and tells it where it reads some."""
    def told(model, **options):
        return re.search(r'\.unproven = "(.*?)",\n', text_of(model, **options))[1]

    small = dict(kv_heads=2, ffn=96, tied=True)
    check(told("llama3.lua", size="8b", **small) == "heads 4/2 of 16, rope theta 500000 scaled by 8 (low 1, high 4, original 8192), eps 1e-05, square matrices [out,in]", told("llama3.lua", **small))
    check(told("qwen2.lua", theta=5000, eps=0.001, **small) == "heads 4/2 of 16, rope theta 5000, eps 0.001, square matrices [out,in]", told("qwen2.lua", theta=5000, **small))
    check(told("gpt2.lua") == "heads 4 of 16, eps 1e-05, square matrices [in,out]", told("gpt2.lua"))
    other = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(256, 16), nn.Linear(16, 256)
model.norms = nn.list {}
for i = 1, 6 do model.norms[i] = nn.LayerNorm(16, { eps = 10 ^ -i }) end
function model:forward(tokens)
  local x = self.embed(tokens)
  for _, norm in ipairs(self.norms) do x = norm(x) end
  local h = x:reshape(2, 8, 2, 8)
  x = nn.attention { q = h, k = h, v = h, scale = 0.25 }:reshape(2, 8, 16)
  local position = nn.arange(8, "fp32"):reshape(1, 1, 1, 8)
  h = nn.attention { q = h, k = h, v = h, causal = true, window = { 3, 0 }, softcap = 50, bias = position / 4 }
  h = nn.attention { q = h, k = h, v = nn.slice(h, 3, 0, 4), window = { math.huge, 2 } }
  h = nn.concat({ h, h }, 3)
  h = nn.rope(h, { width = 4, interleaved = true, scaling = { type = "yarn", factor = 4, original = 16 } })
  h = nn.rope(h, { frequencies = { 1, 0.5, 0.25, 0.1 }, sections = { 1, 3 }, positions = nn.expand(nn.arange(8), 2, 2, 8) })
  h = nn.rope(h, { theta = 100, scale = 2, sections = { 2, 2 }, in_turns = true, positions = nn.expand(nn.arange(8), 2, 2, 8) })
  x = x + h:reshape(2, 8, 16)
  return self.out(x)
end
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }), targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
"""
    folder = scratch("unproven")
    model, path = os.path.join(folder, "model.lua"), os.path.join(folder, "m")
    open(model, "w").write(other)
    shardc("build", model, "--sources", "-o", path)
    line = re.search(r'\.unproven = "(.*?)",\n', open(path + ".c").read())[1]
    check(line == "heads 2 of 8 and 2 of 8 with values of 4, scale of attention 0.25, window full and { 3, 0 } and { all, 2 }, softcap 50, bias of scores fp32[1,1,1,8], rope theta 10000 scaled by yarn 4 (low 1, high 32, original 16), 4 of 8 elements, "
          "interleaved, times 1.13862944 and of frequencies 1 to 0.1, sections 1 3 and 100, times 2, sections 2 2 in turns, eps 0.1 and 0.01 and 0.001 and 0.0001 and 2 more", line)


def test_exported_dtypes():
    """--export-dtype rounds to nearest, ties to even, from the shards of two ranks; what was loaded comes out as it was."""
    folder, binary = scratch("exported"), build("llama3.lua", world=2, layers=1, dim=32, heads=2, kv_heads=1, ffn=64, vocab=256, seq=16)
    paths = {name: os.path.join(folder, name) for name in ("kept", "bf16", "again", "fp32")}
    out = must([binary, "--data", corpus(), "--steps", "2", "--export", paths["kept"]])
    check("\nexport   %s in fp32, as the parameters are kept\n" % paths["kept"] in out, out)
    must([binary, "--data", corpus(), "--steps", "2", "--export", paths["bf16"], "--export-dtype", "bf16"])
    kept, bf16 = read_safetensors(paths["kept"]), read_safetensors(paths["bf16"])
    for name, (dtype, shape, raw) in kept.items():
        bits = array.array("I", raw)
        nearest = array.array("H", [(u + 0x7fff + (u >> 16 & 1)) >> 16 for u in bits])
        check(dtype == "F32" and bf16[name] == ("BF16", shape, nearest.tobytes()), "%s is not rounded to nearest" % name)
    out = must([binary, "--weights", paths["bf16"], "--export", paths["again"], "--export-dtype", "loaded"])
    check("\nweights  12 tensors of bf16 in 1 file; no shape shows: heads 2/1 of 16, rope theta 500000, eps 1e-05, square matrices [out,in] (compare with config.json)\n" in out, out)
    check(open(paths["again"], "rb").read() == open(paths["bf16"], "rb").read(), "bf16 weights come out as others")
    out = must([binary, "--weights", paths["bf16"], "--export", paths["fp32"]])
    check("as the parameters are kept; the weights were bf16 (--export-dtype loaded writes those)\n" in out, out)
    check({k: v[0] for k, v in read_safetensors(paths["fp32"]).items()} == dict.fromkeys(kept, "F32"), "exported without a dtype")
