"""States that are saved in the background: their bits are those of their step, training goes on meanwhile, nothing is allocated, and
whatever ends the run, what is there is whole.

Relies on: harness.py, inject.c, test_failures.py (inject), test_signals.py (Run). Relied on by: run.py, test_diagnostics.py."""
import errno
import json
import os
import random
import re
import signal
import subprocess
import time

from harness import HANG, MANY, build, check, command, corpus, must, read_log, read_safetensors, scratch, steps, train, until, waits
from test_failures import inject
from test_signals import FOREVER, TOLD, Run

SMALL = dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=32, dropout=0.1)
BACKGROUND = "--save-in-background", "--save-every"


def program():
    return build("gpt2.lua", world=2, **SMALL)


def step_of(folder):
    index = os.path.join(folder, "index.json")
    return json.load(open(index))["step"] if os.path.exists(index) else 0


def files(folder):
    return {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))}


def test_the_bits_are_those_of_the_step():
    """Each state, its files' heads and its run's id are those that a save in the foreground writes; --redzones, and nothing is allocated."""
    folder, b = scratch("bits"), program()
    plain, beside = os.path.join(folder, "plain"), os.path.join(folder, "beside")
    data = "--data", corpus(), "--seed", "1", "--steps", "9", "--keep", "4"
    must([b, *data, "--save", plain, "--save-every", "2"])
    out = train(b, *data, "--save", beside, *BACKGROUND, "2")
    check(sorted(os.listdir(plain)) == sorted(os.listdir(beside)) and len(os.listdir(plain)) == 5, "%s and %s" % (os.listdir(plain), os.listdir(beside)))
    for name in os.listdir(plain):
        check(name == "index.json" or files(os.path.join(plain, name)) == files(os.path.join(beside, name)), name)
    most = max(sum(len(data) for _, _, data in read_safetensors(os.path.join(beside, "step-00000009", "rank-%d.safetensors" % k)).values()) for k in range(2))
    told = re.search(r"^copy +([\d,]+) B more of host memory on a rank, for the state that is saved in the background$", out, re.M)
    check(told and int(told.group(1).replace(",", "")) == most, "%s, and a rank has %d bytes" % (told and told.group(), most))
    rc, _, err = command([b, *data[:6], "--save-in-background"])
    check(rc == 2 and "--save-in-background needs --save DIR" in err, err)
    return "a copy of %d bytes" % most


@waits
def test_training_goes_on_meanwhile():
    """While a disk takes long for each fsync, steps are made; the save that follows waits; SIGTERM and the last step wait for the
    save under way, SIGKILL leaves the state before."""
    folder, b = scratch("meanwhile"), program()
    state, log = os.path.join(folder, "state"), os.path.join(folder, "log")
    must([b, "--data", corpus(), "--steps", "2", "--save", state])
    go = [b, "--data", corpus(), *FOREVER, "--resume", state, "--save", state, *BACKGROUND, "2", "--log", log]
    for end in signal.SIGKILL, signal.SIGTERM:
        r = Run(*go, slow=("fsync", 1000 * HANG if end == signal.SIGKILL else 1000))
        r.get_slow()
        until(lambda: any(line["step"] == 6 for line in steps(read_log(log))), "steps while a state is written")
        check(step_of(state) == 2, "a state that is not whole is named")
        if end == signal.SIGKILL:
            time.sleep(0.3)
            check(max(line["step"] for line in steps(read_log(log))) == 6, "the next save does not wait for the one before")
            os.killpg(r.p.pid, end)
            r.p.communicate(timeout=HANG)
            check(step_of(state) == 2, "another state")
            continue
        os.killpg(r.p.pid, end)
        out, _ = r.end(143, r"stopped at step 6\nsaved \S+ at step 6\n", TOLD)
        check(step_of(state) == 6 and sorted(os.listdir(state)) == ["index.json", "step-00000006"], "%s: %s" % (out, os.listdir(state)))
    r = Run(*go[:2], corpus(), "--steps", "8", *go[5:], slow=("fsync", 300))
    r.end(0, "")
    check(step_of(state) == 8, "the last step's save is not waited for")


