"""Steps of many workloads on one GPU, what a device profile is fitted to, and how far its predictions are from what was measured.

  python3 bench/gpu.py build --device h100 -o DIR NAME...                   # where the compiler is: the programs of both sets
  python3 bench/times.py measure DIR -o OUT --fit NAME... --judge NAME...   # where the GPU is: steps.json, traces.jsonl.xz
  python3 bench/times.py fit OUT --mhz 1980 --raw RAW... -o kernels.lua     # the table `kernels` of a profile
  python3 bench/times.py judge --device h100 STEPS...                       # predicted beside measured; STEPS: steps.json or a .csv
  python3 bench/times.py tasks NAME... --only fp8 -o TASKS                  # kernels of workloads, for sc_calibrate
  python3 bench/times.py attention PROFILE --only hopper -o TASKS           # attention of the sizes that a profile has, for sc_calibrate
  python3 bench/times.py merge PROFILE RAW... --only hopper                 # what it measured into the profile, in place of points of those sizes
  python3 bench/times.py cpu -o mine.lua                                    # a profile of the CPU at hand, fitted and judged; minutes

Only the fit set is traced, and only traces and sc_calibrate's --raw files go into a profile. `measure` runs a workload for some seconds and
takes the median of the later two thirds of its steps: a GPU that was idle runs its first ones at higher clocks. In a trace an event's time is
that until the next one begins, less what CUPTI adds for a kernel. Products and attention are given at --mhz, the highest clock, by the mean
clock of the workload's steps; other kernels are bound by memory and are left as they are.

Relies on: gpu.py, workloads.py, cupti_report.py, build/shardc. Relied on by: people who fit and judge device profiles."""
import argparse
import collections
import concurrent.futures
import ctypes
import io
import json
import lzma
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import cupti_report
import gpu
from workloads import workload

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
CUPTI_US = 0.25  # what tracing adds for a kernel in a graph: 0.19 to 0.30 us, by steps of 400 to 970 kernels with and without


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────────────
class Clocks(threading.Thread):
    """Samples of (seconds, MHz, W) by NVML, every 30 ms."""

    def __init__(self):
        super().__init__(daemon=True)
        self.samples, self.began = [], time.time()
        self.nvml, self.device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        self.nvml.nvmlInit_v2()
        self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def now(self):
        return time.time() - self.began

    def ask(self, call, *args):
        x = ctypes.c_uint()
        return x.value if getattr(self.nvml, call)(self.device, *args, ctypes.byref(x)) == 0 else 0

    def run(self):
        while True:
            self.samples.append((round(self.now(), 3), self.ask("nvmlDeviceGetClockInfo", 1), self.ask("nvmlDeviceGetPowerUsage") / 1e3))
            time.sleep(0.03)

    def between(self, begin, end):
        """(mean MHz, most W)"""
        found = [s for s in self.samples if begin <= s[0] < end and s[1] > 1000]
        return (statistics.mean(s[1] for s in found), max(s[2] for s in found)) if found else (0, 0)


def about(o, name):
    """What gpu.py says of a program that it has built."""
    with open(os.path.join(o.build, name + ".json")) as f:
        return json.load(f)


def command(o, name, work, seconds):
    w, us = workload(name), about(o, name)["prediction"]["step_us"]
    steps = int(max(12, min(400, seconds * 1e6 / us)))
    return [os.path.join(os.path.abspath(o.build), name), "--data", gpu.tokens(work, w.shape.vocab), "--steps", str(steps),
            "--data-dtype", "uint16" if w.shape.vocab <= 65536 else "uint32"]


