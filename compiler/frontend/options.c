/* nn.options: what `--set key=value` may change, typed by example.
 * Relies on: args.c.
 * Relied on by: frontend.c; models/. */
#include "../ir/training.h"
#include "fe.h"
#include "number.h"

#include <math.h>

static const char CHOICE[] = "shardc.choice", OPTIONAL_OF[] = "shardc.optional";

/* nn.choice("a", "b", ...): a table marked by its metatable; the first is the default. */
static int choice(lua_State *L) {
    int n = lua_gettop(L);
    if (n < 1) sandbox_fail(L, "nn.choice: give the choices, the default first: nn.choice(\"none\", \"full\")");
    lua_createtable(L, n, 0);
    for (int i = 1; i <= n; i++) {
        int type = lua_type(L, i);
        if (type != LUA_TSTRING && type != LUA_TNUMBER)
            sandbox_fail(L, "nn.choice: choice %d is %s; choices are strings or numbers", i, field_type(L, i));
        if (type != lua_type(L, 1))
            sandbox_fail(L, "nn.choice: choice %d is %s, but the first is %s; choices are of one type", i,
                         field_type(L, i), field_type(L, 1));
        lua_pushvalue(L, i);
        lua_rawseti(L, -2, i);
    }
    luaL_newmetatable(L, CHOICE);
    lua_setmetatable(L, -2);
    return 1;
}

static int optional(lua_State *L) {
    static const char *const types[] = {"number", "integer", "string", "boolean"};
    const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
    bool known = false;
    for (int i = 0; i < 4; i++) known |= !strcmp(name, types[i]);
    if (!known)
        sandbox_fail(L, "nn.optional: expected \"number\", \"integer\", \"string\" or \"boolean\", got %s%s",
                     field_type(L, 1), field_nearest(fe_of(L)->arena, name, types, 4));
    lua_createtable(L, 1, 0);
    lua_pushstring(L, name);
    lua_rawseti(L, -2, 1);
    luaL_newmetatable(L, OPTIONAL_OF);
    lua_setmetatable(L, -2);
    return 1;
}

static bool has_metatable(lua_State *L, int index, const char *name) {
    if (!lua_getmetatable(L, index)) return false;
    luaL_getmetatable(L, name);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is;
}

/* ── one option ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static _Noreturn void bad_value(Frontend *f, const char *key, const char *text, const char *expected) {
    fail(sandbox_key_source(f->L, f->options_at, key), "--set %s=%s: %s must be %s", key, text, key, expected);
}

static void push_number(Frontend *f, const char *key, const char *text, bool whole) {
    double x;
    if (!sc_read_number(text, &x) || (whole && (x != floor(x) || fabs(x) > 1e15)))
        bad_value(f, key, text,
                  whole ? "a whole number, of at most 1e15" : "a number, decimal and within a double's range");
    if (x == floor(x) && fabs(x) < 1e15 && (whole || !strpbrk(text, ".eE")))
        lua_pushinteger(f->L, (lua_Integer)x);
    else
        lua_pushnumber(f->L, x);
}

static void push_boolean(Frontend *f, const char *key, const char *text) {
    bool yes = !strcmp(text, "true") || !strcmp(text, "1"), no = !strcmp(text, "false") || !strcmp(text, "0");
    if (!yes && !no) bad_value(f, key, text, "true or false");
    lua_pushboolean(f->L, yes);
}

static void push_choice(Frontend *f, const char *key, const char *text, int example) {
    Str list = {.arena = f->arena};
    int n = (int)lua_rawlen(f->L, example);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(f->L, example, i);
        lua_pushvalue(f->L, -1); /* tostring would change a number into text */
        const char *s = lua_tostring(f->L, -1);
        bool is = !strcmp(s, text);
        if (is) {
            lua_pop(f->L, 1);
            return;
        }
        str_addf(&list, "%s%s", i == 1 ? "" : i == n ? " or " : ", ", s);
        lua_pop(f->L, 2);
    }
    bad_value(f, key, text, list.s);
}

/* Pushes the value that `text` means for an option whose example is at `example`. */
static void push_set(Frontend *f, const char *key, const char *text, int example) {
    lua_State *L = f->L;
    if (has_metatable(L, example, CHOICE)) {
        push_choice(f, key, text, example);
        return;
    }
    if (has_metatable(L, example, OPTIONAL_OF)) {
        lua_rawgeti(L, example, 1);
        const char *type = lua_tostring(L, -1);
        if (!strcmp(type, "string"))
            lua_pushstring(L, text);
        else if (!strcmp(type, "boolean"))
            push_boolean(f, key, text);
        else
            push_number(f, key, text, !strcmp(type, "integer"));
        lua_remove(L, -2);
        return;
    }
    switch (lua_type(L, example)) {
    case LUA_TBOOLEAN: push_boolean(f, key, text); break;
    case LUA_TNUMBER: push_number(f, key, text, lua_isinteger(L, example)); break;
    default: lua_pushstring(L, text);
    }
}

