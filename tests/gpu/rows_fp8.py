"""Products in fp8 on GPUs: losses near those of the CPU's program, and the same bits under every memory policy.

Relies on: runner.py. Relied on by: run.py, by its name."""
from harness import check, read_log, steps
from runner import once_more, same

MODELS = {
    "gpt2": ("gpt2.lua", dict(layers=3, dim=128, heads=2, vocab=256, seq=128)),
    "llama3": ("llama3.lua", dict(size="tiny", layers=3, dim=256, heads=2, kv_heads=1, ffn=512, seq=128)),
    "moe": ("moe.lua", dict(layers=2, dim=128, heads=2, kv_heads=1, head_dim=64, vocab=256, seq=128, experts_matmul="fp8")),
}
RECIPES, WORLDS, BATCH = ("tensor", "delayed", "block"), (1, 2, 4), 8
BITS = {  # of bf16: what beside the plain program must give its bits
    "recompute": dict(recompute="full"), "offload": dict(offload="activations"), "state": dict(offload="state"),
    "kept": dict(reshard=False), "prefetch0": dict(prefetch=0),
}
ALONE = "recompute", "offload"  # what has a meaning on one rank
FIRST, NEAR = 2e-4, 0.05  # of the first step, of all: where rounding decides otherwise than on the CPU, an element is a sixteenth away
PROGRAMS, CPU = {}, []


def name(model, recipe, world, what):
    return "fp8-%s-%s-w%d-%s" % (model, recipe, world, what)


def variants(model, world):
    """What the model has of BITS: a program's name ends in it."""
    has = {"moe": ("recompute",)}.get(model, BITS)
    return [v for v in has if world > 1 or v in ALONE]


def rows():
    """(model, recipe, world) of everything that runs; a kernel by blocks multiplies no experts."""
    return [(m, c, w) for m in MODELS for c in RECIPES for w in WORLDS if not (m == "moe" and c == "block")]


for m, c, w in rows():
    file, options = MODELS[m]
    base = dict(options, matmul="fp8", recipe=c, batch=BATCH // w)
    PROGRAMS[name(m, c, w, "fp32")] = (file, w, dict(base, precision="fp32"))
    CPU.append(name(m, c, w, "fp32"))
    PROGRAMS[name(m, c, w, "bf16")] = (file, w, dict(base, precision="bf16"))
    for v in variants(m, w):
        PROGRAMS[name(m, c, w, v)] = (file, w, dict(base, precision="bf16", **BITS[v]))


def near_cpu(r, made, world):
    ours, cpu = steps(r.train(made, world)[0]), steps(read_log(r.path(made + ".cpu.jsonl")))
    apart = [abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(ours, cpu)]
    says = "losses within %.1e of the CPU's, the first %.1e" % (max(apart), apart[0])
    check(len(ours) == len(cpu) == 20 and apart[0] < FIRST and max(apart) < NEAR, says)
    return says


def cases(r):
    for m, c, w in rows():
        row, plain = "rows.fp8-%s-%s-w%d." % (m, c, w), name(m, c, w, "bf16")
        yield row + "cpu", w, lambda a=(name(m, c, w, "fp32"), w): near_cpu(r, *a)
        yield row + "twice", w, lambda a=(plain, w): once_more(r, *a)
        for args in "--no-graph", "--poison":
            yield row + args[2:], w, lambda a=(plain, w, plain, args): same(r, *a)
        for v in variants(m, w):
            yield row + v, w, lambda a=(plain, w, name(m, c, w, v)): same(r, *a)
