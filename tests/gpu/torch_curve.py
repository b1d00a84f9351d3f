"""A bf16 run's curve beside PyTorch's: the same GPT-2 from equal weights on equal batches of real text, 200 steps, by our program and by
PyTorch (FSDP2, parameters in bf16, gradients reduced in fp32), each several times: with other orders of the samples in each batch,
other attentions, compiled. What separates PyTorch's runs from each other is its noise; ours must lie no farther from them than that.

  python3 tests/gpu/torch_curve.py --program build/gpu-tests/curve-gpt2-w1

Relies on: PyTorch with CUDA, tests/golden/reference.py, harness.py. Relied on by: run.py."""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "golden"), os.path.join(ROOT, "tests", "program")]
import programs  # noqa: E402
import reference  # noqa: E402
from harness import write_safetensors  # noqa: E402

OPTIONS = programs.CURVE[1]
FLASH, CUDNN, PLAIN = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH
RUNS = [(FLASH, False, 0), (CUDNN, False, 0), (CUDNN, False, 1), (PLAIN, False, 2), (FLASH, True, 3), (CUDNN, True, 4)]  # attention, compiled, order
OURS = (0, 1, 2)  # orders


def batches(path, steps):
    """Windows of the text at random places, the same every time: [(tokens, targets)]."""
    with open(path, "rb") as f:
        text = torch.tensor(list(f.read()), dtype=torch.int32)
    draw = torch.Generator().manual_seed(5)
    out = []
    for _ in range(steps):
        at = torch.randint(0, len(text) - OPTIONS["seq"] - 1, (OPTIONS["batch"],), generator=draw)
        rows = torch.stack([text[a:a + OPTIONS["seq"] + 1] for a in at.tolist()])
        out.append((rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
    return out


def ordered(data, order):
    """The samples of every batch in another order; 0: as they are."""
    draw = torch.Generator().manual_seed(order)
    for tokens, targets in data:
        rows = torch.randperm(len(tokens), generator=draw) if order else torch.arange(len(tokens))
        yield tokens[rows], targets[rows]


def corpus(folder):
    """Python's own library: real text that every machine with PyTorch has, and that no commit of ours changes."""
    path, library = os.path.join(folder, "text"), os.path.dirname(os.__file__)
    with open(path, "wb") as out:
        for f in sorted(f for f in os.listdir(library) if f.endswith(".py")):
            with open(os.path.join(library, f), "rb") as source:
                out.write(source.read())
    return path


def initial():
    """GPT-2's initial values, drawn once."""
    torch.manual_seed(3)
    model, residual = reference.GPT2(OPTIONS), 0.02 / math.sqrt(2 * OPTIONS["layers"])
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                p.normal_(0, residual if name.endswith("c_proj.weight") else 0.01 if name == "wpe.weight" else 0.02)
            else:
                p.fill_(1.0 if ".ln_" in name and name.endswith("weight") or name == "ln_f.weight" else 0.0)
    return {n: t.detach().clone() for n, t in model.state_dict().items()}


def ours(program, weights, data, folder, steps):
    """[{loss, grad_norm, lr}] of our program on these batches."""
    file, records, log = (os.path.join(folder, n) for n in ("weights.safetensors", "records", "log.jsonl"))
    write_safetensors(file, {n: ("F32", list(t.shape), t.contiguous().numpy().tobytes()) for n, t in weights.items()})
    with open(records, "wb") as f:
        for tokens, targets in data:
            f.write(tokens.numpy().tobytes() + targets.numpy().tobytes())
    with open(records, "rb") as f:
        p = subprocess.run([program, "--data", "-", "--weights", file, "--steps", str(steps), "--lr", "1e-3", "--warmup", "20", "--total", str(steps), "--log", log, "--quiet"],
                           stdin=f, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise SystemExit("exit %d from %s: %s" % (p.returncode, program, p.stderr[-1500:]))
    with open(log) as f:
        return [s for s in map(json.loads, f) if "loss" in s]


def pytorch(weights, data, rates, backend, compiled, dtype=torch.bfloat16):
    """The losses of PyTorch's run."""
    torch.set_default_device("cuda")
    model = reference.GPT2(OPTIONS)
    model.load_state_dict(weights)
    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)}
    for block in model.h:
        if compiled:
            block.compile()
        fully_shard(block, **policy)
    fully_shard(model, **policy)
    decayed = [p for n, p in model.named_parameters() if not (n.endswith(".bias") or "ln_" in n)]
    others = [p for n, p in model.named_parameters() if n.endswith(".bias") or "ln_" in n]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], betas=(0.9, 0.95), weight_decay=0.1, eps=1e-8, fused=True)
    losses = []
    for (tokens, targets), rate in zip(data, rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        with sdpa_kernel(backend):
            logits = model(tokens.cuda())
            loss = reference.mean_cross_entropy(logits.float(), targets.cuda())
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    torch.set_default_device("cpu")
    return [x.item() for x in losses]


def distance(a, b):
    """Root mean square over the steps."""
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))


def pairs(runs):
    return [distance(a, b) for i, a in enumerate(runs) for b in runs[i + 1:]]


def told(far):
    return "%.4f (%.4f to %.4f)" % (sum(far) / len(far), min(far), max(far))


def tail(a):
    return sum(a[-20:]) / len(a[-20:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--curves", help="write the losses there (JSON)")
    o = p.parse_args()
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    with tempfile.TemporaryDirectory() as folder:
        data, weights = batches(corpus(folder), o.steps), initial()
        logs = [ours(o.program, weights, list(ordered(data, k)), folder, o.steps) for k in OURS]
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        theirs = [pytorch(weights, list(ordered(data, k)), [s["lr"] for s in logs[0]], *how) for *how, k in RUNS]
        exact = pytorch(weights, data, [s["lr"] for s in logs[0]], PLAIN, False, torch.float32)
        dist.destroy_process_group()
    mine = [[s["loss"] for s in log] for log in logs]
    noise, own, far = pairs(theirs), pairs(mine), [distance(a, b) for a in mine for b in theirs]
    ends = [tail(t) for t in theirs]
    if o.curves:
        with open(o.curves, "w") as f:
            json.dump({"ours": mine, "pytorch": theirs, "pytorch, fp32": exact}, f)
    print("loss %.4f -> %s (mean of the last 20), PyTorch's %s; rms over %d steps between PyTorch's runs %s, between ours %s, between ours and PyTorch's %s"
          % (mine[0][0], ", ".join("%.4f" % tail(m) for m in mine), ", ".join("%.4f" % e for e in ends), o.steps, told(noise), told(own), told(far)))
    print("from PyTorch's fp32 (%.4f): ours %s, PyTorch's bf16 %s" % (tail(exact), told([distance(m, exact) for m in mine]), told([distance(t, exact) for t in theirs])))
    middle, spread = sum(ends) / len(ends), max(ends) - min(ends)
    good = sum(far) / len(far) <= max(noise) and all(abs(tail(m) - middle) <= max(spread, 0.002) for m in mine)
    print("within PyTorch's own noise" if good else "FARTHER from PyTorch's runs than those from each other")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
