"""`shardc plan`, and --budget of build: plans stay within the budget, are written as policies that give them back, get faster with more
memory, beat uniform policies, and change no bit of losses or weights.

Relies on: harness.py. Relied on by: run.py."""
import json
import os
import re
import signal
import subprocess
import sys
import time

from harness import HANG, NET, ROOT, SHARDC, build, check, command, corpus, run, same_run, scratch, settings, shardc, until

sys.path.append(os.path.join(ROOT, "tests", "gpu"))
from random_models import Model  # noqa: E402

MODELS = os.path.join(ROOT, "models")
MLP = os.path.join(MODELS, "mlp.lua")
SMALL = {
    "gpt2": dict(layers=4, dim=64, heads=4, vocab=256, batch=4, seq=32),
    "llama3": dict(layers=3, batch=4, seq=32),
    "qwen2": dict(layers=3, batch=4, seq=32),
    "transformer": dict(layers=2, dim=64, heads=4, vocab=256, batch=4, seq=32),
    "mlp": {},
}
LARGE = {"gpt2": (1, dict(size="350m", batch=8, precision="bf16")), "llama3": (4, dict(size="1b", seq=2048, precision="bf16"))}
UNIFORM = [dict(recompute=r, offload=f) for r in ("none", "selective", "full") for f in ("none", "activations")]


def path_of(model):
    return os.path.join(MODELS, model + ".lua")


def plan(path, *args, world=2, **options):
    """What the command says as JSON, or None where nothing fits."""
    rc, out, err = command([SHARDC, "plan", path, "--world", str(world), "--format", "json", *args, *settings(options)])
    check(rc == 0 or (rc == 1 and "nothing fits" in err), "exit %d: %s" % (rc, err))
    return json.loads(out) if rc == 0 else None


def predicted(path, *args, world=2, **options):
    p = json.loads(command([SHARDC, "predict", path, "--world", str(world), "--format", "json", *args, *settings(options)])[1])["prediction"]
    return p["arena_bytes"], round(p["step_us"], 6)  # predict adds up programs, plan.json holds six digits


def held(path, budgets, *args, world=2, **options):
    """Each plan is within its budget, is given back by its policy file, and none is slower than one of a smaller budget."""
    before = None
    for budget in budgets:
        file = os.path.join(scratch("plan"), "p.lua")
        x = plan(path, "--budget", str(budget), "-o", file, *args, world=world, **options)
        if not x:
            check(before is None, "%d B: nothing fits, but something did in less" % budget)
            continue
        check(x["arena_bytes"] <= budget, "%d B of arena, %d B of budget" % (x["arena_bytes"], budget))
        back = predicted(path, "--policy", file, *args, world=world, **options)
        check(back == (x["arena_bytes"], round(x["step_us"], 6)), "the policy file gives %s, the plan says %s" % (back, (x["arena_bytes"], round(x["step_us"], 6))))
        check(before is None or x["step_us"] <= before, "%s %s, %d B: %g us, and %g us in less" % (os.path.basename(path), options, budget, x["step_us"], before or 0))
        before = x["step_us"]
    check(before is not None, "nothing fits in any of %s" % budgets)


