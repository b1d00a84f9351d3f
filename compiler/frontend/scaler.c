/* optim.GradScaler: its options, and scaler:scale(outputs) inside the loss function.
 * Relies on: trace.c, tensor.c, args.c.
 * Relied on by: optim.lua, training.c. */
#include "../ir/training.h"
#include "fe.h"

static const char WHAT[] = "optim.GradScaler";

static GradScaler *scaler_of(lua_State *L, int index) {
    GradScaler **p = luaL_testudata(L, index, SCALER);
    return p ? *p : NULL;
}

static double number(lua_State *L, const char *key, double otherwise, double above, double below) {
    double x = field_number(L, 1, WHAT, key, otherwise);
    float held = (float)x; /* the device's */
    if (x <= above || x >= below || held <= above || held >= below)
        field_fail(L, key, "%s: %s = %.9g; it must be more than %g and less than %g, in fp32 too", WHAT, key, x, above,
                   below);
    return field_single(L, 1, WHAT, key, otherwise);
}

static int prim_grad_scaler(lua_State *L) { /* options */
    options_table(L, 1);
    field_check_keys(L, 1, WHAT, "init_scale growth_factor backoff_factor growth_interval without_fp16");
    GradScaler *s = NEW(fe_of(L)->arena, GradScaler);
    s->src = sandbox_source(L);
    s->init_scale = number(L, "init_scale", 65536, 0, 1e38);
    s->growth_factor = number(L, "growth_factor", 2, 1, 1e30);
    s->backoff_factor = number(L, "backoff_factor", 0.5, 0, 1);
    s->growth_interval = field_integer(L, 1, WHAT, "growth_interval", 2000, 1);
    s->without_fp16 = field_boolean(L, 1, WHAT, "without_fp16", false);
    if (s->growth_interval > 1 << 24)
        field_fail(L, "growth_interval", "%s: growth_interval = %lld; at most %d steps are counted", WHAT,
                   (long long)s->growth_interval, 1 << 24);
    *(GradScaler **)lua_newuserdatauv(L, sizeof s, 0) = s;
    luaL_setmetatable(L, SCALER);
    return 1;
}

void scaler_field(lua_State *L) {
    Graph *g = fe_of(L)->g;
    lua_getfield(L, 1, "grad_scaler");
    g->training->scaler = scaler_of(L, -1);
    if (!g->training->scaler && !lua_isnil(L, -1))
        field_fail(L, "grad_scaler", "nn.training: grad_scaler must be optim.GradScaler { ... }, not %s",
                   field_type(L, -1));
    lua_pop(L, 1);
}

static int prim_scale(lua_State *L) { /* scaler, tensor -> the tensor times the scale */
    Frontend *f = fe_of(L);
    const GradScaler *s = scaler_of(L, 1);
    if (!s) trace_fail(L, NULL, "scaler:scale: called on %s; write scaler:scale(outputs)", field_type(L, 1));
    Value *x = tensor_value(L, 2, "scaler:scale");
    if (s != f->g->training->scaler)
        trace_fail(L, NULL, "scaler:scale: the scaler made at %s:%d is not this training's: set grad_scaler to it",
                   s->src.file, s->src.line);
    if (!dtype_float(x->dtype))
        trace_fail(L, NULL, "scaler:scale: %s is not floating point; only losses and other outputs are scaled",
                   value_str(f->arena, x));
    if (f->calls.at[f->calls.n - 1].call >= 0)
        trace_fail(L, "scale what the loss function returns",
                   "scaler:scale: called inside a module's forward; the gradients of what comes after it would not be "
                   "scaled");
    if (f->sampling) {
        lua_settop(L, 2);
        return 1;
    }
    f->program->scaled = true;
    OpParts parts = {.scale = {.x = x, .scaler = f->g->scaler_state->value}};
    tensor_push(L, trace_op(L, OP_scale, &parts)->scale.y);
    return 1;
}

static int prim_scaler_methods(lua_State *L) { /* { scale = function } */
    luaL_getmetatable(L, SCALER);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "__index");
    return 0;
}

void scaler_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"grad_scaler", prim_grad_scaler},
                                         {"scale", prim_scale},
                                         {"scaler_methods", prim_scaler_methods},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    luaL_newmetatable(L, SCALER);
    lua_pop(L, 1);
}
