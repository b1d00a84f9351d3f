"""peft's numbers for a small Llama with adapters: losses of five steps, the adapters before and after them, and merged matrices.

    python tests/golden/adapters.py          (torch 2.x, transformers 5, peft; writes adapters.{safetensors,json})

Relies on: transformers, peft, safetensors. Relied on by: people; test_adapters.py reads what it wrote."""
import json
import os

import peft
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              attention_bias=True, tie_word_embeddings=True)
LORA = dict(r=3, lora_alpha=5, target_modules=".*_proj")
STEPS, BATCH, SEQ = 5, 2, 8
CASES = {"lora": False, "dora": True, "int8": False}


def rounded(w):
    """Each row in 255 steps up to its largest magnitude."""
    scale = w.abs().amax(1, keepdim=True) / 127
    return torch.round(w / scale) * scale


def saved_names(model):
    return {k: p.detach().clone().contiguous() for k, p in peft.get_peft_model_state_dict(model).items()}


def train(model, tokens):
    lengths = [p for k, p in model.named_parameters() if "lora_magnitude_vector" in k]
    others = [p for k, p in model.named_parameters() if p.requires_grad and "lora_magnitude_vector" not in k]
    groups = [{"params": others, "weight_decay": 0.1}] + ([{"params": lengths, "weight_decay": 0}] if lengths else [])
    adamw, losses = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8), []
    for row in tokens:
        loss = torch.nn.functional.cross_entropy(model(row[:, :-1]).logits.flatten(0, 1), row[:, 1:].flatten())
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(7)
    tokens = torch.randint(0, CONFIG["vocab_size"], (STEPS, BATCH, SEQ + 1))
    base = LlamaForCausalLM(LlamaConfig(**CONFIG))
    tensors, numbers = {}, {"torch": torch.__version__, "peft": peft.__version__, "config": CONFIG, "tokens": tokens.tolist(), "losses": {}}
    with torch.no_grad():
        for p in base.parameters():
            p.add_(0.1 * torch.randn_like(p))
    tensors.update({"base." + k: p.detach().clone() for k, p in base.named_parameters()})
    for case, dora in CASES.items():
        model = LlamaForCausalLM(base.config)
        model.load_state_dict(base.state_dict())
        if case == "int8":
            with torch.no_grad():
                for k, p in model.named_parameters():
                    if k.endswith("_proj.weight"):
                        p.copy_(rounded(p))
        model = peft.get_peft_model(model, peft.LoraConfig(**LORA, use_dora=dora))
        torch.manual_seed(8)
        with torch.no_grad():
            for k, p in model.named_parameters():
                if "lora_B" in k:
                    p.add_(0.1 * torch.randn_like(p))
        before = saved_names(model)
        numbers["losses"][case] = train(model, tokens)
        tensors.update({"%s.before.%s" % (case, k): p for k, p in before.items()})
        tensors.update({"%s.after.%s" % (case, k): p for k, p in saved_names(model).items()})
        merged = model.merge_and_unload().state_dict()
        tensors.update({"%s.merged.%s" % (case, k): p.contiguous() for k, p in merged.items() if k.endswith("_proj.weight")})
    save_file(tensors, os.path.join(HERE, "adapters.safetensors"))
    with open(os.path.join(HERE, "adapters.json"), "w") as f:
        json.dump(numbers, f)
        f.write("\n")
    print(numbers["losses"])


if __name__ == "__main__":
    main()
