/* --policy files: each entry writes its options over those of the modules that it matches, key by key; the last wins,
 * of several files too.
 * Relies on: policy.c (wrappers), modules.c (paths).
 * Relied on by: training.c. */
#include "../ir/training.h"
#include "fe.h"

/* ── what a file changes ────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum {
    CHANGED_RECOMPUTE,
    CHANGED_OFFLOAD,
    CHANGED_RESHARD,
    CHANGED_PREFETCH,
    CHANGED_PRECISION,
    CHANGED_GRADIENTS,
    CHANGED_MESH,
    CHANGED_UNITS,
    N_CHANGES
} Change;
static const struct {
    const char *name, *options; /* names of a model's options that are about it: one of these words, "reshard_root" */
} changes[N_CHANGES] = {
    [CHANGED_RECOMPUTE] = {"recompute", " recompute checkpoint checkpointing "},
    [CHANGED_OFFLOAD] = {"offload", " offload "},
    [CHANGED_RESHARD] = {"reshard", " reshard "},
    [CHANGED_PREFETCH] = {"prefetch", " prefetch "},
    [CHANGED_PRECISION] = {"precision", " precision "},
    [CHANGED_GRADIENTS] = {"gradients", " gradients "},
    [CHANGED_MESH] = {"mesh", " mesh replicate shard expert "},
    [CHANGED_UNITS] = {"units", " units "},
};

static bool lists_differ(const char *const *a, int n, const char *const *b, int m) {
    bool differ = n != m;
    for (int i = 0; i < n && !differ; i++) differ = strcmp(a[i], b[i]) != 0;
    return differ;
}

static unsigned checkpoint_changes(const Checkpoint *a, const Checkpoint *b) {
    static const Checkpoint none = {0};
    const Checkpoint *x = a ? a : &none, *y = b ? b : &none;
    bool recompute =
        x->recompute != y->recompute || (x->recompute && lists_differ(x->save, x->nsave, y->save, y->nsave));
    return (unsigned)recompute << CHANGED_RECOMPUTE |
           (unsigned)lists_differ(x->offload, x->noffload, y->offload, y->noffload) << CHANGED_OFFLOAD;
}

static int reshard_of(const ModuleInfo *m, const UnitPolicy *p) { /* the root stays gathered unless it says otherwise */
    return p->root_default && !m->ir->parent ? 0 : p->reshard_after_forward;
}

static bool dtypes_differ(bool has_a, Dtype a, bool has_b, Dtype b) {
    return has_a != has_b || (has_a && a != b);
}

static unsigned unit_changes(const ModuleInfo *m, const UnitPolicy *a, const UnitPolicy *b) {
    if (!a || !b) return (unsigned)(a != b) << CHANGED_UNITS;
    bool offload = a->offload_params != b->offload_params || a->offload_grads != b->offload_grads ||
                   a->offload_optimizer != b->offload_optimizer || a->update != b->update;
    bool reshard = reshard_of(m, a) != reshard_of(m, b) || a->stay_gathered != b->stay_gathered;
    bool prefetch = a->prefetch_forward != b->prefetch_forward || a->prefetch_backward != b->prefetch_backward;
    bool precision = dtypes_differ(a->has_param_dtype, a->param_dtype, b->has_param_dtype, b->param_dtype) ||
                     dtypes_differ(a->has_output_dtype, a->output_dtype, b->has_output_dtype, b->output_dtype) ||
                     a->cast_forward_inputs != b->cast_forward_inputs || a->matmul != b->matmul ||
                     a->matmul_expert != b->matmul_expert ||
                     ((a->matmul || a->matmul_expert) && (a->recipe != b->recipe || a->matmul_grad != b->matmul_grad));
    bool gradients = dtypes_differ(a->has_grad_dtype, a->grad_dtype, b->has_grad_dtype, b->grad_dtype) ||
                     dtypes_differ(a->has_reduce_dtype, a->reduce_dtype, b->has_reduce_dtype, b->reduce_dtype) ||
                     a->defer_sync != b->defer_sync || a->defer_all_reduce != b->defer_all_reduce;
    bool mesh = a->replicate != b->replicate || a->shard != b->shard || a->expert != b->expert;
    return (unsigned)offload << CHANGED_OFFLOAD | (unsigned)reshard << CHANGED_RESHARD |
           (unsigned)prefetch << CHANGED_PREFETCH | (unsigned)precision << CHANGED_PRECISION |
           (unsigned)gradients << CHANGED_GRADIENTS | (unsigned)mesh << CHANGED_MESH;
}

