"""`inspect --actual`: a run's --trace beside its plan. A slow join in Python is the oracle of every figure in the JSON; text and page show the same
figures; a trace that is cut off, of another plan or of too few ranks is refused by file and line.

Relies on: harness.py, browser.py, the models. Relied on by: run.py, test_calibrate.py."""
import collections
import copy
import json
import os
import random
import re
import statistics

from browser import Browser
from harness import ROOT, SHARDC, build, check, command, corpus, groups_of, run, scratch, settings, shardc

GPT2 = dict(layers=2, dim=32, heads=2, vocab=256, batch=2, seq=16)
RUNS = [("mlp.lua", 1, {}, ()), ("mlp.lua", 2, {}, ()), ("gpt2.lua", 2, dict(GPT2, accumulate=3), ("--accumulate", "3", "--eval-every", "2", "--eval-steps", "2"))]


def traced(model, world, options, more=(), steps=5):
    """(binary, path of the trace)"""
    binary, path = build(model, world=world, **options), os.path.join(scratch("actual"), "run.json")
    validation = ("--val-data", corpus()) if "--eval-every" in more else ()
    run(binary, "--data", corpus(), "--steps", str(steps), *more, *validation, "--trace", path)
    return binary, path


def read(path):
    with open(path) as f:
        return json.load(f)


def write(path, entries):
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(e) for e in entries) + "\n]\n")
    return path


def near(a, b, what, bound=1e-6):
    check(abs(a - b) <= bound * max(1, abs(a), abs(b)), "%s is %.9g, wanted %.9g" % (what, a, b))


def as_planned(plan, trace, factor, gap=0.0):
    """The trace as if each event took `factor(e, step)` times as long as planned and began as soon as its stream, its waits and the ranks
    that it meets let it."""
    events, at, out = {p["name"]: {e["id"]: e for e in p["events"]} for p in plan["programs"]}, {}, [e for e in trace if e["ph"] == "M"]
    runs = Joined(plan, trace).runs
    for program, ranks in runs.items():
        for k in range(len(ranks[0])):
            ends, free, began = {}, collections.Counter(), 1e6 * (k + 1)
            for e in next(p for p in plan["programs"] if p["name"] == program)["events"]:
                begin = max([free[e["stream"]]] + [ends[w] for w in e["waits"]])
                ends[e["id"]] = begin + e["duration_us"] * factor(e, k)
                free[e["stream"]] = ends[e["id"]] + gap
                at[program, k, e["id"]] = began + begin, ends[e["id"]] - begin
    seen = collections.Counter()
    for e in (e for e in trace if e["ph"] == "X"):
        key = e["args"]["program"], e["args"]["event"]
        ts, dur = at[key[0], seen[e["pid"], key], key[1]]
        seen[e["pid"], key] += 1
        out.append(dict(e, ts=round(ts, 3), dur=round(dur, 3)))
    return out


class Joined:
    """The trace as runs[program][rank] = [{event: (begin, end)}, ...] and their steps."""

    def __init__(self, plan, trace):
        self.plan, self.groups = plan, groups_of(plan)
        self.runs, self.steps = collections.defaultdict(lambda: collections.defaultdict(list)), {}
        for e in (e for e in trace if e["ph"] == "X"):
            a, mine = e["args"], self.runs[e["args"]["program"]][e["pid"]]
            if not mine or a["event"] in mine[-1]:
                mine.append({})
            mine[-1][a["event"]] = (e["ts"], e["ts"] + e["dur"])
            self.steps[a["program"], len(mine) - 1] = a["step"]
        self.training = [p["name"] for p in plan["programs"] if p["name"] in self.runs and p["name"].startswith("micro")]

    def members(self, e, rank):
        ranks, apart = self.groups[e["comm"]]
        first = rank - rank // apart % ranks * apart
        return [first + k * apart for k in range(ranks)]

    def meets(self, e):
        return "comm" in e and self.groups[e["comm"]][0] > 1

    def took(self, program, e, rank, k):
        """Of a collective, as long as the rank that arrived last was in it."""
        long = lambda r: self.runs[program][r][k][e["id"]][1] - self.runs[program][r][k][e["id"]][0]
        return min(map(long, self.members(e, rank))) if self.meets(e) else long(rank)

    def event(self, program, e):
        ranks, out = self.runs[program], ([], [], [])
        for r, runs in ranks.items():
            for k, events in enumerate(runs):
                start = min(b for b, _ in events.values())
                out[0].append(self.took(program, e, r, k))
                out[1].append(events[e["id"]][0] - start)
                out[2].append(events[e["id"]][1] - start)
        return [statistics.median(x) for x in out]

    def spans(self, program, rank):
        return [(min(b for b, _ in x.values()), max(e for _, e in x.values())) for x in self.runs[program][rank]]

    def ranks(self):
        """By rank and step: in programs, compute, collectives, waiting; how often it came last."""
        first = min(self.steps[p, 0] for p in self.training)
        sums, last = collections.defaultdict(lambda: [0] * 4), collections.Counter()
        for p in (x for x in self.plan["programs"] if x["name"] in self.training):
            for rank in self.runs[p["name"]]:
                for k, (begin, end) in enumerate(self.spans(p["name"], rank)):
                    row = sums[rank, self.steps[p["name"], k] - first]
                    row[0] += end - begin
                    for e in p["events"]:
                        long = self.runs[p["name"]][rank][k][e["id"]][1] - self.runs[p["name"]][rank][k][e["id"]][0]
                        row[1] += long * (e["stream"] == "compute")
                        if self.meets(e):
                            least = self.took(p["name"], e, rank, k)
                            row[2] += long
                            row[3] += long - least
                            last[rank] += rank == min(self.members(e, rank), key=lambda r: self.runs[p["name"]][r][k][e["id"]][1] - self.runs[p["name"]][r][k][e["id"]][0])
        return sums, last


