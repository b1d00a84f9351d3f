"""Promise P4: `shardc verify` and a brute-force oracle agree on the suite's plans and on mutants of them, no wait is
superfluous, and a plan says the same from a model, from JSON and from a binary.

Relies on: harness.py, oracle.py, mutants.py. Relied on by: run.py."""
import json
import os

import mutants
from harness import ROOT, SHARDC, TESTS, build, check, command, long, scratch, settings, shardc

GPT2 = dict(layers=2, dim=32, heads=2, vocab=256, batch=2, seq=16)
LLAMA = dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=16)
PLANS = [
    ("mlp.lua", 1, {}), ("mlp.lua", 2, {}), ("mlp.lua", 4, dict(precision="bf16")),
    ("gpt2.lua", 2, GPT2), ("gpt2.lua", 2, dict(GPT2, precision="bf16", dropout=0.1, accumulate=2)),
    ("gpt2.lua", 2, dict(GPT2, recompute="full", reshard=False)), ("gpt2.lua", 4, dict(GPT2, offload="state", prefetch=0)),
    ("gpt2.lua", 2, dict(GPT2, offload="activations", recompute="selective", prefetch=3)),
    ("llama3.lua", 2, dict(LLAMA, precision="bf16")), ("llama3.lua", 4, dict(LLAMA, recompute="selective", accumulate=2)),
    ("transformer.lua", 2, dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=16, dropout=0.1, precision="bf16")),
    (os.path.join(TESTS, "contrastive.lua"), 4, dict(replicate=2, checkpoint=True)), (os.path.join(TESTS, "layers_summed.lua"), 2, {}),
]


def arguments(model, world, options):
    return [os.path.join(ROOT, "models", model), "--world", str(world), *settings(options)]


def texts(plans):
    return [shardc("inspect", *arguments(*p), "--format", "json") for p in plans]


@long
def test_verify_agrees_with_the_oracle():
    folder = scratch("mutants")
    tally, wrong = mutants.compare(SHARDC, texts(PLANS), 1200, 11, folder)
    check(not wrong, "%d disagreements, plans in %s:\n%s" % (len(wrong), folder, "\n".join(wrong[:10])))
    accepted = sum(n for (_, ok), n in tally.items() if ok)
    check(accepted > 300 and sum(tally.values()) > 1300, "too few mutants of one kind: %s" % tally)
    check(tally["without a wait", False] > 50, "too few waits: %s" % tally)
    check(tally["change_mesh", False] > 20, "too few meshes: %s" % tally)
    return "%d plans, %d accepted, %d waits each needed" % (sum(tally.values()), accepted, tally["without a wait", False])


def test_one_plan_from_model_json_and_binary():
    args = arguments("mlp.lua", 2, {})
    path = os.path.join(scratch("plan"), "mlp.plan.json")
    shardc("inspect", *args, "--format", "json", "-o", path)
    binary = build("mlp.lua", world=2, redzone=0)
    for c in (["inspect"], ["predict"], ["verify"], ["predict", "--format", "json"], ["verify", "--format", "json"],
              ["inspect", "--program", "micro", "--stream", "reduce"], ["inspect", "--format", "json"]):
        said = [shardc(c[0], *x, *c[1:]) for x in (args, [path], [binary])]
        check(said[0] == said[1] == said[2], "%s differs between model, JSON and binary" % " ".join(c))
    return "7 reports of each"


def test_predict_says_when_it_does_not_fit():
    args = arguments("llama3.lua", 1, dict(size="8b"))
    rc, out, err = command([SHARDC, "predict", *args, "--device", "h100"])
    check(rc == 1 and "NO, short of" in out and "\n  peak     at " in out and not err, "exit %d: %s%s" % (rc, out, err))
    rc, out, _ = command([SHARDC, "predict", *args, "--device", "h100", "--format", "json"])
    check(rc == 1 and json.loads(out)["prediction"]["fits"] is False, "JSON, exit %d" % rc)
    return "llama3 8b on one h100"


def test_unsound_plans_are_named():
    plan = json.loads(texts([("mlp.lua", 2, {})])[0])
    for p in plan["programs"]:
        for e in p["events"]:
            e["waits"] = []
    path = os.path.join(scratch("unsound"), "plan.json")
    with open(path, "w") as f:
        json.dump(plan, f)
    rc, out, _ = command([SHARDC, "verify", path])
    check(rc == 1 and "there is no edge from g0f to" in out and "NOT SOUND" in out, "exit %d: %s" % (rc, out))
    rc, out, _ = command([SHARDC, "verify", path, "--format", "json"])
    found = json.loads(out)
    check(rc == 1 and not found["sound"] and found["findings"][0]["second"], "JSON: %s" % out[:500])
    return "%d findings" % len(found["findings"])
