"""The S rows on GPUs: memory policies of nn.fully_shard and of checkpoints give the bits of the plain one, in several groups of ranks too;
what changes the program agrees with the CPU's.

Relies on: runner.py, tests/program/surface/net.lua. Relied on by: run.py, by its name."""
import os
import sys

from harness import check, read_log, steps
from runner import ROOT, agrees, same

sys.path.insert(0, os.path.join(ROOT, "tests", "program"))
from test_surface import BF16, everywhere, policy  # noqa: E402

NET, TABLE = "tests/program/surface/net.lua", "tests/program/rows/embedding.lua"
ALL, SEVERAL = (1, 2, 4), (2, 4)  # what speaks of several ranks has no meaning on one
MICRO = dict(accumulate=2, batch=2)
NARROW = BF16.replace("reduce", "grad_dtype = 'bf16', reduce")
half = lambda more: everywhere(BF16 + ", " + more)
# Programs of their own beside the CPU's, {item: (worlds, policy, options)}; plain: frozen, shared and uneven parameters, a module that is
# called twice and units in units are net.lua's.
NUMBERS = {
    "plain": (ALL, everywhere(""), {}),
    "shared": (SEVERAL, {**everywhere(""), "embed": "", "head": ""}, {}),
    "mesh-replicate": (SEVERAL, everywhere("mesh = { replicate = 2 }"), {}),
    "mesh-several": ((4,), dict(root="", block="mesh = { replicate = 2 }", down="mesh = { shard = 1 }"), {}),
    "stored-dtypes": (SEVERAL, everywhere(""), dict(gain="bf16")),
    "ignored": (SEVERAL, everywhere("ignored_params = { '*.fixed', '*.bias', 'gain' }"), {}),
    "no-sync": (SEVERAL, everywhere("requires_gradient_sync = false"), MICRO),
    "no-sync-replicate": ((4,), everywhere("mesh = { replicate = 2 }, requires_gradient_sync = false"), MICRO),
    "no-all-reduce": (SEVERAL, everywhere("mesh = { replicate = 2 }, requires_all_reduce = false"), MICRO),
    "divide-by-3": (SEVERAL, everywhere("gradient_divide_factor = 3"), {}),
    "sum": (SEVERAL, everywhere("gradient_divide_factor = 1"), {}),
}
# Numbers that are rounded to 16 bits on the way: near the CPU's, and not those of plain.
ROUNDED = {
    "param-dtype": everywhere("mp_policy = { param_dtype = 'bf16' }"), "reduce-dtype": everywhere("mp_policy = { param_dtype = 'bf16', reduce_dtype = 'bf16' }"),
    "grad-dtype": everywhere(NARROW),
    "output-dtype": dict(everywhere(""), root="mp_policy = { output_dtype = 'bf16' }"),
    "inputs-cast": dict(root="", scale="mp_policy = { param_dtype = 'bf16', reduce_dtype = 'fp32', output_dtype = 'fp32' }"),
    "inputs-left": dict(root="", scale="mp_policy = { param_dtype = 'bf16', reduce_dtype = 'fp32', cast_forward_inputs = false }"),
}
# {item: (worlds, policy, options, the program whose bits it has)}
BITS = {
    "bf16": (ALL, everywhere(BF16), {}, None), "micro": (SEVERAL, everywhere(BF16), MICRO, None),
    "reshard-false": (SEVERAL, half("reshard_after_forward = false"), {}, "bf16"),
    "reshard-group": ((4,), half("reshard_after_forward = 2"), {}, "bf16"),
    "reshard-after-backward-false": (SEVERAL, half("reshard_after_backward = false"), MICRO, "micro"),
    "prefetch-depth": (SEVERAL, half("prefetch = { forward = 2, backward = 0 }"), {}, "bf16"),
    "prefetch-list": (SEVERAL, dict(everywhere(BF16), **{"root": BF16 + ", prefetch = { forward = { 'blocks.1' } }",
                                                         "blocks.1": BF16 + ", prefetch = { backward = { 'blocks.0' } }"}), {}, "bf16"),
    "offload-params": (ALL, half("offload = { params = true }"), {}, "bf16"),
    "offload-grads": (ALL, half("offload = { grads = true }"), {}, "bf16"),
    "offload-optimizer": (ALL, half("offload = { optimizer = true }"), {}, "bf16"),
    "offload-all": (ALL, half("offload = { params = true, grads = true, optimizer = true }"), {}, "bf16"),
    "narrow": (ALL, everywhere(NARROW), {}, None),
    "narrow-reshard-false": (SEVERAL, everywhere(NARROW + ", reshard_after_forward = false"), {}, "narrow"),
    "narrow-offload-all": (ALL, everywhere(NARROW + ", offload = { params = true, grads = true, optimizer = true }"), {}, "narrow"),
    **{"checkpoint-" + how: (ALL, everywhere(BF16), dict(checkpoint=how), "bf16") for how in ("wrapper", "save", "offload", "call", "nested")},
}


def options(world, o):
    return dict(dict(batch=16 // world), **o)


def name(item, world):
    return "surface-%s-w%d" % (item, world)


PROGRAMS, CPU = {}, []
for item, (worlds, units, o, *_) in {**NUMBERS, **{k: (SEVERAL, v, {}) for k, v in ROUNDED.items()}, **BITS}.items():
    for w in worlds:
        PROGRAMS[name(item, w)] = NET, w, options(w, o), ["--policy", policy(**units)]
        if item not in BITS:
            CPU.append(name(item, w))
for w in SEVERAL:
    for item in "table", "table-promised":
        PROGRAMS[name(item, w)] = TABLE, w, dict(batch=8 // w, promise=item == "table-promised")


def rounded(r, item, world):
    ours, cpu, plain = steps(r.train(name(item, world), world)[0]), steps(read_log(r.path(name(item, world) + ".cpu.jsonl"))), steps(r.train(name("plain", world), world)[0])
    worst = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(ours, cpu))
    check(len(ours) == len(cpu) == 20 and worst < 1e-2 and [a["loss"] for a in ours] != [b["loss"] for b in plain], "%s, the CPU's %s" % (ours[-1], cpu[-1]))
    return "20 steps, losses within %.1e of the CPU's" % worst


def cases(r):
    for item, (worlds, _, o) in NUMBERS.items():
        for w in worlds:
            yield "rows.S.%s-w%d" % (item, w), w, lambda i=item, w=w, o=o: agrees(r, name(i, w), w, options(w, o))
    for item in ROUNDED:
        for w in SEVERAL:
            yield "rows.S.%s-w%d" % (item, w), w, lambda i=item, w=w: rounded(r, i, w)
    for item, (worlds, _, o, base) in BITS.items():
        for w in worlds if base else ():
            yield "rows.S.%s-w%d" % (item, w), w, lambda i=item, w=w, b=base: same(r, name(b, w), w, name(i, w))
        if base:
            w = 2 if 2 in worlds else worlds[0]
            yield "rows.S.%s-poison-w%d" % (item, w), w, lambda i=item, w=w, b=base: same(r, name(b, w), w, name(i, w), "--poison")
    for w in SEVERAL:
        yield "rows.S.unshard-in-backward-false-w%d" % w, w, lambda w=w: same(r, name("table", w), w, name("table-promised", w))
