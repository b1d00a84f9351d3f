"""Plans under budgets beside the best uniform policy: is `shardc plan` at least as fast, within the budget, and close to what the model of costs estimates?

  python3 bench/planner.py --build build              # a table; exit 1 where a plan is over its budget, slower, or its gap above --gap
  --only REGEX takes some models; --json FILE keeps the figures

A uniform policy treats all blocks alike: every combination of the model files' recompute, offload, reshard and prefetch options. Budgets are
parts of the arena that the model needs without recompute. Times are predicted ones.

Relies on: build/shardc, models/. Relied on by: whoever changes compiler/planner."""
import argparse
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = {  # name -> model, world, settings
    "llama3-8b-4": ("llama3", 4, dict(size="8b", precision="bf16", seq=8192)),
    "llama3-8b-8": ("llama3", 8, dict(size="8b", precision="bf16", seq=8192)),
    "gpt2-1558m-1": ("gpt2", 1, dict(size="1558m", precision="bf16", batch=32)),
    "qwen2-7b-4": ("qwen2", 4, dict(size="7b", precision="bf16", batch=4, seq=2048)),
    "transformer-2": ("transformer", 2, dict(precision="bf16", layers=12, dim=1024, heads=16, batch=32, seq=512)),
}
PARTS = [90, 75, 60, 45, 30]
UNIFORM = dict(recompute=["none", "selective", "full"], offload=["none", "activations", "state"], reshard=["true", "false"], prefetch=[1, 2])


def shardc(o, command, model, world, settings, *more):
    sets = [x for k, v in settings.items() for x in ("--set", "%s=%s" % (k, v))]
    start = time.time()
    p = subprocess.run([os.path.join(o.build, "shardc"), command, "models/%s.lua" % model, "--world", str(world), "--device", o.device, "--format", "json", *sets, *more],
                       capture_output=True, text=True, cwd=ROOT)
    return p, time.time() - start


def predicted(o, model, world, settings, *more):
    p, _ = shardc(o, "predict", model, world, settings, *more)
    if not p.stdout:
        return None
    x = json.loads(p.stdout)["prediction"]
    return x["arena_bytes"], x["step_us"]


def uniform(o, model, world, settings):
    options = [dict(zip(UNIFORM, v)) for v in itertools.product(*UNIFORM.values())]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda x: predicted(o, model, world, dict(settings, **x)), options))
    return [(f, x) for f, x in zip(found, options) if f]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build")
    a.add_argument("--device", default="h200")
    a.add_argument("--only", default="")
    a.add_argument("--json")
    a.add_argument("--gap", type=float, default=2.0, help="percent")
    o = a.parse_args()
    o.build = os.path.abspath(o.build)
    rows, bad = [], 0
    print("%-15s %5s %10s %10s %10s %8s %12s %8s %6s %6s" % ("model", "part", "budget GB", "arena GB", "step ms", "gap %", "uniform ms", "ratio", "plans s", ""))
    for name, (model, world, settings) in MODELS.items():
        if not re.search(o.only, name):
            continue
        all_kept = predicted(o, model, world, dict(settings, recompute="none"))
        others = uniform(o, model, world, settings)
        before = 0
        for part in PARTS:
            budget = all_kept[0] * part // 100
            p, seconds = shardc(o, "plan", model, world, settings, "--budget", str(budget))
            fitting = [f for f in others if f[0][0] <= budget]
            best = min(fitting, key=lambda f: f[0][1]) if fitting else None
            if p.returncode:
                print("%-15s %4d%% %10.2f  %s" % (name, part, budget / 1e9, p.stderr.strip()[:150]))
                bad += best is not None
                continue
            x = json.loads(p.stdout)
            gap = 100 * (x["step_us"] / x["estimate_us"] - 1) if x["estimate_us"] else 0
            ratio = x["step_us"] / best[0][1] if best else 0
            wrong = [w for w, holds in (("over", x["arena_bytes"] > budget), ("slower", ratio > 1.0005), ("gap", gap > o.gap), ("not monotone", x["step_us"] < before), ("below its bound", x["step_us"] < x["bound_us"])) if holds]
            before = x["step_us"]
            bad += bool(wrong)
            rows.append(dict(model=name, part=part, budget=budget, arena=x["arena_bytes"], step_us=x["step_us"], gap=gap, ratio=ratio, seconds=seconds, policy=x["policy"], uniform=best and best[1]))
            print("%-15s %4d%% %10.2f %10.2f %10.2f %8.2f %12s %8s %6.1f  %s" % (
                name, part, budget / 1e9, x["arena_bytes"] / 1e9, x["step_us"] / 1e3, gap, "%.2f" % (best[0][1] / 1e3) if best else "none fits", "%.4f" % ratio if best else "", seconds, ", ".join(wrong)), flush=True)
    if o.json:
        with open(o.json, "w") as f:
            json.dump(rows, f, indent=1)
    print("%d of %d rows are not as they should be" % (bad, len(rows)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
