/* Lines of a report that fit a terminal of 80 columns: a label, and pieces behind it that go on below each other.
 * Relies on: the C library. Relied on by: report/, cli/. */
#ifndef SHARDC_LINES_H
#define SHARDC_LINES_H

#include <stdbool.h>
#include <stdio.h>

enum { LINES_COLUMNS = 80 };

typedef struct {
    FILE *f;
    int from, column; /* where pieces begin, and where the next one would */
    bool next;        /* the next piece begins a line */
    bool some;        /* a piece stands in this line */
} Lines;

/* Prints a label, and blanks up to the column `from`; a label that is longer has a line of its own. */
Lines lines_open(FILE *f, int from, const char *label);
/* A piece stays whole where a line has room for it. Control characters in it are escaped. Blanks at its beginning part
 * it from the piece before it, and not from the margin. */
void lines_piece(Lines *l, const char *text);
void lines_item(Lines *l, const char *text); /* a piece that " ·" parts from the one before */
void lines_words(Lines *l,
                 const char *text);  /* each word is a piece; a newline begins a line, and several blanks stay */
void lines_next(Lines *l);           /* the next piece begins a line */
void lines_hang(Lines *l, int more); /* lines below begin so many columns further right */
void lines_close(Lines *l);
/* A label and words, from its line to the last. */
void lines_print(FILE *f, int from, const char *label, const char *text);
/* Words from the margin on; lines below begin at the column `below`. */
void lines_sentence(FILE *f, int below, const char *text);

#endif
