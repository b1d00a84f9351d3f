/* processes: runs jobs in forked processes. A job's result and its messages go to files in memory, so that no job waits
 * for another to be read. Relies on: processes.h, Linux (memfd, the signal at a parent's death).
 * Relied on by: planner/evaluate.c, cli/. */
#include "processes.h"
#include "diagnostics.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16 }; /* side by side */

typedef struct {
    pid_t pid;
    int job, result, said; /* result, said: files in memory */
} Child;

static _Noreturn void cannot(const char *what) {
    fail(NOWHERE, "cannot %s another process: %s; close programs and run again", what, strerror(errno));
}

static _Noreturn void child(pid_t parent, ProcessJob *job, const void *context, int at, Child c) {
    int nothing = open("/dev/null", O_WRONLY);
    FILE *result = fdopen(c.result, "w");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(1); /* it ends with its parent */
    temp_leave();
    if (nothing < 0 || !result || dup2(nothing, STDOUT_FILENO) < 0 || dup2(c.said, STDERR_FILENO) < 0) _exit(1);
    job(context, at, result);
    _exit(fclose(result) ? 1 : 0);
}

static Child start(ProcessJob *job, const void *context, int at) {
    Child c = {.job = at, .result = memfd_create("result", MFD_CLOEXEC), .said = memfd_create("said", MFD_CLOEXEC)};
    if (c.result < 0 || c.said < 0) cannot("get the memory for the result of");
    fflush(NULL); /* or both processes would write what is not yet written */
    pid_t parent = getpid();
    c.pid = fork();
    if (c.pid < 0) cannot("start");
    if (!c.pid) child(parent, job, context, at, c);
    return c;
}

/* The whole file, NUL after the end; closes it. */
static char *contents(Arena *a, int fd, size_t *n) {
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = arena_alloc(a, (size_t)(size < 0 ? 0 : size) + 1);
    *n = 0;
    while (size > 0 && *n < (size_t)size) {
        ssize_t k = pread(fd, text + *n, (size_t)size - *n, (off_t)*n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) cannot("read the result of");
        *n += (size_t)k;
    }
    close(fd);
    return text;
}

/* Waits until one has ended, and returns its place among the running. */
static int ended(const Child *running, int n, int *status) {
    for (;;) {
        pid_t pid = wait(status);
        if (pid < 0 && errno != EINTR) cannot("wait for");
        for (int i = 0; i < n; i++)
            if (running[i].pid == pid) return i;
    }
}

void processes_run(Arena *a, ProcessJob *job, const void *context, int n, ProcessResult *out, ProcessProgress *progress,
                   void *progress_context) {
    Child running[MOST];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int width = processors < 1 ? 1 : processors > MOST ? MOST : (int)processors;
    for (int begun = 0, now = 0, done = 0; done < n;) {
        while (begun < n && now < width) running[now++] = start(job, context, begun++);
        int status, at = ended(running, now, &status);
        Child c = running[at];
        ProcessResult *r = &out[c.job];
        size_t length;
        *r = (ProcessResult){.done = WIFEXITED(status) && !WEXITSTATUS(status),
                             .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
        r->at = contents(a, c.result, &r->n);
        char *said = contents(a, c.said, &length);
        while (length && said[length - 1] == '\n') said[--length] = 0;
        r->said = said;
        if (!r->done) r->n = 0;
        running[at] = running[--now];
        done++;
        if (progress) progress(progress_context, done, n);
    }
}
