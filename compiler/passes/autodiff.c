/* autodiff: reverse mode. Walks the forward ops backwards from the loss, lets each op's gradient rule append its
 * backward ops, and sums what reaches a value in the order in which it arrives. Relies on: the gradient rules in
 * ir/rules_*.c, units (the dtype that a unit reduces in), precision, remove_dead. Relied on by: shard (Param.reached,
 * Param.grad), recompute (Op.origin, Op.region of backward ops). */
#include "../ir/build.h"
#include "../ir/training.h"
#include "edit.h"
#include "lowering.h"
#include "passes.h"

typedef struct { /* of a forward value that a trainable parameter is upstream of */
    Value *sum;  /* what has reached it so far */
    bool wide;   /* a parameter, or a view of one: its gradient is kept in `dtype`, not in its own */
    bool is_param;
    Dtype dtype;
} Adjoint;

static Adjoint *new_adjoint(Graph *g, Value *v) {
    if (!v->scratch) v->scratch = NEW(g->arena, Adjoint);
    return v->scratch;
}

static bool trainable(const Param *p) {
    return p->value && p->requires_grad && !p->is_buffer && dtype_float(p->dtype);
}

/* What stands for p in the program: parts of a joint are read as one value. */
static Value *value_of(const Param *p) {
    return p->joint ? p->joint->value : p->value;
}

static bool stands_first(const Param *p) { /* in its joint, or alone */
    return !p->joint || p->joint->part[0] == p;
}

static void mark_params(Graph *g) {
    for (int i = 0; i < g->values.n; i++) g->values.at[i]->scratch = NULL;
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        p->reached = false;
        p->grad = NULL;
        if (!trainable(p)) continue;
        *new_adjoint(g, value_of(p)) =
            (Adjoint){.wide = true, .is_param = true, .dtype = p->unit ? p->unit->grad_dtype : p->value->dtype};
    }
}

static bool wants(const Op *op) { /* a trainable parameter is upstream of an operand */
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && op->in[k]->scratch) return true;
    return false;
}

/* A view with one result of a wide value is wide too; pieces of a split are not: they are joined in their own dtype. */
static void mark_op(Graph *g, Op *op) {
    const Adjoint *wide = op_is(op, T_VIEW) && op->nout == 1 ? op_operand(op)->scratch : NULL;
    if (!wants(op) || op_is(op, T_NO_GRAD)) return;
    for (int k = 0; k < op->nout; k++) {
        if (!dtype_float(op->out[k]->dtype)) continue;
        Adjoint *s = new_adjoint(g, op->out[k]);
        if (wide && wide->wide) *s = (Adjoint){.wide = true, .dtype = wide->dtype};
    }
}

/* ── contributions ──────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Builder b;
    int start; /* the current op's backward ops begin here */
} Ctx;

/* v is used by `user` alone among the current op's backward ops and results. */
static bool used_once(const Ctx *c, const Value *v, const Op *user, Value *const *gin, int nin, int self) {
    const Program *p = c->b.p;
    for (int i = c->start; i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nin; k++)
            if (p->ops.at[i]->in[k] == v && p->ops.at[i] != user) return false;
    for (int k = 0; k < nin; k++)
        if (gin[k] == v && k != self) return false;
    return true;
}

/* Lets the op that makes gin[self] store it in dtype d, where it can (views in between follow), so that a weight's
 * gradient is rounded once, from the sum. */
static void widen(Ctx *c, Value *const *gin, int nin, int self, Dtype d) {
    Op *views[MAX_DIMS + 2];
    int n = 0;
    Value *v = gin[self];
    const Op *user = NULL;
    while (v->def && v->def->origin == c->b.origin && v->def->phase == BACKWARD &&
           used_once(c, v, user, gin, nin, self)) {
        Op *op = v->def;
        if (op_is(op, T_WIDE_GRAD)) {
            if (dtype_size(d) > dtype_size(v->dtype) || op->kind == OP_embedding_grad) set_result_dtype(op, d);
            while (n--) op_info[views[n]->kind].infer(c->b.g, views[n]);
            return;
        }
        if (!op_is(op, T_VIEW) || n == MAX_DIMS + 2) return;
        views[n++] = op;
        user = op;
        v = op_operand(op);
    }
}

/* Sums stand in the dtype that the value's gradient is kept in; a lone contribution to a view of a parameter stays as
 * it is, because the op that undoes the view may widen it more cheaply. */
static void contribute(Ctx *c, Value *to, Adjoint *s, Value *v) {
    Dtype d = s->wide ? s->dtype : to->dtype;
    bool lone = s->wide && !s->is_param && !s->sum;
    if (!lone) v = build_cast(&c->b, v, d);
    s->sum = s->sum ? build2(&c->b, OP_add, build_cast(&c->b, s->sum, d), v) : v;
}

