"""The CUDA target without a GPU: streams, waits, graphs, communicators, launching and looking inside, over
tests/gpu/fake_cuda.c. Work runs in a random order that the waits permit. With the CPU's kernels a run is right when it has
the CPU target's bits; programs as they are emitted for CUDA run with its own kernels, lane by lane, over tests/gpu/emulate
(only matmul is the CPU's: cuBLASLt is not ours, nor cuDNN, so that attention is our own).

Relies on: harness.py, tests/gpu/{fake_cuda.c,fake_machine.c,emulate}, CUDA's and NCCL's headers (skipped where they are not).
Relied on by: run.py."""
import errno
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

from harness import BUILD, HANG, NET, ROOT, build, check, close, command, corpus, library, long, losses, microbatches, must, read_log, read_safetensors, run, same_run, scratch, settings, shared, steps, trains, until, waits
from test_launch import Ranks

FLAGS = ["gcc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-D_GNU_SOURCE", "-O1", "-g"]
BLAS = glob.glob("/usr/lib/*/openblas-serial/libopenblas.a")
LINKING, MAKING = threading.Lock(), threading.Lock()
SMALL = dict(layers=2, dim=32, heads=2, vocab=256, batch=4, seq=32)


def headers():
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), nvcc and os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "/usr/local/cuda"]
    found = [os.path.join(h, "include") for h in homes if h and os.path.exists(os.path.join(h, "include", "cuda_runtime.h"))]
    nccl = [d for d in found + ["/usr/include", "/usr/local/include"] if os.path.exists(os.path.join(d, "nccl.h"))]
    return [a for d in dict.fromkeys(found[:1] + nccl[:1]) for a in ("-isystem", d)] if found and nccl else None


def compiled(name, jobs):
    """A folder of objects, made once: jobs(folder) gives (object, command without -o)."""
    def make(folder):
        os.makedirs(folder)
        for target, args in jobs(folder):
            must([*args, "-o", os.path.join(folder, target)])
    return sorted(glob.glob(shared(name, make) + "/*.o"))


def fake_objects():
    def jobs(folder):
        for source in sorted(glob.glob(os.path.join(ROOT, "runtime/cuda/*.c"))) + [os.path.join(ROOT, "tests/gpu", f) for f in ("fake_cuda.c", "fake_machine.c")]:
            if not source.endswith("forward.c"):  # the fake has those functions itself
                yield os.path.basename(source)[:-2] + ".o", [*FLAGS, *headers(), "-c", source]
    return compiled("fake_cuda", jobs) + [f for d in ("host", "common", "page", "text") for f in sorted(glob.glob(os.path.join(BUILD, "runtime", d, "*.o")))]


def emulated(source, level="-O1"):
    header = "mma.h" if "attention" in os.path.basename(source) else "kernel.h"
    return ["g++", "-std=c++17", level, "-w", "-I", os.path.join(ROOT, "runtime"), *headers(), "-include", os.path.join(ROOT, "tests/gpu/emulate", header), "-x", "c++", "-c", source]


def emulated_objects():
    ours = ("cudaMalloc", "cudaFree", "cudaMemcpy", "cudaMemsetAsync", "cudaStreamSynchronize", "cudaGetErrorName", "cudaGetErrorString")

    def jobs(folder):
        for source in sorted(glob.glob(os.path.join(ROOT, "runtime/cuda/k_*.cu"))):
            if not source.endswith(("k_matmul.cu", "_cudnn.cu", "k_debug_sleep.cu")):
                yield os.path.basename(source)[:-3] + ".o", emulated(source)
        yield "emulate.o", ["g++", "-std=c++17", "-O1", "-I", os.path.join(ROOT, "runtime"), *headers(), "-c", os.path.join(ROOT, "tests/gpu/emulate/emulate.cc")]
        must(["objcopy", *["--weaken-symbol=" + f for f in ours], os.path.join(folder, "emulate.o")])
        none = os.path.join(scratch("fake"), "no_finish.c")
        open(none, "w").write('#include "sc_kernels.h"\nsc_kernel *sc_kernel_finish(sc_kernel *k) { return (void)k, NULL; }\n')
        yield "no_finish.o", ["gcc", "-I", os.path.join(ROOT, "runtime"), "-c", none]
    return compiled("emulated", jobs)


def linked(made, step, kernels, objects, cc="gcc"):
    cpu = [os.path.join(BUILD, "runtime/cpu", n + ".o") for n in kernels]
    stand_before = re.findall(r" T __wrap_(\w+)", must(["nm", os.path.join(BUILD, "runtime/cpu/blas_memory.o")]))
    wrap = ["-Wl,--wrap=" + f for f in [*stand_before, "dlopen"]]
    host = os.path.join(BUILD, "runtime/cuda/host_kernels.o")
    with MAKING:
        must(["make", "--no-print-directory", "B=" + BUILD, host])
    must([cc, "-fuse-ld=lld", *step, *objects, *fake_objects(), host, *cpu, BLAS[0], *wrap, "-l:libjansson.a", "-l:libz.a", "-lm", "-lpthread", "-lrt", "-ldl", "-o", made])
    return made


