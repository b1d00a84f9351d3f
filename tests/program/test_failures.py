"""What happens when the machine fails: every call that may fail (write, rename, memory, threads, ...) is made to fail, one
after the other. Then the command must say so in a line or two and exit 1, or do its work all the same; never a crash, never
a half-written file.

Relies on: harness.py, inject.c. Relied on by: run.py, test_diagnostics.py."""
import errno
import fcntl
import itertools
import json
import os
import re
import shutil
import signal

from harness import HANG, ROOT, SHARDC, build, check, command, contents, corpus, library, long, must, read_safetensors, scratch, shardc, waits, write_safetensors

MLP = os.path.join(ROOT, "models", "mlp.lua")
SMALL = dict(layers=1, dim=16, heads=2, vocab=256, batch=2, seq=16, offload="activations")


def inject(args, function, n, error, stdin=None, more={}):
    """Runs args with the nth call of function failing; returns (was it called, exit code, stderr)."""
    fired = os.path.join(scratch("fired"), "yes")
    env = {"LD_PRELOAD": library("inject"), "SHARDC_INJECTED": fired,
           "SHARDC_INJECT": "%s:%s:%s:%d" % (os.path.basename(args[0]), function, n, error)}
    rc, out, err = command(args, env=dict(env, **more), timeout=HANG, stdin=stdin)
    called = os.path.exists(fired)
    shutil.rmtree(os.path.dirname(fired))
    return called, rc, err


def refused(rc, err, what):
    lines = [line for line in err.splitlines() if line.strip()]
    check(rc == 1 and 1 <= len(lines) <= 5, "%s: exit %d: %s" % (what, rc, err[-1500:]))
    return err


def sweep(args, function, error, fine, untouched, counts=None, stdin=None, **env):
    """Lets each call fail in turn until there are no more: the command either does its work (`fine` checks it) or is
    refused and leaves everything as it was (`untouched` checks that). Returns all messages."""
    said = ""
    for n in counts or itertools.count(1):
        what = "%s with call %s of %s failing" % (" ".join(args[:3]), n, function)
        called, rc, err = inject(args, function, n, error, stdin, env)
        if not called:
            check(rc == 0, "%s, which it never made: exit %d: %s" % (what, rc, err[-1500:]))
            fine(what)
            return said
        if rc == 0:
            fine(what)
        else:
            said += refused(rc, err, what)
            untouched(what)
    return said


def geometric(first=1, ratio=1.3):
    n = first
    while True:
        yield n
        n = max(n + 1, int(n * ratio))


class Output:
    """A file that exists with an old text: stays so, or becomes `whole`; nothing else appears beside it."""

    def __init__(self, name, whole, old=b"old"):
        self.folder, self.whole, self.old = scratch(name), whole, old
        self.path = os.path.join(self.folder, "out")
        self.renew()

    def renew(self, what=None):
        open(self.path, "wb").write(self.old)

    def fine(self, what):
        check(open(self.path, "rb").read() == self.whole and os.listdir(self.folder) == ["out"], what + ": exit 0, and wrong output")
        self.renew()

    def untouched(self, what):
        now = contents(self.folder)
        check(list(now) == [self.path] and now[self.path] in (self.old, self.whole), what + ": left " + str(list(now)))
        self.renew()


# function, the errors it may give
FILES = [("fopen", errno.EACCES), ("fclose", errno.ENOSPC), ("fsync", errno.EIO), ("rename", errno.EROFS), ("fstat", errno.EIO),
         ("stat", errno.EACCES), ("fseeko", errno.ENOSPC), ("access", errno.EROFS), ("mkdir", errno.EACCES), ("open", errno.EMFILE),
         ("write", errno.ENOSPC), ("close", errno.EIO), ("mmap", errno.ENOMEM), ("ftruncate", errno.EIO)]
MEMORY = ["malloc", "calloc", "realloc"]


def test_data():
    text = os.path.join(scratch("input"), "text")
    open(text, "wb").write(b"some text\n" * 3000)
    out = os.path.join(scratch("input"), "whole")
    shardc("data", text, "-o", out)
    o = Output("data", open(out, "rb").read(), b"\x88\xd8\x34\1")
    said = "".join(sweep([SHARDC, "data", text, "-o", o.path], f, e, o.fine, o.untouched) for f, e in FILES)
    said += "".join(sweep([SHARDC, "data", text, "-o", o.path], f, errno.ENOMEM, o.fine, o.untouched) for f in MEMORY)
    for words in ("cannot read %s: Permission" % text, "out, which is there already: Permission", "out: No space", "out: Input/output", "out: Read-only", "out of memory at the start"):
        check(words in said, "never said: %s" % words)
    return "%d messages" % len(said.splitlines())


