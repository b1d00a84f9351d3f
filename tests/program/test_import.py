"""`shardc import`: a Hugging Face folder becomes a model, is trained from and exported to; adapters beside it (nn.lora).

Numbers of the families are beside transformers' in tests/golden/families.py. Relies on: harness.py, models/families. Relied on
by: run.py, test_diagnostics.py."""
import errno
import json
import math
import os
import shutil
import struct

from harness import ROOT, SHARDC, check, close, command, losses, must, read_log, read_safetensors, scratch, write_safetensors
from test_failures import inject

SMALL = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5)
ENCODER = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
RECORDS = {"bert": ["seq=8", "head=chunks"], "modernbert": ["seq=8", "head=chunks"], "t5": ["seq=8", "target_seq=5"], "vit": [], "clip": ["seq=8"], "dit": []}
NEEDED = {"llama4_text": dict(intermediate_size_mlp=40, num_local_experts=4, attention_chunk_size=5, head_dim=8),
          "llama4": dict(text_config=dict(SMALL, intermediate_size_mlp=40, num_local_experts=4, head_dim=8), vision_config={}),
          "t5": dict(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2),
          "dit": dict(num_attention_heads=2, attention_head_dim=8, num_layers=2, sample_size=4, patch_size=2, out_channels=8, num_embeds_ada_norm=3),
          "vit": dict(image_size=16, patch_size=8),
          "clip": dict(projection_dim=12, text_config=dict(ENCODER, vocab_size=32), vision_config=dict(ENCODER, image_size=16, patch_size=8)),
          "gpt_oss": dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2),
          "deepseek_v3": dict(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=12, kv_lora_rank=12, q_lora_rank=None, qk_rope_head_dim=8,
                              v_head_dim=8, qk_nope_head_dim=8, first_k_dense_replace=1, n_group=2, topk_group=1),
          "mixtral": dict(num_local_experts=4), "olmoe": dict(num_experts=4, num_experts_per_tok=2),
          "qwen3_moe": dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, head_dim=8, decoder_sparse_step=2), "gemma2": dict(head_dim=8), "gemma3_text": dict(head_dim=8), "qwen3": dict(head_dim=8), "glm4": dict(head_dim=8)}
BATCH = ["--set", "batch=2", "--set", "seq=8", "--set", "clip=0"]


def folder_of(folder, name="hf", **fields):
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        kind = fields.get("model_type")
        own = {} if kind in ("llama4", "clip", "t5", "dit", None) else dict(ENCODER, vocab_size=32) if kind in RECORDS and kind != "vit" else ENCODER if kind == "vit" else SMALL
        json.dump(dict(own, **fields), f)
    return path


def families():
    return sorted(f[:-4] for f in os.listdir(os.path.join(ROOT, "models", "families")) if f[:-4] not in ("config", "decoder", "encoder", "labelled", "parts", "pictures", "training"))


def settings_of(family, *more):
    return sum((["--set", s] for s in [*more, *RECORDS.get(family, ["seq=8", "head=chunks"])]), [])


