/* The intermediate representation: values, ops, modules, units, persistent states, programs. One Graph per compilation.
 * Relies on: base, ops.def (the table of ops), runtime/schema (dtypes, streams).
 * Relied on by: the front end (which builds it), every pass, the emitter and the reports. */
#ifndef SHARDC_IR_H
#define SHARDC_IR_H

#include "../base/base.h"
#include "schema/types.h"

typedef sc_dtype Dtype;
int dtype_size(Dtype d);         /* bytes an element */
const char *dtype_name(Dtype d); /* "bf16" */
bool dtype_parse(const char *s, Dtype *out);
bool dtype_float(Dtype d);

typedef sc_stream Stream;
enum { N_STREAMS = SC_STREAMS };
const char *stream_name(Stream s); /* "compute" */

typedef enum { FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, INIT, N_PHASES } Phase;
const char *phase_name(Phase p);

/* ── ops ────────────────────────────────────────────────────────────────────────────────────────── */
typedef enum {
#define OP(name, ...) OP_##name,
#include "schema/ops.def"
    N_OPS
} OpKind;

/* Traits, a bit each. A pass that may meet any op asks for traits; one that is about certain ops (QKV fusion: matmul,
 * rope, attention) names them. */
enum {
    T_POINTWISE = 1 << 0,  /* elementwise over equal shapes (after explicit expand); has a C expression; may be fused */
    T_VIEW = 1 << 1,       /* the result shares its operand's bytes; no event */
    T_ASSEMBLE = 1 << 2,   /* the operands are written in place into the result's bytes; no event */
    T_COLLECTIVE = 1 << 3, /* gather, reduce: talks to other ranks */
    T_COPY = 1 << 4,       /* offload, fetch: crosses arenas */
    T_RANDOM = 1 << 5,     /* depends on the record's seed and step */
    T_EFFECT = 1 << 6,     /* writes a state or a metric: never removed, dropped from recompute clones */
    T_STRIDED = 1 << 7,    /* its kernel takes operands of any strides; others get a `copy` where needed */
    T_ROWS = 1 << 8,       /* its kernel takes operands whose last dimension is contiguous (any outer strides) */
    T_ROWS_OUT = 1 << 9,   /* its kernel writes results whose last dimension is contiguous (any outer strides) */
    T_WIDE_GRAD = 1 << 10, /* accumulates in fp32 and can store fp32 whatever its operands' dtype (weight gradients) */
    T_OPTIMIZER = 1 << 11, /* updates parameters */
    T_NO_GRAD = 1 << 12,   /* gradient is zero by definition (comparisons, detach) */
    T_HOST_OK = 1 << 13,   /* may run on the host stream over the host arena */
    T_FOREIGN = 1 << 14,   /* calls a function of the user's own source: op->extension */
    T_SETS = 1 << 15,      /* writes the state that it updates without reading it */
};

enum { MAX_DIMS = SC_DIMS, MAX_IN = SC_OPERANDS, MAX_INTS = SC_INTS, MAX_FLOATS = SC_FLOATS };
enum { MAX_WIRES = SC_WIRES };

typedef struct Graph Graph;
typedef struct Program Program;
typedef struct Op Op;
typedef struct Value Value;
typedef struct Module Module;
typedef struct Param Param;
typedef struct State State;
typedef struct Unit Unit;
typedef struct Checkpoint Checkpoint;
typedef struct Extension Extension;
typedef struct Joint Joint;
typedef struct Notes Notes;

/* A tensor. Strides and offset in elements. A view has a base (never itself a view: chains are collapsed) and no bytes
 * of its own; so has an operand of an assemble op, whose base is the assembled value. */
