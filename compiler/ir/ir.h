/* The intermediate representation: values, ops, modules, units, persistent states, programs. One Graph per compilation.
 * Relies on: base, ops.def (the table of ops), runtime/schema (dtypes), purpose.h.
 * Relied on by: the front end (which builds it), every pass, the emitter and the reports. */
#ifndef SHARDC_IR_H
#define SHARDC_IR_H

#include "../base/base.h"
#include "purpose.h"
#include "schema/types.h"

typedef sc_dtype Dtype;
int dtype_size(Dtype d);         /* bytes an element */
const char *dtype_name(Dtype d); /* "bf16" */
bool dtype_parse(const char *s, Dtype *out);
bool dtype_float(Dtype d);

typedef enum { FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER, INIT, N_PHASES } Phase;
const char *phase_name(Phase p);

/* ── ops ─────────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef enum {
#define OP(name, ...) OP_##name,
#include "schema/ops.def"
    N_OPS
} OpKind;

enum { MAX_DIMS = SC_DIMS, MAX_IN = SC_OPERANDS, MAX_INTS = SC_INTS, MAX_FLOATS = SC_FLOATS };
enum { ALIGN = 256 }; /* bytes: a storage begins at a multiple */

typedef struct Graph Graph;
typedef struct Program Program;
typedef struct Op Op;
typedef struct Value Value;
typedef struct Module Module;
typedef struct Param Param;
typedef struct State State;
typedef struct Unit Unit;
typedef struct FusedParams FusedParams;
/* Declared elsewhere: policy.h, foreign.h, extension/c_file.h, training.h (two), notes.h. */
typedef struct Checkpoint Checkpoint;
typedef struct UnitPolicy UnitPolicy;
typedef struct Extension Extension;
typedef struct CFile CFile;
typedef struct Input Input;
typedef struct Training Training;
typedef struct Optimizer Optimizer;
typedef struct Notes Notes;

/* A tensor. Strides and offset in elements. A view has a base (never itself a view: chains are collapsed) and no bytes
 * of its own; so has an operand of an assemble op, whose base is the assembled value. */
struct Value {
    int id;
    Dtype dtype;
    int dims;
    int64_t shape[MAX_DIMS], stride[MAX_DIMS];
    Value *base;    /* NULL: owns its bytes */
    int64_t offset; /* elements (of this dtype) from the base's first byte */
    Op *def;        /* NULL for states and inputs */
    State *state;   /* the persistent state this value reads or writes, or NULL */
    Param *param;   /* set on the value that stands for a parameter in traced code; for fused ones: the first */
    const FusedParams *fused; /* it is the gradient of these parameters, or NULL */
    const char *name;         /* of an input, state or metric; else NULL */
    bool saved;               /* named in checkpoint's `save` list */
    bool on_host;             /* its bytes lie in the host arena (result of offload) */
    bool offload;             /* offloaded between forward and backward (marked by recompute, acted on by offload) */
    bool internal;            /* produced and consumed inside one fused group: no bytes */
};
int64_t value_numel(const Value *v);
int64_t param_numel(const Param *p);
/* The shape of all its experts where a mesh spreads them over ranks; returns its elements. */
int64_t param_whole(const Param *p, int64_t shape[MAX_DIMS]);
int64_t value_bytes(const Value *v); /* numel × element size, of the values own extent */
bool value_contiguous(const Value *v);
/* The strides by which a view of v has another shape; false: none has, it needs a copy. */
bool value_reshape_strides(const Value *v, int dims, const int64_t *shape, int64_t *stride);
bool value_has_shape(const Value *v, int dims, const int64_t *shape);
bool value_same_shape(const Value *a, const Value *b);
static inline Value *value_writable_root(Value *v) {
    while (v->base) v = v->base;
    return v;
}
static inline const Value *value_const_root(const Value *v) {
    while (v->base) v = v->base;
    return v;
}
/* The value that owns the bytes: const where v is. */
#define value_root(v) _Generic((v), Value * : value_writable_root, const Value * : value_const_root)(v)
const char *value_str(Arena *a, const Value *v);                       /* "bf16[8,2048]" */
const char *value_shape_str(Arena *a, int dims, const int64_t *shape); /* "[8,2048]" */

/* Results, operands and attributes of an op, by the names of its row in ops.def: parts.matmul.bias; or all in order
 * (out, in: NULL where an optional one is absent). By an op's own name alone: what several rows name is INT_OF and its
 * sisters (ops.h). */
typedef union {
#include "parts.def"
} OpParts;

/* Ops that epilogue fusion has put into one, the last first. */
typedef struct Joined {
    const char *id;
    OpKind kind;
    const struct Joined *next;
    const struct Module *module; /* that called it */
    bool turned;                 /* the first then became an op of another kind, whose name stands for both */
} Joined;

