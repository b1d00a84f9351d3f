/* What the files of the shard pass share: units' parts in a program, programs in the making, ops of this pass.
 * Relies on: edit.h, lowering.h.
 * Relied on by: shard.c, shard_*.c alone. */
#ifndef SHARDC_SHARD_H
#define SHARDC_SHARD_H

#include "../../ir/build.h"
#include "../../ir/mesh.h"
#include "../../ir/training.h"
#include "../edit.h"
#include "../lowering.h"

enum { SLOT_LOSS = 0, SLOT_GRAD_NORM = 1 }; /* of S_METRICS */

typedef enum { ALONE, FIRST, MIDDLE, LAST } Role; /* of a program within the step; eval and sample are alone */

typedef struct {       /* of one unit in one program */
    Value *full[2][2]; /* [trainable, frozen][forward, backward]: what operands are views of */
    Value *piece[2];   /* what reshard_after_forward = n keeps of them after the forward */
    int last_use;      /* position of the last op that reads a parameter */
    int last_forward;  /* likewise, in the forward; -1: none does */
    int turn;          /* gather.c: the turn of its last use, ... */
    Phase phase;       /* ... the phase of that, ... */
    int regathers;     /* ... and how often it was gathered once more within the backward */
    int first_grad, last_grad;
    Value *flat_grad;              /* what the backward writes (of a sparse table: would); NULL: no gradients here */
    bool reduced;                  /* an exchange has been made of the gradients: what follows waits for it */
    Value *shard_grad, *kept_grad; /* reduced; as the optimizer finds it, which may be in host memory */
} Use;

typedef struct { /* one program in the making */
    Graph *g;
    Program *p;
    Role role;
    bool keeping;        /* a microbatch: units may stay gathered for the next one */
    int turn;            /* gather.c: counts runs of uses of one unit, ... */
    const Unit *turn_of; /* ... which is the last unit used */
    Edit *edit;
    Use *uses; /* by Unit.id */
    Groups *groups;
} Making;

/* Elements of a rank's piece of the unit's trainable flat buffer. */
static inline int64_t shard_slice(const Unit *u) {
    return u->numel / u->shard->size;
}

/* What ops of the unit's flat buffers are told of the axis that its experts are spread over: its number + 1, or 0. */
static inline int64_t shard_expert(const Unit *u) {
    return u->expert ? u->expert->id + 1 : 0;
}

/* Trained: the loss reaches it. */
static inline bool shard_trainable(const Param *p) {
    return p->reached && p->requires_grad && !p->is_buffer;
}

/* Of a kernel behind the unit's gradients. One that waits for an exchange must not hold up the backward beside it. */
static inline Purpose shard_gradient_purpose(const Use *use) {
    return use->reduced ? TO_TAKE_GRADIENT : TO_COMPUTE;
}

