/* Parameters and buffers: made by nn.parameter and nn.buffer, named by the modules that hold them, ordered by first
 * use. Relies on: handles.c, args.c. Relied on by: nn.lua, tensor.c, training.c. */
#include "fe.h"
#include "number.h"

#include <math.h>
#include <stdlib.h>

/* ── making ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const struct {
    const char *name;
    InitKind kind;
} inits[] = {{"zeros", SC_ZEROS},   {"ones", SC_ONES},       {"constant", SC_CONSTANT},
             {"normal", SC_NORMAL}, {"uniform", SC_UNIFORM}, {"trunc_normal", SC_TRUNC_NORMAL}};

/* param(what, shape, init name, a, b, dtype, requires_grad, is_buffer, experts) */
static int prim_param(lua_State *L) {
    Frontend *f = fe_of(L);
    const char *what = luaL_checkstring(L, 1), *init = luaL_checkstring(L, 3);
    ParamInfo *info = NEW(f->arena, ParamInfo);
    Param *p = &info->param;
    if (f->program)
        trace_fail(L, NULL, "%s: made while the model is traced; make parameters where their module is made", what);
    p->dims = field_to_shape(L, 2, what, p->shape);
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++)
        if (!strcmp(inits[i].name, init)) p->init = inits[i].kind;
    p->init_a = luaL_optnumber(L, 4, 0);
    p->init_b = luaL_optnumber(L, 5, 0);
    double lost = !sc_fits_fp32(p->init_a) ? p->init_a : p->init_b;
    if (!sc_fits_fp32(lost)) sandbox_fail(L, "%s: init: %g; " FP32_RANGE, what, lost, (float)lost, SC_LEAST_FP32);
    p->dtype = field_to_dtype(L, 6, what);
    trace_need_number(L, what, p->init_a, p->init == SC_CONSTANT ? p->dtype : FP32);
    p->requires_grad = lua_toboolean(L, 7);
    p->is_buffer = lua_toboolean(L, 8);
    p->experts = lua_toboolean(L, 9);
    p->split = 1;
    if (p->dtype == FP8_E4M3 || p->dtype == FP8_E5M2)
        sandbox_fail(L, "%s: parameters are not stored in fp8; use fp32, bf16 or fp16", what);
    if (!p->is_buffer && !dtype_float(p->dtype))
        sandbox_fail(L, "%s: a parameter of dtype %s; use fp32, bf16 or fp16, or nn.buffer for what is not trained",
                     what, dtype_name(p->dtype));
    p->src = sandbox_source(L);
    p->id = -1;
    push(&f->params, f->arena, info);
    Tensor *t = lua_newuserdatauv(L, sizeof *t, 0);
    *t = (Tensor){.param = info};
    luaL_setmetatable(L, "shardc.tensor");
    return 1;
}

static int prim_freeze(lua_State *L) { /* tensor */
    Tensor *t = tensor_at(L, 1);
    if (t && t->param) t->param->param.requires_grad = false;
    lua_pushboolean(L, t && t->param);
    return 1;
}

/* store_in(tensor, what, dtype): a frozen parameter is kept in another dtype. */
static int prim_store_in(lua_State *L) {
    Param *p = &tensor_at(L, 1)->param->param;
    Dtype d = field_to_dtype(L, 3, luaL_checkstring(L, 2));
    if (!dtype_float(d) || dtype_size(d) < 2)
        sandbox_fail(L, "%s: dtype = \"%s\"; parameters are stored in fp32, bf16 or fp16", lua_tostring(L, 2),
                     dtype_name(d));
    if (dtype_float(p->dtype) && !p->is_buffer) p->dtype = d;
    return 0;
}

/* pack(weight, scales): a frozen matrix is kept in int8, its rows over their scales. The scales begin as what the
 * largest initial value needs; a normal one is cut at 4 standard deviations. */
static int prim_pack(lua_State *L) {
    Param *w = &tensor_at(L, 1)->param->param, *s = &tensor_at(L, 2)->param->param;
    double a = fabs(w->init_a), b = fabs(w->init_b);
    double most = w->init == SC_UNIFORM        ? fmax(a, b)
                  : w->init == SC_NORMAL       ? a + 4 * b
                  : w->init == SC_TRUNC_NORMAL ? a + 2 * b
                  : w->init == SC_CONSTANT     ? a
                                               : w->init == SC_ONES;
    s->init = SC_CONSTANT;
    s->init_a = most > 0 ? most / 127 : 1;
    if (w->init == SC_ONES) w->init = SC_CONSTANT, w->init_a = 1;
    w->init_a /= s->init_a;
    w->init_b /= s->init_a;
    w->dtype = INT8;
    w->scales = s;
    return 0;
}

/* copies(tensor, of): a frozen parameter begins as another does, at random or by weights, and no file has it. */
static int prim_copies(lua_State *L) {
    Param *p = &tensor_at(L, 1)->param->param;
    const Param *of = &tensor_at(L, 2)->param->param;
    p->init = of->init;
    p->init_a = of->init_a;
    p->init_b = of->init_b;
    p->copies = of;
    return 0;
}

