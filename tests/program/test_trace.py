"""`inspect --format trace` says what plan.json says, by the rules of the JSON trace-event format: slices of a track do
not overlap, a flow begins in the slice that is awaited and ends in the one that waits, and counters are sums of
storages. Perfetto's own trace processor reads the same from it.

Relies on: harness.py, perfetto.py. Relied on by: run.py."""
import collections
import json
import os

from harness import ROOT, SHARDC, check, command, long, must, scratch, shardc
from perfetto import TraceProcessor, folder
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


def as_perfetto_says(plan, trace, path):
    """How many events were compared."""
    with TraceProcessor(path) as t:
        wrong = t.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        check(not wrong, "the trace processor complains: %s" % wrong)
        check([n for n, in t.query("select name from process where name is not null order by pid")] == [p["name"] for p in plan["programs"]], "processes")
        slices = t.query("select p.name, th.name, s.ts, s.dur, s.name, s.category, extract_arg(s.arg_set_id, 'args.event'), extract_arg(s.arg_set_id, 'args.module'), extract_arg(s.arg_set_id, 'args.bytes'), s.depth"
                         " from slice s join thread_track t on s.track_id = t.id join thread th using (utid) join process p using (upid)")
        want, flows = set(), collections.Counter()
        for p in plan["programs"]:
            for e in p["events"]:
                begin, end = ns(e["start_us"]), ns(e["start_us"] + e["duration_us"])
                want.add((p["name"], e["stream"], begin, end - begin, e["id"] + " " + e["op"], e["phase"], e["id"], e["module"], e["bytes"]))
                flows.update((p["name"], w, e["id"]) for w in e["waits"])
        check(all(s[9] == 0 for s in slices), "slices lie within others: %s" % [s for s in slices if s[9]][:3])
        got = {s[:9] for s in slices}
        near = lambda a, b: a[:2] == b[:2] and a[4:] == b[4:] and abs(a[2] - b[2]) <= 1 and abs(a[3] - b[3]) <= 1  # a time may lie between two nanoseconds
        left = {s[:2] + s[6:7]: s for s in want - got}
        check(len(slices) == len(got) == len(want) and all(near(s, left.get(s[:2] + s[6:7], s)) for s in got - want) and len(got - want) == len(left), "slices: %s, the plan says %s" % (list(got - want)[:2], list(left.values())[:2]))
        ends = "select p.name, extract_arg(a.arg_set_id, 'args.event'), extract_arg(b.arg_set_id, 'args.event') from flow f join slice a on a.id = f.slice_out join slice b on b.id = f.slice_in join thread_track t on a.track_id = t.id join thread using (utid) join process p using (upid)"
        check(collections.Counter(t.query(ends)) == flows, "flows are not the plan's waits")
        counters = t.query("select p.name, t.name, c.ts, c.value from counter c join process_counter_track t on t.id = c.track_id join process p using (upid)")
        programs = named(trace, "process")
        said = {(programs[c["pid"]], "%s %s" % (c["name"], k), ns(c["ts"]), v) for c in trace if c["ph"] == "C" for k, v in c["args"].items()}
        check(len(counters) == len(said) and set(counters) == said, "counters: %s" % list(set(counters) ^ said)[:3])
    return len(slices)


@long
def test_perfetto_reads_what_the_plan_says():
    if not folder():
        return "skipped: no trace processor (make setup fetches it where there is a network)"
    path, count, wanted = os.path.join(scratch("trace"), "trace.json"), 0, PLANS[:4] + [("gpt2.lua", 8, dict(layers=3, offload="activations", prefetch=2), "--device", "h100")]
    for model, world, options, *more in wanted:
        args = arguments(model, world, options) + more
        shardc("inspect", *args, "--format", "trace", "-o", path)
        with open(path) as f:
            trace = json.load(f)["traceEvents"]
        count += as_perfetto_says(json.loads(shardc("inspect", *args, "--format", "json")), trace, path)
    return "%d events of %d plans" % (count, len(wanted))


def test_trace_of_many_events_leaves_none_out():
    path = os.path.join(scratch("trace"), "plan.json")
    out = os.path.join(os.path.dirname(path), "trace.json")
    args = arguments("gpt2.lua", 4, dict(layers=200, dim=64, heads=4, vocab=256, batch=1, seq=32, recompute="full"))
    shardc("inspect", *args, "--device", "h200", "--format", "json", "-o", path)
    with open(path) as f:
        events = sum(len(p["events"]) for p in json.load(f)["programs"])
    must([SHARDC, "inspect", path, "--format", "trace", "-o", out])
    with open(out) as f:
        check(sum(e["ph"] == "X" for e in json.load(f)["traceEvents"]) == events, "events are missing")
    return "%d events" % events


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
