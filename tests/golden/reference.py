"""The models of models/*.lua and tests/golden/*.lua once more, in plain PyTorch: state_dict keys equal parameter paths.

Relies on: torch. Relied on by: make.py."""
import math

import torch
import torch.nn.functional as F
from torch import nn


def heads_of(x, n):
    """[B, S, n * D] -> [B, n, S, D], what scaled_dot_product_attention takes."""
    b, s, w = x.shape
    return x.view(b, s, n, w // n).transpose(1, 2)


def attend(q, k, v, causal):
    """[B, H, S, D] -> [B, S, H * D]; scale 1 / sqrt(D); query head h reads key head h // (H / Hkv)."""
    o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return o.transpose(1, 2).flatten(2)


def mean_cross_entropy(logits, targets):
    """Mean over the targets that are not -100."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten().long(), ignore_index=-100)


# ── gpt2 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class Conv1D(nn.Module):
    """Linear with its matrix stored [in, out], as Hugging Face stores GPT-2's."""
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inputs, outputs)), nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads = o["heads"]
        self.c_attn = Conv1D(o["dim"], 3 * o["dim"])
        self.c_proj = Conv1D(o["dim"], o["dim"])

    def forward(self, x):
        q, k, v = (heads_of(t, self.heads) for t in self.c_attn(x).chunk(3, -1))
        return self.c_proj(attend(q, k, v, True))


class GPT2MLP(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.c_fc = Conv1D(o["dim"], 4 * o["dim"])
        self.c_proj = Conv1D(4 * o["dim"], o["dim"])

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GPT2Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.ln_1 = nn.LayerNorm(o["dim"], eps=1e-5)
        self.attn = GPT2Attention(o)
        self.ln_2 = nn.LayerNorm(o["dim"], eps=1e-5)
        self.mlp = GPT2MLP(o)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte = nn.Embedding(o["vocab"], o["dim"])
        self.wpe = nn.Embedding(o["seq"], o["dim"])
        self.h = nn.ModuleList(GPT2Block(o) for _ in range(o["layers"]))
        self.ln_f = nn.LayerNorm(o["dim"], eps=1e-5)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def loss(self, batch):
        return mean_cross_entropy(self(batch["tokens"]), batch["targets"])


# ── llama3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def rope_frequencies(size, theta, scaling=None):
    """Inverse frequencies of the pairs (d, d + size/2), with Llama 3.1's scaling by wavelength (Hugging Face's formula)."""
    f = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    if not scaling:
        return f
    wavelength = 2 * math.pi / f
    low, high, original = scaling["low"], scaling["high"], scaling["original"]
    smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)  # 0: scaled down by the factor, 1: as it was
    return (1 - smooth) * f / scaling["factor"] + smooth * f


def rope(x, frequencies):
    """x [B, H, S, D]; angles in double precision, rounded once."""
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


class LlamaAttention(nn.Module):
    def __init__(self, o):
        super().__init__()
        size = o["dim"] // o["heads"]
        self.heads, self.kv_heads = o["heads"], o["kv_heads"]
        self.q_proj = nn.Linear(o["dim"], o["heads"] * size, bias=False)
        self.k_proj = nn.Linear(o["dim"], o["kv_heads"] * size, bias=False)
        self.v_proj = nn.Linear(o["dim"], o["kv_heads"] * size, bias=False)
        self.o_proj = nn.Linear(o["heads"] * size, o["dim"], bias=False)
        scaling = {"factor": o["rope_factor"], "low": 1, "high": 4, "original": o["rope_original"]} if "rope_factor" in o else None
        self.frequencies = rope_frequencies(size, o["theta"], scaling)

    def forward(self, x):
        q = rope(heads_of(self.q_proj(x), self.heads), self.frequencies)
        k = rope(heads_of(self.k_proj(x), self.kv_heads), self.frequencies)
        return self.o_proj(attend(q, k, heads_of(self.v_proj(x), self.kv_heads), True))


