"""`shardc diff`: a slow comparison of two plan.json is the oracle for every change that it reports; figures, bounds,
folded text, equal inputs, wrong ones.

Relies on: harness.py. Relied on by: run.py."""
import collections
import copy
import json
import os
import random
import re

from harness import ROOT, SHARDC, Failure, build, check, command, groups_of, long, scratch, settings, shardc

GPT2 = dict(layers=3, dim=32, heads=2, vocab=256, batch=2, seq=16)
LLAMA = dict(size="tiny", layers=3, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=16)
PAIR = dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=16)
MLP = {}
H200 = ("--device", "h200")
BASES = [("gpt2.lua", 4, GPT2, H200), ("gpt2.lua", 2, dict(GPT2, precision="bf16"), ()), ("llama3.lua", 4, dict(LLAMA, precision="bf16"), H200),
         ("gpt2.lua", 8, dict(GPT2, precision="bf16", recompute="selective", accumulate=2), H200), ("llama3.lua", 2, dict(LLAMA, offload="state"), ()),
         ("qwen2.lua", 2, LLAMA, H200), ("transformer.lua", 2, PAIR, H200), ("mlp.lua", 2, MLP, ())]
CHANGES = [dict(recompute="full"), dict(recompute="selective"), dict(prefetch=0), dict(prefetch=2), dict(prefetch=3), dict(batch=1), dict(batch=4), dict(layers=2), dict(layers=5),
           dict(seq=32), dict(dim=64), dict(vocab=512), dict(precision="fp32"), dict(precision="bf16"), dict(precision="fp16"), dict(reshard=True), dict(reshard=False), dict(offload="state"), dict(offload="activations"), dict(accumulate=2), dict(dropout=0.1),
           ("world", 1), ("world", 3), ("world", 8), ("device", "h100"),
           ("device", "a100"), ("device", "b200"), ("device", "l40s"), ("device", "rtx4090"), ("device", "cpu")]
EVENTS = ["added", "removed", "other op", "other stream", "issued sooner", "issued later", "longer", "shorter", "other waits"]
STORAGES = ["added", "removed", "grew", "shrank", "other class", "other arena", "other life"]


def changed(base, change):
    """The base under one other option; None: the model has no such option, or it is as it was."""
    model, world, options, more = base
    if isinstance(change, tuple):
        key, value = change
        other = (model, value, options, more) if key == "world" else (model, world, options, ("--device", value))
    else:
        with open(os.path.join(ROOT, "models", model)) as f:
            text = f.read()
        if "families.training" in text:                      # whose options it has, too
            with open(os.path.join(ROOT, "models", "families", "training.lua")) as f:
                text += f.read()
        if any(not re.search(r"\b%s = " % k, text) for k in change):
            return None
        other = (model, world, dict(options, **change), more)
    return None if other == base else other


class Plans:
    """plan.json files, one for each configuration."""

    def __init__(self):
        self.folder, self.known = scratch("diff"), {}

    def path(self, model, world, options, more=()):
        key = repr((model, world, options, more))
        if key not in self.known:
            path = os.path.join(self.folder, "%d.json" % len(self.known))
            args = [os.path.join(ROOT, "models", model), "--world", str(world), *more, *settings(options), "--format", "json", "-o", path]
            rc, _, err = command([SHARDC, "inspect", *args])
            self.known[key] = None if rc else path
            check(rc == 0 or "no option" in err or "one of" in err or "must" in err, "%s: %s" % (args, err))
        return self.known[key]


# ── the oracle: what differs, by a slow comparison ───────────────────────────────────────────────────────────────────────
def best_order(a, b, compute):
    """Of all sequences that ascend in both: (how many events, how many of them kernels) the best has. O(n²)."""
    at = {e: i for i, e in enumerate(a)}
    best = []
    for j, e in enumerate(b):
        below = [best[i] for i in range(j) if at[b[i]] < at[e]]
        n, k = max(below, default=(0, 0))
        best.append((n + 1, k + (e in compute)))
    return max(best, default=(0, 0))


