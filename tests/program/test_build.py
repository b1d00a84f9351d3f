"""`shardc build` and `run`: which target a device means, which files a build replaces, which names a model and a program may have.

Relies on: harness.py, tests/program/bad (the net of extensions). Relied on by: run.py."""
import json
import os
import shutil
import subprocess

from harness import BAD, HANG, ROOT, ROWS, SHARDC, build, check, command, must, scratch, shardc, until

MLP = os.path.join(ROOT, "models", "mlp.lua")
STEP = 4 * (4 * 24 + 4)  # bytes of a batch of rows/scaler.lua


# ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_device_implies_its_target():
    """One rule for all commands, and the first line of a build says what it came to."""
    folder = scratch("targets")
    for options, target, device in (([], "cpu", "cpu"), (["--device", "h200"], "cuda", "h200"), (["--target", "cuda"], "cuda", "h200"),
                                    (["--device", "a100"], "cuda", "a100"), (["--device", "h200", "--target", "cpu"], "cpu", "h200")):
        out = os.path.join(folder, "mlp")
        said = shardc("build", MLP, *options, "--world", "2", "--sources", "-o", out)
        check(said == "mlp for %s%s, world 2 -> %s.c\n" % (target, "" if device == target else " (%s)" % device, out), said)
        written = open(out + ".plan.json").read()
        plan = json.loads(written)
        check((plan["target"], plan["device"]["name"]) == (target, device), "%s: built for %s on %s" % (options, plan["target"], plan["device"]))
        check(shardc("inspect", MLP, *options, "--world", "2", "--format", "json") == written, "%s: inspect plans otherwise than build" % options)
        said = shardc("inspect", MLP, *options, "--world", "2").split("\n")[0]
        check(said.startswith("mlp for %s%s, world 2 on 1 node" % (target, "" if device == target else " (%s)" % device)), said)
        arenas = json.loads(shardc("predict", MLP, *options, "--world", "2", "--format", "json"))
        check((arenas["target"], arenas["prediction"]["arena_bytes"]) == (target, plan["prediction"]["arena_bytes"]), "%s: predict plans otherwise" % options)
    twin = json.loads(shardc("predict", MLP, "--device", "h200", "--target", "cpu", "--format", "json"))
    check(not twin["prediction"]["library"] and not twin["device"]["usable_bytes"], "a program for the CPU takes nothing of a GPU")
    said = shardc("build", MLP, "--device", "h200", "--world", "16", "--sources", "-o", out)
    check(said.startswith("mlp for cuda (h200), world 16 on 2 nodes -> "), said)
    return "6 builds"


def test_no_gpu_is_said_before_anything_is_compiled():
    """A driver that sees no device stands for a machine without one: nothing of the machine at hand matters."""
    folder = scratch("driver")
    source, out = os.path.join(folder, "driver.c"), os.path.join(folder, "out")
    with open(source, "w") as f:
        f.write("int cuInit(unsigned flags) { return 100; }\n")
    must(["gcc", "-shared", "-fPIC", source, "-o", os.path.join(folder, "libcuda.so.1")])
    for option in (["--device", "h100"], ["--target", "cuda"]):
        rc, said, err = command([SHARDC, "run", MLP, *option, "-o", out, "--", "--steps", "1"], env={"LD_LIBRARY_PATH": folder})
        check(rc == 1 and not said and err == "shardc: %s is for a GPU (%s), and this machine has none: its driver sees no device; build it for another machine by "
              "`shardc build`, or run it here with --target cpu\n" % (MLP, " ".join(option)), "exit %d: %s%s" % (rc, said, err))
    check(not os.path.exists(out + ".c"), "written in spite of it")
    return "2 commands"


