"""Families of models (models/families) beside Hugging Face's own: random configurations go the whole way that a user goes,
save_pretrained, `shardc import`, build, `--weights DIR`, `--export DIR/`, from_pretrained. Compared are the loss, all gradients and logits,
in several worlds, and what is exported. For people (CI has no PyTorch):

    python tests/golden/families.py [--random 20] [--only REGEX] [--seed 1] [--worlds 1 2 3]     (torch 2.x, transformers 5, diffusers, safetensors;
                                                                                                  build/shardc)
Of a gradient that is nearly nothing (a key's bias without rope has the gradient 0) fp32 keeps few digits or none, in transformers too. So
both are compared with transformers in float64: an error is within 1e-5, or within TIMES that of transformers in fp32.

Relies on: build/shardc, models/families. Relied on by: people."""
import argparse
import copy
import glob
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest.mock

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARDC = os.path.join(ROOT, "build", "shardc")
SEQ, WINDOWS, BOUND = 24, 6, 1e-5
TIMES = 4                                                    # 3.4 in 360 configurations, of sums over all tokens that are 0
NOISE = 10                                                   # the same where transformers has no digit right: a gradient that is 0


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


def encoder_config(r, family):
    heads, width = r.choice([2, 3, 4]), r.choice([8, 16])
    c = dict(vocab_size=r.choice([61, 128]), hidden_size=heads * width, intermediate_size=r.choice([40, 72, 100]), num_hidden_layers=r.choice([1, 2, 4]), num_attention_heads=heads,
             max_position_embeddings=r.choice([32, 64]), pad_token_id=0)
    if family == "bert":
        c.update(hidden_act=r.choice(["gelu", "relu", "gelu_new"]), type_vocab_size=r.choice([1, 2, 3]), layer_norm_eps=r.choice([1e-12, 1e-3]))
    if family == "dit":
        patch = r.choice([1, 2])
        return dict(num_attention_heads=heads, attention_head_dim=width, in_channels=4, out_channels=r.choice([None, 4, 8]), num_layers=c["num_hidden_layers"], sample_size=patch * r.choice([3, 4]),
                    patch_size=patch, attention_bias=r.random() < 0.5, num_embeds_ada_norm=r.choice([3, 10]), norm_elementwise_affine=r.random() < 0.5, norm_eps=r.choice([1e-5, 1e-3]),
                    activation_fn=r.choice(["gelu", "gelu-approximate", "geglu", "geglu-approximate", "swiglu", "linear-silu"]))
    if family in IMAGES:
        sizes = dict(image_size=r.choice([16, 20, [16, 24]] if family == "vit" else [16, 20]), patch_size=8, num_channels=r.choice([1, 3]))
    if family == "vit":
        c = dict(hidden_size=heads * width, intermediate_size=c["intermediate_size"], num_hidden_layers=c["num_hidden_layers"], num_attention_heads=heads, qkv_bias=r.random() < 0.5,
                 hidden_act=r.choice(["gelu", "quick_gelu"]), num_labels=r.choice([2, 7]), layer_norm_eps=r.choice([1e-12, 1e-3]), **sizes)
    if family == "clip":
        part = lambda **more: dict(hidden_size=r.choice([2, 4]) * width, intermediate_size=r.choice([40, 72]), num_hidden_layers=r.choice([1, 3]), num_attention_heads=2,
                                   hidden_act=r.choice(["quick_gelu", "gelu"]), **more)
        c = dict(text_config=part(vocab_size=c["vocab_size"], max_position_embeddings=16, eos_token_id=r.choice([2, 5]), bos_token_id=0), vision_config=part(**sizes),
                 projection_dim=r.choice([12, 20]), logit_scale_init_value=r.choice([1.0, 2.6592]))
    if family == "t5":
        c = dict(vocab_size=c["vocab_size"], d_model=r.choice([24, 32]), d_kv=width, d_ff=c["intermediate_size"], num_layers=r.choice([1, 3]), num_decoder_layers=r.choice([1, 2]), num_heads=heads,
                 relative_attention_num_buckets=r.choice([8, 32]), relative_attention_max_distance=r.choice([17, 128]), feed_forward_proj=r.choice(["relu", "gated-gelu", "gated-silu"]),
                 decoder_start_token_id=0, pad_token_id=0, scale_decoder_outputs=r.random() < 0.5)
    if family == "modernbert":
        flags = {k: r.random() < 0.3 for k in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")}
        c.update(local_attention=r.choice([4, 9, 128]), norm_eps=r.choice([1e-5, 1e-3]), decoder_bias=r.random() < 0.7, hidden_activation=r.choice(["gelu", "silu"]),
                 tie_word_embeddings=r.random() < 0.7, global_attn_every_n_layers=r.choice([1, 2, 3]), **flags,
                 rope_parameters={k: ropes(r, width, ("default", "linear", "yarn")) for k in ("full_attention", "sliding_attention")})
    return c


def config(r, family):
    if family in ENCODERS:
        return encoder_config(r, family)
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


# Family: the class. Inputs of encoders are by Hugging Face's names, in the order of a record.
IMAGES = {"vit": "ViTForImageClassification", "clip": "CLIPModel"}
ENCODERS = {**IMAGES, "dit": "DiTTransformer2DModel", "bert": "BertForMaskedLM", "modernbert": "ModernBertForMaskedLM", "t5": "T5ForConditionalGeneration"}
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "olmo2": "Olmo2", "olmo3": "Olmo3", "smollm3": "SmolLM3", "granite": "Granite",
           "gemma2": "Gemma2", "gemma3_text": "Gemma3", "phi3": "Phi3", "glm4": "Glm4", "cohere2": "Cohere2", "mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe", "olmoe": "Olmoe", "deepseek_v3": "DeepseekV3", "gpt_oss": "GptOss",
           "llama4_text": "Llama4", "llama4": "Llama4"}


