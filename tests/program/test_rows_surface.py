"""The S rows: every item of the surface of nn.fully_shard, at world 2 and 4, each by what it changes: numbers or schedule.

Relies on: harness.py, test_surface.py (the model surface/net.lua, and policies for it). Relied on by: run.py."""
import json
import os
import re

import pages
from harness import (SHARDC, build, check, close, command, corpus, events_of, floats, losses, places, planned, read_safetensors, run, same_run,
                     scratch, settings, write_numbers)
from test_surface import BF16, NET, agree, everywhere, go, plain, plan, position

WORLDS = (2, 4)


def ids(events, pattern):
    return [e["id"] for e in events if re.fullmatch(pattern, e["id"])]


def persistent(p, suffix):
    """Bytes of the states whose names end so."""
    return sum(s["size"] for s in p["storages"] if s["name"].endswith("/" + suffix))


def sound_anyhow(world, units, a, **o):
    """Dead bytes poisoned, and any legal order of events: the same bits."""
    same_run(a, go(world, units, "--poison", **o), "poison")
    for seed in (1, 2):
        same_run(a, go(world, units, "--interleave", str(seed), **o), "interleave %d" % seed)


# ── after the forward ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_S_reshard_after_forward():
    """true gathers twice, false once, n keeps a part of n ranks and gathers the second time among them alone."""
    for world in WORLDS:
        full, kept = everywhere(BF16), everywhere(BF16 + ", reshard_after_forward = false")
        a = go(world, full)
        same_run(a, go(world, kept), "false at world %d" % world)
        check(not ids(plan(world, kept)[1], r"g\d+b"), "false: nothing is gathered again")
        for n in (2, 4):
            if n > world:
                continue
            units = everywhere(BF16 + ", reshard_after_forward = %d" % n)
            same_run(a, go(world, units), "%d of %d" % (n, world))
            p, events = plan(world, units)
            parts = ids(events, r"s\d+z?")
            check(bool(parts) == (n < world), "parts are kept where the group is smaller: %s" % parts)
            if n == world:
                continue
            sound_anyhow(world, units, a)
            wire = {e["id"]: e["bytes"] for e in events}
            comm = {e["id"]: e.get("comm") for e in events}
            check(comm["g1b"] == "2 ranks" and comm["g1f"] == "shard", "the backward's gather is within the group: %s" % comm["g1b"])
            check(abs(wire["g1b"] / wire["g1f"] - (n - 1) / n * world / (world - 1)) < 1e-9, "and moves less")
            unit, size = p["units"][1], {s["name"]: s["size"] for s in p["storages"]}
            check(size["s1.y"] == unit["numel"] * 2 // n, "a rank keeps 1/%d of the unit: %d bytes" % (n, size["s1.y"]))


def test_S_reshard_after_backward():
    """false: gathered once a step, by its first microbatch, and kept for the others."""
    for world in WORLDS:
        units, again = everywhere(BF16 + ", reshard_after_backward = false"), everywhere(BF16)
        o = dict(accumulate=2, batch=2)
        a = go(world, again, **o)
        same_run(a, go(world, units, **o), "world %d" % world)
        sound_anyhow(world, units, a, **o)
        p, first = plan(world, units, "micro_first", **o)
        for name in ("micro", "micro_last"):
            events = plan(world, units, name, **o)[1]
            check(not ids(events, r"g\d.*") and ids(first, r"g\d+z?f") and not ids(first, r"g\d+z?b"), "%s gathers %s" % (name, ids(events, r"g\d.*")))
        kept = persistent(p, "gathered")
        check(kept == sum(u["numel"] for u in p["units"]) * 2, "it costs the units whole: %d bytes" % kept)
        same_run(a, go(world, everywhere(BF16 + ", reshard_after_backward = false, offload = { params = true }"), **o), "offload.params")
    fetched = everywhere(BF16 + ", mesh = { shard = 1 }, reshard_after_backward = false, offload = { params = true }")
    check(not ids(plan(2, fetched, "micro", accumulate=2, batch=2)[1], r"fg.*"), "what is whole in host memory is fetched once a step")
    same_run(go(2, everywhere("")), go(2, everywhere("reshard_after_backward = false")), "one microbatch: nothing to keep for")


# ── ahead of use ────────────────────────────────────────────────────────────────────────────────────────────────────────
def issued(events, gather):
    """How many events of compute stand before it."""
    return sum(e["stream"] == "compute" for e in events[:position(events, gather)])


def test_S_prefetch():
    """A depth, and a list: the third block's gather begins when the first block does, not when the second one is done."""
    a = {w: go(w, everywhere(BF16), layers=4) for w in WORLDS}
    depth = lambda f, b: everywhere(BF16 + ", prefetch = { forward = %d, backward = %d }" % (f, b))
    for world in WORLDS:
        early, late = (plan(world, depth(d, d), layers=4)[1] for d in (3, 0))
        for gather in ("g7f", "g3b"):  # of blocks.3 and of blocks.1
            check(issued(early, gather) < issued(late, gather), "%s: %d and %d" % (gather, issued(early, gather), issued(late, gather)))
        same_run(a[world], go(world, depth(2, 0), layers=4), "depths at world %d" % world)
        lists = (("root", "blocks.3", "forward", "g7f"), ("blocks.3", "blocks.1", "backward", "g3b"))
        for unit, target, way, gather in lists:
            units = {**everywhere(BF16), unit: BF16 + ", prefetch = { %s = { '%s' } }" % (way, target)}
            events = plan(world, units, layers=4)[1]
            usual = plan(world, everywhere(BF16), layers=4)[1]
            check(issued(events, gather) < issued(usual, gather), "%s lists %s: %s after %d events, else %d" % (unit, target, gather, issued(events, gather), issued(usual, gather)))
            same_run(a[world], go(world, units, layers=4), "a list of %s at world %d" % (unit, world))
        again = {**everywhere(BF16), "blocks.1": BF16 + ", prefetch = { forward = { 'blocks.0' } }"}  # which is called again at the end
        check(issued(plan(world, again)[1], "g1b") == issued(plan(world, everywhere(BF16))[1], "g1b"), "a list for the forward gathers nothing for the backward")


def test_S_unshard_in_backward():
    """unshard_in_backward = false, for a table whose rows the backward does not read: no second gather, the same bits; where it reads
    any it is refused (tests/program/bad/shard_backward.lua)."""
    model = os.path.join(os.path.dirname(NET), "..", "rows", "embedding.lua")
    for world in WORLDS:
        runs, gathers = [], []
        for promise in (False, True):
            o = dict(batch=8 // world, promise=promise)
            runs.append(run(build(os.path.abspath(model), world=world, **o), "--data", corpus(), "--steps", "4", "--seed", "3"))
            gathers.append([e["id"] for e in events_of(planned(model, world, **o)) if e["stream"] == "gather"])
        same_run(*runs, "world %d" % world)
        check(gathers[0] == gathers[1] and all(g.endswith("f") or g == "g2b" for g in gathers[0]), "an embedding's backward reads no table: %s" % gathers)


# ── accumulation ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_S_gradient_sync():
    """requires_gradient_sync = false: microbatches add up whole gradients, the last one reduces them, once a step; what they take
    is in the prediction."""
    o = dict(accumulate=2, batch=2)
    for world in WORLDS:
        for mesh in ("", "mesh = { replicate = 2 }, "):
            units = everywhere(mesh + "requires_gradient_sync = false")
            a = go(world, units, **o)
            agree(a, go(world, everywhere(mesh), **o), "world %d, %s" % (world, mesh))
            sound_anyhow(world, units, a, **o)
            p, _ = plan(world, units, **o)
            for name in ("micro_first", "micro", "micro_last"):
                found = ids(plan(world, units, name, **o)[1], r"[ra]\d+")
                check(bool(found) == (name == "micro_last"), "%s reduces %s" % (name, found))
            check(persistent(p, "whole gradient") == sum(u["numel"] for u in p["units"]) * 4, "whole gradients of every unit")
            check(not persistent(p, "gradient"), "and no reduced ones")
        away = everywhere("requires_gradient_sync = false, offload = { grads = true }")
        same_run(go(world, away, **o), go(world, everywhere("requires_gradient_sync = false"), **o), "offload.grads")
        check(len(ids(plan(world, away, "micro_last", **o)[1], r"o_grad\d+")) == 5, "reduced gradients leave the device")
    same_run(go(2, everywhere("")), go(2, everywhere("requires_gradient_sync = false")), "one microbatch is the last one")


def test_S_all_reduce_deferred():
    """Hybrid: every microbatch reduce-scatters, the last one alone sums over replicas."""
    o = dict(accumulate=2, batch=2)
    for world, mesh in ((2, "mesh = { replicate = 2 }"), (4, "mesh = { replicate = 2 }"), (4, "mesh = { shard = 1 }")):
        units = everywhere(mesh + ", requires_all_reduce = false")
        a = go(world, units, **o)
        agree(a, go(world, everywhere(mesh), **o), "world %d, %s" % (world, mesh))
        sound_anyhow(world, units, a, **o)
        p = plan(world, units, **o)[0]
        shards = places(p, p["units"][0], "shard")
        for name in ("micro_first", "micro", "micro_last"):
            events = plan(world, units, name, **o)[1]
            check(bool(ids(events, r"r\d+")) == (shards > 1), "%s reduce-scatters" % name)
            check(bool(ids(events, r"a\d+")) == (name == "micro_last"), "%s sums over replicas: %s" % (name, ids(events, r"a\d+")))
        same_run(a, go(world, everywhere(mesh + ", requires_all_reduce = false, offload = { grads = true }"), **o), "offload.grads")


EQUAL = """
local nn, optim = require "nn", require "optim"
local o = nn.options { when = nn.choice("each", "once", "reduced"), replicate = 1, stored = "fp32", wire = "bf16", reduce = "bf16",
                       grad = nn.optional "string", offload = false }
local m = nn.module "M"
m.w = nn.parameter({ 8 }, { init = nn.init.zeros(), dtype = o.stored })
function m:forward(c) return nn.sum(self.w * c) end
nn.fully_shard(m, { mesh = nn.mesh { replicate = o.replicate }, offload = { grads = o.offload },
  mp_policy = { param_dtype = o.wire, reduce_dtype = o.reduce, grad_dtype = o.grad },
  requires_gradient_sync = o.when ~= "once", requires_all_reduce = o.when ~= "reduced" })
return nn.training { model = m, batch = { c = nn.input("fp32", { 1, 8 }) }, loss = function(m, b) return m(b.c) end,
  optimizer = optim.SGD { lr = 1 }, accumulate = 512 }
"""


def test_microbatches_add_up_in_fp32():
    """The mean of 512 equal gradients of 1 is 1, whatever dtype ranks exchange; sums in 16 bits, where they stop at half of it, must
    be asked for (grad_dtype beside reduce_dtype), and a note says so. What sums take is in the prediction."""
    folder = scratch("equal")
    model = os.path.join(folder, "equal.lua")
    open(model, "w").write(EQUAL)
    for world, o in ((2, dict(when="once")), (1, dict(when="once")), (4, dict(when="once", replicate=2)), (4, dict(when="reduced", replicate=2)),
                     (4, dict(when="reduced", replicate=2, offload=True)), (2, dict(when="once", offload=True)), (2, dict(when="each")),
                     (2, dict(when="each", stored="bf16")), (2, dict(when="once", stored="bf16")),
                     (2, dict(when="once", wire="fp16", reduce="fp16")), (2, dict(when="once", reduce="fp32", grad="bf16")),
                     (2, dict(when="once", grad="bf16")), (4, dict(when="reduced", replicate=2, grad="bf16")),
                     (2, dict(when="each", stored="bf16", grad="bf16"))):
        narrow, what = o.get("grad") == "bf16" and o.get("reduce") != "fp32", "world %d, %s" % (world, o)
        records = write_numbers(os.path.join(folder, "records"), "f", [1.0] * (8 * world * 512))
        weights = run(build(model, world=world, **o), "--data", "-", "--steps", "1", records=records)[1]
        check(set(floats(weights["w"])) == {-0.5 if narrow else -1.0}, "%s: %s" % (what, floats(weights["w"])))
        rc, out, err = command([SHARDC, "inspect", model, "--world", str(world), "--format", "json", *settings(o)])
        check(rc == 0 and ("512 microbatches are added up in bf16" in err) == narrow, "%s: exit %d, %s" % (what, rc, err))
        p = json.loads(out)
        whole, unit = o["when"] == "once", p["units"][0]
        check(persistent(p, "whole gradient" if whole else "gradient") == unit["numel"] // (1 if whole else places(p, unit, "shard")) * (2 if narrow else 4), what)


OFTEN = """
local nn, optim = require "nn", require "optim"
local o = nn.options { uses = 512, view = false, reduce = "bf16" }
local m = nn.module "M"
m.w = nn.parameter({ 4, 2 }, { init = nn.init.zeros() })
function m:forward(c)
  local loss, seen = nil, nn.transpose(self.w, 0, 1)
  for i = 1, o.uses do
    local w = o.view and seen or self.w
    local one = nn.cast(nn.sum(nn.reshape(w, { 8 }) * nn.slice(c, 1, i - 1, i)), "fp32")
    loss = loss and loss + one or one
  end
  return loss
end
nn.fully_shard(m, { mp_policy = { param_dtype = o.reduce, reduce_dtype = o.reduce } })
return nn.training { model = m, batch = { c = nn.input("fp32", { 1, o.uses, 8 }) }, loss = function(m, b) return m(b.c) end, optimizer = optim.SGD { lr = 1 } }
"""


def test_a_parameter_of_many_uses():
    """The gradient of a parameter that a microbatch uses 512 times, each time with gradient 1, is 512 in 16 bits too."""
    folder = scratch("often")
    model = os.path.join(folder, "often.lua")
    open(model, "w").write(OFTEN)
    records = write_numbers(os.path.join(folder, "records"), "f", [1.0] * (8 * 512))
    for o in dict(), dict(view=True), dict(reduce="fp32"):
        weights = run(build(model, **o), "--data", "-", "--steps", "1", records=records)[1]
        check(set(floats(weights["w"])) == {-512.0}, "%s: %s" % (o, floats(weights["w"])))


def test_S_gradient_divide_factor():
    """1 sums: the same as averages at world times the rate; gradient_divide_factor is of one unit."""
    o = dict(optimizer="sgd", clip=0, decay=0, n=3)
    for world in WORLDS:
        summed = go(world, everywhere("gradient_divide_factor = 1"), **o)
        faster = go(world, everywhere(""), "--lr", str(1e-2 * world), **o)
        check(losses(summed[0]) == losses(faster[0]) and summed[1] == faster[1], "world %d" % world)
        other = go(world, everywhere("gradient_divide_factor = 3"), **o)
        check(other[1] != summed[1], "3 is another factor")
        one = dict(o, n=1)
        base, alone = (go(world, dict(everywhere(""), down=factor), **one)[1] for factor in ("", "gradient_divide_factor = 1"))
        changed = {k for k in base if base[k] != alone[k]}
        check(changed == {"blocks.%d.down.%s" % (b, p) for b in (0, 1) for p in ("bias", "weight")}, "a factor of one kind of unit changed %s" % sorted(changed))


# ── meshes, dtypes ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_S_meshes():
    """Shard, replicate, both, and several meshes in one model: all train as one rank does."""
    cases = [(2, everywhere("")), (2, everywhere("mesh = { shard = 1 }")), (4, everywhere("mesh = { replicate = 2 }")),
             (2, dict(root="mesh = { shard = 1 }", block="", down="mesh = { shard = 1 }")),
             (4, dict(root="", block="mesh = { replicate = 2 }", down="mesh = { shard = 1 }")),
             (4, dict(root="mesh = { shard = 1 }", block="", down="mesh = { shard = 2 }"))]
    worst = 0
    for world, units in cases:
        a = go(world, units)
        worst = max(worst, agree(a, plain(), "world %d, %s" % (world, units)))
    mixed = cases[4][1]
    p, events = plan(4, mixed)
    check({(places(p, u, "shard"), places(p, u, "replicate")) for u in p["units"]} == {(4, 1), (2, 2), (1, 4)}, "three meshes")
    check(len(ids(events, r"norm_sum\d*")) == 2, "the norm is summed over the shards of each")
    sound_anyhow(4, mixed, go(4, mixed))
    state = os.path.join(scratch("state"), "s")
    go(4, mixed, "--save", state, n=3)
    close(losses(go(2, everywhere(""), "--resume", state)[0]), losses(plain()[0])[3:], 1e-5, "another mesh goes on from its state")
    return "%d cases, losses within %.1e" % (len(cases), worst)


def test_S_mixed_precision():
    """param_dtype, grad_dtype, reduce_dtype, output_dtype, cast_forward_inputs: each has its own numbers, near those of fp32."""
    for world in WORLDS:
        fp32 = losses(go(world, everywhere(""))[0])
        half = "mp_policy = { param_dtype = 'bf16', reduce_dtype = 'fp32'%s }"
        policies = {"param": everywhere("mp_policy = { param_dtype = 'bf16' }"), "half": everywhere("mp_policy = { param_dtype = 'bf16', reduce_dtype = 'bf16' }"),
                    "grad": everywhere(half % ", grad_dtype = 'bf16'"),
                    "output": dict(everywhere(""), root="mp_policy = { output_dtype = 'bf16' }"),
                    "inputs cast": dict(root="", scale=half % ", output_dtype = 'fp32'"),
                    "inputs left": dict(root="", scale=half % ", cast_forward_inputs = false")}
        found = {k: tuple(losses(go(world, v)[0])) for k, v in policies.items()}
        for k, v in found.items():
            close(v, fp32, 3e-2, k)
        check(len({tuple(fp32), *found.values()}) == 1 + len(found), "each changes numbers: %s" % found)
        check(plan(world, policies["half"])[0]["units"][0]["reduce"] == "bf16" and plan(world, policies["param"])[0]["units"][0]["reduce"] == "fp32", "what is not said is the stored dtype")
        for more in "", ", mesh = { replicate = 2 }, requires_all_reduce = false":
            p, _ = plan(world, everywhere("mp_policy = { param_dtype = 'bf16', reduce_dtype = 'bf16' }" + more), accumulate=2, batch=2)
            held = sum(u["numel"] // places(p, u, "shard") for u in p["units"]) * 4
            check(persistent(p, "gradient") == held, "microbatches add up in fp32: %d, not %d" % (persistent(p, "gradient"), held))


def test_S_two_stored_dtypes():
    """A unit's parameters of another stored dtype are a part of their own, gathered and reduced by themselves."""
    o = dict(gain="bf16")
    for world in WORLDS:
        a = go(world, everywhere(""), **o)
        close(losses(a[0]), losses(plain(gain="bf16")[0]), 1e-4, "world %d" % world)
        check(a[1]["gain"][0] == "BF16" and a[1]["idle"][0] == "F32", "stored as written")
        p, events = plan(world, everywhere(""), **o)
        check(p["units"][-1]["path"] == "(root) bf16" and p["units"][-1]["dtype"] == "bf16", "a part: %s" % p["units"][-1])
        sound_anyhow(world, everywhere(""), a, **o)
        same_run(a, go(world, everywhere("reshard_after_forward = true"), **o), "resharded")
        both = go(world, everywhere(BF16), **o)
        close(losses(both[0]), losses(a[0]), 3e-2, "gathered in one dtype")
        state = os.path.join(scratch("state"), "s")
        go(world, everywhere(""), "--save", state, n=3, **o)
        check(losses(go(world, everywhere(""), "--resume", state, **o)[0]) == losses(a[0])[3:], "goes on from its state")


# ── where things lie ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_S_offload():
    """Parameters, gradients, optimizer state, each on its own: no bit changes, the device's arena shrinks."""
    for world in WORLDS:
        a, base = go(world, everywhere(BF16), accumulate=2, batch=2), plan(world, everywhere(BF16), accumulate=2, batch=2)[0]
        for which in ("params", "grads", "optimizer"):
            units = everywhere(BF16 + ", offload = { %s = true }" % which)
            same_run(a, go(world, units, accumulate=2, batch=2), "%s at world %d" % (which, world))
            p, _ = plan(world, units, accumulate=2, batch=2)
            check(p["arenas"]["device"]["bytes"] < base["arenas"]["device"]["bytes"] and p["arenas"]["host"]["bytes"] > 0, which)


# ── which parameters ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_S_shared_parameters():
    """The embedding's table is the head's weight: one parameter of the unit that holds both, be they units themselves or not, gathered
    and reduced once."""
    for world in WORLDS:
        alone = go(world, everywhere(""))
        for units in (everywhere(""), {**everywhere(""), "embed": "", "head": ""}):
            a = go(world, units)
            agree(a, plain(), "world %d, %s" % (world, sorted(units)))
            check("head.weight" not in a[1] and "embed.weight" in a[1], "one path")
            p, events = plan(world, units)
            check(sum(u["parameters"] for u in p["units"]) == len(a[1]), "counted once")
            root = next(u for u in p["units"] if u["path"] == "(root)")
            check(root["numel"] >= 256 * 13 and all(u["numel"] < 256 * 13 for u in p["units"] if u is not root), "the table is the root's: %s" % p["units"])
            check(len(ids(events, "r%d" % root["id"])) == 1, "one gradient of both")
            check(losses(a[0]) == losses(alone[0]) and a[1] == alone[1], "units of the embedding and of the head change bits")


def test_S_frozen_parameters():
    """No gradient, no optimizer state, unchanged; gathered apart from those that train."""
    for world in WORLDS:
        before, after = go(world, everywhere(""), n=0)[1], go(world, everywhere(""))[1]
        same = {k for k in before if before[k] == after[k]}
        check(same == {"idle", "blocks.0.fixed", "blocks.1.fixed"}, "world %d: unchanged are %s" % (world, sorted(same)))
        p, events = plan(world, everywhere(""))
        check(len(ids(events, r"g\d+zf")) == 2, "frozen parameters are gathered by themselves")
        out = os.path.join(scratch("dump"), "x.safetensors")
        go(world, everywhere(""), "--dump", "*.grad", "--at-step", "1", "-o", out, n=1)
        check({k[:-5] for k in read_safetensors(out)} == before.keys() - same, "gradients of %s" % sorted(read_safetensors(out)))
        check(persistent(p, "moment1") == persistent(p, "moment2") == sum(u["numel"] // places(p, u, "shard") for u in p["units"]) * 4, "moments of what is trained")


def test_S_ignored_parameters():
    """Frozen or trainable, whole on every rank and as stored; gradients of trainable ones are averaged over all ranks."""
    frozen, trained = everywhere("ignored_params = { '*.fixed' }"), everywhere("ignored_params = { '*.fixed', '*.bias', 'gain' }")
    for world in WORLDS:
        a = go(world, everywhere(""))
        same_run(a, go(world, frozen), "frozen ones at world %d" % world)
        b = go(world, trained)
        agree(b, a, "trainable ones at world %d" % world)
        agree(b, plain(), "as one rank trains")
        p, events = plan(world, trained)
        parts = [u for u in p["units"] if u["path"].endswith(" ignored")]
        check(len(parts) == 5 and all((places(p, u, "shard"), places(p, u, "replicate")) == (1, world) for u in parts), "parts: %s" % [u["path"] for u in p["units"]])
        for u in parts:
            check(position(events, "a%d" % u["id"]) > 0 and position(events, "g%df" % u["id"]) < 0, "summed over all, never gathered")
        sound_anyhow(world, trained, b)
        p, _ = plan(world, dict(everywhere(""), root="ignored_params = { '*.fixed' }"))
        check(not any(s["class"] == "buffers" for s in p["storages"]), "the root's list is for what the root gathers")
        half = go(world, everywhere(BF16 + ", ignored_params = { 'gain' }"))
        close(losses(half[0]), losses(a[0]), 3e-2, "not cast")
        state = os.path.join(scratch("state"), "s")
        go(world, trained, "--save", state, n=3)
        close(losses(go(world, everywhere(""), "--resume", state)[0]), losses(a[0])[3:], 1e-5, "its state serves those who shard them")


def test_S_uneven_sizes():
    """Dimensions of 13 and 21, a parameter of 3: no rank's part ends where a parameter does, and some hold none of it."""
    worst = 0
    for world, batch in ((2, 8), (3, 4), (4, 4)):
        a = go(world, everywhere(""), batch=batch)
        worst = max(worst, agree(a, plain() if world != 3 else go(1, None, batch=12), "world %d" % world))
        p, _ = plan(world, everywhere(""), batch=batch)
        check(world < 4 or any(u["numel"] // world < 13 * 21 for u in p["units"]), "a part smaller than a parameter")
    return "losses within %.1e" % worst


# ── modules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_S_module_called_twice():
    """blocks.0 is called again at the end: gathered once a direction, one gradient of both calls."""
    for world in WORLDS:
        a = go(world, everywhere(""))
        agree(a, plain(), "world %d" % world)
        events = plan(world, everywhere(""))[1]
        check(len(ids(events, r"g1f")) == 1 and len(ids(events, r"r1")) == 1, "once")
        last = max(i for i, e in enumerate(events) if e["module"].startswith("blocks.0") and e["phase"] == "forward")
        check(any(e["module"].startswith("blocks.1") for e in events[:last]), "the second call comes after the other block")


def test_S_nested_units():
    """A unit in a unit in the root: each gathers its own, whatever stands round it."""
    for world in WORLDS:
        a = go(world, dict(root="", block="", down=""))
        agree(a, go(world, dict(root="")), "world %d" % world)
        p, events = plan(world, everywhere(""))
        paths = [u["path"] for u in p["units"]]
        check(paths == ["(root)", "blocks.0", "blocks.0.down", "blocks.1", "blocks.1.down"], "units %s" % paths)
        check(all(position(events, "g%df" % u) >= 0 for u in range(5)), "each has its gather")


def test_S_checkpoint():
    """checkpoint_wrapper and checkpoint per call: what is kept, what is made again (recompute = false: nothing), what goes to the host.
    No bit changes."""
    count = lambda events, key, value: sum(e[key] == value for e in events)
    for world in WORLDS:
        a = go(world, everywhere(BF16), dropout=0.1)
        found = {}
        for how in ("wrapper", "save", "offload", "call", "nested"):
            same_run(a, go(world, everywhere(BF16), dropout=0.1, checkpoint=how), "%s at world %d" % (how, world))
            events = plan(world, everywhere(BF16), dropout=0.1, checkpoint=how)[1]
            found[how] = count(events, "phase", "recompute"), count(events, "stream", "offload")
        check(found["offload"][0] == 0 < found["save"][0] < found["wrapper"][0], "made again: %s" % found)
        check(found["call"][0] < found["wrapper"][0], "a saved gelu is not: %s" % found)
        check(found["wrapper"][1] == found["call"][1] == 0 < found["nested"][1] < found["offload"][1], "to the host: %s" % found)


def test_S_page():
    return pages.holds("models/behaviours/surface.md", 16)
