"""The workloads of the GPU benchmark: their names, what shardc builds for them, the same for PyTorch, what they compute.

A name is MODEL-WORLDxBATCHxSEQ with suffixes: -recompute (every block), -offload (parameters and optimizer on the host), -clip
(gradients clipped to norm 1; the others are not clipped, on either side), -nondeterministic (shardc: faster kernels that may give
other bits from run to run; PyTorch is so anyway), -moments (AdamW's moments in bf16, ours alone), -gradients (ours made in bf16 and
summed in fp32, as PyTorch's are in every row; without it they are made in fp32), -fp8 (linears of blocks in fp8). Ours alone:
-delayed (fp8 by scales of steps before), -block (fp8 by scales of blocks), -fp32 (no bf16 at all), -accumulate (four
microbatches a step), -selective (recompute what is cheap), -activations (activations on the host), and the model `transformer`.
Batch and sequence are one microbatch's on one GPU.

Relies on: nothing. Relied on by: gpu.py, torch_fsdp2.py, floor.py."""
import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Shape:
    family: str
    layers: int
    dim: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    tied: bool
    theta: float = 0.0
    eps: float = 1e-5
    file: str = ""
    size: str = ""

    @property
    def width(self):
        return self.dim // self.heads

    def products(self):
        """(inputs, outputs) of a block's matrix products, those of equal input joined."""
        h, kv, w = self.heads, self.kv_heads, self.width
        up = self.ffn if self.family == "gpt2" else 2 * self.ffn
        return [(self.dim, (h + 2 * kv) * w), (h * w, self.dim), (self.dim, up), (self.ffn, self.dim)]


SHAPES = {
    "gpt2-124m": Shape("gpt2", 12, 768, 12, 12, 3072, 50304, True, file="gpt2.lua", size="124m"),
    "gpt2-350m": Shape("gpt2", 24, 1024, 16, 16, 4096, 50304, True, file="gpt2.lua", size="350m"),
    "gpt2-774m": Shape("gpt2", 36, 1280, 20, 20, 5120, 50304, True, file="gpt2.lua", size="774m"),
    "gpt2-1558m": Shape("gpt2", 48, 1600, 25, 25, 6400, 50304, True, file="gpt2.lua", size="1558m"),
    "llama3-1b": Shape("llama3", 16, 2048, 32, 8, 8192, 128256, True, 5e5, file="llama3.lua", size="1b"),
    "llama3-8b": Shape("llama3", 32, 4096, 32, 8, 14336, 128256, False, 5e5, file="llama3.lua", size="8b"),
    "qwen2-0.5b": Shape("qwen2", 24, 896, 14, 2, 4864, 151936, True, 1e6, 1e-6, file="qwen2.lua", size="0.5b"),
    "qwen2-1.5b": Shape("qwen2", 28, 1536, 12, 2, 8960, 151936, True, 1e6, 1e-6, file="qwen2.lua", size="1.5b"),
    "qwen2-3b": Shape("qwen2", 36, 2048, 16, 2, 11008, 151936, True, 1e6, 1e-6, file="qwen2.lua", size="3b"),
    "qwen2-7b": Shape("qwen2", 28, 3584, 28, 4, 18944, 152064, False, 1e6, 1e-6, file="qwen2.lua", size="7b"),
    "transformer": Shape("transformer", 12, 512, 8, 8, 2048, 32768, True, file="transformer.lua"),
}

# the rows of the table of figures to beat
ROWS = ["gpt2-124m-1x64x1024", "gpt2-1558m-1x32x1024", "qwen2-0.5b-1x32x1024", "llama3-8b-4x1x8192", "llama3-8b-4x4x2048", "qwen2-7b-4x4x2048",
        "gpt2-1558m-4x16x1024", "gpt2-124m-4x64x1024", "llama3-8b-4x2x8192-recompute", "llama3-8b-4x1x8192-offload"]
SUFFIXES = ("recompute", "offload", "clip", "nondeterministic", "moments", "gradients", "fp32", "accumulate", "selective", "activations", "fp8", "delayed", "block")
MICROBATCHES = 4  # with -accumulate


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    model: str
    world: int
    batch: int
    seq: int
    recompute: bool
    offload: bool
    clip: bool
    nondeterministic: bool
    moments: bool
    gradients: bool
    fp32: bool
    accumulate: bool
    selective: bool
    activations: bool
    fp8: bool
    delayed: bool
    block: bool

    @property
    def shape(self):
        return SHAPES[self.model]

    @property
    def tokens(self):
        """Of one GPU in one step."""
        return self.batch * self.seq * (MICROBATCHES if self.accumulate else 1)

    def settings(self):
        """--set of the model file."""
        o = {"size": self.shape.size} if self.shape.size else {}
        o.update({"batch": self.batch, "seq": self.seq, "precision": "fp32" if self.fp32 else "bf16", "clip": 1.0 if self.clip else 0.0,
                  "recompute": "full" if self.recompute else "selective" if self.selective else "none",
                  "offload": "state" if self.offload else "activations" if self.activations else "none"})
        if self.accumulate:
            o["accumulate"] = MICROBATCHES
        if self.moments:
            o["moments"] = "bf16"
        if self.gradients:
            o["gradients"] = "bf16"
        if self.fp8:
            o["matmul"] = "fp8"
        if self.delayed:
            o["recipe"] = "delayed"
        if self.block:
            o["recipe"] = "block"
        return [x for k, v in o.items() for x in ("--set", "%s=%s" % (k, v))]

    def flops(self):
        """Of a token's step by the usual count: products three times, causal attention half of the square; nothing twice."""
        s = self.shape
        weights = s.layers * sum(a * b for a, b in s.products()) + s.dim * s.vocab
        return 6 * weights + 6 * s.layers * self.seq * s.heads * s.width


def workload(name):
    m = re.fullmatch(r"(.+?)-(\d+)x(\d+)x(\d+)((?:-(?:%s))*)" % "|".join(SUFFIXES), name)
    if not m or m[1] not in SHAPES:
        raise SystemExit("'%s' is no workload: MODEL-WORLDxBATCHxSEQ[-%s], MODEL one of %s" % (name, "][-".join(SUFFIXES), ", ".join(SHAPES)))
    given = m[5].split("-")[1:]
    return Workload(name, m[1], int(m[2]), int(m[3]), int(m[4]), *(s in given for s in SUFFIXES))
