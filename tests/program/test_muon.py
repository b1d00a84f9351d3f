"""Muon: torch.optim.Muon's numbers, the same bits at any world and under any plan, groups with optimizers of their own.

Relies on: harness.py, golden/muon.lua and what muon.py has made beside it. Relied on by: run.py."""
import array
import math
import os
import re

from harness import ROOT, SHARDC, build, check, command, events_of, floats, long, microbatches, must, planned, read_safetensors, read_state, run, same_run, scratch, steps, train

GOLDEN = os.path.join(ROOT, "tests/golden")
MODEL, RECORDS, WEIGHTS = (os.path.join(GOLDEN, "muon" + x) for x in (".lua", ".records", ".weights.safetensors"))
SIZE = os.path.getsize(RECORDS) // 3  # of a step's record
# How far what a parameter changes by in three steps may lie from PyTorch's, as a part of it. What is no matrix is computed in fp32.
# A product whose sum is added up in another order may round to another bf16, and each step of Newton and Schulz grows that: PyTorch's
# own numbers of `large` lie 5e-3 from exact sums that are rounded where it rounds.
NEAR = {"bias": 1e-6, "table": 1e-6, "large": 1.5e-2}
MATRIX = 2e-3


def records(world, accumulate=1, overflow=None):
    """Each rank and microbatch gets the same gradients, so that their mean is exact. overflow: "inf", the first step's are infinite;
    "none": there is no first step, only the second and the third."""
    path = os.path.join(scratch("muon"), "records")
    with open(RECORDS, "rb") as f, open(path, "wb") as out:
        for step in range(3):
            record, at, parts = f.read(SIZE), 0, []
            if step == 0 and overflow:
                record = array.array("f", [math.inf]).tobytes() * (SIZE // 4)
            for _, shape, raw in read_safetensors(WEIGHTS).values():
                parts.append(record[at:at + len(raw)])
                at += len(raw)
            if step or overflow != "none":
                for _ in range(accumulate):
                    out.write(b"".join(p * world for p in parts))
    return path


def go(world=1, *args, accumulate=1, n=3, overflow=None, **o):
    if accumulate > 1:
        o["accumulate"] = accumulate
    binary = build(MODEL, world=world, optimized=True, **o)
    return run(binary, "--data", "-", "--weights", WEIGHTS, "--steps", str(n), *microbatches(o), *args, records=records(world, accumulate, overflow))


def test_numbers_are_pytorchs():
    """Three steps with given gradients from given weights: wide, tall, square and odd matrices, experts; AdamW for the rest."""
    start, worst = read_safetensors(WEIGHTS), {}
    for way in "original", "match_rms_adamw", "plain":
        want, (_, got) = read_safetensors(os.path.join(GOLDEN, "muon.%s.safetensors" % way)), go(way=way)
        check(got.keys() == want.keys(), "exported %s" % sorted(got))
        for name in want:
            was, x, y = floats(start[name]), floats(got[name]), floats(want[name])
            off = math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y)) / sum((a - b) ** 2 for a, b in zip(y, was)))
            check(off <= NEAR.get(name, MATRIX), "%s: %s changes otherwise than PyTorch's by %.2g of it" % (way, name, off))
            worst[name] = max(off, worst.get(name, 0))
    return ", ".join("%s %.1e" % x for x in worst.items())


@long
def test_every_option_changes_the_weights():
    with open(MODEL) as f:
        text = f.read()
    seen = {}
    check("optimizer = optim.Muon(options)" in text, "muon.lua has another optimizer")
    for line in ("", "lr = 0.01", "momentum = 0.9", "nesterov = false", "eps = 100", "ns_steps = 4", "ns_coefficients = { 3, -4, 2 }", "adjust_lr_fn = 'match_rms_adamw'",
                 "others = optim.SGD { lr = 0.01 }", "weight_decay = 0", "moment_dtype = 'bf16'", "groups = { { match = 'table', optimizer = others }, { match = 'tall', lr = 0.01 } }"):
        model = os.path.join(scratch("muon"), "muon.lua")
        with open(model, "w") as f:
            f.write(text.replace("\nreturn nn.training", "\n%s\nreturn nn.training" % (line and "options." + line)))
        weights = run(build(model), "--data", "-", "--weights", WEIGHTS, "--steps", "3", records=records(1))[1]
        key = tuple(weights[k][2] for k in sorted(weights))
        check(key not in seen, "'%s' changes nothing beside '%s'" % (line, seen.get(key)))
        seen[key] = line
    return "%d ways to train" % len(seen)


def same_weights(a, b, what):
    """The norm of the gradient is a sum over ranks, whose last digit the world changes."""
    for k in a[1]:
        check(a[1][k] == b[1][k], "%s: weights of %s differ" % (what, k))


