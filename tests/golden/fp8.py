"""Makes fp8.json with PyTorch on a CPU: loss and gradients of small models whose blocks' linears are quantized as mp_policy.matmul_dtype = "fp8"
says (largest magnitude now, one scale a tensor, e4m3 forward, e5m2 gradients) and multiplied in fp32, beside the same without that.

    python tests/golden/fp8.py        (torch 2.x)

Relies on: torch, reference.py, signs.py. Relied on by: people; tests/program/test_fp8.py reads what it wrote."""
import json
import os

import torch

import reference
from signs import PATTERNS, hashed, signed_sum

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = {
    "gpt2": {"layers": 2, "dim": 64, "heads": 4, "vocab": 48, "batch": 4, "seq": 16, "precision": "fp32"},
    "llama3": {"size": "tiny", "layers": 2, "dim": 64, "heads": 4, "kv_heads": 4, "ffn": 96, "vocab": 48, "batch": 4, "seq": 16, "precision": "fp32", "theta": 100.0,
               "rope_factor": 4.0, "rope_original": 16},
}


def quantized(x, dtype, most):
    amax = x.abs().max()  # a number over a tensor would be the number times a rounded reciprocal
    return (x * (torch.tensor(float(most)) / amax)).clamp(-most, most).to(dtype).float(), amax / most


class Product(torch.autograd.Function):
    """x Wᵀ."""
    @staticmethod
    def forward(ctx, x, w):
        (a, sa), (b, sb) = quantized(x, torch.float8_e4m3fn, 448), quantized(w, torch.float8_e4m3fn, 448)
        ctx.save_for_backward(a, sa, b, sb)
        return (a @ b.T) * (sa * sb)

    @staticmethod
    def backward(ctx, g):
        a, sa, b, sb = ctx.saved_tensors
        q, s = quantized(g, torch.float8_e5m2, 57344)
        return (q @ b) * (s * sb), (q.flatten(0, -2).T @ a.flatten(0, -2)) * (s * sa)


def in_8_bits(model, product=Product):
    """The linears of the blocks multiply in 8 bits; queries, keys and values, which shardc multiplies by at once, as one."""
    def linear(m):
        m.forward = lambda x: product.apply(x, m.weight)

    def conv(m):
        m.forward = lambda x: product.apply(x, m.weight.T) + m.bias

    def attention(m):
        def forward(x):
            all_three = product.apply(x, torch.cat((m.q_proj.weight, m.k_proj.weight, m.v_proj.weight)))
            q, k, v = reference.heads_of(all_three, m.heads + 2 * m.kv_heads).split((m.heads, m.kv_heads, m.kv_heads), 1)
            return m.o_proj(reference.attend(reference.rope(q, m.frequencies), reference.rope(k, m.frequencies), v, True))
        m.forward = forward

    for m in model.modules():
        if isinstance(m, reference.Conv1D):
            conv(m)
        if isinstance(m, (reference.LlamaMLP, reference.LlamaAttention)):
            for c in m.children():
                linear(c)
        if isinstance(m, reference.LlamaAttention):
            attention(m)


MODELS = {"gpt2": reference.GPT2, "llama3": reference.Llama3}


def steps(make, o, narrow):
    """Loss, gradients and names of parameters; narrow(model) lets it multiply in 8 bits, unless it is None."""
    model = make(o)
    for i, (n, p) in enumerate(model.named_parameters()):
        p.data = torch.tensor(hashed(i, p.numel(), n, p.dim())).reshape(p.shape)
    tokens = torch.tensor([[(7 * r + t * (3 + r)) % o["vocab"] for t in range(o["seq"] + 1)] for r in range(o["batch"])])
    if narrow:
        narrow(model)
    loss = model.loss({"tokens": tokens[:, :-1], "targets": tokens[:, 1:]})
    loss.backward()
    return loss.item(), {n: p.grad.flatten() for n, p in model.named_parameters()}, [n for n, _ in model.named_parameters()]


def write(file, options, narrow, models=MODELS):
    torch.set_num_threads(1)
    about = {"torch": torch.__version__}
    for name, o in options.items():
        loss, grads, order = steps(models[name], o, narrow)
        plain, far, _ = steps(models[name], o, None)
        about[name] = {"options": o, "order": order, "loss": loss, "plain": plain,
                       "grads": {n: {"norm": g.norm().item(), "sums": [signed_sum(g.tolist(), k) for k in range(PATTERNS)], "plain": ((far[n] - g).norm() / g.norm()).item()}
                                 for n, g in grads.items()}}
        print("%s: loss %.7f, without %.7f" % (name, loss, plain))
    with open(os.path.join(HERE, file), "w") as f:
        f.write(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    write("fp8.json", OPTIONS, in_8_bits)
