"""Promises P1 and P2: predicted = allocated to the byte, nothing allocated after start, every access inside a live storage.

Relies on: harness.py, interpose.c; the variants asan and tsan of the runtime. Relied on by: run.py."""
import json
import os
import re

from harness import BUILD, ROOT, build, check, command, corpus, must, run, same_run, scratch, shardc

GPT2 = dict(layers=2, dim=32, heads=2, vocab=256, batch=4, seq=32)
LLAMA = dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=4, seq=32)
TRANSFORMER = dict(layers=2, dim=32, heads=2, vocab=256, batch=4, seq=16)
MODELS = [("mlp.lua", {}), ("gpt2.lua", GPT2), ("gpt2.lua", dict(GPT2, precision="bf16", dropout=0.1, recompute="full")),
          ("gpt2.lua", dict(GPT2, offload="state")), ("gpt2.lua", dict(GPT2, accumulate=2, batch=2)), ("llama3.lua", dict(LLAMA, precision="bf16")),
          ("transformer.lua", TRANSFORMER)]


def extra(o):
    return ("--accumulate", "2") if o.get("accumulate") else ()


def test_predicted_is_allocated():
    for model, o in MODELS:
        binary = build(model, world=2, **o)
        predicted = json.loads(shardc("predict", binary, "--format", "json"))["prediction"]["arena_bytes"]
        out = must([binary, "--data", corpus(), "--steps", "2", *extra(o)])
        m = re.search(r"arena +([\d,]+) B predicted, ([\d,]+) B allocated", out)
        check(m, "no allocated bytes in: " + out[:600])
        told = [int(x.replace(",", "")) for x in m.groups()]
        check(told == [predicted, predicted], "%s: predict says %d, the program %s" % (model, predicted, told))
    return "%d programs" % len(MODELS)


def test_no_allocation_after_start():
    folder = scratch("interpose")
    lib = os.path.join(folder, "interpose.so")
    must(["gcc", "-O1", "-shared", "-fPIC", os.path.join(ROOT, "tests", "program", "interpose.c"), "-o", lib, "-ldl"])
    for i, (model, o) in enumerate(MODELS):
        found = os.path.join(folder, "allocations-%d" % i)
        must([build(model, world=2, **o), "--data", corpus(), "--steps", "4", *extra(o)], env={"LD_PRELOAD": lib, "SC_ALLOCATIONS": found})
        lines = open(found).read().split("\n")
        check(lines.count("start") == 2, "%s: both ranks tell when they start" % model)
        calls = [l for l in lines if l and l != "start"]
        check(not calls, "%s: allocated after start: %s" % (model, calls[:5]))


def test_red_zones_and_address_sanitizer():
    for model, o in MODELS:
        plain = run(build(model, world=2, **o), "--data", corpus(), "--steps", "2", *extra(o))
        binary = build(model, world=2, variant="asan", redzone=1024, **o)
        env = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
        log = os.path.join(scratch("asan"), "log.jsonl")
        rc, out, err = command([binary, "--data", corpus(), "--steps", "2", "--log", log, *extra(o)], env=env, timeout=600)
        check(rc == 0, "%s under ASan+UBSan with red zones: exit %d\n%s" % (model, rc, err[-3000:]))
    return "%d programs, every access inside a live storage" % len(MODELS)


def test_thread_sanitizer():
    for model, o in MODELS:
        binary = build(model, world=2, variant="tsan", **o)
        rc, out, err = command([binary, "--data", corpus(), "--steps", "2", *extra(o)], env={"TSAN_OPTIONS": "halt_on_error=1"}, timeout=600)
        check(rc == 0 and "ThreadSanitizer" not in err, "%s under TSan: exit %d\n%s" % (model, rc, err[-3000:]))
    return "%d programs, ranks and streams as threads" % len(MODELS)
