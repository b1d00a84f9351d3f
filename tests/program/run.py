"""Runs every test: the Criterion binaries, then tests/program/test_*.py. Ends in `N passed, N failed`.

Relies on: harness.py, the unit binaries that the Makefile builds.
Relied on by: make test."""
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
sys.path.insert(0, HERE)


def criterion(path):
    """Returns (passed, failed, output)."""
    p = subprocess.run([path, "-j2", "--ascii"], capture_output=True, text=True, errors="replace", timeout=900)
    text = p.stdout + p.stderr
    m = re.findall(r"Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)", text)
    if not m:
        return 0, 1, text[-4000:] or "no closing line"
    tested, passing, failing, crashing = map(int, m[-1])
    bad = tested - passing
    if p.returncode and not bad:
        bad = 1
    return passing, bad, "\n".join(l for l in text.splitlines() if "FAIL" in l or "CRASH" in l or "assert" in l.lower() or "----" in l)


def one(test):
    start, cpu = time.monotonic(), harness.cpu_seconds()
    try:
        with harness.Scope():
            ok, note = True, test()
    except Exception as e:  # any failure of a test is reported, none stops the others
        ok, note = False, "%s: %s" % (type(e).__name__, e)
    return ok, note, time.monotonic() - start, harness.cpu_seconds() - cpu


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--build", default="build")
    a.add_argument("--only", default="", help="regular expression over test names")
    a.add_argument("--skip", default="^$", help="regular expression over test names")
    a.add_argument("--no-unit", action="store_true")
    o = a.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who is started by `&` is born deaf, and its children with it
    os.environ["SHARDC_BUILD"] = os.path.abspath(o.build)
    os.environ["SHARDC_CHECK"] = "1"  # the compiler checks its graph after every pass
    global harness
    import harness
    shutil.rmtree(harness.WORK, ignore_errors=True)
    passed = failed = 0
    for unit in () if o.no_unit else ("unit_compiler", "unit_kernels", "unit_runtime", "unit_host"):
        good, bad, text = criterion(os.path.join(o.build, unit))
        passed, failed = passed + good, failed + bad
        print("%-34s %4d passed, %d failed" % (unit, good, bad), flush=True)
        if bad:
            print(text)
    tests = []
    for name in sorted(f[:-3] for f in os.listdir(HERE) if re.match(r"test_\w+\.py$", f)):
        module = importlib.import_module(name)
        tests += [(name[5:] + "." + k[5:], v) for k, v in vars(module).items() if k.startswith("test_") and callable(v)]
    tests = [t for t in tests if re.search(o.only, t[0]) and not re.search(o.skip, t[0])]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # two compute while one waits for time to pass
        for (name, _), (ok, note, seconds, cpu) in zip(tests, pool.map(lambda t: one(t[1]), tests)):
            passed, failed = passed + ok, failed + (not ok)
            print("%-4s %-50s %6.1f s %6.1f s CPU  %s" % ("ok" if ok else "FAIL", name, seconds, cpu, note or ""), flush=True)
    harness.leave(failed)
    print("%d programs built, at most %d MB of them at once" % (harness.COUNTS["built"], harness.COUNTS["most"] >> 20))
    if failed:
        print("what failed tests left is in %s" % harness.WORK)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
