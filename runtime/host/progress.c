/* What a run prints while it trains: about twenty lines. A terminal gets a live line besides; without one a line is
 * also printed after a silence of a second, then of two, of four, in the end of half a minute. Relies on: the C
 * library. Relied on by: train. */
#include "progress.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 20, WIDTH = 20, FIRST_SILENCE_S = 1, LAST_SILENCE_S = 30 };

Bar bar_new(bool quiet, int64_t first, int64_t last, const char *unit) {
    return (Bar){.quiet = quiet,
                 .terminal = isatty(STDOUT_FILENO),
                 .first = first,
                 .last = last,
                 .unit = unit,
                 .gap = FIRST_SILENCE_S};
}

const char *grouped(double x, char out[32]) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%.0f", x), k = 0;
    for (int i = 0; i < n && k < 30; i++) {
        if (i && (n - i) % 3 == 0 && digits[i - 1] != '-') out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = 0;
    return out;
}

static void print_line(const Bar *b, const BarStep *s) {
    char rate[32], left[32];
    long t = (long)(b->rate * (double)(b->last - s->step) + 0.5);
    if (t >= 3600)
        snprintf(left, sizeof left, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(left, sizeof left, "%ld:%02ld", t / 60, t % 60);
    printf("step %*lld/%lld  loss %-8.5g norm %-8.4g lr %.2e  %s %s  left %s",
           snprintf(NULL, 0, "%lld", (long long)b->last), (long long)s->step, (long long)b->last, s->loss, s->grad_norm,
           s->lr, grouped(s->per_second, rate), b->unit, left);
    if (s->scale > 0) printf("  scale %g%s", s->scale, s->skipped ? " (skipped)" : "");
}

void bar_clear(Bar *b) {
    if (b->live) printf("\r\033[K");
    b->live = false;
}

void bar_step(Bar *b, const BarStep *s) {
    b->rate = b->rate > 0 ? 0.9 * b->rate + 0.1 * s->seconds : s->seconds;
    if (b->quiet) return;
    bar_clear(b);
    int64_t every = (b->last - b->first + LINES) / LINES;
    bool due = s->step == b->first || s->step == b->last || s->step % every == 0;
    bool silent = !due && !b->terminal && s->now - b->printed >= b->gap;
    if (!due && !silent && !b->terminal) return;
    if (silent) b->gap = 2 * b->gap < LAST_SILENCE_S ? 2 * b->gap : LAST_SILENCE_S;
    print_line(b, s);
    if (due || silent) { /* a line that stays */
        b->printed = s->now;
        putchar('\n');
    } else {
        char bar[WIDTH + 1];
        double done = (double)(s->step - b->first + 1) / (double)(b->last - b->first + 1);
        memset(bar, '.', WIDTH);
        memset(bar, '#', (size_t)(done * WIDTH));
        bar[WIDTH] = 0;
        printf("  \033[36m%s\033[0m", bar);
        b->live = true;
    }
    fflush(stdout);
}