def steps_of(o, name, work, clocks):
    log = os.path.join(work, "log.jsonl")
    if os.path.exists(log):
        os.unlink(log)
    p = subprocess.run(command(o, name, work, o.seconds) + ["--log", log], capture_output=True, text=True, timeout=120)
    ended = clocks.now()
    if p.returncode:
        return {"failed": (p.stderr + p.stdout)[-500:]}
    with open(log) as f:
        ms = [1e3 * s["seconds"] for s in map(json.loads, f) if "loss" in s]
    late = ms[len(ms) // 3:]
    mhz, watts = clocks.between(ended - 0.35 - sum(late) / 1e3, ended - 0.4)  # ending takes a program some 0.35 s
    return {"device": about(o, name)["device"], "median": statistics.median(late), "ms": [round(x, 4) for x in ms], "mhz": mhz, "watts": watts}


def trace_of(o, name, work):
    """[{launches, span, sequence: [[program, event, stream, kind, kernel, start us, duration us]]}], a graph each."""
    lib = gpu.build_tracer(os.path.abspath(o.build))
    found = os.path.join(work, "cupti")
    libraries = [os.path.join(d, "lib") for d in gpu.packages()] + ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"]
    env = dict(os.environ, SC_CUPTI=found, CUDA_INJECTION64_PATH=lib, LD_PRELOAD=lib,
               LD_LIBRARY_PATH=":".join([os.environ.get("LD_LIBRARY_PATH", "")] + libraries))
    subprocess.run(command(o, name, work, o.seconds), capture_output=True, env=env, timeout=120, check=True)
    out = []
    for path in [os.path.join(work, f) for f in os.listdir(work) if f.startswith("cupti.")]:
        trace = cupti_report.read(path)
        os.unlink(path)
        graphs = collections.defaultdict(lambda: collections.defaultdict(list))
        for r in trace.records:
            if r.node:
                graphs[r.graph][r.launch].append(r)
        for launches in graphs.values():
            runs = [launches[k] for k in sorted(launches)]
            runs = runs[len(runs) // 3:-1] if len(runs) > 8 else runs[1:]
            if len(runs) < 3:
                continue
            nodes = collections.defaultdict(list)
            for run in runs:
                begin = min(r.start for r in run)
                for r in run:
                    nodes[r.node].append(((r.start - begin) / 1e3, (r.end - r.start) / 1e3))
            sequence = []
            for r in runs[-1]:
                e = trace.events.get(r.node)
                times = [round(statistics.median(x[k] for x in nodes[r.node]), 3) for k in (0, 1)]
                sequence.append([e.program if e else "", e.id if e else "", r.stream, r.kind, cupti_report.plain(r.name)[:80], *times])
            out.append({"launches": len(runs), "sequence": sequence})
    return out


def measure(o):
    os.makedirs(o.output, exist_ok=True)
    clocks, runs = Clocks(), {}
    clocks.start()
    with tempfile.TemporaryDirectory() as work:
        for name in [n for pair in zip(o.fit + [None] * len(o.judge), o.judge + [None] * len(o.fit)) for n in pair if n]:
            runs[name] = steps_of(o, name, work, clocks)
            print(name, {k: v for k, v in runs[name].items() if k != "ms"}, flush=True)
            with open(os.path.join(o.output, "steps.json"), "w") as f:
                json.dump({"fit": o.fit, "judge": o.judge, "runs": runs}, f)
        for name in o.fit:
            graphs = trace_of(o, name, work)
            print("%s: %d graphs traced" % (name, len(graphs)), flush=True)
            with lzma.open(os.path.join(o.output, "traces.jsonl.xz"), "at") as f:
                f.write(json.dumps({"name": name, "graphs": graphs}) + "\n")
    return 0


# ── the CPU at hand ──────────────────────────────────────────────────────────────────────────────────────────────────
CPU_FIT = ["gpt2 layers=2 dim=128 heads=4 vocab=512 batch=4 seq=64", "gpt2 layers=2 dim=384 heads=6 vocab=2048 batch=4 seq=128",
           "gpt2 layers=2 dim=768 heads=12 vocab=8192 batch=2 seq=256", "llama3 layers=2 dim=256 heads=4 kv_heads=2 ffn=768 vocab=1024 batch=4 seq=128",
           "llama3 layers=2 dim=512 heads=8 kv_heads=2 ffn=1536 vocab=4096 batch=2 seq=256", "transformer layers=2 dim=256 heads=4 vocab=2048 batch=8 seq=64",
           "gpt2 layers=2 dim=256 heads=4 vocab=1024 batch=4 seq=128 matmul=fp8", "llama3 layers=2 dim=384 heads=6 kv_heads=2 ffn=1024 vocab=1024 batch=4 seq=64 matmul=fp8"]
CPU_JUDGE = ["gpt2 layers=3 dim=256 heads=4 vocab=1024 batch=8 seq=64", "gpt2 layers=4 dim=512 heads=8 vocab=4096 batch=2 seq=128",
             "llama3 layers=3 dim=384 heads=6 kv_heads=2 ffn=1024 vocab=2048 batch=4 seq=96", "transformer layers=3 dim=384 heads=6 vocab=1024 batch=4 seq=64",
             "llama3 layers=3 dim=256 heads=4 kv_heads=2 ffn=768 vocab=1024 batch=4 seq=128 matmul=fp8"]


def cpu_model(text):
    name, *options = text.split()
    return [os.path.join(gpu.ROOT, "models", name + ".lua"), *[x for o in options for x in ("--set", o)]]


def cpu_run(text, work, device, *more, steps=8):
    """Median seconds of a step, from a program that is built for the profile and run here."""
    binary, log, vocab = os.path.join(work, "model"), os.path.join(work, "log"), int(re.search(r"vocab=(\d+)", text)[1])
    shardc("build", *cpu_model(text), "--device", device, "-o", binary)
    if os.path.exists(log):
        os.unlink(log)
    subprocess.run([binary, "--data", gpu.tokens(work, vocab), "--data-dtype", "uint16", "--steps", str(steps), "--log", log, "--quiet", *more], check=True)
    with open(log) as f:
        return statistics.median([s["seconds"] for s in map(json.loads, f) if "loss" in s][2:])


def cpu_trace(path):
    """{(program, event): median us}"""
    found = collections.defaultdict(list)
    with open(path) as f:
        for line in f:
            e = json.loads(line.strip().rstrip(",")) if line.startswith("{") else {}
            if e.get("ph") == "X":
                found[(e["args"].get("program", "micro"), e["args"]["event"])].append(e["dur"])
    return {k: statistics.median(v[len(v) > 2:]) for k, v in found.items()}


def cpu(o):
    found = collections.defaultdict(list)
    with open(os.path.join(gpu.ROOT, "compiler", "devices", "cpu.lua")) as f:
        profile = f.read()
    with tempfile.TemporaryDirectory() as work:
        for text in CPU_FIT:
            trace = os.path.join(work, "trace")
            cpu_run(text, work, "cpu", "--trace", trace)
            known = known_costs([*cpu_model(text), "--device", "cpu"])
            for event, us in cpu_trace(trace).items():
                if event in known:
                    found[known[event]].append(us)
            print("traced: " + text, flush=True)
        keyed, curves = tables_of(found)
        profile = re.sub(r'name = "cpu"', 'name = "mine"', profile)
        profile = re.sub(r'source = ".*",', 'source = "measured %s on this machine",' % time.strftime("%Y-%m-%d"), profile)
        profile = re.sub(r"kernels_off = \d+,", "kernels_off = 0.25,", profile)
        with open(o.output, "w") as f:
            f.write(profile.rstrip().rstrip("}") + "  kernels = { -- { bytes, us } or { variant, flops, bytes, sizes..., us }\n")
            write_kernels(f, keyed, curves)
            f.write("  },\n}\n")
        print("| model | measured ms | predicted | by the profile that shardc brings |\n|---|---|---|---|")
        for text in CPU_JUDGE:
            ms = 1e3 * cpu_run(text, work, o.output)
            mine, brought = (json.loads(shardc("predict", *cpu_model(text), "--device", d, "--format", "json"))["prediction"]["step_us"] / 1e3 for d in (o.output, "cpu"))
            print("| %s | %.2f | %.2f (%+.0f %%) | %.2f (%+.0f %%) |" % (text, ms, mine, 100 * (mine / ms - 1), brought, 100 * (brought / ms - 1)), flush=True)
    return 0


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def shardc(*args):
    return subprocess.run([os.path.join(gpu.ROOT, "build", "shardc"), *args], stdout=subprocess.PIPE, check=True, text=True).stdout


def known_costs(model):
    """{(program, event): (op, variant, sizes, flops, bytes)}: calibrate tells those of library kernels, inspect of all others."""
    out = {}
    for p in json.loads(shardc("inspect", *model, "--format", "json"))["programs"]:
        for e in p["events"]:
            if e["stream"] == "compute":
                out[(p["name"], e["id"])] = ("fused", "", (), 0, round(e["bytes"]))
    for line in shardc("calibrate", *model).splitlines():
        p = line.split("|")
        for event in p[9].split():
            out[tuple(event.split(":"))] = (p[0], p[1], tuple(int(x) for x in p[2].split(",")) if p[2] else (), int(p[3]), int(p[4]))
    return out


def need_same_plan(path, runs, device):
    """A step that was measured is the plan of the profile that it was built for, and of no other."""
    for name, run in runs.items():
        if run.get("device", device) != device:
            sys.exit("%s: %s was built for %s: give --device %s, or build it again with `gpu.py build --device %s`" % (path, name, run["device"], run["device"], device))


def costs(name, device, work):
    w = workload(name)
    return known_costs([gpu.model_of(w, work), *w.settings(), "--world", str(w.world), "--device", device])


def event_times(graph, shared):
    """{(program, event): us}: until the next event of the stream begins; with copies beside it (shared) its own kernels alone."""
    stream = collections.Counter(s[2] for s in graph["sequence"]).most_common(1)[0][0]
    events = []
    for program, event, _, _, _, begin, us in (s for s in graph["sequence"] if s[2] == stream):
        if events and events[-1][0] == (program, event):
            events[-1][2], events[-1][3] = begin + us, events[-1][3] + 1
        else:
            events.append([(program, event), begin, begin + us, 1])
    ends = [e[1] for e in events[1:]] + [events[-1][2]]
    return {e[0]: max((e[2] if shared else end) - e[1] - (0 if shared else CUPTI_US * e[3]), 0.6) for e, end in zip(events, ends)}


def smooth(points, step=0.15):
    """Points of a curve, [(bytes, us)] with both rising: neighbours within 2^step are one; where times fall, their mean (pool adjacent
    violators)."""
    groups = []
    for x in sorted(points):
        if groups and x[0] <= groups[-1][0][0] * 2 ** step:
            groups[-1].append(x)
        else:
            groups.append([x])
    blocks = []
    for g in groups:
        mean = [math.exp(statistics.fmean(math.log(max(v, 1e-3)) for v in column)) for column in zip(*g)]
        blocks.append([mean[1], 1, [mean[0]]])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            us, n, x = blocks.pop()
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + us * n) / (blocks[-1][1] + n), blocks[-1][1] + n, blocks[-1][2] + x]
    return [(round(b), us) for us, _, x in blocks for b in x]


