"""The CUDA target's host side without a GPU: streams, waits, graphs, communicators, launching and looking inside, over
tests/gpu/fake_cuda.c, with the CPU's kernels. Work runs in a random order that the waits permit, so a run is right when it
has the CPU target's bits. Kernels themselves are tested in tests/gpu.

Relies on: harness.py, tests/gpu/fake_cuda.c, CUDA's and NCCL's headers (skipped where they are not).
Relied on by: run.py."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

from harness import BUILD, LOCK, ROOT, build, check, command, corpus, must, read_log, read_safetensors, run, same_run, scratch, steps

FLAGS = ["gcc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-D_GNU_SOURCE", "-O1", "-g"]
BLAS = glob.glob("/usr/lib/*/openblas-serial/libopenblas.a")
SMALL = dict(layers=2, dim=32, heads=2, vocab=256, batch=4, seq=32)
NET = os.path.join(ROOT, "tests", "program", "surface", "net.lua")


def headers():
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), nvcc and os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "/usr/local/cuda"]
    found = [os.path.join(h, "include") for h in homes if h and os.path.exists(os.path.join(h, "include", "cuda_runtime.h"))]
    nccl = [d for d in found + ["/usr/include", "/usr/local/include"] if os.path.exists(os.path.join(d, "nccl.h"))]
    return [a for d in dict.fromkeys(found[:1] + nccl[:1]) for a in ("-isystem", d)] if found and nccl else None


def objects():
    folder = os.path.join(BUILD, "tests", "fake_cuda")
    with LOCK:
        if not os.path.exists(folder):
            part = folder + ".part"
            shutil.rmtree(part, ignore_errors=True)
            os.makedirs(part)
            for source in sorted(glob.glob(os.path.join(ROOT, "runtime/cuda/*.c"))) + [os.path.join(ROOT, "tests/gpu/fake_cuda.c")]:
                name = os.path.basename(source)[:-2] + ".o"
                must([*FLAGS, *headers(), "-c", source, "-o", os.path.join(part, name)])
            os.rename(part, folder)
    rest = [f for d in ("host", "common") for f in sorted(glob.glob(os.path.join(BUILD, "runtime", d, "*.o")))]
    kernels = sorted(glob.glob(os.path.join(BUILD, "runtime/cpu/k_*.o")))
    return sorted(glob.glob(folder + "/*.o")) + rest + kernels + [os.path.join(BUILD, "runtime/cpu", n + ".o") for n in ("pointwise", "blas_memory")]


def fake(binary, change=None, name="fake"):
    """The same program over the fake; change: edits the step's text first."""
    made = "%s_%s" % (binary, name)
    if os.path.exists(made):
        return made
    text = open(binary + ".c").read()
    source = made + ".c"
    open(source, "w").write(change(text) if change else text)
    must(["gcc", "-std=gnu17", "-O0", "-I", os.path.join(ROOT, "runtime"), "-Dsc_run=fake_run", "-c", source, "-o", made + ".o"], cwd=os.path.dirname(binary))
    wrap = ["-Wl,--wrap=blas_memory_alloc", "-Wl,--wrap=blas_memory_free"]
    must(["gcc", made + ".o", binary + "_kernels.o", *objects(), BLAS[0], *wrap, "-l:libjansson.a", "-lm", "-lpthread", "-lrt", "-o", made])
    return made


def go(binary, *args, seed=1, timeout=120):
    folder = scratch("fake")
    log, weights = os.path.join(folder, "log.jsonl"), os.path.join(folder, "weights.safetensors")
    out = must([binary, "--data", corpus(), "--seed", "3", "--log", log, "--export", weights, *args], env={"SC_FAKE_SEED": str(seed)}, timeout=timeout)
    return read_log(log), read_safetensors(weights), out


def on_cpu(binary, *args):
    return run(binary, "--data", corpus(), "--seed", "3", *args)


CASES = [
    ("gpt2.lua", 1, dict(SMALL, dropout=0.1, recompute="full"), None),
    ("gpt2.lua", 3, dict(SMALL, dropout=0.1, recompute="selective", offload="activations", accumulate=2, precision="bf16"), None),
    ("mlp.lua", 2, {}, None),
    ("llama3.lua", 2, dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32, reshard=False), None),
    (NET, 4, dict(batch=4), "mesh = { shard = 2, replicate = 2 }"),
    (NET, 2, dict(batch=4), "mesh = { shard = 1 }"),
]


def policy(mesh):
    path = os.path.join(scratch("mesh"), "policy.lua")
    open(path, "w").write("return { { match = '', fully_shard = { %s } }, { match = 'blocks.*', fully_shard = { %s } } }\n" % (mesh, mesh))
    return path


