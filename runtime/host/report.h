/* --report: the page of a run, written anew from its log while the run goes on, by a process of its own.
 * Relies on: run.h; page/run_log.h.
 * Relied on by: run. */
#ifndef HOST_REPORT_H
#define HOST_REPORT_H

#include "run.h"
#include <sys/types.h>

typedef struct {
    pid_t pid; /* 0: none */
    int alive; /* while this end of a pipe is open, here or in a rank, the run goes on; -1: none */
} Reporter;

/* Before ranks start: dies where the page, or a page of this log, cannot be made. */
void report_check(const Run *run);
/* Starts the process, before the ranks are forked. It reads the lines that rank 0 says are whole (Reached.logged). */
Reporter report_start(const Run *run);
void report_end(Reporter *r); /* after the ranks have ended: waits for the last page */

#endif