def compare_orders(said, x, y):
    """Which events moved has several right answers: what has not moved must ascend in both and be as much as can be."""
    common = {e["id"] for e in x} & {e["id"] for e in y}
    a, b = [e["id"] for e in x if e["id"] in common], [e["id"] for e in y if e["id"] in common]
    moved = {i: e for i, e in said.items() if {"issued sooner", "issued later"} & set(e["changes"])}
    check(moved.keys() <= common, "an event moved that is not in both plans")
    still = [i for i in a if i not in moved]
    check(still == [i for i in b if i not in moved], "events that have not moved are in another order")
    compute = {e["id"] for e in y if e["stream"] == "compute"}
    check((len(still), len(compute & set(still))) == best_order(a, b, compute), "more events moved than need to")
    for i, e in moved.items():
        before = [sum(k not in moved for k in order[:order.index(i)]) for order in (a, b)]
        check(before[0] != before[1] and e["places"] == before[1] - before[0], "%s: places %d of %s" % (i, e["places"], before))
        check(("issued sooner" in e["changes"]) == (e["places"] < 0) and ("issued later" in e["changes"]) == (e["places"] > 0), "%s: direction" % i)
    for i, e in said.items():
        check(i in moved or "places" not in e, "%s has places" % i)


def events_differ(a, b, x, y):
    """id: what is different, but for the order."""
    old, new, out = {e["id"]: e for e in x}, {e["id"]: e for e in y}, {}
    for i in old.keys() | new.keys():
        if i not in old or i not in new:
            out[i] = {"removed"} if i in old else {"added"}
            continue
        p, q, what = old[i], new[i], set()
        group = [(e.get("comm"), groups_of(plan).get(e.get("comm"))) for plan, e in ((a, p), (b, q))]
        if [p[k] for k in ("op", "phase", "module")] != [q[k] for k in ("op", "phase", "module")] or group[0] != group[1]:
            what.add("other op")
        if p["stream"] != q["stream"]:
            what.add("other stream")
        if abs(round(1e6 * p["duration_us"]) - round(1e6 * q["duration_us"])) >= 10000:  # picoseconds
            what.add("longer" if q["duration_us"] > p["duration_us"] else "shorter")
        if set(p["waits"]) != set(q["waits"]):
            what.add("other waits")
        out[i] = what
    return {i: w for i, w in out.items() if w}


def storages_differ(a, b, program):
    old, new = ({s["name"]: s for s in p["storages"] if s.get("program") == program} for p in (a, b))
    out = {}
    for n in old.keys() | new.keys():
        if n not in old or n not in new:
            out[n] = {"removed"} if n in old else {"added"}
            continue
        p, q, what = old[n], new[n], set()
        if p["size"] != q["size"]:
            what.add("grew" if q["size"] > p["size"] else "shrank")
        if (p["class"], p["owner"]) != (q["class"], q["owner"]):
            what.add("other class")
        if p["arena"] != q["arena"]:
            what.add("other arena")
        if (p.get("first"), p.get("last")) != (q.get("first"), q.get("last")):
            what.add("other life")
        out[n] = what
    return {n: w for n, w in out.items() if w}


def pattern(path):
    return ".".join("*" if p.isdigit() else p for p in path.split(".")) or "(model)"


def step_programs(plan):
    names = [p["name"] for p in plan["programs"]]
    wanted = ("micro_first", "micro_last") if "micro_first" in names else ("micro",)
    return [p for p in plan["programs"] if p["name"] in wanted]