struct Value {
    int id;
    Dtype dtype;
    int dims;
    int64_t shape[MAX_DIMS], stride[MAX_DIMS];
    Value *base;        /* NULL: owns its bytes */
    int64_t offset;     /* elements (of this dtype) from the base's first byte */
    Op *def;            /* NULL for states and inputs */
    State *state;       /* the persistent state this value reads or writes, or NULL */
    Param *param;       /* set on the value that stands for a parameter in traced code; for a joint: its first */
    const Joint *joint; /* it is the gradient of these parameters, or NULL */
    const char *name;   /* of an input, state or metric; else NULL */
    bool saved;         /* named in checkpoint's `save` list */
    bool on_host;       /* its bytes lie in the host arena (result of offload) */
    bool offload;       /* offloaded between forward and backward (marked by recompute, acted on by offload) */
    bool internal;      /* produced and consumed inside one fused group: no bytes */
    void *scratch;      /* owned by the running pass */
};
int64_t value_numel(const Value *v);
int64_t param_numel(const Param *p);
int64_t value_bytes(const Value *v); /* numel × element size, of the values own extent */
bool value_contiguous(const Value *v);
bool same_shape(const Value *a, const Value *b);
static inline Value *writable_root(Value *v) {
    while (v->base) v = v->base;
    return v;
}
static inline const Value *const_root(const Value *v) {
    while (v->base) v = v->base;
    return v;
}
/* The value that owns the bytes: const where v is. */
#define value_root(v) _Generic((v), Value * : writable_root, const Value * : const_root)(v)
const char *value_str(Arena *a, const Value *v); /* "bf16[8,2048]" */

/* Results, operands and attributes of an op, by the names of its row in ops.def: parts.matmul.bias; or all in order
 * (out, in: NULL where an optional one is absent). Ops of equal rows may be asked by each other's name. */
typedef union {
#include "parts.def"
} OpParts;

struct Op {
    OpKind kind;
    const char *id; /* stable event name: e131 · e131r (recompute) · e131b0 (backward) · g3f g3b r3 u3 o131 f131 */
    union {         /* op->matmul.bias */
        OpParts parts;
#include "parts.def"
    };
    int nin, nout;        /* slots up to the last operand, result that is there */
    const int64_t *table; /* optional list of integers (gap list, segment list) */
    int ntable;
    Module *module; /* module call that made it; never NULL (the root module if nothing else) */
    Source src;     /* user's Lua frame */
    Phase phase;
    Stream stream;
    Op *origin;           /* backward op: its forward op; clone: what it was cloned from; else NULL */
    Unit *unit;           /* for gather, reduce, optimizer */
    Extension *extension; /* of a T_FOREIGN op */
    Op **body;            /* OP_fused: member ops in order, else NULL */
    int nbody;
    int call;               /* ordinal of the module call it was traced in (a module called twice has two) */
    Checkpoint *checkpoint; /* policy of the outermost checkpointed call it was traced in, or NULL */
    int region;             /* ordinal of that call in the trace, from 1; 0: none */
    int group;              /* fused kernel number: equal for clones of one group; else -1 */
    Value *workspace;       /* or NULL; also counted as a write */
    void *scratch;          /* owned by the running pass */
};

/* ── modules, policies ──────────────────────────────────────────────────────────────────────────── */
/* Where each option of a module is written: a call in the model, or an entry of a --policy file over it. */
typedef struct {
    const char *key;
    Source src;
} Setting;
typedef VEC(Setting) Settings;
Source setting_source(const Settings *s, const char *key, Source otherwise); /* otherwise: nobody wrote the key */

struct Checkpoint { /* nn.checkpoint_wrapper / nn.checkpoint */
    Source src;
    Settings settings;
    const char **save, **offload; /* op names ("attention", "linear") or "input"; "*" for all */
    int nsave, noffload;
    bool recompute; /* false: only offloads */
};

typedef enum {
    UPDATE_ANYWHERE,
    UPDATE_STREAM,
    UPDATE_HOST
} UpdatePlace; /* offload.optimizer = true, "stream", "host" */

/* The user's own C and CUDA C: an extension of all-gathers, or a custom op. */
typedef struct { /* one buffer that travels */
    Dtype dtype;
    int count, every; /* `count` elements for every `every` stored ones; every 0: `count` for each rank's piece of a
                         parameter */
} Wire;

typedef enum { PRE_GATHER = 0, POST_GATHER = 1, CUSTOM_FORWARD = 0, CUSTOM_BACKWARD = 1, N_PARTS = 2 } ExtensionPart;

