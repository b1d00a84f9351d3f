"""Every tensor that a program of all ops makes, in fp32, bf16 and fp16, beside the build whose kernels compute in double
and round once: the CPU's kernels, and the CUDA target's, lane by lane.

Relies on: op_cases.py, harness.py, test_cuda_host.py (the emulated program); the variant fp64 of the runtime. Relied on by: run.py."""
import array
import math
import os
import random
import re
import struct
import sys

from harness import BUILD, ROOT, build, check, floats, long, read_safetensors, scratch, shardc, shared, train, write_safetensors
from test_cuda_host import emit, go_with, headers

sys.path.append(os.path.join(ROOT, "tests"))
from op_cases import CASES, write_model  # noqa: E402

NAMES = [name for name, c in CASES.items() if not c.fp64 and name != "debug_sleep"]  # it reads a GPU's clock, and copies
# How far an element may be off, as a share of its tensor's largest one: rounding in sums of some thousand terms, and in 16
# bits a value that falls to its neighbour. Measured on the CPU: 2.1e-6, 1.0e-3, 6.4e-4.
FAR = {"fp32": 1e-5, "bf16": 2.0 ** -7, "fp16": 2.0 ** -10}


def model():
    """The cases at the shapes of `large`."""
    return write_model(shared("large-ops", os.makedirs), {n: CASES[n] for n in NAMES}, large=True)


def record():
    rng, path = random.Random(7), os.path.join(scratch("ops"), "records")
    tokens, targets = ([rng.randrange(16) for _ in range(16)] for _ in range(2))
    documents, positions = [0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 2, 2, 2], rng.sample(range(90), 16)
    with open(path, "wb") as f:
        f.write(struct.pack("<64i", *tokens, *documents, *positions, *targets[:14], -100, -100))
    return path


def dumped(run, folder):
    """What run(arguments) dumps of the first step."""
    made = os.path.join(folder, "dump.safetensors")
    run("--steps", "1", "--dump", "*", "--at-step", "1", "-o", made)
    return read_safetensors(made)


def apart(v, w):
    """An infinity is only like itself, a NaN like any other."""
    if math.isfinite(v) and math.isfinite(w):
        return abs(v - w)
    return 0 if v == w or (v != v and w != w) else math.inf


def beside(found, double, precision, what, times=1):
    """Compares the tensors that both have; each may be off by `times` FAR. Returns their number and the largest distance."""
    wrong, worst, cases = [], (0, ""), set()
    for name in sorted(found.keys() & double.keys()):
        x, y = found[name], double[name]
        check(x[:2] == y[:2], "%s: %s is %s%s, in double %s%s" % (what, name, *x[:2], *y[:2]))
        if x[0] not in ("F32", "F16", "BF16"):
            if x[2] != y[2]:
                wrong.append("%s of %s" % (name, x[0]))
            continue
        a, b = floats(x), floats(y)
        size = max((abs(v) for v in b if math.isfinite(v)), default=0)
        far = max((apart(v, w) for v, w in zip(a, b)), default=0) / max(size, 1e-3)
        worst = max(worst, (far, name))
        cases.update(re.findall(r"^op_(\w+?)[./]", name))
        if far > times * FAR[precision if x[0] == "F32" or precision == "fp32" else {"F16": "fp16", "BF16": "bf16"}[x[0]]]:
            wrong.append("%s by %.1e" % (name, far))
    check(not wrong, "%s in %s: %d tensors differ: %s" % (what, precision, len(wrong), ", ".join(wrong[:8])))
    missing = set(NAMES) - cases
    check(not missing, "%s: no tensor of %s" % (what, ", ".join(sorted(missing))))
    return "%s: %d tensors, %.1e (%s)" % (precision, len(found.keys() & double.keys()), *worst)


