"""Peak, step and exposed communication of the models in models/ under several policies, as tests/recorded.json has them. `check` compares
them with what the compiler predicts today, within bounds, so that a commit that costs memory or time says so; `update` writes the file.

Only the figures are recorded, not the plans. They are `peak`, `step` and `exposed` of `shardc diff`, which says what differs: write
the plan with the compiler of the commit before, and compare.

  shardc inspect models/gpt2.lua --world 8 --device h200 --set size=124m --format json -o before.plan.json
  shardc diff before.plan.json models/gpt2.lua --world 8 --device h200 --set size=124m --fail-if 'peak>+0.1%,step>+0.5%'

Relies on: harness.py, build/shardc. Relied on by: tests/generated.sh, test_recorded.py."""
import json
import os
import sys

from harness import ROOT, SHARDC, command, settings

FILE = os.path.join(ROOT, "tests", "recorded.json")
GPT2 = dict(size="124m", precision="bf16")
LLAMA = dict(size="8b", precision="bf16", seq=8192)
POLICIES = [{}, dict(recompute="selective"), dict(recompute="full"), dict(reshard=False), dict(prefetch=2), dict(offload="activations"),
            dict(offload="state"), dict(accumulate=4)]
CONFIGURATIONS = [
    *[("gpt2.lua", 8, "h200", dict(GPT2, **p)) for p in POLICIES],
    *[("llama3.lua", 8, "h200", dict(LLAMA, **p)) for p in POLICIES],
    ("llama3.lua", 64, "h100", dict(size="70b", precision="bf16", seq=4096, recompute="full")),
    ("qwen2.lua", 4, "h200", dict(size="1.5b", precision="bf16")),
    ("transformer.lua", 4, "h200", dict(precision="bf16")),
    ("gpt2.lua", 2, "cpu", dict(layers=2, dim=64, heads=4, vocab=256, batch=8, seq=64)),
    ("mlp.lua", 2, "cpu", {}),
]
# More than so much of a change, up or down, is reported. Exposed communication may be next to nothing: of it, the share is of the step.
WORDS = dict(peak="peak", step_us="step", exposed_us="exposed communication")
BOUNDS = [("peak", "peak", 0.001), ("step_us", "step_us", 0.005), ("exposed_us", "step_us", 0.005)]


def measured(model, world, device, options):
    args = [SHARDC, "predict", os.path.join(ROOT, "models", model), "--world", str(world), "--device", device, *settings(options), "--format", "json"]
    rc, out, err = command(args)
    if not out or rc not in (0, 1):  # 1: it does not fit, which is a figure too
        sys.exit("no prediction: %s\n%s" % (" ".join(args), err))
    p = json.loads(out)["prediction"]
    return dict(model=model, world=world, device=device, options=options, peak=p["arena_bytes"], step_us=round(p["step_us"], 3), exposed_us=round(p["exposed_us"], 3))


def name(row):
    return " ".join([row["model"], *("--set %s=%s" % (k, str(v).lower()) for k, v in row["options"].items()), "--world", str(row["world"]), "--device", row["device"]])


def amount(figure, x):
    return "%s B" % format(x, ",") if figure == "peak" else "%.3f ms" % (x / 1e3)


def differences(before, now):
    """Sentences: one for each configuration with a figure beyond its bound, and for each that only one of the two has."""
    old, new = {name(r): r for r in before}, {name(r): r for r in now}
    said = ["%s: is not recorded" % n for n in new if n not in old] + ["%s: is recorded, and not measured any more" % n for n in old if n not in new]
    for n in new:
        beyond = []
        for figure, whole, share in BOUNDS if n in old else ():
            a, b, of = old[n][figure], new[n][figure], old[n][whole]
            if abs(b - a) > share * of:
                beyond.append("%s %s -> %s (%+.2f %%%s)" % (WORDS[figure], amount(figure, a), amount(figure, b), 100 * (b - a) / of, "" if figure == whole else " of the step"))
        if beyond:
            said.append("%s: %s" % (n, ", ".join(beyond)))
    return said


def main():
    now = [measured(*c) for c in CONFIGURATIONS]
    if sys.argv[1:] == ["update"]:
        with open(FILE, "w") as f:
            f.write("[\n%s\n]\n" % ",\n".join(json.dumps(r) for r in now))
        return
    with open(FILE) as f:
        said = differences(json.load(f), now)
    if said:
        sys.exit("%s\ntests/recorded.json: predicted memory or time of %d of %d configurations has changed by more than the bounds. What differs: "
                 "`shardc diff` with a plan.json of the commit before (tests/program/recorded.py shows how). Where the change is meant: "
                 "`make generated`, and say why in the commit" % ("\n".join(said), len(said), len(now)))


if __name__ == "__main__":
    main()
