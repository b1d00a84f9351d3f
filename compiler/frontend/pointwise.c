/* Pointwise operations between tensors and numbers: dtypes are promoted by casts and shapes broadcast by explicit
 * expands, so that a pointwise op's operands always have one shape. Relies on: trace.c. Relied on by: nn.lua, the
 * operators of tensors. */
#include "../ir/notes.h"
#include "fe.h"

#include <math.h>

/* ── promotion ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int width(Dtype d) {
    static const int order[N_DTYPES] = {[BOOL] = 0, [INT32] = 1, [INT64] = 2, [FP8_E5M2] = 3, [FP8_E4M3] = 3,
                                        [FP16] = 4, [BF16] = 4,  [FP32] = 5,  [FP64] = 6};
    return order[d];
}

static Dtype promote(Dtype a, Dtype b) {
    if (a == b) return a;
    if (width(a) == width(b)) return FP32; /* neither fp16 nor bf16 holds the other */
    return width(a) > width(b) ? a : b;
}

/* ── broadcasting ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const char *name;
    Value *v[3]; /* NULL: the number beside it */
    double number[3];
    int n;
} Operands;

static const char *operand_str(Arena *a, const Operands *o, int i) {
    return o->v[i] ? value_str(a, o->v[i]) : arena_printf(a, "%.14g", o->number[i]);
}

static void broadcast(lua_State *L, const Operands *o, Value *like) {
    Arena *a = fe_of(L)->arena;
    for (int i = 0; i < o->n; i++)
        if (o->v[i] && o->v[i]->dims > like->dims) like->dims = o->v[i]->dims;
    for (int d = 0; d < like->dims; d++) {
        int from = -1;
        like->shape[d] = 1;
        for (int i = 0; i < o->n; i++) {
            int k = o->v[i] ? d - (like->dims - o->v[i]->dims) : -1;
            int64_t size = k < 0 ? 1 : o->v[i]->shape[k];
            if (size == 1) continue;
            if (from >= 0 && size != like->shape[d])
                trace_fail(L, "sizes must be equal, or 1, counted from the last dimension",
                           "%s: %s and %s do not broadcast: %lld ≠ %lld in dimension %d", o->name,
                           operand_str(a, o, from), operand_str(a, o, i), (long long)like->shape[d], (long long)size,
                           d - like->dims);
            if (from < 0) from = i;
            like->shape[d] = size;
        }
    }
}

/* Operands from stack index `first` on; numbers stay numbers until their dtype is known. */
static Operands operands(lua_State *L, const char *name, int first, int n) {
    Operands o = {.name = name, .n = n};
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (lua_type(L, first + i) == LUA_TNUMBER)
            o.number[i] = lua_tonumber(L, first + i);
        else
            o.v[i] = tensor_value(L, first + i, name), any = true;
    }
    if (!any) trace_fail(L, NULL, "%s: none of the operands is a tensor", name);
    return o;
}

static bool whole(double x) {
    return x == floor(x) && fabs(x) < 2147483648.0;
}

static int category(Dtype d) {
    return dtype_float(d) ? 2 : d != BOOL;
}

/* As in PyTorch: a tensor without dims counts beside one with dims only where it is of a higher category. */
static Dtype common_dtype(const Operands *o, int from) {
    Dtype d = N_DTYPES;
    bool any_dims = false, numbers_whole = true;
    for (int i = from; i < o->n; i++) {
        any_dims |= o->v[i] && o->v[i]->dims;
        numbers_whole &= o->v[i] || whole(o->number[i]);
    }
    for (int without = 0; without < 2; without++)
        for (int i = from; i < o->n; i++) {
            if (!o->v[i] || (o->v[i]->dims == 0) != without) continue;
            Dtype e = o->v[i]->dtype;
            if (d == N_DTYPES)
                d = e;
            else if (!without || !any_dims || category(e) > category(d))
                d = promote(d, e);
        }
    return d == N_DTYPES || (!dtype_float(d) && !numbers_whole) ? FP32 : d;
}

