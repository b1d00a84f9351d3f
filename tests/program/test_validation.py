"""Validation: val_loss is that of the same windows at every world and batch, the losses of which are computed here once more from the
exported weights; whatever is left out is said.

Relies on: harness.py, surface/validation.lua. Relied on by: run.py."""
import json
import math
import os
import random
import re
import struct

from harness import SHARDC, TESTS, build, check, close, command, floats, must, read_safetensors, scratch

MODEL = os.path.join(TESTS, "surface", "validation.lua")
SEQ, VOCAB = 8, 16
MESHES = (1, 2), (2, 2), (3, 2), (4, 2), (1, 1), (1, 4), (2, 4), (1, 16), (3, 5)  # world, batch


def tokens(path, n, seed):
    r = random.Random(seed)
    found = [r.randrange(VOCAB) for _ in range(n)]
    with open(path, "wb") as f:
        f.write(struct.pack("<%dH" % n, *found))
    return found


def windows(found):
    return [found[at:at + SEQ + 1] for at in range(0, len(found) - SEQ, SEQ)]


def expected(rows, taken, reduce):
    """The loss over all these windows at once."""
    def entropy(ignore):
        each = [math.log(sum(math.exp(x) for x in rows[a])) - rows[a][b] for w in taken for a, b in zip(w, w[1:]) if b != ignore]
        return sum(each) / len(each)
    squares = [sum(x * x for x in rows[a]) / VOCAB for w in taken for a in w[:-1]]
    mean = sum(squares) / len(squares)
    return {"counted": lambda: entropy(None), "ignoring": lambda: entropy(3), "mean": lambda: mean, "both": lambda: entropy(3) + 0.5 * mean,
            "several": lambda: entropy(None) + entropy(3) + 0.25 * entropy(5)}[reduce]()


def validate(binary, folder, *args):
    """(what it printed, the last val_loss, the table's rows) of initial weights."""
    log, weights = os.path.join(folder, "log.jsonl"), os.path.join(folder, "w.safetensors")
    out = must([binary, "--steps", "0", "--log", log, "--export", weights, *args])
    line = [x for x in map(json.loads, open(log)) if "val_loss" in x][-1]
    table = floats(read_safetensors(weights)["rows.weight"])
    return out, line, [table[i:i + VOCAB] for i in range(0, len(table), VOCAB)]


def test_all_windows_at_every_world_and_batch():
    folder = scratch("windows")
    path = os.path.join(folder, "val_uint16.bin")
    found = windows(tokens(path, 57, 1))
    check(len(found) == 7, "seven windows")
    for reduce in "counted", "ignoring", "mean", "both", "several":
        for world, batch in MESHES if reduce in ("ignoring", "both") else MESHES[:4]:
            out, line, rows = validate(build(MODEL, world=world, batch=batch, reduce=reduce), folder, "--val-data", path)
            close([line["val_loss"]], [expected(rows, found, reduce)], 1e-6, "%s, world %d, batch %d" % (reduce, world, batch))
            check("(7 windows)" in out and "validate 1 file, 57 tokens, 7 windows of 9; all windows are taken\n" in out, out)
            skips = 3 if reduce in ("ignoring", "both") else None
            check(line["val_targets"] == (7 if reduce == "mean" else sum(b != skips for w in found for b in w[1:])), "targets: %s" % line)
    return "%d programs" % (2 * len(MESHES) + 12)


def test_fewer_windows_than_ranks():
    folder = scratch("one-window")
    path = os.path.join(folder, "val_uint16.bin")
    found = windows(tokens(path, 12, 2))
    for world, batch in (1, 1), (4, 2):
        out, line, rows = validate(build(MODEL, world=world, batch=batch, reduce="both"), folder, "--val-data", path)
        close([line["val_loss"]], [expected(rows, found, "both")], 1e-6, "one window, world %d" % world)
        check("(1 window)" in out and "1 window of 9, 3 tokens at files' ends left out; all windows are taken\n" in out, out)


def test_the_first_windows_are_the_same_at_every_world():
    folder = scratch("first")
    path = os.path.join(folder, "val_uint16.bin")
    found = windows(tokens(path, 8 * 60 + 1, 3))
    for world in 1, 2, 3, 4:
        binary = build(MODEL, world=world, batch=2, reduce="ignoring")
        for args, n in ((), 60), (("--eval-steps", "20"), 40), (("--eval-steps", "5"), 10), (("--eval-steps", "1"), 2), (("--eval-steps", "30"), 60), (("--eval-steps", "0"), 60):
            out, line, rows = validate(binary, folder, "--val-data", path, *args)
            close([line["val_loss"]], [expected(rows, found[:n], "ignoring")], 1e-6, "%s at world %d" % (args, world))
            said = "(60 windows)" if n == 60 else "(the first %d of 60 windows)" % n
            check(said in out and ("; the first %d are taken\n" % n in out) == (n < 60), out)


def test_a_batch_norm_and_a_replicated_mesh():
    folder, seen = scratch("norm"), []
    path = os.path.join(folder, "val_uint16.bin")
    tokens(path, 8 * 11 + 1, 4)
    policy = os.path.join(folder, "p.lua")
    open(policy, "w").write("return { { match = '', fully_shard = { mesh = { replicate = 2 } } } }\n")
    for world, batch, units in (1, 2, None), (3, 2, None), (4, 2, policy), (1, 4, None):
        seen.append(validate(build(MODEL, world=world, batch=batch, norm=True, reduce="both", policy=units), folder, "--val-data", path)[1]["val_loss"])
    close(seen, seen[:1] * 4, 1e-6, "batch norm")


def test_what_no_window_holds_is_said():
    folder = scratch("short")
    path, short, empty = (os.path.join(folder, n + "_uint16.bin") for n in ("val", "short", "shorter"))
    tokens(path, 57, 1)
    tokens(short, 8, 1)
    tokens(empty, 1, 1)
    binary = build(MODEL)
    rc, out, err = command([binary, "--data", path, short, empty, "--val-data", short, path, "--steps", "1"])
    check(rc == 0 and "data     3 files, 66 tokens, 7 windows of 9, 9 tokens at files' ends left out; an epoch is 3.5 steps\n" in out, out + err)
    check(re.search(r"note: --data: 2 of 3 files, \S*short_uint16.bin first, have fewer tokens than a window of 9: nothing of them is used\n", err), err)
    check("note: --val-data: 1 of 2 files, %s first, have" % short in err, err)
    rc, _, err = command([binary, "--val-data", short, "--steps", "0"])
    check(rc == 1 and "--val-data (1 file): 8 tokens make 0 windows of 9, but a validation takes 1" in err, err)
