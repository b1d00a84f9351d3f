"""Everything that run.py runs, compiled where the compiler is: test programs of tests/gpu/test_*.cu, models for CUDA, and what
the same models' CPU programs compute. The folder it leaves is all that the machine with the GPUs needs besides this repository.

  python3 tests/gpu/build.py --build build -o build/gpu-tests [--only REGEX] [--archive FILE.tar.xz]

Relies on: programs.py, harness.py, build/shardc, libsc_cpu.a, libsc_cuda.a; nvcc. Relied on by: make gpu-build."""
import argparse
import concurrent.futures
import glob
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "program"), os.path.join(ROOT, "tests")]
import op_cases  # noqa: E402
import programs  # noqa: E402
from harness import settings  # noqa: E402

STEPS = ["--steps", "20", "--seed", "7", "--lr", "1e-3", "--warmup", "2"]
GRADIENTS = ".cpu.grads.safetensors"  # of the CPU's program, after its name


def must(args, **kw):
    p = subprocess.run(args, capture_output=True, text=True, errors="replace", **kw)
    if p.returncode:
        raise SystemExit("exit %d from %s\n%s" % (p.returncode, " ".join(args), (p.stdout + p.stderr)[-3000:]))
    return p.stdout


def model_file(name):
    """A model's path: from the repository's root, or its name in models/."""
    return next(p for p in (os.path.join(ROOT, name), os.path.join(ROOT, "models", name)) if os.path.exists(p))


class Builder:
    def __init__(self, o):
        self.build, self.out, self.arch, self.work = os.path.abspath(o.build), os.path.abspath(o.output), o.arch, os.path.abspath(o.output) + ".work"
        self.shardc = os.path.join(self.build, "shardc")
        os.makedirs(self.out, exist_ok=True)
        os.makedirs(self.work, exist_ok=True)

    def newer(self, made, *sources):
        return os.path.exists(made) and all(os.path.getmtime(s) <= os.path.getmtime(made) for s in sources)

    def text(self):
        """Byte-level tokens of the licence's words in a random order: the same whatever else changes in the repository."""
        made = os.path.join(self.out, "text.bin")
        if os.path.exists(made):
            return made
        plain = os.path.join(self.work, "text")
        with open(os.path.join(ROOT, "LICENSE")) as f:
            words = f.read().split()
        with open(plain, "w") as f:
            f.write(" ".join(random.Random(1).choices(words, k=20000))[:100000])
        must([self.shardc, "data", plain, "-o", made])
        return made

    def model(self, name, file, world, options, more=()):
        """A program for CUDA, without its sources."""
        made, path = os.path.join(self.out, name), os.path.join(self.work, name)
        file = model_file(file)
        beside = [f for f in glob.glob(os.path.join(os.path.dirname(file), "*")) if os.path.isfile(f)]  # what a model may load
        if self.newer(made, self.shardc, os.path.join(self.build, "libsc_cuda.a"), *beside, *filter(os.path.isfile, more)):
            return
        with open(os.path.join(self.build, "libsc_cuda.archs")) as f:
            archs = f.read().split()
        if "--arch" in more and more[more.index("--arch") + 1].replace("sm_", "") not in archs:
            print("%s is left out: the runtime was made for %s only" % (name, " ".join(archs)))
            return
        must([self.shardc, "build", file, "--world", str(world), *settings(options), "--target", "cuda", "--arch", self.arch,
              *more, "-o", path], cwd=ROOT)
        shutil.copy2(path, made)
        must(["strip", made])

    def reference(self, name, file, world, options, more=(), further=()):
        """20 steps of the CPU's program; further: arguments of the run."""
        made, path, file = os.path.join(self.out, name + ".cpu.jsonl"), os.path.join(self.work, name + ".cpu"), model_file(file)
        if self.newer(made, self.shardc, os.path.join(self.build, "libsc_cpu.a"), file):
            return
        must([self.shardc, "build", file, "--world", str(world), *settings(options), *more, "-o", path], cwd=ROOT)
        must([path, "--data", os.path.join(self.out, "text.bin"), *STEPS, *accumulation(options), *further, "--log", made, "--threads", "1"])

    def golden(self, name, case, world, **more):
        with open(os.path.join(ROOT, "tests", "golden", case + ".json")) as f:
            about = json.load(f)
        options = dict(about["options"], **more)
        if "batch" in options:
            options["batch"] //= world
        folder = os.path.join(self.work, name + ".model")
        os.makedirs(folder, exist_ok=True)
        self.model(name, op_cases.model_file(about["model"], folder), world, options)

    def kernels(self, source):
        """A test program of kernels; its own way out of errors goes before the runtime's."""
        name = os.path.basename(source).rsplit(".", 1)[0]
        made = os.path.join(self.out, name)
        library = os.path.join(self.build, "libsc_cuda.a")
        if self.newer(made, source, library, *glob.glob(os.path.join(HERE, "*.h"))):
            return
        nvcc = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
        nvcc = nvcc if os.path.exists(nvcc) else shutil.which("nvcc")
        arch, opener = self.arch.replace("sm_", ""), os.path.join(self.work, name + ".libraries.o")
        must(["gcc", "-O2", "-I", os.path.join(ROOT, "runtime"), "-c", os.path.join(HERE, "libraries.c"), "-o", opener])
        must([nvcc, "-std=c++17", "-O2", "-fmad=false", "-I", os.path.join(ROOT, "runtime"), "-gencode", "arch=compute_%s,code=sm_%s" % (arch, arch),
              source, opener, library, "-Xlinker", "-zmuldefs", "-l:libjansson.a", "-lpthread", "-lrt", "-ldl", "-o", made])
        must(["strip", made])

    def collectives(self):
        """NCCL through the runtime, without a model."""
        made, source, library = os.path.join(self.out, "collectives"), os.path.join(HERE, "test_collective.c"), os.path.join(self.build, "libsc_cuda.a")
        if self.newer(made, source, library):
            return
        home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        runtime = [p for d in ("lib64", "lib", "targets/x86_64-linux/lib") for p in glob.glob(os.path.join(home, d, "libcudart_static.a"))]
        must(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-I", os.path.join(ROOT, "runtime"), "-isystem", os.path.join(home, "include"), source, library,
              runtime[0], "-l:libjansson.a", "-lm", "-lpthread", "-lrt", "-ldl", "-lstdc++", "-o", made])
        must(["strip", made])

    def tool(self, name):
        """shardc or sc_calibrate, for cases that predict with what is measured there; beside it libraries that a machine may lack."""
        made, source = os.path.join(self.out, name), os.path.join(self.build, name)
        if not self.newer(made, source):
            shutil.copy2(source, made)
            must(["strip", made])
        for library in re.findall(r"=> (\S*/libcjson\S*)", must(["ldd", source])):
            shutil.copy2(library, self.out)

    def watcher(self):
        """The library that lists what a program allocates on the device; CUPTI may be missing where this is built."""
        made, source = os.path.join(self.out, "allocations.so"), os.path.join(HERE, "allocations.c")
        home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        library = [p for d in ("lib", "lib64", "extras/CUPTI/lib64") for p in glob.glob(os.path.join(home, d, "libcupti.so.13"))]
        if not library or self.newer(made, source):
            return
        must(["gcc", "-O2", "-shared", "-fPIC", "-isystem", os.path.join(home, "include"), "-isystem", os.path.join(home, "extras/CUPTI/include"), source,
              "-o", made, library[0], "-ldl"])


