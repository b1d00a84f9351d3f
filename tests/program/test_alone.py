"""The tests themselves: two runs in one build folder do not meet, and who starts them may ignore signals.

Relies on: harness.py, alone.py. Relied on by: run.py."""
import os
import re
import signal
import subprocess
import sys

from alone import HELD
from harness import TESTS, check, command, cores, must, scratch, until

ALONE = os.path.join(TESTS, "alone.py")


def first_and_second(folder, inner=()):
    """A first command, which goes on until its standard input ends, and a second one, which has said for whom it waits."""
    began, env = os.path.join(folder, "began"), {k: v for k, v in os.environ.items() if k != HELD}
    first = subprocess.Popen([sys.executable, ALONE, folder, *inner, "sh", "-c", "echo 1 >>order; touch began; read x; echo 2 >>order"], cwd=folder, env=env,
                             stdin=subprocess.PIPE, start_new_session=True)
    until(lambda: os.path.exists(began), "the first command")
    second = subprocess.Popen([sys.executable, ALONE, folder, "sh", "-c", "echo 3 >>order"], cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    said = second.stderr.readline()
    check(re.match(r"waiting for process %d \(.*sh -c .*, since \d\d:\d\d:\d\d\), which is at work in %s; B=FOLDER" % (first.pid, re.escape(os.path.realpath(folder))), said), said)
    check(second.poll() is None and open(os.path.join(folder, "order")).read() == "1\n", "the second did not wait")
    return first, second


def order(folder):
    return open(os.path.join(folder, "order")).read().split()


def test_a_second_run_waits():
    folder = scratch("alone")
    first, second = first_and_second(folder)
    first.communicate(b"x\n")
    check(second.wait() == 0 and order(folder) == ["1", "2", "3"], "%s" % order(folder))


def test_what_a_run_starts_goes_on():
    """As run.py does below make: it asks for the same folder again."""
    folder = scratch("alone")
    first, second = first_and_second(folder, [sys.executable, ALONE, folder])
    first.communicate(b"x\n")
    check(second.wait() == 0 and order(folder) == ["1", "2", "3"], "%s" % order(folder))


def test_a_killed_run_lets_the_next_begin():
    folder = scratch("alone")
    first, second = first_and_second(folder)
    os.killpg(first.pid, signal.SIGKILL)
    check(second.wait() == 0 and order(folder) == ["1", "3"], "%s" % order(folder))


def test_another_folder_is_another():
    one, other = scratch("alone"), scratch("alone")
    first, second = first_and_second(one)
    must([sys.executable, ALONE, other, "true"], env={HELD: None})
    first.communicate(b"x\n")
    second.wait()


def test_children_start_as_from_a_shell():
    """Whatever the caller ignores or blocks, but for SIGHUP, which is nohup's; and they are nobody's ranks."""
    show = "import os, subprocess, run; run.as_from_a_shell(); print(subprocess.run(['grep', '^Sig[BI]', '/proc/self/status'], capture_output=True, text=True).stdout, *os.environ)"
    deaf = "import os, signal, sys; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 10, 12, 14, 15, 17)]; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 16)); os.execv(sys.executable, sys.argv[1:])"
    theirs = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_NAMESPACE", "MPI_LOCALNRANKS", "SHARDC_PATIENCE"]
    out = must([sys.executable, "-c", deaf, sys.executable, "-c", show], cwd=TESTS, env=dict({k: "1" for k in theirs}, PALM="1"))
    blocked, ignored = (int(re.search(k + r":\s*(\w+)", out)[1], 16) for k in ("SigBlk", "SigIgn"))
    check(blocked == 0 and ignored & (1 << signal.SIGCHLD) - 1 == 1 << signal.SIGHUP - 1, out)
    check("PALM" in out.split() and not set(theirs) & set(out.split()), out)


def test_kernels_are_tested_on_every_processor_at_hand():
    """What OpenBLAS says that it takes is what it was asked for, each once; the first is what it takes unasked."""
    program = [os.path.join(os.environ["SHARDC_BUILD"], "unit_kernels"), "--list"]
    found = cores(program)
    for core, env in found.items():
        _, out, err = command(program, env=dict(env, OPENBLAS_VERBOSE="2"))
        check("Core: %s\n" % core in out + err, "%s: %s" % (core, err))
    flags = open("/proc/cpuinfo").read()
    check("avx2" not in flags or {"Haswell", "Zen"} <= found.keys(), "%s" % list(found))
    check("avx512vl" not in flags or found.keys() & {"SkylakeX", "Cooperlake", "SAPPHIRERAPIDS", "Sapphirerapids"}, "%s" % list(found))
    return ", ".join(found)