def tables_of(found):
    """{op: {(variant, sizes): (flops, bytes, us)}} of kernels with sizes, {(op, variant): [(bytes, us)]} of the others."""
    keyed, curves = collections.defaultdict(dict), collections.defaultdict(list)
    for (op, variant, sizes, flops, size), us in found.items():
        if sizes:
            keyed[op][(variant, sizes)] = (flops, size, statistics.median(us))
        else:
            curves[(op, variant)].append((size, statistics.median(us)))
    return keyed, curves


def write_kernels(f, keyed, curves):
    for op in sorted(set(keyed) | {op for op, _ in curves}):
        f.write("    %s = {\n" % op)
        points = ['{ "%s", %d, %d, %s, %.2f },' % (variant, flops, size, ", ".join(map(str, sizes)), us)
                  for (variant, sizes), (flops, size, us) in sorted(keyed.get(op, {}).items())]
        for variant in sorted(v for o, v in curves if o == op and not keyed.get(op)):
            points += ["{ %s%d, %.2f }," % ('"%s", ' % variant if variant else "", *p) for p in smooth(curves[(op, variant)])]
        lines = [""]
        for p in points:
            if len(lines[-1]) + len(p) > 190:
                lines.append("")
            lines[-1] += " " * bool(lines[-1]) + p
        f.writelines("      %s\n" % line for line in lines)
        f.write("    },\n")


