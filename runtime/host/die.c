/* Messages of the training program. All ranks may find the same mistake at once: the first to claim the shared flag
 * prints, the others wait until it has, then leave with the same code.
 * Relies on: a page that the ranks share (run.c).
 * Relied on by: everything in runtime/host. */
#include "die.h"
#include "../target.h"
#include "visible.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FREE, PRINTING, PRINTED, MAX_MESSAGE = 64 << 10 };

static const char *program = "shardc";
static _Atomic int *flag;
static bool silent;

void die_init(const char *name, void *page, bool speaks) {
    program = name;
    flag = page;
    silent = !speaks;
}

/* Names in weights and checkpoints are part of a message: what would move the cursor is escaped. */
static void put(const char *kind, const char *fmt, va_list ap) {
    static _Thread_local char text[MAX_MESSAGE + 1];
    int n = snprintf(text, MAX_MESSAGE, "%s: %s", program, kind);
    if (n < MAX_MESSAGE) n += vsnprintf(text + n, MAX_MESSAGE - (size_t)n, fmt, ap);
    if (n >= MAX_MESSAGE) memcpy(text + MAX_MESSAGE - 4, "...", 4);
    strcat(text, "\n");
    sc_put_visible(stderr, text, strlen(text));
}

_Noreturn static void leave(int code, const char *fmt, va_list ap) {
    const struct timespec pause = {0, 1000000};
    int expected = FREE;
    if (!flag || atomic_compare_exchange_strong(flag, &expected, PRINTING)) {
        fflush(stdout);
        put("", fmt, ap);
        if (flag) atomic_store(flag, PRINTED);
    } else { /* if this rank left before the printer is done, the launcher would end the printer */
        for (int i = 0; i < 2000 && atomic_load(flag) != PRINTED; i++) nanosleep(&pause, NULL);
    }
    exit(code);
}

#define LEAVE(code)                                                                                                    \
    va_list ap;                                                                                                        \
    va_start(ap, fmt);                                                                                                 \
    leave(code, fmt, ap)

_Noreturn void die(const char *fmt, ...) {
    LEAVE(EXIT_INPUT);
}
_Noreturn void die_usage(const char *fmt, ...) {
    LEAVE(EXIT_USAGE);
}
_Noreturn void die_check(const char *fmt, ...) {
    LEAVE(EXIT_CHECK);
}

void complain(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fflush(stdout);
    put("", fmt, ap);
    va_end(ap);
}

void note(const char *fmt, ...) {
    if (silent) return;
    va_list ap;
    va_start(ap, fmt);
    put("note: ", fmt, ap);
    va_end(ap);
}

void *need(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p) die("out of memory for %zu x %zu bytes of host buffers", n, size);
    return p;
}

char *need_text(const char *fmt, ...) {
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0) die("out of memory for a line of text");
    va_end(ap);
    return s;
}
