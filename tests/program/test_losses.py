"""Losses of large models: the examples models/preferences.lua, contrastive.lua and distillation.lua, the head fused with its loss, and means
over targets that the host does not have.

Relies on: harness.py, models/preferences.lua, models/contrastive.lua, models/distillation.lua. Relied on by: run.py."""
import array
import math
import os
import random

from harness import ROOT, build, check, close, corpus, planned, run, same_run, scratch, steps, write_safetensors

PREFERENCES, CONTRASTIVE, DISTILLATION = (os.path.join(ROOT, "models", n) for n in ("preferences.lua", "contrastive.lua", "distillation.lua"))
BATCH, ANSWERS, SEQ, PROMPT = 2, 2, 32, 12


def records(n, ranks=1, answers=ANSWERS, more=False, seed=1):
    """A file of n records: prompts with answers, whose tokens are the targets; more: also rewards and old log-probabilities."""
    r, path = random.Random(seed), os.path.join(scratch("records"), "records")
    with open(path, "wb") as f:
        for _ in range(n):
            ids, targets = array.array("i"), array.array("i")
            for _ in range(BATCH * ranks):
                prompt = [r.randrange(256) for _ in range(PROMPT)]
                for _ in range(answers):
                    answer = [r.randrange(256) for _ in range(r.randint(3, SEQ - PROMPT))]
                    text = (prompt + answer + [0] * SEQ)[:SEQ + 1]
                    ids.extend(text[:SEQ])
                    targets.extend([-100] * (PROMPT - 1) + answer + [-100] * (SEQ - PROMPT + 1 - len(answer)))
            f.write(ids.tobytes() + targets.tobytes())
            if more:
                f.write(array.array("f", [r.choice((0, 1)) for _ in range(BATCH * ranks * answers)]).tobytes())
                f.write(array.array("f", [-5.5] * (BATCH * ranks * answers * SEQ)).tobytes())
    return path


def weights(noise, seed=2):
    """A file of weights of both decoders, equal but for noise."""
    path, r = os.path.join(scratch("weights"), "w.safetensors"), random.Random(seed)
    _, made = run(build(PREFERENCES, lr=0), "--data", "-", "--steps", "1", records=records(1))
    out = {}
    for name, (dtype, shape, data) in made.items():
        if not name.startswith("policy."):
            continue
        x = array.array("f", data)
        out["reference." + name[len("policy."):]] = (dtype, shape, data)
        out[name] = (dtype, shape, array.array("f", [v + r.gauss(0, noise) for v in x]).tobytes())
    write_safetensors(path, out)
    return path


def test_dpo_in_16_bits():
    """Sums of log-probabilities are fp32: loss and margin of a bf16 unit are within 1 % of those of fp32."""
    equal = steps(run(build(PREFERENCES), "--data", "-", "--weights", weights(0), "--steps", "1", records=records(1))[0])[0]
    check(abs(equal["loss"] - math.log(2)) < 1e-6 and equal["margin"] == 0, "equal weights: loss %(loss)g, margin %(margin)g" % equal)
    other, notes = weights(0.1), []
    got = [steps(run(build(PREFERENCES, precision=p, lr=0, beta=0.5), "--data", "-", "--weights", other, "--steps", "4", records=records(4))[0]) for p in ("fp32", "bf16")]
    for what in ("loss", "margin"):
        fp32, bf16 = (sum(abs(s[what]) for s in log) for log in got)
        check(fp32 > 2, "the %s %g shows nothing" % (what, fp32))
        notes.append(abs(bf16 / fp32 - 1))
        check(notes[-1] < 0.01, "%s %g in bf16, %g in fp32" % (what, bf16, fp32))
    return "loss within %.2f %%, margin within %.2f %%" % (100 * notes[0], 100 * notes[1])


def test_preferences_train():
    for loss, answers in (("dpo", 2), ("reward", 2), ("grpo", 4)):
        same = records(1, 2, answers, loss == "grpo")
        with open(same, "rb") as f:
            text = f.read()
        with open(same, "wb") as f:
            f.write(text * 30)
        args = [] if loss == "reward" else ["--weights", weights(0)]
        log = steps(run(build(PREFERENCES, world=2, loss=loss, answers=answers, precision="bf16"), "--data", "-", *args, "--steps", "30", records=same)[0])
        check(log[-1]["loss"] < log[0]["loss"] - 0.05, "%s: loss %g -> %g" % (loss, log[0]["loss"], log[-1]["loss"]))
        if loss != "grpo":
            check(log[-1]["margin"] > 0.2, "%s: margin %g" % (loss, log[-1]["margin"]))


