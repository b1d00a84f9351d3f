"""Each op's gradient against central differences along random directions, in the fp64 test build.

Relies on: gradients.lua (a module op_<case> per case, whose last forward op is its scalar result), harness.py; the variant
fp64 of the runtime. Relied on by: run.py."""
import array
import os
import random
import re
import struct

from harness import ROOT, build, check, floats, read_safetensors, scratch, train, write_safetensors

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
    binary = build(os.path.join(ROOT, "tests", "program", "gradients.lua"), variant="fp64")
    folder = scratch("gradients")
    rng = random.Random(3)
    tokens = [rng.randrange(16) for _ in range(16)]
    documents = [0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 2, 2, 2]
    records, dump, start = (os.path.join(folder, f) for f in ("records", "dump.safetensors", "start.safetensors"))
    open(records, "wb").write(struct.pack("<32i", *tokens, *documents))  # inputs in declared order

    def run(*more):
        if os.path.exists(dump):
            os.remove(dump)
        train(binary, "--data", "-", "--steps", "1", "--seed", "5", "--dump", "*", "--at-step", "1", "-o", dump, *more,
              records=records)
        return read_safetensors(dump)

    first = run("--export", start)
    params = read_safetensors(start)
    cases = sorted({k.split(".")[0] for k in params})
    check(len(cases) >= 40, "only %d cases" % len(cases))
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
            if case == "op_detach":
                exact *= 2  # x * detach(x): the gradient leaves out one of two equal halves, as it should
            error = abs(numeric - exact) / max(1, abs(exact), abs(numeric))
            worst = max(worst, (error, case))
            check(error < 1e-6, "%s: central difference %.10g, gradient %.10g" % (case, numeric, exact))
    return "%d cases, %d directions, worst %.1e (%s)" % (len(cases), DIRECTIONS, worst[0], worst[1])
