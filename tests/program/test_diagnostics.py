"""Every diagnostic in the code is executed by a test. Builds a copy of the compiler and the runtime in which each call of a
function that reports something first notes its number in a file, runs the unit tests and the tables of bad input with it, and
lists the calls that none of them has reached.

What counts as such a function is read from the source: whatever is declared _Noreturn, and the few in REPORTERS. New helpers
and new messages are found by themselves. nn.lua's messages are looked for in what the bad models were answered.

Relies on: harness.py. Relied on by: run.py."""
import glob
import os
import re
import shutil
import subprocess
import sys

from harness import BUILD, MANY, ROOT, check, long, must

FOLDER = os.path.join(BUILD, "marked")
NOTED = os.path.join(FOLDER, "reached")  # a byte a diagnostic: 1 where it was executed
UNITS = ["unit_compiler", "unit_runtime", "unit_host"]
TESTS = ["actual", r"adapters\.dora_is_pefts", "advice", "arrays", "background", "bad_input", "build", "calibrate", "cli", "data", "explain", "failures", "import", "launch", "living", "pack", "page", "plan", "signals", "report", "sweep", "diff", "outputs", "text", r"manual\.completions",
         r"hostile\.stopped_rank", r"ema\.a_program_without_an_average_says_so", r"fp8\.(refused|gpus_without_fp8_are_refused)", r"fp8_blocks\.refused", r"fp8_experts\.refused", r"moments8\.resumes", r"options\.policy_mistakes_name_the_entry"]
# Of these, long tests of good input alone.
SKIPPED = (r"^(diff\.(every_change_is_true|text_folds|equal_inputs)|page\.(?!refusals)|pack\.(challenges|random)"
           r"|plan\.(gpu_beside|small|shapes|bits|policies_that|the_same_text)|sweep\.(the_network|svg|max_where)"
           r"|report\.(accumulated|hostile|long_run|page|program)|actual\.(a_profile_of_a_run_predicts|a_profile_of_a_real|the_page)|explain\.every_event)")

