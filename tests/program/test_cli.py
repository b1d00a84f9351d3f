"""The command line: every usage error and every diagnostic of compiler/main.c and compiler/cli/, with exit codes.

Relies on: harness.py. Relied on by: run.py."""
import collections
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import threading

from harness import ROOT, SHARDC, build, check, command, entry, events_of, must, on_terminal, read_log, scratch, shardc

MLP = os.path.join(ROOT, "models", "mlp.lua")
FOLDER = scratch("cli")
PLAN = os.path.join(FOLDER, "mlp.plan.json")
TEXT, PAGE, NOTHING = (os.path.join(FOLDER, name) for name in ("text", "page.html", "nothing.json"))
EMPTY = os.path.join(FOLDER, "empty")
SOCKET = os.path.join(FOLDER, "socket")  # is there and cannot be opened
HUGE = os.path.join(FOLDER, "huge")  # sparse
DEVICE = os.path.join(FOLDER, "device.lua")
COPY = os.path.join(FOLDER, "copy.lua")
PART = os.path.join(FOLDER, "part.lua")  # which WHOLE requires
WHOLE = os.path.join(FOLDER, "whole.lua")
PROFILE = os.path.join(FOLDER, "profile.lua")
POLICY = os.path.join(FOLDER, "policy.lua")
SCRIPT = os.path.join(FOLDER, "script")  # may be executed, and is text
LOCKED = os.path.join(FOLDER, "locked")  # a program that may not be executed
INSIDE = os.path.join(FOLDER, "inside")  # a folder with a program of its name
FILE_IN_THE_WAY = os.path.join(TEXT, "build")

