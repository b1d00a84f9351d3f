/* What precision, autodiff, fuse, recompute and remove_dead share.
 * Relies on: ir.h.
 * Relied on by: these passes alone. */
#ifndef SHARDC_LOWERING_H
#define SHARDC_LOWERING_H

#include "../ir/uses.h"

/* The unit module that m belongs to: the nearest one at or above it, or NULL. */
Module *lower_unit_module(Module *m);

/* One more part of u's unit, of u's policy, dtypes and mesh, without parameters; named as u and `suffix`. */
Unit *lower_part_of(Graph *g, Unit *u, const char *suffix);

/* Puts op into the checkpointed call that `like` belongs to; like NULL: into none. */
static inline void lower_join_region(Op *op, const Op *like) {
    op->region = like ? like->region : 0;
    op->checkpoint = like ? like->checkpoint : NULL;
}

/* For people: op does what `then` did, too. turned: by a kernel that is named otherwise than either. */
static inline void lower_note_joined(const Graph *g, Op *op, const Op *then, bool turned) {
    Joined *joined = NEW(g->arena, Joined);
    *joined =
        (Joined){.id = then->id, .kind = then->kind, .next = op->joined, .module = then->module, .turned = turned};
    op->joined = joined;
}

/* Roots of states and buffers that some op of p writes: a read of one is tied to its place in the order. */
bool *lower_written_states(const Graph *g, const Program *p);
bool lower_reads_flagged(const Op *op, const bool *flags); /* through an operand that op itself does not update */

/* Numbers of fused kernels: equal structures have equal numbers, in all programs of the graph. */
typedef struct Groups Groups;
Groups *groups_new(Graph *g);
void groups_set(Groups *t, Op *fused);

#endif
