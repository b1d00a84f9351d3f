"""Makes fp8_blocks.json with PyTorch on a CPU, as fp8.py: recipe = "block", a scale for each 128 of inputs and gradients along what is summed over and for
each 128 x 128 of weights, all e4m3, blocks multiplied in fp32.

    python tests/golden/fp8_blocks.py        (torch 2.x)

Relies on: torch, fp8.py. Relied on by: people; tests/program/test_fp8_blocks.py reads what it wrote."""
import torch
import torch.nn.functional as F

import fp8

SIDE = 128
OPTIONS = {  # sizes of more than a block, which blocks do not divide
    "gpt2": dict(fp8.OPTIONS["gpt2"], dim=144, seq=40),
    "llama3": dict(fp8.OPTIONS["llama3"], dim=160, ffn=272, seq=40),
}


def quantized(x, tall):
    """Of [rows, columns]: numbers [rows, blocks, 128], and the scales of rows [rows, blocks]; tall: rows that share one."""
    rows, columns = x.shape
    x = F.pad(x, (0, -columns % SIDE, 0, -rows % tall))
    x = x.view(x.shape[0] // tall, tall, x.shape[1] // SIDE, SIDE)
    amax = x.abs().amax((1, 3), keepdim=True)
    none = amax < 2.0 ** -117
    most = torch.tensor(448.0)
    by, scale = torch.where(none, 1, most / amax), torch.where(none, 1, amax / most)
    q = (x * by).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    return q.flatten(0, 1)[:rows], scale.expand(-1, tall, -1, -1).flatten(0, 1)[:rows, :, 0]


def product(a, b):
    """a bᵀ of what quantized gives."""
    (p, sa), (q, sb) = a, b
    return sum((p[:, k] @ q[:, k].T) * (sa[:, k, None] * sb[None, :, k]) for k in range(p.shape[1]))


class Product(torch.autograd.Function):
    """x Wᵀ."""
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return product(quantized(x.flatten(0, -2), 1), quantized(w, SIDE)).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        rows, x = g.flatten(0, -2), x.flatten(0, -2)
        return product(quantized(rows, 1), quantized(w.T, SIDE)).unflatten(0, g.shape[:-1]), product(quantized(rows.T, 1), quantized(x.T, 1))


if __name__ == "__main__":
    fp8.write("fp8_blocks.json", OPTIONS, lambda model: fp8.in_8_bits(model, Product))
