"""Damaged and hostile files: models, plans, binaries, weights, checkpoints and token files with bytes and words changed at
random. Whatever they are, the answer is an exit code and, when it is not 0, a message: no crash, no endless run.

Relies on: harness.py. Relied on by: run.py, test_diagnostics.py, test_sanitizers.py."""
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess

from harness import HANG, ROOT, SHARDC, build, check, command, corpus, in_time, must, scratch, settings, shardc, trains, until, waits

MODELS = [os.path.join(ROOT, "models", n) for n in ("mlp.lua", "gpt2.lua")]
SMALL = dict(layers=1, dim=16, heads=2, vocab=256, batch=2, seq=16)
SETS = settings(SMALL)
WORDS = [b"nil", b"0", b"-1", b"1e308", b"9223372036854775807", b"{}", b'""', b"x", b"nn", b"function() end", b"(", b")", b"\0", b"\xff", b"..", b"%",
         b"[1]", b"~", b"//", b"0/0", b"1/0", b"require 'nn'", b"error {}", b"self", b"true"]
NUMBERS = [b"0", b"-1", b"1", b"2147483647", b"2147483648", b"4294967296", b"9007199254740993", b"1e300", b"0.5", b'"1"', b"null", b"[]", b"{}"]


def answer(args, what, codes=(0, 1), **kw):
    try:
        rc, out, err = command(args, **kw)
    except subprocess.TimeoutExpired:
        check(False, "%s: still running after a minute" % what)
    check(rc in codes and (rc == 0 or (err + out).strip()), "%s: exit %d from %s\n%s" % (what, rc, " ".join(args), err[-2000:]))
    return rc, err


def changed(r, blob, words, tokens):
    """One to three changes: a token replaced by a word, a piece cut out, doubled or moved, a byte flipped."""
    for _ in range(r.randrange(1, 4)):
        way = r.randrange(6)
        a = r.randrange(len(blob) + 1)
        b = min(len(blob), a + r.randrange(1, 60))
        if way < 3:
            found = list(re.finditer(tokens, blob))
            if found:
                m = r.choice(found)
                blob = blob[:m.start()] + r.choice(words) + blob[m.end():]
        elif way == 3:
            blob = blob[:a] + blob[b:]
        elif way == 4:
            at = r.randrange(len(blob) + 1)
            blob = blob[:at] + blob[a:b] + blob[at:]
        elif a < len(blob):
            blob = blob[:a] + bytes([blob[a] ^ 1 << r.randrange(8)]) + blob[a + 1:]
    return blob


def rounds(name, seed, n):
    """Numbered generators: a failing round can be run alone."""
    for k in range(n):
        yield "%s, round %d" % (name, k), random.Random("%s %d %d" % (name, seed, k))


def test_models():
    folder, refused = scratch("hostile-models"), 0
    path = os.path.join(folder, "model.lua")
    for model in MODELS:
        text = open(model, "rb").read()
        for what, r in rounds(os.path.basename(model), 1, 120):
            open(path, "wb").write(changed(r, text, WORDS, rb"[A-Za-z_.0-9]+|[^\sA-Za-z_.0-9]"))
            rc, err = answer([SHARDC, "predict", path], what)
            check(rc == 0 or re.match(r"%s:\d+: |%s: |shardc: " % (path, path), err), what + ": no file and line in " + err)
            refused += rc
    return "240 models, %d refused" % refused


def test_plans_and_binaries():
    folder, refused = scratch("hostile-plans"), 0
    plan, path = shardc("inspect", MODELS[0], "--world", "2", "--format", "json").encode(), os.path.join(folder, "plan")
    binary = open(build("mlp.lua", world=2), "rb").read()
    at = binary.index(b"SHARDC_PLAN_BEGIN")
    end = binary.index(b"SHARDC_PLAN_END") + 20
    for what, r in rounds("plan", 1, 150):
        bad = changed(r, plan, NUMBERS, rb"-?[0-9.]+|\"[^\"]*\"|true|false")
        open(path, "wb").write(bad if r.randrange(3) else b"\x7fELF" + changed(r, binary[at - 20:end], NUMBERS, rb"[0-9]+"))
        for c in ("predict", "inspect", "verify"):
            refused += answer([SHARDC, c, path], what)[0]
    return "450 commands, %d refused" % refused


def state_of(folder, binary):
    state, weights = os.path.join(folder, "state"), os.path.join(folder, "weights.safetensors")
    must([binary, "--data", corpus(), "--steps", "1", "--save", state, "--export", weights])
    return state, weights


def test_weights_and_checkpoints():
    folder, binary, refused = scratch("hostile-state"), build("gpt2.lua", world=2, **SMALL), 0
    state, weights = state_of(folder, binary)
    files = [os.path.join(d, f) for d, _, fs in os.walk(state) for f in sorted(fs)] + [weights]
    how = ["--resume", state, "--steps", "2"], ["--weights", weights, "--steps", "1"]
    for what, r in rounds("state", 1, 60):
        path = r.choice(files)
        whole = open(path, "rb").read()
        head = whole if path.endswith(".json") else whole[:8 + int.from_bytes(whole[:8], "little")]
        bad = changed(r, head, NUMBERS, rb"[0-9]+|\"[^\"]*\"")
        if r.randrange(2) and not path.endswith(".json"):  # the length in front still fits
            bad = (len(bad) - 8).to_bytes(8, "little") + bad[8:]
        open(path, "wb").write(bad + whole[len(head):])
        refused += answer([binary, "--data", corpus(), *how[path == weights]], what, (0, 1, 3))[0] != 0
        open(path, "wb").write(whole)
    for sound in how:
        must([binary, "--data", corpus(), *sound])
    return "60 starts, %d refused" % refused


