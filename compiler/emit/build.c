/* Compiles and links an emitted build with the runtime of its target. Kernels are compiled again only when something
 * that their object depends on has changed; nothing is left half-written.
 * Relies on: emit.h, text.h; a C compiler ($CC or gcc); the runtime's headers and library beside shardc or in
 * $SHARDC_HOME. Relied on by: main.c, tests. */
#include "../base/diagnostics.h"
#include "emit.h"
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef VEC(const char *) Args;

typedef struct {
    Arena *a;
    const char *dir, *name, *variant, *cc;
    const char *headers, *library; /* folder of sc.h, libsc_<target>.a */
    const char *step, *kernels;    /* objects */
} Build;

/* ── where the runtime is ────────────────────────────────────────────────────────────────────────────────────────────
 */
static const char *program_folder(Arena *a) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return ".";
    path[n] = 0;
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = 0;
    return arena_strdup(a, path);
}

static const char *absolute(Arena *a, const char *path) {
    char *real = realpath(path, NULL);
    const char *kept = arena_strdup(a, real ? real : path);
    free(real);
    return kept;
}

static const char *first_with(Arena *a, const char *const *folders, int n, const char *file) {
    for (int i = 0; i < n; i++)
        if (folders[i] && !access(join(a, folders[i], file, ""), R_OK)) return absolute(a, folders[i]);
    return NULL;
}

static void find_runtime(Build *b, const char *target) {
    Arena *a = b->a;
    const char *here = program_folder(a), *home = getenv("SHARDC_HOME");
    const char *headers[] = {home ? join(a, home, "runtime", "") : NULL,
                             home ? join(a, home, "share/shardc/runtime", "") : NULL, join(a, here, "../runtime", ""),
                             join(a, here, "../share/shardc/runtime", "")};
    const char *libraries[] = {here, join(a, here, "../lib/shardc", ""), home ? join(a, home, "build", "") : NULL,
                               home ? join(a, home, "lib/shardc", "") : NULL};
    bool plain = !b->variant[0];
    const char *file = arena_printf(a, "libsc_%s%s%s.a", target, plain ? "" : "_", b->variant);
    b->headers = first_with(a, headers, 4, "sc.h");
    if (!b->headers)
        fail(NOWHERE, "the runtime's headers (runtime/sc.h) are not beside %s; set SHARDC_HOME to the folder of shardc",
             here);
    const char *folder = first_with(a, libraries, 4, file);
    if (!folder)
        fail(NOWHERE, "%s is not in %s; build it with 'make%s%s' or set SHARDC_HOME to the folder of shardc", file,
             here, plain ? "" : " libs-", b->variant);
    b->library = join(a, folder, file, "");
}

/* ── running the compiler ────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    pid_t pid;
    const char *messages; /* file with its error output */
    const char *what;
} Job;

static Job start(Build *b, Args *args, const char *what) {
    Job j = {.what = what,
             .messages = arena_printf(b->a, "%s.%s.log.%ld", join(b->a, b->dir, b->name, ""), what, (long)getpid())};
    temp_register(j.messages);
    push(args, b->a, NULL);
    posix_spawn_file_actions_t io;
    posix_spawn_file_actions_init(&io);
    posix_spawn_file_actions_addopen(&io, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&io, 2, j.messages, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&io, 2, 1);
    posix_spawn_file_actions_addchdir_np(&io,
                                         b->dir[0] ? b->dir : "."); /* .incbin finds the plan there, and nowhere else */
    int e = posix_spawnp(&j.pid, args->at[0], &io, NULL, (char *const *)args->at, environ);
    posix_spawn_file_actions_destroy(&io);
    if (e)
        fail(NOWHERE, "cannot run %s: %s; install gcc, or name a C compiler in the environment variable CC",
             args->at[0], strerror(e));
    return j;
}

static bool ended_well(Build *b, const Job *j, Str *messages) {
    int status = 0;
    while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR) {}
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ok) {
        size_t n = 0;
        const char *text = access(j->messages, R_OK) ? "" : read_file(b->a, j->messages, &n);
        str_addf(messages, "%s ended with %s %d while building %s (%s):\n%s", b->cc,
                 WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                 join(b->a, b->dir, b->name, ""), j->what, text);
    }
    unlink(j->messages);
    temp_forget(j->messages);
    return ok;
}

static void finish(Build *b, const Job *jobs, int n) {
    Str messages = {.arena = b->a};
    bool ok = true;
    for (int i = 0; i < n; i++) ok &= ended_well(b, &jobs[i], &messages); /* all of them: none may outlive us */
    if (!ok) fail(NOWHERE, "%s", messages.s);
}

/* The compiler runs in the folder of the build. */
static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ── objects ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void add(Build *b, Args *args, const char *const *more) {
    for (; *more; more++) push(args, b->a, *more);
}

static void add_variant(Build *b, Args *args) {
    static const char *const asan[] = {"-fsanitize=address,undefined", "-fno-omit-frame-pointer", NULL};
    static const char *const tsan[] = {"-fsanitize=thread", "-DSC_RANK_THREADS", NULL};
    static const char *const fp64[] = {"-DSC_FP64", NULL};
    if (!strcmp(b->variant, "asan"))
        add(b, args, asan);
    else if (!strcmp(b->variant, "tsan"))
        add(b, args, tsan);
    else if (!strcmp(b->variant, "fp64"))
        add(b, args, fp64);
    else if (b->variant[0])
        bug(NOWHERE, "no variant '%s' of the runtime", b->variant);
}