def test_models_of_arrays_are_trained():
    """A file of the arrays that import lists is what the program reads, on one rank and on two; --export DIR/ and back."""
    folder, said_losses = scratch("of_records"), []
    for family, options in RECORDS.items():
        hf, lua = folder_of(folder, family, model_type=family, torch_dtype="float32", **NEEDED.get(family, {})), os.path.join(folder, family + ".lua")
        said = must([SHARDC, "import", hf, "-o", lua])
        check("&& build/" in said and "--data train.safetensors " in said and "seq=4096" not in said, said)
        inputs, found = [line.split() for line in said.splitlines() if line.startswith("  ")], []
        sizes = {"input_ids": 8, "attention_mask": 8, "labels": 5 if family == "t5" else 8}
        shapes = [(dtype, [int(x) for x in shape[shape.index("[") + 1:-1].split(",")[1:]]) for _, shape in inputs for dtype in [shape[:shape.index("[")]]]
        data, tensors, samples = os.path.join(folder, family + "-data.safetensors"), {}, 4
        for (name, _), (dtype, shape) in zip(inputs, shapes):
            shape = [samples] + [sizes.get(name, size) if k == 0 else size for k, size in enumerate(shape)]
            n = math.prod(shape)
            tensors[name] = ("I32", shape, struct.pack("<%di" % n, *[1] * n)) if dtype == "int32" else ("F32", shape, struct.pack("<%df" % n, *[0.01 * (i % 37) for i in range(n)]))
        write_safetensors(data, tensors)

        def go(program, steps, *args):
            log = os.path.join(folder, "log.jsonl")
            must([program, "--data", data, "--steps", str(steps), "--lr", "1e-2", "--warmup", "0", "--min-ratio", "1", "--seed", "3", "--log", log, *args])
            return losses(read_log(log))
        for world, batch in ((1, 2), (2, 1)):
            program, out = os.path.join(folder, "%s-%d" % (family, world)), os.path.join(folder, "%s-%d-out" % (family, world), "")
            must([SHARDC, "build", lua, "--world", str(world), *settings_of(family, "batch=%d" % batch, "dropout=0"), "-o", program])
            weights = ["--weights", hf] if world == 2 else []
            if not weights:
                go(program, 1, "--lr", "0", "--export", os.path.join(hf, "model.safetensors"))
                weights = ["--weights", hf]
            found.append(go(program, 2, *weights, "--export", out))
            check(set(read_safetensors(out + "model.safetensors")) == set(read_safetensors(os.path.join(hf, "model.safetensors"))), family)
        count = sum(math.prod(shape) for _, shape, _ in read_safetensors(os.path.join(hf, "model.safetensors")).values())
        check(" %s parameters\n" % format(count, ",") in said, "%s: %d parameters, not: %s" % (family, count, said))
        close(found[0], found[1], 1e-5, family)
        said_losses.append("%s %.4f" % (family, found[0][-1]))
    return ", ".join(said_losses)


def test_every_family_is_imported():
    folder = scratch("families")
    for family in families():
        lua = os.path.join(folder, family + ".lua")
        said = must([SHARDC, "import", folder_of(folder, family, model_type=family, torch_dtype="bfloat16", eos_token_id=None, **NEEDED.get(family, {})), "-o", lua])
        check("shardc predict " in said and "--weights" in said, said)
        check("sound" in must([SHARDC, "verify", lua, "--world", "2", *settings_of(family, "batch=2", "clip=0")]), family)
    return ", ".join(families())


def records(path, steps):
    """Two sequences a step, whose targets are the tokens moved by one."""
    with open(path, "wb") as f:
        for step in range(steps):
            x = [(step * 31 + i * i * 7 + i) % 32 for i in range(18)]
            rows = [x[:9], x[9:]]
            f.write(struct.pack("<16i", *[t for r in rows for t in r[:-1]]) + struct.pack("<16i", *[t for r in rows for t in r[1:]]))
    return path


def go(binary, data, first, steps, folder, *args):
    """Losses of some of the steps of the records."""
    log = os.path.join(folder, "log.jsonl")
    with open(data, "rb") as f:
        f.seek(first * 128)
        rc, _, err = command([binary, "--data", "-", "--steps", str(steps), "--lr", "1e-2", "--warmup", "0", "--min-ratio", "1", "--seed", "3", "--log", log, *args], stdin_file=f)
    check(rc == 0, err)
    return losses(read_log(log))


def whole_way():
    folder = scratch("whole_way")
    hf = folder_of(folder, model_type="llama", torch_dtype="float32", tie_word_embeddings=True, max_position_embeddings=64)
    with open(os.path.join(hf, "tokenizer.json"), "w") as f:
        f.write('{"a": "tokenizer"}')
    lua, data = os.path.join(folder, "m.lua"), records(os.path.join(folder, "records"), 6)
    check("--set seq=64 --world 8" in must([SHARDC, "import", hf, "-o", lua]), "the row is longer than the model's positions")
    paths = {}
    for name, options in (("plain", []), ("lora", ["--set", "lora=3", "--set", "lora_alpha=5", "--set", "lora_match=*_proj"])):
        paths[name] = os.path.join(folder, name)
        must([SHARDC, "build", lua, "--world", "1", *BATCH, *options, "-o", paths[name]])
    return folder, hf, data, paths["plain"], paths["lora"]


