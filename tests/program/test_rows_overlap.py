"""Rows O1 to O3 of the behaviours: what must hide behind what, on a virtual clock that the executed waits move, and in the
schedule itself. The wall clock's turn is in tests/gpu/rows_overlap.py.

Relies on: harness.py, rows/overlap_*.lua. Relied on by: run.py, tests/gpu/rows_overlap.py (the bounds, PREDICTED)."""
import json
import os

import pages
from harness import ROWS, SHARDC, build, check, command, entry, must, read_log, scratch, shardc, steps, write_numbers

UNITS, AFTER = os.path.join(ROWS, "overlap_units.lua"), os.path.join(ROWS, "overlap_update.lua")
WORLDS = (2, 4)

# O1: three linears of 25 ms forward and 50 ms backward, collectives 10 ms late
FORWARD = 10 + 3 * 25 + 2
STEP = FORWARD + 2 * 10 + 6 * 25 + 4
PREDICTED = 255.2  # ms of a step on h200 at any world: GPUs are held to it, and it to the plan
# O2: five steps of 75 ms; gathers 10 ms late hide, but for the first
FIVE, EACH = 5 * (75 + 4) + 10, 75 + 4


def records(path, world, steps, width=4, batch=2):
    """What `--data -` reads: x of all ranks, step by step."""
    return write_numbers(path, "f", [i * 37 % 64 / 64 - 0.5 for i in range(steps * world * batch * width)])


def clocked(model, world, n, *args, **options):
    """(ms of each step, {event: (start ms, end ms) of the last step} of rank 0) by the virtual clock."""
    folder = scratch("clock")
    trace, log = os.path.join(folder, "trace.json"), os.path.join(folder, "log.jsonl")
    with open(records(os.path.join(folder, "x"), world, n), "rb") as x:
        must([build(model, world=world, **options), "--data", "-", "--steps", str(n), "--virtual-clock", "--log", log, "--trace", trace, *args], stdin_file=x)
    with open(trace) as f:
        events = [e for e in json.load(f) if e["ph"] == "X" and e["pid"] == 0 and e["args"]["program"] == "micro" and e["args"]["step"] == n]
    begin = min(e["ts"] for e in events)
    return [1e3 * s["seconds"] for s in steps(read_log(log))], {e["args"]["event"]: (e["cat"], (e["ts"] - begin) / 1e3, (e["ts"] + e["dur"] - begin) / 1e3) for e in events}


def times(model, world, *args):
    """What `verify` says of the program micro: exit code, times, findings."""
    rc, out, err = command([SHARDC, "verify", model, "--world", str(world), "--format", "json", *args])
    check(out.startswith("{"), "verify: exit %d: %s" % (rc, err))
    report = json.loads(out)
    return rc, report["times"][0], report["findings"]


def test_O1_gathers_and_reduces_hide_behind_compute():
    for world in WORLDS:
        took, events = clocked(UNITS, world, 2, "--delay-collectives", "10")
        forward = max(end for phase, _, end in events.values() if phase == "forward")
        check(forward <= FORWARD, "world %d: the forward takes %.3f ms, more than %d" % (world, forward, FORWARD))
        check(took[0] == took[1] and took[1] <= STEP, "world %d: steps take %s ms, more than %d" % (world, took, STEP))
        check(took[1] >= 10 + 9 * 25, "world %d: a step takes %.3f ms: nobody slept" % (world, took[1]))
        _, predicted, _ = times(UNITS, world, "--delay-collectives", "10")
        for name, a, b in (("step", predicted["step_ms"], took[1]), ("forward", predicted["forward_ms"], forward)):
            check(abs(a / b - 1) <= 0.05, "world %d: %s: %.3f ms predicted, %.3f measured" % (world, name, a, b))
    # one after another it would take: 5 gathers, 3 reduces and 2 sums of 10 ms, 9 times 25 ms
    return "forward %.1f ms of %d, step %.1f of %d; predicted %.1f" % (forward, FORWARD, took[1], STEP, predicted["step_ms"])


