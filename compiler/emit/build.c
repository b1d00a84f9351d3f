/* Compiles and links an emitted build with the runtime of its target. Kernels are compiled again only when something
 * that their object depends on has changed; nothing is left half-written.
 * Relies on: emit.h, text.h; a C compiler ($CC or gcc); the runtime's headers and library beside shardc or in
 * $SHARDC_HOME. Relied on by: cli/. */
#include "../base/diagnostics.h"
#include "../base/places.h"
#include "../base/version.h"
#include "../extension/c_file.h"
#include "emit.h"
#include "text.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef VEC(const char *) Args;

typedef struct {
    const char *nvcc, *arch;
    const char *runtime;          /* folder of libcudart_static.a */
    const char *libraries, *nccl; /* folders that the program will look into, or NULL */
} Cuda;

typedef struct {
    Arena *a;
    const char *dir, *name, *variant, *cc;
    const Cuda *cuda;              /* NULL: the CPU target */
    const char *headers, *library; /* folder of sc.h, libsc_<target>.a */
    const char *suffix;            /* of the kernels' source */
    const char *step, *kernels;    /* objects */
    const Graph *g;
    const Plan *plan;
    const char **foreign; /* objects of the user's files */
} Build;

/* ── where the runtime and CUDA are ──────────────────────────────────────────────────────────────────────────────── */
/* The library's kernels are for the architectures that `make cuda` listed beside it: one of the program's own major
 * with an equal or lower minor serves it. Without the list nothing is known, and the program says so when it starts. */
static void check_archs(Build *b) {
    const char *list = arena_printf(b->a, "%.*s.archs", (int)(strlen(b->library) - 2), b->library);
    if (!b->cuda || access(list, R_OK)) return;
    Str made = {.arena = b->a}, all = {.arena = b->a};
    char *rest = path_read(b->a, list, NULL);
    int wanted = atoi(b->cuda->arch + 3);
    str_addf(&all, "%d", wanted);
    for (char *word; (word = strsep(&rest, " \n"));) {
        int n = atoi(word);
        if (!n) continue;
        if (n / 10 == wanted / 10 && n <= wanted) return;
        str_addf(&made, "%ssm_%d", made.n ? ", " : "", n);
        str_addf(&all, " %d", n);
    }
    if (!made.n) return;
    fail(NOWHERE, "%s was made for %s, and this program is for sm_%d; run make cuda CUDA_ARCHS='%s'", b->library,
         made.s, wanted, all.s);
}

/* Only the runtime is linked with: the program loads the other libraries when it starts (runtime/cuda/library.c). Where
 * they are on this machine is remembered in the program, after LD_LIBRARY_PATH. */
static const Cuda *find_cuda(Arena *a, const Plan *p) {
    const char *homes[MOST_FOLDERS], *given = getenv("NCCL_HOME");
    Cuda *c = NEW(a, Cuda);
    int n = places_cuda(a, homes);
    for (int i = 0; i < n && !c->nvcc; i++)
        if (!access(path_join(a, homes[i], "bin/nvcc", ""), X_OK))
            c->nvcc = path_join(a, path_real(a, homes[i]), "bin/nvcc", "");
    const char *chosen = getenv("CUDA_HOME");
    if (!c->nvcc && chosen && *chosen)
        fail(NOWHERE,
             "nvcc, the compiler of CUDA 13, is not in %s/bin (CUDA_HOME); set CUDA_HOME to the folder of the CUDA "
             "toolkit, or unset it: then PATH and /usr/local/cuda are looked into",
             chosen);
    if (!c->nvcc)
        fail(NOWHERE,
             "nvcc, the compiler of CUDA 13, is neither on PATH nor in %s/bin; install the CUDA toolkit, or "
             "set CUDA_HOME to its folder",
             homes[0]);
    c->arch = p->arch;
    c->runtime = places_find(a, homes, n, "libcudart_static.a");
    if (!c->runtime)
        fail(NOWHERE,
             "libcudart_static.a (the CUDA 13 runtime) is not below %s nor the folders where CUDA usually is; install "
             "the CUDA toolkit, or set CUDA_HOME to its folder",
             homes[0]);
    c->libraries = places_find(a, homes, n, "libcublasLt.so.13");
    c->nccl = places_find(a, given && *given ? &given : homes, given && *given ? 1 : n, "libnccl.so.2");
    return c;
}

