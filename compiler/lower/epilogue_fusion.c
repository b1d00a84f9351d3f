/* Epilogue fusion: neighbouring ops become one where the table of patterns has a kernel for both, so that a value is
 * rounded and moved once less. It looks at data and program order alone, never at a memory policy: what is combined is
 * part of the program's numerics. Relies on: ir/patterns.c. Relied on by: fuse, recompute (clones fused ops whole).
 */
#include "../ir/patterns.h"
#include "lower.h"
#include "lowering.h"

enum { REACH = 48 }; /* how many ops apart the two may stand */

typedef struct {
    Graph *g;
    Program *p;
    Uses *uses;
    bool *written;
} EpilogueFusion;

static int at(const EpilogueFusion *c, const Op *op) {
    return uses_position(c->uses, op);
}

/* ── may the two become one? ────────────────────────────────────────────────────────────────────────────────────── */
/* `then` may move up to `first`: what it reads is there already, or is a result of first or a view of one. */
static bool may_rise(const EpilogueFusion *c, const Op *first, const Op *then) {
    int to = at(c, first);
    for (int k = 0; k < then->nin; k++) {
        const Value *v = then->in[k], *root = v && v->base ? v->base : v;
        if (!v || root->def == first) continue;
        if ((v->def && at(c, v->def) >= to) || (root->def && at(c, root->def) >= to)) return false;
    }
    return true;
}

/* `first` may move down to `then`: nothing in between reads its results. */
static bool may_sink(const EpilogueFusion *c, const Op *first, const Op *then) {
    for (int k = 0; k < first->nout; k++)
        for (const User *u = uses_users(c->uses, first->out[k]); u; u = u->next)
            if (at(c, u->op) < at(c, then)) return false;
    return true;
}

static bool may_fuse(const EpilogueFusion *c, const Pattern *p, const Op *first, const Op *then) {
    int apart = at(c, then) - at(c, first);
    if (apart <= 0 || (!p->across && (apart > REACH || first->phase != then->phase))) return false;
    if (lower_reads_flagged(first, c->written) || lower_reads_flagged(then, c->written)) return false;
    return p->early ? may_rise(c, first, then) : may_sink(c, first, then);
}

/* ── fusing ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Does one op alone read v's bytes? Where v is a view, that op reads v, and nothing else reads its root. */
static bool read_alone(const EpilogueFusion *c, const Value *v) {
    const Value *root = v->base ? v->base : v;
    bool once = root == v || (uses_count(c->uses, root) == 1 && uses_through_views(c->uses, root) == 1);
    return once && uses_count(c->uses, v) == 1;
}

/* Turns first into both, where the pattern's rule can, and takes `then` out of the list. */
static bool fuse_pair(EpilogueFusion *c, const Pattern *p, Op *first, Op *then, int operand) {
    bool alone = read_alone(c, then->in[operand]);
    uses_remove(c->uses, first);
    uses_remove(c->uses, then);
    bool merged = p->merge(c->g, first, then, operand, alone);
    uses_add(c->uses, first);
    if (!merged) {
        uses_add(c->uses, then);
        return false;
    }
    lower_note_joined(c->g, first, then, first->kind != p->first);
    for (int k = 0; k < first->nout; k++) first->out[k]->def = first;
    int from = at(c, first), to = at(c, then);
    c->p->ops.at[from] = c->p->ops.at[to] = NULL;
    c->p->ops.at[p->early ? from : to] = first;
    uses_place(c->uses, first, p->early ? from : to);
    return true;
}

/* The nearest op before `then` of the pattern's first kind that reads what operand k of `then` is. */
static Op *sibling(const EpilogueFusion *c, const Pattern *p, const Op *then, int k) {
    for (int i = at(c, then) - 1; i >= 0 && i >= at(c, then) - REACH; i--) {
        Op *op = c->p->ops.at[i];
        if (!op || op->kind != p->first) continue;
        for (int j = 0; j < op->nin; j++)
            if (op->in[j] && value_root(op->in[j]) == value_root(then->in[k])) return op;
    }
    return NULL;
}

static void fuse_where(Graph *g, Program *p, bool traced) {
    EpilogueFusion c = {g, p, uses_new(g, p), lower_written_states(g, p)};
    for (const Pattern *x = patterns; x < patterns + npatterns; x++)
        for (int i = 0; x->traced == traced && i < p->ops.n; i++) {
            Op *then = p->ops.at[i];
            bool fused = !then || then->kind != x->then;
            for (int k = 0; !fused && k < then->nin; k++) {
                if (!then->in[k]) continue;
                Op *first = x->chain ? value_root(then->in[k])->def : sibling(&c, x, then, k);
                if (!first || first == then || first->kind != x->first || !may_fuse(&c, x, first, then)) continue;
                fused = fuse_pair(&c, x, first, then, k);
            }
        }
    int kept = 0;
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]) p->ops.at[kept++] = p->ops.at[i];
    p->ops.n = kept;
    uses_free(c.uses);
}

void lower_epilogue_fusion_traced(Graph *g, Program *p) {
    fuse_where(g, p, true);
}

void lower_epilogue_fusion(Graph *g, Program *p) {
    fuse_where(g, p, false);
}