static void differentiate(Ctx *c, Op *op) {
    OpParts d = {0};
    bool reached = false;
    for (int k = 0; k < op->nout; k++) {
        const Adjoint *s = op->out[k]->scratch;
        d.out[k] = s ? s->sum : NULL;
        reached |= d.out[k] != NULL;
    }
    if (!reached || !wants(op) || op_is(op, T_NO_GRAD)) return;
    if (!op_info[op->kind].grad)
        fail(op->src,
             "%s has no gradient, and trainable parameters lie upstream of it; put nn.detach around its operand",
             op_info[op->kind].name);
    c->start = c->b.p->ops.n;
    op_info[op->kind].grad(&c->b, op, &d);
    for (int k = 0; k < op->nin; k++) {
        const Adjoint *s = op->in[k] ? op->in[k]->scratch : NULL;
        if (s && d.in[k] && s->wide) widen(c, d.in, op->nin, k, s->dtype);
    }
    for (int k = 0; k < op->nin; k++) {
        Adjoint *s = op->in[k] ? op->in[k]->scratch : NULL;
        if (s && d.in[k]) contribute(c, op->in[k], s, d.in[k]);
    }
}

static void begin(Ctx *c, Op *op) {
    c->b.origin = op;
    c->b.module = op->module;
    c->b.src = op->src;
    c->b.call = op->call;
    c->b.k = 0;
}

static void seed(Ctx *c, Value *loss) {
    Adjoint *s = loss->scratch;
    if (!s) return;
    bool scales = c->b.g->training->scaler && !c->b.p->scaled;
    Value *one = BUILD(&c->b, grad_seed, .scaler = scales ? c->b.g->scaler_state->value : NULL)->grad_seed.y;
    s->sum = build_cast(&c->b, one, loss->dtype);
}

/* Backward ops belong to the region and call of the op that they differentiate. */
static void backward(Graph *g, Program *p) {
    Ctx c = {.b = {.g = g, .p = p, .phase = BACKWARD}};
    for (int i = p->ops.n - 1; i >= 0; i--) {
        Op *op = p->ops.at[i];
        int from = p->ops.n;
        begin(&c, op);
        if (op == p->loss->def) seed(&c, p->loss);
        differentiate(&c, op);
        for (int k = from; k < p->ops.n; k++) join_region(p->ops.at[k], op);
    }
}

/* ── parameters' gradients ──────────────────────────────────────────────────────────────────────────────────────── */
/* A gradient is written straight into its unit's buffer: it needs bytes of its own, that nothing else reads. */
static bool own_bytes(const Value *v, const bool *used) {
    return !v->base && v->def && v->def->phase == BACKWARD && value_contiguous(v) && !used[v->id];
}

static Value *own_copy(Graph *g, Edit *e, const Param *p, Value *v, int last) {
    Program tail = {0};
    Op *def = v->def;
    int next = g->next_op;
    Builder b = {.g = g, .p = &tail, .phase = BACKWARD, .module = p->owner, .src = p->src};
    if (def) b.module = def->module, b.src = def->src, b.call = def->call;
    Value *copy = build1(&b, OP_copy, v);
    g->next_op = next;
    copy->def->id = arena_printf(g->arena, "%sp%d", def ? def->id : "e", p->id);
    copy->def->origin = def && def->origin ? def->origin : def;
    join_region(copy->def, def);
    /* Op.scratch: its position, from 1 */
    bool after_def = def && def->phase == BACKWARD && def->scratch;
    edit_after(e, after_def ? (int)(intptr_t)def->scratch - 1 : last, copy->def);
    return copy;
}

static Value *sum_of(const Param *p) {
    const Adjoint *s = p->value ? value_of(p)->scratch : NULL;
    return s ? s->sum : NULL;
}

/* What other ops read, or two parameters share. Op.scratch becomes the position, from 1. */
static bool *used_values(const Graph *g, const Program *p) {
    bool *used = value_flags(g), *taken = value_flags(g);
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        op->scratch = (void *)(intptr_t)(i + 1);
        for (int k = 0; k < op->nin; k++)
            if (op->in[k]) used[value_root(op->in[k])->id] = used[op->in[k]->id] = true;
    }
    for (int i = 0; i < g->params.n; i++) {
        const Value *sum = sum_of(g->params.at[i]);
        if (!sum || !stands_first(g->params.at[i])) continue;
        if (taken[sum->id]) used[sum->id] = true;
        taken[sum->id] = true;
    }
    return used;
}

static int finish(Graph *g, Program *p) {
    bool *used = used_values(g, p);
    Edit *e = edit_begin(g, p);
    int reached = 0;
    for (int i = 0; i < g->params.n; i++) {
        Param *param = g->params.at[i];
        Value *sum = sum_of(param);
        if (!sum) continue;
        param->reached = true;
        reached++;
        if (!stands_first(param)) continue;
        param->grad = own_bytes(sum, used) ? sum : own_copy(g, e, param, sum, p->ops.n - 1);
        param->grad->joint = param->joint;
    }
    edit_commit(e);
    return reached;
}

void autodiff(Graph *g, Program *p) {
    if (!p->loss) return;
    Source src = p->loss->def ? p->loss->def->src : NOWHERE;
    mark_params(g);
    int n = p->ops.n;
    for (int i = 0; i < n; i++) mark_op(g, p->ops.at[i]);
    backward(g, p);
    if (!finish(g, p))
        fail(src,
             "the loss reaches no trainable parameter, so there is nothing to train; use the model's result in `loss` "
             "(without nn.detach), and leave at least one of its parameters trainable: no nn.freeze, no requires_grad "
             "= false");
    remove_dead(g, p);
}
