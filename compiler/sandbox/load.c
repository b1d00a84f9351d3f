/* From text to a Lua chunk and its results, and `require` for the files beside the model.
 * Relies on: frames.c, limits.c, keys.c, pytorch.c.
 * Relied on by: sandbox.c, lib.c, frontend/, devices/. */
#include "sandbox.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>

/* ── no tail calls ────────────────────────────────────────────────────────────────────────────────────────────────────
 * `return f(x)` would drop the caller's frame, and with it the line that every diagnostic and every op must name. Lua
 * makes no tail calls where a to-be-closed variable is in scope (manual, 3.3.8), so each function body gets one, on the
 * line where the parameter list ends. Lines stay what they were. */
static const char KEEP_FRAME[] = " local _FRAME <close> = nil; ";

/* The length of `[==[` at p, or 0 if there is none. *level: how many `=`. */
static size_t long_open(const char *p, const char *end, int *level) {
    const char *q = p + 1;
    if (p >= end || *p != '[') return 0;
    while (q < end && *q == '=') q++;
    if (q >= end || *q != '[') return 0;
    *level = (int)(q - p - 1);
    return (size_t)(q - p + 1);
}

static const char *long_close(const char *p, const char *end, int level) {
    for (; p < end; p++) {
        if (*p != ']') continue;
        const char *q = p + 1;
        while (q < end && *q == '=') q++;
        if (q < end && *q == ']' && q - p - 1 == level) return q + 1;
    }
    return end;
}

/* After `\z` a string continues on the next line. Lua itself refuses a string that ends with its line. */
static const char *skip_string(const char *p, const char *end) {
    char quote = *p++;
    while (p < end && *p != quote) p += *p == '\\' && p + 1 < end ? 2 : 1;
    return p < end ? p + 1 : end;
}

/* One token or run of other characters. */
static const char *skip_token(const char *p, const char *end) {
    int level;
    size_t n;
    if (p[0] == '-' && p + 1 < end && p[1] == '-') {
        if ((n = long_open(p + 2, end, &level))) return long_close(p + 2 + n, end, level);
        while (p < end && *p != '\n') p++;
        return p;
    }
    if ((n = long_open(p, end, &level))) return long_close(p + n, end, level);
    if (*p == '"' || *p == '\'') return skip_string(p, end);
    if (isalnum((unsigned char)*p) || *p == '_') {
        while (p < end && (isalnum((unsigned char)*p) || *p == '_')) p++;
        return p;
    }
    return p + 1;
}

static char *keep_frames(Arena *a, const char *text, size_t n, size_t *size) {
    const char *end = text + n, *p = text, *from;
    size_t functions = 1;
    for (const char *q = text; q && (q = strstr(q, "function")); q++) functions++;
    char *out = arena_alloc(a, n + functions * sizeof KEEP_FRAME + 3), *o = out;
    if (*p == '#') { /* a first line for the shell */
        *o++ = '-', *o++ = '-';
        while (p < end && *p != '\n') *o++ = *p++;
        if (p < end) *o++ = *p++;
    }
    o = stpcpy(o, KEEP_FRAME);
    bool in_head = false; /* between `function` and the end of its parameters */
    while (p < end) {
        from = p;
        p = skip_token(p, end);
        memcpy(o, from, (size_t)(p - from));
        o += p - from;
        if (p - from == 8 && !memcmp(from, "function", 8)) in_head = true;
        if (in_head && *from == ')') {
            in_head = false;
            o = stpcpy(o, KEEP_FRAME);
        }
    }
    *size = (size_t)(o - out);
    return out;
}

int sandbox_load(lua_State *L, const char *text, size_t n, const char *chunk) {
    if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, n -= 3; /* UTF-8's mark, as Lua's own loader does */
    const char *zero = memchr(text, 0, n);
    if (n && text[0] == LUA_SIGNATURE[0]) return luaL_loadbufferx(L, text, n, chunk, "t"); /* which refuses it */
    if (zero) {
        int line = 1;
        for (const char *p = text; p < zero; p++) line += *p == '\n';
        lua_pushfstring(L, "%s:%d: this is no text: it holds a zero byte", chunk + 1, line);
        return LUA_ERRSYNTAX;
    }
    if (chunk[0] != '=') text = keep_frames(sandbox_of(L)->arena, text, n, &n);
    return luaL_loadbufferx(L, text, n, chunk, "t");
}

/* ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { MOST_TEXT = 8 << 10 }; /* bytes of an error message */

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
    Source at = sandbox_blamed(L);
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

int sandbox_out_of_memory(lua_State *L) { /* also the panic function: outside of pcall nothing else can fail */
    fail(NOWHERE, "out of memory for the Lua interpreter; free memory and run again");
}

