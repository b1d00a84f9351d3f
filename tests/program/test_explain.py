"""`shardc explain` and --explain: every line about every event and storage is compared with what plan.json says; slack by lengthening the event; the
pass that made an event by its id; the table of passes by the plan that it ends in.

Relies on: harness.py, the models. Relied on by: run.py."""
import json
import os
import re

from harness import ROOT, SHARDC, build, check, command, scratch, settings, shardc
from test_verify import arguments

GPT2 = dict(layers=2, dim=32, heads=2, vocab=256, batch=2, seq=16)
LLAMA = dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=16, precision="bf16")
PLANS = [("gpt2.lua", 1, GPT2), ("gpt2.lua", 2, dict(GPT2, layers=4, precision="bf16", recompute="full")), ("llama3.lua", 2, dict(LLAMA, recompute="selective")),
         ("gpt2.lua", 2, dict(GPT2, offload="state")), ("gpt2.lua", 4, dict(GPT2, layers=4, offload="activations", accumulate=2)), ("transformer.lua", 2, dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=16))]
MADE = [(r"e\d+", {"trace", "fuse", "qkv_fusion"}), (r"e\d+b\d+", {"autodiff", "fuse"}), (r"e\d+(b\d+)?r", {"recompute"}), (r"e\d+m", {"rematerialize", "fuse"}), (r"[grzsaudn]\d+[fb]?", {"shard", "offload"}),
        (r"[of]\d+", {"offload"}), (r"i\d+|zero.*|m_.*|count|clip|norm_sum", {"shard"}), (r"e\d+(b\d+)?c\d+", {"precision", "inputs", "fuse"})]


def blocks(text):
    """{id: (first line, [(title, text), ...])}"""
    out = {}
    for block in re.sub(r"\n {19}(?=\S)", " ", text).split("\n\n"):
        first, *rest = block.rstrip("\n").split("\n")
        rows, title = [], None
        for line in rest:
            title = line[2:16].strip() or title
            rows.append((title, line[17:]))
        out[re.split(r": | of program ", first)[0]] = first, rows
    return out


def bytes_near(text, b):
    n, unit = re.match(r"([\d.]+)(GiB|MiB|KiB|B)", text).groups()
    return abs(float(n) * {"GiB": 2 ** 30, "MiB": 2 ** 20, "KiB": 2 ** 10, "B": 1}[unit] - b) <= .051 * {"GiB": 2 ** 30, "MiB": 2 ** 20, "KiB": 2 ** 10, "B": 1}[unit]


def us(text):
    n, unit = re.match(r"([\d.]+) (us|ms|s)\b", text).groups()
    return float(n) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def close(text, x):
    """A time as it is printed, to its last digit."""
    return abs(us(text) - x) <= (.051 if " us" in text[:10] else 51 if " ms" in text[:10] else 5100)


def length(events, more=None, by=0):
    """The step where one event takes longer: each begins after the one before it on its stream, and what it waits for."""
    free, end = {}, {}
    for e in events:
        begin = max([free.get(e["stream"], 0)] + [end[w] for w in e["waits"]])
        end[e["id"]] = free[e["stream"]] = begin + e["duration_us"] + (by if e["id"] == more else 0)
    return max(end.values(), default=0)