def sums(plan):
    """The five tables of one plan."""
    peaks = [p["peak"][0] for p in plan["programs"]]
    program = plan["programs"][peaks.index(max(peaks))]
    order = {e["id"]: i for i, e in enumerate(program["events"])}
    at = order[program["peak_event"]]
    classes, modules, streams, times, exposed = (collections.Counter() for _ in range(5))
    for s in plan["storages"]:
        if s["arena"] == "device" and ("program" not in s or s["program"] == program["name"] and order[s["first"]] <= at <= order[s["last"]]):
            classes[s["class"]] += s["size"]
            modules[pattern(s["owner"])] += s["size"]
    check(dict(classes) == plan["peak"]["live"], "the oracle's peak is not the plan's")
    for p in step_programs(plan):
        ends, by_id = collections.defaultdict(float), {e["id"]: e for e in p["events"]}
        end = {i: e["start_us"] + e["duration_us"] for i, e in by_id.items()}
        for e in p["events"]:
            streams["%s %s" % (e["stream"], e["phase"])] += e["duration_us"]
            times[pattern(e["module"])] += e["duration_us"]
            late = max(e["waits"], key=end.get, default=None)
            if e["stream"] == "compute" and late and end[late] > ends["compute"] and by_id[late]["stream"] in ("gather", "reduce", "fetch", "offload"):
                exposed["%s %s" % (by_id[late]["stream"], pattern(by_id[late]["module"]))] += end[late] - ends["compute"]
            ends[e["stream"]] = end[e["id"]]
        busy = max((t for s, t in ends.items() if s in ("compute", "host", "update")), default=0)
        last = max((e for e in p["events"] if e["stream"] in ("gather", "reduce", "fetch", "offload")), key=lambda e: end[e["id"]], default=None)
        if last and end[last["id"]] > busy:
            exposed["%s %s" % (last["stream"], pattern(last["module"]))] += end[last["id"]] - busy
    total = plan["prediction"]["exposed_us"]
    check(abs(sum(exposed.values()) - total) < 1e-3 + 1e-9 * total, "exposed: %g of %g" % (sum(exposed.values()), total))
    return dict(zip(("peak_classes", "peak_modules", "time_classes", "time_modules", "exposed_modules"), (classes, modules, streams, times, exposed)))


def figures(plan):
    q = plan["prediction"]
    return dict(peak=q["arena_bytes"], bound=plan["arenas"]["device"]["bound"], host=q["host_bytes"], library=sum(x["bytes"] for x in q["library"]),
                step=q["step_us"], exposed=q["exposed_us"], tokens=q["tokens_per_second"] or q["samples_per_second"], mfu=q["mfu_causal_attention"])


def near(x, y):
    return abs(x - y) <= 1e-5 + 1e-9 * max(abs(x), abs(y))


def settings_of(plan):
    return dict(plan["options"], model=plan["model"], target=plan["target"], device=plan["device"]["name"],
                world=str(plan["mesh"]["world"]), nodes=str(plan["mesh"]["nodes"]))


def compare(a, b, d):
    """Raises where the difference d is not that of the plans a and b; returns how many changes it has."""
    count = 0
    old, new = settings_of(a), settings_of(b)
    said = {s["name"]: (s["a"], s["b"]) for s in d["settings"]}
    check(said == {k: (old.get(k), new.get(k)) for k in old.keys() | new.keys() if old.get(k) != new.get(k)}, "settings: %s" % said)
    for side, plan in (("a", a), ("b", b)):
        check({r["name"]: r[side] for r in d["figures"]} == figures(plan), "figures of %s" % side)
        for table, rows in sums(plan).items():
            said = {r["name"]: r[side] for r in d[table]}
            check(said.keys() >= rows.keys(), "%s lacks %s" % (table, rows.keys() - said.keys()))
            for name, value in said.items():
                check(near(value, rows[name]), "%s of %s in %s: %r, not %r" % (table, name, side, value, rows[name]))
    programs = [{p["name"]: p for p in plan["programs"]} for plan in (a, b)]
    check([p["name"] for p in d["programs"]][0] is None and {p["name"] for p in d["programs"][1:]} == set(programs[0]) | set(programs[1]), "programs")
    for p in d["programs"]:
        x, y = (q[p["name"]]["events"] if p["name"] in q else [] for q in programs)
        check(("a" in p, "b" in p) == ((False, False) if p["name"] is None else (p["name"] in programs[0], p["name"] in programs[1])), "sides")
        said = {e["id"]: e for e in p["events"]}
        check(len(said) == len(p["events"]), "an event stands twice")
        compare_orders(said, x, y)
        plain = {i: set(e["changes"]) - {"issued sooner", "issued later"} for i, e in said.items()}
        want = events_differ(a, b, x, y)
        check({i: w for i, w in plain.items() if w} == want, "events of %s: %s" % (p["name"], sorted(set(map(str, plain.items())) ^ set(map(str, want.items())))[:4]))
        check(all(e["changes"] for e in said.values()), "an event is listed without a change")
        stored = {s["name"]: set(s["changes"]) for s in p["storages"]}
        check(len(stored) == len(p["storages"]) and stored == storages_differ(a, b, p["name"]), "storages of %s" % p["name"])
        count += sum(len(w) for w in plain.values()) + sum(len(w) for w in stored.values())
    return count


