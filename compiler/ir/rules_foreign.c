/* Rules of ops that call the user's own C or CUDA C: custom ops and what all-gather extensions do before and after.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def; the emitter and the extensions pass (which function an op calls). */
#include "foreign.h"
#include "rules.h"

ExtensionPart foreign_part(const Op *op) {
    return op->kind == OP_post_all_gather || op->kind == OP_custom_grad ? POST_GATHER : PRE_GATHER;
}

const char *foreign_part_name(const Extension *x, ExtensionPart p) {
    static const char *const names[2][N_PARTS] = {{"forward", "backward"}, {"pre", "post"}};
    return names[x->gathers][p];
}

/* ── custom ops ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static Dtype first_float(const Op *op) {
    for (int k = 0; k < op->nin; k++)
        if (dtype_float(op->in[k]->dtype)) return op->in[k]->dtype;
    return FP32;
}

/* The table comes after the op is built. */
void infer_custom(Graph *g, Op *op) {
    const int64_t *t = op->table, *end = t + op->ntable;
    for (int k = 0; t && t < end; k++) {
        Dtype d = t[0] < 0 ? first_float(op) : (Dtype)t[0];
        rule_out(g, op, &op->custom.y[k], d, (int)t[1], t + 2);
        t += 2 + t[1];
    }
}

void grad_custom(Builder *b, Op *op, OpParts *d) {
    OpParts parts = {.custom_grad = {.operands = op->nin, .results = op->nout, .flops = op->custom.flops}};
    Value **x = parts.custom_grad.x;
    if (!op->extension->part[CUSTOM_BACKWARD])
        fail(op->src,
             "%s has no backward, and trainable parameters lie upstream of it; add backward = \"function\" to the "
             "nn.custom_op at %s, or put nn.detach around its operands",
             op->extension->name, rule_source_str(b->g->arena, op->extension->src));
    for (int k = 0; k < op->nout; k++) *x++ = d->custom.y[k] ? d->custom.y[k] : rule_zeros_like(b, op->custom.y[k]);
    for (int k = 0; k < op->nin; k++) *x++ = op->custom.x[k];
    for (int k = 0; k < op->nout; k++) *x++ = op->custom.y[k];
    memcpy(parts.custom_grad.numbers, op->custom.numbers, sizeof op->custom.numbers);
    Op *grad = build_op(b, OP_custom_grad, &parts);
    grad->extension = op->extension;
    for (int k = 0, r = 0; k < op->nin; k++)
        if (dtype_float(op->custom.x[k]->dtype)) d->custom.x[k] = grad->custom_grad.dx[r++];
}

void infer_custom_grad(Graph *g, Op *op) {
    for (int k = 0, r = 0; k < op->custom_grad.operands; k++) {
        const Value *x = op->custom_grad.x[op->custom_grad.results + k];
        if (dtype_float(x->dtype)) rule_out_like(g, op, &op->custom_grad.dx[r++], x);
    }
}

/* A backward is counted as twice its forward. */
Cost cost_foreign(const Op *op) {
    bool counted = op->extension && !op->extension->gathers;
    return rule_traffic(op, counted ? FLOAT_OF(op, flops) * (foreign_part(op) == CUSTOM_BACKWARD ? 2 : 1) : 0);
}