def compare_event(plan, program, e, first, rows):
    events, storages = program["events"], plan["storages"]
    said = lambda title: [t for k, t in rows if k == title]
    ids = [x["id"] for x in events]
    end = {x["id"]: x["start_us"] + x["duration_us"] for x in events}
    i = ids.index(e["id"])
    check(first.startswith("%s of program %s: %s, %s %s" % (e["id"], program["name"], e["op"], e["phase"], e["module"] or "-")), first)
    check("source" not in e or first.endswith(os.path.basename(e["source"])), first)
    mine = [x["id"] for x in events if x["stream"] == e["stream"]]
    check(said("stands") == ["number %d of %d on stream %s; number %d of %d in issue order" % (mine.index(e["id"]) + 1, len(mine), e["stream"], i + 1, len(events))], "%s" % rows)
    made = re.match(r"pass (\w+)", said("made by")[0]).group(1)
    for pattern, passes in MADE:
        check(not re.fullmatch(pattern, e["id"]) or made in passes, "%s is made by %s" % (e["id"], made))
    check(("+" not in e["op"]) or said("joined by") or said("one kernel of") or e["op"].startswith(("layer_norm_grads", "rms_norm_grads")), "%s: nobody joined %s" % (e["id"], e["op"]))
    issued = said("issued")
    check(len(issued) == 1, "%s is issued %s" % (e["id"], issued))
    other = re.search(r"(?:after|:|first,|before) (\S+) \(", issued[0])
    if other:
        k = ids.index(other.group(1))
        check(k > i if "needs it first" in issued[0] else k < i, "%s is issued %s" % (e["id"], issued[0]))
        if "needs last" in issued[0]:
            touched = lambda x: {s for s, _, _ in x["reads"] + x["writes"]}
            check(touched(e) & touched(events[k]), "%s needs nothing of %s" % (e["id"], issued[0]))
    before = mine[mine.index(e["id"]) - 1] if mine[0] != e["id"] else None
    starts = said("starts")
    held = max([end[x] for x in e["waits"] + ([before] if before else [])], default=None)
    named = re.search(r"when (\S+) \(", starts[0])
    check(close(starts[0][3:], e["start_us"]) and (named is None) == (held is None) and (not named or end[named.group(1)] == held), "%s starts %s" % (e["id"], starts))
    idle = e["start_us"] - (end[before] if before else 0)
    check((len(starts) > 1) == (idle > 1e-9) and (len(starts) == 1 or close(starts[1].split("still for ")[1], idle)), "%s: idle %s, %g" % (e["id"], starts, idle))
    takes = said("takes")[0]
    check(close(takes, e["duration_us"]), takes)
    whole, later = length(events), re.search(r"may end (.*) later", takes)
    if later:
        t = us(later.group(1))
        digit = .06 if " us" in later.group(1) else 60
        check(length(events, e["id"], t - digit) <= whole + 1e-6 < length(events, e["id"], t + digit) + 1e-6 and length(events, e["id"], t + digit) > whole, "%s may not end %s later" % (e["id"], later.group(1)))
    else:
        check(length(events, e["id"], 1) > whole + 1e-6 or e["duration_us"] == 0, "%s may end later" % e["id"])
    waits = said("waits for")
    check(waits == ["no event of another stream"] if not e["waits"] else [w.split(",")[0] for w in waits] == e["waits"] and all(": " in w for w in waits), "%s waits %s" % (e["id"], waits))
    waiting = [x["id"] for x in events if e["id"] in x["waits"]]
    shown = re.findall(r"(\S+) \(", " ".join(said("waited for by")))
    check(shown == waiting[:12] and (len(waiting) <= 12 or "and %d more" % (len(waiting) - 12) in said("waited for by")[0]), "%s: %s wait" % (e["id"], shown))
    for key in ("reads", "writes"):
        check([(t.split(", ")[0], bytes_near(t.split(", ")[1], x[2])) for t, x in zip(said(key), e[key])] == [(storages[s]["name"], True) for s, _, _ in e[key]] and len(said(key)) == len(e[key]), "%s %s %s" % (e["id"], key, said(key)))
    for title, key in (("begins", "first"), ("frees", "last")):
        of = [s for s in storages if s.get("program") == program["name"] and s[key] == e["id"]]
        check(bool(of) == bool(said(title)) and (not of or bytes_near(said(title)[0], sum(s["size"] for s in of))), "%s %s %s" % (e["id"], title, said(title)))


def compare_storage(plan, program, s, first, rows):
    said = lambda title: [t for k, t in rows if k == title]
    events, at = program["events"], {e["id"]: i for i, e in enumerate(program["events"])}
    check(s["class"] in first and ("%s B)" % format(s["size"], ",")) in first, first)
    check(said("lies")[0].startswith("at 0x%08x to 0x%08x" % (s["offset"], s["offset"] + s["size"])), "%s" % rows)
    for title, key in (("written by", "writes"), ("read by", "reads")):
        users = [e["id"] for e in events if any(x[0] == s["id"] for x in e[key])]
        text = said(title)[0]
        check(text == "no event of " + program["name"] if not users else re.findall(r"(\S+) \(", text) == users[:12] and (len(users) <= 12 or text.endswith("and %d more" % (len(users) - 12))), "%s %s %s" % (s["name"], title, text))
    if "program" not in s:
        check(said("lives")[0].startswith("always"), "%s" % rows)
        return
    check(re.findall(r"(?:from|to) (\S+) \(", said("lives")[0]) == [s["first"], s["last"]] and said("so long"), "%s" % rows)
    shares = lambda x: x is not s and x.get("program") == s["program"] and x["arena"] == s["arena"] and x["offset"] < s["offset"] + s["size"] and s["offset"] < x["offset"] + x["size"]
    after = [at[x["first"]] for x in plan["storages"] if shares(x) and at[x["first"]] > at[s["last"]]]
    before = [at[x["last"]] for x in plan["storages"] if shares(x) and at[x["last"]] < at[s["first"]]]
    check(("takes some" in said("after it")[0]) == bool(after) and (not after or events[min(after)]["id"] + " (" in said("after it")[0]), "%s: %s" % (s["name"], said("after it")))
    check(bool(said("before it")) == bool(before) and (not before or events[max(before)]["id"] + " (" in said("before it")[0]), "%s: %s" % (s["name"], said("before it")))


