/* combine: neighbouring ops become one where the table of patterns has a kernel for both, so that a value is rounded
 * and moved once less. It looks at data and program order alone, never at a memory policy: what is combined is part of
 * the program's numerics. Relies on: ir/patterns.c. Relied on by: fuse, recompute (clones combined ops whole). */
#include "../ir/patterns.h"
#include "lowering.h"
#include "passes.h"

enum { REACH = 48 }; /* ops between the two */

typedef struct {
    Graph *g;
    Program *p;
    int *uses;    /* by Value.id: operands that are this value or a view of it, results count as one */
    bool *result; /* by Value.id */
    bool *written;
} Ctx;

static int position(const Op *op) {
    return (int)(intptr_t)op->scratch - 1;
}
static void stand(Ctx *c, Op *op, int at) {
    op->scratch = (void *)(intptr_t)(at + 1);
    c->p->ops.at[at] = op;
}

static void count(Ctx *c, const Op *op, int by) {
    for (int k = 0; k < op->nin; k++) {
        if (!op->in[k]) continue;
        c->uses[op->in[k]->id] += by;
        Value *root = value_root(op->in[k]);
        if (root != op->in[k] && !op_is(op, T_VIEW)) c->uses[root->id] += by;
    }
}

static void begin(Ctx *c) {
    c->uses = NEW_ARRAY(c->g->arena, int, c->g->values.n);
    c->result = value_flags(c->g);
    c->written = written_states(c->g, c->p);
    flag_results(c->g, c->p, c->result);
    for (int i = 0; i < c->p->ops.n; i++) {
        count(c, c->p->ops.at[i], 1);
        stand(c, c->p->ops.at[i], i);
    }
    for (int i = 0; i < c->g->values.n; i++) c->uses[i] += c->result[i];
}

/* ── may the two meet? ──────────────────────────────────────────────────────────────────────────────────────────── */
static bool available(const Value *v, int at) {
    const Value *root = v->base ? v->base : v;
    return (!v->def || position(v->def) < at) && (!root->def || position(root->def) < at);
}

/* `then` moves up to `first`: all that it reads besides first's results is there already. Views of those follow. */
static bool may_rise(const Op *first, const Op *then) {
    for (int k = 0; k < then->nin; k++) {
        const Value *v = then->in[k], *root = v && v->base ? v->base : v;
        if (v && root->def != first && !available(v, position(first))) return false;
    }
    return true;
}

/* `first` moves down to `then`: nothing in between reads its results. */
static bool may_sink(const Ctx *c, const Op *first, const Op *then) {
    for (int i = position(first) + 1; i < position(then); i++) {
        const Op *op = c->p->ops.at[i];
        for (int k = 0; op && k < op->nin; k++)
            if (op->in[k] && (op->in[k]->def == first || value_root(op->in[k])->def == first)) return false;
    }
    return true;
}

static bool may_meet(const Ctx *c, const Pattern *p, const Op *first, const Op *then) {
    int apart = position(then) - position(first);
    if (apart <= 0 || (!p->across && (apart > REACH || first->phase != then->phase))) return false;
    if (reads_flagged(first, c->written) || reads_flagged(then, c->written)) return false;
    return p->early ? may_rise(first, then) : may_sink(c, first, then);
}

/* ── meeting ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool meet(Ctx *c, const Pattern *p, Op *first, Op *then, int operand) {
    const Value *v = then->in[operand], *root = value_root(then->in[operand]);
    bool alone = c->uses[v->id] == 1 && (root == v || c->uses[root->id] == 2); /* the view and, through it, `then` */
    if (!may_meet(c, p, first, then)) return false;
    count(c, first, -1);
    count(c, then, -1);
    bool merged = p->merge(c->g, first, then, operand, alone);
    count(c, first, 1);
    if (!merged) {
        count(c, then, 1);
        return false;
    }
    for (int k = 0; k < first->nout; k++) first->out[k]->def = first;
    int from = position(first), to = position(then);
    c->p->ops.at[p->early ? to : from] = NULL;
    stand(c, first, p->early ? from : to);
    return true;
}

/* The op that reads the same value as operand k of `then`, before it. */
static Op *sibling(const Ctx *c, const Pattern *p, const Op *then, int k) {
    for (int i = position(then) - 1; i >= 0 && i >= position(then) - REACH; i--) {
        Op *op = c->p->ops.at[i];
        if (!op || op->kind != p->first) continue;
        for (int j = 0; j < op->nin; j++)
            if (op->in[j] && value_root(op->in[j]) == value_root(then->in[k])) return op;
    }
    return NULL;
}

static void try_all(Ctx *c, const Pattern *p, Op *then) {
    for (int k = 0; k < then->nin; k++) {
        if (!then->in[k]) continue;
        Op *first = p->chain ? value_root(then->in[k])->def : sibling(c, p, then, k);
        if (first && first != then && first->kind == p->first && meet(c, p, first, then, k)) return;
    }
}

static void combine_where(Graph *g, Program *p, bool traced) {
    Ctx c = {.g = g, .p = p};
    begin(&c);
    for (int t = 0; t < npatterns; t++) {
        if (patterns[t].traced != traced) continue;
        for (int i = 0; i < p->ops.n; i++)
            if (p->ops.at[i] && p->ops.at[i]->kind == patterns[t].then) try_all(&c, &patterns[t], p->ops.at[i]);
    }
    int kept = 0;
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]) p->ops.at[kept++] = p->ops.at[i];
    p->ops.n = kept;
}

void combine_traced(Graph *g, Program *p) {
    combine_where(g, p, true);
}

void combine(Graph *g, Program *p) {
    combine_where(g, p, false);
}