def pairs():
    return [(base, other) for base in BASES for change in CHANGES if (other := changed(base, change))]


@long
def test_every_change_is_true_and_none_is_missed():
    plans, done, count = Plans(), 0, 0
    for base, other in pairs():
        x, y = plans.path(*base), plans.path(*other)
        if not y:
            continue
        with open(x) as f, open(y) as g:
            a, b = json.load(f), json.load(g)
        try:
            count += compare(a, b, json.loads(shardc("diff", x, y, "--format", "json")))
        except Exception as e:
            raise type(e)("%s against %s: %s" % (base, other, e)) from e
        done += 1
    check(done >= 200, "only %d pairs" % done)
    return "%d pairs, %d changes" % (done, count)


def damaged(d, r):
    """The difference with one error: an event, a storage, a word, a figure or a row that is not so."""
    d = copy.deepcopy(d)
    lists = [x for p in d["programs"] for x in (p["events"], p["storages"]) if x]
    kind = r.randrange(5)
    if kind == 0:
        x = r.choice(lists)
        del x[r.randrange(len(x))]
    elif kind == 1:
        x = r.choice(r.choice(lists))
        x["changes"] = [r.choice([w for w in (EVENTS if "id" in x else STORAGES) if w not in x["changes"]])]
    elif kind == 2:
        moved = [e for p in d["programs"] for e in p["events"] if "places" in e]
        if not moved:
            return None
        r.choice(moved)["places"] += r.choice([-1, 1])
    else:
        table = d[r.choice(["figures", "peak_classes", "time_modules", "exposed_modules"])]
        if not table:
            return None
        r.choice(table)[r.choice("ab")] += 1
    return d


def test_the_oracle_sees_every_error():
    plans, r, tried = Plans(), random.Random(3), 0
    for change in (dict(prefetch=2), dict(recompute="full"), dict(offload="state")):
        x, y = plans.path(*BASES[0]), plans.path(*changed(BASES[0], change))
        with open(x) as f, open(y) as g:
            a, b = json.load(f), json.load(g)
        d = json.loads(shardc("diff", x, y, "--format", "json"))
        compare(a, b, d)
        for _ in range(12):
            wrong = damaged(d, r)
            if wrong:
                tried += 1
                try:
                    compare(a, b, wrong)
                except Failure:
                    continue
                check(False, "an error is not seen: %s" % change)
    return "%d errors" % tried


# ── equal inputs, sides, text ────────────────────────────────────────────────────────────────────────────────────────────
def arguments(model, world, options, more=()):
    return [os.path.join(ROOT, "models", model), "--world", str(world), *more, *settings(options)]


