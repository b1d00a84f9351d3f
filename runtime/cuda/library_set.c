/* One set of a library's files: opened whole, from one folder, and tried in a child process first.
 * Relies on: library.h, dlopen, fork. Relied on by: library.c.
 *
 * cuDNN 9's main file opens its parts with dlopen at the first call, by name alone (libcudnn_graph.so.9.19.0, then
 * .so.9.19, then .so.9); the parts open further ones so, or have them among their needs. The loader looks among what is
 * loaded, then in LD_LIBRARY_PATH, then beside the file that asks (its RUNPATH is $ORIGIN), then in the system's
 * folders. So a part of another version may come from LD_LIBRARY_PATH, or be there since an older set was tried:
 * dlclose of a main file leaves the parts that it opened. Therefore every part that we use is opened by its path before
 * the main file is called, and names that are asked for later are found among what is loaded. */
#include "library.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CUDA = 13, PATIENCE_MS = 60000 };

__attribute__((format(printf, 2, 3))) static void wrong(sc_library_set *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->wrong, sizeof s->wrong, fmt, ap);
    va_end(ap);
}

/* ── folders ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void path_of(void *handle, char *out) { /* as it was before where the loader has no path for it */
    struct link_map *m = NULL;
    if (!dlinfo(handle, RTLD_DI_LINKMAP, &m) && m && *m->l_name) snprintf(out, PATH_MAX, "%s", m->l_name);
}

static bool folder_of(const char *path, char *out) {
    const char *slash = strrchr(path, '/');
    if (slash) snprintf(out, PATH_MAX, "%.*s", (int)(slash - path), path);
    return slash;
}

/* Where the parts are: beside the main file, or beside what it is a link to. */
static bool parts_folder(const char *path, const char *part, char *out) {
    char file[PATH_MAX], real[PATH_MAX];
    if (!folder_of(path, out)) return false;
    int n = snprintf(file, sizeof file, "%s/%s", out, part);
    if ((n < PATH_MAX && !access(file, R_OK)) || !realpath(path, real)) return true;
    char beside[PATH_MAX];
    folder_of(real, beside);
    n = snprintf(file, sizeof file, "%s/%s", beside, part);
    if (n < PATH_MAX && !access(file, R_OK)) memcpy(out, beside, sizeof beside);
    return true;
}

/* ── opening ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* What its older interface uses, which we do not call, and it opens only for calls of that. */
static bool unused(const char *part) {
    return !strncmp(part, "libcudnn_ops.", 13) || !strncmp(part, "libcudnn_cnn.", 13) ||
           !strncmp(part, "libcudnn_adv.", 13);
}

/* What is not there at all is no news: only a file that is there and cannot be loaded. */
static void cannot_open(sc_library_set *s, const char *name) {
    const char *error = dlerror();
    char absent[PATH_MAX + 64];
    snprintf(absent, sizeof absent, "%s: cannot open shared object file: No such file or directory", name);
    s->absent = !error || !strcmp(error, absent);
    wrong(s, "%.1000s", error ? error : "");
}

static bool open_part(sc_library_set *s, const char *path) {
    if (dlopen(path, RTLD_LAZY | RTLD_LOCAL)) return true;
    cannot_open(s, path);
    return false;
}

/* The parts that others need come first, which is how the table has them; then whatever else this version has. */
static bool open_parts(const sc_known_library *k, sc_library_set *s) {
    char folder[PATH_MAX], path[PATH_MAX];
    glob_t found = {0};
    bool good = true;
    if (!k->parts || !parts_folder(s->path, k->parts[0], folder)) return true;
    for (int i = 0; k->parts[i]; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, k->parts[i]);
        if (n >= PATH_MAX || access(path, R_OK)) {
            wrong(s, "%.800s is not complete: %s is not beside it", s->path, k->parts[i]);
            return false;
        }
    }
    for (int i = 0; k->parts[i]; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, k->parts[i]);
        if (n >= PATH_MAX || !open_part(s, path)) return false;
    }
    const char *dot = strchr(k->file, '.'); /* libcudnn | .so.9 */
    int n = snprintf(path, sizeof path, "%s/%.*s_*%s", folder, (int)(dot - k->file), k->file, dot);
    if (n >= PATH_MAX || glob(path, 0, NULL, &found)) return true;
    for (size_t i = 0; good && i < found.gl_pathc; i++)
        good = unused(basename(found.gl_pathv[i])) || open_part(s, found.gl_pathv[i]);
    globfree(&found);
    return good;
}

