/* narrow: parameters that products in 8 bits alone read become a part of their unit, which is gathered in 8 bits: the
 * bits of a gather in the wire's dtype that is quantized behind it, of half as many bytes. Says which parameters are
 * looked at. Relies on: units, quantize. Relied on by: shard (Unit.wire, Param.looked_at). */
#include "../ir/policy.h"
#include "lower.h"
#include "lowering.h"

/* Whose matrices may be a part of their own: no memory policy is asked, since parts change the order in which squares
 * of gradients are summed. Scales of blocks are not of whole parameters; an extension has wires of its own. */
static bool may_split(const Unit *u) {
    const UnitPolicy *p = u->policy;
    bool scaled = (p->matmul == MATMUL_FP8 || p->matmul_expert == MATMUL_FP8) && p->recipe != RECIPE_BLOCK;
    return scaled && u->shard->size > 1 && !p->all_gather && !u->expert && !u->sparse && !u->ignored;
}

/* State on the host stays wide: its wire is made where the update is. */
static bool travels(const Unit *u) {
    return !u->policy->offload_params && !u->policy->offload_optimizer;
}

static const Value *whole(const Param *p) {
    return p->fused ? p->fused->value : p->value;
}

/* p, and what is joined to it; flags: by Param.id. */
static void flag(const Param *p, bool *flags) {
    if (!p->fused) flags[p->id] = true;
    for (int k = 0; p->fused && k < p->fused->n; k++) flags[p->fused->part[k]->id] = true;
}

/* op quantizes all of a matrix by a scale of all of it: no rows are left out, and no function is applied first. */
static bool takes_whole(const Op *op) {
    return (op->kind == OP_quantize && !op->quantize.counts) ||
           (op->kind == OP_absmax && !op->absmax.f && !op->absmax.counts);
}

/* Flags the parameter that op reads as v for anything but 8 bits. Who reads a view reads the parameter. */
static void flag_wide(const Op *op, const Value *v, bool *wide) {
    const Param *p = v ? value_root(v)->param : NULL;
    bool view = op_is(op, T_VIEW) && op->nout == 1;
    if (p && !p->is_buffer && !view && !(takes_whole(op) && v == whole(p))) flag(p, wide);
}

static void flag_program(const Program *p, bool *wide, bool *narrow) {
    for (int i = 0; p && i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin; k++) flag_wide(op, op->in[k], wide);
        const Param *w = op->kind == OP_quantize ? value_root(op->quantize.x)->param : NULL;
        if (w) flag(w, narrow);
        Param *found = op->kind == OP_absmax ? value_root(op->absmax.x)->param : NULL;
        if (found && takes_whole(op) && op->absmax.x == whole(found)) found->looked_at = true;
    }
}

static void split(Graph *g, Unit *u, const bool *narrow) {
    Unit old = *u, *part = u;
    int n = 0;
    for (int i = 0; i < u->params.n; i++) n += narrow[u->params.at[i]->id];
    if (!n) return;
    if (n < u->params.n) {
        part = lower_part_of(g, u, " fp8");
        memset(&u->params, 0, sizeof u->params);
        for (int i = 0; i < old.params.n; i++) {
            Param *p = old.params.at[i];
            p->unit = narrow[p->id] ? part : u;
            push(&p->unit->params, g->arena, p);
        }
    }
    if (travels(part)) part->wire = FP8_E4M3;
}

void lower_narrow(Graph *g) {
    bool *wide = NEW_ARRAY(g->arena, bool, g->params.n), *narrow = NEW_ARRAY(g->arena, bool, g->params.n);
    const Program *read[] = {g->train, g->assign, g->eval, g->sample};
    for (int i = 0; i < 4; i++) flag_program(read[i], wide, narrow);
    for (int i = 0; i < g->params.n; i++) narrow[i] = narrow[i] && !wide[i];
    for (int i = 0, n = g->units.n; i < n; i++)
        if (may_split(g->units.at[i])) split(g, g->units.at[i], narrow);
}
