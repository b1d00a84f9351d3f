"""Rows X1 to X4: all-gather extensions, and custom ops, on the CPU target.

Relies on: harness.py, rows/pair.{lua,c}, models/extensions, wire.c; libclang. Relied on by: run.py."""
import glob
import itertools
import json
import os
import random
import re

import pages
from harness import BAD, MANY, ROOT, ROWS, SHARDC, build, check, command, corpus, events_of, floats, learned, library, losses, microbatches, must, places, read_log, read_safetensors, run, same_run, scratch, shardc, shared, train, waits, write_numbers

PAIR = os.path.join(ROWS, "pair.lua")
GATHER = os.path.join("extensions", "gather.lua")
BATCH = 8  # of all ranks
SHORT = r"pair\.%s:\d+: pair_short says that it wrote \d+ elements for [\w.]+ \[\d+, \d+\) on rank \d, and \d+ belong there"


def records(steps=10, dim=8):
    """A file with the inputs of `steps` steps."""
    def make(path):
        r = random.Random(4)
        write_numbers(path, "f", [r.gauss(0, 1) for _ in range(steps * BATCH * dim)])
    return shared("pair-%d.bin" % steps, make)


def pair(world, **o):
    return build(PAIR, world=world, **dict(dict(batch=BATCH // world // (2 if o.get("accumulate") else 1)), **o))


def trained(binary, *args, steps=10, weights=True):
    """(log, weights); the training state of every step's end, if `args` says --save."""
    folder = scratch("pair")
    log, out = os.path.join(folder, "log.jsonl"), os.path.join(folder, "weights.safetensors")
    train(binary, "--data", "-", "--steps", str(steps), "--log", log, *(("--export", out) if weights else ()), *args,
          records=records())
    return read_log(log), read_safetensors(out) if weights else {}


def state_after(binary, step):
    """The shards of all ranks: master, moments, by file and tensor."""
    folder = os.path.join(scratch("state"), "save")
    log, _ = trained(binary, "--save", folder, steps=step, weights=False)
    files = sorted(glob.glob(os.path.join(folder, "**", "*.safetensors"), recursive=True))
    check(files, "nothing saved in " + folder)
    return losses(log), [(os.path.basename(f), read_safetensors(f)) for f in files]


def events(binary, program="micro"):
    plan = json.loads(shardc("inspect", binary, "--format", "json"))
    return events_of(plan, program), plan


def gathers(binary, program="micro"):
    return [e for e in events(binary, program)[0] if e["op"] == "all_gather"]


# ── X1 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_X1_pairs_are_gathered_and_rebuilt():
    """Losses and the sharded state equal those of no extension after each of 10 steps, and what ranks compute that hold all parameters whole."""
    for world in (2, 4):
        whole = trained(pair(world, extension="none", mesh="whole"))
        reference = [state_after(pair(world, extension="none"), step) for step in range(1, 11)]
        check(len(reference[-1][0]) == 10 and reference[0][1] != reference[1][1], "the reference does not train")
        for reshard in (True, False):
            binary = pair(world, reshard=reshard)
            log, weights = trained(binary)  # the norm is summed in another order
            check(losses(log) == losses(whole[0]) and weights == whole[1], "world %d, reshard %s: not what whole ranks compute" % (world, reshard))
            ids = [e["id"] for e in gathers(binary)]
            for unit in (1, 2, 3):
                for direction in "fb" if reshard else "f":
                    for wire in ("", ".1"):
                        check("g%d%s%s" % (unit, direction, wire) in ids, "no gather g%d%s%s in %s" % (unit, direction, wire, ids))
            check(len(ids) == (12 if reshard else 6), "gathers %s" % ids)
            for step in range(1, 11):
                check(state_after(binary, step) == reference[step - 1], "world %d, reshard %s: step %d differs from the reference" % (world, reshard, step))
    return "world 2 and 4, reshard true and false: losses and shards identical after each of 10 steps"


def test_X1_with_every_policy():
    """The extension changes no bit whatever else is asked for: it runs where the plan says, on live bytes only."""
    n = 0
    for world, o in ((2, dict(recompute=True)), (2, dict(offload=True)), (2, dict(optimizer=True)), (2, dict(accumulate=2)), (2, dict(units=False)),
                     (2, dict(align="row")), (2, dict(accumulate=2, reshard=False)), (4, dict(group=2)), (2, dict(freeze=True)), (2, dict(units=False, recompute=True, offload=True))):
        more = microbatches(o)
        steps = 5 if "accumulate" in o else 10
        same_run(trained(pair(world, extension="none", **o), *more, steps=steps), trained(pair(world, **o), *more, steps=steps), "pairs with %s" % o)
        n += 1
    for world in (1, 2, 4):
        binary = pair(world)
        a = trained(pair(world, extension="none"))
        for args in ((), ("--poison",), ("--check-finite",), *[("--interleave", str(seed)) for seed in range(5)]):
            same_run(a, trained(binary, *args), "pairs at world %d, %s" % (world, args))
            n += 1
    return "%d runs bit-identical to those without the extension" % n


# ── X2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_X2_never_whole_in_fp32():
    """bf16 parameters of pairs: made as shards by a truncated normal, and at no time is one whole in fp32 on a rank."""
    first = None
    for world in (2, 4):
        binary = pair(world, precision="bf16")
        plan = events(binary)[1]
        units = {u["path"]: u for u in plan["units"]}
        stored = [x for x in plan["storages"] if x["class"] == "parameters"]
        check(len(stored) == 3, "states of parameters: %s" % [x["name"] for x in stored])
        for x in stored:  # the only fp32 parameters: shards
            u = units[x["owner"]]
            check(u["dtype"] == "fp32" and places(plan, u, "shard") == world and x["size"] == u["numel"] // world * 4, "%s holds %d bytes" % (x["name"], x["size"]))
        whole = [x for x in plan["storages"] if x["class"] == "unsharded"]
        check(len(whole) >= 6, "unsharded buffers: %s" % [x["name"] for x in whole])
        for x in whole:  # gathered halves, and what they make: bf16
            check(x["size"] == units[x["owner"]]["numel"] * 2, "%s holds %d bytes" % (x["name"], x["size"]))
        made = [x["name"] for x in plan["storages"] if x.get("program") in ("init", "start")]
        check(not made, "init makes more than states: %s" % made)
        log, weights = trained(binary, steps=3)
        check(len(losses(log)) == 3 and len(set(losses(log))) == 3, "losses %s" % losses(log))
        _, start = trained(binary, "--lr", "0", steps=1)
        values = [x for t in start.values() for x in floats(t)]
        check(0.5 < max(map(abs, values)) <= 0.6 and abs(sum(values) / len(values)) < 0.03, "not a normal of 0.3 cut at two deviations")
        first = first or start
        check(start == first != weights, "initial values depend on the world, or nothing is trained")
        same_run((log, weights), trained(binary, "--poison", steps=3), "poison")
    return "shards of fp32, whole parameters in bf16 alone; the same initial values at world 2 and 4"


# ── X3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────
def copied(binary, steps):
    """Bytes that the ranks copied in `steps` steps."""
    found = os.path.join(scratch("wire"), "copies")
    must([binary, "--data", corpus(), "--steps", str(steps)], env={"LD_PRELOAD": library("wire", "-O2", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-w"), "SC_COPIES": found})
    files = glob.glob(found + ".*")
    check(len(files) >= 2, "ranks report nothing: %s" % files)
    return sum(int(open(f).read()) for f in files)


def test_X3_less_travels():
    """What is stored in fp32 travels in bf16 or fp8: half and a quarter of the bytes, in the schedule and as counted."""
    for world in (2, 4):
        binaries = {wire: build(GATHER, world=world, wire=wire, batch=8 // world) for wire in ("fp32", "bf16", "fp8")}
        planned, counted, loss = {}, {}, {}
        for wire, binary in binaries.items():
            ours = [e for e in gathers(binary) if e["module"].startswith("layers.") and not e["id"].endswith(".amax")]
            check(len(ours) == 6, "gathers of the blocks: %s" % [e["id"] for e in ours])
            planned[wire] = sum(e["bytes"] for e in ours)
            counted[wire] = copied(binary, 5) - copied(binary, 3)  # of two steps
            log, _ = run(binary, "--data", corpus(), "--steps", "8")
            loss[wire] = losses(log)
        check(planned["bf16"] * 2 == planned["fp32"] == planned["fp8"] * 4, "bytes in the schedule: %s" % planned)
        # per step a rank copies all that its gathers deliver: world/(world - 1) of what is on the wire
        for wire in ("bf16", "fp8"):
            less = counted["fp32"] - counted[wire]
            expected = (planned["fp32"] - planned[wire]) * world / (world - 1) * world * 2
            check(abs(less - expected) <= 0.01 * expected, "world %d, %s: %d bytes less were copied, %d expected" % (world, wire, less, expected))
        check(loss["bf16"] != loss["fp32"] and loss["fp8"] != loss["bf16"], "the wire's dtype has no effect")
        for wire, tolerance in (("bf16", 2e-3), ("fp8", 3e-2)):
            worst = max(abs(a - b) / b for a, b in zip(loss[wire], loss["fp32"]))
            check(worst < tolerance and learned(loss[wire], 0.95), "%s: losses %s beside %s" % (wire, loss[wire], loss["fp32"]))
    return "on the wire %d B (fp32), %d (bf16), %d (fp8) a rank and step at world 4, copied likewise" % (planned["fp32"], planned["bf16"], planned["fp8"])


def test_X3_by_a_policy_file():
    """--policy gives units an extension as nn.fully_shard does: the same bits."""
    policy = os.path.join(scratch("policy"), "p.lua")
    open(policy, "w").write('local nn = require "nn"\nlocal extension = nn.all_gather_extension { source = "gather_bf16.c", wire = "bf16" }\n'
                            'return { { match = "layers.*", fully_shard = { all_gather = extension } } }\n')
    a = run(build(GATHER, world=2, wire="bf16"), "--data", corpus(), "--steps", "4")
    same_run(a, run(build(GATHER, world=2, wire="fp32", policy=policy), "--data", corpus(), "--steps", "4"), "by a policy file")
    return "the same bits as from the model file"


def test_X3_wires_have_their_own_layout():
    """Four bits an element and a scale for each rank's piece; pieces end with rows (rows/packed.c refuses others)."""
    packed = os.path.join(ROWS, "packed.lua")
    for world in (1, 2, 4):
        binary = build(packed, world=world, batch=8 // world)
        a = run(binary, "--data", corpus(), "--steps", "8")
        plain = losses(run(build(packed, world=world, batch=8 // world, packed=False), "--data", corpus(), "--steps", "8")[0])
        worst = max(abs(x - y) / y for x, y in zip(losses(a[0]), plain))
        check(1e-4 < worst < 0.05 and learned(losses(a[0])), "packed %s, plain %s" % (losses(a[0]), plain))
        for args in (("--poison",), ("--interleave", "2"), ("--check-finite",)):
            same_run(a, run(binary, "--data", corpus(), "--steps", "8", *args), "packed %s" % (args,))
        if world == 1:
            continue
        unit = events(binary)[1]["units"][0]
        sizes = {e["id"]: e["bytes"] for e in gathers(binary)}
        check(sizes["g0f"] == unit["numel"] // 2 * (world - 1) / world and sizes["g0f.1"] == 5 * 4 * (world - 1), "gathers of %s, unit %s" % (sizes, unit))
        check(unit["numel"] % (world * 240 * 16) == 0, "slices of whole rows: %s" % unit)
    return "an eighth of the bytes; the same bits poisoned, interleaved, at world 1, 2 and 4"


def test_X3_the_gathered_buffer_is_reused():
    """Other tensors use each gathered buffer's bytes before or after it; nothing is allocated (harness.train interposes allocations)."""
    for wire in ("bf16", "fp8"):
        binary = build(GATHER, world=2, wire=wire, layers=6)
        _, plan = events(binary)
        micro = [x for x in plan["storages"] if x.get("program") == "micro"]
        for prefix in ("post_g", "g"):  # rebuilt parameters, gathered wires
            gathered = [x for x in micro if x["name"].startswith(prefix) and x["owner"].startswith("layers.")]
            check(len(gathered) >= 12, "%s: %d buffers %s*" % (wire, len(gathered), prefix))
            for x in gathered:
                check(any(y is not x and x["offset"] < y["offset"] + y["size"] and y["offset"] < x["offset"] + x["size"] for y in micro),
                      "%s: no other tensor uses the bytes of %s" % (wire, x["name"]))
        train(binary, "--data", corpus(), "--steps", "3")
    return "12 gathers, each in bytes that others use too; no allocation after the start"


# ── X4 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_X4_broken_extensions():
    """One clear error with file and line, when the model is compiled: what predict says, build says too. (test_bad_input.py has all messages.)"""
    for name, pattern in (("missing", r"extension_missing\.c:1: there is no function post_all_gather"), ("type", r"extension_type\.c:4: post_all_gather: parameter y is `int \*`"),
                          ("few", r"extension_few\.c:3: pre_all_gather has 2 parameters"), ("syntax", r"extension_syntax\.c:4: "),
                          ("undeclared", r"extension_undeclared\.c:5: "), ("size", r"extension_size\.c:3: pre_all_gather: parameter w is \[\]\[2\]")):
        said = []
        made = os.path.join(scratch("bad"), "build", "x")
        for args in (["predict"], ["build", "-o", made]):
            rc, out, err = command([SHARDC, args[0], os.path.join(BAD, "extension_%s.lua" % name), "--world", "2", *args[1:]])
            check(rc == 1 and not out and re.search("^[^\n]*" + pattern, err) and len(err.strip().splitlines()) == 1, "%s: exit %d %s" % (name, rc, err[-600:]))
            said.append(err)
        check(said[0] == said[1] and not os.path.exists(made), "%s: %s" % (name, said))
    return "6 kinds, before anything is written"


def test_X4_page():
    return pages.holds("models/behaviours/extension.md", 1)


@waits
def test_X4_wrong_size_when_it_runs():
    """A function that fills less than its wires: the run stops with the C line before its first step, on every kind of plan."""
    for world, o in itertools.product((2, 4), ({}, dict(reshard=False), dict(offload=True))):
        rc, out, err = command(["sh", "-c", 'exec "$0" --data - --steps 1 < "$1"', pair(world, extension="short", **o), records()])
        check(rc == 1 and re.match(r"\S+" + SHORT % "c" + "[^\n]*\n$", err), "exit %d: %s" % (rc, err[-600:]))
        check(not re.search("^step 1", out, re.M), "it trained: " + out[-300:])
    return "exit 1 with the C line before the first step"


# ── custom ops ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_X_custom_op_is_an_op():
    """swish in C gives what nn.silu gives, within rounding, and the same bits whatever is recomputed and however events run;
    gradients: gradients.lua's custom ops against central differences (test_gradients.py)."""
    custom = os.path.join("extensions", "custom.lua")
    for world in (2, 4):
        o = dict(world=world, batch=8 // world)
        binary = build(custom, **o)
        ops = {e["op"]: e for e in events(binary)[0]}
        tasks = [line.split("|")[0] for line in shardc("calibrate", os.path.join(ROOT, "models", custom), "--world", str(world)).splitlines()]
        check("matmul" in tasks and not [t for t in tasks if "custom" in t or "swish" in t], "what calibrate is to time: %s" % tasks)
        check(ops["swish"]["flops"] * 2 == ops["swish_grad"]["flops"] == 2 * 5 * 8 // world * 32 * 256, "flops %s %s" % (ops["swish"]["flops"], ops["swish_grad"]["flops"]))
        a = run(binary, "--data", corpus(), "--steps", "6")
        silu = run(build(custom, op="silu", **o), "--data", corpus(), "--steps", "6")
        worst = max(abs(x - y) / y for x, y in zip(losses(a[0]), losses(silu[0])))
        check(worst < 1e-5, "swish %s, silu %s" % (losses(a[0]), losses(silu[0])))
        check(losses(run(build(custom, beta=2.0, **o), "--data", corpus(), "--steps", "2")[0]) != losses(a[0])[:2], "beta has no effect")
        same_run(a, run(build(custom, recompute=True, **o), "--data", corpus(), "--steps", "6"), "recomputed")
        for args in (("--poison",), ("--interleave", "3")):
            same_run(a, run(binary, "--data", corpus(), "--steps", "6", *args), str(args))
    return "as nn.silu within %.1e; bits the same with recompute, poison, interleaved" % worst


def test_X_sanitizers():
    """Extensions and custom ops under ASan, UBSan and TSan."""
    for variant in ("asan", "tsan"):
        for model, o in ((GATHER, dict(wire="fp8")), (GATHER, dict(wire="bf16", reshard=False)), (os.path.join("extensions", "custom.lua"), {})):
            binary = build(model, world=2, variant=variant, redzone=1024, **o)
            env = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1", "TSAN_OPTIONS": "halt_on_error=1"}
            rc, out, err = command([binary, "--data", corpus(), "--steps", "2"] + ["--redzones"] * (variant == "asan"), env=env, timeout=MANY)
            check(rc == 0 and "Sanitizer" not in err, "%s %s %s: exit %d\n%s" % (model, o, variant, rc, err[-2000:]))
    return "3 programs each"
