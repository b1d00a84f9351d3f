"""What fsdp2.py tries: models of nested units made at random, and cases by name for their numbers.

Models whose numbers are compared in 16 bits hold only what rounds where PyTorch rounds it: products that nothing is added to (we add
before we round), pointwise functions, no tensor that two gradients meet in. There a case has FSDP2's bits.

Relies on: fsdp2_models.py. Relied on by: fsdp2.py."""
import copy
import random

from fsdp2_models import Case, Mod, leaves, mapped

DIM = 8


# ── random models ────────────────────────────────────────────────────────────────────────────────────────────────────
class Random:
    def __init__(self, seed):
        self.r, self.n = random.Random(seed), 0

    def name(self, kind="v"):
        self.n += 1
        return kind + str(self.n)

    def policy(self, top):
        r, mp = self.r, {}
        if not top and r.random() < 0.35:
            return None
        for key, values, p in (("param_dtype", ("bf16", "bf16", "fp16", "fp32"), 0.8), ("output_dtype", ("fp32", "bf16", "fp16"), 0.4),
                               ("cast_forward_inputs", (False,), 0.3), ("reduce_dtype", ("fp32",), 0.5)):
            if r.random() < p:
                mp[key] = r.choice(values)
        return {"mp_policy": mp} if mp else {}

    def structure(self, names):
        if len(names) == 1 and self.r.random() < 0.6:
            return names[0]
        cut = self.r.randrange(1, len(names)) if len(names) > 1 else 1
        parts = [self.structure(p) for p in (names[:cut], names[cut:]) if p]
        return parts if self.r.random() < 0.5 else dict(zip("ab", parts))

    def arguments(self, names):
        out = []
        while names:
            cut = self.r.randrange(1, len(names) + 1)
            out.append(self.structure(names[:cut]))
            names = names[cut:]
        return out

    def module(self, given, depth):
        r = self.r
        args = [mapped(s, lambda n: self.name("i_" if n.startswith("i_") else "x")) for s in given]
        values = [n for n in leaves(args) if not n.startswith("i_")]
        integers = [n for n in leaves(args) if n.startswith("i_")]
        m = Mod(args, [], None, {}, {}, self.policy(depth == 0))

        def param(shape, **o):
            m.params[self.name("p")] = shape, dict(o, **r.choice(({}, {}, {}, {}, {"grad": False}, {"buffer": True})))
            return list(m.params)[-1]

        def put(op, *operands):
            values.append(self.name())
            m.body.append((values[-1], op, *operands))
            return values[-1]

        def one():
            return r.choice(values)

        def like(x, w):  # mostly: else it is an error, in both
            return put("like", x, w) if r.random() < 0.85 else x

        for _ in range(r.randrange(1, 6)):
            k = r.random()
            if k < 0.35 and depth < 3:
                some = self.arguments([r.choice(values + [p for p in m.params if m.params[p][0] == [DIM]]) for _ in range(r.randrange(1, 4))] + (integers[:1] if r.random() < 0.3 else []))
                name = self.name("c")
                m.children[name] = self.module(some, depth + 1)
                for _ in range(2 if r.random() < 0.15 else 1):
                    m.body.append((mapped(m.children[name].result, lambda n: self.name("y")), "call", name, some))
                    values += leaves(m.body[-1][0])
            elif k < 0.5:
                x, w = one(), param([DIM, DIM])
                put("linear", like(x, w), w)
            elif k < 0.55 and integers:
                put("embedding", integers[0], param([16, DIM]))
            elif k < 0.58:
                x, w, b = one(), param([DIM]), param([DIM])
                put("layer_norm", like(x, w), w, b) if r.random() < 0.5 else put("rms_norm", like(x, w), w)
            elif k < 0.63:
                put("mul", one(), param(r.choice(([DIM], [1]))))
            elif k < 0.66:
                m.params[self.name("p")] = [], {"buffer": True}
                put("mul", one(), list(m.params)[-1])
            elif k < 0.7:
                put(r.choice(("masked", "counted")), one(), one()) if r.random() < 0.7 else put("where", one(), one(), one())
            elif k < 0.8:
                put(r.choice(("exp", "tanh", "sigmoid", "gelu", "silu", "softmax", "relu", "neg", "sum", "mean", "max", "halves")), one())
            elif k < 0.9:
                put(r.choice(("add", "mul", "sub", "maximum")), one(), one())
            elif k < 0.93:
                x = one()
                put("mean_all", one())
                put("mul", x, values.pop())
            elif k < 0.95:
                put(r.choice(("mul", "add")), one(), 1.5)
            else:
                put(r.choice(("fp32", "bf16")), one()) if r.random() < 0.5 else put("like", one(), one())
        m.result = self.structure([one() for _ in range(r.choice((0, 0, 1, 2)))] + values[-1:])
        return m


