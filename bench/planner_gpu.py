"""Planned programs beside the best uniform policies on one GPU: step measured and predicted, arena predicted and allocated.

  python3 bench/planner_gpu.py build --build build -o build/planner-gpu    # where the compiler is; needs `make cuda`
  python3 bench/planner_gpu.py run --build build/planner-gpu               # where the GPU is: a table

A row is a model under a budget, a part of the arena that it needs without recompute. Beside the planned program stands the fastest uniform
policy (by prediction) that fits the same budget: all blocks treated alike by the model file's own options.

Relies on: planner.py, gpu.py, workloads.py. Relied on by: whoever changes compiler/planner."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gpu  # noqa: E402
import planner  # noqa: E402

ROWS = {  # name -> model, settings, vocabulary, parts
    "gpt2-350m-16x1024": ("gpt2", dict(size="350m", precision="bf16", batch=16), 50304, [75, 45]),
    "gpt2-1558m-8x1024": ("gpt2", dict(size="1558m", precision="bf16", batch=8), 50304, [75]),
    "gpt2-1558m-16x1024": ("gpt2", dict(size="1558m", precision="bf16", batch=16), 50304, [90, 60]),
    "qwen2-0.5b-16x1024": ("qwen2", dict(size="0.5b", precision="bf16", batch=16, seq=1024), 151936, [75, 45]),
    "llama3-1b-2x4096": ("llama3", dict(size="1b", precision="bf16", batch=2, seq=4096), 128256, [90, 75]),
    "transformer-32x512": ("transformer", dict(precision="bf16", layers=12, dim=1024, heads=16, batch=32, seq=512), 32768, [60]),
}


def build_program(o, name, model, settings, *more):
    sets = [x for k, v in settings.items() for x in ("--set", "%s=%s" % (k, v))]
    args = ["models/%s.lua" % model, "--device", o.device, *sets, *more]
    binary = os.path.join(o.output, name)
    subprocess.run([os.path.join(o.build, "shardc"), "build", *args, "-o", binary], check=True, cwd=planner.ROOT, stdout=subprocess.DEVNULL)
    subprocess.run(["strip", binary], check=True)
    p = subprocess.run([os.path.join(o.build, "shardc"), "predict", binary, "--format", "json"], capture_output=True, text=True, check=True)
    for leftover in (".c", ".plan.json", "_kernels.cu"):
        if os.path.exists(binary + leftover):
            os.unlink(binary + leftover)
    return json.loads(p.stdout)["prediction"]


def build(o):
    o.build, o.output = os.path.abspath(o.build), os.path.abspath(o.output)
    os.makedirs(o.output, exist_ok=True)
    rows = []
    for name, (model, settings, vocab, parts) in ROWS.items():
        whole = planner.predicted(o, model, 1, dict(settings, recompute="none"))[0]
        others = planner.uniform(o, model, 1, settings)
        for part in parts:
            budget = whole * part // 100
            fitting = [f for f in others if f[0][0] <= budget]
            row = dict(name=name, part=part, budget=budget, vocab=vocab, sides={})
            policy = os.path.join(o.output, "%s-%d.lua" % (name, part))
            sets = [x for k, v in settings.items() for x in ("--set", "%s=%s" % (k, v))]
            subprocess.run([os.path.join(o.build, "shardc"), "plan", "models/%s.lua" % model, "--device", o.device, *sets, "--budget", str(budget), "-o", policy],
                           check=True, cwd=planner.ROOT, stdout=subprocess.DEVNULL)
            row["sides"]["planned"] = build_program(o, "%s-%d-planned" % (name, part), model, settings, "--policy", policy)
            if fitting:
                best = min(fitting, key=lambda f: f[0][1])[1]
                row["uniform"] = best
                row["sides"]["uniform"] = build_program(o, "%s-%d-uniform" % (name, part), model, dict(settings, **best))
            rows.append(row)
            print("%s %d %%: %s built" % (name, part, " and ".join(row["sides"])), flush=True)
    with open(os.path.join(o.output, "rows.json"), "w") as f:
        json.dump(rows, f, indent=1)
    return 0


def measure(o, row, side):
    binary = os.path.join(o.build, "%s-%d-%s" % (row["name"], row["part"], side))
    log = os.path.join(o.build, "log.jsonl")
    if os.path.exists(log):
        os.unlink(log)
    args = [binary, "--data", gpu.tokens(o.build, row["vocab"]), "--steps", str(o.steps), "--log", log]
    out, failed, _ = gpu.measured(args, 1, limit=o.limit)
    if failed:
        return failed
    with open(log) as f:
        steps = [s for s in map(json.loads, f) if "loss" in s]
    arena = re.search(r"^arena +([\d,]+) B predicted, ([\d,]+) B allocated", out, re.M)
    return dict(ms=1e3 * statistics.median(s["seconds"] for s in steps[o.steps // 3:]), predicted=int(arena[1].replace(",", "")), allocated=int(arena[2].replace(",", "")),
                losses=[s["loss"] for s in steps])


def run(o):
    with open(os.path.join(o.build, "rows.json")) as f:
        rows = json.load(f)
    bad = 0
    print("%-20s %5s %-8s %14s %9s %10s %8s %7s  %s" % ("workload", "part", "side", "arena B", "spare MB", "step ms", "told ms", "told", "losses"))
    for row in rows:
        found = {side: measure(o, row, side) for side in row["sides"]}
        for side, m in found.items():
            if "failed" in m:
                print("%-20s %4d%% %-8s %s" % (row["name"], row["part"], side, m["failed"]))
                bad += 1
                continue
            told = row["sides"][side]["step_us"] / 1e3
            same = m["losses"] == found["planned"].get("losses")
            exact = m["predicted"] == m["allocated"] == row["sides"][side]["arena_bytes"] and m["allocated"] <= row["budget"]
            bad += not exact or not same
            print("%-20s %4d%% %-8s %14d %9.1f %10.2f %8.2f %+6.1f%%  %s%s" % (
                row["name"], row["part"], side, m["allocated"], (row["budget"] - m["allocated"]) / 1e6, m["ms"], told, 100 * (told / m["ms"] - 1),
                "equal" if same else "DIFFER", "" if exact else "  ARENA NOT AS PREDICTED"), flush=True)
        row["measured"] = found
    if o.json:
        with open(o.json, "w") as f:
            json.dump(rows, f, indent=1)
    print("%d of %d programs not as they should be" % (bad, sum(len(r["sides"]) for r in rows)))
    return 1 if bad else 0


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("do", choices=["build", "run"])
    a.add_argument("--build", default="build")
    a.add_argument("-o", "--output", default="build/planner-gpu")
    a.add_argument("--device", default="h200")
    a.add_argument("--steps", type=int, default=15)
    a.add_argument("--limit", type=int, default=60)
    a.add_argument("--json")
    o = a.parse_args()
    return build(o) if o.do == "build" else run(o)


if __name__ == "__main__":
    sys.exit(main())
