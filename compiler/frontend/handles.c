/* What stands behind Lua's tensors, modules and scalers, and where the running trace is: the module that messages name
 * and that ops belong to. Relies on: fe.h. Relied on by: the rest of frontend/. */
#include "fe.h"

#include <float.h>
#include <math.h>

/* ── what a value of Lua is ──────────────────────────────────────────────────────────────────────────────────────── */
Tensor *tensor_at(lua_State *L, int index) {
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return NULL;
    bool is = lua_topointer(L, -1) == fe_of(L)->tensors;
    lua_pop(L, 1);
    return is ? lua_touserdata(L, index) : NULL;
}

void tensor_push(lua_State *L, Value *v) {
    Tensor *t = lua_newuserdatauv(L, sizeof *t, 0);
    *t = (Tensor){.value = v, .trace = fe_of(L)->trace};
    luaL_setmetatable(L, TENSOR);
}

const char *param_str(Arena *a, const Param *p) {
    Value v = {.dtype = p->dtype, .dims = p->dims};
    memcpy(v.shape, p->shape, sizeof v.shape);
    return value_str(a, &v);
}

ModuleInfo *module_at(lua_State *L, int index) {
    if (lua_type(L, index) != LUA_TTABLE) return NULL;
    index = lua_absindex(L, index);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, MODULES);
    lua_pushvalue(L, index);
    lua_rawget(L, -2);
    ModuleInfo *m = lua_touserdata(L, -1);
    lua_pop(L, 2);
    return m;
}

ModuleInfo *module_info(const Frontend *f, const Module *m) {
    return m ? f->placed.at[m->id] : NULL;
}

Module *module_common_ancestor(Module *a, const Module *b) {
    while (!module_within(b, a)) a = a->parent;
    return a;
}

uint64_t param_path_key(const char *path) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a, then a finalizer (Stafford's mix 13): paths differ in few bits */
    for (; *path; path++) h = (h ^ (unsigned char)*path) * 0x100000001b3u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

bool scaler_at(lua_State *L, int index) {
    void **p = luaL_testudata(L, index, SCALER);
    return p && *p;
}

/* ── the running trace ───────────────────────────────────────────────────────────────────────────────────────────── */
void trace_fail(lua_State *L, const char *remedy, const char *fmt, ...) {
    Frontend *f = fe_of(L);
    va_list ap;
    va_start(ap, fmt);
    Str s = {.arena = f->arena};
    str_add(&s, arena_vprintf(f->arena, fmt, ap));
    va_end(ap);
    const ModuleInfo *m = f->calls.n ? module_info(f, f->calls.at[f->calls.n - 1].module) : NULL;
    if (m && m->ir->path[0])
        str_addf(&s, "\n  in %s = %s, made at %s:%d", m->ir->path, m->made_by, m->made.file, m->made.line);
    if (remedy && *remedy) str_addf(&s, "; %s", remedy);
    fail(sandbox_source(L), "%s", s.s);
}

void trace_refuse_in_assign(lua_State *L, const char *what) {
    if (fe_of(L)->assigning < fe_of(L)->assigns.n)
        trace_fail(L, "do it in forward, before nn.assign",
                   "%s: nn.assign's update computes from buffers and from what was reduced, and from nothing else",
                   what);
}

/* The largest number that a dtype holds. */
static double largest(Dtype d) {
    switch (d) {
    case FP32: return FLT_MAX;
    case BF16: return 0x1.fep127;
    case FP16: return 65504;
    case FP64: return DBL_MAX;
    case FP8_E4M3: return 448;
    case FP8_E5M2: return 57344;
    case INT32: return INT32_MAX;
    case INT64: return 0x1p53; /* of those that Lua's numbers and ours count exactly */
    case INT8: return 127;
    default: return 1;
    }
}

void trace_need_number(lua_State *L, const char *what, double x, Dtype d) {
    bool whole = !dtype_float(d), small = fabs(x) <= largest(d) || (d == INT32 && x == INT32_MIN);
    if (isnan(x)) trace_fail(L, "does the model divide 0 by 0?", "%s: the number is NaN, which is no number", what);
    if ((isinf(x) && !whole) || (small && (!whole || x == floor(x)) && (d != BOOL || x >= 0))) return;
    trace_fail(L, "give another number or another dtype", "%s: %s cannot hold the number %.14g", what, dtype_name(d),
               x);
}

Builder trace_builder(lua_State *L) {
    Frontend *f = fe_of(L);
    Builder b = {.g = f->g, .p = f->program, .module = f->g->root, .src = sandbox_source(L), .phase = FORWARD};
    if (f->calls.n) {
        b.module = f->calls.at[f->calls.n - 1].module;
        b.call = f->calls.at[f->calls.n - 1].call;
    }
    if (!b.src.file) b.src = f->training_at;
    return b;
}

void trace_finish(lua_State *L, int first) {
    Frontend *f = fe_of(L);
    if (!f->calls.n) return;
    const Call *c = &f->calls.at[f->calls.n - 1];
    for (int i = first; i < f->program->ops.n; i++) {
        f->program->ops.at[i]->checkpoint = c->checkpoint;
        f->program->ops.at[i]->region = c->region;
    }
}