def step(source, made):
    must(["gcc", "-std=gnu17", "-O0", "-I", os.path.join(ROOT, "runtime"), "-Dsc_run=fake_run", "-c", source, "-o", made], cwd=os.path.dirname(source))
    return made


def fake(binary, change=None, name="fake"):
    """The CPU's program over the fake; change: edits the step's text first."""
    made = "%s_%s" % (binary, name)
    with LINKING:  # tests that run side by side share a program
        if os.path.exists(made):
            return made
        text = open(binary + ".c").read().replace('.target = "cpu"', '.target = "cuda"', 1)
        open(made + ".c", "w").write(change(text) if change else text)
        kernels = [os.path.basename(f)[:-2] for f in sorted(glob.glob(os.path.join(BUILD, "runtime/cpu/k_*.o")))]
        return linked(made, [step(made + ".c", made + ".o"), binary + "_kernels.o"], kernels + ["pointwise", "blas_memory"], [])


def emit(model, world, options):
    """The sources of a program for CUDA; nothing is compiled (there may be no nvcc)."""
    folder = scratch("emitted")
    must([os.path.join(BUILD, "shardc"), "build", os.path.join(ROOT, "models", model), "--target", "cuda", "--world", str(world), "--redzone", "256", "--sources", *settings(options), "-o", os.path.join(folder, "net")])
    made = os.path.join(folder, "fake")
    must([*emulated(os.path.join(folder, "net_kernels.cu"), "-O0"), "-o", os.path.join(folder, "kernels.o")])
    return linked(made, [step(os.path.join(folder, "net.c"), made + ".o"), os.path.join(folder, "kernels.o")], ["k_matmul", "k_blas", "k_chunk", "blas_memory"], emulated_objects(), "g++")


@long
def test_kernels_lane_by_lane():
    """The trials that `make gpu-test` runs on a GPU, of the kernels that need no library."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    objects, folder, passed = [o for o in emulated_objects() if "k_matmul_quantize" not in o], scratch("trials"), 0  # that one calls matmul
    for name in "test_kernels", "test_order", "test_updates", "test_fp8", "test_combined", "test_attention":
        made = os.path.join(folder, name)
        must([*emulated(os.path.join(ROOT, "tests/gpu", name + ".cu")), "-DSC_EMULATE", "-o", made + ".o"])
        must(["g++", made + ".o", *[o for o in objects if ("k_attention" in o) <= (name == "test_attention")], "-lpthread", "-o", made])
        rc, out, err = command([made])
        check(rc == 0, "%s: exit %d: %s%s" % (name, rc, "".join(l + "\n" for l in out.splitlines() if not l.startswith("ok"))[-2000:], err))
        passed += int(out.split()[-4])
    check(passed > 1000, "only %d trials" % passed)
    return "%d trials" % passed


def go(binary, *args, seed=1):
    folder = scratch("fake")
    log, weights = os.path.join(folder, "log.jsonl"), os.path.join(folder, "weights.safetensors")
    out = must([binary, "--data", corpus(), "--seed", "3", "--log", log, "--export", weights, *args], env={"SC_FAKE_SEED": str(seed)})
    return read_log(log), read_safetensors(weights), out


def go_with(binary, records, *args):
    with open(records, "rb") as source:
        return must([binary, "--data", "-", *args], env={"SC_FAKE_SEED": "1"}, stdin_file=source)


def on_cpu(binary, *args):
    return run(binary, "--data", corpus(), "--seed", "3", *args)


CASES = [
    ("gpt2.lua", 1, dict(SMALL, dropout=0.1, recompute="full"), None),
    ("gpt2.lua", 3, dict(SMALL, dropout=0.1, recompute="selective", offload="activations", accumulate=2, precision="bf16"), None),
    ("mlp.lua", 2, {}, None),
    ("gpt2.lua", 2, dict(SMALL, offload="state", precision="bf16"), None),
    ("llama3.lua", 2, dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32, reshard=False), None),
    ("llama3.lua", 2, dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32, offload="state", moments="bf16"), None),
    (NET, 4, dict(batch=4), "mesh = { shard = 2, replicate = 2 }"),
    (NET, 2, dict(batch=4, moments="bf16"), "offload = { optimizer = 'host' }"),
    (NET, 2, dict(batch=4, moments="int8"), "offload = { optimizer = 'host' }"),
    (NET, 2, dict(batch=4), "mesh = { shard = 1 }"),
    (NET, 4, dict(batch=4), "reshard_after_forward = 2, ignored_params = { 'gain' }"),
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
        args = ("--steps", "3", *microbatches(options))
        expected = on_cpu(b, *args)
        for seed in 1, 2:
            for more in (), ("--no-graph",):
                same_run(go(fake(b), *args, *more, seed=seed), expected, "%s, world %d, seed %d %s" % (os.path.basename(model), world, seed, more))
    return "%d programs, graphs on and off, random orders" % len(CASES)


def threads_of_rank(binary, *args):
    """How many threads the process of the only rank has when it trains."""
    log = os.path.join(scratch("threads"), "log.jsonl")
    p = subprocess.Popen([binary, "--data", corpus(), "--steps", "1000000", "--quiet", "--log", log, *args])
    try:
        until(lambda: trains(log), "the first step")
        rank = open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()[0]
        return len(os.listdir("/proc/%s/task" % rank))
    finally:
        p.terminate()
        p.wait()


def test_threads_update_on_the_host():
    """--threads reaches the threads that update on the host, and changes no bit; without host memory there is nothing for them."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    host, none = (fake(build(NET, world=1, policy=policy(way), batch=4)) for way in ("offload = { optimizer = 'host' }", ""))
    one, many = go(host, "--steps", "3", "--threads", "1"), go(host, "--steps", "3", "--threads", "7")
    check(" on cuda: 1 rank of 1 thread\n" in one[2] and " on cuda: 1 rank of 7 threads\n" in many[2], one[2] + many[2])
    same_run(one, many, "threads")
    found = [threads_of_rank(host, "--threads", n) for n in ("1", "7")]
    check(found[1] == found[0] + 6, "threads of the process: %s" % found)
    out = go(none, "--steps", "1")[2]
    check(" on cuda: 1 rank\n" in out, out)
    rc, _, err = command([none, "--data", corpus(), "--steps", "1", "--threads", "2"])
    check(rc == 1 and "--threads 2: nothing of this binary is in host memory" in err, "exit %d: %s" % (rc, err))


