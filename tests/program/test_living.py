"""What people have around a run: early stopping, a limit of time, validation alone, older states, a log of each rank.

Relies on: harness.py, models/gpt2.lua. Relied on by: run.py, test_diagnostics.py."""
import json
import os
import random
import shutil
import struct
import subprocess
import time

from harness import MANY, build, check, command, corpus, read_log, read_safetensors, scratch, until

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
    check(open(log).read().endswith('{"step": %d, "end": "patience"}\n' % found[-1][0]), "the log's end")
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
    """Of a run that gets worse, since it learns text and is validated on bytes of equal chance; a run that goes on from the last state keeps it where it
    finds no better one."""
    folder, r = scratch("best"), random.Random(4)
    chance = os.path.join(folder, "chance.uint16")
    with open(chance, "wb") as f:
        f.write(struct.pack("<4000H", *[r.randrange(256) for _ in range(4000)]))
    log, state = os.path.join(folder, "log.jsonl"), os.path.join(folder, "state")
    data = "--data", corpus(), "--val-data", chance, "--warmup", "0", "--min-ratio", "1", "--eval-every", "2", "--allow-nan"
    rc, said, err = go(*data, "--seed", "1", "--steps", "10", "--lr", "1e-2", "--log", log, "--save", state, "--keep-best")
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


def step_of(folder):
    return json.load(open(os.path.join(folder, "index.json")))["step"]


def pieces(folder):
    """A state's bytes, whatever its run is called: the names of its files and its tensors."""
    return {name: read_safetensors(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")}


def test_the_last_states_are_kept():
    """--keep 3: each older state is whole and can be resumed by its name; the same step saved again takes one place."""
    folder = scratch("keep")
    state, alone, names = os.path.join(folder, "state"), os.path.join(folder, "alone"), lambda *steps: ["index.json"] + ["step-%08d" % s for s in steps]
    data = "--data", corpus(), "--lr", "1e-2", "--warmup", "0", "--seed", "1"
    rc, said, err = go(*data, "--steps", "10", "--save", state, "--save-every", "2", "--keep", "3")
    check(rc == 0 and sorted(os.listdir(state)) == names(6, 8, 10), "%s %s" % (os.listdir(state), err))
    for k, step in enumerate((6, 8, 10)):
        one, own = os.path.join(folder, "one"), os.path.join(state, "step-%08d" % step)
        rc, said, err = go(*data, "--steps", str(step), "--save", one + str(step))
        check(pieces(own) == pieces(os.path.join(one + str(step), "step-%08d" % step)), "step %d: other bytes" % step)
        rc, said, err = go(*data, "--resume", own, "--steps", "10", "--save", alone + str(step))
        check(rc == 0 and "resumed  %s at step %d" % (own, step) in said, said + err)
        check(k == 2 or pieces(os.path.join(alone + str(step), "step-00000010")) == pieces(os.path.join(state, "step-00000010")), "from step %d: other bytes" % step)
    moved = shutil.copytree(os.path.join(state, "step-00000008"), os.path.join(folder, "moved"))
    rc, said, err = go(*data, "--resume", moved, "--steps", "8", "--save", alone)
    check(rc == 0 and step_of(alone) == 8, err)
    rc, said, err = go(*data, "--resume", state, "--steps", "10", "--save", state, "--keep", "3")
    check(rc == 0 and sorted(os.listdir(state)) == names(6, 8) + ["step-00000010.1"], "saved again: %s" % os.listdir(state))
    rc, said, err = go(*data, "--resume", state, "--steps", "11", "--save", state, "--keep", "2")
    check(rc == 0 and sorted(os.listdir(state)) == ["index.json", "step-00000010.1", "step-00000011"] and step_of(state) == 11, "fewer: %s" % os.listdir(state))
    two = shutil.copytree(state, os.path.join(folder, "two"))
    for more in ["--keep", "1"], []:
        rc, said, err = go(*data, "--resume", two, "--steps", "12", "--save", two, *more)
        told = "two holds 2 states, and --keep is not given: the next save leaves the new one alone; --keep 2 keeps as many" in err
        check(rc == 0 and told == (not more) and sorted(os.listdir(two)) == names(12), "%s %s" % (os.listdir(two), err))
        shutil.rmtree(two)
        shutil.copytree(state, two)
    own = os.path.join(state, "step-00000010.1")
    for args, code, says in ((("--resume", own, "--save", own, "--steps", "12"), 1, "%s is one saved state, of step 10: name another folder with --save, and this one with --resume" % own),
                             (("--resume", own, "--save", state, "--steps", "12"), 1, "%s holds a training state at step 11: go on with --resume %s, or name another folder" % (state, state)),
                             (("--steps", "12", "--keep", "2"), 2, "--keep needs --save DIR"), (("--steps", "2", "--save", alone, "--keep", "0"), 2, "--keep wants a whole number from 1 to 1000, not '0'")):
        rc, _, err = go(*data, *args)
        check(rc == code and says in err, "%s: exit %d: %s" % (args, rc, err))
    with open(os.path.join(own, "rank-1.safetensors"), "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))
    rc, _, err = go(*data, "--resume", own, "--steps", "12")
    check(rc == 1 and "%s/rank-1.safetensors: the bytes of " % own in err and "are not those that were saved" in err, err)


def test_a_log_of_each_rank():
    """What is of all ranks is the same in each log, as in the one log of a run; seconds are the rank's own. A resumed run goes on in each."""
    folder = scratch("ranks")
    state, name, one = os.path.join(folder, "state"), os.path.join(folder, "run-{rank}.jsonl"), os.path.join(folder, "one")
    data = "--data", corpus(), "--val-data", corpus("val", 4000, 5), "--seed", "1", "--eval-every", "2"
    for steps, more in ("4", ("--save", state)), ("6", ("--resume", state, "--report", os.path.join(folder, "run.html"))):
        rc, said, err = go(*data, "--steps", steps, "--log", name, *more)
        check(rc == 0 and said.count("step 4") >= (steps == "4") and not err.replace("gpt2: note: ", ""), said + err)
    go(*data, "--steps", "6", "--log", one)
    check(sorted(os.listdir(folder)) == ["one", "run-0.jsonl", "run-1.jsonl", "run.html", "state"], "%s" % os.listdir(folder))
    starts, lines = [], [read_log(one)]
    for rank in range(2):
        path = name.replace("{rank}", str(rank))
        starts.append([line["rank"] for line in map(json.loads, open(path)) if "model" in line])
        lines.append(read_log(path))
        check(all(0 <= line["input_s"] <= line["seconds"] for line in lines[-1] if "loss" in line), "%s" % lines[-1])
    check(starts == [[0, 0], [1, 1]], "%s" % starts)
    own = "seconds", "tok_s", "input_s"
    same = [[{k: v for k, v in line.items() if k not in own} for line in log] for log in lines]
    check(same[0] == same[1] == same[2] and len(same[0]) == 9, "%s" % same)
    check(lines[1] != lines[2], "times of one rank in both logs")
    rc, _, err = go(*data, "--steps", "1", "--log", name, "--export", name.replace("{rank}", "1"))
    check(rc == 1 and "--log and --export are one file, %s: name another" % name.replace("{rank}", "1") in err, err)
    os.unlink(name.replace("{rank}", "1"))
    os.mkdir(name.replace("{rank}", "1"))
    rc, _, err = go(*data, "--steps", "1", "--log", name)
    check(rc == 1 and "cannot write the log %s: Is a directory" % name.replace("{rank}", "1") in err, err)
