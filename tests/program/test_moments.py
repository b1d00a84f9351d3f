"""Moments of bf16 (optim.AdamW { moment_dtype = "bf16" }): stored with stochastic rounding, half as large, and the same bits whatever the
plan, and the world where sums are exact.

Relies on: harness.py, surface/net.lua, rows/{offload,sparse,scaler,pair}.lua and the tests of these. Relied on by: run.py."""
import array
import itertools
import json
import math
import os
import random
import re
import struct

from harness import NET, ROOT, build, check, command, corpus, floats, long, losses, planned, read_safetensors, read_state, run, same_run, scratch, train
from test_rows_extension import pair, trained
from test_rows_offload import MODEL, small
from test_rows_scaler import HUGE, GLOBAL, SEQ, go as scaled, program, records, skipped, sparse_go, sparse_records
from test_surface import BF16, everywhere, go

MASK = (1 << 64) - 1


# ── a step, written down once more ──────────────────────────────────────────────────────────────────────────────────────
def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def mix(x, a, b):
    x = (x ^ x >> 30) * a & MASK
    x = (x ^ x >> 27) * b & MASK
    return x ^ x >> 31


def path_key(path):
    h = 0xCBF29CE484222325
    for c in path.encode():
        h = (h ^ c) * 0x100000001B3 & MASK
    return mix(h, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def words(seed, path, step, n):
    """Philox4x32-10 of (element / 4, step), in the stream of the seed and the path."""
    spread = lambda x: mix(x, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    key, out = spread(spread(seed + 0x9E3779B97F4A7C15 & MASK) ^ path_key(path)), []
    for block in range((n + 3) // 4):
        c, k = [block & 0xFFFFFFFF, block >> 32, step & 0xFFFFFFFF, 1 << 31 | step >> 32], [key & 0xFFFFFFFF, key >> 32]
        for _ in range(10):
            p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [q >> 32 ^ c[1] ^ k[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ k[1], p & 0xFFFFFFFF]
            k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
        out += c
    return out[:n]


def stored(x, half):
    """x rounded to the bf16 below (in magnitude), or to the next where what is cut off and 16 random bits reach a whole."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    whole, rest = bits & 0xFFFF0000, bits & 0xFFFF
    return struct.unpack("<f", struct.pack("<I", whole + 0x10000 if rest + half > 0xFFFF else whole))[0]


def adam(p, m, v, g, t, lr, decay, decoupled, beta1, beta2, eps):
    b1, b2, lr, decay, eps = beta1, beta2, f32(lr), f32(decay), f32(eps)
    step, keep = f32(lr / (1 - b1 ** t)), f32(1 - lr * decay) if decoupled else 1.0
    kept, g = f32(p * keep), f32(g + f32((0.0 if decoupled else decay) * p))
    m, v = f32(f32(f32(b1) * m) + f32(f32(1 - b1) * g)), f32(f32(f32(b2) * v) + f32(f32(1 - b2) * f32(g * g)))
    return f32(kept - f32(step * f32(m / f32(f32(f32(math.sqrt(v)) / f32(math.sqrt(1 - b2 ** t))) + eps)))), m, v


def momentum(p, b, g, lr, decay):
    lr, decay = f32(lr), f32(decay)
    g = f32(g + f32(decay * p)) if decay else g
    b = f32(f32(f32(0.9) * b) + g)
    return f32(p - f32(lr * b)), b


def lion(p, m, g, lr, decay, beta1=0.9, beta2=0.99):
    lr, decay = f32(lr), f32(decay)
    between = f32(f32(f32(beta1) * m) + f32(f32(1 - beta1) * g))
    return f32(f32(p * f32(1 - lr * decay)) - f32(lr * ((between > 0) - (between < 0)))), f32(f32(f32(beta2) * m) + f32(f32(1 - beta2) * g))


def state(folder):
    """{path: {"master": values, ...}} of a checkpoint of one rank, and the dtypes of its moments."""
    out, dtypes = {}, set()
    for (_, k), t in read_state(folder)[1].items():
        path, kind = re.fullmatch(r"(.*)@\[0,\d+\)#(\w+)", k).groups()
        out.setdefault(path, {})[kind] = floats(t)
        dtypes |= {t[0]} if kind.startswith("moment") else set()
    return out, dtypes


def rates(path):
    """Of surface/net.lua: its groups; the last match wins."""
    if ".up." in path:
        return 0.0025, 0.1
    return 0.01, 0.0 if path.endswith(".bias") or "norm" in path else 0.1


def test_a_step_is_the_reference():
    """Step 4 from what step 3 left, by plain Python from the gradients: every parameter and moment, bit for bit."""
    n = 0
    for kind in ("adamw", "adam", "momentum", "lion"):
        folder, seed = scratch("step"), 11
        o = dict(optimizer=kind, moments="bf16", clip=0, batch=8)
        at = lambda *args: ("--data", corpus(), "--seed", str(seed), *args)
        binary, three, four, grads = build(NET, optimized=True, **o), *(os.path.join(folder, x) for x in ("3", "4", "g.safetensors"))
        run(binary, *at("--steps", "3", "--save", three))
        run(binary, *at("--steps", "4", "--resume", three, "--save", four, "--dump", "*.grad", "--at-step", "4", "-o", grads))
        (old, dtypes), (new, _), gradients = state(three), state(four), read_safetensors(grads)
        check(dtypes == {"BF16"}, "%s: moments are kept as %s" % (kind, dtypes))
        trained = [p for p in old if "moment1" in old[p]]
        check(len(trained) > 10 and any(abs(x) > 0 for p in trained for x in old[p]["moment1"]), "%s: %s" % (kind, trained))
        for path in trained:
            g, was, now, (lr, decay) = floats(gradients[path + ".grad"]), old[path], new[path], rates(path)
            for i, word in enumerate(words(seed, path, 3, len(g))):
                if kind in ("momentum", "lion"):
                    p, m = (momentum if kind == "momentum" else lion)(was["master"][i], was["moment1"][i], g[i], lr, decay)
                    want, got = [p, stored(m, word & 0xFFFF)], [now["master"][i], now["moment1"][i]]
                else:
                    p, m, v = adam(was["master"][i], was["moment1"][i], was["moment2"][i], g[i], 4, lr, decay, kind == "adamw", 0.9, 0.999, 1e-8)
                    want, got = [p, stored(m, word & 0xFFFF), stored(v, word >> 16)], [now["master"][i], now["moment1"][i], now["moment2"][i]]
                check(want == got, "%s: %s[%d]: %s, by the reference %s" % (kind, path, i, got, want))
                n += 1
    return "%d elements of four optimizers" % n


# ── the same bits ───────────────────────────────────────────────────────────────────────────────────────────────────────
@long
def test_no_plan_changes_a_bit():
    """Streamed, updated on the host, mixed, whatever `true` takes; recomputed, resharded or not, hybrid, accumulated, in any order."""
    n = 0
    for world, o in ((1, {}), (2, dict(accumulate=2, clip=0.0)), (4, dict(kept=True, precision="fp32"))):
        a = small(world, way="none", moments="bf16", **o)
        check(a[1] != small(world, way="none", **o)[1], "moments of fp32 give the same weights")
        for way in ("stream", "host", "mixed", "auto")[:4 if world == 1 else 3]:
            same_run(a, small(world, way=way, moments="bf16", **o), "%s, world %d, %s" % (way, world, o))
            n += 1
    same_run(small(4, way="none", replicate=2, moments="bf16"), small(4, way="mixed", replicate=2, grads=True, moments="bf16"), "replicated")
    variants = [(", reshard_after_forward = false", (), {}), ("", (), dict(checkpoint="wrapper")), ("", (), dict(checkpoint="offload")),
                (", prefetch = { forward = 2, backward = 2 }", ("--interleave", "2"), {}), (", offload = { params = true, optimizer = 'stream' }", ("--poison",), {}),
                (", offload = { optimizer = 'host', grads = true }", ("--interleave", "4"), {})]
    for i, (world, optimizer) in enumerate(((2, "adamw"), (4, "adam"), (2, "momentum"), (2, "lion"))):
        o = dict(optimizer=optimizer, moments="bf16")
        a = go(world, everywhere(BF16), **o)
        for more, args, other in variants[i % 2::2]:
            same_run(a, go(world, everywhere(BF16 + more), *args, **o, **other), "%s, world %d, %s %s" % (optimizer, world, more, other))
            n += 1
    return "%d runs" % n


def exact(world, **o):
    """A table whose gradient is a sum of whole numbers: no order of adding it up changes a bit. The loss is the ranks' mean."""
    r = random.Random(9)
    gains = {(i, k): float(world * r.randrange(-8, 9)) for i in range(GLOBAL) for k in range(SEQ)}
    return sparse_go(world, n=6, data=sparse_records(6, gains=gains), probe=True, **o)


def test_no_world_changes_a_bit():
    for sparse in (True, False):
        ends = {}
        for moments in ("fp32", "bf16"):
            all = [exact(world, sparse=sparse, moments=moments, **o) for world, o in ((1, {}), (2, {}), (4, {}), (4, dict(replicate=2)), (2, dict(offload=True)))[:5 if sparse else 3]]
            check(len({json.dumps([s["grad_norm"] for s in a[0]]) for a in all}) == 1, "the gradients are not exact")
            check(all[0][1]["embed.weight"] != exact(1, sparse=sparse, moments=moments, lr=2e-2)[1]["embed.weight"], "nothing is trained")
            for i, a in enumerate(all):
                check(a[1] == all[0][1], "%s moments, sparse %s: run %d has other weights than one rank" % (moments, sparse, i))
            ends[moments] = all[0][1]
        check(ends["fp32"] != ends["bf16"], "the moments' dtype tells")
    return "sparse and dense, on 1, 2 and 4 ranks"


def test_skipped_steps_leave_them():
    """A gradient that is not finite, on the device and streamed, on the host: state stays, and the streams of words go on."""
    for world in (2, 4):
        o = dict(moments="bf16", gains={2: {1: HUGE}, 4: {0: HUGE}}, n=6, init_scale=1024.0)
        a = scaled(world, **o)
        check(skipped(a) == [2, 4], "skipped %s" % skipped(a))
        for more in (dict(state=True), dict(state=True, params=True, grads=True)):
            b = scaled(world, **o, **more)
            check(a[1] == b[1] and losses(a[0]) == losses(b[0]), "world %d, %s: other bits" % (world, more))
        none = scaled(world, **dict(o, gains=None))
        check(skipped(none) == [] and none[1] != a[1], "nothing was skipped there")


def test_extensions_leave_them():
    for world, o in ((2, dict(align="row")), (4, dict(optimizer=True)), (2, dict(freeze=True))):
        same_run(trained(pair(world, extension="none", moments="bf16", **dict(o, align="element"))), trained(pair(world, moments="bf16", **o)), "pairs with %s" % o)


# ── training ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_trains_as_with_fp32():
    """800 steps with beta2 = 0.999: the curve of fp32's, and its second moments. To nearest these would lag behind gradients that
    shrink: 4 to 10 % above, on this net."""
    curves, moments = {}, {}
    for dtype in ("fp32", "bf16"):
        folder = os.path.join(scratch("curve"), "s")
        b = build(MODEL, optimized=True, layers=1, dim=16, batch=8, precision="fp32", clip=0.0, moments=dtype)
        curves[dtype] = losses(run(b, "--data", corpus(), "--steps", "800", "--seed", "3", "--lr", "3e-3", "--save", folder)[0])
        moments[dtype] = {k: sum(v["moment2"]) for k, v in state(folder)[0].items() if len(v["moment2"]) >= 1024}
    wide, narrow = curves["fp32"], curves["bf16"]
    mean = [sum(c[-20:]) / 20 for c in (wide, narrow)]
    off = max(abs(moments["bf16"][k] / moments["fp32"][k] - 1) for k in moments["fp32"])
    check(wide[0] == narrow[0] and narrow != wide, "the first loss is before any update")
    check(mean[0] < 0.5 * wide[0], "it trains: %.3f to %.3f" % (wide[0], mean[0]))
    check(max(abs(b / a - 1) for a, b in zip(wide, narrow)) < 2e-3 and abs(mean[1] / mean[0] - 1) < 2e-4, "the last 20 steps: %.5f and %.5f" % tuple(mean))
    check(len(moments["fp32"]) == 4 and off < 0.01, "second moments are off by %.4f: %s" % (off, moments))
    return "%.5f and %.5f after 800 steps, second moments within %.2f %%" % (*mean, 100 * off)


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def told(way, moments):
    return planned(MODEL, 4, "--device", "h200", dim=64, layers=3, batch=4, way=way, moments=moments)


def test_half_the_bytes():
    """Of the storages, of what travels, of host memory; what is predicted is what is allocated (run() compares)."""
    for way in ("none", "stream", "host"):
        wide, narrow = (told(way, m) for m in ("fp32", "bf16"))
        size = lambda p, what: {s["name"]: s["size"] for s in p["storages"] if what in s["name"] and s["arena"] == ("device" if way == "none" else "host")}
        for what in ("/moment1", "/moment2"):
            a, b = size(wide, what), size(narrow, what)
            check(len(a) == 4 and a == {k: 2 * v for k, v in b.items()}, "%s: %s and %s" % (way, a, b))
        check(size(wide, "/master") == size(narrow, "/master"), "masters stay fp32")
        moments = sum(size(narrow, "/moment1").values()) + sum(size(narrow, "/moment2").values())
        arena = [p["arenas"]["device" if way == "none" else "host"]["bytes"] for p in (wide, narrow)]
        check(0.9 * moments <= arena[0] - arena[1] <= 1.1 * moments, "%s: arenas of %s bytes, moments of %d" % (way, arena, moments))
        small(4, way=way, moments="bf16")
    trips = []
    for moments in ("fp32", "bf16"):
        events = next(x for x in told("stream", moments)["programs"] if x["name"] == "micro")["events"]
        trips.append({e["id"]: e["bytes"] for e in events if re.match(r"[fo]_u\d_[134]$", e["id"])})
    for k, bytes in trips[0].items():
        check(bytes == trips[1][k] * (1 if k.endswith("_1") else 2), "%s moves %d and %d bytes" % (k, bytes, trips[1][k]))
    check(len(trips[0]) >= 4 * 4, "trips: %s" % sorted(trips[0]))


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def nearest(blob):
    """fp32 to bf16, to nearest, ties to even."""
    halves = ((u + 0x7FFF + (u >> 16 & 1)) >> 16 for u in array.array("I", blob))
    return array.array("H", halves).tobytes()


def test_the_models_take_them():
    """`moments` is an option of every model that has options of precision and memory."""
    small = dict(layers=1, dim=64, heads=2, vocab=256, batch=2, seq=16)
    for model in ("gpt2.lua", "llama3.lua", "qwen2.lua", "transformer.lua"):
        more = dict(small, kv_heads=2, ffn=64) if model in ("llama3.lua", "qwen2.lua") else small
        state = lambda m: sum(s["size"] for s in planned(os.path.join(ROOT, "models", model), 2, moments=m, **more)["storages"] if s["class"] == "optimizer state")
        fp32, bf16 = state("fp32"), state("bf16")
        check(bf16 < 0.52 * fp32, "%s: %d bytes of state, %d with moments of bf16" % (model, fp32, bf16))
    return "4 models"


def test_resumes():
    """Bit for bit, by a build of another way too; from the other dtype fp32 is taken as it is, and what becomes bf16 is rounded to nearest."""
    folder = scratch("state")
    at = lambda name: os.path.join(folder, name)
    a = small(2, way="none", moments="bf16")
    for way in ("none", "stream", "host"):
        begun = run(build(MODEL, optimized=True, world=2, layers=3, dim=16, batch=4, way=way, moments="bf16"), "--data", corpus(), "--steps", "2", "--seed", "3", "--save", at(way))
        check(losses(begun[0]) == losses(a[0])[:2], "%s: the first steps" % way)
        saved = read_state(at(way))[1]
        check({t[0] for (_, k), t in saved.items() if "#moment" in k} == {"BF16"} and {t[0] for (_, k), t in saved.items() if "#master" in k} == {"F32"}, "dtypes of the pieces")
        check(saved == read_state(at("none"))[1], "%s: another state" % way)
        for other in ("none", "stream"):
            b = small(2, "--resume", at(way), way=other, moments="bf16")
            check(losses(b[0]) == losses(a[0])[2:] and a[1] == b[1], "%s resumed by %s: other bits" % (way, other))
    binaries = {m: build(MODEL, optimized=True, world=2, layers=3, dim=16, batch=4, way="none", moments=m) for m in ("fp32", "bf16")}
    run(binaries["fp32"], "--data", corpus(), "--steps", "2", "--seed", "3", "--save", at("wide"))
    for start, end, moments, said, become in (("wide", "narrow", "bf16", "fp32 there and bf16 in this build: rounded to nearest", nearest),
                                              ("narrow", "wider", "fp32", "bf16 there and fp32 in this build: taken as they are", lambda x: b"".join(b"\0\0" + x[i:i + 2] for i in range(0, len(x), 2)))):
        rc, _, err = command([binaries[moments], "--resume", at(start), "--save", at(end), "--steps", "0"])
        check(rc == 0 and said in err, "exit %d: %s" % (rc, err))
        was, now = (read_state(at(x))[1] for x in (start, end))
        check(was.keys() == now.keys() and any("#moment2" in k for _, k in was), "other pieces")
        for k in was:
            check(now[k][2] == (become(was[k][2]) if "#moment" in k[1] else was[k][2]), "%s to %s: %s" % (start, end, k))
    alone = {m: build(MODEL, optimized=True, layers=3, dim=16, batch=4, way="none", moments=m) for m in ("fp32", "bf16")}
    rounded = lambda values: floats(("BF16", None, nearest(values.tobytes())))
    for start, same, other, become in (("wide", "fp32", "bf16", rounded), ("narrow", "bf16", "fp32", lambda values: values)):
        for moments in same, other:
            run(alone[moments], "--resume", at(start), "--save", at(start + moments), "--steps", "0")
        (was, _), (now, dtypes) = state(at(start + same)), state(at(start + other))
        check(dtypes == {"BF16" if other == "bf16" else "F32"} and was.keys() == now.keys(), "%s by one rank: %s" % (start, dtypes))
        for path in was:
            for kind, values in was[path].items():
                check(now[path][kind] == (become(values) if kind.startswith("moment") else values), "%s of two ranks by one: %s (%s)" % (start, path, kind))
    return "three ways, either dtype, by two ranks and by one"


def test_resumes_its_own_optimizer_only():
    """A state of another optimizer is refused by its name, and one of SGD with or without momentum by what it has: Adam's moments are no
    momentum."""
    folder = scratch("optimizers")
    kinds = ["adamw", "momentum", "sgd"]
    binaries, at = {k: program(2, optimizer=k) for k in kinds}, lambda k: os.path.join(folder, k)
    for k in kinds:
        train(binaries[k], "--data", "-", "--steps", "2", "--save", at(k), records=records(2))
    for there, here in itertools.permutations(kinds, 2):
        if "adamw" in (there, here):
            said = "made with the optimizer '%s', and this program was built with '%s': resume with the binary it was made with" % tuple(
                "adamw" if k == "adamw" else "sgd" for k in (there, here))
        else:
            said = "%s: made with another optimizer" % ("no moment1 of .*" if here == "momentum" else "the moment1 of '.*' is there, and this program keeps none")
        rc, _, err = command([binaries[here], "--resume", at(there), "--export", at("weights")])
        check(rc == 1 and re.search(said + "; to begin anew from its weights, --export them and use --weights", err), "%s by %s: exit %d: %s" % (there, here, rc, err))
    for k in kinds:
        rc, _, err = command([binaries[k], "--resume", at(k), "--export", at("weights")])
        check(rc == 0, "%s by itself: exit %d: %s" % (k, rc, err))
