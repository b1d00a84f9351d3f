/* shard's gathers by an extension: the user's function turns this rank's slice into wire buffers, these are gathered,
 * and another function makes the unit's parameters of them. All of it runs on the gather stream, so that the
 * computation waits for the result alone. Relies on: shard.h; the extensions pass, which has checked both functions.
 * Relied on by: gather.c, layout.c. */
#include "../../ir/foreign.h"
#include "../../ir/policy.h"
#include "shard.h"

/* ── layout ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { FLAT_ALIGN = SC_MOMENTS8_BLOCK /* so that no two ranks share one */, MOST_ALIGN = 1 << 22 };

static int64_t common_multiple(int64_t a, int64_t b) {
    return a / common_divisor(a, b) * b;
}

int64_t shard_flat_align(const Unit *u, const Param *p) {
    const Extension *x = u->policy->all_gather;
    bool rows = x && x->rows && p->dims > 1;
    return rows ? common_multiple(FLAT_ALIGN, param_numel(p) / p->shape[0]) : FLAT_ALIGN;
}

int64_t shard_slice_align(const Unit *u) {
    int64_t all = FLAT_ALIGN;
    const Param *widest = NULL;
    for (int i = 0; i < u->params.n; i++) {
        const Param *p = u->params.at[i];
        int64_t own = shard_flat_align(u, p), both = common_multiple(all, own);
        if (both > MOST_ALIGN)
            fail(
                u->policy->all_gather->src,
                "align = \"row\": rows of %s (%lld elements) and of %s (%lld) begin together only every %lld elements; "
                "give the module of one of them a nn.fully_shard of its own, or leave align out",
                widest ? widest->path : p->path,
                (long long)(widest ? param_numel(widest) / widest->shape[0] : FLAT_ALIGN), p->path,
                (long long)(param_numel(p) / p->shape[0]), (long long)both);
        if (!widest || own > shard_flat_align(u, widest)) widest = p;
        all = both;
    }
    return all;
}

/* ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Making *c;
    Unit *u;
    Extension *x;
    const char *id; /* of the gather: "g3f" */
    Phase phase;
    int pos;
    int64_t slice;        /* elements of a rank's slice */
    const int64_t *table; /* see ops.def */
    int ntable, nparams;
} Gather;

static Op *gather_op(const Gather *w, OpKind k, const char *before, const OpParts *parts) {
    const char *id = arena_printf(w->c->g->arena, "%s%s", before, w->id);
    Op *op = shard_unit_op(w->c->g, k, w->u, id, w->phase, TO_UNSHARD, parts);
    op->src = w->x->src;
    op->table = w->table;
    op->ntable = w->ntable;
    edit_before(w->c->edit, w->pos, op);
    return op;
}

static Op *foreign_op(const Gather *w, OpKind k, const char *before, const OpParts *parts) {
    Op *op = gather_op(w, k, before, parts);
    op->extension = w->x;
    return op;
}

static Value *gather(const Gather *w, Value *v, const char *suffix) {
    Graph *g = w->c->g;
    if (w->u->shard->size == 1) return v;
    Op *op = shard_collective(g, OP_all_gather, w->u, arena_printf(g->arena, "%s%s", w->id, suffix), w->phase,
                              TO_UNSHARD, w->u->shard, v);
    edit_before(w->c->edit, w->pos, op);
    return shard_add_out(g, op, v->dtype, value_numel(v) * w->u->shard->size);
}

/* Flat offset, numel and number of every parameter, behind what says how the wires are laid out. */
static void make_table(Gather *w, bool frozen) {
    Arena *a = w->c->g->arena;
    VEC(int64_t) t = {0};
    push(&t, a, w->x->nwires);
    for (int k = 0; k < w->x->nwires; k++) {
        push(&t, a, w->x->wire[k].count);
        push(&t, a, w->x->wire[k].every);
    }
    for (int i = 0; i < w->u->params.n; i++) {
        const Param *p = w->u->params.at[i];
        if (shard_trainable(p) == frozen) continue;
        push(&t, a, p->flat_offset);
        push(&t, a, param_numel(p));
        push(&t, a, p->id);
        w->nparams++;
    }
    w->table = t.at;
    w->ntable = t.n;
}

Value *shard_gather_extended(Making *c, Unit *u, Value *shard, bool frozen, const char *id, Phase phase, State *into,
                             int pos) {
    Gather w = {c, u, u->policy->all_gather, id, phase, pos, value_numel(shard), NULL, 0, 0};
    make_table(&w, frozen);
    AmaxExchange at = {u, id, w.x->src, phase, TO_UNSHARD, TO_UNSHARD, pos, w.table, w.ntable};
    Value *amax = w.x->amax ? shard_largest(c, &at, shard, w.nparams) : NULL;
    OpParts before = {.pre_all_gather = {.shard = shard, .amax = amax, .axis = u->shard->id}};
    OpParts after = {.post_all_gather = {.amax = amax, .axis = u->shard->id}};
    Op *pre = foreign_op(&w, OP_pre_all_gather, "pre_", &before);
    for (const Wire *x = w.x->wire; x < w.x->wire + w.x->nwires; x++)
        shard_add_out(c->g, pre, x->dtype, x->count * (x->every ? w.slice / x->every : w.nparams));
    for (int k = 0; k < w.x->nwires; k++)
        after.post_all_gather.wires[k] =
            gather(&w, pre->pre_all_gather.wires[k], k ? arena_printf(c->g->arena, ".%d", k) : "");
    Op *post = foreign_op(&w, OP_post_all_gather, "post_", &after);
    return into ? shard_out_into(c->g, post, into) : shard_add_out(c->g, post, u->wire, w.slice * u->shard->size);
}
