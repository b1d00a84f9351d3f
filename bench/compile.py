"""How fast the compiler answers: predict, inspect and build on large models, each the median of a few runs.

Relies on: build/shardc. Relied on by: make bench; its output is kept in bench/results/."""
import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA = os.path.join(ROOT, "models", "llama3.lua")


def seconds(args, runs=3):
    times = []
    for _ in range(runs):
        start = time.time()
        p = subprocess.run(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        times.append(time.time() - start)
        if p.returncode:
            raise SystemExit("%s: exit %d: %s" % (" ".join(args), p.returncode, p.stderr[-2000:]))
    return statistics.median(times)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--build", default="build")
    o = a.parse_args()
    shardc = os.path.join(o.build, "shardc")
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
    folder = tempfile.mkdtemp(dir=o.build)
    binary = os.path.join(folder, "llama3-8b")
    build = [shardc, "build", LLAMA, "--set", "size=8b", "--world", "8", "-o", binary, *big]
    rows.append(("build llama3-8b for the CPU, world 8", seconds(build, 1), 30))
    rows.append(("build again after a policy change", seconds(build + ["--set", "recompute=full"], 1), 5))
    if os.path.exists(os.path.join(o.build, "libsc_cuda.a")):
        for name, more in (("build llama3-8b for CUDA, world 4", []), ("build again after a policy change", ["--set", "recompute=full"])):
            args = [shardc, "build", LLAMA, "--set", "size=8b", "--world", "4", "-o", binary + "-cuda", *big, "--target", "cuda", "--arch", "sm_90", *more]
            rows.append((name, seconds(args, 1), 5 if more else 30))
    shutil.rmtree(folder)
    for name, s, limit in rows:
        print("%-44s %7.2f s   (goal: under %g s)" % (name, s, limit))


main()
