/* What a run prints while it trains: about twenty lines. A terminal gets a live line besides; without one a line is
 * also printed after a silence of a second, then of two, of four, in the end of half a minute.
 * Relies on: visible.h, die. Relied on by: train. */
#include "progress.h"
#include "../visible.h"
#include "die.h"
#include "log.h"
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINES = 20, FIRST_SILENCE_S = 1, LAST_SILENCE_S = 30 };
enum { WIDE_BAR = 20, BAR = 10, WIDE_TERMINAL = 110, USUAL_TERMINAL = 80 }; /* columns */
enum { NAME_COLUMNS = 24, METRICS_SHOWN = 8 };

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

/* ── the pieces of a line ────────────────────────────────────────────────────────────────────────────────────────────
 * A live line is taken back by a carriage return, so it must not be longer than the terminal is wide. */
typedef struct {
    char text[128];
    int columns; /* that it takes at most */
    int rank;    /* where not all pieces fit, those of a lower rank come first */
    bool fits;
} Piece;

typedef struct {
    Piece pieces[METRICS_SHOWN + 9];
    int n;
} Line;

__attribute__((format(printf, 3, 4))) static Piece *add(Line *l, int rank, const char *fmt, ...) {
    Piece *p = &l->pieces[l->n++];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(p->text, sizeof p->text, fmt, ap);
    va_end(ap);
    p->columns = n < (int)sizeof p->text ? n : (int)sizeof p->text - 1;
    p->rank = rank;
    return p;
}

/* Line and paragraph separators, and characters that turn the direction of what follows: U+2028 to U+202E, U+2066 to
 * U+2069. */
static bool moves_text(const unsigned char *s) {
    return s[0] == 0xe2 &&
           ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) || (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
}

/* A name as a line can hold it, of NAME_COLUMNS columns at most. A character that is not ASCII counts as two columns.
 * What is no character, or would move the cursor or other text, becomes a question mark. Returns the columns. */
static int short_name(const char *name, char out[4 * NAME_COLUMNS]) {
    const unsigned char *s = (const unsigned char *)name;
    size_t n = 0, cut = 0;
    int columns = 0, cut_columns = 0; /* where "…" would still fit */
    for (size_t left = strlen(name), length; left; s += length, left -= length) {
        length = sc_visible_character(s, left);
        bool odd = !length || *s == '\n' || *s == '\t' || (length == 3 && moves_text(s));
        int wide = length > 1 && !odd ? 2 : 1;
        if (columns + wide > NAME_COLUMNS) {
            strcpy(out + cut, "…");
            return cut_columns + 2;
        }
        if (odd)
            out[n++] = '?';
        else
            memcpy(out + n, s, length), n += length;
        columns += wide;
        if (columns <= NAME_COLUMNS - 2) cut = n, cut_columns = columns;
        length += !length;
    }
    out[n] = 0;
    return columns;
}

/* Without the sign that a NaN may have. */
static double figure(double x) {
    return isnan(x) ? fabs(x) : x;
}

static void add_metrics(Line *l, const BarStep *s) {
    for (int i = 0; i < s->nmetrics && i < METRICS_SHOWN; i++) {
        char name[4 * NAME_COLUMNS];
        int columns = short_name(s->metrics[i].name, name);
        Piece *p = add(l, 3, "  %s %.4g", name, figure(s->metrics[i].value));
        p->columns += columns - (int)strlen(name);
    }
    if (s->nmetrics > METRICS_SHOWN) add(l, 3, "  and %d more", s->nmetrics - METRICS_SHOWN);
}

/* room: columns. live: with a bar. */
static void print_line(const Bar *b, const BarStep *s, int room, bool live) {
    char rate[32], left[32], bar[WIDE_BAR + 1] = "";
    Line l = {0};
    long t = (long)(b->rate * (double)(b->last - s->step) + 0.5);
    if (t >= 3600)
        snprintf(left, sizeof left, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(left, sizeof left, "%ld:%02ld", t / 60, t % 60);
    int digits = snprintf(NULL, 0, "%lld", (long long)b->last);
    add(&l, 0, "step %*lld/%lld", digits, (long long)s->step, (long long)b->last);
    add(&l, 0, "  loss %-8.5g", figure(s->loss));
    add(&l, 4, " norm %-8.4g", figure(s->grad_norm));
    add(&l, 4, " lr %.2e", s->lr);
    add(&l, 2, "  %s %s", grouped(s->per_second, rate), b->unit);
    add(&l, 0, "  left %s", left);
    if (s->scale > 0) add(&l, 4, "  scale %g%s", s->scale, s->skipped ? " (skipped)" : "");
    add_metrics(&l, s);
    if (live) {
        int width = room >= WIDE_TERMINAL ? WIDE_BAR : BAR;
        double done = (double)(s->step - b->first + 1) / (double)(b->last - b->first + 1);
        memset(bar, '.', (size_t)width);
        memset(bar, '#', (size_t)(done * width));
        add(&l, 1, "  %s", bar);
    }
    for (int rank = 0; rank <= 4; rank++)
        for (Piece *p = l.pieces; p < l.pieces + l.n; p++)
            if (p->rank == rank && p->columns <= room) {
                p->fits = true;
                room -= p->columns;
            }
    for (Piece *p = l.pieces; p < l.pieces + l.n; p++) {
        bool coloured = p->rank == 1;
        if (p->fits) printf("%s%s%s", coloured ? "\033[36m" : "", p->text, coloured ? "\033[0m" : "");
    }
}

static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL_TERMINAL;
}

/* ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
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
    b->live = !due && !silent;
    print_line(b, s, b->live ? terminal_columns() - 1 : INT_MAX, b->live);
    if (!b->live) { /* a line that stays */
        b->printed = s->now;
        putchar('\n');
    }
    printed();
}