def test_O1_clock_is_that_of_the_waits():
    """Events that wait for nothing, or for each other in any legal order, come to the same times; a delay of gathers alone
    shows in gathers alone."""
    plain = clocked(UNITS, 2, 1, "--delay-collectives", "10")
    for seed in range(3):
        check(clocked(UNITS, 2, 1, "--delay-collectives", "10", "--interleave", str(seed)) == plain, "interleave %d: other times" % seed)
    took, events = clocked(UNITS, 2, 1, "--delay-collectives", "gather=7")
    late = {i: end - start for i, (_, start, end) in events.items() if end > start}
    check({i: round(ms) for i, ms in late.items() if i[0] == "g"} == {"g1f": 7, "g2f": 7, "g3f": 7, "g2b": 7, "g3b": 7}, "gathers: %s" % late)
    check(all(i[0] in "ge" for i in late) and took == [7 + 225], "only gathers are late: %s, %s" % (took, late))
    check(clocked(UNITS, 2, 1)[0] == [225], "without delay a step takes the linears' time")
    return "threads and 3 orders of events, one time"


def test_O3_schedule_holds_O1():
    said = []
    for world in WORLDS:
        for device in ("cpu", "h200"):
            bounds = ["--delay-collectives", "10", "--device", device, "--max-forward-ms", str(FORWARD), "--max-step-ms", str(STEP), "--max-exposed-ms", "34"]
            rc, t, found = times(UNITS, world, *bounds)
            check(rc == 0 and not found, "world %d, %s: %s" % (world, device, found))
            check(device == "cpu" or abs(t["step_ms"] - PREDICTED) < 0.1, "world %d: a step of %.3f ms is predicted, and GPUs are held to %.1f" % (world, t["step_ms"], PREDICTED))
            said.append(t["step_ms"])
            rc, t, found = times(UNITS, world, *bounds[:-1], "29")
            check(rc == 1 and [f["rule"] for f in found] == ["exposed"] and "exposed in 3 places" in found[0]["text"] and found[0]["text"].count(" waits ") == 3, "exposed: %s" % found)
    rc, t, found = times(UNITS, 2, "--delay-collectives", "10", "--max-step-ms", "250", "--max-forward-ms", "80")
    check(rc == 1 and [f["rule"] for f in found] == ["forward-time", "step-time"], "broken bounds: %s" % found)
    check("g1f (gather 10.008 ms), e0 to " in found[1]["text"] and "r1 (reduce 10.008 ms)" in found[1]["text"], "critical path: " + found[1]["text"])
    out = shardc("predict", UNITS, "--world", "2", "--delay-collectives", "10")
    check(entry(out, "step").startswith("255."), "predict: " + out)
    plan = build(UNITS, world=2) + ".plan.json"  # a plan holds it as its model does
    for most, code in ((STEP, 0), (250, 1)):
        check(command([SHARDC, "verify", plan, "--delay-collectives", "10", "--max-step-ms", str(most)])[0] == code, "plan.json, %d ms" % most)
    return "steps of %s ms" % ", ".join("%.2f" % x for x in said)


def test_O2_next_gather_hides_behind_the_first_linear():
    said = []
    for world in WORLDS:
        took, events = clocked(AFTER, world, 5, "--delay-collectives", "gather=10")
        check(len(took) == 5 and sum(took) <= FIVE, "world %d: five steps take %s ms, more than %d" % (world, took, FIVE))
        _, gather, ready = events["g0f"]
        _, start, end = next(v for k, v in events.items() if k == "e1")
        check(gather == 0 and ready == 10 and start <= gather and ready <= end, "world %d: the gather from %s to %s, the linear from %s to %s" % (world, gather, ready, start, end))
        off, events = clocked(AFTER, world, 5, "--delay-collectives", "gather=10", prefetch=0)
        check(sum(off) >= sum(took) + 5 * 10 and sum(off) > FIVE, "world %d: %s ms without prefetch" % (world, off))
        check(events["g0f"][1] >= 25, "world %d: without prefetch the gather begins at %s" % (world, events["g0f"][1]))
        said.append("%.1f and %.1f ms" % (sum(took), sum(off)))
    return "five steps with and without: %s; at most %d" % ("; ".join(said), FIVE)


def test_O3_schedule_holds_O2():
    for world in WORLDS:
        for device in ("cpu", "h200"):
            bound = ["--delay-collectives", "gather=10", "--device", device, "--max-step-ms", str(EACH)]
            rc, t, found = times(AFTER, world, *bound)
            check(rc == 0 and not found, "world %d, %s: %s" % (world, device, found))
            rc, _, found = times(AFTER, world, *bound, "--set", "prefetch=0")
            check(rc == 1 and "g0f (gather 10." in found[0]["text"], "world %d, %s, no prefetch: %s" % (world, device, found))
    return "step %.2f ms of %d" % (t["step_ms"], EACH)


def test_O3_page():
    return pages.holds("models/behaviours/overlap.md", 12)
