/* Which operands hold indices, and into how many rows.
 * Relies on: ir.h.
 * Relied on by: frontend/, report/tasks.c. */
#include "index_limit.h"
#include "ops.h"

bool index_limit_rows(const Op *op, int operand) {
    return op->kind == OP_embedding && operand == SLOT(embedding, index);
}

int64_t index_limit(const Op *op, int operand) {
    if (index_limit_rows(op, operand)) return op->embedding.w->shape[0];
    if (op->kind != OP_cross_entropy || operand != SLOT(cross_entropy, targets)) return 0;
    const Value *logits = op->cross_entropy.logits;
    return logits->shape[logits->dims - 1];
}
