"""Layers of experts of transformers' models: their weights, the loss and the gradients that experts.lua must give from the same weights.

    python tests/golden/experts.py          (torch 2.x, transformers 5; writes experts.{weights,grads}.safetensors and experts.json)

Relies on: transformers, safetensors. Relied on by: people; test_experts.py reads what it wrote."""
import json
import os

import torch
from safetensors.torch import save_file
from transformers import DeepseekV3Config, GptOssConfig, MixtralConfig, OlmoeConfig, Qwen2MoeConfig, Qwen3MoeConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = dict(hidden_size=16, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=3)
BLOCKS = {
    "mixtral": lambda: MixtralSparseMoeBlock(MixtralConfig(hidden_size=16, intermediate_size=24, num_local_experts=6, num_experts_per_tok=2)),
    "qwen3": lambda: Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**SIZES, norm_topk_prob=True)),
    "olmoe": lambda: OlmoeSparseMoeBlock(OlmoeConfig(hidden_size=16, intermediate_size=24, num_experts=6, num_experts_per_tok=3, norm_topk_prob=False)),
    "qwen2": lambda: Qwen2MoeSparseMoeBlock(Qwen2MoeConfig(**SIZES, shared_expert_intermediate_size=20, norm_topk_prob=False)),
    "deepseek": lambda: DeepseekV3MoE(DeepseekV3Config(hidden_size=16, moe_intermediate_size=24, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
                                                      n_shared_experts=1, routed_scaling_factor=2.5, norm_topk_prob=True)),
    "gpt_oss": lambda: GptOssMLP(GptOssConfig(hidden_size=16, intermediate_size=24, num_local_experts=6, num_experts_per_tok=3, swiglu_limit=0.5)),
}
OURS = {"gate.e_score_correction_bias": "correction", "shared_expert_gate.weight": "shared_gate.weight"}


def ours(name):
    return OURS.get(name, name.replace("router.", "gate.").replace("shared_experts.", "shared.").replace("shared_expert.", "shared."))


def main():
    torch.manual_seed(5)
    weights, grads, loss = {}, {}, 0
    for name, make in BLOCKS.items():
        block, x = make().train(), torch.randn(2, 9, 16, requires_grad=True)
        with torch.no_grad():
            for p in [*block.parameters(), *block.buffers()]:
                p.normal_(0, 0.3)
        y = block(x)
        y = y[0] if isinstance(y, tuple) else y
        one = ((y + 1) ** 2).sum() / 2
        one.backward()
        loss += one.item()
        for n, p in [*block.named_parameters(), *block.named_buffers()]:
            weights["%s.%s" % (name, ours(n))] = p.detach().clone().contiguous()
            if p.grad is not None:
                grads["%s.%s" % (name, ours(n))] = p.grad.contiguous()
        weights[name + "_x"], grads[name + "_x"] = x.detach(), x.grad
    save_file(weights, os.path.join(HERE, "experts.weights.safetensors"))
    save_file(grads, os.path.join(HERE, "experts.grads.safetensors"))
    with open(os.path.join(HERE, "experts.json"), "w") as f:
        json.dump({"loss": loss, "torch": torch.__version__}, f)
        f.write("\n")
    print("%d gradients, loss %.6f" % (len(grads), loss))


if __name__ == "__main__":
    main()
