/* Patterns of neighbouring ops that one kernel computes in one pass over memory: what epilogue fusion looks for.
 * Relies on: ops.h; ir/patterns.c holds the tables and the rules.
 * Relied on by: lower/epilogue_fusion.c, quantize_fusion.c; recompute.c and planner/blocks.c (pattern_apart);
 * rules_matrix.c; the names of events (storages.c, dump.c). */
#ifndef SHARDC_PATTERNS_H
#define SHARDC_PATTERNS_H

#include "ops.h"

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

/* What a product's kernel may do to its sums: such a product is `then` after the product alone. */
enum { MAX_OTHERS = 2 };
typedef struct {
    const char *name; /* in names of measurements */
    OpKind then;
    const char *sums; /* the operand of `then` that the product computes */
    struct {
        const char *of_then, *of_product;
    } others[MAX_OTHERS]; /* its other operands, and what the product calls them; all are laid out as y */
    const char *aux;      /* its second result, which is the product's aux; or NULL */
    int f;                /* an sc_epilogue. Without SC_GRADIENT kernels may also keep what the product alone computes
                           * (SC_TOO); with it, it is of the backward and joins the region of `then` */
    bool separable; /* with SC_TOO it computes y to the bits that `then` does from aux, whichever kernel does it: where
                       aux is kept, `then` alone computes y again */
} Epilogue;
const Epilogue *pattern_epilogue_by(int64_t f);      /* by its flags; NULL: there is none */
const Epilogue *pattern_epilogue(const Op *product); /* NULL: it has none */
const Epilogue *pattern_epilogue_of(OpKind then);    /* NULL: no product does it */

/* Takes a separable op apart: sets the second, whose result is op's first, and returns the result of the first that it
 * reads, op's second. NULL: op is not separable. */
Value *pattern_apart(const Op *op, Op *second);

/* What an op does, for people: its name and what epilogue fusion let it take in ("matmul+gelu_tanh"); of a fused group
 * its members ("mul+silu_grad+mul"); of a custom op the function that it calls. */
const char *op_label(Arena *a, const Op *op);

#endif
