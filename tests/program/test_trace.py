"""`inspect --format trace` says what plan.json says, by the rules of the JSON trace-event format: slices of a track do
not overlap, a flow begins in the slice that is awaited and ends in the one that waits, and counters are sums of
storages. Perfetto's own trace processor is a program that pip does not bring, so the rules are checked here.

Relies on: harness.py. Relied on by: run.py."""
import collections
import json
import os

from harness import ROOT, SHARDC, check, command, cpu_seconds, must, scratch, shardc
from test_verify import PLANS, arguments

DEVICE = "device memory"


def ns(us):
    return round(us * 1e3)


def named(trace, kind):
    """pid or (pid, tid): name, from the trace's metadata."""
    rows = [e for e in trace if e["ph"] == "M" and e["name"] == kind + "_name"]
    names = {e["pid"] if kind == "process" else (e["pid"], e["tid"]): e["args"]["name"] for e in rows}
    check(len(names) == len(rows), "a %s is named twice" % kind)
    return names


def compare_slices(program, slices, threads):
    check(len(slices) == len(program["events"]), "%d slices of %d events" % (len(slices), len(program["events"])))
    by_id = {s["args"]["event"]: s for s in slices}
    tracks = collections.defaultdict(list)
    for e in program["events"]:
        s = by_id[e["id"]]
        where, args = (s["pid"], s["tid"]), s["args"]
        check(threads[where] == e["stream"], "%s is on track %s" % (e["id"], threads[where]))
        check(s["name"] == "%s %s" % (e["id"], e["op"]) and s["cat"] == e["phase"], "%s is called %s" % (e["id"], s["name"]))
        said = [args[k] for k in ("program", "op", "module", "bytes", "flops")]
        check(said == [program["name"], e["op"], e["module"], e["bytes"], e["flops"]], "%s has args %s" % (e["id"], args))
        check(e.get("source") == ("%s:%d" % (args["file"], args["line"]) if "file" in args else None), "%s: source %s" % (e["id"], args))
        begin, end = ns(s["ts"]), ns(s["ts"]) + ns(s["dur"])
        for said, meant in ((begin, e["start_us"]), (end, e["start_us"] + e["duration_us"])):
            check(abs(said - 1e3 * meant) <= 0.5001, "%s: %d ns in the trace, %g us in the plan" % (e["id"], said, meant))
        tracks[where].append((begin, end, e["id"]))
    for spans in tracks.values():
        for (_, end, x), (begin, _, y) in zip(sorted(spans), sorted(spans)[1:]):
            check(begin >= end, "%s and %s overlap on one track" % (x, y))
    return by_id, tracks


def compare_flows(program, flows, by_id, tracks):
    """A flow's end belongs to the slice that encloses it; of a slice without duration the time is the slice's own."""
    def at(f):
        t = ns(f["ts"])
        hits = [i for b, e, i in tracks[f["pid"], f["tid"]] if b <= t < e or b == e == t]
        check(hits, "flow %d lies in no slice" % f["id"])
        return set(hits)
    starts = {f["id"]: f for f in flows if f["ph"] == "s"}
    ends = {f["id"]: f for f in flows if f["ph"] == "f"}
    check(starts.keys() == ends.keys() and 2 * len(starts) == len(flows), "flows without an end")
    check(all(f["bp"] == "e" for f in ends.values()), "an end of a flow does not bind to what encloses it")
    waits = [(w, e["id"]) for e in program["events"] for w in e["waits"]]
    check(len(waits) == len(starts), "%d flows for %d waits" % (len(starts), len(waits)))
    for (awaited, waiting), k in zip(waits, sorted(starts)):
        check(awaited in at(starts[k]) and waiting in at(ends[k]), "flow %d is not from %s to %s" % (k, awaited, waiting))
        check(ns(starts[k]["ts"]) <= ns(ends[k]["ts"]), "flow %d goes back in time" % k)


def compare_counters(plan, program, counters, by_id):
    """At every counter, and so at every change, the sums of what is alive from the first to the last access in time."""
    lives = []
    spans = collections.defaultdict(list)
    for e in program["events"]:
        s = by_id[e["id"]]
        for storage, _, _ in e["reads"] + e["writes"]:
            spans[storage] += [ns(s["ts"]), ns(s["ts"]) + ns(s["dur"])]
    for s in plan["storages"]:
        if s["arena"] == "device" and "program" not in s:
            lives.append((0, float("inf"), s["class"], s["size"]))
        elif s["arena"] == "device" and s["program"] == program["name"]:
            lives.append((min(spans[s["id"]]), max(spans[s["id"]]), s["class"], s["size"]))
    times = [ns(c["ts"]) for c in counters]
    check(times == sorted(set(times)), "counters are out of order")
    want = {0} | {t for b, e, _, _ in lives for t in (b, e) if t != float("inf")}
    check(set(times) == want, "counters at other times than those of changes: %s" % sorted(set(times) ^ want)[:5])
    check({c["name"] for c in counters} == {DEVICE}, "counters of other names")
    for c in counters:
        t, sums = ns(c["ts"]), collections.Counter()
        for begin, end, of, size in lives:
            if begin <= t < end:
                sums[of] += size
        check({k: v for k, v in c["args"].items() if v} == dict(sums), "at %d ns: %s, not %s" % (t, c["args"], dict(sums)))
        check(c["args"].keys() == counters[0]["args"].keys(), "classes come and go")


