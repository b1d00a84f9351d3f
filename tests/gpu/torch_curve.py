"""A bf16 run's curve beside PyTorch's: the same GPT-2 from equal weights on equal batches of real text, 200 steps, ours once and PyTorch
(FSDP2, parameters in bf16, gradients reduced in fp32) several times: with another order of the samples in each batch, another
attention, compiled. What separates PyTorch's own runs is its noise; ours must lie no farther from them than that.

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
RUNS = [("flash attention", SDPBackend.FLASH_ATTENTION, False, 0), ("cuDNN attention, other order", SDPBackend.CUDNN_ATTENTION, False, 1),
        ("compiled, other order", SDPBackend.FLASH_ATTENTION, True, 2)]


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


def corpus(folder):
    path = os.path.join(folder, "text")
    with open(path, "wb") as out:
        for d, _, files in sorted(os.walk(os.path.join(ROOT, "compiler"))):
            for f in sorted(files):
                if f.endswith((".c", ".h", ".lua")):
                    with open(os.path.join(d, f), "rb") as source:
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


def pytorch(weights, data, rates, backend, compiled, order):
    """The losses of PyTorch's run."""
    torch.set_default_device("cuda")
    model = reference.GPT2(OPTIONS)
    model.load_state_dict(weights)
    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for block in model.h:
        if compiled:
            block.compile()
        fully_shard(block, **policy)
    fully_shard(model, **policy)
    decayed = [p for n, p in model.named_parameters() if not (n.endswith(".bias") or "ln_" in n)]
    others = [p for n, p in model.named_parameters() if n.endswith(".bias") or "ln_" in n]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], betas=(0.9, 0.95), weight_decay=0.1, eps=1e-8, fused=True)
    draw, losses = torch.Generator(device="cpu").manual_seed(order), []
    for (tokens, targets), rate in zip(data, rates):
        rows = torch.randperm(len(tokens), generator=draw, device="cpu") if order else torch.arange(len(tokens), device="cpu")
        for group in optimizer.param_groups:
            group["lr"] = rate
        with sdpa_kernel(backend):
            logits = model(tokens[rows].cuda())
            loss = reference.mean_cross_entropy(logits.float(), targets[rows].cuda())
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
        mine = ours(o.program, weights, data, folder, o.steps)
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        theirs = {name: pytorch(weights, data, [s["lr"] for s in mine], *how) for name, *how in RUNS}
        dist.destroy_process_group()
    loss = [s["loss"] for s in mine]
    names = list(theirs)
    noise = [distance(theirs[a], theirs[b]) for i, a in enumerate(names) for b in names[i + 1:]]
    ends = [tail(t) for t in theirs.values()]
    far = [distance(loss, t) for t in theirs.values()]
    spread = max(ends) - min(ends)
    if o.curves:
        with open(o.curves, "w") as f:
            json.dump({"ours": loss, **theirs}, f)
    print("loss %.4f -> %.4f (mean of the last 20), PyTorch's %s; PyTorch's runs lie %s apart (rms over %d steps), ours %s from them"
          % (loss[0], tail(loss), ", ".join("%.4f" % e for e in ends), ", ".join("%.4f" % n for n in noise), o.steps, ", ".join("%.4f" % f for f in far)))
    middle = sum(ends) / len(ends)
    good = min(far) <= max(noise) and abs(tail(loss) - middle) <= max(2 * spread, 0.002)
    print("within PyTorch's own noise" if good else "FARTHER from PyTorch's runs than those from each other")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
