/* Files as the runtime opens them: what is read is a regular file, what is written replaces the old file when it is
 * whole. Whatever goes wrong, what was there stays.
 * Relies on: system.h, POSIX files.
 * Relied on by: runtime/host, runtime/common/dump.c, runtime/cuda/tune.c, runtime/calibrate/. */
#ifndef SC_FILE_H
#define SC_FILE_H

#include "system.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

/* A file that is written under a temporary name, PATH.part, and then renamed: its name never stands for half of it. */
enum { SC_ASIDE_BUFFER = 1 << 20 };

typedef struct {
    char path[PATH_MAX], temp[PATH_MAX]; /* temp: equal to path where there is nothing to rename */
    uint8_t *buffer; /* SC_ASIDE_BUFFER bytes, the caller's: nothing is allocated; NULL: writes go straight out */
    size_t n;
    int fd, error; /* errno of the first failure; later calls do nothing */
    bool passing;  /* another one will soon replace it: not worth an fsync */
} sc_aside;

/* Where a file is written: a link is followed, so that the rename replaces the file and not the link; a pipe, a device
 * and what this process has open already (/dev/stdout) are written directly. Returns the file's mode, 0 for none. */
static inline mode_t sc_aside_place(sc_aside *a, const char *path) {
    struct stat st;
    bool direct = !strncmp(path, "/dev/std", 8) || !strncmp(path, "/dev/fd/", 8) || !strncmp(path, "/proc/", 6);
    bool link = !direct && lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && realpath(path, a->path);
    if (!link && (size_t)snprintf(a->path, sizeof a->path, "%s", path) > sizeof a->path - sizeof ".part")
        a->error = ENAMETOOLONG;
    bool there = stat(a->path, &st) == 0;
    if (there && S_ISDIR(st.st_mode)) a->error = EISDIR;
    direct |= there && !S_ISREG(st.st_mode);
    snprintf(a->temp, sizeof a->temp, "%.*s%s", (int)(sizeof a->temp - sizeof ".part"), a->path, direct ? "" : ".part");
    return there ? st.st_mode & 07777 : 0;
}

static inline bool sc_aside_direct(const sc_aside *a) {
    return !strcmp(a->path, a->temp);
}

static inline void sc_aside_open(sc_aside *a, const char *path, uint8_t *buffer) {
    *a = (sc_aside){.buffer = buffer, .fd = -1};
    mode_t mode = sc_aside_place(a, path);
    bool direct = sc_aside_direct(a);
    if (a->error) return;
    a->fd = open(a->temp, O_WRONLY | O_CREAT | O_CLOEXEC | (direct ? 0 : O_TRUNC | O_NONBLOCK), 0666);
    if (a->fd < 0) a->error = errno;
    if (a->fd >= 0 && mode && !direct && fchmod(a->fd, mode) != 0) {} /* another's file keeps its own mode */
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

/* The file as a stream, for who prints; it ends with sc_aside_printed. NULL: a->error says why. */
static inline FILE *sc_aside_print(sc_aside *a) {
    int fd = a->error ? -1 : dup(a->fd);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f && !a->error) a->error = errno;
    if (!f && fd >= 0) close(fd);
    return f;
}

static inline void sc_aside_printed(sc_aside *a, FILE *f) {
    bool bad = fflush(f) || ferror(f);
    if (fclose(f)) bad = true;
    if (!bad || a->error) return;
    a->error = sc_write_all(a->fd, "", 1) ? EIO : errno; /* the stream does not keep what its first failure was */
}

/* Nothing of it stays. */
static inline void sc_aside_drop(sc_aside *a) {
    if (a->fd < 0) return;
    close(a->fd);
    if (!sc_aside_direct(a)) unlink(a->temp);
    a->fd = -1;
}

/* Flush, fsync, close: the file is whole and still has its temporary name. Returns 0, or the first errno: then it is
 * gone. */
static inline int sc_aside_close(sc_aside *a) {
    bool direct = sc_aside_direct(a), opened = a->fd >= 0;
    sc_aside_flush(a);
    if (!a->error && !a->passing && !direct && fsync(a->fd) != 0 && errno != EINVAL && errno != EROFS) a->error = errno;
    if (opened && close(a->fd) != 0 && !a->error) a->error = errno;
    if (a->error && opened && !direct) unlink(a->temp);
    a->fd = -1;
    return a->error;
}

/* After that: it takes its name. Returns 0, or errno: then it is gone. */
static inline int sc_aside_rename(sc_aside *a) {
    if (a->error || sc_aside_direct(a)) return a->error;
    if (rename(a->temp, a->path) == 0) return 0;
    a->error = errno;
    unlink(a->temp);
    return a->error;
}

static inline int sc_aside_commit(sc_aside *a) {
    int error = sc_aside_close(a);
    return error ? error : sc_aside_rename(a);
}

/* Before the work: can it be written? 0, or errno. Leaves nothing. */
static inline int sc_aside_try(const char *path) {
    sc_aside a = {.fd = -1};
    sc_aside_place(&a, path);
    if (!a.error && sc_aside_direct(&a)) return access(a.path, W_OK) ? errno : 0; /* opening a pipe may wait */
    sc_aside_open(&a, path, NULL);
    sc_aside_drop(&a);
    return a.error;
}

#endif
