"""Routed experts beside transformers (tests/golden/experts.*): the loss and every gradient of six models' layers, on 1, 2 and 4 ranks, with the experts a
unit of their own; and capacity, of which the model counts what has no place.

Relies on: harness.py, tests/golden/experts.{lua,json,weights,grads}. Relied on by: run.py."""
import json
import os
import struct

from harness import ROOT, SHARDC, build, check, close, corpus, floats, learned, long, must, read_log, read_safetensors, relative, same_run, scratch, settings, shardc, steps, write_safetensors
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
    for world, sharded, expert in (1, False, 1), (2, True, 1), (4, True, 1), (2, True, 2), (4, True, 2):
        folder = scratch("experts-%d-%d" % (world, expert))
        binary, end = build(GOLDEN + ".lua", world=world, sharded=str(sharded).lower(), expert=expert), os.path.join(folder, "end.safetensors")
        step = run(binary, folder, "--export", end)
        check(abs(step["loss"] / loss - 1) < CLOSE, "%d ranks, expert = %d: loss %.9g, not %.9g" % (world, expert, step["loss"], loss))
        after = read_safetensors(end)
        for name, g in want.items():
            change = [(a - b) / STEP for a, b in zip(floats(start[name]), floats(after[name]))]
            apart = relative(change, floats(g))
            check(apart < CLOSE, "%d ranks, expert = %d, %s: %.1e" % (world, expert, name, apart))
            worst = max(worst, apart)
    return "6 layers, %d gradients within %.1e on 1, 2 and 4 ranks, and with the experts spread over 2" % (len(want), worst)


def test_experts_spread_over_ranks():
    """Spread over two ranks or four, a decoder's experts begin as the same experts and train to the same losses, with moments of fp32, of bf16 and in 8 bits. A
    checkpoint goes on where they are spread over more ranks, fewer or none. Recompute changes no bit."""
    small = dict(layers=2, dim=32, heads=2, head_dim=16, ffn=32, batch=1, seq=32, shared=16)
    runs = {}

    def train(name, binary, *more):
        log = os.path.join(scratch("spread-" + name), "log.jsonl")
        must([binary, "--data", corpus(), "--seed", "3", "--lr", "3e-3", "--quiet", "--log", log, *more])
        runs[name] = [s["loss"] for s in steps(read_log(log))]
        return runs[name]

    def near(a, b, close):
        """Later steps may lie further apart: a token whose two best experts score nearly alike may choose the other one."""
        apart = [abs(x / y - 1) for x, y in zip(runs[a], runs[b])]
        check(len(runs[a]) == len(runs[b]) and max(apart[:3]) <= close and max(apart) <= 20 * close, "%s and %s: losses %s, %s" % (a, b, runs[a], runs[b]))

    for moments, close in ("fp32", 1e-5), ("int8", 5e-4), ("bf16", 5e-5):
        whole, spread, both = (build("moe.lua", world=world, expert=expert, moments=moments, **small) for world, expert in ((4, 1), (4, 4), (4, 2)))
        for name, binary in ("whole", whole), ("spread", spread), ("both", both):
            train(name, binary, "--steps", "12")
            near("whole", name, close)
        for name, binary, others in ("whole", whole, [both]), ("both", both, [spread, whole]):
            state = os.path.join(scratch("spread-state"), "state")
            begun = train("begun", binary, "--steps", "6", "--save", state)
            check(begun == runs[name][:6], "%s: six steps end as %s, of twelve as %s" % (name, begun, runs[name][:6]))
            for other in others:
                runs["begun"] = begun + train("resumed", other, "--steps", "12", "--resume", state)
                near("whole", "begun", close)
    train("recomputed", build("moe.lua", world=4, expert=2, moments="bf16", recompute="full", **small), "--steps", "12")
    near("both", "recomputed", 0)
    return "losses of 12 steps on 4 ranks, with the experts of a layer on one, two and four of them"


def test_parts_of_the_batch_hide_each_others_travel():
    """The batch in two parts: the same losses to rounding (but that of balance, which is of each part), with and without a shared expert, and less communication exposed."""
    small, found = dict(layers=2, dim=32, heads=2, head_dim=16, ffn=32, batch=2, seq=32, world=4, expert=2), {}
    for shared in 0, 16:
        for parts in 1, 2:
            log = os.path.join(scratch("parts"), "log.jsonl")
            must([build("moe.lua", parts=parts, shared=shared, balance=0.0, **small), "--data", corpus(), "--seed", "3", "--steps", "6", "--lr", "3e-3", "--quiet", "--log", log])
            found[parts] = [s["loss"] for s in steps(read_log(log))]
        close(found[1][:3], found[2][:3], 1e-5, "shared = %d" % shared)
    exposed = []
    for parts in 1, 2:
        options = dict(layers=2, dim=2048, heads=16, kv_heads=4, head_dim=128, vocab=50304, experts=32, top=4, ffn=1024, batch=8, seq=4096, precision="bf16", expert=2, parts=parts)
        p = json.loads(shardc("predict", os.path.join(ROOT, "models", "moe.lua"), "--world", "2", "--device", "h100", "--format", "json", *settings(options)))["prediction"]
        exposed.append(p["exposed_us"] / p["step_us"])
    check(exposed[1] < 0.6 * exposed[0], "exposed: %s" % exposed)
    return "exposed communication %.1f and %.1f %% of a step" % tuple(100 * x for x in exposed)