EMULATED = [
    ("gpt2.lua", 2, dict(SMALL, batch=2, dropout=0.1), 1e-6),
    ("gpt2.lua", 2, dict(SMALL, batch=2, precision="bf16", recompute="full", offload="activations", accumulate=2), 2e-3),
    ("llama3.lua", 2, dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32), 1e-6),
    ("llama3.lua", 2, dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32, moments="bf16", offload="state"), 1e-6),
    ("llama3.lua", 2, dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32, moments="int8", offload="state"), 1e-5),
    ("llama3.lua", 3, dict(size="tiny", layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32, precision="bf16", gradients="bf16"), 2e-3),
    # Muon's products are in bf16 and add up in another order
    ("llama3.lua", 2, dict(size="tiny", layers=1, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=32, optimizer="muon"), 1e-5),
    ("transformer.lua", 1, dict(layers=1, dim=32, heads=2, vocab=256, batch=2, seq=32), 1e-6),
    ("gpt2.lua", 1, dict(layers=1, dim=32, heads=2, vocab=256, batch=1, seq=64, precision="bf16"), 2e-3),  # in the workspace that is planned for cuDNN
    ("gpt2.lua", 2, dict(layers=1, dim=144, heads=4, vocab=256, batch=2, seq=40, matmul="fp8", recipe="block"), 2e-3),
    ("gpt2.lua", 2, dict(layers=2, dim=128, heads=2, vocab=256, batch=1, seq=64, precision="bf16", matmul="fp8", clip=0), 2e-3),
    ("llama3.lua", 2, dict(size="tiny", layers=1, dim=128, heads=2, kv_heads=1, ffn=64, vocab=256, batch=1, seq=64, precision="bf16", matmul="fp8", recipe="delayed"), 2e-3),
    ("llama3.lua", 1, dict(size="tiny", layers=1, dim=64, heads=4, kv_heads=2, ffn=96, vocab=256, batch=2, seq=32, precision="bf16", matmul="fp8", recipe="delayed"), 2e-3),
    ("moe.lua", 2, dict(layers=1, dim=64, heads=2, kv_heads=2, head_dim=32, ffn=96, experts=4, vocab=256, batch=1, seq=64, precision="bf16", matmul="fp8", experts_matmul="fp8", recipe="delayed"), 2e-3),
]


@long
def test_programs_for_cuda_agree_with_the_cpu():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    worst = 0
    for model, world, options, tolerance in EMULATED:
        args = ("--steps", "3", *microbatches(options))
        cuda, cpu = emit(model, world, options), on_cpu(build(model, world=world, **options), *args)
        first = go(cuda, *args)
        d = max(close(losses(first[0]), losses(cpu[0]), tolerance, model + ": losses"), close([s["grad_norm"] for s in steps(first[0])], [s["grad_norm"] for s in steps(cpu[0])], 10 * tolerance, model + ": norms"))
        worst = max(worst, d if tolerance < 1e-5 else 0)
        same_run(go(cuda, *args, "--no-graph", seed=2), first, model + ", without graph, another order")
        same_run(go(cuda, *args, "--poison", seed=3), first, model + ", poisoned, a third order")
    return "%d programs, fp32 within %.1e" % (len(EMULATED), worst)


