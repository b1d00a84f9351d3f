/* The planner: per block keep, recompute or offload; per unit reshard, prefetch and where its state lies, so that the
 * predicted step is fastest while the placed arena fits a budget. Relies on: plan.h, chain.h, a function that compiles.
 * Relied on by: cli/plan.c and other commands. */
#ifndef SHARDC_PLANNER_H
#define SHARDC_PLANNER_H

#include "../devices/device.h"

typedef struct {
    bool estimate; /* placement with little effort, no proof, no remarks */
    bool quiet;    /* no remarks */
    bool one;      /* a step of one microbatch, whatever the model accumulates */
} PlannerHow;

/* Compiles the model with further policy entries, which stand over its own ("" adds none). On a mistake it ends the
 * process with a diagnostic. */
typedef Plan *PlannerCompile(Arena *a, const void *context, const char *entries, PlannerHow how);

/* Bytes of the device's arena that a plan may have. own: the plan of the model as it is. */
typedef int64_t PlannerBudget(const void *context, const Plan *own);

/* Told after each round of compilations: how many plans were placed, and the shortest step that fits (0: none yet). */
typedef void PlannerTell(const void *context, int tried, double best_us);

/* What may be chosen. */
typedef enum { FREE, AS_MODEL, NONE } Freedom; /* NONE: nothing is recomputed, offloaded, gathered earlier ... */
typedef struct {
    Freedom recompute, offload, reshard, prefetch, state;
} PlannerChoices;
/* "recompute=none", "reshard": holds a choice as said, or as the model has it. False: it is no such text. */
bool planner_hold(PlannerChoices *c, const char *text);

typedef struct {
    PlannerCompile *compile;
    PlannerBudget *budget; /* of planner_search */
    PlannerTell *tell;     /* or NULL */
    const void *context;   /* of the functions above */
    const Device *device;
    PlannerChoices choices;
} PlannerInput;

/* One run of alike blocks that are treated alike. */
typedef struct {
    const char *match; /* pattern of their paths: "h.{0-11}" */
    int blocks;
    const char *what; /* "keep everything", "recompute all but attention, mlp.up_proj", "offload input" */
    int64_t kept;     /* bytes a block holds from forward to backward */
    double us;        /* what a block adds to the step */
} PlannedRun;

typedef struct {
    const char *entries; /* policy entries, text of a list: what --policy reads */
    PlannedRun *runs;
    int nruns;
    const char *units;   /* what the units do: "as the model says", "gathered 2 units ahead", ... */
    int64_t arena, host; /* bytes, placed */
    double step_us, exposed_us;
    Plan *plan; /* the whole one, verified; NULL in points of a curve */
} Planned;

typedef struct {
    Planned plan;
    bool made;         /* false: the compiler refuses these policies */
    double promise_us; /* the step that was expected of it; 0: it was compiled to measure what its choices do */
} Candidate;

typedef struct {
    int64_t budget;     /* bytes of the device's arena */
    Planned best;       /* plan NULL: nothing fits */
    Planned without;    /* the same model as it says itself */
    double floor_us;    /* forward and backward kernels, one after another at full clock: no plan takes less */
    double estimate_us; /* of the shortest step within the budget, by the model of costs; it may be wrong either way;
                           0: there is none */
    int64_t least;      /* where nothing fits: the smallest arena found */
    const char *not_tried[3]; /* what this model or device leaves no choice in, and why */
    int nnot_tried;
    int tried;             /* plans that were placed */
    Candidate *candidates; /* these, in the order in which they were tried */
} PlannerResult;

/* The fastest plan found whose arena fits the budget. The same inputs give the same result, whatever the number of
 * processors. In models of few events (planner.c), a larger budget gives no slower one. */
PlannerResult planner_search(Arena *a, const PlannerInput *in);

/* Time over budget: the fastest step found for each of some budgets from the least to all that the model asks for,
 * rising; no point is slower than one of a smaller budget. */
typedef struct {
    Planned *points;
    int n;
} PlannerCurve;
PlannerCurve planner_curve(Arena *a, const PlannerInput *in, int points);

#endif
