/* The logs of runs, a JSON object a line, as their page and their table show them: how each figure goes over the steps,
 * its first, last, lowest and highest value. A long log is kept in rows of several steps each.
 * Relies on: the C library. Relied on by: runtime/host/report.c (--report), compiler/report/runs.c (shardc report). */
#ifndef SC_RUN_LOG_H
#define SC_RUN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Where memory comes from: `wanted` zeroed bytes that begin with the `had` bytes of `old`. It never returns NULL. */
typedef struct {
    void *(*more)(void *context, void *old, size_t had, size_t wanted);
    void *context;
} RunMemory;

/* The values of a figure in one row. n == 0: none. */
typedef struct {
    double sum, low, high;
    int64_t n;
} RunCell;

typedef struct {
    char *name;     /* UTF-8 */
    RunCell *cells; /* one a row of the table */
    int64_t n;      /* values; lines that say null have none */
    double first, last, low, high;
    int64_t first_step, last_step, low_step, high_step;
    bool last_null; /* the last line that names it says null: it was infinite or NaN */
    double *all;    /* every value, of figures whose median is asked for; else NULL */
    size_t all_cap;
} RunColumn;

/* What every line has, whatever its names: the first columns of a table. */
enum { RUN_STEP, RUN_TIME, RUN_POSITION, RUN_X };

typedef struct {
    RunColumn *columns; /* RUN_X of them first */
    int n, cap;
    int64_t lines, width; /* of the log; and how many of them are in a row */
    int rows, rows_cap;
} RunTable;

/* What a class of storages holds of the arena at its peak. */
typedef struct {
    char *name;
    double bytes;
} RunClass;

/* What a run was given: "lr", "batch", "option precision". */
typedef struct {
    char *name, *text; /* as people read it */
} RunSetting;

/* How the program was started: the first time, or to go on from a saved state. */
typedef struct {
    int64_t step; /* done before */
    char *model, *target, *started;
    double world, steps;           /* steps: it was asked to reach */
    double predicted_s;            /* a step, as `shardc predict` says; 0: not known */
    double arena, allocated, host; /* bytes on each rank: as predicted, as allocated; of the host's arena */
    double usable;                 /* bytes of the device, for one process; 0: not known */
    double epoch;                  /* tokens or samples of a pass over the data; 0: not known */
    RunClass *peak;                /* as predicted */
    int npeak, peak_cap;
    RunSetting *settings; /* in the log's order; none: the log is older than this */
    int nsettings, settings_cap;
} RunStart;

typedef struct {
    char *name;
    RunMemory memory;
    int limit; /* rows of a table at most; even */
    RunTable steps, validations;
    RunStart *starts;
    int nstarts, starts_cap;
    double seconds;                       /* of all steps and validations */
    double position;                      /* tokens, or samples, seen */
    bool samples;                         /* position counts samples */
    double device_predicted, device_used; /* bytes of a GPU's process; 0: not known */
    int64_t last_step;                    /* that any line names; -1: none */
    char *key;                            /* of the line being read */
    size_t key_cap;
} RunLog;

/* limit: rows that each table may have; a longer log has several steps a row. */
RunLog run_log_new(const char *name, int limit, RunMemory memory);
/* One line, NUL at its end, with or without a newline. false: `why` says what is wrong with it, without a full stop. */
bool run_log_add(RunLog *l, const char *line, char why[200]);
const RunColumn *run_log_column(const RunTable *t, const char *name); /* NULL: none */
double run_log_median(const RunColumn *c);                            /* of a column that keeps all; NaN: none */
/* Starts after the first line's: the run went on from a state that was saved. A log may begin with one. */
int run_log_restarts(const RunLog *l);
const char *run_log_setting(const RunStart *s, const char *name); /* NULL: it does not say */
static inline bool run_log_is_restart(const RunLog *l, int k) {
    return k > 0 || l->starts[k].step > 0;
}

/* What the ops of a step took and were predicted to take, of one traced program. */
typedef struct {
    const char *name;
    double events, predicted_us, actual_us;
    double error; /* share of what all events differ by */
} RunOp;
typedef struct {
    const char *title;
    const RunOp *ops;
    int n;
} RunTrace;

/* The page of these logs, and of so many traces. going: a program still writes the log, and the page will be replaced
 * by a later one. */
void run_page_write(FILE *f, const RunLog *logs, int n, const RunTrace *traces, int ntraces, bool going);

#endif