void sandbox_call(lua_State *L, int nargs, int nresults) {
    Sandbox *s = sandbox_of(L);
    int handler = lua_gettop(L) - nargs;
    lua_pushcfunction(L, on_error);
    lua_insert(L, handler);
    int status = lua_pcall(L, nargs, nresults, handler);
    if (status != LUA_OK && s->no_memory) sandbox_out_of_memory(L);
    if (status != LUA_OK) sandbox_stop(s->denied_at, LIMIT_MEMORY); /* everything else went through on_error */
    lua_remove(L, handler);
}

void sandbox_run(lua_State *L, const char *text, size_t n, const char *chunk, int nresults) {
    Sandbox *s = sandbox_of(L);
    if (chunk[0] == '@') map_put(s->files, chunk + 1, (void *)text);
    int status = sandbox_load(L, text, n, chunk);
    if (status != LUA_OK) {
        if (s->no_memory) sandbox_out_of_memory(L);
        int line = 1;
        const char *message = without_position(lua_tostring(L, -1), &line);
        if (status == LUA_ERRMEM) sandbox_stop((Source){chunk + 1, line}, LIMIT_MEMORY);
        fail((Source){chunk + 1, line}, "%s", message);
    }
    sandbox_call(L, 0, nresults);
}

/* ── require ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static const char LOADED[] = "shardc.loaded";

void sandbox_provide(lua_State *L, const char *name) {
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LOADED);
    lua_insert(L, -2);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

static _Noreturn void no_such_module(lua_State *L, Sandbox *s, const char *name, const char *path) {
    VEC(const char *) names = {0};
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LOADED);
    sandbox_sorted_keys(L, lua_gettop(L));
    for (int i = 1; i <= (int)luaL_len(L, -1); i++) {
        lua_rawgeti(L, -1, i);
        push(&names, s->arena, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    DIR *d = s->folder ? opendir(s->folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n <= 4 || strcmp(e->d_name + n - 4, ".lua")) continue;
        char *stem = arena_strdup(s->arena, e->d_name);
        stem[n - 4] = 0;
        push(&names, s->arena, stem);
    }
    if (d) closedir(d);
    const char *near = str_nearest(name, names.at, names.n), *answer = sandbox_pytorch_name(L, "", name);
    if (answer) sandbox_fail(L, "require: no module '%s'%s", name, answer);
    sandbox_fail(L, "require: no module '%s'%s%s%s%s%s", name, path ? ", there is no file " : "", path ? path : "",
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static char *path_within(const Sandbox *s, const char *folder, const char *name) {
    if (!strcmp(folder, ".")) folder = "";
    return arena_printf(s->arena, "%s%s%s", folder, *folder && strcmp(folder, "/") ? "/" : "", name);
}
char *sandbox_path(const Sandbox *s, const char *name) {
    return path_within(s, s->folder, name);
}

static bool holds(const char *within, const char *resolved) {
    char folder[PATH_MAX];
    if (!within || !realpath(within, folder)) return false;
    size_t n = strcmp(folder, "/") ? strlen(folder) : 0;
    return !strncmp(resolved, folder, n) && resolved[n] == '/';
}
bool sandbox_holds(const Sandbox *s, const char *resolved) {
    return holds(s->folder, resolved);
}

/* The path of folder/a/b.lua for "a.b", beside the model or else among shardc's models; a name of anything but words
 * and dots could leave the folder. */
static const char *module_path(lua_State *L, Sandbox *s, const char *name) {
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-' && !(*p == '.' && p > name && p[1] && p[1] != '.'))
            sandbox_fail(
                L,
                "require: '%s' is no module name: write words with dots between them; files lie in the model's folder",
                name);
    if (!s->folder) no_such_module(L, s, name, NULL);
    char *file = arena_printf(s->arena, "%s.lua", name), real[PATH_MAX];
    for (char *p = file; *p; p++)
        if (*p == '.' && strcmp(p, ".lua")) *p = '/';
    char *path = sandbox_path(s, file);
    if (!realpath(path, real)) {
        char *shared = s->models ? path_within(s, s->models, file) : NULL;
        if (shared && realpath(shared, real) && holds(s->models, real)) return shared;
        no_such_module(L, s, name, path);
    }
    if (!sandbox_holds(s, real))
        sandbox_fail(L, "require: %s leads out of the model's folder (to %s): copy the file into the folder", path,
                     real);
    return path;
}

int sandbox_require(lua_State *L) {
    Sandbox *s = sandbox_of(L);
    const char *name = luaL_checkstring(L, 1);
    lua_settop(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LOADED);
    if (lua_getfield(L, 2, name) == LUA_TLIGHTUSERDATA)
        sandbox_fail(L, "require: '%s' is being loaded already: two files require each other", name);
    if (!lua_isnil(L, -1)) return 1;
    lua_pop(L, 1);
    const char *path = module_path(L, s, name);
    size_t n;
    char *text = input_read(s->arena, sandbox_source(L), path, LUA_FILE_MOST, &n);
    lua_pushlightuserdata(L, s);
    lua_setfield(L, 2, name);
    sandbox_run(L, text, n, arena_printf(s->arena, "@%s", path), 1);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_pushboolean(L, 1);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}
