"""AddressSanitizer and UndefinedBehaviorSanitizer over the compiler, the unit tests, the tables of bad input and the hostile
files; the programs that are built there run under them too. A report of theirs is a failure.

Relies on: harness.py, what `make unit-asan` builds. Relied on by: run.py."""
import os
import re
import shutil
import subprocess
import sys
import threading

from harness import BUILD, MANY, ROOT, check, corpus, long, scratch

FOLDER = os.path.join(BUILD, "asan")
TESTS = r"^(bad_input|cli|hostile)\."
SMALL = ["layers=2", "dim=32", "heads=2", "vocab=256", "batch=2", "seq=16"]
# model, world, options
MODELS = [
    ("mlp.lua", 1, []),
    ("mlp.lua", 4, []),
    ("gpt2.lua", 2, SMALL + ["precision=bf16", "dropout=0.1", "recompute=selective", "offload=activations", "accumulate=3"]),
    ("gpt2.lua", 4, SMALL + ["precision=fp16", "recompute=full", "offload=state", "reshard=false", "prefetch=2"]),
    ("llama3.lua", 2, SMALL + ["kv_heads=1", "ffn=64", "precision=bf16", "recompute=full"]),
    ("llama3.lua", 8, ["size=8b"]),
    ("transformer.lua", 2, SMALL + ["precision=bf16", "recompute=selective", "offload=activations"]),
    (os.path.join("extensions", "gather.lua"), 2, ["wire=fp8", "layers=2"]),
    (os.path.join("extensions", "custom.lua"), 2, []),
    (os.path.join("..", "tests", "program", "contrastive.lua"), 4, ["way=scatter", "replicate=2", "checkpoint=true"]),
]


def environment(leaks):
    """Leaks count where a command ends well: an exit in the middle frees nothing, and Criterion loses things."""
    check(os.path.exists(os.path.join(FOLDER, "shardc")), "build/asan has no shardc: run `make unit-asan`")
    options = "allocator_may_return_null=1:abort_on_error=0:exitcode=86:detect_leaks=%d" % leaks
    cc = os.path.join(FOLDER, "cc")
    with open("%s.new-%d" % (cc, threading.get_ident()), "w") as f:
        f.write('#!/bin/sh\nexec gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined "$@"\n')
    os.chmod(f.name, 0o755)
    os.replace(f.name, cc)
    return dict(os.environ, ASAN_OPTIONS=options, UBSAN_OPTIONS="print_stacktrace=1", SHARDC_HOME=ROOT, CC=cc)


def clean(args, what, leaks=1, codes=(0,), timeout=MANY):
    p = subprocess.run(args, env=environment(leaks), cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=timeout)
    said = re.search(r"(runtime error:|ERROR: \w+Sanitizer).*", p.stdout + p.stderr)
    check(p.returncode in codes and not said, "%s: exit %d: %s" % (what, p.returncode, (said and (p.stdout + p.stderr)[said.start():][:4000]) or (p.stdout + p.stderr)[-3000:]))
    return p.stdout


@long
def test_units():
    tested = 0
    for u in ("unit_compiler", "unit_kernels", "unit_runtime", "unit_host"):
        p = subprocess.run([os.path.join(FOLDER, u), "-j2"], env=environment(0), cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=MANY)
        text = p.stdout + p.stderr
        m = re.search(r"Tested: .*?(\d+).*?Failing: .*?(\d+).*?Crashing: .*?(\d+)", re.sub(r"\x1b\[[0-9;]*m", "", text))
        check(p.returncode == 0 and m and m.group(2) == m.group(3) == "0", "%s: exit %d: %s" % (u, p.returncode, text[-4000:]))
        tested += int(m.group(1))
    return "%d unit tests" % tested


@long
def test_bad_input():
    out = clean([sys.executable, os.path.join(ROOT, "tests/program/run.py"), "--build", FOLDER, "--no-unit", "--only", TESTS], "tests", leaks=0)
    return out.strip().splitlines()[-1]


@long
def test_models():
    folder, n = scratch("sanitized"), 0
    shardc, plan = os.path.join(FOLDER, "shardc"), os.path.join(folder, "plan.json")
    for model, world, sets in MODELS:
        args = [os.path.join(ROOT, "models", model), "--world", str(world)] + [a for s in sets for a in ("--set", s)]
        what = " ".join([model, str(world)] + sets)
        for command in (["predict"], ["inspect"], ["verify"], ["inspect", "--format", "json", "-o", plan], ["predict", "--device", "h200"], ["predict", "--format", "json"]):
            clean([shardc, command[0], *args, *command[1:]], "%s %s" % (command, what))
            n += 1
        for command in ("predict", "inspect", "verify"):
            clean([shardc, command, plan], "%s of the plan of %s" % (command, what))
            n += 1
        if "8b" not in what:
            clean([shardc, "build", *args, "-o", os.path.join(folder, "out")], "build " + what)
            n += 1
    return "%d commands" % n


@long
def test_training():
    """Programs under the sanitizers: everything that a run reads, does and writes, with all switches for debugging."""
    folder, n = scratch("sanitized-runs"), 0
    shardc, data = os.path.join(FOLDER, "shardc"), corpus()
    path = lambda name: os.path.join(folder, name)
    for model, world, sets in MODELS:
        if "8b" in " ".join(sets):
            continue
        what, binary = " ".join([model, str(world)] + sets), path("run%d" % n)
        clean([shardc, "build", os.path.join(ROOT, "models", model), "--world", str(world), *[a for s in sets for a in ("--set", s)], "-o", binary], "build " + what)
        run = [binary, "--data", data, "--val-data", data, "--eval-steps", "2"]
        ways = [["--steps", "3", "--save", path("state"), "--export", path("w"), "--log", path("log"), "--eval-every", "2"],
                ["--steps", "4", "--resume", path("state"), "--check-finite", "--poison", "--redzones"],
                ["--steps", "1", "--weights", path("w"), "--interleave", "3", "--dump", "*", "--at-step", "1", "-o", path("dump"), "--trace", path("trace")]]
        if n < 3:
            ways.append(["--steps", "1", "--sample", "5", "--prompt", "Once"])
        for way in ways:
            clean([*run, *way], "%s: %s" % (what, " ".join(way)))
        shutil.rmtree(path("state"))
        n += 1
    return "%d models" % n
