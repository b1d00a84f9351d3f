"""DeepSeek-V3's multi-token prediction beside its report's formulas in PyTorch (tests/golden/predictors.*): losses and gradients of plain
tokens and of documents that share rows; the layers come from a folder and go into one.

Relies on: harness.py, test_import.py, tests/golden/predictors.{json,safetensors}. Relied on by: run.py."""
import json
import os
import re
import struct

from harness import ROOT, SHARDC, check, command, floats, must, read_log, read_safetensors, read_state, scratch, steps, write_safetensors
from test_adapters import part
from test_import import folder_of

GOLDEN = os.path.join(ROOT, "tests", "golden", "predictors")


def made():
    with open(GOLDEN + ".json") as f:
        golden = json.load(f)
    tensors, folder = read_safetensors(GOLDEN + ".safetensors"), scratch("predictors")
    hf, lua = folder_of(folder, model_type="deepseek_v3", torch_dtype="float32", **golden["config"]), os.path.join(folder, "m.lua")
    write_safetensors(os.path.join(hf, "model.safetensors"), part(tensors, "before."))
    for case, names in (("tokens", ("tokens", "targets")), ("chat", ("tokens", "targets", "documents"))):
        with open(os.path.join(folder, case), "wb") as f:
            f.write(b"".join(struct.pack("<48i", *sum(golden[case][name], [])) for name in names))
    said = must([SHARDC, "import", hf, "-o", lua])
    return golden, tensors, folder, hf, lua, said


def built(folder, lua, world, *options):
    program = os.path.join(folder, "program%d" % world)
    must([SHARDC, "build", lua, "--world", str(world), *sum((["--set", x] for x in ("seq=8", "clip=0", "batch=%d" % (6 // world), *options)), []), "-o", program])
    return program


def trained(program, data, folder, *args):
    log = os.path.join(folder, "log.jsonl")
    with open(data, "rb") as f:
        rc, said, err = command([program, "--data", "-", "--steps", "1", "--lr", "1e-2", "--warmup", "0", "--seed", "3", "--log", log, *args], stdin_file=f)
    check(rc == 0, err)
    return steps(read_log(log))[0], said + err


def gradients(state):
    """From the first moments after one step, which are 1 - beta1 of the gradients."""
    pieces = {}
    for (_, name), tensor in read_state(state)[1].items():
        found = re.match(r"(.*)@\[(\d+),\d+\)#moment1$", name)
        if found:
            pieces.setdefault(found[1], {})[int(found[2])] = floats(tensor)
    return {k: [x / (1 - 0.9) for _, piece in sorted(v.items()) for x in piece] for k, v in pieces.items()}


def test_predictors_are_the_reports():
    golden, tensors, folder, hf, lua, _ = made()
    worst = [0, 0]
    for case in "tokens", "chat":
        want = {k: floats(t) for k, t in part(tensors, case + ".").items()}
        for world, options in (1, []), (2, ["head=chunks"]), (3, ["recompute=full"]):
            state = os.path.join(folder, "state-%s%d" % (case, world))
            got, _ = trained(built(folder, lua, world, "mtp=0.3", "data=" + case, *options), os.path.join(folder, case), folder, "--weights", hf, "--save", state)
            far = max(abs(got[k] / golden[case][k] - 1) for k in ("loss", "mtp"))
            check(far < 1e-5, "%s on %d ranks: losses %s, not %s" % (case, world, got, golden[case]["mtp"]))
            found = gradients(state)
            check(found.keys() == want.keys(), "gradients of %s" % sorted(found.keys() ^ want.keys()))
            for k in want:
                size = max(map(abs, want[k]))
                apart = max(abs(x - y) for x, y in zip(found[k], want[k])) / max(size, 1e-3)
                check(apart < 1e-5, "%s on %d ranks: the gradient of %s is %.1e away of %.1e" % (case, world, k, apart, size))
                worst[1] = max(worst[1], apart)
            worst[0] = max(worst[0], far)
    return "losses within %.1e, gradients within %.1e" % tuple(worst)


def test_predictors_go_in_and_out():
    """By their names, experts one by one. Copies of the embedding and the head that the file has are left out; without mtp the layers are."""
    golden, _, folder, hf, lua, said = made()
    data, out = os.path.join(folder, "tokens"), os.path.join(folder, "out", "")
    program = built(folder, lua, 2, "mtp=0.3")
    trained(program, data, folder, "--weights", hf, "--lr", "0", "--export", out)
    names = read_safetensors(out + "model.safetensors")
    check("model.layers.3.mlp.experts.3.down_proj.weight" in names and "model.layers.2.shared_head.norm.weight" in names, "exported: %s" % sorted(names)[-9:])
    check(not any(k.startswith(("model.layers.2.embed", "model.layers.3.shared_head.head")) for k in names), "copies are exported")
    with open(out + "config.json") as f:
        check(json.load(f)["num_nextn_predict_layers"] == 2, "config.json")
    whole = dict(names)
    for i in 2, 3:
        whole["model.layers.%d.embed_tokens.weight" % i] = names["model.embed_tokens.weight"]
        whole["model.layers.%d.shared_head.head.weight" % i] = names["lm_head.weight"]
    write_safetensors(os.path.join(hf, "model.safetensors"), whole)
    got, told = trained(program, data, folder, "--weights", hf, "--export", out)
    check(abs(got["loss"] / golden["tokens"]["loss"] - 1) < 1e-5 and "copies that the model makes itself" in told, told)
    # what import prints is what runs: without mtp
    count = sum(len(t[2]) // 4 for k, t in names.items() if not re.match(r"model\.layers\.[23]\.|.*correction_bias", k))
    check(" %s parameters" % format(count, ",") in said and "2 layers of multi-token prediction" in said and "--weights-partial" in said, "%d parameters: %s" % (count, said))
    got, told = trained(built(folder, lua, 1), data, folder, "--weights", hf, "--weights-partial")
    check(abs(got["loss"] / golden["tokens"]["first"] - 1) < 1e-5 and "mtp" not in got, "%s %s" % (got, told))
    for options, want in (["mtp=0.3", "data=pairs"], "mtp is of data=tokens and data=chat"), (["mtp=-1"], "mtp = -1: a weight of a loss is 0 or more"):
        rc, _, err = command([SHARDC, "predict", lua, *sum((["--set", x] for x in options), [])])
        check(rc == 1 and want in err, err)
    none = os.path.join(folder, "none.lua")
    with open(lua) as f, open(none, "w") as g:
        g.write(f.read().replace("num_nextn_predict_layers = 2", "num_nextn_predict_layers = 0"))
    rc, _, err = command([SHARDC, "predict", none, "--set", "mtp=0.3"])
    check(rc == 1 and "num_nextn_predict_layers = 0: --set mtp=0.3 trains such layers; write how many there are" in err, err)
    return "%d tensors" % len(names)