def test_a_folder_goes_in_and_comes_out():
    folder, hf, data, plain, lora = whole_way()
    out, again = os.path.join(folder, "out", ""), os.path.join(folder, "again", "")
    go(plain, data, 0, 1, folder, "--export", os.path.join(hf, "model.safetensors"))
    first = go(plain, data, 0, 3, folder, "--weights", hf, "--export", out, "--export-dtype", "bf16")
    config = json.load(open(os.path.join(out, "config.json")))
    check(config["torch_dtype"] == "bfloat16" and config["vocab_size"] == 32 and "a" in json.load(open(os.path.join(out, "tokenizer.json"))), "what the folder holds")
    check({t[0] for t in read_safetensors(out + "model.safetensors").values()} == {"BF16"}, "dtypes")
    # in two files with an index, as large models are
    whole = read_safetensors(os.path.join(hf, "model.safetensors"))
    os.makedirs(again)
    parts = [dict(sorted(whole.items())[:5]), dict(sorted(whole.items())[5:])]
    for i, part in enumerate(parts):
        write_safetensors(again + "model-%d.safetensors" % i, part)
    check(go(plain, data, 0, 3, folder, "--weights", again) == first, "files without an index")
    json.dump({"weight_map": {k: "model-%d.safetensors" % i for i, part in enumerate(parts) for k in part}}, open(again + "model.safetensors.index.json", "w"))
    check(go(plain, data, 0, 3, folder, "--weights", again) == first, "files with one")
    # what cannot be
    for args, says in ((["--weights", os.path.join(folder, "empty")], "no model.safetensors.index.json, model.safetensors or other .safetensors in this folder"),
                       (["--export", os.path.join(folder, "not", "there", "")], "cannot export to "),
                       (["--weights", folder + "/h*"], "a folder within the pattern of --weights")):
        os.makedirs(os.path.join(folder, "empty"), exist_ok=True)
        with open(data, "rb") as f:
            rc, _, err = command([plain, "--data", "-", "--steps", "1", *args], stdin_file=f)
        check(rc == 1 and says in err, "%s: exit %d: %s" % (args, rc, err))
    # a file of the tokenizer that cannot be read, a config.json that cannot be replaced
    os.remove(out + "config.json")
    for blocked, says in ((os.path.join(hf, "tokenizer.model"), "cannot read "), (out + "config.json", "cannot export to ")):
        os.makedirs(blocked)
        rc, _, err = command([plain, "--data", "-", "--steps", "0", "--weights", hf, "--export", out])
        check(rc == 1 and says in err and os.path.basename(blocked) in err, "%s: exit %d: %s" % (says, rc, err))
        os.rmdir(blocked)
    # without a folder to copy from
    rc, said, err = command([plain, "--data", "-", "--steps", "0", "--weights", os.path.join(hf, "model.safetensors"), "--export", out])
    check(rc == 0 and "--weights DIR or --export-like DIR says where it is copied from" in err, err)
    for to, like, want in (os.path.join(folder, "w.st"), hf, "files beside the weights go into a folder: --export "), (os.path.join(folder, "like", ""), hf + "-none", "there is no such folder; name a Hugging Face folder"):
        rc, _, err = command([plain, "--weights", hf, "--export", to, "--export-like", like])
        check(rc == 1 and want in err, err)
    must([plain, "--weights", hf, "--export", os.path.join(folder, "like", ""), "--export-like", hf])
    check(os.path.exists(os.path.join(folder, "like", "config.json")), "config.json of --export-like")


def loaded(folder):
    """The tensors that from_pretrained loads: of the one file, if it is there, or of those that the index names; None: it refuses the folder."""
    one, index = (os.path.join(folder, name) for name in ("model.safetensors", "model.safetensors.index.json"))
    if os.path.exists(one):
        return read_safetensors(one)
    if not os.path.exists(index):
        return None
    about, all = json.load(open(index)), {}
    for name in sorted(set(about["weight_map"].values())):
        part = read_safetensors(os.path.join(folder, name))
        check(all.keys().isdisjoint(part) and all_of(about, name) == part.keys(), "what the index says of %s" % name)
        all.update(part)
    check(about["metadata"]["total_size"] == sum(len(t[2]) for t in all.values()), about["metadata"])
    return all


