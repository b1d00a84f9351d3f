"""The programs that the GPU tests run: models small enough for a second, at head sizes that the fast kernels serve; and the
families of rows, rows_*.py beside this file (runner.py says what one holds).

Relies on: rows_*.py. Relied on by: build.py, run.py, torch_curve.py."""
import glob
import importlib
import os
import re

WORLDS = (1, 2, 4)
GLOBAL_BATCH = 8

# fp32: what the CPU's program computes, within rounding
FP32 = {
    "mlp": ("mlp.lua", {}),
    "gpt2": ("gpt2.lua", dict(layers=2, dim=64, heads=4, vocab=256, seq=64)),
    "llama3": ("llama3.lua", dict(size="tiny", seq=64)),
    "qwen2": ("qwen2.lua", dict(size="tiny", layers=2, seq=64)),
    "transformer": ("transformer.lua", dict(layers=2, dim=64, heads=4, vocab=256, seq=32)),
    "contrastive": ("tests/program/contrastive.lua", {}),  # collectives in a loss, and in every layer
    "summed": ("tests/program/layers_summed.lua", {}),
}
WAYS = ("sum", "scatter", "exchange", "columns")  # of contrastive.lua besides all_gather

# After which step gradients are compared with those of the CPU's program; others: after the last of 20. Rounding that carries an element over
# relu's corner changes them at once: those of the CPU's own fp32 program are 2e-5 from its fp64 one's in the first four steps, 2e-3 in the fifteenth.
GRADIENTS_AFTER = {"transformer": 4}

# bf16 with dropout: the same bits whatever the memory policy
BF16 = {
    "gpt2": ("gpt2.lua", dict(layers=3, dim=128, heads=2, vocab=256, seq=128)),
    "llama3": ("llama3.lua", dict(size="tiny", layers=3, dim=256, heads=2, kv_heads=1, ffn=512, seq=128)),
    "transformer": ("transformer.lua", dict(layers=2, dim=128, heads=2, vocab=256, seq=64)),
}
VARIANTS = {
    "again": {},  # compiled and linked once more, under another name
    "recompute": dict(recompute="full"), "selective": dict(recompute="selective"), "offload": dict(offload="activations"),
    "kept": dict(reshard=False), "prefetch0": dict(prefetch=0), "prefetch2": dict(prefetch=2), "redzone": {},
}
POLICIES = {  # which variants at which world: a thing that has no meaning on one rank is not tried there
    ("gpt2", 1): ("again", "recompute", "selective", "offload", "redzone"), ("gpt2", 2): ("recompute", "kept", "offload"),
    ("gpt2", 4): ("again", "recompute", "selective", "offload", "kept", "prefetch0", "prefetch2", "redzone"),
    ("llama3", 1): ("recompute", "offload"), ("llama3", 2): ("recompute", "selective", "offload", "kept", "prefetch0", "prefetch2", "redzone"),
    ("llama3", 4): ("recompute", "kept", "prefetch0"), ("transformer", 1): ("recompute",), ("transformer", 2): ("recompute", "kept"),
}

# PyTorch's numbers in tests/golden: losses, norms, every gradient
GOLDEN = [("gpt2", 1), ("llama3", 1), ("qwen2", 1), ("transformer", 1), ("ops", 1), ("momentum", 1), ("adam", 1), ("gpt2", 2), ("transformer", 2),
          ("llama3", 4)]
NARROW = ("bf16", "fp16")  # golden-ops in units of these

# the curve beside PyTorch's: small, but no toy
CURVE = ("gpt2.lua", dict(layers=6, dim=384, heads=6, vocab=256, batch=16, seq=256))


def of_one_rank(name):
    """The program of one rank whose gradients are those of fp32-NAME; None: it computes something else on several."""
    world = re.search(r"-w(\d)", name)
    return re.sub(r"-w\d.*", "-w1", name) if world[1] == "1" or "-summed-" not in name else None


def gradients_after(name):
    """The step of which gradients of fp32-MODEL-wN are compared."""
    return GRADIENTS_AFTER.get(name.split("-")[1], 20)


def batch(world):
    return GLOBAL_BATCH // world


def fp32():
    """{name: (model file, world, options)}; one accumulates over two microbatches, some exchange in other ways."""
    out = {"fp32-%s-w%d" % (m, w): (file, w, dict(options, precision="fp32", batch=batch(w))) for m, (file, options) in FP32.items() for w in WORLDS}
    file, options = FP32["gpt2"]
    out["fp32-gpt2-w2-accumulate"] = (file, 2, dict(options, precision="fp32", batch=2, accumulate=2))
    for w in (2, 4):
        for way in WAYS:
            out["fp32-contrastive-w%d-%s" % (w, way)] = (FP32["contrastive"][0], w, dict(precision="fp32", batch=batch(w), way=way, checkpoint=True))
    return out


def bf16():
    """{name: (model file, world, options, further arguments of the build)}; NAME-VARIANT beside NAME."""
    out = {}
    for (m, w), variants in POLICIES.items():
        file, options = BF16[m]
        base = dict(options, precision="bf16", dropout=0.1, batch=batch(w))
        out["bf16-%s-w%d" % (m, w)] = (file, w, base, [])
        for v in variants:
            out["bf16-%s-w%d-%s" % (m, w, v)] = (file, w, dict(base, **VARIANTS[v]), ["--redzone", "512"] if v == "redzone" else [])
    return out


def families():
    """The modules rows_*.py."""
    import runner  # noqa: F401  puts tests/program on the path
    here = os.path.dirname(os.path.abspath(__file__))
    return [importlib.import_module(os.path.basename(f)[:-3]) for f in sorted(glob.glob(os.path.join(here, "rows_*.py")))]