struct Op {
    int serial; /* among the graph's ops, clones and members included */
    int made;   /* the serial of what this is a copy of in another program, else its own: tells the pass that made it */
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
    Purpose purpose;
    Op *origin;           /* backward op: its forward op; clone: what it was cloned from; else NULL */
    Unit *unit;           /* for gather, reduce, optimizer */
    Extension *extension; /* of a T_FOREIGN op */
    Op **body;            /* OP_fused: member ops in order, else NULL */
    int nbody;
    int call;               /* ordinal of the module call it was traced in (a module called twice has two) */
    Checkpoint *checkpoint; /* policy of the outermost checkpointed call it was traced in, or NULL */
    int region;             /* ordinal of that call in the trace, from 1; 0: none */
    const Joined *joined;   /* or NULL */
    int group;              /* fused kernel number: equal for clones of one group; else -1 */
    Value *workspace;       /* or NULL; also counted as a write */
};

static inline Stream op_stream(const Op *op) {
    return purposes[op->purpose].stream;
}

/* ── modules, parameters, states, units ──────────────────────────────────────────────────────────────────────────── */
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

typedef struct {          /* the matrix scale · b a beside a frozen one, which exports may add to it */
    const Param *a, *b;   /* [rank,inputs], [outputs,rank]; NULL: there is none */
    const Param *lengths; /* [outputs]: the sum's rows get the lengths of the frozen ones plus this; NULL: their own */
    double scale;
} Adapter;

/* Files may have a parameter [n, rows, columns] in n times `n` tensors: of index i the names PATH.(first +
 * i).NAME.weight, PATH being that of the parameter without its last component, or, `up`, its last two. */
enum { MOST_STORED = 4 };
typedef struct {
    const char *name[MOST_STORED];
    int n, first;
    bool up;
} Stored;

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
    bool experts;   /* its first dimension are experts, which the axis `expert` of a mesh spreads over ranks */
    int split;      /* over so many; shape is then one rank's part of the first dimension. 1: over none */
    bool is_buffer; /* nn.buffer, or frozen and ignored by sharding: no gradient, every rank whole */
    bool ignored;   /* trainable and ignored by sharding: whole on every rank, its gradient summed over all */
    InitKind init;
    double init_a, init_b; /* constant · mean,std · low,high · mean,std (cut at 2 std) */
    uint64_t key;          /* Philox key from the path */
    bool reached;          /* the loss reaches it (set by autodiff) */
    Value *grad; /* its gradient in g->train: fresh, contiguous, in its unit's grad_dtype (set by autodiff). The first
                    part's of fused ones is the gradient of all parts, the others have none of their own */
    Adapter adapter;
    const Param *scales; /* of an int8 matrix: what its rows are multiplied by; NULL: it is not in int8 */
    const Param *copies; /* of a frozen copy: what it begins as, by the same key; NULL: it is none */
    bool internal;      /* a buffer that the compiler keeps for itself (ir/amax_history.h): no file of weights has it */
    Stored *stored;     /* NULL: as it is */
    bool looked_at;     /* products in 8 bits scale it by its largest magnitude; of fused ones the first has it */
    FusedParams *fused; /* whose part it is (set by QKV fusion), or NULL */
    int group;          /* optimizer parameter group */
    Unit *unit;
    int64_t flat_offset; /* elements, in its unit's flat buffer */
    Value *value;        /* its value in traced code */
};

/* Parameters that one product reads: one behind the other in their unit's flat buffer, without a gap. */
enum { MAX_FUSED_PARAMS = 8 };
struct FusedParams {
    Param *part[MAX_FUSED_PARAMS];
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
    S_ASSIGN,
    S_SEEN,
    S_AVERAGE,
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
    Param *param; /* of a buffer, and of what nn.assign keeps for one */
    Value *value; /* the value that stands for it, in every program */
};

/* An axis of a mesh (schema/mesh.h). */
typedef struct {
    int id;           /* index in Graph.axes */
    const char *name; /* "shard", "replicate", "world", "2 ranks", "2 ranks 4 apart" */
    int size, stride;
} Axis;

struct Unit {
    int id;
    const char *name; /* "layers.3", "(root)", "layers.3 bf16" */
    Module *module;
    UnitPolicy *policy;
    Unit *next; /* another part of the module's unit: its parameters of another stored dtype, ignored ones */
    bool ignored;
    bool sparse;                /* holds one sparse parameter */
    const Optimizer *optimizer; /* of its trainable parameters; NULL: it has none */
    VEC(Param *) params;        /* trainable ones first, in flat order */
    int64_t numel;              /* of the trainable flat buffer, padded to shards × 256 */
    int64_t frozen_numel;       /* of the frozen flat buffer, likewise; 0: none */
    const Axis *shard;          /* each rank of this axis holds another piece of the flat buffers, */
    const Axis *replicate;      /* and each rank of this one the same piece */
    const Axis *expert;  /* and each rank of this one other experts, in flat buffers of their own; NULL: none does */
    const Axis *parts;   /* `expert` and `shard` in one: no two of its ranks hold the same element */
    const Axis *reshard; /* which holds the pieces between forward and backward; NULL: `shard` does */
    bool host_update;    /* the update runs on the host; else its state streams through the device */
    Dtype dtype, wire;   /* of master, of gather */
    Dtype computes;      /* what ops read its parameters in: the wire, but where that has 8 bits */
    Dtype grad_dtype, reduce; /* of a rank's gradients (the policy's where it can be), of what reduce makes of them */
    Dtype sum;                /* of their sum over microbatches, reduced or not */
    State *master, *wire_shard, *m, *v, *grad; /* wire_shard: what gathers read; the master itself where that serves */
    State *average;                            /* of the master over steps; NULL: none */
    State *whole_grad;                         /* unreduced sum over microbatches */
    State *frozen, *frozen_wire;
    State *gathered[2]; /* trainable, frozen: stay gathered over microbatches; NULL: do not */
    State *scales[2];   /* likewise: of wires in 8 bits, one a matrix (lower/shard/narrow.c); NULL: wires are wide */
    State *largest[2];  /* likewise: a rank's largest magnitudes, one a matrix; NULL: they are not kept */
};

