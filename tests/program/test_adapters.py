"""Adapters beside peft (tests/golden/adapters.*): the losses of five steps, the adapters after them, and the merged matrices, on one rank and on two.

Relies on: harness.py, test_import.py, tests/golden/adapters.{json,safetensors}. Relied on by: run.py, test_diagnostics.py."""
import json
import os
import struct

from harness import ROOT, SHARDC, check, close, command, floats, must, read_safetensors, scratch, write_safetensors
from test_import import folder_of, go

GOLDEN = os.path.join(ROOT, "tests", "golden", "adapters")
NAMES = ["--weights-map", "base_model.model.*=*"]
OPTIONS = ["--set", "seq=8", "--set", "clip=0", "--set", "lora=3", "--set", "lora_alpha=5"]


def part(tensors, prefix):
    return {k[len(prefix):]: t for k, t in tensors.items() if k.startswith(prefix)}


def apart(a, b, what):
    """The largest distance of an element, of two sets of tensors by the same names."""
    check(a.keys() == b.keys(), "%s: %s" % (what, sorted(a.keys() ^ b.keys())))
    return max(abs(x - y) for k in a for x, y in zip(floats(a[k]), floats(b[k])))


def as_peft(case, *options):
    """Trains as the golden file's case did, on one rank and on two."""
    with open(GOLDEN + ".json") as f:
        golden = json.load(f)
    tensors, folder = read_safetensors(GOLDEN + ".safetensors"), scratch(case)
    hf, data, lua = folder_of(folder, model_type="llama", torch_dtype="float32", **golden["config"]), os.path.join(folder, "records"), os.path.join(folder, "m.lua")
    base, before = os.path.join(hf, "model.safetensors"), os.path.join(folder, "before.safetensors")
    write_safetensors(base, part(tensors, "base."))
    write_safetensors(before, part(tensors, case + ".before."))
    with open(data, "wb") as f:
        for step in golden["tokens"]:
            for shift in (0, 1):
                f.write(struct.pack("<16i", *[t for row in step for t in row[shift:shift + 8]]))
    must([SHARDC, "import", hf, "-o", lua])
    worst = [0, 0, 0]
    for world in 1, 2:
        program, merged, alone = (os.path.join(folder, "%s%d" % (name, world)) for name in ("program", "merged", "alone"))
        must([SHARDC, "build", lua, "--world", str(world), "--set", "batch=%d" % (2 // world), *OPTIONS, *options, "-o", program])
        start = ["--weights", base, before, *NAMES]
        losses = go(program, data, 0, 5, folder, *start, "--export", merged + "/")
        check(go(program, data, 0, 5, folder, *start, "--export", alone + "/", "--export-adapters") == losses, "the same losses again")
        close(losses, golden["losses"][case], 1e-5, "losses on %d ranks" % world)
        after, whole = (read_safetensors(os.path.join(f, n + ".safetensors")) for f, n in ((alone, "adapter_model"), (merged, "model")))
        matrices = {k: t for k, t in whole.items() if k.endswith("_proj.weight")}
        far = [max(abs(x - y) for x, y in zip(losses, golden["losses"][case])), apart(after, part(tensors, case + ".after."), "adapters"),
               apart(matrices, part(tensors, case + ".merged."), "merged")]
        check(far[1] < 1e-5 and far[2] < 1e-5, "%d ranks: adapters %.1e, merged %.1e away" % (world, *far[1:]))
        worst = [max(x, y) for x, y in zip(worst, far)]
    return folder, program, data, alone, base, "losses within %.1e, adapters within %.1e, merged within %.1e" % tuple(worst)


def test_lora_is_pefts():
    return as_peft("lora")[-1]


def test_dora_is_pefts():
    """And merges exactly what it exports: one more step from the adapters has the loss that one from the merged matrices has."""
    folder, program, data, alone, base, said = as_peft("dora", "--set", "dora=true")
    with open(os.path.join(alone, "adapter_config.json")) as f:
        check(json.load(f)["use_dora"] is True, "adapter_config.json")
    adapters = os.path.join(alone, "adapter_model.safetensors")
    again = os.path.join(folder, "again", "")
    go(program, data, 0, 0, folder, "--weights", base, adapters, *NAMES, "--export", again, "--export-adapters")
    a, b = read_safetensors(adapters), read_safetensors(again + "adapter_model.safetensors")
    check(apart(a, b, "adapters") < 1e-6, "in and out again")
    # one state goes on from another
    whole = go(program, data, 0, 5, folder, "--weights", base, adapters, *NAMES)
    first = go(program, data, 0, 2, folder, "--weights", base, adapters, *NAMES, "--save", os.path.join(folder, "state"))
    with open(data, "rb") as f:
        rc, _, err = command([program, "--data", "-", "--steps", "5", "--lr", "1e-2", "--warmup", "0", "--min-ratio", "1", "--seed", "3", "--log", folder + "/log.jsonl",
                              "--resume", os.path.join(folder, "state")], stdin_file=f)
    check(rc == 0 and first == whole[:2] and json.loads([x for x in open(folder + "/log.jsonl") if '"loss"' in x][-1])["loss"] == whole[4], "resumed: %s" % err)
    with open(data, "rb") as f:
        rc, _, err = command([program, "--data", "-", "--steps", "1", "--weights", adapters, *NAMES, "--weights-partial"], stdin_file=f)
    check(rc == 1 and "lora_magnitude_vector' are the lengths of rows of 'model.layers.0.self_attn.q_proj.weight' with its adapter: name the file of that matrix" in err, err)
    return said


def trained(folder, name, lua, data, world, options, *args):
    """(losses of three steps, the matrices that it exports) of a program of its own."""
    program, out = os.path.join(folder, name), os.path.join(folder, name + "-out", "")
    must([SHARDC, "build", lua, "--world", str(world), "--set", "batch=%d" % (2 // world), *OPTIONS, *options, "-o", program])
    return go(program, data, 0, 3, folder, *args, "--export", out), read_safetensors(out + "model.safetensors")


def test_int8_is_pytorchs():
    """Frozen matrices in int8, beside a model whose matrices were rounded so. Recompute changes no bit; what begins at random, and bf16 with the lengths
    of rows, go out and in again."""
    folder, program, data, alone, base, said = as_peft("int8", "--set", "frozen=int8")
    lua, int8, adapters = os.path.join(folder, "m.lua"), ["--set", "frozen=int8"], os.path.join(folder, "before.safetensors")
    start = ["--weights", base, adapters, *NAMES]
    plain, _ = trained(folder, "whole", lua, data, 2, int8, *start)
    for name, option in (("recompute", "recompute=full"), ("offload", "offload=state")):
        check(trained(folder, name, lua, data, 2, [*int8, "--set", option], *start)[0] == plain, "%s changes bits" % name)
    # at random: what is exported before a step is what the program computes with
    first = os.path.join(folder, "first.safetensors")
    random, out = trained(folder, "random", lua, data, 2, int8, "--export", first)
    go(os.path.join(folder, "random"), data, 0, 0, folder, "--export", first)
    values = floats(read_safetensors(first)["model.layers.0.mlp.up_proj.weight"])
    deviation = (sum(x * x for x in values) / len(values)) ** 0.5
    check(len(set(values)) > 60 and abs(deviation / 0.02 - 1) < 0.15 and max(map(abs, values)) <= 0.08 * (1 + 1e-6), "initial values: deviation %g" % deviation)
    again, _ = trained(folder, "again", lua, data, 1, [], "--weights", first)
    close(again[:1], random[:1], 1e-5, "what was exported at random")
    # in 16 bits, with DoRA: rounding apart, as in fp32
    wide, merged = trained(folder, "wide", lua, data, 1, [*int8, "--set", "dora=true"], "--weights", base)
    for world in 1, 2:
        narrow, out = trained(folder, "narrow%d" % world, lua, data, world, [*int8, "--set", "dora=true", "--set", "precision=bf16"], "--weights", base)
        close(narrow, wide, 2e-2, "bf16 on %d ranks" % world)
    must([SHARDC, "build", lua, "--world", "2", "--set", "batch=1", *OPTIONS, *int8, "--set", "dora=true", "-o", os.path.join(folder, "both")])
    go(os.path.join(folder, "wide"), data, 0, 2, folder, "--weights", base, "--save", os.path.join(folder, "state"), "--export", os.path.join(folder, "lengths", ""), "--export-adapters")
    on = go(os.path.join(folder, "both"), data, 2, 1, folder, "--weights", base, os.path.join(folder, "lengths", "adapter_model.safetensors"), *NAMES)
    close(on, wide[2:], 1e-5, "lengths of rows in int8, out and in again")
    with open(data, "rb") as f:
        rc, _, err = command([os.path.join(folder, "both"), "--data", "-", "--steps", "3", "--lr", "1e-2", "--warmup", "0", "--min-ratio", "1", "--seed", "3", "--log", folder + "/log.jsonl",
                              "--resume", os.path.join(folder, "state")], stdin_file=f)
    check(rc == 0, err)
    close([json.loads([x for x in open(folder + "/log.jsonl") if '"loss"' in x][-1])["loss"]], wide[2:], 1e-6, "a checkpoint of one rank on two")
    tensors = read_safetensors(base)
    tensors["model.layers.0.mlp.up_proj.weight"] = ("I8", [24, 16], bytes(24 * 16))
    write_safetensors(first, tensors)
    with open(data, "rb") as f:
        rc, _, err = command([program, "--data", "-", "--steps", "1", "--weights", first], stdin_file=f)
    check(rc == 1 and "'model.layers.0.mlp.up_proj.weight' is I8 there, which does not convert to int8; integers are mostly quantized weights" in err, err)
    return said
