"""Rows M1 to M4 of the behaviours: memory predicted to the byte and below PyTorch's, at full size by `predict`, small ones run.
On GPUs: tests/gpu/rows_memory.py, bench/memory_rows.py.

Relies on: harness.py, rows/memory_*.lua. Relied on by: run.py, tests/gpu/rows_memory.py (CASES), bench/memory_rows.py."""
import itertools
import os
import re

import pages
from harness import ROOT, ROWS, build, check, events_of, planned, read_safetensors, run, same_run, scratch, settings, shardc, steps, train, write_numbers

MLP, TRANSFORMER = os.path.join(ROWS, "memory_mlp.lua"), os.path.join(ROWS, "memory_transformer.lua")
M2 = dict(precision="fp32", blocks=3, through=1, batch=8)
GRID = list(itertools.product((True, False), (True, False)))

# Row, model, options, PyTorch's measured active peak: FSDPMemTracker's cases on 4 H200 (PyTorch 2.11, 2026-11-20), bytes
CASES = [
    ("M1 reshard, offload", MLP, dict(reshard=True, offload=True), 1208006144),
    ("M1 reshard", MLP, dict(reshard=True, offload=False), 1610833408),
    ("M1 no reshard, offload", MLP, dict(reshard=False, offload=True), 1342264832),
    ("M1 no reshard", MLP, dict(reshard=False, offload=False), 1745040896),
    ("M2", MLP, M2, 436930560),
    ("M3 reshard", TRANSFORMER, dict(reshard=True), 275023872),
    ("M3 reshard, unit on the wrapper", TRANSFORMER, dict(reshard=True, wrapper=True), 275023872),
    ("M3 no reshard", TRANSFORMER, dict(reshard=False), 274023424),
    ("M3 no reshard, unit on the wrapper", TRANSFORMER, dict(reshard=False, wrapper=True), 274023424),
]


def plan_of(model, world, options, device="h200"):
    return planned(model, world, "--device", device, **options)


def without_workspace(plan):
    """The largest sum of live bytes, workspaces of libraries left out."""
    program = next(p for p in plan["programs"] if p["name"] == plan["peak"]["program"])
    index = {e["id"]: i for i, e in enumerate(program["events"])}
    change = [0] * (len(index) + 1)
    for s in plan["storages"]:
        if s["arena"] == "device" and s["class"] != "workspace" and s.get("program", program["name"]) == program["name"]:
            change[index[s["first"]] if "program" in s else 0] += s["size"]
            change[index[s["last"]] + 1 if "program" in s else len(index)] -= s["size"]
    return max(itertools.accumulate(change))


def below(row):
    said = []
    for name, model, options, torch in CASES:
        if not name.startswith(row):
            continue
        plan = plan_of(model, 4, options)
        ours = without_workspace(plan)
        check(ours <= torch, "%s: %s bytes without workspace, PyTorch %s" % (name, format(ours, ","), format(torch, ",")))
        check(plan["peak"]["bytes"] >= plan["peak"]["bound"] >= ours, "%s: bounds: %s" % (name, plan["peak"]))
        said.append("%.3f" % (ours / torch))
    return "of PyTorch's active peak: " + ", ".join(said)


def records(path, width, rows, steps):
    return write_numbers(path, "f", [i * 7919 % 1021 / 1021 - 0.5 for i in range(width * rows * steps)])


def go(model, world, options, n=2):
    """(log, weights, weights at the start) of a run whose arenas are as predicted."""
    binary, folder = build(model, world=world, **options), scratch("memory")
    start, source = (os.path.join(folder, name) for name in ("start", "x"))
    train(binary, "--seed", "3", "--export", start)
    if model == MLP:
        records(source, options["dim"], options["batch"] * world, n)
    else:
        write_numbers(source, "i", [i * 31 % options["vocab"] for i in range(options["batch"] * options["seq"] * world * n)])
    return *run(binary, "--data", "-", "--steps", str(n), "--seed", "3", records=source), read_safetensors(start)


SMALL = dict(dim=32, batch=16)


def test_M1_arena_is_exact():
    for world in (2, 4):
        first = None
        for reshard, offload in GRID:
            a = go(MLP, world, dict(SMALL, reshard=reshard, offload=offload))
            check(len(steps(a[0])) == 2 and a[1] != a[2], "world %d: nothing was trained" % world)
            if first:
                same_run(first, a, "world %d, reshard %s, offload %s" % (world, reshard, offload))
            first = first or a
    return "8 runs: arenas as predicted, bits equal"