def test_reports():
    whole = shardc("inspect", MLP, "--format", "json").encode()
    o = Output("report", whole)
    args = [SHARDC, "inspect", MLP, "--format", "json", "-o", o.path]
    said = "".join(sweep(args, f, e, o.fine, o.untouched) for f, e in FILES)
    said += "".join(sweep(args, f, errno.ENOMEM, o.fine, o.untouched, geometric()) for f in MEMORY)
    said += "".join(sweep(args, f, errno.ENOMEM, o.fine, o.untouched, ("%d+" % n for n in geometric(5, 1.5))) for f in MEMORY)
    check("out of memory" in said, "never out of memory")
    plan = os.path.join(scratch("plan"), "plan.json")
    open(plan, "wb").write(whole)
    args[2] = plan
    said += "".join(sweep(args, f, errno.ENOMEM, o.fine, o.untouched, geometric()) for f in MEMORY)
    return "%d messages" % len(said.splitlines())


def test_build():
    """Sources and binary: the whole set stays, or is made anew; no left-overs of a compiler's work."""
    folder = scratch("build")
    args = [SHARDC, "build", MLP, "-o", os.path.join(folder, "mlp")]
    must(args)
    names = set(os.listdir(folder))
    cc = quick_compiler(scratch("built"), os.path.join(folder, "mlp"), os.path.join(folder, "mlp_kernels.o"))

    def fine(what):
        check(set(os.listdir(folder)) == names, what + ": there are " + str(os.listdir(folder)))
        must([os.path.join(folder, "mlp"), "-h"])

    def untouched(what):
        check(set(os.listdir(folder)) <= names, what + ": there are " + str(os.listdir(folder)))
        must([os.path.join(folder, "mlp"), "-h"])

    said = ""
    for f, e in [("rename", errno.ENOSPC), ("access", errno.EACCES), ("fopen", errno.EMFILE), ("fsync", errno.EIO)]:
        for fresh in (False, True) if f == "rename" else (False,):
            def again(what):
                untouched(what)
                if fresh and os.path.exists(os.path.join(folder, "mlp_kernels.key")):
                    os.unlink(os.path.join(folder, "mlp_kernels.key"))
            again("")
            said += sweep(args, f, e, fine, again, CC=cc)
    must(args)
    fine("the last build")
    return "%d messages" % len(said.splitlines())


def quick_compiler(folder, *made):
    """A compiler as quick as can be: what it makes is in the folder already."""
    for path in made:
        shutil.copy2(path, folder)
    cc = os.path.join(folder, "cc")
    with open(cc, "w") as f:
        f.write("#!/bin/sh\nwhat=mlp_kernels.o\nfor a; do\n  [ \"$before\" = -o ] && out=$a\n  [ \"$a\" = -lpthread ] && what=mlp\n  before=$a\ndone\n"
                "exec cp %s/$what $out\n" % folder)
    os.chmod(cc, 0o755)
    return cc


