/* remove_dead: drops ops whose results nobody uses, and results of fused groups that nothing outside reads.
 * Relies on: ir.h; fuse's numbering of groups.
 * Relied on by: autodiff (branches towards inputs), fuse, recompute (what clones and originals no longer need). */
#include "lower.h"
#include "lowering.h"

bool *lower_written_states(const Graph *g, const Program *p) {
    bool *written = uses_value_flags(g);
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin; k++)
            if (op->in[k] && op_updates(op, k)) written[value_root(op->in[k])->id] = true;
    }
    return written;
}

bool lower_reads_flagged(const Op *op, const bool *flags) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && flags[value_root(op->in[k])->id] && !op_updates(op, k)) return true;
    return false;
}

/* Is v read? A value that is a piece of a larger one is read where that one is. */
static bool is_read(const Value *v, const bool *live) {
    while (v->base && !live[v->id]) v = v->base;
    return live[v->id] || v->state;
}

static bool is_live(const Op *op, const bool *live) {
    if (op_is(op, T_EFFECT | T_OPTIMIZER) || (op_updates_any(op) && !op_is(op, T_QUANTIZES))) return true;
    for (int k = 0; k < op->nout; k++)
        if (op_is(op, T_VIEW) ? live[op->out[k]->id] : is_read(op->out[k], live)) return true;
    return false;
}

/* An operand of a member: does the group have to be given it? Not what a member makes, and each once. */
static bool is_new_operand(const Op *op, const Value *v) {
    for (int b = 0; b < op->nbody; b++)
        if (op_result(op->body[b]) == v) return false;
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] == v) return false;
    return true;
}

/* Takes out of a fused group what nobody needs. Results that nothing outside reads become internal; of the members
 * those stay whose result leaves the group or is read by a later member that stays. */
static void prune_group(Graph *g, Op *op, bool *live, Groups **groups) {
    int nout = op->nout, nbody = op->nbody, kept = nbody;
    op->nout = 0;
    for (int k = 0; k < nout; k++) {
        Value *v = op->out[k];
        v->internal = !is_read(v, live);
        if (v->internal) continue;
        live[v->id] = true;
        op->out[op->nout++] = v;
    }
    for (int k = op->nout; k < nout; k++) op->out[k] = NULL;
    for (int b = nbody - 1; b >= 0; b--) {
        Op *m = op->body[b];
        if (!live[op_result(m)->id]) continue;
        for (int k = 0; k < m->nin; k++) live[m->in[k]->id] = true;
        op->body[--kept] = m;
    }
    op->body += kept;
    op->nbody -= kept;
    memset(op->in, 0, sizeof op->in);
    op->nin = 0;
    for (int b = 0; b < op->nbody; b++)
        for (int k = 0; k < op->body[b]->nin; k++) {
            Value *v = op->body[b]->in[k];
            if (is_new_operand(op, v)) op->in[op->nin++] = v;
        }
    if (op->group < 0 || (op->nout == nout && op->nbody == nbody)) return;
    for (int b = 0; b < op->nbody; b++)
        if (op_result(op->body[b])->internal) op_result(op->body[b])->def = op->body[b];
    op->group = -1; /* a group that lost something is another kernel */
    if (!*groups) *groups = groups_new(g);
    groups_set(*groups, op);
}

void lower_remove_dead(Graph *g, Program *p) {
    bool *live = uses_value_flags(g);
    Groups *groups = NULL;
    uses_flag_results(g, p, live);
    int kept = p->ops.n;
    for (int i = p->ops.n - 1; i >= 0; i--) {
        Op *op = p->ops.at[i];
        if (!is_live(op, live)) continue;
        if (op->nbody) prune_group(g, op, live, &groups);
        for (int k = 0; k < op->nin; k++)
            if (op->in[k]) live[op->in[k]->id] = live[value_root(op->in[k])->id] = true;
        p->ops.at[--kept] = op;
    }
    p->ops.n -= kept;
    memmove(p->ops.at, p->ops.at + kept, sizeof *p->ops.at * (size_t)p->ops.n);
}
