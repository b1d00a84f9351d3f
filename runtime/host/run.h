/* A run: what is opened and checked once, before any rank starts, and then shared by all.
 * Relies on: args, loader, checkpoint, weights.
 * Relied on by: main, train, the tests. */
#ifndef HOST_RUN_H
#define HOST_RUN_H

#include "args.h"
#include "checkpoint.h"
#include "export.h"
#include "loader.h"
#include "sample.h"
#include "schedule.h"

/* How far the ranks have come, for who outlives them: in memory shared with them. */
typedef struct {
    _Atomic int64_t done, saved; /* by rank 0: steps; the step of the last save, -1: none */
    _Atomic int64_t logged;      /* bytes of whole lines in the log; -1: it is not open yet */
    _Atomic int stopped;         /* the signal that they have heeded; 0: none */
} Reached;

typedef struct {
    const sc_build *b;
    Options o;
    TokenSet train, val; /* n == 0: none */
    Records *records;    /* NULL: token files */
    Checkpoint *resume;
    Weights *weights;
    Reached *reached;
    int held;      /* keeps other runs from --save's folder, see saver_hold; -1: not here */
    char *best;    /* the folder of --keep-best; NULL: none */
    char *log;     /* rank 0's; NULL: none */
    char *given;   /* settings_text, for the states that are saved */
    Prompt prompt; /* of --sample */
    Schedule schedule;
    uint64_t seed;
    int64_t first, position, tokens; /* before this run: steps done, samples and tokens seen */
    int64_t global_batch;            /* samples a step */
    int64_t val_windows;             /* a validation: the first of them */
} Run;

int program_named(const sc_build *b, const char *name); /* -1: none */
int train_rank(sc_rank *r, void *run);                  /* what every rank does; train.c */
int host_main(const sc_build *b, int argc, char **argv);

#endif
