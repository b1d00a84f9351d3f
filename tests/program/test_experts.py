"""Routed experts beside transformers (tests/golden/experts.*): the loss and every gradient of six models' layers, on 1, 2 and 4 ranks, with the experts a
unit of their own; and capacity, of which the model counts what has no place.

Relies on: harness.py, tests/golden/experts.{lua,json,weights,grads}. Relied on by: run.py."""
import json
import os
import struct

from harness import ROOT, build, check, corpus, floats, long, must, read_log, read_safetensors, relative, same_run, scratch, steps, write_safetensors
from harness import run as run_program

GOLDEN = os.path.join(ROOT, "tests", "golden", "experts")
STEP, CLOSE = 0.1, 1e-5


def run(binary, folder, *more):
    log = os.path.join(folder, "log.jsonl")
    must([binary, "--data", "-", "--weights", GOLDEN + ".weights.safetensors", "--steps", "1", "--lr", str(STEP), "--warmup", "0", "--quiet", "--log", log, *more], stdin=struct.pack("<8i", *range(8)).decode())
    return next(s for s in read_log(log) if "loss" in s)


@long
def test_experts_are_transformers():
    with open(GOLDEN + ".json") as f:
        loss = json.load(f)["loss"]
    start, want = (read_safetensors("%s.%s.safetensors" % (GOLDEN, part)) for part in ("weights", "grads"))
    worst = 0
    for world, sharded in (1, False), (2, True), (4, True):
        folder = scratch("experts-%d" % world)
        binary, end = build(GOLDEN + ".lua", world=world, sharded=str(sharded).lower()), os.path.join(folder, "end.safetensors")
        step = run(binary, folder, "--export", end)
        check(abs(step["loss"] / loss - 1) < CLOSE, "%d ranks: loss %.9g, not %.9g" % (world, step["loss"], loss))
        after = read_safetensors(end)
        for name, g in want.items():
            change = [(a - b) / STEP for a, b in zip(floats(start[name]), floats(after[name]))]
            apart = relative(change, floats(g))
            check(apart < CLOSE, "%d ranks, %s: %.1e" % (world, name, apart))
            worst = max(worst, apart)
    return "6 layers, %d gradients within %.1e on 1, 2 and 4 ranks" % (len(want), worst)


def test_a_decoder_of_experts_trains():
    """The same losses with and without recompute; with a capacity of a quarter of equal shares the model still trains, otherwise."""
    logs = {}
    for name, options in ("plain", {}), ("recompute", {"recompute": "full"}), ("capacity", {"capacity": 0.25}), ("shared", {"shared": 64, "score": "sigmoid"}):
        log = os.path.join(scratch("moe-" + name), "log.jsonl")
        binary = build("moe.lua", layers=2, dim=32, heads=2, head_dim=16, ffn=32, batch=2, seq=32, **options)
        must([binary, "--data", corpus(), "--steps", "30", "--seed", "3", "--lr", "3e-3", "--quiet", "--log", log])
        logs[name] = [s["loss"] for s in steps(read_log(log))]
        check(logs[name][-1] < 0.8 * logs[name][0], "%s: losses %s" % (name, logs[name]))
    check(logs["plain"] == logs["recompute"], "recompute changes bits: %s, %s" % (logs["plain"][:3], logs["recompute"][:3]))
    check(logs["plain"] != logs["capacity"], "a capacity changes nothing")


@long
def test_plans_change_no_bit_where_all_tokens_go_to_the_same_experts():
    """A router of zeros: all scores are equal, and the first experts get every token. The arena is exact (run checks it), and plans and corrections that follow
    from counts change no bit."""
    small = dict(layers=1, dim=32, heads=2, head_dim=16, ffn=32, batch=2, seq=16, score="sigmoid", balance=0.0)
    for world in 1, 2, 4:
        zeros = os.path.join(scratch("same-experts"), "zeros.safetensors")
        first = build("moe.lua", world=world, **small)
        must([first, "--data", corpus(), "--steps", "0", "--seed", "3", "--quiet", "--export", zeros])
        weights = read_safetensors(zeros)
        for k in weights:
            if k.endswith("gate.weight"):
                weights[k] = (*weights[k][:2], bytes(len(weights[k][2])))
        write_safetensors(zeros, weights)
        args = ["--data", corpus(), "--weights", zeros, "--seed", "3", "--steps", "3", "--lr", "1e-3"]
        plain = run_program(first, *args)
        same_run(plain, run_program(build("moe.lua", world=world, recompute="full", **small), *args), "recompute on %d ranks" % world)
        offload = os.path.join(scratch("offload"), "policy.lua")
        with open(offload, "w") as f:
            f.write('return { { match = "layers.*", checkpoint = { offload = { "input" } }, fully_shard = { offload = { params = true, optimizer = true } } } }\n')
        same_run(plain, run_program(build("moe.lua", world=world, policy=offload, **small), *args), "offload on %d ranks" % world)
        balanced = [run_program(build("moe.lua", world=world, balance_rate=0.01, recompute=r, **small), *args) for r in ("none", "full")]
        same_run(balanced[0], balanced[1], "corrections on %d ranks" % world)
        check(set(floats(balanced[0][1]["layers.0.mlp.correction"])) != {0.0}, "no correction has changed")
