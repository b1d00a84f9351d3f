"""What people have around a run: early stopping, a limit of time, validation alone.

Relies on: harness.py, models/gpt2.lua. Relied on by: run.py, test_diagnostics.py."""
import json
import os
import shutil
import struct
import subprocess
import time

from harness import MANY, build, check, command, corpus, read_log, scratch, until

SMALL = dict(layers=1, dim=16, heads=2, vocab=256, batch=4, seq=16)


def go(*args):
    return command([build("gpt2.lua", world=2, **SMALL), *args])


def validations(log):
    return [(line["step"], line["val_loss"]) for line in read_log(log) if "val_loss" in line]


def test_patience_ends_a_run():
    """At a rate that makes it worse, the run ends after N validations without a lower loss; it saves as after its last step."""
    folder = scratch("patience")
    log, state, weights = (os.path.join(folder, f) for f in ("log.jsonl", "state", "w.safetensors"))
    data = "--data", corpus(), "--val-data", corpus("val", 4000, 5), "--seed", "1", "--warmup", "0", "--min-ratio", "1"
    rc, said, err = go(*data, "--steps", "60", "--lr", "3", "--eval-every", "2", "--patience", "3", "--log", log, "--save", state, "--export", weights, "--allow-nan")
    found = validations(log)
    best = min(range(len(found)), key=lambda k: found[k][1])
    check(rc == 0 and best == len(found) - 4 and found[-1][0] < 60, "exit %d: %s %s" % (rc, found, err))
    check("3 validations found no val_loss below %.6g, as --patience allows; the run ends" % found[best][1] in err, err)
    check(os.path.exists(os.path.join(state, "index.json")) and os.path.exists(weights), "what a complete run leaves")
    rc, _, err = go(*data, "--steps", "8", "--lr", "1e-2", "--eval-every", "2", "--patience", "3")
    check(rc == 0 and "--patience" not in err, err)
    # validation alone, of the state and of the weights, with the command line of the training
    for source in (("--resume", state), ("--weights", weights)):
        rc, said, err = go(*data[:4], *source, "--eval-only", "--log", log + source[0])
        line = validations(log + source[0])
        check(rc == 0 and len(line) == 1 and abs(line[0][1] / found[-1][1] - 1) < 1e-6, "%s: %s %s%s" % (source, line, said, err))
    for args, says in ((data[:4] + ("--eval-only",), "--eval-only validates what is given: --weights FILE... or --resume DIR"),
                       (data[:4] + ("--eval-only", "--weights", weights, "--steps", "3"), "--eval-only trains nothing: leave --steps 3 out"),
                       (("--data", corpus(), "--eval-only"), "--eval-only needs --val-data"), (data[:4] + ("--patience", "2"), "--patience needs --eval-every")):
        rc, _, err = go(*args)
        check(rc == 2 and says in err, "%s: exit %d: %s" % (args, rc, err))
    return "%d validations, the best at step %d" % (len(found), found[best][0])


def test_the_best_state_is_kept():
    """Of a run that gets worse; a run that goes on from the last state keeps it where it finds no better one."""
    folder = scratch("best")
    log, state = os.path.join(folder, "log.jsonl"), os.path.join(folder, "state")
    data = "--data", corpus(), "--val-data", corpus("val", 4000, 5), "--warmup", "0", "--min-ratio", "1", "--eval-every", "2", "--allow-nan"
    rc, said, err = go(*data, "--seed", "1", "--steps", "10", "--lr", "0.3", "--log", log, "--save", state, "--keep-best")
    found = validations(log)
    best = min(found, key=lambda x: x[1])
    index = json.load(open(os.path.join(state, "best", "index.json")))
    check(rc == 0 and index["step"] == best[0] < 10 and abs(index["val_loss"] / best[1] - 1) < 1e-6, "%s: %s %s" % (found, index, err))
    rc, said, err = go(*data[:4], "--resume", os.path.join(state, "best"), "--eval-only", "--log", log + ".best")
    check(rc == 0 and abs(validations(log + ".best")[0][1] / best[1] - 1) < 1e-6, said + err)
    go(*data, "--resume", state, "--steps", "12", "--lr", "3", "--save", state, "--keep-best")
    check(json.load(open(os.path.join(state, "best", "index.json"))) == index, "a worse state has replaced the best")
    for args, says in ((("--keep-best",), "--keep-best needs --save"), (("--save", state + "2", "--keep-best"), "--keep-best is the state of the lowest val_loss: give --val-data")):
        rc, _, err = go("--data", corpus(), "--steps", "1", *args)
        check(rc == 2 and says in err, err)
    rc, _, err = go(*data, "--steps", "2", "--save", os.path.join(folder, "other"), "--keep-best")
    check(rc == 0, err)
    shutil.rmtree(os.path.join(folder, "other", "best"))
    open(os.path.join(folder, "other", "best"), "w").close()
    rc, _, err = go(*data, "--steps", "4", "--resume", os.path.join(folder, "other"), "--save", os.path.join(folder, "other"), "--keep-best")
    check(rc == 1 and "cannot save to " in err, err)
    return "step %d of %s" % (best[0], ", ".join("%.4f" % x[1] for x in found))


def test_a_best_state_that_cannot_be_kept_ends_no_run():
    """Its folder goes away between two steps, which a pipe of records feeds one by one."""
    folder = scratch("unkept")
    log, state = os.path.join(folder, "log.jsonl"), os.path.join(folder, "state")
    text = open(corpus(), "rb").read()[1024:]
    tokens = struct.unpack("<%dH" % (len(text) // 2), text)
    binary = build("gpt2.lua", world=2, **SMALL)
    p = subprocess.Popen([binary, "--data", "-", "--val-data", corpus("val", 4000, 5), "--steps", "3", "--eval-every", "1", "--lr", "1e-2", "--warmup", "0", "--seed", "1",
                          "--log", log, "--save", state, "--keep-best"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def feed(step):
        rows = [tokens[(step * 8 + i) * 16:(step * 8 + i) * 16 + 17] for i in range(8)]
        p.stdin.write(struct.pack("<128i", *[t for r in rows for t in r[:-1]]) + struct.pack("<128i", *[t for r in rows for t in r[1:]]))
        p.stdin.flush()

    feed(0)
    until(lambda: os.path.exists(os.path.join(state, "best", "index.json")), "a best state")
    shutil.rmtree(os.path.join(state, "best"))
    feed(1), feed(2)
    said, err = p.communicate(timeout=MANY)
    found = validations(log)
    check(p.returncode == 0 and found[1][1] < found[0][1], "%s: %s" % (found, err))
    check(b"cannot save to %s/best: No such file or directory" % state.encode() in err and b"; the run goes on" in err, err)
    check(os.path.exists(os.path.join(state, "index.json")), "the last state")


def test_a_limit_of_time_saves():
    folder = scratch("limit")
    state = os.path.join(folder, "state")
    begin = time.time()
    rc, said, err = go("--data", corpus(), "--steps", "100000000", "--seed", "1", "--lr", "1e-3", "--warmup", "0", "--save", state, "--time-limit", str(1 / 3600))
    check(rc == 143 and "stopped at step" in said + err and time.time() - begin >= 1, "exit %d: %s%s" % (rc, said[-500:], err))
    rc, said, err = go("--data", corpus(), "--steps", "100000000", "--resume", state, "--time-limit", str(0.1 / 3600), "--save", state)
    check(rc == 143 and "resumed" in said, "exit %d: %s%s" % (rc, said[-500:], err))