/* The groups of ranks along an axis, and the chain that their collectives belong to. */
typedef struct {
    const char *name; /* the axis', "exchange over shard" */
    const Axis *axis;
    /* Collectives of groups of one chain follow each other. 0: those of parameters, gradients and metrics. A group of
     * another chain has communicators of its own, on which others may run at the same time. */
    int chain;
} Comm;

struct Program {
    const char *name; /* init start micro_first micro micro_last (micro alone where accumulate = 1) eval sample */
    VEC(Op *) ops;    /* a valid sequential order */
    int ntraced;      /* ops that the trace has numbered: e0, e1, ... */
    Value *loss;      /* scalar fp32; NULL where there is none */
    Value *logits;    /* sample only */
    Notes *notes;     /* what the trace tells precision of its values (ir/notes.h); NULL after it */
    bool scaled;      /* the loss function scaled what it returns: the backward's seed is not scaled again */
};

/* Numbers that are known when the model is compiled, for a LIST of ops.def. Equal lists are one. */
typedef struct {
    const float *at;
    int n;
} Numbers;

/* What stands after a pass. All but the first two are of the training program, and 0 unless they are asked for. */
typedef struct {
    const char *name;
    int nops; /* ops whose `made` is below it, but not below that of the pass before, are of this one */
    int events, transfers;
    double flops, bytes, kernel_us; /* of kernels: arithmetic, memory traffic, predicted time one after another */
} PassRecord;

struct Graph {
    Arena *arena;
    const char *file; /* model file */
    const char *name; /* "gpt2" */
    Module *root;
    VEC(Module *) modules;
    VEC(Value *) values;
    VEC(Param *) params;
    VEC(Unit *) units;
    VEC(const Axis *) axes; /* SC_SHARD ..., then those of units of other meshes (schema/mesh.h) */
    VEC(Comm) comms;        /* of the first axes, then others */
    const Axis *expert;     /* of the first axes' ranks: over which experts are spread; NULL: no unit spreads them */
    VEC(State *) states;
    VEC(Input *) inputs;
    VEC(Program *) programs;
    VEC(Extension *) extensions;
    VEC(CFile *) files;   /* of extensions that the programs call */
    VEC(Numbers) numbers; /* graph_numbers */
    Training *training;
    const char *unproven; /* ir/unproven.h */
    bool deterministic;
    int world, nodes;
    int nops;               /* made so far: the next one's serial */
    VEC(PassRecord) passes; /* that have run, in order */
    int ngroups;            /* fused kernels */
    State *record, *metrics_state, *step_state, *scaler_state;
    Param *amax_history; /* ir/amax_history.h; NULL: nothing is scaled by it */
    State *amax_seen;
    Program *train, *eval, *sample; /* as traced; lower turns them into programs[] */
    Program *assign;                /* what ends the training step, behind the optimizer; NULL: nothing does */
};

Graph *graph_new(Arena *a);
Value *value_new(Graph *g, Dtype d, int dims, const int64_t *shape); /* contiguous */
Value *value_new_view(Graph *g, Value *of, int dims, const int64_t *shape, const int64_t *stride, int64_t extra_offset);
/* Gives a value that exists a new shape: contiguous, or as a view of another value, `extra_offset` elements into it. */
void value_lay_out(Value *v, Dtype d, int dims, const int64_t *shape);
void value_lay_view(Value *v, Value *of, int dims, const int64_t *shape, const int64_t *stride, int64_t extra_offset);
int64_t graph_numbers(Graph *g, const float *at, int n); /* its number, from 1, which an op's LIST holds */
static inline const Numbers *graph_numbers_at(const Graph *g, int64_t number) {
    return &g->numbers.at[number - 1];
}
Op *op_new(Graph *g, OpKind k);          /* not yet in a program */
Op *op_new_like(Graph *g, const Op *op); /* a copy; nor that */
State *state_new(Graph *g, StateClass c, const char *name, Dtype d, int64_t numel, Unit *u);

void graph_check(const Graph *g, const char *after); /* the IR's invariants; aborts with a message naming the pass */
void program_dump(FILE *f, const Graph *g, const Program *p);

#endif
