"""Small models that are written once and made twice, in Lua and in PyTorch with FSDP2. A module is a list of statements:

    ("y", "linear", "x", "w")                                    y = linear(x, self.w)
    ("y", "call", "inner", ["x", {"a": "h", "b": ["k"]}])        y = self.inner(x, { a = h, b = { k } })

Operands are names of values or of the module's parameters, or numbers; names of integers begin with i_.

Relies on: torch, harness.py (lua). Relied on by: fsdp2.py, which puts tests/program on the path, fsdp2_cases.py."""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from harness import lua

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int32": torch.int32}
NAMES = {v: k for k, v in DTYPES.items()}
OURS = ("grad_dtype", "buffer_dtype")  # of mp_policy: FSDP2 has no such words


def attention(q, k, v, like):
    heads = [t.reshape(2, -1, 2, 4).transpose(1, 2) for t in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(like.shape)


HEADS = "%s:reshape(2, -1, 2, 4)"
OPS = {  # name: (Lua, PyTorch)
    "exp": ("nn.exp(%s)", torch.exp), "tanh": ("nn.tanh(%s)", torch.tanh), "sigmoid": ("nn.sigmoid(%s)", torch.sigmoid),
    "relu": ("nn.relu(%s)", torch.relu), "gelu": ("nn.gelu(%s)", F.gelu), "silu": ("nn.silu(%s)", F.silu),
    "softmax": ("nn.softmax(%s)", lambda x: F.softmax(x, -1)), "neg": ("-%s", torch.neg),
    "add": ("%s + %s", torch.add), "sub": ("%s - %s", torch.sub), "mul": ("%s * %s", torch.mul),
    "maximum": ("nn.maximum(%s, %s)", torch.maximum),
    "where": ("nn.where(nn.gt(%s, 0), %s, %s)", lambda c, a, b: torch.where(c > 0, a, b)),
    "masked": ("%s * nn.gt(%s, 0)", lambda x, y: x * (y > 0)),
    "counted": ("nn.arange(8) + %s * nn.gt(%s, 0)", lambda x, y: torch.arange(8, dtype=torch.int32) + x * (y > 0)),
    "halves": ("nn.gt(%s, 0) * 0.5", lambda x: (x > 0) * 0.5),
    "sum": ("nn.expand(nn.sum(%s, -1, true), -1, 8)", lambda x: x.sum(-1, keepdim=True).expand(-1, 8)),
    "mean": ("nn.expand(nn.mean(%s, -1, true), -1, 8)", lambda x: x.mean(-1, keepdim=True).expand(-1, 8)),
    "max": ("nn.expand(nn.max(%s, -1, true), -1, 8)", lambda x: x.amax(-1, keepdim=True).expand(-1, 8)),
    "mean_all": ("nn.mean(%s)", torch.mean), "linear": ("nn.linear(%s, %s)", F.linear), "linear_bias": ("nn.linear(%s, %s, %s)", F.linear),
    "layer_norm": ("nn.layer_norm(%s, %s, %s)", lambda x, w, b: F.layer_norm(x, w.shape, w, b)),
    "rms_norm": ("nn.rms_norm(%s, %s)", lambda x, w: F.rms_norm(x, w.shape, w, 1e-6)),
    "embedding": ("nn.embedding(%s, %s)", F.embedding),
    "attention": ("nn.attention { q = %s, k = %s, v = %s, causal = true }:reshape(%%s.shape)" % (HEADS, HEADS, HEADS), attention),
    "fp32": ('nn.cast(%s, "fp32")', torch.Tensor.float), "bf16": ('nn.cast(%s, "bf16")', torch.Tensor.bfloat16),
    "like": ("nn.cast(%s, %s)", lambda x, y: x.to(y.dtype)),
    "cross_entropy": ("nn.cross_entropy(%s, %s)", lambda x, y: F.cross_entropy(x, y.long())),
}


class Mod:
    """args, result: names or structures of names; params: {name: (shape, {dtype, grad, buffer})}; policy: of nn.fully_shard, or None."""

    def __init__(self, args, body, result, params, children, policy, checkpoint=False):
        self.args, self.body, self.result, self.params, self.children = args, body, result, params, children
        self.policy, self.checkpoint = policy, checkpoint

    def walk(self, path=""):
        yield path, self
        for name, child in self.children.items():
            yield from child.walk(join(path, name))


class Case:
    """inputs: {name: (dtype, one rank's shape)}; loss: statements, whose module "" is the model."""

    def __init__(self, model, inputs, loss, optimizer=("SGD", {"lr": 0.5}), clip=0, accumulate=1, steps=4, world=2, scaler=None, variants=(), bound=1e-5, because=None):
        self.model, self.inputs, self.loss, self.optimizer, self.clip, self.accumulate = model, inputs, loss, optimizer, clip, accumulate
        self.steps, self.world, self.scaler, self.variants = steps, world, scaler, dict(variants)
        self.bound, self.because = bound, because  # how far the first step may be from FSDP2's, and why, where it is more than rounding in fp32


def join(path, name):
    return path + "." + name if path else name


def leaves(x):
    if isinstance(x, list):
        return [v for e in x for v in leaves(e)]
    return [v for e in x.values() for v in leaves(e)] if isinstance(x, dict) else [x]


def mapped(x, f):
    if isinstance(x, list):
        return [mapped(e, f) for e in x]
    return {k: mapped(e, f) for k, e in x.items()} if isinstance(x, dict) else f(x)


# ── Lua ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def table(x, leaf):
    if isinstance(x, dict):
        return "{ %s }" % ", ".join("%s = %s" % (k, table(v, leaf)) for k, v in x.items())
    return "{ %s }" % ", ".join(table(v, leaf) for v in x) if isinstance(x, list) else leaf(x)


class Lua:
    """probes: an exp of each value, whose dtype the dump of the compiler shows; sites: {its line: (module's path, value)}."""

    def __init__(self, probes):
        self.lines, self.probes, self.sites = [], probes, {}

    def put(self, text):
        self.lines += text.split("\n")

    def probe(self, path, name, text):
        if self.probes and not name.startswith("i_"):
            self.put("  local _ = nn.exp(%s)" % text)
            self.sites[len(self.lines)] = (path, name)

    def bind(self, path, names, text):
        if isinstance(names, dict):
            for k in names:
                self.bind(path, names[k], "%s.%s" % (text, k))
        elif isinstance(names, list):
            for i, e in enumerate(names):
                self.bind(path, e, "%s[%d]" % (text, i + 1))
        else:
            self.put("  local %s = %s" % (names, text))
            self.probe(path, names, names)

    def body(self, path, statements, params):
        operand = lambda x: ("self." + x if x in params else x) if isinstance(x, str) else repr(x)
        for dst, op, *operands in statements:
            if op == "call":
                self.put("  local r = %s(%s)" % ("self." + operands[0] if operands[0] else "m", ", ".join(table(x, operand) for x in operands[1])))
                self.bind(path, dst, "r")
            else:
                self.bind(path, dst, OPS[op][0] % tuple(map(operand, operands)))

    def module(self, m, path):
        me = "m_" + path.replace(".", "_")
        for name, child in m.children.items():
            self.module(child, join(path, name))
        self.put('local %s = nn.module "%s"' % (me, path or "model"))
        for name in m.children:
            self.put("%s.%s = m_%s" % (me, name, join(path, name).replace(".", "_")))
        for name, (shape, o) in m.params.items():
            kind = "buffer" if o.get("buffer") else "parameter"
            said = {"dtype": o.get("dtype", "fp32"), **({} if o.get("buffer") else {"requires_grad": o.get("grad", True)})}
            self.put("%s.%s = nn.%s(%s, %s)" % (me, name, kind, lua(list(shape)), lua(said)))
        names = ["a%d" % i for i in range(len(m.args))]
        self.put("function %s:forward(%s)" % (me, ", ".join(names)))
        for name, a in zip(names, m.args):
            self.bind(path, a, name)
        for name in m.params:
            self.probe(path, name, "self." + name)
        self.body(path, m.body, m.params)
        self.put("  return %s\nend" % table(m.result, str))
        if m.checkpoint:
            self.put("nn.checkpoint_wrapper(%s)" % me)
        if m.policy is not None:
            self.put("nn.fully_shard(%s, %s)" % (me, lua(m.policy)))


def lua_of(case, probes=False):
    """(text, sites)"""
    l = Lua(probes)
    l.put('local nn, optim = require "nn", require "optim"')
    l.module(case.model, "")
    l.put("return nn.training {\n  model = m_,\n  batch = {")
    for name, (dtype, shape) in case.inputs.items():
        l.put('    %s = nn.input("%s", %s),' % (name, dtype, lua(shape)))
    l.put("  },\n  loss = function(m, b)")
    for name in case.inputs:
        l.put("  local %s = b.%s" % (name, name))
    l.body("loss", case.loss, ())
    l.put("  return %s\n  end," % case.loss[-1][0])
    l.put("  optimizer = optim.%s %s," % (case.optimizer[0], lua(case.optimizer[1])))
    if case.scaler:
        l.put("  grad_scaler = optim.GradScaler %s," % lua(case.scaler))
    l.put("  clip_grad_norm = %s, accumulate = %d\n}" % (case.clip, case.accumulate))
    return "\n".join(l.lines) + "\n", l.sites


# ── PyTorch ──────────────────────────────────────────────────────────────────────────────────────────────────────────
class Scope(dict):
    """Values by name; `seen` collects the dtypes that they have, {(path, name): [...]}."""

    def __init__(self, path, seen):
        self.path, self.seen = path, seen

    def bind(self, names, value):
        if isinstance(names, (dict, list)):
            for k in names if isinstance(names, dict) else range(len(names)):
                self.bind(names[k], value[k])
            return
        self[names] = value
        if self.seen is not None and value.is_floating_point():
            self.seen.setdefault((self.path, names), []).append(NAMES[value.dtype])

    def run(self, statements, module):
        for dst, op, *operands in statements:
            if op == "call":
                callee = getattr(module, operands[0]) if operands[0] else module
                args = [mapped(x, self.value) for x in operands[1]]
                self.bind(dst, checkpoint(callee, *args, use_reentrant=False) if callee.m.checkpoint else callee(*args))
            else:
                self.bind(dst, OPS[op][1](*map(self.value, operands)))

    def value(self, x):
        return self[x] if isinstance(x, str) else x


class Net(nn.Module):
    def __init__(self, m, path, seen):
        super().__init__()
        self.m, self.path, self.seen = m, path, seen
        for name, child in m.children.items():
            setattr(self, name, Net(child, join(path, name), seen))
        for name, (shape, o) in m.params.items():
            t = torch.empty(shape, dtype=DTYPES[o.get("dtype", "fp32")])
            if o.get("buffer"):
                self.register_buffer(name, t)
            else:
                setattr(self, name, nn.Parameter(t, requires_grad=o.get("grad", True)))

    def forward(self, *args):
        scope = Scope(self.path, self.seen)
        for names, value in zip(self.m.args, args):
            scope.bind(names, value)
        for name in self.m.params:
            scope.bind(name, getattr(self, name))
        scope.run(self.m.body, self)
        return mapped(self.m.result, scope.value)


def loss_of(case, model, batch, seen=None):
    scope = Scope("loss", seen)
    for name, value in batch.items():
        scope[name] = value
    scope.run(case.loss, model)
    return scope[case.loss[-1][0]]


def shard(case, model, mesh_of, change=lambda policy: policy):
    """FSDP2 from the inside out, by policies that `change` may have changed."""
    for path, m in reversed(list(case.model.walk())):
        if m.policy is None:
            continue
        p = change(copy.deepcopy(m.policy))
        mp = {k: DTYPES[v] if isinstance(v, str) else v for k, v in p.get("mp_policy", {}).items() if k not in OURS}
        ignored = {t for n, t in model.named_parameters() if n in p.get("ignored_params", ())}
        unit = fully_shard(model.get_submodule(path), mesh=mesh_of(p.get("mesh", {})), mp_policy=MixedPrecisionPolicy(**mp), ignored_params=ignored,
                           reshard_after_forward=p.get("reshard_after_forward"))
        if "gradient_divide_factor" in p:
            unit.set_gradient_divide_factor(p["gradient_divide_factor"])
            unit.set_force_sum_reduction_for_comms(True)  # the only way that gloo knows
    return model
