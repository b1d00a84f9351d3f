"""Rows X1 to X4 and custom ops on GPUs: pairs are rebuilt to the bit, parameters created as shards only, less on the wire in less time.

Relies on: runner.py; tests/program/rows/pair.{lua,cu}, models/extensions. Relied on by: run.py, by its name."""
import json
import os
import random
import re
import struct
import tempfile

from harness import check, read_log, read_safetensors, same_run, steps
from runner import agrees, once_more, same
from test_rows_extension import SHORT

PAIR, GATHER, CUSTOM = (os.path.join(*p) for p in (("tests", "program", "rows", "pair.lua"), ("models", "extensions", "gather.lua"), ("models", "extensions", "custom.lua")))
WORLDS = 1, 2, 4
BATCH, DIM = 8, 8
LARGE = dict(dim=1536, batch=1, seq=32)  # 72 MiB of fp32 a block
PROGRAMS, CPU = {}, []
for w in WORLDS:
    small = dict(batch=BATCH // w)
    for name, options in (("none", dict(extension="none")), ("pair", {}), ("kept", dict(reshard=False)), ("row", dict(align="row", recompute=True)),
                          ("state", dict(optimizer=True)), ("x2", dict(precision="bf16")), ("short", dict(extension="short"))):
        PROGRAMS["extension-%s-w%d" % (name, w)] = (PAIR, w, dict(small, **options))
    for wire in "bf16", "fp8":
        PROGRAMS["extension-%s-w%d" % (wire, w)] = (GATHER, w, dict(small, wire=wire))
    PROGRAMS["extension-custom-w%d" % w] = (CUSTOM, w, small)
    PROGRAMS["extension-packed-w%d" % w] = (os.path.join("tests", "program", "rows", "packed.lua"), w, small)
    CPU += ["extension-packed-w%d" % w, "extension-bf16-w%d" % w, "extension-custom-w%d" % w]
LAUNCH = os.path.join("tests", "program", "rows", "launch.lua")
PROGRAMS.update({"extension-launch-%d" % n: (LAUNCH, 1, dict(threads=n)) for n in (64, 2048)})
for wire in "fp32", "bf16", "fp8":
    for w in 2, 4:
        PROGRAMS["extension-large-%s-w%d" % (wire, w)] = (GATHER, w, dict(LARGE, wire=wire))


def pairs(r, name, world, *args, n=10):
    """(log, weights) of a run on numbers drawn here."""
    def now():
        folder = tempfile.mkdtemp(dir=r.work)
        records, log, weights = (os.path.join(folder, f) for f in ("records", "log.jsonl", "weights.safetensors"))
        draw = random.Random(4)
        with open(records, "wb") as f:
            f.write(struct.pack("<%df" % (n * BATCH * DIM), *[draw.gauss(0, 1) for _ in range(n * BATCH * DIM)]))
        r.start("extension-%s-w%d" % (name, world), world, "--data", "-", "--steps", str(n), "--log", log, "--export", weights, *args, stdin=records)
        return read_log(log), read_safetensors(weights)
    return r.once(("pairs", name, world, args, n), now)


def x1(r, world):
    for name, args in (("pair", ()), ("kept", ()), ("row", ()), ("state", ()), ("pair", ("--no-graph",)), ("pair", ("--poison",))):
        same_run(pairs(r, name, world, *args), pairs(r, "none", world), "pairs: %s %s" % (name, args))
    return "10 steps, the bits of the reference: reshard on and off, whole rows, recompute, optimizer on the host, no graph, poison"


def x2(r, world):
    log, weights = pairs(r, "x2", world, n=3)
    start = pairs(r, "x2", world, "--lr", "0", n=1)[1]
    largest = max(abs(x[0]) for t in start.values() for x in struct.iter_unpack("<f", t[2]))
    check(len(steps(log)) == 3 and 0.5 < largest <= 0.6 and weights != start, "largest initial weight %g" % largest)
    return "3 steps; initial weights within two deviations, the largest %.3f" % largest


def gather_us(r, wire, world):
    """(time of the blocks' gathers in a step in us, the shortest of several steps, loss of the last)."""
    folder = tempfile.mkdtemp(dir=r.work)
    trace, log = os.path.join(folder, "trace.json"), os.path.join(folder, "log.jsonl")
    r.start("extension-large-%s-w%d" % (wire, world), world, "--data", r.text, "--steps", "6", "--trace", trace, "--log", log, alone=True)
    return times(trace), steps(read_log(log))[-1]["loss"]


def times(trace):
    with open(trace) as f:
        events = json.load(f)
    events = events["traceEvents"] if isinstance(events, dict) else events
    names = {}
    for e in events:
        if e.get("ph") == "X" and e["name"].split(" ")[0] in ("g1f", "g2f", "g3f"):
            names.setdefault(e["name"], []).append(e["dur"])
    check(len(names) == 3, "gathers in the trace: %s" % sorted(names))
    return sum(min(d) for d in names.values())


def x3(r, world):
    found = {wire: gather_us(r, wire, world) for wire in ("fp32", "bf16", "fp8")}
    us = {wire: t for wire, (t, _) in found.items()}
    check(us["bf16"] < 0.7 * us["fp32"] and us["fp8"] < 0.45 * us["fp32"], "gathers of three blocks take %s us" % us)
    return "three gathers of 72 MiB: %.0f us in fp32, %.0f in bf16, %.0f in fp8; losses %s" % (us["fp32"], us["bf16"], us["fp8"], {w: round(l, 4) for w, (_, l) in found.items()})


def near_bf16(r, world):
    a, b = (steps(r.train("extension-%s-w%d" % (wire, world), world)[0]) for wire in ("fp8", "bf16"))
    worst = max(abs(x["loss"] - y["loss"]) / y["loss"] for x, y in zip(a, b))
    check(worst < 0.05 and a[-1]["loss"] < a[0]["loss"], "fp8 %s, bf16 %s" % (a[-1], b[-1]))
    return "20 steps, losses within %.1e of bf16's" % worst


def near_cpu(r, name, world):
    """4 bits an element: where rounding decides otherwise than on the CPU a weight is far away, so a little more is allowed."""
    ours, cpu = steps(r.train(name, world)[0]), steps(read_log(r.path(name + ".cpu.jsonl")))
    worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(ours, cpu))
    check(len(ours) == len(cpu) == 20 and worst < 5e-3 and abs(ours[0]["loss"] - cpu[0]["loss"]) < 1e-5 * cpu[0]["loss"], "%s beside the CPU's %s" % (ours[-1], cpu[-1]))
    return "losses within %.1e of the CPU's, the first within 1e-5" % worst


