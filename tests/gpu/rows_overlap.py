"""Rows O1 and O2 on the wall clock: linears that sleep and collectives that come late, alone on their GPUs. The bounds are those of
tests/program/test_rows_overlap.py.

Relies on: runner.py. Relied on by: run.py, by its name."""
import json
import os
import tempfile

from harness import check, read_log, steps
from test_rows_overlap import EACH, FIVE, FORWARD, PREDICTED, STEP, records

PROGRAMS = {}
for w in (2, 4):
    PROGRAMS["overlap-units-w%d" % w] = ("tests/program/rows/overlap_units.lua", w, {})
    for prefetch in (1, 0):
        PROGRAMS["overlap-update%d-w%d" % (prefetch, w)] = ("tests/program/rows/overlap_update.lua", w, dict(prefetch=prefetch))


def timed(r, name, world, n, *args):
    """ms of each step but the first two, and the trace's events of the last step on rank 0 where args ask for one."""
    folder = tempfile.mkdtemp(dir=r.work)
    log = os.path.join(folder, "log.jsonl")
    r.start("%s-w%d" % (name, world), world, "--data", "-", "--steps", str(n), "--log", log, *args, stdin=records(os.path.join(folder, "x"), world, n), alone=True)
    return [1e3 * s["seconds"] for s in steps(read_log(log))][2:]


def units(r, world):
    took = timed(r, "overlap-units", world, 7, "--delay-collectives", "10")
    trace = os.path.join(tempfile.mkdtemp(dir=r.work), "trace.json")
    timed(r, "overlap-units", world, 4, "--delay-collectives", "10", "--trace", trace)
    with open(trace) as f:
        events = [e for e in json.load(f) if e["ph"] == "X" and e["pid"] == 0 and e["args"]["program"] == "micro" and e["args"]["step"] == 4]
    forward = (max(e["ts"] + e["dur"] for e in events if e["cat"] == "forward") - min(e["ts"] for e in events)) / 1e3
    step = sorted(took)[len(took) // 2]
    note = "forward %.2f ms of %d, steps %s of %d, predicted %.1f" % (forward, FORWARD, ", ".join("%.2f" % t for t in took), STEP, PREDICTED)
    check(forward <= FORWARD and step <= STEP and abs(PREDICTED / step - 1) <= 0.05, note)
    return note


def update(r, world):
    took, off = (timed(r, "overlap-update%d" % p, world, 7, "--delay-collectives", "gather=10") for p in (1, 0))
    note = "five steps %.2f ms of %d, each of %d; without prefetch %.2f" % (sum(took), FIVE, EACH, sum(off))
    check(len(took) == 5 and sum(took) <= FIVE and sum(off) > sum(took) + 40, note)
    return note


def cases(r):
    for w in (2, 4):
        yield "rows.O1-w%d" % w, w, lambda w=w: units(r, w)
        yield "rows.O2-w%d" % w, w, lambda w=w: update(r, w)