PEAK = {"bf16": 989e12, "fp16": 989e12, "fp8_e4m3": 1979e12, "fp8_e5m2": 1979e12, "fp32": 67e12}  # as profiles have it


def at_full_clock(us, mhz, highest, op, variant, flops):
    """Microseconds at the highest clock of what took `us` at `mhz`: what arithmetic takes grows as the clock falls, the rest does not
    (device_event_clocked_us in compiler/cost/duration.c)."""
    busy = 0.02 if " own" in variant else 0.45 if op.startswith("attention") else 0.85
    slower, clocked = highest / mhz, flops / PEAK[dtype_of(variant)] / busy * 1e6
    return us - clocked * (slower - 1) if us >= clocked * slower else us / slower


def kept_points(path):
    """{(op, variant, sizes): (flops, bytes, us)} and {(op, variant): [(bytes, us)]} of a profile's table `kernels`."""
    keyed, curves, op = {}, collections.defaultdict(list), None
    with open(path) as f:
        for line in f.read().split("kernels = { --")[1].splitlines():
            m = re.match(r'    (?:\["(.+)"\]|(\w+)) = \{', line)
            op = (m[1] or m[2]) if m else op
            for variant, numbers in re.findall(r'\{ (?:"([^"]*)", )?([\d., e+-]+) \}', line):
                x = [float(n) for n in numbers.split(", ")]
                if variant and len(x) > 2:
                    keyed[(op, variant, tuple(int(n) for n in x[2:-1]))] = (x[0], x[1], x[-1])
                else:
                    curves[(op, variant)].append((x[0], x[1]))
    return keyed, curves


