/* Fields of the tables that people give to nn and optim: every one is checked for name and type, at its own line.
 * Relies on: sandbox.h (lines, nearest names).
 * Relied on by: the rest of frontend/; nn.lua through field_check_keys. */
#include "fe.h"
#include "number.h"

#include <math.h>

const char *field_type(lua_State *L, int index) {
    if (lua_isnone(L, index)) return "nothing";
    if (tensor_at(L, index)) return "a tensor";
    if (module_at(L, index)) return "a module";
    if (scaler_at(L, index)) return "a scaler";
    switch (lua_type(L, index)) {
    case LUA_TNIL: return "nil";
    case LUA_TBOOLEAN: return lua_toboolean(L, index) ? "true" : "false";
    case LUA_TNUMBER: return arena_printf(fe_of(L)->arena, "the number %s", lua_tostring(L, index));
    case LUA_TSTRING: return arena_printf(fe_of(L)->arena, "the string \"%.60s\"", lua_tostring(L, index));
    case LUA_TFUNCTION: return "a function";
    default: return "a table";
    }
}

Source field_key_source(const Frontend *f, Source at, const char *key) {
    Source s = sandbox_key_source(f->L, at, key);
    for (int i = 0; i < f->entries.n; i++) {
        const Source *entry = &f->entries.at[i];
        if (entry->file == at.file && entry->line > at.line && entry->line <= s.line) return at; /* a later entry's */
    }
    return s;
}

Source field_source(lua_State *L, const char *key) {
    const Frontend *f = fe_of(L);
    Source call = sandbox_source(L);
    return field_key_source(f, f->reading ? setting_source(f->reading, key, call) : call, key);
}

void field_fail(lua_State *L, const char *key, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vfail(field_source(L, key), fmt, ap);
}

const char *field_nearest(Arena *a, const char *name, const char *const *names, int n) {
    const char *near = str_nearest(name, names, n);
    return near ? arena_printf(a, "; did you mean '%s'?", near) : "";
}

void field_check_keys(lua_State *L, int table, const char *what, const char *keys) {
    Arena *a = fe_of(L)->arena;
    VEC(const char *) names = {0};
    char *rest = arena_strdup(a, keys), *save = NULL;
    for (char *w = strtok_r(rest, " ", &save); w; w = strtok_r(NULL, " ", &save)) push(&names, a, (const char *)w);
    table = lua_absindex(L, table);
    if (!lua_istable(L, table) || module_at(L, table))
        sandbox_fail(L, "%s: expected a table { %s }, got %s", what, keys, field_type(L, table));
    sandbox_sorted_keys(L, table);
    for (int i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
        bool known = false;
        if (lua_type(L, -1) != LUA_TSTRING)
            sandbox_fail(L, "%s: entry %s without a name; the names are: %s", what, lua_tostring(L, -1), keys);
        const char *key = lua_tostring(L, -1);
        for (int k = 0; k < names.n && !known; k++) known = !strcmp(key, names.at[k]);
        const char *near = known ? NULL : sandbox_pytorch_name(L, "key", key);
        if (!known && !near) near = field_nearest(a, key, names.at, names.n);
        if (near && *near) field_fail(L, key, "%s: unknown key '%s'%s", what, key, near);
        if (!known) field_fail(L, key, "%s: unknown key '%s'; the keys are: %s", what, key, keys);
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
}

bool field_present(lua_State *L, int table, const char *key) {
    bool is = lua_getfield(L, table, key) != LUA_TNIL;
    lua_pop(L, 1);
    return is;
}

void options_table(lua_State *L, int index) {
    lua_settop(L, index);
    if (!lua_isnil(L, index)) return;
    lua_newtable(L);
    lua_replace(L, index);
}

static _Noreturn void wrong_type(lua_State *L, const char *what, const char *key, const char *expected) {
    field_fail(L, key, "%s: %s must be %s, not %s", what, key, expected, field_type(L, -1));
}

int64_t field_integer(lua_State *L, int table, const char *what, const char *key, int64_t otherwise, int64_t least) {
    int is = 1;
    int64_t x = otherwise;
    if (lua_getfield(L, table, key) != LUA_TNIL) {
        x = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &is) : (is = 0);
        if (!is) wrong_type(L, what, key, "a whole number");
        if (x < least || x > INT32_MAX)
            field_fail(L, key, "%s: %s = %lld is out of range; it must be %lld or more%s", what, key, (long long)x,
                       (long long)least, x > INT32_MAX ? ", and less than 2^31" : "");
    }
    lua_pop(L, 1);
    return x;
}

double field_number(lua_State *L, int table, const char *what, const char *key, double otherwise) {
    double x = otherwise;
    if (lua_getfield(L, table, key) != LUA_TNIL) {
        if (lua_type(L, -1) != LUA_TNUMBER) wrong_type(L, what, key, "a number");
        x = lua_tonumber(L, -1);
        if (!isfinite(x)) wrong_type(L, what, key, "a finite number");
    }
    lua_pop(L, 1);
    return x;
}

double field_single(lua_State *L, int table, const char *what, const char *key, double otherwise) {
    double x = field_number(L, table, what, key, otherwise);
    if (!sc_fits_fp32(x)) field_fail(L, key, "%s: %s = %g; " FP32_RANGE, what, key, x, (float)x, SC_LEAST_FP32);
    return x;
}

bool field_boolean(lua_State *L, int table, const char *what, const char *key, bool otherwise) {
    bool x = otherwise;
    if (lua_getfield(L, table, key) != LUA_TNIL) {
        if (!lua_isboolean(L, -1)) wrong_type(L, what, key, "true or false");
        x = lua_toboolean(L, -1);
    }
    lua_pop(L, 1);
    return x;
}

