/* From a Lua file to a Graph: sandbox, options, tracing, policies.
 * Relies on: base, ir, Lua 5.4; the files of lua/ embedded in the compiler.
 * Relied on by: cli/input.c, fe.h, the tests. */
#ifndef SHARDC_FRONTEND_H
#define SHARDC_FRONTEND_H

#include "../ir/ir.h"

typedef struct {
    const char *model_file;
    const char **policies; /* files, a later one over an earlier one */
    int npolicies;
    const char *planned; /* text of further policy entries, which stand over both; NULL: none.
                          * The model was compiled before: it prints nothing again */
    const char **set;    /* "layers=24" */
    int nset;
    int world, nodes;
} FrontendOptions;

/* Traces the model. On any mistake: one diagnostic at the user's line, exit 1. */
Graph *frontend_load(Arena *a, const FrontendOptions *o);

#endif
