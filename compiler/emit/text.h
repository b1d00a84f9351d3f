/* What the emitter's files share: the emission under way, and the printing of names, literals, addresses and tensors.
 * Relies on: plan.h, ir.h.
 * Relied on by: emit.c, step.c, kernels.c, tables.c, build.c. */
#ifndef SHARDC_EMIT_TEXT_H
#define SHARDC_EMIT_TEXT_H

#include "../plan/plan.h"

typedef struct {
    const Plan *plan;
    const Graph *g;
    Arena *a;
    const char *dir, *name;
    FILE *f;             /* NAME.c */
    Str *out;            /* its text, on the way there */
    const char **kernel; /* by fused group: the name of the generated kernel that serves it: "relu_grad" */
} Emit;

typedef struct Names Names; /* of one program: names.c */

/* mark.c */
#define WRITTEN "Written by shardc; edits are lost." /* in the first line of a text */
char *emit_binary_mark(Arena *a);                    /* in objects and programs */
void emit_keep_foreign(Arena *a, const char *path);  /* fails where something stands that no build wrote */

/* literals.c: functions that append to t */
void text_name(Str *t, const char *s);      /* an identifier: "micro", "layers_3" */
void text_string(Str *t, const char *s);    /* a C literal with its quotes, "NULL" for NULL */
void text_in_string(Str *t, const char *s); /* a part of one */
void text_comment(Str *t, const char *s);   /* fit to stand inside a comment */
void text_float(Str *t, double x);
void text_single(Str *t, float x); /* finite; to be read as single precision */
void text_int(Str *t, int64_t x);
void text_flags(Str *t, const char *const *words, uint64_t x);                                /* "SC_GELU | SC_TOO" */
void text_amount(Str *t, double x, const char *unit, double base, const char *const *scales); /* "16.8 M" + unit */
void text_size(Str *t, double bytes);                                                         /* 98.0 KiB */
const char *c_name(Arena *a, const char *s); /* the same by themselves */
const char *c_string(Arena *a, const char *s);
const char *c_comment(Arena *a, const char *s);
const char *c_float(Arena *a, double x);
const char *c_dtype(Dtype d);   /* BF16 */
const char *c_stream(Stream s); /* COMPUTE */

/* text.c */
bool emit_is_cuda(const Emit *e);
const char *emit_kernels_suffix(const Plan *p);                          /* "_kernels.c", "_kernels.cu" */
void text_tensor(Str *t, const Emit *e, const Names *n, const Value *v); /* T(BF16, up_y, 8, 768); V(...): a view */
void text_bytes(Str *t, const Names *n, const Value *v);                 /* BYTES(e17_workspace, 4096) */
void text_tensor_initializer(Str *t, const Emit *e, const Value *v);     /* for tables: {.at = ...} */
uint64_t emit_value_at(const Emit *e, const Value *v);                   /* byte offset in its arena */
bool emit_value_host(const Emit *e, const Value *v);
uint64_t emit_event_written(const Op *op); /* a bit each tensor of its kernel's struct: it is written */

/* names.c */
Names *names_new(const Emit *e, const PlanProgram *p);     /* for all that the program's events touch */
void text_place(Str *t, const Names *n, const Value *v);   /* "up_y", "up_y + 4096", "up_weight" */
const char *names_storage(const void *names, int storage); /* "up_y"; names: a Names */
void names_put(const Names *n);                            /* the table of names and addresses */

/* step.c */
void emit_step(Emit *e); /* every program as a function */

/* kernels.c */
const char *emit_kernels(Emit *e); /* the text of NAME_kernels.c or .cu; names the kernels */

/* foreign.c: the user's own sources, by index in Graph.files */
const char *emit_foreign_suffix(const Plan *p, int file); /* "_extension0.c" */
const char *emit_foreign_kernel(Arena *a, const Op *op);  /* what a T_FOREIGN event runs */
const char *emit_foreign(const Emit *e, int file);        /* the text of NAME_extension0.c or .cu */

/* tables.c */
void emit_tables(Emit *e); /* sc_this_build */

#endif