typedef struct { /* a parameter of a C function */
    const char *name;
    const char *type;    /* as it stands in the source: "const float *" */
    const char *element; /* what it points to, in the end: "float"; "": no pointer */
    bool constant;       /* what it points to is */
    int dims;            /* of what it points to: 1 where it is `float *`; sizes that are not written are 0 */
    int64_t size[MAX_DIMS];
    int line;
} CParam;

typedef struct {               /* a function that the user's file defines */
    const char *name, *result; /* result's type: "void" */
    int line, nparams;
    bool internal; /* static */
    CParam *params;
} CFunction;

typedef struct { /* the user's file, as libclang read it */
    const char *path, *text;
    VEC(CFunction) functions;
} CFile;

struct Extension {
    int id;
    Source src;                /* of the call of nn.all_gather_extension or nn.custom_op */
    bool gathers;              /* all-gathers; else a custom op */
    const char *name;          /* of a custom op */
    const char *source, *cuda; /* files for the two targets; NULL: none */
    Source source_at, cuda_at; /* where they are named */
    const char *part[N_PARTS]; /* pre_all_gather and post_all_gather · forward and backward (NULL: none) */
    Wire wire[MAX_WIRES];
    int nwires;
    bool amax;   /* the largest magnitude of each parameter is found before */
    bool rows;   /* no slice cuts a row of a parameter */
    CFile *file; /* of the target; set by the extensions pass, with what follows */
    const CFunction *found[N_PARTS];
};

typedef struct { /* prefetch = { forward = { ... } }: what a use of the unit gathers ahead */
    Module **at;
    int n; /* 0: by depth */
} PrefetchList;

typedef struct { /* nn.fully_shard */
    Source src;
    Settings settings;
    int replicate, shard;      /* 0: the rest of the world */
    int reshard_after_forward; /* 0 no · 1 yes · n>1 to a group of n */
    bool root_default;         /* reshard_after_forward was not written: the root stays gathered */
    Dtype param_dtype, grad_dtype, reduce_dtype, output_dtype, buffer_dtype;
    bool has_param_dtype, has_grad_dtype, has_reduce_dtype, has_output_dtype, has_buffer_dtype, cast_forward_inputs;
    bool offload_params, offload_grads, offload_optimizer;
    UpdatePlace update; /* where the update of an offloaded optimizer runs */
    int prefetch_forward, prefetch_backward;
    PrefetchList forward_list, backward_list;
    /* Under accumulation: reshard_after_backward = false (parameters stay gathered between microbatches),
     * requires_gradient_sync = false (gradients are kept whole and reduced in the last microbatch alone),
     * requires_all_reduce = false (shards are summed over replicas there alone). */
    bool stay_gathered, defer_sync, defer_all_reduce;
    bool unshard_in_backward;      /* false: a promise that the backward reads no parameter, held to by shard */
    double gradient_divide_factor; /* of summed gradients; 0: the world. Microbatches are averaged in any case */
    const char **ignored; /* parameter path patterns: such a one is Param.ignored, or where it is frozen a buffer */
    int nignored;
    Extension *all_gather; /* NULL: bytes travel as they are stored */
} UnitPolicy;

struct Module {
    int id;
    const char *path; /* "layers.0.mlp.up"; "" for the root */
    const char *kind; /* "Linear", "Block" */
    Source made;      /* where the user made it */
    Module *parent;
    Checkpoint *checkpoint; /* NULL: none */
    UnitPolicy *policy;     /* NULL: not a unit of its own */
    Unit *unit;             /* set where the module is one: the first of its parts */
    bool unused;            /* no program calls it or reads a parameter of it; of nested ones the outermost */
};

/* m is the ancestor or lies in it; m NULL: it does not. The ancestor is never NULL. */
bool module_within(const Module *m, const Module *ancestor);

typedef sc_init InitKind;