def test_a_missing_wait_shows():
    """The fake would notice: without its waits for gathers the same program computes something else."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    b = build("mlp.lua", world=2)
    expected = on_cpu(b, "--steps", "3")
    broken = fake(b, lambda text: re.sub(r"sc_wait\(r, COMPUTE, g\w+\);", ";", text), "broken")
    for seed in range(1, 41):
        rc, _, err = command([broken, "--data", corpus(), "--seed", "3", "--steps", "3", "--log", broken + ".jsonl", "--allow-nan", "--stall-seconds", "5"], env={"SC_FAKE_SEED": str(seed)})
        if rc or [s["loss"] for s in steps(read_log(broken + ".jsonl"))] != [s["loss"] for s in steps(expected[0])]:
            return "seen with seed %d" % seed
    check(False, "no difference in 40 random orders")


def test_looking_inside_changes_nothing():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    b = build("gpt2.lua", world=2, **dict(SMALL, offload="activations", precision="bf16"))
    expected, folder = on_cpu(b, "--steps", "3"), scratch("inside")
    trace, theirs, ours = (os.path.join(folder, n) for n in ("trace.json", "cpu.safetensors", "fake.safetensors"))
    for args in ["--poison"], ["--redzones"], ["--redzones", "--no-graph"], ["--check-finite"], ["--trace", trace], ["--dump", "h.0.*", "--at-step", "2", "-o", ours]:
        same_run(go(fake(b), "--steps", "3", *args), expected, " ".join(args[:1]))
    events = [e for e in json.load(open(trace)) if e["ph"] == "X"]
    check(len(events) > 300 and all(e["dur"] >= 0 for e in events), "the trace has %d events" % len(events))
    must([b, "--data", corpus(), "--seed", "3", "--steps", "3", "--dump", "h.0.*", "--at-step", "2", "-o", theirs])
    check(read_safetensors(theirs) == read_safetensors(ours), "dumps differ")
    rc, _, err = command([fake(b), "--data", corpus(), "--steps", "20", "--lr", "1e30", "--check-finite"])
    check(rc == 3 and re.search(r"gpt2\.lua:\d+: e\w+ .* gave (NaN|infinity)", err), "exit %d: %s" % (rc, err))
    return "poison, check-finite, trace of %d events, dump" % len(events)


REFUSALS = [
    ({"SC_FAKE_DRIVER": "0", "SC_FAKE_COUNT": "35"}, [], r"the GPU's driver is not there \(libcuda\.so\.1\).*install the driver"),
    ({"SC_FAKE_DRIVER": "12020", "SC_FAKE_COUNT": "35"}, [], r"driver serves CUDA 12\.2, and this program was built with CUDA 13\.\d: update the driver"),
    ({"SC_FAKE_GPUS": "0"}, [], r"no GPU is visible \(CUDA_VISIBLE_DEVICES is "),
    ({"SC_FAKE_GPUS": "0", "CUDA_VISIBLE_DEVICES": "7"}, [], r"no GPU is visible \(CUDA_VISIBLE_DEVICES is '7'\)"),
    ({"SC_FAKE_COUNT": "802"}, [], "the GPUs cannot be used: .*nvidia-fabricmanager"),
    ({"SC_FAKE_COUNT": "803"}, [], "the GPUs cannot be used: .* kernel module differ"),
    ({"SC_FAKE_COUNT": "804"}, [], "the GPUs cannot be used: .*forward compatibility"),
    ({"SC_FAKE_COUNT": "999"}, [], "the GPUs cannot be used: .*see nvidia-smi, and dmesg"),
    ({"SC_FAKE_GPUS": "2"}, [], "built for 3 ranks, a GPU each, and 2 GPUs are visible: build it with --world 2"),
    ({"SC_FAKE_GPUS": "1"}, [], "built for 3 ranks, a GPU each, and 1 GPU is visible: build it with --world 1"),
    ({"SC_FAKE_CONTEXT": "46"}, [], r"GPU \d \(Fake \d\) cannot be used: .*another process holds it alone.*COMPUTE"),
    ({"SC_FAKE_CONTEXT": "2"}, [], r"GPU \d \(Fake \d\) cannot be used: .*its memory is full"),
    ({"SC_FAKE_CONTEXT": "214"}, [], r"GPU \d \(Fake \d\) cannot be used: .*its memory is damaged"),
    ({"SC_FAKE_FREE": "1000"}, [], r"its arena takes .* and .* \(1000 bytes\) of .* are free on GPU \d"),
    ({"SC_FAKE_NCCL": "22205"}, [], r"NCCL 2\.22\.5 .* is too old: this program needs 2\.28 or newer; .* set NCCL_HOME"),
    ({"SC_FAKE_MISSING": "libnccl"}, [], r"libnccl\.so\.2 \(NCCL 2\.28 or newer\) is not there; .* set NCCL_HOME"),
    ({"SC_FAKE_MISSING": "libcublasLt"}, [], r"libcublasLt\.so\.13 \(cuBLASLt 13\.0 or newer\) is not there; .* set CUBLAS_HOME"),
    ({"RANK": "0", "WORLD_SIZE": "2"}, [], r"was built for 3 ranks, and torchrun has started 2 \(WORLD_SIZE=2\): start it with --nproc-per-node 3, or build it with `shardc build .* --world 2`"),
    ({}, ["--interleave", "1"], "works on the cpu target only"),
]


def refused(command_line, env, says):
    rc, _, err = command(command_line, env=env)
    check(rc == 1 and re.search(says, err) and len(err.splitlines()) == 1, "%s: exit %d: %s" % (says, rc, err))


def test_refusals():
    """One message, whatever the number of ranks, and exit 1 within seconds."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=3))
    for env, args, says in REFUSALS:
        refused([f, "--data", corpus(), "--steps", "2", *args], env, says)
    other = fake(build("mlp.lua", world=2), lambda text: text.replace("    .deterministic =", '    .arch = "sm_80",\n    .deterministic =', 1), "sm80")
    refused([other, "--data", corpus(), "--steps", "2"], {}, r"compiled for sm_80, and GPU \d \(Fake \d\) is sm_90: build it with --arch sm_90$")
    must([other, "--data", corpus(), "--steps", "2"], env={"SC_FAKE_ARCH": "86"})
    codes, _, err = Ranks("torchrun", [f] * 3, "--data", corpus(), "--steps", "2", env={"SC_FAKE_GPUS": "1"}).wait()
    check(codes == [1] * 3 and re.match(r"shardc: ranks 0 and 1 were given one and the same GPU \(0000:10:00\.0\): give each process a GPU of its own, let all of them see all GPUs \(CUDA_VISIBLE_DEVICES\), or share with --share-gpus\n$", err), "exit %s: %s" % (codes, err))
    codes, _, err = Ranks("torchrun", [f] * 3, "--data", corpus(), "--steps", "2", env={"SC_FAKE_GPUS": "2"}).wait()
    check(codes == [1] * 3 and "built for 3 ranks, a GPU each, and 2 GPUs are visible" in err and len(err.splitlines()) == 1, "exit %s: %s" % (codes, err))
    return "%d refusals" % (len(REFUSALS) + 3)


