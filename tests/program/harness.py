"""What every program test uses: building, running, reading logs and safetensors, comparing.

Relies on: alone.py, python3's standard library, build/shardc, build/libsc_cpu*.a.
Relied on by: tests/program/test_*.py, run.py, tests/golden."""
import array
import fcntl
import hashlib
import json
import math
import os
import pty
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

import alone

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TESTS = os.path.join(ROOT, "tests", "program")
ROWS, BAD = os.path.join(TESTS, "rows"), os.path.join(TESTS, "bad")
NET = os.path.join(TESTS, "surface", "net.lua")
BUILD = os.environ.get("SHARDC_BUILD", os.path.join(ROOT, "build"))
SHARDC = os.path.join(BUILD, "shardc")
WORK = os.path.join(BUILD, "tests", "work")
BUDGET = 1 << 30  # bytes of programs that stay for tests to come; a program is 27 MB
LOCK, WORKING = threading.Lock(), threading.Lock()
PROGRAMS = {}  # folder: Program, the least recently asked for first
SHARED = {}  # name: lock
COUNTS = {"built": 0, "most": 0}


class Failure(Exception):
    pass


def check(ok, text):
    if not ok:
        raise Failure(text)


# ── marks of tests: run.py reads them ────────────────────────────────────────────────────────────────────────────────────
def waits(test):
    """Marks a test that mostly waits for time to pass: it needs no core of its own."""
    test.waits = True
    return test


def long(test):
    """Marks a test that takes much longer than others: begun first, it does not run on alone at the end."""
    test.long = True
    return test


# Seconds after which a test gives up what should have ended by itself, and what computes. A busy machine takes as long as it takes; where
# something has to be noticed soon, the test arranges that it would otherwise take longer than this.
HANG, MANY = 600, 3600


def until(true, what):
    """Waits for true() to be so."""
    end = time.monotonic() + HANG
    while not true():
        check(time.monotonic() < end, "waited in vain for " + what)
        time.sleep(0.02)


def patiently(test):
    """A test of something that comes to pass after a while, and nobody tells when: test(seconds) waits so long. A busy machine may need more,
    so what fails is tried with more; what fails then has failed."""
    for seconds in 0.5, 3, 20:
        try:
            return test(seconds)
        except Failure as e:
            failed = e
    raise failed


def command(args, timeout=MANY, env=None, cwd=ROOT, stdin=None, stdin_file=None):
    """Runs a command, returns (exit code, stdout, stderr). stdin: text; stdin_file: an open file; without either it reads nothing;
    env: what differs from our environment, None where a variable shall not be."""
    e = {k: v for k, v in dict(os.environ, **(env or {})).items() if v is not None}
    given = {"stdin": stdin_file or subprocess.DEVNULL} if stdin is None else {"input": stdin}
    p = subprocess.run(args, capture_output=True, text=True, errors="replace", timeout=timeout, env=e, cwd=cwd, **given)
    return p.returncode, p.stdout, p.stderr


def in_time(err):
    """What was said on standard error, but for lines by which a run tells that something takes a while, as it may on a busy machine."""
    return re.sub(r"(?m)^shardc: (waiting for|stopping as soon as) .*\n", "", err)


def must(args, **kw):
    rc, out, err = command(args, **kw)
    check(rc == 0, "exit %d from: %s\n%s%s" % (rc, " ".join(args), out[-3000:], err[-3000:]))
    return out


def on_terminal(columns, args):
    """What a command prints on a terminal that is so wide; it must end well."""
    pid, end = pty.fork()
    if not pid:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.chdir(ROOT)
        os.execv(args[0], args)
    said = b""
    while True:
        try:
            piece = os.read(end, 1 << 16)
        except OSError:  # the other end is closed
            piece = b""
        if not piece:
            break
        said += piece
    os.close(end)
    check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "on a terminal %s says %s" % (" ".join(args), said[-1000:]))
    return said.decode().replace("\r\n", "\n")


