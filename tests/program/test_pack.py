"""`shardc pack`: what it writes is a packing, what it says is so, and bad input of any kind ends in one message.

Relies on: harness.py. Relied on by: run.py."""
import csv
import os
import random

from harness import ROOT, SHARDC, check, command, must, scratch, shardc

HEAD = "id,lower,upper,size"
CHALLENGES = os.path.join(os.environ.get("SC_SHARED", os.path.join(ROOT, "..", "shared")), "packing")

# text of the file, line, what stderr says
BAD = [
    ("", 1, "the file is empty; its first line names columns: id,lower,upper,size"),
    ("\n\n", 1, "the file is empty"),
    ("id,lower,upper\n", 1, 'column "size" is missing'),
    ("id,lower,upper,size,colour\n", 1, 'column "colour": the first line names columns: id,lower,upper,size and, if wanted, alignment,gaps'),
    ("id,lower,upper,size,size\n", 1, 'column "size" stands twice; leave one out'),
    ("id,lower,upper,size,alignment,gaps,offset,x\n", 1, "8 columns: at most id,lower,upper,size,alignment,gaps,offset are wanted"),
    (HEAD + "\na,0,1\n", 2, "3 fields, where the first line names 4 columns"),
    (HEAD + "\na,0,1,2,3\n", 2, "5 fields, where the first line names 4 columns"),
    (HEAD + "\n\na,0,x,2\n", 3, 'upper "x": a whole number from 0 to 1152921504606846976 is wanted'),
    (HEAD + "\na,-1,2,2\n", 2, 'lower "-1": a whole number'),
    (HEAD + "\na,0,2,2.5\n", 2, 'size "2.5": a whole number is wanted and nothing after it'),
    (HEAD + "\na,0,2,0\n", 2, 'size "0": a whole number from 1'),
    (HEAD + "\na,0,2,99999999999999999999\n", 2, 'size "99999999999999999999": a whole number'),
    (HEAD + "\na,3,3,2\n", 2, "lower 3, upper 3: a buffer lives from lower to just before upper, which must be greater"),
    (HEAD + "\n,0,3,2\n", 2, "the id is empty; give the buffer a name or a number"),
    (HEAD + "\na,0,1,1152921504606846000\nb,2,3,1152921504606846000\n", 3, "more than 1152921504606846976 bytes together; give sizes in larger units"),
    (HEAD + "\na,0,\0,1\n", 1, "a byte with the value 0: a CSV file is text"),
    (HEAD + ",alignment\na,0,2,2,0\n", 2, 'alignment "0": a whole number from 1'),
    (HEAD + ",gaps\na,0,9,2,1-2-3\n", 2, 'gap "1-2-3": FROM-TO or FROM-TO@BYTE:BYTE is wanted'),
    (HEAD + ",gaps\na,0,9,2,A-B\n", 2, 'gap "A-B": a whole number'),
    (HEAD + ",gaps\na,0,9,2,3\n", 2, 'gap "3": FROM-TO or'),
    (HEAD + ",gaps\na,0,9,2,3-4@1\n", 2, 'gap "3-4@1": FROM-TO or'),
    (HEAD + ",gaps\na,0,9,2,3-4@1:1\n", 2, 'gap "3-4@1:1": the first byte after @ must be less than the second'),
    (HEAD + ",gaps\na,0,9,2,3-5 4-6\n", 2, 'gap "4-6": gaps are not empty, lie between lower and upper, ascend and have no time in common'),
    (HEAD + ",gaps\na,0,9,2,3-10\n", 2, 'gap "3-10": gaps are not empty'),
    (HEAD + ",gaps\na,0,9,2,0-4 4-9\n", 2, "the gaps leave nothing of the buffer's life; leave the buffer out"),
]


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", newline="") as f:
        f.write(text)
    return path


def test_bad_files_name_the_line():
    folder = scratch("pack-bad")
    wrong = []
    for i, (text, line, message) in enumerate(BAD):
        path = write(folder, "%d.csv" % i, text)
        rc, out, err = command([SHARDC, "pack", path, "-o", os.path.join(folder, "out.csv")])
        if rc != 1 or not err.startswith("%s:%d: " % (path, line)) or message not in err or len(err.splitlines()) != 1:
            wrong.append("%r: exit %d: %s" % (text, rc, err))
    check(not wrong, "\n".join(wrong))
    check(not os.path.exists(os.path.join(folder, "out.csv")), "a refused file was packed")
    return "%d files refused" % len(BAD)


