"""Files of the compiler form no circles: neither by includes of headers, nor by which file calls a function of which.

A file calls another where it names a function that the other defines and a header declares. What ops.def names (rules of ops, in the table of
ir/ops.c) is found through the table and is no call.

Relies on: the layout that clang-format gives to definitions. Relied on by: lint.sh, which prints what this says. With --edges: what is called."""
import collections
import os
import re
import sys

from folders import ORDER, ROOT, included, room


def sources():
    for folder, _, files in os.walk(ROOT):
        for file in sorted(f for f in files if f.endswith((".c", ".h"))):
            path = os.path.join(folder, file)
            yield os.path.relpath(path, ROOT), open(path, encoding="utf-8").read()


def code(text):
    """Without comments, strings and directives."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)
    return re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text)


def calls(texts):
    """{file: {file that it calls: names}}, of .c files."""
    defined, words, form = {}, {}, r"(?m)^%s[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\)\s*\{"
    for path, text in texts.items():
        if path.endswith(".c"):
            words[path] = set(re.findall(r"\b[a-z_]\w*\b", text)) - set(re.findall(form % r"(?=static\b)", text))
            for name in set(re.findall(form % r"(?!static\b)", text)) - {"main"}:
                defined[name] = path
    edges = {path: collections.defaultdict(set) for path in words}
    for path, said in words.items():
        for name in said & defined.keys():
            if defined[name] != path:
                edges[path][defined[name]].add(name)
    return edges


def circles(edges):
    """The strongly connected sets of more than one file (Tarjan 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(v):
        number[v] = low[v] = len(number)
        stack.append(v)
        for w in edges.get(v, ()):
            if w not in number:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], number[w])
        if low[v] == number[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for v in sorted(edges):
        if v not in number:
            visit(v)
    return found


def main():
    whole = dict(sources())
    edges = calls({path: code(text) for path, text in whole.items()})
    bad = []
    for path in sorted(edges):
        for other, names in sorted(edges[path].items()):
            if "--edges" in sys.argv:
                print(path, other, " ".join(sorted(names)))
            if ORDER.index(room(other)) > ORDER.index(room(path)):
                bad.append("%s calls %s of %s, which comes later (ORDER in tests/folders.py)" % (path, ", ".join(sorted(names)), other))
    for files in circles(edges):
        bad.append("call each other in a circle: " + " ".join(files))
        bad += ["    %s calls %s of %s" % (a, ", ".join(sorted(edges[a][b])[:4]), b) for a in files for b in files if edges[a].get(b)]
    headers = {path: {os.path.relpath(target, ROOT) for name in re.findall(r'#include "([^"]+)"', text)
                      if (target := included(os.path.join(ROOT, path), name))} for path, text in whole.items()}
    bad += ["include each other in a circle: " + " ".join(files) for files in circles(headers)]
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
