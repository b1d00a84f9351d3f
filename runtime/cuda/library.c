/* Finds and loads CUDA's libraries. A library's own variable (NCCL_HOME, ...) is obeyed and nothing else then; without
 * it these are looked at: what the loader finds (LD_LIBRARY_PATH, the system's folders), beside the program, where CUDA
 * usually is, and the packages of the active Python. Of all that is found, the newest that serves is taken, and of
 * equals the first.
 * Relies on: library.h, library_set.c. Relied on by: rank.c, attention (cuDNN), memory.c (NVML), `shardc doctor`. */
#include "library.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Why these versions:
 * cuBLASLt and NCCL: CUDA 13's own; NCCL 2.28 has the symmetric windows and the copy-engine gathers (comm.c).
 * cuDNN: 9.12 is the first that is made for CUDA 13. 9.16 was asked for before, for the sake of one task that 9.15.1 is
 * the first to compute rightly; that one goes to our own kernel now (sc_cudnn_least, attention_cudnn.h). */
static const char *const cudnn_parts[] = {"libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9",
                                          "libcudnn_heuristic.so.9", NULL};
const sc_known_library sc_known_libraries[SC_LIBRARIES] = {
    [SC_LIB_CUBLASLT] = {"libcublasLt.so.13", "cuBLASLt", "CUBLAS_HOME",
                         "CUDA 13 (its cuda-libraries package, or pip's nvidia-cublas)", 130000, NULL},
    [SC_LIB_NCCL] = {"libnccl.so.2", "NCCL", "NCCL_HOME", "NCCL (the libnccl2 package, or pip's nvidia-nccl-cu13)",
                     22800, NULL},
    [SC_LIB_CUDNN] = {"libcudnn.so.9", "cuDNN", "CUDNN_HOME", "cuDNN (the cudnn9 package, or pip's nvidia-cudnn-cu13)",
                      91200, cudnn_parts},
    [SC_LIB_NVML] = {"libnvidia-ml.so.1", "NVML", "NVML_HOME", "the GPU's driver", 0, NULL},
};
static const sc_known_library *const known = sc_known_libraries;