/* ── running the compiler ────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    pid_t pid;
    const char *messages; /* file with its error output */
    const char *program, *what;
    const char *user; /* the user's file that it compiles; NULL: our own text */
} Job;

static _Noreturn void cannot_run(const char *program, int error) {
    fail(NOWHERE, "cannot run %s: %s; install gcc, or name a C compiler in the environment variable CC", program,
         strerror(error));
}

static Job start(Build *b, Args *args, const char *what) {
    Job j = {.what = what,
             .messages =
                 arena_printf(b->a, "%s.%s.log.%ld", path_join(b->a, b->dir, b->name, ""), what, (long)getpid())};
    temp_register(j.messages);
    push(args, b->a, NULL);
    posix_spawn_file_actions_t io;
    const char *dir = b->dir[0] ? b->dir : "."; /* .incbin finds the plan there, and nowhere else */
    int e = posix_spawn_file_actions_init(&io);
    if (!e) e = posix_spawn_file_actions_addopen(&io, 0, "/dev/null", O_RDONLY, 0);
    if (!e) e = posix_spawn_file_actions_addopen(&io, 2, j.messages, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (!e) e = posix_spawn_file_actions_adddup2(&io, 2, 1);
    if (!e) e = posix_spawn_file_actions_addchdir_np(&io, dir);
    if (!e) e = posix_spawnp(&j.pid, args->at[0], &io, NULL, (char *const *)args->at, environ);
    posix_spawn_file_actions_destroy(&io);
    if (e) cannot_run(args->at[0], e);
    j.program = args->at[0];
    return j;
}

/* The first error in the user's file: "ext.c:12:5: error: ..." of gcc, "ext.cu(12): error: ..." of nvcc. */
static void find_error(Build *b, const Job *j, const char *text, Source *at, const char **says) {
    size_t n = strlen(j->user);
    for (const char *p = text; p && !at->file; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        const char *error = strstr(p, "error: "), *end = p + strcspn(p, "\n");
        if (strncmp(p, j->user, n) || (p[n] != ':' && p[n] != '(') || !error || error > end) continue;
        *at = (Source){j->user, atoi(p + n + 1)};
        *says = arena_printf(b->a, "%.*s", (int)(end - error - 7), error + 7);
    }
}

static int line_with(const char *text, const char *name) { /* where a name first stands; 0: nowhere */
    int line = 1;
    size_t n = strlen(name);
    for (const char *p = text; *p; line += *p++ == '\n') {
        bool begins = p == text || (!isalnum((unsigned char)p[-1]) && p[-1] != '_');
        if (begins && !strncmp(p, name, n) && !isalnum((unsigned char)p[n]) && p[n] != '_') return line;
    }
    return 0;
}

/* What the linker misses, where one of the user's files names it: GNU ld's message, or lld's. */
static void find_undefined(Build *b, const char *text, Source *at, const char **says) {
    const char *const words[] = {"undefined reference to `", "undefined symbol: "}, *missing = NULL;
    for (int i = 0; i < 2 && !missing; i++)
        if ((missing = strstr(text, words[i]))) missing += strlen(words[i]);
    if (!missing) return;
    const char *name = arena_printf(b->a, "%.*s", (int)strcspn(missing, "'(\n"), missing);
    for (int k = 0; k < b->g->files.n && !at->file; k++) {
        int line = line_with(b->g->files.at[k]->text, name);
        if (line) *at = (Source){b->g->files.at[k]->path, line};
    }
    *says = arena_printf(b->a, "%s is used and defined nowhere: define it in this file", name);
}

static bool ended_well(Build *b, const Job *j, Str *messages) {
    int status = 0;
    while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR) {}
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ok) {
        size_t n = 0;
        const char *text = access(j->messages, R_OK) ? "" : path_read(b->a, j->messages, &n);
        str_addf(messages, "%s ended with %s %d while building %s (%s):\n%s", j->program,
                 WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                 path_join(b->a, b->dir, b->name, ""), j->what, text);
    }
    unlink(j->messages);
    temp_forget(j->messages);
    return ok;
}

