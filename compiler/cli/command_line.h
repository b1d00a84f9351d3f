/* The command line as it is read: which commands there are, which options each takes, what was given.
 * Relies on: cli.h, manual.h, glibc's argp. Relied on by: command_line.c, main.c, which has the table of commands. */
#ifndef SHARDC_COMMAND_LINE_H
#define SHARDC_COMMAND_LINE_H

#include "cli.h"
#include "manual.h"

enum {
    BUILD = 1 << 0,
    RUN = 1 << 1,
    PREDICT = 1 << 2,
    INSPECT = 1 << 3,
    VERIFY = 1 << 4,
    DATA = 1 << 5,
    CALIBRATE = 1 << 6,
    PLAN = 1 << 7,
    PACK = 1 << 8,
    DIFF = 1 << 9,
    EXPLAIN = 1 << 10,
    RUNS = 1 << 11,
    SHELL = 1 << 12,
    MAN = 1 << 13,
    IMPORT = 1 << 14,
    DOCTOR = 1 << 15,
    ALL = (1 << 12) - 1, /* that compile, read or write something */
    EVERY = (1 << 16) - 1,
    COMPILE = ALL & ~(DATA | RUNS),
    REPORT = PREDICT | INSPECT | VERIFY
};

typedef struct {
    unsigned bit;
    const char *name, *args, *doc;
    int least, most; /* inputs */
    int (*run)(Arena *a, const Options *o);
} Command;

/* What was given to a command, as its options. Of diff A --vs B: those of A, whose vs are those of B. */
const Options *command_line_read(Arena *a, const Command *c, int argc, char **argv);

/* The table of options; commands: by whose bits each says which take it. */
const ManualOption *command_line_options(Arena *a, const Command *commands, int n, int *count);

#endif
