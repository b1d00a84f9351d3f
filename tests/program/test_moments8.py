"""Moments in 8 bits (optim.AdamW { moment_dtype = "int8" }): codes of blocks of 256, a quarter as large, and the same bits whatever the
plan, and the world where sums are exact.

Relies on: harness.py, test_moments.py, surface/net.lua, rows/{offload,sparse,scaler,pair}.lua and the tests of these. Relied on by:
run.py."""
import array
import bisect
import json
import os
import re
import struct

from harness import NET, ROOT, build, check, command, corpus, floats, long, losses, planned, read_safetensors, read_state, run, same_run, scratch
from test_moments import adam, exact, f32, lion, momentum, nearest, rates, told
from test_rows_extension import pair, trained
from test_rows_offload import MODEL, small
from test_rows_scaler import HUGE, go as scaled, skipped
from test_surface import BF16, everywhere, go

BLOCK = 256


# ── the codes, written down once more ───────────────────────────────────────────────────────────────────────────────────
def published(signed):
    """create_dynamic_map of bitsandbytes: seven decades, each the middles of equal parts from 0.1 to 1; 0 and 1."""
    values = [0.0, 1.0]
    for i in range(7):
        parts = 2 ** (i + (0 if signed else 1))
        middles = [10.0 ** (i - 6) * (0.1 + 0.9 * (k + 0.5) / parts) for k in range(parts)]
        values += middles + ([-x for x in middles] if signed else [])
    return [f32(x) for x in sorted(values)]


VALUES = {"moment1": published(True), "moment2": published(False)}
SCALES = {"moment1": "scale1", "moment2": "scale2"}


def codes_of(kind, x, scale):
    """Those that may stand for x: the nearest, and near the middle of two either. A second moment above 0 has none of 0."""
    values, y = VALUES[kind], x / scale if scale else 0.0
    k = bisect.bisect(values, y) - 1
    near = [c for c in (k, k + 1) if 0 <= c < 256]
    if kind == "moment2" and x > 0:
        near = [c for c in near if c] or [1]
    least, step = min(abs(values[c] - y) for c in near), abs(values[near[-1]] - values[near[0]])
    return {c for c in near if abs(values[c] - y) <= least + 2e-4 * step}


