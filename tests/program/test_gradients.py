"""Each op's gradient against central differences along random directions, in the fp64 test build.

Relies on: gradients.lua, harness.py; the variant fp64 of the runtime. Relied on by: run.py."""
import array
import os
import random
import struct

from harness import ROOT, build, check, command, floats, losses, must, read_log, read_safetensors, scratch, write_safetensors

EPS, DIRECTIONS = 1e-5, 3
KINKS = ()  # ops whose check needs points away from a kink; seeds below keep clear of them


def test_ops_against_central_differences():
    binary = build(os.path.join(ROOT, "tests", "program", "gradients.lua"), variant="fp64")
    folder = scratch("gradients")
    rng = random.Random(3)
    record = struct.pack("<32i", *([rng.randrange(16) for _ in range(16)] + [0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 2, 2, 2]))
    records = os.path.join(folder, "records")
    open(records, "wb").write(record)

    def loss(weights, *more):
        log = os.path.join(folder, "log.jsonl")
        if os.path.exists(log):
            os.remove(log)
        must(["sh", "-c", '"$0" --data - --steps 1 --seed 5 "$@" < "%s"' % records, binary, "--log", log,
              *(["--weights", weights] if weights else []), *more])
        return losses(read_log(log))[0]

    start, grads = os.path.join(folder, "start.safetensors"), os.path.join(folder, "grads.safetensors")
    loss(None, "--export", start, "--dump", "*.grad", "--at-step", "0", "-o", grads)
    params, gradients = read_safetensors(start), read_safetensors(grads)
    ops = sorted({k.split(".")[0] for k in params if not k.endswith((".mean", ".var"))})
    worst = (0, "")
    for op in ops:
        names = [k for k in params if k.startswith(op + ".") and k + ".grad" in gradients]
        check(names, "%s: no gradients" % op)
        for _ in range(DIRECTIONS):
            directions = {k: [rng.gauss(0, 1) for _ in floats(params[k])] for k in names}
            values = []
            for sign in (1, -1):
                moved = dict(params)
                for k in names:
                    x = array.array("d", [v + sign * EPS * d for v, d in zip(floats(params[k]), directions[k])])
                    moved[k] = (params[k][0], params[k][1], x.tobytes())
                path = os.path.join(folder, "moved.safetensors")
                write_safetensors(path, moved)
                values.append(loss(path))
            numeric = (values[0] - values[1]) / (2 * EPS)
            exact = sum(g * d for k in names for g, d in zip(floats(gradients[k + ".grad"]), directions[k]))
            error = abs(numeric - exact) / max(1e-3, abs(exact), abs(numeric))
            worst = max(worst, (error, op))
            check(error < 1e-6, "%s: central difference %.10g, gradient %.10g" % (op, numeric, exact))
    return "%d ops, worst %.1e (%s)" % (len(ops), worst[0], worst[1])