def ideal_us(variant, flops, size, bandwidth=3.01e12, product_us=6):
    return max(flops / PEAK[dtype_of(variant)], size / bandwidth) * 1e6 + product_us


def told_by(points, variant, sizes, flops, size):
    """What among_points (compiler/cost/duration.c) says of a kernel by other points: [(log2 of sizes, flops, bytes, us)]."""
    at, total, weights = [math.log2(max(n, 1)) for n in sizes], 0, 0
    for key, f, b, us in points:
        far = sum((x - y) ** 2 for x, y in zip(at, key))
        w = 1 / (far * far + 1e-9)
        total, weights = total + w * math.log(us / ideal_us(variant, f, b)), weights + w
    return math.exp(total / weights) * ideal_us(variant, flops, size) if weights else 0


def thinned(keyed, sure):
    """Without points that the others tell to within 2.5 %; those of `sure`, the traced ones, stay."""
    out = collections.defaultdict(dict)
    for op, points in keyed.items():
        by_variant = collections.defaultdict(list)
        for (variant, sizes), (flops, size, us) in sorted(points.items(), key=lambda p: ((op, *p[0]) not in sure, -p[1][0])):
            known = by_variant[variant]
            if (op, variant, sizes) not in sure and known and abs(told_by(known, variant, sizes, flops, size) / us - 1) < 0.025:
                continue
            known.append(([math.log2(max(n, 1)) for n in sizes], flops, size, us))
            out[op][(variant, sizes)] = (flops, size, us)
    return out


def dtype_of(variant):
    return re.split("[*> ]", variant)[0]


def in_step(keyed, alone, sure):
    """{(op, dtype): how many times as long kernels take in a step as among their like}: the median of those measured in both."""
    both = collections.defaultdict(list)
    for (op, variant, sizes), (_, _, us) in alone.items():
        if (op, variant, sizes) in sure:
            both[(op, dtype_of(variant))].append(keyed[op][(variant, sizes)][2] / us)
    return {k: statistics.median(x) for k, x in both.items() if len(x) >= 5}


def fit(o):
    path = os.path.join(o.folder, "steps.json")
    with open(path) as f:
        runs = json.load(f)["runs"]
    need_same_plan(path, runs, o.device)
    found = collections.defaultdict(list)
    with lzma.open(os.path.join(o.folder, "traces.jsonl.xz"), "rt") as traces, tempfile.TemporaryDirectory() as work:
        for t in map(json.loads, traces):
            w, known = workload(t["name"]), costs(t["name"], o.device, work)
            for graph in t["graphs"]:
                for event, us in event_times(graph, w.offload or w.activations).items():
                    if event not in known or known[event][0] in ("fetch", "offload"):
                        continue
                    op, variant, sizes, flops, size = known[event]
                    if sizes and (w.offload or w.activations):
                        continue  # copies beside them slow them down
                    found[(op, variant, sizes, flops, size)].append(
                        at_full_clock(us, runs[t["name"]]["mhz"], o.mhz, op, variant, flops) if sizes else us)
    keyed, curves = tables_of(found)
    sure = {(op, *key) for op, points in keyed.items() for key in points}
    ranges = {curve: (min(c)[0], max(c)[0]) for curve, c in curves.items()}

    def outside(curve, size):
        return not 0.7 * ranges.get(curve, (1e30, 0))[0] < size < 1.4 * ranges.get(curve, (0, 0))[1]
    alone = {}
    for p in (line.strip().split("|") for path in o.raw for line in open(path)):
        op = p[0][7:]
        if not p[0].startswith("kernel ") or op in ("fetch", "offload"):
            continue
        size, us = int(p[4]), float(p[5])
        if p[2] and float(p[6]) > 0:
            us = at_full_clock(us, float(p[6]), o.mhz, op, p[1], float(p[3]))
            alone[(op, p[1], tuple(int(x) for x in p[2].split(",")))] = (int(p[3]), size, us)
        elif not p[2] and (op == "fused" or outside((op, p[1]), size)):
            curves[(op, p[1])].append((size, us))
    times = in_step(keyed, alone, sure)
    print("in a step kernels take so many times as long as among their like: " + ", ".join("%s %s %.3f" % (*k, x) for k, x in times.items()))
    for (op, variant, sizes), (flops, size, us) in alone.items():
        dtype = dtype_of(variant).replace("fp16", "bf16")
        keyed[op].setdefault((variant, sizes), (flops, size, us * times.get((op, dtype), times.get(("matmul", dtype), 1))))
    if o.keep:
        points, others = kept_points(o.keep)
        for (op, variant, sizes), x in points.items():
            keyed[op].setdefault((variant, sizes), x)
        for k, curve in others.items():
            curves[k] += [x for x in curve if k not in ranges and not curves[k] or outside(k, x[0]) and k in ranges]
    curves = {k: curve for k, curve in curves.items() if k[0] not in COLLECTIVES}
    with open(o.output, "w") as f:
        write_kernels(f, thinned(keyed, sure), curves)
    return 0


