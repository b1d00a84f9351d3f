"""Several machines without a GPU: the CPU program's ranks read each other's memory by TCP. The machines are network namespaces of this
one, joined by a link, or, where these are not permitted, loopback. And the scripts in runtime/examples, run as a cluster would.

Relies on: harness.py, test_launch.py (Ranks), util-linux and iproute2 for namespaces. Relied on by: run.py."""
import atexit
import os
import re
import signal
import subprocess
import time

from harness import HANG, build, check, corpus, must, read_log, read_safetensors, same_run, scratch, trains, until, waits
from test_launch import Ranks, refused

SMALL = dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=32, dropout=0.1)
NETS = []


def inside(pid, *command):
    return ["nsenter", "-t", str(pid), "-U", "-n", "--preserve-credentials", *command]


def sleeper(*command):
    """The process that holds a namespace; it says when it has it."""
    p = subprocess.Popen([*command, "sh", "-c", "echo here; exec sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    atexit.register(p.kill)
    return p.pid if p.stdout.readline() == b"here\n" else None


def networks(n):
    """Of n machines: the process in whose namespaces one runs, each with 10.77.0.(1 + its number) on one bridge; [] where that is not permitted."""
    if NETS:
        return NETS[:n]
    first = sleeper("unshare", "-rn")
    others = [sleeper(*inside(first, "unshare", "-n")) for _ in range(2)] if first else [None]
    if not all(others):
        return []
    ip = lambda pid, *args: subprocess.run(inside(pid, "ip", *args), capture_output=True).returncode
    failed = ip(first, "link", "set", "lo", "up") or ip(first, "link", "add", "br0", "type", "bridge") or ip(first, "addr", "add", "10.77.0.1/24", "dev", "br0") or ip(first, "link", "set", "br0", "up")
    for i, pid in enumerate(others):
        failed = failed or ip(first, "link", "add", "v%d" % i, "type", "veth", "peer", "name", "eth0", "netns", str(pid)) or ip(first, "link", "set", "v%d" % i, "master", "br0", "up")
        failed = failed or ip(pid, "addr", "add", "10.77.0.%d/24" % (i + 2), "dev", "eth0") or ip(pid, "link", "set", "eth0", "up") or ip(pid, "link", "set", "lo", "up")
    if failed:
        return []
    NETS[:] = [first, *others]
    return NETS[:n]


class Machines(Ranks):
    """A process a rank on n machines, equally many on each."""

    def __init__(self, n, binary, world, *args, env={}, **more):
        self.nets = networks(n)
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
    return "1, 2, 3 machines" if networks(2) else "1, 2, 3 machines, by loopback: namespaces are not permitted here"


def processes(pid):
    """A rank's process and the one that computes, or none: nsenter becomes the former."""
    return [int(k) for k in open("/proc/%d/task/%d/children" % (pid, pid)).read().split()]


@waits
def test_a_machine_is_lost():
    """Processes of one machine are killed, or its network is gone: within seconds the other machine's end, and say who is lost."""
    b = build("gpt2.lua", world=6, **SMALL)
    for lost, how in (1, "killed"), (0, "killed"), (1, "cut"):
        if how == "cut" and not networks(2):
            continue
        log = os.path.join(scratch("lost"), "log")
        ranks = Machines(2, b, 6, "--data", corpus(), "--steps", "100000000", "--quiet", "--log", log)
        until(lambda: trains(log), "the first step")
        there = range(3 * lost, 3 * lost + 3)
        start = time.time()
        if how == "killed":
            for k in there:
                ranks.all[k].kill()
        else:
            check(not subprocess.run(inside(NETS[lost], "ip", "link", "set", "eth0", "down")).returncode, "no link")
        codes, _, err = ranks.wait()
        took = time.time() - start
        if how == "cut":
            subprocess.run(inside(NETS[lost], "ip", "link", "set", "eth0", "up"))
        check(all(c == 3 or c < 0 and how == "killed" and k in there for k, c in enumerate(codes)), "%s: exit %s: %s" % (how, codes, err))
        check(re.search("shardc: the connection to (a machine|rank 0's machine) has ended .*the other ranks are stopped|the process that runs rank . has vanished", err), err)
        check(took < 20, "%s: %.0f s: %s" % (how, took, err))
    return "either one killed, a link cut"
