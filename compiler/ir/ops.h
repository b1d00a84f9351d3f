/* The table of ops: traits, names, rules and costs by kind, and what it says of an op.
 * Relies on: ir.h; ops.def, of which ir/ops.c makes it.
 * Relied on by: whoever meets any op: passes, emit/, cost/, the rules themselves (ir/rules_*.c). */
#ifndef SHARDC_OPS_H
#define SHARDC_OPS_H

#include "ir.h"
#include "schema/slots.h"

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
    T_SUMS = 1 << 16,      /* a collective that adds up what ranks have; others move bytes */
    T_LOOKUP = 1 << 17,    /* its INDICES operand picks rows of a table, as tokens do; targets of a loss pick classes */
    T_ACCUMULATES = 1 << 18, /* a T_WIDE_GRAD that adds rows up into a whole table: it stores the dtype that the
                                gradient is kept in, a narrower one too, and no cast of the table follows */
    T_PRODUCT = 1 << 19,     /* y = a b: flags trans_a and trans_b say which lies transposed; a's leading dims are rows
                                where b has 2 dims; and what may come after the sums (ir/patterns.c) */
    T_QUANTIZES = 1 << 20,   /* its first result is its first operand in 8 bits, and has the operand's gradient */
    T_GROUPED = 1 << 21,     /* each row of a times the matrix of its group, or that matrix' gradient, over the rows */
};

enum { MAX_KEY = 6, MAX_VARIANT = 80 };
typedef struct {
    double flops, bytes; /* of one execution: arithmetic, and memory traffic in its arena */
    /* Where these two do not tell how long it takes: sizes, and what else distinguishes kernels ("bf16>fp32 tn").
     * Points of a device profile are compared by them. */
    char variant[MAX_VARIANT];
    double key[MAX_KEY];
    int nkey;
    double least_us; /* it takes that long whatever runs it */
    /* Of arithmetic: the share of the peak at which its kernel is bound by the clock, 0: as a product; and the FLOPs of
     * a product that draw as much energy as what it does beside its FLOPs (softmax's exponentials). */
    double busy, also_draws;
    /* Of products and attention, as papers count a model's arithmetic: a gradient is twice its forward, whatever a
     * kernel computes again. Causal attention is half of the square, or the whole of it (PaLM, appendix B). 0: flops.
     */
    double model_flops, model_flops_full;
    int document_length;  /* tokens of a document, of which times depend; 0: there are none */
    bool whole_documents; /* it is the row's, for want of better knowledge */
} Cost;

typedef struct { /* what a kernel's workspace depends on besides its op */
    bool cuda;
    int threads;         /* CPU: a rank's */
    int multiprocessors; /* CUDA */
    bool wide;           /* CPU: kernels compute in fp64 (the test build), whatever their operands are */
} Machine;

typedef struct Builder Builder; /* appends ops to a list, inheriting module, source, phase and origin; ir/build.h */

typedef struct { /* a result or an operand; or a list of at most n */
    const char *name;
    int flags, n; /* schema/slots.h */
} Slot;

typedef enum { A_FLAG, A_INT, A_FLAGS, A_AXIS, A_NUMBERS, A_DTYPE, A_WIDER, A_FLOAT } AttributeType;
typedef struct { /* n numbers, behind those before it in op->i or (A_FLOAT) op->f */
    const char *name;
    AttributeType type;
    int n;
    bool kernel;              /* kernels receive it */
    const char *const *words; /* of an ENUM: its constants; of FLAGS: bit by bit; NULL behind the last; else NULL */
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
    OpKind timed_as; /* another op, whose measurements tell how long this one takes; 0: its own */
    /* Exclusive upper bound of the elements of its INDICES operand; NULL: it has none. */
    int64_t (*limit)(const Op *op);
    const char *expr; /* pointwise: C expression over the names of operands and floats, in `real` */
} OpInfo;
extern const OpInfo op_info[N_OPS];
static inline bool op_is(const Op *op, unsigned trait) {
    return (op_info[op->kind].traits & trait) != 0;
}
/* The place of an operand in op->in: SLOT(matmul, bias). */
#define SLOT(op, operand) ((int)(offsetof(OpParts, op.operand) / sizeof(Value *)) - MAX_IN)
/* What an op's row calls `name`, for rules and passes that serve several rows: INT_OF(op, comm) of any collective. Each
 * is an lvalue, of a list the first; it aborts where the row has no such name. Where the kind is known:
 * op->matmul.bias. */
#define RESULT_OF(op, name) ((op)->out[op_place((op)->kind, PART_RESULT, #name)])
#define OPERAND_OF(op, name) ((op)->in[SLOT_OF(op, name)])
#define SLOT_OF(op, name) op_place((op)->kind, PART_OPERAND, #name)
#define INT_OF(op, name) ((op)->i[op_place((op)->kind, PART_INT, #name)])
#define FLOAT_OF(op, name) ((op)->f[op_place((op)->kind, PART_FLOAT, #name)])
typedef enum { PART_RESULT, PART_OPERAND, PART_INT, PART_FLOAT } OpPart;
int op_place(OpKind k, OpPart part, const char *name); /* aborts where the row has no such name */
int op_find(OpKind k, OpPart part, const char *name);  /* likewise; -1: it has none */
int op_slot_count(const Slot *slots);                  /* a list counts as many as it may have */
/* The slot that number k of op->in (op->out) is; index: in its list, 0 where it is none. NULL: beyond the last. */
const Slot *op_slot_at(const Slot *slots, int k, int *index);
unsigned op_slot_flags(const Op *op, int operand); /* of op->in[operand] */
static inline bool op_updates(const Op *op, int operand) {
    return op_slot_flags(op, operand) & UPDATED;
}
bool op_updates_any(const Op *op);
int64_t op_index_limit(const Op *op, int operand); /* exclusive upper bound of its elements; 0: it holds no indices */
/* Of an op with one result, or its first: the one that gradients and fusion are about. */
static inline Value *op_result(const Op *op) {
    return *op->out;
}
static inline Value *op_operand(const Op *op) { /* of an op that takes one, or its first */
    return *op->in;
}
bool op_lends(const Op *op, int operand); /* it may lend its bytes to the first result */
/* It becomes an op of kind k: results and operands that both rows name stay, the others are absent, attributes are 0.
 */
void op_turn(Op *op, OpKind k);
void op_set(Op *op, int operand, Value *v);           /* op_set(op, SLOT(matmul, bias), v): keeps op->nin */
void op_set_result(Op *op, Value **result, Value *v); /* (op, &op->matmul.aux, v): keeps op->nout, sets v->def */
bool op_changes_nothing(const Op *op);                /* a cast to the dtype that its operand has */
bool op_needs_copy(const Op *op);                     /* a reshape of what lies in no way that a view could show */
OpKind op_by_name(const char *name);                  /* N_OPS when unknown */
static inline OpKind op_timed_as(OpKind k) {
    return op_info[k].timed_as ? op_info[k].timed_as : k;
}

#endif