struct Param {
    int id;           /* order of first use in the traced forward, unused ones after, by path */
    const char *path; /* "layers.0.mlp.up.weight" */
    Source src;
    Module *owner;
    Dtype dtype; /* as stored (the master) */
    int dims;
    int64_t shape[MAX_DIMS];
    bool requires_grad;
    bool sparse;    /* of nn.Embedding { sparse = true }: ranks exchange rows of its gradient */
    bool is_buffer; /* nn.buffer, or frozen and ignored by sharding: no gradient, every rank whole */
    bool ignored;   /* trainable and ignored by sharding: whole on every rank, its gradient summed over all */
    InitKind init;
    double init_a, init_b; /* constant · mean,std · low,high · mean,std (cut at 2 std) */
    uint64_t key;          /* Philox key from the path */
    bool reached;          /* the loss reaches it (set by autodiff) */
    Value *grad;  /* its gradient in g->train: fresh, contiguous, in its unit's grad_dtype (set by autodiff). The first
                     part's of a joint is the gradient of all parts, the others have none of their own */
    Joint *joint; /* whose part it is (set by joints), or NULL */
    int group;    /* optimizer parameter group */
    Unit *unit;
    int64_t flat_offset; /* elements, in its unit's flat buffer */
    Value *value;        /* its value in traced code */
};

/* Parameters that one product reads: one behind the other in their unit's flat buffer, without a gap. */
enum { MAX_JOINED = 8 };
struct Joint {
    Param *part[MAX_JOINED];
    int n;
    Value *value; /* all of them in traced code, stacked along dimension 0 */
};

/* Persistent bytes: alive across programs, at one fixed offset. */
typedef enum {
    S_MASTER,
    S_WIRE,
    S_MOMENT1,
    S_MOMENT2,
    S_GRAD,
    S_WHOLE_GRAD,
    S_GATHERED,
    S_FROZEN,
    S_BUFFER,
    S_INPUT,
    S_OUTPUT,
    S_RECORD,
    S_METRICS,
    S_STEP,
    S_SCALER,
    N_STATE_CLASSES
} StateClass;
struct State {
    int id;
    const char *name; /* "layers.3/master" */
    StateClass cls;
    Dtype dtype;
    int64_t numel;
    bool on_host;
    Unit *unit;
    Param *param; /* buffers */
    Value *value; /* the value that stands for it, in every program */
};

struct Unit {
    int id;
    const char *name; /* "layers.3", "(root)", "layers.3 bf16" */
    Module *module;
    UnitPolicy *policy;
    Unit *next; /* another part of the module's unit: its parameters of another stored dtype, ignored ones */
    bool ignored;
    bool sparse;                                  /* holds one sparse parameter */
    VEC(Param *) params;                          /* trainable ones first, in flat order */
    int64_t numel;                                /* of the trainable flat buffer, padded to shards × 256 */
    int64_t frozen_numel;                         /* of the frozen flat buffer, likewise; 0: none */
    int shards, replicas, reshard;                /* reshard > 1: between forward and backward over groups of so many */
    int comm_shard, comm_replicate, comm_reshard; /* indices in Graph.comms */
    bool host_update;         /* the update runs on the host; else its state streams through the device */
    Dtype dtype, wire;        /* of master, of gather */
    Dtype grad_dtype, reduce; /* of a rank's gradients (the policy's where it can be), of what reduce makes of them */
    State *master, *wire_shard, *m, *v, *grad; /* wire_shard: what gathers read; the master itself where that serves */
    State *whole_grad;                         /* unreduced sum over microbatches */
    State *frozen, *frozen_wire;
    State *gathered[2]; /* trainable, frozen: stay gathered over microbatches; NULL: do not */
};

/* Groups of ranks that talk to each other: n ranks each, `step` apart. */
typedef struct {
    const char *name; /* "shard", "replicate", "world", "2 ranks", "2 ranks 4 apart" */
    int n, step;
} Comm;
enum { COMM_SHARD = 0, COMM_REPLICATE = 1, COMM_WORLD = 2 }; /* the first unit's, all; others follow */

/* ── inputs, metrics, optimizer, training ───────────────────────────────────────────────────────── */
typedef struct {
    const char *name;
    Dtype dtype;
    int dims;
    int64_t shape[MAX_DIMS]; /* one rank's microbatch */
    const char *from;        /* data source: "tokens" or a record field */
    int shift;
    int ordinal;   /* of the nn.input call: inputs stand in the order in which they were written */
    bool tokens;   /* its elements are what a batch is counted in */
    int64_t limit; /* rows of the smallest table that its elements index; 0: none */
    Source src;
    Value *value, *sample_value; /* in the training trace; in the sample trace (NULL: not used there) */
    State *state;
} Input;