# arguments, exit code, what stderr says
CASES = [
    ([], 2, "shardc build MODEL.lua"),
    (["biuld", MLP], 2, 'there is no command "biuld"; is it "build"?'),
    (["frobnicate"], 2, 'there is no command "frobnicate": build, run, predict'),
    (["predict"], 2, "predict wants an INPUT, MODEL.lua|PLAN.json|BINARY"),
    (["verify"], 2, "verify wants a model, a plan.json or a built binary"),
    (["predict", MLP, MLP], 2, "one input is enough"),
    (["predict", MLP, "--world", "0"], 2, "--world 0: a whole number from 1 to 1048576 is wanted"),
    (["predict", MLP, "--world", "two"], 2, "--world two: a whole number"),
    (["predict", MLP, "--tokens", "many"], 2, "--tokens many: a number above 0 is wanted, such as 20e9"),
    (["predict", MLP, "--tokens", "0"], 2, "--tokens 0: a number above 0 is wanted"),
    (["predict", MLP, "--price", "2"], 2, "--price is that of training on --tokens N: give both"),
    (["predict", MLP, "--tokens", "1e9", "--format", "json"], 2, "--tokens adds a line to the text of one prediction: leave out --format json"),
    (["predict", MLP, "--tokens", "1e9", "--sweep", "dim=8,16"], 2, "leave out --sweep, and ask for each point alone"),
    (["predict", MLP, "--world", "99999999999999999999"], 2, "--world 99999999999999999999: a whole number"),
    (["predict", MLP, "--world", "4", "--nodes", "3"], 2, "--nodes 3 does not divide --world 4"),
    (["predict", MLP, "--world", "24", "--nodes", "2", "--device", "h200"], 2, "--nodes 2 --world 24: 12 ranks a node, where h200 has at most 8; give --nodes 3 or leave it out"),
    (["run", MLP, "--steps", "3"], 2, "--steps is no option of shardc run; options of the program stand after --: shardc run MODEL.lua -- --steps ..."),
    (["run", MLP, "--set", "--x", "--data=x"], 2, "--data is no option of shardc run"),
    (["predict", MLP, "dim=3"], 2, "one input is enough, " + MLP + " was given already; an option of the model is set by --set dim=3"),
    (["report", TEXT, "--traced", "run.json"], 2, "--traced run.json: PROGRAM=FILES is wanted"),
    (["report", TEXT, "--traced", MLP + "=run.json"], 2, "with a model the options of the run would be missing; give the binary that ran"),
    (["report", TEXT, "--traced", PLAN + "=run.json", "--format", "json"], 2, "--traced adds to the text and to the page: leave out --format json"),
    (["report", TEXT, "--traced", PLAN + "=" + TEXT], 1, "text:1"),
    (["man", "predict"], 2, "predict: `shardc man` takes no input; leave it out"),
    (["predict", MLP[:-4]], 1, "cannot read " + MLP[:-4] + ": No such file or directory; is it " + MLP + "?"),
    (["predict", ""], 2, "predict: an argument is empty: is a variable of the shell not set?"),
    (["predict", MLP, "--policy", ""], 2, "predict: an argument is empty"),
    (["inspect", MLP, "-o", ""], 2, "inspect: an argument is empty"),
    (["inspect", PLAN, "--stream", "update"], 0, ""),
    (["inspect", PLAN, "--stream", "computer"], 2, "offload, fetch, host, update and exchange"),
    (["predict", MLP, "--wrld", "2"], 2, "unrecognized option '--wrld'"),
    (["run", MLP, "--sources"], 2, "--sources compiles nothing that could run; use 'shardc build'"),
    (["predict", MLP, "--set", "dim"], 2, "--set dim: key=value is wanted"),
    (["predict", MLP, "--set", "=3"], 2, "--set =3: key=value is wanted"),
    (["plan", MLP, "--budget", "1GiB", "--keep", "all"], 2, "--keep all: recompute, offload, reshard, prefetch or state is wanted"),
    (["plan", MLP], 2, "the cpu target has no memory limit to plan for; give --budget"),
    (["plan", MLP, "--budget", "1GiB", "--explain", "--format", "json"], 2, "the table is text; leave one of the two out"),
    (["predict", PLAN, "--sweep", "batch=1"], 2, "and this is compiled already: give the model's .lua file"),
    (["predict", MLP, "--format", "yaml"], 2, "--format yaml: one of text, json, csv is wanted"),
    (["predict", MLP, "--target", "tpu"], 2, "--target tpu: one of cpu, cuda is wanted"),
    (["predict", MLP, "--target", "cuda", "--device", "cpu"], 2, "--target cuda --device cpu: that device is no GPU; give --device h200"),
    (["run", LOCKED, "-o", "x"], 2, "-o says where a build goes, and " + LOCKED + " is built already"),
    (["calibrate", "--set", "dim=3"], 2, "--set says how to compile a model, and calibrate measures this machine's GPUs: give a MODEL.lua too"),
    (["calibrate", MLP, "--table", "t"], 2, "--table: with a MODEL, calibrate lists its kernels and measures nothing"),
    (["calibrate", MLP, "--tasks", "t"], 2, "--tasks: with a MODEL, calibrate lists its kernels"),
    (["predict", MLP, "--arch", "sm_90"], 2, "--arch sm_90 says what GPU code is compiled for: give --target cuda or a GPU's --device too"),
    (["build", MLP, "--arch", "sm_90"], 2, "--arch sm_90 says what GPU code is compiled for: give --target cuda or a GPU's --device too"),
    (["predict", MLP, "--target", "cuda", "--arch", "hopper"], 2, "--arch hopper: sm_90 (H100, H200), sm_80 (A100)"),
    (["predict", os.path.join(ROOT, "models", "gpt2.lua"), "--dump-after", "fuse"], 0, ""),  # whose products have epilogues
    (["predict", MLP, "--dump-after", "dust"], 2, "--dump-after dust: one of trace, precision"),
    (["build", MLP, "--target", "cuda", "--portable"], 2, "--portable --target cuda: --portable is for the cpu target; programs for GPUs run on any processor with AVX2"),
    (["build", MLP, "--device", "h200", "--portable"], 2, "--portable --device h200: --portable is for the cpu target"),
    (["build", MLP, "--device", "h200", "--variant", "fp64"], 2, "--variant fp64 --device h200: that variant is one of the cpu target"),
    (["build", MLP, "--variant", "msan"], 2, "--variant msan: one of asan, tsan, fp64 is wanted"),
    (["predict", MLP, "--redzone", "-1"], 2, "--redzone -1: a whole number"),
    (["predict", MLP, "--", "--steps", "3"], 2, "--steps: only `shardc run` takes options for the program after --"),
    (["predict", PLAN, "--world", "2"], 2, "--world says how to compile a model, and"),
    (["inspect", PLAN, "--set", "dim=3"], 2, "--set says how to compile a model"),
    (["verify", PLAN, "--device", "h200"], 2, "--device says how to compile a model"),
    (["verify", PLAN, "--nodes", "1"], 2, "--nodes says how to compile a model"),
    (["verify", PLAN, "--target", "cuda"], 2, "--target says how to compile a model"),
    (["verify", PLAN, "--policy", "p.lua"], 2, "--policy says how to compile a model"),
    (["verify", PLAN, "--dump-after", "fuse"], 2, "--dump-after says how to compile a model"),
    (["verify", PLAN, "--redzone", "64"], 2, "--redzone says how to compile a model"),
    (["predict", MLP, "--delay-collectives", "fetch=3"], 2, "--delay-collectives fetch=3: MS, gather=MS, reduce=MS or exchange=MS is wanted"),
    (["inspect", PLAN, "--delay-collectives", "gather=-1"], 2, "--delay-collectives gather=-1: milliseconds are wanted, a number from 0 to 1e9"),
    (["verify", PLAN, "--max-step-ms", "fast"], 2, "--max-step-ms fast: milliseconds are wanted"),
    (["predict", MLP, "--at", "noon"], 2, "--at noon: the program micro has no such event; `peak`, `forward`"),
    (["predict", MLP, "--by", "colour"], 2, "--by colour: one of module, unit, storage is wanted"),
    (["predict", PLAN, "--by", "unit", "--format", "json"], 2, "--format json holds the peak and all events: leave out --at and --by"),
    (["inspect", PLAN, "--stream", "computer"], 2, "--stream computer: streams are compute, gather"),
    (["inspect", PLAN, "--program", "mirco"], 2, "--program mirco: this plan has"),
    (["inspect", PLAN, "--columns", "op,adress"], 2, "--columns adress: columns are stream, purpose, op, phase, module, reads, writes, address, size, waits, why, time, source; or all, or default"),
    (["inspect", PLAN, "--columns", "op,address"], 2, "--columns: address and size belong to reads and writes: add one of those"),
    (["inspect", PLAN, "--columns", "op,why"], 2, "--columns: why belongs to waits: write waits,why"),
    (["inspect", PLAN, "--columns", "all", "--format", "json"], 2, "--format json writes the whole plan: leave out --program, --module, --stream and --columns"),
    (["inspect", PLAN, "--program", "mirco"], 2, "is it micro?"),
    (["inspect", PLAN, "--module", "nowhere.*"], 1, "--module 'nowhere.*': no module with events has such a path; * stands for any characters"),
    (["inspect", PLAN, "--format", "json", "--stream", "gather"], 2, "--format json writes the whole plan"),
    (["inspect", PLAN, "-o", FOLDER], 1, "it is a folder"),
    (["inspect", PLAN, "-o", "/nowhere/at/all"], 1, "cannot write /nowhere/at/all"),
    (["predict", os.path.join(FOLDER, "absent.json")], 1, "No such file or directory"),
    (["predict", TEXT], 1, "text:1: not a plan of shardc: column 1: from here on it is not JSON; is the file whole? (a model's name ends in .lua)"),
    (["predict", PAGE], 1, "page.html:1: not a plan of shardc: it is a page; give the model, the plan.json or the binary that it was made of"),
    (["predict", NOTHING], 1, "nothing.json:1: not a plan of shardc: it is empty"),
    (["predict", SHARDC], 1, "this binary"),
    (["predict", MLP, "--device", DEVICE], 1, "device.lua:1: require: no module 'parts'"),
    (["build", PLAN], 2, "a model's .lua file is wanted"),
    (["build", MLP, "-o", ""], 2, "build: an argument is empty"),
    (["build", MLP, "-o", os.path.join(FILE_IN_THE_WAY, "mlp")], 1, "cannot make the folder"),
    (["predict", COPY, "-o", COPY], 1, "copy.lua is both an input and an output; give another name with -o"),
    (["inspect", COPY, "-o", POLICY, "--policy", POLICY], 1, "policy.lua is both an input and an output"),
    (["inspect", WHOLE, "-o", PART], 1, "part.lua is both an input and an output"),
    (["inspect", MLP, "--device", PROFILE, "-o", PROFILE], 1, "profile.lua is both an input and an output"),
    (["verify", PLAN, "-o", PLAN], 1, "mlp.plan.json is both an input and an output"),
    (["calibrate", "--tasks", TEXT, "-o", TEXT], 1, "text is both an input and an output"),
    (["calibrate", "--tasks", TEXT, "--table", TEXT], 1, "text is both an input and an output"),
    (["run", PLAN], 1, "mlp.plan.json: it is not a program; give a model's .lua file or a program that shardc built"),
    (["run", SCRIPT], 1, "script: it is not a program"),
    (["run", LOCKED], 1, "cannot run " + LOCKED + ": Permission denied; see chmod +x"),
    (["run", LOCKED, "--", "--prompt", ""], 1, "cannot run " + LOCKED + ": Permission denied"),
    (["run", os.path.join(FOLDER, "absent")], 1, "absent: No such file or directory"),
    (["run", FOLDER], 1, FOLDER + ": it is a folder; give a model's .lua file or a program that shardc built"),
    (["run", INSIDE + "/"], 1, "it is a folder; the program in it is " + os.path.join(INSIDE, "inside")),
    (["run", LOCKED, "--world", "4"], 2, "--world says how to compile a model, and " + LOCKED + " is compiled already"),
    (["run", LOCKED, "--set", "dim=3"], 2, "--set says how to compile a model, and " + LOCKED),
    (["data", TEXT], 2, "data wants the name of its output"),
    (["data", "-o", os.path.join(FOLDER, "x.bin")], 2, "data wants an INPUT, FILE... -o OUT.bin"),
    (["data", FOLDER, "-o", os.path.join(FOLDER, "x.bin")], 1, "it is a folder; name its files"),
    (["data", os.path.join(FOLDER, "absent"), "-o", os.path.join(FOLDER, "x.bin")], 1, "No such file or directory"),
    (["data", TEXT, "-o", TEXT], 1, "is both an input and an output"),
    (["data", TEXT, "-o", COPY], 1, "copy.lua is there already, and holds no tokens: it stays as it is; give another name with -o"),
    (["data", SOCKET, "-o", os.path.join(FOLDER, "x.bin")], 1, "socket: No such device or address"),
    (["data", "/proc/self/mem", "-o", os.path.join(FOLDER, "x.bin")], 1, "cannot read /proc/self/mem: Input/output error"),
    (["data", TEXT, HUGE, "-o", os.path.join(FOLDER, "x.bin")], 1, "more than 2147483647 tokens, which one .bin file cannot hold; make several"),
    (["predict", HUGE], 1, "huge: it is larger than 1024 MiB"),
    (["inspect", PLAN, "-o", SOCKET], 1, "cannot write " + SOCKET),
    (["data", EMPTY, "-o", os.path.join(FOLDER, "x.bin")], 1, "is empty"),
    (["data", EMPTY, EMPTY, "-o", os.path.join(FOLDER, "x.bin")], 1, "every file given is empty"),
    (["data", TEXT, "-o", "/dev/stdout"], 1, "must be a regular file"),
    (["data", TEXT, "-o", os.path.join(FOLDER, "x.bin"), "--separator", "65536"], 2, "--separator 65536: a whole number from 0 to 65535"),
]


