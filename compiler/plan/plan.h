/* The plan: what a compilation has decided, as plan.json holds it. order, place, sync, verify, simulate, the reports
 * and the emitter meet here. Relies on: ir.h. Relied on by: devices/ and lower/ (their headers), the passes from order
 * on, verify/ (which sees nothing else), report/, emit/. */
#ifndef SHARDC_PLAN_H
#define SHARDC_PLAN_H

#include "../ir/ir.h"

typedef enum { ARENA_DEVICE, ARENA_HOST, N_ARENAS } ArenaKind;

typedef struct {
    int id;
    StorageClass cls;
    const char *name;  /* stable: event id and result ("e131.y"), or the state's name */
    const char *owner; /* unit or module path */
    ArenaKind arena;
    int program;     /* index in Plan.programs; -1: persistent */
    int64_t size;    /* bytes, a multiple of `align` */
    int64_t offset;  /* in its arena; set by place */
    int first, last; /* events of its program in issue order: first writer, last accessor; -1 / n for persistent */
} Storage;

typedef struct {
    int storage;
    int64_t offset, size; /* bytes within the storage: the hull of what is touched */
} Access;

/* Why an event is issued where it is (schedule/order.c). `other` is another event, or -1. */
typedef enum {
    ISSUE_UNKNOWN,  /* the plan was read from JSON */
    ISSUE_PINNED,   /* in the graph's order, after other */
    ISSUE_NEEDED,   /* other, its first user, is issued next */
    ISSUE_READY,    /* once other was, the last event whose data it needs */
    ISSUE_LIMITED,  /* once other was, the last event that a limit, or the graph's order, puts before it */
    ISSUE_SURE,     /* when the gradient that other reduces has surely come */
    ISSUE_BEHIND,   /* behind other, the reduce of a later gradient */
    ISSUE_AT_END,   /* at the end of the backward */
    ISSUE_STREAMED, /* as late as the rest hides it */
} IssueRule;

/* What an event's bytes go over. */
typedef enum { OVER_MEMORY, OVER_HOST, OVER_LINK, OVER_NETWORK, N_ROUTES } Route;

typedef struct {
    const char *id, *op; /* "e131", "matmul+gelu_tanh" */
    Purpose purpose;
    Stream stream; /* the purpose's */
    Phase phase;
    const char *module; /* "layers.3.mlp.up" */
    Source src;
    int unit;    /* index in Plan.units, or -1 */
    int comm;    /* communicator, index in Plan.comms; -1: none */
    bool update; /* an optimizer event: its writes to C_PARAMETERS storages count as the unit's update */
    int *waits;  /* events (same program, other streams) that must be finished; set by sync */
    int nwaits;
    Access *reads, *writes;
    int nreads, nwrites;
    double flops, bytes;           /* bytes: memory traffic; for collectives and copies, on the wire or the bus */
    double peak_flops, peak_bytes; /* what the device does at most, a second: of a product or attention at its
                                      operands' dtype; over its route. 0: not known */
    Route over;
    double least_us;              /* takes that long on any device */
    double start_us, duration_us; /* set by simulate */
    IssueRule issue_rule;
    int issue_other;
    const Op *op_ir; /* NULL in a plan that was read from JSON */
} Event;

typedef struct {
    const char *name; /* micro, eval, ... */
    Event *events;    /* in issue order: the order of the emitted text, the one collective order */
    int n;
    double step_us, exposed_us; /* set by simulate */
    int64_t peak[N_ARENAS];     /* persistent + transients, bytes */
    int64_t bound[N_ARENAS];    /* lower bound on it */
    int peak_event;             /* where the device arena's live bytes are largest */
    const Program *ir;
} PlanProgram;

bool program_trains(const PlanProgram *p); /* a part of the step: micro, micro_first, micro_last */

typedef struct {
    const char *path;
    int id;
    const Axis *shard, *replicate, *expert; /* expert: each of its ranks has other experts; NULL: none */
    int64_t numel;
    Dtype dtype, wire, grad_dtype, reduce;
    int nparams;
    int master_storage;
} PlanUnit;

typedef struct {
    const char *name;
    double bytes, tolerance;
    const char *source;
} LibraryLine; /* outside the arena */

/* A kernel of a training program whose time no measurement of its variant tells (device_event_basis). */
typedef struct {
    const char *op, *variant, *as; /* as: the variant whose measurements tell; "": flops and bytes do */
    double us;                     /* of a step, all its events together */
    int events;
} Estimate;

/* What a model declares and no program uses, by path. */
typedef enum { UNREACHED_PARAMS, UNREAD_INPUTS, UNCALLED_MODULES, N_UNUSED } Unused;
typedef VEC(const char *) Paths;

typedef struct {
    Arena *arena;
    const char *model, *target, *device;
    const char *arch; /* CUDA target: "sm_90", what its kernels are compiled for */
    int world, nodes;
    int threads;                 /* CPU target: threads a rank, which workspaces are sized for; 0: not known */
    struct OptionValue *options; /* training.h */
    int noptions;
    struct PolicyFile *policies; /* training.h */
    int npolicies;
    PlanProgram *programs;
    int nprograms;
    Storage *storages;
    int nstorages;   /* index = id */
    int *storage_of; /* by Value.id, of what owns bytes: index in storages, -1: none; set by order */
    PlanUnit *units;
    int nunits;
    const Axis **axes;
    int naxes;
    Comm *comms;
    int ncomms;
    int64_t arena_bytes[N_ARENAS]; /* exact; what the binary allocates */
    int64_t bound_bytes[N_ARENAS];
    LibraryLine *library;
    int nlibrary;
    double host_up, host_down; /* B/s of a rank's copies to host memory and back while all ranks of its machine copy; 0:
                                  not known, or not of use */
    double device_usable;      /* bytes of device memory for a process; 0 unknown */
    double tokens_per_step, samples_per_step; /* of all ranks in one microbatch; tokens 0: the inputs are none */
    int microbatches;                         /* of a step, as the model says: accumulate; 0: not known */
    double model_flops,
        model_flops_full; /* of one rank's micro program, causal attention counted by half and in full */
    double peak_flops;    /* of the device's data sheet at the dtype that does most arithmetic */
    Dtype peak_dtype;
    const char *time_source; /* where times come from: "measured kernels"; NULL: not known */
    double time_off;         /* a step may be off by this share of it; 0: not known */
    Estimate *estimates;     /* the longest first */
    int nestimates;
    const char *fp8;       /* products in fp8: how many, where their times come from, the peak; NULL: there are none */
    const char *attention; /* CUDA: the kernels that compute it, "cuDNN (64 events)"; NULL: there is none */
    int document_length;   /* tokens that documents in attention are assumed to have; 0: no attention has documents */
    bool whole_documents;  /* it is that of a row, since nobody said how long they are */
    Paths unused[N_UNUSED];
    const Graph *graph; /* NULL in a plan read from JSON, as storage_of is */
} Plan;

/* Where v's bytes lie: index in Plan.storages, -1: nowhere. */
static inline int plan_storage(const Plan *p, const Value *v) {
    return p->storage_of[value_root(v)->id];
}

static inline const char *plan_event_id(const PlanProgram *g, int e) { /* NULL: there is no such event */
    return e >= 0 && e < g->n ? g->events[e].id : NULL;
}

/* Succession of programs that a binary may run: verify proves each, the runtime follows it. */
typedef struct {
    const char *from, *to; /* "" is the start of the process */
    int accumulating;      /* 1: only in builds that have micro_first, 0: only in those that have not, -1: in both */
} Succession;
extern const Succession successions[];
extern const int nsuccessions;

#endif
