/* Which operands hold indices, and into how many rows.
 * Relies on: ir.h.
 * Relied on by: emit/tables.c. */
#include "index_limit.h"

int64_t index_limit(const Op *op, int operand) {
    if (op->kind == OP_EMBEDDING && operand == 0) return op->in[1]->shape[0];
    if (op->kind == OP_CROSS_ENTROPY && operand == 1) return op->in[0]->shape[op->in[0]->dims - 1];
    return 0;
}
