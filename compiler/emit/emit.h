/* Writes a plan as C: the step's text, the generated pointwise kernels, the tables, and the build command.
 * Relies on: ir, plan; runtime/sc.h for the names it prints.
 * Relied on by: cli/. */
#ifndef SHARDC_EMIT_H
#define SHARDC_EMIT_H

#include "../plan/plan.h"

/* Fails where a file of the build would take the place of what no build wrote; sources: nothing will be compiled. */
void emit_keep(const Plan *p, const char *dir, const char *name, const char *variant, bool sources);
/* Writes DIR/NAME.c, DIR/NAME_kernels.c (.cu for the CUDA target), DIR/NAME.plan.json. */
void emit(const Plan *p, const char *dir, const char *name);
/* What emit() writes for each event: its waits and its call. [program][event]; NULL: p comes from a plan.json. */
const char *const *const *emit_statements(const Plan *p);
/* Before anything is written: fails where what emit_build takes is not there: compilers, headers, the runtime. */
void emit_check(const Plan *p, const char *variant);
/* Compiles and links DIR/NAME with the runtime for the plan's target; fails with the compiler's own message. `variant`:
 * "" | "asan" | "tsan" | "fp64" selects the runtime library libsc_<target>[_variant].a. */
void emit_build(const Plan *p, const char *dir, const char *name, const char *variant);

/* The words that begin a call of the C compiler ($CC or gcc), and those of the libraries that a CPU program is linked
 * with, beside shardc's own; NULL ends both. */
const char *const *emit_c_compiler(Arena *a);
const char *const *emit_linked(Arena *a);

/* Under the lock of DIR/NAME's build: removes what killed builds of it have left. */
void emit_clear(const char *dir, const char *name);

#endif
