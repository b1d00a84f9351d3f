"""Each op's gradient against central differences along random directions, in the fp64 test build; and what that build makes of
whole models, whose values keep the dtypes they have elsewhere.

Relies on: op_cases.py (a module op_<case> per case, whose last forward op is its scalar result), harness.py; the variant
fp64 of the runtime; run.py and what `make unit-fp64` builds. Relied on by: run.py."""
import array
import itertools
import os
import random
import re
import struct
import sys

from harness import BUILD, ROOT, build, check, close, cores, corpus, floats, losses, read_safetensors, run, scratch, steps, train, write_safetensors
from run import criterion

sys.path.append(os.path.join(ROOT, "tests"))
from op_cases import CASES, write_model  # noqa: E402

EPS, DIRECTIONS = 1e-6, 3


def results(dump):
    """The scalar that each case's module ends in, by case."""
    last = {}
    for name, tensor in dump.items():
        m = re.match(r"(op_\w+)/e(\d+)$", name)
        if m and tensor[0] == "F64" and len(tensor[2]) == 8:
            last[m.group(1)] = max(last.get(m.group(1), (-1, 0)), (int(m.group(2)), floats(tensor)[0]))
    return {case: value for case, (_, value) in last.items()}


def test_ops_against_central_differences():
    folder = scratch("gradients")
    binary = build(write_model(folder, CASES, fp64=True), variant="fp64")
    rng = random.Random(3)
    tokens = [rng.randrange(16) for _ in range(16)]
    documents, positions = [0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 2, 2, 2], rng.sample(range(90), 16)
    records, dump, start = (os.path.join(folder, f) for f in ("records", "dump.safetensors", "start.safetensors"))
    open(records, "wb").write(struct.pack("<64i", *tokens, *documents, *positions, *tokens))  # inputs in declared order

    def run(*more):
        if os.path.exists(dump):
            os.remove(dump)
        train(binary, "--data", "-", "--steps", "1", "--seed", "5", "--dump", "*", "--at-step", "1", "-o", dump, *more,
              records=records)
        return read_safetensors(dump)

    first = run("--export", start)
    params = read_safetensors(start)
    cases = sorted("op_" + name for name, c in CASES.items() if c.smooth)
    worst = (0, "")
    for _ in range(DIRECTIONS):
        directions = {k: [rng.gauss(0, 1) for _ in floats(v)] for k, v in params.items() if k + ".grad" in first}
        moved = []
        for sign in (1, -1):
            path = os.path.join(folder, "moved.safetensors")
            write_safetensors(path, {k: (v[0], v[1], array.array("d", [x + sign * EPS * d for x, d in zip(floats(v), directions[k])]).tobytes())
                                     if k in directions else v for k, v in params.items()})
            moved.append(results(run("--weights", path)))
        for case in cases:
            names = [k for k in directions if k.startswith(case + ".")]
            check(names and case in moved[0], "%s: no gradient or no result" % case)
            numeric = (moved[0][case] - moved[1][case]) / (2 * EPS)
            exact = sum(g * d for k in names for g, d in zip(floats(first[k + ".grad"]), directions[k]))
            error = abs(numeric - exact) / max(1, abs(exact), abs(numeric))
            worst = max(worst, (error, case))
            check(error < 1e-6, "%s: central difference %.10g, gradient %.10g" % (case, numeric, exact))
    return "%d cases, %d directions, worst %.1e (%s)" % (len(cases), DIRECTIONS, worst[0], worst[1])


SMALL = dict(layers=2, dim=32, heads=2, vocab=256, batch=2, seq=32)
MODELS = [
    ("gpt2.lua", dict(SMALL, dropout=0.1), 1e-6),
    ("gpt2.lua", dict(SMALL, precision="bf16"), 2e-3),
    ("llama3.lua", dict(SMALL, size="tiny", heads=4, kv_heads=2, ffn=64), 1e-6),
    ("transformer.lua", SMALL, 1e-6),
]


def test_unit_kernels():
    unit = os.path.join(BUILD, "fp64", "unit_kernels")
    check(os.path.exists(unit), "%s is not there: run `make unit-fp64`" % unit)
    found = cores([unit, "--list"])
    for core, env in found.items():
        good, bad, text = criterion(unit, env=env)
        check(not bad, "%s on %s: %d failed\n%s" % (unit, core, bad, text))
    return "%d unit tests on %s" % (good, ", ".join(found))


def test_models_compute_the_same():
    """Kernels compute in fp64 and round to the same dtypes; none leaves its workspace (--redzones), which one rank fills: several share the
    processors and leave the room of threads that they do not start."""
    for (model, options, tolerance), world in itertools.product(MODELS, (1, 2)):
        args = ("--data", corpus(), "--steps", "3", "--seed", "3")
        wide, usual = (run(build(model, world=world, variant=v, **options), *args, "--redzones")[0] for v in ("fp64", ""))
        close(losses(wide), losses(usual), tolerance, model + ": losses")
        close([s["grad_norm"] for s in steps(wide)], [s["grad_norm"] for s in steps(usual)], 10 * tolerance, model + ": norms")
    return "%d models on 1 and 2 ranks" % len(MODELS)
