"""DiT, a folder of diffusers: its loss and gradients beside diffusers' numbers, noise that the program draws, files by diffusers' names.

Numbers of random configurations: tests/golden/families.py. Relies on: harness.py, tests/golden/dit.py, models/families/dit.lua. Relied on by: run.py."""
import importlib.util
import json
import os
import struct

from harness import ROOT, SHARDC, check, close, command, losses, must, read_log, read_safetensors, scratch, write_safetensors

spec = importlib.util.spec_from_file_location("golden_dit", os.path.join(ROOT, "tests", "golden", "dit.py"))
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

CLASS = {"_class_name": "DiTTransformer2DModel", "_diffusers_version": "0.35.0"}
FILE = "diffusion_pytorch_model.safetensors"
DIFFUSERS = {"linear": (1.21713996, 3.32700922), "scaled": (1.21461926, 3.30714734)}  # loss and norm of all gradients in fp64, as tests/golden/dit.py prints them


def folder_of(folder, name="hf", **fields):
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(dict(fields), f)
    return path


def floats(x):
    return struct.pack("<%df" % len(x), *x)


def arrays(folder, labels=golden.LABELS):
    """The records of golden/dit.py as a file of arrays."""
    path, shape, n = os.path.join(folder, "train.safetensors"), [golden.ROWS, 4, 6, 6], golden.ROWS
    latents, noise = golden.records()
    write_safetensors(path, {"latents": ("F32", shape, floats(latents)), "labels": ("I32", [n], struct.pack("<%di" % n, *labels)),
                             "noise": ("F32", shape, floats(noise)), "timesteps": ("I32", [n], struct.pack("<%di" % n, *golden.TIMES))})
    return path


def drawn(folder, labels=golden.LABELS):
    path = arrays(folder, labels)
    write_safetensors(path, {k: t for k, t in read_safetensors(path).items() if k in ("latents", "labels")})
    return path


