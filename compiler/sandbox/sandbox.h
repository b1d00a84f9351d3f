/* A Lua state that a model file cannot escape from, and diagnostics at the line of a Lua frame.
 * Relies on: base, Lua 5.4.
 * Relied on by: frontend/, devices/ (profiles are Lua tables). */
#ifndef SHARDC_SANDBOX_H
#define SHARDC_SANDBOX_H

#include "../base/base.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <signal.h>

enum {
    LUA_FILE_MOST = 64 << 20 /* bytes of a file of Lua */
};

typedef struct { /* of a table */
    bool is_text;
    const char *text;
    size_t n;
    double number;
} SortedKey;

typedef struct {
    Arena *arena;
    lua_State *L;
    const char *folder;  /* files may be required from here; NULL: none */
    const char *models;  /* and from here, where `folder` has none of the name; NULL: from nowhere else */
    Map *files;          /* path -> text, of every file that was loaded */
    size_t used;         /* bytes that Lua holds */
    size_t held_before;  /* by the arena, before this sandbox */
    int64_t printed;     /* bytes */
    bool quiet;          /* print counts, and writes nothing */
    VEC(SortedKey) keys; /* of the table whose keys are being sorted */
    Source denied_at;    /* the line where the memory limit was exceeded */
    bool denied;         /* the last allocation was refused */
    bool no_memory;      /* realloc failed */
    Source fallback;     /* where diagnostics point while no frame of the user's runs */
    volatile sig_atomic_t time_over;
} Sandbox;

/* A sandboxed Lua state (no io, os.execute, load of binary chunks, C modules or files outside `folder` and `models`;
 * limits on processor time, memory and printed text; pairs visits sorted keys). Also used for device profiles. One at a
 * time. */
lua_State *sandbox_new(Arena *a, const char *folder);
void sandbox_close(lua_State *L);     /* before the arena is freed */
void sandbox_limit(const char *text); /* "time=60": of every state to come; a usage error where it is none */

Sandbox *sandbox_of(lua_State *L);

/* Runs text as a chunk and leaves nresults on the stack. The chunk's name is "@path" for a user's file, "=name" for one
 * of the compiler's own: diagnostics point at the innermost "@" frame. Fails with file:line. */
void sandbox_run(lua_State *L, const char *text, size_t n, const char *chunk, int nresults);
void sandbox_call(lua_State *L, int nargs, int nresults); /* lua_call with diagnostics */
void sandbox_provide(lua_State *L, const char *name);     /* pops a value: require(name) gives it */

Source sandbox_source(lua_State *L);                                   /* the innermost user frame */
Source sandbox_blamed(lua_State *L);                                   /* that which a failure points at */
Source sandbox_function_source(lua_State *L, int function);            /* where a function of the user begins */
Source sandbox_key_source(lua_State *L, Source call, const char *key); /* the line where `key =` stands in a call */
_Noreturn void sandbox_fail(lua_State *L, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A table whose missing fields are errors that name the nearest one. `what` begins the message: "nn". */
void sandbox_strict(lua_State *L, int table, const char *what);
const char *sandbox_nearest(lua_State *L, int table, const char *name); /* among the table's string keys, or NULL */

/* The end of a message about an unknown name: what PyTorch's name is here, or the nearest name of the table, or "". */
const char *sandbox_suggestion(lua_State *L, const char *where, int table, const char *name);
const char *sandbox_pytorch_name(lua_State *L, const char *where,
                                 const char *name); /* where: "of" in lua/pytorch.lua. NULL: none */

void sandbox_sorted_keys(lua_State *L, int table); /* pushes an array of the table's keys: numbers, then strings */
lua_Integer sandbox_place_of_key(lua_State *L, int keys); /* of the key at stack index 2 in such an array; 0: none */

/* limits.c */
typedef enum { LIMIT_TIME, LIMIT_MEMORY, LIMIT_PRINT, N_LIMITS } Limit;
void *sandbox_alloc(void *sandbox, void *p, size_t old, size_t n); /* a lua_Alloc */
void sandbox_watch(Sandbox *s);                                    /* NULL: no longer */
void sandbox_printed(lua_State *L, size_t bytes);                  /* ... are about to be */
_Noreturn void sandbox_stop(Source at, Limit k);
/* load.c */
int sandbox_out_of_memory(lua_State *L); /* also the panic function: outside of pcall nothing else can fail */
int sandbox_load(lua_State *L, const char *text, size_t n, const char *chunk); /* as luaL_loadbuffer, text only */
int sandbox_require(lua_State *L);
char *sandbox_path(const Sandbox *s, const char *name);     /* of a file in the model's folder, as it is printed */
bool sandbox_holds(const Sandbox *s, const char *resolved); /* the path, links followed, stays in the folder */
/* lib.c */
void sandbox_open_libs(lua_State *L);

#endif
