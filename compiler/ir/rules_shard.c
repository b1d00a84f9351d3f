/* Cost rules of what the shard and offload passes build: copies between arenas, optimizers, the pick. Their shapes
 * follow from the mesh and the flat layout, so the passes set them. Relies on: rules.h. Relied on by: ops.def. */
#include "rules.h"
#include "schema/matrices.h"
#include "schema/optimizers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
        rule_traffic(op, sc_optimizer_of(op_info[op->kind].name)->flops * (double)value_numel(OPERAND_OF(op, grad)));
    for (int i = 0; i < op->nin; i++)
        if (op->in[i] && op_updates(op, i)) c.bytes += rule_touched_bytes(op->in[i]);
    return c;
}

/* Of the rank with the most to do: X X^T and A A have equal halves, of which one is computed. The sizes are the largest
 * matrix's. */
Cost cost_orthogonalize(const Op *op) {
    double most = 0, size[2] = {0};
    for (int i = 0, rows = op->ntable / SC_MATRICES; i < rows; i++) {
        double flops = 0;
        for (int k = 0; k < rows; k++) {
            sc_matrices m = sc_matrices_at(op->table, k);
            if (m.owner != sc_matrices_at(op->table, i).owner) continue;
            double r = (double)sc_matrices_short(m), c = (double)sc_matrices_long(m);
            flops += (double)m.count * r * r * (3 * c + r);
            if (r * c > size[0] * size[1]) size[0] = r, size[1] = c;
        }
        most = fmax(most, flops);
    }
    Cost cost = rule_traffic(op, most * (double)op->orthogonalize.steps);
    snprintf(cost.variant, sizeof cost.variant, "bf16");
    memcpy(cost.key, size, sizeof size);
    cost.nkey = 2;
    return cost;
}
