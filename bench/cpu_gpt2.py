"""GPT-2 124M on the CPU, batch 4, sequence 64, fp32, 2 threads: our step time beside PyTorch's, in turn on one machine.

Relies on: build/shardc; a Python with PyTorch (--python, for `pip install torch`); without it only our side runs.
Relied on by: make bench; its output is kept in bench/results/."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH, SEQ, LAYERS, DIM, HEADS, VOCAB = 4, 64, 12, 768, 12, 50304


def peer(steps, threads):
    """The PyTorch side: the same architecture (pre-norm, tied embeddings, tanh gelu), fused AdamW where there is one."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    torch.set_num_threads(threads)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(s):
            super().__init__()
            s.ln_1, s.ln_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
            s.qkv, s.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
            s.up, s.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

        def forward(s, x):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, HEADS, DIM // HEADS).transpose(1, 2) for y in s.qkv(s.ln_1(x)).split(DIM, 2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, DIM)
            x = x + s.proj(a)
            return x + s.down(F.gelu(s.up(s.ln_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(s):
            super().__init__()
            s.wte, s.wpe = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
            s.blocks, s.ln_f = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(DIM)

        def forward(s, tokens, targets):
            x = s.wte(tokens) + s.wpe(torch.arange(SEQ))
            for b in s.blocks:
                x = b(x)
            return F.cross_entropy(F.linear(s.ln_f(x), s.wte.weight).view(-1, VOCAB), targets.reshape(-1))

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
    times = []
    for _ in range(steps):
        data = torch.randint(0, 256, (BATCH, SEQ + 1))
        start = time.time()
        loss = model(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.time() - start)
    print(json.dumps({"torch": torch.__version__, "times": times}))


def ours(build, steps, threads):
    folder = os.path.join(build, "bench")
    os.makedirs(folder, exist_ok=True)
    shardc, data, binary, log = (os.path.join(*p) for p in ((build, "shardc"), (folder, "text.bin"), (folder, "gpt2-124m"), (folder, "log.jsonl")))
    text = [os.path.join(d, f) for d, _, fs in os.walk(os.path.join(ROOT, "compiler")) for f in sorted(fs) if f.endswith(".c")]
    subprocess.run([shardc, "data", *text, "-o", data], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([shardc, "build", os.path.join(ROOT, "models", "gpt2.lua"), "--set", "size=124m", "--set", "batch=%d" % BATCH, "--set",
                    "seq=%d" % SEQ, "--set", "precision=fp32", "-o", binary], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([binary, "--data", data, "--steps", str(steps), "--threads", str(threads), "--log", log], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(l) for l in open(log)]
    return [l["seconds"] for l in lines if "loss" in l]


def main():
    for name in [k for k in os.environ if k.startswith("OPENBLAS_")]:  # both sides choose their kernels themselves
        del os.environ[name]
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--build", default="build")
    a.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    a.add_argument("--steps", type=int, default=12)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--rounds", type=int, default=2, help="how often the two sides take turns")
    a.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    o = a.parse_args()
    if o.peer:
        return peer(o.steps, o.threads)
    us, them, version = [], [], None
    for _ in range(o.rounds):
        us += ours(o.build, o.steps, o.threads)[2:]
        p = subprocess.run([o.python, __file__, "--peer", "--steps", str(o.steps), "--threads", str(o.threads)], capture_output=True, text=True)
        if p.returncode == 0:
            r = json.loads(p.stdout)
            version, them = r["torch"], them + r["times"][2:]
    cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    print("GPT-2 124M, batch %d x %d, fp32, %d threads, %s" % (BATCH, SEQ, o.threads, cpu.group(1) if cpu else "unknown CPU"))
    print("  shardc           %8.1f ms a step (median of %d)" % (1e3 * statistics.median(us), len(us)))
    if them:
        print("  PyTorch %-8s %8.1f ms a step (median of %d)" % (version, 1e3 * statistics.median(them), len(them)))
        print("  ratio            %8.2f (PyTorch / shardc; above 1 we are faster)" % (statistics.median(them) / statistics.median(us)))
    else:
        print("  PyTorch not found: name a Python that has it with --python")


if __name__ == "__main__":
    main()
