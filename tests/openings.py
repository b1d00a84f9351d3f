"""What an opening comment says of who relies on its file is so: every file and folder named there includes the header, itself or through
others, or calls a function of the .c file. What stands behind a semicolon says how others come by it, and is not read.

Relies on: circles.py (calls). Relied on by: lint.sh, which prints what this says."""
import collections
import glob
import os
import re
import sys

from circles import calls, code, sources

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def claim(text):
    """What stands behind "Relied on by:"."""
    comment = re.match(r"/\*(.*?)\*/", text, re.S)
    said = re.search(r"Relied on by:(.*?)(;|\.(?=\s|$)|\n \*\n|$)", re.sub(r"\n \* (?=\S)", " ", comment.group(1)) if comment else "", re.S)
    return said.group(1) if said else ""


def includers(texts):
    """{header: files that include it, also through other headers}."""
    direct = collections.defaultdict(set)
    for path, text in texts.items():
        for name in re.findall(r'#include "([^"]+)"', text):
            for start in (os.path.dirname(path), "compiler", "runtime"):
                target = os.path.normpath(os.path.join(start, name))
                if target in texts:
                    direct[target].add(path)
                    break
    out = {}
    for header in [h for h in texts if h.endswith(".h")]:
        found, new = set(), {header}
        while new:
            new = set().union(*(direct[h] for h in new)) - found
            found |= new
        out[header] = found
    return out


def main():
    paths = [os.path.relpath(p, TOP) for top in ("compiler", "runtime", "tests") for p in glob.glob(os.path.join(TOP, top, "**"), recursive=True)]
    texts = {p: read(p) for p in paths if p.endswith((".c", ".h", ".cu", ".cuh", ".cc")) and os.path.isfile(os.path.join(TOP, p))}
    users = includers(texts)
    for caller, called in calls({p: code(t) for p, t in sources()}).items():
        for path in called:
            users.setdefault("compiler/" + path, set()).add("compiler/" + caller)
    bad = []
    for path in sorted(p for p in users if not p.startswith("tests/")):
        said = claim(texts[path])
        if path.endswith(".c"):
            said = re.sub(r"\b(runtime|tests|models|generated|bench)/\S*|\S+\.h\b", "", said)
        for name in re.findall(r"[\w/]+\.(?:cuh|cu|c|h)\b|(?<![\w.])(?:\w+/)+(?!\w)", said):
            folder = name.endswith("/")
            if not name.startswith("NAME") and not any(("/" + user).find("/" + name) >= 0 if folder else ("/" + user).endswith("/" + name) for user in users[path]):
                bad.append("%s: %s does not rely on it, as its first lines say" % (path, name))
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
