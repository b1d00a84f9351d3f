/* Where a diagnostic points: the innermost frame of the user's, the line of a key in a call.
 * Relies on: sandbox.h.
 * Relied on by: the rest of sandbox/, frontend/. */
#include "sandbox.h"

#include <ctype.h>

Sandbox *sandbox_of(lua_State *L) {
    void *s;
    lua_getallocf(L, &s);
    return s;
}

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

/* A file among shardc's models refuses what the file that calls it wrote: that is where to mend it. */
Source sandbox_blamed(lua_State *L) {
    Sandbox *s = sandbox_of(L);
    size_t n = s->models ? strlen(s->models) : 0;
    lua_Debug ar;
    for (int level = 0; n && lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        const char *file = ar.currentline > 0 ? user_file(s, ar.source) : NULL;
        if (file && (strncmp(file, s->models, n) || file[n] != '/')) return (Source){file, ar.currentline};
    }
    return sandbox_source(L);
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
    vfail(sandbox_blamed(L), fmt, ap);
}