def test_killed_builds():
    """A build is killed before each call that it makes: the next one of that name removes what is left of it. What somebody else has
    made stays, whatever it is called, and so does what a living process is writing."""
    folder = scratch("killed")
    args, left, kills = [SHARDC, "build", MLP, "-o", os.path.join(folder, "mlp")], set(), 0
    must(args)
    names = set(os.listdir(folder))
    cc = quick_compiler(scratch("built"), os.path.join(folder, "mlp"), os.path.join(folder, "mlp_kernels.o"))
    ours = ["mlp.tmp.4000000000.o", "mlp.tmp.4000000000.2.o", "mlp.tmp.4000000000", "mlp_kernels.o.tmp.7", "mlp_kernels.sm_90.key.tmp.7",
            "mlp.c.tmp.1", "mlp.plan.json.tmp.1", "mlp_extension0.cu.tmp.1", "mlp.step.log.1", "mlp.extension12.log.1"]
    foreign = ["mlp.tmp.notes", "mlp.tmp.12.txt", "mlp2.tmp.5.o", "mlp_kernels.tmp.5.o", "mlp.step.log", "mlp.train.log.1", "mlp.h.tmp.1", "mlp.plan.json.tmp.2"]
    for name in ours + foreign:
        open(os.path.join(folder, name), "w").close()
    with open(os.path.join(folder, foreign[-1])) as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as who writes a report there
        must(args, env={"CC": cc})
        check(set(os.listdir(folder)) == names | set(foreign), "left %s" % sorted(set(os.listdir(folder)) ^ (names | set(foreign))))
    must(args, env={"CC": cc})
    check(set(os.listdir(folder)) == names | set(foreign[:-1]), "left %s" % sorted(set(os.listdir(folder)) ^ (names | set(foreign))))
    for name in foreign[:-1]:
        os.unlink(os.path.join(folder, name))
    for function in ("fsync", "rename", "unlink"):
        for n in itertools.count(1):
            os.unlink(os.path.join(folder, "mlp_kernels.key"))
            called, rc, err = inject(args, function, n, -signal.SIGKILL, more={"CC": cc})
            check(rc == (-signal.SIGKILL if called else 0), "%s %d: exit %d: %s" % (function, n, rc, err))
            if not called:
                break
            left |= {re.sub(r"\d+", "*", name) for name in set(os.listdir(folder)) - names}
            kills += 1
            must(args, env={"CC": cc})
            check(set(os.listdir(folder)) == names, "%s %d: left %s" % (function, n, set(os.listdir(folder)) - names))
    check({"mlp.c.tmp.*", "mlp.plan.json.tmp.*", "mlp.tmp.*.o", "mlp_kernels.o.tmp.*", "mlp_kernels.key.tmp.*", "mlp.tmp.*.out", "mlp.step.log.*"} <= left, "left only %s" % left)
    return "%d kills, leaving %s" % (kills, ", ".join(sorted(left)))


def test_killed_reports():
    folder = scratch("killed")
    args = [SHARDC, "inspect", MLP, "-o", os.path.join(folder, "report")]
    check(inject(args, "rename", 1, -signal.SIGKILL)[1] == -signal.SIGKILL and len(os.listdir(folder)) == 1, "not killed: %s" % os.listdir(folder))
    open(os.path.join(folder, "report.tmp.x1"), "w").close()
    must(args)
    check(sorted(os.listdir(folder)) == ["report", "report.tmp.x1"], "left %s" % os.listdir(folder))