def nested_units(seed):
    g = Random(seed)
    inputs = {"x": (g.r.choice(("fp32", "fp32", "bf16")), [4, DIM]), "k": (g.r.choice(("fp32", "bf16", "fp16")), [4, DIM]), "i_t": ("int32", [4])}
    given = ["x", "k", "i_t"] if g.r.random() < 0.5 else [{"a": "x", "b": ["k", "i_t"]}]
    m = g.module(given, 0)
    made = mapped(m.result, lambda n: g.name("z"))
    loss, last = [(made, "call", "", given)], None
    for z in leaves(made):
        one = g.name("l")
        loss.append((one, "mean_all", z))
        if last:
            loss.append((g.name("l"), "add", last, one))
        last = loss[-1][0]
    return Case(m, inputs, loss)


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def mp(**dtypes):
    return {"mp_policy": dtypes}


def block(policy, dim, hidden, kind="relu"):
    body = [("h", "linear_bias", "x", "w1", "b1"), ("a", kind, "h"), ("z", "linear_bias", "a", "w2", "b2")]
    params = {"w1": ([hidden, dim], {}), "b1": ([hidden], {}), "w2": ([dim, hidden], {}), "b2": ([dim], {})}
    if kind == "residual":
        body = [("n", "layer_norm", "x", "g", "b"), ("h", "linear_bias", "n", "w1", "b1"), ("a", "gelu", "h"), ("y", "linear_bias", "a", "w2", "b2"), ("z", "add", "x", "y")]
        params.update(g=([dim], {}), b=([dim], {}))
    if kind == "attention":
        body = [("q", "linear", "x", "wq"), ("k", "linear", "x", "wk"), ("v", "linear", "x", "wv"), ("a", "attention", "q", "k", "v", "x"), ("z", "linear", "a", "wo")]
        params = {n: ([dim, dim], {}) for n in ("wq", "wk", "wv", "wo")}
    return Mod(["x"], body, "z", params, {}, copy.deepcopy(policy))


def net(root, unit=None, kind="relu", dim=8, hidden=12, words=16, layers=2, tied=False, loss="fp32", batch=4, **o):
    """Embedding, blocks, a gain, a head; unit: the policy of each block, root's unless it is given."""
    unit = root if unit is None else unit
    params = {"emb": ([words, dim], {}), "gain": ([dim], {}), **({} if tied else {"out": ([words, dim], {})})}
    body = [("x0", "embedding", "i_t", "emb")] + [("x%d" % (i + 1), "call", "l%d" % i, ["x%d" % i]) for i in range(layers)]
    body += [("f", "rms_norm" if kind == "residual" else "mul", "x%d" % layers, "gain"), ("o", "linear", "f", "emb" if tied else "out")]
    m = Mod(["i_t"], body, "o", params, {"l%d" % i: block(unit, dim, hidden, kind) for i in range(layers)}, copy.deepcopy(root))
    seen = [("p", "fp32", "o")] if loss == "fp32" else [("p", "mul", "o", 1)]
    return Case(m, {"i_t": ("int32", [batch]), "i_y": ("int32", [batch])}, [("o", "call", "", ["i_t"]), *seen, ("l", "cross_entropy", "p", "i_y")], **o)


def changed(**dtypes):
    """A policy with other dtypes; None: not given."""
    def change(policy):
        m = policy.setdefault("mp_policy", {})
        m.update(dtypes)
        for k in [k for k in m if m[k] is None]:
            del m[k]
        return policy
    return change


def edited(case, edit):
    for path, m in case.model.walk():
        edit(path, m)
    return case


def stored(dtype):
    def edit(path, m):
        m.params = {n: (shape, dict(o, dtype=dtype)) for n, (shape, o) in m.params.items()}
    return edit


def frozen(*names):
    def edit(path, m):
        m.params = {n: (shape, dict(o, grad=n not in names)) for n, (shape, o) in m.params.items()}
    return edit


def checkpointed(path, m):
    m.checkpoint = path.startswith("l")


