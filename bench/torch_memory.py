"""PyTorch's side of memory_rows.py: for each case, what FSDPMemTracker predicts and what the allocator then has at its peak. A JSON
line a case. Run by memory_rows.py under torchrun; needs PyTorch alone.

Relies on: PyTorch 2.11. Relied on by: memory_rows.py."""
import gc
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn import functional as F

MIXED = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.in_proj, self.out_proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return F.relu(self.out_proj(F.relu(self.in_proj(x))))


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        return F.dropout(self.wo(y.transpose(1, 2).flatten(2)), self.dropout)


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.attention_norm, self.attention, self.ffn_norm = nn.LayerNorm(dim), Attention(dim, heads, dropout), nn.LayerNorm(dim)
        self.w1, self.w2, self.dropout = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim), dropout

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + F.dropout(self.w2(F.gelu(self.w1(self.ffn_norm(x)))), self.dropout)


class Transformer(nn.Module):
    def __init__(self, layers=4, dim=16, heads=4, vocab=8192, seq=512, dropout=0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.layers = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.norm, self.output, self.dropout = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False), dropout
        self.output.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = F.dropout(x, self.dropout)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x)).float()


def sharded(blocks, root, **policy):
    for block in blocks:
        fully_shard(block, **policy)
    fully_shard(root, **policy)
    return root


def mlp(reshard, offload):
    model = nn.Sequential(*[MLP(2048) for _ in range(4)])
    place = CPUOffloadPolicy(pin_memory=False) if offload else OffloadPolicy()
    sharded(model, model, reshard_after_forward=reshard, offload_policy=place, mp_policy=MIXED)
    return model, model, torch.randn(8192, 2048)


def first_block(reshard, offload):
    model = nn.Sequential(*[MLP(2048) for _ in range(3)])
    sharded(model, model)
    return model, model[0], torch.randn(8, 2048)


def transformer(reshard, offload):
    model = Transformer()
    for i in range(len(model.layers)):
        model.layers[i] = checkpoint_wrapper(model.layers[i])
    sharded(model.layers, model, reshard_after_forward=reshard)
    return model, model, torch.randint(0, 8192, (16, 512))


MODELS = {"mlp": mlp, "first_block": first_block, "transformer": transformer}


def measure(model, reshard, offload, device):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)["active_bytes.all.current"]
    torch.manual_seed(42)
    with device:
        root, called, x = MODELS[model](reshard, offload)
    optimizer = torch.optim.Adam(root.parameters(), lr=1e-2)
    tracker = FSDPMemTracker(root, optimizer)
    tracker.track_inputs((x,))
    with tracker:
        for step in range(2):
            called(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                tracker.reset_mod_stats()
    stats = torch.cuda.memory_stats(device)
    free, total = torch.cuda.mem_get_info(device)
    return dict(predicted=tracker.get_tracker_snapshot("peak")[device]["Total"], active=stats["active_bytes.all.peak"] - before,
                reserved=stats["reserved_bytes.all.peak"], device=total - free)


def main():
    rank, gpus = int(os.environ["RANK"]), torch.cuda.device_count()
    if int(os.environ["WORLD_SIZE"]) > gpus:  # NCCL takes two ranks of a machine with one GPU for a mistake
        os.environ["NCCL_HOSTID"] = "machine-%d" % (rank // gpus)
    torch.cuda.set_device(rank % gpus)
    device = torch.device("cuda", rank % gpus)
    dist.init_process_group("nccl")
    nn.Linear(768, 768, device=device)(torch.randn(1, 768, device=device)).sum().backward()  # the libraries' own memory is there from now on
    for name, model, reshard, offload in json.loads(sys.argv[1]):
        try:
            told = measure(model, reshard, offload, device)
        except Exception as e:  # one case says nothing of the others
            told = dict(error=repr(e)[:300])
        if rank == 0:
            print(json.dumps(dict(case=name, **told)), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
