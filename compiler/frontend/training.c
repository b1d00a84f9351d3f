/* nn.training: inputs, the loss traced for training and for evaluation, sampling, optimizer, schedule.
 * Relies on: modules.c, trace.c, args.c.
 * Relied on by: nn.lua, frontend.c. */
#include "../ir/training.h"
#include "../ir/mesh.h"
#include "fe.h"
#include "number.h"
#include "schema/record.h"
#include <stdlib.h>

static const char INPUT[] = "shardc.input", OPTIM[] = "shardc.optim";
static const int64_t no_shape[1]; /* of a scalar */

/* ── inputs ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int prim_input(lua_State *L) { /* dtype, shape, options */
    Frontend *f = fe_of(L);
    lua_settop(L, 3);
    Input *in = NEW(f->arena, Input);
    in->src = sandbox_source(L);
    in->ordinal = f->ninputs++;
    in->dtype = field_to_dtype(L, 1, "nn.input");
    in->dims = field_to_shape(L, 2, "nn.input", in->shape);
    if (in->dtype == FP8_E4M3 || in->dtype == FP8_E5M2)
        sandbox_fail(L, "nn.input: inputs of fp8 are not available; use bf16");
    if (in->dims < 1)
        sandbox_fail(L, "nn.input: an input needs a first dimension, the samples of one rank's microbatch");
    if (!lua_isnil(L, 3)) {
        field_check_keys(L, 3, "nn.input", "from shift");
        in->from = field_string(L, 3, "nn.input", "from", NULL);
        if (in->from && strcmp(in->from, "tokens"))
            field_fail(L, "from",
                       "nn.input: from = \"%s\"; write from = \"tokens\" for what --data's files hold, or leave "
                       "it out for records from standard input",
                       in->from);
        in->shift = (int)field_integer(L, 3, "nn.input", "shift", 0, 0);
    }
    *(Input **)lua_newuserdatauv(L, sizeof in, 0) = in;
    luaL_setmetatable(L, INPUT);
    return 1;
}

static Input *input_at(lua_State *L, int index) {
    Input **p = luaL_testudata(L, index, INPUT);
    return p ? *p : NULL;
}

static Value *input_value(Frontend *f, const Input *in, const int64_t *shape) {
    Value *v = value_new(f->g, in->dtype, in->dims, shape);
    v->name = in->name;
    return v;
}

