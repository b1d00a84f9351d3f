/* The system's calls as the runtime wants them: reads and writes of all that was asked for, the clock.
 * Relies on: POSIX.
 * Relied on by: runtime/host, runtime/common, runtime/calibrate/, compiler/main.c. */
#ifndef SC_SYSTEM_H
#define SC_SYSTEM_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

/* false: errno says why, ENODATA at the end of the file. */
static inline bool sc_read_at(int fd, void *to, uint64_t n, uint64_t at) {
    for (uint64_t k = 0; k < n;) {
        ssize_t got = pread(fd, (char *)to + k, n - k, (off_t)(at + k));
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENODATA;
        if (got <= 0) return false;
        k += (uint64_t)got;
    }
    return true;
}

static inline bool sc_write_all(int fd, const void *from, size_t n) {
    for (size_t k = 0; k < n;) {
        ssize_t put = write(fd, (const char *)from + k, n - k);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC;
        if (put <= 0) return false;
        k += (size_t)put;
    }
    return true;
}

/* First of all in a program: where standard input, output or error is closed, the next file that is opened would take
 * its place, and what is printed would go there. A closed one becomes a file that cannot be read, or written. */
static inline void sc_hold_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd) return;
}

static inline int64_t sc_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline double sc_now_s(void) {
    return 1e-9 * (double)sc_now_ns();
}

#endif
