/* What a run prints while it trains. Without a terminal: about twenty lines a run, and one when there was none for
 * a second, two, four, in the end half a minute, plain. On one: twenty lines, and a live line.
 * Relies on: the C library. Relied on by: train. */
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

/* 12,345: digits in threes. */
static const char *grouped(double x, char out[32]) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%.0f", x), k = 0;
    for (int i = 0; i < n && k < 30; i++) {
        if (i && (n - i) % 3 == 0 && digits[i - 1] != '-') out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = 0;
    return out;
}

static const char *clock_text(double s, char out[32]) {
    long t = (long)(s + 0.5);
    if (t >= 3600)
        snprintf(out, 32, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, 32, "%ld:%02ld", t / 60, t % 60);
    return out;
}

static void print_line(const Bar *b, const BarStep *s) {
    char rate[32], left[32];
    printf("step %*lld/%lld  loss %-8.5g norm %-8.4g lr %.2e  %s %s  left %s",
           snprintf(NULL, 0, "%lld", (long long)b->last), (long long)s->step, (long long)b->last, s->loss, s->grad_norm,
           s->lr, grouped(s->per_second, rate), b->unit, clock_text(b->rate * (double)(b->last - s->step), left));
    if (s->scale > 0) printf("  scale %g%s", s->scale, s->skipped ? " (skipped)" : "");
}

static void print_bar(const Bar *b, int64_t step) {
    char bar[WIDTH + 1];
    double done = (double)(step - b->first + 1) / (double)(b->last - b->first + 1);
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)(done * WIDTH));
    bar[WIDTH] = 0;
    printf("  \033[36m%s\033[0m", bar);
}

void bar_clear(Bar *b) {
    if (b->live) printf("\r\033[K");
    b->live = false;
}

static bool stays(Bar *b, int64_t step, double now) {
    int64_t every = (b->last - b->first + LINES) / LINES;
    if (step == b->first || step == b->last || step % every == 0) return true;
    if (b->terminal || now - b->printed < b->gap) return false;
    b->gap = 2 * b->gap < LAST_SILENCE_S ? 2 * b->gap : LAST_SILENCE_S;
    return true;
}

void bar_step(Bar *b, const BarStep *s) {
    b->rate = b->rate > 0 ? 0.9 * b->rate + 0.1 * s->seconds : s->seconds;
    if (b->quiet) return;
    bar_clear(b);
    if (stays(b, s->step, s->now)) {
        b->printed = s->now;
        print_line(b, s);
        putchar('\n');
    } else if (b->terminal) {
        print_line(b, s);
        print_bar(b, s->step);
        b->live = true;
    } else {
        return;
    }
    fflush(stdout);
}
