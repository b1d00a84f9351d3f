"""Pages of documentation whose examples are run: in models/behaviours/*.md a block of Lua that begins with `-- file: NAME` is a file,
and a block `console` is a command after `$ ` and what it prints, `...` standing for lines that are left out.

  python3 tests/program/pages.py models/behaviours/memory.md     # writes the page anew with what the commands print today

Relies on: harness.py. Relied on by: test_rows_*.py."""
import os
import re
import sys

from harness import BUILD, ROOT, check, command, scratch

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
MOST = 14  # lines of one output that a page shows


def folder_of(text, name):
    """A folder with the page's files, in which its commands find models, tests and build/shardc."""
    folder = scratch(name)
    for link, target in (("models", os.path.join(ROOT, "models")), ("tests", os.path.join(ROOT, "tests")), ("build", BUILD)):
        os.symlink(target, os.path.join(folder, link))
    for language, body in BLOCK.findall(text):
        first, _, rest = body.partition("\n")
        if language == "lua" and first.startswith("-- file: "):
            with open(os.path.join(folder, first[9:].strip()), "w") as f:
                f.write(rest)
    return folder


def split(body):
    """(command, lines shown) of a console block."""
    lines = body.rstrip("\n").split("\n")
    n = 1
    while lines[n - 1].endswith("\\"):
        n += 1
    return "\n".join(lines[:n])[2:], lines[n:]


def output(folder, body):
    """Exit codes are the commands' own business: predict ends with 1 where something does not fit."""
    _, out, err = command(["sh", "-c", split(body)[0]], cwd=folder)
    return (out + err).rstrip("\n").split("\n")


def same(line, printed):
    """Times follow device profiles, which are measured anew now and then: of a step's line only the words count."""
    if line.startswith("  step ") and printed.startswith("  step "):
        line, printed = (re.sub(r"[\d.,]+ (s|ms|us)?", "", x) for x in (line, printed))
    return line.rstrip() == printed.rstrip()


def shown_there(lines, printed, what):
    rest = iter(printed)
    for line in lines:
        if line.strip() != "...":
            check(any(same(line, x) for x in rest), "the page shows a line that `%s` does not print (there):\n%s\nit prints:\n%s" % (what, line, "\n".join(printed)))


def page(path):
    """Number of lines that stand in the page and are what the commands print."""
    with open(os.path.join(ROOT, path)) as f:
        text = f.read()
    folder, said = folder_of(text, "page"), 0
    for language, body in BLOCK.findall(text):
        if language == "console":
            what, lines = split(body)
            shown_there(lines, output(folder, body), what)
            said += len(lines)
    return said


def holds(path, least):
    """A test's note; least: lines that the page had when it was written."""
    said = page(path)
    check(said >= least, "the page has lost its examples: %d lines" % said)
    return "%d lines are what the commands print" % said


def abridged(printed):
    """Without the lines of libraries, and not more than a page has room for."""
    out = []
    for line in printed:
        left_out = line.startswith("  library") or len(out) >= MOST
        if not left_out:
            out.append(line.rstrip())
        elif out[-1] != "...":
            out.append("...")
    return out


def update(path):
    with open(path) as f:
        text = f.read()
    folder = folder_of(text, "page")

    def anew(m):
        if m.group(1) != "console":
            return m.group(0)
        return "```console\n$ %s\n%s\n```" % (split(m.group(2))[0], "\n".join(abridged(output(folder, m.group(2)))))

    with open(path, "w") as f:
        f.write(BLOCK.sub(anew, text))


if __name__ == "__main__":
    for page in sys.argv[1:]:
        update(page)
