/* Modules: made by nn.module, named by a walk of the tree, called while the model is traced.
 * Relies on: handles.c, tensor.c.
 * Relied on by: nn.lua, frontend.c, training.c. */
#include "fe.h"

#include <ctype.h>

enum { MAX_NESTING = 200 };

/* ── making ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int prim_module(lua_State *L) { /* kind, made_by, table or nil */
    Frontend *f = fe_of(L);
    ModuleInfo *m = NEW(f->arena, ModuleInfo);
    m->kind = arena_strdup(f->arena, luaL_checkstring(L, 1));
    m->made_by = arena_strdup(f->arena, luaL_optstring(L, 2, m->kind));
    m->made = sandbox_source(L);
    push(&f->modules, f->arena, m);
    lua_settop(L, 3);
    if (!lua_istable(L, 3)) lua_newtable(L);
    luaL_setmetatable(L, MODULE);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, MODULES);
    lua_pushvalue(L, -2);
    lua_pushlightuserdata(L, m);
    lua_rawset(L, -3);
    lua_pop(L, 1);
    return 1;
}

static int module_index(lua_State *L) { /* a field that is not there */
    if (lua_type(L, 2) != LUA_TSTRING) {
        lua_pushnil(L); /* where ipairs ends */
        return 1;
    }
    const ModuleInfo *m = module_at(L, 1);
    const char *name = lua_tostring(L, 2);
    if (!strcmp(name, "forward")) sandbox_fail(L, "%s has no forward: write function m:forward(x) ... end", m->made_by);
    const char *tail = sandbox_suggestion(L, "a module", 1, name);
    sandbox_fail(L, "%s, made at %s:%d, has no field '%s'%s", m->made_by, m->made.file, m->made.line, name,
                 *tail ? tail : " (a field that may be missing is set to false)");
}

static int module_newindex(lua_State *L) { /* a field that is not there yet */
    ModuleInfo *value = module_at(L, 3);
    if (lua_isnil(L, 3))
        sandbox_fail(
            L,
            "%s: the field %s is set to nil: does the function that makes it lack its `return`? (a field that may "
            "be missing is set to false)",
            module_at(L, 1)->made_by, luaL_tolstring(L, 2, NULL));
    if (value) value->held = true;
    lua_rawset(L, 1);
    return 0;
}

static int module_tostring(lua_State *L) {
    lua_pushstring(L, module_at(L, 1)->made_by);
    return 1;
}

static int prim_is_module(lua_State *L) {
    lua_pushboolean(L, module_at(L, 1) != NULL);
    return 1;
}

static int prim_on_call(lua_State *L) {
    luaL_getmetatable(L, MODULE);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "__call");
    return 0;
}

/* ── the walk ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const char *child_path(Frontend *f, const char *parent, int key) {
    lua_State *L = f->L;
    const char *dot = parent[0] ? "." : "";
    if (lua_isinteger(L, key))
        return arena_printf(f->arena, "%s%s%lld", parent, dot, (long long)lua_tointeger(L, key) - 1);
    return arena_printf(f->arena, "%s%s%s", parent, dot, lua_tostring(L, key));
}

static void check_key(Frontend *f, const ModuleInfo *m, int key) {
    lua_State *L = f->L;
    if (lua_isinteger(L, key) && lua_tointeger(L, key) >= 1) return;
    const char *s = lua_type(L, key) == LUA_TSTRING ? lua_tostring(L, key) : "";
    bool word = *s;
    for (const char *p = s; *p; p++) word &= isalnum((unsigned char)*p) || *p == '_';
    if (!word)
        fail(m->made, "%s: the field '%s' cannot be part of a path: use letters, digits and _", m->made_by,
             luaL_tolstring(L, key, NULL));
}

/* Modules in a plain table would silently not be part of the model. */
static void check_plain_table(Frontend *f, const ModuleInfo *m, const char *path, int table) {
    lua_State *L = f->L;
    table = lua_absindex(L, table);
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        bool param = tensor_at(L, -1) && tensor_at(L, -1)->param;
        if (module_at(L, -1) || param)
            fail(m->made, "%s: %s is a plain table that holds %s; write %s, so that they are part of the model",
                 m->made_by, path, param ? "parameters" : "modules",
                 lua_isinteger(L, -2) ? "nn.list { ... }" : "nn.module \"Name\", with a field for each");
    }
}

/* Visits a module's fields in the order of their names; the visitor finds key and value at the given stack indices. */
typedef void Visit(Frontend *f, ModuleInfo *m, const char *path, int key, int value);

