"""Frequencies of rotary positions and the scale of cosines and sines, as transformers computes them, each with the options of nn.rope for
the same: rope.json. On the way it holds the layouts of op_cases.py's `torch_rope` against those of transformers' models.

    python tests/golden/rope.py          (torch 2.x, transformers 5)

Relies on: transformers, op_cases.py. Relied on by: people; test_golden.py reads what it wrote."""
import json
import os
import sys

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere2 import modeling_cohere2
from transformers.models.glm4 import modeling_glm4
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.dirname(HERE)]
from op_cases import torch_rope  # noqa: E402

SHORT, LONG = [1 + d / 8 for d in range(16)], [1 + d * d / 4 for d in range(16)]
# name: the head, the sequence, max_position_embeddings, transformers' rope_parameters, nn.rope's options
CASES = {
    "llama3": (128, 8, 131072, dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192),
               "theta = 500000, scaling = { factor = 8, low = 1, high = 4, original = 8192 }"),
    "llama3, partial": (80, 8, 131072, dict(rope_type="llama3", rope_theta=1e4, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192,
                                            partial_rotary_factor=0.5), "width = 40, scaling = { type = 'llama3', factor = 32, low = 1, high = 4, original = 8192 }"),
    "linear": (96, 8, 2048, dict(rope_type="linear", rope_theta=1e4, factor=4.0), "scaling = { type = 'linear', factor = 4 }"),
    "dynamic, short": (64, 8, 16, dict(rope_type="dynamic", rope_theta=1e4, factor=2.0), "scaling = { type = 'dynamic', factor = 2, original = 16 }"),
    "dynamic, long": (64, 40, 16, dict(rope_type="dynamic", rope_theta=1e4, factor=2.0), "scaling = { type = 'dynamic', factor = 2, original = 16 }"),
    "dynamic, partial": (80, 40, 16, dict(rope_type="dynamic", rope_theta=1e4, factor=3.0, partial_rotary_factor=0.4), "width = 32, scaling = { type = 'dynamic', factor = 3, original = 16 }"),
    "yarn": (128, 8, 131072, dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32768),
             "theta = 1000000, scaling = { type = 'yarn', factor = 4, original = 32768 }"),
    "yarn, DeepSeek": (64, 8, 163840, dict(rope_type="yarn", rope_theta=1e4, factor=40.0, original_max_position_embeddings=4096, beta_fast=32, beta_slow=1, mscale=0.707, mscale_all_dim=1.0),
                       "scaling = { type = 'yarn', factor = 40, original = 4096, mscale = 0.707, mscale_all_dim = 1 }"),
    "yarn, GPT-OSS": (64, 8, 131072, dict(rope_type="yarn", rope_theta=1.5e5, factor=32.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0, truncate=False),
                      "theta = 150000, scaling = { type = 'yarn', factor = 32, original = 4096, beta_fast = 32, beta_slow = 1, truncate = false }"),
    "yarn, one pair": (32, 8, 64, dict(rope_type="yarn", rope_theta=1e4, factor=1.0, original_max_position_embeddings=6, beta_fast=1, beta_slow=1, truncate=True),
                       "scaling = { type = 'yarn', factor = 1, original = 6, beta_fast = 1 }"),
    "yarn, scale": (64, 8, 4096, dict(rope_type="yarn", rope_theta=1e4, factor=16.0, original_max_position_embeddings=256, attention_factor=1.5, partial_rotary_factor=0.5),
                    "width = 32, scale = 1.5, scaling = { type = 'yarn', factor = 16, original = 256 }"),
    "longrope, short": (32, 8, 512, dict(rope_type="longrope", rope_theta=1e4, short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=16, factor=32.0),
                        "scaling = { type = 'longrope', factor = 32, original = 16, short_factor = { %s }, long_factor = { %s } }"),
    "longrope, long": (32, 40, 512, dict(rope_type="longrope", rope_theta=1e4, short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=16, factor=32.0),
                       "scaling = { type = 'longrope', factor = 32, original = 16, short_factor = { %s }, long_factor = { %s } }"),
    "proportional": (256, 8, 131072, dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25), "theta = 1000000, scaling = { type = 'proportional', partial = 0.25 }"),
    "proportional, factor": (72, 8, 2048, dict(rope_type="proportional", rope_theta=1e4, partial_rotary_factor=0.4, factor=8.0),
                             "scaling = { type = 'proportional', partial = 0.4, factor = 8 }"),
}


def numbers():
    for name, (head, seq, most, parameters, ours) in CASES.items():
        config = LlamaConfig(hidden_size=2 * head, num_attention_heads=2, head_dim=head, max_position_embeddings=most, rope_parameters=parameters)
        f, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu", seq_len=seq)
        lists = [", ".join(map(str, x)) for x in (SHORT, LONG)]
        yield name, {"head": head, "seq": seq, "options": ours % tuple(lists) if "%s" in ours else ours, "frequencies": f.tolist(), "scale": scale}


def same(name, theirs, ours):
    """theirs: q [B,H,S,D]"""
    worst = (theirs.transpose(1, 2) - ours).abs().max().item()
    print("%-28s %.1e" % (name, worst))
    if worst > 1e-5:
        sys.exit("%s: another layout" % name)


def layouts():
    """Partial and interleaved heads, and sections, beside transformers' functions."""
    torch.manual_seed(1)
    x, f = torch.randn(2, 6, 3, 16), [1, 0.5, 0.25, 0.125, 0.3, 0.7, 0.9, 0.2]
    q, positions = x.transpose(1, 2), torch.randint(0, 50, (3, 2, 6))

    def tables(f, repeat):
        angle = positions[0, :, :, None] * torch.tensor(f)
        angle = angle.repeat_interleave(2, -1) if repeat else torch.cat((angle, angle), -1)
        return angle.cos(), angle.sin()

    same("GLM-4: half of a head", modeling_glm4.apply_rotary_pos_emb(q, q, *tables(f[:4], False))[0], torch_rope(x, positions=positions[0], frequencies=f[:4], width=8, interleaved=True))
    same("Cohere 2: interleaved", modeling_cohere2.apply_rotary_pos_emb(q, q, *tables(f, True))[0], torch_rope(x, positions=positions[0], frequencies=f, interleaved=True))
    for module, sections, rows in ((modeling_qwen2_vl, [2, 3, 3], [0, 0, 1, 1, 1, 2, 2, 2]), (modeling_qwen3_vl, [4, 2, 2], [0, 1, 2, 0, 1, 2, 0, 0])):
        class Rotary:
            mrope_section = sections
        angle = torch.stack([p[..., None] * torch.tensor(f) for p in positions])
        family = "Qwen2VLRotaryEmbedding" if module is modeling_qwen2_vl else "Qwen3VLTextRotaryEmbedding"
        recompose = getattr(module, family).recomposition_frequencies
        cos, sin = (recompose(Rotary(), t) for t in (angle.cos(), angle.sin()))
        same(family, module.apply_rotary_pos_emb(q, q, cos, sin)[0], torch_rope(x, positions=positions, frequencies=f, rows=rows))


if __name__ == "__main__":
    layouts()
    with open(os.path.join(HERE, "rope.json"), "w") as f:
        f.write("{\n%s\n}\n" % ",\n".join("  %s: %s" % (json.dumps(name), json.dumps(about)) for name, about in numbers()))