static void push_default(lua_State *L, const char *key, int example) {
    int type = lua_type(L, example);
    if (has_metatable(L, example, CHOICE))
        lua_rawgeti(L, example, 1);
    else if (has_metatable(L, example, OPTIONAL_OF))
        lua_pushnil(L);
    else if (type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TBOOLEAN)
        lua_pushvalue(L, example);
    else
        field_fail(
            L, key,
            "nn.options: the example of %s is %s; options are numbers, strings, booleans, nn.choice or nn.optional",
            key, field_type(L, example));
}

static const char *set_text(const Frontend *f, const char *key) {
    size_t n = strlen(key);
    const char *found = NULL; /* the last one wins */
    for (int i = 0; i < f->options->nset; i++)
        if (!strncmp(f->options->set[i], key, n) && f->options->set[i][n] == '=') found = f->options->set[i] + n + 1;
    return found;
}

/* ── all of them ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static _Noreturn void unknown_option(Frontend *f, const char *key, const char *const *names, int n) {
    Str all = {.arena = f->arena};
    for (int i = 0; i < n; i++) str_addf(&all, " %s", names[i]);
    fail(f->options_at, "--set: no option '%s'%s; the options are:%s", key, field_nearest(f->arena, key, names, n),
         n ? all.s : " none");
}

void options_check_set(Frontend *f) {
    for (int i = 0; i < f->options->nset; i++)
        if (!strchr(f->options->set[i], '=') || f->options->set[i][0] == '=')
            fail_usage("--set %s: write --set key=value", f->options->set[i]);
}

static int missing_option(lua_State *L) { /* upvalue: table of the names */
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    if (lua_getfield(L, lua_upvalueindex(1), key) != LUA_TNIL) {
        lua_pushnil(L); /* an nn.optional that is not set */
        return 1;
    }
    const char *near = sandbox_nearest(L, lua_upvalueindex(1), key);
    sandbox_fail(L, "no option '%s'%s%s%s", key, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int options(lua_State *L) {
    Frontend *f = fe_of(L);
    if (f->options_at.file)
        sandbox_fail(L, "nn.options: called before, at %s:%d; a model has one table of options", f->options_at.file,
                     f->options_at.line);
    if (!lua_istable(L, 1))
        sandbox_fail(L, "nn.options: expected a table { name = default, ... }, got %s", field_type(L, 1));
    f->options_at = sandbox_source(L);
    lua_settop(L, 1);
    lua_newtable(L); /* 2: values */
    lua_newtable(L); /* 3: names */
    sandbox_sorted_keys(L, 1);
    VEC(const char *) names = {0};
    for (int i = 1; lua_rawgeti(L, 4, i) != LUA_TNIL; i++) {
        if (lua_type(L, 5) != LUA_TSTRING)
            sandbox_fail(L, "nn.options: entry %s without a name: write name = default", lua_tostring(L, 5));
        const char *key = arena_strdup(f->arena, lua_tostring(L, 5)), *text = set_text(f, key);
        push(&names, f->arena, key);
        lua_getfield(L, 1, key); /* 6: the example */
        push_default(L, key, 6);
        if (text) {
            lua_pop(L, 1);
            push_set(f, key, text, 6);
        }
        lua_pushvalue(L, 7);
        const char *shown = lua_isnil(L, 7)       ? ""
                            : lua_isboolean(L, 7) ? (lua_toboolean(L, 7) ? "true" : "false")
                                                  : lua_tostring(L, 8);
        OptionValue v = {
            .name = key, .src = sandbox_key_source(L, f->options_at, key), .text = arena_strdup(f->arena, shown)};
        push(&f->g->training->options, f->arena, v);
        lua_pop(L, 1);
        lua_setfield(L, 2, key);
        lua_pushboolean(L, 1);
        lua_setfield(L, 3, key);
        lua_settop(L, 4);
    }
    for (int i = 0; i < f->options->nset; i++) {
        char *key = arena_strdup(f->arena, f->options->set[i]);
        key[strcspn(key, "=")] = 0;
        bool known = false;
        for (int k = 0; k < names.n; k++) known |= !strcmp(key, names.at[k]);
        if (!known) unknown_option(f, key, names.at, names.n);
    }
    lua_settop(L, 3);
    lua_createtable(L, 0, 1);
    lua_insert(L, 3);
    lua_pushcclosure(L, missing_option, 1);
    lua_setfield(L, 3, "__index");
    lua_setmetatable(L, 2);
    return 1;
}

void options_open(lua_State *L) {
    static const luaL_Reg functions[] = {
        {"options", options}, {"choice", choice}, {"optional", optional}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
