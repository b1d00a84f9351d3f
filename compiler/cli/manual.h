/* What the command line has, for who writes it down: the manual page, completions for shells.
 * Relies on: base. Relied on by: command_line.h, main.c, which fills it. */
#ifndef SHARDC_MANUAL_H
#define SHARDC_MANUAL_H

#include "../base/base.h"

typedef struct {
    const char *name, *args, *doc; /* doc: what it does, and behind \v examples */
} ManualCommand;

typedef struct {
    char letter;            /* 0: none */
    const char *name, *arg; /* arg NULL: it takes none */
    const char *doc;
    const char *const *words; /* what the argument may be; NULL: anything */
    bool optional;            /* the argument may be left out */
    unsigned commands;        /* bit i: command i takes it */
} ManualOption;

typedef struct {
    const ManualCommand *commands;
    int ncommands;
    const ManualOption *options;
    int noptions;
} Manual;

void manual_page(FILE *f, const Manual *m);                                     /* roff, for man(1) */
void manual_completions(FILE *f, Arena *a, const Manual *m, const char *shell); /* fails for a shell it has none for */

#endif
