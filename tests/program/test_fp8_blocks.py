"""mp_policy.recipe = "block": a linear's results and gradients beside sums of blocks that are rounded here, models beside PyTorch's (fp8_blocks.json),
the same bits whatever the plan, bytes, what is refused; which layers multiply in fp8.

Relies on: harness.py, test_fp8.py, tests/golden/fp8_blocks.json. Relied on by: run.py."""
import math
import os
import re

from harness import ROOT, SHARDC, build, check, floats, must, planned, read_log, read_safetensors, relative, same_run, scratch, shared, steps, train, write_safetensors
from test_fp8 import E4M3, bf16, blob, f32, model_agrees, no_plan_changes_a_bit, numbers_of, records, refused, rounded, trained

SIDE = 128
ROWS, IN, OUT = 144, 272, 160
# As test_fp8's, of sizes that blocks do not divide.
LINEAR = """local nn, optim = require "nn", require "optim"
local o = nn.options { turned = false, precision = nn.choice("fp32", "bf16") }
local model, linear = nn.module "Net", nn.module "Linear"
linear.weight = nn.parameter(o.turned and { %(IN)d, %(OUT)d } or { %(OUT)d, %(IN)d })
linear.bias = nn.parameter { %(OUT)d }
function linear:forward(x)
  if o.turned then return nn.addmm(self.bias, x, self.weight) end
  return nn.linear(x, self.weight, self.bias)
end
model.x, model.linear = nn.parameter { %(ROWS)d, %(IN)d }, linear
function model:forward() return self.linear(self.x) end
nn.fully_shard(linear, { mp_policy = { param_dtype = o.precision, matmul_dtype = "fp8", recipe = "block" } })
nn.fully_shard(model)
return nn.training {
  model = model, batch = { c = nn.input("fp32", { %(ROWS)d, %(OUT)d }) },
  loss = function(m, b) return (nn.cast(m(), "fp32") * b.c):sum() end,
  optimizer = optim.SGD { lr = 0.1 },
}
""" % globals()


# ── blocks, written down once more ─────────────────────────────────────────────────────────────────────────────────────
def in_blocks(values):
    """The numbers of a block, and what they are times."""
    amax = max(map(abs, values))
    if amax < 2.0 ** -117:
        return [rounded(x, E4M3) for x in values], 1.0
    by = f32(448 / amax)
    return [rounded(f32(x * by), E4M3) for x in values], f32(amax / 448)


def turned(rows):
    return [list(column) for column in zip(*rows)]


def by_runs(rows):
    """Each 128 of a row: a list of (numbers, scale) a row."""
    return [[in_blocks(r[k:k + SIDE]) for k in range(0, len(r), SIDE)] for r in rows]


def by_squares(rows):
    made = [[] for _ in rows]
    for r0 in range(0, len(rows), SIDE):
        square = rows[r0:r0 + SIDE]
        for k in range(0, len(rows[0]), SIDE):
            part = [r[k:k + SIDE] for r in square]
            numbers, scale = in_blocks([x for r in part for x in r])
            for i, r in enumerate(part):
                made[r0 + i].append((numbers[i * len(r):(i + 1) * len(r)], scale))
    return made


def product(a, b):
    """a bᵀ: blocks' sums, each times both scales."""
    return [[math.fsum(f32(sa * sb) * math.fsum(x * y for x, y in zip(p, q)) for (p, sa), (q, sb) in zip(r, c)) for c in b] for r in a]


def matrix(values, columns):
    return [values[i:i + columns] for i in range(0, len(values), columns)]


def flat(rows):
    return [x for r in rows for x in r]


def model():
    return shared("fp8-blocks-linear", lambda folder: (os.makedirs(folder), open(os.path.join(folder, "linear.lua"), "w").write(LINEAR))) + "/linear.lua"


