"""nn.assign: what buffers hold after steps, beside the same computed here; on 1, 2 and 4 ranks with 1 and 2 microbatches, under memory plans, after a resume,
and where a GradScaler skips a step.

Relies on: harness.py, rows/assign.lua. Relied on by: run.py."""
import array
import os
import random

from harness import ROWS, build, check, floats, long, microbatches, read_safetensors, run, same_run, scratch

NET, GLOBAL, STEPS = os.path.join(ROWS, "assign.lua"), 16, 5
HUGE = 1e30


def data(whole, skipped=()):
    """The samples of each step, and the records file's bytes by the number of microbatches. whole: of few bits, so that every sum is exact."""
    r = random.Random(7)
    x = [[[r.randint(-32, 32) / 8 if whole else r.gauss(0, 1) for _ in range(4)] for _ in range(GLOBAL)] for _ in range(STEPS)]
    x = [[list(array.array("f", s)) for s in step] for step in x]

    def file(folder, accumulate):
        path, size = os.path.join(folder, "records"), GLOBAL // accumulate
        with open(path, "wb") as f:
            for k, step in enumerate(x):
                for m in range(accumulate):
                    for s in step[m * size:(m + 1) * size]:
                        f.write(array.array("f", s).tobytes())
                    f.write(array.array("f", [HUGE if k in skipped else 1] * size).tobytes())
        return path
    return x, file


def expected(x, skipped=()):
    counts, most, bias, steps = [0] * 4, [-5.0] * 4, [0.0] * 4, 0
    total, centre = [0.0] * 4, [0.0] * 4
    for k, step in enumerate(x):
        if k in skipped:
            continue
        scores = [[a + b for a, b in zip(s, bias)] for s in step]
        chosen = [s.index(max(s)) for s in scores]
        now = [chosen.count(e) for e in range(4)]
        total = [sum(s[j] for s in step) for j in range(4)]
        centre = [t / GLOBAL for t in total]
        most = [max(m, max(s[j] for s in step)) for j, m in enumerate(most)]
        bias = [b + 0.25 * ((GLOBAL / 4 > n) - (GLOBAL / 4 < n)) for b, n in zip(bias, now)]
        counts, steps = [a + b for a, b in zip(counts, now)], steps + 1
    return {"counts": counts, "total": total, "centre": centre, "most": most, "bias": bias, "steps": [steps]}


def buffers(weights):
    out = {}
    for k in ("counts", "total", "centre", "most", "bias", "steps"):
        dtype, _, blob = weights["gate." + k]
        out[k] = list(array.array("i", blob)) if dtype == "I32" else list(floats(weights["gate." + k]))
    return out


def go(world, file, *args, steps=STEPS, **o):
    o.setdefault("accumulate", 1)
    binary = build(NET, world=world, batch=GLOBAL // world // o["accumulate"], **o)
    return run(binary, "--data", "-", "--steps", str(steps), "--seed", "3", *microbatches(o), *args, records=file(scratch("assign"), o["accumulate"]))


@long
def test_buffers_are_what_was_assigned():
    """To the bit where sums are exact; else within 1e-6."""
    for whole in True, False:
        x, file = data(whole)
        want = expected(x)
        for world in 1, 2, 4:
            for accumulate in 1, 2:
                got = buffers(go(world, file, accumulate=accumulate)[1])
                for k in want:
                    off = max(abs(a - b) for a, b in zip(got[k], want[k]))
                    check(off == 0 if whole or k in ("counts", "bias", "most", "steps") else off < 1e-5, "world %d, accumulate %d, %s: %s, not %s" % (world, accumulate, k, got[k], want[k]))
    return "6 buffers, 1, 2 and 4 ranks, 1 and 2 microbatches"


@long
def test_plans_and_resume_change_no_bit():
    _, file = data(False)
    for accumulate in 1, 2:
        plain = go(2, file, accumulate=accumulate)
        for plan in dict(recompute="true"), dict(recompute="true", offload="true"), dict(params="true"), dict(params="true", recompute="true"):
            same_run(plain, go(2, file, accumulate=accumulate, **plan), str(plan))
        saved = os.path.join(scratch("assign-saved"), "state")
        go(2, file, "--save", saved, accumulate=accumulate, steps=3)
        resumed = go(2, file, "--resume", saved, accumulate=accumulate)
        check(resumed[1] == plain[1], "a resumed run ends with other weights")


def test_a_skipped_step_assigns_nothing():
    x, file = data(True, skipped=(1, 3))
    for world, accumulate in (1, 1), (2, 2):
        log, weights = go(world, file, accumulate=accumulate, scaler="true")
        check([s["skipped"] for s in log if "loss" in s] == [0, 1, 0, 1, 0], "other steps were skipped: %s" % log)
        check(buffers(weights) == expected(x, skipped=(1, 3)), "world %d: %s, not %s" % (world, buffers(weights), expected(x, skipped=(1, 3))))
