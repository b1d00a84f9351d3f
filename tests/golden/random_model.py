"""Random small models, each as Lua and as statements that PyTorch executes: free sequences of what nn offers, over values of
odd shapes, in nested modules with units, checkpoints, shared, frozen and unused parameters.

Relies on: torch, harness.py (lua), op_cases.py. Relied on by: beside_pytorch.py."""
import math
import os
import random
import re
import sys

import torch
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "program"))
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import lua  # noqa: E402
from op_cases import call_torch, inputs_of, with_torch  # noqa: E402

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64, "int32": torch.int32, "bool": torch.bool}
EPS = {torch.float64: 0.0, torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}
VOCAB = 11   # numbers in the integer inputs are below
LARGEST = 8  # what probes find larger is scaled down
LLAMA31 = {"factor": 8, "low": 1, "high": 4, "original": 16}


# ── what a model consists of ─────────────────────────────────────────────────────────────────────────────────────────
class Param:
    def __init__(self, shape, start, buffer=False, frozen=False, dtype="fp32"):
        self.shape, self.start, self.buffer, self.frozen, self.dtype = list(shape), start.to(DTYPES[dtype]).float(), buffer, frozen, dtype
        self.path = self.unit = None  # known with the first use
        self.shared = False           # by units of one dtype


class Module:
    def __init__(self, kind, parent=None, name=""):
        self.kind, self.parent, self.path = kind, parent, name if not parent or not parent.path else parent.path + "." + name
        self.fields, self.params, self.kids, self.after = [], {}, {}, []  # Lua of the constructor, of what follows it
        self.args, self.body, self.results, self.calls = [], [], [], 0
        self.policy = None  # of a unit: its mp_policy

    def unit(self):
        m = self
        while m and m.policy is None:
            m = m.parent
        return m


class Value:
    """A name in Lua; what two probes found it to be: with the units' dtypes, and as the front end traces it."""
    def __init__(self, name, found, traced):
        self.name, self.t, self.u, self.readers = name, found, traced, 0

    shape = property(lambda self: list(self.t.shape))
    ndim = property(lambda self: self.t.dim())
    floating = property(lambda self: self.t.is_floating_point())


# ── PyTorch's side ───────────────────────────────────────────────────────────────────────────────────────────────────
class Machine:
    """Executes a model's statements. policies: units cast; double: fp32 is fp64; noise: a generator that perturbs every result,
    and every gradient, by an ulp or so."""

    def __init__(self, policies=True, double=False, noise=None):
        self.policies, self.double, self.noise = policies, double, noise
        self.state, self.logs, self.counts, self.used = {}, {}, None, {}

    def dtype(self, name):
        return torch.float64 if self.double and name == "fp32" else DTYPES[name]

    def begin(self):
        """Of a microbatch: parameters are cast once for all their readers, as FSDP2 gathers them."""
        self.logs, self.used = {}, {}

    def param(self, p, module):
        if p.path is None:
            p.path = (module.path + "." if module.path else "") + next(k for k, v in module.params.items() if v is p)
            p.unit = module.unit()
        key = p.path
        if key not in self.state:
            raise KeyError(key)
        if p.buffer:
            return self.state[key]
        if key not in self.used:
            x = self.state[key]
            self.used[key] = self.enter(x if p.dtype == "fp32" else x.to(DTYPES[p.dtype]), p.unit)
        x = self.used[key]
        return x if p.shared or module.unit() is p.unit else self.enter(x, module.unit(), inputs=True)

    def enter(self, x, unit, inputs=False):
        name = unit.policy.get("param_dtype") if unit and self.policies else None
        if not name or not x.is_floating_point() or (inputs and not unit.policy.get("cast_forward_inputs", True)):
            return x
        return x.to(self.dtype(name))

    def disturb(self, x):
        if self.noise is None or not x.is_floating_point() or not EPS[x.dtype]:
            return x
        eps = EPS[x.dtype]

        def off(t):
            return (t.double() * (1 + eps * (2 * torch.rand(t.shape, generator=self.noise) - 1))).to(t.dtype)
        y = x + (off(x.detach()) - x.detach())
        if y.requires_grad:
            y.register_hook(off)
        return y

    def call(self, module, args):
        unit = module.policy is not None
        if unit:
            args = [self.enter(x, module, inputs=True) for x in args]
        env = dict(zip(module.args, args))
        for s in module.body:
            self.execute(s, env, module)
        out = [env[n] for n in module.results]
        name = module.policy.get("output_dtype") if unit and self.policies else None
        return [x.to(self.dtype(name)) if name and x.is_floating_point() else x for x in out]

    def execute(self, s, env, module):
        if s.inner is not None:
            for t in s.inner:
                self.execute(t, env, module)
            return
        ins = [self.param(x, module) if isinstance(x, Param) else env[x] for x in s.ins]
        out = s.run(self, *ins)
        for name, x in zip(s.outs, out if isinstance(out, (list, tuple)) else [out]):
            env[name] = x if s.view else self.disturb(x)


class Statement:
    def __init__(self, text, outs=(), ins=(), run=None, inner=None, view=False):
        self.text, self.outs, self.ins, self.run, self.inner, self.view = text, list(outs), list(ins), run, inner, view


def attention(q, k, v, causal, scale, documents):
    s, t, groups = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    mask = torch.ones(s, t, dtype=torch.bool)
    mask = mask.tril() if causal else mask
    if documents is not None:
        mask = mask & (documents[:, :, None] == documents[:, None, :])[:, None]
    scores = (q.double() if q.dtype == torch.float64 else q.float()) @ k.to(torch.float64 if k.dtype == torch.float64 else torch.float32).transpose(-1, -2)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    p = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return (p @ v.to(p.dtype)).to(q.dtype).transpose(1, 2)


def rope(x, positions, theta, scaling):
    d = x.shape[-1]
    f = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    if scaling:
        wave = 2 * math.pi / f
        smooth = (scaling["original"] / wave - scaling["low"]) / (scaling["high"] - scaling["low"])
        f = torch.where(wave < scaling["original"] / scaling["high"], f, torch.where(
            wave > scaling["original"] / scaling["low"], f / scaling["factor"], (1 - smooth) * f / scaling["factor"] + smooth * f))
    p = torch.arange(x.shape[1])[None].expand(x.shape[:2]) if positions is None else positions
    angle = (p.double()[..., None] * f)[:, :, None]
    wide = x if x.dtype == torch.float64 else x.float()
    c, s = angle.cos().to(wide.dtype), angle.sin().to(wide.dtype)
    a, b = wide.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


def cross_entropy(logits, targets, ignore, count):
    wide = logits if logits.dtype == torch.float64 else logits.float()
    total = F.cross_entropy(wide.reshape(-1, wide.shape[-1]), targets.reshape(-1).long(), ignore_index=ignore, reduction="sum")
    return total / count


def rms_norm(x, w, eps):
    return F.rms_norm(x, x.shape[-1:], w, eps)


def int_sum(x, dims, keep):
    return torch.sum(x, dims, keep, dtype=torch.int32)


