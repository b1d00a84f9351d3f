"""Issue 4's item S, offload of the optimizer's state: it streams through the device or is updated on the CPU, and no bit changes.

Relies on: harness.py, test_surface.py (its network and policies), rows/offload.lua. Relied on by: run.py."""
import itertools
import os
import re

from harness import ROOT, ROWS, Scope, build, check, corpus, events_of, long, losses, microbatches, planned, run, same_run, scratch, steps
from test_surface import BF16, everywhere, go, plan, position

WAYS = ("'stream'", "'host'", "true")


def units(optimizer, params=0, grads=0, more=""):
    b = lambda x: str(bool(x)).lower()
    return everywhere("%soffload = { params = %s, grads = %s, optimizer = %s }" % (more and more + ", ", b(params), b(grads), optimizer))


@long
def test_S_offload_optimizer_ways_are_bit_identical():
    n = 0
    for world, mesh, o in ((2, "", {}), (2, BF16, {}), (4, BF16, {}), (2, "mesh = { shard = 1 }, " + BF16, dict(clip=0)), (4, "mesh = { replicate = 2 }, " + BF16, {})):
        a = go(world, everywhere(mesh), **o)
        for way, params in itertools.product(WAYS[:2], (0, 1)):
            same_run(a, go(world, units(way, params, more=mesh), **o), "%s, params %d, world %d, %s" % (way, params, world, mesh))
            n += 1
    return "%d runs" % n


def test_S_offload_optimizer_with_gradients_and_accumulation():
    for more, o in (("", dict(accumulate=2)), (BF16, dict(accumulate=3, batch=2, clip=0)), (BF16, {})):
        a = go(2, everywhere(more), **o)
        for way in WAYS[:2]:
            same_run(a, go(2, units(way, 1, 1, more), **o), "%s, gradients too, %s" % (way, o))


def test_S_offload_mixed_units():
    """One unit's state streams, another's is updated on the CPU, a third one's stays."""
    a = go(2, everywhere(BF16))
    u = dict(everywhere(BF16), block=BF16 + ", offload = { params = true, optimizer = 'stream' }", down=BF16 + ", offload = { optimizer = 'host' }")
    same_run(a, go(2, u), "mixed")
    _, events = plan(2, u)
    streams = {e["stream"] for e in events if e["id"][0] == "u" and e["id"][1:].isdigit()}
    check(streams == {"compute", "update", "host"}, "updates on %s" % streams)


def test_S_offload_optimizer_schedule():
    """What travels: master and moments up and down; with an update on the CPU gradients down and nothing up."""
    _, events = plan(2, units("'stream'", 1, more=BF16))
    for u in range(1, 5):
        at = [position(events, "%s_u%d_%d" % (k, u, i)) for k, i in (("f", 3), ("f", 4), ("o", 1), ("o", 3), ("o", 4))]
        update = position(events, "u%d" % u)
        check(min(at) >= 0 and max(at[:2]) < update < min(at[2:]), "the round trip of unit %d" % u)
        check(position(events, "f_u%d_1" % u) < 0 <= position(events, "fg%db" % u) < position(events, "cg%db" % u), "unit %d's master comes up once in the backward" % u)
        check(events[update]["stream"] == "update", "compute does not wait for the update")
    _, events = plan(2, units("'stream'", 1, more=BF16), name="micro_last", accumulate=2)
    check(position(events, "o_u1_6") > 0 > position(events, "f_u1_6"), "with accumulation the wire shard is written, and not fetched to be overwritten")
    _, events = plan(2, units("'host'", 1, more=BF16))
    check(position(events, "f_u1_1") < 0 <= position(events, "o_u1_0") < position(events, "u1"), "gradients travel to the host's update")
    check({e["stream"] for e in events if e["id"] == "u1"} == {"host"}, "the update runs there")


def test_S_offload_optimizer_poison_interleave_resume():
    for way in WAYS[:2]:
        u, kw = units(way, 1, more=BF16), dict(clip=0, dropout=0.1)
        a = go(2, u, **kw)
        same_run(a, go(2, u, "--poison", **kw), way + ", poison")
        same_run(a, go(2, u, "--check-finite", **kw), way + ", check-finite")
        for seed in range(3):
            same_run(a, go(2, u, "--interleave", str(seed), **kw), "%s, interleave %d" % (way, seed))
        state = os.path.join(scratch("state"), "s")
        go(2, u, "--save", state, n=3, **kw)
        other = units(WAYS[way == WAYS[0]], 0, more=BF16)
        b = go(2, other, "--resume", state, **kw)
        check(losses(b[0]) == losses(a[0])[3:] and a[1] == b[1], "%s: resumed by a build of the other way" % way)


