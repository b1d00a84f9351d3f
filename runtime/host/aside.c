/* Files written aside and renamed.
 * Relies on: POSIX files.
 * Relied on by: checkpoint, weights. */
#include "aside.h"
#include "../system.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void aside_open(Aside *a, char *path, char *temp, uint8_t *buffer) {
    *a = (Aside){.path = path, .temp = temp, .buffer = buffer};
    a->fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (a->fd < 0) a->error = errno;
}

static void put_all(Aside *a, const void *p, size_t n) {
    if (!a->error && !sc_write_all(a->fd, p, n)) a->error = errno;
}

static void flush(Aside *a) {
    put_all(a, a->buffer, a->n);
    a->n = 0;
}

void aside_write(Aside *a, const void *p, size_t n) {
    if (a->error) return;
    if (a->n + n > ASIDE_BUFFER) flush(a);
    if (n > ASIDE_BUFFER) {
        put_all(a, p, n);
        return;
    }
    memcpy(a->buffer + a->n, p, n);
    a->n += n;
}

void aside_rewrite(Aside *a, const void *p, size_t n) {
    if (!a->error) flush(a);
    if (!a->error && lseek(a->fd, 0, SEEK_SET) < 0) a->error = errno;
    put_all(a, p, n);
}

int aside_commit(Aside *a) {
    if (!a->error) flush(a);
    if (!a->error && fsync(a->fd) != 0 && errno != EINVAL && errno != EROFS) a->error = errno;
    if (a->fd >= 0 && close(a->fd) != 0 && !a->error) a->error = errno;
    if (!a->error && rename(a->temp, a->path) != 0) a->error = errno;
    if (a->error && a->fd >= 0) unlink(a->temp);
    a->fd = -1;
    return a->error;
}
