"""The cases: which model, how small, on what data, with which optimizer. To add one, add an entry to CASES and a test.

Relies on: torch, reference.py, ops.py. Relied on by: make.py."""
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Callable

import torch

import ops
import reference


@dataclass
class Case:
    file: str                     # the model file of shardc, or op_cases.py, which writes one
    model: type                   # the same in PyTorch
    options: dict                 # --set of the model file
    batch: Callable               # generator -> one step's global batch
    initialize: Callable          # model, generator: sets every parameter
    optimizer: type = torch.optim.AdamW
    optimizer_options: dict = field(default_factory=dict)
    groups: tuple = ()            # (patterns of parameters, what optimizer options they have of their own); the last match wins
    lr: float = 1e-3
    schedule: str = "cosine"
    warmup: int = 0
    total: int = 20
    min_ratio: float = 0.0
    clip: float = 0.0
    steps: int = 20
    seed: int = 1
    in_file: bool = False         # the model file itself holds learning rate, schedule and so on
    zero_gradients: dict = field(default_factory=dict)  # elements whose gradient is zero by mathematics

    def group(self, name):
        own = [options for patterns, options in self.groups if any(fnmatchcase(name, p) for p in patterns)]
        return own[-1] if own else {}

    def run_options(self):
        """For the program's command line: what the model file leaves at values for large runs."""
        if self.in_file:
            return []
        o = self.optimizer_options
        return ["--lr", repr(self.lr), "--betas", "%r,%r" % o["betas"], "--eps", repr(o["eps"]), "--weight-decay", repr(o["weight_decay"]),
                "--warmup", str(self.warmup), "--total", str(self.total), "--min-ratio", repr(self.min_ratio), "--clip", repr(self.clip)]


# ── initial values: nothing at rest, no bias zero, no norm one ───────────────────────────────────────────────────────
def spread(model, generator):
    """Matrices keep the size of what they multiply; norm weights lie round 1, biases round 0."""
    conv = {id(m.weight) for m in model.modules() if isinstance(m, reference.Conv1D)}
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(generator=generator)
            if id(p) in tables:
                p.mul_(0.4)
            elif p.dim() == 2:
                p.mul_(0.8 / (p.shape[0] if id(p) in conv else p.shape[1]) ** 0.5)
            elif name.endswith("bias"):
                p.mul_(0.1)
            else:
                p.mul_(0.1).add_(1)


def by_kind(model, _):
    """Of ops: as op_cases.py says."""
    model.initialize()


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def walk(shape, vocab, generator, low=0):
    """Sequences in which the next token mostly follows from the last: x -> 3 x + 1, or any."""
    b, s = shape
    rows = [torch.randint(0, vocab - low, (b,), generator=generator)]
    for _ in range(s):
        free = torch.randint(0, vocab - low, (b,), generator=generator)
        chance = torch.rand(b, generator=generator)
        rows.append(torch.where(chance < 0.8, (3 * rows[-1] + 1) % (vocab - low), free))
    return torch.stack(rows, 1).int() + low


def language(batch, seq, vocab):
    def make(generator):
        x = walk((batch, seq), vocab, generator)
        return {"tokens": x[:, :-1].contiguous(), "targets": x[:, 1:].contiguous()}
    return make


def translation(batch, seq, vocab):
    """The target is the source shifted by one in the alphabet; rows end early, each elsewhere, and the rest is ignored."""
    def make(generator):
        source = walk((batch, seq - 1), vocab, generator)
        target = (source + 1) % vocab
        targets = torch.cat((target[:, 1:], target[:, :1]), 1)
        length = torch.randint(0, seq + 1, (batch, 1), generator=generator)
        length[0] = length[0].clamp(min=1)
        return {"source": source, "target_in": target, "targets": torch.where(torch.arange(seq) < length, targets, -100).int()}
    return make


def regression(batch, inputs, outputs):
    def make(generator):
        x = torch.randn(batch, inputs, generator=generator)
        y = torch.stack([x[:, :3].prod(1), x.square().sum(1) / 3, x.sum(1).sin()], 1)[:, :outputs]
        return {"x": x, "y": y}
    return make


def indices(generator):
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 2, 2, 2]], dtype=torch.int32)
    targets = torch.randint(0, 16, (2, 8), generator=generator, dtype=torch.int32)
    targets[0, 2:5] = -100
    targets[1, 7] = -100
    return {"tokens": torch.randint(0, 16, (2, 8), generator=generator, dtype=torch.int32), "documents": documents, "targets": targets,
            "positions": torch.randint(0, 90, (2, 8), generator=generator, dtype=torch.int32)}