def all_of(index, file):
    return {k for k, name in index["weight_map"].items() if name == file}


def shards_of(folder):
    return sorted(name for name in os.listdir(folder) if "-of-" in name)


def test_a_folder_of_shards():
    """--export-shard-size: what save_pretrained's max_shard_size makes; no shard of an earlier export is left or loaded, whenever a run is killed."""
    folder, hf, data, plain, lora = whole_way()
    out = os.path.join(folder, "out", "")
    go(plain, data, 0, 1, folder, "--export", os.path.join(hf, "model.safetensors"))
    export = [plain, "--weights", hf, "--export", out]
    said = must([*export, "--export-shard-size", "3KB"])
    whole, files = read_safetensors(os.path.join(hf, "model.safetensors")), shards_of(out)
    n = len(files)
    check(files == ["model-%05d-of-%05d.safetensors" % (i + 1, n) for i in range(n)] and 2 < n < len(whole) and "export   %s%d files in fp32" % (out, n) in said, said)
    check(loaded(out) == whole and list(loaded(out)) == list(whole), "other tensors, or in another order")
    parts = [[len(t[2]) for t in read_safetensors(out + name).values()] for name in files]
    check(all(sum(p) <= 3000 or len(p) == 1 for p in parts), "sizes: %s" % parts)
    check(all(sum(p) + q[0] > 3000 for p, q in zip(parts, parts[1:])), "a shard that has room for the next tensor: %s" % parts)
    check(go(plain, data, 0, 3, folder, "--weights", out) == go(plain, data, 0, 3, folder, "--weights", hf), "read back")
    # other sizes, one file, shards again: nothing of the export before is left
    for args, files in (["--export-shard-size", "0.005MB"], None), ([], 0), (["--export-shard-size", "1GiB"], 0), (["--export-shard-size", "2KiB"], None):
        open(out + "model-00001-of-00099.safetensors.part", "w").close()
        must([*export, *args])
        check(loaded(out) == whole and os.path.exists(out + "model.safetensors") == (files == 0), "%s: %s" % (args, os.listdir(out)))
        check(len(shards_of(out)) == (files if files == 0 else len(set(json.load(open(out + "model.safetensors.index.json"))["weight_map"].values()))), os.listdir(out))
    # killed, or refused, at each of the calls that replace what is there: the old weights, the new ones or none
    trained = os.path.join(folder, "trained", "")
    go(plain, data, 0, 2, folder, "--weights", hf, "--export", trained)
    new, seen = read_safetensors(trained + "model.safetensors"), set()
    for before, after in ("3KB", "3KB"), ("3KB", "5KB"), (None, "3KB"), ("3KB", None):
        args = [[*export, *(["--export-shard-size", size] if size else [])] for size in (before, after)]
        args[1][2] = trained
        for function in "rename", "unlink":
            for at, error in ((k, e) for k in range(1, 40) for e in (-9, errno.EPERM)):
                must(args[0])
                called, rc, err = inject(args[1], function, at, error)
                if not called:
                    break
                now = loaded(out)
                state = "none" if now is None else "old" if now == whole else "new" if now == new else "mixed"
                check(state != "mixed" and (rc or state == "new"), "%s to %s, %s %d: %s weights, exit %d: %s" % (before, after, function, at, state, rc, err))
                if not rc:                                   # of something that is no part of the weights
                    continue
                if error == errno.EPERM:
                    gone = "what is there now is not to be used: export it again" in err
                    check(gone or state == "new" or state == "old" and "what was there is untouched" in err, "%s weights: %s" % (state, err))
                    check(not [name for name in os.listdir(out) if name.endswith(".part")], os.listdir(out))
                else:
                    back = os.path.join(folder, "back")
                    rc, _, err = command([plain, "--weights", out, "--export", back])
                    read = state == "none" and not rc and read_safetensors(back) in (whole, new) # all shards and no index: the program reads those
                    check(rc == (state == "none") or read, "%s to %s, killed at %s %d: %s weights are read with exit %d: %s" % (before, after, function, at, state, rc, err))
                seen.add(state)
    check(seen == {"none", "old", "new"}, seen)
    # what cannot be
    for code, args, says in ((2, ["--export", out + "x", "--export-shard-size", "5GB"], "--export-shard-size: %sx is a file" % out), (2, ["--export-shard-size", "5GB"], "--export-shard-size needs --export FILE"),
                             (2, ["--export", out, "--export-adapters", "--export-shard-size", "5GB"], "peft reads adapters from one file"),
                             *((2, ["--export", out, "--export-shard-size", x], "wants a size such as 5GB, 500MB or 1GiB, not '%s'" % x) for x in ("5", "5G", "GB", "0KB", "-1GB", "5XB", "1e30GB", "5GBs"))):
        rc, _, err = command([lora if "--export-adapters" in args else plain, "--weights", hf, *args])
        check(rc == code and says in err, "%s: exit %d: %s" % (args, rc, err))
    return "%d shards" % n