def model_of(family, c):
    name = ENCODERS.get(family) or CLASSES[family] + "ForCausalLM"
    if family == "dit":
        import diffusers
        model = getattr(diffusers, name)(**c).eval()
    else:
        cls = getattr(transformers, name.split("For")[0].replace("Model", "") + ("TextConfig" if family in ("gemma3_text", "llama4_text", "llama4") else "Config"))
        model = getattr(transformers, name)(cls(**c, attn_implementation="eager")).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_((0.12 if p.dim() > 1 else 0.1) * torch.randn_like(p)) # scores that are not saturated, whose gradients fp32 tells
    return model


def run(*args, **more):
    p = subprocess.run(args, capture_output=True, text=True, **more)
    if p.returncode:
        raise RuntimeError("exit %d from %s\n%s" % (p.returncode, " ".join(args), (p.stdout + p.stderr)[-1500:]))
    return p.stdout


def vit_in_files(k):
    """What files call the parameter that transformers 5 calls k."""
    for here, there in {".layers.": ".encoder.layer.", "attention.o_proj": "attention.output.dense", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense",
                        "q_proj": "attention.query", "k_proj": "attention.key", "v_proj": "attention.value"}.items():
        k = k.replace(here, there)
    return k


def within(folder, family, prefix):
    """The saved model as the text part of a larger one."""
    weights, path = os.path.join(folder, "model.safetensors"), os.path.join(folder, "config.json")
    save_file({prefix + k: t for k, t in load_file(weights).items()}, weights)
    with open(path) as f:
        text = json.load(f)
    with open(path, "w") as f:
        json.dump({"model_type": family, "text_config": text, "vision_config": {}, "boi_token_index": 3}, f)


