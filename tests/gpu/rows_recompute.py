"""The C rows on GPUs: wherever a wrapper stands, and whether it recomputes or offloads, the bits are those without it.

Relies on: runner.py, tests/program/rows/recompute.lua and nested.lua. Relied on by: run.py, by its name."""
from runner import agrees, same

MODEL, NESTED = "tests/program/rows/recompute.lua", "tests/program/rows/nested.lua"
ROWS = {  # row: (model, what all have, {name: what each has beside it})
    "C1": (MODEL, dict(units="three"), {"outside": dict(wrap="outside"), "inside": dict(wrap="inside"), "params": dict(wrap="outside", params=True),
                                        "offload": dict(wrap="outside", activations="offload")}),
    "C2": (MODEL, dict(units="one"), {"outside": dict(wrap="outside"), "inside": dict(wrap="inside"), "call": dict(wrap="call"),
                                      "offload": dict(wrap="outside", activations="offload"), "both": dict(wrap="call", activations="offload", params=True)}),
    "C3": (NESTED, dict(recompute=False), {"stacks": dict(recompute=True)}),
    "C4": (MODEL, dict(units="three", dropout=0.3, width=16), {"outside": dict(wrap="outside"), "inside": dict(wrap="inside"), "call": dict(wrap="call")}),
}
WORLDS = (1, 2, 4)


def name(row, variant, world):
    return "recompute-%s-%s-w%d" % (row, variant, world)


def made(row, variant):
    model, common, variants = ROWS[row]
    return model, dict(common, **variants.get(variant, {}))


PROGRAMS = {name(row, v, w): (made(row, v)[0], w, made(row, v)[1]) for row in ROWS for w in WORLDS for v in ("plain", *ROWS[row][2])}
CPU = [name(row, "plain", 2) for row in ROWS]


def cases(r):
    for row in ROWS:
        yield "rows.%s.plain-w2" % row, 2, lambda row=row: agrees(r, name(row, "plain", 2), 2, made(row, "plain")[1])
        for v in ROWS[row][2]:
            for w in WORLDS:
                yield "rows.%s.%s-w%d" % (row, v, w), w, lambda row=row, v=v, w=w: same(r, name(row, "plain", w), w, name(row, v, w))