def entries(text):
    """[(label, text)] of what `shardc predict` prints behind labels, each on one line however many it takes."""
    found = []
    for line in text.split("\n"):
        if re.match(r"  \S", line):
            found.append((line[2:11].strip(), line[11:].strip()))
        elif line.startswith(" " * 11) and found:
            found[-1] = (found[-1][0], found[-1][1] + " " + line.strip())
    return found


def entry(text, label):
    """The first of that label; "" where there is none."""
    return dict(reversed(entries(text))).get(label, "")


# ── processors ───────────────────────────────────────────────────────────────────────────────────────────────────────────
CORES = {  # what OpenBLAS has kernels for: what a processor needs to run them, as /proc/cpuinfo has it
    "Nehalem": "sse4_2", "Haswell": "avx2 fma", "Zen": "avx2 fma", "SkylakeX": "avx512f avx512cd avx512bw avx512dq avx512vl",
    "Cooperlake": "avx512f avx512vl avx512_bf16", "Sapphirerapids": "avx512f avx512vl avx512_bf16 amx_tile amx_bf16"}


def cores(program):
    """{processor, as OpenBLAS names it: the environment in which it takes the kernels for it}, of those that this processor can run. The first
    is the one that OpenBLAS takes as things stand. program: one that is linked with it, and an argument with which it ends soon."""
    flags = set(re.search(r"^flags\s*:(.*)", open("/proc/cpuinfo").read() + "\nflags:", re.M).group(1).split())
    found = {}
    for env in ({}, *({"OPENBLAS_CORETYPE": c} for c, needs in CORES.items() if flags.issuperset(needs.split()))):
        _, out, err = command(program, env=dict(env, OPENBLAS_VERBOSE="2"))
        taken = re.search(r"^Core: (.*)$", out + err, re.M)  # a build of OpenBLAS that does not know a name takes its own choice
        if taken or not env:
            found.setdefault(taken.group(1) if taken else "the only one", env)
    return found


# ── files that tests make: gone when nobody needs them ───────────────────────────────────────────────────────────────────
class Scope:
    """A test, or a part of one that asks for many programs: what it makes and builds is there while it runs."""

    def __init__(self):
        self.folders, self.programs = [], []

    def __enter__(self):
        self.outer, MINE.scope = MINE.scope, self

    def __exit__(self, failed, *_):
        """What a failed test leaves stays, for people to look at."""
        MINE.scope = self.outer
        if failed:
            return
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        with LOCK:
            for p in self.programs:
                p.users -= 1
            evict(BUDGET)


class Mine(threading.local):
    def __init__(self):
        self.scope = Scope()  # outside of tests nothing is removed
        self.cpu = 0.0  # seconds of processor time that this thread's processes took, those that they waited for included


MINE = Mine()


def reap(process, flags):
    """Takes the place of subprocess.Popen._try_wait, and counts what the process used."""
    try:
        pid, status, used = os.wait4(process.pid, flags)
        MINE.cpu += used.ru_utime + used.ru_stime
        return pid, status
    except ChildProcessError:
        return process.pid, 0


subprocess.Popen._try_wait = reap


def cpu_seconds():
    """Of the thread that asks and of the processes that it waited for."""
    return MINE.cpu + time.thread_time()


class Program:
    """A built program; it stays while a scope that asked for it lasts."""

    def __init__(self):
        self.users, self.lock = 0, threading.Lock()


def size(folder):
    total = 0
    for name in os.listdir(folder) if os.path.exists(folder) else ():
        try:
            total += os.lstat(os.path.join(folder, name)).st_size
        except FileNotFoundError:
            pass  # of a build that goes on
    return total


