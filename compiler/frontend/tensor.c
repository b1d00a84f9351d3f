/* The value that a tensor of Lua stands for within the running trace.
 * Relies on: handles.c, args.c (messages), params.c (a parameter that is used).
 * Relied on by: trace.c, pointwise.c, modules.c, training.c, scaler.c, extension.c. */
#include "fe.h"

void trace_needed(lua_State *L, const char *what) {
    if (!fe_of(L)->program)
        sandbox_fail(
            L, "%s: tensors are computed only inside `forward`, `loss` and `logits`, when nn.training traces the model",
            what);
}

Value *tensor_value(lua_State *L, int index, const char *what) {
    Frontend *f = fe_of(L);
    Tensor *t = tensor_at(L, index);
    if (!t && module_at(L, index))
        trace_fail(L, NULL, "%s: expected a tensor, got the module %s; call it: its result is a tensor", what,
                   module_at(L, index)->made_by);
    if (!t)
        trace_fail(L, lua_isnoneornil(L, index) ? "does the forward that computes it lack its `return`?" : NULL,
                   "%s: expected a tensor, got %s", what, field_type(L, index));
    trace_needed(L, what);
    if (t->param) {
        if (!t->param->param.is_buffer) trace_refuse_in_assign(L, what);
        param_use(f, t->param);
        return t->param->param.value;
    }
    if (t->trace != f->trace) trace_refuse_in_assign(L, what);
    if (t->trace != f->trace)
        trace_fail(L, NULL,
                   "%s: a tensor kept from an earlier trace (the model is traced for training, for evaluation and for "
                   "sampling); "
                   "compute it within this call of forward",
                   what);
    return t->value;
}
