/* How a module is sharded and what it recomputes: nn.fully_shard, nn.checkpoint_wrapper, nn.checkpoint, --policy files.
 * Relies on: args.c, modules.c.
 * Relied on by: nn.lua, frontend.c. */
#include "fe.h"

/* ── patterns ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 * `*` stands for any characters and `?` for one; in patterns for modules they stay within one part of the path, and
 * `**` crosses dots. Where a match fails, the last `*` takes one more character; where it may not, the last `**` does:
 * all before them has matched as early as it can, so nothing else need be tried. */
typedef struct {
    const char *pattern, *text; /* where to go on after this star has taken one more character; NULL: no star yet */
} Star;

bool path_match(const char *p, const char *s, bool across_dots) {
    Star shallow = {NULL, NULL}, deep = {NULL, NULL};
    for (;;) {
        if (*p == '*') {
            bool crosses = across_dots || p[1] == '*';
            while (*p == '*') p++;
            shallow = crosses ? (Star){NULL, NULL} : (Star){p, s};
            if (crosses) deep = (Star){p, s};
        } else if (*s && (*p == *s || (*p == '?' && (across_dots || *s != '.')))) {
            p++, s++;
        } else if (!*s && !*p) {
            return true;
        } else if (shallow.pattern && *shallow.text && *shallow.text != '.') {
            p = shallow.pattern;
            s = ++shallow.text;
        } else if (deep.pattern && *deep.text) {
            shallow = (Star){NULL, NULL};
            p = deep.pattern;
            s = ++deep.text;
        } else {
            return false;
        }
    }
}

