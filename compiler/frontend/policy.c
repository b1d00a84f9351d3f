/* How a module is sharded and what it recomputes: nn.fully_shard, nn.checkpoint_wrapper, nn.checkpoint.
 * Relies on: args.c, modules.c.
 * Relied on by: nn.lua, policy_file.c, frontend.c. */
#include "../ir/foreign.h"
#include "../ir/mesh.h"
#include "fe.h"

#include <ctype.h>
#include <stdlib.h>

/* ── patterns ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 * `*` stands for any characters and `?` for one; in patterns for modules they stay within one part of the path, and
 * `**` crosses dots. `{0-15}` stands for a number from 0 to 15. Where a match fails, the last `*` takes one more
 * character; where it may not, the last `**` does: all before them has matched as early as it can, so nothing else need
 * be tried. */
typedef struct {
    const char *pattern, *text; /* where to go on after this star has taken one more character; NULL: no star yet */
} Star;

/* `{low-high}` at p against the digits at s: both move behind it. False: no range, or the number is outside. */
static bool in_range(const char **p, const char **s) {
    char *end, *last;
    if (**p != '{' || !isdigit((unsigned char)(*p)[1]) || !isdigit((unsigned char)**s)) return false;
    long low = strtol(*p + 1, &end, 10), high = low;
    if (*end == '-' && isdigit((unsigned char)end[1])) high = strtol(end + 1, &end, 10);
    long x = strtol(*s, &last, 10);
    if (*end != '}' || x < low || x > high) return false;
    *p = end + 1;
    *s = last;
    return true;
}

bool policy_range_malformed(const char *p) {
    enum { DIGITS = 9 };
    while ((p = strchr(p, '{'))) {
        size_t low = strspn(p + 1, "0123456789"), high = 0;
        const char *end = p + 1 + low;
        if (*end == '-') high = strspn(end + 1, "0123456789");
        if (!low || low > DIGITS || high > DIGITS || (*end == '-' && !high)) return true;
        if (high && atol(p + 1) > atol(end + 1)) return true;
        if (high) end += 1 + high;
        if (*end != '}') return true;
        p = end;
    }
    return false;
}

