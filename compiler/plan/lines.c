/* Pieces of text put into lines of 80 columns.
 * Relies on: lines.h, runtime/visible.h. Relied on by: report/, cli/. */
#include "lines.h"

#include "visible.h"

#include <string.h>

enum { SEPARATOR = 2 }; /* columns of " ·" */

static int columns_of(const char *s, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)s[i] & 0xc0) != 0x80;
    return columns;
}

Lines lines_open(FILE *f, int from, const char *label) {
    fprintf(f, "%-*s", from, label);
    return (Lines){f, from, from, false};
}

void lines_next(Lines *l) {
    l->next = l->column > l->from;
}

static void put(Lines *l, const char *text, size_t n, int room) {
    int wide = columns_of(text, n);
    if (l->next || (l->column > l->from && l->column + 1 + wide > room)) {
        fprintf(l->f, "\n%*s", l->from, "");
        l->column = l->from;
        l->next = false;
    }
    if (l->column > l->from) l->column += fprintf(l->f, " ");
    sc_put_visible(l->f, text, n);
    l->column += wide;
}

void lines_words(Lines *l, const char *text) {
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (n) put(l, text, n, LINES_COLUMNS);
        if (text[n] == '\n') lines_next(l);
        text += n + (text[n] != 0);
    }
}

static void piece(Lines *l, const char *text, int room) {
    size_t n = strlen(text);
    if (l->from + columns_of(text, n) > room)
        lines_words(l, text);
    else
        put(l, text, n, room);
}

void lines_piece(Lines *l, const char *text) {
    piece(l, text, LINES_COLUMNS);
}

void lines_item(Lines *l, const char *text) {
    if (l->column > l->from && !l->next) {
        fputs(" ·", l->f);
        l->column += SEPARATOR;
    }
    piece(l, text, LINES_COLUMNS - SEPARATOR);
}

void lines_close(Lines *l) {
    fputc('\n', l->f);
}