MODEL = os.path.join(ROWS, "offload.lua")


def small(world, *args, **o):
    o = dict(dict(layers=3, dim=16, batch=8 // world // o.get("accumulate", 1)), **o)
    return run(build(MODEL, world=world, **o), "--data", corpus(), "--steps", "5", "--seed", "3", *microbatches(o), *args)


def test_S_offload_at_world_2_and_4():
    for world in (2, 4):
        with Scope():
            for o in (dict(), dict(accumulate=2, clip=0.0), dict(kept=True, precision="fp32")):
                a = small(world, way="none", **o)
                for way in ("stream", "host", "mixed"):
                    same_run(a, small(world, way=way, **o), "%s, world %d, %s" % (way, world, o))
    same_run(small(4, way="none", replicate=2), small(4, way="mixed", replicate=2, grads=True), "replicated")


def test_S_offload_skipped_steps_change_nothing():
    """A loss scale that overflows at first, by the data twice or more often: what came up for the update goes back as it was, wire shards too, and serves the next one."""
    for o in (dict(), dict(accumulate=2)):
        o = dict(o, precision="fp16", scale=2.0**26, clip=0.0)
        a = small(2, way="none", **o)
        skipped = [s["skipped"] for s in steps(a[0])]
        check(skipped[:2] == [1, 1] and 0 in skipped, "steps are skipped: %s" % skipped)
        for way in ("stream", "host", "mixed"):
            same_run(a, small(2, way=way, **o), "%s, %s" % (way, o))


def predicted(way, *args, device="h200", **o):
    return planned(MODEL, 4, "--device", device, *args, way=way, **o)


LARGE = dict(dim=4096, layers=12, batch=32, seq=1024, clip=0.0)  # a device profile's host memory serves four ranks at once


def test_S_offload_hides_behind_compute():
    """Streamed state costs next to no time where there is enough to compute, and not much memory: a few units pass through it."""
    none, stream, host = (predicted(way, **LARGE) for way in ("none", "stream", "host"))
    time = {p["options"]["way"]: p["prediction"]["step_us"] for p in (none, stream, host)}
    check(time["stream"] < 1.1 * time["none"] < 1.3 * time["none"] < time["host"], "steps of %s us" % time)
    state = stream["prediction"]["host_bytes"]
    saved = none["arenas"]["device"]["bytes"] - stream["arenas"]["device"]["bytes"]
    check(saved > 0.6 * state, "the device's arena is smaller by %d bytes of the %d that lie on the host" % (saved, state))
    return "steps of %.1f ms, %.1f streamed, %.1f on the host" % tuple(time[w] / 1e3 for w in ("none", "stream", "host"))


def test_S_offload_true_takes_the_faster_side():
    """By the device's profile: with a host memory sixteen times as fast the update stays there; with one six times as fast AdamW's does, and
    SGD's goes through the device, whose copies then carry no moments."""
    text, folder = open(os.path.join(ROOT, "compiler", "devices", "h200.lua")).read(), scratch("device")
    device, sgd = os.path.join(folder, "h200.lua"), os.path.join(folder, "sgd.lua")
    with open(sgd, "w") as f:
        f.write(re.sub(r"optimizer = optim\.AdamW .*", "optimizer = optim.SGD { lr = 1e-2 },", open(MODEL).read()))
    for model, speed, stream in ((MODEL, 25, "update"), (MODEL, 400, "host"), (MODEL, 150, "host"), (sgd, 150, "update")):
        with open(device, "w") as f:
            f.write(re.sub(r"host_optimizer_bandwidth = [0-9.e]+", "host_optimizer_bandwidth = %de9" % speed, text))
        updates = {e["stream"] for e in events_of(planned(model, 4, "--device", device, way="auto")) if re.fullmatch(r"u\d+", e["id"])}
        check(updates == {stream}, "%s, %d GB/s: updates on streams %s, not %s" % (os.path.basename(model), speed, sorted(updates), stream))
