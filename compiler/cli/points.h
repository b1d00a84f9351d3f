/* Points: one model compiled with several values of some keys, side by side, and their figures as a table.
 * Relies on: cli.h, base/processes.h.
 * Relied on by: points.c, sweep.c, search.c, plan.c. */
#ifndef SHARDC_POINTS_H
#define SHARDC_POINTS_H

#include "cli.h"

/* world, nodes, device, budget, or one of the model's nn.options; and the values that it takes. */
typedef struct {
    const char *name, **values;
    int n;
} PointKey;

typedef enum {
    POINT_FULL,      /* as predict: planned where --budget says so */
    POINT_UNPLANNED, /* as the model is; --budget is a limit to compare with */
    POINT_PLANNED,   /* the fastest plan within --budget, or within what the device leaves */
    POINT_ESTIMATED  /* as the model is, with little effort for placement: steers a search, and is not printed */
} PointEffort;

/* Bytes of a rank's arenas and libraries, microseconds of a step and the share by which they may be off, tokens and
 * samples a second of one rank. */
typedef struct {
    int fits; /* 1, 0; -1: there is no limit to compare with */
    bool gpu;
    int64_t arena, host;
    double library, usable, step_us, exposed_us, time_off, mfu_full, mfu_causal;
    double tokens, samples; /* tokens 0: the inputs are none */
    unsigned overridden;    /* bit k: a policy file, or what was chosen, decides what key k is about */
} PointFigures;

typedef struct {
    const char **values; /* one for each key */
    const char *error;   /* why the point has no figures; NULL: it has */
    PointFigures is;
    const char *choice; /* policies of a planned point, for people; "" of others */
} SweepPoint;

typedef struct {
    const Options *o;
    const PointKey *keys;
    int nkeys;
    SweepPoint *at;
    int n;
} Points;

/* The options of one point. Ends in a usage error where a value of world, nodes or budget is none. */
Options points_options(Arena *a, const Points *p, const SweepPoint *x);
/* Compiles them all. A point that does not compile gets its message. A terminal gets a line of progress: what it
 * counts. */
void points_run(Arena *a, Points *p, PointEffort effort, const char *what);
double points_speed(const SweepPoint *x); /* tokens a second of one rank, or samples where there are no tokens */

void points_text(FILE *f, Arena *a, const Points *p);
void points_csv(FILE *f, Arena *a, const Points *p);
struct cJSON *points_json(Arena *a, const Points *p); /* a list */
const char *points_utf8(Arena *a, const char *text);  /* other bytes become U+FFFD: for JSON and XML */
void points_print_json(FILE *f, struct cJSON *o);     /* and deletes it */
const char *points_label(Arena *a, const Points *p, const SweepPoint *x,
                         int without); /* "seq=8 batch=2"; without: a key, or -1 */

#endif
