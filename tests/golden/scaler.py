"""Makes scaler.json and scaler.weights.safetensors: PyTorch's own GradScaler over tests/program/rows/scaler.lua in fp16, on a CPU:

    python tests/golden/scaler.py        (torch 2.x)

An fp32 master, an fp16 copy that computes, gradients in fp16, unscaled and clipped in fp32, AdamW; step 3 overflows.

Relies on: torch, test_rows_scaler.py (the records). Relied on by: people; test_G5_beside_pytorch reads what it wrote."""
import array
import json
import os
import struct
import sys

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(HERE), "program"))
import harness  # noqa: E402
import test_rows_scaler as rows  # noqa: E402

STEPS, GAINS, CLIP = 12, {3: {0: rows.HUGE}}, 1.0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(rows.DIM), nn.Linear(rows.DIM, 3 * rows.DIM), nn.Linear(3 * rows.DIM, rows.DIM)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head, self.blocks = nn.Linear(rows.DIM, rows.DIM), nn.Linear(rows.DIM, 4), nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.inner(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches():
    with open(rows.records(STEPS, GAINS), "rb") as f:
        for _ in range(STEPS):
            x = struct.unpack("%df" % (rows.GLOBAL * rows.DIM), f.read(4 * rows.GLOBAL * rows.DIM))
            yield torch.tensor(x).view(rows.GLOBAL, rows.DIM), torch.tensor(struct.unpack("%df" % rows.GLOBAL, f.read(4 * rows.GLOBAL)))


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    master, half = Net(), Net().half()
    harness.write_safetensors(os.path.join(HERE, "scaler.weights.safetensors"),
                              {n: ("F32", list(p.shape), array.array("f", p.detach().flatten().tolist()).tobytes()) for n, p in master.named_parameters()})
    optimizer = torch.optim.AdamW(master.parameters(), lr=1e-2, weight_decay=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=2)
    out = {"torch": torch.__version__, "losses": [], "grad_norms": [], "scales": [], "skipped": []}
    for x, gain in batches():
        with torch.no_grad():
            for h, p in zip(half.parameters(), master.parameters()):
                h.copy_(p)
        half.zero_grad()
        y = half(x.half()).float()
        loss = (torch.sum(y * y, 1) * gain).mean()
        before = scaler.get_scale()
        scaler.scale(loss).backward()
        for h, p in zip(half.parameters(), master.parameters()):
            p.grad = h.grad.float()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(master.parameters(), CLIP).item()
        scaler.step(optimizer)
        scaler.update()
        out["losses"].append(loss.item())
        out["skipped"].append(int(scaler.get_scale() < before))
        out["grad_norms"].append(None if out["skipped"][-1] else norm)
        out["scales"].append(scaler.get_scale())
    with open(os.path.join(HERE, "scaler.json"), "w") as f:
        f.write(json.dumps(out, indent=1) + "\n")
    print(out)


if __name__ == "__main__":
    main()