def test_runs_have_the_cpus_bits():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    for model, world, options, mesh in CASES:
        b = build(model, world=world, policy=mesh and policy(mesh), **options)
        args = ("--steps", "3", *(("--accumulate", "2") if "accumulate" in options else ()))
        expected = on_cpu(b, *args)
        for seed in 1, 2:
            for more in (), ("--no-graph",):
                same_run(go(fake(b), *args, *more, seed=seed), expected, "%s, world %d, seed %d %s" % (os.path.basename(model), world, seed, more))
    return "%d programs, graphs on and off, random orders" % len(CASES)


def test_a_missing_wait_shows():
    """The fake would notice: without its waits for gathers the same program computes something else."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    b = build("mlp.lua", world=2)
    expected = on_cpu(b, "--steps", "3")
    broken = fake(b, lambda text: re.sub(r"sc_wait\(r, COMPUTE, g\w+\);", ";", text), "broken")
    for seed in range(1, 9):
        rc, _, err = command([broken, "--data", corpus(), "--seed", "3", "--steps", "3", "--log", broken + ".jsonl", "--allow-nan", "--stall-seconds", "5"], env={"SC_FAKE_SEED": str(seed)})
        if rc or [s["loss"] for s in steps(read_log(broken + ".jsonl"))] != [s["loss"] for s in steps(expected[0])]:
            return "seen with seed %d" % seed
    check(False, "no difference in 8 random orders")


def test_looking_inside_changes_nothing():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    b = build("gpt2.lua", world=2, **dict(SMALL, offload="activations", precision="bf16"))
    expected, folder = on_cpu(b, "--steps", "3"), scratch("inside")
    trace, theirs, ours = (os.path.join(folder, n) for n in ("trace.json", "cpu.safetensors", "fake.safetensors"))
    for args in ["--poison"], ["--check-finite"], ["--trace", trace], ["--dump", "h.0.*", "--at-step", "2", "-o", ours]:
        same_run(go(fake(b), "--steps", "3", *args), expected, " ".join(args[:1]))
    events = [e for e in json.load(open(trace)) if e["ph"] == "X"]
    check(len(events) > 300 and all(e["dur"] >= 0 for e in events), "the trace has %d events" % len(events))
    must([b, "--data", corpus(), "--seed", "3", "--steps", "3", "--dump", "h.0.*", "--at-step", "2", "-o", theirs])
    check(read_safetensors(theirs) == read_safetensors(ours), "dumps differ")
    rc, _, err = command([fake(b), "--data", corpus(), "--steps", "20", "--lr", "1e30", "--check-finite"])
    check(rc == 3 and re.search(r"gpt2\.lua:\d+: e\w+ .* gave (NaN|infinity)", err), "exit %d: %s" % (rc, err))
    return "poison, check-finite, trace of %d events, dump" % len(events)


def test_refusals():
    """One message, whatever the number of ranks, and exit 1 within seconds."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=3))
    for env, args, says in [
        ({"SC_FAKE_GPUS": "0"}, [], "no GPU is visible"),
        ({"SC_FAKE_GPUS": "2"}, [], "built for 3 ranks, a GPU each, and 2 GPUs are visible: build it with --world 2"),
        ({"SC_FAKE_FREE": "1000"}, [], r"its arena takes .* and .* \(1000 bytes\) of .* are free on GPU \d"),
        ({"SC_FAKE_NCCL": "22205"}, [], "NCCL is version 2.22.5, and this program needs 2.28"),
        ({"RANK": "0", "WORLD_SIZE": "3"}, [], "without torchrun, srun or mpirun"),
        ({}, ["--redzones"], "works on the cpu target only"),
        ({}, ["--interleave", "1"], "works on the cpu target only"),
    ]:
        start = time.time()
        rc, _, err = command([f, "--data", corpus(), "--steps", "2", *args], env=env, timeout=30)
        check(rc == 1 and re.search(says, err) and len(err.splitlines()) == 1, "%s: exit %d: %s" % (says, rc, err))
        check(time.time() - start < 10, "%s: took %.1f s" % (says, time.time() - start))
    return "7 refusals"


def test_a_stopped_rank_is_named():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=2))
    p = subprocess.Popen([f, "--data", corpus(), "--steps", "1000000", "--quiet", "--stall-seconds", "2"], stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1.5)
        kids = [int(k) for k in open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()]
        check(len(kids) == 2, "the launcher has the children %s" % kids)
        os.kill(max(kids), signal.SIGSTOP)
        err = p.communicate(timeout=30)[1]
    finally:
        p.kill()
    check(p.returncode == 3 and "no progress for 2 s" in err, "exit %d: %s" % (p.returncode, err))
    check("rank 1's process %d is stopped (SIGSTOP)" % max(kids) in err, err)
    check(re.search(r"rank 0 \S+ +meets the other ranks in \S+ (all_gather|reduce_scatter|all_reduce) .*\(.*mlp\.lua:\d+\)", err) or "rank 0 is in the training program, at a barrier" in err, err)
    return next(line.strip() for line in err.splitlines() if "rank 0" in line and "m" in line)
