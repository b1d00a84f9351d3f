/* Turns the rows of ops.def into op_info[], and finds ops by trait and by name.
 * Relies on: ops.def, the rules that it names.
 * Relied on by: every pass, the front end, the emitter. */
#include "rules.h"

const OpInfo op_info[N_OPS] = {
#define OP(ID, NAME, MIN, MAX, NOUT, TRAITS, INPLACE, UPDATES, INFER_RULE, GRAD_RULE, COST_RULE, WORK, EXPR)           \
    [OP_##ID] = {.name = NAME,                                                                                         \
                 .min_in = MIN,                                                                                        \
                 .max_in = MAX,                                                                                        \
                 .nout = NOUT,                                                                                         \
                 .traits = TRAITS,                                                                                     \
                 .inplace = INPLACE,                                                                                   \
                 .updates = UPDATES,                                                                                   \
                 .infer = INFER_RULE,                                                                                  \
                 .grad = GRAD_RULE,                                                                                    \
                 .cost = COST_RULE,                                                                                    \
                 .workspace = WORK,                                                                                    \
                 .expr = EXPR},
#include "ops.def"
#undef OP
};

OpKind op_by_name(const char *name) {
    for (int k = 0; k < N_OPS; k++)
        if (!strcmp(op_info[k].name, name)) return (OpKind)k;
    return N_OPS;
}

/* Where each T_WIDE_GRAD op keeps "result dtype + 1": attribute slot + 1. */
static const unsigned char wide_slot[N_OPS] = {
    [OP_SUM] = 3, [OP_MATMUL] = 3, [OP_EMBEDDING_GRAD] = 2, [OP_LAYER_NORM_GRAD_W] = 1, [OP_RMS_NORM_GRAD_W] = 1,
};

void set_result_dtype(Op *op, Dtype d) {
    if (!wide_slot[op->kind])
        fail(op->src, "%s cannot choose its result's dtype (internal error)", op_info[op->kind].name);
    op->i[wide_slot[op->kind] - 1] = (int64_t)d + 1;
    for (int k = 0; k < op->nout; k++) op->out[k]->dtype = d;
}

/* A product that is gated is summed up where its second result lies, so that the first may lie where a gate or `up`
 * was: they are read when the sums are done, each element before it is written. */
unsigned op_lends(const Op *op) {
    unsigned last = op->nin ? 1u << (op->nin - 1) : 0;
    if (op->kind != OP_MATMUL) return op_info[op->kind].inplace;
    return op->i[4] == SC_GATED_TOO ? last : op->i[4] == SC_GATE_GRADS ? last | last >> 1 : 0;
}

bool op_needs_copy(const Op *op) {
    int64_t stride[MAX_DIMS];
    return op->kind == OP_RESHAPE && !reshape_strides(op->in[0], (int)op->i[0], op->i + 1, stride);
}

bool op_changes_nothing(const Op *op) {
    return op->kind == OP_CAST && op->in[0]->dtype == op->out[0]->dtype;
}

int op_values(const Op *op, const Value **out) {
    int n = 0;
    for (int i = 0; i < op->nout; i++) out[n++] = op->out[i];
    for (int i = 0; i < op->nin; i++) out[n++] = op->in[i];
    if (op->scratch_value) out[n++] = op->scratch_value;
    return n;
}
