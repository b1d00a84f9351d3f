"""The S rows on GPUs: memory policies of nn.fully_shard give the bits of the plain one, in several groups of ranks too; what changes
the program agrees with the CPU's.

Relies on: runner.py, tests/program/surface/net.lua. Relied on by: run.py, by its name."""
import os
import sys

from runner import ROOT, agrees, same

sys.path.insert(0, os.path.join(ROOT, "tests", "program"))
from test_surface import BF16, everywhere, policy  # noqa: E402

NET = "tests/program/surface/net.lua"
HYBRID = BF16 + ", mesh = { replicate = 2 }"
KEPT = dict(accumulate=2, batch=2)
# name: (world, policy, options): programs of their own, beside the CPU's
NUMBERS = {
    "plain-w1": (1, everywhere(""), {}), "plain-w2": (2, everywhere(""), {}), "plain-w4": (4, everywhere(""), {}),
    "hybrid-w2": (2, everywhere("mesh = { replicate = 2 }"), {}), "hybrid-w4": (4, everywhere("mesh = { replicate = 2 }"), {}),
    "meshes-w4": (4, dict(root="", block="mesh = { replicate = 2 }", down="mesh = { shard = 1 }"), {}),
    "dtypes-w2": (2, everywhere(""), dict(gain="bf16")),
    "ignored-w2": (2, everywhere("ignored_params = { '*.fixed', '*.bias', 'gain' }"), {}),
    "ignored-w4": (4, everywhere("ignored_params = { '*.fixed', '*.bias', 'gain' }"), {}),
    "sync-w2": (2, everywhere("requires_gradient_sync = false"), KEPT), "sync-w4": (4, everywhere("mesh = { replicate = 2 }, requires_gradient_sync = false"), KEPT),
    "deferred-w4": (4, everywhere("mesh = { replicate = 2 }, requires_all_reduce = false"), KEPT),
    "divide-w2": (2, everywhere("gradient_divide_factor = 3"), {}),
}
# name: (world, policy, options, the program whose bits it has)
BITS = {
    "bf16-w2": (2, everywhere(BF16), {}, None), "bf16-w4": (4, everywhere(BF16), {}, None), "two-w2": (2, everywhere(BF16), KEPT, None),
    "kept-w2": (2, everywhere(BF16 + ", reshard_after_forward = false"), {}, "bf16-w2"),
    "group-w4": (4, everywhere(BF16 + ", reshard_after_forward = 2"), {}, "bf16-w4"),
    "step-w2": (2, everywhere(BF16 + ", reshard_after_backward = false"), KEPT, "two-w2"),
    "ahead-w4": (4, everywhere(BF16 + ", prefetch = { forward = 2, backward = 0 }"), {}, "bf16-w4"),
    "host-w2": (2, everywhere(BF16 + ", offload = { params = true, grads = true, optimizer = true }"), {}, "bf16-w2"),
    "again-w2": (2, everywhere(BF16), dict(checkpoint="wrapper"), "bf16-w2"), "away-w2": (2, everywhere(BF16), dict(checkpoint="offload"), "bf16-w2"),
}


def options(world, o):
    return dict(dict(batch=16 // world), **o)


def program(world, units, o):
    return NET, world, options(world, o), ["--policy", policy(**units)]


PROGRAMS = {"surface-" + k: program(*v[:3]) for k, v in {**NUMBERS, **BITS}.items()}
CPU = ["surface-" + k for k in NUMBERS]


def cases(r):
    for name, (world, _, o) in NUMBERS.items():
        yield "rows.S." + name, world, lambda n=name, w=world, o=o: agrees(r, "surface-" + n, w, options(w, o))
    for name, (world, _, o, like) in BITS.items():
        if like:
            yield "rows.S." + name, world, lambda n=name, w=world, b=like: same(r, "surface-" + b, w, "surface-" + n)
            yield "rows.S.%s.poison" % name, world, lambda n=name, w=world, b=like: same(r, "surface-" + b, w, "surface-" + n, "--poison")