/* ── sharding ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void read_mesh(lua_State *L, int t, const char *what, UnitPolicy *p) {
    if (!field_table(L, t, what, "mesh")) return;
    int m = lua_gettop(L);
    check_keys(L, m, "nn.mesh", "replicate shard");
    p->replicate = (int)field_integer(L, m, "nn.mesh", "replicate", 0, 1);
    p->shard = (int)field_integer(L, m, "nn.mesh", "shard", 0, 1);
    int world = fe_of(L)->options->world;
    if (p->replicate && p->shard && (int64_t)p->replicate * p->shard != world)
        field_fail(L, "mesh",
                   "nn.mesh: replicate %d × shard %d does not make up the world of %d ranks; leave one of them out and "
                   "it takes the rest",
                   p->replicate, p->shard, world);
    if ((p->replicate && world % p->replicate) || (p->shard && world % p->shard))
        field_fail(L, "mesh", "nn.mesh: %s %d does not divide the world of %d ranks", p->shard ? "shard" : "replicate",
                   p->shard ? p->shard : p->replicate, world);
    lua_pop(L, 1);
}

static void read_dtypes(lua_State *L, int t, const char *what, UnitPolicy *p) {
    if (!field_table(L, t, what, "mp_policy")) return;
    int m = lua_gettop(L);
    check_keys(L, m, "mp_policy", "param_dtype reduce_dtype output_dtype cast_forward_inputs");
    p->has_param_dtype = field_dtype(L, m, "mp_policy", "param_dtype", &p->param_dtype);
    p->has_reduce_dtype = field_dtype(L, m, "mp_policy", "reduce_dtype", &p->reduce_dtype);
    p->has_output_dtype = field_dtype(L, m, "mp_policy", "output_dtype", &p->output_dtype);
    p->cast_forward_inputs = field_boolean(L, m, "mp_policy", "cast_forward_inputs", true);
    lua_pop(L, 1);
}

static void read_reshard(lua_State *L, int t, const char *what, UnitPolicy *p) {
    int type = lua_getfield(L, t, "reshard_after_forward");
    p->root_default = type == LUA_TNIL;
    p->reshard_after_forward = type != LUA_TBOOLEAN || lua_toboolean(L, -1);
    if (type == LUA_TNUMBER && lua_tonumber(L, -1) >= 2)
        field_fail(
            L, "reshard_after_forward",
            "%s: reshard_after_forward = %s (to a group of that size) is not available in this version; write true "
            "(to all shards) or false",
            what, lua_tostring(L, -1));
    if (type != LUA_TBOOLEAN && type != LUA_TNIL)
        field_fail(L, "reshard_after_forward",
                   "%s: reshard_after_forward must be true, false or the size of a group (2 or more), not %s", what,
                   type_of(L, -1));
    lua_pop(L, 1);
}

static void read_offloaded_optimizer(lua_State *L, int m, UnitPolicy *p) {
    if (lua_getfield(L, m, "optimizer") == LUA_TSTRING) {
        const char *s = lua_tostring(L, -1);
        p->update = !strcmp(s, "stream") ? UPDATE_STREAM : !strcmp(s, "host") ? UPDATE_HOST : UPDATE_ANYWHERE;
        p->offload_optimizer = p->update != UPDATE_ANYWHERE;
        if (!p->offload_optimizer)
            field_fail(
                L, "optimizer",
                "offload: optimizer = \"%s\": write \"stream\" (updates on the device, the state passes through), "
                "\"host\" (updates on the CPU), true (whichever hides better) or false",
                s);
    } else {
        p->offload_optimizer = field_boolean(L, m, "offload", "optimizer", false);
    }
    lua_pop(L, 1);
}

static void read_offload(lua_State *L, int t, const char *what, UnitPolicy *p) {
    if (!field_table(L, t, what, "offload")) return;
    int m = lua_gettop(L);
    check_keys(L, m, "offload", "params grads optimizer");
    p->offload_params = field_boolean(L, m, "offload", "params", false);
    p->offload_grads = field_boolean(L, m, "offload", "grads", false);
    read_offloaded_optimizer(L, m, p);
    lua_pop(L, 1);
}

static int read_depth(lua_State *L, int t, const char *key) {
    int type = lua_getfield(L, t, key);
    if (type == LUA_TTABLE)
        field_fail(
            L, key,
            "prefetch: %s is %s; lists of units are not available in this version: write how many units ahead to "
            "gather, for example %s = 1",
            key, type_of(L, -1), key);
    lua_pop(L, 1);
    return (int)field_integer(L, t, "prefetch", key, 1, 0);
}

static void read_prefetch(lua_State *L, int t, const char *what, UnitPolicy *p) {
    p->prefetch_forward = p->prefetch_backward = 1;
    if (!field_table(L, t, what, "prefetch")) return;
    int m = lua_gettop(L);
    check_keys(L, m, "prefetch", "forward backward");
    p->prefetch_forward = read_depth(L, m, "forward");
    p->prefetch_backward = read_depth(L, m, "backward");
    lua_pop(L, 1);
}

static UnitPolicy *read_unit_policy(lua_State *L, int t, const char *what, Source src) {
    UnitPolicy *p = NEW(fe_of(L)->arena, UnitPolicy);
    check_keys(L, t, what,
               "mesh reshard_after_forward mp_policy offload prefetch unshard_in_backward ignored_params "
               "gradient_divide_factor all_gather");
    p->src = src;
    p->cast_forward_inputs = true;
    read_mesh(L, t, what, p);
    read_dtypes(L, t, what, p);
    read_reshard(L, t, what, p);
    read_offload(L, t, what, p);
    read_prefetch(L, t, what, p);
    p->unshard_in_backward = field_boolean(L, t, what, "unshard_in_backward", true);
    p->gradient_divide_factor = field_number(L, t, what, "gradient_divide_factor", 0);
    if (field_present(L, t, "gradient_divide_factor") && p->gradient_divide_factor <= 0)
        field_fail(L, "gradient_divide_factor", "%s: gradient_divide_factor must be positive", what);
    p->nignored = field_strings(L, t, what, "ignored_params", &p->ignored);
    p->all_gather = field_extension(L, t, what, "all_gather");
    return p;
}

/* ── ignored parameters ──────────────────────────────────────────────────────────────────────────────────────────────
 * As in PyTorch they are neither sharded nor cast, and their gradients are not reduced. Ranks that trained them would
 * drift apart, so only frozen ones can be ignored; whole on every rank and never written, such a one is a buffer. */
static const UnitPolicy *policy_of(const Param *p) {
    const Module *m = p->owner;
    while (m && !m->policy) m = m->parent;
    return m ? m->policy : NULL;
}

