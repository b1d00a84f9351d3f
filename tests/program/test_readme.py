"""The walk-throughs of the READMEs, applied to a clean copy: each fenced block under a heading that names a walk-through is a file
to write (`file: PATH` on its first line), lines to insert (`file: PATH, after: TEXT`), or commands to run (```sh). And the commands that
the READMEs show: they print what stands there. And links: what they lead to is there.

Relies on: the READMEs, tests/demo.sh, git, make. Relied on by: run.py."""
import os
import re
import shutil

import pages
from harness import BUILD, MANY, ROOT, check, cores, long, must, scratch


def blocks(page, heading):
    text = open(os.path.join(ROOT, page)).read()
    part = re.search(r"^(#+) %s$(.*?)(?=^\1 |^## |\Z)" % re.escape(heading), text, re.M | re.S)
    check(part, "%s has no heading %s" % (page, heading))
    return re.findall(r"^```(\w*)\n(.*?)^```", part.group(2), re.M | re.S)


def apply(page, heading):
    """Carries a walk-through out in a copy of the tree and of what is built; returns the output of its commands. What it changes is compiled
    without optimization, which takes a third of the time."""
    copy = os.path.join(scratch("readme"), "shardc")
    files = must(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).split("\n")
    for f in filter(None, files):
        if os.path.exists(os.path.join(ROOT, f)):
            os.makedirs(os.path.dirname(os.path.join(copy, f)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, f), os.path.join(copy, f))
    for made in ("shardc", "libshardc.a", "libsc_cpu.a", "compiler", "runtime/host", "runtime/common", "runtime/cpu"):
        here, there = os.path.join(BUILD, made), os.path.join(copy, "build", made)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        (shutil.copytree if os.path.isdir(here) else shutil.copy2)(here, there)
    out = ""
    for language, body in blocks(page, heading):
        first, rest = body.split("\n", 1)
        target = re.search(r"file: ([\w./]+)(?:, after: (.*?))?(?: \*/)?$", first)
        if language == "sh":
            out += must(["sh", "-ec", body], cwd=copy, timeout=MANY, env={"MAKEFLAGS": "-j2 OPT=-O0"})
        elif target:
            path, anchor = os.path.join(copy, target.group(1)), target.group(2)
            if anchor:
                lines = open(path).read().split("\n")
                at = [i for i, line in enumerate(lines) if anchor in line]
                check(at, "%s has no line with %r" % (target.group(1), anchor))
                lines[at[0] + 1:at[0] + 1] = rest.rstrip("\n").split("\n")
                rest = "\n".join(lines)
            open(path, "w").write(rest)
    return out


def trained(out):
    found = [float(x) for x in re.findall(r"loss +([0-9.]+)", out)]
    check(len(found) >= 2 and found[-1] < found[0], "the walk-through's model did not train: " + out[-1500:])
    return "loss %.3f to %.3f" % (found[0], found[-1])


def test_module_in_lua():
    return trained(apply("models/README.md", "Walk-through: a module in Lua"))


@long
def test_pointwise_op_in_c():
    return trained(apply("compiler/README.md", "Walk-through: a pointwise op in C"))


# ── the tour: what it prints is what the commands print ──────────────────────────────────────────────────────────────────
TOUR = (("README.md", "A prediction"), ("README.md", "A page"), ("compiler/report/README.md", "A tour of a plan"), ("models/README.md", "What can be asked of a model"), ("runtime/README.md", "On GPUs"), ("compiler/schedule/README.md", "Happens-before"))


def tour():
    """The code blocks of the tour, and of the sections that go on with its programs, each as its lines."""
    return [body.rstrip("\n").split("\n") for page, heading in TOUR for _, body in blocks(page, heading)]


# A prediction's, inspect's, and both of a run's first lines.
ARENA = r"[\d,]+(?= B predicted, )|(?<= B predicted, )[\d,]+|(?<=exact \()[\d,]+|(?<=^arena )[\d,]+"


def commands_of(lines):
    return [l[2:] for l in "\n".join(lines).replace("\\\n", "").split("\n") if l.startswith("$ ")]