def test_compilers():
    """What `shardc build` says about a C compiler that is not there, fails or is killed, and about what lies in its way."""
    folder = scratch("compilers")
    out = os.path.join(folder, "mlp")

    def compiler(name, text):
        path = os.path.join(scratch("cc"), name)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def expect(words, cc="gcc", name="mlp", home=ROOT, shardc=SHARDC, more=(), early=False, **env):
        """early: before anything is said or written."""
        name = "early/a" if early else name
        rc, said, err = command([shardc, "build", MLP, "-o", os.path.join(folder, name), *more], env=dict({"CC": cc, "SHARDC_HOME": home}, **env))
        refused(rc, err, "CC=" + cc)
        check(words in err, "no '%s' in: %s" % (words, err))
        check(not early or not (said or os.path.exists(os.path.join(folder, "early"))), "%s: said, or written, before: %s" % (words, said))
        check(not [n for n in os.listdir(folder) if "tmp" in n or "log" in n], "left-overs: %s" % os.listdir(folder))
        check(not os.path.isfile(out), "a binary in spite of " + words)

    expect("cannot run no-such-compiler: No such file or directory; install gcc, or name a C compiler in the environment variable CC", "no-such-compiler", early=True)
    expect("cannot run /no/such/gcc: No such file or directory", "/no/such/gcc", early=True)
    expect("a part of the C compiler is missing: install gcc and binutils whole", compiler("cc-no-ld", "echo \"collect2: fatal error: cannot find 'ld'\" >&2; exit 1"))
    expect("install the headers of the C library (libc6-dev)", compiler("cc-no-h", "echo 'fatal error: stdint.h: No such file or directory' >&2; exit 1"))
    expect("cc-fails ended with status 7 while building %s (step):\nno good" % out, compiler("cc-fails", "echo no good >&2; exit 7"))
    expect("cc-dies ended with signal 9 while building %s (kernels)" % out, compiler("cc-dies", 'case "$*" in *mlp_kernels.c*) kill -9 $$;; esac; exec gcc "$@"'))
    expect("signal 9 when memory runs out: end other programs", compiler("cc-dies", 'kill -9 $$'))
    expect("No space left on device\nmake room on the disk", compiler("cc-full", "echo as: x.o: No space left on device >&2; exit 1"))
    expect("cannot find -lz\ninstall the library behind -l", compiler("cc-no-z", 'case "$*" in *-lpthread*) echo ld: cannot find -lz >&2; exit 1;; esac; exec gcc "$@"'))
    expect("the environment variable CC names another C compiler", compiler("cc-fails", "exit 7"))
    expect("cc-no-link ended with status 1 while building %s (link)" % out, compiler("cc-no-link", 'case "$*" in *-lpthread*) exit 1;; esac; exec gcc "$@"'))
    os.unlink(os.path.join(folder, "mlp_kernels.key"))
    os.unlink(os.path.join(folder, "mlp_kernels.o"))
    os.mkdir(os.path.join(folder, "mlp_kernels.o"))
    expect("mlp_kernels.o is there already, and is a folder: it stays as it is; give another name with -o")
    os.rmdir(os.path.join(folder, "mlp_kernels.o"))
    os.makedirs(os.path.join(folder, "mlp", "mlp"))
    expect("mlp/mlp is there already, and is a folder")
    empty, alone = scratch("nowhere"), os.path.join(scratch("alone"), "shardc")
    shutil.copy2(SHARDC, alone)
    expect("the runtime's headers (runtime/sc.h) are not beside", home=empty, shardc=alone, early=True)
    shutil.copytree(os.path.join(ROOT, "runtime"), os.path.join(empty, "runtime"))
    cuda, fp64, found = ["--target", "cuda", "--device", "h200"], ["--variant", "fp64"], dict(CUDA_HOME=scratch("toolkit"), early=True)  # as much of one as is looked for
    os.mkdir(os.path.join(found["CUDA_HOME"], "bin"))
    shutil.copy2("/bin/true", os.path.join(found["CUDA_HOME"], "bin", "nvcc"))
    open(os.path.join(found["CUDA_HOME"], "libcudart_static.a"), "w").close()
    prefix, checkout = scratch("prefix"), scratch("checkout")
    for path in ("bin", "other"):
        os.mkdir(os.path.join(prefix if path == "bin" else checkout, path))
    installed, made = shutil.copy2(SHARDC, os.path.join(prefix, "bin", "shardc")), shutil.copy2(SHARDC, os.path.join(checkout, "other", "shardc"))
    os.symlink(os.path.join(ROOT, "runtime"), os.path.join(checkout, "runtime"))
    os.makedirs(os.path.join(prefix, "share", "shardc"))
    os.symlink(os.path.join(ROOT, "runtime"), os.path.join(prefix, "share", "shardc", "runtime"))
    for library, target, more in (("libsc_cpu.a", "", []), ("libsc_cpu_fp64.a", " libs-fp64", fp64), ("libsc_cuda.a", " cuda", cuda)):
        expect("%s is not in %s, nor below %s (SHARDC_HOME); neither is a checkout of shardc or a prefix that it was installed to: run `make%s` in a checkout and set SHARDC_HOME"
               % (library, os.path.dirname(alone), empty, target), home=empty, shardc=alone, more=more, **found)
        expect("%s is not in %s/lib/shardc; run `make%s install PREFIX=%s` in the checkout that" % (library, prefix, target, prefix), home=None, shardc=installed, more=more, **found)
        open(os.path.join(empty, "Makefile"), "w").close()
        expect("%s is not in %s/build; run `make -C %s%s`\n" % (library, empty, empty, target), home=empty, shardc=alone, more=more, **found)
        os.unlink(os.path.join(empty, "Makefile"))
        open(os.path.join(checkout, "Makefile"), "w").close()
        expect("%s is not in %s/other; run `make -C %s B=other%s`\n" % (library, checkout, checkout, target), home=None, shardc=made, more=more, **found)
    toolkit = scratch("toolkit")
    expect("nvcc, the compiler of CUDA 13, is not in %s/bin (CUDA_HOME); set CUDA_HOME" % toolkit, more=cuda, CUDA_HOME=toolkit, early=True)
    if not os.path.exists("/usr/local/cuda") and not os.path.exists("/opt/cuda"):
        home, toolkit = os.path.join(empty, "build"), scratch("toolkit")
        os.mkdir(home)
        open(os.path.join(home, "libsc_cuda.a"), "w").close()
        env = dict(home=empty, shardc=alone, name="a", more=cuda, PATH="/usr/bin:/bin", CUDA_HOME=toolkit, NCCL_HOME="")
        os.mkdir(os.path.join(toolkit, "bin"))
        shutil.copy2("/bin/true", os.path.join(toolkit, "bin", "nvcc"))
        expect("is not below %s nor the folders where CUDA usually is" % toolkit, **env)
    toolkit = found["CUDA_HOME"]
    library = os.path.join(os.path.dirname(alone), "libsc_cuda.a")
    open(library, "w").close()
    for made, arch, words in (("90", "sm_80", "made for sm_90, and this program is for sm_80; run make cuda CUDA_ARCHS='80 90'"),
                              ("86 90", "sm_80", "made for sm_86, sm_90, and this program is for sm_80; run make cuda CUDA_ARCHS='80 86 90'"),
                              ("80 90", "sm_86", "a_kernels.sm_86.o: No such file or directory"), ("80 90", "sm_100", "CUDA_ARCHS='100 80 90'")):
        with open(os.path.join(os.path.dirname(alone), "libsc_cuda.archs"), "w") as f:
            f.write(made + "\n")
        expect(words, home=empty, shardc=alone, name="a", more=["--target", "cuda", "--arch", arch], CUDA_HOME=toolkit)
    return "29 cases"