/* adapt(weight, a, b, scale, length): exports may add scale b a to the weight. length: nil, or what the lengths of the
 * sum's rows are more than those of the weight's. */
static int prim_adapt(lua_State *L) {
    Param *w = &tensor_at(L, 1)->param->param;
    w->adapter = (Adapter){&tensor_at(L, 2)->param->param, &tensor_at(L, 3)->param->param,
                           lua_isnoneornil(L, 5) ? NULL : &tensor_at(L, 5)->param->param, luaL_checknumber(L, 4)};
    return 0;
}

/* stored(tensor, first, up, name...): files may have it as a tensor for each index of its first dimension and each
 * name, those of one index behind each other. */
static int prim_stored(lua_State *L) {
    Frontend *f = fe_of(L);
    Param *p = &tensor_at(L, 1)->param->param;
    Stored *s = p->stored = NEW(f->arena, Stored);
    s->first = (int)luaL_checkinteger(L, 2);
    s->up = lua_toboolean(L, 3);
    for (int i = 4; i <= lua_gettop(L) && s->n < MOST_STORED; i++)
        s->name[s->n++] = arena_strdup(f->arena, luaL_checkstring(L, i));
    return 0;
}

static int prim_sparse(lua_State *L) { /* tensor: a table whose gradient is exchanged by rows */
    tensor_at(L, 1)->param->param.sparse = true;
    lua_settop(L, 1);
    return 1;
}

/* ── naming ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Module *param_owner(const Frontend *f, const ParamInfo *p) {
    Module *m = p->holders.at[0].module;
    for (int i = 1; i < p->holders.n; i++) m = module_common_ancestor(m, p->holders.at[i].module);
    for (Module *up = m; up && !up->policy; up = up->parent) {
        const ModuleInfo *info = module_info(f, up);
        if (info && info->shared) m = up = info->shared;
        if (up->policy) break;
    }
    return m;
}

/* Of several paths, the one through the module that is running: the first use. */
static const char *path_here(const Frontend *f, const ParamInfo *p) {
    for (const Module *m = f->calls.n ? f->calls.at[f->calls.n - 1].module : NULL; m; m = m->parent)
        for (int i = 0; i < p->holders.n; i++)
            if (p->holders.at[i].module == m) return p->holders.at[i].path;
    return p->holders.at[0].path;
}

static void settle(Frontend *f, ParamInfo *info) {
    Param *p = &info->param;
    p->path = path_here(f, info);
    p->key = param_path_key(p->path);
    p->owner = param_owner(f, info);
    p->value = value_new(f->g, p->dtype, p->dims, p->shape);
    p->value->param = p;
    p->value->name = p->is_buffer ? p->path : NULL;
}

void param_use(Frontend *f, ParamInfo *info) {
    Param *p = &info->param;
    if (!info->holders.n)
        trace_fail(f->L, NULL,
                   "the %s %s made at %s:%d is used but is not part of the model: assign it to a field of a module",
                   p->is_buffer ? "buffer" : "parameter", param_str(f->arena, p), p->src.file, p->src.line);
    if (!p->value) settle(f, info);
    info->read = true;
    if (info->used || f->trace != 1) return; /* trace 1 is the training step */
    info->used = true;
    p->id = f->g->params.n;
    push(&f->g->params, f->arena, p);
}

static int by_path(const void *a, const void *b) {
    return strcmp((*(ParamInfo *const *)a)->param.path, (*(ParamInfo *const *)b)->param.path);
}

void params_finish(Frontend *f) {
    VEC(ParamInfo *) rest = {0};
    f->calls.n = 0;
    for (int i = 0; i < f->params.n; i++) {
        ParamInfo *info = f->params.at[i];
        if (!info->holders.n || info->used) continue;
        if (!info->param.value) settle(f, info);
        push(&rest, f->arena, info);
    }
    if (rest.n) qsort(rest.at, (size_t)rest.n, sizeof *rest.at, by_path);
    for (int i = 0; i < rest.n; i++) {
        rest.at[i]->param.id = f->g->params.n;
        push(&f->g->params, f->arena, &rest.at[i]->param);
    }
    for (int i = 0; i < f->g->params.n; i++) {
        const Param *p = f->g->params.at[i];
        if (p->copies && p->copies->id < 0)
            fail(p->src,
                 "nn.frozen_copy: '%s' is the copy of a parameter that is not part of the model; assign the module "
                 "that it copies to a field of the model, or of a module in it",
                 p->path);
    }
}

void params_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"param", prim_param},       {"freeze", prim_freeze}, {"sparse", prim_sparse},
                                         {"store_in", prim_store_in}, {"adapt", prim_adapt},   {"pack", prim_pack},
                                         {"stored", prim_stored},     {"copies", prim_copies}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