def test_contrastive_over_the_global_batch():
    """Two ranks have the losses of one with the whole batch."""
    got = [[s["loss"] for s in steps(run(build(CONTRASTIVE, world=w, batch=8 // w), "--data", corpus(), "--steps", "5")[0])] for w in (1, 2)]
    close(got[1], got[0], 1e-5, "losses")
    check(got[0][0] > 1 and got[0][-1] < got[0][0], "losses %s" % got[0])


HEAD = """local nn, optim = require "nn", require "optim"
local o = nn.options { head = nn.choice("whole", "chunks", "rows"), chunk = 3, batch = 4, seq = 16, precision = nn.choice("fp32", "bf16") }
local model = nn.module "Net"
model.embed, model.norm = nn.Embedding(256, 24), nn.LayerNorm(24)
model.up, model.head = nn.Linear(24, 24), nn.Linear(24, 256)
function model:forward(tokens) return self.norm(nn.silu(self.up(self.embed(tokens)))) end
nn.fully_shard(model.head, { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } })
nn.fully_shard(model, { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } })
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }), targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }) },
  loss = function(m, b)
    local x, head = m(b.tokens), m.head
    if o.head == "whole" then return nn.cross_entropy(nn.linear(x, head.weight, head.bias), b.targets) end
    local loss = nn.linear_cross_entropy(x, head.weight, b.targets, { bias = head.bias, chunk = o.chunk, reduction = o.head == "rows" and "none" or "mean" })
    return o.head == "rows" and nn.mean(loss) or loss
  end,
  optimizer = optim.SGD { lr = 0.1 }, accumulate = 2,
}
"""


def head():
    path = os.path.join(scratch("head"), "head.lua")
    with open(path, "w") as f:
        f.write(HEAD)
    return path


def test_head_fused_with_its_loss():
    """The numbers of the whole head, on two ranks with accumulation, and a chunk's logits in memory instead of all."""
    model, got = head(), {}
    for how in ("whole", "chunks", "rows"):
        binary, args = build(model, world=2, head=how), ("--data", corpus(), "--steps", "3")
        log, trained = run(binary, *args)
        same_run((log, trained), run(binary, *args, "--poison", "--interleave", "7"), how + ", poisoned")
        got[how] = [s["loss"] for s in steps(log)] + [s["grad_norm"] for s in steps(log)]
    for how in ("chunks", "rows"):
        close(got[how], got["whole"], 2e-6, how)
    size = dict(batch=8, seq=512, precision="bf16")
    logits, whole = 8 * 512 * 256 * 2, planned(model, 1, head="whole", **size)["peak"]["bytes"]
    for how in ("chunks", "rows"):
        chunks = planned(model, 1, head=how, chunk=512, **size)["peak"]["bytes"]
        check(chunks < whole - logits // 2, "%s: %d bytes, whole: %d, of which logits are %d" % (how, chunks, whole, logits))


def test_distillation_in_chunks():
    """The numbers of whole logits, on two ranks, and a chunk's logits of each in memory instead of all."""
    got = {}
    for how in ("whole", "chunks"):
        for reverse in (False, True):
            binary, args = build(DISTILLATION, world=2, head=how, reverse=reverse, chunk=50), ("--data", corpus(), "--steps", "4")
            log, trained = run(binary, *args)
            same_run((log, trained), run(binary, *args, "--poison", "--interleave", "7"), how + ", poisoned")
            got[how, reverse] = [s["loss"] for s in steps(log)] + [s["grad_norm"] for s in steps(log)]
    for reverse in (False, True):
        close(got["chunks", reverse], got["whole", reverse], 2e-6, "chunks, reverse %s" % reverse)
    check(abs(got["whole", True][0] - got["whole", False][0]) > 1e-4, "the divergence is the same both ways")
    size = dict(batch=8, seq=512, vocab=4096, precision="bf16", chunk=512)
    logits, whole = 8 * 512 * 4096 * 2, planned(DISTILLATION, 1, head="whole", **size)["peak"]["bytes"]
    chunks = planned(DISTILLATION, 1, **size)["peak"]["bytes"]
    check(chunks < whole - 2 * logits * 3 // 4, "%d bytes, whole: %d, of which the logits of each are %d" % (chunks, whole, logits))
    return "peak %d bytes, with whole logits %d" % (chunks, whole)


COMPUTED = """local nn, optim = require "nn", require "optim"
local o = nn.options { batch = 4, loss = nn.choice("cross_entropy", "chunks", "weighted", "nll") }
local model = nn.module "Net"
model.embed, model.head = nn.Embedding(256, 24), nn.Linear(24, 256, { bias = false })
function model:forward(tokens) return self.embed(tokens) end
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { o.batch, 16 }, { from = "tokens" }), targets = nn.input("int32", { o.batch, 16 }, { from = "tokens", shift = 1 }) },
  loss = function(m, b)
    local x, targets = m(b.tokens), nn.where(nn.lt(b.targets, b.tokens), b.targets, -100)
    if o.loss == "chunks" then return nn.linear_cross_entropy(x, m.head.weight, targets, { chunk = 10 }) end
    local logits = m.head(x)
    if o.loss == "nll" then return nn.nll_loss(nn.log_softmax(logits, -1), targets) end
    return nn.cross_entropy(logits, targets, { weight = o.loss == "weighted" and nn.arange(256, "fp32") / 100 + 0.1 or nil })
  end,
  optimizer = optim.SGD { lr = 0.5 },
}
"""


def test_means_of_computed_targets():
    """Two ranks, whose numbers of computed targets differ, have the means of one with the whole batch."""
    path = os.path.join(scratch("computed"), "computed.lua")
    with open(path, "w") as f:
        f.write(COMPUTED)
    for loss in ("cross_entropy", "chunks", "weighted", "nll"):
        got = [[s["loss"] for s in steps(run(build(path, world=w, batch=8 // w, loss=loss), "--data", corpus(), "--steps", "4")[0])] for w in (1, 2)]
        close(got[1], got[0], 2e-6, loss)
