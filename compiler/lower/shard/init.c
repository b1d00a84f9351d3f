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

/* What training needs beyond what a checkpoint holds: the wire shards. */
void shard_start_program(Graph *g) {
    Program *p = NEW(g->arena, Program);
    p->name = "start";
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        const char *trained = arena_printf(g->arena, "w%d", i), *frozen = arena_printf(g->arena, "wz%d", i);
        if (u->wire_shard != u->master)
            push(&p->ops, g->arena,
                 shard_store_op(g, u->master->value, u->wire_shard->value, trained, INIT, TO_INITIALIZE, false, 0, u));
        if (u->frozen_wire != u->frozen)
            push(&p->ops, g->arena,
                 shard_store_op(g, u->frozen->value, u->frozen_wire->value, frozen, INIT, TO_INITIALIZE, false, 0, u));
    }
    push(&g->programs, g->arena, p);
}

/* Weights and their average change places; what gathers read follows. Twice is as it was, since both are fp32. */
void shard_swap_program(Graph *g) {
    Program *p = NEW(g->arena, Program);
    p->name = "swap";
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        if (!u->average) continue;
        const char *kept = arena_printf(g->arena, "sk%d", i), *in = arena_printf(g->arena, "sa%d", i),
                   *out = arena_printf(g->arena, "sm%d", i), *wire = arena_printf(g->arena, "sw%d", i);
        Op *copy = UNIT_OP(g, copy, u, kept, INIT, TO_INITIALIZE, .a = u->master->value);
        Value *weights = shard_add_out(g, copy, u->dtype, u->master->numel);
        push(&p->ops, g->arena, copy);
        push(&p->ops, g->arena,
             shard_store_op(g, u->average->value, u->master->value, in, INIT, TO_INITIALIZE, false, 0, u));
        push(&p->ops, g->arena, shard_store_op(g, weights, u->average->value, out, INIT, TO_INITIALIZE, false, 0, u));
        if (u->wire_shard != u->master)
            push(&p->ops, g->arena,
                 shard_store_op(g, u->master->value, u->wire_shard->value, wire, INIT, TO_INITIALIZE, false, 0, u));
    }
    if (p->ops.n) push(&g->programs, g->arena, p);
}
