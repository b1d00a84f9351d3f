/* The one way out on bad input: a message at the user's line, no half-written file left behind, exit 1 (2 for usage).
 * Relies on: the C library; the list of temporary files that file.c keeps here.
 * Relied on by: everything in compiler/. */
#include "diagnostics.h"
#include "visible.h"

#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_TEMPS = 64, MAX_NAME = 63, MAX_MESSAGE = 64 << 10 };
static const char *temps[MAX_TEMPS];

void temp_register(const char *path) {
    for (int i = 0; i < MAX_TEMPS; i++)
        if (!temps[i]) {
            temps[i] = path;
            return;
        }
}

void temp_forget(const char *path) {
    for (int i = 0; i < MAX_TEMPS; i++)
        if (temps[i] == path) temps[i] = NULL;
}

void temp_remove(void) {
    for (int i = 0; i < MAX_TEMPS; i++)
        if (temps[i]) unlink(temps[i]);
}

void temp_leave(void) {
    memset(temps, 0, sizeof temps);
}

/* The message may quote the user's files, so it is printed with control characters made visible. */
static void say(Source at, const char *kind, const char *fmt, va_list ap) {
    static char text[MAX_MESSAGE + 1];
    char line[16] = "";
    if (at.file && at.line > 0) snprintf(line, sizeof line, ":%d", at.line);
    int n = snprintf(text, MAX_MESSAGE, "%s%s: %s", at.file ? at.file : "shardc", line, kind);
    if (n < MAX_MESSAGE) n += vsnprintf(text + n, MAX_MESSAGE - (size_t)n, fmt, ap);
    if (n >= MAX_MESSAGE) memcpy(text + MAX_MESSAGE - 4, "...", 4);
    fflush(stdout);
    strcat(text, "\n");
    sc_put_visible(stderr, text, strlen(text));
}

static bool silent;

void remark_enable(bool on) {
    silent = !on;
}

void remark(Source at, const char *fmt, ...) {
    va_list ap;
    if (silent) return;
    va_start(ap, fmt);
    say(at, "note: ", fmt, ap);
    va_end(ap);
}

_Noreturn static void die(int code, Source at, const char *fmt, va_list ap) {
    say(at, "", fmt, ap);
    temp_remove();
    exit(code);
}

void vfail(Source at, const char *fmt, va_list ap) {
    die(1, at, fmt, ap);
}

void fail(Source at, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    die(1, at, fmt, ap);
}

void fail_usage(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    die(2, NOWHERE, fmt, ap);
}

void bug(Source at, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fail(at, "internal error: %s; this is a defect of shardc: please report it with the model", text);
}

/* Edit distance with transpositions (optimal string alignment), ignoring case. Three rows of the table are enough. */
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b), row[3][MAX_NAME + 1];
    for (int j = 0; j <= m; j++) row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *before = row[(i + 2) % 3], *two = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            int d = before[j - 1] + (x != y);
            if (before[j] + 1 < d) d = before[j] + 1;
            if (now[j - 1] + 1 < d) d = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]) &&
                two[j - 2] + 1 < d)
                d = two[j - 2] + 1;
            now[j] = d;
        }
    }
    return row[n % 3][m];
}

const char *str_nearest(const char *name, const char *const *candidates, int n) {
    size_t len = strlen(name);
    if (len > MAX_NAME) return NULL;
    int best = len <= 3 ? 2 : len <= 6 ? 3 : 4; /* one more than the largest distance that counts as near */
    const char *found = NULL;
    for (int i = 0; i < n; i++) {
        size_t other = strlen(candidates[i]);
        size_t apart = other > len ? other - len : len - other;
        if (other > MAX_NAME || apart >= (size_t)best) continue;
        int d = distance(name, candidates[i]);
        if (d < best && d < (int)other) best = d, found = candidates[i];
    }
    return found;
}