/* The step is calls and tables: optimising it takes long and brings nothing. */
static Job compile_step(Build *b, const char *object) {
    Args args = {0};
    const char *source = arena_printf(b->a, "%s.c", b->name);
    add(b, &args, (const char *const[]){b->cc, "-std=gnu17", "-O0", "-I", b->headers, NULL});
    add_variant(b, &args);
    add(b, &args, (const char *const[]){"-c", source, "-o", file_name(object), NULL});
    return start(b, &args, "step");
}

static Args kernel_command(Build *b) {
    Args args = {0};
    add(b, &args,
        (const char *const[]){b->cc, "-std=gnu17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno",
                              "-fno-trapping-math", "-fno-strict-aliasing", "-I", b->headers, NULL});
    add_variant(b, &args);
    return args;
}

static uint64_t mix(uint64_t h, const char *s) { /* FNV-1a */
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return (h ^ 0xff) * 1099511628211u;
}

/* -march=native: an object made on another machine is of no use here. */
static uint64_t mix_processor(uint64_t h) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[8192];
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) {
            h = mix(h, line);
            break;
        }
    if (f) fclose(f);
    return h;
}

/* Everything that the kernels' object depends on. */
static const char *kernel_key(Build *b) {
    static const char *const headers[] = {"sc.h", "sc_math.h", "sc_pointwise.h"};
    uint64_t h = 14695981039346656037u;
    Args args = kernel_command(b);
    for (int i = 0; i < args.n; i++) h = mix(h, args.at[i]);
    h = mix(h, read_file(b->a, join(b->a, b->dir, b->name, "_kernels.c"), NULL));
    for (int i = 0; i < 3; i++) h = mix(h, read_file(b->a, join(b->a, b->headers, headers[i], ""), NULL));
    return arena_printf(b->a, "%016llx\n", (unsigned long long)mix_processor(h));
}

static bool up_to_date(Build *b, const char *key_file, const char *key) {
    struct stat st;
    if (stat(b->kernels, &st) || stat(key_file, &st) || !S_ISREG(st.st_mode)) return false;
    return !strcmp(read_file(b->a, key_file, NULL), key);
}

static Job compile_kernels(Build *b, const char *object) {
    Args args = kernel_command(b);
    const char *source = arena_printf(b->a, "%s_kernels.c", b->name);
    add(b, &args, (const char *const[]){"-c", source, "-o", file_name(object), NULL});
    return start(b, &args, "kernels");
}

static void move_file(const char *from, const char *to) {
    if (rename(from, to)) fail(NOWHERE, "cannot write %s: %s", to, strerror(errno));
    temp_forget(from);
}

/* Both objects at once: they are independent. */
static void compile(Build *b) {
    const char *dot = b->variant[0] ? "." : "";
    b->step = arena_printf(b->a, "%s.tmp.%ld.o", join(b->a, b->dir, b->name, ""), (long)getpid());
    b->kernels = join(b->a, b->dir, b->name, arena_printf(b->a, "_kernels%s%s.o", dot, b->variant));
    const char *key_file = join(b->a, b->dir, b->name, arena_printf(b->a, "_kernels%s%s.key", dot, b->variant)),
               *key = kernel_key(b);
    const char *fresh = arena_printf(b->a, "%s.tmp.%ld", b->kernels, (long)getpid());
    bool reuse = up_to_date(b, key_file, key);
    Job jobs[2];
    int n = 0;
    temp_register(b->step);
    jobs[n++] = compile_step(b, b->step);
    if (!reuse) {
        temp_register(fresh);
        jobs[n++] = compile_kernels(b, fresh);
    }
    finish(b, jobs, n);
    if (reuse) return;
    unlink(key_file); /* the key never speaks of an object that is not there yet */
    move_file(fresh, b->kernels);
    OutFile o = out_open(b->a, key_file);
    fputs(key, o.f);
    out_commit(&o);
}

/* ── the binary ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
#if defined __aarch64__
#define BLAS_FOLDER "-L/usr/lib/aarch64-linux-gnu/openblas-serial"
#else
#define BLAS_FOLDER "-L/usr/lib/x86_64-linux-gnu/openblas-serial"
#endif

static void link_binary(Build *b) {
    const char *path = join(b->a, b->dir, b->name, ""), *fresh = arena_printf(b->a, "%s.tmp.%ld", path, (long)getpid());
    struct stat st;
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        fail(NOWHERE, "cannot write %s: it is a folder; choose another with -o", path);
    Args args = {0};
    add(b, &args, (const char *const[]){b->cc, file_name(b->step), file_name(b->kernels), b->library, NULL});
    add_variant(b, &args);
    add(b, &args,
        (const char *const[]){BLAS_FOLDER, "-l:libopenblas.a", "-Wl,--wrap=blas_memory_alloc",
                              "-Wl,--wrap=blas_memory_free", "-l:libjansson.a", "-lm", "-lpthread", "-ldl", "-o",
                              file_name(fresh), NULL});
    temp_register(fresh);
    Job j = start(b, &args, "link");
    finish(b, &j, 1);
    move_file(fresh, path);
}

void emit_build(const Plan *p, const char *dir, const char *name, const char *variant) {
    const char *cc = getenv("CC");
    Build b = {
        .a = p->arena, .dir = dir, .name = name, .variant = variant ? variant : "", .cc = cc && cc[0] ? cc : "gcc"};
    find_runtime(&b, p->target);
    compile(&b);
    link_binary(&b);
    unlink(b.step);
    temp_forget(b.step);
}
