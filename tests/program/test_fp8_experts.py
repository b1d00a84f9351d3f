"""mp_policy.matmul_dtype = "fp8" and products of routed experts: results and gradients beside sums of numbers that are rounded here, a model beside
PyTorch's (fp8_experts.json), the same bits whatever the plan, what leaves experts wide, what is refused.

Relies on: harness.py, test_fp8.py, tests/golden/fp8_experts.json. Relied on by: run.py."""
import array
import math
import os
import re

from harness import ROOT, SHARDC, build, check, entry, floats, must, read_log, read_safetensors, relative, same_run, scratch, settings, shared, steps, train, write_safetensors
from test_fp8 import E4M3, E5M2, bf16, blob, f32, model_agrees, numbers_of, quantized, records, refused, times, trained

ROWS, IN, OUT = 144, 80, 64
GROUPS = [37, 0, 70, 21]  # rows of each; the others are nobody's
# `transposed`: matrices are [inputs, outputs]. Rows and what the results are weighted by are given, so that all roundings are known.
EXPERTS = """local nn, optim = require "nn", require "optim"
local o = nn.options { transposed = false, precision = nn.choice("fp32", "bf16"), recipe = nn.choice("tensor", "delayed"), grad = nn.choice("e5m2", "e4m3") }
local model, experts = nn.module "Net", nn.module "Experts"
experts.weight = nn.parameter(o.transposed and { 4, %(IN)d, %(OUT)d } or { 4, %(OUT)d, %(IN)d })
experts.bias = nn.parameter { 4, %(OUT)d }
function experts:forward(x, index)
  local w = o.transposed and self.weight or nn.transpose(self.weight, 1, 2)
  return nn.grouped_matmul(x, w, nn.route(index - 1, 4), self.bias)
end
model.x, model.experts = nn.parameter { %(ROWS)d, %(IN)d }, experts
function model:forward(index) return self.experts(self.x, index) end
nn.fully_shard(experts, { mp_policy = { param_dtype = o.precision, matmul_dtype = "fp8", matmul_expert_dtype = "fp8", recipe = o.recipe, matmul_grad_dtype = o.grad } })
nn.fully_shard(model)
return nn.training {
  model = model, batch = { c = nn.input("fp32", { %(ROWS)d, %(OUT)d }), index = nn.input("int32", { %(ROWS)d }) },
  loss = function(m, b) return (nn.cast(m(b.index), "fp32") * b.c):sum() end,
  optimizer = optim.SGD { lr = 0.1 },
}
""" % globals()


# ── products, written down once more ───────────────────────────────────────────────────────────────────────────────────
def model():
    return shared("fp8-experts", lambda folder: (os.makedirs(folder), open(os.path.join(folder, "experts.lua"), "w").write(EXPERTS))) + "/experts.lua"


def by_group(size, values):
    """The rows of each group, and all that no group has."""
    at, made = 0, []
    for n in GROUPS:
        made.append(values[at * size:(at + n) * size])
        at += n
    return made


