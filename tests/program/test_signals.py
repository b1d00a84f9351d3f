"""What signals ask of a run: SIGINT, SIGTERM and SIGHUP finish the step under way, save it and end, a second one ends at once, SIGUSR1
saves and goes on. Whichever process gets them, one or all, whatever the run is at.

Relies on: harness.py, inject.c, test_launch.py (Ranks). Relied on by: run.py, test_diagnostics.py."""
import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import termios
import time

from harness import HANG, build, check, corpus, in_time, library, must, read_log, read_safetensors, same_run, scratch, steps, until, waits
from test_launch import Ranks

SMALL = dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=32, dropout=0.1)
FOREVER = ["--steps", "1000000"]
INT, TERM, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1
TOLD = "shardc: stopping as soon as the step or save under way is done; another signal stops at once\n"


def program():
    return build("gpt2.lua", world=2, **SMALL)


class Run:
    """A run in a session of its own, its output read line by line."""

    def __init__(self, *args, slow=None, stdin=subprocess.DEVNULL):
        """slow: a function of the C library and the milliseconds that each call of it takes from the first on."""
        env = dict(os.environ)
        self.slowed = os.path.join(scratch("slowed"), "yes")
        if slow:
            env.update(LD_PRELOAD=library("inject"), SHARDC_INJECTED=self.slowed, SHARDC_INJECT="%s:%s:1+:%dms" % (os.path.basename(args[0]), *slow))
        self.p = subprocess.Popen(args, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def ranks(self):
        """The processes that compute."""
        until(lambda: len(open("/proc/%d/task/%d/children" % (self.p.pid, self.p.pid)).read().split()) == 2, "two ranks")
        return [int(k) for k in open("/proc/%d/task/%d/children" % (self.p.pid, self.p.pid)).read().split()]

    def reach(self, pattern):
        """Reads on until a line has it."""
        for line in self.p.stdout:
            if re.search(pattern, line.decode()):
                return
        check(False, "no '%s': %s" % (pattern, self.p.stderr.read().decode()))

    def get_slow(self):
        until(lambda: os.path.exists(self.slowed), "a slow call")

    def end(self, code, says, err="", within=HANG):
        """What is printed from here on, all of it or its end. Standard input stays open."""
        start = time.time()
        stdin, self.p.stdin = self.p.stdin, None
        try:
            out, said = [x.decode() for x in self.p.communicate(timeout=within)]
        except subprocess.TimeoutExpired:
            os.killpg(self.p.pid, signal.SIGKILL)
            check(False, "still running after %g s" % within)
        self.p.stdin = stdin
        check(self.p.returncode == code and re.search("(^|\n)" + says + r"\Z", out) and err in (said, in_time(said)), "%s: exit %d: %s%s" % (says, self.p.returncode, out, said))
        return out, time.time() - start


def state_of(folder):
    index = json.load(open(os.path.join(folder, "index.json")))
    check(sorted(os.listdir(folder)) == sorted([index["folder"], "index.json"]), "left: %s" % os.listdir(folder))
    return index


def whole_state(out, state):
    """The step that the run says it has stopped at and saved is the one that is there."""
    stopped, saved = [int(re.search(p, out).group(1)) for p in (r"stopped at step (\d+)\n", r"saved \S+ at step (\d+)\n\Z")]
    check(stopped == saved == state_of(state)["step"] > 0, "stopped at %d, saved at %d, there is %s" % (stopped, saved, state_of(state)))
    return stopped


def run_and_resume(name, send):
    """A run that `send` stops, resumed for two steps: its output, its log, its weights."""
    folder, b = scratch(name), program()
    log, weights, state = [os.path.join(folder, n) for n in ("log", "weights", "state")]
    r = Run(b, "--data", corpus(), *FOREVER, "--save", state, "--log", log)
    r.ranks()
    r.reach("^step +1/")
    code = send(r)
    out, _ = r.end(code, r"stopped at step \d+\nsaved \S+ at step \d+\n")
    last = whole_state(out, state) + 2
    must([b, "--data", corpus(), "--steps", str(last), "--resume", state, "--log", log, "--export", weights])
    return last, (read_log(log), read_safetensors(weights))


@waits
def test_a_lost_terminal():
    """A run whose terminal goes saves and stops, though nobody reads what it prints; with nohup it goes on."""
    state, master, slave = os.path.join(scratch("terminal"), "state"), *pty.openpty()
    args = [program(), "--data", corpus(), *FOREVER, "--save", state, "--save-every", "1"]

    def on_the_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever our own nohup has made of it
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    p = subprocess.Popen(args, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=on_the_terminal)
    os.close(slave)
    until(lambda: os.path.exists(os.path.join(state, "index.json")), "a saved state")
    os.close(master)
    check(p.wait(timeout=HANG) == 129, "exit %d, not 129" % p.returncode)
    last = state_of(state)["step"]
    r = Run("nohup", *args[:-4], "--resume", state, "--save", state)
    r.reach("step +%d/" % (last + 1))
    os.killpg(r.p.pid, signal.SIGHUP)
    for _ in range(3):
        r.reach("step +")
    r.p.send_signal(TERM)
    r.end(143, r"stopped at step \d+\nsaved .*state at step \d+\n")
    check(state_of(state)["step"] > last, "nothing new is saved")


@waits
def test_whoever_gets_it():
    """The launcher, a terminal's group of processes, one rank alone, and `timeout`, which sends it twice."""
    def to_launcher(r):
        r.p.send_signal(TERM)
        return 143

    def to_all(r):
        os.killpg(r.p.pid, INT)
        return 130

    def to_one_rank(r):
        os.kill(r.ranks()[1], TERM)
        return 143

    def twice(r):
        r.p.send_signal(TERM)
        time.sleep(0.01)
        os.killpg(r.p.pid, TERM)
        return 143
    ways = (to_launcher, to_all, to_one_rank, twice)
    ran = [(way.__name__, *run_and_resume("signalled", way)) for way in ways]
    folder = scratch("whole")
    for name, last, resumed in ran[:2]:
        log, weights = os.path.join(folder, "log"), os.path.join(folder, "weights")
        must([program(), "--data", corpus(), *FOREVER[:1], str(last), "--log", log, "--export", weights, "--total", FOREVER[1]])
        same_run(resumed, (read_log(log), read_safetensors(weights)), name)
    for name, last, (log, _) in ran:
        check([s["step"] for s in steps(log)] == list(range(1, last + 1)), name + ": steps are missing in the log")
        check(all(s["tokens"] == s["step"] * 2 * 2 * 32 for s in steps(log)), name + ": tokens")
    return "%d ways, stopped at steps %s" % (len(ran), [last - 2 for _, last, _ in ran])


@waits
def test_launchers():
    """Every launcher: to all processes of all ranks, to one rank's process alone, to the process that computes."""
    b = build("mlp.lua", world=3)
    for launcher, kind, whom in ("torchrun", TERM, "all"), ("srun", TERM, "all"), ("mpirun", INT, "processes"), ("torchrun", TERM, 1), ("srun", INT, "rank"), ("mpich", TERM, 0):
        state = os.path.join(scratch("launched"), "state")
        ranks = Ranks(launcher, [b] * 3, "--data", corpus(), *FOREVER, "--save", state)
        children = {k: ranks.child(k) for k in ranks.all}
        until(lambda: ranks.all[0].stdout.readline().startswith(b"step"), "the first step")
        for k, p in ranks.all.items():
            if whom in ("all", "processes", k):
                os.kill(p.pid, kind)
            if whom == "all" or (whom == "rank" and k == 1):
                os.kill(children[k], kind)
        codes, outs, err = ranks.wait()
        what = "%s, signal %d to %s" % (launcher, kind, whom)
        check(codes == [128 + kind] * 3 and not err and not outs[1] and not outs[2], "%s: exit %s: %s%s" % (what, codes, outs, err))
        whole_state(outs[0], state)
    return "torchrun, srun, mpirun (OpenMPI, MPICH)"


@waits
def test_while_a_state_is_saved():
    """A first signal lets the save end; a second one leaves the state before. Neither is saved twice."""
    b, folder = program(), scratch("saving")
    state = os.path.join(folder, "state")
    must([b, "--data", corpus(), "--steps", "2", "--save", state])
    go = [b, "--data", corpus(), *FOREVER, "--resume", state, "--save", state, "--save-every", "2"]
    for second in True, False:
        r = Run(*go, slow=("fsync", 1000 * HANG if second else 1500))
        r.get_slow()
        os.killpg(r.p.pid, TERM)
        if not second:
            r.end(143, r"stopped at step 4\nsaved \S+ at step 4\n", TOLD)
            continue
        check(r.p.stderr.readline().decode() == TOLD, "the run does not say what a second signal does")
        os.killpg(r.p.pid, TERM)
        r.end(143, r"stopped at step 4\n", within=HANG / 2)
        check(json.load(open(os.path.join(state, "index.json")))["step"] == 2, "the state before is gone")
    check(state_of(state)["step"] == 4, "another state")
    must([b, "--data", corpus(), "--steps", "5", "--resume", state])


@waits
def test_save_and_go_on():
    b, state = program(), os.path.join(scratch("usr1"), "state")
    for whom in "launcher", "all", "rank":
        r = Run(b, "--data", corpus(), *FOREVER, "--save", state, *(["--resume", state] if os.path.exists(state) else []))
        ranks = r.ranks()
        r.reach("^step ")
        for pid in [r.p.pid] * (whom != "rank") + (ranks if whom == "all" else ranks[1:] if whom == "rank" else []):
            os.kill(pid, USR1)
        r.reach(r"^saved \S+ at step [1-9]")
        saved = state_of(state)["step"]
        r.reach(r"^step ")
        os.kill(r.p.pid, INT)
        out, _ = r.end(130, r"stopped at step \d+\nsaved \S+ at step \d+\n")
        check(whole_state(out, state) > saved and out.count("saved") == 1, "%s: %s" % (whom, out))
    r = Run(b, "--data", corpus(), *FOREVER)
    r.reach("^step ")
    for k in range(2):
        os.killpg(r.p.pid, USR1)
        r.reach("^step ")
        time.sleep(1.1)
    r.p.send_signal(TERM)
    r.end(143, r"stopped at step \d+\nnothing is saved without --save DIR\n", "%s: note: SIGUSR1 asks to save, and there is no --save DIR: nothing is saved, the run goes on\n" % "gpt2")


def records(n):
    return [b"".join((17 * k + 3 * i % 200 & 127).to_bytes(4, "little") for i in range(2 * 2 * 2 * 32)) for k in range(n)]


@waits
def test_while_ranks_wait_for_records():
    """Half a record has come. A request to save is met, and none of its bytes are lost; one to stop does not wait for the rest."""
    b, folder, all = program(), scratch("records"), records(6)
    state, whole, parts = [os.path.join(folder, n) for n in ("state", "whole", "parts")]
    go = [b, "--data", "-", "--steps", "6", "--seed", "3"]
    check(subprocess.run([*go, "--log", whole], input=b"".join(all), capture_output=True).returncode == 0, "a plain run")

    def begin(*more):
        r = Run(*go, "--log", parts, "--save", state, *more, stdin=subprocess.PIPE)
        r.p.stdin.write(all[0] + all[1] + all[2][:100])
        r.p.stdin.flush()
        r.reach("^step +2/")
        return r
    r = begin()
    os.kill(r.ranks()[1], TERM)
    _, seconds = r.end(143, r"stopped at step 2\nsaved \S+ at step 2\n")
    check(subprocess.run([*go, "--log", parts, "--resume", state], input=b"".join(all), capture_output=True).returncode == 0, "a resumed run")
    check([s["loss"] for s in read_log(whole)] == [s["loss"] for s in read_log(parts)], "resumed: other losses")
    state = os.path.join(folder, "other")
    r = begin()
    os.kill(r.ranks()[1], USR1)
    r.reach("^saved .* at step 2$")
    r.p.stdin.write(all[2][100:] + b"".join(all[3:]))
    r.p.stdin.flush()
    r.end(0, r"step +6/6.*\n")
    check([s["loss"] for s in read_log(whole)] == [s["loss"] for s in read_log(parts)], "saved on the way: other losses")
    r = Run(*go, "--save", os.path.join(folder, "none"), stdin=subprocess.PIPE)
    r.reach("^data ")
    time.sleep(0.3)
    r.p.send_signal(TERM)
    r.end(143, r"stopped at step 0\n")
    check(not os.path.exists(os.path.join(folder, "none", "index.json")), "a state without a step")
    return "a stop took %.1f s" % seconds


@waits
def test_before_the_first_step():
    """While a state is read there is nothing to save: the run ends at once, and the state stays."""
    b, state = program(), os.path.join(scratch("before"), "state")
    must([b, "--data", corpus(), "--steps", "2", "--save", state])
    r = Run(b, "--data", corpus(), *FOREVER, "--resume", state, "--save", state, slow=("pread", 200))
    r.ranks()
    r.get_slow()
    r.p.send_signal(TERM)
    r.end(143, r"stopped at step 2\n")  # one that began to train would save
    check(state_of(state)["step"] == 2, "another state")


@waits
def test_after_the_last_step():
    """Validation and samples end early; what was to be written is written."""
    b, folder = program(), scratch("after")
    state, weights = os.path.join(folder, "state"), os.path.join(folder, "weights")
    r = Run(b, "--data", corpus(), "--steps", "1", "--save", state, "--export", weights, "--val-data", corpus(size=2000000, seed=2), "--eval-steps", "0")
    r.reach("^step +1/")
    r.p.send_signal(TERM)
    out, seconds = r.end(143, r"stopped at step 1\nsaved \S+ at step 1\n")
    check("val_loss" not in out and len(read_safetensors(weights)) > 5 and state_of(state)["step"] == 1, out)
    r = Run(b, "--resume", state, "--sample", "1000000", "--sample-format", "ids")
    r.reach("^resumed ")
    time.sleep(0.5)
    r.p.send_signal(INT)
    out, _ = r.end(130, r"[\d ]+\nstopped at step 1\n")


@waits
def test_the_watchdog_sees_who_does_not_come():
    """One rank stands still while the other one waits for it, to stop together."""
    r = Run(program(), "--data", corpus(), *FOREVER, "--stall-seconds", "5")
    ranks = r.ranks()
    r.reach("^step ")
    os.kill(ranks[1], signal.SIGSTOP)
    os.killpg(r.p.pid, TERM)
    out, err = r.p.communicate(timeout=HANG)
    check(r.p.returncode == 3 and b"rank 1's process %d is stopped (SIGSTOP)" % ranks[1] in err, "exit %d: %s" % (r.p.returncode, err))