class LlamaMLP(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.gate_proj = nn.Linear(o["dim"], o["ffn"], bias=False)
        self.up_proj = nn.Linear(o["dim"], o["ffn"], bias=False)
        self.down_proj = nn.Linear(o["ffn"], o["dim"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(o["dim"], eps=1e-5)
        self.self_attn = LlamaAttention(o)
        self.post_attention_layernorm = nn.RMSNorm(o["dim"], eps=1e-5)
        self.mlp = LlamaMLP(o)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaBody(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed_tokens = nn.Embedding(o["vocab"], o["dim"])
        self.layers = nn.ModuleList(LlamaBlock(o) for _ in range(o["layers"]))
        self.norm = nn.RMSNorm(o["dim"], eps=1e-5)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x)
        return self.norm(x)


class Llama3(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.model = LlamaBody(o)
        self.lm_head = nn.Linear(o["dim"], o["vocab"], bias=False)

    def forward(self, tokens):
        return self.lm_head(self.model(tokens))

    def loss(self, batch):
        return mean_cross_entropy(self(batch["tokens"]), batch["targets"])


# ── qwen2: llama3's layers with biases on queries, keys and values, another eps, no scaling of positions, a tied head ─
class Qwen2(Llama3):
    def __init__(self, o):
        super().__init__(o)
        for layer in self.model.layers:
            for p in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
                p.bias = nn.Parameter(torch.empty(p.out_features))
        for m in self.modules():
            if isinstance(m, nn.RMSNorm):
                m.eps = 1e-6
        del self.lm_head

    def forward(self, tokens):
        return self.model(tokens) @ self.model.embed_tokens.weight.T


# ── transformer ──────────────────────────────────────────────────────────────────────────────────────────────────────
class Attention(nn.Module):
    def __init__(self, o, causal):
        super().__init__()
        self.heads, self.causal = o["heads"], causal
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(o["dim"], o["dim"]))

    def forward(self, x, source):
        q, k, v = heads_of(self.q_proj(x), self.heads), heads_of(self.k_proj(source), self.heads), heads_of(self.v_proj(source), self.heads)
        return self.out_proj(attend(q, k, v, self.causal))


class EncoderLayer(nn.Module):
    def __init__(self, o, causal=False):
        super().__init__()
        self.self_attn_layer_norm, self.self_attn = nn.LayerNorm(o["dim"]), Attention(o, causal)
        self.final_layer_norm, self.fc1, self.fc2 = nn.LayerNorm(o["dim"]), nn.Linear(o["dim"], o["ffn"]), nn.Linear(o["ffn"], o["dim"])

    def attend_self(self, x):
        y = self.self_attn_layer_norm(x)
        return x + self.self_attn(y, y)

    def feed_forward(self, x):
        return x + self.fc2(F.relu(self.fc1(self.final_layer_norm(x))))

    def forward(self, x, memory):
        return self.feed_forward(self.attend_self(x))


class DecoderLayer(EncoderLayer):
    def __init__(self, o):
        super().__init__(o, causal=True)
        self.encoder_attn_layer_norm, self.encoder_attn = nn.LayerNorm(o["dim"]), Attention(o, False)

    def forward(self, x, memory):
        x = self.attend_self(x)
        return self.feed_forward(x + self.encoder_attn(self.encoder_attn_layer_norm(x), memory))


class Stack(nn.Module):
    def __init__(self, o, layer):
        super().__init__()
        self.embed_positions = nn.Embedding(o["seq"], o["dim"])
        self.layers = nn.ModuleList(layer(o) for _ in range(o["layers"]))
        self.layer_norm = nn.LayerNorm(o["dim"])

    def forward(self, x, memory):
        x = x + self.embed_positions(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, memory)
        return self.layer_norm(x)


class Transformer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.shared = nn.Embedding(o["vocab"], o["dim"])
        self.encoder, self.decoder = Stack(o, EncoderLayer), Stack(o, DecoderLayer)

    def loss(self, batch):
        memory = self.encoder(self.shared(batch["source"]), None)
        x = self.decoder(self.shared(batch["target_in"]), memory)
        return mean_cross_entropy(x @ self.shared.weight.T, batch["targets"])


# ── small ────────────────────────────────────────────────────────────────────────────────────────────────────────────
class Small(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.first = nn.Linear(o["inputs"], o["width"], bias=False)
        self.norm = nn.BatchNorm1d(o["width"], momentum=0.2)
        del self.norm.num_batches_tracked
        self.norm.num_batches_tracked = None
        self.second = nn.Linear(o["width"], o["width"])
        self.last = nn.Linear(o["width"], o["outputs"])
        self.gain = nn.Parameter(torch.ones(o["outputs"]))
        self.unused = nn.Parameter(torch.ones(5))
        self.frozen = nn.Parameter(torch.ones(o["outputs"]), requires_grad=False)

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(x)))
        return self.last(F.gelu(self.second(x))) * self.gain + self.frozen

    def loss(self, batch):
        return F.mse_loss(self(batch["x"]), batch["y"])


# ── optimizers that torch.optim lacks ────────────────────────────────────────────────────────────────────────────────
class Lion(torch.optim.Optimizer):
    """X. Chen and others: Symbolic discovery of optimization algorithms, NeurIPS 2023, algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay, foreach):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m, (b1, b2) = self.state[p].setdefault("m", torch.zeros_like(p)), group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * torch.sign(b1 * m + (1 - b1) * p.grad))
                m.mul_(b2).add_((1 - b2) * p.grad)