def test_tour():
    """What reads a plan is run as it stands; what builds, in a folder that finds the models and build/shardc."""
    said, folder = 0, pages.folder_of("", "tour")
    for lines in tour():
        commands = commands_of(lines)
        if len(commands) == 1 and commands[0].startswith("build/shardc "):
            output = must(["sh", "-c", commands[0].replace(" build ", " build --sources ").replace(" -o build/", " -o ")], cwd=folder).replace("gpt2.c\n", "gpt2\n")
            pages.shown_there(lines[1:], re.sub(r"(?m)^(\S+ for .*, world \d+) -> ", r"\1 -> build/", output).split("\n"), commands[0][:40])
            said += len(lines) - 1
    check(said > 30, "the tour has lost its blocks")
    return "%d lines" % said


def trained_steps(lines):
    """{step: (what stands there, but for numbers, and the learning rate; loss and norm)}"""
    found = (re.match(r"step +(\d+)/100  loss (\S+) +norm (\S+) +(lr \S+)", l) for l in lines)
    return {m[1]: (m[4], [float(m[2]), float(m[3])]) for m in found if m}


def test_tour_shows_one_program():
    """On the CPU predict, inspect and build take the same model, options and world; what is built prints the figures shown, but for times. On
    GPUs predict and build agree too. The C that is shown is what that build writes. Losses and norms depend on the processor, for which
    OpenBLAS chooses its kernels, the more the longer the run: after 100 steps losses of 2.6306 to 2.6344 and norms of 0.704 to 0.805 have been
    seen. Losses may differ by 1 %. Norms are compared at step 1 alone, where they may differ by 0.1 %: later ones double within five steps."""
    text = "\n".join("\n".join(b) for b in tour())
    small, large = (set(re.findall(r"^\$ build/shardc \w+ (models/%s.*?)(?: --program micro| --by unit| --vs .*| --format html -o \S+| -o \S+| r2)?$" % m, text, re.M)) for m in ("gpt2", "llama3"))
    check(len(small) == len(large) == 1, "the tour's commands differ: %s %s" % (small, large))
    train = next(b for b in tour() if b[0].startswith("$ build/shardc data"))
    folder = scratch("tour")
    must(["sh", "-c", "build/shardc data LICENSE -o %s/text.bin && build/shardc build %s -o %s/gpt2".replace("build/shardc", os.path.join(BUILD, "shardc"))
          % (folder, small.pop(), folder)])
    head = [l for l in train if re.match("model|arena|host|batch|data |schedule", l)]
    shown = trained_steps(train)
    for env in cores([os.path.join(folder, "gpt2"), "-h"]).values():
        out = must(["sh", "-c", commands_of(train)[1].replace("build/tour/", folder + "/").replace("build/text.bin", folder + "/text.bin")], env=env).split("\n")
        check(len(head) == 6 and all(l in out for l in head), "the tour shows %s, the program prints %s" % (head, out[:6]))
        printed = trained_steps(out)
        near = lambda a, b, share: abs(a - b) <= share * b
        same = all(printed[n][0] == shown[n][0] and near(printed[n][1][0], shown[n][1][0], .01) for n in shown if n in printed)
        same = same and near(printed["1"][1][1], shown["1"][1][1], .001)
        check("1" in shown and "100" in shown and "100" in printed and same, "the tour shows %s, the program prints %s" % (shown, printed))
    step = open(os.path.join(folder, "gpt2.c")).read()
    shown_c = [b for b in tour() if any("RUN(" in l for l in b)]
    check(len(shown_c) == 2, "the tour has lost its C")
    for lines in shown_c:
        pages.shown_there(lines, step[step.index("program_micro("):].split("\n"), "the step", part=True)
    on_cpu = "\n".join("\n".join(b) for b in tour() if not any("--device" in l for l in b))
    arenas = re.findall(ARENA, on_cpu, re.M)
    check(len(arenas) >= 4 and len(set(arenas) - {"0"}) == 1, "arenas of one program: %s" % arenas)
    return "%d steps" % len(shown)


