"""Makes the page models/reference.md: functions and their comments from compiler/lua/nn/, nn.lua and optim.lua, and the options that
those files or compiler/frontend check. `check` compares the page, `update` writes it.

A comment stands before its function. Its lines from one that begins with `nn.NAME` on belong to NAME; the lines before belong to all
functions that follow without an empty line. Comments in columns stay as they are written.

Relies on: the form of those files: definitions begin at the left, bodies do not. Relied on by: tests/generated.sh."""
import glob
import os
import re
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "models/reference.md")
FUNCTION = re.compile(r"function (nn|optim|method)((?:\.\w+)+)\((.*?)\)(?:.* end +-- (.*))?")
LOOP = re.compile(r'for _, name in ipairs \{([^}]*)\} do\n  nn\[name\] = function\((.*?)\)')
METHODS = re.compile(r'for _, name in ipairs \{([^}]*)\} do\n  method\[name\] = nn\[name\]')
ALIAS = re.compile(r"(nn\.\w+) = (nn|prim)\.(\w+)$")
OWNER = re.compile(r"((?:nn|optim)\.\w+)[ ({]")
KEYS = re.compile(r'(?:check_keys|\boptions|take_options|\bread)\((?:L, \d+, )?"(nn\.\w+)",\s*(?:\w+, )?"([a-z_ ]+)"[,)]')

HEAD = """# Reference: `nn` and `optim`

The functions that models call. [README.md](README.md) says how to write a model, [pytorch.md](pytorch.md) what PyTorch's
names are here. `make generated` writes this page from the signatures and comments of the files of
`compiler/lua/nn/`, of `compiler/lua/nn.lua` and `compiler/lua/optim.lua`.

Dimensions count from 0 and, negative, from the end. A shape is written in square brackets. *Options* are the keys that
a function's table of options may have; any other key is refused.
"""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def lua_files():
    """In the order in which the compiler runs them."""
    return ["compiler/" + path for path in re.findall(r'X\(\w+, "(lua/(?:nn/\w+|nn|optim)\.lua)"\)', read("compiler/lua/embed.c"))]


def checked():
    """{function: keys of its options}."""
    sources = [*lua_files(), *sorted(glob.glob("compiler/frontend/*.c", root_dir=ROOT))]
    return {name: keys.split() for path in sources for name, keys in KEYS.findall(read(path))}


def definition(text, at):
    """The signatures that the line at `at` defines, and the comment behind them; ([], None) if it defines nothing."""
    f, loop, alias = FUNCTION.match(text, at), LOOP.match(text, at), ALIAS.match(text[at:text.index("\n", at)])
    if f and f[1] == "method":
        return ["x:%s(%s)" % (f[2][1:], f[3].removeprefix("x, "))], None
    if f:
        return ["%s%s(%s)" % (f[1], f[2], f[3])], f[4]
    if loop:
        return ["nn.%s(%s)" % (name, loop[2]) for name in re.findall(r"\w+", loop[1])], None
    if alias:
        return [alias[1]], "`nn.%s` by another name" % alias[3] if alias[2] == "nn" else None
    return [], None


def sections(path):
    """[(title, [[signatures with the comments behind them, lines of the comment before them]])]"""
    text, out, comment, own, shared, at = read(path), [["", []]], [], {}, [], 0
    for line in text.split("\n"):
        names, behind = definition(text, at) if line else ([], None)
        section = re.match("-- ── (.+?) ─+$", line)
        if section:
            out.append([section[1], []])
        elif line.startswith("--"):
            comment.append(re.sub("^-- ?", "", line))
        elif names:
            owner = ""
            shared = [] if comment else shared
            for said in comment:
                owner = (OWNER.match(said) or [0, owner])[1]
                (own.setdefault(owner, []) if owner else shared).append(said)
            comment = []
            mine = own.get(names[0].partition("(")[0], shared)
            items = out[-1][1]
            if not (mine and items and items[-1][1] is mine):
                items.append([[], mine])
            items[-1][0].extend((name, behind) for name in names)
        elif not re.match(r" |local \w+ = ", line):
            comment, own, shared = [], {}, []
        at += len(line) + 1
    return [s for s in out if s[1]], METHODS.search(text)


def wrapped(text):
    return "\n".join(textwrap.wrap(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)) + "\n"


def page():
    out, keys = HEAD, checked()
    for path in lua_files():
        title = "optim" if path.endswith("optim.lua") else "nn"
        found, methods = sections(path)
        for section, items in found:
            out += "\n## %s\n\n" % (title + ": " + section if section else title)
            for names, comment in items:
                columns = any(re.search(r"^ |\S   +\S", line) for line in comment)
                line = "- " + ", ".join("`%s`" % n + (" (%s)" % b if b else "") for n, b in names)
                options = [k for n, _ in names for k in keys.get(n.partition("(")[0], [])]
                said = line + (": " + " ".join(comment) if comment and not columns else "")
                if options:
                    said += (" " if said.endswith(".") else ". ") + "Options: " + ", ".join("`%s`" % k for k in options)
                out += wrapped(said)
                if columns:
                    out += "\n  ```text\n%s\n  ```\n\n" % "\n".join("  " + c if c else "" for c in comment)
            if methods and section.startswith("methods"):
                out += wrapped("- " + ", ".join("`x:%s`" % n for n in re.findall(r"\w+", methods[1])))
    return re.sub("\n\n\n+", "\n\n", out)


if __name__ == "__main__":
    if sys.argv[1:] == ["update"]:
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(page())
    elif read("models/reference.md") != page():
        sys.exit("models/reference.md is not what compiler/lua/nn/, nn.lua and optim.lua say; run 'make generated'")