def evict(budget):
    """Removes programs that no scope uses until the rest is within the budget; they are built again when asked for."""
    sizes = {folder: size(folder) for folder in PROGRAMS}
    total = sum(sizes.values())
    COUNTS["most"] = max(COUNTS["most"], total)
    for folder in [f for f, p in PROGRAMS.items() if not p.users]:
        if total > budget:
            shutil.rmtree(folder)
            del PROGRAMS[folder]
            total -= sizes[folder]


def leave(failed):
    """What stays after a run: nothing if all passed, else the failed tests' folders and programs and what tests share."""
    evict(0)
    if not failed:
        shutil.rmtree(WORK, ignore_errors=True)


def work():
    """The folder of what tests make, for us alone: run.py has seen to that; who calls from elsewhere may have to wait."""
    with WORKING:
        alone.alone(BUILD, os.path.basename(sys.argv[0]))
        os.makedirs(WORK, exist_ok=True)
    return WORK


def scratch(name):
    """A new folder; it stays while its scope lasts."""
    MINE.scope.folders.append(tempfile.mkdtemp(prefix=name + "-", dir=work()))
    return MINE.scope.folders[-1]


def shared(name, make):
    """A file or folder of all tests; the first to ask has it made: make(path)."""
    path = os.path.join(work(), name)
    with SHARED.setdefault(name, threading.Lock()):
        if not os.path.exists(path):
            make(path + ".part")
            os.rename(path + ".part", path)
    return path


def shardc(*args, **kw):
    return must([SHARDC, *args], **kw)


def settings(options):
    """As arguments of shardc."""
    return [a for k, v in options.items() for a in ("--set", "%s=%s" % (k, str(v).lower() if isinstance(v, bool) else v))]


def microbatches(options):
    """Arguments of a program that is built with these options, where they say accumulate: a step of as many microbatches."""
    return ["--accumulate", str(options["accumulate"])] if options.get("accumulate", 1) > 1 else []


