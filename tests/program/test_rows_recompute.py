"""The C rows: recomputing and offloading activations, inside of a unit, round it and round many, changes no bit.

Relies on: harness.py, rows/recompute.lua, rows/nested.lua. Relied on by: run.py."""
import itertools
import os
import re

import pages
from harness import ROWS, Scope, build, check, close, corpus, events_of, losses, planned, read_safetensors, run, same_run, scratch

MODEL, NESTED = (os.path.join(ROWS, f) for f in ("recompute.lua", "nested.lua"))
WORLDS = (2, 4)
GRID = list(itertools.product((False, True), ("recompute", "offload")))  # parameters in host memory, what a wrapper does


def whole_run(model, world, steps, *args, **o):
    """The log and the weights at the end; every tensor of the last step on rank 0, gradients and outputs among them."""
    out = os.path.join(scratch("dump"), "x.safetensors")
    a = run(build(model, world=world, **o), "--data", corpus(), "--steps", str(steps), "--seed", "11", "--dump", "*", "--at-step", str(steps), "-o", out, *args)
    return a, read_safetensors(out)


def same(a, b, what):
    """Losses, weights, and every tensor that both have: of the forward all, and all gradients."""
    same_run(a[0], b[0], what)
    both = a[1].keys() & b[1].keys()
    for k in both:
        check(a[1][k] == b[1][k], "%s: %s differs" % (what, k))
    grads = {k for k in a[1] if k.endswith(".grad")}
    check(grads and grads == {k for k in b[1] if k.endswith(".grad")}, "%s: gradients %s" % (what, sorted(grads)))
    check(len(both) > 2 * len(grads), "%s: few tensors to compare: %s" % (what, sorted(both)))


def plan(model, world, **o):
    """The plan, and the events of its step."""
    p = planned(model, world, **o)
    return p, events_of(p)


def most_unsharded(p, events):
    """Most gathered buffers that hold a unit's parameters at one time, in issue order."""
    sizes = {s["id"]: s for s in p["storages"]}
    lives = {}
    for i, e in enumerate(events):
        for access in e["reads"] + e["writes"]:
            if sizes[access[0]]["class"] == "unsharded":
                lives.setdefault(access[0], [i, i])[1] = i
    return max(sum(a <= i <= b for a, b in lives.values()) for i in range(len(events)))


def moves(events, stream):
    """Copies of activations."""
    return [e["id"] for e in events if e["stream"] == stream and re.match(r"[of]\d", e["id"])]


def test_C1_three_units():
    for world in WORLDS:
        with Scope():
            plain = whole_run(MODEL, world, 2)
            for params, activations in GRID:
                o = dict(params=params, activations=activations)
                for wrap in ("outside", "inside", "none"):
                    same(plain, whole_run(MODEL, world, 2, wrap=wrap, **o), "world %d, %s, %s" % (world, wrap, o))
                p, events = plan(MODEL, world, wrap="outside", **o)
                check(most_unsharded(p, events) <= 3, "%d gathered at a time" % most_unsharded(p, events))
            p, events = plan(MODEL, world, wrap="outside", layers=8)
            n, again = most_unsharded(p, events), [e["id"] for e in events if re.fullmatch(r"g\d+b2", e["id"])]
            check(0 < n <= 3 and len(again) >= 4, "of 8 units %d are gathered at a time; %s are gathered for the recompute and for the backward" % (n, again))
            q, kept = plan(MODEL, world, wrap="inside", layers=8)
            check(not [e for e in kept if re.fullmatch(r"g\d+b2", e["id"])], "where each recomputes by itself it stays gathered for its backward")
            deep = whole_run(MODEL, world, 2, layers=8)
            a = whole_run(MODEL, world, 2, wrap="outside", layers=8)
            same(deep, a, "8 units at world %d" % world)
            for args in (["--poison"], ["--interleave", "3"]):
                same_run(a[0], run(build(MODEL, world=world, wrap="outside", layers=8), "--data", corpus(), "--steps", "2", "--seed", "11", *args), args[0])
    return "3 wrappers x 4, 2 worlds; of 8 units in one wrapper at most %d are gathered" % n