def test_small_models():
    """On the CPU, from budgets that are too small to all that the model asks for."""
    for model, options in SMALL.items():
        whole = predicted(path_of(model), **options)[0]
        held(path_of(model), [whole * k // 100 for k in (20, 75, 100)], **options)


def test_gpu_beside_uniform_policies():
    """Within each budget the plan is at least as fast as every policy that treats all blocks alike."""
    for model, (world, options) in LARGE.items():
        path, device = path_of(model), ("--device", "h200")
        others = [predicted(path, *device, world=world, **options, **u) for u in UNIFORM]
        whole = others[0][0]
        for part in (90, 60):
            x = plan(path, "--budget", str(whole * part // 100), *device, world=world, **options)
            best = min((step for arena, step in others if arena <= whole * part // 100), default=None)
            check(x or best is None, "%s: nothing fits, a uniform policy does" % model)
            check(not x or not best or x["step_us"] <= best * 1.0005, "%s at %d %%: %g us, a uniform policy takes %g" % (model, part, x["step_us"] if x else 0, best or 0))
        held(path, [whole * k // 100 for k in (60, 80, 101)], *device, world=world, **options)


def small_on_gpus():
    """Small models on GPUs, where kernels are shorter than a launch: (path, world, options, pattern of the blocks)."""
    yield path_of("llama3"), 2, dict(layers=3, batch=2, seq=16), "model.layers.*"
    yield path_of("gpt2"), 2, dict(layers=2, dim=32, heads=2, vocab=64, batch=2, seq=16, accumulate=3), "h.*"
    for seed, world in ((14, 1), (6, 2)):
        path = os.path.join(scratch("plan"), "m.lua")
        with open(path, "w") as f:
            f.write(Model(seed).text)
        yield path, world, {}, "blocks.*"


CHECKPOINTS = ["false", "{}", '{ save = { "matmul" } }', '{ save = {}, offload = { "input" } }', '{ recompute = false, offload = { "*" } }']


def test_small_models_beside_an_enumeration():
    """Of every policy of an enumeration: the plan within its bytes is as fast, a plan within more bytes is no slower, the bound is below its step.
    The search does not try these policies but finds as good ones; 1 % is left to it."""
    count = 0
    for path, world, options, blocks in small_on_gpus():
        others, device = [], ("--device", "h200")
        for k, checkpoint in enumerate(CHECKPOINTS):
            file = os.path.join(scratch("plan"), "p.lua")
            with open(file, "w") as f:
                f.write('return { { match = "%s", replace = true, checkpoint = %s },\n  { match = "%s", fully_shard = { prefetch = { forward = %d, backward = 0 } } } }\n' % (
                    blocks, checkpoint, "" if blocks == "blocks.*" else blocks, 2 * (k % 2)))
            others.append(predicted(path, "--policy", file, *device, world=world, **options))
        whole, step = predicted(path, *device, world=world, **options)
        before = None
        for budget in sorted({min(others)[0], sorted(others)[len(others) // 2][0], whole}):
            x = plan(path, "--budget", str(budget), *device, world=world, **options)
            check(x and x["arena_bytes"] <= budget, "%s: nothing fits in %d B, a policy does" % (path, budget))
            best = min([s for a, s in others if a <= budget] + ([step / 1.01] if whole <= budget else []))
            check(x["step_us"] <= 1.01 * best, "%s, %d B: %.6f us, another policy takes %.6f" % (path, budget, x["step_us"], best))
            check(before is None or x["step_us"] <= before, "%s, %d B: %.6f us, and %.6f in less" % (path, budget, x["step_us"], before or 0))
            check(0 < x["bound_us"] <= min([s for _, s in others] + [x["step_us"]]), "%s: the bound is %.6f us: %s" % (path, x["bound_us"], others))
            check(x["as_the_model_says"]["arena_bytes"] == whole, "%s: the model's own arena is %d B, plan says %s" % (path, whole, x["as_the_model_says"]))
            before, count = x["step_us"], count + 1
    return "%d plans" % count


def test_more_memory_is_not_slower():
    """Budgets a few bytes apart, where a search that depends on the budget finds other plans."""
    path, options = path_of("llama3"), dict(layers=3, batch=2, seq=16)
    held(path, [38974208, 39700000, 40362496, 40481024, 41192192], "--device", "h200", **options)


def test_the_models_own_arena_is_a_budget():
    """Placed with little effort it needs more bytes than `predict` says; with just these the model's own plan is a candidate, and the figures agree."""
    path, device, options = path_of("llama3"), ("--device", "h200"), dict(size="8b", seq=8192, precision="bf16")
    whole, step = predicted(path, *device, world=8, **options)
    hold = [x for c in ("recompute", "offload", "reshard", "prefetch", "state") for x in ("--keep", c)]
    x = plan(path, "--budget", str(whole), *hold, *device, world=8, **options)
    check(x and x["arena_bytes"] == whole and round(x["step_us"], 6) == step, "own arena %d B, %.6f us; plan: %s" % (whole, step, x))
    check(x["as_the_model_says"]["arena_bytes"] == whole, "%s" % x["as_the_model_says"])


def test_microbatches():
    """What is found for one microbatch is no better for eight than what is found for eight."""
    path, device = path_of("llama3"), ("--device", "h100")
    options = dict(size="8b", layers=8, seq=4096, batch=8, precision="bf16")
    file = os.path.join(scratch("plan"), "p.lua")
    check(plan(path, "--budget", "22GiB", "-o", file, *device, world=8, **options), "nothing fits for one")
    arena, step = predicted(path, "--policy", file, *device, world=8, accumulate=8, **options)
    x = plan(path, "--budget", "25GiB", *device, world=8, accumulate=8, **options)
    check(arena <= 25 << 30, "no test: %d B" % arena)
    check(x["step_us"] <= step, "%.1f us, the plan of one microbatch takes %.1f" % (x["step_us"], step))
    return "%.2f s, %.2f with the plan of one" % (x["step_us"] / 1e6, step / 1e6)


def test_what_a_target_cannot_do_is_said():
    for args, said in ((("--budget", "1GiB"), "not tried: offload of activations: the cpu target's arena is host memory"), (("--budget", "1GiB"), "not tried: reshard and prefetch: one rank gathers nothing"),
                       (("--budget", "1GiB", "--keep", "offload"), None), (("--budget", "1GiB", "--device", "h200"), None)):
        text = shardc("plan", path_of("gpt2"), *settings(SMALL["gpt2"]), *args)
        check(said is None or said in " ".join(text.split()), text)
        check(said or "offload of activations" not in text, text)
        check(max(map(len, text.split("policy (")[0].splitlines())) <= 80, text)
        check("the fastest found of " in text and "no plan" not in text and "gap" not in text, text)
    check("On the cpu target activations" in shardc("plan", "-h").replace("\n", " "), "plan -h")


def test_bits():
    """Losses, gradient norms and weights of a planned policy are those of the model as it is."""
    data = ["--data", corpus(), "--steps", "3"]
    for model in ("gpt2", "llama3"):
        options, path = SMALL[model], path_of(model)
        file = os.path.join(scratch("plan"), "p.lua")
        x = plan(path, "--budget", str(predicted(path, **options)[0] * 85 // 100), "-o", file, **options)
        check(x and "checkpoint" in x["policy"], "%s: no block is treated otherwise: %s" % (model, x and x["policy"]))
        plain, other = (run(build(model + ".lua", world=2, policy=p, **options), *data) for p in (None, file))
        same_run(plain, other, model)


def test_the_same_text_on_one_processor():
    args = [SHARDC, "plan", path_of("gpt2"), "--world", "2", "--budget", str(predicted(path_of("gpt2"), **SMALL["gpt2"])[0] * 8 // 10), "--explain", *settings(SMALL["gpt2"])]
    texts = {command(["taskset", "-c", "0", *args])[1], command(args)[1], command(args)[1]}
    check(len(texts) == 1, "texts differ")
    text = " ".join(texts.pop().split())
    check("plans that were placed" in text and " (rough figures, up to 7 times as long), exposed" in text, text)


def test_nothing_fits():
    """The smallest arena is named, and is enough as a budget."""
    rc, out, err = command([SHARDC, "plan", MLP, "--budget", "1"])
    check(rc == 1 and not out and "nothing fits in 1B of arena among the " in err, "exit %d: %s%s" % (rc, out, err))
    check(command([SHARDC, "plan", MLP, "--budget", err.split("--budget ")[1].split(",")[0]])[0] == 0, err)


def test_bad_calls():
    gone = os.path.join(scratch("plan"), "none", "p.lua")
    model = os.path.join(scratch("plan"), "model.lua")
    with open(MLP) as f, open(model, "w") as g:
        g.write(f.read())
    for code, says, *args in (
            (2, "--budget 0: an amount of memory", "plan", MLP, "--budget", "0"),
            (2, "--budget 60Gi: an amount of memory", "plan", MLP, "--budget", "60Gi"),
            (2, "--budget much: an amount of memory", "plan", MLP, "--budget", "much"),
            (2, "--keep nonsense: recompute, offload, reshard, prefetch or state", "plan", MLP, "--budget", "1GiB", "--keep", "nonsense"),
            (2, "has no memory limit to plan for; give --budget", "plan", MLP),
            (2, "policies are chosen for a model", "plan", SHARDC, "--budget", "1GiB"),
            (2, "without --budget nothing is chosen", "build", MLP, "--keep", "offload"),
            (2, "the curve is of all budgets", "plan", MLP, "--curve", "--budget", "1GiB"),
            (2, "the curve is of all budgets", "plan", MLP, "--curve", "-o", gone),
            (2, "--explain --format json", "plan", MLP, "--budget", "1GiB", "--explain", "--format", "json"),
            (1, "cannot write " + gone, "plan", MLP, "--budget", "1GiB", "-o", gone),
            (1, "is both an input and an output", "plan", model, "--budget", "1GiB", "-o", model)):
        rc, out, err = command([SHARDC, *args])
        check(rc == code and says in err, "exit %d from %s: %s" % (rc, args, err))


def test_policy_files_before_it():
    """A plan stands over --policy; its file says so, and both give the plan back. A pipe is read once."""
    folder = scratch("plan")
    first, second = os.path.join(folder, "first.lua"), os.path.join(folder, "second.lua")
    with open(first, "w") as f:
        f.write('return { { match = "h.*.mlp", checkpoint = {} } }\n')
    options = SMALL["gpt2"]
    x = plan(path_of("gpt2"), "--budget", "1GiB", "--policy", first, "-o", second, **options)
    check("It stands over %s" % first in open(second).read(), open(second).read())
    check(predicted(path_of("gpt2"), "--policy", first, "--policy", second, **options) == (x["arena_bytes"], round(x["step_us"], 6)), "both files give another plan")
    rc, out, err = command(["bash", "-c", '"$0" plan "$1" --budget 1GiB --policy <(cat "$2") --world 2 "${@:3}"', SHARDC, path_of("gpt2"), first, *settings(options)])
    check(rc == 0, err)


def test_shapes_of_models():
    """No repeated blocks, options of other policies, several microbatches, replicas: a plan within the budget each time."""
    gpt2 = path_of("gpt2")
    for path, options in ((NET, {}), (gpt2, dict(SMALL["gpt2"], layers=1)), (gpt2, dict(SMALL["gpt2"], accumulate=3)), (gpt2, dict(SMALL["gpt2"], reshard=False)),
                          (gpt2, dict(SMALL["gpt2"], recompute="full")), (gpt2, dict(SMALL["gpt2"], recompute="selective", offload="activations"))):
        held(path, [predicted(path, **options)[0] * k // 100 for k in (90, 100)], **options)


# Models of tests/program and models/extensions with what their options ask for: blocks that are called, nested, kept in part or on the host,
# replicas, units in units, frozen and ignored parameters, one module called twice, functions of C.
ASKED = [("surface/net", dict(checkpoint=c)) for c in ("none", "wrapper", "save", "offload", "call", "nested")] + [
    ("surface/net", dict(norm="batch", dropout=0.1, accumulate=2, optimizer="nesterov")), ("surface/net", dict(dtype="bf16", moments="bf16", gain="bf16")),
    *(("rows/recompute", dict(units=u, wrap=w, activations=a)) for u in ("three", "one") for w, a in (("inside", "recompute"), ("outside", "offload"), ("call", "recompute"))),
    *(("rows/offload", dict(way=w, grads=True)) for w in ("stream", "host", "auto", "mixed")), ("rows/offload", dict(way="stream", replicate=2)),
    *(("rows/" + m, {}) for m in ("embedding", "memory_mlp", "memory_transformer", "nested", "overlap_units", "overlap_update", "launch", "packed", "pair", "scaler", "scaler_parity", "sparse")),
    ("../../models/extensions/custom", {}), ("../../models/extensions/gather", {}),
]


def test_policies_that_models_ask_for():
    """The smallest arena that is named is enough as a budget; with all that the model asks for, the plan is at least as fast as the model's own
    policy."""
    for model, options in ASKED:
        path = os.path.join(ROOT, "tests/program", model + ".lua")
        whole, step = predicted(path, **options)
        rc, _, err = command([SHARDC, "plan", path, "--world", "2", "--budget", "1", *settings(options)])
        least = re.search(r"smallest arena found is .*\(([\d,]+) B\)", err)
        check(rc == 1 and least, "%s %s: exit %d: %s" % (model, options, rc, err))
        least = int(least[1].replace(",", ""))
        check(least <= whole, "%s %s: the smallest arena found is %d B, the model's own %d" % (model, options, least, whole))
        held(path, [least, (least + whole) // 2, whole], **options)
        x = plan(path, "--budget", str(whole), **options)
        check(x["step_us"] <= step * 1.0005, "%s %s: %g us, its own policy takes %g" % (model, options, x["step_us"], step))
    return "%d models" % len(ASKED)


def test_what_a_model_prints_is_printed_once():
    path = os.path.join(scratch("plan"), "says.lua")
    with open(MLP) as f, open(path, "w") as g:
        g.write('print("once")\n' + f.read())
    rc, _, err = command([SHARDC, "plan", path, "--budget", "1GiB"])
    check(rc == 0 and err == "once\n", "exit %d: %s" % (rc, err))


def test_curve():
    file = os.path.join(scratch("plan"), "curve.svg")
    points = json.loads(shardc("plan", path_of("gpt2"), "--world", "2", "--curve=" + file, "--format", "json", *settings(SMALL["gpt2"])))
    check(len(points) > 1, "%d points" % len(points))
    for x, y in zip(points, points[1:]):
        check(x["step_us"] > y["step_us"], "a larger budget is no faster")
    text = open(file).read()
    check(text.startswith("<svg") and text.count("<circle") == len(points), text[:200])


def test_a_killed_plan_leaves_nothing():
    """Its processes end with it, and no file is left."""
    for number in (signal.SIGINT, signal.SIGKILL):
        folder = scratch("plan")
        p = subprocess.Popen([SHARDC, "plan", path_of("llama3"), "--world", "8", "--device", "h200", "--set", "size=8b", "--set", "precision=bf16", "--budget", "30GiB", "-o", os.path.join(folder, "p.lua")],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(0.5)
        p.send_signal(number)
        p.wait(HANG)
        until(lambda: not any(session(d) == p.pid for d in os.listdir("/proc") if d.isdigit()), "the end of all its processes")
        check(not os.listdir(folder), "left: %s" % os.listdir(folder))


def session(process):
    try:
        with open("/proc/%s/stat" % process) as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[3]) if fields[0] != "Z" else None
