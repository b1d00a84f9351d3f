"""Bad input of every kind: one clear message, the right exit code, and files left as they were. To add a case, add a row.

Relies on: harness.py, bad/*.lua (first line: `-- expect: REGEX`; second, where needed: `-- args: OPTION...`). Relied on by: run.py."""
import glob
import json
import os
import re
import shutil
import resource
import struct
import subprocess
import threading
import zlib

from harness import BAD, ROOT, ROWS, SHARDC, build, check, command, contents, corpus, must, scratch, settings, shardc, waits

GPT2, LLAMA3 = os.path.join(ROOT, "models", "gpt2.lua"), os.path.join(ROOT, "models", "llama3.lua")
SMALL = dict(layers=1, dim=16, heads=2, vocab=256, batch=2, seq=16)
SETS = settings(SMALL)


def expect(args, code, pattern, **kw):
    rc, out, err = command(args, **kw)
    text = err + out
    check(rc == code, "exit %d instead of %d from %s: %s" % (rc, code, " ".join(args[1:]), text[-600:]))
    check(re.search(pattern, text, re.S), "no /%s/ in the message of %s: %s" % (pattern, " ".join(args[1:]), text[-600:]))
    check(len([l for l in err.splitlines() if l.strip()]) <= 4 or code == 2, "more than one message: %s" % err[-1500:])
    return text


ANSWERS = {}  # bad model: what was said
LOCK = threading.Lock()


def answers():
    with LOCK:
        for name in sorted(n for n in os.listdir(BAD) if n.endswith(".lua")) if not ANSWERS else ():
            lines = open(os.path.join(BAD, name)).read().splitlines()[:2]
            m = re.match(r"-- expect: (.*)", lines[0])
            if not m:
                continue  # a part of another one
            more = lines[1][len("-- args: "):].split() if lines[1].startswith("-- args: ") else []
            ANSWERS[name] = expect([SHARDC, "predict", os.path.join(BAD, name), *more], 1, m.group(1).strip())
    return ANSWERS


def test_models():
    n = len(answers())
    check(n >= 200, "only %d cases" % n)
    return "%d models refused with file, line and remedy" % n


