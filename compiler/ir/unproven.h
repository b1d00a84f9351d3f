/* What a model computes with and no shape of its parameters shows.
 * Relies on: ir.h.
 * Relied on by: frontend.c; emit/tables.c through Graph.unproven. */
#ifndef IR_UNPROVEN_H
#define IR_UNPROVEN_H

#include "ir.h"

/* "heads 32/8 of 64, rope theta 500000, eps 1e-05": of the program as traced, each value once. NULL: there is none. */
const char *graph_unproven(const Graph *g, const Program *p);

#endif