def test_equal_inputs_report_nothing():
    same = "A and B are the same: "
    for base in BASES:
        args, path = arguments(*base), Plans().path(*base)
        for command_line in ([*args, "--vs"], [path, path], [path, *args], [args[0], path, *args[1:]]):
            out = shardc("diff", *command_line, "--fail-if", "peak>+0%,step>+0us,exposed>+0%,mfu<-0%,host>+0B")
            check(out.startswith(same) and out.endswith("differs\n") and out.count("\n") <= 2, "%s: %s" % (command_line, out))
        d = json.loads(shardc("diff", path, path, "--format", "json"))
        check(d["same"] and not any(p["events"] or p["storages"] for p in d["programs"]) and not d["settings"], "JSON of equal plans")
    binary = build("mlp.lua", world=2, redzone=0)
    check(shardc("diff", binary, *arguments("mlp.lua", 2, {})).startswith(same), "a binary differs from its model")
    return "%d models" % len(BASES)


def test_options_before_vs_hold_for_both():
    plans, options = Plans(), dict(GPT2, prefetch=1)
    x, y = plans.path("gpt2.lua", 4, options, H200), plans.path("gpt2.lua", 2, dict(GPT2, prefetch=2), H200)
    want = shardc("diff", x, y)
    args = arguments("gpt2.lua", 4, options, H200)
    other = ["--set", "prefetch=2", "--world", "2"]
    for said in (["diff", *args, "--vs", *other], ["diff", *args, "--vs", args[0], *other], ["diff", x, "--vs", *arguments("gpt2.lua", 2, dict(GPT2, prefetch=2), H200)],
                 ["diff", *args, "--vs", y], ["diff", *args, y]):
        check(shardc(*said) == want, "%s says something else" % said)
    check("prefetch 1 -> 2" in want and "world 4 -> 2" in want, want)


def test_text_folds_layers_and_counts_all():
    args = arguments("llama3.lua", 8, dict(size="8b", precision="bf16", prefetch=1), H200)
    out = joined(shardc("diff", *args, "--vs", "--set", "prefetch=2"))
    check(out.count("\n") < 60, "%d lines" % out.count("\n"))
    check(re.search(r"^ +3[12] issued sooner +all_gather  forward model\.layers\.\*  on gather, +past ", out, re.M), out)
    everything, d = joined(shardc("diff", *args, "--vs", "--set", "prefetch=2", "--all")), json.loads(shardc("diff", *args, "--vs", "--set", "prefetch=2", "--format", "json"))
    rows = 0
    for kind, words in (("events", EVENTS), ("storages", STORAGES)):
        for p in d["programs"]:
            want = collections.Counter(c for x in p[kind] for c in x["changes"])
            title = "%s of %s: " % (kind, p["name"] or "all programs")
            check((title in everything) == bool(want) and (title in out) == bool(want), title)
            if not want:
                continue
            section = everything.split(title)[1].split("\n")
            check({k: int(n) for n, k in (x.split(" ", 1) for x in " ".join(section[0].split()).split(", "))} == dict(want), section[0])
            seen = collections.Counter()
            for line in section[1:]:
                m = re.match(r" +(\d+) (%s) " % "|".join(words), line)
                if not m:
                    break
                seen[m.group(2)] += int(m.group(1))
                rows += 1
            check(seen == want, "%s rows add up to %s" % (title, seen))
    return "%d lines; --all: %d rows" % (out.count("\n"), rows)


