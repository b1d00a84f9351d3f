"""Functions that PyTorch has too, a row each, at random points and at zeros, ties, ends of ranges, 1e±10, infinities and NaN. As a script it writes
functions.safetensors: PyTorch's values and gradients of each row in fp32, bf16 and fp16, and where they are
others, those in fp64, rounded, and those of each element by itself (its kernels with and without vectors differ). test_functions.py holds
what a program computes against them.

    row("softplus", "nn.softplus(x)", lambda x: F().softplus(x))

name      of the row
lua       an expression of its operands x, y, z
torch     the same
operands  lists of numbers, a shape before them where they are no vector: POINTS; PAIRS where the function has two arguments; ROWS where it has dims
ulps      how many units in the last place fp32 may differ; 16 bits: one
slack     what a number may differ by besides, where differences of nearly equal numbers are inherent
skip      points at which the gradient is not compared: ours is finite, and PyTorch has NaN

Relies on: python3's standard library; torch as a script. Relied on by: test_functions.py; run by hand, `python3 tests/golden/functions.py`."""
import array
import collections
import inspect
import math
import os
import struct
import sys

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "functions.safetensors")
ROWS_ = {}
Row = collections.namedtuple("Row", "lua torch operands ulps slack skip")
inf, nan = math.inf, math.nan
MOST, LEAST = float.fromhex("0x1.fffffep127"), float.fromhex("0x1p-126")
DTYPES = {"fp32": ("F32", 24, -126), "bf16": ("BF16", 8, -126), "fp16": ("F16", 11, -14)}  # digits, exponent of the smallest normal number

POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, -2.0, 3.0, -3.0, 6.0, 0.1, -0.1, 1e-3, 0.999, -0.999, 1e-10, -1e-10, 1e10, -1e10, 9.7, 20.5, -20.5, 50.0, -50.0,
          89.5, -89.5, -104.0, LEAST, -LEAST, MOST, -MOST, inf, -inf, nan, 0.7312, -1.3719, 2.6143, -0.2917, 0.0421, -4.7163, 12.31, -7.219, 1.1032, -0.6127]
FEW = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, 1e-10, 1e10, -1e10, inf, -inf, nan, 0.7312, -1.3719]
PAIRS = [a for a in FEW for _ in FEW], [b for _ in FEW for b in FEW]
MATRIX = [[0.0, 0, 0, 0], [1, 1, 1, 1], [1, 2, 3, 4], [-1.5, .3, 2.2, -.7], [1e10, 1, -1e10, 3], [1e-10, 2e-10, -1e-10, 0], [inf, 1, 2, 3], [-inf, 1, 2, 3], [inf, -inf, 0, 1],
          [nan, 1, 2, 3], [3, 3, -3, 1], [0, 2, 0, 5], [-inf] * 4, [inf, inf, 1, 0], [1e20, 1e20, 1, 0], [.7312, -1.3719, 2.6143, -.2917], [0.5, -0.25, 0, 0], [-1e10, -1e10, -1e10, 1]]
OTHER = [[1.0, 0, -2, 0], [1, 1, 1, 1], [1, 2, 3, 5], [0.5, .3, 2.2, -.2], [1, 1e10, 3, 1], [1e-10, 2e-10, 1e-10, 0], [1, 1, 2, 3], [1, 0, 2, 3], [1, 1, 0, 1], [0, 1, 2, 3],
         [3, -3, 3, 1], [0, 0, 0, 0], [1, 2, 3, 4], [inf, 1, 1, 0], [1e20, 1e20, 1, 0], [-1.1, .4, 1.7, .2], [0.5, -0.25, 0, 0], [2, 2, 2, 2]]


def matrix(rows):
    return (len(rows), len(rows[0])), [v for r in rows for v in r]


def row(name, lua, torch, *operands, ulps=4, slack=0, skip=()):
    assert name not in ROWS_, name
    arguments = list(inspect.signature(torch).parameters)
    if not operands:
        operands = [POINTS] if len(arguments) == 1 else PAIRS
    operands = [o if isinstance(o, tuple) else ((len(o),), o) for o in operands]
    assert len(operands) == len(arguments), name
    ROWS_[name] = Row(lua, torch, dict(zip(arguments, operands)), ulps, slack, skip)


