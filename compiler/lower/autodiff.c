/* autodiff: reverse mode. Walks the forward ops backwards from the loss, lets each op's gradient rule append its
 * backward ops, and sums what reaches a value in the order in which it arrives. Relies on: the gradient rules in
 * ir/rules_*.c, units (the dtype that a unit reduces in), precision, remove_dead. Relied on by: shard (Param.reached,
 * Param.grad), recompute (Op.origin, Op.region of backward ops). */
#include "../ir/build.h"
#include "../ir/training.h"
#include "edit.h"
#include "lower.h"
#include "lowering.h"

typedef struct { /* of a forward value */
    bool wanted; /* a trainable parameter is upstream of it */
    Value *sum;  /* what has reached it so far */
    bool wide;   /* a parameter, a view of one, or of 8 bits: its gradient is kept in `dtype`, not in its own */
    bool is_param;
    Dtype dtype;
} Adjoint;

typedef struct {
    Builder b;
    Adjoint *adjoint; /* by Value.id, of the values that the forward has */
    Uses *uses;
    int indexed; /* ops of the program, from the first, that `uses` knows */
} Autodiff;

/* NULL: no trainable parameter is upstream of v. */
static Adjoint *adjoint_of(const Autodiff *c, const Value *v) {
    return v && c->adjoint[v->id].wanted ? &c->adjoint[v->id] : NULL;
}

/* What stands for p in the program: fused parameters are read as one value. */
static Value *value_of(const Param *p) {
    return p->fused ? p->fused->value : p->value;
}

static bool stands_first(const Param *p) { /* among those it is fused with, or alone */
    return !p->fused || p->fused->part[0] == p;
}

static bool wants(const Autodiff *c, const Op *op) { /* a trainable parameter is upstream of an operand */
    for (int k = 0; k < op->nin; k++)
        if (adjoint_of(c, op->in[k])) return true;
    return false;
}

/* A parameter that is read more often than this has its gradient summed in fp32 and rounded once: each addition in 16
 * bits may lose half a unit in the last place, and n equal terms in bf16 stop growing at 256. A few uses, such as an
 * embedding's that is the head's too, lose less than what rounding the terms has lost, and save the wider buffer. */
enum { FEW = 8 };

/* The dtype that p's gradient is made in. */
static Dtype grad_dtype(const Param *p) {
    return p->unit ? p->unit->grad_dtype : p->value->dtype;
}

/* Which values have an adjoint: trainable parameters, and what is computed from them. */
static void mark_wanted(Autodiff *c) {
    const Graph *g = c->b.g;
    const Program *p = c->b.p;
    int *nreads = NEW_ARRAY(g->arena, int, g->values.n + 1); /* by Value.id, themselves or through views of it */
    for (int i = p->ops.n - 1; i >= 0; i--) {
        const Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin; k++)
            if (op->in[k]) nreads[op->in[k]->id] += op_is(op, T_VIEW) && op->nout == 1 ? nreads[op_result(op)->id] : 1;
    }
    for (int i = 0; i < g->params.n; i++) {
        Param *x = g->params.at[i];
        x->reached = false;
        x->grad = NULL;
        if (!x->value || !x->requires_grad || x->is_buffer || !dtype_float(x->dtype)) continue;
        Dtype d = grad_dtype(x);
        if (dtype_size(d) < dtype_size(FP32) && nreads[value_of(x)->id] > FEW) d = FP32;
        c->adjoint[value_of(x)->id] = (Adjoint){.wanted = true, .wide = true, .is_param = true, .dtype = d};
    }
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (!wants(c, op) || op_is(op, T_NO_GRAD)) continue;
        /* A view of a wide value is wide too; pieces of a split are not: they are joined in their own dtype. What
         * stands for a value in 8 bits has its gradient. */
        bool passes = op_is(op, T_QUANTIZES) || (op_is(op, T_VIEW) && op->nout == 1);
        const Adjoint *of = passes ? adjoint_of(c, op_operand(op)) : NULL;
        Adjoint made =
            of && of->wide ? (Adjoint){.wanted = true, .wide = true, .dtype = of->dtype} : (Adjoint){.wanted = true};
        if (op_is(op, T_QUANTIZES) && !made.wide) made.wide = true, made.dtype = op_operand(op)->dtype;
        for (int k = 0; k < op->nout; k++)
            if (op->out[k] && dtype_float(op->out[k]->dtype)) c->adjoint[op->out[k]->id] = made;
    }
}

