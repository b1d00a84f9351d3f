/* Starts the Python of helper.h and reads what it writes. It is started before a run has threads, or by posix_spawn,
 * which copies no memory: a program with a GPU may call it.
 * Relies on: helper.py. Relied on by: `shardc data`, runtime/host/sample. */
#include "helper.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__asm__(".section .rodata\n"
        "sc_text_helper:\n"
        ".incbin \"runtime/text/helper.py\"\n"
        ".byte 0\n"
        ".previous\n");
extern char sc_text_helper[];
extern char **environ;

enum { MOST = 8, FIXED = 3 };

static int wrong(sc_text *t, const char *what) {
    snprintf(t->error, sizeof t->error, "%s: %s", what, strerror(errno));
    return 0;
}

static const char *python(void) {
    const char *given = getenv("SHARDC_PYTHON");
    return given && *given ? given : "python3";
}

/* in: its standard input, out: its standard output; -1: /dev/null, or this process's. */
static int start(sc_text *t, const char *const *arguments, int in, int out) {
    char *args[MOST + FIXED + 1] = {(char *)python(), (char *)"-c", sc_text_helper};
    char **all = args;
    posix_spawn_file_actions_t files;
    int n = 0, rc;
    while (arguments[n]) n++;
    if (n > MOST) all = calloc((size_t)n + FIXED + 1, sizeof *all);
    if (!all || posix_spawn_file_actions_init(&files)) return wrong(t, "cannot start Python");
    memcpy(all, args, FIXED * sizeof *all);
    memcpy(all + FIXED, arguments, (size_t)(n + 1) * sizeof *all);
    rc = in < 0 ? posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0)
                : posix_spawn_file_actions_adddup2(&files, in, 0);
    if (!rc && out >= 0) rc = posix_spawn_file_actions_adddup2(&files, out, 1);
    if (!rc) rc = posix_spawnp(&t->pid, all[0], &files, NULL, all, environ);
    posix_spawn_file_actions_destroy(&files);
    if (all != args) free(all);
    if (rc) {
        t->pid = 0;
        snprintf(
            t->error, sizeof t->error,
            "cannot start %s, in which the tokenizer works: %s; set SHARDC_PYTHON to a Python 3 that has the packages "
            "tokenizers and jinja2",
            python(), strerror(rc));
    }
    return !rc;
}

static int whole(sc_text *t, void *to, size_t n) {
    return fread(to, 1, n, t->from) == n;
}

static int fail_of(sc_text *t, const char *why) {
    snprintf(t->error, sizeof t->error, "%s", why);
    return -1;
}

static int ended_early(sc_text *t) {
    return fail_of(t, "the Python in which the tokenizer works has ended; what it printed says why");
}

/* After SC_TEXT_NONE in the place of a count: file, line, bytes of the message, the message. */
static int read_error(sc_text *t) {
    uint32_t head[3];
    if (!whole(t, head, sizeof head)) return ended_early(t);
    size_t n = head[2] < sizeof t->error ? head[2] : sizeof t->error - 1;
    if (!whole(t, t->error, n)) return ended_early(t);
    t->error[n] = 0;
    t->file = head[0] == SC_TEXT_NONE ? -1 : (int)head[0];
    t->line = (int)head[1];
    return -1;
}

int sc_text_start(sc_text *t, const char *const *arguments) {
    int pipe_[2];
    uint32_t head[3];
    *t = (sc_text){.to = -1, .file = -1, .code = 1};
    if (pipe2(pipe_, O_CLOEXEC)) return wrong(t, "no pipe to the tokenizer");
    int good = start(t, arguments, -1, pipe_[1]);
    close(pipe_[1]);
    t->from = good ? fdopen(pipe_[0], "rb") : NULL;
    if (!t->from) {
        close(pipe_[0]);
        return good ? wrong(t, "no pipe to the tokenizer") : 0;
    }
    if (!whole(t, head, sizeof *head)) return ended_early(t), 0;
    if (head[0] == SC_TEXT_NONE) return read_error(t), 0;
    if (!whole(t, head + 1, 2 * sizeof *head) || !whole(t, t->ends, sizeof t->ends)) return ended_early(t), 0;
    t->vocabulary = head[0];
    t->end = head[1];
    t->pad = head[2];
    return 1;
}

static int code_of(sc_text *t) {
    int status = 0;
    pid_t pid = t->pid;
    t->pid = 0;
    if (pid <= 0) return t->code;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return t->code = 1;
    return t->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int sc_text_next(sc_text *t) {
    uint32_t n;
    if (!whole(t, &n, sizeof n))
        return code_of(t) ? fail_of(t, "the Python in which the tokenizer works has failed; what it printed says why")
                          : 0;
    if (n == SC_TEXT_NONE) return read_error(t);
    if (n > t->room) {
        free(t->ids);
        t->room = 0;
        t->ids = malloc(2 * (size_t)n * sizeof *t->ids);
        if (!t->ids) return fail_of(t, "no memory for the tokens of a text");
        t->room = 2 * (int64_t)n;
    }
    if (!whole(t, t->ids, n * sizeof *t->ids)) return ended_early(t);
    t->n = n;
    return 1;
}

int sc_text_shows(sc_text *t, const char *tokenizer) {
    const char *const arguments[] = {"show", tokenizer, NULL};
    int pipe_[2];
    *t = (sc_text){.to = -1, .file = -1, .code = 1};
    if (pipe2(pipe_, O_CLOEXEC)) return wrong(t, "no pipe to the tokenizer");
    int good = start(t, arguments, pipe_[0], -1);
    close(pipe_[0]);
    if (good)
        t->to = pipe_[1];
    else
        close(pipe_[1]);
    return good;
}

int sc_text_show(sc_text *t, uint32_t token) {
    ssize_t n;
    while ((n = write(t->to, &token, sizeof token)) < 0 && errno == EINTR) continue;
    return n == sizeof token;
}

int sc_text_end(sc_text *t) {
    if (t->from) fclose(t->from);
    if (t->to >= 0) close(t->to);
    free(t->ids);
    t->from = NULL;
    t->ids = NULL;
    t->to = -1;
    return code_of(t);
}
