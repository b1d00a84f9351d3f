"""libFuzzer over the readers of foreign bytes, from seeds made here: safetensors, token files, JSON lines and plan.json. Each reads so many inputs
as take some ten seconds of a processor; with $FUZZ_SECONDS, as many as that time allows. A crash, a leak, a sanitizer's report or
a hang of 10 s fails and leaves its input in build/fuzz.

Relies on: harness.py, the binaries that `make fuzzers` builds from tests/fuzz. Relied on by: run.py, make fuzz."""
import json
import os
import random
import re
import struct
import subprocess

from harness import BUILD, ROOT, check, shardc, write_safetensors

SECONDS = os.environ.get("FUZZ_SECONDS")


def fuzz(name, seeds, length, inputs):
    folder = os.path.join(BUILD, "fuzz", name)
    corpus = os.path.join(folder, "corpus")
    os.makedirs(corpus, exist_ok=True)
    for k, blob in enumerate(seeds):
        with open(os.path.join(corpus, "seed-%d" % k), "wb") as f:
            f.write(blob)
    args = [os.path.join(BUILD, "fuzz_" + name), "-max_total_time=" + SECONDS if SECONDS else "-runs=%d" % inputs, "-max_len=%d" % length, "-timeout=10", "-rss_limit_mb=2048",
            "-artifact_prefix=%s/" % folder, "-print_final_stats=1", "-use_value_profile=1", corpus]
    words = sorted({w for blob in seeds for w in re.findall(rb'"[A-Za-z_0-9]+"', blob)})
    if words:
        with open(os.path.join(folder, "words"), "w") as f:
            f.write("".join('"\\"%s\\""\n' % w[1:-1].decode() for w in words[:400]))
        args.insert(1, "-dict=" + os.path.join(folder, "words"))
    p = subprocess.run(args, cwd=folder, capture_output=True, text=True, errors="replace", timeout=int(SECONDS or 300) + 120)
    check(p.returncode == 0, "exit %d: %s" % (p.returncode, p.stderr[-3000:]))
    runs = re.search(r"number_of_executed_units: (\d+)", p.stderr)
    cover = re.findall(r"cov: (\d+)", p.stderr)
    check(runs and int(runs.group(1)) >= (100 if SECONDS else inputs), "it hardly ran: " + p.stderr[-1000:])
    return "%s inputs, %s edges" % (runs.group(1), cover[-1] if cover else "?")


def test_safetensors():
    path = os.path.join(BUILD, "fuzz", "seed.safetensors")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_safetensors(path, {"h.0.w": ("F32", [2, 3], bytes(24)), "h.0.b": ("BF16", [3], bytes(6)), "scalar": ("I64", [], bytes(8))})
    blob = open(path, "rb").read()
    head = b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[0],"data_offsets":[0,0]}}   '
    return fuzz("safetensors", [blob, struct.pack("<Q", len(head)) + head, struct.pack("<Q", 2) + b"{}"], 4096, 900000)


def test_bin():
    head = lambda magic, n: struct.pack("<256i", magic, 1, n, *[0] * 253)
    body = bytes(random.Random(1).randrange(256) for _ in range(64))
    llmq = struct.pack("<8s5i", b"BIN.TOK\n", 2, 4, 16, 50257, 0).ljust(1024, b"\0")
    numpy = [b"\x93NUMPY" + bytes([v, 0]) + struct.pack("<H" if v == 1 else "<I", len(d)) + d for v, d in
             ((1, b"{'descr': '<u2', 'fortran_order': False, 'shape': (32,), }\n"), (2, b"{'shape': (4, 2), 'fortran_order': True, 'descr': '>i8'}"))]
    return fuzz("bin", [b"\0" + head(20240520, 32) + body, b"\0" + head(20240801, 16) + body, b"\1" + body, b"\2" + body, b"\0", b"\0" + llmq + body,
                        *[b"\0" + h + body for h in numpy], b"\1{\"text\": \"one\"}\n"], 2048, 550000)


def test_jsonl():
    return fuzz("jsonl", [b'{"text": "two \\u00fc\\ud83d\\ude00 x", "a": [1, -2.5e3, {"b": null}], "t": true}', b'{"id": "\xc3\xbc\\n", "text": ""}', b"[]", b""], 512, 300000)


def test_plan():
    """Plans are long; one of few events, as the compiler writes it and without what may be absent."""
    plan = json.loads(shardc("inspect", os.path.join(ROOT, "models", "mlp.lua"), "--format", "json"))
    small = json.loads(json.dumps(plan))
    small["programs"] = small["programs"][:2]
    return fuzz("plan", [json.dumps(p, separators=(",", ":")).encode() for p in (small, plan)] + [b"{}"], 1 << 16, 45000)
