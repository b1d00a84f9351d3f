/* The state of one front-end run, shared by the files of this folder.
 * Relies on: sandbox.h, ir.h.
 * Relied on by: frontend/ only. */
#ifndef SHARDC_FE_H
#define SHARDC_FE_H

#include "../ir/build.h"
#include "../ir/policy.h"
#include "../sandbox/sandbox.h"
#include "frontend.h"

typedef enum { FULLY_SHARD, CHECKPOINT, N_WRAPPERS } WrapperKind; /* nn.fully_shard, nn.checkpoint_wrapper */

typedef struct {       /* the options of one, and what --policy entries write over them */
    int table;         /* a copy of them, in Lua's registry */
    Settings settings; /* where each stands */
    Source src;        /* the call, or the entry, that wraps the module; file NULL: none does */
} Wrapper;

typedef struct {       /* the options of nn.fully_shard, as read */
    UnitPolicy policy; /* first: what the passes go by is a part of it. The rest the front end carries out itself: */
    bool has_buffer_dtype;
    Dtype buffer_dtype;
    const char **ignored; /* parameter path patterns: such a one is Param.ignored, or where it is frozen a buffer */
    int nignored;
} UnitOptions;

typedef struct ModuleInfo {
    const char *kind;    /* "Linear" */
    const char *made_by; /* "nn.Linear(5120, 14336)" */
    Source made;
    Module *ir;       /* set by the walk; NULL: not part of the model */
    Module *shared;   /* held by several modules: their lowest common ancestor */
    int depth;        /* of the shortest path to it; 0: none found yet (the model itself has 1) */
    const char *open; /* its path, while the walk is inside it: found again, it is a cycle */
    int calls;        /* in the running trace */
    int entries;      /* the walk's: entries 1 ... of the table */
    bool held;        /* assigned to a field of a module once */
    bool callable;    /* it has a forward */
    bool called;      /* in some trace */
    Wrapper wrapper[N_WRAPPERS];
    Source entry;           /* the last of the policy file's that matches it; file NULL: none */
    Checkpoint *checkpoint; /* as read from these */
    UnitPolicy *policy;
} ModuleInfo;

typedef struct { /* a module that holds a parameter in one of its fields */
    Module *module;
    const char *path;
} Holder;

typedef struct {
    Param param; /* first: a ParamInfo is a Param */
    VEC(Holder) holders;
    bool used; /* in the training trace */
    bool read; /* in some trace */
} ParamInfo;

typedef struct { /* the userdata behind a tensor in Lua */
    Value *value;
    ParamInfo *param;
    int trace; /* of which trace `value` is part */
} Tensor;

typedef struct { /* a module call, or an nn.checkpoint call, being traced */
    Module *module;
    Module *called; /* the module, if it is a call of one */
    int call, region;
    int *randoms; /* ops of the module call so far; nn.checkpoint counts on */
    Checkpoint *checkpoint;
} Call;

typedef struct {
    const char *name;
    Source src;
    int trace; /* that logged it last */
} Log;

typedef struct { /* nn.assign */
    Param *param;
    State *state; /* what it keeps of a step */
    Source src;
    Module *module;
    int finish; /* Lua's function of what was kept, in the registry */
} Assign;

typedef struct { /* one entry of a prefetch list */
    UnitPolicy *policy;
    bool backward;
    Source src;
    ModuleInfo *module; /* or */
    const char *path;
} Prefetch;

typedef struct {
    Arena *arena;
    lua_State *L;
    int ninputs;         /* nn.input calls so far */
    const void *tensors; /* their metatable */
    Graph *g;
    const FrontendOptions *options;
    Source options_at; /* nn.options; file NULL: not called */
    /* the running trace */
    Program *program; /* NULL: none */
    int trace, regions;
    bool training, sampling;
    VEC(Call) calls;
    /* everything that the file made */
    VEC(ModuleInfo *) modules;
    VEC(ModuleInfo *) placed; /* those of the model, by the id of their ir */
    VEC(ParamInfo *) params;
    VEC(Log) logs;
    VEC(Assign) assigns;
    int assigning; /* whose update is being traced; assigns.n: none */
    VEC(Prefetch) prefetches;
    VEC(Source) entries;             /* of policy files */
    const Settings *reading;         /* of the options that are being read; NULL: those of the running call */
    int training_ref;                /* nn.training's table in the registry */
    Source training_at, function_at; /* nn.training; the function of its table that is traced */
} Frontend;

/* The unit that m is part of: the nearest module at or above it that has a policy, or the root. Never NULL. */
static inline const Module *module_unit(const Module *m) {
    while (m->parent && !m->policy) m = m->parent;
    return m;
}

static inline const UnitOptions *policy_unit_options(const UnitPolicy *p) {
    return (const UnitOptions *)p;
}

static inline Frontend *fe_of(lua_State *L) {
    return *(Frontend **)lua_getextraspace(L);
}