def test_text_joins_what_was_exchanged():
    """Added and removed events of one op, phase and stream are a row with the net; --all has each row by itself."""
    args, seen = [*arguments("gpt2.lua", 4, GPT2, H200), "--vs", "--set", "precision=bf16"], 0
    out, everything, d = joined(shardc("diff", *args)), shardc("diff", *args, "--all"), json.loads(shardc("diff", *args, "--format", "json"))
    check("net" not in everything, "--all joins rows")
    for p in d["programs"]:
        ops = collections.defaultdict(lambda: [[], []])
        for e in p["events"]:
            for side, change in (("b", "added"), ("a", "removed")):
                if change in e["changes"]:
                    ops[e[side]["op"], e[side]["phase"], e[side]["stream"]][side == "a"].append(e[side]["duration_us"])
        section = out.partition("events of %s: " % p["name"])[2].partition("\nevents of ")[0] if p["name"] else ""
        for (op, phase, stream), (added, removed) in ops.items():
            if not added or not removed:
                continue
            net = len(added) - len(removed)
            row = re.search(r"^  \+%d -%d, net %s +%s  %s .*  on %s, +(\S+) (\S+) -> (\S+) (\S+)," % (len(added), len(removed), r"\+%d" % net if net > 0 else net, re.escape(op), phase, stream), section, re.M)
            check(row, "no row of %s %s in\n%s" % (op, phase, section))
            us = lambda n, unit: float(n) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]
            for said, want in ((us(row[1], row[2]), sum(removed)), (us(row[3], row[4]), sum(added))):
                check(abs(said - want) <= 0.051 * {"us": 1, "ms": 1e3, "s": 1e6}[row[2]], "%s: %s, not %g" % (op, row[0], want))
            check(not re.search(r"^ +\d+ (added|removed) +%s  %s " % (re.escape(op), phase), section, re.M), "the op has another row too:\n" + section)
            seen += 1
    check(seen, "nothing was exchanged")
    return "%d rows" % seen


def joined(text):
    """Rows of events and storages that go on below, each in one line."""
    check(max(map(len, text.splitlines())) <= 80, text)
    return re.sub(r"\n {21}(?=\S)", "  ", text)


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_fail_if():
    plans = Plans()
    x, y = plans.path("gpt2.lua", 4, GPT2, H200), plans.path("gpt2.lua", 4, dict(GPT2, recompute="full", batch=4), H200)
    a, b = [figures(json.load(open(p))) for p in (x, y)]
    for name in a:
        if a[name] == b[name]:
            continue
        share, change = 100 * (b[name] / a[name] - 1) if a[name] else None, b[name] - a[name]
        unit = {"peak": "B", "bound": "B", "host": "B", "library": "B", "step": "us", "exposed": "us"}.get(name, "")
        margin = max(abs(change), abs(b[name])) * 1e-3
        trials = [("%s>%.9f%s" % (name, b[name] - margin, unit), 1), ("%s>%.9f%s" % (name, b[name] + margin, unit), 0),
                  ("%s<%.9f%s" % (name, b[name] + margin, unit), 1), ("%s<%.9f%s" % (name, b[name] - margin, unit), 0),
                  ("%s>%+.9f%s" % (name, change - margin, unit), 1), ("%s>%+.9f%s" % (name, change + margin, unit), 0)]
        if share is not None:
            trials += [("%s>%+.6f%%" % (name, share - 0.01), 1), ("%s>%+.6f%%" % (name, share + 0.01), 0), ("%s<%+.6f%%" % (name, share + 0.01), 1)]
        for bound, want in trials:
            rc, out, err = command([SHARDC, "diff", x, y, "--fail-if", "peak<0B," + bound])
            check(rc == want and out.startswith("gpt2 for h200"), "%s: exit %d, %s" % (bound, rc, err))
            check(not want or err.startswith("shardc: --fail-if: %s is missed: %s is " % (bound, name)), err)
    rc, _, err = command([SHARDC, "diff", x, y, "--fail-if", "step>+0%,peak>1B"])
    check(rc == 1 and "step>+0% is missed" in err and "peak>1B is missed" in err, err)
    rc, out, _ = command([SHARDC, "diff", x, y, "--format", "json", "--fail-if", "step>+0%"])
    check(rc == 1 and json.loads(out)["same"] is False, "the report must come before the exit")


