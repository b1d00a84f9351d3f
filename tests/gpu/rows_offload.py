"""Item S, offload of parameters, gradients and optimizer state on GPUs: streamed or on the CPU, the bits of no offload; copies both ways
beside compute take what the device profile says, with what the memory of this machine gives: machines of one kind of GPU differ in it.

Relies on: runner.py; tests/program/rows/offload.lua; shardc and sc_calibrate, which build.py leaves there. Relied on by: run.py, by its name."""
import itertools
import json
import os
import re
import subprocess
import tempfile

from harness import check, must, read_log, same_run, settings, steps
from runner import ROOT, once_more

MODEL = os.path.join("tests", "program", "rows", "offload.lua")
WAYS = {"stream": dict(way="stream"), "host": dict(way="host"), "mixed": dict(way="mixed"), "grads": dict(way="stream", grads=True),
        "optimizer": dict(way="stream", params=False), "kept": dict(way="stream", kept=True), "unclipped": dict(way="stream", clip=0.0)}
WORLDS = 1, 2, 4
NARROW = "bf16", "int8"  # moments
LARGE = dict(dim=4096, layers=8, batch=8, seq=1024, clip=0.0)  # 1.1 G parameters in 8 blocks
PROGRAMS = {}
for w in WORLDS:
    small = dict(batch=8 // w)
    PROGRAMS["offload-none-w%d" % w] = (MODEL, w, dict(small, way="none"))
    PROGRAMS["offload-none-unclipped-w%d" % w] = (MODEL, w, dict(small, way="none", clip=0.0))
    for name, options in WAYS.items():
        PROGRAMS["offload-%s-w%d" % (name, w)] = (MODEL, w, dict(small, **options))
    for way in "none", "stream", "host":
        for moments in NARROW:
            PROGRAMS["offload-%s-%s-moments-w%d" % (way, moments, w)] = (MODEL, w, dict(small, way=way, moments=moments))
    PROGRAMS["offload-large-w%d" % w] = (MODEL, w, dict(LARGE, way="stream"))


def same_bits(r, name, world, *args):
    base = "offload-none-unclipped-w%d" if name == "unclipped" else "offload-none-w%d"
    same_run(r.train("offload-%s-w%d" % (name, world), world, *args), r.train(base % world, world), "%s %s" % (name, args))
    return "20 steps, the bits of no offload"


def same_narrow_bits(r, way, moments, world):
    """Moments of bf16 or 8 bits, rounded on the device or on the CPU."""
    none, here, wide = (r.train(x % world, world) for x in ("offload-none-%s-moments-w%%d" % moments, "offload-%s-%s-moments-w%%d" % (way, moments), "offload-none-w%d"))
    same_run(here, none, "moments of %s, %s" % (moments, way))
    check(here[1] != wide[1], "moments of fp32 give the same weights")
    return "20 steps, the bits of no offload"


def profile_here(r, world, folder):
    """h200's profile with what this machine's memory gives to `world` GPUs at once: its path, and the figures."""
    raw, path = os.path.join(folder, "raw"), os.path.join(folder, "here.lua")
    with r.machine.lend(world, alone=True) as gpus:
        p = subprocess.run([r.path("sc_calibrate"), "--only", "host", "--world", str(world), "--raw", raw, "-o", os.devnull], env={**r.env, **gpus},
                           capture_output=True, text=True, timeout=120)
    check(p.returncode == 0, "exit %d: %s" % (p.returncode, p.stderr))
    with open(raw) as f:
        given = re.search(r"^host copies\|%d\|(\S+)\|(\S+)\|(\S+)$" % world, f.read(), re.M).groups()
    with open(os.path.join(ROOT, "compiler", "devices", "h200.lua")) as f:
        text, n = re.subn(r"host_reads = \S+, host_writes = \S+, host_both = \S+,", "host_reads = %s, host_writes = %s, host_both = %s," % given, f.read())
    check(n == 1, "h200.lua has no figures of the host's memory")
    with open(path, "w") as f:
        f.write(text)
    return path, ", ".join("%.0f" % (float(x) / 1e9) for x in given)


def as_predicted(r, world):
    """Bound by the bus or the host's memory: twice a block's state travels while it computes."""
    folder, name = tempfile.mkdtemp(dir=r.work), "offload-large-w%d" % world
    log, (profile, given) = os.path.join(folder, "log.jsonl"), profile_here(r, world, folder)
    told = must([r.path("shardc"), "predict", os.path.join(ROOT, MODEL), *settings(PROGRAMS[name][2]), "--world", str(world), "--device", profile, "--format", "json"],
                env=dict(os.environ, LD_LIBRARY_PATH=r.folder))
    r.start(name, world, "--data", r.text, "--steps", "6", "--log", log, alone=True)
    predicted, measured = json.loads(told)["prediction"]["step_us"] / 1e6, min(s["seconds"] for s in steps(read_log(log))[2:])
    says = "a step takes %.1f ms, predicted %.1f with %s GB/s up, down, both" % (measured * 1e3, predicted * 1e3, given)
    check(abs(measured / predicted - 1) < 0.15, says)
    return says


def cases(r):
    for w in WORLDS:
        for name in WAYS:
            yield "rows.S-offload-%s-w%d" % (name, w), w, lambda a=(name, w): same_bits(r, *a)
        for way, moments in itertools.product(("stream", "host"), NARROW):
            yield "rows.S-offload-%s-%s-moments-w%d" % (way, moments, w), w, lambda a=(way, moments, w): same_narrow_bits(r, *a)
        yield "rows.S-offload-poison-w%d" % w, w, lambda w=w: same_bits(r, "stream", w, "--poison")
        yield "rows.S-offload-no-graph-w%d" % w, w, lambda w=w: same_bits(r, "mixed", w, "--no-graph")
        yield "rows.S-offload-again-w%d" % w, w, lambda w=w: once_more(r, "offload-stream-w%d" % w, w)
        yield "rows.S-offload-time-w%d" % w, w, lambda w=w: as_predicted(r, w)