LOCK = threading.Lock()


def prepare():  # tests run side by side: the first makes the files
    with LOCK:
        if os.path.exists(PLAN):
            return
        with open(TEXT, "w") as f:
            f.write("some text\n")
        open(NOTHING, "w").close()
        with open(PAGE, "w") as f:
            f.write("<!doctype html>\n")
        open(EMPTY, "w").close()
        with open(DEVICE, "w") as f:
            f.write("return require 'parts'\n")
        with open(POLICY, "w") as f:
            f.write("return { { match = '', fully_shard = {} } }\n")
        with open(HUGE, "w") as f:
            f.truncate(5 << 30)
        shutil.copy(MLP, COPY)
        shutil.copy(MLP, PART)
        with open(WHOLE, "w") as f:
            f.write('return require "part"\n')
        shutil.copy(os.path.join(ROOT, "compiler", "devices", "cpu.lua"), PROFILE)
        os.mkdir(INSIDE)
        for path, text in ((SCRIPT, b"some text\n"), (LOCKED, b"\177ELF"), (os.path.join(INSIDE, "inside"), b"\177ELF")):
            with open(path, "wb") as f:
                f.write(text)
        os.chmod(SCRIPT, 0o755)
        s = socket.socket(socket.AF_UNIX)
        s.bind(SOCKET)
        s.close()
        shardc("inspect", MLP, "--world", "2", "--format", "json", "-o", PLAN)


