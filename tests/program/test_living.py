"""What people have around a run: early stopping, a limit of time, validation alone.

Relies on: harness.py, models/gpt2.lua. Relied on by: run.py, test_diagnostics.py."""
import os
import time

from harness import build, check, command, corpus, read_log, scratch

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


def test_a_limit_of_time_saves():
    folder = scratch("limit")
    state = os.path.join(folder, "state")
    begin = time.time()
    rc, said, err = go("--data", corpus(), "--steps", "100000000", "--seed", "1", "--lr", "1e-3", "--warmup", "0", "--save", state, "--time-limit", str(1 / 3600))
    check(rc == 143 and "stopped at step" in said + err and time.time() - begin >= 1, "exit %d: %s%s" % (rc, said[-500:], err))
    rc, said, err = go("--data", corpus(), "--steps", "100000000", "--resume", state, "--time-limit", str(0.1 / 3600), "--save", state)
    check(rc == 143 and "resumed" in said, "exit %d: %s%s" % (rc, said[-500:], err))