# ── what a build replaces ────────────────────────────────────────────────────────────────────────────────────────────────
def test_only_files_of_a_build_are_replaced():
    """Each file of a build, its place taken by somebody's text, by a link to it, by a folder: the build names it and leaves it. What a build
    wrote is replaced, also where it was emptied."""
    folder = scratch("replaced")
    out = os.path.join(folder, "m")
    shardc("build", MLP, "-o", out)
    names, tried = sorted(os.listdir(folder)), 0
    check(names == ["m", "m.c", "m.plan.json", "m_kernels.c", "m_kernels.key", "m_kernels.o"], names)
    shutil.copy(MLP, os.path.join(folder, "text"))

    def refused(name, what, where=out, *more):
        rc, said, err = command([SHARDC, "build", MLP, "-o", where, *more])
        check(rc == 1 and not said and err == "shardc: %s is there already, and %s: it stays as it is; give another name with -o\n"
              % (os.path.join(folder, name), what), "%s: exit %d: %s%s" % (name, rc, said, err))
        check(sorted(set(os.listdir(folder)) - {"text"}) == names, "left-overs: %s" % os.listdir(folder))

    for name in names:
        path, kept = os.path.join(folder, name), os.path.join(scratch("kept"), name)
        os.rename(path, kept)
        for put, what in ((shutil.copy, "lacks the mark of files that shardc build writes"), (os.link, "lacks the mark of files that shardc build writes"),
                          (os.symlink, "is a link"), (lambda _, p: os.mkfifo(p), "is no regular file")):
            put(os.path.join(folder, "text"), path)
            refused(name, what)
            os.unlink(path)
            tried += 1
        os.symlink(kept, path)
        refused(name, "is a link")
        os.unlink(path)
        if name != "m":  # -o names a folder that is there as the place for all
            os.mkdir(path)
            refused(name, "is a folder")
            os.rmdir(path)
        open(path, "w").close()
    check(open(os.path.join(folder, "text")).read() == open(MLP).read(), "the text is changed")
    check("mlp" not in shardc("build", MLP, "-o", out, "--world", "2").split("->")[1], "the name of -o")
    check(" world 2 on 1 node" in shardc("inspect", out), "what was emptied is not built again")
    shutil.copy(SHARDC, os.path.join(folder, "m"))  # a program, but none of a build
    refused("m", "lacks the mark of files that shardc build writes")
    return "%d places" % tried


def test_a_models_own_files_are_not_replaced():
    """An extension named as the build's own text, a required file named by -o: after a refusal all are as they were."""
    folder = scratch("sources")
    net, good = (open(os.path.join(BAD, name)).read() for name in ("extension_net.lua", "extension_good.c"))
    text = ('local nn = require "nn"\nlocal part = require "net"\nlocal model = part.net()\n'
            'nn.fully_shard(model, { all_gather = nn.all_gather_extension { source = "%s", wire = "bf16" } })\nreturn part.training(model)\n')
    for source in ("m.c", "m_kernels.c", "m_extension0.c", "x.c"):
        files = {"net.lua": net, source: good, "m.lua": text % source}
        for name, body in files.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(body)
        for out in ("m",) if source != "x.c" else ("m.lua", "net.lua", "x.c"):
            rc, said, err = command([SHARDC, "build", "m.lua", "-o", out], cwd=folder)
            where = source if source != "x.c" else out
            check(rc == 1 and not said and ("%s is there already, and lacks the mark" % where) in err, "%s: exit %d: %s%s" % (where, rc, said, err))
        check({n: open(os.path.join(folder, n)).read() for n in os.listdir(folder)} == files, "files are changed or left over: %s" % os.listdir(folder))
        os.unlink(os.path.join(folder, source))
    return "7 builds"


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────────
GOOD = ["a b", "lr=1e-3", "h\u00e9\u4e2d", "_x", "2.v1+a@b:c", "a" * 200]
WRONG = ['a"b', "a'b", "a\\b", "a\nb", "a\tb", "a\033[31mb", b"a\xffb", b"a\xc2\x85b", "-x", "@x", ".x", " x", "a$b", "a`b", "a,b", "a;b", "%s", "a" * 201]


