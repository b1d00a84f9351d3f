"""Runs tests: the Criterion binaries, then tests/program/test_*.py. Ends in `N passed, N failed`.

Three tests compute side by side, on two cores too: a test also waits for the disk, the browser and what another test builds. Those
marked `waits` (harness.py) mostly wait for time to pass: they run in a queue of their own, beside the three. Those marked `long` are
begun first.

Relies on: alone.py, harness.py, the unit binaries that the Makefile builds.
Relied on by: make test, make check, test_diagnostics.py, test_sanitizers.py."""
import argparse
import concurrent.futures
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = "unit_compiler", "unit_kernels", "unit_runtime", "unit_host"
sys.path.insert(0, HERE)
import alone  # noqa: E402


def criterion(path, *args, env={}):
    """Returns (passed, failed, output)."""
    p = subprocess.run([path, "-j2", "--ascii", *args], capture_output=True, text=True, errors="replace", timeout=3600, env=dict(os.environ, **env))
    text = p.stdout + p.stderr
    m = re.findall(r"Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)", text)
    if not m:
        return 0, 1, text[-4000:] or "no closing line"
    tested, passing, failing, crashing = map(int, m[-1])
    bad = tested - passing
    if p.returncode and not bad:
        bad = 1
    return passing, bad, "\n".join(l for l in text.splitlines() if "FAIL" in l or "CRASH" in l or "assert" in l.lower() or "----" in l)


def suites(path, pattern):
    """{suite: names of its tests} of those whose suite/name matches."""
    found, suite = {}, None
    for line in subprocess.run([path, "--list"], capture_output=True, text=True, check=True).stdout.splitlines():
        head = re.match(r"(\w+): \d+ tests?$", line)
        name = re.search(r"(\w+)$", line)
        if head:
            suite = head.group(1)
        elif suite and name and re.search(pattern, suite + "/" + name.group(1)):
            found.setdefault(suite, []).append(name.group(1))
    return found


def run_units(build, pattern):
    """Of all tests, or of those whose names match. Those of the kernels run once for each processor for which OpenBLAS has kernels that run
    here: what they sum up differs in its last digits."""
    passed = failed = 0
    for unit in UNITS:
        path = os.path.join(build, unit)
        for args in [[]] if not pattern else [["--filter", "%s/@(%s)" % (s, "|".join(n))] for s, n in suites(path, pattern).items()]:
            for core, env in harness.cores([path, "--list"]).items() if unit == "unit_kernels" else [("", {})]:
                good, bad, text = criterion(path, *args, env=env)
                passed, failed = passed + good, failed + bad
                print("%-34s %4d passed, %d failed%s" % (unit + (core and " on " + core), good, bad, "  " + args[1] if args else ""), flush=True)
                if bad:
                    print(text)
    return passed, failed


def one(name, test):
    start, cpu = time.monotonic(), harness.cpu_seconds()
    try:
        with harness.Scope():
            ok, note = True, test()
    except Exception as e:  # any failure of a test is reported, none stops the others
        ok, note = False, "%s: %s" % (type(e).__name__, e)
    print("%-4s %-50s %6.1f s %6.1f s CPU  %s" % ("ok" if ok else "FAIL", name, time.monotonic() - start, harness.cpu_seconds() - cpu, note or ""), flush=True)
    return ok


def as_from_a_shell():
    """Who starts us may ignore signals (`&`, some launchers), or block them, and our children would be born deaf; within an allocation or a
    launcher's job they would take themselves for ranks of it. SIGHUP stays as nohup wants it: the tests that send it see to it themselves."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for s in signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD:
        signal.signal(s, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in list(os.environ):
        if re.match(r"((LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|(SLURM|OMPI|PMIX?|MPI|PRTE)_\w+|SHARDC_(PATIENCE|PORT))$", name):
            del os.environ[name]


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--build", default="build")
    a.add_argument("--only", default="", help="regular expression over the names of program tests, as in cli.help")
    a.add_argument("--skip", default="^$", help="likewise")
    a.add_argument("--no-unit", action="store_true")
    a.add_argument("--named", default="", help="regular expression over the names of tests of every kind, unit tests' being suite/name; exit 2 where none matches")
    o = a.parse_args()
    for pattern in (o.only, o.skip, o.named):
        try:
            re.compile(pattern)
        except re.error as e:
            a.error("%s is no regular expression: %s" % (pattern, e))
    as_from_a_shell()
    alone.alone(o.build, "tests/program/run.py")
    os.environ["SHARDC_BUILD"] = os.path.abspath(o.build)
    os.environ["SHARDC_CHECK"] = "1"  # the compiler checks its graph after every pass
    global harness
    import harness
    shutil.rmtree(harness.WORK, ignore_errors=True)
    passed, failed = (0, 0) if o.no_unit else run_units(o.build, o.named)
    tests = []
    for name in sorted(f[:-3] for f in os.listdir(HERE) if re.match(r"test_\w+\.py$", f)):
        module = importlib.import_module(name)
        tests += [(name[5:] + "." + k[5:], v) for k, v in vars(module).items() if k.startswith("test_") and callable(v)]
    tests = [t for t in tests if re.search(o.only, t[0]) and re.search(o.named, t[0]) and not re.search(o.skip, t[0])]
    tests.sort(key=lambda t: not hasattr(t[1], "long"))
    with concurrent.futures.ThreadPoolExecutor(3) as computing, concurrent.futures.ThreadPoolExecutor(2) as waiting:
        results = [(waiting if hasattr(t, "waits") else computing).submit(one, name, t) for name, t in tests]
    good = sum(r.result() for r in results)
    passed, failed = passed + good, failed + len(results) - good
    harness.leave(failed)
    if o.named and not passed + failed:
        print("no test's name matches %s: unit tests are called suite/name (%s --list), program tests file.name (tests/program/test_*.py)"
              % (o.named, os.path.join(o.build, UNITS[0])))
        return 2
    print("%d programs built, at most %d MB of them at once" % (harness.COUNTS["built"], harness.COUNTS["most"] >> 20))
    if failed:
        print("what failed tests left is in %s" % harness.WORK)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
