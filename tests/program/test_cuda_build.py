"""Programs for CUDA compile where nvcc is, without a GPU: every model for sm_80 and sm_90 with warnings as errors, kernels of both
architectures in the runtime's library, and a binary that needs no library of CUDA to be linked.

Relies on: harness.py, build/libsc_cuda.a (`make cuda`). Relied on by: run.py."""
import glob
import os
import re
import shutil
import struct

from harness import BUILD, ROOT, SHARDC, check, command, long, must, scratch, shardc

NVCC = next((p for p in (os.path.join(os.environ.get("CUDA_HOME", ""), "bin", "nvcc"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc") if p and os.path.exists(p)), None)
LIBRARY = os.path.join(BUILD, "libsc_cuda.a")
MISSING = "skipped: no nvcc, or no header of cuBLASLt, NCCL or cuDNN (see make cuda)"
# What nvcc adds to every call: the warnings of both compilers are errors. No kernel runs here, so that none needs to be fast.
STRICT = {"NVCC_APPEND_FLAGS": "-Ofc max -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror,-Wno-unused-parameter"}

MODELS = [
    ("mlp.lua", "sm_80", ["precision=bf16"]),
    ("gpt2.lua", "sm_90", ["layers=2", "dim=64", "heads=2", "vocab=256", "batch=2", "seq=64", "precision=bf16", "dropout=0.1", "recompute=full", "offload=activations"]),
    ("llama3.lua", "sm_90", ["size=tiny", "precision=bf16"]),
    ("qwen2.lua", "sm_80", ["size=tiny"]),
    ("transformer.lua", "sm_80", ["layers=1", "dim=64", "heads=2", "vocab=256", "batch=2", "seq=64"]),
    ("extensions/gather.lua", "sm_90", ["wire=fp8"]),
    ("extensions/custom.lua", "sm_80", []),
]


def architectures(path):
    """What the fat binaries inside a file hold code for: a header (magic, version, its size, size of what follows), then entries
    (kind: 2 for machine code; version, header's size, payload's size; the architecture in the word at byte 28)."""
    data, found = open(path, "rb").read(), set()
    for m in re.finditer(re.escape(struct.pack("<I", 0xBA55ED50)), data):
        _, _, header, size = struct.unpack_from("<IHHQ", data, m.start())
        at = m.start() + header
        end = at + size
        while at < end:
            kind, _, header, payload = struct.unpack_from("<HHIQ", data, at)
            if kind == 2:
                found.add("sm_%d" % struct.unpack_from("<I", data, at + 28))
            at += header + payload
    return found


@long
def test_every_model_compiles():
    if not NVCC or not os.path.exists(LIBRARY):
        return MISSING
    folder = scratch("cuda")
    for model, arch, options in MODELS:
        binary = os.path.join(folder, model[:-4], model[:-4])
        shardc("build", "models/" + model, "--target", "cuda", "--arch", arch, "--world", "2", *[a for o in options for a in ("--set", o)], "-o", binary, env=STRICT)
        check(arch in architectures(binary), "%s holds code for %s, not for %s" % (model, architectures(binary), arch))
        needed = re.findall(r"NEEDED.*\[(.*)\]", must(["readelf", "-d", binary]))
        check(not [n for n in needed if re.search("cuda|cublas|nccl|cudnn", n)], "%s cannot start without %s" % (model, needed))
        rc, out, err = command([binary, "--data", "none.bin", "--steps", "1"])
        check(rc == 1 and (out + err).count("\n") < 5, "%s without a GPU: exit %d, %s" % (model, rc, out + err))
    return "%d models" % len(MODELS)


def test_a_models_own_cuda():
    """Row X4 in CUDA C: types are held against their use, and what nvcc alone can know stands at the C line."""
    if not NVCC or not os.path.exists(LIBRARY):
        return MISSING
    folder = scratch("own-cuda")
    for name in ("gather.lua", "gather_bf16.c", "gather_fp8.c", "gather_fp8.cu"):
        shutil.copy(os.path.join(ROOT, "models", "extensions", name), folder)
    good = open(os.path.join(ROOT, "models", "extensions", "gather_bf16.cu")).read()
    for old, new, pattern in (("float *parameter, cudaStream_t", "int *parameter, cudaStream_t", r"gather_bf16\.cu:\d+: post_all_gather: parameter parameter is `int \*`"),
                              (", cudaStream_t stream) {\n    int64_t n", ") {\n    cudaStream_t stream = 0;\n    int64_t n",
                               r"gather_bf16\.cu:\d+: pre_all_gather has 3 parameters; .* calls it with 4: write `.*cudaStream_t stream\)`"),
                              ("= sc_to_bf16(x[i]);", "= sc_to_bf16(x[i])", r"gather_bf16\.cu:1[0-9]: expected ';' after expression"),
                              ("= sc_to_bf16(x[i]);", "= nope(x[i]);", r"gather_bf16\.cu:14: .*nope.* \(says nvcc, which builds the program\)")):
        check(good.count(old) == 1, "the example has changed: " + old)
        open(os.path.join(folder, "gather_bf16.cu"), "w").write(good.replace(old, new))
        rc, out, err = command([SHARDC, "build", os.path.join(folder, "gather.lua"), "--target", "cuda", "--world", "2", "-o", os.path.join(folder, "x")])
        check(rc == 1 and re.search(pattern, err) and len(err.strip().splitlines()) == 1, "%s: exit %d, %s" % (new, rc, err[-600:]))
    return "4 mistakes, each at its line"


def test_the_runtime_holds_both_architectures():
    if not NVCC or not os.path.exists(LIBRARY):
        return MISSING
    found = architectures(LIBRARY)
    check({"sm_80", "sm_90"} <= found, "libsc_cuda.a holds code for %s" % sorted(found))
    return ", ".join(sorted(found))


def test_programs_of_gpu_tests_compile():
    """make gpu-test and bench/ compile them where a GPU is; here they are held against the structs of today."""
    if not os.path.exists(LIBRARY) or not NVCC:
        return MISSING
    sources = sorted(glob.glob(os.path.join(ROOT, "tests", "gpu", "*.cu")))
    for source in sources:
        must([NVCC, "-std=c++17", "-O0", "-fmad=false", "-w", "-gencode", "arch=compute_90,code=sm_90", "-I", os.path.join(ROOT, "runtime"), "-c", source, "-o", os.path.join(scratch("gpu"), "made.o")])
    return "%d sources" % len(sources)


def test_the_gpu_tests_know_their_programs():
    """tests/gpu/build.py and run.py load all that they import, without nvcc and without a GPU: names of cases, and nothing to build. Every row
    has cases on 1, 2 and 4 GPUs; those that speak of several ranks on 2 and 4."""
    folder = scratch("gpu-tests")
    must(["/usr/bin/python3", os.path.join(ROOT, "tests", "gpu", "build.py"), "--build", BUILD, "-o", folder, "--only", "^no such program$"])
    cases = must(["/usr/bin/python3", os.path.join(ROOT, "tests", "gpu", "run.py"), "--build", folder, "--list"]).splitlines()
    for row in "M1 M2 M3 C1 C2 C3 C4 X1 X2 X3 X4 G1 G2 G3 G4 G5 O1 O2 S".split():
        gpus = {int(c.split()[1]) for c in cases if re.match(r"rows\.%s[-._]" % row, c)}
        check(gpus >= ({2, 4} if row in ("G4", "G5", "O1", "O2") else {1, 2, 4}), "cases of row %s on %s GPUs" % (row, sorted(gpus)))
    return "%d cases" % len(cases)
