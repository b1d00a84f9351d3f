"""Plain PyTorch's numbers of DPO for all parameters of a small Llama, whose reference is a copy of it: losses and margins of five
steps, and the weights before and after them.

    python tests/golden/preferences.py          (torch 2.x, transformers 5; writes preferences.{safetensors,json})

Relies on: transformers, safetensors. Relied on by: people; test_preferences.py reads what it wrote."""
import copy
import json
import os

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
              tie_word_embeddings=False)
STEPS, BATCH, SEQ, BETA, LR = 5, 6, 8, 0.5, 1e-2


def log_p(model, ids, targets):
    p = torch.log_softmax(model(ids).logits, -1)
    kept = targets >= 0
    return (p.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1) * kept).sum(-1)


def main():
    torch.manual_seed(11)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    tensors = {"before." + k: p.detach().clone() for k, p in model.named_parameters()}
    reference = copy.deepcopy(model).requires_grad_(False)
    ids = torch.randint(0, CONFIG["vocab_size"], (STEPS, BATCH, 2, SEQ + 1))
    targets = ids[..., 1:].clone()
    targets[..., :3] = -100                                # a prompt
    targets[:, ::2, 1, 6:] = -100                          # and an answer that ends before the row
    plain = [p for k, p in model.named_parameters() if "norm" in k]
    others = [p for k, p in model.named_parameters() if "norm" not in k]
    adamw = torch.optim.AdamW([{"params": others, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0}], lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses, margins = [], []
    for step in range(STEPS):
        x, y = ids[step, ..., :-1].reshape(2 * BATCH, SEQ), targets[step].reshape(2 * BATCH, SEQ)
        apart = (log_p(model, x, y) - log_p(reference, x, y)).reshape(BATCH, 2)
        margin = BETA * (apart[:, 0] - apart[:, 1])
        loss = -torch.nn.functional.logsigmoid(margin).mean()
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        losses.append(loss.item())
        margins.append(margin.mean().item())
    tensors.update({"after." + k: p.detach().clone() for k, p in model.named_parameters()})
    save_file(tensors, os.path.join(HERE, "preferences.safetensors"))
    with open(os.path.join(HERE, "preferences.json"), "w") as f:
        json.dump({"torch": torch.__version__, "config": CONFIG, "beta": BETA, "lr": LR, "ids": ids[..., :-1].tolist(), "targets": targets.tolist(),
                   "losses": losses, "margins": margins}, f)
        f.write("\n")
    print(losses, margins)


if __name__ == "__main__":
    main()