typedef struct {
    const char *name;
    Source src;
    bool is_sum;
} Metric; /* index in Graph.metrics = slot in S_METRICS */

typedef enum { OPT_SGD, OPT_ADAM, OPT_ADAMW } OptKind;
typedef struct {
    const char **match;
    int nmatch;
    double lr, weight_decay;
    Source src;
} OptGroup;
typedef struct {
    OptKind kind;
    Source src;
    double lr, beta1, beta2, eps, weight_decay, momentum;
    bool nesterov;
    Dtype moment_dtype;   /* fp32, or bf16 rounded stochastically */
    VEC(OptGroup) groups; /* group 0 is the default one: lr and weight_decay above */
} Optimizer;

typedef struct { /* optim.GradScaler */
    Source src;
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval;
    bool without_fp16; /* wanted though nothing is fp16 */
} GradScaler;

typedef enum { SCHED_CONSTANT, SCHED_LINEAR, SCHED_COSINE } SchedKind;
typedef struct {
    SchedKind kind;
    int64_t warmup, total;
    double min_ratio;
} LrSchedule;

typedef struct {
    const char *name;
    Source src;
    const char *text;
} OptionValue; /* nn.options as resolved */

/* A loss's normaliser: the host counts targets of `input` unequal to `ignore` over the whole step. Slot = index. */
typedef struct {
    Input *input;
    int64_t ignore;
} CountSlot;

struct Program {
    const char *name; /* init start micro_first micro micro_last (micro alone where accumulate = 1) eval sample */
    VEC(Op *) ops;    /* a valid sequential order */
    Value *loss;      /* scalar fp32; NULL where there is none */
    Value *logits;    /* sample only */
    Notes *notes;     /* what the trace tells precision of its values (ir/notes.h); NULL after it */
    bool scaled;      /* the loss function scaled what it returns: the backward's seed is not scaled again */
};

struct Graph {
    Arena *arena;
    const char *file; /* model file */
    const char *name; /* "gpt2" */
    Module *root;
    VEC(Module *) modules;
    VEC(Value *) values;
    VEC(Param *) params;
    VEC(Unit *) units;
    VEC(Comm) comms;
    VEC(State *) states;
    VEC(Input *) inputs;
    VEC(Metric) metrics; /* 0 loss, 1 grad_norm, then names of nn.log_metric */
    VEC(CountSlot) counts;
    VEC(OptionValue) options;
    VEC(Program *) programs;
    VEC(Extension *) extensions;
    VEC(CFile *) files; /* of extensions that the programs call */
    Optimizer *optimizer;
    LrSchedule schedule;
    double clip_grad_norm; /* 0: none */
    int accumulate;        /* build-time default; 1 builds the single program */
    bool deterministic;
    int world, nodes;
    int next_op;        /* numbering of traced ops */
    int ngroups;        /* fused kernels */
    GradScaler *scaler; /* NULL: none */
    State *record, *metrics_state, *step_state, *scaler_state;
    Program *train, *eval, *sample; /* as traced; lower turns them into programs[] */
};

Graph *graph_new(Arena *a);
Value *new_value(Graph *g, Dtype d, int dims, const int64_t *shape); /* contiguous */
Value *new_view(Graph *g, Value *of, int dims, const int64_t *shape, const int64_t *stride, int64_t extra_offset);
Op *new_op(Graph *g, OpKind k); /* not yet in a program */
State *new_state(Graph *g, StateClass c, const char *name, Dtype d, int64_t numel, Unit *u);

/* ── the table of ops (ir/ops.c, ir/rules_*.c) ──────────────────────────────────────────────────── */
enum { MAX_KEY = 6, MAX_VARIANT = 40 };
typedef struct {
    double flops, bytes; /* of one execution: arithmetic, and memory traffic in its arena */
    /* Where these two do not tell how long it takes: sizes, and what else distinguishes kernels ("bf16>fp32 tn").
     * Points of a device profile are compared by them. */
    char variant[MAX_VARIANT];
    double key[MAX_KEY];
    int nkey;
    double least_us; /* it takes that long whatever runs it */
} Cost;