def experts_agree(precision, transposed, recipe="tensor", sizes=(0.01,), grad="e5m2"):
    """Results and gradients of the last of as many steps as there are sizes, of what the results are weighted by. Rows that no group has hold the largest
    numbers of all: they have no part in a scale."""
    taken = sum(GROUPS)
    x, w, bias = (numbers_of(k, n, size) for k, (n, size) in enumerate([(ROWS * IN, 3), (4 * IN * OUT, 0.5), (4 * OUT, 1)]))
    each = [numbers_of(3 + k, ROWS * OUT, size) for k, size in enumerate(sizes)]
    for values, size in [(x, IN)] + [(c, OUT) for c in each]:
        values[taken * size:] = [f32(1000.0 + i) for i in range((ROWS - taken) * size)]
    index = array.array("i", [g + 1 for g, n in enumerate(GROUPS) for _ in range(n)] + [0] * (ROWS - taken)).tobytes()
    folder = scratch("fp8-experts")
    weights, grads, log = (os.path.join(folder, n) for n in ("w.safetensors", "g.safetensors", "log.jsonl"))
    shape = [4, IN, OUT] if transposed else [4, OUT, IN]
    write_safetensors(weights, {"x": ("F32", [ROWS, IN], blob(x)), "experts.weight": ("F32", shape, blob(w)), "experts.bias": ("F32", [4, OUT], blob(bias))})
    binary = build(model(), precision=precision, transposed=transposed, recipe=recipe, grad=grad)
    train(binary, "--data", "-", "--weights", weights, "--steps", str(len(sizes)), "--lr", "0", "--log", log, "--dump", "*.grad", "--at-step", str(len(sizes)), "-o", grads,
          records=records(b"".join(blob(c) + index for c in each)))
    got = {k: list(floats(t)) for k, t in read_safetensors(grads).items()}
    narrow = (lambda v: [bf16(e) for e in v]) if precision == "bf16" else list
    rows, before = narrow(x[:taken * IN]), [narrow(c[:taken * OUT]) for c in each[:-1]]
    seen, seen_x = (2 * max(max(map(abs, k)) for k in at) if before and recipe == "delayed" else None for at in (before, [rows]))
    seen_x = seen_x if precision == "bf16" else None  # without a cast x is the parameter itself, which is taken as it is, as the matrices are
    a, b = quantized(rows, E4M3, seen_x), quantized(narrow(w), E4M3)
    c = narrow(each[-1][:taken * OUT])
    g = quantized(c, E4M3 if grad == "e4m3" else E5M2, seen)
    y, want = [], {"x.grad": [], "experts.weight.grad": [], "experts.bias.grad": []}
    for e, (n, ae, ge, ce) in enumerate(zip(GROUPS, by_group(IN, a), by_group(OUT, g), by_group(OUT, c))):
        be = b[e * IN * OUT:(e + 1) * IN * OUT]
        y += [s + t for s, t in zip(times(ae, be, n, IN, OUT, turn_b=not transposed), narrow(bias)[e * OUT:(e + 1) * OUT] * n)]
        want["x.grad"] += times(ge, be, n, OUT, IN, turn_b=transposed)
        want["experts.weight.grad"] += times(ae, ge, IN, n, OUT, turn_a=True) if transposed else times(ge, ae, OUT, n, IN, turn_a=True)
        want["experts.bias.grad"] += times([1.0] * n, ce, 1, n, OUT)
    check(got["x.grad"][taken * IN:] == [0.0] * ((ROWS - taken) * IN), "rows that no group has have a gradient")
    got["x.grad"] = got["x.grad"][:taken * IN]
    loss, size = sum(v * e for v, e in zip(y, each[-1])), math.sqrt(sum((v * e) ** 2 for v, e in zip(y, each[-1])))
    found, rounding = steps(read_log(log))[-1]["loss"], 1e-6 if precision == "fp32" else 3e-3
    check(abs(found - loss) <= rounding * size, "loss %.9g, not %.9g" % (found, loss))
    far = {k: relative(got[k], want[k]) for k in want}
    check(all(r <= (1e-6 if k != "x.grad" else rounding) for k, r in far.items()), str(far))
    return max(far.values())


def test_products_of_groups():
    """To the rounding of sums, however the matrices lie."""
    worst = {p: max(experts_agree(p, transposed) for transposed in (False, True)) for p in ("fp32", "bf16")}
    return ", ".join("%s %.1e" % x for x in worst.items())


def test_scales_of_steps_before():
    """The last step's numbers are above those of the steps before, and so are cut."""
    return "%.1e" % max(experts_agree(p, transposed, "delayed", (0.01, 0.003, 0.04)) for transposed in (False, True) for p in ("fp32", "bf16"))


def test_gradients_in_e4m3():
    return "%.1e" % experts_agree("bf16", False, grad="e4m3")


# ── a model ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_beside_pytorch():
    """Of `delayed` the first step, which has no history."""
    return "; ".join(model_agrees("moe", "fp8_experts.json", recipe=recipe, experts_matmul="fp8") for recipe in ("tensor", "delayed"))


SMALL = {"layers": 2, "dim": 64, "heads": 2, "kv_heads": 2, "ffn": 96, "experts": 4, "vocab": 256, "batch": 4, "seq": 32, "matmul": "fp8", "experts_matmul": "fp8", "precision": "bf16"}


def policy(text):
    path = os.path.join(scratch("fp8-experts-policy"), "policy.lua")
    open(path, "w").write("return { %s }\n" % text)
    return path


def run(*args, **options):
    return trained(*args, model="moe.lua", sizes=SMALL, **options)


def no_plan_changes_a_bit(**options):
    first = run(**options)
    check(first[0] != run(**options, experts_matmul="plain")[0], "experts multiply as without fp8")
    for what in dict(recompute="experts"), dict(recompute="full"), dict(threads="1"), dict(policy=policy('{ match = "layers.*", fully_shard = { offload = { optimizer = true, params = true } } }')), \
            dict(policy=policy('{ match = "layers.*", checkpoint = { offload = { "input" } } }')):
        same_run(first, run(**options, **what), str(what))
    two = run(world=2, **options)
    for what in dict(recompute="full"), dict(policy=policy('{ match = "layers.*", fully_shard = { reshard_after_forward = false, prefetch = { forward = 0 } } }')):
        same_run(two, run(world=2, **options, **what), "two ranks, %s" % what)
    wide = policy('{ match = "layers.*", fully_shard = { offload = { optimizer = true } } }')
    same_run(two, run(world=2, **options, policy=wide), "two ranks, matrices gathered in bf16")