def masked(r, family, c, rows):
    """Padded rows of tokens, of which some are to be told: inputs, and options of the model."""
    seq = r.choice([9, SEQ, 32])
    options = {"seq": seq, "head": r.choice(["whole", "chunks"]), "mask": r.random() < 0.7}
    length = torch.randint(3 if options["mask"] else seq, seq + 1, (rows, 1)) # a padding that is seen has no gradient there (padding_idx)
    seen = torch.arange(seq) < length
    inputs = {"input_ids": torch.where(seen, torch.randint(2, c["vocab_size"], (rows, seq)), 0)}
    inputs["labels"] = torch.where(seen & (torch.rand(rows, seq) < 0.5) | (torch.arange(seq) == 1), torch.randint(0, c["vocab_size"], (rows, seq)), -100)
    if options["mask"]:
        inputs["attention_mask"] = seen.long()
    if family == "bert" and r.random() < 0.5:
        inputs["token_type_ids"], options["types"] = torch.randint(0, c["type_vocab_size"], (rows, seq)), True
    if family == "t5":
        options["target_seq"] = r.choice([7, 20])
        told = torch.arange(options["target_seq"]) < torch.randint(2, options["target_seq"] + 1, (rows, 1)) # padded at the end, as collators pad
        if r.random() < 0.5:                                 # or anywhere, so that the decoder reads equal tokens
            told = (torch.rand(rows, options["target_seq"]) < 0.7) | (torch.arange(options["target_seq"]) == 0)
        inputs["labels"] = torch.randint(0, c["vocab_size"], (rows, options["target_seq"])).where(told, -100)
    return inputs, options


def pictures(r, family, c, rows):
    v = c.get("vision_config", c)
    sides = v["image_size"] if isinstance(v["image_size"], list) else [v["image_size"]] * 2
    images, options = torch.randn(rows, v["num_channels"], *sides), {}
    if family == "vit":
        return {"pixel_values": images, "labels": torch.randint(0, c["num_labels"], (rows,))}, options
    t, seq = c["text_config"], r.choice([9, 16])
    ends = torch.randint(2, seq, (rows, 1))
    ids = torch.randint(3, t["vocab_size"] - 1, (rows, seq)).where(torch.arange(seq) < ends, 1)
    ids.scatter_(1, ends, t["vocab_size"] - 1 if t["eos_token_id"] == 2 else t["eos_token_id"])
    inputs, options = {"input_ids": ids, "pixel_values": images}, {"seq": seq, "mask": r.random() < 0.5}
    if options["mask"]:
        inputs["attention_mask"] = (torch.arange(seq) <= ends).long()
    return inputs, options


def latents(r, family, c, rows):
    size, options = (rows, c["in_channels"], c["sample_size"], c["sample_size"]), {"noise": "records", "class_dropout": 0, "betas": r.choice(["linear", "scaled_linear"])}
    return {"latents": torch.randn(size), "labels": torch.randint(0, c["num_embeds_ada_norm"] + 1, (rows,)), "noise": torch.randn(size), "timesteps": torch.randint(0, 1000, (rows,))}, options


def noise_loss(model, betas, latents, labels, noise, timesteps, beta_start=1e-4, beta_end=0.02):
    """DDPM's: the mean squared error of the noise that is predicted. torch.exp, of which diffusers makes frequencies in fp32, is off by an ulp for
    one of 128 on some machines, which moves that angle by up to 6e-5: here it is rounded right."""
    import diffusers
    kept = diffusers.DDPMScheduler(beta_schedule=betas, beta_start=beta_start, beta_end=beta_end).betas.double().neg().log1p().cumsum(0)[timesteps].view(-1, 1, 1, 1)
    noisy = latents * kept.exp().sqrt().to(latents.dtype) + noise * kept.expm1().neg().sqrt().to(latents.dtype)
    exp = torch.exp
    with unittest.mock.patch("torch.exp", lambda x: exp(x.double()).to(x.dtype)):
        predicted = model(noisy, timesteps, labels).sample[:, :latents.shape[1]]
    return torch.nn.functional.mse_loss(predicted, noise)


