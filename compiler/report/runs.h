/* Runs, from their logs: as text and as JSON. Their page is in runtime/page/.
 * Relies on: runtime/page/run_log.h.
 * Relied on by: cli/report.c. */
#ifndef SHARDC_RUNS_H
#define SHARDC_RUNS_H

#include "../base/base.h"
#include "page/run_log.h"

/* The log of that file, in rows of several steps where it has more than `limit` (run_log_new). Fails with file and line
 * where it is no log, or empty. */
RunLog runs_read(Arena *a, const char *path, int limit);
void runs_text(Arena *a, FILE *f, const RunLog *logs, int n);
void runs_json(Arena *a, FILE *f, const RunLog *logs, int n);

#endif