def test_M1_is_below_pytorch():
    return below("M1")


def test_M1_input_arrives_in_the_parameters_dtype():
    """It is only read through a cast: converted when it arrives, it takes half the bytes; a program that reads it as it is
    keeps it."""
    for precision, dtype, bytes_ in (("fp16", "fp16", 2), ("bf16", "bf16", 2), ("fp32", "fp32", 4)):
        plan = plan_of(MLP, 2, dict(SMALL, precision=precision))
        x = next(s for s in plan["storages"] if s["name"] == "x")
        check(x["size"] == 32 * 16 * bytes_, "%s: the input has %d bytes" % (precision, x["size"]))
        casts = [e["id"] for p in plan["programs"] for e in p["events"] if e["id"].startswith("e0c")]
        check(not casts, "%s: it is cast: %s" % (precision, casts))
    with open(MLP) as f:
        text = f.read()
    loss = "return nn.sum(m(b.x)) end"
    check(loss in text, "memory_mlp.lua has another loss")
    for reads in ("nn.training_mode()", "not nn.training_mode()"):  # x itself, in the step or where the model is evaluated
        model = os.path.join(scratch("input"), "m.lua")
        with open(model, "w") as f:
            f.write(text.replace(loss, "local l = nn.sum(m(b.x)); if %s then l = l + nn.sum(b.x) end; return l end" % reads))
        x = next(s for s in plan_of(model, 2, SMALL)["storages"] if s["name"] == "x")
        check(x["size"] == 32 * 16 * 4, "read in fp32 if %s: the input has %d bytes" % (reads, x["size"]))
    with open(model, "w") as f:
        f.write(text.replace(loss, "return nn.sum(m(b.x)) + nn.sum(nn.cast(nn.cast(b.x, 'bf16'), 'fp32')) end"))
    x = next(s for s in plan_of(model, 2, dict(SMALL, precision="fp16"))["storages"] if s["name"] == "x")
    check(x["size"] == 32 * 16 * 4, "read in fp16 and in bf16: the input has %d bytes" % x["size"])


def test_M2_arena_is_exact_and_idle_blocks_stay():
    for world in (2, 4):
        options = dict(M2, dim=32)
        log, after, before = go(MLP, world, options)
        idle = [k for k in after if not k.startswith("blocks.0.")]
        check(len(steps(log)) == 2 and len(idle) == 8 and len(after) == 12, "weights: %s" % sorted(after))
        for k in after:
            check((after[k] == before[k]) == (k in idle), "%s %s" % (k, "changed" if k in idle else "did not change"))
        plan = plan_of(MLP, world, options, "cpu")
        states = {s["name"] for s in plan["storages"] if "program" not in s}
        check(states & {"blocks.%d/%s" % (b, s) for b in (1, 2) for s in ("moment1", "moment2", "gradient", "master")} == set(), "states: %s" % states)
        check({"blocks.0/moment1", "blocks.1/frozen", "blocks.2/frozen"} <= states, "states: %s" % states)
        events = events_of(plan)
        check([e["id"] for e in events if e["phase"] == "optimizer" and e["op"] == "adam"] == ["u1"], "one unit is updated")
        check(not [e["id"] for e in events if e["stream"] == "gather" and e["id"] not in ("g1f", "g1b")], "others are gathered")
    return "worlds 2 and 4: two blocks without gradient, state, gather or change"


def test_M2_is_below_pytorch():
    return below("M2")


def test_M3_arena_is_exact():
    small = dict(layers=2, dim=16, heads=4, vocab=64, seq=16, batch=2)
    for world in (2, 4):
        for wrapper in (False, True):
            runs = [go(TRANSFORMER, world, dict(small, reshard=reshard, wrapper=wrapper)) for reshard in (True, False)]
            same_run(runs[0], runs[1], "world %d, wrapper %s" % (world, wrapper))
            names = sorted(runs[0][1])
            check(("layers.0.inner.attention.wq.weight" if wrapper else "layers.0.attention.wq.weight") in names and "output.weight" not in names,
                  "paths, one table: %s" % names)
    return "8 runs: arenas as predicted, bits equal with and without reshard"


def test_M3_is_below_pytorch():
    return below("M3")


