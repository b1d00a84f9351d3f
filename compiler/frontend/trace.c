/* Tensors in Lua, and the one primitive that makes any op of ops.def by name.
 * Relies on: ir/build.h; tensor.c, handles.c.
 * Relied on by: nn.lua, scaler.c, extension.c, frontend.c. */
#include "../ir/constant.h"
#include "../ir/mesh.h"
#include "../ir/notes.h"
#include "fe.h"
#include "number.h"

static const char *tensor_str(lua_State *L, const Tensor *t) {
    Arena *a = fe_of(L)->arena;
    return t->param ? param_str(a, &t->param->param) : value_str(a, t->value);
}

static int prim_fail(lua_State *L) { /* message, remedy or nil */
    trace_fail(L, lua_isstring(L, 2) ? lua_tostring(L, 2) : NULL, "%s", luaL_checkstring(L, 1));
}

static int prim_note(lua_State *L) { /* message */
    remark(sandbox_source(L), "%s", luaL_checkstring(L, 1));
    return 0;
}

/* ── making ops ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Op *trace_op(lua_State *L, OpKind k, const OpParts *parts) {
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    Op *op = build_op(&b, k, parts);
    trace_finish(L, first);
    return op;
}

/* The program checks what data index; what the model itself writes down is checked here. */
static void check_indices(lua_State *L, const Op *op) {
    Arena *a = fe_of(L)->arena;
    for (int k = 0; k < op->nin; k++) {
        int64_t limit = op_index_limit(op, k);
        const double *x = limit ? constant_elements(a, op->in[k]) : NULL;
        for (int64_t i = 0; x && i < value_numel(op->in[k]); i++)
            if (x[i] < 0 || x[i] >= (double)limit)
                trace_fail(L, arena_printf(a, "index 0 to %lld, or make the table larger", (long long)limit - 1),
                           "%s: the index %s holds the constant %.0f, but the table has %lld rows",
                           op_info[op->kind].name, value_str(a, op->in[k]), x[i], (long long)limit);
    }
}

/* Pushes a field of prim_op's table and takes it out of there, so that what no op has is left. nil: false. */
static bool take(lua_State *L, const char *key) {
    bool there = lua_getfield(L, 2, key) != LUA_TNIL;
    lua_pushnil(L);
    lua_setfield(L, 2, key);
    return there;
}