def test_ranks_share_gpus():
    """Where there are fewer GPUs than ranks and the user says so: the same bits. NCCL would refuse two ranks of one machine with one GPU."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    b, args = build("mlp.lua", world=3), ["--data", corpus(), "--seed", "3", "--steps", "3", "--share-gpus"]
    f, expected, folder = fake(b), on_cpu(b, "--steps", "3"), scratch("share")
    log, weights = os.path.join(folder, "log.jsonl"), os.path.join(folder, "weights")
    for gpus in "1", "2", "3":
        must([f, *args, "--log", log, "--export", weights], env={"SC_FAKE_GPUS": gpus})
        same_run((read_log(log), read_safetensors(weights)), expected, "on %s GPUs" % gpus)
    codes, _, err = Ranks("torchrun", [f] * 3, *args, "--log", log, "--export", weights, env={"SC_FAKE_GPUS": "1"}).wait()
    check(codes == [0] * 3, "exit %s: %s" % (codes, err))
    same_run((read_log(log), read_safetensors(weights)), expected, "processes that see one GPU")
    arena = int(re.search(r"^arena +([\d,]+) B", must([f, *args]), re.M)[1].replace(",", ""))
    must([f, *args], env={"SC_FAKE_GPUS": "2", "SC_FAKE_FREE": str(2 * arena)})
    refused([f, *args], {"SC_FAKE_GPUS": "2", "SC_FAKE_FREE": str(2 * arena - 1)}, r"are free on GPU 0 \(Fake 0\) beside the libraries for the 2 ranks that share it; stop what else runs there")
    return "3 ranks on 1, 2 and 3 GPUs"


def test_ranks_that_fail_at_once_say_whole_lines():
    """Standard error is a socket that keeps writes apart: what a rank says is one of them."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f, place = fake(build("mlp.lua", world=4)), r" in \w+ \S+ \S+ \(\S*mlp\.lua:\d+\)"
    for error, says in ("719", "CUDA failed: cudaError719" + place + r" \[\S.* at fake_cuda\.c:\d+\]; see nvidia-smi, .* please report it"), ("-1", "a kernel on the cuda target: it is made to refuse" + place):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        p = subprocess.Popen([f, "--data", corpus(), "--steps", "2"], env=dict(os.environ, SC_FAKE_KERNEL=error), stdout=subprocess.DEVNULL, stderr=theirs)
        theirs.close()
        lines = [line.decode() for line in iter(lambda: ours.recv(65536), b"")]
        ours.close()
        check(p.wait() == 1 and lines and all(re.fullmatch(r"shardc: rank \d: " + says + r"\n", line) for line in lines), "%s: exit %d: %r" % (error, p.returncode, lines))
    return "of CUDA's calls, of kernels"