def x4(r, world):
    """A function that says that it wrote less than its wires hold: the run ends with its line before the first step."""
    out = r.start("extension-short-w%d" % world, world, "--data", "-", "--steps", "1", "--quiet", codes=(1,), stdin="/dev/zero")
    said = [re.search(SHORT % "cu", line) for line in out.strip().split("\n")]
    check(all(said) and len(said) == 1, out[-800:])
    return said[0][0]


def launches(r):
    """What a model's own function launches and no GPU can run is told with that function's line."""
    for n, code in (64, 0), (2048, 1):
        out = r.start("extension-launch-%d" % n, 1, "--data", "-", "--steps", "1", "--quiet", codes=(code,), stdin="/dev/zero")
        says = r"CUDA failed: cudaErrorInvalid\w+ \(.*\) in \S+ twice .*\(.*launch\.lua:13\) \[twice at launch\.cu:\d+\]; "
        check(bool(re.search(says, out)) == bool(code), "%d threads: %s" % (n, out[-500:]))
    return "64 threads, 2048 threads"


def cases(r):
    yield "rows.X-launch", 1, lambda: launches(r)
    for w in WORLDS:
        yield "rows.X1-w%d" % w, w, lambda w=w: x1(r, w)
        yield "rows.X2-w%d" % w, w, lambda w=w: x2(r, w)
        yield "rows.X4-w%d" % w, w, lambda w=w: x4(r, w)
        yield "rows.X3-bf16-w%d" % w, w, lambda w=w: agrees(r, "extension-bf16-w%d" % w, w, {})
        yield "rows.X3-fp8-w%d" % w, w, lambda w=w: near_bf16(r, w)
        yield "rows.X3-fp8-again-w%d" % w, w, lambda w=w: once_more(r, "extension-fp8-w%d" % w, w)
        yield "rows.X3-fp8-no-graph-w%d" % w, w, lambda w=w: same(r, "extension-fp8-w%d" % w, w, "extension-fp8-w%d" % w, "--no-graph")
        yield "rows.X3-packed-w%d" % w, w, lambda w=w: near_cpu(r, "extension-packed-w%d" % w, w)
        yield "rows.X-custom-w%d" % w, w, lambda w=w: agrees(r, "extension-custom-w%d" % w, w, {})
        if w > 1:
            yield "rows.X3-less-travels-w%d" % w, w, lambda w=w: x3(r, w)
