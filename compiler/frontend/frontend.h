/* From a Lua file to a Graph: sandbox, options, tracing, policies.
 * Relies on: base, ir, Lua 5.4; nn.lua and optim.lua embedded in the compiler.
 * Relied on by: main.c, the tests. */
#ifndef SHARDC_FRONTEND_H
#define SHARDC_FRONTEND_H

#include "../ir/ir.h"
#include <lua.h>

typedef struct {
    const char *model_file, *policy_file; /* policy NULL: as in the model file */
    const char **set;                     /* "layers=24" */
    int nset;
    int world, nodes;
} FrontendOptions;

/* Traces the model. On any mistake: one diagnostic at the user's line, exit 1. */
Graph *frontend_load(Arena *a, const FrontendOptions *o);

/* A sandboxed Lua state (no io, os.execute, load of binary chunks, C modules or files outside `folder`; limits on
 * processor time, memory and printed text; pairs visits sorted keys). Also used for device profiles. One at a time. */
lua_State *sandbox_new(Arena *a, const char *folder);
void sandbox_close(lua_State *L);     /* before the arena is freed */
void sandbox_limit(const char *text); /* "time=60": of every state to come; a usage error where it is none */

#endif