def test_what_is_asked_of_cudnn():
    """Engines, workspaces and parts of attention, over a fake cuDNN."""
    include = headers()
    homes = [d for d in (include or []) if d != "-isystem"] + [os.path.join(d, "include") for d in [os.environ.get("CUDNN_HOME")] if d]
    if not any(os.path.exists(os.path.join(d, "cudnn.h")) for d in homes):
        return "skipped: no cuda_runtime.h or cudnn.h"
    made = os.path.join(scratch("cudnn"), "choice")
    flags = ["g++", "-std=c++17", "-O1", "-g", "-w", "-I", os.path.join(ROOT, "runtime"), *[a for d in homes for a in ("-isystem", d)]]
    must([*flags, "-x", "c++", "-c", os.path.join(ROOT, "runtime/cuda/k_attention_cudnn.cu"), "-o", made + ".o"])
    must([*flags, os.path.join(ROOT, "tests/gpu/test_attention_choice.cc"), made + ".o", "-o", made])
    return must([made]).splitlines()[-1]


def test_attention_without_cudnn():
    """cuDNN is missing or too old: one line says what that costs, and the program runs; --require-cudnn refuses. All ranks go one way."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    b = build("gpt2.lua", world=2, layers=1, dim=32, heads=2, vocab=256, batch=1, seq=64, precision="bf16")
    f, args = fake(b), ["--data", corpus(), "--steps", "1"]
    costs = r"shardc: attention runs on shardc's own kernels, which take 1\.5 to 2\.4 times as long as cuDNN's \(--require-cudnn refuses that\): "
    absent, old = r"libcudnn\.so\.9 \(cuDNN 9\.12 or newer\) is not there; .* set CUDNN_HOME", r"cuDNN 9\.10\.2 .* is too old: this program needs 9\.12 or newer; .* set CUDNN_HOME"
    for env, says in ({"SC_FAKE_MISSING": "libcudnn"}, absent), ({"SC_FAKE_CUDNN": "91002"}, old):
        rc, out, err = command([f, *args], env=env)
        check(rc == 0 and "step 1/1" in out and re.match(costs + says, err) and len(err.splitlines()) == 1, "exit %d: %s%s" % (rc, out, err))
        refused([f, *args, "--require-cudnn"], env, "^shardc: " + says)
    for env, binary in ({}, f), ({"SC_FAKE_CUDNN": "91400"}, f), ({"SC_FAKE_MISSING": "libcudnn", "SC_FAKE_ARCH": "75"}, f), ({"SC_FAKE_MISSING": "libcudnn"}, fake(build("mlp.lua", world=2))):
        rc, out, err = command([binary, *args, "--require-cudnn"], env=env)
        check(rc == 0 and not err, "%s: exit %d: %s" % (env, rc, err))  # it is there, or no task is its own
    hopper = fake(b, lambda text: text.replace("    .deterministic =", '    .arch = "sm_90",\n    .deterministic =', 1), "hopper")
    rc, out, err = command([hopper, *args, "--require-cudnn"], env={"SC_FAKE_MISSING": "libcudnn"})
    check(rc == 0 and not err, "attention of shardc's kernels for compute capability 9.0 alone needs no cuDNN: exit %d: %s" % (rc, err))
    for missing, has in ("", r"rank 0 has cuDNN 9\.19\.0 and rank 1 none that serves"), ("libcudnn", r"rank 0 has cuDNN none that serves and rank 1 9\.19\.0"):
        env = {"SC_FAKE_OTHER": "1", "SC_FAKE_MISSING": missing or "nothing", "SC_FAKE_OTHER_MISSING": "nothing" if missing else "libcudnn"}
        codes, _, err = Ranks("torchrun", [f] * 2, *args, env=env).wait()
        check(codes == [1] * 2 and re.match("shardc: " + has + ": their results would differ; give every rank the same", err) and len(err.splitlines()) == 1, "exit %s: %s" % (codes, err))
    return "absent, old, not needed, on one rank of two"


def test_libraries_are_listed():
    """--libraries needs no GPU and no data, and says each thing once."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=3))
    says = r"cuBLASLt 13\.0 or newer\n  99\.0\.0    libcublasLt\.so\.13\n            taken: the newest that serves\n(  .*\n)*NCCL 2\.28 or newer\n  2\.28\.9 .*\n(  .*\n)*cuDNN 9\.12 or newer\n  9\.19\.0 .*\n(  .*\n)*NVML\n  none: libnvidia-ml"
    rc, out, err = command([f, "--libraries"], env={"SC_FAKE_GPUS": "0"})
    check(rc == 0 and not err and re.match(says, out), "exit %d: %s%s" % (rc, out, err))
    codes, outs, err = Ranks("torchrun", [f] * 3, "--libraries").wait()
    check(codes == [0] * 3 and not err and re.match(says, outs[0]) and not "".join(outs[1:]), "exit %s: %s%s" % (codes, outs, err))