FP32, HALF, BITS = {}, mp(param_dtype="bf16", reduce_dtype="fp32", grad_dtype="bf16"), 1e-6  # FSDP2's bits, but for the sums of the loss
BF16, FP16 = mp(param_dtype="bf16", reduce_dtype="bf16"), mp(param_dtype="fp16", reduce_dtype="fp16")
WRONG = {"reduced in bf16": changed(reduce_dtype="bf16"), "computed in fp32": changed(param_dtype="fp32"), "computed in fp16": changed(param_dtype="fp16"),
         "results in fp32": changed(output_dtype="fp32")}
WIDE, NARROW = {"reduced in fp32": changed(reduce_dtype="fp32")}, {"reduced in bf16": changed(reduce_dtype="bf16")}
ORDER = "four ranks' gradients are added up in another order, in 16 bits"
SUMS = "two gradients are added before they are rounded"
UPDATE = "gradient, its norm and the update are fp32 here, FSDP2's are of the stored dtype"


def nested(root):
    """Units of fp16 in units of bf16: given a table, one gives it back with a parameter of its caller that it only passes on."""
    case = net(root, changed(output_dtype="bf16")(copy.deepcopy(HALF)), variants={
        "inner in bf16": lambda p: changed(param_dtype="bf16")(p) if p["mp_policy"]["param_dtype"] == "fp16" else p,
        "inner gives fp16": lambda p: changed(output_dtype=None)(p) if p["mp_policy"].get("output_dtype") == "fp32" else p,
        **NARROW})
    for name in ("l0", "l1"):
        m = case.model.children[name]
        m.params["s"] = [12], {}
        m.children["inner"] = Mod([{"a": "x", "b": ["k"]}], [("h", "linear", "x", "w"), ("r", "tanh", "h")], {"a": "r", "b": ["k"]}, {"w": ([12, 12], {})}, {},
                                  mp(param_dtype="fp16", reduce_dtype="fp32", grad_dtype="fp16", output_dtype="fp32"))
        m.body[2:2] = [({"a": "n", "b": ["t"]}, "call", "inner", [{"a": "a", "b": ["s"]}]), ("q", "mul", "n", "t"), ("v", "bf16", "q")]
        m.body[-1] = "z", "linear_bias", "v", "w2", "b2"
    return case


