/* Writes the page of a run while it runs. A process of its own, of low priority, reads what rank 0 has added to
 * the log and writes the page under a temporary name, which is then renamed: the ranks do nothing for it, and a page is
 * always whole. It ends when all who hold its pipe have ended, however they did. Relies on: report.h, run_log.h,
 * file.h, die.
 * Relied on by: run. */
#include "report.h"
#include "../file.h"
#include "../page/run_log.h"
#include "die.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { ROWS = 4096, FIRST_MS = 200, BETWEEN_MS = 2000, SHARE = 20, NICE = 10 }; /* it takes a 20th of one processor */

typedef struct {
    const char *path;
    int fd; /* of the log */
    int64_t read;
    RunLog lines;
} Writer;

/* ── before the run ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
void report_check(const Run *run) {
    const Options *o = &run->o;
    struct stat st;
    if (stat(run->log, &st) == 0 && !S_ISREG(st.st_mode))
        die("--report: %s is not a regular file, and the page is made of the log; name a file with --log", run->log);
    if (stat(o->report, &st) == 0 && !S_ISREG(st.st_mode))
        die("cannot write the report %s: it is not a regular file; name another one with --report", o->report);
    int error = sc_aside_try(o->report);
    if (error) die("cannot write the report %s: %s; name another file with --report", o->report, strerror(error));
}

/* ── the writer ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void *more(void *context, void *old, size_t had, size_t wanted) {
    void *p = need(wanted, 1);
    if (had) memcpy(p, old, had);
    free(old);
    return p;
}

/* The lines that were added; false: there are none. Lines that are no log's, of a file that --resume found, are passed
 * over. */
static bool read_lines(Writer *w, int64_t end) {
    size_t n = (size_t)(end - w->read);
    if (end <= w->read) return false;
    char *text = need(n + 1, 1), why[200];
    if (!sc_read_at(w->fd, text, n, (uint64_t)w->read)) n = 0;
    for (char *line = text, *newline; (newline = memchr(line, '\n', (size_t)(text + n - line))); line = newline + 1) {
        *newline = 0;
        run_log_add(&w->lines, line, why);
    }
    free(text);
    w->read = end;
    return true;
}

static void write_page(Writer *w, bool going) {
    sc_aside a;
    sc_aside_open(&a, w->path, NULL);
    a.passing = going;
    FILE *f = sc_aside_print(&a);
    if (f) run_page_write(f, &w->lines, 1, NULL, 0, going);
    if (f) sc_aside_printed(&a, f);
    int error = sc_aside_commit(&a);
    if (error)
        sc_lose(SC_REPORT, w->path, error);
    else
        sc_regain(SC_REPORT);
}

_Noreturn static void write_pages(const Run *run, int pipe) {
    const Options *o = &run->o;
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}; /* the end of the run is the pipe's */
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    setpriority(PRIO_PROCESS, 0, NICE); /* the lowest would let it starve beside ranks that spin */
    Writer w = {.path = o->report, .fd = -1};
    w.lines = run_log_new(run->log, ROWS, (RunMemory){more, NULL});
    for (int wait = FIRST_MS; wait > 0;) {
        struct pollfd p = {pipe, POLLIN, 0};
        bool ended = poll(&p, 1, wait) > 0;
        int64_t logged = run->reached->logged;
        clock_t begin = clock(); /* of this process's own time */
        wait = logged < 0 ? FIRST_MS : BETWEEN_MS;
        if (logged >= 0 && w.fd < 0) w.fd = open(run->log, O_RDONLY | O_CLOEXEC);
        bool new = logged >= 0 && read_lines(&w, logged);
        if (new || (ended && w.read)) write_page(&w, !ended);
        wait = (int)fmax(wait, 1e3 * SHARE * (double)(clock() - begin) / CLOCKS_PER_SEC);
        if (ended) wait = 0;
    }
    _exit(0);
}

Reporter report_start(const Run *run) {
    int ends[2];
    fflush(NULL);
    pid_t pid = pipe2(ends, O_CLOEXEC) ? -1 : fork();
    if (pid < 0) die("no process for --report: %s; leave it out", strerror(errno));
    if (!pid) {
        close(ends[1]);
        write_pages(run, ends[0]);
    }
    close(ends[0]);
    return (Reporter){pid, ends[1]};
}

void report_end(Reporter *r) {
    if (!r->pid) return;
    close(r->alive);
    while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR) {}
    r->pid = 0;
}