def test_the_processes_memory_is_logged():
    """NVML tells what the process holds: by its number, or what has come since it began."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=2), lambda text: text.replace('.target = "cpu"', '.target = "cuda"', 1), "footprint")
    for env, used in ({"SC_FAKE_NVML": "123456789"}, 123456789), ({"SC_FAKE_NVML": "5000000000", "SC_FAKE_NVML_PID": "1"}, 5000000001):
        log = os.path.join(scratch("footprint"), "log.jsonl")
        out = must([f, "--data", corpus(), "--steps", "2", "--log", log], env=env)
        found = [line["device_bytes_used"] for line in read_log(log) if "device_bytes_used" in line]
        check(found == [used, used] and format(used, ",") + " B used, on the fullest GPU" in out, "%s: %s\n%s" % (env, found, out))
    out = must([f, "--data", corpus(), "--steps", "2", "--log", log])
    check(re.search(r"^device   Fake 0, CUDA 13\.\d \(driver 13\.0\), cuBLASLt 99\.0\.0, NCCL 2\.28\.9$", out, re.M), out)
    check("B used" not in out and not [line for line in read_log(log) if "device_bytes_used" in line], out)
    return "by number, by difference, not at all"


def two_machines():
    return fake(build("mlp.lua", world=4), lambda text: text.replace(".nodes = 1", ".nodes = 2", 1), "far")


@waits
def test_ranks_on_two_machines():
    """What ranks share is mirrored by TCP: the same bits as on one machine. (Both machines are this one.)"""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    near, far = build("mlp.lua", world=4), two_machines()
    args, folder = ["--data", corpus(), "--seed", "3", "--steps", "6"], scratch("far")
    expected = on_cpu(near, *args[:2], *args[4:6])
    for launcher, order in ("torchrun", None), ("srun", [3, 2, 1, 0]):
        state, log = (os.path.join(folder, launcher + end) for end in ("-state", ".jsonl"))
        exported = os.path.join(folder, launcher, "")
        codes, outs, err = Ranks(launcher, [far] * 4, *args, "--save-every", "3", "--save-in-background", "--save", state, "--log", log, "--export", exported, "--export-shard-size", "20KB",
                                 order=order, machines=2).wait()
        err = err.replace("mlp: note: no config.json beside the exported weights in %s: --weights DIR or --export-like DIR says where it is copied from\n" % exported, "")
        check(codes == [0] * 4 and not err and not "".join(outs[1:]), "%s: exit %s: %s%s" % (launcher, codes, err, outs[1:]))
        weights = os.path.join(folder, "weights")
        must([near, *args[:2], "--steps", "6", "--resume", state, "--export", weights])
        same_run((read_log(log), read_safetensors(weights)), expected, launcher)
        shards = [read_safetensors(exported + name) for name in sorted(os.listdir(exported)) if name.endswith(".safetensors")]
        check(len(shards) > 1 and {k: t for shard in shards for k, t in shard.items()} == expected[1], "%s: exported over machines" % launcher)
    refused([far, "--data", corpus(), "--steps", "2"], {}, r"mlp was built for 2 machines, and its ranks are on 1; start it on 2 with torchrun, srun or mpirun, or build it with --nodes 1")
    quick = dict(machines=2, env={"SHARDC_PATIENCE": "2"})
    codes, _, err = Ranks("torchrun", [far] * 2, *args, world=4, **quick).wait()
    check(codes == [1, 1] and err == "shardc: rank 0 of torchrun cannot meet the ranks of other machines: 1 of 2 machines have come within 2 s\n", "exit %s: %s" % (codes, err))
    codes, _, err = Ranks("torchrun", [far, far, fake(near), far], *args, **quick).wait()
    check(codes == [1] * 4 and err == "shardc: rank 2 runs another program than rank 0: start the same binary everywhere\n", "exit %s: %s" % (codes, err))
    for rank, other in (1, 0), (2, 0), (3, 2):  # two of a machine, of both, of the other one
        codes, _, err = Ranks("torchrun", [far] * 4, *args, machines=2, each={rank: ["--lr", "0.5"]}).wait()
        check(codes == [1] * 4 and err == "shardc: rank %d was started with --lr 0.5, and rank %d without --lr: start all ranks with the same arguments\n" % (rank, other), "exit %s: %s" % (codes, err))
    codes, _, err = Ranks("torchrun", [far] * 4, *args, machines=2, env={"SC_FAKE_GPUS": "1"}).wait()
    check(codes == [1] * 4 and re.search(r"ranks (0 and 1|2 and 3) were given one and the same GPU \(0000:10:00\.0\)", err) and len(err.splitlines()) <= 2, "exit %s: %s" % (codes, err))
    codes, _, err = Ranks("torchrun", [far] * 4, *args, machines=2, env={"SC_FAKE_GPUS": "0"}).wait()
    check(codes == [1] * 4 and "no GPU is visible" in err and len(err.splitlines()) <= 2, "exit %s: %s" % (codes, err))
    for call, says in (1, "cannot start a thread for the ranks of other machines"), (2, "of torchrun cannot start a thread"):
        wish = {"LD_PRELOAD": library("inject"), "SHARDC_INJECT": "%s:pthread_create:%d:%d" % (os.path.basename(far), call, errno.EAGAIN)}
        codes, _, err = Ranks("torchrun", [far] * 4, *args, machines=2, env=wish).wait()
        check(set(codes) <= {1, 3} and says + ": Resource temporarily unavailable" in err, "exit %s: %s" % (codes, err))
    return "torchrun, srun: 2 machines of 2 ranks"


@waits
def test_two_machines_end_together():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    far = two_machines()
    for rank, what in (0, "process"), (1, "rank"), (2, "process"), (3, "process"), (3, "rank"), (2, "stop"):
        log = os.path.join(scratch("two"), "log.jsonl")
        ranks = Ranks("torchrun", [far] * 4, "--data", corpus(), "--steps", "100000000", "--quiet", "--stall-seconds", "5", "--log", log, machines=2)
        child = ranks.child(rank)
        until(lambda: trains(log), "the first step")
        os.kill(ranks.all[rank].pid if what == "process" else child, signal.SIGSTOP if what == "stop" else signal.SIGKILL)
        codes, _, err = ranks.wait()
        says = {"process": r"the process that runs rank %d has vanished|the connection to .* has ended" % rank, "rank": "rank %d was ended by signal 9" % rank, "stop": "rank %d's process %d is stopped" % (rank, child)}[what]
        check(all(c == 3 or c < 0 and k == rank for k, c in enumerate(codes)) and re.search(says, err), "%s %d: exit %s: %s" % (what, rank, codes, err))
    return "killed, stopped"


@waits
def test_one_request_reaches_both_machines():
    """A signal to one rank's process, or to all, on either machine: all save the same step, go on or stop together, and resume."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    far, stopped = two_machines(), []
    for whom, kind in ([3], signal.SIGTERM), ([0], signal.SIGINT), ([0, 1, 2, 3], signal.SIGTERM):
        state = os.path.join(scratch("far"), "state")
        ranks = Ranks("torchrun", [far] * 4, "--data", corpus(), "--steps", "1000000", "--save", state, machines=2)
        try:
            line = lambda words: next((l for l in ranks.all[0].stdout if words in l), b"")
            check(line(b"step "), "no first step")
            for k in whom:
                os.kill(ranks.all[k].pid, signal.SIGUSR1)
            saved = line(b"saved")
            for k in whom:
                os.kill(ranks.all[k].pid, kind)
        finally:
            codes, outs, err = ranks.wait()
        end = re.search(r"stopped at step (\d+)\nsaved \S+ at step \1\n\Z", outs[0])
        check(codes == [128 + kind] * 4 and not err and saved and end, "signal %d to %s: exit %s: %s%s" % (kind, whom, codes, outs, err))
        codes, outs, err = Ranks("torchrun", [far] * 4, "--data", corpus(), "--resume", state, "--steps", str(int(end.group(1)) + 1), machines=2).wait()
        check(codes == [0] * 4, "resumed: exit %s: %s" % (codes, err))
        stopped.append(end.group(1))
    return "stopped at steps " + ", ".join(stopped)


