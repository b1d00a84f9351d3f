/* Which operands hold indices, and into how many rows.
 * Relies on: ir.h.
 * Relied on by: emit/tables.c, so that the training program can refuse data that would index past a table;
 * frontend/training.c, which tells tokens from other integers by it. */
#ifndef SHARDC_INDEX_LIMIT_H
#define SHARDC_INDEX_LIMIT_H

#include "ir.h"

bool picks_rows(const Op *op, int operand);     /* of a table, as tokens do; targets of a loss pick classes */
int64_t index_limit(const Op *op, int operand); /* exclusive upper bound of its elements; 0: none */

#endif
