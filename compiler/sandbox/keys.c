/* The keys of a table in order, and the one that is nearest to a name.
 * Relies on: frames.c.
 * Relied on by: lib.c (pairs), load.c, pytorch.c, frontend/. */
#include "sandbox.h"

#include <stdlib.h>

static int compare_keys(const void *pa, const void *pb) {
    const SortedKey *a = pa, *b = pb;
    if (a->is_text != b->is_text) return a->is_text - b->is_text;
    if (!a->is_text) return (a->number > b->number) - (a->number < b->number);
    int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static SortedKey key_of(lua_State *L, int index) {
    SortedKey k = {.is_text = lua_type(L, index) == LUA_TSTRING, .number = lua_tonumber(L, index)};
    if (k.is_text) k.text = lua_tolstring(L, index, &k.n);
    return k;
}

void sandbox_sorted_keys(lua_State *L, int table) {
    Sandbox *s = sandbox_of(L);
    table = lua_absindex(L, table);
    bool sorted = true; /* a list's keys come in order */
    s->keys.n = 0;
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        SortedKey k = key_of(L, -2);
        if (!k.is_text && lua_type(L, -2) != LUA_TNUMBER)
            sandbox_fail(L, "pairs: a key of type %s has no place in an order; use numbers or strings as keys",
                         luaL_typename(L, -2));
        sorted = sorted && (!s->keys.n || compare_keys(&s->keys.at[s->keys.n - 1], &k) < 0);
        push(&s->keys, s->arena, k);
    }
    if (!sorted) qsort(s->keys.at, (size_t)s->keys.n, sizeof *s->keys.at, compare_keys);
    lua_createtable(L, s->keys.n, 0);
    for (int i = 0; i < s->keys.n; i++) {
        const SortedKey *k = &s->keys.at[i];
        if (k->is_text)
            lua_pushlstring(L, k->text, k->n);
        else if (k->number == (double)(lua_Integer)k->number)
            lua_pushinteger(L, (lua_Integer)k->number);
        else
            lua_pushnumber(L, k->number);
        lua_rawseti(L, -2, i + 1);
    }
}

const char *sandbox_nearest(lua_State *L, int table, const char *name) {
    Sandbox *s = sandbox_of(L);
    VEC(const char *) names = {0}, same_case = {0};
    sandbox_sorted_keys(L, table);
    for (int i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
        if (lua_type(L, -1) == LUA_TSTRING) {
            const char *key = arena_strdup(s->arena, lua_tostring(L, -1));
            push(&names, s->arena, key);
            if (key[0] == name[0]) push(&same_case, s->arena, key); /* nn.Liner is nearer to Linear than to linear */
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    const char *near = str_nearest(name, same_case.at, same_case.n);
    return near ? near : str_nearest(name, names.at, names.n);
}

lua_Integer sandbox_place_of_key(lua_State *L, int keys) {
    SortedKey key = key_of(L, 2);
    lua_Integer low = 1, high = (lua_Integer)lua_rawlen(L, keys);
    while (low <= high) {
        lua_Integer middle = low + (high - low) / 2;
        lua_rawgeti(L, keys, middle);
        SortedKey other = key_of(L, -1);
        int c = compare_keys(&other, &key), same = lua_rawequal(L, -1, 2);
        lua_pop(L, 1);
        if (!c) return same ? middle : 0;
        if (c < 0)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return 0;
}
