/* plan.json, out and in.
 * Relies on: plan.h, json_writer.h.
 * Relied on by: emit/emit.c, report/json.c, cli/: the commands that read or write plans, the tests. */
#ifndef SHARDC_PLAN_JSON_H
#define SHARDC_PLAN_JSON_H

#include "json_writer.h"
#include "plan.h"

enum { PLAN_VERSION = 6 }; /* rises when what a plan must say changes; 6: axes of the mesh */
void plan_write_json(FILE *f, const Plan *p);
/* Members of an object that predictions have too: model, device, mesh, options, arenas, peak, prediction; unused. */
void plan_write_summary(Json *j, const Plan *p);
void plan_write_unused(Json *j, const Plan *p);

/* From a plan.json, or a binary built by shardc (the plan is embedded between the markers SHARDC_PLAN_BEGIN/END).
 * Checks every field; a damaged file ends in one diagnostic that names path and position. */
Plan *plan_read(Arena *a, const char *path);
/* The fuzzing entry: returns NULL and says what is wrong (line 0: unknown) where the others exit. */
typedef struct {
    const char *text;
    int line;
} PlanError;
Plan *plan_parse(Arena *a, const char *text, size_t n, PlanError *e);

#endif