@waits
def test_a_rank_that_stops_on_any_machine_is_named():
    """It stops within a collective that all ranks have come to: only its own machine sees more than that."""
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    far = two_machines()
    for rank in 1, 2:
        ranks = Ranks("torchrun", [far] * 4, "--data", corpus(), "--steps", "100000000", "--quiet", "--stall-seconds", "2", machines=2, env={"SC_FAKE_STOPS": str(rank)})
        child = ranks.child(rank)
        codes, _, err = ranks.wait()
        check(all(c == 3 or c < 0 and k == rank for k, c in enumerate(codes)) and "no progress for 2 s" in err and "behind" not in err, "%d: exit %s: %s" % (rank, codes, err))
        says = r"  rank %d's process %d is stopped \(SIGSTOP\)\n  rank %d is in program micro, step \d+\n(  rank %d .*\n)*  rank %d +\S+ +meets the other ranks in .*\(.*mlp\.lua:\d+\)" % (rank, child, rank, rank, rank)
        check(re.search(says, err) and err.count("is stopped") == err.count("no progress"), "%d: %s" % (rank, err))
    return "one of either machine"


@waits
def test_a_stopped_rank_is_named():
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    f = fake(build("mlp.lua", world=2))
    log = os.path.join(scratch("stopped"), "log")
    p = subprocess.Popen([f, "--data", corpus(), "--steps", "1000000", "--quiet", "--stall-seconds", "5", "--log", log], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: trains(log), "the first step")
        kids = [int(k) for k in open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()]
        check(len(kids) == 2, "the launcher has the children %s" % kids)
        os.kill(max(kids), signal.SIGSTOP)
        err = p.communicate(timeout=HANG)[1]
    finally:
        p.kill()
    check(p.returncode == 3 and "no progress for 5 s" in err, "exit %d: %s" % (p.returncode, err))
    check("rank 1's process %d is stopped (SIGSTOP)" % max(kids) in err, err)
    check(re.search(r"rank 0 \S+ +meets the other ranks in \S+ (all_gather|reduce_scatter|all_reduce) .*\(.*mlp\.lua:\d+\)", err) or "rank 0 is in the training program, at a barrier" in err, err)
    return next(line.strip() for line in err.splitlines() if "rank 0" in line and "m" in line)