def compare(plan, trace):
    processes, threads = named(trace, "process"), named(trace, "thread")
    check(list(processes.values()) == [p["name"] for p in plan["programs"]], "programs %s" % processes)
    numbers = [t for _, t in threads] + list(processes)
    check(len(set(numbers)) == len(numbers) and 0 not in numbers, "numbers of processes and threads collide")
    count = 0
    for pid, program in zip(processes, plan["programs"]):
        mine = [e for e in trace if e["pid"] == pid]
        kinds = collections.defaultdict(list)
        for e in mine:
            kinds[e["ph"]].append(e)
        check(not kinds.keys() - set("MXsfC"), "entries of kinds %s" % list(kinds))
        by_id, tracks = compare_slices(program, kinds["X"], threads)
        compare_flows(program, kinds["s"] + kinds["f"], by_id, tracks)
        compare_counters(plan, program, kinds["C"], by_id)
        count += len(program["events"])
    return count


def test_trace_says_what_the_plan_says():
    count = 0
    wanted = PLANS + [("gpt2.lua", 4, dict(layers=4), "--device", "h200"),
                      ("gpt2.lua", 8, dict(layers=3, offload="activations", prefetch=2), "--device", "h100")]
    for model, world, options, *more in wanted:
        args = arguments(model, world, options) + more
        plan = json.loads(shardc("inspect", *args, "--format", "json"))
        count += compare(plan, json.loads(shardc("inspect", *args, "--format", "trace"))["traceEvents"])
    return "%d events of %d plans" % (count, len(wanted))


def test_trace_of_100_000_events_takes_a_second():
    path = os.path.join(scratch("trace"), "plan.json")
    out = os.path.join(os.path.dirname(path), "trace.json")
    args = arguments("gpt2.lua", 4, dict(layers=1000, dim=64, heads=4, vocab=256, batch=1, seq=32, recompute="full"))
    shardc("inspect", *args, "--device", "h200", "--format", "json", "-o", path)
    with open(path) as f:
        events = sum(len(p["events"]) for p in json.load(f)["programs"])
    took = []
    for _ in range(3):  # other load only adds to what a run takes
        before = cpu_seconds()
        must([SHARDC, "inspect", path, "--format", "trace", "-o", out])
        took.append((cpu_seconds() - before) / events * 1e5)
    check(min(took) < 1, "%.2f s of processor time for 100,000 events" % min(took))
    with open(out) as f:
        check(sum(e["ph"] == "X" for e in json.load(f)["traceEvents"]) == events, "events are missing")
    return "%d events: %.2f s for 100,000" % (events, min(took))


def test_trace_escapes_what_a_path_may_hold():
    folder = os.path.join(scratch("trace"), 'a "quoted" \\ <b>ü')
    os.makedirs(folder)
    model = os.path.join(folder, "net.lua")
    with open(os.path.join(ROOT, "models", "mlp.lua")) as f, open(model, "w") as g:
        g.write(f.read())
    rows = json.loads(shardc("inspect", model, "--format", "trace"))["traceEvents"]
    check(model in {e["args"].get("file") for e in rows if e["ph"] == "X"}, "the model's path is not in the trace")


def test_trace_shows_names_as_they_are():
    """Names from a plan.json, which need not be what the compiler allows."""
    folder = scratch("trace")
    plan = json.loads(shardc("inspect", os.path.join(ROOT, "models", "mlp.lua"), "--world", "2", "--format", "json"))
    for k, name in enumerate(["</script>\"\\", "n" * 10000, "\u202emrof\u2028\U0001f600 שלום", "'`${1}&lt;"]):
        for p in plan["programs"]:
            for e in p["events"]:
                e["op"], e["module"], e["source"] = name, name, name + ":7"
        path = os.path.join(folder, "%d.plan.json" % k)
        with open(path, "w") as f:
            json.dump(plan, f)
        slices = [e for e in json.loads(shardc("inspect", path, "--format", "trace"))["traceEvents"] if e["ph"] == "X"]
        check(len(slices) == sum(len(p["events"]) for p in plan["programs"]), "%d slices" % len(slices))
        for s in slices:
            said = s["name"].split(" ", 1)[1], s["args"]["module"], s["args"]["file"]
            check(said == (name, name, name), "a slice says %s" % [t[:80] for t in said])


def test_trace_takes_no_filters():
    args = arguments("mlp.lua", 1, {})
    for extra in (["--program", "micro"], ["--module", "*"], ["--stream", "compute"], ["--columns", "op"]):
        rc, out, err = command([SHARDC, "inspect", *args, "--format", "trace", *extra])
        check(rc == 2 and "--format trace writes the whole plan" in err and not out, "%s: exit %d, %s" % (extra, rc, err))
