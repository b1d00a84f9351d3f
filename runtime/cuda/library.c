/* Finds and loads CUDA's libraries. A library's own variable (NCCL_HOME, ...) is obeyed and nothing else then; without
 * it: what the loader finds (LD_LIBRARY_PATH, the system's folders), beside the program, where CUDA usually is, and the
 * packages of the active Python. One that is too old is passed over for the next.
 * Relies on: library.h, dlopen. Relied on by: rank.c, attention (cuDNN), memory.c (NVML). */
#include "library.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *file, *name, *variable, *package;
    int least; /* version */
} known_library;

static const known_library known[SC_LIBRARIES] = {
    [SC_LIB_CUBLASLT] = {"libcublasLt.so.13", "cuBLASLt", "CUBLAS_HOME",
                         "CUDA 13 (its cuda-libraries package, or pip's nvidia-cublas)", 130000},
    [SC_LIB_NCCL] = {"libnccl.so.2", "NCCL", "NCCL_HOME", "NCCL (the libnccl2 package, or pip's nvidia-nccl-cu13)",
                     22800},
    [SC_LIB_CUDNN] = {"libcudnn.so.9", "cuDNN", "CUDNN_HOME", "cuDNN (the cudnn9 package, or pip's nvidia-cudnn-cu13)",
                      91600},
    [SC_LIB_NVML] = {"libnvidia-ml.so.1", "NVML", "NVML_HOME", "the GPU's driver", 0},
};

typedef struct {
    void *handle;
    int version, older; /* older: the newest of those that are too old */
    char path[PATH_MAX], old_path[PATH_MAX];
    char broken[1024]; /* a file that cannot be used, and why */
    char text[4096];
} state;
static state states[SC_LIBRARIES];

__attribute__((format(printf, 2, 3))) static void add(state *s, const char *fmt, ...) {
    size_t n = strlen(s->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->text + n, sizeof s->text - n, fmt, ap);
    va_end(ap);
}

static const char *variable(const char *name) { /* NULL: not set, or empty */
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static const char *version_text(int v, char *out, size_t n) {
    snprintf(out, n, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return out;
}

/* ── one file ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void path_of(void *handle, char *out) {
    struct link_map *m = NULL;
    *out = 0;
    if (!dlinfo(handle, RTLD_DI_LINKMAP, &m) && m) snprintf(out, PATH_MAX, "%s", m->l_name);
}

/* What is not there at all is no news: only a file that is there and cannot be loaded. */
static void note_broken(sc_cuda_library l, const char *path) {
    const char *error = dlerror();
    char absent[PATH_MAX + 64];
    snprintf(absent, sizeof absent, "%s: cannot open shared object file: No such file or directory", path);
    if (error && strcmp(error, absent) && !*states[l].broken)
        snprintf(states[l].broken, sizeof states[l].broken, "%.1000s", error);
}

static void note_old(state *s, int version, void *handle) {
    if (version < s->older) return;
    s->older = version;
    path_of(handle, s->old_path);
}

static bool take(sc_cuda_library l, const char *path) {
    state *s = &states[l];
    char file[PATH_MAX];
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        note_broken(l, path);
        return false;
    }
    int version = sc_forward_version(l, handle);
    const char *lacks = version < known[l].least ? NULL : sc_forward_bind(l, handle);
    if (version < known[l].least) note_old(s, version, handle);
    if (lacks) {
        path_of(handle, file);
        snprintf(s->broken, sizeof s->broken, "%.900s has no %s", file, lacks);
    }
    if (version < known[l].least || lacks) {
        dlclose(handle);
        return false;
    }
    s->handle = handle;
    s->version = version;
    path_of(handle, s->path);
    return true;
}

/* ── folders ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool take_from(sc_cuda_library l, const char *folder) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, known[l].file);
    return n < PATH_MAX && !access(path, R_OK) && take(l, path);
}

static bool take_below(sc_cuda_library l, const char *home) {
    static const char *const below[] = {"", "/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"};
    char folder[PATH_MAX];
    for (size_t i = 0; home && *home && i < sizeof below / sizeof *below; i++) {
        int n = snprintf(folder, sizeof folder, "%s%s", home, below[i]);
        if (n < PATH_MAX && take_from(l, folder)) return true;
    }
    return false;
}

/* nvidia/cu13/lib, nvidia/nccl/lib, ... in a Python's packages. */
static bool take_packages(sc_cuda_library l, const char *python) {
    char pattern[PATH_MAX];
    glob_t found = {0};
    bool taken = false;
    if (!python || !*python) return false;
    int n = snprintf(pattern, sizeof pattern, "%s/lib/python3*/{site,dist}-packages/nvidia/*/lib", python);
    if (n >= PATH_MAX || glob(pattern, GLOB_BRACE, NULL, &found)) return false;
    for (size_t i = 0; !taken && i < found.gl_pathc; i++) taken = take_from(l, found.gl_pathv[i]);
    globfree(&found);
    return taken;
}

/* The Python that `python3` is: a virtual environment's is a link, so its name counts, and then what it points to. */
static bool take_python(sc_cuda_library l) {
    const char *path = getenv("PATH");
    char *folders = strdup(path ? path : ""), *rest = folders, *folder, file[PATH_MAX], real[PATH_MAX];
    bool taken = false, found = false;
    while (folders && !found && (folder = strsep(&rest, ":"))) {
        int n = snprintf(file, sizeof file, "%s/python3", folder);
        if (!*folder || n >= PATH_MAX || access(file, X_OK)) continue;
        found = true;
        for (int k = 0; k < 2 && !taken; k++) {
            snprintf(real, sizeof real, "%s", file);
            if (k && !realpath(file, real)) break;
            for (int up = 0; up < 2; up++)
                if (strrchr(real, '/')) *strrchr(real, '/') = 0;
            taken = take_packages(l, real);
        }
    }
    free(folders);
    return taken;
}

static bool take_beside(sc_cuda_library l) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return false;
    path[n] = 0;
    if (strrchr(path, '/')) *strrchr(path, '/') = 0;
    return take_below(l, path);
}

