"""Pages of documentation whose examples are run: in models/behaviours/*.md a block of Lua that begins with `-- file: NAME` is a file,
and a block `console` is a command after `$ ` and what it prints, `...` standing for lines that are left out. A table after a comment
`<!-- costs: ... -->` holds what is predicted of policies: one a row, as its first column says.

  python3 tests/program/pages.py models/behaviours/memory.md     # writes the page anew with what the commands print today

Relies on: harness.py. Relied on by: test_rows_*.py."""
import json
import os
import re
import sys

from harness import BUILD, ROOT, check, command, scratch

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
MOST, PREDICTED = 14, 28  # lines of one output that a page shows; of a prediction


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
    """Times follow device profiles, which are measured anew now and then: of these lines only the words count."""
    if any(line.startswith(x) and printed.startswith(x) for x in ("  step ", "  MFU ")):
        line, printed = (re.sub(r"[\d.,]+ ?(s|ms|us)?\b", "", x) for x in (line, printed))
    return line.rstrip() == printed.rstrip()


def shown_there(lines, printed, what, part=False):
    """Nothing is left out but where a line says so; part: of what is printed, from anywhere to anywhere."""
    at, gap = 0, part
    for line in lines:
        if line.strip() == "...":
            gap = True
            continue
        end = len(printed) if gap else at + 1
        at = next((i + 1 for i in range(at, min(end, len(printed))) if same(line, printed[i])), None)
        check(at, "the page shows a line that `%s` does not print (there; `...` stands for lines that are left out):\n%s\nit prints:\n%s" % (what, line, "\n".join(printed)))
        gap = False
    check(gap or part or not "".join(printed[at:]).strip(), "the page ends before `%s` does, without a line `...`" % what)


# ── tables of what policies cost ─────────────────────────────────────────────────────────────────────────────────────────
COSTS = re.compile(r"(<!-- costs: (.*?)\nunits: (.*?)\nwith: (.*?) -->\n\n\|.*\n\|[-|]+\n)((?:\|.*\n)+)")


def priced(folder, command_line, units, each, rows):
    """The rows with today's figures. A row's label holds options of fully_shard, which go to every unit, and `--set`s; `...` at its
    begin: beside the `--set`s of the row before."""
    kept, policy = [], os.path.join(folder, "costs.lua")
    for row in rows:
        label = row.split("|")[1].strip()
        said = re.findall(r"`([^`]+)`", label)
        sets = [x for x in said if x.startswith("--")]
        kept = kept if label.startswith("...") else sets
        options = ", ".join([each, *(x for x in said if not x.startswith("--"))])
        with open(policy, "w") as f:
            f.write('local nn = require "nn"\nreturn {\n%s}\n' % "".join('  { match = "%s", replace = true, fully_shard = { %s } },\n' % (m, options) for m in ["", *units.split()]))
        rc, out, err = command(["sh", "-c", "build/shardc predict %s %s --policy %s --format json" % (command_line, " ".join(kept), policy)], cwd=folder)
        check(out, "%s: exit %d: %s" % (label, rc, err))
        p = json.loads(out)["prediction"]
        nccl = sum(x["bytes"] for x in p["library"] if x["name"].startswith("NCCL"))
        host = "%.2f" % (p["host_bytes"] / 2**30) if p["host_bytes"] else ""
        yield "| %s | %.2f | %s | %.0f | %.0f | %.0f |\n" % (label, p["arena_bytes"] / 2**30, host, nccl / 2**20, p["step_us"] / 1e3, p["exposed_us"] / 1e3)


def anew_priced(folder):
    return lambda m: m[1] + "".join(priced(folder, m[2], m[3], m[4], m[5].splitlines())).replace("|  |", "| |")


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
    for m in COSTS.finditer(text):
        now = anew_priced(folder)(m)
        check(m[0] == now, "the page's table of costs is not what is predicted today; `python3 tests/program/pages.py %s` writes it:\n%s" % (path, now))
        said += m[5].count("\n")
    return said


def holds(path, least):
    """A test's note; least: lines that the page had when it was written."""
    said = page(path)
    check(said >= least, "the page has lost its examples: %d lines" % said)
    return "%d lines are what the commands print" % said


def abridged(printed):
    """Without the lines of libraries, and not more than a page has room for."""
    out, library = [], False
    for line in printed:
        library = line.startswith("  library") or (library and line.startswith(" " * 11))
        left_out = library or len(out) >= (PREDICTED if printed[0].startswith("fits ") else MOST)
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
        f.write(COSTS.sub(anew_priced(folder), BLOCK.sub(anew, text)))


if __name__ == "__main__":
    for page in sys.argv[1:]:
        update(page)
