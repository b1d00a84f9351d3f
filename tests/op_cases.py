"""The ops' test cases, a row each: operands, the Lua that calls the op, and PyTorch's expression for the same. Five tests come from a row:

    golden.ops          values and gradients beside PyTorch's (`tests/golden/make.py ops` makes the numbers)
    gradients.ops       gradients beside central differences, in fp64
    ops.kernels         every tensor that the CPU's kernels make, in fp32, bf16 and fp16, beside the same kernels in double
    ops.lanes           the CUDA target's kernels, lane by lane, beside those
    beside_pytorch.py   random models: each takes some of the cases, over values of its own

    case("softmax", x=(2, 3, 4), large={"x": (3, 70, 130)}, lua="nn.softmax(x, 1)", torch=lambda x: x.softmax(1))

Operands are parameters of that shape:
(2, 3)               random numbers of mean 0
positive(2, 3)       in [0.5, 2]
ties(2, 3)           some are equal, where the numbers come from PyTorch
special(2, 3)        besides, some are 0, -0, infinite and NaN in ops.kernels and ops.lanes
buffer(value, 2, 3)  a buffer
`tokens`, `documents`, `positions` and `targets` are the model's inputs, int32 [2, 8].

lua       an expression, of one result or several, or statements that return
torch     a function of the same names, its integers int32; None: PyTorch has no such op, and its tests leave the case out
large     shapes for ops.kernels and ops.lanes, where a kernel has more than one way (blocks, threads, vectors)
fp64      the case is for fp64 alone
smooth    False: its gradient is not the slope of its values (detach, rounding)
before    Lua that stands before all cases

Both sides go on with the sum of (y + 1)^2 / 2 over each result y. That number times a parameter `value`, which is 1, is the case's: the gradient
of `value` is the number.

Relies on: python3's standard library; torch where a `torch` is called. Relied on by: golden/ops.py, golden/random_model.py, program/test_golden.py,
test_gradients.py, test_ops.py, gpu/build.py."""
import collections
import inspect
import math
import os
import re
import shutil

TESTS = os.path.dirname(os.path.abspath(__file__))
Case = collections.namedtuple("Case", "name params large lua torch before fp64 smooth")
Operand = collections.namedtuple("Operand", "shape kind value")
INPUTS = ("tokens", "documents", "positions", "targets")  # in the order of a record
CASES = {}


def positive(*shape):
    return Operand(shape, "positive", None)


def ties(*shape):
    return Operand(shape, "ties", None)


def special(*shape):
    return Operand(shape, "special", None)


def buffer(value, *shape):
    return Operand(shape, "buffer", value)


def case(name, lua, torch=None, large=None, before="", fp64=False, smooth=True, **params):
    assert name not in CASES, name
    params = {n: p if isinstance(p, Operand) else Operand(p, "normal", None) for n, p in params.items()}
    CASES[name] = Case(name, params, large or {}, lua, torch, before, fp64, smooth)


def inputs_of(c):
    return [n for n in INPUTS if re.search(r"\b%s\b" % n, c.lua)]


def with_torch():
    """The cases that PyTorch has too."""
    return {n: c for n, c in CASES.items() if c.torch}


def call_torch(c, operands):
    """The results as a list; operands: tensors by name, of which the function takes those that it names without a default."""
    y = c.torch(**{n: operands[n] for n, p in inspect.signature(c.torch).parameters.items() if p.default is p.empty})
    return list(y) if isinstance(y, (tuple, list)) else [y]


# ── as a model ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def shape_of(c, name, large):
    return c.large.get(name, c.params[name].shape) if large else c.params[name].shape


def module_text(c, fp64, large):
    dtype = ', dtype = "fp64"' if fp64 else ""
    starts = {"positive": "uniform(0.5, 2)"}
    fields = []
    for name, p in c.params.items():
        start = "constant(%r)" % p.value if p.kind == "buffer" else starts.get(p.kind, "normal(0, 0.7)")
        fields.append("  m.%s = nn.%s({ %s }, { init = nn.init.%s%s })" % (
            name, "buffer" if p.kind == "buffer" else "parameter", ", ".join(map(str, shape_of(c, name, large))), start, dtype))
    if not large:  # 16 bits would not hold such a number
        fields.append("  m.value = nn.parameter({ 1 }, { init = nn.init.ones()%s })" % dtype)
    names = [*c.params, *inputs_of(c)]
    values = ["self." + n for n in c.params] + ["b." + n for n in inputs_of(c)]
    body = c.lua if re.search(r"\breturn\b", c.lua) else "return " + c.lua
    return "\n".join(["ops.%s = function()" % c.name, '  local m = nn.module "%s"' % c.name, *fields, "  function m:forward(b)",
                      "    local %s = %s" % (", ".join(names), ", ".join(values)), "    return total(function()",
                      *["      " + line for line in body.strip().split("\n")], "    end, %s)" % ("nil" if large else "self.value"), "  end", "  return m", "end"])


MODEL = """-- Written by tests/op_cases.py: a module for each case; the loss is the sum of their numbers.
local nn, optim = require "nn", require "optim"
local o = nn.options { precision = nn.choice("fp32", "bf16", "fp16") }
local wide = "%(wide)s"

-- No gradient of a result is constant, and no number the difference of large ones.
local function total(results, value)
  local sum
  for _, y in ipairs { results() } do
    y = nn.cast(y, wide)
    if #y.shape == 0 then y = nn.concat({ y:reshape(1), y:reshape(1) * 2 }, 0) end -- so that a sum of its own follows
    y = y + 1
    y = nn.sum(y * y * 0.5)
    sum = sum and sum + y or y
  end
  return value and nn.sum(sum * nn.cast(value, wide)) or sum
end

local names, ops = { %(names)s }, {}
%(modules)s

local function All()
  local m = nn.module "All"
  for _, name in ipairs(names) do m["op_" .. name] = ops[name]() end
  function m:forward(b)
    local sum
    for _, name in ipairs(names) do
      local y = self["op_" .. name](b)
      sum = sum and sum + y or y
    end
    return sum
  end
  return m
end

local function index() return nn.input("int32", { 2, 8 }) end

local model = All()
if o.precision ~= "fp32" then nn.fully_shard(model, { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } }) end

return nn.training {
  model = model,
  batch = { tokens = index(), documents = index(), positions = index(), targets = index() },
  loss = function(m, b) return m(b) end,
  optimizer = optim.SGD { lr = 0 },
}
"""


def write_model(folder, cases, fp64=False, large=False):
    """Writes the cases as a model; returns its path. fp64: parameters and loss are fp64, for the test build of that name."""
    path = os.path.join(folder, "ops.lua")
    modules = [c.before for c in cases.values() if c.before] + [module_text(c, fp64, large) for c in cases.values()]
    for source in set(re.findall(r'source = "(.*?)"', "".join(modules))):
        shutil.copy(os.path.join(TESTS, "program", "rows", source), folder)
    text = MODEL % {"wide": "fp64" if fp64 else "fp32", "names": ", ".join('"%s"' % n for n in cases), "modules": "\n".join(modules)}
    if not os.path.exists(path) or open(path).read() != text:  # so that what is made of it stays
        with open(path, "w") as f:
            f.write(text)
    return path


def model_file(file, folder):
    """What cases.py calls a model file: this one stands for the model of the cases that PyTorch has, written into the folder."""
    return write_model(folder, with_torch()) if file.endswith(".py") else os.path.join(os.path.dirname(TESTS), file)