def T():
    import torch
    return torch


def F():
    import torch
    return torch.nn.functional


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def like(name, module, *names):
    """A function of the same name and arguments."""
    arguments = ", ".join(names)
    row(name, "nn.%s(%s)" % (name, arguments), eval("lambda %s: getattr(%s(), %r)(%s)" % (arguments, module, name, arguments)),
        slack={"tanh": 3e-7, "gelu": 5e-7, "softsign": 1e-8, "sinc": 5e-4, "tanhshrink": 1e-6}.get(name, 0), skip=(inf, -inf) if name in ("gelu", "silu") else ())


for NAME in ("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc tanh sigmoid floor ceil trunc round frac square reciprocal "
             "positive deg2rad rad2deg sinc abs neg sign isnan isfinite isinf isposinf isneginf logical_not logit nan_to_num").split():
    like(NAME, "T", "x")
for NAME in "relu gelu silu mish logsigmoid hardsigmoid hardswish hardtanh relu6 leaky_relu elu celu selu softplus hardshrink softshrink softsign tanhshrink".split():
    like(NAME, "F", "x")
for NAME in ("add sub mul div maximum minimum fmax fmin pow fmod remainder logaddexp xlogy hypot atan2 lt le gt ge eq ne logical_and logical_or logical_xor isclose").split():
    like(NAME, "T", "x", "y")
row("floor_divide", "nn.floor_divide(x, y)", lambda x, y: T().floor_divide(x.detach(), y.detach()))
row("clamp", "nn.clamp(x, -1, 2.5)", lambda x: x.clamp(-1, 2.5))
row("clamp_min", "nn.clamp_min(x, 0)", lambda x: x.clamp_min(0))
row("clamp_max", "nn.clamp_max(x, 3)", lambda x: x.clamp_max(3))
row("where", "nn.where(nn.gt(x, y), x, y)", lambda x, y: T().where(x > y, x, y))
row("round_decimals", "nn.round(x, 1)", lambda x: T().round(x, decimals=1))
row("logit_eps", "nn.logit(x, 0.25)", lambda x: T().logit(x, 0.25))
row("pow_half", "nn.pow(x, 0.5)", lambda x: x ** 0.5)
row("pow_cube", "x ^ 3", lambda x: x ** 3)
row("pow_inverse", "x ^ -1", lambda x: x ** -1)
row("pow_fraction", "x ^ 1.7", lambda x: x ** 1.7, ulps=16)
row("pow_of_number", "nn.pow(2.5, x)", lambda x: 2.5 ** x)
row("pow_of_zero", "nn.pow(0, x)", lambda x: 0 ** x)
row("gelu_tanh", 'nn.gelu(x, "tanh")', lambda x: F().gelu(x, approximate="tanh"), slack=5e-7, skip=(inf, -inf))
row("elu_alpha", "nn.elu(x, 1.5)", lambda x: F().elu(x, 1.5))
row("celu_alpha", "nn.celu(x, { alpha = 2 })", lambda x: F().celu(x, 2))
row("softplus_beta", "nn.softplus(x, { beta = 2, threshold = 5 })", lambda x: F().softplus(x, 2, 5))
row("threshold", "nn.threshold(x, 0.5, 20)", lambda x: F().threshold(x, 0.5, 20))
row("hardtanh_ends", "nn.hardtanh(x, -2, 2.5)", lambda x: F().hardtanh(x, -2, 2.5))
row("leaky_relu_slope", "nn.leaky_relu(x, 0.2)", lambda x: F().leaky_relu(x, 0.2))
row("remainder_number", "nn.remainder(x, 3)", lambda x: T().remainder(x, 3))
row("remainder_negative", "nn.remainder(x, -0.75)", lambda x: T().remainder(x, -0.75))
row("prelu", "nn.prelu(x, y)", lambda x, y: F().prelu(x, y), POINTS, [0.25])
row("glu", "nn.glu(x, 0)", lambda x: F().glu(x, 0), PAIRS[0] + PAIRS[1])
row("softmin", "nn.softmin(x, 1)", lambda x: F().softmin(x, 1), matrix(MATRIX))
row("lerp", "nn.lerp(x, y, 0.3)", lambda x, y: T().lerp(x, y, 0.3), slack=3e-7)
row("lerp_far", "nn.lerp(x, y, 0.7)", lambda x, y: T().lerp(x, y, 0.7), slack=3e-7)
row("addcmul", "nn.addcmul(x, y, y, { value = 0.5 })", lambda x, y: T().addcmul(x, y, y, value=0.5))
row("addcdiv", "nn.addcdiv(x, x, y, 0.5)", lambda x, y: T().addcdiv(x, x, y, value=0.5))
row("heaviside", "nn.heaviside(x, 0.5)", lambda x: T().heaviside(x, T().tensor(0.5, dtype=x.dtype)).detach())


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────────
def rounded(x, dtype):
    """The number of that dtype nearest to x."""
    if dtype == "fp16":
        try:
            return struct.unpack("<e", struct.pack("<e", x))[0]
        except OverflowError:
            return math.copysign(inf, x)
    try:
        x = struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(inf, x)
    if dtype == "fp32" or x != x or math.isinf(x):
        return x
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000))[0]


