/* The elements of a tensor that is made of constants alone, as far as whole numbers go: what an index holds is known
 * then. Relies on: ir.h. Relied on by: frontend/trace.c, which refuses indices beyond their table. */
#ifndef SHARDC_CONSTANT_H
#define SHARDC_CONSTANT_H

#include "ir.h"

/* v's elements in row-major order. NULL: they depend on data, are computed as floating-point numbers, or are too many
 * to look at. */
const double *constant_elements(Arena *a, const Value *v);

#endif