typedef struct { /* what a kernel's workspace depends on besides its op */
    bool cuda;
    int threads;         /* CPU: a rank's */
    int multiprocessors; /* CUDA */
    bool deterministic;  /* bits repeat: the model does not say otherwise */
    bool wide;           /* CPU: kernels compute in fp64 (the test build), whatever their operands are */
} Machine;

typedef struct Builder Builder; /* appends ops to a list, inheriting module, source, phase and origin; ir/build.h */

enum { OPTIONAL = 1, LENDS = 2, UPDATED = 4 }; /* flags of a slot, see ops.def */
typedef struct {                               /* a result or an operand; or a list of at most n */
    const char *name;
    int flags, n;
} Slot;

typedef enum { A_FLAG, A_INT, A_DTYPE, A_WIDER, A_FLOAT } AttributeType;
typedef struct { /* n numbers, behind those before it in op->i or (A_FLOAT) op->f */
    const char *name;
    AttributeType type;
    int n;
    bool kernel;              /* kernels receive it */
    const char *const *words; /* of an ENUM: its constants; else NULL */
} Attribute;

typedef struct {
    const char *name, *notation;
    const Slot *results, *operands; /* each ends with a name of NULL */
    const Attribute *attributes;    /* likewise: integers, then floats */
    unsigned traits;
    void (*infer)(Graph *g, Op *op); /* sets op's results (new values or views) from its operands and attributes; fails
                                        with a diagnostic at op->src that shows the shapes and the remedy */
    /* d->matmul.y is the gradient that reaches result y (NULL: none does); sets d->matmul.a, the operand's, where it
     * wants one; NULL rule: none */
    void (*grad)(Builder *b, Op *op, OpParts *d);
    Cost (*cost)(const Op *op);
    int64_t (*workspace)(const Op *op, const Machine *m); /* bytes; NULL: none */
    const char *expr; /* pointwise: C expression over the names of operands and floats, in `real` */
} OpInfo;
extern const OpInfo op_info[N_OPS];
static inline bool op_is(const Op *op, unsigned trait) {
    return (op_info[op->kind].traits & trait) != 0;
}
/* The place of an operand in op->in: SLOT(matmul, bias). */
#define SLOT(op, operand) ((int)(offsetof(OpParts, op.operand) / sizeof(Value *)) - MAX_IN)
int slot_count(const Slot *slots); /* a list counts as many as it may have */
/* The slot that number k of op->in (op->out) is; index: in its list, 0 where it is none. NULL: beyond the last. */
const Slot *slot_at(const Slot *slots, int k, int *index);
unsigned op_slot_flags(const Op *op, int operand); /* of op->in[operand] */
static inline bool op_updates(const Op *op, int operand) {
    return op_slot_flags(op, operand) & UPDATED;
}
bool op_updates_any(const Op *op);
/* Of an op with one result, or its first: the one that gradients and fusion are about. */
static inline Value *op_result(const Op *op) {
    return *op->out;
}
static inline Value *op_operand(const Op *op) { /* of an op that takes one, or its first */
    return *op->in;
}
bool op_lends(const Op *op, int operand);       /* it may lend its bytes to the first result */
void op_set(Op *op, int operand, Value *v);     /* op_set(op, SLOT(matmul, bias), v): keeps op->nin */
bool op_changes_nothing(const Op *op);          /* a cast to the dtype that its operand has */
bool op_needs_copy(const Op *op);               /* a reshape of what lies in no way that a view could show */
int op_values(const Op *op, const Value **out); /* those that are there: results, operands, workspace; how many */
OpKind op_by_name(const char *name);            /* N_OPS when unknown */
ExtensionPart foreign_part(const Op *op);       /* which function of its extension a T_FOREIGN op calls */
const char *part_name(const Extension *x, ExtensionPart p); /* "pre", "post", "forward", "backward" */

void check_graph(const Graph *g, const char *after); /* the IR's invariants; aborts with a message naming the pass */
void dump_program(FILE *f, const Graph *g, const Program *p);

#endif