def upstream(n):
    """The gradient of a result of n elements."""
    return [(1.0, -2.0, 0.5)[i % 3] for i in range(n)]


def numbers(name, dtype, way):
    """The result and the gradients of a row, by PyTorch in that dtype; "exact": in fp64, and rounded; "alone": each element by itself, where kernels
    without vectors compute, or None where the row is no function of each element."""
    torch = T()
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    _, f, operands, _, _, _ = ROWS_[name]
    shapes = [shape for shape, _ in operands.values()]
    x = [torch.tensor([rounded(v, dtype) for v in numbers], dtype=torch.float64 if way == "exact" else kind) for _, numbers in operands.values()]
    if way == "alone" and (len(set(shapes)) > 1 or len(shapes[0]) > 1 or f(*x).shape != shapes[0]):
        return None
    x = [t.reshape(shape).requires_grad_() for t, shape in zip(x, shapes)]
    y = torch.cat([f(*(t[i:i + 1] for t in x)) for i in range(shapes[0][0])]) if way == "alone" else f(*x)
    if y.requires_grad:
        y.backward(torch.tensor(upstream(y.numel()), dtype=y.dtype).reshape(y.shape))
    out = {"result": y, **{n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in zip(operands, x)}}
    return {k: (list(t.shape), t.detach().to(kind).double().flatten().tolist()) for k, t in out.items()}


def differ(a, b, dtype):
    """By what a test would see: fp32's last two digits are within its bounds."""
    if a != a or b != b or math.isinf(a) or math.isinf(b):
        return not (a == b or (a != a and b != b))
    return abs(a - b) > (2 ** -22 * abs(a) if dtype == "fp32" else 0)


def packed(values, dtype):
    if dtype == "fp16":
        return b"".join(struct.pack("<e", v) for v in values)
    data = array.array("f", values).tobytes()
    return data if dtype == "fp32" else b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))


def make():
    sys.path.append(os.path.join(os.path.dirname(os.path.dirname(FILE)), "program"))
    import harness
    tensors = {}
    for name in ROWS_:
        for dtype, (kind, _, _) in DTYPES.items():
            own = numbers(name, dtype, "own")
            for key, (shape, values) in own.items():
                tensors["%s.%s.%s" % (name, dtype, key)] = (kind, shape, packed(values, dtype))
            for way in "exact", "alone":
                for key, (shape, values) in (numbers(name, dtype, way) or {}).items():
                    if any(differ(a, b, dtype) for a, b in zip(values, own[key][1])):
                        tensors["%s.%s.%s.%s" % (name, dtype, key, way)] = (kind, shape, packed(values, dtype))
    harness.write_safetensors(FILE, tensors)
    print("%d rows, %d tensors, %d bytes" % (len(ROWS_), len(tensors), os.path.getsize(FILE)))


if __name__ == "__main__":
    make()
