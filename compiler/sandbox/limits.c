/* Limits on a Lua file's processor time, memory and printed text. Exceeding one ends the compilation with a message at
 * the file's line, which names the option that allows more. Relies on: sandbox.h, a timer of the process.
 * Relied on by: sandbox.c, lib.c (print), cli/ (--limit). */
#include "../base/diagnostics.h"
#include "number.h"
#include "sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    MOST = 1 << 20,      /* the highest value of a limit */
    HOOK_EVERY = 100000, /* instructions */
    TICK_US = 250000,    /* processor time that a C function has to return after the limit */
    GC_FROM = 64 << 20,  /* bytes in use before garbage is collected: 100,000 events make 50 MiB in all */
};

static struct {
    const char *key, *what, *question;
    int64_t value;
} limits[N_LIMITS] = {
    /* A model of 100,000 events takes a second; the rest is for slow and busy machines. */
    [LIMIT_TIME] = {"time", "s of processor time",
                    "does a loop, a pattern (many *, + or - in a row) or a count have no end?", 30},
    /* A traced op takes 2 KiB here, and up to 9 KiB in the whole compilation. */
    [LIMIT_MEMORY] = {"memory", "MiB of memory for Lua's values and traced ops",
                      "does a table, a string or the model's forward grow without end?", 1024},
    [LIMIT_PRINT] = {"print", "KiB of printed text", "does a loop print without end?", 1024},
};

void sandbox_limit(const char *text) {
    const char *equals = strchr(text, '=');
    for (int k = 0; equals && k < N_LIMITS; k++) {
        size_t n = (size_t)(equals - text);
        if (strlen(limits[k].key) != n || strncmp(limits[k].key, text, n)) continue;
        int64_t x;
        if (!sc_read_whole(equals + 1, 1, MOST, &x))
            fail_usage("--limit %s: a whole number from 1 to %d is wanted", text, MOST);
        limits[k].value = x;
        return;
    }
    fail_usage("--limit %s: time=SECONDS, memory=MIB or print=KIB is wanted", text);
}

/* A signal handler may call this. */
static int stop_text(char *out, size_t size, Limit k) {
    long long most = limits[k].value;
    return snprintf(out, size,
                    "stopped: more than %lld %s; %s A model file only describes the model; --limit %s=%lld allows more",
                    most, limits[k].what, limits[k].question, limits[k].key, most * 2);
}

_Noreturn void sandbox_stop(Source at, Limit k) {
    char text[512];
    stop_text(text, sizeof text, k);
    fail(at, "%s", text);
}

/* ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* When an allocation is refused, Lua collects garbage and tries once more; closing variables may then allocate again.
 * The first refusal of such a series tells the line. */
void *sandbox_alloc(void *ud, void *p, size_t old, size_t n) {
    Sandbox *s = ud;
    if (!p) old = 0; /* for a new block Lua passes a type tag as `old` */
    size_t held = arena_held(s->arena) - s->held_before + s->used;
    bool denied = n > old && held + (n - old) > (size_t)limits[LIMIT_MEMORY].value << 20;
    if (denied && !s->denied && s->L) s->denied_at = sandbox_source(s->L);
    if (n > old) s->denied = denied;
    if (denied) return NULL;
    void *q = NULL;
    if (!n)
        free(p);
    else if (!(q = realloc(p, n)))
        s->no_memory = true;
    if (q || !n) s->used += n - old;
    return q;
}

/* ── printed text ────────────────────────────────────────────────────────────────────────────────────────────────── */
void sandbox_printed(lua_State *L, size_t bytes) {
    Sandbox *s = sandbox_of(L);
    s->printed += (int64_t)bytes;
    if (s->printed > limits[LIMIT_PRINT].value << 10) sandbox_stop(sandbox_source(L), LIMIT_PRINT);
}

/* ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static Sandbox *watched; /* the open sandbox, for the signal handler */

static void count_hook(lua_State *L, lua_Debug *ar) {
    Sandbox *s = sandbox_of(L);
    if (s->used > GC_FROM && !lua_gc(L, LUA_GCISRUNNING)) lua_gc(L, LUA_GCRESTART);
    if (s->time_over) sandbox_stop(sandbox_source(L), LIMIT_TIME);
}

/* Runs in a signal handler: what it calls is allowed there, or allocates nothing and takes no lock. */
static void end_at(Source at) {
    char text[1024];
    int n = snprintf(text, sizeof text / 2, "%.400s:%d: ", at.file ? at.file : "shardc", at.line);
    n += stop_text(text + n, sizeof text - (size_t)n - 1, LIMIT_TIME);
    text[n++] = '\n';
    temp_remove();
    while (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0 && errno == EINTR) {}
    _exit(1);
}

static void no_frames(int signal) {
    end_at(watched->fallback);
}

/* The first tick stops Lua at its next instruction. A later one finds C code that may never return, such as a pattern,
 * and ends the process. Lua's frames can be read then, unless a call is being made at that moment. */
static void tick(int number) {
    Sandbox *s = watched;
    if (!s) return;
    if (s->time_over) {
        signal(SIGSEGV, no_frames);
        end_at(sandbox_source(s->L));
    }
    s->time_over = 1;
    lua_sethook(s->L, count_hook, LUA_MASKCOUNT, 1);
}

void sandbox_watch(Sandbox *s) {
    struct itimerval timer = {{0, s ? TICK_US : 0}, {s ? limits[LIMIT_TIME].value : 0, 0}};
    struct sigaction a = {.sa_handler = s ? tick : SIG_DFL, .sa_flags = SA_RESTART};
    watched = s;
    if (s) lua_sethook(s->L, count_hook, LUA_MASKCOUNT, HOOK_EVERY);
    if (s) sigaction(SIGPROF, &a, NULL);
    setitimer(ITIMER_PROF, &timer, NULL);
    if (!s) sigaction(SIGPROF, &a, NULL);
}
