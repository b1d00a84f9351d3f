/* Files: output is written aside, synced and renamed, so that a failure leaves what was there; input is read whole.
 * Relies on: the arena, diagnostics; flock, which tells a living process's file from one that a killed process has
 * left. Relied on by: reports, the emitter, readers of plans and models. */
#include "diagnostics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_READ = 64 << 10 };

_Noreturn static void cannot(Source at, const char *what, const char *path, int error) {
    fail(at, "cannot %s %s: %s", what, path, strerror(error));
}

char *path_real(Arena *a, const char *path) {
    char *real = realpath(path, NULL), *kept = arena_strdup(a, real ? real : path);
    free(real);
    return kept;
}

/* ── what killed processes have left ─────────────────────────────────────────────────────────────────────────────── */
/* Removes the file unless a process holds its lock. Process numbers would not do where machines share a folder; the
 * kernel frees a lock when its process ends. Where the file system has no locks, the file stays. */
static void remove_dead(int folder, const char *name) {
    struct stat st;
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !flock(fd, LOCK_EX | LOCK_NB)) unlinkat(folder, name, 0);
    close(fd);
}

void temp_clear(const char *folder, const char *name, const char *rest) {
    regex_t r;
    size_t n = strlen(name);
    if (regcomp(&r, rest, REG_EXTENDED | REG_NOSUB)) return;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, name, n) && !regexec(&r, e->d_name + n, 0, NULL, 0)) remove_dead(dirfd(d), e->d_name);
    if (d) closedir(d);
    regfree(&r);
}

bool path_is_open(int fd, const char *path) {
    struct stat held, there;
    return !fstat(fd, &held) && !stat(path, &there) && held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

/* Creates a file and locks it. Before the lock another process may remove the file as a dead process's: try again. */
static FILE *open_held(const char *path) {
    FILE *f = NULL;
    do {
        if (f) fclose(f);
        f = fopen(path, "w");
    } while (f && !flock(fileno(f), LOCK_EX) && !path_is_open(fileno(f), path));
    return f;
}

/* ── what a command reads it never writes over ───────────────────────────────────────────────────────────────────── */
typedef struct {
    dev_t device;
    ino_t inode;
} Input;

static VEC(Input) inputs;

void input_add(const char *path) {
    static Arena *a;
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return;
    if (!a) a = arena_new();
    push(&inputs, a, ((Input){st.st_dev, st.st_ino}));
}

void input_keep(const char *written) {
    struct stat st;
    if (stat(written, &st)) return;
    for (int i = 0; i < inputs.n; i++)
        if (inputs.at[i].device == st.st_dev && inputs.at[i].inode == st.st_ino)
            fail(NOWHERE, "%s is both an input and an output; give another name with -o", written);
}

/* ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
char *path_folder(Arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? arena_printf(a, "%.*s", (int)(slash - path) + (slash == path), path) : arena_strdup(a, ".");
}

/* A link is followed, so that the rename replaces the file and not the link. */
OutFile out_open(Arena *a, const char *path) {
    OutFile o = {.path = path_real(a, path)};
    struct stat st;
    input_keep(path);
    bool exists = !stat(o.path, &st);
    if (exists && S_ISDIR(st.st_mode)) fail(NOWHERE, "cannot write %s: it is a folder; give the name of a file", path);
    if (exists && !S_ISREG(st.st_mode)) { /* a pipe or device cannot be renamed over: written directly */
        if (!(o.f = fopen(o.path, "w"))) cannot(NOWHERE, "write", path, errno);
        return o;
    }
    o.folder = path_folder(a, o.path);
    temp_clear(o.folder, basename(o.path), "^\\.tmp\\.[0-9]+$");
    o.temp = arena_printf(a, "%s.tmp.%ld", o.path, (long)getpid());
    if (!(o.f = open_held(o.temp))) cannot(NOWHERE, "write", path, errno);
    temp_register(o.temp);
    if (exists) fchmod(fileno(o.f), st.st_mode & 07777);
    return o;
}

void out_commit(OutFile *o) {
    if (fflush(o->f) || ferror(o->f)) cannot(NOWHERE, "write", o->path, errno ? errno : EIO);
    if (o->temp && fsync(fileno(o->f))) cannot(NOWHERE, "write", o->path, errno);
    int held = o->temp ? dup(fileno(o->f)) : -1; /* keeps the lock until the file has its name */
    if (fclose(o->f)) cannot(NOWHERE, "write", o->path, errno);
    o->f = NULL;
    if (!o->temp) return;
    if (rename(o->temp, o->path)) cannot(NOWHERE, "write", o->path, errno);
    if (held >= 0) close(held);
    temp_forget(o->temp);
    int folder = open(o->folder, O_RDONLY | O_DIRECTORY); /* the name is durable only when its folder is */
    if (folder >= 0) fsync(folder);                       /* failing to open it is no reason to fail */
    if (folder >= 0) close(folder);
}

/* ── input ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* A named pipe may have no writer, and a device no end: both are refused. A pipe that the caller has opened, such as
 * `<(command)` or /dev/stdin, may be read. */
static bool is_open_already(const char *path) {
    static const char *const names[] = {"/dev/stdin", "/dev/fd/", "/proc/self/fd/"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(path, names[i], strlen(names[i]))) return true;
    return false;
}

FILE *input_open(Source at, const char *path, struct stat *st) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would block here */
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f || fstat(fd, st) || fcntl(fd, F_SETFL, 0)) cannot(at, "read", path, errno);
    if (S_ISDIR(st->st_mode)) fail(at, "cannot read %s: it is a folder; give the name of a file", path);
    if (S_ISFIFO(st->st_mode) && !is_open_already(path))
        fail(at, "cannot read %s: it is a pipe; copy what comes through it into a file, or give <(command)", path);
    if (!S_ISREG(st->st_mode) && !S_ISFIFO(st->st_mode))
        fail(at, "cannot read %s: it is a device; give the name of a file", path);
    return f;
}

