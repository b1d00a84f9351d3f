"""DPO of all parameters of an imported family beside plain PyTorch (tests/golden/preferences.*): the reference is a frozen copy that
one folder of weights fills, which exports leave out and saved states keep.

Relies on: harness.py, test_import.py, tests/golden/preferences.{json,safetensors}. Relied on by: run.py."""
import json
import os
import re
import struct

from harness import ROOT, SHARDC, check, close, command, must, read_log, read_safetensors, scratch, steps, write_safetensors
from test_adapters import apart, part
from test_import import NEEDED, folder_of

GOLDEN = os.path.join(ROOT, "tests", "golden", "preferences")
OPTIONS = ["--set", "data=pairs", "--set", "seq=8", "--set", "clip=0", "--set", "beta=0.5"]
FIXED = ["--lr", "1e-2", "--warmup", "0", "--min-ratio", "1", "--total", "9", "--quiet"]


def made():
    """(numbers, tensors, folder, the model's file, the folder of its weights, data of its steps)"""
    with open(GOLDEN + ".json") as f:
        golden = json.load(f)
    tensors, folder = read_safetensors(GOLDEN + ".safetensors"), scratch("preferences")
    hf, data, lua = folder_of(folder, model_type="llama", torch_dtype="float32", **golden["config"]), os.path.join(folder, "records"), os.path.join(folder, "m.lua")
    write_safetensors(os.path.join(hf, "model.safetensors"), part(tensors, "before."))
    with open(data, "wb") as f:
        for step in zip(golden["ids"], golden["targets"]):
            for rows in step:
                f.write(struct.pack("<96i", *[t for sample in rows for row in sample for t in row]))
    must([SHARDC, "import", hf, "-o", lua])
    return golden, tensors, folder, lua, hf, data


def built(folder, lua, world, *options, name="program"):
    program = os.path.join(folder, "%s%d" % (name, world))
    must([SHARDC, "build", lua, "--world", str(world), "--set", "batch=%d" % (6 // world), *OPTIONS, *options, "-o", program])
    return program


def trained(program, data, folder, count, *args, first=0):
    log = os.path.join(folder, "log.jsonl")
    with open(data, "rb") as f:
        f.seek(first * 2 * 96 * 4)
        rc, _, err = command([program, "--data", "-", "--steps", str(count), "--log", log, *FIXED, *args], stdin_file=f)
    check(rc == 0, err)
    return steps(read_log(log))


def test_dpo_of_all_parameters_is_pytorchs():
    golden, tensors, folder, lua, hf, data = made()
    worst, first = [0, 0, 0], None
    for world in 1, 2, 3:
        out = os.path.join(folder, "out%d" % world, "")
        program = built(folder, lua, world)
        got = trained(program, data, folder, 5, "--weights", hf, "--export", out)
        losses, margins = ([x[k] for x in got] for k in ("loss", "margin"))
        close(losses, golden["losses"], 1e-5, "losses on %d ranks" % world)
        exported = read_safetensors(out + "model.safetensors")
        far = [max(abs(x - y) for x, y in zip(a, b)) for a, b in ((losses, golden["losses"]), (margins, golden["margins"]))] + [apart(exported, part(tensors, "after."), "weights")]
        check(max(far) < 1e-5, "%d ranks: losses, margins and weights are %s away" % (world, far))
        worst = [max(x, y) for x, y in zip(worst, far)]
        # a saved state keeps both
        state = os.path.join(folder, "state%d" % world)
        half = trained(program, data, folder, 2, "--weights", hf, "--save", state)
        on = trained(program, data, folder, 5, "--resume", state, "--export", out)
        on = [x["loss"] for x in half if x["step"] < on[0]["step"]] + [x["loss"] for x in on]
        check(on == losses and read_safetensors(out + "model.safetensors") == exported, "%d ranks: resumed: %s, not %s" % (world, on, losses))
        if world == 2:
            same = trained(built(folder, lua, 2, "--set", "recompute=full", "--set", "offload=state", name="moved"), data, folder, 5, "--weights", hf)
            check([x["loss"] for x in same] == losses, "recompute and offload change bits")
    # what is exported is read again; without weights both begin at random, as one
    again = trained(built(folder, lua, 1), data, folder, 1, "--weights", os.path.join(folder, "out1"))
    check(again[0]["margin"] == 0 and abs(again[0]["loss"] - golden["losses"][0]) < 1e-6, "an export is read again: %s" % again)
    for world in 1, 3:
        random = trained(built(folder, lua, world), data, folder, 2)
        check(random[0]["margin"] == 0 and random[1]["margin"] != 0, "at random: %s" % random)
    # in bf16 the copy is kept so: rounded once, as gathered weights are
    narrow = trained(built(folder, lua, 2, "--set", "precision=bf16", name="narrow"), data, folder, 2, "--weights", hf)
    check(narrow[0]["margin"] == 0, "bf16: %s" % narrow)
    return "losses within %.1e, margins within %.1e, weights within %.1e" % tuple(worst)


def test_the_reference_is_counted():
    """It takes its values alone: no moments, no gradients. In bf16 2 bytes a parameter."""
    _, tensors, folder, lua, _, _ = made()
    count = sum(len(t[2]) // 4 for t in part(tensors, "before.").values())
    for precision, size in ("fp32", 4), ("bf16", 2):
        said = must([SHARDC, "predict", lua, "--by", "unit", "--set", "batch=2", *OPTIONS, "--set", "precision=" + precision])
        own = re.findall(r"^ *[\d,]+  reference\S*(?: \((\d+) × [\d,]+\))?\n +parameters ([\d,]+)$", said, re.M)
        held = sum(int(n or 1) * int(size.replace(",", "")) for n, size in own)
        check(len(own) == 4, said)
        check(count * size <= held < count * size + 3 * 1024 * size, "%s: %d bytes of %d parameters" % (precision, held, count))


def test_experts_have_references():
    """Files name experts one by one, or the decoder within a larger model; both begin as one."""
    folder = scratch("experts")
    _, _, _, _, _, data = made()
    for family in "mixtral", "deepseek_v3", "llama4", "gpt_oss":
        hf, lua = folder_of(folder, family, model_type=family, torch_dtype="float32", **NEEDED[family]), os.path.join(folder, family + ".lua")
        must([SHARDC, "import", hf, "-o", lua])
        program, out = built(folder, lua, 2, name=family), os.path.join(folder, family + "-out", "")
        trained(program, data, folder, 1, "--seed", "5", "--export", os.path.join(hf, ""))
        got = trained(program, data, folder, 2, "--seed", "6", "--weights", hf, "--export", out)
        check(got[0]["margin"] == 0 and got[1]["margin"] != 0, "%s: %s" % (family, got))
        names = [set(read_safetensors(f + "/model.safetensors")) for f in (hf, out)]
        check(names[0] == names[1] and not any("reference" in k for k in names[0]), "%s: %s" % (family, sorted(names[1])[:3]))
