"""Promises P1 and P2: predicted = allocated to the byte, nothing allocated after start, every access inside a live storage.

Relies on: harness.py, interpose.c; the variants asan and tsan of the runtime. Relied on by: run.py."""
import json
import os
import re
import signal
import subprocess

from harness import HANG, MANY, TESTS, build, check, command, cores, corpus, in_time, library, microbatches, must, scratch, shardc, train

GPT2 = dict(layers=2, dim=32, heads=2, vocab=256, batch=4, seq=32)
LLAMA = dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=4, seq=32)
TRANSFORMER = dict(layers=2, dim=32, heads=2, vocab=256, batch=4, seq=16)
MODELS = [("mlp.lua", {}), ("gpt2.lua", GPT2), ("gpt2.lua", dict(GPT2, precision="bf16", dropout=0.1, recompute="full")),
          ("gpt2.lua", dict(GPT2, offload="state")), ("gpt2.lua", dict(GPT2, accumulate=2, batch=2)), ("llama3.lua", dict(LLAMA, precision="bf16")),
          ("transformer.lua", TRANSFORMER), (os.path.join(TESTS, "contrastive.lua"), dict(way="columns", checkpoint=True))]


def test_predicted_is_allocated_and_nothing_else():
    for model, o in MODELS:
        for redzone in (0, 256):
            binary = build(model, world=2, redzone=redzone, **o)
            predicted = json.loads(shardc("predict", binary, "--format", "json"))["prediction"]["arena_bytes"]
            out = train(binary, "--data", corpus(), "--steps", "3", *microbatches(o))
            told = re.search(r"arena +([\d,]+) B", out).group(1).replace(",", "")
            check(int(told) == predicted, "%s: predict says %d, the program %s" % (model, predicted, told))
    return "%d programs, with and without red zones" % len(MODELS)


def test_whatever_kernels_openblas_chooses():
    """It chooses them by the processor where the environment names none; some of those for AVX-512 would allocate."""
    for model, o in MODELS:
        binary = build(model, world=2, **o)
        found = cores([binary, "-h"])
        for env in found.values():
            train(binary, "--data", corpus(), "--steps", "2", *microbatches(o), env=env)
    return ", ".join(found)


def test_the_interposer_sees_allocations():
    """A program that allocates after its start is caught: the check of `train` can fail."""
    folder = scratch("interposer")
    code, program, found = (os.path.join(folder, f) for f in ("x.c", "x", "found"))
    with open(code, "w") as f:
        f.write("#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdlib.h>\n"
                "int main(void) { free(malloc(10)); pthread_setname_np(pthread_self(), \"sc training\"); void *volatile p = malloc(123);"
                " pthread_setname_np(pthread_self(), \"sc trained\"); free(malloc(77)); return p == NULL; }\n")
    must(["gcc", "-O0", code, "-o", program])
    must([program], env={"LD_PRELOAD": library("interpose"), "SC_ALLOCATIONS": found})
    check(open(found).read() == "start\nmalloc 123\n", "found " + open(found).read())


def test_red_zones_and_address_sanitizer():
    for model, o in MODELS:
        binary = build(model, world=2, variant="asan", redzone=1024, **o)
        env = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
        rc, out, err = command([binary, "--data", corpus(), "--steps", "2", "--redzones", *microbatches(o)], env=env, timeout=MANY)
        check(rc == 0, "%s under ASan+UBSan with red zones: exit %d\n%s" % (model, rc, err[-3000:]))
    return "%d programs, every access inside a live storage" % len(MODELS)


def test_thread_sanitizer():
    for model, o in MODELS:
        binary, state = build(model, world=2, variant="tsan", **o), os.path.join(scratch("state"), "s")
        rc, out, err = command([binary, "--data", corpus(), "--steps", "3", "--save", state, "--save-every", "1", "--save-in-background", *microbatches(o)], env={"TSAN_OPTIONS": "halt_on_error=1"}, timeout=MANY)
        check(rc == 0 and "ThreadSanitizer" not in err, "%s under TSan: exit %d\n%s" % (model, rc, err[-3000:]))
    return "%d programs, ranks and streams as threads" % len(MODELS)


def test_signals_under_thread_sanitizer():
    binary, state = build("mlp.lua", world=2, variant="tsan"), os.path.join(scratch("state"), "s")
    p = subprocess.Popen([binary, "--data", corpus(), "--steps", "1000000", "--save", state], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for kind, line in (None, "step "), (signal.SIGUSR1, "saved "), (signal.SIGTERM, "stopped "):
        if kind:
            p.send_signal(kind)
        while not (read := p.stdout.readline()).startswith(line):
            check(read, "no '%s': %s" % (line, p.poll()))
    out, err = p.stdout.read(), p.stderr.read()
    check(p.wait(HANG) == 143 and out == "saved %s at step %s" % (state, read.split()[-1]) + "\n" and not in_time(err), "exit %d: %s%s%s" % (p.returncode, read, out, err))
