/* The log of a run: one JSON object a line, each written at once. The file grows while the run lasts, so it is not
 * written aside: a line that does not fit the disk is taken back, so that it always holds whole lines, and the next one
 * is tried again. Nothing is allocated after log_open.
 * Relies on: die, target (sc_lose).
 * Relied on by: train, run, progress. */
#include "log.h"
#include "../target.h"
#include "die.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 8192, FIGURE_BYTES = 64 }; /* beside the names of metrics */

_Noreturn static void fail(const char *path, int error) {
    die("cannot write the log %s: %s; free space or name another file with --log", path, strerror(error));
}

static int open_log(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) fail(path, errno);
    return fd;
}

char *log_path(const char *name, int rank) {
    const char *at = name ? strstr(name, LOG_RANK) : NULL;
    if (!name || (!at && rank)) return NULL;
    if (!at) return need_text("%s", name);
    return need_text("%.*s%d%s", (int)(at - name), name, rank, at + strlen(LOG_RANK));
}

void log_check(const char *path) {
    close(open_log(path));
}

static size_t quoted_bytes(const char *text) {
    return 6 * strlen(text);
}

Log log_open(const char *path, int64_t after, const char *const *names, int n) {
    if (!path) return (Log){0};
    Log l = {.path = path, .fd = open_log(path), .cap = LINE_BYTES};
    for (int i = 0; i < n; i++) l.cap += FIGURE_BYTES + quoted_bytes(names[i]);
    struct stat st;
    l.line = need(l.cap, 1);
    if (after >= 0 && fstat(l.fd, &st) == 0 && S_ISREG(st.st_mode)) { /* a pipe has no lines to keep */
        FILE *f = fopen(path, "r");
        char *line = NULL;
        size_t cap = 0;
        int64_t step;
        /* up to the first line of a step after `after`, or one that was cut short */
        for (ssize_t n; f && (n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n'; l.size += n)
            if (sscanf(line, "{\"step\": %" SCNd64, &step) == 1 && step > after) break;
        if (!f || ferror(f))
            die("cannot read the log %s, to go on in it: %s; name another file with --log", path, strerror(errno));
        free(line);
        fclose(f);
    }
    if (ftruncate(l.fd, l.size) != 0 && errno != EINVAL) fail(path, errno);
    return l;
}

void log_close(Log *l) {
    if (!l->path) return;
    if (l->fd >= 0 && close(l->fd) != 0) sc_lose(SC_LOG, l->path, errno);
    free(l->line);
}

__attribute__((format(printf, 2, 3))) static void add(Log *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(l->line + l->n, l->cap - l->n, fmt, ap);
    va_end(ap);
    if (k > 0 && (size_t)k < l->cap - l->n)
        l->n += (size_t)k; /* a figure that does not fit is left out whole */
    else
        l->line[l->n] = 0;
}

/* A text of JSON; one that does not fit is left out whole. */
static void add_text(Log *l, const char *text) {
    if (quoted_bytes(text) + 3 > l->cap - l->n) {
        add(l, "\"\"");
        return;
    }
    add(l, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        add(l, c == '"' || c == '\\' ? "\\%c" : c < 0x20 ? "\\u%04x" : "%c", c);
    }
    add(l, "\"");
}

static void add_name(Log *l, const char *name) {
    add(l, ", ");
    add_text(l, name);
    add(l, ": ");
}

void log_begin(Log *l, int64_t step) {
    if (!l->path) return;
    l->n = 0;
    add(l, "{\"step\": %" PRId64, step);
}

void log_number(Log *l, const char *name, double x) {
    if (!l->path) return;
    add_name(l, name);
    if (isfinite(x))
        add(l, "%.9g", x);
    else
        add(l, "null");
}

void log_whole(Log *l, const char *name, int64_t x) {
    if (!l->path) return;
    add_name(l, name);
    add(l, "%" PRId64, x);
}

void log_text(Log *l, const char *name, const char *text) {
    if (!l->path) return;
    add_name(l, name);
    add_text(l, text);
}

void log_end(Log *l) {
    if (!l->path || l->fd < 0) return;
    add(l, "}\n");
    if (sc_write_all(l->fd, l->line, l->n)) {
        l->size += (off_t)l->n;
        return;
    }
    sc_lose(SC_LOG, l->path, errno);
    if (ftruncate(l->fd, l->size) == 0) return;
    close(l->fd); /* of a pipe: what follows would stand behind half a line */
    l->fd = -1;
}

void printed(void) {
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return;
    sc_lose(SC_PRINTED, NULL, errno ? errno : EIO);
    __fpurge(stdout);
    clearerr(stdout);
}
