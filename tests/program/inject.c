/* Preloaded into a program under test: makes the Nth call of one C library function fail, as a full disk, a missing
 * right or a machine without memory would. SHARDC_INJECT = program:function:N:errno (N+: that call and all after it);
 * errno -9: the process is killed before that call; 0: the call never returns; 1500ms instead: the call does not fail,
 * it takes so long.
 * Says on exit, in the file $SHARDC_INJECTED, whether the call was ever made.
 * Relies on: glibc. Relied on by: test_failures.py, test_signals.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char function[32];
static long wanted, wanted_errno;
static bool from_there_on, slow;
static _Atomic long calls;

__attribute__((constructor)) static void read_wish(void) {
    const char *wish = getenv("SHARDC_INJECT");
    size_t n = strlen(program_invocation_short_name);
    if (!wish || strncmp(wish, program_invocation_short_name, n) || wish[n] != ':') return;
    char nth[16], unit[3] = "";
    if (sscanf(wish + n + 1, "%31[^:]:%15[^:]:%ld%2s", function, nth, &wanted_errno, unit) < 3) return;
    slow = strcmp(unit, "ms") == 0;
    char *end;
    wanted = strtol(nth, &end, 10);
    from_there_on = *end == '+';
}

static void told(void) {
    const char *path = getenv("SHARDC_INJECTED");
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    int fd = path ? real(path, O_WRONLY | O_CREAT, 0666) : -1;
    if (fd >= 0) ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
}

/* Does this call of `name` fail? */
static bool fails(const char *name) {
    if (!wanted || strcmp(name, function)) return false;
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (n != wanted && !(from_there_on && n > wanted)) return false;
    if (n == wanted) told();
    if (slow) {
        usleep((useconds_t)(1000 * wanted_errno));
        return false;
    }
    if (wanted_errno < 0) raise((int)-wanted_errno);
    while (!wanted_errno) pause();
    errno = (int)wanted_errno;
    return true;
}

#define REAL(type, name, params) ((type(*) params)dlsym(RTLD_NEXT, #name))
#define WRAP(type, name, params, args, failed)                                                                         \
    type name params {                                                                                                 \
        return fails(#name) ? (failed) : REAL(type, name, params) args;                                                \
    }

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n) {
    return fails("malloc") ? NULL : __libc_malloc(n);
}
void *calloc(size_t n, size_t m) {
    return fails("calloc") ? NULL : __libc_calloc(n, m);
}
void *realloc(void *p, size_t n) {
    return fails("realloc") ? NULL : __libc_realloc(p, n);
}

WRAP(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at), MAP_FAILED)
WRAP(int, fsync, (int fd), (fd), -1)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL)
WRAP(FILE *, open_memstream, (char **text, size_t *n), (text, n), NULL)
WRAP(int, fseeko, (FILE * f, off_t at, int whence), (f, at, whence), -1)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1)
WRAP(int, unlink, (const char *path), (path), -1)
WRAP(int, rmdir, (const char *path), (path), -1)
WRAP(int, access, (const char *path, int mode), (path, mode), -1)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1)
WRAP(int, stat, (const char *path, struct stat *st), (path, st), -1)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), -1)
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), -1)
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), -1)
WRAP(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), -1)
WRAP(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), -1)
WRAP(pid_t, fork, (void), (), -1)
WRAP(int, vasprintf, (char **s, const char *fmt, va_list ap), (s, fmt, ap), -1)
WRAP(int, glob, (const char *p, int f, int (*e)(const char *, int), void *g), (p, f, e, g), 1) /* GLOB_NOSPACE */
/* The error is the result, not errno. */
WRAP(int, pthread_create, (void *t, const void *a, void *(*f)(void *), void *arg), (t, a, f, arg), (int)wanted_errno)

/* What is closed is closed, whatever it says. */
int fclose(FILE *f) {
    bool wrong = fails("fclose");
    int rc = REAL(int, fclose, (FILE *))(f);
    if (wrong) errno = (int)wanted_errno;
    return wrong ? EOF : rc;
}

int close(int fd) {
    bool wrong = fails("close");
    int rc = REAL(int, close, (int))(fd);
    if (wrong) errno = (int)wanted_errno;
    return wrong ? -1 : rc;
}

int open(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails("open") ? -1 : REAL(int, open, (const char *, int, ...))(path, flags, mode);
}
