"""`shardc doctor`: what it says of this machine, of one without anything, and of machines that stand-ins for nvidia-smi, NVML and nvcc make up.
What it says can be built is what `shardc build` builds.

Relies on: harness.py, gcc. Relied on by: run.py."""
import json
import os
import re
import shutil

from harness import ROOT, SHARDC, check, command, must, scratch

MLP = os.path.join(ROOT, "models", "mlp.lua")
NOWHERE = dict.fromkeys(("CUDA_HOME", "NCCL_HOME", "CUBLAS_HOME", "CUDNN_HOME", "NVML_HOME"), "/nowhere")


def doctor(*args, shardc=SHARDC, **env):
    """(exit code, the document, {name: fact}); text is printed too, and is to have the same exit code."""
    rc, out, err = command([shardc, "doctor", *args, "--format", "json"], env=env)
    check(rc in (0, 1) and not err, "exit %d: %s" % (rc, err))
    said = json.loads(out)
    for f in said["findings"]:
        check(f["state"] in ("ok", "check", "absent", "missing") and f["value"], "a fact: %s" % f)
        check(f["state"] == "ok" or f["without"], "it does not say what does not work: %s" % f)
    code, text, _ = command([shardc, "doctor", *args], env=env)
    check(code == rc, "text ends with %d, JSON with %d" % (code, rc))
    for line in text.splitlines():
        check(len(line) <= 80 or len(line[28:].split()) == 1, "%d columns: %s" % (len(line), line))
        check(all(c.isprintable() for c in line), "a control character: %r" % line)
    facts = {}
    for f in said["findings"]:
        facts.setdefault(f["name"], f)
        facts[f["group"] + " " + f["name"]] = f
    return rc, said, facts, text


