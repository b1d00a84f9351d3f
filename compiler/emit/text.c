/* Prints addresses and tensors as C.
 * Relies on: text.h, literals.c, names.c; Plan.storage_of and Storage.offset, set by order and place.
 * Relied on by: the rest of emit/. */
#include "text.h"
#include "../ir/ops.h"

bool emit_is_cuda(const Emit *e) {
    return !strcmp(e->plan->target, "cuda");
}

const char *emit_kernels_suffix(const Plan *p) {
    return strcmp(p->target, "cuda") ? "_kernels.c" : "_kernels.cu";
}

static const Storage *storage_of(const Emit *e, const Value *v) {
    const Value *root = value_root(v);
    int storage = plan_storage(e->plan, v);
    if (storage < 0)
        bug(root->def ? root->def->src : NOWHERE, "value %d of %s has no storage", root->id,
            root->def     ? root->def->id
            : root->state ? root->state->name
                          : "the model");
    return &e->plan->storages[storage];
}

uint64_t emit_value_at(const Emit *e, const Value *v) {
    return (uint64_t)(storage_of(e, v)->offset + (v->base ? v->offset * dtype_size(v->dtype) : 0));
}

bool emit_value_host(const Emit *e, const Value *v) {
    return storage_of(e, v)->arena == ARENA_HOST;
}

static void add_numbers(Str *t, const int64_t *x, int n) {
    for (int i = 0; i < n; i++) {
        if (i) str_add(t, ", ");
        str_int(t, x[i]);
    }
}

void text_tensor(Str *t, const Emit *e, const Names *n, const Value *v) {
    bool host = emit_value_host(e, v), whole = value_contiguous(v);
    str_add(t, whole ? host ? "H(" : "T(" : host ? "VH(" : "V(");
    str_add(t, c_dtype(v->dtype));
    str_add(t, ", ");
    text_place(t, n, v);
    if (whole) {
        if (v->dims) str_add(t, ", ");
        add_numbers(t, v->shape, v->dims);
    } else {
        str_add(t, ", ");
        str_int(t, v->dims);
        str_add(t, ", SHAPE(");
        add_numbers(t, v->shape, v->dims);
        str_add(t, "), STRIDE(");
        add_numbers(t, v->stride, v->dims);
        str_add(t, ")");
    }
    str_add(t, ")");
}

void text_bytes(Str *t, const Names *n, const Value *v) {
    str_add(t, "BYTES(");
    text_place(t, n, v);
    str_add(t, ", ");
    str_int(t, v->shape[0]);
    str_add(t, ")");
}

void text_tensor_initializer(Str *t, const Emit *e, const Value *v) {
    str_add(t, "{");
    str_hex(t, (uint64_t)emit_value_at(e, v), 1);
    str_add(t, emit_value_host(e, v) ? ", 1, " : ", 0, ");
    str_add(t, c_dtype(v->dtype));
    str_add(t, ", ");
    str_int(t, v->dims);
    str_add(t, ", 1, {");
    add_numbers(t, v->shape, v->dims);
    str_add(t, "}, {");
    add_numbers(t, v->stride, v->dims);
    str_add(t, "}, 0}");
}

uint64_t emit_event_written(const Op *op) {
    uint64_t mask = ((uint64_t)1 << op->nout) - 1;
    int first = op->body ? op->nout : op_slot_count(op_info[op->kind].results);
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && op_updates(op, k) && op->phase != RECOMPUTE) /* clones leave states alone */
            mask |= (uint64_t)1 << (first + k);
    return mask;
}
