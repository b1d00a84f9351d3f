/* Cost rules of what the shard and offload passes build: collectives, copies between arenas, optimizers, the pick.
 * Their shapes follow from the mesh and the flat layout, so the passes set them. Relies on: rules.h. Relied on by:
 * ops.def. */
#include "rules.h"

/* Bytes that one rank sends: a ring passes on all but its own share, an all-reduce twice. */
Cost cost_collective(const Op *op) {
    double ranks = (double)op->i[1], whole = (double)value_bytes(op->in[0]);
    if (op->nout) whole = (double)max64(value_bytes(op->in[0]), value_bytes(op->out[0]));
    return (Cost){.bytes = (op->nout ? 1 : 2) * whole * (ranks - 1) / ranks};
}

Cost cost_transfer(const Op *op) {
    return (Cost){.bytes = touched_bytes(op->in[0])};
}

/* One row of the logits is read and written. */
Cost cost_pick(const Op *op) {
    int64_t row = value_numel(op->in[1]);
    return (Cost){.bytes = (double)row * (dtype_size(op->in[0]->dtype) + dtype_size(op->in[1]->dtype))};
}

/* Everything is read once, and what is updated written once. */
Cost cost_optimizer(const Op *op) {
    Cost c = traffic(op, (op->kind == OP_SGD ? 6 : 15) * (double)value_numel(op->in[1]));
    for (int i = 0; i < op->nin; i++)
        if (op_info[op->kind].updates & 1u << i) c.bytes += touched_bytes(op->in[i]);
    return c;
}
