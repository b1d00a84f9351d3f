/* The sandboxed Lua state, and diagnostics at the user's frame.
 * Relies on: lib.c (what the state offers), load.c (how text becomes a chunk), limits.c.
 * Relied on by: frontend.c, devices/. */
#include "sandbox.h"

#include <ctype.h>
#include <stdlib.h>

enum {
    MOST_TEXT = 8 << 10, /* bytes of an error message */
    GC_PAUSE = 400 /* per cent of the bytes in use after the last collection: a model keeps most of what it makes */
};

Sandbox *sandbox_of(lua_State *L) {
    void *s;
    lua_getallocf(L, &s);
    return s;
}

/* ── where ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The path of a user's chunk. Chunk names are freed with the Lua state, the map's keys live as long as the compilation.
 */
static const char *user_file(const Sandbox *s, const char *chunk) {
    for (int i = 0; *chunk == '@' && i < map_len(s->files); i++)
        if (!strcmp(map_key(s->files, i), chunk + 1)) return map_key(s->files, i);
    return NULL;
}

Source sandbox_source(lua_State *L) {
    Sandbox *s = sandbox_of(L);
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        const char *file = ar.currentline > 0 ? user_file(s, ar.source) : NULL;
        if (file) return (Source){file, ar.currentline};
    }
    return s->fallback;
}

Source sandbox_function_source(lua_State *L, int function) {
    Sandbox *s = sandbox_of(L);
    lua_Debug ar;
    lua_pushvalue(L, function);
    lua_getinfo(L, ">S", &ar);
    const char *file = user_file(s, ar.source);
    return file ? (Source){file, ar.linedefined} : s->fallback;
}

static bool key_at(const char *line, const char *end, const char *key) {
    size_t n = strlen(key);
    for (const char *p = line; p + n <= end; p++) {
        if (strncmp(p, key, n) || (p > line && (isalnum((unsigned char)p[-1]) || p[-1] == '_' || p[-1] == '.')))
            continue;
        const char *q = p + n;
        while (q < end && (*q == ' ' || *q == '\t' || *q == '"' || *q == ']')) q++;
        if (q < end && *q == '=' && q[1] != '=') return true;
    }
    return false;
}

/* Lua knows the line of a call, but not that of each field in its table: search the text. */
Source sandbox_key_source(lua_State *L, Source call, const char *key) {
    const char *p = call.file ? map_get(sandbox_of(L)->files, call.file) : NULL;
    for (int line = 1; p && *p && line < call.line + 100; line++) {
        const char *end = p + strcspn(p, "\n");
        if (line >= call.line && key_at(p, end, key)) return (Source){call.file, line};
        p = *end ? end + 1 : end;
    }
    return call;
}

void sandbox_fail(lua_State *L, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vfail(sandbox_source(L), fmt, ap);
}

/* "path.lua:12: text" -> text. Lua shortens long paths, so this looks for the digits. */
static const char *without_position(const char *message, int *line) {
    for (const char *p = strchr(message, ':'); p; p = strchr(p + 1, ':')) {
        const char *q = p + 1;
        while (isdigit((unsigned char)*q)) q++;
        if (q == p + 1 || strncmp(q, ": ", 2)) continue;
        *line = atoi(p + 1);
        return q + 2;
    }
    return message;
}

static int on_error(lua_State *L) {
    Source at = sandbox_source(L);
    int line = 0;
    const char *message = lua_tostring(L, 1);
    if (!message) sandbox_fail(L, "the file raised an error that is a %s and no text", luaL_typename(L, 1));
    lua_Debug ar;
    bool has_position = false; /* the message begins with the file of a calling function */
    for (int level = 1; !has_position && lua_getstack(L, level, &ar); level++)
        has_position = lua_getinfo(L, "S", &ar) && !strncmp(message, ar.short_src, strlen(ar.short_src));
    if (has_position) message = without_position(message, &line);
    size_t first_line = strcspn(message, "\n");
    if (first_line > MOST_TEXT) first_line = MOST_TEXT;
    if (strstr(message, "stack overflow")) sandbox_fail(L, "stack overflow: a function calls itself without end");
    fail(at, "%.*s", (int)first_line, message);
}

/* ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static int out_of_memory(lua_State *L) { /* also the panic function: outside of pcall nothing else can fail */
    fail(NOWHERE, "out of memory for the Lua interpreter; free memory and run again");
}

void sandbox_call(lua_State *L, int nargs, int nresults) {
    Sandbox *s = sandbox_of(L);
    int handler = lua_gettop(L) - nargs;
    lua_pushcfunction(L, on_error);
    lua_insert(L, handler);
    int status = lua_pcall(L, nargs, nresults, handler);
    if (status != LUA_OK && s->no_memory) out_of_memory(L);
    if (status != LUA_OK) sandbox_stop(s->denied_at, LIMIT_MEMORY); /* everything else went through on_error */
    lua_remove(L, handler);
}

void sandbox_run(lua_State *L, const char *text, size_t n, const char *chunk, int nresults) {
    Sandbox *s = sandbox_of(L);
    if (chunk[0] == '@') map_put(s->files, chunk + 1, (void *)text);
    int status = sandbox_load(L, text, n, chunk);
    if (status != LUA_OK) {
        if (s->no_memory) out_of_memory(L);
        int line = 1;
        const char *message = without_position(lua_tostring(L, -1), &line);
        if (status == LUA_ERRMEM) sandbox_stop((Source){chunk + 1, line}, LIMIT_MEMORY);
        fail((Source){chunk + 1, line}, "%s", message);
    }
    sandbox_call(L, 0, nresults);
}

lua_State *sandbox_new(Arena *a, const char *folder) {
    Sandbox *s = NEW(a, Sandbox);
    s->arena = a;
    s->held_before = arena_held(a);
    s->folder = folder ? arena_strdup(a, folder) : NULL;
    s->files = map_new(a);
    lua_State *L = lua_newstate(sandbox_alloc, s);
    if (!L) out_of_memory(L);
    lua_atpanic(L, out_of_memory);
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
