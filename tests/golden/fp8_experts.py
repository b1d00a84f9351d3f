"""Makes fp8_experts.json with PyTorch on a CPU, as fp8.py: a decoder of routed experts (models/moe.lua), whose rows of all experts have one scale, and whose
stacked matrices have one.

    python tests/golden/fp8_experts.py        (torch 2.x)

Relies on: torch, fp8.py, reference.py. Relied on by: people; tests/program/test_fp8_experts.py reads what it wrote."""
import torch
import torch.nn.functional as F
from torch import nn

import fp8
import reference

OPTIONS = {"moe": {"layers": 2, "dim": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "ffn": 80, "experts": 6, "top": 2, "balance": 0, "vocab": 48, "batch": 4, "seq": 16,
                   "precision": "fp32", "theta": 100.0}}


def each(rows, counts):
    return list(zip(rows.split(counts), range(len(counts))))


class Product(torch.autograd.Function):
    """Each row times the transpose of the matrix of its group."""
    @staticmethod
    def forward(ctx, x, w, counts):
        (a, sa), (b, sb) = fp8.quantized(x, torch.float8_e4m3fn, 448), fp8.quantized(w, torch.float8_e4m3fn, 448)
        ctx.counts = counts
        ctx.save_for_backward(a, sa, b, sb)
        return torch.cat([r @ b[e].T for r, e in each(a, counts)]) * (sa * sb)

    @staticmethod
    def backward(ctx, g):
        a, sa, b, sb = ctx.saved_tensors
        q, s = fp8.quantized(g, torch.float8_e5m2, 57344)
        dw = torch.stack([r.T @ a_ for r, a_ in zip(q.split(ctx.counts), a.split(ctx.counts))])
        return torch.cat([r @ b[e] for r, e in each(q, ctx.counts)]) * (s * sb), dw * (s * sa), None


def plain(x, w, counts):
    return torch.cat([r @ w[e].T for r, e in each(x, counts)])


class Experts(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(o["experts"], 2 * o["ffn"], o["dim"]))
        self.down_proj = nn.Parameter(torch.empty(o["experts"], o["dim"], o["ffn"]))
        self.product = plain

    def forward(self, x, weights, index):
        order = index.flatten().argsort(stable=True)
        counts = index.flatten().bincount(minlength=len(self.down_proj)).tolist()
        token = order // index.shape[1]
        gate, up = self.product(x[token], self.gate_up_proj, counts).chunk(2, -1)
        hidden = F.silu(gate) * up * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, token, self.product(hidden, self.down_proj, counts))


class MoE(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.top = o["top"]
        self.gate, self.experts = nn.Linear(o["dim"], o["experts"], bias=False), Experts(o)

    def forward(self, x):
        weights, index = self.gate(x).softmax(-1).topk(self.top)
        return self.experts(x.flatten(0, -2), (weights / weights.sum(-1, keepdim=True)).flatten(0, -2), index.flatten(0, -2)).view_as(x)


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.input_layernorm, self.self_attn = nn.RMSNorm(o["dim"], eps=1e-6), reference.LlamaAttention(o)
        self.post_attention_layernorm, self.mlp = nn.RMSNorm(o["dim"], eps=1e-6), MoE(o)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed_tokens, self.lm_head = nn.Embedding(o["vocab"], o["dim"]), nn.Linear(o["dim"], o["vocab"], bias=False)
        self.layers, self.norm = nn.ModuleList(Block(o) for _ in range(o["layers"])), nn.RMSNorm(o["dim"], eps=1e-6)

    def loss(self, batch):
        x = self.embed_tokens(batch["tokens"])
        for layer in self.layers:
            x = layer(x)
        return reference.mean_cross_entropy(self.lm_head(self.norm(x)), batch["targets"])


def in_8_bits(model):
    fp8.in_8_bits(model)
    for m in model.modules():
        if isinstance(m, Experts):
            m.product = Product.apply


if __name__ == "__main__":
    fp8.write("fp8_experts.json", OPTIONS, in_8_bits, {"moe": Decoder})