def lua(value):
    """The value as Lua writes it."""
    if isinstance(value, dict):
        return "{ %s }" % ", ".join("%s = %s" % (k, lua(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return "{ %s }" % ", ".join(lua(v) for v in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return '"%s"' % value if isinstance(value, str) else repr(value)


def planned(model, world, *args, **options):
    """The plan, as --format json prints it."""
    return json.loads(shardc("inspect", model, "--world", str(world), "--format", "json", *args, *settings(options)))


def events_of(plan, program="micro"):
    return next(p for p in plan["programs"] if p["name"] == program)["events"]


def groups_of(plan):
    """Of each group of ranks, by its name, how many it has and how far they are apart."""
    axes = {a["name"]: (a["size"], a["stride"]) for a in plan["mesh"]["axes"]}
    return {g["name"]: axes[g["axis"]] for g in plan["mesh"]["groups"]}


def places(plan, unit, along):
    """How many ranks an axis of the unit has: along "shard" its shards, along "replicate" its replicas."""
    return next(a["size"] for a in plan["mesh"]["axes"] if a["name"] == unit[along])


def quick_cc():
    """A C compiler that takes -O0 for -O3: kernels then compile in a tenth of the time, have the same bits, and do for models this small."""
    def make(path):
        with open(path, "w") as f:
            f.write('#!/bin/sh\nfor a; do\n  shift\n  [ "$a" = -O3 ] && a=-O0\n  set -- "$@" "$a"\ndone\nexec %s "$@"\n' % (os.environ.get("CC") or "gcc"))
        os.chmod(path, 0o755)
    return shared("quick-cc", make)


def build(model, world=1, variant="", redzone=256, policy=None, optimized=False, **options):
    """Builds a model (path under models/ or absolute), once per distinct set of options; with guard bytes round every storage
    unless redzone = 0, with kernels as users get them if optimized. Returns the binary's path, which stays valid while the scope that
    asks lasts."""
    key = json.dumps([model, world, variant, redzone, policy, optimized, options], sort_keys=True)
    name = os.path.basename(model).replace(".lua", "") + "-" + hashlib.sha1(key.encode()).hexdigest()[:10]
    folder = os.path.join(WORK, name)
    binary = os.path.join(folder, name)
    with LOCK:
        p = PROGRAMS[folder] = PROGRAMS.pop(folder, None) or Program()
        if p not in MINE.scope.programs:
            MINE.scope.programs.append(p)
            p.users += 1
    with p.lock:
        if os.path.exists(binary):
            return binary
        path = model if os.path.isabs(model) else os.path.join(ROOT, "models", model)
        args = ["build", path, "--world", str(world), "-o", binary, *settings(options)]
        if variant:
            args += ["--portable"] if variant == "portable" else ["--variant", variant]
        if redzone:
            args += ["--redzone", str(redzone)]
        if policy:
            args += ["--policy", policy]
        shardc(*args, env=None if optimized else {"CC": quick_cc()})
    with LOCK:
        COUNTS["built"] += 1
        evict(BUDGET)
    return binary


def llama3_with(folder, sharding):
    """A copy of llama3.lua in the folder, whose blocks are sharded by other lines than families/training.lua has."""
    line, path = "    nn.fully_shard(block, policy)\n", os.path.join(folder, "llama3.lua")
    with open(os.path.join(ROOT, "models", "families", "training.lua")) as f:
        text = f.read()
    check(text.count(line) == 1, "the families shard their blocks")
    os.makedirs(os.path.join(folder, "families"), exist_ok=True)
    with open(os.path.join(folder, "families", "training.lua"), "w") as f:
        f.write(text.replace(line, sharding))
    shutil.copy(os.path.join(ROOT, "models", "llama3.lua"), path)
    return path


def corpus(name="corpus", size=60000, seed=1):
    """A byte-level .bin made from the repository's own text by `shardc data`."""
    def make(path):
        files = sorted(os.path.join(d, f) for d, _, fs in os.walk(os.path.join(ROOT, "compiler")) for f in fs if f.endswith((".c", ".h", ".lua")))
        random.Random(seed).shuffle(files)
        text = b"".join(open(f, "rb").read() for f in files)[:size]
        open(path + ".txt", "wb").write(text)
        shardc("data", path + ".txt", "-o", path)
    return shared("%s-%d-%d.bin" % (name, size, seed), make)


def learned(losses, share=1):
    """The losses of the last quarter of the steps are, on average, below a share of the first one: a single step's depends on the text that it reads."""
    last = losses[-max(1, len(losses) // 4):]
    return sum(last) / len(last) < share * losses[0]


def library(name, *flags):
    """A library that is loaded before a program's own, of a source beside this file."""
    source = os.path.join(TESTS, name + ".c")
    return shared(name + ".so", lambda path: must(["gcc", "-O1", *flags, "-shared", "-fPIC", source, "-o", path, "-ldl"]))


def train(binary, *args, records=None, env=None, timeout=MANY):
    """Runs a training program (records: the file that `--data -` reads) and holds it to promises P1 and P2: arenas as predicted,
    nothing allocated between the first step and the last, red zones intact. Returns its output."""
    found = os.path.join(scratch("train"), "allocations")
    e = dict(env or {}, LD_PRELOAD=library("interpose"), SC_ALLOCATIONS=found)
    with open(records or os.devnull, "rb") as source:
        out = must([binary, "--redzones", *args], env=e, timeout=timeout, stdin_file=source)
    arenas = re.findall(r"^(arena|host) +([\d,]+) B predicted, ([\d,]+) B allocated", out, re.M)
    check(len(arenas) == 2 and all(p == a for _, p, a in arenas), "predicted and allocated differ: %s\n%s" % (arenas, out[:800]))
    lines = open(found).read().split("\n")
    check("start" in lines, "the program does not tell when it starts")
    check(all(l in ("", "start") for l in lines), "allocated after start: %s" % [l for l in lines if l not in ("", "start")][:5])
    return out


def run(binary, *args, records=None, env=None, timeout=MANY):
    """Trains; returns (log lines as dicts, exported weights as {name: (dtype, shape, bytes)})."""
    folder = scratch("run")
    log, weights = os.path.join(folder, "log.jsonl"), os.path.join(folder, "weights.safetensors")
    train(binary, "--log", log, "--export", weights, *args, records=records, env=env, timeout=timeout)
    return read_log(log), read_safetensors(weights)


def read_log(path):
    """What the steps, validations and measurements logged: without the lines that say how the run began and ended."""
    return [line for line in map(json.loads, open(path)) if "model" not in line and "end" not in line]


def steps(log):
    return [line for line in log if "loss" in line and "step" in line]


def trains(log):
    """Whether a run that logs there has come to its first step."""
    return os.path.exists(log) and '"loss"' in open(log).read()


def losses(log):
    return [line["loss"] for line in steps(log)]


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in head.items()}


def write_safetensors(path, tensors):
    head, blobs, at = {}, [], 0
    for k, (dtype, shape, blob) in tensors.items():
        head[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_state(folder):
    """(index, {(rank's file, tensor's name): (dtype, shape, bytes)}) of a checkpoint."""
    with open(os.path.join(folder, "index.json")) as f:
        index = json.load(f)
    saved = os.path.join(folder, index["folder"])
    return index, {(name, k): t for name in sorted(os.listdir(saved)) if name != "index.json" for k, t in read_safetensors(os.path.join(saved, name)).items()}


def of_ranks(path, world):
    """The files that --dump -o PATH leaves, one a rank."""
    return [path] + [path.replace(".safetensors", ".rank%d.safetensors" % r) for r in range(1, world)]


def contents(folder):
    """{path: bytes} of every file below a folder."""
    return {os.path.join(d, f): open(os.path.join(d, f), "rb").read() for d, _, fs in os.walk(folder) for f in fs}


def write_numbers(path, kind, values):
    """A file of floats (kind "f") or int32 ("i"), as `--data -` reads them."""
    with open(path, "wb") as f:
        f.write(array.array(kind, values).tobytes())
    return path


def all_weights(a):
    """Every element of a run's weights, as one list."""
    return [x for k in sorted(a[1]) for x in floats(a[1][k])]


def floats(tensor):
    """A tensor's values as a list of Python floats."""
    dtype, _, blob = tensor
    if dtype == "F32":
        return array.array("f", blob)
    if dtype == "F64":
        return array.array("d", blob)
    if dtype == "BF16":
        return array.array("f", b"".join(b"\0\0" + blob[i:i + 2] for i in range(0, len(blob), 2)))
    if dtype == "F16":
        return [x[0] for x in struct.iter_unpack("<e", blob)]
    raise Failure("dtype %s" % dtype)


def relative(a, b):
    """|a - b| / |b|, Euclidean."""
    check(len(a) == len(b), "sizes %d and %d" % (len(a), len(b)))
    norm = math.sqrt(sum(y * y for y in b))
    diff = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))
    return diff / norm if norm else diff


def close(a, b, tolerance, what):
    r = relative(a, b)
    check(r <= tolerance, "%s: relative difference %.3g > %.3g" % (what, r, tolerance))
    return r


def same_run(a, b, what):
    """Losses, gradient norms and weights identical, bit for bit."""
    for x, y in zip(steps(a[0]), steps(b[0])):
        for k in ("loss", "grad_norm"):
            check(x[k] == y[k], "%s: step %d: %s %r != %r" % (what, x["step"], k, x[k], y[k]))
    check(len(steps(a[0])) == len(steps(b[0])) > 0, "%s: different numbers of steps" % what)
    check(a[1].keys() == b[1].keys(), "%s: different weights" % what)
    for k in a[1]:
        check(a[1][k] == b[1][k], "%s: weights of %s differ" % (what, k))
