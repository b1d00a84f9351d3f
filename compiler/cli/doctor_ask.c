/* How `shardc doctor` asks: other programs, and what `shardc build` says before it writes anything.
 * Relies on: doctor.h, emit/, base/processes.h.
 * Relied on by: doctor_cpu.c, doctor_cuda.c, doctor_gpus.c, doctor.c. */
#include "../base/processes.h"
#include "../emit/emit.h"
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
enum { PATIENCE_S = 20, MOST = 1 << 16 }; /* MOST: bytes that are read of an answer */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads to the end; false: the time is over. */
static bool read_all(int fd, Str *text) {
    char piece[4096];
    for (double end = now() + PATIENCE_S;;) {
        double left = end - now();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = left > 0 ? poll(&p, 1, (int)(1e3 * left) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return true;
        if (text->n < MOST) str_bytes(text, piece, (size_t)n);
    }
}

static pid_t start(const char *const *args, int out, int *error) {
    posix_spawn_file_actions_t io;
    pid_t pid = 0;
    *error = posix_spawn_file_actions_init(&io);
    if (!*error) *error = posix_spawn_file_actions_addopen(&io, 0, "/dev/null", O_RDONLY, 0);
    if (!*error) *error = posix_spawn_file_actions_adddup2(&io, out, 1);
    if (!*error) *error = posix_spawn_file_actions_adddup2(&io, out, 2);
    if (!*error) *error = posix_spawnp(&pid, args[0], &io, NULL, (char *const *)args, environ);
    posix_spawn_file_actions_destroy(&io);
    return pid;
}

char *doctor_ask(Arena *a, const char *const *args, const char **why) {
    int ends[2], error, status = 0;
    Str text = {.arena = a};
    if (pipe2(ends, O_CLOEXEC)) {
        *why = arena_printf(a, "%s cannot be run: %s", args[0], strerror(errno));
        return NULL;
    }
    pid_t pid = start(args, ends[1], &error);
    close(ends[1]);
    bool whole = !error && read_all(ends[0], &text);
    close(ends[0]);
    if (!error && !whole) kill(pid, SIGKILL);
    while (!error && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    while (text.n && strchr(" \t\r\n", text.s[text.n - 1])) text.s[--text.n] = 0;
    if (error)
        *why = arena_printf(a, "%s cannot be run: %s", args[0], strerror(error));
    else if (!whole)
        *why = arena_printf(a, "%s has not answered within %d seconds", args[0], PATIENCE_S);
    else if (WIFSIGNALED(status))
        *why = arena_printf(a, "%s ended by signal %d", args[0], WTERMSIG(status));
    else if (WEXITSTATUS(status))
        *why = arena_printf(a, "%s ended with status %d%s%s", args[0], WEXITSTATUS(status), text.n ? ": " : "",
                            text.n ? text.s : "");
    else
        return text.n ? text.s : arena_strdup(a, "");
    return NULL;
}

typedef struct {
    const char *target, *arch;
} Wanted;

/* emit_check asks of a plan only what it is for. */
static void check(const void *context, int job, FILE *result) {
    const Wanted *w = context;
    Plan p = {.arena = arena_new(), .target = w->target, .arch = w->arch ? w->arch : ""};
    emit_check(&p, "");
}

const char *doctor_build(Arena *a, const char *target, const char *arch) {
    static const char mark[] = "shardc: ";
    Wanted w = {target, arch};
    ProcessResult r;
    processes_run(a, check, &w, 1, &r, NULL, NULL);
    if (r.done) return NULL;
    if (!*r.said) return arena_printf(a, "the check of what a build needs ended by signal %d", r.signal);
    return strncmp(r.said, mark, sizeof mark - 1) ? r.said : r.said + sizeof mark - 1;
}
