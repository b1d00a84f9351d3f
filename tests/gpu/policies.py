"""Random models (random_models.py) on the CUDA target: built here with two or three memory policies, run where the GPUs are. Held to
the losses, norms and gradients of the CPU's program, within rounding; the same bits whatever the policy, with and without a
graph, poisoned; arenas as predicted.

  python3 tests/gpu/policies.py build FIRST LAST -o FOLDER [--archive FILE.tar.xz]    models by number, LAST included
  python3 tests/gpu/policies.py run FOLDER|FILE.tar.xz [--only REGEX] [--seconds N]

A model with a step in it (a norm of two elements, say) may differ from the second step on: where losses and gradients of the first
step agree, see what --lr a millionth higher does to the CPU's program before looking further.

Relies on: random_models.py, runner.py, harness.py; nvcc to build. Relied on by: people who changed kernels or passes."""
import argparse
import concurrent.futures
import glob
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "program")]
from random_models import TOKENS, Model  # noqa: E402
from harness import Failure, check, floats, read_log, read_safetensors, steps  # noqa: E402

SAMPLES = 192  # elements of a gradient that are compared
RUN = ["--seed", "7", "--warmup", "2"]
# relative: a loss, a norm; a gradient's elements, of its largest
ALLOWED = {"fp32": (2e-5, 1e-4, 2e-4), "bf16": (2e-2, 1e-1, 0.25), "fp16": (4e-3, 3e-2, 0.08)}


def data(folder):
    """Tokens below TOKENS, some far more frequent than others."""
    path, r = os.path.join(folder, "tokens.uint16"), random.Random(3)
    if not os.path.exists(path):
        values = [min(TOKENS - 1, int(r.expovariate(0.12))) for _ in range(130000)]
        with open(path, "wb") as f:
            f.write(struct.pack("<%dH" % len(values), *values))
    return path


def records(model, folder):
    """What a model with an input of floating point reads from standard input, or None: tokens, targets, features of every microbatch."""
    if not model.features:
        return None
    path, r = os.path.join(folder, "s%d.records" % model.seed), random.Random(model.seed)
    rows = model.world * model.b * model.s
    with open(path, "wb") as f:
        for _ in range(4 * model.accumulate):
            f.write(struct.pack("<%di" % (2 * rows), *[min(TOKENS - 1, int(r.expovariate(0.12))) for _ in range(2 * rows)]))
            f.write(struct.pack("<%df" % (rows * model.features), *[r.gauss(0, 1) for _ in range(rows * model.features)]))
    return path


def arguments(folder, model):
    path = data(folder)
    source = ["--data", "-"] if model.features else ["--data", path, "--val-data", path, "--data-dtype=uint16", "--eval-steps", "1"]
    if model.steps == 1:
        source = ["--data", path, "--data-dtype=uint16"]
    return [*source, *RUN, "--steps", str(model.steps), *(["--accumulate", "2"] if model.accumulate > 1 else [])]


def sampled(path):
    """{name: (largest magnitude, some elements)} of the gradients in a file."""
    out = {}
    for name, tensor in sorted(read_safetensors(path).items()):
        values = list(floats(tensor))
        r = random.Random(len(values))
        chosen = values if len(values) <= SAMPLES else [values[r.randrange(len(values))] for _ in range(SAMPLES)]
        out[name] = (max(map(abs, values)), [float("%.7g" % x) for x in chosen])
    return out


def variants(seed):
    """Memory policies that are built of a model; the last has red zones."""
    return [0, 1, 2] if seed % 4 == 0 else [0, 2]


class Refused(Exception):
    pass


def must(args, **kw):
    """A command's output; Refused says what the user would see."""
    p = subprocess.run(args, capture_output=True, text=True, errors="replace", **kw)
    if p.returncode:
        raise Refused("exit %d from %s\n%s" % (p.returncode, " ".join(args), (p.stdout + p.stderr)[-2500:]))
    return p.stdout


# ── build ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def reference(o, model, folder, source):
    """What the CPU's program computes, beside the model."""
    name = os.path.join(folder, "s%d" % model.seed)
    made, log, grads = name + ".cpu", name + ".cpu.jsonl", name + ".cpu.grads"
    must([o.shardc, "build", source, "--world", str(model.world), "-o", made], cwd=folder)
    with open(records(model, folder) or os.devnull, "rb") as read:
        must([made, *arguments(o.output, model), "--threads", "1", "--log", log, "--dump", "*.grad", "--at-step", "1", "-o", grads], timeout=300, stdin=read)
    with open(os.path.join(o.output, "s%d.json" % model.seed), "w") as f:
        json.dump({"log": read_log(log), "grads": sampled(grads)}, f)


