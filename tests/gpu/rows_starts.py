"""Bad situations at the start and processes of several launchers, on real GPUs: one clear message and a clean end within seconds.

Relies on: runner.py, NVIDIA's driver (a stand-in for whoever fills a GPU). Relied on by: run.py, by its name."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import rows_surface as surface
from harness import check, read_log, steps
from runner import AGREES, STEPS

TINY = dict(layers=2, dim=64, heads=4, vocab=256, seq=64, batch=4)
PROGRAMS = {
    "starts-w1": ("gpt2.lua", 1, TINY), "starts-w2": ("gpt2.lua", 2, TINY), "starts-bf16-w1": ("gpt2.lua", 1, dict(TINY, precision="bf16")),
    "starts-other-arch-w1": ("gpt2.lua", 1, TINY, ["--arch", "sm_80"]), "starts-large-w1": ("gpt2.lua", 1, dict(TINY, vocab=50304, seq=1024, batch=32)),
}
for _w in 2, 4:
    _file, _, _options, _policy = surface.PROGRAMS[surface.name("mesh-replicate", _w)]
    PROGRAMS["starts-nodes-w%d" % _w] = _file, _w, _options, [*_policy, "--nodes", "2"]
PORT = 31500


def refused(r, name, gpus, says, env=None, alone=False, args=()):
    """Exit 1 with one message within seconds, before the first step."""
    if not os.path.exists(r.path(name)):
        return "skipped: the tests were built without it"
    start = time.time()
    with r.machine.lend(gpus, alone) as visible:
        p = subprocess.run([r.path(name), "--data", r.text, "--steps", "2", *args], env={**r.env, **visible, **(env or {})}, capture_output=True, text=True, errors="replace", timeout=60)
    took, said = time.time() - start, [line for line in p.stderr.splitlines() if line.startswith("shardc:")]
    check(p.returncode == 1 and took < 15 and len(said) == 1 and re.search(says, said[0]) and "step" not in p.stdout, "exit %d after %.1f s: %s" % (p.returncode, took, p.stderr[-800:]))
    return "%.1f s: %s" % (took, said[0][:150])


NO_CUDNN = {"CUDNN_HOME": "/nowhere"}


def without_cudnn(r):
    """On compute capability 9.0 attention is shardc's own, in bf16 too: without cuDNN, even where it is required, the same losses and not a word."""
    if not os.path.exists(r.path("starts-bf16-w1")):
        return "skipped: the tests were built without it"

    def go(*args, **kw):
        log = os.path.join(tempfile.mkdtemp(dir=r.work), "log.jsonl")
        out = r.start("starts-bf16-w1", 1, "--data", r.text, *STEPS, "--log", log, *args, **kw)
        check("cuDNN" not in out, out)
        return [s["loss"] for s in steps(read_log(log))]
    without, bare, beside = go("--require-cudnn", env=NO_CUDNN), go("--no-graph", env=NO_CUDNN), go()
    check(len(without) == 20 and without == bare == beside, "losses %s, %s and %s" % (without[-3:], bare[-3:], beside[-3:]))
    return "20 steps, the same losses"


HOG = """
import ctypes, sys
d, c, p, free, all = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
d.cuInit(0), d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0), d.cuCtxSetCurrent(c), d.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(all))
print(d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(free.value - (3 << 30))), flush=True)
sys.stdin.readline()
"""


def little_memory(r):
    """Another process leaves 3 GiB of the GPU: the message holds both figures."""
    with r.machine.lend(1, alone=True) as visible:
        hog = subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(r.env, **visible))
        try:
            check(hog.stdout.readline().strip() == "0", "the GPU could not be filled")
            p = subprocess.run([r.path("starts-large-w1"), "--data", r.text, "--steps", "2"], env=dict(r.env, **visible), capture_output=True, text=True, errors="replace", timeout=60)
        finally:
            hog.kill()
            hog.wait()
    said = [line for line in p.stderr.splitlines() if line.startswith("shardc:")]
    check(p.returncode == 1 and len(said) == 1 and re.search(r"its arena takes [\d.]+ GiB .* and 2\.\d+ GiB .* are free on GPU 0", said[0]), "exit %d: %s" % (p.returncode, p.stderr[-800:]))
    return said[0][:200]


def processes(r, name, visible, args, places):
    """A process a rank, as a launcher would start them."""
    return [subprocess.Popen([r.path(name), "--data", r.text, *args], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, errors="replace",
                             env={**r.env, **visible, "RANK": str(k), "WORLD_SIZE": str(len(places)), "MASTER_ADDR": "127.0.0.1", **place})
            for k, place in enumerate(places)]