def test_C2_one_unit():
    for world in WORLDS:
        with Scope():
            plain = whole_run(MODEL, world, 6, units="one")
            base, usual = plan(MODEL, world, units="one")
            check(not moves(usual, "offload") and base["arenas"]["host"]["bytes"] == 0, "nothing goes to the host by itself")
            for params, activations in GRID:
                o = dict(units="one", params=params, activations=activations)
                for wrap in ("none", "outside", "inside", "call"):
                    same(plain, whole_run(MODEL, world, 6, wrap=wrap, **o), "world %d, %s, %s" % (world, wrap, o))
                    p, events = plan(MODEL, world, wrap=wrap, **o)
                    offloads = activations == "offload" and wrap != "none"
                    away, back = moves(events, "offload"), moves(events, "fetch")
                    check(len(away) == len(back) and bool(away) == offloads, "%s %s: %s, %s" % (wrap, o, away, back))
                    check((p["arenas"]["host"]["bytes"] > 0) == (params or offloads), "the host's arena")
                    check(p["arenas"]["device"]["bytes"] <= base["arenas"]["device"]["bytes"], "the device's peak does not rise")
            for wrap in ("outside", "inside", "call"):  # where activations outweigh the rest
                big = dict(units="one", layers=8, width=64, batch=100, wrap=wrap)
                peak = {a: plan(MODEL, world, activations=a, **big)[0]["arenas"]["device"]["bytes"] for a in ("recompute", "offload")}
                alone = plan(MODEL, world, **dict(big, wrap="none"))[0]["arenas"]["device"]["bytes"]
                check(peak["offload"] < alone and peak["recompute"] <= alone, "%s: %s, without %d" % (wrap, peak, alone))
            # where computation outweighs the copies: else updates that wait for them keep gradients longer
            many = [plan(MODEL, world, layers=8, width=64, batch=256, params=params)[0]["arenas"]["device"]["bytes"] for params in (False, True)]
            check(many[1] < many[0], "parameters of 8 units on the host: %s" % many)
            same(whole_run(MODEL, world, 2, units="one", layers=8, width=64, batch=100),
                 whole_run(MODEL, world, 2, units="one", layers=8, width=64, batch=100, wrap="outside", activations="offload"), "a large one")
    return "4 ways x 4, 2 worlds, 6 steps; the device's peak falls from %d to %d (recomputed), %d (offloaded)" % (alone, peak["recompute"], peak["offload"])


def test_C3_nested_stacks():
    for world in WORLDS:
        a, b = whole_run(NESTED, world, 2, recompute=False), whole_run(NESTED, world, 2, recompute=True)
        same(a, b, "world %d" % world)
        _, events = plan(NESTED, world, recompute=True)
        again = [e for e in events if e["phase"] == "recompute"]
        check(len(again) >= 12, "stacks are made again: %d events" % len(again))
        check(sum(k.endswith(".grad") for k in a[1]) == 40, "gradients by name: %d" % sum(k.endswith(".grad") for k in a[1]))
    return "40 gradients, name by name; %d events made again" % len(again)


def test_C4_dropout():
    """Made again, the same elements drop; and on any number of ranks, since they go by the sample of the global batch."""
    o = dict(dropout=0.3, width=16)
    one = losses(whole_run(MODEL, 1, 3, batch=20, **o)[0][0])
    for world in WORLDS:
        with Scope():
            check(one != losses(whole_run(MODEL, world, 3, width=16, batch=20 // world)[0][0]), "dropout drops")
            close(losses(whole_run(MODEL, world, 3, batch=20 // world, **o)[0][0]), one, 1e-6, "world %d beside one rank" % world)
            for units in ("three", "one"):
                plain = whole_run(MODEL, world, 3, units=units, **o)
                for wrap in ("outside", "inside", "call"):
                    same(plain, whole_run(MODEL, world, 3, wrap=wrap, units=units, **o), "world %d, %s, %s" % (world, wrap, units))


def test_C1_page():
    return pages.holds("models/behaviours/recompute.md", 4)
