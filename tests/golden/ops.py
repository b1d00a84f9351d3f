"""The list of ops.lua in PyTorch: the same names, parameters and shapes.

Relies on: torch, reference.py (rope). Relied on by: cases.py."""
import torch
import torch.nn.functional as F
from torch import nn

from reference import rope, rope_frequencies


def attention(m, causal=False, scale=None, documents=None):
    """q [B,S,H,D], k and v [B,T,Hkv,D], as shardc lays them out."""
    q, k, v = (t.transpose(1, 2) for t in (m["q"], m["k"], m["v"]))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    mask = None
    if documents is not None:
        mask = (documents[:, :, None] == documents[:, None, :]).tril()[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=scale).transpose(1, 2)


def rope_at(x, positions, theta, scaling=None):
    """Each sequence has positions of its own: turn all possible rows, then take."""
    angle = positions.double()[..., None] * rope_frequencies(x.shape[-1], theta, scaling)  # [B, S, D/2]
    c, s = angle.cos().to(x.dtype)[:, :, None], angle.sin().to(x.dtype)[:, :, None]
    a, b = x.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def views(m, b):
    a = m["x"].transpose(0, 2).reshape(4, 6)
    p, q = a.split([2, 4], 1)
    return torch.cat((q, p * 2, a[:, 1:4]), 1)


XY, OWN = {"x": (4, 6), "y": (4, 6)}, {"q": (2, 8, 4, 6), "k": (2, 8, 2, 6), "v": (2, 8, 2, 6)}
LLAMA31 = {"factor": 8, "low": 1, "high": 4, "original": 64}
OPS = {  # name: (shapes, function); parameters called p are positive
    **{n: ({"x": (4, 6)}, lambda m, b, f=f: f(m["x"])) for n, f in {
        "exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu, "silu": F.silu, "abs": torch.abs, "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "clamp": lambda x: x.clamp(-0.5, 0.8),
        "detach": lambda x: x * x.detach()}.items()},
    **{"p_" + n: ({"p": (4, 6)}, lambda m, b, f=f: f(m["p"])) for n, f in {"log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt}.items()},
    "scalars": ({"p": (4, 6)}, lambda m, b: (2 / (m["p"] * 3 + 1) - 4) / 5 + (1 - m["p"]) + m["p"] ** 1.7 + 2 ** m["p"]),
    "arithmetic": ({**XY, "p": (4, 6)}, lambda m, b: (m["x"] + m["y"]) * (m["x"] - m["y"]) / m["p"]),
    "cast": (XY, lambda m, b: m["x"].to(torch.bfloat16).to(m["x"].dtype) * m["y"]),
    "extremes": (XY, lambda m, b: torch.maximum(m["x"], m["y"]) * torch.minimum(m["x"], m["y"])),
    "where": (XY, lambda m, b: torch.where(m["x"] < m["y"], m["x"] * m["x"], m["y"] * 3)),
    "broadcast": ({"x": (2, 3, 4), "y": (4,), "z": (3, 1)}, lambda m, b: m["x"] * m["y"] + m["z"]),
    "sum": ({"x": (2, 3, 4)}, lambda m, b: m["x"].sum((0, 2))),
    "mean": ({"x": (2, 3, 4)}, lambda m, b: m["x"].mean(-1, True) * m["x"]),
    "max": ({"x": (2, 3, 4)}, lambda m, b: m["x"].amax(2)),
    "softmax": ({"x": (2, 3, 4)}, lambda m, b: m["x"].softmax(1)),
    "views": ({"x": (2, 3, 4)}, views),
    "stack": ({"x": (3, 4), "y": (3, 4)}, lambda m, b: torch.stack((m["x"], m["y"], m["x"]), 1).permute(2, 0, 1)),
    "matmul": ({"x": (3, 4), "y": (4, 5)}, lambda m, b: m["x"] @ m["y"]),
    "matmul_t": ({"x": (4, 3), "y": (5, 4)}, lambda m, b: m["x"].T @ m["y"].T),
    "matmul_batched": ({"x": (2, 3, 4), "y": (2, 5, 4)}, lambda m, b: m["x"] @ m["y"].transpose(1, 2)),
    "matmul_shared": ({"x": (2, 3, 4), "y": (4, 5)}, lambda m, b: m["x"] @ m["y"]),
    "linear": ({"x": (2, 3, 4), "w": (5, 4), "c": (5,)}, lambda m, b: F.linear(m["x"], m["w"], m["c"])),
    "embedding": ({"w": (16, 4)}, lambda m, b: F.embedding(b["tokens"], m["w"])),
    "layer_norm": ({"x": (3, 6), "w": (6,), "c": (6,)}, lambda m, b: F.layer_norm(m["x"], (6,), m["w"], m["c"], 1e-5)),
    "layer_norm_plain": ({"x": (3, 6), "w": (6,)}, lambda m, b: F.layer_norm(m["x"], (6,), eps=1e-3) * m["w"]),
    "rms_norm": ({"x": (3, 6), "w": (6,)}, lambda m, b: F.rms_norm(m["x"], (6,), m["w"], 1e-5)),
    "batch_norm": ({"x": (4, 3, 5), "w": (3,), "c": (3,), "z": (4, 3, 5)},
                   lambda m, b: F.batch_norm(m["x"], m["mean"], m["var"], m["w"], m["c"], True, 0.3, 1e-4) * m["z"]),
    "attention_causal": (OWN, lambda m, b: attention(m, causal=True)),
    "attention_full": (OWN, lambda m, b: attention(m, scale=0.3)),
    "attention_cross": ({"q": (2, 5, 2, 6), "k": (2, 9, 2, 6), "v": (2, 9, 2, 6)}, lambda m, b: attention(m)),
    "attention_documents": (OWN, lambda m, b: attention(m, causal=True, documents=b["documents"])),
    "rope": ({"x": (2, 8, 2, 6)}, lambda m, b: rope(m["x"].transpose(1, 2), rope_frequencies(6, 100)).transpose(1, 2)),
    "rope_positions": ({"x": (2, 8, 2, 6)}, lambda m, b: rope_at(m["x"], b["positions"], 10000)),
    "rope_scaling": ({"x": (2, 8, 2, 8)}, lambda m, b: rope_at(m["x"], b["positions"], 500, LLAMA31)),
    "cross_entropy": ({"x": (2, 8, 16)}, lambda m, b: F.cross_entropy(m["x"].flatten(0, 1), b["targets"].flatten().long(), ignore_index=-100)),
    "mse": ({"x": (3, 4), "y": (3, 4)}, lambda m, b: F.mse_loss(m["x"], m["y"])),
}


class Op(nn.Module):
    def __init__(self, name):
        super().__init__()
        shapes, self.f = OPS[name]
        for n, shape in sorted(shapes.items()):
            self.register_parameter(n, nn.Parameter(torch.zeros(shape)))
        if name == "batch_norm":
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("var", torch.ones(3))

    def forward(self, batch):
        y = self.f({**self._parameters, **self._buffers}, batch)
        return (y * y * 0.5 + y).mean()


class All(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.names = list(OPS)
        for n in OPS:
            self.add_module("op_" + n, Op(n))

    def loss(self, batch):
        self.logs = {"value." + n: self.get_submodule("op_" + n)(batch) for n in OPS}
        return sum(self.logs.values())
