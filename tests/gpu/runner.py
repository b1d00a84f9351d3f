"""What cases of the GPU tests are made of: the GPUs lent to them, programs that run there, numbers and bits that are compared.

A family of rows has a file of its own here, rows_<family>.py, found by its name, with any of these three:
  PROGRAMS = {"scaler-w2": ("tests/program/rows/scaler.lua", 2, dict(batch=4), ["--policy", "p.lua"])}
      programs for CUDA: the model (from the root, or in models/), world, --set, further arguments of `shardc build` (may be left out)
  CPU = ["scaler-w2"]
      of these, what the CPU's program computes in 20 steps as well: agrees(r, "scaler-w2", 2, options) compares; or {name: further
      arguments of the run}, which agrees() takes too
  def cases(r): yield "rows.G1", 2, lambda: same(r, "scaler-w2", 2, "scaler-w2", "--poison")
      name (rows.ROW), GPUs, call; the call returns a short note, or fails by harness.check; r is a Runner
Names of programs begin with the family's. To try: make gpu-build, then tests/gpu/run.py --only '^rows.G' where the GPUs are.

Relies on: tests/program/harness.py, programs.py. Relied on by: run.py, rows_*.py."""
import concurrent.futures
import contextlib
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "program")]
from build import STEPS, accumulation  # noqa: E402
from harness import check, read_log, read_safetensors, same_run, steps  # noqa: E402

AGREES = 1e-4  # fp32: losses and norms of 20 steps, every gradient; relative


class Machine:
    """The GPUs, lent to cases. Small programs mostly start and end, so a GPU serves several at a time: a case takes a share of each of its
    GPUs, two where it needs several (ranks wait for each other), all where it wants to be alone (times). Ranks that share GPUs mostly start
    and wait for the network: they take one, of all GPUs."""

    SHARES = 4

    def __init__(self, n):
        self.free, self.change = {i: self.SHARES for i in range(n)}, threading.Condition()
        self.total, self.began = n, threading.local()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.names = visible.split(",") if visible else [str(i) for i in range(n)]

    def take(self, n, alone=False):
        share = self.SHARES if alone else 1 if n == 1 or n > self.total else 2
        n = min(n, self.total)
        with self.change:
            self.change.wait_for(lambda: sum(f >= share for f in self.free.values()) >= n)
            taken = sorted(sorted(self.free, key=lambda i: -self.free[i])[:n])
            for i in taken:
                self.free[i] -= share
            return taken, share

    def give(self, lent):
        with self.change:
            for i in lent[0]:
                self.free[i] += lent[1]
            self.change.notify_all()

    @contextlib.contextmanager
    def lend(self, n, alone=False):
        """The environment that shows n GPUs; a case's time begins with the first that it is lent."""
        lent = self.take(n, alone)
        if not getattr(self.began, "at", None):
            self.began.at = time.time()
        try:
            yield {"CUDA_VISIBLE_DEVICES": ",".join(self.names[i] for i in lent[0])}
        finally:
            self.give(lent)


def count_gpus():
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([x for x in visible.split(",") if x.strip()])
    try:
        return len(re.findall(r"^GPU ", subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout, re.M))
    except OSError:
        return 0