@long
def test_no_world_and_no_plan_changes_a_bit():
    for o in {}, dict(moments="bf16"), dict(moments="int8"), dict(dtype="bf16", others="lion"):
        a = go(**o)
        for world in 2, 4:  # a mean of three is not exact
            same_weights(a, go(world, **o), "world %d, %s" % (world, o))
        same_run(go(3, **o), go(3, "--poison", "--interleave", "2", "--check-finite", offload="true", **o), "world 3, offloaded, %s" % o)
        same_weights(a, go(2, "--poison", "--interleave", "1", offload="stream", **o), "streamed, %s" % o)
        same_weights(a, go(2, scaler=True, **o), "with a loss scale, %s" % o)
        same_weights(go(1, accumulate=2, **o), go(2, accumulate=2, **o), "two microbatches, %s" % o)
        for world, replicas in (4, 2), (2, 2), (4, 4):
            same_weights(a, go(world, "--poison", replicate=replicas, **o), "%d replicas of %d, %s" % (replicas, world // replicas, o))
    same_run(go(2, clip=1.0), go(2, "--poison", "--interleave", "3", clip=1.0, offload="true"), "clipped, offloaded")
    return "worlds 1 to 4"


def test_a_skipped_step_changes_nothing():
    """An infinite gradient: neither momentum nor weights, of Muon and of AdamW."""
    for world in 1, 2:
        a, b = go(world, overflow="inf", scaler=True), go(world, n=2, overflow="none", scaler=True)
        same_weights(a, b, "world %d" % world)


def test_a_resumed_run_goes_on():
    folder = scratch("muon")
    state, whole = os.path.join(folder, "state"), go(2)
    binary = build(MODEL, world=2, optimized=True)
    records_of_2 = records(2)
    train(binary, "--data", "-", "--weights", WEIGHTS, "--steps", "1", "--save", state, records=records_of_2)
    names = [k for _, k in read_state(state)[1]]
    check(any(k.startswith("bias@") and k.endswith("#moment2") for k in names), "AdamW's second moment of the bias")
    check(not any(k.startswith("tall@") and k.endswith("#moment2") for k in names), "Muon keeps one moment: %s" % names)
    log, weights = run(binary, "--data", "-", "--resume", state, "--steps", "3", records=records_of_2)
    same_run(([x for x in whole[0] if x.get("step", 0) > 1], whole[1]), (log, weights), "resumed")
    return "at step 1"


def test_states_of_other_optimizers_are_refused():
    """By the parameter's name where only some have another."""
    state = os.path.join(scratch("muon"), "state")
    train(build(MODEL, optimized=True), "--data", "-", "--weights", WEIGHTS, "--steps", "1", "--save", state, records=records(1))
    rc, _, err = command([build(MODEL, optimized=True, others="lion"), "--data", "-", "--resume", state, "--steps", "2"])
    check(rc == 1 and "made with the optimizer 'adamw' of 'bias', and this program was built with 'lion': resume with the binary" in err, err)


def test_each_matrix_has_one_owner():
    """In the emitted text: every element of every matrix is some row's, and ranks have as much to do as their matrices allow."""
    folder = scratch("muon")
    for world in 1, 2, 4:
        must([SHARDC, "build", MODEL, "--world", str(world), "--sources", "-o", os.path.join(folder, "net")])
        with open(os.path.join(folder, "net.c")) as f:
            table = [int(x) for x in re.findall(r"-?\d+", re.search(r"micro_q0_table\[\] = \{(.*?)\}", f.read(), re.S)[1])]
        rows, load = sorted(table[i:i + 5] for i in range(0, len(table), 5)), [0] * world
        check(all(a[0] + a[1] * a[2] * a[3] <= b[0] for a, b in zip(rows, rows[1:])), "rows overlap: %s" % rows)
        for _, count, r, c, owner in rows:
            load[owner] += count * min(r, c) ** 2 * (3 * max(r, c) + min(r, c))
        sizes = sorted([tuple(t[1][-2:]) for n, t in read_safetensors(WEIGHTS).items() if n not in ("bias", "table", "experts")] + [(24, 16)] * 5)
        check(sorted((r, c) for _, count, r, c, _ in rows for _ in range(count)) == sizes, "matrices: %s" % rows)
        check(world == 1 or max(load) == 136 ** 2 * (3 * 150 + 136), "the rank with the largest matrix has others, too: %s" % load)
        check(min(load) > 0, "a rank has nothing to do: %s" % load)
    ids = [e["id"] for e in events_of(planned(MODEL, 4), "micro")]
    places = [ids.index(x) for x in ("b0", "bg0", "q0", "qr0", "u0")]
    check(places == sorted(places), "the events of Muon: %s" % ids)
