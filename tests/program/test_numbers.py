"""Promise P3 and the global batch: what must be bit-identical, and what must agree across world sizes.

Relies on: harness.py. Relied on by: run.py."""
import json
import os
import struct

from harness import all_weights, build, check, close, corpus, llama3_with, losses, microbatches, read_log, run, same_run, scratch, steps, train

GPT2 = dict(layers=2, dim=32, heads=2, vocab=256, batch=4, seq=32)
LLAMA = dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=4, seq=32)
MIXED = dict(precision="bf16", dropout=0.1)
STEPS = ("--steps", "6", "--seed", "7", "--lr", "3e-3", "--warmup", "2")


def plain(model, small, world=2, **more):
    return run(build(model, optimized=True, world=world, **dict(small, **MIXED, **more)), "--data", corpus(), *STEPS)


def variants(model, small):
    a = plain(model, small)
    same_run(a, plain(model, small, redzone=0), "%s placed without red zones" % model)
    for options in (dict(recompute="full"), dict(recompute="selective"), dict(offload="activations"), dict(reshard=False),
                    dict(prefetch=0), dict(prefetch=3), dict(offload="state")):
        b = plain(model, small, **options)
        same_run(a, b, "%s with %s" % (model, options))
    return "7 memory policies and another placement, losses and weights bit-identical"


def test_processors_agree():
    """Kernels compiled for the oldest processor and for this one: the same bits, however their loops became vectors."""
    for model, small in (("gpt2.lua", GPT2), ("llama3.lua", LLAMA)):
        args = "--data", corpus(), *STEPS
        same_run(run(build(model, optimized=True, **dict(small, **MIXED)), *args), run(build(model, optimized=True, variant="portable", **dict(small, **MIXED)), *args), model)
    return "gpt2 and llama3: losses and weights bit-identical"


INTEGERS = """
local nn, optim = require "nn", require "optim"
local net = nn.module "Net"
net.w = nn.parameter({ 4 }, { init = nn.init.ones() })
function net:forward(n)
  local big = n + 16777217
  local cases = {
    add = big - 16777216, mul = n * 16777259 - n * 16777216, neg = 16777218 - big, abs = nn.abs(-big) - 16777216, square = big * n - n * 16777216,
    maximum = nn.maximum(big, 16777219) - 16777216, clamp = nn.clamp(big, 16777217, 16777221) - 16777216, where = nn.where(nn.eq(big, 16777219), big, 16777216) - 16777216,
  }
  for name, x in pairs(cases) do nn.log_metric(name, nn.sum(x)) end
  return nn.mean(self.w * self.w)
end
return nn.training { model = net, batch = { n = nn.input("int32", { 5 }) }, loss = function(m, b) return m(b.n) end, optimizer = optim.SGD { lr = 0 } }
"""


def test_integers_are_exact():
    """Beyond what fp32 holds, in every pointwise function of integers."""
    folder, n = scratch("integers"), [1, 2, 3, 10, -1]
    model, records, log = (os.path.join(folder, f) for f in ("integers.lua", "records", "log.jsonl"))
    open(model, "w").write(INTEGERS)
    open(records, "wb").write(struct.pack("<5i", *n))
    train(build(model, optimized=True), "--data", "-", "--steps", "1", "--log", log, records=records)
    expected = {"add": sum(n) + 5, "mul": 43 * sum(n), "neg": 5 - sum(n), "abs": sum(n) + 5, "square": sum(x * (x + 1) for x in n),
                "maximum": sum(max(x + 1, 3) for x in n), "clamp": sum(min(max(x + 1, 1), 5) for x in n), "where": 3}
    found = {k: steps(read_log(log))[0][k] for k in expected}
    check(found == expected, "%s instead of %s" % (found, expected))
    return "%d functions" % len(expected)


def test_gpt2_policies_are_bit_identical():
    return variants("gpt2.lua", GPT2)


def test_llama3_policies_are_bit_identical():
    return variants("llama3.lua", LLAMA)