# ── what several rows use ────────────────────────────────────────────────────────────────────────────────────────────────
def torch_attention(q, k, v, causal=False, scale=None, documents=None, window=None, softcap=None, sinks=None, lse=False, bias=None):
    """q [B,S,H,D], k and v [B,T,Hkv,D], as shardc lays them out. A row that sees no key gives zeros."""
    import torch
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
    left, right = window or (math.inf, math.inf)
    seen = ((i - j <= left) & (j - i <= (0 if causal else right)))[None, None]
    if documents is not None:
        seen = seen & (documents[:, :, None] == documents[:, None, :])[:, None]
    score = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    score = softcap * torch.tanh(score / softcap) if softcap else score
    score = score if bias is None else score + bias
    most = score.detach().amax(-1, True).clamp(min=-1e30)
    power = (score - most).exp() * seen
    total = power.sum(-1, True) + (0 if sinks is None else (sinks[:, None, None] - most).exp())
    o = (power / total.clamp(min=1e-30) @ v).transpose(1, 2)
    return (o, (most + total.log())[..., 0]) if lse else o


def torch_rope(x, theta=None, positions=None, scaling=None, width=None, frequencies=None, scale=1, interleaved=False, rows=None):
    """x [B,S,H,D]; without positions each sequence counts from 0. rows: by which of positions [rows,B,S] each pair turns."""
    import torch
    from reference import rope_frequencies
    positions = torch.arange(x.shape[1])[None] if positions is None else positions
    turned, rest = x[..., :width], x[..., x.shape[-1] if width is None else width:]
    f = rope_frequencies(turned.shape[-1], theta, scaling) if frequencies is None else torch.tensor(frequencies, dtype=torch.float64)
    angle = (positions.double()[..., None] if rows is None else positions.double()[rows].movedim(0, -1)) * f
    c, s = (angle.cos() * scale).to(x.dtype)[:, :, None], (angle.sin() * scale).to(x.dtype)[:, :, None]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    y = [a * c - b * s, b * c + a * s]
    return torch.cat((torch.stack(y, -1).flatten(-2) if interleaved else torch.cat(y, -1), rest), -1)


def torch_cross_entropy(x, targets, smoothing=0, z_loss=0, softcap=0):
    """The loss of each target, 0 where it is ignored."""
    import torch
    x = softcap * torch.tanh(x / softcap) if softcap else x
    each = F().cross_entropy(x.flatten(0, -2), targets.flatten().long(), label_smoothing=smoothing, reduction="none")
    return each.view(targets.shape) + z_loss * x.logsumexp(-1) ** 2 * (targets != -100)


def waves(*shape):
    """What WAVES of Lua are: numbers that are known without a parameter."""
    import torch
    return 2 * torch.arange(float(math.prod(shape))).sin().view(*shape)


def torch_distillation(x, teacher, targets=None, temperature=1, alpha=0, reverse=False, softcap=0, teacher_softcap=0):
    """The loss of each row, 0 where its target is ignored."""
    cap = lambda v, c: c * (v / c).tanh() if c else v  # noqa: E731
    x, teacher = cap(x, softcap), cap(teacher.to(x.dtype), teacher_softcap).detach()
    p, q = (v.div(temperature).log_softmax(-1) for v in ((teacher, x) if not reverse else (x, teacher)))
    each = (p.exp() * (p - q)).sum(-1) * temperature ** 2 * (1 - alpha)
    return each if targets is None else (each + alpha * torch_cross_entropy(x, targets)) * (targets != -100)


def stack(*rows):
    import torch
    return torch.stack(rows)


def F():
    import torch
    return torch.nn.functional


def T():
    import torch
    return torch


def routed(index, groups, capacity=None):
    """As nn.route: rows of each group, slot of each row, row of each slot or -1."""
    flat = index.flatten().tolist()
    each = [[i for i, g in enumerate(flat) if g == k][:capacity] for k in range(groups)]
    slots = sum(each, [])
    rows = min(len(flat), groups * capacity) if capacity else len(flat)
    return [len(e) for e in each], slots + [-1] * (rows - len(slots)), [slots.index(i) if i in slots else -1 for i in range(len(flat))]


def integers(values):
    return T().tensor(values, dtype=T().int32).reshape(2, 8) if len(values) == 16 else T().tensor(values, dtype=T().int32)