def test_bad_calls():
    folder = scratch("pack-calls")
    good = write(folder, "good.csv", HEAD + "\na,0,2,3\n")
    model = os.path.join(ROOT, "models", "mlp.lua")
    for args, code, message in [
            ([], 2, "pack wants an INPUT"),
            ([good, "--capacity", "-1"], 2, "--capacity -1: a whole number from 0"),
            ([good, "--capacity", "1M"], 2, "--capacity 1M: a whole number"),
            ([good, "--effort", "much"], 2, "--effort much: a whole number"),
            ([good, "--world", "2"], 2, "--world is about a model, and " + good + " is a list of buffers; leave it out"),
            ([good, "--program", "micro"], 2, "--program is about a model"),
            ([good, "--set", "dim=3"], 2, "--set is about a model"),
            ([model, "--program", "mirco"], 2, "--program mirco: `shardc inspect` lists the programs of this plan"),
            ([good, "-o", good], 1, "good.csv is both an input and an output"),
            ([good, "-o", folder], 1, "it is a folder"),
            ([os.path.join(folder, "absent.csv")], 1, "No such file or directory"),
    ]:
        rc, out, err = command([SHARDC, "pack", *args])
        check(rc == code and message in err, "exit %d from %s: %s" % (rc, args, err))
    rc, out, err = command(["sh", "-c", "%s pack %s >/dev/full" % (SHARDC, good)])
    check(rc == 1 and "cannot write the report: No space left on device" in err, "exit %d: %s" % (rc, err))


def gaps_of(row):
    return [tuple(map(int, g.split("@")[0].split("-"))) for g in (row.get("gaps") or "").split() if "@" not in g]


def check_packing(path, height):
    """Every pair of buffers, at every time where one of them begins to be there."""
    with open(path) as f:
        rows = list(csv.DictReader(f))
    buffers = [(int(r["lower"]), int(r["upper"]), int(r["offset"]), int(r["offset"]) + int(r["size"]), gaps_of(r)) for r in rows]
    there = lambda b, t: b[0] <= t < b[1] and not any(lo <= t < hi for lo, hi in b[4])
    times = sorted({t for b in buffers for t in [b[0]] + [hi for _, hi in b[4]]})
    for r, b in zip(rows, buffers):
        check(0 <= b[2] and b[3] <= height, "%s ends above %d" % (r, height))
        check(b[2] % int(r.get("alignment") or 1) == 0, "%s is not aligned" % r)
    for t in times:
        alive = sorted((b for b in buffers if there(b, t)), key=lambda b: b[2])
        for x, y in zip(alive, alive[1:]):
            check(x[3] <= y[2], "two buffers share bytes at time %d of %s" % (t, path))
    return len(rows)


def figures(out):
    """{"bound": bytes, "height": bytes, ...} of a report"""
    return {l.split()[0]: int(l.split()[1].replace(",", "")) for l in out.splitlines()[1:]}


def test_random_files():
    folder, r = scratch("pack-random"), random.Random(5)
    for i in range(30):
        lines = [HEAD + ",alignment,gaps"]
        for k in range(40):
            lower = r.randrange(60)
            upper = lower + r.randrange(3, 30)
            gap = "%d-%d" % (lower + 1, r.randrange(lower + 2, upper + 1)) if r.random() < .3 else ""
            if gap and r.random() < .3:
                gap += "@0:1"
            lines.append("b%d,%d,%d,%d,%d,%s" % (k, lower, upper, r.randrange(1, 40), r.choice([1, 1, 4]), gap))
        path, out = write(folder, "%d.csv" % i, "\n".join(lines) + "\r\n"), os.path.join(folder, "%d.out.csv" % i)
        said = figures(must([SHARDC, "pack", path, "-o", out, "--effort", "50"]))
        check(said["bound"] <= said["height"], said)
        check_packing(out, said["height"])
        rc, report, _ = command([SHARDC, "pack", out, "--capacity", str(said["bound"] - 1)])
        check(rc == 1 and "it does not fit, which is proven" in report, "a packing below the bound: %s" % report)
        rc, report, _ = command([SHARDC, "pack", out, "--capacity", str(said["height"])])
        check(rc == 0 and "it fits" in report, report)


def test_models():
    folder = scratch("pack-model")
    out = os.path.join(folder, "micro.csv")
    said = figures(shardc("pack", os.path.join(ROOT, "models", "mlp.lua"), "--world", "2", "--program", "micro", "-o", out))
    check(check_packing(out, said["height"]) > 5, "few storages")
    check(figures(shardc("pack", out))["bound"] == said["bound"], "another bound from the file")


def test_challenges():
    """MiniMalloc's challenging instances within their capacity, where the files are at hand."""
    files = sorted(f for f in os.listdir(CHALLENGES) if f.endswith(".csv")) if os.path.isdir(CHALLENGES) else []
    for f in files:
        out = os.path.join(scratch("pack-challenge"), f)
        must([SHARDC, "pack", os.path.join(CHALLENGES, f), "--capacity", f.split(".")[1], "-o", out])
        check_packing(out, int(f.split(".")[1]))
    return "%d instances" % len(files) if files else "skipped: no folder packing/ in SC_SHARED"