def build_one(o, seed):
    model, folder = Model(seed), tempfile.mkdtemp(dir=o.work)
    try:
        source = os.path.join(folder, "model.lua")
        for path in source, os.path.join(o.output, "s%d.lua" % seed):
            with open(path, "w") as f:
                f.write("-- %s\n%s" % (model.title(), model.text))
        reference(o, model, folder, source)
        for v in variants(seed) if not o.reference else ():
            made, kept = os.path.join(folder, "net"), os.path.join(o.output, "s%d-v%d" % (seed, v))
            must([o.shardc, "build", source, "--world", str(model.world), "--set", "v=%d" % v, "--target", "cuda", "--arch", o.arch, *(["--redzone", "512"] if v == 2 else []), "-o", made], cwd=folder)
            must(["strip", "-o", kept, made])
        return None
    except (Refused, subprocess.TimeoutExpired, Failure) as e:
        for path in glob.glob(os.path.join(o.output, "s%d[-.]*" % seed)):
            if not path.endswith(".lua"):
                os.unlink(path)
        return str(e)
    finally:
        shutil.rmtree(folder)


def archive(folder, path):
    """The programs share most of their kernels, so a window over all of them matters."""
    with tarfile.open(path + ".tar", "w") as t:
        for name in sorted(os.listdir(folder), key=lambda n: ("." in n, n)):
            t.add(os.path.join(folder, name), os.path.join(os.path.basename(folder), name))
    with open(path, "wb") as f:
        subprocess.run(["xz", "-c", "-T1", "--lzma2=preset=2,dict=256MiB", path + ".tar"], stdout=f, check=True)
    os.unlink(path + ".tar")
    print("%s: %.1f MB" % (path, os.path.getsize(path) / 1e6))


def build(o):
    o.output, o.work, o.shardc = os.path.abspath(o.output), tempfile.mkdtemp(prefix="policies-"), os.path.join(os.path.abspath(o.build), "shardc")
    os.makedirs(o.output, exist_ok=True)
    data(o.output)
    wanted = [s for s in range(o.first, o.last + 1) if not os.path.exists(os.path.join(o.output, "s%d-v2" % s))]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for seed, error in zip(wanted, pool.map(lambda s: build_one(o, s), wanted)):
            failed += error is not None
            print("%s %s%s" % ("ok  " if error is None else "FAIL", Model(seed).title(), "" if error is None else "\n" + error), flush=True)
    shutil.rmtree(o.work)
    if o.archive:
        archive(o.output, o.archive)
    return 1 if failed else 0


# ── run ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def column(log, key):
    """Of the lines that hold it; a log has others too."""
    return [line[key] for line in log if key in line]


class Case:
    def __init__(self, runner, seed):
        self.r, self.model = runner, Model(seed)
        with open(runner.path("s%d.json" % seed)) as f:
            self.expected = json.load(f)
        self.records = records(self.model, runner.work)

    def go(self, variant, *args):
        """(log, weights' bytes, gradients of the first step) of a run."""
        folder = tempfile.mkdtemp(dir=self.r.work)
        log, weights, grads = (os.path.join(folder, n) for n in ("log", "weights", "grads"))
        self.r.start("s%d-v%d" % (self.model.seed, variant), self.model.world, *arguments(self.r.folder, self.model), "--log", log, "--export", weights,
                     *(["--dump", "*.grad", "--at-step", "1", "-o", grads] if not variant and not args else []), *args, timeout=100, stdin=self.records)
        result = read_log(log), read_safetensors(weights), sampled(grads) if os.path.exists(grads) else None
        shutil.rmtree(folder)
        return result

    def agrees(self, ours):
        """What is furthest from the CPU's program, in parts of what is allowed."""
        loss, norm, element = ALLOWED[self.model.precision]
        found = []
        for key, most in ("loss", loss), ("grad_norm", norm), ("val_loss", loss):
            a, b = column(ours[0], key), column(self.expected["log"], key)
            check(len(a) == len(b), "%d times %s, the CPU's program %d" % (len(a), key, len(b)))
            for step, (x, y) in enumerate(zip(a, b)):
                check(x is not None and y is not None and math.isfinite(x), "%s number %d is %s, the CPU's %s" % (key, step + 1, x, y))
                later = 4 if step or key == "val_loss" else 1
                found.append((abs(x - y) / max(abs(y), 1e-6) / most / later, "%s number %d %.7g, CPU %.7g" % (key, step + 1, x, y)))
        check(ours[2].keys() == self.expected["grads"].keys(), "gradients are missing")
        largest = max([g[0] for g in self.expected["grads"].values()], default=0)
        for name, (top, values) in self.expected["grads"].items():
            scale = top + 1e-3 * largest
            for k, (a, b) in enumerate(zip(ours[2][name][1], values)):
                found.append(((abs(a - b) / scale if scale else abs(a)) / element if math.isfinite(a) else math.inf, "%s[sample %d] %.6g, CPU %.6g of at most %.4g" % (name, k, a, b, top)))
        return max(found)

    def same(self, ours, base, what):
        for a, b in zip(steps(ours[0]), steps(base[0])):
            for key in "loss", "grad_norm":
                check(a[key] == b[key], "%s: %s of step %d %r, plain %r" % (what, key, a["step"], a[key], b[key]))
        check(column(ours[0], "val_loss") == column(base[0], "val_loss"), "%s: other val_loss" % what)
        check(ours[1].keys() == base[1].keys(), "%s: other weights' names" % what)
        differ = [k for k in ours[1] if ours[1][k] != base[1][k]]
        check(not differ, "%s: weights differ: %s" % (what, " ".join(differ[:6])))

    def call(self):
        base, wrong = self.go(0), []
        worst = self.agrees(base)
        if not worst[0] <= 1:
            wrong.append("%.3g times what is allowed: %s" % worst)
        others = [(0, ["--poison"]), (2, ["--redzones", "--no-graph"])] + [(v, []) for v in variants(self.model.seed)[1:-1]]
        for variant, args in others if self.model.repeats else ():
            try:
                self.same(self.go(variant, *args), base, "v%d %s" % (variant, " ".join(args)))
            except (Failure, subprocess.TimeoutExpired) as e:
                wrong.append(str(e))
        check(not wrong, "; ".join(wrong))
        return "%.2g of what is allowed: %s" % worst


