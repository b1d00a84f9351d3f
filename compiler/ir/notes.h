/* What a trace knows of its values beyond the IR: a table beside the traced program, by Value.id, which precision
 * takes. Relies on: ir.h. Relied on by: the front end (build.c for borders), which writes it; precision, which reads
 * it. */
#ifndef SHARDC_NOTES_H
#define SHARDC_NOTES_H

#include "ir.h"

typedef struct {
    Module *crossed; /* of a border: the unit that the value enters as an argument or leaves as a result; else NULL */
    bool leaves;     /* ... and which of the two */
    Value *like;     /* of a cast: it gives the dtype that this value has there; else NULL */
    bool promotes;   /* a cast that the trace made since operands differed in dtype: precision decides anew */
    bool number;     /* a number (or a cast of integers) beside tensors: precision gives it a dtype; read by one op */
    bool weak;       /* an expanded tensor without dims: beside others it does not count in a promotion */
} Note;

struct Notes {
    VEC(Note) of; /* by Value.id */
};

Note *note_on(Graph *g, Program *p, const Value *v);        /* to be written; valid until the next call */
const Note *note_taken(const Notes *notes, const Value *v); /* never NULL */

#endif