/* handles.c; the names of metatables, and of the table from a module's table to its ModuleInfo, in Lua's registry */
#define TENSOR "shardc.tensor"
#define MODULE "shardc.module"
#define MODULES "shardc.modules"
#define SCALER "shardc.scaler"
Tensor *tensor_at(lua_State *L, int index); /* NULL: no tensor */
void tensor_push(lua_State *L, Value *v);
const char *param_str(Arena *a, const Param *p);
ModuleInfo *module_at(lua_State *L, int index);              /* NULL: no module */
ModuleInfo *module_info(const Frontend *f, const Module *m); /* m NULL: NULL */
Module *module_common_ancestor(Module *a, const Module *b);  /* the lowest module that holds or is both */
bool scaler_at(lua_State *L, int index);
uint64_t param_path_key(const char *path); /* Philox key */
_Noreturn void trace_fail(lua_State *L, const char *remedy, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Refuses NaN, and what d cannot hold: fractions where it is of integers, numbers that would become infinite. */
void trace_need_number(lua_State *L, const char *what, double x, Dtype d);
void trace_refuse_in_assign(lua_State *L, const char *what); /* fails where an update of nn.assign is traced */
Builder trace_builder(lua_State *L);
void trace_finish(lua_State *L, int first); /* ops from `first` on belong to the running call */

/* tensor.c */
Value *tensor_value(lua_State *L, int index, const char *what);
void trace_needed(lua_State *L, const char *what); /* fails where no trace runs */

/* args.c: fields of a table given to a function of nn or optim. `what` is how messages begin: "nn.fully_shard". */
void field_check_keys(lua_State *L, int table, const char *what, const char *keys); /* keys: "a b c" */
bool field_present(lua_State *L, int table, const char *key);
int64_t field_integer(lua_State *L, int table, const char *what, const char *key, int64_t otherwise, int64_t least);
double field_number(lua_State *L, int table, const char *what, const char *key, double otherwise);
/* The same of what is used as fp32; fails where fp32 rounds it to 0, to an infinity, or to what has lost digits. */
double field_single(lua_State *L, int table, const char *what, const char *key, double otherwise);
bool field_boolean(lua_State *L, int table, const char *what, const char *key, bool otherwise);
const char *field_string(lua_State *L, int table, const char *what, const char *key, const char *otherwise);
bool field_dtype(lua_State *L, int table, const char *what, const char *key, Dtype *out);
int field_strings(lua_State *L, int table, const char *what, const char *key,
                  const char ***out);                                         /* a string or a list */
bool field_table(lua_State *L, int table, const char *what, const char *key); /* pushes it, or nothing */
_Noreturn void field_fail(lua_State *L, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
Source field_key_source(const Frontend *f, Source at,
                        const char *key);           /* in the call or the policy entry at that line */
Source field_source(lua_State *L, const char *key); /* in the table that is being read */
Dtype field_to_dtype(lua_State *L, int index, const char *what);
int field_to_shape(lua_State *L, int table, const char *what, int64_t *shape); /* returns dims */
void options_table(lua_State *L, int index);                                   /* settop(index); nil becomes {} */
const char *field_type(lua_State *L, int index);                               /* for "expected a number, got ..." */
const char *field_nearest(Arena *a, const char *name, const char *const *names,
                          int n); /* "; did you mean 'x'?" or "" */

/* options.c */
void options_open(lua_State *L); /* adds functions to the table on top; so do the other *_open */
void options_check_set(Frontend *f);

/* trace.c */
void trace_open(lua_State *L);
Op *trace_op(lua_State *L, OpKind k, const OpParts *parts);

/* pointwise.c */
void pointwise_open(lua_State *L);
int tensor_arithmetic(lua_State *L, const char *name);

/* modules.c */
void modules_open(lua_State *L);
void modules_walk(Frontend *f, int model); /* gives paths; model: stack index */
void modules_unused(Frontend *f);          /* after all traces: refuses what is part of nothing, marks the rest */
void trace_begin(Frontend *f, const char *name, bool training, bool sampling);

/* scaler.c */
void scaler_open(lua_State *L);
void scaler_field(lua_State *L); /* nn.training's grad_scaler */

/* params.c */
void params_open(lua_State *L);
void param_use(Frontend *f, ParamInfo *p); /* gives it its value, and its place in the order of parameters */
/* The lowest module that every way to the parameter leads through, but not above one that is a unit by itself. */
Module *param_owner(const Frontend *f, const ParamInfo *p);
void params_finish(Frontend *f);

/* policy.c */
void policy_open(lua_State *L);
void policy_loose(const Frontend *f); /* refuses wrapped modules that are not part of the model */
void policy_split(Frontend *f);
/* Options over those of a wrapper, key by key; the named tables among them are merged likewise. */
void policy_overlay(lua_State *L, ModuleInfo *m, WrapperKind k, int options, Source src);
void policy_read(lua_State *L, ModuleInfo *m);                                 /* what its wrappers say now */
Source policy_source(const Frontend *f, const UnitPolicy *p, const char *key); /* where it is written */
void policy_buffers(Frontend *f);                                              /* mp_policy.buffer_dtype */
void policy_ignore(Frontend *f); /* ignored_params, when all parameters have their paths */
#define FP32_RANGE "fp32, in which it is used, has %g for it: write 0, or a number from %.3g to 3.4e38"
#define POLICY_RANGE "a range is {0-15}: two numbers of at most nine digits, the smaller one first"
bool policy_range_malformed(const char *pattern); /* it has a { that begins none */
bool policy_path_match(const char *pattern, const char *text, bool across_dots);

/* policy_file.c */
void policy_file_apply(Frontend *f);

/* extension.c */
void extension_open(lua_State *L);
Extension *extension_field(lua_State *L, int table, const char *what, const char *key); /* NULL: not there */

/* conflicts.c: policies that speak of each other, when the model has been traced */
void conflicts_check(Frontend *f);

/* assign.c */
void assign_open(lua_State *L);
void assign_trace(Frontend *f); /* after the training trace: g->assign */

/* training.c */
void training_open(lua_State *L);
void training_trace(Frontend *f);

#endif
