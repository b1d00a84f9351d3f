"""Reads the table compiler/lua/pytorch.lua, and makes the page models/pytorch.md of it. `check` compares the page, `update` writes it.

Relies on: an entry of that table is one line. Relied on by: test_names.py, tests/generated.sh."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE, PAGE = os.path.join(ROOT, "compiler/lua/pytorch.lua"), os.path.join(ROOT, "models/pytorch.md")
STRING = r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)*'"
SECTION = re.compile(r'  \{ of = "([^"]*)", at = "(\w+)", title = "([^"]+)",$')
ENTRY = re.compile(r'    \{ "([^"]+)"((?:, (?:\w+ = )?(?:%s))+) \},$' % STRING)

HEAD = """# PyTorch's names

PyTorch's names, and what to write here instead. The compiler answers an unknown name from the same table
(`compiler/lua/pytorch.lua`). Tests compile every piece of Lua on this page, and compare most of those that belong in a
`forward` with PyTorch's numbers. *Not there* means that we have no function for it: the Lua beside it does the same by
other means, or a sentence says what there is. `--options` are those of the training program; its `-h` explains them.

In the pieces of a `forward`

- `x` and `y` are fp32 [2,8,16], `mask` and `other` results of comparisons, `ids` int32 [2,8];
- `q`, `k` and `v` are [batch, sequence, heads, width], `image` is [2,3,8,8];
- `w`, `b` and `kernel` are parameters [16,16], [16] and [16,48], `mean` and `var` buffers [16];
- `logits` are [2,8,32], with their `targets`.

Elsewhere `model` is a module whose layers are `model.layers`. Pieces of the form `key = value` are fields of
`nn.training`. Dimensions count from 0 and, negative, from the end, as in PyTorch.
"""


def unquoted(s):
    return re.sub(r"\\(.)", r"\1", s[1:-1])


def sections():
    """[(of, title, [entry])]; an entry: names, ours, instead, option, note, at, line."""
    out, inside = [], False
    for i, line in enumerate(open(TABLE).read().splitlines(), 1):
        section, entry = SECTION.match(line), ENTRY.match(line)
        if line == "return {":
            inside = True
        elif section:
            at = section.group(2)
            out.append((section.group(1), section.group(3), []))
        elif entry:
            e = dict.fromkeys(("ours", "instead", "option", "note"), None)
            e.update(at=at, names=entry.group(1).split(), line=i)
            e.update((key or "ours", unquoted(s)) for key, s in re.findall(r", (?:(\w+) = )?(%s)" % STRING, entry.group(2)))
            if set(e) != {"ours", "instead", "option", "note", "at", "names", "line"}:
                raise SystemExit("%s:%d: an entry has instead, option, note and at" % (TABLE, i))
            out[-1][2].append(e)
        elif inside and line not in ("  },", "}"):
            raise SystemExit("%s:%d: neither a section nor an entry: %s" % (TABLE, i, line))
    return out


def here(e):
    note = e["note"] or ""
    if e["ours"]:
        return "`%s`" % e["ours"] + (": " + note if note else "")
    if e["instead"]:
        return "not there; write `%s`" % e["instead"] + (": " + note if note else "")
    return "`%s`" % e["option"] if e["option"] else "not there; " + note


def page():
    out = HEAD
    for _, title, entries in sections():
        out += "\n## %s\n\n| PyTorch | here |\n|---|---|\n" % title
        for e in entries:
            out += "| %s | %s |\n" % (", ".join("`%s`" % n for n in e["names"]), here(e))
    return out


if __name__ == "__main__":
    if sys.argv[1:] == ["update"]:
        open(PAGE, "w").write(page())
    elif open(PAGE).read() != page():
        sys.exit("models/pytorch.md is not what compiler/lua/pytorch.lua says; run 'make generated'")