/* ── ops of this pass ────────────────────────────────────────────────────────────────────────────────────────────── */
Op *shard_unit_op(Graph *g, OpKind k, Unit *u, const char *id, Phase phase, Purpose purpose, const OpParts *parts);
/* UNIT_OP(g, zero, u, id, INIT, TO_INITIALIZE, .state = v) */
#define UNIT_OP(g, op, u, id, phase, purpose, ...)                                                                     \
    shard_unit_op(g, OP_##op, u, id, phase, purpose, &(OpParts){.op = {__VA_ARGS__}})
void shard_insert(Graph *g, Program *p, int pos, Op *op);
Value *shard_add_out(Graph *g, Op *op, Dtype d, int64_t n);
Value *shard_out_into(Graph *g, Op *op, State *s); /* a result that is the state's bytes */
Value *shard_piece(Graph *g, Value *of, int64_t at, int64_t n);
/* A collective along an axis. */
Op *shard_collective(Graph *g, OpKind k, Unit *u, const char *id, Phase phase, Purpose purpose, const Axis *axis,
                     Value *x);
/* A fused group of one pointwise op, which has no result yet: member(x) as d. */
Op *shard_fused_one(Making *c, Op *member, Dtype d);
/* Says which pieces lie in `whole`, which is defined by it: puts as many assembles as they need at `pos`, before or
 * behind the op there. */
void shard_assemble(Making *c, Unit *u, const char *id, Phase phase, Purpose purpose, Value *const *pieces, int n,
                    Value *whole, int pos, bool behind);
Op *shard_store_op(Graph *g, Value *from, Value *to, const char *id, Phase phase, Purpose purpose, bool add, int64_t at,
                   Unit *u);

/* An exchange of largest magnitudes: of which unit, at which position, for which event. `id` is that event's; those of
 * the exchange are named after it (amax_ID, ID.amax, max_ID). */
typedef struct {
    Unit *unit;
    const char *id;
    Source src;
    Phase phase;
    Purpose kernel, collective;
    int pos;
    const int64_t *table; /* of amax: ops.def */
    int ntable;
} AmaxExchange;

/* Finds the largest magnitudes of the parameters whose pieces lie in `shard`; it has no result yet. */
Op *shard_amax(Making *c, const AmaxExchange *at, Value *shard);
/* The largest over all ranks of each of this rank's magnitudes. */
Value *shard_exchange(Making *c, const AmaxExchange *at, Value *own);
/* Both: of n parameters, fp32 [n, rounded up]. */
Value *shard_largest(Making *c, const AmaxExchange *at, Value *shard, int n);

/* ── layout.c ──────────────────────────────────────────────────────────────────────────────────────────────── */
void shard_lay_out(Graph *g, Unit *u); /* the unit's flat buffers */
void shard_make_states(Graph *g);
State *shard_output(const Graph *g);

/* ── gather.c, gradients.c, optimizer.c: parts of a program in the making ───────────────────────────
 */
void shard_use_params(Making *c);                     /* gathers; operands become views of what was gathered */
void shard_place_gradients(Making *c, Value **grads); /* into the units' flat buffers; grads: by Param.id */
void shard_reduce_gradients(Making *c, Value **grads);
Value *shard_optimizer(Making *c); /* returns the coefficient that clips */

/* ── narrow.c ──────────────────────────────────────────────────────────────────────────────────────────────── */
bool shard_travels_narrow(const Unit *u);              /* its gathers have 8 bits */
int shard_narrow_matrices(const Unit *u, bool frozen); /* that are looked at, of one scale each */
int shard_slot(const Param *p);                        /* which of those p is, or is a part of; -1: none */
/* The update finds the largest magnitudes, and Unit.largest has them. Frozen matrices' are there only where one rank
 * holds the unit. */
bool shard_keeps_largest(const Unit *u, bool frozen);
void shard_find_largest(Making *c, Unit *u, bool frozen); /* those of what gathers read, when that was written anew */
/* The unit's wire and scales, of the master as it is at `pos`. */
void shard_quantize(Making *c, Unit *u, bool frozen, Phase phase, int pos);
const Param *shard_narrow_read(const Value *v);               /* whose bytes, as they are gathered, v is; or NULL */
bool shard_narrow_known(const Op *op);                        /* op makes what states have: it is not needed */
Value *shard_narrow_scale(Graph *g, Value *v);                /* what v is as an operand: of a state, or v */
Op *shard_narrow_turned(Graph *g, const Op *op, Value *full); /* instead of op, which turns a parameter; or NULL */

/* ── assign.c ──────────────────────────────────────────────────────────────────────────────────────────────── */
void shard_begin_assigns(Graph *g, Program *p, bool first); /* in the first program of a step: over what was kept */
void shard_assign(Making *c, Value *coefficient);           /* in the last one: g->assign, behind all else */

/* ── amax.c: nothing where no product is scaled by steps before ─────────────────────────────────────────────── */
void shard_begin_amax(Graph *g, Program *p);           /* in the first program of a step */
void shard_update_amax(Making *c, Value *coefficient); /* in the last one */

/* ── sparse.c ──────────────────────────────────────────────────────────────────────────────────────────────── */
Value *shard_exchange_rows(Making *c, Unit *u, Use *use); /* the rank's slice of a sparse table's gradient */

/* ── scaler.c: nothing where there is no scaler ─────────────────────────────────────────────────────────────────
 */
static inline Value *shard_scaler(const Graph *g) {
    return g->training->scaler ? g->scaler_state->value : NULL;
}
Op *shard_scale_update(Graph *g, Value *coefficient); /* the last event of a step */
Op *shard_scale_undo(Graph *g,
                     const Program *p);         /* the loss over its scale, if the loss function scaled it; else NULL */
void shard_scale_init(Graph *g, Program *init); /* the scale to begin with */

/* ── extension.c ───────────────────────────────────────────────────────────────────────────────────────────── */
int64_t shard_flat_align(const Unit *u, const Param *p); /* where p may begin, where a slice may end */
int64_t shard_slice_align(const Unit *u);
/* The unit's parameters, gathered by the extension of its policy; `shard` lies on the device. */
Value *shard_gather_extended(Making *c, Unit *u, Value *shard, bool frozen, const char *id, Phase phase, State *into,
                             int pos);

/* ── init.c ───────────────────────────────────────────────────────────────────────────────────────────────── */
void shard_init_program(Graph *g);
void shard_start_program(Graph *g);
void shard_swap_program(Graph *g); /* where weights have an average */

#endif
