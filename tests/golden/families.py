"""Families of models (models/families) beside Hugging Face's own: random configurations go the whole way that a user goes,
save_pretrained, `shardc import`, build, `--weights DIR`; compared are the loss and all gradients. For people (CI has no PyTorch):

    python tests/golden/families.py [--random 20] [--only REGEX] [--seed 1]     (torch 2.x, transformers 5, safetensors; build/shardc)

Relies on: build/shardc, models/families. Relied on by: people."""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARDC = os.path.join(ROOT, "build", "shardc")
SEQ, BOUND = 24, 1e-5


def ropes(r, width, kinds=("default", "linear", "dynamic", "yarn", "llama3", "longrope")):
    """A rope of a random kind whose numbers matter at SEQ positions. dynamic stays within its original length, where it is plain."""
    kind = r.choice(kinds)
    p = {"rope_type": kind, "rope_theta": r.choice([1e4, 5e5, 777.0])}
    if kind in ("linear", "yarn", "llama3", "dynamic"):
        p["factor"] = r.choice([2.0, 4.0, 8.0])
    if kind == "llama3":
        p.update(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=r.choice([8, 16]))
    if kind == "yarn":
        p.update(original_max_position_embeddings=r.choice([8, 16]), **r.choice([{}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"mscale": 0.8, "mscale_all_dim": 0.5}, {"truncate": False}]))
    if kind == "longrope":
        n = width // 2
        p.update(original_max_position_embeddings=r.choice([8, 64]), factor=4.0, short_factor=[1 + 0.1 * i for i in range(n)], long_factor=[1 + 0.5 * i for i in range(n)])
    return p


