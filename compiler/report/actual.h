/* A run beside its plan: what a program's --trace says, joined to the plan's events by program and id.
 * Relies on: device.h.
 * Relied on by: actual_print.c, page.c, profile.c, cli/inspect.c, cli/report.c, cli/calibrate.c. */
#ifndef SHARDC_ACTUAL_H
#define SHARDC_ACTUAL_H

#include "../devices/device.h"

/* Times are microseconds, and medians over all runs of the program on all ranks. */
typedef struct {
    double us;               /* how long it took; of a collective from when its last rank arrived */
    double begin_us, end_us; /* since the program's first event on that rank; in a collective a rank waits for others */
} ActualEvent;

typedef struct {
    int runs;            /* on each rank; 0: it did not run, and events is NULL */
    double share;        /* how often a step runs it, or 1 where no step is looked at; 0: it is not looked at */
    double us;           /* from its first event to the end of its last one, on the rank that takes longest */
    ActualEvent *events; /* as PlanProgram.events */
} ActualProgram;

/* Sums over the events of a step that have something in common. */
typedef struct {
    const char *name;
    double events, predicted_us, actual_us;
    double error_us; /* sum of what single events differ by, whatever the sign */
} ActualRow;
typedef VEC(ActualRow) ActualRows;

/* Of a rank, in a step. */
typedef struct {
    double step_us;       /* in programs */
    double compute_us;    /* of its events on the compute stream */
    double collective_us; /* in collectives, */
    double waiting_us;    /* and of that for ranks that arrive later */
    int last;             /* in how many collectives of all steps it arrived last */
} ActualRank;

typedef struct {
    int program, event;
    double predicted_us, actual_us; /* of one run of the program */
    double error_us;                /* of a step: actual less predicted */
} ActualError;

typedef struct {
    const Plan *plan;
    const char *files;              /* as given */
    int64_t first_step, last_step;  /* of training; last_step < first_step: it ran no step */
    ActualProgram *programs;        /* as Plan.programs */
    double predicted_us, actual_us; /* of a step; of the programs that are looked at, where no step is */
    double predicted_compute_us;    /* of that on the compute stream */
    double actual_compute_us;       /* the same of the rank whose step takes longest */
    double median_compute_us;       /* sum of the medians of its single events: less, where few events hold a step up */
    double between_us;              /* from a step's last event to the next step's first; -1: not known */
    double gap_us; /* between two events of the compute stream of which the second waits for nothing else */
    double error_us;
    ActualRows by_op, by_phase;
    VEC(ActualError) errors; /* of all events, the largest first */
    VEC(ActualError) idles;  /* the same of the time for which the compute stream stands still before an event */
    ActualRank *ranks;       /* as many as the plan's world */
    int collectives;         /* that had a last rank, in all steps */
} Actual;

/* files: paths with commas between them, which hold all ranks of one run. program: what is looked at; NULL: training,
 * or all that ran where nothing was trained. A file that is none, is cut off or is of another plan ends in a message
 * that names file and line. */
Actual *actual_read(const Plan *p, const char *files, const char *program);

void actual_text(FILE *f, const Actual *x);
void actual_json(FILE *f, const Actual *x);

/* A device profile in Lua: the text of d's, then what the run took in place of what d says of the same kernels. The
 * plan must come from a model, not from JSON, for only its ops say what else a kernel's time depends on. */
void actual_profile(FILE *f, const Actual *x, const Device *d, const char *name, const char *text, size_t n);

#endif