static char *read_whole(Arena *a, Source at, const char *path, size_t most, size_t *size) {
    struct stat st;
    FILE *f = input_open(at, path, &st);
    size_t cap = st.st_size > 0 && S_ISREG(st.st_mode) ? (size_t)st.st_size + 1 : FIRST_READ, n = 0;
    char *s = NULL;
    for (bool more = true; more;) {
        if (cap > most) cap = most + 1;
        if (n == most || (S_ISREG(st.st_mode) && st.st_size > (off_t)most))
            fail(at, "cannot read %s: it is larger than %zu MiB; is it the right file?", path, most >> 20);
        char *larger = arena_alloc(a, cap);
        if (n) memcpy(larger, s, n);
        s = larger;
        n += fread(s + n, 1, cap - 1 - n, f);
        if (ferror(f)) cannot(at, "read", path, errno);
        int next = fgetc(f); /* a file that grew, or a pipe, goes on */
        more = next != EOF && ungetc(next, f) != EOF;
        cap *= 2;
    }
    fclose(f);
    s[n] = 0;
    if (size) *size = n;
    return s;
}

/* What came through pipes: it comes once, and `shardc plan` compiles a model more than once. */
typedef struct {
    const char *path;
    char *text;
    size_t n;
} Piped;

static char *read_pipe(Source at, const char *path, size_t most, size_t *size) {
    static Arena *a;
    static VEC(Piped) piped;
    for (int i = 0; i < piped.n; i++)
        if (!strcmp(piped.at[i].path, path)) {
            if (size) *size = piped.at[i].n;
            return piped.at[i].text;
        }
    if (!a) a = arena_new();
    size_t n;
    char *text = read_whole(a, at, path, most, &n);
    push(&piped, a, ((Piped){arena_strdup(a, path), text, n}));
    if (size) *size = n;
    return text;
}

char *input_read(Arena *a, Source at, const char *path, size_t most, size_t *size) {
    struct stat st;
    input_add(path);
    bool pipe = !stat(path, &st) && S_ISFIFO(st.st_mode) && is_open_already(path);
    return pipe ? read_pipe(at, path, most, size) : read_whole(a, at, path, most, size);
}

char *path_read(Arena *a, const char *path, size_t *size) {
    return read_whole(a, NOWHERE, path, FILE_MOST, size);
}