typedef struct {
    sc_library_set *found; /* in the order of the places */
    int n, taken;          /* taken: the index of the one that is open; -1: none */
    bool looked;
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

const char *sc_version_text(int v, char out[SC_VERSION_TEXT]) {
    snprintf(out, SC_VERSION_TEXT, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return out;
}

static const char *least_text(int v, char out[SC_VERSION_TEXT]) { /* no patch is asked for */
    snprintf(out, SC_VERSION_TEXT, "%d.%d", v / 10000, v / 100 % 100);
    return out;
}

/* ── one file ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool one_file(const char *a, const char *b) {
    char ra[PATH_MAX], rb[PATH_MAX];
    return !strcmp(a, b) || (realpath(a, ra) && realpath(b, rb) && !strcmp(ra, rb));
}

static void consider(sc_cuda_library l, const char *name) {
    state *s = &states[l];
    for (int i = 0; i < s->n; i++)
        if (one_file(s->found[i].path, name)) return;
    sc_library_set *more = realloc(s->found, (size_t)(s->n + 1) * sizeof *more);
    if (!more) return;
    s->found = more;
    sc_set_probe(l, name, &more[s->n]);
    if (!more[s->n].absent) s->n++;
}

/* ── folders ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void look_in(sc_cuda_library l, const char *folder) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, known[l].file);
    if (n < PATH_MAX && !access(path, R_OK)) consider(l, path);
}

static void look_below(sc_cuda_library l, const char *home) {
    static const char *const below[] = {"", "/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"};
    char folder[PATH_MAX];
    for (size_t i = 0; home && *home && i < sizeof below / sizeof *below; i++) {
        int n = snprintf(folder, sizeof folder, "%s%s", home, below[i]);
        if (n < PATH_MAX) look_in(l, folder);
    }
}

/* nvidia/cu13/lib, nvidia/nccl/lib, ... in a Python's packages. */
static void look_in_packages(sc_cuda_library l, const char *python) {
    char pattern[PATH_MAX];
    glob_t found = {0};
    if (!python || !*python) return;
    int n = snprintf(pattern, sizeof pattern, "%s/lib/python3*/{site,dist}-packages/nvidia/*/lib", python);
    if (n >= PATH_MAX || glob(pattern, GLOB_BRACE, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) look_in(l, found.gl_pathv[i]);
    globfree(&found);
}

/* The Python that `python3` is: a virtual environment's is a link, so its name counts, and then what it points to. */
static void look_in_python(sc_cuda_library l) {
    const char *path = getenv("PATH");
    char *folders = strdup(path ? path : ""), *rest = folders, *folder, file[PATH_MAX], real[PATH_MAX];
    bool found = false;
    while (folders && !found && (folder = strsep(&rest, ":"))) {
        int n = snprintf(file, sizeof file, "%s/python3", folder);
        if (!*folder || n >= PATH_MAX || access(file, X_OK)) continue;
        found = true;
        for (int k = 0; k < 2; k++) {
            snprintf(real, sizeof real, "%s", file);
            if (k && !realpath(file, real)) break;
            for (int up = 0; up < 2; up++)
                if (strrchr(real, '/')) *strrchr(real, '/') = 0;
            look_in_packages(l, real);
        }
    }
    free(folders);
}

static void look_beside(sc_cuda_library l) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return;
    path[n] = 0;
    if (strrchr(path, '/')) *strrchr(path, '/') = 0;
    look_below(l, path);
}

static void look_everywhere(sc_cuda_library l) {
    static const char *const homes[] = {
        "/usr/local/cuda",           "/opt/cuda", "/usr/local", "/usr", "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu"};
    char local[PATH_MAX];
    const char *conda = getenv("CONDA_PREFIX"), *home = getenv("HOME");
    snprintf(local, sizeof local, "%s/.local", home ? home : "");
    consider(l, known[l].file);
    look_beside(l);
    look_below(l, variable("CUDA_HOME"));
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) look_below(l, homes[i]);
    look_in_packages(l, getenv("VIRTUAL_ENV"));
    look_in_packages(l, conda);
    look_below(l, conda);
    look_in_python(l);
    look_in_packages(l, "/usr/local");
    look_in_packages(l, "/usr");
    look_in_packages(l, local);
}

/* ── the choice ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int newest(const state *s) { /* of those that serve; -1: none does */
    int best = -1;
    for (int i = 0; i < s->n; i++)
        if (!*s->found[i].wrong && (best < 0 || s->found[i].version > s->found[best].version)) best = i;
    return best;
}

static void look(sc_cuda_library l) {
    state *s = &states[l];
    const char *home = variable(known[l].variable);
    if (s->looked) return;
    s->looked = true;
    s->taken = -1;
    if (home)
        look_below(l, home);
    else
        look_everywhere(l);
}

/* What was found in a child is opened here. Where that fails the next best may do, unless parts of this one would stay
 * in its way. */
static bool take(sc_cuda_library l) {
    state *s = &states[l];
    for (int best; (best = newest(s)) >= 0;) {
        sc_library_set here;
        sc_set_open(l, s->found[best].path, &here);
        s->found[best] = here;
        if (!*here.wrong) return s->taken = best, true;
        if (known[l].parts) return false;
    }
    return false;
}