def windows(r, family, c, rows):
    tokens = torch.randint(2, c["vocab_size"], (rows, SEQ + 1))
    return {"input_ids": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}, {"seq": SEQ, "head": r.choice(["whole", "chunks"])}


def loss_of(family, model, inputs, settings):
    inputs = {k: x.to(model.dtype) if x.is_floating_point() else x for k, x in inputs.items()}
    if family == "dit":
        return noise_loss(model, settings["betas"], **inputs)
    if family in ENCODERS:
        return model(**inputs, **({"return_loss": True} if family == "clip" else {})).loss
    return torch.nn.functional.cross_entropy(model(inputs["input_ids"]).logits.float().flatten(0, 1), inputs["labels"].flatten())


def compare_records(folder, family, c, worlds, errors):
    """Of models that read records, whose batch is another one in each world."""
    model = model_of(family, c)
    path = {k: os.path.join(folder, k) for k in ("hf", "m.lua", "records", "program", "log", "state", "out")}
    model.save_pretrained(path["hf"])
    if family == "llama4":
        within(path["hf"], family, "language_model.")
    exact = copy.deepcopy(model)
    if family != "modernbert":                               # whose softmax is fp32's
        if hasattr(exact, "set_experts_implementation"):     # grouped products have no fp64 there
            exact.set_experts_implementation("eager")
        exact.double()
    run(SHARDC, "import", path["hf"], "-o", path["m.lua"])
    for world in worlds:
        inputs, settings = (latents if family == "dit" else pictures if family in IMAGES else masked if family in ENCODERS else windows)(random, family, c, 2 * world)
        with open(path["records"], "wb") as f:
            for x in inputs.values():
                f.write(x.float().numpy().tobytes() if x.is_floating_point() else x.int().numpy().tobytes())
        losses = []
        for m in model, exact:
            m.zero_grad()
            losses.append(loss_of(family, m, inputs, settings))
            losses[-1].backward()
        options = sum((["--set", "%s=%s" % (k, str(v).lower())] for k, v in dict(settings, batch=2, clip=0, dropout=0).items()), [])
        run(SHARDC, "build", path["m.lua"], "--world", str(world), *options, "-o", path["program"])
        with open(path["records"]) as f:
            run(path["program"], "--data", "-", "--weights", path["hf"], "--export", path["out"] + "/", "--steps", "1", "--lr", "0", "--log", path["log"], "--save", path["state"], stdin=f)
        with open(path["log"]) as f:
            ours = next(line["loss"] for line in map(json.loads, f) if "loss" in line)
        errors.add("loss", abs(ours / losses[1].item() - 1), abs(losses[0].item() / losses[1].item() - 1))
        if family != "llama4":                               # which transformers has as the whole model
            again = type(model).from_pretrained(path["out"]).state_dict()
            if again.keys() != model.state_dict().keys() or not all_equal(again, model.state_dict()):
                raise RuntimeError("from_pretrained of what was exported has other tensors")
        ours_of = {"llama4": lambda k: "language_model." + k, "vit": vit_in_files}.get(family, lambda k: k)
        found, parameters = gradients_of(path["state"]), {ours_of(k): (p, q) for (k, p), q in zip(model.named_parameters(), exact.parameters()) if q.grad is not None}
        if parameters.keys() != found.keys():
            raise RuntimeError("gradients of %s" % sorted(parameters.keys() ^ found.keys()))
        for k, (p, q) in parameters.items():
            errors.add("gradients", distance(found[k], q.grad.double().flatten()), distance(p.grad, q.grad.double()), "%s, world %d" % (k, world))
        shutil.rmtree(path["state"])


def distance(a, b):
    return ((a.double() - b).norm() / b.norm()).item()


