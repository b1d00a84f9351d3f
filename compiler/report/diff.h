/* What differs between two plans: figures, who holds the peak, where time goes, single events and storages.
 * Relies on: plan.h.
 * Relied on by: diff_text.c, diff_json.c, diff_page.c, diff_bounds.c, cli/diff.c. */
#ifndef SHARDC_DIFF_H
#define SHARDC_DIFF_H

#include "../plan/plan.h"

/* What is true of an event that differs; several may be of one. Events are the same where program and id are. */
typedef enum {
    EVENT_ADDED, /* only in B */
    EVENT_REMOVED,
    EVENT_OP,     /* another op, phase, module or group of ranks */
    EVENT_STREAM, /* on another stream */
    EVENT_SOONER, /* in issue order. As few events as possible have moved, of equally few those that are no kernels */
    EVENT_LATER,
    EVENT_LONGER, /* by DIFF_LEAST_PS or more */
    EVENT_SHORTER,
    EVENT_WAITS, /* for other events */
    N_EVENT_CHANGES
} EventChange;
enum { DIFF_LEAST_PS = 10000 }; /* 0.01 us: less is what times of kernels beside other collectives vary by */
const char *diff_event_change(EventChange c); /* "added" */

typedef struct {
    const Event *a, *b; /* NULL: only in the other */
    unsigned changes;   /* a bit an EventChange */
    int places;         /* of events that have not moved: how many it is issued later by; < 0: sooner */
} DiffEvent;

/* Storages are the same where program (or none) and name are. Addresses are not compared. */
typedef enum {
    STORAGE_ADDED,
    STORAGE_REMOVED,
    STORAGE_GREW,
    STORAGE_SHRANK,
    STORAGE_CLASS, /* another class or owner */
    STORAGE_ARENA, /* in host memory instead of the device's, or the other way round */
    STORAGE_LIFE,  /* its first or its last event is another one */
    N_STORAGE_CHANGES
} StorageChange;
const char *diff_storage_change(StorageChange c);

typedef struct {
    const Storage *a, *b;
    unsigned changes; /* a bit a StorageChange */
} DiffStorage;

typedef struct {
    const char *name;
    double a, b; /* 0 where it is not in a plan */
} DiffRow;
typedef VEC(DiffRow) DiffRows;
/* Less than a byte, and less than the picosecond to which a plan.json holds times, is no difference. */
static inline bool diff_row_same(const DiffRow *r) {
    return r->b - r->a < 1e-6 && r->a - r->b < 1e-6;
}

typedef struct {
    const char *name;         /* "": what all programs share; it has storages alone */
    const PlanProgram *a, *b; /* NULL: only in the other */
    VEC(DiffEvent) events;    /* that differ: in B's issue order, then those that B has not in A's */
    VEC(DiffStorage) storages;
} DiffProgram;

typedef struct {
    const char *name, *a, *b; /* NULL: not there */
} DiffSetting;

typedef enum {
    FIGURE_PEAK,  /* the device arena */
    FIGURE_BOUND, /* of it, the lower */
    FIGURE_HOST,
    FIGURE_LIBRARY,
    FIGURE_STEP,
    FIGURE_EXPOSED,
    FIGURE_TOKENS,
    FIGURE_MFU, /* causal attention counted by half */
    N_FIGURES
} Figure;

typedef struct {
    const Plan *a, *b;
    VEC(DiffSetting) settings;  /* model, device, world, options: those that differ */
    DiffRow figures[N_FIGURES]; /* bytes, microseconds, tokens (or samples) a second of a rank */
    DiffRows peak_classes;      /* bytes that are alive at each plan's own peak, by class */
    DiffRows peak_modules;      /* the same, by module or unit without numbers: "layers.*.mlp" */
    DiffRows time_classes;      /* microseconds of events of a step, by stream and phase: "compute backward" */
    DiffRows time_modules;      /* the same, by module without numbers */
    DiffRows exposed_modules;   /* exposed microseconds of a step, by stream and module of what is waited for */
    VEC(DiffProgram) programs;
    bool same; /* nothing of the above differs */
} Diff;

Diff *diff_plans(Arena *a, const Plan *x, const Plan *y);

void diff_text(FILE *f, Arena *a, const Diff *d, bool all); /* all: every row, else the largest of each section */
void diff_json(FILE *f, Arena *a, const Diff *d);

/* --fail-if: "peak>+1%,step>+2%". */
typedef struct {
    const char *text; /* as given: "peak>+1%" */
    Figure figure;
    bool below;  /* "<" */
    bool change; /* of the change from A to B, else of B itself */
    bool share;  /* of A's figure: value is 0.01 for 1 % */
    double value;
} DiffBound;
typedef VEC(DiffBound) DiffBounds;
DiffBounds diff_bounds(Arena *a, const char *text); /* a text that is none ends in a usage error */
const char *diff_missed(Arena *a, const Diff *d, const DiffBound *bound); /* a sentence; NULL: it is kept */

/* A page for a browser: both plans over each other on one time axis. bounds: those of --fail-if, which it tells of. */
void diff_page(FILE *f, Arena *a, const Diff *d, const DiffBounds *bounds);

#endif