static void take_operand(lua_State *L, const char *name, const Slot *s, Value **out) {
    if (!take(L, s->name)) {
        if (!(s->flags & OPTIONAL)) bug(sandbox_source(L), "%s: its table has no operand '%s'", name, s->name);
    } else if (!s->n) {
        *out = tensor_value(L, -1, name);
    } else {
        if (!lua_istable(L, -1)) bug(sandbox_source(L), "%s: %s is no list, but %s", name, s->name, field_type(L, -1));
        int n = (int)lua_rawlen(L, -1);
        if (n > s->n) trace_fail(L, NULL, "%s: %d operands; at most %d fit: do it in two steps", name, n, s->n);
        for (int k = 0; k < n; k++) {
            lua_rawgeti(L, -1, k + 1);
            out[k] = tensor_value(L, -1, name);
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

/* Kernels hold it as fp32. A clamp's bound may be infinite, and round to 0; a probability stays below 1. */
static void check_single(lua_State *L, const char *op, const char *name, double x) {
    bool bound = !strcmp(op, "clamp"), probability = !strcmp(name, "p") || !strcmp(name, "dropout");
    if (!bound && !sc_fits_fp32(x))
        trace_fail(L, NULL, "%s: %s = %g; " FP32_RANGE, op, name, x, (float)x, SC_LEAST_FP32);
    if (probability && (float)x >= 1)
        trace_fail(L, NULL, "%s: the probability %.15g is 1 in fp32, in which it is used; it must be below 1", op, x);
}

/* The constant of an ENUM that is called so; what is no name is a number. */
static int64_t to_word(lua_State *L, const char *op, const Attribute *a) {
    int64_t k = 0;
    const char *word = luaL_checkstring(L, -1);
    while (a->words[k] && strcmp(a->words[k], word) != 0) k++;
    if (!a->words[k]) bug(sandbox_source(L), "%s: %s has no %s", op, a->name, word);
    return k;
}

/* The table on top as one of the graph's lists. */
static int64_t to_list(lua_State *L, const char *op, const Attribute *a) {
    Graph *g = fe_of(L)->g;
    if (!lua_istable(L, -1)) bug(sandbox_source(L), "%s: %s is %s", op, a->name, field_type(L, -1));
    int n = (int)lua_rawlen(L, -1);
    float *x = NEW_ARRAY(g->arena, float, n + 1);
    for (int k = 0; k < n; k++) {
        lua_rawgeti(L, -1, k + 1);
        double number = luaL_checknumber(L, -1);
        check_single(L, op, a->name, number);
        x[k] = (float)number;
        lua_pop(L, 1);
    }
    return graph_numbers(g, x, n);
}

/* The number on top is number `at` of parts->i or parts->f. */
static void to_attribute(lua_State *L, const char *name, const Attribute *a, OpParts *parts, int at) {
    int is = 1;
    switch (a->type) {
    case A_FLAG:
        is = lua_isboolean(L, -1);
        parts->i[at] = lua_toboolean(L, -1);
        break;
    case A_NUMBERS: parts->i[at] = to_list(L, name, a); break;
    case A_INT:
        if (a->words) {
            parts->i[at] = to_word(L, name, a);
            break;
        } /* fall through */
    case A_FLAGS:
    case A_AXIS: parts->i[at] = lua_tointegerx(L, -1, &is); break;
    case A_DTYPE: parts->i[at] = field_to_dtype(L, -1, name); break;
    case A_WIDER: parts->i[at] = field_to_dtype(L, -1, name) + 1; break;
    case A_FLOAT:
        parts->f[at] = lua_tonumberx(L, -1, &is);
        if (is) check_single(L, name, a->name, parts->f[at]);
        break;
    }
    if (!is) bug(sandbox_source(L), "%s: %s is %s", name, a->name, field_type(L, -1));
}

static void take_attribute(lua_State *L, const char *name, const Attribute *a, OpParts *parts, int at) {
    bool there = take(L, a->name);
    if (there && a->n == 1) {
        to_attribute(L, name, a, parts, at);
    } else if (there) {
        if (!lua_istable(L, -1) || (int)lua_rawlen(L, -1) > a->n)
            bug(sandbox_source(L), "%s: %s is no list of at most %d numbers", name, a->name, a->n);
        for (int k = 0, n = (int)lua_rawlen(L, -1); k < n; k++) {
            lua_rawgeti(L, -1, k + 1);
            to_attribute(L, name, a, parts, at + k);
            lua_pop(L, 1);
        }
    } else if (a->type != A_FLAG && a->type != A_WIDER && a->type != A_NUMBERS && !a->words) {
        bug(sandbox_source(L), "%s: its table has no attribute '%s'; its function in lua/nn/ must pass it", name,
            a->name);
    }
    lua_pop(L, 1);
}

/* op(name, { a = x, trans_a = true, sizes = { 1, 2 } }) -> results. The table has operands and attributes by the names
 * of ops.def. It may leave out optional operands, flags (false), enums (their first value), lists and wider dtypes
 * (none). */
static int prim_op(lua_State *L) {
    const char *name = luaL_checkstring(L, 1);
    OpKind k = op_by_name(name);
    if (k == N_OPS) bug(sandbox_source(L), "no op '%s'", name);
    trace_needed(L, name);
    luaL_checktype(L, 2, LUA_TTABLE);
    OpParts parts = {0};
    Value **in = parts.in;
    for (const Slot *s = op_info[k].operands; s->name; in += s->n ? s->n : 1, s++) take_operand(L, name, s, in);
    int ints = 0, floats = 0;
    for (const Attribute *a = op_info[k].attributes; a->name; a++) {
        int *at = a->type == A_FLOAT ? &floats : &ints;
        take_attribute(L, name, a, &parts, *at);
        *at += a->n;
    }
    lua_pushnil(L);
    if (lua_next(L, 2))
        bug(sandbox_source(L), "%s has no operand or attribute '%s'", name, luaL_tolstring(L, -2, NULL));
    Op *op = trace_op(L, k, &parts);
    check_indices(L, op);
    luaL_checkstack(L, op->nout, "too many results");
    for (int i = 0; i < op->nout; i++) tensor_push(L, op->out[i]);
    return op->nout;
}

/* reshape(x, shape): -1 stands for what is left; a copy first where the strides allow no view. */
static int prim_reshape(lua_State *L) {
    Value *x = tensor_value(L, 1, "reshape");
    int64_t shape[MAX_DIMS] = {0}, known = 1, numel = value_numel(x);
    Arena *a = fe_of(L)->arena;
    luaL_checktype(L, 2, LUA_TTABLE);
    int dims = (int)lua_rawlen(L, 2), open = -1;
    if (dims > MAX_DIMS)
        trace_fail(L, NULL, "reshape: %d dims; at most %d are supported: fold some together", dims, MAX_DIMS);
    Str s = {.arena = a};
    for (int i = 0; i < dims; i++) {
        int is = 0;
        if (lua_rawgeti(L, 2, i + 1) == LUA_TNUMBER) shape[i] = lua_tointegerx(L, -1, &is);
        if (!is || shape[i] < -1 || shape[i] == 0)
            trace_fail(L, NULL, "reshape: size %d is %s; sizes are whole numbers of at least 1, one may be -1", i + 1,
                       field_type(L, -1));
        lua_pop(L, 1);
        str_addf(&s, "%s%lld", i ? "," : "", (long long)shape[i]);
        if (shape[i] < 0 && open >= 0)
            trace_fail(L, NULL, "reshape: two sizes of -1 in [%s]; at most one can be worked out", s.s);
        if (shape[i] < 0)
            open = i;
        else if (__builtin_mul_overflow(known, shape[i], &known))
            trace_fail(L, NULL, "reshape: [%s] is too large", s.s);
    }
    if (open >= 0 ? numel % known : numel != known)
        trace_fail(L, NULL, "reshape: %s has %lld elements, which [%s] cannot hold%s", value_str(a, x),
                   (long long)numel, s.s ? s.s : "",
                   open >= 0 ? arena_printf(a, ": %lld is no multiple of %lld", (long long)numel, (long long)known)
                             : arena_printf(a, ": it has %lld", (long long)known));
    if (open >= 0) shape[open] = numel / known;
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    Value *y = build_reshape(&b, x, dims, shape);
    trace_finish(L, first);
    tensor_push(L, y);
    return 1;
}

/* cast(x, dtype), cast(x, like). Made also where x is traced in that dtype: its unit may give it another. */
static int prim_cast(lua_State *L) {
    Value *x = tensor_value(L, 1, "cast"), *like = tensor_at(L, 2) ? tensor_value(L, 2, "cast") : NULL;
    Dtype to = like ? like->dtype : field_to_dtype(L, 2, "cast");
    Op *op = trace_op(L, OP_cast, &(OpParts){.cast = {.a = x, .dtype = to}});
    note_on(fe_of(L)->g, fe_of(L)->program, op->cast.y)->like = like;
    tensor_push(L, op->cast.y);
    return 1;
}

static int prim_full(lua_State *L) { /* shape, value, dtype */
    trace_needed(L, "full");
    OpParts parts = {.full = {.value = luaL_checknumber(L, 2)}};
    parts.full.dims = field_to_shape(L, 1, "full", parts.full.shape);
    parts.full.dtype = field_to_dtype(L, 3, "full");
    trace_need_number(L, "full", parts.full.value, parts.full.dtype);
    tensor_push(L, trace_op(L, OP_full, &parts)->full.y);
    return 1;
}

static int prim_arange(lua_State *L) { /* n, start, step, dtype */
    trace_needed(L, "arange");
    OpParts parts = {.arange = {.n = luaL_checkinteger(L, 1),
                                .start = luaL_checknumber(L, 2),
                                .step = luaL_checknumber(L, 3),
                                .dtype = field_to_dtype(L, 4, "arange")}};
    trace_need_number(L, "arange", parts.arange.start + parts.arange.step * (double)(parts.arange.n - 1),
                      parts.arange.dtype);
    tensor_push(L, trace_op(L, OP_arange, &parts)->arange.y);
    return 1;
}

/* axis(what, name): its ranks, the group that a collective of the model along it goes over, its number. */
static int prim_axis(lua_State *L) {
    const char *what = luaL_checkstring(L, 1);
    trace_needed(L, what);
    Graph *g = fe_of(L)->g;
    const Axis *along = lua_isnoneornil(L, 2)           ? g->axes.at[SC_WORLD]
                        : lua_type(L, 2) == LUA_TSTRING ? mesh_axis_named(g, lua_tostring(L, 2))
                                                        : NULL;
    if (!along)
        trace_fail(L, NULL,
                   "%s: no axis of the mesh is %s; write \"world\" (all ranks), \"shard\", \"replicate\" or \"expert\"",
                   what, field_type(L, 2));
    lua_pushinteger(L, along->size);
    lua_pushinteger(L, along->size > 1 ? mesh_exchange(g, along) : mesh_group(g, along));
    lua_pushinteger(L, along->id);
    return 3;
}

/* x shows its operand with the last two dims swapped and nothing else changed. */
static bool swaps_last_two(const Value *x) {
    if (!x->def || !op_is(x->def, T_VIEW) || op_is(x->def, T_NO_GRAD) || x->dims < 2) return false;
    const Value *from = op_operand(x->def);
    bool same = from->dims == x->dims && from->offset == x->offset;
    for (int d = 0; d < x->dims && same; d++) {
        int e = d < x->dims - 2 ? d : 2 * x->dims - 3 - d;
        same = x->shape[d] == from->shape[e] && x->stride[d] == from->stride[e];
    }
    return same;
}

/* untransposed(x): x itself, or what it is a transposed view of, and whether it was one: a matmul reads such an operand
 * where it lies. */
static int prim_untransposed(lua_State *L) {
    Value *x = tensor_value(L, 1, "matmul");
    bool swapped = swaps_last_two(x);
    if (swapped)
        tensor_push(L, op_operand(x->def));
    else
        lua_pushvalue(L, 1);
    lua_pushboolean(L, swapped);
    return 2;
}

/* ── what a tensor tells of itself ──────────────────────────────────────────────────────────────────────────────────
 */
static int shape_field(lua_State *L) {
    if (lua_type(L, 2) == LUA_TNUMBER && lua_tonumber(L, 2) < 1) /* ipairs looks one past the end */
        sandbox_fail(
            L,
            "shape[%s] is out of range; shape is a Lua table that starts at 1, and x:size(d) counts dimensions "
            "from 0 or, negative, from the end",
            lua_tostring(L, 2));
    lua_pushnil(L);
    return 1;
}

static void push_shape(lua_State *L, const Tensor *t) {
    const int64_t *shape = t->param ? t->param->param.shape : t->value->shape;
    int dims = t->param ? t->param->param.dims : t->value->dims;
    lua_createtable(L, dims, 0);
    for (int i = 0; i < dims; i++) {
        lua_pushinteger(L, shape[i]);
        lua_rawseti(L, -2, i + 1);
    }
    if (luaL_newmetatable(L, "shardc.shape")) {
        lua_pushcfunction(L, shape_field);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
}

/* size(x, d): x.shape[d + 1] without the table; from the end where d is negative. Lua has seen that there is one. */
static int prim_size(lua_State *L) {
    const Tensor *t = tensor_at(L, 1);
    int dims = t->param ? t->param->param.dims : t->value->dims, d = (int)lua_tointeger(L, 2);
    if (d < 0) d += dims;
    if (d < 0 || d >= dims) bug(sandbox_source(L), "no dimension %d of %s", d, tensor_str(L, t));
    lua_pushinteger(L, t->param ? t->param->param.shape[d] : t->value->shape[d]);
    return 1;
}

static int tensor_index(lua_State *L) { /* upvalue: methods */
    Tensor *t = tensor_at(L, 1);
    if (lua_type(L, 2) == LUA_TNUMBER)
        sandbox_fail(L, "tensors are not indexed; nn.slice(x, dim, start, stop) cuts a piece of %s", tensor_str(L, t));
    const char *key = luaL_checkstring(L, 2);
    if (!strcmp(key, "shape"))
        push_shape(L, t);
    else if (!strcmp(key, "dtype"))
        lua_pushstring(L, dtype_name(t->param ? t->param->param.dtype : t->value->dtype));
    else if (!strcmp(key, "ndim"))
        lua_pushinteger(L, t->param ? t->param->param.dims : t->value->dims);
    else if (lua_getfield(L, lua_upvalueindex(1), key) == LUA_TNIL)
        sandbox_fail(L, "a tensor has no field or method '%s'%s", key,
                     sandbox_suggestion(L, "a tensor", lua_upvalueindex(1), key));
    return 1;
}

static int tensor_tostring(lua_State *L) {
    lua_pushstring(L, tensor_str(L, tensor_at(L, 1)));
    return 1;
}

static int tensor_compare(lua_State *L) { /* upvalue: "nn.lt" */
    sandbox_fail(L, "comparing tensors with %s would give one true or false for all elements; write %s",
                 lua_tostring(L, lua_upvalueindex(1)), lua_tostring(L, lua_upvalueindex(2)));
}

static int tensor_unsupported(lua_State *L) { /* upvalues: operator, remedy */
    sandbox_fail(L, "a tensor has no operator %s; %s", lua_tostring(L, lua_upvalueindex(1)),
                 lua_tostring(L, lua_upvalueindex(2)));
}

static int arithmetic(lua_State *L) {
    return tensor_arithmetic(L, lua_tostring(L, lua_upvalueindex(1)));
}

static int tensor_newindex(lua_State *L) {
    sandbox_fail(L, "tensors cannot be written to: every operation gives a new one");
}

static void set_closure(lua_State *L, const char *event, lua_CFunction fn, const char *a, const char *b) {
    lua_pushstring(L, a);
    lua_pushstring(L, b);
    lua_pushcclosure(L, fn, 2);
    lua_setfield(L, -2, event);
}

/* methods(table): what x:name(...) finds */
static int prim_methods(lua_State *L) {
    luaL_getmetatable(L, TENSOR);
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, tensor_index, 1);
    lua_setfield(L, -2, "__index");
    return 0;
}

static int prim_is_tensor(lua_State *L) {
    lua_pushboolean(L, tensor_at(L, 1) != NULL);
    return 1;
}

/* How many arguments a function of Lua has names for; nil: any number, or it is one of C, which has no names. */
static int prim_parameters(lua_State *L) {
    lua_Debug ar;
    lua_settop(L, 1);
    lua_pushvalue(L, 1);
    lua_getinfo(L, ">uS", &ar);
    if (ar.isvararg || *ar.what == 'C')
        lua_pushnil(L);
    else
        lua_pushinteger(L, ar.nparams);
    return 1;
}

static int prim_describe(lua_State *L) {
    lua_pushstring(L, field_type(L, 1));
    return 1;
}

static int prim_is_float(lua_State *L) {
    Tensor *t = tensor_at(L, 1);
    lua_pushboolean(L, t && dtype_float(t->param ? t->param->param.dtype : t->value->dtype));
    return 1;
}

static int prim_check_keys(lua_State *L) { /* what, table, "keys" */
    field_check_keys(L, 2, luaL_checkstring(L, 1), luaL_checkstring(L, 3));
    return 0;
}

static int prim_strict(lua_State *L) { /* table, what */
    sandbox_strict(L, 1, luaL_checkstring(L, 2));
    lua_settop(L, 1);
    return 1;
}

void trace_open(lua_State *L) {
    static const char *const ops[][2] = {{"__add", "add"}, {"__sub", "sub"}, {"__mul", "mul"},
                                         {"__div", "div"}, {"__pow", "pow"}, {"__unm", "neg"}};
    static const luaL_Reg functions[] = {{"op", prim_op},
                                         {"reshape", prim_reshape},
                                         {"cast", prim_cast},
                                         {"full", prim_full},
                                         {"arange", prim_arange},
                                         {"axis", prim_axis},
                                         {"fail", prim_fail},
                                         {"note", prim_note},
                                         {"methods", prim_methods},
                                         {"size", prim_size},
                                         {"untransposed", prim_untransposed},
                                         {"strict", prim_strict},
                                         {"is_tensor", prim_is_tensor},
                                         {"describe", prim_describe},
                                         {"parameters", prim_parameters},
                                         {"check_keys", prim_check_keys},
                                         {"is_float", prim_is_float},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    luaL_newmetatable(L, TENSOR);
    fe_of(L)->tensors = lua_topointer(L, -1);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        lua_pushstring(L, ops[i][1]);
        lua_pushcclosure(L, arithmetic, 1);
        lua_setfield(L, -2, ops[i][0]);
    }
    set_closure(L, "__lt", tensor_compare, "< or >", "nn.lt(a, b) or nn.gt(a, b)");
    set_closure(L, "__le", tensor_compare, "<= or >=", "nn.le(a, b) or nn.ge(a, b)");
    set_closure(L, "__eq", tensor_compare, "== or ~=", "nn.eq(a, b) or nn.ne(a, b)");
    set_closure(L, "__mod", tensor_unsupported, "%", "there is no remainder of tensors");
    set_closure(L, "__idiv", tensor_unsupported, "//", "write /");
    set_closure(L, "__concat", tensor_unsupported, "..", "write nn.concat({ a, b }, dim), or tostring(x) for text");
    set_closure(L, "__len", tensor_unsupported, "#", "write #x.shape, or x:size(dim)");
    lua_pushcfunction(L, tensor_newindex);
    lua_setfield(L, -2, "__newindex");
    lua_pushcfunction(L, tensor_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