def test_single_experts_are_stacked():
    """Weights that name experts one by one, as they are published, on one rank and with experts spread over two; the folder that
    is exported names them so again."""
    folder = scratch("experts")
    hf = folder_of(folder, model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, head_dim=8, decoder_sparse_step=2)
    lua, data = os.path.join(folder, "m.lua"), records(os.path.join(folder, "records"), 3)
    must([SHARDC, "import", hf, "-o", lua])
    programs = {}
    for name, options in (("one", ["--world", "1", *BATCH]), ("two", ["--world", "2", "--set", "expert=2", "--set", "batch=1", "--set", "seq=8", "--set", "clip=0"])):
        programs[name] = os.path.join(folder, name)
        must([SHARDC, "build", lua, *options, "-o", programs[name]])
    stacked, first = os.path.join(folder, "stacked.safetensors"), os.path.join(folder, "first", "")
    go(programs["one"], data, 0, 1, folder, "--export", stacked)
    go(programs["one"], data, 0, 1, folder, "--weights", stacked, "--export", first)
    whole, single = read_safetensors(stacked), read_safetensors(first + "model.safetensors")
    names = sorted(k for k in single if ".experts." in k)
    check(len(names) == 12 and names[0] == "model.layers.1.mlp.experts.0.down_proj.weight" and not any("experts.gate_up_proj" in k for k in single), names)
    check(whole["model.layers.1.mlp.experts.gate_up_proj"][1] == [4, 24, 16] and single["model.layers.1.mlp.experts.3.up_proj.weight"][1] == [12, 16], "shapes")
    a, b = (go(programs[k], data, 1, 2, folder, "--weights", w) for k, w in (("one", first), ("two", first)))
    close(a, b, 1e-6, "experts on one rank and on two")
    again = os.path.join(folder, "again", "")
    go(programs["two"], data, 0, 1, folder, "--weights", first, "--export", again)
    go(programs["one"], data, 0, 1, folder, "--weights", first, "--export", os.path.join(folder, "once", ""))
    go(programs["two"], data, 0, 1, folder, "--weights", first, "--export", os.path.join(folder, "shards", ""), "--export-shard-size", "2KiB")
    x, y, z = *(read_safetensors(os.path.join(f, "model.safetensors")) for f in (again, os.path.join(folder, "once"))), loaded(os.path.join(folder, "shards"))
    check(x.keys() == y.keys() == single.keys() and z == x, "names")
    # one is missing, one has another shape
    for name, change, says in (("missing", lambda t: t.pop("model.layers.1.mlp.experts.2.up_proj.weight"), "no tensor 'model.layers.1.mlp.experts.2.up_proj.weight' there, of 'model.layers.1.mlp.experts.gate_up_proj'"),
                               ("shape", lambda t: t.update({"model.layers.1.mlp.experts.1.down_proj.weight": ("F32", [12, 16], t["model.layers.1.mlp.experts.1.down_proj.weight"][2])}),
                                "'model.layers.1.mlp.experts.1.down_proj.weight' is F32 [12,16], where 'model.layers.1.mlp.experts.down_proj' wants 1 of [16,12] of one dtype")):
        tensors = dict(single)
        change(tensors)
        path = os.path.join(folder, name + ".safetensors")
        write_safetensors(path, tensors)
        with open(data, "rb") as f:
            rc, _, err = command([programs["one"], "--data", "-", "--steps", "1", "--weights", path], stdin_file=f)
        check(rc == 1 and says in err, err)