def test_verify_names_what_misses_a_bound():
    rc, out, err = command([SHARDC, "verify", MLP, "--world", "2", "--delay-collectives", "reduce=2", "--max-step-ms", "4", "--max-forward-ms", "0", "--max-exposed-ms", "0"])
    check(rc == 1 and not err, "exit %d: %s" % (rc, err))
    check(max(map(len, out.splitlines())) <= 80, out)
    out = " ".join(out.split())
    for text in ("mlp: sound", "mlp: micro: forward 0.", "micro: forward-time: the forward ends after", "micro: step-time: it ends after", "its critical path: ",
                 "micro: exposed: ", "(reduce, 2.0", "mlp: TOO SLOW: 3 bounds missed"):
        check(text in out, "%r not in:\n%s" % (text, out))
    rc, out, _ = command([SHARDC, "verify", MLP, "--world", "2", "--max-step-ms", "1000"])
    check(rc == 0 and "TOO SLOW" not in out and "mlp: micro: forward 0." in out, out)


def test_diagnostics():
    prepare()
    before = open(TEXT).read()
    wrong = []
    for args, code, says in CASES:
        rc, out, err = command([SHARDC, *args])
        if rc != code or says not in err or len(err.strip().splitlines()) > (24 if not args else 2):
            wrong.append("shardc %s: exit %d: %s" % (" ".join(args), rc, err.strip() or out.strip()))
    check(not wrong, "\n".join(wrong))
    check(open(COPY).read() == open(PART).read() == open(MLP).read(), "a model is written over")
    check(open(TEXT).read() == before and not os.path.exists(os.path.join(FOLDER, "x.bin")), "a failed command left traces")
    return "%d cases" % len(CASES)


def test_builds_of_one_name():
    """Side by side they would mix their files: the second waits for the first, which links slowly."""
    folder, cc = scratch("same"), os.path.join(scratch("cc"), "slow")
    linking, path, said, quick = cc + ".linking", os.path.join(folder, "mlp"), [], os.environ.get("CC") or "gcc"
    with open(cc, "w") as f:
        f.write('#!/bin/sh\ncase "$*" in *-lpthread*) touch %s; sleep 1;; esac\nexec %s "$@"\n' % (linking, quick))
    os.chmod(cc, 0o755)

    def build(world, cc):
        said.append((world, shardc("build", MLP, "--world", str(world), "-o", folder + "//", env={"CC": cc}).strip()))

    first = threading.Thread(target=build, args=(1, cc))
    first.start()
    while first.is_alive() and not os.path.exists(linking):
        first.join(0.01)
    build(2, quick)
    first.join()
    check(said == [(1, "mlp for cpu, world 1 -> " + path), (2, "mlp for cpu, world 2 -> " + path)], "builds ended so: %s" % said)
    plan = open(path + ".plan.json").read()
    check(shardc("inspect", path, "--format", "json") == plan and json.loads(plan)["mesh"]["world"] == 2, "another build's plan is in the program")
    check(sorted(os.listdir(folder)) == ["mlp", "mlp.c", "mlp.plan.json", "mlp_kernels.c", "mlp_kernels.key", "mlp_kernels.o"], os.listdir(folder))
    return "2 builds"


def test_compiler_of_several_words():
    """CC="ccache gcc" is usual; a program whose own path holds a space is one word."""
    own = os.path.join(scratch("words of cc"), "cc")
    other = os.path.join(scratch("words"), "cc")
    for path in (own, other):
        with open(path, "w") as f:
            f.write('#!/bin/sh\necho "$1" >>"%s.calls"\nexec %s "$@"\n' % (path, os.environ.get("CC") or "gcc"))
        os.chmod(path, 0o755)
    for cc, path, first in ((own, own, {"-std=gnu17"}), (other + " \t -DWORD ", other, {"-DWORD"})):
        shardc("build", MLP, "-o", os.path.join(os.path.dirname(path), "mlp"), env={"CC": cc})
        calls = open(path + ".calls").read().split()
        check(len(calls) == 3 and set(calls[:2]) == first, "CC='%s' was called with: %s" % (cc, calls))
    return "2 compilers"


