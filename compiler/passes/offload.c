/* offload: what lies in host memory between its uses. Saved activations that a policy offloads get an offload after their
 * last forward use and a fetch before their first backward use; ops on states in host memory either run there (host
 * optimizer) or get their operands fetched and written back.
 * Relies on: recompute (Value.offload), shard (State.on_host), edit.h.
 * Relied on by: pipeline.c. */
#include "edit.h"
#include "passes.h"

static Op *copy_op(Graph *g, OpKind kind, const Op *for_op, const char *id, Value *from, Value *to) {
    Op *op = new_op(g, kind);
    op->id = id;
    op->module = for_op->module;
    op->src = for_op->src;
    op->phase = for_op->phase;
    op->unit = for_op->unit;
    op->origin = NULL;
    op->group = -1;
    op->stream = to->on_host ? OFFLOAD : FETCH;
    op->in[op->nin++] = from;
    op->out[op->nout++] = to;
    if (!to->def && !to->state) to->def = op;
    return op;
}

static Value *twin(Graph *g, const Value *v, bool on_host) {
    Value *t = new_value(g, v->dtype, v->dims, v->shape);
    t->on_host = on_host;
    return t;
}

/* ── activations ────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int last_forward, first_backward, def;
} Span;

static Span span_of(const Program *p, const Value *root) {
    Span s = {-1, -1, -1};
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        for (int k = 0; k < op->nout; k++)
            if (op->out[k] == root) s.def = s.last_forward = i;
        for (int k = 0; k < op->nin; k++) {
            if (value_root(op->in[k]) != root) continue;
            if (op->phase == FORWARD) s.last_forward = i;
            else if (s.first_backward < 0) s.first_backward = i;
        }
    }
    return s;
}

static void replace_later(Graph *g, Program *p, Value *root, Value *with, int from) {
    for (int i = from; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (op_is(op, T_VIEW)) continue; /* its users are replaced one by one */
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k];
            if (v == root) replace_operand(op, v, with);
            else if (v->base == root)
                replace_operand(op, v, new_view(g, with, v->dims, v->shape, v->stride, v->offset));
        }
    }
}

static void offload_activations(Graph *g, Program *p) {
    Edit *e = edit_begin(g, p);
    int n = p->ops.n;
    for (int i = 0; i < n; i++) {
        Op *op = p->ops.at[i];
        for (int k = 0; k < op->nout; k++) {
            Value *v = op->out[k];
            if (!v->offload || v->base || v->internal) continue;
            Span s = span_of(p, v);
            if (s.first_backward < 0) continue;
            Value *host = twin(g, v, true), *back = twin(g, v, false);
            const char *suffix = k ? arena_printf(g->arena, ".%d", k) : "";
            edit_after(e, s.last_forward, copy_op(g, OP_OFFLOAD, op, arena_printf(g->arena, "o%s%s", op->id + 1, suffix), v, host));
            replace_later(g, p, v, back, s.first_backward);
            edit_before(e, s.first_backward,
                        copy_op(g, OP_FETCH, p->ops.at[s.first_backward], arena_printf(g->arena, "f%s%s", op->id + 1, suffix), host, back));
        }
    }
    edit_commit(e);
}

/* ── states on the host ─────────────────────────────────────────────────────────────────────────────────────────────── */
static bool on_host(Value *v) { return value_root(v)->on_host; }
static bool updates(const Op *op, int k) { return op_info[op->kind].updates >> k & 1; }

static bool runs_on_host(const Op *op) {
    bool host = false;
    for (int k = 0; k < op->nin; k++) {
        if (!updates(op, k)) continue;
        if (!on_host(op->in[k])) return false;
        host = true;
    }
    return host && op_is(op, T_HOST_OK);
}

static void move_operands(Graph *g, Edit *e, Op *op, int pos, bool to_host) {
    for (int k = 0; k < op->nin; k++) {
        Value *v = op->in[k];
        if (on_host(v) == to_host) continue;
        Value *t = twin(g, v, to_host);
        edit_before(e, pos, copy_op(g, to_host ? OP_OFFLOAD : OP_FETCH, op,
                                    arena_printf(g->arena, "%s_%s_%d", to_host ? "o" : "f", op->id, k), v, t));
        op->in[k] = t;
        if (updates(op, k)) /* only a device op on a host state comes here */
            edit_after(e, pos, copy_op(g, OP_OFFLOAD, op, arena_printf(g->arena, "o_%s_%d", op->id, k), t, v));
    }
}

static void host_states(Graph *g, Program *p) {
    Edit *e = edit_begin(g, p);
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (op_is(op, T_COPY | T_VIEW | T_ASSEMBLE)) continue;
        bool host = runs_on_host(op);
        if (host) op->stream = HOST;
        move_operands(g, e, op, i, host);
    }
    edit_commit(e);
}

void offload(Graph *g, Program *p) {
    bool any_state = false;
    for (int i = 0; i < g->states.n; i++) any_state |= g->states.at[i]->on_host;
    offload_activations(g, p);
    if (any_state) host_states(g, p);
}
