"""What a run writes beside its state never ends it: a full disk, a pipe that nobody reads, a closed standard output. It is said once
when it happens and once at the end, the state is saved, and the exit code is 0. What a program writes has its name when it is whole.

Relies on: harness.py, inject.c, test_failures.py (inject), test_launch.py (Ranks). Relied on by: run.py, test_diagnostics.py."""
import errno
import itertools
import json
import os
import re
import resource
import signal
import subprocess

from harness import ROOT, SHARDC, build, check, corpus, library, must, read_safetensors, scratch, shardc, waits
from test_failures import inject
from test_launch import Ranks

SMALL = dict(layers=1, dim=16, heads=2, vocab=256, batch=2, seq=16)


def program():
    return build("gpt2.lua", world=2, **SMALL)


def lost(what, why, end, more=""):
    """Both lines about one output."""
    return ["shardc: cannot write %s: %s; the run goes on without it%s" % (what, why, more), "shardc: %s %s: %s" % (what, end, why)]


def same_state(b, state, args):
    """What a run without trouble exports."""
    folder = scratch("same")
    exported = [os.path.join(folder, n) for n in ("whole", "resumed")]
    must([b, *args, "--export", exported[0]])
    must([b, "--resume", state, "--export", exported[1]])
    check(read_safetensors(exported[0]) == read_safetensors(exported[1]), "another state")


def test_a_full_disk():
    """Of every output beside the state, and of several at once; under a launcher too, where the process of rank 0 alone prints."""
    b, full, log = program(), "/dev/full", os.path.join(scratch("log"), "log")
    go = ["--data", corpus(), "--steps", "6"]
    room = "No space left on device"
    outputs = [(["--log", full], lost("the log /dev/full", room, "lacks lines")), (["--trace", full], lost("the trace /dev/full", room, "was not written")),
               (["--dump", "*", "--at-step", "3", "-o", full], lost("the dump /dev/full", room, "was not written")),
               ([], lost("standard output", room, "lacks lines"))]
    outputs.append((sum([args for args, _ in outputs], []), sum([said for _, said in outputs], [])))
    for more, said in outputs:
        for launched in (False, True) if more == outputs[-1][0] else (False,):
            state = os.path.join(scratch("full"), "state")
            args = [*go, "--save", state, *more]
            prints = said[0].startswith("shardc: cannot write standard") or more == outputs[-1][0]
            if launched:
                codes, _, err = Ranks("torchrun", [b] * 2, *args, "--quiet").wait()
                said = [line for line in said if "standard output" not in line]
            else:
                with open(full if prints else os.devnull, "w") as to:
                    p = subprocess.run([b, *args], stdout=to, stderr=subprocess.PIPE, text=True, timeout=60)
                codes, err = [p.returncode], p.stderr
            check(set(codes) == {0} and sorted(err.splitlines()) == sorted(said), "%s: exit %s: %s" % (more, codes, err))
            same_state(b, state, go)
    p = subprocess.Popen([b, *go, "--steps", "400", "--log", log, "--save", os.path.join(scratch("pipe"), "state")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    p.stdout.readline()
    p.stdout.close()
    err = p.stderr.read()
    check(p.wait(60) == 0 and err.splitlines() == lost("standard output", "Broken pipe", "lacks lines"), "a reader that goes: exit %d: %s" % (p.returncode, err))
    check(len(open(log).read().splitlines()) == 402, "the log lacks lines")
    return "%d ways" % (len(outputs) + 2)


def test_a_disk_that_has_room_again():
    """Lines of a log that do not fit are left out, none is cut; the report is made of those that are there."""
    b, folder = program(), scratch("room")
    log, report, state = [os.path.join(folder, n) for n in ("log", "report", "state")]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40000, resource.RLIM_INFINITY))  # of the report, and 200 lines of a log
    p = subprocess.run([b, "--data", corpus(), "--steps", "300", "--log", log, "--report", report, "--save", state, "--quiet"], stderr=subprocess.PIPE, text=True, preexec_fn=limit, timeout=60)
    said = lost("the log " + log, "File too large", "lacks lines") + lost("the report " + report, "File too large", "lacks the end of the run", ", and `shardc report` makes one of the log")
    ours = [line for line in p.stderr.splitlines() if "state" not in line]
    check(sorted(ours) == sorted(said), p.stderr)
    check(p.returncode == 1 and "cannot save to %s: File too large; nothing was left there" % state in p.stderr, "exit %d: %s" % (p.returncode, p.stderr))
    lines = open(log).read().splitlines()
    check(50 < len(lines) < 301 and all(json.loads(line) for line in lines), "%d lines" % len(lines))
    shardc("report", log, "-o", report)


@waits
def test_a_state_that_cannot_be_saved():
    """Each save is tried, whatever became of the one before; the last one decides how the run ends."""
    b, folder = program(), scratch("save")
    go = [b, "--data", corpus(), "--steps", "6", "--save-every", "1", "--quiet"]
    first = {}
    for function, error in (("write", errno.ENOSPC), ("fsync", errno.EIO), ("rename", errno.EDQUOT)):
        for n in itertools.count(1):
            state = os.path.join(folder, "%s%d" % (function, n))
            called, rc, err = inject([*go, "--save", state], function, n, error)
            if not called or n > 8:
                break
            index = json.load(open(os.path.join(state, "index.json"))) if os.path.exists(os.path.join(state, "index.json")) else None
            if rc == 0:
                check(index["step"] == 6 and sorted(os.listdir(state)) == sorted(["index.json", index["folder"]]), "%s %d left %s" % (function, n, os.listdir(state)))
                failed = r"gpt2: note: step \d: cannot save to \S+: .*; the run goes on, and the next save tries again\n"
                check(re.fullmatch(r"((%s)+gpt2: note: saved \S+ at step \d, after \d+ failed saves?\n)*" % failed, err), "%s %d: %s" % (function, n, err))
            else:
                check(rc == 1 and len(err.splitlines()) == 1, "%s %d: exit %d: %s" % (function, n, rc, err))
            first.setdefault(function, []).append(rc)
    check(all(0 in codes for codes in first.values()), "ended: %s" % first)
    return "%s" % first


@waits
def test_a_trace_is_whole_or_not_there():
    """Every process of the run is killed before each call that may write."""
    b, folder = program(), scratch("trace")
    trace = os.path.join(folder, "trace.json")
    go = [b, "--data", corpus(), "--steps", "40", "--trace", trace, "--quiet"]
    kills = 0
    for function in "write", "fsync", "rename", "close":
        for n in itertools.count(1):
            with open(trace, "w") as f:
                f.write("old")
            called, rc, err = inject(go, function, n, -signal.SIGKILL)
            text = open(trace).read()
            check(text == "old" or json.loads(text)[-1]["name"] == "end", "%s %d: a cut trace" % (function, n))
            check(rc or text != "old", "%s %d: exit 0 without a trace" % (function, n))
            kills += called
            if not called or n > 12:
                break
    check(set(os.listdir(folder)) <= {"trace.json", "trace.json.part"}, "left %s" % os.listdir(folder))
    must(go)
    check(os.listdir(folder) == ["trace.json"], "left %s" % os.listdir(folder))
    return "%d kills" % kills
