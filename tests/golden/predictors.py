"""Losses and gradients of DeepSeek-V3's multi-token prediction, written from section 2.2 of its report (arXiv 2412.19437) around the
layers of transformers, in float64: of plain tokens, and of documents that share rows.

    python tests/golden/predictors.py          (torch 2.x, transformers 5; writes predictors.{safetensors,json})

Relies on: transformers, safetensors. Relied on by: people; test_predictors.py reads what it wrote."""
import json
import os

import torch
from safetensors.torch import save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5,
              n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, kv_lora_rank=12, q_lora_rank=None, qk_rope_head_dim=8, v_head_dim=8, qk_nope_head_dim=8,
              first_k_dense_replace=1, n_group=2, topk_group=1, num_nextn_predict_layers=2, tie_word_embeddings=False)
ROWS, SEQ, WEIGHT = 6, 8, 0.3


class Predictor(torch.nn.Module):
    """TRM(M [RMSNorm(embedding); RMSNorm(h)]): the published files have the embedding's half first."""

    def __init__(self, config, i):
        super().__init__()
        self.layer = DeepseekV3DecoderLayer(config, i)
        self.enorm, self.hnorm, self.shared_norm = (DeepseekV3RMSNorm(config.hidden_size, config.rms_norm_eps) for _ in range(3))
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, h, embedded, mask, turned, places):
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(h)], -1))
        x = self.layer(x, attention_mask=mask, position_ids=places, position_embeddings=turned)
        return x[0] if isinstance(x, tuple) else x


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


def losses(model, predictors, tokens, targets, documents):
    """The main model's loss, and that of each depth, whose slices are those of the report: tokens 1 to T - k."""
    seen = (documents[:, :, None] == documents[:, None, :]) & torch.ones(SEQ, SEQ).tril().bool()
    mask = torch.where(seen, 0.0, -1e30)[:, None].double()
    h = model.model(tokens, attention_mask=mask).last_hidden_state
    all, places = [cross_entropy(model.lm_head(h), targets)], torch.arange(SEQ)[None]
    for k, predictor in enumerate(predictors, 1):
        n = SEQ - k
        turned = model.model.rotary_emb(h, places[:, :n])
        h = predictor(h[:, :n], model.model.embed_tokens(tokens[:, k:]), mask[:, :, :n, :n], turned, places[:, :n])
        wanted = torch.where(documents[:, k:] == documents[:, :n], targets[:, k:], -100)
        all.append(cross_entropy(model.lm_head(predictor.shared_norm(h)), wanted))
    return all


def main():
    torch.manual_seed(13)
    config = DeepseekV3Config(**CONFIG, attn_implementation="eager", experts_implementation="eager")
    model = DeepseekV3ForCausalLM(config).double()
    layers = CONFIG["num_hidden_layers"]
    predictors = torch.nn.ModuleList(Predictor(config, layers - 1) for _ in range(CONFIG["num_nextn_predict_layers"])).double()
    named = dict(model.named_parameters())
    for i, predictor in enumerate(predictors):
        for k, p in predictor.named_parameters():
            k = k.replace("shared_norm", "shared_head.norm")
            named["model.layers.%d.%s" % (layers + i, k[6:] if k.startswith("layer.") else k)] = p
    with torch.no_grad():
        for k, p in named.items():
            p.copy_((torch.ones_like(p) if "norm" in k else 0) + 0.15 * torch.randn_like(p))
            p.copy_(p.float().double())
    x = torch.randint(0, CONFIG["vocab_size"], (ROWS, SEQ + 1))
    documents = torch.tensor([[0] * 8, [0] * 3 + [1] * 5, [0] * 4 + [1] * 3 + [2], [0] * 6 + [1] * 2, [0, 1, 1, 2, 2, 2, 3, 3], [0] * 7 + [1]])
    masked = x[:, 1:].clone()
    masked[:, :-1][documents[:, 1:] != documents[:, :-1]] = -100 # what the next document begins with
    masked[:, -1] = -100
    masked[0, :2] = -100                                   # a prompt
    tensors, numbers = {"before." + k: p.detach().float().clone() for k, p in named.items()}, {"torch": torch.__version__, "config": CONFIG, "weight": WEIGHT}
    for case, targets, apart in ("tokens", x[:, 1:], torch.zeros_like(documents)), ("chat", masked, documents):
        for p in named.values():
            p.grad = None
        first, *more = losses(model, predictors, x[:, :-1], targets, apart)
        mtp = sum(more) / len(more)
        (first + WEIGHT * mtp).backward()
        numbers[case] = {"tokens": x[:, :-1].tolist(), "targets": targets.tolist(), "documents": apart.tolist(), "loss": (first + WEIGHT * mtp).item(), "mtp": mtp.item(), "first": first.item()}
        tensors.update({"%s.%s" % (case, k): p.grad.float().contiguous() for k, p in named.items()})
    save_file(tensors, os.path.join(HERE, "predictors.safetensors"))
    with open(os.path.join(HERE, "predictors.json"), "w") as f:
        json.dump(numbers, f)
        f.write("\n")
    print({k: v["loss"] for k, v in numbers.items() if k in ("tokens", "chat")})


if __name__ == "__main__":
    main()