static void each_field(Frontend *f, int table, ModuleInfo *m, const char *path, Visit *visit) {
    lua_State *L = f->L;
    luaL_checkstack(L, 12, "nested modules");
    table = lua_absindex(L, table);
    sandbox_sorted_keys(L, table);
    int keys = lua_gettop(L);
    for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++) {
        lua_pushvalue(L, -1);
        lua_rawget(L, table);
        visit(f, m, path, keys + 1, keys + 2);
        lua_settop(L, keys);
    }
    lua_settop(L, keys - 1);
}

/* First walk: how far each module is from the root. One that is held in several places is named by the shortest path.
 */
static void measure_field(Frontend *f, ModuleInfo *m, const char *path, int key, int value) {
    lua_State *L = f->L;
    ModuleInfo *child = module_at(L, value);
    Tensor *t = tensor_at(L, value);
    if (child || (t && t->param)) check_key(f, m, key);
    if (lua_isinteger(L, key) && lua_tointeger(L, key) != ++m->entries)
        fail(m->made, "%s: entry %d is missing, and entry %lld is there; ipairs and # end before the gap: close it",
             m->made_by, m->entries, (long long)lua_tointeger(L, key));
    if (!child && lua_istable(L, value)) check_plain_table(f, m, child_path(f, path, key), value);
    if (!child) return;
    const char *at = child_path(f, path, key);
    if (child->open)
        fail(m->made,
             "module cycle: %s is %s, which contains it; keep a reference to a module above in a local variable, not "
             "in a field",
             at, child->open[0] ? child->open : "the model itself");
    if (child->depth && child->depth <= m->depth + 1) return;
    child->depth = m->depth + 1;
    if (child->depth > MAX_NESTING)
        fail(m->made, "modules are nested more than %d deep at %.80s...; flatten them", MAX_NESTING, at);
    child->open = at;
    child->entries = 0;
    each_field(f, value, child, at, measure_field);
    child->open = NULL;
}

/* Second walk: each module's place in the tree. */
static void place(Frontend *f, int table, ModuleInfo *m, Module *parent, const char *path) {
    lua_pushstring(f->L, "forward");
    m->callable = lua_rawget(f->L, table) != LUA_TNIL;
    lua_pop(f->L, 1);
    m->ir = NEW(f->arena, Module);
    *m->ir = (Module){.id = f->g->modules.n,
                      .path = path,
                      .kind = m->kind,
                      .made = m->made,
                      .parent = parent,
                      .checkpoint = m->checkpoint,
                      .policy = m->policy};
    push(&f->g->modules, f->arena, m->ir);
    push(&f->placed, f->arena, m);
}

static void place_field(Frontend *f, ModuleInfo *m, const char *path, int key, int value) {
    ModuleInfo *child = module_at(f->L, value);
    if (!child || child->ir || child->depth != m->depth + 1) return;
    place(f, value, child, m->ir, child_path(f, path, key));
    each_field(f, value, child, child->ir->path, place_field);
}

/* Third walk, each module once: who holds parameters, and modules that have their place elsewhere. */
static void hold_field(Frontend *f, ModuleInfo *m, const char *path, int key, int value) {
    ModuleInfo *child = module_at(f->L, value);
    Tensor *t = tensor_at(f->L, value);
    if (t && t->param) {
        Holder h = {m->ir, child_path(f, path, key)};
        push(&t->param->holders, f->arena, h);
    }
    if (!child) return;
    bool here = child->ir->parent == m->ir && !strcmp(child->ir->path, child_path(f, path, key));
    if (here)
        each_field(f, value, child, child->ir->path, hold_field);
    else
        child->shared = module_common_ancestor(child->shared ? child->shared : child->ir->parent, m->ir);
}

void modules_walk(Frontend *f, int model) {
    ModuleInfo *m = module_at(f->L, model);
    m->depth = 1;
    m->open = "";
    each_field(f, model, m, "", measure_field);
    m->open = NULL;
    place(f, model, m, NULL, "");
    f->g->root = m->ir;
    each_field(f, model, m, "", place_field);
    each_field(f, model, m, "", hold_field);
}

/* ── modules without use ────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Is some part of a module that is not in the model itself? Whoever takes a weight out of a module has used it. */
static bool lends_a_part(Frontend *f, int table, int depth) {
    lua_State *L = f->L;
    bool lends = depth == MAX_NESTING;
    luaL_checkstack(L, 12, "nested modules");
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        const ModuleInfo *child = module_at(L, -1);
        const Tensor *t = tensor_at(L, -1);
        lends |= (child && child->ir) || (t && t->param && t->param->holders.n);
        if (child && !lends) lends = lends_a_part(f, lua_gettop(L), depth + 1);
    }
    return lends;
}

