"""A workload in PyTorch, as its users write it for speed: FSDP2 (fully_shard a block and the root), every block and the loss
compiled, bf16 parameters in use and gradients reduced in fp32, fused AdamW on fp32 shards, SDPA attention; -fp8 by torchao's tensorwise
recipe. Prints a JSON line.

  python3 bench/torch_fsdp2.py llama3-8b-4x1x8192      # starts its ranks itself; torchrun does as well

Relies on: PyTorch with CUDA (torchao for -fp8), workloads.py. Relied on by: gpu.py."""
import argparse
import dataclasses
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from workloads import workload


def turned(x, cos, sin):
    """Rotary positions on [batch, heads, seq, width]: pairs (d, d + width / 2), in fp32."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.qkv = nn.Linear(s.dim, (s.heads + 2 * s.kv_heads) * s.width, bias=s.family != "llama3")
        self.out = nn.Linear(s.heads * s.width, s.dim, bias=s.family == "gpt2")

    def forward(self, x, cos, sin):
        s, (batch, seq, _) = self.s, x.shape
        heads = self.qkv(x).view(batch, seq, -1, s.width).transpose(1, 2)
        q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), dim=1)
        if cos is not None:
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.kv_heads != s.heads)
        return self.out(y.transpose(1, 2).reshape(batch, seq, s.heads * s.width))


class MLP(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gated = s.family != "gpt2"
        self.up = nn.Linear(s.dim, 2 * s.ffn if self.gated else s.ffn, bias=not self.gated)
        self.down = nn.Linear(s.ffn, s.dim, bias=not self.gated)

    def forward(self, x):
        y = self.up(x)
        if not self.gated:
            return self.down(F.gelu(y, approximate="tanh"))
        gate, value = y.chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


def norm(s):
    return nn.LayerNorm(s.dim, eps=s.eps) if s.family == "gpt2" else nn.RMSNorm(s.dim, eps=s.eps)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.first, self.attention, self.second, self.mlp = norm(s), Attention(s), norm(s), MLP(s)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.first(x), cos, sin)
        return x + self.mlp(self.second(x))


def loss_of(head, x, targets):
    return F.cross_entropy(head(x).float().flatten(0, 1), targets.flatten())


class Model(nn.Module):
    def __init__(self, s, seq, loss):
        super().__init__()
        self.s, self.seq, self.loss = s, seq, loss
        self.tokens = nn.Embedding(s.vocab, s.dim)
        self.positions = nn.Embedding(seq, s.dim) if s.family == "gpt2" else None
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.last = norm(s)
        self.head = nn.Linear(s.dim, s.vocab, bias=False)
        if s.tied:
            self.head.weight = self.tokens.weight

    def angles(self, device):
        if self.positions is not None:
            return None, None
        w = self.s.width
        speed = self.s.theta ** (-torch.arange(0, w, 2, device=device, dtype=torch.float32) / w)
        angle = torch.arange(self.seq, device=device, dtype=torch.float32)[:, None] * speed
        return angle.cos(), angle.sin()

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(self.seq, device=tokens.device))
        cos, sin = self.angles(tokens.device)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.loss(self.head, self.last(x), targets)


def make(w, shape, eager):
    with torch.device("meta"):
        model = Model(shape, w.seq, loss_of if eager else torch.compile(loss_of))
    if w.fp8:  # of the blocks' linears, as ours
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
        config = Float8LinearConfig(enable_fsdp_float8_all_gather=w.world > 1)
        convert_to_float8_training(model, config=config, module_filter_fn=lambda m, name: isinstance(m, nn.Linear) and "blocks" in name)
    for i, block in enumerate(model.blocks):
        if w.recompute:
            model.blocks[i] = checkpoint_wrapper(block)
        if not eager:
            model.blocks[i].compile()
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
               "offload_policy": CPUOffloadPolicy() if w.offload else OffloadPolicy()}
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    model.to_empty(device="cpu" if w.offload else "cuda")
    for p in model.parameters():
        nn.init.ones_(p) if p.dim() == 1 else nn.init.normal_(p, std=0.02)
    return model


def start_ranks(world):
    """This command once more for every rank; the first exit code that is not 0, after which the others are ended."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), **place)) for r in range(world)]
    while any(p.poll() is None for p in ranks) and not any(p.poll() for p in ranks):
        time.sleep(0.05)
    for p in ranks:
        if p.poll() is None:
            p.kill()
    return max(abs(p.wait()) for p in ranks)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("workload", type=workload)
    a.add_argument("--steps", type=int, default=20)
    a.add_argument("--warmup", type=int, default=6)
    a.add_argument("--eager", action="store_true")
    a.add_argument("--layers", type=int, help="fewer layers, on any number of GPUs: only to warm the compiler's caches")
    a.add_argument("--deterministic", action="store_true")
    o = a.parse_args()
    w = o.workload
    if "RANK" not in os.environ:
        return start_ranks(1 if o.layers else w.world)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    shape = dataclasses.replace(w.shape, layers=o.layers or w.shape.layers)
    if dist.get_world_size() != w.world and not o.layers:
        raise SystemExit("%s is for %d GPUs, not %d" % (w.name, w.world, dist.get_world_size()))
    torch.use_deterministic_algorithms(o.deterministic, warn_only=True)
    torch.manual_seed(1)
    model = make(w, shape, o.eager)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() > 1]}, {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    draw = torch.Generator(device="cuda").manual_seed(100 + dist.get_rank())
    data = torch.randint(0, w.shape.vocab, (4, w.batch, w.seq + 1), device="cuda", generator=draw)

    def step(k):
        batch = data[k % len(data)]
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        if w.clip:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for k in range(o.warmup):
        step(k)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for k in range(o.steps):
        start = time.perf_counter()
        loss = step(k)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds, memory = statistics.median(times), torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    if dist.get_rank() == 0:
        print(json.dumps({"workload": w.name, "torch": torch.__version__, "device": torch.cuda.get_device_name(), "compiled": not o.eager,
                          "deterministic": o.deterministic, "ms": 1e3 * seconds, "tok_s": w.tokens / seconds, "loss": loss.item(),
                          "active": memory["active_bytes.all.peak"], "reserved": memory["reserved_bytes.all.peak"], "device_used": total - free}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
