/* Cost rules of what the shard and offload passes build: collectives, copies between arenas, optimizers, the pick.
 * Their shapes follow from the mesh and the flat layout, so the passes set them. Relies on: rules.h. Relied on by:
 * ops.def. */
#include "rules.h"

/* Bytes that one rank sends: a ring passes on all but its own share, an all-reduce twice. */
Cost cost_collective(const Op *op) {
    const Value *x = op->all_gather.x; /* of any collective: their rows are the same */
    double ranks = (double)op->all_gather.ranks, whole = (double)value_bytes(x);
    if (op->nout) whole = (double)max64(value_bytes(x), value_bytes(op->all_gather.y));
    return (Cost){.bytes = (op->nout ? 1 : 2) * whole * (ranks - 1) / ranks};
}

Cost cost_transfer(const Op *op) {
    return (Cost){.bytes = rule_touched_bytes(op->offload.x)};
}

/* One row of the logits is read and written. */
Cost cost_pick(const Op *op) {
    const Value *to = op->pick.state;
    return (Cost){.bytes = (double)value_numel(to) * (dtype_size(op->pick.logits->dtype) + dtype_size(to->dtype))};
}

/* Everything is read once, and what is updated written once. */
Cost cost_optimizer(const Op *op) {
    Cost c = rule_traffic(op, (op->kind == OP_sgd ? 6 : 15) * (double)value_numel(op->adam.master));
    for (int i = 0; i < op->nin; i++)
        if (op->in[i] && op_updates(op, i)) c.bytes += rule_touched_bytes(op->in[i]);
    return c;
}
