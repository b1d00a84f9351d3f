"""The CUDA target on the GPUs at hand, one, two, four: numbers against the CPU's program and PyTorch's, bits against each other, memory
against the prediction, rows of behaviour. Runs what build.py made; a case a line, then `N passed, N failed`.

  python3 tests/gpu/run.py --build build/gpu-tests [--only REGEX] [--sanitize] [--share-gpus]

Relies on: runner.py, rows_*.py, tests/golden, programs.py; --sanitize: compute-sanitizer. Relied on by: make gpu-test."""
import argparse
import concurrent.futures
import glob
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import programs
from build import GRADIENTS, dump
from runner import AGREES, HERE, ROOT, Machine, Runner, agrees, count_gpus, once_more, same  # puts tests/program on the path
import test_golden  # noqa: E402
from harness import Failure, check, read_log, steps  # noqa: E402


def run_golden(r, name, case, world):
    """The case, the log's steps, the gradients of step 1."""
    g = test_golden.Golden(case)
    folder = tempfile.mkdtemp(dir=r.work)
    log, grads = os.path.join(folder, "log.jsonl"), os.path.join(folder, "grads.safetensors")
    r.start(name, world, "--data", "-", "--weights", g.weights_path, "--steps", str(g.about["steps"]), "--log", log,
            "--dump", "*.grad", "--at-step", "1", "-o", grads, *g.about["run"], stdin=g.records_path)
    found = test_golden.sum_files([grads] + [grads.replace(".safetensors", ".rank%d.safetensors" % i) for i in range(1, world)])
    return g, steps(read_log(log)), found


def golden(r, case, world):
    """Losses, norms and every gradient beside PyTorch's."""
    g, log, found = run_golden(r, "golden-%s-w%d" % (case, world), case, world)
    test_golden.NUMBERS = AGREES
    return "losses and norms within %.1e, %d gradients %.1e" % (test_golden.compare_steps(g, log), len(found), test_golden.compare_gradients(g, found))


def narrow(r, dtype):
    """Every op in a unit of 16 bits beside PyTorch's fp32."""
    g, log, found = run_golden(r, "golden-ops-%s-w1" % dtype, "ops", 1)
    return test_golden.compare_narrow(g, dtype, log, found)


def beside_cpu(r, name, world, options):
    """Losses and norms of 20 steps, and every gradient of one beside those of the CPU's program on one rank."""
    alone = programs.of_one_rank(name)
    if options.get("accumulate") or not alone:
        return agrees(r, name, world, options)  # what is dumped is of the last microbatch
    grads = os.path.join(tempfile.mkdtemp(dir=r.work), "grads.safetensors")
    note = agrees(r, name, world, options, *dump(name, grads))
    ours = test_golden.sum_files([grads] + [grads.replace(".safetensors", ".rank%d.safetensors" % i) for i in range(1, world)])
    cpu = test_golden.sum_files([r.path(alone + GRADIENTS)])
    check(ours.keys() == cpu.keys(), "gradients of %s" % sorted(ours.keys() ^ cpu.keys()))
    size, worst, step = lambda x: math.sqrt(sum(v * v for v in x)), 0, programs.gradients_after(name)
    least = 1e-8 * size([size(x) for _, x in cpu.values()])  # zero but for rounding: the biases of keys
    for path, (_, x) in cpu.items():
        apart, whole = size([a - b for a, b in zip(ours[path][1], x)]), size(x)
        check(apart <= AGREES * whole + least, "%s.grad of step %d is %.1e from the CPU's" % (path, step, apart / max(whole, least)))
        worst = max(worst, (apart - least) / whole if apart > least else 0)
    return "%s, %d gradients of step %d %.1e" % (note, len(cpu), step, worst)