def test_adapters_go_on_merged_and_apart():
    """After two steps: the merged matrices in the plain model, and the adapters beside the published weights, have the next loss."""
    folder, hf, data, plain, lora = whole_way()
    merged, apart = os.path.join(folder, "merged", ""), os.path.join(folder, "apart", "")
    go(plain, data, 0, 1, folder, "--export", os.path.join(hf, "model.safetensors"))
    base = go(plain, data, 0, 1, folder, "--weights", hf)
    wanted = go(lora, data, 0, 3, folder, "--weights", hf)
    close(wanted[:1], base, 1e-6, "adapters of zeros change nothing")
    go(lora, data, 0, 2, folder, "--weights", hf, "--export", merged)
    go(lora, data, 0, 2, folder, "--weights", hf, "--export", apart, "--export-adapters")
    names = set(read_safetensors(merged + "model.safetensors"))
    check(names == set(read_safetensors(os.path.join(hf, "model.safetensors"))), "merged: %s" % sorted(names))
    frozen = read_safetensors(os.path.join(hf, "model.safetensors"))["model.norm.weight"]
    check(frozen == read_safetensors(merged + "model.safetensors")["model.norm.weight"], "frozen parameters stay")
    close(go(plain, data, 2, 1, folder, "--weights", merged), wanted[2:], 2e-6, "merged")
    adapters = read_safetensors(apart + "adapter_model.safetensors")
    check(len(adapters) == 28 and all(k.startswith("base_model.model.model.layers.") for k in adapters), sorted(adapters))
    config = json.load(open(apart + "adapter_config.json"))
    check((config["peft_type"], config["r"], len(config["target_modules"])) == ("LORA", 3, 14) and abs(config["lora_alpha"] - 5) < 1e-6, config)
    together = go(lora, data, 2, 1, folder, "--weights", os.path.join(hf, "model.safetensors"), apart + "adapter_model.safetensors", "--weights-map", "base_model.model.*=*")
    close(together, wanted[2:], 2e-6, "apart")
    return "losses %s" % ", ".join("%.6f" % x for x in wanted)