static int by_ordinal(const void *a, const void *b) {
    const Input *x = *(Input *const *)a, *y = *(Input *const *)b;
    return (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

/* What --data's files hold are rows of whole numbers, and all inputs from tokens take theirs from the same rows. */
static void check_token_input(const Frontend *f, const Input *in) {
    int64_t rows = in->dims > 1 ? in->shape[0] : 1;
    if (strcmp(in->from, "tokens")) {
        if (in->shift)
            fail(in->src,
                 "nn.input: shift = %d moves a window over tokens, but '%s' does not come from tokens; add from = "
                 "\"tokens\", or leave shift out",
                 in->shift, in->name);
        return;
    }
    if ((in->dtype != INT32 && in->dtype != INT64) || in->dims > 2)
        fail(in->src,
             "nn.input: '%s' is %s of %d dimensions, but tokens are whole numbers in rows; write nn.input(\"int32\", { "
             "batch, length }, { from = \"tokens\" }), or, for other data, leave `from` out and choose another name",
             in->name, dtype_name(in->dtype), in->dims);
    for (int i = 0; i < f->g->inputs.n; i++) {
        const Input *x = f->g->inputs.at[i];
        int64_t others = x->dims > 1 ? x->shape[0] : 1;
        if (!strcmp(x->from, "tokens") && rows != others)
            fail(
                in->src,
                "nn.input: '%s' has %lld rows, but '%s' has %lld, at %s:%d; inputs from tokens share their batch: give "
                "both the same first size",
                in->name, (long long)rows, x->name, (long long)others, x->src.file, x->src.line);
    }
}

static void declare_batch(Frontend *f, int table) {
    lua_State *L = f->L;
    sandbox_sorted_keys(L, table);
    int keys = lua_gettop(L);
    for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++) {
        if (lua_type(L, -1) != LUA_TSTRING)
            sandbox_fail(L, "batch: entry %s without a name; write tokens = nn.input(...)", lua_tostring(L, -1));
        const char *name = arena_strdup(f->arena, lua_tostring(L, -1));
        lua_getfield(L, table, name);
        Input *in = input_at(L, -1);
        if (!in)
            field_fail(L, name, "batch.%s is %s; inputs are made by nn.input(dtype, shape, { from = ... })", name,
                       field_type(L, -1));
        if (in->name)
            field_fail(L, name, "batch.%s and batch.%s are one nn.input; call nn.input for each", in->name, name);
        in->name = name;
        if (!in->from) in->from = name;
        check_token_input(f, in);
        push(&f->g->inputs, f->arena, in);
        lua_pop(L, 2);
    }
    lua_settop(L, keys - 1);
    if (f->g->inputs.n)
        qsort(f->g->inputs.at, (size_t)f->g->inputs.n, sizeof *f->g->inputs.at, by_ordinal);
    else
        sandbox_fail(
            L, "batch is empty: write batch = { tokens = nn.input(\"int32\", { 8, 1024 }, { from = \"tokens\" }) }");
}

/* ── traces ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Calls the function `key` of the table at `table` on (model, batch); leaves its one result. */
static void call_traced(Frontend *f, int table, const char *key) {
    lua_State *L = f->L;
    lua_getfield(L, table, key);
    f->function_at = sandbox_function_source(L, -1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, f->training_ref);
    lua_getfield(L, -1, "model");
    lua_remove(L, -2);
    lua_newtable(L); /* the batch */
    for (int i = 0; i < f->g->inputs.n; i++) {
        Input *in = f->g->inputs.at[i];
        Value *v = f->sampling ? in->sample_value : in->value;
        if (!v) continue;
        tensor_push(L, v);
        lua_setfield(L, -2, in->name);
    }
    sandbox_strict(L, -1, f->sampling ? "the sample's inputs" : "batch");
    lua_call(L, 2, 1);
    if (!tensor_at(L, -1))
        fail(f->function_at, "%s returned %s; it must return a tensor%s", key, field_type(L, -1),
             lua_isnil(L, -1) ? ": write `return` before it" : "");
}

static Program *trace_loss(Frontend *f, int table, const char *name, bool training) {
    trace_begin(f, name, training, false);
    if (training) /* the second trace reads the same values */
        for (int i = 0; i < f->g->inputs.n; i++)
            f->g->inputs.at[i]->value = input_value(f, f->g->inputs.at[i], f->g->inputs.at[i]->shape);
    call_traced(f, table, "loss");
    Value *v = tensor_value(f->L, -1, "loss");
    if (value_numel(v) != 1 || !dtype_float(v->dtype))
        fail(v->def ? v->def->src : f->function_at, "loss returned %s; it must be one floating-point number: %s",
             value_str(f->arena, v), value_numel(v) == 1 ? "cast it to \"fp32\"" : "reduce it with nn.mean or nn.sum");
    if (!v->def)
        fail(f->function_at,
             "loss returned an input or a parameter as it is; it must be computed from the model's result");
    Builder b = trace_builder(f->L);
    b.src = v->def->src;
    b.module = f->g->root;
    v = build_reshape(&b, v, 0, no_shape);
    Program *p = f->program;
    p->loss = v->dtype == FP64 ? v : build_cast(&b, v, FP32);
    lua_pop(f->L, 1);
    f->program = NULL;
    return p;
}

/* ── what the batch is counted in ────────────────────────────────────────────────────────────────────────────────────
 */
typedef VEC(Value *) Values;

static bool is_among(const Values *l, const Value *v) {
    for (int i = 0; i < l->n; i++)
        if (l->at[i] == v) return true;
    return false;
}

/* Does a table's row stand for each of the input's numbers, as they are or after arithmetic with integers? */
static bool picks_rows_of_a_table(Frontend *f, const Program *p, const Input *in) {
    Values made = {0}; /* of the input */
    push(&made, f->arena, in->value);
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k];
            if (!v || dtype_float(v->dtype) || !is_among(&made, value_root(v))) continue;
            if (op_is(op, T_LOOKUP) && op_slot_flags(op, k) & INDICES) return true;
            for (int j = 0; j < op->nout; j++) push(&made, f->arena, value_root(op->out[j]));
        }
    }
    return false;
}

/* Rows of the smallest table that the elements of an input index as they are; views and casts keep them. 0: none. */
static int64_t least_table(Frontend *f, const Program *p, Value *input, int64_t least) {
    Values same = {0};
    push(&same, f->arena, input);
    for (int i = 0; p && input && i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            if (!op->in[k] || !is_among(&same, value_root(op->in[k]))) continue;
            int64_t limit = op_index_limit(op, k);
            if (limit && (!least || limit < least)) least = limit;
            if (!op_is(op, T_POINTWISE) || op->nin != 1) continue;
            Dtype from = op_operand(op)->dtype, to = op_result(op)->dtype;
            bool casts = from != to && !dtype_float(from) && !dtype_float(to) && to != BOOL;
            if (casts) push(&same, f->arena, op_result(op));
        }
    }
    return least;
}

/* Which inputs are tokens, and how large an index each may hold. Labels and masks are integers too: a batch of pictures
 * with labels holds samples, no tokens. */
static void describe_integers(Frontend *f) {
    for (int i = 0; i < f->g->inputs.n; i++) {
        Input *in = f->g->inputs.at[i];
        if (dtype_float(in->dtype)) continue;
        bool files = !strcmp(in->from, "tokens"), rows = in->dims > 1;
        in->tokens = in->value && (files || (rows && picks_rows_of_a_table(f, f->g->train, in)));
        in->limit = least_table(f, f->g->train, in->value, 0);
        in->limit = least_table(f, f->g->eval, in->value, in->limit);
        in->limit = least_table(f, f->g->sample, in->sample_value, in->limit);
    }
}

