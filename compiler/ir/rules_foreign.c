/* Rules of ops that call the user's own C or CUDA C: custom ops and what all-gather extensions do before and after.
 * Relies on: rules.h, build.h.
 * Relied on by: ops.def; the emitter and the extensions pass (which function an op calls). */
#include "rules.h"

ExtensionPart foreign_part(const Op *op) {
    return op->kind == OP_POST_ALL_GATHER || op->kind == OP_CUSTOM_GRAD ? POST_GATHER : PRE_GATHER;
}

const char *part_name(const Extension *x, ExtensionPart p) {
    static const char *const names[2][N_PARTS] = {{"forward", "backward"}, {"pre", "post"}};
    return names[x->gathers][p];
}

/* ── custom ops ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
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
        rule_out(g, op, k, d, (int)t[1], t + 2);
        t += 2 + t[1];
    }
}

void grad_custom(Builder *b, Op *op, Value **gout, Value **gin) {
    Value *in[MAX_IN];
    int n = 0;
    if (!op->extension->part[CUSTOM_BACKWARD])
        fail(op->src,
             "%s has no backward, and trainable parameters lie upstream of it; add backward = \"function\" to the "
             "nn.custom_op at %s, or put nn.detach around its operands",
             op->extension->name, source_str(b->g->arena, op->extension->src));
    for (int k = 0; k < op->nout; k++) in[n++] = gout[k] ? gout[k] : zeros_like(b, op->out[k]);
    for (int k = 0; k < op->nin; k++) in[n++] = op->in[k];
    for (int k = 0; k < op->nout; k++) in[n++] = op->out[k];
    int64_t counts[2] = {op->nin, op->nout};
    Op *grad = build_op(b, OP_CUSTOM_GRAD, n, in, counts, 2, op->f, MAX_FLOATS);
    grad->extension = op->extension;
    for (int k = 0, r = 0; k < op->nin; k++)
        if (dtype_float(op->in[k]->dtype)) gin[k] = grad->out[r++];
}

void infer_custom_grad(Graph *g, Op *op) {
    for (int k = 0, r = 0; k < op->i[0]; k++) {
        const Value *x = op->in[op->i[1] + k];
        if (dtype_float(x->dtype)) rule_out_like(g, op, r++, x);
    }
}

/* A backward is counted as twice its forward. */
Cost cost_foreign(const Op *op) {
    bool counted = op->extension && !op->extension->gathers;
    return traffic(op, counted ? op->f[0] * (foreign_part(op) == CUSTOM_BACKWARD ? 2 : 1) : 0);
}