def run_case(world):
    folder, binary = scratch("train"), build("gpt2.lua", world=world, **SMALL)
    names = ["state", "weights", "log", "dump", "trace"]
    state, weights, log, dump, trace = [os.path.join(folder, n) for n in names]
    kept = os.path.join(scratch("kept"), "state")  # where each run begins
    must([binary, "--data", corpus(), "--steps", "1", "--save", kept])
    shutil.copytree(kept, state)
    args = [binary, "--data", corpus(), "--steps", "2", "--resume", state, "--save", state, "--export", weights, "--log", log,
            "--dump", "*", "--at-step", "2", "-o", dump, "--trace", trace]
    must(args)
    before = contents(folder)
    exported = read_safetensors(weights)

    def whole(what):
        index = json.load(open(os.path.join(state, "index.json")))
        parts = os.path.join(state, index["folder"])
        check(sorted(os.listdir(state)) == sorted([index["folder"], "index.json"]), "%s: %s in the checkpoint" % (what, os.listdir(state)))
        check(len([read_safetensors(os.path.join(parts, n)) for n in os.listdir(parts) if n.endswith(".safetensors")]) == world, what)
        check(read_safetensors(weights) == exported, what + ": other weights")
        for line in open(log):
            json.loads(line)
        check(not [n for n in os.listdir(folder) if n.split(".")[0] not in names or "tmp" in n], "%s: left %s" % (what, os.listdir(folder)))
        shutil.rmtree(state)
        shutil.copytree(kept, state)

    whole("the plain run")
    check(before, "nothing written")
    return args, whole


@long
@waits
def test_training():
    args, whole = run_case(2)
    said = ""
    for f, e in FILES + [("fork", errno.EAGAIN), ("pthread_create", errno.EAGAIN), ("pread", errno.EIO), ("open_memstream", errno.ENOMEM),
                         ("vasprintf", errno.ENOMEM), ("glob", errno.ENOMEM)]:
        said += sweep(args, f, e, whole, whole)
    for words in ("cannot start rank", "cannot start a thread", "cannot map", "cannot save to", "cannot export to", "cannot write the log", "cannot read the log", "trace: "):
        check(words in said, "never said: " + words)
    return "%d messages" % len(said.splitlines())


def test_training_without_memory():
    args, whole = run_case(1)
    said = "".join(sweep(args, f, errno.ENOMEM, whole, whole, geometric(1, 1.15)) for f in MEMORY)
    check("out of memory" in said, "never out of memory")
    return "%d messages" % len(said.splitlines())


