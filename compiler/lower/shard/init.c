/* shard's programs init and start: first values of the states, and what training needs beyond a checkpoint.
 * Relies on: shard.h.
 * Relied on by: shard.c. */
#include "shard.h"

static void zero_state(Graph *g, Program *p, State *s) {
    if (!s) return;
    const char *id = arena_printf(g->arena, "zero%d", s->id);
    push(&p->ops, g->arena, UNIT_OP(g, zero, s->unit, id, INIT, TO_INITIALIZE, .state = s->value));
}

static void init_param(Graph *g, Program *p, const Param *param, const State *s, int64_t offset, int64_t slice) {
    const char *id = arena_printf(g->arena, "i%d", param->id);
    Op *op = UNIT_OP(g, init_param, param->unit, id, INIT, TO_INITIALIZE, .state = s->value, .kind = param->init,
                     .key = (int64_t)(param->copies ? param->copies : param)->key, .offset = offset,
                     .numel = param_numel(param), .slice = slice, .axis = param->unit->shard->id,
                     .expert = s->param ? 0 : shard_expert(param->unit), .a = param->init_a, .b = param->init_b);
    op->module = param->owner;
    op->src = param->src;
    push(&p->ops, g->arena, op);
}

void shard_init_program(Graph *g) {
    Program *p = NEW(g->arena, Program);
    p->name = "init";
    zero_state(g, p, g->step_state);
    zero_state(g, p, g->metrics_state);
    shard_scale_init(g, p);
    zero_state(g, p, shard_output(g));
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        zero_state(g, p, u->master);
        zero_state(g, p, u->frozen);
        zero_state(g, p, u->m);
        zero_state(g, p, u->v);
        zero_state(g, p, u->average);
        for (int k = 0; k < u->params.n; k++) {
            const Param *param = u->params.at[k];
            const State *s = shard_trainable(param) ? u->master : u->frozen;
            init_param(g, p, param, s, param->flat_offset, s->numel);
        }
    }
    for (int i = 0; i < g->states.n; i++) {
        State *s = g->states.at[i];
        if (s->cls == S_BUFFER) init_param(g, p, s->param, s, 0, -1);
    }
    push(&g->programs, g->arena, p);
}

/* ── programs that begin empty ───────────────────────────────────────────────────────────────────────────────────── */
static Making begin(Graph *g, const char *name) {
    Program *p = NEW(g->arena, Program);
    p->name = name;
    return (Making){.g = g, .p = p, .edit = edit_begin(g, p)};
}

static void store(Making *c, Unit *u, const State *from, const State *to, const char *what) {
    const char *id = arena_printf(c->g->arena, "%s%d", what, u->id);
    edit_before(c->edit, 0, shard_store_op(c->g, from->value, to->value, id, INIT, TO_INITIALIZE, false, 0, u));
}

/* The wire shard, and largest magnitudes, as the master is. */
static void follow(Making *c, Unit *u, bool frozen, const char *what) {
    const State *from = frozen ? u->frozen : u->master, *wire = frozen ? u->frozen_wire : u->wire_shard;
    if (shard_travels_narrow(u)) {
        if (wire != from) shard_quantize(c, u, frozen, INIT, 0);
        return;
    }
    if (wire != from) store(c, u, from, wire, what);
    if (u->largest[frozen]) shard_find_largest(c, u, frozen);
}

/* What training needs beyond what a checkpoint holds: wire shards, scales, weights' largest magnitudes. */
void shard_start_program(Graph *g) {
    Making c = begin(g, "start");
    for (int i = 0; i < g->units.n; i++) {
        follow(&c, g->units.at[i], false, "w");
        follow(&c, g->units.at[i], true, "wz");
    }
    edit_commit(c.edit);
    push(&g->programs, g->arena, c.p);
}

/* Weights and their average change places; what gathers and products read follows. Twice is as it was, since both are
 * fp32. */
void shard_swap_program(Graph *g) {
    Making c = begin(g, "swap");
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        if (!u->average) continue;
        Op *copy = UNIT_OP(g, copy, u, arena_printf(g->arena, "sk%d", i), INIT, TO_INITIALIZE, .a = u->master->value);
        Value *weights = shard_add_out(g, copy, u->dtype, u->master->numel);
        edit_before(c.edit, 0, copy);
        store(&c, u, u->average, u->master, "sa");
        edit_before(c.edit, 0,
                    shard_store_op(g, weights, u->average->value, arena_printf(g->arena, "sm%d", i), INIT,
                                   TO_INITIALIZE, false, 0, u));
        follow(&c, u, false, "sw");
    }
    edit_commit(c.edit);
    if (c.p->ops.n) push(&g->programs, g->arena, c.p);
}
