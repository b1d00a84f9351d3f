"""The compiler's folders know only those before them in ORDER: no include of a folder that comes later, so no circle between folders.

Relies on: nothing. Relied on by: lint.sh, which prints what this says."""
import os
import re
import sys

# Of the files beside the folders, pipeline.c stands before cli/, and main.c after all.
ORDER = ["base", "ir", "lua", "sandbox", "frontend", "extension", "plan", "devices", "lower", "lower/shard", "cost", "pack", "schedule", "verify",
         "planner", "emit", "report", "pipeline", "cli", "main"]
ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compiler")


def included(path, name):
    for start in (os.path.dirname(path), ROOT):
        target = os.path.normpath(os.path.join(start, name))
        if os.path.exists(target):
            return target
    return None  # the runtime's, or a library's


def room(path):
    """The place in ORDER of a file, by its path from compiler/: its folder, or of one that is in none its name."""
    return os.path.dirname(path) or os.path.splitext(path)[0]


def main():
    bad = []
    for folder, _, files in os.walk(ROOT):
        for file in (f for f in files if f.endswith((".c", ".h", ".def"))):
            path = os.path.join(folder, file)
            own = room(os.path.relpath(path, ROOT))
            if own not in ORDER:
                bad.append("compiler/%s has no place in ORDER (tests/folders.py)" % own)
                continue
            for name in re.findall(r'#include "([^"]+)"', open(path, encoding="utf-8").read()):
                target = included(path, name)
                theirs = room(os.path.relpath(target, ROOT)) if target else own
                if ORDER.index(theirs) > ORDER.index(own):
                    bad.append("%s includes %s: %s comes after %s (ORDER in tests/folders.py)"
                               % (os.path.relpath(path, os.path.dirname(ROOT)), name, theirs, own))
    print("\n".join(sorted(set(bad))), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