def logits_of(path, world, whole):
    """Of all windows, where the validation makes them whole, or None; and those of the sample's last position."""
    files = [path if k == 0 else "%s.rank%d" % (path, k) for k in range(world)]

    def last(program, file):                                 # the last value of the head, or of the model itself
        values = ((re.match(program + "/(?:lm_head|m)/e([0-9]+)$", k), x) for k, x in load_file(file).items())
        return max((int(event[1]), x) for event, x in values if event and x.dim() == 3)[1]
    return torch.cat([last("eval", file) for file in files]) if whole else None, last("sample", files[0])[0, -1]


class Errors:
    """The largest figure of each kind; of gradients that fp32 tells less exactly than BOUND, how many times transformers' error ours is."""

    def __init__(self):
        self.worst = dict(loss=0, logits=0, gradients=0, trained=0, times=0)
        self.missed = []

    def add(self, kind, ours, theirs, what=""):
        beyond = ours > BOUND and theirs > BOUND / TIMES
        key, x = ("times", ours / theirs) if beyond else (kind, ours)
        self.worst[key] = max(self.worst[key], x)
        if x > (NOISE if beyond and theirs > 0.5 else TIMES if beyond else BOUND):
            self.missed.append("%s %s: %.1e, transformers %.1e" % (kind, what, ours, theirs))

    def text(self):
        return "loss %(loss).1e, logits %(logits).1e, gradients %(gradients).1e, logits of trained weights %(trained).1e; beyond 1e-5: %(times).1f times transformers' error" % self.worst


class Reference:
    """transformers' numbers in fp32 and fp64, of the same weights and tokens."""

    def __init__(self, model, x, y):
        exact = copy.deepcopy(model)
        if hasattr(exact, "set_experts_implementation"):     # grouped products have no fp64 there
            exact.set_experts_implementation("eager")
        self.all = []
        for m in model, exact.double():
            logits = m(x).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss.backward()
            self.all.append((loss.item(), logits.detach(), {k: p.grad for k, p in m.named_parameters()}))


def gradients_of(state):
    """From the first moments after one step: AdamW's is then 1 - beta1 of the gradient, summed over ranks, a shard a rank."""
    whole = {}
    for file in glob.glob(os.path.join(state, "*", "*.safetensors")):
        for k, x in load_file(file).items():
            piece = re.match(r"(.*)@\[(\d+),\d+\)#moment1$", k)
            if piece:
                whole.setdefault(piece[1], {})[int(piece[2])] = x
    scale = 1 - torch.tensor(0.9).double().item()
    return {k: torch.cat([x for _, x in sorted(pieces.items())]).double() / scale for k, pieces in whole.items()}


