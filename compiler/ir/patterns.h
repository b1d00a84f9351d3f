/* Patterns of neighbouring ops that one kernel computes in one pass over memory: what epilogue fusion looks for.
 * Relies on: ir.h; ir/patterns.c holds the table and the rules.
 * Relied on by: lower/epilogue_fusion.c; the names of events (storages.c, dump.c). */
#ifndef SHARDC_PATTERNS_H
#define SHARDC_PATTERNS_H

#include "ir.h"

typedef struct {
    const char *name;
    OpKind first, then; /* in program order */
    bool traced;        /* in the traced program, before autodiff: the combined op has a gradient rule; else after it */
    bool chain;         /* `then` reads result 0 of `first` (or a view of it); else both read a value in common */
    bool early;         /* the combined op stands where `first` did; else where `then` did */
    bool across;        /* they may be of different phases */

    /* Turns `first` into both, with the results of both, and returns true; or leaves all as it is. `operand` of `then`
     * is what connects the two; `alone`: nothing but `then` reads that value (or views of it). */
    bool (*merge)(Graph *g, Op *first, Op *then, int operand, bool alone);
} Pattern;

extern const Pattern patterns[];
extern const int npatterns;

/* The second of two combined ops alone, where it computes result 0 to the same bits from the first one's, which is
 * result 1; false: there is no such. */
bool pattern_second_apart(const Op *op, Op *second);

/* What an op does, for people: its name and what epilogue fusion let it take in ("matmul+gelu_tanh"); of a fused group
 * its members ("mul+silu_grad+mul"); of a custom op the function that it calls. */
const char *op_label(Arena *a, const Op *op);

#endif