def test_no_plan_changes_a_bit():
    no_plan_changes_a_bit()


def test_no_plan_changes_a_bit_of_delayed_scales():
    no_plan_changes_a_bit(recipe="delayed", accumulate=2)


def test_experts_on_ranks_of_their_own():
    """Each rank scales the matrices that it has."""
    for recipe in "tensor", "delayed":
        same_run(run(world=2, expert=2, recipe=recipe), run(world=2, expert=2, recipe=recipe, recompute="full"), recipe)


# ── which products ─────────────────────────────────────────────────────────────────────────────────────────────────────
def products(*args, **options):
    """The layers whose experts multiply in 8 bits in training, and whether any linear does."""
    text = must([SHARDC, "inspect", os.path.join(ROOT, "models", "moe.lua"), "--dump-after", "quantize", *settings(dict(SMALL, **options)), *args])
    found = [l for l in text.splitlines() if "scale_b: " in l]
    return sorted({int(re.search(r"layers\.(\d+)\.mlp\.experts", l)[1]) for l in found if " = grouped_matmul(" in l}), any(" = matmul(" in l for l in found)


def test_what_leaves_experts_wide():
    check(products() == ([0, 1], True) and products(matmul="plain") == ([0, 1], False), "%s, %s" % (products(), products(matmul="plain")))
    check(products(layers=4, matmul_wide=1)[0] == [1, 2], "matmul_wide = 1: %s" % products(layers=4, matmul_wide=1)[0])
    check(products(experts_matmul="plain") == ([], True), "experts_matmul = plain: %s" % (products(experts_matmul="plain"),))
    check(products(recipe="block", experts_matmul="plain") == ([], True), "blocks: %s" % (products(recipe="block", experts_matmul="plain"),))
    file = policy('{ match = "layers.0", fully_shard = { mp_policy = { matmul_expert_dtype = "plain" } } }')
    check(products("--policy", file) == ([1], True), "a policy: %s" % (products("--policy", file),))
    file = policy('{ match = "layers.0", fully_shard = { mp_policy = { matmul_expert_dtype = "fp8" } } }')
    check(products("--policy", file, matmul="plain", experts_matmul="plain") == ([0], False), "experts alone")


def test_predictions_name_them():
    """Three products of each linear and of each of two matrices of experts, with the rate that their times are told by."""
    args = [os.path.join(ROOT, "models", "moe.lua"), "--device", "h200"]
    for wide, events, guessed in ("fp8", 24, r"; 12 of them by flops and bytes, at \S+ of 1979 TFLOP/s"), ("plain", 12, "; the peak is 1979 TFLOP/s"):
        text = must([SHARDC, "predict", *args, *settings(dict(SMALL, experts_matmul=wide))])
        check(re.search(r"products in fp8: %d events, by kernels scaled from h100's, measured on H200, \S+%s" % (events, guessed), entry(text, "times")), text)


def test_refused():
    moe = "models/moe.lua"
    both = policy('{ match = "layers.0", fully_shard = { mp_policy = { matmul_expert_dtype = "fp8" } } }')
    refused(r"policy\.lua:\d+: .*matmul_expert_dtype = \"fp8\" with recipe = \"block\" \(.*moe\.lua:\d+\): products of experts have no scales of blocks; leave it out", "--policy", both,
            model_file=moe, **dict(SMALL, recipe="block", experts_matmul="plain"))
    file = policy('{ match = "layers.0", fully_shard = { mp_policy = { matmul_expert_dtype = "int8" } } }')
    refused(r"policy\.lua:\d+: .*matmul_expert_dtype = \"int8\"; there are \"fp8\".*\"plain\"", "--policy", file, model_file=moe, **SMALL)
    refused(r"policy\.lua:\d+: matmul_expert_dtype = \"fp8\": a100 \(compute capability 8\.0\) has no products in fp8", "--policy", both, "--device", "a100", model_file=moe,
            **dict(SMALL, matmul="plain", experts_matmul="plain"))
    refused(r"policy\.lua:\d+: matmul_expert_dtype = \"fp8\": no linear or routed expert of its units can multiply in fp8: .*multiples of 16", "--policy", both, model_file=moe,
            **dict(SMALL, matmul="plain", experts_matmul="plain", ffn=24))
    refused(r"moe\.lua:\d+: layers\.0\.mlp\.experts: its unit multiplies in fp8 \(matmul_expert_dtype, at .*policy\.lua:\d+\).* its input has 248", "--policy", both,
            model_file=moe, **dict(SMALL, matmul="plain", experts_matmul="plain", seq=31))