def test_refusals():
    folder = scratch("import_refusals")
    lua = os.path.join(folder, "m.lua")

    def refused(says, given, out=lua):
        rc, said, err = command([SHARDC, "import", given, "-o", out], cwd=folder)
        check(rc in (1, 2) and not said and says in err and err.count("\n") == 1, "%s: exit %d: %s%s" % (says, rc, said, err))

    def text(t):
        path = os.path.join(folder, "text.json")
        open(path, "w").write(t)
        return path

    refused("huggingface-cli download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B", "meta-llama/Llama-3.2-1B")
    refused("cannot read ./nothing: No such file", "./nothing")
    refused("config.json: No such file or directory; give the folder that save_pretrained wrote", folder)
    refused("text.json:2: no JSON object", text('{"a": 1,\n oh}'))
    refused("it has no model_type; known are bert, clip, cohere2", text("{}"))
    refused("model_type 'mamba' has no family here; there are bert", text('{"model_type": "mamba"}'))
    refused("model_type '../../tests' has no family here", text('{"model_type": "../../tests"}'))
    refused("model_type 'decoder' has no family here", text('{"model_type": "decoder"}'))
    refused("is a number that no double holds", text('{"model_type": "llama", "rope_theta": 1e999}'))
    refused("is nested deeper than 8 levels", text('{"model_type": "llama", "a": ' + "[" * 12 + "]" * 12 + "}"))
    refused("import writes a .lua file: -o NAME.lua, not m.txt", folder_of(folder, model_type="llama"), "m.txt")
    for fields, says in ((dict(foo=3), "m.lua:5: config.json: foo = 3: no field of model_type \"llama\" that is known here; where it changes nothing, remove it"),
                         (dict(hidden_size="16"), "config.json: hidden_size = \"16\": it must be"),
                         (dict(attention_bias=1), "config.json: attention_bias = 1: it must be a boolean"),
                         (dict(hidden_size=None), "config.json: hidden_size is missing, and has no default"),
                         (dict(hidden_act="swish2"), "config.json: hidden_act = \"swish2\": known are \"silu\""),
                         (dict(quantization_config={"quant_method": "gptq"}), "quantization_config: weights that are stored quantized are not read"),
                         (dict(rope_scaling={"rope_type": "spiral"}), "rope_type = \"spiral\": known are default, linear, dynamic, yarn, longrope and llama3"),
                         (dict(rope_scaling={"rope_type": "linear", "turns": 2}), "turns = 2 of the rope: not known here"),
                         (dict([('a"] = os.exit() --[[', 1)]), "no field of model_type \"llama\""),
                         (dict(note='"}\n os.exit(7) --'), 'no field of model_type "llama"')):
        refused(says, folder_of(folder, model_type="llama", **fields))
    own = os.path.join(folder, "own.lua")
    with open(own, "w") as f:
        f.write("return 3\n")
    refused("own.lua is there already, and shardc import did not write it", folder_of(folder, model_type="llama"), own)
    refused('hidden_act = "gelu": known are "silu"', folder_of(folder, model_type="mixtral", hidden_act="gelu"))
    gemma = dict(model_type="gemma3_text", head_dim=8, use_bidirectional_attention=True)
    refused("use_bidirectional_attention = true: this family is causal", folder_of(folder, **gemma))
    refused("layer_types has chunked_attention, but attention_chunk_size is null",
            folder_of(folder, model_type="llama4_text", attention_chunk_size=None, layer_types=["chunked_attention", "full_attention"]))
    for fields, says in ((dict(text_config=None), "text_config is missing: this family trains the text part of the model"),
                         (dict(text_config={}, tie_word_embeddings=True), "tie_word_embeddings = true: Llama 4's head is a matrix of its own; say so in text_config")):
        refused(says, folder_of(folder, model_type="llama4", **fields))
    for family, fields, says in (("bert", dict(is_decoder=True), "is_decoder = true: known are false"),
                                 ("bert", dict(max_position_embeddings=7, hidden_act="swish2"), 'hidden_act = "swish2": known are "gelu"'),
                                 ("vit", dict(id2label={"0": "one"}), "id2label has 1 labels: known are classes, of which there are two or more"),
                                 ("vit", dict(problem_type="regression"), 'problem_type = "regression": known are "single_label_classification"'),
                                 ("vit", dict(image_size=[1, 2, 3]), "image_size: it must be a whole number, or two in a list"),
                                 ("clip", dict(text_config=None), "text_config is missing"),
                                 ("clip", dict(NEEDED["clip"], text_config_dict={}), "text_config_dict: its fields stand over those of text_config in transformers"),
                                 ("t5", dict(NEEDED["t5"], relative_attention_max_distance=16), "relative_attention_max_distance = 16: it must be above half of relative_attention_num_buckets = 32"),
                                 ("t5", dict(feed_forward_proj="gated-spiral"), 'dense_act_fn = "spiral": known are "gelu"')):
        refused(says, folder_of(folder, model_type=family, **fields))
    for family, fields in (("bert", {}), ("clip", NEEDED["clip"])):
        must([SHARDC, "import", folder_of(folder, model_type=family, **fields), "-o", lua])
        rc, _, err = command([SHARDC, "verify", lua, "--set", "seq=1024"])
        check(rc == 1 and ", and seq = 1024: set a shorter seq" in err, err)
    # without its models beside it
    alone = os.path.join(folder, "alone")
    os.makedirs(alone)
    shutil.copy(SHARDC, alone)
    rc, _, err = command([os.path.join(alone, "shardc"), "import", folder_of(folder, model_type="llama"), "-o", lua], cwd=folder, env={"SHARDC_HOME": None})
    check(rc == 1 and "models/families is not beside shardc; set SHARDC_HOME" in err, err)