WRONG = [
    ([], 2, "diff wants an INPUT"),
    (["A"], 2, "diff wants two plans: shardc diff A B; or one model twice"),
    (["A", "A", "A"], 2, "two inputs are enough"),
    (["A", "A", "--vs"], 2, "--vs: one input stands before it"),
    (["--vs", "A"], 2, "--vs: one input stands before it"),
    (["A", "--vs", "A", "--vs"], 2, "--vs stands twice"),
    (["A", "none.json"], 1, "none.json"),
    (["A", "B"], 1, "not a plan of shardc"),
    (["A", "A", "--world", "2"], 2, "--world says how to compile a model"),
    (["A", "A", "--budget", "1GiB"], 2, "--budget says how to compile a model"),
    (["M", "--vs", "--set", "colour=red"], 1, "no option 'colour'"),
    (["A", "A", "-o", "A"], 1, "is both an input and an output"),
    *[(["A", "A", "--fail-if", bound], 2, "--fail-if %s: %s" % (bound.split(",")[-1], why)) for bound, why in (
        ("peak", "neither > nor <"), ("peak>+1%,", "neither > nor <"), ("speed>+1%", '"speed" is no figure'), ("peak>", "a number must follow"),
        ("peak>+", "a number must follow"), ("peak>+x", "a number must follow"), ("peak>nan", "a number must follow"), ("peak>+inf%", "a number must follow"),
        ("peak>1%", "a percentage says a change"), ("peak>+1ms", "its unit is %, B"), ("peak>+1", "its unit is %, B"), ("step>+1GiB", "its unit is %, us"),
        ("mfu<0.5ms", "its unit is % or none"), ("peak>=+1%", "a number must follow"), ("peak>+1%%", "its unit is"), ("peak>0x10B", "a number must follow"))],
]


def test_wrong_input():
    folder = scratch("diff")
    names = {"A": os.path.join(folder, "a.json"), "B": os.path.join(folder, "b.json"), "M": os.path.join(ROOT, "models", "mlp.lua")}
    shardc("inspect", names["M"], "--format", "json", "-o", names["A"])
    with open(names["A"]) as f, open(names["B"], "w") as g:
        g.write(f.read()[:1000])
    for args, code, text in WRONG:
        rc, out, err = command([SHARDC, "diff", *(names.get(x, x) for x in args)])
        check(rc == code and text in err and not out, "%s: exit %d, %s%s" % (args, rc, out, err))
    return "%d command lines" % len(WRONG)


def test_nothing_is_shown_as_a_change_of_zero():
    """A difference that rounds to 0 where it is shown is the same; one whose share rounds to 0 says less than what is shown."""
    folder = scratch("diff")
    plan = json.loads(shardc("inspect", os.path.join(ROOT, "models", "gpt2.lua"), "--world", "2", "--set", "layers=2", "--format", "json"))
    paths = [os.path.join(folder, n) for n in ("zero-a.plan.json", "zero-b.plan.json")]
    for sign in (1, -1):
        for path, us, size in zip(paths, (0, .02 * sign), (0, 256 * sign)):
            other = json.loads(json.dumps(plan))
            micro = next(p for p in other["programs"] if p["name"] == "micro")
            micro["step_us"] += us
            micro["exposed_us"] += us
            micro["events"][-1]["duration_us"] += us
            other["arenas"]["device"]["bytes"] += size + 4096
            other["peak"]["bytes"] += size + 4096
            with open(path, "w") as f:
                json.dump(other, f)
        for args in ([], ["--all"]):
            text = shardc("diff", *paths, *args)
            check(not re.search(r"[-+]0(\.0+)? ?(us|ms|s|B)\b|[-+]0\.0+ %", text), "a change of zero is shown:\n" + text)
            check(re.search(r"^  step .*  the same$", text, re.M) and re.search(r"^  exposed communication .*  the same$", text, re.M), "a step is not the same:\n" + text)
            check(re.search(r"^  peak \(device arena\) .* %s256B +%s<0\.01 %%$" % ((r"\+",) * 2 if sign > 0 else ("-", "-")), text, re.M), "the peak:\n" + text)
