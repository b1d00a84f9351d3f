/* `shardc build` and `shardc run`: from a model to a binary, and into it.
 * Relies on: input.c, emit, report (report_target).
 * Relied on by: main.c. */
#include "../base/diagnostics.h"
#include "../emit/emit.h"
#include "../report/explain.h"
#include "../report/report.h"
#include "cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_folders(Arena *a, const char *path) {
    char *p = arena_strdup(a, path);
    for (char *c = p + 1;; c++) {
        if (*c && *c != '/') continue;
        char was = *c;
        *c = 0;
        struct stat st;
        int error = mkdir(p, 0777) ? errno : 0;
        if (error && (stat(p, &st) || !S_ISDIR(st.st_mode)))
            fail(NOWHERE, "cannot make the folder %s: %s; choose another with -o", p, strerror(error));
        *c = was;
        if (!was) break;
    }
    if (access(path, W_OK))
        fail(NOWHERE, "cannot write into %s: %s; choose another folder with -o", path, strerror(errno));
}

static char *without_slashes(Arena *a, const char *folder) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') n--;
    return arena_printf(a, "%.*s", (int)n, folder);
}

/* -o names the binary, its sources stand beside it; or the folder for all of it. */
static void place_of(Arena *a, const Options *o, char **folder, char **name) {
    const char *base = basename(o->inputs.at[0]); /* gpt2.lua */
    struct stat st;
    *name = arena_printf(a, "%.*s", (int)(strlen(base) - strlen(".lua")), base);
    if (!o->out)
        *folder = arena_printf(a, "build/%s", *name);
    else if (o->out[strlen(o->out) - 1] == '/' || (!stat(o->out, &st) && S_ISDIR(st.st_mode)))
        *folder = without_slashes(a, o->out);
    else {
        *folder = path_folder(a, o->out);
        *name = arena_strdup(a, basename(o->out));
    }
}

/* ── one build of a name at a time: they share the names of their sources and objects ────────────────────────────── */
typedef struct {
    int fd;
    const char *path;
    bool held;
} Lock;

/* Whoever held it removed the file, so it is looked for again. Where there are no locks, work goes on without. */
static Lock lock_build(Arena *a, const char *binary) {
    Lock l = {.fd = -1, .path = arena_printf(a, "%s.tmp.lock", binary)};
    for (;;) {
        l.fd = open(l.path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (l.fd < 0) return l;
        do l.held = !flock(l.fd, LOCK_EX);
        while (!l.held && errno == EINTR);
        if (path_is_open(l.fd, l.path)) break;
        close(l.fd);
    }
    temp_register(l.path);
    return l;
}

static void unlock_build(const Lock *l) {
    if (l->fd < 0) return;
    unlink(l->path);
    temp_forget(l->path);
    close(l->fd);
}

/* Before the compiler takes minutes. What the driver says beyond that a program says when it starts. */
static void want_gpu(const Options *o) {
    enum { NO_DEVICE = 100 }; /* CUDA_ERROR_NO_DEVICE */
    int (*init)(unsigned) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver) *(void **)&init = dlsym(driver, "cuInit");
    if (init && init(0) != NO_DEVICE) return;
    fail(NOWHERE,
         "%s is for a GPU (--%s %s), and this machine has none: %s; build it for another machine by `shardc build`, or "
         "run it here with --target cpu",
         o->inputs.at[0], o->device ? "device" : "target", o->device ? o->device : o->target,
         init ? "its driver sees no device" : "the driver (libcuda.so.1) is not there");
}

static char *build(Arena *a, const Options *o, bool runs) {
    const char *model = o->inputs.at[0];
    char *folder, *name;
    if (!cli_is_model(model)) fail_usage("%s: a model's .lua file is wanted", model);
    place_of(a, o, &folder, &name);
    if (!str_is_name(name)) fail(NOWHERE, "%s is no name for a program: %s; give another with -o", name, NAME_RULE);
    char *binary = arena_printf(a, "%s/%s", strcmp(folder, "/") ? folder : "", name);
    Plan *p = cli_plan(a, o, model);
    if (runs && !strcmp(p->target, "cuda")) want_gpu(o);
    const char *variant = o->variant ? o->variant : "";
    if (!o->sources) emit_check(p, variant);
    make_folders(a, folder);
    Lock lock = lock_build(a, binary);
    emit_keep(p, folder, name, variant, o->sources);
    if (lock.held) emit_clear(folder, name);
    if (!runs) { /* gpt2 for cuda (h200), world 16 on 2 nodes -> build/gpt2/gpt2 */
        printf("%s for %s, world %d", name, report_target(p), p->world);
        if (p->nodes > 1) printf(" on %d nodes", p->nodes);
        for (int i = 0; i < o->policies.n; i++) printf(", policy %s", o->policies.at[i]);
        printf(" -> %s%s\n", binary, o->sources ? ".c" : "");
        cli_printed();
    }
    if (!runs && o->explain) explain_passes(stdout, p);
    emit(p, folder, name);
    if (!o->sources) emit_build(p, folder, name, variant);
    if (lock.held) emit_clear(folder, name); /* the compilers of a killed build may have worked on until now */
    unlock_build(&lock);
    return binary;
}

int command_build(Arena *a, const Options *o) {
    build(a, o, false);
    return 0;
}

/* ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool is_program(const char *path) {
    char magic[4] = {0};
    FILE *f = fopen(path, "rb");
    bool elf = f && fread(magic, 1, 4, f) == 4 && !memcmp(magic, "\177ELF", 4);
    if (f) fclose(f);
    return elf;
}

/* A model is built first; a binary runs as it is. */
int command_run(Arena *a, const Options *o) {
    const char *binary = o->inputs.at[0];
    struct stat st;
    if (o->sources) fail_usage("--sources compiles nothing that could run; use 'shardc build'");
    if (cli_is_model(binary))
        binary = build(a, o, true);
    else if (o->out)
        fail_usage("-o says where a build goes, and %s is built already: leave it out, or give the model's .lua file",
                   binary);
    else
        cli_refuse_model_options(o, binary);
    bool there = !stat(binary, &st);
    if (there && S_ISDIR(st.st_mode)) {
        const char *folder = without_slashes(a, binary), *inside = arena_printf(a, "%s/%s", folder, basename(folder));
        if (is_program(inside)) fail(NOWHERE, "cannot run %s: it is a folder; the program in it is %s", binary, inside);
        fail(NOWHERE, "cannot run %s: it is a folder; give a model's .lua file or a program that shardc built", binary);
    }
    char **args = NEW_ARRAY(a, char *, o->nrest + 2);
    args[0] = (char *)binary;
    if (o->nrest) memcpy(args + 1, o->rest, sizeof *args * (size_t)o->nrest);
    const char *path = strchr(binary, '/') ? binary : arena_printf(a, "./%s", binary);
    fflush(stdout);
    execv(path, args);
    int error = errno;
    bool file = there && S_ISREG(st.st_mode);
    if (file && (error == EACCES || error == ENOEXEC) && !is_program(binary))
        fail(NOWHERE, "cannot run %s: it is not a program; give a model's .lua file or a program that shardc built",
             binary);
    fail(NOWHERE, "cannot run %s: %s%s", binary, strerror(error), file && error == EACCES ? "; see chmod +x" : "");
}
