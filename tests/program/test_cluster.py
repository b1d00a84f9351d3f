"""Several machines without a GPU: the CPU program's ranks read each other's memory by TCP. The machines are network namespaces of this
one, joined by a link, or, where these are not permitted, loopback. And the scripts in runtime/examples, run as a cluster would.

Relies on: harness.py, test_launch.py (Ranks), util-linux and iproute2 for namespaces. Relied on by: run.py."""
import atexit
import errno
import os
import random
import re
import signal
import subprocess
import threading
import time

from harness import HANG, ROOT, build, check, corpus, library, must, read_log, read_safetensors, same_run, scratch, trains, until, waits
from test_launch import PORTS, Ranks, step_of

SMALL = dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=32, dropout=0.1)
NETS, MAKING = {}, threading.Lock()


def inside(pid, *command):
    return ["nsenter", "-t", str(pid), "-U", "-n", "--preserve-credentials", *command]


def sleeper(*command):
    """The process that holds a namespace; it says when it has it."""
    p = subprocess.Popen([*command, "sh", "-c", "echo here; exec sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    atexit.register(p.kill)
    return p.pid if p.stdout.readline() == b"here\n" else None


def networks(n, of="all"):
    """Of n machines: the process in whose namespaces one runs, each with 10.77.0.(1 + its number) on one bridge; [] where that is not permitted. Tests run side
    by side: one that cuts a link has machines of its own (of)."""
    with MAKING:
        if of not in NETS:
            NETS[of] = make_networks()
    return NETS[of][:n]


def make_networks():
    first = sleeper("unshare", "-rn")
    others = [sleeper(*inside(first, "unshare", "-n")) for _ in range(2)] if first else [None]
    if not all(others):
        return []
    ip = lambda pid, *args: subprocess.run(inside(pid, "ip", *args), capture_output=True).returncode
    failed = ip(first, "link", "set", "lo", "up") or ip(first, "link", "add", "br0", "type", "bridge") or ip(first, "addr", "add", "10.77.0.1/24", "dev", "br0") or ip(first, "link", "set", "br0", "up")
    for i, pid in enumerate(others):
        failed = failed or ip(first, "link", "add", "v%d" % i, "type", "veth", "peer", "name", "eth0", "netns", str(pid)) or ip(first, "link", "set", "v%d" % i, "master", "br0", "up")
        failed = failed or ip(pid, "addr", "add", "10.77.0.%d/24" % (i + 2), "dev", "eth0") or ip(pid, "link", "set", "eth0", "up") or ip(pid, "link", "set", "lo", "up")
    return [] if failed else [first, *others]


class Machines(Ranks):
    """A process a rank on n machines, equally many on each."""

    def __init__(self, n, binary, world, *args, env={}, of="all", **more):
        self.nets = networks(n, of)
        self.n, self.here = n, world // n
        at = {"MASTER_ADDR": "10.77.0.1"} if self.nets else {}
        super().__init__("torchrun", [binary] * world, *args, env={**at, **env}, machines=n, **more)

    def start(self, rank, command, **more):
        return super().start(rank, inside(self.nets[rank // self.here], *command) if self.nets else command, **more)


def test_machines_compute_the_same():
    """The same bits on 1, 2 and 3 machines, of every collective, of validation, of a state, of what is exported."""
    b, folder = build("gpt2.lua", world=6, **SMALL), scratch("machines")
    args = ["--data", corpus(), "--steps", "4", "--seed", "3", "--val-data", corpus(size=20000, seed=2), "--eval-steps", "2"]

    def go(name):
        return args + ["--log", os.path.join(folder, name), "--export", os.path.join(folder, name + ".safetensors"), "--save", os.path.join(folder, name + "-state")]
    def got(name):
        return read_log(os.path.join(folder, name)), read_safetensors(os.path.join(folder, name + ".safetensors"))
    must([b, *go("1")])
    for n in 2, 3:
        codes, outs, err = Machines(n, b, 6, *go(str(n))).wait()
        check(codes == [0] * 6 and not err, "%d machines: exit %s: %s" % (n, codes, err))
        same_run(got(str(n)), got("1"), "%d machines" % n)
    wish = {"LD_PRELOAD": library("inject"), "SHARDC_INJECT": "%s:pthread_create:1:%d" % (os.path.basename(b), errno.EAGAIN)}
    codes, _, err = Machines(2, b, 6, *args, env=wish).wait()
    check(set(codes) <= {1, 3} and "shardc: cannot start a thread for the ranks of other machines: Resource temporarily unavailable" in err, "exit %s: %s" % (codes, err))
    return "1, 2, 3 machines" if networks(2) else "1, 2, 3 machines, by loopback: namespaces are not permitted here"


@waits
def test_a_machine_is_lost():
    """Processes of one machine are killed, or its network is gone: within seconds the other machine's end, and say who is lost."""
    for lost, how, here in (1, "killed", 3), (0, "killed", 3), (1, "cut", 3), (1, "cut", 1):
        b = build("gpt2.lua", world=2 * here, **SMALL)
        if how == "cut" and not networks(2, "lost"):
            continue
        log = os.path.join(scratch("lost"), "log")
        ranks = Machines(2, b, 2 * here, "--data", corpus(), "--steps", "100000000", "--quiet", "--log", log, of="lost")
        until(lambda: trains(log), "the first step")
        there = range(here * lost, here * lost + here)
        start = time.time()
        if how == "killed":
            for k in there:
                ranks.all[k].kill()
        else:
            check(not subprocess.run(inside(networks(2, "lost")[lost], "ip", "link", "set", "eth0", "down")).returncode, "no link")
        codes, _, err = ranks.wait()
        took = time.time() - start
        if how == "cut":
            subprocess.run(inside(networks(2, "lost")[lost], "ip", "link", "set", "eth0", "up"))
        check(all(c == 3 or c < 0 and how == "killed" and k in there for k, c in enumerate(codes)), "%s: exit %s: %s" % (how, codes, err))
        check(re.search(r"shardc: the connection to (a machine|rank 0's machine) has ended .*: rank \d( and 2 more are| is) lost; the other ranks are stopped|the process that runs rank . has vanished", err), err)
        check(took < 20, "%s: %.0f s: %s" % (how, took, err))
    return "either one killed, a link cut"


EXAMPLES = os.path.join(ROOT, "runtime/examples")

# What Slurm's commands do, by their manual pages: srun starts the tasks with the variables of "OUTPUT ENVIRONMENT VARIABLES" and exits with
# the highest code; scancel --signal reaches the tasks, not the script; scontrol requeue asks for another start.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
here=$((SLURM_NTASKS / SLURM_JOB_NUM_NODES)) code=0
for ((k = 0; k < SLURM_NTASKS; k++)); do
    SLURM_PROCID=$k SLURM_LOCALID=$((k % here)) SLURM_NODEID=$((k / here)) SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$SLURM_NTASKS \
        SLURM_STEP_NUM_NODES=$SLURM_JOB_NUM_NODES SLURM_STEP_NODELIST=localhost "$@" &
    pids+=($!)
done
echo ${pids[@]} >$CLUSTER/tasks.new && mv $CLUSTER/tasks.new $CLUSTER/tasks
for p in ${pids[@]}; do wait $p; c=$?; ((c > code)) && code=$c; done
exit $code
"""
SCANCEL = """#!/bin/sh
[ "$1 $2" = "--signal=TERM 7" ] && kill -TERM $(cat $CLUSTER/tasks)
"""
SCONTROL = """#!/bin/sh
[ "$1 $2" = "requeue 7" ] && touch $CLUSTER/requeued
"""
# Open MPI's: the tasks in the order of --host, with the variables that its ranks see and those that -x names.
MPIRUN = """#!/bin/bash
while [[ $1 == -* ]]; do
    case $1 in --host) IFS=:, read -r _ here _ <<<$2 ;; -n) ranks=$2 ;; -x) [ "${!2}" ] || exit 9 ;; esac
    shift 2
done
for ((k = 0; k < ranks; k++)); do
    OMPI_COMM_WORLD_RANK=$k OMPI_COMM_WORLD_SIZE=$ranks OMPI_COMM_WORLD_LOCAL_RANK=$((k % here)) OMPI_COMM_WORLD_LOCAL_SIZE=$here \
        PMIX_NAMESPACE=prterun-$$@1 $([ $k -lt $here ] && echo $MACHINE0 || echo $MACHINE1) "$@" &
    pids+=($!)
done
for p in ${pids[@]}; do wait $p || exit $?; done
"""
# torchrun's, of one machine; MASTER_PORT is where it listens itself.
TORCHRUN = """#!/bin/bash
while [[ $1 == -* && $1 != -- ]]; do
    case $1 in
    --no-python) shift; continue ;;
    --nnodes) nodes=$2 ;; --node-rank) node=$2 ;; --nproc-per-node) here=$2 ;; --master-addr) export MASTER_ADDR=$2 ;; --master-port) export MASTER_PORT=$2 ;;
    esac
    shift 2