def script(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def smi(*lines):
    """PATH with an nvidia-smi that prints these lines before all others."""
    folder = scratch("smi")
    script(folder, "nvidia-smi", "cat <<'END'\n%s\nEND\n" % "\n".join(lines))
    return folder + ":" + os.environ["PATH"]


def test_this_machine():
    rc, said, facts, text = doctor()
    check(rc == 0 and said["builds_cpu"] and said["format"] == "shardc-doctor", "exit %d: %s" % (rc, text))
    for name in ("C compiler", "OpenBLAS", "Jansson", "zlib", "trial", "cpu runtime", "system", "processor", "memory", "open files"):
        check(facts[name]["state"] == "ok", "%s: %s" % (name, facts[name]))
    for name, pc in (("OpenBLAS", "openblas"), ("Jansson", "jansson"), ("zlib", "zlib")):
        path = re.search(r"/\S+\.a\b", facts[name]["value"])[0]
        beside = os.path.join(os.path.dirname(path), "pkgconfig", pc + ".pc")
        version = re.search(r"^[Vv]ersion[:=] *(\d[\d.]*)", open(beside).read(), re.M) if os.path.exists(beside) else None
        check(facts[name]["value"] == ("%s (%s)" % (version[1], path) if version else path), "%s" % facts[name])
    check(said["cores"] == len(os.sched_getaffinity(0)) or os.path.exists("/sys/fs/cgroup/cpu.max"), "%d cores" % said["cores"])
    all_memory = 1024 * int(re.search(r"MemTotal:\s*(\d+)", open("/proc/meminfo").read()).group(1))
    check(0 < said["memory_bytes"] <= all_memory, "%d bytes of memory" % said["memory_bytes"])
    one = command(["taskset", "-c", str(min(os.sched_getaffinity(0))), SHARDC, "doctor", "--format", "json"])
    check(json.loads(one[1])["cores"] == 1, "on one core: %s" % one[1])
    files = command(["sh", "-c", 'ulimit -n 256; exec "$0" doctor', SHARDC])[1]
    check(re.search(r"check +open files +256\n +so +a run .*\n(.*\n)? +to mend +.*ulimit -n", files), files)


def test_what_it_says_is_what_build_does():
    """Environments in which a part is not there: the doctor's exit code is that of a build, and it names the part and what mends it."""
    folder, empty = scratch("environments"), scratch("nothing")
    alone = shutil.copy2(SHARDC, os.path.join(folder, "shardc"))
    no_linker = script(folder, "cc-no-linker", 'case " $* " in *" -c "*|*" --version "*|*-print-file*) exec gcc "$@";; esac; echo "collect2: fatal error: cannot find '"'ld'"'" >&2; exit 1\n')
    no_zlib = script(folder, "cc-no-zlib", 'case "$*" in *-print-file-name=libz.a) echo libz.a; exit;; *-l:libz.a*) echo "ld: cannot find -l:libz.a" >&2; exit 1;; esac; exec gcc "$@"\n')
    cases = [({}, SHARDC, None, ""), ({"CC": "ccache-of-no-name gcc"}, SHARDC, "C compiler", "unset CC"), ({"PATH": empty}, SHARDC, "C compiler", "apt-get install -y gcc libc6-dev"),
             ({"CC": no_linker}, SHARDC, "trial", "binutils"), ({"CC": no_zlib}, SHARDC, "zlib", "apt-get install -y zlib1g-dev"),
             ({"SHARDC_HOME": None}, alone, "runtime", "in a checkout of shardc, and set SHARDC_HOME")]
    for env, shardc, part, mend in cases:
        rc, said, facts, text = doctor(shardc=shardc, **env)
        built, _, err = command([shardc, "build", MLP, "-o", os.path.join(folder, "out", "mlp")], env=env)
        check(rc == built == (part is not None), "%s: the doctor ends with %d, a build with %d: %s" % (env, rc, built, err))
        check(said["builds_cpu"] == (rc == 0), "%s: %s" % (env, said["no_cpu_build"]))
        if part:
            check(facts[part]["state"] == "missing" and mend in facts[part]["mend"], "%s: %s" % (env, facts[part]))
            check("MISSING %s" % part in text and "no program can be built: %s: " % part in " ".join(text.split()), text)
    return "%d environments" % len(cases)


def test_nothing_on_the_path():
    rc, _, facts, text = doctor(PATH="/nowhere", **NOWHERE)
    check(rc == 1 and facts["Python"]["state"] == "absent" and "python3-pip" in facts["Python"]["mend"], "%s" % facts["Python"])
    for name in ("GPU", "nvcc", "CUDA runtime", "cuBLASLt", "cuDNN", "NCCL"):
        check(facts[name]["state"] == "absent", "%s: %s" % (name, facts[name]))
    check("neither nvidia-smi nor the driver's library" in facts["GPU"]["value"], "%s" % facts["GPU"])
    check("CUDA_HOME" in facts["nvcc"]["value"] and "cuda-toolkit-13" in facts["nvcc"]["mend"], "%s" % facts["nvcc"])
    rc, _, facts, _ = doctor(SHARDC_PYTHON="/nowhere/python", SHARDC_LIBCLANG="/nowhere/libclang.so")
    check(rc == 0 and "/nowhere/python" in facts["Python"]["value"] and facts["libclang"]["mend"] == "unset SHARDC_LIBCLANG", "%s" % facts["libclang"])


def test_gpus():
    """By a stand-in for nvidia-smi: profiles by name and by memory, the driver's age, what several GPUs want of the machine."""
    two = ["NVIDIA H200, 143771, 580.95.05, 9.0"] * 2
    rc, said, facts, text = doctor(PATH=smi(*two), **NOWHERE)
    check(rc == 0 and [g["profile"] for g in said["gpus"]] == ["h200"] * 2 and said["gpus"][0]["profile_fits"], "%s" % said["gpus"])
    check(said["gpus"][0]["memory_bytes"] == 143771 << 20 and said["gpus"][0]["arch"] == "sm_90", "%s" % said["gpus"])
    check(facts["GPU"]["value"] == "2 of NVIDIA H200, 140.4GiB, sm_90" and "--device h200 (measured" in facts["profile"]["value"], text)
    check(facts["driver"]["state"] == "ok" and facts["NCCL"]["state"] == "missing" and "pip install nvidia-nccl-cu13" in facts["NCCL"]["mend"], text)
    locked = command(["sh", "-c", 'ulimit -l 64; exec "$0" doctor', SHARDC], env={"PATH": smi(*two)})[1]
    check(re.search(r"check +locked memory +64.0KiB\n +so +NCCL over InfiniBand", locked), locked)
    for line, name, fits in (("NVIDIA A100-SXM4-80GB, 81920, 580.1, 8.0", "a100", True), ("NVIDIA A100-SXM4-40GB, 40960, 580.1, 8.0", "a100", False),
                             ("NVIDIA GeForce RTX 4090, 24564, 590.44, 8.9", "rtx4090", True), ("NVIDIA GH200 480GB, 97871, 580.1, 9.0", None, False),
                             ("NVIDIA L40S, 46068, 580.1, 8.9", "l40s", True), ("NVIDIA L40, 46068, 580.1, 8.9", None, False), ("NVIDIA H200 NVL, 143771, 580.1, [N/A]", "h200", True)):
        _, said, facts, _ = doctor(PATH=smi(line), **NOWHERE)
        check((said["gpus"][0]["profile"], said["gpus"][0]["profile_fits"]) == (name, fits), "%s: %s" % (line, said["gpus"]))
        check((facts["profile"]["state"] == "ok") == fits and (fits or "shardc calibrate" in facts["profile"]["mend"]), "%s: %s" % (line, facts["profile"]))
    _, _, facts, _ = doctor(PATH=smi("Tesla V100, 16384, 535.1, 7.0"), **NOWHERE)
    check(facts["driver"]["state"] == "missing" and "580 or newer" in facts["driver"]["mend"], "%s" % facts["driver"])
    broken = scratch("broken")
    script(broken, "nvidia-smi", "echo 'NVIDIA-SMI has failed because it could not \033[31mcommunicate' ; exit 9\n")
    for path, words in ((broken + ":" + os.environ["PATH"], "nvidia-smi ended with status 9: NVIDIA-SMI has failed"), (smi("No devices were found"), "nvidia-smi says: No devices were found"),
                        (smi("H200, lots, 1, 1"), "nvidia-smi says: H200")):
        rc, said, facts, _ = doctor(PATH=path, **NOWHERE)
        check(rc == 0 and not said["gpus"] and words in facts["GPU"]["value"], "%s" % facts["GPU"])


NVML = """
#include <string.h>
#include <stdlib.h>
int nvmlInit_v2(void) { if (getenv("NVML_DIES")) abort(); return getenv("NVML_FAILS") != 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = 0; return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(void) { return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void) { return 0; }
int nvmlDeviceGetName(void *d, char *t, unsigned n) { strncpy(t, "NVIDIA H100 80GB HBM3", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 81559ull << 20; return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strncpy(t, "580.82.07", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
"""


def test_gpus_by_the_drivers_library():
    """Where no nvidia-smi is, the driver's library is asked, in a process of its own: one that fails or ends its process is told."""
    folder = scratch("nvml")
    source = os.path.join(folder, "nvml.c")
    open(source, "w").write(NVML)
    must(["gcc", "-shared", "-fPIC", source, "-o", os.path.join(folder, "libnvidia-ml.so.1")])
    env = {**NOWHERE, "NVML_HOME": folder}
    if shutil.which("nvidia-smi"):
        env["PATH"] = "/nowhere"
    _, said, facts, _ = doctor(**env)
    check(said["gpus"] == [{"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 81559 << 20, "driver": "580.82.07", "arch": "sm_90", "profile": "h100", "profile_fits": True}], "%s" % said["gpus"])
    for variable, words in (("NVML_DIES", "does not answer: signal 6"), ("NVML_FAILS", "the driver lists none")):
        _, said, facts, _ = doctor(**env, **{variable: "1"})
        check(not said["gpus"] and words in facts["GPU"]["value"], "%s" % facts["GPU"])


def test_device():
    """--device: exit 1 where its programs cannot be built, with the sentence of the build; 0 where all that a build looks for is there."""
    folder, toolkit = scratch("shardc"), scratch("toolkit")
    os.mkdir(os.path.join(toolkit, "bin"))
    env = {**NOWHERE, "CUDA_HOME": toolkit, "SHARDC_HOME": folder, "shardc": shutil.copy2(SHARDC, os.path.join(folder, "shardc"))}
    os.symlink(os.path.join(ROOT, "runtime"), os.path.join(folder, "runtime"))
    for name in ("libsc_cpu.a", "libsc_cuda.a"):
        open(os.path.join(folder, name), "w").close()
    open(os.path.join(folder, "libsc_cuda.archs"), "w").write("80 90\n")
    rc, said, facts, text = doctor("--device", "h200", **env)
    check(rc == 1 and facts["nvcc"]["state"] == "missing" and "nvcc, the compiler of CUDA 13, is not in" in said["no_cuda_build"], "exit %d: %s" % (rc, text))
    check(doctor(**env)[0] == 0 and doctor("--device", "cpu", **env)[0] == 0, "without --device h200 it is no failure")
    script(os.path.join(toolkit, "bin"), "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    check("nvcc is 12.4, and CUDA 13 is wanted" in doctor("--device", "h200", **env)[2]["nvcc"]["value"], "an old nvcc")
    script(os.path.join(toolkit, "bin"), "nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    rc, said, _, _ = doctor("--device", "h200", **env)
    check(rc == 1 and "libcudart_static.a" in said["no_cuda_build"], "%s" % said["no_cuda_build"])
    open(os.path.join(toolkit, "libcudart_static.a"), "w").close()
    rc, said, facts, text = doctor("--device", "h200", **env)
    check(rc == 0 and said["builds_cuda"] and facts["cuda runtime"]["value"].endswith("libsc_cuda.a for compute capabilities 8.0, 9.0"), "exit %d: %s" % (rc, text))
    check("for h200 programs can be built here, and run where a GPU is" in " ".join(text.split()), text)
    rc, said, _, _ = doctor("--device", "b200", **env)
    check(rc == 1 and "run make cuda CUDA_ARCHS='100 80 90'" in said["no_cuda_build"], "%s" % said["no_cuda_build"])
    rc, _, err = command([SHARDC, "doctor", "--device", "h300"])
    check(rc == 1 and 'no device profile "h300"; did you mean "h' in err, err)
    rc, _, err = command([SHARDC, "doctor", "x.lua"])
    check(rc == 2 and "`shardc doctor` takes no input" in err, "exit %d: %s" % (rc, err))
