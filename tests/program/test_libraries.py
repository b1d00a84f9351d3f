"""How a CUDA program finds its libraries, with stand-ins for them: runtime/cuda/{library,library_set,forward}.c need neither CUDA
nor a GPU. Of all that is found the newest that serves is taken, cuDNN with all its parts from one folder; what is missing, too old
or damaged is said in one sentence.

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
int __real_access(const char *file, int mode);
int __wrap_access(const char *file, int mode) {
    return strncmp(file, TOP, strlen(TOP)) ? -1 : __real_access(file, mode);
}
const char *ncclGetErrorString(int e, double x, ...);
int cudnnBackendExecute(void);
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "early")) return ncclGetErrorString(1, 2) != NULL; /* before it is open */
    if (argc > 1) return sc_library_tell(), 0;
    for (int l = 0; l < SC_LIBRARIES; l++) {
        const char *why = sc_library_open(l);
        if (why != sc_library_open(l)) return 9;
        printf("%d|%d|%s|%s\n", l, sc_library_version(l), why ? "" : sc_library_path(l), why ? why : "");
    }
    if (!sc_library_open(SC_LIB_CUDNN)) { /* a new part is asked for by name */
        printf("%d parts", cudnnBackendExecute());
        printf("|%s\n", sc_library_mixed(SC_LIB_CUDNN) ? sc_library_mixed(SC_LIB_CUDNN) : "whole");
    }
    if (!sc_library_open(SC_LIB_NCCL)) printf("%s\n", ncclGetErrorString(3, 0.5, 7));
}
'''


def names(library):
    return re.findall(r"^%s\((\w+)\)" % library, open(os.path.join(CUDA, "forward.def")).read(), re.M)


def driver(folder):
    path = os.path.join(folder, "driver")
    open(path + ".c", "w").write(DRIVER)
    must(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-DTOP=\"%s\"" % folder, "-Wl,--wrap=dlopen,--wrap=access", "-I", CUDA, path + ".c", *[os.path.join(CUDA, f) for f in ("library.c", "library_set.c", "forward.c")], "-o", path, "-ldl"])
    return path


PARTS = ["graph", "heuristic", "engines_runtime_compiled", "engines_precompiled"]


def shared_object(folder, file, text, *flags):
    source = os.path.join(folder, "source.c")
    open(source, "w").write(text)
    must(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", source, *flags, "-Wl,-soname," + file, "-Wl,--enable-new-dtags,-rpath,$ORIGIN", "-o", os.path.join(folder, file)])
    os.unlink(source)


def cudnn_set(folder, version, cuda, lacks):
    """cuDNN's parts, and the functions of its main file that differ: it opens a part by its name alone, when it is called. The first part
    knows the version; what all parts need is that one."""
    for part in PARTS + ["ops"]:
        if part == lacks:
            continue
        need = [] if part == "graph" else ["-Wl,--no-as-needed", os.path.join(folder, "libcudnn_graph.so.9")]
        shared_object(folder, "libcudnn_%s.so.9" % part, "int version_of_%s(void) { return %d; }" % (part, version), *need)
    ask = '({ void *h = dlopen("libcudnn_%s.so.9", RTLD_LAZY); int (*f)(void) = h ? (int (*)(void))dlsym(h, "version_of_%s") : 0; f ? f() : -1; })'
    return {"cudnnGetVersion": "#include <dlfcn.h>\nunsigned long cudnnGetVersion(void) { return (unsigned long)%s; }" % (ask % ("graph", "graph")),
            "cudnnBackendExecute": "int cudnnBackendExecute(void) { return %s; }" % " + ".join("(%s == %d)" % (ask % (p, p), version) for p in PARTS),
            "cudnnCreate": "int cudnnCreate(void) { return 0; } unsigned long cudnnGetCudartVersion(void) { return %d; }" % cuda}


def stand_in(folder, library, version, lacks="", cuda=13000, more=""):
    """A library with the functions that forward.def names."""
    os.makedirs(folder, exist_ok=True)
    special = {"ncclGetVersion": "int ncclGetVersion(int *v) { *v = %d; return 0; }" % version,
               "cublasLtGetVersion": "unsigned long cublasLtGetVersion(void) { return %d; }" % version,
               "ncclGetErrorString": "#include <stdarg.h>\n#include <stdio.h>\nconst char *ncclGetErrorString(int e, double x, ...) { static char t[64]; va_list a; va_start(a, x); "
                                     "snprintf(t, sizeof t, \"%%d %%g %%d of %d\", e, x, va_arg(a, int)); va_end(a); return t; }" % version}
    if library == "CUDNN":
        special = cudnn_set(folder, version, cuda, lacks)
    order = sorted(names(library), key=lambda n: n != "cudnnGetVersion")  # its text includes what others need
    shared_object(folder, FILES[library], "\n".join([special.get(n, "int %s(void) { return 0; }" % n) for n in order if n != lacks] + [more]))
    return folder


CLEAN = {**dict.fromkeys(("LD_LIBRARY_PATH", "CUDA_HOME", "NCCL_HOME", "CUBLAS_HOME", "CUDNN_HOME", "NVML_HOME", "VIRTUAL_ENV", "CONDA_PREFIX"), ""), "PATH": "/nowhere", "HOME": "/nowhere"}


def opened(program, **env):
    """[(version, path, what is wrong)] by library, and what NCCL's function answered."""
    rc, out, err = command([program], env={**CLEAN, **env}, cwd="/")
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


