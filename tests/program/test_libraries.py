"""How a CUDA program finds its libraries, with stand-ins for them: runtime/cuda/{library,forward}.c need neither CUDA nor a
GPU. A library is looked for in the order that library.c states; what is missing, too old or damaged is said in one sentence.

Relies on: harness.py, gcc. Relied on by: run.py."""
import os
import re
import shutil

from harness import ROOT, check, command, must, scratch

CUDA = os.path.join(ROOT, "runtime", "cuda")
FILES = {"CUBLASLT": "libcublasLt.so.13", "NCCL": "libnccl.so.2", "CUDNN": "libcudnn.so.9", "NVML": "libnvidia-ml.so.1"}
DRIVER = r'''
#include "library.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* Libraries of this machine are not there: the loader sees LD_LIBRARY_PATH, and files below the test's folder. */
void *__real_dlopen(const char *file, int flags);
void *__wrap_dlopen(const char *file, int flags) {
    char path[4096];
    if (!strchr(file, '/')) {
        snprintf(path, sizeof path, "%s/%s", getenv("LD_LIBRARY_PATH"), file);
        file = path;
    }
    return strncmp(file, TOP, strlen(TOP)) ? NULL : __real_dlopen(file, flags);
}
const char *ncclGetErrorString(int e, double x, ...);
int main(int argc, char **argv) {
    if (argv[argc - 1] != argv[0]) return ncclGetErrorString(1, 2) != NULL; /* before it is open */
    for (int l = 0; l < SC_LIBRARIES; l++) {
        const char *why = sc_library_open(l);
        if (why != sc_library_open(l)) return 9;
        printf("%d|%d|%s|%s\n", l, sc_library_version(l), why ? "" : sc_library_path(l), why ? why : "");
    }
    if (!sc_library_open(SC_LIB_NCCL)) printf("%s\n", ncclGetErrorString(3, 0.5, 7));
}
'''


def names(library):
    return re.findall(r"^%s\((\w+)\)" % library, open(os.path.join(CUDA, "forward.def")).read(), re.M)


def driver(folder):
    path = os.path.join(folder, "driver")
    open(path + ".c", "w").write(DRIVER)
    must(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-DTOP=\"%s\"" % folder, "-Wl,--wrap=dlopen", "-I", CUDA, path + ".c", os.path.join(CUDA, "library.c"), os.path.join(CUDA, "forward.c"), "-o", path, "-ldl"])
    return path


def stand_in(folder, library, version, lacks=""):
    """A library with the functions that forward.def names."""
    os.makedirs(folder, exist_ok=True)
    special = {"ncclGetVersion": "int ncclGetVersion(int *v) { *v = %d; return 0; }" % version,
               "cublasLtGetVersion": "unsigned long cublasLtGetVersion(void) { return %d; }" % version,
               "cudnnGetVersion": "unsigned long cudnnGetVersion(void) { return %d; }" % version,
               "ncclGetErrorString": "#include <stdarg.h>\n#include <stdio.h>\nconst char *ncclGetErrorString(int e, double x, ...) { static char t[64]; va_list a; va_start(a, x); "
                                     "snprintf(t, sizeof t, \"%%d %%g %%d of %d\", e, x, va_arg(a, int)); va_end(a); return t; }" % version}
    source = os.path.join(folder, "source.c")
    open(source, "w").write("\n".join(special.get(n, "int %s(void) { return 0; }" % n) for n in names(library) if n != lacks))
    must(["gcc", "-shared", "-fPIC", source, "-Wl,-soname," + FILES[library], "-o", os.path.join(folder, FILES[library])])
    os.unlink(source)
    return folder


def opened(program, **env):
    """[(version, path, what is wrong)] by library, and what NCCL's function answered."""
    clean = {k: "" for k in ("LD_LIBRARY_PATH", "CUDA_HOME", "NCCL_HOME", "CUBLAS_HOME", "CUDNN_HOME", "VIRTUAL_ENV", "CONDA_PREFIX")}
    rc, out, err = command([program], env={**clean, "PATH": "/nowhere", "HOME": "/nowhere", **env}, cwd="/")
    check(rc == 0, "exit %d: %s" % (rc, err))
    lines = [line.split("|") for line in out.splitlines()]
    return {n: (int(l[1]), l[2], l[3]) for n, l in zip(FILES, lines)}, lines[-1][0]


