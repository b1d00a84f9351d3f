"""The cases of op_cases.py as one model in PyTorch: the modules and parameters of the model that `write_model` writes.

Relies on: torch, tests/op_cases.py. Relied on by: cases.py."""
import os
import sys
import zlib

import torch
from torch import nn

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from op_cases import call_torch, with_torch  # noqa: E402


def total(results):
    """As op_cases.py says."""
    out = 0
    for y in results:
        y = torch.stack((y, y * 2)) if y.dim() == 0 else y
        out = out + ((y + 1) ** 2 * 0.5).sum()
    return out


class Op(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case, self.value = case, nn.Parameter(torch.ones(1))
        for name, p in sorted(case.params.items()):
            if p.kind == "buffer":
                self.register_buffer(name, torch.full(p.shape, float(p.value)))
            else:
                self.register_parameter(name, nn.Parameter(torch.zeros(p.shape)))

    def forward(self, batch):
        return total(call_torch(self.case, {**batch, **self._parameters, **self._buffers})) * self.value


class All(nn.Module):
    def __init__(self, options):
        super().__init__()
        for name, case in with_torch().items():
            self.add_module("op_" + name, Op(case))

    def initialize(self):
        """The numbers of a case depend on its name alone: a new one leaves the others as they are."""
        with torch.no_grad():
            for module in self.children():
                generator = torch.Generator().manual_seed(zlib.crc32(module.case.name.encode()))
                for name, p in module.named_parameters():
                    if name == "value":
                        continue
                    kind = module.case.params[name].kind
                    p.uniform_(0.5, 2, generator=generator) if kind == "positive" else p.normal_(0, 0.7, generator=generator)
                    if kind in ("ties", "special"):
                        p.copy_((p * 2).round() / 2)

    def loss(self, batch):
        return sum(module(batch) for module in self.children()).squeeze()
