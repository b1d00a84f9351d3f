"""The models beside Hugging Face's own implementations: one loss and all gradients from the file that `save_pretrained` writes, and
what `--export` writes read back by `from_pretrained`. For people (CI has no PyTorch):

    python tests/golden/hugging_face.py          (torch 2.x, transformers 5, safetensors; build/shardc)

Relies on: build/shardc, models/. Relied on by: people."""
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARDC = os.path.join(ROOT, "build", "shardc")
BATCH, SEQ, VOCAB, BOUND = 2, 64, 256, 1e-5
SMALL = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=352, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=SEQ, bos_token_id=0, eos_token_id=0)
OURS = dict(layers=3, batch=BATCH, seq=SEQ, clip=0)


def rope(theta, **more):
    return dict({"rope_type": "default", "rope_theta": theta}, **more)


def cases():
    """(name, Hugging Face's model, our model file, its options)"""
    yield ("llama", LlamaForCausalLM(LlamaConfig(**SMALL, rms_norm_eps=1e-5, rope_parameters=rope(5e5), tie_word_embeddings=False)), "llama3.lua",
           dict(OURS, size="tiny"))
    scaled = rope(5e5, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    yield ("llama 3.1, tied", LlamaForCausalLM(LlamaConfig(**SMALL, rms_norm_eps=1e-5, rope_parameters=scaled, tie_word_embeddings=True)), "llama3.lua",
           dict(OURS, size="tiny", tied="true", rope_factor=8, rope_original=32))
    for tied in True, False:
        yield ("qwen 2" + ", tied" * tied, Qwen2ForCausalLM(Qwen2Config(**SMALL, rms_norm_eps=1e-6, rope_parameters=rope(1e6), tie_word_embeddings=tied)),
               "qwen2.lua", dict(OURS, size="tiny", tied=str(tied).lower()))
    yield ("gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=SEQ, n_embd=64, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0)), "gpt2.lua",
           dict(OURS, dim=64, heads=4, vocab=VOCAB, dropout=0.0))


def run(*args, **more):
    p = subprocess.run(args, capture_output=True, text=True, **more)
    if p.returncode:
        sys.exit("exit %d from %s\n%s" % (p.returncode, " ".join(args), p.stderr[-2000:]))


def compare(folder, model, file, options):
    """(distance of the losses, largest distance of a gradient, distance of the loss once the exported weights are read back)"""
    model.eval()  # no dropout
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))  # no bias zero, no norm one
    model.save_pretrained(folder)
    path = {k: os.path.join(folder, k) for k in ("model.safetensors", "records", "program", "log", "gradients", "exported")}
    tokens = torch.randint(0, VOCAB, (BATCH, SEQ + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    with open(path["records"], "wb") as f:
        f.write(bytes(x.int().untyped_storage()) + bytes(y.int().untyped_storage()))

    def loss_of(m):
        return torch.nn.functional.cross_entropy(m(x).logits.flatten(0, 1), y.flatten())

    theirs = loss_of(model)
    theirs.backward()
    run(SHARDC, "build", os.path.join(ROOT, "models", file), "-o", path["program"], *[a for k, v in options.items() for a in ("--set", "%s=%s" % (k, v))])
    with open(path["records"]) as f:
        run(path["program"], "--data", "-", "--weights", path["model.safetensors"], "--steps", "1", "--lr", "0", "--log", path["log"],
            "--dump", "*.grad", "--at-step", "1", "-o", path["gradients"], "--export", path["exported"], stdin=f)
    with open(path["log"]) as f:
        ours = next(line["loss"] for line in map(json.loads, f) if "loss" in line)
    gradients, worst = {k[:-len(".grad")]: g for k, g in load_file(path["gradients"]).items()}, 0
    parameters = dict(model.named_parameters())
    inner = {k if k in gradients else k.split(".", 1)[1]: p for k, p in parameters.items()}
    if inner.keys() != gradients.keys():
        sys.exit("gradients of %s" % sorted(inner.keys() ^ gradients.keys()))
    for k, p in inner.items():
        worst = max(worst, ((gradients[k] - p.grad).norm() / p.grad.norm()).item())
    os.replace(path["exported"], path["model.safetensors"])
    with torch.no_grad():
        again = loss_of(type(model).from_pretrained(folder).eval())
    return abs(ours / theirs.item() - 1), worst, abs(again.item() / theirs.item() - 1)


def main():
    torch.manual_seed(1)
    failed = 0
    for name, *case in cases():
        with tempfile.TemporaryDirectory() as folder:
            far = compare(folder, *case)
        failed += max(far) > BOUND
        print("%-16s loss %.1e, gradients %.1e, exported and read back %.1e" % (name, *far))
    sys.exit(failed and "%d differ by more than %g" % (failed, BOUND))


if __name__ == "__main__":
    main()