def linear_agrees(precision, lies_turned):
    x, w, bias, c = (numbers_of(k, n, size) for k, (n, size) in enumerate([(ROWS * IN, 3), (IN * OUT, 0.5), (OUT, 1), (ROWS * OUT, 0.01)]))
    for i in range(IN):  # a row of nothing, and one of numbers that are too small for a scale
        x[5 * IN + i], x[6 * IN + i] = 0.0, f32(2.0 ** -120 * (i % 3))
    folder = scratch("fp8-blocks-linear")
    weights, grads, log = (os.path.join(folder, n) for n in ("w.safetensors", "g.safetensors", "log.jsonl"))
    shape = [IN, OUT] if lies_turned else [OUT, IN]
    write_safetensors(weights, {"x": ("F32", [ROWS, IN], blob(x)), "linear.weight": ("F32", shape, blob(w)), "linear.bias": ("F32", [OUT], blob(bias))})
    binary = build(model(), precision=precision, turned=lies_turned)
    train(binary, "--data", "-", "--weights", weights, "--steps", "1", "--log", log, "--dump", "*.grad", "--at-step", "1", "-o", grads, records=records(blob(c)))
    got = {k: list(floats(t)) for k, t in read_safetensors(grads).items()}
    narrow = (lambda v: [bf16(e) for e in v]) if precision == "bf16" else list
    x, c, stored = matrix(narrow(x), IN), matrix(narrow(c), OUT), matrix(narrow(w), shape[1])
    straight = turned(stored) if lies_turned else stored  # [outputs, inputs]
    y = [[v + e for v, e in zip(r, narrow(bias))] for r in product(by_runs(x), by_squares(straight))]
    dw = product(by_runs(turned(c)), by_runs(turned(x)))
    want = {"x.grad": flat(product(by_runs(c), by_squares(turned(straight)))), "linear.weight.grad": flat(turned(dw) if lies_turned else dw),
            "linear.bias.grad": [math.fsum(r) for r in turned(c)]}
    terms = [v * e for v, e in zip(flat(y), flat(c))]
    found, rounding = steps(read_log(log))[0]["loss"], 1e-6 if precision == "fp32" else 3e-3
    check(abs(found - math.fsum(terms)) <= rounding * math.hypot(*terms), "loss %.9g, not %.9g" % (found, math.fsum(terms)))
    far = {k: relative(got[k], want[k]) for k in want}
    check(all(r <= (1e-6 if k == "linear.weight.grad" else rounding) for k, r in far.items()), str(far))
    return max(far.values())


def test_a_linear():
    """To the rounding of sums."""
    worst = {p: max(linear_agrees(p, lies_turned) for lies_turned in (False, True)) for p in ("fp32", "bf16")}
    return ", ".join("%s %.1e" % x for x in worst.items())


# ── models ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# One element of layer 0 that is rounded the other way changes its token's, of 160, further down as much as fp8 does. PyTorch with sums in fp64 is 0.04 off.
CHAOS = 0.3


def test_gpt2():
    return model_agrees("gpt2", "fp8_blocks.json", CHAOS, recipe="block")


def test_llama3():
    return model_agrees("llama3", "fp8_blocks.json", CHAOS, recipe="block")


SMALL = {"layers": 4, "dim": 144, "heads": 2, "vocab": 256, "batch": 2, "seq": 72, "matmul": "fp8", "recipe": "block", "precision": "bf16"}


def test_no_plan_changes_a_bit():
    no_plan_changes_a_bit(**SMALL)