def library_path():
    """Where NCCL, cuBLASLt, cuDNN and CUPTI may be: Python's packages, the toolkit."""
    import site
    folders = [d for p in site.getsitepackages() for d in glob.glob(os.path.join(p, "nvidia", "*", "lib"))]
    return ":".join([x for x in [os.environ.get("LD_LIBRARY_PATH")] if x] + folders + ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"])


def unpacked(path, into):
    """The folder, or what an archive of it holds."""
    if os.path.isdir(path) or not os.path.exists(path):
        return path
    with tarfile.open(path) as t:
        t.extractall(into, filter="data")
    return os.path.join(into, os.listdir(into)[0])


class Runner:
    def __init__(self, folder, machine):
        self.machine, self.scratch = machine, tempfile.TemporaryDirectory(prefix="gpu-tests-", ignore_cleanup_errors=True)  # gone at the end
        self.work = self.scratch.name
        self.folder = unpacked(os.path.abspath(folder), self.work)
        self.env = dict(os.environ, LD_LIBRARY_PATH=library_path())
        self.text, self.kept, self.lock = os.path.join(self.folder, "text.bin"), {}, threading.Lock()

    def path(self, name):
        return os.path.join(self.folder, name)

    def shares(self, world):
        """Are there more ranks than GPUs?"""
        return world > self.machine.total

    def process_fits(self, world, predicted, used):
        """Is the memory of a rank's process, by the driver's figure, within max(1 %, 32 MiB) of the prediction? Where ranks share GPUs it
        holds NCCL's buffers for the network too, and is not judged."""
        return self.shares(world) or abs(used - predicted) <= max(predicted // 100, 32 << 20)

    def process(self, world, predicted, used):
        """A note on it; it must fit."""
        note = "process %d MiB predicted, %d used" % (predicted >> 20, used >> 20)
        check(self.process_fits(world, predicted, used), note)
        return note

    def start(self, name, world, *args, env=None, before=(), timeout=240, stdin=None, alone=False, codes=(0,)):
        """Runs a program on `world` GPUs, or on all there are, shared; its output. Its arenas must be as predicted."""
        if self.shares(world):
            args = (*args, "--share-gpus")
        with self.machine.lend(world, alone) as gpus, open(stdin or os.devnull, "rb") as source:
            p = subprocess.run([*before, self.path(name), *args], env={**self.env, **gpus, **(env or {})}, capture_output=True, text=True, errors="replace",
                               timeout=timeout, stdin=source)
        out = p.stdout + p.stderr
        check(p.returncode in codes, "exit %d from %s %s\n%s" % (p.returncode, name, " ".join(args), out[-1500:]))
        arenas = re.findall(r"^(arena|host) +([\d,]+) B predicted, ([\d,]+) B allocated", out, re.M)
        check("--quiet" in args or len(arenas) == 2 and all(p == a for _, p, a in arenas), "predicted and allocated differ: %s" % arenas)
        return out

    def once(self, key, call):
        """What call returns, called once for all who ask for the same."""
        with self.lock:
            first = key not in self.kept
            future = self.kept.setdefault(key, concurrent.futures.Future())
        if first:
            try:
                future.set_result(call())
            except BaseException as e:
                future.set_exception(e)
        return future.result()

    def train(self, name, world, *args, **kw):
        """(log, {weight: (dtype, shape, digest)}) of a run, run once for all who ask for the same."""
        return self.once((name, world, args), lambda: self.train_now(name, world, *args, **kw))

    def train_now(self, name, world, *args, **kw):
        folder = tempfile.mkdtemp(dir=self.work)
        log, weights = os.path.join(folder, "log.jsonl"), os.path.join(folder, "weights.safetensors")
        self.start(name, world, "--data", self.text, *STEPS, "--log", log, "--export", weights, *args, **kw)
        result = read_log(log), {k: (d, s, hashlib.sha1(b).hexdigest()) for k, (d, s, b) in read_safetensors(weights).items()}
        shutil.rmtree(folder)
        return result


# ── numbers and bits ─────────────────────────────────────────────────────────────────────────────────────────────────
def agrees(r, name, world, options, *further):
    """20 steps of fp32 beside the CPU's program."""
    ours, cpu = steps(r.train(name, world, *accumulation(options), *further)[0]), steps(read_log(r.path(name + ".cpu.jsonl")))
    check(len(ours) == len(cpu) == 20, "%d and %d steps" % (len(ours), len(cpu)))
    worst = {k: max(abs(a[k] - b[k]) / abs(b[k]) for a, b in zip(ours, cpu)) for k in ("loss", "grad_norm")}
    check(max(worst.values()) <= AGREES, "from the CPU's program: losses %.1e, norms %.1e" % (worst["loss"], worst["grad_norm"]))
    return "losses within %.1e, norms %.1e" % (worst["loss"], worst["grad_norm"])


def same(r, base, world, name, *args):
    """The bits of the plain program: losses, norms, weights after 20 steps."""
    same_run(r.train(name, world, *args), r.train(base, world), "%s %s" % (name, " ".join(args)))
    return "20 steps, the same bits"


def once_more(r, base, world):
    """The same binary again; a run of its own, not the kept one."""
    same_run(r.train_now(base, world), r.train(base, world), "again")
    return "20 steps, the same bits"
