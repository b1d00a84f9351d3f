"""What no step of a workload can be faster than on this GPU: its matrix products and its attention, forward and backward, each kind
timed by itself in a row of calls (cuBLAS through torch.mm, the fastest attention that PyTorch has). No norm, activation,
loss, optimizer, copy, gap or communication is in it. A recomputed block counts its forward twice.

Relies on: PyTorch with CUDA, workloads.py. Relied on by: gpu.py; by hand: python3 bench/floor.py NAME..."""
import json
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from workloads import workload

ATTENTION = {"cudnn": (SDPBackend.CUDNN_ATTENTION, False), "cudnn, deterministic": (SDPBackend.CUDNN_ATTENTION, True),
             "flash": (SDPBackend.FLASH_ATTENTION, False), "flash, deterministic": (SDPBackend.FLASH_ATTENTION, True)}


def milliseconds(call, calls, rounds=5):
    """The median over `rounds` of the mean time of `calls` calls."""
    for _ in range(3):
        call()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return sorted(times)[rounds // 2]


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def product(rows, inputs, outputs):
    """(forward, gradient of the input, gradient of the weight) of one product, as calls."""
    x, w, g = random(rows, inputs), random(outputs, inputs), random(rows, outputs)
    y, dx, dw = random(rows, outputs), random(rows, inputs), random(outputs, inputs)
    return (lambda: torch.mm(x, w.t(), out=y)), (lambda: torch.mm(g, w, out=dx)), (lambda: torch.mm(g.t(), x, out=dw))


def run_all(calls):
    def run():
        for c in calls:
            c()
    return run


def products(rows, shapes):
    """(ms of the forward products, ms of all)."""
    made = [product(rows, *s) for s in shapes]
    return milliseconds(run_all([m[0] for m in made]), 10), milliseconds(run_all([c for m in made for c in m]), 10)


def attention(w):
    """{kind: (ms forward, ms forward and backward)} for what PyTorch has."""
    s, out = w.shape, {}
    q, k, v = (random(w.batch, w.seq, n, s.width).transpose(1, 2).requires_grad_() for n in (s.heads, s.kv_heads, s.kv_heads))
    g = random(w.batch, w.seq, s.heads, s.width).transpose(1, 2)

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.kv_heads != s.heads)
    for name, (backend, deterministic) in ATTENTION.items():
        torch.use_deterministic_algorithms(deterministic)
        try:
            with sdpa_kernel(backend):
                with torch.no_grad():
                    first = milliseconds(forward, 10)
                out[name] = (first, milliseconds(lambda: torch.autograd.grad(forward(), (q, k, v), g), 10))
        except RuntimeError:  # this backend does not serve the shape
            pass
        torch.use_deterministic_algorithms(False)
    return out


def floor(w):
    s = w.shape
    once, block = products(w.tokens, s.products())
    head = products(w.tokens, [(s.dim, s.vocab)])[1]
    tried = attention(w)
    best, strict = (min((t for k, t in tried.items() if not (only and "deterministic" not in k)), key=lambda t: t[1]) for only in (False, True))
    out = {"workload": w.name, "device": torch.cuda.get_device_name(), "head_ms": head, "block_ms": block, "attention_ms": {k: t[1] for k, t in tried.items()}}
    out["products_ms"] = s.layers * (block + (once if w.recompute else 0)) + head
    for key, (forward, both) in (("ms", best), ("ms_deterministic", strict)):
        out[key] = out["products_ms"] + s.layers * (both + (forward if w.recompute else 0))
        out["tok_s" + key[2:]] = 1e3 * w.tokens / out[key]
    out["tflops"] = w.flops() * out["tok_s"] / 1e12
    return out


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(floor(workload(name))), flush=True)
        torch.cuda.empty_cache()