def experts(x, w, v, weights, index, capacity=None):
    """Each slot's row of x through its group's two matrices, one slot after another."""
    _, _, places = routed(index, len(w), capacity)
    y = [(x[i // 8].tanh() @ (w[g] * 0.1) @ v[g]) * weights.flatten()[i] * (places[i] >= 0) for i, g in enumerate(index.flatten().clamp(0, len(w) - 1).tolist())]
    return T().stack(y).reshape(2, 8, -1).sum(1)


def biased(x, w, c, weights, index, capacity):
    """Each slot's row of x through its group's matrix, plus its bias; the sum of all rows."""
    _, _, places = routed(index, len(w), capacity)
    y = T().stack([(x[i // 8] @ w[g] + c[g]) * (places[i] >= 0) for i, g in enumerate(index.flatten().clamp(0, len(w) - 1).tolist())])
    return (y.tanh() * weights.flatten().unsqueeze(-1)).reshape(2, 8, -1).sum(1), y.sum(0)


def gated_rows(x, w, weights, index, capacity):
    """Each slot's row of x through its group's matrix, whose halves are gate and up, times its weight; rows of no slot are 0."""
    _, slots, _ = routed(index, len(w), capacity)
    groups = index.flatten().clamp(0, len(w) - 1).tolist()
    rows = [x[i // 8] @ w[groups[i]] for i in slots if i >= 0]
    gate, up = T().stack(rows).chunk(2, -1)
    y = F().silu(gate) * up * weights.flatten()[[i for i in slots if i >= 0]].unsqueeze(-1)
    return F().pad(y, (0, 0, 0, len(slots) - len(rows)))


# ── pointwise ────────────────────────────────────────────────────────────────────────────────────────────────────────────
WIDE = {"x": (3, 7, 331), "y": (3, 7, 331), "p": (3, 7, 331)}  # no multiple of a block or a vector
for name in "exp", "tanh", "sigmoid", "abs", "neg":
    case(name, x=(4, 6), large=WIDE, lua="nn.%s(x)" % name, torch=lambda x, name=name: getattr(T(), name)(x))
for name in "relu", "silu", "gelu":
    case(name, x=(4, 6), large=WIDE, lua="nn.%s(x)" % name, torch=lambda x, name=name: getattr(F(), name)(x))
for name in "log", "sqrt", "rsqrt":
    case(name, p=positive(4, 6), large=WIDE, lua="nn.%s(p)" % name, torch=lambda p, name=name: getattr(T(), name)(p))
case("sign", x=(4, 6), lua="nn.sign(x) * x", torch=lambda x: x.sign() * x)
case("gelu_tanh", x=(4, 6), large=WIDE, lua='nn.gelu(x, "tanh")', torch=lambda x: F().gelu(x, approximate="tanh"))
case("clamp", x=(4, 6), large=WIDE, lua="nn.clamp(x, -0.5, 0.8)", torch=lambda x: x.clamp(-0.5, 0.8))
case("detach", x=(4, 6), smooth=False, lua="x * nn.detach(x)", torch=lambda x: x * x.detach())
case("arithmetic", x=(4, 6), y=(4, 6), p=positive(4, 6), large=WIDE, lua="(x + y) * (x - y) / p", torch=lambda x, y, p: (x + y) * (x - y) / p)
case("scalars", p=positive(4, 6), large=WIDE, lua="(2 / (p * 3 + 1) - 4) / 5 + (1 - p) + p ^ 1.7 + 2 ^ p",
     torch=lambda p: (2 / (p * 3 + 1) - 4) / 5 + (1 - p) + p ** 1.7 + 2 ** p)
case("cast", x=(4, 6), y=(4, 6), smooth=False, lua='nn.cast(nn.cast(x, "bf16"), "fp32") * y', torch=lambda x, y: x.to(T().bfloat16).to(x.dtype) * y)
case("extremes", x=(4, 6), y=(4, 6), large=WIDE, lua="nn.maximum(x, y) * nn.minimum(x, y)", torch=lambda x, y: T().maximum(x, y) * T().minimum(x, y))
case("where", x=(4, 6), y=(4, 6), large=WIDE, lua="nn.where(nn.lt(x, y), x * x, y * 3)", torch=lambda x, y: T().where(x < y, x * x, y * 3))
case("broadcast", x=(2, 3, 4), y=(4,), z=(3, 1), large={"x": (5, 30, 170), "y": (170,), "z": (30, 1)}, lua="x * y + z", torch=lambda x, y, z: x * y + z)
# beside PyTorch's numbers in golden/functions.py
case("exponentials", x=(4, 6), large=WIDE, lua="return nn.expm1(x), nn.exp2(x), nn.sinh(x), nn.cosh(x), nn.asinh(x), nn.erf(x), nn.erfc(x)")
case("special", x=(4, 6), p=positive(4, 6), large={"x": (5, 77), "p": (5, 77)},
     lua="return nn.erfinv(nn.tanh(x) * 0.9), nn.lgamma(p), nn.lgamma(-p / (p + 1)), nn.digamma(p), nn.i0(x)",
     torch=lambda x, p: (T().erfinv(x.tanh() * 0.9), T().lgamma(p), T().lgamma(-p / (p + 1)), T().digamma(p), T().i0(x)))
case("angles", x=(4, 6), large=WIDE, lua="return nn.sin(x), nn.cos(x), nn.tan(x * 0.3), nn.atan(x)")
case("logarithms", p=positive(4, 6), large=WIDE, lua="return nn.log1p(p), nn.log2(p), nn.log10(p), nn.acosh(p + 1)")
case("arcs", p=positive(4, 6), large=WIDE, lua="p = p * 0.4\nreturn nn.asin(p), nn.acos(p), nn.atanh(p), nn.logit(p)")
case("activations", x=(4, 6), large=WIDE,
     lua="return nn.mish(x), nn.logsigmoid(x), nn.hardswish(x), nn.hardsigmoid(x), nn.elu(x, 1.3), nn.leaky_relu(x), nn.softplus(x, 2)")
case("shrinking", x=(4, 6), large=WIDE, lua="return nn.hardshrink(x, 0.2) + nn.softshrink(x, 0.3), nn.threshold(x, 0.1, 2), nn.huber_loss(x, x * 0.5, { delta = 0.2 })")
case("of_two", x=(4, 6), p=positive(4, 6), large=WIDE, lua="return nn.pow(p, x), nn.atan2(x, p), nn.hypot(x, p), nn.logaddexp(x, p), nn.xlogy(x, p)")
case("of_two_apart", x=(4, 6), p=positive(4, 6), lua="return nn.fmod(x, p), nn.binary_cross_entropy(p * 0.4, x)")
case("whole", x=(4, 6), lua="nn.floor(x) * x + nn.ceil(x) * nn.trunc(x) * x + nn.round(x) * x")

# ── reductions and views ─────────────────────────────────────────────────────────────────────────────────────────────────
CUBE = {"x": (5, 30, 170)}
case("sum", x=(2, 3, 4), large=CUBE, lua="nn.sum(x, { 0, 2 })", torch=lambda x: x.sum((0, 2)))
case("sum_first", x=(2, 3, 4), large=CUBE, lua="nn.sum(x, 1) * nn.sum(x, 1)", torch=lambda x: x.sum(1) * x.sum(1))
case("mean", x=(2, 3, 4), large=CUBE, lua="nn.mean(x, -1, true) * x", torch=lambda x: x.mean(-1, True) * x)
case("max", x=special(2, 3, 4), large=CUBE, lua="nn.max(x, 2)", torch=lambda x: x.amax(2))
case("softmax", x=(2, 3, 4), large={"x": (3, 70, 130)}, lua="nn.softmax(x, 1)", torch=lambda x: x.softmax(1))
case("softmax_last", x=(3, 6), large={"x": (5, 1500)}, lua="nn.softmax(x, -1)", torch=lambda x: x.softmax(-1))
case("views", x=(2, 3, 4), lua="""
local a = x:transpose(0, 2):reshape(4, 6)
local p, q = nn.split(a, { 2, 4 }, 1)
return nn.concat({ q, p * 2, nn.slice(a, 1, 1, 4) }, 1)
""", torch=lambda x: (lambda a: T().cat((a[:, 2:], a[:, :2] * 2, a[:, 1:4]), 1))(x.transpose(0, 2).reshape(4, 6)))
case("stack", x=(3, 4), y=(3, 4), large={"x": (30, 70), "y": (30, 70)}, lua="nn.stack({ x, y, x }, 1):permute(2, 0, 1)",
     torch=lambda x, y: T().stack((x, y, x), 1).permute(2, 0, 1))
# the joined gradients of the pieces are the parameter's
case("split", x=(4, 6), lua="local p, q = nn.split(x + 1, 3, 1)\nreturn nn.split(p * q, { 3 }, 1) * p", torch=lambda x: (x[:, :3] + 1) ** 2 * (x[:, 3:] + 1))
case("split_whole", x=(4, 6), lua="local p = nn.split(x + 1, 6, 1)\nreturn p * p", torch=lambda x: (x + 1) ** 2)

# ── order, index, running sums ───────────────────────────────────────────────────────────────────────────────────────────
def torch_sort(x, dim=-1, descending=False, k=None):
    """Values and indices, int32; of equal ones the first, which torch.topk leaves open."""
    values, indices = x.sort(dim=dim, descending=descending, stable=True)
    return [y.narrow(dim, 0, k or y.shape[dim]) for y in (values, indices.int())]


def torch_scan(a, x):
    y = [x[..., 0]]
    for t in range(1, x.shape[-1]):
        y.append(a[..., t] * y[-1] + x[..., t])
    return T().stack(y, -1)


ROWS = {"x": (3, 5000)}  # several tiles
PLACES = "local i = nn.clamp(nn.cast(s * 3, 'int32'), 0, 5)\n"  # half of them are 0


def torch_places(s):
    return (s * 3).int().clamp(0, 5).long()


case("sort", x=special(2, 3, 6), large={"x": (3, 131, 70)}, lua="nn.sort(x, 1)", torch=lambda x: torch_sort(x, 1))
case("sort_descending", x=special(3, 6), large=ROWS, lua="nn.sort(x, -1, { descending = true })", torch=lambda x: torch_sort(x, -1, True))
case("sort_integers", x=(3, 8), large=ROWS, lua="""
local v, i = nn.sort(nn.cast(x * 5, 'int32'), -1, { descending = true })
return v, nn.argsort(nn.cast(x * 5, 'int32')), x""", torch=lambda x: [torch_sort((x * 5).int(), -1, True)[0], torch_sort((x * 5).int())[1], x])
case("topk", x=special(2, 3, 6), large={"x": (3, 70, 131)}, lua="nn.topk(x, 3)", torch=lambda x: torch_sort(x, -1, True, 3))
case("topk_smallest", x=special(2, 6, 3), large={"x": (2, 1100, 3)}, lua="nn.topk(x, 2, 1, false)", torch=lambda x: torch_sort(x, 1, False, 2))
case("topk_many", x=special(2, 50), large=ROWS, lua="nn.topk(x, 45)", torch=lambda x: torch_sort(x, -1, True, 45))
case("topk_integers", x=(2, 50), large=ROWS, lua="local v, i = nn.topk(nn.cast(x * 9, 'int32'), 40)\nreturn v, i, x",
     torch=lambda x: [*torch_sort((x * 9).int(), -1, True, 40), x])
case("topk_most", x=(2, 1100), large=ROWS, lua="return (nn.topk(x, 1025))", torch=lambda x: torch_sort(x, -1, True, 1025)[:1])
case("argmax", x=special(3, 6), large=ROWS, lua="return nn.argmax(x, 1), nn.argmin(x, 0, true), nn.argmax(x), nn.argmin(nn.cast(x * 4, 'int32'), -1), x",
     torch=lambda x: [torch_sort(x, 1, True, 1)[1][:, 0], torch_sort(-x, 0, True, 1)[1], torch_sort(x.flatten(), 0, True, 1)[1][0], torch_sort((x * 4).int(), -1, False, 1)[1][:, 0], x])
case("kthvalue", x=special(3, 6), large={"x": (40, 70)}, lua="return (nn.kthvalue(x, 2, 0))", torch=lambda x: torch_sort(x, 0)[0][1])
case("median", x=special(3, 6), large={"x": (40, 71)}, lua="return nn.median(x), (nn.median(x, 1, true))", torch=lambda x: [torch_sort(x.flatten())[0][8], torch_sort(x)[0][:, 2:3]])
case("quantile", x=special(3, 6), large={"x": (40, 71)}, lua="return nn.quantile(x, 0.3), nn.quantile(x, 0.75, 0, true), nn.quantile(x, 0.5, 0)",
     torch=lambda x: [torch_sort(x.flatten())[0][5:7] @ x.new_tensor([0.9, 0.1]), torch_sort(x, 0)[0][1:].mean(0, True), torch_sort(x, 0)[0][1]])
case("mode", x=ties(3, 8), large={"x": (40, 71)}, lua="return (nn.mode(x, 1))", torch=lambda x: x.mode(1)[0])
case("searchsorted", x=special(3, 6), large=ROWS, lua="""
local s = nn.sort(x)
return nn.searchsorted(s, x), nn.searchsorted(s, x, { right = true }), nn.bucketize(x, nn.squeeze(nn.slice(s, 0, 1, 2), 0)), nn.searchsorted(nn.sort(nn.reshape(x, -1)), 0.5), x""",
     torch=lambda x: [*(T().searchsorted(x.sort()[0], x, right=r).int() for r in (False, True)), T().bucketize(x, x[1].sort()[0]).int(),
                      T().searchsorted(x.flatten().sort()[0], T().tensor([0.5], dtype=x.dtype)).int(), x])
case("gather", x=(2, 16), lua="nn.gather(x, 1, tokens)", torch=lambda x, tokens: x.gather(1, tokens.long()))
case("gather_part", x=(16, 3, 9), lua="nn.gather(nn.transpose(x, 1, 2), 0, nn.unsqueeze(nn.transpose(tokens, 0, 1), 0))",
     torch=lambda x, tokens: x.transpose(1, 2).gather(0, tokens.T[None].long()))
case("gather_many", x=(3, 6), s=(3, 50), large={"x": (3, 6), "s": (3, 900)}, lua=PLACES + "return nn.gather(x, 1, i), s", torch=lambda x, s: [x.gather(1, torch_places(s)), s])
case("gather_integers", x=(2, 16), lua="return nn.gather(nn.cast(x * 9, 'int32'), 1, tokens), nn.cast(nn.gather(nn.gt(x, 0), 1, tokens), 'int32'), x",
     torch=lambda x, tokens: [(x * 9).int().gather(1, tokens.long()), (x > 0).gather(1, tokens.long()).int(), x])
case("take_along_dim", x=(2, 16, 3), lua="return nn.take_along_dim(x, nn.unsqueeze(tokens, 2), 1), nn.take_along_dim(x, nn.reshape(tokens, 16), nil)",
     torch=lambda x, tokens: [x.take_along_dim(tokens[:, :, None].long(), 1), x.take_along_dim(tokens.flatten().long())])
case("take", x=(3, 16), lua="nn.take(x, tokens)", torch=lambda x, tokens: x.take(tokens.long()))
ROW = "local i = nn.reshape(tokens, -1)\n"
case("index_select", x=(3, 16, 2), large={"x": (3, 16, 70)}, lua=ROW + "return nn.index_select(x, 1, i), nn.index_select(nn.cast(x * 9, 'int32'), -2, i)",
     torch=lambda x, tokens: [x.index_select(1, tokens.flatten()), (x * 9).int().index_select(1, tokens.flatten())])
case("index_add", x=(3, 16, 2), s=(3, 16, 2), large={"x": (3, 16, 70), "s": (3, 16, 70)},
     lua=ROW + "return nn.index_add(x, 1, i, s), nn.index_add(nn.cast(x * 9, 'int32'), 1, i, nn.cast(s * 9, 'int32'))",
     torch=lambda x, s, tokens: [x.index_add(1, tokens.flatten(), s), (x * 9).int().index_add(1, tokens.flatten(), (s * 9).int())])
case("scatter_add", x=(2, 16, 3), s=(2, 8, 3), lua="nn.scatter_add(x, 1, nn.expand(nn.unsqueeze(tokens, 2), 2, 8, 3), s)",
     torch=lambda x, s, tokens: x.scatter_add(1, tokens[:, :, None].expand(2, 8, 3).long(), s))
case("scatter_add_many", x=(3, 6), s=(3, 50), large={"x": (3, 6), "s": (3, 900)}, lua=PLACES + "return nn.scatter_add(x, 1, i, s * 2)",
     torch=lambda x, s: x.scatter_add(1, torch_places(s), s * 2))
case("one_hot", x=(2, 8, 16), lua="x * nn.one_hot(tokens, 16)", torch=lambda x, tokens: x * F().one_hot(tokens.long(), 16))
case("bincount", s=(2, 8), lua="nn.bincount(tokens, 16), nn.bincount(tokens, 16, s)",
     torch=lambda s, tokens: [T().bincount(tokens.flatten(), minlength=16).int(), s.new_zeros(16).index_add(0, tokens.flatten(), s.flatten())])
case("bincount_many", s=(3, 50), large={"s": (3, 900)}, lua=PLACES + "return nn.bincount(i, 6), s", torch=lambda s: [T().bincount(torch_places(s).flatten(), minlength=6).int(), s])
case("cumsum", x=(3, 4, 5), large={"x": (3, 5000, 2)}, lua="nn.cumsum(x * 0.02, 1)", torch=lambda x: (x * 0.02).cumsum(1))
case("cumsum_integers", x=(3, 8), large=ROWS, lua="nn.cumsum(nn.cast(x * 9, 'int32'), -1), x", torch=lambda x: [(x * 9).int().cumsum(-1).int(), x])
case("cumprod", p=positive(3, 5), x=(5,), large={"p": (3, 300), "x": (300,)}, lua="nn.cumprod(p * 0.7, 1), nn.cumprod(nn.relu(x), 0)",
     torch=lambda p, x: [(p * 0.7).cumprod(1), x.relu().cumprod(0)])
case("linear_scan", x=(3, 5), a=(3, 5), large={"x": (3, 5000), "a": (3, 5000)}, lua="nn.linear_scan(nn.sigmoid(a), x, 1)", torch=lambda x, a: torch_scan(a.sigmoid(), x))
case("linear_scan_first", x=(5, 3), a=(5, 3), lua="nn.linear_scan(a, x, 0)", torch=lambda x, a: torch_scan(a.T, x.T).T)
case("cummax", x=special(3, 4, 5), large={"x": (3, 2500, 2)}, lua="nn.cummax(x, 1)", torch=lambda x: [x.cummax(1)[0], x.cummax(1)[1].int()])
case("cummin", x=special(3, 5), large=ROWS, lua="local v, i = nn.cummin(x)\nlocal w, j = nn.cummin(nn.cast(x * 4, 'int32'))\nreturn v, i, w, j",
     torch=lambda x: [x.cummin(1)[0], x.cummin(1)[1].int(), (x * 4).int().cummin(1)[0], (x * 4).int().cummin(1)[1].int()])
case("logcumsumexp", x=(3, 5), large={"x": (3, 2500)}, lua="nn.logcumsumexp(x, 1)", torch=lambda x: x.logcumsumexp(1))
case("flip", x=(2, 3, 4), large=CUBE, lua="nn.flip(x, 0, 2) * x", torch=lambda x: x.flip(0, 2) * x)

# ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
case("matmul", x=(3, 4), y=(4, 5), large={"x": (70, 33), "y": (33, 90)}, lua="nn.matmul(x, y)", torch=lambda x, y: x @ y)
case("matmul_t", x=(4, 3), y=(5, 4), large={"x": (33, 70), "y": (90, 33)}, lua="nn.matmul(x:transpose(0, 1), y:transpose(0, 1))", torch=lambda x, y: x.T @ y.T)
case("matmul_batched", x=(2, 3, 4), y=(2, 5, 4), large={"x": (3, 17, 33), "y": (3, 9, 33)}, lua="nn.matmul(x, y:transpose(1, 2))",
     torch=lambda x, y: x @ y.transpose(1, 2))
case("matmul_shared", x=(2, 3, 4), y=(4, 5), lua="nn.matmul(x, y)", torch=lambda x, y: x @ y)
case("linear", x=(2, 3, 4), w=(5, 4), c=(5,), large={"x": (3, 17, 40), "w": (65, 40), "c": (65,)}, lua="nn.linear(x, w, c)",
     torch=lambda x, w, c: F().linear(x, w, c))
case("embedding", w=(16, 4), large={"w": (16, 70)}, lua="nn.embedding(tokens, w)", torch=lambda tokens, w: F().embedding(tokens, w))
# experts: of 11 groups some are empty, and slots of others than these have no row, as those beyond a capacity
case("experts", x=(2, 6), w=(11, 6, 10), v=(11, 5, 10), p=positive(2, 8), large={"x": (2, 90), "w": (11, 90, 150), "v": (11, 75, 150)}, lua="""
local counts, slots, places = nn.route(tokens - 2, 11)
local y = nn.grouped_matmul(nn.tanh(nn.dispatch(x, slots, places)), w * 0.1, counts)
return nn.combine(nn.grouped_matmul(y, v:transpose(1, 2), counts), slots, places, p)
""", torch=lambda x, w, v, p, tokens: experts(x, w, v.transpose(1, 2), p, tokens - 2))
case("experts_dropped", x=(2, 6), w=(5, 6, 10), v=(5, 10, 5), p=positive(2, 8), large={"x": (2, 64), "w": (5, 64, 72), "v": (5, 72, 40)}, lua="""
local counts, slots, places = nn.route(tokens - 1, 5, { capacity = 2 })
local y = nn.grouped_matmul(nn.tanh(nn.dispatch(x, slots, places)), w * 0.1, counts)
return nn.combine(nn.grouped_matmul(y, v, counts), slots, places, p), counts, slots, places
""", torch=lambda x, w, v, p, tokens: [experts(x, w, v, p, tokens - 1, 2), *map(integers, routed(tokens - 1, 5, 2))])
# a bias by group, which rows without a group do not get
case("experts_bias", x=(2, 6), w=(5, 6, 10), c=(5, 10), p=positive(2, 8), large={"x": (2, 64), "w": (5, 64, 72), "c": (5, 72)}, lua="""
local counts, slots, places = nn.route(tokens - 1, 5, { capacity = 2 })
local y = nn.grouped_matmul(nn.dispatch(x, slots, places), w * 0.1, counts, c)
return nn.combine(nn.tanh(y), slots, places, p), nn.sum(y, 0)
""", torch=lambda x, w, c, p, tokens: [*biased(x, w * 0.1, c, p, tokens - 1, 2)])
# as models do it: each token to the experts of its largest scores
case("routed", x=(12, 6), s=(12, 5), w=(5, 6, 4), large={"x": (700, 48), "s": (700, 9), "w": (9, 48, 136)}, lua="""
local p, index = nn.topk(nn.softmax(s), 3)
local counts, slots, places = nn.route(index, s:size(1))
return nn.combine(nn.grouped_matmul(nn.dispatch(x, slots, places), w * 0.3, counts), slots, places, p / nn.sum(p, -1, true)), counts
""", torch=lambda x, s, w: (lambda p, e: [(T().einsum("td,tjdn->tjn", x, w[e] * 0.3) * (p / p.sum(-1, True)).unsqueeze(-1)).sum(1), e.flatten().bincount(minlength=5).int()])(*s.softmax(-1).topk(3)))
case("dispatch_weighted", x=(2, 6), p=positive(2, 8), large={"x": (2, 70)}, lua="""
local counts, slots, places = nn.route(tokens, 16)
return nn.dispatch(x, slots, places, p)
""", torch=lambda x, p, tokens: (lambda s: x[[i // 8 for i in s]] * p.flatten()[s].unsqueeze(-1))(routed(tokens, 16)[1]))
# halves of a product as gate and up, in place; slots beyond the capacity have no row
case("gated_rows", x=(2, 6), w=(5, 6, 14), p=positive(2, 8), large={"x": (2, 64), "w": (5, 64, 144)}, lua="""
local counts, slots, places = nn.route(tokens - 1, 5, { capacity = 2 })
local gate, up = nn.chunk(nn.grouped_matmul(nn.dispatch(x, slots, places), w * 0.1, counts), 2, -1)
return nn.gated_rows(gate, up, slots, places, p)
""", torch=lambda x, w, p, tokens: gated_rows(x, w * 0.1, p, tokens - 1, 2))
# what is gated by a silu (epilogue fusion): between products, with a sum's bias, by itself, by its own value
case("gated_product", x=(3, 6), g=(10, 6), u=(10, 6), c=(10,), d=(4, 10), lua="nn.linear(nn.linear(x, u, c) * nn.silu(nn.linear(x, g)), d)",
     torch=lambda x, g, u, c, d: F().linear(F().linear(x, u, c) * F().silu(F().linear(x, g)), d))
case("gated_batch", x=(2, 3, 6), g=(2, 10, 6), u=(2, 6, 10), d=(2, 10, 4), lua="nn.matmul(nn.matmul(x, u) * nn.silu(nn.matmul(x, g:transpose(1, 2))), d)",
     torch=lambda x, g, u, d: (x @ u * F().silu(x @ g.transpose(1, 2))) @ d)
case("gate", g=(3, 7), u=(3, 7), large={"g": (30, 331), "u": (30, 331)}, lua="nn.silu(g) * u", torch=lambda g, u: F().silu(g) * u)
case("gated_by_itself", x=(3, 6), w=(8, 6), d=(4, 8), lua="local y = nn.linear(x, w)\nreturn nn.linear(nn.silu(y) * y, d)",
     torch=lambda x, w, d: (lambda y: F().linear(F().silu(y) * y, d))(F().linear(x, w)))
case("halves_of_a_gate", x=(3, 8), both=(32, 8), lua="local gate, up = nn.linear(x, both):chunk(2, 1)\nreturn nn.silu(gate) * up",
     torch=lambda x, both: (lambda y: F().silu(y[:, :16]) * y[:, 16:])(F().linear(x, both)))

# ── norms ────────────────────────────────────────────────────────────────────────────────────────────────────────────────
ROWS = {"x": (37, 129), "w": (129,), "c": (129,)}
case("layer_norm", x=(3, 6), w=(6,), c=(6,), large=ROWS, lua="nn.layer_norm(x, w, c)", torch=lambda x, w, c: F().layer_norm(x, w.shape, w, c, 1e-5))
case("layer_norm_plain", x=(3, 6), w=(6,), large=ROWS, lua="nn.layer_norm(x, nil, nil, 1e-3) * w", torch=lambda x, w: F().layer_norm(x, w.shape, eps=1e-3) * w)
case("rms_norm", x=(3, 6), w=(6,), large=ROWS, lua="nn.rms_norm(x, w, 1e-5)", torch=lambda x, w: F().rms_norm(x, w.shape, w, 1e-5))
# without z, x has next to no gradient
case("batch_norm", x=(4, 3, 5), w=(3,), c=(3,), z=(4, 3, 5), mean=buffer(0, 3), var=buffer(1, 3), lua="nn.batch_norm(x, mean, var, w, c, 0.3, 1e-4) * z",
     torch=lambda x, w, c, z, mean, var: F().batch_norm(x, mean, var, w, c, True, 0.3, 1e-4) * z)
# biases before norms: their gradients are summed where the norms' are made (epilogue fusion)
case("biases_before_norms", x=(2, 3, 6), w=(6, 6), c=(6,), s=(6,), t=(6,), v=(6, 6), d=(6,), u=(6,),
     lua="local y = x + nn.linear(x, w, c)\nreturn nn.rms_norm(y + nn.linear(nn.layer_norm(y, s, t), v, d), u, 1e-5)",
     torch=lambda x, w, c, s, t, v, d, u: (lambda y: F().rms_norm(y + F().linear(F().layer_norm(y, (6,), s, t, 1e-5), v, d), (6,), u, 1e-5))(x + F().linear(x, w, c)))

# ── attention and rope ───────────────────────────────────────────────────────────────────────────────────────────────────
QKV = {"q": (2, 8, 4, 6), "k": (2, 8, 2, 6), "v": (2, 8, 2, 6)}
LONG = {"q": (2, 70, 4, 16), "k": (2, 70, 2, 16), "v": (2, 70, 2, 16)}
case("attention_causal", **QKV, large=LONG, lua="nn.attention { q = q, k = k, v = v, causal = true }", torch=lambda q, k, v: torch_attention(q, k, v, causal=True))
case("attention_full", **QKV, large=LONG, lua="nn.attention { q = q, k = k, v = v, scale = 0.3 }", torch=lambda q, k, v: torch_attention(q, k, v, scale=0.3))
case("attention_cross", q=(2, 5, 2, 6), k=(2, 9, 2, 6), v=(2, 9, 2, 6), lua="nn.attention { q = q, k = k, v = v }", torch=torch_attention)
case("attention_widths", **{**QKV, "v": (2, 8, 2, 3)}, large={"q": (2, 70, 4, 72), "k": (2, 70, 2, 72), "v": (2, 70, 2, 40)},
     lua="nn.attention { q = q, k = k, v = v, causal = true }", torch=lambda q, k, v: torch_attention(q, k, v, causal=True))
case("attention_causal_few_queries", q=(2, 5, 2, 6), k=(2, 9, 2, 6), v=(2, 9, 2, 8), large={"q": (2, 70, 2, 16), "k": (2, 150, 2, 16), "v": (2, 150, 2, 24)},
     lua="nn.attention { q = q, k = k, v = v, causal = true }", torch=lambda q, k, v: torch_attention(q, k, v, causal=True))
case("attention_causal_few_keys", q=(2, 9, 2, 6), k=(2, 5, 2, 6), v=(2, 5, 2, 6), large={"q": (2, 150, 2, 16), "k": (2, 70, 2, 16), "v": (2, 70, 2, 16)},
     lua="nn.attention { q = q, k = k, v = v, causal = true, window = { 6, 0 }, softcap = 2 }",
     torch=lambda q, k, v: torch_attention(q, k, v, causal=True, window=(6, 0), softcap=2))
case("attention_widths_everything", **{**QKV, "v": (2, 8, 2, 9)}, s=(4,), large={**LONG, "v": (2, 70, 2, 40)}, lua="""
return nn.attention { q = q, k = k, v = v, causal = true, window = { 5, 0 }, softcap = 2, sinks = s, dropout = 0.2, lse = true }
""")
# biases: of each score; one for all samples and queries; one for all heads and keys; a row of -inf alone; beside all else
case("attention_bias", **QKV, b=(2, 4, 8, 8), large={**LONG, "b": (2, 4, 70, 70)}, lua="nn.attention { q = q, k = k, v = v, causal = true, bias = b }",
     torch=lambda q, k, v, b: torch_attention(q, k, v, causal=True, bias=b))
case("attention_bias_of_heads", q=(2, 5, 4, 6), k=(2, 9, 2, 6), v=(2, 9, 2, 6), b=(1, 4, 1, 9),
     large={"q": (2, 150, 4, 16), "k": (2, 200, 2, 16), "v": (2, 200, 2, 16), "b": (1, 4, 1, 200)},
     lua="nn.attention { q = q, k = k, v = v, bias = b, softcap = 2 }", torch=lambda q, k, v, b: torch_attention(q, k, v, bias=b, softcap=2))
case("attention_bias_of_rows", **QKV, b=(2, 1, 8, 1), c=(1, 1, 8, 8), s=(4,), large={**LONG, "b": (2, 1, 70, 1), "c": (1, 1, 70, 70)}, lua="""
local o = nn.attention { q = q, k = k, v = v, bias = b, sinks = s, window = { 3, 2 } }
return nn.attention { q = o, k = k, v = v, bias = c, lse = true }
""", torch=lambda q, k, v, b, c, s: torch_attention(torch_attention(q, k, v, bias=b, sinks=s, window=(3, 2)), k, v, bias=c, lse=True))
case("attention_bias_masks", **QKV, lua="""
local hidden = nn.ge(tokens:reshape(2, 1, 8, 1) + tokens:reshape(2, 1, 1, 8), 9)
return nn.attention { q = q, k = k, v = v, bias = nn.where(hidden, -math.huge, 0) }
""", torch=lambda q, k, v, tokens: torch_attention(q, k, v, bias=T().zeros(2, 1, 8, 8, dtype=q.dtype).masked_fill(
    (tokens[:, :, None] + tokens[:, None, :] >= 9)[:, None], -math.inf)))
case("attention_bias_everything", **{**QKV, "v": (2, 8, 2, 9)}, b=(1, 4, 8, 8), s=(4,), lua="""
return nn.attention { q = q, k = k, v = v, causal = true, window = { 5, 0 }, softcap = 2, bias = b, sinks = s, documents = documents, lse = true }
""", torch=lambda q, k, v, b, s, documents: torch_attention(q, k, v, causal=True, window=(5, 0), softcap=2, bias=b, sinks=s, documents=documents, lse=True))
case("attention_bias_dropout", **QKV, b=(1, 4, 8, 8), large={**LONG, "b": (1, 4, 70, 70)}, lua="nn.attention { q = q, k = k, v = v, bias = b, dropout = 0.3 }")
case("attention_documents", **QKV, lua="nn.attention { q = q, k = k, v = v, causal = true, documents = documents }",
     torch=lambda q, k, v, documents: torch_attention(q, k, v, causal=True, documents=documents))
case("attention_window", **QKV, large=LONG, lua="nn.attention { q = q, k = k, v = v, causal = true, window = { 2, 0 } }",
     torch=lambda q, k, v: torch_attention(q, k, v, causal=True, window=(2, 0)))
case("attention_window_both", **QKV, large={n: (2, 200, *s[2:]) for n, s in LONG.items()}, lua="nn.attention { q = q, k = k, v = v, window = { 3, 1 } }",
     torch=lambda q, k, v: torch_attention(q, k, v, window=(3, 1)))
case("attention_window_cross", q=(2, 9, 2, 6), k=(2, 5, 2, 6), v=(2, 5, 2, 6), large={"q": (2, 150, 2, 16), "k": (2, 70, 2, 16), "v": (2, 70, 2, 16)},
     lua="nn.attention { q = q, k = k, v = v, window = { 2, math.huge } }", torch=lambda q, k, v: torch_attention(q, k, v, window=(2, math.inf)))
case("attention_softcap", **QKV, large=LONG, lua="nn.attention { q = q, k = k, v = v, causal = true, scale = 0.7, softcap = 1.5 }",
     torch=lambda q, k, v: torch_attention(q, k, v, causal=True, scale=0.7, softcap=1.5))
case("attention_window_softcap_documents", **QKV, lua="""
return nn.attention { q = q, k = k, v = v, causal = true, window = { 2, 0 }, softcap = 1.5, documents = documents }
""", torch=lambda q, k, v, documents: torch_attention(q, k, v, causal=True, window=(2, 0), softcap=1.5, documents=documents))
case("attention_window_softcap_dropout", **QKV, large=LONG, lua="nn.attention { q = q, k = k, v = v, window = { 9, 4 }, softcap = 2, dropout = 0.3 }")
case("attention_sinks", **QKV, s=(4,), large=LONG, lua="nn.attention { q = q, k = k, v = v, causal = true, window = { 3, 0 }, sinks = s }",
     torch=lambda q, k, v, s: torch_attention(q, k, v, causal=True, window=(3, 0), sinks=s))
case("attention_lse", **QKV, large=LONG, lua="nn.attention { q = q, k = k, v = v, scale = 0.8, lse = true }",
     torch=lambda q, k, v: torch_attention(q, k, v, scale=0.8, lse=True))
case("attention_lse_alone", q=(2, 8, 4, 6), k=(2, 8, 2, 6), s=(4,), large=LONG, lua="""
local _, lse = nn.attention { q = q, k = k, v = k, causal = true, softcap = 2, sinks = s, lse = true }
return lse
""", torch=lambda q, k, s: torch_attention(q, k, k, causal=True, softcap=2, sinks=s, lse=True)[1])
case("attention_sinks_dropout", **QKV, s=(4,), large=LONG, lua="nn.attention { q = q, k = k, v = v, sinks = s, dropout = 0.3 }")
case("attention_dropout", **QKV, lua="nn.attention { q = q, k = k, v = v, causal = true, dropout = 0.3 }")
# products that become one (QKV fusion): queries, keys and values, of which the last are not turned
case("joined_heads", x=(2, 5, 16), v=(8, 16), q=(16, 16), k=(8, 16), cv=(8,), cq=(16,), ck=(8,), lua="""
x = x * 0.25
v = nn.linear(x, v, cv):reshape(2, 5, 2, 4)
q = nn.rope(nn.linear(x, q, cq):reshape(2, 5, 4, 4), { theta = 100 })
k = nn.rope(nn.linear(x, k, ck):reshape(2, 5, 2, 4), { theta = 100 })
return nn.attention { q = q, k = k, v = v, causal = true }
""", torch=lambda x, v, q, k, cv, cq, ck: torch_attention(
    torch_rope(F().linear(x / 4, q, cq).reshape(2, 5, 4, 4), 100), torch_rope(F().linear(x / 4, k, ck).reshape(2, 5, 2, 4), 100), F().linear(x / 4, v, cv).reshape(2, 5, 2, 4),
    causal=True))
case("rope", x=(2, 8, 2, 6), large={"x": (2, 70, 3, 34)}, lua="nn.rope(x, { theta = 100 })", torch=lambda x: torch_rope(x, 100))
case("rope_positions", x=(2, 8, 2, 6), lua="nn.rope(x, { positions = positions })", torch=lambda x, positions: torch_rope(x, 10000, positions))
case("rope_scaling", x=(2, 8, 2, 8), lua="nn.rope(x, { theta = 500, positions = positions, scaling = { factor = 8, low = 1, high = 4, original = 64 } })",
     torch=lambda x, positions: torch_rope(x, 500, positions, {"factor": 8, "low": 1, "high": 4, "original": 64}))
case("rope_width", x=(2, 8, 2, 8), large={"x": (2, 70, 3, 64)}, lua="nn.rope(x, { theta = 100, width = 4, scale = 1.25 }) + x",
     torch=lambda x: torch_rope(x, 100, width=4, scale=1.25) + x)
case("rope_interleaved", x=(2, 8, 2, 8), large={"x": (2, 70, 3, 64)}, lua="nn.rope(x, { theta = 100, interleaved = true })",
     torch=lambda x: torch_rope(x, 100, interleaved=True))
case("rope_interleaved_width", x=(2, 8, 2, 7), lua="nn.rope(x, { theta = 100, interleaved = true, width = 6, positions = positions }) + x",
     torch=lambda x, positions: torch_rope(x, 100, positions, interleaved=True, width=6) + x)
case("rope_frequencies", x=(2, 8, 2, 6), lua="nn.rope(x, { frequencies = { 1, 0.25, 0 }, positions = positions })",
     torch=lambda x, positions: torch_rope(x, None, positions, frequencies=[1, 0.25, 0]))
case("rope_proportional", x=(2, 8, 2, 8), lua="nn.rope(x, { theta = 256, scaling = { type = 'proportional', partial = 0.5, factor = 2 } })",
     torch=lambda x: torch_rope(x, frequencies=[0.5, 0.125, 0, 0]))
case("rms_norm_rope", x=(2, 8, 2, 8), w=(8,), large={"x": (2, 70, 3, 64), "w": (64,)}, lua="nn.rope(nn.rms_norm(x, w, 1e-5), { theta = 100 })",
     torch=lambda x, w: torch_rope(F().rms_norm(x, (8,), w, 1e-5), 100))
case("rms_norm_rope_width", x=(2, 8, 2, 8), large={"x": (2, 70, 3, 128)}, lua="nn.rope(nn.rms_norm(x), { theta = 100, width = 4, interleaved = true, scale = 1.25 })",
     torch=lambda x: torch_rope(F().rms_norm(x, (8,), None, 1e-6), 100, width=4, interleaved=True, scale=1.25))
case("rms_norm_rope_positions", x=(2, 8, 4, 6), w=(6,), lua="nn.rope(nn.rms_norm(x, w), { theta = 100, positions = positions })",
     torch=lambda x, w, positions: torch_rope(F().rms_norm(x, (6,), w, 1e-6), 100, positions))
SECTIONS = "nn.concat({ nn.unsqueeze(positions, 0), nn.unsqueeze(tokens, 0) }, 0)"
case("rope_sections", x=(2, 8, 2, 6), lua="nn.rope(x, { theta = 100, sections = { 1, 2 }, positions = %s })" % SECTIONS,
     torch=lambda x, positions, tokens: torch_rope(x, 100, stack(positions, tokens), rows=[0, 1, 1]))
case("rope_sections_in_turns", x=(2, 8, 2, 12), lua="nn.rope(x, { frequencies = { 1, 0.5, 0.25, 1, 0.5 }, width = 10, sections = { 3, 2 }, in_turns = true, positions = %s }) + x" % SECTIONS,
     torch=lambda x, positions, tokens: torch_rope(x, None, stack(positions, tokens), frequencies=[1, 0.5, 0.25, 1, 0.5], width=10, rows=[0, 1, 0, 1, 0]) + x)

# ── losses and the rest ──────────────────────────────────────────────────────────────────────────────────────────────────
case("cross_entropy", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.cross_entropy(x, targets)",
     torch=lambda x, targets: F().cross_entropy(x.flatten(0, 1), targets.flatten().long(), ignore_index=-100))
# every option, in the kernel that has the loss and its gradient apart; each row's loss; its sum; what is computed
case("cross_entropy_shaped", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.cross_entropy(x, targets, { label_smoothing = 0.2, z_loss = 0.05, softcap = 1.5 })",
     torch=lambda x, targets: torch_cross_entropy(x, targets, 0.2, 0.05, 1.5).sum() / (targets != -100).sum())
case("cross_entropy_smooth", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.cross_entropy(x, targets, { label_smoothing = 0.1, reduction = 'sum' })",
     torch=lambda x, targets: F().cross_entropy(x.flatten(0, 1), targets.flatten().long(), label_smoothing=0.1, reduction="sum"))
case("cross_entropy_z", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.cross_entropy(x, targets, { z_loss = 0.1, reduction = 'none' })",
     torch=lambda x, targets: torch_cross_entropy(x, targets, z_loss=0.1))
case("cross_entropy_rows", x=(2, 8, 16), large={"x": (2, 8, 1003)},
     lua="nn.cross_entropy(x, targets, { label_smoothing = 0.2, softcap = 1.5, reduction = 'none' })",
     torch=lambda x, targets: torch_cross_entropy(x, targets, 0.2, 0, 1.5))
case("cross_entropy_computed", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.cross_entropy(x, nn.where(nn.lt(tokens, targets), targets, -1), { ignore_index = -1 })",
     torch=lambda x, tokens, targets: F().cross_entropy(x.flatten(0, 1), T().where(tokens < targets, targets, -1).flatten().long(), ignore_index=-1))
case("cross_entropy_slice", x=(2, 8, 16), lua="nn.cross_entropy(nn.slice(x, 1, 0, 7), nn.slice(targets, 1, 1, 8))",
     torch=lambda x, targets: F().cross_entropy(x[:, :-1].flatten(0, 1), targets[:, 1:].flatten().long()))
case("cross_entropy_weight", x=(2, 8, 16), w=positive(16), smooth=False, lua="nn.cross_entropy(x, targets, { weight = w, z_loss = 0.1 }) * w",
     torch=lambda x, targets, w: (lambda v: (torch_cross_entropy(x, targets, 0, 0.1) * v).sum() / v.sum())(w.detach()[targets.clamp(min=0).long()] * (targets >= 0)) * w)
case("cross_entropy_weight_smooth", x=(2, 8, 16), w=positive(16), smooth=False,
     lua="nn.cross_entropy(x, targets, { weight = w, label_smoothing = 0.2, reduction = 'none' }) + w:reshape(2, 8)",
     torch=lambda x, targets, w: F().cross_entropy(x.flatten(0, 1), targets.flatten().long(), w.detach(), label_smoothing=0.2, reduction="none").view(2, 8) + w.view(2, 8))
case("linear_cross_entropy", x=(2, 8, 4), w=(16, 4), c=(16,), lua="nn.linear_cross_entropy(x, w, targets, { chunk = 5, bias = c, z_loss = 0.1 })",
     torch=lambda x, w, c, targets: torch_cross_entropy(F().linear(x, w, c), targets, z_loss=0.1).sum() / (targets != -100).sum())
case("linear_cross_entropy_rows", x=(2, 8, 4), w=(16, 4), lua="nn.linear_cross_entropy(x, w, targets, { chunk = 1, reduction = 'none' })",
     torch=lambda x, w, targets: torch_cross_entropy(x @ w.T, targets))
case("linear_cross_entropy_many", x=(2, 8, 4), w=(16, 4), lua="nn.linear_cross_entropy(x, w, nn.where(nn.lt(tokens, targets), targets, -100), { chunk = 1 })",
     torch=lambda x, w, tokens, targets: F().cross_entropy((x @ w.T).flatten(0, 1), T().where(tokens < targets, targets, -100).flatten().long()))
WAVES = "2 * nn.reshape(nn.sin(nn.arange(nn.numel(%s), 'fp32')), %s.shape)"
case("distillation", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.distillation(x, %s)" % (WAVES % ("x", "x")), torch=lambda x: torch_distillation(x, waves(*x.shape)).mean())
case("distillation_warm", x=(2, 8, 16), large={"x": (2, 8, 1024)}, lua="nn.distillation(x, %s, { temperature = 2.5, targets = targets, alpha = 0.3 })" % (WAVES % ("x", "x")),
     torch=lambda x, targets: torch_distillation(x, waves(*x.shape), targets, 2.5, 0.3).sum() / (targets != -100).sum())
case("distillation_reverse", x=(2, 8, 16), large={"x": (2, 8, 1024)},
     lua="nn.distillation(x, %s, { temperature = 2, reverse = true, softcap = 1.5, teacher_softcap = 3, reduction = 'none', targets = targets, alpha = 0.5 })" % (WAVES % ("x", "x")),
     torch=lambda x, targets: torch_distillation(x, waves(*x.shape), targets, 2, 0.5, True, 1.5, 3))
case("linear_distillation", x=(2, 8, 4), w=(16, 4), c=(16,),
     lua="local t, v = %s, %s return nn.linear_distillation(x, w, t, v, { chunk = 5, bias = c, temperature = 2, alpha = 0.25, targets = nn.where(nn.lt(tokens, targets), targets, -100) })" % (
         WAVES % ("x", "x"), WAVES % ("w", "w")),
     torch=lambda x, w, c, tokens, targets: (lambda ids: torch_distillation(
         F().linear(x, w, c), waves(*x.shape) @ waves(*w.shape).T, ids, 2, 0.25).sum() / (ids != -100).sum())(T().where(tokens < targets, targets, -100)))
case("linear_distillation_rows", x=(2, 8, 4), w=(16, 4), lua="nn.linear_distillation(x, w, 2 * nn.reshape(nn.sin(nn.arange(256, 'fp32')), 2, 8, 16), nil, { chunk = 3, reduction = 'none' })",
     torch=lambda x, w: torch_distillation(x @ w.T, waves(2, 8, 16)))
case("log_probs", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.log_probs(x, targets)", torch=lambda x, targets: -torch_cross_entropy(x, targets))
case("log_softmax", x=(2, 8, 16), large={"x": (2, 8, 1003)}, lua="nn.log_softmax(x)", torch=lambda x: x.log_softmax(-1))
case("log_softmax_dim", x=(2, 8, 16), lua="nn.log_softmax(x, 1)", torch=lambda x: x.log_softmax(1))
case("nll_loss", x=(2, 8, 16), w=positive(16), smooth=False, lua="nn.nll_loss(x, targets, { weight = w }) * w",
     torch=lambda x, w, targets: F().nll_loss(x.flatten(0, 1), targets.flatten().long(), w.detach()) * w)
case("mse", x=(3, 4), y=(3, 4), large={"x": (30, 331), "y": (30, 331)}, lua="nn.mse_loss(x, y)", torch=lambda x, y: F().mse_loss(x, y))
case("dropout", x=(2, 40), large={"x": (3, 7, 331)}, lua="nn.dropout(x, 0.4)")
case("debug_sleep", x=(3, 4), lua="nn.debug_sleep(x:transpose(0, 1), { forward_ms = 0.1, backward_ms = 0.2 })")
# a user's functions in C: two results, of which one or both have a gradient; an integer operand
case("custom", x=(3, 4), w=positive(3, 4), fp64=True, lua="local y, z = mixed(x, w)\nreturn y * z:reshape(3, 4)", before="""
local mixed = nn.custom_op {
  source = "custom.c", forward = "mixed", backward = "mixed_grad", numbers = { 1.5 },
  results = function(x) return { x.shape, { shape = { 12 }, dtype = "fp64" } } end,
}""")
case("custom_first", x=(3, 4), w=positive(3, 4), fp64=True, lua="(mixed(x, w))")
case("custom_rows", w=(16, 4), fp64=True, lua="rows(tokens, w)", before="""
local rows = nn.custom_op {
  source = "custom.c", forward = "rows", backward = "rows_grad",
  results = function(index, w) return { { index:size(0), index:size(1), w:size(1) } } end,
}""")