/* Where d is the dtype of a tensor, precision decides anew: the unit may give that another. */
static Value *promoted(Builder *b, Value *v, Dtype d, bool of_tensor) {
    Value *cast = build_cast(b, v, d);
    if (cast == v) return v;
    bool floating = dtype_float(v->dtype);
    *note_on(b->g, b->p, cast) = (Note){.promotes = floating, .number = of_tensor && !floating};
    return cast;
}

/* Makes operands from `from` on equal in dtype, all of them equal in shape. */
static void unify(lua_State *L, Builder *b, Operands *o, int from, Dtype d) {
    Value like = {0};
    bool floating = false; /* any tensor of them is */
    for (int i = from; i < o->n; i++) floating |= o->v[i] && dtype_float(o->v[i]->dtype);
    broadcast(L, o, &like);
    for (int i = 0; i < o->n; i++) {
        Value *v = o->v[i];
        if (!v) {
            trace_need_number(L, o->name, o->number[i], d);
            v = BUILD(b, full, .dtype = d, .value = o->number[i])->full.y;
            note_on(b->g, b->p, v)->number = dtype_float(d);
        } else if (i >= from) {
            v = promoted(b, v, d, floating);
        }
        o->v[i] = build_expand(b, v, like.dims, like.shape);
        if (!v->dims && o->v[i] != v) note_on(b->g, b->p, o->v[i])->weak = true;
    }
}

static int finish(lua_State *L, int first, Value *v) {
    trace_finish(L, first);
    tensor_push(L, v);
    return 1;
}

/* ── arithmetic with numbers ────────────────────────────────────────────────────────────────────────────────────────
 */
static Value *power(lua_State *L, Builder *b, Operands *o) {
    if (!o->v[1]) {
        double n = o->number[1];
        if (n == 1) return o->v[0];
        if (n == 2) return build_two(b, OP_mul, o->v[0], o->v[0]);
        if (n == 0.5) return build_one(b, OP_sqrt, o->v[0]);
        if (n == -0.5) return build_one(b, OP_rsqrt, o->v[0]);
        if (n == -1) return build_scalar(b, OP_rdiv_scalar, o->v[0], 1);
        return build_scalar(b, OP_pow_scalar, o->v[0], n);
    }
    unify(L, b, o, 0, o->v[1]->dtype);
    return build_two(b, OP_pow, o->v[0], o->v[1]);
}

/* One operand of the two is a number. */
static Value *with_number(lua_State *L, Builder *b, const char *name, Operands *o) {
    bool left = !o->v[0]; /* the number stands left */
    double x = o->number[left ? 0 : 1];
    Value **t = &o->v[left ? 1 : 0];
    bool needs_float = !strcmp(name, "div") || !strcmp(name, "pow") || !whole(x);
    if (!dtype_float((*t)->dtype) && needs_float) *t = build_cast(b, *t, FP32);
    if ((*t)->dtype == BOOL) *t = build_cast(b, *t, INT32);
    if (isinf(x)) trace_fail(L, NULL, "%s: the number %g is not finite", name, x);
    trace_need_number(L, name, x, FP32);
    if (!strcmp(name, "add")) return build_scalar(b, OP_add_scalar, *t, x);
    if (!strcmp(name, "mul")) return build_scalar(b, OP_mul_scalar, *t, x);
    if (!strcmp(name, "pow")) return power(L, b, o);
    if (!strcmp(name, "sub"))
        return build_scalar(b, OP_add_scalar, left ? build_one(b, OP_neg, *t) : *t, left ? x : -x);
    if (left) return build_scalar(b, OP_rdiv_scalar, *t, x);
    if (x == 0) trace_fail(L, NULL, "div: division of a tensor by the number 0");
    trace_need_number(L, "div: 1 / the number", 1 / x, FP32);
    return build_scalar(b, OP_mul_scalar, *t, 1 / x);
}