/* ── contributions ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* Does `user` alone use v, and is v no other gradient that the current op's rule gives? */
static bool used_once(const Autodiff *c, const Value *v, const Op *user, Value *const *gin, int nin, int self) {
    for (const User *u = uses_users(c->uses, v); u; u = u->next)
        if (u->value == v && u->op != user) return false;
    for (int k = 0; k < nin; k++)
        if (gin[k] == v && k != self) return false;
    return true;
}

/* Lets the op that makes gin[self] store it in dtype d, where it can (views in between follow), so that a weight's
 * gradient is rounded once, from the sum. */
static void widen(Autodiff *c, Value *const *gin, int nin, int self, Dtype d) {
    Op *views[MAX_DIMS + 2];
    int n = 0;
    Value *v = gin[self];
    const Op *user = NULL;
    while (v->def && v->def->origin == c->b.origin && v->def->phase == BACKWARD &&
           used_once(c, v, user, gin, nin, self)) {
        Op *op = v->def;
        if (op_is(op, T_WIDE_GRAD)) {
            if (dtype_size(d) > dtype_size(v->dtype) || op_is(op, T_ACCUMULATES)) build_set_dtype(op, d);
            while (n--) op_info[views[n]->kind].infer(c->b.g, views[n]);
            return;
        }
        if (!op_is(op, T_VIEW) || n == MAX_DIMS + 2) return;
        views[n++] = op;
        user = op;
        v = op_operand(op);
    }
}

static void index_built(Autodiff *c) {
    const Program *p = c->b.p;
    for (; c->indexed < p->ops.n; c->indexed++) {
        uses_add(c->uses, p->ops.at[c->indexed]);
        uses_place(c->uses, p->ops.at[c->indexed], c->indexed);
    }
}

/* A rule makes each operand's gradient in its shape and dtype; the gradient of a view's operand, or of 8 bits, may be
 * wide. */
static void check_rule(const Autodiff *c, const Op *op, const OpParts *d) {
    for (int k = 0; k < op->nin; k++) {
        const Adjoint *s = adjoint_of(c, op->in[k]);
        const Value *made = d->in[k], *of = op->in[k];
        if (!s || !made) continue;
        bool may_be_wide = s->wide && (made->dtype == s->dtype || dtype_size(of->dtype) == 1);
        if (!value_same_shape(made, of) || (made->dtype != of->dtype && !may_be_wide))
            bug(op->src, "the gradient rule of %s makes %s for operand %d, which is %s", op_info[op->kind].name,
                value_str(c->b.g->arena, made), k, value_str(c->b.g->arena, of));
    }
}

static void differentiate(Autodiff *c, Op *op) {
    OpParts d = {0};
    bool reached = false;
    for (int k = 0; k < op->nout; k++) {
        const Adjoint *s = adjoint_of(c, op->out[k]);
        d.out[k] = s ? s->sum : NULL;
        reached |= d.out[k] != NULL;
    }
    if (!reached || !wants(c, op) || op_is(op, T_NO_GRAD)) return;
    if (!op_info[op->kind].grad)
        fail(op->src,
             "%s has no gradient, and trainable parameters lie upstream of it; put nn.detach around its operand",
             op_info[op->kind].name);
    op_info[op->kind].grad(&c->b, op, &d);
    check_rule(c, op, &d);
    index_built(c);
    for (int k = 0; k < op->nin; k++) {
        const Adjoint *s = adjoint_of(c, op->in[k]);
        if (s && d.in[k] && s->wide) widen(c, d.in, op->nin, k, s->dtype);
    }
    for (int k = 0; k < op->nin; k++) {
        Adjoint *s = adjoint_of(c, op->in[k]);
        Value *v = d.in[k];
        if (!s || !v) continue;
        /* Sums stand in the dtype that the value's gradient is kept in; a lone contribution to a view of a parameter
         * stays as it is, because the op that undoes the view may widen it more cheaply. */
        Dtype kept = s->wide ? s->dtype : op->in[k]->dtype;
        bool lone = s->wide && !s->is_param && !s->sum;
        if (!lone) v = build_cast(&c->b, v, kept);
        s->sum = s->sum ? build_two(&c->b, OP_add, build_cast(&c->b, s->sum, kept), v) : v;
    }
}