done
shift
for ((k = 0; k < here; k++)); do
    RANK=$((node * here + k)) WORLD_SIZE=$((nodes * here)) LOCAL_RANK=$k LOCAL_WORLD_SIZE=$here GROUP_RANK=$node TORCHELASTIC_RUN_ID=none \
        TORCHELASTIC_RESTART_COUNT=0 "$@" &
    pids+=($!)
done
for p in ${pids[@]}; do wait $p || exit $?; done
"""


def cluster(**env):
    """A folder with the commands of a cluster, and the environment in which they are found."""
    folder = scratch("cluster")
    for name, text in ("srun", SRUN), ("scancel", SCANCEL), ("scontrol", SCONTROL), ("mpirun", MPIRUN), ("torchrun", TORCHRUN):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
        os.chmod(f.name, 0o755)
    return folder, {**os.environ, "PATH": folder + ":" + os.environ["PATH"], "CLUSTER": folder, "EXAMPLES": EXAMPLES, "STATE": os.path.join(folder, "state"), **env}


def test_examples_run_on_two_machines():
    """torchrun.sh and mpirun.sh train, and the same command again has nothing left to do."""
    b = build("mlp.lua", world=4)
    args = [b, "--data", corpus(), "--steps", "3", "--quiet"]
    must([*args, "--export", os.path.join(scratch("alone"), "w")])
    nets = networks(2)  # mpirun does not number machines: two of them cannot be one
    for name in ("torchrun", "mpirun") if nets else ("torchrun",):
        at = dict(HOSTS="10.77.0.1,10.77.0.2", **{"MACHINE%d" % i: " ".join(inside(pid)) for i, pid in enumerate(nets)}) if name == "mpirun" else dict(NODE0="localhost")
        folder, env = cluster(RANKS="2", **at)
        for _ in range(2):
            env["PORT"] = str(next(PORTS))
            starts = [["0"], ["1"]] if name == "torchrun" else [[]]
            all = [subprocess.Popen([os.path.join(EXAMPLES, name + ".sh"), *start, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for start in starts]
            ends = [p.communicate(timeout=HANG) for p in all]
            check([p.returncode for p in all] == [0] * len(all), "%s: %s" % (name, ends))
        check(step_of(env["STATE"]) == 3, "no state at step 3")
    return "torchrun.sh, mpirun.sh" if nets else "torchrun.sh; mpirun.sh needs namespaces, which are not permitted here"


class Job:
    """A start of sbatch.sh as Slurm would start it."""

    def __init__(self, folder, env, *args):
        for name in "tasks", "requeued":
            if os.path.exists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
        self.folder = folder
        self.p = subprocess.Popen([os.path.join(EXAMPLES, "sbatch.sh"), *args], env={**env, "SHARDC_PORT": str(next(PORTS))}, start_new_session=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def tasks(self):
        path = os.path.join(self.folder, "tasks")
        until(lambda: os.path.exists(path), "the tasks")
        return [int(k) for k in open(path).read().split()]

    def end(self):
        """(exit code, asked for another start, what was said)"""
        said = self.p.communicate(timeout=HANG)
        return self.p.returncode, os.path.exists(os.path.join(self.folder, "requeued")), said


KILLS = 50


@waits
def test_a_run_killed_fifty_times_has_the_same_bits():
    """Under sbatch.sh, on two machines: all processes killed at once, a rank's alone, or the time limit's signal, at random moments."""
    b, seed = build("mlp.lua", world=2, batch=2, seq=8), random.randrange(1 << 30)
    chance, (folder, env) = random.Random(seed), cluster(SLURM_JOB_ID="7", SLURM_NTASKS="2", SLURM_JOB_NUM_NODES="2", SHARDC_PATIENCE="10")
    args = [b, "--data", corpus(), "--seed", "5", "--warmup", "10", "--total", "100000", "--threads", "1"]
    saved, requeued = set(), 0
    for n in range(KILLS):
        job, how = Job(folder, env, *args, "--save-every", "10", "--steps", "100000000"), chance.choice(["all", "all", "limit", "limit", "rank"])
        at = chance.random() * 0.4
        if how == "all":
            time.sleep(at)
            os.killpg(job.p.pid, signal.SIGKILL)
        else:
            tasks = job.tasks()
            time.sleep(at)
            os.kill(chance.choice(tasks) if how == "rank" else job.p.pid, signal.SIGKILL if how == "rank" else signal.SIGUSR1)
        code, again, said = job.end()
        before, step = max(saved, default=-1), step_of(env["STATE"])
        check(step >= before, "seed %d, kill %d: the state went back" % (seed, n))
        check(again == (how == "limit") or how == "rank" and again == (step > before), "seed %d, kill %d, %s: exit %s, requeued %s: %s" % (seed, n, how, code, again, said))
        saved.add(step)
        requeued += again
    steps, weights = str(max(saved) + 5), [os.path.join(folder, name) for name in ("killed", "whole")]
    code, again, said = Job(folder, env, *args, "--steps", steps, "--export", weights[0]).end()
    check((code, again) == (0, False), "seed %d: exit %s: %s" % (seed, code, said))
    must([*args, "--steps", steps, "--export", weights[1], "--quiet"])
    check(read_safetensors(weights[0]) == read_safetensors(weights[1]), "seed %d: other weights after %s steps" % (seed, steps))
    return "%d kills, %d starts asked for, %s steps in %d states" % (KILLS, requeued, steps, len(saved))