@waits
def test_killed_while_saving():
    """The rank is killed before each call that a save makes: what is left is resumed, and the next run that saves there leaves as
    many states as it shall keep and nothing else, also in the background; a file of somebody else's in a folder that was left stays, and ends nothing."""
    folder, binary = scratch("killed"), build("mlp.lua", world=1)  # of several ranks the others wait a second
    kept, state = os.path.join(folder, "kept"), os.path.join(folder, "state")
    go = [binary, "--data", corpus(), "--quiet"]
    must([*go, "--steps", "1", "--save", kept])
    kills, left = 0, set()
    for function, keep in itertools.product(("mkdir", "open", "write", "fsync", "rename", "unlink", "rmdir"), (1, 2)):
        way = ["--keep", str(keep), *["--save-in-background"] * (keep - 1)]
        for n in itertools.count(1):
            shutil.rmtree(state, ignore_errors=True)
            shutil.copytree(kept, state)
            called, rc, err = inject([*go, "--steps", "2", "--resume", state, "--save", state, *way], function, n, -signal.SIGKILL)
            check(rc != 0 if called else rc == 0, "%s %d: exit %d: %s" % (function, n, rc, err))
            if not called:
                break
            index = json.load(open(os.path.join(state, "index.json")))
            more = sorted(set(os.listdir(state)) - {index["folder"], "index.json", *index["kept"]})
            left |= set(more)
            kills += 1
            foreign = [os.path.join(state, name, "notes") for name in more if os.path.isdir(os.path.join(state, name))] if n % 2 else []
            for path in foreign:
                open(path, "w").close()
            must([*go, "--steps", "3", "--resume", state, "--save", state, *way])
            check(all(os.path.exists(path) for path in foreign), "%s %d: removed a file that it did not write" % (function, n))
            now = {os.path.join(d, f) for d, _, fs in os.walk(state) for f in fs} - set(foreign)
            states = [index["folder"]] * (keep - 1) + ["step-00000003"]
            whole = {os.path.join(state, name) for name in ["index.json"] + [s + f for s in states for f in ("/index.json", "/rank-0.safetensors")]}
            check(now == whole and (foreign or sorted(os.listdir(state)) == ["index.json", *states]), "%s %d left %s, and then %s" % (function, n, more, now))
            for own in states:
                must([*go, "--steps", "4", "--resume", os.path.join(state, own)])
    check({"step-00000001", "step-00000002", "step-00000002.part", "index.json.next", "index.json.next.part"} <= left, "left only %s" % left)
    return "%d kills, leaving %s" % (kills, ", ".join(sorted(left)))


@waits
def test_reading():
    """Weights, checkpoints, token files and records that cannot be read."""
    args, whole = run_case(1)
    binary, state, weights = args[0], args[args.index("--save") + 1], args[args.index("--export") + 1]
    token = "\3\0\0\0"  # int32; one record is 2 x 16 tokens and as many targets
    tokens = scratch("tokens")  # one file: where several match, glibc's glob (2.36) frees names twice when memory ends among them
    shutil.copy(corpus(), tokens)
    copy, tensors = os.path.join(tokens, "copy.st"), read_safetensors(weights)
    name = min(tensors)
    write_safetensors(copy, {name: tensors[name]})  # once more: the two are compared
    for extra, stdin in ((["--resume", state, "--steps", "2"], None), (["--weights", weights, copy, "--steps", "1"], None), (["--steps", "1"], token * 64)):
        data = ["--data", "-"] if stdin else ["--data", os.path.join(tokens, "corpus-*.bin")]
        said = ""
        for f, e in [("open", errno.EACCES), ("fstat", errno.EIO), ("pread", errno.EIO), ("read", errno.EIO), ("mmap", errno.ENOMEM), ("glob", errno.ENOMEM)]:
            said += sweep([binary, *data, *extra], f, e, whole, whole, stdin=stdin)
        for f in MEMORY:
            counts = itertools.chain(range(1, 200), geometric(200, 1.15)) if extra[0] == "--resume" else geometric(1, 1.15)  # each call for the index and its members
            said += sweep([binary, *data, *extra], f, errno.ENOMEM, whole, whole, counts, stdin=stdin)
        check("not JSON" not in said, "without memory a sound file is called none: " + said)
        check("out of memory" in said and ("no memory for" if stdin else "cannot read") in said, said)
    return "3 ways to start"