# Report something, and are not _Noreturn (or not declared in our source).
REPORTERS = ["argp_error", "luaL_error", "WRONG", "note", "remark", r"snprintf\(error", r"fprintf\(stderr", "say", "complain", "sc_lose"]
# Report what no input can cause: `bug` is what one calls for that.
DEFECTS = ["bug"]
# file, part of the line: why no test reaches it
EXCEPTIONS = [
    ("runtime/common/launch.c", "cannot start a thread for rank", "only compiled where ranks are threads (the TSan build)"),
    ("runtime/common/nodes.c", "fprintf(stderr", "several machines: tests/program/test_cluster.py, test_cuda_host.py"),
    ("runtime/common/far.c", "for the ranks of other machines", "several machines: tests/program/test_cluster.py"),
    ("runtime/common/far.c", "cannot serve a rank of another machine", "a machine that has no threads or files left"),
    ("runtime/common/far.c", "rank %d cannot %s rank %d's machine", "a firewall between two machines that reach each other's first port"),
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
    ("compiler/cli/planned.c", r'"\r\033', "progress on a terminal, as in points.c"),
    ("compiler/cli/points.c", r'"\r', "progress on a terminal: sweep.progress_on_a_terminal_alone"),
    ("compiler/cli/planned.c", "the compiler refuses every policy that --keep leaves", "no model is known whose own policies are refused"),
    ("compiler/cli/inspect.c", "writes a page for a browser", "standard output is no terminal in a test"),
    ("compiler/cli/report.c", "writes a page for a browser", "standard output is no terminal in a test"),
    ("compiler/cli/diff.c", "writes a page for a browser", "standard output is no terminal in a test"),
    ("compiler/report/page_blocks.c", "out of memory for the page", "a machine that has no memory left"),
    ("compiler/report/runs.c", "out of memory for the report", "a machine that has no memory left"),
    ("runtime/common/far.c", "give_up(", "a machine that is lost in the middle of a read: tests/program/test_cluster.py, where whichever comes first is told"),
    ("compiler/cli/chat.c", "no memory for", "a machine that has no memory left"),
    ("runtime/host/arrays.c", "out of memory", "a machine that has no memory left"),
    ("runtime/host/arrays.c", 'die("%s: %s", f.path, why)', "a file that was opened a moment before"),
    ("runtime/host/arrays.c", "cannot read it: %s", "a disk that fails"),
    ("runtime/host/arrays.c", "the file was cut short during the run", "a file that shrinks under a run, as in data.c"),
    ("runtime/host/npz.c", "cannot read its directory", "a disk that fails"),
    ("runtime/host/sample.c", "cannot print the sample: %s\", text.error", "a Python that could be started a moment before"),
    ("runtime/host/weights.c", "out of memory for a list of tensors", "a machine that has no memory left"),
    ("runtime/host/export_folder.c", "out of memory", "a machine that has no memory left"),
    ("runtime/host/export_files.c", "out of memory", "a machine that has no memory left"),
    ("runtime/host/shard_index.c", "out of memory for a list of files", "a machine that has no memory left"),
    ("compiler/emit/build.c", "cannot_run(args->at[0], e)", "a program that could be run a moment before, when it was looked for"),
    ("compiler/cli/search.c", "fits; give --budget", "no small model fits a device at every value"),
    ("compiler/cli/search.c", "no largest %s can be searched for: the arena has", "options that change no memory at any value"),
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
                if name.endswith((".c", ".h")) and not re.search("/runtime/(cuda|calibrate)", folder):  # need a GPU: tests/gpu
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
# All processes map one file, so what a process that is killed, or forked, has reached counts too. The constructor maps it before
# main(), since a test may leave a process no file descriptors, by system calls, since a test may make the functions of the
# library fail; each file of a program has one, the linker keeps the first.
NOTE = '''#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((weak)) unsigned char *reached_map_;
__attribute__((weak, constructor)) void reached_start_(void) {
    long f = reached_map_ ? -1 : syscall(SYS_openat, AT_FDCWD, "%s", O_RDWR | O_CLOEXEC);
    if (f < 0) return;
    reached_map_ = (unsigned char *)syscall(SYS_mmap, 0, %d, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (syscall(SYS_close, f) || reached_map_ == MAP_FAILED) _exit(99);
}
static inline int reached_(int at) { return reached_map_[at] = 1, 0; }
#line 1 "%s"
'''


def marked(file, text, calls, total):
    """The text of a source file in which each of `calls`, [(number, line, column)], notes that it was reached."""
    lines = text.split("\n")
    for at, line, column in sorted(calls, key=lambda c: c[1:], reverse=True):
        before, name, after = lines[line - 1][:column - 1], *re.match(r"(\w+)(.*)", lines[line - 1][column - 1:], re.S).groups()
        macro = re.search(r"#define %s\([^)]*\) (\(?)" % name, text)  # one whose text is in brackets has a value
        lines[line - 1] = before + ("(reached_(%d), %s)" if not macro else "reached_(%d) + %s" if macro[1] else "reached_(%d), %s") % (at, name) + after
    return NOTE % (NOTED, total, file) + "\n".join(lines)


def compiled(found):
    """Builds what the tests need from marked sources. Kernels report nothing: their objects are taken over from the build."""
    source = os.path.join(FOLDER, "source")
    shutil.rmtree(FOLDER, ignore_errors=True)
    for folder in ("compiler", "runtime", "tests/unit"):
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(source, folder))
    shutil.copy2(os.path.join(ROOT, "Makefile"), source)
    calls = {}
    for at, (file, line, column, _) in enumerate(found):
        calls.setdefault(file, []).append((at, line, column))
    for file, here in calls.items():
        with open(file) as f:
            text = marked(file, f.read(), here, len(found))
        with open(os.path.join(source, os.path.relpath(file, ROOT)), "w") as f:
            f.write(text)
    kernels = os.path.join(FOLDER, "runtime", "cpu")
    os.makedirs(kernels)
    for o in glob.glob(os.path.join(BUILD, "runtime", "cpu", "k_*.o")):
        shutil.copy2(o, kernels)
    with open(NOTED, "wb") as f:
        f.write(bytes(len(found)))
    must(["make", "-j2", "--no-print-directory", "B=" + FOLDER, "WARN=-std=gnu17 -w", "OPT=-O1", "all",
          *[os.path.join(FOLDER, u) for u in UNITS]], timeout=MANY, cwd=source)


def executed():
    """Runs the tests with that build; returns which diagnostics they reached, a bool each, and which tests fail."""
    env = dict(os.environ, SHARDC_HOME=ROOT)
    failing = ""
    for u in UNITS:
        p = subprocess.run([os.path.join(FOLDER, u), "-j2"], env=env, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=MANY)
        failing += "%s: exit %d: %s\n" % (u, p.returncode, p.stderr[-2000:]) if p.returncode else ""
    p = subprocess.run([sys.executable, os.path.join(ROOT, "tests/program/run.py"), "--build", FOLDER, "--no-unit",
                        "--only", r"^(%s)\b" % "|".join(TESTS), "--skip", SKIPPED],
                       env=env, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=MANY)
    with open(os.path.join(FOLDER, "tests.log"), "w") as f:
        f.write(p.stdout)
    failing += "\n".join(l for l in p.stdout.splitlines() if p.returncode and not l.startswith("ok")) + p.stderr[-2000:]
    with open(NOTED, "rb") as f:
        return [b == 1 for b in f.read()], failing


@long
def test_every_message_is_executed():
    found = diagnostics()
    compiled(found)
    noted, failing = executed()
    missing = []
    excused = 0
    for (f, line, _, text), seen in zip(found, noted):
        if seen:
            continue
        name = os.path.relpath(f, ROOT)
        if any(name == e[0] and e[1] in text for e in EXCEPTIONS):
            excused += 1
        else:
            missing.append("%s:%d: %s" % (name, line, text))
    note = "%d diagnostics, %d executed, %d excused" % (len(found), len(found) - len(missing) - excused, excused)
    check(not failing, "tests fail in the marked build:\n%s\n%s" % (failing, "\n".join(missing)))
    check(not missing, "%s; no test reaches:\n%s" % (note, "\n".join(missing)))
    return note
