/* What PyTorch's names are called here: the answer to a name that nobody declared, before the nearest one that somebody
 * did. Relies on: lua/pytorch.lua, which is read when a name is missing and not sooner. Relied on by: lib.c,
 * load.c, frontend/. */
#include "../lua/embed.h"
#include "sandbox.h"

static const char *field(lua_State *L, int entry, const char *key) {
    lua_getfield(L, entry, key);
    const char *s = lua_tostring(L, -1);
    s = s ? arena_strdup(sandbox_of(L)->arena, s) : NULL;
    lua_pop(L, 1);
    return s;
}

static bool is_word_of(const char *name, const char *words) {
    size_t n = strlen(name);
    for (const char *p = words; (p = strstr(p, name)); p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
    return false;
}

/* People write nn.Adam and x:relu(): all functions answer for tensors, all tables for nn. A field that a module lacks
 * may be one that its author forgot: only names of nn.Module answer for it. */
static bool answers_for(const char *of, const char *where) {
    if (!strcmp(where, "a tensor")) return !strcmp(of, "nn");
    return !strcmp(where, "nn") && (!strcmp(of, "optim") || !strcmp(of, "nn.init") || !strcmp(of, "dtype"));
}

static const char *words_of(lua_State *L, int section, int entry, const char *name) {
    Arena *a = sandbox_of(L)->arena;
    const char *instead = field(L, entry, "instead"), *option = field(L, entry, "option"),
               *note = field(L, entry, "note");
    const char *at = field(L, entry, "at"), *ours = NULL;
    if (lua_rawgeti(L, entry, 2) == LUA_TSTRING) ours = arena_strdup(a, lua_tostring(L, -1));
    if (!at) at = field(L, section, "at");
    const char *in = strcmp(at, "training") ? "" : " in nn.training",
               *whose = *field(L, section, "of") ? "PyTorch" : "Python";
    const char *more = note ? arena_printf(a, " (%s)", note) : "";
    if (ours) return arena_printf(a, "; %s's %s is `%s`%s here%s", whose, name, ours, in, more);
    if (instead) return arena_printf(a, "; '%s' is not there: write `%s`%s instead%s", name, instead, in, more);
    if (option) return arena_printf(a, "; the option %s of the training program is for that", option);
    return arena_printf(a, "; '%s' is not there: %s", name, note);
}

/* The table of sections lies on top of the stack. */
static const char *look_up(lua_State *L, const char *where, const char *name, bool exactly) {
    int sections = lua_gettop(L);
    for (int i = 1; lua_rawgeti(L, sections, i) == LUA_TTABLE; i++, lua_settop(L, sections)) {
        const char *of = field(L, sections + 1, "of");
        if (exactly ? strcmp(of, where) != 0 : !answers_for(of, where)) continue;
        for (int k = 1; lua_rawgeti(L, sections + 1, k) == LUA_TTABLE; k++, lua_settop(L, sections + 1)) {
            lua_rawgeti(L, sections + 2, 1);
            if (is_word_of(name, lua_tostring(L, -1))) return words_of(L, sections + 1, sections + 2, name);
        }
    }
    return NULL;
}

const char *sandbox_pytorch_name(lua_State *L, const char *where, const char *name) {
    size_t n;
    int top = lua_gettop(L);
    const char *text = embedded_text("lua/pytorch.lua", &n), *answer = NULL;
    luaL_checkstack(L, 12, "the table of names");
    if (*name && !strchr(name, ' ') && luaL_loadbufferx(L, text, n, "=pytorch.lua", "t") == LUA_OK) {
        lua_call(L, 0, 1);
        if (!(answer = look_up(L, where, name, true))) {
            lua_settop(L, top + 1);
            answer = look_up(L, where, name, false);
        }
    }
    lua_settop(L, top);
    return answer;
}

const char *sandbox_suggestion(lua_State *L, const char *where, int table, const char *name) {
    const char *answer = sandbox_pytorch_name(L, where, name), *near = answer ? NULL : sandbox_nearest(L, table, name);
    return answer ? answer : near ? arena_printf(sandbox_of(L)->arena, "; did you mean '%s'?", near) : "";
}