# ── kernels that were measured alone ─────────────────────────────────────────────────────────────────────────────────
def attention_settings(variant, sizes):
    """Options of attention.lua, and of the command, that a point of a profile is told by; None: there are none."""
    dtype, *words = variant.split()
    batch, heads, kv_heads, seq, reach, width = sizes
    if {"sinks", "bias", "widths"} & set(words) or dtype == "fp32":
        return None
    causal, window = "causal" in words, "window" in words
    before = reach if causal else (reach + 1) // 2
    sets = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "width": width, "precision": dtype, "causal": causal, "documents": "documents" in words,
            "dropout": 0.1 * ("dropout" in words), "softcap": 50.0 * ("softcap" in words), "before": before * window}
    more = ["--document-length", str(reach)] if "documents" in words and reach < seq else []
    return [x for k, v in sets.items() for x in ("--set", "%s=%s" % (k, str(v).lower()))] + more


def attention(o):
    """A kernel that has another name on the device than the profile's point is listed by the device's."""
    points = kept_points(o.profile)[0]
    wanted = sorted({(variant, sizes) for op, variant, sizes in points if op.startswith("attention")})
    settings = [attention_settings(*w) for w in wanted] + [[x for kv in also.split() for x in ("--set", kv)] for also in o.also]
    settings = list(dict.fromkeys(tuple(x) for x in settings if x))
    model = os.path.join(gpu.ROOT, "bench", "attention.lua")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        listed = pool.map(lambda x: shardc("calibrate", model, "--device", o.device or o.profile, *x), settings)
    lines = {}
    for line in (line for text in listed for line in text.splitlines()):
        op, variant, sizes = line.split("|")[:3]
        if op.startswith("attention") and re.search(o.only, variant):
            lines.setdefault((op, variant, sizes), line)
    with open(o.output, "w") as f:
        f.writelines(line + "\n" for line in lines.values())
    print("%d tasks" % len(lines))
    return 0


def tasks(o):
    """Kernels of workloads whose op and variant match."""
    lines = {}
    with tempfile.TemporaryDirectory() as work:
        for w in map(workload, o.names):
            listed = shardc("calibrate", gpu.model_of(w, work), *w.settings(), "--world", str(w.world), "--device", o.device)
            for line in listed.splitlines():
                if re.search(o.only, " ".join(line.split("|")[:2])):
                    lines.setdefault("|".join(line.split("|")[:5]), line)
    with open(o.output, "w") as f:
        f.writelines(line + "\n" for line in lines.values())
    print("%d tasks" % len(lines))
    return 0


class Rates:
    """What derive_point (compiler/devices/device.c) scales by, as a profile's file has it."""

    def __init__(self, path):
        with open(path) as f:
            text = f.read().split("kernels = { --")[0]
        self.flops = {k: float(x) for k, x in re.findall(r"(\w+) = ([\d.e+]+)", re.search(r"\n  flops = \{(.*?)\}", text)[1])}
        self.bandwidth, self.launch_us, self.product_us = (float((re.search(r"\b%s = ([\d.e+]+)" % k, text) or [0, 0])[1])
                                                           for k in ("memory_bandwidth", "launch_us", "product_us"))


def as_here(us, variant, sizes, flops, size, there, here):
    """Microseconds of the profile `here` from which derive_point makes, for the profile `there`, what was measured there."""
    if sizes:
        line = [max(flops / x.flops[dtype_of(variant)], size / x.bandwidth) * 1e6 + here.product_us for x in (here, there)]
        return us * line[0] / line[1]
    streamed = min(max((size - (20 << 20)) / (60 << 20), 0), 1)
    return here.launch_us + max(us - here.launch_us, 0) / (1 - streamed + streamed * here.bandwidth / there.bandwidth)