def two_machines(r, name, world, expected, *args):
    """Two "machines", which meet by TCP and whose NCCL goes by the network's loopback: the losses of one."""
    here, log = world // 2, os.path.join(tempfile.mkdtemp(dir=r.work), "log.jsonl")
    with r.machine.lend(2) as visible:
        gpus = visible["CUDA_VISIBLE_DEVICES"].split(",")
        ranks = processes(r, name, visible, [*args, "--log", log],
                          [dict(LOCAL_RANK=str(k % here), LOCAL_WORLD_SIZE=str(here), GROUP_RANK=str(k // here), MASTER_PORT=str(PORT + 10 + world),
                                CUDA_VISIBLE_DEVICES=gpus[k] if world == 2 else ",".join(gpus), NCCL_HOSTID="machine-%d" % (k // here)) for k in range(world)])
        said = [p.communicate(timeout=90)[1] for p in ranks]
    check([p.returncode for p in ranks] == [0] * world, "exits %s: %s" % ([p.returncode for p in ranks], "".join(said)[-1200:]))
    ours, theirs = ([s["loss"] for s in steps(read_log(f))] for f in (log, expected))
    apart = max(abs(a - b) / b for a, b in zip(ours, theirs))
    check(len(ours) == len(theirs) == 20 and apart < AGREES, "losses %s and %s" % (ours[-3:], theirs[-3:]))
    return "2 machines of %d: 20 steps, losses within %.1e of the CPU's" % (here, apart)


def runs(process):
    """Is it there after some seconds, other than as what nobody has waited for?"""
    for _ in range(30):
        try:
            with open("/proc/%s/stat" % process) as f:
                if f.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    return False
        except OSError:
            return False
        time.sleep(0.1)
    return True


def ended(r, what, port):
    """Ranks in processes of a launcher: one process killed (the launcher's), its rank killed, or stopped: both end, one message names it."""
    with r.machine.lend(2) as visible:
        ranks = processes(r, "starts-w2", visible, ["--steps", "100000000", "--quiet", "--stall-seconds", "3"],
                          [dict(LOCAL_RANK=str(k), LOCAL_WORLD_SIZE="2", MASTER_PORT=str(port)) for k in range(2)])
        try:
            time.sleep(8)
            kids = open("/proc/%d/task/%d/children" % (ranks[1].pid, ranks[1].pid)).read().split()
            check(kids and all(p.poll() is None for p in ranks), "they did not run: exits %s" % [p.poll() for p in ranks])
            start = time.time()
            os.kill(ranks[1].pid if what == "process-killed" else int(kids[0]), signal.SIGSTOP if what == "rank-stopped" else signal.SIGKILL)
            said = "".join(p.communicate(timeout=25)[1] for p in ranks)
            took = time.time() - start
        finally:
            for p in ranks:
                p.kill()
    codes, left = [p.returncode for p in ranks], [k for k in kids if runs(k)]
    check(codes[0] == 3 and codes[1] in (3, -9) and "rank 1" in said and not left, "exits %s, left %s: %s" % (codes, left, said[-1200:]))
    return "exits %s after %.1f s: %s" % (codes, took, next((line for line in said.splitlines() if "rank 1" in line), "").strip()[:150])


def cases(r):
    for name, program, gpus, says, env in (
            ("no-gpu", "starts-w1", 1, r"no GPU is visible \(CUDA_VISIBLE_DEVICES is ''\)", {"CUDA_VISIBLE_DEVICES": ""}),
            ("too-few", "starts-w2", 1, r"built for 2 ranks, a GPU each, and 1 GPU is visible", None),
            ("architecture", "starts-other-arch-w1", 1, r"compiled for sm_80, and GPU 0 .* is sm_90", None),
            ("no-cublas", "starts-w1", 1, r"libcublasLt\.so\.13 .* is not there; looked in CUBLAS_HOME=/nowhere", {"CUBLAS_HOME": "/nowhere"}),
            ("no-nccl", "starts-w2", 2, r"libnccl\.so\.2 .* is not there; looked in NCCL_HOME=/nowhere", {"NCCL_HOME": "/nowhere"}),
            ("other-world", "starts-w1", 1, r"built for 1 rank", {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT + 9)})):
        yield "starts." + name, gpus, lambda a=(program, gpus, says), e=env: refused(r, *a, env=e)
    yield "starts.without-cudnn", 1, lambda: without_cudnn(r)
    yield "starts.little-memory", 1, lambda: little_memory(r)
    for w in 2, 4:
        yield "starts.two-machines-w%d" % w, 2, lambda w=w: two_machines(r, "starts-nodes-w%d" % w, w, r.path(surface.name("mesh-replicate", w) + ".cpu.jsonl"), *STEPS)
    for k, what in enumerate(("process-killed", "rank-killed", "rank-stopped")):
        yield "starts." + what, 2, lambda w=what, p=PORT + 1 + k: ended(r, w, p)
