"""The README's walk-throughs, applied to a clean copy: each fenced block under a heading that names a walk-through is a file
to write (`file: PATH` on its first line), lines to insert (`file: PATH, after: TEXT`), or commands to run (```sh).

Relies on: README.md, git, make. Relied on by: run.py."""
import os
import re
import shutil

import pages
from harness import BUILD, ROOT, check, must, scratch, settings


def blocks(heading):
    text = open(os.path.join(ROOT, "README.md")).read()
    part = re.search(r"^#+ %s$(.*?)(?=^## |\Z)" % re.escape(heading), text, re.M | re.S)
    check(part, "README.md has no heading " + heading)
    return re.findall(r"^```(\w*)\n(.*?)^```", part.group(1), re.M | re.S)


def apply(heading):
    """Carries a walk-through out in a copy of the tree; returns the output of its commands."""
    copy = os.path.join(scratch("readme"), "shardc")
    files = must(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).split("\n")
    for f in filter(None, files):
        if os.path.exists(os.path.join(ROOT, f)):
            os.makedirs(os.path.dirname(os.path.join(copy, f)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, f), os.path.join(copy, f))
    shutil.copytree(BUILD, os.path.join(copy, "build"), ignore=shutil.ignore_patterns("tests", "asan", "tsan", "fp64", "demo", "coverage", "fuzz*"))
    out = ""
    for language, body in blocks(heading):
        first, rest = body.split("\n", 1)
        target = re.search(r"file: ([\w./]+)(?:, after: (.*?))?(?: \*/)?$", first)
        if language == "sh":
            out += must(["sh", "-ec", body], cwd=copy, timeout=600)
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
    return trained(apply("Walk-through: a module in Lua"))


def test_pointwise_op_in_c():
    return trained(apply("Walk-through: a pointwise op in C"))


# ── the tour: what it prints is what the commands print ──────────────────────────────────────────────────────────────────
def tour():
    """The code blocks of the tour, each as its lines."""
    return [body.rstrip("\n").split("\n") for _, body in blocks("A tour")]


def test_tour():
    said = 0
    for lines in tour():
        commands = [l for l in "\n".join(lines).replace("\\\n", "").split("\n") if l.startswith("$ ")]
        if len(commands) != 1 or "--device h200" not in commands[0]:
            continue  # what runs depends on the machine
        output = must(["sh", "-c", commands[0][2:].replace("build/shardc", os.path.join(BUILD, "shardc"))])
        pages.shown_there(lines[1:], output.split("\n"), commands[0][:40])
        said += len(lines) - 1
    check(said > 10, "the tour has lost its blocks")
    return "%d lines" % said


def test_tour_shows_the_step():
    lines = next(b for b in tour() if any("RUN(" in l for l in b))
    folder = scratch("tour")
    must([os.path.join(BUILD, "shardc"), "build", "models/gpt2.lua", "--world", "2", "--device", "h200", "--sources", "-o", os.path.join(folder, "gpt2"),
          *settings(dict(layers=2, dim=64, heads=4, vocab=256, batch=8, seq=64))])
    text = open(os.path.join(folder, "gpt2.c")).read()
    pages.shown_there(lines, text[text.index("program_micro("):].split("\n"), "the step", part=True)