def accumulation(options):
    return ["--accumulate", str(options["accumulate"])] if options.get("accumulate") else []


def dump(name, made):
    """Arguments of a run of fp32-MODEL-wN that write the gradients of the step of which they are compared."""
    return ["--dump", "*.grad", "--at-step", str(programs.gradients_after(name)), "-o", made]


def jobs(b):
    """(name, call) of everything to be made."""
    for name, (file, world, options) in programs.fp32().items():
        wanted = dump(name, os.path.join(b.out, name + GRADIENTS)) if world == 1 else []  # other worlds see the same samples
        yield name, lambda n=name, a=(file, world, options), d=wanted: (b.model(n, *a), b.reference(n, *a, further=d))
    for name, a in programs.bf16().items():
        yield name, lambda n=name, a=a: b.model(n, *a)
    for family in programs.families():
        for name, a in getattr(family, "PROGRAMS", {}).items():
            yield name, lambda n=name, a=a: b.model(n, *a)
            cpu = getattr(family, "CPU", ())
            if name in cpu:
                yield name, lambda n=name, a=a, f=cpu[name] if isinstance(cpu, dict) else (): b.reference(n, *a, further=f)
    for case, world in programs.GOLDEN:
        name = "golden-%s-w%d" % (case, world)
        yield name, lambda n=name, a=(case, world): b.golden(n, *a)
    for dtype in programs.NARROW:
        name = "golden-ops-%s-w1" % dtype
        yield name, lambda n=name, d=dtype: b.golden(n, "ops", 1, precision=d)
    file, options = programs.CURVE
    yield "curve-gpt2-w1", lambda: b.model("curve-gpt2-w1", file, 1, dict(options, precision="bf16"))
    for source in sorted(glob.glob(os.path.join(HERE, "test_*.cu"))):
        yield os.path.basename(source), lambda s=source: b.kernels(s)
    yield "collectives", b.collectives
    for name in "shardc", "sc_calibrate":
        yield name, lambda n=name: b.tool(n)
    yield "allocations.so", b.watcher


def archive(folder, path):
    """One file to carry: the programs share most of their kernels, so a window over all of them matters."""
    with tarfile.open(path, "w:xz", preset=6) if not shutil.which("xz") else tarfile.open(path + ".tar", "w") as t:
        for name in sorted(os.listdir(folder), key=lambda n: (n.endswith(".jsonl"), n)):
            t.add(os.path.join(folder, name), os.path.join(os.path.basename(folder), name))
    if shutil.which("xz"):
        with open(path, "wb") as f:
            subprocess.run(["xz", "-c", "-T1", "--lzma2=preset=2,dict=256MiB", path + ".tar"], stdout=f, check=True)
        os.unlink(path + ".tar")
    print("%s: %.1f MB" % (path, os.path.getsize(path) / 1e6))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default=os.path.join(ROOT, "build"))
    a.add_argument("-o", "--output", default=os.path.join(ROOT, "build", "gpu-tests"))
    a.add_argument("--arch", default="sm_90")
    a.add_argument("--only", default="", help="regular expression over names")
    a.add_argument("--jobs", type=int, default=2)
    a.add_argument("--archive", help="pack the folder into this .tar.xz too")
    o = a.parse_args()
    b = Builder(o)
    b.text()
    wanted = [j for j in jobs(b) if re.search(o.only, j[0])]
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        waiting = [pool.submit(j[1]) for j in wanted]
        try:
            for done in concurrent.futures.as_completed(waiting):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    files = os.listdir(b.out)
    print("%s: %d files, %.1f MB" % (b.out, len(files), sum(os.path.getsize(os.path.join(b.out, f)) for f in files) / 1e6))
    if o.archive:
        archive(b.out, o.archive)


if __name__ == "__main__":
    sys.exit(main())