def compare(plan, trace, said):
    j = Joined(plan, trace)
    nsteps = said["last_step"] - said["first_step"] + 1
    ran = {(p, s) for (p, _), s in j.steps.items() if p in j.training}
    check({s for _, s in ran} == set(range(said["first_step"], said["last_step"] + 1)), "steps %s" % ran)
    check([p["name"] for p in said["programs"]] == [p["name"] for p in plan["programs"] if p["name"] in j.runs], "programs that ran")
    sums = {"by_op": collections.defaultdict(lambda: [0.0] * 4), "by_phase": collections.defaultdict(lambda: [0.0] * 4)}
    predicted, error, count = 0, 0, 0
    for p in said["programs"]:
        planned = next(x for x in plan["programs"] if x["name"] == p["name"])
        share = p["runs"] / nsteps if p["name"] in j.training else 0
        near(p["per_step"], share, p["name"] + " a step")
        spans = [j.spans(p["name"], r) for r in j.runs[p["name"]]]
        near(p["actual_us"], statistics.median(max(s[k][1] - s[k][0] for s in spans) for k in range(p["runs"])), p["name"])
        predicted += share * planned["step_us"]
        check([e["id"] for e in p["events"]] == [e["id"] for e in planned["events"]], "events of " + p["name"])
        for e, said_of_it in zip(planned["events"], p["events"]):
            us, begin, end = j.event(p["name"], e)
            for key, want in (("actual_us", us), ("begin_us", begin), ("end_us", end), ("predicted_us", e["duration_us"])):
                near(said_of_it[key], want, "%s of %s" % (key, e["id"]), 1e-4)
            for row in (sums["by_op"][e["op"]], sums["by_phase"][e["phase"]]) if share else ():
                for i, x in enumerate((1, e["duration_us"], us, abs(us - e["duration_us"]))):
                    row[i] += share * x
            error += share * abs(us - e["duration_us"])
            count += 1
    near(said["predicted_us"], predicted, "predicted step")
    near(said["error_us"], error, "error", 1e-4)
    for key in sums:
        check({r["name"] for r in said[key]} == set(sums[key]), key)
        check([r["error_us"] for r in said[key]] == sorted((r["error_us"] for r in said[key]), reverse=True), "the largest error first")
        for r in said[key]:
            for k, want in zip(("events", "predicted_us", "actual_us", "error_us"), sums[key][r["name"]]):
                near(r[k], want, "%s of %s" % (k, r["name"]), 1e-4)
    rows, last = j.ranks()
    for rank, r in enumerate(said["ranks"]):
        for i, key in enumerate(("step_us", "compute_us", "collective_us", "waiting_us")):
            near(r[key], statistics.median(rows[rank, t][i] for t in range(nsteps)), "%s of rank %d" % (key, rank), 1e-4)
        check(r["arrives_last"] == last[rank], "rank %d is last %d times, not %d" % (rank, r["arrives_last"], last[rank]))
    slowest = max(said["ranks"], key=lambda r: r["step_us"])
    near(said["actual_compute_us"], slowest["compute_us"], "the slowest rank's compute")
    near(said["median_compute_us"], sum(r for p in said["programs"] for e, r in zip(next(x for x in plan["programs"] if x["name"] == p["name"])["events"], (p["per_step"] * e["actual_us"] for e in p["events"])) if e["stream"] == "compute"), "medians of compute", 1e-4)
    near(said["actual_us"], statistics.median(max(rows[r, t][0] for r in range(len(said["ranks"]))) for t in range(nsteps)), "actual step", 1e-4)
    return count


