/* What a model file finds in its global table: Lua's harmless libraries, with a sorted `pairs` and names that are
 * checked. Relies on: keys.c, load.c, limits.c, pytorch.c. Relied on by: sandbox.c. */
#include "sandbox.h"
#include "visible.h"

/* ── names that do not exist ─────────────────────────────────────────────────────────────────────────────────────── */
/* __index of a strict table. Upvalue 1 is the table's name, "" for the globals. */
static int missing(lua_State *L) {
    static const char *const forbidden[] = {"io",     "os",       "debug", "package", "coroutine",
                                            "dofile", "loadfile", "pcall", "xpcall",  "collectgarbage"};
    const char *what = lua_tostring(L, lua_upvalueindex(1));
    if (lua_type(L, 2) != LUA_TSTRING) sandbox_fail(L, "%s has no field [%s]", what, luaL_tolstring(L, 2, NULL));
    const char *name = lua_tostring(L, 2);
    for (size_t i = 0; !*what && i < sizeof forbidden / sizeof *forbidden; i++)
        if (!strcmp(forbidden[i], name))
            sandbox_fail(
                L,
                "'%s' does not exist here: a model file runs in a sandbox without access to files, commands and "
                "other programs",
                name);
    if (!strcmp(what, "math") && !strncmp(name, "random", 6))
        sandbox_fail(
            L,
            "math.%s does not exist here: a model is the same in every compilation; initial values come from nn.init",
            name);
    if (!*what && (!strcmp(name, "nn") || !strcmp(name, "optim")))
        sandbox_fail(L, "undefined name '%s'; begin the file with local %s = require \"%s\"", name, name, name);
    const char *tail = sandbox_suggestion(L, what, 1, name);
    if (*what) sandbox_fail(L, "%s has no field '%s'%s", what, name, tail);
    sandbox_fail(L, "undefined name '%s'%s", name, tail);
}

void sandbox_strict(lua_State *L, int table, const char *what) {
    table = lua_absindex(L, table);
    lua_createtable(L, 0, 2);
    lua_pushstring(L, what);
    lua_pushcclosure(L, missing, 1);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, table);
}

