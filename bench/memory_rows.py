"""Predicting memory, side by side: rows M1 to M3 of the behaviours by shardc and by PyTorch's FSDPMemTracker, in one go on 4 GPUs (--world: on others).

  python3 bench/memory_rows.py build [--shardc build/shardc] [--arch sm_90] [--world N] -o build/memory-rows
  python3 bench/memory_rows.py run --build build/memory-rows [--world N] [-o table.md]

`build` needs the compiler, `run` the GPUs and PyTorch; the folder is all that they share besides this repository. Where there are fewer
GPUs than ranks, ranks share them on both sides; the process then holds NCCL's buffers for the network too, and is not judged.
Relies on: tests/gpu/rows_memory.py, torch_memory.py. Relied on by: bench/results."""
import argparse
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(ROOT, "tests", "gpu"), os.path.join(ROOT, "tests", "program")]


def torch_case(name, options):
    model = "transformer" if name.startswith("M3") else "first_block" if name == "M2" else "mlp"
    return [name, model, options.get("reshard", True), options.get("offload", False)]


def build(o):
    os.environ["SHARDC_BUILD"] = os.path.dirname(os.path.abspath(o.shardc))
    from rows_memory import name_of
    from harness import settings
    from test_rows_memory import CASES, plan_of, without_workspace
    os.makedirs(o.output, exist_ok=True)
    plans = {}
    for name, model, options, _ in CASES:
        plan = plan_of(model, o.world, options)
        plans[name] = dict(arena=plan["peak"]["bytes"], without_workspace=without_workspace(plan))
        made = os.path.join(o.output, name_of(name, o.world))
        work = made + ".work"
        subprocess.run([o.shardc, "build", model, "--world", str(o.world), *settings(options), "--target", "cuda", "--arch", o.arch, "-o",
                        os.path.join(work, os.path.basename(made))], check=True, stdout=subprocess.DEVNULL)
        shutil.copy2(os.path.join(work, os.path.basename(made)), made)
        subprocess.run(["strip", made], check=True)
        shutil.rmtree(work)
    with open(os.path.join(o.output, "plans.json"), "w") as f:
        json.dump(plans, f, indent=1)
    print("%s: %d programs" % (o.output, len(plans)))


def torch(cases, world, env):
    p = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(world), os.path.join(HERE, "torch_memory.py"),
                        json.dumps(cases)], env=env, capture_output=True, text=True)
    told = {}
    for line in p.stdout.splitlines():
        if line.startswith("{"):
            told[json.loads(line)["case"]] = json.loads(line)
    if not told:
        raise SystemExit("PyTorch's side failed:\n" + p.stderr[-2000:])
    return told


def read_plans(folder):
    """What `build` has left beside the programs."""
    try:
        with open(os.path.join(folder, "plans.json")) as f:
            return json.load(f)
    except OSError as e:
        raise SystemExit("memory_rows.py: %s: %s; make the folder by `memory_rows.py build -o %s`, or name another with --build" % (e.filename, e.strerror, folder))


def run(o):
    from rows_memory import run_case
    from runner import Machine, Runner, count_gpus
    from test_rows_memory import CASES
    plans = read_plans(o.build)
    r = Runner(o.build, Machine(min(o.world, count_gpus())))
    theirs = torch([torch_case(name, options) for name, _, options, _ in CASES if "wrapper" not in options], o.world, r.env)
    lines = ["| case | PyTorch predicts | active peak | ratio | reserved | shardc predicts: arena | allocated | without workspace / PyTorch's active | process predicted | by the driver | ratio |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    bad = 0
    for name, _, options, _ in CASES:
        arena, predicted, used = run_case(r, name, o.world)
        t = theirs.get(name if "wrapper" not in options else name.split(", unit")[0], {})
        if "active" not in t:
            print("PyTorch, %s: %s" % (name, t.get("error", "no result")), file=sys.stderr)
            bad, t = bad + 1, dict(predicted=0, active=1, reserved=0)
        plan, share = plans[name], plans[name]["without_workspace"] / t["active"]
        good = arena == plan["arena"] and r.process_fits(o.world, predicted, used) and share < 1
        bad += not good
        lines.append("| %s | %s | %s | %.3f | %s | %s | %s | %s = %.3f | %s | %s | %.3f%s |" % (
            name, f"{t['predicted']:,}", f"{t['active']:,}", t["predicted"] / t["active"], f"{t['reserved']:,}", f"{plan['arena']:,}", f"{arena:,}",
            f"{plan['without_workspace']:,}", share, f"{predicted:,}", f"{used:,}", predicted / used, "" if good else " **missed**"))
    print("\n".join(lines))
    if o.output:
        with open(o.output, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 1 if bad else 0


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("command", choices=["build", "run"])
    a.add_argument("--shardc", default=os.path.join(ROOT, "build", "shardc"))
    a.add_argument("--arch", default="sm_90")
    a.add_argument("--world", type=int, default=4, help="GPUs; 4 unless given")
    a.add_argument("--build", default=os.path.join(ROOT, "build", "memory-rows"))
    a.add_argument("-o", "--output", help="build: the folder to make; run: a file for the table")
    o = a.parse_args()
    if o.command == "build":
        o.output = o.output or o.build
        return build(o)
    return run(o)


if __name__ == "__main__":
    sys.exit(main())