def unpacked(path):
    """The folder, or an archive of it unpacked."""
    if os.path.isdir(path):
        return path
    into = tempfile.mkdtemp(prefix="policies-")
    with tarfile.open(path) as t:
        t.extractall(into, filter="data")
    return os.path.join(into, os.listdir(into)[0])


def run(o):
    import runner
    machine = runner.Machine(runner.count_gpus())
    r = runner.Runner(unpacked(o.folder), machine)
    cases = [Case(r, int(re.search(r"s(\d+)\.json$", p).group(1))) for p in sorted(glob.glob(r.path("s*.json")))]
    cases = [c for c in cases if c.model.world <= machine.total and re.search(o.only, c.model.title())]
    cases.sort(key=lambda c: -c.model.world)
    began, passed, failed, skipped = time.time(), 0, 0, 0
    out = open(os.path.join(os.environ["OUT"], "policies.log"), "w") if os.environ.get("OUT") else None

    def one(case):
        if time.time() - began > o.seconds:
            return None, "not run: no time left"
        try:
            return True, case.call()
        except Exception as e:  # any failure is reported, none stops the others
            return False, "%s%s" % ("" if isinstance(e, Failure) else type(e).__name__ + ": ", e)
    with concurrent.futures.ThreadPoolExecutor(machine.SHARES * machine.total) as pool:
        running = {pool.submit(one, c): c for c in cases}
        for done in concurrent.futures.as_completed(running):
            (ok, note), title = done.result(), running[done].model.title()
            passed, failed, skipped = passed + (ok is True), failed + (ok is False), skipped + (ok is None)
            if out:
                out.write("%s %s\n     %s\n" % ("FAIL" if ok is False else "ok  ", title, note))
            if not ok:
                print("%s %s\n     %s" % ("FAIL" if ok is False else "none", title, note[-1200:]), flush=True)
    shutil.rmtree(r.work, ignore_errors=True)
    print("%d passed, %d failed, %d not run (%.0f s)" % (passed, failed, skipped, time.time() - began))
    return 1 if failed or not passed else 0


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = a.add_subparsers(dest="do", required=True)
    b = sub.add_parser("build")
    b.add_argument("first", type=int)
    b.add_argument("last", type=int)
    b.add_argument("-o", "--output", required=True)
    b.add_argument("--build", default=os.path.join(ROOT, "build"))
    b.add_argument("--arch", default="sm_90")
    b.add_argument("--jobs", type=int, default=2)
    b.add_argument("--reference", action="store_true", help="the CPU's programs only")
    b.add_argument("--archive", help="pack the folder into this .tar.xz too")
    g = sub.add_parser("run")
    g.add_argument("folder")
    g.add_argument("--only", default="")
    g.add_argument("--seconds", type=int, default=200, help="no case begins later")
    o = a.parse_args()
    return build(o) if o.do == "build" else run(o)


if __name__ == "__main__":
    sys.exit(main())