/* A module that was made and put nowhere: above all what a constructor without `return` made. One that was held, and
 * whose place another one has now, is none. */
static void refuse_loose(Frontend *f) {
    lua_State *L = f->L;
    luaL_getsubtable(L, LUA_REGISTRYINDEX, MODULES);
    int all = lua_gettop(L);
    for (int i = 0; i < f->modules.n; i++) {
        const ModuleInfo *m = f->modules.at[i];
        if (m->ir || m->held) continue;
        lua_pushnil(L);
        while (lua_next(L, all) && lua_touserdata(L, -1) != m) lua_pop(L, 1);
        if (!lends_a_part(f, lua_gettop(L) - 1, 0))
            fail(m->made,
                 "%s is made and is part of nothing: does the function that makes it lack its `return`? Assign it to "
                 "a field of a module (nn.list for several), or do not make it",
                 m->made_by);
        lua_settop(L, all);
    }
    lua_settop(L, all - 1);
}

void modules_unused(Frontend *f) {
    int n = f->placed.n;
    bool *used = NEW_ARRAY(f->arena, bool, n), *within = NEW_ARRAY(f->arena, bool, n); /* within an unused one */
    refuse_loose(f);
    for (int i = 0; i < f->params.n; i++)
        for (int k = 0; f->params.at[i]->read && k < f->params.at[i]->holders.n; k++)
            used[f->params.at[i]->holders.at[k].module->id] = true;
    for (int i = n - 1; i >= 0; i--) { /* what a module holds comes after it */
        const Module *parent = f->placed.at[i]->ir->parent;
        used[i] |= f->placed.at[i]->called;
        if (parent) used[parent->id] |= used[i];
    }
    for (int i = 0; i < n; i++) {
        Module *m = f->placed.at[i]->ir;
        within[i] = m->parent && (within[m->parent->id] || m->parent->unused);
        m->unused = !used[i] && !within[i] && f->placed.at[i]->callable;
    }
}

/* ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void trace_begin(Frontend *f, const char *name, bool training, bool sampling) {
    f->program = NEW(f->arena, Program);
    f->program->name = name;
    f->training = training;
    f->sampling = sampling;
    f->trace++;
    f->regions = 0;
    f->calls.n = 0;
    for (int i = 0; i < f->modules.n; i++) f->modules.at[i]->calls = 0;
    Call root = {
        .module = f->g->root, .call = -1, .randoms = NEW(f->arena, int)}; /* outside of every module call: the loss */
    push(&f->calls, f->arena, root);
}

static _Noreturn void too_deep(Frontend *f) {
    const Module *again = NULL; /* the outermost module that is called within itself */
    for (int i = 1; i < f->calls.n && !again; i++)
        for (int k = i + 1; k < f->calls.n; k++)
            if (f->calls.at[i].module == f->calls.at[k].module) again = f->calls.at[i].module;
    sandbox_fail(f->L, "modules call each other more than %d deep%s%s%s", MAX_NESTING, again ? ": does " : "",
                 !again           ? ""
                 : again->path[0] ? again->path
                                  : "the model",
                 again ? " call itself?" : "; flatten them");
}

static void enter(Frontend *f, Module *module, int call, int *randoms, Checkpoint *checkpoint) {
    const Call *outer = &f->calls.at[f->calls.n - 1];
    Call c = {
        .module = module, .call = call, .region = outer->region, .randoms = randoms, .checkpoint = outer->checkpoint};
    if (f->calls.n >= MAX_NESTING) too_deep(f);
    /* The outermost one counts, unless it only offloads and this one recomputes. */
    if (checkpoint && (!c.region || (checkpoint->recompute && !c.checkpoint->recompute))) {
        c.region = ++f->regions;
        c.checkpoint = checkpoint;
    }
    push(&f->calls, f->arena, c);
}

/* ── borders of units ───────────────────────────────────────────────────────────────────────────────────────────────
 * What a unit that casts is given, and what it gives: floating-point tensors, also in tables, which are copied then (as
 * FSDP2 copies its containers). */
static void cross_border(Frontend *f, int index, Module *unit, bool leaves, int depth);

static void cross_table(Frontend *f, int index, Module *unit, bool leaves, int depth) {
    lua_State *L = f->L;
    if (depth == MAX_NESTING)
        sandbox_fail(L, "tables are nested more than %d deep, or contain themselves", MAX_NESTING);
    luaL_checkstack(L, 12, "nested tables");
    lua_newtable(L);
    int copy = lua_gettop(L);
    sandbox_sorted_keys(L, index);
    for (int i = 1; lua_rawgeti(L, copy + 1, i) != LUA_TNIL; i++) {
        lua_pushvalue(L, -1);
        lua_rawget(L, index);
        cross_border(f, copy + 3, unit, leaves, depth + 1);
        lua_rawset(L, copy);
    }
    lua_settop(L, copy);
    lua_replace(L, index);
}

