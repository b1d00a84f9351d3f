"""nn's functions beside PyTorch's, values and gradients, in fp32, bf16 and fp16, at random points and at zeros, ties, ends of ranges, 1e±10, infinities
and NaN: one program a dtype holds all rows of tests/golden/functions.py. A number must lie within so many units in the last place of PyTorch's, or
between PyTorch's and what it computes in fp64, or of an element by itself: where these differ, its rounding or its kernels' vectors decide.

Relies on: harness.py, tests/golden/functions.py and functions.safetensors. Relied on by: run.py."""
import importlib.util
import math
import os
import struct

from harness import ROOT, build, check, floats, read_safetensors, scratch, shared, train, write_safetensors

GOLDEN = os.path.join(ROOT, "tests", "golden", "functions.py")
spec = importlib.util.spec_from_file_location("golden_functions", GOLDEN)
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

MODEL = """local nn, optim = require "nn", require "optim"
local o = nn.options { precision = nn.choice("fp32", "bf16", "fp16") }
local rows = {}
%s
local model = nn.module "Functions"
for name, make in pairs(rows) do model[name] = make() end
function model:forward(given)
  local sum = nn.sum(given)
  for _, name in ipairs { %s } do sum = sum + nn.cast(self[name](), "fp32") end
  return sum
end
local unit = o.precision ~= "fp32" and { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } } or nil
nn.fully_shard(model, unit)
return nn.training { model = model, batch = { given = nn.input("fp32", { 1 }) }, loss = function(m, b) return m(b.given) end, optimizer = optim.SGD { lr = 0 } }
"""
ROW = """rows.%(name)s = function()
  local m = nn.module "%(name)s"
%(parameters)s
  m.probe = nn.parameter({ %(shape)s })
  function m:forward()
    local %(names)s = %(values)s
    local result = %(lua)s
    return nn.sum(nn.cast(nn.reshape(result, { %(shape)s }), "fp32") * nn.cast(self.probe, "fp32"))
  end
  return m
end"""


def listed(numbers):
    return ", ".join(map(str, numbers))


def model_text(want):
    rows = []
    for name, (lua, _, operands, *_) in golden.FUNCTIONS.items():
        shape = want["%s.fp32.result" % name][1] or [1]
        rows.append(ROW % {"name": name, "lua": lua, "shape": listed(shape), "names": ", ".join(operands), "values": ", ".join("self." + n for n in operands),
                           "parameters": "\n".join("  m.%s = nn.parameter({ %s })" % (n, listed(s)) for n, (s, _) in operands.items())})
    return MODEL % ("\n".join(rows), ", ".join('"%s"' % n for n in golden.FUNCTIONS))


def step(x, dtype):
    """A unit in the last place of x."""
    _, digits, least = golden.DTYPES[dtype]
    return math.ldexp(1, max(math.frexp(x)[1] - 1, least) - digits + 1) if math.isfinite(x) else 1


def apart(x, said, dtype):
    """By how much x lies outside of what PyTorch says, and a unit in the last place there."""
    numbers = [v for v in said if v == v]
    if x != x or not numbers:
        return (0, 1) if x != x and len(numbers) < len(said) else (math.inf, 1)
    a, b = min(numbers), max(numbers)
    return (0, 1) if a <= x <= b else (a - x, step(a, dtype)) if x < a else (x - b, step(b, dtype))


def compare(dtype, want, binary, folder):
    start, grads = os.path.join(folder, "start.safetensors"), os.path.join(folder, "grads.safetensors")
    tensors = {}
    for name, (_, _, operands, *_) in golden.FUNCTIONS.items():
        for n, (shape, numbers) in operands.items():
            tensors["%s.%s" % (name, n)] = ("F32", list(shape), struct.pack("<%df" % len(numbers), *(golden.rounded(v, dtype) for v in numbers)))
        shape = want["%s.fp32.result" % name][1] or [1]
        n = math.prod(shape)
        tensors["%s.probe" % name] = ("F32", shape, struct.pack("<%df" % n, *golden.upstream(n)))
    write_safetensors(start, tensors)
    records = os.path.join(folder, "records")
    with open(records, "wb") as f:
        f.write(struct.pack("<f", 0))
    train(binary, "--data", "-", "--steps", "1", "--weights", start, "--allow-nan", "--dump", "*.grad", "--at-step", "1", "-o", grads, records=records)
    found, wrong, n, worst = read_safetensors(grads), [], 0, (0, "")
    for name, (_, _, operands, ulps, slack, skip, narrow) in golden.FUNCTIONS.items():
        lost, most = None, ulps if dtype == "fp32" else narrow
        for key in "result", *operands:
            tensor = "%s.%s.%s" % (name, dtype, key)
            if tensor not in want:
                continue  # PyTorch gives no gradient
            said = list(zip(*(floats(want[t]) for t in (tensor, tensor + ".exact", tensor + ".alone") if t in want)))
            ours = found.get("%s.%s.grad" % (name, "probe" if key == "result" else key))
            ours = floats(ours) if ours else [0.0] * len(said)
            nan = [x != x and all(v != v for v in s) for x, s in zip(ours, said)]
            lost = lost or nan
            for i, (x, s) in enumerate(zip(ours, said)):
                n += 1
                if all(v != v for v in s) and lost[i * len(lost) // len(said)]:
                    continue  # where the result is NaN, so is PyTorch's gradient
                off, unit = apart(x, s, dtype)
                at = [golden.rounded(v[i % len(v)], dtype) for _, v in operands.values()]
                if off <= slack or (key != "result" and at[0] in skip):
                    continue
                if off / unit <= most:
                    worst = max(worst, (off / unit, tensor))
                else:
                    wrong.append("%s at %s: %.8g, PyTorch has %s: %.1f units" % (
                        tensor, ", ".join("%.7g" % v for v in at), x, " or ".join("%.8g" % v for v in s), off / unit))
    check(not wrong, "%s: %d of %d numbers are wrong\n%s" % (dtype, len(wrong), n, "\n".join(wrong[:int(os.environ.get("SHOW", 20))])))
    return "%s: %d numbers, at most %.1f units (%s)" % (dtype, n, *worst)


def test_functions_are_pytorchs():
    want = read_safetensors(golden.FILE)
    missing = {n for n in golden.FUNCTIONS if "%s.fp32.result" % n not in want}
    check(not missing, "no numbers of %s: run tests/golden/functions.py" % ", ".join(sorted(missing)))

    def write(folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "functions.lua"), "w") as f:
            f.write(model_text(want))
    path = os.path.join(shared("functions", write), "functions.lua")
    return "; ".join(compare(dtype, want, build(path, precision=dtype), scratch("functions")) for dtype in golden.DTYPES)
