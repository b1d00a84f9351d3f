/* Which operands hold indices, and into how many rows.
 * Relies on: ir.h.
 * Relied on by: frontend/training.c, which tells tokens from other integers by it, and the program what data may hold;
 * frontend/trace.c, for constants; report/tasks.c. */
#ifndef SHARDC_INDEX_LIMIT_H
#define SHARDC_INDEX_LIMIT_H

#include "ir.h"

bool index_limit_rows(const Op *op, int operand); /* of a table, as tokens do; targets of a loss pick classes */
int64_t index_limit(const Op *op, int operand);   /* exclusive upper bound of its elements; 0: none */

#endif
