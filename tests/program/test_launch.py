"""Ranks that a cluster's launcher starts, a process each: they meet by what torchrun, mpirun or srun say in the environment,
compute what ranks that the program starts itself compute, and end together, whichever process ends and however.

Relies on: harness.py. Relied on by: run.py."""
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from harness import HANG, ROOT, SHARDC, build, check, corpus, in_time, library, must, patiently, read_log, read_safetensors, same_run, scratch, trains, until, waits

PORTS = iter(lambda: random.SystemRandom().randrange(10000, 32000), None)  # tests run beside each other


def environment(launcher, rank, world, job, machines):
    here = world // machines
    if launcher == "torchrun":
        return dict(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank % here, LOCAL_WORLD_SIZE=here, GROUP_RANK=rank // here, MASTER_ADDR="localhost", MASTER_PORT=job)
    if launcher == "mpirun":  # within an allocation of Slurm
        return dict(OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE=world, OMPI_COMM_WORLD_LOCAL_SIZE=world, PMIX_NAMESPACE="prterun-%s@1" % job, SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=2, SLURM_JOB_ID=job)
    if launcher == "mpich":
        return dict(PMI_RANK=rank, PMI_SIZE=world, MPI_LOCALNRANKS=world)
    return dict(SLURM_PROCID=rank, SLURM_STEP_NUM_TASKS=world, SLURM_LOCALID=rank % here, SLURM_NODEID=rank // here, SLURM_STEP_NUM_NODES=machines, SLURM_STEP_NODELIST="localhost[,7-9]", SLURM_JOB_ID=job, SLURM_STEP_ID=0, SHARDC_PORT=job)


class Ranks:
    """Starts a process a rank, in the order given; those in `each` with more arguments, or with a function that is called before."""

    def __init__(self, launcher, binaries, *args, order=None, data=None, env=None, world=None, delay=0, job=None, before=None, machines=1, each={}):
        job = self.job = job or next(PORTS)
        self.world = world or len(binaries)
        self.all = {}
        for k in order or range(len(binaries)):
            # nobody waits for other ranks longer than the test waits for the ranks
            e = {**os.environ, "SHARDC_PATIENCE": str(2 * HANG), **{n: str(v) for n, v in environment(launcher, k, self.world, job, machines).items()}, **(env or {})}
            given = subprocess.PIPE if data and k == 0 else subprocess.DEVNULL
            more = each.get(k, [])
            self.all[k] = self.start(k, [binaries[k], *args, *([] if callable(more) else more)], env=e, stdin=given, preexec_fn=more if callable(more) else before)
            if data and k == 0:
                self.all[0].stdin.write(data)
                self.all[0].stdin.close()
                self.all[0].stdin = None
            time.sleep(delay)

    def start(self, rank, command, **more):
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def child(self, rank):
        """The process that computes."""
        pid = self.all[rank].pid
        children = lambda: open("/proc/%d/task/%d/children" % (pid, pid)).read().split()
        until(children, "rank %d's process" % rank)
        return int(children()[0])

    def wait(self, timeout=HANG):
        """(exit codes, standard outputs, all that was said on standard error, in_time)"""
        try:
            ends = {k: p.communicate(timeout=timeout) for k, p in sorted(self.all.items())}
        finally:
            for p in self.all.values():
                p.kill()
        err = "".join(e.decode() for _, e in ends.values())
        self.told = re.findall("^shardc: waiting for .*$", err, re.M)
        return [self.all[k].returncode for k in ends], [o.decode() for o, _ in ends.values()], in_time(err)


def test_launched_ranks_compute_the_same():
    b, folder = build("gpt2.lua", world=3, layers=1, dim=32, heads=2, vocab=256, batch=2, seq=32, dropout=0.1), scratch("launch")
    args = ["--data", corpus(), "--steps", "3", "--seed", "3", "--val-data", corpus(size=20000, seed=2), "--eval-steps", "2"]

    def files(name):
        return [os.path.join(folder, name + end) for end in (".jsonl", ".safetensors", ".trace", "-state")]

    def go(name):
        log, weights, trace, state = files(name)
        return args + ["--log", log, "--export", weights, "--trace", trace, "--save", state]
    must([b, *go("alone")])
    expected = read_log(files("alone")[0]), read_safetensors(files("alone")[1])
    for launcher, order in ("torchrun", None), ("mpirun", [2, 1, 0]), ("mpich", [1, 0, 2]), ("srun", [2, 0, 1]):
        codes, outs, err = Ranks(launcher, [b] * 3, *go(launcher), order=order).wait()
        check(codes == [0, 0, 0] and not err, "%s: exit %s: %s" % (launcher, codes, err))
        check("step 3/3" in outs[0] and not outs[1] and not outs[2], "%s: what is printed: %s" % (launcher, outs))
        log, weights, trace, state = files(launcher)
        same_run((read_log(log), read_safetensors(weights)), expected, launcher)
        check(open(trace).read().rstrip().endswith("]"), "%s: the trace is not complete" % launcher)
        must([b, *args[:2], "--resume", state, "--steps", "4"])
    return "torchrun, mpirun (OpenMPI, MPICH), srun: 3 ranks"


def test_records_reach_all_processes():
    b, folder = build("mlp.lua", world=2), scratch("records")
    must([b, "--data", corpus(), "--steps", "1"])
    batch, seq = 8, 32  # of one rank, as models/mlp.lua has it
    one = b"".join(int(i % 200).to_bytes(4, "little") for i in range(2 * batch * seq))
    data, logs = one * 2 * 4, [os.path.join(folder, n) for n in ("alone.jsonl", "launched.jsonl")]
    args = ["--data", "-", "--steps", "4", "--seed", "3", "--log"]
    p = subprocess.run([b, *args, logs[0]], input=data, capture_output=True)
    check(p.returncode == 0, p.stderr.decode())
    codes, _, err = Ranks("torchrun", [b] * 2, *args, logs[1], data=data).wait()
    check(codes == [0, 0] and not err, "exit %s: %s" % (codes, err))
    check([s["loss"] for s in read_log(logs[0])] == [s["loss"] for s in read_log(logs[1])], "losses differ")
    return "4 records"


def refused(ranks, says, code=1):
    """One message, one exit code, before the patience of ranks that wait for others is over."""
    codes, _, err = ranks.wait()
    check(set(codes) == {code} and re.search(says, err) and len(err.splitlines()) == 1, "%s: exit %s: %s" % (says, codes, err))


@waits
def test_refusals():
    b, other, data = build("mlp.lua", world=3), build("mlp.lua", world=3, dim=32), corpus()
    go = ["--data", data, "--steps", "2"]
    refused(Ranks("torchrun", [b] * 2, *go), r"mlp was built for 3 ranks, and torchrun has started 2 \(WORLD_SIZE=2\): start it with --nproc-per-node 3, or build it with `shardc build .*mlp\.lua --world 2`")
    refused(Ranks("srun", [b] * 2, *go), r"srun has started 2 \(SLURM_STEP_NUM_TASKS=2\): start it with --ntasks 3")
    refused(Ranks("torchrun", [b] * 3, *go, machines=3, env={"LOCAL_WORLD_SIZE": "2"}), "torchrun has not started equally many of the 3 ranks on every machine")
    refused(Ranks("mpirun", [b] * 3, *go, env={"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}), "mpirun has started 3 ranks on 3 machines, and does not say where rank 0 is: set MASTER_ADDR")
    refused(Ranks("torchrun", [b] * 3, "--data", "-", "--steps", "2", machines=3), "--data -: records reach the ranks of one machine only")
    refused(Ranks("torchrun", [b] * 3, *go, order=[1], machines=3, env={"SHARDC_PATIENCE": "1"}), r"rank 1 of torchrun cannot reach rank 0: no answer from localhost:\d+ within 1 s; MASTER_ADDR names")
    refused(Ranks("torchrun", [b] * 3, "--data", "nothing.bin"), r"nothing\.bin: no such file")
    refused(Ranks("torchrun", [b] * 3, "--data", "nothing.bin", order=[2, 1, 0], delay=0.2), r"nothing\.bin: no such file")
    refused(Ranks("torchrun", [b, b, other], *go, delay=0.1), "rank 2 runs another program than rank 0: start the same binary everywhere")
    refused(Ranks("torchrun", [b] * 3, *go, "--dump", "zzz", "--at-step", "1", "-o", os.path.join(scratch("x"), "x")), "matches no value")
    overflows = build("gpt2.lua", world=3, layers=1, dim=16, heads=2, vocab=256, batch=2, seq=16)  # mlp's relu may close before its loss does
    refused(Ranks("torchrun", [overflows] * 3, "--data", data, "--steps", "30", "--lr", "1e30"), r"step \d+: the loss is NaN", 3)
    codes, outs, err = Ranks("torchrun", [b] * 3, "--help").wait()
    check(codes == [0] * 3 and outs[0].startswith("Usage") and not outs[1] + outs[2] + err, "--help: %s %s %s" % (codes, outs, err))
    first = Ranks("torchrun", [b], *go, world=3)
    first.all[0].stderr.readline()  # whom it waits for
    refused(Ranks("torchrun", [b], *go, world=3, job=first.job), r"another run that was started under the same name is beginning on this machine; give this one another port \(MASTER_PORT\), or wait")
    first.all[0].kill()
    first.wait()
    refused(Ranks("torchrun", [b] * 3, *go, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))), r"rank 0 of torchrun cannot make shared memory: File too large; lift the limit on file sizes \(ulimit -f unlimited\)")
    codes, _, err = Ranks("torchrun", [b] * 3, "--dat").wait()
    check(codes == [2] * 3 and err.count("option") == 1, "usage: %s %s" % (codes, err))
    return "15 refusals"


@waits
def test_ranks_that_were_started_differently():
    """All arguments but those that concern a process alone are alike, or the first that is not is named with both values."""
    b, data, folder = build("mlp.lua", world=3), corpus(), scratch("differ")
    go = ["--data", data]
    for mine, theirs, says in ((["--lr", "0.01"], ["--lr", "0.02"], "with --lr 0.02, and rank 0 with --lr 0.01"),
                               ([], ["--seed", "2"], "with --seed 2, and rank 0 without --seed"),
                               (["--steps", "3"], ["--steps=4"], "with --steps 4, and rank 0 with --steps 3"),
                               (["--accumulate", "1"], [], "without --accumulate, and rank 0 with --accumulate 1"),
                               (["--save", "state"], ["--save", "/state"], "with --save /state, and rank 0 with --save %s/state" % os.getcwd()),
                               (["--sample", "3", "--prompt", "a\nb"], ["--sample", "3", "--prompt", "a b"], r"with --prompt a b, and rank 0 with --prompt a\\0ab"),
                               ([data] * 9, [data] * 9 + ["x.bin"], r"with --data ...\S+\.bin %s/x\.bin, and rank 0 with --data ...\S+\.bin" % os.getcwd()),
                               ([data] * 3999, [data] * 4000, "with more than 32768 bytes of arguments, and rank 0 with others"),
                               ([], ["--stepz"], "with arguments --data %s --stepz, and rank 0 without arguments" % data)):
        refused(Ranks("torchrun", [b] * 3, *go, each={0: mine, 1: mine, 2: theirs}, order=[2, 1, 0]), "shardc: rank 2 was started %s: start all ranks with the same arguments\n$" % says)
    other = os.path.join(folder, "mlp")  # the same plan, another learning rate
    must([SHARDC, "build", os.path.join(ROOT, "models", "mlp.lua"), "--world", "3", "--redzone", "256", "--set", "lr=0.5", "-o", other])
    refused(Ranks("torchrun", [b, b, other], *go), "rank 2 runs another program than rank 0: start the same binary everywhere")
    own = [["--quiet"], ["--log", os.path.join(folder, "log"), "--stall-seconds", "20"], ["--threads", "1"]]
    codes, out, err = Ranks("torchrun", [b] * 3, *go, "--steps", "2", each=dict(enumerate(own))).wait()
    check(codes == [0] * 3 and not "".join(out) + err and not os.path.exists(own[1][1]), "exit %s: %s%s" % (codes, out, err))
    few = lambda n: lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
    codes, _, err = Ranks("torchrun", [b] * 3, *go, "--steps", "2", each={1: few(4)}).wait()
    check(codes == [3, 1, 3] and "rank 1 of torchrun cannot take the shared memory: too many open files" in err, "exit %s: %s" % (codes, err))
    refused(Ranks("torchrun", [b] * 3, *go, "--steps", "2", each={1: few(5)}), r"corpus.*: Too many open files")  # once they have met
    return "9 arguments, another binary, a rank that ends by itself"


def test_address_space():
    """What OpenBLAS, arenas and threads map is tried before the start: under any limit a run is refused with figures, or it runs."""
    b, go, outcomes = build("mlp.lua", world=2), ["--data", corpus(), "--steps", "2", "--quiet"], []
    for mib in 160, 330, 586, 900, 1050, 1100, 1150, 1200, 1250, 1300, 1600:
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
        try:
            p = subprocess.run([b, *go], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG, preexec_fn=limit)
        except subprocess.TimeoutExpired:
            check(False, "%d MiB: still there" % mib)
        outcomes.append(p.returncode)
        check(p.returncode in (0, 1) and len(p.stderr.splitlines()) == p.returncode, "%d MiB: exit %d: %s" % (mib, p.returncode, p.stderr))
        first = "cannot map a buffer of 134217728 bytes for OpenBLAS: Cannot allocate memory; lift the limit on address space \\(ulimit -v unlimited\\), or give fewer --threads"
        all = r"mlp does not fit the address space of a process: a rank maps 1\.\d\d GiB \(the program 0\.\d\d, arenas of all ranks 0\.\d\d, (8|9) buffers of OpenBLAS 1\.\d\d, stacks 0\.\d\d\), and ulimit -v allows %.2f; lift it" % (mib / 1024)
        check(not p.returncode or re.match("shardc: (%s|%s)" % (first, all), p.stderr), "%d MiB: %s" % (mib, p.stderr))
    check(outcomes == sorted(outcomes, reverse=True) and {0, 1} == set(outcomes), "exits %s" % outcomes)
    ranks = Ranks("torchrun", [b] * 2, *go, before=lambda: resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20)))
    refused(ranks, "mlp does not fit the address space of a process")
    return "refused below %d MiB" % (160, 330, 586, 900, 1050, 1100, 1150, 1200, 1250, 1300, 1600)[outcomes.index(0)]


@waits
def test_a_rank_that_hangs_before_training_is_told():
    """Nobody waits for another rank: all hang while they start their threads."""
    b = build("mlp.lua", world=2)
    env = {"LD_PRELOAD": library("inject"), "SHARDC_INJECT": "%s:pthread_create:1:0" % os.path.basename(b), "SHARDC_PATIENCE": "1"}
    p = subprocess.Popen([b, "--data", corpus(), "--steps", "2", "--stall-seconds", "1"], env={**os.environ, **env}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        err = p.communicate(timeout=HANG)[1]
    except subprocess.TimeoutExpired:
        p.kill()
        check(False, "still there")
    says = "shardc: no progress for 1 s before training; --stall-seconds sets another limit\n  rank 0 gets its programs ready\n  rank 1 gets its programs ready\n"
    check(p.returncode == 3 and err == says, "exit %d: %s" % (p.returncode, err))


def test_impossible_variables():
    """A process whose place is impossible starts nothing; half of a pair says nothing, as in shells that have WORLD_SIZE set."""
    b, data = build("mlp.lua", world=2), corpus()
    remedy = "; correct the launcher's variables or unset them to start all ranks from here\n$"

    def go(**env):
        p = subprocess.run([b, "--data", data, "--steps", "1"], env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG)
        return p.returncode, p.stdout, p.stderr
    for env, says in ((dict(RANK="2", WORLD_SIZE="2"), "RANK=2 is not below WORLD_SIZE=2" + remedy),
                      (dict(RANK="1", WORLD_SIZE="1"), "RANK=1 is not below WORLD_SIZE=1" + remedy),
                      (dict(RANK="-1", WORLD_SIZE="2"), "RANK=-1 is no rank, a whole number from 0 on and below WORLD_SIZE=2" + remedy),
                      (dict(RANK="a", WORLD_SIZE="2"), "RANK=a is no rank, a whole number" + ".*" + remedy),
                      (dict(RANK="0", WORLD_SIZE="two"), "WORLD_SIZE=two is no number of ranks" + remedy),
                      (dict(RANK="0", WORLD_SIZE="0"), "WORLD_SIZE=0 is no number of ranks" + remedy),
                      (dict(SLURM_PROCID="4", SLURM_STEP_NUM_TASKS="4"), "SLURM_PROCID=4 is not below SLURM_STEP_NUM_TASKS=4" + remedy),
                      (dict(RANK="0", WORLD_SIZE="2", SHARDC_PATIENCE="abc"), "SHARDC_PATIENCE=abc is no number of seconds to wait for other ranks; correct it, or unset it for 60\n$"),
                      (dict(SHARDC_PATIENCE="-1"), "SHARDC_PATIENCE=-1 is no number of seconds")):
        code, out, err = go(**env)
        check(code == 1 and not out and re.match("shardc: " + says, err) and len(err.splitlines()) == 1, "%s: exit %d: %s%s" % (env, code, out, err))
    for env in (dict(RANK="7"), dict(WORLD_SIZE="7"), dict(RANK="", WORLD_SIZE="7"), dict(RANK="0", WORLD_SIZE="1")):
        code, out, err = go(**env)
        check(code == 0 and "step 1/1" in out and not err, "%s: exit %d: %s" % (env, code, err))
    return "9 refused, 4 start all ranks"


@waits
def test_a_state_that_is_replaced_while_it_is_read():
    """While the first to read the index has opened it, another run's takes its place."""
    b, folder = build("mlp.lua", world=2), scratch("replaced")
    state, old = os.path.join(folder, "state"), os.path.join(folder, "old")
    args = [b, "--data", corpus(), "--steps"]
    must([*args, "2", "--save", state])
    shutil.copytree(state, old)
    must([*args, "4", "--resume", state, "--save", state])

    index, new, fired = os.path.join(state, "index.json"), os.path.join(folder, "new"), os.path.join(folder, "fired")

    def replaced(fstats, start):
        """Starts a run or its ranks. The call of fstat that is slow comes right after the index has been opened."""
        shutil.copy(index, new)
        shutil.copy(os.path.join(old, "index.json"), index)
        if os.path.exists(fired):
            os.unlink(fired)
        slow = "%s:fstat:%d:1500ms" % (os.path.basename(b), fstats)
        ranks, pid = start(dict(LD_PRELOAD=library("inject"), SHARDC_INJECT=slow, SHARDC_INJECTED=fired))
        while not os.path.exists(fired):
            time.sleep(0.01)
        check(index in [os.path.realpath("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)], "the index is not open: another number of fstat")
        os.rename(new, index)
        return ranks

    def alone(env):
        p = subprocess.Popen([*args, "5", "--resume", state], env={**os.environ, **env}, stdout=subprocess.PIPE)
        return p, p.pid

    def launched(env):
        r = Ranks("torchrun", [b] * 2, *args[1:], "5", "--resume", state, env=env)
        return r, r.all[0].pid
    out = replaced(1, alone).communicate(timeout=HANG)[0].decode()
    check("at step 4, saved by 2 ranks" in out, "not the state that is there: " + out)
    os.rename(os.path.join(old, "step-00000002"), os.path.join(state, "step-00000002"))  # as if it went only now
    refused(replaced(2, launched), "state: rank 0 has read its state at step 2, and rank 1 another one at step 4: another run saves there")
    return "a run takes the next one, ranks that have two refuse"


def ended(rank, how, says, stall=2 * HANG):
    """Whoever ends, and however: the others end, before they would miss it, and one of them says why."""
    b, log = build("mlp.lua", world=3), os.path.join(scratch("ended"), "log")
    ranks = Ranks("torchrun", [b] * 3, "--data", corpus(), "--steps", "100000000", "--quiet", "--stall-seconds", str(stall), "--log", log)
    child = ranks.child(rank)
    until(lambda: trains(log), "the first step")
    how(ranks.all[rank].pid, child)
    codes, _, err = ranks.wait()
    lost = [k for k, c in enumerate(codes) if c < 0]
    check(all(c == 3 for k, c in enumerate(codes) if k != rank) and lost in ([], [rank]), "exit %s: %s" % (codes, err))
    check(len(re.findall("^shardc: ", err, re.M)) == 1 and re.search(says, err), "%s\n%s" % (says, err))
    until(lambda: not os.path.exists("/proc/%d/exe" % child) or open("/proc/%d/stat" % child).read().split()[2] == "Z", "the end of the rank's process")


@waits
def test_ranks_end_together():
    for rank in 0, 1:
        ended(rank, lambda process, child: os.kill(process, signal.SIGKILL), "the process that runs rank %d has vanished" % rank)
        ended(rank, lambda process, child: os.kill(child, signal.SIGKILL), r"rank %d was ended by signal 9" % rank)
        ended(rank, lambda process, child: os.kill(child, signal.SIGSTOP), r"no progress for 5 s\n(.*\n)*.*rank %d's process \d+ is stopped" % rank, stall=5)
    return "killed, stopped, rank or launcher process, first or not"


@waits
def test_a_request_to_stop_reaches_all_processes():
    """SIGINT and SIGTERM to the process of any rank are the user's wish: all end, with the signal's code, and the first says how far it came."""
    b = build("mlp.lua", world=3)
    for kind, rank in (signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGTERM, 1):
        log = os.path.join(scratch("request"), "log")
        ranks = Ranks("torchrun", [b] * 3, "--data", corpus(), "--steps", "100000000", "--log", log)
        until(lambda: trains(log), "the first step")
        os.kill(ranks.all[rank].pid, kind)
        codes, outs, err = ranks.wait()
        check(codes == [128 + kind] * 3 and not err, "%s: exit %s: %s" % (kind, codes, err))
        check(re.search(r"^stopped at step [1-9]\d*\nnothing is saved without --save DIR\n\Z", outs[0], re.M) and not outs[1] and not outs[2], "%s: what is printed: %s" % (kind, outs))


def test_threads_are_within_what_a_process_is_bound_to():
    """Ranks that are started together share the processors; one that a launcher has bound keeps its own."""
    all = sorted(os.sched_getaffinity(0))
    if len(all) < 2:
        return "one processor here: nothing to tell apart"
    programs = {n: build("mlp.lua", world=n) for n in (1, 2)}
    threads = lambda out: re.search(r"\d ranks? of (\d+) threads?\n", out).group(1)
    for n, bound, most in (1, 2, "2"), (1, 1, "1"), (2, 2, "1"), (2, 1, "1"):
        p = subprocess.run([programs[n], "--data", corpus(), "--steps", "0"], capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, all[:bound]))
        check(p.returncode == 0 and threads(p.stdout) == most, "%d ranks on %d processors: %s%s" % (n, bound, p.stdout, p.stderr))
    ranks = Ranks("torchrun", [programs[2]] * 2, "--data", corpus(), "--steps", "0", before=lambda: os.sched_setaffinity(0, all[:1]))
    codes, out, err = ranks.wait()
    check(codes == [0, 0] and threads(out[0] if isinstance(out, list) else out) == "1", "exit %s: %s %s" % (codes, out, err))


def missed(kill, pause, codes, says):
    """Two of three ranks wait for the third; one of them is killed when both have come."""
    ranks = Ranks("torchrun", [build("mlp.lua", world=3)] * 2, "--data", corpus(), "--steps", "2", world=3)
    time.sleep(pause)
    check(all(p.poll() is None for p in ranks.all.values()), "somebody did not wait")
    ranks.all[kill].kill()
    ended_with, _, err = ranks.wait()
    check(ended_with == codes and err == "shardc: %s\n" % says, "exit %s: %s" % (ended_with, err))


def too_few(n, who, patience):
    b = build("mlp.lua", world=3)
    ranks = Ranks("torchrun", [b] * n, "--data", corpus(), "--steps", "2", world=3, env={"SHARDC_PATIENCE": str(patience)})
    codes, _, err = ranks.wait()
    check(ranks.told == ["shardc: waiting for %s (RANK=0 and WORLD_SIZE=3 are set: this process is one rank of 3)" % who], "%s" % ranks.told)
    check(err == "shardc: %d of 3 ranks have come within %d s: does torchrun start all of them on this machine? If none does, unset RANK and WORLD_SIZE to start all ranks from here\n" % (n, patience), err)
    check(codes == [1] * n, "exit %s: %s" % (codes, err))


def gives_up():
    """After its patience, and not later, though nobody hears its farewell."""
    b, start = build("mlp.lua", world=3), time.monotonic()
    some = Ranks("torchrun", [b] * 2, "--data", corpus(), "--steps", "2", world=3, env={"SHARDC_PATIENCE": "1"})
    refused(some, r"2 of 3 ranks have come within 1 s: does torchrun start all of them on this machine\? .*unset RANK and WORLD_SIZE")
    check(time.monotonic() - start < 5, "nobody comes any more, and they stayed for another 5 s")


@waits
def test_who_does_not_come_is_missed():
    """Each side gives up after a while; a process that ends while it waits is missed at once."""
    patiently(lambda pause: missed(1, pause, [1, -9], "rank 1's process ended before training began"))
    patiently(lambda pause: missed(0, pause, [-9, 3], "rank 0's process ended without a word before training began"))
    patiently(lambda _: gives_up())
    some = Ranks("torchrun", [build("mlp.lua", world=3)] * 3, "--data", corpus(), "--steps", "2", order=[2], env={"SHARDC_PATIENCE": "1"})
    refused(some, r"rank 2 waited 1 s for rank 0's process on this machine: does torchrun start all 3 ranks here\? .*unset RANK and WORLD_SIZE to start all ranks from here\n$")
    for n, who in (1, "rank 1 and 1 more"), (2, "rank 2"):
        patiently(lambda seconds: too_few(n, who, 4 + int(seconds)))
    return "rank 0, rank 1, rank 2"


# Whatever our own nohup has made of SIGHUP: ranks that ignore it are those that somebody has detached.
HEARING = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
LAUNCHER = """
import json, os, subprocess, sys, time
ranks, how = json.loads(sys.argv[1]), sys.argv[2]
for args, env, out in ranks:
    with open(out, "w") as f:
        subprocess.Popen(args, env=env, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=how == "session")
print("started", flush=True)
if how != "leave":
    time.sleep(600)
"""


def launched(launcher, binary, world, args, wrap=None, how="wait", env={}, before=()):
    """A process that starts the ranks as a launcher does, whose command may stand behind others: (it, the files of what the ranks say)."""
    folder, job = scratch("launcher"), next(PORTS)
    outs = [os.path.join(folder, "out-%d" % k) for k in range(world)]
    ranks = [([*(wrap or []), binary, *args], {**os.environ, **{n: str(v) for n, v in environment(launcher, k, world, job, 1).items()}, **env}, outs[k]) for k in range(world)]
    p = subprocess.Popen([sys.executable, "-c", HEARING, *before, sys.executable, "-c", LAUNCHER, json.dumps(ranks), how], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    p.stdout.readline()
    return p, outs


def said(outs):
    return "".join(open(out).read() for out in outs)


def wait_for(true, what):
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    check(False, "waited in vain for " + what)


def step_of(state):
    path = os.path.join(state, "index.json")
    return json.load(open(path))["step"] if os.path.exists(path) else -1


@waits
def test_ranks_notice_that_their_launcher_is_gone():
    """A launcher that a signal kills without a word: its ranks end the step, save it and end. Wrapped in a shell, or alone, too."""
    b, one, own = build("mlp.lua", world=2), build("mlp.lua", world=1), dict(TORCHELASTIC_RUN_ID="none")
    shell, says = ["sh", "-c", '"$@"; exit $?', "sh"], r"shardc: python3?\S* \(process %d\), which started the ranks, has ended: they stop as at SIGTERM\n"
    ways = [("torchrun", b, dict(env=own)), ("torchrun", b, dict(env=own, wrap=shell, how="session")), ("torchrun", b, {}), ("mpirun", b, {}), ("mpich", b, dict(wrap=shell)), ("srun", b, {}),
            ("torchrun", one, dict(env=own))]
    for launcher, program, more in ways:
        state = os.path.join(scratch("gone"), "state")
        p, outs = launched(launcher, program, 1 if program == one else 2, ["--data", corpus(), "--steps", "100000", "--save", state], **more)
        wait_for(lambda: re.search(r"^step +[1-9]", said(outs), re.M), "the first step")
        os.kill(p.pid, signal.SIGUSR1)
        check(p.wait() == -signal.SIGUSR1, "the launcher lives on")
        wait_for(lambda: re.search(r"^saved \S+ at step \d+\n", said(outs), re.M), "a saved state: " + said(outs))
        text = said(outs)
        stopped = int(re.search(r"^stopped at step (\d+)$", text, re.M).group(1))
        check(len(re.findall(says % p.pid, text)) == 1 and step_of(state) == stopped > 0 and text.count("shardc: ") == 1, "%s %s: %s" % (launcher, more, text))
    return "%d ways to start them" % len(ways)


@waits
def test_a_parent_that_ends_is_not_always_a_launcher():
    """Ranks that people have detached go on: from a shell that has started them in the background, with nohup, in a session of their own."""
    b, folder = build("mlp.lua", world=2), scratch("detached")
    shell = ["sh", "-c", '"$@" & exit 0', "sh"]
    ways = [("torchrun", dict(wrap=shell)), ("torchrun", dict(wrap=["sh", "-c", 'setsid "$@" & sleep 0.2', "sh"])), ("torchrun", dict(how="leave", before=["nohup"])),
            ("srun", dict(wrap=shell)), ("torchrun", dict(wrap=shell, env=dict(TORCHELASTIC_RUN_ID="none")))]
    runs = []
    for k, (launcher, more) in enumerate(ways):
        state, steps = os.path.join(folder, "state-%d" % k), 400
        p, outs = launched(launcher, b, 2, ["--data", corpus(), "--steps", str(steps), "--save", state, "--delay-collectives", "1"], **more)
        runs.append((more, p, outs, state, steps))
    for more, p, outs, state, steps in runs:
        wait_for(lambda: step_of(state) == steps, "the last step: " + said(outs))
        check("has ended" not in said(outs), "%s: %s" % (more, said(outs)))
        p.kill()
    return "%d ways to detach them" % len(ways)