# ── the random body of a module ──────────────────────────────────────────────────────────────────────────────────────
UNARY = {  # name: PyTorch's; those in METHODS are also methods
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu, "silu": F.silu, "gelu": F.gelu, "abs": torch.abs, "sign": torch.sign, "neg": torch.neg}
METHODS = {"abs", "exp", "log", "rsqrt", "sigmoid", "sign", "sqrt", "tanh"}
COMPARE = {"lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne}


class Skip(Exception):
    """What was begun cannot go on here."""


class Body:
    """Writes one module's forward. Every statement is executed by both probes as it is written."""

    def __init__(self, model, module, args, nested=0):
        self.model, self.r, self.module, self.nested = model, model.r, module, nested
        self.stmts, self.n, self.pool = module.body, 0, []
        for k, a in enumerate(args):
            name = "a%d" % k
            module.args.append(name)
            self.pool.append(Value(name, model.probes[0].enter(a.t, module, True) if module.policy is not None else a.t, a.u))
        self.env = [{v.name: x for v, x in zip(self.pool, [(w.t, w.u)[k] for w in self.pool])} for k in range(2)]

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────
    def add(self, text, ins, run, outs=1, keep=True, view=False, stem="v"):
        """text: Lua with %s for each operand (Value or Param). Returns the new value(s), or None where the result is of no use."""
        names = []
        for _ in range(outs):
            self.n += 1
            names.append("%s%d" % (stem, self.n))
        words = [self.word(x) for x in ins]
        s = Statement("%s%s" % ("local %s = " % ", ".join(names) if outs else "", text % tuple(words)), names, [x.name if isinstance(x, Value) else x for x in ins], run, view=view)
        for k, probe in enumerate(self.model.probes):
            probe.execute(s, self.env[k], self.module)
        values = [Value(n, self.env[0][n], self.env[1][n]) for n in names]
        if any(v.floating and not torch.isfinite(v.t.float()).all() for v in values) or any(v.t.numel() > 6000 or v.ndim > 6 for v in values):
            return None
        for x in ins:
            if isinstance(x, Value):
                x.readers += 1
        self.stmts.append(s)
        if keep:
            self.pool += values
        return values[0] if outs == 1 else values

    def word(self, x):
        if isinstance(x, Value):
            return x.name
        return "self." + next(k for k, v in self.module.params.items() if v is x)

    def param(self, shape, std=None, around=0.0, **more):
        """A new parameter, or one of another module's, shared."""
        r, m = self.r, self.module
        if m is self.model.top:
            raise Skip
        shape = list(shape)
        if not more and r.random() < 0.12:
            twins = [(o, k, p) for o in self.model.modules for k, p in o.params.items() if p.shape == shape and p.dtype == "fp32" and not p.buffer and o is not m and p.path is not None]
            twins = [x for x in twins if self.model.may_share(x[2], m)]
            if twins:
                o, k, p = r.choice(twins)
                name = "w%d" % (len(m.fields) + len(m.after) + 1)
                m.params[name], p.shared = p, True
                self.model.ties.append("%s.%s = %s.%s" % (self.model.where(m), name, self.model.where(o), k))
                m.fields.append("m.%s = false" % name)
                return p
        buffer = more.pop("buffer", False) or (not more and r.random() < 0.04)
        frozen = not buffer and r.random() < 0.06
        generator = self.model.generator
        start = torch.randn(shape, generator=generator, dtype=torch.float32)
        start = start * (std if std is not None else 0.7) + around
        p = Param(shape, start, buffer, frozen, "fp32" if buffer else self.model.stored())
        name = "%s%d" % ("b" if buffer else "w", len(m.fields) + 1)
        m.params[name] = p
        options = {"requires_grad": False} if frozen else {}
        if p.dtype != "fp32":
            options["dtype"] = p.dtype
        m.fields.append("m.%s = nn.%s(%s%s)" % (name, "buffer" if buffer else "parameter", lua(shape), ", " + lua(options) if options else ""))
        self.model.make(p, m, name)
        return p

    def tame(self, v):
        if v is not None and v.floating and v.t.numel() and v.t.abs().max() > LARGEST:
            c = float("%.3g" % (LARGEST / 2 / v.t.abs().max().item()))
            v.readers += 1
            return self.add("%s * " + repr(c), [v], lambda m, x: x * c)
        return v

    # ── choices ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def some(self, test=lambda v: True):
        fit = [v for v in self.pool if v.floating and test(v)]
        if not fit:
            return None
        late = fit[-4:]
        return self.r.choice(late if self.r.random() < 0.6 else fit)

    def integers(self, test=lambda v: True):
        fit = [v for v in self.pool if v.t.dtype == torch.int32 and test(v)]
        return self.r.choice(fit) if fit else None

    def mask(self, shape=None):
        fit = [v for v in self.pool if v.t.dtype == torch.bool]
        return self.r.choice(fit) if fit else None

    def dim(self, n):
        return self.r.randrange(-n, n)

    def broadcasts(self, a, b):
        try:
            return list(torch.broadcast_shapes(a, b))
        except RuntimeError:
            return None

    def partner(self, x, same=False):
        """Another operand for x: a value or a parameter that broadcasts with it, or which it broadcasts with."""
        r = self.r
        fit = [v for v in self.pool if v.floating and v is not x and (v.shape == x.shape if same else self.broadcasts(v.shape, x.shape) is not None)]
        if fit and r.random() < 0.6:
            return r.choice(fit)
        if r.random() < 0.1:
            return x
        shape = [n if r.random() < 0.7 else 1 for n in x.shape]
        shape = shape[r.choice([0, 0, r.randint(0, len(shape))]):]
        if r.random() < 0.15 and len(shape) < 4:
            shape = [r.choice([1, 2, 3])] + shape if len(shape) == x.ndim else shape
        if not shape:
            shape = [1]
        if r.random() < 0.12:
            return self.constant(shape)
        return self.param(x.shape if same else shape)

    def constant(self, shape):
        r = self.r
        way = r.choice(["full", "zeros", "ones", "arange"])
        if way == "arange":
            n = shape[-1]
            if r.random() < 0.5:
                return self.add("nn.arange(%d, \"fp32\")" % n, [], lambda m: torch.arange(n).to(m.dtype("fp32")), view=True)
            return self.add("nn.cast(nn.arange(%d), \"fp32\")" % n, [], lambda m: torch.arange(n).to(m.dtype("fp32")), view=True)
        c = {"full": r.choice([0.5, -1.25, 3]), "zeros": 0, "ones": 1}[way]
        text = "nn.full(%s, %r)" % (lua(shape), c) if way == "full" else "nn.%s(%s)" % (way, lua(shape))
        return self.add(text, [], lambda m: torch.full(shape, float(c), dtype=m.dtype("fp32")), view=True)

    def number(self):
        return self.r.choice([2, 3, -1, 1, 0.5, 0.25, -1.5, 1.7, 0.1, 5])

    # ── pointwise ────────────────────────────────────────────────────────────────────────────────────────────────────
    def unary(self):
        x = self.some()
        name = self.r.choice(list(UNARY))
        f = UNARY[name]
        if name == "gelu" and self.r.random() < 0.6:
            way = self.r.choice(["tanh", "none"])
            return self.add('nn.gelu(%%s, "%s")' % way, [x], lambda m, x: F.gelu(x, approximate=way))
        if name == "neg" and self.r.random() < 0.6:
            return self.add("-%s", [x], lambda m, x: -x)
        if name in METHODS and self.r.random() < 0.4:
            return self.add("%%s:%s()" % name, [x], lambda m, x: f(x))
        return self.add("nn.%s(%%s)" % name, [x], lambda m, x: f(x))

    def positive(self):
        x = self.some()
        p = self.add("nn.abs(%s) + 0.3", [x], lambda m, x: x.abs() + 0.3) if self.r.random() < 0.7 else self.add("%s * %s + 0.5", [x, x], lambda m, x, y: x * y + 0.5)
        name = self.r.choice(["log", "sqrt", "rsqrt", "exp", "pow", "rdiv"])
        if p is None or (name == "exp" and p.t.abs().max() > 4):
            return None
        if name == "pow":
            n = self.r.choice([2, 3, 0, 1, 0.5, -1, -0.5, 1.7, -2, 4, 2.5])
            text = self.r.choice(["%%s ^ %r", "nn.pow(%%s, %r)", "%%s:pow(%r)"]) % n
            return self.add(text, [p], lambda m, x: x ** n)
        if name == "rdiv":
            c = self.number()
            return self.add(self.r.choice(["%r / %%s", "nn.div(%r, %%s)"]) % c, [p], lambda m, x: c / x)
        return self.add(self.r.choice(["nn.%s(%%s)" % name, "%%s:%s()" % name]), [p], lambda m, x: getattr(torch, name)(x))

    def power(self):
        x = self.some(lambda v: v.t.abs().max() < 3)
        if x is None:
            return None
        if self.r.random() < 0.5:
            n = self.r.choice([2, 3, 1, 0])
            return self.add("%%s ^ %d" % n, [x], lambda m, x: x ** n)
        c = self.r.choice([2, 0.5, 1.5, 1])
        return self.add(self.r.choice(["%r ^ %%s", "nn.pow(%r, %%s)"]) % c, [x], lambda m, x: torch.pow(c, x))

    def binary(self):
        x = self.some()
        y = self.partner(x)
        if y is None:
            return None
        name, sign, f = self.r.choice([("add", "+", torch.add), ("add", "+", torch.add), ("sub", "-", torch.sub), ("mul", "*", torch.mul), ("mul", "*", torch.mul), ("div", "/", torch.div),
                                       ("maximum", None, torch.maximum), ("minimum", None, torch.minimum)])
        if self.r.random() < 0.3 and isinstance(y, Value):
            x, y = y, x
        if name == "div":
            y = self.add("1.25 + nn.abs(%s)", [y], lambda m, y: 1.25 + y.abs())
            if y is None:
                return None
        if sign and self.r.random() < 0.7:
            return self.add("%%s %s %%s" % sign, [x, y], lambda m, x, y: f(x, y))
        if sign and isinstance(x, Value) and self.r.random() < 0.3:
            return self.add("%%s:%s(%%s)" % name, [x, y], lambda m, x, y: f(x, y))
        return self.add("nn.%s(%%s, %%s)" % name, [x, y], lambda m, x, y: f(x, y))

    def with_number(self):
        x, c = self.some(), self.number()
        way = self.r.choice(["add", "sub", "mul", "div", "radd", "rsub", "rmul", "max", "min", "where", "rwhere"])
        if way in ("max", "min"):
            name, f = {"max": ("maximum", torch.maximum), "min": ("minimum", torch.minimum)}[way]
            if self.r.random() < 0.4:
                return self.add("nn.%s(%r, %%s)" % (name, c), [x], lambda m, x: f(torch.tensor(c, dtype=x.dtype), x))
            return self.add("nn.%s(%%s, %r)" % (name, c), [x], lambda m, x: f(x, torch.tensor(c, dtype=x.dtype)))
        if way.endswith("where"):
            b = self.compare()
            if b is None or self.broadcasts(b.shape, x.shape) is None:
                return None
            if way == "where":
                return self.add("nn.where(%%s, %%s, %r)" % c, [b, x], lambda m, b, x: torch.where(b, x, c))
            return self.add("nn.where(%%s, %r, %%s)" % c, [b, x], lambda m, b, x: torch.where(b, c, x))
        text, f = {"add": ("%%s + %r", lambda x: x + c), "sub": ("%%s - %r", lambda x: x - c), "mul": ("%%s * %r", lambda x: x * c), "div": ("%%s / %r", lambda x: x / c),
                   "radd": ("%r + %%s", lambda x: c + x), "rsub": ("%r - %%s", lambda x: c - x), "rmul": ("%r * %%s", lambda x: c * x)}[way]
        if c < 0:
            text = text.replace("%r", "(%r)")
        if self.r.random() < 0.25:
            name = way.lstrip("r") if way in ("radd", "rsub", "rmul") else way
            text = "nn.%s(%r, %%%%s)" % (name, c) if way in ("radd", "rsub", "rmul") else "nn.%s(%%%%s, %r)" % (name, c)
            return self.add(text.replace("%%", "%"), [x], lambda m, x: f(x))
        return self.add(text % c, [x], lambda m, x: f(x))

    def compare(self):
        x = self.some() if self.r.random() < 0.7 else self.integers() or self.some()
        name = self.r.choice(list(COMPARE))
        f = COMPARE[name]
        way = self.r.random()
        if way < 0.4:
            c = self.r.choice([0, 0.5, 1, -0.25, 3])
            text = "nn.%s(%%s, %r)" % (name, c) if self.r.random() < 0.6 else "%%s:%s(%r)" % (name, c)
            return self.add(text, [x], lambda m, x: f(x, c))
        if way < 0.5:
            c = self.r.choice([0, 0.5, 1])
            return self.add("nn.%s(%r, %%s)" % (name, c), [x], lambda m, x: f(torch.tensor(c), x))
        y = self.partner(x) if x.floating else self.integers(lambda v: self.broadcasts(v.shape, x.shape) is not None)
        if y is None:
            return None
        return self.add("nn.%s(%%s, %%s)" % name, [x, y], lambda m, x, y: f(x, y))

    def where(self):
        b = self.mask() if self.r.random() < 0.5 else None
        b = b or self.compare()
        x = self.some(lambda v: b is not None and self.broadcasts(v.shape, b.shape) is not None)
        if b is None or x is None:
            return None
        y = self.partner(x)
        if y is None or self.broadcasts(self.broadcasts(b.shape, x.shape), y.shape if isinstance(y, Value) else y.shape) is None:
            return None
        return self.add("nn.where(%s, %s, %s)", [b, x, y], lambda m, b, x, y: torch.where(b, x, y))

    def clamp(self):
        x = self.some()
        low, high = self.r.choice([(-0.5, 0.75), (None, 0.5), (-0.25, None), (0, 1), (-1, 1), (0.5, 0.5)])
        words = "nil" if low is None else repr(low), "" if high is None else ", %r" % high
        text = ("nn.clamp(%%s, %s%s)" if self.r.random() < 0.6 else "%%s:clamp(%s%s)") % words
        return self.add(text, [x], lambda m, x: x.clamp(low, high))

    def cast(self):
        r = self.r
        v = r.choice(self.pool)
        way = r.random()
        if way < 0.35:
            y = self.some()
            if y is not None:
                return self.add("nn.cast(%s, %s)", [v, y], lambda m, x, y: x.to(y.dtype))
        to = r.choice(["fp32", "fp32", "bool"] if not self.model.half else ["fp32", "fp32", self.model.half, "bf16", "fp16", "bool"])
        if v.t.dtype == torch.bool and to == "bool":
            to = "int32"
        return self.add(r.choice(["nn.cast(%%s, \"%s\")", "%%s:cast(\"%s\")"]) % to, [v], lambda m, x: x.to(m.dtype(to)))

    def detach(self):
        return self.add(self.r.choice(["nn.detach(%s)", "%s:detach()"]), [self.some()], lambda m, x: x.detach(), view=True)

    # ── integers ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def integer(self):
        r = self.r
        x = self.integers()
        if x is None or r.random() < 0.15:
            n = r.choice([1, 3, self.model.s, 5])
            return self.add(r.choice(["nn.arange(%d)", 'nn.arange(%d, "int32")']) % n, [], lambda m: torch.arange(n, dtype=torch.int32), view=True)
        way = r.choice(["number", "binary", "unary", "clamp", "reduce", "where", "float", "round", "mask", "full", "big", "big"])
        if way == "big":
            return self.big(x)
        if way == "number":
            c = r.choice([1, 2, -3, 7])
            text, f = r.choice([("%%s + %d", lambda x: x + c), ("%%s * %d", lambda x: x * c), ("%%s - %d", lambda x: x - c), ("%d - %%s", lambda x: c - x), ("nn.maximum(%%s, %d)", lambda x: x.clamp(min=c))])
            return self.small(self.add(text.replace("- %d", "- (%d)") % c, [x], lambda m, x: f(x)))
        if way == "binary":
            y = self.integers(lambda v: self.broadcasts(v.shape, x.shape) is not None)
            name, f = r.choice([("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("maximum", torch.maximum), ("minimum", torch.minimum)])
            return self.small(self.add("nn.%s(%%s, %%s)" % name, [x, y], lambda m, x, y: f(x, y)))
        if way == "unary":
            name, f = r.choice([("abs", torch.abs), ("neg", torch.neg), ("sign", torch.sign)])
            return self.add("nn.%s(%%s)" % name, [x], lambda m, x: f(x))
        if way == "clamp":
            low, high = r.choice([(0, 3), (1, 1), (-2, 5), (0.5, 2.5), (None, 2), (1, None)])
            return self.add("nn.clamp(%%s, %s, %s)" % ("nil" if low is None else repr(low), "nil" if high is None else repr(high)), [x], lambda m, x: floats_of(m, x.clamp(low, high)))
        if way == "reduce" and x.ndim:
            d = self.dim(x.ndim)
            if r.random() < 0.5:
                return self.small(self.add("nn.sum(%%s, %d)" % d, [x], lambda m, x: int_sum(x, d, False)))
            return self.add("nn.max(%%s, %d, true)" % d, [x], lambda m, x: x.amax(d, True))
        if way == "where":
            b = self.compare()
            y = self.integers()
            if b is None or self.broadcasts(b.shape, x.shape) is None or self.broadcasts(self.broadcasts(b.shape, x.shape), y.shape) is None:
                return None
            c = r.choice([0, 1, -2])
            return self.add(r.choice(["nn.where(%%s, %%s, %d + 0 * %%s)" % c]), [b, x, y], lambda m, b, x, y: torch.where(b, x, c + 0 * y))
        if way == "float":
            c = r.choice([0.5, 0.1, 2])
            text, f = r.choice([("%%s * %r", lambda x: x * c if c != 2 else x * 2), ("%%s / %r", lambda x: x / c), ("%r / (nn.abs(%%s) + 1)", lambda x: c / (x.abs() + 1)), ("%%s + %r", lambda x: x + c if c != 2 else x + 2)])
            return self.add(text % c, [x], lambda m, x: floats_of(m, f(x)))
        if way == "round":
            y = self.some()
            return self.add('nn.cast(%s * 3, "int32")', [y], lambda m, y: (y * 3).to(torch.int32))
        if way == "mask":
            b = self.mask()
            return b and self.add('nn.cast(%s, "int32")', [b], lambda m, b: b.to(torch.int32))
        n = r.choice([1, 2, x.shape[-1] if x.ndim else 1])
        return self.add('nn.full({ %d }, 3, "int32")' % n, [], lambda m: torch.full((n,), 3, dtype=torch.int32), view=True)

    def big(self, x):
        """Integers that fp32 does not hold; they are reduced in fp32, which compiler/STATUS.md tells."""
        r = self.r
        if x.t.numel() and x.t.abs().max() > 60:
            return None
        way = r.choice(["sub", "compare", "abs", "clamp", "where"])
        if way == "sub":
            return self.small(self.add("%s * 16777259 - %s * 16777216", [x, x], lambda m, x, y: x * 16777259 - y * 16777216))
        if way == "compare":
            name = r.choice(["eq", "lt", "ge"])
            return self.add("nn.%s(%%s + 16777216, %%s * 2 + 16777216)" % name, [x, x], lambda m, x, y: COMPARE[name](x + 16777216, y * 2 + 16777216))
        if way == "clamp":
            return self.small(self.add("nn.clamp(%s + 16777217, 16777216, 16777219) - 16777216", [x], lambda m, x: (x + 16777217).clamp(16777216, 16777219) - 16777216))
        if way == "where":
            return self.small(self.add("nn.where(nn.gt(%s, 3), %s + 16777217, 16777219) - 16777216", [x, x], lambda m, x, y: torch.where(x > 3, y + 16777217, 16777219) - 16777216))
        return self.small(self.add("nn.abs(%s - 16777300) - 16777217", [x], lambda m, x: (x - 16777300).abs() - 16777217))

    def small(self, v):
        if v is not None and v.t.numel() and v.t.abs().max() > 1000:
            return self.add("nn.clamp(%s, -50, 50)", [v], lambda m, x: x.clamp(-50, 50))
        return v

    def mixed(self):
        """An integer or a mask beside a tensor of floating point."""
        v = self.r.choice([v for v in self.pool if not v.floating] or [None])
        x = self.some(lambda w: v is not None and self.broadcasts(w.shape, v.shape) is not None)
        if x is None:
            return None
        text, f = self.r.choice([("%s * %s", torch.mul), ("%s + %s", torch.add), ("%s - %s", torch.sub), ("nn.maximum(%s, %s)", torch.maximum), ("nn.where(nn.gt(%s, 0), %s, 0)", None)])
        if f is None:
            return self.add(text, [x, x], lambda m, x, y: torch.where(x > 0, y, 0))
        if f is torch.sub and v.t.dtype == torch.bool:
            f, text = torch.mul, "%s * %s"
        if v.t.dtype == torch.bool or self.r.random() < 0.5:
            return self.add(text, [x, v], lambda m, x, v: f(x, v)) if self.r.random() < 0.5 or f is torch.sub else self.add(text, [v, x], lambda m, v, x: f(v, x))
        return self.add("%s / (nn.abs(%s) + 1)", [x, v], lambda m, x, v: x / (v.abs() + 1))

    # ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────
    def reduce(self):
        r, x = self.r, self.some()
        name = r.choice(["sum", "mean", "max"])
        keep = r.random() < 0.5
        if x.ndim == 0 or r.random() < 0.12:
            dims, text = list(range(x.ndim)), r.choice(["nn.%s(%%s)", "%%s:%s()"]) % name
            keep = False
        else:
            dims = r.sample(range(x.ndim), r.choice([1, 1, 1, min(2, x.ndim), x.ndim]))
            dims = [d - x.ndim if r.random() < 0.4 else d for d in dims]
            word = str(dims[0]) if len(dims) == 1 and r.random() < 0.8 else lua(dims)
            text = "nn.%s(%%s, %s%s)" % (name, word, ", true" if keep else r.choice(["", ", false"]))
        if x.ndim == 0:
            return self.add(text, [x], lambda m, x: x * 1)
        f = {"sum": lambda x: x.sum(dims, keep), "mean": lambda x: x.mean(dims, keep), "max": lambda x: x.amax(dims, keep)}[name]
        return self.add(text, [x], lambda m, x: f(x))

    def softmax(self):
        x = self.some(lambda v: v.ndim > 0)
        if x is None:
            return None
        d = self.dim(x.ndim)
        if d in (-1, x.ndim - 1) and self.r.random() < 0.5:
            return self.add("nn.softmax(%s)", [x], lambda m, x: x.softmax(-1))
        return self.add(self.r.choice(["nn.softmax(%%s, %d)", "%%s:softmax(%d)"]) % d, [x], lambda m, x: x.softmax(d))

    # ── a case of op_cases.py ────────────────────────────────────────────────────────────────────────────────────────
    INDICES = {"tokens": list(range(16)), "positions": [3 * k for k in range(16)]}
    INDEX_WORDS = {"tokens": "nn.arange(16):reshape(2, 8)", "positions": "(nn.arange(16) * 3):reshape(2, 8)"}

    def case(self):
        """Operands are values of this model, cut to the case's shapes, or parameters, all in one dtype. In 16 bits only cases
        of one call are taken: both sides round its result once."""
        # At a document's start a query sees itself alone: its gradient is rounding, of which Adam makes whole steps.
        # lse stays fp32.
        c = self.r.choice([c for c in with_torch().values() if not {"targets", "documents"} & set(inputs_of(c)) and "lse" not in c.lua
                           and all(p.kind != "buffer" for p in c.params.values())
                           and (not self.model.half or len(re.findall(r"nn\.|:\w+\(| [-+*/^] ", c.lua)) == 1)])
        operands = []
        for p in c.params.values():
            n = math.prod(p.shape)
            x = self.some(lambda v: v.t.numel() >= n)
            if x is None or self.r.random() < 0.4:
                x = self.param(p.shape)
            else:
                at = self.r.randint(0, x.t.numel() - n)
                x = self.add("nn.slice(%%s:reshape(-1), 0, %d, %d):reshape(%s)" % (at, at + n, ", ".join(map(str, p.shape))), [x],
                             lambda m, x, at=at, n=n, shape=p.shape: x.reshape(-1)[at:at + n].reshape(shape), view=True)
            if p.kind == "positive":
                x = self.add("nn.abs(%s) + 0.5", [x], lambda m, x: x.abs() + 0.5)
            if operands and [self.dtype_of(x, k) for k in range(2)] != [self.dtype_of(operands[0], k) for k in range(2)]:
                x = self.like(x if isinstance(x, Value) else self.add("%s * 1", [x], lambda m, x: x * 1), operands[0])
            if x is None:
                return None
            operands.append(x)
        indices = {n: torch.tensor(self.INDICES[n], dtype=torch.int32).reshape(2, 8) for n in inputs_of(c)}

        def run(m, *xs):
            wide = [x.float() if x.dtype in (torch.bfloat16, torch.float16) else x for x in xs]
            return [y.to(xs[0].dtype) if y.is_floating_point() else y for y in call_torch(c, {**indices, **dict(zip(c.params, wide))})]
        names = [*c.params, *indices]
        body = c.lua.strip().replace("\n", " ").replace("%", "%%")
        text = "(function(%s) %s end)(%s)" % (", ".join(names), body if "return" in body else "return " + body, ", ".join(["%s"] * len(c.params) + [self.INDEX_WORDS[n] for n in indices]))
        return self.add(text, operands, run, outs=self.results_of(c))

    def results_of(self, c):
        """How many there are: PyTorch says, of operands that are all ones."""
        ones = {n: torch.ones(p.shape) for n, p in c.params.items()}
        return len(call_torch(c, {**ones, **{n: torch.zeros(2, 8, dtype=torch.int32) for n in inputs_of(c)}}))

    # ── views ────────────────────────────────────────────────────────────────────────────────────────────────────────
    def view(self, x=None):
        r = self.r
        x = x or self.some() if r.random() < 0.85 else r.choice(self.pool)
        way = r.choice(["transpose", "permute", "reshape", "slice", "chunk", "split", "expand", "unsqueeze", "squeeze", "flatten"])
        n, shape = x.ndim, x.shape

        def put(text, f, outs=1):
            return self.add(text, [x], lambda m, x: f(x), outs=outs, view=True)
        if way == "unsqueeze":
            d = r.randrange(-n - 1, n + 1)
            return n < 5 and put(r.choice(["nn.unsqueeze(%%s, %d)", "%%s:unsqueeze(%d)"]) % d, lambda x: x.unsqueeze(d)) or None
        if n == 0:
            return put("%s:reshape(1)", lambda x: x.reshape(1))
        if way == "transpose":
            a, b = self.dim(n), self.dim(n)
            return put(r.choice(["nn.transpose(%%s, %d, %d)", "%%s:transpose(%d, %d)"]) % (a, b), lambda x: x.transpose(a, b))
        if way == "permute":
            order = r.sample(range(n), n)
            order = [d - n if r.random() < 0.2 else d for d in order]
            return put(("%%s:permute(%s)" if r.random() < 0.5 else "nn.permute(%%s, { %s })") % ", ".join(map(str, order)), lambda x: x.permute(order))
        if way == "reshape":
            new = self.factored(x.t.numel())
            words = list(new)
            if r.random() < 0.4:
                words[r.randrange(len(words))] = -1
            text = ("%%s:%s(%s)" if r.random() < 0.6 else "nn.%s(%%s, { %s })") % (r.choice(["reshape", "view"]), ", ".join(map(str, words)))
            return put(text, lambda x: x.reshape(new))
        if way == "slice":
            d = self.dim(n)
            size = shape[d]
            a = r.randrange(size)
            b = r.randint(a + 1, size)
            wa, wb = a - size if r.random() < 0.3 else a, b - size if r.random() < 0.3 and b < size else b
            text = ("nn.slice(%%s, %d, %d)" % (d, wa) if b == size and r.random() < 0.5 else r.choice(["nn.slice(%%s, %d, %d, %d)", "%%s:slice(%d, %d, %d)"]) % (d, wa, wb))
            return put(text, lambda x: x.narrow(d, a, b - a))
        if way in ("chunk", "split"):
            d = self.dim(n)
            size = shape[d]
            if way == "chunk" or r.random() < 0.4:
                k = r.choice([k for k in range(1, min(size, 8) + 1) if size % k == 0])
                text = ("nn.chunk(%%s, %d, %d)" % (k, d)) if way == "chunk" else "%%s:split(%d, %d)" % (size // k, d)
                out = put(text, lambda x: x.split(size // k, d), outs=k)
            else:
                cuts = sorted(r.sample(range(1, size), min(size - 1, r.randint(0, 3))))
                sizes = [b - a for a, b in zip([0] + cuts, cuts + [size])]
                out = put("nn.split(%%s, %s, %d)" % (lua(sizes), d), lambda x: x.split(sizes, d), outs=len(sizes))
            if isinstance(out, list):
                r.shuffle(out)
                if r.random() < 0.4:
                    return self.joined(out, d)
                return out[0]
            return out
        if way == "expand":
            new = [k if k > 1 or r.random() < 0.4 else r.choice([2, 3]) for k in shape]
            if r.random() < 0.3 and n < 5:
                new = [r.choice([1, 2, 3])] + new
            words = [-1 if k == s and r.random() < 0.4 else k for k, s in zip(new, [None] * (len(new) - n) + shape)]
            return put(r.choice(["nn.expand(%%s, %s)", "%%s:expand(%s)"]) % ", ".join(map(str, words)), lambda x: x.expand(new))
        if way == "squeeze":
            ones = [d for d in range(n) if shape[d] == 1]
            if not ones:
                return None
            d = r.choice(ones)
            d = d - n if r.random() < 0.4 else d
            return put(r.choice(["nn.squeeze(%%s, %d)", "%%s:squeeze(%d)"]) % d, lambda x: x.squeeze(d))
        a = r.randrange(n)
        b = r.randint(a, n - 1)
        if r.random() < 0.2:
            return put("nn.flatten(%s)", lambda x: x.flatten())
        return put("%%s:flatten(%d, %d)" % (a, b - n if r.random() < 0.4 else b), lambda x: x.flatten(a, b))

    def factored(self, numel):
        out = []
        for _ in range(self.r.randint(0, 3)):
            k = self.r.choice([k for k in range(1, numel + 1) if numel % k == 0])
            out.append(k)
            numel //= k
        out.append(numel)
        self.r.shuffle(out)
        return out

    def joined(self, values, d):
        if len({(v.t.dtype, v.u.dtype) for v in values}) > 1 and any(not v.floating for v in values):
            return None
        text = "nn.concat({ %s }, %d)" % (", ".join(["%s"] * len(values)), d)
        return self.add(text, values, lambda m, *xs: torch.cat(xs, d))

    def join(self):
        r, x = self.r, self.some(lambda v: v.ndim > 0)
        if x is None:
            return None
        same = [v for v in self.pool if v.floating and v.shape == x.shape]
        k = r.randint(1, 4)
        if r.random() < 0.4:
            d = r.randrange(-x.ndim - 1, x.ndim + 1)
            values = [r.choice(same) for _ in range(k)]
            if len({v.t.dtype for v in values}) > 1:
                return None
            text = "nn.stack({ %s }, %d)" % (", ".join(["%s"] * k), d)
            return x.ndim < 5 and self.add(text, values, lambda m, *xs: torch.stack(xs, d)) or None
        d = self.dim(x.ndim)
        fit = [v for v in self.pool if v.floating and v.ndim == x.ndim and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != d % x.ndim)]
        return self.joined([x] + [r.choice(fit) for _ in range(k)], d)

    # ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def like(self, x, w):
        """x in the dtype of w, by a cast where one is needed: products mix none."""
        t = [self.dtype_of(w, k) for k in range(2)]
        if x.t.dtype == t[0] and x.u.dtype == t[1]:
            return x
        return self.add("nn.cast(%s, %s)", [x, w], lambda m, x, w: x.to(w.dtype))

    def dtype_of(self, w, k):
        return (w.t, w.u)[k].dtype if isinstance(w, Value) else self.model.probes[k].param(w, self.module).dtype

    def matmul(self):
        r = self.r
        x = self.some(lambda v: v.ndim >= 2)
        if x is None:
            return None
        way = r.choice(["param", "param_t", "pool", "gram", "left", "addmm", "linear", "linear", "Linear", "Linear", "batched"])
        k = x.shape[-1]
        n = r.choice([1, 2, 3, 5, 8, k])
        if way in ("param", "addmm"):
            w = self.param([k, n], k ** -0.5)
            x = self.like(x, w)
            if x is None:
                return None
            if way == "addmm":
                b = self.param([n], 0.3)
                if self.dtype_of(b, 0) != self.dtype_of(w, 0) or self.dtype_of(b, 1) != self.dtype_of(w, 1):
                    return None
                return self.add("nn.addmm(%s, %s, %s)", [b, x, w], lambda m, b, x, w: x @ w + b)
            return self.add(r.choice(["nn.matmul(%s, %s)", "%s:matmul(%s)"]), [x, w], lambda m, x, w: x @ w)
        if way == "param_t":
            w = self.param([n, k], k ** -0.5)
            x = self.like(x, w)
            return x and self.add("nn.matmul(%s, %s:transpose(0, 1))", [x, w], lambda m, x, w: x @ w.T)
        if way == "left":
            w = self.param([n, x.shape[-2]], x.shape[-2] ** -0.5)
            x = self.like(x, w)
            if x is None:
                return None
            if x.ndim == 2:
                return self.add("nn.matmul(%s, %s)", [w, x], lambda m, w, x: w @ x)
            lead = [1] * (x.ndim - 2)
            return self.add("nn.matmul(nn.reshape(%%s, { %s }), %%s)" % ", ".join(map(str, lead + w.shape)), [w, x], lambda m, w, x: w.reshape(lead + list(w.shape)) @ x)
        if way == "gram":
            if r.random() < 0.5:
                return self.add("nn.matmul(%s, nn.transpose(%s, -1, -2)) * 0.3", [x, x], lambda m, x, y: x @ y.transpose(-1, -2) * 0.3)
            return self.add("nn.matmul(%s:transpose(-2, -1), %s) * 0.3", [x, x], lambda m, x, y: x.transpose(-2, -1) @ y * 0.3)
        if way == "pool":
            fit = [v for v in self.pool if v.floating and v.ndim >= 2 and v.shape[-2] == k and self.broadcasts(v.shape[:-2], x.shape[:-2]) is not None]
            if not fit:
                return None
            y = r.choice(fit)
            x = self.like(x, y)
            return x and self.add("nn.matmul(%s, %s) * 0.4", [x, y], lambda m, x, y: x @ y * 0.4)
        if way == "batched":
            lead = [a if r.random() < 0.6 else 1 for a in x.shape[:-2]]
            lead = lead[r.randint(0, len(lead)):] if r.random() < 0.4 else lead
            if r.random() < 0.2 and len(lead) == x.ndim - 2 and len(lead) < 3:
                lead = [2] + lead
            swapped = r.random() < 0.5
            w = self.param(lead + ([n, k] if swapped else [k, n]), k ** -0.5)
            x = self.like(x, w)
            if swapped:
                return x and self.add("nn.matmul(%s, nn.transpose(%s, -2, -1))", [x, w], lambda m, x, w: x @ w.transpose(-2, -1))
            return x and self.add("nn.matmul(%s, %s)", [x, w], lambda m, x, w: x @ w)
        if way == "linear":
            w = self.param([n, k], k ** -0.5)
            x = self.like(x, w)
            if x is None:
                return None
            if r.random() < 0.5:
                b = self.param([n], 0.3)
                if self.dtype_of(b, 0) != self.dtype_of(w, 0) or self.dtype_of(b, 1) != self.dtype_of(w, 1):
                    return None
                return self.add("nn.linear(%s, %s, %s)", [x, w, b], lambda m, x, w, b: F.linear(x, w, b))
            return self.add("nn.linear(%s, %s)", [x, w], lambda m, x, w: F.linear(x, w))
        return self.Linear(x, n)

    def Linear(self, x, n):
        k, bias = x.shape[-1], self.r.random() < 0.6
        w, b = self.layer("Linear(%d, %d" % (k, n), {} if bias else {"bias": False}, {"weight": ([n, k], k ** -0.5, 0)}, {"bias": ([n], 0.3, 0)} if bias else {})
        x = self.like(x, w)
        if x is None:
            return None
        return self.add(self.called + "(%s)", [x], lambda m, x: F.linear(x, m.param(w, self.module), m.param(b, self.module) if b else None))

    def layer(self, ctor, options, first, second):
        """A module of nn.lua with parameters of its own: returns them."""
        m = self.module
        if m is self.model.top:
            raise Skip
        name = "l%d" % (len(m.fields) + 1)
        dtype = self.model.stored()
        if dtype != "fp32":
            options = {**options, "dtype": dtype}
        m.fields.append("m.%s = nn.%s%s)" % (name, ctor, ", " + lua(options) if options else ""))
        out = []
        for group in (first, second):
            for field, (shape, std, around) in group.items():
                p = Param(shape, torch.randn(shape, generator=self.model.generator) * std + around, dtype=dtype)
                m.params["%s.%s" % (name, field)] = p
                self.model.make(p, m, "%s.%s" % (name, field))
                out.append(p)
            if not group:
                out.append(None)
        self.called = "self." + name
        if self.r.random() < 0.04:
            m.fields.append("nn.freeze(m.%s)" % name)
            for p in out:
                if p:
                    self.model.freeze(p)
        return out

    # ── network functions ────────────────────────────────────────────────────────────────────────────────────────────
    def embedding(self):
        r = self.r
        i = self.integers()
        if i is None:
            return None
        low, high = (int(i.t.min()), int(i.t.max())) if i.t.numel() else (0, 0)
        if low < 0 or high >= VOCAB or not i.name.startswith("a"):
            c = r.randint(1, 6)
            i = self.add("nn.clamp(%%s, 0, %d)" % c, [i], lambda m, x: x.clamp(0, c))
            if i is None:
                return None
        rows, width = VOCAB, r.choice([1, 2, 4, 6, 7])
        if r.random() < 0.5:
            w = self.param([rows, width])
            return self.add("nn.embedding(%s, %s)", [i, w], lambda m, i, w: F.embedding(i.long(), w))
        sparse = self.model.sparse and r.random() < 0.5
        at = len(self.module.fields) + 1
        if sparse:
            self.model.rows.add("%sl%d.weight" % (self.module.path + "." if self.module.path else "", at))
        w, _ = self.layer("Embedding(%d, %d" % (rows, width), {"sparse": True} if sparse else {}, {"weight": ([rows, width], 0.7, 0)}, {})
        return self.add(self.called + "(%s)", [i], lambda m, i: F.embedding(i.long(), m.param(w, self.module)))

    def norm(self):
        r = self.r
        x = self.some(lambda v: v.ndim >= 1 and v.shape[-1] > 2)
        if x is None:
            return None
        n = x.shape[-1]
        eps = r.choice([1e-5, 1e-3, 1e-2])
        way = r.choice(["LayerNorm", "LayerNorm", "RMSNorm", "RMSNorm", "layer_norm", "rms_norm", "bare", "bare_rms", "bias"])
        if way == "LayerNorm":
            bias = r.random() < 0.6
            w, b = self.layer("LayerNorm(%d" % n, {"eps": eps} if bias else {"eps": eps, "bias": False}, {"weight": ([n], 0.2, 1)}, {"bias": ([n], 0.2, 0)} if bias else {})
            if not self.one_dtype(x, w):
                return None
            return self.add(self.called + "(%s)", [x], lambda m, x: F.layer_norm(x, (n,), m.param(w, self.module), m.param(b, self.module) if b else None, eps))
        if way == "RMSNorm":
            w, _ = self.layer("RMSNorm(%d" % n, {"eps": eps}, {"weight": ([n], 0.2, 1)}, {})
            if not self.one_dtype(x, w):
                return None
            return self.add(self.called + "(%s)", [x], lambda m, x: rms_norm(x, m.param(w, self.module), eps))
        if way == "bare":
            return self.add("nn.layer_norm(%%s, nil, nil, %r)" % eps, [x], lambda m, x: F.layer_norm(x, (n,), eps=eps))
        if way == "bare_rms":
            return self.add("nn.rms_norm(%%s, nil, %r)" % eps, [x], lambda m, x: rms_norm(x, None, eps))
        w = self.param([n], 0.2, 1.0)
        if not self.one_dtype(x, w):
            return None
        if way == "bias":
            return self.add("nn.layer_norm(%%s, nil, %%s, %r)" % eps, [x, w], lambda m, x, w: F.layer_norm(x, (n,), None, w, eps))
        if way == "layer_norm":
            return self.add("nn.layer_norm(%%s, %%s, nil, %r)" % eps, [x, w], lambda m, x, w: F.layer_norm(x, (n,), w, None, eps))
        return self.add("nn.rms_norm(%%s, %%s, %r)" % eps, [x, w], lambda m, x, w: rms_norm(x, w, eps))

    def one_dtype(self, x, w):
        return x.t.dtype == self.dtype_of(w, 0) and x.u.dtype == self.dtype_of(w, 1)

    def batch_norm(self):
        r = self.r
        x = self.some(lambda v: v.ndim >= 2 and v.t.numel() // v.shape[1] > 2 and v.t.dtype == torch.float32 and v.u.dtype == torch.float32)
        if x is None or self.module is self.model.top or not self.model.batch_norm or self.module.policy not in (None, {}) or self.model.half:
            return None
        c, m = x.shape[1], self.module
        eps, momentum = r.choice([1e-5, 1e-2]), r.choice([0.1, 0.4])
        name = "l%d" % (len(m.fields) + 1)
        m.fields.append("m.%s = nn.BatchNorm(%d, %s)" % (name, c, lua({"eps": eps, "momentum": momentum})))
        made = {}
        for field, buffer, start in (("weight", False, torch.rand(c, generator=self.model.generator) + 0.5), ("bias", False, torch.randn(c, generator=self.model.generator) * 0.2), ("running_mean", True, torch.zeros(c)), ("running_var", True, torch.ones(c))):
            made[field] = p = Param([c], start, buffer)
            m.params[name + "." + field] = p
            self.model.make(p, m, name + "." + field)

        def run(machine, x):
            w, b, mean, var = (machine.param(made[f], m) for f in ("weight", "bias", "running_mean", "running_var"))
            return F.batch_norm(x, mean, var, w, b, True, momentum, eps)
        return self.add("self.%s(%%s)" % name, [x], run)

    def attention(self):
        r, b, s = self.r, self.model.b, self.model.s
        heads = r.choice([1, 2, 3, 4])
        kv = r.choice([k for k in (1, 2, 3, 4) if heads % k == 0])
        width = r.choice([1, 2, 4, 5, 8])
        batch, seq = r.choice([(b, s), (b, s), (1, s), (b, 1), (2, 3)])
        x = self.some(lambda v: v.t.numel() >= 2 and v.ndim >= 1)
        if x is None:
            return None
        causal = r.random() < 0.5
        t = seq if causal or r.random() < 0.6 else r.choice([1, 2, 5])

        def head(h, length):
            n = batch * length * h * width
            fit = [v for v in self.pool if v.floating and v.t.numel() == n]
            shape = [batch, length, h, width]
            if fit and r.random() < 0.7:
                y = r.choice(fit)
            else:
                y = self.some(lambda v: v.ndim >= 2 and v.t.numel() // v.shape[-1] == batch * length)
                y = y and self.Linear(y, h * width)
                if y is None:
                    p = self.param([batch, length, h, width])
                    return self.add("%s * 1.5", [p], lambda m, x: x * 1.5)
            if r.random() < 0.3:
                return self.add("%%s:reshape(%d, %d, %d, %d):transpose(1, 2)" % (batch, h, length, width), [y], lambda m, x: x.reshape(batch, h, length, width).transpose(1, 2), view=True)
            return self.add("%%s:reshape(%s)" % ", ".join(map(str, shape)), [y], lambda m, x: x.reshape(shape), view=True)
        q, k, v = head(heads, seq), head(kv, t), head(kv, t)
        if q is None or k is None or v is None:
            return None
        if width % 2 == 0 and r.random() < 0.5:
            q, k = self.rope(q), self.rope(k)
            if q is None or k is None:
                return None
        k, v = self.like(k, q), self.like(v, q)
        if k is None or v is None:
            return None
        more, scale, ins, documents = {}, None, [q, k, v], None
        if causal or r.random() < 0.3:
            more["causal"] = causal
        if r.random() < 0.3:
            more["scale"] = scale = r.choice([0.1, 0.5, 1])
        words = ["q = %s", "k = %s", "v = %s"] + ["%s = %s" % (n, lua(x)) for n, x in more.items()]
        if t == seq and r.random() < 0.4:
            documents = self.integers(lambda d: d.shape == [batch, seq])
        if documents is not None:
            words.append("documents = %s")
            ins.append(documents)
        return self.add("nn.attention { %s }" % ", ".join(words), ins, lambda m, q, k, v, d=None: attention(q, k, v, causal, scale, d))

    def rope(self, x=None):
        r = self.r
        x = x or self.some(lambda v: v.ndim == 4 and v.shape[-1] % 2 == 0)
        if x is None:
            return None
        options, words, theta, scaling, ins = {}, [], 10000, None, [x]
        if r.random() < 0.4:
            options["theta"] = theta = r.choice([100, 500])
        if r.random() < 0.2:
            options["scaling"] = scaling = LLAMA31
        words = ["%s = %s" % (n, lua(v)) for n, v in options.items()]
        if r.random() < 0.3:
            p = self.integers(lambda v: v.shape == x.shape[:2])
            if p is not None:
                words.append("positions = %s")
                ins.append(p)
        return self.add("nn.rope(%%s%s)" % (", { %s }" % ", ".join(words) if words else ""), ins, lambda m, x, p=None: rope(x, p, theta, scaling))

    # ── modules, checkpoints, logs ───────────────────────────────────────────────────────────────────────────────────
    def child(self):
        r, model = self.r, self.model
        if self.nested >= 2 or len(model.modules) > 6 or self.inner or self.module is model.top:
            return None
        kids = [k for k in self.module.kids.values() if k.calls < 3]
        if kids and r.random() < 0.35:
            return self.again(r.choice(kids))
        args = [a for a in {self.some() for _ in range(r.randint(1, 3))} if a]
        args.sort(key=lambda v: v.name)
        if r.random() < 0.5:
            args += [i for i in [self.integers()] if i]
        if r.random() < 0.15:
            p = self.param(r.choice(args).shape or [2])
            if isinstance(p, Param) and not p.shared:
                args.append(self.add("%s:reshape(" + ", ".join(map(str, p.shape)) + ")", [p], lambda m, x: x, view=True))
        kid = model.new_module(self.module)
        body = Body(model, kid, args, self.nested + 1)
        kid.taken = [(v.shape, v.t.dtype, v.u.dtype) for v in args]
        body.fill(r.randint(2, 9))
        body.finish(r.choice([1, 1, 2, 3]))
        own = [p for p in kid.params.values() if not p.buffer]
        if r.random() < 0.06 and own and not kid.kids and not any(p.shared for p in own):
            self.module.fields.append("nn.freeze(m.%s)" % kid.access)
            for p in own:
                self.model.freeze(p)
        return self.call_kid(kid, args)

    def again(self, kid):
        args = []
        for shape, t, u in kid.taken:
            fit = [v for v in self.pool if v.shape == shape and v.t.dtype == t and v.u.dtype == u]
            if t == torch.int32:
                fit = [v for v in fit if v.name.startswith("a")]  # they index tables
            if not fit:
                return None
            args.append(self.r.choice(fit))
        return None if kid.logs else self.call_kid(kid, args)

    def call_kid(self, kid, args):
        kid.calls += 1
        k = len(kid.results)
        word = "self.%s(%s)" % (kid.access, ", ".join(["%s"] * len(args)))
        out = self.add(word, args, lambda m, *xs: m.call(kid, list(xs)), outs=k, view=True, stem="y")
        return out

    inner = False

    def checkpoint(self):
        """What follows is a function that is computed again."""
        r = self.r
        if self.inner:
            return None
        x = self.some()
        outer, pool = self.stmts, list(self.pool)
        self.stmts, self.inner = [], True
        given = Value("c%d" % (self.n + 1), x.t, x.u)
        self.n += 1
        for k in range(2):
            self.env[k][given.name] = (x.t, x.u)[k]
        self.pool = pool + [given] * 3
        self.fill(r.randint(1, 6))
        made = [v for v in self.pool[len(pool) + 3:] if v.floating]
        inner, self.stmts, self.inner = self.stmts, outer, False
        self.pool = pool
        if not made:
            return None
        out = r.sample(made, min(len(made), r.choice([1, 1, 2])))
        names = ["%sc" % v.name for v in out]
        options = r.choice(["", "", "{ save = { \"matmul\" } }, ", "{ offload = { \"input\" } }, ", "{ recompute = false }, "])
        lines = ["local %s = nn.checkpoint(%sfunction(%s)" % (", ".join(names), options, given.name)]
        copy_in = Statement("", [given.name], [x.name], lambda m, x: x, view=True)
        copies = [Statement("", [n], [v.name], lambda m, x: x, view=True) for n, v in zip(names, out)]
        s = Statement((lines[0], "  return %s" % ", ".join(v.name for v in out), "end, %s)" % x.name), inner=[copy_in] + inner + copies)
        for k in range(2):
            for n, v in zip(names, out):
                self.env[k][n] = (v.t, v.u)[k]
        self.stmts.append(s)
        x.readers += 1
        values = [Value(n, v.t, v.u) for n, v in zip(names, out)]
        self.pool += values
        return values[0]

    def log(self):
        if self.module.calls or self.inner or len(self.model.logged) > 12:
            return None
        x = self.some() if self.r.random() < 0.8 else self.integers(lambda v: v.t.numel() == 1) or self.some()
        name = "log%d" % (len(self.model.logged) + 1)
        total = self.r.random() < 0.2
        self.model.logged.append(name)
        m = self.module
        while m:
            m.logs, m = True, m.parent

        def run(m, x):
            m.logs[name] = x.detach() * (self.model.world * self.model.accumulate if total else 1)
            return []
        if x.t.numel() > 1 or self.r.random() < 0.3:
            way = self.r.choice(["mean", "sum", "max"])
            f = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax}[way]
            x = self.add("nn.%s(%%s)" % way, [x], lambda m, x: f(x)) if x.ndim and x.floating else x
            if x is None:
                return None
        return self.add('nn.log_metric("%s", %%s%s)' % (name, ', { reduce = "sum" }' if total else ""), [x], run, outs=0)

    # ── the loss ────────────────────────────────────────────────────────────────────────────────────────────────────────
    def term(self, v):
        """One number of a result of the model."""
        r, model = self.r, self.model
        if v.ndim == 0:
            return self.add("%s * 0.7", [v], lambda m, x: x * 0.7)
        ways = ["mean", "square", "log", "weighted"]
        if v.shape[:2] == [model.b, model.s] and v.ndim == 3 and v.shape[2] > 1:
            ways += ["entropy"] * 3
        if v.shape == list(model.inputs["x"][1]):
            ways += ["mse"] * 2
        if v.ndim >= 2 and v.shape[-1] > 1 and v.t.numel() // v.shape[-1] == model.b * model.s:
            ways += ["entropy"]
        way = r.choice(ways)
        if way == "entropy":
            classes, ignore = v.shape[-1], model.ignored
            if classes < VOCAB:  # targets that are too large are no classes
                way = "wide"
            lead = v.shape[:-1]
            shaped = v if lead == [model.b, model.s] else self.add("%%s:reshape(%d, %d, %d)" % (model.b, model.s, classes), [v], lambda m, x: x.reshape(model.b, model.s, classes), view=True)
            if way == "wide":
                pad = r.choice([0, 1]) + (VOCAB + classes - 1) // classes
                shaped = self.add("nn.concat({ %s }, -1)" % ", ".join(["%s"] * pad), [shaped] * pad, lambda m, *xs: torch.cat([x * (1 + 0 * k) for k, x in enumerate(xs)], -1))
            t = next(x for x in self.pool if x.name == "targets")
            options = ", { ignore_index = %d }" % ignore if ignore is not None and ignore != -100 else ""
            index = -100 if ignore is None else ignore
            return self.add("nn.cross_entropy(%%s, %%s%s)" % options, [shaped, t], lambda m, x, t: cross_entropy(x, t, index, m.counts(t, index)))
        if way == "mse":
            x = next(x for x in self.pool if x.name == "bx")
            return self.add("nn.mse_loss(%s, %s)", [v, x], lambda m, a, b: F.mse_loss(a.to(b.dtype) if a.dtype != b.dtype else a, b))
        if way == "mean":
            return self.add("nn.mean(%s)", [v], lambda m, x: x.mean())
        if way == "square":
            return self.add("nn.mean(%s * %s)", [v, v], lambda m, x, y: (x * y).mean())
        if way == "weighted":
            n = v.shape[-1]
            return self.add("nn.mean(%%s * (nn.arange(%d) + 1)) * 0.3" % n, [v], lambda m, x: (x * torch.arange(1, n + 1)).mean() * 0.3)
        return self.add("nn.mean(nn.log(nn.sum(nn.exp(nn.cast(%s, \"fp32\")), -1)))", [v], lambda m, x: x.to(m.dtype("fp32")).exp().sum(-1).log().mean())

    # ── all of it ────────────────────────────────────────────────────────────────────────────────────────────────────
    KINDS = {"unary": 3, "positive": 2, "power": 1, "binary": 5, "with_number": 4, "where": 2, "clamp": 1, "cast": 1.5, "detach": 0.4, "integer": 2, "mixed": 1.5, "reduce": 3, "softmax": 1.5,
             "view": 7, "join": 2, "matmul": 6, "embedding": 1, "norm": 2, "batch_norm": 0.7, "attention": 1.5, "rope": 0.7, "case": 2, "child": 1.5, "checkpoint": 0.6, "log": 0.8}

    def fill(self, count):
        kinds, weights = list(self.KINDS), list(self.KINDS.values())
        for _ in range(count):
            kind = self.r.choices(kinds, weights)[0]
            try:
                v = getattr(self, kind)()
            except Skip:
                continue
            if isinstance(v, list):
                v = v[0] if v else None
            if isinstance(v, Value):
                self.tame(v)

    def finish(self, results):
        """Returns some values that nobody read yet; the others' means are added to the first, or they stay unused."""
        r = self.r
        left = [v for v in self.pool if v.floating and not v.readers]
        if not left:
            left = [self.add("%s * 0.5 + 0.25", [self.some()], lambda m, x: x * 0.5 + 0.25)]
        r.shuffle(left)
        kept, rest = left[:results], left[results:]
        for v in rest:
            if r.random() < 0.85:
                y = self.add("%s + 0.3 * nn.mean(%s)", [kept[0], v], lambda m, x, y: x + 0.3 * (y.mean() if y.dim() else y))
                kept[0] = y or kept[0]
        own = set(self.module.args)
        self.module.results = [v.name for v in kept]
        if any(n in own for n in self.module.results):  # an argument as it is
            self.module.results = []
            for v in kept:
                y = self.add("%s * 1.25", [v], lambda m, x: x * 1.25) if v.name in own else v
                self.module.results.append(y.name)


def floats_of(m, x):
    """PyTorch's default dtype is what integers become."""
    return x.to(m.dtype("fp32")) if x.is_floating_point() else x


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────────────
class Model:
    def __init__(self, seed):
        self.seed, self.r = seed, random.Random(seed)
        r = self.r
        self.generator = torch.Generator().manual_seed(seed)
        self.half = r.choice([None, None, "bf16", "bf16", "fp16"])  # fp16 as bf16, without a scaler: gradients are large enough
        self.b, self.s, self.f = r.choice([1, 2, 3, 4]), r.choice([1, 2, 3, 5, 8, 17]), r.choice([1, 3, 4, 6, 18])
        self.world = 2 if r.random() < 0.15 else 1
        self.accumulate = r.choice([1, 1, 1, 2, 3])
        self.sparse = r.random() < 0.2
        self.batch_norm = self.world == 1
        self.narrow = r.random() < 0.2  # some parameters are stored in 16 bits
        self.steps = 3
        self.rows = set()  # sparse tables
        self.top = None
        self.modules, self.ties, self.logged, self.params = [], [], [], []
        self.probes = [Machine(policies=True), Machine(policies=False)]
        for p in self.probes:
            p.counts = lambda targets, ignore: 1.0
            p.begin()
        self.inputs = self.make_inputs()
        self.make_net()
        self.make_training()

    # ── parameters and modules ───────────────────────────────────────────────────────────────────────────────────────
    def stored(self):
        return self.half if self.half and self.narrow and self.r.random() < 0.3 else "fp32"

    def make(self, p, module, name):
        self.params.append(p)
        path = (module.path + "." if module.path else "") + name
        p.full = path
        for probe in self.probes:
            probe.state[path] = p.start.clone()

    def freeze(self, p):
        p.frozen = True

    def may_share(self, p, module):
        """What units share belongs to a common ancestor of theirs; then all of them compute in one dtype."""
        units = {p.unit, module.unit(), self.net.unit()}
        return p.unit is module.unit() or (not p.frozen and None not in units and len({(u.policy or {}).get("param_dtype") for u in units}) == 1)

    def new_module(self, parent):
        r = self.r
        kind = "M%d" % len(self.modules)
        listed = r.random() < 0.3
        if listed:
            name = "list%d" % len(parent.fields)
            m = Module(kind, parent, name + ".0")
            m.access = name + "[1]"
            parent.fields.append("m.%s = nn.list { %s() }" % (name, kind))
        else:
            name = "m%d" % len(parent.fields)
            m = Module(kind, parent, name)
            m.access = name
            parent.fields.append("m.%s = %s()" % (name, kind))
        m.logs = False
        parent.kids[name] = m
        if r.random() < 0.45:
            m.policy = self.mp()
        self.modules.append(m)
        return m

    def mp(self):
        r = self.r
        if not self.half or r.random() < 0.3:
            return {} if r.random() < 0.6 else {"param_dtype": "fp32"}
        out = {"param_dtype": self.half, "reduce_dtype": "fp32"}
        if r.random() < 0.3:
            out["output_dtype"] = r.choice(["fp32", self.half])
        if r.random() < 0.1:
            out["cast_forward_inputs"] = False
        return out

    def where(self, m):
        return "net" + "".join("." + x.access for x in self.line(m))

    # ── inputs ───────────────────────────────────────────────────────────────────────────────────────────────────────
    def make_inputs(self):
        b, s, f = self.b, self.s, self.f
        return {"tokens": ("int32", [b, s]), "x": ("fp32", [b, s, f]), "targets": ("int32", [b, s]), "z": ("fp32", [b, 3]), "ids": ("int32", [b])}

    def batch(self, generator, share=1):
        out = {}
        for name, (dtype, shape) in self.inputs.items():
            shape = [shape[0] * share] + shape[1:]
            out[name] = torch.randint(0, VOCAB, shape, generator=generator).int() if dtype == "int32" else torch.randn(shape, generator=generator)
        if self.ignored is not None:
            out["targets"][torch.rand(out["targets"].shape, generator=generator) < 0.3] = self.ignored
        return out

    # ── the net ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def make_net(self):
        r = self.r
        self.ignored = r.choice([None, -100, 3])
        given = self.batch(torch.Generator().manual_seed(self.seed + 1))
        net = self.net = Module("Net")
        net.logs, net.access = False, ""
        net.policy = self.mp() if r.random() < 0.8 else None
        self.modules.append(net)
        self.given = given
        args = [Value(n, given[n], given[n]) for n in ("tokens", "x", "z", "ids")]
        body = Body(self, net, args)
        body.fill(r.choice([6, 12, 20, 30, 45]))
        body.finish(r.choice([1, 2, 3, 4]))
        net.calls = 1
        # the loss: outside of every module
        top = self.top = Module("Loss")
        top.policy, top.logs, top.access = None, False, ""
        for p in self.probes:
            p.begin()
        outs = [self.probes[k].call(net, [given[n] for n in ("tokens", "x", "z", "ids")]) for k in range(2)]
        values = [Value("", a, c) for a, c in zip(*outs)]
        loss = Body(self, top, values)
        for n, k in (("targets", "targets"), ("bx", "x")):
            v = Value(n, given[k], given[k])
            loss.pool.append(v)
            top.args.append(n)
            for e in loss.env:
                e[n] = given[k]
        if r.random() < 0.3:
            loss.fill(r.randint(1, 6))
        terms = []
        for v in loss.pool[:len(values)] + [v for v in loss.pool[len(values):] if v.floating and not v.readers and v.name != "bx"]:
            terms.append(loss.term(v))
        total = terms[0]
        for t in terms[1:]:
            total = loss.add("%s + %s", [total, t], lambda m, a, b: a + b)
        top.results = [total.name]
        top.args = ["a%d" % k for k in range(len(values))] + ["targets", "bx"]

    def make_training(self):
        r = self.r
        self.kind = r.choice(["SGD", "SGD", "Adam", "AdamW", "AdamW"])
        o = {"lr": r.choice([0.05, 0.01]), "weight_decay": r.choice([0, 0.1])}
        if self.kind == "SGD":
            if r.random() < 0.5:
                o["momentum"] = 0.9
                o["nesterov"] = r.random() < 0.5
        else:
            o["betas"], o["eps"] = r.choice([[0.9, 0.999], [0.8, 0.95]]), r.choice([1e-3, 1e-2])
        self.optimizer = o
        self.clip = r.choice([0, 0, 0.3, 2.0])
        self.groups = []
        used = [p for p in self.params if not p.buffer and p.path]
        if used and r.random() < 0.5:
            self.groups.append({"match": [r.choice(used).path], "lr": o["lr"] / 2})
        if used and r.random() < 0.4:
            self.groups.append({"match": ["*" + r.choice(used).path[-2:]], "weight_decay": 0.05})

    # ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────
    def lines(self, stmts, indent):
        out = []
        for s in stmts:
            if s.inner is not None:
                out.append(indent + s.text[0])
                out += self.lines(s.inner, indent + "  ")
                out += [indent + t for t in s.text[1:]]
            elif s.text:
                out.append(indent + s.text)
        return out

    def module_text(self, m):
        return "\n".join(["local function %s()" % m.kind, '  local m = nn.module "%s"' % m.kind, *["  " + f for f in m.fields], "  function m:forward(%s)" % ", ".join(m.args),
                          *self.lines(m.body, "    "), "    return %s" % ", ".join(m.results), "  end", "  return m", "end", ""])

    def policy_lines(self):
        r, out = random.Random(self.seed + 7), []
        for m in reversed(self.modules):  # inner ones first
            word = self.where(m)
            if m.parent and r.random() < 0.2:
                out.append("nn.checkpoint_wrapper(%s, %s)" % (word, lua(r.choice([{}, {"save": ["matmul"]}, {"offload": ["input"]}, {"recompute": False, "offload": ["*"]}]))))
            if m.policy is not None:
                policy = {"mp_policy": m.policy} if m.policy else {}
                if r.random() < 0.2:
                    policy["reshard_after_forward"] = False
                out.append("nn.fully_shard(%s%s)" % (word, ", " + lua(policy) if policy else ""))
        return out

    def line(self, m):
        out = []
        while m.parent:
            out.append(m)
            m = m.parent
        return out[::-1]

    def text(self):
        out = ['local nn, optim = require "nn", require "optim"', ""]
        out += [self.module_text(m) for m in reversed(self.modules)]
        out.append("local net = Net()")
        out += self.ties
        out += self.policy_lines()
        o = dict(self.optimizer)
        if self.groups:
            o["groups"] = self.groups
        results = ", ".join(a for a in self.top.args if a.startswith("a"))
        out += ["", "return nn.training {", "  model = net,", "  batch = {"]
        out += ["    %s = nn.input(%s, %s)," % (n, lua(d), lua(s)) for n, (d, s) in self.inputs.items()]
        out += ["  },", "  loss = function(m, b)", "    local targets, bx = b.targets, b.x", "    local %s = m(b.tokens, b.x, b.z, b.ids)" % results, *self.lines(self.top.body, "    "),
                "    return %s" % self.top.results[0], "  end,", "  optimizer = optim.%s %s," % (self.kind, lua(o))]
        if self.clip:
            out.append("  clip_grad_norm = %r," % self.clip)
        if self.accumulate > 1:
            out.append("  accumulate = %d," % self.accumulate)
        return "\n".join(out + ["}", ""])

    def title(self):
        return "seed %d world %d acc %d b%d s%d %s %s" % (self.seed, self.world, self.accumulate, self.b, self.s, self.half or "fp32", self.kind)


if __name__ == "__main__":
    for seed in sys.argv[1:]:
        print("-- " + Model(int(seed)).title())
        print(Model(int(seed)).text())