def compare(folder, family, c, worlds, errors):
    model = model_of(family, c)
    path = {k: os.path.join(folder, k) for k in ("hf", "m.lua", "tokens", "program", "log", "dump", "state", "same", "trained")}
    model.save_pretrained(path["hf"])
    tokens = torch.randint(2, c["vocab_size"], (WINDOWS * SEQ + 1,))
    with open(path["tokens"], "wb") as f:
        f.write(bytes(tokens.short().untyped_storage()))
    x, y = tokens[:-1].view(WINDOWS, SEQ), tokens[1:].view(WINDOWS, SEQ)
    (loss32, logits32, grads32), (loss, logits, grads) = Reference(model, x, y).all
    run(SHARDC, "import", path["hf"], "-o", path["m.lua"])
    for world in worlds:
        head = random.choice(["whole", "chunks"])
        options = [a for k in ("batch=%d" % (WINDOWS // world), "seq=%d" % SEQ, "clip=0", "head=" + head) for a in ("--set", k)]
        run(SHARDC, "build", path["m.lua"], "--world", str(world), *options, "-o", path["program"])
        train = [path["program"], "--weights", path["hf"], "--data", path["tokens"], "--val-data", path["tokens"], "--data-dtype", "uint16", "--warmup", "0",
                 "--quiet", "--dump", "*", "-o", path["dump"], "--sample", "1", "--sample-format", "ids", "--prompt", " ".join(map(str, x[0].tolist()))]
        run(*train, "--steps", "1", "--lr", "0", "--at-step", "1", "--log", path["log"], "--save", path["state"])
        with open(path["log"]) as f:
            told = [line[k] for line in map(json.loads, f) for k in ("loss", "val_loss") if k in line]
        for ours in told:
            errors.add("loss", abs(ours / loss - 1), abs(loss32 / loss - 1))
        all, one = logits_of(path["dump"], world, head == "whole")
        errors.add("logits", distance(one, logits[0, -1]), distance(logits32[0, -1], logits[0, -1]), "of a sample, world %d" % world)
        if all is not None:
            errors.add("logits", distance(all, logits), distance(logits32, logits), "world %d" % world)
        ours_of = {"mixtral": lambda k: k.replace(".block_sparse_moe.", ".mlp.")}.get(family, lambda k: k)
        found = {ours_of(k): g for k, g in gradients_of(path["state"]).items()}
        if found.keys() != grads.keys() or len(told) != 2:
            raise RuntimeError("gradients of %s" % sorted(found.keys() ^ grads.keys()))
        for k, g in grads.items():
            errors.add("gradients", distance(found[k], g.flatten()), distance(grads32[k], g), "%s, world %d" % (k, world))
        run(path["program"], "--weights", path["hf"], "--export", os.path.join(path["same"], ""), "--quiet")
        same = transformers.AutoModelForCausalLM.from_pretrained(path["same"]).state_dict()
        if same.keys() != model.state_dict().keys() or not all_equal(same, model.state_dict()):
            raise RuntimeError("other weights are exported than were loaded")
        run(*train, "--steps", "2", "--lr", "1e-2", "--at-step", "2", "--export", os.path.join(path["trained"], ""))
        trained = transformers.AutoModelForCausalLM.from_pretrained(path["trained"], attn_implementation="eager").eval()
        (_, theirs32, _), (_, theirs, _) = Reference(trained, x, y).all
        all, one = logits_of(path["dump"], world, head == "whole")
        errors.add("trained", distance(one, theirs[0, -1]), distance(theirs32[0, -1], theirs[0, -1]), "of a sample, world %d" % world)
        if all is not None:
            errors.add("trained", distance(all, theirs), distance(theirs32, theirs), "world %d" % world)
        if not any(not torch.equal(a, b) for a, b in zip(same.values(), trained.state_dict().values())):
            raise RuntimeError("two steps have changed nothing")
        shutil.rmtree(path["state"])


def all_equal(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--random", type=int, default=3), a.add_argument("--only", default=""), a.add_argument("--seed", type=int, default=1)
    a.add_argument("--worlds", type=int, nargs="+", default=[1, 2, 3])
    o = a.parse_args()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for family in [*CLASSES, *ENCODERS]:
        if not re.search(o.only, family):
            continue
        all = Errors()
        for k in range(o.random):
            seed, errors = 1000 * o.seed + k, Errors()
            r = random.Random("%s %d" % (family, seed))
            random.seed(seed), torch.manual_seed(seed)
            c = config(r, family)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    (compare_records if family in ENCODERS or family == "llama4" else compare)(folder, family, c, o.worlds, errors)
                except Exception as e:
                    errors.missed.append("%s: %s" % (type(e).__name__, str(e)[-1200:]))
            if errors.missed:
                print("%s, seed %d, %s:\n  %s" % (family, seed, c, "\n  ".join(errors.missed)), flush=True)
                failed += 1
            all.worst = {k: max(x, errors.worst[k]) for k, x in all.worst.items()}
        print("%-12s %d configurations: %s" % (family, o.random, all.text()), flush=True)
    sys.exit(failed and "%d failed" % failed)


if __name__ == "__main__":
    main()