def test_experts_in_pieces():
    """A layer's experts as two units and as four, of the same weights, also spread over ranks: the same losses; recomputed, the same bits."""
    small = dict(layers=2, dim=32, heads=2, head_dim=16, ffn=32, batch=1, seq=32, world=2)
    folder = scratch("pieces")
    runs = {}

    def train(name, binary, weights):
        log = os.path.join(folder, name + ".jsonl")
        must([binary, "--data", corpus(), "--steps", "6", "--lr", "3e-3", "--quiet", "--log", log, "--weights", weights])
        runs[name] = [s["loss"] for s in steps(read_log(log))]

    def near(name, close):
        apart = [abs(a / b - 1) for a, b in zip(runs["whole"], runs[name])]
        check(max(apart[:3]) <= close and max(apart) <= 20 * close, "%s: losses %s, of one unit %s" % (name, runs[name], runs["whole"]))

    begin = os.path.join(folder, "begin.safetensors")
    whole = build("moe.lua", **small)
    must([whole, "--data", corpus(), "--steps", "1", "--lr", "0", "--seed", "5", "--quiet", "--export", begin])
    train("whole", whole, begin)
    weights = read_safetensors(begin)
    for pieces, more in (2, {}), (4, {}), (2, {"expert": 2}), (2, {"recompute": "experts"}):
        cut = {}
        for name, (dtype, shape, blob) in weights.items():
            head, experts, last = name.partition(".experts.")
            if not experts:
                cut[name] = (dtype, shape, blob)
            for i in range(pieces if experts else 0):
                n = len(blob) // pieces
                cut["%s.experts.%d.%s" % (head, i, last)] = (dtype, [shape[0] // pieces, *shape[1:]], blob[i * n:(i + 1) * n])
        path, name = os.path.join(folder, "cut.safetensors"), "%d pieces %s" % (pieces, more)
        write_safetensors(path, cut)
        train(name, build("moe.lua", pieces=pieces, **more, **small), path)
        near(name, 1e-5)
    check(runs["2 pieces {}"] == runs["2 pieces {'recompute': 'experts'}"], "recompute changes bits")
    return "losses of 6 steps: %s" % runs["whole"][-1]


def test_a_decoder_of_experts_trains():
    """The same losses with and without recompute; with a capacity of a quarter of equal shares the model still trains, otherwise."""
    logs = {}
    for name, options in ("plain", {}), ("recompute", {"recompute": "full"}), ("capacity", {"capacity": 0.25}), ("shared", {"shared": 64, "score": "sigmoid"}):
        log = os.path.join(scratch("moe-" + name), "log.jsonl")
        binary = build("moe.lua", layers=2, dim=32, heads=2, head_dim=16, ffn=32, batch=2, seq=32, **options)
        must([binary, "--data", corpus(), "--steps", "30", "--seed", "3", "--lr", "3e-3", "--quiet", "--log", log])
        logs[name] = [s["loss"] for s in steps(read_log(log))]
        check(learned(logs[name], 0.8), "%s: losses %s" % (name, logs[name]))
    check(logs["plain"] == logs["recompute"], "recompute changes bits: %s, %s" % (logs["plain"][:3], logs["recompute"][:3]))
    check(logs["plain"] != logs["capacity"], "a capacity changes nothing")


def test_plan_keeps_products_before_gates():
    """Of a layer of experts a plan keeps what the products made; what is made of it in one pass is made again, at a hundredth of a product's time. An op of
    a fused group that reads another's result, which is kept too, is no reason to take that for a result of an earlier block."""
    options = dict(layers=3, dim=2048, heads=32, kv_heads=4, head_dim=128, vocab=4096, experts=16, top=8, ffn=768, precision="bf16", seq=4096, batch=8, clip=0)
    out = must([SHARDC, "plan", os.path.join(ROOT, "models", "moe.lua"), *sum((["--set", "%s=%s" % o] for o in options.items()), []), "--device", "h200",
                "--budget", "12.6GiB", "--format", "json"])
    plan = json.loads(out)
    choices = [b["choice"] for b in plan["blocks"]]
    check(all("mlp.experts:grouped_matmul" in c for c in choices) and any("mlp.experts:mul" not in c for c in choices), "%s" % choices)
    check(plan["step_us"] < 1.02 * plan["estimate_us"], "%s us, the estimate %s" % (plan["step_us"], plan["estimate_us"]))
    return "%.1f ms, the estimate %.1f" % (plan["step_us"] / 1e3, plan["estimate_us"] / 1e3)


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