/* One of an option's words, with _ between them, is among those of a change. */
static bool option_is_about(const char *option, const char *words) {
    for (const char *at = option, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "_");
        for (const char *w = words; (w = strchr(w, ' ')) && *++w;)
            if ((size_t)(end - at) == strcspn(w, " ") && !strncmp(at, w, (size_t)(end - at))) return true;
    }
    return false;
}

static void note_changes(Frontend *f, const char *name, unsigned changed) {
    Training *t = f->g->training;
    PolicyFile file = {.name = name};
    for (int k = 0; k < N_CHANGES; k++) {
        if (!(changed >> k & 1)) continue;
        push(&file.changes, f->arena, changes[k].name);
        for (int i = 0; i < t->options.n; i++)
            if (option_is_about(t->options.at[i].name, changes[k].options)) t->options.at[i].overridden = name;
    }
    push(&t->policies, f->arena, file);
}

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

static int apply_list(lua_State *L) { /* list, text, file, name: runs protected, so that mistakes get a line */
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
        lua_settop(L, 4);
        lua_rawgeti(L, 1, i);
        if (!lua_istable(L, 5))
            fail(top, "policy: entry %d is %s; entries are tables { match = \"layers.*\", ... }", i, field_type(L, 5));
        const char *pattern = field_string(L, 5, "policy", "match", NULL);
        Entry e = {.src = pattern ? entry_source(&cursor, file, pattern) : top, .table = 5};
        push(&f->entries, f->arena, e.src);
        sandbox_of(L)->fallback = e.src;
        field_check_keys(L, 5, "policy", "match replace fully_shard checkpoint");
        if (!pattern) fail(top, "policy: entry %d has no match = \"pattern\"", i);
        e.replaces = field_boolean(L, 5, "policy", "replace", false);
        apply_entry(f, &e, pattern);
    }
    unsigned changed = 0;
    for (int i = 0; i < f->placed.n; i++) {
        ModuleInfo *m = f->placed.at[i];
        if (!m->entry.file) continue;
        sandbox_of(L)->fallback = m->entry;
        const UnitPolicy *unit = m->policy;
        const Checkpoint *checkpoint = m->checkpoint;
        policy_read(L, m);
        changed |= unit_changes(m, unit, m->policy) | checkpoint_changes(checkpoint, m->checkpoint);
    }
    note_changes(f, lua_touserdata(L, 4), changed);
    return 0;
}

/* No statement of Lua begins with {: entries without `return { }` around them. */
static void check_begins(const char *text, const char *file) {
    int line = 1;
    for (; *text; text++) {
        if (text[0] == '-' && text[1] == '-') text += strcspn(text, "\n");
        line += *text == '\n';
        if (!*text || !strchr(" \t\r\n", *text)) break;
    }
    if (*text != '{') return;
    fail((Source){file, line}, "policy: the file begins with {; a file of policies begins with `return {`, as in\n"
                               "  return {\n    { match = \"layers.*\", checkpoint = {} },\n  }");
}

/* `file` is how messages call it, `name` how reports do. */
static void apply_text(Frontend *f, char *text, size_t n, const char *file, const char *name) {
    lua_State *L = f->L;
    check_begins(text, file);
    lua_pushcfunction(L, apply_list);
    sandbox_run(L, text, n, arena_printf(f->arena, "@%s", file), 1);
    lua_pushlightuserdata(L, text);
    lua_pushlightuserdata(L, (void *)file);
    lua_pushlightuserdata(L, (void *)name);
    sandbox_call(L, 4, 0);
}

void policy_file_apply(Frontend *f) {
    const FrontendOptions *o = f->options;
    for (int i = 0; i < o->npolicies; i++) {
        size_t n;
        char *text = input_read(f->arena, NOWHERE, o->policies[i], LUA_FILE_MOST, &n);
        apply_text(f, text, n, o->policies[i], o->policies[i]);
    }
    if (o->planned)
        apply_text(f, arena_strdup(f->arena, o->planned), strlen(o->planned), "plan", "chosen for the budget");
}