bool policy_path_match(const char *p, const char *s, bool across_dots) {
    Star shallow = {NULL, NULL}, deep = {NULL, NULL};
    for (;;) {
        if (*p == '*') {
            bool crosses = across_dots || p[1] == '*';
            while (*p == '*') p++;
            shallow = crosses ? (Star){NULL, NULL} : (Star){p, s};
            if (crosses) deep = (Star){p, s};
        } else if (*s && (*p == *s || (*p == '?' && (across_dots || *s != '.')))) {
            p++, s++;
        } else if (in_range(&p, &s)) {
            continue;
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

/* Two options contradict each other: the key's and another one. One may be the model's, the other a policy file's. */
__attribute__((format(printf, 3, 4))) static _Noreturn void contradiction(lua_State *L, const char *key,
                                                                          const char *fmt, ...) {
    const Frontend *f = fe_of(L);
    const Settings *s = f->reading;
    Source model = NOWHERE, entry = NOWHERE;
    va_list ap;
    va_start(ap, fmt);
    const char *message = arena_vprintf(f->arena, fmt, ap);
    va_end(ap);
    for (int i = 0; s && i < s->n; i++) {
        bool of_entry = false;
        for (int k = 0; k < f->entries.n; k++) of_entry |= f->entries.at[k].file == s->at[i].src.file;
        *(of_entry ? &entry : &model) = s->at[i].src;
    }
    if (model.file && entry.file)
        message = arena_printf(f->arena,
                               "%s\n  the policy file's options stand over those of %s:%d; replace = true in an entry "
                               "leaves these out",
                               message, model.file, model.line);
    field_fail(L, key, "%s", message);
}

/* ── sharding ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void read_mesh(lua_State *L, int t, const char *what, UnitPolicy *p) {
    if (!field_table(L, t, what, "mesh")) return;
    int m = lua_gettop(L);
    field_check_keys(L, m, "nn.mesh", "replicate shard expert");
    p->replicate = (int)field_integer(L, m, "nn.mesh", "replicate", 0, 1);
    p->shard = (int)field_integer(L, m, "nn.mesh", "shard", 0, 1);
    p->expert = (int)field_integer(L, m, "nn.mesh", "expert", 1, 1);
    int world = fe_of(L)->options->world;
    if (p->replicate && p->shard && (int64_t)p->replicate * p->shard != world)
        field_fail(L, "mesh",
                   "nn.mesh: replicate %d × shard %d does not make up the world of %d rank%s; give --world %lld%s%s",
                   p->replicate, p->shard, world, world == 1 ? "" : "s", (long long)p->replicate * p->shard,
                   world % p->replicate ? "" : ", or leave shard out: it takes the rest",
                   world % p->shard ? "" : ", or leave replicate out: it takes the rest");
    if ((p->replicate && world % p->replicate) || (p->shard && world % p->shard))
        field_fail(L, "mesh",
                   "nn.mesh: %s %d does not divide the world of %d rank%s; give --world %d or a multiple of it",
                   p->shard ? "shard" : "replicate", p->shard ? p->shard : p->replicate, world, world == 1 ? "" : "s",
                   p->shard ? p->shard : p->replicate);
    int shards = mesh_sizes(p, world).shards;
    if (shards % p->expert)
        field_fail(L, "mesh",
                   "nn.mesh: expert %d does not divide the %d rank%s that shard: the ranks of experts are taken from "
                   "them; give a divisor, or --world %d",
                   p->expert, shards, shards == 1 ? "" : "s", p->expert * (world / shards));
    lua_pop(L, 1);
}

static const char *place(lua_State *L, const char *key) { /* "net.lua:12", where the key stands */
    Source s = field_source(L, key);
    return arena_printf(fe_of(L)->arena, "%s:%d", s.file, s.line);
}

static void read_dtypes(lua_State *L, int t, const char *what, UnitOptions *o) {
    UnitPolicy *p = &o->policy;
    if (!field_table(L, t, what, "mp_policy")) return;
    int m = lua_gettop(L);
    field_check_keys(L, m, "mp_policy",
                     "param_dtype grad_dtype reduce_dtype output_dtype buffer_dtype cast_forward_inputs matmul_dtype "
                     "matmul_expert_dtype matmul_grad_dtype recipe");
    p->has_param_dtype = field_dtype(L, m, "mp_policy", "param_dtype", &p->param_dtype);
    p->has_grad_dtype = field_dtype(L, m, "mp_policy", "grad_dtype", &p->grad_dtype);
    p->has_reduce_dtype = field_dtype(L, m, "mp_policy", "reduce_dtype", &p->reduce_dtype);
    p->has_output_dtype = field_dtype(L, m, "mp_policy", "output_dtype", &p->output_dtype);
    o->has_buffer_dtype = field_dtype(L, m, "mp_policy", "buffer_dtype", &o->buffer_dtype);
    p->cast_forward_inputs = field_boolean(L, m, "mp_policy", "cast_forward_inputs", true);
    const char *matmul = field_string(L, m, "mp_policy", "matmul_dtype", NULL);
    p->matmul = matmul && !strcmp(matmul, "fp8") ? MATMUL_FP8 : MATMUL_PLAIN;
    if (matmul && !p->matmul && strcmp(matmul, "plain"))
        field_fail(L, "matmul_dtype",
                   "mp_policy: matmul_dtype = \"%s\"; there are \"fp8\", and \"plain\", with which linears multiply in "
                   "param_dtype",
                   matmul);
    const char *recipe = field_string(L, m, "mp_policy", "recipe", NULL);
    p->recipe = recipe && !strcmp(recipe, "delayed") ? RECIPE_DELAYED
                : recipe && !strcmp(recipe, "block") ? RECIPE_BLOCK
                                                     : RECIPE_TENSOR;
    if (recipe && !p->recipe && strcmp(recipe, "tensor"))
        field_fail(
            L, "recipe",
            "mp_policy: recipe = \"%s\"; there are \"tensor\", a scale for each tensor as it is, \"delayed\", one "
            "that steps before have left, and \"block\", one for each 128 elements along what is summed over",
            recipe);
    bool blocks = p->recipe == RECIPE_BLOCK;
    const char *expert = field_string(L, m, "mp_policy", "matmul_expert_dtype", "plain");
    p->matmul_expert = !strcmp(expert, "fp8") ? MATMUL_FP8 : MATMUL_PLAIN;
    if (!p->matmul_expert && strcmp(expert, "plain"))
        field_fail(L, "matmul_expert_dtype",
                   "mp_policy: matmul_expert_dtype = \"%s\"; there are \"fp8\", in which routed experts multiply then, "
                   "and \"plain\", with which they multiply in param_dtype",
                   expert);
    if (p->matmul_expert && blocks)
        contradiction(
            L, "matmul_expert_dtype",
            "mp_policy: matmul_expert_dtype = \"fp8\" with recipe = \"block\" (%s): products of experts have no "
            "scales of blocks; leave it out, and they multiply in param_dtype, or choose recipe = \"tensor\" or "
            "\"delayed\"",
            place(L, "recipe"));
    const char *grad = field_string(L, m, "mp_policy", "matmul_grad_dtype", blocks ? "e4m3" : "e5m2");
    p->matmul_grad = !strcmp(grad, "e4m3") ? FP8_E4M3 : FP8_E5M2;
    if (p->matmul_grad == FP8_E5M2 && strcmp(grad, "e5m2"))
        field_fail(L, "matmul_grad_dtype",
                   "mp_policy: matmul_grad_dtype = \"%s\"; there are \"e5m2\", of which gradients are made "
                   "unless recipe is \"block\", and \"e4m3\", which has a bit more and reaches less far",
                   grad);
    if (blocks && p->matmul_grad != FP8_E4M3)
        contradiction(L, "matmul_grad_dtype",
                      "mp_policy: matmul_grad_dtype = \"e5m2\" with recipe = \"block\" (%s): blocks are e4m3; leave "
                      "matmul_grad_dtype out",
                      place(L, "recipe"));
    if (p->has_grad_dtype && !p->has_reduce_dtype)
        contradiction(
            L, "grad_dtype",
            "mp_policy: grad_dtype = \"%s\" without reduce_dtype: gradients are then made in the dtype that they "
            "are reduced in; say what they are summed in too, reduce_dtype = \"fp32\"",
            dtype_name(p->grad_dtype));
    /* a reduce adds gradients up in the dtype they have, or widens 16 bits to fp32 */
    bool widens = dtype_size(p->grad_dtype) == 2 && p->reduce_dtype == FP32;
    if (p->has_grad_dtype && p->grad_dtype != p->reduce_dtype && !widens)
        contradiction(
            L, "grad_dtype",
            "mp_policy: gradients of grad_dtype = \"%s\" cannot be summed in reduce_dtype = \"%s\" (%s): make them in "
            "that dtype, or in \"bf16\" or \"fp16\" and sum them in \"fp32\"",
            dtype_name(p->grad_dtype), dtype_name(p->reduce_dtype), place(L, "reduce_dtype"));
    lua_pop(L, 1);
}

static void read_reshard(lua_State *L, int t, const char *what, UnitPolicy *p) {
    int type = lua_getfield(L, t, "reshard_after_forward"), is = type == LUA_TNUMBER;
    lua_Integer n = is ? lua_tointegerx(L, -1, &is) : 0;
    p->root_default = type == LUA_TNIL;
    p->reshard_after_forward = type != LUA_TBOOLEAN || lua_toboolean(L, -1);
    if (is) p->reshard_after_forward = (int)n;
    if ((type != LUA_TBOOLEAN && type != LUA_TNIL && !is) || (is && (n < 2 || n > INT32_MAX)))
        field_fail(L, "reshard_after_forward",
                   "%s: reshard_after_forward must be true, false or the size of a group (2 or more), not %s", what,
                   field_type(L, -1));
    lua_pop(L, 1);
    /* a group lies in one shard group of the mesh, and on one machine */
    const FrontendOptions *o = fe_of(L)->options;
    int ranks = p->reshard_after_forward, shards = mesh_sizes(p, o->world).shards;
    int nodes = o->nodes > 1 ? o->nodes : 1, experts = mesh_sizes(p, o->world).expert;
    if (ranks > 1 && o->world > 1 && shards % ranks)
        contradiction(
            L, "reshard_after_forward",
            "%s: reshard_after_forward = %d: a group of %d ranks does not divide the %d ranks that %s%s shards "
            "over; write true (to all of them), false, or a divisor",
            what, ranks, ranks, shards, p->shard || p->replicate ? "the mesh at " : "the world",
            p->shard || p->replicate ? place(L, "mesh") : "");
    if (ranks > 1 && experts > 1 && shards / experts % ranks)
        contradiction(L, "reshard_after_forward",
                      "%s: reshard_after_forward = %d: a group of %d ranks does not divide the %d that shard an expert "
                      "over the mesh at %s; write true, false, or a divisor",
                      what, ranks, ranks, shards / experts, place(L, "mesh"));
    if (ranks > 1 && ranks < shards && o->world / nodes % ranks)
        field_fail(L, "reshard_after_forward",
                   "%s: reshard_after_forward = %d: a group of %d ranks does not divide the %d ranks of a machine (%d "
                   "ranks on %d); gathers from it are to stay on one: write true, false, or a divisor of %d",
                   what, ranks, ranks, o->world / nodes, o->world, nodes, o->world / nodes);
}

/* What lasts over the microbatches of a step. */
static void read_accumulation(lua_State *L, int t, const char *what, UnitPolicy *p) {
    p->stay_gathered = !field_boolean(L, t, what, "reshard_after_backward", true);
    p->defer_sync = !field_boolean(L, t, what, "requires_gradient_sync", true);
    p->defer_all_reduce = !field_boolean(L, t, what, "requires_all_reduce", true);
    if (p->stay_gathered && !p->root_default && p->reshard_after_forward)
        contradiction(L, "reshard_after_backward",
                      "%s: reshard_after_backward = false keeps the unit gathered over the whole step, but "
                      "reshard_after_forward at %s reshards it in the midst of it; leave one of the two out",
                      what, place(L, "reshard_after_forward"));
    int world = fe_of(L)->options->world, replicas = 2; /* the fewest that the world can be cut into */
    while (replicas < world && world % replicas) replicas++;
    if (p->defer_all_reduce && !p->replicate && !p->shard)
        contradiction(
            L, "requires_all_reduce",
            "%s: requires_all_reduce = false, but the unit at %s:%d has no mesh with replicas, and nothing to "
            "all-reduce; write %srequires_gradient_sync = false",
            what, p->src.file, p->src.line,
            world < 2 ? "" : arena_printf(fe_of(L)->arena, "mesh = nn.mesh { replicate = %d }, or ", replicas));
}

static void read_offload(lua_State *L, int t, const char *what, UnitPolicy *p) {
    if (!field_table(L, t, what, "offload")) return;
    int m = lua_gettop(L);
    field_check_keys(L, m, "offload", "params grads optimizer");
    p->offload_params = field_boolean(L, m, "offload", "params", false);
    p->offload_grads = field_boolean(L, m, "offload", "grads", false);
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
    lua_pop(L, 1);
}

/* A depth, or a list of modules (paths, in policy files), whose units conflicts.c finds when the model is known. */
static int read_ahead(lua_State *L, int t, const char *key, UnitPolicy *p, bool backward) {
    Frontend *f = fe_of(L);
    int type = lua_getfield(L, t, key), list = lua_gettop(L);
    if (type == LUA_TTABLE) {
        Prefetch x = {.policy = p, .backward = backward, .src = field_source(L, key)};
        if (module_at(L, list) || !lua_rawlen(L, list))
            field_fail(L, key,
                       "prefetch: %s is %s; write how many units ahead to gather (0: none), or a list of modules, { "
                       "model.layers[2] }",
                       key, module_at(L, list) ? "a module" : "an empty list");
        for (int i = 1; i <= (int)lua_rawlen(L, list); i++) {
            lua_rawgeti(L, list, i);
            x.module = module_at(L, -1);
            x.path = lua_type(L, -1) == LUA_TSTRING ? arena_strdup(f->arena, lua_tostring(L, -1)) : NULL;
            if (!x.module && !x.path)
                field_fail(L, key, "prefetch: entry %d of %s is %s; lists hold modules, or their paths", i, key,
                           field_type(L, -1));
            push(&f->prefetches, f->arena, x);
        }
    }
    lua_settop(L, list - 1);
    return type == LUA_TTABLE ? 1 : (int)field_integer(L, t, "prefetch", key, 1, 0);
}

static UnitPolicy *read_unit_policy(lua_State *L, int t, const char *what, Source src) {
    UnitOptions *o = NEW(fe_of(L)->arena, UnitOptions);
    UnitPolicy *p = &o->policy;
    field_check_keys(L, t, what,
                     "mesh reshard_after_forward reshard_after_backward mp_policy offload prefetch unshard_in_backward "
                     "ignored_params gradient_divide_factor requires_gradient_sync requires_all_reduce all_gather");
    p->src = src;
    p->settings = *fe_of(L)->reading;
    p->cast_forward_inputs = true;
    p->expert = 1;
    read_mesh(L, t, what, p);
    read_dtypes(L, t, what, o);
    read_reshard(L, t, what, p);
    read_accumulation(L, t, what, p);
    read_offload(L, t, what, p);
    p->prefetch_forward = p->prefetch_backward = 1;
    if (field_table(L, t, what, "prefetch")) {
        int m = lua_gettop(L);
        field_check_keys(L, m, "prefetch", "forward backward");
        p->prefetch_forward = read_ahead(L, m, "forward", p, false);
        p->prefetch_backward = read_ahead(L, m, "backward", p, true);
        lua_pop(L, 1);
    }
    p->unshard_in_backward = field_boolean(L, t, what, "unshard_in_backward", true);
    if (!p->unshard_in_backward && p->reshard_after_forward >= 2)
        contradiction(
            L, "unshard_in_backward",
            "%s: unshard_in_backward = false says that the backward reads no parameter, but reshard_after_forward "
            "at %s keeps parts for it; write reshard_after_forward = true",
            what, place(L, "reshard_after_forward"));
    p->gradient_divide_factor = field_single(L, t, what, "gradient_divide_factor", 0);
    if (field_present(L, t, "gradient_divide_factor") && p->gradient_divide_factor <= 0)
        field_fail(L, "gradient_divide_factor", "%s: gradient_divide_factor must be positive", what);
    o->nignored = field_strings(L, t, what, "ignored_params", &o->ignored);
    p->all_gather = extension_field(L, t, what, "all_gather");
    return p;
}

/* mp_policy.buffer_dtype: floating-point buffers are kept in it. Before policy_ignore, which makes buffers of others.
 */
void policy_buffers(Frontend *f) {
    for (int i = 0; i < f->g->params.n; i++) {
        Param *p = f->g->params.at[i];
        const UnitOptions *o = policy_unit_options(module_unit(p->owner)->policy);
        if (p->is_buffer && o && o->has_buffer_dtype && dtype_float(p->dtype)) p->dtype = o->buffer_dtype;
    }
}

/* ── ignored parameters ──────────────────────────────────────────────────────────────────────────────────────────────
 * As in PyTorch they are neither sharded nor cast: every rank holds them whole, as they are stored. A frozen one is
 * then a buffer. PyTorch leaves the gradients of trainable ones as each rank made them, so that ranks drift apart
 * unless somebody sums them; here that is done, over all ranks. */
void policy_ignore(Frontend *f) {
    for (int i = 0; i < f->g->modules.n; i++) {
        const UnitOptions *o = policy_unit_options(f->g->modules.at[i]->policy);
        for (int k = 0; o && k < o->nignored; k++) {
            const char *pattern = o->ignored[k];
            Source src = policy_source(f, &o->policy, "ignored_params");
            VEC(const char *) paths = {0};
            bool met = false;
            if (policy_range_malformed(pattern)) fail(src, "ignored_params: '%s': %s", pattern, POLICY_RANGE);
            for (int n = 0; n < f->g->params.n; n++) {
                Param *p = f->g->params.at[n];
                push(&paths, f->arena, p->path);
                if (!policy_path_match(pattern, p->path, true)) continue;
                met = true;
                if (module_unit(p->owner)->policy != &o->policy || p->is_buffer) continue;
                if (o->policy.all_gather)
                    fail(src,
                         "ignored_params: %s is not gathered, and the extension of %s:%d gathers the parameters of "
                         "this unit; leave one of the two out, or wrap the parameter's module in a nn.fully_shard of "
                         "its own",
                         p->path, o->policy.all_gather->src.file, o->policy.all_gather->src.line);
                if (p->split > 1)
                    fail(src,
                         "ignored_params: %s holds experts, which the unit's mesh spreads over %d ranks; leave out "
                         "the one or the other",
                         p->path, p->split);
                p->ignored = p->requires_grad;
                p->is_buffer = !p->requires_grad;
                if (p->is_buffer) p->value->name = p->path;
            }
            if (!met)
                fail(src,
                     "ignored_params: no parameter's path matches '%s'%s; * stands for any characters, as in "
                     "\"*.bias\"",
                     pattern, field_nearest(f->arena, pattern, paths.at, paths.n));
        }
    }
}

/* Experts that a mesh spreads over ranks: from now on such a parameter has the shape of one rank's part. Modules and
 * policies are known, and nothing is traced yet. */
void policy_split(Frontend *f) {
    const UnitPolicy *spreads = NULL;
    for (int i = 0; i < f->g->modules.n; i++) {
        const UnitPolicy *p = f->g->modules.at[i]->policy;
        if (!p || p->expert == 1) continue;
        if (spreads && spreads->expert != p->expert)
            fail(policy_source(f, p, "mesh"),
                 "nn.mesh: expert = %d, and %d at %s:%d: experts of all units are spread over as many ranks", p->expert,
                 spreads->expert, spreads->src.file, spreads->src.line);
        spreads = p;
    }
    bool any = !spreads;
    for (int i = 0; i < f->params.n; i++) {
        ParamInfo *info = f->params.at[i];
        Param *p = &info->param;
        if (!p->experts || !info->holders.n) continue;
        const Module *unit = module_unit(param_owner(f, info));
        if (!unit->policy || unit->policy->expert == 1) continue;
        any = true;
        p->split = unit->policy->expert;
        if (p->shape[0] % p->split)
            fail(policy_source(f, unit->policy, "mesh"), "nn.mesh: expert = %d does not divide the %lld experts of %s",
                 p->split, (long long)p->shape[0], info->holders.at[0].path);
        if (unit->policy->all_gather)
            fail(policy_source(f, unit->policy, "all_gather"),
                 "all_gather: an extension gathers no experts that a mesh spreads (%s); leave out the one or the other",
                 info->holders.at[0].path);
        p->shape[0] /= p->split;
    }
    if (!any)
        fail(policy_source(f, spreads, "mesh"),
             "nn.mesh: expert = %d, but no unit that has this mesh holds experts: they are parameters of nn.MoE, or "
             "made by nn.parameter with experts = true",
             spreads->expert);
}

static int prim_mesh(lua_State *L) {
    options_table(L, 1);
    field_check_keys(L, 1, "nn.mesh", "replicate shard expert");
    return 1;
}

/* ── recomputation ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Checkpoint *read_checkpoint(lua_State *L, int t, const char *what, Source src) {
    Checkpoint *c = NEW(fe_of(L)->arena, Checkpoint);
    field_check_keys(L, t, what, "save offload recompute");
    c->src = src;
    if (fe_of(L)->reading) c->settings = *fe_of(L)->reading; /* none of nn.checkpoint, which no policy file changes */
    c->nsave = field_strings(L, t, what, "save", &c->save);
    c->noffload = field_strings(L, t, what, "offload", &c->offload);
    c->recompute = field_boolean(L, t, what, "recompute", true);
    if (c->nsave && !c->recompute)
        contradiction(L, "save",
                      "%s: save names what is kept instead of recomputed, but recompute = false at %s keeps all; leave "
                      "one of the two out",
                      what, place(L, "recompute"));
    return c;
}

static int prim_path_matches(lua_State *L) { /* pattern, path */
    lua_pushboolean(L, policy_path_match(luaL_checkstring(L, 1), luaL_checkstring(L, 2), true));
    return 1;
}

static int prim_checkpoint_options(lua_State *L) { /* of nn.checkpoint: table or nil -> what enter_checkpoint takes */
    options_table(L, 1);
    lua_pushlightuserdata(L, read_checkpoint(L, 1, "nn.checkpoint", sandbox_source(L)));
    return 1;
}

/* ── wrappers ──────────────────────────────────────────────────────────────────────────────────────────────
 */
static void write_setting(Frontend *f, Settings *s, const char *key, Source src) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->at[i].key, key)) {
            s->at[i].src = src;
            return;
        }
    push(s, f->arena, ((Setting){arena_strdup(f->arena, key), src}));
}

