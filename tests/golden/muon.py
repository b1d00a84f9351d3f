"""torch.optim.Muon's numbers for tests/golden/muon.lua: three steps from given weights with given gradients. Run by hand.

  /path/to/python tests/golden/muon.py       # needs PyTorch; writes muon.records, muon.weights.safetensors, muon.WAY.safetensors
Relies on: torch, harness.py. Relied on by: test_muon.py, by its files."""
import array
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "program"))
import harness  # noqa: E402

SHAPES = {"wide": (16, 40), "tall": (40, 16), "square": (32, 32), "odd": (7, 5), "large": (136, 150), "experts": (5, 24, 16), "bias": (9,), "table": (12, 8)}
STEPS, LR = 3, 0.02
WAYS = {"original": {}, "match_rms_adamw": {"adjust_lr_fn": "match_rms_adamw"},
        "plain": {"nesterov": False, "ns_steps": 3, "momentum": 0.8, "ns_coefficients": (2, -1.5, 0.5)}}


def raw(t):
    return array.array("f", t.detach().flatten().tolist()).tobytes()


def save(name, tensors):
    harness.write_safetensors(os.path.join(HERE, name), {n: ("F32", list(t.shape), raw(t)) for n, t in tensors.items()})


def train(way, weights, gradients):
    """Experts are matrices of their own for torch.optim.Muon, too."""
    params = {n: [p.clone().requires_grad_() for p in (w if n == "experts" else [w])] for n, w in weights.items()}
    matrices = [n for n in SHAPES if n not in ("bias", "table")]
    optimizers = [torch.optim.Muon([{"params": params[n], "lr": LR / 2 if n == "square" else LR} for n in matrices], lr=LR, weight_decay=0.05, **WAYS[way]),
                  torch.optim.AdamW(params["bias"] + params["table"], lr=0.01, betas=(0.8, 0.99), eps=1e-3, weight_decay=0.02)]
    for gradient in gradients:
        for n, g in gradient.items():
            for p, part in zip(params[n], g if n == "experts" else [g]):
                p.grad = part.clone()
        for o in optimizers:
            o.step()
    return {n: torch.stack(p) if n == "experts" else p[0] for n, p in params.items()}


def main():
    g = torch.Generator().manual_seed(3)
    draw = lambda scale: {n: scale * torch.randn(s, generator=g) for n, s in SHAPES.items()}
    weights, gradients = draw(0.1), [draw(0.5) for _ in range(STEPS)]
    save("muon.weights.safetensors", weights)
    with open(os.path.join(HERE, "muon.records"), "wb") as f:
        f.write(b"".join(raw(x) for gradient in gradients for x in gradient.values()))
    for way in WAYS:
        save("muon.%s.safetensors" % way, train(way, weights, gradients))


if __name__ == "__main__":
    main()