/* The cuDNN of another CUDA asks for that one's NVRTC and cuBLASLt. */
static bool other_cuda(sc_cuda_library l, sc_library_set *s) {
    size_t (*f)(void) = l == SC_LIB_CUDNN ? (size_t(*)(void))dlsym(s->handle, "cudnnGetCudartVersion") : NULL;
    int cuda = f ? (int)(f() / 1000) : CUDA;
    if (cuda == CUDA) return false;
    wrong(s, "%.900s is made for CUDA %d, not %d", s->path, cuda, CUDA);
    return true;
}

static void judge(sc_cuda_library l, sc_library_set *s) {
    const sc_known_library *k = &sc_known_libraries[l];
    const char *lacks;
    char least[SC_VERSION_TEXT];
    s->version = sc_forward_version(l, s->handle);
    if (!sc_set_whole(l, s, s->wrong, sizeof s->wrong)) return;
    s->old = s->version < k->least;
    if (s->old)
        wrong(s, "older than %s", sc_version_text(k->least, least));
    else if (!other_cuda(l, s) && (lacks = sc_forward_bind(l, s->handle)))
        wrong(s, "%.900s has no %s", s->path, lacks);
}

void sc_set_open(sc_cuda_library l, const char *name, sc_library_set *s) {
    const sc_known_library *k = &sc_known_libraries[l];
    bool found = strchr(name, '/');
    *s = (sc_library_set){0};
    snprintf(s->path, sizeof s->path, "%s", name);
    if (found && !open_parts(k, s)) return;
    s->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!s->handle) {
        cannot_open(s, name);
        return;
    }
    path_of(s->handle, s->path);
    if (found || open_parts(k, s)) judge(l, s);
}

/* ── is it whole? ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const char *main, *stem, *folder, *ending;
    char *out;
    size_t n;
} look;

static bool beside(const char *path, const char *folder) {
    char mine[PATH_MAX], real[PATH_MAX];
    return folder_of(path, mine) && realpath(mine, real) && !strcmp(real, folder);
}

/* A file whose own name tells the same version is as good, wherever it is. */
static int look_at(struct dl_phdr_info *p, size_t size, void *arg) {
    const look *k = arg;
    const char *base = basename(p->dlpi_name);
    char real[PATH_MAX];
    (void)size;
    size_t n = strlen(k->stem), end = strlen(k->ending);
    if (strncmp(base, k->stem, n) || (base[n] != '.' && base[n] != '_') || unused(base)) return 0;
    if (!realpath(p->dlpi_name, real) || beside(p->dlpi_name, k->folder) || beside(real, k->folder)) return 0;
    if (strlen(real) > end && !strcmp(real + strlen(real) - end, k->ending)) return 0;
    snprintf(k->out, k->n, "%.400s is not whole: its part %.500s comes from elsewhere", k->main, p->dlpi_name);
    return 1;
}

bool sc_set_whole(sc_cuda_library l, const sc_library_set *s, char *out, size_t n) {
    const sc_known_library *k = &sc_known_libraries[l];
    char folder[PATH_MAX], real[PATH_MAX], version[SC_VERSION_TEXT], ending[64], stem[64];
    if (!k->parts || !parts_folder(s->path, k->parts[0], folder) || !realpath(folder, real)) return true;
    snprintf(ending, sizeof ending, ".so.%s", sc_version_text(s->version, version));
    snprintf(stem, sizeof stem, "%.*s", (int)(strchr(k->file, '.') - k->file), k->file);
    return !dl_iterate_phdr(look_at, &(look){s->path, stem, real, ending, out, n});
}

/* ── in a child ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void be_quiet(void) {
    int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere < 0) return;
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
}

/* The child's end; a child that does not come to it is killed. */
static int wait_for(pid_t pid) {
    int status = 0;
    for (int ms = 0; !waitpid(pid, &status, WNOHANG); ms++) {
        if (ms == PATIENCE_MS) kill(pid, SIGKILL);
        usleep(1000);
    }
    return status;
}

void sc_set_probe(sc_cuda_library l, const char *name, sc_library_set *s) {
    sc_library_set *seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *s = (sc_library_set){0};
    snprintf(s->path, sizeof s->path, "%s", name);
    pid_t pid = seen == MAP_FAILED ? -1 : fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_quiet();
        sc_set_open(l, name, seen);
        seen->asked = true;
        _exit(0);
    }
    int error = errno, status = pid > 0 ? wait_for(pid) : 0;
    if (pid < 0)
        wrong(s, "%.900s cannot be tried in a process of its own: %s", name, strerror(error));
    else if (seen->asked)
        *s = *seen;
    else if (WIFSIGNALED(status))
        wrong(s, "%.900s ends the process that loads it: %s", name, strsignal(WTERMSIG(status)));
    else
        wrong(s, "%.900s ends the process that loads it: exit %d", name, WEXITSTATUS(status));
    s->handle = NULL;
    if (seen != MAP_FAILED) munmap(seen, sizeof *seen);
}
