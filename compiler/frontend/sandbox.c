/* The sandboxed Lua state: limits on instructions, memory and time inside one C call; diagnostics at the user's frame.
 * Relies on: sandbox_lib.c (what the state offers), sandbox_load.c (how text becomes a chunk).
 * Relied on by: frontend.c, devices/. */
#include "sandbox.h"

#include <ctype.h>
#include <stdlib.h>
#include <sys/time.h>

enum {
    MEMORY_LIMIT = 512 << 20,
    HOOK_EVERY = 100000,           /* instructions */
    INSTRUCTION_LIMIT = 100000000, /* a 405-billion-parameter model takes about one million */
    TICK_US = 250000,              /* processor time between looks at a C call */
    STUCK_TICKS = 4,
    GC_FROM =
        64 << 20,   /* bytes in use: below it garbage is left alone, a model of 100,000 events makes 50 MiB in all */
    GC_PAUSE = 400, /* per cent of what was in use after the last collection: a model keeps most of what it makes */
};

static Sandbox *watched; /* the one whose chunk runs: a signal handler has no other way to it */

Sandbox *sandbox_of(lua_State *L) {
    void *s;
    lua_getallocf(L, &s);
    return s;
}

/* ── where ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Chunk names end with the Lua state; the map's keys live as long as the compilation. */
static const char *user_file(const Sandbox *s, const char *chunk) {
    for (int i = 0; *chunk == '@' && i < map_len(s->files); i++)
        if (!strcmp(map_key(s->files, i), chunk + 1)) return map_key(s->files, i);
    return NULL;
}

Source lua_source(lua_State *L) {
    Sandbox *s = sandbox_of(L);
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        const char *file = ar.currentline > 0 ? user_file(s, ar.source) : NULL;
        if (file) return (Source){file, ar.currentline};
    }
    return s->fallback;
}

Source lua_function_source(lua_State *L, int function) {
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

/* Lua knows the line of a call, not that of each field in its table: the text tells. */
Source lua_key_source(lua_State *L, Source call, const char *key) {
    const char *p = call.file ? map_get(sandbox_of(L)->files, call.file) : NULL;
    for (int line = 1; p && *p && line < call.line + 100; line++) {
        const char *end = p + strcspn(p, "\n");
        if (line >= call.line && key_at(p, end, key)) return (Source){call.file, line};
        p = *end ? end + 1 : end;
    }
    return call;
}

void lua_fail(lua_State *L, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vfail(lua_source(L), fmt, ap);
}

/* "path.lua:12: text" -> text; Lua cuts long paths, so the digits are what is looked for. */
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

/* Library functions run inside a guard, so Lua does not know by what name they were called. */
static const char *with_name(lua_State *L, const char *message) {
    const char *mark = strstr(message, "to '?'");
    lua_Debug ar;
    for (int level = 1; mark && lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "n", &ar);
        if (ar.name)
            return arena_printf(sandbox_of(L)->arena, "%.*sto '%s'%s", (int)(mark - message), message, ar.name,
                                mark + 6);
    }
    return message;
}

static int on_error(lua_State *L) {
    Source at = lua_source(L);
    int line = 0;
    const char *message = lua_tostring(L, 1);
    if (!message) lua_fail(L, "the file raised an error that is a %s and no text", luaL_typename(L, 1));
    lua_Debug ar;
    bool has_position = false; /* of the function that raised it, or of the one that called a function of the library */
    for (int level = 1; !has_position && lua_getstack(L, level, &ar); level++)
        has_position = lua_getinfo(L, "S", &ar) && !strncmp(message, ar.short_src, strlen(ar.short_src));
    if (has_position) message = without_position(message, &line);
    message = with_name(L, message);
    size_t first_line = strcspn(message, "\n");
    if (strstr(message, "stack overflow")) lua_fail(L, "stack overflow: a function calls itself without end");
    fail(at, "%.*s", (int)first_line, message);
}

/* ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Small pieces come from the arena and are kept for the next of their size: Lua tells sizes, which malloc must find. */
static size_t grains(size_t n) {
    return (n + LUA_GRAIN - 1) / LUA_GRAIN;
}

/* As realloc, of the others; sandbox_close frees what Lua still holds. */
static void *large(Sandbox *s, void *p, size_t n) {
    LuaLarge *was = p ? (LuaLarge *)p - 1 : NULL, *before = was ? was->before : &s->large,
             *after = was ? was->next : s->large.next;
    LuaLarge *now = realloc(was, sizeof *now + n);
    if (!now) return NULL;
    *now = (LuaLarge){before, after};
    before->next = now;
    if (after) after->before = now;
    return now + 1;
}

static void free_large(void *p) {
    LuaLarge *x = (LuaLarge *)p - 1;
    x->before->next = x->next;
    if (x->next) x->next->before = x->before;
    free(x);
}

static void *piece(Sandbox *s, size_t n) {
    size_t g = grains(n);
    if (!n) return NULL;
    if (g > LUA_GRAINS) return large(s, NULL, n);
    void **p = s->spare[g];
    if (!p) return arena_alloc(s->arena, g * LUA_GRAIN);
    s->spare[g] = *p;
    return p;
}