/* Pushes the value at the index, a plain table as a copy: the model may go on to change its own. */
static void push_copy(lua_State *L, int value) {
    bool object = lua_getmetatable(L, value);
    if (object) lua_pop(L, 1);
    if (!lua_istable(L, value) || object) {
        lua_pushvalue(L, value);
        return;
    }
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, value);) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
}

static bool among(const char *words, const char *key) { /* words: " a b c " */
    size_t n = strlen(key);
    for (const char *p = strstr(words, key); p && n; p = strstr(p + 1, key))
        if (p > words && p[-1] == ' ' && p[n] == ' ') return true;
    return false;
}

/* Writes the fields of the table `from` into the table `into`. */
static void overlay(Frontend *f, Settings *s, int from, int into, const char *tables, Source src) {
    lua_State *L = f->L;
    luaL_checkstack(L, 12, "options");
    for (lua_pushnil(L); lua_next(L, from); lua_pop(L, 1)) {
        int value = lua_gettop(L), key = value - 1;
        bool named = lua_type(L, key) == LUA_TSTRING;
        if (named) write_setting(f, s, lua_tostring(L, key), src);
        bool merges = named && lua_istable(L, value) && among(tables, lua_tostring(L, key));
        lua_pushvalue(L, key);
        if (merges && (lua_pushvalue(L, key), lua_rawget(L, into)) == LUA_TNIL) {
            lua_pop(L, 1);
            lua_newtable(L);
        }
        if (merges)
            overlay(f, s, value, lua_gettop(L), " ", src);
        else
            push_copy(L, value);
        lua_rawset(L, into);
    }
}

