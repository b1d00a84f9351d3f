/* precision: where values change dtype. Parameters take their unit's wire dtype; float values that enter a unit are
 * cast to its param_dtype, values that leave it to its output_dtype (FSDP2's mp_policy): a module's arguments and
 * results, where the trace has marked them (Note.crossed). Mixed dtypes at one op are promoted. Relies on: units
 * (Param.unit, Module.unit), the front end's op order and Op.call (-1: outside every module call). Relied on by:
 * autodiff, which differentiates the casts like any other op; recompute. */
#include "../ir/build.h"
#include "../ir/notes.h"
#include "../ir/policy.h"
#include "lower.h"
#include "lowering.h"

typedef struct Cast Cast;
struct Cast { /* of a value, made before: later users of the value read its result */
    const Module *at;
    Dtype to;
    Value *result;
    Cast *next;
};

typedef struct {
    Graph *g;
    const Notes *notes; /* the trace's */
    Builder b;
    VEC(Cast *) casts; /* by Value.id, as far as any was made */
    Op *user;          /* the op that is being worked on; names of inserted ops derive from it */
} Precision;

Module *lower_unit_module(Module *m) {
    while (m && !(m->unit && m->unit->module == m)) m = m->parent;
    return m;
}

/* ── casts ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Does v enter the unit `at` and the checkpointed call of its user together? Then the cast stands outside of the call,
 * so that the call keeps the cast value, which is the one that it reads again. */
static bool cast_stands_outside(const Precision *c, const Value *v, const Module *at) {
    if (!at || (v->def && v->def->region == c->user->region)) return false;
    for (const Module *m = at->parent; m; m = m->parent)
        if (m->checkpoint && m->checkpoint == c->user->checkpoint) return false;
    return true;
}

/* `at`: the unit whose border is crossed, or NULL for a promotion. Widening and narrowing again is left as it stands:
 * it is exact, and gradients are summed in the wide dtype between the two. */
static Value *cast_at(Precision *c, Value *v, Dtype to, Module *at) {
    if (v->dtype == to || !dtype_float(v->dtype)) return v;
    while (c->casts.n <= v->id) push(&c->casts, c->g->arena, NULL);
    for (const Cast *k = c->casts.at[v->id]; k; k = k->next)
        if (k->at == at && k->to == to) return k->result;
    c->b.module = at ? at : c->user->module;
    Cast *k = NEW(c->g->arena, Cast);
    *k = (Cast){at, to, build_cast(&c->b, v, to), c->casts.at[v->id]};
    lower_join_region(k->result->def, cast_stands_outside(c, v, at) ? NULL : c->user);
    c->casts.at[v->id] = k;
    return k->result;
}

/* v is made by an op that the trace put between a value and its users and that precision takes out: a border, a cast
 * that promotes, or a cast that changes nothing now that dtypes are known. */
static bool passes_on(const Precision *c, const Value *v) {
    const Note *n = note_taken(c->notes, v);
    return v->def && (n->crossed || n->promotes || op_changes_nothing(v->def));
}

static Value *origin(const Precision *c, Value *v) {
    while (passes_on(c, v)) v = op_operand(v->def);
    return v;
}

static Value *enter(Precision *c, Value *v, Module *unit) {
    const UnitPolicy *p = unit->unit->policy;
    return p->has_param_dtype && p->cast_forward_inputs ? cast_at(c, v, p->param_dtype, unit) : v;
}

/* v, cast at each border that it crossed on its way. What a function reads without being given it has crossed none. */
static Value *cross(Precision *c, Value *v) {
    const Note *n = note_taken(c->notes, v);
    if (!passes_on(c, v)) return v;
    v = cross(c, op_operand(v->def));
    if (!n->crossed) return v;
    if (!n->leaves) return enter(c, v, n->crossed);
    const UnitPolicy *p = n->crossed->unit->policy;
    return p->has_output_dtype ? cast_at(c, v, p->output_dtype, n->crossed) : v;
}

/* A parameter of the unit `owner`, cast at the border of each unit inside of it down to `to`. */
static Value *enter_param(Precision *c, Value *v, Module *to, const Module *owner) {
    return to == owner ? v : enter(c, enter_param(c, v, lower_unit_module(to->parent), owner), to);
}

/* What an op of the unit `to` reads for v. A parameter that several units hold belongs to a unit that holds them all,
 * and is cast where it is used. */
static Value *operand(Precision *c, Value *v, Module *to) {
    v = cross(c, v);
    const Param *p = value_root(v)->param;
    if (!p || p->is_buffer || !p->unit) return v;
    Module *from = p->unit->module;
    while (from && !module_within(to, from)) from = lower_unit_module(from->parent);
    return enter_param(c, v, to, from);
}