/* Of messages that name no line of the user's. */
static const char *remedy(const Build *b, const char *messages) {
    if (strstr(messages, "No space left on device")) return "make room on the disk, or give -o a folder on another one";
    if (strstr(messages, "cannot find -l") || strstr(messages, "unable to find library -l"))
        return "install the library behind -l; `make setup` installs them all";
    if (strstr(messages, " ended with signal 9 "))
        return "the system sends signal 9 when memory runs out: end other programs, or build on a larger machine";
    if (strstr(messages, "cannot find 'ld'") || strstr(messages, "fatal error: cannot execute"))
        return "a part of the C compiler is missing: install gcc and binutils whole; `make setup` installs both";
    if (strstr(messages, ".h: No such file or directory"))
        return "install the headers of the C library (libc6-dev); `make setup` installs them";
    return b->cuda ? "the environment variable CC names another C compiler, CUDA_HOME another CUDA, --arch another GPU"
                   : "the environment variable CC names another C compiler";
}

static void finish(Build *b, const Job *jobs, int n) {
    Str messages = {.arena = b->a};
    Source at = NOWHERE;
    const char *says = "";
    bool ok = true;
    for (int i = 0; i < n; i++) { /* all of them: none may outlive us */
        size_t before = messages.n;
        if (ended_well(b, &jobs[i], &messages)) continue;
        ok = false;
        if (jobs[i].user) find_error(b, &jobs[i], messages.s + before, &at, &says);
    }
    if (!ok && !at.file) find_undefined(b, messages.s, &at, &says);
    if (at.file) fail(at, "%s (says %s, which builds the program)", says, b->cuda ? "nvcc" : b->cc);
    if (!ok) fail(NOWHERE, "%s%s", messages.s, remedy(b, messages.s));
}

/* ── objects ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void add(Build *b, Args *args, const char *const *more) {
    for (; *more; more++) push(args, b->a, *more);
}

/* The words of $CC, as make reads it: "ccache gcc" is two. A program whose path holds spaces is one. */
static Args c_compiler(Build *b) {
    Args args = {0};
    if (!access(b->cc, X_OK)) {
        push(&args, b->a, b->cc);
        return args;
    }
    char *rest = arena_printf(b->a, "%s", b->cc), *at;
    for (char *word = strtok_r(rest, " \t", &at); word; word = strtok_r(NULL, " \t", &at)) push(&args, b->a, word);
    return args;
}

static void add_variant(Build *b, Args *args) {
    static const char *const asan[] = {"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
                                       "-fno-omit-frame-pointer", NULL};
    static const char *const tsan[] = {"-fsanitize=thread", "-DSC_RANK_THREADS", NULL};
    static const char *const fp64[] = {"-DSC_FP64", NULL};
#ifdef __aarch64__
    static const char *const portable[] = {"-march=armv8-a", NULL};
#else
    static const char *const portable[] = {"-march=x86-64", NULL};
#endif
    if (!strcmp(b->variant, "asan"))
        add(b, args, asan);
    else if (!strcmp(b->variant, "tsan"))
        add(b, args, tsan);
    else if (!strcmp(b->variant, "fp64"))
        add(b, args, fp64);
    else if (!strcmp(b->variant, "portable"))
        add(b, args, portable);
    else if (b->variant[0])
        bug(NOWHERE, "no variant '%s' of the runtime", b->variant);
}

