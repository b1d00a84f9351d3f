/* nn.assign: values that go into buffers at a step's end. The training trace stores them in a state beside each buffer;
 * a trace of its own, which has what all microbatches and ranks gave, computes what the buffer gets.
 * Relies on: tensor.c, args.c, modules.c.
 * Relied on by: nn/assign.lua, training.c. */
#include "../ir/mesh.h"
#include "fe.h"

static void check_free(lua_State *L, const Param *p) {
    const Frontend *f = fe_of(L);
    for (int i = 0; i < f->assigns.n; i++)
        if (f->assigns.at[i].param == p)
            trace_fail(L, "assign one value that has all that it shall get",
                       "nn.assign: %s gets a value at %s:%d in the same step", p->path, f->assigns.at[i].src.file,
                       f->assigns.at[i].src.line);
}

static void check_not_updated(const Frontend *f, const Assign *a) {
    for (int i = 0; i < f->g->train->ops.n; i++) {
        const Op *op = f->g->train->ops.at[i];
        for (int k = 0; k < op->nin; k++)
            if (op->in[k] == a->param->value && op_updates(op, k))
                fail(a->src, "nn.assign: %s is updated by the %s at %s:%d; assign to a buffer of its own",
                     a->param->path, op_info[op->kind].name, op->src.file, op->src.line);
    }
}

/* begin_assign(buffer, elements, dtype, finish) -> [elements] of that dtype, which keeps what the step gives so far.
 * nil: this trace assigns nothing. finish(what all gave) is called when the step is traced, and returns what the
 * buffer gets. */
static int prim_begin(lua_State *L) {
    Frontend *f = fe_of(L);
    trace_needed(L, "nn.assign");
    trace_refuse_in_assign(L, "nn.assign");
    Tensor *t = tensor_at(L, 1);
    if (!t->param || !t->param->param.is_buffer)
        trace_fail(L, "make it with nn.buffer", "nn.assign: it takes a buffer first, not %s",
                   t->param ? arena_printf(f->arena, "the parameter %s", param_str(f->arena, &t->param->param))
                            : arena_printf(f->arena, "the tensor %s", value_str(f->arena, t->value)));
    Value *buffer = tensor_value(L, 1, "nn.assign");
    if (!f->training) return 0;
    Param *p = buffer->param;
    check_free(L, p);
    State *s = state_new(f->g, S_ASSIGN, arena_printf(f->arena, "%s/assigned", p->path),
                         field_to_dtype(L, 3, "nn.assign"), luaL_checkinteger(L, 2), NULL);
    s->param = p;
    lua_pushvalue(L, 4);
    Assign a = {.param = p,
                .state = s,
                .src = sandbox_source(L),
                .module = f->calls.at[f->calls.n - 1].module,
                .finish = luaL_ref(L, LUA_REGISTRYINDEX)};
    push(&f->assigns, f->arena, a);
    f->assigning = f->assigns.n;
    tensor_push(L, s->value);
    return 1;
}

/* keep_assign(state, value, add): what follows on begin_assign */
static int prim_keep(lua_State *L) {
    Value *state = tensor_value(L, 1, "nn.assign"), *value = tensor_value(L, 2, "nn.assign");
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    BUILD(&b, store, .value = value, .state = state, .add = lua_toboolean(L, 3));
    trace_finish(L, first);
    return 0;
}

/* sum_assign(state) -> the state, summed over all ranks */
static int prim_sum(lua_State *L) {
    Value *state = tensor_value(L, 1, "nn.assign");
    Graph *g = fe_of(L)->g;
    const Axis *all = g->axes.at[SC_WORLD];
    Builder b = trace_builder(L);
    if (all->size > 1)
        BUILD(&b, all_reduce, .x = state, .comm = mesh_group(g, all), .ranks = all->size)->purpose = TO_SUM_METRICS;
    lua_settop(L, 1);
    return 1;
}

static void finish(Frontend *f, const Assign *a) {
    lua_State *L = f->L;
    check_not_updated(f, a);
    f->calls.at[0].module = a->module;
    sandbox_of(L)->fallback = a->src;
    lua_rawgeti(L, LUA_REGISTRYINDEX, a->finish);
    tensor_push(L, a->state->value);
    lua_call(L, 1, 1);
    if (!tensor_at(L, -1))
        fail(a->src, "nn.assign: update returned %s; it must return what %s gets", field_type(L, -1), a->param->path);
    Value *v = tensor_value(L, -1, "nn.assign");
    const Param *p = a->param;
    if (!value_has_shape(v, p->dims, p->shape) || dtype_float(v->dtype) != dtype_float(p->dtype) ||
        (!dtype_float(v->dtype) && v->dtype != p->dtype))
        fail(a->src, "nn.assign: the buffer %s is %s and cannot take %s; reshape or cast it", p->path,
             param_str(f->arena, p), value_str(f->arena, v));
    Builder b = trace_builder(L);
    b.src = a->src;
    BUILD(&b, store, .value = v, .state = p->value);
    lua_pop(L, 1);
}

/* Ops continue the numbers of the training trace: both become one program. */
void assign_trace(Frontend *f) {
    if (!f->assigns.n) return;
    trace_begin(f, "assign", true, false);
    f->program->ntraced = f->g->train->ntraced;
    for (f->assigning = 0; f->assigning < f->assigns.n; f->assigning++) finish(f, &f->assigns.at[f->assigning]);
    sandbox_of(f->L)->fallback = f->training_at;
    f->g->assign = f->program;
    f->program = NULL;
}

void assign_open(lua_State *L) {
    static const luaL_Reg functions[] = {
        {"begin_assign", prim_begin}, {"keep_assign", prim_keep}, {"sum_assign", prim_sum}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