static void give_back(Sandbox *s, void *p, size_t n) {
    size_t g = grains(n);
    if (g > LUA_GRAINS) {
        free_large(p);
    } else if (p) {
        *(void **)p = s->spare[g];
        s->spare[g] = p;
    }
}

/* As realloc. */
static void *resized(Sandbox *s, void *p, size_t old, size_t n) {
    if (p && grains(old) == grains(n) && grains(n) <= LUA_GRAINS) return p;
    if (grains(old) > LUA_GRAINS && grains(n) > LUA_GRAINS) return large(s, p, n);
    void *q = piece(s, n);
    if (n && !q) return NULL;
    if (p && q) memcpy(q, p, old < n ? old : n);
    give_back(s, p, old);
    return q;
}

static void *limited_alloc(void *ud, void *p, size_t old, size_t n) {
    Sandbox *s = ud;
    if (!p) old = 0; /* then it is a type tag */
    if (n > old && s->used + (n - old) > MEMORY_LIMIT) {
        if (s->L) s->denied_at = lua_source(s->L);
        return NULL; /* Lua collects garbage and asks once more */
    }
    s->in_alloc = 1;
    void *q = resized(s, p, old, n);
    s->in_alloc = 0;
    if (n && !q) s->no_memory = true;
    if (q || n == 0) s->used += n - old;
    return q;
}

static void count_hook(lua_State *L, lua_Debug *ar) {
    Sandbox *s = sandbox_of(L);
    s->instructions += HOOK_EVERY;
    if (s->used > GC_FROM && !lua_gc(L, LUA_GCISRUNNING)) lua_gc(L, LUA_GCRESTART);
    if (s->instructions > INSTRUCTION_LIMIT)
        lua_fail(
            L, "stopped after %d million Lua instructions: is this loop endless? A model file only describes the model",
            INSTRUCTION_LIMIT / 1000000);
}

/* Library functions written in C (pattern matching above all) can run away between two instructions. When one and the
 * same call is still there after several ticks of processor time, it is stopped. Reading frames is safe then: nothing
 * but that C function runs, and it is not inside the allocator. */
static void tick(int signal) {
    static sig_atomic_t serial;
    static int stuck;
    Sandbox *s = watched;
    if (!s || !s->depth || s->serial != serial) {
        serial = s ? s->serial : 0;
        stuck = 0;
        return;
    }
    if (++stuck < STUCK_TICKS || s->in_alloc) return;
    fail(lua_source(s->L),
         "stopped a library call that does not end: a pathological pattern (many *, + or - in a row) or a huge count");
}

static void watch(Sandbox *s) {
    struct itimerval every = {{0, s ? TICK_US : 0}, {0, s ? TICK_US : 0}};
    struct sigaction a = {.sa_handler = s ? tick : SIG_DFL, .sa_flags = SA_RESTART};
    watched = s;
    if (s) sigaction(SIGVTALRM, &a, NULL);
    setitimer(ITIMER_VIRTUAL, &every, NULL);
    if (!s) sigaction(SIGVTALRM, &a, NULL);
}

/* ── running ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int out_of_memory(lua_State *L) { /* also Lua's panic: nothing else goes wrong outside of pcall */
    fail(NOWHERE, "out of memory for the Lua interpreter; free memory and run again");
}

void sandbox_call(lua_State *L, int nargs, int nresults) {
    Sandbox *s = sandbox_of(L), *outer = watched;
    int handler = lua_gettop(L) - nargs;
    lua_pushcfunction(L, on_error);
    lua_insert(L, handler);
    watch(s);
    int status = lua_pcall(L, nargs, nresults, handler);
    if (!outer) watch(NULL);
    if (status != LUA_OK && s->no_memory) out_of_memory(L);
    if (status != LUA_OK) /* everything else went through on_error */
        fail(s->denied_at, "the file needs more than %d MiB of Lua memory: a table or string grows without end",
             MEMORY_LIMIT >> 20);
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
        fail((Source){chunk + 1, line}, "%s", status == LUA_ERRMEM ? "the file is too large" : message);
    }
    sandbox_call(L, 0, nresults);
}

lua_State *sandbox_new(Arena *a, const char *folder) {
    Sandbox *s = NEW(a, Sandbox);
    s->arena = a;
    s->folder = folder ? arena_strdup(a, folder) : NULL;
    s->files = map_new(a);
    lua_State *L = lua_newstate(limited_alloc, s);
    if (!L) out_of_memory(L);
    lua_atpanic(L, out_of_memory);
    lua_gc(L, LUA_GCINC, GC_PAUSE, 0, 0);
    lua_gc(L, LUA_GCSTOP);
    sandbox_open_libs(L);
    s->L = L;
    lua_sethook(L, count_hook, LUA_MASKCOUNT, HOOK_EVERY);
    return L;
}

/* lua_close would visit every object. None has a finalizer, and all but the large ones are the arena's. */
void sandbox_close(lua_State *L) {
    for (LuaLarge *x = sandbox_of(L)->large.next, *next; x; x = next) {
        next = x->next;
        free(x);
    }
}
