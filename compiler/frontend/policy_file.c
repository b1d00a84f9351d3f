/* --policy files: each entry writes its options over those of the modules that it matches, key by key; the last wins,
 * of several files too.
 * Relies on: policy.c (wrappers), modules.c (paths).
 * Relied on by: training.c. */
#include "fe.h"

/* ── where an entry stands ──────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const char *text, *at; /* where the next entry is looked for */
    int line;
} Cursor;

static bool after_match(const char *text, const char *quote) { /* match = "... */
    while (quote > text && (quote[-1] == ' ' || quote[-1] == '\n')) quote--;
    if (quote == text || *--quote != '=') return false;
    while (quote > text && quote[-1] == ' ') quote--;
    return quote - text >= 5 && !strncmp(quote - 5, "match", 5);
}

/* Lua does not know the line of an entry; its pattern stands there in quotes, mostly behind that of the entry before.
 */
static Source entry_source(Cursor *c, const char *file, const char *pattern) {
    size_t n = strlen(pattern);
    for (int round = 0; round < 2; round++, c->at = c->text, c->line = 1)
        for (; *c->at; c->at++) {
            const char *p = c->at;
            c->line += *p == '\n';
            bool quoted = (*p == '"' || *p == '\'') && !strncmp(p + 1, pattern, n) && p[n + 1] == *p;
            if (!quoted || !after_match(c->text, p)) continue;
            c->at += n + 2;
            return (Source){file, c->line};
        }
    return (Source){file, 1};
}

/* ── entries ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    Source src;
    int table; /* stack index of the entry */
    bool replaces;
} Entry;

static const char *const wrapper_keys[N_WRAPPERS] = {[FULLY_SHARD] = "fully_shard", [CHECKPOINT] = "checkpoint"};

/* A wrapper's options in an entry are a table, which goes over those that the module has, or false: they go. */
static void apply_entry(Frontend *f, const Entry *e, const char *pattern) {
    lua_State *L = f->L;
    int met = 0, says = 0, options = lua_gettop(L) + 1, type[N_WRAPPERS]; /* stack indices from `options` on */
    for (int k = 0; k < N_WRAPPERS; k++) {
        type[k] = lua_getfield(L, e->table, wrapper_keys[k]);
        says += type[k] != LUA_TNIL;
        bool table = type[k] == LUA_TTABLE && !module_at(L, -1);
        bool takes_away = type[k] == LUA_TBOOLEAN && !lua_toboolean(L, -1);
        if (type[k] != LUA_TNIL && !table && !takes_away)
            fail(e->src, "policy: %s is %s; write a table of options, {} for the defaults, or false to take it away",
                 wrapper_keys[k], field_type(L, -1));
    }
    if (!says)
        fail(e->src,
             "policy: the entry for '%s' says nothing; add fully_shard = { ... } or checkpoint = { ... } (or = false)",
             pattern);
    if (policy_range_malformed(pattern)) fail(e->src, "policy: '%s': %s", pattern, POLICY_RANGE);
    for (int i = 0; i < f->placed.n; i++) {
        ModuleInfo *m = f->placed.at[i];
        if (!policy_path_match(pattern, m->ir->path, false)) continue;
        met++;
        m->entry = e->src;
        for (int k = 0; k < N_WRAPPERS; k++) {
            if (type[k] == LUA_TBOOLEAN || (type[k] == LUA_TTABLE && e->replaces)) m->wrapper[k] = (Wrapper){0};
            if (type[k] == LUA_TTABLE) policy_overlay(L, m, k, options + k, e->src);
        }
    }
    if (met) return;
    VEC(const char *) paths = {0};
    for (int i = 0; i < f->placed.n; i++) push(&paths, f->arena, f->placed.at[i]->ir->path);
    fail(e->src,
         "policy: no module's path matches '%s'%s; patterns are whole paths: \"\" is the model, * stays within one "
         "part, ** crosses dots",
         pattern, field_nearest(f->arena, pattern, paths.at, paths.n));
}

static int apply_list(lua_State *L) { /* list, text, file: runs protected, so that mistakes get a line */
    Frontend *f = fe_of(L);
    const char *text = lua_touserdata(L, 2), *file = lua_touserdata(L, 3);
    Source top = {file, 1};
    Cursor cursor = {text, text, 1};
    sandbox_of(L)->fallback = top;
    if (!lua_istable(L, 1))
        fail(top, "policy: the file must return a list { { match = \"layers.*\", ... }, ... }, not %s",
             field_type(L, 1));
    int n = (int)lua_rawlen(L, 1);
    if (!n && field_present(L, 1, "match"))
        fail(top, "policy: the file returns one entry; return a list of entries: { { match = ... } }");
    lua_pushnil(L);
    if (!n && lua_next(L, 1)) /* {} is allowed: shardc plan writes it where the model's own policies are best */
        fail(top, "policy: the list has no entry 1; return { { match = \"layers.*\", fully_shard = { ... } }, ... }");
    for (int i = 1; i <= n; i++) {
        lua_settop(L, 3);
        lua_rawgeti(L, 1, i);
        if (!lua_istable(L, 4))
            fail(top, "policy: entry %d is %s; entries are tables { match = \"layers.*\", ... }", i, field_type(L, 4));
        const char *pattern = field_string(L, 4, "policy", "match", NULL);
        Entry e = {.src = pattern ? entry_source(&cursor, file, pattern) : top, .table = 4};
        push(&f->entries, f->arena, e.src);
        sandbox_of(L)->fallback = e.src;
        field_check_keys(L, 4, "policy", "match replace fully_shard checkpoint");
        if (!pattern) fail(top, "policy: entry %d has no match = \"pattern\"", i);
        e.replaces = field_boolean(L, 4, "policy", "replace", false);
        apply_entry(f, &e, pattern);
    }
    for (int i = 0; i < f->placed.n; i++) {
        ModuleInfo *m = f->placed.at[i];
        if (!m->entry.file) continue;
        sandbox_of(L)->fallback = m->entry;
        policy_read(L, m);
    }
    return 0;
}

/* `file` is how messages call it. */
static void apply_text(Frontend *f, char *text, size_t n, const char *file) {
    lua_State *L = f->L;
    lua_pushcfunction(L, apply_list);
    sandbox_run(L, text, n, arena_printf(f->arena, "@%s", file), 1);
    lua_pushlightuserdata(L, text);
    lua_pushlightuserdata(L, (void *)file);
    sandbox_call(L, 3, 0);
}

void policy_file_apply(Frontend *f) {
    const FrontendOptions *o = f->options;
    for (int i = 0; i < o->npolicies; i++) {
        size_t n;
        char *text = input_read(f->arena, NOWHERE, o->policies[i], LUA_FILE_MOST, &n);
        apply_text(f, text, n, o->policies[i]);
    }
    if (o->planned) apply_text(f, arena_strdup(f->arena, o->planned), strlen(o->planned), "plan");
}
