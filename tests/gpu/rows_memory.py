"""Rows M1 to M3 at full size: arenas as predicted, the process within max(1 %, 32 MiB) of the driver's figure, the arena without
workspaces below PyTorch's active peak (tests/program/test_rows_memory.py holds the plans to that; bench/memory_rows.py runs both).

Relies on: runner.py, test_rows_memory.py (CASES). Relied on by: run.py, by its name; bench/memory_rows.py (run_case)."""
import os
import re
import tempfile

from harness import ROOT, check, read_log, read_safetensors, steps
from test_rows_memory import CASES, M2, MLP, records



def name_of(case, world):
    return "memory-%s-w%d" % (re.sub(r"[^a-z0-9]+", "-", case.lower()), world)


# world 4 as PyTorch's own tests; two of them on fewer GPUs too
WORLDS = {"M1 reshard": (1, 2, 4), "M3 reshard": (1, 2, 4)}
PROGRAMS = {name_of(c, w): (os.path.relpath(model, ROOT), w, options) for c, model, options, _ in CASES for w in WORLDS.get(c, (4,))}
PROGRAMS.update({"memory-idle-w%d" % w: (os.path.relpath(MLP, ROOT), w, dict(M2, dim=64)) for w in (1, 2, 4)})


def zeros(path, case, world, n):
    """Records of n steps, all zeros: memory does not depend on them."""
    _, _, options, _ = next(c for c in CASES if c[0] == case)
    bytes_ = 16 * 512 * 4 if case.startswith("M3") else options.get("batch", 8192) * 2048 * 4
    with open(path, "wb") as f:
        f.truncate(bytes_ * world * n)
    return path


def run_case(r, case, world):
    """(arena, process as predicted, process by the driver), bytes, of two steps."""
    folder = tempfile.mkdtemp(dir=r.work)
    log = os.path.join(folder, "log.jsonl")
    out = r.start(name_of(case, world), world, "--data", "-", "--steps", "2", "--allow-nan", "--log", log,
                  stdin=zeros(os.path.join(folder, "x"), case, world, 2), alone=True)
    check(len(steps(read_log(log))) == 2, "two steps: " + out[-500:])
    told = [line for line in read_log(log) if "device_bytes_used" in line][-1]
    arena = int(re.search(r"^arena +([\d,]+) B", out, re.M).group(1).replace(",", ""))
    return arena, told["device_bytes_predicted"], told["device_bytes_used"]


def case(r, name, world):
    arena, predicted, used = run_case(r, name, world)
    return "arena %d MiB exact; %s" % (arena >> 20, r.process(world, predicted, used))


def idle(r, world):
    """M2's blocks that the loss does not reach: as they began, after two steps."""
    folder = tempfile.mkdtemp(dir=r.work)
    name, weights = "memory-idle-w%d" % world, [os.path.join(folder, "weights%d" % k) for k in (0, 1)]
    r.start(name, world, "--seed", "3", "--export", weights[0])
    r.start(name, world, "--seed", "3", "--data", "-", "--steps", "2", "--export", weights[1], stdin=records(os.path.join(folder, "x"), 64, 8 * world, 2))
    before, after = map(read_safetensors, weights)
    changed = sorted({k[:8] for k in after if after[k] != before[k]})
    check(changed == ["blocks.0"] and len(after) == 12, "changed: %s" % changed)
    return "two blocks unchanged"


def cases(r):
    for w in (1, 2, 4):
        yield "rows.M2-idle-w%d" % w, w, lambda w=w: idle(r, w)
    for c, _, _, _ in CASES:
        for w in WORLDS.get(c, (4,)):
            yield "rows.%s-w%d" % (c.replace(",", "").replace(" ", "-"), w), w, lambda a=(c, w): case(r, *a)
