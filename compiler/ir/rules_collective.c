/* Rules of collectives: shapes, gradients, bytes. Gradients are those of torch.distributed.nn.functional: every rank
 * goes on to a loss of its own, so the gradients of all ranks are summed. Relies on: rules.h. Relied on by: ops.def. */
#include "rules.h"

enum { SCATTERED = 8 }; /* bytes: NCCL scatters pieces of a multiple of so many (runtime/cuda/collective.c) */

/* ── shapes ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The first dimension `times` as long, over `over`. */
static void infer_rows(Graph *g, Op *op, int64_t times, int64_t over) {
    const Value *x = OPERAND_OF(op, x);
    int64_t shape[MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    if (x->dims < 1 || shape[0] % over)
        bug(op->src, "x %s: its first dimension has no %lld equal pieces", value_str(g->arena, x), (long long)over);
    shape[0] = shape[0] / over * times;
    rule_out(g, op, &RESULT_OF(op, y), x->dtype, x->dims, shape);
}

void infer_all_gather(Graph *g, Op *op) {
    infer_rows(g, op, op->all_gather.ranks, 1);
}

void infer_reduce_scatter(Graph *g, Op *op) {
    infer_rows(g, op, 1, op->reduce_scatter.ranks);
    int64_t bytes = value_bytes(op->reduce_scatter.y);
    if (bytes % SCATTERED)
        rule_fail(g, op,
                  "x %s: pieces have %lld bytes, and NCCL scatters pieces of a multiple of %d; pad x, or use "
                  "nn.all_reduce, whose result has all pieces",
                  value_str(g->arena, op->reduce_scatter.x), (long long)bytes, SCATTERED);
}

void infer_all_to_all(Graph *g, Op *op) {
    infer_rows(g, op, op->all_to_all.ranks, op->all_to_all.ranks);
}

void infer_sum_ranks(Graph *g, Op *op) {
    rule_out_like(g, op, &op->sum_ranks.y, op->sum_ranks.x);
}

void infer_reshard(Graph *g, Op *op) {
    infer_rows(g, op, 1, g->axes.at[op->reshard.axis]->size);
}

/* ── gradients ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Where NCCL would not scatter the pieces, this rank takes its part of the whole sum. */
void grad_all_gather(Builder *b, Op *op, OpParts *d) {
    Value *g = d->all_gather.y;
    int64_t comm = op->all_gather.comm, ranks = op->all_gather.ranks;
    if (value_bytes(op->all_gather.x) % SCATTERED == 0) {
        d->all_gather.x = BUILD(b, reduce_scatter, .x = g, .comm = comm, .ranks = ranks)->reduce_scatter.y;
        return;
    }
    Value *sum = BUILD(b, sum_ranks, .x = g, .comm = comm, .ranks = ranks)->sum_ranks.y;
    d->all_gather.x = BUILD(b, reshard, .x = sum, .axis = b->g->comms.at[comm].axis->id)->reshard.y;
}

void grad_reduce_scatter(Builder *b, Op *op, OpParts *d) {
    d->reduce_scatter.x = BUILD(b, all_gather, .x = d->reduce_scatter.y, .comm = op->reduce_scatter.comm,
                                .ranks = op->reduce_scatter.ranks)
                              ->all_gather.y;
}

void grad_all_to_all(Builder *b, Op *op, OpParts *d) {
    d->all_to_all.x =
        BUILD(b, all_to_all, .x = d->all_to_all.y, .comm = op->all_to_all.comm, .ranks = op->all_to_all.ranks)
            ->all_to_all.y;
}

void grad_sum_ranks(Builder *b, Op *op, OpParts *d) {
    d->sum_ranks.x =
        BUILD(b, sum_ranks, .x = d->sum_ranks.y, .comm = op->sum_ranks.comm, .ranks = op->sum_ranks.ranks)->sum_ranks.y;
}

/* ── costs ───────────────────────────────────────────────────────────────────────────────────────────────────────── */

/* Bytes that one rank sends: a ring passes on all but its own share, an all-reduce twice. */
static Cost passed_on(const Op *op, const Value *whole, int times) {
    double ranks = (double)INT_OF(op, ranks);
    return (Cost){.bytes = times * (double)value_bytes(whole) * (ranks - 1) / ranks};
}

Cost cost_collective(const Op *op) {
    const Value *x = op_operand(op), *y = op_result(op);
    return passed_on(op, value_bytes(x) > value_bytes(y) ? x : y, 1);
}

Cost cost_all_reduce(const Op *op) {
    return passed_on(op, op_operand(op), 2);
}
