/* What people read: predictions, schedules and findings as text or JSON.
 * Relies on: plan.h, verify.h.
 * Relied on by: cli/, the tests. */
#ifndef SHARDC_REPORT_H
#define SHARDC_REPORT_H

#include "../plan/plan.h"
#include "../verify/verify.h"

/* What a line of `inspect` says of an event beside its id. */
typedef enum {
    COL_STREAM,
    COL_PURPOSE,
    COL_OP,
    COL_PHASE,
    COL_MODULE,
    COL_READS,
    COL_WRITES,
    COL_ADDRESS, /* of what is read and written */
    COL_SIZE,    /* of what is read and written */
    COL_WAITS,
    COL_WHY, /* of each wait, its reasons */
    COL_TIME,
    COL_SOURCE,
    N_COLUMNS
} Column;
const char *report_column(Column c);
/* For people and for diff: neither address nor time, which change at every line when one event moves, nor reasons,
 * which are long, nor the purpose,
 * which stream and op mostly tell. */
enum {
    COLUMNS_ALL = (1u << N_COLUMNS) - 1,
    COLUMNS_DEFAULT = COLUMNS_ALL & ~(1u << COL_PURPOSE | 1u << COL_ADDRESS | 1u << COL_WHY | 1u << COL_TIME)
};
typedef struct {
    const char *program, *module, *stream; /* inspect: filters, NULL: all */
    unsigned columns;                      /* a bit a Column */
    int terminal;      /* columns of the terminal that a table is for; 0: lines, the same everywhere */
    const char *hides; /* what is said below a table that leaves columns out; NULL: nothing */
} ReportOptions;

/* predict --by, --at: who holds what at one moment of a program. */
typedef enum { BY_NOTHING, BY_MODULE, BY_UNIT, BY_STORAGE } Holding;
typedef struct {
    int program, event; /* event -1: before the first; program -1: there is none */
    bool peak;          /* asked for as the peak */
} Moment;
Moment report_moment(const Plan *p,
                     const char *at); /* "peak" or NULL, "forward": the end of micro's, an event of micro */
void report_holders_text(FILE *f, const Plan *p, Moment m, Holding by);

void report_predict_text(FILE *f, const Plan *p, Moment m, bool color);
/* How long training on so many tokens takes, and what it costs at `price` for a device's hour (0: not asked). */
void report_training_text(FILE *f, const Plan *p, double tokens, double price);
/* Where a plan does not fit. Bytes of the device's arena, microseconds of a step. */
typedef struct {
    const char *command;  /* plans the fastest that fits; NULL: there is none, or it is not known */
    int64_t arena, least; /* the planned arena; where no plan fits the smallest found, 0: not known */
    double step_us;
    bool batch;      /* the model has an option of that name, */
    int64_t largest; /* and this one fits as the model is; 0: none does */
} Advice;
void report_advice_text(FILE *f, const Plan *p, const Advice *x);
void report_predict_json(FILE *f, const Plan *p, const Advice *x); /* x NULL: it fits */
void report_printable(FILE *f, const char *s);                     /* control characters as ? */
const char *report_target(const Plan *p);                          /* "cpu", "cuda (h200)" */
/* The policy files over the model's own policies, what each changes, and the options that no longer say what holds:
 * "8b.lua: recompute, offload; in place of offload=none recompute=none". "": there are none. */
const char *report_policies(const Plan *p);
void report_event_line(Str *s, const Plan *p, const PlanProgram *g, const Event *e,
                       const ReportOptions *o);            /* adds the line that `inspect` prints of it, end included */
bool report_wants(const ReportOptions *o, const Event *e); /* by its filters */
/* "h.0/master:100.0KiB z1.grads+0x100:64B" */
void report_accesses(Str *s, const Plan *p, const ReportOptions *o, const Access *x, int n);
/* A header and a row an event, no wider than o->terminal where that leaves each column 10. */
void report_events_table(FILE *f, const Plan *p, const PlanProgram *g, const ReportOptions *o);
void report_inspect_text(FILE *f, const Plan *p, const ReportOptions *o);
/* Chrome's JSON trace format, which Perfetto reads: programs as processes, streams as threads, waits as flows, live
 * bytes of the device arena by class as counters. Times are the predicted ones. */
void report_trace(FILE *f, const Plan *p);
void report_findings_text(FILE *f, const Plan *p, const Findings *v);
void report_times_text(FILE *f, const Plan *p, const Findings *late); /* of training programs; bounds that they miss */
void report_findings_json(FILE *f, const Plan *p, const Findings *v, const Findings *late);
/* Where a plan's times come from and how far off they may be: "measured kernels, ±5 %"; "": not known. */
const char *report_trust(Arena *a, const Plan *p);
void report_tasks(FILE *f, const Plan *p); /* its kernels, for sc_calibrate; not of a plan read from JSON */

#endif
