/* Jobs run side by side, each in a process of its own: a job that fails ends itself, not the command.
 * Relies on: base.
 * Relied on by: planner/evaluate.c, cli/. */
#ifndef SHARDC_PROCESSES_H
#define SHARDC_PROCESSES_H

#include "base.h"

/* Runs in a process that has a copy of this one's memory. What it writes to `result` is all that comes back; what it
 * prints on standard output is lost. It may end by fail. */
typedef void ProcessJob(const void *context, int job, FILE *result);

typedef struct {
    bool done;      /* the job returned; false: it failed, and there is no result */
    const char *at; /* `n` bytes, of any kind */
    size_t n;
    const char *said; /* what it printed on standard error, without the last line's end; "" if nothing */
    int signal;       /* that ended it; 0: none */
} ProcessResult;

/* Called whenever a job has ended: so many of so many. */
typedef void ProcessProgress(void *context, int ended, int n);

/* Runs jobs 0 to n - 1, as many at once as there are processors; out[i] is of job i. progress may be NULL. */
void processes_run(Arena *a, ProcessJob *job, const void *context, int n, ProcessResult *out, ProcessProgress *progress,
                   void *progress_context);

#endif
