"""How fast the compiler answers: predict, inspect and build on large models, each the median of a few runs; and the one rule
of speed, processor time for every 100,000 events. `--rule` measures that alone.

Relies on: build/shardc. Relied on by: make bench; its output is kept in bench/results/."""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA = os.path.join(ROOT, "models", "llama3.lua")
DEEP = [os.path.join(ROOT, "models", "gpt2.lua"), "--world", "2", "--device", "h200"]  # 88,556 events
DEEP += [a for s in ("layers=1500", "dim=64", "heads=2", "seq=32", "vocab=256") for a in ("--set", s)]


def seconds(args, runs=3):
    times = []
    for _ in range(runs):
        start = time.time()
        p = subprocess.run(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        times.append(time.time() - start)
        if p.returncode:
            raise SystemExit("%s: exit %d: %s" % (" ".join(args), p.returncode, p.stderr[-2000:]))
    return statistics.median(times)


def processor_seconds(args, runs=3):
    """Of one run, user and system; the least of a few, since other load only adds to it."""
    def spent():
        r = resource.getrusage(resource.RUSAGE_CHILDREN)
        return r.ru_utime + r.ru_stime
    times = []
    for _ in range(runs):
        start = spent()
        seconds(args, 1)
        times.append(spent() - start)
    return min(times)


def rule(shardc, folder):
    """Rows of the one speed rule, in seconds for 100,000 events; a build's without the C compiler."""
    plan = os.path.join(folder, "deep.json")
    rows = [("predict", ["predict", *DEEP]), ("inspect", ["inspect", *DEEP]), ("verify", ["verify", *DEEP]),
            ("inspect --format json", ["inspect", *DEEP, "--format", "json", "-o", plan]),
            ("build --sources", ["build", *DEEP, "--target", "cuda", "--sources", "-o", os.path.join(folder, "deep", "")]),
            ("predict plan.json", ["predict", plan]), ("inspect plan.json", ["inspect", plan]), ("verify plan.json", ["verify", plan]),
            ("inspect plan.json --format json", ["inspect", plan, "--format", "json"]),
            ("inspect plan.json --format trace", ["inspect", plan, "--format", "trace"])]
    events = sum(p["events"] for p in json.loads(subprocess.check_output([shardc, "predict", *DEEP, "--format", "json"]))["programs"])
    return [("%s, per 100,000 events" % name, processor_seconds([shardc, *args], 5) / events * 1e5, 1) for name, args in rows]


def models(shardc, build, folder):
    """Rows of models of real size."""
    big = ["--set", "seq=8192", "--set", "batch=1", "--set", "precision=bf16"]
    rows = []
    for size, world, device, limit in (("8b", 8, "h200", 1), ("405b", 1024, "h200", 3)):
        for command in ("predict", "inspect"):
            args = [shardc, command, LLAMA, "--set", "size=" + size, "--world", str(world), "--device", device, *big]
            if size == "405b":
                args += ["--nodes", str(world // 8)]
            if command == "predict":  # exits 1 where it does not fit: recompute makes it fit
                args += ["--set", "recompute=full"]
            rows.append(("%s llama3-%s, world %d" % (command, size, world), seconds(args), limit))
    binary = os.path.join(folder, "llama3-8b")
    command = [shardc, "build", LLAMA, "--set", "size=8b", "--world", "8", "-o", binary, *big]
    rows.append(("build llama3-8b for the CPU, world 8", seconds(command, 1), 30))
    rows.append(("build again after a policy change", seconds(command + ["--set", "recompute=full"], 1), 5))
    if os.path.exists(os.path.join(build, "libsc_cuda.a")):
        for name, more in (("build llama3-8b for CUDA, world 4", []), ("build again after a policy change", ["--set", "recompute=full"])):
            args = [shardc, "build", LLAMA, "--set", "size=8b", "--world", "4", "-o", binary + "-cuda", *big, "--target", "cuda", "--arch", "sm_90", *more]
            rows.append((name, seconds(args, 1), 5 if more else 30))
    return rows


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--build", default="build")
    a.add_argument("--rule", action="store_true")
    o = a.parse_args()
    shardc = os.path.join(o.build, "shardc")
    folder = tempfile.mkdtemp(dir=o.build)
    rows = [] if o.rule else models(shardc, o.build, folder)
    rows += rule(shardc, folder)
    shutil.rmtree(folder)
    for name, s, limit in rows:
        print("%-56s %7.2f s   (goal: under %g s)" % (name, s, limit))


main()