/* Replaces what lies at the index. Tables with metatables are objects, and modules: they stay. */
static void cross_border(Frontend *f, int index, Module *unit, bool leaves, int depth) {
    lua_State *L = f->L;
    const Tensor *t = tensor_at(L, index);
    if (!t) {
        bool object = lua_getmetatable(L, index);
        if (object) lua_pop(L, 1);
        if (lua_istable(L, index) && !object) cross_table(f, index, unit, leaves, depth);
        return;
    }
    Value *v = tensor_value(L, index, "call");
    if (!dtype_float(v->dtype)) return;
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    v = build_border(&b, v, unit, leaves);
    trace_finish(L, first);
    tensor_push(L, v);
    lua_replace(L, index);
}

static void cross_borders(Frontend *f, int first, Module *m, bool leaves) {
    const UnitPolicy *p = m ? m->policy : NULL;
    if (!p || !(leaves ? p->has_output_dtype : p->has_param_dtype && p->cast_forward_inputs)) return;
    for (int i = first; i <= lua_gettop(f->L); i++) cross_border(f, i, m, leaves, 0);
}

static int prim_enter(lua_State *L) { /* module, arguments; returns these */
    Frontend *f = fe_of(L);
    ModuleInfo *m = module_at(L, 1);
    if (!f->program)
        sandbox_fail(L, "%s is called outside of a trace; call modules inside `forward`, `loss` and `logits` only",
                     m->made_by);
    if (!m->ir)
        sandbox_fail(
            L,
            "%s, made at %s:%d, is called but is not part of the model: assign it to a field of a module (nn.list "
            "for several)",
            m->made_by, m->made.file, m->made.line);
    m->called = true;
    enter(f, m->ir, m->calls++, NEW(f->arena, int), m->checkpoint);
    f->calls.at[f->calls.n - 1].called = m->ir;
    cross_borders(f, 2, m->ir, false);
    return lua_gettop(L) - 1;
}

static int prim_leave(lua_State *L) { /* ends the running call; returns its arguments, the results */
    Frontend *f = fe_of(L);
    Module *m = f->calls.at[f->calls.n - 1].called;
    f->calls.n--;
    cross_borders(f, 1, m, true);
    return lua_gettop(L);
}

/* nn.checkpoint: a region of its own in the running call */
static int prim_enter_checkpoint(lua_State *L) {
    Frontend *f = fe_of(L);
    if (!f->program)
        sandbox_fail(L, "nn.checkpoint belongs inside forward; for a whole module there is nn.checkpoint_wrapper");
    Call *c = &f->calls.at[f->calls.n - 1];
    enter(f, c->module, c->call, c->randoms, lua_touserdata(L, 1));
    return 0;
}

/* A key of a random op, from module path, call, and its ordinal there: it does not move when other parts of the model
 * change. */
static int prim_random_key(lua_State *L) {
    Frontend *f = fe_of(L);
    trace_refuse_in_assign(L, "random numbers");
    Call *c = &f->calls.at[f->calls.n - 1];
    uint64_t key = param_path_key(arena_printf(f->arena, "%s#%d#%d", c->module->path, c->call, (*c->randoms)++));
    lua_pushinteger(L, (lua_Integer)(key >> 12)); /* 52 bits: JSON keeps them */
    return 1;
}

static int prim_training_mode(lua_State *L) {
    if (!fe_of(L)->program)
        sandbox_fail(L, "nn.training_mode() is known only while the model is traced: ask inside forward");
    lua_pushboolean(L, fe_of(L)->training);
    return 1;
}

/* The kind of the module that runs: remedies name its constructor. */
static int prim_running_kind(lua_State *L) {
    Frontend *f = fe_of(L);
    lua_pushstring(L, f->calls.n ? f->calls.at[f->calls.n - 1].module->kind : "");
    return 1;
}

void modules_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"module", prim_module},
                                         {"is_module", prim_is_module},
                                         {"on_call", prim_on_call},
                                         {"enter", prim_enter},
                                         {"leave", prim_leave},
                                         {"enter_checkpoint", prim_enter_checkpoint},
                                         {"random_key", prim_random_key},
                                         {"training_mode", prim_training_mode},
                                         {"running_kind", prim_running_kind},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    luaL_newmetatable(L, MODULE);
    lua_pushcfunction(L, module_index);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, module_newindex);
    lua_setfield(L, -2, "__newindex");
    lua_pushcfunction(L, module_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