def test_first_model():
    """The model that the README shows trains by the command that it shows: what is printed stands there, but for times; losses are near."""
    shown = blocks("README.md", "A model")
    folder = pages.folder_of("", "first")
    lua, lines = next(b for language, b in shown if language == "lua"), next(b for language, b in shown if "shardc run" in b).split("\n")
    with open(os.path.join(folder, "bytes.lua"), "w") as f:
        f.write(lua)
    there = lambda command: command.replace("build/text.bin", "text.bin").replace(" LICENSE ", " %s " % os.path.join(ROOT, "LICENSE"))
    data, train = [there(c) for c in commands_of(lines)]
    must(["sh", "-c", data], cwd=folder)
    out = must(["sh", "-c", train.replace(" --world", " -o made/bytes --world")], cwd=folder).split("\n")
    head = [l for l in lines if re.match("model|arena", l)]
    check(len(head) == 2 and all(l in out for l in head), "the README shows %s, the program prints %s" % (head, out[:6]))
    want, got = trained_steps(lines), trained_steps(out)
    check(sorted(want, key=int) == ["1", "100"] and all(got[n][0] == want[n][0] and abs(got[n][1][0] - want[n][1][0]) <= .02 * want[n][1][0] for n in want), "the README shows %s, the program prints %s" % (want, got))
    check(len(lua.strip().split("\n")) <= 15, "the first model is long")


def test_demo():
    """What the README shows of `make demo` is for the program and the steps of tests/demo.sh; losses and times are those of one run."""
    script = open(os.path.join(ROOT, "tests", "demo.sh")).read()
    shown = next(body for _, body in blocks("README.md", "Two commands") if body.startswith("$ make demo"))
    printed = must([os.path.join(BUILD, "shardc"), "predict", "models/gpt2.lua", *re.search('options="(.*)"', script)[1].split()]).split("\n")
    line = next(l for l in shown.split("\n") if l.startswith("  arena "))
    check(line in printed, "the README's demo shows\n%s\nand predict prints\n%s" % (line, "\n".join(printed)))
    arenas, steps = set(re.findall(ARENA, shown, re.M)), re.search(r"--steps (\d+)", script)[1]
    check(len(arenas) == 1, "arenas of one program: %s" % arenas)
    check("step %s/%s " % (steps, steps) in shown, "the README's demo does not end at step %s" % steps)
    for said in re.findall("^── (.*)$", shown, re.M):
        check('say "%s"' % said in script, "tests/demo.sh does not say " + said)


def test_program_options():
    """The table of a program's options names those of its -h, each once."""
    source = open(os.path.join(ROOT, "runtime", "host", "args.c")).read()
    shown = [n for body in re.findall(r"^\| options of a program \|.*?\n\n", open(os.path.join(ROOT, "runtime", "README.md")).read(), re.M | re.S) for n in re.findall("`--([a-z-]+)`", body)]
    table = source[source.index("Row rows[] = {"):]
    there = [n for n in re.findall(r'^    \{"([a-z-]+)", ', table[:table.index("\n};")], re.M) if n not in ("help", "output")]
    check(len(there) > 30 and sorted(shown) == sorted(there), "runtime/README.md has options %s of %s" % (sorted(set(shown) ^ set(there)), "runtime/host/args.c"))
    return "%d options" % len(shown)


def test_links():
    """Relative links of all pages lead to files that git has, and to headings that are there."""
    files, n = must(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).split("\n"), 0
    for page in (f for f in files if f.endswith(".md") and os.path.exists(os.path.join(ROOT, f))):
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub("```.*?```|`[^`\n]*`", "", open(os.path.join(ROOT, page)).read(), flags=re.S)):
            path, _, heading = link.partition("#")
            if "://" in link:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            check(any(f == target or f.startswith(target + "/") for f in files), "%s links to %s, which is not there" % (page, link))
            titles = [re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in re.findall("^#+ (.*)$", open(os.path.join(ROOT, target)).read(), re.M)] if heading else []
            check(not heading or heading in titles, "%s links to %s; the headings there are %s" % (page, link, titles))
            n += 1
    return "%d links" % n
