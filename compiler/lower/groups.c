/* Numbers of fused kernels: equal structures have equal numbers, in all programs of the graph.
 * Relies on: lowering.h.
 * Relied on by: fuse.c, dead.c, recompute.c, shard/. */
#include "../ir/ops.h"
#include "lowering.h"

struct Groups {
    Graph *g;
    Map *structures;
    VEC(int) number; /* of each structure, in the map's order */
};

/* Where a member's operand comes from: "i<k>" an operand of the group, "m<k>" the result of a member. */
static void add_reference(Str *s, const Op *op, const Value *v) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] == v) {
            str_addf(s, " i%d", k);
            return;
        }
    for (int b = 0; b < op->nbody; b++)
        if (op_result(op->body[b]) == v) str_addf(s, " m%d", b);
}

/* All that the generated kernel of a group depends on. Sizes and strides reach it at run time; of strides it knows
 * which are 0 or 1. */
static const char *structure(Arena *a, const Op *op) {
    Str s = {.arena = a};
    str_addf(&s, "%d", op_result(*op->body)->dims);
    for (int k = 0; k < op->nin; k++) {
        const Value *v = op->in[k];
        bool whole = value_contiguous(v);
        str_addf(&s, ",%s%d%s", dtype_name(v->dtype), v->dims, whole ? "c" : "");
        for (int d = 0; d < v->dims && !whole; d++)
            str_add(&s, v->stride[d] == 0 ? "b" : v->stride[d] == 1 ? "u" : "s");
    }
    for (int b = 0; b < op->nbody; b++) {
        const Op *m = op->body[b];
        str_addf(&s, "|%d", (int)m->kind);
        for (int k = 0; k < m->nin; k++) add_reference(&s, op, m->in[k]);
        for (int k = 0; k < MAX_INTS; k++)
            if (m->i[k]) str_addf(&s, " %d=%lld", k, (long long)m->i[k]);
        for (int k = 0; k < MAX_FLOATS; k++)
            if (m->f[k] != 0) str_addf(&s, " f%d=%a", k, m->f[k]);
        str_addf(&s, ">%s%s", dtype_name(op_result(m)->dtype), op_result(m)->internal ? "" : "!");
    }
    return s.s;
}

/* -1: none yet. */
static int *number_of(Groups *t, const Op *op) {
    int k = map_index(t->structures, structure(t->g->arena, op));
    if (k == t->number.n) push(&t->number, t->g->arena, -1);
    return &t->number.at[k];
}

static void learn(Groups *t, const Program *p) {
    for (int i = 0; p && i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->group >= 0) *number_of(t, op) = op->group;
    }
}

Groups *groups_new(Graph *g) {
    Groups *t = NEW(g->arena, Groups);
    t->g = g;
    t->structures = map_new(g->arena);
    learn(t, g->train);
    learn(t, g->assign);
    learn(t, g->eval);
    learn(t, g->sample);
    for (int i = 0; i < g->programs.n; i++) learn(t, g->programs.at[i]);
    return t;
}

void groups_set(Groups *t, Op *fused) {
    int *number = number_of(t, fused);
    if (*number < 0) *number = t->g->ngroups++;
    fused->group = *number;
}