/* ── what went wrong ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void complain(sc_cuda_library l) {
    const sc_known_library *k = &known[l];
    state *s = &states[l];
    const char *home = variable(k->variable), *cuda = variable("CUDA_HOME");
    const sc_library_set *old = NULL, *broken = NULL;
    char have[SC_VERSION_TEXT], least[SC_VERSION_TEXT];
    least_text(k->least, least);
    for (int i = 0; i < s->n; i++) {
        const sc_library_set *x = &s->found[i];
        if (x->old && (!old || x->version > old->version)) old = x;
        if (!x->old && *x->wrong && !broken) broken = x;
    }
    if (old)
        add(s, "%s %s (%s) is too old: this program needs %s or newer", k->name, sc_version_text(old->version, have),
            old->path, least);
    else if (k->least)
        add(s, "%s (%s %s or newer) %s", k->file, k->name, least, broken ? "cannot be loaded" : "is not there");
    else
        add(s, "%s (%s) %s", k->file, k->name, broken ? "cannot be loaded" : "is not there");
    if (broken) add(s, ": %s", broken->wrong);
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
    const char *path = sc_library_path(SC_LIB_CUDNN), *slash = strrchr(path, '/');
    char pattern[PATH_MAX];
    glob_t found = {0};
    if (!slash || dlopen(file, RTLD_LAZY | RTLD_LOCAL)) return;
    int n = snprintf(pattern, sizeof pattern, "%.*s/../../*/lib/%s", (int)(slash - path), path, file);
    if (n >= PATH_MAX || glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (dlopen(found.gl_pathv[i], RTLD_LAZY | RTLD_LOCAL)) break;
    globfree(&found);
}

const char *sc_library_open(sc_cuda_library l) {
    state *s = &states[l];
    if (s->looked && s->taken >= 0) return NULL;
    if (*s->text) return s->text;
    look(l);
    if (!take(l)) {
        complain(l);
        return s->text;
    }
    if (l == SC_LIB_CUDNN) load_companion("libnvrtc.so.13");
    return NULL;
}

const sc_library_set *sc_library_look(sc_cuda_library l, const char **why) {
    state *s = &states[l];
    look(l);
    int best = newest(s);
    if (best >= 0) return &s->found[best];
    if (!*s->text) complain(l);
    *why = s->text;
    return NULL;
}

static const sc_library_set *opened(sc_cuda_library l) {
    const state *s = &states[l];
    return s->looked && s->taken >= 0 ? &s->found[s->taken] : NULL;
}

int sc_library_version(sc_cuda_library l) {
    return opened(l) ? opened(l)->version : 0;
}

const char *sc_library_path(sc_cuda_library l) {
    return opened(l) ? opened(l)->path : "";
}

const char *sc_library_name(sc_cuda_library l) {
    return known[l].name;
}

const char *sc_library_mixed(sc_cuda_library l) {
    static char text[2048];
    char part[1024], version[SC_VERSION_TEXT];
    const sc_library_set *s = opened(l);
    if (!s || sc_set_whole(l, s, part, sizeof part)) return NULL;
    snprintf(text, sizeof text, "%s %s: %s; take that one's folder out of LD_LIBRARY_PATH, or set %s", known[l].name,
             sc_version_text(s->version, version), part, known[l].variable);
    return text;
}

/* ── telling ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void tell_one(const sc_known_library *k, const state *s, int i, int best) {
    const sc_library_set *x = &s->found[i];
    char version[SC_VERSION_TEXT];
    printf("  %-8s  %s\n            ", x->version ? sc_version_text(x->version, version) : "?", x->path);
    if (*x->wrong)
        printf("not taken: %s\n", x->wrong);
    else if (i == best)
        printf("taken: %s\n", k->least ? "the newest that serves" : "the first that can be loaded");
    else
        printf("not taken: %s\n", x->version < s->found[best].version ? "it is older" : "the same is found before it");
}

static void tell(sc_cuda_library l) {
    const sc_known_library *k = &known[l];
    state *s = &states[l];
    const char *home = variable(k->variable);
    char least[SC_VERSION_TEXT];
    look(l);
    printf("%s", k->name);
    if (k->least) printf(" %s or newer", least_text(k->least, least));
    if (home) printf(", in %s=%s and nowhere else", k->variable, home);
    printf("\n");
    int best = newest(s);
    for (int i = 0; i < s->n; i++) tell_one(k, s, i, best);
    if (best >= 0) return;
    if (!*s->text) complain(l);
    printf("  none: %s\n", s->text);
}

void sc_library_tell(void) {
    for (int l = 0; l < SC_LIBRARIES; l++) tell((sc_cuda_library)l);
}
