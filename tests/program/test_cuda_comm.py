"""The CUDA target's communicators without a GPU, over tests/gpu/fake_cuda.c: windows that cannot be made, a user's NCCL
variables that would change bits, a rank that is killed or stopped, NCCL's own complaints.

Relies on: harness.py, test_cuda_host.py. Relied on by: run.py."""
import json
import os
import re
import signal
import subprocess

from harness import HANG, NET, build, check, command, corpus, same_run, scratch, settings, shardc, trains, until, waits
from test_cuda_host import fake, go, headers, on_cpu
from test_rows_scaler import GLOBAL, SPARSE, sparse_records
from test_surface import policy

RINGS = "collectives go by NCCL's rings, not by windows: "


def test_windows_or_rings():
    """All ranks take the same way, and say so when it is not the usual one."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    b = build("mlp.lua", world=3)
    f, expected = fake(b), on_cpu(b, "--steps", "3")
    args = [f, "--data", corpus(), "--seed", "3", "--steps", "3"]
    for env, why in [
        ({"SC_FAKE_WINDOW_FAILS": "0"}, "ncclResult 1"),
        ({"SC_FAKE_WINDOW_FAILS": "2"}, "another rank could make none"),
        ({"SC_FAKE_WINDOW_FAILS": "-1"}, "NCCL sees no way for these GPUs to address each other's memory"),
        ({"SHARDC_NCCL_WINDOWS": "0"}, "SHARDC_NCCL_WINDOWS=0 is set"),
    ]:
        rc, _, err = command(args, env=env)
        check(rc == 0 and err.count(RINGS + why) == 1 and err.count(RINGS) == 1, "%s: exit %d: %s" % (env, rc, err))
        rc, _, err = command(args, env=dict(env, SHARDC_NCCL_WINDOWS="1"))
        if why.startswith("SHARDC"):
            check(rc == 0 and RINGS not in err, "windows asked for: exit %d: %s" % (rc, err))
        else:
            says = "shardc: NCCL makes no window: .*; see `nvidia-smi topo -m`, or leave out SHARDC_NCCL_WINDOWS=1"
            check(rc == 1 and re.fullmatch(says, err.strip()), "%s: exit %d: %s" % (env, rc, err))
    same_run(go(f, "--steps", "3"), expected, "windows")
    return "4 reasons"


def test_variables_are_pinned():
    """The fake refuses a communicator whose bits a variable of the environment could change."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=2))
    theirs = {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL", "NCCL_NVLS_ENABLE": "1", "NCCL_GRAPH_REGISTER": "1", "NCCL_MAX_CTAS": "3", "NCCL_SYM_KERNEL": "AllReduce_AGxLL_R"}
    rc, _, err = command([f, "--data", corpus(), "--steps", "2"], env=theirs)
    check(rc == 0, "exit %d: %s" % (rc, err))


# model, units, options: communicators for gathers, for sums (the world's sums are always one)
COUNTED = [
    ("mlp.lua", None, {}, 1, 1),
    (NET, dict(root="", block="mesh = { replicate = 2 }"), dict(batch=4), 2, 3),
    (NET, dict(root="", block="reshard_after_forward = 2"), dict(batch=4), 2, 1),
    (SPARSE, None, dict(batch=GLOBAL // 4), 1, 1),
    (SPARSE, None, dict(batch=GLOBAL // 4, replicate=2), 2, 3),
    (SPARSE, None, dict(batch=GLOBAL // 4, sparse=False, replicate=2), 1, 3),
    (SPARSE, None, dict(batch=GLOBAL // 4, sparse=False, shard=1), 0, 1),
]


def test_the_prediction_counts_communicators():
    """What `predict` adds for a plan's communicators is for those that the runtime makes."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    for model, units, options, gathers, sums in COUNTED:
        b, told = build(model, world=4, policy=units and policy(**units), **options), os.path.join(scratch("comms"), "told")
        with open(sparse_records(1) if model == SPARSE else os.devnull) as records:
            rc, _, err = command([fake(b), "--data", "-" if model == SPARSE else corpus(), "--steps", "1"], env={"SC_FAKE_COMMS": told}, stdin_file=records)
        check(rc == 0, "exit %d: %s" % (rc, err))
        made = open(told).read().split()
        found = (made.count("shardc-gathers"), made.count("shardc-sums"))
        check(found == (gathers, sums), "%s %s %s: the runtime makes %s" % (model, units, options, found))
        path = model if os.path.isabs(model) else os.path.join("models", model)
        p = json.loads(shardc("predict", path, "--world", "4", "--device", "h200", "--format", "json", *settings(options), *(["--policy", policy(**units)] if units else [])))
        line = next(l for l in p["prediction"]["library"] if l["name"] == "NCCL")
        check(line["bytes"] == (388 + 58 * (gathers - 1) + 137 * (sums - 1)) << 20, "%s %s: predicted %s" % (model, options, line))
        more = gathers + sums - 2 + (not gathers)
        says = "measured, NCCL 2.28.9, two communicators" + (", less the one for gathers" if not gathers else "") + (", and %d more" % more if more else "")
        check(line["source"] == says, "%s %s: %s" % (model, options, line))
    return "%d plans" % len(COUNTED)


def run_until(f, act, *args, env={}, stall=2 * HANG):
    """Acts on the ranks' processes when they train; (exit code, stderr)."""
    log = os.path.join(scratch("until"), "log")
    p = subprocess.Popen([f, "--data", corpus(), "--steps", "1000000", "--quiet", "--stall-seconds", str(stall), "--log", log, *args], stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env))
    try:
        until(lambda: p.poll() is not None or trains(log), "the first step")
        if p.poll() is None:
            act([int(k) for k in open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()])
        err = p.communicate(timeout=HANG)[1]
    finally:
        p.kill()
    return p.returncode, err


@waits
def test_a_killed_rank_ends_the_run():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=3))
    for args in (), ("--no-graph",):
        rc, err = run_until(f, lambda kids: os.kill(sorted(kids)[1], signal.SIGKILL), *args)
        check(rc == 3 and "rank 1 was ended by signal 9 (Killed); the other ranks are stopped" in err, "exit %d: %s" % (rc, err))
        check(err.count("was ended by") == 1, err)


@waits
def test_a_stopped_rank_is_behind():
    """Graphs write what they are at as programs without do: the one that stands still is named with the event that the others are at."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("gpt2.lua", world=3, layers=4, dim=64, heads=2, vocab=256, batch=4, seq=64))
    named = 0
    for args in (), ("--no-graph",):
        rc, err = run_until(f, lambda kids: os.kill(sorted(kids)[2], signal.SIGSTOP), *args, stall=5)
        check(rc == 3 and "no progress for 5 s" in err, "exit %d: %s" % (rc, err))
        check(re.search(r"rank 2's process \d+ is stopped \(SIGSTOP\)", err), err)
        named += len(re.findall(r"rank [01] (?:gather|reduce) +meets the other ranks in \S+ \w+ .*\(.*gpt2\.lua:\d+\)(?:; behind: rank 2)?$", err, re.M))
        check(not re.search(r"behind: rank [01]\b", err), err)
    check(named, "nobody met: " + err)
    return "%d ranks met at an event" % named


@waits
def test_a_start_that_hangs_is_told():
    """Who has not come to what the others wait in, before the first step; the run ends by itself."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=3))
    for env, seconds, says in [
        # every rank is in NCCL, which never answers: one of them is not told apart from outside
        ({"SC_FAKE_INIT_HANGS": "1"}, 2, r"no progress for 2 s before training; all 3 ranks have come, and NCCL does not connect them: NCCL_DEBUG=INFO .*\n(  rank \d makes its communicators \(NCCL\)\n){3}"),
        ({"SC_FAKE_WINDOW_HANGS": "1"}, 2, r"no progress for 2 s before training; the others wait for rank 1; SHARDC_PATIENCE sets another limit\n  rank 0 .*\n  rank 1 registers its arena with the other ranks \(NCCL\)\n"),
        ({"SC_FAKE_GATHER_HANGS": "1"}, 2, r"no progress for 2 s before training; SHARDC_PATIENCE .*\n  rank 0 tries program \w+, before training\n  rank 0 gather  meets .*; behind: rank 1\n  rank 1 tries"),
        ({"SC_FAKE_CONTEXT_HANGS": "2"}, 3, r"no progress for 3 s before training; the others wait for rank 2; --stall-seconds sets another limit\n  rank 0 opens its device and the libraries, and waits for the other ranks; behind: rank 2\n"),
    ]:
        rc, _, err = command([f, "--data", corpus(), "--steps", "2", "--stall-seconds", "1" if seconds == 2 else "3"], env=dict(env, SHARDC_PATIENCE="2"))
        check(rc == 3 and re.search(says, err), "%s: exit %d: %s" % (env, rc, err))
        check(err.count("no progress") == 1, "%s: %s" % (env, err))
    return "4 hangs"


def test_host_memory_that_cannot_be_pinned():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("gpt2.lua", world=1, layers=2, dim=32, heads=2, vocab=256, batch=4, seq=32, offload="state"))
    rc, _, err = command([f, "--data", corpus(), "--steps", "1"], env={"SC_FAKE_PIN": "2"})
    says = r"shardc: rank 0 cannot pin its host arena of 0\.\d\d GiB \(\d+ bytes\): cudaError2; see `ulimit -l` .* or offload less\n"
    check(rc == 1 and re.fullmatch(says, err), "exit %d: %s" % (rc, err))


@waits
def test_nccls_own_trouble():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=2))
    rc, err = run_until(f, lambda kids: None, env={"SC_FAKE_NCCL_TROUBLE": "1"})
    check(rc == 3 and re.search(r"rank 1: NCCL has failed in step \d+: ncclResult 6; set NCCL_DEBUG=WARN", err), "exit %d: %s" % (rc, err))