def test_places_and_their_order():
    top = scratch("libraries")
    program = driver(top)

    def at(*path):
        return os.path.join(top, *path)

    def is_taken(version, path, **env):
        found, answer = opened(program, **env)
        check(found["NCCL"][:2] == (version, os.path.join(path, FILES["NCCL"])) and answer == "3 0.5 7 of %d" % version, "%s: %s %s" % (env, found["NCCL"], answer))
    python = at("venv", "lib", "python3.12", "site-packages", "nvidia")
    stand_in(os.path.join(python, "nccl", "lib"), "NCCL", 22900)
    is_taken(22900, os.path.join(python, "nccl", "lib"), VIRTUAL_ENV=at("venv"))
    os.makedirs(at("venv", "bin"))
    os.symlink("/bin/true", at("venv", "bin", "python3"))
    is_taken(22900, os.path.join(python, "nccl", "lib"), PATH="/nowhere:" + at("venv", "bin"))
    shutil.copytree(at("venv", "lib"), at("away", ".local", "lib"))
    is_taken(22900, at("away", ".local", "lib", "python3.12", "site-packages", "nvidia", "nccl", "lib"), HOME=at("away"))
    stand_in(at("conda", "lib"), "NCCL", 22901)
    is_taken(22901, at("conda", "lib"), CONDA_PREFIX=at("conda"))
    stand_in(at("cuda", "lib64"), "NCCL", 22902)
    is_taken(22902, at("cuda", "lib64"), CUDA_HOME=at("cuda"), CONDA_PREFIX=at("conda"))
    stand_in(at("path"), "NCCL", 22903)
    is_taken(22903, at("path"), CUDA_HOME=at("cuda"), LD_LIBRARY_PATH=at("path"))
    stand_in(at("own", "lib"), "NCCL", 22904)
    is_taken(22904, at("own", "lib"), NCCL_HOME=at("own"), LD_LIBRARY_PATH=at("path"))
    is_taken(22904, at("own", "lib"), NCCL_HOME=at("own", "lib"))
    stand_in(at("old"), "NCCL", 22205)  # passed over
    is_taken(22902, at("cuda", "lib64"), LD_LIBRARY_PATH=at("old"), CUDA_HOME=at("cuda"))
    stand_in(top, "NCCL", 22905)
    is_taken(22905, top, CUDA_HOME=at("cuda"))
    return "9 places"


def test_what_is_wrong_is_said():
    top = scratch("libraries")
    program = driver(top)
    empty, old, new, lacking, damaged = (os.path.join(top, n) for n in ("empty", "old", "new", "lacking", "damaged"))
    stand_in(old, "NCCL", 22205)
    stand_in(old, "CUDNN", 80907)
    stand_in(old, "CUBLASLT", 120803)
    stand_in(new, "NCCL", 23000)
    stand_in(lacking, "NCCL", 22809, lacks="ncclCommAbort")
    for f in empty, damaged:
        os.mkdir(f)
    for f in FILES.values():
        open(os.path.join(damaged, f), "w").write("no library\n")
    for env, library, says in [
        (dict(NCCL_HOME=empty), "NCCL", r"libnccl\.so\.2 \(NCCL 2\.28 or newer\) is not there; looked in NCCL_HOME=%s, its lib64 and lib; correct NCCL_HOME, or unset it" % empty),
        (dict(NCCL_HOME=old, CUDA_HOME=new), "NCCL", r"NCCL 2\.22\.5 \(%s/libnccl\.so\.2\) is too old: this program needs 2\.28 or newer; looked in NCCL_HOME" % old),
        (dict(NCCL_HOME=lacking), "NCCL", r"libnccl\.so\.2 .* cannot be loaded: %s/libnccl\.so\.2 has no ncclCommAbort" % lacking),
        (dict(NCCL_HOME=damaged), "NCCL", r"libnccl\.so\.2 .* cannot be loaded: %s/libnccl\.so\.2: (file too short|invalid ELF header)" % damaged),
        (dict(CUBLAS_HOME=empty), "CUBLASLT", r"libcublasLt\.so\.13 \(cuBLASLt 13\.0 or newer\) is not there; looked in CUBLAS_HOME"),
        (dict(CUBLAS_HOME=old), "CUBLASLT", r"cuBLASLt 12\.8\.3 \(.*\) is too old: this program needs 13\.0"),
        (dict(CUDNN_HOME=empty), "CUDNN", r"libcudnn\.so\.9 \(cuDNN 9\.\d+ or newer\) is not there; looked in CUDNN_HOME"),
        (dict(CUDNN_HOME=old), "CUDNN", r"cuDNN 8\.9\.7 \(.*\) is too old: this program needs 9\."),
        (dict(NVML_HOME=empty), "NVML", r"libnvidia-ml\.so\.1 \(NVML\) is not there; looked in NVML_HOME"),
    ]:
        found = opened(program, **env)[0][library]
        check(found[:2] == (0, "") and re.match(says, found[2]), "%s: %s" % (env, found))
    for env, says in [
        (dict(CUDA_HOME=empty), r"is not there; looked in LD_LIBRARY_PATH, .*CUDA_HOME=%s, /usr/local/cuda and python3's packages; install the GPU's driver, or set NVML_HOME to the folder that holds it$" % empty),
        ({}, r"CUDA_HOME \(not set\), /usr"),
        (dict(LD_LIBRARY_PATH=damaged), r"cannot be loaded: %s/libnvidia-ml\.so\.1: " % damaged),
    ]:
        found = opened(program, **env)[0]["NVML"][2]
        check(found.startswith("libnvidia-ml.so.1 (NVML) ") and re.search(says, found), found)
    rc, _, err = command([program, "early"])
    check(rc == 1 and err == "shardc: a function of a CUDA library was called before the library was loaded; please report it\n", "exit %d: %s" % (rc, err))
    return "13 cases"