def in_double(path, records, folder, precision):
    """Tensors of the build in double, and the file of weights that it began with."""
    start = os.path.join(folder, "start.safetensors")
    library = os.path.join(BUILD, "fp64", "libsc_cpu.a")
    sources = [os.path.join(ROOT, "runtime", "cpu", f) for f in os.listdir(os.path.join(ROOT, "runtime", "cpu"))]
    check(os.path.exists(library) and max(map(os.path.getmtime, sources)) <= os.path.getmtime(library), "%s is not there, or older than the kernels: run `make libs-fp64`" % library)
    binary = build(path, variant="fp64", precision=precision)
    train(binary, "--data", "-", "--seed", "5", "--steps", "1", "--export", start, records=records)
    make_special(start)
    return dumped(lambda *args: train(binary, "--data", "-", "--seed", "5", "--weights", start, "--allow-nan", *args, records=records), folder), start


def make_special(path):
    """Puts equal elements, zeros, infinities and NaN into what op_cases.py calls special."""
    tensors = read_safetensors(path)
    for name in NAMES:
        for operand, p in CASES[name].params.items():
            if p.kind == "special":
                key = "op_%s.%s" % (name, operand)
                x = [round(2 * v) / 2 for v in floats(tensors[key])]
                for k, v in enumerate((0.0, -0.0, math.inf, -math.inf, math.nan)):
                    x[k::max(29, len(x) // 3)] = [v] * len(x[k::max(29, len(x) // 3)])
                tensors[key] = (*tensors[key][:2], array.array("f", x).tobytes())
    write_safetensors(path, tensors)


# Gradient rules that no case runs: of ops that passes make (tests/unit/test_ir.c runs those), and of collectives, which take several ranks. A
# custom op, of which there are cases, has the name of its function in a trace.
OTHERS = {"silu_mul", "pad_slice", "scale", "custom", "all_gather", "reduce_scatter", "all_to_all", "sum_ranks", "quantize", "quantize_blocks"}


def test_every_gradient_rule_has_a_case():
    trace = shardc("inspect", write_model(scratch("ops"), CASES, fp64=True), "--dump-after", "trace")
    used = set(re.findall(r" = (\w+)[ (]", trace))
    with open(os.path.join(ROOT, "runtime", "schema", "ops.def")) as f:
        rows = re.split(r"(?m)^(?=[A-Z_]+\()", re.sub(r"(?s)/\*.*?\*/", "", f.read()))
    rules = {m.group(1) for m in (re.match(r"[A-Z_]+\((\w+),.*\bGRAD\(", r, re.S) for r in rows) if m}
    check(len(rules) > 50 and OTHERS <= rules, "rules found: %s" % sorted(rules))
    missing = rules - used - OTHERS
    check(not missing, "no case of tests/op_cases.py runs the gradient rule of %s" % ", ".join(sorted(missing)))
    return "%d rules" % len(rules)


@long
def test_kernels():
    path, records, notes = model(), record(), []
    for precision in FAR:
        folder = scratch("double")
        double, start = in_double(path, records, folder, precision)
        binary = build(path, precision=precision)
        one, two = (dumped(lambda *args, t=t: train(binary, "--data", "-", "--seed", "5", "--weights", start, "--allow-nan", "--threads", t, *args, records=records), folder) for t in "12")
        check(one == two, "%s: two threads make other bits than one" % precision)
        notes.append(beside(one, double, precision, "CPU"))
    return "; ".join(notes)


@long
def test_lanes():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    path, records, notes = model(), record(), []
    for precision in FAR:
        folder = scratch("lanes")
        double, start = in_double(path, records, folder, precision)
        binary = emit(path, 1, {"precision": precision})
        found = dumped(lambda *args: go_with(binary, records, "--seed", "5", "--weights", start, "--allow-nan", *args), folder)
        # attention rounds its probabilities to 16 bits before it multiplies them by the values
        notes.append(beside(found, double, precision, "CUDA", times=4))
    return "; ".join(notes)