def test_names():
    """What neither a shell nor C nor JSON could read otherwise; all else is refused by all commands before anything is made."""
    folder = scratch("names")
    for name in GOOD:
        model = os.path.join(folder, name + ".lua")
        if len(name) < 200:
            shutil.copy(MLP, model)
            check(json.loads(shardc("inspect", model, "--format", "json"))["model"] == name, name)
        check(shardc("build", MLP, "--sources", "-o", os.path.join(folder, "out", name)).startswith("%s for cpu, " % name), name)
    before = sorted(os.listdir(folder))
    for name in WRONG:
        name = os.fsencode(name)
        model = os.path.join(os.fsencode(folder), name + b".lua")
        shutil.copy(MLP, model)
        for args, remedy in (["predict", model], "rename the file"), (["build", model, "-o", os.path.join(folder, "out", "ok")], "rename the file"), \
                (["build", MLP, "-o", os.path.join(os.fsencode(folder), b"out", name)], "give another with -o"):
            rc, said, err = command([SHARDC, *args])
            check(rc == 1 and not said and "a name has letters, digits, spaces and ._-+=@:, begins with a letter, a digit or _" in err and remedy in err,
                  "%s: exit %d: %s%s" % (args, rc, said, err))
        os.unlink(model)
    check(sorted(os.listdir(folder)) == before and sorted({n.split(".")[0].split("_k")[0] for n in os.listdir(os.path.join(folder, "out"))} - {""}) ==
          sorted({n.split(".")[0] for n in GOOD}), "left-overs: %s" % os.listdir(os.path.join(folder, "out")))
    spaced = os.path.join(folder, "b c", "a b")
    shardc("build", MLP, "-o", spaced)
    check("sound" in shardc("verify", spaced), "a name with a space")
    return "%d names, %d refused" % (len(GOOD), len(WRONG))


def test_folders_of_any_name():
    """A folder may have any name without control characters: its bytes reach C and JSON escaped. nvcc alone, which gives paths to a shell,
    refuses some."""
    folder = os.path.join(scratch("folders"), os.fsdecode(b'a"\xff`b\\'))
    os.mkdir(folder)
    rc, said, err = command([SHARDC, "predict", os.path.join("a\tb", "mlp.lua")])
    check(rc == 1 and not said and "the path of this model holds a control character: rename its folder" in err, "exit %d: %s" % (rc, err))
    for name in ("gather.lua", "gather_bf16.c", "gather_bf16.cu"):
        shutil.copy(os.path.join(ROOT, "models", "extensions", name), folder)
    model, out = os.path.join(folder, "gather.lua"), os.path.join(folder, "gather")
    p = subprocess.run([SHARDC, "inspect", model, "--format", "json"], capture_output=True)
    source = next(e["source"] for g in json.loads(p.stdout.decode())["programs"] for e in g["events"] if "source" in e)
    check(source.split("/")[-2] == 'a"\ufffd`b\\', source)
    shardc("build", model, "-o", out)
    check("sound" in shardc("verify", out), "a folder of any name")
    rc, _, err = command([SHARDC, "predict", model, "--target", "cuda"])
    check(rc == 1 and "gather.lua:11: nvcc gives the path of " in err and err.endswith("rename its folder\n"), "exit %d: %s" % (rc, err))
    return "5 commands"


# ── a state that somebody removed ────────────────────────────────────────────────────────────────────────────────────────
def test_a_state_that_is_gone_is_not_called_untouched():
    """The folder of --save is removed between two saves: the message says that the state of the first is gone."""
    state, binary = os.path.join(scratch("gone"), "state"), build(os.path.join(ROWS, "scaler.lua"), init_scale=1)
    p = subprocess.Popen([binary, "--data", "-", "--steps", "9", "--save", state, "--save-every", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE)
    p.stdin.write(bytes(STEP))
    p.stdin.flush()
    until(lambda: os.path.exists(os.path.join(state, "index.json")), "a state")
    shutil.rmtree(state)
    _, err = p.communicate(bytes(STEP), timeout=HANG)
    check(p.returncode == 1 and b"No such file or directory; the state saved before is there no longer: step-00000001\n" in err, "exit %d: %s" % (p.returncode, err))
