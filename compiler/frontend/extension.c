/* What a model brings in C and CUDA C: nn.all_gather_extension, nn.custom_op and the calls of custom ops.
 * Relies on: args.c, trace.c. The files are only looked at here; compiler/extension/ reads them.
 * Relied on by: policy.c (nn.fully_shard's all_gather), nn.lua. */
#include "../ir/foreign.h"
#include "fe.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_SOURCE = 4 << 20 };

typedef VEC(int64_t) Ints;

/* ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Source here(lua_State *L, const char *key) {
    return sandbox_key_source(L, sandbox_source(L), key);
}

/* A file within the model's folder, as its name is printed: with the folder before it. */
static const char *file_field(lua_State *L, const char *what, const char *key, const char *suffix) {
    Sandbox *s = sandbox_of(L);
    const char *name = field_string(L, 1, what, key, NULL), *dot = name ? strrchr(name, '.') : NULL;
    if (!name) return NULL;
    if (!dot || strcmp(dot + 1, suffix))
        field_fail(L, key, "%s: %s = \"%s\": the name of a source file is wanted, ending in .%s", what, key, name,
                   suffix);
    const char *path = *name == '/' ? name : sandbox_path(s, name);
    char real[PATH_MAX];
    if (!realpath(path, real))
        field_fail(L, key, "%s: there is no file %s; files lie in the model's folder", what, path);
    if (*name == '/' || !sandbox_holds(s, real))
        field_fail(L, key, "%s: %s = \"%s\" leads out of the model's folder: copy the file into the folder", what, key,
                   name);
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode))
        field_fail(L, key, "%s: %s is no file; give the name of a source file", what, path);
    if (!st.st_size) field_fail(L, key, "%s: %s is empty; write the functions into it", what, path);
    if (st.st_size > MOST_SOURCE)
        field_fail(L, key, "%s: %s is larger than %d MiB; is it the right file?", what, path, MOST_SOURCE >> 20);
    return path;
}

static Extension *new_extension(lua_State *L, const char *what) {
    Frontend *f = fe_of(L);
    Extension *x = NEW(f->arena, Extension);
    x->id = f->g->extensions.n;
    x->src = sandbox_source(L);
    x->source = file_field(L, what, "source", "c");
    x->cuda = file_field(L, what, "cuda", "cu");
    x->source_at = here(L, "source");
    x->cuda_at = here(L, "cuda");
    if (!x->source && !x->cuda)
        sandbox_fail(L, "%s: which file? Give source = \"file.c\" for the CPU, cuda = \"file.cu\" for GPUs", what);
    push(&f->g->extensions, f->arena, x);
    return x;
}

static Extension *extension_at(lua_State *L, int index, bool gathers) {
    const Graph *g = fe_of(L)->g;
    const void *p = lua_islightuserdata(L, index) ? lua_touserdata(L, index) : NULL;
    for (int i = 0; p && i < g->extensions.n; i++)
        if (g->extensions.at[i] == p && g->extensions.at[i]->gathers == gathers) return g->extensions.at[i];
    return NULL;
}

/* ── all-gather extensions ──────────────────────────────────────────────────────────────────────────────────────────
 */
static Wire read_wire(lua_State *L, int t, int nth) {
    const char *what = arena_printf(fe_of(L)->arena, "wire %d", nth);
    Wire w = {.count = 1, .every = 1};
    field_check_keys(L, t, what, "dtype count every per");
    const char *per = field_string(L, t, what, "per", "element"), *dtype = field_string(L, t, what, "dtype", NULL);
    if (!dtype) sandbox_fail(L, "%s: which dtype? Write { dtype = \"bf16\" }", what);
    lua_pushstring(L, dtype);
    w.dtype = field_to_dtype(L, -1, what);
    lua_pop(L, 1);
    w.count = (int)field_integer(L, t, what, "count", 1, 1);
    w.every = (int)field_integer(L, t, what, "every", 1, 1);
    if (w.every > 256 || 256 % w.every)
        field_fail(L, "every", "%s: every = %d; a power of two up to 256 is wanted", what, w.every);
    if (w.count > 4096) field_fail(L, "count", "%s: count = %d; at most 4096 elements fit", what, w.count);
    if (strcmp(per, "element") && strcmp(per, "piece"))
        field_fail(L, "per", "%s: per = \"%s\"; it is \"element\" or \"piece\" (of a parameter on a rank)", what, per);
    if (!strcmp(per, "element")) return w;
    if (field_present(L, t, "every"))
        field_fail(L, "every", "%s: every counts elements, and this one counts pieces", what);
    w.every = 0;
    return w;
}