static bool holds(Dtype wide, Dtype narrow) { /* every value of `narrow` is one of `wide` */
    return wide == narrow || wide == FP64 || (wide == FP32 && dtype_size(narrow) <= 2);
}

static bool takes_dtype(const Precision *c, const Value *v) {
    return note_taken(c->notes, value_root(v))->number;
}

/* The widest dtype of the operands; bf16 and fp16 meet in fp32. N_DTYPES: none is a tensor of floats. */
static Dtype widest(const Precision *c, const Op *op, bool weak) {
    Dtype d = N_DTYPES;
    for (int k = 0; k < op->nin; k++) {
        const Value *v = op->in[k];
        Dtype e = v->dtype;
        if (!dtype_float(e) || takes_dtype(c, v) || (!weak && note_taken(c->notes, v)->weak)) continue;
        d = d == N_DTYPES || holds(e, d) ? e : holds(d, e) ? d : FP32;
    }
    return d;
}

/* Mixed arithmetic is done in the widest dtype of its tensors; those without dims count where no other does. */
static void promote(Precision *c, Op *op) {
    bool mixes = op_is(op, T_POINTWISE) || (op_is(op, T_STRIDED) && op->nin > 1);
    if (!mixes) return;
    Dtype d = widest(c, op, false);
    if (d == N_DTYPES) d = widest(c, op, true);
    for (int k = 0; k < op->nin && d != N_DTYPES; k++) {
        Value *v = op->in[k];
        if (!takes_dtype(c, v)) {
            op->in[k] = cast_at(c, v, d, NULL);
            continue;
        }
        Op *made = value_root(v)->def; /* a full, or a cast of integers; v may be its expansion */
        INT_OF(made, dtype) = d;
        op_info[made->kind].infer(c->g, made);
        if (v->def != made) op_info[v->def->kind].infer(c->g, v->def);
    }
}

/* A result of the program, made by `def`, with what casts it at the borders that it crossed. */
static Value *result(Precision *c, Value *v, Op *def) {
    if (!def) return origin(c, v);
    c->user = def;
    build_for(&c->b, def, "s");
    return cross(c, v);
}

/* The loss leaves every unit, as one fp32 number (fp64 in the test build). */
static void loss(Precision *c, Program *p) {
    Value *v = origin(c, p->loss);
    Op *def = v->def;
    Source src = def ? def->src : NOWHERE;
    if (value_numel(v) != 1)
        fail(src, "the loss is %s, and must be one number; reduce it with nn.mean or nn.sum",
             value_str(c->g->arena, v));
    if (!dtype_float(v->dtype))
        fail(src, "the loss is %s, and must be floating point; cast it to \"fp32\"", value_str(c->g->arena, v));
    p->loss = v = result(c, p->loss, def);
    if (!def) return;
    if (v->dtype != FP64) v = cast_at(c, v, FP32, NULL);
    if (v->dims) {
        c->b.module = def->module;
        v = build_reshape(&c->b, v, 0, NULL);
        lower_join_region(v->def, def);
    }
    p->loss = v;
}

void lower_precision(Graph *g, Program *p) {
    for (int i = 0; i < g->params.n; i++) {
        Param *x = g->params.at[i];
        if (x->value && x->unit) x->value->dtype = x->is_buffer ? x->dtype : x->unit->wire;
    }
    Program old = *p;
    memset(&p->ops, 0, sizeof p->ops);
    Precision c = {.g = g, .notes = p->notes, .b = {.g = g, .p = p, .phase = FORWARD}};
    for (int i = 0; i < old.ops.n; i++) {
        Op *op = old.ops.at[i];
        const Note *n = op->nout ? note_taken(c.notes, op_result(op)) : NULL;
        if (n && (n->promotes || n->crossed)) continue;
        c.user = op;
        build_for(&c.b, op, "c");
        Module *unit = op->call < 0 ? NULL : lower_unit_module(op->module);
        for (int k = 0; k < op->nin; k++) /* what is written in place stays itself */
            if (op->in[k]) op->in[k] = op_updates(op, k) ? origin(&c, op->in[k]) : operand(&c, op->in[k], unit);
        if (n && n->like) INT_OF(op, dtype) = operand(&c, n->like, unit)->dtype;
        if (op_needs_copy(op)) { /* a view of a cast's result, which the cast has laid out; without it strides differ */
            c.b.module = op->module;
            op->reshape.a = build_one(&c.b, OP_copy, op->reshape.a);
            lower_join_region(op->reshape.a->def, op);
        }
        promote(&c, op);
        if (op_info[op->kind].infer) op_info[op->kind].infer(c.g, op);
        if (op_changes_nothing(op)) continue;
        push(&c.b.p->ops, c.g->arena, op);
    }
    if (p->logits) p->logits = result(&c, p->logits, origin(&c, p->logits)->def);
    if (p->loss) loss(&c, p);
    p->notes = NULL;
}