def packages(venv):
    return os.path.join(venv, "lib", "python3.12", "site-packages", "nvidia", "cudnn", "lib")


def test_cudnn_is_taken_whole():
    """Old parts in the system's folders never stand in for those of a new set in Python's packages, whose main file asks for parts by name."""
    top = scratch("libraries")
    program, venv, other, system = driver(top), *(os.path.join(top, n) for n in ("venv", "other", "system"))
    stand_in(system, "CUDNN", 91400)
    stand_in(packages(venv), "CUDNN", 91900)

    def is_taken(version, folder, **env):
        found, _ = opened(program, **env)
        rc, out, _ = command([program], env={**CLEAN, **env}, cwd="/")
        check(found["CUDNN"][:2] == (version, os.path.join(folder, FILES["CUDNN"])) and "\n4 parts|whole\n" in out + "\n", "%s: %s %s" % (env, found["CUDNN"], out))
    is_taken(91900, packages(venv), LD_LIBRARY_PATH=system, VIRTUAL_ENV=venv)
    is_taken(91400, system, LD_LIBRARY_PATH=system)
    is_taken(91400, system, CUDNN_HOME=system, VIRTUAL_ENV=venv)
    is_taken(91900, packages(venv), CUDNN_HOME=packages(venv), LD_LIBRARY_PATH=system)
    stand_in(os.path.join(other, "lib64"), "CUDNN", 91900)  # of equals the first
    is_taken(91900, os.path.join(other, "lib64"), LD_LIBRARY_PATH=system, CUDA_HOME=other, VIRTUAL_ENV=venv)
    for name, says, how in [("lacking", r"%s is not complete: libcudnn_heuristic\.so\.9 is not beside it", dict(lacks="heuristic")), ("cuda12", r"%s is made for CUDA 12, not 13", dict(cuda=12090)),
                            ("dies", r"%s ends the process that loads it: Aborted", dict(more="#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }"))]:
        newest = stand_in(os.path.join(top, name), "CUDNN", 92100, **how)
        is_taken(91900, packages(venv), LD_LIBRARY_PATH=newest, CUDA_HOME=system, VIRTUAL_ENV=venv)
        found = opened(program, CUDNN_HOME=newest)[0]["CUDNN"]
        check(found[0] == 0 and re.match(r"libcudnn\.so\.9 \(cuDNN 9\.12 or newer\) cannot be loaded: " + says % os.path.join(newest, FILES["CUDNN"]), found[2]), found)
    part = os.path.join(system, "libcudnn_graph.so.9")
    found = opened(program, VIRTUAL_ENV=venv, LD_PRELOAD=part)[0]["CUDNN"]
    check(found[0] == 0 and "is not whole: its part %s comes from elsewhere" % part in found[2], found)
    same = shutil.copy(os.path.join(packages(venv), "libcudnn_graph.so.9"), os.path.join(top, "libcudnn_graph.so.9.19.0"))
    is_taken(91900, packages(venv), VIRTUAL_ENV=venv, LD_PRELOAD=same)  # the same version by its name
    return "10 machines"


def test_the_newest_that_serves():
    """Also of NCCL and cuBLASLt; --libraries tells of each what was found and why it is taken or not."""
    top = scratch("libraries")
    program, cuda, system, lacking, none = driver(top), *(os.path.join(top, n) for n in ("cuda", "system", "lacking", "none"))
    stand_in(lacking, "NCCL", 23100, lacks="ncclCommAbort")
    for library, old, new in ("NCCL", 22809, 22903), ("CUBLASLT", 130000, 130100), ("CUDNN", 91400, 91900):
        stand_in(system, library, old)
        stand_in(os.path.join(cuda, "lib64"), library, new)
    os.mkdir(none)
    env = dict(LD_LIBRARY_PATH=system, CUDA_HOME=cuda, CONDA_PREFIX=lacking, NVML_HOME=none)
    found, _ = opened(program, **env)
    check([found[n][0] for n in FILES] == [130100, 22903, 91900, 0], found)
    rc, out, err = command([program, "tell"], env={**CLEAN, **env}, cwd="/")
    check(rc == 0 and not err, "exit %d: %s" % (rc, err))
    old, new = "  {}    %s/{}\n            not taken: it is older\n" % system, "  {}    %s/lib64/{}\n            taken: the newest that serves\n" % cuda

    def of(name, needs, a, b, more=""):
        file = FILES[name.upper()]
        return "%s %s or newer\n" % (name, needs) + old.format(a, file) + new.format(b, file) + more
    broken = "  2.31.0    {0}\n            not taken: {0} has no ncclCommAbort\n".format(os.path.join(lacking, FILES["NCCL"]))
    expected = (of("cuBLASLt", "13.0", "13.0.0", "13.1.0") + of("NCCL", "2.28", "2.28.9", "2.29.3", broken) + of("cuDNN", "9.12", "9.14.0", "9.19.0") +
                "NVML, in NVML_HOME=%s and nowhere else\n  none: libnvidia-ml.so.1 (NVML) is not there; looked in NVML_HOME=%s" % (none, none))
    check(out.startswith(expected), "%s\n%s" % (out, expected))
    return "3 libraries"