# ── the cases ────────────────────────────────────────────────────────────────────────────────────────────────────────
ADAMW = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
GPT2 = {"layers": 2, "dim": 24, "heads": 3, "vocab": 48, "batch": 4, "seq": 16, "precision": "fp32"}


LLAMA3 = {"size": "tiny", "layers": 2, "dim": 24, "heads": 4, "kv_heads": 2, "ffn": 40, "vocab": 48, "batch": 4, "seq": 16, "precision": "fp32",
          "theta": 100.0, "rope_factor": 4.0, "rope_original": 16}
QWEN2 = {"size": "tiny", "layers": 2, "dim": 24, "heads": 4, "kv_heads": 2, "ffn": 40, "vocab": 48, "batch": 4, "seq": 16, "precision": "fp32", "theta": 100.0}
TRANSFORMER = {"layers": 2, "dim": 16, "heads": 2, "ffn": 40, "vocab": 32, "batch": 4, "seq": 12, "precision": "fp32"}


def small(kind, schedule, clip=0.0, **more):
    options = {"batch": 8, "inputs": 6, "width": 16, "outputs": 3, "lr": more["lr"], "clip": clip, "optimizer": kind, "schedule": schedule}
    return Case("tests/golden/small.lua", reference.Small, options, regression(8, 6, 3), spread, schedule=schedule, clip=clip, in_file=True,
                groups=((("*.bias", "norm.*", "gain"), {"weight_decay": 0}), (("last.*",), {"lr": more["lr"] / 2})), **more)


SGD = dict(optimizer=torch.optim.SGD, lr=0.05)
CASES = {
    # Softmax does not see what a key's bias adds: the middle third of c_attn's.
    "gpt2": Case("models/gpt2.lua", reference.GPT2, GPT2, language(4, 16, 48), spread, optimizer_options=ADAMW,
                 groups=((("*.bias", "*ln_*"), {"weight_decay": 0}),), lr=2e-3, warmup=4, min_ratio=0.1, clip=3.0, seed=2,
                 zero_gradients={"h.%d.attn.c_attn.bias" % i: [[24, 48]] for i in range(2)}),
    "llama3": Case("models/llama3.lua", reference.Llama3, LLAMA3, language(4, 16, 48), spread, optimizer_options=ADAMW,
                   groups=((("*norm*",), {"weight_decay": 0}),), lr=2e-3, warmup=4, min_ratio=0.1, clip=1.7),
    "qwen2": Case("models/qwen2.lua", reference.Qwen2, QWEN2, language(4, 16, 48), spread, optimizer_options=ADAMW,
                  groups=((("*.bias", "*norm*"), {"weight_decay": 0}),), lr=2e-3, warmup=4, min_ratio=0.1, clip=3.0, seed=4),
    "transformer": Case("models/transformer.lua", reference.Transformer, TRANSFORMER, translation(4, 12, 32), spread,
                        optimizer_options={"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.01}, schedule="linear", groups=((("*.bias", "*norm*"), {"weight_decay": 0}),),
                        lr=2e-3, warmup=4, min_ratio=0.2, clip=3.0, seed=3,
                        zero_gradients={"%s.k_proj.bias" % a: [[0, 16]] for i in range(2) for a in (
                            "encoder.layers.%d.self_attn" % i, "decoder.layers.%d.self_attn" % i, "decoder.layers.%d.encoder_attn" % i)}),
    "sgd": small("sgd", "constant", warmup=3, optimizer_options={"weight_decay": 0.01}, **SGD),
    "momentum": small("momentum", "linear", clip=0.8, warmup=2, total=16, min_ratio=0.25, optimizer_options={"momentum": 0.9, "weight_decay": 0.01}, **SGD),
    "nesterov": small("nesterov", "cosine", warmup=5, total=25, min_ratio=0.1, optimizer_options={"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, **SGD),
    "adam": small("adam", "cosine", clip=1.3, warmup=5, total=25, min_ratio=0.1, lr=0.02, optimizer=torch.optim.Adam,
                  optimizer_options={"betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.01}),
    "lion": small("lion", "cosine", clip=1.3, warmup=5, total=25, min_ratio=0.1, lr=0.004, optimizer=reference.Lion,
                  optimizer_options={"betas": (0.8, 0.95), "weight_decay": 0.01}),
    "ops": Case("tests/op_cases.py", ops.All, {}, indices, by_kind, optimizer=torch.optim.SGD, lr=0.0, steps=1, schedule="constant", in_file=True),
}