def test_a_run_is_joined_as_the_oracle_says():
    count = 0
    for model, world, options, more in RUNS:
        binary, path = traced(model, world, options, more)
        plan, trace = json.loads(shardc("inspect", binary, "--format", "json")), read(path)
        said = shardc("inspect", binary, "--actual", path, "--format", "json")
        count += compare(plan, trace, json.loads(said))
        folder = scratch("actual")  # a file for each rank, in an object as other tools keep it, says the same
        files = []
        for rank in range(world):
            files.append(os.path.join(folder, "%d.json" % rank))
            with open(files[-1], "w") as f:
                json.dump({"displayTimeUnit": "ns", "traceEvents": [e for e in trace if e["pid"] == rank]}, f, indent=1)
        split = json.loads(shardc("inspect", binary, "--actual", ",".join(files), "--format", "json"))
        check({k: v for k, v in split.items() if k != "files"} == {k: v for k, v in json.loads(said).items() if k != "files"}, "files of single ranks say something else")
    return "%d events of %d runs" % (count, len(RUNS))


def times(trace, factor=lambda e: 1.0, gap=0.0):
    """The trace with every stream's events one after another, each `factor(e)` us long."""
    at, out = collections.Counter(), []
    for e in copy.deepcopy(trace):
        if e["ph"] == "X":
            e["ts"], e["dur"] = at[e["pid"]], factor(e)
            at[e["pid"]] += e["dur"] + gap
        out.append(e)
    return out


def test_text_shows_the_largest_difference_and_the_straggler():
    binary, path = traced("mlp.lua", 2, {})
    # rank 1 comes late to every collective: the others are in it for 50 us, rank 1 for 10
    slow = lambda e: (50.0 if e["pid"] == 0 else 10.0) if e["name"].split()[1] in ("all_gather", "all_reduce", "reduce_scatter") else 5000.0 if e["args"]["event"] == "e19" else 1.0
    write(path, times(read(path), slow))
    text = shardc("inspect", binary, "--actual", path)
    head, lines = text.split("\ntimes are ")[0], re.sub(r"\n {14}(?=\S)", " ", text).splitlines()
    check("steps 1 to 5" in head and path in head, head)
    check(all(len(line) <= 80 or path in line for line in text.splitlines()), text)
    first = lines[lines.index("largest differences of a step") + 1].split()
    check(first[:2] == ["+5.0", "ms"] and {"e19", "micro", "mlp.lua:24", "e17.y"} <= set(first), "the largest is %s" % first)
    check(any(line.split()[:3] == ["matmul", "164.3", "us"] for line in lines), text)
    ranks = lines[next(i for i, line in enumerate(lines) if line.startswith("rank ")) + 1:]
    check(ranks[0].split()[-3:] == ["0", "of", "20"] and ranks[1].split()[-3:] == ["20", "of", "20"], "ranks: %s" % ranks)
    check("200.0 us" in ranks[0] and "160.0 us" in ranks[0] and "40.0 us" in ranks[1], "ranks: %s" % ranks)
    text = shardc("inspect", binary, "--actual", path, "--program", "init")
    check("zero7" in text and "e19" not in text, "--program init: " + text)
    one = traced("mlp.lua", 1, {})
    check("arrives last" not in shardc("inspect", one[0], "--actual", one[1]), "one rank has no stragglers")


def test_a_run_without_training_is_compared_too():
    binary, path = traced("mlp.lua", 2, {}, steps=2)
    write(path, [e for e in read(path) if e["ph"] == "M" or e["args"]["program"] == "init"])
    said = json.loads(shardc("inspect", binary, "--actual", path, "--format", "json"))
    check(said["last_step"] < said["first_step"] and [p["name"] for p in said["programs"]] == ["init"] and said["actual_us"] > 0, "%s" % said)
    check("programs  " in shardc("inspect", binary, "--actual", path), "the text has no programs")