const char *field_string(lua_State *L, int table, const char *what, const char *key, const char *otherwise) {
    const char *x = otherwise;
    if (lua_getfield(L, table, key) != LUA_TNIL) {
        if (lua_type(L, -1) != LUA_TSTRING) wrong_type(L, what, key, "a string");
        x = arena_strdup(fe_of(L)->arena, lua_tostring(L, -1));
    }
    lua_pop(L, 1);
    return x;
}

static const char *const dtype_names[] = {"fp32",     "bf16",  "fp16",  "fp64", "fp8_e4m3",
                                          "fp8_e5m2", "int32", "int64", "bool"};

static const char *near_dtype(lua_State *L, const char *name, int n) {
    const char *answer = sandbox_pytorch_name(L, "dtype", name);
    return answer ? answer : field_nearest(fe_of(L)->arena, name, dtype_names, n);
}

Dtype field_to_dtype(lua_State *L, int index, const char *what) {
    Dtype d;
    if (lua_type(L, index) != LUA_TSTRING)
        sandbox_fail(L, "%s: expected the name of a dtype such as \"bf16\", got %s", what, field_type(L, index));
    const char *name = lua_tostring(L, index);
    if (!dtype_parse(name, &d) || d == INT8) /* nn.lora alone makes int8 */
        sandbox_fail(L, "%s: no dtype '%s'%s; there are fp32 bf16 fp16 int32 int64 bool", what, name,
                     near_dtype(L, name, sizeof dtype_names / sizeof *dtype_names));
    return d;
}

bool field_dtype(lua_State *L, int table, const char *what, const char *key, Dtype *out) {
    Dtype d;
    bool is = lua_getfield(L, table, key) != LUA_TNIL;
    if (is) {
        const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
        if (!name) wrong_type(L, what, key, "the name of a dtype such as \"bf16\"");
        if (!dtype_parse(name, &d) || !dtype_float(d) || d == FP8_E4M3 || d == FP8_E5M2)
            field_fail(L, key, "%s: %s = \"%s\"%s; there are fp32, bf16 and fp16", what, key, name,
                       near_dtype(L, name, 3));
        *out = d;
    }
    lua_pop(L, 1);
    return is;
}

int field_strings(lua_State *L, int table, const char *what, const char *key, const char ***out) {
    Arena *a = fe_of(L)->arena;
    VEC(const char *) list = {0};
    int type = lua_getfield(L, table, key);
    if (type == LUA_TSTRING)
        push(&list, a, (const char *)arena_strdup(a, lua_tostring(L, -1)));
    else if (type == LUA_TTABLE) {
        for (int i = 1; i <= (int)lua_rawlen(L, -1); i++) {
            if (lua_rawgeti(L, -1, i) != LUA_TSTRING) wrong_type(L, what, key, "a list of strings");
            push(&list, a, (const char *)arena_strdup(a, lua_tostring(L, -1)));
            lua_pop(L, 1);
        }
        if (!list.n && (lua_pushnil(L), lua_next(L, -2))) {
            lua_pop(L, 2);
            wrong_type(L, what, key, "a list of strings { \"a\", \"b\" }");
        }
    } else if (type != LUA_TNIL) {
        wrong_type(L, what, key, "a string or a list of strings");
    }
    lua_pop(L, 1);
    *out = list.at;
    return list.n;
}

bool field_table(lua_State *L, int table, const char *what, const char *key) {
    int type = lua_getfield(L, table, key);
    if (type == LUA_TNIL) {
        lua_pop(L, 1);
        return false;
    }
    if (type != LUA_TTABLE) wrong_type(L, what, key, "a table");
    return true;
}

/* `n` of the `dims` sizes are too many elements already. */
static _Noreturn void too_large(lua_State *L, const char *what, const int64_t *shape, int n, int dims) {
    Str s = {.arena = fe_of(L)->arena};
    for (int i = 0; i < n; i++) str_addf(&s, "%s%lld", i ? "," : "", (long long)shape[i]);
    sandbox_fail(L, "%s: the shape [%s%s] is of more elements than any memory holds; make it smaller", what, s.s,
                 n < dims ? ",..." : "");
}

int field_to_shape(lua_State *L, int table, const char *what, int64_t *shape) {
    table = lua_absindex(L, table);
    if (!lua_istable(L, table) || module_at(L, table))
        sandbox_fail(L, "%s: expected a shape such as { 8, 1024 }, got %s", what, field_type(L, table));
    int dims = (int)lua_rawlen(L, table);
    int64_t numel = 1;
    if (dims > MAX_DIMS)
        sandbox_fail(L, "%s: a shape of %d dims; at most %d are supported: fold some together", what, dims, MAX_DIMS);
    for (int i = 0; i < dims; i++) {
        int is = 0;
        if (lua_rawgeti(L, table, i + 1) == LUA_TNUMBER) shape[i] = lua_tointegerx(L, -1, &is);
        if (!is)
            sandbox_fail(L, "%s: size %d of the shape is %s; sizes are whole numbers", what, i + 1, field_type(L, -1));
        if (shape[i] < 1)
            sandbox_fail(L, "%s: size %d of the shape is %lld; sizes are at least 1", what, i + 1, (long long)shape[i]);
        if (__builtin_mul_overflow(numel, shape[i], &numel) || numel > (int64_t)1 << 45) /* 256 TiB of int64 */
            too_large(L, what, shape, i + 1, dims);
        lua_pop(L, 1);
    }
    return dims;
}