def test_llama3_parts_of_a_joined_product_checkpointed():
    """Queries are made again, keys and values are not: their product is one all the same."""
    path = llama3_with(scratch("parts"), "    nn.checkpoint_wrapper(block.self_attn.q_proj)\n    nn.fully_shard(block, policy)\n")
    same_run(plain("llama3.lua", LLAMA), plain(path, LLAMA), "q_proj checkpointed")


def order_of(binary, seed):
    """The events of rank 0 as they ran."""
    trace = os.path.join(scratch("trace"), "t.json")
    run(binary, "--data", corpus(), "--steps", "1", "--interleave", str(seed), "--trace", trace)
    with open(trace) as f:
        events = [e for e in json.load(f) if e["ph"] == "X" and e["pid"] == 0]
    return [e["args"]["event"] for e in sorted(events, key=lambda e: e["ts"])]


def interleaved(model, small):
    binary = build(model, optimized=True, world=2, recompute="full", **dict(small, **MIXED))
    a = run(binary, "--data", corpus(), *STEPS)
    same_run(a, run(binary, "--data", corpus(), "--poison", *STEPS), "poison")
    for seed in range(20):
        same_run(a, run(binary, "--data", corpus(), "--interleave", str(seed), *STEPS), "interleave %d" % seed)
    check(order_of(binary, 1) == order_of(binary, 1) != order_of(binary, 2), "a seed is an order")
    return "poison and 20 interleavings bit-identical"


def test_gpt2_poison_and_interleave():
    return interleaved("gpt2.lua", GPT2)


def test_llama3_poison_and_interleave():
    return interleaved("llama3.lua", LLAMA)


def worlds(model, small):
    """The same global batch of 8 on 1, 2 and 4 ranks, and with accumulation, dropout by global sample; the same loss over all of
    the validation data."""
    runs, validation = {}, ("--val-data", corpus("other", 16 * small["seq"] + 1, 2), "--eval-steps", "0")
    for name, world, accumulate, batch in (("1", 1, 1, 8), ("2", 2, 1, 4), ("4", 4, 1, 2), ("2 x 2", 2, 2, 2)):
        o = dict(small, precision="fp32", dropout=0.1, batch=batch, accumulate=accumulate)
        runs[name] = run(build(model, optimized=True, world=world, **o), "--data", corpus(), "--steps", "20", *STEPS[2:], *validation, *microbatches(o))
    worst = 0
    for name in runs:
        worst = max(worst, close(losses(runs[name][0]), losses(runs["1"][0]), 1e-5, "losses at world " + name))
        close([x["val_loss"] for x in runs[name][0][-1:]], [runs["1"][0][-1]["val_loss"]], 1e-5, "validation at world " + name)
        # all weights together: a key bias has no gradient but rounding, which Adam blows up to whole steps
        close(all_weights(runs[name]), all_weights(runs["1"]), 1e-4, "weights at world " + name)
    check(len(losses(runs["1"][0])) == 20, "20 steps")
    return "worlds 1, 2, 4 and 2x2: losses within %.1e" % worst


def test_states_larger_than_a_buffer_resume():
    """A tensor of 2 MB is read and written in several goes, whole or in parts, with one checksum."""
    o, common = dict(dim=128, hidden=1024, seq=4), ("--data", corpus(), "--seed", "7")
    whole = {w: run(build("mlp.lua", optimized=True, world=w, batch=8 // w, **o), *common, "--steps", "3") for w in (1, 2)}
    state = os.path.join(scratch("state"), "s")
    run(build("mlp.lua", optimized=True, batch=8, **o), *common, "--steps", "2", "--save", state)
    rest = {w: run(build("mlp.lua", optimized=True, world=w, batch=8 // w, **o), *common, "--steps", "3", "--resume", state) for w in (1, 2)}
    same_run((whole[1][0][2:], whole[1][1]), rest[1], "resumed as it was saved")
    close(losses(rest[2][0]), losses(whole[2][0])[2:], 1e-5, "in halves")
    check(max(len(t[2]) for t in rest[1][1].values()) > 1 << 20, "tensors are large")


def test_gpt2_worlds_agree():
    return worlds("gpt2.lua", GPT2)


def test_llama3_worlds_agree():
    return worlds("llama3.lua", LLAMA)
