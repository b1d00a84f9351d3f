"""Our step on GPUs beside PyTorch's (FSDP2, compiled) and beside the floor, in turn on the machine at hand: speed and memory.

  python3 bench/gpu.py build --shardc build/shardc -o build/gpu-bench [NAME...]   # where the compiler is: programs and their predictions
  python3 bench/gpu.py run --build build/gpu-bench [NAME...]                      # where the GPUs are; needs Python with PyTorch
  python3 bench/gpu.py run --build build/gpu-bench --sides profile NAME           # where our time goes, by CUPTI
  python3 bench/gpu.py table FILE.json...                                         # the tables of several runs (--json) together

Names are in workloads.py; without any: the table's rows that the GPUs at hand serve. --write NAME keeps the tables and every figure in
bench/results/.

Relies on: workloads.py, torch_fsdp2.py, floor.py, cupti_report.py, cupti_trace.c. Relied on by: make gpu-bench, make gpu-bench-build."""
import argparse
import array
import ctypes
import datetime
import glob
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import cupti_report
from workloads import ROWS, workload

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MIB = 1 << 20
TRACED = 6  # steps of a profile


# ── building ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def model_of(w, folder):
    """The model file; one that is allowed to be nondeterministic is a copy that says so."""
    path = os.path.join(ROOT, "models", w.shape.file)
    if not w.nondeterministic:
        return path
    with open(path) as f:
        text = f.read()
    copy = os.path.join(folder, w.shape.file)
    with open(copy, "w") as f:
        f.write(text.replace("return nn.training {", "return nn.training {\n  deterministic = false,"))
    return copy


def build_one(shardc, folder, w, arch, device):
    """The program, and what its own plan predicts."""
    binary = os.path.join(folder, w.name)
    args = [model_of(w, folder), "--world", str(w.world), *w.settings(), "--target", "cuda", "--device", device, *(["--arch", arch] if arch else [])]
    start = time.time()
    if subprocess.run([shardc, "build", *args, "-o", binary], stdout=subprocess.DEVNULL).returncode:
        print("%-32s NOT built" % w.name, flush=True)
        return False
    seconds = time.time() - start
    p = subprocess.run([shardc, "predict", binary, "--format", "json"], stdout=subprocess.PIPE, text=True, check=True)
    full = json.loads(p.stdout)
    with open(binary + ".json", "w") as f:
        json.dump({"workload": w.name, "build_seconds": seconds, "device": device, "prediction": full["prediction"]}, f)
    for leftover in glob.glob(binary + ".c") + glob.glob(binary + ".plan.json") + glob.glob(binary + "_kernels*") + glob.glob(os.path.join(folder, "*.lua")):
        os.unlink(leftover)
    print("%-32s built in %5.1f s, %4.1f MB; arena %s B" % (w.name, seconds, os.path.getsize(binary) / 1e6, format(full["prediction"]["arena_bytes"], ",")), flush=True)
    return True


def build_tracer(folder):
    """The CUPTI tracer, where CUPTI is: in the toolkit or among Python's packages. Returns its path or None."""
    lib = os.path.join(folder, "cupti_trace.so")
    if os.path.exists(lib):
        return lib
    homes = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda/extras/CUPTI", *packages()]
    header = [os.path.join(h, "include") for h in homes if os.path.exists(os.path.join(h, "include", "cupti.h"))]
    library = [p for h in homes for d in ("lib", "lib64") for p in glob.glob(os.path.join(h, d, "libcupti.so.13"))]
    toolkit = [os.path.join(h, "include") for h in homes if os.path.exists(os.path.join(h, "include", "cuda.h"))]
    if not (header and library and toolkit):
        return None
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-isystem", header[0], "-isystem", toolkit[0], os.path.join(HERE, "cupti_trace.c"), "-o", lib, library[0]],
                   check=True)
    return lib


def packages():
    """Folders of NVIDIA's Python packages."""
    import site
    return [d for p in site.getsitepackages() for d in glob.glob(os.path.join(p, "nvidia", "*"))]