def cases():
    c = {"nested-units": nested(HALF)}
    for w in (1, 2, 4):
        c["fp32-w%d" % w] = net(FP32, kind="residual", world=w, optimizer=("SGD", {"lr": 0.5, "momentum": 0.9}))
        c["fp32-adamw-clip-w%d" % w] = net(FP32, kind="residual", world=w, optimizer=("AdamW", {"lr": 0.01, "weight_decay": 0.1}), clip=0.5)
        c["bf16-w%d" % w] = net(HALF, world=w, variants=WRONG, bound=BITS)
    c["fp32-attention"] = net(FP32, kind="attention", batch=8)
    c["fp32-uneven"] = net(FP32, kind="residual", dim=5, hidden=7, words=11, world=4)
    c["fp32-tied"] = net(FP32, kind="residual", tied=True, world=4, optimizer=("AdamW", {"lr": 0.01}))
    for kind in ("gelu", "silu", "softmax", "tanh", "sigmoid"):
        c["bf16-" + kind] = net(HALF, kind=kind, variants=WRONG, bound=BITS)
    c["bf16-reduced-bf16"] = net(BF16, variants=WIDE, bound=BITS)
    c["bf16-reduced-bf16-w4"] = net(BF16, world=4, bound=1e-2, because=ORDER)
    c["bf16-reduced-by-default"] = net(mp(param_dtype="bf16"), variants=NARROW, bound=5e-3, because="gradients are made in fp32 unless grad_dtype says bf16")
    c["fp32-reduced-bf16"] = net(mp(reduce_dtype="bf16"), variants=WIDE, bound=BITS)
    c["fp16"] = net(FP16, variants=WIDE, bound=BITS)
    c["fp16-reduced-fp32"] = net(mp(param_dtype="fp16", reduce_dtype="fp32", grad_dtype="fp16"), world=4, bound=BITS,
                                 variants={"reduced in fp16": changed(reduce_dtype="fp16"), "computed in bf16": changed(param_dtype="bf16")})
    c["root-gives-fp32"] = net(changed(output_dtype="fp32")(copy.deepcopy(HALF)), HALF, loss="plain", bound=BITS, variants={"gives bf16": changed(output_dtype=None)})
    c["root-is-fp32"] = net(FP32, changed(output_dtype="fp32")(copy.deepcopy(HALF)), bound=BITS, variants={"reduced in bf16": changed(reduce_dtype="bf16")})
    c["loss-of-bf16"] = net(HALF, loss="plain", bound=1e-2, because="cross_entropy computes in fp32 what it reads as bf16, and gives fp32")
    c["residual-bf16"] = net(HALF, kind="residual", bound=2e-2, because="a product and what is added to it are rounded once")
    c["tied-bf16"] = net(HALF, tied=True, bound=5e-3, because=SUMS, variants=WRONG)
    c["called-twice-fp32"], c["called-twice-bf16"] = net(FP32), net(HALF, bound=5e-3, because=SUMS, variants=WRONG)
    for k in ("called-twice-fp32", "called-twice-bf16"):
        c[k].model.body[3:4] = [("x3", "call", "l0", ["x2"]), ("f", "mul", "x3", "gain")]
    for factor in (1.0, 3.0):
        c["divided-by-%d" % factor] = net({"gradient_divide_factor": factor}, world=4, optimizer=("SGD", {"lr": 0.1}))
    c["one-unit-divided"] = net(FP32, {"gradient_divide_factor": 3.0}, optimizer=("SGD", {"lr": 0.1}), clip=0.7)
    for name, mesh in (("hybrid", {"replicate": 2}), ("replicated", {"shard": 1})):
        c[name + "-fp32"] = net({"mesh": mesh}, world=4, clip=0.5)
        c[name + "-bf16"] = net(dict(HALF, mesh=mesh), world=4 if name == "hybrid" else 2, variants=NARROW, bound=BITS if name == "hybrid" else 5e-3,
                                because=None if name == "hybrid" else "replicas make their gradients in reduce_dtype")
        c[name + "-reduced-bf16"] = net(dict(BF16, mesh=mesh), world=4 if name == "hybrid" else 2, variants=WIDE, bound=BITS)
    c["two-meshes"] = net({"mesh": {"replicate": 2}}, FP32, world=4, clip=0.5)
    for name, policy, more in (("reduced-each", {}, {}), ("reduced-once", {"requires_gradient_sync": False}, {}),
                               ("all-reduced-once", {"requires_all_reduce": False, "mesh": {"replicate": 2}}, {"world": 4})):
        c[name + "-fp32"] = net(policy, accumulate=3, **more)
        # whole gradients and shards that wait are added up in fp32 here, unless the policy names bf16 for both
        sums = dict(BF16["mp_policy"], grad_dtype="bf16")
        c[name + "-reduced-bf16"] = net(dict(policy, mp_policy=sums), accumulate=3, variants=WIDE, bound=BITS, **more)
        wide = name == "reduced-once"
        c[name + "-bf16"] = net(dict(HALF, **policy), accumulate=3, variants=NARROW, bound=5e-3 if wide else BITS, **more,
                                because="whole gradients that wait are made in reduce_dtype" if wide else None)
    c["checkpointed-fp32"] = edited(net(FP32, kind="residual"), checkpointed)
    c["checkpointed-bf16"] = edited(net(HALF, variants=WRONG, bound=BITS), checkpointed)
    c["frozen"] = edited(net(HALF, variants=WRONG, bound=BITS), frozen("gain", "w1"))
    for name, edit in (("ignored", frozen()), ("ignored-frozen", frozen("gain"))):
        c[name] = edited(net(HALF, variants={k: v for k, v in WRONG.items() if k != "results in fp32"}, bound=BITS), edit)
        c[name].model.policy["ignored_params"] = ["gain"]
        c[name].model.body[3:4] = [("f0", "like", "x2", "gain"), ("f1", "mul", "f0", "gain"), ("f", "like", "f1", "out")]
    c["clipped-bf16"] = net(HALF, world=4, clip=0.4, variants=WRONG, bound=BITS)
    c["stored-bf16"] = edited(net(FP32, bound=BITS), stored("bf16"))
    c["stored-bf16-clipped"] = edited(net(FP32, clip=0.3, bound=2e-2, because=UPDATE), stored("bf16"))
    c["stored-bf16-reduced-fp32"] = edited(net(mp(reduce_dtype="fp32", grad_dtype="bf16"), bound=5e-2, because=UPDATE), stored("bf16"))
    c["stored-bf16-adamw"] = edited(net(FP32, optimizer=("AdamW", {"lr": 0.01}), bound=5e-2, because=UPDATE), stored("bf16"))
    for w in (1, 2):
        c["scaler-w%d" % w] = net(FP16, world=w, clip=0.5, steps=8, scaler={"init_scale": 1024.0, "growth_interval": 2}, bound=BITS)
    c["scaler-overflows"] = net(FP16, world=1, clip=0.5, steps=8, scaler={"init_scale": 2.0**20, "growth_interval": 2}, bound=BITS)
    return c