/* ── sample ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Without a table of its own, sampling reads the batch's inputs with one sample. */
static void sample_inputs(Frontend *f, int table) {
    lua_State *L = f->L;
    if (!field_table(L, table, "sample", "inputs")) {
        for (int i = 0; i < f->g->inputs.n; i++) {
            Input *in = f->g->inputs.at[i];
            int64_t shape[MAX_DIMS];
            memcpy(shape, in->shape, sizeof shape);
            shape[0] = 1;
            in->sample_value = input_value(f, in, shape);
        }
        return;
    }
    int inputs = lua_gettop(L);
    sandbox_sorted_keys(L, inputs);
    for (int i = 1; lua_rawgeti(L, inputs + 1, i) != LUA_TNIL; i++) {
        if (lua_type(L, -1) != LUA_TSTRING)
            sandbox_fail(L, "sample.inputs: entry %s without a name", lua_tostring(L, -1));
        const char *name = arena_strdup(f->arena, lua_tostring(L, -1));
        lua_getfield(L, inputs, name);
        Input *given = input_at(L, -1), *in = NULL; /* the batch's of that name */
        for (int k = 0; k < f->g->inputs.n; k++)
            if (!strcmp(f->g->inputs.at[k]->name, name)) in = f->g->inputs.at[k];
        if (!given)
            field_fail(
                L, name,
                "sample.inputs.%s is %s; inputs are made by nn.input(\"int32\", { 1, seq }, { from = \"tokens\" })",
                name, field_type(L, -1));
        if (in && (in->dtype != given->dtype || in->dims != given->dims))
            field_fail(L, name, "sample.inputs.%s is %s with %d dims, but batch.%s is %s with %d; they are one input",
                       name, dtype_name(given->dtype), given->dims, name, dtype_name(in->dtype), in->dims);
        if (!in) {
            in = given;
            in->name = name;
            if (!in->from) in->from = name;
            push(&f->g->inputs, f->arena, in);
        }
        in->sample_value = input_value(f, in, given->shape);
        lua_settop(L, inputs + 1);
    }
    lua_settop(L, inputs - 1);
}

static void trace_sample(Frontend *f, int training) {
    lua_State *L = f->L;
    if (!field_table(L, training, "nn.training", "sample")) return;
    int table = lua_gettop(L);
    trace_begin(f, "sample", false, true);
    sample_inputs(f, table);
    call_traced(f, table, "logits");
    Value *v = tensor_value(L, -1, "logits");
    if (v->dims != 3 || v->shape[0] != 1 || !dtype_float(v->dtype))
        fail(v->def ? v->def->src : f->function_at,
             "sample.logits returned %s; it must be [1, seq, vocab], floating point", value_str(f->arena, v));
    f->program->logits = v;
    Program *p = f->g->sample = f->program;
    f->program = NULL;
    bool *read = NEW_ARRAY(f->arena, bool, f->g->values.n + 1); /* by Value.id */
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin; k++)
            if (op->in[k]) read[value_root(op->in[k])->id] = true;
    }
    for (int i = 0; i < f->g->inputs.n; i++) { /* an input that sampling does not read has no value there */
        Input *in = f->g->inputs.at[i];
        if (in->sample_value && !read[in->sample_value->id]) in->sample_value = NULL;
    }
    lua_settop(L, table - 1);
}

/* ── losses and metrics ─────────────────────────────────────────────────────────────────────────────────────────────
 */
/* count(targets, ignore) -> slot. The host, which counts the targets of the whole step before it runs, takes `ignore`
 * for a value of the input that they are or are cut from. nil: they are computed, or only a part of an input. */
static int prim_count(lua_State *L) {
    Frontend *f = fe_of(L);
    Value *t = tensor_value(L, 1, "cross_entropy"), *root = value_root(t);
    int64_t ignore = luaL_checkinteger(L, 2);
    Training *training = f->g->training;
    Input *in = NULL;
    for (int i = 0; i < f->g->inputs.n; i++)
        if (f->g->inputs.at[i]->value == root || f->g->inputs.at[i]->sample_value == root) in = f->g->inputs.at[i];
    if (!in) return 0;
    int slot = 0;
    while (slot < training->counts.n &&
           (training->counts.at[slot].input != in || training->counts.at[slot].ignore != ignore))
        slot++;
    if (slot == SC_COUNTS) trace_fail(L, NULL, "cross_entropy: more than %d different targets in one model", SC_COUNTS);
    CountSlot made = {in, ignore};
    if (slot == training->counts.n) push(&training->counts, f->arena, made);
    if (value_numel(t) != value_numel(root)) return 0;
    lua_pushinteger(L, slot);
    return 1;
}

static void add_metric(Frontend *f, const char *name, Source src, bool is_sum) {
    Metric m = {name, src, is_sum};
    push(&f->g->training->metrics, f->arena, m);
}

