"""Every diagnostic in the code is executed by a test. Builds the compiler and the runtime with clang's source coverage into
build/coverage, runs the unit tests and the tables of bad input there, and lists every call of a function that reports
something which none of them has reached.

What counts as such a function is read from the source: whatever is declared _Noreturn, and the few in REPORTERS. New helpers
and new messages are found by themselves. nn.lua's messages are looked for in what the bad models were answered.

Relies on: harness.py, clang, llvm-profdata, llvm-cov. Relied on by: run.py."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

from harness import BUILD, ROOT, check, long, must

FOLDER = os.path.join(BUILD, "coverage")
UNITS = ["unit_compiler", "unit_runtime", "unit_host"]
TESTS = ["advice", "bad_input", "build", "calibrate", "cli", "failures", "launch", "pack", "page", "plan", "signals", "sweep", "diff",
         r"hostile\.stopped_rank", r"options\.policy_mistakes_name_the_entry"]

# Report something, and are not _Noreturn (or not declared in our source).
REPORTERS = ["argp_error", "luaL_error", "WRONG", "note", "remark", r"snprintf\(error", r"fprintf\(stderr", "say"]
# Report what no input can cause: `bug` is what one calls for that.
DEFECTS = ["bug"]
# file, part of the line: why no test reaches it
EXCEPTIONS = [
    ("runtime/common/launch.c", "cannot start a thread for rank", "only compiled where ranks are threads (the TSan build)"),
    ("runtime/common/nodes.c", "fprintf(stderr", "several machines are for CUDA: tests/program/test_cuda_host.py"),
    ("runtime/common/rank.c", 'sc_stop(r, code, "%s", text)', "what several GPUs may find wrong: tests/program/test_cuda_host.py"),
    ("runtime/common/watchdog.c", "doing[stage_of(k)]", "starts that hang: tests/program/test_cuda_comm.py"),
    ("runtime/common/watchdog.c", r'"\n"); } static void print_rank', "starts that hang: tests/program/test_cuda_comm.py"),
    ("runtime/common/watchdog.c", ", before training", "starts that hang: tests/program/test_cuda_comm.py"),
    ("runtime/common/watchdog.c", "the others wait for rank", "starts that hang: tests/program/test_cuda_comm.py"),
    ("runtime/common/watchdog.c", "NCCL does not connect them", "starts that hang: tests/program/test_cuda_comm.py"),
    ("runtime/common/watchdog.c", "sets another limit", "starts that hang: tests/program/test_cuda_comm.py"),
    ("compiler/emit/build.c", "libcudart_static.a (the CUDA 13 runtime)", "reached only on a machine that lacks a library of CUDA"),
    ("compiler/base/processes.c", "", "a machine that has no processes or memory left"),
    ("compiler/cli/points.c", "out of memory for the report", "cJSON prints nothing only where no memory is left"),
    ("compiler/cli/plan.c", r'"\r\033', "progress on a terminal, as in points.c"),
    ("compiler/cli/points.c", r'"\r', "progress on a terminal: sweep.progress_on_a_terminal_alone"),
    ("compiler/cli/plan.c", "the compiler refuses every policy that --keep leaves", "no model is known whose own policies are refused"),
    ("compiler/cli/inspect.c", "writes a page for a browser", "standard output is no terminal in a test"),
    ("compiler/report/page.c", "out of memory for the page", "a machine that has no memory left"),
    ("compiler/cli/search.c", "fits; give --budget", "no small model fits a device at every value"),
    ("compiler/cli/search.c", "no largest %s can be searched for: the arena has", "options that change no memory at any value"),
    ("compiler/cli/search.c", "no largest %s was found near", "estimates and full placement would have to differ at every value"),
    ("compiler/emit/build.c", "nvcc, the compiler of CUDA 13", "reached only on a machine that has no nvcc"),
]


# ── where diagnostics are ────────────────────────────────────────────────────────────────────────────────────────────────
def blank(text):
    """Comments and the insides of strings become blanks; every character keeps its place."""
    def hide(m):
        s = m.group(0)
        return re.sub(r"[^\n]", " ", s) if s[0] == "/" else s[0] + re.sub(r"[^\n]", " ", s[1:-1]) + s[-1]
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', hide, text, flags=re.S)


def sources():
    for top in ("compiler", "runtime"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")) and "/runtime/cuda" not in folder:  # needs a GPU: tests/gpu
                    yield os.path.join(folder, name)


def diagnostics():
    """[(file, line, column, the line's text)] of every call that reports something."""
    text = {f: open(f).read() for f in sources()}
    code = {f: blank(t) for f, t in text.items()}
    names = {n for c in code.values() for n in re.findall(r"_Noreturn[^;{()]*?\b(\w+)\s*\(", c)} - set(DEFECTS)
    call = re.compile(r"\b(?:(?:%s)\s*\(|%s)" % ("|".join(sorted(names)), "|".join(n if "(" in n else n + r"\s*\(" for n in REPORTERS)))
    found = []
    for f, c in code.items():
        for m in call.finditer(c):
            start = c.rfind("\n", 0, m.start()) + 1
            if re.search(r"(_Noreturn|void|#define)\s+(static\s+)?(void\s+)?$", c[start:m.start()]):
                continue  # a declaration
            line = c.count("\n", 0, m.start()) + 1
            found.append((f, line, m.start() - start + 1, " ".join(text[f][m.start():m.start() + 160].split())))
    return found


# ── what was executed ────────────────────────────────────────────────────────────────────────────────────────────────────
def compiled():
    """Kernels report nothing and need gcc: their objects are taken over from the build that is there."""
    kernels = os.path.join(FOLDER, "runtime", "cpu")
    os.makedirs(kernels, exist_ok=True)
    for o in glob.glob(os.path.join(BUILD, "runtime", "cpu", "k_*.o")):
        shutil.copy2(o, kernels)
    coverage = "-O0 -fprofile-instr-generate -fcoverage-mapping -Xclang -mllvm -Xclang -runtime-counter-relocation"
    must(["make", "-j2", "--no-print-directory", "B=" + FOLDER, "CC=clang", "WARN=-std=gnu17 -w", "OPT=" + coverage, "all",
          *[os.path.join(FOLDER, u) for u in UNITS]], timeout=600)
    cc = os.path.join(FOLDER, "cc")  # what `shardc build` compiles and links with
    with open(cc, "w") as f:
        f.write('#!/bin/sh\nexec clang -fprofile-instr-generate -w "$@"\n')
    os.chmod(cc, 0o755)
    return cc


def executed(cc):
    """Runs the tests; returns {file: [[line, column, count, ...]]} and which of them fail."""
    profiles = os.path.join(FOLDER, "profiles")
    shutil.rmtree(profiles, ignore_errors=True)
    # %c: counters live in the mapped file, so that killed and forked processes count too. %p: a file a process, because
    # processes that share one (%m) put back what they read when they started, over what others counted since.
    # One that is killed while it makes its file leaves a damaged one, which is left out.
    # A folder a family of tests: process numbers come again after 32768, and the later process would begin the file anew.
    def env(family):
        return dict(os.environ, LLVM_PROFILE_FILE=os.path.join(profiles, family, "%c%p.profraw"), CC=cc, SHARDC_HOME=ROOT)
    failing = ""
    for u in UNITS:
        p = subprocess.run([os.path.join(FOLDER, u), "-j2"], env=env("unit"), cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=300)
        failing += "%s: exit %d: %s\n" % (u, p.returncode, p.stderr[-2000:]) if p.returncode else ""
    for i, family in enumerate(TESTS):
        p = subprocess.run([sys.executable, os.path.join(ROOT, "tests/program/run.py"), "--build", FOLDER, "--no-unit", "--only", r"^(%s)\b" % family],
                           env=env(str(i)), cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=600)
        failing += "\n".join(l for l in p.stdout.splitlines() if p.returncode and not l.startswith("ok")) + p.stderr[-2000:]
    data = os.path.join(FOLDER, "all.profdata")
    inputs = os.path.join(FOLDER, "profiles.txt")
    with open(inputs, "w") as f:
        f.write("\n".join(glob.glob(os.path.join(profiles, "*", "*.profraw"))))
    must(["llvm-profdata", "merge", "-sparse", "-failure-mode=all", "-f", inputs, "-o", data])
    shutil.rmtree(profiles)
    objects = [os.path.join(FOLDER, u) for u in ["shardc"] + UNITS]
    out = must(["llvm-cov", "export", "-skip-expansions", "-instr-profile=" + data, objects[0], *[a for o in objects[1:] for a in ("-object", o)]])
    return {os.path.join(ROOT, f["filename"]): f["segments"] for f in json.loads(out)["data"][0]["files"]}, failing


def reached(segments, line, column):
    """Segments are [line, column, count, has a count, ...], each up to the next one."""
    last = None
    for s in segments:
        if (s[0], s[1]) > (line, column):
            break
        last = s
    return bool(last and last[3] and last[2])


@long
def test_every_message_is_executed():
    counts, failing = executed(compiled())
    found = diagnostics()
    missing = []
    excused = 0
    for f, line, column, text in found:
        if reached(counts.get(f, []), line, column):
            continue
        name = os.path.relpath(f, ROOT)
        if any(name == e[0] and e[1] in text for e in EXCEPTIONS):
            excused += 1
        else:
            missing.append("%s:%d: %s" % (name, line, text))
    note = "%d diagnostics, %d executed, %d excused" % (len(found), len(found) - len(missing) - excused, excused)
    check(not failing, "tests fail in the coverage build:\n%s\n%s" % (failing, "\n".join(missing)))
    check(not missing, "%s; no test reaches:\n%s" % (note, "\n".join(missing)))
    return note