/* Backward ops belong to the region and call of the op that they differentiate. */
static void backward(Autodiff *c, Program *p) {
    Graph *g = c->b.g;
    Adjoint *loss = adjoint_of(c, p->loss);
    for (int i = p->ops.n - 1; i >= 0; i--) {
        Op *op = p->ops.at[i];
        int from = p->ops.n;
        build_for(&c->b, op, "b");
        c->b.origin = op;
        if (loss && op == p->loss->def) {
            bool scales = g->training->scaler && !p->scaled;
            Value *seed = BUILD(&c->b, grad_seed, .scaler = scales ? g->scaler_state->value : NULL)->grad_seed.y;
            loss->sum = build_cast(&c->b, seed, p->loss->dtype);
        }
        differentiate(c, op);
        for (int k = from; k < p->ops.n; k++) lower_join_region(p->ops.at[k], op);
        index_built(c);
    }
}

/* ── parameters' gradients ──────────────────────────────────────────────────────────────────────────────────────── */
/* Of a sum that something else reads, or that is in another dtype. */
static Value *own_copy(Autodiff *c, Edit *e, const Param *p, Value *v) {
    Graph *g = c->b.g;
    Program tail = {0};
    Op *def = v->def;
    Builder b = {.g = g, .p = &tail, .phase = BACKWARD, .module = p->owner, .src = p->src};
    if (def) build_for(&b, def, NULL);
    b.id = arena_printf(g->arena, "%sp%d", def ? def->id : "e", p->id);
    Value *copy = v->dtype == grad_dtype(p) ? build_one(&b, OP_copy, v) : build_cast(&b, v, grad_dtype(p));
    copy->def->origin = def && def->origin ? def->origin : def;
    lower_join_region(copy->def, def);
    int at = def && def->phase == BACKWARD ? uses_position(c->uses, def) : -1;
    edit_after(e, at < 0 ? c->b.p->ops.n - 1 : at, copy->def);
    return copy;
}

/* By more than views, and views of these, that nothing reads, which a rule may leave. */
static bool is_read(const Autodiff *c, const Value *v) {
    int idle = 0;
    for (const User *u = uses_users(c->uses, v); u; u = u->next)
        idle += u->value == v && op_is(u->op, T_VIEW) && u->op->nout == 1 && !is_read(c, op_result(u->op));
    return uses_count(c->uses, v) > idle;
}

static Value *sum_of(const Autodiff *c, const Param *p) {
    const Adjoint *s = p->value ? adjoint_of(c, value_of(p)) : NULL;
    return s ? s->sum : NULL;
}

static int finish(Autodiff *c) {
    Graph *g = c->b.g;
    bool *taken = uses_value_flags(g), *shared = uses_value_flags(g); /* the gradient of a parameter, of several */
    for (int i = 0; i < g->params.n; i++) {
        const Value *sum = sum_of(c, g->params.at[i]);
        if (!sum || !stands_first(g->params.at[i])) continue;
        shared[sum->id] = taken[sum->id];
        taken[sum->id] = true;
    }
    Edit *e = edit_begin(g, c->b.p);
    int reached = 0;
    for (int i = 0; i < g->params.n; i++) {
        Param *param = g->params.at[i];
        Value *sum = sum_of(c, param);
        if (!sum) continue;
        param->reached = true;
        reached++;
        if (!stands_first(param)) continue;
        /* It will be written straight into the unit's buffer, so it needs bytes of its own, which nothing else reads.
         */
        bool made = !sum->base && sum->def && sum->def->phase == BACKWARD && value_contiguous(sum) &&
                    sum->dtype == grad_dtype(param);
        bool alone = made && !is_read(c, sum) && !shared[sum->id];
        param->grad = alone ? sum : own_copy(c, e, param, sum);
        param->grad->fused = param->fused;
    }
    edit_commit(e);
    return reached;
}

void lower_autodiff(Graph *g, Program *p) {
    if (!p->loss) return;
    Source src = p->loss->def ? p->loss->def->src : NOWHERE;
    Autodiff c = {.b = {.g = g, .p = p, .phase = BACKWARD}, .indexed = p->ops.n};
    c.adjoint = NEW_ARRAY(g->arena, Adjoint, g->values.n + 1);
    mark_wanted(&c);
    c.uses = uses_new(g, p); /* after mark_wanted: no parameter has a gradient yet */
    backward(&c, p);
    int reached = finish(&c);
    uses_free(c.uses);
    if (!reached)
        fail(src,
             "the loss reaches no trainable parameter, so there is nothing to train; use the model's result in `loss` "
             "(without nn.detach), and leave at least one of its parameters trainable: no nn.freeze, no requires_grad "
             "= false");
    lower_remove_dead(g, p);
}