def config(r, family):
    heads = r.choice([2, 3, 4, 6])
    kv = r.choice([k for k in (1, 2, 3, 6) if heads % k == 0])
    width, layers = r.choice([8, 16, 24]), r.choice([2, 3, 5])
    c = dict(vocab_size=r.choice([61, 128]), hidden_size=heads * width, intermediate_size=r.choice([40, 72, 100]), num_hidden_layers=layers, num_attention_heads=heads,
             num_key_value_heads=kv, max_position_embeddings=64, rms_norm_eps=r.choice([1e-5, 1e-6]), tie_word_embeddings=r.random() < 0.5,
             bos_token_id=0, eos_token_id=1, pad_token_id=0, rope_parameters=ropes(r, width))
    free_width = {"llama", "mistral", "qwen3", "gemma2", "gemma3_text", "glm4"}
    if family in free_width and r.random() < 0.5:            # transformers wants a multiple of the heads
        c["hidden_size"] = heads * r.choice([12, 20])
    if family in free_width:
        c["head_dim"] = width
    if family in ("llama", "smollm3", "granite"):
        c.update(attention_bias=r.random() < 0.5, mlp_bias=r.random() < 0.5)
    if family in ("qwen3", "olmo2", "olmo3", "glm4", "cohere2"):
        c["attention_bias"] = r.random() < 0.5
    if family == "mistral":
        c["sliding_window"] = r.choice([None, 5, 100])
    if family in ("qwen2", "qwen3"):
        c.update(use_sliding_window=r.random() < 0.5, sliding_window=6, max_window_layers=1)
    if family in ("gemma2", "gemma3_text", "olmo3", "cohere2"):
        c["sliding_window"] = 6
    if family in ("gemma2", "gemma3_text"):
        c.update(query_pre_attn_scalar=r.choice([8, 20, 256]), hidden_activation="gelu_pytorch_tanh")
    if family == "gemma2":
        c.update(attn_logit_softcapping=r.choice([None, 5.0]), final_logit_softcapping=r.choice([None, 3.0]))
    if family == "gemma3_text":
        c["rope_parameters"] = {"full_attention": ropes(r, width, ("default", "linear")), "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
        c["num_hidden_layers"] = r.choice([2, 7])
    if family == "olmo3":
        c["rope_parameters"] = {"full_attention": ropes(r, width, ("default", "linear", "yarn")), "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    if family == "granite":
        c.update(embedding_multiplier=r.choice([1.0, 3.0]), logits_scaling=r.choice([1.0, 4.0]), residual_multiplier=r.choice([1.0, 0.3]), attention_multiplier=r.choice([1.0, 0.2]))
    if family == "smollm3":
        c["num_hidden_layers"] = 5
    if family == "phi3":
        c["rope_parameters"] = ropes(r, width, ("default", "longrope"))
        c.update(original_max_position_embeddings=c["rope_parameters"].get("original_max_position_embeddings", 64), sliding_window=r.choice([None, 6]))
    if family == "cohere2":
        c.pop("rms_norm_eps")
        c.update(layer_norm_eps=1e-5, logit_scale=r.choice([0.25, 1.0]))
    if family == "mixtral":
        c["head_dim"] = width                                # some ropes of transformers need it said
        c.update(num_local_experts=r.choice([3, 8]), num_experts_per_tok=r.choice([1, 2]), sliding_window=r.choice([None, 6]))
    if family in ("qwen3_moe", "olmoe"):
        c.update(num_experts=r.choice([4, 9]), num_experts_per_tok=r.choice([1, 3]), norm_topk_prob=r.random() < 0.5)
    if family == "qwen3_moe":
        c.update(moe_intermediate_size=r.choice([20, 36]), decoder_sparse_step=r.choice([1, 2]), mlp_only_layers=r.choice([[], [0]]), head_dim=width)
    if family == "gpt_oss":
        c["head_dim"] = width
        c.update(swiglu_limit=r.choice([7.0, 0.5]), num_local_experts=r.choice([4, 6]), num_experts_per_tok=r.choice([1, 3]), sliding_window=6)
        c["rope_parameters"] = ropes(r, width, ("default", "yarn"))
    if family == "deepseek_v3":
        groups = r.choice([1, 2, 4])
        turned = r.choice([8, 16])
        c["num_key_value_heads"] = heads
        c["rope_parameters"] = ropes(r, turned, ("default", "yarn"))
        c.update(moe_intermediate_size=r.choice([20, 36]), n_shared_experts=r.choice([1, 2]), n_routed_experts=8, kv_lora_rank=24, q_lora_rank=r.choice([None, 20]), qk_rope_head_dim=turned,
                 v_head_dim=r.choice([8, 24]), qk_nope_head_dim=r.choice([8, 16]), n_group=groups, topk_group=r.choice([k for k in (1, 2) if k <= groups]), num_experts_per_tok=2,
                 first_k_dense_replace=1, norm_topk_prob=r.random() < 0.5, rope_interleave=r.random() < 0.5, attention_bias=r.random() < 0.5)
    if family in ("llama4_text", "llama4"):
        c["num_hidden_layers"] = layers = r.choice([3, 5])
        c["rope_parameters"] = ropes(r, width, ("default", "llama3"))
        c.update(head_dim=width, intermediate_size_mlp=r.choice([40, 56]), num_local_experts=r.choice([2, 5]), num_experts_per_tok=r.choice([1, 1, 2]), attention_bias=r.random() < 0.5,
                 moe_layers=r.choice([None, [0, 2]]), interleave_moe_layer_step=r.choice([1, 2]), use_qk_norm=r.random() < 0.7, no_rope_layers=r.choice([None, [1, 0, 1, 0, 1][:layers]]),
                 no_rope_layer_interval=r.choice([2, 4]), attention_chunk_size=r.choice([7, 8, 100]), floor_scale=r.choice([5, 100]), attn_scale=r.choice([0.1, 0.5]),
                 attn_temperature_tuning=r.random() < 0.7)
    if family == "glm4":
        c["rope_parameters"] = dict(ropes(r, width, ("default", "linear")), partial_rotary_factor=0.5)
    return c


CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "olmo2": "Olmo2", "olmo3": "Olmo3", "smollm3": "SmolLM3", "granite": "Granite",
           "gemma2": "Gemma2", "gemma3_text": "Gemma3", "phi3": "Phi3", "glm4": "Glm4", "cohere2": "Cohere2", "mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe", "olmoe": "Olmoe", "deepseek_v3": "DeepseekV3", "gpt_oss": "GptOss",
           "llama4_text": "Llama4", "llama4": "Llama4"}


def model_of(family, c):
    name = CLASSES[family]
    cls = getattr(transformers, name + ("TextConfig" if family in ("gemma3_text", "llama4_text", "llama4") else "Config"))
    model = getattr(transformers, name + "ForCausalLM")(cls(**c, attn_implementation="eager")).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_((0.12 if p.dim() > 1 else 0.1) * torch.randn_like(p)) # scores that are not saturated, whose gradients fp32 tells
    return model


def run(*args, **more):
    p = subprocess.run(args, capture_output=True, text=True, **more)
    if p.returncode:
        raise RuntimeError("exit %d from %s\n%s" % (p.returncode, " ".join(args), (p.stdout + p.stderr)[-1500:]))
    return p.stdout


def within(folder, family, prefix):
    """The saved model as the text part of a larger one."""
    weights, path = os.path.join(folder, "model.safetensors"), os.path.join(folder, "config.json")
    save_file({prefix + k: t for k, t in load_file(weights).items()}, weights)
    with open(path) as f:
        text = json.load(f)
    with open(path, "w") as f:
        json.dump({"model_type": family, "text_config": text, "vision_config": {}, "boi_token_index": 3}, f)


def compare(folder, family, c, world):
    """(distance of the losses, largest distance of a gradient)"""
    model = model_of(family, c)
    model.save_pretrained(os.path.join(folder, "hf"))
    if family == "llama4":
        within(os.path.join(folder, "hf"), family, "language_model.")
    if "num_experts_per_tok" not in c:                       # grouped products have no fp64 there
        model.double()                                       # what both would be without rounding
    path = {k: os.path.join(folder, k) for k in ("hf", "m.lua", "records", "program", "log", "gradients")}
    tokens = torch.randint(2, c["vocab_size"], (2 * world, SEQ + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    with open(path["records"], "wb") as f:
        f.write(bytes(x.int().untyped_storage()) + bytes(y.int().untyped_storage()))
    theirs = torch.nn.functional.cross_entropy(model(x).logits.float().flatten(0, 1), y.flatten())
    theirs.backward()
    run(SHARDC, "import", path["hf"], "-o", path["m.lua"])
    options = ["--set", "batch=2", "--set", "seq=%d" % SEQ, "--set", "clip=0", "--set", "head=%s" % random.choice(["whole", "chunks"])]
    run(SHARDC, "build", path["m.lua"], "--world", str(world), *options, "-o", path["program"])
    with open(path["records"]) as f:
        run(path["program"], "--data", "-", "--weights", path["hf"], "--steps", "1", "--lr", "0", "--log", path["log"], "--dump", "*.grad", "--at-step", "1",
            "-o", path["gradients"], stdin=f)
    with open(path["log"]) as f:
        ours = next(line["loss"] for line in map(json.loads, f) if "loss" in line)
    gradients, worst = {}, 0
    for file in sorted(os.listdir(folder)):                  # rank 0's shard, then the others'
        if file.startswith("gradients"):
            for k, g in load_file(os.path.join(folder, file)).items():
                gradients.setdefault(k[:-len(".grad")], []).append(g)
    ours_of = {"mixtral": lambda k: k.replace(".mlp.", ".block_sparse_moe."), "llama4": lambda k: "language_model." + k}.get(family, lambda k: k)
    parameters = {ours_of(k): p for k, p in model.named_parameters()}
    if parameters.keys() != gradients.keys():
        raise RuntimeError("gradients of %s" % sorted(parameters.keys() ^ gradients.keys()))
    if world == 1:                                           # nearly nothing (a key's bias without rope has the gradient 0): beside 3 % of the others' size
        least = 3e-2 * max(p.grad.norm() / p.numel() ** 0.5 for p in parameters.values())
        for k, p in parameters.items():
            worst = max(worst, ((gradients[k][0].double() - p.grad).norm() / p.grad.norm().clamp(min=least * p.numel() ** 0.5)).item())
    return abs(ours / theirs.item() - 1), worst


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--random", type=int, default=3), a.add_argument("--only", default=""), a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    failed = 0
    for family in CLASSES:
        if not re.search(o.only, family):
            continue
        far = [0, 0]
        for k in range(o.random):
            seed = 1000 * o.seed + k
            r = random.Random("%s %d" % (family, seed))
            random.seed(seed), torch.manual_seed(seed)
            c = config(r, family)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    here = compare(folder, family, c, 1 + k % 3)
                except Exception as e:
                    print("%s, seed %d: %s\n%s" % (family, seed, c, str(e)[-1200:]), flush=True)
                    failed += 1
                    continue
            if max(here) > BOUND:
                print("%s, seed %d: loss %.1e, gradients %.1e: %s" % (family, seed, *here, c), flush=True)
                failed += 1
            far = [max(x, y) for x, y in zip(far, here)]
        print("%-12s %d configurations: loss %.1e, gradients %.1e" % (family, o.random, *far), flush=True)
    sys.exit(failed and "%d failed" % failed)


if __name__ == "__main__":
    main()
