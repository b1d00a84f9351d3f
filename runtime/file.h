/* Files as the runtime opens them: what is read is a regular file, what is written replaces the old file when it is
 * whole. Whatever goes wrong, what was there stays.
 * Relies on: system.h, POSIX files.
 * Relied on by: runtime/host, runtime/common/dump.c, runtime/cuda/tune.c. */
#ifndef SC_FILE_H
#define SC_FILE_H

#include "system.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Opens a regular file for reading and never waits, as opening a pipe without a writer does. Returns its descriptor and
 * fills *st. -1: `why` says why not; errno is EISDIR for a folder, ESPIPE for a pipe or a device. */
static inline int sc_open_input(const char *path, struct stat *st, char *why, size_t n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool known = fd >= 0 && fstat(fd, st) == 0;
    if (known && S_ISREG(st->st_mode)) return fd;
    int error = !known ? errno : S_ISDIR(st->st_mode) ? EISDIR : ESPIPE;
    if (known)
        snprintf(why, n, error == EISDIR ? "it is a folder, not a file" : "it is not a regular file");
    else
        snprintf(why, n, "cannot open it: %s", strerror(error));
    if (fd >= 0) close(fd);
    errno = error;
    return -1;
}

/* A file that is written under a temporary name and then renamed. */
enum { SC_ASIDE_BUFFER = 1 << 20 };

typedef struct {
    const char *path, *temp; /* the caller's, alive until commit */
    uint8_t *buffer; /* SC_ASIDE_BUFFER bytes, the caller's: nothing is allocated; NULL: writes go straight out */
    size_t n;
    int fd, error; /* errno of the first failure; later calls do nothing */
} sc_aside;

static inline void sc_aside_open(sc_aside *a, const char *path, const char *temp, uint8_t *buffer) {
    *a = (sc_aside){.path = path, .temp = temp, .buffer = buffer};
    a->fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (a->fd < 0) a->error = errno;
}

static inline void sc_aside_flush(sc_aside *a) {
    if (!a->error && !sc_write_all(a->fd, a->buffer, a->n)) a->error = errno;
    a->n = 0;
}

static inline void sc_aside_write(sc_aside *a, const void *p, size_t n) {
    size_t room = a->buffer ? SC_ASIDE_BUFFER : 0;
    if (a->n + n > room) sc_aside_flush(a);
    if (a->error) return;
    if (n > room) {
        if (!sc_write_all(a->fd, p, n)) a->error = errno;
        return;
    }
    memcpy(a->buffer + a->n, p, n);
    a->n += n;
}

/* Writes the first n bytes of the file again; then only commit. */
static inline void sc_aside_rewrite(sc_aside *a, const void *p, size_t n) {
    sc_aside_flush(a);
    if (!a->error && (lseek(a->fd, 0, SEEK_SET) < 0 || !sc_write_all(a->fd, p, n))) a->error = errno;
}

/* Flush, fsync, rename. Returns 0, or the first errno: then the temporary file is gone. */
static inline int sc_aside_commit(sc_aside *a) {
    sc_aside_flush(a);
    if (!a->error && fsync(a->fd) != 0 && errno != EINVAL && errno != EROFS) a->error = errno;
    if (a->fd >= 0 && close(a->fd) != 0 && !a->error) a->error = errno;
    if (!a->error && rename(a->temp, a->path) != 0) a->error = errno;
    if (a->error && a->fd >= 0) unlink(a->temp);
    a->fd = -1;
    return a->error;
}

#endif
