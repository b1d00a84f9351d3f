"""Against PyTorch's numbers (tests/golden): losses, gradient norms and learning rates of 20 steps, every gradient of step 1,
what became of the weights; from equal weights and data; with all kernels of OpenBLAS that run here. Then the same global batch on two ranks, and in two microbatches.

Relies on: harness.py, tests/golden/NAME.{json,records,weights,grads}. Relied on by: run.py."""
import json
import math
import os
import re
import sys

from harness import Failure, ROOT, SHARDC, build, check, close, cores, floats, long, must, of_ranks, read_log, read_safetensors, relative, scratch, shared, steps, train

GOLDEN = os.path.join(ROOT, "tests", "golden")
sys.path += [GOLDEN, os.path.join(ROOT, "tests")]
from op_cases import model_file, with_torch  # noqa: E402
from signs import signed_sum  # noqa: E402

NUMBERS = 1e-5  # losses and norms over the steps; a gradient; relative, Euclidean
CHANGE = 1e-4   # of what a tensor changed by, which is some hundredths of it: fp32 keeps its last digits open
NARROW = {"bf16": 4e-2, "fp16": 5e-3}  # values and gradients of single ops in 16 bits
ZERO = 1e-6     # of the norm of the whole gradient: what rounding leaves where mathematics says zero