def test_bytes():
    """Scales of a linear's input, weight and gradient, by hand, and nothing that has a scale a tensor."""
    plan = planned("models/gpt2.lua", 1, **dict(SMALL, layers=1))
    events = [e for p in plan["programs"] if p["name"] == "micro" for e in p["events"]]
    check(not [e["id"] for e in events if e["op"] in ("absmax", "quantize")], "a scale a tensor")
    rows, dim, ffn = 144, 144, 576

    def scales(n, k):
        return 4 * n * -(-k // SIDE)

    def squares(n, k):
        return 4 * -(-n // SIDE) * (-(-k // (4 * SIDE)) * 4)
    want = {"forward": [(rows * dim, scales(rows, dim), rows * dim, scales(dim, rows)), (ffn * dim, squares(dim, ffn), ffn * dim, squares(ffn, dim))],
            "backward": [(rows * ffn, scales(rows, ffn), rows * ffn, scales(ffn, rows))]}
    for phase, sizes in want.items():
        made = [tuple(size for _, _, size in e["writes"]) for e in events if e["op"] == "quantize_blocks" and e["phase"] == phase and e["module"] == "h.0.mlp.c_fc"]
        check(made == sizes, "%s of c_fc writes %s, by hand %s" % (phase, made, sizes))


# ── which layers ───────────────────────────────────────────────────────────────────────────────────────────────────────
def multiplied(model_file, *args, **options):
    """{module: whether its products are in 8 bits}, of the training program."""
    sets = [x for k, v in options.items() for x in ("--set", "%s=%s" % (k, v))]
    text = must([SHARDC, "inspect", os.path.join(ROOT, "models", model_file), *sets, *args, "--dump-after", "quantize"])
    text = text[:text.index("program eval")]
    found = re.findall(r" = matmul\((.*?)\).*?  (\S+)  \S+:\d+$", text, re.M)
    return {module: "scale_a" in operands for operands, module in found}


def layers_in_8_bits(found, layer):
    return sorted({int(re.match(layer, m).group(1)) for m, narrow in found.items() if narrow and re.match(layer, m)})


def test_first_and_last_layers_stay_wide():
    for file, layer, more in ("gpt2.lua", r"h\.(\d+)\.", {}), ("llama3.lua", r"model\.layers\.(\d+)\.", dict(size="tiny", kv_heads=2, ffn=256)):
        options = dict(SMALL, **more)
        check(layers_in_8_bits(multiplied(file, **options), layer) == [0, 1, 2, 3], file)
        check(layers_in_8_bits(multiplied(file, matmul_wide=1, **options), layer) == [1, 2], "%s, matmul_wide = 1" % file)


def policy_file(text):
    path = os.path.join(scratch("fp8-policy"), "policy.lua")
    open(path, "w").write(text)
    return path


def test_policies_say_which_layers():
    """A head in fp8, the first layer wide: GPT-2's head belongs to the model's own unit, Llama's is a unit."""
    entry = '  { match = "%s", fully_shard = { mp_policy = { matmul_dtype = "%s" } } },\n'
    for file, head, layer, more in ("gpt2.lua", "", "h", {}), ("llama3.lua", "lm_head", "model.layers", dict(size="tiny", kv_heads=2, ffn=256)):
        options = dict(SMALL, **more)
        policy = policy_file("return {\n" + entry % (head, "fp8") + entry % (layer + ".0", "plain") + "}\n")
        found = multiplied(file, "--policy", policy, **options)
        check(found["lm_head"] and layers_in_8_bits(found, layer.replace(".", r"\.") + r"\.(\d+)\.") == [1, 2, 3], "%s: %s" % (file, found))
    policy = policy_file("return {\n" + entry % ("", "fp8") + "}\n")
    same_run(trained(**SMALL, policy=policy), trained(**SMALL, policy=policy, recompute="full"), "a head in fp8")
    (log, _), (plain, _) = trained(**SMALL, policy=policy), trained(**SMALL)
    check(steps(log)[0]["loss"] != steps(plain)[0]["loss"], "the head's products are as before")


# ── what is refused ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_refused():
    refused(r"gpt2\.lua:\d+: recipe = \"block\": l40s has no products with scales of blocks.*compute capability 9\.0.*recipe=tensor", "--device", "l40s", **SMALL)
    refused(r"gpt2\.lua:\d+: recipe = \"block\": no unit multiplies in fp8; add matmul_dtype = \"fp8\"", **dict(SMALL, matmul="plain"))
    path = os.path.join(scratch("fp8-blocks-bad"), "bad.lua")
    open(path, "w").write(LINEAR.replace('recipe = "block"', 'recipe = "row"'))
    refused(r"bad\.lua:\d+: .*recipe = \"row\"; there are \"tensor\".* and \"block\"", model_file=path)
