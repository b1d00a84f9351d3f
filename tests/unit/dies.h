/* Runs statements that must end their process in a process of their own, and keeps what they say.
 * Relies on: Criterion.
 * Relied on by: the unit tests of the compiler. */
#ifndef DIES_H
#define DIES_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* DIES(said, size, statements): its stderr in `said`, which holds `size` bytes; the value is its exit code (0 where the
 * statements come to their end), or below 0 the signal. */
#define DIES(said, size, ...)                                                                                          \
    ({                                                                                                                 \
        int fd_[2], status_;                                                                                           \
        cr_assert(!pipe(fd_));                                                                                         \
        fflush(NULL);                                                                                                  \
        pid_t child_ = fork();                                                                                         \
        cr_assert(child_ >= 0);                                                                                        \
        if (!child_) {                                                                                                 \
            dup2(fd_[1], 2);                                                                                           \
            __VA_ARGS__;                                                                                               \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        close(fd_[1]);                                                                                                 \
        size_t n_ = 0;                                                                                                 \
        for (ssize_t got_; (got_ = read(fd_[0], (said) + n_, (size)-1 - n_)) > 0;) n_ += (size_t)got_;                 \
        close(fd_[0]);                                                                                                 \
        (said)[n_] = 0;                                                                                                \
        waitpid(child_, &status_, 0);                                                                                  \
        WIFSIGNALED(status_) ? -WTERMSIG(status_) : WEXITSTATUS(status_);                                              \
    })

#endif