def test_every_event_and_storage_is_explained():
    events = storages = 0
    rules = set()
    for model, world, options in PLANS:
        args = arguments(model, world, options)
        plan = json.loads(shardc("inspect", *args, "--format", "json"))
        for program in plan["programs"]:
            ids = [e["id"] for e in program["events"]]
            mine = [s for s in plan["storages"] if s.get("program", program["name"]) == program["name"] and s["name"] not in ids]
            if not ids:
                continue
            found = blocks(shardc("explain", *args, "--program", program["name"], *ids, *[s["name"] for s in mine]))
            for e in program["events"]:
                compare_event(plan, program, e, *found[e["id"]])
                rules.add(re.split(r" \S+ \(|:", dict(found[e["id"]][1])["issued"])[0])
                events += 1
            for s in mine:
                if sum(x["name"] == s["name"] for x in mine) == 1:
                    compare_storage(plan, program, s, *found[s["name"]])
                    storages += 1
    check(len(rules) >= 9, "of the rules of order only these were met: %s" % rules)
    return "%d events, %d storages of %d plans, %d rules" % (events, storages, len(PLANS), len(rules))


def test_passes_say_what_they_changed():
    for model, world, options in (("gpt2.lua", 1, GPT2), ("gpt2.lua", 2, dict(GPT2, recompute="full", offload="state"))):
        args = arguments(model, world, options)
        plan = json.loads(shardc("inspect", *args, "--format", "json"))
        micro = next(p for p in plan["programs"] if p["name"] == "micro")
        for command_, more in (("predict", []), ("inspect", []), ("build", ["--sources", "-o", os.path.join(scratch("explain"), "net")])):
            lines = shardc(command_, *args, "--explain", *more).splitlines()
            at = next(i for i, line in enumerate(lines) if line.startswith("pass "))
            check(max(map(len, lines[at:])) <= 80 or command_ == "inspect", "\n".join(lines))  # above it build names its file
            lines = lines[at + 1:]
            names = [line.split()[0] for line in lines]
            wanted = ["trace", "precision", "inputs", "qkv_fusion", "epilogue_fusion", "quantize", "autodiff", "chunks", "epilogue_fusion", "rematerialize", "concat_in_place", "fuse", "recompute", "shard", "offload", "order", "place", "sync", "simulate"]
            check(names == wanted, "passes %s" % names)
            at = [int(line.split()[1]) for line in lines[:wanted.index("order")] if "no change" not in line][-1]
            check(at == len(micro["events"]), "%d events, and the plan has %d" % (at, len(micro["events"])))
            check(("no change" in lines[names.index("recompute")]) == ("recompute" not in options), lines[names.index("recompute")])
            moved = [e for e in micro["events"] if e["stream"] in ("offload", "fetch") or "comm" in e]
            transfers = [int(n) for line in lines[:wanted.index("order")] for n in line[26:36].split() if "no change" not in line]
            check((transfers or [0])[-1] == len(moved), "%s transfers, and the plan has %d" % (transfers, len(moved)))
            check("%d waits" % sum(len(e["waits"]) for e in micro["events"]) in lines[names.index("sync")], lines[names.index("sync")])
            if world == 1:  # nothing runs beside a kernel: the last figure is the step
                times = [line[69:].strip() for line in lines[:wanted.index("order")] if line[69:].strip()]
                check(close(times[-1], micro["step_us"]), "%s, and the step is %g us" % (times[-1], micro["step_us"]))


def test_what_cannot_be_explained():
    args = arguments("gpt2.lua", 2, GPT2)
    binary, plan = build("gpt2.lua", world=2, **GPT2), os.path.join(scratch("explain"), "plan.json")
    shardc("inspect", *args, "--format", "json", "-o", plan)
    for source in ([binary], [plan]):
        text = shardc("explain", *source, "g1f", "g1f.y")
        check("a plan.json and a binary do not say which pass; give the model" in text and "waited for by" in text and "issued" not in text, text)
    out = os.path.join(scratch("explain"), "out.txt")
    shardc("explain", *args, "g1f", "-o", out)
    check(open(out).read().startswith("g1f of program micro: all_gather"), "the file")
    check(shardc("explain", *args, "--program", "eval", "g1f").startswith("g1f of program eval"), "--program")
    for more, code, says in ((["g1x"], 1, "gpt2 has no event and no storage \"g1x\"; is it \"g1f\"?; `shardc inspect` lists them"), (["--program", "eval", "g1b"], 1, "in program eval; is it \"g1f\"?"),
                             (["--program", "evil", "g1b"], 2, "is it eval?"), ([], 2, "explain wants an INPUT")):
        rc, stdout, err = command([SHARDC, "explain", *args, *more])
        check(rc == code and says in err and not stdout, "%s: exit %d: %s" % (more, rc, err))
    for given, says in ((["inspect", *args, "--format", "json"], "leave out --format"), (["inspect", *args, "--actual", plan], "leave out --actual"), (["predict", *args, "--format", "json"], "leave out --format json"),
                        (["predict", plan], "--explain says how to compile a model"), (["predict", *args, "--max", "batch"], "--explain shows one prediction")):
        rc, _, err = command([SHARDC, *given, "--explain"])
        check(rc == 2 and says in err, "%s: exit %d: %s" % (given, rc, err))
