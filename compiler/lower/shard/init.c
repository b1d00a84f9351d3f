/* shard's programs init and start: first values of the states, and what training needs beyond a checkpoint.
 * Relies on: shard.h.
 * Relied on by: shard.c. */
#include "shard.h"

static void append(Graph *g, Program *p, Op *op) {
    push(&p->ops, g->arena, op);
}

static void zero_state(Graph *g, Program *p, State *s) {
    if (!s) return;
    const char *id = arena_printf(g->arena, "zero%d", s->id);
    append(g, p, UNIT_OP(g, zero, s->unit, id, INIT, COMPUTE, .state = s->value));
}

static void init_param(Graph *g, Program *p, const Param *param, Value *shard, int64_t flat_offset,
                       int64_t shard_numel) {
    Op *op =
        UNIT_OP(g, init_param, param->unit, arena_printf(g->arena, "i%d", param->id), INIT, COMPUTE, .state = shard,
                .kind = param->init, .key = (int64_t)param->key, .offset = flat_offset, .numel = param_numel(param),
                .slice = shard_numel, .slices = param->unit->shards, .a = param->init_a, .b = param->init_b);
    op->module = param->owner;
    op->src = param->src;
    append(g, p, op);
}

void init_program(Graph *g) {
    Program *p = NEW(g->arena, Program);
    p->name = "init";
    zero_state(g, p, g->step_state);
    zero_state(g, p, g->metrics_state);
    scale_init(g, p);
    zero_state(g, p, state_of_class(g, S_OUTPUT));
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        zero_state(g, p, u->master);
        zero_state(g, p, u->frozen);
        zero_state(g, p, u->m);
        zero_state(g, p, u->v);
        for (int k = 0; k < u->params.n; k++) {
            bool t = trainable(u->params.at[k]);
            State *s = t ? u->master : u->frozen;
            init_param(g, p, u->params.at[k], s->value, u->params.at[k]->flat_offset, s->numel);
        }
    }
    for (int i = 0; i < g->states.n; i++) {
        State *s = g->states.at[i];
        if (s->cls == S_BUFFER) init_param(g, p, s->param, s->value, 0, -1);
    }
    push(&g->programs, g->arena, p);
}

/* What training needs beyond what a checkpoint holds: the wire shards. */
void start_program(Graph *g) {
    Program *p = NEW(g->arena, Program);
    p->name = "start";
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        const char *trained = arena_printf(g->arena, "w%d", i), *frozen = arena_printf(g->arena, "wz%d", i);
        if (u->wire_shard != u->master)
            append(g, p, store_op(g, u->master->value, u->wire_shard->value, trained, INIT, false, 0, u));
        if (u->frozen_wire != u->frozen)
            append(g, p, store_op(g, u->frozen->value, u->frozen_wire->value, frozen, INIT, false, 0, u));
    }
    push(&g->programs, g->arena, p);
}