class State(dict):
    """{path: {kind: values}} of a checkpoint of any world. Codes are bytes; `ahead`: {path: elements before it in its first block}."""

    def __init__(self, folder):
        self.ahead, self.dtypes, pieces = {}, set(), {}
        for (_, k), t in read_state(folder)[1].items():
            path, begin, end, kind, ahead = re.fullmatch(r"(.*)@\[(\d+),(\d+)\)#(\w+?)(?:\+(\d+))?", k).groups()
            pieces.setdefault((path, kind), []).append((int(begin), int(end), t))
            if kind.startswith("scale"):
                self.ahead[path] = int(ahead or 0)
            if kind.startswith("moment"):
                self.dtypes.add(t[0])
        for (path, kind), all in pieces.items():
            at, values = 0, []
            for begin, end, t in sorted(all, key=lambda x: x[0]):
                check(begin == at, "%s of %s: elements from %d, not %d" % (kind, path, begin, at))
                at, values = end, values + list(t[2] if t[0] == "I8" else floats(t))
            self.setdefault(path, {})[kind] = values

    def values(self, path, kind):
        scales, ahead = self[path][SCALES[kind]], self.ahead[path]
        return [f32(VALUES[kind][c] * scales[(ahead + i) // BLOCK]) for i, c in enumerate(self[path][kind])]

    def expect_coded(self, path, kind, values, what, others=()):
        """The state holds these values, coded; others: (ahead, values) of parameters that its blocks have besides."""
        ahead, largest = self.ahead[path], {}
        for start, some in ((ahead, values), *others):
            for i, x in enumerate(some):
                largest[(start + i) // BLOCK] = max(largest.get((start + i) // BLOCK, 0.0), abs(x))
        scales = self[path][SCALES[kind]]
        check(scales == [largest[b] for b in range(len(scales))], "%s: the scales of %s (%s): %s, not %s" % (what, path, kind, scales, largest))
        for i, (x, c) in enumerate(zip(values, self[path][kind])):
            want = codes_of(kind, x, scales[(ahead + i) // BLOCK])
            check(c in want, "%s: %s[%d] (%s): code %d, by the reference %s" % (what, path, i, kind, c, want))


# ── a step ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_steps_are_the_reference():
    """Steps 4 to 6, each from what the one before left, by plain Python from the gradients: parameters and scales bit for bit, codes the
    nearest."""
    n = 0
    for kind in ("adamw", "adam", "momentum", "lion"):
        folder = scratch("step")
        binary, at = build(NET, optimized=True, optimizer=kind, moments="int8", clip=0, batch=8), lambda *x: os.path.join(folder, *x)
        go = lambda *args: run(binary, "--data", corpus(), "--seed", "11", *args)
        go("--steps", "3", "--save", at("3"))
        for step in (4, 5, 6):
            go("--steps", str(step), "--resume", at(str(step - 1)), "--save", at(str(step)), "--dump", "*.grad", "--at-step", str(step), "-o", at("g"))
            old, new, gradients = State(at(str(step - 1))), State(at(str(step))), read_safetensors(at("g"))
            check(old.dtypes == {"I8"}, "%s: moments are kept as %s" % (kind, old.dtypes))
            trained = [p for p in old if "moment1" in old[p]]
            check(len(trained) > 10 and any(len(set(old[p]["moment1"])) > 100 for p in trained), "%s: %s" % (kind, trained))
            for path in trained:
                g, (lr, decay) = floats(gradients[path + ".grad"]), rates(path)
                m, p = old.values(path, "moment1"), old[path]["master"]
                if kind in ("momentum", "lion"):
                    rule = momentum if kind == "momentum" else lion
                    want = [rule(p[i], m[i], g[i], lr, decay) for i in range(len(g))]
                else:
                    v = old.values(path, "moment2")
                    want = [adam(p[i], m[i], v[i], g[i], step, lr, decay, kind == "adamw", 0.9, 0.999, 1e-8) for i in range(len(g))]
                    new.expect_coded(path, "moment2", [x[2] for x in want], kind)
                check(new[path]["master"] == [x[0] for x in want], "%s: other parameters %s" % (kind, path))
                new.expect_coded(path, "moment1", [x[1] for x in want], kind)
                n += len(want)
    return "%d elements of four optimizers" % n


# ── the same bits ───────────────────────────────────────────────────────────────────────────────────────────────────────
@long
def test_no_plan_changes_a_bit():
    """Streamed, updated on the host, mixed; recomputed, resharded or not, hybrid, accumulated, in any order."""
    n = 0
    for world, o in ((1, {}), (2, dict(accumulate=2, clip=0.0)), (4, dict(kept=True, precision="fp32"))):
        a = small(world, way="none", moments="int8", **o)
        check(a[1] != small(world, way="none", moments="bf16", **o)[1], "moments of bf16 give the same weights")
        for way in ("stream", "host", "mixed"):
            same_run(a, small(world, way=way, moments="int8", **o), "%s, world %d, %s" % (way, world, o))
            n += 1
    same_run(small(4, way="none", replicate=2, moments="int8"), small(4, way="mixed", replicate=2, grads=True, moments="int8"), "replicated")
    variants = [(", reshard_after_forward = false", (), {}), ("", (), dict(checkpoint="offload")), (", offload = { params = true, optimizer = 'stream' }", ("--poison",), {}),
                (", offload = { optimizer = 'host', grads = true }", ("--interleave", "4"), {})]
    for i, (world, optimizer) in enumerate(((2, "adamw"), (4, "adam"), (2, "momentum"), (2, "lion"))):
        o = dict(optimizer=optimizer, moments="int8")
        a = go(world, everywhere(BF16), **o)
        for more, args, other in variants[i % 2::2]:
            same_run(a, go(world, everywhere(BF16 + more), *args, **o, **other), "%s, world %d, %s %s" % (optimizer, world, more, other))
            n += 1
    return "%d runs" % n


def test_no_mesh_changes_a_bit():
    """A table whose gradient is exact, on any mesh; the moments of a decoder's experts, wherever they lie, go on as they were."""
    ends = {}
    for moments in ("fp32", "int8"):
        all = [exact(world, sparse=False, moments=moments, **o) for world, o in ((1, {}), (2, {}), (4, {}), (4, dict(replicate=2)), (2, dict(offload=True)))]
        check(len({json.dumps([s["grad_norm"] for s in a[0]]) for a in all}) == 1, "the gradients are not exact")
        for i, a in enumerate(all):
            check(a[1] == all[0][1], "%s moments: run %d has other weights than one rank" % (moments, i))
        ends[moments] = all[0][1]
    check(ends["fp32"] != ends["int8"], "the moments' dtype tells")
    folder = scratch("experts")
    at = lambda name: os.path.join(folder, name)
    one = dict(layers=1, dim=32, heads=2, head_dim=16, ffn=32, batch=1, seq=32, moments="int8")
    run(build("moe.lua", world=2, expert=2, **one), "--data", corpus(), "--seed", "3", "--steps", "2", "--save", at("2"))
    was = State(at("2"))
    for world, expert in ((1, 1), (4, 1), (4, 2), (4, 4)):
        to = at("%d-%d" % (world, expert))
        run(build("moe.lua", world=world, expert=expert, **one), "--resume", at("2"), "--save", to, "--steps", "0")
        check(State(to) == was, "experts of 2 ranks on %d of %d: other state" % (expert, world))
    return "5 meshes, and experts on 1, 2 and 4 ranks"


def test_skipped_steps_leave_them():
    """A gradient that is not finite, on the device and streamed, on the host: state stays."""
    for world in (2, 4):
        o = dict(moments="int8", gains={2: {1: HUGE}, 4: {0: HUGE}}, n=6, init_scale=1024.0)
        a = scaled(world, **o)
        check(skipped(a) == [2, 4], "skipped %s" % skipped(a))
        for more in (dict(state=True), dict(state=True, params=True, grads=True)):
            b = scaled(world, **o, **more)
            check(a[1] == b[1] and losses(a[0]) == losses(b[0]), "world %d, %s: other bits" % (world, more))


def test_extensions_leave_them():
    for world, o in ((2, dict(align="row")), (4, dict(optimizer=True))):
        same_run(trained(pair(world, extension="none", moments="int8", **dict(o, align="element"))), trained(pair(world, moments="int8", **o)), "pairs with %s" % o)


# ── training ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@long
def test_trains_as_with_bf16():
    """1,000 steps of three seeds: the last losses lie as near to those with moments of bf16 as these to each other, and each curve keeps to the
    other of its seed."""
    ends, apart = {}, 0
    for moments in ("bf16", "int8"):
        b = build(MODEL, optimized=True, layers=1, dim=16, batch=8, precision="fp32", clip=0.0, moments=moments)
        curves = [losses(run(b, "--data", corpus(), "--steps", "1000", "--seed", seed, "--lr", "3e-3")[0]) for seed in "345"]
        check(all(c[0] > 2 * sum(c[-50:]) / 50 for c in curves), "it trains")
        ends[moments] = [sum(c[-50:]) / 50 for c in curves]
    apart = [b / a - 1 for a, b in zip(ends["bf16"], ends["int8"])]
    spread = max(ends["bf16"]) - min(ends["bf16"])
    check(abs(sum(ends["int8"]) - sum(ends["bf16"])) / 3 < spread and max(map(abs, apart)) < 3e-3, "after 1,000 steps: %s" % ends)
    check(ends["bf16"] != ends["int8"], "the moments' dtype tells")
    return "after 1,000 steps %s with moments of bf16, %s in 8 bits" % tuple(" ".join("%.4f" % x for x in ends[m]) for m in ("bf16", "int8"))


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def narrow(bytes):
    """Of a storage of fp32 moments those in 8 bits; storages end at multiples of 256."""
    return -(-bytes // 4 // 64 * 65 // 256) * 256


def test_a_quarter_of_the_bytes():
    """65 bytes for 64 elements, in storages and in what travels; what is predicted is what is allocated (run() compares)."""
    trips = []
    for way in ("none", "stream", "host"):
        plans = [told(way, m) for m in ("fp32", "int8")]
        size = lambda p, what: {s["name"]: s["size"] for s in p["storages"] if what in s["name"] and s["arena"] == ("device" if way == "none" else "host")}
        for what in ("/moment1", "/moment2"):
            a, b = (size(p, what) for p in plans)
            check(len(a) == 4 and b == {k: narrow(n) for k, n in a.items()}, "%s: %s and %s" % (way, a, b))
        small(4, way=way, moments="int8")
    for moments in ("fp32", "int8"):
        events = next(x for x in told("stream", moments)["programs"] if x["name"] == "micro")["events"]
        trips.append({e["id"]: e["bytes"] for e in events if re.match(r"[fo]_u\d_[134]$", e["id"])})
    check(len(trips[0]) >= 4 * 4 and trips[1] == {k: n if k.endswith("_1") else n // 4 // 64 * 65 for k, n in trips[0].items()}, "trips: %s" % trips)


def test_the_models_take_them():
    """`moments` is an option of every model that has options of precision and memory."""
    one = dict(layers=1, dim=64, heads=2, vocab=256, batch=2, seq=16)
    for model in ("gpt2.lua", "llama3.lua", "qwen2.lua", "transformer.lua", "moe.lua"):
        more = dict(one, kv_heads=2, ffn=64) if model in ("llama3.lua", "qwen2.lua", "moe.lua") else one
        state = lambda m: [s["size"] for s in planned(os.path.join(ROOT, "models", model), 2, moments=m, **more)["storages"] if "/moment" in s["name"]]
        fp32, int8 = state("fp32"), state("int8")
        check(fp32 and int8 == [narrow(n) for n in fp32], "%s: %s bytes of moments, %s in 8 bits" % (model, fp32, int8))
    return "5 models"


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Queries, keys and values of one input, whose weights and biases lie one behind the other and share blocks; with `apart` they do not.
ATTENTION = """local nn, optim = require "nn", require "optim"
local o = nn.options { moments = nn.choice("fp32", "bf16", "int8"), apart = false, batch = 6 }
local m = nn.module "Net"
m.embed, m.out = nn.Embedding(256, 24), nn.Linear(24, 256)
m.q, m.k, m.v = nn.Linear(24, 24), nn.Linear(24, 8), nn.Linear(24, 8)
function m:forward(tokens)
  local x = self.embed(tokens)
  local y = o.apart and nn.relu(x) or x
  local function heads(z, n) return z:reshape(z:size(0), z:size(1), n, 8) end
  local a = nn.attention { q = heads(self.q(x), 3), k = heads(self.k(y), 1), v = heads(self.v(o.apart and x * 2 or x), 1), causal = true }
  return self.out(x + a:reshape(x:size(0), x:size(1), 24))
end
return nn.training {
  model = m,
  batch = { tokens = nn.input("int32", { o.batch, 16 }, { from = "tokens" }), targets = nn.input("int32", { o.batch, 16 }, { from = "tokens", shift = 1 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 1e-2, moment_dtype = o.moments },
}
"""
TOGETHER = [["%s.%s" % (part, kind) for part in "qkv"] for kind in ("weight", "bias")]


def test_resumes():
    """Bit for bit on any world; as values of the other dtypes, and from them coded anew; also where blocks begin elsewhere."""
    folder = scratch("state8")
    at, model = lambda name: os.path.join(folder, name), os.path.join(folder, "attention.lua")
    with open(model, "w") as f:
        f.write(ATTENTION)
    make = lambda world=1, **o: build(model, optimized=True, world=world, batch=6 // world, **o)
    def resume(binary, start, end, said=""):
        rc, _, err = command([binary, "--resume", at(start), "--save", at(end), "--steps", "0"])
        check(rc == 0 and said in err and bool(said) == ("moments" in err), "%s from %s: exit %d: %s" % (end, start, rc, err))
        return State(at(end))
    kinds = ("moment1", "moment2")
    whole = run(make(2, moments="int8"), "--data", corpus(), "--steps", "8", "--seed", "3")
    begun = run(make(2, moments="int8"), "--data", corpus(), "--steps", "5", "--seed", "3", "--save", at("saved"))
    was = State(at("saved"))
    shared = [was.ahead[p] for p in TOGETHER[0] + TOGETHER[1]]
    check(shared == [0, 64, 0, 0, 24, 32] and not any(a for p, a in was.ahead.items() if p not in TOGETHER[0] + TOGETHER[1]), "blocks begin %s" % was.ahead)
    end = run(make(2, moments="int8"), "--data", corpus(), "--steps", "8", "--seed", "3", "--resume", at("saved"))
    check(losses(begun[0]) + losses(end[0]) == losses(whole[0]) and whole[1] == end[1], "resumed: other bits")
    for world in (1, 3, 2):
        now = resume(make(world, moments="int8"), "saved" if world == 1 else "on-%d" % (1 if world == 3 else 3), "on-%d" % world)
        check(now == was and now.ahead == was.ahead, "on %d ranks: another state" % world)
    wide = resume(make(3, moments="fp32"), "saved", "wide", "int8 there and fp32 in this build: taken as they are")
    narrow = resume(make(2, moments="bf16"), "saved", "narrow", "int8 there and bf16 in this build: rounded to nearest")
    for path in was:
        for kind in kinds:
            values = was.values(path, kind)
            check(wide[path][kind] == values, "as fp32: %s (%s)" % (path, kind))
            check(narrow[path][kind] == list(floats(("BF16", None, nearest(array.array("f", values).tobytes())))), "as bf16: %s (%s)" % (path, kind))
        check(wide[path]["master"] == was[path]["master"] == narrow[path]["master"], "%s: other parameters" % path)
    apart = make(2, moments="int8", apart=True)
    for name, binary, start, from_, said in (("coded", make(3, moments="int8"), "wide", wide, "fp32 there and int8 in this build: coded in blocks of 256"),
                                             ("coded-narrow", make(1, moments="int8"), "narrow", narrow, "bf16 there and int8 in this build: coded in blocks of 256"),
                                             ("apart", apart, "saved", wide, "the optimizer's moments are in other blocks of 256 elements there: coded anew")):
        now = resume(binary, start, name, said)
        check(any(now.ahead.values()) == (name != "apart"), "%s: blocks begin %s" % (name, now.ahead))
        for path in was:
            beside = next((g for g in TOGETHER if path in g and name != "apart"), [])
            first = sum(len(was[p]["master"]) for p in beside[:beside.index(path)]) if beside else 0
            for kind in kinds:
                others, begin = [], -(first - first % BLOCK)  # where the first of them begins, in this one's blocks
                for p in beside:
                    others.append((begin, from_[p][kind]))
                    begin += len(from_[p][kind])
                now.expect_coded(path, kind, from_[path][kind], name, others)
    again = resume(make(1, moments="int8"), "apart", "together", "in other blocks of 256 elements there: coded anew")
    check(again.ahead == was.ahead, "blocks begin %s" % again.ahead)
    return "on 1, 2 and 3 ranks, from and to fp32 and bf16, and in other blocks"
