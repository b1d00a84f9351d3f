/* Cost rules of what the shard and offload passes build: copies between arenas, optimizers, the pick. Their shapes
 * follow from the mesh and the flat layout, so the passes set them. Relies on: rules.h. Relied on by: ops.def. */
#include "rules.h"
#include "schema/optimizers.h"

Cost cost_transfer(const Op *op) {
    return (Cost){.bytes = rule_touched_bytes(op_operand(op))};
}

/* One row of the logits is read and written. */
Cost cost_pick(const Op *op) {
    const Value *to = op->pick.state;
    return (Cost){.bytes = (double)value_numel(to) * (dtype_size(op->pick.logits->dtype) + dtype_size(to->dtype))};
}

/* Everything is read once, and what is updated written once. */
Cost cost_ema(const Op *op) {
    Cost c = rule_traffic(op, 3 * (double)value_numel(op->ema.average));
    c.bytes += rule_touched_bytes(op->ema.average);
    return c;
}

Cost cost_optimizer(const Op *op) {
    Cost c =
        rule_traffic(op, sc_optimizer_of(op_info[op->kind].name)->flops * (double)value_numel(OPERAND_OF(op, master)));
    for (int i = 0; i < op->nin; i++)
        if (op->in[i] && op_updates(op, i)) c.bytes += rule_touched_bytes(op->in[i]);
    return c;
}
