/* Builder: appends ops to a list while gradient rules and passes run, filling in where each op comes from.
 * Relies on: ops.h.
 * Relied on by: the front end, gradient rules, autodiff, shard, offload. */
#ifndef SHARDC_BUILD_H
#define SHARDC_BUILD_H

#include "ops.h"

struct Builder {
    Graph *g;
    Program *p;     /* ops are appended here */
    Module *module; /* inherited by every op built */
    Source src;
    Phase phase;
    int call;
    Op *origin;         /* of every op built, or NULL */
    const char *of;     /* ids become <of><letter><k>; NULL: e<n>, as the trace numbers them */
    const char *letter; /* what it was built for */
    int k;
    const char *id; /* of the next op alone, instead; or NULL */
};

/* What is built from here on is for `op`: in its module, call and line, with ids that derive from its id. */
void build_for(Builder *b, const Op *op, const char *letter);

/* Builds one op of these operands and attributes: runs infer, appends. Returns the op, whose results infer has set. */
Op *build_op(Builder *b, OpKind k, const OpParts *parts);
/* BUILD(b, matmul, .a = x, .b = w, .trans_b = true)->matmul.y */
#define BUILD(b, op, ...) build_op(b, OP_##op, &(OpParts){.op = {__VA_ARGS__}})
Value *build_border(Builder *b, Value *v, Module *unit, bool leaves);
Value *build_one(Builder *b, OpKind k, Value *a);                          /* unary, first result */
Value *build_two(Builder *b, OpKind k, Value *a, Value *c);                /* binary */
Value *build_scalar(Builder *b, OpKind k, Value *a, double x);             /* add_scalar, mul_scalar, ... */
Value *build_expand(Builder *b, Value *a, int dims, const int64_t *shape); /* view with stride 0; a itself when equal */
Value *build_sum_to(Builder *b, Value *a, int dims, const int64_t *shape); /* inverse of expand: sums the grown dims */
Value *build_reshape(Builder *b, Value *a, int dims, const int64_t *shape); /* view, or copy + view */
Value *build_transpose(Builder *b, Value *a, const int *perm);
Value *build_cast(Builder *b, Value *a, Dtype d); /* a itself when equal */

/* A T_WIDE_GRAD op stores its results as `d`: sets its attribute and the dtype of its results. */
void build_set_dtype(Op *op, Dtype d);

#endif
