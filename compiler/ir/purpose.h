/* What an op is for: one row a purpose says on which stream its events run, what class of storage its results take, how
 * the list scheduler treats it, and what explain says of its limit. Whoever makes an op says its purpose.
 * Relies on: runtime/schema (streams). Relied on by: ir.h, order and its parts, cost, the reports. */
#ifndef SHARDC_PURPOSE_H
#define SHARDC_PURPOSE_H

#include "schema/types.h"

#include <stdbool.h>

typedef sc_stream Stream;
enum { N_STREAMS = SC_STREAMS };
const char *stream_name(Stream s); /* "compute" */
/* Moves bytes between ranks or arenas: the compute stream is exposed to it where it stands still for it. */
bool stream_communicates(Stream s);
/* Their events share a network, or a bus, when they run at once. */
bool stream_share(Stream a, Stream b);

typedef enum {
    TO_COMPUTE,             /* kernels of forward, recompute and backward, metrics among them */
    TO_INITIALIZE,          /* first values of states */
    TO_KEEP_PIECE,          /* what a unit resharded over a smaller group keeps of its parameters */
    TO_EXCHANGE,            /* the model's own collectives, and their gradients */
    TO_UNSHARD,             /* all-gathers of parameters, and the kernels before and after one */
    TO_FETCH_SHARD,         /* from host memory: parameters that are gathered or cast then, */
    TO_FETCH_UNIT,          /* parameters of which no other rank has a part, */
    TO_FETCH_ACTIVATION,    /* what the forward put there, */
    TO_FETCH_STATE,         /* state that an op on the device works on, */
    TO_FETCH_STREAMED,      /* and that of an update whose state passes through the device */
    TO_REDUCE,              /* gradients, over ranks */
    TO_SUM_METRICS,         /* metrics and squares of the gradient norm, over ranks */
    TO_TAKE_GRADIENT,       /* kernels on a reduced gradient: sums of ranks or microbatches, divisions */
    TO_EXCHANGE_UPDATE,     /* collectives within the optimizer: whole matrices for those who compute with them */
    TO_UPDATE,              /* kernels of the optimizer */
    TO_UPDATE_STREAMED,     /* an update whose state passes through the device */
    TO_WRITE_BACK_STREAMED, /* that state, to host memory */
    TO_OFFLOAD,             /* copies to host memory besides */
    TO_RUN_ON_HOST,         /* kernels of the CPU on state in host memory */
    N_PURPOSES
} Purpose;

/* ── what the list scheduler reads (schedule/order.h) ────────────────────────────────────────────────────────────── */
typedef enum {
    NO_LIMIT,
    BY_UNITS,   /* `limit` units more than their policy's prefetch */
    BY_BUFFERS, /* `limit` of them */
    BY_BYTES    /* `limit` times the largest */
} Counted;

typedef enum {
    AT_ONCE,          /* as soon as all that it depends on has been issued */
    REDUCE_UNDER_WAY, /* not before a gradient's reduce has been issued, where there are several */
    GRADIENT_HERE,    /* the gradient has surely come, and the reduce of a later one has been issued */
    JUST_IN_TIME,     /* as late as hides it, where there is room: streamed_updates.c */
    IN_ORDER          /* pinned: in the graph's order, and all others go around it */
} Earliest;

typedef enum {
    ITS_TURN, /* when it may be issued and nothing goes before it */
    AT_END    /* it may wait for the end of the backward, to run beside the last reduces */
} Latest;

/* What bytes are for; the lines of `predict`. Persistent states come first, transients after. */
typedef enum {
    C_PARAMETERS,
    C_OPTIMIZER,
    C_GRADIENTS,
    C_BUFFERS,
    C_INPUTS,
    C_RECORD, /* persistent */
    C_UNSHARDED,
    C_UNSHARDED_GRADS,
    C_ACTIVATIONS,
    C_TEMPORARY,
    C_WORKSPACE,
    C_HOST, /* transient */
    N_CLASSES,
    BY_USERS = N_CLASSES /* of a result: who reads it decides */
} StorageClass;
const char *storage_class_name(StorageClass c); /* "activations" */

typedef struct {
    const char *name; /* "unshard", in plan.json */
    Stream stream;
    StorageClass result; /* what its results take on the device; of parameters that are gathered again, C_TEMPORARY */
    int priority;        /* of events that may be issued, that with the smallest goes first */
    Counted counted;
    /* BY_BUFFERS, BY_BYTES: in flight at most. BY_UNITS: how many beyond the unit's prefetch; 1 is the unit in use.
     * Without effect where prefetch is 0. */
    int limit;
    Earliest earliest;
    Latest latest;
    double margin;       /* surely ended after so many times the predicted time; 0: nobody relies on that */
    const char *limited; /* explain: it is issued here because ... the event named then */
} PurposeRow;
extern const PurposeRow purposes[N_PURPOSES];
static inline bool purpose_pinned(Purpose p) {
    return purposes[p].earliest == IN_ORDER;
}

#endif