static bool search(sc_cuda_library l) {
    static const char *const homes[] = {
        "/usr/local/cuda",           "/opt/cuda", "/usr/local", "/usr", "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu"};
    char local[PATH_MAX];
    if (take(l, known[l].file) || take_beside(l) || take_below(l, variable("CUDA_HOME"))) return true;
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++)
        if (take_below(l, homes[i])) return true;
    const char *conda = getenv("CONDA_PREFIX"), *home = getenv("HOME");
    snprintf(local, sizeof local, "%s/.local", home ? home : "");
    return take_packages(l, getenv("VIRTUAL_ENV")) || take_packages(l, conda) || take_below(l, conda) ||
           take_python(l) || take_packages(l, "/usr/local") || take_packages(l, "/usr") || take_packages(l, local);
}

/* ── what went wrong ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void complain(sc_cuda_library l, const char *home) {
    const known_library *k = &known[l];
    state *s = &states[l];
    const char *cuda = variable("CUDA_HOME");
    char have[32], least[32];
    version_text(k->least, least, sizeof least);
    *strrchr(least, '.') = 0; /* no patch is asked for */
    if (s->older)
        add(s, "%s %s (%s) is too old: this program needs %s or newer", k->name,
            version_text(s->older, have, sizeof have), *s->old_path ? s->old_path : k->file, least);
    else if (k->least)
        add(s, "%s (%s %s or newer) %s", k->file, k->name, least, *s->broken ? "cannot be loaded" : "is not there");
    else
        add(s, "%s (%s) %s", k->file, k->name, *s->broken ? "cannot be loaded" : "is not there");
    if (*s->broken) add(s, ": %s", s->broken);
    if (home)
        add(s, "; looked in %s=%s, its lib64 and lib; correct %s, or unset it to look in the usual places", k->variable,
            home, k->variable);
    else
        add(s,
            "; looked in LD_LIBRARY_PATH, the system's folders, the program's, CUDA_HOME%s%s, /usr/local/cuda and "
            "python3's packages; install %s, or set %s to the folder that holds it",
            cuda ? "=" : " (not set)", cuda ? cuda : "", k->package, k->variable);
}

/* cuDNN compiles kernels with NVRTC, which it asks the loader for by name: where pip has put it, only we find it. */
static void load_companion(const char *file) {
    char *slash = strrchr(states[SC_LIB_CUDNN].path, '/'), pattern[PATH_MAX];
    glob_t found = {0};
    if (!slash || dlopen(file, RTLD_LAZY | RTLD_LOCAL)) return;
    int n = snprintf(pattern, sizeof pattern, "%.*s/../../*/lib/%s", (int)(slash - states[SC_LIB_CUDNN].path),
                     states[SC_LIB_CUDNN].path, file);
    if (n >= PATH_MAX || glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (dlopen(found.gl_pathv[i], RTLD_LAZY | RTLD_LOCAL)) break;
    globfree(&found);
}

const char *sc_library_open(sc_cuda_library l) {
    state *s = &states[l];
    const char *home = variable(known[l].variable);
    if (s->handle) return NULL;
    if (*s->text) return s->text;
    if (!(home ? take_below(l, home) : search(l))) {
        complain(l, home);
        return s->text;
    }
    if (l == SC_LIB_CUDNN) load_companion("libnvrtc.so.13");
    return NULL;
}

int sc_library_version(sc_cuda_library l) {
    return states[l].version;
}

const char *sc_library_path(sc_cuda_library l) {
    return states[l].path;
}

const char *sc_library_name(sc_cuda_library l) {
    return known[l].name;
}