static void ignore(Frontend *f, const UnitPolicy *policy, const char *pattern) {
    Source src = lua_key_source(f->L, policy->src, "ignored_params");
    VEC(const char *) paths = {0};
    bool met = false;
    for (int i = 0; i < f->g->params.n; i++) {
        Param *p = f->g->params.at[i];
        push(&paths, f->arena, p->path);
        if (!path_match(pattern, p->path, true)) continue;
        met = true;
        if (policy_of(p) != policy || p->is_buffer) continue;
        if (p->requires_grad)
            fail(
                src,
                "ignored_params: %s is trainable; gradients of ignored parameters are not reduced, so that ranks would "
                "drift apart: freeze it (requires_grad = false, nn.freeze), or do not ignore it",
                p->path);
        if (policy->all_gather)
            fail(src,
                 "ignored_params: %s is not gathered, and the extension of %s:%d gathers the parameters of this unit; "
                 "leave one of the two out, or wrap the parameter's module in a nn.fully_shard of its own",
                 p->path, policy->all_gather->src.file, policy->all_gather->src.line);
        p->is_buffer = true;
        p->value->name = p->path;
    }
    if (!met)
        fail(src, "ignored_params: no parameter's path matches '%s'%s; * stands for any characters, as in \"*.bias\"",
             pattern, quote_nearest(f->arena, pattern, paths.at, paths.n));
}

void policy_ignore(Frontend *f) {
    for (int i = 0; i < f->g->modules.n; i++) {
        const UnitPolicy *policy = f->g->modules.at[i]->policy;
        for (int k = 0; policy && k < policy->nignored; k++) ignore(f, policy, policy->ignored[k]);
    }
}

static ModuleInfo *need_module(lua_State *L, const char *what) {
    ModuleInfo *m = module_at(L, 1);
    if (!m) lua_fail(L, "%s: expected a module, got %s", what, type_of(L, 1));
    if (fe_of(L)->program) lua_fail(L, "%s: called while the model is traced; call it where the model is made", what);
    return m;
}

static int prim_fully_shard(lua_State *L) {
    ModuleInfo *m = need_module(L, "nn.fully_shard");
    options_table(L, 2);
    if (m->policy)
        lua_fail(L, "nn.fully_shard: %s has a policy already, from %s:%d", m->made_by, m->policy->src.file,
                 m->policy->src.line);
    m->policy = read_unit_policy(L, 2, "nn.fully_shard", lua_source(L));
    lua_settop(L, 1);
    return 1;
}

static int prim_mesh(lua_State *L) {
    options_table(L, 1);
    check_keys(L, 1, "nn.mesh", "replicate shard");
    return 1;
}

/* ── recomputation ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Checkpoint *read_checkpoint(lua_State *L, int t, const char *what, Source src) {
    Checkpoint *c = NEW(fe_of(L)->arena, Checkpoint);
    check_keys(L, t, what, "save offload recompute");
    c->src = src;
    c->nsave = field_strings(L, t, what, "save", &c->save);
    c->noffload = field_strings(L, t, what, "offload", &c->offload);
    c->recompute = field_boolean(L, t, what, "recompute", true);
    if (c->nsave && !c->recompute)
        field_fail(L, "save",
                   "%s: save names what is kept instead of recomputed, but recompute = false keeps all; leave one "
                   "of the two out",
                   what);
    return c;
}

static int prim_checkpoint_wrapper(lua_State *L) {
    ModuleInfo *m = need_module(L, "nn.checkpoint_wrapper");
    options_table(L, 2);
    if (m->checkpoint)
        lua_fail(L, "nn.checkpoint_wrapper: %s is wrapped already, at %s:%d", m->made_by, m->checkpoint->src.file,
                 m->checkpoint->src.line);
    m->checkpoint = read_checkpoint(L, 2, "nn.checkpoint_wrapper", lua_source(L));
    lua_settop(L, 1);
    return 1;
}

static int prim_checkpoint_options(lua_State *L) { /* of nn.checkpoint: table or nil -> what enter_checkpoint takes */
    options_table(L, 1);
    lua_pushlightuserdata(L, read_checkpoint(L, 1, "nn.checkpoint", lua_source(L)));
    return 1;
}

/* ── --policy ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The line of an entry is not known to Lua; its pattern stands there in quotes. */
static Source entry_source(const char *file, const char *text, const char *pattern, int nth) {
    size_t n = strlen(pattern);
    int line = 1;
    for (const char *p = text; *p; p++) {
        line += *p == '\n';
        if ((*p == '"' || *p == '\'') && !strncmp(p + 1, pattern, n) && p[n + 1] == *p && nth-- == 0)
            return (Source){file, line};
    }
    return (Source){file, 1};
}

