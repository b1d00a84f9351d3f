"""Item S, offload of parameters, gradients and optimizer state on GPUs: streamed or on the CPU, the bits of no offload; copies both ways
beside compute take what the device profile says.

Relies on: runner.py; tests/program/rows/offload.lua. Relied on by: run.py, by its name."""
import os
import re
import tempfile

from harness import check, read_log, same_run, steps
from runner import once_more

MODEL = os.path.join("tests", "program", "rows", "offload.lua")
WAYS = {"stream": dict(way="stream"), "host": dict(way="host"), "mixed": dict(way="mixed"), "grads": dict(way="stream", grads=True),
        "optimizer": dict(way="stream", params=False), "kept": dict(way="stream", kept=True), "unclipped": dict(way="stream", clip=0.0)}
WORLDS = 1, 2, 4
LARGE = dict(dim=4096, layers=8, batch=8, seq=1024, clip=0.0)  # 1.1 G parameters in 8 blocks
PROGRAMS = {}
for w in WORLDS:
    small = dict(batch=8 // w)
    PROGRAMS["offload-none-w%d" % w] = (MODEL, w, dict(small, way="none"))
    PROGRAMS["offload-none-unclipped-w%d" % w] = (MODEL, w, dict(small, way="none", clip=0.0))
    for name, options in WAYS.items():
        PROGRAMS["offload-%s-w%d" % (name, w)] = (MODEL, w, dict(small, **options))
    for way in "none", "stream", "host":
        PROGRAMS["offload-%s-bf16-moments-w%d" % (way, w)] = (MODEL, w, dict(small, way=way, moments="bf16"))
    PROGRAMS["offload-large-w%d" % w] = (MODEL, w, dict(LARGE, way="stream"))


def same_bits(r, name, world, *args):
    base = "offload-none-unclipped-w%d" if name == "unclipped" else "offload-none-w%d"
    same_run(r.train("offload-%s-w%d" % (name, world), world, *args), r.train(base % world, world), "%s %s" % (name, args))
    return "20 steps, the bits of no offload"


def same_narrow_bits(r, way, world):
    """Moments of bf16, rounded on the device or on the CPU."""
    none, here, wide = (r.train(x % world, world) for x in ("offload-none-bf16-moments-w%d", "offload-%s-bf16-moments-w%%d" % way, "offload-none-w%d"))
    same_run(here, none, "moments of bf16, " + way)
    check(here[1] != wide[1], "moments of fp32 give the same weights")
    return "20 steps, the bits of no offload"


def as_predicted(r, world):
    """Bound by the bus: twice a block's state travels while it computes."""
    log = os.path.join(tempfile.mkdtemp(dir=r.work), "log.jsonl")
    name = "offload-large-w%d" % world
    r.start(name, world, "--data", r.text, "--steps", "6", "--log", log, alone=True)
    with open(r.path(name), "rb") as f:
        predicted = float(re.search(rb'"step_us":([0-9.]+)', f.read())[1]) / 1e6  # of the plan in the binary
    measured = min(s["seconds"] for s in steps(read_log(log))[2:])
    check(abs(measured / predicted - 1) < 0.15, "a step takes %.1f ms, predicted %.1f" % (measured * 1e3, predicted * 1e3))
    return "a step takes %.1f ms, predicted %.1f" % (measured * 1e3, predicted * 1e3)


def cases(r):
    for w in WORLDS:
        for name in WAYS:
            yield "rows.S-offload-%s-w%d" % (name, w), w, lambda a=(name, w): same_bits(r, *a)
        for way in "stream", "host":
            yield "rows.S-offload-%s-bf16-moments-w%d" % (way, w), w, lambda a=(way, w): same_narrow_bits(r, *a)
        yield "rows.S-offload-poison-w%d" % w, w, lambda w=w: same_bits(r, "stream", w, "--poison")
        yield "rows.S-offload-no-graph-w%d" % w, w, lambda w=w: same_bits(r, "mixed", w, "--no-graph")
        yield "rows.S-offload-again-w%d" % w, w, lambda w=w: once_more(r, "offload-stream-w%d" % w, w)
        yield "rows.S-offload-time-w%d" % w, w, lambda w=w: as_predicted(r, w)