/* Names that the program's own figures have in a log's lines (runtime/host/train.c). */
static bool logged_by_itself(const char *name) {
    static const char *const names[] = {"step",    "loss",  "grad_norm", "lr",      "scale",    "skipped",     "tokens",
                                        "samples", "tok_s", "samples_s", "seconds", "val_loss", "val_targets", "model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return !strncmp(name, "device_bytes_", 13);
}

/* log_metric(name, scalar, options) */
static int prim_log_metric(lua_State *L) {
    Frontend *f = fe_of(L);
    lua_settop(L, 3);
    const char *name = luaL_checkstring(L, 1);
    Value *v = tensor_value(L, 2, "nn.log_metric");
    const char *reduce = "mean";
    if (!lua_isnil(L, 3)) {
        field_check_keys(L, 3, "nn.log_metric", "reduce");
        reduce = field_string(L, 3, "nn.log_metric", "reduce", "mean");
    }
    if (strcmp(reduce, "mean") && strcmp(reduce, "sum"))
        field_fail(L, "reduce",
                   "nn.log_metric: reduce = \"%s\"; there are \"mean\" and \"sum\" (over ranks and microbatches)",
                   reduce);
    if (value_numel(v) != 1)
        trace_fail(L, NULL, "nn.log_metric: '%s' is %s; log one number: reduce it with nn.mean or nn.sum", name,
                   value_str(f->arena, v));
    trace_refuse_in_assign(L, "nn.log_metric");
    if (f->sampling) return 0;
    const Training *training = f->g->training;
    int slot = 2;
    while (slot < training->metrics.n && strcmp(training->metrics.at[slot].name, name)) slot++;
    if (logged_by_itself(name))
        trace_fail(L, NULL, "nn.log_metric: '%s' is logged by itself; choose another name", name);
    if (slot == training->metrics.n) {
        if (slot == SC_METRICS) trace_fail(L, NULL, "nn.log_metric: more than %d names", SC_METRICS - 2);
        add_metric(f, arena_strdup(f->arena, name), sandbox_source(L), !strcmp(reduce, "sum"));
        Log l = {name, sandbox_source(L), 0};
        push(&f->logs, f->arena, l);
    }
    Log *l = &f->logs.at[slot - 2];
    if (l->trace == f->trace)
        trace_fail(L, NULL, "nn.log_metric: '%s' was logged already in this step, at %s:%d; give each its own name",
                   name, l->src.file, l->src.line);
    l->trace = f->trace;
    Builder b = trace_builder(L);
    int first = b.p->ops.n;
    Value *x = build_cast(&b, build_reshape(&b, v, 0, no_shape), FP32);
    BUILD(&b, store, .value = x, .state = f->g->metrics_state->value, .add = true, .at = slot);
    trace_finish(L, first);
    return 0;
}

/* ── optimizer and schedule ─────────────────────────────────────────────────────────────────────────────────────────
 */
enum { MOST_FACTORS = 1 << 20 }; /* of a schedule that is a function */

typedef struct { /* what optim.AdamW {...} and optim.cosine {...} return */
    Optimizer *optimizer;
    LrSchedule *schedule;
} Optim;

static void push_optim(lua_State *L, Optimizer *o, LrSchedule *s) {
    *(Optim *)lua_newuserdatauv(L, sizeof(Optim), 0) = (Optim){o, s};
    luaL_setmetatable(L, OPTIM);
}

static double field_not_negative(lua_State *L, int t, const char *what, const char *key, double otherwise,
                                 double below) {
    double x = field_number(L, t, what, key, otherwise);
    if (x < 0) field_fail(L, key, "%s: %s = %g; it must be at least 0", what, key, x);
    if ((float)x >= below) field_fail(L, key, "%s: %s = %.9g; it must be below %g, in fp32 too", what, key, x, below);
    return field_single(L, t, what, key, otherwise);
}

static void read_betas(lua_State *L, int t, const char *what, Optimizer *o) {
    o->beta1 = o->rule->betas[0], o->beta2 = o->rule->betas[1];
    if (!field_table(L, t, what, "betas")) return;
    double *b[2] = {&o->beta1, &o->beta2};
    if (lua_rawlen(L, -1) != 2) field_fail(L, "betas", "%s: betas must be two numbers, { 0.9, 0.999 }", what);
    for (int i = 0; i < 2; i++) {
        lua_rawgeti(L, -1, i + 1);
        *b[i] = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || !(*b[i] >= 0 && (float)*b[i] < 1)) /* updates compute in fp32 */
            field_fail(L, "betas", "%s: betas must be two numbers from 0 to below 1, not %s", what, field_type(L, -1));
        if (!sc_fits_fp32(*b[i]))
            field_fail(L, "betas", "%s: betas[%d] = %g; " FP32_RANGE, what, i + 1, *b[i], (float)*b[i], SC_LEAST_FP32);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static Optimizer *optimizer_in(lua_State *L, int t, const char *what, const char *key) { /* NULL: there is none */
    lua_getfield(L, t, key);
    Optim *x = luaL_testudata(L, -1, OPTIM);
    if (!lua_isnil(L, -1) && (!x || !x->optimizer))
        field_fail(L, key, "%s: %s must be an optimizer, such as optim.AdamW { lr = ... }, not %s", what, key,
                   field_type(L, -1));
    lua_pop(L, 1);
    Optimizer *o = x ? x->optimizer : NULL;
    if (o && (o->groups.n > 1 || o->others))
        field_fail(L, key, "%s: %s has %s of its own; write them in the optimizer that nn.training gets", what, key,
                   o->groups.n > 1 ? "groups" : "others");
    return o;
}

static void read_group(lua_State *L, int g, int number, const char *name, Optimizer *o) {
    Arena *a = fe_of(L)->arena;
    field_check_keys(L, g, name, "match lr weight_decay optimizer");
    Optimizer *own = optimizer_in(L, g, name, "optimizer"), *rest = own ? NULL : o->others;
    OptGroup x = {.number = number, .src = sandbox_key_source(L, o->src, "match"), .optimizer = own ? own : o};
    x.lr = field_not_negative(L, g, name, "lr", x.optimizer->lr, 1e30);
    x.weight_decay = field_not_negative(L, g, name, "weight_decay", x.optimizer->weight_decay, 1e30);
    x.nmatch = field_strings(L, g, name, "match", &x.match);
    if (!x.nmatch) field_fail(L, "groups", "%s: write match = { \"*.bias\", ... }, patterns of parameter paths", name);
    x.of = rest ? OF_MATRICES : OF_ANY;
    push(&o->groups, a, x);
    if (!rest) return;
    x.of = OF_OTHERS, x.optimizer = rest;
    x.lr = field_not_negative(L, g, name, "lr", rest->lr, 1e30);
    x.weight_decay = field_not_negative(L, g, name, "weight_decay", rest->weight_decay, 1e30);
    push(&o->groups, a, x);
}

static void read_groups(lua_State *L, int t, const char *what, Optimizer *o) {
    static const char *const all[] = {"*"};
    Arena *a = fe_of(L)->arena;
    OptGroup base = {.lr = o->lr, .weight_decay = o->weight_decay, .optimizer = o, .src = o->src};
    push(&o->groups, a, base);
    if (o->others) {
        OptGroup others = {.match = (const char **)all,
                           .nmatch = 1,
                           .of = OF_OTHERS,
                           .optimizer = o->others,
                           .lr = o->others->lr,
                           .weight_decay = o->others->weight_decay,
                           .src = o->others->src};
        push(&o->groups, a, others);
    }
    if (!field_table(L, t, what, "groups")) return;
    int list = lua_gettop(L);
    if (!lua_rawlen(L, list) && (lua_pushnil(L), lua_next(L, list)))
        field_fail(L, "groups", "%s: groups is a list of tables: write groups = { { match = \"*.bias\", ... } }", what);
    for (int i = 1; i <= (int)lua_rawlen(L, list); i++) {
        lua_rawgeti(L, list, i);
        read_group(L, lua_gettop(L), i, arena_printf(a, "%s: groups[%d]", what, i), o);
        lua_settop(L, list);
    }
    if (o->groups.n > SC_GROUPS)
        field_fail(L, "groups", "%s: %d groups%s; at most %d fit", what, o->groups.n - 1,
                   o->others ? ", where one without an optimizer is two, of matrices and of others" : "",
                   SC_GROUPS - 1);
    lua_pop(L, 1);
}

/* Muon's. */
static void read_orthogonalization(lua_State *L, int t, const char *what, Optimizer *o) {
    static const char *const adjust[N_ADJUST] = {
        [ADJUST_ORIGINAL] = "original", [ADJUST_MATCH_RMS_ADAMW] = "match_rms_adamw"};
    static const double abc[] = {3.4445, -4.7750, 2.0315};
    enum { MOST_STEPS = 99 };
    o->ns_steps = (int)field_integer(L, t, what, "ns_steps", 5, 1);
    if (o->ns_steps > MOST_STEPS)
        field_fail(L, "ns_steps", "%s: ns_steps = %d; it must be at most %d", what, o->ns_steps, MOST_STEPS);
    memcpy(o->ns_coefficients, abc, sizeof abc);
    if (field_table(L, t, what, "ns_coefficients")) {
        for (int i = 0; i < 3; i++) {
            lua_rawgeti(L, -1, i + 1);
            double x = o->ns_coefficients[i] = lua_tonumber(L, -1);
            if (lua_type(L, -1) != LUA_TNUMBER || !(x > -1e6 && x < 1e6) || lua_rawlen(L, -2) != 3)
                field_fail(L, "ns_coefficients",
                           "%s: ns_coefficients must be three numbers, { 3.4445, -4.7750, 2.0315 }", what);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    const char *by = field_string(L, t, what, "adjust_lr_fn", adjust[0]);
    while (o->adjust < N_ADJUST && strcmp(adjust[o->adjust], by)) o->adjust++;
    if (o->adjust == N_ADJUST)
        field_fail(L, "adjust_lr_fn", "%s: adjust_lr_fn = \"%s\"; write \"original\" or \"match_rms_adamw\"", what, by);
    o->others = optimizer_in(L, t, what, "others");
    if (o->others && o->others->rule->before)
        field_fail(L, "others", "%s: others updates what is no matrix; write others = optim.AdamW { lr = ... }", what);
}

static int prim_optimizer(lua_State *L) { /* "SGD", options */
    Arena *a = fe_of(L)->arena;
    const char *name = luaL_checkstring(L, 1), *what = arena_printf(a, "optim.%s", name);
    const sc_optimizer_info *rule = NULL;
    Optimizer *o = NEW(a, Optimizer);
    options_table(L, 2);
    for (int i = 0; i < SC_OPTIMIZERS && !rule; i++)
        if (!strcmp(sc_optimizers[i].lua, name)) rule = &sc_optimizers[i];
    if (!rule) bug(sandbox_source(L), "%s has no row in schema/optimizers.h", what);
    field_check_keys(L, 2, what, arena_printf(a, "lr %s weight_decay moment_dtype groups", rule->keys));
    o->rule = rule;
    o->name = rule->name;
    o->set = -1;
    o->src = sandbox_source(L);
    o->lr = field_not_negative(L, 2, what, "lr", rule->lr, 1e30);
    o->weight_decay = field_not_negative(L, 2, what, "weight_decay", rule->weight_decay, 1e30);
    o->momentum = field_not_negative(L, 2, what, "momentum", rule->momentum, 1);
    o->nesterov = field_boolean(L, 2, what, "nesterov", rule->nesterov);
    o->eps = field_not_negative(L, 2, what, "eps", rule->eps, 1e30);
    if (o->eps == 0 && sc_optimizer_takes(rule, "eps"))
        field_fail(L, "eps",
                   "%s: eps = %g; it must be above 0: the update of a parameter without gradient would be 0/0", what,
                   o->eps);
    if (o->nesterov && o->momentum == 0)
        field_fail(L, field_present(L, 2, "nesterov") ? "nesterov" : "momentum", "%s: nesterov needs a momentum", what);
    read_betas(L, 2, what, o);
    if (rule->before) read_orthogonalization(L, 2, what, o);
    const char *moments = field_string(L, 2, what, "moment_dtype", "fp32");
    if (!dtype_parse(moments, &o->moment_dtype) ||
        (o->moment_dtype != FP32 && o->moment_dtype != BF16 && o->moment_dtype != INT8))
        field_fail(L, "moment_dtype", "%s: moment_dtype = \"%s\"; moments are kept in \"fp32\", \"bf16\" or \"int8\"",
                   what, moments);
    if (field_present(L, 2, "moment_dtype") && !training_moments(o))
        field_fail(L, "moment_dtype", "%s: moment_dtype without a momentum: there are no moments to keep", what);
    read_groups(L, 2, what, o);
    push_optim(L, o, NULL);
    return 1;
}

static int prim_schedule(lua_State *L) { /* "cosine", options */
    static const char *const names[] = {"constant", "linear", "cosine", "wsd"};
    const char *name = luaL_checkstring(L, 1), *what = arena_printf(fe_of(L)->arena, "optim.%s", name);
    LrSchedule *s = NEW(fe_of(L)->arena, LrSchedule);
    options_table(L, 2);
    while (strcmp(names[s->kind], name)) s->kind++;
    field_check_keys(L, 2, what,
                     s->kind == SCHED_CONSTANT ? "warmup"
                     : s->kind == SCHED_WSD    ? "warmup total decay_steps min_ratio"
                                               : "warmup total min_ratio");
    s->warmup = field_integer(L, 2, what, "warmup", 0, 0);
    s->total = field_integer(L, 2, what, "total", 0, 1);
    s->min_ratio = field_number(L, 2, what, "min_ratio", 0);
    if (!(s->min_ratio >= 0 && s->min_ratio <= 1))
        field_fail(L, "min_ratio", "%s: min_ratio = %.9g; it must be from 0 to 1", what, s->min_ratio);
    if (s->kind != SCHED_CONSTANT && s->total <= s->warmup)
        field_fail(L, "total", "%s: total = %lld steps must be more than warmup = %lld", what, (long long)s->total,
                   (long long)s->warmup);
    if (s->kind == SCHED_WSD) {
        s->decay_steps = field_integer(L, 2, what, "decay_steps", 0, 1);
        if (!s->decay_steps)
            sandbox_fail(L, "%s: decay_steps is missing: write how many steps before `total` the rate begins to fall",
                         what);
        if (s->decay_steps > s->total - s->warmup)
            field_fail(L, "decay_steps", "%s: decay_steps = %lld, but only %lld steps lie between warmup and total",
                       what, (long long)s->decay_steps, (long long)(s->total - s->warmup));
    }
    push_optim(L, NULL, s);
    return 1;
}

static int prim_tabulate(lua_State *L) { /* function of the step, options */
    static const char what[] = "optim.schedule";
    LrSchedule *s = NEW(fe_of(L)->arena, LrSchedule);
    if (lua_type(L, 1) != LUA_TFUNCTION)
        sandbox_fail(L, "%s: write optim.schedule(function(step) return ... end, { total = N }), not %s first", what,
                     field_type(L, 1));
    lua_settop(L, 2);
    options_table(L, 2);
    field_check_keys(L, 2, what, "total");
    s->kind = SCHED_FUNCTION;
    s->total = field_integer(L, 2, what, "total", 0, 1);
    if (!s->total)
        sandbox_fail(L, "%s: total is missing: write { total = N }, for how many steps there are factors", what);
    if (s->total > MOST_FACTORS)
        field_fail(L, "total", "%s: total = %lld; at most %d factors fit into a program", what, (long long)s->total,
                   MOST_FACTORS);
    float *factors = NEW_ARRAY(fe_of(L)->arena, float, s->total);
    Source at = sandbox_function_source(L, 1);
    for (int64_t t = 0; t < s->total; t++) {
        lua_pushvalue(L, 1);
        lua_pushinteger(L, t);
        lua_call(L, 1, 1);
        double x = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER)
            fail(at, "%s: at step %lld the function returned %s; it must return a factor on lr%s", what, (long long)t,
                 field_type(L, -1), lua_isnil(L, -1) ? ": write `return` before it" : "");
        if (!(x >= 0 && x <= 1e30))
            fail(at, "%s: at step %lld the function returned %g; a factor on lr is finite and at least 0", what,
                 (long long)t, x);
        if (!sc_fits_fp32(x))
            fail(at, "%s: %g at step %lld; " FP32_RANGE, what, x, (long long)t, (float)x, SC_LEAST_FP32);
        factors[t] = (float)x;
        lua_pop(L, 1);
    }
    s->factors = factors;
    push_optim(L, NULL, s);
    return 1;
}

/* Numbers of its own in the record, for an optimizer that some group has. */
static void add_optimizer(Frontend *f, const OptGroup *x) {
    Training *t = f->g->training;
    Optimizer *o = x->optimizer;
    if (o->set >= 0) return;
    if (t->optimizers.n == SC_OPTIMIZER_SETS)
        fail(x->src,
             "optim.%s: groups have more than %d optimizers; give some groups the same one: local adamw = "
             "optim.AdamW { ... }, and optimizer = adamw in each",
             t->optimizer->rule->lua, SC_OPTIMIZER_SETS);
    int alike = 0;
    for (int i = 0; i < t->optimizers.n; i++) alike += t->optimizers.at[i]->rule == o->rule;
    if (alike) o->name = arena_printf(f->arena, "%s %d", o->name, alike + 1);
    o->set = t->optimizers.n;
    push(&t->optimizers, f->arena, o);
}

static void check_shape(const Param *p, const Optimizer *o) {
    if (!o->rule->before || !p->requires_grad || p->is_buffer || training_is_matrix(p)) return;
    fail(o->src,
         "optim.%s: parameter %s has %d dimension%s, and matrices alone are updated so; write others = optim.AdamW { "
         "lr = "
         "... } for all that are none, or groups = { { match = \"%s\", optimizer = optim.AdamW { lr = ... } } }",
         o->rule->lua, p->path, p->dims, p->dims == 1 ? "" : "s", p->path);
}

static void assign_groups(Frontend *f, Optimizer *o) {
    add_optimizer(f, &o->groups.at[0]);
    for (int k = 1; k < o->groups.n; k++) {
        const OptGroup *x = &o->groups.at[k];
        int met = 0;
        for (int i = 0; i < f->g->params.n; i++) {
            Param *p = f->g->params.at[i];
            for (int m = 0; m < x->nmatch; m++) {
                if (!policy_path_match(x->match[m], p->path, true)) continue;
                met++;
                if (x->of == OF_ANY || (x->of == OF_MATRICES) == training_is_matrix(p))
                    p->group = k; /* the last wins */
            }
        }
        if (!met)
            fail(x->src,
                 "groups[%d]: no parameter's path matches '%s'; * stands for any characters, and the first parameter "
                 "is %s",
                 x->number, x->match[0], f->g->params.n ? f->g->params.at[0]->path : "missing");
    }
    for (int i = 0; i < f->g->params.n; i++) {
        const OptGroup *x = &o->groups.at[f->g->params.at[i]->group];
        check_shape(f->g->params.at[i], x->optimizer);
        add_optimizer(f, x);
    }
}

/* ── nn.training ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void need_field(lua_State *L, const char *key, int type, const char *expected) {
    if (lua_getfield(L, 1, key) != type) {
        if (lua_isnil(L, -1)) sandbox_fail(L, "nn.training: %s is missing; write %s = %s", key, key, expected);
        field_fail(L, key, "nn.training: %s must be %s, not %s", key, expected, field_type(L, -1));
    }
    lua_pop(L, 1);
}

/* "optim.SGD, optim.Adam, ... or optim.Muon" */
static const char *optimizer_names(Arena *a) {
    Str s = {.arena = a};
    for (int i = 0; i < SC_OPTIMIZERS; i++)
        str_addf(&s, "%soptim.%s", !i ? "" : i < SC_OPTIMIZERS - 1 ? ", " : " or ", sc_optimizers[i].lua);
    return s.s;
}

static Optim *optim_field(lua_State *L, const char *key, bool schedule) {
    lua_getfield(L, 1, key);
    Optim *o = luaL_testudata(L, -1, OPTIM);
    if (!lua_isnil(L, -1) && (!o || (schedule ? !o->schedule : !o->optimizer)))
        field_fail(L, key, "nn.training: %s must be %s, not %s", key,
                   schedule ? "optim.constant, optim.linear, optim.cosine or optim.wsd { ... }, or optim.schedule(...)"
                            : arena_printf(fe_of(L)->arena, "%s { ... }", optimizer_names(fe_of(L)->arena)),
                   field_type(L, -1));
    lua_pop(L, 1);
    return o;
}

static void check_sample(lua_State *L) {
    if (lua_getfield(L, 1, "sample") == LUA_TFUNCTION)
        field_fail(L, "sample",
                   "nn.training: sample is a function; write sample = { logits = function(m, b) ... end }");
    lua_pop(L, 1);
    if (!field_table(L, 1, "nn.training", "sample")) return;
    int t = lua_gettop(L);
    field_check_keys(L, t, "sample", "inputs logits");
    if (lua_getfield(L, t, "logits") != LUA_TFUNCTION)
        field_fail(L, "sample", "sample: logits must be a function(model, batch) that returns [1, seq, vocab], not %s",
                   field_type(L, -1));
    lua_settop(L, t - 1);
}

static void read_ema(lua_State *L) {
    Graph *g = fe_of(L)->g;
    if (!field_table(L, 1, "nn.training", "ema")) return;
    int t = lua_gettop(L);
    field_check_keys(L, t, "ema", "decay");
    g->training->ema_decay = field_single(L, t, "ema", "decay", 0.999);
    if (!(g->training->ema_decay > 0 && (float)g->training->ema_decay < 1))
        field_fail(L, "ema", "ema: decay = %.9g; it must be between 0 and 1, in fp32 too", g->training->ema_decay);
    lua_settop(L, t - 1);
}

static int prim_training(lua_State *L) {
    Frontend *f = fe_of(L);
    Graph *g = f->g;
    if (f->training_ref)
        sandbox_fail(L, "nn.training: called before, at %s:%d; a file describes one training", f->training_at.file,
                     f->training_at.line);
    field_check_keys(
        L, 1, "nn.training",
        "model batch loss optimizer schedule clip_grad_norm accumulate grad_scaler ema deterministic sample");
    lua_settop(L, 1);
    lua_getfield(L, 1, "model");
    if (lua_isnil(L, -1))
        sandbox_fail(
            L, "nn.training: model is missing, or nil; write model = the module that loss calls (does the function "
               "that makes it lack its `return`?)");
    if (!module_at(L, -1)) field_fail(L, "model", "nn.training: model must be a module, not %s", field_type(L, -1));
    lua_pop(L, 1);
    need_field(L, "batch", LUA_TTABLE, "{ tokens = nn.input(...) }");
    need_field(L, "loss", LUA_TFUNCTION, "function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end");
    need_field(L, "optimizer", LUA_TUSERDATA, "optim.AdamW { lr = ... }");
    f->training_at = sandbox_source(L);
    Training *training = g->training;
    training->optimizer = optim_field(L, "optimizer", false)->optimizer;
    Optim *schedule = optim_field(L, "schedule", true);
    if (schedule) training->schedule = *schedule->schedule;
    scaler_field(L);
    training->clip_grad_norm = field_not_negative(L, 1, "nn.training", "clip_grad_norm", 0, 1e30);
    read_ema(L);
    training->accumulate = (int)field_integer(L, 1, "nn.training", "accumulate", 1, 1);
    g->deterministic = field_boolean(L, 1, "nn.training", "deterministic", true);
    check_sample(L);
    lua_getfield(L, 1, "batch");
    declare_batch(f, lua_gettop(L));
    lua_settop(L, 1);
    lua_pushvalue(L, 1);
    f->training_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    return 1;
}

static int traces(lua_State *L) { /* protected */
    Frontend *f = fe_of(L);
    Graph *g = f->g;
    lua_rawgeti(L, LUA_REGISTRYINDEX, f->training_ref);
    int table = lua_gettop(L);
    lua_getfield(L, table, "model");
    modules_walk(f, lua_gettop(L));
    lua_settop(L, table);
    policy_loose(f);
    policy_file_apply(f);
    policy_split(f);
    mesh_begin(g);
    sandbox_of(L)->fallback = f->training_at;
    add_metric(f, "loss", f->training_at, false);
    add_metric(f, "grad_norm", f->training_at, false);
    g->metrics_state = state_new(g, S_METRICS, "metrics", FP32, SC_METRICS, NULL);
    if (g->training->scaler) g->scaler_state = state_new(g, S_SCALER, "loss scale", FP32, 4, NULL);
    g->train = trace_loss(f, table, "train", true);
    assign_trace(f);
    g->eval = trace_loss(f, table, "eval", false);
    trace_sample(f, table);
    describe_integers(f);
    params_finish(f);
    policy_buffers(f);
    policy_ignore(f);
    conflicts_check(f);
    assign_groups(f, g->training->optimizer);
    modules_unused(f);
    return 0;
}

void training_trace(Frontend *f) {
    lua_pushcfunction(f->L, traces);
    sandbox_call(f->L, 0, 0);
}

void training_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"input", prim_input},           {"count", prim_count},
                                         {"log_metric", prim_log_metric}, {"optimizer", prim_optimizer},
                                         {"schedule", prim_schedule},     {"tabulate", prim_tabulate},
                                         {"training", prim_training},     {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    luaL_newmetatable(L, INPUT);
    lua_pop(L, 1);
    luaL_newmetatable(L, OPTIM);
    lua_pop(L, 1);
}