@waits
def test_failures_are_told():
    """Of the first save, some steps later; the next one tries again, and the last one decides. A thread that cannot be started is
    told before the first step."""
    folder, b = scratch("told"), build("gpt2.lua", world=1, **SMALL)
    go = [b, "--data", corpus(), "--steps", "40", *BACKGROUND, "10", "--quiet"]
    for function, code in ("mkdir", errno.ENOSPC), ("write", errno.ENOSPC), ("fsync", errno.EIO), ("rename", errno.EDQUOT):
        seen = set()
        for n in range(1, 40):
            if "10" in seen:
                break
            state = os.path.join(folder, "%s%d" % (function, n))
            called, rc, err = inject([*go, "--save", state], function, n, code)
            check(called, "%s %d was not called" % (function, n))
            if rc == 0:
                check(step_of(state) == 40 and len(os.listdir(state)) == 2, "%s %d left %s" % (function, n, os.listdir(state)))
                note = r"gpt2: note: step (\d+): cannot save to \S+: %s; .*; the run goes on, and the next save tries again\ngpt2: note: saved \S+ at step (\d+), after 1 failed save\n"
                told = re.fullmatch("(%s)?" % note % os.strerror(code), err)
                check(told and (not told.group(1) or int(told.group(3)) == min(40, int(told.group(2)) + 10)), "%s %d: %s" % (function, n, err))
                seen.add(told.group(2))
            else:
                check(rc == 1 and len(err.splitlines()) == 1, "%s %d: exit %d: %s" % (function, n, rc, err))
        check("10" in seen, "%s failed at steps %s" % (function, seen))
    for n in range(1, 30):
        called, rc, err = inject([*go, "--save", os.path.join(folder, "thread%d" % n)], "pthread_create", n, errno.EAGAIN)
        if not called or "--save-in-background: cannot start a thread: " in err:
            break
        check(rc == 1 and "cannot start a thread" in err, err)
    check(rc == 1 and err == "gpt2: --save-in-background: cannot start a thread: %s; leave it out, or allow more threads\n" % os.strerror(errno.EAGAIN), err)


@waits
def test_signals_wait_for_it():
    """SIGUSR1 saves the step under way, waits until it is whole and says so."""
    b, state = program(), os.path.join(scratch("usr1"), "state")
    r = Run(b, "--data", corpus(), *FOREVER, "--save", state, *BACKGROUND, "7")
    for _ in range(3):
        r.reach("^step ")
        time.sleep(1.1)  # later than signals that count as one
        os.kill(r.p.pid, signal.SIGUSR1)
        r.reach(r"^saved \S+ at step [1-9]")
    os.kill(r.p.pid, signal.SIGINT)
    r.end(130, r"stopped at step \d+\nsaved \S+ at step \d+\n")


@waits
def test_killed_at_random():
    """--keep 3 and saves in the background: killed 20 times at random, the run ends with the bits of one that nobody has touched,
    and each state that is there can be resumed."""
    folder, b, random_ = scratch("random"), program(), random.Random(1)
    whole, state, log = [os.path.join(folder, n) for n in ("whole", "state", "log")]
    go, last, kills, left = [b, "--data", corpus(), "--seed", "1", "--quiet"], 100000000, 0, set()
    while kills < 20:
        before = step_of(state)
        p = subprocess.Popen([*go, "--steps", str(last), "--continue", state, "--keep", "3", *BACKGROUND, "1", "--log", log], start_new_session=True, stderr=subprocess.PIPE)
        until(lambda: step_of(state) > before, "a saved state")
        time.sleep(random_.random() * 0.2)
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate(timeout=MANY)
        kills += 1
        left |= {re.sub(r"\d+", "N", name) for name in os.listdir(state)}
    last = step_of(state) + 3
    must([*go, "--steps", str(last), "--continue", state, "--keep", "3", *BACKGROUND, "1", "--log", log])
    must([*go, "--steps", str(last), "--save", whole, "--log", log + "2"])
    same = [read_safetensors(os.path.join(d, "step-%08d" % last, "rank-%d.safetensors" % k)) for d in (state, whole) for k in range(2)]
    check(same[:2] == same[2:], "other bits")
    losses = [[(line["step"], line["loss"]) for line in steps(read_log(path))] for path in (log, log + "2")]
    check(losses[0] == losses[1], "other losses")
    there = sorted(os.listdir(state))
    check(there == ["index.json"] + ["step-%08d" % s for s in range(last - 2, last + 1)], "left %s" % there)
    for name in there[1:]:
        must([*go, "--steps", str(last), "--resume", os.path.join(state, name)])
    return "%d steps, %d kills, leaving %s" % (last, kills, ", ".join(sorted(left)))