static void apply_entry(Frontend *f, int entry, const char *pattern, Source src) {
    lua_State *L = f->L;
    UnitPolicy *unit = NULL;
    Checkpoint *checkpoint = NULL;
    bool sets_unit = field_present(L, entry, "fully_shard"), sets_checkpoint = field_present(L, entry, "checkpoint");
    if (!sets_unit && !sets_checkpoint)
        fail(src,
             "policy: the entry for '%s' says nothing; add fully_shard = { ... } or checkpoint = { ... } (or = false)",
             pattern);
    lua_getfield(L, entry, "fully_shard");
    if (lua_toboolean(L, -1)) unit = read_unit_policy(L, lua_gettop(L), "fully_shard", src);
    lua_pop(L, 1);
    lua_getfield(L, entry, "checkpoint");
    if (lua_toboolean(L, -1)) checkpoint = read_checkpoint(L, lua_gettop(L), "checkpoint", src);
    lua_pop(L, 1);
    int met = 0;
    VEC(const char *) paths = {0};
    for (int i = 0; i < f->modules.n; i++) {
        ModuleInfo *m = f->modules.at[i];
        if (!m->ir) continue;
        push(&paths, f->arena, m->ir->path);
        if (!path_match(pattern, m->ir->path, false)) continue;
        met++;
        if (sets_unit) m->ir->policy = m->policy = unit;
        if (sets_checkpoint) m->ir->checkpoint = m->checkpoint = checkpoint;
    }
    if (!met)
        fail(src,
             "policy: no module's path matches '%s'%s; patterns are whole paths: \"\" is the model, * stays within one "
             "part, ** crosses dots",
             pattern, quote_nearest(f->arena, pattern, paths.at, paths.n));
}

static int apply_list(lua_State *L) { /* list, text: runs protected, so that mistakes get a line */
    Frontend *f = fe_of(L);
    const char *file = f->options->policy_file, *text = lua_touserdata(L, 2);
    Source top = {file, 1};
    sandbox_of(L)->fallback = top;
    if (!lua_istable(L, 1))
        fail(top, "policy: the file must return a list { { match = \"layers.*\", ... }, ... }, not %s", type_of(L, 1));
    int n = (int)lua_rawlen(L, 1);
    if (!n) fail(top, "policy: the list is empty; return { { match = \"layers.*\", fully_shard = { ... } }, ... }");
    VEC(const char *) seen = {0};
    for (int i = 1; i <= n; i++) {
        lua_settop(L, 2);
        lua_rawgeti(L, 1, i);
        if (!lua_istable(L, 3))
            fail(top, "policy: entry %d is %s; entries are tables { match = \"layers.*\", ... }", i, type_of(L, 3));
        check_keys(L, 3, "policy", "match fully_shard checkpoint");
        const char *pattern = field_string(L, 3, "policy", "match", NULL);
        if (!pattern) fail(top, "policy: entry %d has no match = \"pattern\"", i);
        int nth = 0;
        for (int k = 0; k < seen.n; k++) nth += !strcmp(seen.at[k], pattern);
        push(&seen, f->arena, pattern);
        sandbox_of(L)->fallback = entry_source(file, text, pattern, nth);
        apply_entry(f, 3, pattern, sandbox_of(L)->fallback);
    }
    return 0;
}

void policy_apply(Frontend *f) {
    lua_State *L = f->L;
    for (int i = 0; i < f->modules.n; i++) {
        const ModuleInfo *m = f->modules.at[i];
        if (m->ir || !(m->policy || m->checkpoint)) continue;
        fail(m->policy ? m->policy->src : m->checkpoint->src,
             "%s: %s, made at %s:%d, is not part of the model: assign it to a field of a module",
             m->policy ? "nn.fully_shard" : "nn.checkpoint_wrapper", m->made_by, m->made.file, m->made.line);
    }
    if (!f->options->policy_file) return;
    size_t n;
    const char *file = arena_strdup(f->arena, f->options->policy_file);
    char *text = read_file(f->arena, file, &n);
    lua_pushcfunction(L, apply_list);
    sandbox_run(L, text, n, arena_printf(f->arena, "@%s", file), 1);
    lua_pushlightuserdata(L, text);
    sandbox_call(L, 2, 0);
}

void policy_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"fully_shard", prim_fully_shard},
                                         {"mesh", prim_mesh},
                                         {"checkpoint_wrapper", prim_checkpoint_wrapper},
                                         {"checkpoint_options", prim_checkpoint_options},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
