"""Predicted step times and arena bytes of two compilers, plan by plan: the guard of a change to the scheduler.

  python3 bench/compare_plans.py --build build --write before.json     # of the head before the change; about a minute
  python3 bench/compare_plans.py --build build --against before.json   # after it: a table, exit 1 beyond the bound
  --bound 0.5: percent above before that are allowed; --only REGEX takes some plans; --all prints every plan

The plans are those of the workloads (workloads.py) and of the guard (tests/guard.py): every model under its policies, for h200 on 1, 4
and 8 ranks and on 16 of two machines, at sizes that are trained there, and for the CPU on 2 and 4 ranks, at sizes that take seconds. The
step is that of the training programs, one microbatch each; eval and sample are one row more. What a plan's storages need at least
(`bound`) is printed beside its arena: where only the arena has grown, it is the packing that came out otherwise, not the order.

Relies on: build/shardc, models/, tests/guard.py, workloads.py. Relied on by: whoever changes compiler/schedule or compiler/cost."""
import argparse
import concurrent.futures
import json
import os
import re
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "bench")]
import guard
import workloads

TARGETS = [("h200", 1, 1), ("h200", 4, 1), ("h200", 8, 1), ("h200", 16, 2), ("cpu", 2, 1), ("cpu", 4, 1)]  # device, ranks, machines
VARIANTS = ["-clip", "-nondeterministic", "-gradients", "-moments", "-recompute", "-offload", "-offload-clip", "-offload-moments",
            "-offload-recompute"]  # of one row a family
FAMILIES = ["gpt2-1558m-4x16x1024", "llama3-8b-4x1x8192", "qwen2-7b-4x4x2048"]
MEASURES = ["step", "eval", "device", "host"]  # us, us, bytes, bytes


def rows():
    """name -> arguments of `shardc inspect`"""
    found = {}
    for name in workloads.ROWS + [f + v for f in FAMILIES for v in VARIANTS]:
        w = workloads.workload(name)
        found[name] = ["models/" + w.shape.file, "--world", str(w.world), "--device", "h200", *w.settings()]
    for name, model, large, small in guard.rows():
        for device, world, nodes in TARGETS:
            where = "%s-%dx%d" % (device, nodes, world // nodes)
            found["%s/%s" % (name, where)] = ["models/%s.lua" % model, "--world", str(world), "--nodes", str(nodes), "--device", device,
                                              *guard.settings(large if device == "h200" else small)]
    return found


def measure(shardc, arguments):
    plan = json.loads(guard.run([shardc, "inspect", *arguments, "--format", "json"]))
    times = {p["name"]: p["step_us"] for p in plan["programs"]}
    return {"step": sum(t for n, t in times.items() if n.startswith("micro")), "eval": times.get("eval", 0) + times.get("sample", 0),
            "device": plan["arenas"]["device"]["bytes"], "host": plan["arenas"]["host"]["bytes"], "bound": plan["arenas"]["device"]["bound"]}


def ratio(before, after):
    return after / before if before else 1.0 if not after else float("inf")


def compare(before, after, bound, show_all):
    """Prints the table; the number of plans beyond the bound."""
    print("%-44s %12s %12s %8s %10s %10s %8s %8s %8s %8s" % ("plan", "step ms", "after", "ratio", "arena MB", "after", "ratio", "bound", "eval", "host"))
    bad = 0
    for name, x in after.items():
        b = before.get(name)
        if not b:
            print("%-44s is not in the file before" % name)
            bad += 1
            continue
        r = {m: ratio(b[m], x[m]) for m in MEASURES + ["bound"]}
        beyond = any(r[m] > 1 + bound / 100 for m in MEASURES)
        bad += beyond
        if show_all or beyond:
            print("%-44s %12.3f %12.3f %8.4f %10.2f %10.2f %8.4f %8.4f %8.4f %8.4f%s" % (
                name, b["step"] / 1e3, x["step"] / 1e3, r["step"], b["device"] / 1e6, x["device"] / 1e6, r["device"], r["bound"], r["eval"],
                r["host"], "  beyond" if beyond else ""))
    both = [(before[n], x) for n, x in after.items() if n in before]
    for m in MEASURES if both else []:
        all_ratios = [ratio(b[m], x[m]) for b, x in both]
        print("%-8s worst %.4f  mean %.4f  best %.4f" % (m, max(all_ratios), statistics.fmean(all_ratios), min(all_ratios)))
    print("%d plans, %d beyond %.1f %%" % (len(after), bad, bound))
    return bad


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build")
    a.add_argument("--write", metavar="FILE")
    a.add_argument("--against", metavar="FILE")
    a.add_argument("--bound", type=float, default=0.5)
    a.add_argument("--only", default="")
    a.add_argument("--all", action="store_true")
    o = a.parse_args()
    todo = {n: arguments for n, arguments in rows().items() if re.search(o.only, n)}
    shardc = os.path.join(os.path.abspath(o.build), "shardc")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = dict(zip(todo, pool.map(lambda arguments: measure(shardc, arguments), todo.values())))
    if o.write:
        with open(o.write, "w") as f:
            json.dump(found, f, indent=1)
    if not o.against:
        print("%d plans" % len(found))
        return 0
    with open(o.against) as f:
        return 1 if compare(json.load(f), found, o.bound, o.all) else 0


if __name__ == "__main__":
    sys.exit(main())