def test_M3_wrapper_makes_no_difference():
    for reshard in (True, False):
        a, b = (plan_of(TRANSFORMER, 4, dict(reshard=reshard, wrapper=w)) for w in (False, True))
        check(a["peak"]["bytes"] == b["peak"]["bytes"], "reshard %s: %d and %d bytes" % (reshard, a["peak"]["bytes"], b["peak"]["bytes"]))
        for p, q in zip(a["programs"], b["programs"]):
            bare = [[(e["id"], e["stream"], re.sub(r"\.inner\b", "", e["module"])) for e in x["events"]] for x in (p, q)]
            check(bare[0] == bare[1], "reshard %s: program %s differs" % (reshard, p["name"]))
    return "the same events at the same size"


def test_M4_page():
    """Every question that the page asks is answered by the command that stands there."""
    return pages.holds("models/behaviours/memory.md", 110)


def test_M4_who_holds_memory_adds_up():
    """The tables of --by are sums over the plan's storages at that moment."""
    for options in ({}, dict(recompute="full")):
        plan = plan_of(MLP, 4, options)
        program = next(p for p in plan["programs"] if p["name"] == "micro")
        index = {e["id"]: i for i, e in enumerate(program["events"])}
        forward = max(i for i, e in enumerate(program["events"]) if e["phase"] == "forward" and e["stream"] == "compute")
        for at, when in (("peak", index[plan["peak"]["event"]]), ("forward", forward), ("e4", index["e4"])):
            live = [s for s in plan["storages"] if s["arena"] == "device" and ("program" not in s or s["program"] == "micro" and index[s["first"]] <= when <= index[s["last"]])]
            total = {}
            for by in ("module", "unit", "storage"):
                out = shardc("predict", MLP, "--world", "4", "--device", "h200", "--at", at, "--by", by, *settings(options))
                table = out.split(" of micro at ")[-1].split("\n")
                total[by] = int(re.search(r":\s([\d,]+)\sbytes\n", "\n".join(table)).group(1).replace(",", ""))
                rows = [int(n.replace(",", "")) for n in re.findall(r"^ {2,15}([\d,]+)  \S", "\n".join(table), re.M)]
                check(max(map(len, out.splitlines())) <= 80, out)
                check(sum(rows) == total[by] and rows == sorted(rows, reverse=True), "%s by %s: rows make %d of %d" % (at, by, sum(rows), total[by]))
            check(total["storage"] == sum(s["size"] for s in live) == total["module"] + total["unit"], "at %s: %s, alive %d" % (at, total, sum(s["size"] for s in live)))


def test_M4_recompute_releases():
    """At the end of the forward nothing is left of a recomputed block but its input."""
    kept = {}
    for recompute in ("none", "selective", "full"):
        out = shardc("predict", MLP, "--world", "4", "--device", "h200", "--at", "forward", "--by", "module", "--set", "recompute=" + recompute)
        kept[recompute] = dict(re.findall(r"^ *[\d,]+  (blocks\.\S+) \((\d+) × ", out, re.M))  # {pattern: modules}
    check(kept["full"] == {"blocks.*.out_proj": "3"}, "full: %s" % kept["full"])
    check(kept["none"] == {"blocks.*.in_proj": "4", "blocks.*.out_proj": "4"}, "none: %s" % kept["none"])


def test_M4_tables_fold_identical_layers():
    """Rows whose names differ in a number alone and that hold the same are one, with a count; storages stand in natural order."""
    def rows(by, *args):
        out = shardc("predict", os.path.join(ROOT, "models", "gpt2.lua"), "--set", "layers=12", "--world", "4", "--device", "h200", "--by", by, *args)
        found = re.findall(r"^ +([\d,]+)  (\S+)(?: \((\d+) × ([\d,]+)\))?", re.split(r"\sbytes\n", out)[1], re.M)
        return [(name, times or None, total, each) for total, name, times, each in found]
    units = rows("unit")
    check([r[:2] for r in units if r[0].startswith("h.")] == [("h.*", "11"), ("h.11", None)], "%s" % units)
    for name, count, total, each in rows("module") + units:
        number = lambda text: int(text.replace(",", ""))
        check(not count or number(total) == int(count) * number(each), "%s: %s is not %s × %s" % (name, total, count, each))
    kept = [r[0] for r in rows("storage") if re.match(r"h\.\d+/master", r[0])]
    check(kept == ["h.%d/master" % n for n in range(12)], "storages of one size: %s" % kept)