void policy_overlay(lua_State *L, ModuleInfo *m, WrapperKind k, int options, Source src) {
    Wrapper *w = &m->wrapper[k];
    if (!w->table) {
        lua_newtable(L);
        w->table = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    if (!w->src.file) w->src = src;
    lua_rawgeti(L, LUA_REGISTRYINDEX, w->table);
    const char *tables = k == FULLY_SHARD ? " mp_policy offload prefetch " : " ";
    overlay(fe_of(L), &w->settings, options, lua_gettop(L), tables, src);
    lua_pop(L, 1);
}

/* m->policy or m->checkpoint becomes what the wrapper's options say. */
static void read_wrapper(lua_State *L, ModuleInfo *m, WrapperKind k, const char *what) {
    const Wrapper *w = &m->wrapper[k];
    lua_rawgeti(L, LUA_REGISTRYINDEX, w->table);
    int options = lua_gettop(L);
    fe_of(L)->reading = &w->settings;
    if (k == FULLY_SHARD)
        m->policy = read_unit_policy(L, options, what, w->src);
    else
        m->checkpoint = read_checkpoint(L, options, what, w->src);
    fe_of(L)->reading = NULL;
    lua_settop(L, options - 1);
}

void policy_read(lua_State *L, ModuleInfo *m) {
    m->policy = NULL;
    m->checkpoint = NULL;
    if (m->wrapper[FULLY_SHARD].src.file) read_wrapper(L, m, FULLY_SHARD, "fully_shard");
    if (m->wrapper[CHECKPOINT].src.file) read_wrapper(L, m, CHECKPOINT, "checkpoint");
    m->ir->policy = m->policy;
    m->ir->checkpoint = m->checkpoint;
}

/* what(module, options) -> module */
static int wrap(lua_State *L, WrapperKind k, const char *what) {
    ModuleInfo *m = module_at(L, 1);
    if (!m) sandbox_fail(L, "%s: expected a module, got %s", what, field_type(L, 1));
    if (fe_of(L)->program)
        sandbox_fail(L, "%s: called while the model is traced; call it where the model is made", what);
    options_table(L, 2);
    if (!lua_istable(L, 2) || module_at(L, 2))
        sandbox_fail(L, "%s: expected a table of options, got %s; write %s(module, { ... })", what, field_type(L, 2),
                     what);
    Source before = m->wrapper[k].src;
    if (before.file)
        sandbox_fail(L, "%s: %s is wrapped already, at %s:%d; write all options there", what, m->made_by, before.file,
                     before.line);
    policy_overlay(L, m, k, 2, sandbox_source(L));
    read_wrapper(L, m, k, what);
    lua_settop(L, 1);
    return 1;
}

static int prim_fully_shard(lua_State *L) {
    return wrap(L, FULLY_SHARD, "nn.fully_shard");
}

static int prim_checkpoint_wrapper(lua_State *L) {
    return wrap(L, CHECKPOINT, "nn.checkpoint_wrapper");
}

Source policy_source(const Frontend *f, const UnitPolicy *p, const char *key) {
    Source at = setting_source(&p->settings, key, NOWHERE);
    return at.file ? field_key_source(f, at, key) : p->src;
}

void policy_loose(const Frontend *f) {
    for (int i = 0; i < f->modules.n; i++) {
        const ModuleInfo *m = f->modules.at[i];
        if (m->ir || !(m->policy || m->checkpoint)) continue;
        fail(m->policy ? m->policy->src : m->checkpoint->src,
             "%s: %s, made at %s:%d, is not part of the model: assign it to a field of a module",
             m->policy ? "nn.fully_shard" : "nn.checkpoint_wrapper", m->made_by, m->made.file, m->made.line);
    }
}

void policy_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"fully_shard", prim_fully_shard},
                                         {"mesh", prim_mesh},
                                         {"checkpoint_wrapper", prim_checkpoint_wrapper},
                                         {"checkpoint_options", prim_checkpoint_options},
                                         {"path_matches", prim_path_matches},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