static int prim_all_gather_extension(lua_State *L) {
    const char *what = "nn.all_gather_extension";
    options_table(L, 1);
    field_check_keys(L, 1, what, "source cuda pre post wire amax align");
    Extension *x = new_extension(L, what);
    x->gathers = true;
    x->part[PRE_GATHER] = field_string(L, 1, what, "pre", "pre_all_gather");
    x->part[POST_GATHER] = field_string(L, 1, what, "post", "post_all_gather");
    x->amax = field_boolean(L, 1, what, "amax", false);
    const char *align = field_string(L, 1, what, "align", "element");
    x->rows = !strcmp(align, "row");
    if (!x->rows && strcmp(align, "element"))
        field_fail(L, "align", "%s: align = \"%s\"; it is \"element\" or \"row\"", what, align);
    /* "bf16", or a list of { dtype, count, every, per } */
    int type = lua_getfield(L, 1, "wire");
    if (type == LUA_TSTRING) {
        x->wire[x->nwires++] = (Wire){field_to_dtype(L, -1, what), 1, 1};
    } else if (type == LUA_TTABLE) {
        int n = (int)lua_rawlen(L, -1);
        if (n > MAX_WIRES) field_fail(L, "wire", "%s: %d wires; at most %d fit", what, n, MAX_WIRES);
        for (int i = 1; i <= n; i++) {
            lua_rawgeti(L, -1, i);
            x->wire[x->nwires++] = read_wire(L, lua_gettop(L), i);
            lua_pop(L, 1);
        }
    }
    if (!x->nwires)
        field_fail(L, "wire",
                   "%s: wire says what travels: a dtype, such as \"bf16\", or a list { { dtype = \"bf16\", count = 1, "
                   "every = 1, per = \"element\" }, ... }; this is %s",
                   what, field_type(L, -1));
    lua_pop(L, 1);
    lua_pushlightuserdata(L, x);
    return 1;
}

Extension *extension_field(lua_State *L, int table, const char *what, const char *key) {
    lua_getfield(L, table, key);
    Extension *x = extension_at(L, -1, true);
    if (!x && !lua_isnil(L, -1))
        field_fail(L, key, "%s: %s must be what nn.all_gather_extension { ... } gives, not %s", what, key,
                   field_type(L, -1));
    lua_pop(L, 1);
    return x;
}

/* ── custom ops ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int prim_custom_op(lua_State *L) { /* { source, cuda, forward, backward, ... } */
    const char *what = "nn.custom_op";
    Extension *x = new_extension(L, what);
    x->part[CUSTOM_FORWARD] = field_string(L, 1, what, "forward", NULL);
    x->part[CUSTOM_BACKWARD] = field_string(L, 1, what, "backward", NULL);
    if (!x->part[CUSTOM_FORWARD])
        sandbox_fail(L, "%s: which function? Write forward = \"name\", as it stands in the source", what);
    x->name = field_string(L, 1, what, "name", x->part[CUSTOM_FORWARD]);
    lua_pushlightuserdata(L, x);
    return 1;
}

/* A shape, or { shape = { ... }, dtype = "fp32" }; into the table of the op. */
static void add_result(lua_State *L, const Extension *x, Ints *table) {
    Arena *a = fe_of(L)->arena;
    int64_t shape[MAX_DIMS], dtype = -1;
    int t = lua_gettop(L);
    const char *what = arena_printf(a, "%s: results", x->name);
    bool named = lua_istable(L, t) && !module_at(L, t) && field_present(L, t, "shape");
    if (named) {
        field_check_keys(L, t, what, "shape dtype");
        if (lua_getfield(L, t, "dtype") != LUA_TNIL) dtype = field_to_dtype(L, -1, what);
        lua_getfield(L, t, "shape");
    }
    int dims = field_to_shape(L, -1, what, shape);
    push(table, a, dtype);
    push(table, a, dims);
    for (int i = 0; i < dims; i++) push(table, a, shape[i]);
    lua_settop(L, t);
}

/* custom(extension, operands, results, flops, numbers) -> results */
static int prim_custom(lua_State *L) {
    Frontend *f = fe_of(L);
    Extension *x = extension_at(L, 1, false);
    OpParts parts = {.custom = {.flops = luaL_checknumber(L, 4)}};
    int nin = (int)lua_rawlen(L, 2), nout = (int)lua_rawlen(L, 3), n = (int)lua_rawlen(L, 5);
    if (!f->program) sandbox_fail(L, "%s: called outside of forward and loss; tensors exist only there", x->name);
    if (nout < 1)
        trace_fail(L, NULL, "%s: results gives no shape; write results = function(x) return { x.shape } end", x->name);
    if (nin + 2 * nout > MAX_IN)
        trace_fail(L, NULL, "%s: %d operands and %d results; operands and twice the results are at most %d", x->name,
                   nin, nout, MAX_IN);
    if (n > SC_NUMBERS) trace_fail(L, NULL, "%s: %d numbers; at most %d fit", x->name, n, SC_NUMBERS);
    if (!(parts.custom.flops >= 0) || isinf(parts.custom.flops))
        trace_fail(L, NULL, "%s: flops must be a number of 0 or more", x->name);
    for (int i = 0; i < nin; i++) {
        lua_rawgeti(L, 2, i + 1);
        parts.custom.x[i] = tensor_value(L, -1, x->name);
        lua_pop(L, 1);
    }
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 5, i + 1);
        if (!lua_isnumber(L, -1)) trace_fail(L, NULL, "%s: number %d is %s", x->name, i + 1, field_type(L, -1));
        parts.custom.numbers[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    Ints table = {0};
    for (int i = 1; i <= nout; i++) {
        lua_rawgeti(L, 3, i);
        add_result(L, x, &table);
        lua_pop(L, 1);
    }
    Op *op = trace_op(L, OP_custom, &parts);
    op->extension = x;
    op->table = table.at;
    op->ntable = table.n;
    op_info[op->kind].infer(f->g, op);
    for (int i = 0; i < op->nout; i++) tensor_push(L, op->out[i]);
    return op->nout;
}

void extension_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"all_gather_extension", prim_all_gather_extension},
                                         {"custom_op", prim_custom_op},
                                         {"custom", prim_custom},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