/* ── sorted pairs ────────────────────────────────────────────────────────────────────────────────────────────────── */
static int next_pair(lua_State *L) { /* upvalues: keys, position */
    for (;;) {
        lua_Integer i = lua_tointeger(L, lua_upvalueindex(2)) + 1;
        lua_pushinteger(L, i);
        lua_replace(L, lua_upvalueindex(2));
        if (lua_rawgeti(L, lua_upvalueindex(1), i) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
        lua_rawget(L, 1);
        if (!lua_isnil(L, -1)) return 2;
        lua_pop(L, 2); /* removed since the keys were sorted */
    }
}

static int sorted_pairs(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    sandbox_sorted_keys(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, next_pair, 2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* The registry's field that keeps the sorted keys of the tables that `next` was called on. */
static const char NEXT[] = "shardc.next";

static int sorted_next(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    if (!luaL_getsubtable(L, LUA_REGISTRYINDEX, NEXT)) {
        lua_createtable(L, 0, 1);
        lua_pushliteral(L, "k"); /* weak keys: a table that nothing else refers to can be collected */
        lua_setfield(L, -2, "__mode");
        lua_setmetatable(L, 3);
    }
    lua_pushvalue(L, 1);
    lua_rawget(L, 3);
    lua_Integer i = 0;
    if (!lua_isnil(L, 2) && !lua_isnil(L, 4)) i = sandbox_place_of_key(L, 4);
    if (!i) { /* at the first key, or where the table's keys have changed: sort them anew */
        lua_settop(L, 3);
        sandbox_sorted_keys(L, 1);
        lua_pushvalue(L, 1);
        lua_pushvalue(L, 4);
        lua_rawset(L, 3);
        if (!lua_isnil(L, 2) && !(i = sandbox_place_of_key(L, 4))) return luaL_error(L, "next: no such key");
    }
    do {
        if (lua_rawgeti(L, 4, ++i) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
    } while (lua_rawget(L, 1) == LUA_TNIL && (lua_settop(L, 4), true)); /* removed since the keys were sorted */
    return 2;
}

/* ── other replacements ──────────────────────────────────────────────────────────────────────────────────────────── */
static int safe_tostring(lua_State *L) { /* addresses would differ from run to run */
    luaL_checkany(L, 1);
    int t = lua_type(L, 1);
    if ((t == LUA_TTABLE || t == LUA_TFUNCTION) && !luaL_getmetafield(L, 1, "__tostring"))
        lua_pushstring(L, lua_typename(L, t));
    else
        luaL_tolstring(L, 1, NULL);
    return 1;
}

static int safe_print(lua_State *L) { /* to stderr: stdout holds reports */
    int n = lua_gettop(L);
    luaL_Buffer line;
    luaL_buffinit(L, &line);
    for (int i = 1; i <= n; i++) {
        lua_pushcfunction(L, safe_tostring);
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
        if (i > 1) luaL_addchar(&line, '\t');
        luaL_addvalue(&line);
    }
    luaL_addchar(&line, '\n');
    luaL_pushresult(&line);
    size_t size;
    const char *text = lua_tolstring(L, -1, &size);
    sandbox_printed(L, size);
    if (!sandbox_of(L)->quiet) sc_put_visible(stderr, text, size);
    return 0;
}

static int safe_setmetatable(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_type(L, 2) == LUA_TTABLE) {
        lua_getfield(L, 2, "__gc"); /* finalizers run where no limit reaches */
        if (!lua_isnil(L, -1)) sandbox_fail(L, "setmetatable: __gc does not exist here");
        lua_pop(L, 1);
    }
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

static int safe_load(lua_State *L) {
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    if (sandbox_load(L, text, n, "=load") == LUA_OK) return 1;
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
}

static void remove_fields(lua_State *L, const char *const *names) {
    for (; *names; names++) {
        lua_pushnil(L);
        lua_setfield(L, -2, *names);
    }
}

static void strict_library(lua_State *L, const char *name, const char *const *removed) {
    lua_getglobal(L, name);
    remove_fields(L, removed);
    sandbox_strict(L, -1, name);
    lua_pop(L, 1);
}

void sandbox_open_libs(lua_State *L) {
    static const luaL_Reg libs[] = {{"_G", luaopen_base},     {"math", luaopen_math}, {"string", luaopen_string},
                                    {"table", luaopen_table}, {"utf8", luaopen_utf8}, {NULL, NULL}};
    static const luaL_Reg own[] = {{"pairs", sorted_pairs},
                                   {"next", sorted_next},
                                   {"tostring", safe_tostring},
                                   {"print", safe_print},
                                   {"load", safe_load},
                                   {"require", sandbox_require},
                                   {NULL, NULL}};
    for (const luaL_Reg *l = libs; l->name; l++) {
        luaL_requiref(L, l->name, l->func, 1);
        lua_pop(L, 1);
    }
    strict_library(L, "math", (const char *const[]){"random", "randomseed", NULL});
    strict_library(L, "string", (const char *const[]){"dump", NULL});
    strict_library(L, "table", (const char *const[]){NULL});
    strict_library(L, "utf8", (const char *const[]){NULL});
    lua_pushglobaltable(L);
    lua_getfield(L, -1, "setmetatable");
    lua_pushcclosure(L, safe_setmetatable, 1);
    lua_setfield(L, -2, "setmetatable");
    remove_fields(L, (const char *const[]){"dofile", "loadfile", "pcall", "xpcall", "collectgarbage", "warn", NULL});
    luaL_setfuncs(L, own, 0);
    sandbox_strict(L, -1, "");
    lua_pop(L, 1);
}