def test_wrong_traces_are_refused_by_line():
    binary, path = traced("mlp.lua", 2, {}, steps=3)
    good, bad = read(path), os.path.join(scratch("actual"), "bad.json")
    whole = open(path).read()
    index = next(i for i, e in enumerate(good) if e["ph"] == "X" and e["pid"] == 0 and e["args"]["event"] == "e19" and e["args"]["step"] == 2)
    line = index + 2  # the list opens on the first
    steps_on = lambda rank, by: [dict(e, args=dict(e["args"], step=e["args"]["step"] + by)) if e["ph"] == "X" and e["pid"] == rank and e["args"]["program"] == "micro" else e for e in good]

    def changed(**change):
        e = copy.deepcopy(good[index])
        args = change.pop("args", {})
        e.update(change)
        e["args"].update(args)
        return good[:index] + [e] + good[index + 1:]

    def refused(content, *says, files=None, code=1):
        if isinstance(content, str):
            open(bad, "w").write(content)
        elif content is not None:
            write(bad, content)
        rc, out, err = command([SHARDC, "inspect", binary, "--actual", files or bad])
        check(rc == code and not out and all(s in err for s in says) and len(err.splitlines()) == 1, "%s: exit %d: %s" % (says, rc, err))

    at = "%s:%d: " % (bad, line)
    refused("step 1/5 loss 5.5\n", bad + ":1: this is no trace in JSON: it holds no list", "--trace FILE")
    refused(whole.replace('"dur":', '"dur"', 5).replace('"dur"', '"dur":', 4), "from here on it is not JSON", bad + ":", "column ")
    refused(whole[:len(whole) // 2].rsplit("\n", 1)[0] + "\n", "the trace breaks off", bad + ":")
    refused([1], bad + ":2: an entry has no \"ph\"")
    refused([{"ph": "X", "name": "a", "pid": 0}], bad + ":2: an entry names no event and program")
    refused(changed(ts="soon"), at + "\"ts\" must be a number from 0")
    refused(changed(args=dict(program="macro")), at + "mlp has no program \"macro\"", "give the binary that ran")
    refused(changed(args=dict(event="e999")), at + "program micro has no event \"e999\"", "give the binary that ran")
    refused(changed(name="e19 conv"), at + "e19 is \"conv\" of module \"down\" in the trace, and \"matmul\" of \"down\" in the plan")
    refused(changed(args=dict(touched=7)), at + "e19 of program micro reads and writes 7 B in the trace")
    refused(changed(pid=2), at + "the trace has a rank 2, and the plan 2 ranks")
    refused([e for e in good if e["ph"] == "M"], bad + ": the trace holds no event")
    refused("[]", bad + ": the trace holds no event")
    refused([e for e in good if e["pid"] == 0], bad + ": there is no event of rank 1, and the plan has 2 ranks", "commas")
    refused(good[:index] + good[index + 1:], "e19 of program micro ran 2 times on rank 0", "3 times on rank", "lacks entries")
    refused([e for e in good if e["ph"] == "M" or e["args"]["step"] != 2], "steps 1 to 3 are in the trace, but not step 2")
    refused(steps_on(1, 1), "run 1 of program micro is of step 1 on rank 0, and of step 2 on rank 1")
    refused(good, " is in %s too: files are of one run" % path, bad + ":", files=path + "," + bad)
    refused(None, "a name between two commas is empty", files=path + ",,", code=2)
    planned = os.path.join(scratch("actual"), "planned.json")
    shardc("inspect", binary, "--format", "trace", "-o", planned)
    refused(None, "this is a planned schedule", "--trace FILE", files=planned)
    other = build("mlp.lua", world=2, hidden=128)  # the same names
    rc, _, err = command([SHARDC, "inspect", other, "--actual", path])
    check(rc == 1 and "B in the trace, and" in err and "the options of that run" in err, "exit %d: %s" % (rc, err))
    for more, says in ((["--format", "trace"], "both are traces"), (["--module", "*"], "--actual compares whole programs"), (["--stream", "compute"], "leave out"),
                       (["--columns", "op"], "leave out"), (["--program", "micro", "--format", "html"], "and --program in a page")):
        rc, _, err = command([SHARDC, "inspect", binary, "--actual", path, *more])
        check(rc == 2 and says in err, "%s: exit %d: %s" % (more, rc, err))


def test_damaged_traces_end_in_one_message():
    binary, path = traced("mlp.lua", 2, {}, steps=2)
    whole, rng, bad, codes = open(path, "rb").read(), random.Random(3), os.path.join(scratch("actual"), "bad.json"), collections.Counter()
    for _ in range(150):
        text = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(text))
            text[at:at + rng.choice((0, 1, 1, 40))] = rng.choice((b"", b"9", b"-", b"\"", b"]", b"{", bytes([rng.randrange(256)]), b"1e999"))
        open(bad, "wb").write(text)
        rc, _, err = command([SHARDC, "inspect", binary, "--actual", bad])
        check(rc in (0, 1) and len(err.splitlines()) == rc and (not rc or bad in err), "exit %d: %s" % (rc, err))
        codes[rc] += 1
    check(min(codes.values()) > 5 and len(codes) == 2, "%s" % codes)
    return "%d refused, %d still traces" % (codes[1], codes[0])


def test_the_page_shows_both():
    binary, path = traced("gpt2.lua", 2, GPT2)
    page = os.path.join(scratch("actual"), "page.html")
    said = json.loads(shardc("inspect", binary, "--actual", path, "--format", "json"))
    shardc("inspect", binary, "--actual", path, "--format", "html", "-o", page)
    micro = next(p for p in said["programs"] if p["name"] == "micro")
    longest = max(micro["events"], key=lambda e: e["actual_us"] - e["predicted_us"])
    fact = "Number(document.querySelector('#selection [data-fact=\"%s\"] [data-value]').dataset.value)"
    shown = lambda b: b.run("[painter.streamRows.every(r => r.h > STREAM_ROW), [...document.querySelectorAll('#rows .note')].filter(n => n.textContent === 'in the run').length, document.querySelector('#actual').getAttribute('aria-pressed')]")
    with Browser() as b:
        b.open(page)
        near(b.run("Number(document.querySelector('[data-total=actual_us]').dataset.value)"), said["actual_us"], "the step in the head")
        for e in micro["events"]:
            got = b.run("(() => { const e = state.program.eventNamed(%s); return [state.program.actual.start[e], state.program.actual.end[e], state.program.actual.took[e]]; })()" % json.dumps(e["id"]))
            for x, key in zip(got, ("begin_us", "end_us", "actual_us")):
                near(x, e[key], "%s of %s" % (key, e["id"]), 1e-6)
        b.run("select({ event: state.program.eventNamed(%s) }, true), 1" % json.dumps(longest["id"]))
        near(b.run(fact % "took in the run"), longest["actual_us"], "took in the run")
        near(b.run(fact % "takes"), longest["predicted_us"], "takes")
        streams = len({e["stream"] for p in json.loads(shardc("inspect", binary, "--format", "json"))["programs"] if p["name"] == "micro" for e in p["events"]})
        check(shown(b) == [True, streams, "true"], "%s" % shown(b))
        # Where the run's row shows the event, a click selects it.
        spot = b.run("(() => { view(state.program.actual.start[state.selection.event] - 1, state.program.actual.end[state.selection.event] + 1); const e = state.selection.event, r = painter.streamRows.find(r => r.stream === state.program.stream[e]); select(null); return [e, painter.hit(painter.x((state.program.actual.start[e] + state.program.actual.end[e]) / 2), r.y + STREAM_ROW + 5 - painter.top).event]; })()")
        check(spot[0] == spot[1], "the run's row hits %s" % spot)
        b.press("r")
        check(shown(b) == [False, 0, "false"], "after R: %s" % shown(b))
        b.run("document.querySelector('#actual').click(), 1")
        check(shown(b) == [True, streams, "true"], "after the button: %s" % shown(b))
        check(not b.complaints, "%s" % b.complaints[:3])
        shardc("inspect", binary, "--format", "html", "-o", page)
        b.open(page)
        check(b.run("[document.querySelector('#actual').hidden, document.querySelector('[data-total=actual_us]')]") == [True, None], "a page without a run shows one")


def calibrated(plan, model, args, path, trace):
    """(predicted before, after, actual) of a step, and the median events' error before and after"""
    write(path, trace)
    profile = os.path.join(scratch("actual"), "mine.lua")
    device = [a for i, a in enumerate(args) if "--device" in args[max(i - 1, 0):i + 1]]
    rest = [a for i, a in enumerate(args) if "--device" not in args[max(i - 1, 0):i + 1]]
    shardc("calibrate", model, *args, "--from-trace", path, "-o", profile)
    before = json.loads(shardc("inspect", model, *rest, *device, "--actual", path, "--format", "json"))
    after = json.loads(shardc("inspect", model, *rest, "--device", profile, "--actual", path, "--format", "json"))
    check(" (mine)" in shardc("predict", model, *rest, "--device", profile) or "fits mine" in shardc("predict", model, *rest, "--device", profile), "the profile is not called mine")
    return before["predicted_us"], after["predicted_us"], before["actual_us"], before["error_us"], after["error_us"]


TRIALS = [("gpt2.lua", 1, dict(GPT2), ()), ("gpt2.lua", 2, dict(GPT2, precision="bf16"), ()), ("llama3.lua", 2, dict(size="tiny", precision="bf16"), ("--device", "h200", "--target", "cpu")),
          ("gpt2.lua", 2, dict(GPT2, offload="state"), ())]


def test_a_profile_of_a_run_predicts_it():
    """Of traces that are written: each op takes three to six times as long as planned, larger sizes more, steps differ by 3 %."""
    worst = 0
    for model, world, options, more in TRIALS:
        source, rng = os.path.join(ROOT, "models", model), random.Random(7)
        args = ["--world", str(world), *settings(options), *more]
        binary, path = os.path.join(scratch("actual"), "net"), os.path.join(scratch("actual"), "run.json")
        shardc("build", source, *args, "-o", binary)
        run(binary, "--data", corpus(), "--steps", "5", "--trace", path)
        plan = json.loads(shardc("inspect", source, *args, "--format", "json"))
        factors = collections.defaultdict(lambda: rng.uniform(3, 6))
        trace = as_planned(plan, read(path), lambda e, step: factors[e["op"]] * (1 + .01 * len(str(int(e["bytes"])))) * rng.uniform(.97, 1.03), gap=.3)
        before, after, actual, wrong, better = calibrated(plan, source, args, path, trace)
        check(actual > 2.5 * before, "%s: %g us were predicted, and the run is made to take %g" % (model, before, actual))
        check(abs(after / actual - 1) < .15 and better < wrong / 4, "%s world %d: %g us predicted, %g actual; errors %g, then %g" % (model, world, after, actual, wrong, better))
        worst = max(worst, abs(after / actual - 1))
    return "%d runs, within %.1f %%" % (len(TRIALS), 100 * worst)


def test_a_profile_of_a_real_run_is_nearer():
    """Of what the run recorded, whatever else the machine did meanwhile: that makes steps differ, so of events only written traces tell."""
    source, more = os.path.join(ROOT, "models", "gpt2.lua"), dict(GPT2)
    binary, path = traced("gpt2.lua", 1, GPT2, steps=15)
    before, after, actual, wrong, better = calibrated(None, source, ["--world", "1", *settings(more)], path, read(path))
    check(abs(after / actual - 1) < max(.15, abs(before / actual - 1)), "%g us predicted at first, then %g; actual %g; errors %g, then %g" % (before, after, actual, wrong, better))
    return "predicted %.2f ms, then %.2f; actual %.2f" % (before / 1e3, after / 1e3, actual / 1e3)


def test_a_profile_of_a_run_needs_the_model_and_its_trace():
    binary, path = traced("mlp.lua", 1, {}, steps=2)
    mlp, mine = os.path.join(ROOT, "models", "mlp.lua"), os.path.join(scratch("actual"), "mine.lua")
    for args, code, says in (([], 2, "--from-trace %s: give the MODEL.lua that ran" % path), ([binary], 2, "give the MODEL.lua that ran"),
                             ([mlp, "--tasks", "list"], 2, "--tasks: it is of measuring GPUs"), ([mlp, "--table", "t"], 2, "--table: it is of measuring GPUs"),
                             ([mlp, "--set", "hidden=32"], 1, "the options of that run"), ([mlp, "--world", "2"], 1, "the options of that run")):
        rc, _, err = command([SHARDC, "calibrate", *args, "--from-trace", path, "-o", mine])
        check(rc == code and says in err and not os.path.exists(mine), "%s: exit %d: %s" % (args, rc, err))
    twice = os.path.join(scratch("actual"), "a name with a (bracket.lua")
    shardc("calibrate", mlp, "--from-trace", path, "-o", mine)
    shardc("calibrate", mlp, "--device", mine, "--from-trace", path, "-o", twice)  # of a profile made so; its name is no name
    check("(calibrated)" in shardc("predict", mlp, "--device", twice) or "fits calibrated" in shardc("predict", mlp, "--device", twice), "the profile of a profile")
    check(shardc("calibrate", mlp, "--from-trace", path).startswith("-- Written by"), "without -o it is printed")
