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
    int wide = columns_of(label, strlen(label));
    sc_put_visible(f, label, strlen(label));
    if (wide > from) fputc('\n', f);
    fprintf(f, "%*s", wide > from ? from : from - wide, "");
    return (Lines){f, from, from, false, false};
}

void lines_next(Lines *l) {
    l->next = l->some;
}

void lines_hang(Lines *l, int more) {
    l->from += more;
}

static void put(Lines *l, const char *text, size_t n, int blanks, int room) {
    int wide = columns_of(text, n);
    if (l->next || (l->some && l->column + blanks + wide > room)) {
        fprintf(l->f, "\n%*s", l->from, "");
        l->column = l->from;
        l->next = l->some = false;
    }
    if (l->some) l->column += fprintf(l->f, "%*s", blanks, "");
    sc_put_visible(l->f, text, n);
    l->column += wide;
    l->some = true;
}

void lines_words(Lines *l, const char *text) {
    while (*text) {
        int blanks = (int)strspn(text, " ");
        text += blanks;
        size_t n = strcspn(text, " \n");
        if (n) put(l, text, n, blanks ? blanks : 1, LINES_COLUMNS);
        text += n;
        if (*text == '\n') lines_next(l), text++;
    }
}

static void piece(Lines *l, const char *text, int room) {
    int blanks = (int)strspn(text, " ");
    text += blanks;
    size_t n = strlen(text);
    if (l->from + columns_of(text, n) > room)
        lines_words(l, text);
    else
        put(l, text, n, blanks + 1, room);
}

void lines_piece(Lines *l, const char *text) {
    piece(l, text, LINES_COLUMNS);
}

void lines_item(Lines *l, const char *text) {
    if (l->some && !l->next) {
        fputs(" ·", l->f);
        l->column += SEPARATOR;
    }
    piece(l, text, LINES_COLUMNS - SEPARATOR);
}

void lines_close(Lines *l) {
    fputc('\n', l->f);
}

void lines_sentence(FILE *f, int below, const char *text) {
    Lines l = lines_open(f, 0, "");
    lines_hang(&l, below);
    lines_words(&l, text);
    lines_close(&l);
}

void lines_print(FILE *f, int from, const char *label, const char *text) {
    Lines l = lines_open(f, from, label);
    lines_words(&l, text);
    lines_close(&l);
}
