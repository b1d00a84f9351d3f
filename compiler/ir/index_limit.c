/* Which operands hold indices, and into how many rows.
 * Relies on: ir.h.
 * Relied on by: frontend/, report/tasks.c. */
#include "index_limit.h"

bool picks_rows(const Op *op, int operand) {
    return op->kind == OP_EMBEDDING && operand == 0;
}

int64_t index_limit(const Op *op, int operand) {
    if (picks_rows(op, operand)) return op->in[1]->shape[0];
    if (op->kind == OP_CROSS_ENTROPY && operand == 1) return op->in[0]->shape[op->in[0]->dims - 1];
    return 0;
}
