"""Products of our own on GPUs that have them (k_matmul_hopper.cu: wide ones with gelu or a gate, and their gradients): the same bits whatever is
recomputed, also where a gate is run again without its product. Sizes are such that the kernels take them: 8 tiles of 128 x 256 a multiprocessor.

Relies on: runner.py. Relied on by: run.py, by its name."""
from runner import once_more, same

WIDE = dict(layers=2, dim=768, heads=12, vocab=256, batch=11, seq=1024, precision="bf16")
MODELS = {"gelu": ("gpt2.lua", WIDE), "gated": ("llama3.lua", dict(WIDE, size="tiny", kv_heads=4, ffn=3072))}
VARIANTS = {"plain": {}, "selective": dict(recompute="selective"), "full": dict(recompute="full")}


def name(model, variant, world):
    return "products-%s-%s-w%d" % (model, variant, world)


PROGRAMS = {name(m, v, w): (MODELS[m][0], w, dict(MODELS[m][1], **VARIANTS[v])) for m in MODELS for v in VARIANTS for w in (1, 2, 4)}


def cases(r):
    for m in MODELS:
        for w in (1, 2, 4):
            yield "products.%s-again-w%d" % (m, w), w, lambda m=m, w=w: once_more(r, name(m, "plain", w), w)
            for v in ("selective", "full"):
                yield "products.%s-%s-w%d" % (m, v, w), w, lambda m=m, v=v, w=w: same(r, name(m, "plain", w), w, name(m, v, w))
