"""LoRA of a Llama in PyTorch on one GPU, as peft computes it: frozen bf16 matrices, each with two thin ones beside it, kept in
fp32 and used in bf16; every block compiled, SDPA attention, fused AdamW of the thin ones. Prints a JSON line.

  python3 bench/torch_lora.py llama3-8b-1x1x4096 --rank 16 [--recompute]

Relies on: PyTorch with CUDA, torch_fsdp2.py, workloads.py. Relied on by: people who compare."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import torch_fsdp2
from workloads import workload


class Adapted(nn.Module):
    """y = W x + B A x · alpha / rank, as peft's Linear; W is frozen."""

    def __init__(self, inputs, outputs, rank, alpha):
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)
        self.base.weight.requires_grad_(False)
        self.a, self.b, self.scale = nn.Parameter(torch.empty(rank, inputs)), nn.Parameter(torch.empty(outputs, rank)), alpha / rank

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype)) * self.scale


class Attention(nn.Module):
    def __init__(self, s, linear):
        super().__init__()
        self.s = s
        self.q, self.k, self.v = (linear(s.dim, n * s.width) for n in (s.heads, s.kv_heads, s.kv_heads))
        self.out = linear(s.heads * s.width, s.dim)

    def forward(self, x, cos, sin):
        s, (batch, seq, _) = self.s, x.shape
        q, k, v = (f(x).view(batch, seq, -1, s.width).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = torch_fsdp2.turned(q, cos, sin), torch_fsdp2.turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.kv_heads != s.heads)
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))


class MLP(nn.Module):
    def __init__(self, s, linear):
        super().__init__()
        self.gate, self.up, self.down = linear(s.dim, s.ffn), linear(s.dim, s.ffn), linear(s.ffn, s.dim)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("workload", type=workload)
    a.add_argument("--rank", type=int, default=16)
    a.add_argument("--alpha", type=float, default=32)
    a.add_argument("--recompute", action="store_true", help="each block is recomputed in the backward")
    a.add_argument("--steps", type=int, default=12)
    o = a.parse_args()
    w, s = o.workload, o.workload.shape
    torch.manual_seed(1)

    def linear(inputs, outputs):
        return Adapted(inputs, outputs, o.rank, o.alpha)

    with torch.device("meta"):
        model = torch_fsdp2.Model(s, w.seq, torch.compile(torch_fsdp2.loss_of)).to(torch.bfloat16)
        for p in model.parameters():
            p.requires_grad_(False)
        for block in model.blocks:
            block.attention, block.mlp = Attention(s, linear), MLP(s, linear)
    for i, block in enumerate(model.blocks):
        if o.recompute:
            model.blocks[i] = checkpoint_wrapper(block)
        model.blocks[i].compile()
    model.to_empty(device="cuda")
    for p in model.parameters():
        nn.init.ones_(p) if p.dim() == 1 else nn.init.normal_(p, std=0.02)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    data = torch.randint(0, s.vocab, (4, w.batch, w.seq + 1), device="cuda")
    times = []
    for k in range(o.steps):
        if k == 5:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        batch = data[k % len(data)]
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds, memory = statistics.median(times[5:]), torch.cuda.memory_stats()
    print(json.dumps({"workload": w.name, "rank": o.rank, "recompute": o.recompute, "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                      "trained": sum(p.numel() for p in trained), "ms": 1e3 * seconds, "tok_s": w.tokens / seconds, "loss": loss.item(),
                      "active": memory["active_bytes.all.peak"], "reserved": memory["reserved_bytes.all.peak"]}), flush=True)


if __name__ == "__main__":
    main()