def test_token_files():
    folder, binary, refused = scratch("hostile-bin"), build("gpt2.lua", **SMALL), 0
    whole, path = open(corpus(), "rb").read(), os.path.join(folder, "train.bin")
    for what, r in rounds("bin", 1, 60):
        blob = bytearray(whole[:r.choice([0, 3, 12, 1023, 1024, 1026, 1100, 5000, 9000])])
        for _ in range(r.randrange(3)):
            at = r.randrange(16)
            if at < len(blob):
                blob[at] = r.randrange(256)
        open(path, "wb").write(blob)
        more = r.choice([[], ["--data-dtype", "uint16"], ["--data-dtype", "uint32"]])
        refused += answer([binary, "--data", path, *more, "--steps", "1", "--quiet"], what)[0]
    open(path, "wb").write(whole)
    must([binary, "--data", path, "--steps", "1", "--quiet"])
    return "60 files, %d refused" % refused


@waits
def test_interrupted():
    """Ctrl-C and a kill in the middle of training and saving leave whole files: the checkpoint resumes."""
    folder, binary = scratch("hostile-kill"), build("gpt2.lua", world=2, **SMALL)
    state = os.path.join(folder, "state")
    args = [binary, "--data", corpus(), "--save", state, "--quiet"]
    must([*args, "--steps", "2"])
    for k, kind in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGKILL) * 4):
        p = subprocess.Popen([*args, "--resume", state, "--steps", "1000000", "--save-every", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            p.wait(0.2 + 0.05 * k)
        except subprocess.TimeoutExpired:
            p.send_signal(kind)
        try:
            p.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            p.kill()
            check(False, "still running long after %s" % kind)
        code = p.returncode
        check(code in (-kind, 128 + kind, 1, 3), "ended by %s: exit %d" % (kind, code))
        must([*args, "--resume", state, "--steps", "1"])
        check(len(os.listdir(state)) == 2, "left in the folder: %s" % os.listdir(state))
    shutil.rmtree(folder)
    return "12 runs ended by a signal, all resumed, leaving nothing else"


@waits
def test_interrupted_run_says_how_far_it_came():
    binary, state = build("gpt2.lua", world=2, **SMALL), os.path.join(scratch("hostile-stop"), "state")
    ends = (([], r"stopped at step [1-9]\d*\nnothing is saved without --save DIR\n"), (["--save", state, "--save-every", "2"], r"stopped at step ([1-9]\d*)\nsaved %s at step \1\n" % state))
    for kind, (more, end) in itertools.product((signal.SIGINT, signal.SIGTERM), ends):
        shutil.rmtree(state, ignore_errors=True)
        p = subprocess.Popen([binary, "--data", corpus(), "--steps", "100000000", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        shown = ""
        while not re.search("^step +1/", shown, re.M) and p.poll() is None:
            shown += p.stdout.readline()
        until(lambda: p.poll() is not None or not more or os.path.exists(os.path.join(state, "index.json")), "a state")
        if more:
            rc, _, said = command([binary, "--data", corpus(), "--steps", "1", "--resume", state, "--save", state])
            check(rc == 1 and "another run saves to %s: wait for it, or name another folder" % state in said, "a second run: exit %d: %s" % (rc, said))
        p.send_signal(kind)
        try:
            out, err = p.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            p.kill()
            check(False, "still running long after %s" % kind)
        check(p.returncode == 128 + kind and not in_time(err) and re.search(end + r"\Z", out), "%s: exit %d: %s%s" % (kind, p.returncode, out, err))


@waits
def test_stopped_rank():
    """A rank that stands still (SIGSTOP) ends the run: every rank's event and who is behind are reported in one piece, exit 3."""
    binary = build("mlp.lua", world=2)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # a message a write
    log = os.path.join(scratch("hostile-stopped"), "log")
    p = subprocess.Popen([binary, "--data", corpus(), "--steps", "100000000", "--stall-seconds", "5", "--quiet", "--log", log],
                         stdout=subprocess.DEVNULL, stderr=theirs)
    theirs.close()
    until(lambda: p.poll() is not None or trains(log), "the first step")
    children = open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()
    check(len(children) == 2, "a process for each rank, not %s" % children)
    os.kill(int(children[1]), signal.SIGSTOP)
    try:
        p.wait(HANG)
    except subprocess.TimeoutExpired:
        p.kill()
        check(False, "still running long after a rank was stopped")
    err = ours.recv(1 << 16).decode()
    check(not ours.recv(1 << 16), "more than one piece")
    check(p.returncode == 3, "exit %d: %s" % (p.returncode, err[-800:]))
    check("no progress for 5 s" in err and "is stopped (SIGSTOP)" in err and "mlp.lua:" in err, err[-800:])