int tensor_arithmetic(lua_State *L, const char *name) {
    bool unary = !strcmp(name, "neg");
    Operands o = operands(L, name, 1, unary ? 1 : 2);
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    if (unary) return finish(L, first, build_one(&b, OP_neg, o.v[0]));
    if (!o.v[0] || !o.v[1]) return finish(L, first, with_number(L, &b, name, &o));
    Dtype d = common_dtype(&o, 0);
    if (d == BOOL) d = INT32;
    if ((!strcmp(name, "div") || !strcmp(name, "pow")) && !dtype_float(d)) d = FP32;
    unify(L, &b, &o, 0, d);
    return finish(L, first, build_two(&b, op_by_name(name), o.v[0], o.v[1]));
}

static int prim_arithmetic(lua_State *L) { /* name, a, b */
    const char *name = luaL_checkstring(L, 1);
    lua_remove(L, 1);
    return tensor_arithmetic(L, name);
}

/* ── the rest ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* pointwise(name, a, b): any binary op; numbers become tensors. */
static int prim_pointwise(lua_State *L) {
    const char *name = luaL_checkstring(L, 1);
    Operands o = operands(L, name, 2, 2);
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    unify(L, &b, &o, 0, common_dtype(&o, 0));
    return finish(L, first, build_two(&b, op_by_name(name), o.v[0], o.v[1]));
}

static int prim_where(lua_State *L) { /* condition, a, b */
    Operands o = operands(L, "where", 1, 3);
    if (!o.v[0]) trace_fail(L, NULL, "where: the condition must be a tensor, got %s", field_type(L, 1));
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    unify(L, &b, &o, 1, common_dtype(&o, 1));
    return finish(L, first, BUILD(&b, where, .condition = o.v[0], .a = o.v[1], .b = o.v[2])->where.y);
}

/* promoted({ tensors }) -> the same in one dtype */
static int prim_promoted(lua_State *L) {
    Builder b = trace_builder(L);
    int first = b.p->ops.n, n = (int)lua_rawlen(L, 1);
    Dtype d = N_DTYPES;
    luaL_checkstack(L, n + 2, "too many tensors");
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        Dtype e = tensor_value(L, -1, "promoted")->dtype;
        d = d == N_DTYPES ? e : promote(d, e);
    }
    lua_createtable(L, n, 0);
    for (int i = 1; i <= n; i++) {
        tensor_push(L, promoted(&b, tensor_value(L, 1 + i, "promoted"), d, dtype_float(d)));
        lua_rawseti(L, -2, i);
    }
    trace_finish(L, first);
    return 1;
}

/* beside(x, w): w as x's dtype is in the trace; whether they agree is known when precision has been there. */
static int prim_beside(lua_State *L) {
    Value *x = tensor_value(L, 1, "cast"), *w = tensor_value(L, 2, "cast");
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    if (dtype_float(x->dtype) && dtype_float(w->dtype)) w = promoted(&b, w, x->dtype, true);
    return finish(L, first, w);
}

/* expand(x, shape): -1 keeps a size */
static int prim_expand(lua_State *L) {
    Value *x = tensor_value(L, 1, "expand");
    int64_t shape[MAX_DIMS];
    int dims = (int)lua_rawlen(L, 2), lead = dims - x->dims;
    if (dims > MAX_DIMS || lead < 0)
        trace_fail(L, NULL, "expand: %s to %d dims; it must be at least %d and at most %d",
                   value_str(fe_of(L)->arena, x), dims, x->dims, MAX_DIMS);
    for (int i = 0; i < dims; i++) {
        lua_rawgeti(L, 2, i + 1);
        shape[i] = luaL_checkinteger(L, -1);
        if (shape[i] == -1 && i >= lead) shape[i] = x->shape[i - lead];
        lua_pop(L, 1);
    }
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    Value *y = build_expand(&b, x, dims, shape);
    return finish(L, first, y);
}

void pointwise_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"arithmetic", prim_arithmetic},
                                         {"pointwise", prim_pointwise},
                                         {"where", prim_where},
                                         {"promoted", prim_promoted},
                                         {"beside", prim_beside},
                                         {"expand", prim_expand},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
