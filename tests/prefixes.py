"""Every function that a compiler header declares carries a prefix: the header's name, its folder's, or a type that the header defines.

Relies on: nothing. Relied on by: lint.sh, which prints what this says."""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compiler")

# Headers that declare the functions of several files: the prefixes of those files, or the words that all code may use.
ALSO = {
    "base/base.h": ["str", "vec", "path", "out", "temp", "input", "fail", "vfail", "bug", "remark", "round_up",
                    "compare_int64", "min64", "max64", "common_divisor"],
    "base/diagnostics.h": ["temp"],
    "cli/cli.h": ["command"],
    "emit/text.h": ["c"],
    "frontend/fe.h": ["assign", "conflicts", "field", "modules", "options", "params", "pointwise", "policy", "scaler", "tensor",
                      "trace"],
    "ir/ir.h": ["dtype", "phase"],
    "ir/notes.h": ["note"],
    "ir/patterns.h": ["pattern"],
    "ir/policy.h": ["setting"],
    "ir/purpose.h": ["storage", "stream"],
    "ir/rules.h": ["rule"],
    "lua/embed.h": ["embedded"],
    "pack/exact_search.h": ["exact"],
    "plan/figures.h": ["figure"],
    "plan/json_writer.h": ["json"],
    "schedule/order.h": ["streamed"],
}


def declared(text):
    """The names of the functions that a header declares or defines: its text outside comments, directives and braces."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.S | re.M)
    while (less := re.sub(r"\{[^{}]*\}", ";", text)) != text:
        text = less
    for statement in text.split(";"):
        found = re.match(r"[\w\s*]*?[\s*](\w+)\s*\(", statement)
        if found and not re.match(r"\s*(typedef|VEC)\b", statement):
            yield found.group(1)


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def main():
    texts = {}
    for folder, _, files in os.walk(ROOT):
        for file in (f for f in files if f.endswith(".h")):
            path = os.path.join(folder, file)
            texts[os.path.relpath(path, ROOT)] = open(path, encoding="utf-8").read()
    types = set()
    for text in texts.values():
        types.update(snake(t) for t in re.findall(r"\b(?:struct|enum|union|VEC\([\w *]+\)|\}) (\w+)", text))
    bad = []
    for header, text in sorted(texts.items()):
        own = {os.path.basename(header)[:-2], os.path.basename(os.path.dirname(header)), *ALSO.get(header, [])}
        for name in declared(text):
            if not any(name == p or name.startswith(p + "_") for p in own) and not any(name.startswith(t + "_") for t in types):
                bad.append("compiler/%s: the name %s begins with none of: %s, a type" % (header, name, ", ".join(sorted(own))))
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