def program(folder, lua, name, world, *settings):
    path = os.path.join(folder, name)
    must([SHARDC, "build", lua, "--world", str(world), *sum((["--set", s] for s in ["clip=0", "batch=%d" % (golden.ROWS // world), *settings]), []), "-o", path])
    return path


def go(folder, binary, data, steps, *args):
    log = os.path.join(folder, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    must([binary, "--data", data, "--steps", str(steps), "--warmup", "0", "--min-ratio", "1", "--seed", "3", "--lr", "1e-2", "--log", log, *args])
    return read_log(log)


def prepared(name):
    """A folder as diffusers writes it, with the weights of golden/dit.py, and its model."""
    folder = scratch(name)
    hf, lua = folder_of(folder, **CLASS, **golden.CONFIG), os.path.join(folder, "m.lua")
    said = must([SHARDC, "import", hf, "-o", lua])
    check("m.lua: dit of " in said and "latents          fp32[N,4,6,6]" in said and "labels           int32[N]" in said and "  noise " not in said, said)
    one, data = program(folder, lua, "one", 1, "class_dropout=0", "noise=records"), arrays(folder)
    go(folder, one, data, 0, "--export", os.path.join(hf, FILE))
    shapes = {k: t[1] for k, t in read_safetensors(os.path.join(hf, FILE)).items()}
    write_safetensors(os.path.join(hf, FILE), {k: ("F32", shapes[k], floats(x)) for k, x in golden.weights(shapes).items()})
    return folder, hf, lua, one, data


def test_numbers_are_diffusers():
    folder, hf, lua, _, data = prepared("dit_numbers")
    for name, settings in golden.SETTINGS.items():
        for world in 1, 2:
            binary = program(folder, lua, "%s%d" % (name, world), world, "class_dropout=0", "noise=records", *settings)
            told = go(folder, binary, data, 1, "--weights", hf)[0]
            close([told["loss"], told["grad_norm"]], DIFFUSERS[name], 2e-6, "%s, world %d" % (name, world))


def test_a_folder_of_diffusers_comes_out():
    """--export DIR/ writes what diffusers' from_pretrained loads, one file or shards, and the program reads them."""
    folder, hf, lua, one, data = prepared("dit_export")
    out, again = os.path.join(folder, "out", ""), os.path.join(folder, "again", "")
    want = losses(go(folder, one, data, 3, "--weights", hf))
    go(folder, one, data, 1, "--lr", "0", "--weights", hf, "--export", out)
    check(sorted(os.listdir(out)) == ["config.json", FILE], os.listdir(out))
    check(read_safetensors(out + FILE) == read_safetensors(os.path.join(hf, FILE)), "untouched weights")
    check(json.load(open(out + "config.json")) == dict(CLASS, **golden.CONFIG), "config.json")
    check(losses(go(folder, one, data, 3, "--weights", out)) == want, "read back")
    go(folder, one, data, 1, "--lr", "0", "--weights", hf, "--export", out, "--export-shard-size", "20KB")
    index = json.load(open(out + FILE + ".index.json"))
    files = sorted(name for name in os.listdir(out) if name.endswith(".safetensors"))
    check(len(files) > 1 and files == sorted(set(index["weight_map"].values())) == ["diffusion_pytorch_model-%05d-of-%05d.safetensors" % (i + 1, len(files)) for i in range(len(files))], files)
    check(losses(go(folder, one, data, 3, "--weights", out, "--export", again)) == want, "shards read back")
    rc, _, err = command([one, "--data", data, "--steps", "0", "--weights", hf, "--export", out])
    check(rc == 0 and sorted(os.listdir(out)) == ["config.json", FILE], "one file takes the shards' place: %s%s" % (err, os.listdir(out)))
    trained, begun = read_safetensors(again + FILE), read_safetensors(os.path.join(hf, FILE))
    check(all(trained[k] != begun[k] for k in begun if "norm1.emb" not in k), "what does not train: %s" % [k for k in begun if trained[k] == begun[k]])


def test_noise_is_drawn():
    """The recipe: noise, timesteps and dropped classes by each step, the same on two ranks and after a resume; an average of the weights."""
    folder, hf, lua, _, _ = prepared("dit_noise")
    data, state = drawn(folder), os.path.join(folder, "state")
    recipe = "ema=0.5", "class_dropout=0.5"
    one, two, full = program(folder, lua, "drawn1", 1, *recipe), program(folder, lua, "drawn2", 2, *recipe), program(folder, lua, "full", 1, "recompute=full", *recipe)
    want = losses(go(folder, one, data, 4, "--weights", hf))
    check(len(set(want)) == 4, want)
    close(losses(go(folder, two, data, 4, "--weights", hf)), want, 2e-5, "two ranks")
    check(losses(go(folder, full, data, 4, "--weights", hf)) == want, "recomputed")
    go(folder, one, data, 2, "--weights", hf, "--save", state)
    for way, args in (("last", []), ("mean", ["--ema"])):
        check(losses(go(folder, one, data, 4, "--resume", state, "--export", os.path.join(folder, way, ""), "--export-like", hf, *args)) == want[2:], "resumed")
    check(read_safetensors(os.path.join(folder, "last", FILE)) != read_safetensors(os.path.join(folder, "mean", FILE)), "--ema exports the average")
    # classes: all are dropped, none is
    for share, same in ("1", True), ("0", False):
        binary = program(folder, lua, "classes" + share, 1, "class_dropout=" + share)
        a, b = (losses(go(folder, binary, drawn(folder, labels), 1, "--weights", hf)) for labels in (golden.LABELS, [2, 0, 0, 1]))
        check((a == b) == same, "class_dropout=%s: %s %s" % (share, a, b))
    # the variance has no gradient
    plain, out = program(folder, lua, "plain", 1), os.path.join(folder, "plain-out", "")
    go(folder, plain, drawn(folder), 2, "--weights", hf, "--weight-decay", "0", "--export", out)
    rows = [[read_safetensors(os.path.join(f, FILE))["proj_out_2.weight"][2][64 * i:64 * (i + 1)] for i in range(32)] for f in (hf, out)]
    check([a == b for a, b in zip(*rows)] == ([False] * 4 + [True] * 4) * 4, "rows of proj_out_2")


def test_refusals():
    folder = scratch("dit_refusals")
    for fields, says in ((dict(norm_type="layer_norm"), 'norm_type = "layer_norm": known are "ada_norm_zero"'),
                         (dict(activation_fn="relu"), 'activation_fn = "relu": known are "geglu", "geglu-approximate", "gelu", "gelu-approximate", "linear-silu", "swiglu"'),
                         (dict(num_embeds_ada_norm=None), "num_embeds_ada_norm: it must be a whole number"),
                         (dict(cross_attention_dim=768), "cross_attention_dim = 768: this family has attention among patches and classes alone; it must be null"),
                         (dict(only_cross_attention=True), "only_cross_attention = true: known are false"),
                         (dict(attention_type="gated"), 'attention_type = "gated": known are "default"'),
                         (dict(attention_head_dim=5), "num_attention_heads x attention_head_dim = 10: positions need a multiple of 4"),
                         (dict(sample_size=7), "sample_size = 7 is no multiple of patch_size = 2"),
                         (dict(out_channels=5), "out_channels = 5: known are in_channels = 4, the noise, and twice as many"),
                         (dict(depth=5), 'depth = 5: no field of model_type "DiTTransformer2DModel" that is known here'),
                         (dict(_class_name="Transformer2DModel"), "norm_type is missing, and has no default"),
                         (dict(_class_name="UNet2DModel"), "it has no model_type; known are bert")):
        rc, said, err = command([SHARDC, "import", folder_of(folder, **dict(CLASS, **golden.CONFIG) | fields), "-o", os.path.join(folder, "m.lua")])
        check(rc == 1 and not said and says in err and err.count("\n") == 1, "%s: exit %d: %s%s" % (says, rc, said, err))
    # as the class was called once, every field there
    old = dict(CLASS, **golden.CONFIG, _class_name=None) | dict(_class_name="Transformer2DModel", norm_type="ada_norm_zero", attention_bias=True, activation_fn="gelu-approximate",
                                                               norm_elementwise_affine=False, cross_attention_dim=None, num_vector_embeds=None, only_cross_attention=False,
                                                               use_linear_projection=False, upcast_attention=False, norm_num_groups=32)
    must([SHARDC, "import", folder_of(folder, **old), "-o", os.path.join(folder, "m.lua")])
