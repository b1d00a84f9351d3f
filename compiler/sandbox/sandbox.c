/* Makes and ends the sandboxed Lua state.
 * Relies on: lib.c (what the state offers), limits.c, load.c.
 * Relied on by: frontend.c, devices/. */
#include "sandbox.h"

enum {
    GC_PAUSE = 400 /* per cent of the bytes in use after the last collection: a model keeps most of what it makes */
};

lua_State *sandbox_new(Arena *a, const char *folder) {
    Sandbox *s = NEW(a, Sandbox);
    s->arena = a;
    s->held_before = arena_held(a);
    s->folder = folder ? arena_strdup(a, folder) : NULL;
    s->files = map_new(a);
    lua_State *L = lua_newstate(sandbox_alloc, s);
    if (!L) sandbox_out_of_memory(L);
    lua_atpanic(L, sandbox_out_of_memory);
    lua_gc(L, LUA_GCINC, GC_PAUSE, 0, 0);
    lua_gc(L, LUA_GCSTOP);
    sandbox_open_libs(L);
    s->L = L;
    sandbox_watch(s);
    return L;
}

void sandbox_close(lua_State *L) {
    sandbox_watch(NULL);
    lua_close(L);
}
