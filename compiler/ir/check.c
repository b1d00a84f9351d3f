/* The invariants of the IR, asserted after the last pass, in tests after every one: a pass that breaks one is named.
 * Relies on: ir.h, the infer rules (run again on copies).
 * Relied on by: pipeline.c, the unit tests. */
#include "ir.h"
#include "ops.h"

#include <stdlib.h>

typedef struct {
    const Graph *g;
    const char *after;
    const Program *p;
    Graph scratch; /* takes the values of rules that are run again, which ask it for axes and lists of numbers */
    int *defined;  /* by value id: position of the program's op that defines it, + 1 */
    Map *ids;
} Check;

_Noreturn static void broken(const Check *c, const Op *op, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
_Noreturn static void broken(const Check *c, const Op *op, const char *fmt, ...) {
    fprintf(stderr, "shardc: internal error: after %s, program %s, ", c->after, c->p ? c->p->name : "(none)");
    if (op)
        fprintf(stderr, "%s %s (%s:%d): ", op->id ? op->id : "?", op_info[op->kind].name,
                op->src.file ? op->src.file : "?", op->src.line);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

static void check_value(const Check *c, const Op *op, const Value *v) {
    if (v->dims < 0 || v->dims > MAX_DIMS) broken(c, op, "value %d has %d dims", v->id, v->dims);
    if (v->id < 0 || v->id >= c->g->values.n || c->g->values.at[v->id] != v)
        broken(c, op, "value %d is not the graph's", v->id);
    int64_t last = v->offset;
    for (int i = 0; i < v->dims; i++) {
        if (v->shape[i] < 1 || v->stride[i] < 0)
            broken(c, op, "value %d: dim %d has size %lld, stride %lld", v->id, i, (long long)v->shape[i],
                   (long long)v->stride[i]);
        last += (v->shape[i] - 1) * v->stride[i];
    }
    if (!v->base) {
        if (v->offset) broken(c, op, "value %d owns its bytes and has an offset", v->id);
        return;
    }
    if (v->base->base) broken(c, op, "value %d: its base %d is a view itself", v->id, v->base->id);
    if (v->offset < 0 || (last + 1) * dtype_size(v->dtype) > value_bytes(v->base))
        broken(c, op, "value %d %s reaches to element %lld of its base %d %s", v->id, value_str(c->scratch.arena, v),
               (long long)last, v->base->id, value_str(c->scratch.arena, v->base));
}

/* What an operand's bytes come from must have run: itself, and for a view its root (but an assembled root is defined by
 * what lies in it). Parameters, inputs and states are there from the start. */
static void check_operand(const Check *c, const Op *op, const Value *v, int position) {
    const Value *root = v->base ? v->base : v;
    const Value *need[2] = {v, root};
    for (int i = 0; i < 2; i++) {
        const Value *n = need[i];
        if (!n->def || c->defined[n->id]) continue;
        if (i && op_is(n->def, T_ASSEMBLE)) continue;
        broken(c, op, "at position %d uses value %d %s before %s %s defines it", position, n->id,
               value_str(c->scratch.arena, n), op_info[n->def->kind].name, n->def->id);
    }
}

/* The rule, run again on a copy without results, must find what stands there. */
static void check_inferred(Check *c, const Op *op) {
    Op copy = *op;
    memset(copy.out, 0, sizeof copy.out);
    copy.nout = 0;
    c->scratch.values.n = 0;
    op_info[op->kind].infer(&c->scratch, &copy);
    if (copy.nout != op->nout) broken(c, op, "has %d results, its rule gives %d", op->nout, copy.nout);
    for (int k = 0; k < op->nout; k++) {
        const Value *is = op->out[k], *should = copy.out[k];
        if (is->dtype != should->dtype || !value_same_shape(is, should))
            broken(c, op, "result %d is %s, its rule gives %s", k, value_str(c->scratch.arena, is),
                   value_str(c->scratch.arena, should));
        if (!op_is(op, T_VIEW)) continue;
        if (is->base != should->base || is->offset != should->offset ||
            memcmp(is->stride, should->stride, sizeof(int64_t) * (size_t)is->dims))
            broken(c, op, "result %d is a view that its operand does not give (base %d at %lld, should be %d at %lld)",
                   k, is->base ? is->base->id : -1, (long long)is->offset, should->base->id, (long long)should->offset);
    }
}

static bool among(const Value *v, Value *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

/* Members see the group's operands and each other's results, in order; the group's results are members'. */
static void check_body(const Check *c, const Op *op) {
    for (int i = 0; i < op->nbody; i++) {
        const Op *m = op->body[i];
        if (!op_is(m, T_POINTWISE)) broken(c, op, "member %s is not pointwise", op_info[m->kind].name);
        for (int j = 0; j < m->nin; j++) {
            bool known = among(m->in[j], op->in, op->nin);
            for (int before = 0; before < i && !known; before++) known = m->in[j] == op_result(op->body[before]);
            if (!known)
                broken(c, op, "member %d (%s) uses value %d from nowhere", i, op_info[m->kind].name, m->in[j]->id);
        }
    }
    for (int k = 0; k < op->nout; k++) {
        bool found = false;
        for (int i = 0; i < op->nbody && !found; i++) found = op_result(op->body[i]) == op->out[k];
        if (!found) broken(c, op, "result %d is no member's", k);
    }
}

static void check_op(Check *c, const Op *op, int position) {
    const OpInfo *info = &op_info[op->kind];
    if (!op->id) broken(c, op, "has no id");
    map_put(c->ids, op->id, c);
    if (map_len(c->ids) == position) broken(c, op, "its id stands twice in the program");
    if (!op->module) broken(c, op, "has no module");
    if (op->nin > op_slot_count(info->operands)) broken(c, op, "has %d operands", op->nin);
    if (op->nout > op_slot_count(info->results)) broken(c, op, "has %d results", op->nout);
    for (int i = 0; i < op_slot_count(info->operands); i++) {
        const Slot *s = op_slot_at(info->operands, i, NULL);
        if (!op->in[i] && !(s->flags & OPTIONAL)) broken(c, op, "lacks its operand %s", s->name);
        if (op->in[i] && i >= op->nin) broken(c, op, "counts %d operands, and %s is there too", op->nin, s->name);
        if (!op->in[i]) continue;
        check_value(c, op, op->in[i]);
        check_operand(c, op, op->in[i], position);
    }
    for (int k = 0; k < op->nout; k++) {
        const Value *v = op->out[k];
        if (!v) broken(c, op, "lacks its result %s", op_slot_at(info->results, k, NULL)->name);
        check_value(c, op, v);
        if (c->defined[v->id]) broken(c, op, "result %d, value %d, is defined twice", k, v->id);
        if (!op->body && v->def != op)
            broken(c, op, "result %d, value %d, does not name it as its definition", k, v->id);
        c->defined[v->id] = position + 1;
    }
    if (op->body) check_body(c, op);
    if (info->infer && !op->body) check_inferred(c, op);
}

static void check_program(const Graph *g, const Program *p, const char *after) {
    if (!p) return;
    Check c = {
        .g = g, .after = after, .p = p, .scratch = {.arena = arena_new(), .axes = g->axes, .numbers = g->numbers}};
    c.defined = NEW_ARRAY(c.scratch.arena, int, g->values.n + 1);
    c.ids = map_new(c.scratch.arena);
    for (int i = 0; i < p->ops.n; i++) check_op(&c, p->ops.at[i], i);
    if (p->loss) {
        if (p->loss->dims) broken(&c, NULL, "the loss is %s, not a scalar", value_str(c.scratch.arena, p->loss));
        if (p->loss->def && !c.defined[p->loss->id]) broken(&c, NULL, "nothing defines the loss");
    }
    arena_free(c.scratch.arena);
}

void graph_check(const Graph *g, const char *after) {
    if (g->programs.n) { /* lowered: the traced programs' ops live on in these */
        for (int i = 0; i < g->programs.n; i++) check_program(g, g->programs.at[i], after);
        return;
    }
    check_program(g, g->train, after);
    check_program(g, g->assign, after);
    check_program(g, g->eval, after);
    check_program(g, g->sample, after);
}