def curve(r):
    """200 steps of bf16 beside PyTorch's own runs (a process of its own: it needs PyTorch)."""
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        return "skipped: %s has no PyTorch" % sys.executable
    with r.machine.lend(1) as gpus:
        p = subprocess.run([sys.executable, os.path.join(HERE, "torch_curve.py"), "--program", r.path("curve-gpt2-w1")], capture_output=True, text=True,
                           errors="replace", timeout=300, env=dict(r.env, **gpus))
    lines = p.stdout.strip().splitlines()
    check(p.returncode == 0, "exit %d: %s" % (p.returncode, " | ".join(lines[-3:]) or p.stderr[-1500:]))
    return " | ".join(lines)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def allocates_nothing(r, name, world):
    """Every call that takes device or pinned memory, by CUPTI: none between the first step and the last, and the arena is one of them."""
    lib = r.path("allocations.so")
    if not os.path.exists(lib):
        return "skipped: no CUPTI where the tests were built"
    found = os.path.join(r.work, "allocations-" + name)
    out = r.start(name, world, "--data", r.text, "--steps", "4", env={"LD_PRELOAD": lib, "CUDA_INJECTION64_PATH": lib, "SC_ALLOCATIONS": found})
    arena = int(re.search(r"^arena +([\d,]+) B", out, re.M)[1].replace(",", ""))
    lists = [[line.split() for line in open(f)] for f in glob.glob(found + ".*")]
    ranks = [calls for calls in lists if any(c[:2] == ["run", "phase"] for c in calls)]
    check(len(ranks) == world, "%d of %d ranks were watched: %s" % (len(ranks), world, out[-500:]))
    for calls in ranks:
        late = [c for c in calls if c[0] == "run" and c[1] != "phase"]
        check(not late, "allocated after start: %s" % late[:5])
        sizes = [int(c[2]) for c in calls]
        granule = 2 << 20
        check(any(s in (arena, -(-arena // granule) * granule) for s in sizes), "no allocation of the arena's %d bytes among %s" % (arena, sorted(sizes)[-5:]))
    others = sum(int(c[2]) for c in ranks[0] if c[0] == "start") - arena
    return "%d allocations before the first step, %.1f MiB beside the arena; none after" % (sum(c[0] == "start" and c[1] != "phase" for c in ranks[0]), others / 2 ** 20)


# ── kernels, sanitizers ──────────────────────────────────────────────────────────────────────────────────────────────
def kernels(r, name):
    with r.machine.lend(1) as gpus:
        p = subprocess.run([r.path(name)], env=dict(r.env, **gpus), capture_output=True, text=True, errors="replace", timeout=300)
    m = re.findall(r"(\d+) passed, (\d+) failed", p.stdout)
    bad = [line for line in p.stdout.splitlines() if line.startswith("FAIL")]
    check(p.returncode == 0 and m and m[-1][1] == "0", "exit %d, %s\n%s" % (p.returncode, m[-1:] or "no closing line", "\n".join(bad[:10]) or (p.stdout + p.stderr)[-800:]))
    return "%s checks" % m[-1][0]


# ── collectives, watchdog ────────────────────────────────────────────────────────────────────────────────────────────
def collectives(r, world, *args, env=None):
    """Every dtype and group beside a reference; bits in a graph, without one and replayed."""
    with r.machine.lend(world, alone=True) as gpus:
        p = subprocess.run([r.path("collectives"), str(world), *args], env={**r.env, **gpus, **(env or {})}, capture_output=True, text=True, errors="replace", timeout=120)
    m = re.findall(r"(\d+) passed, (\d+) failed", p.stdout)
    bad = [line for line in p.stdout.splitlines() if line.startswith("FAIL")]
    check(p.returncode == 0 and m and m[-1][1] == "0", "exit %d\n%s" % (p.returncode, "\n".join(bad[:10]) or (p.stdout + p.stderr)[-1500:]))
    speed = [re.sub(r" +", " ", line.split("(bus")[0]) for line in p.stdout.splitlines() if re.match(r"all_gather +436|reduce_scatter +872", line)]
    return "%s checks; %s" % (m[-1][0], "; ".join(speed))


def watchdog(r, name, world, kind, *args):
    """A rank is killed or stopped in the middle of training: exit 3 within seconds, with its name and where the others are."""
    log = os.path.join(tempfile.mkdtemp(dir=r.work), "log.jsonl")
    with r.machine.lend(world) as gpus:
        p = subprocess.Popen([r.path(name), "--data", r.text, "--steps", "100000000", "--quiet", "--stall-seconds", "3", "--log", log, *args], stderr=subprocess.PIPE, text=True,
                             env=dict(r.env, **gpus))
        try:
            for _ in range(600):  # until it trains
                if p.poll() is not None or os.path.exists(log) and len(open(log).readlines()) > 20:
                    break
                time.sleep(0.1)
            check(p.poll() is None, "it ended by itself: exit %s" % p.returncode)
            kids = sorted(int(k) for k in open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split())
            start = time.time()
            os.kill(kids[-1], kind)
            err = p.communicate(timeout=30)[1]
            took = time.time() - start
        finally:
            p.kill()
    last = world - 1
    if kind == signal.SIGKILL:
        says = r"rank %d was ended by signal 9 \(Killed\); the other ranks are stopped" % last
    else:
        says = r"no progress for 3 s[^$]*rank %d's process %d is stopped \(SIGSTOP\)" % (last, kids[-1])
    check(p.returncode == 3 and took < 10 and re.search(says, err), "exit %s after %.1f s: %s" % (p.returncode, took, err[-1500:]))
    met = re.findall(r"meets the other ranks in (\S+ \w+) .*\.lua:\d+\); behind: rank %d" % last, err)
    left = [k for k in kids if os.path.exists("/proc/%d" % k)]
    check(not left, "processes are left: %s" % left)
    return "exit 3 after %.1f s%s" % (took, "; the others meet in " + met[0] if met else "")


LIBRARIES = r"cudnn|nvjet|cutlass|cublas|xmma|gemm"  # names of kernels that are not ours


def sanitizer(tool):
    """compute-sanitizer's command, or None. What calls of the API return is the runtime's to look at: NCCL tries some that fail."""
    exe = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    more = ["--leak-check", "no", "--report-api-errors", "no"] if tool == "memcheck" else []
    return os.path.exists(exe) and [exe, "--tool", tool, *more, "--target-processes", "all", "--error-exitcode", "9", "--kernel-name-exclude", "kernel_substring=nccl"]


def clean(out):
    """What a sanitizer found, or that it has looked and found nothing; races in the libraries' kernels, where wgmma's barriers order what
    racecheck sees, do not count."""
    said, foreign = re.findall(r"^========= .*", out, re.M), 0
    if re.search(r"RACECHECK SUMMARY: [1-9]", out) and "Internal Sanitizer Error" not in out:
        where = re.findall(r"access (?:by .* )?at (\S+)\+0x", out)
        foreign = len(where) and all(re.search(LIBRARIES, k) for k in where)
    found = re.search(r"SUMMARY: [1-9]", out) and not foreign
    check(re.search(r"(ERROR|RACECHECK) SUMMARY: ", out) and not found, "\n".join(said[:14] + said[-2:]) or out[-1500:])
    return "clean but for reports inside %s" % " and ".join(sorted(set(re.sub(r"_\d.*", "", k) for k in where)))[:100] if foreign else "clean"


def sanitized(r, name, world, tool, *args):
    """compute-sanitizer finds nothing in two steps, every event launched by itself."""
    before = sanitizer(tool)
    if not before:
        return "skipped: no compute-sanitizer"
    return clean(r.start(name, world, "--data", r.text, "--steps", "2", "--no-graph", "--stall-seconds", "0", *args, before=before, timeout=900, codes=(0, 9)))


def sanitized_kernels(r, name, tool):
    """The same of a test program of kernels."""
    before = sanitizer(tool)
    if not before:
        return "skipped: no compute-sanitizer"
    with r.machine.lend(1) as gpus:
        p = subprocess.run([*before, r.path(name), "--quick"], env=dict(r.env, **gpus), capture_output=True, text=True, errors="replace", timeout=900)
    check(p.returncode in (0, 9), "exit %d" % p.returncode + "\n" + (p.stdout + p.stderr)[-1500:])
    return clean(p.stdout + p.stderr)


# ── all of it ────────────────────────────────────────────────────────────────────────────────────────────────────────
def cases(r, sanitize):
    """(name, GPUs, call)"""
    for f in sorted(glob.glob(r.path("test_*"))):
        name = os.path.basename(f)
        yield "kernels." + name[5:], 1, lambda n=name: kernels(r, n)
    for name, (file, world, options) in programs.fp32().items():
        yield "cpu." + name[5:], world, lambda a=(name, world, options): beside_cpu(r, *a)
    for case, world in programs.GOLDEN:
        yield "torch.%s-w%d" % (case, world), world, lambda a=(case, world): golden(r, *a)
    for dtype in programs.NARROW:
        yield "torch.ops-%s-w1" % dtype, 1, lambda d=dtype: narrow(r, d)
    yield "torch.curve-w1", 1, lambda: curve(r)
    yield from bit_cases(r)
    for family in programs.families():
        yield from family.cases(r) if hasattr(family, "cases") else ()
    for name, world in (("bf16-gpt2-w1-offload", 1), ("bf16-llama3-w2-recompute", 2), ("bf16-gpt2-w4", 4), ("fp32-transformer-w4", 4)):
        yield "memory.%s" % name, world, lambda a=(name, world): allocates_nothing(r, *a)
    for world in 2, 4:
        yield "collectives.w%d" % world, world, lambda w=world: collectives(r, w)
    yield "collectives.w4-groups-of-2", 4, lambda: collectives(r, 4, "2")
    yield "collectives.w4-rings", 4, lambda: collectives(r, 4, env={"SHARDC_NCCL_WINDOWS": "0"})
    for kind in signal.SIGKILL, signal.SIGSTOP:
        for args in (), ("--no-graph",):
            yield "watchdog.%s%s" % (kind.name[3:].lower(), args[0][1:] if args else ""), 2, lambda k=kind, a=args: watchdog(r, "fp32-llama3-w2", 2, k, *a)
    if sanitize:
        yield from sanitizer_cases(r)


def bit_cases(r):
    for (m, w), variants in programs.POLICIES.items():
        base = "bf16-%s-w%d" % (m, w)
        yield "bits.%s-w%d.twice" % (m, w), w, lambda a=(base, w): once_more(r, *a)
        for args in (["--no-graph"], ["--poison"]):
            yield "bits.%s-w%d.%s" % (m, w, args[0][2:]), w, lambda a=(base, w, base, *args): same(r, *a)
        for v in variants:
            more = ["--redzones"] if v == "redzone" else []
            yield "bits.%s-w%d.%s" % (m, w, v), w, lambda a=(base, w, "%s-%s" % (base, v), *more): same(r, *a)


def sanitizer_cases(r):
    for name, world in (("fp32-mlp-w1", 1), ("fp32-gpt2-w1", 1), ("bf16-gpt2-w1", 1), ("bf16-llama3-w1-recompute", 1), ("fp32-transformer-w1", 1), ("fp32-llama3-w2", 2)):
        yield "memcheck." + name, world, lambda a=(name, world, "memcheck"): sanitized(r, *a)
    for name in ("fp32-gpt2-w1", "bf16-gpt2-w1", "bf16-llama3-w1", "fp32-transformer-w1"):
        yield "racecheck." + name, 1, lambda a=(name, 1, "racecheck"): sanitized(r, *a)
        yield "initcheck." + name, 1, lambda a=(name, 1, "initcheck", "--poison"): sanitized(r, *a)
    for name in ("test_kernels", "test_order", "test_combined", "test_updates", "test_fp8", "test_attention"):
        for tool in "memcheck", "racecheck":
            yield "%s.%s" % (tool, name), 1, lambda a=(name, tool): sanitized_kernels(r, *a)


OWN = r"collectives|memory|rows\.O|rows\.S-offload-time|rows\.X3-less|sizes.llama3-8b"  # need GPUs of their own: for time, memory or windows
SLOW, ALONE = ("kernels", "torch.curve", "racecheck"), ("collectives", "sizes", "rows.O", "rows.X3-less", "rows.S-offload-time")  # first, beside the others; last


def one(call, machine):
    machine.began.at = None
    asked = time.time()
    try:
        ok, note = True, call()
    except Exception as e:  # any failure is reported, none stops the others
        ok, note = False, "%s%s" % ("" if isinstance(e, Failure) else type(e).__name__ + ": ", e)
    return ok, note, time.time() - (machine.began.at or asked)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default=os.path.join(ROOT, "build", "gpu-tests"), help="what build.py left: its folder or archive")
    a.add_argument("--only", default="", help="regular expression over the cases")
    a.add_argument("--skip", default="^$", help="regular expression over the cases")
    a.add_argument("--share-gpus", action="store_true", help="of cases that need more GPUs than there are, those that can share them too")
    a.add_argument("--sanitize", action="store_true", help="compute-sanitizer on small models too")
    a.add_argument("--list", action="store_true", help="names and GPUs of the cases, of what is built; runs nothing")
    o = a.parse_args()
    if o.list:
        print("\n".join("%s %d" % c[:2] for c in cases(Runner(o.build, None), True)))
        return 0
    machine = Machine(count_gpus())
    if not machine.total:
        raise SystemExit("no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES")
    r = Runner(o.build, machine)
    wanted = [c for c in cases(r, o.sanitize) if re.search(o.only, c[0]) and not re.search(o.skip, c[0])]
    fit = [c for c in wanted if c[1] <= machine.total or o.share_gpus and not re.match(OWN, c[0])]
    print("%d GPUs, %d cases%s" % (machine.total, len(fit), ", %d need more GPUs" % (len(wanted) - len(fit)) if len(wanted) > len(fit) else ""), flush=True)
    order = sorted(fit, key=lambda c: (c[0].startswith(ALONE), not c[0].startswith(SLOW), -c[1]))
    passed = failed = 0
    began = time.time()

    def ended(*_):
        print("ended by a signal: %d passed, %d failed, %d not run" % (passed, failed, len(fit) - passed - failed), flush=True)
        r.scratch.cleanup()
        os._exit(1)
    signal.signal(signal.SIGTERM, ended)
    pool = concurrent.futures.ThreadPoolExecutor(machine.SHARES * machine.total)
    try:
        running = {pool.submit(one, c[2], machine): c[0] for c in order}
        for done in concurrent.futures.as_completed(running):
            ok, note, seconds = done.result()
            passed, failed = passed + ok, failed + (not ok)
            print("%-4s %-44s %6.1f s  %s" % ("ok" if ok else "FAIL", running[done], seconds, note), flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        r.scratch.cleanup()
    print("%d passed, %d failed (%.0f s)" % (passed, failed, time.time() - began))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