class Golden:
    def __init__(self, name):
        path = os.path.join(GOLDEN, name)
        self.name = name
        with open(path + ".json") as f:
            self.about = json.load(f)
        self.records_path, self.weights_path = path + ".records", path + ".weights.safetensors"
        self.weights = read_safetensors(self.weights_path)
        self.grads = read_safetensors(path + ".grads.safetensors")

    @staticmethod
    def model(name):
        with open(os.path.join(GOLDEN, name + ".json")) as f:
            return json.load(f).get("model", "")

    def known(self, path, values):
        """Without the elements whose gradient is zero: a key's bias adds the same to all that a softmax compares. There Adam,
        which divides by the gradient's size, makes full steps of rounding errors, and nothing depends on them."""
        cut = self.about["zero_gradients"].get(path, [])
        return [x for i, x in enumerate(values) if not any(a <= i < b for a, b in cut)] if cut else values

    def zero(self, path, values):
        return [x for a, b in self.about["zero_gradients"].get(path, []) for x in values[a:b]]

    def records(self, accumulate, folder):
        """The path of the records: one a step as they are, or each cut into `accumulate` along the samples."""
        if accumulate == 1:
            return self.records_path
        sizes = [4 * math.prod(i["shape"]) for i in self.about["inputs"]]
        with open(self.records_path, "rb") as f:
            data = f.read()
        out, at = [], 0
        for _ in range(self.about["steps"]):
            inputs = []
            for size in sizes:
                inputs.append(data[at:at + size])
                at += size
            for m in range(accumulate):
                out += [x[len(x) // accumulate * m:len(x) // accumulate * (m + 1)] for x in inputs]
        check(at == len(data), "%s.records: %d bytes instead of %d" % (self.name, len(data), at))
        path = os.path.join(folder, "records")
        with open(path, "wb") as f:
            f.write(b"".join(out))
        return path

    def program(self, world, accumulate, **more):
        options = dict(self.about["options"], **more)
        if "batch" in options:
            options["batch"] //= world * accumulate
        if accumulate > 1:
            options["accumulate"] = accumulate
        folder = shared("golden-" + self.name, os.makedirs)
        return build(model_file(self.about["model"], folder), world=world, optimized=True, **options)

    def run(self, binary, world, accumulate, env=None):
        """Returns the log's steps, the gradients of step 1 (None where they come in pieces), the final weights."""
        folder = scratch("golden-" + self.name)
        log, grads, final = (os.path.join(folder, n) for n in ("log.jsonl", "grads.safetensors", "final.safetensors"))
        args = ["--data", "-", "--weights", self.weights_path, "--steps", str(self.about["steps"]), "--log", log, "--export", final, *self.about["run"]]
        if accumulate == 1:
            args += ["--dump", "*.grad", "--at-step", "1", "-o", grads]
        train(binary, *args, records=self.records(accumulate, folder), env=env)
        return steps(read_log(log)), sum_files(of_ranks(grads, world)) if accumulate == 1 else None, read_safetensors(final)


def sum_files(files):
    """Gradients are summed over ranks, so what the ranks dump before that adds up to the whole."""
    out = {}
    for tensors in map(read_safetensors, files):
        for k, t in tensors.items():
            check(k.endswith(".grad"), "'%s' dumped for *.grad" % k)
            shape, values = out.get(k[:-5], (t[1], None))
            out[k[:-5]] = (shape, [a + b for a, b in zip(values, floats(t))] if values else list(floats(t)))
    return out


# ── comparisons; each returns its largest difference ─────────────────────────────────────────────────────────────────
def compare_steps(g, log):
    check(len(log) == g.about["steps"], "%d steps instead of %d" % (len(log), g.about["steps"]))
    close([s["lr"] for s in log], g.about["lrs"], 1e-6, "learning rates")
    for name, values in g.about["logs"].items():
        for step, (x, y) in enumerate(zip([s[name] for s in log], values)):
            check(abs(x - y) <= NUMBERS * max(abs(y), 0.1), "%s at step %d: %.9g, PyTorch has %.9g" % (name, step + 1, x, y))
    return max(close([s[k] for s in log], g.about[v], NUMBERS, v) for k, v in (("loss", "losses"), ("grad_norm", "grad_norms")))


def compare_gradients(g, grads):
    check(grads.keys() == g.grads.keys(), "gradients missing: %s, unexpected: %s" % (sorted(g.grads.keys() - grads.keys()), sorted(grads.keys() - g.grads.keys())))
    norm = g.about["grad_norms"][0]
    wrong, worst = [], 0
    for path, tensor in sorted(g.grads.items()):
        shape, x = grads[path]
        y = floats(tensor)
        check(shape == tensor[1], "%s.grad is %s, PyTorch's %s" % (path, shape, tensor[1]))
        r = relative(g.known(path, x), g.known(path, y))
        rest = math.sqrt(sum(v * v for v in g.zero(path, x)))
        worst = max(worst, r)
        if r > NUMBERS:
            wrong.append("%s %.2g" % (path, r))
        if rest > ZERO * norm:
            wrong.append("%s %.2g where it is zero" % (path, rest))
    check(not wrong, "%d of %d gradients differ: %s" % (len(wrong), len(g.grads), ", ".join(wrong)))
    return worst


def compare_weights(g, final):
    check(final.keys() == g.weights.keys(), "exported: %s" % sorted(final.keys() ^ g.weights.keys()))
    wrong, worst = [], 0
    for path, expected in g.about["change"].items():
        check(final[path][:2] == g.weights[path][:2], "%s is %s%s" % (path, *final[path][:2]))
        d = [a - b for a, b in zip(g.known(path, floats(final[path])), g.known(path, floats(g.weights[path])))]
        norm = expected["norm"]
        found = [math.sqrt(sum(x * x for x in d))] + [signed_sum(d, k) for k in range(len(expected["sums"]))]
        off = max(abs(a - b) for a, b in zip(found, [norm] + expected["sums"]))
        worst = max(worst, off / norm if norm else 0)
        if off > CHANGE * norm:
            wrong.append("%s changed by %.6g, not %.6g (sums off by %.2g)" % (path, found[0], norm, off))
    check(not wrong, "%d of %d weights differ: %s" % (len(wrong), len(final), "; ".join(wrong)))
    return worst


def compare_narrow(g, dtype, log, grads):
    """What is logged and all gradients of step 1, computed in 16 bits, are fp32's within what rounding may do to them."""
    far = {name: abs(log[0][name] - values[0]) / max(abs(values[0]), 0.1) for name, values in g.about["logs"].items()}
    for path, tensor in g.grads.items():
        far[path + ".grad"] = relative(g.known(path, grads[path][1]), g.known(path, floats(tensor)))
    wrong = ["%s %.2g" % x for x in far.items() if not x[1] <= NARROW[dtype]]
    check(not wrong, "%s: %d of %d far from fp32's: %s" % (dtype, len(wrong), len(far), ", ".join(wrong)))
    worst = max(far, key=far.get)
    return "%s: of %d values and gradients %s is furthest from fp32, %.1e" % (dtype, len(far), worst, far[worst])


def agrees(name, world=1, accumulate=1):
    """On every processor for which OpenBLAS has kernels that run here."""
    g, worst = Golden(name), [0, 0, 0]
    binary = g.program(world, accumulate)
    found = cores([binary, "-h"])
    for core, env in found.items():
        try:
            log, grads, final = g.run(binary, world, accumulate, env)
            worst = [max(x) for x in zip(worst, (compare_steps(g, log), compare_weights(g, final), compare_gradients(g, grads) if grads else 0))]
        except Failure as e:
            raise Failure("on %s: %s" % (core, e))
    note = "losses and norms within %.1e, weights' changes %.1e" % tuple(worst[:2])
    return note + (", %d gradients %.1e" % (len(grads), worst[2]) if grads else "") + "; on " + ", ".join(found)


def test_gpt2():
    return agrees("gpt2")


def test_llama3():
    return agrees("llama3")


def test_qwen2():
    return agrees("qwen2")


# Sections of one row: the text then shows the frequencies of every scaling, of Llama 3.1's too, which the kernel would compute.
ROPE = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(8, %(head)d), nn.Linear(%(head)d, 8)
function model:forward(tokens)
  local x = self.embed(tokens):reshape(1, %(seq)d, 1, %(head)d)
  x = nn.rope(x, { sections = { %(pairs)d }, positions = nn.arange(%(seq)d):reshape(1, 1, %(seq)d), %(options)s })
  return self.out(x:reshape(1, %(seq)d, %(head)d))
end
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 1, %(seq)d }, { from = "tokens" }), targets = nn.input("int32", { 1, %(seq)d }, { from = "tokens", shift = 1 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
"""


def test_rope():
    """The frequencies of rotary positions and the scale of their sines, beside transformers'."""
    folder, worst = scratch("rope"), (0, "")
    with open(os.path.join(GOLDEN, "rope.json")) as f:
        cases = json.load(f)
    for name, case in cases.items():
        expected, model, path = case["frequencies"], os.path.join(folder, "model.lua"), os.path.join(folder, "m")
        with open(model, "w") as f:
            f.write(ROPE % dict(case, pairs=len(expected)))
        must([SHARDC, "build", model, "--sources", "-o", path])
        with open(path + ".c") as f:
            text = f.read()
        numbers = [float(x) for x in re.search(r"numbers_1\[\] = \{(.*?)\}", text, re.S)[1].split(",")]
        scale = re.search(r"\.scale = ([^,\s)]+)", text)
        check(len(numbers) == 2 * len(expected), "%s: %d numbers for %d pairs" % (name, len(numbers), len(expected)))
        for x, y in [*zip(numbers, expected), (float(scale[1]) if scale else 1, case["scale"])]:
            check(abs(x - y) <= 5e-7 * abs(y), "%s: %.9g, not %.9g" % (name, x, y))
            worst = max(worst, (abs(x - y) / (abs(y) or 1), name))
    return "%d scalings; the furthest is %s, %.1e" % (len(cases), worst[1], worst[0])


def test_transformer():
    return agrees("transformer")


def test_ops():
    without = ["op_" + n for n in with_torch() if "op_%s.value" % n not in Golden("ops").weights]
    check(not without, "%s: no numbers of PyTorch's; `python3 tests/golden/make.py ops` makes them" % ", ".join(without))
    return agrees("ops")


@long
def test_ops_in_16_bits():
    """Every op in a unit of bf16 and of fp16."""
    g, notes = Golden("ops"), []
    for dtype in NARROW:
        binary = g.program(1, 1, precision=dtype)
        for env in cores([binary, "-h"]).values():
            log, grads, _ = g.run(binary, 1, 1, env)
            note = compare_narrow(g, dtype, log, grads)
        notes.append(note)
    return "; ".join(notes)


for optimizer in sorted(os.listdir(GOLDEN)):  # the cases of small.lua, each with another
    if optimizer.endswith(".json") and Golden.model(optimizer[:-5]).endswith("small.lua"):
        globals()["test_" + optimizer[:-5]] = lambda name=optimizer[:-5]: agrees(name)


def test_gpt2_on_two_ranks():
    return agrees("gpt2", world=2)


def test_llama3_on_two_ranks_in_two_microbatches():
    return agrees("llama3", world=2, accumulate=2)


def test_transformer_on_two_ranks():
    return agrees("transformer", world=2)


def test_transformer_on_four_ranks():
    return agrees("transformer", world=4)


def test_transformer_in_two_microbatches():
    return agrees("transformer", accumulate=2)