def joules(raw, text, bandwidths):
    """{dtype: joules of a FLOP in 8 bits} by what bf16 took beside it (lines `sustained`): each draws the limit at the clock that it was left, so
    its arithmetic draws what idling and memory do not. bandwidths: of the profile's GPU over the measured one's, by which a byte's energy scales."""
    power = {k: float(re.search(r"\b%s = ([\d.e-]+)" % k, re.search(r"\n  power = \{(.*?)\n  \}", text, re.S)[1])[1]) for k in ("watts", "idle", "byte", "exponent", "bf16")}
    highest, found = float(re.search(r"\bclock_mhz = (\d+)", text)[1]), {}
    for variant, flops, size, us, mhz in re.findall(r"(?m)^sustained ([^|]+)\|(\d+)\|(\d+)\|([\d.]+)\|(\d+)$", raw):
        arithmetic = (power["watts"] - power["idle"]) * float(us) * 1e-6 - power["byte"] * bandwidths * float(size)
        if float(mhz) > 0.99 * highest:
            print("%s sustains %s MHz: below the limit, so its power is not known" % (variant, mhz))
            return {}
        found[dtype_of(variant)] = arithmetic / float(flops) * (highest / float(mhz)) ** power["exponent"]
    bf16 = found.pop("bf16", 0)
    return {dtype: power["bf16"] * x / bf16 for dtype, x in found.items()} if bf16 else {}


def merge(o):
    points, curves = kept_points(o.profile)
    here, there = Rates(o.profile), Rates(o.measured_on or o.profile)
    fresh, drawn = collections.defaultdict(dict), collections.defaultdict(list)
    for p in (line.strip().split("|") for path in o.raw for line in open(path)):
        op = p[0][7:]
        if not p[0].startswith("kernel ") or not re.search(o.only, p[1] if p[2] else "%s %s" % (op, p[1])):
            continue
        sizes, flops, size, us = tuple(int(x) for x in p[2].split(",") if x), float(p[3]), int(p[4]), float(p[5])
        if sizes and float(p[6]) > 0:
            us = at_full_clock(us, float(p[6]), o.mhz, op, p[1], flops)
            fresh[op][(p[1], sizes)] = (int(flops), size, as_here(us, p[1], sizes, flops, size, there, here))
        elif not sizes:
            drawn[(op, p[1])].append((size, as_here(us, p[1], sizes, flops, size, there, here)))
    ops = set(fresh) | {op for op, _ in drawn}
    kept = collections.defaultdict(dict)
    for (op, variant, sizes), x in points.items():
        if op in ops and (variant, sizes) not in fresh[op]:
            kept[op][(variant, sizes)] = x
    with open(o.profile) as f:
        text = f.read()
    for op in sorted(ops):
        table, keyed, curve = io.StringIO(), {}, {k: c for k, c in {**curves, **drawn}.items() if k[0] == op}
        if fresh[op]:
            keyed, curve = {op: {**kept[op], **thinned({op: fresh[op]}, set())[op]}}, {}
        write_kernels(table, keyed, curve)
        text, n = re.subn(r"(?ms)^    %s = \{$.*?^    \},\n" % re.escape(op), lambda m: table.getvalue(), text)
        if not n:
            text, n = re.subn(r"(?m)^  kernels = \{.*\n", lambda m: m[0] + table.getvalue(), text)
        if n != 1:
            sys.exit("%s: it has no `kernels` that points of %s could join" % (o.profile, op))
        print("%s: %d measured, %d points" % (op, len(fresh[op]) or sum(len(drawn[k]) for k in drawn if k[0] == op), table.getvalue().count("{ ")))
    for dtype, x in joules("".join(open(path).read() for path in o.raw), text, here.bandwidth / there.bandwidth).items():
        text, n = re.subn(r"(?s)(\n  power = \{.*?\b%s = )[\d.e-]+" % dtype, lambda m: m[1] + "%.3fe-12" % (x * 1e12), text, count=1)
        text = text.replace(" -- fp8: half of bf16, not measured", "")
        print("%s: %.3f pJ a FLOP" % (dtype, x * 1e12))
    if o.fp8_source:
        text = re.sub(r"\n  fp8_source = .*", "", text)
        text = re.sub(r"(\n  flops_source = .*)", lambda m: m[1] + '\n  fp8_source = "%s", -- absmax, quantize and silu_mul_grad too' % o.fp8_source, text)
    with open(o.profile, "w") as f:
        f.write(text)
    return 0


# ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def measured(path, device):
    """{workload: ms}: of a .csv (workload, ms, ...) all, of steps.json the judged ones, which must have been built for the device."""
    if path.endswith(".csv"):
        with open(path) as f:
            rows = [line.split(",") for line in f if re.match(r"[a-z0-9.-]+-\d+x\d+x\d+[a-z0-9-]*\*?,[\d.]+", line)]
        return {r[0].strip("*"): float(r[1]) for r in rows}
    with open(path) as f:
        told = json.load(f)
    need_same_plan(path, told["runs"], device)
    return {n: told["runs"][n]["median"] for n in told["judge"] if "median" in told["runs"].get(n, {})}


def predicted(name, device):
    w = workload(name)
    with tempfile.TemporaryDirectory() as work:
        out = shardc("predict", gpu.model_of(w, work), *w.settings(), "--world", str(w.world), "--device", device, "--format", "json")
    return json.loads(out)["prediction"]["step_us"] / 1e3


def judge(o):
    rows = [(n, ms) for path in o.files for n, ms in measured(path, o.device).items() if re.search(o.only, n)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        times = list(pool.map(lambda r: predicted(r[0], o.device), rows))
    print("| workload | measured ms | predicted ms | off |\n|---|---|---|---|")
    off = [t / ms - 1 for t, (_, ms) in zip(times, rows)]
    for t, (n, ms), x in zip(times, rows, off):
        print("| %s | %.2f | %.2f | %+.1f %% |" % (n, ms, t, 100 * x))
    pairs = [(a, b) for i, a in enumerate(zip(times, rows)) for b in list(zip(times, rows))[:i] if abs(math.log(a[1][1] / b[1][1])) > math.log(1.05)]
    right = sum((a[0] < b[0]) == (a[1][1] < b[1][1]) for a, b in pairs)
    print("\n%d workloads: median error %.1f %%, worst %.1f %%, mean %+.1f %%; of %d pairs that differ by more than 5 %% the faster is named in %.1f %%"
          % (len(rows), 100 * statistics.median(map(abs, off)), 100 * max(map(abs, off)), 100 * statistics.fmean(off), len(pairs), 100 * right / max(len(pairs), 1)))
    return 0


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    c = a.add_subparsers(dest="command", required=True)
    m, f, j = c.add_parser("measure"), c.add_parser("fit"), c.add_parser("judge")
    m.add_argument("build", help="what gpu.py build has made")
    m.add_argument("--fit", nargs="*", default=[]), m.add_argument("--judge", nargs="*", default=[])
    m.add_argument("--seconds", type=float, default=2.2, help="of steps, of a workload")
    m.add_argument("-o", "--output", required=True)
    f.add_argument("folder"), f.add_argument("--device", default="h100"), f.add_argument("--raw", nargs="*", default=[])
    f.add_argument("--keep", help="a profile whose points stay where nothing was measured now")
    f.add_argument("--mhz", type=float, required=True, help="the highest clock")
    f.add_argument("-o", "--output", required=True)
    j.add_argument("files", nargs="+"), j.add_argument("--device", required=True), j.add_argument("--only", default="")
    u = c.add_parser("cpu")
    u.add_argument("-o", "--output", required=True)
    t, g = c.add_parser("attention"), c.add_parser("merge")
    for x in (t, g):
        x.add_argument("profile", help="its file"), x.add_argument("--only", default="", help="variants that match this regular expression")
    t.add_argument("--also", nargs="*", default=[], help="options of attention.lua, of sizes that it has not")
    t.add_argument("--device", help="the kernels that this device runs at these sizes: a100's are timed on an H100 for all profiles that are like it")
    t.add_argument("-o", "--output", required=True)
    k = c.add_parser("tasks")
    k.add_argument("names", nargs="+"), k.add_argument("--device", default="h200"), k.add_argument("--only", default="", help="op and variant, a blank between them")
    k.add_argument("-o", "--output", required=True)
    g.add_argument("--measured-on", help="the file of a profile like this one, on whose GPU it was measured; unless given, this one's")
    g.add_argument("--fp8-source", help="what predict says of kernels in fp8: \"measured on H200, 2026-11-29\"")
    g.add_argument("raw", nargs="+", help="of sc_calibrate"), g.add_argument("--mhz", type=float, default=1980, help="the highest clock")
    o = a.parse_args()
    return {"measure": measure, "fit": fit, "judge": judge, "cpu": cpu, "attention": attention, "tasks": tasks, "merge": merge}[o.command](o)


if __name__ == "__main__":
    sys.exit(main())
