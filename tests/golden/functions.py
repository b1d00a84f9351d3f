"""Functions that PyTorch has too, a row each, at random points and at zeros, ties, ends of ranges, 1e±10, infinities and NaN. As a script it writes
functions.safetensors: PyTorch's values and gradients of each row in fp32, bf16 and fp16, and where they are
others, those in fp64, rounded, and those of each element by itself (its kernels with and without vectors differ). test_functions.py holds
what a program computes against them.

    row("softplus", "nn.softplus(x)", lambda x: F().softplus(x))

name      of the row
lua       an expression of its operands x, y, z
torch     the same
operands  lists of numbers, a shape before them where they are no vector: POINTS; PAIRS where the function has two arguments; ROWS where it has dims
ulps      how many units in the last place fp32 may differ
narrow    how many 16 bits may: one, but for products, which are rounded before they are summed
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
FUNCTIONS = {}
Row = collections.namedtuple("Row", "lua torch operands ulps slack skip narrow")
inf, nan = math.inf, math.nan
MOST, LEAST = float.fromhex("0x1.fffffep127"), float.fromhex("0x1p-126")
DTYPES = {"fp32": ("F32", 24, -126), "bf16": ("BF16", 8, -126), "fp16": ("F16", 11, -14)}  # digits, exponent of the smallest normal number

POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, -2.0, 3.0, -3.0, 6.0, 0.1, -0.1, 1e-3, 0.999, -0.999, 1e-10, -1e-10, 1e10, -1e10, 9.7, 20.5, -20.5, 50.0, -50.0,
          89.5, -89.5, -104.0, LEAST, -LEAST, MOST, -MOST, inf, -inf, nan, 0.7312, -1.3719, 2.6143, -0.2917, 0.0421, -4.7163, 12.31, -7.219, 1.1032, -0.6127]
FEW = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, 1e-10, 1e10, -1e10, inf, -inf, nan, 0.7312, -1.3719]
PAIRS = [a for a in FEW for _ in FEW], [b for _ in FEW for b in FEW]
FINE = [0.7312, -1.3719, 2.6143, -0.2917, 0.0421, 0.0, 1.0, 1.0, -2.0, 0.5]  # sums of what they give are finite
SIGNS = [1.0, -1, 1, 1, -1, 1, -1, 1, -1, -1]
PROBABILITIES = [0.0, 1.0, 0.5, 0.25, 1e-10, 0.99, 0.7312, 0.0421]
MATRIX = [[0.0, 0, 0, 0], [1, 1, 1, 1], [1, 2, 3, 4], [-1.5, .3, 2.2, -.7], [1e10, 1, -1e10, 3], [1e-10, 2e-10, -1e-10, 0], [inf, 1, 2, 3], [-inf, 1, 2, 3], [inf, -inf, 0, 1],
          [nan, 1, 2, 3], [3, 3, -3, 1], [0, 2, 0, 5], [-inf] * 4, [inf, inf, 1, 0], [1e20, 1e20, 1, 0], [.7312, -1.3719, 2.6143, -.2917], [0.5, -0.25, 0, 0], [-1e10, -1e10, -1e10, 1]]
OTHER = [[1.0, 0, -2, 0], [1, 1, 1, 1], [1, 2, 3, 5], [0.5, .3, 2.2, -.2], [1, 1e10, 3, 1], [1e-10, 2e-10, 1e-10, 0], [1, 1, 2, 3], [1, 0, 2, 3], [1, 1, 0, 1], [0, 1, 2, 3],
         [3, -3, 3, 1], [0, 0, 0, 0], [1, 2, 3, 4], [inf, 1, 1, 0], [1e20, 1e20, 1, 0], [-1.1, .4, 1.7, .2], [0.5, -0.25, 0, 0], [2, 2, 2, 2]]


def matrix(rows):
    return (len(rows), len(rows[0])), [v for r in rows for v in r]


def row(name, lua, torch, *operands, ulps=4, slack=0, skip=(), narrow=1):
    assert name not in FUNCTIONS, name
    arguments = [n for n, p in inspect.signature(torch).parameters.items() if p.default is p.empty]
    if not operands:
        operands = [POINTS] if len(arguments) == 1 else PAIRS
    operands = [o if isinstance(o, tuple) else ((len(o),), o) for o in operands]
    assert len(operands) == len(arguments), name
    FUNCTIONS[name] = Row(lua, torch, dict(zip(arguments, operands)), ulps, slack, skip, narrow)


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
for NAME in "erfinv lgamma digamma i0".split():
    row(NAME, "nn.%s(x)" % NAME, lambda x, n=NAME: getattr(T(), n)(x), [p for p in POINTS if p != -1e10] + [0.9999, -0.99999, 0.25, 0.3, -1e-6, -2.457, 30.5, -0.5772],
        slack=1e-6 if NAME == "digamma" else 2e-7, skip=(-1.0, -2.0, -3.0, -50.0, -104.0, -MOST, -inf) if NAME == "digamma" else ())
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

SMALL = [m for m in MATRIX if 1e20 not in m]  # whose squares fp32 holds
FINITE = [m for m in SMALL if inf not in m and -inf not in m]
for NAME in "amax amin nansum nanmean prod var std logsumexp any all count_nonzero sum mean".split():
    row(NAME, "nn.%s(x, 1)" % NAME, lambda x, n=NAME: getattr(T(), n)(x, 1), matrix(SMALL if NAME in ("std", "logsumexp") else MATRIX))
row("var_of_all", "nn.var(x, nil, { correction = 0 })", lambda x: x.var(correction=0), FINE)
row("std_biased", "nn.std(x, { 0, 1 }, false, true)", lambda x: x.std((0, 1), unbiased=False, keepdim=True), matrix(MATRIX[2:4]))
row("var_mean", "(nn.var_mean(x, 1))", lambda x: T().var_mean(x, 1)[0], matrix(MATRIX))
row("std_mean", "select(2, nn.std_mean(x, 1))", lambda x: T().std_mean(x, 1)[1], matrix(MATRIX[:4]))
row("prod_of_all", "nn.prod(x)", lambda x: x.prod(), FINE)
row("prod_of_zeros", "nn.prod(x)", lambda x: x.prod(), [0.0, 2, 3, 4, 5])
row("cumprod", "nn.cumprod(x, 1)", lambda x: x.cumprod(1), matrix([r for r in MATRIX if all(abs(v) < 100 for v in r)]))
row("msort", "nn.msort(x)", lambda x: x.msort(), matrix([m for m in MATRIX if nan not in m][:5]))
row("nanmedian", "(nn.nanmedian(x, 1))", lambda x: x.nanmedian(1)[0], matrix([[nan, 1, 2, 3], [3, 3.5, -3, 1], [nan, nan, 0, 5], [inf, nan, 1, -2]]))
row("nanmedian_of_all", "nn.nanmedian(x)", lambda x: x.nanmedian(), [nan, 3.0, 1, 2, nan, 5])
row("histc", "nn.histc(x, 5, -3, 2.5)", lambda x: T().histc(x.detach(), 5, -3, 2.5), FINE + [2.5, -3.0, 2.4999, 9.0, -3.1])
row("diff", "nn.diff(x, 2, 1)", lambda x: x.diff(2, 1), matrix(MATRIX))
for NAME, P in ("2", 2), ("1", 1), ("3", 3), ("0", 0), ("half", 0.5), ("inf", inf), ("minus_inf", -inf):
    row("norm_%s" % NAME, "nn.norm(x, %s, 1)" % str(P).replace("inf", "math.huge"), lambda x, p=P: T().norm(x, p, 1), matrix(FINITE if P == 0.5 else MATRIX))
row("norm_of_all", "nn.norm(x)", lambda x: x.norm(), FINE)
row("dist", "nn.dist(x, y)", lambda x, y: T().dist(x, y), FINE, FINE[::-1])
row("dist_of_equal", "nn.dist(x, y)", lambda x, y: T().dist(x, y), FINE, FINE)
row("normalize", "nn.normalize(x)", lambda x: F().normalize(x), matrix(MATRIX))
row("normalize_3", "nn.normalize(x, { p = 3, eps = 0.5 })", lambda x: F().normalize(x, 3, eps=0.5), matrix(FINITE))
row("cosine_similarity", "nn.cosine_similarity(x, y)", lambda x, y: F().cosine_similarity(x, y), matrix(MATRIX), matrix(OTHER))
row("cosine_similarity_short", "nn.cosine_similarity(x, y, 0)", lambda x, y: F().cosine_similarity(x, y, 0), [6e-5, 8e-5], [6e-5, 8e-5], slack=1e-3)
row("cosine_similarity_eps", "nn.cosine_similarity(x, y, { eps = 2 })", lambda x, y: F().cosine_similarity(x, y, eps=2), matrix(MATRIX), matrix(OTHER))
row("pairwise_distance", "nn.pairwise_distance(x, y)", lambda x, y: F().pairwise_distance(x, y), matrix(MATRIX), matrix(OTHER))
row("cdist", "nn.cdist(x, y)", lambda x, y: T().cdist(x, y), matrix(MATRIX[:6]), matrix(OTHER[:6]), ulps=8)
row("cdist_1", "nn.cdist(x, y, 1)", lambda x, y: T().cdist(x, y, 1), matrix(MATRIX[:6]), matrix(OTHER[:6]), ulps=8)
row("pdist", "nn.pdist(x)", lambda x: F().pdist(x), matrix(MATRIX[:6]), ulps=8)

LOSSES = {  # options in Lua and in Python
    "l1_loss": "", "mse_loss": "", "smooth_l1_loss": "", "smooth_l1_loss ": "beta = 0.5", "huber_loss": "", "huber_loss ": "delta = 2", "binary_cross_entropy_with_logits": "",
    "kl_div": "", "kl_div ": "log_target = true", "poisson_nll_loss": "", "poisson_nll_loss ": "log_input = false, full = true", "hinge_embedding_loss": "",
    "hinge_embedding_loss ": "margin = 2", "soft_margin_loss": ""}
for KEY, GIVEN in LOSSES.items():
    NAME, PYTHON = KEY.strip(), GIVEN.replace("true", "True").replace("false", "False").replace(" = ", "=")
    for REDUCTION, POINTS_ in ("none", PAIRS), ("mean", (FINE, FINE[::-1])), ("sum", (FINE, SIGNS)):
        row("%s%s_%s" % (NAME, KEY.count(" ") or "", REDUCTION), "nn.%s(x, y, { %s })" % (NAME, ", ".join(filter(None, ['reduction = "%s"' % REDUCTION, GIVEN]))),
            eval("lambda x, y: F().%s(x, y%s, %s)" % (NAME, ".detach()" if NAME == "soft_margin_loss" or "full" in GIVEN else "", ", ".join(filter(None, ["reduction=%r" % REDUCTION, PYTHON])))), *POINTS_, ulps=8, slack=1e-7)
row("kl_div_batchmean", 'nn.kl_div(x, y, { reduction = "batchmean" })', lambda x, y: F().kl_div(x, y, reduction="batchmean"), matrix(MATRIX[:4]), matrix(OTHER[:4]))
row("kl_div_of_zeros", "nn.kl_div(x, y)", lambda x, y: F().kl_div(x, y), [-1.0, -2], [0.0, 1])
row("binary_cross_entropy", 'nn.binary_cross_entropy(x, y, { reduction = "none" })', lambda x, y: F().binary_cross_entropy(x, y, reduction="none"),
    [p for p in PROBABILITIES for _ in PROBABILITIES], [q for _ in PROBABILITIES for q in PROBABILITIES])
row("binary_cross_entropy_mean", "nn.binary_cross_entropy(x, y)", lambda x, y: F().binary_cross_entropy(x, y), PROBABILITIES, PROBABILITIES[::-1])
row("binary_cross_entropy_weight", "nn.binary_cross_entropy(x, y, { weight = z })", lambda x, y, z: F().binary_cross_entropy(x, y, z.detach()), PROBABILITIES[:4], PROBABILITIES[4:8],
    [0.5, 1, 2, 0])
row("bce_pos_weight", "nn.binary_cross_entropy_with_logits(x, y, { pos_weight = z })",
    lambda x, y, z: F().binary_cross_entropy_with_logits(x, y, pos_weight=z.detach()), matrix(MATRIX[:4]), matrix(OTHER[:4]), [0.5, 1, 2, 3])
row("bce_at_zero", "nn.binary_cross_entropy_with_logits(x, y)", lambda x, y: F().binary_cross_entropy_with_logits(x, y), [0.0, 0], [0.0, 1])
row("multilabel_soft_margin_loss", "nn.multilabel_soft_margin_loss(x, y)", lambda x, y: F().multilabel_soft_margin_loss(x, y), matrix(MATRIX[:4]), matrix(OTHER[:4]))
row("gaussian_nll_loss", 'nn.gaussian_nll_loss(x, y, z, { reduction = "none" })', lambda x, y, z: F().gaussian_nll_loss(x, y, z, reduction="none"),
    [1.0, 2, 3, 0.5, -1], [1.0, 0, 2.5, 0, 3], [0.0, 1, 2, 1e-7, 0.25])
row("gaussian_nll_loss_full", "nn.gaussian_nll_loss(x, y, z, { full = true, eps = 0.5 })", lambda x, y, z: F().gaussian_nll_loss(x, y, z, full=True, eps=0.5),
    [1.0, 2, 3, 0.5, -1], [1.0, 0, 2.5, 0, 3], [0.0, 1, 2, 1e-7, 0.25])
row("margin_ranking_loss", 'nn.margin_ranking_loss(x, y, z, { margin = 0.5, reduction = "none" })', lambda x, y, z: F().margin_ranking_loss(x, y, z, 0.5, reduction="none"),
    PAIRS[0], PAIRS[1], [(1.0, -1.0)[i % 2] for i in range(len(PAIRS[0]))])
row("cosine_embedding_loss", 'nn.cosine_embedding_loss(x, y, z, { margin = 0.2, reduction = "none" })',
    lambda x, y, z: F().cosine_embedding_loss(x, y, z.detach(), 0.2, reduction="none"), matrix(MATRIX), matrix(OTHER), [(1.0, -1.0)[i % 2] for i in range(len(MATRIX))], slack=1e-6)
for NAME, GIVEN in ("", ""), ("_square", "p = 2, margin = 0.5, "):
    row("multi_margin_loss" + NAME, 'nn.multi_margin_loss(x, nn.arange(18) - nn.arange(18) + 2, { %sreduction = "none" })' % GIVEN,
        eval("lambda x: F().multi_margin_loss(x, T().full((18,), 2), %sreduction='none')" % GIVEN), matrix(MATRIX), ulps=8)
row("multi_margin_loss_weight", "nn.multi_margin_loss(x, nn.arange(4), { weight = y, margin = 2 })", lambda x, y: F().multi_margin_loss(x, T().arange(4), weight=y.detach(), margin=2), matrix(OTHER[1:5]),
    [1.0, 0.5, 2, 3])
row("multilabel_margin_loss", 'nn.multilabel_margin_loss(x, nn.expand(nn.where(nn.lt(nn.arange(4), 2), 3 - nn.arange(4) * 2, nn.arange(4) - 3), x.shape), { reduction = "none" })',
    lambda x: F().multilabel_margin_loss(x, T().tensor([[3, 1, -1, 0]] * len(x)), reduction="none"), matrix(FINITE[:9]), ulps=8)
row("triplet_margin_loss", 'nn.triplet_margin_loss(x, y, z, { reduction = "none" })', lambda x, y, z: F().triplet_margin_loss(x, y, z, reduction="none"),
    matrix(MATRIX), matrix(OTHER), matrix(OTHER[::-1]))
row("triplet_margin_loss_swap", "nn.triplet_margin_loss(x, y, z, { swap = true, p = 1, margin = 9 })", lambda x, y, z: F().triplet_margin_loss(x, y, z, 9, 1, swap=True),
    matrix(MATRIX[2:4]), matrix(OTHER[2:4]), matrix(OTHER[3:5]))

# ── tensors, shapes and layers ───────────────────────────────────────────────────────────────────────────────────────────
def some(*shape):
    """Numbers without a pattern, some equal."""
    return shape, [round(((i * 37 + 11) % 101 - 50) / 25, 2) if i % 5 else 0.5 for i in range(math.prod(shape))]


def holds(name, lua, torch, *shapes, slack=2e-6, narrow=1):
    row(name, lua, torch, *(some(*s) for s in shapes), slack=slack, narrow=narrow)


holds("full_like", "nn.full_like(x, 0.3) * x", lambda x: T().full_like(x, 0.3) * x, (2, 3))
holds("linspace", "nn.linspace(2, 3.5, 7) * x", lambda x: T().linspace(2, 3.5, 7, dtype=x.dtype) * x, (7,))
holds("logspace", "nn.logspace(-1, 1, 5) * x", lambda x: T().logspace(-1, 1, 5, dtype=x.dtype) * x, (5,), slack=1e-5)
holds("eye", "nn.eye(3, 4) * x", lambda x: T().eye(3, 4, dtype=x.dtype) * x, (3, 4))
row("tril", "nn.tril(x)", lambda x: x.tril(), matrix(MATRIX))
row("triu", "nn.triu(x, -1)", lambda x: x.triu(-1), matrix(MATRIX))
holds("meshgrid", "nn.meshgrid(x, y)", lambda x, y: T().meshgrid(x, y, indexing="ij")[0], (3,), (4,))
holds("movedim", "nn.movedim(x, { 0, 2 }, { -1, 0 })", lambda x: x.movedim((0, 2), (-1, 0)), (2, 3, 4))
holds("unflatten", "nn.unflatten(x, 1, { 2, 3 })", lambda x: x.unflatten(1, (2, 3)), (2, 6))
holds("narrow", "nn.narrow(x, 1, -4, 3)", lambda x: x.narrow(1, -4, 3), (2, 6))
holds("select", "nn.select(x, 1, -2)", lambda x: x.select(1, -2), (2, 6))
holds("unbind", "select(2, nn.unbind(x, 1))", lambda x: x.unbind(1)[1], (2, 3))
holds("tensor_split", "nn.tensor_split(x, 4, 1)", lambda x: x.tensor_split(4, 1)[0], (2, 7))
holds("tensor_split_at", "select(2, nn.tensor_split(x, { 2, 5 }, 1))", lambda x: x.tensor_split((2, 5), 1)[1], (2, 7))
holds("hstack", "nn.hstack({ x, y })", lambda x, y: T().hstack((x, y)), (2, 3), (2, 2))
holds("vstack", "nn.vstack({ x, y })", lambda x, y: T().vstack((x, y)), (3,), (3,))
holds("dstack", "nn.dstack({ x, y })", lambda x, y: T().dstack((x, y)), (2, 3), (2, 3))
holds("column_stack", "nn.column_stack({ x, y })", lambda x, y: T().column_stack((x, y)), (3,), (3,))
holds("tile", "nn.tile(x, 2, 1, 3)", lambda x: x.tile(2, 1, 3), (2, 3))
holds("repeat_interleave", "nn.repeat_interleave(x, 3, 1)", lambda x: x.repeat_interleave(3, 1), (2, 3))
holds("roll", "nn.roll(x, { 1, -2 }, { 0, 1 })", lambda x: x.roll((1, -2), (0, 1)), (3, 4))
holds("roll_all", "nn.roll(x, 5)", lambda x: x.roll(5), (3, 4))
row("flip", "nn.flip(x, 0, 1)", lambda x: x.flip(0, 1), matrix(MATRIX))
holds("fliplr", "nn.fliplr(x)", lambda x: x.fliplr(), (2, 3))
holds("flipud", "nn.flipud(x)", lambda x: x.flipud(), (2, 3))
holds("diagonal", "nn.diagonal(x, { offset = -1, dim1 = 1, dim2 = 2 })", lambda x: x.diagonal(-1, 1, 2), (2, 3, 4))
row("diag", "nn.diag(x, 1)", lambda x: x.diag(1), matrix(MATRIX[:5]))
holds("diag_embed", "nn.diag_embed(x, 1)", lambda x: x.diag_embed(1), (2, 3))
holds("diag_embed_below", "nn.diag_embed(x, -2)", lambda x: x.diag_embed(-2), (2, 3))
holds("diagflat", "nn.diagflat(x)", lambda x: x.diagflat(), (2, 2))
holds("trace", "nn.trace(x)", lambda x: x.trace(), (3, 4))
row("masked_fill", "nn.masked_fill(x, nn.gt(x, 0), -1e4)", lambda x: x.masked_fill(x > 0, -1e4))
holds("bmm", "nn.bmm(x, y)", lambda x, y: T().bmm(x, y), (2, 3, 4), (2, 4, 2), narrow=2)
holds("chain_matmul", "nn.chain_matmul(x, y, z)", lambda x, y, z: T().chain_matmul(x, y, z), (2, 3), (3, 4), (4, 2), narrow=32)
holds("mv", "nn.mv(x, y)", lambda x, y: T().mv(x, y), (3, 4), (4,), narrow=2)
holds("addmm", "nn.addmm(x, y, z)", lambda x, y, z: T().addmm(x, y, z), (4,), (3, 5), (5, 4), narrow=2)
holds("addmm_scaled", "nn.addmm(x, y, z, { beta = 0.5, alpha = 2 })", lambda x, y, z: T().addmm(x, y, z, beta=0.5, alpha=2), (3, 4), (3, 5), (5, 4), narrow=2, slack=2e-2)
holds("baddbmm", "nn.baddbmm(x, y, z)", lambda x, y, z: T().baddbmm(x, y, z), (2, 3, 2), (2, 3, 4), (2, 4, 2), narrow=2, slack=2e-2)
holds("addbmm", "nn.addbmm(x, y, z, 2)", lambda x, y, z: T().addbmm(x, y, z, beta=2), (3, 2), (2, 3, 4), (2, 4, 2), narrow=2, slack=4e-2)
holds("addmv", "nn.addmv(x, y, z)", lambda x, y, z: T().addmv(x, y, z), (3,), (3, 4), (4,), narrow=2, slack=2e-2)
holds("addr", "nn.addr(x, y, z, 0, 3)", lambda x, y, z: T().addr(x, y, z, beta=0, alpha=3), (3, 4), (3,), (4,), narrow=2)
holds("addr_both", "nn.addr(x, y, z)", lambda x, y, z: T().addr(x, y, z), (3, 4), (3,), (4,), narrow=2)
for NAME, EQUATION, *SHAPES_ in (("matrices", "bij,bjk->bik", (2, 3, 4), (2, 4, 2)), ("swapped", "jib,kbj->bki", (4, 3, 2), (5, 2, 4)), ("implicit", "ba,cb", (2, 3), (4, 2)), ("rows", "ij,ij->i", (3, 4), (3, 4)),
                                 ("all", "ij,ij->", (3, 4), (3, 4)), ("outer", "i,j->ji", (3,), (4,)), ("alone", "ijk->k", (2, 3, 4)), ("diagonal", "iij->ji", (3, 3, 2)), ("trace", "ii", (4, 4)),
                                 ("dots", "...ij,jk->...ik", (2, 3, 2, 4), (4, 3)), ("dots_broadcast", "...i,...i->...", (2, 1, 4), (3, 4)), ("dots_summed", "...ij,...kj->ik", (2, 3, 4), (2, 5, 4)),
                                 ("one", "ij,jk->ik", (3, 1), (4, 2)), ("lonely", "ij,kl->il", (2, 3), (4, 5)), ("three", "ij,jk,kl->il", (2, 3), (3, 4), (4, 2)), ("three_batched", "bi,bj,bij->b", (2, 3), (2, 4), (2, 3, 4)),
                                 ("spaces", " b i , b j -> i j b ", (2, 3), (2, 4)), ("diagonal_of_two", "ii,ij->j", (3, 3), (3, 2))):
    ARGUMENTS = ", ".join("xyz"[:len(SHAPES_)])
    holds("einsum_" + NAME, "nn.einsum(%r, %s)" % (EQUATION, ARGUMENTS), eval("lambda %s: T().einsum(%r, %s)" % (ARGUMENTS, EQUATION, ARGUMENTS)), *SHAPES_, narrow=64, slack=1e-5)
holds("tensordot", "nn.tensordot(x, y)", lambda x, y: T().tensordot(x, y), (2, 3, 4), (3, 4, 5), narrow=32, slack=1e-5)
holds("tensordot_pairs", "nn.tensordot(x, y, { { 2, 0 }, { 0, 1 } })", lambda x, y: T().tensordot(x, y, ((2, 0), (0, 1))), (2, 3, 4), (4, 2, 5), narrow=32, slack=1e-5)
holds("tensordot_outer", "nn.tensordot(x, y, 0)", lambda x, y: T().tensordot(x, y, 0), (2, 3), (4,))
holds("kron_of_three", "nn.kron(x, y)", lambda x, y: T().kron(x, y), (2, 1, 3), (3, 2), narrow=2)
holds("dot", "nn.dot(x, y)", lambda x, y: T().dot(x, y), (7,), (7,))
holds("outer", "nn.outer(x, y)", lambda x, y: T().outer(x, y), (3,), (4,))
holds("inner", "nn.inner(x, y)", lambda x, y: T().inner(x, y), (2, 3), (4, 3), narrow=2)
holds("kron", "nn.kron(x, y)", lambda x, y: T().kron(x, y), (2, 3), (3, 2), narrow=2)
holds("bilinear", "nn.bilinear(x, y, z)", lambda x, y, z: F().bilinear(x, y, z), (2, 3), (2, 4), (5, 3, 4))
holds("group_norm", "nn.group_norm(x, 2, y, y)", lambda x, y: F().group_norm(x, 2, y, y), (2, 4, 5), (4,))
holds("instance_norm", "nn.instance_norm(x)", lambda x: F().instance_norm(x), (2, 3, 6))
holds("local_response_norm", "nn.local_response_norm(x, 3, 0.5)", lambda x: F().local_response_norm(x, 3, 0.5), (2, 5, 2))
holds("local_response_norm_even", "nn.local_response_norm(x, 2, { alpha = 0.3, k = 2 })", lambda x: F().local_response_norm(x, 2, 0.3, k=2), (2, 5, 2))
holds("pad", "nn.pad(x, { 1, 2, 0, -1 }, \"constant\", 0.5)", lambda x: F().pad(x, (1, 2, 0, -1), value=0.5), (2, 3, 4))
for NAME in "reflect replicate circular".split():
    holds("pad_%s" % NAME, "nn.pad(x, { 2, 1, 1, 0 }, %r)" % NAME, lambda x, m=NAME: F().pad(x, (2, 1, 1, 0), mode=m), (2, 2, 3, 4))
POOLED = {"1d": (2, 2, 9), "2d": (1, 2, 6, 7), "3d": (1, 1, 4, 5, 4)}
for NAME, SHAPE in POOLED.items():
    holds("max_pool%s" % NAME, "nn.max_pool%s(x, 3, 2, 1)" % NAME, lambda x, n=NAME: getattr(F(), "max_pool" + n)(x, 3, 2, 1), SHAPE)
    holds("avg_pool%s" % NAME, "nn.avg_pool%s(x, 2)" % NAME, lambda x, n=NAME: getattr(F(), "avg_pool" + n)(x, 2), SHAPE)
    holds("lp_pool%s" % NAME, "nn.lp_pool%s(x, 2, 2)" % NAME, lambda x, n=NAME: getattr(F(), "lp_pool" + n)(x, 2.0, 2), SHAPE)
    for KIND in "avg", "max":
        holds("adaptive_%s_pool%s" % (KIND, NAME), "nn.adaptive_%s_pool%s(x, 3)" % (KIND, NAME),
              lambda x, f="adaptive_%s_pool%s" % (KIND, NAME): getattr(F(), f)(x, 3), SHAPE)
row("max_pool_of_special", "nn.max_pool1d(x, 2)", lambda x: F().max_pool1d(x[None], 2)[0], matrix(MATRIX))
holds("conv1d", "nn.conv1d(x, y, z, 2, 1)", lambda x, y, z: F().conv1d(x, y, z, 2, 1), (2, 3, 7), (4, 3, 3), (4,), slack=1e-5, narrow=32)
holds("conv2d", "nn.conv2d(x, y, nil, { 1, 2 }, { 1, 0 }, { 2, 1 })", lambda x, y: F().conv2d(x, y, None, (1, 2), (1, 0), (2, 1)), (1, 2, 5, 6), (3, 2, 3, 2), slack=1e-5, narrow=32)
holds("conv2d_groups", "nn.conv2d(x, y, z, 1, 1, 1, 2)", lambda x, y, z: F().conv2d(x, y, z, 1, 1, 1, 2), (1, 4, 4, 4), (6, 2, 3, 3), (6,), slack=1e-5, narrow=32)
holds("conv3d", "nn.conv3d(x, y)", lambda x, y: F().conv3d(x, y), (1, 2, 3, 3, 4), (2, 2, 2, 2, 2), slack=1e-5, narrow=32)
holds("fold", "nn.fold(x, { 5, 6 }, { 2, 3 }, { 2, 1 }, { 1, 0 }, { 1, 2 })", lambda x: F().fold(x, (5, 6), (2, 3), (2, 1), (1, 0), (1, 2)), (2, 12, 10))
holds("fold_cut", "nn.fold(x, 5, 2, 1, 0, 2)", lambda x: F().fold(x, 5, 2, 1, 0, 2), (1, 8, 4))
holds("conv_transpose1d", "nn.conv_transpose1d(x, y, z, 2, 1, 1)", lambda x, y, z: F().conv_transpose1d(x, y, z, 2, 1, 1), (2, 3, 4), (3, 2, 3), (2,), slack=1e-5, narrow=64)
holds("conv_transpose2d", "nn.conv_transpose2d(x, y, nil, { 2, 1 }, { 1, 0 }, { 1, 0 }, 1, { 1, 2 })", lambda x, y: F().conv_transpose2d(x, y, None, (2, 1), (1, 0), (1, 0), 1, (1, 2)), (1, 2, 3, 4), (2, 3, 3, 2), slack=1e-5, narrow=64)
holds("conv_transpose2d_groups", "nn.conv_transpose2d(x, y, z, 2, 0, 0, 2)", lambda x, y, z: F().conv_transpose2d(x, y, z, 2, 0, 0, 2), (2, 4, 2, 3), (4, 3, 2, 2), (6,), slack=1e-5, narrow=64)
holds("conv_transpose3d", "nn.conv_transpose3d(x, y)", lambda x, y: F().conv_transpose3d(x, y), (1, 2, 2, 3, 2), (2, 2, 2, 2, 2), slack=1e-5, narrow=64)
holds("unfold", "nn.unfold(x, { 2, 3 }, 1, 1, 2)", lambda x: F().unfold(x, (2, 3), 1, 1, 2), (2, 2, 4, 5))
holds("pixel_shuffle", "nn.pixel_shuffle(x, 2)", lambda x: F().pixel_shuffle(x, 2), (2, 8, 2, 3))
holds("pixel_unshuffle", "nn.pixel_unshuffle(x, 2)", lambda x: F().pixel_unshuffle(x, 2), (2, 2, 4, 6))
holds("channel_shuffle", "nn.channel_shuffle(x, 2)", lambda x: F().channel_shuffle(x, 2), (2, 6, 3))
holds("interpolate", "nn.interpolate(x, { scale_factor = 1.5 })", lambda x: F().interpolate(x, scale_factor=1.5), (1, 2, 4, 6))
holds("interpolate_size", "nn.interpolate(x, { size = { 3, 5 } })", lambda x: F().interpolate(x, size=(3, 5)), (1, 2, 4, 6))
holds("interpolate_bilinear", 'nn.interpolate(x, { size = { 7, 9 }, mode = "bilinear" })', lambda x: F().interpolate(x, size=(7, 9), mode="bilinear"), (1, 2, 4, 6))
holds("interpolate_corners", 'nn.interpolate(x, { size = 8, mode = "linear", align_corners = true })', lambda x: F().interpolate(x, size=8, mode="linear", align_corners=True), (1, 2, 5))


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
    _, f, operands, *_ = FUNCTIONS[name]
    shapes = [shape for shape, _ in operands.values()]
    x = [torch.tensor([rounded(v, dtype) for v in numbers], dtype=torch.float64 if way == "exact" else kind) for _, numbers in operands.values()]
    if way == "alone" and (len(set(shapes)) > 1 or len(shapes[0]) > 1 or f(*x).shape != shapes[0]):
        return None
    x = [t.reshape(shape).requires_grad_() for t, shape in zip(x, shapes)]
    y = torch.cat([f(*(t[i:i + 1] for t in x)) for i in range(shapes[0][0])]) if way == "alone" else f(*x)
    if y.requires_grad:
        y.backward(torch.tensor(upstream(y.numel()), dtype=y.dtype).reshape(y.shape))
    out = {"result": y, **{n: t.grad for n, t in zip(operands, x) if t.grad is not None}}
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
    for name in FUNCTIONS:
        for dtype, (kind, _, _) in DTYPES.items():
            try:
                own = numbers(name, dtype, "own")
            except NotImplementedError:  # PyTorch has no kernel for 16 bits
                own = numbers(name, dtype, "exact")
            for key, (shape, values) in own.items():
                tensors["%s.%s.%s" % (name, dtype, key)] = (kind, shape, packed(values, dtype))
            for way in "exact", "alone":
                for key, (shape, values) in (numbers(name, dtype, way) or {}).items():
                    if any(differ(a, b, dtype) for a, b in zip(values, own[key][1])):
                        tensors["%s.%s.%s.%s" % (name, dtype, key, way)] = (kind, shape, packed(values, dtype))
    harness.write_safetensors(FILE, tensors)
    print("%d rows, %d tensors, %d bytes" % (len(FUNCTIONS), len(tensors), os.path.getsize(FILE)))


if __name__ == "__main__":
    make()