/* Contraction would make a value's bits depend on what it is fused with. */
static Args kernel_command(Build *b) {
    Args args = {0};
    if (b->cuda) {
        const char *number = b->cuda->arch + 3;
        add(b, &args,
            (const char *const[]){b->cuda->nvcc, "-std=c++17", "-O3", "-fmad=false", "--compress-mode=size", "-gencode",
                                  arena_printf(b->a, "arch=compute_%s,code=sm_%s", number, number), "-Xcompiler",
                                  "-fno-exceptions,-fno-rtti,-fno-threadsafe-statics", "-I", b->headers, NULL});
        return args;
    }
    args = c_compiler(b);
    add(b, &args,
        (const char *const[]){"-std=gnu17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno",
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
    enum { CPU = 5 };
    static const char *const headers[] = {"sc.h",
                                          "schema/math.h",
                                          "schema/special.h",
                                          "schema/fn.h",
                                          "sc_pointwise.h", /* the CPU's; for a GPU these too: */
                                          "sc_kernels.h",
                                          "common/space.h",
                                          "cuda/cuda.h",
                                          "cuda/launch.cuh",
                                          "cuda/kernel.cuh",
                                          "cuda/pointwise.cuh"};
    uint64_t h = 14695981039346656037u;
    Args args = kernel_command(b);
    for (int i = 0; i < args.n; i++) h = mix(h, args.at[i]);
    h = mix(h, path_read(b->a, path_join(b->a, b->dir, b->name, b->suffix), NULL));
    for (size_t i = 0; i < (b->cuda ? sizeof headers / sizeof *headers : CPU); i++)
        h = mix(h, path_read(b->a, path_join(b->a, b->headers, headers[i], ""), NULL));
    if (!b->cuda) h = mix_processor(h);
    return arena_printf(b->a, WRITTEN " %016llx\n", (unsigned long long)h);
}

static bool up_to_date(Build *b, const char *key_file, const char *key) {
    struct stat st;
    if (stat(b->kernels, &st) || stat(key_file, &st) || !S_ISREG(st.st_mode)) return false;
    return !strcmp(path_read(b->a, key_file, NULL), key);
}

/* The user's text stands in the build's folder; what it includes lies beside the original. */
static Job compile_foreign(Build *b, int k) {
    Args args = kernel_command(b);
    const char *folder = path_folder(b->a, path_real(b->a, b->g->files.at[k]->path));
    b->foreign[k] = arena_printf(b->a, "%s.tmp.%ld.%d.o", path_join(b->a, b->dir, b->name, ""), (long)getpid(), k);
    temp_register(b->foreign[k]);
    add(b, &args,
        (const char *const[]){"-I", folder, "-c", arena_printf(b->a, "%s%s", b->name, emit_foreign_suffix(b->plan, k)),
                              "-o", basename(b->foreign[k]), NULL});
    Job j = start(b, &args, arena_printf(b->a, "extension%d", k));
    j.user = b->g->files.at[k]->path;
    return j;
}

static void move_file(const char *from, const char *to) {
    if (rename(from, to)) fail(NOWHERE, "cannot write %s: %s; choose another with -o", to, strerror(errno));
    temp_forget(from);
}

/* _kernels.asan.o */
static const char *object_suffix(const Plan *p, const char *variant, const char *end) {
    const char *kind = strcmp(p->target, "cuda") ? variant : p->arch;
    return arena_printf(p->arena, "_kernels%s%s.%s", *kind ? "." : "", kind, end);
}

/* Both objects at once: they are independent. */
static void compile(Build *b) {
    b->step = arena_printf(b->a, "%s.tmp.%ld.o", path_join(b->a, b->dir, b->name, ""), (long)getpid());
    b->kernels = path_join(b->a, b->dir, b->name, object_suffix(b->plan, b->variant, "o"));
    const char *key_file = path_join(b->a, b->dir, b->name, object_suffix(b->plan, b->variant, "key")),
               *key = kernel_key(b);
    const char *fresh = arena_printf(b->a, "%s.tmp.%ld", b->kernels, (long)getpid());
    bool reuse = up_to_date(b, key_file, key);
    Job *jobs = NEW_ARRAY(b->a, Job, 2 + b->g->files.n);
    int n = 0;
    b->foreign = NEW_ARRAY(b->a, const char *, b->g->files.n + 1);
    temp_register(b->step);
    Args step = c_compiler(b); /* it is calls and tables: optimising it takes long and brings nothing */
    const char *compiler = arena_printf(b->a, "-DSC_COMPILER=\"shardc %s\"", shardc_version); /* for --version */
    add(b, &step, (const char *const[]){"-std=gnu17", "-O0", "-I", b->headers, compiler, NULL});
    add_variant(b, &step);
    add(b, &step, (const char *const[]){"-c", arena_printf(b->a, "%s.c", b->name), "-o", basename(b->step), NULL});
    jobs[n++] = start(b, &step, "step");
    if (!reuse) {
        Args args = kernel_command(b);
        const char *source = arena_printf(b->a, "%s%s", b->name, b->suffix);
        temp_register(fresh);
        add(b, &args, (const char *const[]){"-c", source, "-o", basename(fresh), NULL});
        jobs[n++] = start(b, &args, "kernels");
    }
    for (int k = 0; k < b->g->files.n; k++) jobs[n++] = compile_foreign(b, k);
    finish(b, jobs, n);
    if (reuse) return;
    unlink(key_file); /* the key never speaks of an object that is not there yet */
    move_file(fresh, b->kernels);
    OutFile o = out_open(b->a, key_file);
    fputs(key, o.f);
    out_commit(&o);
}

/* ── the binary ──────────────────────────────────────────────────────────────────────────────────────────────────── */
#if defined __aarch64__
#define BLAS_FOLDER "-L/usr/lib/aarch64-linux-gnu/openblas-serial"
#else
#define BLAS_FOLDER "-L/usr/lib/x86_64-linux-gnu/openblas-serial"
#endif

/* What runtime/cpu/blas_memory.c stands before, where this OpenBLAS has it. */
#define NOT_SMALL(core) "-Wl,--wrap=sgemm_small_matrix_permit_" core, "-Wl,--wrap=dgemm_small_matrix_permit_" core

static const char *const cpu_libraries[] = {BLAS_FOLDER,
                                            "-l:libopenblas.a",
                                            "-Wl,--wrap=blas_memory_alloc",
                                            "-Wl,--wrap=blas_memory_free",
                                            "-Wl,--wrap=mmap",
                                            NOT_SMALL("SKYLAKEX"),
                                            NOT_SMALL("COOPERLAKE"),
                                            NOT_SMALL("SAPPHIRERAPIDS"),
                                            NULL};
static const char *const host_libraries[] = {"-l:libjansson.a", "-l:libz.a", "-lm", "-lpthread", "-ldl", NULL};

static const char *c_compiler_name(void) {
    const char *cc = getenv("CC");
    return cc && cc[strspn(cc, " \t")] ? cc : "gcc";
}

const char *const *emit_c_compiler(Arena *a) {
    Build b = {.a = a, .cc = c_compiler_name()};
    Args args = c_compiler(&b);
    push(&args, a, NULL);
    return args.at;
}

const char *const *emit_linked(Arena *a) {
    Build b = {.a = a};
    Args args = {0};
    for (const char *const *word = cpu_libraries; *word; word++)
        if (strncmp(*word, "-Wl,", 4)) push(&args, a, *word);
    add(&b, &args, host_libraries);
    push(&args, a, NULL);
    return args.at;
}

static void link_binary(Build *b) {
    const char *path = path_join(b->a, b->dir, b->name, ""),
               *fresh = arena_printf(b->a, "%s.tmp.%ld.out", path, (long)getpid());
    Args args = c_compiler(b);
    /* lld takes 0.2 s of processor time for a program of 29 MB, GNU ld 0.9 s (two cores of a Zen 3, 2026-11). */
    if (!strstr(b->cc, "-fuse-ld") && places_on_path(b->a, "ld.lld")) push(&args, b->a, "-fuse-ld=lld");
    add(b, &args, (const char *const[]){basename(b->step), basename(b->kernels), NULL});
    for (int k = 0; k < b->g->files.n; k++) push(&args, b->a, basename(b->foreign[k]));
    push(&args, b->a, b->library);
    add_variant(b, &args);
    const Cuda *c = b->cuda;
    if (c && c->libraries) push(&args, b->a, arena_printf(b->a, "-Wl,-rpath,%s", c->libraries));
    if (c && c->nccl && (!c->libraries || strcmp(c->libraries, c->nccl)))
        push(&args, b->a, arena_printf(b->a, "-Wl,-rpath,%s", c->nccl));
    if (c)
        add(b, &args, (const char *const[]){"-L", c->runtime, "-l:libcudart_static.a", "-lrt", "-s", NULL});
    else
        add(b, &args, cpu_libraries);
    add(b, &args, host_libraries);
    add(b, &args, (const char *const[]){"-o", basename(fresh), NULL});
    temp_register(fresh);
    Job j = start(b, &args, "link");
    finish(b, &j, 1);
    move_file(fresh, path);
}

/* What is written aside here and by emit, and the compilers' messages. */
void emit_clear(const char *dir, const char *name) {
    temp_clear(dir[0] ? dir : ".", name,
               "^(\\.c|\\.plan\\.json|_extension[0-9]+\\.cu?|_kernels(\\.cu?|(\\.[a-z0-9_]+)?\\.(o|key)))?"
               "\\.tmp\\.[0-9]+(\\.[0-9]+)?(\\.o|\\.out)?$|^\\.(step|kernels|link|extension[0-9]+)\\.log\\.[0-9]+$");
}

void emit_keep(const Plan *p, const char *dir, const char *name, const char *variant, bool sources) {
    const char *const suffixes[] = {".c", emit_kernels_suffix(p),         ".plan.json",
                                    "",   object_suffix(p, variant, "o"), object_suffix(p, variant, "key")};
    for (int i = 0; i < (sources ? 3 : 6); i++)
        emit_keep_foreign(p->arena, path_join(p->arena, dir, name, suffixes[i]));
    for (int i = 0; i < p->graph->files.n; i++)
        emit_keep_foreign(p->arena, path_join(p->arena, dir, name, emit_foreign_suffix(p, i)));
}

/* What the build takes, and where it is; fails where something is missing. */
static Build look_around(const Plan *p, const char *variant) {
    Build b = {.a = p->arena, .g = p->graph, .plan = p, .variant = variant ? variant : "", .cc = c_compiler_name()};
    const char *program = c_compiler(&b).at[0];
    bool path = strchr(program, '/') != NULL;
    if (path ? access(program, X_OK) : !places_on_path(b.a, program)) cannot_run(program, path ? errno : ENOENT);
    if (!strcmp(p->target, "cuda")) b.cuda = find_cuda(b.a, p);
    b.suffix = emit_kernels_suffix(p);
    bool plain = !b.variant[0];
    const char *file = arena_printf(b.a, "libsc_%s%s%s.a", p->target, plain ? "" : "_", b.variant);
    b.headers = places_headers(b.a);
    const char *made_by = b.cuda ? "cuda" : plain ? "" : arena_printf(b.a, "libs-%s", b.variant);
    b.library = path_join(b.a, places_library(b.a, file, made_by), file, "");
    check_archs(&b);
    return b;
}

void emit_check(const Plan *p, const char *variant) {
    look_around(p, variant);
}

void emit_build(const Plan *p, const char *dir, const char *name, const char *variant) {
    Build b = look_around(p, variant);
    b.dir = dir;
    b.name = name;
    compile(&b);
    link_binary(&b);
    unlink(b.step);
    temp_forget(b.step);
    for (int k = 0; k < b.g->files.n; k++) {
        unlink(b.foreign[k]);
        temp_forget(b.foreign[k]);
    }
}
