"""Arrays of a model's inputs as data: .npy, .npz and safetensors, one row a sample. The same samples give the same bits as token files
do, whatever the arrays' form; runs resume and validate on them; what is wrong with a file is said with its name and row.

Relies on: harness.py, models/mlp.lua. Relied on by: run.py, test_diagnostics.py."""
import json
import math
import os
import random
import struct
import zipfile

from harness import build, check, command, corpus, losses, must, read_log, read_safetensors, read_state, scratch, write_safetensors

SEQ = 32


def npy(kind, shape, values, fortran=False, version=1):
    """A .npy of numpy's dtype `kind` ("<i4", ">u2", "<f4", "|b1")."""
    letter = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f2": "e", "f4": "f", "f8": "d", "b1": "?"}[kind[1:]]
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (kind, fortran, "".join("%d, " % n for n in shape))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(head)) + head.encode() + struct.pack("%s%d%s" % (">" if kind[0] == ">" else "<", len(values), letter), *values)


def put(path, blob):
    with open(path, "wb") as f:
        f.write(blob)
    return path


def samples(n=None):
    """The windows that a program cuts from the corpus, as [tokens], [targets]."""
    blob = open(corpus(), "rb").read()[1024:]
    found = struct.unpack("<%dH" % (len(blob) // 2), blob)
    rows = [found[at:at + SEQ + 1] for at in range(0, len(found) - SEQ, SEQ)][:n]
    return [r[:-1] for r in rows], [r[1:] for r in rows]


def flat(rows):
    return [x for r in rows for x in r]


def logged(binary, folder, name, *args):
    log = os.path.join(folder, name + ".jsonl")
    out = must([binary, "--log", log, *args])
    return losses(read_log(log)), out


def test_every_form_gives_the_bits_of_token_files():
    folder, binary = scratch("arrays"), build("mlp.lua", world=2)
    tokens, targets = samples()
    n, half = len(tokens), len(tokens) // 2
    here = lambda name: os.path.join(folder, name)
    put(here("x.npy"), npy("<i4", (n, SEQ), flat(tokens)))
    put(here("y.npy"), npy("<i8", (n, SEQ), flat(targets)))
    put(here("x-0.npy"), npy("|u1", (half, SEQ), flat(tokens[:half])))
    put(here("x-1.npy"), npy(">u2", (n - half, SEQ), flat(tokens[half:])))
    for name, members in ("both.npz", (("tokens", tokens), ("targets", targets), ("other", tokens))), ("x.npz", (("tokens", tokens),)):
        with zipfile.ZipFile(here(name), "w") as z:
            for member, rows in members:
                with z.open(zipfile.ZipInfo(member + ".npy"), "w", force_zip64=True) as f:
                    f.write(npy("<u2", (n, SEQ), flat(rows)))
    put(here("long.npz"), open(here("both.npz"), "rb").read())
    with zipfile.ZipFile(here("long.npz"), "a") as z:
        z.comment = b"c" * 60000
    write_safetensors(here("both.safetensors"), {"tokens": ("I32", [n, SEQ], struct.pack("<%di" % (n * SEQ), *flat(tokens))), "targets": ("U8", [n, SEQ], bytes(flat(targets))),
                                                 "names": ("F32", [1], bytes(4))})
    want, _ = logged(binary, folder, "tokens", "--data", corpus(), "--steps", "12", "--seed", "5", "--val-data", corpus(), "--eval-steps", "3")
    forms = {
        "npy": ["tokens=" + here("x.npy"), "targets=" + here("y.npy")],
        "parts": ["targets=" + here("y.npy"), "tokens=" + here("x-*.npy")],
        "npz": [here("both.npz")],
        "comment": [here("long.npz")],
        "mixed": ["targets=" + here("y.npy"), here("x.npz")],
        "safetensors": [here("both.safetensors")],
    }
    val = [json.loads(line)["val_loss"] for line in open(here("tokens.jsonl")) if "val_loss" in line]
    for name, files in forms.items():
        option = "--records" if name == "npz" else "--data"
        got, said = logged(binary, folder, name, option, *files, "--steps", "12", "--seed", "5", "--val-data", *files, "--eval-steps", "3")
        check(got == want, "%s: losses %s, not %s" % (name, got, want))
        check([json.loads(line)["val_loss"] for line in open(here(name + ".jsonl")) if "val_loss" in line] == val, name + ": val_loss")
        check("%d samples; an epoch is" % n in said.replace(",", "") and "the first 24 of %d samples" % n in said.replace(",", ""), said)
    for file, name in ("both.npz", "other.npy"), ("both.safetensors", "names"):
        _, _, err = command([binary, "--data", here(file), here(file), "--steps", "0"])
        check(err.count("'%s' is left out: no input of the model has this name" % name.removesuffix(".npy")) == 1, err)
    log = here("piped.jsonl")
    with open(here("records"), "wb") as f: # two steps of 16 samples, in an order of its own
        for rows in tokens[:16], targets[:16], tokens[16:32], targets[16:32]:
            f.write(struct.pack("<%di" % (16 * SEQ), *flat(rows)))
    with open(here("records"), "rb") as f:
        must([binary, "--data", "-", "--steps", "2", "--seed", "5", "--val-data", here("both.npz"), "--eval-steps", "3", "--log", log], stdin_file=f)
    check([x for x in map(json.loads, open(log)) if "val_loss" in x], "records are validated on arrays")
    whole, parts = here("whole"), here("parts")
    for state, steps in (whole, ("12",)), (parts, ("5", "12")):
        for k, step in enumerate(steps):
            must([binary, "--data", here("both.npz"), "--steps", step, "--total", "12", "--warmup", "2", "--save", state, *(["--resume", state] if k else ["--seed", "5"])])
    check(read_state(whole)[1] == read_state(parts)[1], "a run that resumed has other bits")
    rc, _, err = command([binary, "--data", "tokens=" + here("y.npy"), "targets=" + here("x.npy"), "--steps", "13", "--resume", whole])
    check(rc == 0 and "data: the saved run had 2 arrays (both.npz ...) %d samples this one has 2 arrays (y.npy ...)" % n in err.replace(",", ""), err)
    return "%d forms" % len(forms)


def test_one_file_of_weights_in_two_modules():
    """A policy and its reference begin as one model, so that DPO begins at log 2."""
    folder, binary = scratch("two"), build("preferences.lua", world=2)
    here, r = lambda name: os.path.join(folder, name), random.Random(1)
    must([binary, "--steps", "0", "--seed", "9", "--export", here("both")])
    write_safetensors(here("w.safetensors"), {k[len("policy."):]: t for k, t in read_safetensors(here("both")).items() if k.startswith("policy.")})
    values = lambda: struct.pack("<512i", *[r.randrange(256) for _ in range(512)])
    write_safetensors(here("x.safetensors"), {name: ("I32", [8, 2, 32], values()) for name in ("ids", "targets")})
    got, _ = logged(binary, folder, "log", "--data", here("x.safetensors"), "--weights", here("w.safetensors"), "--weights-map", "*=policy.*", "--weights-copy", "policy.*=reference.*", "--steps", "1")
    apart, _ = logged(binary, folder, "log", "--data", here("x.safetensors"), "--steps", "1")
    check(abs(got[0] - math.log(2)) < 1e-6 < abs(apart[0] - math.log(2)), "losses %s and %s" % (got, apart))


FLOATS = """
local nn, optim = require "nn", require "optim"
local o = nn.options { batch = 2 }
local model = nn.module "Scaled"
model.linear, model.scales = nn.Linear(3, 1), nn.Embedding(4, 1)
function model:forward(x, class) return (self.linear(x) * self.scales(class)):mean() end
nn.fully_shard(model)
return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { o.batch, 3 }), class = nn.input("int32", { o.batch }) },
  loss = function(m, b) return m(b.x, b.class) end,
  optimizer = optim.SGD { lr = 0 },
}
"""


def test_numbers_with_a_fraction_and_rows_of_one_number():
    """The weights are set, so that the losses of an epoch add up to a sum that is known."""
    folder = scratch("floats")
    here = lambda name: os.path.join(folder, name)
    put(here("floats.lua"), FLOATS.encode())
    write_safetensors(here("w.safetensors"), {"linear.weight": ("F32", [1, 3], struct.pack("<3f", 1, 2, 3)), "linear.bias": ("F32", [1], bytes(4)),
                                              "scales.weight": ("F32", [4, 1], struct.pack("<4f", 0, 1, 2, 3))})
    binary, r = build(here("floats.lua"), world=1), random.Random(2)
    rows, classes = [[r.randrange(-64, 64) / 8 for _ in range(3)] for _ in range(6)], [0, 1, 2, 3, 1, 2]
    want = sum((a + 2 * b + 3 * c) * k for (a, b, c), k in zip(rows, classes)) / 2
    put(here("c.npy"), npy("|u1", (6,), classes))
    forms = [("f%d" % w, npy("<f%d" % w, (6, 3), flat(rows))) for w in (2, 4, 8)] + [("big", npy(">f4", (6, 3), flat(rows))), ("v2", npy("<f4", (6, 3), flat(rows)))]
    for name, blob in forms:
        put(here("x.npy"), blob)
        got, _ = logged(binary, folder, "log", "--data", "x=" + here("x.npy"), "class=" + here("c.npy"), "--weights", here("w.safetensors"), "--steps", "3")
        check(abs(sum(got) - want) < 1e-5 * abs(want), "%s: %r, not %r" % (name, sum(got), want))
    whole = [[int(8 * x) for x in row] for row in rows]
    put(here("x.npy"), npy("<i2", (6, 3), flat(whole)))
    got, _ = logged(binary, folder, "log", "--data", "x=" + here("x.npy"), "class=" + here("c.npy"), "--weights", here("w.safetensors"), "--steps", "3")
    check(abs(sum(got) - 8 * want) < 1e-4 * abs(want), "integers: %r" % sum(got))
    bf16 = b"".join(struct.pack("<f", x)[2:] for x in flat(rows))
    write_safetensors(here("b.safetensors"), {"x": ("BF16", [6, 3], bf16), "class": ("I64", [6], struct.pack("<6q", *classes))})
    got, _ = logged(binary, folder, "log", "--data", here("b.safetensors"), "--weights", here("w.safetensors"), "--steps", "3")
    check(abs(sum(got) - want) < 1e-5 * abs(want), "bf16: %r" % sum(got))
    refusals(binary, folder)
    no_byte_of_an_archive_crashes(build(here("floats.lua"), variant="asan"), folder)
    put(here("other.lua"), FLOATS.replace('class = nn.input("int32", { o.batch }) }', 'class = nn.input("int32", { o.batch }), all = nn.input("fp32", { 3 }) }').replace("m(b.x, b.class)", "m(b.x, b.class) + b.all:mean()").encode())
    rc, _, err = command([build(here("other.lua")), "--data", here("b.safetensors"), "--steps", "1"])
    check(rc == 1 and "the first dimension of input 'all' is not the batch of 2 samples, so it has no rows; feed records" in err, err)


def refusals(binary, folder):
    here = lambda name: os.path.join(folder, name)
    good = {"x": npy("<f4", (6, 3), [0] * 18), "class": npy("|u1", (6,), [0] * 6)}

    def refused(want, x=None, c=None, *more):
        put(here("x.npy"), x or good["x"])
        put(here("c.npy"), c or good["class"])
        rc, out, err = command([binary, "--data", "x=" + here("x.npy"), "class=" + here("c.npy"), *more, "--steps", "3"])
        check(rc == 1 and want in err and err.count("\n") <= 3, "wanted %s: exit %d, %s" % (want, rc, err))

    def archive(want, blob, name="z.npz"):
        rc, out, err = command([binary, "--data", put(here(name), blob), "--steps", "1"])
        check(rc == 1 and want in err, "wanted %s: exit %d, %s" % (want, rc, err))
    refused("x.npy: the file is [6,2], but a sample of 'x' is [3]", npy("<f4", (6, 2), [0] * 12))
    refused("x.npy: the file is [18], but a sample of 'x' is [3]", npy("<f4", (18,), [0] * 18))
    refused("'x' has 5 rows, and 'class' has 6", npy("<f4", (5, 3), [0] * 15))
    refused("c.npy: the file holds numbers with a fraction, and 'class' is int32", None, npy("<f4", (6,), [0] * 6))
    refused("row 4 of 'x' holds a NaN at element 2", npy("<f4", (6, 3), [0] * 14 + [float("nan")] + [0] * 3))
    refused("row 5 of 'class' holds 4 at element 0 (from 0), outside 0..3", None, npy("|u1", (6,), [0] * 5 + [4]))
    refused("row 0 of 'class' holds 2147483648 at element 0 (from 0), outside", None, npy("<i8", (6,), [1 << 31] + [0] * 5))
    refused("row 0 of 'class' holds 9223372036854775807", None, npy("<u8", (6,), [(1 << 64) - 1] + [0] * 5))
    refused("lies in Fortran order: save numpy.ascontiguousarray(x)", npy("<f4", (6, 3), [0] * 18, True))
    refused("truncated, or damaged", good["x"][:-1])
    refused("x.npy: the file: ", good["x"].replace(b"descr", b"decsr"))
    refused("has dtype 'c8', which is no number", good["x"].replace(b"<f4", b"<c8"))
    refused("is no array of NumPy", b"some text")
    rc, _, err = command([binary, "--data", "x=" + here("none.npy"), "class=" + here("c.npy"), "--steps", "1"])
    check(rc == 1 and "none.npy: no such file (--data x=" in err, err)
    rc, _, err = command([binary, "--data", "x=" + folder, "class=" + here("c.npy"), "--steps", "1"])
    check(rc == 1 and "it is a folder" in err, err)
    rc, _, err = command([binary, "--data", "x=" + put(here("x.npy"), good["x"]), "--steps", "1"])
    check(rc == 1 and "no array of input 'class'; give class=FILE.npy" in err, err)
    rc, _, err = command([binary, "--data", "x=" + here("x.npy"), here("x.npy"), "--steps", "1"])
    check(rc == 1 and "give arrays alone" in err, err)
    rc, _, err = command([binary, "--data", here("x.npy"), "--steps", "1"])
    check(rc == 1 and "input 'x' does not come from tokens" in err and "--data x=FILE.npy" in err, err)
    short = npy("<f4", (1, 3), [0] * 3), npy("|u1", (1,), [0])
    refused("the arrays have 1 sample, but a step takes 2", *short)
    with zipfile.ZipFile(here("packed.npz"), "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x.npy", good["x"])
    with zipfile.ZipFile(here("plain.npz"), "w") as z:
        z.writestr("x.npy", good["x"])
    packed, plain = (open(here(name), "rb").read() for name in ("packed.npz", "plain.npz"))
    entry, end = plain.index(b"PK\1\2"), plain.index(b"PK\5\6")
    archive("'x.npy' in it is compressed; write it with numpy.savez", packed)
    archive("the directory at its end is missing or damaged", plain[:-10])
    archive("its directory is damaged", plain[:entry] + b"PK\1\3" + plain[entry + 4:])
    archive("its directory is damaged", plain[:entry + 28] + b"\xff\xff" + plain[entry + 30:])
    archive("a member is not where its directory says", plain[:entry + 42] + b"\1" + plain[entry + 43:])
    archive("it ends within a member", plain[:entry + 20] + b"\0\0\0\1" * 2 + plain[entry + 28:])
    archive("it is encrypted", plain[:entry + 8] + b"\1" + plain[entry + 9:])
    check(end > entry, "an archive")
    write_safetensors(here("f8.safetensors"), {"x": ("F8_E4M3", [6, 3], bytes(18)), "class": ("U8", [6], bytes(6))})
    archive("'x' is F8_E4M3, which is not read as data", open(here("f8.safetensors"), "rb").read(), "f8.safetensors")
    archive("f8.safetensors: ", open(here("f8.safetensors"), "rb").read()[:-1], "f8.safetensors")


def no_byte_of_an_archive_crashes(binary, folder):
    path = os.path.join(folder, "changed.npz")
    plain = open(os.path.join(folder, "plain.npz"), "rb").read()
    for at in range(len(plain)):
        if at % 7 == 0 or at >= plain.index(b"PK\1\2"):
            rc, _, err = command([binary, "--data", put(path, plain[:at] + bytes([plain[at] ^ 0x81]) + plain[at + 1:]), "--steps", "1"])
            check(rc in (0, 1) and "Sanitizer" not in err, "byte %d: exit %d, %s" % (at, rc, err))
