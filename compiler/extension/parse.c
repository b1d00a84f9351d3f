/* Reads a source file in a child process with limits on time and memory, and takes its answer apart.
 * Relies on: clang.c; base/places.h (the runtime's headers, CUDA's).
 * Relied on by: check.c. */
#include "../base/places.h"
#include "c_file.h"
#include "extension.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SECONDS = 20, MOST_GIB = 4 };

/* ── what is parsed ─────────────────────────────────────────────────────────────────────────────────────────────────
 * `kernel<<<grid, block>>>(x)` is no C++: what stands between the brackets becomes blanks, and a call is left. */
static char *without_launches(Arena *a, const char *text) {
    char *out = arena_strdup(a, text), *open = out;
    while ((open = strstr(open, "<<<"))) {
        char *close = strstr(open, ">>>");
        if (!close) break;
        for (char *p = open; p < close + 3; p++)
            if (*p != '\n') *p = ' ';
        open = close + 3;
    }
    return out;
}

/* Names that nvcc knows by itself, on one line before the first. */
static const char PRELUDE[] = "extern const uint3 threadIdx, blockIdx; extern const dim3 blockDim, gridDim; "
                              "extern const int warpSize; void __syncthreads(); ";

/* ── the child ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static void limit(int what, rlim_t most) {
    struct rlimit l = {most, most};
    setrlimit(what, &l);
}

static _Noreturn void child(int fd, const ClangInput *in) {
    limit(RLIMIT_CPU, MOST_SECONDS);
    limit(RLIMIT_CORE, 0);
    alarm(3 * MOST_SECONDS); /* what waits for ever takes no processor time */
#ifndef __SANITIZE_ADDRESS__ /* which reserves far more than it uses */
    limit(RLIMIT_AS, (rlim_t)MOST_GIB << 30);
#endif
    FILE *out = fdopen(fd, "w");
    bool quiet = freopen("/dev/null", "w", stderr) && freopen("/dev/null", "r", stdin);
    if (out && quiet) extension_clang(out, in);
    if (out) fflush(out);
    _exit(0);
}

static char *ask(Arena *a, const ClangInput *in, Source at) {
    int ends[2], status;
    char block[4096];
    Str s = {.arena = a};
    fflush(NULL);
    pid_t pid = pipe(ends) ? -1 : fork();
    if (pid < 0) fail(at, "cannot start a process that reads %s: %s", in->path, strerror(errno));
    if (!pid) {
        close(ends[0]);
        child(ends[1], in);
    }
    close(ends[1]);
    str_add(&s, "");
    for (ssize_t n; (n = read(ends[0], block, sizeof block)) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        str_addf(&s, "%.*s", (int)n, block);
    }
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return s.s;
}

/* ── its answer ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static char *next(char **rest) {
    char *w = strsep(rest, "\t");
    return w ? w : "";
}

static CFunction function_of(char *rest) {
    CFunction f = {.name = next(&rest)};
    f.line = atoi(next(&rest));
    f.internal = atoi(next(&rest));
    f.result = next(&rest);
    return f;
}

static CParam param_of(char *rest) {
    CParam p = {.name = next(&rest)};
    p.line = atoi(next(&rest));
    p.constant = atoi(next(&rest));
    p.type = next(&rest);
    p.element = next(&rest);
    p.dims = atoi(next(&rest));
    if (p.dims > MAX_DIMS || p.dims < 0) p.dims = 0;
    for (int i = 0; i < p.dims; i++) p.size[i] = atoll(next(&rest));
    return p;
}

/* The line `error`, without that word. */
static _Noreturn void report(char *rest) {
    const char *file = next(&rest);
    int line = atoi(next(&rest));
    fail((Source){file[0] ? file : NULL, line}, "%s", next(&rest));
}

/* Takes the child's answer apart, line by line; its words stay where they are. extension.h says what lines there are.
 */
static void understand(Arena *a, CFile *file, char *answer, Source at) {
    bool complete = false;
    for (char *line; (line = strsep(&answer, "\n"));) {
        char *kind = next(&line);
        if (!strcmp(kind, "library"))
            fail(at,
                 "%s is read by libclang 19, which is not there: install the Debian package libclang1-19 (make setup), "
                 "or name its file in the environment variable SHARDC_LIBCLANG",
                 file->path);
        if (!strcmp(kind, "error")) report(line);
        if (!strcmp(kind, "function")) push(&file->functions, a, function_of(line));
        if (!strcmp(kind, "parameter") && file->functions.n)
            push(&file->functions.at[file->functions.n - 1].params, a, param_of(line));
        complete |= !strcmp(kind, "end");
    }
    if (!complete)
        fail(at, "libclang cannot read %s: it took more than %d seconds or %d GiB, or failed; is it C?", file->path,
             MOST_SECONDS, MOST_GIB);
}

typedef VEC(const char *) Flags;

/* What emit/build.c compiles with, as far as it changes what a file means. */
static Flags flags_of(Arena *a, bool cuda, Source at) {
    static const char *const c[] = {"-x", "c", "-std=gnu17", "-march=native"};
    static const char *const cxx[] = {"-x", "c++", "-std=c++17", "-include", "cuda_runtime.h"};
    Flags flags = {0};
    for (int i = 0; i < (cuda ? 5 : 4); i++) push(&flags, a, cuda ? cxx[i] : c[i]);
    push(&flags, a, (const char *)"-w");
    push(&flags, a, (const char *)arena_printf(a, "-I%s", places_headers(a)));
    if (!cuda) return flags;
    const char *homes[MOST_FOLDERS];
    const char *home = places_find(a, homes, places_cuda(a, homes), "include/cuda_runtime.h");
    if (!home)
        fail(at,
             "CUDA's headers, which the file includes, are not in %s/include nor where CUDA usually is; install the "
             "CUDA toolkit, or set CUDA_HOME to its folder",
             homes[0]);
    push(&flags, a, (const char *)arena_printf(a, "-I%s/include", home));
    return flags;
}

CFile *extension_read_c(Arena *a, const char *path, bool cuda, Source at) {
    CFile *f = NEW(a, CFile);
    f->path = path;
    size_t size;
    char *text = input_read(a, NOWHERE, path, FILE_MOST, &size);
    f->text = text;
    if (strlen(text) < size) fail(at, "%s is no text: it holds a zero byte; give the name of a source file", path);
    if (cuda && strpbrk(path_real(a, path), "\"'`$\\"))
        fail(at,
             "nvcc gives the path of %s to a shell, which would read a character of it otherwise: rename its folder",
             path);
    Flags flags = flags_of(a, cuda, at);
    if (cuda) text = arena_printf(a, "%s\n#line 1 \"%s\"\n%s", PRELUDE, path, without_launches(a, text));
    ClangInput in = {path, text, flags.at, flags.n, cuda};
    understand(a, f, ask(a, &in, at), at);
    return f;
}