def arguments(text, at):
    """The arguments of the Lua call whose opening parenthesis stands at `at`."""
    depth, quote, out, start = 0, None, [], at + 1
    for i in range(at, len(text)):
        c = text[i]
        if quote:
            quote = None if c == quote and text[i - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if not quote and (depth == 0 or (depth == 1 and c == ",")):
            out.append(text[start:i].strip())
            start = i + 1
            if depth == 0:
                return out


def test_every_message_of_nn():
    """nn.lua, the files of nn/ and arguments.lua say what they say through fail(remedy, format, ...): each of their formats was seen."""
    said = "\n".join(answers().values())
    missing, n = [], 0
    lua = os.path.join(ROOT, "compiler/lua")
    for name in ("arguments.lua", "nn.lua", *sorted(glob.glob("nn/*.lua", root_dir=lua))):
        text = open(os.path.join(lua, name)).read()
        for m in re.finditer(r"(?<!prim\.)(?<!function )\bfail\((?!remedy, message, \.)", text):
            form = arguments(text, m.end() - 1)[1][1:-1]
            parts = re.split(r"(%[sdg])", form.replace("\\\"", '"').replace("%%", "%"))
            pattern = "".join({"%s": ".*", "%d": r"-?\d+", "%g": r"\S+"}.get(x, re.escape(x)) for x in parts)
            n += 1
            if not re.search(pattern, said):
                missing.append("%s:%d: %s" % (name, text.count("\n", 0, m.start()) + 1, form))
    check(n > 40 and not missing, "of %d messages no bad model shows:\n%s" % (n, "\n".join(missing)))
    return "%d messages" % n


COMMANDS = [  # arguments, exit code, pattern
    (["predict"], 2, "predict"),
    (["predict"], 2, "INPUT|model"),
    (["predict", "nowhere.lua"], 1, "nowhere.lua.*No such file"),
    (["predict", GPT2, "--world", "0"], 2, "world"),
    (["predict", GPT2, "--world", "two"], 2, "world"),
    (["predict", GPT2, "--world", "6", "--nodes", "4"], 2, "nodes"),
    (["predict", GPT2, "--set", "layer=3"], 1, "layer.*layers"),
    (["predict", GPT2, "--set", "layers"], 2, "key=value"),
    (["predict", GPT2, "--set", "layers=three"], 1, "layers.*number|layers.*integer"),
    *[(["predict", LLAMA3, "--set", "size=1b", *settings(o)], 1, r"(llama3|families/decoder)\.lua:\d+: " + said) for o, said in (
        (dict(rope_factor=-8), "rope: scaling.factor must be a number of at least 1, not the number -8"),
        (dict(rope_factor=0), "rope: scaling.factor must be a number of at least 1, not the number 0.*rope_scaling=false"),
        (dict(rope_low=4, rope_high=1), "rope: scaling.high must be a number above low = 4, not the number 1"),
        (dict(rope_original=0), "rope: scaling.original must be a whole number of positions, at least 1, not the number 0"),
        (dict(rope_scaling=False, rope_original=4096), "rope_scaling=false takes no rope_factor, rope_low, rope_high or rope_original"),
        (dict(heads=7), "heads do not divide dim: set head_dim"), (dict(heads=0), "heads do not divide dim: set head_dim"),
        (dict(theta=0), "rope: theta must be a number above 0, not the number 0"), (dict(head_dim=63), "rope: x .* must be .* of even width"),
        (dict(eps=0), "nn.RMSNorm: eps must be a small number above 0, at most 1, not the number 0"))],
    (["predict", LLAMA3, "--set", "layers=-1"], 1, r"llama3\.lua:\d+: layers must be at least 1"),
    (["predict", GPT2, "--set", "heads=7"], 1, r"gpt2\.lua:\d+: layers must be at least 1, and heads must divide dim"),
    (["predict", GPT2, "--set", "layers=-1"], 1, r"gpt2\.lua:\d+: layers must be at least 1"),
    (["predict", GPT2, "--set", "seq=64", "--set", "positions=32"], 1, r"gpt2\.lua:\d+: seq is longer than the learned positions: set a shorter seq"),
    (["predict", GPT2, "--set", "recompute=all"], 1, "recompute.*full"),
    (["predict", GPT2, "--device", "h300"], 1, "h300.*h200"),
    (["predict", GPT2, "--format", "yaml"], 2, "yaml|format"),
    (["build", GPT2, "--target", "cuda", "--variant", "asan"], 2, "--variant asan --target cuda: that variant is one of the cpu target"),
    (["predict", GPT2, "--policy", "nowhere.lua"], 1, "nowhere.lua"),
    (["build", GPT2, *SETS, "-o", "/proc/nowhere/gpt2"], 1, "/proc/nowhere"),
    (["verify", os.path.join(ROOT, "LICENSE")], 1, "LICENSE"),
    (["predict", GPT2, "--limit", "time"], 2, "--limit time: time=SECONDS, memory=MIB or print=KIB is wanted"),
    (["predict", GPT2, "--limit", "times=3"], 2, "--limit times=3: time=SECONDS, memory"),
    (["predict", GPT2, "--limit", "time=0"], 2, "--limit time=0: a whole number from 1 to 1048576 is wanted"),
    (["predict", GPT2, "--limit", "print=x"], 2, "--limit print=x: a whole number from 1"),
    (["predict", os.path.join(ROOT, "LICENSE"), "--limit", "time=9"], 2, "--limit says how to compile a model, and .*LICENSE is compiled already"),
    (["data", "nowhere.txt", "-o", "x.bin"], 1, "nowhere.txt"),
    (["data", GPT2], 2, "-o"),
    (["data", GPT2, "-o", "/proc/x.bin"], 1, "/proc/x.bin"),
]


def test_commands():
    for args, code, pattern in COMMANDS:
        expect([SHARDC, *args], code, pattern)
    return "%d commands" % len(COMMANDS)


def header(magic=20240520, version=1, tokens=100):
    return struct.pack("<256i", magic, version, tokens, *[0] * 253)


def test_data_files():
    folder, binary = scratch("bad-data"), build("gpt2.lua", **SMALL)
    cases = [
        ("empty.bin", b"", "empty.bin"),
        ("foreign.bin", b"PNG!" * 1000 + b"x", "foreign.bin"),
        ("truncated.bin", header(tokens=5000) + b"\1\0" * 100, "truncated.bin.*(5000|tokens)"),
        ("version.bin", header(version=9) + b"\1\0" * 100, "version"),
        ("short.bin", header(tokens=5) + b"\1\0" * 5, "5 tokens"),
        ("vocabulary.bin", header(tokens=4000) + b"\xff\xff" * 4000, "vocabulary.bin.*65535"),
    ]
    for name, blob, pattern in cases:
        path = os.path.join(folder, name)
        open(path, "wb").write(blob)
        expect([binary, "--data", path, "--steps", "1"], 1, pattern)
        check(open(path, "rb").read() == blob, name + " was changed")
    expect([binary, "--data", os.path.join(folder, "none*.bin"), "--steps", "1"], 1, "none")
    expect([binary, "--steps", "1"], 2, "--data")
    expect([binary, "--data", corpus(), "", "--steps", "1"], 2, "a file's name is empty: is a variable of the shell not set")
    expect([binary, "--data", corpus(), "--stepz", "1"], 2, "stepz")
    expect([binary, "--data", corpus(), "--steps", "many"], 2, "steps")
    expect([binary, "--data", corpus(), "--steps", "1", "--accumulate", "4"], 1, "accumulate")
    return "%d files" % len(cases)


@waits
def test_damaged_states():
    """Every tensor has the crc32 that zlib makes of its bytes, and the index that of every head; a flipped bit is noticed by ranks that read the
    tensor as it was saved, a part of it, or several; so is one of a head, and a digit of the index. States of version 1, without names, and
    without checksums, as they were once saved, are taken as they are."""
    folder, flips, plain = scratch("damaged"), 0, {}
    go = {world: [build("gpt2.lua", world=world, **SMALL), "--data", corpus(), "--steps", "1"] for world in (1, 2, 3)}
    state = os.path.join(folder, "state")
    must([*go[2], "--save", state])
    index = os.path.join(state, "index.json")
    text = open(index).read()
    body, end = text.rsplit(",\n", 1)
    check(end == '  "crc32": "%08x"\n}\n' % zlib.crc32(body.encode()), "the index ends in %s" % end)
    names, old = json.loads(text), re.sub(r',\n  "before": .*', "", body.replace('"version": 2', '"version": 1'), flags=re.S) + "\n}\n"
    for rank in 0, 1:
        file, = glob.glob(os.path.join(state, "step-*", "rank-%d.safetensors" % rank))
        blob = open(file, "rb").read()
        n = struct.unpack("<Q", blob[:8])[0]
        head = json.loads(blob[8:8 + n])
        sums = head.pop("__metadata__")
        check(sums.pop("shard").rstrip() == "rank %d of 2 at step 1 of run %s" % (rank, names["run"]), "the name of %s" % file)
        check(names["heads"][rank] == "%08x" % zlib.crc32(blob[:8 + n]), "the head of %s" % file)
        at = blob.index(b'"crc32 ') + 9
        open(file, "wb").write(blob[:at] + (b"1" if blob[at:at + 1] == b"0" else b"0") + blob[at + 1:])
        expect([*go[2], "--resume", state], 1, r"rank-%d\.safetensors: its head is not the one that was saved as rank %d of 2 at step 1 of run" % (rank, rank))
        check(sums.keys() == head.keys(), "checksums of %s" % sums.keys())
        for i, (name, t) in enumerate(sorted(head.items())):
            begin, end = (8 + n + at for at in t["data_offsets"])
            check(sums[name] == "crc32 %08x" % zlib.crc32(blob[begin:end]), "%s: %s" % (name, sums[name]))
            if i % 9:
                continue
            bad = bytearray(blob)
            bad[begin + (end - begin) * 2 // 3] ^= 1 << i % 8
            open(file, "wb").write(bad)
            for world in go:
                expect([*go[world], "--resume", state], 1, r"rank-%d\.safetensors: the bytes of '%s' are not those that were saved \(crc32 [0-9a-f]{8}, was %s\): damaged; resume from another" % (rank, re.escape(name), sums[name]))
                flips += 1
        one, none = (re.sub(rb'":"crc32 ', b'+":"crc32', blob, count=n) for n in (1, 0))
        open(file, "wb").write(one)
        open(index, "w").write(old)
        expect([*go[1], "--resume", state], 1, r"rank-%d\.safetensors: '.*' has no checksum, and others have: damaged; resume from another" % rank)
        open(file, "wb").write(blob)
        open(index, "w").write(text)
        plain[file] = none.replace(b'"shard"', b'"shart"')
    for at in [m.start() for m in re.finditer(r"\d(?!\d*\":)", text)]:  # each digit, but those of its keys
        open(index, "w").write(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:])
        expect([*go[2], "--resume", state], 1, "index.json: (its text is not the one that was saved|version 3|a world of|'heads' has |.* is (missing or )?not|not JSON: )")
        flips += 1
    open(index, "w").write(old)
    for file, blob in plain.items():
        open(file, "wb").write(blob)
    weights = [os.path.join(folder, name) for name in ("old", "new")]
    must([*go[2], "--resume", state, "--export", weights[0]])
    must([*go[2], "--export", weights[1]])
    check(open(weights[0], "rb").read() == open(weights[1], "rb").read(), "a state without checksums")
    return "%d flipped bits and digits" % flips


def test_swapped_shards():
    """A shard of another step, of another run or of another rank in a state: refused by its name, with what it is and what was expected."""
    folder, binary = scratch("swapped"), build("gpt2.lua", world=2, **SMALL)
    state = {name: os.path.join(folder, name) for name in ("one", "two", "other", "mixed")}
    must([binary, "--data", corpus(), "--steps", "1", "--save", state["one"]])
    must([binary, "--data", corpus(), "--steps", "2", "--resume", state["one"], "--save", state["two"]])
    must([binary, "--data", corpus(), "--steps", "2", "--lr", "0.5", "--save", state["other"]])
    shard = {(name, rank): os.path.join(state[name], "step-%08d" % (1 if name == "one" else 2), "rank-%d.safetensors" % rank) for name in state for rank in (0, 1)}
    for (name, rank), is_ in ((("one", 1), "rank 1 of 2 at step 1 of run (\\w+)"), (("other", 1), "rank 1 of 2 at step 2 of run (\\w+)"), (("two", 0), "rank 0 of 2 at step 2 of run (\\w+)")):
        shutil.rmtree(state["mixed"], ignore_errors=True)
        shutil.copytree(state["two"], state["mixed"])
        shutil.copy(shard[name, rank], shard["mixed", 1])
        expect([binary, "--data", corpus(), "--steps", "3", "--resume", state["mixed"]], 1,
               r"mixed/step-00000002/rank-1\.safetensors: it is %s; the index names rank 1 of 2 at step 2 of run %s;" % (is_, r"(?!\1)\w+" if name == "other" else r"\1"))
    shutil.rmtree(state["mixed"])
    shutil.copytree(state["two"], state["mixed"])
    must([binary, "--data", corpus(), "--steps", "3", "--resume", state["mixed"]])


def test_weights_and_checkpoints():
    folder, binary = scratch("bad-weights"), build("gpt2.lua", **SMALL)
    good = os.path.join(folder, "good.safetensors")
    run = [binary, "--data", corpus(), "--steps", "1"]
    rc, out, err = command([*run, "--export", good])
    check(rc == 0, err)
    blob = open(good, "rb").read()
    n = struct.unpack("<Q", blob[:8])[0]
    text = blob[8:8 + n]
    cases = {
        "cut": blob[:-10],
        "header": struct.pack("<Q", 1 << 60) + blob[8:],
        "json": blob[:8] + b"{" * n + blob[8 + n:],
        "dtype": blob[:8] + text.replace(b'"F32"', b'"X32"', 1) + blob[8 + n:],
        "shape": blob[:8] + text.replace(b"[256,16]", b"[256,17]", 1).ljust(n) + blob[8 + n:],
        "tail": blob + b"more",
    }
    for name, bad in cases.items():
        path = os.path.join(folder, name + ".safetensors")
        open(path, "wb").write(bad)
        expect([*run, "--weights", path], 1, name + r"\.safetensors")
    state = os.path.join(folder, "state")
    rc, out, err = command([*run, "--save", state])
    check(rc == 0, err)
    before = contents(state)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    p = subprocess.run([*run, "--resume", state, "--save", state, "--seed", "9"], capture_output=True, text=True, preexec_fn=limit)
    check(p.returncode == 1 and "state" in p.stderr, "full disk: exit %d, %s" % (p.returncode, p.stderr[-500:]))
    check(before and before == contents(state), "the old checkpoint changed")
    expect([*run, "--save", state], 1, "state holds a training state at step 1: go on with --resume .*state, or name another folder")
    check(before == contents(state), "the old checkpoint changed")
    rc, out, err = command([*run[:3], "--steps", "2", "--resume", state, "--log", "/dev/stdout", "--quiet"])
    check(rc == 0 and out.startswith('{"step": 1, "model": ') and '\n{"step": 2, ' in out, "a log that goes on through a pipe: exit %d, %s%s" % (rc, out, err))
    with open("/dev/full", "w") as full:
        p = subprocess.run([*run, "--sample", "3", "--quiet"], stdout=full, stderr=subprocess.PIPE, text=True)
    check(p.returncode == 1 and p.stderr == "gpt2: cannot print the sample: No space left on device\n", "a sample that nobody gets: exit %d, %s" % (p.returncode, p.stderr))
    expect([*run, "--dump", "*", "--at-step", "2", "-o", os.path.join(folder, "dump")], 2, "--at-step 2 is beyond the last step 1")
    expect([*run, "--val-data", "nothing.bin"], 1, "nothing.bin: no such file; --val-data takes")
    expect([*run, "--warmup", "10", "--total", "5"], 2, "--warmup 10 is longer than the schedule, --total 5")
    expect([*run, "--save", "/proc/nowhere/state"], 1, "/proc/nowhere")
    expect([*run, "--save", "a/" * 2000], 1, "--save: the path is longer than 3968 bytes")
    expect([*run, "--resume", os.path.join(folder, "none")], 1, "none")
    other = build("gpt2.lua", **dict(SMALL, dim=32))
    expect([other, "--data", corpus(), "--steps", "1", "--resume", state], 1, "state")
    return "%d damaged files, full disk, unwritable folder, another model's checkpoint" % len(cases)


MLP = os.path.join(ROOT, "models", "mlp.lua")


def test_pipes_and_devices():
    """A pipe without a writer does not hang, a device without an end fills no memory; a pipe that the caller has opened is read."""
    folder, binary = scratch("pipes"), build("mlp.lua")
    pipe, bridge, zero, policy, plan = (os.path.join(folder, n) for n in ("pipe.lua", "bridge.lua", "zero.lua", "policy.lua", "plan.json"))
    os.mkfifo(pipe)
    os.mkfifo(plan)
    os.symlink("/dev/zero", zero)
    open(bridge, "w").write("\nrequire 'pipe'\n")
    open(policy, "w").write("return { { match = '*', checkpoint = {} } }\n")
    says = r"cannot read %s: it is a pipe; copy what comes through it into a file, or give <\(command\)\n"
    out = os.path.join(folder, "x.bin")
    for args, p in ((["predict", pipe], pipe), (["predict", MLP, "--policy", pipe], pipe), (["predict", MLP, "--device", pipe], pipe),
                    (["verify", plan], plan), (["data", plan, "-o", out], plan)):
        expect([SHARDC, *args], 1, "^shardc: " + says % p)
    expect([SHARDC, "predict", bridge], 1, r"bridge\.lua:2: " + says % pipe)
    for args in (["predict", zero], ["predict", MLP, "--policy", zero], ["verify", "/dev/zero"], ["data", "/dev/zero", "-o", out]):
        expect([SHARDC, *args], 1, "cannot read .*zero.*: it is a device; give the name of a file")
    expect([binary, "--data", plan, "--steps", "1"], 1, "plan.json: it is not a regular file; records from a pipe come with --data -")
    expect([binary, "--data", corpus(), "--weights", plan, "--steps", "1"], 1, "plan.json: it is not a regular file")
    state = os.path.join(folder, "state")
    os.mkdir(state)
    os.mkfifo(os.path.join(state, "index.json"))
    expect([binary, "--data", corpus(), "--steps", "1", "--resume", state], 1, "state/index.json: no checkpoint there: it is not a regular file; --resume takes")
    expect([binary, "--data", corpus(), "--steps", "1", "--save", state], 1, "state/index.json is not the index of a checkpoint: --save needs a folder of its own")
    shown = must(["bash", "-c", '"$0" predict "$1" --policy <(cat "$2") && "$0" inspect "$1" --format json | "$0" verify /dev/stdin', SHARDC, MLP, policy])
    check(shown.endswith(", 1 unit\n") and ": sound: " in shown, shown[-300:])
    check(must([SHARDC, "data", "/dev/stdin", "-o", out], stdin="five\n").startswith(out + ": 5 tokens"), "tokens of a pipe")
    with open(policy, "wb") as f:
        f.truncate((64 << 20) + 1)
    expect([SHARDC, "predict", MLP, "--policy", policy], 1, "cannot read .*policy.lua: it is larger than 64 MiB; is it the right file")
    return "17 refused, three pipes read"


def test_zero_bytes():
    """Lua would go on behind a zero byte, and what reads the text in C would not: such a file is refused, not cut."""
    folder = scratch("zero")
    whole, part, model = open(MLP, "rb").read(), os.path.join(folder, "part.lua"), os.path.join(folder, "model.lua")
    says = ": this is no text: it holds a zero byte"
    open(part, "wb").write(b"return {\n\0}\n")
    for text, pattern in ((b"\0" + whole, r"model\.lua:1"), (whole + b"\n--\0\n", r"model\.lua:%d" % (whole.count(b"\n") + 2)), (b"require 'part'\n" + whole, r"part\.lua:2")):
        open(model, "wb").write(text)
        expect([SHARDC, "predict", model], 1, pattern + says)
    expect([SHARDC, "predict", MLP, "--policy", part], 1, r"part\.lua:2" + says)
    expect([SHARDC, "predict", MLP, "--device", part], 1, r"part\.lua:2" + says)
    open(model, "wb").write(b"error((select(2, load('x = 1\\0y = 2'))))\n")
    expect([SHARDC, "predict", model], 1, r"model\.lua:1: .*it holds a zero byte")


def test_a_file_too_large_to_read():
    path = os.path.join(scratch("large"), "m.lua")
    open(path, "w").write("local t = {%s}" % ",".join('"%d"' % i for i in range(200000)))
    expect([SHARDC, "predict", path, "--limit", "memory=8"], 1, r"m\.lua:1: stopped: more than 8 MiB of memory")


def test_escape_sequences():
    """What a model prints, raises or is called reaches no terminal as it is; nor do the names in a weight file."""
    folder, binary = scratch("escapes"), build("mlp.lua")
    model, weights = os.path.join(folder, "model.lua"), os.path.join(folder, "weights.safetensors")
    head = b'{"\\u001b[31mred": {"dtype": "X32", "shape": [1], "data_offsets": [0, 4]}}'
    open(weights, "wb").write(struct.pack("<Q", len(head)) + head + bytes(4))
    expect([binary, "--data", corpus(), "--weights", weights, "--steps", "1"], 1, re.escape("\\x1b[31mred"))
    whole = open(MLP).read()
    open(model, "w").write('print("\\27[31mred", "\\r\\u{9b}3\\tm")\n' + whole)
    rc, _, err = command([SHARDC, "predict", model])
    check(rc == 0 and err == "\\x1b[31mred\t\\x0d\\xc2\\x9b3\tm\n", "exit %d: %r" % (rc, err))
    names = (('name = "a\\27[31m"', "option's value", "a"), ('["n\\27[31m"] = 3', "option", "n"))
    for option, what, begins in names:
        open(model, "w").write(whole.replace("nn.options {", "nn.options { " + option + ",", 1))
        expect([SHARDC, "predict", model], 1, r"model\.lua:\d+: the %s '%s\\x1b\[31m' holds a control character" % (what, begins))


def test_existing_files_stay():
    folder = scratch("stay")
    out = os.path.join(folder, "train.bin")
    shardc("data", GPT2, "-o", out)
    before = open(out, "rb").read()
    expect([SHARDC, "data", GPT2, "nowhere.txt", "-o", out], 1, "nowhere")
    check(open(out, "rb").read() == before and os.listdir(folder) == ["train.bin"], "output changed or left-overs")


def test_loss_scales():
    """A scale that falls and falls ends the run, unless --allow-nan; a damaged one in a checkpoint is refused."""
    folder = scratch("bad-scale")
    binary, state = build(os.path.join(ROWS, "scaler.lua"), init_scale=1e-23), os.path.join(folder, "state")
    never = os.path.join(folder, "records")
    with open(never, "wb") as f:
        f.write((struct.pack("<f", 1.0) * 4 * 24 + struct.pack("<f", float("inf")) * 4) * 8)

    def go(*args):
        with open(never) as data:
            return command([binary, "--data", "-", "--steps", "6", *args], stdin_file=data)
    rc, _, err = go()
    check(rc == 3 and "step 4: skipped like those before it, and the loss scale has fallen to 6.2" in err, "exit %d: %s" % (rc, err))
    rc, out, err = go("--allow-nan", "--save", state)
    check(rc == 0 and "(skipped)" in out, "exit %d: %s%s" % (rc, out, err))
    index = os.path.join(state, "index.json")
    text = open(index).read()
    for scale, message in (('"big"', "'loss_scale' is not a positive number"), ("-1", "'loss_scale' is not a positive number")):
        with open(index, "w") as f:
            f.write(re.sub(r'"loss_scale": [^,]*', '"loss_scale": ' + scale, text))
        rc, _, err = go("--resume", state)
        check(rc == 1 and message in err, "loss_scale %s: exit %d: %s" % (scale, rc, err))
    return "a scale of 1e-23 that no step survives, two damaged indices"


# ── extensions: what bad/*.lua cannot show ───────────────────────────────────────────────────────────────────────────────
GATHER = os.path.join(ROOT, "models", "extensions", "gather.lua")


def extended(folder, text, wire='"bf16"'):
    """A model whose all-gathers call what `text` defines."""
    net = open(os.path.join(BAD, "extension_net.lua")).read()
    open(os.path.join(folder, "extension_net.lua"), "w").write(net)
    open(os.path.join(folder, "x.c"), "wb").write(text.encode() if isinstance(text, str) else text)
    model = os.path.join(folder, "m.lua")
    open(model, "w").write("local nn = require \"nn\"\nlocal part = require \"extension_net\"\nlocal model = part.net()\nnn.fully_shard(model, {\n"
                           "  all_gather = nn.all_gather_extension { source = \"x.c\", wire = %s },\n})\nreturn part.training(model)\n" % wire)
    return model


def test_extensions():
    folder = scratch("extension")
    good = open(os.path.join(BAD, "extension_good.c")).read()
    # libclang, CUDA's headers, the process that reads the file
    expect([SHARDC, "predict", GATHER], 1, r"gather\.lua:11: .*gather_bf16\.c is read by libclang 19, which is not there: install the Debian package libclang1-19 "
           r"\(make setup\), or name its file in the environment variable SHARDC_LIBCLANG", env={"SHARDC_LIBCLANG": "/nonexistent"})
    expect([SHARDC, "predict", GATHER], 1, "libclang 19, which is not there", env={"SHARDC_LIBCLANG": "libm.so.6"})
    expect([SHARDC, "predict", GATHER, "--target", "cuda"], 1, r"gather\.lua:11: CUDA's headers, which the file includes, are not in /nonexistent/include",
           env={"CUDA_HOME": "/nonexistent"})
    few = [command(["sh", "-c", 'ulimit -n %d; exec "$0" "$@"' % n, SHARDC, "predict", GATHER]) for n in range(4, 9)]  # builds differ in what they hold open
    check(any(rc == 1 and re.search(r"gather\.lua:11: cannot start a process that reads .*: Too many open files", err) for rc, _, err in few), "few files: %s" % few)
    # the file
    for text, pattern in ((os.urandom(1000) + b"\0", r"m\.lua:5: .*x\.c is no text: it holds a zero byte"),
                          (b"\xff\xfe\x01" * 1000, r"x\.c:1: "),
                          ("int x = " + "- " * 300000 + "1;", r"m\.lua:5: libclang cannot read .*x\.c: it took more than 20 seconds or 4 GiB, or failed"),
                          ("int x = " + "(" * 100000 + ";", r"x\.c:1: bracket nesting level"),
                          ("#include __FILE__\n", r"x\.c:1: #include nested too deeply"),
                          ("#include \"/dev/stdin\"\n", r"x\.c:1: there is no function pre_all_gather"),
                          (b" " * (5 << 20), r"m\.lua:5: nn.all_gather_extension: .*x\.c is larger than 4 MiB")):
        expect([SHARDC, "predict", extended(folder, text)], 1, pattern)
    # what only the compiler that builds can know
    model, out = extended(folder, good + "\n_Static_assert(__clang__ + 0 == 1, \"only clang\");\n"), os.path.join(folder, "m")
    expect([SHARDC, "build", model, "-o", out], 1, r"x\.c:15: .* \(says gcc, which builds the program\)", env={"CC": "gcc"})
    model = extended(folder, good.replace("\n\nvoid pre", "\n\nsc_bf16_t wrong(float x);\nvoid pre").replace("sc_to_bf16", "wrong"))
    expect([SHARDC, "build", model, "-o", out], 1, r"x\.c:3: wrong is used and defined nowhere: define it in this file \(says")
    check(not os.path.exists(out), "a failed build left a program")
    # what shows when it runs
    lying = good.replace("void pre", "int64_t pre").replace("sc_to_bf16(x[i]);", "sc_to_bf16(x[i]);\n    return p->end - p->begin;")
    two = lying.replace("sc_bf16_t *w", "sc_bf16_t (*w)[2]").replace("w[i] = sc_to_bf16", "w[i][0] = w[i][1] = sc_to_bf16").replace("sc_from_bf16(w[i])", "sc_from_bf16(w[i][0])")
    shardc("build", extended(folder, two, '{ { dtype = "bf16", count = 2 } }'), "-o", out)
    records = os.path.join(folder, "records")
    open(records, "wb").write(bytes(64))
    expect(["sh", "-c", 'exec "$0" --data - --steps 1 < "$1"', out, records], 1,
           r"x\.c:3: pre_all_gather says that it wrote 64 elements for a\.weight \[0, 64\) on rank 0, and 128 belong there: make it fill them, or change `wire`")
    # a plan with extensions needs no libclang
    for args in (["verify", out], ["inspect", out + ".plan.json"], ["predict", out]):
        rc, text, err = command([SHARDC, *args], env={"SHARDC_LIBCLANG": "/nonexistent"})
        check(rc == 0, "%s without libclang: exit %d %s" % (args[0], rc, err[-300:]))
    return "hostile files, missing tools, wrong sizes: one message each"