def test_help():
    named = re.search(r'no command "frob": (.*) are; ', command([SHARDC, "frob"])[2])[1].replace(" and ", ", ").split(", ")
    listed = re.findall(r"^  shardc (\w+) ", shardc("-h"), re.M)
    check(sorted(listed) == sorted(named), "shardc -h lists %s, there are %s" % (listed, named))
    for c in ("build", "run", "predict", "inspect", "verify", "data", "pack"):
        for flag in ("-h", "--help"):
            rc, out, err = command([SHARDC, c, flag])
            check(rc == 0 and "Example:\n  shardc %s" % c in out and not err, "shardc %s %s: exit %d\n%s%s" % (c, flag, rc, out, err))
    for flags in (["-h"], ["--help"], ["help"], ["--version"], ["predict", "--usage"]):
        rc, out, err = command([SHARDC, *flags])
        check(rc == 0 and out and not err, "shardc %s: exit %d" % (" ".join(flags), rc))
    return "7 commands"


def gpt2(*args):
    return shardc("inspect", os.path.join(ROOT, "models", "gpt2.lua"), "--set", "layers=2", "--set", "dim=64", "--set", "heads=2", "--set", "seq=32", *args)


def test_columns():
    """By default a line of inspect holds neither address nor time, so that schedules can be compared; --columns chooses."""
    def lines(*args):
        parts = gpt2("--world", "2", "--device", "h200", *args).split("\n\n")  # the head, the programs, the units
        return [line for part in parts[1:-1] for line in part.split("\n")[1:]]
    everything, default, few = lines("--columns", "all"), lines(), lines("--columns", "op,time")
    check(len(everything) == len(default) == len(few) > 100, "%d, %d and %d lines" % (len(everything), len(default), len(few)))
    for a, d, f in zip(everything, default, few):
        check(re.search("  t [0-9.]+ms .[0-9.]+ms  gpt2.lua:[0-9]+$", a), a)
        without = re.sub("  t [0-9.]+ms .[0-9.]+ms", "", re.sub("@(host:)?0x[0-9a-f]{8}", "", re.sub("  why .*?(?=  t )|(?<=[a-z])  to [a-z ]+?(?=  )", "", a)))
        check(without == re.sub(r"\+0x[0-9a-f]+:", ":", d), "all but purpose, address, why and time:\n%s\n%s" % (a, d))
        check(f == "  ".join((a.split()[0], re.split("  +", a)[2], re.search("t [0-9.]+ms .[0-9.]+ms", a)[0])), "%s\n%s" % (a, f))
    def differ(*args):
        one, two = (lines("--set", "prefetch=%d" % n, "--set", "layers=6", *args) for n in (1, 2))
        return sum(n != 0 for n in (collections.Counter(one) - collections.Counter(two)).values()), len(one)
    (some, n), (most, _) = differ(), differ("--columns", "all")
    check(some < n // 20 and most > n // 2, "prefetch=2 changes %d of %d lines, and %d with addresses and times" % (some, n, most))
    return "prefetch=2 changes %d of %d lines; %d of those with addresses and times" % (some, n, most)


def test_reasons_of_waits():
    """`inspect --columns waits,why` gives each wait the reasons that the emitted text gives it, of a model and of its plan.json."""
    model, options = os.path.join(ROOT, "models", "gpt2.lua"), ["--set", "layers=2", "--set", "dim=64", "--set", "heads=2", "--set", "seq=32", "--world", "2"]
    out = os.path.join(scratch("reasons"), "build", "small")
    shardc("build", model, *options, "--sources", "-o", out)
    def plain(reason):  # C's names of states: without dots, and with p_ before words that C may know
        return re.sub(r"[^a-z0-9]+", "_", re.sub(r"\bp_", "", reason.lower())).strip("_")
    plan, told = json.load(open(out + ".plan.json")), collections.Counter()
    name_of = {(s["program"], s["offset"], s["first"], s["last"]): s["name"] for s in plan["storages"] if "program" in s}
    for program, text in re.findall(r"^static void program_(\w+)\(sc_rank \*r\) \{\n(.*?)^\}", open(out + ".c").read(), re.S | re.M):
        rows = re.findall(r"^ +(\w+) = 0x(\w+), /\* [^,]*, (\w+) to (\w+) \*/$", text, re.M)  # the text names results by their module
        names = {name: name_of[program, int(at, 16), first, last] for name, at, first, last in rows}
        for m in re.finditer(r"sc_wait\(r, \w+, (\w+)\);\s+/\* (.*?) \*/", text, re.S):
            told[m[1], plain(re.sub(r"\w+", lambda w: names.get(w[0], w[0]), re.sub(r"\n +\* ", " ", m[2])))] += 1
    for source in ([model, *options], [out + ".plan.json"]):
        said = collections.Counter()
        for line in shardc("inspect", *source, "--columns", "waits,why").split("\n"):
            m = re.search("  wait (.*)  why (.*)$", line)
            for reason in re.split(r"\. (?=\w+: )", m[2]) if m else []:
                said[plain(reason.split(": ", 1)[0]), plain(reason.split(": ", 1)[1])] += 1
            check(not m or [r.split(":")[0] for r in re.split(r"\. (?=\w+: )", m[2])] == m[1].split(), line)
        check(said == told and sum(told.values()) > 20, "%s\n%s" % (said - told, told - said))
    return "%d waits" % sum(told.values())


def test_predictions_fit_a_terminal():
    """80 columns, but for a word or the command of a plan that is longer; the answer stands before all else. Names of any length break no table."""
    deep = os.path.join(scratch("deep"), "deep.lua")
    with open(MLP) as f, open(deep, "w") as out:
        out.write(re.sub(r"\bup\b", "up_" + "of_a_very_long_name_" * 4, f.read()))
    llama = os.path.join(ROOT, "models", "llama3.lua")
    for args in ([MLP], [deep, "--world", "2"], [os.path.join(ROOT, "models", "moe.lua"), "--world", "4", "--device", "h200"], [llama, "--set", "size=8b", "--world", "16", "--device", "h200"],
                 [llama, "--set", "size=8b", "--set", "batch=8", "--device", "rtx4090", "--tokens", "1e9", "--price", "2"]):
        rc, text, err = command([SHARDC, "predict", *args])
        lines = text.splitlines()
        check(lines[0].startswith("fits ") and lines[1].startswith("  step     ") and (rc == 0 or "batch=8" in args), text + err)
        for line in lines:
            check(len(line) <= 80 or " " not in re.sub(r" \(\d+\)$", "", line[20:]).strip() or line.strip().startswith("shardc plan "), "%d columns: %s" % (len(line), line))
            check(line == line.rstrip(), "spaces at the end: %r" % line)
    check("up_of_a_very" in shardc("predict", deep), "the long name is not there")


def test_inspect_on_a_terminal():
    """A table with a header: no wider than the terminal, whose cells go on below. A wide one says all that a line says. Training stands first, in pipes too."""
    args = [SHARDC, "inspect", os.path.join(ROOT, "models", "gpt2.lua"), "--world", "2", "--set", "layers=2", "--set", "dim=64", "--set", "heads=2", "--set", "seq=32"]
    piped = must(args)
    order = lambda text: re.findall(r"(?m)^program (\w+): ", text)
    check(order(piped)[0] == "micro" and sorted(order(piped)) == ["eval", "init", "micro", "sample", "start"], "programs in the order %s" % order(piped))
    for columns in (80, 100, 130):
        text = on_terminal(columns, args)
        check(order(text) == order(piped), "programs in the order %s" % order(text))
        check(all(len(line) <= columns and line == line.rstrip() for line in text.splitlines()), "wider than %d:\n%s" % (columns, max(text.splitlines(), key=len)))
        head = re.search(r"^program micro: .*\n(?:.*\n)*?id +(.*)$", text, re.M)[1].split()
        check(head == ["stream", "op", "phase", "module"] + ["reads", "writes"] * (columns >= 120) + ["waits", "source"], "the header is %s" % head)
        check(("--columns default" in text) == (columns < 120), "what is left out is not said, or nothing is and it is")
    wide = on_terminal(1000, args)
    for line in piped.splitlines():
        words = re.sub("  (r|w|wait) ", "  ", line).split()
        found = re.match(r"(\S+) (compute|gather|reduce)  ", line)
        check(not found or any(row.split() == words for row in wide.splitlines()), "no row says what this line does: " + line)
    chosen = on_terminal(80, [*args, "--columns", "op,reads", "--program", "micro"])
    check(re.search(r"^id +op +reads$", chosen, re.M) and "master:" not in chosen and "master" in chosen, chosen[:600])


def test_nodes():
    """Predict says on how many nodes the ranks stand, and that a network between them takes longer than links."""
    def step_line(*args):
        return entry(shardc("predict", MLP, *args), "step")

    def step(*args):
        plan = json.loads(shardc("predict", MLP, "--device", "h200", *args, "--format", "json"))
        return step_line("--device", "h200", *args), plan["prediction"]["step_us"]
    (one, fast), (eight, slow) = step("--world", "8"), step("--world", "8", "--nodes", "8")
    check("nodes" not in one and "· 8 nodes of 1" in eight and slow > fast, "%s\n%s" % (one, eight))
    for world, nodes in ((9, "3 nodes of 3"), (12, "2 nodes of 6"), (13, "13 nodes of 1"), (64, "8 nodes of 8")):
        line, _ = step("--world", str(world))
        check(line.endswith("· " + nodes), line)
    line = step_line("--world", "12", "--nodes", "1")
    check("nodes" not in line, "ranks of a CPU: " + line)
    text = open(os.path.join(ROOT, "compiler", "devices", "h200.lua")).read()
    check(text.count("  ranks_per_node = 8,\n") == 1, "h200.lua states its ranks otherwise")
    for states in "", "  ranks_per_node = 0,\n":
        mine = os.path.join(scratch("profile"), "mine.lua")
        open(mine, "w").write(text.replace("  ranks_per_node = 8,\n", states))
        one, two = (step_line("--device", mine, "--world", "13", *more) for more in ((), ("--nodes", "13")))
        check("nodes" not in one and "· 13 nodes of 1" in two, "any number of ranks a node: %s\n%s" % (one, two))


def test_models_from_other_editors():
    """A mark of UTF-8 at the file's begin and lines that end as on Windows change nothing."""
    model = os.path.join(scratch("editor"), "mlp.lua")
    with open(MLP, "rb") as f:
        text = f.read()
    for begin, end in ((b"\xef\xbb\xbf", b"\n"), (b"", b"\r\n"), (b"\xef\xbb\xbf", b"\r\n")):
        with open(model, "wb") as f:
            f.write(begin + text.replace(b"\n", end))
        check(shardc("predict", model) == shardc("predict", MLP), "%r %r: another prediction" % (begin, end))
    return "3 ways to write a file"


def test_what_nobody_shards_is_told():
    """Parameters that nn.fully_shard never saw lie whole on every rank: a note, unless a mesh says so or there is one rank."""
    def said(world, shard):
        model = os.path.join(scratch("unsharded"), "net.lua")
        with open(model, "w") as f:
            f.write((COUNTED % ("self.table(x)", "", '"int32", { 6 }')).replace("nn.fully_shard(model)", shard))
        rc, _, err = command([SHARDC, "predict", model, "--world", str(world)])
        check(rc == 0, err)
        return err.replace(model, "net.lua")
    check(said(2, "") == "net.lua:2: note: no module is given to nn.fully_shard: each of the 2 ranks holds the whole model, as in DDP; write nn.fully_shard(model), "
          "or where that is meant nn.fully_shard(model, { mesh = nn.mesh { shard = 1 } })\n", said(2, ""))
    check("net.lua:2: note: 200 of 344 parameters (table.weight, ...) are of no module given to nn.fully_shard: each of the 2 ranks holds all" in said(2, "nn.fully_shard(model.out)"),
          said(2, "nn.fully_shard(model.out)"))
    for world, shard in (1, ""), (2, "nn.fully_shard(model)"), (2, "nn.fully_shard(model, { mesh = nn.mesh { shard = 1 } })"):
        check(said(world, shard) == "", said(world, shard))
    return "5 models"


def test_sums_in_16_bits_are_told():
    """A policy that has microbatches added up in 16 bits gets a note; where they are added up in fp32, or there is one, nothing is said."""
    def said(accumulate, policy):
        model = os.path.join(scratch("narrow"), "net.lua")
        with open(model, "w") as f:
            f.write((COUNTED % ("self.table(x)", "", '"int32", { 6 }')).replace("nn.fully_shard(model)", "nn.fully_shard(model, { %s })" % policy)
                    .replace("lr = 0.1 },", "lr = 0.1 }, accumulate = %d" % accumulate))
        rc, _, err = command([SHARDC, "predict", model, "--world", "2"])
        check(rc == 0, err)
        return err.replace(model, "net.lua")
    once, each = "requires_gradient_sync = false, ", ""
    for d, most in ("bf16", 256), ("fp16", 2048):
        wide = "mp_policy = { param_dtype = '%s', reduce_dtype = '%s' }" % (d, d)
        narrow = wide.replace(" }", ", grad_dtype = '%s' }" % d)
        check(said(4, once + narrow) == "net.lua:5: note: 4 microbatches are added up in %s, as grad_dtype and reduce_dtype say (unit (root)): a sum of equal gradients "
              "stops growing at %d of them; leave grad_dtype out to add them up in fp32\n" % (d, most), said(4, once + narrow))
        for accumulate, policy in (1, once + narrow), (4, once + wide), (4, each + narrow), (4, each + wide):
            check(said(accumulate, policy) == "", said(accumulate, policy))
    return "10 models"


COUNTED = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.table, model.up, model.out = nn.Embedding(16, 8), nn.Linear(8, 8), nn.Linear(8, 16)
function model:forward(x) return self.out(%s) end
nn.fully_shard(model)
return nn.training {
  model = model,
  batch = { labels = nn.input("int32", { 6%s }), x = nn.input(%s) },
  loss = function(m, b) return nn.cross_entropy(m(b.x), b.labels) end,
  optimizer = optim.SGD { lr = 0.1 },
}
"""


def test_a_batch_is_counted_in_tokens_or_samples():
    """Integers that pick rows of a table are tokens, labels are not: in the prediction, in the plan and in a run."""
    for forward, more, x, unit, count in (("nn.relu(self.up(x))", "", '"fp32", { 6, 8 }', "samples/s", 12), ("self.table(x)", ", 5", '"int32", { 6, 5 }', "tok/s", 60),
                                          ("self.table(nn.concat({ x:slice(1, 1, 5), nn.zeros({ 6, 1 }, 'int32') }, 1))", ", 5", '"int32", { 6, 5 }', "tok/s", 60),
                                          ("self.table(x)", "", '"int32", { 6 }', "samples/s", 12)):
        folder = scratch("counted")
        model, records = os.path.join(folder, "net.lua"), os.path.join(folder, "records")
        with open(model, "w") as f:
            f.write(COUNTED % (forward, more, x))
        with open(records, "wb") as f:
            f.write(bytes(4096))
        said = shardc("predict", model, "--world", "2")
        check(" %s a rank" % unit in said, said)
        p = json.loads(shardc("predict", model, "--world", "2", "--format", "json"))
        q = p["prediction"]
        check(p["samples_per_step"] == 12 and p["tokens_per_step"] == (count if unit == "tok/s" else 0), "counts %s, %s" % (p["samples_per_step"], p["tokens_per_step"]))
        check(abs(q["samples_per_second"] * q["step_us"] - 6e6) < 1, "samples a second: %s" % q)
        rc, said, err = command([SHARDC, "predict", model, "--world", "2", "--tokens", "6e6", "--price", "100"])
        if unit == "tok/s":                                  # 100,000 steps of 60 tokens on two ranks
            hours = 1e5 * q["step_us"] * 1e-6 / 3600 * 2
            found = re.search(r"6,000,000 tokens take 100,000 steps, .* days: ([\d,]+) rank-hours, ([\d,]+) at 100 an hour", entry(said, "train"))
            check(found and abs(int(found[2].replace(",", "")) - 100 * hours) <= 1, said)
        else:
            check(rc == 1 and "this model's inputs are no tokens, so none are counted" in err, err)
        with open(records, "rb") as f:
            out = must([build(model, world=2), "--data", "-", "--steps", "1", "--log", records + ".log"], stdin_file=f)
        line = read_log(records + ".log")[0]
        check(line["tokens" if unit == "tok/s" else "samples"] == count and ("tok_s" in line) == (unit == "tok/s") == ("samples_s" not in line), "log: %s" % line)
        check(re.search(r"^batch    12 samples%s a step" % (", 60 tokens" if count == 60 else ""), out, re.M) and "%s  left" % unit in out, out)
    return "4 models"


def test_modules_that_are_not_there():
    for module, near in (("layers.0.*", "h.0.*"), ("layers.1", "h.1"), ("h.0.mpl.*", "h.0.mlp.*"), ("transformer.h.1.ln_2", "h.1.ln_2"), ("h", "h.*"), ("h.0.ln_1.*", "h.0.ln_1")):
        rc, out, err = command([SHARDC, "inspect", os.path.join(ROOT, "models", "gpt2.lua"), "--set", "layers=2", "--module", module])
        check(rc == 1 and not out and "--module '%s': no module with events has such a path; did you mean '%s'?" % (module, near) in err, "%s: exit %d: %s%s" % (module, rc, out[:200], err))
        check("t 0" in gpt2("--module", near), "--module %s shows nothing" % near)
    return "6 patterns"


def test_combined_ops_are_named():
    """An event's name says all that its kernel does: in the text, in the plan, in the emitted C."""
    wanted = {
        "gpt2": {"matmul+gelu_tanh": "h.0.mlp.c_fc", "matmul+add": "h.0.mlp.c_proj", "matmul+gelu_tanh_grad": "h.0.mlp.c_proj", "layer_norm_grads+add": "h.0.ln_1",
                 "layer_norm_grads+add+sum": "h.0.ln_2", "layer_norm_grads+sum": "ln_f"},
        "llama3": {"matmul+silu_mul": "model.layers.0.mlp.up_proj", "matmul+silu_mul_grad": "model.layers.0.mlp.down_proj"}}
    for model, names in wanted.items():
        args = [os.path.join(ROOT, "models", model + ".lua"), "--set", "layers=2"]
        made = os.path.join(FOLDER, "named", model)
        text, events = shardc("inspect", *args), events_of(json.loads(shardc("inspect", *args, "--format", "json")))
        shardc("build", *args, "--sources", "-o", made)
        step = open(made + ".c").read()
        for op, module in names.items():
            check("compute  %s  " % op in text, "%s: not in the text" % op)
            check(any(e["op"] == op and e["module"] == module for e in events), "%s: not in the plan" % op)
            check(": %s, " % op in step, "%s: not in a comment of the step" % op)
    return "%d names" % sum(map(len, wanted.values()))


def test_data():
    prepare()
    out, other = os.path.join(FOLDER, "tokens.bin"), os.path.join(FOLDER, "-dash")
    with open(other, "wb") as f:
        f.write(bytes(range(256)))
    said = shardc("data", TEXT, EMPTY, "-o", out, "--separator", "50256", "--", other)
    blob = open(out, "rb").read()
    check(struct.unpack("<3i", blob[:12]) == (20240520, 1, 10 + 1 + 256) and not any(blob[12:1024]), "header: %s" % said)
    tokens = struct.unpack("<267H", blob[1024:])
    check(tokens == tuple(b"some text\n") + (50256,) + tuple(range(256)), "tokens")
    check("267 tokens from 3 files" in " ".join(said.split()), said)
    return said.strip()


def test_output_that_cannot_be_written():
    prepare()
    for args in (["predict", PLAN], ["inspect", PLAN], ["verify", PLAN, "--format", "json"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([SHARDC, *args], stdout=full, stderr=subprocess.PIPE, text=True)
        check(p.returncode == 1 and "No space left" in p.stderr, "%s: exit %d: %s" % (args, p.returncode, p.stderr))
    rc, _, err = command([SHARDC, "inspect", PLAN, "-o", "/dev/full"])
    check(rc == 1 and "No space left" in err, "-o /dev/full: exit %d: %s" % (rc, err))
    out = os.path.join(FOLDER, "closed")
    for args in (["predict", PLAN], ["data", TEXT, "-o", out], ["build", MLP, "--sources", "-o", os.path.join(out + "-build", "mlp")]):
        for full in False, True:  # closed: the next file that is opened must not become standard output
            p = subprocess.run(["sh", "-c", 'exec "$@" >%s' % ("/dev/full" if full else "&-"), "sh", SHARDC, *args], stderr=subprocess.PIPE, text=True)
            why = "No space left on device" if full else "Bad file descriptor"
            check(p.returncode == 1 and p.stderr == "shardc: cannot write the report: %s\n" % why, "%s: exit %d: %s" % (args, p.returncode, p.stderr))
    check(struct.unpack("<3i", open(out, "rb").read(12)) == (20240520, 1, 10), "tokens")
    check(os.listdir(out + "-build") == [], "a build that is told to nobody left %s" % os.listdir(out + "-build"))
    return "10 reports"


def test_report_to_a_file():
    prepare()
    path = os.path.join(FOLDER, "report")
    for args in (["predict", PLAN], ["inspect", PLAN], ["verify", PLAN], ["predict", PLAN, "--format", "json"]):
        shardc(*args, "-o", path)
        check(open(path).read() == shardc(*args), "%s -o differs" % args)
    json.load(open(path))
    return "4 reports"