def build(o):
    os.makedirs(o.output, exist_ok=True)
    built = [build_one(o.shardc, o.output, workload(name), o.arch, o.device) for name in o.names or ROWS]
    if not build_tracer(o.output):
        print("no CUPTI here: a profile compiles its tracer where the GPUs are")
    return 0 if all(built) else 1


# ── the driver's view of memory ──────────────────────────────────────────────────────────────────────────────────────
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Driver:
    """NVML: what the processes on each GPU hold, and what is in use there at all, as long as `with` lasts: the largest seen."""

    def __init__(self, world):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.nvml.nvmlInit_v2()
        visible = [int(x) for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x.strip().isdigit()]
        self.devices = []
        for i in (visible or range(gpus()))[:world]:
            h = ctypes.c_void_p()
            self.nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(h))
            self.devices.append(h)
        self.processes, self.used, self.stop = [0] * len(self.devices), [0] * len(self.devices), threading.Event()
        self.before = [self.in_use(d) for d in self.devices]

    def in_use(self, device):
        m = Memory()
        return m.used if self.nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(m)) == 0 else 0

    def of_processes(self, device):
        n, found = ctypes.c_uint(64), (Process * 64)()
        if self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(n), found):
            return 0
        return sum(p.used for p in found[:n.value] if p.used != 2 ** 64 - 1)

    def watch(self):
        while not self.stop.wait(0.05):
            for i, d in enumerate(self.devices):
                self.processes[i] = max(self.processes[i], self.of_processes(d))
                self.used[i] = max(self.used[i], self.in_use(d) - self.before[i])

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def gpus():
    """How many GPUs this run may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([x for x in visible.split(",") if x.strip()])
    try:
        p = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except OSError:
        return 0
    return len(re.findall(r"^GPU ", p.stdout, re.M))


# ── the sides ──────────────────────────────────────────────────────────────────────────────────────────────────
def finished(args, env, limit):
    """Runs a command and all that it starts, for at most `limit` seconds: (exit code or None, output, errors)."""
    p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=dict(os.environ, **(env or {})), start_new_session=True)
    try:
        out, err = p.communicate(timeout=limit)
        return p.returncode, out, err
    except subprocess.TimeoutExpired:
        return None, "", ""
    finally:  # also when this process is told to end
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()


def measured(args, world, env=None, limit=600):
    """Runs a command; (its output, or None with what it said last; the driver's figures)."""
    with Driver(world) as d:
        code, out, err = finished(args, env, limit)
    memory = {"processes": max(d.processes), "used": max(d.used), "processes_least": min(d.processes)}
    if code:
        return None, {"failed": "exit %d: %s" % (code, " | ".join((err + out).strip().splitlines()[-3:]))[-600:]}, memory
    if code is None:
        return None, {"failed": "not done after %d s" % limit}, memory
    return out, None, memory


def tokens(folder, vocab):
    """A file of random tokens, the same every time."""
    path = os.path.join(folder, "random-%d-%s.bin" % (vocab, "uint16" if vocab <= 65536 else "uint32"))
    if not os.path.exists(path):
        data = array.array("H" if vocab <= 65536 else "I", random.Random(1).choices(range(vocab), k=1 << 20))
        with open(path, "wb") as f:
            data.tofile(f)
    return path


def program(o, w, work, steps):
    return [os.path.join(os.path.abspath(o.build), w.name), "--data", tokens(work, w.shape.vocab), "--steps", str(o.warmup + steps)]


def ours(o, w, work):
    log = os.path.join(work, "log.jsonl")
    if os.path.exists(log):
        os.unlink(log)
    out, failed, memory = measured(program(o, w, work, o.steps) + ["--log", log, *o.options], w.world, limit=o.limit)
    if failed:
        return failed
    with open(log) as f:
        steps = [s for s in map(json.loads, f) if "loss" in s][o.warmup:]
    seconds = statistics.median(s["seconds"] for s in steps)
    arena = re.search(r"^arena +([\d,]+) B predicted, ([\d,]+) B allocated", out, re.M)
    r = {"workload": w.name, "ms": 1e3 * seconds, "tok_s": w.tokens / seconds, "ms_all": [round(1e3 * s["seconds"], 3) for s in steps], "loss": steps[-1]["loss"],
         "arena_predicted": int(arena[1].replace(",", "")), "arena_allocated": int(arena[2].replace(",", "")), "driver": memory}
    about = os.path.join(o.build, w.name + ".json")
    if os.path.exists(about):
        with open(about) as f:
            told = json.load(f)
        p = told["prediction"]
        r["build_seconds"], r["ms_predicted"] = told["build_seconds"], p["step_us"] / 1e3
        r["process_predicted"] = p["arena_bytes"] + sum(x["bytes"] for x in p["library"])
    return r


def pytorch(o, w, work):
    args = [sys.executable, os.path.join(HERE, "torch_fsdp2.py"), w.name,
            "--steps", str(o.steps), "--warmup", str(o.warmup), *(["--deterministic"] if o.torch_deterministic else [])]
    out, failed, memory = measured(args, w.world, {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if o.torch_deterministic else None, o.limit)
    return failed or dict(json.loads(out.strip().splitlines()[-1]), driver=memory)


def floor(o, w, work):
    out, failed, _ = measured([sys.executable, os.path.join(HERE, "floor.py"), w.name], 1, limit=o.limit)
    return failed or json.loads(out.strip().splitlines()[-1])


def profile(o, w, work):
    """Where our step's time goes, told for every rank; the first one's figures."""
    lib = build_tracer(os.path.abspath(o.build))
    if not lib:
        raise SystemExit("no CUPTI: install the toolkit's CUPTI, or `pip install nvidia-cuda-cupti`")
    found = os.path.join(work, w.name)
    libraries = [os.path.join(d, "lib") for d in packages()] + ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"]
    env = {"SC_CUPTI": found, "CUDA_INJECTION64_PATH": lib, "LD_PRELOAD": lib, "LD_LIBRARY_PATH": ":".join([os.environ.get("LD_LIBRARY_PATH", "")] + libraries)}
    _, failed, _ = measured(program(o, w, work, min(o.steps, TRACED)) + o.options, w.world, env, o.limit)
    if failed:
        return failed
    first = {"failed": "no graph was launched"}
    for f in sorted(glob.glob(found + ".*")):
        text, figures = cupti_report.report(f, o.top, o.warmup)
        if figures:
            print("%s: %s" % (w.name, text if "failed" in first else text.splitlines()[0]), flush=True)
            if "failed" in first:
                first = figures
                if o.sequence:
                    with open(o.sequence, "w") as out:
                        out.write(cupti_report.sequence(f) + "\n")
        os.unlink(f)
    return first


SIDES = {"floor": floor, "torch": pytorch, "ours": ours, "profile": profile}


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────
def best(results):
    """The fastest of the rounds that ended well, else what failed."""
    good = [r for r in results if "tok_s" in r]
    return max(good, key=lambda r: r["tok_s"]) if good else (results or [{}])[-1]


def cell(value, text):
    return text % value if value is not None else "-"


def number(value):
    return format(round(value), ",") if value is not None else "-"


def mib(value):
    return format(round(value / MIB), ",") if value is not None else "-"


CLASSES = ["matmul", "attention", "pointwise", "norm", "loss", "sums", "optimizer", "rope", "embedding", "copies"]


def where(rows):
    """Lines of the profiles' tables: where a step's time is, and by what it is longer than the floor. What communication hides behind compute
    does not count."""
    out = ["| ms a step | traced step | %s | other | communication, hidden | exposed | nothing runs |" % " | ".join(CLASSES), "|---|" + "---|" * (len(CLASSES) + 5)]
    gap = ["| ms a step | step - floor | products | attention | %s | other | exposed | nothing runs |" % " | ".join(CLASSES[2:]), "|---|" + "---|" * (len(CLASSES) + 4)]
    for name, sides in rows.items():
        for p in [p for p in sides.get("profile", []) if "ms" in p]:
            ms, kinds = p["ms"], p["classes"]
            row = [kinds.get(k, 0) for k in CLASSES]
            row.append(round(ms["compute"] - sum(row), 2) or 0)  # not -0
            rest = [ms["exposed"], ms["idle"]]
            out.append("| %s | %.2f | %s | %.2f | %s |" % (name, ms["span"], " | ".join("%.2f" % x for x in row), ms["communication"] - ms["exposed"], " | ".join("%.2f" % x for x in rest)))
            f = best(sides.get("floor", []))
            if "products_ms" in f:
                row[0], row[1] = row[0] - f["products_ms"], row[1] - (f["ms"] - f["products_ms"])
                gap.append("| %s | %.2f | %s |" % (name, ms["span"] - f["ms"], " | ".join("%.2f" % x for x in row + rest)))
    return [""] * (len(out) > 2) + out * (len(out) > 2) + [""] * (len(gap) > 2) + gap * (len(gap) > 2)


def tables(rows):
    """Lines of the tables: speed, memory, profiles."""
    speed = ["| workload | ours tok/s a GPU | PyTorch | ours / PyTorch | floor | ours / floor | PyTorch / floor | ours ms | simulated ms |", "|---|" + "---|" * 8]
    memory = ["| workload, MiB a GPU | arena predicted | allocated | process predicted | driver: process | driver: in use | PyTorch active | reserved | in use |", "|---|" + "---|" * 8]
    for name, sides in rows.items():
        u, t, f = (best(sides.get(k, [])) for k in ("ours", "torch", "floor"))
        a, b, c = u.get("tok_s"), t.get("tok_s"), f.get("tok_s")
        speed.append("| %s | %s | %s | %s | %s | %s | %s | %s | %s |" % (name, number(a), number(b), cell(a and b and a / b, "%.3f"), number(c), cell(a and c and a / c, "%.3f"),
                                                                        cell(b and c and b / c, "%.3f"), cell(u.get("ms"), "%.2f"), cell(u.get("ms_predicted"), "%.2f")))
        d = u.get("driver", {})
        memory.append("| %s | %s | %s | %s | %s | %s | %s | %s | %s |" % (name, mib(u.get("arena_predicted")), mib(u.get("arena_allocated")), mib(u.get("process_predicted")),
                                                                         mib(d.get("processes") or None), mib(d.get("used") or None), mib(t.get("active")), mib(t.get("reserved")), mib(t.get("device_used"))))
    return speed + [""] + memory + where(rows)


def write(o, rows, lines):
    stem = os.path.join(ROOT, "bench", "results", "%s-%s" % (datetime.date.today().isoformat(), o.write))
    results = [r for sides in rows.values() for rs in sides.values() for r in rs]
    device = next((r["device"] for r in results if "device" in r), "unknown GPU")
    peer = next((r["torch"] for r in results if "torch" in r), "?")
    with open(stem + ".json", "w") as f:
        json.dump(rows, f, indent=1)
    with open(stem + ".md", "w") as f:
        f.write("# %s\n\n%s. Our step beside PyTorch's (%s, FSDP2, compiled) and the floor, in turn on one machine (bench/gpu.py): the best of the\n"
                "rounds, the median of the steps after warming up; tok/s are one GPU's. Floor: matrix products and the fastest attention alone.\n\n%s\n"
                % (o.write, device, peer, "\n".join(lines)))
    print("written: %s.md, .json" % stem)


# ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def left(o):
    """Seconds until --budget is spent."""
    return o.budget - (time.time() - o.began)


def measure(o, w, side, work, rows):
    limit, o.limit = o.limit, max(1, min(o.limit, left(o)))
    r = SIDES[side](o, w, work)
    o.limit = limit
    rows.setdefault(w.name, {}).setdefault(side, []).append(r)
    if side != "profile" or "failed" in r:
        print("%s, %s: %s" % (w.name, side, r.get("failed") or "%.2f ms, %s tok/s a GPU" % (r["ms"], number(r["tok_s"]))), flush=True)
    if o.json:
        with open(o.json, "w") as f:
            json.dump(rows, f)


def run(o):
    have, given = gpus(), [workload(n) for n in o.names]
    names = [w.name for w in given] or [n for n in ROWS if workload(n).world <= have and os.path.exists(os.path.join(o.build, n))]
    if not names:
        raise SystemExit("no workload of %s fits the %d GPUs here: build some with `python3 bench/gpu.py build`" % (o.build, have))
    rows, sides = {}, o.sides.split(",")
    with tempfile.TemporaryDirectory() as work:
        for w in map(workload, names):
            if w.world > have and sides != ["floor"]:
                print("%s: left out, %d GPUs here" % (w.name, have), flush=True)
            else:
                for k, side in [(k, s) for k in range(o.rounds) for s in sides if not (k and s == "floor")]:
                    if left(o) < o.least:
                        print("%s, %s: left out, %.0f s left" % (w.name, side, left(o)), flush=True)
                    else:
                        measure(o, w, side, work, rows)
    if rows:
        show(o, rows)
    return 1 if any("failed" in r for sides in rows.values() for rs in sides.values() for r in rs) else 0


def show(o, rows):
    lines = tables(rows)
    print("\n".join(lines))
    if o.write:
        write(o, rows, lines)


def table(o):
    rows = {}
    for path in o.files:
        with open(path) as f:
            for name, sides in json.load(f).items():
                for side, results in sides.items():
                    rows.setdefault(name, {}).setdefault(side, []).extend(results)
    show(o, {n: rows[n] for n in sorted(rows, key=lambda n: ROWS.index(n) if n in ROWS else len(ROWS))})


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    b = commands.add_parser("build")
    b.add_argument("names", nargs="*")
    b.add_argument("--shardc", default=os.path.join(ROOT, "build", "shardc"))
    b.add_argument("-o", "--output", default=os.path.join(ROOT, "build", "gpu-bench"))
    b.add_argument("--arch", help="what GPU code is compiled for, where not the profile's")
    b.add_argument("--device", default="h200", help="the profile that it is built for, and that predicts")
    r = commands.add_parser("run")
    r.add_argument("names", nargs="*")
    r.add_argument("--build", default=os.path.join(ROOT, "build", "gpu-bench"))
    r.add_argument("--sides", default="floor,torch,ours", help="which, in which order; profile: our side under CUPTI")
    r.add_argument("--steps", type=int, default=20, help="timed")
    r.add_argument("--warmup", type=int, default=5, help="steps before those")
    r.add_argument("--rounds", type=int, default=1, help="how often the sides take turns")
    r.add_argument("--torch-deterministic", action="store_true", help="PyTorch with deterministic algorithms")
    r.add_argument("--options", default="", help="further options of our program, one string")
    r.add_argument("--top", type=int, default=30, help="lines of a profile's tables")
    r.add_argument("--sequence", help="profile: write one step's kernels in order there")
    r.add_argument("--json", help="every figure, to a file, after every measurement")
    r.add_argument("--limit", type=float, default=600, help="seconds that one side of one workload may take")
    r.add_argument("--budget", type=float, default=1e9, help="seconds for all")
    r.add_argument("--least", type=float, default=0, help="begin nothing with fewer seconds left")
    t = commands.add_parser("table")
    t.add_argument("files", nargs="+", help="what --json wrote")
    for c in (r, t):
        c.add_argument("--write", metavar="NAME", help="keep the tables in bench/results/DATE-NAME.md, the figures in .json")
    o = a.parse_args()
    if o.command != "run":
        return build(o) if o.command == "build" else table(o)
    o.options, o.began = o.options.split(), time.time()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return run(o)


if __name__ == "__main__":
    sys.exit(main())
