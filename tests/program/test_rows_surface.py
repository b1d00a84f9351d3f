"""The S rows: every item of the surface of nn.fully_shard, at world 2 and 4, each by what it changes: numbers or schedule.

Relies on: harness.py, test_surface.py (the model surface/net.lua, and policies for it). Relied on by: run.py."""
import json
import os
import re

from harness import build, check, close, corpus, floats, losses, run, same_run, scratch, shardc, steps
from test_surface import BF16, NET, agree, arguments, everywhere, go, plain, plan, policy, position, program

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
            check(size["s1.0"] == unit["numel"] * 2 // n, "a rank keeps 1/%d of the unit: %d bytes" % (n, size["s1.0"]))


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
        for offloaded in ("offload = { params = true }",):
            same_run(a, go(world, everywhere(BF16 + ", reshard_after_backward = false, " + offloaded), **o), offloaded)
    same_run(go(2, everywhere("")), go(2, everywhere("reshard_after_backward = false")), "one microbatch: nothing to keep for")
